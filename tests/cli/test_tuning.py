"""``mptune tune``: what it finds, what it prints, its exit codes, and how it goes on; on a made-up device."""

from __future__ import annotations

import contextlib
import functools
import json
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import sqlite3
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import Call
from made_up_devices import MadeUp, MadeUpDevices, replace_devices

from mptune import cli
from mptune.adopt.adopting import AdoptSettings
from mptune.errors import MptuneError, RunFileError
from mptune.precision import precision
from mptune.progress import ProgressView
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.tuning import tune

pytestmark = pytest.mark.usefixtures("made_up")

OWN = Path(__file__).parent.parent / "own_kernel.py"
TUNE = ("tune", OWN, "--backend", "host", "--strategy", "exhaustive", "-p", "unroll=1")
BEST = {"block": 64, "unroll": 1, "x_type": "fp32", "y_type": "fp32"}
WIDEST = {**BEST, "x_type": "fp64", "y_type": "fp64"}


def test_the_document_has_the_best_and_what_it_is_compared_with(mptune: Call) -> None:
    done = mptune(*TUNE, "--max-error", "1e-5", "--budget", 36, "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    described = {name: document[name] for name in ("kernel", "backend", "threshold", "metric", "evaluations")}
    assert described == {"kernel": "poly", "backend": "host", "threshold": 1e-5, "metric": "NRMSE", "evaluations": 36}
    # Of nine pairs of types four are accurate enough, in each of four blocks.
    assert document["statuses"] == {"ok": 16, "inaccurate": 20}
    best, baseline = document["best"], document["baseline"]
    assert (best["configuration"], baseline["configuration"]) == (BEST, WIDEST)
    assert (best["time_ms"], baseline["time_ms"]) == pytest.approx((0.505, 1.01))
    assert best["speedup"] == pytest.approx(2.0)
    assert best["error"] == precision("fp32").unit_roundoff
    assert document["wall_s"] > 0
    run = Run.load(Path("runs/poly.db"))
    assert run.best is not None
    assert (dict(run.best.configuration), run.evaluations) == (BEST, 36)


def test_a_second_run_leaves_the_first_alone_and_resume_takes_the_latest(mptune: Call, made_up: MadeUpDevices) -> None:
    assert mptune(*TUNE, "--budget", 2).code == 0
    assert mptune(*TUNE, "--budget", 3).code == 0
    assert sorted(p.name for p in Path("runs").iterdir()) == ["poly-2.db", "poly.db"]
    measured = set(made_up.checks)
    made_up.checks.clear()
    again = mptune(*TUNE, "--budget", 4, "--resume", "--verify", 0, "--json")
    assert json.loads(again.out)["evaluations"] == 4
    assert "poly-2.db" in again.err
    assert "does not exist" not in again.err
    assert len(set(made_up.checks) - measured) == 1
    missing = mptune(*TUNE, "--budget", 1, "--resume", "-o", "nosuch.db")
    assert missing.code == 0
    assert "nosuch.db does not exist: starting a new run\n" in missing.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--max-error", "1e-40"),
            (
                # Before the search and at its end.
                "warning: the widest types themselves do not meet the threshold: their ",
                "no configuration meets the threshold; the closest has error ",
                "the widest types themselves do not meet it, at best with error ",
            ),
        ),
        (("--max-error", "y=1e-40"), ("exceeds its limit of 1e-40 most",)),
        (
            ("--constraint", "memory_bytes <= 1"),
            ("no configuration satisfies every constraint; the closest: memory_bytes <= 1 does not hold",),
        ),
        (
            ("--objectives", "time,memory", "--strategy", "nsga2", "--max-error", "1e-40"),
            ("no configuration meets the threshold",),
        ),
        (("--time-limit", "1e-9"), ("nothing was evaluated: ",)),
    ],
    ids=["threshold", "of an output", "constraint", "front", "no time"],
)
def test_exit_code_one_where_nothing_is_good_enough(
    mptune: Call, options: tuple[str, ...], said: tuple[str, ...]
) -> None:
    done = mptune(*TUNE, *options, "--budget", 6, "--json")
    assert done.code == 1, done.err
    for text in said:
        assert text in done.err
    document = json.loads(done.out)
    assert document["best"] is None
    if document["evaluations"]:
        assert document["closest"]["configuration"]
    assert Run.load(Path("runs/poly.db")).evaluations == document["evaluations"]


