"""``mptune plot`` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import Call
from described import create, described_run

from mptune.interop import write_run
from mptune.results.trial import Measurement, Status, Trial
from mptune.schemas import schema
from mptune.show import KINDS
from mptune.space.configuration import Configuration

pytestmark = pytest.mark.usefixtures("charts")

pytest.importorskip("altair", reason="altair is not installed")

SETTINGS = {
    "kernel": "axpy",
    "threshold": 1e-4,
    "objective": "time_ms",
    "baseline_values": {"type": ["fp64"]},
    "signature": ["type"],
    "parameters": [
        {"name": "type", "kind": "precision", "values": ["fp64", "fp32", "fp16"]},
        {"name": "block", "kind": "ordinal", "values": [32, 64]},
    ],
    "wall_s": 9.0,
}
SIGNATURES = {"fp64": 1e-16, "fp32": 1e-7, "fp16": 1e-3}


@pytest.fixture
def plot(mptune: Call) -> Callable[..., tuple[int, str, str]]:
    """Run ``mptune plot``; return exit code, standard output and error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code, out, err = mptune("plot", *arguments)
        return code, out, " ".join(err.split())

    return call


def trials() -> list[Trial]:
    return [
        Trial(
            Configuration({"type": type_, "block": block}),
            Status.OK,
            "",
            Measurement({"time_ms": 64 / block + position, "error": error}, durations_s={"compile": 0.5}),
            key=f"{type_}{block}",
        )
        for position, (type_, error) in enumerate(SIGNATURES.items())
        for block in (32, 64)
    ]


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    with create(tmp_path / "runs" / "axpy.db", SETTINGS) as file:
        file.add(*trials())
    return tmp_path / "runs" / "axpy.db"


def test_several_kinds_share_a_name(plot: Callable[..., Any], run_file: Path, tmp_path: Path) -> None:
    code, out, _ = plot(run_file, "--kind", "time", "--kind", "progress", "-o", "fig.svg")
    assert code == 0
    assert out.split() == ["fig-time.svg", "fig-progress.svg"]
    assert all(ElementTree.parse(tmp_path / name).getroot().tag.endswith("svg") for name in out.split())


@pytest.mark.full
def test_all_kinds_and_the_document(plot: Callable[..., Any], run_file: Path, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    code, out, _ = plot(run_file, "--kind", "all", "-o", "fig.pdf", "--json", "--width", "page", "--no-title")
    assert code == 0
    document = json.loads(out)
    jsonschema.Draft202012Validator(schema("plot")).validate(document)
    assert [entry["kind"] for entry in document["plots"]] == list(KINDS)
    assert all((tmp_path / entry["output"]).exists() for entry in document["plots"])
    assert document["left_out"] == {}


@pytest.mark.full
def test_a_recorded_space_is_drawn_and_all_leaves_out_what_it_lacks(plot: Callable[..., Any], tmp_path: Path) -> None:
    write_run(described_run(SETTINGS, trials()), tmp_path / "space.json.gz", "space")
    code, out, err = plot("space.json.gz", "--kind", "all", "--max-error", "1e-5")
    assert code == 0
    assert out.split() == ["space-pareto.png", "space-progress.png", "space-parameters.png", "space-sensitivity.png"]
    assert "no time plot: the run was recorded without durations" in err
    code, out, err = plot("space.json.gz", "--kind", "time")
    assert (code, out) == (2, "")
    assert "without durations" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kind", "paretto"), "unknown kind of plot 'paretto'; did you mean 'pareto'?"),
        (("-o", "fig.jpg"), "expected the suffix .png, .pdf, .svg, .html"),
        (("--metrics", "time_ms,eror"), "unknown metric 'eror'; did you mean 'error'?"),
        (("--kind", "time", "--metrics", "time_ms,error"), "--metrics chooses the axes of a pareto plot, not of time"),
    ],
)
def test_mistakes_are_told(plot: Callable[..., Any], run_file: Path, options: tuple[str, ...], message: str) -> None:
    code, out, err = plot(run_file, *options)
    assert (code, out) == (2, "")
    assert message in err
    assert {path.name for path in run_file.parent.iterdir()} == {"axpy.db"}
