"""Remarks on the trials of a run for its user, one line each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final

from mptune.accuracy.evaluate import Metrics, judged
from mptune.kernel import Application, Sizes, Tunable
from mptune.precision import COMPOUND, PRECISIONS, precision
from mptune.results.kernel_times import FEWEST, MOST, kernel_times
from mptune.results.trial import Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration, Value
from mptune.space.parameters import beyond_baseline, names_of_precisions

#: Minimum ratio of unit roundoffs between a narrower type and the baseline's to judge the baseline's error.
_NARROWER: Final = 2.0**8
#: Maximum error explained by rounding, in units of roundoff; the number of elements of the largest buffer if larger, as
#: a sum has one rounding for each term.
_ROUNDINGS: Final = 16
#: Minimum configurations of the widest types that miss a threshold before the types are the cause.
_TUNINGS: Final = 2
#: Minimum numbers of failures, and of other trials, to blame a value (1) and a pair of values (2).
_BLAMED: Final = {1: 3, 2: 4}
_FAILURES: Final = tuple(status for status in Status if not (status.is_valid or status is Status.CONSTRAINT))


def findings(run: Run, kernel: Tunable, metric: Metrics | None = None) -> Iterator[str]:
    """Yield the remarks on a run of a kernel; ``metric`` measured its errors, by default the kernel's own."""
    yield from _without_baseline(run)
    yield from _unlike_rounding(run, kernel, kernel.metric if metric is None else metric)
    yield from _one_at_a_time(run)
    yield from _failing_together(run, kernel)
    yield from _never_launched(run, kernel)
    yield from _launched_unequally(run, kernel)


def fall_short(run: Run) -> list[Trial]:
    """Return the trials of the widest types if at least two were tried and only more exact types meet the threshold."""
    fixed, right = run.info.baseline_values or {}, list(filter(run.info.objective.is_feasible, run.trials))
    wide = [trial for trial in run.trials if fixed and trial.is_valid and trial.configuration.is_among(fixed)]
    if run.baseline is not None or len(wide) < _TUNINGS or not right:
        return []
    return wide if all(beyond_baseline(trial.configuration, fixed) for trial in right) else []


def _without_baseline(run: Run) -> Iterator[str]:
    objective, tried = run.info.objective, run.baseline_evaluations
    if wide := fall_short(run):
        closest = min(wide, key=objective.error_excess)
        broken = objective.binding(closest)
        fastest_ms = min((trial.time_ms for trial in wide if trial.time_ms > 0), default=math.nan)
        ratio = run.best.time_ms / fastest_ms if run.best is not None else math.nan
        beside = f"; the best takes {ratio:.3g} times as long as the fastest of them" if math.isfinite(ratio) else ""
        error = f"{run.info.measured_by(broken)} {closest.metric(broken):.3g} at least"
        yield (
            f"no speedup is known: none of the {len(wide)} configurations of the widest types that were tried meets "
            f"the threshold ({error}), only more exact types do, so there is no baseline{beside}"
        )
    elif run.baseline is None and tried and any(map(objective.is_feasible, run.trials)):
        yield (
            f"no speedup is known: none of the {tried} configurations of the widest types that were tried is right, so "
            "there is no baseline; go on with --resume and a larger --budget"
        )


def _unlike_rounding(run: Run, kernel: Tunable, metric: Metrics) -> Iterator[str]:
    """Yield a remark if rounding does not explain the baseline's error.

    Rounding errors are proportional to the unit roundoff: errors in fp32 are about 2^29 times errors in fp64. An error
    that hardly differs between the two has another cause, such as a reference that computes something else. Two cases
    are excluded: a kernel or an application that is its own reference, and metrics that see the inputs, such as a
    residual.
    """
    baseline = run.baseline
    if baseline is None or kernel.reference is None:
        return
    widest = kernel.roundoff_of(baseline.configuration)
    # Only parameters count, as types of fixed arguments never change.
    names = names_of_precisions(kernel.parameters)
    valid = [trial for trial in run.trials if trial.is_valid and names]
    finest_of = [min(precision(str(t.configuration[n])).unit_roundoff for n in names) for t in valid]
    narrow = [(t, finest) for t, finest in zip(valid, finest_of, strict=True) if finest > _NARROWER * widest]
    sizes = Sizes(run.info.sizes)
    roundings = max(_ROUNDINGS, *(math.prod(kernel.shape_of(argument, sizes)) for argument in kernel.arguments))
    outputs = [output.name for output in kernel.outputs]
    by_design = {name for name, (_, each) in judged(outputs, metric).items() if each.sees_inputs}
    for output in [output for output in outputs if output not in by_design]:
        error = _first_error(baseline, output, outputs)
        known = [(finest, _first_error(trial, output, outputs)) for trial, finest in narrow]
        finest, least = min(((f, each) for f, each in known if math.isfinite(each)), default=(math.nan, math.nan))
        # Half of the digits between the two types allow for the order of operations, the condition and the metric.
        if error > max(least * math.sqrt(widest / finest), roundings * widest):
            wide, narrower = _type_of(widest), _type_of(finest)
            yield (
                f"the baseline's error{f' of {output!r}' if len(outputs) > 1 else ''}, {error:.3g}, is more than "
                f"rounding in {wide} explains: in {narrower} it is {least:.3g}; template and reference compute "
                "different things, or the method is that inexact: compare the two on a small size before you trust "
                "any error of this run"
            )


