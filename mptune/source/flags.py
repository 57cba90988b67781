"""How a source is compiled, if that is tuned too: two parameters of a kernel, and the lines at the end of a source.

A source says itself what is to compile it, so that everything a source goes through (compilation ahead, caches, the key
of a trial, other processes) needs to know nothing more.
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

#: Names of the parameters.
COMPILER: Final = "compiler"
FLAGS: Final = "compiler_flags"

#: One of the lines that end a source.
_LINE: Final = re.compile(rf"// mptune ({COMPILER}|{FLAGS}): (.*)")
#: Values also come from run files. So a compiler is a plain name, a flag is one word without a path, and the options
#: that load, run, read or write something are left out.
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
#: What else a recorded flag may be; no folder has a character that a shell or make reads.
_HARMLESS: Final = re.compile(
    r"-U[A-Za-z_]\w*|--?std=[\w+]+|-w|-W[a-z][\w-]*(=[\w-]+)?|-g|-pthread|-fopenmp|-l(m|mvec|quadmath|gomp)|"
    r"-cl-[a-z][\w.=-]*|-munsafe-fp-atomics|--?(use_fast_math|extra-device-vectorization|restrict)|"
    r"-I/[\w./@+,=-]*|--?(fmad|ftz|prec-div|prec-sqrt|maxrregcount|extra-device-vectorization|use_fast_math)=\w+"
)
#: What a flag of any compiler may begin with that the host's is given, too.
_DEFINITIONS: Final = ("-D", "-U", "-I")


@dataclass(frozen=True, slots=True)
class Build:
    """What a source is to be compiled with; an empty compiler stands for the default one."""

    compiler: str = ""
    flags: tuple[str, ...] = ()


def with_build(kernel: Kernel, compilers: Sequence[str] = (), flag_sets: Sequence[str] = ()) -> Kernel:
    """Return a kernel that has the compiler, the flags or both as parameters, of one or more values.

    The numbers may depend on either, so they are part of the accuracy signature.
    """
    from mptune.space.parameters import BuildParameter

    for name in compilers:
        if not _NAME.fullmatch(name):
            raise MptuneError(f"compiler {name!r}: expected g++, clang++ (also with a version: clang++-19) or zig")
    values = {COMPILER: compilers, FLAGS: [" ".join(read_flags(flags)) for flags in flag_sets]}
    names = [name for name in values if values[name]]
    for name in names:
        if name in (*kernel.parameter_names, *kernel.sizes["default"]):
            raise MptuneError(f"kernel {kernel.name} has a {name!r} of its own: give that another name")
    if not names:
        return kernel
    added = [BuildParameter(name, values[name]) for name in names]
    return dataclasses.replace(kernel, parameters=(*kernel.parameters, *added), signature=(*kernel.signature, *names))


def read_flags(text: str) -> tuple[str, ...]:
    """Split a set of flags; raises MptuneError (one of them is not a flag of optimisation)."""
    try:
        flags = tuple(shlex.split(text))
    except ValueError as error:
        raise MptuneError(f"compiler flags {text!r}: {error}") from error
    for flag in flags:
        if not _FLAG.fullmatch(flag):
            expected = "expected one of optimisation or a definition, such as -O2, -ffast-math, -mavx2, -DNAME=1"
            raise MptuneError(f"compiler flag {flag!r}: {expected}; any other goes with --compiler-flag")
    return flags


def on_host(flags: Sequence[str]) -> tuple[str, ...]:
    """Return those of a device's compiler flags that the host's compiler is given, too."""
    return tuple(flag for flag in flags if flag.startswith(_DEFINITIONS) and flag not in _DEFINITIONS)


def settled_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Return flags that mean the same in any working directory, each one word: ``-I include`` is ``-I/…/include``."""
    words = iter(flags)
    joined = [word + next(words, "") if word in _DEFINITIONS else word for word in words]
    return tuple(re.sub(r"\A-I(.+)", lambda match: f"-I{Path(match[1]).resolve()}", flag) for flag in joined)


def recorded_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Return flags of a file, which may come from anyone; raises an MptuneError if one may run something."""
    for flag in flags:
        if not (_FLAG.fullmatch(flag) or _HARMLESS.fullmatch(flag)):
            expected = "expected one of optimisation, a definition (-DNAME=VALUE) or a folder of headers (-I)"
            raise MptuneError(f"compiler flag {flag!r} of a run file: {expected}; say this one in the template")
    return tuple(flags)


def compilers_of(kernel: Tunable) -> tuple[str, ...]:
    """Return the compilers a kernel's sources may name."""
    return tuple(str(v) for p in kernel.parameters if p.kind == "build" and p.name == COMPILER for v in p.values)


def build_of(kernel: Kernel, configuration: Configuration) -> Build:
    """Return what a configuration is to be compiled with."""
    values = {p.name: str(configuration[p.name]) for p in kernel.parameters if p.kind == "build"}
    return Build(values.get(COMPILER, ""), read_flags(values.get(FLAGS, "")))


def build_lines(kernel: Kernel, configuration: Configuration) -> str:
    """Return the lines that end the source of a configuration; nothing if it has no such parameters."""
    named = (p.name for p in kernel.parameters if p.kind == "build")
    return "".join(f"// mptune {name}: {configuration[name]}\n" for name in named)


def build_in(source: str) -> Build:
    """Return what the end of a source says; raises MptuneError."""
    last = source.rsplit("\n", 3)[-3:]
    found = {line[1]: line[2] for line in map(_LINE.fullmatch, last) if line}
    compiler = found.get(COMPILER, "")
    if compiler and not _NAME.fullmatch(compiler):
        raise MptuneError(f"the source is to be compiled with {compiler!r}, which is not the name of a compiler")
    return Build(compiler, read_flags(found.get(FLAGS, "")))
