"""What a program consists of, as it is read from its source."""

from pathlib import Path

import pytest

from mptune.adopt.parsing import Edits, ProgramError
from mptune.adopt.reading import Program, read

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def rod() -> Program:
    return read([PROGRAMS / "rod.cu"])


def test_kernels_have_their_parameters_and_roles(rod: Program) -> None:
    assert [kernel.label for kernel in rod.kernels] == ["warm", "diffuse"]
    diffuse = rod.kernel("diffuse")
    assert [(p.name, p.element, p.role) for p in diffuse.parameters] == [
        ("n", "int", "scalar"),
        ("rate", "double", "scalar"),
        ("now", "double", "in"),
        ("next", "double", "out"),
    ]
    assert diffuse.is_flat
    assert not diffuse.has_barrier
    assert rod.text(diffuse.extent).startswith("__global__ void diffuse(")
    assert rod.text(diffuse.body).startswith("{\n  int i")
    assert rod.text(diffuse.body).endswith("}\n}")


def test_launches_say_where_each_part_is_written(rod: Program) -> None:
    warm, diffuse = rod.launches
    assert rod.text(diffuse.extent) == "diffuse<<<grid, block>>>(n, rate, now, next)"
    assert (rod.text(warm.callee), rod.text(warm.grid), rod.text(warm.block)) == ("warm", "grid", "block")
    assert [rod.text(argument) for argument in warm.arguments] == ["n", "width", "now"]
    assert warm.shared is None
    assert warm.function == "main"


def test_runtime_calls_are_listed(rod: Program) -> None:
    assert [call.name for call in rod.calls] == ["cudaMalloc", "cudaMalloc", "cudaMemcpy", "cudaFree", "cudaFree"]
    assert not rod.errors
    assert rod.entry is not None


def test_no_edits_leave_the_text(rod: Program) -> None:
    (source,) = rod.files
    assert Edits(rod.files).file(source.path) == source.text


def test_edits_apply_within_a_piece_and_may_not_overlap(rod: Program) -> None:
    edits = Edits(rod.files)
    launch = rod.launches[1]
    edits.replace(launch.callee, "other")
    edits.insert(launch.extent.file, launch.extent.start, "/**/")
    assert edits.text(launch.extent) == "/**/other<<<grid, block>>>(n, rate, now, next)"
    with pytest.raises(ValueError, match=r"two changes of the same text at rod\.cu:\d+"):
        edits.replace(launch.extent, "")


def test_a_missing_file_is_named_with_the_nearest() -> None:
    with pytest.raises(ProgramError, match=r"cannot read .*rood\.cu: No such file.*did you mean '.*rod\.cu'"):
        read([PROGRAMS / "rood.cu"])