def test_on_a_terminal_one_sees_where_it_stands(mptune: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    seen: list[Any] = []
    monkeypatch.setattr("rich.live.Live.update", lambda _, view, **__: seen.append(view))
    clock = iter(range(10**9))
    view = functools.partial(ProgressView, clock=lambda: float(next(clock)))
    monkeypatch.setattr("mptune.progress.ProgressView", view)
    assert mptune(*TUNE, "--budget", 36, "--max-error", "1e-5").code == 0
    views = ["\n".join(str(part) for part in view.renderables) for view in seen]
    first, *_, last = (view for view in views if "evaluations" in view)
    assert re.search(r"^(baseline|search): 1/36 evaluations, ", first)
    done = re.search(r"(\d+)/36 evaluations, (\d+) feasible, about \d+ s left", last)
    assert done
    assert 1 < int(done[1]) <= 36
    assert re.search(r"best \S+ ms, speedup .+, error ", last)
    assert any("unseen inputs" in view for view in views)


def test_while_no_trial_ends_a_terminal_says_for_how_long_and_a_log_once_a_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mptune.progress._LONG_S", 0.0)
    monkeypatch.setattr("mptune.progress._REFRESH_S", 0.01)
    monkeypatch.setattr("mptune.progress._LINE_EVERY_S", 0.05)
    with ProgressView() as view:
        time.sleep(0.3)
    assert "no trial has ended for 0 s\n" in capsys.readouterr().err
    with ProgressView(is_live=True) as view:
        assert view.waited_text == "no trial has ended for 0 s"
    with ProgressView(is_quiet=True):
        time.sleep(0.1)
    assert "no trial" not in capsys.readouterr().err


def test_log_has_one_line_for_each_trial(mptune: Call) -> None:
    options = (*TUNE, "--max-error", "1e-5", "--output", "run.db")
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


def test_several_objectives_end_with_their_front(mptune: Call) -> None:
    options = ("--budget", 36, "--objectives", "time,error", "--max-error", "1e-2", "--output", "x.db")
    done = mptune(*TUNE, *options)
    assert done.code == 0, done.err
    assert "objectives time_ms, error, all minimised; best has the lowest time_ms (of ties, the simplest)" in done.out
    run = Run.load("x.db")
    assert f"front: {len(run.front)} of {run.feasible} feasible configurations" in done.out
    # In the fastest block, nothing is as accurate as fp64 and as fast as fp32.
    assert {trial.configuration["block"] for trial in run.front} == {64}
    assert {"fp64", "fp32", "fp16"} <= {trial.configuration["x_type"] for trial in run.front}
    assert run.best is not None
    assert run.best.configuration == run.front[0].configuration
    assert dict(run.best.configuration) == {**BEST, "x_type": "fp16", "y_type": "fp16"}
    shown = mptune("pareto", "x.db")
    assert shown.out.split()[:2] == ["time_ms", "error"]
    assert f"\n{len(run.front)} on the front, " in shown.out
    assert mptune("pareto", "x.db", "--metrics", "memory,error").out.split()[0] == "memory_bytes"


def test_ctrl_c_ends_after_the_trial_with_what_was_found_and_how_to_go_on(
    mptune: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated = []

    def interrupted(configuration: Configuration) -> MadeUp:
        evaluated.append(configuration)
        if len(evaluated) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return MadeUp(1.0, 1e-7)

    replace_devices(monkeypatch, interrupted)
    done = mptune(*TUNE, "--budget", 9, "--max-error", "1e-5", "--json")
    assert done.code == 130
    assert "finishing the current trial; Ctrl-C again stops at once" in done.err
    assert done.err.endswith("error: interrupted\n")
    assert json.loads(done.out)["evaluations"] == Run.load("runs/poly.db").evaluations == len(evaluated) == 3
    (line,) = (line for line in done.err.splitlines() if line.startswith("to continue: "))
    assert shlex.split(line)[-3:] == ["--resume", "--output", "runs/poly.db"]
    assert mptune(*shlex.split(line)[3:]).code == 0
    assert Run.load("runs/poly.db").evaluations == 9


def tune_without_end(words: Sequence[object]) -> None:
    """Run the command on a made-up device whose third evaluation does not end."""
    evaluated = []

    def does(configuration: Configuration) -> MadeUp:
        evaluated.append(configuration)
        if len(evaluated) == 3:
            Path("running").touch()
            time.sleep(600)
        return MadeUp(7.0, 1e-7)

    replace_devices(pytest.MonkeyPatch(), does)
    sys.argv[:] = ["mptune", *map(str, words)]
    cli.main()


def test_a_process_that_is_killed_loses_no_trial_and_resume_goes_on(mptune: Call, made_up: MadeUpDevices) -> None:
    words = (*TUNE, "--budget", 5, "--verify", 0)
    with warnings.catch_warnings(action="ignore"):  # this process may have threads
        process = multiprocessing.get_context("fork").Process(target=tune_without_end, args=(words,))
        process.start()
    while not Path("running").exists():
        assert process.is_alive()
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    left = Run.load("runs/poly.db").trials
    assert [trial.time_ms for trial in left] == [7.0, 7.0]
    shown = json.loads(mptune("show", "runs/poly.db", "--json").out)
    assert (shown["evaluations"], shown["ended"]) == (2, "interrupted")
    unfinished = "2 of 5 evaluations: interrupted or still running; tune --resume completes the run"
    for words_of in (("show",), ("wisdom", "-o", "poly.wisdom.json"), ("emit", "--kernel", OWN, "-o", "tuned")):
        done = mptune(*words_of[:1], "runs/poly.db", *words_of[1:])
        assert unfinished in done.out + done.err
    assert unfinished in Path("tuned/README.md").read_text()
    assert mptune(*words, "--resume").code == 0
    finished = Run.load("runs/poly.db")
    assert (finished.evaluations, finished.state.ended) == (5, "")
    known = {trial.configuration for trial in left}
    assert known <= {trial.configuration for trial in finished.trials}
    assert len(set(made_up.checks) - known) == 3


@pytest.mark.parametrize("narrowed", [False, True])
def test_finals_of_before_stay_until_new_ones_are_complete(
    made_up: MadeUpDevices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, narrowed: bool
) -> None:
    given: dict[str, Any] = {"backend": "host", "verify": 0, "max_error": 1e-5, "strategy": "random"}
    given |= {"output": tmp_path / "run.db", "on_warning": lambda _: None}
    before = tune(OWN, budget=12, **given)
    calls = []

    def lost(method: str, *arguments: Any) -> Any:
        calls.append(method)
        if len(calls) > 1:
            raise RuntimeError("lost")
        return MadeUpDevices.ask(made_up, method, *arguments)

    monkeypatch.setattr(made_up, "ask", lost)
    # Trials outside of a narrower search are set aside, and the finals with them.
    more = {"restrict": {"block": (32, 64)}} if narrowed else {}
    with pytest.raises(RuntimeError, match="lost"):
        tune(OWN, budget=14, resume=True, **given, **more)
    left = Run.load(tmp_path / "run.db")
    assert left.state.ended == "interrupted"
    assert (left.state.finals == before.state.finals) is not narrowed
    assert left.best is not None
    assert left.is_settled(left.best) is not narrowed


# -- programs ------------------------------------------------------------------------------------


@pytest.fixture
def adopted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[AdoptSettings, Path | None]]:
    """Let adopting a program write the tests' own kernel; return with what it was called."""
    calls: list[tuple[AdoptSettings, Path | None]] = []

    def adopt(
        settings: AdoptSettings, folder: Path | None, *, on_progress: Callable[[str], None]
    ) -> tuple[object, Mapping[str, Any]]:
        calls.append((settings, folder))
        on_progress("reading")
        Path("mine").mkdir(exist_ok=True)
        Path("mine/kernel.py").write_text(OWN.read_text())
        told = {"kernels": [{"name": "poly"}], "refused": ["k: a reason"], "notes": ["b"], "caveats": ["c"]}
        return None, {"folder": "mine/kernel.py", **told}

    monkeypatch.setattr("mptune.adopt.adopting.adopt", adopt)
    return calls


def test_a_program_is_continued_with_its_arguments_last(
    mptune: Call, monkeypatch: pytest.MonkeyPatch, adopted: list[tuple[AdoptSettings, Path | None]]
) -> None:
    Path("a.cu").touch()

    def interrupted(_: Configuration) -> MadeUp:
        os.kill(os.getpid(), signal.SIGINT)
        return MadeUp(1.0, 1e-7)

    replace_devices(monkeypatch, interrupted)
    done = mptune("tune", "a.cu", "--backend", "host", "--budget", 3, "--", "--steps", "5")
    assert done.code == 130, done.err
    (line,) = (line for line in done.err.splitlines() if line.startswith("to continue: "))
    assert shlex.split(line)[-6:] == ["--resume", "--output", "runs/poly.db", "--", "--steps", "5"]


OF_PROGRAMS = (
    "-D",
    "N=3",
    "-D",
    "FAST",
    "-I",
    "include",
    "--types",
    2,
    "--kernel",
    "k",
    "--vary",
    0.5,
    "--vary",
    "field",
)


def test_a_program_is_adopted_with_its_options_then_tuned(
    mptune: Call, adopted: list[tuple[AdoptSettings, Path | None]]
) -> None:
    Path("a.cu").touch()
    options = ("--backend", "host", "--budget", 3, "--strategy", "random", "--json")
    done = mptune("tune", "a.cu", *options, *OF_PROGRAMS, "--", "64", "--steps", "5")
    assert done.code == 0, done.err
    assert json.loads(done.out)["kernel"] == "poly"
    told = ("adopted a.cu into mine/kernel.py: 1 kernel", "not adopted: k: a reason", "note: b")
    assert [line for line in done.err.splitlines() if line in told] == list(told)
    assert "note: c" not in done.err  # the run itself warns of it
    ((settings, folder),) = adopted
    assert folder is None
    assert settings == AdoptSettings(
        files=(Path("a.cu"),),
        arguments=("64", "--steps", "5"),
        defines={"N": "3", "FAST": ""},
        includes=(Path("include"),),
        types=2,
        kernels=("k",),
        vary=0.5,
        varied=("field",),
        backend="host",
    )


def test_configurations_given_first_are_evaluated_first_and_once(mptune: Call, made_up: MadeUpDevices) -> None:
    own = ("tune", OWN, "--backend", "host", "--verify", 0, "--max-error", "1e-5", "--output", "run.db")
    first = ("--first", "block=256,unroll=4,x_type=float", "--first", "block=128")
    assert mptune(*own, "--budget", 6, *first).code == 0
    trials = Run.load(Path("run.db")).trials
    assert [trials[0].configuration[name] for name in ("block", "unroll", "x_type")] == [256, 4, "fp32"]
    assert trials[1].configuration["block"] == 128
    assert mptune(*own, "--budget", 8, *first, "--resume").code == 0
    run = Run.load(Path("run.db"))
    assert run.evaluations == 8
    assert {trial.configuration for trial in trials} < {trial.configuration for trial in run.trials}
    assert run.best is not None
    printed = mptune("show", "run.db", "--json").out
    Path("best.json").write_text(printed)
    for number, source in enumerate(("run.db", "best.json")):
        again = f"again-{number}.db"
        assert mptune(*own[:-1], again, "--budget", 4, "--first", source).code == 0
        assert Run.load(Path(again)).trials[0].configuration == run.best.configuration


def test_a_call_with_a_run_file_goes_on_or_begins_anew_as_it_is_told(tmp_path: Path) -> None:
    given: dict[str, Any] = {"backend": "host", "verify": 0, "output": tmp_path / "run.db"}
    first = tune(OWN, budget=4, **given)
    with pytest.raises(RunFileError, match=r"exists already.* resume=True goes on, and overwrite=True begins anew"):
        tune(OWN, budget=4, **given)
    more = tune(OWN, budget=6, resume=True, **given)
    assert {trial.configuration for trial in first.trials} < {trial.configuration for trial in more.trials}
    with pytest.raises(MptuneError):
        tune(OWN, budget=3, overwrite=True, compiler="no-such-compiler", **given)
    assert Run.load(tmp_path / "run.db").evaluations == 6
    with contextlib.closing(sqlite3.connect(tmp_path / "run.db")) as older:
        older.execute("PRAGMA user_version = 1")
    assert tune(OWN, budget=3, overwrite=True, **given).evaluations == 3
    other = tmp_path / "notes.txt"
    other.write_text("not a run")
    with pytest.raises(RunFileError):
        tune(OWN, budget=3, overwrite=True, **(given | {"output": other}))
    assert other.read_text() == "not a run"


# -- runs that start from earlier ones, at the command line: what is said of the sources, and --------

STARTING_OWN = Path(__file__).parent.parent / "own_kernel.py"
STARTING_TUNE = ("tune", STARTING_OWN, "--backend", "host", "--size", "smoke", "--max-error", "1e-5", "--verify", 0)


def test_a_run_starts_from_earlier_ones_and_keeps_them_when_it_is_resumed(
    mptune: Call, tuned: Path, tmp_path: Path
) -> None:
    shutil.copy(tuned, tmp_path / "earlier.db")
    path = tmp_path / "run.db"
    begun = mptune(*STARTING_TUNE, "--from", tmp_path / "earlier.db", "--budget", 4, "--output", path)
    assert begun.code == 0, begun.err
    assert re.search(r"earlier\.db +8 +\d\.\d\d +block, unroll, x_type, y_type\n", begun.out)
    resumed = mptune(*STARTING_TUNE, "--budget", 6, "--output", path, "--resume", "--json")
    (use,) = json.loads(resumed.out)["sources"]
    assert use["source"] == str(tmp_path / "earlier.db")
    assert (use["trials"], use["parameters"]) == (8, ["block", "unroll", "x_type", "y_type"])
    assert "earlier.db" in mptune("show", path).out
    (tmp_path / "earlier.db").unlink()
    gone = mptune(*STARTING_TUNE, "--budget", 6, "--output", path, "--resume")
    assert "earlier.db of the run no longer exists: the search continues without it" in gone.err
    (tmp_path / "damaged.db").write_bytes(path.read_bytes()[:3000])
    (tmp_path / "empty.db").touch()
    everything = mptune(*STARTING_TUNE, "--from-all", "--budget", 4, "--output", tmp_path / "third.db", "--json")
    assert [Path(use["source"]).name for use in json.loads(everything.out)["sources"]] == ["run.db"]
    (said,) = [line for line in everything.err.splitlines() if "cannot be read" in line]
    assert f"run files in {tmp_path} that cannot be read are left out: 2, the first is " in said
    assert f"{tmp_path}/damaged.db" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tune", "axpy", "--backend", "host", "--from"), r"is of kernel 'poly', not 'axpy': expected the same kernel"),
        ((*STARTING_TUNE, "--objective", "energy_j", "--from"), r"metric of source .*: 'energy_j'|energy"),
        ((*STARTING_TUNE, "--strategy", "random", "--from"), "strategy random cannot start from earlier runs"),
    ],
)
def test_what_cannot_be_a_source_is_refused_in_a_line(
    mptune: Call, run_file: Path, tmp_path: Path, arguments: tuple[object, ...], message: str
) -> None:
    done = mptune(*arguments, run_file, "--output", tmp_path / "new.db")
    assert (done.code, done.out) == (2, "")
    assert re.search(message, done.err), done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "new.db").exists()
