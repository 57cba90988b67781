"""Experiments of the papers, done again on this machine and printed beside the papers' figures.

    python benchmarks/papers.py h-f13 h-f14 [--size default] [--budget 60]
    python benchmarks/papers.py --list

An item is called after its paper (h: Heldens & van Werkhoven 2026) and its figure, table or section.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


import numpy as np  # noqa: E402

from mptune.backends import get_backend  # noqa: E402
from mptune.backends.processor import processor, usable_cores  # noqa: E402
from mptune.buffers import FIRST, Draw  # noqa: E402
from mptune.capturing import in_context  # noqa: E402
from mptune.cli.options import parse_sizes  # noqa: E402
from mptune.errors import MptuneError, UnknownNameError  # noqa: E402
from mptune.evaluators.device import DeviceEvaluator  # noqa: E402
from mptune.evaluators.rounds import visit_of  # noqa: E402
from mptune.kernel import Application, Kernel, Sizes  # noqa: E402
from mptune.launching import ApplicationLauncher, in_memory_of, inputs_from  # noqa: E402
from mptune.plots.answer import beside, image_of  # noqa: E402
from mptune.precision import precision  # noqa: E402
from mptune.registry import load_tunable, picture_of  # noqa: E402
from mptune.results import Trial  # noqa: E402
from mptune.space.configuration import Configuration, Value  # noqa: E402
from mptune.space.parameters import PrecisionParameter  # noqa: E402
from mptune.tuner import tune  # noqa: E402


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says.

    Attributes:
        size: the preset of the sizes.
        sizes: those that differ from it.
        budget: evaluations of each kernel.
        seed: of inputs and searches.
        folder: for pictures.
    """

    size: str
    sizes: tuple[tuple[str, int], ...]
    budget: int
    seed: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Item:
    """An experiment: what it is, and what prints it as text."""

    what: str
    run: Callable[[Given], str]


# -- Heldens 2026, Sec. V-I: co-clustering ---------------------------------------------------------


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


