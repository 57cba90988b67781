"""The benchmark of compound precisions: its fronts, its counts, and that its page has both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compound
from mptune.precision import COMPOUND
from mptune.registry import load_tunable


def point(stored: str, sums: str, time_ms: float, error: float) -> dict[str, Any]:
    return {"stored": stored, "sums": sums, "time_ms": time_ms, "error": error}


POINTS = [
    point("fp64", "fp64", 10.0, 1e-16),
    point("fp64", "fp32x2", 100.0, 1e-14),
    point("fp32", "fp32", 1.0, 1e-6),
]


def test_what_lies_on_no_front_gains_nothing_and_what_does_gains_its_part() -> None:
    found = compound.fronts(POINTS)
    assert found["share"] == pytest.approx(1.0)
    assert [p["sums"] for p in found["front"]] == ["fp32", "fp64"]
    better = compound.fronts([*POINTS, point("fp32", "fp32x2", 2.0, 1e-11)])
    assert [p["sums"] for p in better["front"]] == ["fp32", "fp32x2", "fp64"]
    # Scaled to times 0, 0.5, 1 and errors 1, 0, 0.2: 1.1 x 0.1 + 0.6 x 1 without, and between the two 0.349 x 0.5 more.
    assert better["share"] == pytest.approx(0.71 / (0.71 + (0.5 - 0.150515) * 0.5))


def test_an_exact_result_counts() -> None:
    assert compound.fronts([*POINTS, point("fp64", "fp64_neumaier", 20.0, 0.0)])["share"] < 1


@pytest.mark.parametrize("name", compound.SUMS)
def test_every_type_comes_with_both_types_of_all_else(name: str) -> None:
    tunable = load_tunable(name)
    found = list(compound.signatures(tunable, name))
    offered = next(p.every_value for p in tunable.parameters if p.name == compound.SUMS[name])
    assert {each[compound.SUMS[name]] for each in found} == {"fp64", "fp32", *COMPOUND} <= set(offered)
    assert len({tuple(each.items()) for each in found}) == 12
    configurations = compound.drawn(tunable, name, [], 2)
    assert {str(c[compound.SUMS[name]]) for c in configurations} >= set(COMPOUND)


def test_operations_are_those_that_types_declare() -> None:
    k = compound.SIZES["gemm"]["K"]
    assert compound.operations("gemm", "fp64") == {"fp64": 2 * k}
    assert compound.operations("gemm", "fp32x2") == {"fp32": 14 * k}
    assert compound.operations("conjugate_gradient", "fp64_neumaier") == {"fp64": 8}
    assert compound.gain("gemm", "fp32x2", 32) == pytest.approx(64 / 14)
    assert compound.gain("gemm", "fp64_neumaier", 64) == 0.25
    # Terms of coulombic are counted in the type they are computed in.
    assert compound.operations("coulombic", "fp32x2") == {"fp32": 15 * compound.SIZES["coulombic"]["charges"]}


@pytest.mark.full
def test_the_page_has_fronts_points_and_counts() -> None:
    of_run = {"machine": "M", "command": "C"}
    kernels = {"gemm": {"sizes": {"M": 2}, "tunings": 1, "configurations": 3, "points": POINTS, **of_run}}
    page = compound.markdown({"kernels": kernels})
    assert "- gemm: `C`, on M." in page
    assert "![" not in page
    assert "](plot.png)" in compound.markdown({"kernels": kernels, "plot": "plot.png"})
    assert "| gemm | M=2 | 1.000 | 0.0% | fp32 / fp32, fp64 / fp64 |" in page
    assert "Not measured: kmeans, convolution2d, coulombic, conjugate_gradient." in page
    assert "| gemm | fp64 | fp32x2 | 100.000 | 1e-14 |" in page
    assert "| conjugate_gradient | fp32x2 | 14 of fp32 | 0.29 | 4.6 | 9.1 |" in page


@pytest.mark.full
def test_another_kernel_is_added_to_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def measured(name: str, tunings: int) -> dict[str, Any]:
        asked.append((name, tunings))
        return {"sizes": dict(compound.SIZES[name]), "tunings": tunings, "configurations": 3, "points": POINTS}

    monkeypatch.setattr(compound, "measured", measured)
    assert compound.main(["--only", "kmeans", "--output", str(tmp_path)]) == 0
    assert compound.main(["--only", "gemm", "--quick", "--output", str(tmp_path)]) == 0
    assert asked == [("kmeans", 4), ("gemm", 1)]
    assert list(json.loads((tmp_path / "compound.json").read_text())["kernels"]) == ["gemm", "kmeans"]
    page = (tmp_path / "compound.md").read_text()
    assert "| kmeans |" in page
    # Each was measured by a command of its own.
    assert f"- gemm: `python benchmarks/compound.py --only gemm --quick --output {tmp_path}`, on " in page
    assert f"- kmeans: `python benchmarks/compound.py --only kmeans --output {tmp_path}`, on " in page
    assert "](compound-fronts.png)" in page
    assert (tmp_path / "compound-fronts.png").stat().st_size > 1000


@pytest.mark.full
def test_what_an_earlier_document_says_of_all_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_kernel = {"sizes": {"n": 2}, "tunings": 1, "configurations": 3, "points": POINTS}
    earlier = {"machine": "M", "command": "C", "kernels": {"kmeans": of_kernel, "coulombic": of_kernel}}
    (tmp_path / "compound.json").write_text(json.dumps(earlier))
    monkeypatch.setattr(compound, "measured", lambda *_: of_kernel)
    assert compound.main(["--only", "gemm", "--output", str(tmp_path)]) == 0
    assert "- kmeans, coulombic: `C`, on M." in (tmp_path / "compound.md").read_text()


def test_mistakes_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compound.main(["--only", "gem", "--output", str(tmp_path)]) == 2
    assert "did you mean 'gemm'" in capsys.readouterr().err
    assert compound.main(["--tunings", "0", "--output", str(tmp_path)]) == 2
