"""The description of a run that terminal, reports, notebooks and ``--json`` share."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from mptune.markup import Description, Fact, Table, few_names, number, pairs
from mptune.precision import PRECISIONS
from mptune.results.estimates import METRICS, gpu_of_program
from mptune.results.kernel_times import HOST, PROGRAM_HOST_MS, host_ms, kernel_times, program_ms
from mptune.results.speedup import TIE
from mptune.results.trial import Status, Trial
from mptune.results.unseen import count_of, draws_of, in_words, limit_of, unequal_draws
from mptune.space.parameters import beyond_baseline

if TYPE_CHECKING:
    from mptune.run import Run


def describe(run: Run) -> Description:
    """Return the description of a run: the winner beside the baseline, the statuses of trials, and remarks."""
    info = run.info
    second = {"best": run.best} if run.best is not None else {"closest, not feasible": run.closest}
    trials = {name: trial for name, trial in {"baseline": run.baseline, **second}.items() if trial is not None}
    if run.best is not None and run.best is run.baseline:
        trials = {"best, baseline" if info.baseline_values else "best": run.best}
    tables = (
        comparison(run, trials),
        _times(run, trials),
        _front(run, run.objective.metrics, run.trade_offs) if run.trade_offs else None,
        sources_table([[asdict(use) for use in run.state.sources]]) if run.state.sources else None,
        _failures(run),
    )
    where = " on ".join(filter(None, (run.kernel or "a run", info.backend or info.device)))
    device = f" ({info.device})" if info.backend and info.device else ""
    return Description(
        title=where + device + (f", sizes {pairs(info.sizes)}" if info.sizes else ""),
        verdict=_verdict(run),
        is_good=run.best is not None,
        facts=facts(run),
        origin=_origin(run),
        tables=tuple(table for table in tables if table is not None and table.rows),
        remarks=tuple(_remarks(run, trials)),
        warnings=run.warnings,
    )


# -- in one sentence -----------------------------------------------------------------------------


def result_text(run: Run, trial: Trial) -> str:
    """Return time, speedup and errors of a trial in one line."""
    if (gpu := run.estimated_for) is not None:
        estimated = f"{number(run.objective.value(trial))} ms, speedup {number(run.speedup(trial), 3)}x"
        return f"estimated for {gpu.name}: {estimated}; {_errors_text(run, trial)}"
    return f"{number(trial.time_ms)} ms, speedup {run.speedup_text(trial)}, {_errors_text(run, trial)}"


def _errors_text(run: Run, trial: Trial) -> str:
    if not _further_limits(run):
        return f"error {number(trial.error, 3)}"
    return ", ".join(f"{run.info.measured_by(n)} {number(trial.metric(n), 3)}" for n in run.objective.limits)


def _types_text(run: Run, trial: Trial) -> str:
    """Return the types of a trial: "fp32 everywhere", or "fp64 for a_type, fp32 for x_type, y_type, fast functions"."""
    buffers, by_type = run.info.buffers, dict[str, list[str]]()
    for name in dict.fromkeys((*(p.name for p in run.info.parameters if p.kind == "precision"), *buffers)):
        kind = buffers.get(name, str(trial.configuration.get(name)))
        if kind in PRECISIONS:
            by_type.setdefault(kind, []).append(name)
    if len(by_type) == 1:
        types = [f"{kind} everywhere" for kind in by_type]
    else:
        types = [f"{kind} for {few_names(names)}" for kind, names in by_type.items()]
    policies = {str(trial.configuration.get(p.name)): None for p in run.info.parameters if p.kind == "policy"}
    types += [f"{policy} functions" for policy in policies if policy in ("fast", "approx")]
    return ", ".join(types) or str(trial.configuration)


def _won(run: Run, best: Trial) -> str:
    objective, verified = run.info.objective, run.verified(best)
    is_speed = objective.metric == "time_ms" or run.estimated_for is not None
    others = "" if is_speed else f"{objective.metric} {number(objective.value(best))}, "
    text = f"{_types_text(run, best)}: {others}{result_text(run, best)}"
    if verified is not None:
        limit = limit_of(objective)
        return f"{text}, {f'within {limit} ' if limit else ''}on {verified.held}"
    return text + ", not verified on unseen inputs" * bool(run.state.unverified)


def _no_narrower(run: Run, best: Trial) -> str:
    """Return the verdict of a run whose winner has the baseline's types, with the closest trials; else empty."""
    fixed, objective = run.info.baseline_values or {}, run.objective
    if not fixed or not best.configuration.is_among(fixed):
        return ""
    better, most = ("faster", "fastest") if objective.is_time or run.estimated_for else ("better", "best")
    tried = [trial for trial in run.trials if not trial.configuration.is_among(fixed)]
    narrower = [trial for trial in tried if trial.is_valid]
    second = objective.best(narrower)
    surely = "surely " if objective.is_time and second is not None and run.speedup(second) > 1 else ""
    within = f" within {limits}" if (limits := run.info.limits_text()) else ""
    what = f"no narrower types were {surely}{better}{within}" if narrower else "no narrower types were tried"
    if tried and not narrower:
        what = f"none of the {len(tried)} configurations with narrower types ran"
    parts = [f"{what}: {_won(run, best)}"]
    if second is not None:
        parts.append(f"the {most} of them: {_types_text(run, second)}, {result_text(run, second)}")
    others = [trial for trial in narrower if not objective.is_feasible(trial)]
    sign = 1 if objective.minimise else -1
    faster = [t for t in others if sign * objective.value(t) < sign * objective.value(best)]
    if (closest := objective.closest(faster or others)) is not None:
        is_inaccurate = objective.error_excess(closest) > 0
        over = "over the limit" if is_inaccurate else f"against a constraint ({closest.message})"
        what = f"{better} but {over}" if faster else f"the closest to the {'limit' if is_inaccurate else 'constraints'}"
        parts.append(f"{what}: {_types_text(run, closest)}, {result_text(run, closest)}")
    return "; ".join(parts)


