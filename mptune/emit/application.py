"""Writing what a user needs to use a tuned application without mptune: a library of kernels, its steps as Python."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune import __version__
from mptune.backends import BACKENDS, get_backend
from mptune.backends.base import Backend
from mptune.buffers.data import compute_references, make_inputs
from mptune.build import Build
from mptune.emit.common import INTEGERS, MARK, Emission, as_a_file, host_command, measured, target_of, write_files
from mptune.emit.sizes import NotTranslatableError, conditions, formula, free_sizes
from mptune.emit.taking import take_along
from mptune.emit.text import fill, identifier
from mptune.emit.winner import Winner
from mptune.errors import KernelError
from mptune.headers import include_lines
from mptune.kernel import Application, Argument, Kernel, Role, Sizes
from mptune.kernel.limits import widest
from mptune.launching import ApplicationLauncher, Arrays, inputs_from, run_first
from mptune.precision import PRECISIONS
from mptune.prelude import prelude
from mptune.rendering import render, render_body
from mptune.space.configuration import Configuration
from mptune.stepping import CONVERSION, size_names

__all__ = ["emit_application"]

#: An answer of more bytes is not kept to compare with.
_LARGEST_ANSWER_BYTES: Final = 16 << 20


def emit_application(winner: Winner[Application], folder: Path, name: str) -> Emission:
    """Write the kernels an application launches, a library of them, its steps, a program and a README.

    It is run once on the inputs of the run's seed to see what it launches, and once in its widest types for an answer
    to compare with: on the backend of the run if that can run here, else on another one.

    Raises:
        KernelError: its steps or inputs use what cannot be taken along, or fail.
        MptuneError: it cannot be run here, a kernel cannot be rendered, or files cannot be written.
    """
    application = winner.kernel
    metrics = _own_metrics(application)
    try:
        code, names = take_along(application.called, [application.inputs, application.steps, *metrics.values()])
    except KernelError:
        # A metric can do without; inputs and steps cannot.
        metrics = {}
        code, names = take_along(application.called, [application.inputs, application.steps])
    compiled, answer = _run(winner)
    variants = _variants(name, compiled)
    buffers = [_buffer(application, winner, argument) for argument in application.arguments if argument.shape]
    values = {
        "mark": f"{MARK} {__version__}",
        "name": name,
        "kernel": application.name,
        "application": application.name,
        "description": application.description,
        "configuration": str(winner.configuration),
        "sizes": [{"name": size, "value": value, "is_fixed": False} for size, value in winner.sizes.items()],
        "data_sizes": application.data_sizes,
        "buffers": buffers,
        "scalars": [{"name": a.name, "is_integer": a.dtype is not None} for a in application.arguments if not a.shape],
        "choices": dict(winner.configuration),
        "kernels": [_kernel(kernel, variants) for kernel in application.kernels.values()],
        "variants": variants,
        "conversions": [v for v in variants if v["kernel"] == CONVERSION.name],
        "precisions": list(PRECISIONS.values()),
        "integers": INTEGERS,
        "inputs_function": names[0],
        "steps_function": names[1],
        "metrics": [
            {"output": output, "function": function, "name": getattr(metric, "__name__", function)}
            for (output, metric), function in zip(metrics.items(), names[2:], strict=True)
        ],
        "ranges": [(r.name, r.low, r.high, r.log) for r in application.ranges],
        "has_answer": bool(answer),
        "host_flags": host_command(Build(), winner.run.info.compiler),
        "cuda_target": target_of(winner, "cuda"),
        "hip_target": target_of(winner, "hip"),
        **measured(winner),
    }
    texts: dict[str, str | bytes] = {
        f"{name}.py": fill("application/program.py", values),
        f"{name}_steps.py": fill("application/steps.py", {**values, "code": code}),
        f"{name}.h": fill("application/library.h", values),
        f"{name}.cu": fill("application/library.cu", values),
        f"{name}_prelude.hpp": fill("application/prelude.hpp", {**values, "prelude": prelude()}),
    }
    texts |= {f"{v['symbol']}.cu": fill("application/kernel.cu", {**values, **v}) for v in variants}
    texts |= {"Makefile": fill("application/Makefile", values)}
    if answer:
        texts[f"{name}_answer.npz"] = _archive(answer)
    texts["README.md"] = fill("application/README.md", {**values, "files": tuple(texts)})
    write_files(folder, texts)
    return Emission.of(winner, folder, tuple(texts))


def _own_metrics(application: Application) -> dict[str, Any]:
    """Return the error metrics that are functions of the application's own, by output: the first of each."""
    chosen: Mapping[str, Any] = (
        application.metric
        if isinstance(application.metric, Mapping)
        else {output.name: application.metric for output in application.outputs}
    )
    found = {}
    for output, given in chosen.items():
        listed = [given] if callable(given) or isinstance(given, str) else given
        own = [each for each in listed if callable(each) and hasattr(each, "__code__")] if listed else []
        if own:
            found[output] = own[0]
    return found


