"""The compilers that are libraries, NVRTC and hiprtc, whose interfaces differ only in their names."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mptune.errors import CompileError

__all__ = ["CompilerSpec", "RuntimeLibrary"]

_MESSAGE_LINES: Final = 25
_INTERESTING: Final = re.compile(r"\b(error|fatal)\b|\bptxas\b", re.IGNORECASE)
#: What the compiler calls the text before the template, whose own lines a ``#line`` directive names.
_SOURCE_NAME: Final = b"prelude.hpp"


@dataclass(frozen=True, slots=True)
class CompilerSpec:
    """Which compiler, and where it is.

    Attributes:
        name: what messages call it.
        prefix: what its functions' names start with ("nvrtc").
        code: the kind of code to ask for ("CUBIN"; hiprtc has only "Code").
        path: the library.
    """

    name: str
    prefix: str
    code: str
    path: str


class RuntimeLibrary:
    """The library itself, in this very process.

    Args:
        spec: which.

    Raises:
        OSError: it does not load.
        AttributeError: it lacks a function.
    """

    def __init__(self, spec: CompilerSpec) -> None:
        self.spec = spec
        self._prefix = spec.prefix
        self._library = ctypes.CDLL(spec.path)
        self.version = self._version()

    def compile(self, source: str, function: str, flags: Sequence[str]) -> tuple[bytes, str]:
        """Return the code of a source and what the compiler printed.

        Raises:
            CompileError: the compiler rejected the source.
        """
        with self._program(source) as program:
            options = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
            status = self._call("CompileProgram", program, ctypes.c_int(len(flags)), options)
            log = self._fetch("ProgramLog", program).rstrip(b"\0\n").decode(errors="replace")
            if status != 0:
                raise CompileError(
                    f"{self.spec.name} rejected {function} ({self._reason(status)})\n{_excerpt(log)}".rstrip()
                )
            return self._fetch(self.spec.code, program), log

    @contextlib.contextmanager
    def _program(self, source: str) -> Iterator[ctypes.c_void_p]:
        program = ctypes.c_void_p()
        self._check("CreateProgram", ctypes.byref(program), source.encode(), _SOURCE_NAME, ctypes.c_int(0), None, None)
        try:
            yield program
        finally:
            self._call("DestroyProgram", ctypes.byref(program))

    def _fetch(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._check(f"Get{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(max(size.value, 1))
        self._check(f"Get{what}", program, text)
        return text.raw[: size.value]

    def _call(self, function: str, *arguments: object) -> int:
        return int(getattr(self._library, self._prefix + function)(*arguments))

    def _check(self, function: str, *arguments: object) -> None:
        status = self._call(function, *arguments)
        if status != 0:
            raise CompileError(f"{self._prefix}{function} failed: {self._reason(status)}")

    def _reason(self, status: int) -> str:
        text = getattr(self._library, f"{self._prefix}GetErrorString")
        text.restype = ctypes.c_char_p
        found = text(status)
        return found.decode() if found else f"status {status}"

    def _version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check("Version", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"


def _excerpt(log: str) -> str:
    """Return the first errors with what follows each, or the start of a log without any."""
    lines = [line for line in log.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if _INTERESTING.search(line)), 0)
    shown = lines[first : first + _MESSAGE_LINES]
    left = len(lines) - first - len(shown)
    return "\n".join([*shown, f"... {left} more lines"] if left else shown)
