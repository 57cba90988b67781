"""The error of a configuration: all its outputs against their references."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from mptune.accuracy.metrics import ErrorMetric, resolve
from mptune.accuracy.pairs import HostPairs, Offenders, Pairs, find
from mptune.errors import MetricError, ReferenceDataError, UnknownNameError
from mptune.space.configuration import NamedValues

__all__ = ["AccuracyResult", "Metric", "Output", "evaluate_outputs", "metric_text", "metrics_by_output"]

Metric = str | Callable[..., float] | ErrorMetric
#: An output as the kernel left it: an array on the host, or a pair of arrays on a device: the output and its reference.
Output = NDArray[Any] | Pairs


@dataclass(frozen=True, slots=True)
class AccuracyResult:
    """How accurate the outputs of one configuration are."""

    errors: Mapping[str, float]  #: the error of each output
    #: for each output that has any, the number of NaN and infinite elements the reference does not have in the same
    #: place; its error is NaN or infinite
    non_finite: Mapping[str, int] = field(default_factory=dict)
    message: str = ""  #: what is wrong with the outputs, in words; empty when every error is finite

    def __post_init__(self) -> None:
        if not self.errors:
            raise MetricError("there is no output to measure the error of")
        object.__setattr__(self, "errors", NamedValues(self.errors))
        object.__setattr__(self, "non_finite", NamedValues(self.non_finite))

    @property
    def error(self) -> float:
        """Error of the worst output; NaN if that of any output is NaN."""
        errors = self.errors.values()
        return math.nan if any(math.isnan(error) for error in errors) else max(errors)

    @property
    def log10_error(self) -> float:
        """Base-10 logarithm of :attr:`error`: minus the number of correct decimal places; ``-inf`` for no error."""
        return math.log10(self.error) if self.error != 0 else -math.inf


def evaluate_outputs(
    outputs: Mapping[str, Output], references: Mapping[str, NDArray[Any]], metrics: Metric | Mapping[str, Metric]
) -> AccuracyResult:
    """Measure every output against its reference.

    An output with a NaN or infinity that its reference does not have never has a finite error, even if a user's
    metric overlooks it.

    Args:
        outputs: what the kernel wrote, by argument name, in any numeric type: arrays, or outputs on a device that
            are already paired with a copy of their reference there.
        references: what it should have written, by the same names and of the same shapes.
        metrics: one error metric (name or callable) for all outputs, or one for each.

    Raises:
        MetricError: an output and its reference cannot be compared, or the metric is not defined for such data;
            names the output.
        ReferenceDataError: an output has no reference, or a reference no output.
        UnknownNameError: no such metric, or a metric is given for an output that does not exist.
    """
    _check_names(outputs, references)
    chosen = metrics_by_output(outputs, metrics)
    errors: dict[str, float] = {}
    non_finite: dict[str, int] = {}
    notes: list[str] = []
    for name, output in outputs.items():
        metric = chosen[name]
        try:
            pairs = output if isinstance(output, Pairs) else HostPairs.of(output, references[name])
            error = metric.measure(pairs)
        except MetricError as reason:
            raise MetricError(f"output {name!r}: {reason}") from reason
        broken, infinities = Offenders(0), False
        if metric.is_custom or not math.isfinite(error):
            broken, infinities = _non_finite(pairs)
        if broken.count:
            non_finite[name] = broken.count
            if math.isfinite(error):
                error = math.inf if infinities else math.nan
            notes.append(f"output {name!r} has NaN or infinity in {broken} (of {pairs.size})")
        elif not math.isfinite(error):
            reason_text = f": {metric.undefined}" if metric.undefined and math.isinf(error) else ""
            notes.append(f"the {metric.name} of output {name!r} is {error:g} though the output is finite{reason_text}")
        errors[name] = error
    return AccuracyResult(errors, non_finite, "; ".join(notes))


def _check_names(outputs: Mapping[str, Any], references: Mapping[str, Any]) -> None:
    for name in outputs:
        if name not in references:
            known = ", ".join(references) or "none"
            raise ReferenceDataError(f"output {name!r} has no reference (references: {known})")
    for name in references:
        if name not in outputs:
            raise ReferenceDataError(f"reference {name!r} has no output (outputs: {', '.join(outputs) or 'none'})")


def metrics_by_output(outputs: Collection[str], metrics: Metric | Mapping[str, Metric]) -> dict[str, ErrorMetric]:
    """Return the error metric of each output.

    Raises:
        MetricError: an output has none.
        UnknownNameError: no such metric, or a metric is given for an output that does not exist.
    """
    if not isinstance(metrics, Mapping):
        one = resolve(metrics)
        return dict.fromkeys(outputs, one)
    for name in metrics:
        if name not in outputs:
            raise UnknownNameError("output with an error metric:", name, outputs)
    for name in outputs:
        if name not in metrics:
            raise MetricError(f"output {name!r} has no error metric (given for: {', '.join(metrics) or 'none'})")
    return {name: resolve(metrics[name]) for name in outputs}


def metric_text(metrics: Metric | Mapping[str, Metric]) -> str:
    """Return what to call the metric: its name, or each output's (``"y: NRMSE, label: MAE"``).

    Raises:
        UnknownNameError: no such metric.
    """
    if isinstance(metrics, Mapping):
        return ", ".join(f"{output}: {resolve(metric).name}" for output, metric in metrics.items())
    return resolve(metrics).name


def _non_finite(pairs: Pairs) -> tuple[Offenders, bool]:
    """Find the non-finite output elements that do not equal their reference, and say whether none is NaN."""
    xp = pairs.namespace
    broken = find(pairs, lambda output, reference: ~xp.isfinite(output) & (output != reference))
    if not broken.count:
        return broken, False
    return broken, find(pairs, lambda output, _: xp.isnan(output)).count == 0
