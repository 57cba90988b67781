"""Compiles the prelude with a test's own C++ text into a library, once for each compiler."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.cpp.prelude import prelude
from mptune.precision import PRECISIONS, Precision

_ZIG = f"{sys.executable} -m ziglang c++" if importlib.util.find_spec("ziglang") else ""
#: g++ and the first clang++ there is, as commands: they hold a half differently. Without either, zig.
COMPILERS = tuple(filter(None, (shutil.which("g++"), shutil.which("clang++") or shutil.which("clang++-19")))) or tuple(
    filter(None, (_ZIG,))
)
_HERE = Path(__file__).parent


@functools.cache
def library(compiler: str, source: str, *flags: str) -> ctypes.CDLL:
    """Return the library of the C++ file ``source`` in this folder, behind the prelude."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "test.so"
        _compile(compiler, source, target, "-shared", *flags)
        return ctypes.CDLL(str(target))


@functools.cache
def assembly(compiler: str, source: str, *flags: str) -> str:
    """Return the assembly of a C++ file in this folder, or of a text, behind the prelude."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "test.s"
        _compile(compiler, source, target, "-S", "-g0", *flags)  # zig adds debug information otherwise
        return target.read_text(encoding="utf-8")


def _compile(compiler: str, source: str, target: Path, *flags: str) -> None:
    command = [*compiler.split(), "-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math"]
    command += ["-Wno-unused-function", "-Wno-unused-const-variable", "-fPIC", *flags]
    command += ["-x", "c++", "-", "-o", str(target)]
    body = source if ";" in source else (_HERE / source).read_text(encoding="utf-8")
    text = f'{prelude()}\n#line 1 "{source if body is not source else "text"}"\n{body}'
    finished = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    assert finished.returncode == 0, finished.stderr[-4000:]


def pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    """Return where an array's memory starts."""
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def rounded(values: NDArray[np.float64], precision: Precision) -> NDArray[np.float64]:
    """Round to nearest even into a precision, by scaling so that its last bit weighs one.

    Independent of any conversion between types: only ``rint`` and powers of two are used.
    """
    bits = precision.significand_bits
    smallest = np.frexp(precision.smallest_normal)[1]
    with np.errstate(all="ignore"):
        exponents = np.maximum(np.frexp(values)[1], smallest) - bits
        result = np.ldexp(np.rint(np.ldexp(values, -exponents)), exponents)
        over = np.inf if precision.has_infinity else np.nan
        return np.where(np.abs(result) > precision.largest, np.copysign(over, values), result)


def rounded_fraction(value: Fraction, precision: Precision) -> float:
    """Round one exact value to nearest even into a precision, subnormals and overflow included."""
    if value == 0:
        return 0.0
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    if abs(value) >= Fraction(2) ** exponent:
        exponent += 1
    smallest = int(np.frexp(precision.smallest_normal)[1])
    unit = Fraction(2) ** (max(exponent, smallest) - precision.significand_bits)
    result = float(round(value / unit) * unit)
    return result if abs(result) <= precision.largest else float(np.copysign(np.inf, result))


def precision_of(cpp: str) -> Precision:
    """Return the precision whose C++ type has that name."""
    return next(p for p in PRECISIONS.values() if p.cpp == cpp)


def every_value(precision: Precision) -> NDArray[Any]:
    """Return every bit pattern of a type of one or two bytes."""
    unsigned = {1: np.uint8, 2: np.uint16}[precision.size_bytes]
    return np.arange(2 ** (8 * precision.size_bytes), dtype=np.uint64).astype(unsigned).view(precision.dtype)


def awkward_values(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Return doubles around every rounding boundary of the narrow types, and random ones of every magnitude.

    Boundaries are the values of each narrow type, the points half-way between neighbours, and both of these
    moved by one unit in the last place of a double, of a float, and of neither.
    """
    parts = [rng.standard_normal(n) * 2.0 ** rng.integers(-160, 140, n)]
    for precision in PRECISIONS.values():
        if precision.size_bytes > 2:
            continue
        with np.errstate(all="ignore"):
            values = np.unique(every_value(precision).astype(np.float64))
        values = values[np.isfinite(values)]
        midpoints = (values[1:] + values[:-1]) / 2
        ends = np.array([2 * values[-1] - values[-2], 1.5 * values[-1] - 0.5 * values[-2]])
        parts += [values, midpoints, ends, -ends]
    exact = np.concatenate(parts)
    with np.errstate(all="ignore"):
        near = [
            np.nextafter(exact, np.inf),
            np.nextafter(exact, -np.inf),
            exact * (1 + 2.0**-24),
            exact * (1 - 2.0**-24),
        ]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-149, 2.0**-150, 1e-310, -1e-310, 1e300, 2.0**128, 5e-324]
    return np.concatenate([exact, *near, np.array(special)])


def assert_same(got: NDArray[Any], wanted: NDArray[np.float64], inputs: NDArray[Any]) -> None:
    """Fail with the first few differences; NaN equals NaN and zeros have signs."""
    found = got.astype(np.float64)
    equal = (found == wanted) & (np.signbit(found) == np.signbit(wanted)) | (np.isnan(found) & np.isnan(wanted))
    wrong = np.flatnonzero(~equal)
    assert wrong.size == 0, [(inputs[i], found[i], wanted[i]) for i in wrong[:5]]
