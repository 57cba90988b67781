"""What the section on overhead runs: searches whose every evaluation is timed, one process each."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.search.driving import Driven, drive
from mptune.interop import read_run
from mptune.measure.base import Replay
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import IntegerParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make

__all__ = ["ON_RECORDING", "ON_SYNTHETIC", "on_recording", "on_synthetic", "synthetic_space", "synthetic_trial"]

ON_RECORDING: Final = "benchmarks.search.overhead_runs:on_recording"
ON_SYNTHETIC: Final = "benchmarks.search.overhead_runs:on_synthetic"
_VALUES: Final = 10


def on_recording(settings: Mapping[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Return a function of the seed that times a strategy on a recording.

    Args:
        settings: ``space``: a file; ``budget``; ``strategy``.
    """
    recorded = read_run(settings["space"])
    evaluator = Replay(recorded)

    def run(seed: int) -> dict[str, Any]:
        strategy = make(settings["strategy"], recorded.space, Objective(), seed=seed)
        return _result(drive(strategy, lambda asked: list(evaluator.evaluate(asked)), settings["budget"]))

    return run


def on_synthetic(settings: Mapping[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Return a function of the seed that times a strategy on a large space with a known cost function.

    Args:
        settings: ``parameters``: how many, each of 10 values; ``budget``; ``strategy``.

    Returns:
        A function whose result also holds ``making_s`` (making the space and the strategy) and ``peak_mib`` and
        ``before_mib`` (resident memory of the process at most, and before the space was made).
    """

    def run(seed: int) -> dict[str, Any]:
        before = _resident_mib("VmRSS")
        started = time.perf_counter()
        space = synthetic_space(settings["parameters"])
        strategy = make(settings["strategy"], space, Objective(), seed=seed)
        making_s = time.perf_counter() - started
        driven = drive(strategy, lambda asked: [synthetic_trial(c) for c in asked], settings["budget"])
        memory = {"before_mib": before, "peak_mib": _resident_mib("VmHWM")}
        return _result(driven) | memory | {"making_s": making_s, "candidates": space.size}

    return run


def synthetic_space(parameters: int) -> SearchSpace:
    """Return a space of so many parameters of 10 values, and one more of 2 under a constraint that takes it back."""
    names = [f"p{i}" for i in range(parameters)]
    free = [IntegerParameter(name, 1, _VALUES) for name in names]
    # A constraint over the whole space, so that validity is not free; it halves what the last parameter doubles.
    last = IntegerParameter("parity", 0, 1)
    return SearchSpace([*free, last], [f"({names[0]} + {names[1]}) % 2 == parity"])


def synthetic_trial(configuration: Configuration) -> Trial:
    """Return a trial whose time has one valley, a ripple, and a region that fails."""
    values = [float(v) for v in configuration.values() if isinstance(v, int)][:-1]
    if values[0] + values[1] >= 2 * _VALUES - 1:
        return Trial(configuration, Status.LAUNCH_ERROR, "too large")
    valley = sum((1.0 + i) * (math.log2(v) - 2.0) ** 2 for i, v in enumerate(values))
    ripple = 0.3 * sum(v % 2 for v in values)
    return Trial(configuration, Status.OK, measurement=Measurement({"time_ms": 1.0 + valley + ripple}))


def _result(driven: Driven) -> dict[str, Any]:
    milliseconds = [1e3 * second for second in driven.seconds]
    return {"best": list(driven.best), "ms": milliseconds, "strategy_s": sum(driven.seconds), "cpu_s": driven.cpu_s}


def _resident_mib(field: str) -> float:
    """Return resident memory now (VmRSS) or at most so far (VmHWM), in MiB."""
    status = Path("/proc/self/status")
    lines: Sequence[str] = status.read_text().splitlines() if status.exists() else ()
    for line in lines:
        if line.startswith(f"{field}:"):
            return float(line.split()[1]) / 1024
    # Where there is no /proc, the most so far stands for both; it is in bytes on macOS only.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
