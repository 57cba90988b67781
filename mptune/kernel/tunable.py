"""The base class of kernels and applications: parameters, typed buffers, inputs, a reference and a metric."""

from __future__ import annotations

import contextlib
import functools
import inspect
import keyword
import operator
import reprlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np

from mptune.errors import KernelError, MptuneError, UnknownNameError
from mptune.kernel.declarations import Argument, Role, Sizes, check_precision
from mptune.kernel.regions import Over, Reduce, RegionalMetric, over_regions
from mptune.kernel.work import Work
from mptune.precision import Precision, precision
from mptune.space.configuration import Configuration, NamedValues, Value
from mptune.space.constraints import Constraint as Compiled
from mptune.space.expressions import Expression
from mptune.space.parameters import (
    Given,
    Parameter,
    PolicyParameter,
    PrecisionParameter,
    baseline_values,
    full_name,
    is_identifier,
    listed,
)
from mptune.space.search_space import SearchSpace

#: A parsed expression; every configuration evaluates the same few.
parsed = functools.lru_cache(maxsize=1024)(Expression)

#: Names that Jinja or Python reserves.
_WORDS: Final = frozenset((*keyword.kwlist, "true", "false", "none", "self", "loop", "range", "namespace"))

Inputs = Mapping[str, Any]
Constraint = str | Callable[..., bool] | Compiled
#: An error metric: a name, a regional metric, or a callable ``metric(output, reference) -> float``.
Metric = str | Callable[..., float] | RegionalMetric


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True, kw_only=True)
class Tunable(ABC):
    """The base class of :class:`~mptune.Kernel` and :class:`~mptune.Application`, which describe the arguments."""

    what: ClassVar[str]  #: "kernel" or "application", in messages

    name: str
    parameters: Sequence[Parameter]
    arguments: Sequence[Argument]
    sizes: Mapping[str, Mapping[str, int]]
    inputs: Callable[..., Inputs] | Inputs
    reference: Callable[[Inputs, Sizes], Any] | None = None
    metric: Metric | Sequence[Metric] | Mapping[str, Metric | Sequence[Metric]] = "NRMSE"
    signature: Sequence[str] = ()
    instrumented: bool = False
    description: str = ""
    path: Path | None = None
    over: InitVar[Over | None] = None
    reduce: InitVar[Reduce] = "max"
    _by_name: Mapping[str, Parameter] = field(init=False, repr=False)

    def __post_init__(self, over: Over | None, reduce: Reduce) -> None:
        metric = over_regions(self.metric, over, reduce)
        for name, preset in self.sizes.items():
            if not isinstance(preset, Mapping):
                raise KernelError(f"{self.called}: size preset {name!r} is {reprlib.repr(preset)}, not sizes by name")
        self._freeze(
            **{name: listed(getattr(self, name)) for name in ("parameters", "arguments", "signature")},
            sizes=NamedValues({name: Sizes(preset) for name, preset in self.sizes.items()}),
            metric=NamedValues(metric) if isinstance(metric, Mapping) else metric,
        )
        for what, kind in (("parameters", Parameter), ("arguments", Argument)):
            for each in getattr(self, what):
                if not isinstance(each, kind):
                    raise KernelError(f"{self.called}: {what} has {reprlib.repr(each)}, expected a {kind.__name__}")
        self._freeze(_by_name=NamedValues({p.name: p for p in self.parameters}))
        self._check()

    def _check(self) -> None:
        if not is_identifier(self.name):
            raise KernelError(f"{self.what} name {self.name!r} is not an identifier")
        things = "buffers or scalars" if self.what == "application" else "arguments"
        for what, named in (("parameters", self.parameters), (things, self.arguments)):
            if twice := [name for name, count in Counter(each.name for each in named).items() if count > 1]:
                raise KernelError(f"{self.called}: two {what} are called {twice[0]!r}")
        for name in (*self._by_name, *self.sizes.get("default", ())):
            if name in _WORDS:
                raise KernelError(
                    f"{self.called}: {name!r} is a reserved word of templates and expressions; rename it to {name}_"
                )
        for name in self.signature:
            if name not in self._by_name:
                raise UnknownNameError(f"signature parameter of {self.called}:", name, self._by_name)
        if self.reference is not None and not callable(self.reference):
            raise KernelError(f"{self.called}: its reference is a function, not {reprlib.repr(self.reference)}")
        if self.sizes or self.what == "application":
            if "default" not in self.sizes:
                raise KernelError(f"{self.called}: sizes need a preset named 'default'")
            wanted = sorted(self.sizes["default"])
            for preset, values in self.sizes.items():
                if sorted(values) != wanted:
                    raise KernelError(f"{self.called}: size preset {preset!r} does not name {', '.join(wanted)}")
            if clash := {*wanted} & {*self._by_name}:
                raise KernelError(f"{self.called}: {', '.join(sorted(clash))} is both a size and a parameter")
        if isinstance(self.metric, Mapping):
            outputs = [output.name for output in self.outputs]
            for name in self.metric:
                if name not in outputs:
                    raise UnknownNameError(f"output with an error metric of {self.called}:", name, outputs)
            if missing := [name for name in outputs if name not in self.metric]:
                raise KernelError(f"{self.called}: output {missing[0]!r} has no error metric; the others have one")
        self._check_call(self.inputs, "inputs(rng, size) -> {name: array}")
        precisions = [p.name for p in self.parameters if isinstance(p, PrecisionParameter)]
        for argument in self.arguments:
            if argument.precision is not None:
                check_precision(argument.precision, precisions, f"argument {argument.name!r}")

    def _freeze(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @abstractmethod
    def changed(self, **changes: Any) -> Self:
        """Return a copy with some arguments of the constructor replaced."""

    @property
    def forms(self) -> Mapping[str, Sequence[int]]:
        """Sizes that are switches, with their values: a size is a switch if a preset has it as 0."""
        values = {name: {preset[name] for preset in self.sizes.values()} for name in self.sizes.get("default", ())}
        return {name: tuple(sorted({0, 1} | given)) for name, given in values.items() if 0 in given}

    @property
    def extents(self) -> tuple[str, ...]:
        """The sizes that are no switches."""
        return tuple(name for name in self.sizes.get("default", ()) if name not in self.forms)

    def form_of(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the switches of some sizes; a missing one has its first value."""
        return {name: sizes.get(name, values[0]) for name, values in self.forms.items()}

    @property
    def called(self) -> str:
        """Its kind and name in messages: ``kernel axpy``."""
        return f"{self.what} {self.name}"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters, in order."""
        return tuple(self._by_name)

    @property
    def outputs(self) -> tuple[Argument, ...]:
        """The arguments that are written and have a reference."""
        return tuple(argument for argument in self.arguments if argument.is_output)

    @property
    def signature_names(self) -> tuple[str, ...]:
        """The accuracy signature: precision and policy parameters, and the declared ``signature``."""
        always = PrecisionParameter | PolicyParameter
        return tuple(p.name for p in self.parameters if isinstance(p, always) or p.name in self.signature)

    def signature_of(self, configuration: Configuration) -> tuple[Value, ...]:
        """Return the values of the accuracy signature."""
        return configuration.subset(self.signature_names)

    def roundoff_of(self, configuration: Configuration) -> float:
        """Return the unit roundoff of the coarsest type of a buffer or variable in a configuration."""
        chosen = (precision(str(configuration[p.name])) for p in self.parameters if isinstance(p, PrecisionParameter))
        buffers = (self.precision_of(argument, configuration) for argument in self.arguments)
        return max(p.unit_roundoff for p in (precision("fp64"), *chosen, *buffers) if p is not None)

    def resolve_sizes(self, preset: str = "default", overrides: Mapping[str, int] | None = None) -> Sizes:
        """Return the sizes of a preset with some of them replaced."""
        if not self.sizes:
            raise KernelError(f"{self.called} has no sizes of its own: it is part of an application; tune that")
        if preset not in self.sizes:
            raise UnknownNameError(f"size preset of {self.called}:", preset, self.sizes)
        values = dict(self.sizes[preset])
        for name, value in (overrides or {}).items():
            if name not in values:
                hint = f"{name} is a parameter (-p)" if name in self._by_name else ""
                raise UnknownNameError(f"size of {self.called}:", name, values, hint)
            values[name] = self.whole_size(name, value)
        for name, value in values.items():
            if name in self.forms and value not in self.forms[name]:
                expected = " or ".join(map(str, self.forms[name]))
                raise KernelError(f"size {name}={value} of {self.called} is a switch, expected {expected}")
            if value < 1 and name not in self.forms:
                raise KernelError(f"size {name}={value} of {self.called} is below 1")
        return Sizes(values)

    def whole_size(self, name: str, value: Any) -> int:
        """Return the value of a size as an int; raise KernelError unless it is a whole number."""
        try:
            plain = value.item() if isinstance(value, np.ndarray | np.generic) else value
            if not isinstance(plain, bool):
                return operator.index(int(plain) if isinstance(plain, float) and plain.is_integer() else plain)
        except (TypeError, ValueError):
            pass
        raise KernelError(f"{self.called}: size {name} must be a whole number, not {reprlib.repr(value)}")

    def largest_size(self, name: str) -> int:
        """Return the largest value of a size that the argument of its name can hold.

        A 32-bit type keeps a margin of 2**16, as indices in the last block exceed the size before they are compared.
        """
        types = [a.dtype for a in self.arguments if a.name == name and a.role is Role.SCALAR and a.dtype is not None]
        most = min(int(np.iinfo(each).max) for each in ["int64", *types])
        return most - 2**16 if most.bit_length() in (31, 32) else most

    def shape_of(self, argument: Argument, sizes: Sizes) -> tuple[int, ...]:
        """Return the shape of a buffer at these sizes."""
        return tuple(int(parsed(axis).evaluate(sizes)) for axis in argument.shape)

    def work(self, configuration: Configuration, sizes: Sizes) -> Work:  # noqa: ARG002
        """Return the operations of a configuration and the least bytes it moves; 0 bytes if unknown."""
        return Work(0)

    @abstractmethod
    def search_space(self, sizes: Sizes, constraints: Sequence[Constraint] = ()) -> SearchSpace:
        """Return the valid configurations at these sizes, under further constraints (device limits)."""

    def baseline_values(self) -> dict[str, tuple[Value, ...]]:
        """Return a baseline's values of precision and policy parameters: fp64 (or the widest type), accurate."""
        return baseline_values(self.parameters)

    def reference_values(self) -> dict[str, tuple[Value, ...]]:
        """Return the values of the configurations that answers are compared with: the baseline's."""
        return self.baseline_values()

    def precision_of(self, argument: Argument, configuration: Configuration) -> Precision | None:
        """Return the precision of an argument in memory (fp64 or fp32 for a compound one); None for an integer."""
        chosen = argument.precision
        if chosen is None:
            return None
        return precision(str(configuration[chosen]) if chosen in self._by_name else chosen).in_memory

    def dtype_of(self, argument: Argument, configuration: Configuration) -> np.dtype[Any]:
        """Return the NumPy type of an argument in a configuration."""
        chosen = self.precision_of(argument, configuration)
        return np.dtype(argument.dtype) if chosen is None else chosen.dtype

    def configuration(self, values: Mapping[str, Any]) -> Configuration:
        """Return the full configuration: the given values, and the first value of every other parameter."""
        values = self.full_names(values)
        return Configuration(
            {name: p.parse(values[name]) if name in values else p.values[0] for name, p in self._by_name.items()}
        )

    def full_names(self, given: Mapping[str, Given]) -> dict[str, Given]:
        """Replace names of parameters by their full names; raise MptuneError if a parameter is given twice."""
        try:
            found = [full_name(name, self._by_name, self.called) for name in given]
        except UnknownNameError as error:
            hint = f"{error.name} is a size (--size)" if error.name in self.sizes.get("default", ()) else error.hint
            raise UnknownNameError(error.kind, error.name, error.known, hint, error.aliases) from None
        if twice := [name for name, count in Counter(found).items() if count > 1]:
            raise MptuneError(f"parameter {twice[0]!r} of {self.called} is given twice, once without its kernel's name")
        return dict(zip(found, given.values(), strict=True))

    def own(self, configuration: Mapping[str, Any]) -> Configuration:
        """Return a configuration of declared values only: no other value is ever rendered.

        Equal numbers (1 and 1.0) become the declared one; a truth value is no number.
        """
        own: dict[str, Value] = {}
        for name, parameter in self._by_name.items():
            value = configuration.get(name)
            is_truth, known = isinstance(value, bool), parameter.every_value
            if value not in known or (is_truth and not any(value is each for each in known)):
                raise KernelError(
                    f"{self.called}: {value!r} is none of the values of parameter {name!r}: {reprlib.repr(known)}"
                )
            own[name] = known[known.index(value)]
        return Configuration(own)

    def _check_call(self, function: Any, call: str) -> None:
        """Raise KernelError unless a function takes two arguments, like ``steps(run, size)``."""
        name = call.partition("(")[0]
        if not callable(function):
            raise KernelError(f"{self.called}: {name}= is a function {call}, not {reprlib.repr(function)}")
        with contextlib.suppress(ValueError):  # a callable without a signature
            try:
                inspect.signature(function).bind(None, None)
            except TypeError as error:
                code = getattr(function, "__code__", None)
                where = f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else ""
                call = call.partition(" ->")[0]
                raise KernelError(f"{self.called}: {name} is called as {call}{where}, but: {error}") from error
