"""The table of floating-point types.

fp8 types are storage types: values are converted on load and store. Figures follow IEEE 754-2019 for fp64, fp32 and
fp16, the bfloat16 definition (8 exponent and 7 stored significand bits), and the OCP 8-bit floating-point specification
(E4M3 without infinities, E5M2 with).

A compound precision consists of several numbers of a narrower type (``templates/prelude/compound.hpp``). Variables can
have a compound precision; buffers hold the nearest fp64 or fp32.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np

from mptune.errors import UnknownNameError

#: Implementations of transcendental functions, most to least accurate (Heldens 2026, Sec. IV).
POLICIES: Final[tuple[str, ...]] = ("accurate", "fast", "approx")


@dataclass(frozen=True, slots=True, eq=False)
class Precision:
    """One floating-point type."""

    name: str  #: canonical name ("fp32")
    dtype: np.dtype[Any]  #: NumPy scalar type of a buffer in this precision
    cpp: str  #: name of the type in a rendered template, defined by the prelude on every backend
    size_bytes: int  #: bytes of one element
    significand_bits: int  #: bits of the significand, including the implicit bit
    largest: float  #: largest finite value
    smallest_normal: float  #: smallest positive normal value
    storage_only: bool = False  #: whether arithmetic in this type is excluded
    is_traced: bool = False  #: whether values are held in fp64, as in :data:`TRACED`
    stored: Precision | None = None  #: the type in memory, if different
    computed_in: Precision | None = None  #: the type of its operations, if different
    flops_of_fma: int = 2  #: additions and multiplications in one multiply-add
    further_bits: float = 0.0  #: bits gained (or lost) relative to the plain type with the same significand
    aliases: tuple[str, ...] = field(default=(), repr=False)  #: other accepted spellings, in any case

    @property
    def unit_roundoff(self) -> float:
        """The bound on the relative error of one rounding: half the distance from 1 to the next larger value."""
        return 2.0**-self.significand_bits

    @property
    def rank(self) -> float:
        """The accuracy in bits, by which types are ordered."""
        return self.significand_bits + self.further_bits

    @property
    def in_memory(self) -> Precision:
        """The precision of a buffer declared in this precision."""
        return self.stored or self

    @property
    def has_infinity(self) -> bool:
        """Whether overflow gives an infinity; E4M3 gives NaN."""
        return self.name != "fp8_e4m3"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return precision, (self.name,)


def _entry(name: str, scalar: Any, cpp: str, significand_bits: int, aliases: tuple[str, ...]) -> Precision:
    dtype = np.dtype(scalar)
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return Precision(
        name=name,
        dtype=dtype,
        cpp=cpp,
        size_bytes=dtype.itemsize,
        significand_bits=significand_bits,
        largest=float(info.max),
        smallest_normal=float(info.smallest_normal),
        storage_only=dtype.itemsize == 1,
        aliases=aliases,
    )


_TABLE = (
    _entry("fp64", np.float64, "double", 53, ("double", "float64", "f64", "d")),
    _entry("fp32", np.float32, "float", 24, ("float", "float32", "f32", "single")),
    _entry("fp16", np.float16, "half", 11, ("half", "float16", "f16", "__half", "_Float16")),
    _entry("bf16", ml_dtypes.bfloat16, "bfloat16", 8, ("bfloat16", "bfloat", "__nv_bfloat16", "__hip_bfloat16")),
    _entry(
        "fp8_e4m3", ml_dtypes.float8_e4m3fn, "fp8_e4m3", 4, ("e4m3", "float8_e4m3", "float8_e4m3fn", "__nv_fp8_e4m3")
    ),
    _entry("fp8_e5m2", ml_dtypes.float8_e5m2, "fp8_e5m2", 3, ("e5m2", "float8_e5m2", "__nv_fp8_e5m2")),
)

#: Every precision by canonical name, widest first.
PRECISIONS: Final[MappingProxyType[str, Precision]] = MappingProxyType({entry.name: entry for entry in _TABLE})

_FP64: Final = PRECISIONS["fp64"]
_FP32: Final = PRECISIONS["fp32"]


def _compound(name: str, stored: Precision, computed_in: Precision, **differs: Any) -> Precision:
    return dataclasses.replace(stored, name=name, cpp=f"mp::{name}", stored=stored, computed_in=computed_in, **differs)


_COMPOUND_TABLE = (
    # A sum of n numbers has an error of u + n^2 u^2: one rounding up to n = 1 / sqrt(u) (Ogita, Rump & Oishi 2005).
    # A multiply-add is a product, a two-sum (6), and an addition.
    _compound("fp64_neumaier", _FP64, _FP64, flops_of_fma=8, aliases=("fp64_compensated",), further_bits=0.5),
    # Two floats, 48 bits. The error is at most 4 * 2^-48 for sums and products, 15 * 2^-48 for quotients (Joldes,
    # Muller & Popescu 2017). A multiply-add is an exact product (3), a two-sum (6), two additions, and a quick two-sum
    # (3). Below 2^-102 the second float loses digits.
    _compound(
        "fp32x2",
        _FP64,
        _FP32,
        flops_of_fma=14,
        aliases=("double_float", "df64", "float_float"),
        significand_bits=46,
        largest=_FP32.largest,
        smallest_normal=_FP32.smallest_normal * 2.0**24,
    ),
    _compound("fp32_neumaier", _FP32, _FP32, flops_of_fma=8, aliases=("fp32_compensated",), further_bits=0.5),
    # Six products of bfloat16, summed in fp32. A multiply-add is a multiplication, five fused multiply-adds, and an
    # addition. The error of a product is twice that of fp32.
    _compound(
        "bf16x3",
        _FP32,
        _FP32,
        flops_of_fma=12,
        aliases=("split_bf16",),
        largest=PRECISIONS["bf16"].largest,
        smallest_normal=_FP32.smallest_normal * 2.0**16,
        further_bits=-0.5,
    ),
)

#: Compound precisions by name, for variables and sums, most accurate first.
COMPOUND: Final[MappingProxyType[str, Precision]] = MappingProxyType({entry.name: entry for entry in _COMPOUND_TABLE})

#: Plain and compound precisions by name, most accurate first.
EVERY_PRECISION: Final[MappingProxyType[str, Precision]] = MappingProxyType(
    {e.name: e for e in sorted((*_COMPOUND_TABLE, *_TABLE), key=lambda e: -e.rank)}
)

#: Precisions by name with values held in fp64, for a source whose types are chosen at run time.
TRACED: Final[MappingProxyType[str, Precision]] = MappingProxyType(
    {e.name: dataclasses.replace(e, dtype=np.dtype(np.float64), size_bytes=8, is_traced=True) for e in _TABLE}
)

#: The precisions arithmetic can happen in.
ARITHMETIC: Final[tuple[Precision, ...]] = tuple(entry for entry in _TABLE if not entry.storage_only)

_BY_SPELLING: Final[dict[str, Precision]] = {
    spelling.lower(): entry for entry in EVERY_PRECISION.values() for spelling in (entry.name, *entry.aliases)
}


def precision(name: str | Precision) -> Precision:
    """Return the precision of a name or alias; raise UnknownNameError, with the nearest name, if there is none."""
    if isinstance(name, Precision):
        return name
    found = _BY_SPELLING.get(str(name).strip().lower())
    if found is None:
        aliases = [alias for entry in EVERY_PRECISION.values() for alias in entry.aliases]
        raise UnknownNameError("precision", name, {**PRECISIONS, **COMPOUND}, aliases=aliases)
    return found


def is_precision(text: str) -> bool:
    """Whether a text is the name or an alias of a precision."""
    return text.strip().lower() in _BY_SPELLING


def holds_real_numbers(dtype: np.dtype[Any]) -> bool:
    """Whether values of a NumPy or ml_dtypes type are real numbers."""
    return dtype.kind in "fiub" or any(dtype == entry.dtype for entry in _TABLE)


def promoted(*operands: Precision) -> Precision:
    """Return the precision an operation on these types is computed in, by the rules of the prelude.

    The result is the widest operand. It is fp32 if the widest operand cannot hold the values of all others (fp16 and
    bf16) or has no arithmetic (fp8). A compound precision is wider than a plain one with the same significand.
    """
    widest = max(operands, key=lambda each: (each.significand_bits, each.stored is not None, each.rank))
    own = len(set(operands)) == 1 and not widest.storage_only
    return widest if own or widest.significand_bits >= _FP32.significand_bits else _FP32
