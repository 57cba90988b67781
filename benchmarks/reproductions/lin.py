"""Lin et al. 2025, High Performance OpenCL-Based GEMM Kernel Auto-Tuned by Bayesian Optimization.

Figures 8, 12 and 15 are measured on this machine, by the host backend or by OpenCL as in the paper: sets of
configurations, drawn once, are compiled beforehand and measured at every size; the fastest few then take turns. Figure
14 replays a recording.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from benchmarks.bench import percent
from benchmarks.in_turn import measure_in_turn
from benchmarks.kernels import blas_ms
from benchmarks.reproductions.item import Cell, Given, Item, Outcome, Table
from benchmarks.reproductions.replayed import jobs_of, recordings, run_all
from benchmarks.reproductions.spread import percents, spread
from benchmarks.search.cells import Job
from benchmarks.search.tools import DEFAULT, Tool
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.processor import processor, usable_cores
from mptune.data import DataManager
from mptune.errors import MptuneError
from mptune.interop import read_run
from mptune.kernel import Kernel, Sizes
from mptune.measure.bench import Bench, Request
from mptune.measure.device import source_of
from mptune.measure.rounds import remeasure
from mptune.measure.timing import TimingPlan
from mptune.results.objective import Objective
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.space.configuration import Configuration
from mptune.space.expressions import Expression
from mptune.space.parameters import PrecisionParameter
from mptune.tuning import device_constraints

__all__ = ["ITEMS", "balanced", "replay_network"]

#: The paper's two optimisations: double buffering, fine-grained prefetching.
VARIANTS: Final[Mapping[str, tuple[bool, bool]]] = MappingProxyType(
    {
        "neither": (False, False),
        "fine prefetch": (False, True),
        "double buffer": (True, False),
        "both": (True, True),
    }
)
_TILE: Final = ("MWG", "NWG", "KWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "STRM", "STRN", "VWM", "VWN")
#: Where sets of configurations start: Table III, Intel Xeon 5120, and what ``benchmarks/kernels.py`` found.
_STARTS: Final[Mapping[str, tuple[tuple[int | bool, ...], ...]]] = MappingProxyType(
    {
        "fp32": (
            (128, 64, 16, 8, 8, 16, 8, True, False, 8, 8),
            (128, 128, 32, 16, 4, 32, 8, False, False, 4, 8),
        ),
        "fp64": (
            (64, 32, 16, 4, 8, 16, 4, True, False, 4, 4),
            (64, 64, 32, 8, 4, 16, 4, True, False, 4, 8),
        ),
    }
)
#: Where configurations are tuned for every other size (Sec. V-C).
TUNED_AT: Final = 1024
_SIZES: Final = (128, 256, 384, 512, 640, 768, TUNED_AT)
#: Fig. 12: multiples of 128, multiples of 129, around 2048.
_BLAS_SIZES: Final = (256, 512, 1024, 1536, 258, 516, 1032, 1548, 2047, 2048, 2049)
_QUICK_SIZES: Final = (128, 129, 256)
#: Where all are measured first, and how many of each variant are then measured at the sizes that count.
_SCREENED_AT: Final = 512
_PROMISING: Final = 6
_FINALISTS: Final = 3
_ROUNDS: Final = 5
_BLAS_ROUNDS: Final = 9
_VISIT: Final = TimingPlan(warmups=1, min_repeats=3, max_repeats=10, relative_width=0.0, cap_s=0.05)
#: Configurations by what they are a set of.
Sets = Mapping[str, Sequence[Configuration]]
#: Milliseconds of each round, in which all took turns.
Rounds = Sequence[float]
_ONCE: Final = TimingPlan(warmups=0, min_repeats=2, max_repeats=5, relative_width=0.0, cap_s=0.03)


# -- what is measured on this machine --------------------------------------------------------------


def gemm() -> Kernel:
    """Return the kernel."""
    return load_kernel("gemm")


def candidates(type_name: str, variant: str, count: int, seed: int, backend: str = "host") -> list[Configuration]:
    """Return the set of configurations that a variant is tuned among: the starts, and half each of what is near them
    (in one or two parameters) and of what is anywhere.

    Args:
        type_name: type of everything.
        variant: one of :data:`VARIANTS`.
        count: how many.
        seed: of the draw.
        backend: whose limits they keep to.
    """
    kernel = gemm()
    limits = get_backend(backend).device.facts()
    space = kernel.search_space(kernel.resolve_sizes("paper", {}), device_constraints(kernel, limits))
    types = {p.name: (type_name,) for p in kernel.parameters if isinstance(p, PrecisionParameter)}
    double_buffer, fine_prefetch = VARIANTS[variant]
    space = space.restrict({**types, "double_buffer": (double_buffer,), "fine_prefetch": (fine_prefetch,)})
    rng = np.random.default_rng([seed, list(VARIANTS).index(variant)])
    plain = space.configuration(0)
    indices = [space.index({**plain, **dict(zip(_TILE, tile, strict=True))}) for tile in _STARTS[type_name]]
    chosen = dict.fromkeys(index for index in indices if index is not None)
    near = np.unique(np.concatenate([np.empty(0, np.int64), *(space.neighbours(i) for i in chosen)]))
    further = [space.neighbours(int(i)) for i in rng.permutation(near)[:count]]
    near = np.unique(np.concatenate([near, *further]))
    chosen |= dict.fromkeys(rng.permutation(near)[: count // 2].tolist())
    chosen |= dict.fromkeys(space.sample(min(count, space.size), rng).tolist())
    return space.configurations(list(chosen)[:count])


def compile_ahead(kernel: Kernel, configurations: Sequence[Configuration], sizes: Sizes, backend: str) -> None:
    """Fill the binary cache, on all cores."""
    compiler = get_backend(backend).compiler

    def compile_one(configuration: Configuration) -> None:
        try:
            compiler.compile(render(kernel, configuration, sizes), kernel.function, CompileOptions())
        except MptuneError:
            # It fails again, and is left out, when its turn comes.
            return

    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(compile_one, configurations))


def promising(kernel: Kernel, type_name: str, count: int, given: Given) -> Sets:
    """Return the fastest few of so many candidates of each variant, at a size of their own."""
    sets = {variant: candidates(type_name, variant, count, given.seed, given.backend) for variant in VARIANTS}
    every = [configuration for one in sets.values() for configuration in one]
    sizes = cube(kernel, max(_QUICK_SIZES) if given.quick else _SCREENED_AT)
    compile_ahead(kernel, every, sizes, given.backend)
    with closing(Bench(kernel, sizes, get_backend(given.backend), seed=given.seed)) as bench:
        found = measure_in_turn(bench, every, 1, _ONCE)
    return {
        name: sorted((c for c in one if c in found), key=lambda c: found[c].time_ms)[:_PROMISING]
        for name, one in sets.items()
    }


def times_of(kernel: Kernel, sizes: Sizes, sets: Sets, given: Given) -> dict[str, dict[Configuration, Rounds]]:
    """Return the milliseconds of the fastest few of each set, which took turns with those of the others."""
    compile_ahead(kernel, [c for one in sets.values() for c in one], sizes, given.backend)
    with closing(Bench(kernel, sizes, get_backend(given.backend), seed=given.seed)) as bench:
        first = measure_in_turn(bench, [c for one in sets.values() for c in one], 1, _ONCE)
        few = {
            name: sorted((c for c in one if c in first), key=lambda c: first[c].time_ms)[:_FINALISTS]
            for name, one in sets.items()
        }
        again = measure_in_turn(bench, [c for one in few.values() for c in one], _ROUNDS, _VISIT)
        return {name: {c: again[c].times_ms for c in one if c in again} for name, one in few.items()}


@functools.cache
def measured(given: Given) -> dict[int, dict[str, dict[Configuration, Rounds]]]:
    """Return, by size and variant, the milliseconds of the fastest few in fp32.

    The configuration that is the fastest of all at :data:`TUNED_AT` is measured at every size as the set "fixed".
    """
    kernel = gemm()
    sets = promising(kernel, "fp32", given.budget, given)
    sizes = (*(_QUICK_SIZES if given.quick else _SIZES),)
    largest = max(sizes)
    found = {largest: times_of(kernel, cube(kernel, largest), sets, given)}
    fixed, _ = best_of(found[largest])
    found[largest]["fixed"] = {fixed: best_of(found[largest])[1]}
    for n in sizes:
        if n != largest:
            found[n] = times_of(kernel, cube(kernel, n), {**sets, "fixed": [fixed]}, given)
    return dict(sorted(found.items()))


def cube(kernel: Kernel, n: int) -> Sizes:
    """Return the sizes of square matrices."""
    return kernel.resolve_sizes("paper", dict.fromkeys("MNK", n))


def best_of(times: Mapping[str, Mapping[Configuration, Rounds]]) -> tuple[Configuration, Rounds]:
    """Return the configuration of all sets whose median is the least, and its times.

    Raises:
        MptuneError: none runs.
    """
    together = {c: rounds for one in times.values() for c, rounds in one.items()}
    if not together:
        raise MptuneError("kernel gemm: no configuration runs on this machine")
    return min(together.items(), key=lambda entry: statistics.median(entry[1]))


def median_of(rounds: Rounds) -> float:
    """Return the median of some rounds, NaN of none."""
    return statistics.median(rounds) if rounds else math.nan


def ratios(one: Rounds, other: Rounds) -> list[float]:
    """Return the time of one over that of another, round by round."""
    return [a / b for a, b in zip(one, other, strict=True)]


def gflops(n: int, ms: float) -> float:
    """Return billions of operations a second of a product of square matrices."""
    return 2.0 * n**3 / ms / 1e6


def speeds_of(n: int, rounds: Rounds) -> str | None:
    """Say the speed in GFlop/s over rounds; None of none."""
    return spread([gflops(n, ms) for ms in rounds], lambda value: f"{value:.4g}") if rounds else None


def _here(given: Given) -> str:
    by = "by the host backend" if given.backend == "host" else f"by {get_backend(given.backend).describe().name}"
    return (
        "The paper's figures are of an Intel Xeon Gold 5120 through OpenCL (Fig. 8: through Intel's emulation platform "
        f"for FPGAs), ours of {processor().name} ({processor().architecture}, {usable_cores()} cores), {by}: a "
        "processor, whose caches fetch ahead by themselves."
    )


def _drawn(given: Given) -> str:
    return (
        f"A kernel is tuned among {given.budget} configurations of each variant, drawn with seed {given.seed}: two to "
        "start from (one is Table III's), half near those, half anywhere. The "
        f"{_PROMISING} fastest of each variant are those at {max(_QUICK_SIZES) if given.quick else _SCREENED_AT}"
    )


def _measured_at_each(given: Given) -> str:
    return (
        _drawn(given)
        + f"; they are measured at each size, and the {_FINALISTS} fastest there {_ROUNDS} times in turn, "
        "of which the median counts."
    )


# -- Fig. 8: the two optimisations -----------------------------------------------------------------

_FIG_8: Final[Mapping[str, str]] = MappingProxyType(
    {"neither": "1", "fine prefetch": "1.065", "double buffer": "1.193", "both": "1.329"}
)


def l_f8(given: Given) -> Outcome:
    """Best speed of the four variants over sizes."""
    found = measured(given)
    best = {
        n: {variant: min(times[variant].values(), key=statistics.median, default=()) for variant in VARIANTS}
        for n, times in found.items()
    }
    medians = {n: {variant: median_of(rounds) for variant, rounds in of_size.items()} for n, of_size in best.items()}
    speedups = {v: [of_size["neither"] / of_size[v] for of_size in medians.values()] for v in VARIANTS}
    mean = statistics.fmean(speedups["both"])
    return Outcome(
        f"On average over sizes both optimisations together make {mean:.2f} of the speed without them; in the paper "
        "1.33.",
        (
            Table(
                "Mean speedup over the variant without either",
                ("variant", "paper", "here", "least", "most", "median and quartiles over sizes"),
                tuple(
                    (
                        variant,
                        _FIG_8[variant],
                        statistics.fmean(found),
                        min(found),
                        max(found),
                        spread(found, lambda value: f"{value:.2f}"),
                    )
                    for variant, found in speedups.items()
                ),
            ),
            Table(
                f"GFlop/s in fp32, the best of each variant that was measured at the size, over {_ROUNDS} rounds",
                ("size", *VARIANTS),
                tuple((n, *(speeds_of(n, of_size[variant]) for variant in VARIANTS)) for n, of_size in best.items()),
            ),
        ),
        (
            _here(given)
            + " So there is nothing to gain; what the additional copies and barriers cost was not measured "
            "apart.",
            _measured_at_each(given),
            "The paper compares with CLBlast's kernel; ours is the same kernel without the two switches.",
        ),
        {"ms": {str(n): dict(times) for n, times in best.items()}},
    )


# -- Fig. 15: tuned for the size or for 1024 -------------------------------------------------------


def l_f15(given: Given) -> Outcome:
    """Speed tuned for each size beside that of the configuration tuned for one size."""
    found = measured(given)
    tuned_at = max(found)
    (fixed,) = found[tuned_at]["fixed"]
    rows: list[tuple[Cell, ...]] = []
    gains = []
    speeds: dict[str, list[float]] = {f"tuned for {tuned_at}": [], "tuned for the size": []}
    for n, times in found.items():
        own, own_ms = best_of(times)
        fixed_ms = times["fixed"].get(fixed, ())
        gains.append(median_of(fixed_ms) / median_of(own_ms))
        by_round = spread(ratios(fixed_ms, own_ms), lambda value: f"{value:.2f}") if fixed_ms else None
        what = "the same" if own == fixed else _tile(own)
        rows.append((n, speeds_of(n, fixed_ms), speeds_of(n, own_ms), gains[-1], by_round, what))
        for values, rounds in zip(speeds.values(), (fixed_ms, own_ms), strict=True):
            values.append(gflops(n, median_of(rounds)))
    return Outcome(
        f"Tuned for the size gemm is {statistics.fmean(gains):.2f} times as fast on average as tuned for {tuned_at}; "
        f"at {sum(row[-1] == 'the same' for row in rows)} of {len(rows)} sizes it is the same configuration. In the "
        "paper the former is 1.42 times as fast as CLBlast tuned for 1024.",
        (
            Table(
                f"GFlop/s in fp32, over {_ROUNDS} rounds, and the speedup of the medians and round by round",
                ("size", f"tuned for {tuned_at}", "tuned for the size", "speedup", "over rounds", "configuration"),
                tuple(rows),
            ),
        ),
        (
            _here(given) + " The paper's Fig. 15 is of an NVIDIA A100.",
            _measured_at_each(given)
            + " The fastest of all that were measured counts as tuned for the size, so that no "
            "speedup is far below 1.",
            "The paper's fixed configuration is CLBlast's, another kernel, so that its 1.42 also has what the kernel "
            "gains.",
            f"Fixed: {_tile(fixed)}.",
        ),
    )


def _tile(configuration: Configuration) -> str:
    names = (*_TILE, "double_buffer", "fine_prefetch")
    return ", ".join(f"{name} {configuration[name]}" for name in names)


# -- Fig. 12: beside the platform's BLAS -----------------------------------------------------------


def l_f12(given: Given) -> Outcome:
    """Speed beside NumPy's BLAS in two types."""
    kernel = gemm()
    sizes = _QUICK_SIZES if given.quick else _BLAS_SIZES
    tuned_at = max(_QUICK_SIZES) if given.quick else TUNED_AT
    times: dict[str, dict[int, tuple[Rounds, Rounds]]] = {}
    chosen = {}
    for type_name in ("fp32", "fp64"):
        share = max(1, given.budget // (1 if type_name == "fp32" else len(VARIANTS)))
        sets = promising(kernel, type_name, share, given)
        fixed, _ = best_of(times_of(kernel, cube(kernel, tuned_at), sets, given))
        chosen[type_name] = fixed
        times[type_name] = {n: beside_blas(kernel, cube(kernel, n), fixed, type_name, given) for n in sizes}
    # The least counts: a round that was disturbed says nothing of either.
    speeds = {
        type_name: {n: (gflops(n, min(own)), gflops(n, min(other))) for n, (own, other) in of_type.items()}
        for type_name, of_type in times.items()
    }
    rows = tuple(
        (type_name, n, own, other, percent(own / other, 0), percents(ratios(*reversed(times[type_name][n]))))
        for type_name, of_type in speeds.items()
        for n, (own, other) in of_type.items()
    )
    best = {t: max(own / other for own, other in of_type.values()) for t, of_type in speeds.items()}
    median = {t: statistics.median(own / other for own, other in of_type.values()) for t, of_type in speeds.items()}
    return Outcome(
        "Of the speed of NumPy's BLAS our gemm has at best "
        + " and ".join(f"{percent(best[t], 0)} in {t} ({percent(median[t], 0)} in the median of sizes)" for t in best)
        + "; in the paper it has at best 64% of oneMKL's.",
        (
            Table(
                f"GFlop/s, the best of {_BLAS_ROUNDS} rounds, and the share of BLAS, of the best and round by round",
                ("type", "size", "gemm", "BLAS", "share", "over rounds"),
                rows,
            ),
        ),
        (
            _here(given),
            f"Tuned at {tuned_at} and used at all sizes, as in the paper: "
            + "; ".join(f"{t}: {_tile(c)}" for t, c in chosen.items())
            + ".",
            f"NumPy's BLAS is OpenBLAS, with {_workers()} threads; its product has no alpha, beta and C. Both take "
            f"turns, {_BLAS_ROUNDS} times, and the least of each counts. CLBlast and clBLAS are not here.",
            _drawn(given) + f"; the fastest of them at {tuned_at} is taken. Of fp64 a quarter as many are drawn.",
        ),
    )


def beside_blas(
    kernel: Kernel, sizes: Sizes, configuration: Configuration, type_name: str, given: Given
) -> tuple[Rounds, Rounds]:
    """Return the milliseconds of a configuration and of NumPy's product in the rounds in which they take turns.

    Raises:
        MptuneError: the configuration does not run.
    """
    data, threads = DataManager(kernel, sizes, seed=given.seed), _workers()
    own, other = [], []
    with closing(Bench(kernel, sizes, get_backend(given.backend), seed=given.seed)) as bench:
        request = Request(configuration, source_of(kernel, configuration, sizes))
        for trial in remeasure(bench, [request], _BLAS_ROUNDS, _VISIT):
            if not trial.is_valid:
                raise MptuneError(f"kernel gemm does not run: {trial.message}")
            own.append(trial.time_ms)
            other.append(blas_ms(data, type_name, 1, threads))
    return own, other


def _workers() -> int:
    return int(get_backend("host").describe().limits["workers"])


# -- Fig. 14: tuners -------------------------------------------------------------------------------

_ITERATIONS: Final = 100
#: Mean and standard deviation over 100 rounds on an A100, in the paper.
_FIG_14: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "random": (0.8321, 0.0501),
        "PSO": (0.8675, 0.0617),
        "SA": (0.8119, 0.0606),
        "neural network": (0.8385, 0.0462),
        "EI": (math.nan, math.nan),
        "EI, pipeline balance": (0.9008, 0.0466),
    }
)
_TUNERS: Final = (
    Tool("random", "random"),
    Tool("PSO", "particle-swarm"),
    Tool("SA", "simulated-annealing"),
    Tool("nearest-neighbour search", "local-search"),
    Tool("EI", "bayesian-multi", {"method": "ei"}),
)
#: Fused operations, and bytes of shared memory and of memory, a second of an RTX 2080 Ti, by its data sheet.
_FMA_PER_S: Final = 6.7e12
_SHARED_BYTES_PER_S: Final = 1.34e13
_GLOBAL_BYTES_PER_S: Final = 6.16e11
_SLACK: Final = 2.0
#: Share of the evaluations the neural network learns from; the rest are what it predicts to be best.
_LEARNING: Final = 0.5
_LAYERS: Final = (64, 64, 64)


