"""Every file format, and reading a recorded space of any of them, told apart by content and not by name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from mptune.errors import SpaceFileError
from mptune.interop.files import SQLITE_MAGIC, DamagedJsonError, Format, load_json, read_head, read_text, space_name
from mptune.interop.recorded import RecordedSpace, from_run, to_run
from mptune.run import Run

__all__ = ["EXPORTERS", "FORMATS", "is_run_file", "read_run", "read_space"]


def _formats() -> dict[str, Format]:
    """Return what the modules of this folder declare."""
    package = importlib.import_module("mptune.interop")
    names = [f"{package.__name__}.{module.name}" for module in pkgutil.iter_modules(package.__path__)]
    modules = [importlib.import_module(name) for name in names if name != __name__]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Format)]
    return {one.name: one for one in found}


#: Every format by name.
FORMATS: Final[Mapping[str, Format]] = MappingProxyType(_formats())


#: What a run can be exported as, by the name of the format.
EXPORTERS: Final[Mapping[str, Callable[[Run], str | bytes]]] = MappingProxyType(
    {name: one.write for name, one in FORMATS.items() if one.write is not None}
)


def is_run_file(path: str | Path) -> bool:
    """Return whether a file is a run file, or what is left of one; raises SpaceFileError where it cannot be read."""
    return read_head(Path(path)).startswith(SQLITE_MAGIC)


def read_space(path: str | Path) -> RecordedSpace:
    """Read a recorded space: mptune's own, a Kernel Tuner cache file or T4 results, gzipped or not, or a run file.

    Raises:
        SpaceFileError: the file is missing, empty, damaged, of another format, or records nothing.
        RunFileError: it is a run file that cannot be read.
    """
    path = Path(path)
    if is_run_file(path):
        return from_run(Run.load(path), space_name(path))
    text = read_text(path)
    document: Any = text
    if text.lstrip().startswith("{"):
        try:
            document = load_json(path, text)
        except DamagedJsonError:
            for one in FORMATS.values():
                if (found := one.read_damaged(path, text)) is not None:
                    return found
            raise
    for one in FORMATS.values():
        if one.read is not None and one.recognises(document):
            return one.read(path, document)
    titles = [one.title for one in FORMATS.values() if one.read is not None and one.write is not None]
    raise SpaceFileError(f"{path}: not a run file of mptune, and none of these: {', '.join(titles)}")


def read_run(path: str | Path) -> Run:
    """Read a run file, or a recorded space of any format as the run that :func:`to_run` makes of it.

    Raises:
        SpaceFileError: as :func:`read_space`.
        RunFileError: it is a run file that cannot be read.
    """
    path = Path(path)
    return Run.load(path) if is_run_file(path) else to_run(read_space(path))
