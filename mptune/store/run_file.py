"""An open run file: its tables, its lock against other writers, and the messages of its errors."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import itertools
import json
import math
import os
import socket
import sqlite3
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final, Self

from mptune.errors import RunFileError, RunFileTakenError, did_you_mean
from mptune.results.trial import METRIC_TYPES, Amount, Measurement, Reading, Status, Trial
from mptune.space.configuration import Configuration, Value
from mptune.store.info import ParameterInfo, RunInfo, RunState, parse_json, read_field

#: Version of tables and fields; a file of another version is refused.
FORMAT_VERSION: Final = 8
_APPLICATION_ID: Final = int.from_bytes(b"mptu", "big")
#: Maximum size of a text or blob, in bytes.
_LARGEST_CELL_BYTES: Final = 16 << 20
#: Maximum size of the rendered sources as JSON, in bytes.
_LARGEST_SOURCES: Final = 64 << 20
#: Trials read at a time.
_BATCH: Final = 1000
_BUSY_TIMEOUT_S: Final = 60.0
# An advisory lock needs no data behind it: this byte is far from the bytes that SQLite locks (at 1 GiB).
_LOCK_BYTE: Final = 0x7FFF_FF00

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
_UPSERT_SETTING: Final = "INSERT INTO settings VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
#: Settings that are not JSON.
_WRITER: Final = "writer"
_SOURCES: Final = "rendered_sources"

_ALTERNATIVES: Final = (
    "go on with it (--resume) or choose another file (--output); in Python resume=True goes on, and overwrite=True "
    "begins anew"
)
_SETTLED: Final = "every trial recorded so far is safe"
_FULL: Final = f"cannot be written: the disk is full; {_SETTLED}, free space and --resume"
_DENIED: Final = "cannot be opened: it or its folder is read-only, or there is no permission"
#: Messages by prefix of the names of SQLite's and the operating system's errors.
_MEANINGS: Final = {
    "SQLITE_TOOBIG": f"is corrupt: a cell of it is larger than {_LARGEST_CELL_BYTES >> 20} MiB",
    "SQLITE_NOTADB": "cannot be read: it is not a run file (not an SQLite database)",
    "SQLITE_CORRUPT": "is corrupt or was copied in part",
    "SQLITE_FULL": _FULL,
    "SQLITE_READONLY_DBMOVED": "was moved or deleted while it was in use",
    "SQLITE_READONLY": "cannot be written: it was opened read-only, or it or its folder is",
    "SQLITE_CANTOPEN": _DENIED,
    "SQLITE_BUSY": f"was kept busy by another process for {_BUSY_TIMEOUT_S:g} s; {_SETTLED}",
    "SQLITE_IOERR": f"cannot be read or written: input/output error; {_SETTLED}",
    **dict.fromkeys(("EACCES", "EPERM", "EROFS"), _DENIED),
    **dict.fromkeys(("ENOSPC", "EDQUOT"), _FULL),
}


class RunFile:
    """An open run file. Use :meth:`create` or :meth:`open`; it is a context manager.

    Every method raises RunFileError if the file is corrupt or cannot be written (disk full, moved away, read-only).
    ``info`` is the definition of the run, ``state`` its progress.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        held: contextlib.ExitStack,
        info: RunInfo,
        state: RunState | None = None,
    ) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = connection
        self._held = held  # closes the connection, then gives up the lock
        self.info = info
        self.state = state or RunState()

    @classmethod
    def create(cls, path: str | Path, info: RunInfo, state: RunState | None = None) -> RunFile:
        """Make a new run file and its folders, and open it for writing; only an empty file is overwritten."""
        path = Path(path)
        with _explained(path), contextlib.ExitStack() as held:
            _refuse_taken(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            held.callback(os.close, _lock(path, os.O_CREAT))
            if _has_content(path):
                raise RunFileTakenError(f"run file {path} was made by another process just now: {_ALTERNATIVES}")
            connection = held.enter_context(contextlib.closing(_connect(path)))
            file = cls(path, connection, held.pop_all(), info, state)
        try:
            file._begin()
        except BaseException:
            file.close()
            path.resolve().unlink()
            raise
        return file

    @classmethod
    def in_memory(cls, info: RunInfo, state: RunState | None = None) -> RunFile:
        """Return a run file in memory, for a run that is not kept."""
        held = contextlib.ExitStack()
        connection = held.enter_context(contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)))
        file = cls(Path(":memory:"), connection, held, info, state)
        file._begin()
        return file

    @classmethod
    def check(cls, path: str | Path, *, resume: bool, overwrite: bool = False) -> None:
        """Raise now the RunFileError that :meth:`create`, :meth:`delete` or :meth:`open` would raise later."""
        if resume and overwrite:
            raise RunFileError("resume=True goes on with a run, overwrite=True begins anew: give one of them")
        path = Path(path)
        if resume and path.exists():
            cls.open(path).close()
        elif overwrite and path.exists():
            _require_deletable(path)
        else:
            with _explained(path):
                _refuse_taken(path)

    @classmethod
    def delete(cls, path: str | Path) -> None:
        """Delete a run file of any version, if there is one; a link to one stays."""
        path = Path(path)
        if path.exists():
            _require_deletable(path)
            path.resolve().unlink()

    @classmethod
    def open(cls, path: str | Path, read_only: bool = False) -> RunFile:
        """Open a run file, for writing unless ``read_only``; readers may look on while a run writes."""
        path = Path(path)
        with _explained(path), contextlib.ExitStack() as held:
            if not path.exists():
                folder = path.parent
                others = [entry.name for entry in folder.iterdir() if entry.is_file()] if folder.is_dir() else []
                hint = did_you_mean(path.name, others, folder) if folder.is_dir() else f": there is no folder {folder}"
                raise RunFileError(f"there is no run file {path}{hint}")
            _refuse_irregular(path)
            if not _has_content(path):
                raise RunFileError(f"run file {path} is empty: it was interrupted before its first trial; delete it")
            if not read_only:
                held.callback(os.close, _lock(path))
            connection = held.enter_context(contextlib.closing(_connect(path)))
            _recognise(path, connection)
            if read_only:
                connection.execute("PRAGMA query_only = ON")
            else:
                _sign(connection)
            return cls(path, connection, held.pop_all(), *_records(path, connection))

    def update(self, state: RunState, info: RunInfo | None = None) -> None:
        """Record the progress and, for a resumed run, its present definition."""
        self._write((), {**(info.to_json() if info is not None else {}), **state.to_json()})
        self.info = info or self.info
        self.state = state

    def add(self, *trials: Trial, state: RunState | None = None) -> None:
        """Record trials and the progress, all or nothing; they are on the disk when this returns.

        A trial of the same key and configuration is replaced and keeps its place in the order. Several trials at a
        time are recorded much faster than one by one.
        """
        known = self.state.to_json()
        changed = {} if state is None else {n: value for n, value in state.to_json().items() if value != known[n]}
        self._write(trials, changed)
        self.state = state or self.state

    def retire(self, trials: Sequence[Trial]) -> None:
        """Mark trials as stale, without deleting them: they were measured under other conditions."""
        keys = [(trial.key, trial.configuration.to_json()) for trial in trials]
        with self._transaction() as connection:
            connection.executemany("UPDATE trials SET stale = 1 WHERE key = ? AND configuration = ?", keys)

    def trials(self, parameters: Sequence[ParameterInfo] = (), *, stale: bool = False) -> list[Trial]:
        """Return the trials, or the stale trials, in the order they were recorded.

        Every configuration must have one of the listed values of each of the parameters given.
        """
        allowed = {parameter.name: frozenset(parameter.values) for parameter in parameters}
        select = f"SELECT id, {', '.join(_CELLS)} FROM trials WHERE stale = ? ORDER BY id"
        with _explained(self.path), contextlib.closing(self._opened().execute(select, (stale,))) as rows:
            where = f"run file {self.path} is corrupt"
            is_collecting = gc.isenabled()
            gc.disable()  # rows make no cycles, and the search for cycles takes a quarter of the time
            try:
                batches = iter(lambda: rows.fetchmany(_BATCH), [])
                return [trial for batch in batches for trial in _from_rows(batch, allowed, where)]
            finally:
                if is_collecting:
                    gc.enable()

    def keep_sources(self, sources: Mapping[str, str]) -> None:
        """Replace the rendered sources, by the JSON of their configuration; the last are left out if too large.

        Compressed, a thousand sources take about a hundred kilobytes, as most of their lines are the same.
        """
        ends = itertools.accumulate(len(json.dumps(source)) for source in sources.items())
        kept = dict(source for source, end in zip(sources.items(), ends, strict=True) if end <= _LARGEST_SOURCES)
        with self._transaction() as connection:
            connection.execute(_UPSERT_SETTING, (_SOURCES, zlib.compress(json.dumps(kept).encode(), 9)))

    def sources(self) -> dict[str, str]:
        """Return the rendered sources by the JSON of their configuration."""
        with _explained(self.path):
            found = _setting(self._opened(), _SOURCES)
        if found is None:
            return {}
        try:
            texts: dict[str, str] = parse_json(zlib.decompressobj().decompress(found, _LARGEST_SOURCES).decode())
            "".join(texts.values())
        except (zlib.error, ValueError, TypeError, AttributeError) as error:
            raise RunFileError(f"run file {self.path} is corrupt: its sources cannot be read ({error})") from error
        return texts

    def close(self) -> None:
        """Close the file and let others write it; may be called twice."""
        self._connection = None
        # The lock is last: closing any descriptor of the file would release SQLite's own locks.
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        with self._transaction() as connection:
            for statement in _SCHEMA:
                connection.execute(statement)
            _put(connection, {**self.info.to_json(), **self.state.to_json()})
            _sign(connection)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RunFileError(f"run file {self.path} is closed")
        return self._connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._opened()
        with _explained(self.path):
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                yield connection

    def _write(self, trials: Sequence[Trial], fields: Mapping[str, Any]) -> None:
        with self._transaction() as connection:
            connection.executemany(_INSERT_TRIAL, map(_to_row, trials))
            _put(connection, fields)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise errors of SQLite and of the operating system as RunFileError."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        number = error.errno if isinstance(error, OSError) else None
        name = getattr(error, "sqlite_errorname", None) or errno.errorcode.get(number or 0, "")
        unknown = f"cannot be opened: {getattr(error, 'strerror', None) or error}"
        meaning = next((text for prefix, text in _MEANINGS.items() if name.startswith(prefix)), unknown)
        raise RunFileError(f"run file {path} {meaning}") from error


