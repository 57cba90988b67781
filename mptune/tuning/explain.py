"""Measurement of the winner's neighbours for an explanation: trials of the run, timed in turn with the winner."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from mptune.backends import get_backend
from mptune.backends.processor import usable_cores
from mptune.errors import KernelError, MptuneError, RunFileError
from mptune.explanation import Explanation, explanation_of
from mptune.interop import read_run
from mptune.kernel import Tunable
from mptune.kernel.limits import whole_space
from mptune.measure.pool import runnable_backend
from mptune.results.unseen import count_of, draws_of
from mptune.run import Run, in_short
from mptune.source.loading import sizes_of, tunable_of_run
from mptune.space.arguments import POSITIVE, checked
from mptune.space.configuration import Configuration
from mptune.space.search_space import SearchSpace
from mptune.store import RunFile
from mptune.tuning.finals import FinalRounds
from mptune.tuning.session import RunSession, Warnings, warn_caller
from mptune.tuning.verify import LEAST_INPUTS, Verifier, changed_conditions, evaluator_of


@checked
def explain(
    run: Run | str | Path,
    kernel: Tunable | str | Path | None = None,
    *,
    time_limit_s: Annotated[float | None, POSITIVE] = None,
    on_trial: Callable[[], None] = lambda: None,
    on_warning: Callable[[str], None] = warn_caller,
) -> Explanation:
    """Explain why a run's winner has its types, and measure missing neighbours on the run's device.

    The neighbours become trials of the run. A better neighbour takes the winner's place, timed beside the baseline and
    verified on as many unseen inputs. On another device, without the kernel, or for a recording, only stored trials
    are explained, and :attr:`Explanation.unmeasured` has the reason.

    Args:
        run: a run file, a recorded space, or a run, whose new trials are then not kept.
        kernel: the kernel or application, its definition file or the folder of that; not needed for a bundled one.
        time_limit_s: begin no further measurement after this many seconds.
        on_trial: called after each evaluated configuration.
        on_warning: called with each reason to doubt that the kernel is the run's; by default a warning.

    Raises:
        RunFileError, SpaceFileError: the file cannot be read.
        KernelError: the kernel given is not the run's.
        MptuneError: the time limit is not above 0.
    """
    start = time.monotonic()
    loaded = run if isinstance(run, Run) else read_run(run)
    found = explanation_of(loaded)
    if found.trial is None:
        return found
    if loaded.info.recorded:
        return explanation_of(loaded, unmeasured="a recording has no kernel to measure")
    try:
        definition = tunable_of_run(loaded.info, kernel, on_warning=on_warning)
        sizes = sizes_of(loaded.info, definition)
    except (KernelError, RunFileError) as error:
        if kernel is not None:
            raise
        return explanation_of(loaded, unmeasured=str(error))
    measured, why = loaded, ""
    try:
        if _unsettled(found):
            device = get_backend(runnable_backend(loaded.info.backend)).describe()
            if (loaded.info.device, loaded.info.architecture) != (device.name, device.architecture):
                here = f"{device.name} ({device.architecture})"
                raise MptuneError(f"the run is of {loaded.info.device} ({loaded.info.architecture}), this is {here}")
            searched = draws_of(found.trial) - count_of(found.trial, "unseen_inputs")
            again = evaluator_of(loaded.info, definition, found.trial, sizes, draws=searched, compilers=usable_cores())
            with (
                RunFile.in_memory(loaded.info, loaded.state) if isinstance(run, Run) else RunFile.open(run) as file,
                again as evaluator,
            ):
                if changes := changed_conditions(loaded.info, definition, evaluator, found.trial):
                    raise MptuneError(f"{'; '.join(changes)}: mptune tune --resume measures the run again")
                space = whole_space(definition, sizes, evaluator.start().facts)
                session = RunSession(
                    evaluator,
                    file,
                    loaded.info.objective,
                    start=start,
                    time_limit_s=time_limit_s,
                    warn=Warnings(on_warning),
                    on_progress=lambda _: on_trial(),
                )
                for trial in loaded.trials:
                    session.keep(dataclasses.replace(trial, configuration=definition.own(trial.configuration)), trial)
                try:
                    why = _measure(found, session, space)
                finally:
                    measured = Run(loaded.info, list(session.trials.values()), session.state, loaded.sources)
    except MptuneError as error:
        why = in_short(str(error))
    except KeyboardInterrupt:
        if not isinstance(run, Run):
            on_warning(f"the measurements so far are kept in {run}; the same command goes on with the rest")
        raise
    return explanation_of(measured, found.trial.configuration, unmeasured=why)


def _unsettled(found: Explanation) -> list[Configuration]:
    """Return the neighbours that were not timed in rounds together with the winner."""
    return [
        c.configuration
        for c in found.changes
        if not c.is_known or (c.outcome.trial is not None and c.outcome.trial.is_valid and c.outcome.interval is None)
    ]


def _measure(found: Explanation, session: RunSession, space: SearchSpace) -> str:
    """Evaluate the missing neighbours, time them in turn with the winner, and verify the reported trials.

    Return why neighbours are still missing; empty if none is.
    """
    assert found.trial is not None
    winner, finals = session.trials[found.trial.configuration], FinalRounds(session)
    inputs = LEAST_INPUTS
    if session.objective.is_feasible(winner):  # a new winner runs on as many
        inputs = max(count_of(trial, "unseen_inputs") for trial in session.result().reported)
    verify = Verifier(session, inputs, least=inputs)
    waiting = deque(c.configuration for c in found.changes if not c.is_known and c.configuration in space)
    session.evaluate(
        len(session.trials) + len(waiting), lambda n: [waiting.popleft() for _ in range(min(n, len(waiting)))]
    )
    timed = [trial for c in _unsettled(found) if (trial := session.trials.get(c)) is not None and trial.is_valid]
    if timed:
        finals.add(winner, timed)
    # Rounds that choose a neighbour as the fastest flatter it, so it is timed in further rounds.
    flattered = {trial.configuration for trial in timed} if session.objective.is_time else set()
    while True:
        best = session.result().best
        if best is not None and best.configuration in flattered:
            flattered.remove(best.configuration)
            finals.add(winner, [best])
        elif not verify():
            break
    left = [c.configuration for c in explanation_of(session.result(), winner.configuration).changes if not c.is_known]
    if not session.is_in_time and any(configuration in space for configuration in left):
        return "the time limit was over; the same command goes on with the rest"
    return "" if all(configuration in space for configuration in left) else f"{found.run.kernel} does not allow them"
