"""What a report is made of: the document says what the run file says, whatever the run is like."""

from __future__ import annotations

import dataclasses
import json
import math
import threading
from pathlib import Path
from typing import Any

import own_kernel
import pytest
from described import create, described_run
from reported_runs import (
    HOSTILE,
    hostile_run,
    run_of,
    settings,
    small_run,
    stored,
    timing_run,
    trial,
    valid,
)

import mptune
from mptune.errors import MptuneError
from mptune.kernel import Sizes
from mptune.rendering import render_body
from mptune.report import report_of, write_report
from mptune.results import Measurement, Status, Trial
from mptune.run import Run
from mptune.sensitivity import explanation_of
from mptune.space.configuration import Configuration
from mptune.tuner.sources import rendered_sources


def document(run: Run, **options: Any) -> dict[str, Any]:
    return report_of(run, **options).to_json()["runs"][0]  # type: ignore[no-any-return]


def poly_run(count: int = 5, **changes: Any) -> Run:
    """Return a run of a kernel whose definition can be given."""
    kernel = own_kernel.kernel
    values = [{"block": block, "unroll": unroll} for block in (32, 64, 128, 256) for unroll in (1, 2, 4)]
    trials = [
        Trial(kernel.configuration(values[i]), Status.OK, "", Measurement({"time_ms": 9.0 - i, "error": 1e-16}))
        for i in range(count)
    ]
    parameters = [{"name": p.name, "kind": p.kind, "values": list(p.values)} for p in kernel.parameters]
    described = settings(kernel="poly", sizes={"n": 37}, parameters=parameters, baseline_values={"x_type": ["fp64"]})
    return described_run(described | {"kernel_path": None} | changes, trials)


# -- the data ----------------------------------------------------------------------------------


def test_a_trial_is_found_again_in_the_columns() -> None:
    run = small_run()
    shown = document(run)
    for number, found in enumerate(run.trials):
        for parameter in shown["parameters"]:
            cells = parameter["cells"]
            assert cells["values"][cells["codes"][number]] == found.configuration[parameter["name"]]
            assert parameter["texts"][cells["codes"][number]] == str(found.configuration[parameter["name"]])
        assert shown["statuses"]["values"][shown["statuses"]["codes"][number]] == found.status
        assert shown["messages"]["values"][shown["messages"]["codes"][number]] == found.message
        assert shown["feasible"][number] == run.objective.is_feasible(found)
        for name, column in shown["metrics"].items():
            value = run.metric_of(found, name)
            assert column[number] == (value if math.isfinite(value) else None)
    assert list(shown["metrics"]) == ["time_ms", "speedup", "error", "memory_bytes", "error.y"]


def test_winners_failures_and_settings() -> None:
    run = small_run(warnings=["measured beside another load"])
    shown = document(run)
    assert (shown["best"], shown["baseline"], shown["closest"]) == (4, 1, 6)
    assert [(f["status"], f["count"], f["trial"]) for f in shown["failures"]] == [
        ("compile_error", 2, 7),
        ("timeout", 1, 2),
        ("non_finite", 1, 5),
    ]
    assert shown["threshold"] == 1e-4
    assert shown["command"] == run.info.command
    assert shown["command_is_recorded"]
    assert shown["facts"]["compiler"] == "g++ 12.2.0"
    assert shown["durations_s"] == run.durations_s
    assert shown["run_warnings"] == ["measured beside another load"]


@pytest.mark.parametrize(
    "run",
    [
        run_of(),
        run_of(valid("fp64", 32, 1.0, 0.0)),
        run_of(trial("fp64", 32, status=Status.CRASH)),
        small_run(threshold=None),
        small_run(objective="time_ms * memory_bytes"),
        small_run(measured_constraints=["memory_bytes <= 1"]),
        described_run({}, small_run().trials),
        timing_run(),
        hostile_run(),
    ],
)
def test_every_run_has_a_document_that_is_json(run: Run) -> None:
    shown = document(run)
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    for number in (shown["best"], shown["baseline"], shown["closest"]):
        assert number is None or 0 <= number < len(run.trials)
    for column in (shown["feasible"], shown["statuses"]["codes"], *shown["metrics"].values()):
        assert len(column) == len(run.trials)


def test_a_book_of_a_message_is_cut() -> None:
    run = run_of(trial("fp64", 32, status=Status.COMPILE_ERROR, message="x" * 100_000))
    (message,) = (text for text in document(run)["messages"]["values"] if text)
    assert len(message) < 10_000
    assert "92000 characters more" in message


def test_names_of_runs_differ() -> None:
    report = report_of([small_run(), small_run(seed=4), timing_run()])
    assert [run["label"] for run in report.runs] == ["saxpby", "saxpby (2)", "convolution"]
    assert report.title.startswith("saxpby, convolution")


# -- commands ----------------------------------------------------------------------------------