def _first_error(trial: Trial, output: str, outputs: Sequence[str]) -> float:
    """Return the error of an output; of a single output, on the first draw, which all trials share."""
    first = trial.metric("error_first_draw") if len(outputs) == 1 else math.nan
    return trial.metric(f"error.{output}") if math.isnan(first) else first


def _type_of(roundoff: float) -> str:
    return next(name for name, entry in {**PRECISIONS, **COMPOUND}.items() if entry.unit_roundoff == roundoff)


def _one_at_a_time(run: Run) -> Iterator[str]:
    compared = {"best": run.best, "baseline": run.baseline}
    scalar = [name for name, trial in compared.items() if trial is not None and trial.metric("vector_share") == 0]
    if scalar:
        yield (
            f"the compiler made no vectors of the arithmetic of the {' and the '.join(scalar)}, which "
            f"{'compute' if len(scalar) > 1 else 'computes'} one number at a time: another compiler may (--compiler "
            "clang++,g++ searches both), or let the innermost loop go over elements that lie side by side"
        )


def _never_launched(run: Run, kernel: Tunable) -> Iterator[str]:
    if not isinstance(kernel, Application):
        return
    runs = [kernel_times(trial) for trial in run.trials if trial.is_valid]
    launched = {name for times in runs for name, each in times.items() if each.launches}
    for name in kernel.kernels if launched else ():
        if name not in launched:
            yield (
                f"kernel {name} of {kernel.called} was launched in none of {len(runs)} runs: the steps never call it, "
                "and its parameters change nothing"
            )


def _launched_unequally(run: Run, kernel: Tunable) -> Iterator[str]:
    """Yield a remark on kernels whose number of launches differs between runs of one configuration."""
    varying = []
    for name in kernel.kernels if isinstance(kernel, Application) else ():
        counts = [(trial.metric(FEWEST + name), trial.metric(MOST + name)) for trial in run.trials]
        if differing := [(most - fewest, fewest, most) for fewest, most in counts if fewest < most]:
            _, fewest, most = max(differing)
            varying.append(f"{name} {fewest:.0f} to {most:.0f} times")
    if varying:
        yield (
            f"runs of one configuration of {kernel.called} on the same inputs launch {' and '.join(varying)}: "
            "something in its steps or kernels differs from run to run, and times with it"
        )


def _failing_together(run: Run, kernel: Tunable) -> Iterator[str]:
    """Yield a remark on parameter values that all failures of a status have, and no other trial."""
    types = names_of_precisions(kernel.parameters)
    widest = run.info.baseline_values
    wide = [trial for trial in run.trials if widest and trial.is_valid and trial.configuration.is_among(widest)]
    kinds = [(f"configurations that ended as {status}", status, run.trials) for status in _FAILURES]
    # A type does not explain a large error of the widest types.
    kinds.append(("configurations of the widest types whose error is too large", Status.INACCURATE, tuple(wide)))
    for what, status, trials in kinds:
        failed = [trial.configuration for trial in trials if trial.status is status]
        others = [trial.configuration for trial in trials if trial.status is not status]
        shared = culprit(failed, others)
        # The overflow of a narrow type is no mistake.
        if shared and not (status is Status.NON_FINITE and set(shared) <= types):
            values = " and ".join(f"{name}={value}" for name, value in shared.items())
            yield (
                f"all {len(failed)} {what} have {values}, and none of the {len(others)} others has: look for a mistake "
                "in the template there, or exclude it with a constraint"
            )


def culprit(failed: Sequence[Configuration], others: Sequence[Configuration]) -> dict[str, Value]:
    """Return the value, or else the pair of values, that all failed configurations have and none of the others.

    Empty if there is none, or if chance may explain it (:data:`_BLAMED`).
    """
    first = failed[0] if failed else Configuration({})
    shared = {name: value for name, value in first.items() if all(other[name] == value for other in failed)}
    for size, least in _BLAMED.items():
        for chosen in itertools.combinations(shared, size) if min(len(failed), len(others)) >= least else ():
            if not any(all(other.get(name) == shared[name] for name in chosen) for other in others):
                return {name: shared[name] for name in chosen}
    return {}
