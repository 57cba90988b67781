"""Willemsen 2021 done again: the definition of the mean deviation factor against the published runs, and the items."""

from __future__ import annotations

import gzip
import json
import math
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import papers  # noqa: E402
from benchmarks.reproductions import willemsen  # noqa: E402
from benchmarks.reproductions.item import Given, Skipped  # noqa: E402
from mptune.errors import SpaceFileError  # noqa: E402
from mptune.strategies.bayesian_multi import BayesianMultiOptions  # noqa: E402

PUBLISHED = ROOT.parent / "shared" / "published" / "willemsen2021-runs.json.gz"
POINTS = [20 * i for i in range(1, 12)]


def given(tmp_path: Path) -> Given:
    return Given(tmp_path / "data", tmp_path / "spaces", tmp_path / "published", tmp_path / "work", quick=True)


def made_up(path: Path, runs: dict[str, list[list[float]]]) -> Path:
    document = {"evaluations": POINTS, "devices": {"A100": {"GEMM": {"optimum": 10.0, "strategies": runs}}}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the paper's raw runs are not here")
@pytest.mark.parametrize(("device", "better"), [("RTX2070S", 0.636), ("A100", 0.198)])
def test_the_published_runs_have_the_published_deviation_factors(device: str, better: float) -> None:
    comparison = willemsen.published_comparison(PUBLISHED, device)
    assert willemsen.advantage(comparison) == pytest.approx(better, abs=0.001)
    assert sum(willemsen.factors(comparison).values()) == pytest.approx(7.0)


def test_factors_of_runs_by_hand(tmp_path: Path) -> None:
    # Sec. IV-A looks at evaluations from 40 on: the first value must not count.
    advanced = [[99.0, 14.0, *[12.0] * 9], [50.0, *[12.0] * 10]]
    genetic = [[10.0, *[16.0] * 10]]
    path = made_up(tmp_path / "runs.json.gz", {"advanced multi": advanced, "genetic algorithm": genetic})
    comparison = willemsen.published_comparison(path, "A100")
    means = {"advanced multi": (0.4 + 9 * 0.2 + 10 * 0.2) / 20, "genetic algorithm": 0.6}
    middle = sum(means.values()) / 2
    assert willemsen.factors(comparison) == pytest.approx({name: mean / middle for name, mean in means.items()})
    assert willemsen.advantage(comparison) == pytest.approx((0.6 - means["advanced multi"]) / middle)
    best = comparison.simulation("GEMM", "genetic algorithm").runs[0].best
    assert (best[18], best[19], best[38], best[39], best[219]) == (None, 10.0, 10.0, 16.0, 16.0)


@pytest.mark.parametrize("content", [b"", b"{}", gzip.compress(b"{}", mtime=0), gzip.compress(b"[1, 2]", mtime=0)])
def test_a_file_without_runs_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "runs.json.gz"
    path.write_bytes(content)
    with pytest.raises(SpaceFileError, match="no published runs of A100"):
        willemsen.published_comparison(path, "A100")
    cut_off = made_up(path, {"genetic algorithm": [[16.0] * 10]})
    with pytest.raises(SpaceFileError, match="no published runs of A100"):
        willemsen.published_comparison(cut_off, "A100")


@pytest.mark.parametrize("name", list(willemsen.ITEMS))
def test_without_data_an_item_is_skipped(tmp_path: Path, name: str) -> None:
    with pytest.raises(Skipped, match="runs" if name == "w-mdf" else "recorded spaces"):
        papers.items()[name].run(given(tmp_path))


def test_when_the_mean_of_the_runs_is_as_near(tmp_path: Path) -> None:
    runs = {"random": [[12.0] * 4 + [10.0] * 7, [12.0] * 2 + [11.0] * 9]}
    simulation = willemsen.published_comparison(made_up(tmp_path / "f", runs), "A100").simulation("GEMM", "random")
    assert willemsen._arrival(simulation, 0.16) == 60
    assert willemsen._arrival(simulation, 0.05) == 100
    assert willemsen._arrival(simulation, 0.04) == math.inf


def test_every_value_of_a_sweep_is_an_option_and_the_papers_is_among_them() -> None:
    for sweep in willemsen.SWEEPS:
        assert sweep.best in sweep.values
        for options in sweep.values.values():
            assert willemsen._variant(options).missing == ""
            BayesianMultiOptions(**options)
