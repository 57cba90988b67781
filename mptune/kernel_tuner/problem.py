"""A kernel with its arguments and parameters as Kernel Tuner is given them, as a definition of mptune's."""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import KernelError, UnknownNameError
from mptune.kernel import Constant, In, InOut, Kernel, Scalar
from mptune.kernel.declarations import Argument
from mptune.kernel_tuner.accuracy import Tunable, TunablePrecision
from mptune.kernel_tuner.source import Source
from mptune.precision import precision
from mptune.source.flags import OPENCL_C
from mptune.space.constraints import compile_constraint
from mptune.space.expressions import Expression
from mptune.space.parameters import CategoricalParameter, OrdinalParameter, Parameter, PrecisionParameter

BLOCK_SIZES: Final = ("block_size_x", "block_size_y", "block_size_z")
#: An argument that stands for the outputs where there is no answer to compare them with.
_NOTHING: Final = "mptune_nothing"
#: Bytes from which another process maps an array, instead of getting a copy.
_LARGE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ArgumentGiven:
    """An argument of the kernel.

    Attributes:
        name: of the parameter.
        values: an array, or a number as an array without axes.
        is_written: whether the kernel may write it.
        parameter: the parameter that sets its type; "" where its type is that of the array.
        options: of an argument that is one of several arrays: those.
        tunable: chooses among the options.
    """

    name: str
    values: NDArray[Any]
    is_written: bool
    parameter: str = ""
    options: tuple[ArgumentGiven, ...] = ()
    tunable: Tunable | None = None

    @property
    def all(self) -> tuple[ArgumentGiven, ...]:
        """The options, or the argument itself."""
        return self.options or (self,)

    def passed_as(self, values: Mapping[str, Any]) -> str:
        """Return the name that is passed in a configuration."""
        if self.tunable is None:
            return self.name
        return self.options[list(self.tunable.arrays).index(self.tunable.option(values))].name

    def declared(self, is_compared: bool) -> Argument:
        """Return its declaration."""
        is_float = self.values.dtype.kind == "f"
        types = {"precision": self.parameter or precision(str(self.values.dtype)).name} if is_float else {}
        types |= {} if is_float else {"dtype": str(self.values.dtype)}
        if self.values.ndim == 0:
            return Scalar(self.name, **types)
        if self.is_written:
            return InOut(self.name, self.values.size, compared=is_compared, **types)
        return In(self.name, self.values.size, **types)


def values_of_argument(argument: Any) -> NDArray[Any]:
    """Return an argument as an array, without axes if it is a number; complex numbers are pairs of real ones.

    Raises:
        KernelError: it has no numbers.
    """
    if isinstance(argument, TunablePrecision):
        return argument.array
    if hasattr(argument, "get") and hasattr(argument, "__cuda_array_interface__"):
        argument = argument.get()  # CuPy's arrays
    found = np.asarray(argument)
    if found.dtype.kind == "c" and found.ndim:
        found = np.ascontiguousarray(found).view(found.real.dtype)
    if found.ndim and not found.size:
        found = np.zeros(1, found.dtype)  # no kernel reads it
    if found.dtype.kind not in "fiub":
        raise KernelError(f"an argument is of type {found.dtype}; expected floating-point or whole numbers")
    return found


