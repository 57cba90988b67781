"""What a report is made of: it says what the run file says, whatever the run is like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import own_kernel
import pytest
from described import described_run
from reported_runs import hostile_run, run_of, settings, small_run, stored, timing_run, trial

from mptune.errors import MptuneError
from mptune.explanation import explanation_of
from mptune.kernel import Sizes
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run, json_document
from mptune.show import report_document, write_report
from mptune.source.render import render_body
from mptune.tuning.tuning import rendered_sources
from tests.tiers import few


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
def test_sources_are_those_the_run_has() -> None:
    run = with_sources(poly_run())
    kept = document(run)["data"]["sources"]
    assert sorted(kept["by_trial"]) == [1, 2, 3, 4, 5]
    for number, found in enumerate(run.trials, 1):
        text = render_body(own_kernel.kernel, found.configuration, {"n": 37})
        assert [kept["lines"][i] for i in kept["by_trial"][number]] == text.splitlines()


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
