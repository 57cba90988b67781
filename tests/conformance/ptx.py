"""Runs PTX on the CPU, all threads at once: what the prelude's instructions compute can be seen without a GPU.

Registers are arrays of bits with an element for each thread. What an instruction does is written down from the PTX ISA
in NumPy, with :func:`rounded` for every rounding. Branches go forward only, as compilers make them where there is no
loop: the threads that jump wait at the label.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from prelude_library import rounded

from mptune.precision import PRECISIONS

Array = NDArray[Any]

_TYPES: dict[str, Any] = {
    **{f"{kind}{8 * size}": np.dtype(f"u{size}") for kind in "bu" for size in (1, 2, 4, 8)},
    **{f"s{8 * size}": np.dtype(f"i{size}") for size in (1, 2, 4, 8)},
    **{f"f{8 * size}": np.dtype(f"f{size}") for size in (2, 4, 8)},
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "pred": np.dtype(bool),
}
_PRECISIONS = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "e4m3": "fp8_e4m3", "e5m2": "fp8_e5m2"}
_NAN_BITS = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FF8000000000000, "e4m3": 0x7F, "e5m2": 0x7F}
_COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_COMPARISONS |= {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_INTEGER: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "mad": lambda a, b, c: a * b + c,
    "not": np.invert,
    "neg": np.negative,
}
_STATEMENT = re.compile(r"(\$\w+):|(?<![\w.%$])(?:@(!?)(%?\w+)\s+)?([a-z]\w*(?:\.\w+)*)(?:\s+([^;]*))?;")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")


def unsigned(dtype: Any) -> Any:
    """Return the unsigned integers as wide as a type."""
    return np.dtype(f"u{np.dtype(dtype).itemsize}")


def fused(a: Array, b: Array, c: Array) -> Array:
    """Return ``a * b + c`` rounded to odd, for a product that is exact in double."""
    product = a * b
    total = product + c
    without = total - product
    error = (product - (total - without)) + (c - without)
    inexact = np.isfinite(total) & (error != 0)
    truncated = np.where(inexact & ((error < 0) == (total > 0)), np.nextafter(total, 0), total)
    odd: Array = (truncated.view(np.uint64) | inexact).view(np.float64)
    return odd


class Threads:
    """Threads that run one kernel, and the memory they share.

    Args:
        ptx: the text of a compiled source.
        name: which kernel of it.
        reciprocal_ulps: how far off an approximate reciprocal is, in units of its last place.
    """

    def __init__(self, ptx: str, name: str, reciprocal_ulps: int = 0) -> None:
        parameters, body = re.findall(rf"\.entry {name}\((.*?)\)[^{{]*\{{(.*?)\n\}}", ptx, re.DOTALL)[0]
        self._parameters = re.findall(r"\.param \.\w+ (?:\S+ )*?(\w+)(?:,|\s*$)", parameters)
        body = re.sub(r"//[^\n]*|\.reg [^;]*;", "", body)
        self._statements = [match.groups() for match in _STATEMENT.finditer(body)]
        self._reciprocal_ulps = reciprocal_ulps

    def run(self, threads: int, *arguments: Array | np.integer[Any]) -> None:
        """Run the kernel; arrays are its buffers and changed in place, integers are passed as they are."""
        self._n = threads
        self._bits: dict[str, Array] = {
            "%tid.x": np.arange(threads, dtype=np.uint32),
            "%ntid.x": np.full(threads, threads, dtype=np.uint32),
            "%ctaid.x": np.zeros(threads, dtype=np.uint32),
        }
        buffers = [argument for argument in arguments if isinstance(argument, np.ndarray)]
        starts = np.cumsum([0] + [-(-buffer.nbytes // 16) * 16 for buffer in buffers])
        self._memory = np.zeros(starts[-1], dtype=np.uint8)
        places = {id(buffer): int(start) for buffer, start in zip(buffers, starts, strict=False)}
        for buffer in buffers:
            self._memory[places[id(buffer)] :][: buffer.nbytes] = buffer.reshape(-1).view(np.uint8)
        for name, argument in zip(self._parameters, arguments, strict=True):
            value = places[id(argument)] if isinstance(argument, np.ndarray) else int(argument)
            self._bits[name] = np.full(threads, value, dtype=np.uint64)
        with np.errstate(all="ignore"):
            self._execute()
        for buffer in buffers:
            buffer.reshape(-1).view(np.uint8)[:] = self._memory[places[id(buffer)] :][: buffer.nbytes]

    def _execute(self) -> None:
        active = np.ones(self._n, dtype=bool)
        waiting: dict[str, Array] = {}
        for label, negated, predicate, opcode, text in self._statements:
            if label:
                active = active | waiting.pop(label, np.False_)
                continue
            self._active = active
            if predicate:
                self._active = active & (self._read(predicate, "pred") != bool(negated))
            base, *modifiers = opcode.split(".")
            operands = _OPERAND.findall(text or "")
            if base == "bra":
                waiting[operands[0]] = waiting.get(operands[0], np.False_) | self._active
                active = active & ~self._active
            elif base != "ret":
                getattr(self, f"_{base}", self._arithmetic)(base, modifiers, operands)
        assert not waiting, f"jumps backward to {list(waiting)}"

    def _read(self, operand: str, type_name: str) -> Array:
        """Return an operand's value in each thread."""
        dtype = _TYPES[type_name]
        if operand in self._bits:
            bits = self._bits[operand]
        elif operand[:2] in ("0f", "0d"):
            bits = np.full(self._n, int(operand[2:], 16), dtype=np.uint64)
        else:
            bits = np.full(self._n, int(operand, 0) % 2**64, dtype=np.uint64)
        return bits if type_name == "pred" else bits.astype(unsigned(dtype)).view(dtype)

    def _write(self, operand: str, value: Array) -> None:
        bits = value if value.dtype == bool else np.ascontiguousarray(value).view(unsigned(value.dtype))
        if not self._active.all():
            before = self._bits.get(operand, np.zeros(self._n, dtype=bits.dtype))
            bits = np.where(self._active, bits, before.astype(bits.dtype))
        self._bits[operand] = bits

    def _addresses(self, operand: str, size: int) -> Array:
        base, _, offset = operand.strip("[]").partition("+")
        start = self._read(base, "s64")[self._active] + int(offset or 0)
        assert start.size == 0 or (start.min() >= 0 and start.max() + size <= self._memory.size)
        assert (start % size == 0).all(), f"misaligned access to {operand}"
        return start[:, None] + np.arange(size)

    def _ld(self, base: str, modifiers: list[str], operands: list[str]) -> None:
        dtype = _TYPES[modifiers[-1]]
        if modifiers[0] == "param":
            self._write(operands[0], self._bits[operands[1].strip("[]")].astype(unsigned(dtype)))
            return
        targets = _elements(operands[0])
        found = self._memory[self._addresses(operands[1], len(targets) * dtype.itemsize)].view(unsigned(dtype))
        for k, target in enumerate(targets):
            value = np.zeros(self._n, dtype=unsigned(dtype))
            value[self._active] = found[:, k]
            self._write(target, value)

    def _st(self, base: str, modifiers: list[str], operands: list[str]) -> None:
        values = np.stack([self._read(source, modifiers[-1]) for source in _elements(operands[1])], axis=1)
        content = np.ascontiguousarray(values[self._active]).view(np.uint8)
        self._memory[self._addresses(operands[0], content.shape[1])] = content

    def _mov(self, base: str, modifiers: list[str], operands: list[str]) -> None:
        targets, sources = _elements(operands[0]), _elements(operands[1])
        dtype = unsigned(_TYPES[modifiers[-1]])
        if len(targets) > 1:
            parts = self._read(sources[0], modifiers[-1]).view(f"u{dtype.itemsize // len(targets)}")
            for k, target in enumerate(targets):
                self._write(target, parts[k :: len(targets)])
        elif len(sources) > 1:
            part = f"b{8 * dtype.itemsize // len(sources)}"
            joined = np.stack([self._read(source, part) for source in sources], axis=1)
            self._write(targets[0], np.ascontiguousarray(joined).view(dtype)[:, 0])
        else:
            self._write(targets[0], self._read(sources[0], modifiers[-1]))

    def _cvta(self, base: str, modifiers: list[str], operands: list[str]) -> None:
        self._write(operands[0], self._read(operands[1], modifiers[-1]))

    def _selp(self, base: str, modifiers: list[str], operands: list[str]) -> None:
        yes, no = (self._read(operand, modifiers[-1]) for operand in operands[1:3])
        self._write(operands[0], np.where(self._read(operands[3], "pred"), yes, no))

    def _setp(self, base: str, modifiers: list[str], operands: list[str]) -> None:
        a, b = (self._read(operand, modifiers[-1]) for operand in operands[1:])
        self._write(operands[0], _compare(modifiers[0], a, b))

    def _set(self, base: str, modifiers: list[str], operands: list[str]) -> None:
        a, b = (self._read(operand, "b32").view(_TYPES[modifiers[-1][:-2]]) for operand in operands[1:])
        mask = np.where(_compare(modifiers[0], a, b), np.uint16(0xFFFF), np.uint16(0))
        self._write(operands[0], mask.view(np.uint32))

    def _shl(self, base: str, modifiers: list[str], operands: list[str]) -> None:
        value, by = self._read(operands[1], modifiers[0]), self._read(operands[2], "u32")
        width = 8 * value.dtype.itemsize
        by = np.minimum(by, width - 1 if modifiers[0][0] == "s" else width).astype(np.int64)
        wide = value.astype(np.int64)
        shifted = wide << by if base == "shl" else wide >> by
        self._write(operands[0], shifted.astype(value.dtype))

    _shr = _shl

    def _prmt(self, base: str, modifiers: list[str], operands: list[str]) -> None:
        pair = np.stack([self._read(operand, "b32") for operand in operands[1:3]], axis=1).view(np.uint8)
        chosen = (self._read(operands[3], "b32")[:, None] >> np.arange(0, 16, 4, dtype=np.uint32)) & 7
        self._write(operands[0], np.take_along_axis(pair, chosen.astype(np.int64), axis=1).view(np.uint32)[:, 0])

    def _bfi(self, base: str, modifiers: list[str], operands: list[str]) -> None:
        part, whole, start, length = (self._read(operand, "b32") for operand in operands[1:])
        mask = ((np.uint32(1) << length) - np.uint32(1)) << start
        self._write(operands[0], (whole & ~mask) | ((part << start) & mask))

    def _rcp(self, base: str, modifiers: list[str], operands: list[str]) -> None:
        assert modifiers == ["approx", "ftz", "f32"]
        value = self._read(operands[1], "f32")
        value = np.where(np.abs(value) < 2.0**-126, np.copysign(0, value), value)
        result = narrowed(1.0 / value.astype(np.float64), "f32")
        for _ in range(abs(self._reciprocal_ulps)):
            moved = np.nextafter(result, np.float32(np.inf if self._reciprocal_ulps > 0 else 0))
            result = np.where(np.isfinite(result) & (result != 0), moved, result)
        self._write(operands[0], np.where(np.abs(result) < 2.0**-126, np.copysign(np.float32(0), result), result))

    def _cvt(self, base: str, modifiers: list[str], operands: list[str]) -> None:
        to, source = modifiers[-2:]
        if source.endswith("x2"):
            halves = self._read(operands[1], f"b{16 * _TYPES[source[:-2]].itemsize}").view(_TYPES[source[:-2]])
            value = narrowed(halves.astype(np.float64), to[:-2])
            self._write(operands[0], value.view(np.uint32))
        elif to.endswith("x2"):
            kind = to[:-2]
            parts = [self._read(operand, source).astype(np.float64) for operand in operands[:0:-1]]
            if "satfinite" in modifiers:
                largest = PRECISIONS[_PRECISIONS[kind]].largest
                parts = [np.clip(part, -largest, largest) for part in parts]
            pair = np.stack([narrowed(part, kind) for part in parts], axis=1)
            self._write(operands[0], pair.view(f"u{2 * pair.dtype.itemsize}")[:, 0])
        elif to in _PRECISIONS:
            assert "rz" not in modifiers
            self._write(operands[0], narrowed(self._read(operands[1], source).astype(np.float64), to))
        else:
            assert source not in _PRECISIONS
            self._write(operands[0], self._read(operands[1], source).astype(_TYPES[to]))

    def _arithmetic(self, base: str, modifiers: list[str], operands: list[str]) -> None:
        kind = modifiers[-1]
        if kind.removesuffix("x2") in _PRECISIONS:
            scalar = kind.removesuffix("x2")
            bits = "b32" if kind.endswith("x2") else kind
            values = [self._read(operand, bits).view(_TYPES[scalar]) for operand in operands[1:]]
            result = floating(base, scalar, values)
            self._write(operands[0], result.view(np.uint32) if kind.endswith("x2") else result)
        elif "wide" in modifiers:
            wide = kind[0] + str(2 * int(kind[1:]))
            a, b = (self._read(operand, kind).astype(_TYPES[wide]) for operand in operands[1:3])
            self._write(operands[0], a * b + (self._read(operands[3], wide) if base == "mad" else 0))
        else:
            assert "hi" not in modifiers
            self._write(operands[0], _INTEGER[base](*(self._read(operand, kind) for operand in operands[1:])))