def _connect(path: Path) -> sqlite3.Connection:
    """Open the database of an existing file; SQLite opens it for reading if it may not be written."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_TIMEOUT_S)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_CELL_BYTES)
    return connection


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def _require_own(path: Path, connection: sqlite3.Connection) -> None:
    if _pragma(connection, "application_id") != _APPLICATION_ID:
        raise RunFileError(f"{path} is an SQLite database, but not a run file of mptune")


def _recognise(path: Path, connection: sqlite3.Connection) -> None:
    """Raise RunFileError unless a database is a complete run file of this version."""
    _require_own(path, connection)
    if (version := _pragma(connection, "user_version")) != FORMAT_VERSION:
        is_newer = version > FORMAT_VERSION
        advice = "upgrade mptune to read it" if is_newer else "remove it or name another file, and tune again"
        raise RunFileError(f"run file {path} has format {version} and this mptune reads {FORMAT_VERSION}: {advice}")
    connection.execute("BEGIN")  # from the first read on the file keeps its size: a run that writes it waits
    if _pragma(connection, "page_count") * _pragma(connection, "page_size") > path.stat().st_size:
        raise RunFileError(f"run file {path} is corrupt or was copied in part: its last page is not whole")
    if (verdict := _pragma(connection, "quick_check(1)")) != "ok":
        raise RunFileError(f"run file {path} is corrupt: {verdict}")
    connection.execute("COMMIT")


def _put(connection: sqlite3.Connection, fields: Mapping[str, Any]) -> None:
    connection.executemany(_UPSERT_SETTING, [(name, json.dumps(value)) for name, value in fields.items()])


def _setting(connection: sqlite3.Connection, name: str) -> Any:
    found = connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return None if found is None else found[0]


def _records(path: Path, connection: sqlite3.Connection) -> tuple[RunInfo, RunState]:
    rows = connection.execute(f"SELECT name, value FROM settings WHERE name NOT IN ('{_WRITER}', '{_SOURCES}')")
    where = f"run file {path}"
    try:
        document = {name: parse_json(text) for name, text in rows}
    except (ValueError, TypeError) as error:
        raise RunFileError(f"{where} is corrupt: its settings cannot be read ({error})") from error
    for name in (*RunInfo().to_json(), *RunState().to_json()):
        if name not in document:
            raise RunFileError(f"{where} is corrupt: its settings lack {name!r}")
    return RunInfo.from_json(document, where), RunState.from_json(document, where)


def _sign(connection: sqlite3.Connection) -> None:
    connection.execute(_UPSERT_SETTING, (_WRITER, f"{os.getpid()} on {socket.gethostname()}"))


def _lock(path: Path, flags: int = 0) -> int:
    """Lock the file against other writers and return the descriptor that holds the lock; reading stays possible.

    An open file description lock ends with the process, and survives the closing of other descriptors.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o666)
    request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, _LOCK_BYTE, 1, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
    except OSError as error:
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise
        raise RunFileTakenError(f"run file {path} is being written by process {_writer(path)}") from error
    return descriptor


