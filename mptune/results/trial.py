"""What one evaluation gives, a trial, its measurement and its status, and what a search makes of others' trials."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from mptune.space.configuration import Configuration


class Status(StrEnum):
    """How a trial ended. Only a valid one (:attr:`is_valid`) has numbers that mean something.

    An inaccurate trial's error is above the threshold; a fragile one's is so on an input nobody searched with; a
    violation is accurate enough, but breaks a constraint on what was measured (``CONSTRAINT`` is one on parameters,
    known before running). An unstable one gave different results from launch to launch; a corrupt one changed memory
    it must not write to.
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
        metrics: every scalar by name, the unit in the name: ``time_ms`` (median), ``time_min_ms``,
            ``error`` (worst output of the worst launch), ``error.<output>``, ``log10_error``, ``error_spread`` (largest
            less smallest error over launches), ``memory_bytes``, ...
        times_ms: the raw launch times the median is taken of.
        durations_s: wall time the evaluation spent, by phase ("compile", "transfer", "accuracy", "timing").
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
    """One evaluated configuration, its numbers, and how it ended.

    Attributes:
        configuration: what was evaluated.
        status: how it ended.
        message: for a trial that is not ok, why, in words a user can act on.
        measurement: its numbers; empty if the kernel did not run.
        warnings: remarks of the data manager (an input overflowed in its precision, ...).
        key: identity of everything the numbers depend on; empty for a recorded space.
    """

    configuration: Configuration
    status: Status
    message: str = ""
    measurement: Measurement = field(default_factory=Measurement)
    warnings: tuple[str, ...] = ()
    key: str = field(default="", repr=False)

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
    """What a search makes of a source, by its name.

    Attributes:
        trials: how many of its trials can be used: the others have values that the search space does not have, or it
            had too many.
        parameters: names of the parameters it has in common with the search space.
        weight: how much of what it says about time is believed; 0 of a source that turned out unlike this search.
        remark: what of it cannot be used, and why; empty if everything can.
    """

    source: str
    trials: int
    parameters: tuple[str, ...]
    weight: float
    remark: str = ""
