"""Results of configurations on unseen draws of the inputs, in numbers and in words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mptune.results.metric_expressions import is_error
from mptune.results.objective import Objective
from mptune.results.trial import Status, Trial

if TYPE_CHECKING:
    from mptune.data import Draw

#: Confidence of statements about all inputs.
CONFIDENCE: Final = 0.95
#: Prefix of the metrics of verification: the numbers of ``unseen_inputs`` and of ``unseen_violations`` of error limits,
#: ``unseen_error``, the largest error, ``unseen_worst``, the input of this error, and ``unseen_next``, the next input.
_PREFIX: Final = "unseen_"


def is_of_unseen(metric: str) -> bool:
    """Whether a metric is a result of unseen inputs."""
    return metric.startswith(_PREFIX)


def next_unseen(trial: Trial) -> int:
    """Return the number of the next unseen input of a trial: earlier ones have run, or could not be made."""
    return count_of(trial, "unseen_next", count_of(trial, "unseen_inputs"))


def count_of(trial: Trial, metric: str, otherwise: int = 0) -> int:
    """Return a metric that is a count; ``otherwise`` if it is none."""
    value = trial.metric(metric)
    return int(value) if 0 <= value < 2.0**53 else otherwise


def draws_of(trial: Trial) -> int:
    """Return the number of draws of the inputs behind a trial's error, which is the worst of them."""
    return max(1, count_of(trial, "error_draws", 1))


def unequal_draws(metrics: Sequence[str], trials: Sequence[Trial]) -> str:
    """Return a remark if the errors of a front are the worst of unequal numbers of draws; else empty."""
    counts = sorted({draws_of(trial) for trial in trials})
    if len(counts) < 2 or not any(map(is_error, metrics)):
        return ""
    return (
        f"errors are the worst of {counts[0]} to {counts[-1]} draws of the inputs: verified trials have more "
        "draws, and larger errors"
    )


def rate_bound(violations: int, inputs: int, confidence: float = CONFIDENCE) -> float:
    """Return the upper bound, at a confidence, on the share of inputs that break a limit.

    The one-sided limit of Clopper and Pearson (1934), for inputs that are drawn independently: the largest rate at
    which at most this many violations have a probability of 1 - confidence.
    """
    if violations >= inputs:
        return 1.0
    if not violations:
        return -math.expm1(math.log1p(-confidence) / inputs)
    from scipy.special import betaincinv  # slow to load, and not needed above

    return float(betaincinv(violations + 1, inputs - violations, confidence))


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of a configuration on unseen inputs."""

    inputs: int
    violations: int  #: inputs that broke an error limit
    worst_error: float

    @classmethod
    def of(cls, trial: Trial, objective: Objective) -> Verified | None:
        """Return the result of a trial under an objective; None if it was never verified."""
        inputs = count_of(trial, "unseen_inputs")
        if not inputs:
            return None
        broken = count_of(trial, "unseen_violations") if objective.error_excess(trial) > 0 else 0
        return cls(inputs, broken, trial.metric("unseen_error"))

    @property
    def at_most(self) -> float:
        """Upper bound on the share of inputs that break a limit (:func:`rate_bound`)."""
        return rate_bound(self.violations, self.inputs)

    @property
    def held(self) -> str:
        """The number of inputs within the limits, in words."""
        return f"{self.inputs - self.violations:,} of {self.inputs:,} unseen inputs"

    def words(self, limit: str = "") -> str:
        """Return the result in words: relative to the limit ("1e-4"), or else to the largest error."""
        percent = 100 * self.at_most
        step = 10.0 ** (math.floor(math.log10(percent)) - 1)  # an upper bound is rounded up, to two digits
        percent = min(math.ceil(percent / step - 1e-9) * step, 100.0)
        counted, sure = self.held, f"with {CONFIDENCE:.0%} confidence at most {percent:.3g}% of such inputs"
        if not limit:
            return f"error at most {self.worst_error:.3g} on {counted}: {sure} exceed it"
        worst = f"up to {self.worst_error:.3g}" if math.isfinite(self.worst_error) else "without usable numbers"
        broken = f", {worst} on others" if self.violations else ""
        return f"within {limit} on {counted}{broken}: {sure} break it"

    def to_json(self) -> dict[str, Any]:
        """Return the entry ``verified`` of a document."""
        return {**dataclasses.asdict(self), "at_most": self.at_most, "confidence": CONFIDENCE}


def in_words(trial: Trial, objective: Objective) -> str:
    """Return the result of a trial's verification in words; empty if there is none."""
    found = Verified.of(trial, objective)
    return "" if found is None else found.words(limit_of(objective))


