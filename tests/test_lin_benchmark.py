"""Lin 2025 done again: sets of configurations, pipeline balance, and what the items make of measured times."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.reproductions import lin  # noqa: E402
from benchmarks.reproductions.item import Given, Skipped  # noqa: E402
from mptune.buffers import DataManager  # noqa: E402
from mptune.errors import MptuneError  # noqa: E402
from mptune.results import Trial  # noqa: E402
from mptune.space.configuration import Configuration  # noqa: E402

GEMM = ROOT.parent / "shared" / "spaces" / "gemm-rtx2080ti.json.gz"


def given(tmp_path: Path, budget: int = 60) -> Given:
    folders = (tmp_path / name for name in ("data", "spaces", "published", "work"))
    return Given(*folders, quick=True, budget=budget)


@pytest.mark.parametrize("variant", list(lin.VARIANTS))
@pytest.mark.parametrize("type_name", ["fp32", "fp64"])
def test_a_set_of_configurations_is_of_its_variant_and_the_same_each_time(variant: str, type_name: str) -> None:
    found = lin.candidates(type_name, variant, 20, 0)
    assert len(set(found)) == 20
    assert found == lin.candidates(type_name, variant, 20, 0)
    for configuration in found:
        assert (configuration["double_buffer"], configuration["fine_prefetch"]) == lin.VARIANTS[variant]
        assert configuration["accumulator_type"] == configuration["c_type"] == type_name
    table_3 = [tuple(c[name] for name in lin._TILE) for c in lin.candidates(type_name, "neither", 1, 0)]
    assert table_3 == [lin._STARTS[type_name][0]]


def measured(configuration: dict[str, object]) -> dict[int, dict[str, dict[Configuration, lin.Rounds]]]:
    made = {
        variant: Configuration({**configuration, "double_buffer": buffered, "fine_prefetch": ahead})
        for variant, (buffered, ahead) in lin.VARIANTS.items()
    }
    times = {128: (2.0, 4.0, 1.0, 1.6), 1024: (20.0, 20.0, 40.0, 25.0)}
    spread = (1.0, 0.5, 2.0, 0.8, 1.25)
    return {
        n: {
            variant: {made[variant]: [f * ms for f in spread]}
            for variant, ms in zip(lin.VARIANTS, of_size, strict=True)
        }
        | {"fixed": {made["neither"]: [f * of_size[0] for f in sorted(spread)]}}
        for n, of_size in times.items()
    }


def test_speedups_are_means_over_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = measured(dict(lin.candidates("fp32", "neither", 1, 0)[0]))
    monkeypatch.setattr(lin, "measured", lambda _: times)
    made = lin.l_f8(given(tmp_path))
    rows = {row[0]: row[1:] for row in made.tables[0].rows}
    assert rows["double buffer"] == ("1.193", 1.25, 0.5, 2.0, "1.25 [0.50 to 2.00]")
    assert rows["both"][:4] == ("1.329", pytest.approx((1.25 + 0.8) / 2), 0.8, 1.25)
    # 2 n^3 operations in 2 ms are 2.1 GFlop/s, in the slower quartile 0.8 of that.
    assert made.tables[1].rows[0][:2] == (128, "2.097 (1.678 to 2.621)")
    for draw in made.plots.values():
        draw(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 0
    tuned = lin.l_f15(given(tmp_path))
    assert [row[3] for row in tuned.tables[0].rows] == [2.0, 1.0]
    # Round by round: 0.5, 0.8, 1, 1.25 and 2 of the time, to 1, 0.5, 2, 0.8 and 1.25 of half of it.
    assert tuned.tables[0].rows[0][4] == "3.12 (1.00 to 3.20)"
    assert tuned.tables[0].rows[1][5] == "the same"
    assert "1.50 times as fast" in tuned.summary


def test_nothing_that_runs_is_said() -> None:
    with pytest.raises(MptuneError, match="no configuration runs"):
        lin.best_of({"neither": {}, "both": {}})


def test_the_tuners_need_the_recording(tmp_path: Path) -> None:
    with pytest.raises(Skipped, match=r"no recorded spaces gemm-rtx2080ti"):
        lin.l_f14(given(tmp_path))


@pytest.mark.skipif(not GEMM.exists(), reason="the recorded space is not here")
def test_balanced_configurations_satisfy_equation_8_by_hand() -> None:
    narrowed = lin.balanced(str(GEMM), 2.0)
    assert 0 < narrowed.space.size < 17956
    for index in np.random.default_rng(0).integers(narrowed.space.size, size=50).tolist():
        c = narrowed.space.configuration(index)
        assert narrowed.trials[index].configuration.subset(narrowed.space.names) == tuple(c.values())
        multiply = c["MWG"] * c["NWG"] / 6.7e12
        private = 4 * (c["MWG"] * c["NDIMC"] + c["NWG"] * c["MDIMC"]) / 1.34e13
        tile = 4 * (c["MWG"] + c["NWG"]) * (1 / 6.16e11 + 1 / 1.34e13)
        for seconds in (private, tile):
            assert abs(math.log2(seconds / multiply)) <= 1 + 1e-9
    with pytest.raises(MptuneError, match=r"satisfies Eq\. 8"):
        lin.balanced(str(GEMM), 1.0000001)


def test_gemm_and_blas_take_turns_and_one_disturbed_round_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = lin.gemm()
    sizes = lin.cube(kernel, 64)
    (configuration,) = lin.candidates("fp32", "neither", 1, 0)
    turns: list[str] = []
    original = lin.remeasure

    def remeasured(*arguments: Any) -> Iterator[Trial]:
        for trial in original(*arguments):
            turns.append("gemm")
            yield trial

    def disturbed(data: DataManager, type_name: str, rounds: int, threads: int) -> float:
        turns.append("BLAS")
        assert (type_name, data.inputs["A"].shape, rounds) == ("fp32", (64, 64), 1)
        return 500.0 if len(turns) == 6 else 0.25

    monkeypatch.setattr(lin, "remeasure", remeasured)
    monkeypatch.setattr(lin, "blas_ms", disturbed)
    own, other = lin.beside_blas(kernel, sizes, configuration, "fp32", given(tmp_path))
    assert turns == ["gemm", "BLAS"] * lin._BLAS_ROUNDS
    assert sorted(other) == [0.25] * (lin._BLAS_ROUNDS - 1) + [500.0]
    assert min(own) > 0.0
    monkeypatch.setattr(lin, "promising", lambda *_: {})
    monkeypatch.setattr(lin, "times_of", lambda *_: {"neither": {configuration: [1.0]}})
    monkeypatch.setattr(lin, "beside_blas", lambda *_: (own, other))
    for row in lin.l_f12(given(tmp_path)).tables[0].rows:
        n, gemm, blas = int(str(row[1])), *(float(str(speed)) for speed in row[2:4])
        assert gemm == pytest.approx(2 * n**3 / min(own) / 1e6)
        assert blas == pytest.approx(2 * n**3 / 0.25 / 1e6)
        assert "(" in str(row[5])