# -- what is launched --------------------------------------------------------------------------------


def _run(
    winner: Winner[Application],
) -> tuple[list[tuple[Kernel, Configuration, Sizes]], dict[str, NDArray[Any]]]:
    """Return what the winner launches on the first inputs of the run, and the answer in fp64, empty if it is large."""
    application, sizes = winner.kernel, winner.sizes
    inputs = make_inputs(application, sizes, winner.run.info.seed or 0)
    given, all_sizes = inputs_from(application, sizes, inputs)
    backend = _backend(winner)
    launcher = ApplicationLauncher(application, winner.configuration, backend)
    try:
        launcher.run(given, all_sizes, Arrays())
        compiled = [] if launcher.stepper is None else launcher.stepper.compiled
    finally:
        launcher.close()
    elements = sum(np.prod(application.shape_of(output, all_sizes)) for output in application.outputs)
    if 8 * elements > _LARGEST_ANSWER_BYTES:
        return compiled, {}
    if callable(application.reference):
        return compiled, dict(compute_references(application, inputs, all_sizes))
    candidates = [winner.run.baseline.configuration] if winner.run.baseline is not None else []
    candidates += widest(application, sizes, backend.device.constraints())
    launchers = (ApplicationLauncher(application, each, backend) for each in candidates)
    launcher, outputs = run_first(launchers, given, all_sizes, Arrays())
    launcher.close()
    return compiled, {name: Arrays().returned(array, converted=True) for name, array in outputs.items()}


def _backend(winner: Winner[Application]) -> Backend:
    name = winner.run.info.backend
    can_run = name in BACKENDS and BACKENDS[name].availability().can_run
    return get_backend(name if can_run else "auto")


def _archive(answer: Mapping[str, NDArray[Any]]) -> bytes:
    """Return arrays as the bytes of an .npz that says it was emitted."""
    file = io.BytesIO()
    arrays: dict[str, Any] = {**answer, "emitted_by": np.bytes_(MARK)}
    np.savez(file, **arrays)
    return file.getvalue()


# -- kernels -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Launch:
    """A kernel as it is compiled, with the sizes that are written into it."""

    kernel: Kernel
    configuration: Configuration
    sizes: Sizes
    free: frozenset[str]

    @property
    def fixed(self) -> dict[str, int]:
        return {name: value for name, value in self.sizes.items() if name not in self.free}


def _variants(name: str, compiled: Iterable[tuple[Kernel, Configuration, Sizes]]) -> list[dict[str, Any]]:
    """Return what there is to compile: a kernel may be needed for several types of buffers, or at several sizes."""
    launches: dict[Any, _Launch] = {}
    for kernel, configuration, sizes in compiled:
        launch = _Launch(kernel, configuration, sizes, free_sizes(kernel, configuration, sizes))
        launches.setdefault((kernel.name, configuration, tuple(launch.fixed.items())), launch)
    counts: dict[str, int] = {}
    found = []
    for launch in launches.values():
        kernel = launch.kernel
        counts[kernel.name] = counts.get(kernel.name, 0) + 1
        stem = "conversion" if kernel is CONVERSION else kernel.name
        alike = sum(each.kernel is kernel for each in launches.values())
        symbol = f"{name}_kernel_{stem}" + (f"_{counts[kernel.name]}" if alike > 1 or kernel is CONVERSION else "")
        found.append(_variant(launch, symbol))
    return found


