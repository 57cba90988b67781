"""The programs g++ calls for a source, as it tells them (``-###``), to be called without it."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mptune.backends.precompiled import SERVED_SOURCE, Precompiled
from mptune.resources.elf import defined_symbols, sections, undefined_symbols

__all__ = ["ASSEMBLY", "LIBRARY", "OBJECT", "GccCommands"]

#: The files in the folder they run in.
ASSEMBLY: Final = "kernel.s"
OBJECT: Final = "kernel.o"
LIBRARY: Final = "kernel.so"
#: Flags whose work is not done by these three programs alone.
_UNSERVED: Final = ("-flto", "-fuse-ld", "-save-temps")
#: What code may call without any library but those every process has.
_ALWAYS_THERE: Final = ("_GLOBAL_OFFSET_TABLE_", "__tls_get_addr", "memcpy", "memmove", "memset")
_LIMIT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class GccCommands:
    """Compiler, assembler and linker with all of their arguments.

    Attributes:
        compile: writes the assembly of the source it includes to its standard output.
        assemble: makes an object of that.
        link: makes a shared library of the object and the runtime.
        known: symbols for which there is no need to look through libraries.
    """

    compile: tuple[str, ...]
    assemble: tuple[str, ...]
    link: tuple[str, ...]
    known: frozenset[str]

    @classmethod
    def of(cls, driver: Sequence[str], flags: Sequence[str], made: Precompiled) -> GccCommands | None:
        """Ask g++; None where it would do anything else.

        Args:
            driver: how to call it.
            flags: as of :meth:`~mptune.backends.host_compiler.Compiler.flags`.
            made: what stands for the prelude.

        Raises:
            OSError: it could not be started.
            subprocess.SubprocessError: it does not answer.
            MptuneError: the runtime is damaged.
        """
        language = flags.index("-x")
        common, libraries = flags[:language], [flag for flag in flags[language:] if flag.startswith("-l")]
        if any(flag.startswith(_UNSERVED) for flag in common):
            return None
        source = ("-include", str(made.header), *common, "-include", SERVED_SOURCE, "-x", "c++", os.devnull)
        compiler = _last_command(driver, (*source, "-S", "-o", "-"), "cc1plus")
        assembler = _last_command(driver, (*common, "-c", "-x", "assembler", ASSEMBLY, "-o", OBJECT), "as")
        linker = _last_command(driver, (*common, OBJECT, str(made.runtime), *libraries, "-o", LIBRARY), "collect2")
        program = _answer(driver, "-print-prog-name=ld").strip()
        if not (compiler and assembler and linker and program):
            return None
        known = frozenset((*_ALWAYS_THERE, *defined_symbols(sections(made.runtime.read_bytes()))))
        return cls(compiler, assembler, (program, *_without_plugin(linker[1:])), known)

    def link_of(self, compiled: bytes) -> tuple[str, ...]:
        """Return how to link an object: without looking through libraries it takes nothing from.

        Raises:
            MptuneError: it is damaged.
        """
        if self.known.issuperset(undefined_symbols(sections(compiled))):
            return tuple(word for word in self.link if not word.startswith("-l"))
        return self.link


def _last_command(driver: Sequence[str], arguments: Sequence[str], program: str) -> tuple[str, ...]:
    """Return the last command g++ would run, nothing where it is not of this program."""
    lines = [line for line in _answer(driver, "-###", *arguments).splitlines() if line.startswith(" ")]
    words = shlex.split(lines[-1]) if lines else []
    return tuple(words) if words and Path(words[0]).name == program else ()


def _answer(driver: Sequence[str], *arguments: str) -> str:
    answer = subprocess.run(
        [*driver, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=_LIMIT_S,
        check=True,
        env={**os.environ, "LC_ALL": "C"},
        cwd=os.sep,
    )
    return answer.stdout


def _without_plugin(words: Sequence[str]) -> list[str]:
    """Return the arguments of a linker without those that load what links intermediate code."""
    kept = [word for word in words if not word.startswith("-plugin-opt=")]
    if "-plugin" in kept:
        at = kept.index("-plugin")
        del kept[at : at + 2]
    return kept
