"""The benchmark of machine code: what it counts in a listing, and how it compares with an earlier run."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from vendor_compilers import needs

from mptune.errors import MptuneError
from mptune.registry import bundled_kernels, load_kernel

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import sass  # noqa: E402

#: What nvdisasm lists of coulombic: tiles of two points, approx policy, positions and charges in fp16, sums in fp32.
LISTING = (ROOT / "tests" / "data" / "coulombic-sm_90.sass").read_text(encoding="utf-8")

try:
    sass.disassembler()
    MISSING = ""
except MptuneError as error:
    MISSING = str(error)


def test_instructions_are_those_up_to_the_padding() -> None:
    code = sass.instructions(LISTING, "coulombic")
    assert [code[0].name, code[-1].name] == ["LDC", "EXIT"]
    assert [one.address for one in code] == list(range(0, 0x900, 0x10))
    with pytest.raises(MptuneError, match="lists no function 'gemm'"):
        sass.instructions(LISTING, "gemm")


def test_the_loop_over_charges_is_the_hottest() -> None:
    loop = sass.hottest_loop(sass.instructions(LISTING, "coulombic"))
    assert (loop[0].address, loop[-1].address, loop[-1].target) == (0x320, 0x850, 0x320)
    # Unrolled four times. Of the two points of a thread: the distance along y and its square alone, x in pairs.
    kinds = Counter(one.kind for one in loop)
    assert {kind: kinds[kind] // 4 for kind in kinds if kind not in ("other", "global load")} == {
        "single fma": 2,
        "single": 1,
        "pair": 2,
        "pair fma": 1,
        "conversion": 5,
        "function": 2,
        "fp32": 2,
    }
    assert kinds["global load"] == 4 * (3 + 1)


def test_counts_of_a_listing() -> None:
    counts = sass.count(sass.instructions(LISTING, "coulombic"), registers=32, local_bytes=0)
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
        registers=32,
        local_bytes=0,
        loop_matrix=0,
    )
    assert counts.operations_per_instruction == pytest.approx(44 / 84)
    assert counts.fused_share == pytest.approx(12 / 84)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("FFMA R1, R2, R3, R1", "fp32 fma"),
        ("DADD R2, R2, -R4", "fp64"),
        ("HMMA.16816.F32 R4, R8, R12, R4", "matrix"),
        ("HGMMA.64x128x16.F32 R24, gdesc[UR8], R24", "matrix"),
        ("HFMA2.BF16_V2 R5, R2.H0_H0, R3.H0_H0, R5.H0_H0", "single fma"),
        ("HFMA2.BF16_V2 R5, R2, R3.H0_H0, R5", "pair fma"),
        ("HFMA2.MMA R5, R2.H1_H1, 1.5, 1.5, R5.reuse.H0_H0", "single fma"),
        ("HADD2.BF16_V2 R5, R2, -R3", "pair"),
        ("HFMA2.MMA R23, -RZ, RZ, 0, 0", "constant"),
        ("HADD2.F32 R21, -RZ, R25.H0_H0", "conversion"),
        ("F2FP.BF16.F32.PACK_AB R4, RZ, R4", "conversion"),
        ("LDGSTS.E.BYPASS.128 [R3], desc[UR4][R2.64]", "shared copy"),
        ("LDSM.16.M88.4 R8, [R2]", "shared load"),
        ("STL.64 [R1+0x8], R2", "local memory"),
        ("IMAD.WIDE R2, R3, 0x2, R4", "other"),
    ],
)
def test_kinds(text: str, kind: str) -> None:
    name, _, operands = text.partition(" ")
    assert sass.Instruction(0, name, operands).kind == kind


@pytest.mark.parametrize(
    ("text", "operations"),
    [
        ("HMMA.16816.F32.BF16 R4, R8, R12, R4", 16 * 8 * 16 / 32),
        ("HMMA.1688.F32.TF32 R4, R8, R12, R4", 16 * 8 * 8 / 32),
        ("DMMA.8x8x4 R4, R8, R12, R4", 8 * 8 * 4 / 32),
        ("HGMMA.64x128x16.F32 R24, gdesc[UR8], R24", 64 * 128 * 16 / 128),
        ("FFMA R1, R2, R3, R1", 1),
        ("HFMA2.BF16_V2 R5, R2, R3, R5", 2),
        ("LDS R1, [R2]", 0),
    ],
)
def test_operations(text: str, operations: float) -> None:
    name, _, operands = text.partition(" ")
    assert sass.Instruction(0, name, operands).operations == operations


def test_a_loop_without_arithmetic_inside_another_is_not_the_hottest() -> None:
    lines = [
        "FMUL R0, R0, R1",
        "LDG.E R2, [R4]",
        "@P0 BRA 0x10",
        "FFMA R0, R0, R1, R0",
        "@!P1 BRA 0x0",
        "FADD R0, R0, R1",
    ]
    code = sass.instructions(
        ".text.f:\n" + "".join(f"/*{16 * i:04x}*/ {line} ;\n" for i, line in enumerate(lines)), "f"
    )
    # The inner jump goes to the load.
    assert [one.name for one in sass.hottest_loop(code)] == ["FMUL", "LDG.E", "BRA", "FFMA", "BRA"]
    assert sass.hottest_loop(code[-1:]) == ()


def test_widths_of_accesses() -> None:
    names = ("LDG.E.128.CONSTANT", "LDG.E", "LDG.E.U16", "LDG.E.64", "LDG.E.U8", "LDG.E.128", "LDGSTS.E.128")
    code = [sass.Instruction(0, name, "R0, [R2]") for name in names]
    assert sass.widths(code, "LDG") == "2 x 128, 1 x 64, 1 x 32, 1 x 16, 1 x 8"


def test_what_matrix_units_are_given() -> None:
    names = ("LDGSTS.E.BYPASS.128", "LDSM.16.M88.4", "LDSM.16.MT88.4", "LDS.64", "HMMA.16816.F32", "HMMA.16816.F32")
    lines = [*(f"{name} R0, [R2]" for name in names), "@P0 BRA 0x10", "BRA 0x70"]
    listing = ".text.f:\n" + "".join(f"/*{16 * i:04x}*/ {line} ;\n" for i, line in enumerate(lines))
    found = sass.count(sass.instructions(listing, "f"), registers=1, local_bytes=0)
    assert (found.loads, found.shared_loads, found.loop_matrix) == ("1 x 128 later", "1 x 64, 2 x 4 matrices", 2)


def counts(n: int) -> sass.Counts:
    return replace(sass.count((), registers=n, local_bytes=0), instructions=n)


def test_first_figures_stay_beside_the_latest_until_asked_for_anew() -> None:
    first, latest = sass.merged({}, {}, {"axpy": {"a": counts(9)}, "gemm": {"b": counts(5)}}, anew=False)
    assert first == latest
    first, latest = sass.merged(first, latest, {"axpy": {"a": counts(7), "new": counts(3)}}, anew=False)
    assert first == {"axpy": {"a": counts(9), "new": counts(3)}, "gemm": {"b": counts(5)}}
    assert latest == {"axpy": {"a": counts(7), "new": counts(3)}, "gemm": {"b": counts(5)}}
    first["gemm"]["b"] = replace(first["gemm"]["b"], loop_matrix=None)
    text = sass.report(first, latest, "NVRTC 13.0", "sm_90", "By hand.")
    assert "| a | 9 → 7 |" in text
    assert "| b | 5 |" in text
    assert text.endswith(f"{sass.NOTES}\n\nBy hand.\n")
    assert sass.merged(first, latest, {"axpy": {"a": counts(6)}}, anew=True)[0]["axpy"]["a"] == counts(6)


@pytest.mark.full
def test_every_kernel_has_chosen_configurations() -> None:
    assert sorted(sass.CHOSEN) == sorted(bundled_kernels())
    for name, label, values in sass.cases(bundled_kernels()):
        load_kernel(name).configuration(values)
        assert label


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--kernels", "axpi"], "did you mean 'axpy'"), (["--kernels", "axpy", "--arch", "sm_9"], "sm_9")],
)
@pytest.mark.parametrize("_", [pytest.param("", marks=needs("cuda"))])
def test_wrong_input_is_one_line(
    arguments: list[str], message: str, _: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sass.main([*arguments, "--output", str(tmp_path / "sass.md")]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "nvdisasm is there")
@pytest.mark.parametrize("_", [pytest.param("", marks=needs("cuda"))])
def test_a_run_writes_report_and_figures(_: str, tmp_path: Path) -> None:
    output = tmp_path / "folder" / "sass.md"
    assert sass.main(["--kernels", "axpy", "--output", str(output)]) == 0
    figures = json.loads(output.with_suffix(".json").read_text())
    assert figures["first"] == figures["latest"]
    assert figures["latest"]["axpy"]["vectors of 8 fp16"]["loads"].startswith("2 x 128")
    assert "## axpy" in output.read_text()
