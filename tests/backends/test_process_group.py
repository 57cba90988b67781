"""Processes that are run by some threads and paused or ended by another."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from mptune.backends.process_group import Ended, ProcessGroup

#: Starts a child that appends to a file for as long as it runs, as a compiler's driver starts the compiler.
TICKING = """
import subprocess, sys
subprocess.run([sys.executable, "-c", '''
import sys, time
while True:
    with open(sys.argv[1], "a") as file:
        file.write(".")
    time.sleep(0.005)
''', sys.argv[1]])
"""


def run(group: ProcessGroup, script: str, *arguments: object, timeout_s: float = 60.0, text: str = "") -> Ended:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return group.run(command, text=text, environment=dict(os.environ), folder="/", timeout_s=timeout_s)


def wait_until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@pytest.fixture
def ticking(tmp_path):
    """A group with one process that runs until the end of the test, and the file it makes longer."""
    group, ticks = ProcessGroup(), tmp_path / "ticks"
    thread = threading.Thread(target=run, args=(group, TICKING, ticks))
    thread.start()
    wait_until(lambda: size(ticks) > 3)
    yield group, ticks
    group.close()
    thread.join()


def test_status_and_output_of_a_process():
    script = "import sys; print(sys.stdin.read()); print('warned', file=sys.stderr); sys.exit(3)"
    ended = run(ProcessGroup(), script, text="read")
    assert ended.status == 3
    assert sorted(ended.output.split()) == ["read", "warned"]


def test_nothing_runs_during_a_pause(ticking):
    group, ticks = ticking
    with group.paused():
        time.sleep(0.05)  # what was being written when the signal came
        before = size(ticks)
        time.sleep(0.2)
        assert size(ticks) == before
    wait_until(lambda: size(ticks) > before + 3)


def test_pauses_within_pauses_end_with_the_outermost(ticking):
    group, ticks = ticking
    with group.paused():
        with group.paused():
            pass
        time.sleep(0.05)
        before = size(ticks)
        time.sleep(0.1)
        assert size(ticks) == before
    wait_until(lambda: size(ticks) > before)


def test_nothing_starts_during_a_pause():
    group, ended = ProcessGroup(), []
    thread = threading.Thread(target=lambda: ended.append(run(group, "print('ran')")))
    with group.paused():
        thread.start()
        time.sleep(0.3)
        assert not ended
        assert not group._running
    thread.join()
    assert ended == [Ended(0, "ran\n")]


def test_pause_does_not_count_as_time_taken():
    group, ended = ProcessGroup(), []
    script = "import time; end = time.monotonic() + 0.2\nwhile time.monotonic() < end: pass"
    thread = threading.Thread(target=lambda: ended.append(run(group, script, timeout_s=1.5)))
    thread.start()
    wait_until(lambda: group._running)
    with group.paused():
        time.sleep(2.0)
    thread.join()
    assert ended == [Ended(0, "")]


def test_process_that_takes_too_long_is_ended_with_what_it_started(tmp_path):
    ticks = tmp_path / "ticks"
    with pytest.raises(subprocess.TimeoutExpired):
        run(ProcessGroup(), TICKING, ticks, timeout_s=0.5)
    before = size(ticks)
    time.sleep(0.1)
    assert size(ticks) == before


def test_closed_group_ends_its_processes_and_starts_no_more(ticking):
    group, ticks = ticking
    with group.paused():
        group.close()
    wait_until(lambda: not group._running)
    before = size(ticks)
    time.sleep(0.1)
    assert size(ticks) == before
    with pytest.raises(OSError, match="given up"):
        run(group, "")


def test_owner_killed_in_a_pause_leaves_nothing_behind(tmp_path):
    ticks = tmp_path / "ticks"
    script = f"""
        import os, sys, threading, time
        from mptune.backends.process_group import ProcessGroup
        group, ticks = ProcessGroup(), {str(ticks)!r}
        command = [sys.executable, "-c", {TICKING!r}, ticks]
        run = dict(text="", environment=dict(os.environ), folder="/", timeout_s=60.0)
        threading.Thread(target=group.run, args=(command,), kwargs=run, daemon=True).start()
        while not os.path.exists(ticks):
            time.sleep(0.01)
        with group.paused():
            print(*group._running, flush=True)
            os.kill(os.getpid(), 9)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        # It is ignored where the tests run under nohup.
        preexec_fn=functools.partial(signal.signal, signal.SIGHUP, signal.SIG_DFL),
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    group = int(done.stdout)

    def is_gone() -> bool:
        states = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, process_group = stat.read_text().rpartition(")")[2].split()[:3]
            except (FileNotFoundError, ProcessLookupError):
                continue
            states += [state] if int(process_group) == group else []
        return all(state == "Z" for state in states)

    wait_until(is_gone)
