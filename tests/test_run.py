"""What a run answers: never a winner that breaks the threshold, produced NaN or did not run."""

from __future__ import annotations

import dataclasses
import html
import itertools
import json
import math
import re
import sys
import types
from pathlib import Path
from typing import Any

import own_kernel
import pandas as pd
import pytest
from application_trials import application_run, run_trial
from awkward_kernel import AWKWARD, NASTY, run_of
from described import create, described_run
from hypothesis import given
from hypothesis import strategies as st
from made_up_devices import MadeUp, replace_devices
from scipy.stats import beta

import mptune
from mptune import progress as notebook
from mptune.cli.display import print_run
from mptune.errors import MptuneError
from mptune.kernel import Kernel
from mptune.measure.rounds import together
from mptune.results.description import verified_text
from mptune.results.kernel_times import host_ms, kernel_times
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.results.unseen import Verified, rate_bound, with_draws
from mptune.run import Run
from mptune.schemas import schema
from mptune.source.loading import load_kernel
from mptune.source.render import template_hash
from mptune.space.configuration import Configuration
from mptune.store import ParameterInfo, RunInfo, RunState
from mptune.tuning.findings import findings

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


# -- what a run file says of a run: read back as written, and refused where it is wrong --------------


def test_another_kernel_or_backend_cannot_go_on_with_a_run() -> None:
    ours = RunInfo(kernel="axpy", backend="host", seed=0)
    ours.require_same_run(dataclasses.replace(ours, seed=1), "run.db")
    for changes in ({"kernel": "gemm"}, {"backend": "cuda"}):
        with pytest.raises(MptuneError, match=r"^run.db holds a run of .*give another --output$"):
            ours.require_same_run(dataclasses.replace(ours, **changes), "run.db")


def test_the_hash_of_a_template_covers_what_it_includes(tmp_path: Path) -> None:
    axpy = load_kernel("axpy")
    (tmp_path / "inner.j2").write_text("// inner")
    (tmp_path / "outer.cu.j2").write_text("// outer\n{% include 'inner.j2' %}{% include 'absent.j2' %}")

    def kernel(template: str) -> Kernel:
        return dataclasses.replace(axpy, template=template, path=tmp_path / "axpy.py")

    first = template_hash(kernel("outer.cu.j2"))
    assert first == template_hash(kernel("outer.cu.j2"))
    (tmp_path / "inner.j2").write_text("// inside")
    second = template_hash(kernel("outer.cu.j2"))
    assert len({first, second, template_hash(kernel("// outer\n")), template_hash(axpy)}) == 4


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ()),
        ({"sizes": {"width": 1000}}, ("size width was 101, is 1000",)),
        (
            {"versions": {"compiler": "g++ 13"}, "compiler": "g++ 13|-O3"},
            ("version of compiler was g++ 12, is g++ 13",),
        ),
        ({"compiler": "g++ 12|-O2"}, ("compiler, flags or device: -O3 became -O2",)),
        ({"data_key": "other"}, ("inputs or references changed",)),
        ({"parameters": (ParameterInfo("a", "ordinal", (1,)),)}, ("parameters and their values changed: a, b",)),
    ],
)
def test_what_changed_since_the_run_began(changes: dict[str, object], said: tuple[str, ...]) -> None:
    before = RunInfo(
        sizes={"width": 101},
        device="one",
        versions={"compiler": "g++ 12"},
        compiler="g++ 12|-O3",
        seed=1,
        parameters=(ParameterInfo("b", "ordinal", (1,)),),
        data_key="data",
    )
    assert dataclasses.replace(before, **changes).changes_since(before) == said  # type: ignore[arg-type]
    assert dataclasses.replace(before, **changes).changes_since(RunInfo(seed=None)) == ()  # type: ignore[arg-type]


# -- where the time of an application's run went, in documents and tables ----------------------------


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    run = application_run()
    with create(tmp_path / "heat.db", run) as file:
        file.add(*run.trials)
    return tmp_path / "heat.db"


