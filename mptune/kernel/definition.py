"""The definition of a kernel, with every check that needs no launch."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from mptune.cpp.prelude import why_reserved
from mptune.errors import KernelError, UnknownNameError
from mptune.kernel.declarations import Argument, Role, Sizes, check_expression
from mptune.kernel.regions import Over, Reduce
from mptune.kernel.tunable import Constraint, Inputs, Tunable, parsed
from mptune.kernel.work import Flops, Work, check_flops, count_flops
from mptune.space.configuration import Configuration, NamedValues
from mptune.space.constraints import canonical
from mptune.space.expressions import Expression
from mptune.space.parameters import PrecisionParameter, listed, names_of_precisions
from mptune.space.search_space import SearchSpace

#: An expression for each axis, or a function of a configuration and the sizes that returns the extents.
Extents = str | int | Sequence[str | int] | Callable[[Any], int | Sequence[int]]


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """Blocks in the grid, threads in a block (x, y, z) and bytes of dynamic shared memory."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0


def is_first_draw(rng: np.random.Generator) -> bool:
    """Whether a generator is that of the first draw, which searches compare all configurations on."""
    return not cast(Any, rng.bit_generator.seed_seq).spawn_key


class Varied:
    """Inputs that are arrays: the first draw has them as they are, others have them changed by up to a share.

    Args:
        arrays: arrays and numbers by the names of arguments.
        share: largest relative change of a floating-point number.
        names: the arrays that are changed; empty for all. Numbers do not change.
    """

    def __init__(self, arrays: Mapping[str, Any], share: float = 0.1, names: Sequence[str] = ()) -> None:
        self._arrays = {name: np.asarray(value) for name, value in arrays.items()}
        self._share, self._names = share, names or tuple(arrays)

    def __call__(self, rng: np.random.Generator, _: Sizes) -> dict[str, Any]:
        """Return the inputs of a draw."""
        changed = () if is_first_draw(rng) else self._names
        return {name: self._changed(rng, each) if name in changed else each for name, each in self._arrays.items()}

    def _changed(self, rng: np.random.Generator, array: NDArray[Any]) -> NDArray[Any]:
        if array.ndim == 0 or array.dtype.kind != "f":
            return array
        return array * (1 + self._share * (2 * rng.random(array.shape) - 1))


