"""An application whose steps run the program itself: its host part as it stands, its kernels in tunable types.

The program is a process of its own. Where it would call CUDA's runtime, the recorder tells this process each operation
(``files/layer/mptune_layer/recorder.cpp``), which does it on buffers of the configuration's types: so the host computes
with what the kernels really gave, and a loop until convergence takes as many turns as it takes.

At another size of the problem the program runs with another argument. Its allocations, launches and copies are those of
that run: nothing is computed from a formula.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import re
import socket
import struct
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import numpy as np
from numpy.typing import NDArray

from mptune.adopt.capture import (
    FOR_KERNEL,
    FOR_LIBRARY,
    INITIAL,
    Allocation,
    Copy,
    Fill,
    Launch,
    Operation,
    Place,
    Release,
    Scalar,
    Structure,
    capture,
    operation,
)
from mptune.adopt.running import Built, named, worked_s
from mptune.backends.processes import Child, in_words
from mptune.errors import KernelError
from mptune.kernel import Application, Argument, Sizes
from mptune.results.kernel_times import PROGRAM_HOST_MS
from mptune.space.configuration import Value

if TYPE_CHECKING:
    from mptune.measure.program import Steps

#: Beside a definition: its program, and how the operations of that become calls of its kernels.
LIVE: Final = "live.json"
SHARED: Final = "shared_bytes"
_NUMBER: Final = struct.Struct("=I")


@dataclass(frozen=True, slots=True)
class Passed:
    """The place of a kernel's argument in a launch.

    Attributes:
        name: of the argument.
        position: of the program's own argument.
        offset: in bytes, of a field in a struct; -1 for an argument that is no struct.
        type: of a number ("f8", "i4"); "" for a pointer.
    """

    name: str
    position: int
    offset: int
    type: str

    def value(self, launch: Launch) -> Place | float | int:
        """Return what a launch has here.

        Raises:
            KernelError: a pointer to no memory of the device.
        """
        found = launch.arguments[self.position]
        if isinstance(found, Structure):
            if not self.type:
                found = found.pointers.get(self.offset)
            else:
                size = int(self.type[1:])
                found = Scalar(self.type, found.data[self.offset : self.offset + size])
        if isinstance(found, Scalar):
            return int(found.value) if self.type[0] == "b" else found.value
        if isinstance(found, Place):
            return found
        raise KernelError(f"{launch.kernel} is given a null pointer, or one of the host, for {self.name}")


@dataclass(frozen=True, slots=True)
class Launched:
    """The conversion of a kernel's launches to calls.

    Attributes:
        kernel: its name in the definition.
        passed: its arguments.
        offsets: of pointers that may point into a buffer, by name: the argument that says where, and the bytes of an
            element.
        constants: the variables in the device's memory that it uses, by allocation.
        read: those of them that it may write to, by name.
        extents: the numbers of a launch's shape that a call is given: by name in the definition that of the launch.
        most_in_block: threads of a block at most; 0 for any number.
    """

    kernel: str
    passed: tuple[Passed, ...]
    offsets: Mapping[str, tuple[str, int]]
    constants: Mapping[int, str]
    read: tuple[str, ...]
    extents: Mapping[str, str]
    most_in_block: int


class Live:
    """The steps of an adopted application.

    Args:
        folder: of the definition.

    Attributes:
        draws: what a draw changes: "data", "numbers" or "nothing" (:class:`~mptune.adopt.findings.Draws`), the largest
            change of a number, as a share of it, and the names of what changes, none for all.

    Raises:
        KernelError: the table in the folder is damaged, or of another version.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._take(_record(folder))
        except (ValueError, KeyError, TypeError) as error:
            raise KernelError(f"{folder / LIVE} cannot be used: {error!r}; adopt the program again") from None

    def _take(self, said: Mapping[str, Any]) -> None:
        self._program = said["program"]
        #: Of each size its argument, from 1, and its value in the program's own run.
        self._sizes: Mapping[str, tuple[int, int]] = said["sizes"]
        #: By allocation: the name of the buffer, the program's own type, and the bytes of an element.
        self._buffers = {int(id): (name, np.dtype(kind)) for id, (name, kind, _) in said["buffers"].items()}
        self._constants = {int(id): np.zeros(size, kind) for id, (size, kind) in said["constants"].items()}
        #: The types of structs in memory, by allocation.
        self._records = {int(id): np.dtype(record) for id, record in said["records"].items()}
        self._launched = {
            where: Launched(
                each["kernel"],
                tuple(Passed(*one) for one in each["passed"]),
                {name: (argument, size) for name, (argument, size) in each["offsets"].items()},
                {int(id): name for id, name in each["constants"].items()},
                tuple(each["read"]),
                each["extents"],
                each["most_in_block"],
            )
            for where, each in said["launches"].items()
        }
        #: By output, its parts: where they are on the host at the end, and where in memory they begin, in bytes.
        #: Of structs a field.
        self._answers: Mapping[str, list[tuple[int, int, int, str]]] = said["answers"]
        #: The allocation of each buffer, and the bytes of an element.
        self._elements: dict[str, tuple[int, int]] = {
            name: (int(id), size) for id, (name, _, size) in said["buffers"].items()
        }
        for name, ((_, id, _, field), *_) in self._answers.items():
            if field:
                self._elements[name] = id, self._records[id].itemsize
        self.draws: tuple[str, float, Sequence[str]] = tuple(said["draws"])
        #: Whether an exit code is an error: otherwise the program checks nothing but its answer, as trials do.
        self._has_exit_code = said["has_exit_code"]
        self._copies_nothing = said["copies_nothing"]

    def __call__(self, run: Steps, size: Mapping[str, int]) -> None:
        """Run the program, its kernels by ``run``."""
        while not self._has_run(run, size):
            pass

    def inputs(self, rng: np.random.Generator, _: Mapping[str, int]) -> dict[str, int]:
        """Return the number of a draw: 0 for the program's own data, and for all draws where nothing is changed."""
        is_own = self.draws[0] == "nothing" or not cast(Any, rng.bit_generator.seed_seq).spawn_key
        return {"draw": 0 if is_own else int(rng.integers(1, 1 << 31))}

    def elements(self, buffer: str, size: Mapping[str, int]) -> int | None:
        """Return how many elements a buffer has at other sizes than the program's own; None at these.

        Raises:
            ProgramError: the program cannot run at these sizes.
            KernelError: it does not allocate the buffer at these sizes.
        """
        if all(size[name] == own for name, (_, own) in self._sizes.items()):
            return None
        id, element_bytes = self._elements[buffer]
        allocated = _allocations(self._folder, tuple(self._arguments(size)), tuple(self._program["refused"]))
        if id not in allocated:
            raise KernelError(f"at {dict(size)} the program does not allocate {buffer}, as it does at its own sizes")
        return allocated[id] // element_bytes

    @property
    def macros(self) -> dict[str, int]:
        """The program's own values of the macros that are tuned, by name."""
        return {name: int(self._program["defines"][name]) for name in self._program["macros"]}

    def _arguments(self, size: Mapping[str, int]) -> list[str]:
        return with_sizes(self._program["arguments"], {place: size[name] for name, (place, _) in self._sizes.items()})

    def _has_run(self, run: Steps, size: Mapping[str, int]) -> bool:
        """Run the program; return False if it began with wrong values of variables, which are known now."""
        given = self._program
        draws = self.draws if run.draw else ("nothing", 0.0, ())
        macros = tuple((name, str(getattr(run, name))) for name in given["macros"])
        turn = _Turn(run, self._buffers, self._constants, self._records, self._launched, *draws)
        with tempfile.TemporaryDirectory(prefix="mptune-") as name:
            work = Path(name)
            program, (ours, theirs) = work / "program", socket.socketpair()
            program.write_bytes(_built(self._folder, macros).image)
            program.chmod(0o700)
            environment = {
                **os.environ,
                "MPTUNE_LIVE": str(theirs.fileno()),
                "MPTUNE_CAPTURE": str(work),
                "MPTUNE_WRITES": str(work),
                "MPTUNE_LEFT": str(int(self._copies_nothing)),
                "MPTUNE_OWN": named(given["refused"]),
            }
            run_in = given["run_in"] if Path(given["run_in"]).is_dir() else None
            printed = work / "printed"
            with ours, printed.open("wb") as out:
                with theirs:
                    child = Child(
                        [str(program), *self._arguments(size)],
                        env=environment,
                        cwd=run_in,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                        pass_fds=[theirs.fileno()],
                    )
                with child, cast(BinaryIO, ours.makefile("rb", buffering=1 << 20)) as stream:
                    with contextlib.suppress(ConnectionError):  # it has ended early, which its exit code tells
                        for told in _operations(stream):
                            turn.do(told, stream, ours)
                        turn.end(self._answers)
                    host_s = worked_s(child)
                    code = child.wait()
            if turn.is_stale:
                return False
            # (Its check may be one of its own data.)
            if code < 0 or (code > 0 and self._has_exit_code and not run.draw):
                lines = printed.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                last = f"; the last it printed: {textwrap.shorten(lines[-1], 200, placeholder=' ...')}" if lines else ""
                if run.draw and draws[1]:
                    changed = ", ".join(draws[2]) or "what it copies to the device"
                    last += f"; fresh inputs change {changed} by up to {100 * draws[1]:g}%: adopt --vary changes less"
                raise KernelError(f"the program {in_words(code)}{last}")
        if not run.draw:
            run.record(exit_code=code, **{PROGRAM_HOST_MS: 1e3 * host_s})
        return True


