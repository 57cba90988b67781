"""What the simulated CUDA and HIP calls have in common: one device, and all that is known of what was asked of it."""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap
import os
import signal
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeVar

from mptune.backends.processes import ChildEnded, PythonChild
from mptune.errors import MptuneError
from tests.support.simulator.compiler import SHARED_BYTES, static_shared_bytes
from tests.support.simulator.process import ARENA, GUARD_BYTES

__all__ = ["MADE_UP", "Event", "Failure", "Function", "Limits", "Misuse", "Module", "SimulatedDevice", "Stream"]

#: In the names of devices, so that it is told wherever one is: in what commands print, in runs and in recordings.
MADE_UP: Final = "simulated: times are made up"
#: As of every allocation on a device.
_ALIGNMENT: Final = 256
#: What memory holds that nobody has written: as doubles and floats, huge and negative; no poison of mptune's.
_GARBAGE: Final = b"\xde"
#: What lies beside allocations: a signalling NaN of fp64, and in it one of fp32, which arithmetic changes.
_BESIDE: Final = 0xFFF7FFFFFFBFFFFF.to_bytes(8, "little")
#: Scalars are packed in so many bytes, zeros behind them: of a larger one than the parameter's, something is left.
_SLOT: Final = 16
#: Registers of a thread without parameters.
_REGISTERS: Final = 24
#: What a launch takes on the device's clock: the same each time, less with smaller types, and too long for many.
_LAUNCH_MS: Final = 10.0
_BYTES_PER_MS: Final = 1e3
_THREADS_PER_MS: Final = 1e3


class Misuse(AssertionError):
    """A call that a real device would not have refused, or not so clearly, and that is wrong nevertheless."""


