"""Child processes, memory and folders of the machine."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host import HostBackend
from mptune.backends.processes import ChildEnded, ChildGroup, PythonChild
from mptune.errors import OutOfMemoryError
from mptune.memory import available_memory_bytes, total_memory_bytes
from mptune.paths import cache_folder, is_own, open_own, own_folder, write_whole
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


def test_process_that_takes_too_long_is_ended_with_what_it_started(tmp_path):
    ticks = tmp_path / "ticks"
    with pytest.raises(subprocess.TimeoutExpired):
        run(ChildGroup(), TICKING, ticks, timeout_s=0.5)
    wait_until(lambda: not [line for line in command_lines() if str(ticks) in line])


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


# -- how much memory is left, on a machine and within control groups ---------------------------------


def machine(root, kilobytes=8_000_000):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 16000000 kB\nMemAvailable: {kilobytes} kB\nSwapFree: 0 kB\n")


def group(folder, limit, used, reclaimable, names=("memory.max", "memory.current", "inactive_file")):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {reclaimable}\n")


def test_the_tightest_enclosing_group_counts(tmp_path):
    machine(tmp_path)
    (tmp_path / "proc/self/cgroup").write_text("0::/jobs/42/step\n")
    groups = tmp_path / "sys/fs/cgroup"
    group(groups / "jobs/42/step", "max", 100, 0)
    group(groups / "jobs/42", 5000, 3000, 600)
    group(groups / "jobs", 9000, 3000, 0)
    assert available_memory_bytes(tmp_path) == 5000 - 3000 + 600
    assert total_memory_bytes(tmp_path) == 5000
    group(groups / "jobs", 4000, 5000, 0)
    assert available_memory_bytes(tmp_path) == 0


def test_groups_of_version_1(tmp_path):
    machine(tmp_path)
    (tmp_path / "proc/self/cgroup").write_text("5:cpu,cpuacct:/a\n3:memory:/a\n0::/\n")
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    group(tmp_path / "sys/fs/cgroup/memory/a", 4096, 1000, 96, names)
    assert available_memory_bytes(tmp_path) == 3192


def test_the_host_allocates_no_more_than_the_enclosing_groups_allow(tmp_path, monkeypatch):
    machine(tmp_path)
    (tmp_path / "proc/self/cgroup").write_text("0::/jobs/42/step\n")
    group(tmp_path / "sys/fs/cgroup/jobs/42/step", "max", 100, 0)
    group(tmp_path / "sys/fs/cgroup/jobs", 9000, 3000, 0)
    for function in (available_memory_bytes, total_memory_bytes):
        monkeypatch.setattr(f"mptune.backends.host.{function.__name__}", functools.partial(function, tmp_path))
    device = HostBackend().device
    assert device.describe().memory_bytes == 9000
    with pytest.raises(OutOfMemoryError, match="6001 bytes were requested and 6000 bytes of host memory are available"):
        device.allocate(6001)
    device.allocate(6000).free()


# -- where mptune keeps its caches, whom it trusts with them, and files that are written whole -------


def test_where_caches_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPTUNE_CACHE_DIR", "/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder("references") == Path("/own/references")
    assert BinaryCache().directory == Path("/own/binaries")
    monkeypatch.delenv("MPTUNE_CACHE_DIR")
    assert cache_folder("references") == Path("/xdg/mptune/references")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder("references") == Path("/home/someone/.cache/mptune/references")


# -- folders and files of the user's own ---------------------------------------------------------


def test_a_folder_is_made_for_the_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = own_folder(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert folder == (tmp_path / "a" / "b").resolve()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)] == [0o700, 0o700]
    folder.chmod(0o777)
    own_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_file_others_can_write_is_not_opened(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"own")
    with open_own(file) as opened:
        assert opened.read() == b"own"
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loose").touch()
    (tmp_path / "loose").chmod(0o666)
    for name in ("link", "pipe", "loose", "missing"):
        assert not is_own(tmp_path / name)
        with pytest.raises(OSError, match=r"can be changed by others|symbolic link|No such file"):
            open_own(tmp_path / name)


def test_code_is_loaded_only_from_entries_nobody_else_can_write(tmp_path: Path) -> None:
    keys = [BinaryCache.key([name]) for name in ("one", "two")]
    BinaryCache(tmp_path).put(keys[0], b"code")
    (entry,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert BinaryCache(tmp_path).get(keys[0]) == b"code"
    # A whole entry under another name is none.
    other = tmp_path / keys[1][:2] / keys[1][2:]
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(entry.read_bytes())
    assert BinaryCache(tmp_path).get(keys[1]) is None
    entry.chmod(0o666)
    assert BinaryCache(tmp_path).get(keys[0]) is None
    entry.chmod(0o600)
    tmp_path.chmod(0o777)
    (tmp_path / keys[0][:2]).chmod(0o700)
    assert BinaryCache(tmp_path).get(keys[0]) is None
    with BinaryCache(tmp_path / "below").workspace() as folder:
        assert not folder.is_relative_to(tmp_path)
    tmp_path.chmod(0o700)


# -- files written whole -------------------------------------------------------------------------


def test_a_file_is_there_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    write_whole(file, b"first")
    file.chmod(0o640)
    (tmp_path / "link").symlink_to(file)
    write_whole(tmp_path / "link", b"second")
    assert file.read_bytes() == b"second"
    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, b"third")
    assert file.read_bytes() == b"second"
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link"}
