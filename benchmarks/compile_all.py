"""Compiles every accuracy signature of every kernel for every vendor, and says how long that takes.

One random configuration stands for each signature. Every compilation counts with the processor time it takes (the
compiler's processes, or the process that calls NVRTC or hiprtc, from the rendered source to the binary), which other
programs on the machine change little; nothing comes from a cache but the prelude as g++ keeps it. No device is needed.

    python benchmarks/compile_all.py [--kernels axpy,gemm] [--backends host,cuda,hip] [--arch sm_80,sm_90,gfx90a]
                                     [--jobs 2] [--sample N] [--work FILE] [--output benchmarks/results/compile.md]
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import functools
import hashlib
import itertools
import json
import math
import multiprocessing
import os
import platform
import resource
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from mptune.backends import BACKENDS, get_backend
from mptune.backends.base import Backend, CompileOptions
from mptune.backends.gpu import GpuBackend
from mptune.backends.host_compiler import find_compiler
from mptune.backends.processor import processor
from mptune.errors import CompileError, MptuneError
from mptune.kernel import Kernel
from mptune.kernel.limits import device_constraints
from mptune.source.loading import bundled_kernels, load_kernel
from mptune.source.render import render
from mptune.space.configuration import Configuration
from mptune.tuning.check import select

ARCHITECTURES: Final = {"host": ("",), "cuda": ("sm_80", "sm_90"), "hip": ("gfx90a",)}
#: Processor seconds a compilation may take.
LIMITS_S: Final = {"host": 0.5, "cuda": 0.3, "hip": math.inf}
OUTPUT: Final = Path(__file__).parent / "results" / "compile.md"
#: What is written by hand below the table stays when it is written again.
NOTES: Final = "<!-- Below this line compile_all.py changes nothing. -->"
TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Target:
    """What to compile for; an empty architecture is the machine's own."""

    backend: str
    architecture: str

    def __str__(self) -> str:
        return f"{self.backend} {self.architecture or processor().architecture}"


@dataclass(frozen=True, slots=True)
class Compiled:
    """One compilation: processor seconds, and the compiler's message where it failed."""

    configuration: Configuration
    cpu_s: float
    message: str


@dataclass(frozen=True, slots=True)
class Row:
    """All compilations of one kernel for one target."""

    kernel: str
    target: Target
    signatures: int
    compiled: tuple[Compiled, ...]

    @property
    def failures(self) -> list[Compiled]:
        """Those that failed."""
        return [c for c in self.compiled if c.message]

    @property
    def over(self) -> list[Compiled]:
        """Those that took longer than the limit."""
        return [c for c in self.compiled if c.cpu_s > LIMITS_S[self.target.backend]]

    @property
    def slowest(self) -> Compiled:
        """The one that took longest."""
        return max(self.compiled, key=lambda c: c.cpu_s)

    def quantile(self, share: float) -> float:
        """Return the time in seconds that a share of the compilations stays within."""
        times = sorted(c.cpu_s for c in self.compiled)
        return times[min(math.ceil(share * len(times)), len(times)) - 1]


@dataclass(frozen=True, slots=True)
class Task:
    """One source to compile for one target."""

    target: Target
    function: str
    source: str

    def key(self) -> str:
        """Return what the outcome depends on, as a digest."""
        parts = [*versions([self.target]), str(self.target), self.function, self.source]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def compile_one(task: Task) -> tuple[float, str]:
    """Return the processor seconds of one compilation and its message, in a process where nothing else runs."""
    options, message = CompileOptions(task.target.architecture, timeout_s=TIMEOUT_S), ""
    backend = _backend(task.target.backend)
    # Some signatures render to the same source; nothing is to be found in the cache.
    source = f"{task.source}\n// {next(_compilations)}\n"
    start = _cpu_s()
    try:
        backend.compiler.compile(source, task.function, options)
    except CompileError as error:
        message = str(error)
    return _cpu_s() - start, message


_compilations = itertools.count()


