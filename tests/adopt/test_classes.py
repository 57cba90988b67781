"""Which types of a program must change together."""

from pathlib import Path

import pytest

from mptune.adopt.classes import TypeClasses, type_classes
from mptune.adopt.parsing import Edits
from mptune.adopt.reading import Program, read

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def rod() -> Program:
    return read([PROGRAMS / "rod.cu"])


@pytest.fixture(scope="module")
def classes(rod: Program) -> TypeClasses:
    return type_classes(rod)


def test_swapped_buffers_share_a_class_and_numbers_are_free(classes: TypeClasses) -> None:
    assert {(found.name, found.role) for found in classes.classes} == {
        ("rod", "buffer"),
        ("width", "argument"),
        ("rate", "argument"),
        ("left", "local"),
    }
    names = {(member.function, member.name) for member in classes["rod"].members}
    assert {("warm", "rod"), ("diffuse", "now"), ("diffuse", "next"), ("main", "now"), ("main", "last")} <= names
    assert ("main", "rod") not in names  # copied from the device only
    assert classes["rod"].kernels == ("warm", "diffuse")


def test_literals_know_the_classes_they_meet(classes: TypeClasses) -> None:
    met = {literal.text: set(literal.meets) for literal in classes.literals}
    assert met["2.0"] == {"rod"}


def test_every_slot_replaced_by_its_own_spelling_gives_the_text(rod: Program, classes: TypeClasses) -> None:
    edits = Edits(rod.files)
    for slot in (slot for found in classes.classes for slot in found.slots):
        edits.replace(slot.extent, slot.spelled)
    for literal in classes.literals:
        edits.replace(literal.extent, literal.text)
    for call in classes.calls:
        edits.replace(call.extent, call.text)
    for source in rod.files:
        assert edits.file(source.path) == source.text


def test_declarators_of_one_declaration_share_the_type_written_once_in_a_kernel_only(tmp_path: Path) -> None:
    (tmp_path / "two.cu").write_text(
        """
__global__ void add(double* x, const double* y, int n) {
    int i = threadIdx.x;
    double a = x[i], b = 2.0 * y[i];
    if (i < n) x[i] = a + b;
}
int main() {
    double *p,
        *q;
    cudaMalloc(&p, 64 * sizeof(double));
    cudaMalloc(&q, 64 * sizeof(double));
    add<<<1, 8>>>(p, q, 8);
}
"""
    )
    found = type_classes(read([tmp_path / "two.cu"]))
    members = {one.name: {(member.function, member.name) for member in one.members} for one in found.classes}
    assert members == {
        "x": {("add", "x"), ("main", "p"), ("main", "double")},  # the last is sizeof(double)
        "y": {("add", "y"), ("main", "q"), ("main", "double")},
        "a": {("add", "a"), ("add", "b")},
    }
    assert not any(one.kept for one in found.classes)
