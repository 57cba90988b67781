"""Writing the variants of a kernel in wisdom, and a header that chooses among them by device and sizes.

The header holds the decisions of :class:`~mptune.wisdom.Chooser` as a table: for each tuned size and each cell the
usable variants, the fastest first.
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
    """The written variants and files."""

    kernel: str  #: name of the kernel
    #: the configurations, each with the sizes that are fixed in its source
    variants: tuple[tuple[Configuration, Mapping[str, int]], ...]
    budget: Mapping[str, float]
    fixed: tuple[str, ...]  #: the sizes that are fixed in all sources: no variant has other values than theirs
    folder: Path
    files: tuple[str, ...]  #: names of the files

    def to_json(self) -> dict[str, Any]:
        """Return the document that ``mptune emit --json`` prints."""
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
    """Write the variants of a kernel in wisdom, and a header that chooses by device and sizes.

    Args:
        wisdom: the wisdom.
        folder: the folder, created if missing; emitted files in it are replaced.
        kernel: the definition, unless it is a bundled kernel's; or the name of one of several.
        max_error: the error limit; by default the smallest of the runs.
        confidence: probability that errors keep it.
        metric: the error metric; needed if the wisdom has several.
        sizes: further sizes to compile for, where sizes are fixed in the source.

    Raises:
        WisdomError: the wisdom is of another kernel, several forms, or different compiler flags.
        KernelError: the wisdom is of an application, or no configuration is valid at its sizes.
    """
    found, known = single_kernel_of(wisdom, kernel, metric)
    budget = budget_of(known, max_error)
    # Configurations that were measured on a device keep its limits.
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
        # Sources with more fixed sizes are faster, so they are tried first.
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
    """Return the kernel of wisdom as :func:`kernel_of` does; an application is refused, even without its definition."""
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
    """Return the user's compiler flags for each backend, by its own wisdom or that of all devices."""
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


# -- the table of a device -------------------------------------------------------------------------


class _Table:
    """The decisions of a device by size.

    The tuned and the given sizes have sources with fixed sizes, which compilers optimise better. Other sizes have
    sources for any sizes.

    Attributes:
        launches: the kernels to compile.
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
        # By size, the number and the first value of each cell. A fixed size has only its known values.
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
        self._exact = {place: self._order(sizes, chooser.decide(sizes), is_written=True) for place, sizes in at.items()}

    def described(self, launches: Sequence[Launch]) -> dict[str, Any]:
        """Return the table of the header, with the numbers of the compiled kernels."""
        known = self._chooser.known
        numbers: dict[Configuration, list[int]] = {}
        for number, launch in enumerate(launches):
            numbers.setdefault(launch.configuration, []).append(number)
        # Each order once, one after the other, ended by the number of variants; cells refer to its place.
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
    """Sources of configurations, each for as many sizes as possible.

    Args:
        kernel: the definition.
        at: sizes that may be fixed in sources.
    """

    def __init__(self, kernel: Kernel, at: Sequence[Sizes]) -> None:
        self._kernel = kernel
        self._at = at
        self._free: dict[Configuration, frozenset[str]] = {}
        self._written: dict[tuple[Configuration, frozenset[tuple[str, int]]], Launch] = {}
        self._opened: dict[Configuration, list[Launch]] = {}
        #: Conditions of templates without a source for any sizes.
        self._refused: dict[Configuration, list[Sequence[str]]] = {}

    def variable(self, configuration: Configuration) -> frozenset[str]:
        """Return the sizes that may differ from the known ones."""
        found = [self._open(configuration, sizes) for sizes in self._at]
        return self._free_of(configuration).union(*(launch.free for launch in found if launch is not None))

    def at(self, configuration: Configuration, sizes: Sizes, is_written: bool) -> Launch | None:
        """Return the source for some sizes; None if it would need fixed sizes that are not known ones."""
        free = self._free_of(configuration)
        if is_written or len(free) == len(sizes):
            launch = Launch(self._kernel, configuration, sizes, free)
            return self._written.setdefault((configuration, frozenset(launch.fixed.items())), launch)
        known = self._opened.setdefault(configuration, [])
        for launch in known:
            holding = launch.opened.conditions if launch.opened else ()
            if launch.fixed.items() <= sizes.items() and _hold(holding, sizes):
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


def _hold(conditions: Iterable[str], sizes: Sizes) -> bool:
    return all(parsed(each).evaluate(sizes) for each in conditions)