@functools.cache
def versions(given: Given) -> dict[str, tuple[Configuration, tuple[str, ...]]]:
    """Return the configuration of each version, and the kernels of it that do not keep their threshold.

    As in the paper each kernel is tuned by itself, on the data of a launch within the application in fp64. Both kernels
    that are given averages take them in one type, the wider of what they chose.
    """
    application, sizes = bbac(), bbac().resolve_sizes(given.size, dict(given.sizes))
    found: dict[str, tuple[Configuration, tuple[str, ...]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        widest = application.search_space(sizes).restrict(application.baseline_values()).configuration(0)
        with DeviceEvaluator(application, sizes, "host", seed=given.seed) as evaluator:
            kernels = [in_context(application, launch) for launch in evaluator.capture(widest, Path(folder))]
        for name, version in VERSIONS.items():
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
    best = run.best or next(iter(run.undecided), None)
    trial = best or run.closest
    if trial is None:
        raise MptuneError(f"kernel {kernel.name}: nothing of what was evaluated runs")
    return trial, best is not None


def wider(one: Value, other: Value) -> Value:
    """Return the wider of two types."""
    return max(one, other, key=lambda value: precision(str(value)).significand_bits)


def measured(given: Given) -> dict[str, dict[str, Any]]:
    """Return, by version, milliseconds in turn: of the application and of its kernels, and NMI on some inputs."""
    application, sizes = bbac(), bbac().resolve_sizes(given.size, dict(given.sizes))
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


def h_f13(given: Given) -> str:
    """Speedup and NMI of the five versions."""
    found, chosen = measured(given), versions(given)
    sizes = bbac().resolve_sizes(given.size, dict(given.sizes))
    base = found["FP64"]
    lines = [
        f"Speedup and accuracy of five versions of BBAC-I (Heldens 2026, Fig. 13), {sizes.years} x {sizes.cells:,}",
        "",
        "| version | kernels' time: paper | here | whole application | NMI: paper | here, mean | least | types |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, version in VERSIONS.items():
        of = found[name]
        lines.append(
            f"| {name} | {figure(version.speedup)} | {base['kernels_ms'] / of['kernels_ms']:.2f} | "
            f"{base['time_ms'] / of['time_ms']:.2f} | {figure(version.nmi)} | {statistics.fmean(of['nmi']):.3f} | "
            f"{min(of['nmi']):.3f} | {types_of(of['configuration'])} |"
        )
    missed = [f"{name}: {', '.join(kernels)}" for name, (_, kernels) in chosen.items() if kernels]
    lines += [
        "",
        f"FP64 takes {base['time_ms']:.3g} ms here, {base['kernels_ms']:.3g} ms of them in kernels; 814 and 686 ms in "
        "the paper. What differs: the paper's are of an NVIDIA A100, a GPU, with 40 x 10,110,912 entries of measured "
        f"data, these of {processor().name}, {usable_cores()} cores, with {sizes.years} x {sizes.cells:,} made-up "
        "entries that are deviations from their mean, so that narrow types have more digits where they matter. NMI is "
        f"of {len(_DRAWS)} sets of data. Kernels were tuned one by one, {given.budget} evaluations each (250 in the "
        f"paper), by the {_METRIC} of their own outputs (in the paper the NRMSE, which divides by the mean: that of "
        "deviations is about 0). A dash is where the paper's text has no number.",
    ]
    if missed:
        lines.append(f"No types keep the threshold with that type of data; the closest are taken: {'; '.join(missed)}.")
    return "\n".join(lines)


def figure(value: float) -> str:
    """Say a number of the paper; a dash where its text has none."""
    return "-" if math.isnan(value) else f"{value:.2f}"


def types_of(configuration: Configuration) -> str:
    """Say the types of a configuration."""
    return ", ".join(f"{name} {value}" for name, value in configuration.items() if name.endswith("_type"))


def h_f14(given: Given) -> str:
    """Maps of the clusters of FP64 and Low, side by side."""
    chosen = versions(given)
    sizes = bbac().resolve_sizes(given.size, dict(given.sizes))
    made = bbac().inputs(FIRST.generator(given.seed), sizes)
    answers = {name: outputs_of(chosen[name][0], made, sizes) for name in ("FP64", "Low")}
    picture = picture_of(bbac())
    figure = beside([image_of(picture, outputs, made, sizes) for outputs in answers.values()], list(answers))
    path = given.folder / "h-f14.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    error = bbac().metric
    assert callable(error)
    nmi = 1 - error(answers["Low"]["cell_cluster"], answers["FP64"]["cell_cluster"])
    return (
        f"Clusters that BBAC-I finds in FP64 and in Low, NMI {nmi:.3f}, {sizes.years} x {sizes.cells:,} made-up "
        "entries (Heldens 2026, Fig. 14, shows measured ones of the USA, NMI 0.78). A cluster's colour is its rank by "
        f"the onset of spring. Written to {path}"
    )


def outputs_of(configuration: Configuration, inputs: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Return the outputs of a run of the application, by name."""
    given, sizes = inputs_from(bbac(), sizes, inputs)
    backend = get_backend("host")
    with contextlib.closing(ApplicationLauncher(bbac(), configuration, backend)) as launcher:
        outputs, _ = launcher.run(given, sizes, in_memory_of(backend, given))
        return {name: np.array(array) for name, array in outputs.items()}


ITEMS: Final[Mapping[str, Item]] = MappingProxyType(
    {
        "h-f13": Item("speedup and NMI of five versions of BBAC-I co-clustering (Heldens 2026, Fig. 13)", h_f13),
        "h-f14": Item("maps of the clusters that BBAC-I finds in FP64 and in Low (Heldens 2026, Fig. 14)", h_f14),
    }
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the items asked for; 0 when all went well, 2 for wrong input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("items", nargs="*", metavar="ITEM", help="by default all")
    parser.add_argument("--list", action="store_true", help="print the items there are")
    parser.add_argument("--size", action="append", default=[], metavar="PRESET|NAME=VALUE", help="of the application")
    parser.add_argument("--budget", type=int, default=60, help="evaluations of each kernel")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("papers"), help="where pictures go")
    options = parser.parse_args(arguments)
    try:
        for name in options.items:
            if name not in ITEMS:
                raise UnknownNameError("item", name, ITEMS)
        if options.list:
            for name, item in ITEMS.items():
                print(f"{name}  {item.what}")
            return 0
        preset, sizes = parse_sizes(bbac(), options.size)
        given = Given(preset, tuple(sizes.items()), options.budget, options.seed, options.folder)
        for name in options.items or ITEMS:
            print(f"## {name}\n\n{ITEMS[name].run(given)}\n", flush=True)
    except MptuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
