"""Names a kernel cannot have: the words of C++, and what the prelude declares outside its namespaces."""

from __future__ import annotations

import functools
import re
from typing import Final

from mptune.cpp.prelude import prelude
from mptune.cpp.tokens import KEYWORDS

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
