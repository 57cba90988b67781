"""How much a search gains by starting from earlier runs on other devices.

    python benchmarks/transfer.py [--spaces ../shared/spaces] [--seeds 20]

Each recorded space is searched in turn, leaving its device out: the sources are a run of mptune's default strategy, of
220 trials, on each of the other devices its kernel was recorded on. Prints and writes ``results/transfer.md``.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import itertools
import math
import platform
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.coregional import Coregional  # noqa: E402
from mptune import __version__  # noqa: E402
from mptune.backends.processor import processor  # noqa: E402
from mptune.errors import MptuneError  # noqa: E402
from mptune.interop.recorded import RecordedSpace  # noqa: E402
from mptune.interop.spaces import read_space  # noqa: E402
from mptune.objective import Objective  # noqa: E402
from mptune.results import Trial  # noqa: E402
from mptune.strategies import make  # noqa: E402
from mptune.strategies.base import Source, Strategy  # noqa: E402

Array = NDArray[np.float64]

#: Trials of each source, evaluations of each search, and the first one that counts.
_SOURCE: Final = 220
_BUDGET: Final = 60
_FIRST: Final = 5
_WITHIN: Final = (0.05, 0.01)
#: The fastest of each source that are tried first.
_TOP: Final = 20
_NEVER: Final = 10_000


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found: distance of the best so far from the optimum, NaN while nothing ran, and seconds it took."""

    distances: Array
    seconds: float

    @property
    def mean(self) -> float:
        """Mean distance over the evaluations that count."""
        return float(np.nanmean(self.distances[_FIRST - 1 :]))

    def within(self, distance: float) -> int:
        """Return after how many evaluations the best was so close."""
        close = np.flatnonzero(self.distances <= distance)
        return int(close[0]) + 1 if len(close) else _NEVER


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A kernel recorded on a device."""

    name: str
    recorded: RecordedSpace

    @property
    def group(self) -> str:
        """The kernel: what the file's name begins with."""
        return self.name.rpartition("-")[0]

    @property
    def vendor(self) -> str:
        """Who made the device."""
        return self.recorded.device.split(" ")[0]

    @property
    def optimum(self) -> float:
        """The shortest time recorded."""
        return min(trial.time_ms for trial in self.recorded.trials.values() if trial.is_valid)


@cache
def source(device: Device, seed: int, *, shuffled: bool = False) -> Source:
    """Return a run on a device; shuffled, its trials have each other's configurations."""
    strategy = make("bayesian", device.recorded.space, Objective(), seed=seed)
    trials: list[Trial] = []
    while len(trials) < _SOURCE and (asked := strategy.ask()):
        trials += [_evaluated(device, c) for c in asked]
        strategy.tell(trials[-len(asked) :])
    if shuffled:
        order = np.random.default_rng(seed).permutation(len(trials))
        trials = [
            dataclasses.replace(trial, configuration=trials[other].configuration)
            for trial, other in zip(trials, order.tolist(), strict=True)
        ]
    return Source(device.name, tuple(trials))


def _evaluated(device: Device, configuration: object) -> Trial:
    index = device.recorded.space.index(configuration)  # type: ignore[arg-type]
    assert index is not None
    return device.recorded.trials[index]


def _searched(device: Device, ask: Callable[[], int | None], tell: Callable[[int, Trial], None], budget: int) -> Found:
    best, seconds, budget = math.nan, 0.0, budget or _BUDGET
    distances: list[float] = []
    optimum = device.optimum
    while len(distances) < budget:
        begun = time.process_time()
        index = ask()
        seconds += time.process_time() - begun
        if index is None:
            break
        trial = device.recorded.trials[index]
        best = float(np.fmin(best, trial.time_ms if trial.is_valid else math.nan))
        distances.append(best / optimum - 1.0)
        begun = time.process_time()
        tell(index, trial)
        seconds += time.process_time() - begun
    distances += [distances[-1]] * (budget - len(distances))
    return Found(np.array(distances), seconds)


def _by_strategy(device: Device, strategy: Strategy, budget: int, first: Sequence[int] = ()) -> Found:
    waiting = list(first)

    def ask() -> int | None:
        if waiting:
            return waiting.pop(0)
        asked = strategy.ask()
        return device.recorded.space.index(asked[0]) if asked else None

    return _searched(device, ask, lambda _, trial: strategy.tell([trial]), budget)


