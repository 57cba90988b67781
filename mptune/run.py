"""A tuning run: its definition, its trials, and the results computed from them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mptune.accuracy.thresholds import recorded_threshold
from mptune.errors import MptuneError, SpaceFileError, UnknownNameError
from mptune.markup import Description, as_html
from mptune.precision import precision
from mptune.results.description import describe, facts, verified_text
from mptune.results.estimates import METRICS, Gpu
from mptune.results.kernel_times import host_ms, kernel_times, program_ms
from mptune.results.metric_expressions import MORE_IS_BETTER
from mptune.results.objective import Objective, or_inf
from mptune.results.pareto import front
from mptune.results.speedup import LEAST_ROUNDS, TIE, Ratio
from mptune.results.trial import Status, Trial
from mptune.results.unseen import Verified
from mptune.space.arguments import checked
from mptune.space.configuration import Value
from mptune.space.parameters import Parameter, parameter_of
from mptune.space.search_space import SearchSpace
from mptune.store import INTERRUPTED, RunFile, RunInfo, RunState

if TYPE_CHECKING:
    import pandas as pd

#: The line of a compiler's output with the error, other than a failure of its linker.
_ERROR: Final = re.compile(r"\berror\b(?!: ld returned)|\bundefined\b|cannot find|isn't defined", re.IGNORECASE)
_DIGITS: Final = re.compile(r"\d+")
_SPEEDUP: Final = "speedup"
#: Speedup of the baseline.
_SAME: Final = Ratio(1.0, 1.0, 1.0, LEAST_ROUNDS, 1.0)
#: Words of warnings about errors, among those about times and search spaces.
_OF_TRUST: Final = re.compile(r"\b(errors?|trust|NaN)\b")


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures of one status and message."""

    status: Status
    message: str  #: of the first, in short
    count: int
    first: Trial


