"""Programs whose kernels call cub, cooperative groups and cuRAND."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mptune.adopt import running
from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.classing import type_classes
from mptune.adopt.parsing import ProgramError
from mptune.adopt.reading import read
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.source.loading import load_tunable
from mptune.source.render import render
from tests.application_runs import sizes_of_launch

PROGRAM = Path(__file__).parent / "programs" / "libraries_in_kernels.cu"
GRID_SYNC = Path(__file__).parent / "programs" / "refused" / "grid_sync.cu"


def test_types_that_libraries_are_used_for_belong_to_what_goes_through_them() -> None:
    program = read([PROGRAM])
    assert [(kernel.label, kernel.libraries) for kernel in program.kernels] == [
        ("norms", ("cub",)),
        ("running<double, 4>", ("cub",)),
        ("rows", ("cooperative_groups",)),
        ("walk", ("curand",)),
    ]
    assert {p.name: p.role for p in program.kernel("walk").parameters}["states"] == "inout"
    assert not program.kernel("rows").is_flat
    classes = [{(m.function, m.name) for m in each.members} for each in type_classes(program).classes]
    of = {member: members for members in classes for member in members}
    assert of["norms", "BlockReduce"] >= {("norms", "sum"), ("norms", "largest")}
    running = {("running<double, 4>", name) for name in ("items", "BlockLoad", "BlockScan", "BlockStore")}
    assert running <= of["running<double, 4>", "items"]
    assert ("running<double, 4>", "totals") not in of["running<double, 4>", "items"]
    assert of["rows", "plus"] >= {("rows", "sum")}


def test_a_kernel_whose_blocks_wait_for_each_other_is_refused_with_its_line() -> None:
    with pytest.raises(ProgramError, match=r"grid_sync\.cu:8: kernel twice cannot be adopted: it waits for all blocks"):
        adopt(AdoptSettings((GRID_SYNC,)))


@pytest.mark.full
def test_they_are_adopted_and_compile_in_every_type(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAM,)), tmp_path / "adopted")
    assert document["program"]["check"] == "passed"
    assert {kernel["name"] for kernel in document["kernels"]} == {"norms", "running_double_4", "rows", "walk"}
    assert max(document["errors"].values()) < 1e-14
    application = load_tunable(tmp_path / "adopted")
    for kernel in application.kernels.values():
        for wanted in ("fp32", "fp16"):
            chosen = {p.name: wanted for p in kernel.parameters if wanted in p.values}
            source = render(kernel, kernel.configuration(chosen), sizes_of_launch(kernel))
            get_backend("host").compiler.compile(source, kernel.function, CompileOptions())
    x = 1.0 + 0.001 * (np.arange(4000) * 37 % 1000)
    program = read([PROGRAM])
    printed = running.run(running.build(program.sources, program.files), writes=tmp_path).output.split()[:4]
    expected = [x[1000:2000].sum(), x[1000:2000].max(), x[:512].sum(), x[300:400].mean()]
    np.testing.assert_allclose([float(each) for each in printed], expected, rtol=1e-14)
