"""Tuning a kernel for a range of sizes: one run for each, all under one budget, each of which starts from the others.

The middle of the range comes first, then the ends, then what lies between. Each size begins with the winners and the
baselines of its neighbours. A quarter of the budget is kept for a second lap, in which every size tries what its
neighbours have found since.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from mptune.data import DataManager
from mptune.errors import MptuneError
from mptune.kernel import Application, Tunable
from mptune.memory import available_memory_bytes
from mptune.run import Run
from mptune.source.loading import load_tunable, make_ready
from mptune.space.configuration import Configuration
from mptune.store import RunFile
from mptune.tuning.plan import TuningPlan
from mptune.tuning.session import Progress, Warnings, warn_caller
from mptune.tuning.settings import TuneSettings
from mptune.tuning.tuning import tune

_MOST_SIZES: Final = 32
#: Minimum evaluations of a size: the winner and the baseline of a neighbour, and some of its own.
_LEAST: Final = 4
#: The share of the budget, and of the time, of the first lap.
_FIRST_LAP: Final = 0.75
#: Earlier runs that a search starts from; a model of each has to be fitted.
_SOURCES: Final = 8


def sizes_together(
    kernel: Tunable,
    given: Mapping[str, Sequence[int]],
    preset: str = "default",
    others: Mapping[str, int] = MappingProxyType({}),
) -> list[dict[str, int]]:
    """Return sizes by name, smallest first: the n-th of each are taken together, beside those of a preset and others.

    Raises MptuneError if the kernel has no such sizes, if their numbers differ, or if one of them does not fit.
    """
    for name in given:
        if name in others:
            raise MptuneError(f"size {name} is given twice: once alone, and once with several values")
        if name in kernel.forms:
            raise MptuneError(
                f"size {name} of {kernel.called} says which form it is, and forms have nothing in common: tune each by "
                f"itself (--size {name}=...)"
            )
        kernel.resolve_sizes(preset, {name: 1})
    counts = {name: len(values) for name, values in given.items()}
    if len(set(counts.values())) != 1:
        said = ", ".join(f"{count} of {name}" for name, count in counts.items()) or "none"
        raise MptuneError(f"several sizes are taken together: expected as many of each, got {said}")
    (count,) = set(counts.values())
    if not 1 <= count <= _MOST_SIZES:
        raise MptuneError(f"{count} sizes: expected 1 to {_MOST_SIZES}")
    found = [dict(zip(given, values, strict=True)) for values in zip(*given.values(), strict=True)]
    for index, sizes in enumerate(found):
        if sizes in found[:index]:
            raise MptuneError(f"sizes {label_of(sizes)} are given twice")
        # Before hours go into those that fit.
        DataManager(kernel, kernel.resolve_sizes(preset, {**others, **sizes})).require(available_memory_bytes())
    return sorted(found, key=lambda sizes: (math.prod(sizes.values()), *sizes.values()))


def label_of(sizes: Mapping[str, int]) -> str:
    """Return sizes in a word: ``m100-n200``."""
    return "-".join(f"{name}{value}" for name, value in sizes.items())


def files_of_sizes(output: str | Path, together: Sequence[Mapping[str, int]]) -> list[Path]:
    """Return the run file of each size: ``runs/gemm-n100.db`` where the output is ``runs/gemm.db``."""
    path = Path(output)
    return [path.with_name(f"{path.stem}-{label_of(sizes)}{path.suffix}") for sizes in together]


def tune_sizes(
    kernel: Tunable | str | Path,
    sizes: Mapping[str, Sequence[int]],
    settings: TuneSettings | None = None,
    *,
    output: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_size: Callable[[Mapping[str, int], int], None] = lambda _sizes, _budget: None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_verification: Callable[[Progress], None] = lambda _: None,
    on_warning: Callable[[str], None] = warn_caller,
    command: str = "",
    **overrides: Any,
) -> list[Run]:
    """Tune a kernel for a range of sizes and return the finished runs, those of the smallest sizes first.

    A size that no time was left for has no run.

    Args:
        kernel: a kernel, the name of a bundled one, or the path of a definition file.
        sizes: by name, the values of each size; the n-th of all are taken together.
        settings: how to tune; budget and time limit are those of all sizes together.
        output: run files are called after it (:func:`files_of_sizes`); none is kept when it is None.
        resume: go on with existing run files.
        overwrite: begin anew: existing run files are deleted.
        on_size: told the sizes that are tuned next, and how many evaluations these will have had then.
        on_progress: told about every trial.
        on_verification: told about a trial that has run on further unseen inputs.
        on_warning: told each warning, once.
        command: the command line, kept in the run files.
        overrides: fields of :class:`TuneSettings` that replace those of ``settings``.

    Raises:
        MptuneError: something the user gave is wrong; the message names it.
    """
    start = time.monotonic()
    settings = (settings or TuneSettings()).changed(overrides)
    kernel = kernel if isinstance(kernel, Tunable) else load_tunable(kernel)
    together = sizes_together(kernel, sizes, settings.size, settings.sizes)
    count, budget = len(together), settings.budget
    if budget < _LEAST * count:
        raise MptuneError(f"budget {budget}: {count} sizes need at least {_LEAST * count} evaluations together")
    with contextlib.ExitStack() as stack:
        if output is None:
            output = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mptune-"))) / f"{kernel.name}.db"
        files = files_of_sizes(output, together)
        for each, path in zip(together, files, strict=True):
            TuningPlan.of(kernel, dataclasses.replace(settings, sizes={**settings.sizes, **each}), path)
            RunFile.check(path, resume=resume, overwrite=overwrite)
            make_ready(kernel, kernel.resolve_sizes(settings.size, {**settings.sizes, **each}))
        runs = {index: Run.load(path) for index, path in enumerate(files) if path.exists() and not overwrite}
        # The same warning of several sizes is told once, of the first of them.
        warn = Warnings(lambda message: on_warning(f"{label_of(together[index])}: {message}"))
        share = max(_LEAST, int(_FIRST_LAP * budget / count))
        for visit, index in enumerate(_most_telling_first(count) * 2):
            had = {i: run.evaluations for i, run in runs.items()}
            left_s = math.inf if settings.time_limit_s is None else settings.time_limit_s - time.monotonic() + start
            if is_first := visit < count:
                # A run of an earlier session is continued to the budget it had.
                begun = (runs[index].info.budget or 0) if index in runs else 0
                wanted, visits = max(share, begun), (count - visit) / _FIRST_LAP
            else:
                visits = 2 * count - visit
                wanted = had.get(index, 0) + (budget - sum(had.values())) // (2 * count - visit)
            if left_s <= 0 or not (is_first or wanted > had.get(index, 0)):
                continue
            at = {**settings.sizes, **together[index]}
            space = kernel.search_space(kernel.resolve_sizes(settings.size, at))
            on_size(together[index], wanted)
            runs[index] = tune(
                kernel,
                dataclasses.replace(
                    settings,
                    sizes=at,
                    budget=wanted,
                    time_limit_s=left_s / visits if math.isfinite(left_s) else None,
                    first=(*settings.first, *(c for c in _found_by_neighbours(runs, index) if c in space)),
                    sources=(*settings.sources, *_sources(settings, kernel, runs, index, files)),
                ),
                output=files[index],
                resume=index in runs,
                overwrite=overwrite and index not in runs,
                on_progress=on_progress,
                on_verification=on_verification,
                on_warning=warn,
                command=command,
            )
        return [runs[index] for index in sorted(runs)]


def _sources(
    settings: TuneSettings, kernel: Tunable, runs: Mapping[int, Run], index: int, files: Sequence[Path]
) -> list[Path]:
    """Return the run files of the other sizes that have a winner, the nearest first; none where no search uses them."""
    if settings.strategy != "bayesian" or settings.objectives or isinstance(kernel, Application):
        return []
    others = [i for i, run in runs.items() if i != index and run.best is not None]
    return [files[i] for i in sorted(others, key=lambda i: abs(i - index))[:_SOURCES]]


def _found_by_neighbours(runs: Mapping[int, Run], index: int) -> list[Configuration]:
    """Return winners and baselines of the next sizes on both sides that this one has not tried."""
    tried = {trial.configuration for trial in runs[index].trials} if index in runs else set()
    near = [*sorted(i for i in runs if i < index)[-1:], *sorted(i for i in runs if i > index)[:1]]
    reported = [trial for i in near for trial in (runs[i].best, runs[i].baseline) if trial is not None]
    return [c for c in dict.fromkeys(trial.configuration for trial in reported) if c not in tried]


def _most_telling_first(count: int) -> list[int]:
    """Return the places of a range, the middle first, then the ends, then always the middle of the widest gap."""
    order = list(dict.fromkeys((count // 2, 0, count - 1)))
    while len(order) < count:
        done = sorted(order)
        low, high = max(itertools.pairwise(done), key=lambda gap: gap[1] - gap[0])
        order.append((low + high) // 2)
    return order