class Failure(Exception):
    """What a real device answers: "out of memory", "illegal address", ...

    Attributes:
        detail: what a real device would not tell, possibly empty.
    """

    def __init__(self, answer: str, detail: str = "") -> None:
        super().__init__(answer)
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device takes."""

    memory_bytes: int = 1 << 30
    threads: int = 1024
    block: tuple[int, int, int] = (1024, 1024, 64)
    grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    #: Shared memory of a block, and of one whose function has asked for more.
    shared_bytes: int = SHARED_BYTES["cuda"]
    most_shared_bytes: int = 227 << 10
    #: Resources of a multiprocessor, shared by the blocks that run on it.
    threads_at_once: int = 2048
    registers: int = 65536
    shared_at_once: int = 228 << 10


@dataclass(slots=True, eq=False)
class Stream:
    """What was asked for and is not done yet: nothing is before somebody waits for it."""

    pending: list[Callable[[], object]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Event:
    """When, in milliseconds of the device, a stream came by; None where it has not yet."""

    stream: Stream | None = None
    at_ms: float | None = None


@dataclass(slots=True, eq=False)
class Module:
    """A loaded image, by its number in the device."""

    number: int
    image: bytes
    symbols: dict[str, _Memory] = field(default_factory=dict)
    functions: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Function:
    """A kernel.

    Attributes:
        codes: the bytes of its parameters, negative for a pointer.
        threads: of a block at most.
        static_bytes: shared memory that it declares.
        shared_bytes: shared memory that it may have in all.
    """

    module: Module
    name: str
    codes: Sequence[int]
    threads: int
    static_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class _Memory:
    """An allocation, or a variable of a module, which has no pages here.

    Attributes:
        address: on the device.
        pages: those of the device as they are here; it ends where they do, but for the alignment.
    """

    address: int
    nbytes: int
    pages: mmap.mmap | None = None

    def part(self, address: int, nbytes: int) -> ctypes.Array[ctypes.c_char]:
        """Return some of its bytes in this process."""
        assert self.pages is not None
        return (ctypes.c_char * nbytes).from_buffer(self.pages, self._start + address - self.address)

    @property
    def _start(self) -> int:
        """Where it begins in its pages."""
        assert self.pages is not None
        return len(self.pages) - _rounded(self.nbytes)

    def beside(self) -> tuple[bytes, bytes]:
        """Return what is before and after it in its pages."""
        if self.pages is None:
            return b"", b""
        return self.pages[: self._start], self.pages[self._start + self.nbytes :]

    def overrun(self) -> str:
        """Describe what was written beside it; empty if nothing was."""
        for found, where in zip(self.beside(), ("before", "past the end of"), strict=True):
            expected = _beside(len(found))
            if found != expected:
                changed = [i for i, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other]
                return f"up to {len(found) - changed[0] if where == 'before' else changed[-1] + 1} bytes {where}"
        return ""


def _beside(nbytes: int) -> bytes:
    return (_BESIDE * (nbytes // len(_BESIDE) + 1))[:nbytes]


def _rounded(nbytes: int, unit: int = _ALIGNMENT) -> int:
    return -(-nbytes // unit) * unit


_Kind = TypeVar("_Kind")


class SimulatedDevice:
    """One device, whose process starts when it is first used and ends with this one.

    Attributes:
        calls: names and arguments of all calls, in order.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.calls: list[tuple[Any, ...]] = []
        self._process: PythonChild | None = None
        self._fault: tuple[str, str] | None = None
        self._now_ms = 0.0
        self._handles: dict[int, Any] = {}
        self._ended: set[int] = set()
        self._numbers = itertools.count(0x1001, 0x10)
        self._memory: dict[int, _Memory] = {}
        self._freed: list[_Memory] = []
        #: What each allocation was filled with last: address, byte and count, if nothing may have written to it since.
        self._filled: dict[int, tuple[int, int, int]] = {}
        self._next = ARENA

    # -- memory --------------------------------------------------------------------------------

    def free_bytes(self) -> int:
        """Return how much memory is left."""
        self._begin("free_bytes")
        return self.limits.memory_bytes - sum(memory.nbytes for memory in self._memory.values())

    def allocate(self, nbytes: int) -> int:
        """Return the address of memory full of garbage."""
        self._begin("allocate", nbytes)
        if nbytes < 1:
            raise Misuse(f"{nbytes} bytes were asked for")
        if nbytes > self.free_bytes():
            raise Failure("out of memory")
        size = _rounded(nbytes, mmap.PAGESIZE)
        file = os.memfd_create("simulated device")
        try:
            os.ftruncate(file, size)
            pages = mmap.mmap(file, size)
            if not self._ask("map", f"/proc/{os.getpid()}/fd/{file}", self._next, size):
                raise Failure("out of memory")
        finally:
            os.close(file)
        memory = _Memory(self._next + size - _rounded(nbytes), nbytes, pages)
        pages[:] = _GARBAGE * size
        before, after = memory.beside()
        pages[: len(before)] = _beside(len(before))
        pages[size - len(after) :] = _beside(len(after))
        self._next += size + GUARD_BYTES
        self._memory[memory.address] = memory
        return memory.address

    def free(self, address: int) -> None:
        """Give memory back, after all that was asked for before."""
        self._begin("free", address)
        self.drain()
        if address not in self._memory:
            self._refuse_memory("free", address, 0)
        memory = self._memory.pop(address)
        self._filled.pop(address, None)
        self._freed.append(memory)
        assert memory.pages is not None
        self._ask("unmap", memory.address // mmap.PAGESIZE * mmap.PAGESIZE, len(memory.pages))

    def copy_in(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy from the host, when somebody waits for it."""
        memory = self._inside(target, nbytes, "a copy")
        self._refuse_device(source, "copies from the host")
        self._enqueue("copy_in", stream, nbytes, lambda: self._write(memory, target, ctypes.string_at(source, nbytes)))

    def copy_out(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy to the host, when somebody waits for it."""
        memory = self._inside(source, nbytes, "a copy")
        self._refuse_device(target, "copies to the host")
        self._enqueue(
            "copy_out", stream, nbytes, lambda: ctypes.memmove(target, self._read(memory, source, nbytes), nbytes)
        )

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy within the device."""
        to, of = self._inside(target, nbytes, "a copy"), self._inside(source, nbytes, "a copy")
        if abs(target - source) < nbytes:
            raise Misuse(f"a copy of {nbytes} bytes from {source:#x} to {target:#x}, which overlap")
        self._enqueue("copy", stream, nbytes, lambda: self._write(to, target, self._read(of, source, nbytes)))

    def fill(self, target: int, byte: int, nbytes: int, stream: int) -> None:
        """Set bytes to one value."""
        memory = self._inside(target, nbytes, "a fill")
        if not 0 <= byte < 256:
            raise Misuse(f"{byte} is no value of a byte")

        def fill() -> None:
            # What keeps a device busy before a launch fills the same bytes over and over.
            if self._filled.get(memory.address) == (target, byte, nbytes):
                return
            if memory.pages is None:
                self._write(memory, target, bytes([byte]) * nbytes)
                return
            ctypes.memset(memory.part(target, nbytes), byte, nbytes)
            self._filled[memory.address] = target, byte, nbytes

        self._enqueue("fill", stream, nbytes, fill)

    def address_of(self, here: int) -> int:
        """Return the device's address of an allocation's byte in this process."""
        for memory in self._memory.values():
            start = ctypes.addressof(memory.part(memory.address, memory.nbytes))
            if start <= here < start + memory.nbytes:
                return memory.address + here - start
        raise Misuse(f"{here:#x} is no memory of the device")

    def view(self, address: int, nbytes: int, stream: Stream) -> ctypes.Array[ctypes.c_char]:
        """Return memory as what computes on a stream finds it: after all that was asked of that stream."""
        memory = self._inside(address, nbytes, "an array")
        for other in self._of_kind(Stream):
            if other.pending and other is not stream:
                raise Misuse("an array is computed with on another stream than writes it")
        self.drain()
        self._filled.pop(memory.address, None)
        return memory.part(address, nbytes)

    # -- modules -------------------------------------------------------------------------------

    def load(self, image: bytes) -> int:
        """Return a new module."""
        self._begin("load", len(image))
        try:
            static_shared_bytes(image, "")  # the loader of the system does not look whether there is all of it
            number = self._ask("load", image)
        except MptuneError:
            number = None
        if number is None:
            raise Failure("invalid image")
        return self._new(Module(number, image))

    def unload(self, module: int) -> None:
        """End a module, its functions and its variables."""
        self._begin("unload", module)
        self.drain()
        for handle in self.get(module, Module).functions:
            self._end(handle)
        self._end(module)

    def function(self, module: int, name: str) -> int:
        """Return a new handle of a function."""
        self._begin("function", module, name)
        found = self.get(module, Module)
        described = self._ask("describe", found.number, name)
        if described is None:
            raise Failure("not found")
        codes, threads = described
        declared = static_shared_bytes(found.image, name)
        handle = self._new(
            Function(found, name, codes, min(threads, self.limits.threads), declared, self.limits.shared_bytes)
        )
        found.functions.append(handle)
        return handle

    def symbol(self, module: int, name: str) -> int:
        """Return the address of a module's variable."""
        self._begin("symbol", module, name)
        found = self.get(module, Module)
        if name not in found.symbols:
            place = self._ask("symbol", found.number, name)
            if place is None:
                raise Failure("not found")
            found.symbols[name] = _Memory(*place)
        return found.symbols[name].address

    def max_threads(self, function: int) -> int:
        """Return the threads of the largest block of a function."""
        self._begin("max_threads", function)
        return self.get(function, Function).threads

    def registers(self, function: int) -> int:
        """Return the registers of a thread: made up, more with more parameters."""
        return _REGISTERS + 2 * len(self.get(function, Function).codes)

    def static_bytes(self, function: int) -> int:
        """Return the shared memory that a function declares."""
        return self.get(function, Function).static_bytes

    def blocks(self, function: int, threads: int, shared_bytes: int) -> int:
        """Return how many blocks of a function a multiprocessor has at a time, by threads, registers and memory."""
        if not 1 <= threads <= self.limits.threads:
            raise Failure("invalid value")
        used = self.static_bytes(function) + shared_bytes
        return min(
            self.limits.threads_at_once // threads,
            self.limits.registers // (threads * self.registers(function)),
            self.limits.shared_at_once // used if used else self.limits.threads_at_once,
        )

    def allow_shared(self, function: int, nbytes: int) -> None:
        """Let a function have more dynamic shared memory than others."""
        self._begin("allow_shared", function, nbytes)
        found = self.get(function, Function)
        if not 0 <= nbytes <= self.limits.most_shared_bytes - found.static_bytes:
            raise Failure("invalid value")
        found.shared_bytes = max(nbytes + found.static_bytes, self.limits.shared_bytes)

    def launch(
        self, function: int, grid: Sequence[int], block: Sequence[int], shared_bytes: int, stream: int, arguments: int
    ) -> None:
        """Run a grid, when somebody waits for it; ``arguments`` is the address of an array of pointers to values."""
        limits, found = self.limits, self.get(function, Function)
        fits = all(1 <= e <= most for e, most in zip((*grid, *block), (*limits.grid, *limits.block), strict=True))
        fits = fits and math.prod(block) <= found.threads
        if not fits or not 0 <= shared_bytes <= found.shared_bytes - found.static_bytes:
            self._begin("launch", found.name, grid, block, shared_bytes)
            raise Failure("invalid value")
        values, nbytes = self._values(found, arguments)
        passed = zip(values, found.codes, strict=True)
        pointers = {int.from_bytes(value, "little"): i for i, (value, code) in enumerate(passed) if code < 0}
        given = {self._inside(address, 1, "an argument").address for address in pointers if address}

        def run() -> None:
            self._filled = {at: what for at, what in self._filled.items() if at not in given}
            took = self._ask("launch", found.module.number, found.name, grid, block, shared_bytes, values)
            if took < 0:
                self._fail("launch failure")
            for memory in self._memory.values():
                if overrun := memory.overrun():
                    end = memory.address + memory.nbytes
                    places = [i for at, i in pointers.items() if memory.address <= at < end]
                    name = f"argument {places[0]}" if places else "memory that is no argument of it"
                    what = f"{overrun} {name}, {memory.nbytes} bytes at {memory.address:#x}"
                    self._fail("illegal address", f"{found.name} wrote {what}")
            self._now_ms += _LAUNCH_MS + nbytes / _BYTES_PER_MS + math.prod(grid) * math.prod(block) / _THREADS_PER_MS

        self._enqueue("launch", stream, (found.name, tuple(grid), tuple(block), shared_bytes), run)

    def _values(self, function: Function, arguments: int) -> tuple[list[bytes], int]:
        """Return what a launch passes, as many bytes as each parameter has, and how much memory that leads to."""
        if not arguments and function.codes:
            raise Misuse(f"{function.name} was launched without arguments")
        pointers = (ctypes.c_void_p * len(function.codes)).from_address(arguments) if function.codes else ()
        values, nbytes = [], 0
        for i, (pointer, code) in enumerate(zip(pointers, function.codes, strict=True)):
            what = f"argument {i} of {function.name}"
            if not pointer:
                raise Misuse(f"{what} is missing")
            slot = ctypes.string_at(pointer, max(_SLOT, abs(code)))
            value, rest = slot[: abs(code)], slot[abs(code) :]
            if any(rest):
                raise Misuse(f"{what} has {abs(code)} bytes, and was given more")
            if code < 0 and (address := int.from_bytes(value, "little")):
                memory = self._inside(address, 1, what)
                nbytes += memory.address + memory.nbytes - address
            values.append(value)
        return values, nbytes

    # -- streams and events --------------------------------------------------------------------

    def new(self, thing: Stream | Event) -> int:
        """Return the handle of a new stream or event."""
        self._begin("new", type(thing).__name__)
        return self._new(thing)

    def synchronize(self, stream: int) -> None:
        """Do all that was asked of a stream."""
        self._begin("synchronize", stream)
        self._drain(self.get(stream, Stream))

    def drain(self) -> None:
        """Do all that was asked for."""
        self._begin("drain")
        for stream in list(self._of_kind(Stream)):
            self._drain(stream)

    def record(self, event: int, stream: int) -> None:
        """Have an event take down when its stream comes by."""
        found = self.get(event, Event)
        found.stream, found.at_ms = self.get(stream, Stream), None

        def take_down() -> None:
            found.at_ms = self._now_ms

        self._enqueue("record", stream, event, take_down)

    def wait(self, event: int) -> None:
        """Wait for an event."""
        self._begin("wait", event)
        found = self.get(event, Event)
        if found.stream is None:
            raise Misuse(f"event {event:#x} was waited for before it was recorded")
        self._drain(found.stream)

    def elapsed_ms(self, start: int, end: int) -> float:
        """Return how long it was from an event to another."""
        self._begin("elapsed", start, end)
        began_ms, ended_ms = (self.get(event, Event).at_ms for event in (start, end))
        if began_ms is None or ended_ms is None or ended_ms < began_ms:
            raise Misuse(f"the time from one event to another, which came by at {began_ms} and {ended_ms} ms")
        return ended_ms - began_ms

    # -- all of them ---------------------------------------------------------------------------

    def get(self, handle: int, kind: type[_Kind]) -> _Kind:
        """Return what a handle is of."""
        found = self._handles.get(handle)
        if isinstance(found, kind):
            return found
        what = kind.__name__.lower()
        if handle in self._ended:
            raise Misuse(f"{what} {handle:#x} was used after it was given back")
        raise Misuse(f"{handle:#x} is no {what}" + (f" but a {type(found).__name__.lower()}" if found else ""))

    def _new(self, thing: object) -> int:
        handle = next(self._numbers)
        self._handles[handle] = thing
        return handle

    def _end(self, handle: int) -> None:
        del self._handles[handle]
        self._ended.add(handle)

    def _of_kind(self, kind: type[_Kind]) -> Iterator[_Kind]:
        return (thing for thing in self._handles.values() if isinstance(thing, kind))

    def _begin(self, *call: Any) -> None:
        """Take a call down; after a fault none succeeds."""
        self.calls.append(call)
        if self._fault:
            raise Failure(*self._fault)

    def _enqueue(self, name: str, stream: int, details: object, work: Callable[[], object]) -> None:
        self._begin(name, stream, details)
        self.get(stream, Stream).pending.append(work)

    def _drain(self, stream: Stream) -> None:
        while stream.pending:
            stream.pending.pop(0)()

    def _fail(self, fault: str, detail: str = "") -> NoReturn:
        """Have this and every later call fail."""
        self._fault = fault, detail
        for stream in self._of_kind(Stream):
            stream.pending.clear()
        raise Failure(fault, detail)

    def _ask(self, *request: Any) -> Any:
        """Return the answer of the device's process."""
        if self._process is None:
            self._process = PythonChild("tests.support.simulator.process:serve")
            weakref.finalize(self, self._process.kill)
        try:
            self._process.send(request)
            return self._process.receive()
        except ChildEnded as ended:
            signals = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL)
            self._fail("illegal address" if ended.code in signals else "launch failure")

    def _inside(self, address: int, nbytes: int, what: str) -> _Memory:
        """Return the memory in which all of the bytes are."""
        for memory in self._all_memory():
            if memory.address <= address and address + nbytes <= memory.address + memory.nbytes:
                return memory
        return self._refuse_memory(what, address, nbytes)

    def _all_memory(self) -> Iterator[_Memory]:
        yield from self._memory.values()
        for module in self._of_kind(Module):
            yield from module.symbols.values()

    def _refuse_memory(self, what: str, address: int, nbytes: int) -> NoReturn:
        for memory in self._all_memory():
            if memory.address <= address < memory.address + memory.nbytes:
                past = address + nbytes - memory.address - memory.nbytes
                at = f"ends {past} bytes past" if past > 0 else f"is {address - memory.address} bytes into"
                raise Misuse(f"{what} of {nbytes} bytes {at} the {memory.nbytes} bytes at {memory.address:#x}")
        if any(memory.address <= address < memory.address + memory.nbytes for memory in self._freed):
            raise Misuse(f"{what} at {address:#x}: that memory was freed")
        raise Misuse(f"{what} at {address:#x}, which is no memory of the device")

    def _refuse_device(self, address: int, what: str) -> None:
        if ARENA <= address < self._next:
            raise Misuse(f"what {what} was given an address of the device, {address:#x}")

    def _read(self, memory: _Memory, address: int, nbytes: int) -> bytes:
        if memory.pages is None:
            found: bytes = self._ask("read", address, nbytes)
            return found
        return bytes(memory.part(address, nbytes))

    def _write(self, memory: _Memory, address: int, data: bytes) -> None:
        if memory.pages is None:
            self._ask("write", address, data)
        else:
            self._filled.pop(memory.address, None)
            ctypes.memmove(memory.part(address, len(data)), data, len(data))
