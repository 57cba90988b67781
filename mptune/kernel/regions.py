"""Error metrics over the rows, columns or blocks of an output: their spelling, and the shapes of the regions.

The mean over an output of ten thousand rows hardly changes if one row is destroyed; the maximum or a quantile of the
rows' errors does.

*Rows* lie along the last axis, and *columns* along the last but one, for every combination of the other indices, as in
NumPy's stacks of matrices: an output of shape ``(a, b, c)`` has ``a * b`` rows of ``c`` elements and ``a * c`` columns
of ``b``. *Blocks* tile as many of the last axes as their shape has; at the end of an axis they may be shorter.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mptune.errors import MetricError, UnknownNameError
from mptune.space.parameters import listed

#: ``"rows"``, ``"columns"``, or blocks: ``("block", (8, 8))``, ``("block", 64)``, ``"block 8x8"``.
Over = str | tuple[str, int | Sequence[int]]
#: ``"max"``, or a quantile above 0 and below 1.
Reduce = str | float

_KINDS: Final = ("rows", "columns", "block")
_SPELLINGS: Final = {"row": "rows", "column": "columns", "blocks": "block"} | {kind: kind for kind in _KINDS}
#: The words after a metric's name; the word "over" may be left out, as in ``NRMSE_rows_max``.
_WORDS: Final = re.compile(
    rf"(?P<metric>.*?\S)[\s_-]+(?:over[\s_-]+(?P<said>\S.*)|(?P<bare>(?:{'|'.join(_SPELLINGS)})(?:[\s_-].*)?))",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class RegionalMetric:
    """An error metric of each row, column or block of an output, reduced to the maximum or a quantile.

    ``RegionalMetric("NRMSE", over="rows", reduce="max")`` is also written ``"NRMSE over rows max"``.

    Attributes:
        metric: the metric of a region: a name, or ``metric(output, reference) -> float``.
        over: ``"rows"``, ``"columns"`` or blocks of a shape: ``("block", (8, 8))``; kept as text (``"block 8x8"``).
        reduce: ``"max"`` for the worst region, or a quantile such as 0.99 of the regions' errors.

    Raises:
        MetricError: a block without a shape, or a reduction that is neither.
        UnknownNameError: no such regions.
    """

    metric: str | Callable[..., float]
    over: Over
    reduce: Reduce = "max"

    def __post_init__(self) -> None:
        object.__setattr__(self, "over", _over_text(self.over))
        try:
            quantile = 1.0 if str(self.reduce).strip().lower() == "max" else float(self.reduce)
        except (TypeError, ValueError):
            quantile = math.nan
        if isinstance(self.reduce, bool) or not 0.0 < quantile <= 1.0:
            raise MetricError(f"reduction {self.reduce!r} of regions: expected max, or a quantile between 0 and 1")
        object.__setattr__(self, "reduce", "max" if quantile == 1.0 else quantile)

    @property
    def words(self) -> str:
        """The text after the metric's name: ``"over rows max"``, ``"over block 8x8 0.99"``."""
        return f"over {self.over} {self.reduce}"

    @property
    def quantile(self) -> float:
        """The quantile of the regions' errors; 1 for the maximum."""
        return self.reduce if isinstance(self.reduce, float) else 1.0

    @property
    def axes(self) -> int:
        """The least number of axes of an output with such regions."""
        return 2 if self._block is None else len(self._block)

    @property
    def _block(self) -> tuple[int, ...] | None:
        kind, _, block = str(self.over).partition(" ")
        return tuple(map(int, block.split("x"))) if kind == "block" else None

    def tile(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a region of an output, with as many axes as the output.

        Raises:
            MetricError: an output of that shape has no such regions.
        """
        block, leading = self._block, len(shape) - self.axes
        if leading < 0:  # a single row would be the whole output
            hint = ": use blocks, such as 'block 64'" if block is None else ""
            raise MetricError(f"shape {shape} has no {self.over}, which need {self.axes} axes{hint}")
        lengths = ((1, shape[-1]) if self.over == "rows" else (shape[-2], 1)) if block is None else block
        return (1,) * leading + tuple(map(min, lengths, shape[leading:]))

    def own_shape(self, tile: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a region as a user's metric sees it: rows and columns are one-dimensional."""
        return (math.prod(tile),) if self._block is None else tile[-self.axes :]


def over_regions(metrics: Any, over: Over | None, reduce: Reduce = "max") -> Any:
    """Return a metric, a list, or either by output, each over regions; unchanged if ``over`` is None."""
    if over is None:
        if reduce != "max":
            raise MetricError(f"reduction {reduce!r} without regions: give over='rows', 'columns' or ('block', (8, 8))")
        return metrics
    if isinstance(metrics, Mapping):
        return {name: over_regions(metric, over, reduce) for name, metric in metrics.items()}
    if isinstance(metrics, list | tuple):
        return [over_regions(metric, over, reduce) for metric in metrics]
    return RegionalMetric(metrics, over, reduce)


def key_of(name: str) -> str:
    """Return a metric's name as a part of the names of a trial's metrics: ``NRMSE_rows_max``."""
    return re.sub(r"\W+", "_", name.replace(" over ", " ")).strip("_")


def split_text(text: str) -> RegionalMetric | None:
    """Parse ``"METRIC over REGIONS [max|QUANTILE]"``; return None for a text without regions.

    Words may be joined by underscores or hyphens, and "over" left out: ``NRMSE_rows_max``, ``MaxAE-block-8x8-0.99``.
    """
    found = _WORDS.fullmatch(text.strip())
    if found is None:
        return None
    kind, *rest = re.split(r"[\s_-]+", (found["said"] or found["bare"]).strip())
    if _SPELLINGS.get(kind.lower()) == "block" and rest:
        kind = f"block {rest.pop(0)}"
    # In a name, the quantile 0.99 is spelled 0_99.
    reduce = ".".join(rest) if len(rest) == 2 and all(part.isdecimal() for part in rest) else " ".join(rest)
    try:
        return RegionalMetric(found["metric"], kind, reduce or "max")
    except MetricError as error:
        raise MetricError(f"error metric {text!r}: {error}") from error


def _over_text(over: Over) -> str:
    name, extents = over if isinstance(over, tuple) and len(over) == 2 else (over, ())
    kind, _, block = f"{name} {'x'.join(map(str, listed(extents)))}".strip().partition(" ")
    known, block = _SPELLINGS.get(kind.lower()), block.replace("×", "x")
    if known is None:
        raise UnknownNameError("regions of an error metric:", str(name), _KINDS)
    if re.fullmatch(r"[1-9]\d{0,17}(x[1-9]\d{0,17})*" if known == "block" else "", block) is None:
        raise MetricError(f"regions {kind} {block}: expected rows, columns, or blocks of a shape, such as 'block 8x8'")
    return f"{known} {block}".strip()


def boxes(
    shape: tuple[int, ...], tile: tuple[int, ...], most_elements: int
) -> Iterator[tuple[tuple[slice, ...], tuple[int, ...]]]:
    """Cut an array into boxes of whole tiles of one shape, and yield each with the tiles' shape.

    At the end of an axis the tiles may be shorter. A box has at most ``most_elements`` unless it is a single tile.
    """
    axes = []
    for extent, length in zip(shape, tile, strict=True):
        whole = extent // length * length
        axes.append([(0, whole, length)] + ([(whole, extent, extent - whole)] if whole < extent else []))
    for ranges in itertools.product(*axes):
        lengths = tuple(length for _, _, length in ranges)
        left = max(1, most_elements // math.prod(lengths))
        cuts = []
        for start, stop, length in reversed(ranges):
            count = min(left, (stop - start) // length)
            left = max(1, left // count)
            cuts.append([slice(i, min(i + count * length, stop)) for i in range(start, stop, count * length)])
        for box in itertools.product(*reversed(cuts)):
            yield box, lengths
