"""The run file: what was recorded is there, exactly, whatever happens to the process or the file."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from described import create
from hypothesis import given, settings
from hypothesis import strategies as st

from mptune.errors import RunFileError
from mptune.results.objective import PENALTIES, Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.store import FORMAT_VERSION, ParameterInfo, RunFile, RunInfo, RunState


def trial(number=0, **fields):
    fields = {
        "status": Status.OK,
        "key": f"key {number}",
        "measurement": Measurement({"time_ms": (number + 1) / 7}),
    } | fields
    return Trial(Configuration({"number": number, "type": "fp32"}), **fields)


def exact(value):
    """Everything a trial holds as text: NaN equals NaN, True differs from 1, 0.0 from -0.0."""
    measurement = value.measurement
    return repr(
        (
            list(value.configuration.items()),
            value.status,
            value.message,
            sorted(measurement.metrics.items()),
            measurement.times_ms,
            sorted(measurement.durations_s.items()),
            value.warnings,
            value.key,
        )
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.db"


# -- what goes in comes out --------------------------------------------------------------------

numbers = st.floats(allow_nan=True, allow_infinity=True)
seconds = st.floats(0, 1e100)
#: A value is finite; metrics and times need not be.
finite = st.floats(allow_nan=False, allow_infinity=False)
values = st.one_of(st.integers(), st.booleans(), finite, st.text(), st.permutations([0, 1, 2, 3]).map(tuple))
trials = st.builds(
    Trial,
    configuration=st.dictionaries(st.text(), values, max_size=6).map(Configuration),
    status=st.sampled_from(Status),
    message=st.text(),
    measurement=st.builds(
        Measurement,
        metrics=st.dictionaries(st.text(), numbers, max_size=4),
        times_ms=st.lists(numbers, max_size=4).map(tuple),
        durations_s=st.dictionaries(st.text(), seconds, max_size=2),
    ),
    warnings=st.lists(st.text(), max_size=2).map(tuple),
    key=st.text(),
)
texts = st.text(max_size=5)
positive = st.floats(1e-30, 1e30)
described_values = st.one_of(st.integers(), st.booleans(), finite, texts, st.just((1, 0)))
value_tuples = st.lists(described_values, min_size=1, max_size=3).map(tuple)
objectives = st.builds(
    Objective,
    metric=st.sampled_from(["time_ms", "energy_j", "time_ms * energy_j"]),
    minimise=st.booleans(),
    threshold=st.none() | positive | st.dictionaries(texts, positive, min_size=1, max_size=2),
    penalty=st.sampled_from(PENALTIES),
    alpha=positive,
    beta=positive,
    constraints=st.just(()) | st.just(("energy_j <= 1.5",)),
    also=st.just(()) | st.just(("error", "memory_bytes")),
)
infos = st.builds(
    RunInfo,
    **dict.fromkeys(["kernel", "size", "device", "compiler", "command", "template_hash", "data_key"], texts),
    **dict.fromkeys(["kernel_path", "scheduler"], st.none() | texts),
    **dict.fromkeys(["budget", "seed", "configurations"], st.none() | st.integers(0)),
    **dict.fromkeys(["observers", "constraints", "signature"], st.lists(texts, max_size=2).map(tuple)),
    **dict.fromkeys(["versions", "strategy_options", "units"], st.dictionaries(texts, texts, max_size=2)),
    sizes=st.dictionaries(texts, st.integers(0), max_size=2),
    objective=objectives,
    baseline_values=st.none() | st.dictionaries(texts, value_tuples, max_size=2),
    parameters=st.lists(st.builds(ParameterInfo, texts, texts, value_tuples), max_size=2).map(tuple),
    constants=st.dictionaries(texts, described_values, max_size=2),
)
states = st.builds(
    RunState, seconds, seconds, seconds, seconds, st.integers(0), st.integers(0), st.lists(texts).map(tuple)
)


@settings(max_examples=8, deadline=None)
@given(st.lists(trials, max_size=4, unique_by=lambda t: (t.key, t.configuration.to_json())), infos, states)
def test_round_trip(recorded, info, state):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a run?#%.db"
        with RunFile.create(path, info) as file:
            for entry in recorded:
                file.add(entry)
            file.update(state)
            assert (file.info, file.state) == (info, state)
        with RunFile.open(path) as file:
            assert [exact(entry) for entry in file.trials()] == [exact(entry) for entry in recorded]
            assert (file.info, file.state) == (info, state)


def test_adding_again_replaces_and_keeps_the_place(path):
    with create(path, {}) as file:
        for number in (3, 1, 2):
            file.add(trial(number))
        file.add(trial(3))
        assert [t.configuration["number"] for t in file.trials()] == [3, 1, 2]
        file.add(trial(1, status=Status.TIMEOUT, measurement=Measurement()))
        assert [t.status for t in file.trials()] == [Status.OK, Status.TIMEOUT, Status.OK]
        file.add(trial(1, key="after an edit"))
        assert len(file.trials()) == 4


def test_a_trial_set_aside_keeps_its_place_and_is_none_of_the_run(path):
    with create(path, {}) as file:
        file.add(*[trial(number) for number in range(4)])
        file.retire([trial(1), trial(9)])
        assert [t.configuration["number"] for t in file.trials()] == [0, 2, 3]
        assert [t.configuration["number"] for t in file.trials(stale=True)] == [1]
        file.add(trial(1))
        assert [t.configuration["number"] for t in file.trials()] == [0, 1, 2, 3]


def test_trials_added_together_are_added_all_or_none(path):
    with create(path, {"seed": 0}) as file:
        file.add(trial(1), trial(2), state=RunState(wall_s=2.5))
        with pytest.raises(AttributeError):
            file.add(trial(4), trial(5, message=3.0), state=RunState(wall_s=9.0))
        assert file.state == RunState(wall_s=2.5)
    with RunFile.open(path) as file:
        assert [t.configuration["number"] for t in file.trials()] == [1, 2]
        assert len(file.trials()) == 2
        assert (file.info.seed, file.state) == (0, RunState(wall_s=2.5))


# -- one writer, any number of readers, and death at any moment -----------------------------------


def test_a_second_writer_is_told_who_the_first_is(path):
    with create(path, {}):
        for attempt in (lambda: RunFile.open(path), lambda: create(path.with_name("run.db"), {})):
            with pytest.raises(RunFileError, match=f"being written by process {os.getpid()} |exists already"):
                attempt()
        code = f"from mptune.store import RunFile; RunFile.open({str(path)!r})"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert f"is being written by process {os.getpid()} on" in other.stderr
    RunFile.open(path).close()


def test_a_reader_coming_and_going_does_not_unlock_the_file(path):
    with create(path, {}) as file:
        file.add(trial(1))
        RunFile.open(path, read_only=True).close()
        code = f"from mptune.store import RunFile; RunFile.open({str(path)!r})"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "is being written by process" in other.stderr


# -- run files that are missing, foreign, damaged or cannot be written: refused, explained, ----------


def store_faults_trial(number=0, message=""):
    measurement = Measurement({"time_ms": (number + 1) / 7})
    return Trial(Configuration({"number": number}), Status.OK, message, measurement, key=f"key {number}")


@pytest.fixture
def store_faults_path(tmp_path):
    return tmp_path / "run.db"


# -- files that are not what they should be ------------------------------------------------------


def test_create_leaves_an_existing_file_alone(store_faults_path):
    store_faults_path.write_text("precious")
    with pytest.raises(RunFileError, match="is not a run file"):
        create(store_faults_path, {})
    assert store_faults_path.read_text() == "precious"


def test_missing_files_suggest_a_near_one(store_faults_path):
    create(store_faults_path.with_name("convolution2d.db"), {}).close()
    with pytest.raises(RunFileError, match=r"no run file .*convolution\.db; did you mean '.*/convolution2d\.db'\?"):
        RunFile.open(store_faults_path.with_name("convolution.db"))
    with pytest.raises(RunFileError, match="there is no folder"):
        RunFile.open(store_faults_path.parent / "nowhere" / "run.db")
    assert not store_faults_path.exists()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: it was interrupted"),
        (b"not a database, but long enough to be taken for one" * 40, "not an SQLite database"),
        (b"SQLite format 3\0" + b"\xff" * 2000, "not an SQLite database|corrupt"),
        (b"\x80\x04\x95", "not an SQLite database"),
    ],
)
def test_other_files_are_refused(store_faults_path, content, message, read_only):
    store_faults_path.write_bytes(content)
    with pytest.raises(RunFileError, match=message):
        RunFile.open(store_faults_path, read_only=read_only)
    assert store_faults_path.read_bytes() == content


@contextmanager
def edited(store_faults_path):
    connection = sqlite3.connect(store_faults_path)
    try:
        yield connection
        connection.commit()
    finally:
        connection.close()


@pytest.fixture
def filled(store_faults_path):
    with create(store_faults_path, {"seed": 0}) as file:
        file.add(*[store_faults_trial(number, message="m" * 1000) for number in range(60)])
    return store_faults_path


def test_a_foreign_database_is_refused(store_faults_path):
    with edited(store_faults_path) as connection:
        connection.execute("CREATE TABLE trials (x)")
    with pytest.raises(RunFileError, match="is an SQLite database, but not a run file"):
        RunFile.open(store_faults_path)


def test_another_version_is_refused(filled):
    for version, advice in (
        (FORMAT_VERSION + 1, "upgrade mptune"),
        (FORMAT_VERSION - 1, "remove it or name another file"),
    ):
        with edited(filled) as connection:
            connection.execute(f"PRAGMA user_version = {version}")
        with pytest.raises(
            RunFileError, match=f"has format {version} and this mptune reads {FORMAT_VERSION}: {advice}"
        ):
            RunFile.open(filled, read_only=True)


def test_truncated_files_are_refused(filled):
    content = filled.read_bytes()
    for share in (0.01, 0.3, 0.6, 0.99):
        filled.write_bytes(content[: int(len(content) * share)])
        with pytest.raises(RunFileError, match=r"corrupt|not an SQLite database"):
            RunFile.open(filled, read_only=True)


def test_a_file_with_any_bytes_changed_is_refused_or_read(filled):
    chance, content, refused = random.Random(2), filled.read_bytes(), 0
    for _ in range(100):
        data, at = bytearray(content), chance.randrange(len(content))
        data[at : at + chance.randrange(1, 64)] = chance.randbytes(chance.randrange(64))
        filled.write_bytes(data)
        try:
            Run.load(filled)
        except RunFileError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DROP TABLE trials", "no such table: trials"),
        ("UPDATE trials SET status = 'great' WHERE id = 7", "trial 7 cannot be read.*great"),
        ("UPDATE trials SET metrics = '[1]' WHERE id = 8", "trial 8 cannot be read"),
        ("UPDATE trials SET times_ms = x'0102' WHERE id = 9", "trial 9 cannot be read"),
        ("UPDATE trials SET message = CAST(x'eda080' AS TEXT) WHERE id = 9", "UTF-8"),
        ("UPDATE trials SET durations_s = '{\"compile\": 1e308}' WHERE id = 9", "trial 9 cannot be read.*0 or more"),
        (
            f"UPDATE settings SET value = '{'9' * 5000}' WHERE name = 'seed'",
            r"read \(a number of it has thousands of d",
        ),
        ("DELETE FROM settings", "its settings lack 'kernel'"),
        ("UPDATE trials SET message = CAST(zeroblob(17000000) AS TEXT) WHERE id = 9", "a cell of it is larger than 16"),
        ("UPDATE settings SET value = 'import os'", "settings cannot be read"),
    ],
)
def test_damaged_rows_are_named(filled, change, message):
    with edited(filled) as connection:
        connection.execute(change)
    with pytest.raises(RunFileError, match=message), RunFile.open(filled, read_only=True) as file:
        file.trials()


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("time_ms", [1e-30, 1e30], [0, -1, 1e-320, 1e308, "Infinity"]),
        ("error", [0, "Infinity", "NaN"], [-1e-300, "-Infinity"]),
        ("unseen_violations", [0], [-3, 1]),
    ],
)
def test_metrics_are_within_their_ranges(filled, name, right, wrong):
    for values, is_right in ((right, True), (wrong, False)):
        for value in values:
            with edited(filled) as connection:
                connection.execute("UPDATE trials SET metrics = ? WHERE id = 8", (f'{{"{name}": {value}}}',))
            if is_right:
                assert len(Run.load(filled).trials) == 60
            else:
                with pytest.raises(RunFileError, match=f"trial 8 cannot be read: its field '{name}' should be"):
                    Run.load(filled)


# -- no room, no permission -----------------------------------------------------------------------


def test_a_full_disk_keeps_what_was_recorded(filled):
    with RunFile.open(filled) as file:
        (pages,) = file._connection.execute("PRAGMA page_count").fetchone()
        file._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(RunFileError, match="disk is full; every trial recorded so far is safe"):
            deque(file.add(store_faults_trial(number, message="m" * 1000)) for number in range(60, 80))
        recorded = len(file.trials())
        with pytest.raises(RunFileError, match="disk is full"):
            file.update(RunState(), RunInfo(command="m" * 100_000))
    with RunFile.open(filled) as file:
        assert len(file.trials()) == recorded >= 60
        file.add(store_faults_trial(1000))
        assert file.info == RunInfo(seed=0)


def test_a_file_taken_away_is_noticed(filled):
    with RunFile.open(filled) as file:
        filled.rename(filled.with_name("elsewhere.db"))
        with pytest.raises(RunFileError, match="moved or deleted while it was in use"):
            file.add(store_faults_trial(1000))


# -- two processes that write one run file and are killed at any moment: whatever either was ---------

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
