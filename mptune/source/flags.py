"""The compiler and its flags as parameters of a kernel, and as lines at the end of a source.

A source names its own compiler, so caches, trial keys and other processes need only the source.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mptune.errors import MptuneError

if TYPE_CHECKING:  # `mptune backends` does not import them
    from mptune.kernel import Kernel, Tunable
    from mptune.space.configuration import Configuration

COMPILER: Final = "compiler"
FLAGS: Final = "compiler_flags"

#: The language of a kernel that the OpenCL driver compiles as it stands, and the first line of its source.
OPENCL_C: Final = "OpenCL C"
OPENCL_C_LINE: Final = "// OpenCL C\n"

_LINE: Final = re.compile(rf"// mptune ({COMPILER}|{FLAGS}): (.*)")
#: Compilers that a run file may name. Values from files may come from anyone, so a compiler is a plain name, a flag one
#: word without a path, and options that load, run, read or write files are excluded.
_NAME: Final = re.compile(r"g\+\+(-[\d.]+)?|clang\+\+(-[\d.]+)?|zig")
_OTHER_USES: Final = (
    "plugin|pass-plugin|use-ld|profile|auto-profile|sanitize|openmp(?!-simd)|dump|save|record|module|coverage|"
    "test-coverage|callgraph|stack-usage|diagnostics|crash|debug|embed|time|working|integrated|optimization-record|"
    "thinlto|offload|compare|file|macro|canon|input|exec|syntax|preprocessed|directives|pch|gnu|opt-info|ada|go|xray"
)
_VALUE: Final = r"[\w.:,!+-]+"
_FLAG: Final = re.compile(
    rf"-O(\d|[gsz]|fast)?|-f(no-)?(?!no-|{_OTHER_USES})[a-z][\w-]*(={_VALUE})?|"
    rf"-m(no-)?(?!llvm|linker|stack-protector-guard)[a-z\d][\w.-]*(={_VALUE})?|-D[A-Za-z_]\w*(=[\w.+-]*)?|"
    r"--param=[\w-]+=\d+"
)
#: Further flags accepted from a run file; their folders contain no special character of a shell or make.
_HARMLESS: Final = re.compile(
    r"-U[A-Za-z_]\w*|--?std=[\w+]+|-w|-W[a-z][\w-]*(=[\w-]+)?|-g|-pthread|-fopenmp|-l(m|mvec|quadmath|gomp|stdc\+\+)|"
    r"-cl-[a-z][\w.=-]*|-munsafe-fp-atomics|--?(use_fast_math|extra-device-vectorization|restrict)|"
    r"-I/[\w./@+,=-]*|--?(fmad|ftz|prec-div|prec-sqrt|maxrregcount|extra-device-vectorization|use_fast_math)=\w+"
)
#: Flags of a device's compiler that the host's compiler also gets.
_DEFINITIONS: Final = ("-D", "-U", "-I")


@dataclass(frozen=True, slots=True)
class Build:
    """A compiler and its flags; an empty compiler stands for the default one."""

    compiler: str = ""
    flags: tuple[str, ...] = ()


def with_build(kernel: Kernel, compilers: Sequence[str] = (), flag_sets: Sequence[str] = ()) -> Kernel:
    """Return a kernel with the compiler, the flags or both as parameters, in its accuracy signature."""
    from mptune.space.parameters import BuildParameter

    for name in compilers:
        if not _NAME.fullmatch(name):
            raise MptuneError(f"compiler {name!r}: expected g++, clang++ (also with a version: clang++-19) or zig")
    values = {COMPILER: compilers, FLAGS: [" ".join(read_flags(flags)) for flags in flag_sets]}
    names = [name for name in values if values[name]]
    for name in names:
        if name in (*kernel.parameter_names, *kernel.sizes["default"]):
            raise MptuneError(f"kernel {kernel.name} has a parameter or size {name!r}: rename it")
    if not names:
        return kernel
    added = [BuildParameter(name, values[name]) for name in names]
    return dataclasses.replace(kernel, parameters=(*kernel.parameters, *added), signature=(*kernel.signature, *names))


def read_flags(text: str) -> tuple[str, ...]:
    """Split a set of flags; raise MptuneError if a flag is neither an optimisation nor a definition."""
    try:
        flags = tuple(shlex.split(text))
    except ValueError as error:
        raise MptuneError(f"compiler flags {text!r}: {error}") from error
    for flag in flags:
        if not _FLAG.fullmatch(flag):
            expected = "expected an optimisation or a definition, such as -O2, -ffast-math, -mavx2, -DNAME=1"
            raise MptuneError(f"compiler flag {flag!r}: {expected}; give others with --compiler-flag")
    return flags


def on_host(flags: Sequence[str]) -> tuple[str, ...]:
    """Return the flags of a device's compiler that the host's compiler also gets: definitions and folders."""
    return tuple(flag for flag in flags if flag.startswith(_DEFINITIONS) and flag not in _DEFINITIONS)


def settled_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Return flags independent of the working directory, one word each: ``-I include`` becomes ``-I/…/include``."""
    words = iter(flags)
    joined = [word + next(words, "") if word in _DEFINITIONS else word for word in words]
    return tuple(re.sub(r"\A-I(.+)", lambda match: f"-I{Path(match[1]).resolve()}", flag) for flag in joined)


def recorded_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Return flags of a run file, which may come from anyone; raise MptuneError if a flag may run or load code."""
    for flag in flags:
        if not (_FLAG.fullmatch(flag) or _HARMLESS.fullmatch(flag)):
            expected = "expected an optimisation, a definition (-DNAME=VALUE) or a folder of headers (-I)"
            raise MptuneError(f"compiler flag {flag!r} of a run file: {expected}; put it into the template")
    return tuple(flags)


def compilers_of(kernel: Tunable) -> tuple[str, ...]:
    """Return the values of a kernel's compiler parameter."""
    return tuple(str(v) for p in kernel.parameters if p.kind == "build" and p.name == COMPILER for v in p.values)


def build_of(kernel: Kernel, configuration: Configuration) -> Build:
    """Return the compiler and flags of a configuration."""
    values = {p.name: str(configuration[p.name]) for p in kernel.parameters if p.kind == "build"}
    return Build(values.get(COMPILER, ""), read_flags(values.get(FLAGS, "")))


def build_lines(kernel: Kernel, configuration: Configuration) -> str:
    """Return the last lines of a configuration's source; empty without build parameters."""
    named = (p.name for p in kernel.parameters if p.kind == "build")
    return "".join(f"// mptune {name}: {configuration[name]}\n" for name in named)


def build_in(source: str) -> Build:
    """Return the compiler and flags that a source's last lines name; raise MptuneError if either is not allowed."""
    last = source.rsplit("\n", 3)[-3:]
    found = {line[1]: line[2] for line in map(_LINE.fullmatch, last) if line}
    compiler = found.get(COMPILER, "")
    if compiler and not _NAME.fullmatch(compiler):
        raise MptuneError(f"the source's compiler {compiler!r} is not g++, clang++ or zig")
    return Build(compiler, read_flags(found.get(FLAGS, "")))