class Problem:
    """A kernel, its arguments and its parameters."""

    def __init__(
        self,
        name: str,
        source: Any,
        arguments: Sequence[Any],
        parameters: Mapping[str, Sequence[Any]],
        lang: str | None,
        constants: Mapping[str, Any] | None,
        shared: Mapping[str, Any] | None,
        defines: Mapping[str, Any] | None,
        block_size_names: Sequence[str] | None,
    ) -> None:
        self.values = {key: list(values) for key, values in parameters.items()}
        first = {key: values[0] for key, values in self.values.items() if values}
        self.source = Source(name, source, lang, defines, first, len(arguments))
        self.given = [
            _argument(known, is_written and not isinstance(argument, np.generic | int | float), argument)
            for (known, _, is_written), argument in zip(self.source.declared, arguments, strict=True)
        ]
        self.precisions = {each.parameter for each in self.given if each.parameter}
        for key in self.precisions - self.values.keys():
            raise UnknownNameError("parameter of TunablePrecision", key, self.values)
        self.constants = {key: np.asarray(value) for key, value in (constants or {}).items()}
        if self.constants and self.source.language != "CUDA":
            raise KernelError(f"cmem_args are arrays in CUDA's constant memory, which {self.source.language} has not")
        self.shared = (shared or {}).get("size", 0)
        #: The metrics that are errors of observers, by their key.
        self.errors: Mapping[str, str] = {}
        self.is_compared = True
        self._grid = _Grid(None, (), ())
        defaults = [next((key for key in self.values if key.lower() == name), name) for name in BLOCK_SIZES]
        self.blocks = [*(block_size_names or ()), *defaults[len(block_size_names or ()) :]]

    @property
    def inputs(self) -> dict[str, Any]:
        """The arguments and the constants by name, without their shapes."""
        given = [option for each in self.given for option in each.all]
        arrays = {each.name: each.values.reshape(-1) if each.values.ndim else each.values for each in given}
        return arrays | {name: array.reshape(-1) for name, array in self.constants.items()}

    def kernel(
        self,
        problem_size: Any,
        divisors: Sequence[Any],
        restrictions: Any,
        answer: Sequence[Any] | None,
        *,
        is_verified: bool = False,
        excluded: Sequence[str] = (),
    ) -> Kernel:
        """Return the definition.

        A definition has a reference. Without an answer, or where the user's function verifies outputs, the reference is
        the arrays as they were given, and errors mean nothing.
        """
        self.is_compared = answer is not None
        answers = [None] * len(self.given) if answer is None else [_on_host(each) for each in answer]
        answered = [each is not None or (is_verified and answer is None) for each in answers]
        given = [self._written(each, flag) for each, flag in zip(self.given, answered, strict=True)]
        outputs = [each.name for each, flag in zip(given, answered, strict=True) if flag and each.is_written]
        if not outputs and self.source.language != "OpenCL":
            given.append(ArgumentGiven(_NOTHING, np.zeros(1), is_written=True))
            answers = [*answers, None]
            outputs = [_NOTHING]
        elif not outputs:  # a kernel as it stands takes no further argument, so the smallest array stands for all
            written = [option for each in given if each.is_written for option in each.all]
            written = written or [self._written(option, True) for each in given for option in each.all]
            smallest = min((each for each in written if each.values.ndim), key=lambda each: each.values.size)
            given = [smallest if each.name == smallest.name else each for each in given]
            outputs = [smallest.name]
        expected: dict[str, Any] = {}
        for each, value in zip(given, answers, strict=True):
            for option in each.all if each.name in outputs or each.options else ():
                if option.name not in outputs:
                    continue
                known = option.values if value is None or is_verified else np.asarray(value)
                if known.dtype.kind == "c":
                    known = np.ascontiguousarray(known).view(known.real.dtype)
                if known.size != option.values.size:
                    raise KernelError(f"the answer of {each.name} has {known.size} elements, not {option.values.size}")
                expected[option.name] = known.reshape(-1)
        names, grid = tuple(self.values), _Grid(problem_size, tuple(divisors), tuple(self.blocks))
        self._grid = grid
        is_c = self.source.language == "C"
        self.source.arguments, self.source.blocks, self.source.grid = given, self.blocks, grid.of
        self.source.parameters = {
            key: {precision(str(value)).cpp: value for value in values} if key in self.precisions else {}
            for key, values in self.values.items()
        }
        grid.values = {
            key: {precision(str(value)).name: value for value in self.values[key]} for key in self.precisions
        }
        grid.names = names
        block = [name if name in names else default for name, default in zip(self.blocks, (256, 1, 1), strict=False)]
        return Kernel(
            name=re.sub(r"\W+", "_", self.source.bare),
            parameters=[self._parameter(name, values) for name, values in self.values.items()],
            arguments=[
                *(option.declared(option.name in outputs) for each in given for option in each.all),
                *(Constant(name, array.size, **_type_of(array)) for name, array in self.constants.items()),
            ],
            sizes={"default": {}},
            inputs=_Given(self.inputs | ({_NOTHING: np.zeros(1)} if _NOTHING in outputs else {})),
            reference=_Given(expected, is_reference=True),
            metric="NRMSE" if self.is_compared else "MaxAE",
            grid=[1] if is_c else grid,
            block=[1] if is_c else block,
            shared_bytes=_Shared(self.shared, grid) if self.shared else 0,
            constraints=[
                *(as_restriction(each, self.values) for each in listed_restrictions(restrictions)),
                *([_NotAmong(excluded, self._grid)] if excluded else []),
            ],
            template=self.source,
            language=OPENCL_C if self.source.language == "OpenCL" else "C++",
            function=self.source.function,
        )

    def own(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a configuration as the user gave them."""
        return self._grid.own(configuration)

    def _written(self, each: ArgumentGiven, is_answered: bool) -> ArgumentGiven:
        """Return an argument that is written if an answer says so."""
        if each.is_written or not is_answered or not each.values.ndim:
            return each
        return ArgumentGiven(each.name, each.values, True, each.parameter, each.options, each.tunable)

    def _parameter(self, name: str, values: Sequence[Any]) -> Parameter:
        if name in self.precisions:
            return PrecisionParameter(name, [precision(str(value)).name for value in values])
        if all(isinstance(value, int | float | np.integer | np.floating) for value in values):
            return OrdinalParameter(
                name, sorted({value.item() if isinstance(value, np.generic) else value for value in values})
            )
        return CategoricalParameter(name, list(dict.fromkeys(map(str, values))))


def _argument(name: str, is_written: bool, argument: Any) -> ArgumentGiven:
    if isinstance(argument, Tunable):
        arrays = [values_of_argument(each) for each in argument.arrays.values()]
        options = tuple(ArgumentGiven(f"{name}_{i}", array, is_written) for i, array in enumerate(arrays))
        return ArgumentGiven(name, arrays[0], is_written, options=options, tunable=argument)
    values = values_of_argument(argument)
    return ArgumentGiven(name, values, is_written, argument.param_key if isinstance(argument, TunablePrecision) else "")


def _on_host(answer: Any) -> Any:
    if isinstance(answer, Tunable):
        raise KernelError("an answer is a Tunable, which mptune does not support; give an array")
    return answer.get() if hasattr(answer, "__cuda_array_interface__") else answer


def _widest(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float64, copy=False) if array.dtype.kind == "f" else array


def _type_of(array: NDArray[Any]) -> dict[str, str]:
    return {"precision": precision(str(array.dtype)).name} if array.dtype.kind == "f" else {"dtype": str(array.dtype)}


def listed_restrictions(restrictions: Any) -> list[Any]:
    """Return restrictions as a list, whichever way they are given."""
    if restrictions is None:
        return []
    is_pair = isinstance(restrictions, tuple) and len(restrictions) == 2 and _is_constraint(restrictions[0])
    return list(restrictions) if isinstance(restrictions, list | tuple) and not is_pair else [restrictions]


def _is_constraint(given: Any) -> bool:
    """Whether an object is one of python-constraint's, whose package need not be installed."""
    return any(kind.__name__ == "Constraint" and "constraint" in kind.__module__ for kind in type(given).__mro__)


def as_restriction(given: Any, values: Mapping[str, Sequence[Any]]) -> Any:
    """Return a restriction as a constraint of mptune's.

    Raises:
        KernelError: it is neither a text nor callable.
    """
    if isinstance(given, str):
        return given
    if isinstance(given, tuple) and len(given) == 2 and _is_constraint(given[0]):
        return _ConstraintObject(given[0], list(given[1]), values)
    if _is_constraint(given):
        return _ConstraintObject(given, list(values), values)
    if not callable(given):
        raise KernelError(f"restriction {given!r} is not supported by mptune; expected a text or a function")
    return _Restriction(given, tuple(values))


class _Restriction:
    """A restriction that takes a dict of all values, or some by name."""

    def __init__(self, function: Callable[..., Any], names: Sequence[str]) -> None:
        self.function, self.names = function, names
        parameters = inspect.signature(function).parameters
        self.is_by_name = bool(parameters) and set(parameters) <= set(names)
        self.__qualname__ = getattr(function, "__qualname__", "restriction")

    def __call__(self, **values: Any) -> bool:
        if self.is_by_name:
            values = {name: values[name] for name in inspect.signature(self.function).parameters}
            return bool(self.function(**values))
        return bool(self.function({name: values[name] for name in self.names}))


class _ConstraintObject:
    """A restriction that is an object of python-constraint, over some parameters."""

    def __init__(self, given: Any, names: list[str], domains: Mapping[str, Sequence[Any]]) -> None:
        self.given, self.names, self.domains = given, names, domains
        self.__qualname__ = type(given).__name__

    def __call__(self, **values: Any) -> bool:
        return bool(self.given(self.names, {name: [*self.domains[name]] for name in self.names}, values))


class Allowed:
    """A restriction over all parameters, also those with a single value."""

    def __init__(self, given: Any, values: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any]) -> None:
        self.constraint = compile_constraint(as_restriction(given, values), [*values])
        self.fixed = dict(fixed)
        self.__qualname__ = self.constraint.text

    def __call__(self, **values: Any) -> bool:  # noqa: D102
        return self.constraint.holds({**self.fixed, **values})