@pytest.mark.usefixtures("charts")
def test_the_parts_of_several_turns_are_mean_shares_of_the_printed_time() -> None:
    """A part that is long in one turn counts by its mean share; the parts add up to the printed time."""
    turns = [run_trial("fp64", "fp64", steps=100, host_ms=host, time_ms=10.8 + host) for host in (1.0, 1.0, 9.0)]
    turns = [turn.with_measurement(times_ms=(turn.time_ms,)) for turn in turns]
    found = together(turns)
    shares = [turn.metric("host_ms") / turn.time_ms for turn in turns]
    assert found.time_ms == turns[0].time_ms == 11.8
    assert host_ms(found) / found.time_ms == pytest.approx(sum(shares) / 3)
    assert {name: each.launches for name, each in kernel_times(found).items()} == {"step": 100, "norm": 100}
    # The finals print another time than the median of all launches.
    printed = found.with_measurement(metrics={**found.measurement.metrics, "time_ms": 20.0})
    parts = {name: each.time_ms for name, each in kernel_times(printed).items()}
    assert sum(parts.values()) + host_ms(printed) == pytest.approx(20.0)
    assert parts["step"] / parts["norm"] == pytest.approx(10 / 0.8)


@pytest.mark.usefixtures("charts")
def test_the_document(run_file: Path) -> None:
    run = Run.load(run_file)
    assert run.info.buffers_of("u_type") == ("u", "v")
    assert run.state.launched == {"step": ("u", "v"), "norm": ("u", "norms")}
    found = run.summary()
    assert found["baseline"]["buffers"] == {"u": "fp64", "v": "fp64", "norms": "fp64", "cells": "int32"}
    assert found["best"]["buffers"]["u"] == "fp32"
    assert found["baseline"]["kernels"]["norm"] == {"launches": 100, "time_ms": pytest.approx(0.8)}
    assert found["best"]["kernels"]["step"] == {"launches": 120, "time_ms": pytest.approx(6.0)}
    assert found["best"]["host_ms"] == 1.0
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    jsonschema.Draft202012Validator(schema("show")).validate(json.loads(json.dumps(found)))


# -- what a run has to say beside its winner: the baseline's error, and failures that have a ---------

OWN = load_kernel(Path(__file__).with_name("own_kernel.py"))
U = 2.0**-53


def findings_trial(error: float = 0.0, status: Status = Status.OK, **values: Any) -> Trial:
    metrics = {"time_ms": 1.0, "error": error, "error.y": error} if status.is_valid else {}
    return Trial(OWN.configuration(values), status, "", Measurement(metrics))


def typed(name: str, error: float, **more: Any) -> Trial:
    return findings_trial(error, x_type=name, y_type=name, **more)


def said(*trials: Trial, kernel: Kernel = OWN) -> list[str]:
    info = RunInfo(kernel="poly", sizes={"n": 5003}, baseline_values=kernel.baseline_values())
    return list(findings(Run(info, trials), kernel))


# -- the baseline ----------------------------------------------------------------------------------------


def test_that_no_baseline_is_right_is_said() -> None:
    info = RunInfo(sizes={"n": 5003}, baseline_values=OWN.baseline_values(), objective=Objective(threshold=1e-4))
    wrong = [typed("fp64", 0.5, status=Status.INACCURATE, unroll=unroll) for unroll in (1, 2)]
    found = list(findings(Run(info, [*wrong, typed("fp32", 1e-6)]), OWN))
    assert any("no speedup is known: none of the 2 configurations of the widest types" in line for line in found)
    for trials in (wrong, [*wrong, typed("fp32", 1e-6), typed("fp64", 1e-16, unroll=4)]):
        assert not any("no speedup" in line for line in findings(Run(info, trials), OWN))


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (U, 2.0**-24),
        # Badly conditioned: nothing is left of fp32.
        (1e8 * U, 0.9),
        # All data are exact in fp32: what is left are the roundings of a sum.
        (1000 * U, 1000 * U),
    ],
)
def test_rounding_is_no_news(wide: float, narrow: float) -> None:
    assert said(typed("fp64", wide), typed("fp32", narrow)) == []


