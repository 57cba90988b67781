"""Single launches of an application with the data they really had, each as a kernel that can be evaluated alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.backends.base import Buffer
from mptune.errors import KernelError
from mptune.kernel import Application, Kernel, Role, Sizes
from mptune.measure.buffers import Buffers
from mptune.measure.program import Launch, Launched, Program
from mptune.measure.steps import Handle

__all__ = ["CapturedLaunch", "capture", "in_context"]


@dataclass(frozen=True, slots=True)
class CapturedLaunch:
    """A launch of an application.

    Attributes:
        launched: what it was.
        count: how often it is made in a run.
        time_ms: how long all of them took, in the configuration they were captured in.
        path: of the file that holds the data of one of them.
        not_finite: the arguments some of whose values were NaN or infinite, or never written; what stands for these is
            finite.
        partly: the arguments that it may not have written everywhere.
    """

    launched: Launched
    count: int
    time_ms: float
    path: str
    not_finite: tuple[str, ...] = ()
    partly: tuple[str, ...] = ()


def capture(program: Program, buffers: Buffers, folder: Path) -> tuple[CapturedLaunch, ...]:
    """Run an application twice, and write to a folder the data of the middle one of all launches that are alike.

    Raises:
        KernelError: it launches nothing, or not again what it launched the first time.
    """
    called = program.tunable.called
    buffers.restore()
    program.run(buffers)
    wanted = program.launched
    if not wanted:
        raise KernelError(f"the steps of {called} launch no kernel")
    found: list[CapturedLaunch] = []
    made = dict.fromkeys(wanted, 0)

    def intercept(launch: Launch, given: Mapping[str, Any], memory: Mapping[str, Buffer]) -> None:
        count, time_ms = wanted.get(launch.launched, (0, 0.0))
        made[launch.launched] = made.get(launch.launched, 0) + 1
        if made[launch.launched] != (count + 1) // 2:
            launch.run(given, memory)
            return
        path = folder / f"{launch.launched.kernel}-{len(found)}.npz"
        before, after = _run_and_read(program, launch, given, memory)
        partly = tuple(name for name in after if name in before)
        found.append(CapturedLaunch(launch.launched, count, time_ms, str(path), _kept(before, after, path), partly))

    program.intercept = intercept
    try:
        buffers.restore()
        program.run(buffers)
    finally:
        program.intercept = None
    if not found:
        names = ", ".join(dict.fromkeys(launched.kernel for launched in wanted))
        raise KernelError(
            f"the steps of {called} launch differently from run to run: no launch of {names} was made the second "
            "time as it was the first, on the same inputs"
        )
    return tuple(found)


def _run_and_read(
    program: Program, launch: Launch, given: Mapping[str, Any], memory: Mapping[str, Buffer]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Launch, and return by argument what it was given, buffers it may write in part included, and what it wrote."""
    application: Any = program.tunable
    kernel, buffers = application.kernels[launch.launched.kernel], dict(launch.launched.buffers)
    arguments = {argument.name: argument for argument in kernel.arguments}
    before = {name: value for name, value in given.items() if name in arguments and not isinstance(value, Handle)}
    held = {name: program.read(buffer, memory[buffer]) for name, buffer in buffers.items()}
    launch.run(given, memory)
    written = [name for name in buffers if arguments[name].role is not Role.IN]
    after = {name: program.read(buffers[name], memory[buffers[name]]) for name in written}
    # What is as it was may be what the launch did not write.
    is_given = {n: arguments[n].is_input or bool(np.any(held[n] == after[n])) for n in buffers}
    return before | {name: held[name] for name in buffers if is_given[name]}, after


def _kept(before: Mapping[str, Any], after: Mapping[str, NDArray[Any]], path: Path) -> tuple[str, ...]:
    """Write the data of a launch to a file, and return the names of the arguments that are not finite throughout.

    For what is not, a finite value of the same array stands: a launch alone can then be timed and compared, whatever
    nobody writes or reads there (the rim of a grid, say). What was not written everywhere is given that way, too.

    Raises:
        KernelError: the file cannot be written; none of it is left.
    """
    given = {name: np.asarray(value) for name, value in before.items()}
    not_finite = [name for arrays in (given, after) for name, array in arrays.items() if not np.isfinite(array).all()]
    given |= {name: np.full_like(after[name], _stand_in(after[name])) for name in not_finite if name not in given}
    arrays: dict[str, Any] = {f"given {name}": _finite(array) for name, array in given.items()}
    arrays |= {f"left {name}": _finite(array) for name, array in after.items()}
    try:
        np.savez(path, **arrays)
    except OSError as error:
        path.unlink(missing_ok=True)
        hint = "free space there, or name another folder in TMPDIR"
        raise KernelError(f"cannot write to {path.parent}: {error.strerror or error}; {hint}") from error
    return tuple(dict.fromkeys(not_finite))


def _finite(array: NDArray[Any]) -> NDArray[Any]:
    is_finite = np.isfinite(array)
    return array if is_finite.all() else np.where(is_finite, array, _stand_in(array))


def _stand_in(array: NDArray[Any]) -> float:
    """Return a finite value of an array, 0 if it has none."""
    found = array[np.isfinite(array)]
    return float(found[0]) if found.size else 0.0


@dataclass(frozen=True, slots=True)
class _FromFile:
    """Inputs of a captured launch, or what it wrote, in the shapes of the kernel's arguments."""

    path: str
    what: str
    shapes: Mapping[str, tuple[int, ...]]

    def __call__(self, *_: Any) -> dict[str, Any]:
        with np.load(self.path, allow_pickle=False) as arrays:
            named = {name: arrays[f"{self.what} {name}"] for name in self.shapes if f"{self.what} {name}" in arrays}
        return {name: array.reshape(self.shapes[name]) for name, array in named.items()}


def in_context(application: Application, launch: CapturedLaunch) -> Kernel:
    """Return the kernel of a captured launch, with its sizes and inputs; what it wrote is the reference."""
    kernel = application.kernels[launch.launched.kernel]
    sizes = Sizes(dict(launch.launched.sizes))
    # What is not written everywhere keeps what it is given there.
    may_be_left = {*launch.not_finite, *launch.partly}
    unwritten = {a.name for a in kernel.outputs if a.role is Role.OUT and a.name in may_be_left}
    arguments = [dataclasses.replace(a, role=Role.INOUT) if a.name in unwritten else a for a in kernel.arguments]
    shapes = {argument.name: kernel.shape_of(argument, sizes) for argument in arguments}
    given = {a.name: shapes[a.name] for a in arguments if a.is_input}
    written = {a.name: shapes[a.name] for a in arguments if a.is_output}
    return kernel.changed(
        arguments=arguments,
        sizes={"default": sizes},
        inputs=_FromFile(launch.path, "given", given),
        reference=_FromFile(launch.path, "left", written),
    )
