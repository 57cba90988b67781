"""The prelude: the C++ text every rendered source begins with, the same for all backends; and the names it takes.

A change of a header that a source includes beside it counts as one of the source.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mptune.cpp.tokens import KEYWORDS
from mptune.errors import TemplateError, did_you_mean
from mptune.paths import bundled_folder

#: The parts of the prelude, in the order they depend on each other.
PRELUDE_FILES: Final = tuple(
    f"{name}.hpp"
    for name in re.findall(
        r"\w+",
        """platform opencl host warps host_fiber host_pool host_grid conversions literal types local traced compound
        arithmetic_cuda arithmetic atomics functions math_device math_opencl polynomials math_host math pairs vector
        vector_members neighbours intrinsics short_intrinsics cuda_functions virtual_threads phases declared""",
    )
)
#: Libraries for kernels. The text of one stands between the prelude and a template with ``USES_LIBRARY(cub);``.
LIBRARIES: Final = ("cub.hpp", "cooperative_groups.hpp", "curand.hpp", "kernel_float.hpp")
#: Libraries with functions in which threads wait for each other.
WAITING_LIBRARIES: Final = frozenset(("cub", "cooperative_groups"))
#: Libraries over CUDA's threads and memory, which OpenCL has not.
_OF_CUDA: Final = ("cub", "cooperative_groups", "curand")
_USES_LIBRARY: Final = re.compile(r"\bUSES_LIBRARY\((\w+)\)")
#: Functions of CUDA that programs have, too, which run as they are, by the macro that says where they are.
_SHARED: Final = {
    "MPTUNE_INTRINSICS": "intrinsics.hpp",
    "MPTUNE_SHORT_INTRINSICS": "short_intrinsics.hpp",
    "MPTUNE_WARPS": "warps.hpp",
    **{f"MPTUNE_{name.removesuffix('.hpp').upper()}": name for name in LIBRARIES},
}
_SHORT: Final = re.compile(r"\b(?:__\w+|h2?[a-z]+\d*)\b(?=[,()])")


def prelude_folder() -> Path:
    """Return where the parts of the prelude are."""
    return bundled_folder("templates") / "prelude"


def shared_intrinsics() -> list[str]:
    """Return how a compiler is told where the functions of CUDA are that programs share with templates."""
    folder = prelude_folder()
    return [f'-D{macro}="{folder / name}"' for macro, name in _SHARED.items()]


@functools.cache
def short_intrinsics() -> frozenset[str]:
    """Return the names of CUDA's functions of numbers of 16 bits, which are in the namespace ``mptune_short``."""
    text = _part(_SHARED["MPTUNE_SHORT_INTRINSICS"])
    return frozenset(_SHORT.findall(text))


@functools.cache
def prelude() -> str:
    """Return the text of the prelude that starts every rendered source."""
    return "\n".join(map(_part, PRELUDE_FILES))


def libraries_of(body: str) -> str:
    """Return the libraries that a template uses, to stand before it; raises TemplateError for an unknown one."""
    known = [name.removesuffix(".hpp") for name in LIBRARIES]
    used = dict.fromkeys(_USES_LIBRARY.findall(body))
    if unknown := next((name for name in used if name not in known), ""):
        raise TemplateError(f"there is no library {unknown}; expected {', '.join(known)}{did_you_mean(unknown, known)}")
    text = "".join(_part(f"{name}.hpp").replace("#pragma once\n", "") for name in used)
    missing = ", no ".join(name for name in used if name in _OF_CUDA)
    refused = f'#if defined(MPTUNE_OPENCL)\n#error "OpenCL has no {missing}: use the host, CUDA or HIP"\n#endif\n'
    return refused + text if missing else text


def _part(name: str) -> str:
    return (prelude_folder() / name).read_text(encoding="utf-8")


# -- the names it takes ----------------------------------------------------------------------------

#: Functions that CUDA declares in every source besides the prelude's: a kernel of such a name is for the host alone.
FUNCTIONS_OF_CUDA: Final = frozenset(
    re.findall(
        r"\w+",
        """clock clock64 cyl_bessel_i0 cyl_bessel_i1 erfcinv erfcx erfinv fabsf fmaxf fminf free frexp
        ilogb j0 j0f j1 jn labs ldexp llabs llrint llround logb lrint
        lround malloc modf nan nextafter norm norm3d norm4d normcdfinv normf remquo rnorm
        rnorm3d rnorm4d rnormf rsqrtf scalbln scalbn sincos sincospi umax umin y0 y1
        yn""",
    )
)
_FIXED: Final = frozenset(("threadIdx", "blockIdx", "blockDim", "gridDim", "printf", "memcpy", "memmove", "memset"))
#: What the prelude declares, in its text without the bodies of its namespaces; group 1 is the name.
_DECLARATIONS: Final = (
    r"^\s*#\s*define\s+(\w+)",
    r"^(?:template <.*> )?(?:struct|class|enum|using|namespace)\s+(\w+)",
    r"^using [\w:]*::(\w+);",
    r"^\w[^(;{}=\n]*?\b(?!__attribute__|alignas)(\w+)\(",
    r"^\w[^(){}=\n]*?\b(\w+)(?:\[.*?\])?(?: = .*)?;",
)


