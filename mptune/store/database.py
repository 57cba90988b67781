"""The SQLite side of a run file: its tables, how it is recognised, and what its errors mean to a user."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mptune.errors import RunFileError

__all__ = [
    "FORMAT_VERSION", "INSERT_TRIAL", "RETIRE_TRIAL", "SELECT_SETTING", "SELECT_SETTINGS", "SELECT_TRIALS", "SOURCES",
    "UPSERT_SETTING", "connect", "create_tables", "explained", "recognise", "require_own", "sign", "transaction",
    "writer",
]  # fmt: skip

#: Raised with every change of the tables, or of the meaning of a field; a file of another version is refused.
FORMAT_VERSION: Final = 8
#: No text or blob of a run file is larger.
_LARGEST_CELL_BYTES: Final = 16 << 20

_APPLICATION_ID: Final = int.from_bytes(b"mptu", "big")
_BUSY_TIMEOUT_S: Final = 60.0
#: Trials go into the index by their keys, which come in no order: of a large file, much of it is needed at once.
_CACHE_KIB: Final = 128 * 1024
_SETTLED: Final = "every trial recorded so far is safe"

_SCHEMA: Final = (
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT_VERSION}",
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value NOT NULL)",
    """CREATE TABLE trials (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        configuration TEXT NOT NULL,
        stale INTEGER NOT NULL DEFAULT 0,
        status TEXT NOT NULL,
        message TEXT NOT NULL,
        metrics TEXT NOT NULL,
        times_ms BLOB NOT NULL,
        durations_s TEXT NOT NULL,
        warnings TEXT NOT NULL,
        UNIQUE (key, configuration)
    )""",
)
#: The cells of a trial beside its number, which counts from 1, and whether it is stale.
_COLUMNS: Final = (
    "key", "configuration", "status", "message", "metrics", "times_ms", "durations_s", "warnings",
)  # fmt: skip

#: A trial of the same key and configuration keeps its number.
INSERT_TRIAL: Final = (
    f"INSERT INTO trials ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "
    "ON CONFLICT (key, configuration) DO UPDATE SET "
    f"{', '.join(f'{name} = excluded.{name}' for name in (*_COLUMNS, 'stale'))}"
)
SELECT_TRIALS: Final = f"SELECT id, {', '.join(_COLUMNS)} FROM trials WHERE stale = ? ORDER BY id"
RETIRE_TRIAL: Final = "UPDATE trials SET stale = 1 WHERE key = ? AND configuration = ?"
UPSERT_SETTING: Final = (
    "INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
#: The settings beside those in JSON.
WRITER: Final = "writer"
SOURCES: Final = "rendered_sources"
SELECT_SETTINGS: Final = f"SELECT name, value FROM settings WHERE name NOT IN ('{WRITER}', '{SOURCES}')"
SELECT_SETTING: Final = "SELECT value FROM settings WHERE name = ?"

_TABLES: Final = frozenset({"settings", "trials"})


def connect(path: Path) -> sqlite3.Connection:
    """Open the database of an existing file; a file or folder without write permission can still be read."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=_BUSY_TIMEOUT_S
    )
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_CELL_BYTES)
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    except BaseException:
        connection.close()
        raise
    return connection


def create_tables(connection: sqlite3.Connection) -> None:
    """Make an empty database a run file; call it within a transaction."""
    for statement in _SCHEMA:
        connection.execute(statement)


def require_own(path: Path, connection: sqlite3.Connection) -> None:
    """Raise RunFileError unless a database is a run file, of whatever version."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != _APPLICATION_ID:
        raise RunFileError(f"{path} is an SQLite database, but not a run file of mptune")


def recognise(path: Path, connection: sqlite3.Connection, *, thorough: bool) -> None:
    """Check that a database is a whole run file.

    A thorough check looks at every page; reading every trial, which readers do anyway, meets a damaged one too.

    Raises:
        RunFileError: it is foreign, corrupt or of another version.
    """
    require_own(path, connection)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != FORMAT_VERSION:
        advice = (
            "upgrade mptune to read it"
            if version > FORMAT_VERSION
            else "remove it or name another file, and tune again"
        )
        raise RunFileError(f"run file {path} has format {version} and this mptune reads {FORMAT_VERSION}: {advice}")
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if missing := _TABLES - found:
        raise RunFileError(f"run file {path} is corrupt: it has no table {', '.join(sorted(missing))}")
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    if path.stat().st_size < pages * page_bytes:
        raise RunFileError(f"run file {path} is corrupt or was copied in part: its last page is not whole")
    if thorough:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise RunFileError(f"run file {path} is corrupt: {verdict}")


def sign(connection: sqlite3.Connection) -> None:
    """Note who writes, for the message another writer gets."""
    who = f"{os.getpid()} on {socket.gethostname()}"
    connection.execute(UPSERT_SETTING, (WRITER, who))


def writer(path: Path) -> str:
    """Return who writes a run file, "unknown" where it does not say."""
    try:
        with contextlib.closing(connect(path)) as connection:
            return str(connection.execute(SELECT_SETTING, (WRITER,)).fetchone()[0])
    except (sqlite3.Error, TypeError):
        return "unknown"


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit what happens inside, or none of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite and of the operating system into RunFileError.

    Raises:
        RunFileError: SQLite or the operating system failed inside.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise RunFileError(_explain(path, getattr(error, "sqlite_errorname", None) or "", str(error))) from error
    except OSError as error:
        raise RunFileError(_explain_os(path, error)) from error


def _explain(path: Path, name: str, text: str) -> str:
    explanations = {
        "SQLITE_TOOBIG": f"run file {path} is corrupt: a cell of it is larger than {_LARGEST_CELL_BYTES >> 20} MiB",
        "SQLITE_NOTADB": f"{path} is not a run file (not an SQLite database)",
        "SQLITE_CORRUPT": f"run file {path} is corrupt or was copied in part ({text})",
        "SQLITE_FULL": f"run file {path} cannot be written: the disk is full; {_SETTLED}, free space and --resume",
        "SQLITE_READONLY_DBMOVED": f"run file {path} was moved or deleted while it was in use",
        "SQLITE_READONLY": f"run file {path} cannot be written: it was opened read-only, or it or its folder is",
        "SQLITE_CANTOPEN": f"run file {path} cannot be opened: no permission, or its folder is read-only",
        "SQLITE_BUSY": f"run file {path} was kept busy by another process for {_BUSY_TIMEOUT_S:g} s; {_SETTLED}",
        "SQLITE_IOERR": f"run file {path} cannot be read or written: input/output error ({text}); {_SETTLED}",
    }
    for prefix, explanation in explanations.items():
        if name.startswith(prefix):
            return explanation
    return f"run file {path}: {text}"


def _explain_os(path: Path, error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"run file {path} cannot be opened: it or its folder is read-only, or there is no permission"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"run file {path} cannot be written: the disk is full"
    return f"run file {path} cannot be opened: {error.strerror or error}"
