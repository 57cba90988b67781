"""Processes that are killed and interrupted: what was finished is there, and the same command goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from injecting import (
    Definition,
    command,
    exact,
    is_running,
    recorded,
    running,
    tuned,
    wait_for_line,
    wait_until,
    waiting,
    workers_of,
)

from mptune.errors import RunFileError
from mptune.measure.worker import Limits
from mptune.results.trial import Status
from mptune.run import Run
from mptune.store import RunFile, run_file

BLOCKS = (32, 64, 96, 128, 160, 192, 224, 256)


@pytest.mark.full
def test_worker_killed_with_nine(tmp_path: Path) -> None:
    kernel = waiting(tmp_path, BLOCKS).write(tmp_path)

    def kill() -> None:
        wait_until((tmp_path / "running").exists)
        (worker,) = workers_of(os.getpid())
        os.kill(worker, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    done = tuned(kernel, tmp_path / "run.db", budget=len(BLOCKS), limits=Limits(60.0, 50.0))
    killer.join()
    bad = done.trial(block=64)
    assert bad.status is Status.CRASH
    assert (
        "ended by SIGKILL (killed) in the launch phase: by somebody, or by the system because memory ran" in bad.message
    )
    assert done.run.statuses == {"ok": len(BLOCKS) - 1, "crash": 1}


@pytest.mark.full
def test_tuner_killed_with_nine_and_resumed(tmp_path: Path) -> None:
    kernel = waiting(tmp_path, BLOCKS).write(tmp_path)
    path = tmp_path / "run.db"
    with running(command(kernel, path, "--budget", len(BLOCKS))) as process:
        wait_until((tmp_path / "running").exists)
        (worker,) = workers_of(process.pid)
        before = recorded(path)
        process.kill()
        process.wait()
    wait_until(lambda: not is_running(worker))
    left = Run.load(path)
    assert [exact(trial) for trial in left.trials] == [exact(trial) for trial in before]
    assert left.state.wall_s > 0
    show = [sys.executable, "-m", "mptune", "show", str(path)]
    shown = subprocess.run(show, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert "statuses: " in shown.stdout
    done = subprocess.run(
        command(kernel, path, "--budget", len(BLOCKS), "--resume"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    finished = Run.load(path)
    assert finished.state.wall_s > left.state.wall_s
    after = {exact(trial) for trial in finished.trials}
    assert {exact(trial) for trial in before} <= after
    assert len(after) == len(BLOCKS)


@pytest.mark.full
def test_second_interrupt_stops_at_once(tmp_path: Path) -> None:
    kernel = waiting(tmp_path, BLOCKS).write(tmp_path)
    path = tmp_path / "run.db"
    with running([*command(kernel, path, "--budget", len(BLOCKS)), "--trial-limit", "700"], bufsize=1) as process:
        wait_until((tmp_path / "running").exists)
        (worker,) = workers_of(process.pid)
        before = recorded(path)
        process.send_signal(signal.SIGINT)
        wait_for_line(process, "finishing the current trial")
        process.send_signal(signal.SIGINT)
        wait_for_line(process, "error: interrupted")
        process.send_signal(signal.SIGINT)  # while Python ends, which it does with its own exit code
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert f"statuses: ok {len(before)}" in out
    wait_until(lambda: not is_running(worker))
    after = recorded(path)
    assert [exact(trial) for trial in after] == [exact(trial) for trial in before]


@pytest.mark.full
def test_interrupt_before_the_first_trial_stops_at_once(tmp_path: Path) -> None:
    running_now, path = tmp_path / "running", tmp_path / "run.db"
    slow = f'lambda rng, size: (open({str(running_now)!r}, "w").close(), __import__("time").sleep(600))'
    kernel = Definition(inputs=slow).write(tmp_path)
    with running(command(kernel, path)) as process:
        wait_until((tmp_path / "running").exists)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in err
    assert not path.exists()


# -- run files and disks that fail, memory that runs out, a clock that jumps: nothing recorded -------

ASLEEP = ("if (i == 0) sleep(3600);", 'extern "C" unsigned sleep(unsigned);')

FILE_FAULTS_BLOCKS = tuple(range(32, 32 * 13, 32))
TMPFS_KIB = 256


def ended(line: list[str], code: int, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command that has to end with this exit code, and without a traceback."""
    done = subprocess.run(line, capture_output=True, text=True, timeout=240, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done  # type: ignore[no-any-return]


# -- disks ----------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few kilobytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("only root can mount a small disk")
    options = ["-t", "tmpfs", "-o", f"size={TMPFS_KIB}k", "tmpfs", str(folder)]
    if subprocess.run([mount, *options], capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.full
def test_disk_full_while_writing(small_disk: Path, tmp_path: Path) -> None:
    path = small_disk / "run.db"
    kernel = Definition(blocks=FILE_FAULTS_BLOCKS).write(tmp_path)
    # Room for the run file to begin, and no more than a few trials.
    tuned(kernel, path, budget=2)
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (shutil.disk_usage(small_disk).free - 16 * 1024))
    done = ended([*command(kernel, path, "--budget", len(FILE_FAULTS_BLOCKS), "--resume", "--log")], 2)
    assert (
        "cannot be written: the disk is full; every trial recorded so far is safe, free space and --resume"
        in done.stderr
    )
    before = recorded(path)
    told = [line for line in done.stderr.splitlines() if " search: " in line]
    assert len(before) == len(told)
    assert 2 <= len(before) < len(FILE_FAULTS_BLOCKS)
    filler.unlink()
    ended(command(kernel, path, "--budget", len(FILE_FAULTS_BLOCKS), "--resume"), 0)
    after = {exact(trial) for trial in Run.load(path).trials}
    assert {exact(trial) for trial in before} <= after
    assert len(after) == len(FILE_FAULTS_BLOCKS)


# -- run files ------------------------------------------------------------------------------------


@pytest.fixture
def begun(tmp_path: Path) -> tuple[Path, Path]:
    """A kernel and a run file with two of its three trials."""
    kernel, path = Definition().write(tmp_path), tmp_path / "run.db"
    tuned(kernel, path, budget=2)
    return kernel, path


@pytest.mark.full
def test_two_tuners_on_one_run_file(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    kernel = waiting(tmp_path, FILE_FAULTS_BLOCKS).write(tmp_path)
    with running(command(kernel, path, "--budget", len(FILE_FAULTS_BLOCKS))) as first:
        wait_until((tmp_path / "running").exists)
        second = ended(command(kernel, path, "--budget", len(FILE_FAULTS_BLOCKS), "--resume"), 2)
        third = ended(command(kernel, path, "--budget", len(FILE_FAULTS_BLOCKS)), 2)
        (tmp_path / "release").touch()
        assert first.wait(timeout=240) == 0
    assert f"is being written by process {first.pid} on" in second.stderr
    assert "exists already: go on with it (--resume) or choose another file (--output)" in third.stderr
    kept = recorded(path)
    assert len(kept) == len({trial.configuration for trial in kept}) == len(FILE_FAULTS_BLOCKS)


@pytest.mark.full
def test_run_file_is_looked_at_before_anything_takes_long(begun: tuple[Path, Path], tmp_path: Path) -> None:
    _, path = begun
    before = [exact(trial) for trial in recorded(path)]
    kernel = Definition(inputs='lambda rng, size: __import__("time").sleep(600)').write(tmp_path)
    with pytest.raises(RunFileError, match="exists already"):
        tuned(kernel, path)
    with RunFile.open(path), pytest.raises(RunFileError, match="is being written by process"):
        tuned(kernel, path, resume=True)
    with pytest.raises(RunFileError, match="is a folder"):
        tuned(kernel, tmp_path)
    assert [exact(trial) for trial in recorded(path)] == before


def hold(path: Path, seconds: float) -> subprocess.Popen[str]:
    """Let another process lock a database for some time; return when it has."""
    code = (
        "import sqlite3, sys, time\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('BEGIN EXCLUSIVE')\n"
        "print('locked', flush=True)\n"
        "time.sleep(float(sys.argv[2]))\n"
        "connection.execute('ROLLBACK')\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(path), str(seconds)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    return holder


@pytest.mark.full
def test_run_file_locked_by_another_process(begun: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, path = begun
    before = recorded(path)
    monkeypatch.setattr(run_file, "_BUSY_TIMEOUT_S", 0.3)
    with hold(path, 600.0) as holder:
        try:
            with pytest.raises(RunFileError, match=r"was kept busy by another process for .* s; every trial"):
                tuned(kernel, path, resume=True)
        finally:
            holder.kill()
    assert recorded(path) == before


# -- memory and clock -----------------------------------------------------------------------------


LIMITED = """\
import os
import resource
from pathlib import Path


def inputs(rng, size):
    x = rng.uniform(1.0, 2.0, size.n)
    (held,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    limit = int(held.split()[1]) * 1024 + MARGIN * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    return {"x": x}

"""


@pytest.mark.full
def test_memory_one_configuration_lacks(tmp_path: Path) -> None:
    # For y as fp64 that is too little, as fp16 enough, on any number of cores: a thread on each converts arrays, for
    # whose stack 8 MiB of addresses are taken.
    preamble = LIMITED.replace("MARGIN", "(175 + 8 * len(os.sched_getaffinity(0)))")
    kernel = Definition(preamble=preamble, blocks=(32,), types=("fp64", "fp16"), n=2**23, inputs="inputs")
    done = tuned(kernel.write(tmp_path), tmp_path / "run.db", max_error=1.0)
    bad, good = done.trial(y_type="fp64"), done.trial(y_type="fp16")
    assert bad.status is Status.OUT_OF_MEMORY, bad.message
    assert "could not be allocated on the host" in bad.message or "host memory ran out" in bad.message
    assert good.status is Status.OK


STEPPING = """\
import itertools
import sys
import time

# Every time somebody asks for the time of day, it has been set forward or back by about a year.
steps = itertools.cycle((3.1e7, -6.3e7, 1.6e7))
of_day, of_day_ns = time.time, time.time_ns
time.time = lambda: of_day() + next(steps)
time.time_ns = lambda: of_day_ns() + int(next(steps) * 1e9)
"""


@pytest.mark.full
def test_clock_that_is_stepped(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(STEPPING)
    kernel = Definition(*ASLEEP, blocks=FILE_FAULTS_BLOCKS[:4]).write(tmp_path)
    options = ("--budget", 4, "--trial-limit", 10, "--time-limit", 2000)
    before = time.monotonic()
    # A cache of its own: a year later all that other tests keep seems to be of no use any more.
    own = {"PYTHONPATH": str(tmp_path / "site"), "MPTUNE_CACHE_DIR": str(tmp_path / "cache")}
    ended(command(kernel, path, *options), 0, env={**os.environ, **own})
    took_s = time.monotonic() - before
    run = Run.load(path)
    assert run.statuses == {"ok": 3, "timeout": 1}, [trial.message for trial in run.trials]
    assert 0.0 < run.state.wall_s <= took_s
    for trial in run.trials:
        assert all(0.0 <= seconds <= took_s for seconds in trial.measurement.durations_s.values())
