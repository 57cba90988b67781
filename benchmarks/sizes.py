"""Wisdom at sizes that were never tuned: its speed relative to tuning at each size, and violations of error limits.

    python benchmarks/sizes.py [--kernels NAME,...] [--budget 60] [--unseen 20] [--draws 40] [--quick] [--resume]
    python benchmarks/sizes.py --errors [--kernels NAME,...] [--types 8] [--draws 40] [--resume]

Each kernel is tuned for five sizes together, with five times the budget, and wisdom is gathered from the runs. At
each of 20 other sizes, between them and up to a factor of two beyond, wisdom chooses a configuration, and the kernel
is tuned there as well. Four configurations are timed in turn: the choice, the winner of that size, the fp64 baseline
(used at such sizes without wisdom), and the winner of the middle size. The choice also runs on fresh draws of the
inputs. ``--quick`` only checks in a few minutes that the benchmark works.

``--errors`` measures errors alone, of all bundled kernels: how many fresh draws exceed the limit predicted from other
sizes (:mod:`benchmarks.size_errors`).
"""

from __future__ import annotations

import argparse
import functools
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from benchmarks import bench, size_errors  # noqa: E402
from benchmarks.unseen import times_of  # noqa: E402
from mptune.data import Draw, Stream  # noqa: E402
from mptune.measure.device import DeviceEvaluator  # noqa: E402
from mptune.results.trial import Status  # noqa: E402
from mptune.run import Run  # noqa: E402
from mptune.source.loading import load_kernel  # noqa: E402
from mptune.space.configuration import Configuration  # noqa: E402
from mptune.tuning import tune, tune_sizes  # noqa: E402
from mptune.tuning.sizes import label_of  # noqa: E402
from mptune.wisdom import BySize, Wisdom, gather, read_sources  # noqa: E402

#: By kernel, the sizes that are varied together, their smallest and largest tuned values, and the error limit.
KERNELS: Final[Mapping[str, tuple[tuple[str, ...], int, int, float]]] = {
    "axpy": (("n",), 20_000, 2_000_000, 1e-4),
    "gemm": (("M", "N", "K"), 64, 512, 1e-4),
    "convolution2d": (("width", "height"), 96, 768, 1e-4),
    "coulombic": (("charges",), 100, 1600, 1e-4),
}
TARGETS: Final = {"mean": 0.95, "least": 0.85}
WAYS: Final = ("own", "wisdom", "one", "fp64")
_TUNED: Final = 5
#: Evaluations, unseen sizes and draws of ``--quick``.
_QUICK: Final = (6, 2, 5)
#: Seed of the fresh draws, which no run has.
_FRESH: Final = 1_000_003


def ladder(names: Sequence[str], low: int, high: int, count: int) -> list[dict[str, int]]:
    """Return sizes in geometric steps, all names with the same value."""
    return [dict.fromkeys(names, round(value)) for value in np.geomspace(low, high, count)]


