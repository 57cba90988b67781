"""Translation of a rendered source to C++ for OpenCL, beyond the prelude's macros.

- Pointer parameters of kernels get their address space.
- Static assertions about parameters move into the kernel.
- Dynamic shared memory becomes an additional parameter.
- Each array in constant memory gets a kernel that copies it.
- ``long long``, 128 bits in OpenCL, becomes ``long``.
- Kernels with warp functions ask for subgroups of the size of a warp.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from mptune.cpp.prelude import include_lines, prelude, short_intrinsics
from mptune.source.dialect import KERNEL_FUNCTION, comments_blanked, parameters_at

#: Names that are renamed: OpenCL's keywords, and OpenCL's built-in functions that CUDA lacks or defines differently
#: (``min`` and ``max`` of NaN). Overload resolution would prefer a built-in to the template's or prelude's function.
_HIDDEN: Final = re.findall(
    r"\w+",
    """half local global constant kernel generic pipe read_only write_only read_write
    min max step smoothstep select bitselect clamp mix sign degrees radians cross dot distance length normalize
    fast_distance fast_length fast_normalize mad mad24 mul24 mad_hi mad_sat mul_hi add_sat sub_sat abs_diff hadd
    rhadd rotate upsample clz ctz popcount shuffle shuffle2 all any isequal isnotequal isgreater isgreaterequal
    isless islessequal islessgreater isnormal isordered isunordered maxmag minmag fract pown powr rootn acospi
    asinpi atanpi atan2pi prefetch work_group_all work_group_any work_group_broadcast""",
)
_CONSTANT: Final = re.compile(r"\b(?:__constant__|MPTUNE_VARIABLE)\b[^;={}()]*?\b(\w+)\s*(?:\[[^\]]*\]\s*)*(?=[;={])")
#: The assertion of a parameter's type: the text before the type, the parameter's number, the function, and the rest.
_DECLARED: Final = re.compile(
    r"(static_assert\(mptune_declared::fits<[^;]*?)typename mptune_declared::parameter<(\d+), decltype\(&(\w+)\)>::type"
    r'(>, "[^"]*"\);)'
)
_WARPS: Final = re.compile(r"\b__(?:shfl|ballot|any|all|activemask|match|reduce|syncwarp)(?:_\w+)?\b")
_NAME_OF_PARAMETER: Final = re.compile(r"(\w+)\s*\)?\s*(?:\[[^\]]*\]\s*)*$")
_LONG_LONG: Final = re.compile(r"\blong\s+long\b")
_LONG_LITERAL: Final = re.compile(r"\b(0[xX][\da-fA-F']+|\d[\d']*)([uU]?)(?:ll|LL)([uU]?)\b")


def as_opencl(source: str) -> str:
    """Translate a rendered source to C++ for OpenCL; every line of the template keeps its number."""
    body = source.removeprefix(prelude())
    # Kernels keep their names.
    kernels = {head[1] for head in KERNEL_FUNCTION.finditer(comments_blanked(body))}
    definitions = "".join(f"#define {word} mptune_{word}\n" for word in _HIDDEN if word not in kernels)
    # A third of what a driver's front end takes for a short kernel. A header or a macro may form their names.
    may_use_short = "##" in body or include_lines(body) or not short_intrinsics().isdisjoint(re.findall(r"\w+", body))
    if len(body) < len(source):
        definitions += "" if may_use_short else "#define MPTUNE_NO_SHORT_INTRINSICS 1\n"
        definitions += _prelude()
    if _WARPS.search(body):
        body = re.sub(r"\b__global__\b", "__global__ MPTUNE_IN_SUBGROUPS", body)
    return f"{definitions}{_body(body)}"


@functools.cache
def _prelude() -> str:
    return _without_long_long(prelude())


def _body(body: str) -> str:
    code = comments_blanked(body)
    parts, done = [], 0
    heads = list(KERNEL_FUNCTION.finditer(code))
    declared = _DECLARED.findall(body)
    for head, following in zip(heads, [*heads[1:], None], strict=False):
        places = parameters_at(code, head.end())
        end, last = places[-1][1], following.start() if following else len(code)
        parts.append(body[done : head.end()])
        for start, stop in places:
            is_pointer = re.search(r"[*\[]", re.sub(r"\[\[.*?\]\]", "", code[start:stop]))
            begins = stop - len(code[start:stop].lstrip())
            parts.append(f"{body[start:begins]}{'__global ' if is_pointer else ''}{body[begins:stop]},")
        has_none = not body[places[0][0] : end].strip()
        has_dynamic = "SHARED_DYNAMIC" in code[end:last]
        parts[-1] = ("" if has_none else parts[-1] if has_dynamic else parts[-1][:-1]) + (
            " __local uchar16* mptune_dynamic_shared" if has_dynamic else ""
        )
        done = end
        names = [_NAME_OF_PARAMETER.search(code[start:stop]) for start, stop in places]
        asserted = "".join(
            f" {before}decltype(mptune_declared::value({name[1]})){after}"
            for before, i, function, after in declared
            if function == head[1] and int(i) < len(names) and (name := names[int(i)])
        )
        if asserted:
            done = code.index("{", end) + 1
            parts += [body[end:done], asserted]
    copies = "".join(f"MPTUNE_CONSTANT({name})\n" for name in _CONSTANT.findall(code))
    kept = _DECLARED.sub("", "".join((*parts, body[done:])))
    return f"{_without_long_long(kept)}\n{copies}" if copies else _without_long_long(kept)


def _without_long_long(text: str) -> str:
    return _LONG_LITERAL.sub(r"\1\2\3l", _LONG_LONG.sub("long", text))
