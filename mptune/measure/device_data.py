"""A kernel's arguments on the device: typed buffers between guard zones, kept under a byte budget.

Buffers are poisoned before a launch that is checked, looked at for writes outside them, and restored between launches.
"""

from __future__ import annotations

import functools
import itertools
from collections import OrderedDict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.evaluate import Output
from mptune.accuracy.metrics import ErrorMetric, rehearse
from mptune.accuracy.pairs import PIECE, DeviceArray, DevicePairs, bits_type, can_decode, count_unwritten
from mptune.backends.addressed import AddressBuffer
from mptune.backends.base import Argument as LaunchArgument
from mptune.backends.base import Backend, Buffer
from mptune.data import DataManager
from mptune.data.conversion import poisoned
from mptune.errors import OutOfMemoryError
from mptune.kernel import Argument, Role
from mptune.precision import Precision
from mptune.space.configuration import Configuration

__all__ = ["GUARD_BYTES", "BoundArguments", "DeviceData", "GuardedBuffer", "OutputBuffer", "Overrun"]

#: Of each zone, at least: a few rows of most matrices, and a multiple of every alignment a backend promises.
GUARD_BYTES: Final = 1 << 14
#: Zones that follow one another in time differ in what they hold, up to so many.
_KINDS_OF_GUARD: Final = 8
_guards = itertools.cycle(range(_KINDS_OF_GUARD))


@functools.lru_cache(maxsize=128)
def _guard(nbytes: int, dtype: np.dtype[Any], kind: int) -> NDArray[np.uint8]:
    """Return what a guard zone holds.

    Integers are random. Numbers are NaNs, so that what is read there shows in the result as well: random signalling
    ones, which change in any arithmetic. So a kernel that reads beyond its input and writes what comes of it beyond its
    output leaves other bytes than there were. (E4M3 has one NaN of each sign, E5M2 one signalling one of each.)
    """
    rng = np.random.default_rng((kind, nbytes))
    words = rng.integers(0, 256, nbytes, dtype=np.uint8)
    if dtype.kind not in "iu":
        info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
        bits = words.view(f"u{dtype.itemsize}")
        exponent = ((1 << info.nexp) - 1) << info.nmant
        quiet = 1 << (info.nmant - 1)
        bits |= bits.dtype.type(exponent | 1)
        with np.errstate(invalid="ignore"):
            has_signalling = np.isnan(np.array([exponent | 1], bits.dtype).view(dtype)).all()
        if has_signalling:
            bits &= bits.dtype.type(~quiet & ((1 << info.bits) - 1))
        else:
            bits |= bits.dtype.type((1 << info.nmant) - 1)
    words.flags.writeable = False
    return words


@dataclass(frozen=True, slots=True)
class Overrun:
    """What a kernel wrote outside a buffer, into its guard zones.

    Attributes:
        damaged: how many bytes of the guard zones changed.
        offset: of the one nearest to the data, in bytes from the start of the buffer; negative before it.
        itemsize: bytes in an element of the buffer.
    """

    damaged: int
    offset: int
    itemsize: int

    def __str__(self) -> str:
        element = self.offset // self.itemsize
        if self.offset < 0:
            return f"{self.damaged} bytes before its first element (element {element} and before)"
        return f"{self.damaged} bytes past its last element (element {element} and after)"


class GuardedBuffer:
    """Device memory between two guard zones.

    Attributes:
        data: what a kernel is given.
        nbytes: all of the memory, the zones included.

    Raises:
        OutOfMemoryError: there is not enough.
    """

    def __init__(self, backend: Backend, nbytes: int, dtype: np.dtype[Any]) -> None:
        # The zone behind it ends where a page does: on the host nothing beyond that can be written to.
        after = GUARD_BYTES + -nbytes % GUARD_BYTES
        self._whole: Final = backend.device.allocate(GUARD_BYTES + nbytes + after)
        self._itemsize: Final = dtype.itemsize
        self.data: Final[Buffer] = self._whole.part(GUARD_BYTES, nbytes)
        self.nbytes: Final = self._whole.nbytes
        self._before: Final = self._whole.part(0, GUARD_BYTES)
        self._after: Final = self._whole.part(GUARD_BYTES + nbytes, after)
        kind = next(_guards)
        self._intact: Final = {zone: _guard(zone.nbytes, dtype, kind) for zone in (self._before, self._after)}
        for zone, words in self._intact.items():
            zone.write(words)

    def overrun(self) -> Overrun | None:
        """Return what was written into the zones since they were made, None for nothing."""
        before, after = self._changed(self._before), self._changed(self._after)
        if after.size:
            return Overrun(before.size + after.size, self.data.nbytes + int(after[0]), self._itemsize)
        if before.size:
            return Overrun(before.size, int(before[-1]) - GUARD_BYTES, self._itemsize)
        return None

    def free(self) -> None:
        """Give the memory back."""
        self._whole.free()

    def _changed(self, zone: Buffer) -> np.ndarray[Any, Any]:
        found = np.empty(zone.nbytes, np.uint8)
        zone.read(found)
        return np.flatnonzero(found != self._intact[zone])