def cold(device: Device, _: Sequence[Source], seed: int, budget: int = 0) -> Found:
    """Search without sources."""
    return _by_strategy(device, make("bayesian", device.recorded.space, Objective(), seed=seed), budget)


def top(device: Device, sources: Sequence[Source], seed: int, budget: int = 0) -> Found:
    """Try the fastest of each source first, in turn, then search as without sources, knowing these."""
    ranked = [
        [
            index
            for trial in sorted((t for t in each.trials if t.is_valid), key=lambda t: t.time_ms)[:_TOP]
            if (index := device.recorded.space.index(trial.configuration)) is not None
        ]
        for each in sources
    ]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*ranked))
    first = list(dict.fromkeys(index for index in turns if index is not None))
    return _by_strategy(device, make("bayesian", device.recorded.space, Objective(), seed=seed), budget, first)


def multitask(device: Device, sources: Sequence[Source], seed: int, budget: int = 0) -> Found:
    """Search by a model of all tasks at once."""
    model = Coregional(device.recorded.space, sources, seed)
    return _searched(device, model.ask, model.tell, budget)


def ours(device: Device, sources: Sequence[Source], seed: int, budget: int = 0) -> Found:
    """Search as ``--from`` does."""
    strategy = make("bayesian", device.recorded.space, Objective(), seed=seed, sources=sources)
    return _by_strategy(device, strategy, budget)


