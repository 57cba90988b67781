"""Kernels that cannot be adopted run as they are; the rest of the program is tuned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mptune.adopt.adopting import AdoptSettings, adopt

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.full
def test_a_kernel_that_a_run_refuses_is_left_out(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "kernels_left_out.cu",), backend="host"), tmp_path / "left")
    assert [kernel["name"] for kernel in document["kernels"]] == ["smooth", "finish"]
    notes = {note.split()[0]: note for note in document["notes"] if "not adopted" in note}
    assert set(notes) == {"sum_rows", "weigh", "apply", "raise", "kernel"}
    assert "memory of pointers" in notes["sum_rows"]
    assert "a null pointer at times for weights (kernels_left_out.cu:68)" in notes["weigh"]
    assert "lambda" in notes["apply"]
    assert "calls power recursively" in notes["raise"]
    assert max(document["errors"].values()) < 1e-15
    assert "which is not adopted" in document["kept"]["sums"]
    assert not any("did not do the same" in note for note in document["notes"])
    assert {member for each in document["parameters"] for member in each["members"]} >= {"smooth.from", "main.first"}


def test_the_program_itself_computes_what_numpy_does(tmp_path: Path) -> None:
    from mptune.adopt import running
    from mptune.adopt.reading import read

    program = read([PROGRAMS / "kernels_left_out.cu"])
    built = running.build(program.sources, program.files, optimisation="-O1")
    printed = running.run(built, [], writes=tmp_path).output
    start = 1.0 + np.arange(512) * 37 % 101 / 101.0
    smooth = 0.5 * start + 0.25 * (np.roll(start, -1) + np.roll(start, 1))
    sums = (3 * smooth * start * 0.5 - 0.75) ** 2 * 0.5
    assert float(printed) == pytest.approx((sums**2 + 1.0).sum(), rel=1e-11)
