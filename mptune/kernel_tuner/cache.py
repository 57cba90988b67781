"""Kernel Tuner's cache files: read to go on from them or to simulate, and written entry by entry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mptune.errors import KernelError
from mptune.interop.cache import repaired
from mptune.interop.recorded import read_text
from mptune.kernel_tuner.results import Encoder, failed
from mptune.paths import write_whole


class Cache:
    """A cache file.

    Args:
        path: its name; ``.json`` is appended if missing.
        header: of a new file: ``kernel_name``, ``problem_size``, ``tune_params`` and so on.

    Attributes:
        entries: results by the values of their parameters, as text.

    Raises:
        KernelError: the file is of another kernel or of other parameters.
    """

    def __init__(self, path: str | Path, header: Mapping[str, Any]) -> None:
        self.path = Path(str(path).removesuffix(".json") + ".json")
        self.header = dict(header)
        self.entries: dict[str, dict[str, Any]] = {}
        if self.path.is_file():
            document = repaired(read_text(self.path))
            if not isinstance(document, dict) or not isinstance(document.get("cache"), dict):
                raise KernelError(f"cache {self.path} is no cache file of Kernel Tuner")
            for key in ("kernel_name", "tune_params_keys"):
                if document.get(key) != header[key]:
                    raise KernelError(f"cache {self.path} has {key} {document.get(key)!r}, expected {header[key]!r}")
            self.header = {name: value for name, value in document.items() if name != "cache"}
            self.entries = {key: failed(entry) for key, entry in document["cache"].items()}

    def add(self, results: Sequence[Mapping[str, Any]]) -> None:
        """Add results, and write the file."""
        names = self.header["tune_params_keys"]
        for result in results:
            self.entries[key_of(result, names)] = dict(result)
        # Kernel Tuner compares the last three characters to recognise a closed file, and appends before them.
        opened = json.dumps({**self.header, "cache": {}}, cls=Encoder, indent="")[:-3]
        lines = [json.dumps({key: entry}, cls=Encoder)[1:-1] for key, entry in self.entries.items()]
        write_whole(self.path, (opened + "\n" + ",\n".join(lines) + "}\n}").encode())


def key_of(values: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the key of a configuration in a cache file."""
    return ",".join(str(values[name]) for name in names)
