"""The arguments of one configuration on a device: buffers in its types, between guard zones."""

from __future__ import annotations

import functools
import itertools
import math
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.pairs import PIECE, poison_pattern, poisoned
from mptune.backends.addressed import AddressBuffer
from mptune.backends.base import Argument as LaunchArgument
from mptune.backends.base import Backend, Buffer
from mptune.data import DataManager
from mptune.errors import OutOfMemoryError
from mptune.kernel import Argument, Role
from mptune.measure.program import Program

#: Minimum size of a guard zone in bytes: a few rows of most matrices, and a multiple of every backend's alignment.
GUARD_BYTES: Final = 1 << 14
#: Neighbouring allocations have different guard patterns, so that a copy from one zone to another shows.
_guards = itertools.cycle(range(1, 8))

#: Words summed at a time on the host; their weights fit a core's cache.
_HOST_WORDS: Final = 1 << 16
#: Bytes read and summed at a time.
_SUMMED_BYTES: Final = 1 << 25
#: Factor between the parts of a checksum; odd, so that no part vanishes.
_FACTOR: Final = 0x9E3779B97F4A7C15
#: Maximum distance in bytes of an address from its nearest buffer: that of a 32-bit index of doubles.
_NEAR_BYTES: Final = 1 << 34
#: Bytes of a pattern to upload; the device copies them to the rest of a buffer.
_SEED_BYTES: Final = 1 << 16


