"""What the benchmarks for GPUs compute: of played libraries and clocks, of recordings, of listings of machine code."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import sass
from benchmarks.gpu_sections import axpy, spaces
from benchmarks.gpu_sections.searching import fastest
from mptune.results.trial import Measurement, Status, Trial
from mptune.source.loading import load_kernel

#: What nvdisasm lists of coulombic: tiles of two points, approx policy, positions and charges in fp16, sums in fp32.
LISTING = (Path(__file__).parents[1] / "data" / "coulombic-sm_90.sass").read_text(encoding="utf-8")


# -- sections -------------------------------------------------------------------------------------


def test_copies_are_timed_without_what_it_takes_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]

    class Memory:
        def __init__(self, nbytes: int) -> None:
            self.nbytes = nbytes

        def fill(self, byte: int) -> None:
            now_s[0] += 3.0

        def copy_from(self, other: Memory) -> None:
            now_s[0] += 2 * other.nbytes / 2e12

        def part(self, offset: int, nbytes: int) -> Memory:
            return self

        def read(self, data: Any) -> None:
            now_s[0] += 5e-3

        def free(self) -> None:
            pass

    monkeypatch.setattr(axpy.time, "perf_counter", lambda: now_s[0])
    backend: Any = SimpleNamespace(name="cuda", device=SimpleNamespace(allocate=Memory))
    assert axpy.copy_bytes_per_s(backend, 10**9) == pytest.approx(2e12)


def test_the_summary_of_a_space() -> None:
    kernel = load_kernel("axpy")

    def trial(type_name: str, time_ms: float, error: float, status: Status = Status.OK) -> Trial:
        types = dict.fromkeys(("a_type", "x_type", "y_type"), type_name)
        configuration = kernel.configuration({"block_size": 32 if time_ms < 9 else 64, "vector_width": 1, **types})
        return Trial(configuration, status, measurement=Measurement({"time_ms": time_ms, "error": error}))

    trials = [trial("fp64", 8.0, 1e-17), trial("fp64", 10.0, 1e-17), trial("fp32", 4.0, 1e-8)]
    trials += [trial("fp16", 2.0, 1e-3), trial("bf16", 2.5, 1e-2), trial("bf16", 1.0, math.nan)]
    trials.append(Trial(trial("bf16", 9.0, 1.0).configuration, Status.LAUNCH_ERROR, "too slow"))
    found = spaces.summary(kernel, trials, (1e-8, 1e-4, 1e-2))
    assert found["fp64"]["time_ms"] == 8.0
    assert {level: point["time_ms"] for level, point in found["best"].items()} == {"high": 4, "medium": 4, "low": 2}
    assert [point["time_ms"] for point in found["front"]] == [2.0, 4.0, 8.0]
    assert found["statuses"] == {"ok": 6, "launch_error": 1}
    assert spaces.summary(kernel, [], (1e-8,))["best"] == {"high": None}
    assert fastest(trials[-2:], {}, math.inf, 3) == []  # NaN is never among them


# -- machine code ---------------------------------------------------------------------------------


def test_the_loop_over_charges_is_the_hottest() -> None:
    code = sass.instructions(LISTING, "coulombic")
    assert [one.address for one in code] == list(range(0, 0x900, 0x10))  # up to the padding
    loop = sass.hottest_loop(code)
    assert (loop[0].address, loop[-1].address, loop[-1].target) == (0x320, 0x850, 0x320)
    # Unrolled four times. Of the two points of a thread: the distance along y and its square alone, x in pairs.
    kinds = Counter(one.kind for one in loop)
    expected = {"single fma": 2, "single": 1, "pair": 2, "pair fma": 1, "conversion": 5, "function": 2, "fp32": 2}
    assert {kind: kinds[kind] // 4 for kind in kinds if kind not in ("other", "global load")} == expected
    assert kinds["global load"] == 4 * (3 + 1)


def test_counts_of_a_listing() -> None:
    counts = sass.count(sass.instructions(LISTING, "coulombic"))
    assert counts == sass.Counts(
        instructions=0x900 // 16,
        loop=(0x860 - 0x320) // 16,
        loop_operations=4 * (2 + 1 + 2 * 2 + 2 * 1 + 2),
        loop_fused=4 * 3,
        conversions=4 * 5 + 6 + 3 + 3,
        permutations=1,
        functions=8,
        local_accesses=0,
        loads="16 x 16",
        shared_loads="",
        registers=29,
        loop_matrix=0,
    )
    assert counts.operations_per_instruction == pytest.approx(44 / 84)
    assert counts.fused_share == pytest.approx(12 / 84)


@pytest.mark.parametrize(
    ("text", "kind", "operations"),
    [
        ("FFMA R1, R2, R3, R1", "fp32 fma", 1),
        ("DADD R2, R2, -R4", "fp64", 1),
        ("HMMA.16816.F32.BF16 R4, R8, R12, R4", "matrix", 16 * 8 * 16 / 32),
        ("HMMA.1688.F32.TF32 R4, R8, R12, R4", "matrix", 16 * 8 * 8 / 32),
        ("DMMA.8x8x4 R4, R8, R12, R4", "matrix", 8 * 8 * 4 / 32),
        ("HGMMA.64x128x16.F32 R24, gdesc[UR8], R24", "matrix", 64 * 128 * 16 / 128),
        ("HFMA2.BF16_V2 R5, R2.H0_H0, R3.H0_H0, R5.H0_H0", "single fma", 1),
        ("HFMA2.BF16_V2 R5, R2, R3.H0_H0, R5", "pair fma", 2),
        ("HFMA2.MMA R5, R2.H1_H1, 1.5, 1.5, R5.reuse.H0_H0", "single fma", 1),
        ("HADD2.BF16_V2 R5, R2, -R3", "pair", 2),
        ("HFMA2.MMA R23, -RZ, RZ, 0, 0", "constant", 0),
        ("HADD2.F32 R21, -RZ, R25.H0_H0", "conversion", 0),
        ("F2FP.BF16.F32.PACK_AB R4, RZ, R4", "conversion", 0),
        ("LDGSTS.E.BYPASS.128 [R3], desc[UR4][R2.64]", "shared copy", 0),
        ("LDSM.16.M88.4 R8, [R2]", "shared load", 0),
        ("STL.64 [R1+0x8], R2", "local memory", 0),
        ("IMAD.WIDE R2, R3, 0x2, R4", "other", 0),
    ],
)
def test_kinds_and_operations(text: str, kind: str, operations: float) -> None:
    name, _, operands = text.partition(" ")
    instruction = sass.Instruction(0, name, operands)
    assert (instruction.kind, instruction.operations) == (kind, operations)


def listed(*lines: str) -> list[sass.Instruction]:
    text = "".join(f"/*{16 * i:04x}*/ {line} ;\n" for i, line in enumerate(lines))
    return list(sass.instructions(f".text.f:\n{text}", "f"))


def test_a_loop_without_arithmetic_inside_another_is_not_the_hottest() -> None:
    lines = ("FMUL R0, R0, R1", "LDG.E R2, [R4]", "@P0 BRA 0x10", "FFMA R0, R0, R1, R0", "@!P1 BRA 0x0")
    code = listed(*lines, "FADD R0, R0, R1")
    # The inner jump goes to the load.
    assert [one.name for one in sass.hottest_loop(code)] == ["FMUL", "LDG.E", "BRA", "FFMA", "BRA"]
    assert sass.hottest_loop(code[-1:]) == ()


def test_widths_of_accesses_and_what_matrix_units_are_given() -> None:
    names = ("LDG.E.128.CONSTANT", "LDG.E", "LDG.E.U16", "LDG.E.64", "LDG.E.U8", "LDG.E.128", "LDGSTS.E.128")
    code = [sass.Instruction(0, name, "R0, [R2]") for name in names]
    assert sass.widths(code, "LDG") == "2 x 128, 1 x 64, 1 x 32, 1 x 16, 1 x 8"
    names = ("LDGSTS.E.BYPASS.128", "LDSM.16.M88.4", "LDSM.16.MT88.4", "LDS.64", "HMMA.16816.F32", "HMMA.16816.F32")
    code = listed(*(f"{name} R0, [R2]" for name in names), "@P0 BRA 0x10", "BRA 0x70")
    found = sass.count(code)
    assert (found.loads, found.shared_loads, found.loop_matrix) == ("1 x 128 later", "1 x 64, 2 x 4 matrices", 2)
