"""What is going to be reported, run on inputs that nobody searched with: what breaks a limit there is replaced.

So is what takes much longer on inputs that are new to it: it was not timed by launches that do their work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Final

from mptune.buffers import Draw, Stream
from mptune.evaluators.device import DeviceEvaluator
from mptune.policy import LEAST_NEW, NEW_MS
from mptune.results import Status, Trial
from mptune.space.configuration import Configuration
from mptune.tuner.ledger import Ledger
from mptune.tuner.warnings import Warnings
from mptune.unseen import after_draws, next_unseen

__all__ = ["LEAST_INPUTS", "SHARE", "Verification"]

#: However long they take, so many unseen inputs there are at least (unless fewer are asked for).
LEAST_INPUTS: Final = 5
#: Of the whole run, the time beyond which there are no more than those.
SHARE: Final = 0.25
#: Inputs that take about so long together are run at a time, and committed.
_PIECE_S: Final = 2.0
#: Inputs that tell times on new inputs: on the first one a configuration runs on it is not timed.
_TO_TELL: Final = LEAST_NEW + 1
#: And those on which what is doubted is looked at again, and again: what keeps its results is slow on all of them,
#: while of many launches one is not disturbed by other work of the machine.
_TO_TELL_AGAIN: Final = (_TO_TELL, 2 * _TO_TELL)


class Verification:
    """Runs what is going to be reported on unseen inputs, a few at a time, each time committed.

    The inputs are the same for all, in the same order, whichever session of a run comes to them. What may take the
    place of a trial that fell begins with the inputs that others fell on.

    Args:
        evaluator: runs configurations on draws.
        ledger: has the trials, and keeps what they become.
        finalists: returns the trials that may be reported once others have fallen.
        searched: draws the search measures errors on; what has run on fewer is run on the others if there is time.
        wanted: unseen inputs for each trial; fewer where they take longer than :data:`SHARE` of the run.
        on_step: told the trial that is verified, after each piece.
        warn: told about inputs that cannot be made, and trials whose worker is lost.
    """

    def __init__(
        self,
        evaluator: DeviceEvaluator,
        ledger: Ledger,
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
        #: Those whose times on new inputs have been looked at.
        self._timed: set[Configuration] = set()
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
        slow = self._slow_on_new(list(untried))
        held = [self._keep(trial, draws, slow.get(c, ""), is_ahead=True) for c, trial in untried.items()]
        return not all(held)

    def _reported(self) -> list[Trial]:
        """Return what is going to be reported and can be verified."""
        return [
            trial
            for trial in self._ledger.result().reported
            if self._ledger.objective.is_feasible(trial)
            and not trial.measurement.reused_error
            and trial.configuration not in self._lost
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
        slow = self._slow_on_new(configurations)
        held = [self._keep(trial, draws, slow.get(trial.configuration, "")) for trial in trials]
        return all(held)

    def _slow_on_new(self, configurations: Sequence[Configuration]) -> dict[Configuration, str]:
        """Return which of some configurations take much longer on new inputs, measured three times, and by how much.

        Each is looked at once, as soon as it has run on enough draws.
        """
        fresh = {c: times for c in configurations if c not in self._timed and (times := self._times(c))}
        slow = self._doubted_again(self._doubted(fresh))
        self._timed.update(c for c, times in fresh.items() if len(times) >= LEAST_NEW)
        if slow:
            # What takes their place is looked at in the same way before it takes part in finals.
            self._hard.update(dict.fromkeys(islice(self._unseen_draws(0), _TO_TELL)))
        return slow

    def _doubted_again(self, doubted: Mapping[Configuration, str]) -> dict[Configuration, str]:
        """Return which of those that are doubted still are on other inputs, which are new again, each time."""
        baseline = self._ledger.result().baseline
        beside = [] if baseline is None else [baseline.configuration]
        for inputs in _TO_TELL_AGAIN:
            if not doubted:
                break
            draws = (draw for draw in self._unseen_draws(0) if not any((c, draw) in self._known for c in doubted))
            again = list(islice(draws, inputs))
            self._run(list(dict.fromkeys((*doubted, *beside))), again)
            doubted = self._doubted(doubted, again)
        return dict(doubted)

    def _doubted(
        self, configurations: Iterable[Configuration], draws: Container[Draw] | None = None
    ) -> dict[Configuration, str]:
        """Return those that take much longer on new inputs, and by how much; on some of the draws or on all."""
        run, policy = self._ledger.result(), self._evaluator.policy
        if "time_ms" not in run.objective.names:
            return {}
        usual = [] if run.baseline is None else self._times(run.baseline.configuration, draws)
        if policy.doubts_repeats(usual, []):
            usual = []
        decisions = {c: policy.doubts_repeats(self._times(c, draws), usual) for c in configurations}
        return {c: decision.reason for c, decision in decisions.items() if decision}

    def _times(self, configuration: Configuration, draws: Container[Draw] | None = None) -> list[Trial]:
        """Return the trials of a configuration on draws, some of them or all, that tell its times there."""
        return [
            one
            for (c, draw), one in self._known.items()
            if c == configuration and NEW_MS in one.measurement.metrics and (draws is None or draw in draws)
        ]

    def _next_draws(self, trial: Trial) -> list[Draw]:
        done = _unseen(trial)
        if done >= LEAST_INPUTS and _searched(trial) < self._searched:
            return [Draw(Stream.SEARCH, number) for number in range(_searched(trial), self._searched)]
        number = LEAST_INPUTS - done
        if number <= 0:
            number = int(min(_PIECE_S, self._ledger.left_s(SHARE)) / self._draw_s) if self._draw_s else 1
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
        are_timed = all(configuration in self._timed for configuration in configurations)
        found = self._evaluator.run_on_draws(configurations, draws, compares_times=not are_timed)
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

    def _keep(self, trial: Trial, draws: Sequence[Draw], slow: str, *, is_ahead: bool = False) -> bool:
        """Add to a trial what is known of it on some draws; return whether it is still feasible.

        Where it ran on them ahead of their turn it is only added if it fell; else it is in their turn.

        Args:
            trial: the trial.
            draws: what it has run on.
            slow: by how much it takes longer on new inputs, empty if it does not.
            is_ahead: whether it is not their turn.
        """
        objective = self._ledger.objective
        found = {d: self._known[trial.configuration, d] for d in draws if (trial.configuration, d) in self._known}
        fell = [draw for draw, one in found.items() if objective.error_excess(one) > 0]
        if not found or (is_ahead and not (fell or slow)):
            return True
        self._hard.update(dict.fromkeys(draw for draw in fell if draw.stream is Stream.UNSEEN))
        if slow and all(one.status is Status.OK for one in found.values()):
            after = dataclasses.replace(trial, status=Status.UNSTABLE, message=f"{slow}; measured three times")
        else:
            unseen = objective if draws[0].stream is Stream.UNSEEN else None
            after = after_draws(trial.with_measurement(reused_error=False), found, unseen)
        kept = self._ledger.keep(after, self._ledger.phases[trial.configuration])
        self._on_step(kept)
        return objective.is_feasible(kept)


def _unseen(trial: Trial) -> int:
    """Return how many unseen inputs a trial has run on."""
    return int(trial.measurement.metrics.get("unseen_inputs", 0))


def _searched(trial: Trial) -> int:
    """Return how many draws of the search a trial has run on."""
    return int(trial.measurement.metrics.get("error_draws", 1)) - _unseen(trial)
