"""What the trials of a run say that its user should know, beside what was found: one plain line for each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mptune.accuracy.evaluate import Metrics, judged
from mptune.kernel import Application, Sizes, Tunable
from mptune.precision import COMPOUND, PRECISIONS, precision
from mptune.results.evidence import culprit, values_text
from mptune.results.kernel_times import FEWEST, MOST, kernel_times
from mptune.results.trial import Status, Trial
from mptune.run import Run
from mptune.space.configuration import Value
from mptune.space.parameters import PrecisionParameter, beyond_baseline

#: A type that is not so much narrower than the baseline's tells nothing of the baseline's error.
_NARROWER: Final = 2.0**8
#: Errors below so many units of roundoff are rounding, or below one for each element of the largest buffer if there are
#: more: no sum has more terms, and every term one rounding at most.
_ROUNDINGS: Final = 16
#: So many configurations of the widest types have to miss a threshold before it is the types that are said to miss it.
_TUNINGS: Final = 2
_FAILURES: Final = tuple(status for status in Status if not (status.is_valid or status is Status.CONSTRAINT))


def findings(run: Run, kernel: Tunable, metric: Metrics | None = None) -> Iterator[str]:
    """Give what there is to say of a run of a kernel; errors were measured by its own metric if none is given."""
    yield from _without_baseline(run)
    yield from _unlike_rounding(run, kernel, kernel.metric if metric is None else metric)
    yield from _one_at_a_time(run)
    yield from _failing_together(run, kernel)
    yield from _never_launched(run, kernel)
    yield from _launched_unequally(run, kernel)


# -- the baseline ------------------------------------------------------------------------------------------


def fall_short(run: Run) -> list[Trial]:
    """Return the trials of the widest types if all miss the threshold and only more exact types meet it.

    Where a narrower type meets it, those that do not are mistaken, and others may be right. It takes two tunings.
    """
    fixed, right = run.info.baseline_values or {}, list(filter(run.info.objective.is_feasible, run.trials))
    wide = [trial for trial in run.trials if fixed and trial.is_valid and trial.configuration.is_among(fixed)]
    if run.baseline is not None or len(wide) < _TUNINGS or not right:
        return []
    return wide if all(beyond_baseline(trial.configuration, fixed) for trial in right) else []


def _without_baseline(run: Run) -> Iterator[str]:
    """Say that there is nothing a speedup could be against, though configurations of the widest types were tried."""
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
            f"the threshold ({error}), which only more exact types do, so there is no baseline{beside}"
        )
    elif run.baseline is None and tried and any(map(objective.is_feasible, run.trials)):
        yield (
            f"no speedup is known: none of the {tried} configurations of the widest types that were tried is right, so "
            "there is no baseline; go on with --resume and a larger --budget"
        )


def _unlike_rounding(run: Run, kernel: Tunable, metric: Metrics) -> Iterator[str]:
    """Say that the baseline's error is more than rounding explains.

    Rounding errors go with the unit roundoff, whatever the kernel, its condition and the metric: in fp32 they are some
    2^29 times those in fp64. An error that hardly differs between the two has another cause, such as a reference that
    computes something else. An application that is its own reference has none that could; and a metric that sees the
    inputs, such as a residual, has an error by design.
    """
    baseline = run.baseline
    if baseline is None or (isinstance(kernel, Application) and kernel.reference is None):
        return
    widest = kernel.roundoff_of(baseline.configuration)
    # Types of fixed arguments are the same in every configuration.
    names = [p.name for p in kernel.parameters if isinstance(p, PrecisionParameter)]
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
        # Half of the digits between the two types are left for the order of operations, the condition and the metric.
        if error > max(least * math.sqrt(widest / finest), roundings * widest):
            wide, narrower = _type_of(widest), _type_of(finest)
            yield (
                f"the baseline's error{f' of {output!r}' if len(outputs) > 1 else ''}, {error:.3g}, is more than "
                f"rounding in {wide} explains: in {narrower} it is {least:.3g}; template and reference compute "
                "different things, or the method is that inexact: compare the two on a small size before you trust "
                "any error of this run"
            )


def _first_error(trial: Trial, output: str, outputs: Sequence[str]) -> float:
    """Return an output's error: of a single output on the first draw of the inputs, on which all trials ran."""
    first = trial.metric("error_first_draw") if len(outputs) == 1 else math.nan
    return trial.metric(f"error.{output}") if math.isnan(first) else first


def _type_of(roundoff: float) -> str:
    return next(name for name, entry in {**PRECISIONS, **COMPOUND}.items() if entry.unit_roundoff == roundoff)


# -- vectors -----------------------------------------------------------------------------------------------


def _one_at_a_time(run: Run) -> Iterator[str]:
    """Say that the compiler vectorised nothing of what is compared, as no compiler does."""
    compared = {"best": run.best, "baseline": run.baseline}
    scalar = [name for name, trial in compared.items() if trial is not None and trial.metric("vector_share") == 0]
    if scalar:
        yield (
            f"the compiler made no vectors of the arithmetic of the {' and the '.join(scalar)}, which "
            f"{'compute' if len(scalar) > 1 else 'computes'} one number at a time: another compiler may (--compiler "
            "clang++,g++ searches both), or let the innermost loop go over elements that lie side by side"
        )


# -- kernels of an application -----------------------------------------------------------------------------


def _never_launched(run: Run, kernel: Tunable) -> Iterator[str]:
    """Name the kernels that the steps of an application launched in no run."""
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
    """Say which kernels an application launched differently often in runs of one configuration on the same inputs."""
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


# -- failures ----------------------------------------------------------------------------------------------


def _failing_together(run: Run, kernel: Tunable) -> Iterator[str]:
    """Name the values that the failures of a kind have in common, and nothing else has."""
    types = [p.name for p in kernel.parameters if isinstance(p, PrecisionParameter)]
    for status in _FAILURES:
        failed = [trial for trial in run.trials if trial.status is status]
        others = [trial for trial in run.trials if trial.status is not status]
        shared = _culprit(failed, others)
        # A narrow type that overflows is no mistake.
        if shared and not (status is Status.NON_FINITE and set(shared) <= set(types)):
            yield _blamed(f"configurations that ended as {status}", len(failed), shared, len(others))
    # Of the widest types no type is to blame for a large error.
    widest = run.info.baseline_values
    wide = [trial for trial in run.trials if widest and trial.is_valid and trial.configuration.is_among(widest)]
    failed = [trial for trial in wide if trial.status is Status.INACCURATE]
    others = [trial for trial in wide if trial.status is not Status.INACCURATE]
    if shared := _culprit(failed, others):
        what = "configurations of the widest types whose error is too large"
        yield _blamed(what, len(failed), shared, len(others))


def _culprit(failed: Sequence[Trial], others: Sequence[Trial]) -> dict[str, Value]:
    return culprit([trial.configuration for trial in failed], [trial.configuration for trial in others])


def _blamed(what: str, count: int, shared: Mapping[str, Value], others: int) -> str:
    return (
        f"all {count} {what} have {values_text(shared)}, and none of the {others} others has: look for a mistake in "
        "the template there, or exclude it with a constraint"
    )