def _verdict(run: Run) -> str:
    closest, objective = run.closest, run.objective
    if run.best is not None:
        return _no_narrower(run, run.best) or _won(run, run.best)
    if not run.trials:
        return f"nothing was evaluated: {run.state.ended}" if run.state.ended else "no trial yet"
    if closest is None:
        return f"none of {len(run.trials)} configurations gave outputs that can be judged: {pairs(run.statuses)}"
    if closest.status is Status.VIOLATION:
        return f"no configuration satisfies every constraint; the closest: {closest.message} ({closest.configuration})"
    nearest = f"the closest has {_errors_text(run, closest)}: {closest.configuration}"
    if isinstance(objective.threshold, Mapping):
        broken = objective.binding(closest)
        nearest += f"; {run.info.measured_by(broken)} exceeds its limit of {objective.limits[broken]:g} most"
    if unstable := run.statuses.get(Status.UNSTABLE, 0):
        nearest += f"; results of {unstable} configurations differ from launch to launch: look for a race"
    fixed = run.info.baseline_values or {}
    widest = [t for t in run.trials if t.is_valid and t.configuration.is_among(fixed)]
    if fixed and widest and all(objective.error_excess(trial) > 0 for trial in widest):
        values = ((p.name, value) for p in run.info.parameters for value in p.values)
        is_widest = not any(beyond_baseline({name: value}, fixed) for name, value in values)
        least = _errors_text(run, min(widest, key=objective.error_excess))
        which = "the widest types themselves" if is_widest else "plain types"
        nearest += f"; {which} do not meet it, at best with {least}"
        if is_widest and not unstable:
            nearest += ": no types are more exact than the method is, unless template and reference disagree"
    return f"no configuration meets the threshold; {nearest}"


# -- facts ---------------------------------------------------------------------------------------


