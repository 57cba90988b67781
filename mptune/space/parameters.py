"""Tunable parameters: name, ordered values, and conversion of text to a value."""

from __future__ import annotations

import copy
import itertools
import math
import numbers
import re
import reprlib
from abc import ABC
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ExpressionError, MptuneError, UnknownNameError, did_you_mean
from mptune.precision import COMPOUND, EVERY_PRECISION, POLICIES, PRECISIONS, Precision, is_precision, precision
from mptune.space.configuration import Value
from mptune.space.expressions import FUNCTIONS, Expression

Given = TypeVar("Given")

#: Limits on the parameters of a space, the values of a parameter, and the elements of a permutation.
MAX_PARAMETERS: Final = 1000
_MAX_VALUES: Final = 1_000_000
_MAX_PERMUTED: Final = 8
TRUTHS: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


def is_identifier(name: str) -> bool:
    """Whether a name is a C++ identifier."""
    return re.fullmatch(r"[A-Za-z_]\w*", name) is not None


@dataclass(frozen=True, slots=True)
class Parameter(ABC):
    """The base class of parameters."""

    name: str  #: an identifier
    values: tuple[Value, ...]  #: the values in order, without duplicates
    log_scale: bool = False  #: whether distances are measured between the logarithms of values

    kind: ClassVar[str] = "parameter"
    is_ordered: ClassVar[bool] = True  #: whether the values have an order

    def __post_init__(self) -> None:
        if not is_identifier(str(self.name)):
            raise MptuneError(f"parameter name {self.name!r} is not an identifier")
        values = tuple(self._canonical(value) for value in self.values)
        object.__setattr__(self, "values", values)
        if not values:
            raise MptuneError(f"parameter {self.name} has no values")
        if len(values) > _MAX_VALUES:
            raise MptuneError(f"parameter {self.name} has {len(values)} values; at most {_MAX_VALUES} are supported")
        _require_distinct(self.name, values)
        if self.log_scale and not (self.is_numeric and all(float(v) > 0 for v in values)):  # type: ignore[arg-type]
            raise MptuneError(f"parameter {self.name}: a log scale needs positive numbers")

    def _with(self, **changes: Any) -> Self:
        other = copy.copy(self)
        for name, value in changes.items():
            object.__setattr__(other, name, value)
        return other

    def renamed(self, name: str) -> Self:
        """Return the parameter under another name, also a dotted one (``KERNEL.PARAMETER`` in an application)."""
        return self._with(name=name)

    @property
    def is_numeric(self) -> bool:
        """Whether every value is a number; truth values are no numbers."""
        return all(isinstance(v, int | float) and not isinstance(v, bool) for v in self.values)

    @property
    def every_value(self) -> tuple[Value, ...]:
        """The values, including values on request."""
        return self.values

    def parse(self, raw: Any) -> Value:
        """Return the value for ``raw``, a value, its text or an alias; raise UnknownNameError if there is none."""
        try:
            value = self._read(raw)
        except (MptuneError, ValueError, TypeError, OverflowError):
            value = None
        known = self.every_value
        if value is not None and value in known:
            return known[known.index(value)]
        raise UnknownNameError(
            f"value of parameter {self.name}:", raw, [str(v) for v in known], aliases=self._aliases()
        )

    def encoded(self) -> NDArray[np.float64]:
        """Return the features of each value for a model: columns of numbers in [0, 1], (n_values, n_columns).

        Numbers are encoded by value (by log2 on a logarithmic scale), categories one-hot, precisions by log2 of unit
        roundoff, bytes and operations, other ordered values by rank, permutations by the position of each element.
        Constant columns are left out.
        """
        columns = np.array(self._columns(), dtype=np.float64)
        columns = columns[np.ptp(columns, axis=1) > 0]
        low, high = columns.min(axis=1, keepdims=True), columns.max(axis=1, keepdims=True)
        return np.asarray(((columns - low) / (high - low)).T)

    def steps(self, code: int) -> NDArray[np.int64]:
        """Return the codes one step before and after a value; without an order, the codes of all values."""
        if not self.is_ordered:
            return np.arange(len(self.values), dtype=np.int64)
        return np.array([c for c in (code - 1, code + 1) if 0 <= c < len(self.values)], dtype=np.int64)

    def restricted(self, values: Sequence[Any]) -> Parameter:
        """Return the parameter with some of its values, in its own order."""
        wanted = {self.parse(value) for value in listed(values)}
        kept = tuple(value for value in self.every_value if value in wanted)
        if not kept:
            raise MptuneError(f"parameter {self.name} is restricted to no values")
        return self._with(values=kept)

    def _columns(self) -> Any:
        """Return the unscaled columns of :meth:`encoded`, (n_columns, n_values)."""
        if self.is_numeric:
            return [np.log2(self.values) if self.log_scale else self.values]
        return [range(len(self.values))]

    def _aliases(self) -> tuple[str, ...]:
        return ()

    def _canonical(self, value: Any) -> Value:
        return _plain(self.name, value)

    def _read(self, raw: Any) -> Value | None:
        """Return the value of user input, None if there is none."""
        if isinstance(raw, str):
            for value in self.values:
                if str(value) == raw.strip():
                    return value
            return _number(raw) if self.is_numeric else None
        return self._canonical(raw)


