"""The command line as a user meets it: documents, exit codes, and messages instead of tracebacks."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from command_line import Call

from mptune.backends.host_compiler import find_compiler
from mptune.interop import read_run
from mptune.run import Run
from mptune.strategies import STRATEGIES

OWN = Path(__file__).parent.parent / "own_kernel.py"


def test_show_and_pareto_read_the_run(mptune: Call, run_file: Path) -> None:
    shown = mptune("show", run_file)
    assert shown.code == 0
    assert "poly" in shown.out
    document = json.loads(mptune("show", run_file, "--json").out)
    assert document["evaluations"] == 8
    front = json.loads(mptune("pareto", run_file, "--json").out)
    rows = [(t["time_ms"], t["error"]) for t in front["front"]]
    assert rows
    assert all(not (a[0] <= b[0] and a[1] <= b[1] and a != b) for a in rows for b in rows)
    assert "time_ms" in mptune("pareto", run_file).out
    assert mptune("pareto", run_file, "--metrics", "time_ms,memory_bytes,error").code == 0


def test_export_writes_every_trial_in_the_format_asked_for_or_that_of_the_name(mptune: Call, run_file: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(mptune("export", run_file, "--format", "csv").out)))
    assert len(rows) == 8
    assert {"block", "unroll", "x_type", "y_type", "status", "time_ms", "error"} <= set(rows[0])
    assert len(json.loads(mptune("export", run_file, "--format", "json").out)["trials"]) == 8
    assert mptune("export", run_file, "-o", "out.json").code == 0
    assert len(json.loads(Path("out.json").read_text())["trials"]) == 8
    assert mptune("export", run_file, "--format", "csv", "-o", "csv.json").code == 0
    assert len(list(csv.DictReader(io.StringIO(Path("csv.json").read_text())))) == 8


def test_export_replaces_no_run_file_and_names_a_place_it_cannot_write(mptune: Call, run_file: Path) -> None:
    before = run_file.read_bytes()
    for name in ("csv", "json", "space", "parquet"):
        done = mptune("export", run_file, "--format", name, "-o", run_file)
        assert done.code == 2
        assert "is a run file, which is not overwritten: choose another name" in done.err
    for place, said in (
        (run_file.parent, str(run_file.parent)),
        (run_file.parent / "no" / "such" / "folder.csv", "folder.csv"),
    ):
        done = mptune("export", run_file, "--output", place)
        assert done.code == 2
        assert said in " ".join(done.err.split())
    assert run_file.read_bytes() == before


@pytest.mark.usefixtures("charts")
@pytest.mark.parametrize("name", ["space", "cache", "t4"])
def test_export_for_replaying(mptune: Call, run_file: Path, name: str) -> None:
    done = mptune("export", run_file, "--format", name, "-o", f"{name}.json.gz")
    assert done.code == 0
    run = read_run(f"{name}.json.gz")
    assert run.space.size == 8
    assert [run.space.index(trial.configuration) for trial in run.indexed] == list(range(8))
    assert json.loads(mptune("show", f"{name}.json.gz", "--json").out)["evaluations"] == 8
    for command in (("pareto",), ("report",), ("export", "--format", "csv"), ("simulate", "--budget", 2)):
        done = mptune(command[0], f"{name}.json.gz", *command[1:])
        assert (done.code, done.err.startswith("error")) == (0, False)


def test_list_documents_every_option_of_every_strategy(mptune: Call) -> None:
    rows = {row["strategy"]: row for row in json.loads(mptune("list", "--strategies", "--json").out)["strategies"]}
    assert set(rows) == set(STRATEGIES)
    for name, row in rows.items():
        assert row["description"]
        assert set(row["options"]) == {field.name for field in fields(STRATEGIES[name].options_class)}
        assert all(option["help"] for option in row["options"].values()), name
    shown = mptune("list", "--strategies").out
    assert all(name in shown for name in STRATEGIES)
    assert "max_candidates" in shown


def test_backends_say_what_is_missing(mptune: Call) -> None:
    rows = {row["backend"]: row for row in json.loads(mptune("backends", "--json").out)["backends"]}
    assert set(rows) >= {"host", "cuda", "hip", "opencl"}
    assert rows["host"]["can_run"]
    for row in rows.values():
        assert row["can_run"] or row["reason"]
    printed = mptune("backends").out
    assert "host" in printed
    host = rows["host"]
    assert host["memory_bytes"] > 0
    assert host["limits"]["max_threads_per_block"] == 1024
    assert "memory" in printed
    assert "1,024" in printed


@pytest.mark.full
def test_backends_compile_a_line_where_that_is_to_be_checked(mptune: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from mptune import errors
    from mptune.backends.host_compiler import HostCompiler

    found = {row["backend"]: row for row in json.loads(mptune("backends", "--check", "--json").out)["backends"]}
    assert found["host"]["compiled"] is True
    assert all(row["compiled"] in ((True,) if row["can_compile"] else (None,)) for row in found.values())

    def fail(*_: object) -> None:
        raise errors.CompileError("g++ rejected line\nfatal: no builtins")

    monkeypatch.setattr(HostCompiler, "compile", fail)
    failed = mptune("backends", "--check", "--json")
    assert failed.code == 1
    (host,) = (row for row in json.loads(failed.out)["backends"] if row["backend"] == "host")
    assert (host["can_compile"], host["can_run"], host["compiled"]) == (False, False, False)
    assert host["reason"] == "g++ rejected line fatal: no builtins"


def test_render_prints_a_compilable_source(mptune: Call, tmp_path: Path) -> None:
    done = mptune("render", "axpy", "-p", "x_type=half")
    assert done.code == 0
    assert " axpy(" in done.out
    command = [*find_compiler().command, "-std=c++17", "-w", "-c", "-x", "c++", "-", "-o", str(tmp_path / "axpy.o")]
    assert subprocess.run(command, input=done.out, text=True, check=False).returncode == 0
    body = mptune("render", "axpy", "--body")
    assert len(body.out) < len(done.out)


@pytest.mark.usefixtures("compiler")
def test_check_compiles_and_lists_what_is_asked_for(mptune: Call) -> None:
    restricted = ("block=32", "unroll=1", "x_type=fp32,fp16", "y_type=fp32")
    words = ("check", OWN, "--backend", "host", *(word for given in restricted for word in ("-p", given)))
    (row,) = json.loads(mptune(*words, "--json").out)["checks"]
    assert len(row["compilations"]) == row["compiled"]
    assert {each["configuration"]["block"] for each in row["compilations"]} == {32}
    assert {each["configuration"]["x_type"] for each in row["compilations"]} == {"fp32", "fp16"}
    assert not any(each["failed"] for each in row["compilations"])
    shown = mptune(*words, "--list").out
    assert "compiled with block=32" in shown
    assert len(shown.split("compiled with")[1].strip().splitlines()) == 2 + row["compiled"]
    assert "compiled with" not in mptune(*words).out


@pytest.mark.parametrize(
    ("text", "wrong", "said"),
    [
        ("y[i] =", "z[i] =", r"template of kernel poly, line 12 .*error: .*'z'"),
    ],
)
def test_check_tells_a_mistake_once(mptune: Call, tmp_path: Path, text: str, wrong: str, said: str) -> None:
    own = tmp_path / "mine.py"
    own.write_text(OWN.read_text().replace(text, wrong))
    done = mptune("check", own, "--backend", "host", "-p", "block=32", "-p", "x_type=fp32", "-p", "y_type=fp32")
    assert done.code == 1
    assert re.search(rf"poly at (\d+) of \1 configurations, such as block=32, (.|\n)*{said}", done.err), done.err
    assert done.err.count("error: poly at ") == 1


WRONG_INPUT = {
    "kernel": (("tune", "convolution3d"), "did you mean 'convolution2d'"),
    "kernel file": (("tune", "./nothing.py"), "no kernel definition file"),
    "parameter": (("render", "axpy", "-p", "xtype=fp16"), "did you mean 'x_type'"),
    "parameter of several kernels": (
        ("tune", "conjugate_gradient", "--backend", "host", "--size", "smoke", "-p", "block_size=32"),
        "'block_size' in 4 kernels: give it as spmv.block_size, dot.block_size, update.block_size or precondition.bl",
    ),
    "parameter given twice": (
        ("render", "conjugate_gradient", "-p", "rows_per_thread=2", "-p", "spmv.rows_per_thread=4"),
        "'spmv.rows_per_thread' of application conjugate_gradient is given twice",
    ),
    "value": (("render", "axpy", "-p", "x_type=fp17"), "unknown value of parameter x_type"),
    "objective": (("tune", "axpy", "--backend", "host", "--objective", "tme_ms"), "did you mean 'time_ms'"),
    "one of several": (("tune", "axpy", "--objectives", "error"), "expected two or three different names"),
    "objectives of a strategy of one": (
        ("tune", "axpy", "--backend", "host", "--objectives", "time,error", "--strategy", "genetic"),
        "strategy genetic supports one objective, got .*bayesian-pareto",
    ),
    "trial limit": (("tune", "axpy", "--trial-limit", -1), "trial limit -1 s"),
    "assignment": (("render", "axpy", "-p", "x_type"), "expected NAME=VALUE"),
    "metric": (("tune", "axpy", "--metric", "NRSME"), "did you mean 'NRMSE'"),
    "strategy option": (
        ("tune", "axpy", "--strategy", "genetic", "--strategy-option", "x=1"),
        "option of strategy genetic",
    ),
    "backend": (("tune", "axpy", "--backend", "hots"), "did you mean 'host'"),
    "preset": (("tune", "axpy", "--size", "smok"), "did you mean 'smoke'"),
    "size": (("tune", "axpy", "--size", "m=3"), "unknown size"),
    "parameter as a size": (("tune", "axpy", "--size", "block_size=64"), "block_size is a parameter \\(-p\\)"),
    "size value": (("tune", "axpy", "--size", "n=three"), "expected a whole number"),
    "sizes to verify at": (("verify", "no.db", "--size", "n=2,m=many"), "--size m=many: expected a whole number"),
    "budget": (("tune", "axpy", "--budget", 0), "budget 0"),
    "threshold": (("tune", "axpy", "--max-error", "-1"), "expected a positive number"),
    "threshold of no other output": (
        ("tune", "axpy", "--backend", "host", "--size", "smoke", "--max-error", "y=1", "--max-error", "1e-3"),
        r"threshold 0.001 applies to no output: each \(y\) has its own",
    ),
    "memory": (("tune", "axpy", "--backend", "host", "--size", "n=1000000000000"), "bytes|GB|GiB"),
    "run file": (("show", "runs/nothing.db"), "nothing.db"),
    "export format": (("export", "x.db", "--format", "xlsx"), "export format"),
    "sample and signatures": (("check", "axpy", "--sample", 3, "--all-signatures"), "exclude each other"),
    "workers": (("tune", "axpy", "--backend", "host", "--workers", 4), "workers 4: expected at most one per device"),
    "command": (("tnue", "axpy"), "No such command"),
    "option": (("tune", "axpy", "--max-eror", 1), "No such option"),
}
STARTS_A_WORKER = ("objective unmeasured",)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.full] * (case in STARTS_A_WORKER)) for case in WRONG_INPUT],
)
def test_wrong_input_exits_with_two_and_says_what_is_wrong(mptune: Call, tmp_path: Path, case: str) -> None:
    arguments, message = WRONG_INPUT[case]
    done = mptune(*arguments)
    assert done.code == 2, done.err
    assert done.out == ""
    assert re.search(message, " ".join(done.err.split())), done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.full
@pytest.mark.parametrize(("closing", "code"), [(">/dev/full", 2), (">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0)])
def test_streams_that_are_full_or_closed(tmp_path: Path, run_file: Path, closing: str, code: int) -> None:
    mptune = f"{shlex.quote(sys.executable)} -m mptune"
    # In one type throughout, noise cannot hide which types are fastest, which would be another exit code.
    types = " ".join(f"-p {name}_type=fp64" for name in "axy")
    new = shlex.quote(str(tmp_path / "new.db"))
    tune = f"{mptune} tune axpy --backend host --size smoke --budget 2 {types} -o {new}"
    show = f"{mptune} pareto {shlex.quote(str(run_file))}"
    for command in (tune, show):
        done = subprocess.run(f"{command} {closing}", shell=True, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        assert code == 0 or done.stderr.endswith(
            "error: output cannot be written: [Errno 28] No space left on device\n"
        )
    assert Run.load(tmp_path / "new.db").evaluations == 2


def test_empty_space_names_the_constraint(mptune: Call, tmp_path: Path) -> None:
    own = tmp_path / "empty.py"
    own.write_text(
        OWN.read_text().replace("    grid=[", '    constraints=["block >= 32", "block * unroll > 4096"],\n    grid=[')
    )
    done = mptune("tune", own, "--backend", "host")
    assert done.code == 2
    assert "block * unroll > 4096" in " ".join(done.err.split())


def test_simulate_under_a_threshold(mptune: Call, recording: Callable[..., Path]) -> None:
    path = recording(errors=True)
    met = mptune("simulate", path, "--budget", 60, "--strategy", "random", "--max-error", "1e-9", "--json")
    assert met.code == 0
    assert json.loads(met.out)["optimum"] == 2.0
    never = mptune("simulate", path, "--budget", 5, "--strategy", "random", "--max-error", "1e-20")
    assert never.code == 1
    assert "no recorded configuration is within the limits" in never.err
