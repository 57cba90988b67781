"""Searches that are run, not replayed: where their time goes (Heldens 2026, Fig. 6)."""

from __future__ import annotations

import hashlib
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from benchmarks.bench import code_digest, percent
from benchmarks.kernels import THRESHOLDS
from benchmarks.reproductions.heldens.replays import Searcher
from benchmarks.reproductions.heldens.spaces import KERNELS
from benchmarks.reproductions.heldens.strategies import STRATEGIES
from benchmarks.reproductions.item import Cell as Shown
from benchmarks.reproductions.item import Given, Outcome, Table
from benchmarks.reproductions.spread import FEWEST, percents, spread
from mptune.backends import get_backend
from mptune.backends.processor import processor, usable_cores
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.tuning import tune

__all__ = ["h_f6", "parts_of"]

# -- Fig. 6: where the time goes -------------------------------------------------------------------

#: Of a run's time (:attr:`mptune.run.Run.durations_s`), what the paper tells apart.
_PARTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "compilation": ("compile",),
        "error": ("accuracy",),
        "benchmarking": ("timing",),
        "strategy": ("search",),
    }
)
_OTHER: Final = "other"
#: Of BO, in the paper.
_PAPER_BO: Final[Mapping[str, float]] = MappingProxyType(
    {"compilation": 0.80, "error": 0.13, "benchmarking": 0.038, "strategy": 0.026}
)
_TIMED: Final = ("bessel", "kmeans")
#: Searches of a strategy on a kernel, at most: each takes minutes.
_MOST_SEARCHES: Final = FEWEST
_QUICK: Final = ("BO", "mptune bayesian")


def parts_of(run: Run) -> dict[str, float]:
    """Return the seconds of a run by the parts of the paper's figure; what is none of them is "other"."""
    spent = run.durations_s
    parts = {part: math.fsum(spent.get(phase, 0.0) for phase in phases) for part, phases in _PARTS.items()}
    return {**parts, _OTHER: math.fsum(spent.values()) - math.fsum(parts.values())}


def h_f6(given: Given) -> Outcome:
    """Return how the time of a run on this machine is divided, by strategy."""
    kernels = _TIMED[:1] if given.quick else _TIMED
    chosen = [each for each in STRATEGIES.values() if not given.quick or each.name in _QUICK]
    searches = min(given.runs, _MOST_SEARCHES)
    seeds = range(given.seed, given.seed + searches)
    found = {
        each.name: [[_timed_run(given, name, each, seed) for name in kernels] for seed in seeds] for each in chosen
    }
    parts = {name: [_sum(map(parts_of, runs)) for runs in by_seed] for name, by_seed in found.items()}
    means = {
        name: {part: statistics.fmean(one[part] for one in by_seed) for part in (*_PARTS, _OTHER)}
        for name, by_seed in parts.items()
    }
    rows = tuple(_time_row(name, found[name], parts[name]) for name in found)
    paper = (
        "paper: most strategies; parts of BO",
        "about 480",
        250,
        "about 2",
        *(percent(share, 1) for share in _PAPER_BO.values()),
        None,
    )
    shares = {part: means["BO"][part] / math.fsum(means["BO"].values()) for part in _PARTS}
    said = ", ".join(f"{part} {percent(share, 1)}" for part, share in shares.items()).removeprefix("compilation ")
    return Outcome(
        "The paper, of BO: 80% compilation, 13% error measurement, 3.8% benchmarking, 2.6% the strategy; 2 s for an "
        f"evaluation. Here, of BO: waiting for the compiler {said}.",
        (
            Table(
                "Mean over kernels of the time of a run, and how it is divided, over runs",
                ("strategy", "seconds", "evaluations", "seconds each", *_PARTS, _OTHER),
                (paper, *rows),
            ),
        ),
        (
            f"Runs of {given.budget} evaluations (250 in the paper) of {', '.join(KERNELS[name] for name in kernels)} "
            f"at medium accuracy, size {' '.join(given.size) or 'default'}, {searches} of each strategy with the seeds "
            f"from {given.seed} on, on {processor().name}, {usable_cores()} cores: "
            "a processor, where the compiler is g++ and a launch takes longer than on an A100 or MI250X. Each with an "
            "empty cache of compiled kernels.",
            "Parts are shares of the wall time. Compilers run ahead of the search on all cores, but not while "
            "something is timed, so that compilation is only what the search waits for them. Other: inputs, "
            "references, first launches and transfers.",
            "The error of an accuracy signature is measured once or a few times, where the paper measures that of "
            "every configuration.",
            "BH, SA and FF end before the budget is spent in the paper; here all go on until it is.",
        ),
    )


def _timed_run(given: Given, name: str, searcher: Searcher, seed: int) -> Run:
    """Search with an empty cache of compiled kernels; a run that has ended is kept, so that the item can be stopped."""
    size, sizes = given.sizes_of(load_kernel(name))
    made_by = (
        code_digest(),
        processor().name,
        dict(get_backend("host").describe().versions),
    )
    of = (name, size, sizes, searcher.strategy, dict(searcher.options), given.budget, seed, *made_by)
    path = given.work / "h-f6" / f"{name}-{hashlib.sha256(repr(of).encode()).hexdigest()[:16]}.db"
    if path.exists():
        return Run.load(path)
    begun = path.with_suffix(f".{os.getpid()}.begun")
    begun.unlink(missing_ok=True)
    with _empty_cache():
        run = tune(
            name,
            output=begun,
            backend="host",
            size=size,
            sizes=sizes,
            strategy=searcher.strategy,
            strategy_options=searcher.options,
            max_error=THRESHOLDS[name][1],
            budget=given.budget,
            seed=seed,
            inputs=1,
            verify=0,
            on_warning=lambda _: None,
        )
    begun.rename(path)
    print(f"{searcher.name} on {name}, seed {seed}: {run.state.wall_s:.1f} s", file=sys.stderr)
    return run


@contextmanager
def _empty_cache() -> Iterator[None]:
    """Keep compiled kernels and references of a run in a folder of its own."""
    before = os.environ.get("MPTUNE_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MPTUNE_CACHE_DIR"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["MPTUNE_CACHE_DIR"]
            else:
                os.environ["MPTUNE_CACHE_DIR"] = before


def _sum(entries: Iterator[dict[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for entry in entries:
        total = {part: total.get(part, 0.0) + seconds for part, seconds in entry.items()}
    return total


def _evaluations(by_seed: Sequence[Sequence[Run]]) -> float:
    return statistics.fmean(run.evaluations for runs in by_seed for run in runs)


def _time_row(name: str, by_seed: Sequence[Sequence[Run]], parts: Sequence[Mapping[str, float]]) -> tuple[Shown, ...]:
    """Return the seconds of a strategy's runs, and of each part its share of them; of all kernels together."""
    wall_s = [statistics.fmean(run.state.wall_s for run in runs) for runs in by_seed]
    each_s = [
        seconds / statistics.fmean(run.evaluations for run in runs)
        for seconds, runs in zip(wall_s, by_seed, strict=True)
    ]
    shares = ([one[part] / math.fsum(one.values()) for one in parts] for part in (*_PARTS, _OTHER))
    return (
        name,
        spread(wall_s, lambda value: f"{value:.3g}"),
        _evaluations(by_seed),
        spread(each_s, lambda value: f"{value:.2g}"),
        *map(percents, shares),
    )