#: The argument, its precision and what the buffer is for.
_Key = tuple[str, str, str]

_NO_METRICS: Final[Mapping[str, Sequence[ErrorMetric]]] = MappingProxyType({})

#: What is written at first to fill a buffer with a pattern; the device copies it on from there.
_SEED_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class OutputBuffer:
    """An output on the device and the type it is stored in."""

    argument: Argument
    precision: Precision | None
    buffer: Buffer


@dataclass(frozen=True, slots=True)
class BoundArguments:
    """What one configuration's launches are given.

    Attributes:
        passed: device buffers and scalars by name, in the order of the kernel's signature.
        outputs: the buffers that are compared, as they are after the last launch.
        fresh: those without initial values.
        pristine: for each inout buffer, the copy it is restored from.
        held: the memory of all of them, by the key it is kept under.
        constants: what goes into constant memory, by name.
    """

    passed: Mapping[str, LaunchArgument]
    outputs: tuple[OutputBuffer, ...]
    fresh: tuple[OutputBuffer, ...]
    pristine: tuple[tuple[Buffer, Buffer], ...]
    held: Mapping[_Key, GuardedBuffer]
    constants: Mapping[str, NDArray[Any]]

    @property
    def launch(self) -> Sequence[LaunchArgument]:
        """What a launch is given, in the order of the kernel's signature."""
        return tuple(self.passed.values())

    def restore(self) -> None:
        """Give every inout buffer its initial values back."""
        for working, original in self.pristine:
            working.copy_from(original)

    def overruns(self) -> dict[str, Overrun]:
        """Return by argument what launches wrote into its guard zones, where they did."""
        # An inout buffer is there twice.
        found = ((name, guarded.overrun()) for (name, _, _), guarded in self.held.items())
        return {name: overrun for name, overrun in found if overrun is not None}


#: Words that are summed at a time on the host: what stays in a core's cache.
_HOST_WORDS: Final = 1 << 14
#: What is looked at, or read, at a time to be summed.
_SUMMED_BYTES: Final = 1 << 25
#: Parts of a checksum are combined with powers of this; odd, so that no part vanishes.
_FACTOR: Final = 0x9E3779B97F4A7C15


#: What an address is told by the buffer within: an index of 32 bits of doubles reaches as far.
_NEAR_BYTES: Final = 1 << 34