def facts(run: Run) -> tuple[Fact, ...]:
    """Return the facts of a run beside its trials, by their names in ``--json``."""
    info, objective, state = run.info, run.info.objective, run.state
    metric: str | dict[str, str] = info.metric
    if info.metrics and isinstance(objective.threshold, Mapping):
        metric = {name: info.metrics.get(name, "") for name in objective.threshold}
    of_baseline = f" ({run.baseline_evaluations} of the baseline's types)" if run.baseline_evaluations else ""
    evaluated = f"{run.evaluations} of {info.configurations:,}" if info.configurations else f"{run.evaluations}"
    evaluated += f" configurations{of_baseline}"
    spent = (f"{name} {s:.1f} s ({s / state.wall_s:.0%})" for name, s in spent_s(run).items() if state.wall_s > 0)
    return (
        Fact("kernel", run.kernel),
        Fact("backend", info.backend, info.backend or ""),
        Fact("device", info.device),
        Fact("threshold", objective.threshold, info.limits_text() or "none"),
        Fact("metric", metric),
        Fact("objective", objective.metric, objective.metric),
        Fact("objectives", objective.metrics),
        Fact("minimise", objective.minimise),
        Fact("measured_constraints", objective.constraints, " and ".join(objective.constraints)),
        Fact("sizes", info.sizes, pairs(info.sizes)),
        Fact("strategy", info.strategy, info.strategy or ""),
        Fact("seed", info.seed, "" if info.seed is None else str(info.seed)),
        Fact("budget", info.budget, str(info.budget or "")),
        Fact("evaluations", run.evaluations, evaluated),
        Fact("ended", state.ended, state.ended),
        Fact("baseline_evaluations", run.baseline_evaluations),
        Fact("feasible", run.feasible, str(run.feasible)),
        Fact("signatures", len({tuple(t.configuration.get(n) for n in info.signature) for t in run.trials})),
        Fact("statuses", run.statuses, pairs(run.statuses)),
        Fact("durations_s", run.durations_s, ", ".join(spent)),
        Fact("wall_s", state.wall_s, f"{state.wall_s:.1f} s"),
    )


def _origin(run: Run) -> tuple[Fact, ...]:
    info = run.info
    values = {
        "architecture": info.architecture,
        **info.versions,
        "workers": run.state.workers,
        "begun": info.created_at,
        "mptune": info.mptune_version,
        "definition": info.kernel_path,
        **{f"strategy {name}": value for name, value in info.strategy_options.items()},
        "observers": ", ".join(info.observers),
        "command": info.command,
    }
    return tuple(Fact(name, value, str(value)) for name, value in values.items() if value)


def spent_s(run: Run) -> dict[str, float]:
    """Return the seconds by phase, longest first; "other" comes last and includes phases below 1%."""
    seconds = {"trials cut off" if name == "lost" else name: each for name, each in run.durations_s.items() if each > 0}
    whole = math.fsum(seconds.values())
    shown = {name: each for name, each in seconds.items() if name != "other" and each >= 0.01 * whole}
    rest = whole - math.fsum(shown.values())
    return {**shown, **({"other": rest} if rest > 1e-9 * whole else {})}


# -- tables --------------------------------------------------------------------------------------


def comparison(run: Run, trials: Mapping[str, Trial]) -> Table:
    """Return the measurements, then the parameter values, of trials side by side, by the columns' names.

    Parameters of an application are followed by the buffers of that type in brackets.
    """
    info, of = run.info, list(trials.values())
    read = dict.fromkeys((*run.objective.metrics, *sorted(run.objective.names | run.objective.constraint_names)))
    others = [metric for metric in read if metric not in ("time_ms", "error", "memory_bytes")]
    estimated = {metric: f"estimated for {gpu.name} (ms)" for metric, gpu in METRICS.items()}
    # Measured times of a run that is judged by an estimate are apart from the estimated speedup.
    time = "time of the kernels" if any(map(_is_of_program, of)) else "time"
    where = " on this processor" if run.estimated_for is not None else ""
    times: list[tuple[object, ...]] = [(f"{time}{where} (ms)", *(number(t.time_ms) for t in of))]
    if any(map(_is_of_program, of)):
        times.append((f"time of the whole program{where} (ms)", *(number(program_ms(t)) for t in of)))
    measures = {info.measured_by(name): name for name in run.metric_names if name.startswith("error.")}
    rows: list[tuple[object, ...]] = [
        *((estimated.get(metric, metric), *(number(run.metric_of(t, metric)) for t in of)) for metric in others),
        *(() if where else times),
        ("speedup", *map(run.speedup_text, of)),
        ("error", *(number(t.error, 3) for t in of)),
        *((called, *(number(t.metric(n), 3) for t in of)) for called, n in measures.items() if len(measures) > 1),
        ("memory (MB)", *(number(t.metric("memory_bytes") / 1e6) for t in of)),
        *(times if where else ()),
    ]
    for name in dict.fromkeys((*run.parameter_names, *(what for what in info.buffers.values() if what in PRECISIONS))):
        buffers = info.buffers_of(name)
        called = f"{name} ({few_names(buffers)})" if buffers else name
        rows.append((called, *(t.configuration.get(name, name if buffers else None) for t in of)))
    return Table(("", *trials), tuple(rows) if trials else ())


