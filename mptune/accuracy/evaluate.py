"""The error of a configuration: all its outputs against their references."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.metrics import ErrorMetric, resolve
from mptune.accuracy.pairs import Offenders, Pairs, find
from mptune.errors import MetricError, ReferenceDataError, UnknownNameError
from mptune.kernel.regions import RegionalMetric
from mptune.space.configuration import NamedValues

Metric = str | Callable[..., float] | RegionalMetric | ErrorMetric
#: One error metric for all outputs, or one for each by name. A list adds further metrics after the first.
Metrics = Metric | Sequence[Metric] | Mapping[str, Metric | Sequence[Metric]]
#: An output: an array on the host, or paired with its reference.
Output = NDArray[Any] | Pairs


@dataclass(frozen=True, slots=True)
class AccuracyResult:
    """The errors of one configuration's outputs."""

    errors: Mapping[str, float]  #: the error of each output
    #: for each affected output, the number of elements that are NaN or infinite unlike the reference; its error is NaN
    #: or infinite
    non_finite: Mapping[str, int] = field(default_factory=dict)
    message: str = ""  #: the reasons for errors that are not finite; empty if all are
    #: errors by further metrics, named METRIC (of the worst output) or OUTPUT.METRIC
    further: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.errors:
            raise MetricError("there is no output to measure the error of")
        for name in ("errors", "non_finite", "further"):
            object.__setattr__(self, name, NamedValues(getattr(self, name)))

    @property
    def error(self) -> float:
        """The error of the worst output; NaN if any output's error is NaN."""
        return float(np.max([*self.errors.values()]))

    @property
    def is_nan(self) -> bool:
        """Whether any error is NaN, further metrics included."""
        return any(map(math.isnan, (*self.errors.values(), *self.further.values())))

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of a trial: ``error``, ``log10_error``, ``error.<output>``, and the further ``error.<name>``."""
        named = {f"error.{name}": error for name, error in {**self.errors, **self.further}.items()}
        return {"error": self.error, "log10_error": self.log10_error, **named}

    @property
    def log10_error(self) -> float:
        """Base-10 logarithm of :attr:`error`: minus the number of correct decimal places; ``-inf`` for no error."""
        return math.log10(self.error) if self.error != 0 else -math.inf


def evaluate_outputs(
    outputs: Mapping[str, Output],
    references: Mapping[str, NDArray[Any]],
    metrics: Metrics,
    inputs: Mapping[str, Any] | None = None,
) -> AccuracyResult:
    """Measure every output against its reference.

    Elements whose reference is NaN are not compared. An output with a NaN or infinity that its reference lacks never
    has a finite error, even if a user's metric or a quantile of regions overlooks it.

    Args:
        outputs: outputs of the kernel by argument name, in any numeric type: arrays, or pairs with their reference.
        references: their references, by the same names and of the same shapes.
        metrics: one error metric for all outputs, or one for each by its name. A list adds further metrics, whose
            errors are named by their :attr:`~mptune.accuracy.metrics.ErrorMetric.key` for all outputs
            (``NRMSE_rows_max``) or by output and key (``y.NRMSE_rows_max``). These names are accepted as keys, too.
        inputs: the inputs of the references, for metrics that see them.
    """
    if outputs.keys() != references.keys():
        raise ReferenceDataError(f"outputs {', '.join(outputs)} and references {', '.join(references)} do not match")
    named = judged(outputs, metrics)
    errors: dict[str, float] = {}
    further: dict[str, list[float]] = {name: [] for name in named if name not in outputs}
    non_finite: dict[str, int] = {}
    notes: list[str] = []
    for output, values in outputs.items():
        wanted = {name: metric for name, (of, metric) in named.items() if of in (output, "")}
        found: dict[str, float] = {}
        try:
            reference: Any = references[output]
            if np.ma.is_masked(reference):
                reference = reference.astype(np.float64).filled(np.nan)
            pairs = values if isinstance(values, Pairs) else Pairs.of(values, reference)
            for name, metric in wanted.items():
                same = next((other for other in found if wanted[other] == metric), None)
                found[name] = metric.measure(pairs, inputs) if same is None else found[same]
        except MetricError as reason:
            raise MetricError(f"output {output!r}: {reason}") from reason
        broken, infinities = Offenders(0), False
        if any(wanted[name].may_overlook or not math.isfinite(error) for name, error in found.items()):
            broken, infinities = _non_finite(pairs)
        if broken.count:
            non_finite[output] = broken.count
            least = math.inf if infinities else math.nan
            found = {name: least if math.isfinite(error) else error for name, error in found.items()}
            notes.append(f"output {output!r} has NaN or infinity in {broken} (of {pairs.size})")
        else:
            for metric, error in {wanted[name].name: (wanted[name], error) for name, error in found.items()}.values():
                if not math.isfinite(error):
                    why = f": {metric.undefined}" if metric.undefined and math.isinf(error) else ""
                    notes.append(f"the {metric.name} of output {output!r} is {error:g} but the output is finite{why}")
        errors[output] = found.pop(output)
        for name, error in found.items():
            further[name].append(error)
    worst = {name: float(np.max(found)) for name, found in further.items()}
    return AccuracyResult(errors, non_finite, "; ".join(notes), worst)


#: Perturbation of a reference that tests a metric, as a fraction of the mean magnitude.
_ADDED: Final = 0.01
#: A metric that divides by the mean and exceeds this error for the perturbation has a mean near 0.
_FAR_LARGER: Final = 20 * _ADDED


def first_look(
    metrics: Mapping[str, Sequence[ErrorMetric]],
    references: Mapping[str, NDArray[Any]],
    inputs: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """Try each output's metrics on its perturbed reference; return warnings of metrics that suit the data badly."""
    found: list[str] = []
    for name, own in metrics.items():
        reference = references[name]
        is_real = reference.dtype.kind == "f"
        for metric in own:
            try:
                if not metric.is_bundled:
                    nearly = reference * (1 - 2.0**-20) if is_real else reference
                    metric.measure(Pairs.of(nearly, reference), inputs)
                elif metric.divides_by_mean and is_real:
                    found += _near_zero(name, metric, reference, decides=metric is own[0])
            except MetricError as reason:
                raise MetricError(f"output {name!r}: {reason}") from reason
            except MemoryError:
                pass  # trials read smaller copies of an output, and report it if these do not fit
    return tuple(found)


