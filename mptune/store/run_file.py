"""An open run file, read and written by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from mptune.errors import RunFileError, did_you_mean
from mptune.results.trial import Trial
from mptune.store import database
from mptune.store.info import ParameterInfo, RunInfo, RunState
from mptune.store.rows import from_rows, many_objects, to_row

__all__ = ["RunFile"]

_ALTERNATIVES: Final = (
    "go on with it (--resume) or choose another file (--output); in Python resume=True goes on, and overwrite=True "
    "begins anew"
)
_ROWS_AT_ONCE: Final = 4096
#: Bytes of JSON that the rendered sources of a run have at most.
_LARGEST_SOURCES: Final = 64 << 20
# Advisory locks need no data behind them: a byte well clear of those SQLite locks itself (at 1 GiB).
_LOCK_BYTE: Final = 0x7FFF_FF00
_held: Final[set[int]] = set()


class RunFile:
    """An open run file. Use :meth:`create` or :meth:`open`; it is a context manager.

    Every method raises RunFileError if the file is corrupt or cannot be written (disk full, moved away, read-only).

    Attributes:
        path: where the file is.
        info: what the run is.
        state: how far it has come.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: int | None) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = connection
        self._lock = lock
        self._process = os.getpid()
        self.info, self.state = self._read()

    @classmethod
    def create(cls, path: str | Path, info: RunInfo, state: RunState | None = None) -> RunFile:
        """Make a new run file, with the folders that lead to it, and open it for writing.

        A file that is there already is never touched, unless it is empty.

        Raises:
            RunFileError: the file exists, is being written, or cannot be made there.
        """
        path = Path(path)
        rows = _rows({**info.to_json(), **(state or RunState()).to_json()})
        with database.explained(path):
            _refuse_taken(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = _lock(path, os.O_CREAT)
        connection = None
        try:
            with database.explained(path):
                if _has_content(path):
                    raise RunFileError(f"run file {path} was made by another process just now: {_ALTERNATIVES}")
                connection = database.connect(path)
                with database.transaction(connection):
                    database.create_tables(connection)
                    connection.executemany(database.UPSERT_SETTING, rows)
                database.sign(connection)
            return cls(path, connection, lock)
        except BaseException:
            _abandon(connection, lock)
            if not _has_content(path):
                path.unlink(missing_ok=True)
            raise

    @classmethod
    def in_memory(cls, info: RunInfo, state: RunState | None = None) -> RunFile:
        """Return a run file without a file, for a run that nobody keeps."""
        path = Path(":memory:")
        connection = sqlite3.connect(path, isolation_level=None)
        database.create_tables(connection)
        connection.executemany(database.UPSERT_SETTING, _rows({**info.to_json(), **(state or RunState()).to_json()}))
        return cls(path, connection, None)

    @classmethod
    def check(cls, path: str | Path, *, resume: bool, overwrite: bool = False) -> None:
        """Refuse now what :meth:`create`, :meth:`delete` or :meth:`open` of a file to go on with would refuse later.

        Raises:
            RunFileError: as those do; no file is made, and nothing in one is changed.
        """
        if resume and overwrite:
            raise RunFileError("resume=True goes on with a run, overwrite=True begins anew: give one of them")
        path = Path(path)
        if resume and path.exists():
            cls.open(path).close()
            return
        if overwrite and path.exists():
            with _to_delete(path):
                return
        with database.explained(path):
            _refuse_taken(path)

    @classmethod
    def delete(cls, path: str | Path) -> None:
        """Delete a run file of any version, if there is one.

        Raises:
            RunFileError: it is no run file, or another process writes it.
        """
        path = Path(path)
        if path.exists():
            with _to_delete(path):
                path.unlink()

    @classmethod
    def open(cls, path: str | Path, read_only: bool = False) -> RunFile:
        """Open a run file, for writing unless ``read_only``; readers may look on while a run writes.

        Raises:
            RunFileError: the file is missing, foreign, corrupt, half-written, of another version, being
                written by another process, or not writable.
        """
        path = Path(path)
        with database.explained(path):
            if not path.exists():
                raise RunFileError(_missing(path))
            _refuse_irregular(path)
            if not _has_content(path):
                raise RunFileError(f"run file {path} is empty: it was interrupted before its first trial; delete it")
            lock = None if read_only else _lock(path)
        connection = None
        try:
            with database.explained(path):
                connection = database.connect(path)
                database.recognise(path, connection, thorough=not read_only)
                if read_only:
                    connection.execute("PRAGMA query_only = ON")
                else:
                    database.sign(connection)
            return cls(path, connection, lock)
        except BaseException:
            _abandon(connection, lock)
            raise

    def update(self, state: RunState, info: RunInfo | None = None) -> None:
        """Record how far the run has come and, if it is set up anew, what it is."""
        document = {**(info.to_json() if info is not None else {}), **state.to_json()}
        self._write((), document)
        self.info = info or self.info
        self.state = state

    def add(self, *trials: Trial, state: RunState | None = None) -> None:
        """Record trials, all of them or none; when this returns, they are on the disk.

        A trial of the same key and configuration is replaced and keeps its place in the order, so adding
        one twice changes nothing.

        Args:
            trials: what to record; several at a time are recorded much faster than one by one.
            state: how far the run has come, written together: waiting for the disk is most of what either takes.
        """
        known = self.state.to_json()
        changed = {} if state is None else {n: value for n, value in state.to_json().items() if value != known[n]}
        self._write(trials, changed)
        self.state = state or self.state

    def retire(self, trials: Sequence[Trial]) -> None:
        """Set trials aside that were measured under other conditions; nothing is deleted."""
        connection = self._open_connection()
        with database.explained(self.path), database.transaction(connection):
            keys = [(trial.key, trial.configuration.to_json()) for trial in trials]
            connection.executemany(database.RETIRE_TRIAL, keys)

    def trials(self, parameters: Sequence[ParameterInfo] = (), *, stale: bool = False) -> list[Trial]:
        """Return the trials in the order they were recorded.

        Args:
            parameters: what each has to have, and the values it may have; by default anything, as of a run whose kernel
                has changed since.
            stale: return those that were set aside instead.
        """
        trials: list[Trial] = []
        connection = self._open_connection()
        with (
            database.explained(self.path),
            many_objects(),
            contextlib.closing(connection.execute(database.SELECT_TRIALS, (stale,))) as cursor,
        ):
            try:
                while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                    trials += from_rows(rows, parameters)
            except ValueError as error:
                raise RunFileError(f"run file {self.path} is corrupt: {error}") from error
        return trials

    def keep_sources(self, sources: Mapping[str, str]) -> None:
        """Keep rendered sources by the JSON of their configuration, instead of those kept before.

        They are compressed: as most lines of two sources are the same, a thousand take about a hundred kilobytes. The
        last ones are left out if all of them are too large.
        """
        kept: dict[str, str] = {}
        room = _LARGEST_SOURCES // 2  # JSON escapes some characters
        for configuration, text in sources.items():
            room -= len(configuration) + len(text.encode("utf-8", "backslashreplace"))
            if room < 0:
                break
            kept[configuration] = text
        packed = zlib.compress(json.dumps(kept).encode(), 9)
        connection = self._open_connection()
        with database.explained(self.path), database.transaction(connection):
            connection.execute(database.UPSERT_SETTING, (database.SOURCES, packed))

    def sources(self) -> dict[str, str]:
        """Return the rendered sources the file has, by the JSON of their configuration."""
        connection = self._open_connection()
        with database.explained(self.path):
            found = connection.execute(database.SELECT_SETTING, (database.SOURCES,)).fetchone()
        if found is None:
            return {}
        try:
            texts = json.loads(zlib.decompressobj().decompress(found[0], _LARGEST_SOURCES))
        except (zlib.error, ValueError, RecursionError, TypeError) as error:
            raise RunFileError(f"run file {self.path} is corrupt: its sources cannot be read ({error})") from error
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise RunFileError(f"run file {self.path} is corrupt: its sources should be texts by configuration")
        return texts

    def close(self) -> None:
        """Close the file and let others write it; may be called twice."""
        # A forked child has the parent's connection, which only the parent may use or close.
        if self._connection is None or self._process != os.getpid():
            return
        _abandon(self._connection, self._lock)
        self._connection = None
        self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RunFileError(f"run file {self.path} is closed")
        return self._connection

    def _write(self, trials: Sequence[Trial], fields: dict[str, Any]) -> None:
        """Write trials and fields of the records, all or nothing."""
        connection = self._open_connection()
        with database.explained(self.path), database.transaction(connection):
            connection.executemany(database.INSERT_TRIAL, map(to_row, trials))
            connection.executemany(database.UPSERT_SETTING, _rows(fields))

    def _read(self) -> tuple[RunInfo, RunState]:
        connection = self._open_connection()
        with database.explained(self.path):
            rows = connection.execute(database.SELECT_SETTINGS).fetchall()
        where = f"run file {self.path}"
        try:
            document = {name: json.loads(text) for name, text in rows}
        except (ValueError, TypeError, RecursionError) as error:
            raise RunFileError(f"{where} is corrupt: its settings cannot be read ({error})") from error
        return RunInfo.from_json(document, where), RunState.from_json(document, where)


def _lock(path: Path, flags: int = 0) -> int:
    """Lock the file against other writers and return the descriptor that holds the lock; readers never meet it.

    The lock belongs to the open file (an "open file description lock"): the kernel drops it when the process ends in
    any way, and other descriptors of the file can be closed without losing it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o666)
    request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, _LOCK_BYTE, 1, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
    except BlockingIOError as error:
        os.close(descriptor)
        raise RunFileError(f"run file {path} is being written by process {database.writer(path)}") from error
    except OSError:
        os.close(descriptor)
        raise
    _held.add(descriptor)
    return descriptor


@contextlib.contextmanager
def _to_delete(path: Path) -> Iterator[None]:
    """Keep other writers from a file that is a run file, or empty."""
    with database.explained(path):
        _refuse_irregular(path)
        connection, lock = None, _lock(path)
        try:
            if _has_content(path):
                connection = database.connect(path)
                database.require_own(path, connection)
            yield
        finally:
            _abandon(connection, lock)


def _abandon(connection: sqlite3.Connection | None, lock: int | None) -> None:
    # The lock last: SQLite's own locks would be lost when any other descriptor of the file is closed.
    if connection is not None:
        connection.close()
    if lock is not None:
        _held.discard(lock)
        os.close(lock)


def _release_in_child() -> None:
    # A forked worker that outlives a killed parent must not keep the run file locked.
    for descriptor in tuple(_held):
        _abandon(None, descriptor)


os.register_at_fork(after_in_child=_release_in_child)


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _refuse_taken(path: Path) -> None:
    _refuse_irregular(path)
    if _has_content(path):
        RunFile.open(path, read_only=True).close()  # one that cannot be gone on with says why
        raise RunFileError(f"run file {path} exists already: {_ALTERNATIVES}")


def _refuse_irregular(path: Path) -> None:
    if path.is_dir():
        raise RunFileError(f"{path} is a folder, not a run file")
    if path.exists() and not path.is_file():
        raise RunFileError(f"{path} is not a regular file and cannot be a run file")


def _missing(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no run file {path}: there is no folder {path.parent}"
    others = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    return f"there is no run file {path}{did_you_mean(path.name, others, path.parent)}"


def _rows(fields: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, json.dumps(value)) for name, value in fields.items()]
