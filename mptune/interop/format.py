"""What a file format is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mptune.interop.files import DamagedJsonError, load_json, read_text
from mptune.interop.recorded import RecordedSpace
from mptune.run import Run

__all__ = ["Format"]


@dataclass(frozen=True, slots=True)
class Format:
    """A file format; declared by a module of this folder, it is known. A file is data: reading executes nothing.

    Attributes:
        name: what ``export --format`` calls it, and the suffix of a file name that chooses it.
        title: what messages call a file of it.
        recognises: whether a JSON document is of this format, by its content.
        read: returns the recorded space of a JSON document. The path names it in messages. Raises SpaceFileError if
            it is damaged or records nothing.
        read_damaged: returns what can be read of a text that is no JSON to its end, None if it is of another format.
        write: returns a run in this format. Raises SpaceFileError if it has no trial.
    """

    name: str
    title: str
    recognises: Callable[[Any], bool] = lambda _: False
    read: Callable[[Path, Any], RecordedSpace] | None = None
    read_damaged: Callable[[Path, str], RecordedSpace | None] = lambda *_: None
    write: Callable[[Run], str | bytes] | None = None

    def load(self, path: str | Path) -> RecordedSpace:
        """Read a file of this format, gzipped or not; :attr:`read` must be there.

        Raises:
            SpaceFileError: it is missing, damaged, of another format, or records nothing.
        """
        assert self.read is not None
        path = Path(path)
        text = read_text(path)
        try:
            document = load_json(path, text)
        except DamagedJsonError:
            found = self.read_damaged(path, text)
            if found is None:
                raise
            return found
        return self.read(path, document)