def _writer(path: Path) -> str:
    try:
        with contextlib.closing(_connect(path)) as connection:
            return _setting(connection, _WRITER) or "unknown"
    except sqlite3.Error:
        return "unknown"


def _require_deletable(path: Path) -> None:
    """Raise RunFileError unless a file is a run file of any version, or empty, that no other process writes."""
    with _explained(path), contextlib.ExitStack() as held:
        _refuse_irregular(path)
        held.callback(os.close, _lock(path))
        if _has_content(path):
            _require_own(path, held.enter_context(contextlib.closing(_connect(path))))


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _refuse_taken(path: Path) -> None:
    _refuse_irregular(path)
    if _has_content(path):
        RunFile.open(path, read_only=True).close()  # raises if --resume is impossible
        raise RunFileTakenError(f"run file {path} exists already: {_ALTERNATIVES}")


def _refuse_irregular(path: Path) -> None:
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise RunFileError(f"{path} is {what}, not a run file")


# -- trials as rows --------------------------------------------------------------------------------

#: Columns of a trial beside its number, with their types; JSON from the configuration on.
_CELLS: Final = {
    "key": str,
    "status": Status,
    "message": str,
    "times_ms": bytes,
    "configuration": Mapping[str, Value],
    "metrics": Mapping[str, Reading],
    "durations_s": Mapping[str, Amount],
    "warnings": tuple[str, ...],
}
_INSERT_TRIAL: Final = (
    f"INSERT INTO trials ({', '.join(_CELLS)}) VALUES ({', '.join('?' * len(_CELLS))}) "
    f"ON CONFLICT DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in (*_CELLS, 'stale'))}"
)


