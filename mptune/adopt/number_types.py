"""What clang's types are to numbers: which floating-point type is behind one, and what a function computes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from mptune.adopt.containers import held_by
from mptune.adopt.reading import VECTOR

#: The types of a program's numbers that mptune has a name for.
PRECISIONS: Final = {"double": "fp64", "float": "fp32", "__half": "fp16", "__nv_bfloat16": "bf16"}
SCALARS: Final = ("double", "float", "long double", "__half", "__nv_bfloat16")
QUALIFIERS: Final = re.compile(r"\b(const|volatile|struct|__restrict)\b")
#: Functions of one or more numbers, by the name without ``f``; whatever else a kernel calls is the program's own.
MATH: Final = frozenset(
    re.findall(
        r"\w+",
        "abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi erf erfc erfcinv erfcx erfinv "
        "exp exp10 exp2 expm1 fabs fdim fdivide floor fma fmax fmin fmod frexp hypot ilogb isfinite isinf isnan ldexp "
        "lgamma llrint llround log log10 log1p log2 logb lrint lround max min modf nearbyint nextafter norm3d normcdf "
        "normcdfinv pow rcbrt remainder rhypot rint round rsqrt saturate scalbn signbit sin sincos sincospi sinh sinpi "
        "sqrt tan tanh tgamma trunc",
    )
)
_INTRINSIC: Final = re.compile(r"__(exp|exp10|log|log2|log10|sin|cos|tan|pow|sincos|fdivide)f")


def scalar_of(canonical: Any) -> tuple[str, int] | None:
    """Return the type of the numbers behind a type (through pointers, references and arrays) and how many make one."""
    while is_pointer(canonical):
        canonical = pointee(canonical).get_canonical()
    name = QUALIFIERS.sub("", canonical.spelling).strip()
    if name in SCALARS:
        return name, 1
    vector = VECTOR.fullmatch(name)
    return (vector[1], int(vector[2])) if vector else None


def is_pointer(canonical: Any) -> bool:
    """Whether values of a type are places in memory that others may share."""
    kind: str = canonical.kind.name
    is_plain = kind in ("POINTER", "LVALUEREFERENCE", "RVALUEREFERENCE") or "ARRAY" in kind
    return is_plain or held_by(canonical) is not None


def pointee(canonical: Any) -> Any:
    """Return the type of what a pointer points at, or of the elements of an array or a container."""
    if (held := held_by(canonical)) is not None:
        return held
    return canonical.element_type if "ARRAY" in canonical.kind.name else canonical.get_pointee()


def element_of(canonical: Any) -> Any:
    """Return a type without the arrays that it is of."""
    while "ARRAY" in canonical.kind.name:
        canonical = canonical.element_type.get_canonical()
    return canonical


def element_behind(canonical: Any) -> Any:
    """Return the type of what a pointer points at, or an array is of; None for any other type."""
    kind = canonical.kind.name
    return element_of(pointee(canonical).get_canonical()) if kind == "POINTER" or "ARRAY" in kind else None


def bare_name(canonical: Any) -> str:
    """Return how a type is called, without ``const`` and its like."""
    return QUALIFIERS.sub("", canonical.spelling).strip()


def numbers_in(struct: Any) -> Iterator[str]:
    """Give clang's names of the fields of a struct, and of structs within, that are numbers or arrays of numbers."""
    for base in struct.get_declaration().get_children():
        if base.kind.name == "CXX_BASE_SPECIFIER":
            yield from numbers_in(base.type.get_canonical())
    for field in struct.get_fields():
        inner = element_of(field.type.get_canonical())
        if scalar_of(inner) is None and inner.kind.name == "RECORD":
            yield from numbers_in(inner)
        elif inner.kind.name != "POINTER":
            yield field.get_usr()


def math_function(name: str) -> str | None:
    """Return the mathematical function of a name (``expf``, ``__expf``); None if it is none."""
    if intrinsic := _INTRINSIC.fullmatch(name):
        return intrinsic[1]
    if name in MATH:
        return name
    return name[:-1] if name.endswith("f") and name[:-1] in MATH else None