def _variant(launch: _Launch, symbol: str) -> dict[str, Any]:
    kernel, configuration, sizes = launch.kernel, launch.configuration, launch.sizes
    values = {**configuration, **sizes}
    free = {size: _parameter(size) for size in launch.free}
    source, body = render(kernel, configuration, sizes), render_body(kernel, configuration, sizes)
    before, _, ending = source.removeprefix(prelude()).partition(body)
    shape = kernel.launch_shape(configuration, sizes)
    arguments = []
    for argument in kernel.arguments:
        chosen = kernel.precision_of(argument, configuration)
        arguments.append(
            {
                "name": argument.name,
                "id": _parameter(argument.name),
                "kind": _kind(kernel, argument),
                "type": str(argument.dtype) if chosen is None else chosen.name,
                "cpp": INTEGERS[str(argument.dtype)] if chosen is None else chosen.cpp,
                "elements": " * ".join(f"({formula(axis, values, free)})" for axis in argument.shape) or "1LL",
            }
        )
    grid = [formula(str(axis), values, free) for axis in kernel.grid]
    return {
        "symbol": symbol,
        "kernel": kernel.name,
        "function": kernel.function,
        "configuration": str(configuration),
        "types": configuration,
        "includes": include_lines(body),
        "body": as_a_file(before.strip() + "\n" + body.rstrip("\n")),
        "ending": as_a_file(ending.strip("\n")),
        "arguments": arguments,
        "constants": [a["name"] for a in arguments if a["kind"] == "constant"],
        "fixed": [{"id": _parameter(n), "name": n, "value": v} for n, v in launch.fixed.items()],
        "conditions": conditions(kernel, configuration, sizes, free)[0],
        "grid": [*grid, "1LL", "1LL"][:3],
        "block": shape.block,
        "shared_bytes": shape.shared_bytes,
    }


def _parameter(name: str) -> str:
    """Return what the library calls a parameter, which nothing else in it is called."""
    return f"{name}_"


def _kind(kernel: Kernel, argument: Argument) -> str:
    """Return how the library takes an argument."""
    if argument.is_constant:
        return "constant"
    if argument.role is not Role.SCALAR:
        return "buffer"
    if argument.name in size_names(kernel):
        return "size"
    return "real" if argument.dtype is None else "integer"


def _kernel(kernel: Kernel, variants: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a kernel as the library launches it: its parameters, and what it was compiled for."""
    parameters = [
        {
            "name": argument.name,
            "id": _parameter(argument.name),
            "kind": _kind(kernel, argument),
            "axes": argument.shape,
            "integer": INTEGERS.get(argument.dtype or ""),
            "numpy": argument.dtype or "float64",
        }
        for argument in kernel.arguments
    ]
    known = {argument.name for argument in kernel.arguments}
    parameters += [
        {"name": size, "id": _parameter(size), "kind": "size", "axes": (), "integer": None, "numpy": "int64"}
        for size in size_names(kernel)
        if size not in known
    ]
    own = [variant for variant in variants if variant["kernel"] == kernel.name]
    return {"name": kernel.name, "parameters": parameters, "sizes": size_names(kernel), "variants": own}


def _buffer(application: Application, winner: Winner[Application], argument: Argument) -> dict[str, Any]:
    chosen = application.precision_of(argument, winner.configuration)
    names = (*winner.sizes, *application.data_sizes)
    free = {size: f"sizes.{identifier(size)}" for size in names}
    try:
        extents = [formula(axis, {}, free) for axis in argument.shape]
    except NotTranslatableError as error:
        raise KernelError(f"{application.called}: the shape of buffer {argument.name!r}: {error}") from error
    return {
        "name": argument.name,
        "type": str(argument.dtype) if chosen is None else chosen.name,
        "numpy": argument.dtype or "float64",
        "is_integer": chosen is None,
        "bytes": np.dtype(argument.dtype).itemsize if chosen is None else chosen.dtype.itemsize,
        "axes": argument.shape,
        "extents": extents,
        "is_input": argument.is_input,
        "is_output": argument.is_output,
    }
