"""The SQLite side of a run file: its tables, how it is recognised, and what its errors mean to a user.

A file may come from anyone. So one that holds anything beside plain tables (a view or a trigger is code) is refused,
an authorizer permits what this package does and nothing else, no cell may be larger than a run writes, and reading
takes no more steps than there can be rows. See "Defense Against The Dark Arts", sqlite.org/security.html.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mptune.errors import RunFileError

__all__ = [
    "COLUMNS", "FORMAT_VERSION", "INSERT_TRIAL", "KERNEL", "KNOWN_TRIAL", "LARGEST_CELL_BYTES", "PROBE", "RESEAL_TRIAL",
    "SELECT_TRIALS", "STALE", "UNSEALED_VERSION", "UPSERT_META", "UPSERT_SETTING", "add_checksums", "connect",
    "create_tables", "explained", "recognise", "set_version", "sign", "snapshot", "transaction", "writer",
]  # fmt: skip

#: Raised with every change of the tables that an older mptune could not read; 3 has trials of single kernels, too.
FORMAT_VERSION: Final = 3
#: The version before trials had checksums, which is read too.
UNSEALED_VERSION: Final = 1
#: No text or blob of a run file is larger.
LARGEST_CELL_BYTES: Final = 16 << 20

#: Phases of trials that are none of the run: set aside, or measured to explain it.
STALE: Final = "stale"
PROBE: Final = "probe"
#: How phases begin of trials of an application's kernels alone; after it comes which launch they are of.
KERNEL: Final = "kernel "

_APPLICATION_ID: Final = int.from_bytes(b"mptu", "big")
_BUSY_TIMEOUT_S: Final = 60.0
#: Trials go into the index by their keys, which come in no order: of a large file, much of it is needed at once.
_CACHE_KIB: Final = 128 * 1024
_SETTLED: Final = "every trial recorded so far is safe"

_CHECKSUM: Final = "checksum BLOB NOT NULL DEFAULT x''"
_SCHEMA: Final = (
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT_VERSION}",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    f"""CREATE TABLE trials (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        configuration TEXT NOT NULL,
        phase TEXT NOT NULL,
        status TEXT NOT NULL,
        message TEXT NOT NULL,
        metrics TEXT NOT NULL,
        times_ms BLOB NOT NULL,
        durations_s TEXT NOT NULL,
        reused_error INTEGER NOT NULL,
        warnings TEXT NOT NULL,
        {_CHECKSUM},
        UNIQUE (key, configuration)
    )""",
)
#: The cells of a trial, which its checksum covers.
COLUMNS: Final = (
    "id", "key", "configuration", "phase", "status", "message", "metrics", "times_ms", "durations_s", "reused_error",
    "warnings",
)  # fmt: skip
_ALL: Final = (*COLUMNS, "checksum")

INSERT_TRIAL: Final = f"INSERT OR REPLACE INTO trials ({', '.join(_ALL)}) VALUES ({', '.join('?' * len(_ALL))})"
SELECT_TRIALS: Final[dict[int, str]] = {
    **dict.fromkeys((2, FORMAT_VERSION), f"SELECT {', '.join(_ALL)} FROM trials ORDER BY id"),
    UNSEALED_VERSION: f"SELECT {', '.join(COLUMNS)}, x'' FROM trials ORDER BY id",
}
KNOWN_TRIAL: Final = f"SELECT {', '.join(_ALL)} FROM trials WHERE key = ? AND configuration = ?"
RESEAL_TRIAL: Final = "UPDATE trials SET phase = ?, checksum = ? WHERE id = ?"
UPSERT_SETTING: Final = (
    "INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
UPSERT_META: Final = "INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)"

_TABLES: Final = frozenset({"meta", "settings", "trials"})
#: What statements of this package may do (see ``set_authorizer`` of :mod:`sqlite3`): read, write and extend the tables.
_PERMITTED: Final = frozenset(
    {
        sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_PRAGMA,
        sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_CREATE_INDEX, sqlite3.SQLITE_ALTER_TABLE, sqlite3.SQLITE_REINDEX,
    }
)  # fmt: skip
#: ALTER TABLE asks for these of its own; none of them reads or writes anything outside the database.
_FUNCTIONS: Final = frozenset({"max", "substr", "length", "printf", "like", "sqlite_rename_test", "sqlite_fail"})
#: Steps of SQLite's virtual machine that reading may take: some, and several for every byte of the file.
_STEPS: Final = 20_000_000
_STEPS_PER_BYTE: Final = 4
_STEPS_AT_ONCE: Final = 100_000
#: How a rollback journal ends that names another file, which SQLite would open and delete; a run's never does.
_FOREIGN_JOURNAL: Final = bytes.fromhex("d9d505f920a163d7")
#: A larger file has so few bytes for each trial.
_MANY_BYTES: Final = 64 << 20
_BYTES_PER_TRIAL: Final = 64 << 10


def connect(path: Path) -> sqlite3.Connection:
    """Open the database of an existing file; a file or folder without write permission can still be read.

    Raises:
        RunFileError: a rollback journal beside it is not one of a run.
    """
    _refuse_foreign_journal(path)
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=_BUSY_TIMEOUT_S
    )
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_CELL_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.set_authorizer(_authorise)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA mmap_size = 0")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    return connection


def _authorise(action: int, _first: str | None, second: str | None, _database: str | None, _by: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_OK if second in _FUNCTIONS else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _PERMITTED else sqlite3.SQLITE_DENY


def _refuse_foreign_journal(path: Path) -> None:
    journal = path.with_name(f"{path.name}-journal")
    try:
        with journal.open("rb") as file:
            file.seek(-len(_FOREIGN_JOURNAL), os.SEEK_END)
            is_foreign = file.read() == _FOREIGN_JOURNAL
    except OSError:
        return
    if is_foreign:
        raise RunFileError(f"{journal} names other files, as no journal of a run does: delete it to read {path}")


@contextlib.contextmanager
def _bounded(path: Path, connection: sqlite3.Connection) -> Iterator[None]:
    """Interrupt what takes more steps inside than reading all of a file can."""
    left = (_STEPS + _STEPS_PER_BYTE * path.stat().st_size) // _STEPS_AT_ONCE

    def over() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    connection.set_progress_handler(over, _STEPS_AT_ONCE)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)


@contextlib.contextmanager
def snapshot(path: Path, connection: sqlite3.Connection) -> Iterator[None]:
    """Let everything read inside be of one moment, and end if it does not come to its end."""
    with _bounded(path, connection):
        if connection.in_transaction:
            yield
            return
        connection.execute("BEGIN")
        try:
            yield
        finally:
            connection.rollback()


def create_tables(connection: sqlite3.Connection) -> None:
    """Make an empty database a run file; call it within a transaction."""
    for statement in _SCHEMA:
        connection.execute(statement)


def add_checksums(connection: sqlite3.Connection) -> None:
    """Give the tables of the version before the column they lack; call it within a transaction."""
    connection.execute(f"ALTER TABLE trials ADD COLUMN {_CHECKSUM}")
    set_version(connection)


def set_version(connection: sqlite3.Connection) -> None:
    """Mark a file as one that only this mptune, and later ones, can read."""
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def recognise(path: Path, connection: sqlite3.Connection, *, thorough: bool) -> int:
    """Check that a database is a whole run file and return its version.

    A thorough check looks at every page; reading every trial, which readers do anyway, meets a damaged one too.

    Raises:
        RunFileError: it is foreign, corrupt or of another version.
    """
    with _bounded(path, connection):
        return _recognise(path, connection, thorough=thorough)


def _recognise(path: Path, connection: sqlite3.Connection, *, thorough: bool) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION_ID:
        raise RunFileError(f"{path} is an SQLite database, but not a run file of mptune")
    if version not in SELECT_TRIALS:
        advice = "upgrade mptune to read it" if version > FORMAT_VERSION else "its format is no longer read"
        raise RunFileError(
            f"run file {path} has format {version} and this mptune reads {UNSEALED_VERSION} to {FORMAT_VERSION}: "
            f"{advice}"
        )
    _check_tables(path, connection, version)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    if path.stat().st_size < pages * page_bytes:
        raise RunFileError(f"run file {path} is corrupt or was copied in part: its last page is not whole")
    if pages * page_bytes > _MANY_BYTES:
        trials = sum(1 for _ in connection.execute("SELECT id FROM trials"))
        if pages * page_bytes > _BYTES_PER_TRIAL * trials:
            size = f"{pages * page_bytes / 1e6:,.0f} MB"
            raise RunFileError(f"run file {path} is corrupt: no {trials} trials of a run take {size}")
    if thorough:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise RunFileError(f"run file {path} is corrupt: {verdict}")
    return int(version)


def _check_tables(path: Path, connection: sqlite3.Connection, version: int) -> None:
    """Raise RunFileError unless the database holds the tables of a run, with plain columns, and nothing else."""
    found: set[str] = set()
    for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        is_table = kind == "table" and name in _TABLES and str(sql).upper().startswith("CREATE TABLE")
        if not is_table and (kind != "index" or sql is not None):
            raise RunFileError(f"run file {path} holds a {kind} {name!r}, as no run file does: it is not read")
        found.add(name)
    missing = _TABLES - found
    if missing:
        raise RunFileError(f"run file {path} is corrupt: it has no table {', '.join(sorted(missing))}")
    trials = set(COLUMNS) if version == UNSEALED_VERSION else set(_ALL)
    for table, columns in (("meta", {"name", "value"}), ("settings", {"name", "value"}), ("trials", trials)):
        listed: list[tuple[Any, ...]] = connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
        if {row[1] for row in listed} != columns or any(row[6] for row in listed):
            raise RunFileError(f"run file {path} is corrupt: the columns of its table {table!r} are not a run's")


def sign(connection: sqlite3.Connection) -> None:
    """Note who writes, for the message another writer gets."""
    who = f"{os.getpid()} on {socket.gethostname()}"
    connection.execute(UPSERT_META, ("writer", who))


def writer(path: Path) -> str:
    """Return who writes a run file, "unknown" where it does not say."""
    try:
        with contextlib.closing(connect(path)) as connection:
            return str(connection.execute("SELECT value FROM meta WHERE name = 'writer'").fetchone()[0])
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
        "SQLITE_INTERRUPT": f"run file {path} is corrupt: reading it does not come to an end",
        "SQLITE_TOOBIG": f"run file {path} is corrupt: a cell of it is larger than {LARGEST_CELL_BYTES >> 20} MiB",
        "SQLITE_AUTH": f"run file {path} is not a plain run file ({text}): it is not read",
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
