"""The definition of a kernel, checked as far as that goes without running it."""

from __future__ import annotations

import functools
import inspect
import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mptune.errors import KernelError, UnknownNameError
from mptune.expressions import Expression
from mptune.kernel.declarations import Argument, Range, Role, Sizes, check_expression, check_precision
from mptune.kernel.work import Flops, Work, check_flops, count_flops
from mptune.precision import Precision, precision
from mptune.regions import Over, Reduce, RegionalMetric, over_regions
from mptune.reserved import why_reserved
from mptune.space.configuration import Configuration, NamedValues, Value
from mptune.space.parameters import Parameter, PolicyParameter, PrecisionParameter, baseline_values, is_identifier
from mptune.space.search_space import SearchSpace

__all__ = ["Kernel", "LaunchShape", "Metric"]

#: Every configuration asks for the same few.
_parsed = functools.lru_cache(maxsize=1024)(Expression)

_TUPLES = ("parameters", "arguments", "constraints", "signature", "ranges")

Inputs = Mapping[str, Any]
Constraint = str | Callable[..., bool]
#: Name of an error metric, one of regions, or a callable ``metric(output, reference) -> float``.
Metric = str | Callable[..., float] | RegionalMetric


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """Blocks in the grid, threads in a block (x, y, z) and bytes of dynamic shared memory."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Kernel:
    """One tunable computation.

    Args:
        name: the kernel's name; also the name of the ``__global__`` function unless ``function`` says otherwise.
        parameters: the tunable parameters.
        arguments: the arguments of the function, in order (:func:`In`, :func:`Out`, :func:`InOut`, :func:`Scalar`), and
            anywhere among them those in constant memory (:func:`Constant`), which it has no parameters for.
        sizes: problem sizes by preset name; ``default`` must be among them.
        inputs: ``inputs(rng, size)`` returns the fp64 (or integer) arrays and scalars by argument name. An
            argument named like a size may be left out. Each of ``ranges`` comes as a keyword.
        reference: ``reference(inputs, size)`` returns the double-precision outputs by name (or the one array).
            None: ``reference`` of the file of the same stem in the sibling folder ``references``.
        grid: one expression over sizes and parameters per axis: blocks in the grid.
        block: the same for the threads in a block.
        template: template source (anything with a line break), or the path of its file, relative to the
            definition file. None: the file ``<stem>.cu.j2`` in the sibling folder ``templates`` or beside it.
        constraints: predicates over parameters and sizes known before running.
        metric: name of the error metric, or a callable ``metric(output, reference) -> float`` or ``metric(output,
            reference, inputs) -> float``; one for all outputs, or one for each by the output's name. Of a list the
            first is the error metric, and the others are measured as well. A callable with an attribute ``version``
            has its trials used again by ``--resume``.
        signature: parameters, in addition to precisions and policies, that can change the results.
        function: name of the ``__global__`` function.
        shared_bytes: expression for the bytes of dynamic shared memory.
        ranges: numbers that ``inputs`` takes by keyword (:class:`Range`): each draw of the inputs has its own, and
            ``mptune verify --hunt`` looks for the worst.
        flops: floating-point operations of a launch, independent of the optimisation parameters: an expression over
            sizes and parameters, or a function of the sizes. Or such counts by the precision they are computed in:
            that of a precision parameter, a fixed one, or the one the types of several promote to, given as a tuple:
            ``{"sum_type": "2 * n", ("a_type", "b_type"): "n"}``. None if they are not known.
        description: one line for ``mptune list``.
        path: the definition file; set by the loader.
        over: take the metric of each row, column or block of an output: ``"rows"``, ``"columns"``,
            ``("block", (8, 8))`` (see :mod:`mptune.regions`); a metric's text or
            :class:`~mptune.regions.RegionalMetric` says so for one output alone.
        reduce: which of the regions' errors counts: ``"max"``, or a quantile such as 0.99.

    Raises:
        KernelError: the definition is incomplete or contradicts itself.
        ExpressionError: a shape, grid, block or constraint does not parse or uses an unknown name.
    """

    name: str
    parameters: Sequence[Parameter]
    arguments: Sequence[Argument]
    sizes: Mapping[str, Mapping[str, int]]
    inputs: Callable[..., Inputs]
    grid: Sequence[str | int]
    block: Sequence[str | int]
    reference: Callable[[Inputs, Sizes], Any] | None = None
    template: str | Path | None = None
    constraints: Sequence[Constraint] = ()
    metric: Metric | Sequence[Metric] | Mapping[str, Metric | Sequence[Metric]] = "NRMSE"
    signature: Sequence[str] = ()
    function: str = ""
    shared_bytes: str | int = 0
    flops: Flops | None = None
    ranges: Sequence[Range] = ()
    description: str = ""
    path: Path | None = None
    over: InitVar[Over | None] = None
    reduce: InitVar[Reduce] = "max"
    _by_name: Mapping[str, Parameter] = field(init=False, repr=False)

    def __post_init__(self, over: Over | None, reduce: Reduce) -> None:
        frozen: dict[str, Any] = {
            **{name: tuple(getattr(self, name)) for name in _TUPLES},
            **{name: tuple(map(str, getattr(self, name))) for name in ("grid", "block")},
            "function": self.function or self.name,
            "sizes": NamedValues({name: Sizes(preset) for name, preset in self.sizes.items()}),
        }
        given: Any
        for name, given in (("metric", over_regions(self.metric, over, reduce)), ("flops", self.flops)):
            frozen[name] = NamedValues(given) if isinstance(given, Mapping) else given
        frozen["_by_name"] = NamedValues({p.name: p for p in frozen["parameters"]})
        for name, value in frozen.items():
            object.__setattr__(self, name, value)
        self._validate()

    # -- names ---------------------------------------------------------------------------------

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters, in order."""
        return tuple(self._by_name)

    @property
    def outputs(self) -> tuple[Argument, ...]:
        """The arguments the kernel writes."""
        return tuple(argument for argument in self.arguments if argument.is_output)

    @property
    def passed(self) -> tuple[Argument, ...]:
        """The arguments that are parameters of the function; the others are in constant memory."""
        return tuple(argument for argument in self.arguments if not argument.is_constant)

    @property
    def signature_names(self) -> tuple[str, ...]:
        """The accuracy signature: precision and policy parameters, and what the kernel declares."""
        always = PrecisionParameter | PolicyParameter
        return tuple(p.name for p in self.parameters if isinstance(p, always) or p.name in self.signature)

    def signature_of(self, configuration: Configuration) -> tuple[Value, ...]:
        """Return the values that can change the numbers of ``configuration``."""
        return configuration.subset(self.signature_names)

    def roundoff_of(self, configuration: Configuration) -> float:
        """Return the unit roundoff of the coarsest type in a configuration: of a buffer, or of a variable."""
        chosen = [configuration[p.name] for p in self.parameters if isinstance(p, PrecisionParameter)]
        found = [self.precision_of(argument, configuration) for argument in self.arguments]
        types = [precision("fp64"), *(precision(str(name)) for name in chosen), *(p for p in found if p is not None)]
        return max(p.unit_roundoff for p in types)

    # -- sizes ---------------------------------------------------------------------------------

    def resolve_sizes(self, preset: str = "default", overrides: Mapping[str, int] | None = None) -> Sizes:
        """Return the sizes of a preset with some of them replaced.

        Raises:
            UnknownNameError: no such preset or size.
            KernelError: a size below 1.
        """
        if preset not in self.sizes:
            raise UnknownNameError(f"size preset of kernel {self.name}:", preset, self.sizes)
        values = dict(self.sizes[preset])
        for name, value in (overrides or {}).items():
            if name not in values:
                raise UnknownNameError(f"size of kernel {self.name}:", name, values)
            values[name] = int(value)
        for name, value in values.items():
            if value < 1:
                raise KernelError(f"size {name}={value} of kernel {self.name} is below 1")
        return Sizes(values)

    def shape_of(self, argument: Argument, sizes: Sizes) -> tuple[int, ...]:
        """Return the shape of a buffer at these sizes."""
        return tuple(int(_parsed(axis).evaluate(sizes)) for axis in argument.shape)

    # -- configurations ------------------------------------------------------------------------

    def search_space(self, sizes: Sizes, constraints: Sequence[Constraint] = ()) -> SearchSpace:
        """Return the valid configurations at these sizes, under further constraints (device limits).

        Raises:
            EmptySpaceError: no configuration is valid; says which constraint removed everything.
        """
        return SearchSpace(self.parameters, (*self.constraints, *constraints), constants=dict(sizes))

    def baseline_values(self) -> dict[str, tuple[Value, ...]]:
        """Return the values precision and policy parameters have in a baseline: fp64 (or the widest), accurate."""
        return baseline_values(self.parameters)

    def precision_of(self, argument: Argument, configuration: Configuration) -> Precision | None:
        """Return the precision of an argument in a configuration, None for an integer argument."""
        chosen = argument.precision
        return None if chosen is None else precision(str(configuration[chosen]) if chosen in self._by_name else chosen)

    def dtype_of(self, argument: Argument, configuration: Configuration) -> np.dtype[Any]:
        """Return the NumPy type of an argument in a configuration."""
        chosen = self.precision_of(argument, configuration)
        return np.dtype(argument.dtype) if chosen is None else chosen.dtype

    def launch_shape(self, configuration: Configuration, sizes: Sizes) -> LaunchShape:
        """Return grid, block and dynamic shared memory of a configuration.

        Raises:
            KernelError: an extent is below 1.
        """
        values = {**sizes, **configuration}

        def extents(axes: Sequence[str | int], what: str) -> tuple[int, int, int]:
            x, y, z, *_ = [int(_parsed(str(axis)).evaluate(values)) for axis in axes] + [1, 1, 1]
            if min(x, y, z) < 1:
                raise KernelError(f"kernel {self.name}: the {what} {tuple(axes)} is {(x, y, z)} at {configuration}")
            return x, y, z

        shared = int(_parsed(str(self.shared_bytes)).evaluate(values))
        return LaunchShape(extents(self.grid, "grid"), extents(self.block, "block"), shared)

    def work(self, configuration: Configuration, sizes: Sizes) -> Work:
        """Return the operations of a configuration and the least bytes it has to move.

        Raises:
            KernelError: an operation count is negative or no number.
            ExpressionError: a shape or an operation count has no value here.
        """
        traffic_bytes = 0
        for argument in self.arguments:
            if argument.role is Role.SCALAR:
                continue
            passes = 2 if argument.role is Role.INOUT else 1
            elements = math.prod(self.shape_of(argument, sizes))
            traffic_bytes += passes * elements * self.dtype_of(argument, configuration).itemsize
        if self.flops is None:
            return Work(traffic_bytes)
        return Work(traffic_bytes, *count_flops(self.flops, self.name, configuration, sizes))

    def configuration(self, values: Mapping[str, Any]) -> Configuration:
        """Return the full configuration with these values, the first value of each parameter elsewhere.

        Raises:
            UnknownNameError: no such parameter, or not one of its values.
        """
        for name in values:
            if name not in self._by_name:
                raise UnknownNameError(f"parameter of kernel {self.name}:", name, self._by_name)
        return Configuration(
            {name: p.parse(values[name]) if name in values else p.values[0] for name, p in self._by_name.items()}
        )

    def own(self, configuration: Mapping[str, Any]) -> Configuration:
        """Return a configuration made of the kernel's own values, which are the only ones that are ever rendered.

        Values may come from a file, and a file from anyone; of equal ones (1 and 1.0) the declared one is taken.

        Raises:
            KernelError: a parameter has no value, or one that is not among those declared.
        """
        own: dict[str, Value] = {}
        for name, parameter in self._by_name.items():
            value = configuration.get(name)
            if value not in parameter.values:
                raise KernelError(
                    f"kernel {self.name}: {value!r} is none of the values of parameter {name!r}: "
                    f"{reprlib.repr(parameter.values)}"
                )
            own[name] = parameter.values[parameter.values.index(value)]
        return Configuration(own)

    # -- validation ----------------------------------------------------------------------------

    def _validate(self) -> None:
        if not is_identifier(self.name):
            raise KernelError(f"kernel name {self.name!r} is not an identifier")
        if len(self._by_name) != len(self.parameters):
            raise KernelError(f"kernel {self.name}: two parameters have the same name")
        if len({a.name for a in self.arguments}) != len(self.arguments):
            raise KernelError(f"kernel {self.name}: two arguments have the same name")
        if not self.outputs:
            raise KernelError(f"kernel {self.name}: no argument is an output (Out or InOut)")
        self._validate_sizes()
        declared = [("function", self.function), *(("constant array", a.name) for a in self.arguments if a.is_constant)]
        for what, name in declared:
            if why := why_reserved(name):
                raise KernelError(
                    f"kernel {self.name}: its {what} cannot be called {name!r}, which is {why}; call it "
                    f"{name}_{'kernel' if what == 'function' else 'values'!s}, say"
                )
        for name in self.signature:
            if name not in self._by_name:
                raise UnknownNameError(f"signature parameter of kernel {self.name}:", name, self._by_name)
        self._validate_metric()
        self._validate_ranges()
        self._validate_types_and_expressions()
        for what, axes in (("grid", self.grid), ("block", self.block)):
            if not 1 <= len(axes) <= 3:
                raise KernelError(f"kernel {self.name}: {what} needs one to three axes, not {len(axes)}")

    def _validate_sizes(self) -> None:
        if "default" not in self.sizes:
            raise KernelError(f"kernel {self.name}: sizes need a preset named 'default'")
        wanted = set(self.sizes["default"])
        for preset, values in self.sizes.items():
            if set(values) != wanted:
                names = ", ".join(sorted(wanted))
                raise KernelError(f"kernel {self.name}: size preset {preset!r} does not name {names}")
        clash = wanted & set(self._by_name)
        if clash:
            raise KernelError(f"kernel {self.name}: {', '.join(sorted(clash))} is both a size and a parameter")

    def _validate_metric(self) -> None:
        if not isinstance(self.metric, Mapping):
            return
        outputs = [output.name for output in self.outputs]
        for name in self.metric:
            if name not in outputs:
                raise UnknownNameError(f"output with an error metric of kernel {self.name}:", name, outputs)
        for name in outputs:
            if name not in self.metric:
                raise KernelError(f"kernel {self.name}: output {name!r} has no error metric; the others have one")

    def _validate_ranges(self) -> None:
        names = [entry.name for entry in self.ranges]
        if len(set(names)) < len(names):
            raise KernelError(f"kernel {self.name}: two ranges have the same name")
        try:
            inspect.signature(self.inputs).bind(None, None, **dict.fromkeys(names))
        except ValueError:
            return  # a callable that does not tell what it takes
        except TypeError as error:
            given = ", ".join(("rng", "size", *names))
            raise KernelError(
                f"kernel {self.name}: inputs is called as inputs({given}), but: {error} (each argument beside rng and "
                "size needs a Range of its name in ranges=)"
            ) from error

    def _validate_types_and_expressions(self) -> None:
        precisions = [p.name for p in self.parameters if isinstance(p, PrecisionParameter)]
        sizes = tuple(self.sizes["default"])
        for argument in self.arguments:
            if argument.precision is not None:
                check_precision(argument.precision, precisions, f"argument {argument.name!r}")
            for axis in argument.shape:
                check_expression(axis, sizes, f"shape of argument {argument.name!r}", self.name)
        for extent in (*self.grid, *self.block, self.shared_bytes):
            check_expression(str(extent), (*sizes, *self._by_name), "grid, block or shared_bytes", self.name)
        if self.flops is not None:
            check_flops(self.flops, self.name, sizes, self.parameter_names, precisions)
