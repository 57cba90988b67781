"""PROMISE (cadnaPromise) on the programs of ``benchmarks/programs``: the peer of ``mptune adopt``.

PROMISE searches the types of C++ variables by delta debugging, compiling and running every try, against a reference
that CADNA computes with random rounding. Here it gets the bodies of the same kernels: each type written in device code
is a variable of its own for it to decide, except vectors, which are copied whole and share one.

It is a program of its own (GPL) that is only run, from the environment it is installed in; it needs rsync and perl, and
CADNA, which is built once::

    pip install cadnaPromise && activate-promise --CXX=g++
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mptune.backends.host_compiler import find_compiler
from mptune.errors import MptuneError

HEADER: Final = Path(__file__).with_name("promise_device.hpp")
#: Flags of the host backend that are for libraries without C++'s own; programs that are timed have all the others.
_OF_LIBRARIES: Final = ("-shared", "-fPIC", "-nostdlib", "-fno-exceptions", "-fno-rtti", "-x", "c++", "-")
_COMPILE: Final = (
    "g++ -std=c++17 -O2 -w -frounding-math -I$CADNA_PATH/include program.cc -o program -L$CADNA_PATH/lib -lcadnaC"
)
_DEVICE: Final = re.compile(r"__(?:global|device)__[^;{]*\{")
_LAUNCH: Final = re.compile(r"(\w+)\s*<<<(.*?)>>>\s*\((.*?)\)\s*;", re.DOTALL)
_POINTERS: Final = re.compile(r"\b(?:double4?)\s*((?:\*\s*\w+(?:\[\w+\])?\s*,\s*)*\*\s*\w+(?:\[\w+\])?)\s*;")
_TIME: Final = re.compile(r"^TIME_MS (\S+)$", re.MULTILINE)
_TALLY: Final = re.compile(r"(\d+) compilations\b")


@dataclass(frozen=True, slots=True)
class Found:
    """What PROMISE found for a program.

    Attributes:
        types: the type of each variable.
        compilations: how many it took.
    """

    types: dict[str, str]
    compilations: int


def as_cplusplus(text: str) -> str:
    """Return a plain CUDA program as C++ for PROMISE, with a tag in place of each type of device code.

    It understands what the programs here are written in: double and double4, pointers that are declared by themselves,
    launches of at most two dimensions.
    """
    device, host, position = [], [], 0
    for match in _DEVICE.finditer(text):
        end = _closing(text, match.end())
        host.append(text[position : match.start()])
        device.append((len(host), text[match.start() : end]))
        host.append("")
        position = end
    host.append(text[position:])
    parts = [_on_host(part) for part in host]
    number = 0
    for place, body in device:
        body = re.sub(r"__global__|__device__", "static __attribute__((always_inline)) inline", body)
        body = body.replace("double4", "four<__PR_vectors__ >")

        def tag(_: re.Match[str]) -> str:
            nonlocal number
            number += 1
            return f"__PR_t{number}__"

        parts[place] = re.sub(r"\bdouble\b", tag, body)
    return "".join(parts)


def _closing(text: str, start: int) -> int:
    """Return where the block ends whose opening brace is right before ``start``."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    raise MptuneError("a kernel has no closing brace")


def _on_host(text: str) -> str:
    text = text.replace("#include <cuda_runtime.h>", '#include "promise_device.hpp"')
    text = _POINTERS.sub(lambda match: f"Device {match[1].replace('*', '')};", text)
    text = re.sub(r"for \(double\* (\w+) :", r"for (Device& \1 :", text)
    text = _LAUNCH.sub(_launched, text)
    return re.sub(r"\bdouble\b", "host_real", re.sub(r"\b(make_)?double4\b", r"\1host_four", text))


def _launched(match: re.Match[str]) -> str:
    kernel, geometry, arguments = match.groups()
    depth = 0
    for place, character in enumerate(geometry):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            grid, block = geometry[:place], geometry[place + 1 :]
            return f"Launch<{kernel}>::run({grid.strip()}, {block.strip()}, {arguments});"
    raise MptuneError(f"{kernel} is launched without a block size")


