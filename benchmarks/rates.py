"""Runs of mptune and of Kernel Tuner on one kernel, with their time by phase, for the benchmarks of throughput.

Both tools draw the same number of configurations from the same space at random, check the result of each, and start
with empty binary caches.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import bench
from mptune.data import DataManager
from mptune.errors import BackendUnavailableError
from mptune.kernel import Argument, Kernel, Role, Sizes
from mptune.paths import cache_folder
from mptune.precision import precision
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.space.parameters import PrecisionParameter
from mptune.tuning import tune

INSTALL: Final = 'Kernel Tuner is not installed: pip install "mptune[benchmarks]"'
PHASES: Final = ("compile", "transfer", "launch", "accuracy", "timing")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of one tool.

    Attributes:
        evaluations: configurations evaluated.
        wall_s: time from the call to the result, with the start of the worker.
        phases_s: wall time by phase, if the tool reports it.
        best: the fastest configuration; None if none is valid.
        best_ms: its time as measured by the tool.
    """

    evaluations: int
    wall_s: float
    phases_s: Mapping[str, float]
    best: Configuration | None = None
    best_ms: float = math.nan

    @property
    def per_second(self) -> float:
        """Evaluations per second."""
        return self.evaluations / self.wall_s


def measure_tools(
    sheet: bench.Sheet, group: str, tools: Mapping[str, Callable[[int], Outcome]], rounds: int, **settings: Any
) -> None:
    """Add a row for each round and tool, which take turns.

    Args:
        sheet: gets the rows.
        group: what they are of, such as a size.
        tools: by name, what runs a tool with a seed.
        rounds: how many.
        settings: what else the rows depend on.
    """
    for turn in range(rounds):
        for name, run in tools.items():

            def row(name: str = name, run: Callable[[int], Outcome] = run, turn: int = turn) -> dict[str, Any]:
                found = run(turn)
                told = {"group": group, "tool": name, "per_second": found.per_second, "wall_s": found.wall_s}
                return {**told, "phases_s": dict(found.phases_s), "best_ms": found.best_ms, "best": str(found.best)}

            sheet.add(f"{group}, {name}, round {turn + 1}", row, round=turn, **settings)


def rates_page(results: Mapping[str, Any], targets: Mapping[str, float]) -> str:
    """Return, by group, the table of medians over rounds, and the ratios of the first tool's rate to the others'."""
    parts = []
    rows = [row for row in results.values() if "per_second" in row]
    for group in dict.fromkeys(row["group"] for row in rows):
        of_tool: dict[str, list[Any]] = {}
        for row in rows:
            if row["group"] == group:
                of_tool.setdefault(row["tool"], []).append(row)
        middle = {tool: statistics.median(row["per_second"] for row in some) for tool, some in of_tool.items()}
        cells = []
        for tool, some in of_tool.items():
            phases = {name: statistics.median(row["phases_s"].get(name, 0.0) for row in some) for name in PHASES}
            wall_s = statistics.median(row["wall_s"] for row in some)
            shown = [wall_s, *phases.values(), wall_s - math.fsum(phases.values())]
            cells.append((tool, len(some), f"{middle[tool]:.2f}", *(f"{seconds:.1f}" for seconds in shown)))
        ours, *others = middle
        ratios = {other: middle[ours] / middle[other] for other in others}
        parts += [
            f"{group}, medians of rounds in which the tools take turns; seconds by phase. The rest is a tool's own "
            "work, its search and the start of its processes.",
            bench.table(("tool", "rounds", "evaluations/s", "wall s", *PHASES, "rest"), cells),
            "\n".join(
                f"- {ratio:.2f}x the evaluations per second of {other}"
                + (
                    f" (target {targets[other]:g}x: {bench.verdict(ratio >= targets[other])})"
                    if other in targets
                    else ""
                )
                for other, ratio in ratios.items()
            ),
        ]
    return "\n\n".join(part for part in parts if part)


def narrowed(kernel: Kernel, types: Sequence[str]) -> Kernel:
    """Return the kernel with only some of its types."""
    parameters = [
        PrecisionParameter(p.name, [value for value in p.values if value in types])
        if isinstance(p, PrecisionParameter)
        else p
        for p in kernel.parameters
    ]
    return dataclasses.replace(kernel, parameters=tuple(parameters))


@contextlib.contextmanager
def empty_cache() -> Iterator[None]:
    """Keep binaries, mptune's and CuPy's, in a folder of their own, removed afterwards.

    The speeds of a device, which mptune measures once on a machine, are no binaries, and stay.
    """
    names = ("MPTUNE_CACHE_DIR", "CUPY_CACHE_DIR")
    before = {name: os.environ.get(name) for name in names}
    speeds = cache_folder("speeds")
    with tempfile.TemporaryDirectory() as folder:
        if speeds is not None and speeds.is_dir():
            shutil.copytree(speeds, Path(folder) / speeds.name)
        os.environ.update(dict.fromkeys(names, folder))
        try:
            yield
        finally:
            for name, value in before.items():
                del os.environ[name]
                if value is not None:
                    os.environ[name] = value


