"""How much a search gains by starting from earlier runs on other devices.

    python benchmarks/transfer.py [--spaces ../shared/spaces] [--seeds 20] [--resume] [--limit 240]
    python benchmarks/transfer.py --resume --parts overhead

Each recorded space is searched in turn, leaving its device out: the sources are a run of mptune's default strategy, of
220 trials, on each of the other devices its kernel was recorded on. Prints and writes ``results/transfer.md``, of all
seeds that every space has been searched with.

What is found is kept beside the page as JSON after each space and seed. ``--limit`` starts nothing new after so many
seconds, and ``--resume`` goes on from there: 20 seeds take some 25 minutes on one core. What is found is the same on
any machine, the part ``overhead`` is not: it needs a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import itertools
import json
import math
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.coregional import Coregional  # noqa: E402
from mptune import __version__  # noqa: E402
from mptune.backends.processor import processor  # noqa: E402
from mptune.errors import MptuneError, UnknownNameError  # noqa: E402
from mptune.interop import read_run  # noqa: E402
from mptune.results.objective import Objective  # noqa: E402
from mptune.results.trial import Trial  # noqa: E402
from mptune.run import Run  # noqa: E402
from mptune.strategies import make  # noqa: E402
from mptune.strategies.base import Source, Strategy  # noqa: E402
from mptune.strategies.model_based import transfer as model  # noqa: E402

Array = NDArray[np.float64]

#: Trials of each source, evaluations of each search, and the first one that counts.
_SOURCE: Final = 220
_BUDGET: Final = 60
_FIRST: Final = 5
_WITHIN: Final = (0.05, 0.01)
#: The fastest of each source that are tried first.
_TOP: Final = 20
_NEVER: Final = 10_000


#: Seeds that the constants of the strategy were chosen with, on these very spaces.
_CHOSEN_WITH: Final = 3
#: By name: other constants of :mod:`mptune.strategies.model_based.transfer`, half and twice what they are.
OTHER_CONSTANTS: Final = {
    f"{name[1:].lower()} {value:g}": {name: value}
    for name in ("_BEND", "_WEIGHT", "_FASTEST")
    for value in (type(getattr(model, name))(getattr(model, name) * factor) for factor in (0.5, 2))
}


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Attributes:
        mean: distance of the best so far from the optimum, over the evaluations that count and after which any ran.
        within: after how many evaluations the best was so close, by :data:`_WITHIN`.
        seconds: what the strategy took, 0 where that is not kept.
    """

    mean: float
    within: tuple[int, ...]
    seconds: float = 0.0

    @classmethod
    def of(cls, distances: Array, seconds: float) -> Found:
        """Return the summary of the distances after each evaluation, NaN while nothing ran."""
        reached = (np.flatnonzero(distances <= distance) for distance in _WITHIN)
        after = tuple(int(close[0]) + 1 if len(close) else _NEVER for close in reached)
        return cls(float(np.nanmean(distances[_FIRST - 1 :])), after, seconds)

    def to_json(self) -> list[float]:
        """Return what is kept."""
        return [float(f"{self.mean:.6g}"), *self.within]


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A kernel recorded on a device."""

    name: str
    recorded: Run

    @property
    def group(self) -> str:
        """The kernel: what the file's name begins with."""
        return self.name.rpartition("-")[0]

    @property
    def vendor(self) -> str:
        """Who made the device."""
        return self.recorded.info.device.split(" ")[0]

    @property
    def optimum(self) -> float:
        """The shortest time recorded."""
        return min(trial.time_ms for trial in self.recorded.trials if trial.is_valid)


@cache
def source(device: Device, seed: int, *, shuffled: bool = False) -> Source:
    """Return a run on a device; shuffled, its trials have each other's configurations."""
    if shuffled:
        trials = source(device, seed).trials
        order = np.random.default_rng(seed).permutation(len(trials)).tolist()
        mixed = (
            dataclasses.replace(trial, configuration=trials[other].configuration)
            for trial, other in zip(trials, order, strict=True)
        )
        return Source(device.name, tuple(mixed))
    strategy = make("bayesian", device.recorded.space, Objective(), seed=seed)
    found: list[Trial] = []
    while len(found) < _SOURCE and (asked := strategy.ask()):
        found += [_evaluated(device, c) for c in asked]
        strategy.tell(found[-len(asked) :])
    return Source(device.name, tuple(found))