class _NotAmong:
    """Holds for configurations that a cache has not."""

    def __init__(self, keys: Sequence[str], grid: _Grid) -> None:
        self.keys, self.grid = frozenset(keys), grid

    def __call__(self, **values: Any) -> bool:
        return ",".join(map(str, self.grid.own(values).values())) not in self.keys


class _Given:
    """A function that always returns the same arrays: those that were given.

    Other processes map large arrays, from memory that is freed with the object.
    """

    #: Read by :mod:`mptune.data.data`.
    keeps_types = True

    def __init__(self, arrays: Mapping[str, Any], *, is_reference: bool = False) -> None:
        self.arrays = dict(arrays)
        self._is_reference = is_reference
        self._files: dict[str, IO[bytes]] = {}

    def __call__(self, *_: Any) -> dict[str, Any]:
        return {name: _widest(array) for name, array in self.arrays.items()} if self._is_reference else {**self.arrays}

    def __reduce__(self) -> tuple[Any, ...]:
        return _mapped, ({name: self._place(name, each) for name, each in self.arrays.items()}, self._is_reference)

    def _place(self, name: str, array: Any) -> Any:
        """Return an array, or the file and the rest that another process maps it by."""
        if not hasattr(os, "memfd_create") or getattr(array, "nbytes", 0) < _LARGE:
            return array
        if name not in self._files:
            file = self._files[name] = os.fdopen(os.memfd_create("mptune-array", os.MFD_CLOEXEC), "r+b")
            file.write(np.ascontiguousarray(array).view(np.uint8).data)
            file.flush()
        return f"/proc/{os.getpid()}/fd/{self._files[name].fileno()}", array.dtype, array.shape