class Run:
    """A run at a point of time; immutable.

    Args:
        info: definition of the run.
        trials: in the order of evaluation. The last trial of a configuration counts.
        state: progress of the run.
        sources: rendered sources of some trials, without the prelude, by the JSON of their configuration.
        name: name of the file without suffix; by default that of the recording, or the kernel.
    """

    def __init__(
        self,
        info: RunInfo,
        trials: Sequence[Trial],
        state: RunState | None = None,
        sources: Mapping[str, str] | None = None,
        name: str = "",
    ) -> None:
        self.info = info
        self.name = name or info.recorded or info.kernel
        self.state = state or RunState()
        self.sources = sources or {}
        self.trials: tuple[Trial, ...] = tuple({trial.configuration: trial for trial in trials}.values())

    @classmethod
    @checked
    def load(cls, path: str | Path) -> Run:
        """Read a run file, possibly while a run writes it.

        Raises:
            RunFileError: the file is missing, foreign, corrupt, half-written or of another version.
        """
        with RunFile.open(path, read_only=True) as file:
            parameters = file.info.parameters
            trials = file.trials(parameters)
            return cls(file.info, trials, file.state, file.sources(), Path(path).name.removesuffix(".db"))

    def derive(
        self, *, objective: Objective | None = None, trials: Sequence[Trial] | None = None, name: str = ""
    ) -> Run:
        """Return the run with another objective, other trials or another name."""
        info = self.info if objective is None else replace(self.info, objective=objective)
        return Run(info, self.trials if trials is None else trials, self.state, self.sources, name or self.name)

    def __repr__(self) -> str:
        best = self.best
        found = "no feasible trial" if best is None else f"best {best.time_ms:.4g} ms at {best.configuration}"
        return f"Run({self.kernel} on {self.info.backend}, {self.evaluations} evaluations, {found})"

    def describe(self) -> Description:
        """Return the description of the run that every view shows: facts, tables and remarks."""
        return describe(self)

    def _repr_html_(self) -> str:
        found = self.describe()
        return as_html(found.title, found.verdict if self.trials else "no valid trial", *found.tables)

    # -- trials --------------------------------------------------------------------------------

    @property
    def kernel(self) -> str:
        """Name of the kernel, or else of the recording."""
        return self.info.kernel or self.name

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters, in the order of the search space."""
        described = tuple(parameter.name for parameter in self.info.parameters)
        return described or tuple(dict.fromkeys(name for trial in self.trials for name in trial.configuration))

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters as described in the run, or else derived from its trials."""
        if self.info.parameters:
            return tuple(parameter_of(p.name, p.values, p.kind) for p in self.info.parameters)
        return tuple(
            parameter_of(name, [t.configuration[name] for t in self.trials if name in t.configuration])
            for name in self.parameter_names
        )

    @cached_property
    def space(self) -> SearchSpace:
        """The search space of exactly the evaluated configurations.

        Raises:
            SpaceFileError: there are none, or their parameters or values do not agree with the run's.
        """
        if not self.trials:
            raise SpaceFileError(f"{self.name}: the file records no configuration")
        names, codes = self.parameter_names, []
        codes_of = [{value: code for code, value in enumerate(p.values)} for p in self.parameters]
        for trial in self.trials:
            try:
                codes.append([of[trial.configuration[name]] for name, of in zip(names, codes_of, strict=True)])
            except KeyError:
                raise SpaceFileError(
                    f"{self.name}: the trial of {trial.configuration} is not of the run's search space"
                ) from None
        return SearchSpace.from_codes(self.parameters, np.array(codes, dtype=np.int32))

    @cached_property
    def indexed(self) -> tuple[Trial, ...]:
        """The trials in the order of :attr:`space`."""
        by_configuration = {trial.configuration: trial for trial in self.trials}
        return tuple(by_configuration[c] for c in self.space.configurations(np.arange(self.space.size)))

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Names of the metrics of all trials, in order of appearance."""
        return tuple(dict.fromkeys(name for trial in self.trials for name in trial.measurement.metrics))

    @property
    def evaluations(self) -> int:
        """Number of evaluated configurations."""
        return len(self.trials)

    @property
    def why_no_baseline(self) -> str:
        """The parameters without the baseline's values, as ``-p`` excludes these, in words; empty if there are none."""
        fixed = self.info.baseline_values or {}
        offered = {p.name: p.values for p in self.info.parameters}
        excluded = [name for name, values in fixed.items() if name in offered and not {*values} & {*offered[name]}]
        if not excluded:
            return ""
        few = ", ".join(excluded[:3]) + (f" and {len(excluded) - 3} more" if len(excluded) > 3 else "")
        values = " or ".join(dict.fromkeys(str(fixed[name][0]) for name in excluded))
        return f"the search has no baseline, as the values of {few} (-p) leave out its {values}"

    @property
    def baseline_evaluations(self) -> int:
        """Number of evaluated configurations with the baseline's types."""
        fixed = self.info.baseline_values
        return sum(trial.configuration.is_among(fixed) for trial in self.trials) if fixed else 0

    @property
    def statuses(self) -> dict[str, int]:
        """Number of trials by status."""
        counts = Counter(trial.status for trial in self.trials)
        return {status.value: counts[status] for status in Status if counts[status]}

    @property
    def ending(self) -> str:
        """Why the run has evaluations left, or that it has not ended, in words; else empty."""
        ended = self.state.ended
        if ended == INTERRUPTED:
            ended += " or still running; tune --resume completes the run"
        return f"{self.evaluations} of {self.info.budget} evaluations: {ended}" if ended else ""

    @property
    def failures(self) -> tuple[Trial, ...]:
        """The trials that are not valid; their messages say why."""
        return tuple(trial for trial in self.trials if not trial.is_valid)

    @property
    def failure_groups(self) -> tuple[FailureGroup, ...]:
        """The failures by status and message without its numbers, the most frequent first."""
        groups: dict[tuple[Status, str], list[Trial]] = {}
        for trial in self.failures:
            groups.setdefault((trial.status, _DIGITS.sub("#", in_short(trial.message))), []).append(trial)
        found = (
            FailureGroup(status, in_short(trials[0].message), len(trials), trials[0])
            for (status, _), trials in groups.items()
        )
        return tuple(sorted(found, key=lambda group: -group.count))

    @property
    def durations_s(self) -> dict[str, float]:
        """Wall time in seconds by phase of the trials, and beside them, longest first.

        ``prepare`` is inputs, references and the start of the worker, ``search`` the strategy, ``verification`` the
        runs on unseen inputs, ``lost`` trials that ended the worker, ``other`` the rest. The times of trials are
        divided by the number of devices.
        """
        state, devices = self.state, max(1, self.state.workers)
        spent = Counter({"prepare": state.prepare_s, "search": state.search_s, "verification": state.verify_s})
        for trial in self.trials:
            spent.update({phase: seconds / devices for phase, seconds in trial.measurement.durations_s.items()})
        rest_s = state.wall_s - math.fsum(spent.values())
        return {**{name: seconds for name, seconds in spent.most_common() if seconds > 0}, "other": max(0.0, rest_s)}

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of the run as a whole, then those of single trials, each once."""
        of_trials = (warning for trial in self.trials for warning in trial.warnings)
        return tuple(dict.fromkeys((*self.state.warnings, *of_trials)))

    def doubts_about(self, trial: Trial) -> tuple[str, ...]:
        """Return the warnings of the run and of a trial that concern the trust in its error or result."""
        return tuple(filter(_OF_TRUST.search, dict.fromkeys((*self.state.warnings, *trial.warnings))))

    # -- results -------------------------------------------------------------------------------

    @cached_property
    def objective(self) -> Objective:
        """The objective; performance in its first metric is relative to the baseline if types were tuned."""
        objective = self.info.objective
        if self.baseline is None or not self.info.baseline_values:
            return objective
        value = objective.value(self.baseline)
        return objective.with_baseline(value) if value >= 0 else objective

    @cached_property
    def baseline(self) -> Trial | None:
        """The best valid trial with all types fp64 and accurate functions; of ties the fastest.

        An inaccurate trial may do less work than required, through a mistake or another parameter. It is the baseline
        only if no trial meets the threshold.
        """
        objective, finals, fixed = self.info.objective, self.state.finals, self.info.baseline_values or {}
        sign = 1.0 if objective.minimise else -1.0

        def rank(trial: Trial) -> tuple[bool, float, float]:
            return not objective.is_feasible(trial), sign * objective.value(trial), or_inf(trial.time_ms)

        valid = (trial for trial in self.trials if trial.is_valid and trial.configuration.is_among(fixed))
        candidates = [trial for trial in valid if math.isfinite(objective.value(trial))]
        first = min(candidates, key=rank, default=None)
        if first is not None and objective.error_excess(first) > 0 and any(map(objective.is_feasible, self.trials)):
            return None
        if first is None or not objective.is_time:
            return first
        tied, is_infeasible = finals.tied_with(first.configuration), rank(first)[0]
        rivals = [t for t in candidates if t.configuration in tied and rank(t)[0] is is_infeasible]
        return min([first, *rivals], key=lambda t: not finals.is_chosen(t.configuration))

    @cached_property
    def best(self) -> Trial | None:
        """The best feasible trial by the first objective; None if nothing is feasible.

        Among trials that the finals tie within :data:`~mptune.results.speedup.TIE` it is the simplest: fewest types,
        then least memory, then widest types.
        """
        return self.contenders[0] if self.contenders else None

    @cached_property
    def contenders(self) -> tuple[Trial, ...]:
        """The best feasible trial and trials that the finals tie with it, the simplest first.

        None is slower than the baseline.
        """
        objective, finals = self.info.objective, self.state.finals
        fastest = objective.best(self.trials)
        if fastest is None or not objective.is_time:
            is_tied = fastest is not None and self.estimated_for is not None and self.speedup(fastest) == 1.0
            if is_tied and self.baseline is not None and objective.is_feasible(self.baseline):
                return (self.baseline,)
            return () if fastest is None else (fastest,)
        tied = {c for c, ratio in finals.tied_with(fastest.configuration).items() if ratio.value < 1.0 + TIE}
        rivals = [
            t
            for t in self.trials
            if t.configuration in tied
            and objective.is_feasible(t)
            and (t is self.baseline or not self.speedup(t) < 1.0)
        ]

        def simplicity(trial: Trial) -> tuple[float, ...]:
            types = [precision(str(name)) for name in self.types_of(trial)]
            rank = sum(each.rank for each in types)
            is_known = finals.is_chosen(trial.configuration)
            return len(set(types)), or_inf(trial.metric("memory_bytes")), -rank, not is_known, trial.time_ms

        return tuple(sorted((fastest, *rivals), key=simplicity))

    def types_of(self, trial: Trial) -> tuple[Value, ...]:
        """Return the precisions of a trial, in the order of the parameters."""
        names = [parameter.name for parameter in self.info.parameters if parameter.kind == "precision"]
        return tuple(trial.configuration[name] for name in names if name in trial.configuration)

    @cached_property
    def front(self) -> tuple[Trial, ...]:
        """The Pareto front of the feasible trials in all objectives, ordered by the first.

        With a single objective it is the front of that and the error. :meth:`pareto` takes any metrics, and infeasible
        trials too.
        """
        objective = self.info.objective
        metrics = objective.metrics if objective.also else (*dict.fromkeys((objective.metric, "error")),)
        feasible = [trial for trial in self.trials if objective.is_feasible(trial)]
        return self._front(feasible, metrics, [name not in self.more_is_better for name in metrics])

    @property
    def trade_offs(self) -> tuple[Trial, ...]:
        """The front of several objectives; empty for a single one."""
        return self.front if self.info.objective.also else ()

    @property
    def reported(self) -> tuple[Trial, ...]:
        """The best trial, the baseline and the front, each once."""
        trials = (self.best, self.baseline, *self.trade_offs)
        return tuple({trial.configuration: trial for trial in trials if trial is not None}.values())

    @cached_property
    def closest(self) -> Trial | None:
        """The valid but infeasible trial of the least excess over threshold and constraints, or None."""
        return self.info.objective.closest([t for t in self.trials if not self.info.objective.is_feasible(t)])

    @property
    def feasible(self) -> int:
        """Number of trials that are valid, within the threshold and satisfy every measured constraint."""
        return sum(self.info.objective.is_feasible(trial) for trial in self.trials)

    @property
    def estimated_for(self) -> Gpu | None:
        """The GPU whose estimated time is the first objective; None if times are measured."""
        return METRICS.get(self.info.objective.metric)

    def speedup(self, trial: Trial) -> float:
        """Return the speedup of a trial over the baseline, NaN if unknown.

        It is from the rounds of its interval (:meth:`speedup_interval`), or else the ratio of the trials' times. In a
        run judged by an estimate (:attr:`estimated_for`) it is the ratio of the estimates.
        """
        if self.baseline is not None and self.estimated_for is not None:
            value = self.info.objective.value(trial) if trial.is_valid else math.nan
            return self.info.objective.value(self.baseline) / value if value > 0 else math.nan
        if self.baseline is None or not trial.is_valid or not trial.time_ms > 0:
            return math.nan
        ratio = self._ratio(trial)
        return self.baseline.time_ms / trial.time_ms if ratio is None else ratio.value

    def speedup_interval(self, trial: Trial) -> tuple[float, float] | None:
        """Return the 95% interval of a trial's speedup; None if it and the baseline were not timed side by side."""
        ratio = self._ratio(trial)
        return None if ratio is None else (ratio.low, ratio.high)

    def _ratio(self, trial: Trial) -> Ratio | None:
        """Return the ratio of the baseline's time to a trial's, if enough rounds timed both."""
        if self.baseline is None or not trial.is_valid or self.estimated_for is not None:
            return None
        if trial.configuration == self.baseline.configuration:
            return _SAME
        ratio = self.state.finals.ratio(self.baseline.configuration, trial.configuration)
        return None if ratio is None or ratio.rounds < LEAST_ROUNDS else ratio

    def is_settled(self, trial: Trial) -> bool:
        """Whether the rounds agree on a trial's speedup and its interval excludes 1; true of the baseline.

        An estimated speedup has no interval and is settled.
        """
        if self.estimated_for is not None:
            return not math.isnan(self.speedup(trial))
        ratio, baseline = self._ratio(trial), self.baseline
        if ratio is None or baseline is None:
            return False
        return ratio is _SAME or self.state.finals.settles(baseline.configuration, trial.configuration)

    def speedup_text(self, trial: Trial, *, short: bool = False) -> str:
        """Return the speedup in words, with its interval if known; a dash if unknown.

        Without an interval it is unsettled. A short text does not have the word "unsettled". An estimated speedup has
        the name of the GPU.
        """
        speedup, interval = self.speedup(trial), self.speedup_interval(trial)
        if math.isnan(speedup):
            return "-"
        if self.estimated_for is not None and trial is not self.baseline:
            return f"{speedup:.3g}x estimated" + f" for {self.estimated_for.name}" * (not short)
        if interval == (1.0, 1.0) or trial is self.baseline or (interval is None and short):
            return f"{speedup:.3g}"
        if interval is None:
            return f"{speedup:.3g}x (unsettled)"
        low, high = interval
        settled = "" if self.is_settled(trial) or short else ", unsettled"
        return f"{speedup:.3g}x ({low:.3g} to {high:.3g}{settled})"

    def verified(self, trial: Trial) -> Verified | None:
        """Return the result of a trial on unseen inputs, None if it was not verified."""
        return Verified.of(trial, self.info.objective)

    def objective_within(self, max_error: float | Mapping[str, float]) -> Objective:
        """Return the objective with another threshold, with names as in ``--max-error``.

        Raises:
            UnknownNameError: no error of that name was measured.
            MptuneError: a threshold is out of range, or two are for the same error.
        """
        threshold = recorded_threshold(max_error, self.metric_names, self.info.metric, self.info.metrics)
        return replace(self.objective, threshold=threshold)

    def metric_of(self, trial: Trial, metric: str) -> float:
        """Return a metric of a trial, ``speedup`` and the objective included; NaN if the trial lacks that metric."""
        if metric == _SPEEDUP:
            return self.speedup(trial)
        objective = self.info.objective
        if metric in objective.metrics:
            return objective.values(trial)[objective.metrics.index(metric)]
        return trial.metric(metric)

    @property
    def more_is_better(self) -> frozenset[str]:
        """Names of the metrics whose larger values are better."""
        objective = self.info.objective
        return MORE_IS_BETTER - set(objective.metrics) if objective.minimise else MORE_IS_BETTER | {objective.metric}

    def pareto(
        self, metrics: Sequence[str] = ("time_ms", "error"), *, maximise: Sequence[str] = ()
    ) -> tuple[Trial, ...]:
        """Return the Pareto front of the valid trials, ordered by the first metric.

        Trials with an unknown or infinite metric are left out.

        Args:
            metrics: two or more names of metrics, ``speedup``, or the objective.
            maximise: metrics to maximise beside a maximised objective and
                :data:`~mptune.results.metric_expressions.MORE_IS_BETTER`.

        Raises:
            UnknownNameError: no trial has a metric of that name.
            MptuneError: fewer than two metrics, or one twice.
        """
        directions = self._directions(metrics, maximise)
        return self._front([trial for trial in self.trials if trial.is_valid], metrics, directions)

    def _front(self, valid: Sequence[Trial], metrics: Sequence[str], directions: Sequence[bool]) -> tuple[Trial, ...]:
        values = np.array([[self.metric_of(t, m) for m in metrics] for t in valid], dtype=np.float64)
        values = np.where(np.isfinite(values), values, np.nan).reshape(len(valid), len(metrics))
        chosen = front(values, directions)
        signs = np.where(directions, 1.0, -1.0)
        return tuple(valid[i] for i in sorted(chosen, key=lambda i: (*(values[i] * signs), i)))

    def _directions(self, metrics: Sequence[str], maximise: Sequence[str]) -> list[bool]:
        objective = self.info.objective
        known = (*dict.fromkeys((*self.metric_names, _SPEEDUP, *objective.metrics)),)
        for name in (*metrics, *maximise):
            if name not in known and self.metric_names:
                raise UnknownNameError("metric", name, known)
        if len(metrics) < 2 or len(set(metrics)) < len(metrics):
            raise MptuneError(f"a Pareto front needs two or more different metrics, got {', '.join(metrics) or 'none'}")
        more_is_better = self.more_is_better | set(maximise)
        return [name not in more_is_better for name in metrics]

    # -- other forms ---------------------------------------------------------------------------

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row per trial, in the order of evaluation; the index is the number of the trial, from 1.

        Columns are the parameters, ``status``, ``message``, ``feasible`` (missing if the error is unknown), every
        metric and ``speedup``. Names that are also parameters have the prefix ``trial.``.
        """
        import pandas as pd  # slow to import

        parameters, objective = self.parameter_names, self.info.objective
        is_known = [trial.status is not Status.OK or not math.isnan(trial.error) for trial in self.trials]
        feasible = list(map(objective.is_feasible, self.trials))
        within = [is_in if is_in or known else None for is_in, known in zip(feasible, is_known, strict=True)]
        columns: dict[str, Any] = {n: [t.configuration.get(n) for t in self.trials] for n in parameters}
        results: dict[str, Any] = {
            "status": [trial.status.value for trial in self.trials],
            "message": [trial.message for trial in self.trials],
            "feasible": pd.array(within, dtype="boolean") if None in within else feasible,
            **{name: [trial.metric(name) for trial in self.trials] for name in self.metric_names},
            _SPEEDUP: [self.speedup(trial) for trial in self.trials],
        }
        columns |= {f"trial.{name}" if name in parameters else name: cells for name, cells in results.items()}
        return pd.DataFrame(columns, pd.RangeIndex(1, self.evaluations + 1, name="trial"))

    def summary(self) -> dict[str, Any]:
        """Return the document that ``mptune tune --json`` prints; unknown numbers are None."""
        return json_document(
            {
                **{fact.name: fact.value for fact in facts(self)},
                "baseline": self._entry(self.baseline),
                "best": self._entry(self.best),
                "front": [self._entry(trial) for trial in self.trade_offs],
                "closest": self._entry(self.closest),
                **({"sources": [asdict(use) for use in self.state.sources]} if self.state.sources else {}),
                "failures": [
                    {"status": group.status, "message": group.message, "count": group.count}
                    for group in self.failure_groups
                ],
                "warnings": self.warnings,
            }
        )

    def pareto_document(self, metrics: Sequence[str] = ("time_ms", "error")) -> dict[str, Any]:
        """Return the document that ``mptune pareto --json`` prints.

        Raises:
            UnknownNameError: no trial has a metric of that name.
            MptuneError: fewer than two metrics, or one twice.
        """
        return json_document(
            {
                "kernel": self.kernel,
                "backend": self.info.backend,
                "device": self.info.device,
                "metrics": list(metrics),
                "minimise": self._directions(metrics, ()),
                "evaluations": self.evaluations,
                "dominated": sum(trial.is_valid for trial in self.trials) - len(self.pareto(metrics)),
                "front": [
                    {"configuration": trial.configuration, **{name: self.metric_of(trial, name) for name in metrics}}
                    | {
                        _SPEEDUP: self.speedup(trial),
                        "speedup_interval": self.speedup_interval(trial),
                        "error_draws": trial.metric("error_draws"),
                        "feasible": self.info.objective.is_feasible(trial),
                    }
                    for trial in self.pareto(metrics)
                ],
            }
        )

    def _entry(self, trial: Trial | None) -> dict[str, Any] | None:
        if trial is None:
            return None
        parts: dict[str, Any] = {}
        if self.info.is_of_application:
            times = {name: {"launches": t.launches, "time_ms": t.time_ms} for name, t in kernel_times(trial).items()}
            types = {name: str(trial.configuration.get(what, what)) for name, what in self.info.buffers.items()}
            parts = {"buffers": types, "kernels": times, "host_ms": host_ms(trial)}
            parts |= {"program_ms": whole} if math.isfinite(whole := program_ms(trial)) else {}
        verified = self.verified(trial)
        unverified = "" if verified is not None else verified_text(self, trial)
        return {
            "configuration": trial.configuration,
            "time_ms": trial.time_ms,
            _SPEEDUP: self.speedup(trial),
            "speedup_interval": self.speedup_interval(trial),
            "settled": self.is_settled(trial),
            "error": trial.error,
            "verified": None if verified is None else verified.to_json(),
            **({"not_verified": unverified} if unverified else {}),
            **parts,
            "metrics": trial.measurement.metrics,
        }


def in_short(message: str) -> str:
    """Return the first line of a message, with the first error in a compiler's output."""
    first, *others = message.strip().splitlines() or [""]
    return next((f"{first}: {line.strip()}" for line in others if _ERROR.search(line)), first)


def json_document(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Return nested values of JSON types: None for NaN and infinities, lists for tuples."""
    return {str(name): _json_safe(entry) for name, entry in values.items()}


def _json_safe(value: Any) -> Any:
    if isinstance(value, Mapping):
        return json_document(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_json_safe(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
