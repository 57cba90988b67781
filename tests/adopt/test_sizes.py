"""Sizes that are arguments of a program, found by changing one at a time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.numbers import GIVEN, Numbers, Seen, UnexplainedError, decided
from mptune.adopt.parsing import ProgramError
from mptune.adopt.sizes import _explained
from mptune.cli.adopting import print_adopted
from mptune.errors import KernelError
from mptune.kernel import Application
from mptune.kernel.tunable import parsed
from mptune.source.loading import load_tunable
from tests.application_runs import first_answer
from tests.tiers import few

PROGRAMS = Path(__file__).parent / "programs"


def run(name: str, *values: float, natural: str = "", block: int = 1, **sizes: int) -> Numbers:
    """Return the draft of a run that has one number."""
    value = values[0] if len(values) == 1 else None
    return Numbers(sizes=sizes, is_draft=True, seen={name: Seen(value, natural or repr(values), "", block=block)})


@pytest.mark.parametrize(
    ("of", "block", "text"),
    [
        (lambda n, m: n * m, 1, "n * m"),
        (lambda n, m: (n + 2) * (m + 2), 1, "(n + 2) * (m + 2)"),
        (lambda n, m: 19 * n**3, 1, "19 * n * n * n"),
        (lambda n, m: 17 * (n + 1), 1, "17 * (n + 1)"),
        (lambda n, m: 3 * (n + 1) * (m + 1), 1, "3 * (n + 1) * (m + 1)"),
        (lambda n, m: -(-n * m // 256) * 256, 256, "(n * m + 255) // 256 * 256"),
        (lambda n, m: -(-n // 32), 32, "(n + 31) // 32"),
        (lambda n, m: n // 2, 1, "n // 2"),
        (lambda n, m: 512 * m, 1, "512 * m"),
        (lambda n, m: 7 * n + 4 * m, 1, "4 * m + 7 * n"),
        (lambda n, m: 3 * n * m - 5, 1, "3 * n * m - 5"),
    ],
)
def test_a_number_that_changes_is_an_expression_over_arguments(
    of: Callable[[int, int], int], block: int, text: str
) -> None:
    runs = [run("elements of u", of(n, m), block=block, n=n, m=m) for n, m in ((300, 51), (151, 51), (300, 26))]
    (found,) = decided(runs).values()
    assert found == text
    assert int(parsed(found).evaluate({"n": 1234, "m": 77})) == of(1234, 77)


def test_a_sum_is_an_expression_where_a_further_run_shows_that_it_is_right() -> None:
    def elements(n: int) -> Numbers:
        return run("elements of u", 5 * n * n - 4 * n, n=n)

    assert decided([elements(100), elements(51), elements(50)]) == {"elements of u": "5 * n * n - 4 * n"}
    with pytest.raises(UnexplainedError):
        decided([elements(100), elements(51)])


def test_powers_of_two_are_expressions() -> None:
    def powers(k: int) -> Numbers:
        names = ("elements of u", "elements of v", "elements of w")
        seen = {name: run(name, value).seen[name] for name, value in zip(names, (2**k, 3 * 2**k, 4**k), strict=True)}
        seen["fill blocks"] = Seen(-(-(2**k) // 256), "", "", block=256)
        return Numbers(sizes={"k": k}, is_draft=True, seen=seen)

    texts = decided([powers(14), powers(9)])
    assert texts == {
        "elements of u": "2 ** k",
        "elements of v": "3 * 2 ** k",
        "elements of w": "2 ** (2 * k)",
        "fill blocks": "(2 ** k + 255) // 256",
    }
    for name, seen in powers(13).seen.items():
        assert int(parsed(texts[name]).evaluate({"k": 13})) == seen.value


@pytest.mark.parametrize("every", [3, 5, 7, 10, 25])
def test_what_is_done_every_so_many_steps_is_the_plain_quotient(every: int) -> None:
    own = 2 * every
    runs = [run("count 3", steps // every, steps=steps) for steps in (own, own // 2 + 1, own // 2)]
    assert decided(runs) == {"count 3": f"steps // {every}"}


def test_of_multiples_alone_the_plain_quotient_is_taken() -> None:
    runs = [run("count 3", steps // 5, steps=steps) for steps in (10, 5, 20)]
    assert decided(runs) == {"count 3": "steps // 5"}


def test_a_size_whose_last_run_leaves_a_number_alone_does_not_explain_it() -> None:
    def elements(n: int) -> Numbers:
        return run("elements of u", 300 * ((n - 8) // 4), n=n)

    with pytest.raises(UnexplainedError, match=r"21,900 and 10,500, which no") as raised:
        _explained([elements(300)], [elements(151), elements(301)])
    assert raised.value.name == "elements of u"


def test_a_number_depends_on_what_changes_it_alone() -> None:
    # 32 * n * (steps - 2), as long as the steps are 10.
    runs = [run("elements of u", 256 * n, n=n, steps=steps) for n, steps in ((8, 10), (5, 10), (8, 6))]
    assert decided(runs) == {"elements of u": "256 * n"}
    odd = [run("elements of u", u, n=n, steps=steps) for u, n, steps in ((2000, 8, 10), (1301, 5, 10), (2000, 8, 6))]
    with pytest.raises(UnexplainedError, match="the elements of u are 2,000 and 1,301, which no") as raised:
        decided(odd)
    assert raised.value.sizes == {"n"}


def test_what_no_expression_gives_is_looked_up() -> None:
    assert decided([run("step dt", 0.1, n=10), run("step dt", 0.05, n=11)]) == {"step dt": GIVEN}
    assert decided([run("step dt", 0.1, n=10), run("step dt", 0.1, n=11)]) == {}
    assert decided([run("step i", 0, 1, natural="i", n=10), run("step i", 0, 1, 2, natural="i", n=11)]) == {}
    with pytest.raises(ProgramError, match="the elements of u are 7 and 1,000,003, which no expression"):
        decided([run("elements of u", 7, n=10), run("elements of u", 1_000_003, n=11)])


@pytest.mark.nightly
def test_a_size_times_a_constant_is_found_beside_one_that_no_expression_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, record = adopt(AdoptSettings((PROGRAMS / "signals.cu",), ("9", "7", "6")), tmp_path / "signals")
    assert record["size_arguments"] == {"signals": 1, "rounds": 2}
    assert record["sizes"] == {"signals": 9, "rounds": 7, "entries": 64}
    assert record["numbers"]["elements of d_from"] == "96 * signals"
    assert record["computed_sizes"] == ["entries"]
    (why,) = record["no_sizes"]
    assert why.startswith("argument 3 (6) is no size: with ")
    assert "the elements of d_table are 64" in why
    print_adopted(record)
    said = " ".join(capsys.readouterr().out.split())
    assert "signals 9 (argument 1), rounds 7 (argument 2), entries 64 (computed from arguments)" in said
    application = loaded(tmp_path / "signals")
    found = first_answer(application, application.resolve_sizes("default", {"signals": 5, "rounds": 8}))
    assert {values.size: float(values.mean()) for values in found.values()} == {
        64: 1.5,
        5 * 96: pytest.approx(1, abs=0.1),
    }


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "names"),
    few(
        [
            (("--steps=120", "--cells", "120"), {"steps": 1, "cells": 3}),
            (
                ("120", "120"),
                {"argument_1": 1, "argument_2": 2},
            ),  # which one a kernel is passed as cells is not certain
            (("120", "57"), {"cells": 1, "argument_2": 2}),
        ],
        1,
        1,
    ),
)
def test_a_size_has_the_name_of_its_option_and_never_that_of_an_equal_number(
    tmp_path: Path, arguments: tuple[str, ...], names: dict[str, int]
) -> None:
    _, record = adopt(AdoptSettings((PROGRAMS / "options.cu",), arguments), tmp_path / "rod")
    assert record["size_arguments"] == names
    cells, steps = sorted(names, key=lambda name: {"cells": 0, "steps": 2}.get(name, 1))
    rod = 1 + 0.001 * np.arange(45)
    for _ in range(9):
        rod -= 0.01 * rod * rod
    assert answer(tmp_path / "rod", **{cells: 45, steps: 9}) == pytest.approx(rod, rel=1e-12)


@pytest.fixture(scope="module")
def waves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A time loop whose buffers change places, with its size and its steps as arguments."""
    folder = tmp_path_factory.mktemp("sizes") / "waves"
    adopt(AdoptSettings((PROGRAMS / "swapped_buffers.cu",), ("200", "51")), folder)
    return folder


