"""Ratios of times taken in turn: what the interval holds, what is told apart, and what a file may say."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from described import described_run
from hypothesis import given
from hypothesis import strategies as st

from mptune.errors import RunFileError
from mptune.results.speedup import LEAST_ROUNDS, TIE, Finals, Ratio
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.store import RunState

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.noise import NOISES, turns

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


def test_drift_and_load_are_noise() -> None:
    steady = finals(*[{ONE: 2.0, OTHER: 1.0}] * 9, tasks=0.1)
    assert steady.drift == pytest.approx(0.0)
    drifting = finals(*[{ONE: 2.0 * (1 + i / 10), OTHER: 1.0 + i / 10} for i in range(9)])
    assert drifting.drift == pytest.approx(0.8 * 0.8 / 1.08, rel=0.2)
    # The difference of two configurations is no drift.
    assert finals(*[{ONE: 2.0, OTHER: 1.0}, {OTHER: 1.0}] * 5).drift == pytest.approx(0.0)


def test_as_data_and_back() -> None:
    found = Finals.of([{ONE: 2.0, OTHER: 1.0}, {OTHER: 1.5}], 1, 0.5, (0.1, 0.2))
    assert RunState.from_json(RunState(finals=found).to_json()).finals == found
    assert RunState.from_json({}).finals == Finals()


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
    with pytest.raises(RunFileError, match="its field 'finals' should be an object with configurations"):
        RunState.from_json(document | {"finals": document["finals"] | change})


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


def test_what_is_slower_than_the_baseline_is_no_simpler_winner() -> None:
    """Both are within 3% of the fastest, and the one with the least memory is behind the baseline."""
    wide, narrow = typed("fp64", "fp64", 1.01), typed("fp16", "fp16", 1.02)
    rounds = [{MIXED.configuration: 1.0, wide.configuration: 1.01, narrow.configuration: 1.02}] * 9
    run = run_of(rounds, [MIXED, wide, narrow])
    assert run.best is wide
    assert run.is_settled(wide)


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
