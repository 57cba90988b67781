"""Making wisdom of runs and of other wisdom."""

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
from mptune.results.trial import Status, Trial
from mptune.results.unseen import count_of, draws_of
from mptune.run import Run
from mptune.space.configuration import Configuration, Value
from mptune.wisdom.error_growth import rounded_at
from mptune.wisdom.records import AtSize, Errors, KernelWisdom, Timed, Wisdom, fastest_first, is_wisdom

#: Configurations of a run that are kept beside its winner and its baseline: the fastest of tighter errors.
_KEPT: Final = 8

#: What wisdom is made of, with what messages call it.
Source = tuple[str, "Run | Wisdom"]
#: What a source says of one kernel: its wisdom, the run if it is one, and the records to keep.
_Part = tuple[KernelWisdom, "Run | None", tuple[AtSize, ...]]


def read_sources(sources: Iterable[Run | Wisdom | str | Path]) -> list[Source]:
    """Return runs and wisdom by what messages call them; of paths, what the files hold."""
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
    """Return what all of some runs and wisdom say together, in whatever order they are given.

    Of each run the winner, the baseline and the fastest configurations of tighter errors are kept; and at every size
    what is known there of those that are kept at another.
    """
    groups: dict[tuple[str, ...], list[_Part]] = {}
    versions: dict[str, tuple[str, KernelWisdom]] = {}
    for name, source in sources:
        for part in [_head(name, source)] if isinstance(source, Run) else source.kernels:
            _check_same(name, part, *versions.setdefault(part.kernel, (name, part)))
            own = (part, source, (_kept(name, source),)) if isinstance(source, Run) else (part, None, part.tuned)
            groups.setdefault(part.what, []).append(own)
    return Wisdom(tuple(_joined(groups[what]) for what in sorted(groups)))


def _joined(parts: Sequence[_Part]) -> KernelWisdom:
    """Return what all sources say of one kernel on one device."""
    head = min((part for part, *_ in parts), key=lambda part: (not part.template_hash, part.file))
    every = [record for *_, records in parts for record in records]
    kept = {timed.configuration for record in every for timed in record.configurations}
    limits = dict.fromkeys(["error", *(name for record in every for name in record.threshold)])
    found: dict[str, AtSize] = {}
    for _, run, records in parts:
        for given in records:
            record = given if run is None else _record(given, run, head, kept, limits)
            known = found.get(record.run)
            found[record.run] = record if known is None else known.joined(record)
    sizes = {tuple(sorted(record.sizes)) for record in found.values()}
    if len(sizes) > 1:
        raise WisdomError(f"kernel {head.kernel} has the sizes {' and elsewhere '.join(map(', '.join, sorted(sizes)))}")
    order = sorted(found, key=lambda run: (sorted(found[run].place.items()), run))
    return dataclasses.replace(head, tuned=tuple(found[run] for run in order))


def _check_same(name: str, part: KernelWisdom, other: str, known: KernelWisdom) -> None:
    """Refuse two sources that are of different versions of a kernel: times and errors of one say nothing of another."""
    for what in ("template_hash", "definition_hash", "signature"):
        ours, theirs = getattr(part, what), getattr(known, what)
        if ours != theirs and (what == "signature" or (ours and theirs)):
            raise WisdomError(
                f"{name} and {other} are of different versions of kernel {part.kernel}, whose "
                f"{what.removesuffix('_hash')} was changed in between: tune again, or give only one of them"
            )


# -- one run -------------------------------------------------------------------------------------


def _head(name: str, run: Run) -> KernelWisdom:
    """Return what a run is of."""
    info, objective = run.info, run.info.objective
    if info.recorded or not info.sizes:
        raise WisdomError(f"{name} does not say at which sizes it was made, so no other size can be told from it")
    if not run.trials:
        raise WisdomError(f"{name} has no trials")
    if not objective.is_time or objective.constraints:
        what = objective.constraints[0] if objective.is_time else f"the objective {objective.metric}"
        raise WisdomError(
            f"{name} was made with {what}: wisdom is of the fastest configurations, by their errors alone"
        )
    return KernelWisdom(
        kernel=info.kernel,
        file="/".join(PurePath(info.kernel_path).parts[-2:]) if info.kernel_path else "",
        backend=info.backend,
        device=info.device,
        architecture=info.architecture,
        metric=info.metric,
        metrics=dict(info.metrics),
        definition_hash=info.definition_hash,
        template_hash=info.template_hash,
        signature=info.signature,
        flags=info.flags,
    )


