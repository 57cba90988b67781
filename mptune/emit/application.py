"""Writing a tuned application as a library of kernels and its steps in Python, without mptune."""

from __future__ import annotations

import contextlib
import inspect
import io
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from mptune import __version__
from mptune.accuracy.evaluate import Metrics, all_metrics, judged
from mptune.accuracy.metrics import ErrorMetric
from mptune.accuracy.thresholds import recorded_metrics
from mptune.backends import BACKENDS, get_backend
from mptune.backends.base import options_of
from mptune.cpp.prelude import prelude
from mptune.data.data import compute_references, make_inputs
from mptune.emit import plain_metrics
from mptune.emit.common import (
    MARK,
    Emission,
    compile_commands,
    measured,
    objective_of,
    write_files,
)
from mptune.emit.sizes import NotTranslatableError, formula, free_sizes
from mptune.emit.taking import take_along
from mptune.emit.text import fill, identifier
from mptune.emit.variants import Launch, argument_of, parameter_of, variant_of
from mptune.emit.winner import Winner
from mptune.errors import KernelError
from mptune.kernel import Application, Argument, Kernel, Sizes
from mptune.measure.answers import with_reference
from mptune.measure.buffers import run_once
from mptune.measure.program import CONVERSION, Program, size_names
from mptune.precision import PRECISIONS
from mptune.source.dialect import INTEGERS
from mptune.source.flags import Build
from mptune.space.configuration import Configuration

#: Largest answer in bytes that is emitted for comparison.
_LARGEST_ANSWER_BYTES: Final = 16 << 20


def emit_application(winner: Winner[Application], folder: Path, name: str) -> Emission:
    """Write the kernels of an application, a library of them, its steps, a program and a README.

    The application runs once on the inputs of the run's seed to record its launches, and once in its reference types
    for an answer to compare with, on the backend of the run if it can run here.
    """
    application = winner.kernel
    info = winner.run.info
    if info.adopted:
        raise KernelError(
            f"{application.called} runs a program, which is no library: --into FILE writes the types into it"
        )
    outputs = [output.name for output in application.outputs]
    metrics = recorded_metrics(info.metric, info.metrics, outputs, application.metric)
    functions: list[Callable[..., Any]] = [cast(Callable[..., Any], application.inputs), application.steps]
    code, names = take_along(application.called, functions)
    own: dict[Any, str] = {}  # names of the user's metrics; the program lists those that cannot be taken along
    for function in dict.fromkeys(metric.function for metric in all_metrics(metrics)):
        if function is not None:
            with contextlib.suppress(KernelError):
                code, (*_, own[function]) = take_along(application.called, [*functions, function])
                functions.append(function)
    compiled, answer = _run(winner)
    variants = _variants(name, compiled)
    written = {(size["name"], size["value"]) for variant in variants for size in variant["fixed"]}
    kernels, launched = application.kernels.values(), {variant["kernel"] for variant in variants}
    buffers = [_buffer(application, winner, argument) for argument in application.arguments if argument.shape]
    values = {
        "mark": f"{MARK} {__version__}",
        "name": name,
        "kernel": application.name,
        "application": application.name,
        "description": application.description,
        "configuration": str(winner.configuration),
        "sizes": [{"name": size, "value": value, "is_fixed": False} for size, value in winner.sizes.items()],
        "fixed_sizes": [size for size, value in winner.sizes.items() if (size, value) in written],
        "buffers": buffers,
        "scalars": [{"name": a.name, "is_integer": a.dtype is not None} for a in application.arguments if not a.shape],
        "choices": dict(winner.configuration),
        "kernels": [_launched(kernel, variants) for kernel in kernels if kernel.name in launched],
        "not_launched": [kernel.name for kernel in kernels if kernel.name not in launched],
        "variants": variants,
        "conversions": [v for v in variants if v["kernel"] == CONVERSION.name],
        "precisions": list(PRECISIONS.values()),
        "integers": INTEGERS,
        "inputs_function": names[0],
        "steps_function": names[1],
        "checks": _errors(winner, metrics, {metric: f"{name}_steps.{called}" for metric, called in own.items()}),
        "has_answer": bool(answer),
        "answer": "the answer in the widest types" if application.reference is None else "the reference",
        "commands": compile_commands(winner, Build()),
        **measured(winner),
    }
    texts: dict[str, str | bytes] = {
        f"{name}.py": fill("application/program.py", values),
        f"{name}_steps.py": fill("application/steps.py", {**values, "code": code}),
        f"{name}_metrics.py": f"# {MARK} {__version__}.\n{inspect.getsource(plain_metrics)}",
        f"{name}.h": fill("application/library.h", values),
        f"{name}.cu": fill("application/library.cu", values),
        f"{name}_prelude.hpp": fill("application/prelude.hpp", {**values, "prelude": prelude()}),
    }
    texts |= {f"{v['symbol']}.cu": fill("application/kernel.cu", {**values, **v}) for v in variants}
    texts |= {"Makefile": fill("application/Makefile", values)}
    if answer:
        np.savez(archive := io.BytesIO(), **cast("Any", {**answer, "emitted_by": np.bytes_(MARK)}))
        texts[f"{name}_answer.npz"] = archive.getvalue()
    if application.path is not None:  # data that the definition reads from beside it
        home = application.path.parent
        at_size = home / "_".join(f"{size}{value}" for size, value in winner.sizes.items())
        beside = sorted((*home.glob("*.npz"), *at_size.glob("*.npz")))
        texts |= {str(path.relative_to(home)): path.read_bytes() for path in beside if f'"{path.name}"' in code}
    texts["README.md"] = fill("application/README.md", {**values, "files": tuple(texts)})
    write_files(folder, texts)
    return Emission(winner, folder, tuple(texts))


