"""Kernel Tuner and mptune on the same kernel, parameters, budget and GPU, taking turns.

Kernel Tuner's CuPy backend compiles the very source mptune renders for a configuration, so both tools have the same
kernels in the types NumPy has. Both draw at random, check every answer, and start from empty caches. Kernel Tuner runs
in a process of its own each time, because CuPy keeps what it compiled for as long as a process lasts; of that process
only the call counts, while of mptune the start of its worker does too. What both found is measured again in turn.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final, TypeVar

from benchmarks.gpu_sections.searching import described
from benchmarks.gpu_sections.section import Options, Section, table, verdict
from benchmarks.in_turn import measure_in_turn
from benchmarks.rates import COLUMNS, Outcome, columns_s, load_narrowed, require_kernel_tuner, run_kernel_tuner
from benchmarks.rates import run_mptune as run_random
from mptune.backends import get_backend
from mptune.errors import BackendUnavailableError, MptuneError
from mptune.kernel import Kernel, Sizes
from mptune.measure.bench import Bench
from mptune.measure.timing import TimingPlan
from mptune.source.render import render
from mptune.space.configuration import Configuration

__all__ = ["SECTION", "peer_options", "run_peer"]

TARGET: Final = 3.0
KERNEL: Final = "axpy"
TYPES: Final = {name: name for name in ("fp64", "fp32", "fp16")}
OWN, PEER = "mptune", "Kernel Tuner"
_Result = TypeVar("_Result")
VISIT: Final = TimingPlan(warmups=1, min_repeats=10, max_repeats=30, relative_width=0.0, cap_s=0.1)


def measure(options: Options, until: float) -> Iterator[dict[str, Any]]:
    """Run both tools in turn, for as many rounds as there is time for."""
    if options.backend != "cuda":
        raise MptuneError(
            f"section peer needs a CUDA device, not {options.backend}: Kernel Tuner runs there through CuPy; "
            "benchmarks/throughput.py is its counterpart on the host"
        )
    require_kernel_tuner()
    _alone(_require_device)
    kernel = load_narrowed(KERNEL, tuple(TYPES))
    sizes = kernel.resolve_sizes(options.size or "default")
    document = {
        "kernel": kernel.name,
        "sizes": dict(sizes),
        "configurations": kernel.search_space(sizes).size,
        "budget": options.budget,
    }
    rounds: list[dict[str, Outcome]] = []
    longest_s = 0.0
    # A round that has begun is finished, so none begins that would be too long.
    while len(rounds) < options.rounds and time.monotonic() + longest_s < until:
        start = time.monotonic()
        seed = options.seed + len(rounds)
        own = run_random(kernel, dict(sizes), options.budget, seed, None, options.backend)
        peer = _alone(run_peer, dict(sizes), options.budget, seed)
        rounds.append({OWN: own, PEER: peer})
        longest_s = max(longest_s, time.monotonic() - start)
        yield {**document, "rounds": _documents(rounds, {}), "complete": False}
    found_ms = _again(kernel, sizes, rounds, options)
    yield {**document, "rounds": _documents(rounds, found_ms), "complete": len(rounds) == options.rounds}


def _alone(function: Callable[..., _Result], *given: Any) -> _Result:
    """Call a function that needs Kernel Tuner in a process of its own.

    Raises:
        BackendUnavailableError: Kernel Tuner has no device here.
        MptuneError: it failed.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(function, *given).result()
        except MptuneError:
            raise
        except Exception as error:  # whatever another tool fails with, the other sections go on
            raise MptuneError(f"Kernel Tuner failed: {type(error).__name__}: {error}") from error


def _require_device() -> None:
    """Look whether Kernel Tuner finds a device, before any time goes into rounds.

    Raises:
        BackendUnavailableError: it does not.
    """
    from kernel_tuner.backends.cupy import CupyFunctions

    try:
        CupyFunctions()
    except Exception as error:
        reason = f"Kernel Tuner does not run here through CuPy: {type(error).__name__}: {error}"
        raise BackendUnavailableError(reason) from None


