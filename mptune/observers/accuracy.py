"""Observes how far the outputs are from their references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from numpy.typing import NDArray

from mptune.accuracy.evaluate import AccuracyResult, Metrics, evaluate_outputs
from mptune.observers.base import LaunchContext, Observer

__all__ = ["AccuracyObserver"]


class AccuracyObserver(Observer):
    """Measures ``error`` (the worst output's), ``log10_error``, ``error.<output>`` and errors by further metrics.

    ``log10_error`` is ``-inf`` for outputs without any error; all are NaN where an output has NaN.
    """

    name: ClassVar[str] = "accuracy"
    metrics: ClassVar[tuple[str, ...]] = ("error", "log10_error")
    is_optional: ClassVar[bool] = False

    def __init__(
        self,
        references: Mapping[str, NDArray[Any]],
        metrics: Metrics,
        inputs: Mapping[str, Any] | None = None,
    ) -> None:
        self._references = references
        self._metrics = metrics
        self._inputs = inputs
        self._known: Mapping[str, dict[Any, Any]] = {name: {} for name in references}
        self._result: AccuracyResult | None = None

    @property
    def result(self) -> AccuracyResult | None:
        """The errors, with the non-finite elements and what they mean in words; None before the launches."""
        return self._result

    def before(self, context: LaunchContext) -> None:  # noqa: ARG002
        """Forget the previous configuration."""
        self._result = None

    def after(self, context: LaunchContext) -> None:
        """Read the outputs and compare them.

        Raises:
            MetricError: an output and its reference cannot be compared by the metric.
            ReferenceDataError: an output has no reference.
        """
        outputs = context.read_outputs()
        self._result = evaluate_outputs(outputs, self._references, self._metrics, self._inputs, self._known)

    def results(self) -> Mapping[str, float]:
        """Return the errors; nothing before the launches."""
        return {} if self._result is None else self._result.metrics
