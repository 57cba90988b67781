"""Warp functions in programs: which kernels are taken, and what their templates compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from mptune.adopt import running
from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.blocks import split_kernels
from mptune.adopt.classing import type_classes
from mptune.adopt.reading import read

PROGRAMS = Path(__file__).parent / "programs"
MAIN = "int main() { k<<<1, 64>>>(nullptr, nullptr); }\n"
#: Statements that add the 64 numbers of an array, and whether they say where threads wait for each other.
SUMS = {
    "if (t < 32) for (int s = 32; s > 0; s /= 2) of[t] += of[t + s];": False,
    "if (t < 32) { of[t] += of[t + 32]; of[t] = of[t] + of[t + 16]; }": False,
    "if (t < 32) for (int s = 32; s > 0; s /= 2) { of[t] += of[t + s]; __syncwarp(); }": True,
    "for (int s = 32; s > 0; s /= 2) { if (t < s) of[t] += of[t + s]; __syncthreads(); }": True,
    "for (int s = 0; s < 4; s++) of[t] += 2.0 * of[t];": True,
}


@pytest.mark.parametrize("statement", SUMS)
def test_kernels_that_count_on_threads_in_step_are_refused_with_the_line(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "sums.cu"
    kernel = """__global__ void k(const double* x, double* y) {
    volatile __shared__ double of[64];
    int t = threadIdx.x;
    of[t] = x[t];
    __syncthreads();
"""
    path.write_text(f"{kernel}    {statement}\n    if (t == 0) *y = of[0];\n}}\n{MAIN}")
    program = read([path])
    assert [kernel.label for kernel in program.kernels] == ["k"] * SUMS[statement]
    if not SUMS[statement]:
        (refusal,) = program.refusals
        assert str(refusal).startswith("sums.cu:6: kernel k cannot be adopted: it counts on the threads of a warp")


def test_a_shuffle_returns_what_it_is_given_in_the_type_of_that(tmp_path: Path) -> None:
    path = tmp_path / "shuffles.cu"
    path.write_text(
        "__global__ void k(const double* x, double* y) {\n"
        "    double sum = x[threadIdx.x];\n    sum += __shfl_down_sync(~0u, sum, 16);\n"
        "    y[threadIdx.x] = __shfl_sync(~0u, sum > 0 ? sum : 1.0, 0);\n}\n" + MAIN
    )
    program = read([path])
    (kernel,) = program.kernels
    assert kernel.has_barrier
    found = type_classes(program)
    # A literal takes the type of what it is chosen beside.
    (literal,) = found.literals
    (sum_class,) = (each.name for each in found.classes if any(member.name == "sum" for member in each.members))
    assert literal.meets == (sum_class,)


@pytest.mark.full
def test_a_program_whose_shuffles_end_regions_passes_its_own_check(tmp_path: Path) -> None:
    program = read([PROGRAMS / "warps.cu"])
    files = split_kernels(program)
    assert any("MPTUNE_SHUFFLED(" in file.text for file in files)
    ran = running.run(running.build(program.sources, files, optimisation="-O1"), writes=tmp_path)
    assert ran.check == "passed", ran.output + ran.errors


@pytest.mark.full
def test_templates_with_warps_compute_what_the_program_does(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "warps.cu",)), tmp_path / "warps")
    assert [kernel["name"] for kernel in document["kernels"]] == ["moments", "largest", "totals", "above"]
    assert set(document["errors"].values()) == {0.0}
    # Shuffles of the kernel itself end regions; those of functions it calls do not.
    texts = {name: (tmp_path / "warps" / f"{name}.cu.j2").read_text() for name in ("moments", "largest", "totals")}
    assert ["MPTUNE_SHUFFLED(" in text for text in texts.values()] == [False, True, True]
    assert "MPTUNE_THOSE(" in texts["totals"]
    assert document["refused"] == []
