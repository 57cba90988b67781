"""The data manager: inputs and references of a kernel at given sizes, and their typed copies."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.data.conversion import Loss, convert
from mptune.data.data import FIRST, Draw, checked_references, compute_references, make_inputs, require_repeatable
from mptune.data.reference_cache import keep_references, load_references, reference_key, update_digest
from mptune.errors import KernelError, OutOfMemoryError, ReferenceDataError
from mptune.kernel import Argument, Role, Sizes, Tunable
from mptune.memory import available_memory_bytes, in_words
from mptune.paths import cache_folder
from mptune.precision import PRECISIONS, Precision, precision
from mptune.space.configuration import Configuration

_FP64 = PRECISIONS["fp64"]


class DataManager:
    """A kernel's data on the host, made when first needed, in the types of configurations.

    Args:
        kernel: declares the arguments and makes inputs and references.
        sizes: the problem sizes.
        seed: the seed of the inputs.
        budget_bytes: memory limit of typed copies, in addition to inputs and references; the least recently used
            are dropped first. None: a quarter of the available memory.
        cache_dir: folder of cached references. None: ``$MPTUNE_CACHE_DIR/references`` or the user's cache folder.
        draw: the sample of the inputs.
        caches: whether references are cached on disk.
        inputs: values by argument, of any real type and the declared shapes, in place of the kernel's own inputs.
    """

    def __init__(
        self,
        kernel: Tunable,
        sizes: Sizes,
        *,
        seed: int = 0,
        budget_bytes: int | None = None,
        cache_dir: Path | None = None,
        draw: Draw = FIRST,
        caches: bool = True,
        inputs: Mapping[str, Any] | None = None,
    ) -> None:
        self.kernel = kernel
        self.sizes = sizes
        self._seed = seed
        self._draw = draw
        self._caches = caches
        self._budget_bytes = available_memory_bytes() // 4 if budget_bytes is None else budget_bytes
        self._cache_dir = cache_folder("references") if cache_dir is None else cache_dir
        self._typed: OrderedDict[tuple[str, Precision], NDArray[Any]] = OrderedDict()
        self._losses: dict[tuple[str, Precision], Loss] = {}
        self._is_cached = False  # whether the references were on disk
        if inputs is not None:
            self.inputs = inputs

    @cached_property
    def inputs(self) -> Mapping[str, Any]:
        """Inputs as of :func:`~mptune.data.data.make_inputs`; OutOfMemoryError if they do not fit."""
        # There are thousands of small further draws: skip the check for them.
        if self._draw == FIRST or sum(self._elements().values()) > 2**20:
            self.require(available_memory_bytes())
        try:
            return make_inputs(self.kernel, self.sizes, self._seed, self._draw)
        except MemoryError as error:
            raise OutOfMemoryError(f"{self.sizes}: the inputs of {self.kernel.name} ran out of memory") from error

    @cached_property
    def references(self) -> Mapping[str, NDArray[Any]]:
        """References as of :func:`~mptune.data.data.compute_references`; OutOfMemoryError if they do not fit."""
        folder = self._cache_dir if self._caches else None
        key = reference_key(self.kernel, self._inputs_key, self.sizes) if folder else None
        cached = load_references(folder, key) if folder and key else None
        # The check refuses damage that the file format does not show.
        with contextlib.suppress(ReferenceDataError):
            if cached is not None:
                references = checked_references(self.kernel, cached, self.sizes)
                self._is_cached = True
                return references
        try:
            references = compute_references(self.kernel, self.inputs, self.sizes)
        except MemoryError as error:
            raise OutOfMemoryError(f"{self.sizes}: the reference of {self.kernel.name} ran out of memory") from error
        if folder and key:
            keep_references(folder, key, references)
        return references

    def require_repeatable(self) -> None:
        """Check inputs and references as :func:`~mptune.data.data.require_repeatable` does."""
        references = self.references
        # Cached references of these inputs were checked when they were made.
        if not self._is_cached:
            require_repeatable(self.kernel, self.sizes, self._seed, self.inputs, references)

    @cached_property
    def largest_reference(self) -> float:
        """The largest magnitude in the references, NaN aside."""
        return max(max(float(np.nanmax(array)), -float(np.nanmin(array))) for array in self.references.values())

    @cached_property
    def data_key(self) -> str:
        """A checksum of the sizes, inputs and references."""
        digest = hashlib.sha256(self._inputs_key.encode())
        for name, array in self.references.items():
            update_digest(digest, name, array)
        return digest.hexdigest()

    @cached_property
    def _inputs_key(self) -> str:
        digest = hashlib.sha256(repr((self.kernel.name, sorted(self.sizes.items()))).encode())
        for name, value in self.inputs.items():
            update_digest(digest, name, np.asarray(value))
        return digest.hexdigest()

    def has_inputs_of(self, other: DataManager) -> bool:
        """Whether another draw of this kernel has these inputs."""
        return all(np.array_equal(values, other.inputs[name]) for name, values in self.inputs.items())

    def _elements(self) -> dict[Argument, int]:
        return {argument: math.prod(self.shape_of(argument)) for argument in self.kernel.arguments}

    def shape_of(self, argument: Argument) -> tuple[int, ...]:
        """Return the shape of a buffer, ``()`` for a scalar; raise KernelError if an axis is below 1."""
        shape = self.kernel.shape_of(argument, self.sizes)
        if any(axis < 1 for axis in shape):
            raise KernelError(f"argument {argument.name!r} of {self.kernel.called} has shape {shape} at {self.sizes}")
        return shape

    def typed(self, argument: Argument, precision: Precision | None) -> NDArray[Any]:
        """Return a buffer's input in a precision (None for an integer): C-contiguous, read-only, rounded to nearest.

        Copies are cached in memory within the budget; a disk cache is hardly faster.
        """
        values = np.asarray(self.inputs[argument.name])
        if precision is None or (values.dtype == precision.dtype and not precision.is_traced):
            return np.ascontiguousarray(values, argument.dtype)
        key = (argument.name, precision)
        if key in self._typed:
            self._typed.move_to_end(key)
            return self._typed[key]
        copy, self._losses[key] = convert(np.ascontiguousarray(values, np.float64), precision)
        copy.flags.writeable = False
        if copy.nbytes <= self._budget_bytes:
            while sum(array.nbytes for array in self._typed.values()) + copy.nbytes > self._budget_bytes:
                self._typed.popitem(last=False)
            self._typed[key] = copy
        return copy

    def scalar(self, argument: Argument, precision: Precision | None) -> np.generic:
        """Return a scalar argument as a NumPy scalar of its type; precision is None for an integer."""
        value = self.inputs[argument.name]
        if precision is None:
            return np.dtype(argument.dtype).type(value)
        converted, loss = convert(np.array(value, np.float64).reshape(1), precision)
        self._losses[argument.name, precision] = loss
        return converted[0]  # type: ignore[no-any-return]

    def footprint_bytes(self, configuration: Configuration) -> int:
        """Return the bytes of all buffers and scalars in their precisions."""
        return sum(
            math.prod(self.shape_of(a)) * self.kernel.dtype_of(a, configuration).itemsize for a in self.kernel.arguments
        )

    def warnings(self, configuration: Configuration) -> tuple[str, ...]:
        """Return warnings of inputs that overflow or underflow in the precisions of a configuration."""
        found: list[str] = []
        for argument in self.kernel.arguments:
            chosen = self.kernel.precision_of(argument, configuration)
            if argument.is_input and chosen is not None and chosen is not _FP64:
                if getattr(self.inputs[argument.name], "dtype", None) == chosen.dtype:
                    continue  # never converted
                if (argument.name, chosen) not in self._losses:
                    (self.scalar if argument.role is Role.SCALAR else self.typed)(argument, chosen)
                found.extend(self._losses[argument.name, chosen].warnings(argument.name, chosen))
        return tuple(found)

    def overflows(self) -> list[tuple[str, Precision]]:
        """Return the inputs and types, of all copies so far, in which a finite value became infinite or NaN."""
        return [key for key, loss in self._losses.items() if loss.infinite]

    def require(self, available_bytes: int) -> None:
        """Raise OutOfMemoryError unless inputs, references and the widest typed copies fit; nothing is allocated."""
        needed, values = 0, {parameter.name: parameter.values for parameter in self.kernel.parameters}
        for argument, count in self._elements().items():
            held = 8 if argument.dtype is None else np.dtype(argument.dtype).itemsize
            copied = np.dtype(argument.dtype).itemsize if argument.dtype and argument.is_output else 0
            if argument.precision is not None:  # inputs in fp64 or an integer type are not copied
                possible = [precision(str(name)) for name in values.get(argument.precision, (argument.precision,))]
                copied = max((p.size_bytes for p in possible if argument.is_output or p is not _FP64), default=0)
            needed += count * (held * (argument.is_input + argument.is_output) + copied)
        if needed > available_bytes:
            raise OutOfMemoryError(
                f"{self.sizes}: {self.kernel.called} needs {in_words(needed)} of host memory and "
                f"{in_words(available_bytes)} are available; choose smaller sizes"
            )