@pytest.mark.parametrize(("wide", "narrow"), [(0.5, 0.5), (1e-9, 1e-7)])
def test_an_error_that_hardly_depends_on_the_type_is_told(wide: float, narrow: float) -> None:
    (warning,) = said(typed("fp64", wide), typed("fp32", narrow), typed("fp16", 0.6, block=64))
    assert warning.startswith(
        f"the baseline's error, {wide:.3g}, is more than rounding in fp64 explains: in fp32 it is"
    )
    assert "\n" not in warning


# -- failures --------------------------------------------------------------------------------------------

BLOCKS = (32, 64, 128, 256)


def crashes(*where: dict[str, Any]) -> list[str]:
    configurations = [{"block": block, "unroll": unroll} for block in BLOCKS for unroll in (1, 2, 4)]
    failed = [c for c in configurations if any(all(c[n] == v for n, v in one.items()) for one in where)]
    return said(*(findings_trial(status=Status.CRASH if c in failed else Status.OK, **c) for c in configurations))


def test_a_value_that_all_failures_have_is_named() -> None:
    (warning,) = crashes({"block": 128})
    assert warning.startswith("all 3 configurations that ended as crash have block=128, and none of the 9 others has:")
    (warning,) = crashes({"unroll": 4})
    assert "have unroll=4, and none" in warning


def test_nobody_is_blamed_without_evidence() -> None:
    assert crashes() == []
    assert crashes({"block": 128, "unroll": 1}, {"block": 64, "unroll": 2}) == []
    # Two failures of one value: chance.
    assert (
        said(
            findings_trial(status=Status.CRASH, block=64),
            findings_trial(status=Status.CRASH, block=64, unroll=2),
            findings_trial(),
        )
        == []
    )
    # All of them failed: nothing is known of other values.
    assert said(*(findings_trial(status=Status.CRASH, block=64, unroll=u) for u in (1, 2, 4))) == []


# -- what verification says: the bound of Clopper and Pearson, the words, and errors over ------------

FIELDS = {
    "kernel": "force",
    "backend": "host",
    "device": "one",
    "sizes": {"n": 1},
    "metric": "NMAE",
    "configurations": 3,
    "strategy": "random",
    "seed": 0,
    "objective": "time_ms",
}


def unseen_trial(**metrics: float) -> Trial:
    given = {"time_ms": 1.0, "error": 1e-5, "log10_error": -5.0, "error.y": 1e-5, **metrics}
    return Trial(Configuration({"x": 1}), Status.OK, measurement=Measurement(given))


def drawn(error: float) -> dict[str, float]:
    return {"error": error, "log10_error": math.log10(error), "error.y": error}