def balanced(path: str, slack: float) -> Run:
    """Return the configurations of a recording of gemm in fp32 on an RTX 2080 Ti that satisfy Eq. 8.

    Args:
        path: the recording.
        slack: by which factor the times of fetching and of multiplying may differ.

    Raises:
        MptuneError: none does.
    """
    recorded = read_run(path)
    # Of a tile one k deep: it takes all threads of a block, and all blocks get the same share of the device.
    products_s = f"MWG * NWG / {_FMA_PER_S!r}"
    shared_s = f"4 * (MWG * NDIMC + NWG * MDIMC) / {_SHARED_BYTES_PER_S!r}"
    global_s = f"4 * (MWG + NWG) / {_GLOBAL_BYTES_PER_S!r} + 4 * (MWG + NWG) / {_SHARED_BYTES_PER_S!r}"
    conditions = [
        Expression(f"{products_s} / {slack!r} <= {seconds} <= {products_s} * {slack!r}")
        for seconds in (shared_s, global_s)
    ]
    fixed = {"math": "simt", **dict.fromkeys(("accumulator_type", "a_type", "b_type"), "fp32")}
    trials = [
        trial
        for trial in recorded.indexed
        if all(condition.evaluate({**trial.configuration, **fixed}) for condition in conditions)
    ]
    if not trials:
        raise MptuneError(f"no configuration of {recorded.name} satisfies Eq. 8 with a slack of {slack}")
    return recorded.derive(trials=trials, name=f"{recorded.name} balanced")


