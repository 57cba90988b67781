"""What is common to the plots of a run: which trials can be drawn, what the title says, and the baseline."""

from __future__ import annotations

from mptune.errors import PlotError
from mptune.results import Trial
from mptune.run import Run
from mptune.space.configuration import Value

__all__ = [
    "baseline_of",
    "counted",
    "judges",
    "order_label",
    "threshold_text",
    "title_of",
    "valid_trials",
    "value_text",
]


def valid_trials(run: Run) -> tuple[Trial, ...]:
    """Return the trials that ran to their end.

    Raises:
        PlotError: there are none; says how they ended.
    """
    valid = tuple(trial for trial in run.trials if trial.is_valid)
    if not valid:
        ended = ", ".join(f"{status} {count}" for status, count in run.statuses.items())
        raise PlotError(
            f"none of {counted(run.evaluations, 'trial')} ran to its end, so there is nothing to draw ({ended})"
        )
    return valid


def baseline_of(run: Run) -> Trial | None:
    """Return the baseline, None also where no type was tuned, so that any configuration would be one."""
    return run.baseline if run.info.baseline_values else None


def judges(run: Run) -> bool:
    """Whether a trial can be infeasible."""
    return run.info.objective.threshold is not None or bool(run.info.objective.constraints)


def threshold_text(run: Run) -> str:
    """Return what makes a trial feasible."""
    threshold = run.objective.threshold
    limits = []
    if isinstance(threshold, float):
        limits = [f"error\u00a0≤\u00a0{threshold:g}"]
    elif threshold is not None:
        limits = [f"error\u00a0of\u00a0{output}\u00a0≤\u00a0{limit:g}" for output, limit in threshold.items()]
    return ", ".join((*limits, *run.objective.constraints))


def title_of(run: Run, *remarks: str) -> str:
    """Return what stands above a plot."""
    whose = f"{run.kernel} on {run.info.device}" if run.info.device else run.kernel
    # A number stays with what it counts.
    count = counted(run.evaluations, "configuration").replace(" ", "\u00a0")
    return "; ".join((f"{whose}: {count}", *remarks))


def order_label(run: Run) -> str:
    """Return what an axis says along which the trials come one after the other."""
    return "configurations in the order of the recording" if run.info.recorded else "evaluations"


def counted(count: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def value_text(value: Value) -> str:
    """Return a parameter's value in as few letters as tell it from the others."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
