"""Gathering wisdom from runs and from other wisdom."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence, Set
from pathlib import Path, PurePath
from typing import Final

import numpy as np

from mptune.errors import NotAccurateError, WisdomError
from mptune.results.metric_expressions import is_error
from mptune.results.pareto import front
from mptune.results.trial import Reading, Status, Trial
from mptune.results.unseen import count_of, draws_of
from mptune.run import Run
from mptune.space.configuration import Configuration, Value
from mptune.wisdom.error_growth import rounded_at
from mptune.wisdom.records import AtSize, Errors, KernelWisdom, Timed, Wisdom, fastest_first, in_order, is_wisdom

#: Configurations of a run that are kept beside its winner and its baseline: the fastest of tighter errors.
_KEPT: Final = 8

#: A run or wisdom with its name in messages.
Source = tuple[str, "Run | Wisdom"]
#: Wisdom of one kernel, and the run whose results it lacks yet with the configurations of the run worth keeping.
_Part = tuple[KernelWisdom, "Run | None", Set[Configuration]]


def read_sources(sources: Iterable[Run | Wisdom | str | Path]) -> list[Source]:
    """Return runs and wisdom, read from their files if need be, with their names in messages."""
    found: list[Source] = []
    for source in sources:
        if isinstance(source, Run):
            found.append((f"the run of {source.kernel}", source))
        elif isinstance(source, Wisdom):
            found.append(("the wisdom", source))
        elif is_wisdom(source) or PurePath(source).suffix == ".json":
            found.append((str(source), Wisdom.load(source)))
        else:
            found.append((str(source), Run.load(source)))
    return found


def gather(sources: Sequence[Source]) -> Wisdom:
    """Return the wisdom of runs and of other wisdom, in any order.

    Each run contributes its winner, its baseline and its fastest configurations of tighter errors. The wisdom has the
    results of every run for these configurations.

    Raises:
        WisdomError: a run does not say its sizes, has no trials or another objective than the time, or sources are of
            different versions of a kernel.
        NotAccurateError: no trial of a run is accurate enough.
    """
    groups: dict[tuple[str, ...], list[_Part]] = {}
    versions: dict[str, tuple[str, KernelWisdom]] = {}
    for name, source in sources:
        parts: Iterable[_Part] = (
            [(_head(name, source), source, _kept(name, source))]
            if isinstance(source, Run)
            else [(part, None, frozenset()) for part in source.kernels]
        )
        for part in parts:
            _check_same(name, part[0], *versions.setdefault(part[0].kernel, (name, part[0])))
            groups.setdefault(part[0].what, []).append(part)
    return Wisdom(tuple(_joined(groups[what]) for what in sorted(groups)))


def _joined(parts: Sequence[_Part]) -> KernelWisdom:
    head = min((part for part, *_ in parts), key=lambda part: (not part.template_hash, part.file))
    records = [record for part, *_ in parts for record in part.tuned]
    runs = [run for _, run, _ in parts if run is not None]
    wanted = {timed.configuration for record in records for timed in record.configurations}
    wanted = wanted.union(*(kept for *_, kept in parts))
    limited = [*(record.threshold for record in records), *(run.info.objective.limits for run in runs)]
    names = sorted({"error", *(name for each in limited for name in each if is_error(name))})
    found: dict[str, AtSize] = {}
    for record in (*records, *(_record(run, head, wanted, names) for run in runs)):
        known = found.get(record.run)
        found[record.run] = record if known is None else known.joined(record)
    sizes = {tuple(sorted(record.sizes)) for record in found.values()}
    if len(sizes) > 1:
        raise WisdomError(f"kernel {head.kernel} has the sizes {' and elsewhere '.join(map(', '.join, sorted(sizes)))}")
    order = sorted(found, key=lambda run: (sorted(found[run].place.items()), run))
    return dataclasses.replace(head, tuned=tuple(found[run] for run in order))


def _check_same(name: str, part: KernelWisdom, other: str, known: KernelWisdom) -> None:
    for what in ("template_hash", "definition_hash", "signature"):
        ours, theirs = getattr(part, what), getattr(known, what)
        if ours != theirs and (what == "signature" or (ours and theirs)):
            raise WisdomError(
                f"{name} and {other} are of different versions of kernel {part.kernel}, whose "
                f"{what.removesuffix('_hash')} was changed in between: tune again, or give only one of them"
            )


# -- one run -------------------------------------------------------------------------------------


def _head(name: str, run: Run) -> KernelWisdom:
    info, objective = run.info, run.info.objective
    if info.recorded or not info.sizes:
        raise WisdomError(
            f"{name} does not say at which sizes it was made, so nothing can be predicted for other sizes"
        )
    if not run.trials:
        raise WisdomError(f"{name} has no trials")
    if not objective.is_time or objective.constraints:
        what = objective.constraints[0] if objective.is_time else f"the objective {objective.metric}"
        raise WisdomError(
            f"{name} was made with {what}: wisdom is of the fastest configurations, by their errors alone"
        )
    same = ("kernel", "backend", "device", "architecture", "metric", "definition_hash", "template_hash", "signature")
    return KernelWisdom(
        **{name: getattr(info, name) for name in same},
        file="/".join(PurePath(info.kernel_path).parts[-2:]) if info.kernel_path else "",
        metrics=dict(info.metrics),
        flags=info.flags,
    )


def _kept(name: str, run: Run) -> Set[Configuration]:
    feasible = [
        trial
        for trial in run.trials
        if run.info.objective.is_feasible(trial) and trial.time_ms > 0 and math.isfinite(trial.error)
    ]
    values = np.array([(trial.time_ms, trial.error) for trial in feasible]).reshape(-1, 2)
    of_types: dict[tuple[Value | None, ...], Trial] = {}
    for trial in sorted((feasible[i] for i in front(values, (True, True))), key=lambda trial: trial.time_ms):
        of_types.setdefault(tuple(trial.configuration.get(each) for each in run.info.signature), trial)
    fastest = [*of_types.values()]
    places = np.unique(np.linspace(0, len(fastest) - 1, min(_KEPT, len(fastest))).round().astype(int))
    chosen = [run.best, run.baseline, *(fastest[place] for place in places)]
    found = {trial.configuration for trial in chosen if trial is not None and trial.time_ms > 0}
    if not feasible:
        closest = run.closest
        nearest = "" if closest is None else f"; the closest: {run.objective.judge(closest).message}"
        raise NotAccurateError(f"{name} has nothing to tell: no trial is accurate enough{nearest}")
    return found


def _record(run: Run, head: KernelWisdom, wanted: Set[Configuration], names: Sequence[str]) -> AtSize:
    info = run.info
    trials = [trial for trial in run.trials if trial.configuration in wanted and trial.is_valid and trial.time_ms > 0]
    of_types: dict[tuple[Value, ...], list[Trial]] = {head.signature_of(each): [] for each in wanted}
    for trial in run.trials:
        types = tuple(trial.configuration.get(each, "") for each in head.signature)
        if types in of_types and (trial.is_valid or trial.status is Status.NON_FINITE):
            of_types[types].append(trial)
    signatures = {
        types: dataclasses.replace(
            _errors_of(some, names), rounded=rounded_at(info.rounded, dict(zip(head.signature, types, strict=True)))
        )
        for types, some in of_types.items()
        if some
    }
    best, baseline = (trial and trial.configuration for trial in (run.best, run.baseline))
    timed = [
        Timed(
            trial.configuration,
            trial.time_ms,
            _errors_of([trial], names),
            None if math.isnan(speedup := run.speedup(trial)) else speedup,
            run.speedup_interval(trial),
            count_of(trial, "unseen_inputs"),
            trial.configuration == best,
            trial.configuration == baseline,
        )
        for trial in trials
    ]
    return AtSize(
        {size: value for size, value in info.sizes.items() if size not in info.forms},
        info.objective.limits,
        info.mptune_version,
        tuple(sorted(timed, key=fastest_first)),
        in_order(signatures),
        made=f"{info.created_at}, seed {info.seed}" if info.created_at else "",
        draws=sum(map(draws_of, run.trials)),
        form={size: value for size, value in info.sizes.items() if size in info.forms},
        masked=info.masked,
    )


def _errors_of(trials: Sequence[Trial], names: Sequence[str]) -> Errors:
    """Return the worst errors of the trials of one signature; None if no trial had a finite result."""
    # A single wrong configuration says nothing of its signature.
    valid = [trial for trial in trials if trial.is_valid]
    if not valid:
        return Errors(dict.fromkeys(names))
    known = {name: [each for trial in valid if not math.isnan(each := trial.metric(name))] for name in names}
    means = [(draws_of(trial), trial.error if draws_of(trial) == 1 else trial.metric("error_mean")) for trial in valid]
    draws, mean = max(means, key=lambda each: (each[0], each[1] if math.isfinite(each[1]) else 0.0))
    worst = {name: Reading(max(errors)) for name, errors in known.items() if errors}
    return Errors(worst, draws, Reading(mean) if math.isfinite(mean) else None)
