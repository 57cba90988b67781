"""Errors at sizes that were never tuned: how many draws exceed the limit predicted from other sizes.

Run by ``python benchmarks/sizes.py --errors``. Random choices of types of each bundled kernel run at several sizes, on
the draws of a search and on fresh ones. :mod:`mptune.wisdom.error_growth` predicts limits from the draws of the search
at some of the sizes. The result is the share of fresh draws above the limits at the other sizes: at most 5% with 95%
confidence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks import bench
from mptune.data import DataManager, Draw, Stream, rounded_inputs
from mptune.kernel import Kernel
from mptune.kernel.limits import widest
from mptune.measure.device import DeviceEvaluator
from mptune.results.unseen import CONFIDENCE
from mptune.space.configuration import Configuration, Value
from mptune.wisdom.error_growth import SizedError, fitted, rounded_at

__all__ = ["LADDERS", "breaks", "measured", "page"]

#: By kernel, the smallest and the largest value of each size, which grow together in geometric steps.
LADDERS: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {
    "axpy": {"n": (3000, 300_000)},
    "bessel": {"n": (1000, 100_000)},
    "black_scholes": {"n": (1000, 100_000)},
    "convolution2d": {"width": (48, 384), "height": (40, 320)},
    "coulombic": {"width": (24, 96), "height": (16, 64), "charges": (50, 800)},
    "gemm": {"M": (48, 384), "N": (48, 384), "K": (48, 384)},
    "inverse_kinematics": {"n": (1000, 100_000)},
    "kmeans": {"n": (1000, 100_000)},
    "lavamd": {"boxes": (2, 4), "particles": (12, 96)},
    "mode_product": {"rows": (4, 16), "bands": (16, 256), "filters": (4, 32), "columns": (40, 160)},
    "mriq": {"side": (5, 14), "samples": (50, 800)},
    "newton_raphson": {"n": (1000, 100_000)},
}
#: Kernels whose errors the model was developed on.
_MADE_WITH: Final = ("axpy", "coulombic", "gemm", "mriq")
_STEPS: Final = 6
#: Draws per size that limits are predicted from: of a search, and of a search with its verification.
_SEEN: Final = (3, 23)
#: Numbers of the sizes that limits are predicted from: one, two ends, and every other one.
_TUNED: Final = ((0,), (2,), (1, 3), (0, 2, 4), (1, 3, 5))
#: Seed of the fresh draws, which no search has.
_FRESH: Final = 1_000_003
#: Errors below this are noise of the reference.
_LEAST: Final = 1e-15

Errors = list[dict[str, Any]]


def measured(kernel: Kernel, types: int, draws: int, seed: int) -> Errors:
    """Return, by size and choice of types, the errors on draws of a search and on fresh ones."""
    ladder = [
        dict(zip(LADDERS[kernel.name], map(round, values), strict=True))
        for values in zip(*(np.geomspace(*ends, _STEPS) for ends in LADDERS[kernel.name].values()), strict=True)
    ]
    chosen = _chosen(kernel, ladder, types, np.random.default_rng(seed))
    found: Errors = []
    for sizes in ladder:
        entries: dict[Configuration, dict[str, list[float]]] = {c: {"seen": [], "fresh": []} for c in chosen}
        own = {name: {**kernel.sizes["default"], **sizes}[name] for name in kernel.extents}
        for kind, at, stream, count in (
            ("seen", seed, Stream.SEARCH, _SEEN[-1]),
            ("fresh", _FRESH, Stream.UNSEEN, draws),
        ):
            with DeviceEvaluator(kernel, kernel.resolve_sizes("default", sizes), "host", seed=at) as evaluator:
                trials = evaluator.run_on_draws(chosen, [Draw(stream, i) for i in range(count)]).trials
            for trial in trials:
                entries[trial.configuration][kind].append(trial.error if trial.is_valid else math.inf)
        data = DataManager(kernel, kernel.resolve_sizes("default", sizes), seed=seed)
        shares = rounded_inputs(kernel, data.sizes, seed, data.inputs)
        found += [
            {"sizes": own, "types": list(_types(kernel, c)), "rounded": rounded_at(shares, c), **errors}
            for c, errors in entries.items()
        ]
    return found


def _chosen(
    kernel: Kernel, ladder: Sequence[Mapping[str, int]], types: int, rng: np.random.Generator
) -> list[Configuration]:
    """Return configurations of different types, none of them the widest, that are valid at all sizes."""
    spaces = [kernel.search_space(kernel.resolve_sizes("default", sizes)) for sizes in ladder]
    known = {_types(kernel, widest(kernel, kernel.resolve_sizes("default", ladder[0]), {})[0])}
    found: list[Configuration] = []
    for index in spaces[0].sample(min(spaces[0].size, 200 * types), rng):
        configuration = spaces[0].configuration(int(index))
        if _types(kernel, configuration) not in known and all(configuration in space for space in spaces):
            known.add(_types(kernel, configuration))
            found.append(configuration)
    return found[:types]


def _types(kernel: Kernel, configuration: Configuration) -> tuple[Value, ...]:
    return configuration.subset(kernel.signature_names)


def breaks(errors: Errors) -> Iterator[dict[str, Any]]:
    """Yield the limit of each choice of types at each size, predicted from other sizes, and the draws above it."""
    of_types: dict[tuple[Value, ...], Errors] = {}
    for entry in errors:
        of_types.setdefault(tuple(entry["types"]), []).append(entry)
    for ladder in of_types.values():
        for tuned in _TUNED:
            for draws in _SEEN:
                points = [_point(ladder[i], draws) for i in tuned]
                growth = fitted(points, CONFIDENCE, ladder[0]["types"])
                for number, entry in enumerate(ladder):
                    limit = growth.limit(entry["sizes"])
                    fresh = np.array(entry["fresh"], dtype=np.float64)
                    if number in tuned or not _LEAST < limit < math.inf:
                        continue
                    yield {
                        "where": "below" if number < tuned[0] else "beyond" if number > tuned[-1] else "between",
                        "tuned": len(tuned),
                        "draws": len(fresh),
                        "broken": int(np.sum(~(fresh <= limit))),
                        "room": limit / max(float(np.median(fresh)), _LEAST),
                    }


def _point(entry: Mapping[str, Any], draws: int) -> SizedError:
    seen = [math.inf if error is None else error for error in entry["seen"][:draws]]
    mean = float(np.mean(seen))
    return SizedError(entry["sizes"], max(seen), draws, mean if math.isfinite(mean) else None, entry.get("rounded", {}))


def page(_: object, of_kernels: Mapping[str, Errors]) -> str:
    """Return the page: by kernel the share of fresh draws above their limit, and where."""
    found = {name: [*breaks(errors)] for name, errors in of_kernels.items()}
    rows = [_row(f"_{name}_" if name in _MADE_WITH else name, each) for name, each in found.items()]
    others = [one for name, each in found.items() if name not in _MADE_WITH for one in each]
    rows += [_row("the others together", others), _row("all", [one for each in found.values() for one in each])]
    where = ("below the tuned sizes", "between", "beyond", "worst of a tenth", "room")
    return (
        f"Share of fresh draws above the limit predicted with {CONFIDENCE:.0%} confidence, by the place of the size. "
        "Room is the median ratio of the limit to the median error. The model was developed on the kernels in italics."
        "\n\n" + bench.table(("kernel", "limits", "draws", "above", *where), rows)
    )


def _row(name: str, found: Sequence[Mapping[str, Any]]) -> tuple[object, ...]:
    draws, broken = Counter[str](), Counter[str]()
    for each in found:
        for where in (each["where"], "all"):
            draws[where] += each["draws"]
            broken[where] += each["broken"]
    shares = [f"{broken[w] / draws[w]:.1%}" if draws[w] else "-" for w in ("all", "below", "between", "beyond")]
    rates = sorted((each["broken"] / each["draws"] for each in found), reverse=True)
    tenth = f"{np.mean(rates[: max(1, len(rates) // 10)]):.0%}" if rates else "-"
    room = f"{np.median([each['room'] for each in found]):.1f}" if found else "-"
    return (name, len(found), f"{draws['all']:,}", *shares, tenth, room)
