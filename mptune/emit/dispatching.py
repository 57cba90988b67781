"""Writing all variants of a kernel that wisdom chooses among, and a header with a table of which to use at which sizes.

The table has a cell for each part of a grid over the sizes: the variants to try there, the one to be preferred first.
They are those whose errors keep the limit at all corners of the cell, as :class:`Chooser` tells, and the baselines. The
tuned sizes have entries of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mptune import __version__
from mptune.backends.base import options_of
from mptune.cpp.prelude import prelude
from mptune.emit.common import MARK, host_command, write_files
from mptune.emit.sizes import free_sizes, opened, said_in_cpp
from mptune.emit.text import fill
from mptune.emit.variants import Launch, variant_of
from mptune.errors import KernelError, WisdomError
from mptune.kernel import Kernel, Sizes, Tunable
from mptune.kernel.tunable import parsed
from mptune.results.unseen import CONFIDENCE
from mptune.run import json_document
from mptune.source.flags import Build, build_of
from mptune.space.configuration import Configuration
from mptune.wisdom import Candidate, Chooser, Decision, KernelWisdom, Wisdom, budget_of, kernel_of

_GPUS: Final = ("cuda", "hip")


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What was written: the variants in a folder, and the files.

    Attributes:
        kernel: its name.
        variants: the configurations, each with the sizes that are written into it.
        budget: the error limits.
        fixed: the sizes that are written into all sources: there is none for values other than those of the variants.
        folder: where the files are.
        files: their names.
    """

    kernel: str
    variants: tuple[tuple[Configuration, Mapping[str, int]], ...]
    budget: Mapping[str, float]
    fixed: tuple[str, ...]
    folder: Path
    files: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document ``mptune emit --json`` prints."""
        return json_document(
            {
                "kernel": self.kernel,
                "threshold": dict(self.budget) or None,
                "variants": [{"configuration": c, "fixed_sizes": dict(sizes)} for c, sizes in self.variants],
                "output": str(self.folder),
                "files": self.files,
            }
        )


def emit_dispatch(
    wisdom: Wisdom,
    folder: str | Path,
    *,
    kernel: Tunable | str | Path | None = None,
    max_error: float | Mapping[str, float] | None = None,
    confidence: float = CONFIDENCE,
    metric: str | None = None,
    sizes: Sequence[Mapping[str, int]] = (),
) -> Dispatch:
    """Write what wisdom chooses among for any device and sizes, with a header that does; emitted files are replaced.

    Args:
        wisdom: what is known.
        folder: where; made if need be.
        kernel: the definition, unless it is a bundled kernel's; or which of several.
        max_error: the error limit; by default the smallest that the runs were made with.
        confidence: with which errors keep it.
        metric: what errors are measured by, if there are several.
        sizes: further sizes to compile for, where sizes are written into the source.
    """
    found, known = single_kernel_of(wisdom, kernel, metric)
    budget = budget_of(known, max_error)
    # As on the device itself: what it allows was kept by what was measured on it.
    choosers = [Chooser(each, found, {}, budget, confidence) for each in known]
    form = choosers[0].form
    given = [found.resolve_sizes("default", {**form, **each}) for each in sizes]
    if any(other != form for other in (*(each.form for each in choosers), *map(found.form_of, given))):
        raise WisdomError(
            f"what is emitted of the wisdom of kernel {found.name} is for "
            f"{', '.join(f'{name}={value}' for name, value in form.items())} alone: emit other forms by themselves"
        )
    name = f"tuned_{found.name}"
    tables = [_Table(chooser, given) for chooser in choosers]
    launches: dict[tuple[Any, ...], Launch] = {}
    for launch in (launch for table in tables for launch in table.launches):
        conditions = launch.opened.conditions if launch.opened else ()
        # The sources that most is written into first: where they do, they are taken.
        key = (launch.configuration.to_json(), -len(launch.fixed), tuple(sorted(launch.fixed.items())), conditions)
        launches.setdefault(key, launch)
    if not launches:
        raise KernelError(
            f"{found.called}: no configuration of the wisdom is valid at its sizes, so nothing can be emitted"
        )
    ordered = [launches[key] for key in sorted(launches)]
    fixed = set(found.sizes["default"]) - frozenset[str]().union(*(launch.free for launch in ordered))
    wide = found.baseline_values()
    variants = [
        {**variant_of(launch, f"{name}_{number}"), "is_wide": launch.configuration.is_among(wide)}
        for number, launch in enumerate(ordered, 1)
    ]
    largest = max((record.sizes for each in choosers for record in each.known.tuned), key=lambda s: sorted(s.items()))
    largest = {**largest, **form}
    build = build_of(found, ordered[0].configuration) if len(ordered) == 1 else Build()
    of_user = _given_flags(found, known)
    values = {
        "mark": f"{MARK} {__version__}",
        "name": name,
        "kernel": found.name,
        "application": "",
        "description": found.description,
        "sizes": [
            {
                "name": size,
                "value": largest[size],
                "most": found.largest_size(size),
                "is_form": size in found.forms,
            }
            for size in found.sizes["default"]
        ],
        "fixed_sizes": sorted(fixed),
        "arguments": [argument.name for argument in found.arguments],
        "variants": variants,
        "budget": " and ".join(f"{error} {limit:g}" for error, limit in budget.items()) or "none",
        "confidence": confidence,
        "devices": [table.described(ordered) for table in tables],
        "names": choosers[0].names,
        "host_command": host_command(build, "", of_user["host"]),
        "given": of_user,
        "metric": known[0].metric,
    }
    texts = {
        f"{name}.hpp": fill("dispatch.hpp", values),
        f"{name}_prelude.hpp": fill("application/prelude.hpp", {**values, "prelude": prelude()}),
    }
    texts |= {f"{v['symbol']}.cu": fill("application/kernel.cu", {**values, **v}) for v in variants}
    texts["README.md"] = fill("dispatch.md", {**values, "files": tuple(texts)})
    write_files(Path(folder), texts)
    pairs = tuple((launch.configuration, launch.fixed) for launch in ordered)
    return Dispatch(found.name, pairs, budget, tuple(sorted(fixed)), Path(folder), tuple(texts))


def single_kernel_of(
    wisdom: Wisdom, kernel: Tunable | str | Path | None = None, metric: str | None = None
) -> tuple[Kernel, list[KernelWisdom]]:
    """Return the kernel that is meant, as of :func:`kernel_of`; an application is refused, if need be undefined."""
    meant = {each.kernel: each.is_of_application for each in wisdom.kernels if kernel in (None, each.kernel)}
    found = None
    if len(meant) > 1 or not any(meant.values()):
        found, known = kernel_of(wisdom, kernel, metric)
        if isinstance(found, Kernel):
            return found, known
    called = found.called if found is not None else f"application {next(iter(meant))}"
    raise KernelError(
        f"{called} cannot be emitted of wisdom, which only a single kernel can: mptune.TunedApplication "
        "chooses by size from Python, and mptune emit RUN.db writes one size of it"
    )


def _given_flags(kernel: Kernel, known: Sequence[KernelWisdom]) -> dict[str, tuple[str, ...]]:
    """Return the user's compiler flags for each backend: those of what is known of it, else what all devices share."""
    found: dict[str, tuple[str, ...]] = {}
    for backend in ("host", "cuda", "hip"):
        of_it = [each for each in known if each.backend == backend] or known
        different = {options_of(each, backend).flags for each in of_it}
        if len(different) > 1:
            both = " and with ".join(sorted(" ".join(flags) or "none" for flags in different))
            raise WisdomError(
                f"the wisdom of kernel {kernel.name} is of runs with compiler flags {both}, and the variants are "
                "compiled for all devices alike: emit each device's run by itself"
            )
        (found[backend],) = different
    return found


