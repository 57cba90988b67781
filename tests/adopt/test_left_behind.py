"""What adopting leaves behind when it ends, and when it is ended: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mptune.adopt.parsing import SourceFile
from mptune.adopt.running import build, run

SOURCE = Path(__file__).parent / "programs" / "left_behind.cu"
pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="asks /proc which processes there are")


def running() -> list[int]:
    """The processes of the program."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            program = (folder / "cmdline").read_bytes().split(b"\0")[0]
        except OSError:
            continue
        if Path(os.fsdecode(program)).name == "left_behind_cu":
            found.append(int(folder.name))
    return found


def test_what_a_program_starts_ends_with_it(tmp_path: Path) -> None:
    before = running()
    ran = run(build([SOURCE], [SourceFile.read(SOURCE)]), writes=tmp_path)
    assert ran.output == "31.5\n"
    assert set(running()) <= set(before)


def test_a_command_that_is_ended_leaves_no_folder_and_no_process(tmp_path: Path) -> None:
    before = running()
    command = [sys.executable, "-m", "mptune", "adopt", str(SOURCE), "--", "600"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as child:
        limit = time.monotonic() + 300
        while len(set(running()) - set(before)) < 2 and child.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)
        assert [path.name[:9] for path in (tmp_path / "adopted").iterdir()] == [".adopted-"]
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 128 + signal.SIGTERM
    assert list((tmp_path / "adopted").iterdir()) == []
    assert set(running()) <= set(before)
