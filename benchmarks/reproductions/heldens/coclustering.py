"""BBAC-I co-clustering in five versions (Heldens 2026, Sec. V-I)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from benchmarks.reproductions.item import Given, Outcome, Table
from mptune.backends.processor import processor, usable_cores
from mptune.data import Draw
from mptune.errors import MptuneError
from mptune.kernel import Application
from mptune.measure.device import DeviceEvaluator
from mptune.measure.rounds import visit_of
from mptune.results.trial import Trial
from mptune.source.loading import load_tunable
from mptune.space.configuration import Configuration
from mptune.space.parameters import PrecisionParameter
from mptune.tuning import tune


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the application.

    Attributes:
        data_type: of the input matrix.
        types: all others; empty where tuning chooses them.
        max_error: one minus the NMI that is asked for here.
        speedup: of the kernels' time, in the paper; NaN where its text has no number.
        nmi: in the paper.
    """

    data_type: str
    types: tuple[str, ...] = ()
    max_error: float | None = None
    speedup: float = math.nan
    nmi: float = math.nan


VERSIONS: Final[Mapping[str, Version]] = MappingProxyType(
    {
        "FP64": Version("fp64", ("fp64",), None, 1.0, 1.0),
        "FP32": Version("fp32", ("fp32",), None, 1.81, 0.92),
        "High": Version("fp32", (), 0.01, 1.65, 0.99),
        "Med.": Version("fp16", (), 0.1),
        "Low": Version("fp16", (), 0.22, 2.51, 0.78),
    }
)
_ROUNDS: Final = 11
#: Inputs on which clusterings are compared.
_DRAWS: Final = tuple(Draw(number=number) for number in range(5))


def tuned(given: Given, application: Application, version: Version) -> Configuration:
    """Return the fastest configuration of a version.

    Raises:
        MptuneError: nothing has the NMI.
    """
    size, sizes = given.sizes_of(application)
    types = [p.name for p in application.parameters if isinstance(p, PrecisionParameter)]
    run = tune(
        application,
        backend="host",
        size=size,
        sizes=sizes,
        max_error=version.max_error,
        restrict=dict.fromkeys(types, version.types) if version.types else {"data_type": (version.data_type,)},
        budget=given.budget,
        seed=given.seed,
        inputs=1,
        verify=0,
        on_warning=lambda _: None,
    )
    found = run.best or run.closest
    if found is None:
        raise MptuneError(f"bbac with data in {version.data_type}: nothing of what was evaluated runs")
    return found.configuration


def measured(given: Given, application: Application) -> dict[str, dict[str, Any]]:
    """Return, by version, milliseconds in turn: of the application and of its kernels, and NMI on some inputs."""
    names = ("FP64", "Low") if given.quick else tuple(VERSIONS)
    chosen = {name: tuned(given, application, VERSIONS[name]) for name in names}
    sizes = application.resolve_sizes(*given.sizes_of(application))
    unique = list(dict.fromkeys(chosen.values()))
    with DeviceEvaluator(application, sizes, "host", seed=given.seed) as evaluator:
        trials = [trial for trial in evaluator.evaluate(unique) if trial.is_valid]
        turns = evaluator.remeasure(trials, _ROUNDS, visit_of(min(trial.time_ms for trial in trials))).trials
        drawn = evaluator.run_on_draws(unique, _DRAWS).trials

    def kernels_ms(trial: Trial) -> float:
        return math.fsum(trial.metric(f"time_ms.{name}") for name in application.kernels)

    found: dict[str, dict[str, Any]] = {}
    for name, configuration in chosen.items():
        own = [trial for trial in turns if trial.configuration == configuration and trial.is_valid]
        found[name] = {
            "types": ", ".join(f"{key} {value}" for key, value in configuration.items() if key.endswith("_type")),
            "time_ms": statistics.median(trial.time_ms for trial in own),
            "kernels_ms": statistics.median(map(kernels_ms, own)),
            "nmi": [1 - trial.error for trial in drawn if trial.configuration == configuration],
        }
    return found


def h_f13(given: Given) -> Outcome:
    """Speedup and NMI of the five versions."""
    application = load_tunable("bbac")
    assert isinstance(application, Application)
    found = measured(given, application)
    sizes = application.resolve_sizes(*given.sizes_of(application))
    base = found["FP64"]
    rows = tuple(
        (
            name,
            _number(VERSIONS[name].speedup),
            base["kernels_ms"] / of["kernels_ms"],
            base["time_ms"] / of["time_ms"],
            _number(VERSIONS[name].nmi),
            statistics.fmean(of["nmi"]),
            min(of["nmi"]),
            of["types"],
        )
        for name, of in found.items()
    )
    columns = ("version", "kernels' speedup: paper", "here", "whole application", "NMI: paper", "here, mean", "least")
    limits = ", ".join(f"{1 - each.max_error:g} ({name})" for name, each in VERSIONS.items() if each.max_error)
    told = ", ".join(f"{row[0]} {row[2]:.2f}" for row in rows)
    return Outcome(
        f"The kernels' speedup over FP64: {told}; in the paper 1.81 (FP32), 1.65 (High) and 2.51 (Low).",
        (Table("Speedup and agreement with FP64", (*columns, "types"), rows),),
        (
            "The paper's figures are of an NVIDIA A100, with 40 x 10,110,912 entries of measured data, these of "
            f"{processor().name}, {usable_cores()} cores, with {sizes.years} x {sizes.cells:,} made-up entries.",
            f"Times are medians of {_ROUNDS} rounds in which all took turns; NMI is of {len(_DRAWS)} sets of data.",
            "The paper tunes each kernel by itself under a threshold of its own output. Here the application is tuned "
            f"as a whole with {given.budget} evaluations, seed {given.seed}, under an NMI of at least {limits}.",
            "A dash is where the paper's text has no number. Fig. 14, maps of two clusterings, has no item.",
        ),
        {name: {key: of[key] for key in ("nmi", "time_ms", "kernels_ms")} for name, of in found.items()},
    )


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
