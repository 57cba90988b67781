"""How much a search gains by starting from earlier runs on other devices.

    python benchmarks/transfer.py [--spaces ../shared/spaces] [--seeds 20] [--parts searches,adverse] [--resume]

Each recorded space is searched in turn, leaving its device out: the sources are a run of mptune's default strategy, of
220 trials, on each of the other devices its kernel was recorded on. ``adverse``: sources of other vendors alone, and
sources whose trials have each other's times. Distances do not depend on the machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import bench  # noqa: E402
from mptune.errors import MptuneError  # noqa: E402
from mptune.interop import read_run  # noqa: E402
from mptune.results.objective import Objective  # noqa: E402
from mptune.results.trial import Trial  # noqa: E402
from mptune.run import Run  # noqa: E402
from mptune.strategies import make  # noqa: E402
from mptune.strategies.base import Source  # noqa: E402

#: Trials of each source, evaluations of each search, and the first one that counts.
_SOURCE: Final = 220
_BUDGET: Final = 60
_FIRST: Final = 5
_WITHIN: Final = (0.05, 0.01)
#: The fastest of each source that are tried first.
_TOP: Final = 20
#: Stands for an evaluation after which nothing was within reach.
_NEVER: Final = 10_000
_COLD, _OURS, _FOREIGN, _SHUFFLED = "cold start", "mptune --from", "another vendor", "shuffled"
PARTS: Final = ("searches", "adverse")
TARGETS: Final = {"to 5%": 5, "to 1%": 12, "share": 0.08}


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Attributes:
        mean: distance of the best so far from the optimum, over the evaluations that count and after which any ran.
        within: after how many evaluations the best was so close, by :data:`_WITHIN`.
    """

    mean: float
    within: tuple[int, ...]

    @classmethod
    def of(cls, distances: NDArray[np.float64]) -> Found:
        """Return the summary of the distances after each evaluation, NaN while nothing ran."""
        reached = (np.flatnonzero(distances <= distance) for distance in _WITHIN)
        after = tuple(int(close[0]) + 1 if len(close) else _NEVER for close in reached)
        return cls(float(np.nanmean(distances[_FIRST - 1 :])), after)


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A kernel recorded on a device; the kernel is what the file's name begins with."""

    name: str
    path: Path
    recorded: Run

    @property
    def group(self) -> str:
        """The kernel."""
        return self.name.rpartition("-")[0]

    @property
    def vendor(self) -> str:
        """Who made the device."""
        return self.recorded.info.device.split(" ")[0]


@cache
def source(device: Device, seed: int, *, shuffled: bool = False) -> Source:
    """Return a run on a device; shuffled, its trials have each other's configurations."""
    if not shuffled:
        return Source(device.name, tuple(searched(device, [], seed, _SOURCE)))
    trials = source(device, seed).trials
    order = np.random.default_rng(seed).permutation(len(trials)).tolist()
    mixed = (
        dataclasses.replace(trial, configuration=trials[other].configuration)
        for trial, other in zip(trials, order, strict=True)
    )
    return Source(device.name, tuple(mixed))


def searched(
    device: Device, sources: Sequence[Source], seed: int, budget: int, first: Sequence[int] = ()
) -> list[Trial]:
    """Return the trials of a search with the default strategy, after some configurations that are tried first."""
    space, trials = device.recorded.space, device.recorded.indexed
    strategy = make("bayesian", space, Objective(), seed=seed, sources=sources)
    found, waiting = list[Trial](), list(first)
    while len(found) < budget and (waiting or (asked := strategy.ask())):
        index = waiting.pop(0) if waiting else space.index(asked[0])
        assert index is not None
        found.append(trials[index])
        strategy.tell(found[-1:])
    return found


def found_by(way: str, device: Device, others: Sequence[Device], seed: int) -> dict[str, Any]:
    """Return what a way of searching found."""
    sources = [source(each, seed, shuffled=way == _SHUFFLED) for each in others]
    first: list[int] = []
    if way.startswith("top"):
        ranked = [sorted((t for t in each.trials if t.is_valid), key=lambda t: t.time_ms)[:_TOP] for each in sources]
        turns = itertools.chain.from_iterable(itertools.zip_longest(*ranked))
        indices = [device.recorded.space.index(trial.configuration) for trial in turns if trial is not None]
        first = list(dict.fromkeys(index for index in indices if index is not None))
    known = [] if way == _COLD or way.startswith("top") else sources
    times = [t.time_ms if t.is_valid else math.nan for t in searched(device, known, seed, _BUDGET, first)]
    times += [math.nan] * (_BUDGET - len(times))
    optimum = min(trial.time_ms for trial in device.recorded.trials if trial.is_valid)
    found = Found.of(np.fmin.accumulate(times) / optimum - 1.0)
    return {"space": device.name, "way": way, "seed": seed, "mean": found.mean, "within": list(found.within)}


