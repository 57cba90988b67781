"""BBAC-I co-clustering in five versions (Heldens 2026, Sec. V-I)."""

from __future__ import annotations

import functools
import math
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from benchmarks.reproductions.heldens.launches import kernels_alone
from benchmarks.reproductions.item import Given, Outcome, Table
from mptune.backends import get_backend
from mptune.backends.processor import processor, usable_cores
from mptune.data import FIRST, Draw
from mptune.errors import MptuneError
from mptune.kernel import Application, Kernel, Sizes
from mptune.measure.buffers import run_once
from mptune.measure.device import DeviceEvaluator
from mptune.measure.program import Program
from mptune.measure.rounds import visit_of
from mptune.precision import precision
from mptune.results.trial import Trial
from mptune.source.loading import load_tunable
from mptune.space.configuration import Configuration, Value
from mptune.space.parameters import PrecisionParameter
from mptune.tuning import tune


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the application (Heldens 2026, Sec. V-I).

    Attributes:
        data_type: of the input matrix, which is settled before kernels are tuned.
        types: all others; empty where tuning chooses them.
        max_error: of each kernel's own output.
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
        "High": Version("fp32", (), 1e-8, 1.65, 0.99),
        "Med.": Version("fp16", (), 1e-4),
        "Low": Version("fp16", (), 1e-2, 2.51, 0.78),
    }
)
_LIMITS: Final = ", ".join(f"{each.max_error:g} ({name})" for name, each in VERSIONS.items() if each.max_error)
#: Instead of the paper's NRMSE, which divides by the mean: that of deviations from the mean is about 0.
_METRIC: Final = "NMAE"
_ROUNDS: Final = 11
#: Inputs on which clusterings are compared.
_DRAWS: Final = tuple(Draw(number=number) for number in range(5))


@functools.cache
def bbac() -> Application:
    """Return the application."""
    found = load_tunable("bbac")
    assert isinstance(found, Application)
    return found


def asked(given: Given) -> tuple[str, ...]:
    """Return the names of the versions that are made: in quick mode two."""
    return ("FP64", "Low") if given.quick else tuple(VERSIONS)


@functools.cache
def versions(given: Given) -> dict[str, tuple[Configuration, tuple[str, ...]]]:
    """Return the configuration of each version, and the kernels of it that do not keep their threshold.

    As in the paper each kernel is tuned by itself, on the data of a launch within the application in fp64. Both kernels
    that are given averages take them in one type, the wider of what they chose.
    """
    application, sizes = bbac(), bbac().resolve_sizes(*given.sizes_of(bbac()))
    found: dict[str, tuple[Configuration, tuple[str, ...]]] = {}
    widest = application.search_space(sizes).restrict(application.baseline_values()).configuration(0)
    kernels = kernels_alone(application, widest, sizes, get_backend("host"), given.seed)
    for name in asked(given):
        version = VERSIONS[name]
        values: dict[str, Value] = {}
        missed = []
        for kernel in kernels:
            trial, is_met = tuned(kernel, version, given)
            if not is_met:
                missed.append(kernel.name)
            for parameter, value in trial.configuration.items():
                own = f"{kernel.name}.{parameter}"
                if own in application.parameter_names:
                    values[own] = value
                else:
                    values[parameter] = wider(values.get(parameter, value), value)
            print(f"{name}, {kernel.name}: {trial.configuration}, error {trial.error:.2g}", file=sys.stderr)
        found[name] = (application.configuration(values), tuple(missed))
    return found


def tuned(kernel: Kernel, version: Version, given: Given) -> tuple[Trial, bool]:
    """Tune a kernel as a version wants it; return the best trial, or the closest one, and whether it is accurate."""
    types = [p.name for p in kernel.parameters if isinstance(p, PrecisionParameter)]
    restrict = dict.fromkeys(types, version.types) if version.types else {"data_type": (version.data_type,)}
    run = tune(
        kernel,
        backend="host",
        max_error=version.max_error,
        metric=_METRIC,
        restrict=restrict,
        budget=given.budget,
        seed=given.seed,
        inputs=1,
        verify=0,
        on_warning=lambda _: None,
    )
    best = run.best
    trial = best or run.closest
    if trial is None:
        raise MptuneError(f"kernel {kernel.name}: nothing of what was evaluated runs")
    return trial, best is not None


def wider(one: Value, other: Value) -> Value:
    """Return the wider of two types."""
    return max(one, other, key=lambda value: precision(str(value)).significand_bits)


def measured(given: Given) -> dict[str, dict[str, Any]]:
    """Return, by version, milliseconds in turn: of the application and of its kernels, and NMI on some inputs."""
    application, sizes = bbac(), bbac().resolve_sizes(*given.sizes_of(bbac()))
    chosen = {name: configuration for name, (configuration, _) in versions(given).items()}
    unique = list(dict.fromkeys(chosen.values()))
    with DeviceEvaluator(application, sizes, "host", seed=given.seed) as evaluator:
        trials = [trial for trial in evaluator.evaluate(unique) if trial.is_valid]
        visit = visit_of(min(trial.time_ms for trial in trials))
        turns = evaluator.remeasure(trials, _ROUNDS, visit).trials
        drawn = evaluator.run_on_draws(unique, _DRAWS).trials
    found: dict[str, dict[str, Any]] = {}
    for name, configuration in chosen.items():
        own = [trial for trial in turns if trial.configuration == configuration and trial.is_valid]
        if not own:
            raise MptuneError(f"version {name} does not run: {configuration}")
        found[name] = {
            "configuration": configuration,
            "time_ms": statistics.median(trial.time_ms for trial in own),
            "kernels_ms": statistics.median(kernels_ms(trial, application) for trial in own),
            "nmi": [1 - trial.error for trial in drawn if trial.configuration == configuration],
        }
    return found