def replay_network(settings: Mapping[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Return a function of the seed that tunes with a neural network (Sec. V-D): learn from a random half, try the
    best of what it predicts.

    Args:
        settings: ``space``: the file of a recording; ``budget``: evaluations.
    """
    from sklearn.neural_network import MLPRegressor
    from sklearn.preprocessing import StandardScaler

    recorded = read_run(settings["space"])
    indices = np.arange(recorded.space.size)
    features = StandardScaler().fit_transform(recorded.space.features(indices))
    trials = recorded.indexed
    times = np.array([trial.time_ms if trial.is_valid else np.nan for trial in trials])

    def run(seed: int) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        order = rng.permutation(indices)
        known, rest = np.split(order, [round(_LEARNING * settings["budget"])])
        ran = known[np.isfinite(times[known])]
        model = MLPRegressor(hidden_layer_sizes=_LAYERS, solver="lbfgs", alpha=1e-2, max_iter=300, random_state=seed)
        model.fit(features[ran], -np.log(times[ran]))
        predicted = model.predict(features[rest])
        tried = np.concatenate([known, rest[np.argsort(-predicted)]])[: settings["budget"]]
        best = np.fmin.accumulate(times[tried])
        return {"best": [float(value) if math.isfinite(value) else None for value in best], "strategy_s": 0.0}

    return run


def l_f14(given: Given) -> Outcome:
    """Mean, deviation and distribution of what tuners reach in 100 evaluations."""
    (name, path), *_ = recordings(given, "gemm-rtx2080ti").items()
    recorded = read_run(path)
    optimum = Objective().best(recorded.trials)
    assert optimum is not None
    rounds = given.runs
    tools = [tool for tool in _TUNERS if not given.quick or tool.name in ("random", "EI")]
    jobs = jobs_of([(tool, rounds) for tool in tools], {name: path}, _ITERATIONS)
    jobs += [_balanced_job(name, path, rounds), _network_job(name, path, rounds)]
    results = run_all(given, jobs)
    shares = {
        job.tool: np.array(
            [optimum.time_ms / (found["best"][-1] or math.inf) for found in results.of(job.space, job.tool).values()]
        )
        for job in jobs
    }
    narrowed = balanced(str(path), _SLACK)
    best_of_narrowed = Objective().best(narrowed.trials)
    assert best_of_narrowed is not None
    rows = []
    for tool, reached in shares.items():
        mean, deviation = _FIG_14.get(tool, (math.nan, math.nan))
        rows.append(
            (
                tool,
                percent(mean, 1),
                percent(reached.mean(), 1),
                percent(deviation, 1),
                percent(reached.std(), 1),
                percents(reached),
                percent(float((reached >= 0.75).mean()), 0),
            )
        )
    return Outcome(
        f"Of the best recorded speed EI reaches {percent(shares['EI'].mean(), 1)} in {_ITERATIONS} evaluations, with "
        f"pipeline balance {percent(shares['EI, pipeline balance'].mean(), 1)} and random search "
        f"{percent(shares['random'].mean(), 1)}; in the paper EI with pipeline balance, the best, 90.1% and random "
        f"83.2%. In the order of the mean: {', '.join(sorted(shares, key=lambda tool: -shares[tool].mean()))}.",
        (
            Table(
                f"Share of the best recorded speed after {_ITERATIONS} evaluations",
                (
                    *("tuner", "mean: paper", "here", "standard deviation: paper", "here"),
                    *("over rounds here", "rounds of 75% or more"),
                ),
                tuple(rows),
            ),
        ),
        (
            f"{rounds} rounds (100 in the paper) with seeds from 0 on, on {name}: {recorded.space.size:,} "
            "configurations of CLBlast's gemm, which has no double buffer; in the paper more than 160,000 of its own "
            "gemm on an A100.",
            f"Eq. 8 with a slack of {_SLACK:g} and an RTX 2080 Ti's data sheet leaves {narrowed.space.size:,} "
            f"configurations, of which the best has {percent(optimum.time_ms / best_of_narrowed.time_ms, 1)} of the "
            "best recorded speed. It supposes that fetching and multiplying overlap, which the recorded kernel does "
            "only as far as a multiprocessor has several blocks.",
            "The paper has a squared-exponential covariance, ours is bayesian-multi's EI. Its fourth tuner is a neural "
            "network of three layers whose training set is not said: here half of the evaluations, of three layers of "
            "64. PSO and SA have mptune's settings, the paper's CLTune's. The nearest-neighbour search is mptune's "
            "local search, which the paper does not have.",
        ),
        {"shares": {tool: reached.tolist() for tool, reached in shares.items()}},
    )


def _balanced_job(name: str, path: Path, rounds: int) -> Job:
    (job,) = jobs_of([(_TUNERS[-1], rounds)], {name: path}, _ITERATIONS)
    space = ("benchmarks.reproductions.lin:balanced", {"path": str(path.resolve()), "slack": _SLACK})
    return replace(
        job,
        tool="EI, pipeline balance",
        settings={**job.settings, "space": space},
        files=(path, Path(__file__), Path(str(gemm().path))),
    )


def _network_job(name: str, path: Path, rounds: int) -> Job:
    return Job(
        section="papers",
        space=name,
        tool="neural network",
        target="benchmarks.reproductions.lin:replay_network",
        settings={"space": str(path.resolve()), "budget": _ITERATIONS},
        seeds=tuple(range(rounds)),
        files=(path, Path(__file__)),
        version=DEFAULT.version,
    )


ITEMS: Final[Mapping[str, Item]] = MappingProxyType(
    {
        "l-f8": Item("Lin 2025, Fig. 8", "four variants of gemm over sizes", l_f8, has_backends=True),
        "l-f12": Item("Lin 2025, Fig. 12", "gemm beside the platform's BLAS", l_f12, has_backends=True),
        "l-f14": Item("Lin 2025, Fig. 14", "what tuners reach in 100 evaluations", l_f14, needs="--spaces"),
        "l-f15": Item("Lin 2025, Fig. 15", "gemm tuned for its size and for another", l_f15, has_backends=True),
    }
)
