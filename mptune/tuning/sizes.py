"""Tuning a kernel for a range of sizes: one run for each size, all under one budget, with the others as sources.

The middle of the range comes first, then the ends, then the sizes between. Each size begins with the winners and the
baselines of its neighbours. A quarter of the budget is kept for a second lap, in which every size tries the later
winners of its neighbours.
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
from mptune.source.loading import load_tunable
from mptune.space.arguments import checked
from mptune.space.configuration import Configuration
from mptune.store import RunFile
from mptune.tuning.plan import TuningPlan
from mptune.tuning.session import Progress, Warnings, warn_caller
from mptune.tuning.settings import TuneSettings
from mptune.tuning.tuning import tune

_MOST_SIZES: Final = 32
#: Minimum evaluations of a size: the winner and the baseline of a neighbour, and two more.
_LEAST: Final = 4
#: Share of the budget, and of the time, for the first lap.
_FIRST_LAP: Final = 0.75
#: Maximum sources of a search, which fits a model of each.
_SOURCES: Final = 8


def sizes_together(
    kernel: Tunable,
    given: Mapping[str, Sequence[int]],
    preset: str = "default",
    others: Mapping[str, int] = MappingProxyType({}),
) -> list[dict[str, int]]:
    """Return the sizes of the range, smallest first: the n-th values of all names belong together.

    Raises MptuneError if the kernel has no such sizes, if their numbers differ, or if one exceeds the memory.
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
        # The memory of all sizes is checked before hours go into the first.
        DataManager(kernel, kernel.resolve_sizes(preset, {**others, **sizes})).require(available_memory_bytes())
    return sorted(found, key=lambda sizes: (math.prod(sizes.values()), *sizes.values()))


def label_of(sizes: Mapping[str, int]) -> str:
    """Return the label of sizes: ``m100-n200``."""
    return "-".join(f"{name}{value}" for name, value in sizes.items())


def files_of_sizes(output: str | Path, together: Sequence[Mapping[str, int]]) -> list[Path]:
    """Return the run file of each size: ``runs/gemm-n100.db`` where the output is ``runs/gemm.db``."""
    path = Path(output)
    return [path.with_name(f"{path.stem}-{label_of(sizes)}{path.suffix}") for sizes in together]


@checked
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
    """Tune a kernel for a range of sizes and return the finished runs, smallest sizes first.

    A size without time left has no run.

    Args:
        kernel: a kernel, the name of a bundled one, or the path of a definition file.
        sizes: values of each size by name; the n-th values of all names belong together.
        settings: settings; budget and time limit are for all sizes together.
        output: the run files are named after it (:func:`files_of_sizes`); with None no file is kept.
        resume: continue existing run files.
        overwrite: delete existing run files.
        on_size: called with the next sizes, and their total of evaluations afterwards.
        on_progress: called after every trial.
        on_verification: called after a trial has run on further unseen inputs.
        on_warning: called once with each warning.
        command: the command line, kept in the run files.
        overrides: fields of :class:`TuneSettings` that replace fields of ``settings``.

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
        runs = {index: Run.load(path) for index, path in enumerate(files) if path.exists() and not overwrite}
        # A warning that several sizes share is shown once, for the first of them.
        warn = Warnings(lambda message: on_warning(f"{label_of(together[index])}: {message}"))
        share = max(_LEAST, int(_FIRST_LAP * budget / count))
        for visit, index in enumerate(_most_telling_first(count) * 2):
            had = {i: run.evaluations for i, run in runs.items()}
            left_s = math.inf if settings.time_limit_s is None else settings.time_limit_s - time.monotonic() + start
            if is_first := visit < count:
                # A run of an earlier session continues to its budget.
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
    """Return the run files of other sizes that have a winner, nearest first; none if the search uses no sources."""
    if settings.strategy != "bayesian" or settings.objectives or isinstance(kernel, Application):
        return []
    others = [i for i, run in runs.items() if i != index and run.best is not None]
    return [files[i] for i in sorted(others, key=lambda i: abs(i - index))[:_SOURCES]]


def _found_by_neighbours(runs: Mapping[int, Run], index: int) -> list[Configuration]:
    """Return the winners and baselines of both neighbours that this size has not tried."""
    tried = {trial.configuration for trial in runs[index].trials} if index in runs else set()
    near = [*sorted(i for i in runs if i < index)[-1:], *sorted(i for i in runs if i > index)[:1]]
    reported = [trial for i in near for trial in (runs[i].best, runs[i].baseline) if trial is not None]
    return [c for c in dict.fromkeys(trial.configuration for trial in reported) if c not in tried]


def _most_telling_first(count: int) -> list[int]:
    """Return the indices of a range: the middle, the ends, then always the middle of the widest gap."""
    order = list(dict.fromkeys((count // 2, 0, count - 1)))
    while len(order) < count:
        done = sorted(order)
        low, high = max(itertools.pairwise(done), key=lambda gap: gap[1] - gap[0])
        order.append((low + high) // 2)
    return order
