"""Expressions over the metrics of a trial, for objectives and measured constraints.

A metric's name may have dots (``error.y``, ``error.y.MaxAE``).
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from mptune.errors import ExpressionError, MptuneError, UnknownNameError
from mptune.space.expressions import Expression

#: Short names of objectives; any other is a metric's name or an expression over metrics.
OBJECTIVES: Final[Mapping[str, str]] = {
    "time": "time_ms",
    "memory": "memory_bytes",
    "energy": "energy_j",
    "edp": "energy_j * time_ms",  # the energy-delay product
    "error": "error",
}

#: Metrics whose larger values are better, unless a run minimised them.
MORE_IS_BETTER: Final = frozenset({"speedup", "bandwidth_gb_s", "flop_rate_gflop_s", "occupancy"})

_METRIC_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_COMPARISONS: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_Excess = Callable[[Mapping[str, float]], float]


def unknown_metric(what: str, name: str, metrics: Collection[str], objectives: Collection[str]) -> UnknownNameError:
    """Return the error for an unknown metric; ``what`` begins the message.

    If one of the objectives reads the metric, the short names of objectives are offered beside the metrics.
    """
    reading = next((metric for metric in objectives if name in MetricExpression(metric).names), None)
    if reading is None or (reading != name and reading not in OBJECTIVES.values()):
        return UnknownNameError(what, name, metrics)
    shorts = {short: metric for short, metric in OBJECTIVES.items() if MetricExpression(metric).names <= set(metrics)}
    known = (*shorts, *(metric for metric in metrics if metric not in (*shorts, *shorts.values())))
    return UnknownNameError(what, name, known, aliases=shorts.values())


def is_error(metric: str) -> bool:
    """Whether a metric is an error: of the worst output or of a single output."""
    return metric == "error" or metric.startswith("error.")


def chosen_objectives(objective: str, objectives: Sequence[str] = (), maximise: bool = False) -> tuple[str, ...]:
    """Return the metrics or expressions to optimise, from short names, metrics' names or expressions.

    Two or three ``objectives`` replace ``objective``, which must then be time; none of them is maximised.
    """
    single = OBJECTIVES.get(objective.strip(), objective)
    if not objectives:
        return (single,)
    names = [text.strip() for text in objectives]
    metrics = tuple(OBJECTIVES.get(name, name) for name in names)
    shown = ",".join(names)
    # With more than three nearly every trial is on the front.
    if not 2 <= len(set(metrics)) == len(metrics) <= 3 or not all(metrics):
        raise MptuneError(f"objectives {shown}: expected two or three different names, such as time,error")
    if single != OBJECTIVES["time"]:
        raise MptuneError(
            f"objective {objective!r} and objectives {shown} exclude each other: list them all in objectives"
        )
    if maximise:
        raise MptuneError(f"objectives {shown} are all minimised; to have more of a metric list 1 / METRIC")
    return metrics


class MetricExpression:
    """A metric's name or an expression over metrics: ``time_ms``, ``error.y``, ``time_ms * energy_j``, ...

    ``what`` is its role in messages. ``names`` are the metrics that it reads.
    """

    __slots__ = ("_expression", "_what", "names", "text")

    def __init__(self, text: str, what: str = "objective") -> None:
        self.text = text.strip()
        self._what = what
        if not self.text:
            raise ExpressionError(f"the {what} is empty; give a metric's name or an expression over metrics")
        if _METRIC_NAME.fullmatch(self.text):  # a keyword of Python is a name, too
            self._expression = Expression(self.text, ast.Name(self.text, ast.Load()))
        else:
            try:
                self._expression = Expression(self.text)
            except ExpressionError as error:
                raise ExpressionError(f"{what} {self.text!r}: {error}") from error
        self.names = self._expression.names
        self.value(dict.fromkeys(self.names, 1))  # refuses an expression without a number before any trial

    def value(self, metrics: Mapping[str, float]) -> float:
        """Return the value for metrics that include all of :attr:`names`.

        NaN if it is undefined (a division by zero, a root of a negative number) or not finite.
        """
        try:
            value = self._expression.evaluate(metrics)
        except ExpressionError as error:
            if isinstance(error.__cause__, ArithmeticError | ValueError):
                return math.nan
            raise ExpressionError(f"{self._what}: {error}") from error
        try:
            number = float(value)
        except OverflowError:
            return math.nan
        except (TypeError, ValueError) as error:
            raise ExpressionError(f"{self._what} {self.text!r} gives {value!r}, not a number") from error
        return number if math.isfinite(number) else math.nan


class MeasuredConstraint:
    """A limit on measured metrics: comparisons by ``<=``, ``<``, ``>=`` and ``>``, joined by ``and`` and ``or``.

    The excess of a trial over a comparison "left <= right" is in decades, like an error's:

    - log10(left / right) if both sides are positive;
    - otherwise the logarithm of 1 plus the difference of the sides.

    It is at most 0 exactly if the comparison holds. ``and`` (as in ``1 <= x <= 2``) has the largest excess, ``or`` the
    smallest. The excess over an undefined side is infinite. ``names`` are the metrics that it reads.
    """

    __slots__ = ("excess", "names", "text")

    def __init__(self, text: str) -> None:
        whole = MetricExpression(text, "measured constraint")
        self.text = whole.text
        self.names = whole.names
        #: Returns the excess in decades of metrics that include all of :attr:`names`; at most 0 if it holds.
        self.excess = self._compiled(whole._expression.tree)
        if not self.names:
            raise ExpressionError(f"measured constraint {self.text!r} names no metric")

    def _compiled(self, tree: ast.expr) -> _Excess:
        if isinstance(tree, ast.BoolOp):
            parts = [self._compiled(value) for value in tree.values]
            worst = max if isinstance(tree.op, ast.And) else min
            return lambda metrics: worst(part(metrics) for part in parts)
        if not isinstance(tree, ast.Compare) or not all(isinstance(op, _COMPARISONS) for op in tree.ops):
            raise ExpressionError(
                f"measured constraint {self.text!r}: expected comparisons by <=, <, >= or >, "
                "joined by 'and' or 'or', such as 'energy_j <= 1.5'"
            )
        sides = [MetricExpression(ast.unparse(side), "measured constraint") for side in (tree.left, *tree.comparators)]
        pairs = []
        for left, op, right in zip(sides, tree.ops, sides[1:], strict=False):
            small, large = (left, right) if isinstance(op, ast.Lt | ast.LtE) else (right, left)
            pairs.append((small, large, isinstance(op, ast.Lt | ast.Gt)))
        return lambda metrics: max(
            excess_of(small.value(metrics), large.value(metrics), strict) for small, large, strict in pairs
        )


def excess_of(small: float, large: float, strict: bool = False) -> float:
    """Return the excess over "small <= large" (or "<") in decades, as :class:`MeasuredConstraint` defines it."""
    if math.isnan(small) or math.isnan(large):
        return math.inf
    if small > 0 and large > 0:
        decades = math.log10(small) - math.log10(large)
    else:
        decades = math.copysign(math.log10(1.0 + abs(small - large)), small - large)
    holds = small < large if strict else small <= large
    # Rounding must not carry the excess across the limit.
    return min(decades, 0.0) if holds else max(decades, 5e-324)
