"""A kernel with its arguments and parameters as Kernel Tuner is given them, as a definition of mptune's."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import KernelError, UnknownNameError
from mptune.kernel import Constant, In, InOut, Kernel, Scalar
from mptune.kernel.declarations import Argument
from mptune.kernel_tuner.accuracy import Tunable, TunablePrecision
from mptune.precision import precision
from mptune.space.expressions import Expression
from mptune.space.parameters import CategoricalParameter, OrdinalParameter, Parameter, PrecisionParameter

BLOCK_SIZES: Final = ("block_size_x", "block_size_y", "block_size_z")
_LANGUAGES: Final = ("CUDA", "CUPY", "NVCUDA", "HIP")


@dataclass(frozen=True, slots=True)
class ArgumentGiven:
    """An argument of the kernel.

    Attributes:
        name: of the parameter.
        values: an array, or a number as an array without axes.
        is_written: whether the kernel may write it.
        parameter: the parameter that sets its type; "" where its type is that of the array.
    """

    name: str
    values: NDArray[Any]
    is_written: bool
    parameter: str = ""

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
    """Return an argument as an array, without axes if it is a number.

    Raises:
        KernelError: it has no numbers, or its array depends on a parameter.
    """
    if isinstance(argument, TunablePrecision):
        return argument.array
    if isinstance(argument, Tunable):
        raise KernelError("an argument is a Tunable, which mptune does not support; TunablePrecision is")
    found = np.asarray(argument)
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
        if lang is not None and lang.upper() not in _LANGUAGES:
            raise KernelError(f"lang={lang!r} is not supported by mptune; expected one of {', '.join(_LANGUAGES)}")
        self.name, self.text = name, _text_of(source)
        self.bare = name.partition("<")[0].strip()
        self.values = {key: list(values) for key, values in parameters.items()}
        declared = _declared_parameters(self.text, self.bare)
        if len(declared) != len(arguments):
            raise KernelError(f"{self.bare} takes {len(declared)} arguments, not {len(arguments)}")
        self.given = [
            ArgumentGiven(
                known,
                values_of_argument(argument),
                is_written and not isinstance(argument, np.generic | int | float),
                argument.param_key if isinstance(argument, TunablePrecision) else "",
            )
            for (known, is_written), argument in zip(declared, arguments, strict=True)
        ]
        self.precisions = {each.parameter for each in self.given if each.parameter}
        for key in self.precisions - self.values.keys():
            raise UnknownNameError("parameter of TunablePrecision", key, self.values)
        self.constants = {key: np.asarray(value) for key, value in (constants or {}).items()}
        self.shared = (shared or {}).get("size", 0)
        self.defines = defines
        #: The metrics that are errors of observers, by their key.
        self.errors: Mapping[str, str] = {}
        self.is_compared = True
        defaults = [next((key for key in self.values if key.lower() == name), name) for name in BLOCK_SIZES]
        self.blocks = [*(block_size_names or ()), *defaults[len(block_size_names or ()) :]]

    @property
    def inputs(self) -> dict[str, Any]:
        """The arguments and the constants by name, without their shapes."""
        arrays = {each.name: each.values.reshape(-1) if each.values.ndim else each.values for each in self.given}
        return arrays | {name: array.reshape(-1) for name, array in self.constants.items()}

    def kernel(
        self,
        problem_size: Any,
        divisors: Sequence[Any],
        restrictions: Any,
        answer: Sequence[Any] | None,
        *,
        is_verified: bool = False,
    ) -> Kernel:
        """Return the definition.

        A definition has a reference. Without an answer, or where the user's function verifies outputs, the reference is
        the arrays as they were given, and errors mean nothing.
        """
        self.is_compared = answer is not None
        answers = [None] * len(self.given) if answer is None else answer
        is_output = [answer is None or each is not None for each in answers]
        arguments = [
            *(each.declared(flag) for each, flag in zip(self.given, is_output, strict=True)),
            *(Constant(name, array.size, **_type_of(array)) for name, array in self.constants.items()),
        ]
        inputs = self.inputs
        expected: dict[str, Any] = {}
        for each, flag, value in zip(self.given, is_output, answers, strict=True):
            if flag and each.is_written and each.values.ndim:
                known = each.values if value is None or is_verified else np.asarray(value)
                if known.size != each.values.size:
                    raise KernelError(f"the answer of {each.name} has {known.size} elements, not {each.values.size}")
                expected[each.name] = (
                    np.nan_to_num(_widest(known)).reshape(-1) if is_verified else _widest(known).reshape(-1)
                )
        return Kernel(
            name=re.sub(r"\W+", "_", self.bare),
            parameters=[self._parameter(name, values) for name, values in self.values.items()],
            arguments=arguments,
            sizes={"default": {}},
            inputs=_Given(inputs),
            reference=_Given(expected),
            grid=_Grid(problem_size, tuple(divisors), tuple(self.blocks), tuple(self.values)),
            block=_Block(tuple(self.blocks), tuple(self.values)),
            shared_bytes=_Shared(self.shared, tuple(self.values)) if self.shared else 0,
            constraints=[_restriction(each, tuple(self.values)) for each in _listed(restrictions)],
            template=self._template(),
            function=f"{self.bare.rpartition('::')[2]}_tuned",
        )

    def _parameter(self, name: str, values: Sequence[Any]) -> Parameter:
        if name in self.precisions:
            return PrecisionParameter(name, [precision(str(value)).name for value in values])
        if all(isinstance(value, int | float | np.integer | np.floating) for value in values):
            return OrdinalParameter(
                name, sorted({value.item() if isinstance(value, np.generic) else value for value in values})
            )
        return CategoricalParameter(name, list(dict.fromkeys(map(str, values))))

    def _template(self) -> str:
        """Return the template: macros, the user's text, and a kernel that calls the user's."""
        names = self.values if self.defines is None else self.precisions
        lines = [f"#define {name} {{{{ {name} }}}}" for name in names]
        lines += ["#define kernel_tuner 1"] if self.defines is None else []
        for key, value in (self.defines or {}).items():
            if callable(value):
                raise KernelError(
                    f"defines[{key!r}] is a function, which mptune does not support; give a text or a number"
                )
            lines.append(f"#define {key} {_with_braces(str(value), self.values)}")
        if "endraw" in self.text:
            raise KernelError("the source has the word endraw, which ends a raw block of Jinja")
        text = _HALF.sub("", _BOUNDS.sub("", _EXTERN_C.sub("", _HEADERS.sub("", self.text))))
        text = re.sub(r"\b(?:__half|__nv_bfloat16|nv_bfloat16)\b", lambda found: _SHORT[found[0]], text)
        text = re.sub(rf"\b__global__\b(?=[^;{{}}()]*\b{self.bare}\s*\()", "__device__", text)
        passed = ", ".join(_parameter_text(each) for each in self.given)
        called = _with_braces(self.name, self.values) if self.defines is not None else self.name
        # A vector of Kernel Float lies in memory as its elements do.
        passes = "kernel_float::pass({})" if "kernel_float.h" in text else "{}"
        call = f"{called}({', '.join(passes.format(g.name) if g.values.ndim else g.name for g in self.given)})"
        function = f"{self.bare.rpartition('::')[2]}_tuned"
        wrapper = f'extern "C" __global__ void {function}({passed}) {{\n    {call};\n}}\n'
        return "\n".join([*lines, "{% raw %}", text, "{% endraw %}", wrapper])


#: Headers whose types and functions the prelude has.
_HEADERS: Final = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"](?:cuda\w*|hip/\w+|c?math|c?stdio|c?stdlib|c?stdint|inttypes"
    r"|device_launch_parameters)(?:\.h|\.hpp)?[>\"].*$",
    re.MULTILINE,
)
_EXTERN_C: Final = re.compile(r"\bextern\s+\"C\"(?=\s+__global__)")
_BOUNDS: Final = re.compile(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)")
#: Names of the types of 16 bits, which the prelude calls half and bfloat16.
_SHORT: Final = {"__half": "half", "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16"}
_HALF: Final = re.compile(r"\busing\s+half\s*=\s*__half\s*;|\btypedef\s+__half\s+half\s*;")
_CPP: Final = {
    "float64": "double", "float32": "float", "float16": "half", "int8": "signed char", "int16": "short",
    "int32": "int", "int64": "long long", "uint8": "unsigned char", "uint16": "unsigned short",
    "uint32": "unsigned int", "uint64": "unsigned long long", "bool": "bool",
}  # fmt: skip


def _widest(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float64, copy=False) if array.dtype.kind == "f" else array


def _type_of(array: NDArray[Any]) -> dict[str, str]:
    return {"precision": precision(str(array.dtype)).name} if array.dtype.kind == "f" else {"dtype": str(array.dtype)}


def _parameter_text(each: ArgumentGiven) -> str:
    kind = f"{{{{ {each.parameter} }}}}" if each.parameter else _CPP[str(each.values.dtype)]
    if each.values.ndim == 0:
        return f"{kind} {each.name}"
    return f"{'' if each.is_written else 'const '}{kind} *{each.name}"


def _with_braces(text: str, names: Iterable[str]) -> str:
    """Return a text with the names of parameters as expressions of a template."""
    found = "|".join(map(re.escape, names))
    return re.sub(rf"\b(?:{found})\b", lambda match: f"{{{{ {match[0]} }}}}", text) if found else text


def _text_of(source: Any) -> str:
    """Return the text of a source: a text, a file, or the first of a list of files, with the others in front."""
    if isinstance(source, list | tuple):
        texts = [_text_of(each) for each in source]
        return "\n".join([*texts[1:], texts[0]])
    if callable(source):
        raise KernelError("kernel_source is a function, which mptune does not support; give its text, with macros")
    if isinstance(source, Path) or not re.search(r"[\n{]", str(source)):
        try:
            return Path(source).read_text(encoding="utf-8")
        except OSError as error:
            raise KernelError(f"kernel_source {source}: {error.strerror}") from None
    return str(source)


_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def _declared_parameters(text: str, name: str) -> list[tuple[str, bool]]:
    """Return the parameters of a kernel in order: their names, and whether a pointer's memory may be written.

    Raises:
        KernelError: the text has no such kernel.
    """
    text = _BOUNDS.sub("", _COMMENT.sub(" ", text))
    found = re.search(rf"\b__global__\b[^;{{}}()]*\b{re.escape(name.rpartition('::')[2])}\s*\(", text)
    if found is None:
        raise UnknownNameError("kernel", name, re.findall(r"\b__global__\b[^;{}()]*\b(\w+)\s*\(", text))
    depth, start, parts = 1, found.end(), list[str]()
    for place in range(found.end(), len(text)):
        depth += (text[place] in "([<{") - (text[place] in ")]>}")
        if depth == 0 or (depth == 1 and text[place] == ","):
            parts.append(text[start:place])
            start = place + 1
        if depth == 0:
            break
    declared = [re.sub(r"\[\w*\]", "", part.partition("=")[0]) for part in parts if part.strip()]
    constant = r"\bconst\b[^*]*\*|\bvec_ptr\s*<\s*const\b"
    return [(re.findall(r"\w+", each)[-1], not re.search(constant, each)) for each in declared]


def _listed(restrictions: Any) -> list[Any]:
    if restrictions is None:
        return []
    return list(restrictions) if isinstance(restrictions, list | tuple) else [restrictions]


def _restriction(given: Any, names: Sequence[str]) -> Any:
    if isinstance(given, str):
        return given
    if not callable(given):
        raise KernelError(f"restriction {given!r} is not supported by mptune; expected a text or a function")
    return _Restriction(given, names)


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


class _Given:
    """A function that always returns the same arrays: those that were given."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.arrays = dict(arrays)

    def __call__(self, *_: Any) -> dict[str, Any]:
        return dict(self.arrays)


