"""The trial of a run to emit, with its kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from mptune.errors import MptuneError
from mptune.kernel import Sizes, Tunable
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.space.configuration import Configuration, Value
from mptune.space.parameters import full_name
from mptune.store import ParameterInfo

#: A comma between assignments, outside of brackets.
_COMMA = re.compile(r",(?![^(\[]*[)\]])")
_SHORTEST_KEY = 8
_NUMBER = re.compile(r"(trial\s*)?(\d+)", re.ASCII)

Tuned = TypeVar("Tuned", bound=Tunable)


@dataclass(frozen=True, slots=True)
class Winner(Generic[Tuned]):
    """A trial of a run with its definition and sizes.

    The threshold is the run's, or ``max_error``; a trial chosen by name may exceed the run's.
    """

    run: Run
    kernel: Tuned
    sizes: Sizes
    trial: Trial
    threshold: float | Mapping[str, float] | None

    @property
    def configuration(self) -> Configuration:
        """The configuration of the trial, in the kernel's own values."""
        return self.kernel.own(self.trial.configuration)


def select(
    run: Run, *, max_error: float | Mapping[str, float] | None = None, configuration: str = "", kernel: Tunable | None
) -> Trial | None:
    """Return the best feasible trial, or the trial of a configuration; None if it exceeds ``max_error``.

    Args:
        run: the run.
        max_error: a threshold instead of the run's own.
        configuration: the number of a trial in order of evaluation from 1 (``7`` or ``trial 7``), the beginning of its
            key, or ``NAME=VALUE`` by commas that only one valid trial has.
        kernel: the definition, which parses the values; None for the parameters of the run.

    Raises:
        MptuneError: no trial or several match, or the trial did not run.
    """
    if configuration:
        trial = _named(run, configuration.strip(), kernel)
        if not trial.is_valid:
            raise MptuneError(f"configuration {trial.configuration} did not run: {trial.status.value}, {trial.message}")
        is_within = max_error is None or run.objective_within(max_error).is_feasible(trial)
        return trial if is_within else None
    if max_error is None:
        return run.best
    return run.objective_within(max_error).best(run.trials)


def _named(run: Run, text: str, kernel: Tunable | None) -> Trial:
    if "=" in text:
        return _with_values(run, text, kernel)
    if (given := _NUMBER.fullmatch(text)) and (given[1] or len(given[2]) < _SHORTEST_KEY):
        if not 1 <= int(given[2]) <= len(run.trials):
            raise MptuneError(f"configuration {text}: the run has the trials 1 to {len(run.trials)}")
        return run.trials[int(given[2]) - 1]
    found = [trial for trial in run.trials if len(text) >= _SHORTEST_KEY and trial.key.startswith(text.lower())]
    if len(found) != 1:
        raise MptuneError(
            f"configuration {text!r}: expected a trial's number from 1 to {len(run.trials)}, {_SHORTEST_KEY} or more "
            f"digits a key begins with, or NAME=VALUE by commas ({len(found)} keys begin so)"
        )
    return found[0]


def _with_values(run: Run, text: str, kernel: Tunable | None) -> Trial:
    parameters = run.info.parameters if kernel is None else kernel.parameters
    by_name = {parameter.name: parameter for parameter in parameters}
    wanted: dict[str, Value] = {}
    for part in _COMMA.split(text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        name = full_name(name, by_name, kernel.called if kernel else run.kernel) if equals else name
        if not equals or name in wanted:
            raise MptuneError(f"configuration {text!r}: expected NAME=VALUE by commas, each name once, not {part!r}")
        parameter = by_name[name]
        if isinstance(parameter, ParameterInfo):
            wanted[name] = next((known for known in parameter.values if str(known) == value), value)
        else:
            wanted[name] = parameter.parse(value)
    agreeing = [t for t in run.trials if all(t.configuration.get(name) == value for name, value in wanted.items())]
    found = [trial for trial in agreeing if trial.is_valid] or agreeing
    if len(found) != 1:
        numbers = {trial.key: number for number, trial in enumerate(run.trials, 1)}
        few = "; ".join(f"trial {numbers[trial.key]} ({trial.configuration})" for trial in found[:3])
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        one = f': {few}{more}; give one by its number, as in "trial {numbers[found[0].key]}"' if few else ""
        raise MptuneError(f"configuration {text!r}: {len(found)} trials have these values{one}")
    return found[0]