def run_mptune(
    kernel: Kernel, sizes: Mapping[str, int], budget: int, seed: int, compilers: int | None, backend: str = "host"
) -> Outcome:
    """Tune with random search; errors are those on one input, as the other tool's are."""
    with empty_cache():
        start = time.perf_counter()
        run = tune(
            kernel,
            backend=backend,
            sizes=sizes,
            strategy="random",
            budget=budget,
            baseline_share=0.0,
            seed=seed,
            compilers=compilers,
            inputs=1,
            verify=0,
            on_warning=lambda _: None,
        )
        wall_s = time.perf_counter() - start
    phases = {name: math.fsum(trial.measurement.durations_s.get(name, 0.0) for trial in run.trials) for name in PHASES}
    best = run.best
    return Outcome(
        run.evaluations,
        wall_s,
        phases,
        None if best is None else best.configuration,
        math.nan if best is None else best.time_ms,
    )


def require_kernel_tuner(otherwise: str = "") -> None:
    """Check that Kernel Tuner is there.

    Args:
        otherwise: what else can be done, for the message.

    Raises:
        BackendUnavailableError: it is not installed.
    """
    try:
        import kernel_tuner  # noqa: F401
    except ImportError:
        raise BackendUnavailableError(f"{INSTALL}{otherwise}") from None


def run_kernel_tuner(
    kernel: Kernel,
    sizes: Sizes,
    budget: int,
    seed: int,
    source: str | Callable[[Mapping[str, Any]], str],
    types: Mapping[str, str],
    **options: Any,
) -> Outcome:
    """Tune with Kernel Tuner's random search, its accuracy observer comparing with the double-precision answer.

    Args:
        kernel: supplies parameters, arguments and reference.
        sizes: its problem sizes.
        budget: configurations.
        seed: seeds inputs and search.
        source: what is compiled, or makes it of the values of the parameters.
        types: what precisions are called in the source.
        options: further arguments of ``kernel_tuner.tune_kernel``, the problem size and language among them.
    """
    from kernel_tuner import tune_kernel
    from kernel_tuner.accuracy import AccuracyObserver

    data = DataManager(kernel, sizes, seed=seed)
    parameters = {
        p.name: [types.get(str(v), v) for v in p.values] if isinstance(p, PrecisionParameter) else list(p.values)
        for p in kernel.parameters
    }
    with empty_cache(), tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        arguments = [_for_peer(data, argument, types) for argument in kernel.arguments]
        answer = [data.references[a.name] if a in kernel.outputs else None for a in kernel.arguments]
        with Path(os.devnull).open("w") as sink, contextlib.redirect_stdout(sink):
            start = time.perf_counter()
            results, _ = tune_kernel(
                kernel.function,
                source,
                arguments=arguments,
                tune_params=parameters,
                answer=answer,
                observers=[AccuracyObserver(metric="nrmse")],
                atol=math.inf,
                strategy="random_sample",
                strategy_options={"max_fevals": budget},
                seed=seed,
                quiet=True,
                **options,
            )
            wall_s = time.perf_counter() - start
    phases = {
        "compile": math.fsum(r["compile_time"] for r in results) / 1e3,
        "accuracy": math.fsum(r["verification_time"] for r in results) / 1e3,
        "timing": math.fsum(r["benchmark_time"] for r in results) / 1e3,
    }
    # What failed has an object in place of its time.
    timed = [r for r in results if isinstance(r["time"], int | float) and math.isfinite(r["time"])]
    if not timed:
        return Outcome(len(results), wall_s, phases)
    best = min(timed, key=lambda r: r["time"])
    names = {name: mine for mine, name in types.items()}
    values = {p.name: best[p.name] for p in kernel.parameters}
    own = {p.name: names.get(values[p.name], values[p.name]) for p in kernel.parameters}
    return Outcome(len(results), wall_s, phases, kernel.configuration(own), float(best["time"]))


def _for_peer(data: DataManager, argument: Argument, types: Mapping[str, str]) -> Any:
    """Return an argument as Kernel Tuner takes it."""
    from kernel_tuner.accuracy import TunablePrecision

    if argument.precision is None:
        return data.scalar(argument, None) if argument.role is Role.SCALAR else data.inputs[argument.name]
    value = data.inputs[argument.name] if argument.is_input else np.zeros(data.shape_of(argument))
    as_array = np.float64(value) if argument.role is Role.SCALAR else value
    return TunablePrecision(argument.precision, as_array, {types[name]: precision(name).dtype.type for name in types})


def load_narrowed(name: str, types: Sequence[str]) -> Kernel:
    """Return a bundled kernel in some types only."""
    return narrowed(load_kernel(name), types)