def kernels_ms(trial: Trial, application: Application) -> float:
    """Return how long all kernels of a run took."""
    return math.fsum(trial.metric(f"time_ms.{name}") for name in application.kernels)


def h_f13(given: Given) -> Outcome:
    """Speedup and NMI of the five versions."""
    found, chosen = measured(given), versions(given)
    sizes = bbac().resolve_sizes(*given.sizes_of(bbac()))
    base = found["FP64"]
    rows = tuple(
        (
            name,
            number(VERSIONS[name].speedup),
            base["kernels_ms"] / of["kernels_ms"],
            base["time_ms"] / of["time_ms"],
            number(VERSIONS[name].nmi),
            statistics.fmean(of["nmi"]),
            min(of["nmi"]),
            types_of(of["configuration"]),
        )
        for name, of in found.items()
    )
    columns = ("version", "kernels' speedup: paper", "here", "whole application", "NMI: paper", "here, mean", "least")
    missed = [f"{name}: {', '.join(kernels)}" for name, (_, kernels) in chosen.items() if kernels]
    differs = [
        "The paper's figures are of an NVIDIA A100, a GPU, with 40 x 10,110,912 entries of measured data, these of "
        f"{processor().name}, {usable_cores()} cores, with {sizes.years} x {sizes.cells:,} made-up entries that are "
        "deviations from their mean, so that narrow types have more digits where they matter.",
        f"Times are medians of {_ROUNDS} rounds in which all took turns; NMI is of {len(_DRAWS)} sets of data.",
        f"Kernels were tuned one by one with {given.budget} evaluations each (250 in the paper), seed {given.seed}, by "
        f"the {_METRIC} of their own outputs under "
        f"{_LIMITS} (in the paper the NRMSE, which divides by the mean: that of deviations is "
        "about 0).",
        "A dash is where the paper's text has no number.",
    ]
    if missed:
        differs.append(
            f"No types keep the threshold with that type of data; the closest are taken: {'; '.join(missed)}."
        )
    return Outcome(
        _speedups_said(found)
        + f" FP64 takes {base['time_ms']:.3g} ms here, {base['kernels_ms']:.3g} ms of them in kernels; 814 and 686 ms "
        "in the paper.",
        (Table("Speedup and agreement with FP64", (*columns, "types"), rows),),
        tuple(differs),
        {
            name: {"nmi": of["nmi"], "time_ms": of["time_ms"], "kernels_ms": of["kernels_ms"]}
            for name, of in found.items()
        },
    )


def _speedups_said(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Say the kernels' speedups over FP64, and which versions have none."""
    speedups = {name: found["FP64"]["kernels_ms"] / of["kernels_ms"] for name, of in found.items() if name != "FP64"}
    paper = {name: number(VERSIONS[name].speedup) for name in speedups}
    told = ", ".join(
        f"{name} {speedup:.2f}" + (f" ({paper[name]:.2f})" if paper[name] is not None else "")
        for name, speedup in speedups.items()
    )
    slower = [name for name, speedup in speedups.items() if speedup < 1]
    verb = "is" if len(slower) == 1 else "are"
    said = f" {' and '.join(slower)} {verb} slower than FP64 here." if slower else ""
    return f"The kernels' speedup over FP64, in brackets the paper's: {told}.{said}"


def number(value: float) -> float | None:
    """Return a number of the paper; None where its text has none."""
    return None if math.isnan(value) else value


def types_of(configuration: Configuration) -> str:
    """Say the types of a configuration."""
    return ", ".join(f"{name} {value}" for name, value in configuration.items() if name.endswith("_type"))


def h_f14(given: Given) -> Outcome:
    """Maps of the clusters of FP64 and Low, side by side."""
    chosen = versions(given)
    sizes = bbac().resolve_sizes(*given.sizes_of(bbac()))
    made = bbac().inputs(FIRST.generator(given.seed), sizes)
    answers = {name: outputs_of(chosen[name][0], made, sizes) for name in ("FP64", "Low")}

    error = bbac().metric
    assert callable(error)
    nmi = 1 - error(answers["Low"]["cell_cluster"], answers["FP64"]["cell_cluster"])
    rows = (("Low against FP64", VERSIONS["Low"].nmi, nmi),)
    return Outcome(
        f"Low and FP64 agree by an NMI of {nmi:.4f} (paper {VERSIONS['Low'].nmi:.2f}), on made-up data.",
        (Table("Agreement of the two maps", ("clusterings", "NMI: paper", "here"), rows),),
        (
            f"{sizes.years} x {sizes.cells:,} made-up entries; the paper's are measured ones of the USA, 40 x "
            "10,110,912. Made-up entries may form clearer clusters than measured ones, of which rounding moves few: an "
            "NMI near 1 says little of the accuracy that measured entries need.",
            "A cluster's colour is its rank by the onset of spring.",
        ),
    )


def outputs_of(configuration: Configuration, inputs: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Return the outputs of a run of the application, by name."""
    with Program(bbac(), configuration, sizes, get_backend("host")) as program:
        return run_once(program, inputs)
