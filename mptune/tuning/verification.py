"""What is going to be reported, run on inputs that nobody searched with: what breaks a limit there is replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from typing import Final

from mptune.data import Draw, Stream
from mptune.measure.device import DeviceEvaluator
from mptune.results.trial import Status, Trial
from mptune.results.unseen import after_draws, next_unseen
from mptune.space.configuration import Configuration
from mptune.tuning.session import Session, Warnings

__all__ = ["LEAST_INPUTS", "SHARE", "Verification"]

#: However long they take, so many unseen inputs there are at least (unless fewer are asked for).
LEAST_INPUTS: Final = 5
#: Of the whole run, the time beyond which there are no more than those.
SHARE: Final = 0.25


class Verification:
    """Runs what is going to be reported on unseen inputs: on the least number, then on as many more as time allows.

    The inputs are the same for all, in the same order, whichever session of a run comes to them. What may take the
    place of a trial that fell begins with the inputs that others fell on.

    Args:
        evaluator: runs configurations on draws.
        ledger: has the trials, and keeps what they become.
        finalists: returns the trials that may be reported once others have fallen.
        searched: draws the search measures errors on; what has run on fewer is run on the others if there is time.
        wanted: unseen inputs for each trial; fewer where they take longer than :data:`SHARE` of the run.
        on_step: told the trial that is verified, after each of both.
        warn: told about inputs that cannot be made, and trials whose worker is lost.
    """

    def __init__(
        self,
        evaluator: DeviceEvaluator,
        ledger: Session,
        finalists: Callable[[], Sequence[Trial]],
        searched: int,
        wanted: int,
        on_step: Callable[[Trial], None],
        warn: Warnings,
    ) -> None:
        self._evaluator = evaluator
        self._ledger = ledger
        self._finalists = finalists
        self._searched = searched
        self._wanted = wanted
        self._on_step = on_step
        self._warn = warn
        #: Draws that something fell on, and what is known of configurations there.
        self._hard: dict[Draw, None] = {}
        self._known: dict[tuple[Configuration, Draw], Trial] = {}
        #: Draws that cannot be made, and why; each reason is said once.
        self._unmade: dict[Draw, str] = {}
        self._lost: set[Configuration] = set()
        self._draw_s = 0.0
        self._has_run = False

    def __call__(self) -> bool:
        """Verify what is going to be reported; stop as soon as any of it is not feasible any more, and say so.

        Then nothing is left among the finalists that would fall as well: there is no need to settle who of them is the
        fastest.
        """
        if not self._wanted:
            return False
        fell = self._weed(self._reported())
        while not fell and (waiting := self._waiting()):
            fell = not self._step(waiting)
        if fell:
            # Where time is short only those that are going to be reported.
            while self._weed([*self._reported(), *(self._finalists() if self._has_time else ())]):
                pass
        return fell

    @property
    def why_not(self) -> str:
        """Why something was run on no unseen input, in words; empty if nothing hindered it."""
        if not self._wanted:
            return "none was asked for (--verify 0)"
        if self._unmade and not self._has_run:
            return f"none could be made: {next(iter(self._unmade.values()))}"
        return "the worker was lost" if self._lost else ""

    @property
    def cut_short(self) -> int:
        """How many inputs were wanted, if time may be why there were fewer; 0 if workers were lost."""
        return 0 if self._lost else self._wanted

    def _weed(self, trials: Sequence[Trial]) -> bool:
        """Run trials on the draws that others fell on, unless they have; return whether any of them fell."""
        draws = [draw for draw in self._hard if draw not in self._unmade]
        untried = {
            trial.configuration: trial
            for trial in trials
            if self._ledger.objective.is_feasible(trial)
            and trial.configuration not in self._lost
            and not all((trial.configuration, draw) in self._known for draw in draws)
        }
        if not untried:
            return False
        self._run(list(untried), draws)
        held = [self._keep(trial, draws, is_ahead=True) for trial in untried.values()]
        return not all(held)

    def _reported(self) -> list[Trial]:
        """Return what is going to be reported and can be verified."""
        return [
            trial
            for trial in self._ledger.result().reported
            if self._ledger.objective.is_feasible(trial) and trial.configuration not in self._lost
        ]

    def _waiting(self) -> list[Trial]:
        """Return what is to be run on more draws: of all that is going to be reported, what has had the fewest."""
        reported = self._reported()
        for target in (min(LEAST_INPUTS, self._wanted), self._wanted):
            if short := [trial for trial in reported if _unseen(trial) < target]:
                fewest = min((_unseen(trial), next_unseen(trial)) for trial in short)
                return [trial for trial in short if (_unseen(trial), next_unseen(trial)) == fewest]
            if not self._has_time:
                break
            if behind := self._behind(reported):
                return behind
        return []

    def _behind(self, trials: Sequence[Trial]) -> list[Trial]:
        """Return those of some trials that lack draws of the search, the same ones."""
        behind = [trial for trial in trials if _unseen(trial) >= LEAST_INPUTS and _searched(trial) < self._searched]
        return [trial for trial in behind if _searched(trial) == _searched(behind[0])]

    @property
    def _has_time(self) -> bool:
        return self._ledger.left_s(SHARE) > self._draw_s

    def _step(self, trials: Sequence[Trial]) -> bool:
        """Run trials that have had the same draws on a few more; return whether all are still feasible."""
        configurations = [trial.configuration for trial in trials]
        draws = self._next_draws(trials[0])
        self._run(configurations, draws)
        if draws[0].stream is Stream.UNSEEN:  # those of the search have been made before, and take less time
            self._draw_s = self._ledger.verifying.latest_s / len(draws)
        held = [self._keep(trial, draws) for trial in trials]
        return all(held)

    def _next_draws(self, trial: Trial) -> list[Draw]:
        done = _unseen(trial)
        if done >= LEAST_INPUTS and _searched(trial) < self._searched:
            return [Draw(Stream.SEARCH, number) for number in range(_searched(trial), self._searched)]
        number = LEAST_INPUTS - done
        if number <= 0:
            number = int(self._ledger.left_s(SHARE) / self._draw_s) if self._draw_s else self._wanted
        return list(islice(self._unseen_draws(next_unseen(trial)), max(1, min(number, self._wanted - done))))

    def _unseen_draws(self, first: int) -> Iterator[Draw]:
        draws = (Draw(Stream.UNSEEN, number) for number in count(first))
        return (draw for draw in draws if draw not in self._unmade)

    def _run(self, configurations: Sequence[Configuration], draws: Sequence[Draw]) -> None:
        """Run configurations on those of some draws that one of them has not run on."""
        with self._ledger.verifying:
            new = [draw for draw in draws if not all((c, draw) in self._known for c in configurations)]
            if new:
                self._take(configurations, new)

    def _take(self, configurations: Sequence[Configuration], draws: Sequence[Draw]) -> None:
        found = self._evaluator.run_on_draws(configurations, draws)
        for draw, trial in zip(found.draws, found.trials, strict=True):
            self._known[trial.configuration, draw] = trial
            self._has_run |= draw.stream is Stream.UNSEEN
        for draw, reason in found.unmade.items():
            if reason not in self._unmade.values():
                self._warn(f"{draw} is left out of the verification, as it cannot be made: {reason}")
            self._unmade[draw] = reason
        done = {trial.configuration for trial in found.trials}
        # Where one has failed the others have their turn when it is out of the way.
        is_lost = len(found.unmade) < len(draws) and all(trial.status is Status.OK for trial in found.trials)
        if lost := [c for c in configurations if c not in done and is_lost]:
            self._warn(f"{len(lost)} configurations could not be verified: their worker was lost")
        self._lost.update(lost)
        if any(draw.stream is Stream.SEARCH for draw in found.unmade):
            self._searched = 0
        if len(self._unmade) >= LEAST_INPUTS and not found.trials:
            # They are not going to be made.
            self._lost.update(configurations)

    def _keep(self, trial: Trial, draws: Sequence[Draw], *, is_ahead: bool = False) -> bool:
        """Add to a trial what is known of it on some draws; return whether it is still feasible.

        Where it ran on them ahead of their turn it is only added if it fell; else it is in their turn.

        Args:
            trial: the trial.
            draws: what it has run on.
            is_ahead: whether it is not their turn.
        """
        objective = self._ledger.objective
        found = {d: self._known[trial.configuration, d] for d in draws if (trial.configuration, d) in self._known}
        fell = [draw for draw, one in found.items() if objective.error_excess(one) > 0]
        if not found or (is_ahead and not fell):
            return True
        self._hard.update(dict.fromkeys(draw for draw in fell if draw.stream is Stream.UNSEEN))
        unseen = objective if draws[0].stream is Stream.UNSEEN else None
        after = after_draws(trial, found, unseen)
        kept = self._ledger.keep(after)
        self._on_step(kept)
        return objective.is_feasible(kept)


def _unseen(trial: Trial) -> int:
    """Return how many unseen inputs a trial has run on."""
    return int(trial.measurement.metrics.get("unseen_inputs", 0))


def _searched(trial: Trial) -> int:
    """Return how many draws of the search a trial has run on."""
    return int(trial.measurement.metrics.get("error_draws", 1)) - _unseen(trial)
