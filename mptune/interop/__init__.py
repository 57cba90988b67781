"""File formats: run files, recorded spaces, Kernel Tuner cache files, T1 inputs, T4 results and tables.

A file's content decides its format, not its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from mptune.errors import SpaceFileError, UnknownNameError
from mptune.interop.cache import CACHE
from mptune.interop.recorded import Format, is_run_file, load_json, read_text, write
from mptune.interop.recording import RECORDING
from mptune.interop.t4 import T1, T4, read_t1
from mptune.interop.tables import CSV, JSON, PARQUET, to_csv, to_json, to_parquet
from mptune.run import Run

__all__ = ["EXPORTERS", "FORMATS", "read_run", "read_t1", "to_csv", "to_json", "to_parquet", "write_run"]

#: Every format by name.
FORMATS: Final[Mapping[str, Format]] = {one.name: one for one in (CACHE, RECORDING, T1, T4, CSV, PARQUET, JSON)}
#: The formats of exported runs, by name.
EXPORTERS: Final[Mapping[str, Callable[[Run], str | bytes]]] = {
    name: one.write for name, one in FORMATS.items() if one.write is not None
}


def read_run(path: str | Path) -> Run:
    """Read a run file or a recording: mptune's own, a Kernel Tuner cache file or T4 results, gzipped or not.

    A recording becomes a run without a threshold, with the trials in the order of the file.

    Raises:
        SpaceFileError: the file is missing, empty, damaged or of another format, or it records no configuration.
        RunFileError: a run file cannot be read.
    """
    path = Path(path)
    if is_run_file(path):
        return Run.load(path)
    text = read_text(path)
    document: Any = text
    damage: SpaceFileError | None = None
    if text.lstrip().startswith("{"):
        try:
            document = load_json(path, text)
        except SpaceFileError as error:
            damage = error
    for one in FORMATS.values():
        if one.read is not None and (run := one.read(path, document)) is not None:
            return run
    if damage is not None:
        raise damage
    titles = [one.title for one in FORMATS.values() if one.read is not None and one.write is not None]
    raise SpaceFileError(f"{path}: not a run file of mptune, and none of these: {', '.join(titles)}")


def write_run(run: Run, path: str | Path, format: str) -> None:
    """Write a run in a format of :data:`EXPORTERS`; text is gzipped when the name ends in ``.gz``.

    Raises:
        UnknownNameError: no such format.
        SpaceFileError: the file cannot be written, or the format cannot hold the run.
        MptuneError: a package that the format needs is not installed.
    """
    if format not in EXPORTERS:
        raise UnknownNameError("export format", format, EXPORTERS)
    write(Path(path), EXPORTERS[format](run))