@pytest.mark.parametrize("inputs", [1, 5, 20, 59, 1000, 10_000])
def test_the_bound_is_the_quantile_of_the_beta_distribution(inputs):
    for violations in sorted({0, 1, 2, inputs // 3, inputs - 1}):
        if violations < inputs:
            expected = beta.ppf(0.95, violations + 1, inputs - violations)
            assert rate_bound(violations, inputs) == pytest.approx(expected, rel=1e-9)
    assert rate_bound(inputs, inputs) == 1.0


def test_the_error_is_the_worst_over_all_draws_and_the_mean_is_kept():
    objective = Objective(threshold=1e-4)
    searched = with_draws(unseen_trial(), [drawn(3e-5), drawn(2e-5)])
    assert searched.error == searched.metric("error.y") == 3e-5
    assert searched.metric("log10_error") == math.log10(3e-5)
    assert searched.metric("error_mean") == pytest.approx(2e-5)
    assert searched.metric("error_draws") == 3
    assert searched.metric("error_first_draw") == 1e-5
    assert Verified.of(searched, objective) is None
    verified = with_draws(searched, [drawn(1e-5), drawn(8e-5)], objective)
    assert verified.error == 8e-5
    assert verified.metric("error_draws") == 5
    assert verified.metric("error_first_draw") == 1e-5
    assert verified.metric("error_mean") == pytest.approx(3e-5)
    assert Verified.of(verified, objective) == Verified(2, 0, 8e-5)
    assert objective.judge(verified).status is Status.OK


def test_one_violation_makes_a_trial_fragile_and_the_message_says_by_how_much():
    objective = Objective(threshold=1e-4)
    found = objective.judge(with_draws(unseen_trial(), [drawn(2e-5), drawn(1.5e-4)], objective))
    assert found.status is Status.FRAGILE
    assert found.is_valid
    assert not objective.is_feasible(found)
    assert found.message == "its error is above the threshold on 1 of 2 unseen inputs: up to 0.00015, a factor of 1.5"
    assert Verified.of(found, objective) == Verified(2, 1, 1.5e-4)
    # Under a limit that holds it is as good as any other.
    wider = Objective(threshold=1e-3)
    assert wider.judge(found).status is Status.OK
    assert Verified.of(found, wider) == Verified(2, 0, 1.5e-4)


def test_what_was_run_on_no_unseen_input_is_not_called_verified(capsys):
    fields = {**FIELDS, "threshold": 1e-4, "parameters": [{"name": "x", "kind": "ordinal", "values": [1]}]}
    why = "none could be made: no such file"
    run = described_run(fields, [unseen_trial()])
    run = Run(run.info, run.trials, RunState(unverified=why))
    said = f"NOT verified on any unseen input ({why}): nothing is known of its error beyond the one input of the search"
    assert verified_text(run, run.trials[0]) == said
    print_run(run)
    assert f"best: {said}" in capsys.readouterr().out
    entry = run.summary()["best"]
    assert (entry["verified"], entry["not_verified"]) == (None, said)
    # A trial that was verified later, one that is not feasible, a run that has not come to its end.
    objective = Objective(threshold=1e-4)
    assert verified_text(run, with_draws(unseen_trial(), [drawn(1e-5)], objective)).startswith("within")
    assert verified_text(run, unseen_trial(error=1.0)) == ""
    assert verified_text(Run(run.info, run.trials), run.trials[0]) == ""
    assert RunState.from_json(run.state.to_json()) == run.state


# -- a run and its progress as a notebook shows them: everything is text, nothing is run -------------

POLY = own_kernel.kernel


def cells_of(shown: str) -> str:
    """Return the text between the tags, a line for each cell."""
    return html.unescape(re.sub(r"(<[^>]*>\s*)+", "\n", shown))


def awkward_run(**settings: Any) -> Run:
    good = Trial(
        AWKWARD.configuration({"register": NASTY}), Status.OK, "", Measurement({"time_ms": 2.0, "error": 1e-9})
    )
    failed = Trial(AWKWARD.configuration({"x_type": "bf16"}), Status.COMPILE_ERROR, f"<b>{NASTY}</b>")
    return run_of(AWKWARD, [good, failed], device="<script>alert(1)</script>", **settings)


def test_a_run_is_shown_and_everything_in_it_is_text() -> None:
    shown = awkward_run()._repr_html_()
    assert {*re.findall(r"<(\w+)", shown)} <= {"p", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    text = cells_of(shown)
    assert NASTY in text
    assert "<script>alert(1)</script>" in text
    assert f"<b>{NASTY}</b>" in text
    assert "best, baseline" in text
    assert "time (ms)\n2\n" in text
    assert "compile_error\n1" in text


class Handle:
    def __init__(self, shown: list[str]) -> None:
        self.update = shown.append


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is displayed in a pretended notebook, one after the other in one place."""
    texts: list[str] = []
    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    display: Any = types.ModuleType("IPython.display")
    display.HTML = str

    def show(text: str, display_id: bool) -> Handle:
        assert display_id
        texts.append(text)
        return Handle(texts)

    display.display = show
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(notebook, "_REFRESH_S", 0.0)
    return texts


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_devices(monkeypatch, lambda configuration: MadeUp(1.0, 1e-16))


OPTIONS: dict[str, Any] = {"backend": "host", "size": "smoke", "strategy": "random", "budget": 3}


def test_tuning_in_a_notebook_shows_where_it_stands(shown: list[str]) -> None:
    run = mptune.tune(POLY, **OPTIONS)
    assert run.evaluations == 3
    first, *later, last = [cells_of(text).strip() for text in shown]
    assert first == "preparing"
    assert "1/3 evaluations" in later[0]
    assert "3/3 evaluations" in last
    assert run.best is not None
    assert str(run.best.configuration)[:20] in last