def _kept(name: str, run: Run) -> AtSize:
    """Return the configurations of a run that are worth keeping, without errors by signature."""
    feasible = [
        trial
        for trial in run.trials
        if run.info.objective.is_feasible(trial) and trial.time_ms > 0 and math.isfinite(trial.error)
    ]
    values = np.array([(trial.time_ms, trial.error) for trial in feasible]).reshape(-1, 2)
    on_front = sorted((feasible[i] for i in front(values, (True, True))), key=lambda trial: trial.time_ms)
    of_types: dict[tuple[Value | None, ...], Trial] = {}
    for trial in on_front:
        of_types.setdefault(tuple(trial.configuration.get(each) for each in run.info.signature), trial)
    places = np.unique(np.linspace(0, len(of_types) - 1, min(_KEPT, len(of_types))).round().astype(int))
    chosen = [[*of_types.values()][place] for place in places]
    trials = {trial.configuration: trial for trial in (run.best, run.baseline, *chosen) if trial is not None}
    found = [_timed(run, trial, ["error"]) for trial in trials.values() if trial.time_ms > 0]
    if not found:
        closest = run.closest
        nearest = "" if closest is None else f"; the closest: {run.objective.judge(closest).message}"
        raise NotAccurateError(f"{name} has nothing to tell: no trial is accurate enough{nearest}")
    sizes, forms = run.info.sizes, run.info.forms
    return AtSize(
        {size: value for size, value in sizes.items() if size not in forms},
        run.info.objective.limits,
        run.info.mptune_version,
        tuple(found),
        {},
        form={size: value for size, value in sizes.items() if size in forms},
        masked=run.info.masked,
    )


def _record(record: AtSize, run: Run, head: KernelWisdom, wanted: Set[Configuration], limits: Iterable[str]) -> AtSize:
    """Return what a run says of the configurations that are kept, its own and others, and of their signatures."""
    names = [each for each in limits if is_error(each)]
    trials = [trial for trial in run.trials if trial.configuration in wanted and trial.is_valid and trial.time_ms > 0]
    configurations = [_timed(run, trial, names) for trial in trials]
    signatures: dict[tuple[Value, ...], list[Trial]] = {head.signature_of(each): [] for each in wanted}
    for trial in run.trials:
        if trial.is_valid or trial.status is Status.NON_FINITE:
            of_types = tuple(trial.configuration.get(each, "") for each in head.signature)
            if of_types in signatures:
                signatures[of_types].append(trial)
    found = {
        values: dataclasses.replace(
            _errors_of(some, names),
            rounded=rounded_at(run.info.rounded, dict(zip(head.signature, values, strict=True))),
        )
        for values, some in signatures.items()
        if some
    }
    return dataclasses.replace(
        record,
        configurations=tuple(sorted(configurations, key=fastest_first)),
        signatures=found,
        made=f"{run.info.created_at}, seed {run.info.seed}" if run.info.created_at else "",
        draws=sum(map(draws_of, run.trials)),
    )


def _timed(run: Run, trial: Trial, names: Sequence[str]) -> Timed:
    speedup = run.speedup(trial)
    best, baseline = run.best, run.baseline
    return Timed(
        trial.configuration,
        trial.time_ms,
        _errors_of([trial], names),
        None if math.isnan(speedup) else speedup,
        run.speedup_interval(trial),
        count_of(trial, "unseen_inputs"),
        best is not None and trial.configuration == best.configuration,
        baseline is not None and trial.configuration == baseline.configuration,
    )


def _errors_of(trials: Sequence[Trial], names: Sequence[str]) -> Errors:
    """Return the errors of the trials of one signature: the worst; infinite where none gave a finite result."""
    # A configuration that is wrong says nothing of its signature, unless all of them are.
    valid = [trial for trial in trials if trial.is_valid]
    if not valid:
        return Errors(dict.fromkeys(names, math.inf))
    known = {name: [each for trial in valid if not math.isnan(each := trial.metric(name))] for name in names}
    worst = {name: max(errors) for name, errors in known.items() if errors}
    most = max(valid, key=lambda trial: (draws_of(trial), _mean_of(trial) or 0.0))
    return Errors(worst, draws_of(most), _mean_of(most))


def _mean_of(trial: Trial) -> float | None:
    mean = trial.error if draws_of(trial) == 1 else trial.metric("error_mean")
    return mean if math.isfinite(mean) else None
