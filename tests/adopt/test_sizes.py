"""Sizes that are arguments of a program: at another one everything is as in a run with that argument."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.cli.adopting import print_adopted
from mptune.errors import KernelError, UnknownNameError
from mptune.kernel import Application
from mptune.source.loading import load_tunable
from tests.application_runs import first_answer
from tests.tiers import few

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.full
def test_a_size_that_the_host_computes_others_from_is_looked_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, record = adopt(AdoptSettings((PROGRAMS / "signals.cu",), ("9", "7", "6")), tmp_path / "signals")
    assert record["size_arguments"] == {"signals": 1, "rounds": 2, "depth": 3}
    print_adopted(record)
    assert "sizes: signals 9 (argument 1), rounds 7 (argument 2)" in " ".join(capsys.readouterr().out.split())
    application = loaded(tmp_path / "signals")
    sizes = application.resolve_sizes("default", {"signals": 5, "rounds": 8, "depth": 4})
    found = first_answer(application, sizes)
    assert {values.size: float(values.mean()) for values in found.values()} == {
        65: 1.5,
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
    with pytest.raises(UnknownNameError, match="unknown size of application gravity: 'n'"):
        answer(tmp_path / "gravity", n=90)
    (tmp_path / "gravity" / "live.json").unlink()
    with pytest.raises(KernelError, match=r"has no live\.json that says how its program is run"):
        answer(tmp_path / "gravity")
