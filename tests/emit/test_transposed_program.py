"""What is emitted of a matrix product computes it with the matrices stored as the run had them."""

from __future__ import annotations

from pathlib import Path

import pytest
from awkward_kernel import data_folder, measured, run_of
from test_programs import build, error_of, run_program

from mptune.data import DataManager
from mptune.emit import emit, winner_of
from mptune.source.loading import load_kernel
from tests.tiers import few


@pytest.mark.full
@pytest.mark.parametrize(("a", "b"), few([(1, 0), (0, 1), (1, 1)], 1, 1))
def test_the_program_takes_transposed_matrices(a: int, b: int, tmp_path: Path) -> None:
    gemm = load_kernel("gemm")
    size = gemm.resolve_sizes("smoke", {"M": 37, "N": 29, "K": 23, "transposed_a": a, "transposed_b": b})
    single = dict.fromkeys(("a_type", "b_type", "accumulator_type", "c_type"), "fp32")
    tiles = {"MWG": 32, "NWG": 64, "KWG": 16, "VWM": 2, "VWN": 4, "NDIMB": 8}
    run = run_of(gemm, measured(gemm, {**single, **tiles}, sizes=size), sizes=size, threshold=1.0)
    winner = winner_of(run, configuration="1", kernel=gemm)
    assert winner is not None
    assert winner.sizes == size
    emit(winner, tmp_path)
    data = DataManager(gemm, size)
    inputs = data_folder(data, tmp_path / "in")
    (tmp_path / "out").mkdir()
    done = run_program(build(tmp_path, "tuned_gemm_host.cpp"), inputs, tmp_path / "out", 3)
    assert done.returncode == 0, done.stderr
    assert error_of(gemm, data, tmp_path / "out") < 1e-6
