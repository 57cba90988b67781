"""Small awkward programs: each runs on the processor as it stands, or is refused where it has to be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mptune.adopt import running
from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.reading import read
from tests.tiers import few

PROGRAMS = Path(__file__).parent / "programs"
#: Line, kernel, what and remedy; without a kernel the program as a whole.
REFUSED = {
    "dynamic_parallelism.cu": (7, "outer", "launches a kernel", "launch from the host"),
    "inline_assembly.cu": (8, "multiply", "inline assembly", "C++"),
    "namespaces.cu": (9, "both", "a struct Law beside another one of that name", "another name"),
    "grid_sync.cu": (8, "twice", "waits for all blocks of its grid", "each part"),
    "recursion.cu": (4, "evaluate", "chebyshev recursively", "a loop"),
    "texture.cu": (4, "sample", "textures", "a buffer"),
}
#: Programs that print no check of their own; other tests know what they are to do.
NO_CHECK = (
    *(
        "batches.cu",
        "boundaries.cu",
        "computed_start.cu",
        "gives_up.cu",
        "host_fields.cu",
        "led_astray.cu",
        "left_behind.cu",
        "masked.cu",
    ),
    *("library_words.cu", "misbehaving.cu", "options.cu", "vectors_in_structs.cu"),
    *(
        "odd_names.cu",
        "out_of_step.cu",
        "partly_refused.cu",
        "power_iteration.cu",
        "refused_first.cu",
        "runtime_calls.cu",
        "short_types.cu",
    ),
    "swapped_buffers.cu",
)


def sources(name: str) -> list[Path]:
    path = PROGRAMS / name
    return sorted(path.glob("*.cu")) if path.is_dir() else [path]


#: Those of the fast tier: each has much in it that the others have not.
FAST = (*("constant_tables.cu", "hip_spelling.hip", "shared_reduction.cu", "struct_by_value.cu", "template_kernel.cu"),)
#: Those of the full tier, unlike each other.
FULL = (
    *("array_of_structs.cu", "closed_class.cu", "functors.cu", "kernels_of_the_library.cu", "managed_memory.cu"),
    *(
        "pointers_that_meet.cu",
        "several_files",
        "short_pairs.cu",
        "structs_in_structs.cu",
        "warps.cu",
        "wavefronts.hip",
    ),
)


def programs() -> Iterator[Any]:
    """Yield the programs that check themselves, each in its tier."""
    for path in sorted(PROGRAMS.iterdir()):
        if (path.suffix in (".cu", ".hip") or path.name == "several_files") and path.name not in NO_CHECK:
            tier = pytest.mark.full if path.name in FULL else pytest.mark.nightly
            yield pytest.param(path.name, marks=() if path.name in FAST else tier)


@pytest.mark.parametrize("name", list(programs()))
def test_a_program_runs_as_it_stands_and_passes_its_own_check(name: str, tmp_path: Path) -> None:
    program = read(sources(name))
    assert program.refusals == ()
    ran = running.run(running.build(program.sources, program.files, optimisation="-O1"), writes=tmp_path)
    assert ran.check == "passed", ran.output + ran.errors


@pytest.mark.nightly
def test_templates_convert_and_round_as_the_program_does(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "conversions.cu",)), tmp_path / "conversions")
    assert set(document["errors"].values()) == {0.0}


@pytest.mark.full
def test_what_a_program_without_a_check_prints_and_writes_is_its_arithmetic(tmp_path: Path) -> None:
    program = read(sources("swapped_buffers.cu"))
    built = running.build(program.sources, program.files, optimisation="-O1")
    ran = running.run(built, ["40", "3"], writes=tmp_path)
    rod = [float(i // 20 % 2) for i in range(40)]
    for _ in range(3):
        around = [0.0, *rod, 1.5]
        rod = [t + 0.4 * (left - 2 * t + right) for t, left, right in zip(rod, around, around[2:], strict=False)]
    assert ran.output == f"heat {sum(rod):.9f}\n"
    written = [float(line) for line in ran.files["rod.txt"].read_text().splitlines()]
    assert written == pytest.approx(rod, rel=1e-11)


@pytest.mark.parametrize("name", few(REFUSED, 3))
def test_what_cannot_be_done_is_refused_with_its_line_and_a_remedy(name: str) -> None:
    line, kernel, what, remedy = REFUSED[name]
    program = read([PROGRAMS / "refused" / name])
    (found,) = (refusal for refusal in program.refusals if refusal.kernel == kernel)
    assert str(found).startswith(f"{name}:{line}: kernel {kernel} cannot be adopted: ")
    assert what in found.what
    assert remedy in found.remedy
    assert kernel not in {each.label for each in program.kernels}
    # The other kernels of the file still go on.
    others = {"dynamic_parallelism.cu": {"inner"}, "namespaces.cu": {"cool", "warm"}}
    assert {each.label for each in program.kernels} == others.get(name, set())


def test_each_refused_program_is_known() -> None:
    assert set(REFUSED) == {path.name for path in (PROGRAMS / "refused").iterdir()}
