"""Checksums of run files: what was changed is refused, what cannot be told is marked; and nothing in a file runs."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from described import create

from mptune.errors import RunFileError
from mptune.results import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.store import FORMAT_VERSION, RunFile, RunState

PARAMETERS = [{"name": "number", "kind": "ordinal", "values": list(range(10))}]


def trial(number: int, time_ms: float = 1.0, message: str = "") -> Trial:
    return Trial(
        Configuration({"number": number}), Status.OK, message, Measurement({"time_ms": time_ms}), key=f"key {number}"
    )


@contextlib.contextmanager
def edited(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with create(tmp_path / "run.db", {"seed": 0, "kernel": "k", "parameters": PARAMETERS}) as file:
        file.add_all([trial(number) for number in range(6)])
        file.add(trial(2, time_ms=3.0), state=RunState(wall_s=2.5))
        file.retire([trial(5)])
        file.keep_sources({'{"number":1}': "int x;\n"})
    return tmp_path / "run.db"


def unseal(path: Path) -> None:
    """Make a run file what it was before there were checksums."""
    with edited(path) as connection:
        connection.execute("ALTER TABLE trials DROP COLUMN checksum")
        connection.execute("DELETE FROM meta WHERE name IN ('seal', 'sources')")
        connection.execute("PRAGMA user_version = 1")


def test_a_file_of_before_kernels_had_trials_is_read_and_gone_on_with(path: Path) -> None:
    with edited(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    assert Run.load(path).is_verified
    assert Run.load(path).kernel_trials == {}
    with RunFile.open(path) as file:
        file.add(trial(7), "kernel scale n=3")
        assert [t.configuration["number"] for t in file.kernel_trials()["scale n=3"]] == [7]
    with edited(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT_VERSION,)
    run = Run.load(path)
    assert [t.configuration["number"] for t in run.trials] == [0, 1, 2, 3, 4]
    assert list(run.kernel_trials) == ["scale n=3"]


def test_what_was_written_is_read(path: Path) -> None:
    run = Run.load(path)
    assert [trial.configuration["number"] for trial in run.trials] == [0, 1, 2, 3, 4]
    assert run.trials[2].time_ms == 3.0
    assert run.state.wall_s == 2.5
    assert run.sources == {'{"number":1}': "int x;\n"}
    assert run.is_verified


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE trials SET metrics = '{\"time_ms\": 0.5}' WHERE id = 2", "trial 2 is not as it was written"),
        ("UPDATE trials SET phase = 'baseline' WHERE id = 2", "trial 2 is not as it was written"),
        ("UPDATE trials SET phase = 'search' WHERE id = 6", "trial 6 is not as it was written"),
        ("UPDATE trials SET id = 99 WHERE id = 2", "trial 99 is not as it was written"),
        ("UPDATE trials SET checksum = x'' WHERE id = 2", "trial 2 is not as it was written"),
        ("DELETE FROM trials WHERE id = 2", "holds 5 trials, not the 6 that were written"),
        ("UPDATE settings SET value = '7' WHERE name = 'seed'", "its settings are not as they were written"),
        ("UPDATE settings SET value = '9.5' WHERE name = 'wall_s'", "its settings are not as they were written"),
        ("DELETE FROM settings WHERE name = 'threshold'", "its settings are not as they were written"),
        ("UPDATE meta SET value = x'00' WHERE name = 'sources'", "its sources are not as they were written"),
        ("DELETE FROM meta WHERE name = 'sources'", "its sources are not as they were written"),
        ("UPDATE meta SET value = value || ' ' WHERE name = 'seal'", "its seal is damaged"),
        ("DELETE FROM meta WHERE name = 'seal'", "its seal is damaged"),
        ("PRAGMA user_version = 1", "the columns of its table 'trials' are not a run's"),
    ],
)
def test_a_change_is_refused(path: Path, change: str, message: str) -> None:
    with edited(path) as connection:
        connection.execute(change)
    with pytest.raises(RunFileError, match=message):
        Run.load(path)


def test_a_value_the_run_does_not_list_is_refused(path: Path) -> None:
    with RunFile.open(path) as file:
        file.add(trial(77))
    with pytest.raises(RunFileError, match=r"trial 7 .*its number is 77, which is none of the values the run lists"):
        Run.load(path)


def test_a_file_without_checksums_is_read_and_stays_marked(path: Path) -> None:
    unseal(path)
    assert not Run.load(path).is_verified
    before = path.read_bytes()
    assert len(Run.load(path).trials) == 5
    assert path.read_bytes() == before
    with RunFile.open(path) as file:
        file.add(trial(7))
        assert not file.is_verified
    run = Run.load(path)
    assert len(run.trials) == 6
    assert not run.is_verified
    with edited(path) as connection:
        connection.execute("UPDATE trials SET message = 'x' WHERE id = 1")
    with pytest.raises(RunFileError, match="trial 1 is not as it was written"):
        Run.load(path)


def test_reading_while_another_writes_sees_one_moment(path: Path) -> None:
    with RunFile.open(path, read_only=True) as reader, RunFile.open(path) as writer:
        writer.add(trial(8), state=RunState(wall_s=9.0))
        assert len(reader.trials()) == 6


def test_long_messages_are_cut(path: Path) -> None:
    with RunFile.open(path) as file:
        file.add(trial(9, message="x" * 3_000_000))
    assert 100_000 < len(Run.load(path).trials[-1].message) < 1_000_000


# -- what SQLite could do ------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("CREATE VIEW more AS WITH RECURSIVE c(x) AS (VALUES(1) UNION ALL SELECT x FROM c) SELECT x", "view 'more'"),
        ("CREATE TRIGGER more AFTER INSERT ON meta BEGIN SELECT load_extension('x'); END", "trigger 'more'"),
        ("CREATE INDEX more ON trials (length(message))", "index 'more'"),
        ("CREATE TABLE more (x)", "table 'more'"),
        ("ALTER TABLE trials ADD COLUMN more AS (printf('%d', 1))", "the columns of its table 'trials'"),
    ],
)  # fmt: skip
def test_more_than_plain_tables_is_refused(path: Path, change: str, message: str, read_only: bool) -> None:
    with edited(path) as connection:
        connection.execute(change)
    with pytest.raises(RunFileError, match=message):
        RunFile.open(path, read_only=read_only)


def test_no_statement_reaches_out_of_a_run_file(path: Path) -> None:
    with RunFile.open(path, read_only=True) as file:
        connection = file._open_connection()
        for statement in (
            "ATTACH '/tmp/x' AS y",
            "SELECT load_extension('x')",
            "SELECT randomblob(10)",
            "DROP TABLE meta",
        ):
            with pytest.raises(sqlite3.DatabaseError):
                connection.execute(statement)


def test_a_journal_that_names_other_files_is_not_followed(path: Path) -> None:
    journal = path.with_name(f"{path.name}-journal")
    journal.write_bytes(bytes(600) + bytes.fromhex("d9d505f920a163d7"))
    with pytest.raises(RunFileError, match="names other files"):
        Run.load(path)
    journal.unlink()
    assert Run.load(path).trials


@pytest.mark.parametrize("data", [zlib.compress(bytes(1 << 27)), b"no zlib", zlib.compress(b"[1]")])
def test_sources_that_are_none_are_refused(path: Path, data: bytes) -> None:
    from mptune.store.seal import checksum

    with edited(path) as connection:
        own, _, text = connection.execute("SELECT value FROM meta WHERE name = 'seal'").fetchone()[0].partition(" ")
        assert own
        text = json.dumps(json.loads(text) | {"sources": checksum((data,)).hex()})
        connection.execute("UPDATE meta SET value = ? WHERE name = 'sources'", (data,))
        connection.execute("UPDATE meta SET value = ? WHERE name = 'seal'", (f"{checksum((text,)).hex()} {text}",))
    with pytest.raises(RunFileError, match="its sources"):
        Run.load(path)