def devices_in(folder: Path) -> list[Device]:
    """Return the kernels that were recorded on several devices.

    Raises:
        MptuneError: there are none.
    """
    files = [path for path in sorted(folder.glob("*.json.gz")) if path.name.count(".") == 2]
    found = [Device(path.name.removesuffix(".json.gz"), path, read_run(path)) for path in files]
    groups = [device.group for device in found]
    several = [device for device in found if groups.count(device.group) > 1]
    if not several:
        raise MptuneError(f"{folder}: no kernel recorded on several devices (KERNEL-DEVICE.json.gz)")
    return several


def measure(options: argparse.Namespace, sheet: bench.Sheet) -> None:
    """Search every space in every way, seed by seed."""
    devices = [device for device in devices_in(options.spaces) if options.only in device.name]
    parts = bench.names_in(options.parts, PARTS, "part")
    for seed, device in itertools.product(range(options.seeds), devices):
        others = [other for other in devices if other.group == device.group and other is not device]
        ways = dict.fromkeys((_COLD, f"top {_TOP} first", _OURS), others) if "searches" in parts else {}
        if "adverse" in parts:
            foreign = [other for other in others if other.vendor != device.vendor]
            ways |= {_SHUFFLED: others} | ({_FOREIGN: foreign} if foreign else {})
        for way, some in ways.items():
            digests = {each.name: bench.digest_of([each.path]) for each in (device, *some)}
            measured: Callable[[], Any] = functools.partial(found_by, way, device, some, seed)
            sheet.add(f"{device.name}, {way}, {seed}", measured, spaces=digests, budget=[_SOURCE, _BUDGET])


def page(_: argparse.Namespace, results: Mapping[str, Any]) -> str:
    """Return the table of distances by space and way, and the targets."""
    spaces, ways = (list(dict.fromkeys(row[key] for row in results.values())) for key in ("space", "way"))
    by: dict[tuple[str, str], list[Found]] = {}
    for row in results.values():
        by.setdefault((row["space"], row["way"]), []).append(Found(row["mean"], tuple(row["within"])))
    seeds = max((len(runs) for runs in by.values()), default=0)
    rows = [[space, *(_cell([by[space, way]]) if (space, way) in by else "" for way in ways)] for space in spaces]
    of_way = {way: [by[space, way] for space in spaces if (space, way) in by] for way in ways}
    rows.append(["mean, medians of medians", *(_cell(runs) for runs in of_way.values())])
    parts = [
        f"Each device is searched from the runs, of {_SOURCE} trials of the default strategy, on the others. Mean "
        f"distance of the best so far from the optimum over evaluations {_FIRST} to {_BUDGET} and {seeds} seeds; in "
        "parentheses the medians of the evaluations to come within 5% and within 1%. Cold start: the default strategy "
        f"without sources. Top {_TOP} first: the fastest of each source in turn, then the default strategy. The "
        "constants of the strategy were chosen on these very spaces, with the first three seeds."
    ]
    if _COLD in of_way:
        of_cold = [[by[space, _COLD] for space in spaces if (space, way) in by] for way in ways]
        shares = {way: _mean(of_way[way]) / _mean(cold) for way, cold in zip(ways, of_cold, strict=True)}
        rows.append(["share of the cold start's distance", *(f"{share:.1%}" for share in shares.values())])
        if _OURS in shares:
            found = {"to 5%": _median(of_way[_OURS], 0), "to 1%": _median(of_way[_OURS], 1), "share": shares[_OURS]}
            shown = [
                (what, f"{v:.3g}", f"{TARGETS[what]:g}", bench.verdict(v <= TARGETS[what])) for what, v in found.items()
            ]
            parts.append(bench.table((_OURS, "found", "at most", "target"), shown))
    return "\n\n".join([parts[0], bench.table(("space", *ways), rows), *parts[1:]])


def _mean(runs: Sequence[Sequence[Found]]) -> float:
    return float(np.mean([np.mean([run.mean for run in of_space]) for of_space in runs]))


def _median(runs: Sequence[Sequence[Found]], which: int) -> float:
    return float(np.median([np.median([run.within[which] for run in of_space]) for of_space in runs]))


def _cell(runs: Sequence[Sequence[Found]]) -> str:
    counts = [_median(runs, which) for which in range(len(_WITHIN))]
    shown = [f"> {_BUDGET}" if count > _BUDGET else f"{count:g}" for count in counts]
    return f"{_mean(runs):.2%} ({', '.join(shown)})"


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = bench.parser(__doc__, bench.RESULTS / "transfer.md")
    made.add_argument(
        "--spaces", type=Path, default=ROOT.parent / "shared" / "spaces", help="folder of recorded spaces"
    )
    made.add_argument("--seeds", type=int, default=20, help="runs of each way on each space")
    made.add_argument("--only", default="", metavar="PART", help="spaces with this in their names")
    made.add_argument("--parts", default="searches", metavar="PART,...", help=", ".join(PARTS))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    return bench.main(parser(), "Starting from earlier runs", measure, page, arguments)


if __name__ == "__main__":
    sys.exit(main())