def _mapped(places: Mapping[str, Any], is_reference: bool) -> _Given:
    arrays = {
        name: np.memmap(place[0], place[1], "r", shape=place[2]) if isinstance(place, tuple) else place
        for name, place in places.items()
    }
    return _Given(arrays, is_reference=is_reference)


def evaluated(given: Any, values: Mapping[str, Any]) -> Any:
    """Return a number: as it is, of a function of the values, or of an expression."""
    if callable(given):
        return given(values)
    if isinstance(given, str):
        return Expression(given).evaluate(values)
    return given


class _Grid:
    """The blocks of a configuration: the problem size over the divisors, rounded up."""

    def __init__(self, problem_size: Any, divisors: Sequence[Any], blocks: Sequence[str]) -> None:
        self.problem_size, self.divisors, self.blocks = problem_size, divisors, blocks
        self.names: Sequence[str] = ()
        #: The user's own names of types.
        self.values: Mapping[str, Mapping[str, Any]] = {}

    def own(self, c: Any) -> dict[str, Any]:
        """Return the values of parameters as the user gave them."""
        return {name: self.values.get(name, {}).get(str(c[name]), c[name]) for name in self.names}

    def __call__(self, c: Any) -> list[int]:
        return self.of(self.own(c))

    def of(self, values: Mapping[str, Any]) -> list[int]:
        """Return the blocks along each axis."""
        given = evaluated(self.problem_size, dict(values))
        sizes = list(given) if np.iterable(given) and not isinstance(given, str) else [given]
        found = []
        for axis, size in enumerate(sizes):
            divisor = self.divisors[axis]
            if divisor is None:
                number = values.get(self.blocks[axis], 1)
            elif isinstance(divisor, list | tuple):
                number = math.prod(evaluated(each, values) for each in divisor)
            else:
                number = evaluated(divisor, values)
            found.append(math.ceil(float(evaluated(size, values)) / float(number)))
        return found


class _Shared:
    """The bytes of dynamic shared memory of a configuration."""

    def __init__(self, given: Any, grid: _Grid) -> None:
        self.given, self.grid = given, grid

    def __call__(self, c: Any) -> int:
        return int(evaluated(self.given, self.grid.own(c)))