def run_peer(sizes: Mapping[str, int], budget: int, seed: int) -> Outcome:
    """Tune with Kernel Tuner, in a process that has compiled nothing yet."""
    kernel = load_narrowed(KERNEL, tuple(TYPES))
    resolved = kernel.resolve_sizes("default", sizes)
    options = peer_options(kernel, resolved)
    return run_kernel_tuner(kernel, resolved, budget, seed, types=TYPES, **options)


def peer_options(kernel: Kernel, sizes: Sizes) -> dict[str, Any]:
    """Return Kernel Tuner's arguments for a kernel, besides its parameters: source, launch and language."""

    def configuration(values: Mapping[str, Any]) -> Configuration:
        return kernel.configuration({p.name: values[p.name] for p in kernel.parameters})

    return {
        "source": lambda values: render(kernel, configuration(values), sizes),
        # The rendered source needs no macros, and theirs could be in its way.
        "defines": {},
        "problem_size": lambda values: kernel.launch_shape(configuration(values), sizes).grid,
        **{f"grid_div_{axis}": [1] for axis in "xyz"},
        "block_size_names": list(kernel.expressions("block")),
        "lang": "CUPY",
        "compiler_options": ["--std=c++17"],
    }


def _documents(
    rounds: Sequence[Mapping[str, Outcome]], found_ms: Mapping[Configuration, float]
) -> list[dict[str, Any]]:
    return [{tool: _document(outcome, found_ms) for tool, outcome in turn.items()} for turn in rounds]


def _document(outcome: Outcome, found_ms: Mapping[Configuration, float]) -> dict[str, Any]:
    return {
        "evaluations": outcome.evaluations,
        "wall_s": outcome.wall_s,
        "phases_s": dict(outcome.phases_s),
        "best": None if outcome.best is None else described(outcome.best),
        "found_ms": math.nan if outcome.best is None else found_ms.get(outcome.best, math.nan),
    }


def _again(
    kernel: Kernel, sizes: Sizes, rounds: list[dict[str, Outcome]], options: Options
) -> dict[Configuration, float]:
    """Return the times of the winners of both tools, measured in turn by the same bench."""
    found = [outcome.best for turn in rounds for outcome in turn.values() if outcome.best is not None]
    bench = Bench(kernel, sizes, get_backend(options.backend), seed=options.seed)
    try:
        return {c: remeasured.time_ms for c, remeasured in measure_in_turn(bench, found, 5, VISIT).items()}
    finally:
        bench.close()


def lines(document: Mapping[str, Any]) -> list[str]:
    """Render the section."""
    rounds = document["rounds"]
    if not rounds:
        return ["No round was finished."]
    rates = {tool: statistics.median(t[tool]["evaluations"] / t[tool]["wall_s"] for t in rounds) for tool in rounds[0]}
    ratio = rates[OWN] / rates[PEER]
    rows = []
    for tool, rate in rates.items():
        wall_s = statistics.median(turn[tool]["wall_s"] for turn in rounds)
        shares = [
            [seconds / turn[tool]["wall_s"] for seconds in columns_s(turn[tool]["phases_s"], turn[tool]["wall_s"])]
            for turn in rounds
        ]
        best_ms = [turn[tool]["found_ms"] for turn in rounds if turn[tool]["found_ms"] is not None]
        rows.append(
            (
                tool,
                f"{rate:.2f}",
                f"{wall_s:.1f}",
                f"{statistics.median(best_ms):.4g}" if best_ms else "",
                *(f"{statistics.median(column):.0%}" for column in zip(*shares, strict=True)),
            )
        )
    return [
        f"{document['kernel']} at {', '.join(f'{k} = {v:,}' for k, v in document['sizes'].items())}: "
        f"{document['budget']} of {document['configurations']} configurations in {', '.join(TYPES)}, drawn at random, "
        f"from the same sources; medians of {len(rounds)} rounds in which the tools take turns. Best found is in ms, "
        "measured again by one bench. The shares are of the wall time; the rest is search, the tool's own work and the "
        "start of its processes, which of Kernel Tuner is not counted.",
        "",
        *table(("tool", "evaluations/s", "wall s", "best found", *COLUMNS), rows),
        f"{ratio:.2f}x the evaluations per second of Kernel Tuner (target {TARGET:g}x: "
        f"{verdict(document, is_met=ratio >= TARGET)}).",
    ]


SECTION: Final = Section("peer", "Evaluations per second beside Kernel Tuner", measure, lines)
