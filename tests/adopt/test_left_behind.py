"""What adopting leaves behind when it ends, and when it is ended: nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from mptune.adopt.parsing import SourceFile
from mptune.adopt.running import build, run

SOURCE = Path(__file__).parent / "programs" / "left_behind.cu"
ENDING_S = 60.0
pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="asks /proc which processes there are")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A program whose processes are called as no other's."""
    return Path(shutil.copy(SOURCE, tmp_path / f"left_behind_{os.getpid()}_{uuid.uuid4().hex}.cu"))


def running(source: Path) -> list[int]:
    """The processes of the program."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            program = (folder / "cmdline").read_bytes().split(b"\0")[0]
        except OSError:
            continue
        if Path(os.fsdecode(program)).name == f"{source.stem}_cu":
            found.append(int(folder.name))
    return found


def all_end(source: Path) -> bool:
    """Whether all processes of the program end; one that was killed may be there for a moment longer."""
    limit = time.monotonic() + ENDING_S
    while running(source) and time.monotonic() < limit:
        time.sleep(0.05)
    return not running(source)


def test_what_a_program_starts_ends_with_it(source: Path, tmp_path: Path) -> None:
    (tmp_path / "writes").mkdir()
    ran = run(build([source], [SourceFile.read(source)]), writes=tmp_path / "writes")
    assert ran.output == "31.5\n"
    assert all_end(source)


@pytest.mark.full
def test_a_command_that_is_ended_leaves_no_folder_and_no_process(source: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mptune", "adopt", str(source), "--", "600"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as child:
        limit = time.monotonic() + 250
        while len(running(source)) < 2 and child.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)
        assert [path.name[:9] for path in (tmp_path / "adopted").iterdir()] == [".adopted-"]
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 128 + signal.SIGTERM
    assert list((tmp_path / "adopted").iterdir()) == []
    assert all_end(source)
