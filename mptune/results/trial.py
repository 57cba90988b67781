"""A trial, its measurement and its status, and the use of earlier trials in a search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Final, NewType

from mptune.space.arguments import Between
from mptune.space.configuration import Configuration

#: A number that may be infinite or NaN.
Reading = NewType("Reading", float)
Count = Annotated[int, Between(0)]
Amount = Annotated[float, Between(0, 1e100)]
Share = Annotated[float, Between(0, 1)]
Milliseconds = Annotated[float, Between(1e-30, 1e30)]

#: Types of metrics in a file, where NaN is unknown; a key that ends in a dot is a prefix. Other metrics are any number.
METRIC_TYPES: Final[Mapping[str, Any]] = {
    "time_ms": Milliseconds,
    **dict.fromkeys(("time_min_ms", "time_spread_ms", "time_ms.", "launches.", "host_ms", "program_host_ms"), Amount),
    "memory_bytes": Amount,
    **dict.fromkeys(("error_draws", "unseen_inputs", "unseen_violations", "unseen_next", "unseen_worst"), Amount),
    **dict.fromkeys(
        ("error", "error.", "error_first", "error_last", "error_mean", "error_spread", "error_first_draw"),
        Annotated[Reading, Between(0)],
    ),
    "unseen_error": Annotated[Reading, Between(0)],
}


class Status(StrEnum):
    """How a trial ended. Only the numbers of a valid trial (:attr:`is_valid`) are meaningful.

    The error of an inaccurate trial is above the threshold; that of a fragile trial only on an unseen input. A
    violation breaks a measured constraint, while ``CONSTRAINT`` breaks a constraint on parameters. An unstable trial
    gave different results from launch to launch; a corrupt trial changed memory that it must not write to.
    """

    OK = "ok"
    INACCURATE = "inaccurate"
    FRAGILE = "fragile"
    VIOLATION = "violation"
    NON_FINITE = "non_finite"
    UNWRITTEN = "unwritten"
    UNSTABLE = "unstable"
    CONSTRAINT = "constraint"
    COMPILE_ERROR = "compile_error"
    LAUNCH_ERROR = "launch_error"
    OUT_OF_MEMORY = "out_of_memory"
    CRASH = "crash"
    CORRUPT = "corrupt"
    TIMEOUT = "timeout"
    ERROR = "error"

    @property
    def is_valid(self) -> bool:
        """Whether the kernel ran to its end and gave finite numbers."""
        return self in (Status.OK, Status.INACCURATE, Status.FRAGILE, Status.VIOLATION)


def _floats(numbers: Mapping[str, float]) -> Mapping[str, float]:
    return MappingProxyType(dict(zip(numbers, map(float, numbers.values()), strict=True)))


@dataclass(frozen=True, slots=True)
class Measurement:
    """The numbers of one trial.

    Attributes:
        metrics: scalars by name with the unit: ``time_ms`` (median), ``time_min_ms``, ``error`` (worst output of the
            worst launch), ``error.<output>``, ``log10_error``, ``error_spread`` (largest less smallest error over
            launches), ``memory_bytes``, ...
        times_ms: launch times behind the median.
        durations_s: wall time of the evaluation by phase ("compile", "transfer", "accuracy", "timing").
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    times_ms: tuple[float, ...] = field(default=(), repr=False)
    durations_s: Mapping[str, float] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", _floats(self.metrics))
        object.__setattr__(self, "durations_s", _floats(self.durations_s))

    def __reduce__(self) -> tuple[type[Measurement], tuple[object, ...]]:
        return Measurement, (dict(self.metrics), self.times_ms, dict(self.durations_s))


@dataclass(frozen=True, slots=True)
class Trial:
    """One evaluated configuration, its numbers, and how it ended."""

    configuration: Configuration
    status: Status
    message: str = ""  #: why a trial is not ok, for the user
    measurement: Measurement = field(default_factory=Measurement)  #: empty if the kernel did not run
    warnings: tuple[str, ...] = ()  #: remarks on the data: an input overflowed in its precision, ...
    key: str = field(default="", repr=False)  #: identity of the measuring conditions; empty for a recorded space

    def with_measurement(self, **changes: Any) -> Trial:
        """Return the trial with some fields of its measurement replaced."""
        return replace(self, measurement=replace(self.measurement, **changes))

    def metric(self, name: str) -> float:
        """Return the metric of that name, NaN if the trial does not have it."""
        return self.measurement.metrics.get(name, math.nan)

    @property
    def is_valid(self) -> bool:
        """Whether the kernel ran to its end and gave finite numbers."""
        return self.status.is_valid

    @property
    def time_ms(self) -> float:
        """Median launch time in milliseconds, NaN if there is none."""
        return self.metric("time_ms")

    @property
    def error(self) -> float:
        """Error of the worst output, NaN if there is none."""
        return self.metric("error")


@dataclass(frozen=True, slots=True)
class SourceUse:
    """The use of a source in a search."""

    source: str  #: its name
    trials: Count  #: number of trials used; others have values outside the search space, or were too many
    parameters: tuple[str, ...]  #: names of the parameters in common with the search space
    weight: Amount  #: weight of its times; 0 for a source that turned out unlike this search
    remark: str = ""  #: why a part cannot be used; else empty
