"""Which compiler a kernel is better compiled with, where the first one found leaves its fp16 loop scalar."""

from __future__ import annotations

import os
import re
from typing import Final

from mptune.backends.host_compiler import HostCompiler, Program, host_architecture, installed_compilers
from mptune.backends.processor import processor
from mptune.errors import EmptySpaceError, MptuneError
from mptune.kernel import Kernel, Sizes
from mptune.rendering import render
from mptune.space.parameters import PrecisionParameter

__all__ = ["compiler_for_fp16"]

#: Arithmetic in fp16: on vectors, and on one number at a time.
_VECTORS: Final = re.compile(r"^\s+v(?:add|sub|mul|div|fn?m(?:add|sub))\w*ph\s", re.MULTILINE)
_SINGLES: Final = re.compile(r"^\s+v(?:add|sub|mul|div|fn?m(?:add|sub))\w*sh\s", re.MULTILINE)


def compiler_for_fp16(compiler: HostCompiler, kernel: Kernel, sizes: Sizes) -> tuple[str, str]:
    """Return the name of the compiler to take instead of the default one, and why; empty texts if there is none.

    There is if the processor computes in fp16, the default compiler leaves the kernel's arithmetic in fp16 scalar, and
    another one does not. ``$CXX`` and a limited architecture (``$MPTUNE_HOST_ARCH``) are taken as they are.
    """
    if os.environ.get("CXX", "").strip() or host_architecture() or "avx512_fp16" not in processor().architecture:
        return "", ""
    default, *others = installed_compilers() or (None,)
    source = _all_in_fp16(kernel, sizes) if others else None
    if default is None or source is None or _vectorises(compiler, default, source, kernel):
        return "", ""
    for other in others:
        if _vectorises(compiler, other, source, kernel):
            why = f"{default.label} leaves the fp16 loop of {kernel.name} scalar: compiling with {other.label} instead"
            return other.label, f"{why} (--compiler {default.label} keeps it)"
    return "", ""


def _all_in_fp16(kernel: Kernel, sizes: Sizes) -> str | None:
    """Return the source of the configuration with all types fp16 and the other parameters at their largest.

    Where a constraint forbids that, of the last configuration with these types; None if there is none, or no source.
    """
    types = [p for p in kernel.parameters if isinstance(p, PrecisionParameter)]
    if not types or any("fp16" not in p.values for p in types):
        return None
    try:
        space = kernel.search_space(sizes).restrict({p.name: ("fp16",) for p in types})
        return render(kernel, space.configuration(space.size - 1), sizes)
    except EmptySpaceError:
        return None
    except MptuneError:  # is told of when the run begins
        return None


def _vectorises(compiler: HostCompiler, program: Program, source: str, kernel: Kernel) -> bool:
    """Whether a compiler makes vectors of a source's arithmetic in fp16; also if it has none."""
    try:
        assembly = compiler.assembly(program, source, kernel.function)
    except MptuneError:
        return False
    return bool(_VECTORS.search(assembly)) or not _SINGLES.search(assembly)