def limit_of(objective: Objective) -> str:
    """Return the error limits in words: "1e-4", "y 1e-4 and z 0.01", or empty."""
    named = ((name.removeprefix("error").removeprefix("."), tau) for name, tau in objective.limits.items())
    return " and ".join(f"{name} {_limit(tau)}".strip() for name, tau in named)


def _limit(tau: float) -> str:
    mantissa, exponent = f"{tau:e}".split("e")
    return f"{tau:g}" if -3 < int(exponent) < 6 else f"{float(mantissa):.6g}e{int(exponent)}"


def after_draws(trial: Trial, found: Mapping[Draw, Trial], unseen: Objective | None = None) -> Trial:
    """Return a trial after further draws of the inputs; a failure on one of them is its own."""
    for draw, one in found.items():
        if one.status is not Status.OK:
            return dataclasses.replace(trial, status=one.status, message=f"on {draw}: {one.message}")
    warnings = dict.fromkeys(warning for one in (trial, *found.values()) for warning in one.warnings)
    trial = dataclasses.replace(trial, warnings=tuple(warnings))
    errors = [one.measurement.metrics for one in found.values()]
    return with_draws(trial, errors, unseen, [draw.number for draw in found])


def with_draws(
    trial: Trial,
    found: Sequence[Mapping[str, float]],
    unseen: Objective | None = None,
    numbers: Sequence[int] = (),
) -> Trial:
    """Return a valid trial with the errors of further draws of the inputs.

    Each error is the worst of all draws; ``error_mean`` is the mean, ``error_draws`` the number of draws, and
    ``error_first_draw`` the error on the first. With an objective (``unseen``) the draws are unseen inputs, counted
    against its limits, with ``numbers`` from the next one on by default.
    """
    if not found:
        return trial
    before = dict(trial.measurement.metrics)
    draws = before.get("error_draws", 1.0)
    mean = before.get("error_mean", trial.error)
    errors = [one["error"] for one in found]
    after = {**before, **worst_errors_of(before, *found)}
    after["error_draws"] = draws + len(found)
    after["error_mean"] = (mean * draws + math.fsum(errors)) / after["error_draws"]
    after["error_first_draw"] = before.get("error_first_draw", trial.error)
    if unseen is not None:
        broken = [one for one in found if unseen.error_excess(trial.with_measurement(metrics=one)) > 0]
        after["unseen_inputs"] = before.get("unseen_inputs", 0.0) + len(found)
        after["unseen_violations"] = before.get("unseen_violations", 0.0) + len(broken)
        first, worst = next_unseen(trial), max(errors)
        numbers = numbers or range(first, first + len(found))
        if worst > before.get("unseen_error", -1.0):
            after["unseen_worst"] = numbers[errors.index(worst)]
        after["unseen_error"] = max(before.get("unseen_error", 0.0), worst)
        after["unseen_next"] = max(first, max(numbers) + 1)
    return trial.with_measurement(metrics=after)


def worst_errors_of(*found: Mapping[str, float]) -> dict[str, float]:
    """Return the largest of each error among measurements of one configuration; NaN counts as the largest."""
    names = dict.fromkeys(name for one in found for name in one if name.startswith(("error", "log10_error")))
    values = {name: [one[name] for one in found if name in one] for name in names}
    return {name: math.nan if any(map(math.isnan, each)) else max(each) for name, each in values.items()}