def _require_distinct(name: str, values: Sequence[Value]) -> None:
    if len(set(values)) < len(values):
        (twice, _), *_ = Counter(values).most_common(1)
        raise MptuneError(f"parameter {name} has the value {twice!r} twice")


def _plain(name: str, value: Any) -> Value:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | str):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return float(value)
    if isinstance(value, list | tuple) and all(isinstance(entry, int) for entry in value):
        return tuple(int(entry) for entry in value)
    raise MptuneError(f"parameter {name}: {value!r} is not a finite number, text, truth value or permutation")


def listed(values: Any) -> tuple[Any, ...]:
    """Return the entries of an iterable; a text, a mapping, or a value that is not iterable, is the only entry."""
    is_one = isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable)
    return (values,) if is_one else tuple(values)


def _require_numbers(name: str, kind: Any, **given: Any) -> None:
    wanted = "an integer" if kind is numbers.Integral else "a number"
    for what, number in given.items():
        if isinstance(number, bool) or not isinstance(number, kind) or not math.isfinite(float(number)):
            raise MptuneError(f"parameter {name}: {what} needs {wanted}, not {number!r}")


def _number(text: str) -> Value:
    try:
        return int(text.strip(), 0)
    except ValueError:
        return float(text)


def _is_exponential(values: Sequence[float]) -> bool:
    """Whether there are three or more positive values, spaced more evenly in the logarithm."""
    if len(values) < 3 or min(values) <= 0:
        return False
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    plain, logarithmic = (float(gaps.std() / gaps.mean()) for gaps in map(np.diff, (ordered, np.log2(ordered))))
    return logarithmic < plain - 1e-9


class OrdinalParameter(Parameter):
    """Values with an order, usually numbers.

    ``log`` says whether the scale is logarithmic; by default it is if the values are spaced exponentially.
    """

    kind: ClassVar[str] = "ordinal"

    def __init__(self, name: str, values: Iterable[Value], log: bool | None = None) -> None:
        Parameter.__init__(self, name, listed(values), bool(log))
        if log is None and self.is_numeric:
            numeric = [float(v) for v in self.values if isinstance(v, int | float)]
            object.__setattr__(self, "log_scale", _is_exponential(numeric))