def why_reserved(name: str) -> str:
    """Say what a name means already; empty if nothing."""
    if name in KEYWORDS:
        return "a word of C++"
    if name in ("main", "std"):
        return "a name that every C++ program has"
    return "a name of the prelude that stands before every template" if name in prelude_names() else ""


@functools.cache
def prelude_names() -> frozenset[str]:
    """Return the names that the prelude declares outside its namespaces, for any compiler."""
    code = re.sub(r"/\*.*?\*/|(?<!\}  )//.*", "", prelude()).replace("\\\n", " ")
    undone = re.findall(r"#\s*undef\s+(\w+)", code)
    outside = re.sub(
        r"^namespace (\w+) \{.*?^\}  // namespace \1$", r"namespace \1", code, flags=re.DOTALL | re.MULTILINE
    )
    outside = re.sub(r"__attribute__\(\(.*?\)\)|(?:alignas|__align__)\(.*?\)", "", outside)
    found = {name for pattern in _DECLARATIONS for name in re.findall(pattern, outside, re.MULTILINE)}
    listed = re.findall(r"\b(?:one|two)\((\w+)\)", code)
    return _FIXED.union(found, listed) - {*undone, *KEYWORDS}


# -- what a source includes beside it --------------------------------------------------------------

_INCLUDE: Final = re.compile(
    r'^[ \t]*#[ \t]*(?:include|include_next|import)\b[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|\S).*', re.MULTILINE
)
#: What stands before a folder or file in a compiler's flag, in the same word.
_OPTION: Final = re.compile(
    r"\A-+(?:I|isystem|iquote|idirafter|imacros|include-path|include-directory|pre-include|include)?=?"
)
_VARIABLES: Final = ("CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH")
#: Stands for a header whose name a macro gives: nobody knows what it holds, so nothing of it is used in a later run.
_UNKNOWN: Final = uuid.uuid4().hex


def include_lines(text: str) -> str:
    """Return the lines of a text that include a header."""
    return "\n".join(found[0].strip() for found in _INCLUDE.finditer(text))


def with_headers(source: str, flags: Sequence[str] = ()) -> str:
    """Return a source as the keys of binaries and trials have it: with digests of the prelude and of its headers.

    A source without prelude that includes nothing is returned as it is. The prelude is long, and hashed once.

    Headers are found by reading, not by preprocessing: also those in a branch that is not taken, and those that a
    header includes. What is in none of the folders that flags, ``$CXX`` and the environment name is the compiler's
    own and changes with its version.

    Args:
        source: prelude, template and entry; the prelude's own headers do not count.
        flags: of the compiler.
    """
    words = [_OPTION.sub("", word, count=1) for word in (*flags, *os.environ.get("CXX", "").split())]
    folders = [Path(folder) for name in _VARIABLES for folder in os.environ.get(name, "").split(os.pathsep)]
    named = [Path(word) for word in words if word]
    digest, seen = hashlib.sha256(), set[Path]()
    pending = [path for path in named if os.path.isfile(path)]  # noqa: PTH113
    folders += named
    body = source.removeprefix(prelude())
    if body != source:
        source = f"// prelude: {_prelude_digest()}\n{body}"
    pending += _included(body, folders)
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            content = path.read_bytes()
        except OSError:
            content = _UNKNOWN.encode()
        digest.update(hashlib.sha256(content).digest())
        pending += _included(content.decode("latin-1"), [path.parent, *folders])
    return f"{source}\n// headers: {digest.hexdigest()}\n" if seen else source


@functools.cache
def _prelude_digest() -> str:
    return hashlib.sha256(prelude().encode()).hexdigest()


def _included(text: str, folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the files that a text may mean by what it includes; one that is not there for a name a macro gives."""
    for quoted, angled in _INCLUDE.findall(text):
        if name := quoted or angled:
            # Which of several is taken, the compiler knows. A name no file can have is no error here.
            yield from (path for folder in folders if os.path.isfile(path := folder / name))  # noqa: PTH113
        else:
            yield Path(_UNKNOWN)
