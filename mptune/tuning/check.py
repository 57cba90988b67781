"""Checks of a definition: configurations are compiled, after one run of an application."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from mptune.backends import get_backend
from mptune.backends.base import Backend, CompileOptions
from mptune.data import DataManager, least_sizes
from mptune.errors import CompileError, ExpressionError, KernelError, MptuneError, TemplateError
from mptune.kernel import Application, Kernel, Sizes
from mptune.kernel.limits import whole_space, widest
from mptune.measure.answers import masked_remarks
from mptune.measure.device import DeviceEvaluator
from mptune.measure.timing import TimingPlan
from mptune.results.trial import Status
from mptune.run import in_short
from mptune.source.lints import examples, lints
from mptune.source.render import cited, render
from mptune.space.configuration import Configuration, Value
from mptune.space.search_space import SearchSpace

_NUMBERS: Final = re.compile(r"\d+")
#: A choice of configurations (:func:`select`).
Selection = int | Literal["values", "signatures", "all"]


@dataclass(frozen=True, slots=True)
class Compilation:
    """The compilation of one configuration."""

    configuration: Configuration
    compile_s: float  #: wall time of the compiler; 0 from the cache
    message: str = ""  #: of a failure


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The compilations of one kernel, and warnings about its template."""

    kernel: str
    backend: str
    architecture: str  #: empty for the device's own
    configurations: int  #: number of valid configurations, types on request included
    compilations: tuple[Compilation, ...]
    warnings: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[Compilation, ...]:
        """The compilations that failed."""
        return tuple(c for c in self.compilations if c.message)

    @property
    def failure_groups(self) -> tuple[tuple[Compilation, ...], ...]:
        """The failures by message without its numbers, the most frequent first."""
        groups: dict[str, list[Compilation]] = {}
        for failure in self.failures:
            groups.setdefault(_NUMBERS.sub("#", in_short(failure.message)), []).append(failure)
        return tuple(tuple(group) for group in sorted(groups.values(), key=len, reverse=True))

    @property
    def median_s(self) -> float:
        """Median wall time of a compilation, NaN if all came from the cache."""
        times = [c.compile_s for c in self.compilations if c.compile_s > 0]
        return statistics.median(times) if times else math.nan

    def to_json(self) -> dict[str, Any]:
        """Return the entry of one kernel in ``mptune check --json``."""
        return {
            "kernel": self.kernel,
            "backend": self.backend,
            "architecture": self.architecture,
            "configurations": self.configurations,
            "compiled": len(self.compilations),
            "median_compile_s": None if math.isnan(self.median_s) else self.median_s,
            "failures": [{"configuration": dict(f.configuration), "message": f.message} for f in self.failures],
            "compilations": [
                {"configuration": dict(c.configuration), "compile_s": c.compile_s, "failed": bool(c.message)}
                for c in self.compilations
            ],
            "warnings": list(self.warnings),
        }


def check(
    kernel: Kernel,
    backend: Backend,
    *,
    architecture: str = "",
    sample: Selection = "values",
    sizes: Sizes | None = None,
    restrict: Mapping[str, Sequence[Value]] = MappingProxyType({}),
    seed: int = 0,
    on_compiled: Callable[[Compilation], None] = lambda _: None,
) -> CheckResult:
    """Compile a choice of a kernel's configurations (:func:`select`), types on request included.

    Defaults are the device's own architecture and the size preset "default". ``restrict`` limits parameters to some of
    their values, by name.
    """
    sizes = kernel.resolve_sizes() if sizes is None else sizes
    options = CompileOptions(architecture=architecture)

    def compile_one(configuration: Configuration) -> Compilation:
        try:
            binary = backend.compiler.compile(render(kernel, configuration, sizes), kernel.function, options)
            compiled = Compilation(configuration, binary.compile_s)
        except CompileError as error:
            compiled = Compilation(configuration, 0.0, cited(str(error), kernel, configuration, sizes))
        except (ExpressionError, KernelError, TemplateError) as error:
            compiled = Compilation(configuration, 0.0, str(error))
        on_compiled(compiled)
        return compiled

    facts = backend.facts(backend.compiler.resolved(options).architecture)
    every = whole_space(kernel, sizes, facts) if kernel.parameters else None
    space = every and every.restrict(restrict)
    # A kernel of an application may have nothing to choose.
    chosen = select(space, kernel.signature_names, sample, seed) if space else (Configuration({}),)
    read = examples(kernel, every) if every else ()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compilations = tuple(pool.map(compile_one, chosen))
    found = (*_masks(kernel, sizes, seed), *(lints(kernel, sizes, every, read) if every else ()))
    return CheckResult(kernel.name, backend.name, architecture, space.size if space else 1, compilations, found)