@functools.cache
def _backend(name: str) -> Backend:
    """Return the backend of this process, with a cache of its own."""
    folder = tempfile.mkdtemp(prefix="mptune-compile-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["MPTUNE_CACHE_DIR"] = folder
    return get_backend(name)


def _load_compilers(tasks: Sequence[Task]) -> None:
    """Compile something first: the first compilation of a process also loads the compiler."""
    for task in tasks:
        compile_one(task)


def _cpu_s() -> float:
    """Return the processor time in seconds of this process, the ones it waited for, and its children that live on."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usage) + sum(map(_process_cpu_s, _children()))


def _children() -> Iterator[list[str]]:
    """Yield what Linux says of each child, from the third field of its ``stat`` on."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                yield fields


def _process_cpu_s(fields: Sequence[str]) -> float:
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class Work:
    """Finished compilations by their keys, in a file of one JSON document per line.

    Args:
        path: the file; None to remember nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path and path.is_file() else []
        self._done = {key: (float(cpu_s), str(message)) for key, cpu_s, message in map(json.loads, lines)}

    def run(self, tasks: Sequence[Task], pool: Executor) -> list[tuple[float, str]]:
        """Return the outcome of each task; those that are not remembered run in the pool."""
        keys = [task.key() for task in tasks]
        left = [(key, task) for key, task in zip(keys, tasks, strict=True) if key not in self._done]
        for (key, _), outcome in zip(left, pool.map(compile_one, [task for _, task in left]), strict=True):
            self._done[key] = outcome
            if self._path:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([key, *outcome]) + "\n")
        return [self._done[key] for key in keys]


def measure(kernels: Sequence[Kernel], targets: Sequence[Target], given: argparse.Namespace) -> Iterator[Row]:
    """Compile accuracy signatures of kernels, ``--jobs`` at a time, and yield a row for each kernel and target."""
    first = [_task(kernels[0], target, chosen(kernels[0], target, 1)[0]) for target in targets]
    work = Work(given.work)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.jobs, spawn, initializer=_load_compilers, initargs=(first,)) as pool:
        for kernel, target in itertools.product(kernels, targets):
            configurations = chosen(kernel, target, given.sample)
            outcomes = work.run([_task(kernel, target, c) for c in configurations], pool)
            compiled = [Compiled(c, *outcome) for c, outcome in zip(configurations, outcomes, strict=True)]
            yield Row(kernel.name, target, len(signatures(kernel, target)), tuple(compiled))


@functools.cache
def signatures(kernel: Kernel, target: Target) -> Sequence[Configuration]:
    """Return one configuration for each accuracy signature that a kernel has on a target, in a random order."""
    limits = get_backend(target.backend).facts(target.architecture)
    space = kernel.search_space(kernel.resolve_sizes(), device_constraints(kernel, limits))
    found = select(space, kernel.signature_names, "signatures")
    return [found[i] for i in np.random.default_rng(0).permutation(len(found))]


def chosen(kernel: Kernel, target: Target, n: int | None) -> Sequence[Configuration]:
    """Return the configurations of ``n`` signatures; a larger number has all those of a smaller one."""
    return signatures(kernel, target)[:n]


def _task(kernel: Kernel, target: Target, configuration: Configuration) -> Task:
    return Task(target, kernel.function, render(kernel, configuration, kernel.resolve_sizes()))


# -- the report ----------------------------------------------------------------------------------


def versions(targets: Sequence[Target]) -> list[str]:
    """Return what the times depend on: compilers, their versions, processor and Python."""
    found = []
    for backend in dict.fromkeys(target.backend for target in targets):
        family = BACKENDS[backend]
        if issubclass(family, GpuBackend):
            found.append(f"{family.runtime_compiler().name} {family.runtime_compiler().version}")
        else:
            found.append(find_compiler().version)
    return [*found, f"Python {platform.python_version()}", f"{processor().name}, {os.cpu_count()} cores"]


def report(rows: Sequence[Row], command: str, notes: str) -> str:
    """Return the report as Markdown."""
    targets = list(dict.fromkeys(row.target for row in rows))
    total = sum(len(row.compiled) for row in rows)
    failed = sum(len(row.failures) for row in rows)
    lines = [
        "# Compile time by accuracy signature",
        "",
        f"    {command}",
        "",
        f"{'; '.join(versions(targets))}; {datetime.now(UTC):%Y-%m-%d}.",
        "",
        f"{total:,} compilations, {failed} of them failed. One random configuration per accuracy signature at the "
        "default sizes. Times are seconds of processor time per compilation, nothing cached but g++'s own form of the "
        "prelude; "
        '"over" counts those above the aim (host '
        f"{LIMITS_S['host']} s, NVRTC {LIMITS_S['cuda']} s; none is set for hiprtc).",
        "",
        "| kernel | target | signatures | compiled | failed | median | 95 % | longest | over |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
        *(_cells(row) for row in rows),
        "",
        "## The slowest configuration of each",
        "",
        "| kernel | target | s | configuration |",
        "|---|---|--:|---|",
        *(f"| {r.kernel} | {r.target} | {r.slowest.cpu_s:.2f} | {r.slowest.configuration} |" for r in rows),
        "",
    ]
    if failed:
        lines += failure_lines(rows)
    return "\n".join([*lines, NOTES, "", notes.strip()]).rstrip() + "\n"


def failure_lines(rows: Sequence[Row]) -> list[str]:
    """Return the part of the report on what did not compile."""
    lines = ["## Failures", ""]
    for row in rows:
        lines += [f"- {row.kernel}, {row.target}, {f.configuration}:\n{_indented(f.message)}" for f in row.failures]
    return [*lines, ""]


def _cells(row: Row) -> str:
    times = [f"{time:.2f}" for time in (row.quantile(0.5), row.quantile(0.95), row.slowest.cpu_s)]
    over = len(row.over) if LIMITS_S[row.target.backend] < math.inf else ""
    cells = [row.kernel, row.target, row.signatures, len(row.compiled), len(row.failures), *times, over]
    return f"| {' | '.join(map(str, cells))} |"


def _indented(message: str) -> str:
    return "\n".join(f"      {line}" for line in ("", *message.splitlines(), ""))


# -- the command ---------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when everything compiled, 1 when something did not, 2 for wrong input."""
    parser = argparse.ArgumentParser(description="Compile every accuracy signature of every kernel.")
    parser.add_argument("--kernels", default="", help="comma-separated names or files; all bundled ones by default")
    parser.add_argument("--backends", default=",".join(ARCHITECTURES), help="comma-separated: host, cuda, hip")
    parser.add_argument("--arch", default="", help="comma-separated: sm_80, gfx90a, ...; two of cuda, one of hip")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilations at a time")
    parser.add_argument("--sample", type=int, help="signatures of each kernel, at most; all by default")
    parser.add_argument("--work", type=Path, help="file that remembers finished compilations")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the report")
    given = parser.parse_args(arguments)
    try:
        kernels = [load_kernel(name) for name in _split(given.kernels) or bundled_kernels()]
        targets = _targets(_split(given.backends), _split(given.arch))
        for option, number in (("jobs", given.jobs), ("sample", given.sample)):
            if number is not None and number < 1:
                raise MptuneError(f"--{option} needs at least 1, not {number}")
        rows = []
        for row in measure(kernels, targets, given):
            rows.append(row)
            print(_cells(row), flush=True)
    except (MptuneError, json.JSONDecodeError) as error:
        print(error, file=sys.stderr)
        return 2
    _write(given.output, rows, arguments if arguments is not None else sys.argv[1:])
    return 1 if any(row.failures for row in rows) else 0


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _targets(backends: Sequence[str], architectures: Sequence[str]) -> list[Target]:
    """Return what to compile for; an architecture belongs to the vendor whose default ones start like it.

    Raises:
        MptuneError: no such backend, no compiler for it, or an architecture of none of the backends.
    """
    targets = []
    for backend in backends:
        get_backend(backend)
        availability = BACKENDS[backend].availability()
        if not availability.can_compile:
            raise MptuneError(f"{backend}: {availability.reason}")
        own = [a for a in architectures if _backend_of(a) == backend]
        targets += [Target(backend, architecture) for architecture in own or ARCHITECTURES[backend]]
    for architecture in architectures:
        if _backend_of(architecture) not in backends:
            raise MptuneError(f"--arch {architecture}: {_backend_of(architecture)} is not among the backends")
    return targets


def _backend_of(architecture: str) -> str:
    return "cuda" if architecture.startswith("sm_") else "hip" if architecture.startswith("gfx") else "host"


def _write(path: Path, rows: Sequence[Row], arguments: Sequence[str]) -> None:
    """Write the report, and keep the notes of the one that is there."""
    _, _, notes = path.read_text(encoding="utf-8").partition(NOTES) if path.is_file() else ("", "", "")
    command = " ".join(["python benchmarks/compile_all.py", *map(shlex.quote, arguments)])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report(rows, command, notes), encoding="utf-8")
    print(f"written: {path}")


if __name__ == "__main__":
    sys.exit(main())
