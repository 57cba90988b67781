"""Each kind of chart says what the run says, and is written in each format."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import own_kernel
import pytest
from application_trials import application_run
from described import described_run
from reported_runs import HOSTILE, hostile_run, run_of, settings, small_run, stored, timing_run, trial, valid

from mptune.errors import MptuneError, PlotError, UnknownNameError
from mptune.explanation import explanation_of
from mptune.kernel import Sizes
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run, json_document
from mptune.show import APPLICATION_KINDS, KINDS, SUFFIXES, plot, report_document, save, write_report
from mptune.space.configuration import Configuration
from mptune.tuning.tuning import rendered_sources
from tests.tiers import few

DRAWN = (*KINDS, "kernels")


def run_for(kind: str) -> Run:
    return application_run() if kind in APPLICATION_KINDS else small_run()


def rows_of(chart: Any) -> list[dict[str, Any]]:
    drawn = chart.to_dict()
    inline = [part["values"] for part in parts(drawn) if isinstance(part.get("values"), list)]
    return [row for rows in (*drawn["datasets"].values(), *inline) for row in rows if isinstance(row, dict)]


def parts(node: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every mapping within a specification, its data left out."""
    if isinstance(node, Mapping):
        yield node
        for name, value in node.items():
            if name != "datasets":
                yield from parts(value)
    elif isinstance(node, list):
        for value in node:
            yield from parts(value)


def titles(chart: Any) -> set[str]:
    found = [part["title"] for part in parts(chart.to_dict()) if "title" in part]
    return {title for title in found if isinstance(title, str)}


@pytest.mark.parametrize("kind", DRAWN)
def test_every_kind_is_written_in_every_format(kind: str, tmp_path: Path) -> None:
    chart = plot(run_for(kind), kind)
    files = {suffix: save(chart, tmp_path / f"a{suffix}").read_bytes() for suffix in SUFFIXES}
    assert files[".png"].startswith(b"\x89PNG")
    assert files[".pdf"].startswith(b"%PDF")
    assert ElementTree.fromstring(files[".svg"]).tag.endswith("svg")
    assert b"vegaEmbed" in files[".html"]


def test_the_front_names_metrics_threshold_baseline_and_winner() -> None:
    run = small_run()
    chart = plot(run)
    assert {"speedup over the fp64 baseline", "error (NRMSE)"} <= titles(chart)
    marked = {row["what"]: row for row in rows_of(chart) if row.get("what") in ("baseline", "winner")}
    for name, expected in (("baseline", run.baseline), ("winner", run.best)):
        assert expected is not None
        assert (marked[name]["y"], marked[name]["x"]) == (run.speedup(expected), expected.error)
    steps = [row["trial"] for row in rows_of(chart) if row.get("line") == "front"]
    assert sorted(steps) == sorted(run.trials.index(found) + 1 for found in run.pareto(("speedup", "error")))
    text = json.dumps(chart.to_dict())
    assert "threshold 0.0001" in text
    # An error of 0 has a place on the axis, and errors span decades.
    assert any(part.get("type") == "symlog" for part in parts(chart.to_dict()))
    assert "threshold 1e-06" in json.dumps(plot(run, max_error=1e-6).to_dict())


def test_progress_shows_every_trial_and_the_best_so_far() -> None:
    run = small_run()
    rows = rows_of(plot(run, "progress"))
    assert sorted(row["trial"] for row in rows if "what" in row) == list(range(1, len(run.trials) + 1))
    assert {row["what"] for row in rows if "what" in row} >= {"feasible", "failed"}
    steps = {row["trial"]: row["y"] for row in rows if row.get("line") == "best so far"}
    assert steps == {1: 8, 2: 6, 4: 4, 5: 3, 9: 3}
    (baseline,) = (row["y"] for row in rows if row.get("line") == "baseline")
    assert baseline == 6
    assert "speedup over the baseline" in titles(plot(run, "progress"))


def test_time_adds_up() -> None:
    run = small_run()
    spent = {row["phase"]: row["spent"] for row in rows_of(plot(run, "time")) if "text" in row}
    assert sum(spent.values()) == pytest.approx(sum(run.durations_s.values()))
    assert {"compile", "timing", "prepare"} <= set(spent)


def test_sensitivity_has_digits_speeds_and_limits() -> None:
    run = run_of(
        valid("fp64", 32, 1.25, 1e-8),
        valid("fp32", 32, 1.0, 1e-7),
        dataclasses.replace(valid("fp16", 32, 0.8, 1e-3), status=Status.INACCURATE),
    )
    rows = {row["change"]: row for row in rows_of(plot(run, "sensitivity")) if "change" in row}
    wider, narrower = rows["x_type: fp32 → fp64"], rows["x_type: fp32 → fp16"]
    assert (wider["what"], wider["digits"], wider["speed"]) == ("restored", pytest.approx(1), pytest.approx(0.8))
    assert (narrower["what"], narrower["digits"], narrower["speed"]) == ("narrowed", pytest.approx(-4), 1.25)


@pytest.mark.parametrize(
    ("run", "kind", "message"),
    [
        (run_of(), "pareto", "has no trial yet"),
        (run_of(trial("fp64", 32, status=Status.CRASH)), "progress", "no trial is valid: there is nothing to draw"),
        (timing_run(), "pareto", "no trial has a finite error: give two other metrics"),
        (described_run({}, small_run().trials[:1]), "parameters", "every parameter has one value"),
        (
            described_run({}, [Trial(Configuration({}), Status.OK, "", Measurement({"time_ms": 1.0}))]),
            "time",
            "durations",
        ),
        (run_of(trial("fp64", 32, status=Status.CRASH)), "sensitivity", "no sensitivity can be drawn"),
        (small_run(), "kernels", "is a single kernel"),
    ],
)
def test_what_cannot_be_drawn_says_why(run: Run, kind: str, message: str) -> None:
    with pytest.raises(PlotError, match=message):
        plot(run, kind)