def _values(c: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: c[name] for name in names}


def evaluated(given: Any, values: Mapping[str, Any]) -> Any:
    """Return a number: as it is, of a function of the values, or of an expression."""
    if callable(given):
        return given(values)
    if isinstance(given, str):
        return Expression(given).evaluate(values)
    return given


class _Grid:
    """The blocks of a configuration: the problem size over the divisors, rounded up."""

    def __init__(self, problem_size: Any, divisors: Sequence[Any], blocks: Sequence[str], names: Sequence[str]) -> None:
        self.problem_size, self.divisors, self.blocks, self.names = problem_size, divisors, blocks, names

    def __call__(self, c: Any) -> list[int]:
        values = _values(c, self.names)
        given = evaluated(self.problem_size, values)
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


class _Block:
    """The threads of a configuration's blocks."""

    def __init__(self, blocks: Sequence[str], names: Sequence[str]) -> None:
        self.blocks, self.names = blocks, names

    def __call__(self, c: Any) -> list[int]:
        values = _values(c, self.names)
        return [int(values.get(name, default)) for name, default in zip(self.blocks, (256, 1, 1), strict=False)]


class _Shared:
    """The bytes of dynamic shared memory of a configuration."""

    def __init__(self, given: Any, names: Sequence[str]) -> None:
        self.given, self.names = given, names

    def __call__(self, c: Any) -> int:
        return int(evaluated(self.given, _values(c, self.names)))
