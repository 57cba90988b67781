"""Calls of libraries between kernels: they compute what NumPy does, and programs that have them are tuned."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
from command_line import caller
from numpy.typing import NDArray

from mptune.adopt.parsing import SourceFile
from mptune.adopt.reading import read
from mptune.adopt.running import build, run
from mptune.interop import read_run

PROGRAMS = Path(__file__).parent / "programs" / "libraries"


def printed(name: str, folder: Path) -> dict[str, list[NDArray[np.float64]]]:
    """Return what a program prints: numbers by the word in front of them, those of each line."""
    source = PROGRAMS / name
    ran = run(build([source], [SourceFile.read(source)]), writes=folder)
    found: dict[str, list[NDArray[np.float64]]] = {}
    for word, *numbers in map(str.split, ran.output.splitlines()):
        found.setdefault(word, []).append(np.array(numbers, float))
    return found


def filled(rows: int, columns: int, start: float) -> NDArray[np.float64]:
    """Return what the program of cuBLAS fills a matrix with, which is in Fortran's order."""
    i = np.arange(rows * columns)
    return (start + (i * 37 % 11) * 0.25 - i * 0.03125).reshape((rows, columns), order="F")


@pytest.mark.full
def test_matrices_are_multiplied_and_solved(tmp_path: Path) -> None:
    found = {name: lines[0] for name, lines in printed("blas.cu", tmp_path).items()}

    def agrees(name: str, expected: NDArray[np.float64]) -> None:
        np.testing.assert_allclose(found[name], expected.ravel(order="F"), rtol=1e-13, atol=1e-13)

    a, b, c = filled(7, 6, 1), filled(6, 5, 2), filled(7, 5, 3)
    agrees("gemm", 1.5 * a @ b - 0.5 * c)
    c = 1.5 * filled(6, 7, 1).T @ filled(5, 6, 2).T - 0.5 * c
    agrees("gemm_transposed", c)
    flat = c.ravel(order="F")[:12].copy()
    for i in range(2):
        left = a.ravel(order="F")[8 * i : 8 * i + 8].reshape((2, 4), order="F")
        right = b.ravel(order="F")[12 * i : 12 * i + 12].reshape((4, 3), order="F")
        product = left @ right
        flat[6 * i : 6 * i + 6] = 1.5 * product.ravel(order="F") - 0.5 * flat[6 * i : 6 * i + 6]
    agrees("gemm_strided", flat)
    x, y = filled(7, 1, 4).ravel(), filled(6, 1, 5).ravel()
    y = 1.5 * a.T @ x - 0.5 * y
    agrees("gemv", y)
    agrees("ger", a + 1.5 * np.outer(x, y))
    y = y + 1.5 * x[:6]
    agrees("axpy", y)
    y[::2] *= -0.5
    agrees("scal", y)
    sums = [x[:6] @ y[::-1], np.linalg.norm(y), np.abs(y).sum(), np.abs(y).argmax() + 1]
    agrees("sums", np.array(sums))
    agrees("dot_on_device", x[:6] @ x[:6])
    square, rhs = filled(6, 6, 6), filled(6, 5, 7)
    agrees("trsm", scipy.linalg.solve_triangular(square, 1.5 * rhs, lower=True))
    rhs = filled(5, 6, 7)
    # X U' = B: U X' = B'
    rhs = scipy.linalg.solve_triangular(square, rhs.T, unit_diagonal=True).T
    agrees("trsm_right", rhs)
    own = rhs.ravel(order="F").reshape((6, 5), order="F")
    lower = np.tril(1.5 * own @ own.T - 0.5 * square)
    square = np.triu(square, 1) + lower
    agrees("syrk", square)
    y = 1.5 * (lower + np.tril(lower, -1).T) @ x[:6] - 0.5 * y
    agrees("symv", y)
    agrees("geam", 1.5 * rhs.ravel(order="F").reshape((6, 5), order="F").T - 0.5 * rhs)
    p, q = (filled(2 * 12, 1, s).ravel().view(complex).reshape((4, 3), order="F") for s in (1, 2))
    agrees("zgemm", ((0.5 - 1j) * p.conj().T @ q).ravel(order="F").view(float))
    agrees("zdotc", np.array([np.vdot(p, q).real, np.vdot(p, q).imag]))


@pytest.mark.full
def test_algorithms_of_thrust(tmp_path: Path) -> None:
    found = {name: lines[0] for name, lines in printed("thrust.cu", tmp_path).items()}
    i = np.arange(1000)
    x = (i * 37 % 101) * 0.5 - 7
    np.testing.assert_allclose(found["reduce"], [x.sum(), x.max(), (x * x).sum()], rtol=1e-14)
    np.testing.assert_allclose(found["inner_product"], 1 + 0.25 * x.sum(), rtol=1e-14)
    assert found["counts"].tolist() == [(x == 3).sum(), x.argmax(), (x == 3).argmax()]
    np.testing.assert_array_equal(found["transform"], x - 0.25)
    np.testing.assert_array_equal(found["captured"], 0.5 * x + i)
    np.testing.assert_array_equal(found["zipped"], 2 * x + 0.5 * x + i)
    np.testing.assert_allclose(found["inclusive_scan"], x.cumsum(), rtol=1e-13, atol=1e-11)
    np.testing.assert_allclose(found["exclusive_scan"], 10 + x.cumsum() - x, rtol=1e-13, atol=1e-11)
    order = np.argsort(-x, kind="stable")
    np.testing.assert_array_equal(found["order"], order)
    np.testing.assert_array_equal(found["sorted"], x[order])
    np.testing.assert_array_equal(found["copy_if"], x[order][x[order] > 20])
    np.testing.assert_array_equal(found["unique"], np.unique(x[x > 20])[::-1])
    assert found["element"].tolist() == [x[order][2] + 1, x.min()]


