"""Writing all variants of a kernel that wisdom chooses among, and a header that chooses as :class:`Chooser` does."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from mptune import __version__
from mptune.backends.base import options_of
from mptune.cpp.build import Build, build_of
from mptune.cpp.prelude import prelude
from mptune.emit.common import MARK, host_command, write_files
from mptune.emit.sizes import free_sizes, opened, said_in_cpp
from mptune.emit.text import fill, identifier
from mptune.emit.variants import Launch, variant_of
from mptune.errors import KernelError, WisdomError
from mptune.kernel import Kernel, Sizes, Tunable
from mptune.kernel.tunable import parsed
from mptune.results.unseen import CONFIDENCE
from mptune.run import json_document
from mptune.space.configuration import Configuration
from mptune.wisdom import LOSS_BY_DISTANCE, Candidate, Chooser, KernelWisdom, Wisdom, budget_of, kernel_of
from mptune.wisdom.error_growth import LOG_REACH

__all__ = ["Dispatch", "emit_dispatch", "single_kernel_of"]

#: At so many sizes it is looked what is chosen: only that is compiled.
_SAMPLES: Final = 3000
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

    Raises:
        WisdomError: it is of another kernel, or of several.
        KernelError: nothing in it is valid.
        MptuneError: a file of a name exists and was not emitted, or cannot be written.
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
    launches: dict[tuple[Any, ...], Launch] = {}
    for chooser in choosers:
        for launch in _chosen(chooser, given):
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
    variants = [
        {**variant_of(launch, f"{name}_{number}"), "is_wide": _is_wide(found, launch)}
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
        "devices": [_tables(chooser, ordered) for chooser in choosers],
        "host_command": host_command(build, "", of_user["host"]),
        "given": of_user,
        "metric": known[0].metric,
        "loss_by_distance": LOSS_BY_DISTANCE,
        "reach": _number(LOG_REACH),
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
    """Return the kernel that is meant, as of :func:`kernel_of`; an application is refused, if need be undefined.

    Raises:
        WisdomError: it is of another kernel, or of several kernels, metrics, or flags on one device.
        KernelError: the definition is not found, or it is of an application.
    """
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
    """Return the user's compiler flags for each backend: those of what is known of it, else what all devices share.

    Raises:
        WisdomError: devices of one backend have others.
    """
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


# -- what is compiled ----------------------------------------------------------------------------


def _chosen(chooser: Chooser, given: Sequence[Mapping[str, int]]) -> list[Launch]:
    """Return what is chosen at the tuned sizes, at others in reach, and as the baseline.

    At the tuned sizes and those that are given, all that need be is written into the source, which compilers make more
    of. Elsewhere it is what serves any sizes.
    """
    kernel = chooser.kernel
    assert isinstance(kernel, Kernel)
    tuned = [kernel.resolve_sizes("default", {**record.sizes, **chooser.form}) for record in chooser.known.tuned]
    at = [*tuned, *map(Sizes, given)]
    sources = _Sources(kernel, at)
    elsewhere = Chooser(chooser.known, kernel, {}, chooser.budget, chooser.confidence, is_own=False)
    own = {candidate.configuration for candidate in chooser.candidates}
    varied = sorted(frozenset[str]().union(*map(sources.variable, own)))
    sampled = [kernel.resolve_sizes("default", sizes) for sizes in _sampled(chooser, at, varied)]
    found: list[Launch] = []
    for sizes, is_written in itertools.chain(((sizes, True) for sizes in at), ((sizes, False) for sizes in sampled)):
        is_there = functools.partial(sources.serve, sizes, is_written)
        for choose in (chooser.choose, elsewhere.choose, chooser.widest):
            with contextlib.suppress(KernelError):  # not even a baseline is valid there, and so nothing is chosen
                configuration = choose(sizes, is_there).configuration
                launch = sources.at(configuration, sizes, is_written) if configuration in own else None
                found += [] if launch is None or launch in found else [launch]
    return found


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

    def serve(self, sizes: Sizes, is_written: bool, candidate: Candidate) -> bool:
        """Whether there is a source of a candidate for some sizes."""
        return self.at(candidate.configuration, sizes, is_written) is not None

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


def _sampled(chooser: Chooser, at: Sequence[Mapping[str, int]], free: Sequence[str]) -> Iterator[dict[str, int]]:
    """Yield sizes all over the reach of what was tuned; those that are written into sources as they are there."""
    if not free:
        return
    rng = np.random.default_rng(0)
    low, high = (
        {name: find(record.sizes[name] for record in chooser.known.tuned) for name in free} for find in (min, max)
    )
    written = {tuple((name, size) for name, size in sizes.items() if name not in free): None for sizes in at}
    for values in written:
        for number in range(_SAMPLES // len(written) + 1):
            share = rng.random(len(free)) if len(free) > 1 else [number / (_SAMPLES // len(written) or 1)]
            place = {
                name: max(1, round(low[name] / 5 * (25 * high[name] / low[name]) ** part))
                for name, part in zip(free, share, strict=True)
            }
            yield {**dict(values), **place}


def _is_wide(kernel: Kernel, launch: Launch) -> bool:
    return launch.configuration.is_among(kernel.baseline_values())


# -- what it is chosen by ------------------------------------------------------------------------


def _tables(chooser: Chooser, launches: Sequence[Launch]) -> dict[str, Any]:
    """Return what the header knows of a device: numbers alone, as texts of C++."""
    known = chooser.known
    numbers: dict[Configuration, list[int]] = {}
    for number, launch in enumerate(launches):
        numbers.setdefault(launch.configuration, []).append(number)
    kept = [each for each in chooser.candidates if each.configuration in numbers]
    signatures = [*dict.fromkeys(each.signature for each in kept)]
    of_types = {each.signature: each.of_types for each in kept}
    return {
        "backend": known.backend,
        "device": known.device,
        "architecture": known.architecture,
        "is_gpu": known.backend in _GPUS,
        "tuned": [*map(list, chooser.tuned)],
        "places": [[_number(part) for part in place] for place in chooser.places],
        "names": [identifier(name) for name in chooser.names],
        "signatures": [
            {
                "losses": _losses(of_types[signature]),
                "growth": [_growth(chooser, signature, name) for name in chooser.budget],
            }
            for signature in signatures
        ],
        "candidates": [_candidate(chooser, each, signatures.index(each.signature), numbers) for each in kept],
        "limits": [_number(limit) for limit in chooser.budget.values()],
    }


def _candidate(
    chooser: Chooser, candidate: Candidate, signature: int, numbers: Mapping[Configuration, Sequence[int]]
) -> dict[str, Any]:
    keeps = all(candidate.errors.get(name, math.inf) <= limit for name, limit in chooser.budget.items())
    return {
        "variants": numbers[candidate.configuration],
        "signature": signature,
        "losses": _losses(candidate.losses),
        "sure_at": sorted(candidate.sure_at),
        "is_wide": candidate.is_wide,
        "keeps": keeps,
        "error": _number(candidate.errors.get("error", math.inf)),
    }


def _losses(losses: Mapping[int, float]) -> list[tuple[int, str]]:
    return [(number, _number(loss)) for number, loss in sorted(losses.items())]


def _growth(chooser: Chooser, signature: Any, name: str) -> dict[str, Any] | None:
    growth = chooser.growth.get((signature, name))
    if growth is None:
        return None
    rows = zip(growth.log_sizes, growth.log_worst, growth.log_limits, growth.log_rooms, growth.log_shifts, strict=True)
    exact, kinder = growth.sizes.tolist(), growth.log_kinder.tolist()
    return {
        "points": [
            (sizes, [*map(_number, place)], [*map(_number, numbers)], [*map(_number, more)])
            for sizes, (place, *numbers), more in zip(exact, rows, kinder, strict=True)
        ],
        "slopes": [[*map(_number, way)] for way in growth.slopes.tolist()],
        "beyond": [[*map(_number, way)] for way in growth.beyond.tolist()],
        "tops": [*map(_number, growth.tops)],
        "bottoms": [*map(_number, growth.bottoms)],
        "lift": _number(growth.lift),
        "below": _number(growth.below),
    }


def _number(value: float) -> str:
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(float(value))
