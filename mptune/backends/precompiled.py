"""The prelude, read by the compiler once instead of for every source."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mptune.backends.binary_cache import BinaryCache
from mptune.backends.process_group import ProcessGroup

__all__ = ["Precompiled", "PrecompiledPrelude"]

_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Precompiled:
    """Files of a prelude that was compiled.

    Attributes:
        header: what to include in place of the prelude's text.
        runtime: the object to link with: what runs once a launch, which is the same for all sources.
    """

    header: Path
    runtime: Path


class PrecompiledPrelude:
    """What all sources begin with: as g++ keeps it after reading it (a ``.gch`` file beside the text), and an object.

    g++ takes the text where the ``.gch`` does not fit, so that this one is a matter of speed alone.

    Args:
        text: how the sources begin.
        cache: where the files are kept.
        processes: runs the compiler.
    """

    def __init__(self, text: str, cache: BinaryCache, processes: ProcessGroup) -> None:
        self.text = text
        self._cache = cache
        self._processes = processes
        self._lock = threading.Lock()
        self._made: dict[tuple[str, ...], Precompiled | None] = {}

    def files(self, command: Sequence[str], version: str) -> Precompiled | None:
        """Return the files, made if need be; None where they cannot be kept or made.

        Args:
            command: the compiler with the flags of every source, but none that name files or the language.
            version: of the compiler.
        """
        key = (version, *command)
        with self._lock:
            if key not in self._made:
                self._made[key] = self._make(list(command), self._cache.key([*key, self.text]))
            made = self._made[key]
        if made is None:
            return None
        # Should the cache have been pruned meanwhile, sources are compiled whole from now on.
        try:
            for path in (made.header, _compiled_header(made.header), made.runtime):
                os.utime(path)
        except OSError:
            return None
        return made

    def _make(self, command: list[str], key: str) -> Precompiled | None:
        header = self._cache.directory.absolute() / "headers" / key
        kept = Precompiled(header, header.with_name(f"{key}.o"))
        if kept.runtime.exists():
            return kept
        with contextlib.suppress(OSError, subprocess.TimeoutExpired), self._cache.workspace() as folder:
            text = folder / "prelude.hpp"
            made = Precompiled(text, folder / "runtime.o")
            # Messages name neither this folder nor the cache.
            text.write_text(f'#define MPTUNE_RUNTIME_APART 1\n#line 1 "{text.name}"\n{self.text}')
            self._compile([*command, "-x", "c++-header", str(text), "-o", str(_compiled_header(text))], folder)
            runtime = ["-DMPTUNE_RUNTIME_HERE=1", "-x", "c++", "-c", str(text), "-o", str(made.runtime)]
            self._compile([*command, *runtime], folder)
            header.parent.mkdir(parents=True, exist_ok=True)
            _compiled_header(made.header).replace(_compiled_header(kept.header))
            made.header.replace(kept.header)
            made.runtime.replace(kept.runtime)
            return kept
        return None

    def _compile(self, command: list[str], folder: Path) -> None:
        environment = {**os.environ, "TMPDIR": str(folder), "LC_ALL": "C"}
        self._processes.run(command, text="", environment=environment, folder=str(folder), timeout_s=_LIMIT_S)


def _compiled_header(header: Path) -> Path:
    return header.with_name(f"{header.name}.gch")