class IntegerParameter(Parameter):
    """Every ``step``-th integer from ``low`` up to ``high``."""

    kind: ClassVar[str] = "integer"

    def __init__(self, name: str, low: int, high: int, step: int = 1, log: bool = False) -> None:
        _require_numbers(name, numbers.Integral, low=low, high=high, step=step)
        if not (step >= 1 and 0 <= (high - low) // step < _MAX_VALUES):
            raise MptuneError(f"parameter {name}: {low}, {high}, {step} is no range of 1 to {_MAX_VALUES} integers")
        Parameter.__init__(self, name, tuple(range(low, high + 1, step)), log)


class RealParameter(Parameter):
    """``steps`` evenly spaced numbers (in the logarithm with ``log``) from ``low`` to ``high``, both included."""

    kind: ClassVar[str] = "real"

    def __init__(self, name: str, low: float, high: float, steps: int, log: bool = False) -> None:
        _require_numbers(name, numbers.Real, low=low, high=high)
        _require_numbers(name, numbers.Integral, steps=steps)
        if not 2 <= steps <= _MAX_VALUES:
            raise MptuneError(f"parameter {name}: steps needs an integer from 2 to {_MAX_VALUES}, not {steps}")
        if high <= low or (log and low <= 0):
            raise MptuneError(f"parameter {name}: needs low < high{' and 0 < low' if log else ''}, not {low}, {high}")
        spaced = np.geomspace(low, high, int(steps)) if log else np.linspace(low, high, int(steps))
        Parameter.__init__(self, name, (float(low), *map(float, spaced[1:-1]), float(high)), log)

    def _read(self, raw: Any) -> Value | None:
        number = float(raw)
        nearest = min(self.values, key=lambda value: abs(float(value) - number))  # type: ignore[arg-type]
        return nearest if math.isclose(float(nearest), number, rel_tol=1e-6, abs_tol=1e-12) else None  # type: ignore[arg-type]


class CategoricalParameter(Parameter):
    """Values without an order."""

    kind: ClassVar[str] = "categorical"
    is_ordered: ClassVar[bool] = False

    def __init__(self, name: str, values: Iterable[Value]) -> None:
        Parameter.__init__(self, name, listed(values))

    @property
    def is_numeric(self) -> bool:
        """False: a category is no quantity, even if it is written as a number."""
        return False

    def _columns(self) -> Any:
        return np.eye(len(self.values))


class BuildParameter(CategoricalParameter):
    """Compilers and sets of compiler flags (:mod:`mptune.source.flags`)."""

    kind: ClassVar[str] = "build"


class BooleanParameter(Parameter):
    """False or true; numbers 0 and 1 and the usual words are accepted."""

    kind: ClassVar[str] = "boolean"

    def __init__(self, name: str) -> None:
        Parameter.__init__(self, name, (False, True))

    def _read(self, raw: Any) -> Value | None:
        return TRUTHS.get(str(raw).strip().lower())


class PermutationParameter(Parameter):
    """All orders of 0, ..., n - 1, as tuples; n is at most 8."""

    kind: ClassVar[str] = "permutation"
    is_ordered: ClassVar[bool] = False

    def __init__(self, name: str, n: int) -> None:
        _require_numbers(name, numbers.Integral, n=n)
        if not 1 <= n <= _MAX_PERMUTED:
            raise MptuneError(f"parameter {name}: n needs an integer from 1 to {_MAX_PERMUTED}, not {n}")
        Parameter.__init__(self, name, tuple(itertools.permutations(range(n))))

    def steps(self, code: int) -> NDArray[np.int64]:
        """Return the codes of the permutations with two adjacent elements exchanged."""
        order = self.values[code]
        assert isinstance(order, tuple)
        swapped = [(*order[:k], order[k + 1], order[k], *order[k + 2 :]) for k in range(len(order) - 1)]
        return np.array(sorted(self.values.index(other) for other in swapped), dtype=np.int64)

    def _columns(self) -> Any:
        return np.argsort(self.values, axis=1).T

    def _read(self, raw: Any) -> Value | None:
        return tuple(int(entry) for entry in (re.findall(r"\d+", raw) if isinstance(raw, str) else raw))


@dataclass(frozen=True, slots=True, init=False)
class PrecisionParameter(Parameter):
    """Precisions by canonical name; aliases ("double") are accepted.

    Args:
        name: an identifier.
        values: the precisions to search.
        on_request: precisions of :data:`mptune.COMPOUND` that are searched only if the parameter is restricted to them
            (``-p``). The template must sum in ``local<T>`` and multiply in ``mp::factor<T>``.
    """

    kind: ClassVar[str] = "precision"
    on_request: tuple[Value, ...] = ()

    def __init__(self, name: str, values: Iterable[Any], *, on_request: Iterable[Any] = ()) -> None:
        Parameter.__init__(self, name, listed(values))
        names = on_request if isinstance(on_request, str) else tuple(on_request)  # of COMPOUND, a mapping
        asked = tuple(self._canonical(value) for value in listed(names))
        _require_distinct(name, (*self.values, *asked))
        if compound := [value for value in self.values if value in COMPOUND]:
            known = [str(value) for value in (*self.values, *asked) if value in COMPOUND]
            raise MptuneError(f"parameter {name}: {compound[0]} is a compound precision: declare on_request={known}")
        object.__setattr__(self, "on_request", asked)

    @classmethod
    def searched(cls, name: str, values: Sequence[str]) -> Self:
        """Return the parameter of a finished search; compound precisions among the values are on request."""
        names = tuple(precision(value).name for value in values)
        asked = [each for each in names if each in COMPOUND]
        plain = [each for each in names if each not in COMPOUND]
        return cls(name, plain or ["fp64"], on_request=asked)._with(values=names)

    @property
    def every_value(self) -> tuple[Value, ...]:
        """The precisions, including precisions on request, most accurate first."""
        missing = tuple(value for value in self.on_request if value not in self.values)
        return tuple(sorted((*self.values, *missing), key=_rank, reverse=True)) if missing else self.values

    def _aliases(self) -> tuple[str, ...]:
        return tuple(alias for value in self.every_value for alias in precision(str(value)).aliases)

    def _columns(self) -> Any:
        entries = [precision(str(value)) for value in self.values]
        return np.log2([(p.unit_roundoff, p.size_bytes, p.flops_of_fma) for p in entries]).T

    def _canonical(self, value: Any) -> Value:
        return precision(value).name

    def _read(self, raw: Any) -> Value | None:
        return precision(raw).name


class PolicyParameter(Parameter):
    """Policies of transcendental functions, the most accurate first."""

    kind: ClassVar[str] = "policy"

    def __init__(self, name: str, values: Iterable[str] = POLICIES) -> None:
        Parameter.__init__(self, name, listed(values))

    def _canonical(self, value: Any) -> Value:
        if value not in POLICIES:
            raise UnknownNameError("policy", value, POLICIES)
        return str(value)


def parameter_of(name: str, values: Iterable[Value], kind: str = "") -> Parameter:
    """Return a parameter for values read from a file; without a ``kind``, the kind follows from the values.

    Numbers give an ordinal parameter in ascending order, distinct precisions a precision parameter, policies a policy
    parameter, other texts a categorical parameter. The name may be dotted (``KERNEL.PARAMETER`` in an application).
    """
    kernel, _, own = name.rpartition(".")
    if is_identifier(kernel):
        return parameter_of(own, values, kind).renamed(name)
    unique = tuple(dict.fromkeys(values))
    if kind == PrecisionParameter.kind:
        for value in unique:
            precision(str(value))
    if kind == CategoricalParameter.kind:
        return CategoricalParameter(name, unique)
    if all(isinstance(v, bool) for v in unique):
        return BooleanParameter(name) if len(unique) == 2 else CategoricalParameter(name, unique)
    if all(isinstance(v, int | float) for v in unique):
        return OrdinalParameter(name, tuple(sorted(unique)))
    permuted = {len(v) if isinstance(v, tuple) and sorted(v) == list(range(len(v))) else 0 for v in unique}
    if len(permuted) == 1 and 1 <= min(permuted) <= _MAX_PERMUTED:
        return PermutationParameter(name, min(permuted))
    texts = [v for v in unique if isinstance(v, str)]
    if len(texts) == len(unique):
        if all(map(is_precision, texts)) and len({precision(text) for text in texts}) == len(texts):
            return PrecisionParameter.searched(name, texts)
        if len(texts) > 1 and all(text in POLICIES for text in texts):
            return PolicyParameter(name, tuple(p for p in POLICIES if p in texts))
    return CategoricalParameter(name, unique)


def parse_values(text: str) -> list[Value]:
    """Return the values of a T1 "Values" text such as ``"[1, 2] + list(range(32, 65, 32))"``."""
    expression = Expression(text)
    if expression.names:
        name = min(expression.names)
        raise ExpressionError(f"names are not allowed in values: {name!r} in {text!r}{did_you_mean(name, FUNCTIONS)}")
    found = expression.evaluate({})
    if not isinstance(found, list | tuple | range):
        raise ExpressionError(f"values need a list, not {reprlib.repr(found)}: {reprlib.repr(text)}")
    if found[_MAX_VALUES:]:
        raise ExpressionError(f"more than {_MAX_VALUES} values: {reprlib.repr(text)}")
    for value in found:
        if not isinstance(value, int | float | str | tuple):
            raise ExpressionError(f"{reprlib.repr(value)} is not a value of a parameter: {reprlib.repr(text)}")
    return list(found)


def full_name(name: str, known: Collection[str], owner: str) -> str:
    """Return the full name of a parameter of ``owner`` for ``h_type`` or ``drift.h_type``."""
    if name in known:
        return name
    short = [each.rpartition(".")[2] for each in known]
    of_kernels = [each for each, own in zip(known, short, strict=True) if own == name]
    if len(of_kernels) > 1:
        choices = f"{', '.join(of_kernels[:-1])} or {of_kernels[-1]}"
        raise MptuneError(f"{owner} has parameter {name!r} in {len(of_kernels)} kernels: give it as {choices}")
    if not of_kernels:
        alone = [own for own in short if short.count(own) == 1]
        raise UnknownNameError(f"parameter of {owner}:", name, known, aliases=alone)
    return of_kernels[0]


def baseline_values(parameters: Iterable[Parameter]) -> dict[str, tuple[Value, ...]]:
    """Return the baseline's values of precision and policy parameters: fp64 (or the widest), accurate.

    A plain precision comes before a compound one with the same significand, which is slower and would inflate speedups.
    """
    fixed: dict[str, tuple[Value, ...]] = {}
    for parameter in parameters:
        if isinstance(parameter, PrecisionParameter):
            fixed[parameter.name] = (_widest(precision(str(v)) for v in parameter.values).name,)
        elif isinstance(parameter, PolicyParameter):
            fixed[parameter.name] = ("accurate",) if "accurate" in parameter.values else parameter.values[:1]
    return fixed


def names_of_precisions(parameters: Iterable[Parameter]) -> frozenset[str]:
    """Return the names of the precision parameters."""
    return frozenset(p.name for p in parameters if isinstance(p, PrecisionParameter))


def uniform_types(parameters: Iterable[Parameter]) -> dict[str, dict[str, Value]]:
    """Return the uniform-type values of all precision parameters, by name of the precision, the widest first.

    A parameter without that precision has the narrowest more accurate type, or its widest. Compound precisions, and
    precisions that no parameter has, are left out.
    """
    values = {p.name: [precision(str(v)) for v in p.values] for p in parameters if isinstance(p, PrecisionParameter)}
    found: dict[str, dict[str, Value]] = {}
    for level in PRECISIONS.values():
        types: dict[str, Value] = {}
        for name, offered in values.items():
            wide_enough = [p for p in offered if p.rank >= level.rank]
            types[name] = min(wide_enough, key=lambda p: p.rank, default=_widest(offered)).name
        if level.name in types.values() and types not in found.values():
            found[level.name] = types
    return found


def beyond_baseline(values: Mapping[str, Value], baseline: Mapping[str, Sequence[Value]]) -> bool:
    """Whether a value is a type more accurate than the baseline's, such as a compound precision."""
    known = {name: fixed[0] for name, fixed in baseline.items() if {fixed[0], values.get(name)} <= {*EVERY_PRECISION}}
    return any(_rank(values[name]) > _rank(fixed) for name, fixed in known.items())


def _widest(offered: Iterable[Precision]) -> Precision:
    return max(offered, key=lambda entry: (entry.significand_bits, entry.stored is None))


def _rank(value: Value) -> float:
    return precision(str(value)).rank
