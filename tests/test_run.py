"""What a run answers: never a winner that breaks the threshold, produced NaN or did not run."""

from __future__ import annotations

import itertools
import json
import math

import pandas as pd
import pytest
from described import create, described_run
from hypothesis import given
from hypothesis import strategies as st

from mptune.errors import MptuneError, RunFileError, UnknownNameError
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.store import INTERRUPTED, RunState

SETTINGS = {
    "kernel": "axpy",
    "backend": "host",
    "device": "a processor",
    "sizes": {"n": 100},
    "seed": 0,
    "threshold": 1e-3,
    "metric": "NRMSE",
    "objective": "time_ms",
    "minimise": True,
    "penalty": "decay",
    "alpha": 1.0,
    "beta": 1.0,
    "strategy": "bayesian",
    "budget": 20,
    "baseline_values": {"type": ["fp64"], "policy": ["accurate"]},
    "signature": ["type", "policy"],
    "parameters": [
        {"name": "type", "kind": "precision", "values": ["fp64", "fp32", "fp16"]},
        {"name": "policy", "kind": "policy", "values": ["accurate", "fast"]},
        {"name": "block", "kind": "ordinal", "values": [32, 64, 128]},
    ],
    "wall_s": 12.5,
}


def trial(type_="fp64", policy="accurate", block=32, status=Status.OK, **metrics):
    return Trial(
        Configuration({"type": type_, "policy": policy, "block": block}),
        status,
        "" if status is Status.OK else f"it was {status}",
        Measurement(metrics),
        key=f"{type_}{policy}{block}",
    )


TRIALS = (
    trial("fp64", block=32, time_ms=8.0, error=0.0, memory_bytes=800),
    trial("fp64", block=64, time_ms=6.0, error=1e-16, memory_bytes=800),
    trial("fp64", "fast", 64, time_ms=5.0, error=1e-9, memory_bytes=800),
    trial("fp64", block=128, status=Status.TIMEOUT),
    trial("fp32", block=32, time_ms=4.0, error=1e-7, memory_bytes=400),
    trial("fp32", block=64, time_ms=3.0, error=2e-7, memory_bytes=400),
    trial("fp32", block=128, status=Status.NON_FINITE, time_ms=0.1, error=math.nan),
    trial("fp16", block=32, status=Status.INACCURATE, time_ms=2.0, error=4e-3, memory_bytes=200),
    trial("fp16", block=64, status=Status.INACCURATE, time_ms=1.5, error=5e-3, memory_bytes=200),
    trial("fp16", block=128, status=Status.COMPILE_ERROR),
)


@pytest.fixture
def run():
    return described_run(SETTINGS, TRIALS)


# -- best, baseline, closest -------------------------------------------------------------------


def test_best_baseline_and_closest(run):
    assert run.best is TRIALS[5]
    assert run.baseline is TRIALS[1]
    assert run.closest is TRIALS[7]
    assert run.speedup(run.best) == 2.0
    assert run.speedup(run.baseline) == 1.0
    assert run.objective.performance(run.best) == 2.0
    assert run.feasible == 5


def test_the_verdict_is_one_sentence(run):
    assert run.describe().verdict == "fp32 everywhere: 3 ms, speedup 2x (unsettled), error 2e-07"
    fast = described_run(SETTINGS, TRIALS[:3]).describe().verdict
    assert fast.startswith("fp64 everywhere, fast functions: 5 ms, speedup 1.2")
    assert described_run(SETTINGS, ()).describe().verdict == "no trial yet"