def test_commands_that_print_and_take_home_a_trial(tmp_path: Path) -> None:
    file = stored(small_run(), tmp_path / "a run.db")
    shown = report_of(file).to_json()["runs"][0]
    assert shown["render_command"] == "mptune render /nowhere/saxpby.py --body --size n=4000003"
    assert shown["parameters"][0]["options"] == ["-p x_type=fp64", "-p x_type=fp32", "-p x_type=fp16"]
    assert shown["emit_command"] == f"mptune emit '{file}' --kernel /nowhere/saxpby.py --configuration"
    assert document(timing_run())["render_command"] == ""
    assert document(poly_run(kernel="gemm"))["render_command"].startswith("mptune render gemm --body")


# -- sources -----------------------------------------------------------------------------------


def with_sources(run: Run, count: int = 1000) -> Run:
    sources = rendered_sources(run, own_kernel.kernel, Sizes({"n": 37}), count)
    return Run(run.info, run.trials, run.state, sources=sources)


def test_sources_are_those_the_run_has() -> None:
    run = with_sources(poly_run())
    shown = document(run)
    assert sorted(shown["sources"]["by_trial"]) == ["0", "1", "2", "3", "4"]
    for number, found in enumerate(run.trials):
        text = render_body(own_kernel.kernel, found.configuration, {"n": 37})
        lines = [shown["sources"]["lines"][i] for i in shown["sources"]["by_trial"][str(number)]]
        assert lines == text.splitlines()
    assert len(shown["sources"]["lines"]) == len(set(shown["sources"]["lines"]))


def test_of_many_trials_those_that_matter_have_their_source() -> None:
    run = poly_run(12)
    crash = dataclasses.replace(run.trials[5], status=Status.CRASH, message="signal 11")
    run = Run(run.info, [*run.trials[:5], crash, *run.trials[6:]])
    # The best (which is the baseline), the failure, then the fastest.
    for shown in (document(with_sources(run), sources=4), document(with_sources(run, 4))):
        assert sorted(shown["sources"]["by_trial"]) == ["10", "11", "5", "9"]


def test_without_sources_the_report_says_why() -> None:
    (remark,) = document(small_run())["sources"]["remarks"]
    assert "the run has none" in remark
    (remark,) = document(with_sources(poly_run()), sources=0)["sources"]["remarks"]
    assert "made without sources" in remark
    assert not document(with_sources(poly_run()))["sources"]["remarks"]


def test_what_cannot_be_rendered_is_told() -> None:
    run = poly_run(2)
    strange = Trial(Configuration({**run.trials[0].configuration, "unroll": "wide"}), Status.CRASH)
    sources = with_sources(Run(run.info, [*run.trials, strange])).sources
    assert len(sources) == 3
    assert "cannot be rendered: kernel poly: 'wide' is none of the values" in sources[strange.configuration.to_json()]


# -- files -------------------------------------------------------------------------------------


def test_a_report_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    file = stored(small_run(), tmp_path / "run.db")
    report = mptune.write_report(file, tmp_path / "deep" / "er" / "report.html")
    text = (tmp_path / "deep" / "er" / "report.html").read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert report.runs[0]["file"] == str(file)
    write_report([file, small_run()], tmp_path / "deep" / "er" / "report.html")
    assert "run (2)" not in text


def test_a_run_that_is_being_written_is_reported_as_it_is(tmp_path: Path) -> None:
    run = small_run()
    with create(tmp_path / "run.db", run) as file:
        file.add(run.trials[0])
        before = (tmp_path / "run.db").read_bytes()
        found = []
        thread = threading.Thread(target=lambda: found.append(write_report(tmp_path / "run.db", tmp_path / "r.html")))
        thread.start()
        thread.join()
        assert (tmp_path / "run.db").read_bytes() == before
        file.add(run.trials[1])
    assert len(found[0].runs[0]["feasible"]) == 1
    assert len(report_of(tmp_path / "run.db").runs[0]["feasible"]) == 2


def test_what_cannot_be_done_is_told(tmp_path: Path) -> None:
    with pytest.raises(MptuneError, match=r"cannot write the report .*: Is a directory"):
        write_report(small_run(), tmp_path)
    with pytest.raises(MptuneError, match="one run or more"):
        write_report([], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


# -- the page ----------------------------------------------------------------------------------


def test_nothing_from_a_run_is_markup(tmp_path: Path) -> None:
    name = 'a"b<c>&.db'
    file = stored(hostile_run(), tmp_path / name)
    write_report(file, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert text.count("</script>") == 2
    assert text.count("<script") == 2
    assert "<!--" not in text
    assert "<img" not in text
    data = text.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    assert not set("<>&\u2028") & set(data)
    read = json.loads(data)
    assert read["runs"][0]["kernel"] == HOSTILE
    assert read["runs"][0]["file"].endswith(name)


def test_a_report_explains_the_winner_from_what_is_stored() -> None:
    run = small_run()
    explanation = report_of(run).runs[0]["explanation"]
    assert explanation == explanation_of(run).to_json()
    assert explanation["changes"]
