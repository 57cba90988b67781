"""Two processes that write one run file and are killed at any moment: whatever either was told is kept, is kept."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from described import create
from hypothesis import given, settings
from hypothesis import strategies as st

from mptune.store import RunFile

#: What a killed process leaves behind does not depend on the disk; waiting for a disk would take most of the time.
MEMORY = "/dev/shm"

#: Opens the file again and again, as soon as the other has it no more, and tells of each trial that is recorded.
WRITER = """
import dataclasses, os, random, sys, time
from mptune.errors import RunFileError
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.store import RunFile, run_file

path, writer, number, locks = sys.argv[1], *map(int, sys.argv[2:])
if not locks:
    run_file._lock = lambda *_: os.open(os.devnull, os.O_RDONLY)
chance = random.Random(1000 * writer + number)
print("ready", flush=True)
while True:
    try:
        file = RunFile.open(path)
    except RunFileError as error:
        assert "is being written by process" in str(error), error
        time.sleep(0.001)
        continue
    with file:
        for _ in range(chance.randrange(1, 6)):
            configuration = Configuration({"writer": writer, "number": number})
            measurement = Measurement({"time_ms": (number + 1) / 7})
            trial = Trial(configuration, Status.OK, "x" * 3000, measurement, key=f"{writer} {number}")
            file.add(trial, state=dataclasses.replace(file.state, **{("stale", "workers")[writer]: number + 1}))
            print(number, flush=True)
            number += 1
    time.sleep(0.002)
"""


@dataclass
class Writer:
    """One of the two writers, over all its lives."""

    path: Path
    number: int
    locks: bool
    next_trial: int = 0
    told: list[int] = field(default_factory=list)
    process: subprocess.Popen[str] = field(init=False)

    def start(self) -> None:
        command = [sys.executable, "-c", WRITER, str(self.path)]
        numbers = [str(self.number), str(self.next_trial), str(int(self.locks))]
        self.process = subprocess.Popen([*command, *numbers], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def wait_for(self, trials: int) -> None:
        """Wait until that many more trials are recorded."""
        assert self.process.stdout is not None
        for _ in range(trials):
            line = self.process.stdout.readline()
            assert line, "the writer ended by itself"
            self.told.append(int(line))

    def kill(self) -> None:
        """Kill it, and note what it told of before; a second time does nothing."""
        assert self.process.stdout is not None
        if self.process.stdout.closed:
            return
        self.process.kill()
        rest = self.process.communicate()[0]
        # A line cut short by the kill says nothing.
        self.told += [int(line) for line in rest.split("\n")[:-1]]

    def check(self, file: RunFile) -> None:
        """Everything told of is there, in order and with its numbers; at most the last one was not told of any more."""
        trials = [t for t in file.trials() if t.configuration["writer"] == self.number]
        found = [t.configuration["number"] for t in trials]
        assert found == list(range(len(found)))
        assert all(t.time_ms == (t.configuration["number"] + 1) / 7 and len(t.message) == 3000 for t in trials)
        assert set(self.told) <= set(found)
        if found:
            assert (file.state.stale, file.state.workers)[self.number] == found[-1] + 1
        self.next_trial = len(found)


kills = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 6), st.floats(0.0, 0.02)), min_size=2, max_size=3)


@pytest.mark.full
@pytest.mark.parametrize("locks", [True, False])
@settings(max_examples=2, deadline=None)
@given(kills)
def test_two_writers_killed_at_any_moment_lose_nothing(locks: bool, schedule: list[tuple[int, int, float]]) -> None:
    # Without mptune's lock, as on a file system that has none, SQLite's own still keep the writers apart.
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        path = Path(folder) / "run.db"
        create(path, {"seed": 0}).close()
        writers = [Writer(path, number, locks) for number in (0, 1)]
        try:
            for writer in writers:
                writer.start()
            for victim, trials, delay_s in schedule:
                writers[victim].wait_for(trials)
                time.sleep(delay_s)
                writers[victim].kill()
                with RunFile.open(path, read_only=True) as file:
                    writers[victim].check(file)
                writers[victim].start()
            for writer in writers:
                writer.wait_for(1)
        finally:
            for writer in writers:
                writer.kill()
        with RunFile.open(path) as file:
            for writer in writers:
                writer.check(file)
            assert max(Counter(trial.key for trial in file.trials()).values()) == 1
            assert file.info.seed == 0
