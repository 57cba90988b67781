"""The prelude, read by the compiler once instead of for every source."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from mptune.backends.binary_cache import BinaryCache
from mptune.backends.process_group import ProcessGroup

__all__ = ["PrecompiledHeader"]

_LIMIT_S = 60.0


class PrecompiledHeader:
    """What many sources begin with, as g++ keeps it after reading it (a ``.gch`` file beside the text).

    g++ takes the text where the other does not fit, so that it is a matter of speed alone.

    Args:
        text: how the sources begin.
        cache: where both files are kept.
        processes: runs the compiler.
    """

    def __init__(self, text: str, cache: BinaryCache, processes: ProcessGroup) -> None:
        self.text = text
        self._cache = cache
        self._processes = processes
        self._lock = threading.Lock()
        self._made: dict[tuple[str, ...], Path | None] = {}

    def path(self, command: Sequence[str], version: str) -> Path | None:
        """Return the header to include, made if need be; None where it cannot be kept or made.

        Args:
            command: the compiler with the flags of every source, but none that name files or the language.
            version: of the compiler.
        """
        key = (version, *command)
        with self._lock:
            if key not in self._made:
                self._made[key] = self._make(list(command), self._cache.key([*key, self.text]))
            header = self._made[key]
        if header is None:
            return None
        # Should the cache have been pruned meanwhile, sources are compiled whole from now on.
        try:
            for path in (header, _precompiled(header)):
                os.utime(path)
        except OSError:
            return None
        return header

    def _make(self, command: list[str], key: str) -> Path | None:
        header = self._cache.directory.absolute() / "headers" / key
        if _precompiled(header).exists():
            return header
        with contextlib.suppress(OSError, subprocess.TimeoutExpired), self._cache.workspace() as folder:
            text, made = folder / "prelude.hpp", folder / "prelude.hpp.gch"
            # Messages name neither this folder nor the cache.
            text.write_text(f'#line 1 "{text.name}"\n{self.text}')
            ended = self._processes.run(
                [*command, "-x", "c++-header", str(text), "-o", str(made)],
                text="",
                environment={**os.environ, "TMPDIR": str(folder), "LC_ALL": "C"},
                folder=str(folder),
                timeout_s=_LIMIT_S,
            )
            if ended.status == 0 and made.exists():
                header.parent.mkdir(parents=True, exist_ok=True)
                text.replace(header)
                made.replace(_precompiled(header))
                return header
        return None


def _precompiled(header: Path) -> Path:
    return header.with_name(f"{header.name}.gch")