def _masks(kernel: Kernel, sizes: Sizes, seed: int) -> tuple[str, ...]:
    """Return remarks on elements that are NaN in the reference at the smallest sizes."""
    least: Sizes | None = None
    try:
        least = least_sizes(kernel, sizes)
        if kernel.reference is not None and least is not None:
            data = DataManager(kernel, least, seed=seed, caches=False)
            return tuple(f"at {least}, {remark}" for remark in masked_remarks(kernel, data.references))
    except (MptuneError, MemoryError) as error:
        where = "" if least is None else f"at {least}: "
        return (f"{where}{error}",)  # the templates are still checked
    return ()


def check_application(
    application: Application,
    backend: Backend,
    *,
    sizes: Sizes | None = None,
    restrict: Mapping[str, Sequence[Value]] = MappingProxyType({}),
    seed: int = 0,
    **options: Any,
) -> tuple[CheckResult, ...]:
    """Run an application in its widest types on an available device, and :func:`check` each of its kernels.

    A kernel is checked at the sizes of its first launch. The default size preset is "smoke", else "default". A name in
    ``restrict`` begins with the kernel's name.
    """
    if sizes is None:
        sizes = application.resolve_sizes("smoke" if "smoke" in application.sizes else "default")
    launched: dict[str, Sizes] = {}
    runner, plan = get_backend("auto"), TimingPlan(min_repeats=1, max_repeats=1)
    try:
        with DeviceEvaluator(application, sizes, runner.name, seed=seed, plan=plan) as evaluator:
            ready = evaluator.start()
            trials = (next(evaluator.evaluate([each])) for each in widest(application, sizes, ready.facts))
            trial = next((each for each in trials if each.status is not Status.CONSTRAINT), None)
            if trial is None:
                raise KernelError(
                    f"{application.called}: none of its configurations in the widest types can be launched"
                )
            if trial.status is Status.COMPILE_ERROR:
                raise CompileError(trial.message)
            if not trial.is_valid:
                raise KernelError(f"{application.called} in its widest types: {trial.status.value}: {trial.message}")
            for launch in evaluator.launches(trial.configuration):
                launched.setdefault(launch.kernel, Sizes(dict(launch.sizes)))
    except CompileError as error:
        first = widest(application, sizes, runner.device.facts())[0]
        failed = Compilation(first, 0.0, str(error))
        return (CheckResult(application.name, runner.name, "", application.search_space(sizes).size, (failed,)),)
    results: list[CheckResult] = []
    for name, kernel in application.kernels.items():
        if name in launched:
            ours = {own: restrict[f"{name}.{own}"] for own in kernel.parameter_names if f"{name}.{own}" in restrict}
            found = check(kernel, backend, sizes=launched[name], restrict=ours, seed=seed, **options)
        else:
            nothing = f"the steps of {application.called} do not launch it at {sizes}, so it was not compiled"
            found = CheckResult(name, backend.name, options.get("architecture", ""), 0, (), (nothing,))
        remarks = () if results else ready.remarks
        named = dataclasses.replace(found, kernel=f"{application.name}.{name}", warnings=(*remarks, *found.warnings))
        results.append(named)
    return tuple(results)


def select(
    space: SearchSpace, signature_names: Sequence[str], sample: Selection = "values", seed: int = 0
) -> Sequence[Configuration]:
    """Return a sample of a kernel's search space for checking that it compiles.

    A number draws so many configurations uniformly; "values" covers every valid value of every parameter; "signatures"
    takes one configuration for each accuracy signature.
    """
    rng = np.random.default_rng(seed)
    if sample == "all":
        return space.configurations(np.arange(space.size))
    if sample == "values":
        return space.configurations(space.covering(rng))
    if sample == "signatures":
        return space.configurations(space.representatives(signature_names, rng))
    if sample < 1:
        raise MptuneError(f"--sample {sample}: expected at least 1, or 'all'")
    return space.configurations(space.sample(min(sample, space.size), rng))
