"""Finals: who is timed again at the end of a run, in which rounds, what the ratios say, and who wins."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from described import described_run
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.noise import NOISES, turns
from mptune.errors import RunFileError
from mptune.measure.device import DeviceEvaluator
from mptune.measure.rounds import Finished
from mptune.measure.timing import TimingPlan
from mptune.results.objective import Objective
from mptune.results.speedup import LEAST_ROUNDS, TIE, Finals, Ratio
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.store import RunState
from mptune.tuning import tune
from mptune.tuning.finals import FinalRounds, finalists, race, rounds_for_interval
from mptune.tuning.session import Warnings

sys.path.insert(0, str(Path(__file__).parents[1]))

REPEATED = 200
ONE, OTHER, THIRD = (Configuration({"type": name, "block": 1}) for name in ("fp64", "fp32", "fp16"))


def ratios(noise: str, factor: float, rounds: int, seed: int) -> list[Ratio]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(REPEATED):
        first, second = turns(noise, (factor, 1.0), rounds, 5, rng).min(axis=-1)
        found.append(Ratio.of((first / second).tolist()))
    return found


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("factor", "rounds"), [(1.0, 9), (1.0, 24), (1.8, 12)])
def test_the_interval_holds_the_ratio_whatever_the_noise(noise: str, factor: float, rounds: int) -> None:
    held = sum(ratio.low <= factor <= ratio.high for ratio in ratios(noise, factor, rounds, seed=1))
    # Two standard deviations below 95% in so many repetitions.
    assert held >= (0.95 - 2 * math.sqrt(0.95 * 0.05 / REPEATED)) * REPEATED


@pytest.mark.parametrize(
    ("values", "slower", "equal"),
    [
        ([1.2] * 6, True, False),
        ([1.0] * 6, False, True),
        ([0.8] * 6, False, True),
        ([0.9, 1.0, 1.1] * 3, False, False),
        ([1.2] * 3, True, False),
        ([1.2, 1.2, 1.05], False, False),  # few rounds must agree
        ([1.0] * 3, False, False),
        ([1 + TIE / 4] * 9, False, True),
    ],
)
def test_slower_equal_or_open(values: list[float], slower: bool, equal: bool) -> None:
    ratio = Ratio.of(values)
    assert (ratio.is_slower, ratio.is_equal, ratio.is_open) == (slower, equal, not (slower or equal))


def finals(*rounds: dict[Configuration, float], chosen_after: int = 0, tasks: float = math.nan) -> Finals:
    return Finals.of(rounds, chosen_after, tasks)


def test_rounds_that_chose_do_not_count_where_others_followed() -> None:
    lucky = [{ONE: 2.0, OTHER: 0.9, THIRD: 1.0}] * 6
    fresh = [{ONE: 2.0, OTHER: 1.0}] * 6
    found = finals(*lucky, *fresh, chosen_after=6)
    ratio = found.ratio(ONE, OTHER)
    assert ratio is not None
    assert (ratio.value, ratio.rounds) == (pytest.approx(2.0), 6)
    other = found.ratio(THIRD, OTHER)
    assert other is not None
    assert (other.value, other.rounds) == (pytest.approx(1.0 / 0.9), 6)
    assert [found.is_chosen(c) for c in (ONE, OTHER, THIRD)] == [True, True, False]
    assert found.ratio(ONE, Configuration({"type": "bf16", "block": 1})) is None
    typical = found.typical_ms(ONE)
    assert typical[ONE] / typical[OTHER] == pytest.approx(2.0)


def test_who_is_slower_beside_a_third_is_no_tie() -> None:
    rng = np.random.default_rng(0)
    together = [{ONE: 1.1 * float(np.exp(0.4 * rng.normal())), OTHER: 1.0} for _ in range(9)]
    assert set(finals(*together).tied_with(OTHER)) == {ONE}
    apart = [{ONE: 1.6, THIRD: 1.4}, {OTHER: 1.0, THIRD: 1.4}] * 20
    assert set(finals(*together, *apart).tied_with(OTHER)) == set()
    alike = [{ONE: 1.0, THIRD: 1.4}, {OTHER: 1.0, THIRD: 1.4}] * 20
    assert set(finals(*together, *alike).tied_with(OTHER)) == {ONE}


@pytest.mark.parametrize(
    "change",
    [
        {"times_ms": [[1.0, -1.0]]},
        {"times_ms": [[1.0, None]]},
        {"chosen_after": -1},
        {"tasks_per_core": "many"},
        {"calibration_ms": "long"},
        {"configurations": [{"type": None}, {}]},
    ],
)
def test_what_a_file_may_not_say(change: dict[str, object]) -> None:
    document = RunState(finals=finals({ONE: 2.0, OTHER: 1.0})).to_json()
    known = document["finals"] | {"tasks_per_core": 0.5}
    RunState.from_json(document | {"finals": known})
    with pytest.raises(RunFileError, match="finals"):
        RunState.from_json(document | {"finals": known | change})


# -- what a run makes of it -----------------------------------------------------------------------------

BASELINE = {"a_type": ["fp64"], "b_type": ["fp64"]}
PARAMETERS = [
    {"name": "a_type", "kind": "precision", "values": ["fp64", "fp32", "fp16"]},
    {"name": "b_type", "kind": "precision", "values": ["fp64", "fp32", "fp16"]},
]


def typed(a: str, b: str, time_ms: float) -> Trial:
    size = {"fp64": 8.0, "fp32": 4.0, "fp16": 2.0}
    metrics = {"time_ms": time_ms, "error": 1e-9, "memory_bytes": size[a] + size[b]}
    return Trial(Configuration({"a_type": a, "b_type": b}), Status.OK, measurement=Measurement(metrics))


def run_of(rounds: list[dict[Configuration, float]], trials: list[Trial], tasks: float = math.nan) -> Run:
    fields = {
        "objective": "time_ms",
        "parameters": PARAMETERS,
        "baseline_values": BASELINE,
    }
    state = RunState(finals=Finals.of(rounds, 0, tasks))
    return Run(described_run(fields, trials).info, trials, state)


MIXED, SINGLE, HALF, DOUBLE = (
    typed("fp16", "fp32", 1.0),
    typed("fp32", "fp32", 1.02),
    typed("fp16", "fp16", 1.01),
    typed("fp64", "fp64", 2.0),
)
ALL = [MIXED, SINGLE, HALF, DOUBLE]


def noisy_rounds(spread: float, count: int = 9) -> list[dict[Configuration, float]]:
    rng = np.random.default_rng(0)
    return [{t.configuration: t.time_ms * float(np.exp(spread * rng.normal())) for t in ALL} for _ in range(count)]


def test_ties_go_to_the_fewest_types_then_to_the_least_memory() -> None:
    assert run_of(noisy_rounds(0.0), ALL[:2] + ALL[3:]).best is MIXED  # 2% are told apart
    assert run_of(noisy_rounds(0.05, 99), ALL[:2] + ALL[3:]).best is SINGLE
    assert run_of(noisy_rounds(0.05, 99), ALL).best is HALF
    # Without finals nothing is known of ties.
    assert run_of([], ALL).best is MIXED


@pytest.mark.parametrize("tasks", [0.0, 2.0])
@given(data=st.data(), threshold=st.sampled_from([None, 1e-6]))
def test_there_is_always_a_winner_and_it_is_no_slower_than_the_baseline(
    data: st.DataObject, threshold: float | None, tasks: float
) -> None:
    """However disturbed the rounds are: of what is accurate one is the best, and its speedup is settled or not."""
    trials = [DOUBLE, *data.draw(st.lists(st.sampled_from([MIXED, SINGLE, HALF]), unique_by=id))]
    time_ms = st.floats(0.01, 100.0)
    rounds = data.draw(st.lists(st.fixed_dictionaries({t.configuration: time_ms for t in trials}), max_size=12))
    finals = Finals.of(rounds, 0, tasks)
    # As the finals record them, times are multiples of the baseline's.
    typical_ms = finals.typical_ms(DOUBLE.configuration) if rounds else {}
    timed = [
        t.with_measurement(metrics={**t.measurement.metrics, "time_ms": typical_ms.get(t.configuration, t.time_ms)})
        for t in trials
    ]
    fields = {"objective": "time_ms", "parameters": PARAMETERS, "baseline_values": BASELINE, "threshold": threshold}
    run = Run(described_run(fields, timed).info, timed, RunState(finals=finals))
    assert run.best is not None
    assert run.baseline is not None
    assert run.speedup(run.best) >= 1.0
    if run.best is not run.baseline and (interval := run.speedup_interval(run.best)):
        assert not run.is_settled(run.best) or not interval[0] <= 1.0 <= interval[1]
    assert run.summary()["best"]["settled"] is run.is_settled(run.best)


def wide(block: int, time_ms: float, error: float, status: Status = Status.OK) -> Trial:
    configuration = Configuration({"a_type": "fp64", "b_type": "fp64", "block": block})
    return Trial(configuration, status, measurement=Measurement({"time_ms": time_ms, "error": error}))


def limited_run(finals: Finals, *trials: Trial) -> Run:
    fields = {
        "objective": "time_ms",
        "threshold": 1e-4,
        "parameters": PARAMETERS,
        "baseline_values": BASELINE,
    }
    return Run(described_run(fields, trials).info, trials, RunState(finals=finals))


@pytest.mark.parametrize("status", [Status.FRAGILE, Status.INACCURATE])
def test_what_fell_is_no_baseline_though_it_is_faster_and_was_timed_last(status: Status) -> None:
    fallen, right = wide(32, 1.5, 1e-2, status), wide(64, 2.0, 1e-9)
    times = {trial.configuration: trial.time_ms for trial in (fallen, SINGLE)}
    rounds = [{**times, right.configuration: 2.0}] * LEAST_ROUNDS + [times] * LEAST_ROUNDS
    run = limited_run(Finals.of(rounds, LEAST_ROUNDS), SINGLE, fallen, right)
    assert run.baseline is right
    assert run.best is SINGLE
    assert run.speedup(SINGLE) == pytest.approx(2.0 / 1.02)


def test_where_no_baseline_is_right_no_speedup_is_known() -> None:
    wrong, other = wide(32, 1.5, 1e-2, Status.INACCURATE), wide(64, 2.0, 1e-3, Status.FRAGILE)
    run = limited_run(Finals(), SINGLE, wrong, other)
    assert run.baseline is None
    assert math.isnan(run.speedup(SINGLE))
    # Where nothing is right it is what the closest is shown beside.
    assert limited_run(Finals(), wrong, other).baseline is wrong


def test_a_speedup_of_rounds_that_do_not_agree_is_unsettled() -> None:
    # A busy machine: now and then another task has the core of the baseline for most of its turn.
    busy = [{MIXED.configuration: 1.0, DOUBLE.configuration: time} for time in (2.0, 11.6, 16.0, 17.4, 20.0, 26.2) * 2]
    run = run_of(busy, [MIXED, DOUBLE])
    low, high = run.speedup_interval(MIXED) or (0.0, 0.0)
    assert not run.is_settled(MIXED)
    assert run.speedup_text(MIXED) == f"{run.speedup(MIXED):.3g}x ({low:.3g} to {high:.3g}, unsettled)"
    # Even where most rounds are alike: once the baseline was left alone.
    alike = [{MIXED.configuration: 1.0, DOUBLE.configuration: 16.0 + i / 100} for i in range(11)]
    assert run_of(alike, [MIXED, DOUBLE]).is_settled(MIXED)
    assert not run_of([*alike, {**alike[0], DOUBLE.configuration: 2.0}], [MIXED, DOUBLE]).is_settled(MIXED)


times = st.floats(1e-6, 1e6)


@given(st.lists(st.tuples(times, times), min_size=1, max_size=20), times, times)
def test_a_speedup_lies_in_its_interval_whatever_else_was_timed(
    rounds: list[tuple[float, float]], one_ms: float, other_ms: float
) -> None:
    trials = [typed("fp64", "fp64", one_ms), typed("fp32", "fp32", other_ms)]
    run = run_of([dict(zip([t.configuration for t in trials], pair, strict=True)) for pair in rounds], trials)
    for trial in trials:
        interval, speedup = run.speedup_interval(trial), run.speedup(trial)
        if interval is None:
            assert speedup == one_ms / other_ms
        else:
            assert interval[0] <= speedup <= interval[1]


# -- who is measured again at the end of a run, and what becomes of it -------------------------------

FINALISTS_BASELINE = {"x_type": ("fp64",)}


def trial(x_type: str, block: int, time_ms: float, error: float, status: Status = Status.OK) -> Trial:
    configuration = Configuration({"x_type": x_type, "block": block})
    return Trial(
        configuration, status, measurement=Measurement({"time_ms": time_ms, "time_min_ms": time_ms, "error": error})
    )


def chosen(objective: Objective, *trials: Trial) -> list[tuple[str, int]]:
    run = described_run({"objective": objective.metric}, list(trials))
    return [
        (str(t.configuration["x_type"]), int(t.configuration["block"]))  # type: ignore[arg-type]
        for t in finalists(run, objective, FINALISTS_BASELINE)
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
        self.fixed = FINALISTS_BASELINE
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
        info = dataclasses.replace(run.info, objective=self.objective, baseline_values=FINALISTS_BASELINE)
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


# -- the race of the finalists on synthetic machines, which have clocks of their own -----------------

sys.path.insert(0, str(Path(__file__).parents[1]))

A, B, C, D = (Configuration({"block": block}) for block in range(4))


class Racers:
    """Launches that take made-up times; its clock goes on with each."""

    def __init__(self, noise: str, times_ms: Mapping[Configuration, float], seed: int = 0) -> None:
        self.noise = noise
        self.times_ms = times_ms
        self.rng = np.random.default_rng(seed)
        self.clock_ms = 0.0
        self.asked: list[tuple[tuple[Configuration, ...], int]] = []
        self.fails: dict[Configuration, int] = {}

    def measure(self, configurations: Sequence[Configuration], rounds: int) -> list[Mapping[Configuration, float]]:
        self.asked.append((tuple(configurations), rounds))
        launches = turns(self.noise, [self.times_ms[c] for c in configurations], rounds, 5, self.rng)
        self.clock_ms += float(launches.sum())
        found: list[Mapping[Configuration, float]] = []
        for turn in range(rounds):
            alive = [i for i, c in enumerate(configurations) if self.fails.get(c, 10**9) > turn]
            found.append({configurations[i]: float(launches[i, turn].min()) for i in alive})
        return [times for times in found if times]

    def visits(self, configuration: Configuration) -> int:
        return sum(rounds for configurations, rounds in self.asked if configuration in configurations)


def run(
    machine: Racers, *groups: Sequence[Configuration], until_ms: float = 1e9
) -> list[Mapping[Configuration, float]]:
    return race(machine.measure, groups, lambda: machine.clock_ms >= until_ms)


def test_who_is_far_behind_leaves_after_few_rounds() -> None:
    machine = Racers("quiet", {A: 1.0, B: 1.04, C: 1.5, D: 2.0})
    rounds = run(machine, [A, B, C], [D])
    assert machine.visits(C) == machine.visits(D) == 3
    assert LEAST_ROUNDS <= machine.visits(A) == machine.visits(B) == len(rounds) <= 30


@pytest.mark.parametrize("noise", NOISES)
def test_the_fastest_is_found_whatever_the_noise_and_launches_go_where_it_is_close(noise: str) -> None:
    found, close, far = 0, 0, 0
    for seed in range(20):
        machine = Racers(noise, {A: 1.08, B: 1.0, C: 1.6}, seed)
        rounds = run(machine, [A, B, C], until_ms=2_000.0)
        typical = Finals.of(rounds, len(rounds)).typical_ms(A)
        found += min(typical, key=typical.__getitem__) == B
        close += machine.visits(A)
        far += machine.visits(C)
    assert found >= 19
    assert far <= close


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.full
def test_of_identical_code_the_interval_holds_one_after_the_choice(noise: str) -> None:
    held, repeated = 0, 120
    for seed in range(repeated):
        machine = Racers(noise, {A: 1.0, B: 1.0, C: 1.0, D: 1.0}, seed)
        rounds = run(machine, [A, B], [C, D], until_ms=500.0)
        typical = Finals.of(rounds, len(rounds)).typical_ms(A)
        # The luckier of either pair is reported.
        chosen = [min(pair, key=typical.__getitem__) for pair in ((A, B), (C, D))]
        more = machine.measure(chosen, min(30, rounds_for_interval(rounds, chosen)))
        ratio = Finals.of([*rounds, *more], len(rounds)).ratio(*chosen)
        assert ratio is not None
        held += ratio.low <= 1.0 <= ratio.high
    assert held >= 0.93 * repeated
