"""A kernel's references: computed, checked against its outputs, and known by the source they come from."""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.buffers.chunks import count_non_finite
from mptune.buffers.inputs import integers_in_range
from mptune.errors import MptuneError, ReferenceDataError, did_you_mean
from mptune.kernel import Argument, Kernel, Sizes

__all__ = ["checked_references", "compute_references", "reference_key"]

_FORMAT: Final = 1
_IMPORTED_AT: Final = time.time()
_INSTALLED: Final = (Path(sysconfig.get_path("stdlib")).resolve(), Path(__file__).resolve().parent.parent)


def compute_references(kernel: Kernel, inputs: Mapping[str, Any], sizes: Sizes) -> Mapping[str, NDArray[Any]]:
    """Call ``kernel.reference`` and return the fp64 (or integer) outputs by name, checked and read-only.

    Raises:
        ReferenceDataError: there is no reference, it fails or changes its inputs, or an output is missing, or
            of the wrong shape or type, or not finite.
    """
    if kernel.reference is None:
        stem = kernel.path.stem if kernel.path is not None else kernel.name
        raise ReferenceDataError(
            f"kernel {kernel.name} has no reference: give Kernel(reference=...), or define reference(inputs, size) "
            f"in references/{stem}.py, the folder beside that of the kernel's file"
        )
    try:
        given = kernel.reference(inputs, sizes)
    except (MptuneError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, ValueError) and "read-only" in str(error):
            raise ReferenceDataError(
                f"the reference of kernel {kernel.name} changes its inputs, which every trial needs unchanged: "
                f"work on a copy ({error})"
            ) from error
        raise ReferenceDataError(
            f"the reference of kernel {kernel.name} failed: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(given, Mapping):
        if len(kernel.outputs) != 1:
            names = ", ".join(argument.name for argument in kernel.outputs)
            raise ReferenceDataError(
                f"the reference of kernel {kernel.name} returned {type(given).__name__}; expected a dict of its "
                f"outputs {names}"
            )
        given = {kernel.outputs[0].name: given}
    return checked_references(kernel, given, sizes)


def checked_references(kernel: Kernel, given: Mapping[str, Any], sizes: Sizes) -> Mapping[str, NDArray[Any]]:
    """Return references as C-contiguous read-only arrays, once they fit the declared outputs.

    Raises:
        ReferenceDataError: an output is missing or unknown, or of the wrong shape or type, or not finite.
    """
    outputs = {argument.name: argument for argument in kernel.outputs}
    for name in given:
        if name not in outputs:
            raise ReferenceDataError(
                f"the reference of kernel {kernel.name} gives {name!r}, which is no output"
                f"{did_you_mean(str(name), outputs)} (outputs: {', '.join(outputs)})"
            )
    missing = [name for name in outputs if name not in given]
    if missing:
        raise ReferenceDataError(f"the reference of kernel {kernel.name} lacks output {', '.join(missing)}")
    return MappingProxyType({name: _checked(kernel, outputs[name], given[name], sizes) for name in outputs})


def _checked(kernel: Kernel, argument: Argument, value: Any, sizes: Sizes) -> NDArray[Any]:
    what = f"the reference of output {argument.name!r} of kernel {kernel.name}"
    array = np.asarray(value)
    shape = kernel.shape_of(argument, sizes)
    if array.shape != shape:
        raise ReferenceDataError(f"{what} has shape {array.shape}; expected {shape} at {sizes}")
    if argument.dtype is not None:
        if array.dtype.kind not in "iu":
            raise ReferenceDataError(f"{what} has type {array.dtype}; expected integers for {argument.dtype}")
        if not integers_in_range(array, np.dtype(argument.dtype)):
            raise ReferenceDataError(f"{what} has values outside {argument.dtype}")
        array = np.asarray(array, dtype=argument.dtype, order="C")
    else:
        if array.dtype.kind != "f" or array.dtype.itemsize < 8:
            raise ReferenceDataError(f"{what} has type {array.dtype}; expected float64: it must be exact beside fp64")
        with np.errstate(all="ignore"):
            array = np.asarray(array, dtype=np.float64, order="C")
        count, first = count_non_finite(array)
        if count:
            raise ReferenceDataError(f"{what} has {count} values that are NaN or infinite, the first at {first}")
    view = array.view()
    view.flags.writeable = False
    return view


# -- what references depend on ---------------------------------------------------------------------------


def reference_key(kernel: Kernel, inputs_key: str, sizes: Sizes) -> str | None:
    """Return the identity of what the references depend on, None where the source cannot be told for sure.

    It covers the inputs, the sizes, the declared outputs, the versions of NumPy and SciPy, the source file of
    the reference function, and the modules that file uses and nobody installed. It does not cover files the
    reference reads: what those hold belongs into the inputs.

    Args:
        kernel: supplies the reference.
        inputs_key: identity of the inputs' values.
        sizes: the problem sizes.
    """
    files = _source_files(kernel.reference) if kernel.reference is not None else None
    if files is None or kernel.reference is None:
        return None
    digest = hashlib.sha256()
    outputs = [(a.name, kernel.shape_of(a, sizes), a.dtype) for a in kernel.outputs]
    versions = (np.__version__, importlib.metadata.version("scipy"))
    qualified = getattr(kernel.reference, "__qualname__", "")
    digest.update(repr((_FORMAT, kernel.name, qualified, dict(sizes), outputs, versions, inputs_key)).encode())
    for file in files:
        digest.update(hashlib.sha256(file).digest())
    return digest.hexdigest()


def _source_files(function: Callable[..., Any]) -> list[bytes] | None:
    """Return the contents of the source files behind a function.

    None for what has no file (a notebook, a class instance, a partial), for a closure (a decorated function
    is one), whose captured values no file shows, for a function that was not imported here but came from
    another process, and for a file changed since this process started, which may not be what was imported.
    """
    if not inspect.isfunction(function) or function.__closure__:
        return None
    # Only a module that was executed here has a specification; its file may have changed before this process began.
    if "__spec__" not in function.__globals__:
        return None
    own = Path(function.__code__.co_filename)
    try:
        files = sorted({own.resolve(), *_own_modules(function.__globals__)})
        if any(file.stat().st_mtime >= _IMPORTED_AT for file in files):
            return None
        return [file.read_bytes() for file in files]
    except OSError:
        return None


def _own_modules(namespace: Mapping[str, Any]) -> Iterable[Path]:
    """Return the files of the user's modules a namespace uses, directly or through one another."""
    found: set[Path] = set()
    pending = [namespace]
    while pending:
        for value in list(pending.pop().values()):
            module = value if isinstance(value, ModuleType) else sys.modules.get(str(getattr(value, "__module__", "")))
            file = getattr(module, "__file__", None)
            if file is None or _is_installed(Path(file)):
                continue
            path = Path(file).resolve()
            if path not in found:
                found.add(path)
                pending.append(vars(module))
    return found


def _is_installed(file: Path) -> bool:
    """Whether a module belongs to Python, an installed package or mptune: their versions change, not their files."""
    path = file.resolve()
    packaged = not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
    return packaged or any(path.is_relative_to(folder) for folder in _INSTALLED)
