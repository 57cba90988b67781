"""Run files that are missing, foreign, damaged or cannot be written: refused, explained, left as they are."""

from __future__ import annotations

import os
import random
import sqlite3
import tempfile
from collections import deque
from contextlib import contextmanager
from pathlib import Path

import pytest
from described import create

from mptune.errors import RunFileError
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.store import FORMAT_VERSION, RunFile, RunInfo, RunState


def trial(number=0, message=""):
    measurement = Measurement({"time_ms": (number + 1) / 7})
    return Trial(Configuration({"number": number}), Status.OK, message, measurement, key=f"key {number}")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.db"


# -- files that are not what they should be ------------------------------------------------------


def test_create_leaves_an_existing_file_alone(path):
    path.write_text("precious")
    with pytest.raises(RunFileError, match="is not a run file"):
        create(path, {})
    assert path.read_text() == "precious"


def test_missing_files_suggest_a_near_one(path):
    create(path.with_name("convolution2d.db"), {}).close()
    with pytest.raises(RunFileError, match=r"no run file .*convolution\.db; did you mean '.*/convolution2d\.db'\?"):
        RunFile.open(path.with_name("convolution.db"))
    with pytest.raises(RunFileError, match="there is no folder"):
        RunFile.open(path.parent / "nowhere" / "run.db")
    assert not path.exists()


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
def test_other_files_are_refused(path, content, message, read_only):
    path.write_bytes(content)
    with pytest.raises(RunFileError, match=message):
        RunFile.open(path, read_only=read_only)
    assert path.read_bytes() == content


@contextmanager
def edited(path):
    connection = sqlite3.connect(path)
    try:
        yield connection
        connection.commit()
    finally:
        connection.close()


@pytest.fixture
def filled(path):
    with create(path, {"seed": 0}) as file:
        file.add(*[trial(number, message="m" * 1000) for number in range(60)])
    return path


def test_a_foreign_database_is_refused(path):
    with edited(path) as connection:
        connection.execute("CREATE TABLE trials (x)")
    with pytest.raises(RunFileError, match="is an SQLite database, but not a run file"):
        RunFile.open(path)


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
        ("memory_bytes", [0], [-1, "Infinity"]),
        ("unseen_violations", [0], [-3, 1]),
        ("own_metric", [-1, "-Infinity"], []),
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


@pytest.mark.parametrize(("values", "message"), [({}, "no value None of its number"), ({"z": 1}, "no parameter 'z'")])
def test_a_trial_has_the_parameters_of_the_run(path, values, message):
    number = {"number": 1} if values else {}
    with create(path, {"parameters": [{"name": "number", "kind": "ordinal", "values": [1]}]}) as file:
        file.add(trial(1), Trial(Configuration({**number, **values}), Status.OK))
    with pytest.raises(RunFileError, match=f"trial 2 cannot be read: the run .*{message}"):
        Run.load(path)


# -- no room, no permission -----------------------------------------------------------------------


def test_a_full_disk_keeps_what_was_recorded(filled):
    with RunFile.open(filled) as file:
        (pages,) = file._connection.execute("PRAGMA page_count").fetchone()
        file._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(RunFileError, match="disk is full; every trial recorded so far is safe"):
            deque(file.add(trial(number, message="m" * 1000)) for number in range(60, 80))
        recorded = len(file.trials())
        with pytest.raises(RunFileError, match="disk is full"):
            file.update(RunState(), RunInfo(command="m" * 100_000))
    with RunFile.open(filled) as file:
        assert len(file.trials()) == recorded >= 60
        file.add(trial(1000))
        assert file.info == RunInfo(seed=0)


def test_a_file_taken_away_is_noticed(filled):
    with RunFile.open(filled) as file:
        filled.rename(filled.with_name("elsewhere.db"))
        with pytest.raises(RunFileError, match="moved or deleted while it was in use"):
            file.add(trial(1000))


@contextmanager
def without_privileges():
    """Root may write anywhere: be somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def locked_folder():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "runs"
        folder.mkdir()
        create(folder / "run.db", {"seed": 0}).close()
        (folder / "run.db").chmod(0o444)
        folder.chmod(0o555)
        Path(name).chmod(0o755)
        yield folder
        folder.chmod(0o755)


def test_a_read_only_folder_is_named_and_can_be_read(locked_folder):
    with without_privileges():
        for attempt in (
            lambda: create(locked_folder / "new.db", {}),
            lambda: create(locked_folder / "deeper" / "new.db", {}),
            lambda: RunFile.open(locked_folder / "run.db"),
        ):
            with pytest.raises(RunFileError, match=r"run file .*\.db cannot be opened: it or its folder is read-only"):
                attempt()
        with RunFile.open(locked_folder / "run.db", read_only=True) as file:
            assert file.info == RunInfo(seed=0)
            assert file.trials() == []
