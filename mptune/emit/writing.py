"""Writing what a user needs to use a tuned kernel without mptune."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mptune import __version__
from mptune.backends.opencl import OpenclBackend
from mptune.backends.opencl_dialect import as_opencl
from mptune.cpp.prelude import prelude
from mptune.emit.application import emit_application
from mptune.emit.common import (
    INTEGERS,
    MARK,
    Emission,
    as_a_file,
    given_flags,
    host_command,
    measured,
    target_of,
    write_files,
)
from mptune.emit.sizes import conditions, formula, free_sizes
from mptune.emit.text import fill, identifier
from mptune.emit.winner import Winner, select
from mptune.errors import MptuneError
from mptune.kernel import Application, Argument, Kernel, Role, Tunable
from mptune.run import Run
from mptune.source.flags import build_of
from mptune.source.loading import sizes_of, tunable_of_run

__all__ = ["describe", "emit", "emit_all_devices", "winner_of"]


def describe(winner: Winner[Kernel], name: str) -> dict[str, Any]:
    """Return what the files of a winner are filled with; files and C++ names begin with the name given.

    Raises:
        MptuneError: the configuration cannot be rendered at the run's sizes.
    """
    kernel, sizes = winner.kernel, winner.sizes
    free = {size: f"sizes.{identifier(size)}" for size in free_sizes(kernel, winner.configuration, sizes)}
    values = {**winner.configuration, **sizes}
    shape = winner.shape
    given = given_flags(winner.run.info)
    grid = [formula(text, values, free) for text in kernel.expressions("grid")] or list(map(str, shape.grid))
    return {
        "mark": f"{MARK} {__version__}",
        "application": "",
        "name": name,
        "kernel": kernel.name,
        "function": kernel.function,
        "description": kernel.description,
        "configuration": str(winner.configuration),
        "parameters": [{"name": n, "value": value} for n, value in winner.configuration.items()],
        "sizes": [{"name": n, "value": value, "is_fixed": n not in free} for n, value in sizes.items()],
        "conditions": conditions(kernel, winner.configuration, sizes, free)[0],
        "grid": [*grid, "1", "1"][:3],
        "grid_now": shape.grid,
        "block": shape.block,
        "shared_bytes": shape.shared_bytes,
        "arguments": [_argument(winner, argument, values, free) for argument in kernel.arguments],
        "host_command": host_command(build_of(kernel, winner.configuration), winner.run.info.compiler, given["host"]),
        "given": given,
        **measured(winner),
    }


def _argument(
    winner: Winner[Kernel], argument: Argument, values: Mapping[str, Any], free: Mapping[str, str]
) -> dict[str, Any]:
    """Return an argument as the examples handle it; types in C++ are those of the source once it is included."""
    precision = winner.kernel.precision_of(argument, winner.configuration)
    dtype = np.dtype(argument.dtype) if precision is None else precision.dtype
    shape = winner.kernel.shape_of(argument, winner.sizes)
    elements = [f"({formula(axis, values, free)})" for axis in argument.shape]
    integer, role = str(argument.dtype), argument.role
    is_scratch = role is Role.OUT and not argument.is_output
    return {
        "name": argument.name,
        "role": "scratch" if is_scratch else role.value,
        # As it is stored: the type, in C++, and a NumPy type of as many bytes.
        "type": integer if precision is None else precision.name,
        "cpp": INTEGERS[integer] if precision is None else precision.cpp,
        "numpy": dtype.name
        if dtype.kind in "iu" or dtype.name in ("float64", "float32", "float16")
        else f"uint{8 * dtype.itemsize}",
        "itemsize": dtype.itemsize,
        # How many there are, as C++ over sizes, and at the run's sizes.
        "elements": " * ".join(elements) or "1",
        "count": math.prod(shape),
        "shape": shape,
        # The file examples keep it in, and the types there.
        "file": f"{argument.name}.{'f64' if precision is not None else f'{dtype.kind}{8 * dtype.itemsize}'}",
        "file_cpp": INTEGERS[integer] if precision is None else "double",
        "file_numpy": integer if precision is None else "float64",
        "size": argument.name if (is_size := role is Role.SCALAR and argument.name in winner.sizes) else "",
        "is_constant": argument.is_constant,
        "is_scalar": role is Role.SCALAR,
        "is_input": role is not Role.OUT and not is_size,
        "is_output": argument.is_output,
    }


def winner_of(
    run: Run,
    *,
    max_error: float | Mapping[str, float] | None = None,
    configuration: str = "",
    kernel: Tunable | str | Path | None = None,
) -> Winner[Any] | None:
    """Return the trial of a run to emit as :func:`~mptune.emit.winner.select` does, None if none is feasible.

    Args:
        run: the run.
        max_error: a threshold instead of the run's own.
        configuration: which trial instead of the best.
        kernel: the definition, unless it is a bundled kernel or application.

    Raises:
        MptuneError: the kernel is not found or has changed, or no trial or several match.
    """
    # What may differ from the run stands in what is emitted.
    definition = tunable_of_run(run.info, kernel, on_warning=lambda _: None)
    sizes = sizes_of(run.info, definition)
    trial = select(run, max_error=max_error, configuration=configuration, kernel=definition)
    if trial is None:
        return None
    objective = run.objective if max_error is None else run.objective_within(max_error)
    return Winner(run, definition, sizes, trial, objective.threshold)


def emit(winner: Winner[Any], folder: str | Path, *, name: str = "") -> Emission:
    """Write source, header, examples and README of a winner; files emitted before are replaced.

    Of an application, which is run for that (:func:`~mptune.emit.application.emit_application`), it is all kernels, a
    library of them, and a program in Python.

    Args:
        winner: what to write.
        folder: where; made if need be.
        name: what the files and the C++ names begin with; ``tuned_`` and the kernel's name where empty.

    Raises:
        MptuneError: a file of that name exists and was not emitted, or cannot be written, or the configuration
            cannot be rendered; or, of an application, cannot be run here, or uses what cannot be taken along.
    """
    name = name or f"tuned_{winner.kernel.name}"
    if isinstance(winner.kernel, Application):
        return emit_application(winner, Path(folder), name)
    values = describe(winner, name)
    values["source"] = as_a_file(winner.source)
    values["conversions"] = tuple(dict.fromkeys((a["cpp"], a["file_cpp"]) for a in values["arguments"]))
    texts = {
        f"{name}.cu": fill("source.cu", values),
        f"{name}.hpp": fill("header.hpp", values),
        f"{name}_host.cpp": fill("host.cpp", values),
        f"{name}_cuda.cu": fill("gpu.cu", {**values, "api": "cuda", "target": target_of(winner, "cuda")}),
        f"{name}_hip.hip": fill("gpu.cu", {**values, "api": "hip", "target": target_of(winner, "hip")}),
        f"{name}_cupy.py": fill("cupy.py", values),
        "README.md": fill("README.md", values),
    }
    if winner.run.info.backend == OpenclBackend.name:
        texts |= _opencl_files(winner, name, values)
    write_files(Path(folder), texts)
    return Emission.of(winner, Path(folder), tuple(texts))


def emit_all_devices(winners: Sequence[Winner[Any]], folder: str | Path) -> tuple[Emission, ...]:
    """Write the winners of one kernel on several devices, and a header that selects by device.

    Each winner has a folder of its own in ``folder``, which holds the header.

    Raises:
        MptuneError: they are of different kernels or sizes, or two are of one device.
    """
    first = winners[0]
    by_slug: dict[str, Winner[Any]] = {}
    for winner in winners:
        if isinstance(winner.kernel, Application):
            raise MptuneError(f"{winner.kernel.called}: a header that selects by device is for single kernels")
        if winner.kernel.name != first.kernel.name:
            raise MptuneError(f"runs of kernels {first.kernel.name} and {winner.kernel.name} cannot share a header")
        if dict(winner.sizes) != dict(first.sizes):
            raise MptuneError(
                f"runs at sizes {first.sizes} and {winner.sizes} cannot share a header: tune both at the same sizes"
            )
        slug = re.sub(r"[^a-z0-9]+", "_", winner.run.info.device.lower()).strip("_")[:60] or "device"
        if slug in by_slug:
            raise MptuneError(f"two runs are of device {winner.run.info.device!r}: give one for each device")
        by_slug[slug] = winner
    name = f"tuned_{first.kernel.name}"
    names = {slug: f"{name}_{slug}" for slug in by_slug}
    variants = [{**describe(winner, names[slug]), "slug": slug} for slug, winner in by_slug.items()]
    values = {**describe(first, name), "variants": variants}
    target = Path(folder)
    write_files(target, {f"{name}.hpp": fill("devices.hpp", values)})
    return tuple(emit(winner, target / slug, name=names[slug]) for slug, winner in by_slug.items())


def _opencl_files(winner: Winner[Kernel], name: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the source as the driver reads it, and a program that runs it; ``values`` fill the other files."""
    source = winner.source
    conversions = "".join(_conversions(argument) for argument in values["arguments"])
    passed = [argument["name"] for argument in values["arguments"] if not argument["is_constant"]]
    more = {
        "source": as_a_file(as_opencl(f"{source}\n{conversions}")),
        "places": {argument: place for place, argument in enumerate(passed)},
        "has_dynamic": "SHARED_DYNAMIC" in source.removeprefix(prelude()),
        # As it was measured; other parts of that text are no flags.
        "flags": " ".join(part for part in winner.run.info.compiler.split("|") if part.startswith("-")),
    }
    return {
        f"{name}.cl": fill("source.cl", {**values, **more}),
        f"{name}_opencl.cpp": fill("opencl.cpp", {**values, **more}),
    }


def _conversions(argument: Mapping[str, Any]) -> str:
    """Return kernels that convert an argument from the type of its file, and back, where it needs them."""
    kept, filed = argument["cpp"], argument["file_cpp"]
    ways = []
    if argument["role"] in ("in", "inout", "scalar") or argument["is_constant"]:
        ways.append(("load", kept, filed))
    if argument["is_output"]:
        ways.append(("unload", filed, kept))
    return "".join(
        f'extern "C" __global__ void mptune_{way}_{argument["name"]}({to}* to, const {of}* from) {{\n'
        "    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        f"    to[i] = static_cast<{to}>(from[i]);\n"
        "}\n"
        for way, to, of in ways
    )
