"""Tuning a kernel for a range of sizes: one run for each, all under one budget, each of which starts from the others.

The middle of the range comes first and is searched most; then the ends, then what lies between. Each begins with the
winners and the baselines of its neighbours. What is left of the budget then goes where the choice of configuration
still matters: to the sizes at which others did better than what their neighbours said.
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
from mptune.data.memory import available_memory_bytes
from mptune.errors import MptuneError
from mptune.kernel import Application, Tunable
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.source.loading import load_tunable
from mptune.space.configuration import Configuration
from mptune.store import RunFile
from mptune.tuning.plan import TuningPlan
from mptune.tuning.settings import Progress, TuneSettings
from mptune.tuning.tuning import changed, tune, warn_caller

__all__ = ["files_of_sizes", "label_of", "sizes_together", "tune_sizes"]

_MOST_SIZES: Final = 32
#: Evaluations that each size needs at the least: a winner and a baseline that are told, and what is found of its own.
_LEAST: Final = 4
#: Of the budget that each would have if all had the same, what the first size begins with, and each of the others.
_FIRST_SHARE: Final = 1.5
_OTHERS_SHARE: Final = 0.5
#: How much better than what the neighbours say a size has to do for the difference to be more than noise, and beyond
#: which it no longer matters; as logarithms.
_NOISE: Final = 0.02
_MOST: Final = 0.1
#: It does not pay to go on with a run for less.
_WORTHWHILE: Final = 3
#: Earlier runs that a search starts from; a model of each has to be fitted.
_SOURCES: Final = 8


def sizes_together(
    kernel: Tunable,
    given: Mapping[str, Sequence[int]],
    preset: str = "default",
    others: Mapping[str, int] = MappingProxyType({}),
) -> list[dict[str, int]]:
    """Return sizes by name, smallest first: the n-th of each are taken together.

    Args:
        kernel: the kernel that has them.
        given: by name of a size, its values.
        preset: has the other sizes.
        others: replace those of the preset.

    Raises:
        MptuneError: the kernel has no such sizes, or cannot be tuned for several; lists of different lengths, or that
            say something twice; too many.
        OutOfMemoryError: one of them does not fit.
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
    return sorted(found, key=lambda sizes: (_extent(sizes), *sizes.values()))


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
        on_size: told the sizes that are tuned next, and how many evaluations these will have had then.
        on_progress: told about every trial.
        on_verification: told about a trial that has run on further unseen inputs.
        on_warning: told each warning, once.
        command: the command line, kept in the run files.
        overrides: fields of :class:`TuneSettings` that replace those of ``settings``.

    Raises:
        MptuneError: something the user gave is wrong; the message names it.
    """
    settings = changed(settings or TuneSettings(), overrides)
    kernel = kernel if isinstance(kernel, Tunable) else load_tunable(kernel)
    together = sizes_together(kernel, sizes, settings.size, settings.sizes)
    least = _LEAST * len(together)
    if settings.budget < least:
        raise MptuneError(f"budget {settings.budget}: {len(together)} sizes need at least {least} evaluations together")
    listeners = {"on_progress": on_progress, "on_verification": on_verification}
    with contextlib.ExitStack() as stack:
        if output is None:
            output = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mptune-"))) / f"{kernel.name}.db"
        files = files_of_sizes(output, together)
        for each, path in zip(together, files, strict=True):
            TuningPlan.of(kernel, _at(settings, each), path)
            RunFile.check(path, resume=resume)
        said: set[str] = set()

        def run_at(index: int, at: TuneSettings) -> Run:
            def warn(message: str) -> None:
                if message not in said:
                    said.add(message)
                    on_warning(f"{label_of(together[index])}: {message}")

            on_size(together[index], at.budget)
            at = dataclasses.replace(at, sizes={**settings.sizes, **together[index]})
            return tune(
                kernel,
                at,
                output=files[index],
                resume=files[index].exists(),
                on_warning=warn,
                command=command,
                **listeners,
            )

        return _Range(settings, together, files, run_at, is_application=isinstance(kernel, Application)).tuned()


def _at(settings: TuneSettings, sizes: Mapping[str, int]) -> TuneSettings:
    return dataclasses.replace(settings, sizes={**settings.sizes, **sizes})


def _extent(sizes: Mapping[str, int]) -> float:
    return sum(math.log(value) for value in sizes.values())


class _Range:
    """The sizes of a range, in order, and the runs they have so far; what is decided follows from these alone.

    Args:
        settings: of all together.
        together: the sizes.
        files: the run file of each.
        run_at: tunes one of them, or goes on with it.
        is_application: whether they are sizes of an application.
    """

    def __init__(
        self,
        settings: TuneSettings,
        together: Sequence[Mapping[str, int]],
        files: Sequence[Path],
        run_at: Callable[[int, TuneSettings], Run],
        *,
        is_application: bool = False,
    ) -> None:
        self._is_application = is_application
        self._settings = settings
        self._together = together
        self._files = files
        self._run_at = run_at
        self._start = time.monotonic()
        self._runs = {index: Run.load(path) for index, path in enumerate(files) if path.exists()}
        #: Those of which nothing is left to evaluate.
        self._exhausted: set[int] = set()

    def tuned(self) -> list[Run]:
        """Tune all of them, and then on where it matters; return the runs."""
        order = _most_telling_first(len(self._together))
        budget, count = self._settings.budget, len(order)
        share = max(_LEAST, round(_OTHERS_SHARE * budget / count))
        first = min(round(budget / count * (_FIRST_SHARE if count > 2 else 1)), budget - _LEAST * (count - 1))
        for place, index in enumerate(order):
            # What an earlier session had begun is brought to its end.
            begun = self._runs[index].info.budget or 0 if index in self._runs else 0
            self._tune(index, max(share if place else first, begun), self._left_s / (count - place))
        while (index_and_budget := self._next()) is not None:
            self._tune(*index_and_budget, self._left_s)
        return [self._runs[index] for index in sorted(self._runs)]

    @property
    def _left_s(self) -> float:
        limit_s = self._settings.time_limit_s
        return math.inf if limit_s is None else limit_s - (time.monotonic() - self._start)

    def _tune(self, index: int, budget: int, limit_s: float) -> None:
        if limit_s <= 0:
            return
        start = time.monotonic()
        run = self._run_at(
            index,
            dataclasses.replace(
                self._settings,
                budget=budget,
                time_limit_s=limit_s if math.isfinite(limit_s) else None,
                first=(*self._settings.first, *self._to_try(index)),
                sources=(*self._settings.sources, *self._sources(index)),
            ),
        )
        self._runs[index] = run
        if run.evaluations < budget and time.monotonic() - start < limit_s:
            self._exhausted.add(index)

    def _sources(self, index: int) -> list[Path]:
        """Return the run files of the other sizes, the nearest first; of them only those that found something."""
        settings = self._settings
        if settings.strategy != "bayesian" or settings.objectives or self._is_application:
            return []  # others search from nothing
        here = _extent(self._together[index])
        others = [i for i, run in self._runs.items() if i != index and run.best is not None]
        others.sort(key=lambda i: abs(_extent(self._together[i]) - here))
        return [self._files[i] for i in others[:_SOURCES]]

    # -- what neighbours say ---------------------------------------------------------------------

    def _neighbours(self, index: int) -> list[int]:
        """Return the next smaller and the next larger size that have a run."""
        smaller, larger = [i for i in self._runs if i < index], [i for i in self._runs if i > index]
        return [*sorted(smaller)[-1:], *sorted(larger)[:1]]

    def _trials(self, index: int) -> dict[Configuration, Trial]:
        return {trial.configuration: trial for trial in self._runs[index].trials} if index in self._runs else {}

    def _to_try(self, index: int) -> list[Configuration]:
        """Return what others found and has not been tried at a size: winners and baselines of its neighbours.

        At the ends of the range it is a winner of each combination of types as well: what errors are in between is
        known from those at the ends.
        """
        tried = self._trials(index)
        near = [self._runs[i] for i in self._neighbours(index)]
        reported = [trial for run in near for trial in (run.best, run.baseline) if trial is not None]
        found = dict.fromkeys((*(trial.configuration for trial in reported), *self._of_other_types(index)))
        return [configuration for configuration in found if configuration not in tried]

    def _of_other_types(self, index: int) -> list[Configuration]:
        """Return a winner of each combination of types that was not tried at a size, if that is an end of the range."""
        if index not in (0, len(self._together) - 1) or index not in self._runs:
            return []
        names = self._runs[index].info.signature
        tried = {configuration.subset(names) for configuration in self._trials(index)}
        winners = [trial.configuration for run in self._runs.values() if (trial := run.best) is not None]
        return [c for types, c in {c.subset(names): c for c in winners}.items() if types not in tried]

    # -- where it matters ------------------------------------------------------------------------

    def _next(self) -> tuple[int, int] | None:
        """Return the size that is gone on with, and how many evaluations it will have had then; None if there is none.

        What is left is divided by the method of D'Hondt, by how far each is from what its neighbours say.
        """
        left = self._settings.budget - sum(run.evaluations for run in self._runs.values())
        counts = {i: run.evaluations for i, run in self._runs.items() if i not in self._exhausted}
        if left <= 0 or self._left_s <= 0 or not counts:
            return None
        weights = {i: _NOISE + self._surprise(i) for i in counts}
        more = {i: len(self._of_other_types(i)) for i in counts}
        for _ in range(left - sum(more.values())):
            more[max(more, key=lambda i: weights[i] / (counts[i] + more[i] + 1))] += 1
        chosen = max(more, key=more.__getitem__)
        return chosen, counts[chosen] + (left if left - more[chosen] < _WORTHWHILE else more[chosen])

    def _surprise(self, index: int) -> float:
        """Return how much better a size did than what its neighbours say; where they have news, than they expected."""
        tried = self._trials(index)
        news = [i for i in self._neighbours(index) if (w := self._runs[i].best) and w.configuration not in tried]
        return max(map(self._lead, (index, *news)))

    def _lead(self, index: int) -> float:
        """Return by how much the best of a size leads the winners of its neighbours there, as a logarithm."""
        run, tried = self._runs[index], self._trials(index)
        best = run.best
        if best is None:
            return _MOST
        told = [w.configuration for i in self._neighbours(index) if (w := self._runs[i].best) is not None]
        known = [tried[configuration] for configuration in told if configuration in tried]
        feasible = [trial for trial in known if run.objective.is_feasible(trial)]
        if not feasible:
            return _MOST if known else 0.0
        performance = run.objective.performance
        return min(_MOST, max(0.0, math.log(performance(best) / max(map(performance, feasible)))))


def _most_telling_first(count: int) -> list[int]:
    """Return the places of a range, the middle first, then the ends, then always the middle of the widest gap."""
    order = list(dict.fromkeys((count // 2, 0, count - 1)))
    while len(order) < count:
        done = sorted(order)
        low, high = max(itertools.pairwise(done), key=lambda gap: gap[1] - gap[0])
        order.append((low + high) // 2)
    return order
