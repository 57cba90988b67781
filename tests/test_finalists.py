"""Who is measured again at the end of a run, and what becomes of it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from described import described_run

from mptune.measure.device import DeviceEvaluator
from mptune.measure.rounds import Finished
from mptune.measure.timing import TimingPlan
from mptune.results.objective import Objective
from mptune.results.speedup import LEAST_ROUNDS, Finals
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.store import RunFile, RunState
from mptune.tuning import tune
from mptune.tuning.finals import FinalRounds, finalists
from mptune.tuning.session import Warnings

BASELINE = {"x_type": ("fp64",)}


def trial(x_type: str, block: int, time_ms: float, error: float, status: Status = Status.OK) -> Trial:
    configuration = Configuration({"x_type": x_type, "block": block})
    return Trial(
        configuration, status, measurement=Measurement({"time_ms": time_ms, "time_min_ms": time_ms, "error": error})
    )


def chosen(objective: Objective, *trials: Trial) -> list[tuple[str, int]]:
    run = described_run({"objective": objective.metric}, list(trials))
    return [
        (str(t.configuration["x_type"]), int(t.configuration["block"]))  # type: ignore[arg-type]
        for t in finalists(run, objective, BASELINE)
    ]


TRIALS = (
    trial("fp64", 1, 4.0, 1e-16),
    trial("fp64", 2, 3.0, 1e-16),
    trial("fp64", 3, 5.0, 1e-16),
    trial("fp32", 1, 2.0, 1e-7),
    trial("fp32", 2, 2.5, 1e-7),
    trial("fp16", 1, 1.0, 1e-3, Status.INACCURATE),
    trial("fp16", 2, math.nan, math.nan, Status.CRASH),
)


def test_fastest_feasible_and_fastest_baselines() -> None:
    expected = [("fp32", 1), ("fp32", 2), ("fp64", 2), ("fp64", 1), ("fp64", 3)]
    assert chosen(Objective(threshold=1e-5), *TRIALS) == expected


def test_what_exceeds_the_threshold_keeps_no_baseline_out_of_the_finals() -> None:
    wrong = [trial("fp64", block, 0.5, 1e-2, Status.INACCURATE) for block in (4, 5, 6)]
    assert chosen(Objective(threshold=1e-5), *wrong, *TRIALS) == chosen(Objective(threshold=1e-5), *TRIALS)
    # What only breaks another constraint does the work.
    slow = Objective(threshold=1e-5, constraints=["error >= 1e-10"])
    assert [c for c in chosen(slow, *wrong, *TRIALS) if c[0] == "fp64"] == [("fp64", 2), ("fp64", 1), ("fp64", 3)]


@pytest.mark.full
def test_best_and_baseline_are_measured_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "poly.db"
    kernel = load_kernel(Path(__file__).with_name("own_kernel.py"))
    settings = {"budget": 9, "max_error": 1e-5, "strategy": "random", "verify": 0, "output": path}
    run = tune(kernel, backend="host", **settings)
    assert run.best is not None
    assert run.baseline is not None
    low, high = run.speedup_interval(run.best) or (math.nan, math.nan)
    assert low <= run.speedup(run.best) <= high
    assert run.speedup_interval(run.baseline) == (1.0, 1.0)
    fresh = run.state.finals.times_ms[run.state.finals.chosen_after :]
    assert len(fresh) >= LEAST_ROUNDS
    for each in (run.best, run.baseline):
        assert run.state.finals.is_chosen(each.configuration)
        assert each.status is Status.OK
    assert run.evaluations == 9
    with RunFile.open(path, read_only=True) as file:
        assert {t.configuration: t.measurement for t in file.trials()} == {
            t.configuration: t.measurement for t in run.trials
        }
    again = tune(kernel, backend="host", **settings, resume=True)
    # On a busy machine the finalists are timed again; nothing else is.
    assert {t.key: t.status for t in again.trials} == {t.key: t.status for t in run.trials}
    assert again.evaluations == 9


@pytest.mark.full
@pytest.mark.parametrize(("status", "is_out"), [(Status.UNSTABLE, True), (Status.OUT_OF_MEMORY, False)])
def test_finalist_that_fails_is_out_where_the_kernel_is_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: Status, is_out: bool
) -> None:
    remeasure = DeviceEvaluator.remeasure
    failed: set[Configuration] = set()

    def fail(self: DeviceEvaluator, trials: list[Trial], rounds: int, visit: TimingPlan) -> Finished:
        if failed:
            return remeasure(self, trials, rounds, visit)
        failed.add(trials[0].configuration)
        return Finished((dataclasses.replace(trials[0], status=status, measurement=Measurement()),))

    monkeypatch.setattr(DeviceEvaluator, "remeasure", fail)
    kernel = load_kernel(Path(__file__).with_name("own_kernel.py"))
    # Three configurations of the widest types are tried: where one fails that is the baseline, others are left.
    run = tune(kernel, backend="host", budget=15, max_error=1e-5, strategy="random", output=tmp_path / "poly.db")
    assert len(failed) == 1
    for trial in run.trials:
        assert trial.is_valid is not (is_out and trial.configuration in failed)
    assert run.best is not None
    if is_out:  # what takes its place is measured again, too
        assert run.best.configuration not in failed
        assert run.state.finals.is_chosen(run.best.configuration) or run.best.metric("error_spread") >= 0


@pytest.mark.full
@pytest.mark.parametrize("status", [Status.NON_FINITE])
def test_finalist_that_turns_out_wrong_does_not_win(monkeypatch: pytest.MonkeyPatch, status: Status) -> None:
    wrong: list[Configuration] = []
    remeasure = DeviceEvaluator.remeasure

    def fail(self: DeviceEvaluator, trials: list[Trial], rounds: int, visit: TimingPlan) -> Finished:
        answer = remeasure(self, trials, rounds, visit)
        wrong[:] = wrong or [answer.trials[0].configuration]
        return dataclasses.replace(
            answer,
            trials=tuple(
                dataclasses.replace(t, status=status, measurement=Measurement({"error": 1.0}))
                if t.configuration in wrong
                else t
                for t in answer.trials
            ),
        )

    monkeypatch.setattr(DeviceEvaluator, "remeasure", fail)
    kernel = load_kernel(Path(__file__).with_name("own_kernel.py"))
    # If it is of the widest types, the run says that it is wrong.
    run = tune(kernel, backend="host", budget=9, max_error=1e-5, strategy="random", on_warning=lambda _: None)
    assert run.best is not None
    assert run.best.configuration not in wrong
    (trial,) = [t for t in run.trials if t.configuration in wrong]
    assert trial.status is status


def with_times(tasks: float, spread: float) -> Callable[..., Finished]:
    """Return a remeasuring in which all take 1 ms, on a machine with so many other tasks, as fast in every round.

    Noise makes fp64 slow where it makes the other types fast, and the other way round in the next turn.
    """
    remeasure = DeviceEvaluator.remeasure
    calls = itertools.count()

    def measured(self: DeviceEvaluator, trials: list[Trial], rounds: int, visit: TimingPlan) -> Finished:
        answer = remeasure(self, trials, rounds, visit)
        turns, turns_of, first = [], Counter[Configuration](), next(calls)
        for turn in answer.trials:
            turns_of[turn.configuration] += 1
            time_ms = math.exp(
                spread * (-1) ** (first + turns_of[turn.configuration] + (turn.configuration["x_type"] == "fp64"))
            )
            times_ms = (time_ms,) * len(turn.measurement.times_ms)
            turns.append(
                dataclasses.replace(turn, measurement=dataclasses.replace(turn.measurement, times_ms=times_ms))
            )
        even = (1.0,) * len(answer.calibration_ms)
        return dataclasses.replace(answer, trials=tuple(turns), tasks_per_core=tasks, calibration_ms=even)

    return measured


@pytest.mark.full
def test_a_busy_machine_names_a_winner_and_says_so_and_resuming_settles_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = load_kernel(Path(__file__).with_name("own_kernel.py"))
    path, said = tmp_path / "poly.db", list[str]()
    remeasured = DeviceEvaluator.remeasure

    def run(tasks: float, spread: float) -> Run:
        monkeypatch.setattr(DeviceEvaluator, "remeasure", remeasured)
        monkeypatch.setattr(DeviceEvaluator, "remeasure", with_times(tasks, spread))
        return tune(
            kernel, backend="host", budget=4, strategy="random", verify=0, output=path, resume=True,
            on_warning=said.append,
        )  # fmt: skip

    noisy = run(3.0, 1.0)
    assert noisy.best is not None
    assert noisy.best is noisy.baseline or not noisy.is_settled(noisy.best)
    assert any(line.startswith("the machine was busy while the finalists were timed (3.0 other") for line in said)
    assert Run.load(path).best == noisy.best
    quiet = run(0.0, 1e-4)
    assert quiet.best is not None
    assert quiet.evaluations == noisy.evaluations
    # All take as long, so it is the simplest of them.
    assert len(set(quiet.types_of(quiet.best))) == 1


class Machine:
    """Stands in for evaluator, ledger and run file: each turn takes 50 ms, launches take what they are said to.

    Args:
        searched_s: how long the search took.
        time_ms: what a launch of a configuration takes in its first turn, its second, ...
        closing_s: till when what follows the search may go on.
    """

    def __init__(
        self, searched_s: float, time_ms: Callable[[Configuration, int], float], closing_s: float = math.inf
    ) -> None:
        self.now_s = searched_s
        self.is_in_time = math.isinf(closing_s)
        self._closing_s = closing_s
        self.objective = Objective(threshold=1e-5)
        self.trials = {t.configuration: t for t in TRIALS if t.is_valid}
        self.finals = Finals()
        self.fixed = BASELINE
        self.holds = True
        self.turns = Counter[Configuration]()
        self._time_ms = time_ms

    def monotonic(self) -> float:
        return self.now_s

    elapsed_s = property(monotonic)
    closing_s = property(lambda self: self._closing_s - self.now_s)

    def remeasure(self, trials: list[Trial], rounds: int, visit: TimingPlan) -> Finished:
        self.now_s += 0.05 * len(trials) * rounds
        turns = tuple(self._timed(each) for _ in range(rounds) for each in trials)
        return Finished(turns)

    def _timed(self, before: Trial) -> Trial:
        self.turns[before.configuration] += 1
        times_ms = (self._time_ms(before.configuration, self.turns[before.configuration]),)
        return dataclasses.replace(before, measurement=dataclasses.replace(before.measurement, times_ms=times_ms))

    def result(self) -> Run:
        run = described_run({"objective": "time_ms"}, list(self.trials.values()))
        info = dataclasses.replace(run.info, objective=self.objective, baseline_values=BASELINE)
        return Run(info, run.trials, RunState(finals=self.finals))

    def keep(self, trial: Trial) -> Trial:
        self.trials[trial.configuration] = trial
        return trial

    def update(self, finals: Finals) -> None:
        """Stand in for the run file."""

    def settling(self, monkeypatch: pytest.MonkeyPatch, warn: Callable[[str], None] = pytest.fail) -> FinalRounds:
        monkeypatch.setattr("mptune.tuning.finals.time", self)
        self.warn, self.evaluator = Warnings(warn), self
        return FinalRounds(self)  # type: ignore[arg-type]


def test_finals_that_are_held_again_and_again_take_no_longer_than_twice_their_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order = [t.configuration for t in TRIALS if t.is_valid]
    # Now one is faster, now another.
    machine = Machine(60.0, lambda configuration, turn: 1.0 + (turn + order.index(configuration)) % 2)
    settling = machine.settling(monkeypatch)
    took_s = []
    for _ in range(8):
        before_s = machine.now_s
        if not settling.hold():
            break
        took_s.append(machine.now_s - before_s)
    # A fifth of the search at first, and at the end the rounds that an interval takes, of five and of two.
    least_s = 0.05 * LEAST_ROUNDS * (5 + 2)
    assert 12.0 <= took_s[0] < 12.0 + least_s
    assert max(took_s[2:], default=0.0) <= least_s
    assert sum(took_s) <= 2 * 12.0 + 8 * least_s


WIDE, FAST, NEXT = (
    Configuration({"x_type": t, "block": block}) for t, block in (("fp64", 2), ("fp32", 1), ("fp32", 2))
)
USUAL_MS = {WIDE: 3.0, FAST: 1.0, NEXT: 1.5}


@pytest.mark.parametrize("searched_s", [0.0, 60.0], ids=["no time", "time"])
def test_who_wins_by_the_last_rounds_is_timed_beside_the_baseline_too(
    monkeypatch: pytest.MonkeyPatch, searched_s: float
) -> None:
    def time_ms(configuration: Configuration, turn: int) -> float:
        # Lucky in the rounds that choose: three, as nobody else comes near it.
        return 2.0 if configuration == FAST and turn > 3 else USUAL_MS.get(configuration, 4.0)

    machine = Machine(searched_s, time_ms)
    # Of what may be as fast the one with the least memory wins.
    for configuration, memory_bytes in ((FAST, 2.0), (NEXT, 1.0)):
        trial = machine.trials[configuration]
        metrics = {**trial.measurement.metrics, "memory_bytes": memory_bytes}
        machine.trials[configuration] = trial.with_measurement(metrics=metrics)
    machine.settling(monkeypatch).settle()
    run, finals = machine.result(), machine.finals
    assert (run.best, run.baseline) == (machine.trials[NEXT], machine.trials[WIDE])
    assert run.speedup_interval(machine.trials[NEXT]) == pytest.approx((2.0, 2.0))
    assert finals.chosen_after == 3
    assert finals.fresh_rounds(WIDE, FAST) >= LEAST_ROUNDS <= finals.fresh_rounds(WIDE, NEXT)
    # Nobody raced anew.
    assert all(machine.turns[c] == 3 for c in machine.trials.keys() - USUAL_MS.keys() if c in finals.configurations)
    assert machine.trials[NEXT].time_ms == pytest.approx(machine.trials[WIDE].time_ms / 2)


def test_what_takes_the_place_of_a_winner_that_fell_is_timed_beside_the_baseline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(60.0, lambda configuration, turn: USUAL_MS.get(configuration, 4.0))
    settling = machine.settling(monkeypatch)
    settling.settle()
    assert machine.result().best == machine.trials[FAST]
    before = machine.turns.copy()
    fell = machine.trials[FAST]
    machine.trials[FAST] = fell.with_measurement(metrics={**fell.measurement.metrics, "error": 1e-2})
    assert not settling.are_settled
    settling.settle()
    run = machine.result()
    assert run.best == machine.trials[NEXT]
    assert run.speedup_interval(machine.trials[NEXT]) == pytest.approx((2.0, 2.0))
    assert machine.turns.keys() == before.keys()
    assert {c for c, turns in machine.turns.items() if turns > before[c]} == {WIDE, NEXT}
    machine.turns.clear()
    settling.settle()
    assert not machine.turns