def test_mistakes_are_told(tmp_path: Path) -> None:
    for options in ({"kind": "paretto"}, {"width": "wide"}, {"metrics": ("time_ms", "eror")}):
        with pytest.raises(UnknownNameError):
            plot(small_run(), **options)  # type: ignore[arg-type]
    with pytest.raises(PlotError, match="two metrics, not 1"):
        plot(small_run(), metrics=("time_ms",))
    with pytest.raises(PlotError, match=r"a\.jpg: expected the suffix \.png, "):
        save(plot(small_run()), tmp_path / "a.jpg")
    with pytest.raises(PlotError, match="there is no folder"):
        save(plot(small_run()), tmp_path / "none" / "a.png")


def test_text_of_a_run_is_text(tmp_path: Path) -> None:
    chart = plot(small_run(kernel=HOSTILE, device=HOSTILE, metric=HOSTILE))
    svg = save(chart, tmp_path / "a.svg").read_text()
    assert not [node for node in ElementTree.fromstring(svg).iter() if node.tag.endswith(("script", "image"))]
    html = save(chart, tmp_path / "a.html").read_text()
    assert html.count("</script>") == 3
    assert "<img src=x" not in html


# -- what a report is made of: it says what the run file says, whatever the run is like --------------


def document(run: Run, **options: Any) -> dict[str, Any]:
    return report_document(run, **options)["runs"][0]  # type: ignore[no-any-return]


def poly_run(count: int = 5) -> Run:
    """Return a run of a kernel whose definition can be given."""
    kernel = own_kernel.kernel
    values = [{"block": block, "unroll": unroll} for block in (32, 64, 128, 256) for unroll in (1, 2, 4)]
    trials = [
        Trial(kernel.configuration(values[i]), Status.OK, "", Measurement({"time_ms": 9.0 - i, "error": 1e-16}))
        for i in range(count)
    ]
    parameters = [{"name": p.name, "kind": p.kind, "values": list(p.values)} for p in kernel.parameters]
    described = settings(kernel="poly", sizes={"n": 37}, parameters=parameters, baseline_values={"x_type": ["fp64"]})
    return described_run(described | {"kernel_path": None}, trials)


def with_sources(run: Run, count: int = 1000) -> Run:
    sources = rendered_sources(run, own_kernel.kernel, Sizes({"n": 37}), count)
    return Run(run.info, run.trials, run.state, sources=sources)


@pytest.mark.full
def test_the_table_has_every_trial() -> None:
    run = small_run()
    columns = {column["name"]: column["cells"] for column in document(run)["data"]["columns"]}
    assert columns["trial"] == list(range(1, 10))
    for i, found in enumerate(run.trials):
        assert columns["status"][i] == found.status
        assert columns["message"][i] == found.message
        assert columns["block"][i] == found.configuration["block"]
        assert columns["time_ms"][i] == (found.time_ms if found.is_valid else None)


@pytest.mark.full
def test_verdict_warnings_and_explanation_are_the_runs() -> None:
    run = small_run(warnings=["measured beside another load"])
    shown = document(run)
    assert run.best is not None
    assert run.speedup_text(run.best) in shown["verdict"]
    assert shown["warnings"] == list(run.warnings)
    assert shown["explained"] == list(explanation_of(run).sentences)
    assert (shown["data"]["best"], shown["data"]["baseline"]) == (5, 2)
    assert shown["facts"]["strategy"] == "bayesian"
    assert shown["facts"]["compiler"] == "g++ 12.2.0"
    assert shown["facts"]["command"] == run.info.command
    assert {"pareto", "progress", "time", "parameters"} <= {chart["name"] for chart in shown["data"]["charts"]}
    nothing = document(run_of(*run.trials[6:], threshold=1e-30))
    assert not nothing["is_good"]
    assert "no configuration meets the threshold; the closest has " in nothing["verdict"]


@pytest.mark.parametrize(
    "run",
    few(
        [
            run_of(),
            run_of(trial("fp64", 32, status=Status.CRASH)),
            small_run(threshold=None),
            timing_run(),
            hostile_run(),
        ],
        1,
    ),
)
def test_every_run_has_a_document_that_is_json(run: Run) -> None:
    shown = document(run)["data"]
    json.dumps(json_document(shown), allow_nan=False)
    assert {len(column["cells"]) for column in shown["columns"]} == {len(run.trials)}


@pytest.mark.full
def test_without_sources_the_report_says_why() -> None:
    assert "The run has no sources" in document(small_run())["remarks"][0]
    assert "made without sources" in document(with_sources(poly_run()), sources=0)["remarks"][0]
    assert not document(with_sources(poly_run()))["remarks"]


def test_what_cannot_be_done_is_told(tmp_path: Path) -> None:
    with pytest.raises(MptuneError, match=r"cannot write the report .*: Is a directory"):
        write_report(run_of(), tmp_path)
    with pytest.raises(MptuneError, match="at least one run"):
        write_report([], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_nothing_from_a_run_is_markup(tmp_path: Path) -> None:
    name = 'a"b<c>&.db'
    file = stored(hostile_run(), tmp_path / name)
    write_report(file, tmp_path / "deep" / "report.html")
    text = (tmp_path / "deep" / "report.html").read_text()
    assert text.count("</script>") == 3
    assert "<img src=x" not in text
    assert len(text) < 6_000_000
    data = text.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    assert not set("<>&\u2028") & set(data)
    assert json.loads(data)["runs"][0]["emit"].startswith("mptune emit")
