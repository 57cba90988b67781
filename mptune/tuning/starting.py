"""Earlier runs and recordings as sources of a search; a source that does not fit is refused."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mptune.errors import MptuneError, RunFileError, SpaceFileError, UnknownNameError
from mptune.interop import read_run
from mptune.kernel import Tunable
from mptune.paths import open_regular
from mptune.results.objective import Objective
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.space.configuration import Value
from mptune.space.search_space import SearchSpace
from mptune.store import RunInfo, unit_of
from mptune.store.info import parse_json
from mptune.strategies.base import Source
from mptune.strategies.model_based.transfer import shared

#: Uncertainty of another run's errors in decades: at the same sizes, for each decade between sizes (most errors grow
#: with the root of a size), and at most, also for unknown sizes.
_SAME_SIZES: Final = 0.3
_BY_DECADE: Final = 0.5
_OTHER_SIZES: Final = 1.0
#: Maximum sources from a folder, as the search fits a model of each.
_MOST: Final = 8


@dataclass(frozen=True, slots=True)
class Searched:
    """The search that a source has to fit."""

    kernel: str  #: empty if not known
    space: SearchSpace
    objective: Objective
    metric: str = ""  #: of ``error``; empty if not known
    sizes: Mapping[str, int] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)  #: of metrics whose names have no unit
    #: returns the trials of a source with the metrics' names of this search
    rename: Callable[[Run], Sequence[Trial]] = field(default=lambda run: run.trials)

    def source(self, run: Run, name: str) -> Source:
        """Return a run as a source; raises MptuneError if it does not fit."""
        names = self.space.names
        theirs, kernel = run.space.names, run.info.kernel
        common = [n for n in names if n in theirs]
        trials = self.rename(run)
        valid = [t for t in trials if t.is_valid]
        if kernel and self.kernel and kernel != self.kernel and set(theirs) != set(names):
            raise MptuneError(
                f"source {name} is of kernel {kernel!r}, not {self.kernel!r}: expected the same kernel, or "
                "one with the same parameters"
            )
        if not any(len(self.space.parameter(n).values) > 1 for n in common):
            raise MptuneError(
                f"source {name} has no parameter in common with the search space: it has {', '.join(theirs)}, the "
                f"space {', '.join(names)}"
            )
        if not valid:
            raise MptuneError(f"source {name}: none of its {len(trials):,} trials ran, so their times are unknown")
        read = self.objective.names | self.objective.constraint_names
        metrics = tuple(dict.fromkeys(m for t in valid for m in t.measurement.metrics))
        for metric in sorted(read):
            if metric not in metrics:
                raise UnknownNameError(f"metric of source {name}:", metric, metrics)
            ours, its = self.units.get(metric) or unit_of(metric), run.info.unit_of(metric)
            if ours and its and ours != its:
                raise MptuneError(f"source {name} has {metric} in {its}, the search has it in {ours}")
        complete = tuple(t for t in trials if not t.is_valid or read <= t.measurement.metrics.keys())
        remark = self._no_errors(run.info)
        doubt = min(_OTHER_SIZES, _SAME_SIZES + _BY_DECADE * _decades(self.sizes, run.info.sizes))
        found = Source(name, complete, math.inf if remark else doubt, remark)
        if not shared(found, self.space)[1]:
            raise MptuneError(
                f"source {name}: none of its {len(trials):,} trials has values that the search space has for "
                f"{', '.join(common)}"
            )
        return found

    def _no_errors(self, info: RunInfo) -> str:
        """Return why the errors of a source are not used; empty if they are, or if the search has no threshold."""
        if self.objective.threshold is None:
            return ""
        if info.kernel != self.kernel:
            return f"its errors are not used: it is not known to be of kernel {self.kernel!r}"
        if self.metric and info.metric and self.metric != info.metric:
            return f"its errors are not used: they are measured by {info.metric}, not by {self.metric}"
        return ""


def _decades(ours: Mapping[str, int], theirs: Mapping[str, int]) -> float:
    """Return the distance of problem sizes in decades, summed over names; infinite if not comparable."""
    pairs = list(zip(ours.values(), theirs.values(), strict=False))
    if not ours or len(ours) != len(theirs) or any(min(pair) <= 0 < max(pair) for pair in pairs):
        return math.inf
    return sum(abs(math.log10(size / other)) for size, other in pairs if size != other)


def sources_of(
    given: Sequence[str | Path | Run], folder: str | Path | None, searched: Searched, run_file: Path | None
) -> tuple[tuple[Source, ...], tuple[str, ...]]:
    """Return the sources of a search, and the errors of run files in the folder that cannot be read.

    Sources are the files given, then fitting files of the folder, most usable trials first, except the run's own file.
    """
    own = None if run_file is None else run_file.resolve()
    paths = [path if isinstance(path, Run) else Path(path).resolve() for path in given]
    if own in paths:
        raise MptuneError(f"source {own} is the run file itself: a run goes on with its own trials anyway")
    sources = [read_source(path, searched) for path in dict.fromkeys(paths)]
    found, unreadable = [], []
    for path in sorted(Path(folder).resolve().glob("*.db")) if folder is not None else ():
        if path.resolve() == own:
            continue
        try:
            run = read_run(path)
        except (RunFileError, SpaceFileError) as error:
            unreadable.append(str(error))
            continue
        with contextlib.suppress(MptuneError):
            source = searched.source(run, str(path))
            found.append((-len(shared(source, searched.space)[1]), path, source))
    sources += [source for _, _, source in sorted(found, key=lambda entry: entry[:2])[:_MOST]]
    return tuple({source.name: source for source in sources}.values()), tuple(unreadable)


def read_source(source: str | Path | Run, searched: Searched) -> Source:
    """Return a run, a run file or a recorded space as a source of a search; raises MptuneError if it does not fit."""
    if isinstance(source, Run):
        return searched.source(source, source.name)
    if Path(source).is_dir():
        raise SpaceFileError(
            f"source: {source} is a folder: expected a run file or a recorded space (tune has --from-all, for the runs "
            "in the folder of the run file)"
        )
    try:
        run = read_run(source)
    except SpaceFileError as error:
        raise SpaceFileError(f"source: {error}") from None
    return searched.source(run, str(source))


def first_values(given: Mapping[str, Any] | str | Path, kernel: Tunable) -> list[dict[str, Value]]:
    """Return the values of configurations to evaluate first, as the kernel declares them.

    ``given`` has values by name of a parameter, or is the path of a run file (for its best configuration or front), or
    of JSON: a configuration, a list of them, or the output of ``mptune tune --json``.
    """
    parameters = {parameter.name: parameter for parameter in kernel.parameters}
    if isinstance(given, Mapping):
        return [{n: parameters[n].parse(value) for n, value in kernel.full_names(given).items()}]
    path = Path(given)
    try:
        if path.suffix == ".json":
            with open_regular(path) as file:
                found = _configurations_in(parse_json(file.read().decode()))
        else:
            run = Run.load(path)
            best = [run.best] if run.best is not None else []
            found = [trial.configuration for trial in (*best, *run.trade_offs)]
    except (OSError, ValueError, RunFileError) as error:
        raise MptuneError(f"first {path}: expected NAME=VALUE,..., a run file or JSON: {error}") from error
    if not all(found) or not found:
        raise MptuneError(f"first {path}: it has no configuration to try first")
    values = [each for configuration in found for each in first_values(configuration, kernel)]
    return [each for index, each in enumerate(values) if each not in values[:index]]


def _configurations_in(document: Any) -> list[Mapping[str, Any]]:
    if isinstance(document, list):
        return [found for entry in document for found in _configurations_in(entry)]
    if not isinstance(document, dict):
        raise ValueError("a configuration is an object of values by name")
    for name in ("best", "configuration"):
        if name in document:
            return _configurations_in(document[name] or [])
    return [document]