def unseen_sizes(names: Sequence[str], low: int, high: int, count: int) -> list[dict[str, int]]:
    """Return sizes from half the smallest tuned one to twice the largest, none of which is tuned."""
    tuned = ladder(names, low, high, _TUNED)
    return [sizes for sizes in ladder(names, low // 2, 2 * high, count) if sizes not in tuned]


class Tuning:
    """The runs of a kernel, kept in a folder.

    Args:
        name: of the kernel.
        options: of the command line.
    """

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        names, low, high, self.limit = KERNELS[name]
        self.kernel = load_kernel(name)
        self.unseen = [
            {**self.kernel.sizes["default"], **sizes} for sizes in unseen_sizes(names, low, high, options.unseen)
        ]
        self._ladder = ladder(names, low, high, _TUNED)
        self._options = options
        self._folder = options.output.with_suffix(".runs")

    @functools.cached_property
    def runs(self) -> list[Run]:
        """The runs of the tuned sizes, which share a budget of so many evaluations each."""
        return tune_sizes(
            self.kernel,
            {name: [sizes[name] for sizes in self._ladder] for name in self._ladder[0]},
            budget=self._options.budget * len(self._ladder),
            output=self._folder / f"{self.kernel.name}.db",
            resume=True,
            **self._common,
        )

    @functools.cached_property
    def wisdom(self) -> Wisdom:
        """Return the wisdom gathered from the runs."""
        return gather(read_sources(self.runs))

    def own(self, sizes: Mapping[str, int]) -> Run:
        """Return a run at one size."""
        path = self._folder / f"{self.kernel.name}-own-{label_of(sizes)}.db"
        return tune(
            self.kernel, sizes=sizes, budget=self._options.budget, output=path, resume=path.exists(), **self._common
        )

    @property
    def _common(self) -> dict[str, Any]:
        return {
            "backend": "host",
            "max_error": self.limit,
            "seed": self._options.seed,
            "on_warning": lambda _: None,
        }


def compared(tuning: Tuning, sizes: Mapping[str, int], draws: int) -> dict[str, Any]:
    """Return the times of the winner, wisdom's choice, the winner of the middle size and fp64, and violations."""
    own, kernel = tuning.own(sizes), tuning.kernel
    choice = BySize(tuning.wisdom, kernel, "host").choose(own.info.sizes)
    chosen = {"own": own.best, "one": tuning.runs[_TUNED // 2].best, "fp64": own.baseline}
    found: dict[str, Configuration] = {way: trial.configuration for way, trial in chosen.items() if trial is not None}
    found["wisdom"] = choice.configuration
    limits = own.info.objective.limits
    with DeviceEvaluator(kernel, kernel.resolve_sizes("default", own.info.sizes), "host", seed=_FRESH) as evaluator:
        trials = evaluator.run_on_draws([choice.configuration], [Draw(Stream.UNSEEN, i) for i in range(draws)]).trials
        times = times_of(evaluator, [*dict.fromkeys(found.values())])
    broken = sum(
        trial.status is not Status.OK or any(not trial.metric(name) <= limit for name, limit in limits.items())
        for trial in trials
    )
    return {
        "kernel": kernel.name,
        "sizes": dict(own.info.sizes),
        "why": choice.why,
        "times_ms": {way: times.get(found[way]) for way in WAYS if way in found},
        "draws": len(trials),
        "violations": broken,
    }


def speeds(entries: Sequence[Mapping[str, Any]], way: str) -> list[float]:
    """Return the speeds of a way relative to tuning at each size, where both are known."""
    times = [entry["times_ms"] for entry in entries]
    return [each["own"] / each[way] for each in times if (each.get("own") or 0) > 0 and (each.get(way) or 0) > 0]


def page(options: argparse.Namespace, results: Mapping[str, Any]) -> str:
    """Return the page."""
    entries = list(results.values())
    of = {name: [entry for entry in entries if entry["kernel"] == name] for name in KERNELS}
    groups = {name: some for name, some in of.items() if some} | {"all": entries}
    rows = [
        (
            name,
            len(some),
            *(cell for way in WAYS[1:] for cell in _cells(speeds(some, way))),
            f"{sum(e['violations'] for e in some):,} of {sum(e['draws'] for e in some):,} draws",
        )
        for name, some in groups.items()
    ]
    ways = ("wisdom", "one size", "fp64")
    parts = [
        f"Budget {options.budget} at each size. Speeds are relative to tuning at the size: geometric mean and least "
        f"over the unseen sizes. Targets for wisdom: mean ≥ {TARGETS['mean']:g}, least ≥ {TARGETS['least']:g}, no "
        "violation.",
        bench.table(
            ("kernel", "unseen sizes", *(f"{way}, {what}" for way in ways for what in ("mean", "least")), "violations"),
            rows,
        ),
    ]
    if gains := [1 / speed for speed in speeds(of["gemm"], "one")]:
        parts.append(
            f"Lin 2025, Fig. 15: gemm tuned for its size is {statistics.geometric_mean(gains):.2f} times as fast as "
            f"the header of one size in the geometric mean, and up to {max(gains):.2f} times."
        )
    singly = [
        (
            entry["kernel"],
            ", ".join(f"{size}={value}" for size, value in entry["sizes"].items()),
            *(f"{found[0]:.2f}" if (found := speeds([entry], way)) else "-" for way in WAYS[1:]),
            entry["violations"],
            entry["why"],
        )
        for entry in entries
    ]
    return "\n\n".join([*parts, bench.table(("kernel", "sizes", *ways, "violations", "why"), singly)])


def _cells(found: Sequence[float]) -> tuple[str, str]:
    return (f"{statistics.geometric_mean(found):.3f}", f"{min(found):.2f}") if found else ("-", "-")


def measure(options: argparse.Namespace, sheet: bench.Sheet) -> None:
    """Tune kernels and compare at every unseen size."""
    if options.quick:
        options.budget, options.unseen, options.draws = _QUICK
    if not options.resume:
        shutil.rmtree(options.output.with_suffix(".runs"), ignore_errors=True)
    common = {"budget": options.budget, "seed": options.seed}
    for name in bench.names_in(options.kernels, KERNELS, "kernel") or KERNELS:
        tuning = Tuning(name, options)
        for sizes in tuning.unseen:
            sheet.add(
                f"{name}, {label_of(sizes)}",
                functools.partial(compared, tuning, sizes, options.draws),
                draws=options.draws,
                **common,
            )


def measure_errors(options: argparse.Namespace, sheet: bench.Sheet) -> None:
    """Measure errors at several sizes."""
    for name in bench.names_in(options.kernels, size_errors.LADDERS, "kernel") or size_errors.LADDERS:
        settings = {"types": options.types, "draws": options.draws, "seed": options.seed}
        sheet.add(name, functools.partial(size_errors.measured, load_kernel(name), **settings), **settings)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    of_errors = "--errors" in words
    parser = bench.parser(__doc__, bench.RESULTS / ("size_errors.md" if of_errors else "sizes.md"))
    parser.add_argument("--kernels", default="", help="names, separated by commas [all]")
    parser.add_argument("--budget", type=int, default=60)
    parser.add_argument("--unseen", type=int, default=20)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="few evaluations at few sizes")
    parser.add_argument("--errors", action="store_true", help="measure errors alone, of all bundled kernels")
    parser.add_argument("--types", type=int, default=8, help="choices of types with --errors")
    own = [Path(size_errors.__file__)]
    if of_errors:
        return bench.main(
            parser, "Errors predicted from other sizes", measure_errors, size_errors.page, words, scripts=own
        )
    return bench.main(parser, "Sizes that were never tuned", measure, page, words, scripts=own)


if __name__ == "__main__":
    sys.exit(main())