def _to_row(trial: Trial) -> tuple[Any, ...]:
    measurement = trial.measurement
    return (
        trial.key,
        str(trial.status),
        # Compiler output may be long and have invalid bytes, held as lone surrogates, which UTF-8 cannot encode.
        trial.message.encode("utf-8", "backslashreplace").decode("utf-8")[: 1 << 18],
        struct.pack(f"<{len(measurement.times_ms)}d", *measurement.times_ms),
        trial.configuration.to_json(),
        json.dumps(dict(measurement.metrics)),
        json.dumps(dict(measurement.durations_s)),
        json.dumps(trial.warnings),
    )


def _from_rows(rows: Sequence[Sequence[Any]], allowed: Mapping[str, Set[Value]], where: str) -> list[Trial]:
    """Return the trials of rows, whose configurations have exactly the names allowed, if any, and their values."""
    (number, *_), *cells = zip(*rows, strict=True)
    damaged = f"{where}: trial {number} cannot be read"
    try:
        documents = ",".join([f"[{','.join(each)}]" for each in zip(*cells[4:], strict=True)])
        columns = (*cells[:4], *zip(*parse_json(f"[{documents}]"), strict=True))
        fields = [read_field(*field, column, damaged) for field, column in zip(_CELLS.items(), columns, strict=True)]
        for name in {name for values in fields[4] for name in values} - allowed.keys() if allowed else ():
            raise RunFileError(f"{damaged}: the run has no parameter {name!r}")
        for name, values in allowed.items():
            if unknown := {each.get(name) for each in fields[4]} - values:
                raise RunFileError(f"{damaged}: the run lists no value {unknown.pop()!r} of its {name}")
        for name in {name for metrics in fields[5] for name in metrics}:
            first, dot, _ = name.partition(".")
            if kind := METRIC_TYPES.get(first + dot):
                given = [metrics[name] for metrics in fields[5] if not math.isnan(metrics.get(name, math.nan))]
                read_field(name, kind, given, damaged)
        for metrics in fields[5]:
            if metrics.get("unseen_violations", 0) > (inputs := metrics.get("unseen_inputs", 0)):
                raise RunFileError(f"{damaged}: its field 'unseen_violations' should be at most {inputs:g}, its inputs")
        fields[3] = [struct.unpack(f"<{len(times) // 8}d", times) for times in fields[3]]
        return [
            Trial(Configuration(values), status, message, Measurement(metrics, times_ms, seconds), warnings, key)
            for key, status, message, times_ms, values, metrics, seconds, warnings in zip(*fields, strict=True)
        ]
    except (ValueError, TypeError, RunFileError) as error:
        if len(rows) > 1:
            return [trial for row in rows for trial in _from_rows([row], allowed, where)]
        if isinstance(error, RunFileError):
            raise
        raise RunFileError(f"{damaged}: a cell of it is not valid JSON") from error