class AdoptedApplication(Application):
    """An application whose steps are :class:`Live`, which know its macros, and the extents of its buffers."""

    def reference_values(self) -> dict[str, tuple[Value, ...]]:
        """Return the baseline's types, and the program's own values of macros, which may change its answer."""
        own = cast(Live, self.steps).macros
        return {**super().reference_values(), **{name: (value,) for name, value in own.items()}}

    def shape_of(self, argument: Argument, sizes: Sizes) -> tuple[int, ...]:
        """Return the shape of a buffer at these sizes."""
        own = super().shape_of(argument, sizes)
        elements = cast(Live, self.steps).elements(argument.name, sizes) if own else None
        return own if elements is None else (elements, *own[1:])


class _Turn:
    """One run of the program."""

    def __init__(
        self,
        run: Steps,
        buffers: Mapping[int, tuple[str, np.dtype[Any]]],
        constants: Mapping[int, NDArray[Any]],
        records: Mapping[int, np.dtype[Any]],
        launched: Mapping[str, Launched],
        draws: str,
        by: float,
        names: Sequence[str],
    ) -> None:
        self._run, self._buffers, self._launched = run, buffers, launched
        self._draws, self._by = draws, by
        known = {id: name for each in launched.values() for id, name in each.constants.items()}
        known |= {id: name for id, (name, _) in buffers.items()}
        #: The allocations whose data draws change; None for all.
        self._varied = {id for id, name in known.items() if name in names} if names else None
        self._records = records
        #: Memory that no kernel is given, by allocation.
        self._others: dict[int, NDArray[np.uint8]] = {}
        self._initial = constants
        self._constants = {id: values.copy() for id, values in constants.items()}
        self._used: set[int] = set()
        #: Whether a kernel used a device variable before its initial value was known.
        self.is_stale = False
        #: Number of copies to the device before the first copy to the host.
        self._given = 0
        self._has_answered = False
        #: The latest copy to the host, by its place on the host and by its place in device memory.
        self._on_host: dict[int, NDArray[Any]] = {}
        self._from: dict[tuple[int, int], NDArray[Any]] = {}
        #: Arguments of calls, by the identity of the launch: a repeated launch is converted once.
        self._calls: dict[int, tuple[Launched, dict[str, Any]]] = {}

    def do(self, told: Operation, stream: BinaryIO, connection: socket.socket) -> None:
        """Do an operation. Data come from the stream; results go to the connection."""
        match told:
            case Launch():
                self._launch(told)
            case Copy(kind="to_device", target=Place(id), host=host) if host == INITIAL:
                self._begin_with(id, np.frombuffer(_read(stream, told.bytes), np.uint8))
            case Copy(kind="to_device", target=Place(id, offset), host=host):
                data = np.frombuffer(_read(stream, told.bytes), np.uint8)
                self._write(id, offset, data if host == FOR_KERNEL else self._drawn(id, data))
            case Copy(kind="to_host", source=Place(id, offset)):
                self._has_answered |= told.host not in (FOR_KERNEL, FOR_LIBRARY)
                values = self._to_host(id, offset, told.bytes)
                if told.host != FOR_LIBRARY:
                    self._on_host[told.host] = self._from[id, offset] = values
                connection.sendall(values.tobytes())
            case Copy(kind="on_device", target=Place(to, start), source=Place(id, offset)):
                self._write(to, start, self._to_host(id, offset, told.bytes).view(np.uint8))
            case Fill(target=Place(id, offset)):
                self._write(id, offset, np.full(told.bytes, told.byte & 0xFF, np.uint8))
            case Allocation(id, size) if id in self._buffers:
                self._run.fill(self._buffers[id][0], 0)
            case Allocation(id, size) if id not in self._constants:
                self._others[id] = np.zeros(size, np.uint8)
            case Release(id):
                self._others.pop(id, None)

    def end(self, answers: Mapping[str, Sequence[tuple[int, int, int, str]]]) -> None:
        """Write to each output what of it came to the host last, by the place there: programs swap memory.

        Where the host has something else there at the end, it is what came last from the output's own memory.
        """
        for name, parts in answers.items():
            for host, id, offset, field in parts:
                kind = self._records[id] if field else self._buffers[id][1]
                values = self._from.get((id, offset)) if host < 0 else self._on_host.get(host)
                if values is not None:
                    whole = _whole(values.view(np.uint8), kind)
                    numbers = np.ascontiguousarray(whole[field] if field else whole)
                    start = offset // kind.itemsize * (numbers.size // max(whole.size, 1))
                    self._run.write(name, numbers.reshape(-1), start=start)

    def _begin_with(self, id: int, values: NDArray[np.uint8]) -> None:
        if id in self._initial and not np.array_equal(self._initial[id].view(np.uint8), values):
            self._initial[id].view(np.uint8)[:] = values
            self.is_stale |= id in self._used
            self._write(id, 0, values)

    def _launch(self, launch: Launch) -> None:
        if id(launch) not in self._calls:
            self._calls[id(launch)] = self._call(launch)
        launched, given = self._calls[id(launch)]
        constants = {name: self._constants[id] for id, name in launched.constants.items()}
        self._used |= launched.constants.keys()
        getattr(self._run, launched.kernel)(**given, **constants)
        for name in launched.read:
            constants[name][...] = self._run.read_constant(launched.kernel, name)

    def _call(self, launch: Launch) -> tuple[Launched, dict[str, Any]]:
        """Return the conversion of a launch, and the arguments of its call.

        Raises:
            KernelError: the first run of the program had no such launch.
        """
        launched = self._launched.get(f"{launch.kernel} {launch.file.name}:{launch.line}")
        if launched is None:
            raise KernelError(f"{launch.file.name}:{launch.line} launches {launch.kernel}, which its first run did not")
        given: dict[str, Any] = {}
        for each in launched.passed:
            value = each.value(launch)
            if isinstance(value, Place):
                if value.allocation not in self._buffers:
                    raise KernelError(
                        f"{launch.kernel} is given memory for {each.name} that its first run did not have"
                    )
                given[each.name] = getattr(self._run, self._buffers[value.allocation][0])
                if each.name in launched.offsets:
                    name, size = launched.offsets[each.name]
                    given[name] = value.offset // size
                elif value.offset:
                    raise KernelError(
                        f"{launch.kernel} is given a place inside a buffer for {each.name}, as never before"
                    )
            else:
                given[each.name] = self._near(value)
        shape = _shape_of(launch)
        given |= {name: shape[key] for name, key in launched.extents.items()}
        axes = {key[-1] for key in launched.extents.values()}
        fixed = {f"threads_{axis}": 1 for axis in "xyz" if axis not in axes}
        fixed |= {} if SHARED in launched.extents.values() else {SHARED: 0}
        for key, own in fixed.items():
            if shape[key] != own:
                raise KernelError(f"{launch.kernel} is launched with {key} {shape[key]}, which was {own} when adopted")
        if 0 < launched.most_in_block < math.prod(launch.block):
            raise KernelError(
                f"{launch.kernel} is launched with blocks of {math.prod(launch.block)} threads: adopt the program at "
                f"these sizes, as it had at most {launched.most_in_block}"
            )
        return launched, given

    def _near(self, number: float) -> float:
        """Return a launch's number, changed if draws change numbers: equal numbers change alike."""
        if self._draws != "numbers" or self._has_answered or not isinstance(number, float):
            return number
        rng = np.random.default_rng([self._run.draw, *np.float64(number).tobytes()])
        return float(_changed(rng, np.array(number), self._by))

    def _drawn(self, id: int, values: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the data of a copy to the device, changed by the draw and the number of the copy."""
        if self._draws != "data" or self._has_answered:
            return values
        self._given += 1
        if self._varied is not None and id not in self._varied:
            return values
        rng = np.random.default_rng([self._run.draw, self._given])
        values = values.copy()
        whole = _whole(values, self._records.get(id, self._kind(id)))
        for part in [whole[name] for name in whole.dtype.names] if whole.dtype.names else [whole]:
            if part.dtype.kind == "f":
                part[...] = _changed(rng, part, self._by)
        return values

    def _kind(self, id: int) -> np.dtype[Any]:
        if id in self._constants:
            return self._constants[id].dtype
        return self._buffers[id][1] if id in self._buffers else np.dtype(np.uint8)

    def _write(self, id: int, offset: int, data: NDArray[np.uint8]) -> None:
        if id not in self._buffers:
            held = self._constants.get(id, self._others.get(id))
            assert held is not None
            held.view(np.uint8)[offset : offset + data.size] = data
        else:
            name, kind = self._buffers[id]
            self._run.write(name, _whole(data, kind), start=offset // kind.itemsize)

    def _to_host(self, id: int, offset: int, size: int) -> NDArray[Any]:
        if id not in self._buffers:
            held = self._constants.get(id, self._others.get(id))
            assert held is not None
            return held.view(np.uint8)[offset : offset + size]
        name, kind = self._buffers[id]
        values = self._run.read(name, start=offset // kind.itemsize, count=-(-size // kind.itemsize))
        with np.errstate(over="ignore", invalid="ignore"):
            return values.astype(kind).view(np.uint8)[:size]


def _shape_of(launch: Launch) -> dict[str, int]:
    """Return threads, grid, block and shared memory of a launch, by name."""
    threads = [blocks * width for blocks, width in zip(launch.grid, launch.block, strict=True)]
    extents = {"threads": threads, "grid": launch.grid, "block": launch.block}
    named = {f"{what}_{axis}": n for what, found in extents.items() for axis, n in zip("xyz", found, strict=True)}
    return {**named, SHARED: launch.shared_bytes}


def _whole(data: NDArray[np.uint8], kind: np.dtype[Any]) -> NDArray[Any]:
    """Return the complete numbers or structs in data; a partial one at the end is left out."""
    return data[: data.size // kind.itemsize * kind.itemsize].view(kind)


def _changed(rng: np.random.Generator, values: NDArray[Any], by: float) -> NDArray[Any]:
    """Return numbers changed by up to the share ``by``; a number that would overflow is not changed."""
    with np.errstate(over="ignore", invalid="ignore"):
        shares = by * (2 * rng.random(values.shape, np.float32) - 1)
        others = (values * (1 + shares)).astype(values.dtype)
    return np.where(np.isfinite(others), others, values)


def _operations(stream: BinaryIO) -> Iterator[Operation]:
    """Yield the operations of a run, until its end."""
    known: dict[int, Operation] = {}
    while head := stream.read(_NUMBER.size):
        (number,) = _NUMBER.unpack(head)
        if number not in known:
            (length,) = _NUMBER.unpack(_read(stream, _NUMBER.size))
            known[number] = operation(json.loads(_read(stream, length)))
        yield known[number]


def _read(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise KernelError("the program ended in the middle of an operation")
    return data


def with_sizes(arguments: Sequence[str], sizes: Mapping[int, int]) -> list[str]:
    """Return arguments with their whole numbers replaced; the first argument has place 1."""
    places = enumerate(arguments, 1)
    return [re.sub(r"\d+$", str(sizes[place]), text) if place in sizes else text for place, text in places]


def _record(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / LIVE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise KernelError(
            f"{folder} has no {LIVE} that says how its program is run ({error}); adopt it again"
        ) from None
    return found


@functools.cache
def _allocations(folder: Path, arguments: tuple[str, ...], refused: tuple[str, ...]) -> Mapping[int, int]:
    """Return the bytes of each allocation in a run of an adopted program with other arguments."""
    given = _record(folder)["program"]
    run_in = Path(given["run_in"])
    with tempfile.TemporaryDirectory(prefix="mptune-") as name:
        found = capture(
            _built(folder),
            arguments,
            Path(name),
            run_in=run_in if run_in.is_dir() else None,
            is_repeated=False,
            may_fail=True,
            own=refused,
        )
        return {id: each.bytes for id, each in found.allocations.items()}


@functools.cache
def _built(folder: Path, macros: tuple[tuple[str, str], ...] = ()) -> Built:
    """Return an adopted program, compiled from its sources in the folder with these values of its macros.

    Raises:
        ProgramError: it does not compile.
    """
    from mptune.adopt.blocks import split_kernels
    from mptune.adopt.reading import read
    from mptune.adopt.running import build
    from mptune.adopt.writing import common_folder

    given = _record(folder)["program"]
    root = common_folder([Path(file) for file in given["files"]])

    def kept(path: Path) -> Path:
        return folder.resolve() / "program" / path.relative_to(root) if path.is_relative_to(root) else path

    sources, includes = ([kept(Path(path)) for path in given[what]] for what in ("sources", "includes"))
    program = read(sources, {**given["defines"], **dict(macros)}, includes, given["kernels"])
    has_loops = bool(program.originals)
    files = split_kernels(program)
    return build(program.sources, files, program.defines, program.includes, gives_host_memory=has_loops)