def _is_of_program(trial: Trial) -> bool:
    """Whether a trial ran an adopted program."""
    return math.isfinite(program_ms(trial))


def _host_ms(trial: Trial) -> float:
    """Return the time of a run beside its kernels in ms."""
    return trial.metric(PROGRAM_HOST_MS) if _is_of_program(trial) else host_ms(trial)


def _further_limits(run: Run) -> list[str]:
    """Return the names of the errors with a threshold that are not ``error`` by another name."""
    return [n for n in run.objective.limits if n != "error" and run.info.measured_by(n) != run.info.metric]


def _times(run: Run, trials: Mapping[str, Trial]) -> Table | None:
    known = {name: times for name, trial in trials.items() if (times := kernel_times(trial))}
    if not known or not run.info.is_of_application:
        return None
    whole = "whole program" if any(map(_is_of_program, trials.values())) else "all"
    shown: dict[str, dict[str, tuple[object, ...]]] = {}
    parts: dict[str, tuple[float, object]]
    for name, times in known.items():
        parts = {kernel: (each.time_ms, each.launches) for kernel, each in times.items()}
        parts[HOST] = (_host_ms(trials[name]), "-")
        total = math.fsum(ms for ms, _ in parts.values())
        parts[whole] = (total, sum(each.launches for each in times.values()))
        shares = {row: f"{ms / total:.0%}" if total > 0 else "-" for row, (ms, _) in parts.items()}
        shown[name] = {row: (number(ms), shares[row], launches) for row, (ms, launches) in parts.items()}
    names = dict.fromkeys((*(kernel for times in known.values() for kernel in times), HOST, whole))
    rows = ((name, *(cell for cells in shown.values() for cell in cells.get(name, ("-",) * 3))) for name in names)
    columns = tuple(column for name in shown for column in (f"{name} (ms)", "share", "launches"))
    where = " on this processor" if run.estimated_for is not None else ""
    return Table((f"time of a run{where}", *columns), tuple(rows))


def _front(run: Run, metrics: Sequence[str], trials: Sequence[Trial]) -> Table:
    limits = _further_limits(run) if "error" in metrics else ()
    numbers = tuple(dict.fromkeys((*metrics, *limits, "speedup")))
    is_limited = run.info.objective.threshold is not None or bool(run.objective.constraints)
    is_tried = any(map(run.verified, trials))
    rows = []
    for trial in trials:
        row: dict[str, object] = {name: number(run.metric_of(trial, name)) for name in numbers}
        row["speedup"] = run.speedup_text(trial, short=True)
        if is_limited and trials is not run.trade_offs:
            row["feasible"] = "yes" if run.objective.is_feasible(trial) else "no"
        if is_tried:
            verified = run.verified(trial)
            row["unseen"] = f"{verified.inputs - verified.violations} of {verified.inputs}" if verified else "-"
        rows.append({**row, **{name: trial.configuration.get(name) for name in run.parameter_names}})
    title = f"front: {len(trials)} of {run.feasible} feasible configurations; no other is better in every objective"
    return Table.of(rows, title * (trials is run.trade_offs), len(run.parameter_names))


def sources_table(runs: Sequence[Sequence[Mapping[str, Any]]]) -> Table:
    """Return the use of the same sources in one or several runs, with their final weights."""
    rows = []
    for uses in zip(*runs, strict=True):
        first, weights = uses[0], sorted(use["weight"] for use in uses)
        ends = dict.fromkeys(f"{weight:.2f}" for weight in (weights[0], weights[-1]))
        row = {"source": first["source"], "trials used": first["trials"], "weight": " to ".join(ends)}
        rows.append({**row, "parameters in common": ", ".join(first["parameters"])})
    return Table.of(rows)