def test_where_the_baseline_wins_the_verdict_says_what_narrower_types_did():
    slow = trial("fp32", block=32, time_ms=7.0, error=1e-7)
    said = described_run(SETTINGS, [*TRIALS[:2], slow, TRIALS[7], TRIALS[8], TRIALS[9]]).describe().verdict
    assert said.startswith("no narrower types were faster within NRMSE <= 0.001: fp64 everywhere: 6 ms, speedup 1")
    assert "the fastest of them: fp32 everywhere, 7 ms, speedup 0.857" in said
    assert said.endswith("faster but over the limit: fp16 everywhere, 2 ms, speedup 3x (unsettled), error 0.004")
    alone = described_run(SETTINGS, TRIALS[:2]).describe().verdict
    assert alone.startswith("no narrower types were tried: fp64 everywhere: 6 ms, speedup 1, error 1e-16")
    assert "faster" not in alone
    failed = described_run(SETTINGS, [TRIALS[0], TRIALS[9]]).describe().verdict
    assert failed.startswith("none of the 1 configurations with narrower types ran: fp64 everywhere")


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        ("", ""),
        ("the time limit was reached", "4 of 9 evaluations: the time limit was reached"),
        (INTERRUPTED, "4 of 9 evaluations: interrupted or still running; tune --resume completes the run"),
    ],
)
def test_a_run_says_in_one_line_why_evaluations_are_left(ended, said):
    known = described_run({**SETTINGS, "budget": 9}, TRIALS[:4])
    run = Run(known.info, known.trials, RunState(ended=ended))
    assert run.summary()["ended"] == ended
    assert run.ending == said
    assert [line for line in run.describe().remarks if " evaluations: " in line] == [said] * bool(said)


statuses = st.sampled_from(Status)
numbers = st.one_of(st.floats(1e-3, 1e3), st.just(math.nan), st.just(math.inf))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["fp64", "fp32", "fp16"]),
            st.sampled_from(["accurate", "fast"]),
            statuses,
            numbers,
            st.one_of(st.floats(1e-9, 1.0), st.just(math.nan), st.just(math.inf)),
        ),
        max_size=12,
    ),
    st.none() | st.floats(1e-6, 0.1),
)
def test_winners_against_brute_force(rows, threshold):
    trials = [
        trial(type_, policy, block, status, time_ms=time_ms, error=error)
        for block, (type_, policy, status, time_ms, error) in enumerate(rows)
    ]
    run = described_run(SETTINGS | {"threshold": threshold}, trials)
    ran = (Status.OK, Status.INACCURATE, Status.FRAGILE, Status.VIOLATION)
    timed = [t for t in trials if t.status in ran and math.isfinite(t.time_ms)]
    feasible = [t for t in timed if threshold is None or t.error <= threshold]
    plain = [t for t in timed if t.configuration["type"] == "fp64" and t.configuration["policy"] == "accurate"]
    over = [t for t in trials if t.is_valid and threshold is not None and t.error > threshold and t.error < math.inf]

    assert (run.best is None) == (not feasible)
    assert (run.baseline is None) == (not plain)
    assert (run.closest is None) == (not over)
    if feasible:
        assert run.best in feasible
        assert run.best.time_ms == min(t.time_ms for t in feasible)
    if plain:
        candidates = [t for t in plain if t in feasible] or plain
        assert run.baseline in candidates
        assert run.baseline.time_ms == min(t.time_ms for t in candidates)
    if over:
        assert run.closest.error == min(t.error for t in over)
    assert sum(run.statuses.values()) == run.evaluations == len(trials)
    json.dumps(run.summary(), allow_nan=False)


def test_a_maximised_objective():
    trials = [trial("fp64", block=b, time_ms=1.0, error=0.0, gflops=g) for b, g in ((32, 5.0), (64, 7.0))]
    trials.append(trial("fp32", block=64, time_ms=2.0, error=0.0, gflops=9.0))
    run = described_run(SETTINGS | {"objective": "gflops", "minimise": False}, trials)
    assert run.best is trials[2]
    assert run.baseline is trials[1]
    assert run.objective.performance(run.best) == pytest.approx(9 / 7)
    assert run.speedup(run.best) == 0.5


def test_a_threshold_by_output():
    trials = [
        trial("fp64", block=32, time_ms=9.0, error=0.0, **{"error.x": 0.0, "error.y": 0.0}),
        trial("fp32", block=32, time_ms=2.0, error=1e-2, **{"error.x": 1e-6, "error.y": 1e-2}),
        trial("fp16", block=32, time_ms=1.0, error=1e-2, **{"error.x": 1e-2, "error.y": 1e-6}),
    ]
    run = described_run(SETTINGS | {"threshold": {"x": 1e-5, "y": 0.1}}, trials)
    assert run.best is trials[1]
    assert run.closest is trials[2]


