"""What a run file says of a run: read back as written, and refused where it is wrong."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from described import create

from mptune.errors import MptuneError, RunFileError
from mptune.kernel import Kernel
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.source.render import template_hash
from mptune.store import ParameterInfo, RunFile, RunInfo, RunState


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kernel": 3}, "'kernel' should be a text, and is 3"),
        ({"seed": "none"}, "'seed' should be a whole number of 0 or more, and is 'none'"),
        ({"baseline_share": 1.01}, "'baseline_share' should be a number from 0 to 1, and is 1.01"),
        ({"sizes": {"n": 1.5}}, "'sizes' should be whole numbers of 0 or more by name"),
        ({"versions": "g++"}, "'versions' should be texts by name"),
        ({"signature": "x_type"}, "'signature' should be a list of texts, and is 'x_type'"),
        ({"parameters": [3]}, "'parameters' should be"),
        ({"minimise": 1}, "'minimise' should be true or false, and is 1"),
        (
            {"threshold": "small"},
            "a number up to 1e100 or numbers up to 1e100 by name, and is 'small'",
        ),
        ({"threshold": -1.0}, "its objective is wrong: the error threshold must be positive"),
        ({"wall_s": -1e-9}, "'wall_s' should be a number of 0 or more, and is -1e-09"),
        ({"command": ["x" * 200]}, "'command' should be a text, and is ['xxx"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line_that_names_it(
    fields: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.db"
    create(path, {}).close()
    with RunFile.open(path) as file:
        file._write((), fields)
    with pytest.raises(RunFileError, match=re.escape(message)) as caught:
        Run.load(path)
    assert str(caught.value).startswith(f"run file {path}: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_fields_of_a_later_mptune_and_missing_ones_do_no_harm() -> None:
    assert RunInfo.from_json({"colour": "blue"}) == RunInfo()
    assert RunInfo.from_json({"kernel": None, "threshold": None}) == RunInfo()
    assert RunState.from_json({"wall_s": None}) == RunState()


def test_another_kernel_or_backend_cannot_go_on_with_a_run() -> None:
    ours = RunInfo(kernel="axpy", backend="host", seed=0)
    ours.require_same_run(dataclasses.replace(ours, seed=1), "run.db")
    for changes in ({"kernel": "gemm"}, {"backend": "cuda"}):
        with pytest.raises(MptuneError, match=r"^run.db holds a run of .*give another --output$"):
            ours.require_same_run(dataclasses.replace(ours, **changes), "run.db")


def test_the_hash_of_a_template_covers_what_it_includes(tmp_path: Path) -> None:
    axpy = load_kernel("axpy")
    (tmp_path / "inner.j2").write_text("// inner")
    (tmp_path / "outer.cu.j2").write_text("// outer\n{% include 'inner.j2' %}{% include 'absent.j2' %}")

    def kernel(template: str) -> Kernel:
        return dataclasses.replace(axpy, template=template, path=tmp_path / "axpy.py")

    first = template_hash(kernel("outer.cu.j2"))
    assert first == template_hash(kernel("outer.cu.j2"))
    (tmp_path / "inner.j2").write_text("// inside")
    second = template_hash(kernel("outer.cu.j2"))
    assert len({first, second, template_hash(kernel("// outer\n")), template_hash(axpy)}) == 4


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ()),
        ({"sizes": {"width": 1000}}, ("size width was 101, is 1000",)),
        (
            {"versions": {"compiler": "g++ 13"}, "compiler": "g++ 13|-O3"},
            ("version of compiler was g++ 12, is g++ 13",),
        ),
        ({"compiler": "g++ 12|-O2"}, ("compiler, flags or device: -O3 became -O2",)),
        ({"data_key": "other"}, ("inputs or references changed",)),
        ({"parameters": (ParameterInfo("a", "ordinal", (1,)),)}, ("parameters and their values changed: a, b",)),
    ],
)
def test_what_changed_since_the_run_began(changes: dict[str, object], said: tuple[str, ...]) -> None:
    before = RunInfo(
        sizes={"width": 101},
        device="one",
        versions={"compiler": "g++ 12"},
        compiler="g++ 12|-O3",
        seed=1,
        parameters=(ParameterInfo("b", "ordinal", (1,)),),
        data_key="data",
    )
    assert dataclasses.replace(before, **changes).changes_since(before) == said  # type: ignore[arg-type]
    assert dataclasses.replace(before, **changes).changes_since(RunInfo(seed=None)) == ()  # type: ignore[arg-type]
