"""Child processes: spoken to, paused, ended, and ended with their parent."""

from __future__ import annotations

import contextlib
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

from mptune.backends.processes import ChildEnded, ChildGroup, PythonChild
from tests.tiers import few

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


def run(group: ChildGroup, script: str, *arguments: object, timeout_s: float = 60.0, text: str = "") -> tuple[int, str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return group.run(command, text=text, environment=dict(os.environ), folder="/", timeout_s=timeout_s)


def wait_until(condition) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@pytest.fixture
def ticking(tmp_path):
    """A group with one process that runs until the end of the test, and the file it makes longer."""
    group, ticks = ChildGroup(), tmp_path / "ticks"
    thread = threading.Thread(target=run, args=(group, TICKING, ticks))
    thread.start()
    wait_until(lambda: size(ticks) > 3)
    yield group, ticks
    group.close()
    thread.join()


def members(group: int) -> list[str]:
    """Return the states of the processes of a process group, without those that have ended."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, _, of_group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if int(of_group) == group and state != "Z":
                found.append(state)
    return found


def command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_text(errors="replace"))
    return found


def wait_until_stopped(group: ChildGroup) -> None:
    """Wait until the signal has come to every process: each may still end what it was doing in the kernel."""
    for child in group._running:
        wait_until(lambda child=child: set(members(child.pid)) == {"T"})


def test_nothing_runs_during_a_pause(ticking):
    group, ticks = ticking
    with group.paused():
        with group.paused():
            pass  # the outermost counts
        wait_until_stopped(group)
        before = size(ticks)
        time.sleep(0.2)
        assert size(ticks) == before
    wait_until(lambda: size(ticks) > before + 3)


def test_nothing_starts_during_a_pause():
    group, ended = ChildGroup(), []
    thread = threading.Thread(target=lambda: ended.append(run(group, "print('ran')")))
    with group.paused():
        thread.start()
        time.sleep(0.3)
        assert not ended
        assert not group._running
    thread.join()
    assert ended == [(0, "ran\n")]


def test_process_that_takes_too_long_is_ended_with_what_it_started(tmp_path):
    ticks = tmp_path / "ticks"
    with pytest.raises(subprocess.TimeoutExpired):
        run(ChildGroup(), TICKING, ticks, timeout_s=0.5)
    wait_until(lambda: not [line for line in command_lines() if str(ticks) in line])


def test_closed_group_ends_its_processes_and_starts_no_more(ticking):
    group, _ = ticking
    (child,) = group._running
    with group.paused():
        group.close()
    wait_until(lambda: not group._running)
    wait_until(lambda: not members(child.pid))
    with pytest.raises(OSError, match="given up"):
        run(group, "")


# -- one child that runs Python --------------------------------------------------------------------


def echo(connection) -> None:
    """Run in the child: answers with what the message says."""
    while True:
        message = connection.recv()
        if message == "exit":
            print("last words", flush=True)
            os._exit(3)
        if message == "leave a copy":
            if os.fork():
                os._exit(4)
            time.sleep(60)
        if message != "say nothing":
            connection.send((os.getpid(), os.environ.get("ADDED"), message))


@pytest.fixture
def child():
    with PythonChild("test_processes:echo", environment={"ADDED": "yes"}, keeps_output=True) as child:
        yield child


def test_messages_go_to_another_process_and_come_back(child):
    for message in ("a", {"b": [1.5]}):
        child.send(message)
        assert child.receive(60.0) == (child.pid, "yes", message)


def test_an_answer_that_does_not_come_in_time(child):
    child.send("say nothing")
    with pytest.raises(TimeoutError):
        child.receive(0.2)
    child.send("a")
    assert child.receive(60.0)[2] == "a"


def test_a_child_that_ends_says_how_and_what_it_printed(child):
    child.send("exit")
    with pytest.raises(ChildEnded) as caught:
        child.receive(60.0)
    assert (caught.value.how, caught.value.code, caught.value.printed) == ("exited with code 3", 3, "last words")
    with pytest.raises(ChildEnded):
        child.send("a")


def test_a_child_that_ends_is_seen_though_a_copy_of_it_holds_the_connection(child):
    child.send("leave a copy")
    with pytest.raises(ChildEnded, match="exited with code 4"):
        child.receive(60.0)


# -- ending with the parent ------------------------------------------------------------------------


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(("is_paused", "hangup"), few([(False, signal.SIG_DFL), (True, signal.SIG_IGN)]))
def test_children_end_with_a_parent_that_is_killed(is_paused, hangup):
    script = f"""
        import os, signal, sys
        from mptune.backends import processes
        stubborn = "import signal, time; signal.pthread_sigmask(0, range(1, 65)); print(1, flush=True); time.sleep(60)"
        children = [processes.Child([sys.executable, "-c", stubborn], stdout=-1) for _ in range(2)]
        for child in children:
            child.stdout.read(1)
            if {is_paused}:
                child.signal(signal.SIGSTOP)
        print(*(child.pid for child in children), flush=True)
        os.kill(os.getpid(), 9)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        preexec_fn=functools.partial(signal.signal, signal.SIGHUP, hangup),
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    for pid in map(int, done.stdout.split()):
        wait_until(lambda pid=pid: is_gone(pid))
