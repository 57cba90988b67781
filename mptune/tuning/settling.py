"""The finals of a run: what can be reported is measured again, side by side, until it is known what is.

A winner picked from many noisy times is the luckiest of the fastest, and the baseline was measured in other minutes
than the winner was. So the few that can win are measured again in turn at the end, which makes their ratio one of times
taken side by side.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mptune.measure.device import DeviceEvaluator
from mptune.measure.rounds import Turns
from mptune.results.objective import Objective
from mptune.results.speedup import LEAST_ROUNDS, Finals
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.space.configuration import Configuration, Value
from mptune.tuning.race import race, rounds_for_interval
from mptune.tuning.session import Session, Warnings

__all__ = ["Settling", "finalists"]

#: The finalists: so many of the fastest feasible trials, the fastest of each further combination of types that may be
#: as fast, so many of the fastest with the baseline's types, and the front.
_WINNERS: Final = 3
_COMBINATIONS: Final = 5
_BASELINES: Final = 3
#: Trials whose shortest launch took up to so much longer than the fastest's may be as fast.
_MAY_BE_AS_FAST: Final = 1.15
#: How often finalists are chosen anew because those measured again turned out slower than others.
_SETTLING: Final = 10
#: The share of the run's other wall time that finals may add. Finals that are held again, because others have come to
#: be reported, may take twice that in all. There are always rounds enough for an interval, however long they take.
_SHARE: Final = 0.2
_TIMES: Final = 2.0


class Settling:
    """Measures finalists until what is reported has been measured side by side.

    Args:
        evaluator: measures.
        session: has the trials of the run, and keeps the finals.
        baseline: values by parameter that make a configuration one of the baseline's.
        warn: told in one line what the finals could not tell.
    """

    def __init__(
        self,
        evaluator: DeviceEvaluator,
        session: Session,
        baseline: Mapping[str, Sequence[Value]],
        warn: Warnings,
    ) -> None:
        self._evaluator = evaluator
        self._session = session
        self._baseline = baseline
        self._warn = warn
        #: How long finals have taken, in seconds.
        self._spent_s = 0.0
        #: What has been measured again in turn.
        self._settled: set[Configuration] = set()
        #: What did not run when it was, though that may not be its fault.
        self._failed: set[Configuration] = set()
        #: What finals have not met yet and may turn out to be the baseline.
        self._rivals: set[Configuration] = set()

    def take_over(self) -> None:
        """Count as measured what an earlier session of the run has timed side by side, after it was chosen."""
        finals = self._session.result().state.finals
        self._settled.update(filter(finals.is_chosen, finals.configurations))

    @property
    def were_disturbed(self) -> bool:
        """Whether the last finals were on a busy machine or left the best's speedup unsettled."""
        run = self._session.result()
        return bool(run.state.finals.noise) or (run.best is not None and not run.is_settled(run.best))

    def consider(self, configurations: Sequence[Configuration]) -> None:
        """Have those of some configurations in the next finals that may be as fast as the baseline."""
        baseline = self._session.result().baseline
        limit_ms = math.inf if baseline is None else _MAY_BE_AS_FAST * baseline.metric("time_min_ms")
        trials = (self._session.trials[configuration] for configuration in configurations)
        self._rivals = {t.configuration for t in trials if t.is_valid and t.metric("time_min_ms") <= limit_ms}

    @property
    def are_settled(self) -> bool:
        """Whether all that is going to be reported has been measured side by side, as far as it can be."""
        last = self.finalists()
        # What is alone is compared with nothing: that is not worth going on for when the time is up.
        is_needless = not last or (len(last) == 1 and not self._session.is_in_time)
        return is_needless or not (self._unraced or self._apart)

    @property
    def _unraced(self) -> list[Configuration]:
        """What is going to be reported, or may be the baseline, and has taken no part in the last finals."""
        run, finalists = self._session.result(), {trial.configuration for trial in self.finalists()}
        raced = self._settled & (self._failed | set(run.state.finals.configurations))
        wanted = (*(trial.configuration for trial in run.reported), *(self._rivals & finalists))
        return [configuration for configuration in wanted if configuration not in raced]

    @property
    def _apart(self) -> list[Configuration]:
        """What is going to be reported and was not timed beside the baseline in rounds enough, and the baseline.

        Rounds that chose it would flatter it: only those that followed count.
        """
        run = self._session.result()
        reported = [t.configuration for t in run.reported if t.configuration not in self._failed]
        beside = [c for c in reported if run.baseline is not None and c == run.baseline.configuration]
        apart = [c for c in reported if run.state.finals.fresh_rounds(c, *beside) < LEAST_ROUNDS]
        return list(dict.fromkeys((*beside, *apart))) if apart else []

    def finalists(self) -> list[Trial]:
        """Return the trials that can be the best or the baseline (:func:`finalists`)."""
        return finalists(self._session.result(), self._session.objective, self._baseline)

    def settle(self) -> None:
        """Measure in turn, once more, what can be the best, on the front or the baseline, until all of it has been."""
        for _ in range(_SETTLING):
            if self.are_settled or not (self._hold_finals() if self._unraced else self._go_on()):
                break
        self._say_what_is_unsure()

    def _hold_finals(self) -> bool:
        """Find out which of the finalists are reported, then time those; whether any could be measured."""
        began, last, left_s = time.monotonic(), self.finalists(), self._time_left()
        self._rivals = set()
        turns = Turns(self._evaluator, last)

        rounds = race(turns.measure, self._groups(last), lambda: left_s() <= 0)
        self._keep(turns, Finals.of(rounds, len(rounds), turns.tasks_per_core, turns.calibration_ms))
        self._time_apart(turns, left_s)
        self._spent_s += time.monotonic() - began
        return bool(turns.measured)

    def _go_on(self) -> bool:
        """Go on with the last finals, of which others are reported now than were timed; whether any could be."""
        began = time.monotonic()
        turns = Turns(self._evaluator, [self._session.trials[configuration] for configuration in self._apart])
        self._time_apart(turns, self._time_left())
        self._spent_s += time.monotonic() - began
        return bool(turns.measured)

    def _time_left(self) -> Callable[[], float]:
        """Return a function that gives the seconds left for finals that begin now."""
        began, before_s = time.monotonic(), self._spent_s
        share_s = _SHARE * (self._session.elapsed_s - before_s)
        allowed_s = min(share_s, _TIMES * share_s - before_s)
        return lambda: min(allowed_s - (time.monotonic() - began), self._session.closing_s)

    def _time_apart(self, turns: Turns, left_s: Callable[[], float]) -> None:
        """Time what is reported and the baseline side by side, as far as they have not been since the choice.

        Args:
            turns: measures them.
            left_s: how long this may go on; rounds enough for an interval there are in any case.
        """
        finals = self._session.result().state.finals
        timed = [configuration for configuration in self._apart if configuration in finals.configurations]
        if not timed:
            return
        # Of finals at two times the busier one counts.
        tasks, calibration_ms = ([], ()) if turns.measured else ([finals.tasks_per_core], finals.calibration_ms)
        wanted = rounds_for_interval(finals.rounds[: finals.chosen_after], timed)
        more = turns.measure(timed, LEAST_ROUNDS)
        running = [configuration for configuration in timed if turns.runs(configuration)]
        affordable = int(left_s() / turns.round_s(len(running))) if running else 0
        if (further := min(wanted - len(more), affordable)) > 0:
            more += turns.measure(running, further)
        tasks = [each for each in (*tasks, turns.tasks_per_core) if not math.isnan(each)]
        rounds, calibration_ms = [*finals.rounds, *more], (*calibration_ms, *turns.calibration_ms)
        if len(calibration_ms) < len(rounds):
            calibration_ms = ()  # that of some rounds is not known
        self._keep(turns, Finals.of(rounds, finals.chosen_after, max(tasks, default=math.nan), calibration_ms))

    def _say_what_is_unsure(self) -> None:
        """Say what nobody would expect of times: that they are disturbed, or were not taken side by side."""
        run = self._session.result()
        reported = [t for t in (run.best, *run.front) if t is not None and not math.isnan(run.speedup(t))]
        if noise := run.state.finals.noise:
            self._warn(
                f"the machine was busy while the finalists were timed ({noise}): a speedup is as sure as its interval; "
                "the same command with --resume times them again"
            )
        elif run.best in reported and run.speedup_interval(run.best) and not run.is_settled(run.best):
            self._warn(
                "the speedup is unsettled: its interval holds 1, or is too wide to say much; the same command with "
                "--resume times the finalists again"
            )
        if "time_ms" in run.objective.names and any(run.speedup_interval(trial) is None for trial in reported):
            self._warn(
                "what is reported could not be timed side by side with the baseline in rounds enough for an interval: "
                "its speedup compares times of different minutes"
            )

    def _groups(self, last: Sequence[Trial]) -> list[list[Configuration]]:
        """Return among whom the fastest is looked for: what is feasible, and what has the baseline's types."""
        objective = self._session.objective
        baselines = [t.configuration for t in last if t.configuration.is_among(self._baseline)]
        feasible = [t.configuration for t in last if objective.is_feasible(t)] if objective.is_time else []
        # Who is in neither takes part in the first rounds.
        return [feasible, baselines, *([t.configuration] for t in last)]

    def _keep(self, turns: Turns, finals: Finals | None = None) -> None:
        """Record what finalists took, and how long each takes against the baseline."""
        typical_ms: Mapping[Configuration, float] = {}
        if finals is not None and finals.configurations:
            baseline = self._session.result().baseline
            is_there = baseline is not None and baseline.configuration in finals.configurations
            typical_ms = finals.typical_ms(baseline.configuration if baseline is not None and is_there else None)
        for trial in turns.trials():
            if trial.is_valid or self._evaluator.policy.condemns(trial):
                time_ms = typical_ms.get(trial.configuration, trial.time_ms)
                metrics = {**trial.measurement.metrics, **({"time_ms": time_ms} if trial.is_valid else {})}
                kept = trial.with_measurement(metrics=metrics)
                self._session.keep(kept)
        self._failed.difference_update(turns.measured)
        self._failed.update(c for c in turns.measured if not turns.runs(c))
        self._settled.update(turns.measured)
        if finals is not None:
            self._session.update(finals=finals)