def rod_after(n: int, steps: int) -> list[float]:
    """Return what the program computes."""
    rod = [float(i // 20 % 2) for i in range(n)]
    for _ in range(steps):
        around = [0.0, *rod, 1.5]
        rod = [t + 0.4 * (left - 2 * t + right) for t, left, right in zip(rod, around, around[2:], strict=False)]
    return rod


def loaded(folder: Path) -> Application:
    found = load_tunable(folder)
    assert isinstance(found, Application)
    return found


def answer(folder: Path, **sizes: int) -> np.ndarray:
    application = loaded(folder)
    resolved = application.resolve_sizes("default", sizes)
    (found,) = first_answer(application, resolved).values()
    return np.asarray(found)


@pytest.mark.full
def test_arguments_are_sizes_by_the_programs_names_for_them(waves: Path) -> None:
    record = json.loads((waves / "adopted.json").read_text())
    assert record["sizes"] == {"n": 200, "steps": 51}
    assert record["size_arguments"] == {"n": 1, "steps": 2}
    assert record["computed_sizes"] == []
    assert record["no_sizes"] == []


@pytest.mark.full
@pytest.mark.parametrize(("n", "steps"), [(200, 51), (131, 8), (64, 31)])
def test_at_other_sizes_the_answer_is_the_programs(waves: Path, n: int, steps: int) -> None:
    assert answer(waves, n=n, steps=steps) == pytest.approx(rod_after(n, steps), rel=1e-12)


@pytest.mark.full
def test_the_program_that_runs_is_that_of_the_folder(waves: Path, tmp_path: Path) -> None:
    folder = tmp_path / "waves"
    shutil.copytree(waves, folder)
    source = folder / "program" / "swapped_buffers.cu"
    source.write_text(source.read_text().replace("i / 20", "i / 10"))
    assert answer(folder, n=90, steps=1) != pytest.approx(rod_after(90, 1), rel=1e-2)


@pytest.mark.full
def test_sizes_that_cannot_be_had_are_one_line(tmp_path: Path) -> None:
    adopt(AdoptSettings((PROGRAMS / "openmp.cpp",)), tmp_path / "gravity")
    with pytest.raises(KernelError, match="size n is 240 in the program itself; none of its sizes is an argument"):
        answer(tmp_path / "gravity", n=90)
    (tmp_path / "gravity" / "live.json").unlink()
    with pytest.raises(KernelError, match=r"has no live\.json that says how its program is run"):
        answer(tmp_path / "gravity")