# -- what is used at which sizes -------------------------------------------------------------------


class _Table:
    """What is used at which sizes on a device.

    At the tuned sizes and those that are given, all that need be is written into the source, which compilers make more
    of. Elsewhere it is what serves any sizes.

    Attributes:
        launches: what has to be compiled.
    """

    def __init__(self, chooser: Chooser, given: Sequence[Sizes]) -> None:
        kernel = chooser.kernel
        assert isinstance(kernel, Kernel)
        self._chooser = chooser
        tuned = [kernel.resolve_sizes("default", {**record.sizes, **chooser.form}) for record in chooser.known.tuned]
        self._sources = _Sources(kernel, [*tuned, *given])
        self.launches: list[Launch] = []
        at = {tuple(sizes[name] for name in chooser.names): sizes for sizes in (*tuned, *given)}
        free = frozenset[str]().union(*(self._sources.variable(each.configuration) for each in chooser.candidates))
        # By size, the number and the first value of each cell. A size that is written into the sources has its values.
        axes: list[list[tuple[int, int]]] = []
        for axis, (name, starts) in enumerate(zip(chooser.names, chooser.cells.starts, strict=True)):
            written = sorted({(chooser.cells.at(place)[axis], place[axis]) for place in at})
            axes.append([*enumerate(starts.tolist())] if name in free else written)
        self._starts = [[start for _, start in axis] for axis in axes]
        self._cells = []
        for entries in itertools.product(*axes):
            cell = tuple(number for number, _ in entries)
            values = {
                name: middle if name in free else start
                for name, middle, (_, start) in zip(chooser.names, chooser.cells.middle(cell), entries, strict=True)
            }
            sizes = kernel.resolve_sizes("default", {**chooser.form, **values})
            self._cells.append(self._order(sizes, chooser.decide_cell(cell)))
        self._exact = {
            place: self._order(sizes, chooser.decide(sizes), is_written=True) for place, sizes in at.items()
        }

    def described(self, launches: Sequence[Launch]) -> dict[str, Any]:
        """Return what the header knows of a device, with the numbers of all that is compiled."""
        known = self._chooser.known
        numbers: dict[Configuration, list[int]] = {}
        for number, launch in enumerate(launches):
            numbers.setdefault(launch.configuration, []).append(number)
        # Each order once, one after the other, each with the number of variants at its end; cells have its place.
        places: dict[tuple[int, ...], int] = {}
        flat: list[int] = []

        def place_of(order: Iterable[Candidate]) -> int:
            found = tuple(number for each in order for number in numbers.get(each.configuration, ()))
            if found not in places:
                places[found] = len(flat)
                flat.extend((*found, len(launches)))
            return places[found]

        return {
            "backend": known.backend,
            "device": known.device,
            "architecture": known.architecture,
            "is_gpu": known.backend in _GPUS,
            "n_tuned": len(self._chooser.tuned),
            "starts": self._starts,
            "cells": [*map(place_of, self._cells)],
            "exact": [(place, place_of(order)) for place, order in self._exact.items()],
            "orders": flat,
        }

    def _order(self, sizes: Sizes, decision: Decision, *, is_written: bool = False) -> tuple[Candidate, ...]:
        """Return the usable candidates, and have the first and the first baseline compiled for some sizes."""
        for candidates in (decision.usable, [each for each in decision.usable if each.is_wide]):
            valid = (each.configuration for each in candidates if self._chooser.is_valid(each, sizes))
            found = filter(None, (self._sources.at(configuration, sizes, is_written) for configuration in valid))
            if (launch := next(found, None)) is not None and launch not in self.launches:
                self.launches.append(launch)
        return decision.usable


