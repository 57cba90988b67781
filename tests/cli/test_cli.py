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
from functools import partial
from pathlib import Path
from typing import Any

import own_kernel
import pytest
from awkward_kernel import run_of
from command_line import Call
from described import create

from mptune.backends.host_compiler import find_compiler
from mptune.cli import app
from mptune.interop import read_run
from mptune.kernel import Sizes
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.schemas import schema
from mptune.show import KINDS
from mptune.space.configuration import Configuration
from mptune.tuning.tuning import rendered_sources

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


@pytest.mark.parametrize("case", WRONG_INPUT)
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


# -- exit codes of commands on a run without a winner, and standard output that holds nothing --------


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


# -- ``mptune explain``: a table, a few sentences, and what is said where nothing can be -------------


@pytest.fixture
def explain(mptune: Call) -> Call:
    return partial(mptune, "explain")


@pytest.mark.usefixtures("made_up")
def test_a_table_and_sentences(explain: Call, run_file: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    first = explain(run_file, "--kernel", OWN)
    assert first.code == 0, first.err
    lines = first.out.rstrip().splitlines()
    assert lines[0].startswith("poly, winner: ")
    header = next(line for line in lines if line.startswith("parameter"))
    assert header.split() == ["parameter", "from", "to", "digits", "speed", "error", "feasible"]
    rows = lines[lines.index(header) + 1 :]
    assert {row.split()[0] for row in rows} == {"x_type", "y_type"}
    assert all(row.split()[-1] in ("yes", "no") for row in rows)
    assert "One digit more (error <= 1e-06)" in first.out
    assert "One digit less (error <= 0.0001)" in first.out
    # Everything is known now.
    found = json.loads(explain(run_file, "--kernel", OWN, "--json").out)
    jsonschema.Draft202012Validator(schema("explain")).validate(found)
    assert found["unmeasured"] == ""
    assert all(change["outcome"]["speed_interval"] for change in found["changes"])


# -- ``mptune report`` as a user meets it ------------------------------------------------------------

POLY = own_kernel.kernel


@pytest.fixture
def report(mptune: Call) -> Call:
    return partial(mptune, "report")


@pytest.fixture
def failed_run_file(tmp_path: Path) -> Path:
    trials = [
        Trial(POLY.configuration({}), Status.OK, "", Measurement({"time_ms": 2.0, "error": 1e-16}), key="a"),
        Trial(POLY.configuration({"x_type": "fp16"}), Status.CRASH, "signal 11", key="b"),
    ]
    with create(tmp_path / "run.db", run_of(POLY, trials, kernel_path=str(OWN))) as file:
        file.add(*trials)
        file.keep_sources(rendered_sources(Run(file.info, trials), POLY, Sizes({"n": 37})))
    return tmp_path / "run.db"


@pytest.mark.usefixtures("charts")
def test_what_a_user_gets_wrong_is_told(report: Call, failed_run_file: Path) -> None:
    before = failed_run_file.read_bytes()
    for arguments, message in (
        (("rum.db",), "did you mean 'run.db'"),
        ((failed_run_file, "-o", failed_run_file), "is a run file: give the report another name"),
        ((failed_run_file, "-o", "/proc/report.html"), "cannot write the report /proc/report.html"),
        ((failed_run_file, "--sources", "-3"), "sources -3: expected at least 0"),
        ((), "Missing argument"),
    ):
        code, out, err = report(*arguments)
        assert (code, out) == (2, "")
        assert message in err
    assert failed_run_file.read_bytes() == before


# -- ``mptune plot`` as a user meets it --------------------------------------------------------------

pytest.importorskip("altair", reason="altair is not installed")

SETTINGS = {
    "kernel": "axpy",
    "threshold": 1e-4,
    "objective": "time_ms",
    "baseline_values": {"type": ["fp64"]},
    "signature": ["type"],
    "parameters": [
        {"name": "type", "kind": "precision", "values": ["fp64", "fp32", "fp16"]},
        {"name": "block", "kind": "ordinal", "values": [32, 64]},
    ],
    "wall_s": 9.0,
}
SIGNATURES = {"fp64": 1e-16, "fp32": 1e-7, "fp16": 1e-3}


@pytest.fixture
def plot(mptune: Call) -> Callable[..., tuple[int, str, str]]:
    """Run ``mptune plot``; return exit code, standard output and error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code, out, err = mptune("plot", *arguments)
        return code, out, " ".join(err.split())

    return call


def trials() -> list[Trial]:
    return [
        Trial(
            Configuration({"type": type_, "block": block}),
            Status.OK,
            "",
            Measurement({"time_ms": 64 / block + position, "error": error}, durations_s={"compile": 0.5}),
            key=f"{type_}{block}",
        )
        for position, (type_, error) in enumerate(SIGNATURES.items())
        for block in (32, 64)
    ]


@pytest.fixture
def plotting_run_file(tmp_path: Path) -> Path:
    with create(tmp_path / "runs" / "axpy.db", SETTINGS) as file:
        file.add(*trials())
    return tmp_path / "runs" / "axpy.db"


@pytest.mark.usefixtures("charts")
@pytest.mark.full
def test_all_kinds_and_the_document(plot: Callable[..., Any], plotting_run_file: Path, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    code, out, _ = plot(plotting_run_file, "--kind", "all", "-o", "fig.pdf", "--json", "--width", "page", "--no-title")
    assert code == 0
    document = json.loads(out)
    jsonschema.Draft202012Validator(schema("plot")).validate(document)
    assert [entry["kind"] for entry in document["plots"]] == list(KINDS)
    assert all((tmp_path / entry["output"]).exists() for entry in document["plots"])
    assert document["left_out"] == {}


@pytest.mark.usefixtures("charts")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kind", "paretto"), "unknown kind of plot 'paretto'; did you mean 'pareto'?"),
        (("-o", "fig.jpg"), "expected the suffix .png, .pdf, .svg, .html"),
        (("--metrics", "time_ms,eror"), "unknown metric 'eror'; did you mean 'error'?"),
        (("--kind", "time", "--metrics", "time_ms,error"), "--metrics chooses the axes of a pareto plot, not of time"),
    ],
)
def test_mistakes_are_told(
    plot: Callable[..., Any], plotting_run_file: Path, options: tuple[str, ...], message: str
) -> None:
    code, out, err = plot(plotting_run_file, *options)
    assert (code, out) == (2, "")
    assert message in err
    assert {path.name for path in plotting_run_file.parent.iterdir()} == {"axpy.db"}


# -- ``mptune compare`` as a user meets it -----------------------------------------------------------


@pytest.fixture
def compare(mptune: Call) -> Call:
    return lambda *arguments: mptune("compare", *arguments, "--processes", 1)


def test_several_objectives(compare: Call, recording: Callable[..., Path]) -> None:
    space = recording("one", errors=True)
    common = (space, "--objectives", "time,error", "--budget", 60, "--repeats", 2)
    done = compare(*common, "--strategies", "exhaustive,random")
    assert done.code == 0
    assert "share of the front's hypervolume that is missing" in done.out
    assert all(word in done.out for word in ("one", "exhaustive", "random", "within 1%", "best at end", "100 %"))
    refused = compare(*common, "--strategies", "genetic")
    assert refused.code == 2
    assert "supports one objective" in refused.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--strategies", "random,genetc"), ("'genetc'", "did you mean 'genetic'")),
        (("--strategies", "genetic", "--strategy-option", "population=3"), ("STRATEGY.NAME=VALUE",)),
        (("--strategies", "random", "--max-error", "1e-3"), ("has no errors",)),
    ],
)
def test_wrong_input_exits_with_two_and_says_what_is_wrong_of_comparing(
    compare: Call, recording: Callable[..., Path], arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    done = compare(recording("one"), *arguments)
    assert done.code == 2
    assert done.out == ""
    for word in words:
        assert word in done.err


# -- what the command line imports before it answers: ``benchmarks/startup.py`` measures what --------

HEAVY = {"scipy", "sklearn", "pandas", "altair"}
#: Runs commands one after the other, then prints on standard error which packages were imported.
PROGRAM = """
import sys
from mptune import cli
for words in sys.argv[1:]:
    sys.argv[1:] = words.split()
    try:
        cli.main()
    except SystemExit:
        pass
print("IMPORTED", *{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
"""


def imported(*commands: str, program: str = PROGRAM) -> set[str]:
    """Return the packages that a process imports which runs these commands."""
    line = [sys.executable, "-c", program, *commands]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    found = set(done.stderr.partition("IMPORTED")[2].split())
    assert "mptune" in found
    return found


def test_importing_it_imports_nothing_heavy() -> None:
    found = imported(program="import sys, mptune; print('IMPORTED', *sys.modules, file=sys.stderr)")
    assert not found & (HEAVY | {"numpy", "rich", "jinja2", "cupy", "hip"})


def test_help_and_usage_errors_need_no_numpy() -> None:
    found = imported("--help", *(f"{name} --help" for name in app.commands), "tnue", "tune", "tune axpy --budgit 3")
    assert not found & (HEAVY | {"numpy", "rich"})


def test_errors_in_names_need_nothing_heavy() -> None:
    wrong = ("--size smok", "--strategy bayesain", "--metric NRSME")
    assert not imported(*(f"tune axpy {option}" for option in wrong), "show nothing.db") & HEAVY