def masked_elements(references: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """Return the number of masked elements (their reference is NaN) of each output with any."""
    found = {name: int(np.isnan(each).sum()) for name, each in references.items() if each.dtype.kind == "f"}
    return {name: count for name, count in found.items() if count}


def _near_zero(output: str, metric: ErrorMetric, reference: NDArray[Any], *, decides: bool) -> Iterator[str]:
    """Yield a warning if a metric divides by a mean that is near 0 relative to the mean magnitude.

    Raises:
        MetricError: the mean is 0 and the metric decides, so no trial could be judged.
    """
    with np.errstate(all="ignore"):
        magnitude = float(np.nanmean(np.abs(reference)))
        pairs = Pairs.of(reference + _ADDED * magnitude, reference)
    if not 0 < magnitude < math.inf or not (error := metric.measure(pairs)) > _FAR_LARGER:
        return
    other = metric.name.replace(metric.whole.name, "NMAE", 1)
    if resolve(other).measure(pairs) <= _FAR_LARGER:
        if decides and error == math.inf:
            raise MetricError(
                f"{metric.name} divides by the mean of the reference, which is 0: any error is infinite; give --metric "
                f"{shlex.quote(other)}, which divides by the mean magnitude"
            )
        yield (
            f"{metric.name} divides by the mean of the reference, which is near 0 for output {output!r}: an error of "
            f"1% of the mean magnitude everywhere gives {error:.3g}; --metric {shlex.quote(other)} divides by that "
            "magnitude"
        )


def judged(outputs: Collection[str], metrics: Metrics) -> dict[str, tuple[str, ErrorMetric]]:
    """Return the output and metric of every measured error, by the error's name.

    The errors of the outputs by their own metrics have the outputs' names and come first. An empty output stands for
    the worst one.
    """
    if isinstance(metrics, Mapping):
        lists = {name: [*map(resolve, _listed(metric))] for name, metric in metrics.items()}
        named = {name: own[0] for name, own in lists.items()}
        named |= {f"{name}.{each.key}": each for name, own in lists.items() for each in own[1:]}
    else:
        first, *others = map(resolve, _listed(metrics))
        for metric in others:
            if metric.key in outputs:
                raise MetricError(f"error metric {metric.key!r} is an output's name, too: give the metrics by output")
        named = {**dict.fromkeys(outputs, first), **{metric.key: metric for metric in others}}
    found: dict[str, tuple[str, ErrorMetric]] = {}
    for name, metric in named.items():
        output, _, rest = name.partition(".")
        output, key = (output, rest) if output in outputs else ("", name)
        if name not in outputs and metric.key not in (name, key):
            raise UnknownNameError("output with an error metric:", name, outputs)
        found[name] = name if name in outputs else output, metric
    for name in outputs:
        if name not in found:
            raise MetricError(f"output {name!r} has no error metric (given for: {', '.join(found) or 'none'})")
    return {name: found[name] for name in (*outputs, *found)}


def _listed(metrics: Metric | Sequence[Metric]) -> Sequence[Metric]:
    if not isinstance(metrics, list | tuple):
        return (metrics,)  # type: ignore[return-value]
    if not metrics:
        raise MetricError("an empty list of error metrics: give at least one")
    return metrics


def all_metrics(metrics: Metrics) -> list[ErrorMetric]:
    """Return all metrics in one list."""
    values = metrics.values() if isinstance(metrics, Mapping) else (metrics,)
    return [resolve(metric) for value in values for metric in _listed(value)]


def judging(outputs: Collection[str], metrics: Metrics) -> dict[str, tuple[ErrorMetric, ...]]:
    """Return the metrics of each output, its own first."""
    named = judged(outputs, metrics).values()
    return {output: tuple(metric for of, metric in named if of in (output, "")) for output in outputs}


def metric_text(outputs: Collection[str], metrics: Metrics) -> str:
    """Return the name of the metric of ``error``, or each output's (``"y: NRMSE, label: MAE"``)."""
    named = judged(outputs, metrics)
    own = {output: named[output][1].name for output in outputs}
    one, *others = dict.fromkeys(own.values())
    return ", ".join(f"{output}: {name}" for output, name in own.items()) if others else one


def metric_names_by_error(outputs: Collection[str], metrics: Metrics) -> dict[str, str]:
    """Return the name of each error's metric; empty without further metrics."""
    named = judged(outputs, metrics)
    return {name: metric.name for name, (_, metric) in named.items()} if len(named) > len(outputs) else {}


def _non_finite(pairs: Pairs) -> tuple[Offenders, bool]:
    """Find the compared non-finite output elements that differ from their reference, and whether none is NaN."""
    xp = pairs.namespace
    broken = find(pairs, lambda output, reference: ~xp.isfinite(output) & (output != reference))
    if not broken.count:
        return broken, False
    return broken, find(pairs, lambda output, _: xp.isnan(output)).count == 0