def installed(environment: Path) -> str:
    """Return the version of PROMISE in an environment.

    Raises:
        MptuneError: it is not there, or CADNA has not been built.
    """
    command = environment / "bin" / "promise"
    cadna = list(environment.glob("lib/python*/site-packages/cadnaPromise/cadna/lib/libcadnaC.a"))
    if not command.exists() or not cadna:
        raise MptuneError(
            f"{environment} has no PROMISE with CADNA: python -m venv {environment}; "
            f"{environment}/bin/pip install cadnaPromise; {environment}/bin/activate-promise --CXX=g++"
        )
    for tool in ("rsync", "perl", "g++"):
        if shutil.which(tool) is None:
            raise MptuneError(f"PROMISE needs {tool}, which is not installed")
    answer = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"version (\S+)", answer.stdout + answer.stderr)
    return version[1] if version else "unknown"


def search(environment: Path, program: Path, arguments: tuple[str, ...], digits: int, precisions: str) -> Found:
    """Let PROMISE search the types of a program for so many digits of each number of its answer.

    Args:
        environment: where it is installed.
        program: a CUDA program.
        arguments: those of its main.
        digits: significant decimal digits.
        precisions: the types as letters: h, s and d.

    Raises:
        MptuneError: PROMISE gave up; its last line.
    """
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "project"
        work.mkdir()
        (work / "program.cc").write_text(as_cplusplus(program.read_text()))
        shutil.copy(HEADER, work)
        lines = ["compile:", f"- {_COMPILE}", f"run: {' '.join(['program', *arguments])}", "files: program.cc"]
        (work / "promise.yml").write_text("\n".join([*lines, f"nbDigits: {digits}", "output: found", ""]))
        answer = subprocess.run(
            [str(environment.resolve() / "bin" / "promise"), f"--precs={precisions}", "--conf=promise.yml"],
            cwd=work,
            capture_output=True,
            text=True,
            check=False,
            # Its tries are made in folders of their own, which it leaves.
            env={**os.environ, "TMPDIR": folder},
        )
        told = answer.stdout + answer.stderr
        found = work / "found" / "program.cc"
        if not found.exists():
            reasons = [line for line in told.splitlines() if line.strip()]
            raise MptuneError(f"PROMISE found nothing for {program.stem}: {reasons[-1] if reasons else 'no output'}")
        tally = _TALLY.search(told)
        assert tally is not None, told
        return Found(types_of((work / "program.cc").read_text(), found.read_text()), int(tally[1]))


def in_types(program: Path, types: Mapping[str, str] | None = None) -> str:
    """Return a program as C++ in the processor's own types, to be timed: those found, or double throughout."""
    own = {name: found.replace("half_float::half", "_Float16") for name, found in (types or {}).items()}
    return re.sub(r"__PR_(\w+?)__", lambda tag: own[tag[1]] if own else "double", as_cplusplus(program.read_text()))


def types_of(tagged: str, found: str) -> dict[str, str]:
    """Return the type that stands in the place of each tag."""
    pieces = re.split(r"__PR_(\w+?)__", tagged)
    pattern = "".join(
        re.escape(piece) if place % 2 == 0 else r"(double|float|half_float::half)" for place, piece in enumerate(pieces)
    )
    match = re.search(pattern, found)
    if match is None:
        raise MptuneError("what PROMISE wrote is not the program it was given")
    return dict(zip(pieces[1::2], match.groups(), strict=True))


@contextlib.contextmanager
def built(text: str, arguments: tuple[str, ...]) -> Iterator[Callable[[], float]]:
    """Compile a program as the host backend would, and give what runs it and returns its launch's median time."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "program.cc").write_text(text)
        shutil.copy(HEADER, work)
        compiler = find_compiler()
        flags = [flag for flag in compiler.flags() if flag not in _OF_LIBRARIES and not flag.startswith("-l")]
        command = [*compiler.command, *flags, "-fopenmp", "-DTIMED", "program.cc", "-o", "program"]
        subprocess.run(command, cwd=work, check=True)

        def time_ms() -> float:
            # What a program says of its own check is of no interest: fewer digits were asked for.
            answer = subprocess.run([work / "program", *arguments], capture_output=True, text=True, check=False)
            return sum(float(value) for value in _TIME.findall(answer.stdout))

        yield time_ms
