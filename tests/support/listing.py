"""What a compiler made of a kernel, counted in its assembly: conversions, arithmetic on vectors, registers in memory.

Read are x86 (AT&T syntax) and AArch64 assembly, as g++ and clang++ write them, and PTX. Counted are instructions in the
text, not how often they run; of two configurations of one template that differ in a type alone, the counts compare.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_LINE: Final = r"^[ \t{]*(?:@!?%p\d+\s+)?"
_FLOATS: Final = r"(?:bf16x2|bf16|f16x2|f16|f32|f64|e4m3x2|e5m2x2)"


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile(rf"{_LINE}(?:{'|'.join(patterns)})", re.MULTILINE)


#: From one floating-point type to another. Processors without an instruction for it call a function, or widen bf16 by a
#: shift of 16-bit words that are made 32 bits long, and narrow it the other way round.
_CONVERSIONS: Final = _any(
    r"v?cvt(?:ps2pd|pd2ps|ss2sd|sd2ss|ps2phx?|ph2psx?|pd2ph|ph2pd|ss2sh|sh2ss|sd2sh|sh2sd|ne2?ps2bf16)",
    r"v?pmovzxwd|vpmovdw",
    r"(?:call|jmp|bl)\s+__(?:extend|trunc)[hsdb]f[hsdb]f2",
    r"fcvt(?:l2?|n2?|xn2?)?\s|bfcvt",
    rf"cvt(?:\.\w+)*?\.{_FLOATS}\.{_FLOATS}\b",
)
_X86_ARITHMETIC: Final = r"v?(?:add|sub|mul|div|sqrt|fn?m(?:add|sub)(?:add|sub)?\d{3})"
_ARM_ARITHMETIC: Final = r"f(?:add|sub|mul|div|mla|mls|madd|msub|nmadd|nmsub|nmul|sqrt)"
_PTX_ARITHMETIC: Final = r"(?:add|sub|mul|div|fma|sqrt)(?:\.\w+)*?"
_ON_VECTORS: Final = _any(
    rf"{_X86_ARITHMETIC}p[sdh]\s", rf"{_ARM_ARITHMETIC}\s+[vz]\d", rf"{_PTX_ARITHMETIC}\.(?:bf16x2|f16x2|f32x2)\s"
)
_ON_NUMBERS: Final = _any(
    rf"{_X86_ARITHMETIC}s[sdh]\s", rf"{_ARM_ARITHMETIC}\s+[dsh]\d", rf"{_PTX_ARITHMETIC}\.(?:bf16|f16|f32|f64)\s"
)
#: A vector register written to the stack frame.
_STACK_STORES: Final = _any(
    r"v?mov(?:[au]p[sd]|s[sdh]|dq[au](?:8|16|32|64)?)\s+%[xyz]mm\d+,\s*-?\d*\(%r[sb]p\)",
    r"(?:str|stur|stp)\s+[qdsh]\d+,.*\[sp",
)
#: Functions that the C library has for fp64, and with an f for fp32; processors have no instruction for them.
_FUNCTIONS: Final = (
    r"(?:a?(?:sin|cos|tan)h?|atan2|sincos|exp(?:2|m1|10)?|log(?:2|10|1p)?|pow|cbrt|hypot|fmod|erfc?|[lt]gamma"
    r"|[jy][01n])"
)
_CALL: Final = r"(?:callq?|jmp|bl?)\s+\*?"
_END: Final = r"(?:@\w+)?(?:\(%rip\))?\s*$"
#: On x86 and AArch64, one that takes vectors has their kind before its name: _ZGVeN8v_exp.
_FP64_CALLS: Final = _any(rf"{_CALL}_?(?:_ZGV\w+?_)?{_FUNCTIONS}{_END}")
_SINGLE_CALLS: Final = _any(rf"{_CALL}_?{_FUNCTIONS}f?{_END}")
_PTX: Final = re.compile(r"^\.version\s", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Instructions:
    """How many instructions of a kind a listing has.

    Attributes:
        conversions: between floating-point types.
        vector_operations: floating-point arithmetic on several numbers at a time.
        scalar_operations: on one number at a time.
        stack_stores: floating-point registers written to the stack; None where the listing does not tell (PTX).
        fp64_calls: of the C library's mathematical functions in fp64, whatever type the kernel has their arguments in.
        single_calls: of such functions, in any type, for one number each.
    """

    conversions: int
    vector_operations: int
    scalar_operations: int
    stack_stores: int | None
    fp64_calls: int = 0
    single_calls: int = 0


def count_arithmetic(listing: str) -> tuple[int, int]:
    """Count the floating-point arithmetic of an assembly listing: on vectors, and on one number at a time."""
    return len(_ON_VECTORS.findall(listing)), len(_ON_NUMBERS.findall(listing))


def count_instructions(listing: str) -> Instructions:
    """Count the instructions of an assembly listing."""
    kinds = (_CONVERSIONS, _STACK_STORES, _FP64_CALLS, _SINGLE_CALLS)
    conversions, stores, *calls = (len(kind.findall(listing)) for kind in kinds)
    vectors, numbers = count_arithmetic(listing)
    return Instructions(conversions, vectors, numbers, None if _PTX.search(listing) else stores, *calls)
