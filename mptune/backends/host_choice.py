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

#: The last letter of x86's arithmetic in a type, after ``p`` for vectors and ``s`` for one number at a time.
_LETTERS: Final = {"fp16": "h", "fp32": "s", "fp64": "d"}
_ARITHMETIC: Final = r"^\s+v(?:add|sub|mul|div|fn?m(?:add|sub))\w*"


def compiler_for_fp16(compiler: HostCompiler, kernel: Kernel, sizes: Sizes) -> tuple[str, str]:
    """Return the name of the compiler to take instead of the default one, and why; empty texts if there is none.

    There is if the processor computes in fp16, the default compiler leaves the kernel's arithmetic in fp16 scalar, and
    another one does not. Where that one leaves arithmetic in a wider type scalar instead, the default stays, since few
    kernels can be all in fp16: then only a reason is returned, which says how to search both. ``$CXX`` and a limited
    architecture (``$MPTUNE_HOST_ARCH``) are taken as they are.
    """
    if os.environ.get("CXX", "").strip() or host_architecture() or "avx512_fp16" not in processor().architecture:
        return "", ""
    default, *others = installed_compilers() or (None,)
    if default is None or not others or _vectorises(compiler, default, kernel, sizes, "fp16"):
        return "", ""
    remark = ""
    scalar = f"{default.label} leaves the fp16 loop of {kernel.name} scalar"
    for other in others:
        if not _vectorises(compiler, other, kernel, sizes, "fp16"):
            continue
        lost = [
            wider
            for wider in ("fp32", "fp64")
            if _vectorises(compiler, default, kernel, sizes, wider)
            and not _vectorises(compiler, other, kernel, sizes, wider)
        ]
        if not lost:
            keep = f"(--compiler {default.label} keeps it)"
            return other.label, f"{scalar}: compiling with {other.label} instead {keep}"
        both = f"--compiler {default.label},{other.label} searches both"
        remark = remark or f"{scalar}, and {other.label} those of {' and '.join(lost)}: {both}"
    return "", remark


def _vectorises(compiler: HostCompiler, program: Program, kernel: Kernel, sizes: Sizes, name: str) -> bool:
    """Whether a compiler makes vectors of a kernel's arithmetic, all in one type; also if there is none to be made."""
    source = _all_in(name, kernel, sizes)
    if source is None:
        return True
    try:
        assembly = compiler.assembly(program, source, kernel.function)
    except MptuneError:
        return False
    vectors, singles = (re.search(f"{_ARITHMETIC}{x}{_LETTERS[name]}\\s", assembly, re.MULTILINE) for x in "ps")
    return vectors is not None or singles is None


def _all_in(name: str, kernel: Kernel, sizes: Sizes) -> str | None:
    """Return the source of the configuration with all types the same and the other parameters at their largest.

    Where a constraint forbids that, of the last configuration with these types; None if there is none, or no source.
    """
    types = [p for p in kernel.parameters if isinstance(p, PrecisionParameter)]
    if not types or any(name not in p.values for p in types):
        return None
    try:
        space = kernel.search_space(sizes).restrict({p.name: (name,) for p in types})
        return render(kernel, space.configuration(space.size - 1), sizes)
    except EmptySpaceError:
        return None
    except MptuneError:  # is told of when the run begins
        return None
