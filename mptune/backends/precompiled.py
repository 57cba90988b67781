"""The prelude, read by the compiler once instead of for every source."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mptune.backends.binary_cache import BinaryCache
from mptune.processes import ChildGroup

__all__ = ["SERVED_SOURCE", "Precompiled", "PrecompiledPrelude"]

#: What a compiler that serves is told to include; there can be no such file.
SERVED_SOURCE: Final = "/dev/null/source"

_LIMIT_S: Final = 60.0
#: Checks of the C library would replace the functions it defines.
_SERVER_FLAGS: Final = ("-w", "-O1", "-U_FORTIFY_SOURCE", "-shared", "-fPIC")
_SERVER: Final = Path(__file__).with_name("compiler_server.c")


@dataclass(frozen=True, slots=True)
class Precompiled:
    """Files of a prelude that was compiled.

    Attributes:
        header: what to include in place of the prelude's text.
        runtime: the object to link with: what runs once a launch, which is the same for all sources.
        server: the library that makes a server of a compiler; None where it could not be made.
    """

    header: Path
    runtime: Path
    server: Path | None


class PrecompiledPrelude:
    """What all sources begin with: as g++ keeps it after reading it (a ``.gch`` file beside the text), and an object.

    g++ takes the text where the ``.gch`` does not fit, so that this one is a matter of speed alone; so is the library
    for :mod:`mptune.backends.compiler_server`.

    Args:
        text: how the sources begin.
        cache: where the files are kept.
        processes: runs the compiler.
    """

    def __init__(self, text: str, cache: BinaryCache, processes: ChildGroup) -> None:
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
                kept_as = self._cache.key([*key, self.text, _SERVER.read_text(encoding="utf-8")])
                self._made[key] = self._make(list(command), kept_as)
            made = self._made[key]
        if made is None:
            return None
        # Should the cache have been pruned meanwhile, sources are compiled whole from now on.
        try:
            for path in (made.header, _compiled_header(made.header), made.runtime, made.server):
                if path is not None:
                    os.utime(path)
        except OSError:
            return None
        return made

    def _make(self, command: list[str], key: str) -> Precompiled | None:
        header = self._cache.directory.absolute() / "headers" / key
        runtime, server = (header.with_name(f"{key}{suffix}") for suffix in (".o", ".so"))
        if runtime.exists():
            return Precompiled(header, runtime, server if server.exists() else None)
        with contextlib.suppress(OSError, subprocess.TimeoutExpired), self._cache.workspace() as folder:
            text, made = folder / "prelude.hpp", folder / "made"
            # Messages name neither this folder nor the cache.
            text.write_text(f'#define MPTUNE_RUNTIME_APART 1\n#line 1 "{text.name}"\n{self.text}')
            header.parent.mkdir(parents=True, exist_ok=True)
            self._compile([*command, "-x", "c++-header", str(text), "-o", str(made)], folder)
            made.replace(_compiled_header(header))
            named = f'-DMPTUNE_SOURCE="{SERVED_SOURCE}"'
            self._compile([command[0], *_SERVER_FLAGS, named, "-x", "c++", str(_SERVER), "-o", str(made)], folder)
            can_serve = made.exists()
            if can_serve:
                made.replace(server)
            self._compile([*command, "-DMPTUNE_RUNTIME_HERE=1", "-x", "c++", "-c", str(text), "-o", str(made)], folder)
            text.replace(header)
            made.replace(runtime)
            return Precompiled(header, runtime, server if can_serve else None)
        return None

    def _compile(self, command: list[str], folder: Path) -> None:
        environment = {**os.environ, "TMPDIR": str(folder), "LC_ALL": "C"}
        self._processes.run(command, text="", environment=environment, folder=str(folder), timeout_s=_LIMIT_S)


def _compiled_header(header: Path) -> Path:
    return header.with_name(f"{header.name}.gch")
