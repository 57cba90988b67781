"""A rendered source in C++ for OpenCL: what of CUDA's dialect the prelude cannot say in OpenCL's, in other words.

Pointers among a kernel's parameters get their address space. Dynamic shared memory becomes a further parameter, and
for each array in constant memory there is one more kernel that copies it. ``long long``, of 128 bits in OpenCL, becomes
``long``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Final

from mptune.dialect import KERNEL_FUNCTION, comments_blanked, parameters_at
from mptune.prelude import prelude, prelude_part, short_intrinsics

__all__ = ["as_opencl"]

#: Keywords of OpenCL that are names in the prelude or may be some in a template.
_KEYWORDS: Final = ("half", "local", "global", "constant", "kernel", "generic", "pipe", "read_only", "write_only")
_DEFINITIONS: Final = "".join(f"#define {word} mptune_{word}\n" for word in _KEYWORDS)
_CONSTANT: Final = re.compile(r"\b__constant__\b[^;={}()]*?\b(\w+)\s*(?:\[[^\]]*\]\s*)*(?=[;={])")
#: That a kernel takes what a definition declares: its parameters have other types here than CUDA's have.
_DECLARED: Final = re.compile(r"static_assert\(mptune_declared::(?:holds|fits)<.*?\);", re.DOTALL)
_WORD: Final = re.compile(r"\w+")
#: Types that are declared with the functions of 16 bits.
_PAIRS: Final = {"half2", "bfloat162"}
_LONG_LONG: Final = re.compile(r"\blong\s+long\b")
_LONG_LITERAL: Final = re.compile(r"\b(0[xX][\da-fA-F']+|\d[\d']*)([uU]?)(?:ll|LL)([uU]?)\b")


def as_opencl(source: str) -> str:
    """Return a rendered source as an OpenCL driver reads it; every line of the template keeps its number."""
    body = source.removeprefix(prelude())
    has_short = not (short_intrinsics() | _PAIRS).isdisjoint(_WORD.findall(body))
    before = _prelude(has_short=has_short) if len(body) < len(source) else ""
    return f"{_DEFINITIONS}{before}{_body(body)}"


@functools.cache
def _prelude(*, has_short: bool) -> str:
    """Return the prelude; without the functions of 16 bits, which are a fifth of what a driver takes to compile it."""
    return _without_long_long(prelude() if has_short else prelude().replace(prelude_part("short_intrinsics.hpp"), ""))


def _body(body: str) -> str:
    code = comments_blanked(body)
    parts, done = [], 0
    heads = list(KERNEL_FUNCTION.finditer(code))
    for head, following in zip(heads, [*heads[1:], None], strict=False):
        start, last = head.end(), following.start() if following else len(code)
        end = start + len(parameters_at(code, start))
        has_dynamic = "SHARED_DYNAMIC" in code[end:last]
        parts += [body[done:start], _parameters(body[start:end], code[start:end], has_dynamic)]
        done = end
    copies = "".join(f"MPTUNE_CONSTANT({name})\n" for name in _CONSTANT.findall(code))
    kept = _DECLARED.sub("", "".join((*parts, body[done:])))
    return f"{_without_long_long(kept)}\n{copies}" if copies else _without_long_long(kept)


def _parameters(text: str, code: str, has_dynamic: bool) -> str:
    """Return the parameters of a kernel with their address spaces; ``code`` is the text with its comments blanked."""
    found, at = [], 0
    for one in _split(code):
        is_pointer = bool(re.search(r"[*\[]", re.sub(r"\[\[.*?\]\]", "", one)))
        begins, ends = at + len(one) - len(one.lstrip()), at + len(one)
        found.append(f"{text[at:begins]}{'__global ' * is_pointer}{text[begins:ends]}")
        at = ends + 1
    own = found if code.strip() else []
    return ", ".join([",".join(own)] * bool(own) + ["__local uchar16* mptune_dynamic_shared"] * has_dynamic)


def _split(code: str) -> Iterator[str]:
    """Yield what stands between the commas that are in no brackets."""
    depth = start = 0
    for i, character in enumerate(code):
        depth += (character in "(<[{") - (character in ")>]}")
        if character == "," and depth == 0:
            yield code[start:i]
            start = i + 1
    yield code[start:]


def _without_long_long(text: str) -> str:
    return _LONG_LITERAL.sub(r"\1\2\3l", _LONG_LONG.sub("long", text))