# -- comparison --------------------------------------------------------------------------------------


def _errors(winner: Winner[Application], metrics: Metrics, own: Mapping[Any, str]) -> list[dict[str, Any]]:
    """Return every error of the run with its metric and threshold; ``own`` has the names of the user's metrics."""
    application, limits = winner.kernel, objective_of(winner).limits
    outputs = {output.name: output for output in application.outputs}
    found: dict[tuple[str, str], tuple[ErrorMetric, list[float]]] = {}
    for name, (of, metric) in judged(list(outputs), metrics).items():
        keys = [f"error.{name}", *(["error"] if name in outputs else [])]
        for output in [of] if of else outputs:
            bounds = found.setdefault((output, metric.name), (metric, []))[1]
            bounds.extend(limits[key] for key in keys if key in limits)
    errors = []
    for (output, name), (metric, bounds) in found.items():
        text = own.get(metric.function, "None")
        if metric.tolerance is not None:
            absolute, relative = metric.tolerance
            text = f"lambda one, other: metrics.in_tolerances(one, other, {absolute!r}, {relative!r})"
        elif metric.is_bundled and metric.whole.name == "ULP":
            stored = application.precision_of(outputs[output], winner.configuration)
            least = 0 if stored is None else math.frexp(stored.smallest_normal)[1] - 1
            text = f"lambda a, b: metrics.ulp(a, b, {0 if stored is None else stored.significand_bits - 1}, {least})"
        elif metric.is_bundled:
            text = f"metrics.METRICS[{metric.whole.name!r}]"
        if (regions := metric.regions) is not None and text != "None":
            tile = regions.tile(application.shape_of(outputs[output], winner.sizes))
            given = f"{text}, {tile}, {len(regions.own_shape(tile))}, {regions.quantile}"
            text = f"lambda a, b: metrics.over_regions({given}, a, b)"
        elif not metric.sees_inputs and text != "None":
            text = f"lambda a, b: metrics.compared({text}, a, b)"
        limit = min(bounds) if bounds else None
        error = {"output": output, "name": f"{name} of {output}", "metric": text, "limit": limit}
        errors.append({**error, "takes_inputs": metric.sees_inputs})
    return errors


# -- launches ----------------------------------------------------------------------------------------


def _run(
    winner: Winner[Application],
) -> tuple[list[tuple[Kernel, Configuration, Sizes]], Mapping[str, NDArray[Any]]]:
    """Return the launches of the winner on the first inputs of the run, and the reference, empty if it is large."""
    application, sizes = winner.kernel, winner.sizes
    inputs = make_inputs(application, sizes, winner.run.info.seed or 0)
    name = winner.run.info.backend
    can_run = name in BACKENDS and BACKENDS[name].availability().can_run
    backend = get_backend(name if can_run else "auto")
    options = options_of(winner.run.info, backend.name)
    with Program(application, winner.configuration, sizes, backend, options) as program:
        run_once(program, inputs)
        compiled = program.compiled
    elements = sum(np.prod(application.shape_of(output, sizes)) for output in application.outputs)
    if 8 * elements > _LARGEST_ANSWER_BYTES:
        return compiled, {}
    judged = with_reference(application, backend, options)
    return compiled, compute_references(judged, inputs, sizes)


# -- kernels -----------------------------------------------------------------------------------------


def _variants(name: str, compiled: Iterable[tuple[Kernel, Configuration, Sizes]]) -> list[dict[str, Any]]:
    """Return the variants to compile. A kernel has one for each set of types and fixed sizes."""
    launches: dict[Any, Launch] = {}
    for kernel, configuration, sizes in compiled:
        launch = Launch(kernel, configuration, sizes, free_sizes(kernel, configuration, sizes))
        launches.setdefault((kernel.name, configuration, tuple(launch.fixed.items())), launch)
    found = []
    for name_of_kernel in dict.fromkeys(launch.kernel.name for launch in launches.values()):
        own = [launch for launch in launches.values() if launch.kernel.name == name_of_kernel]
        is_conversion = own[0].kernel is CONVERSION
        symbol = f"{name}_kernel_{'conversion' if is_conversion else name_of_kernel}"
        for number, launch in enumerate(own, 1):
            found.append(variant_of(launch, f"{symbol}_{number}" if len(own) > 1 or is_conversion else symbol))
    return found


def _launched(kernel: Kernel, variants: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the arguments, sizes and variants of a kernel in the library."""
    own = [variant for variant in variants if variant["kernel"] == kernel.name]
    arguments = own[0]["arguments"]
    known = {argument["name"] for argument in arguments}
    size = {"kind": "size", "axes": (), "file_cpp": "long long", "file_numpy": "int64"}
    sizes = [{**size, "name": n, "id": parameter_of(n)} for n in size_names(kernel) if n not in known]
    return {"name": kernel.name, "parameters": [*arguments, *sizes], "sizes": size_names(kernel), "variants": own}


def _buffer(application: Application, winner: Winner[Application], argument: Argument) -> dict[str, Any]:
    free = {size: f"sizes.{identifier(size)}" for size in winner.sizes}
    try:
        extents = [formula(axis, {}, free) for axis in argument.shape]
    except NotTranslatableError as error:
        raise KernelError(f"{application.called}: the shape of buffer {argument.name!r}: {error}") from error
    return {**argument_of(application, winner.configuration, winner.sizes, argument), "extents": extents}
