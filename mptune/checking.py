"""Compiling a kernel's configurations without running them; needs no device."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from mptune.backends.base import Backend, CompileOptions
from mptune.errors import CompileError, EmptySpaceError, ExpressionError, KernelError, MptuneError, TemplateError
from mptune.kernel import Kernel, Sizes
from mptune.rendering import render
from mptune.space.configuration import Configuration
from mptune.space.search_space import SearchSpace

__all__ = ["CheckResult", "Compilation", "check", "covering_sample"]


@dataclass(frozen=True, slots=True)
class Compilation:
    """One configuration's compilation: the compiler's wall time, and its message where it failed."""

    configuration: Configuration
    compile_s: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The compilations of one kernel.

    Attributes:
        kernel: its name.
        backend: name of the backend.
        architecture: what was compiled for; empty for the device's own.
        configurations: size of the search space.
        compilations: one per configuration that was tried.
    """

    kernel: str
    backend: str
    architecture: str
    configurations: int
    compilations: tuple[Compilation, ...]

    @property
    def failures(self) -> tuple[Compilation, ...]:
        """The compilations that failed."""
        return tuple(c for c in self.compilations if c.message)

    @property
    def median_s(self) -> float:
        """Median wall time of one compilation in seconds, NaN when all came from the cache."""
        times = [c.compile_s for c in self.compilations if c.compile_s > 0]
        return statistics.median(times) if times else float("nan")


def check(
    kernel: Kernel,
    backend: Backend,
    *,
    architecture: str = "",
    sample: int | None = None,
    everything: bool = False,
    sizes: Sizes | None = None,
    seed: int = 0,
    on_compiled: Callable[[Compilation], None] = lambda _: None,
) -> CheckResult:
    """Compile configurations of a kernel.

    Args:
        kernel: the kernel.
        backend: compiles.
        architecture: what to compile for; empty for the device's own.
        sample: how many configurations, drawn uniformly. None: as many as it takes for every value of every
            parameter to come at least once.
        everything: compile every configuration.
        sizes: problem sizes instead of the default preset's.
        seed: seeds the sample.
        on_compiled: told about every compilation.

    Raises:
        BackendUnavailableError: there is no compiler.
        MptuneError: the sample is below 1.
    """
    sizes = sizes or kernel.resolve_sizes()
    space = kernel.search_space(sizes)
    options = CompileOptions(architecture=architecture)

    def compile_one(configuration: Configuration) -> Compilation:
        try:
            binary = backend.compile(render(kernel, configuration, sizes), kernel.function, options)
            compiled = Compilation(configuration, binary.compile_s)
        except (CompileError, ExpressionError, KernelError, TemplateError) as error:
            compiled = Compilation(configuration, 0.0, str(error))
        on_compiled(compiled)
        return compiled

    chosen = _choose(space, sample, everything, seed)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compilations = tuple(pool.map(compile_one, chosen))
    return CheckResult(kernel.name, backend.name, architecture, space.size, compilations)


def covering_sample(space: SearchSpace, rng: np.random.Generator) -> list[Configuration]:
    """Return configurations in which every value of every parameter that is valid anywhere comes at least once."""
    chosen: list[Configuration] = []
    for parameter in space.parameters:
        for value in parameter.values:
            if any(configuration[parameter.name] == value for configuration in chosen):
                continue
            try:
                having = space.restrict({parameter.name: (value,)})
            except EmptySpaceError:
                continue
            chosen.append(having.configuration(int(having.sample(1, rng)[0])))
    return chosen


def _choose(space: SearchSpace, sample: int | None, everything: bool, seed: int) -> Sequence[Configuration]:
    rng = np.random.default_rng(seed)
    if everything:
        return [c for indices in space.iter_batches(4096) for c in space.configurations(indices)]
    if sample is None:
        return covering_sample(space, rng)
    if sample < 1:
        raise MptuneError(f"--sample {sample}: expected at least 1, or 'all'")
    return space.configurations(space.sample(min(sample, space.size), rng))