class DeviceData:
    """Keeps typed copies of a kernel's buffers on a device, the least recently used ones leaving first.

    Args:
        backend: allocates the buffers.
        data: supplies the values in every type.
        budget_bytes: device memory to keep; what one configuration needs is always allowed.
        metrics: by output, the error metrics it is to be compared with its reference by, on the device as far as that
            is possible; without them, outputs are read to the host.

    Attributes:
        no_arrays: why the device's arrays cannot be computed with though there are such; empty otherwise.
    """

    def __init__(
        self,
        backend: Backend,
        data: DataManager,
        budget_bytes: int,
        metrics: Mapping[str, Sequence[ErrorMetric]] = _NO_METRICS,
    ) -> None:
        self._backend = backend
        self._data = data
        self._budget_bytes = budget_bytes
        self._metrics = {name: own for name, own in metrics.items() if all(metric.runs_anywhere for metric in own)}
        self._buffers: OrderedDict[_Key, GuardedBuffer] = OrderedDict()
        #: Checksums of read-only buffers.
        self._checksums: dict[_Key, int] = {}
        #: What still holds the values of other inputs.
        self._outdated: set[_Key] = set()
        self._namespace = backend.device.array_namespace()
        #: Of words in a checksum.
        self._weights = _weights(np, _HOST_WORDS)
        self.no_arrays = ""
        try:
            rehearsed = dict.fromkeys(metric for own in self._metrics.values() for metric in own)
            if self._namespace is not None:
                for metric in rehearsed:
                    rehearse(self._namespace, metric)
                self._weights = _weights(self._namespace, PIECE)
        except Exception as error:
            # A module that compiles what it computes fails in as many ways as there are installations; the host
            # compares as well, only later.
            self._namespace = None
            self.no_arrays = f"{type(error).__name__}: {error}"

    def bind(self, configuration: Configuration) -> BoundArguments:
        """Return the arguments of a configuration; read-only buffers are uploaded only the first time.

        Raises:
            OutOfMemoryError: the device cannot hold them.
        """
        held: dict[_Key, GuardedBuffer] = {}
        passed: dict[str, LaunchArgument] = {}
        written: dict[str, OutputBuffer] = {}
        pristine: list[tuple[Buffer, Buffer]] = []
        constants: dict[str, NDArray[Any]] = {}
        kernel = self._data.kernel
        for argument in kernel.arguments:
            name, precision = argument.name, kernel.precision_of(argument, configuration)
            if argument.is_constant:
                constants[name] = self._data.typed(argument, precision)
            elif argument.role is Role.SCALAR:
                passed[name] = self._data.scalar(argument, precision)
            else:
                buffer = self._buffer(argument, precision, "read" if argument.role is Role.IN else "write", held)
                passed[name] = buffer
                if argument.role is Role.INOUT:
                    pristine.append((buffer, self._buffer(argument, precision, "read", held)))
                if argument.role is not Role.IN:
                    written[name] = OutputBuffer(argument, precision, buffer)
        outputs = [written[output.name] for output in kernel.outputs]
        fresh = [output for output in written.values() if output.argument.role is Role.OUT]
        return BoundArguments(passed, tuple(outputs), tuple(fresh), tuple(pristine), held, constants)

    def use(self, data: DataManager) -> None:
        """Take other inputs of the same kernel and sizes: what is bound from now on has theirs, in the same memory."""
        self._data = data
        self._outdated = {key for key in self._buffers if key[2] != "write"}

    def poison(self, bound: BoundArguments) -> None:
        """Fill what has no initial values with the poison pattern, so that an element never written shows."""
        for output in bound.fresh:
            dtype = self._data.dtype_of(output.argument, output.precision)
            seed = poisoned((min(output.buffer.nbytes, _SEED_BYTES) // dtype.itemsize,), dtype)
            _fill(output.buffer, seed)

    def outputs(self, bound: BoundArguments) -> dict[str, Output]:
        """Return the outputs where they are compared with their references: on the device, or else on the host.

        Only up to the next launch, which may change them.
        """
        found: dict[str, Output] = {}
        held = dict(bound.held)
        for output in bound.outputs:
            there = self._pair(output, held)
            found[output.argument.name] = self._seen(output) if there is None else there
        return found

    def read_outputs(self, bound: BoundArguments) -> dict[str, NDArray[Any]]:
        """Copy the outputs to the host, in the types they are stored in."""
        return {output.argument.name: self._read(output) for output in bound.outputs}

    def unwritten(self, bound: BoundArguments, outputs: Mapping[str, Output]) -> dict[str, int]:
        """Return by output how many elements still hold the poison pattern, where there are any."""
        counts: dict[str, int] = {}
        for argument in (o.argument for o in bound.outputs if o.argument.role is Role.OUT):
            output: Any = outputs[argument.name]
            there = isinstance(output, DevicePairs)
            counts[argument.name] = count_unwritten(output) if there else self._data.unwritten(argument, output)
        return {name: count for name, count in counts.items() if count}

    def digest(self, bound: BoundArguments) -> int:
        """Return a checksum of all outputs."""
        total = 0
        for output in bound.outputs:
            total = (total * _FACTOR + self._checksum(output.buffer)) % 2**64
        return total

    def left_as_given(self, bound: BoundArguments, names: Container[str]) -> list[str]:
        """Return which of these outputs have initial values and are, bit by bit, what they were before the launch."""
        given = dict(bound.pristine)
        return [
            output.argument.name
            for output in bound.outputs
            if output.argument.name in names
            and output.buffer in given
            and self._checksum(output.buffer) == self._checksum(given[output.buffer])
        ]

    def damage(self, bound: BoundArguments) -> list[str]:
        """Return what launches wrote outside the buffers, or into one that is only read, in words."""
        found = [f"the kernel wrote out of bounds of {name!r}: {o}" for name, o in bound.overruns().items()]
        for key, buffer in bound.held.items():
            name, _, purpose = key
            if purpose == "read" and self._checksum(buffer.data) != self._checksums[key]:
                if self._argument(name).role is Role.IN:
                    found.append(f"the kernel changed {name!r}, which is an input")
                else:
                    found.append(f"the kernel changed the initial values of {name!r}, which are kept in another buffer")
        return found

    def nearest(self, address: int) -> str:
        """Say how far from which buffer an address lies, empty if far from all; where buffers have addresses."""
        places: list[tuple[int, str]] = []
        for (name, _, _), guarded in self._buffers.items():
            if isinstance(guarded.data, AddressBuffer):
                before, past = guarded.data.address - address, address - guarded.data.address - guarded.data.nbytes
                where = "before the first" if before > 0 else "past the last"
                places.append((max(before, past), f"{max(before, past)} bytes {where} element of {name!r}"))
        distance, place = min(places, default=(_NEAR_BYTES, ""))
        return place if distance < _NEAR_BYTES else ""

    def free(self) -> None:
        """Give all device memory back; what is bound next is uploaded anew."""
        while self._buffers:
            self._buffers.popitem()[1].free()

    def _write(self, key: _Key, values: NDArray[Any]) -> None:
        """Upload a read-only buffer and remember its checksum."""
        self._buffers[key].data.write(values)
        self._outdated.discard(key)
        self._checksums[key] = self._checksum(self._buffers[key].data)

    def _checksum(self, buffer: Buffer) -> int:
        """Return a sum of all words of a buffer, each by its place, modulo 2^64: a change of a single one shows."""
        step, total = self._weights.size, 0
        for words in self._words(buffer):
            for start in range(0, words.size, step):
                piece = words[start : start + step]
                total = (total * _FACTOR + int((piece * self._weights[: piece.size]).sum())) % 2**64
        return total

    def _words(self, buffer: Buffer) -> Iterator[Any]:
        """Yield all of a buffer as arrays where they can be computed with, the device or the host."""
        in_words = buffer.nbytes - buffer.nbytes % 8
        for start in range(0, in_words, _SUMMED_BYTES):
            yield self._array(buffer.part(start, min(_SUMMED_BYTES, in_words - start)), np.dtype(np.uint64))
        if in_words < buffer.nbytes:
            yield self._array(buffer.part(in_words, buffer.nbytes - in_words), np.dtype(np.uint8))

    def _array(self, buffer: Buffer, dtype: np.dtype[Any]) -> Any:
        if self._namespace is not None:
            return self._backend.device.array(buffer, dtype)
        there = buffer.seen()
        if there is None:
            there = np.empty(buffer.nbytes, np.uint8)
            buffer.read(there)
        return there.view(dtype)

    def _argument(self, name: str) -> Argument:
        return next(argument for argument in self._data.kernel.arguments if argument.name == name)

    def _seen(self, output: OutputBuffer) -> NDArray[Any]:
        """Return an output without copying it where that is possible; a user's metric may write to what it is given."""
        there = output.buffer.seen() if output.argument.name in self._metrics else None
        if there is None:
            return self._read(output)
        return there.view(self._data.dtype_of(output.argument, output.precision)).reshape(
            self._data.shape_of(output.argument)
        )

    def _read(self, output: OutputBuffer) -> NDArray[Any]:
        array = np.empty(self._data.shape_of(output.argument), self._data.dtype_of(output.argument, output.precision))
        output.buffer.read(array)
        return array

    # -- on the device -------------------------------------------------------------------------

    def _pair(self, output: OutputBuffer, held: dict[_Key, GuardedBuffer]) -> DevicePairs | None:
        """Return an output beside its reference on the device, None where it is better compared on the host.

        That is where the device has no arrays to compute with, the error metric is a user's, doubles do not hold
        the values, or there is no room for the reference beside what is ``held``, to which it is added.
        """
        argument, stored = output.argument, self._data.dtype_of(output.argument, output.precision)
        if self._namespace is None or argument.name not in self._metrics or not can_decode(stored):
            return None
        reference = self._reference(argument, held)
        if reference is None:
            return None
        return DevicePairs.of(self._view(argument, output.buffer, stored), reference)

    def _reference(self, argument: Argument, held: dict[_Key, GuardedBuffer]) -> DeviceArray | None:
        values = self._data.references[argument.name]
        key = (argument.name, "", "reference")
        if key in self._buffers and self._buffers[key].data.nbytes != values.nbytes:
            self._buffers.pop(key).free()
        if key not in self._buffers:
            self._make_room(values.nbytes, held, self._budget_bytes)
            if self._held_bytes() + values.nbytes > self._budget_bytes:
                return None
            try:
                self._buffers[key] = GuardedBuffer(self._backend, values.nbytes, values.dtype)
            except OutOfMemoryError:
                return None
            self._outdated.add(key)
        if key in self._outdated:
            self._write(key, values)
        self._buffers.move_to_end(key)
        held[key] = self._buffers[key]
        return self._view(argument, held[key].data, values.dtype)

    def _view(self, argument: Argument, buffer: Buffer, stored: np.dtype[Any]) -> DeviceArray:
        bits = self._backend.device.array(buffer, bits_type(stored))
        return DeviceArray(self._namespace, bits, stored, self._data.shape_of(argument))

    # -- memory --------------------------------------------------------------------------------

    def _buffer(
        self, argument: Argument, precision: Precision | None, purpose: str, held: dict[_Key, GuardedBuffer]
    ) -> Buffer:
        key = (argument.name, precision.name if precision else "", purpose)
        shape, dtype = self._data.shape_of(argument), self._data.dtype_of(argument, precision)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if key in self._buffers and self._buffers[key].data.nbytes != nbytes:
            self._buffers.pop(key).free()  # inputs of another size
        if key not in self._buffers:
            self._buffers[key] = self._allocate(nbytes, dtype, held)
            if purpose == "read":
                self._outdated.add(key)
        if key in self._outdated:
            self._write(key, self._data.typed(argument, precision))
        self._buffers.move_to_end(key)
        held[key] = self._buffers[key]
        return held[key].data

    def _allocate(self, nbytes: int, dtype: np.dtype[Any], held: Mapping[_Key, GuardedBuffer]) -> GuardedBuffer:
        self._make_room(nbytes, held, self._budget_bytes)
        try:
            return GuardedBuffer(self._backend, nbytes, dtype)
        except OutOfMemoryError:
            # What other configurations left here must not decide whether this one fits.
            self._make_room(nbytes, held, 0)
            return GuardedBuffer(self._backend, nbytes, dtype)

    def _make_room(self, nbytes: int, held: Mapping[_Key, GuardedBuffer], budget_bytes: int) -> None:
        for key in [key for key in self._buffers if key not in held]:
            if self._held_bytes() + nbytes <= budget_bytes:
                return
            self._buffers.pop(key).free()

    def _held_bytes(self) -> int:
        return sum(guarded.data.nbytes for guarded in self._buffers.values())


def _weights(xp: Any, words: int) -> Any:
    """Return weights of words in a checksum: odd, so that no change of one word vanishes in it."""
    weights = xp.arange(1, 2 * words, 2, dtype=np.uint64)
    assert int((weights[:2] * weights[:2]).sum()) == 1 + 3 * 3
    return weights


def _fill(buffer: Buffer, seed: NDArray[Any]) -> None:
    """Repeat an array over a buffer; little of it crosses to the device."""
    buffer.part(0, seed.nbytes).write(seed)
    done = seed.nbytes
    while done < buffer.nbytes:
        more = min(done, buffer.nbytes - done)
        buffer.part(done, more).copy_from(buffer.part(0, more))
        done += more
