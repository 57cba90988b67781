"""The command line as a user meets it: documents, exit codes, and messages instead of tracebacks."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import re
import shlex
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import click
import pandas as pd
import pytest
from command_line import Call, Outcome, caller

from mptune.cli import display
from mptune.interop import read_space
from mptune.registry import bundled_applications, bundled_kernels
from mptune.run import Run
from mptune.strategies import STRATEGIES

OWN = Path(__file__).parent.parent / "own_kernel.py"


@pytest.fixture
def mptune(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Outcome]:
    monkeypatch.chdir(tmp_path)

    return caller(monkeypatch, capfd)


@pytest.mark.full
def test_tune_json_is_the_documented_document(mptune: Call) -> None:
    done = mptune("tune", OWN, "--backend", "host", "--max-error", "1e-5", "--budget", 6, "--seed", 3, "--json")
    assert done.code == 0
    document = json.loads(done.out)
    wanted = {
        "kernel",
        "backend",
        "device",
        "threshold",
        "metric",
        "evaluations",
        "baseline",
        "best",
        "statuses",
        "wall_s",
    }
    assert wanted <= set(document)
    assert document["kernel"] == "poly"
    assert document["backend"] == "host"
    assert document["threshold"] == 1e-5
    assert document["metric"] == "NRMSE"
    assert document["evaluations"] == 6 == sum(document["statuses"].values())
    assert {"configuration", "time_ms"} <= set(document["baseline"])
    assert {"configuration", "time_ms", "speedup", "error"} <= set(document["best"])
    assert document["best"]["error"] <= 1e-5
    assert document["wall_s"] > 0
    assert Path("runs/poly.db").exists()


def test_a_second_run_leaves_the_first_alone_and_resume_takes_the_latest(mptune: Call) -> None:
    options = ("tune", OWN, "--backend", "host", "--strategy", "random", "--json")
    assert mptune(*options, "--budget", 2).code == 0
    assert mptune(*options, "--budget", 3).code == 0
    assert sorted(p.name for p in Path("runs").iterdir()) == ["poly-2.db", "poly.db"]
    again = mptune(*options, "--budget", 4, "--resume")
    assert json.loads(again.out)["evaluations"] == 4
    assert "poly-2.db" in again.err
    assert "does not exist" not in again.err
    missing = mptune(*options, "--budget", 1, "--resume", "-o", "nosuch.db")
    assert missing.code == 0
    assert "nosuch.db does not exist: starting a new run\n" in missing.err


@pytest.mark.full
def test_threshold_nothing_meets_exits_with_one_and_shows_the_closest(mptune: Call) -> None:
    done = mptune("tune", OWN, "--backend", "host", "--max-error", "1e-40", "--budget", 3, "--json")
    assert done.code == 1
    document = json.loads(done.out)
    assert document["best"] is None
    assert document["closest"]["error"] > 1e-40
    assert "closest" in done.err
    # Said before the search, and at its end.
    assert "warning: the widest types themselves do not meet the threshold: their " in done.err
    assert "the widest types themselves do not meet it, at best with error " in done.err


@pytest.mark.full
def test_quiet_when_not_a_terminal(mptune: Call) -> None:
    done = mptune("tune", OWN, "--backend", "host", "--budget", 2, "--strategy", "random")
    assert done.code == 0
    assert "\x1b" not in done.err + done.out
    assert "evaluations" not in done.err
    for word in ("baseline", "best", "speedup", "block", "statuses"):
        assert word in done.out


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


def test_export_writes_every_trial(mptune: Call, run_file: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(mptune("export", run_file, "--format", "csv").out)))
    assert len(rows) == 8
    assert {"block", "unroll", "x_type", "y_type", "status", "time_ms", "error"} <= set(rows[0])
    document = json.loads(mptune("export", run_file, "--format", "json").out)
    assert len(document["trials"]) == 8
    assert mptune("export", run_file, "-o", "out.csv").code == 0
    assert len(list(csv.DictReader(io.StringIO(Path("out.csv").read_text())))) == 8


@pytest.mark.parametrize("name", ["space", "cache", "t4"])
def test_export_for_replaying(mptune: Call, run_file: Path, name: str) -> None:
    done = mptune("export", run_file, "--format", name, "-o", f"{name}.json.gz")
    assert done.code == 0
    left_out = sum(not trial.is_checked for trial in Run.load(run_file).trials)
    assert (f"{left_out} of 8 trials have no error of their own" in done.err) is (left_out > 0)
    assert read_space(f"{name}.json.gz").space.size == 8 - left_out


def test_export_takes_the_format_from_the_name_of_the_file(mptune: Call, run_file: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    assert mptune("export", run_file, "-o", "out.json").code == 0
    assert len(json.loads(Path("out.json").read_text())["trials"]) == 8
    assert mptune("export", run_file, "-o", "out.parquet").code == 0
    assert len(pd.read_parquet("out.parquet")) == 8
    assert mptune("export", run_file, "--format", "csv", "-o", "csv.json").code == 0
    assert len(list(csv.DictReader(io.StringIO(Path("csv.json").read_text())))) == 8


def test_export_of_what_is_not_text_needs_a_file(mptune: Call, run_file: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    done = mptune("export", run_file, "--format", "parquet")
    assert (done.code, done.out) == (2, "")
    assert "name a file for it with --output" in done.err


@pytest.mark.full
def test_compiler_s_reason_is_shown(mptune: Call, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(OWN.read_text().replace("{{ x_type }} p = 0.5;", "p = 0.5;"))
    done = mptune("tune", wrong, "--backend", "host", "--budget", 2, "--strategy", "random")
    assert done.code == 1
    (line,) = [line for line in done.out.splitlines() if "× compile_error" in line]
    assert "error: " in line
    assert "'p' was not declared" in line or "undeclared identifier 'p'" in line


@pytest.mark.parametrize("name", ["csv", "json", "space", "parquet"])
def test_export_does_not_replace_a_run_file(mptune: Call, run_file: Path, name: str) -> None:
    before = run_file.read_bytes()
    done = mptune("export", run_file, "--format", name, "-o", run_file)
    assert done.code == 2
    assert "is a run file: give what is written another name" in done.err
    assert run_file.read_bytes() == before


def test_export_to_a_place_that_cannot_be_written(mptune: Call, run_file: Path) -> None:
    for place in (run_file.parent, run_file.parent / "no" / "such" / "folder.csv"):
        done = mptune("export", run_file, "--output", place)
        assert done.code == 2
        assert str(place) in "".join(done.err.split())


def test_list_names_the_bundled_kernels_and_applications(mptune: Call) -> None:
    found = json.loads(mptune("list", "--json").out)
    assert tuple(row["kernel"] for row in found["kernels"]) == bundled_kernels()
    assert tuple(row["application"] for row in found["applications"]) == bundled_applications()
    shown = mptune("list").out
    assert all(name in shown for name in (*bundled_kernels(), *bundled_applications()))


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


def test_backends_compile_a_line_where_that_is_to_be_checked(mptune: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from mptune import errors
    from mptune.backends.host_compiler import HostCompiler

    def rows(code: int) -> dict[str, dict[str, object]]:
        called = mptune("backends", "--check", "--json")
        assert called.code == code
        return {row["backend"]: row for row in json.loads(called.out)["backends"]}

    found = rows(0)
    assert found["host"]["compiled"] is True
    assert all(row["compiled"] in ((True,) if row["can_compile"] else (None,)) for row in found.values())
    assert "yes, checked" in mptune("backends", "--check").out

    def fail(*_: object) -> None:
        raise errors.CompileError("g++ rejected line\nfatal: no builtins")

    monkeypatch.setattr(HostCompiler, "compile", fail)
    host = rows(1)["host"]
    assert (host["can_compile"], host["can_run"], host["compiled"]) == (False, False, False)
    assert host["reason"] == "g++ rejected line fatal: no builtins"


def test_render_completes_what_is_given_to_a_valid_configuration(mptune: Call) -> None:
    first = mptune("render", "convolution2d", "--body")
    assert first.code == 0
    assert first.err == ""
    assert "__launch_bounds__(64)" in first.out  # the first valid block; the first of all has 16 threads
    odd = mptune("render", "convolution2d", "-p", "block_size_x=16", "-p", "block_size_y=1", "--body")
    assert odd.code == 0
    assert "64 <= block_size_x * block_size_y <= 256" in " ".join(odd.err.split())
    assert "convolution2d(" in odd.out


def test_render_prints_a_compilable_source(mptune: Call) -> None:
    done = mptune("render", "axpy", "-p", "x_type=half")
    assert done.code == 0
    assert " axpy(" in done.out
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is not None:
        command = [compiler, "-std=c++17", "-fsyntax-only", "-w", "-x", "c++", "-"]
        assert subprocess.run(command, input=done.out, text=True, check=False).returncode == 0
    body = mptune("render", "axpy", "--body")
    assert len(body.out) < len(done.out)


@pytest.mark.full
def test_check_compiles_without_running(mptune: Call) -> None:
    done = mptune("check", OWN, "--backend", "host", "--json")
    assert done.code == 0
    (row,) = json.loads(done.out)["checks"]
    assert row["configurations"] == 108
    assert 4 <= row["compiled"] <= 10
    assert row["failures"] == []
    assert (
        json.loads(mptune("check", OWN, "--backend", "host", "--sample", 2, "--json").out)["checks"][0]["compiled"] == 2
    )
    signatures = mptune("check", OWN, "--backend", "host", "--all-signatures", "--json")
    assert json.loads(signatures.out)["checks"][0]["compiled"] == 9


def test_check_compiles_and_lists_what_is_asked_for(mptune: Call) -> None:
    words = ("check", OWN, "--backend", "host", "-p", "block=32", "-p", "x_type=fp32,fp16")
    (row,) = json.loads(mptune(*words, "--json").out)["checks"]
    assert len(row["compilations"]) == row["compiled"]
    assert {each["configuration"]["block"] for each in row["compilations"]} == {32}
    assert {each["configuration"]["x_type"] for each in row["compilations"]} == {"fp32", "fp16"}
    assert not any(each["failed"] for each in row["compilations"])
    shown = mptune(*words, "--list").out
    assert "compiled with block=32" in shown
    assert len(shown.split("compiled with")[1].splitlines()) == 2 + row["compiled"]
    assert "compiled with" not in mptune(*words).out


@pytest.mark.full
def test_check_compiles_what_is_asked_for_of_an_application(mptune: Call) -> None:
    words = ("check", "conjugate_gradient", "--backend", "host", "-p", "dot.sum_type=fp32", "--sample", 2)
    rows = {row["kernel"]: row for row in json.loads(mptune(*words, "--json").out)["checks"]}
    dot = rows.pop("conjugate_gradient.dot")
    assert {each["configuration"]["sum_type"] for each in dot["compilations"]} == {"fp32"}
    assert all(row["compiled"] == 2 for row in rows.values())


def test_check_reports_what_does_not_compile(mptune: Call, tmp_path: Path) -> None:
    own = tmp_path / "bad.py"
    own.write_text(OWN.read_text().replace("y[i] =", "z[i] ="))
    done = mptune("check", own, "--backend", "host", "--sample", 1)
    assert done.code == 1
    assert "z" in done.err


def test_check_tells_a_mistake_once(mptune: Call, tmp_path: Path) -> None:
    own = tmp_path / "undefined.py"
    own.write_text(OWN.read_text().replace("range(unroll)", "range(unrol)"))
    done = mptune("check", own, "--backend", "host")
    assert done.code == 1
    assert done.err.count("'unrol' is not defined") == 1
    assert re.search(r"poly at (\d+) of \1 configurations, such as .*: template of kernel poly, line \d+: ", done.err)


WRONG_INPUT = {
    "kernel": (("tune", "convolution3d"), "did you mean 'convolution2d'"),
    "kernel file": (("tune", "./nothing.py"), "no kernel definition file"),
    "parameter": (("render", "axpy", "-p", "xtype=fp16"), "did you mean 'x_type'"),
    "parameter of a kernel": (("render", "conjugate_gradient", "-p", "rows_per_thrd=2"), "mean 'rows_per_thread'"),
    "parameter of several kernels": (
        ("tune", "conjugate_gradient", "--backend", "host", "--size", "smoke", "-p", "block_size=32"),
        "'block_size' in 4 kernels: give it as spmv.block_size, dot.block_size, update.block_size or precondition.bl",
    ),
    "parameter given twice": (
        ("render", "conjugate_gradient", "-p", "rows_per_thread=2", "-p", "spmv.rows_per_thread=4"),
        "'spmv.rows_per_thread' of application conjugate_gradient is given twice",
    ),
    "value": (("render", "axpy", "-p", "x_type=fp17"), "unknown value of parameter x_type"),
    "value alias": (("render", "axpy", "-p", "x_type=float23"), "did you mean 'float32'"),
    "kernel prefix": (("tune", "conv"), "did you mean 'convolution2d'"),
    "objective": (("tune", "axpy", "--backend", "host", "--objective", "tme_ms"), "did you mean 'time_ms'"),
    "objectives": (("tune", "axpy", "--backend", "host", "--objectives", "tme,error"), "did you mean 'time'"),
    "one of several": (("tune", "axpy", "--objectives", "error"), "objectives error: a single one"),
    "objective twice": (("tune", "axpy", "--objectives", "time,error,time"), "'time' is given twice"),
    "both kinds of objective": (("tune", "axpy", "--objectives", "time,error", "--objective", "energy"), "exclude"),
    "objectives of a strategy of one": (
        ("tune", "axpy", "--backend", "host", "--objectives", "time,error", "--strategy", "genetic"),
        "strategy genetic supports one objective, got .*bayesian-pareto",
    ),
    "objective unmeasured": (("tune", "axpy", "--backend", "host", "--objective", "energy"), "objective 'energy'"),
    "trial limit": (("tune", "axpy", "--trial-limit", -1), "trial limit -1 s"),
    "trial limit infinite": (("tune", "axpy", "--trial-limit", "inf"), "trial limit inf s: .* at most 1,000,000"),
    "assignment": (("render", "axpy", "-p", "x_type"), "expected NAME=VALUE"),
    "metric": (("tune", "axpy", "--metric", "NRSME"), "did you mean 'NRMSE'"),
    "strategy": (("tune", "axpy", "--strategy", "bayesain"), "did you mean 'bayesian'"),
    "strategy option": (
        ("tune", "axpy", "--strategy", "genetic", "--strategy-option", "x=1"),
        "option of strategy genetic",
    ),
    "backend": (("tune", "axpy", "--backend", "hots"), "did you mean 'host'"),
    "penalty": (("tune", "axpy", "--penalty", "hrad"), "did you mean 'hard'"),
    "preset": (("tune", "axpy", "--size", "smok"), "did you mean 'smoke'"),
    "two presets": (("tune", "axpy", "--size", "smoke", "--size", "defualt"), "did you mean 'default'"),
    "compilers": (("tune", "axpy", "--compilers", "g++"), "'g\\+\\+': expected a number; --compiler chooses"),
    "size": (("tune", "axpy", "--size", "m=3"), "unknown size"),
    "parameter as a size": (("tune", "axpy", "--size", "block_size=64"), "block_size is a parameter \\(-p\\)"),
    "size as a parameter": (("tune", "axpy", "-p", "n=64"), "n is a size \\(--size\\)"),
    "size value": (("tune", "axpy", "--size", "n=three"), "expected a whole number"),
    "budget": (("tune", "axpy", "--budget", 0), "budget 0"),
    "threshold": (("tune", "axpy", "--max-error", "-1"), "expected a positive number"),
    "threshold text": (("tune", "axpy", "--max-error", "nan"), "expected a positive number"),
    "threshold zero": (("tune", "axpy", "--max-error", "0"), "1e-300 accepts exact answers only"),
    "threshold of no other output": (
        ("tune", "axpy", "--backend", "host", "--size", "smoke", "--max-error", "y=1", "--max-error", "1e-3"),
        r"threshold 0.001: it is for the outputs without one of their own, and every output \(y\) has one",
    ),
    "threshold output": (("tune", "axpy", "--backend", "host", "--size", "smoke", "--max-error", "q=1e-3"), "q"),
    "memory": (("tune", "axpy", "--backend", "host", "--size", "n=1000000000000"), "bytes|GB|GiB"),
    "run file": (("show", "runs/nothing.db"), "nothing.db"),
    "export format": (("export", "x.db", "--format", "xlsx"), "export format"),
    "simulate file": (("simulate", "nothing.json"), "nothing.json"),
    "seed": (("tune", "axpy", "--seed", -1), "seed -1"),
    "inputs": (("tune", "axpy", "--inputs", 10**18), "at most 10,000"),
    "sample digit": (("check", "axpy", "--sample", "²"), "whole number or 'all'"),
    "sample": (("check", "axpy", "--sample", "few"), "whole number or 'all'"),
    "sample and signatures": (("check", "axpy", "--sample", 3, "--all-signatures"), "exclude each other"),
    "arch": (("check", "axpy", "--backend", "nope"), "unknown backend"),
    "check values": (("check", "axpy", "-p", "x_type=fp7"), "fp7"),
    "check parameter": (("check", "axpy", "-p", "xtype=fp32"), "did you mean 'x_type'"),
    "check all": (("check", "all", "-p", "x_type=fp32"), "-p x_type: kernels have parameters of their own"),
    "workers": (("tune", "axpy", "--backend", "host", "--workers", 4), "workers 4: expected at most one per device"),
    "no worker": (("tune", "axpy", "--workers", 0), "workers 0: expected at least 1"),
    "workers elsewhere": (("tune", "axpy", "--workers", 2, "--scheduler", "tcp://node1:8786"), "with a scheduler"),
    "command": (("tnue", "axpy"), "No such command"),
    "option": (("tune", "axpy", "--max-eror", 1), "No such option"),
}


@pytest.mark.parametrize("case", WRONG_INPUT)
def test_wrong_input_exits_with_two_and_says_what_is_wrong(mptune: Call, case: str) -> None:
    arguments, message = WRONG_INPUT[case]
    done = mptune(*arguments)
    assert done.code == 2, done.err
    assert done.out == ""
    assert __import__("re").search(message, " ".join(done.err.split())), done.err


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


def test_output_that_exists_is_kept(mptune: Call, run_file: Path) -> None:
    before = run_file.read_bytes()
    done = mptune("tune", OWN, "--backend", "host", "--output", run_file)
    assert done.code == 2
    assert "--resume" in done.err
    assert run_file.read_bytes() == before


def test_files_that_are_no_run_files_are_refused(mptune: Call, run_file: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "text.db"
    foreign.write_text("this is no database, but it is long enough to be taken for one" * 20)
    half = tmp_path / "half.db"
    half.write_bytes(run_file.read_bytes()[: run_file.stat().st_size // 2])
    for path in (foreign, half):
        for command in ("show", "pareto", "export"):
            done = mptune(command, path)
            assert done.code == 2, done.out
            assert path.name in " ".join(done.err.split())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder_is_named(mptune: Call, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    done = mptune("tune", OWN, "--backend", "host", "--output", folder / "run.db")
    assert done.code == 2
    assert "locked" in done.err


def test_output_below_a_file_is_refused(mptune: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = mptune("tune", OWN, "--backend", "host", "--output", tmp_path / "file" / "run.db")
    assert done.code == 2
    assert "file" in done.err


def test_empty_space_names_the_constraint(mptune: Call, tmp_path: Path) -> None:
    own = tmp_path / "empty.py"
    own.write_text(
        OWN.read_text().replace("    grid=[", '    constraints=["block >= 32", "block * unroll > 4096"],\n    grid=[')
    )
    done = mptune("tune", own, "--backend", "host")
    assert done.code == 2
    assert "block * unroll > 4096" in " ".join(done.err.split())


def test_a_compiler_message_is_shown_with_the_status(mptune: Call, tmp_path: Path) -> None:
    own = tmp_path / "bad.py"
    own.write_text(OWN.read_text().replace("y[i] =", "zzz[i] ="))
    done = mptune("tune", own, "--backend", "host", "--budget", 1)
    assert done.code == 1
    assert "compile_error" in done.out
    assert "zzz" in done.out


def test_unknown_objective_leaves_no_run_file(mptune: Call) -> None:
    assert mptune("tune", OWN, "--backend", "host", "--objective", "tme_ms", "--output", "x.db").code == 2
    assert not Path("x.db").exists()


@pytest.mark.full
def test_an_objective_other_than_time_is_named_with_its_values(mptune: Call) -> None:
    options = ("tune", OWN, "--backend", "host", "--budget", 3, "--strategy", "random")
    done = mptune(*options, "--objective", "memory_bytes / time_ms", "--maximise")
    assert done.code == 0
    assert "objective memory_bytes / time_ms, maximised" in done.out
    assert done.out.count("memory_bytes / time_ms") == 2
    assert "objective" not in mptune(*options).out


def test_front_says_what_is_feasible_and_fits_a_terminal(mptune: Call, run_file: Path) -> None:
    wide = mptune("pareto", run_file).out.splitlines()
    assert {"speedup", "feasible", "unroll", "x_type"} <= set(wide[0].split())
    assert all({"yes", "no"} & set(row.split()) for row in wide[1 : wide.index("")])
    assert "x_type=" not in "".join(wide)
    narrow = pareto_at_width(run_file, 80)
    assert narrow[0].split()[-1] == "configuration"
    assert all(len(line.rstrip()) <= 80 for line in narrow)
    assert "x_type=fp" in "".join(narrow)


def test_a_front_says_on_how_many_draws_errors_were_measured(mptune: Call, run_file: Path) -> None:
    run = Run.load(run_file)
    verified, *others = run.pareto()
    assert others
    few = [trial for trial in others if trial.metric("error_draws") != verified.metric("error_draws")]
    printed = mptune("pareto", run_file).out
    assert ("draws" in printed.partition("\n")[0].split()) == bool(few)
    assert ("\nerrors are the worst of " in printed) == bool(few)
    document = json.loads(mptune("pareto", run_file, "--json").out)
    assert [entry["error_draws"] for entry in document["front"]] == [
        None if math.isnan(t.metric("error_draws")) else t.metric("error_draws") for t in (verified, *others)
    ]
    # Without an error in it, it does not matter.
    assert "draws" not in mptune("pareto", run_file, "--metrics", "time_ms,memory_bytes").out.split()


def pareto_at_width(path: Path, width: int) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(display, "width", lambda: width)
        run, metrics = Run.load(path), ("time_ms", "error")
        return click.unstyle(display.pareto_table(run, metrics, run.pareto(metrics))).splitlines()


def test_run_file_without_its_settings_is_refused(mptune: Call, run_file: Path) -> None:
    with contextlib.closing(sqlite3.connect(run_file)) as connection, connection:
        connection.execute("DELETE FROM settings WHERE name IN ('device', 'sizes')")
    done = mptune("show", run_file)
    assert done.code == 2
    assert "its settings are not as they were written" in done.err


def test_undefined_name_in_a_template_is_placed(mptune: Call, tmp_path: Path) -> None:
    own = tmp_path / "undefined.py"
    own.write_text(OWN.read_text().replace("range(unroll)", "range(unrol)"))
    done = mptune("tune", own, "--backend", "host")
    assert done.code == 2
    text = " ".join(done.err.split())
    assert "'unrol'" in text
    assert "unroll" in text
    assert "line 3" in text or ":3" in text


def test_reference_of_the_wrong_shape_is_named(mptune: Call, tmp_path: Path) -> None:
    own = tmp_path / "shape.py"
    own.write_text(OWN.read_text().replace('inputs["x"]),', 'inputs["x"])[:, None],'))
    done = mptune("tune", own, "--backend", "host")
    assert done.code == 2
    text = " ".join(done.err.split())
    assert "(5003, 1)" in text
    assert "(5003,)" in text


def test_definition_that_fails_says_where(mptune: Call, tmp_path: Path) -> None:
    own = tmp_path / "broken.py"
    own.write_text("x = 1\nraise RuntimeError('no data here')\n")
    done = mptune("tune", own)
    assert done.code == 2
    assert "broken.py:2" in done.err
    assert "no data here" in done.err
    own.write_text("x = 1\n")
    assert "defines no kernel" in mptune("tune", own).err


def recording(path: Path, *, errors: bool = False) -> Path:
    """Write a recorded space of 40 configurations whose optimum is 1 ms at a=8, b=4."""
    cache = {}
    for a in range(1, 11):
        for b in range(1, 5):
            entry = {"a": a, "b": b, "time": 1.0 + abs(a - 8) + (4 - b)} | ({"error": 10.0**-a} if errors else {})
            cache[f"{a},{b}"] = entry
    params = {"a": list(range(1, 11)), "b": [1, 2, 3, 4]}
    head = {
        "device_name": "d",
        "kernel_name": "k",
        "problem_size": 1,
        "tune_params_keys": ["a", "b"],
        "tune_params": params,
    }
    path.write_text(json.dumps({**head, "objective": "time", "cache": cache}))
    return path


def test_simulate_json_is_the_documented_document(mptune: Call, tmp_path: Path) -> None:
    path = recording(tmp_path / "space.json")
    done = mptune("simulate", path, "--strategy", "random", "--budget", 40, "--repeats", 2, "--seed", 5, "--json")
    assert done.code == 0
    document = json.loads(done.out)
    wanted = {"space", "strategy", "budget", "optimum", "unit", "configurations", "runs", "overhead_ms_per_evaluation"}
    wanted |= {"worst", "distances"}
    assert set(document) == wanted
    assert (document["optimum"], document["unit"], document["configurations"]) == (1.0, "ms", 40)
    assert [run["seed"] for run in document["runs"]] == [5, 6]
    for run in document["runs"]:
        assert len(run["best"]) == 40
        assert run["best"] == sorted(run["best"], reverse=True)
        assert run["best"][-1] == 1.0


def test_simulate_shows_how_far_each_run_came(mptune: Call, tmp_path: Path) -> None:
    done = mptune("simulate", recording(tmp_path / "space.json"), "--budget", 40, "--strategy", "exhaustive")
    assert done.code == 0
    assert "optimum 1 ms" in done.out
    assert "0 %" in done.out


def test_simulate_without_a_threshold_does_not_blame_one(mptune: Call, tmp_path: Path) -> None:
    path = recording(tmp_path / "space.json")
    done = mptune("simulate", path, "--budget", 5, "--strategy", "random", "--objective", "1/(time_ms-time_ms)")
    assert done.code == 1
    assert "no recorded configuration has a finite value of the objective" in done.err


@pytest.mark.parametrize("command", ["simulate", "compare"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--alpha", 2), "--alpha is for --penalty linear: with decay it changes nothing"),
        (("--penalty", "linear", "--beta", 2), "--beta is for --penalty decay: with linear it changes nothing"),
    ],
)
def test_a_number_of_another_penalty_is_told(
    command: str, options: tuple[str | int, ...], message: str, mptune: Call, tmp_path: Path
) -> None:
    path = recording(tmp_path / "space.json", errors=True)
    strategy = ("--strategy" if command == "simulate" else "--strategies", "random", "--repeats", 2)
    done = mptune(command, path, "--max-error", "1e-3", "--budget", 5, *strategy, *options)
    assert done.code == 0
    assert message in done.err


def test_simulate_under_a_threshold(mptune: Call, tmp_path: Path) -> None:
    path = recording(tmp_path / "space.json", errors=True)
    met = mptune("simulate", path, "--budget", 40, "--strategy", "random", "--max-error", "1e-9", "--json")
    assert met.code == 0
    assert json.loads(met.out)["optimum"] == 2.0
    never = mptune("simulate", path, "--budget", 5, "--strategy", "random", "--max-error", "1e-20")
    assert never.code == 1
    assert "no recorded configuration is within the limits" in never.err


@pytest.mark.parametrize("command", [("simulate",), ("compare", "--processes", 1)], ids=["simulate", "compare"])
def test_a_run_is_told_from_a_space(mptune: Call, command: tuple[str | int, ...], run_file: Path) -> None:
    strategies = ("--strategy" if command == ("simulate",) else "--strategies", "random")
    replay = (*command, run_file, *strategies, "--budget", 3, "--repeats", 2)
    without, within = mptune(*replay), mptune(*replay, "--max-error", "1e-2")
    assert (without.code, within.code) == (0, 0)
    limited = "without --max-error here, every error is accepted"
    assert (limited in without.err, limited in within.err) == (True, False)
    assert all("configurations, those that one search chose: how" in done.err for done in (without, within))


def test_simulate_from_a_source(mptune: Call, tmp_path: Path) -> None:
    path, source = recording(tmp_path / "space.json"), recording(tmp_path / "source.json")
    done = mptune("simulate", path, "--from", source, "--budget", 8)
    assert done.code == 0
    assert re.search(r"source\.json +40 +\d\.\d\d +a, b\n", done.out)
    assert "optimum 1 ms" in done.out
    for given, message in (
        (tmp_path / "nothing.json", "error: source: no file "),
        (OWN, "not a run file of mptune"),
        (tmp_path, "error: source: "),
    ):
        wrong = mptune("simulate", path, "--from", given)
        assert (wrong.code, wrong.out) == (2, "")
        assert message in wrong.err
        assert wrong.err.count("\n") == 1


@pytest.mark.full
def test_the_summary_says_how_the_time_was_spent_and_what_failed(mptune: Call, tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    source = OWN.read_text().replace("void poly(", "void poly({% if block == 64 %}line{{ unroll }} {% endif %}")
    own.write_text(source.replace('["fp64", "fp32", "fp16"]', '["fp64"]').replace("[1, 2, 4]", "[1, 2]"))
    done = mptune("tune", own, "--backend", "host", "--strategy", "exhaustive", "--budget", 80, "--baseline-share", 0)
    assert done.code == 0
    (time,) = (line for line in done.out.splitlines() if line.startswith("time: "))
    spent = {name: float(value) for name, value, *_ in (part.split() for part in time[6:].split(", "))}
    assert {"compile", "prepare", "other"} <= set(spent)
    assert all(seconds >= 0 for seconds in spent.values())
    run = Run.load(Path("runs/poly.db"))
    assert sum(spent.values()) == pytest.approx(run.state.wall_s, abs=0.1 * len(spent))
    (failed,) = (line.strip() for line in done.out.splitlines() if " × " in line)
    # One kind, though each message has another number in it.
    assert failed.startswith("2 × compile_error: ")
    assert "error: " in failed
    shown = mptune("show", "runs/poly.db", "--json")
    document = json.loads(shown.out)
    assert [(f["status"], f["count"]) for f in document["failures"]] == [("compile_error", 2)]
    assert sum(document["durations_s"].values()) == pytest.approx(document["wall_s"])


@pytest.mark.full
def test_log_has_one_line_for_each_trial(mptune: Call) -> None:
    options = ("tune", OWN, "--backend", "host", "--strategy", "random", "--max-error", "1e-5", "--output", "run.db")
    done = mptune(*options, "--budget", 4, "--log", "--json")
    assert done.code == 0
    json.loads(done.out)
    lines = [line for line in done.err.splitlines() if line[:1].isdigit()]
    trials = Run.load("run.db").trials
    assert [line.split()[0] for line in lines] == [f"{i}/4" for i in range(1, 5)]
    for line, trial in zip(lines, trials, strict=True):
        assert f"{trial.status}; " in line
        assert str(trial.configuration) in line
    again = mptune(*options, "--budget", 4, "--log", "--resume")
    assert sum("; from the run file; " in line for line in again.err.splitlines()) >= 1
    assert not [line for line in mptune(*options, "--budget", 5, "--resume").err.splitlines() if line[:1].isdigit()]


@pytest.mark.full
def test_several_objectives_end_with_their_front(mptune: Call) -> None:
    options = ("tune", OWN, "--backend", "host", "--budget", 12, "--output", "x.db", "--objectives", "time,error")
    done = mptune(*options, "--max-error", "1e-2")
    assert done.code == 0, done.err
    assert "strategy bayesian-pareto" in done.out
    assert "objectives time_ms, error, all minimised; best has the lowest time_ms (of ties, the simplest)" in done.out
    run = Run.load("x.db")
    assert f"front: {len(run.front)} of {run.feasible} feasible configurations" in done.out
    assert run.best is not None
    fastest = run.front[0].configuration
    assert run.best.configuration in {fastest, *run.state.finals.tied_with(fastest)}
    assert all(not trial.measurement.reused_error for trial in run.front)
    shown = mptune("pareto", "x.db")
    assert shown.out.split()[:2] == ["time_ms", "error"]
    assert "on the front," in shown.out
    assert mptune("pareto", "x.db", "--metrics", "memory,error").out.split()[0] == "memory_bytes"
    again = mptune(*options, "--max-error", "1e-2", "--resume", "--budget", 16, "--json")
    assert json.loads(again.out)["evaluations"] == 16
    before = {trial.configuration for trial in run.trials}
    assert before <= {trial.configuration for trial in Run.load("x.db").trials}


def test_a_front_nothing_is_on_exits_with_one(mptune: Call) -> None:
    options = ("--backend", "host", "--budget", 3, "--output", "x.db", "--max-error", "1e-40", "--strategy", "nsga2")
    done = mptune("tune", OWN, *options, "--objectives", "time,memory")
    assert done.code == 1
    assert "no configuration meets the threshold" in done.err
    assert "front:" not in done.out


def test_simulate_shows_the_hypervolume(mptune: Call, tmp_path: Path) -> None:
    path = recording(tmp_path / "space.json", errors=True)
    done = mptune("simulate", path, "--objectives", "time,error", "--budget", 40)
    assert done.code == 0, done.err
    assert "bayesian-pareto: " in done.out
    assert "objectives time_ms, error" in done.out
    assert "100 %" in done.out
    assert "of the hypervolume" in done.out
