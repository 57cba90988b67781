"""The finals of a run: the candidates for the winner and the baseline are timed again, side by side, in rounds.

The best of many noisy times is a lucky one, and winner and baseline were timed in different minutes. Therefore the
finalists take turns at the end, and speedups come from times taken side by side.

The first rounds are a race (Maron and Moore, "Hoeffding races", NIPS 1993; Birattari et al., "A racing algorithm for
configuring metaheuristics", GECCO 2002): finalists that are certainly slower than the fastest leave. These rounds
flatter the winner that they choose, so the winner, the front and the baseline are timed in further rounds, and only
these count for the reported speedups.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mptune.errors import MptuneError
from mptune.measure.rounds import Turns
from mptune.results.objective import Objective
from mptune.results.speedup import LEAST_ROUNDS, Finals
from mptune.results.trial import Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration, Value
from mptune.tuning.session import RunSession

#: Measures configurations in rounds, and returns the shortest launch of each in each round. A failed configuration is
#: missing from then on; the answer is empty if all have failed.
Measure = Callable[[Sequence[Configuration], int], Sequence[Mapping[Configuration, float]]]

#: Maximum finalists beside the front: the fastest feasible trials, the fastest of other combinations of types, and the
#: fastest with the baseline's types.
_WINNERS: Final = 3
_COMBINATIONS: Final = 5
_BASELINES: Final = 3
#: A trial may be as fast as the fastest if the ratio of their shortest launches is at most this.
_MAY_BE_AS_FAST: Final = 1.15
#: Maximum repetitions of the finals, as a new measurement can change the finalists.
_MOST_FINALS: Final = 10
#: Maximum duration of finals as a share of the run's other wall time, and its multiple for all finals together. The
#: rounds of an interval are always measured.
_SHARE: Final = 0.2
_TIMES: Final = 2.0
#: Rounds between two decisions of a race.
_STEP: Final = 3
#: Rounds that time further trials beside a winner; an interval needs at least LEAST_ROUNDS.
_ADDED: Final = 8
#: Target half-width of a speedup's interval, relative to it. The half-width for the median of n ratios is about 2.5
#: standard deviations over the square root of n.
_HALF_WIDTH: Final = 0.015
_DEVIATIONS: Final = 2.5
_USUAL_ROUNDS: Final = 10
_MOST_ROUNDS: Final = 200


class FinalRounds:
    """Times the finalists of a session until all reported trials have been timed side by side."""

    def __init__(self, session: RunSession) -> None:
        self._session = session
        self._spent_s = 0.0
        #: Finalists that failed in this session.
        self._failed: set[Configuration] = set()
        #: Configurations evaluated since the last finals that may turn out to be the baseline.
        self._rivals: set[Configuration] = set()

    def begin(self) -> None:
        """Discard the finals of an earlier session, unless they settled the best undisturbed and nothing is new."""
        session, run = self._session, self._session.result()
        is_settled = run.best is None or run.is_settled(run.best)
        if session.measured_here or run.state.finals.noise or not is_settled:
            session.measured_here = True
            session.finals = Finals()

    def consider(self, configurations: Sequence[Configuration]) -> None:
        """Add configurations that may be as fast as the baseline to the next finals."""
        baseline = self._session.result().baseline
        limit_ms = math.inf if baseline is None else _MAY_BE_AS_FAST * baseline.metric("time_min_ms")
        trials = (self._session.trials[configuration] for configuration in configurations)
        self._rivals = {t.configuration for t in trials if t.is_valid and t.metric("time_min_ms") <= limit_ms}

    def finalists(self) -> list[Trial]:
        """Return the trials that can be the best or the baseline (:func:`finalists`)."""
        return finalists(self._session.result(), self._session.objective, self._session.fixed)

    @property
    def are_settled(self) -> bool:
        """Whether all trials to report have been timed side by side, as far as possible."""
        last = self.finalists()
        # A single finalist has nothing to be compared with, so it is not timed once the time is up.
        is_needless = not last or (len(last) == 1 and not self._session.is_in_time)
        return is_needless or not (self._untimed or self._unconfirmed)

    @property
    def _untimed(self) -> list[Configuration]:
        """Trials to report, and possible baselines, that were not in the last finals."""
        run, last = self._session.result(), {trial.configuration for trial in self.finalists()}
        timed = self._failed | set(run.state.finals.configurations)
        wanted = (*(trial.configuration for trial in run.reported), *(self._rivals & last))
        return [configuration for configuration in wanted if configuration not in timed]

    @property
    def _unconfirmed(self) -> list[Configuration]:
        """The baseline, and the trials to report that lack rounds beside it since the choice."""
        run = self._session.result()
        reported = [t.configuration for t in run.reported if t.configuration not in self._failed]
        beside = [c for c in reported if run.baseline is not None and c == run.baseline.configuration]
        lacking = [c for c in reported if run.state.finals.fresh_rounds(c, *beside) < LEAST_ROUNDS]
        return list(dict.fromkeys((*beside, *lacking))) if lacking else []

    def settle(self) -> None:
        """Hold finals until all trials to report have been timed side by side."""
        for _ in range(_MOST_FINALS):
            if self.are_settled or not self.hold():
                break
        self._session.update(finals=self._session.finals)
        self._warn_of_noise()

    def hold(self) -> bool:
        """Race the finalists, unless all trials to report were in the last race; then time these trials.

        Return whether anything could be measured.
        """
        session, began = self._session, time.monotonic()
        share_s = _SHARE * (session.elapsed_s - self._spent_s)
        allowed_s = min(share_s, _TIMES * share_s - self._spent_s)

        def left_s() -> float:
            return min(allowed_s - (time.monotonic() - began), session.closing_s)

        if self._untimed:
            last = self.finalists()
            self._rivals = set()
            turns = Turns(session.evaluator, last)
            feasible = [t.configuration for t in last if session.objective.is_feasible(t) and session.objective.is_time]
            baselines = [t.configuration for t in last if t.configuration.is_among(session.fixed)]
            # Every finalist is in a group, so that all are timed in the first rounds.
            groups = [feasible, baselines, *([t.configuration] for t in last)]
            rounds = race(turns.measure, groups, lambda: left_s() <= 0)
            self._keep(turns, Finals.of(rounds, len(rounds), turns.tasks_per_core, turns.calibration_ms))
        elif unconfirmed := self._unconfirmed:
            turns = Turns(self._session.evaluator, [session.trials[configuration] for configuration in unconfirmed])
        else:
            return False
        self._confirm(turns, left_s)
        self._spent_s += time.monotonic() - began
        return bool(turns.measured)

    def _confirm(self, turns: Turns, left_s: Callable[[], float]) -> None:
        """Time the trials to report beside the baseline in rounds after the choice, enough for an interval."""
        finals, is_of_race = self._session.finals, bool(turns.measured)
        timed = [configuration for configuration in self._unconfirmed if configuration in finals.configurations]
        if not timed:
            return
        wanted = rounds_for_interval(finals.rounds[: finals.chosen_after], timed)
        more = turns.measure(timed, LEAST_ROUNDS)
        running = [configuration for configuration in timed if turns.runs(configuration)]
        affordable = int(left_s() / turns.round_s(len(running))) if running else 0
        if (further := min(wanted - len(more), affordable)) > 0:
            more += turns.measure(running, further)
        self._keep(turns, _extended(finals, turns, more, is_of_race=is_of_race))

    def add(self, winner: Trial, trials: Sequence[Trial]) -> None:
        """Time further trials in turn with a winner and the baseline, in rounds that follow those of the finals."""
        session = self._session
        baseline, finals = session.result().baseline, session.finals
        beside = (winner, *([] if baseline is None else [baseline]), *trials)
        together = {trial.configuration: trial for trial in beside}
        turns = Turns(self._session.evaluator, list(together.values()))
        rounds = turns.measure(list(together), _ADDED)
        if not turns.runs(winner.configuration):
            raise MptuneError("the winner failed when it was measured again")
        ratios = {t.configuration: Finals.of(rounds, 0).ratio(t.configuration, winner.configuration) for t in trials}
        times_ms = {c: winner.time_ms * ratio.value for c, ratio in ratios.items() if ratio is not None}
        self._keep_times([t for t in turns.trials() if t.configuration in ratios], times_ms)
        session.finals = _extended(finals, turns, rounds, is_of_race=False)
        session.update(finals=session.finals)

    def _keep(self, turns: Turns, finals: Finals) -> None:
        baseline = self._session.result().baseline
        is_there = baseline is not None and baseline.configuration in finals.configurations
        anchor = baseline.configuration if baseline is not None and is_there else None
        self._keep_times(turns.trials(), finals.typical_ms(anchor) if finals.configurations else {})
        self._failed = (self._failed - set(turns.measured)) | {c for c in turns.measured if not turns.runs(c)}
        self._session.finals = finals

    def _keep_times(self, trials: Sequence[Trial], times_ms: Mapping[Configuration, float]) -> None:
        """Keep trials that were timed again, with the times of the finals where known."""
        for trial in trials:
            if trial.is_valid:
                time_ms = times_ms.get(trial.configuration, trial.time_ms)
                self._session.keep(trial.with_measurement(metrics={**trial.measurement.metrics, "time_ms": time_ms}))
            elif trial.status not in (
                Status.COMPILE_ERROR,
                Status.OUT_OF_MEMORY,
            ):  # the machine may be the cause of these
                self._session.keep(trial)

    def _warn_of_noise(self) -> None:
        run = self._session.result()
        if run.estimated_for is not None:
            return
        reported = [t for t in (run.best, *run.trade_offs) if t is not None and not math.isnan(run.speedup(t))]
        noise = run.state.finals.noise
        if noise or (run.best in reported and run.speedup_interval(run.best) and not run.is_settled(run.best)):
            busy = f"the machine was busy while the finalists were timed ({noise}): see the intervals of the speedups"
            unsettled = "the speedup is unsettled: its interval includes 1 or is very wide"
            self._session.warn(f"{busy if noise else unsettled}; the same command with --resume times them again")
        if "time_ms" in run.objective.names and any(run.speedup_interval(trial) is None for trial in reported):
            self._session.warn(
                "the winner could not be timed side by side with the baseline in enough rounds for an interval: its "
                "speedup compares times of different minutes"
            )


def _extended(
    finals: Finals, turns: Turns, more: Sequence[Mapping[Configuration, float]], *, is_of_race: bool
) -> Finals:
    """Return finals with further rounds of ``turns``, which measured all rounds of the race, too, or none of them."""
    # The load of the finals is that of the busier measurement.
    tasks = [turns.tasks_per_core, None if is_of_race else finals.tasks_per_core]
    work_ms = (*(() if is_of_race else finals.calibration_ms), *turns.calibration_ms)
    rounds = [*finals.rounds, *more]
    busiest = max((each for each in tasks if each is not None), default=None)
    # Some rounds may have no calibration.
    return Finals.of(rounds, finals.chosen_after, busiest, work_ms if len(work_ms) == len(rounds) else ())


def ranked(run: Run, objective: Objective) -> list[Trial]:
    """Return the trials of known performance, feasible trials first, then by performance."""
    known = [trial for trial in run.trials if not math.isnan(objective.performance(trial))]
    return sorted(known, key=lambda t: (objective.is_feasible(t), objective.performance(t)), reverse=True)


def finalists(run: Run, objective: Objective, baseline: Mapping[str, Sequence[Value]]) -> list[Trial]:
    """Return the trials that can be the best or the baseline, fastest first, none twice.

    Empty if time is not optimised, or nothing is feasible. ``baseline`` has the values of the baseline's types.
    """
    if "time_ms" not in objective.names:
        return []
    order = ranked(run, objective)
    feasible = [trial for trial in order if objective.is_feasible(trial)]
    if not feasible:
        return []
    # A baseline meets the threshold, but may break another constraint.
    right = [t for t in order if t.configuration.is_among(baseline) and objective.error_excess(t) <= 0]
    # The ranking uses the median; the shortest launch is less sensitive to disturbances.
    limit_ms = _MAY_BE_AS_FAST * min(trial.metric("time_min_ms") for trial in feasible[: 2 * _WINNERS])
    near = [trial for trial in feasible[_WINNERS:] if trial.metric("time_min_ms") <= limit_ms]
    combinations: dict[tuple[Value, ...], Trial] = {run.types_of(t): t for t in reversed(near)}
    for trial in feasible[:_WINNERS]:
        combinations.pop(run.types_of(trial), None)
    others = sorted(combinations.values(), key=objective.performance, reverse=True)[:_COMBINATIONS]
    chosen = (*feasible[:_WINNERS], *others, *run.trade_offs, *right[:_BASELINES])
    return list({trial.configuration: trial for trial in chosen}.values())


def race(
    measure: Measure, groups: Sequence[Sequence[Configuration]], is_up: Callable[[], bool]
) -> list[Mapping[Configuration, float]]:
    """Measure finalists in rounds until the fastest of each group is known; return the rounds.

    A finalist that is certainly slower than the fastest of its group leaves. A group ends when its remaining finalists
    are certainly tied. The time limit applies once there are enough rounds for an interval.
    """
    rounds: list[Mapping[Configuration, float]] = []
    open_groups = [list(dict.fromkeys(group)) for group in groups]
    while racing := list(dict.fromkeys(c for group in open_groups for c in group)):
        # Rounds alternate in direction, and so do batches in their first direction: both are equally frequent.
        more = measure(racing if len(rounds) % 2 == 0 else racing[::-1], _STEP)
        rounds += more
        finals = Finals.of(rounds, len(rounds))
        if not more or (len(rounds) >= LEAST_ROUNDS and is_up()):
            break
        open_groups = [left for group in open_groups if (left := _open(finals, [c for c in group if c in more[-1]]))]
    return rounds


def _open(finals: Finals, group: Sequence[Configuration]) -> list[Configuration]:
    """Return the finalists of a group that stay in the race; none if its fastest is known."""
    if len(group) < 2:
        return []
    time_ms = finals.typical_ms(group[0])
    fastest = min(group, key=time_ms.__getitem__)
    ratios = finals.tied_with(fastest)
    return (
        [c for c in group if c == fastest or c in ratios]
        if any(ratios[c].is_open for c in group if c in ratios)
        else []
    )


def rounds_for_interval(rounds: Sequence[Mapping[Configuration, float]], reported: Sequence[Configuration]) -> int:
    """Return the number of further rounds for narrow intervals of the reported ratios.

    It depends on the spread of earlier rounds alone: the coverage of an interval that decided when to stop would be too
    low.
    """
    spreads = []
    for configuration in reported[1:]:
        met = [math.log(r[configuration] / r[reported[0]]) for r in rounds if configuration in r and reported[0] in r]
        spreads += [statistics.stdev(met)] if len(met) > 1 else []
    wanted = math.ceil((_DEVIATIONS * max(spreads, default=0.0) / _HALF_WIDTH) ** 2)
    enough = min(max(wanted, _USUAL_ROUNDS), _MOST_ROUNDS)
    return enough + enough % 2