def _failures(run: Run) -> Table:
    groups, most = run.failure_groups, 8
    rows: list[tuple[object, ...]] = [(g.status, g.count, shorten(g.message, 1000)) for g in groups[:most]]
    if others := groups[most:]:
        rows.append(("others", sum(group.count for group in others), f"{len(others)} other kinds of failure"))
    return Table(("failure", "trials", "message"), tuple(rows))


def compare_runs(runs: Mapping[str, Run | None]) -> Table:
    """Return a row for each run by name; None stands for a run that has not begun."""
    known = [run for run in runs.values() if run is not None]
    same = [name for name in ("kernel", "device", "strategy") if len({getattr(run.info, name) for run in known}) == 1]
    metric = known[0].info.objective.metric if known else "time_ms"
    unit = "time (ms)" if metric == "time_ms" else metric
    rows = []
    for label, run in runs.items():
        row = dict.fromkeys(("run", "kernel", "device", "strategy", "evaluations", "feasible"), "-") | {"run": label}
        row |= dict.fromkeys((f"baseline {unit}", f"best {unit}", "speedup", "error", "configuration"), "-")
        if run is not None:
            row |= {"kernel": run.kernel, "device": run.info.device, "strategy": run.info.strategy}
            row |= {"evaluations": str(run.evaluations), "feasible": str(run.feasible)}
            if run.baseline is not None and run.info.baseline_values:
                row[f"baseline {unit}"] = number(run.metric_of(run.baseline, metric))
            if (best := run.best) is not None:
                row |= {f"best {unit}": number(run.metric_of(best, metric)), "error": number(best.error, 3)}
                row |= {"speedup": run.speedup_text(best, short=True), "configuration": str(best.configuration)}
        rows.append({name: cell for name, cell in row.items() if name not in same})
    return Table.of(rows)


# -- remarks -------------------------------------------------------------------------------------


def _remarks(run: Run, trials: Mapping[str, Trial]) -> Iterator[str]:
    info, objective = run.info, run.info.objective
    if run.ending and run.evaluations:
        yield run.ending
    if objective.also:
        ties = " (of ties, the simplest)" if objective.is_time else ""
        yield f"objectives {', '.join(objective.metrics)}, all minimised; best has the lowest {objective.metric}{ties}"
    elif (objective.metric != "time_ms" or not objective.minimise) and run.estimated_for is None:
        yield f"objective {objective.metric}, {'minimised' if objective.minimise else 'maximised'}"
    for metric in sorted(objective.names | objective.constraint_names):
        if (gpu := METRICS.get(metric)) is not None:
            rates = f"counted operations and bytes over rates of the {gpu.name} ({gpu.source})"
            if gpu is run.estimated_for:
                yield f"time and speedup are estimated: {rates}; tune --for host ranks by this processor's times"
            else:
                yield f"{metric} is an estimate: {rates}; time and speedup are this machine's"
    if info.backend == "host" and objective.is_time and (name := gpu_of_program(info.adopted)):
        yield f"times are this processor's, and a GPU may favour other types: --for {name} ranks them by an estimate"
    if objective.constraints:
        yield f"constraints: {' and '.join(objective.constraints)}"
    if run.baseline is None and run.why_no_baseline:
        yield f"no speedup is known: {run.why_no_baseline}"
    for trial in trials.values():
        if run.baseline is not None and trial.time_ms > 0 and run.speedup_interval(trial) is not None:
            of_times = run.baseline.time_ms / trial.time_ms
            if not 1 / (1 + TIE) <= of_times / run.speedup(trial) <= 1 + TIE:
                what = "the median of rounds in which both took turns, not the ratio of the times"
                yield f"the speedup is {what} ({of_times:.3g})"
                break
    for name, trial in list(trials.items())[-1:] if info.is_of_application else ():
        whole_ms = program_ms(trial) if _is_of_program(trial) else trial.time_ms
        share = _host_ms(trial) / whole_ms if kernel_times(trial) and whole_ms > 0 else 0.0
        if run.estimated_for is not None:
            launches = sum(each.launches for each in kernel_times(trial).values())
            if share > 0.9 or objective.value(trial) < 0.01 * launches:
                yield "the estimate leaves out launches and copies, which may take most of this program's time on a GPU"
        elif share > 0.5:
            yield (
                f"{share:.0%} of the time of {name} is between launches, which types cannot change: a larger size "
                "would show more of what they do"
            )
    yield from (f"{name}: {text}" for name, trial in trials.items() if (text := verified_text(run, trial)))
    yield from _better_but_fragile(run)
    yield from (f"{use.source}: {use.remark}" for use in run.state.sources if use.remark)
    yield from _not_compiled(run)


