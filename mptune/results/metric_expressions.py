"""Expressions over the metrics of a trial: what is optimised, and what a measured constraint compares.

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

#: Metrics of which more is better, unless a run minimised them.
MORE_IS_BETTER: Final = frozenset({"speedup", "bandwidth_gb_s", "flop_rate_gflop_s", "occupancy"})

_METRIC_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_COMPARISONS: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_Excess = Callable[[Mapping[str, float]], float]


def unknown_metric(what: str, name: str, metrics: Collection[str], objectives: Collection[str]) -> UnknownNameError:
    """Return the error for a metric that there is not, in the words in which an objective is asked for.

    Args:
        what: where it was looked for, for the message.
        name: the metric.
        metrics: those there are.
        objectives: the metrics and expressions that are optimised; where none of them reads the metric, as where a
            constraint does, only metrics have names.
    """
    reading = next((metric for metric in objectives if name in MetricExpression(metric).names), None)
    if reading is None or (reading != name and reading not in OBJECTIVES.values()):
        return UnknownNameError(what, name, metrics)
    shorts = {short: metric for short, metric in OBJECTIVES.items() if MetricExpression(metric).names <= set(metrics)}
    known = (*shorts, *(metric for metric in metrics if metric not in (*shorts, *shorts.values())))
    return UnknownNameError(what, name, known, aliases=shorts.values())


def is_error(metric: str) -> bool:
    """Whether a metric is the error of the worst output or of a single one."""
    return metric == "error" or metric.startswith("error.")


def chosen_objectives(objective: str, objectives: Sequence[str] = (), maximise: bool = False) -> tuple[str, ...]:
    """Return the metrics or expressions to optimise, from the short names a user may give.

    Either ``objective``, a key of :data:`OBJECTIVES`, a metric's name or an expression; or two or three of these as
    ``objectives``, and then ``objective`` must be left at time and none is maximised.
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
    """A metric's name or an expression over metrics.

    Args:
        text: ``time_ms``, ``error.y``, ``time_ms * energy_j``, ...
        what: what it is, for messages.

    Attributes:
        names: names of the metrics it reads.
    """

    __slots__ = ("_expression", "_what", "names", "text")

    def __init__(self, text: str, what: str = "objective") -> None:
        self.text = text.strip()
        self._what = what
        if not self.text:
            raise ExpressionError(f"the {what} is empty; give a metric's name or an expression over metrics")
        if _METRIC_NAME.fullmatch(self.text):  # also one that is a keyword of Python
            self._expression = Expression(self.text, ast.Name(self.text, ast.Load()))
        else:
            try:
                self._expression = Expression(self.text)
            except ExpressionError as error:
                raise ExpressionError(f"{what} {self.text!r}: {error}") from error
        self.names = self._expression.names
        self.value(dict.fromkeys(self.names, 1))  # an expression that gives no number is refused before any trial

    def value(self, metrics: Mapping[str, float]) -> float:
        """Return the value for metrics that hold all of :attr:`names`.

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
    """A limit on what is measured: comparisons by ``<=``, ``<``, ``>=`` and ``>``, joined by ``and`` and ``or``.

    How far a trial is beyond a comparison "left <= right" is its excess, in decades like the error's:

    - log10(left / right) if both sides are positive;
    - otherwise the logarithm of 1 plus the difference of the sides.

    It is at most 0 exactly if the comparison holds. Of several joined by ``and`` (as in ``1 <= x <= 2``) the largest
    excess counts, of several joined by ``or`` the smallest. A side that is undefined is beyond any limit.

    Args:
        text: such as ``energy_j <= 1.5`` or ``memory_bytes < 2**30 and occupancy >= 0.5``.

    Attributes:
        names: names of the metrics it reads.
    """

    __slots__ = ("_excess", "names", "text")

    def __init__(self, text: str) -> None:
        whole = MetricExpression(text, "measured constraint")
        self.text = whole.text
        self.names = whole.names
        self._excess = self._compiled(whole._expression.tree)
        if not self.names:
            raise ExpressionError(f"measured constraint {self.text!r} names no metric")

    def excess(self, metrics: Mapping[str, float]) -> float:
        """Return how many decades metrics that hold all of :attr:`names` are beyond it; at most 0 if it holds."""
        return self._excess(metrics)

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
    """Return how many decades "small <= large" (or "<") is broken by, as of :class:`MeasuredConstraint`."""
    if math.isnan(small) or math.isnan(large):
        return math.inf
    if small > 0 and large > 0:
        decades = math.log10(small) - math.log10(large)
    else:
        decades = math.copysign(math.log10(1.0 + abs(small - large)), small - large)
    holds = small < large if strict else small <= large
    # Rounding must not carry the excess across the limit.
    return min(decades, 0.0) if holds else max(decades, 5e-324)