class _Sources:
    """The sources of configurations at sizes, each of which serves as many sizes as can be.

    Args:
        kernel: the definition.
        at: sizes that may be written into sources.
    """

    def __init__(self, kernel: Kernel, at: Sequence[Sizes]) -> None:
        self._kernel = kernel
        self._at = at
        self._free: dict[Configuration, frozenset[str]] = {}
        self._written: dict[tuple[Configuration, frozenset[tuple[str, int]]], Launch] = {}
        self._opened: dict[Configuration, list[Launch]] = {}
        #: What a template asked where there is no source that may be.
        self._refused: dict[Configuration, list[Sequence[str]]] = {}

    def variable(self, configuration: Configuration) -> frozenset[str]:
        """Return the sizes that may be others than those that may be written."""
        found = [self._open(configuration, sizes) for sizes in self._at]
        return self._free_of(configuration).union(*(launch.free for launch in found if launch is not None))

    def at(self, configuration: Configuration, sizes: Sizes, is_written: bool) -> Launch | None:
        """Return the source for some sizes; None if they would have to be written into it and may not."""
        free = self._free_of(configuration)
        if is_written or len(free) == len(sizes):
            launch = Launch(self._kernel, configuration, sizes, free)
            return self._written.setdefault((configuration, frozenset(launch.fixed.items())), launch)
        known = self._opened.setdefault(configuration, [])
        for launch in known:
            if _serves(launch, sizes):
                return launch
        refused = self._refused.setdefault(configuration, [])
        if any(_hold(asked, sizes) for asked in refused):
            return None
        new = self._open(configuration, sizes)
        if new is None or new.opened is None:
            return None
        if not any(new.fixed.items() <= each.items() for each in self._at):
            refused.append(new.opened.asked)
            return None
        known.append(new)
        return new

    def _open(self, configuration: Configuration, sizes: Sizes) -> Launch | None:
        found = opened(self._kernel, configuration, sizes)
        if found is None:
            return None
        free = said_in_cpp(self._kernel, configuration, sizes, self._free_of(configuration).union(found.names))
        return Launch(self._kernel, configuration, sizes, free, found) if free.issuperset(found.names) else None

    def _free_of(self, configuration: Configuration) -> frozenset[str]:
        if configuration not in self._free:
            self._free[configuration] = free_sizes(self._kernel, configuration, self._at[0])
        return self._free[configuration]


def _serves(launch: Launch, sizes: Sizes) -> bool:
    return launch.fixed.items() <= sizes.items() and _hold(launch.opened.conditions if launch.opened else (), sizes)


def _hold(conditions: Iterable[str], sizes: Sizes) -> bool:
    return all(parsed(each).evaluate(sizes) for each in conditions)