def finalists(run: Run, objective: Objective, baseline: Mapping[str, Sequence[Value]]) -> list[Trial]:
    """Return the trials that can be the best or the baseline, fastest first, none twice.

    Empty if time is not optimised, or nothing is feasible.

    Args:
        run: every trial so far.
        objective: ranks them.
        baseline: values by parameter that make a configuration one of the baseline's.
    """
    if "time_ms" not in objective.names:
        return []
    ranked = sorted(
        (trial for trial in run.trials if not math.isnan(objective.performance(trial))),
        key=objective.performance,
        reverse=True,
    )
    feasible = [trial for trial in ranked if objective.is_feasible(trial)]
    if not feasible:
        return []
    # What exceeds the threshold is no baseline, however fast it is; what breaks another constraint may be one.
    right = [t for t in ranked if t.configuration.is_among(baseline) and objective.error_excess(t) <= 0]
    baselines = sorted(right, key=objective.is_feasible, reverse=True)[:_BASELINES]
    # Where times are disturbed the shortest launch says more than the median, which ranks.
    limit_ms = _MAY_BE_AS_FAST * min(trial.metric("time_min_ms") for trial in feasible[: 2 * _WINNERS])
    near = [trial for trial in feasible[_WINNERS:] if trial.metric("time_min_ms") <= limit_ms]
    combinations: dict[tuple[Value, ...], Trial] = {run.types_of(t): t for t in reversed(near)}
    for trial in feasible[:_WINNERS]:
        combinations.pop(run.types_of(trial), None)
    others = sorted(combinations.values(), key=objective.performance, reverse=True)[:_COMBINATIONS]
    chosen = (*feasible[:_WINNERS], *others, *run.front, *baselines)
    return list({trial.configuration: trial for trial in chosen}.values())
