"""The identity of everything a trial's numbers depend on."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from mptune.accuracy.evaluate import Metric
from mptune.accuracy.metrics import METRICS, resolve
from mptune.kernel import Kernel, Sizes
from mptune.space.configuration import Configuration

__all__ = ["launch_identity", "metric_identity", "trial_key"]


def trial_key(parts: Sequence[str]) -> str:
    """Return the key of a trial, as a hexadecimal digest.

    Args:
        parts: the rendered source, how it is launched, device, compiler and flags, inputs and references, the error
            metric, how often it is timed: everything the numbers depend on, always in the same order.
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part.encode("utf-8", "backslashreplace")).digest())
    return digest.hexdigest()


def launch_identity(kernel: Kernel, configuration: Configuration, sizes: Sizes) -> str:
    """Return grid, block, shared memory and arguments of a launch, none of which a source shows, as text.

    Raises:
        KernelError: an extent is below 1.
        ExpressionError: an extent has no value.
    """
    arguments = [
        (argument.name, argument.role.value, precision.name if precision else argument.dtype)
        for argument in kernel.arguments
        for precision in (kernel.precision_of(argument, configuration),)
    ]
    return repr((kernel.launch_shape(configuration, sizes), arguments))


def metric_identity(metric: Metric | Mapping[str, Metric]) -> str:
    """Return a bundled metric's name, or as text what the numbers of any other depend on; of several, each output's.

    That is its code, its defaults, what it captured, and the functions and constants of its own module it uses;
    not what it imports or reads from files.

    Raises:
        UnknownNameError: no metric has that name.
    """
    if isinstance(metric, Mapping):
        return "\n".join(f"{output}={metric_identity(metric[output])}" for output in sorted(metric))
    resolved = resolve(metric)
    if METRICS.get(resolved.name) is resolved:
        return resolved.name
    return "\n".join((resolved.name, *_described(resolved.compute, {})))


def _described(value: Any, seen: dict[int, Any]) -> Iterator[str]:
    """Yield text that is equal for values that compute the same, in this process or another.

    ``seen`` holds what came before by its id, and keeps it alive so that no other object gets that id.
    """
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        yield repr(value)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype.str}{value.shape}{hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    elif id(value) in seen:
        yield "again"
    elif isinstance(value, ModuleType | type | BuiltinFunctionType | np.ufunc):
        yield f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', None) or value.__name__}"
    else:
        # Whether two constants are one object depends on how the module was loaded, so they are always written out.
        if not isinstance(value, tuple | frozenset | CodeType):
            seen[id(value)] = value
        yield from _described_object(value, seen)


def _described_object(value: Any, seen: dict[int, Any]) -> Iterator[str]:
    parts: Sequence[Any]
    if isinstance(value, FunctionType):
        captured = [cell.cell_contents for cell in value.__closure__ or ()]
        parts = (value.__code__, value.__defaults__, value.__kwdefaults__, captured, _used_globals(value))
    elif isinstance(value, CodeType):
        parts = (value.co_code, value.co_names, value.co_varnames, value.co_freevars, value.co_consts)
    elif isinstance(value, MethodType):
        parts = (value.__func__, value.__self__)
    elif isinstance(value, functools.partial):
        parts = (value.func, value.args, value.keywords)
    elif isinstance(value, Mapping):
        parts = [entry for pair in sorted(value.items(), key=repr) for entry in pair]
    elif isinstance(value, set | frozenset):
        parts = sorted(value, key=repr)
    elif isinstance(value, list | tuple):
        parts = value
    else:
        slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        state = {name: getattr(value, name, None) for name in slots} | getattr(value, "__dict__", {})
        parts = (type(value), type(value).__call__ if callable(value) else None, state)
    yield f"{type(value).__name__}("
    for part in parts:
        yield from _described(part, seen)
    yield ")"


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those of the functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _used_globals(function: FunctionType) -> dict[str, Any]:
    """Return the constants, and the functions of its own module, that a function names."""
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    found = {name: function.__globals__[name] for name in names if name in function.__globals__}
    return {
        name: value
        for name, value in found.items()
        if not callable(value) or getattr(value, "__module__", None) == function.__module__
    }