def test_an_empty_run_answers_everything():
    run = described_run({"kernel": "axpy"}, [])
    assert (run.best, run.baseline, run.closest, run.failures, run.statuses) == (None, None, None, (), {})
    assert run.summary()["best"] is None
    assert len(run.to_dataframe()) == 0
    assert run.pareto() == ()


def test_a_configuration_evaluated_again_counts_once_with_its_last_numbers():
    again = trial("fp64", block=64, time_ms=7.0, error=0.0)
    run = described_run(SETTINGS, [*TRIALS, again])
    assert run.evaluations == len(TRIALS)
    assert run.trials[1] is again
    assert run.baseline is again


# -- fronts ------------------------------------------------------------------------------------


def dominated(point, others):
    return any(all(o <= p for o, p in zip(other, point, strict=True)) and other != point for other in others)


@given(st.lists(st.tuples(*[st.integers(1, 6)] * 3), max_size=14))
def test_fronts_against_brute_force(points):
    trials = [trial(block=i, time_ms=a, error=b, memory_bytes=c) for i, (a, b, c) in enumerate(points)]
    broken = trial(block=-1, status=Status.NON_FINITE, time_ms=0.1, error=0.0, memory_bytes=1)
    run = described_run(SETTINGS, [*trials, broken])
    for names in itertools.permutations(("time_ms", "error", "memory_bytes"), 2):
        costs = [tuple(t.metric(n) for n in names) for t in trials]
        found = run.pareto(names)
        expected = [t.key for t, cost in zip(trials, costs, strict=True) if not dominated(cost, costs)]
        assert sorted(t.key for t in found) == sorted(expected)
        assert [t.metric(names[0]) for t in found] == sorted(t.metric(names[0]) for t in found)


def test_directions_of_a_front(run):
    assert run.pareto() == (TRIALS[8], TRIALS[7], TRIALS[5], TRIALS[4], TRIALS[2], TRIALS[1], TRIALS[0])
    assert run.pareto(("speedup", "error")) == run.pareto()
    # Pretend more memory were better.
    assert run.pareto(("time_ms", "memory_bytes"), maximise=["memory_bytes"]) == (TRIALS[8], TRIALS[5], TRIALS[2])
    bigger = described_run(SETTINGS | {"objective": "memory_bytes", "minimise": False}, TRIALS)
    assert bigger.pareto(("time_ms", "memory_bytes")) == (TRIALS[8], TRIALS[5], TRIALS[2])


@pytest.mark.parametrize(
    ("metrics", "error", "message"),
    [
        (("time", "error"), UnknownNameError, "unknown metric 'time'; did you mean 'time_ms'"),
        (("time_ms",), MptuneError, "two or more different metrics, got time_ms"),
    ],
)
def test_fronts_that_make_no_sense(run, metrics, error, message):
    for ask in (run.pareto, run.pareto_document):
        with pytest.raises(error, match=message):
            ask(metrics)


SEVERAL = SETTINGS | {"also": ["error", "memory_bytes"]}


def test_the_front_of_several_objectives_is_feasible(run):
    assert run.trade_offs == ()
    assert run.front[0] is run.best
    assert all(run.objective.is_feasible(trial) for trial in run.front)
    assert [t.error for t in run.front] == sorted((t.error for t in run.front), reverse=True)
    several = described_run(SEVERAL, TRIALS)
    assert several.objective.metrics == ("time_ms", "error", "memory_bytes")
    assert several.best is TRIALS[5]
    assert several.trade_offs == several.front == (TRIALS[5], TRIALS[4], TRIALS[2], TRIALS[1], TRIALS[0])
    assert len(several.pareto(several.objective.metrics)) == 7
    summary = several.summary()
    assert summary["objectives"] == ["time_ms", "error", "memory_bytes"]
    assert [entry["time_ms"] for entry in summary["front"]] == [3.0, 4.0, 5.0, 6.0, 8.0]
    assert described_run(SEVERAL | {"threshold": 1e-30}, TRIALS[1:]).front == ()


# -- other forms -------------------------------------------------------------------------------