def _evaluated(device: Device, configuration: object) -> Trial:
    index = device.recorded.space.index(configuration)  # type: ignore[arg-type]
    assert index is not None
    return device.recorded.indexed[index]


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
        trial = device.recorded.indexed[index]
        best = float(np.fmin(best, trial.time_ms if trial.is_valid else math.nan))
        distances.append(best / optimum - 1.0)
        begun = time.process_time()
        tell(index, trial)
        seconds += time.process_time() - begun
    distances += [distances[-1]] * (budget - len(distances))
    return Found.of(np.array(distances), seconds)


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


@contextlib.contextmanager
def _constants(values: Mapping[str, float]) -> Iterator[None]:
    """Give the strategy other constants for a while."""
    before = {name: getattr(model, name) for name in values}
    try:
        for name, value in values.items():
            setattr(model, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(model, name, value)


#: By name: what searches.
WAYS: Final = {"cold start": cold, f"top {_TOP} first": top, "multi-task GP": multitask, "mptune --from": ours}
_COLD, _OURS, _SLOW = "cold start", "mptune --from", "multi-task GP"
_FOREIGN, _SHUFFLED = "another vendor", "shuffled"
PARTS: Final = ("searches", "multitask", "constants", "overhead")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 2 for wrong input."""
    given = _parser().parse_args(arguments)
    page = given.output / "transfer.md"
    try:
        devices = _devices(given.spaces)
        parts = given.parts.split(",")
        for part in parts:
            if part not in PARTS:
                raise UnknownNameError("part", part, PARTS)
        document = _begun(page.with_suffix(".json"), devices, resume=given.resume)
    except MptuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    given.output.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + given.limit
    for piece in _pieces(document["found"], devices, parts, given.seeds):
        if time.monotonic() >= until:
            print("not all is done: go on with --resume", file=sys.stderr)
            break
        piece()
        _save(document, devices, page)
    else:
        if "overhead" in parts:
            document["overhead"] = _overhead(devices)
    print(f"\n{_save(document, devices, page)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="What a search gains by starting from runs on other devices.")
    parser.add_argument(
        "--spaces", type=Path, default=ROOT.parent / "shared" / "spaces", help="folder of recorded spaces"
    )
    parser.add_argument("--seeds", type=int, default=20, help="runs of each way on each space")
    parser.add_argument("--parts", default=",".join(PARTS), metavar="PART,...", help=", ".join(PARTS))
    parser.add_argument("--limit", type=float, default=math.inf, help="start nothing new after so many seconds")
    parser.add_argument("--resume", action="store_true", help="keep what the figures beside the page have")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results", help="where the results go")
    return parser


def _devices(folder: Path) -> list[Device]:
    """Return the kernels that were recorded on several devices."""
    files = [path for path in sorted(folder.glob("*.json.gz")) if path.name.count(".") == 2]
    found = [Device(path.name.removesuffix(".json.gz"), read_run(path)) for path in files]
    groups = [device.group for device in found]
    several = [device for device in found if groups.count(device.group) > 1]
    if not several:
        raise MptuneError(f"{folder}: no kernel recorded on several devices (KERNEL-DEVICE.json.gz)")
    return several


def _begun(kept: Path, devices: Sequence[Device], *, resume: bool) -> dict[str, Any]:
    """Return what is to be filled: by device and way, what each seed from 0 on found, and what four sources cost."""
    settings = {"source": _SOURCE, "budget": _BUDGET, "spaces": [device.name for device in devices]}
    document: dict[str, Any] = {"settings": settings, "overhead": {}, "found": {}}
    if resume and kept.exists():
        document = json.loads(kept.read_text(encoding="utf-8"))
        if document["settings"] != settings:
            raise MptuneError(f"{kept} has other settings: leave out --resume, or give another --output")
    return document


def _save(document: Mapping[str, Any], devices: Sequence[Device], page: Path) -> str:
    """Write the page and the figures beside it, a line for each device and way; return the page."""
    rows = [f"{json.dumps(name)}: {json.dumps(runs)}" for name, runs in document["found"].items()]
    others = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in document.items() if name != "found"]
    others.append('"found": {\n' + ",\n".join(rows) + "\n}")
    page.with_suffix(".json").write_text("{\n" + ",\n".join(others) + "\n}\n", encoding="utf-8")
    report = _report(document, devices)
    page.write_text(report, encoding="utf-8")
    return report


def _pieces(
    found: dict[str, list[list[float]]], devices: Sequence[Device], parts: Sequence[str], seeds: int
) -> Iterator[Callable[[], None]]:
    """Yield what is not done yet."""

    def piece(device: Device, way: str, search: Callable[[int], Found], last: int) -> Iterator[Callable[[], None]]:
        runs = found.setdefault(_key(device, way), [])
        while len(runs) < last:
            yield lambda: runs.append(search(len(runs)).to_json())

    for seed, device in itertools.product(range(seeds), devices):
        for way, search in _searches(device, devices).items():
            if ("multitask" if way == _SLOW else "searches") in parts:
                yield from piece(device, way, search, seed + 1)
    kernels = {device.group for device in devices}
    if "constants" not in parts or seeds <= _CHOSEN_WITH or len(kernels) < 2:
        return
    for device, (name, values) in itertools.product(devices, OTHER_CONSTANTS.items()):
        yield from piece(device, name, _with_constants(device, devices, values), min(seeds, _CHOSEN_WITH))
    for device in devices:
        name = _chosen_without(device.group, found, devices)
        if name != _OURS:
            yield from piece(device, name, _with_constants(device, devices, OTHER_CONSTANTS[name]), seeds)


def _searches(device: Device, devices: Sequence[Device]) -> dict[str, Callable[[int], Found]]:
    """Return what searches a device, by name, given a seed."""
    others = _others(device, devices)
    foreign = [other for other in others if other.vendor != device.vendor]

    def searching(search: Callable[..., Found], few: Sequence[Device], *, shuffled: bool = False) -> Any:
        return lambda seed: search(device, [source(each, seed, shuffled=shuffled) for each in few], seed)

    ways = {way: searching(search, others) for way, search in WAYS.items()}
    if foreign:
        ways[_FOREIGN] = searching(ours, foreign)
    return ways | {_SHUFFLED: searching(ours, others, shuffled=True)}


def _with_constants(device: Device, devices: Sequence[Device], values: Mapping[str, float]) -> Callable[[int], Found]:
    def search(seed: int) -> Found:
        with _constants(values):
            return _searches(device, devices)[_OURS](seed)

    return search


def _key(device: Device, way: str) -> str:
    return f"{device.name}: {way}"


def _others(device: Device, devices: Sequence[Device]) -> list[Device]:
    return [other for other in devices if other.group == device.group and other is not device]


class _Runs:
    """What was found, by device and way."""

    def __init__(self, document: Mapping[str, Any], devices: Sequence[Device]) -> None:
        self.found: Mapping[str, list[list[float]]] = document["found"]
        self.devices = devices

    def seeds(self, way: str) -> int:
        """Return how many seeds every device has been searched with in a way."""
        return min(len(self.found.get(_key(device, way), ())) for device in self.devices)

    def of(self, device: Device, way: str, seeds: range) -> list[Found]:
        """Return what was found on a device in a way, by seed."""
        runs = self.found.get(_key(device, way), ())
        return [Found(runs[seed][0], tuple(map(int, runs[seed][1:]))) for seed in seeds if seed < len(runs)]

    def all(self, way: str, seeds: range) -> list[list[Found]]:
        """Return the same of every device."""
        return [self.of(device, way, seeds) for device in self.devices]


def _report(document: Mapping[str, Any], devices: Sequence[Device]) -> str:
    runs = _Runs(document, devices)
    about = (
        "`python benchmarks/transfer.py --resume --limit 240`, repeated until all is done; "
        f"{datetime.datetime.now(datetime.UTC).date()}, Python {platform.python_version()}, mptune {__version__}, "
        f"numpy {np.__version__}. Distances do not depend on the machine."
    )
    seeds = min(runs.seeds(way) for way in (*(way for way in WAYS if way != _SLOW), _SHUFFLED))
    parts = [_left_out(runs, seeds), _seeds_apart(runs, seeds), _adverse(runs, seeds)] if seeds else []
    parts += [_other_constants(runs, seeds), _cost(document["overhead"])]
    return "\n\n".join(["# Starting from earlier runs", about, *filter(None, parts)]) + "\n"


def _left_out(runs: _Runs, seeds: int) -> str:
    """Return the table of every device searched from the others."""
    by_way = {way: range(min(seeds, runs.seeds(way))) for way in WAYS}
    by_way = {way: few for way, few in by_way.items() if few}
    rows = [
        [
            device.name,
            str(len(_others(device, runs.devices))),
            *(_cell(runs.of(device, w, s)) for w, s in by_way.items()),
        ]
        for device in runs.devices
    ]
    rows.append(["mean, medians of medians", "", *(_total(runs.all(way, few)) for way, few in by_way.items())])
    shares = {way: _mean(runs.all(way, few)) / _mean(runs.all(_COLD, few)) for way, few in by_way.items()}
    rows.append(["share of the cold start's distance", "", *(f"{share:.1%}" for share in shares.values())])
    found = runs.all(_OURS, range(seeds))
    targets = (
        ("evaluations to 5%", f"{_median(found, 0):g}", "5"),
        ("evaluations to 1%", f"{_median(found, 1):g}", "12"),
        ("distance, share of the cold start's", f"{shares[_OURS]:.1%}", "8%"),
    )
    text = (
        f"Each device is searched from the runs, of {_SOURCE} trials of the default strategy, on the others. Mean "
        f"distance of the best so far from the optimum over evaluations {_FIRST} to {_BUDGET} and {seeds} seeds (as "
        "long as nothing ran, left out); in parentheses the medians of the evaluations to come within 5% and within "
        f"1%. Cold start: the default strategy without sources. Top {_TOP} first: the fastest of each source in turn, "
        "then the default strategy. Multi-task GP: `benchmarks/coregional.py`, a model like GPTune's."
    )
    titles = [way if len(few) == seeds else f"{way} ({len(few)} seeds)" for way, few in by_way.items()]
    return "\n\n".join(
        (text, _table(("space", "sources", *titles), rows), _table(("mptune --from", "found", "at most"), targets))
    )


def _seeds_apart(runs: _Runs, seeds: int) -> str:
    """Return the table of seeds that constants were chosen with, and of those they were not chosen with."""
    if seeds <= _CHOSEN_WITH:
        return ""
    rows = []
    for few in (range(_CHOSEN_WITH), range(_CHOSEN_WITH, seeds)):
        cold_start, found = runs.all(_COLD, few), runs.all(_OURS, few)
        share = _mean(found) / _mean(cold_start)
        rows.append([f"{few[0]} to {few[-1]}", _total(cold_start), _total(found), f"{share:.1%}"])
    text = (
        "The constants of the strategy were chosen on these very spaces, with the first three seeds. So these figures "
        "say how it does on kernels it was adjusted to. Seeds only change where source and search begin; the other "
        "ones are new in that respect alone."
    )
    return f"## Seeds apart\n\n{text}\n\n" + _table(("seeds", _COLD, _OURS, "share of the cold start's"), rows)


def _adverse(runs: _Runs, seeds: int) -> str:
    """Return the table of sources that are of another vendor, or nonsense."""
    rows, few = [], range(seeds)
    for device in runs.devices:
        without = runs.of(device, _COLD, few)
        cells = []
        for way in (_FOREIGN, _SHUFFLED):
            found = runs.of(device, way, few)
            cells.append(f"{_cell(found)}, {_mean([found]) / _mean([without]):.1%} of cold" if found else "")
        rows.append([device.name, _cell(without), *cells])
    text = "Adverse sources: only devices of another vendor, and all others with the times of their trials shuffled."
    return f"## Adverse sources\n\n{text}\n\n" + _table(("space", _COLD, _FOREIGN, _SHUFFLED), rows)


def _chosen_without(kernel: str, found: Mapping[str, list[list[float]]], devices: Sequence[Device]) -> str:
    """Return the constants that do best on all kernels but one, with the seeds that are there to choose with."""
    others = [device for device in devices if device.group != kernel]

    def distance(way: str) -> float:
        return float(np.mean([run[0] for device in others for run in found[_key(device, way)][:_CHOSEN_WITH]]))

    return min((_OURS, *OTHER_CONSTANTS), key=distance)


def _other_constants(runs: _Runs, seeds: int) -> str:
    """Return the table of constants chosen anew without the kernel that is searched."""
    if seeds <= _CHOSEN_WITH or any(runs.seeds(name) < _CHOSEN_WITH for name in OTHER_CONSTANTS):
        return ""
    few, rows = range(_CHOSEN_WITH, seeds), []
    found: dict[str, list[list[Found]]] = {way: [] for way in (_COLD, _OURS, "chosen")}
    for kernel in dict.fromkeys(device.group for device in runs.devices):
        chosen = _chosen_without(kernel, runs.found, runs.devices)
        own = [device for device in runs.devices if device.group == kernel]
        each = {way: [runs.of(device, chosen if way == "chosen" else way, few) for device in own] for way in found}
        if any(len(of_device) < len(few) for of_device in each["chosen"]):
            return ""
        for way, of_kernel in each.items():
            found[way] += of_kernel
        rows.append([kernel, "as they are" if chosen == _OURS else chosen, *(_total(each[way]) for way in found)])
    rows.append(["all", "", *(_total(of_all) for of_all in found.values())])
    text = (
        f"Each of {len(OTHER_CONSTANTS) // 2} constants was halved and doubled. For each kernel, the change that does "
        f"best on the other kernels (seeds 0 to {_CHOSEN_WITH - 1}), or none, is taken, and the kernel searched with "
        f"the seeds from {_CHOSEN_WITH} on. That is what to expect of a kernel that no constant was adjusted to. The "
        "method itself was chosen with all of them in sight."
    )
    columns = ("kernel", "constants chosen without it", _COLD, _OURS, "with the constants chosen without it")
    return f"## Constants chosen without the kernel\n\n{text}\n\n" + _table(columns, rows)


def _overhead(devices: Sequence[Device]) -> dict[str, Any]:
    """Return what four sources cost, on the kernel recorded on most devices."""
    groups = [device.group for device in devices]
    device = max(devices, key=lambda each: groups.count(each.group))
    few = itertools.islice(itertools.cycle(_others(device, devices)), 4)
    sources = [source(each, seed) for seed, each in enumerate(few)]
    budget = min(_SOURCE, device.recorded.space.size)
    counts = (min(_BUDGET, budget), budget)
    ours(device, sources, 0, counts[0])  # (imports take time once)
    found = {
        way: [1e3 * search(device, sources, 0, n).seconds / n for n in counts]
        for way, search in ((_COLD, cold), (_OURS, ours))
    }
    return {"space": device.name, "machine": processor().name, "evaluations": counts, "ms": found}


def _cost(overhead: Mapping[str, Any]) -> str:
    if not overhead:
        return ""
    text = (
        f"Processor time in the strategy per evaluation, in ms, with four sources, on {overhead['space']}; "
        f"{overhead['machine']}."
    )
    columns = ("", *(f"{n} evaluations" for n in overhead["evaluations"]))
    rows = [(way, *(f"{value:.1f}" for value in values)) for way, values in overhead["ms"].items()]
    return f"## Overhead\n\n{text}\n\n" + _table(columns, rows)


def _mean(runs: Sequence[Sequence[Found]]) -> float:
    return float(np.mean([np.mean([run.mean for run in of_space]) for of_space in runs]))


def _median(runs: Sequence[Sequence[Found]], which: int) -> float:
    return float(np.median([np.median([run.within[which] for run in of_space]) for of_space in runs]))


def _count(evaluations: float) -> str:
    return f"> {_BUDGET}" if evaluations > _BUDGET else f"{evaluations:g}"


def _cell(runs: Sequence[Found]) -> str:
    five, one = (_count(_median([runs], which)) for which in range(len(_WITHIN)))
    return f"{_mean([runs]):.2%} ({five}, {one})"


def _total(runs: Sequence[Sequence[Found]]) -> str:
    five, one = (_count(_median(runs, which)) for which in range(len(_WITHIN)))
    return f"{_mean(runs):.2%} ({five}, {one})"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
