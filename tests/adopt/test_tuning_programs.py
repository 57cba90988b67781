"""``mptune tune PROGRAM`` adopts it as ``mptune adopt`` does; a whole way from a program to one with other types."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command_line import caller

from mptune import cli
from mptune.interop import read_run

PROGRAMS = Path(__file__).parent / "programs"


class Flow(NamedTuple):
    """A program that was adopted, tuned and written with other types by the commands: what each of them said."""

    folder: Path
    adopted: Any
    tuned: Any
    emitted: Any


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flow]:
    folder, which = tmp_path_factory.mktemp("flow"), shutil.which
    shutil.copy(PROGRAMS / "rod.cu", folder)

    def called(*words: str) -> Any:
        monkeypatch.setattr("sys.argv", ["mptune", words[0], "--json", *words[1:]])
        with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as leaving:
            cli.main()
        assert leaving.value.code == 0
        return json.loads(out.getvalue())

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        monkeypatch.setattr("shutil.which", lambda name, *given: None if name == "nvcc" else which(name, *given))
        adopted = called("adopt", "rod.cu", "--types", "1", "-o", "adopted/rod", "--", "60", "4")
        how = ("--max-error", "1e-4", "--budget", "4", "--inputs", "1", "--verify", "0", "--backend", "host")
        tuned = called("tune", "./adopted/rod", *how, "--output", "rod.db")
        (parameter,) = adopted["parameters"]
        trials = read_run(folder / "rod.db").trials
        number = next(n for n, each in enumerate(trials, 1) if each.configuration.get(parameter["name"]) == "fp32")
        emitted = called("emit", "rod.db", "--into", "rod.cu", "-o", "new.cu", "--configuration", str(number))
        yield Flow(folder, adopted, tuned, emitted)


def test_a_program_is_adopted_and_its_answer_is_that_of_the_program(flow: Flow) -> None:
    assert [kernel["name"] for kernel in flow.adopted["kernels"]] == ["warm", "diffuse"]
    assert max(flow.adopted["errors"].values()) < 1e-14


def test_what_was_adopted_is_tuned_within_the_threshold(flow: Flow) -> None:
    assert flow.tuned["best"]["error"] <= 1e-4


def test_a_program_with_the_types_found_is_compiled_run_and_compared(flow: Flow) -> None:
    said = flow.emitted
    assert {each["to"] for each in said["types"]} == {"fp32"}
    assert (said["within"], said["not_judged"]) == (True, "")
    assert 1e-10 < said["error"] < 1e-5
    assert said["check"] == {"original": "passed", "patched": "passed"}
    assert said["arguments"] == ["60", "4"]
    assert (flow.folder / "rod.cu").read_text() == (PROGRAMS / "rod.cu").read_text()
    assert "double" not in (flow.folder / "new.cu").read_text().split("diffuse(int n", 1)[1].split("{")[0]


@pytest.mark.full
def test_a_program_is_adopted_with_the_options_of_adopt_and_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(PROGRAMS / "running_mean.cpp", tmp_path / "mean.cpp")
    how = ("-D", "WIDTH=9", "--types", "2", "--kernel", "blur_loop")
    limits = ("--max-error", "1e-3", "--budget", "3", "--inputs", "1", "--verify", "0", "--output", "mean.db", "--json")
    done = caller(monkeypatch, capfd)("tune", "mean.cpp", *how, *limits)
    assert done.code == 0, done.err
    assert "adopted mean.cpp into" in done.err
    assert json.loads(done.out)["best"]["error"] <= 1e-3
    record = json.loads((tmp_path / "adopted" / "mean" / "adopted.json").read_text())
    assert [kernel["name"] for kernel in record["kernels"]] == ["blur_loop"]
    assert len(record["parameters"]) == 2
    assert record["program"]["defines"] == {"WIDTH": "9"}


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("--kernel", ("--kernel", "blur")),
        ("--types", ("--types", "4")),
        ("-D", ("-D", "N=4")),
        ("-I", ("-I", ".")),
        ("--compile-commands", ("--compile-commands", "x.json")),
        ("arguments after --", ("--", "3")),
    ],
)
def test_what_is_no_program_takes_none_of_them(
    option: str, given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    done = caller(monkeypatch, capfd)("tune", "axpy", *given)
    assert (done.code, done.err) == (2, f"error: axpy takes no {option}: it is no program\n")
