"""Processes that are killed and interrupted: what was finished is there, and the same command goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
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

from mptune.measure.worker import Limits
from mptune.results.trial import Status
from mptune.run import Run

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
def test_interrupt_waits_for_the_trial_under_way(tmp_path: Path) -> None:
    kernel = waiting(tmp_path, BLOCKS).write(tmp_path)
    path = tmp_path / "run.db"
    with running(command(kernel, path, "--budget", len(BLOCKS))) as process:
        wait_until((tmp_path / "running").exists)
        before = recorded(path)
        process.send_signal(signal.SIGINT)
        wait_for_line(process, "finishing the current trial; Ctrl-C again stops at once")
        (tmp_path / "release").touch()
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in err
    assert f"to continue: mptune tune {kernel}" in err
    assert "--resume" in err
    after = recorded(path)
    assert [exact(trial) for trial in after[: len(before)]] == [exact(trial) for trial in before]
    assert len(after) == len(before) + 1
    assert (after[-1].configuration["block"], after[-1].status) == (64, Status.OK)
    assert "best" in out
    assert f"statuses: ok {len(after)}" in out


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


@pytest.mark.full
def test_timeout_is_tried_again_under_a_larger_limit(tmp_path: Path) -> None:
    kernel = waiting(tmp_path, (32, 64, 128)).write(tmp_path)
    path = tmp_path / "run.db"
    short = tuned(kernel, path, limits=Limits(60.0, 6.0))
    assert short.trial(block=64).status is Status.TIMEOUT
    assert "--trial-limit gives it longer" in short.trial(block=64).message
    same = tuned(kernel, path, resume=True, limits=Limits(60.0, 6.0))
    assert {exact(t) for t in same.run.trials} == {exact(t) for t in short.run.trials}
    longer = tuned(kernel, path, resume=True, limits=Limits(60.0, 60.0))
    assert longer.trial(block=64).status is Status.OK
    assert longer.run.evaluations == 3
    kept = [exact(longer.trial(block=block)) for block in (32, 128)]
    assert kept == [exact(short.trial(block=block)) for block in (32, 128)]
