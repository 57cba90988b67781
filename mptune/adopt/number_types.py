"""Number types: the one table of them, and what clang's types say of numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from mptune.adopt.containers import held_by


@dataclass(frozen=True, slots=True)
class NumberType:
    """A type of numbers.

    Attributes:
        bytes: its size.
        numpy: NumPy's name of it; "" where NumPy has none.
        precision: mptune's name of a floating-point type; "" for any other.
    """

    bytes: int
    numpy: str
    precision: str = ""


#: By name in C++, without typedefs.
NUMBERS: Final = {
    "double": NumberType(8, "float64", "fp64"),
    "float": NumberType(4, "float32", "fp32"),
    "__half": NumberType(2, "float16", "fp16"),
    "__nv_bfloat16": NumberType(2, "", "bf16"),
    "long double": NumberType(16, ""),
    "char": NumberType(1, "int8"),
    "signed char": NumberType(1, "int8"),
    "unsigned char": NumberType(1, "uint8"),
    "bool": NumberType(1, "uint8"),
    "short": NumberType(2, "int16"),
    "unsigned short": NumberType(2, "uint16"),
    "int": NumberType(4, "int32"),
    "unsigned int": NumberType(4, "uint32"),
    "long": NumberType(8, "int64"),
    "unsigned long": NumberType(8, "uint64"),
    "long long": NumberType(8, "int64"),
    "unsigned long long": NumberType(8, "uint64"),
}
#: mptune's names of the floating-point types that it can change.
PRECISIONS: Final = {name: each.precision for name, each in NUMBERS.items() if each.precision}
SCALARS: Final = (*PRECISIONS, "long double")
_QUALIFIERS: Final = re.compile(r"\b(const|volatile|struct|union|__restrict)\b")
_VECTOR: Final = re.compile(r"(double|float|__half|int)([1234])")
#: Functions of one or more numbers, by the name without ``f``; any other function that a kernel calls is the program's.
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


def math_function(name: str) -> str | None:
    """Return the mathematical function of a name (``expf``, ``__expf``); None for any other function."""
    if intrinsic := _INTRINSIC.fullmatch(name):
        return intrinsic[1]
    return name if name in MATH else name[:-1] if name.endswith("f") and name[:-1] in MATH else None


def vector_of(name: str) -> tuple[str, int] | None:
    """Return type and number of the components of one of CUDA's vectors (``double3``); None for any other type."""
    found = _VECTOR.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def scalar_named(name: str) -> tuple[str, int] | None:
    """Return type and number of the floating-point numbers in a value of a type; None for any other type."""
    found = (name, 1) if name in SCALARS else vector_of(name)
    return found if found is not None and found[0] in SCALARS else None


# -- clang's types, without typedefs ---------------------------------------------------------------


def bare_name(canonical: Any) -> str:
    """Return the name of a type without ``const`` and its like."""
    return _QUALIFIERS.sub("", canonical.spelling).strip()


def is_array(canonical: Any) -> bool:
    """Whether a type is an array."""
    return "ARRAY" in canonical.kind.name


def is_pointer(canonical: Any) -> bool:
    """Whether values of a type are places in memory that others may share."""
    is_plain = canonical.kind.name in ("POINTER", "LVALUEREFERENCE", "RVALUEREFERENCE") or is_array(canonical)
    return is_plain or held_by(canonical) is not None


def pointee(canonical: Any) -> Any:
    """Return the type that a pointer or reference leads to, or the element type of an array or a container."""
    if (held := held_by(canonical)) is not None:
        return held
    return (canonical.element_type if is_array(canonical) else canonical.get_pointee()).get_canonical()


def element_of(canonical: Any) -> Any:
    """Return the type of the elements of an array, of however many dimensions; any other type itself."""
    while is_array(canonical):
        canonical = pointee(canonical)
    return canonical


def element_behind(canonical: Any) -> Any:
    """Return the element type of a pointer or an array; None for any other type."""
    return element_of(pointee(canonical)) if canonical.kind.name == "POINTER" or is_array(canonical) else None


def scalar_of(canonical: Any) -> tuple[str, int] | None:
    """Return type and number of the floating-point numbers in a value of a type, through pointers and arrays."""
    while is_pointer(canonical):
        canonical = pointee(canonical)
    return scalar_named(bare_name(canonical))


def has_bases(canonical: Any) -> bool:
    """Whether a struct is derived from another one."""
    return any(child.kind.name == "CXX_BASE_SPECIFIER" for child in canonical.get_declaration().get_children())


def fields_within(canonical: Any) -> Iterator[Any]:
    """Yield the fields of a struct, of its bases and of the structs in it; vectors of CUDA have none."""
    canonical = element_of(canonical)
    if canonical.kind.name != "RECORD" or scalar_of(canonical) is not None:
        return
    for child in canonical.get_declaration().get_children():
        if child.kind.name == "CXX_BASE_SPECIFIER":
            yield from fields_within(child.type.get_canonical())
    for field in canonical.get_fields():
        yield field
        yield from fields_within(field.type.get_canonical())


def numbers_in(canonical: Any) -> list[str]:
    """Return clang's names of the fields of a struct, and of structs within, that are numbers or arrays of numbers."""
    kinds = ((field, element_of(field.type.get_canonical())) for field in fields_within(canonical))
    return [f.get_usr() for f, kind in kinds if kind.kind.name != "POINTER" and not _is_struct(kind)]


def _is_struct(canonical: Any) -> bool:
    return canonical.kind.name == "RECORD" and scalar_of(canonical) is None