#: By name: what searches.
WAYS: Final = {"cold start": cold, f"top {_TOP} first": top, "multi-task GP": multitask, "mptune --from": ours}
_COLD, _OURS = "cold start", "mptune --from"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 2 for wrong input."""
    given = _parser().parse_args(arguments)
    try:
        devices = _devices(given.spaces)
    except MptuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    parts = [_left_out(devices, given.seeds), _adverse(devices, given.seeds), _overhead(devices)]
    command = shlex.join(["python", "benchmarks/transfer.py", *(sys.argv[1:] if arguments is None else arguments)])
    about = (
        f"`{command}`, {datetime.datetime.now(datetime.UTC).date()}, {processor().name}, Python "
        f"{platform.python_version()}, mptune {__version__}, numpy {np.__version__}."
    )
    report = "\n\n".join(["# Starting from earlier runs", about, *filter(None, parts)]) + "\n"
    print(f"\n{report}")
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "transfer.md").write_text(report, encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="What a search gains by starting from runs on other devices.")
    parser.add_argument(
        "--spaces", type=Path, default=ROOT.parent / "shared" / "spaces", help="folder of recorded spaces"
    )
    parser.add_argument("--seeds", type=int, default=20, help="runs of each way on each space")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results", help="where the results go")
    return parser


def _devices(folder: Path) -> list[Device]:
    """Return the kernels that were recorded on several devices."""
    files = [path for path in sorted(folder.glob("*.json.gz")) if path.name.count(".") == 2]
    found = [Device(path.name.removesuffix(".json.gz"), read_space(path)) for path in files]
    groups = [device.group for device in found]
    several = [device for device in found if groups.count(device.group) > 1]
    if not several:
        raise MptuneError(f"{folder}: no kernel recorded on several devices (KERNEL-DEVICE.json.gz)")
    return several


def _others(device: Device, devices: Sequence[Device]) -> list[Device]:
    return [other for other in devices if other.group == device.group and other is not device]


def _left_out(devices: Sequence[Device], seeds: int) -> str:
    """Return the table of every device searched from the others."""
    rows = []
    found: dict[str, list[list[Found]]] = {way: [] for way in WAYS}
    for device in devices:
        others = _others(device, devices)
        for way, search in WAYS.items():
            runs = [search(device, [source(other, seed) for other in others], seed) for seed in range(seeds)]
            found[way].append(runs)
            print(f"{device.name}: {way}: {_cell(runs)}", file=sys.stderr, flush=True)
        rows.append([device.name, str(len(others)), *(_cell(found[way][-1]) for way in WAYS)])
    rows.append(["mean, medians of medians", "", *(_total(found[way]) for way in WAYS)])
    shares = {way: _mean(found[way]) / _mean(found[_COLD]) for way in WAYS}
    rows.append(["share of the cold start's distance", "", *(f"{share:.1%}" for share in shares.values())])
    targets = (
        ("evaluations to 5%", f"{_median(found[_OURS], _WITHIN[0]):g}", "5"),
        ("evaluations to 1%", f"{_median(found[_OURS], _WITHIN[1]):g}", "12"),
        ("distance, share of the cold start's", f"{shares[_OURS]:.1%}", "8%"),
    )
    text = (
        f"Each device is searched from the runs, of {_SOURCE} trials of the default strategy, on the others. Mean "
        f"distance of the best so far from the optimum over evaluations {_FIRST} to {_BUDGET} and {seeds} seeds (as "
        "long as nothing ran, left out); in parentheses the medians of the evaluations to come within 5% and within "
        f"1%. Cold start: the default strategy without sources. Top {_TOP} first: the fastest of each source in turn, "
        "then the default strategy. Multi-task GP: `benchmarks/coregional.py`, a model like GPTune's."
    )
    return "\n\n".join(
        (text, _table(("space", "sources", *WAYS), rows), _table(("mptune --from", "found", "at most"), targets))
    )


def _adverse(devices: Sequence[Device], seeds: int) -> str:
    """Return the table of sources that are of another vendor, or nonsense."""
    rows = []
    for device in devices:
        others = _others(device, devices)
        foreign = [other for other in others if other.vendor != device.vendor]
        cells, without = [], [cold(device, (), seed) for seed in range(seeds)]
        for few, shuffled in ((foreign, False), (others, True)):
            if not few:
                cells.append("")
                continue
            runs = [
                ours(device, [source(each, seed, shuffled=shuffled) for each in few], seed) for seed in range(seeds)
            ]
            cells.append(f"{_cell(runs)}, {_mean([runs]) / _mean([without]):.1%} of cold")
        rows.append([device.name, _cell(without), *cells])
        print("; ".join(rows[-1]), file=sys.stderr, flush=True)
    text = "Adverse sources: only devices of another vendor, and all others with the times of their trials shuffled."
    return f"## Adverse sources\n\n{text}\n\n" + _table(("space", _COLD, "another vendor", "shuffled"), rows)


def _overhead(devices: Sequence[Device]) -> str:
    """Return what four sources cost, on the kernel recorded on most devices."""
    groups = [device.group for device in devices]
    device = max(devices, key=lambda each: groups.count(each.group))
    few = itertools.islice(itertools.cycle(_others(device, devices)), 4)
    sources = [source(each, seed) for seed, each in enumerate(few)]
    budget = min(_SOURCE, device.recorded.space.size)
    rows = [
        (way, *(f"{1e3 * search(device, sources, 0, n).seconds / n:.1f}" for n in (min(_BUDGET, budget), budget)))
        for way, search in ((_COLD, cold), (_OURS, ours))
    ]
    text = f"Processor time in the strategy per evaluation, in ms, with four sources, on {device.name}."
    columns = ("", f"{min(_BUDGET, budget)} evaluations", f"{budget} evaluations")
    return f"## Overhead\n\n{text}\n\n" + _table(columns, rows)


def _mean(runs: Sequence[Sequence[Found]]) -> float:
    return float(np.mean([np.mean([run.mean for run in of_space]) for of_space in runs]))


def _median(runs: Sequence[Sequence[Found]], distance: float) -> float:
    return float(np.median([np.median([run.within(distance) for run in of_space]) for of_space in runs]))


def _count(evaluations: float) -> str:
    return f"> {_BUDGET}" if evaluations > _BUDGET else f"{evaluations:g}"


def _cell(runs: Sequence[Found]) -> str:
    five, one = (_count(_median([runs], distance)) for distance in _WITHIN)
    return f"{_mean([runs]):.2%} ({five}, {one})"


def _total(runs: Sequence[Sequence[Found]]) -> str:
    five, one = (_count(_median(runs, distance)) for distance in _WITHIN)
    return f"{_mean(runs):.2%} ({five}, {one})"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