@pytest.mark.full
def test_functions_of_cub(tmp_path: Path) -> None:
    found = {name: lines[0] for name, lines in printed("cub.cu", tmp_path).items()}
    i = np.arange(600)
    x, keys = (i * 37 % 101) * 0.5 - 7, i * 53 % 97 - 40
    np.testing.assert_allclose(found["sum"], x.sum(), rtol=1e-14)
    assert found["min"].tolist() == [x.min()]
    np.testing.assert_allclose(found["exclusive_sum"], x.cumsum() - x, rtol=1e-13, atol=1e-11)
    np.testing.assert_array_equal(found["running_max"], np.maximum.accumulate(x))
    order = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(found["sorted"], keys[order])
    np.testing.assert_array_equal(found["sorted_values"], x[order])
    np.testing.assert_array_equal(found["descending"], np.sort(x)[::-1])
    chosen = x[x < -2]
    assert found["selected"].tolist() == [chosen.size]
    np.testing.assert_array_equal(found["selected_values"][: chosen.size], chosen[:100])
    np.testing.assert_array_equal(found["histogram"], np.histogram(x[x < 33], 8, (-7, 33))[0])


@pytest.mark.full
def test_transforms_of_any_length(tmp_path: Path) -> None:
    found = printed("fft.cu", tmp_path)

    def numbers(count: int) -> NDArray[np.float64]:
        return np.arange(count) * 37 % 101 * 0.5 - 7

    def agrees(values: NDArray[np.float64], expected: NDArray[np.complex128] | NDArray[np.float64]) -> None:
        expected = np.ascontiguousarray(expected).ravel().view(np.float64)
        np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-10)

    for n, forward, back in zip((60, 64, 211), found["forward"], found["back"], strict=True):
        x = numbers(2 * n).view(complex)
        agrees(forward, np.fft.fft(x))
        agrees(back, n * x)
    x = numbers(60).reshape(6, 10)
    agrees(found["real"][0], np.fft.rfft2(x))
    agrees(found["real_back"][0], 60 * x)
    agrees(found["columns"][0], np.fft.fft(numbers(48).view(complex).reshape(8, 3), axis=0))


@pytest.mark.full
def test_a_program_that_calls_libraries_is_tuned_but_for_what_they_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    call, which = caller(monkeypatch, capfd), shutil.which
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda name, *given: None if name == "nvcc" else which(name, *given))
    shutil.copy(PROGRAMS / "solver.cu", tmp_path)
    adopted = json.loads(call("adopt", "--json", "solver.cu", "-o", "adopted/solver", "--", "16").out)
    assert adopted["kept"] == {"matrix": "cublasDgemv takes its memory for this type"}
    assert [each["name"] for each in adopted["parameters"]] == ["stiffness_type", "weight_type"]
    outputs = [each for each in adopted["buffers"] if each["role"] == "output"]
    assert [(each["name"], each["type"]) for each in outputs] == [("cublasDaxpy_output", "fp64")]
    assert max(adopted["errors"].values()) == 0
    # What fresh inputs change reaches the answer through the libraries, in which the host's loop ends.
    assert adopted["draws"]["of"] == "data"

    how = ("--max-error", "1e-3", "--budget", "4", "--inputs", "1", "--verify", "0", "--backend", "host")
    tuned = json.loads(call("tune", "--json", "./adopted/solver", *how, "--output", "solver.db").out)
    assert tuned["best"]["error"] <= 1e-3
    trials = read_run(tmp_path / "solver.db").trials
    narrow = next(n for n, each in enumerate(trials, 1) if each.configuration.get("stiffness_type") == "fp32")
    written = call("emit", "--json", "solver.db", "--into", "solver.cu", "-o", "new.cu", "--configuration", narrow)
    emitted = json.loads(written.out)
    assert 0 < emitted["error"] < 1e-3
    assert emitted["check"] == {"original": "passed", "patched": "passed"}
    text = (tmp_path / "new.cu").read_text()
    assert "float *d_stiffness" in text or "float* d_stiffness" in text
    assert "double *matrix, *x, *r, *p, *ap;" in text


def test_a_function_that_a_library_has_and_mptune_has_not_is_refused_by_name(tmp_path: Path) -> None:
    source = tmp_path / "program.cu"
    text = (PROGRAMS / "solver.cu").read_text().replace("cublasDestroy(", "cublasDfactorise(")
    source.write_text(text)
    (refusal,) = read([source]).refusals
    assert "uses cublasDfactorise, which is not there; do without it" in str(refusal)
