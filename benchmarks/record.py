"""Records whole search spaces of bundled kernels on this machine, on which search strategies are tested.

For each configuration it records the time (median of the launches of all passes), the error, measured on the
configuration itself and not reused from its signature, and the memory footprint. The order is random, so that a slow
hour does not fall on one value of a parameter. All configurations are compiled first, on all cores; then they are
launched one at a time. Progress is kept in the work folder: the same command continues where it stopped, so that
``--compile-only`` and then ``--time-limit`` divide the work where the machine is not quiet for long.

    python benchmarks/record.py bessel kmeans --work build/recording [--passes 1] [--size default]
    python benchmarks/record.py convolution2d --restrict output_type=fp64,fp32 --sample 5000 --work build/recording

writes ``benchmarks/data/KERNEL-host.json.gz``, which ``mptune simulate`` and ``mptune compare`` read.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mptune import __version__
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.processor import processor
from mptune.errors import MptuneError, UnknownNameError
from mptune.interop.recorded import write
from mptune.interop.recording import recording_text
from mptune.kernel import Kernel, Sizes
from mptune.measure.bench import Ready
from mptune.measure.device import DeviceEvaluator
from mptune.measure.timing import TimingPlan
from mptune.observers.launches import time_metrics
from mptune.results.trial import Measurement, Trial
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.space.configuration import Configuration
from mptune.space.search_space import SearchSpace
from mptune.store import ParameterInfo, RunFile, RunInfo
from mptune.tuning import device_constraints

DATA = Path(__file__).resolve().parent / "data"
#: The launch that checks the answer has warmed everything up.
PLAN = TimingPlan(warmups=0, min_repeats=3, max_repeats=50, cap_s=0.03)
PROGRESS_EVERY_S = 20.0


@dataclass(frozen=True, slots=True)
class Task:
    """One space to record: a kernel at its sizes and the configurations, by index, in the order of recording."""

    kernel: Kernel
    sizes: Sizes
    space: SearchSpace
    order: tuple[int, ...]
    backend: str


def plan_task(name: str, arguments: argparse.Namespace, ready_limits: Mapping[str, Any]) -> Task:
    """Return what to record of a kernel; values of parameters that other kernels alone have are left out.

    Raises:
        UnknownNameError: no kernel that is to be recorded has such a parameter.
    """
    kernel = load_kernel(name)
    sizes = kernel.resolve_sizes(arguments.size, {})
    space = kernel.search_space(sizes, device_constraints(kernel, ready_limits))
    wanted = {key: values for key, values in arguments.restrict.items() if key in space.names}
    if wanted:
        space = space.restrict(
            {p.name: [p.parse(value) for value in wanted[p.name]] for p in space.parameters if p.name in wanted}
        )
    rng = np.random.default_rng(arguments.seed)
    count = min(arguments.sample or space.size, space.size)
    order = rng.permutation(space.sample(count, rng)) if count < space.size else rng.permutation(space.size)
    return Task(kernel, sizes, space, tuple(order.tolist()), arguments.backend)


def compile_all(task: Task, jobs: int) -> None:
    """Fill the binary cache; what fails to compile fails again, and is recorded, when its turn comes."""
    backend = get_backend(task.backend)

    def compile_one(index: int) -> bool:
        try:
            source = render(task.kernel, task.space.configuration(index), task.sizes)
            backend.compiler.compile(source, task.kernel.function, CompileOptions())
        except MptuneError:
            return False
        return True

    with ThreadPoolExecutor(jobs) as pool:
        done = list(watched(f"{task.kernel.name}: compiled", pool.map(compile_one, task.order), task.order))
    print(f"{task.kernel.name}: {len(done) - sum(done)} of {len(done)} do not compile", file=sys.stderr)


def watched(what: str, results: Iterator[Any], total: Sequence[Any]) -> Iterator[Any]:
    """Yield the results and report how many there are every now and then."""
    told = time.monotonic()
    for count, result in enumerate(results, start=1):
        yield result
        if count == len(total) or time.monotonic() - told >= PROGRESS_EVERY_S:
            told = time.monotonic()
            print(f"{what} {count} of {len(total)}", file=sys.stderr, flush=True)


def measure(
    task: Task, order: Sequence[int], path: Path, seed: int, compilers: int = 0, until: float = math.inf
) -> tuple[dict[Configuration, Trial], Ready]:
    """Return the trials of one pass over configurations; finished ones come from the run file.

    Args:
        task: the kernel and its space.
        order: the configurations, by index.
        path: the run file.
        seed: seeds the inputs.
        compilers: compilations at a time, ahead of the launches; they disturb none on a device of its own.
        until: no further configuration once the monotonic clock shows this.
    """
    device = get_backend(task.backend).device.describe()
    wanted = RunInfo(
        kernel=task.kernel.name,
        sizes=dict(task.sizes),
        backend=task.backend,
        device=device.name,
        versions=dict(device.versions),
        seed=seed,
    )
    file = _opened(path, wanted)
    with (
        file,
        DeviceEvaluator(
            task.kernel,
            task.sizes,
            task.backend,
            seed=seed,
            plan=PLAN,
            compilers=compilers,
        ) as evaluator,
    ):
        ready = evaluator.start()
        known = {trial.configuration: trial for trial in file.trials()}
        every = [task.space.configuration(index) for index in order]
        left = [c for c in every if c not in known] if time.monotonic() < until else []
        for trial in watched(f"{task.kernel.name}, {path.stem}:", evaluator.evaluate(left), left):
            file.add(trial)
            known[trial.configuration] = trial
            if time.monotonic() >= until:
                break
        return {c: known[c] for c in every if c in known}, ready


def _opened(path: Path, wanted: RunInfo) -> RunFile:
    """Return the run file of a pass, new or to be continued.

    Raises:
        MptuneError: what is in it was measured otherwise.
    """
    if not path.exists():
        return RunFile.create(path, wanted)
    file = RunFile.open(path)
    for name in ("kernel", "sizes", "backend", "device", "versions", "seed"):
        before, now = getattr(file.info, name), getattr(wanted, name)
        if before != now:
            file.close()
            raise MptuneError(f"{path} was measured with {name} {before!r}, not {now!r}: give another --work folder")
    return file


def merged(passes: Sequence[Trial]) -> Trial:
    """Return one trial of a configuration: the launches of all passes together, or its failure."""
    failed = next((trial for trial in passes if not trial.is_valid), None)
    if failed is not None:
        return failed
    times = tuple(t for trial in passes for t in trial.measurement.times_ms)
    metrics = {**passes[0].measurement.metrics, **time_metrics(times)}
    return Trial(passes[0].configuration, passes[0].status, measurement=Measurement(metrics, times))


def record(name: str, arguments: argparse.Namespace, until: float) -> Path | None:
    """Record one kernel and return the file; None if the time was over before."""
    limits = get_backend(arguments.backend).device.facts()
    task = plan_task(name, arguments, limits)
    compile_all(task, arguments.jobs)
    if arguments.compile_only:
        return None
    passes, ready = [], None
    for number in range(arguments.passes):
        order = np.random.default_rng([arguments.seed, number]).permutation(np.array(task.order)).tolist()
        file = arguments.work / f"{name}-{arguments.backend}-{number}.db"
        trials, ready = measure(task, order, file, arguments.seed, until=until)
        if len(trials) < len(order):
            print(f"{name}: {len(trials)} of {len(order)} are measured, the same command goes on", file=sys.stderr)
            return None
        passes.append(trials)
    assert ready is not None
    together = [merged([trials[c] for trials in passes]) for c in map(task.space.configuration, task.order)]
    of_kernel = {key: values for key, values in arguments.restrict.items() if key in task.space.names}
    restricted = "; ".join(f"{key} in {', '.join(values)}" for key, values in of_kernel.items())
    told = notes(task, ready, len(together), arguments.command, restricted) | {"passes": str(arguments.passes)}
    path: Path = arguments.output / f"{name}-{arguments.backend}.json.gz"
    save(task, together, ready, path, told)
    return path


def save(task: Task, trials: Sequence[Trial], ready: Ready, path: Path, told: Mapping[str, str]) -> None:
    """Write a recorded space."""
    info = RunInfo(
        kernel=task.kernel.name,
        device=ready.device.name,
        sizes=dict(task.sizes),
        parameters=tuple(ParameterInfo(p.name, p.kind, p.values) for p in task.space.parameters),
        units={"memory_bytes": "bytes"},
        signature=task.kernel.signature_names,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, recording_text(Run(info, trials), told))


def notes(task: Task, ready: Ready, count: int, command: str, restricted: str = "") -> dict[str, str]:
    """Return how, where and when a space was recorded."""
    return {
        "recorded": datetime.date.today().isoformat(),
        "command": command,
        "mptune": __version__,
        "machine": f"{ready.device.name}, {os.cpu_count()} cores, {platform.system()}",
        "processor": processor().architecture,
        "versions": ", ".join(f"{k} {v}" for k, v in ready.device.versions.items()),
        "metric": str(task.kernel.metric),
        "configurations": f"{count} of {task.space.size}" + (f", {restricted}" if restricted else ""),
    }


def _restrictions(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Return the values to which ``--restrict`` keeps parameters.

    Raises:
        MptuneError: it is not of the form NAME=V,V.
        UnknownNameError: no kernel has such a parameter.
    """
    known = list(dict.fromkeys(name for each in arguments.kernels for name in load_kernel(each).parameter_names))
    found = {}
    for text in arguments.restrict:
        name, separator, values = text.partition("=")
        if not separator or not values:
            raise MptuneError(f"--restrict {text}: expected NAME=VALUE,VALUE")
        if name not in known:
            raise UnknownNameError("parameter", name, known)
        found[name] = values.split(",")
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line."""
    words = sys.argv[1:] if words is None else words
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="+")
    parser.add_argument("--work", type=Path, required=True, help="folder for what is done so far")
    parser.add_argument("--output", type=Path, default=DATA)
    parser.add_argument("--backend", default="host")
    parser.add_argument("--size", default="default")
    parser.add_argument("--sample", type=int, help="so many configurations, drawn uniformly (default: all)")
    parser.add_argument("--restrict", action="append", default=[], metavar="NAME=V,V", help="values of a parameter")
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--compile-only", action="store_true", help="fill the binary cache and stop")
    parser.add_argument("--time-limit", type=float, default=math.inf, metavar="SECONDS", help="stop after so long")
    arguments = parser.parse_args(words)
    arguments.command = shlex.join(["python", "benchmarks/record.py", *words])
    until = time.monotonic() + arguments.time_limit
    try:
        arguments.restrict = _restrictions(arguments)
        for option in ("sample", "passes", "jobs"):
            if (number := getattr(arguments, option)) is not None and number < 1:
                raise MptuneError(f"--{option} must be at least 1, not {number}")
        arguments.work.mkdir(parents=True, exist_ok=True)
        for name in arguments.kernels:
            if (path := record(name, arguments, until)) is not None:
                print(path)
    except MptuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