def test_summary_is_the_tune_document(run):
    summary = run.summary()
    assert {"kernel", "backend", "device", "threshold", "metric", "evaluations"} <= summary.keys()
    assert summary["baseline"]["configuration"] == {"type": "fp64", "policy": "accurate", "block": 64}
    assert summary["baseline"]["time_ms"] == 6.0
    best = summary["best"]
    assert (best["time_ms"], best["speedup"], best["error"]) == (3.0, 2.0, 2e-7)
    assert best["configuration"] == {"type": "fp32", "policy": "accurate", "block": 64}
    assert summary["closest"]["error"] == 4e-3
    assert summary["statuses"] == run.statuses
    assert summary["signatures"] == 4
    assert summary["wall_s"] == 12.5
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_failures_are_grouped_by_status_and_message_but_for_numbers():
    messages = [
        (Status.COMPILE_ERROR, "g++ rejected k (exit status 1)\nk.cu:7:3: error: no such thing\nnote: here"),
        (Status.CRASH, "the worker exited with code 3"),
        (Status.COMPILE_ERROR, "g++ rejected k (exit status 1)\nk.cu:91:12: error: no such thing"),
        (Status.COMPILE_ERROR, "g++ rejected k (exit status 1)\nk.cu:7:3: error: another thing"),
        (Status.LAUNCH_ERROR, "the worker exited with code 4"),
        (Status.OK, ""),
    ]
    trials = [Trial(Configuration({"a": i}), status, message) for i, (status, message) in enumerate(messages)]
    groups = described_run({}, trials).failure_groups
    assert [(group.status, group.count) for group in groups] == [
        (Status.COMPILE_ERROR, 2),
        (Status.CRASH, 1),
        (Status.COMPILE_ERROR, 1),
        (Status.LAUNCH_ERROR, 1),
    ]
    assert [group.first for group in groups] == [trials[0], trials[1], trials[3], trials[4]]
    assert groups[0].message == "g++ rejected k (exit status 1): k.cu:7:3: error: no such thing"


def test_time_is_accounted_for_to_the_last_second():
    def timed(number, **durations):
        return Trial(Configuration({"a": number}), Status.OK, measurement=Measurement(durations_s=durations))

    trials = [timed(1, compile=2.0, timing=0.5), timed(2, compile=3.0, timing=0.25), timed(3, lost=4.0)]
    described = {"wall_s": 20.0, "prepare_s": 1.0, "search_s": 0.5}
    spent = described_run(described, trials).durations_s
    assert spent == {"compile": 5.0, "lost": 4.0, "prepare": 1.0, "timing": 0.75, "search": 0.5, "other": 8.75}
    assert list(spent) == ["compile", "lost", "prepare", "timing", "search", "other"]
    assert described_run({}, []).durations_s == {"other": 0.0}
    shared = described_run({**described, "workers": 2}, trials).durations_s
    assert (shared["compile"], shared["prepare"]) == (2.5, 1.0)
    assert sum(shared.values()) == pytest.approx(sum(spent.values()))
    # Several at a time can take longer together than the run did.
    assert described_run({"wall_s": 1.0}, trials).durations_s["other"] == 0.0


def test_dataframe(run):
    frame = run.to_dataframe()
    assert list(frame.columns[:6]) == ["type", "policy", "block", "status", "message", "feasible"]
    assert len(frame) == len(TRIALS)
    assert list(frame["block"]) == [t.configuration["block"] for t in TRIALS]
    assert frame.loc[6, "speedup"] == 2.0
    assert list(frame["feasible"]) == [i in (0, 1, 2, 4, 5) for i in range(10)]
    assert frame.loc[4, "message"] == "it was timeout"
    assert frame["time_ms"].isna().sum() == 2
    assert pd.isna(frame.loc[7, "speedup"])


def test_load_gives_the_same_answers(tmp_path, run):
    with create(tmp_path / "run.db", SETTINGS) as file:
        for entry in TRIALS:
            file.add(entry)
        while_running = Run.load(tmp_path / "run.db")
    loaded = Run.load(str(tmp_path / "run.db"))
    assert loaded.summary() == while_running.summary() == run.summary()
    assert loaded.best == run.best
    with pytest.raises(RunFileError):
        Run.load(tmp_path / "nothing.db")