def _elements(operand: str) -> list[str]:
    return re.findall(r"[^{},\s]+", operand)


def _compare(comparison: str, a: Array, b: Array) -> Array:
    unordered = np.isnan(a) | np.isnan(b) if a.dtype.kind in "fV" else np.zeros(a.shape, dtype=bool)
    if comparison in ("num", "nan"):
        return np.asarray(unordered == (comparison == "nan"))
    or_unordered = comparison not in _COMPARISONS
    result = getattr(operator, _COMPARISONS[comparison[:2]])(a, b)
    return np.asarray((result | unordered) if or_unordered else (result & ~unordered))


def narrowed(values: Array, kind: str) -> Array:
    """Round doubles to a PTX type, with the one NaN that its instructions give."""
    dtype = _TYPES[kind]
    exact = values if kind == "f64" else rounded(values, PRECISIONS[_PRECISIONS[kind]])
    bits = exact.astype(dtype).view(unsigned(dtype))
    one_nan: Array = np.where(np.isnan(exact), unsigned(dtype).type(_NAN_BITS[kind]), bits).view(dtype)
    return one_nan


def floating(base: str, kind: str, values: Sequence[Array]) -> Array:
    """Return one rounded operation; in double each but the fused one has digits enough to be rounded twice."""
    if base in ("neg", "abs"):
        sign = unsigned(_TYPES[kind]).type(1 << (8 * _TYPES[kind].itemsize - 1))
        bits = values[0].view(unsigned(_TYPES[kind]))
        signed: Array = (bits ^ sign if base == "neg" else bits & ~sign).view(_TYPES[kind])
        return signed
    wide = [value.astype(np.float64) for value in values]
    exact: dict[str, Callable[..., Array]] = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "div": np.divide,
        "fma": fused,
        "min": np.fmin,
        "max": np.fmax,
    }
    return narrowed(exact[base](*wide), kind)