def verified_text(run: Run, trial: Trial) -> str:
    """Return the verification of a trial in words, or why there is none; empty where neither is known."""
    if text := in_words(trial, run.info.objective):
        but = "; the warnings say what errors leave out" if run.info.caveats else ""
        return text + but + why_fewer(run, trial)
    if not run.state.unverified or not run.info.objective.is_feasible(trial):
        return ""
    draws = draws_of(trial)
    seen = "the one input" if draws == 1 else f"the {draws} inputs"
    return (
        f"NOT verified on any unseen input ({run.state.unverified}): nothing is known of its error beyond {seen} "
        "of the search"
    )


def why_fewer(run: Run, trial: Trial) -> str:
    """Return why a reported trial was verified on fewer unseen inputs than requested; else empty."""
    is_reported = any(trial.configuration == other.configuration for other in run.reported)
    if not is_reported or not 0 < count_of(trial, "unseen_inputs") < run.state.verify_wanted:
        return ""
    return "; more would have taken over a quarter of the run (mptune verify adds some)"


def _better_but_fragile(run: Run) -> Iterator[str]:
    sign = 1 if run.objective.minimise else -1
    value = {i: sign * run.objective.value(t) for i, t in enumerate(run.trials, 1) if t.status is Status.FRAGILE}
    i = min((i for i in value if math.isfinite(value[i])), key=value.__getitem__, default=0)
    if i and (run.best is None or value[i] < sign * run.objective.value(run.best)):
        trial = run.trials[i - 1]
        yield (
            f"better but fragile: trial {i}, {number(trial.time_ms)} ms; {trial.message} "
            f"(mptune verify --configuration {i} says on which)"
        )


def _not_compiled(run: Run) -> Iterator[str]:
    groups = [group for group in run.failure_groups if group.status is Status.COMPILE_ERROR]
    failed = sum(group.count for group in groups)
    if 2 * failed > len(run.trials):
        kernel = re.search(r"\b(\w+)\.cu\.j2:\d+", groups[0].message)
        place = kernel and run.info.place_in_program(kernel[1])
        yield (
            f"{failed} of {len(run.trials)} configurations do not compile, so that most types and sizes were never "
            f"tried; the first: {groups[0].message}{f' (made of {place})' if place else ''}"
        )


# -- fronts --------------------------------------------------------------------------------------


def describe_front(run: Run, metrics: Sequence[str]) -> Description:
    """Return the description of a front: its trials, and remarks."""
    trials = run.pareto(metrics)
    valid = sum(trial.is_valid for trial in run.trials)
    without = len(run.trials) - valid
    remarks = [
        f"{len(trials)} on the front, {valid - len(trials)} dominated" + f", {without} without numbers" * (without > 0)
    ]
    if text := unequal_draws(metrics, trials):
        remarks.append(text)
    if unverified := sum(run.verified(trial) is None for trial in trials):
        which = "none of these was" if unverified == len(trials) else f"{unverified} of {len(trials)} were not"
        cannot_be = run.state.unverified.startswith("none could be made")
        how = "" if cannot_be else ": mptune verify --configuration does that"
        remarks.append(f"{which} verified on unseen inputs{how}")
    best, objective = run.best, run.objective.metric
    if best is not None and {objective, "error"} <= set(metrics) and best not in trials:
        remarks.append(
            f"the best ({objective} {number(run.metric_of(best, objective))}, error {number(best.error)}) is not among "
            "them: it is the simplest of the trials that the finals tie"
        )
    return Description(run.kernel, tables=(_front(run, metrics, trials),), remarks=tuple(remarks))
