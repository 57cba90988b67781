"""Exit codes of commands on a run without a winner, and standard output that holds nothing beside the document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Call
from described import create

from mptune.results.objective import Objective
from mptune.run import Run

OWN = Path(__file__).parents[1] / "own_kernel.py"


@pytest.mark.parametrize(
    "command",
    [("show",), ("pareto",), ("explain", "--json"), ("verify",), ("emit", "-o", "no"), ("wisdom", "-o", "no.json")],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("limit", [1e-5, 1e-40])
def test_exit_code_one_where_nothing_meets_the_threshold(
    mptune: Call, run_file: Path, tmp_path: Path, command: tuple[str, ...], limit: float
) -> None:
    run = Run.load(run_file)
    goal = Objective(threshold=limit)
    within = run.derive(objective=goal, trials=[goal.judge(trial) for trial in run.trials])
    with create(path := tmp_path / "within.db", within) as file:
        for trial in within.trials:
            file.add(trial)
    name, *more = command
    if limit == 1e-5 and name in ("explain", "verify"):
        return  # they measure
    kernel = ("--kernel", OWN) if name in ("explain", "verify", "emit") else ()
    done = mptune(name, path, *more, *kernel)
    assert done.code == (1 if limit == 1e-40 else 0), done.err


@pytest.mark.parametrize("command", [("check", "--json"), ("render", "--body"), ("tune", "--budget", "2", "--json")])
def test_what_a_definition_prints_is_beside_the_document(
    mptune: Call, made_up: object, tmp_path: Path, command: tuple[str, ...]
) -> None:
    noisy = tmp_path / "noisy.py"
    noisy.write_text(f"{OWN.read_text()}\nimport os\nprint('python', flush=True)\nos.system('echo shell')\n")
    name, *more = command
    done = mptune(name, noisy, *more, *(() if name == "render" else ("--backend", "host")))
    assert done.code == 0, done.err
    assert {"python", "shell"} <= {*done.err.split()}
    assert not {"python", "shell"} & {*done.out.split()}
    if "--json" in more:
        json.loads(done.out)


@pytest.mark.parametrize(
    ("flags", "cxx", "message"),
    [
        (("--compiler-flag", "-lno_such_library"), "", "cannot find -lno_such_library"),
        ((), "/bin/false", "false rejected one_line"),
    ],
)
def test_a_compiler_or_flag_that_compiles_nothing_is_refused_before_the_first_trial(
    mptune: Call, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], cxx: str, message: str
) -> None:
    monkeypatch.setenv("CXX", cxx)
    done = mptune("tune", OWN, "--backend", "host", "--budget", 2, "-o", "no.db", *flags)
    assert done.code == 2
    assert message in done.err
    assert not Path("no.db").exists()
