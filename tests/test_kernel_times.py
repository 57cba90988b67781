"""Where the time of an application's run went, in documents and tables."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest
from application_trials import application_run, run_trial
from command_line import caller
from described import create

from mptune.measure.rounds import together
from mptune.results.kernel_times import host_ms, kernel_times
from mptune.run import Run
from mptune.schemas import schema
from mptune.show import plot

pytestmark = pytest.mark.usefixtures("charts")


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    run = application_run()
    with create(tmp_path / "heat.db", run) as file:
        file.add(*run.trials)
    return tmp_path / "heat.db"


def test_the_parts_of_several_turns_are_mean_shares_of_the_printed_time() -> None:
    """What took long in one turn alone, here the host's part, is not taken for usual, nor does anything get lost."""
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


def test_show(run_file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    shown = partial(caller(monkeypatch, capfd), "show")(run_file)
    assert shown.code == 0, shown.err
    lines = [re.sub("  +", "|", line.strip()) for line in shown.out.splitlines()]
    assert {"u_type (u, v)|fp64|fp32", "fp64 (norms)|fp64|fp64"} <= set(lines)
    start = lines.index("time of a run|baseline (ms)|share|launches|best (ms)|share|launches")
    assert lines[start + 1 : start + 5] == [
        "step|10|85%|100|6|80%|120",
        "norm|0.8|7%|100|0.48|6%|120",
        "host, between launches|1|8%|-|1|13%|-",
        "all|11.8|100%|200|7.48|100%|240",
    ]


class TestChart:
    def test_each_kernel_and_the_host_have_their_part_of_both_bars(self) -> None:
        pytest.importorskip("altair", reason="altair is not installed")
        (rows,) = plot(application_run(), "kernels").to_dict()["datasets"].values()
        bars = [(row["trial"].split(",")[0], row["kernel"], row["ms"]) for row in rows]
        host = "host, between launches"
        assert bars == [
            *(("baseline", name, pytest.approx(ms)) for name, ms in (("step", 10), ("norm", 0.8), (host, 1))),
            *(("winner", name, pytest.approx(ms)) for name, ms in (("step", 6), ("norm", 0.48), (host, 1))),
        ]