def _no_inputs(rng: Any, size: Sizes) -> Inputs:  # noqa: ARG001
    raise KernelError("a kernel without inputs is part of an application; tune that")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Kernel(Tunable):
    """One tunable computation.

    Args:
        name: the kernel's name; also the name of the ``__global__`` function unless ``function`` says otherwise.
        parameters: the tunable parameters.
        arguments: the arguments of the function, in order (:func:`In`, :func:`Out`, :func:`InOut`, :func:`Scalar`).
            Arrays in constant memory (:func:`Constant`) stand anywhere among them.
        sizes: problem sizes by preset name; ``default`` must be among them. A kernel of an application needs none.
        inputs: ``inputs(rng, size)`` returns the fp64 (or integer) arrays and scalars by argument name. An
            argument named like a size may be left out. Or the arrays and scalars themselves, by argument name:
            further draws then change their numbers by up to a tenth (:class:`~mptune.kernel.Varied`).
        reference: ``reference(inputs, size)`` returns the double-precision outputs by name (or the one array).
            None: ``reference`` of the file of the same stem in the sibling folder ``references``; without that file the
            outputs in the widest types.
        grid: blocks in the grid, one expression over sizes and parameters per axis. Or a function ``grid(c)`` that
            returns them: ``lambda c: (ceildiv(c.n, c.block), 1)``; ``c`` has the values of parameters and sizes.
        block: threads in a block, given like ``grid``.
        template: template source (anything with a line break, ``{``, ``;`` or ``__global__``), or the path of its
            file, relative to the definition file. Or a function of a dict of parameters and sizes that returns the
            source. None: the file ``<stem>.cu.j2`` in the sibling folder ``templates`` or beside it.
        language: "C++" with CUDA's names for every backend, or "OpenCL C", which is compiled as it stands by the
            OpenCL backend alone.
        constraints: predicates over parameters, sizes and facts of the device, known before running. Facts are
            ``device.is_gpu``, ``device.matrix_units`` ("mma.sync", "MFMA", "WMMA" or "") and the limits that ``mptune
            backends`` lists (``device.max_shared_bytes``).
        metric: name of the error metric, or a callable ``metric(output, reference) -> float`` or ``metric(output,
            reference, inputs) -> float``; for all outputs, or by output. The first of a list is the error metric; the
            others are measured as well. ``--resume`` reuses the trials of a callable with an attribute ``version``.
        signature: parameters, in addition to precisions and policies, that can change the results.
        function: name of the ``__global__`` function.
        shared_bytes: bytes of dynamic shared memory: an expression, or a function like ``grid``.
        flops: floating-point operations of a launch, independent of the optimisation parameters: an expression over
            sizes and parameters, or a function of the sizes. Or counts by the precision of the computation: a precision
            parameter, a fixed precision, or a tuple whose types are promoted:
            ``{"sum_type": "2 * n", ("a_type", "b_type"): "n"}``. None if unknown.
        runtime_sizes: sizes that emitted code takes as parameters, so that it serves sizes that were never tuned. The
            template prints them only inside the kernel's function, where C++ takes a variable, or as
            ``{{ size | int }}``.
        instrumented: whether an instrumented build on the host gives the search a prior of its model of errors
            (``docs/templates.md``).
        description: one line for ``mptune list``.
        path: the definition file; set by the loader.
        over: measure each row, column or block of an output: ``"rows"``, ``"columns"``, ``("block", (8, 8))`` (see
            :mod:`mptune.kernel.regions`). For one output, use a :class:`~mptune.kernel.regions.RegionalMetric`.
        reduce: the reduction of the regions' errors: ``"max"``, or a quantile such as 0.99.

    Raises:
        KernelError: the definition is incomplete or contradicts itself.
        ExpressionError: a shape, grid, block or constraint does not parse or uses an unknown name.
    """

    what: ClassVar[str] = "kernel"

    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    inputs: Callable[..., Inputs] | Inputs = _no_inputs
    grid: Extents
    block: Extents
    template: str | Path | Callable[[Mapping[str, Any]], str] | None = None
    language: str = "C++"
    constraints: Sequence[Constraint] = ()
    function: str = ""
    shared_bytes: str | int | Callable[[Any], int] = 0
    flops: Flops | None = None
    runtime_sizes: Sequence[str] = ()
    on_device: Sequence[str] = ()  #: the constraints that name facts of a device, moved here from ``constraints``

    def __post_init__(self, over: Over | None, reduce: Reduce) -> None:
        flops: Any = self.flops
        constraints = listed(self.constraints)
        given: Any = self.inputs
        if isinstance(given, Mapping):
            self._freeze(inputs=Varied(given), sizes=self.sizes or {"default": {}})
        on_device = [text for text in constraints if isinstance(text, str) and "device." in text]
        extents = {name: getattr(self, name) for name in ("grid", "block")}
        self._freeze(
            **{name: each if callable(each) else tuple(map(str, listed(each))) for name, each in extents.items()},
            constraints=tuple(each for each in constraints if each not in on_device),
            on_device=(*listed(self.on_device), *on_device),
            function=self.function or self.name,
            flops=NamedValues(flops) if isinstance(flops, Mapping) else flops,
            runtime_sizes=listed(self.runtime_sizes),
        )
        Tunable.__post_init__(self, over, reduce)

    def changed(self, **changes: Any) -> Self:
        """Return a copy with some arguments of the constructor replaced."""
        return dataclasses.replace(self, **changes)

    @property
    def passed(self) -> tuple[Argument, ...]:
        """The arguments that are parameters of the function; the others are in constant memory."""
        return tuple(argument for argument in self.arguments if not argument.is_constant)

    def search_space(self, sizes: Sizes, constraints: Sequence[Constraint] = ()) -> SearchSpace:
        """Return the valid configurations at these sizes, under further constraints (device limits)."""
        return SearchSpace(self.parameters, (*self.constraints, *constraints), constants=dict(sizes))

    def launch_shape(self, configuration: Configuration, sizes: Sizes) -> LaunchShape:
        """Return grid, block and dynamic shared memory of a configuration.

        Raises:
            KernelError: an extent is below 1, or a function fails or returns no whole numbers.
        """
        named: dict[str, Any] = {**sizes, **configuration}
        values = Sizes(named)

        def extents(what: str) -> tuple[int, int, int]:
            found = self._evaluated(what, values)
            x, y, z, *_ = [*found, 1, 1, 1]
            if not 1 <= len(found) <= 3 or min(x, y, z) < 1:
                said = "" if callable(getattr(self, what)) else f" {getattr(self, what)}"
                raise KernelError(f"{self.called}: the {what}{said} is {found} at {configuration}")
            return x, y, z

        shared = self._evaluated("shared_bytes", values)
        if len(shared) != 1 or shared[0] < 0:
            raise KernelError(f"{self.called}: shared_bytes are {shared} at {configuration}, not one number from 0 on")
        return LaunchShape(extents("grid"), extents("block"), shared[0])

    def expressions(self, *names: str) -> tuple[str, ...]:
        """Return the expressions of ``grid``, ``block`` or ``shared_bytes``, by default of all; none of a function."""
        given = [getattr(self, name) for name in names or ("grid", "block", "shared_bytes")]
        types = names_of_precisions(self.parameters)
        return tuple(canonical(str(text), types) for each in given if not callable(each) for text in listed(each))

    @property
    def launch_functions(self) -> tuple[str, ...]:
        """The functions among ``grid``, ``block`` and ``shared_bytes``, by name."""
        return tuple(name for name in ("grid", "block", "shared_bytes") if callable(getattr(self, name)))

    def _evaluated(self, name: str, values: Sizes) -> tuple[int, ...]:
        given = getattr(self, name)
        if not callable(given):
            return tuple(int(parsed(text).evaluate(values)) for text in self.expressions(name))
        try:
            found = given(values)
        except (Exception, SystemExit) as error:
            what = repr(error) if isinstance(error, SystemExit) else error
            raise KernelError(f"{self.called}: its function {name}= failed: {what} (at {values})") from error
        try:
            return tuple(map(operator.index, listed(found)))
        except TypeError:
            raise KernelError(f"{self.called}: its function {name}= returned {found!r}, not whole numbers") from None

    def work(self, configuration: Configuration, sizes: Sizes) -> Work:
        """Return the operations of a configuration and the least bytes it moves.

        Raises:
            KernelError: an operation count is negative or no number.
            ExpressionError: a shape or an operation count has no value here.
        """
        passes = {Role.SCALAR: 0, Role.INOUT: 2}
        traffic_bytes = sum(
            passes.get(a.role, 1) * math.prod(self.shape_of(a, sizes)) * self.dtype_of(a, configuration).itemsize
            for a in self.arguments
        )
        if self.flops is None:
            return Work(traffic_bytes)
        types = names_of_precisions(self.parameters)
        return Work(traffic_bytes, *count_flops(self.flops, self.name, configuration, sizes, types))

    def _check(self) -> None:
        Tunable._check(self)
        if not any(argument.is_output for argument in self.arguments) and self.sizes:
            raise KernelError(f"{self.called}: no argument is an output (Out or InOut)")
        for name in (self.function, *(a.name for a in self.arguments if a.is_constant)):
            if why := why_reserved(name):
                raise KernelError(f"{self.called}: {name!r} is {why}: call the function or array {name}_")
        for what in ("grid", "block"):
            if what not in self.launch_functions and not 1 <= len(axes := self.expressions(what)) <= 3:
                raise KernelError(f"{self.called}: {what} needs one to three axes, not {len(axes)}")
        if self.launch_functions and not self.sizes:
            raise KernelError(
                f"{self.called}: the function {self.launch_functions[0]}= does not name the sizes it needs: give the "
                "kernel sizes, or an expression"
            )
        sizes = tuple(self.sizes.get("default", ()))
        for name in self.runtime_sizes:
            if name not in sizes:
                raise UnknownNameError(f"runtime size of {self.called}:", name, sizes)
        if not sizes:
            return  # a kernel of an application
        for argument in self.arguments:
            for axis in argument.shape:
                check_expression(axis, sizes, f"shape of argument {argument.name!r}", self.name)
        known = (*sizes, *self._by_name, "device.is_gpu", "device.matrix_units")
        for text in self.on_device:
            limits = [name for name in Expression(text).names if name.startswith("device.max_")]
            check_expression(text, (*known, *limits), "constraints", self.name)
        for text in self.expressions():
            check_expression(text, (*sizes, *self._by_name), "grid, block or shared_bytes", self.name)
        if self.flops is not None:
            precisions = [p.name for p in self.parameters if isinstance(p, PrecisionParameter)]
            check_flops(self.flops, self.name, sizes, self.parameter_names, precisions)
