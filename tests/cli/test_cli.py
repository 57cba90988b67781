"""The command line as a user meets it: documents, exit codes, and messages instead of tracebacks."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest
from command_line import Call

from mptune.backends.host_compiler import find_compiler
from mptune.cli import display
from mptune.interop import read_run
from mptune.run import Run
from mptune.source.loading import bundled_applications, bundled_kernels
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


def test_export_as_parquet_needs_a_file(mptune: Call, run_file: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    assert mptune("export", run_file, "-o", "out.parquet").code == 0
    assert len(pd.read_parquet("out.parquet")) == 8
    done = mptune("export", run_file, "--format", "parquet")
    assert (done.code, done.out) == (2, "")
    assert "give a file with --output" in done.err


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


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "compiled"), [((), range(4, 11)), (("--sample", 2), [2]), (("--all-signatures",), [9])]
)
def test_check_compiles_a_selection(mptune: Call, options: tuple[object, ...], compiled: Collection[int]) -> None:
    done = mptune("check", OWN, "--backend", "host", *options, "--json")
    assert done.code == 0
    (row,) = json.loads(done.out)["checks"]
    assert (row["configurations"], row["failures"]) == (108, [])
    assert row["compiled"] in compiled


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


@pytest.mark.full
def test_check_compiles_what_is_asked_for_of_an_application(mptune: Call) -> None:
    words = ("check", "conjugate_gradient", "--backend", "host", "-p", "dot.sum_type=fp32", "--sample", 2)
    rows = {row["kernel"]: row for row in json.loads(mptune(*words, "--json").out)["checks"]}
    dot = rows.pop("conjugate_gradient.dot")
    assert {each["configuration"]["sum_type"] for each in dot["compilations"]} == {"fp32"}
    assert all(row["compiled"] == 2 for row in rows.values())


@pytest.mark.parametrize(
    ("text", "wrong", "said"),
    [
        ("y[i] =", "z[i] =", r"template of kernel poly, line 12 .*error: .*'z'"),
        ("range(unroll)", "range(unrol)", r"template of kernel poly, line 3: 'unrol' is not defined"),
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
    "objective": (("tune", "axpy", "--backend", "host", "--objective", "tme_ms"), "did you mean 'time_ms'"),
    "objectives": (("tune", "axpy", "--backend", "host", "--objectives", "tme,error"), "did you mean 'time'"),
    "one of several": (("tune", "axpy", "--objectives", "error"), "expected two or three different names"),
    "both kinds of objective": (("tune", "axpy", "--objectives", "time,error", "--objective", "energy"), "exclude"),
    "objectives of a strategy of one": (
        ("tune", "axpy", "--backend", "host", "--objectives", "time,error", "--strategy", "genetic"),
        "strategy genetic supports one objective, got .*bayesian-pareto",
    ),
    "objective unmeasured": (("tune", "axpy", "--backend", "host", "--objective", "energy"), "objective 'energy'"),
    "trial limit": (("tune", "axpy", "--trial-limit", -1), "trial limit -1 s"),
    "trial limit infinite": (("tune", "axpy", "--trial-limit", "inf"), "trial limit inf s: .* at most 1,000,000"),
    "trial limit below the baseline": (("tune", "axpy", "--trial-limit", "0.5x"), "trial limit '0.5x': .* above 1x"),
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
    "size": (("tune", "axpy", "--size", "m=3"), "unknown size"),
    "parameter as a size": (("tune", "axpy", "--size", "block_size=64"), "block_size is a parameter \\(-p\\)"),
    "size as a parameter": (("tune", "axpy", "-p", "n=64"), "n is a size \\(--size\\)"),
    "size value": (("tune", "axpy", "--size", "n=three"), "expected a whole number"),
    "sizes to verify at": (("verify", "no.db", "--size", "n=2,m=many"), "--size m=many: expected a whole number"),
    "no size to verify at": (("verify", "no.db", "--size", "n=2,3"), "--size '3': expected NAME=VALUE"),
    "budget": (("tune", "axpy", "--budget", 0), "budget 0"),
    "threshold": (("tune", "axpy", "--max-error", "-1"), "expected a positive number"),
    "threshold zero": (("tune", "axpy", "--max-error", "0"), "1e-300: exact results only"),
    "threshold of no other output": (
        ("tune", "axpy", "--backend", "host", "--size", "smoke", "--max-error", "y=1", "--max-error", "1e-3"),
        r"threshold 0.001 applies to no output: each \(y\) has its own",
    ),
    "threshold output": (("tune", "axpy", "--backend", "host", "--size", "smoke", "--max-error", "q=1e-3"), "q"),
    "memory": (("tune", "axpy", "--backend", "host", "--size", "n=1000000000000"), "bytes|GB|GiB"),
    "run file": (("show", "runs/nothing.db"), "nothing.db"),
    "export format": (("export", "x.db", "--format", "xlsx"), "export format"),
    "simulate file": (("simulate", "nothing.json"), "nothing.json"),
    "seed": (("tune", "axpy", "--seed", -1), "seed -1"),
    "sample": (("check", "axpy", "--sample", "few"), "whole number or 'all'"),
    "sample and signatures": (("check", "axpy", "--sample", 3, "--all-signatures"), "exclude each other"),
    "arch": (("check", "axpy", "--backend", "nope"), "unknown backend"),
    "check values": (("check", "axpy", "-p", "x_type=fp7"), "fp7"),
    "check all": (("check", "all", "-p", "x_type=fp32"), "-p x_type: kernels have parameters of their own"),
    "workers": (("tune", "axpy", "--backend", "host", "--workers", 4), "workers 4: expected at most one per device"),
    "workers elsewhere": (
        ("tune", "axpy", "--workers", 2, "--scheduler", "tcp://node1:8786"),
        "a scheduler has workers of its own",
    ),
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


@pytest.mark.usefixtures("made_up")
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


def test_front_says_what_is_feasible_and_fits_a_terminal(
    mptune: Call, run_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = mptune("pareto", run_file).out.splitlines()
    assert {"speedup", "feasible", "unroll", "x_type"} <= set(wide[0].split())
    assert all({"yes", "no"} & set(row.split()) for row in wide[1 : wide.index("")])
    assert "x_type=" not in "".join(wide)
    monkeypatch.setattr(display, "width", lambda: 80)
    narrow = mptune("pareto", run_file).out.splitlines()
    narrow = narrow[: narrow.index("")]
    assert narrow[0].split()[-1] == "configuration"
    assert all(len(line.rstrip()) <= 80 for line in narrow)
    assert "x_type=fp" in "".join(narrow)


@pytest.mark.usefixtures("made_up")
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


def test_simulate_json_is_the_documented_document(mptune: Call, recording: Callable[..., Path]) -> None:
    path = recording()
    done = mptune("simulate", path, "--strategy", "random", "--budget", 60, "--repeats", 2, "--seed", 5, "--json")
    assert done.code == 0
    document = json.loads(done.out)
    wanted = {"space", "strategy", "budget", "optimum", "unit", "configurations", "runs", "overhead_ms_per_evaluation"}
    wanted |= {"worst", "distances"}
    assert set(document) == wanted
    assert (document["optimum"], document["unit"], document["configurations"]) == (1.0, "ms", 60)
    assert [run["seed"] for run in document["runs"]] == [5, 6]
    for run in document["runs"]:
        assert len(run["best"]) == 60
        assert run["best"] == sorted(run["best"], reverse=True)
        assert run["best"][-1] == 1.0


def test_simulate_under_a_threshold(mptune: Call, recording: Callable[..., Path]) -> None:
    path = recording(errors=True)
    met = mptune("simulate", path, "--budget", 60, "--strategy", "random", "--max-error", "1e-9", "--json")
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
    assert all("configurations, chosen by one search: results" in done.err for done in (without, within))


def test_simulate_from_a_source(mptune: Call, tmp_path: Path, recording: Callable[..., Path]) -> None:
    path, source = recording(), recording("source")
    done = mptune("simulate", path, "--from", source, "--budget", 8)
    assert done.code == 0
    assert re.search(r"source\.json +60 +\d\.\d\d +a, b\n", done.out)
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
    # One kind, though each message has another number in it.
    assert re.search(r"^compile_error +2 .*error: ", done.out, re.MULTILINE)
    shown = mptune("show", "runs/poly.db", "--json")
    document = json.loads(shown.out)
    assert [(f["status"], f["count"]) for f in document["failures"]] == [("compile_error", 2)]
    assert sum(document["durations_s"].values()) == pytest.approx(document["wall_s"])