@functools.lru_cache(maxsize=128)
def _guard(nbytes: int, dtype: np.dtype[Any], number: int) -> NDArray[np.uint8]:
    if dtype.kind in "iu":
        return np.random.default_rng((number, nbytes)).integers(0, 256, nbytes, dtype=np.uint8)
    pattern = poison_pattern(dtype)
    # A NaN other than the poison pattern; for types of 8 bits, the negative NaN.
    own = pattern ^ (number if dtype.itemsize > 1 else 0x80)
    return np.full(nbytes // dtype.itemsize, own, pattern.dtype).view(np.uint8)


class GuardedBuffer:
    """Device memory of ``nbytes``: ``data``, which is passed to kernels, between two guard zones."""

    def __init__(self, backend: Backend, nbytes: int, dtype: np.dtype[Any]) -> None:
        # The rear zone ends with a page; on the host a guard page follows.
        after = GUARD_BYTES + -nbytes % GUARD_BYTES
        self._whole: Final = backend.device.allocate(GUARD_BYTES + nbytes + after)
        self._itemsize: Final = dtype.itemsize
        self.data: Final[Buffer] = self._whole.part(GUARD_BYTES, nbytes)
        self.nbytes: Final = self._whole.nbytes
        self._before: Final = self._whole.part(0, GUARD_BYTES)
        self._after: Final = self._whole.part(GUARD_BYTES + nbytes, after)
        number = next(_guards)
        #: The source of a read-only buffer's values, and their checksum.
        self.holds: Callable[[], DataManager | None] = lambda: None
        self.checksum = 0
        self._intact: Final = {zone: _guard(zone.nbytes, dtype, number) for zone in (self._before, self._after)}
        for zone, words in self._intact.items():
            zone.write(words)

    def overrun(self) -> str:
        """Return a message on writes to the zones; empty if there were none."""
        before, after = self._changed(self._before), self._changed(self._after)
        if after.size:
            element = (self.data.nbytes + int(after[0])) // self._itemsize
            return f"{before.size + after.size} bytes past its last element (element {element} and after)"
        if before.size:
            element = (int(before[-1]) - GUARD_BYTES) // self._itemsize
            return f"{before.size} bytes before its first element (element {element} and before)"
        return ""

    def free(self) -> None:
        """Give the memory back."""
        self._whole.free()

    def _changed(self, zone: Buffer) -> np.ndarray[Any, Any]:
        found = np.empty(zone.nbytes, np.uint8)
        zone.read(found)
        return np.flatnonzero(found != self._intact[zone])


#: Name and type of an argument, and what the buffer is for: "write", "read" or "reference".
_Key = tuple[str, str, str]
_Held = dict[_Key, GuardedBuffer]


@dataclass(slots=True, eq=False)
class Buffers:
    """The arguments of one configuration, by name."""

    program: Program
    data: DataManager
    passed: tuple[LaunchArgument, ...]  #: buffers and scalars in the order of the kernel's signature
    memory: Mapping[str, Buffer]
    scalars: Mapping[str, float | int]  #: rounded to their types
    constants: Mapping[str, NDArray[Any]]  #: the content of constant memory
    places: Mapping[str, Buffer]  #: the buffers after swaps of the latest run
    pristine: Mapping[str, Buffer]  #: initial values of inout buffers; empty if launches do not repeat
    held: _Held

    def restore(self) -> None:
        """Restore the initial values of every inout buffer."""
        for name, original in self.pristine.items():
            self.memory[name].copy_from(original)

    def poison(self) -> None:
        """Fill buffers without initial values with the poison pattern, to detect elements never written."""
        for argument in self.program.tunable.arguments:
            if argument.role is Role.OUT:
                buffer, dtype = self.memory[argument.name], self.program.dtype_of(argument.name)
                done = min(buffer.nbytes, _SEED_BYTES)
                buffer.part(0, done).write(poisoned((done // dtype.itemsize,), dtype))
                while done < buffer.nbytes:
                    more = min(done, buffer.nbytes - done)
                    buffer.part(done, more).copy_from(buffer.part(0, more))
                    done += more

    def stored(self, name: str) -> NDArray[Any]:
        """Return a copy of a buffer after the latest run, in its type."""
        array = np.empty(self.data.shape_of(self.program.arguments[name]), self.program.dtype_of(name))
        self.places[name].read(array)
        return array

    def answer(self) -> dict[str, NDArray[Any]]:
        """Return the outputs after the latest run in fp64, integers in their type."""
        return {
            output.name: self.program.read(output.name, self.places[output.name])
            for output in self.program.tunable.outputs
        }

    def overruns(self) -> list[str]:
        """Return messages on writes outside the buffers."""
        # An inout buffer is held twice.
        found = {name: overrun for (name, _, _), guarded in self.held.items() if (overrun := guarded.overrun())}
        return [f"the kernel wrote out of bounds of {name!r}: {overrun}" for name, overrun in found.items()]


class Memory:
    """A least-recently-used cache of buffers in every type on a device.

    The buffers of a single configuration may exceed the budget. If launches repeat on the same data, initial values are
    kept, and read-only buffers have a checksum.
    """

    def __init__(self, backend: Backend, budget_bytes: int = 0, *, repeats: bool = False) -> None:
        self._backend = backend
        self._budget_bytes = budget_bytes
        self._repeats = repeats
        self._buffers: OrderedDict[_Key, GuardedBuffer] = OrderedDict()
        #: Array module of the device; None for NumPy on the host.
        self.namespace = backend.device.array_namespace() if repeats else None

    def bind(self, program: Program, data: DataManager) -> Buffers:
        """Return the arguments of a configuration; read-only buffers of the same data are not uploaded again."""
        held, passed = _Held(), list[LaunchArgument]()
        memory, pristine = dict[str, Buffer](), dict[str, Buffer]()
        scalars, constants = dict[str, float | int](), dict[str, NDArray[Any]]()
        for argument in program.tunable.arguments:
            name, held_in = argument.name, program.types[argument.name]
            if argument.is_constant:
                constants[name] = data.typed(argument, held_in)
            elif argument.role is Role.SCALAR:
                scalar = data.scalar(argument, held_in)
                passed.append(scalar)
                scalars[name] = scalar.item()
            else:
                purpose = "read" if argument.role is Role.IN else "write"
                memory[name] = self._buffer(program, argument, data, purpose, held)
                passed.append(memory[name])
                if argument.role is Role.INOUT:
                    if self._repeats:
                        pristine[name] = self._buffer(program, argument, data, "read", held)
                    else:
                        self._upload(memory[name], data.typed(argument, held_in))
        for name, values in constants.items():
            program.function.set_constant(name, values)
        return Buffers(program, data, tuple(passed), memory, scalars, constants, memory, pristine, held)

    def damage(self, buffers: Buffers) -> list[str]:
        """Return messages on writes outside the buffers, or to read-only buffers."""
        found = buffers.overruns()
        for key, guarded in buffers.held.items():
            name, _, purpose = key
            if purpose != "write" and self.checksum(guarded.data) != guarded.checksum:
                is_input = buffers.program.arguments[name].role is Role.IN
                kept = "reference" if purpose == "reference" else "initial values"
                what = "which is an input" if is_input else f"of which another buffer keeps the {kept}"
                found.append(f"the kernel changed {name!r}, {what}")
        for name, values in buffers.constants.items():
            there = np.empty_like(values)
            buffers.program.function.read_constant(name, there)
            if there.tobytes() != values.tobytes():
                found.append(f"the kernel changed its constant {name!r}")
        return found

    def reference(self, buffers: Buffers, output: str) -> Buffer | None:
        """Return a reference on the device; None without room beside the arguments."""
        values = buffers.data.references[output]
        key = (output, "", "reference")
        try:
            self._provide(key, values.nbytes, values.dtype, buffers.held, is_optional=True)
        except OutOfMemoryError:
            return None
        return self._filled(key, values, buffers.data, buffers.held)

    def nearest(self, address: int) -> str:
        """Return the distance of an address from its nearest buffer in words; empty if far, or without addresses."""
        places: list[tuple[int, str]] = []
        for (name, _, _), guarded in self._buffers.items():
            if isinstance(guarded.data, AddressBuffer):
                before, past = guarded.data.address - address, address - guarded.data.address - guarded.data.nbytes
                where = "before the first" if before > 0 else "past the last"
                places.append((max(before, past), f"{max(before, past)} bytes {where} element of {name!r}"))
        distance, place = min(places, default=(_NEAR_BYTES, ""))
        return place if distance < _NEAR_BYTES else ""

    def free(self) -> None:
        """Free all device memory."""
        for key in list(self._buffers):
            self._drop(key)

    def checksum(self, buffer: Buffer) -> int:
        """Return the weighted sum of all words of a buffer modulo 2^64, which changes with any single word."""
        weights, rest = _weights(self.namespace), np.empty(buffer.nbytes % 8, np.uint8)
        in_words = buffer.nbytes - rest.size
        if rest.size:
            buffer.part(in_words, rest.size).read(rest)
        total = int.from_bytes(rest.tobytes())
        for start in range(0, in_words, _SUMMED_BYTES):
            words = self._words(buffer.part(start, min(_SUMMED_BYTES, in_words - start)))
            for first in range(0, words.size, weights.size):
                piece = words[first : first + weights.size]
                own = weights[: piece.size]
                # einsum makes no array of products, which takes twice as long.
                weighted = np.einsum("i,i", piece, own) if self.namespace is None else (piece * own).sum()
                total = (total * _FACTOR + int(weighted)) % 2**64
        return total

    def _words(self, buffer: Buffer) -> Any:
        if self.namespace is not None:
            return self._backend.device.array(buffer, np.dtype(np.uint64))
        there = buffer.seen()
        if there is None:
            there = np.empty(buffer.nbytes, np.uint8)
            buffer.read(there)
        return there.view(np.uint64)

    # -- memory --------------------------------------------------------------------------------

    def _buffer(self, program: Program, argument: Argument, data: DataManager, purpose: str, held: _Held) -> Buffer:
        key = (argument.name, str(program.types[argument.name] or ""), purpose)
        dtype = program.dtype_of(argument.name)
        self._provide(key, math.prod(data.shape_of(argument)) * dtype.itemsize, dtype, held)
        if purpose == "read":
            return self._filled(key, data.typed(argument, program.types[argument.name]), data, held)
        return self._used(key, held).data

    def _filled(self, key: _Key, values: NDArray[Any], data: DataManager, held: _Held) -> Buffer:
        guarded = self._used(key, held)
        if guarded.holds() is not data:
            self._upload(guarded.data, values)
            guarded.holds = weakref.ref(data)
            if self._repeats:
                guarded.checksum = self.checksum(guarded.data)
        return guarded.data

    def _used(self, key: _Key, held: _Held) -> GuardedBuffer:
        self._buffers.move_to_end(key)
        held[key] = self._buffers[key]
        return held[key]

    def _upload(self, buffer: Buffer, values: Any) -> None:
        if isinstance(values, np.ndarray) and not hasattr(values, "__cuda_array_interface__"):
            buffer.write(values)
        else:  # an array of the device
            self._backend.device.array(buffer, values.dtype)[:] = values.reshape(-1)

    def _provide(self, key: _Key, nbytes: int, dtype: np.dtype[Any], held: _Held, *, is_optional: bool = False) -> None:
        """Allocate a buffer unless it exists; an optional buffer must fit the budget."""
        if key in self._buffers and self._buffers[key].data.nbytes == nbytes:
            return
        self._drop(key)
        self._make_room(nbytes, held, self._budget_bytes)
        if is_optional and self._held_bytes() + nbytes > self._budget_bytes:
            raise OutOfMemoryError(f"no room for {nbytes} bytes beside the arguments")
        try:
            self._buffers[key] = GuardedBuffer(self._backend, nbytes, dtype)
        except OutOfMemoryError:
            if is_optional:
                raise
            # A buffer is too large only if it exceeds memory without those of other configurations.
            self._make_room(nbytes, held, 0)
            self._buffers[key] = GuardedBuffer(self._backend, nbytes, dtype)

    def _make_room(self, nbytes: int, held: _Held, budget_bytes: int) -> None:
        for key in [key for key in self._buffers if key not in held]:
            if self._held_bytes() + nbytes > budget_bytes:
                self._drop(key)

    def _drop(self, key: _Key) -> None:
        if key in self._buffers:
            self._buffers.pop(key).free()

    def _held_bytes(self) -> int:
        return sum(guarded.data.nbytes for guarded in self._buffers.values())


@functools.lru_cache(maxsize=2)
def _weights(namespace: Any) -> Any:
    """Return the weights of words in a checksum: odd, so that a change of one word never vanishes."""
    count = _HOST_WORDS if namespace is None else PIECE
    return (namespace or np).arange(1, 2 * count, 2, dtype=np.uint64)


def run_once(program: Program, inputs: Mapping[str, Any] | DataManager) -> dict[str, NDArray[Any]]:
    """Run a program on inputs by argument and return its outputs in fp64, integers in their type."""
    if not isinstance(inputs, DataManager):
        inputs = DataManager(program.tunable, program.sizes, budget_bytes=0, inputs=inputs)
    memory = Memory(program.backend)
    try:
        buffers = memory.bind(program, inputs)
        buffers.poison()
        program.run(buffers)
        return buffers.answer()
    finally:
        memory.free()
