"""What tuning the kernels of an application together is worth, at the same error of its answer.

    python benchmarks/applications.py [--applications bbac,...] [--parts ways,enumerated] [--seeds 5] [--resume]

``ways``: each application is tuned in four ways, with as many evaluations each (a kernel alone counts as much as a run
of the application), at the same size and with the same flags:

- fp64: in the widest types; its winner is what speedups are against.
- fp32: everything in fp32. Where that breaks the threshold the application stays as it is, which counts as 1.
- alone: one kernel after the other, with an equal share of the evaluations and of the threshold; see :func:`alone`.
- joint: what ``mptune tune`` does.

The four are then run in turn in one process, and their errors are measured on inputs that no search has drawn.
``enumerated``: a cut-down ``bbac`` is evaluated in all its configurations. How far from the fastest accurate one is
what a joint search finds with a tenth of the application runs?

What is found is kept beside the page as JSON after each application and seed; ``--resume`` goes on from there.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from mptune.backends.host_compiler import find_compiler  # noqa: E402
from mptune.backends.processor import processor, usable_cores  # noqa: E402
from mptune.data import Draw, Stream  # noqa: E402
from mptune.errors import EmptySpaceError, MptuneError, UnknownNameError  # noqa: E402
from mptune.kernel import Application  # noqa: E402
from mptune.kernel.limits import space_on  # noqa: E402
from mptune.measure.device import DeviceEvaluator  # noqa: E402
from mptune.measure.rounds import Turns  # noqa: E402
from mptune.measure.timing import TimingPlan  # noqa: E402
from mptune.precision import precision  # noqa: E402
from mptune.results.objective import Objective  # noqa: E402
from mptune.results.speedup import Ratio  # noqa: E402
from mptune.results.trial import Status, Trial  # noqa: E402
from mptune.run import Run, json_document  # noqa: E402
from mptune.source.loading import load_tunable  # noqa: E402
from mptune.space.configuration import Configuration, Value  # noqa: E402
from mptune.space.parameters import PrecisionParameter, baseline_values, uniform_types  # noqa: E402
from mptune.space.search_space import SearchSpace  # noqa: E402
from mptune.strategies import make  # noqa: E402
from mptune.tuning import TuneSettings, tune  # noqa: E402
from mptune.tuning.plan import TuningPlan  # noqa: E402
from mptune.tuning.session import Session  # noqa: E402

PAGE: Final = ROOT / "benchmarks" / "results" / "applications.md"
WAYS: Final = ("fp32", "alone", "joint")
TARGETS: Final = {"joint": 1.2, "least": 0.98, "distance": 0.01, "runs": 0.1, "overhead": 0.1}
#: How often configurations are launched while they are searched, as tune launches them.
_TIMING: Final = TimingPlan(min_repeats=3, max_repeats=7, confidence=0.75)
#: Rounds in which the configurations of all ways take turns.
_ROUNDS: Final = 15
#: Inputs on which ways are judged: those of the search and those that tune verifies on; and inputs nobody has drawn.
_JUDGED: Final = (*(Draw(number=number) for number in range(3)), *(Draw(Stream.UNSEEN, n) for n in range(10)))
_FRESH: Final = tuple(Draw(Stream.UNSEEN, 1000 + number) for number in range(20))
#: So many configurations are looked at for a wide one.
_SAMPLE: Final = 500
#: So many of the fastest configurations of an enumeration take turns.
_FASTEST: Final = 12


@dataclass(frozen=True, slots=True)
class Case:
    """An application at a size.

    Attributes:
        sizes: those that differ from the default preset's.
        max_error: what the error of its answer may be.
        why: why that threshold, for the page.
    """

    sizes: Mapping[str, int]
    max_error: float | Mapping[str, float]
    why: str


CASES: Final[Mapping[str, Case]] = {
    "bbac": Case(
        {"cells": 60_013},
        2e-2,
        "an NMI of at least 0.98. fp32 gives the same clusters as fp64; fp16 everywhere does not keep it.",
    ),
    "conjugate_gradient": Case(
        {"nx": 32, "ny": 32, "nz": 32, "digits": 7},
        1e-6,
        "iterations stop at half of 1e-7, so that a quarter of the threshold can be kept. fp32 everywhere breaks it; "
        "corrections in narrow types, with residuals in fp64, do not.",
    ),
    "shallow_water": Case(
        {"width": 320, "height": 240},
        {"NRMSE": 3e-4, "mass_drift": 1e-6},
        "fp32 keeps both; fluxes and momenta may be fp16, surface and bed may not.",
    ),
}
#: The cut-down bbac: 72 combinations of types, 8 of the other parameters.
CUT: Final[Mapping[str, tuple[Value, ...]]] = {
    "data_type": ("fp64", "fp32", "fp16"),
    "sum_type": ("fp64", "fp32"),
    "centre_type": ("fp64", "fp32"),
    "distance_type": ("fp64", "fp32"),
    "update.distance_type": ("fp64", "fp32", "fp16"),
    "statistics.block_size": (1,),
    "statistics.run": (8, 32),
    "year_distances.block_size": (1,),
    "year_distances.run": (8, 32),
    "update.block_size": (64,),
    "update.run": (8, 32),
}


def application_of(name: str) -> Application:
    """Return a bundled application."""
    found = load_tunable(name)
    assert isinstance(found, Application)
    return found


# -- what is judged how ----------------------------------------------------------------------------


def share_of(max_error: float | Mapping[str, float], count: int) -> float | dict[str, float]:
    """Return an equal share of a threshold, or of each of several."""
    if isinstance(max_error, Mapping):
        return {name: limit / count for name, limit in max_error.items()}
    return max_error / count


def evaluations_of(budget: int, count: int) -> int:
    """Return how many evaluations each kernel has for itself.

    All begin with one run in fp64. Combining the winners takes a run of the application, and one more for each kernel
    that goes back but the last: after that the application is in fp64, which is known to be accurate.
    """
    return (budget - 1 - count) // count


def used(trial: Trial, objective: Objective) -> float:
    """Return which share of its limit an error takes: of several the largest; infinite for a failure."""
    if trial.status not in (Status.OK, Status.INACCURATE):
        return math.inf
    shares = [trial.metric(name) / limit for name, limit in objective.limits.items()]
    return max((math.inf if math.isnan(share) else share for share in shares), default=0.0)


def combined(
    baseline: Configuration,
    winners: Mapping[str, Trial],
    wide: Mapping[str, Trial],
    touches: Mapping[str, Set[str]],
    types: Set[str],
) -> Configuration:
    """Return the configuration made of what kernels chose alone.

    A kernel's own parameters are as it chose them. A buffer has the widest of the types that kernels which touch it
    chose: not all of them were judged with a narrower one. Choices of the steps are those of the fastest application.

    Args:
        baseline: where all began.
        winners: by kernel, the application with this kernel tuned alone.
        wide: by kernel, the same in the types of the baseline, for kernels without a winner.
        touches: by kernel, the parameters that are types of buffers it is launched on.
        types: the parameters that are types of buffers.
    """
    fastest = min(winners.values(), key=lambda trial: trial.time_ms, default=None)
    values: dict[str, Value] = {}
    for name, value in baseline.items():
        kernel, dot, _ = name.partition(".")
        if dot:
            values[name] = (winners.get(kernel) or wide[kernel]).configuration[name]
        elif name in types:
            chosen = [trial.configuration[name] for kernel, trial in winners.items() if name in touches[kernel]]
            values[name] = max(chosen, key=lambda one: precision(str(one)).significand_bits, default=value)
        else:
            values[name] = fastest.configuration[name] if fastest is not None else value
    return Configuration(values)


def fall_back(
    winners: Mapping[str, Trial],
    objective: Objective,
    combine: Callable[[Mapping[str, Trial]], Configuration],
    is_accurate: Callable[[Configuration], bool],
) -> tuple[Configuration, tuple[str, ...]]:
    """Return the combination of winners that is accurate, and the kernels that went back to fp64, in that order.

    Args:
        winners: by kernel, the application with this kernel tuned alone.
        objective: says how much error each costs.
        combine: makes a configuration of winners; of none, the baseline.
        is_accurate: runs the application.
    """
    inside, back = dict(winners), []
    while inside and not is_accurate(combine(inside)):
        back.append(max(inside, key=lambda kernel: used(inside[kernel], objective)))
        del inside[back[-1]]
    return combine(inside), tuple(back)


# -- the ways --------------------------------------------------------------------------------------


def tuned(name: str, case: Case, budget: int, seed: int, **settings: Any) -> tuple[Trial | None, dict[str, Any]]:
    """Tune an application; return the winner, and what it took."""
    thought_s = time.process_time()
    run = tune(
        name,
        backend="host",
        sizes=case.sizes,
        max_error=case.max_error,
        budget=budget,
        seed=seed,
        on_warning=lambda _: None,
        **settings,
    )
    thought_s = time.process_time() - thought_s
    return run.best, {**cost_of(run), "thought_s": thought_s}


def cost_of(run: Run) -> dict[str, Any]:
    """Return the evaluations of a run and its seconds."""
    return {"evaluations": run.evaluations, "runs": run.evaluations, "wall_s": run.state.wall_s}


def ways(name: str, case: Case, budget: int, seed: int) -> dict[str, Any]:
    """Return what each way of tuning an application finds, and how fast and accurate that is."""
    application = application_of(name)
    types = [p.name for p in application.parameters if isinstance(p, PrecisionParameter)]
    found: dict[str, Any] = {"application": name, "seed": seed, "ways": {}}
    chosen: dict[str, Configuration] = {}

    widest, cost = tuned(name, case, budget, seed, restrict=application.baseline_values(), verify=0)
    if widest is None:
        raise MptuneError(f"{name} in fp64 has an error above {case.max_error}; give it a larger threshold")
    chosen["fp64"], found["ways"]["fp64"] = widest.configuration, cost
    narrow, found["ways"]["fp32"] = tuned(name, case, budget, seed, restrict=dict.fromkeys(types, ("fp32",)), verify=0)
    chosen["fp32"] = widest.configuration if narrow is None else narrow.configuration
    chosen["alone"], found["ways"]["alone"] = alone(application, case, budget, seed)
    best, found["ways"]["joint"] = tuned(name, case, budget, seed)
    chosen["joint"] = widest.configuration if best is None else best.configuration

    with evaluator_of(application, case, seed) as (evaluator, objective):
        judged = worst(evaluator, objective, set(chosen.values()), _JUDGED)
        found["fp32_used"] = judged[chosen["fp32"]] if narrow is not None else math.inf
        if narrow is None or judged[chosen["fp32"]] > 1:
            chosen["fp32"] = chosen["fp64"]
        fresh = worst(evaluator, objective, set(chosen.values()), _FRESH)
        trials = [t for t in evaluator.evaluate(list(dict.fromkeys(chosen.values()))) if t.is_valid]
        taken = Turns(evaluator, trials)
        turns = taken.measure([trial.configuration for trial in trials], _ROUNDS)
        found["tasks_per_core"] = taken.tasks_per_core
    for way, configuration in chosen.items():
        found["ways"][way] |= {
            "configuration": dict(configuration),
            "types": types_text(configuration, types),
            "used": judged.get(configuration, 0.0),
            "fresh_used": fresh[configuration],
            "time_ms": statistics.median(times[configuration] for times in turns),
            "speedup": ratio(turns, chosen["fp64"], configuration),
            "is_baseline": configuration == chosen["fp64"],
        }
    found["joint_to_alone"] = ratio(turns, chosen["alone"], chosen["joint"])
    return found


def ratio(turns: Sequence[Mapping[Configuration, float]], slower: Configuration, faster: Configuration) -> list[float]:
    """Return how many times longer one configuration takes than another, and the ends of the 95% interval."""
    of = Ratio.of([times[slower] / times[faster] for times in turns if slower in times and faster in times])
    return [of.value, of.low, of.high]


def types_text(configuration: Configuration, names: Sequence[str]) -> str:
    """Say how many types a configuration has of each: ``2 fp64, 3 fp32``."""
    counts: dict[str, int] = {}
    for name in names:
        counts[str(configuration[name])] = counts.get(str(configuration[name]), 0) + 1
    ordered = sorted(counts, key=lambda one: -precision(one).significand_bits)
    return ", ".join(f"{counts[one]} {one}" for one in ordered)


@contextlib.contextmanager
def evaluator_of(
    application: Application, case: Case, seed: int, count: int = 1
) -> Iterator[tuple[DeviceEvaluator, Objective]]:
    """Give what evaluates an application, and the objective with its threshold or an equal share of that."""
    settings = TuneSettings(sizes=case.sizes, max_error=share_of(case.max_error, count), seed=seed)
    plan = TuningPlan.of(application, settings)
    metric = None if plan.metric is application.metric else plan.metric
    with DeviceEvaluator(
        application,
        plan.sizes,
        "host",
        metric=metric,
        seed=seed,
        plan=_TIMING,
        objective=plan.objective,
        draws=settings.inputs,
        compilers=usable_cores(),
    ) as evaluator:
        yield evaluator, plan.objective


def worst(
    evaluator: DeviceEvaluator, objective: Objective, configurations: Set[Configuration], draws: Sequence[Draw]
) -> dict[Configuration, float]:
    """Return which share of its limit the error of each configuration takes on the worst of some inputs."""
    found = dict.fromkeys(configurations, 0.0)
    for trial in evaluator.run_on_draws(list(configurations), draws).trials:
        found[trial.configuration] = max(found[trial.configuration], used(trial, objective))
    return found


def space_of(evaluator: DeviceEvaluator, application: Application, case: Case) -> SearchSpace:
    """Return the configurations of an application that are valid here."""
    return space_on(application, application.resolve_sizes("default", case.sizes), evaluator.start().facts)


def touched(evaluator: DeviceEvaluator, application: Application, space: SearchSpace) -> dict[str, set[str]]:
    """Return, by kernel, the parameters that are types of buffers it is launched on, whatever the steps choose."""
    of_buffer = {argument.name: argument.precision for argument in application.arguments}
    choices = [p for p in application.shared if not isinstance(p, PrecisionParameter)]
    found: dict[str, set[str]] = {name: set() for name in application.kernels}
    rng = np.random.default_rng(0)
    for values in itertools.product(*(parameter.values for parameter in choices)):
        try:
            part = space.restrict({p.name: (value,) for p, value in zip(choices, values, strict=True)})
        except EmptySpaceError:
            continue
        # In wide types the steps come to all of their launches.
        widest = max(part.configurations(part.sample(min(_SAMPLE, part.size), rng)), key=bits)
        for launched in evaluator.launches(widest):
            precisions = {of_buffer[buffer] for _, buffer in launched.buffers}
            found[launched.kernel] |= {str(name) for name in precisions if name in space.names}
    return found


def bits(configuration: Configuration) -> int:
    """Return how many bits the significands of all types of a configuration have."""
    total = 0
    for value in configuration.values():
        with contextlib.suppress(MptuneError):
            total += precision(str(value)).significand_bits
    return total


def alone(application: Application, case: Case, budget: int, seed: int) -> tuple[Configuration, dict[str, Any]]:
    """Tune each kernel within the application, the others in fp64; combine what is found.

    Of a kernel's turn are its own parameters, the types of the buffers it is launched on, and the choices of the steps;
    everything else is as where a joint search begins, too: in the widest types, nothing tuned. Each evaluation is a run
    of the application: first everything that is open in one type, then what Bayesian search proposes. Its error is to
    be at most an equal share of the threshold. A kernel that goes back to fp64 is as its own search found it fastest
    in fp64.
    """
    start = time.monotonic()
    names = list(application.kernels)
    share = evaluations_of(budget, len(names))
    winners: dict[str, Trial] = {}
    wide: dict[str, Trial] = {}
    found: dict[str, Any] = {"kernels": {}, "evaluations": 1}
    with evaluator_of(application, case, seed, len(names)) as (evaluator, part):
        space = space_of(evaluator, application, case)
        touches = touched(evaluator, application, space)
        types = {str(a.precision) for a in application.arguments if a.precision in space.names}
        choices = {p.name for p in application.shared if not isinstance(p, PrecisionParameter)}
        baseline = untuned(space, choices)
        types_of_all = (p.name for p in application.parameters if isinstance(p, PrecisionParameter))
        numeric = (*choices, *types_of_all)
        known = next(evaluator.evaluate([baseline]))
        for kernel in names:
            is_open = {n for n in space.names if n.startswith(f"{kernel}.")} | touches[kernel] | choices
            own = space.restrict({n: (baseline[n],) for n in space.names if n not in is_open})
            trials = search(evaluator, own, part, application, known, share, seed)
            found["evaluations"] += len(trials) - 1
            best = part.best(trials)
            if best is not None and best.configuration != baseline:
                winners[kernel] = best
                found["kernels"][kernel] = {"speedup": known.time_ms / best.time_ms, "used": used(best, part)}
            in_fp64 = [t for t in trials if t.is_valid and t.configuration.subset(numeric) == baseline.subset(numeric)]
            wide[kernel] = min(in_fp64, key=lambda trial: trial.time_ms)
    with evaluator_of(application, case, seed) as (evaluator, objective):

        def is_accurate(configuration: Configuration) -> bool:
            if configuration.subset(numeric) == baseline.subset(numeric):
                return True
            found["evaluations"] += 1
            return configuration in space and worst(evaluator, objective, {configuration}, _JUDGED)[configuration] <= 1

        configuration, back = fall_back(
            winners, objective, lambda inside: combined(baseline, inside, wide, touches, types), is_accurate
        )
    return configuration, found | {
        "back": back,
        "runs": found["evaluations"],
        "wall_s": time.monotonic() - start,
    }


def untuned(space: SearchSpace, choices: Set[str]) -> Configuration:
    """Return where searches of applications begin: the widest types, the first choices, the rest in the middle."""
    wide = space.restrict(baseline_values(space.parameters))
    first = wide.restrict({name: wide.parameter(name).values[:1] for name in choices})
    return first.configuration(first.size // 2)


def search(
    evaluator: DeviceEvaluator,
    space: SearchSpace,
    objective: Objective,
    application: Application,
    known: Trial,
    count: int,
    seed: int,
) -> list[Trial]:
    """Return the trials of a search of so many evaluations, after that of the baseline."""
    objective = objective.with_baseline(objective.value(known))
    strategy = make("bayesian", space, objective, signature=application.signature_names, seed=seed)
    session = Session(evaluator, objective)
    strategy.tell([session.keep(known)])
    types = uniform_types(space.parameters).values()
    uniform = [Configuration({**known.configuration, **each}) for each in types]
    waiting = [each for each in uniform if each in space and each != known.configuration]

    def ask(wanted: int) -> Sequence[Configuration]:
        first, waiting[:] = waiting[:wanted], waiting[wanted:]
        return first or strategy.ask(wanted)

    session.evaluate(count + 1, ask, strategy.tell)
    return list(session.trials.values())


# -- a space that is known altogether --------------------------------------------------------------


def enumerated(case: Case, budget: int, seed: int) -> dict[str, Any]:
    """Return how far from the best of a cut-down bbac a joint search ends, and how many runs each of both took."""
    application = application_of("bbac")
    start = time.monotonic()
    with evaluator_of(application, case, seed) as (evaluator, objective):
        space = space_of(evaluator, application, case).restrict(CUT)
        trials = [objective.judge(trial) for trial in evaluator.evaluate(space.configurations(range(space.size)))]
    enumeration_s = time.monotonic() - start
    best, cost = tuned("bbac", case, budget, seed, restrict=CUT)
    accurate = sorted((t for t in trials if objective.is_feasible(t)), key=lambda trial: trial.time_ms)
    finalists = {trial.configuration: trial for trial in accurate[:_FASTEST]}
    if best is not None:
        finalists[best.configuration] = best
    with evaluator_of(application, case, seed) as (evaluator, objective):
        judged = worst(evaluator, objective, set(finalists), _JUDGED)
        trials_again = list(evaluator.evaluate([c for c in finalists if judged[c] <= 1]))
        turns = Turns(evaluator, trials_again).measure([trial.configuration for trial in trials_again], _ROUNDS)
    times = {t.configuration: statistics.median(turn[t.configuration] for turn in turns) for t in trials_again}
    optimum = min(times, key=lambda configuration: times[configuration])
    is_found = best is not None and best.configuration in times
    return {
        "seed": seed,
        "configurations": space.size,
        # What has types that are known to be inaccurate was not run.
        "enumeration_runs": sum(bool(trial.measurement.times_ms) for trial in trials),
        "enumeration_s": enumeration_s,
        "accurate": len(accurate),
        "optimum_ms": times[optimum],
        "distance": ratio(turns, best.configuration, optimum) if best is not None and is_found else None,
        **cost,
    }


# -- the page --------------------------------------------------------------------------------------


def mean(values: Sequence[float]) -> float:
    """Return the geometric mean, NaN of nothing."""
    return statistics.geometric_mean(values) if values else math.nan


def speedup_of(entry: Mapping[str, Any], way: str) -> float:
    """Return the speedup of a way; of what stays in fp64 it is 1."""
    of = entry["ways"][way]
    return 1.0 if of["is_baseline"] else float(of["speedup"][0])


def gain_over_fp64(entry: Mapping[str, Any]) -> float:
    """Return joint beside alone, or beside the tuned fp64 where alone ends slower than that."""
    times = {way: float(of["time_ms"]) for way, of in entry["ways"].items()}
    return min(times["alone"], times["fp64"]) / times["joint"]


def summary(entries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return what is compared with the targets: joint beside alone, and the search's share of the wall time."""
    gains = [float(entry["joint_to_alone"][0]) for entry in entries]
    joint = [entry["ways"]["joint"] for entry in entries]
    return {
        **{way: mean([speedup_of(entry, way) for entry in entries]) for way in WAYS},
        "gain": mean(gains),
        "least": min(gains, default=math.nan),
        "at_least": mean([gain_over_fp64(entry) for entry in entries]),
        "overhead": sum(of["thought_s"] for of in joint) / max(1e-9, sum(of["wall_s"] for of in joint)),
        "broken": sum(or_inf(entry["ways"][way]["fresh_used"]) > 1 for entry in entries for way in WAYS),
    }


def verdict(is_met: bool) -> str:
    """Say whether a target is met."""
    return "met" if is_met else "missed"


def or_inf(number: float | None) -> float:
    """Return a number as it was before it was written to a file, which has no infinite ones."""
    return math.inf if number is None else number


def of_limit(number: float | None) -> str:
    """Say which share of its limit an error takes; that of a failure is none."""
    return "none" if number is None or math.isinf(number) else f"{number:.2g}"


def interval(values: Sequence[float]) -> str:
    """Say a ratio with its interval."""
    value, low, high = values
    return f"{value:.2f} ({low:.2f} to {high:.2f})" if low != high else f"{value:.2f}"


def markdown(document: Mapping[str, Any]) -> str:
    """Return the results as a page."""
    lines = ["# Whole applications", ""]
    entries = list(document["ways"].values())
    if entries:
        lines += _ways_lines(entries, document)
    if not entries and not document["enumerated"]:
        return "\n".join([*lines, "Not measured yet: `python benchmarks/applications.py` writes this page.", ""])
    if document["enumerated"]:
        lines += _enumerated_lines(list(document["enumerated"].values()), document)
    lines += [f"Machine: {document['machine']}. Commands: {', '.join(f'`{c}`' for c in document['commands'])}."]
    return "\n".join(lines) + "\n"


def _ways_lines(entries: Sequence[Mapping[str, Any]], document: Mapping[str, Any]) -> list[str]:
    names = list(dict.fromkeys(entry["application"] for entry in entries))
    total = summary(entries)
    tasks = [entry["tasks_per_core"] for entry in entries]
    busy = "an unknown number of" if None in tasks else f"{statistics.fmean(tasks):.1f}"
    wall_min = sum(entry["took_s"] for entry in entries) / 60
    lines = [
        f"Each application is tuned in four ways with {document['budget']} evaluations each; a kernel evaluated alone "
        "counts as much as a run of the application.",
        "",
        "- *fp64*: in the widest types, which is what speedups are against.",
        "- *fp32*: everything in fp32. Where that breaks the threshold the application stays in fp64, a speedup of 1.",
        "- *alone*: each of the k kernels is tuned by runs of the application, the others in fp64 and not tuned, which "
        "is where joint begins, too, with an equal share of the evaluations and 1/k of the threshold. Its own "
        "parameters, the types of all buffers it is launched on and the choices of the steps may change; own variables "
        "of other kernels stay fp64. The winners are combined, a buffer in the widest type that kernels which touch it "
        "chose, and while the combination breaks the threshold, or cannot be launched, the kernel that costs most "
        "error goes back to fp64, as its search found it fastest there.",
        "- *joint*: what `mptune tune` does.",
        "",
        f"What the ways found takes turns, as whole applications in one process, in {_ROUNDS} rounds. fp32 and "
        f"combinations are judged on {len(_JUDGED)} inputs; joint winners are those that `mptune tune` has verified. "
        f"It took {wall_min:.0f} minutes. While they took turns {busy} other tasks wanted each core; of many, "
        "times mean little.",
        "",
        "| geometric means | fp32 | alone | joint | joint beside alone | the least of that |",
        "|---|---|---|---|---|---|",
    ]
    for name in names:
        part = summary([entry for entry in entries if entry["application"] == name])
        lines.append(_mean_row(name, part))
    lines += [
        _mean_row("all", total),
        "",
        f"- joint beside alone, geometric mean: {total['gain']:.3f} (target ≥ {TARGETS['joint']:g}: "
        f"{verdict(total['gain'] >= TARGETS['joint'])})",
        f"- where alone ends slower than fp64 tuned as a whole, which nobody would take, beside that instead: "
        f"{total['at_least']:.3f}",
        f"- the least of joint beside alone: {total['least']:.3f} (target ≥ {TARGETS['least']:g}: "
        f"{verdict(total['least'] >= TARGETS['least'])})",
        f"- processor time of the process that searches, of the wall time of joint: {total['overhead']:.1%} (target ≤ "
        f"{TARGETS['overhead']:.0%}: {verdict(total['overhead'] <= TARGETS['overhead'])})",
        f"- configurations that break their threshold on one of {len(_FRESH)} inputs which no search and no "
        f"verification had: {total['broken']:.0f} of {len(WAYS) * len(entries)}",
        "",
        "| application | size | threshold | why |",
        "|---|---|---|---|",
    ]
    lines += [_case_row(name, document) for name in names]
    lines += [
        "",
        "Errors as shares of their limits, the worst of the inputs judged on and the worst of fresh ones; evaluations "
        "and, of these, runs of the application. Speedups have 95% intervals.",
        "",
        "| application, seed | way | speedup | types | error | fresh | evaluations, runs | went back | wall s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [row for entry in entries for row in _rows(entry)]
    return [*lines, ""]


def _mean_row(name: str, part: Mapping[str, float]) -> str:
    means = " | ".join(f"{part[way]:.2f}" for way in (*WAYS, "gain", "least"))
    return f"| {name} | {means} |"


def _case_row(name: str, document: Mapping[str, Any]) -> str:
    case = document["cases"][name]
    limit = case["max_error"]
    text = ", ".join(f"{n} {v:g}" for n, v in limit.items()) if isinstance(limit, Mapping) else f"{limit:g}"
    size = ", ".join(f"{n}={v}" for n, v in case["sizes"].items())
    return f"| {name} | {size} | {text} | {CASES[name].why} |"


def _rows(entry: Mapping[str, Any]) -> list[str]:
    rows = []
    for way in ("fp64", *WAYS):
        of = entry["ways"][way]
        error = or_inf(entry["fp32_used"] if way == "fp32" else of["used"])
        stays = " (breaks it)" if way == "fp32" and error > 1 else ""
        speed = "1" if way == "fp64" else interval(of["speedup"]) if not of["is_baseline"] else "1 (stays in fp64)"
        back = ", ".join(of.get("back", ())) or "-"
        rows.append(
            f"| {entry['application']}, {entry['seed']} | {way} | {speed} | {of['types']} | {of_limit(error)}{stays} | "
            f"{of_limit(of['fresh_used'])} | {of['evaluations']}, {of['runs']} | {back} | {of['wall_s']:.0f} |"
        )
    return rows


def _enumerated_lines(entries: Sequence[Mapping[str, Any]], document: Mapping[str, Any]) -> list[str]:
    distances = [entry["distance"][0] - 1 if entry["distance"] else math.inf for entry in entries]
    middle = statistics.median(distances)
    shares = [entry["runs"] / entry["enumeration_runs"] for entry in entries]
    lines = [
        "## A space that is known altogether",
        "",
        f"bbac with {entries[0]['configurations']} configurations, all evaluated, and searched jointly with "
        f"{document['budget']} evaluations. The fastest accurate ones and what the search found take turns.",
        "",
        "| seed | runs of the enumeration | s | runs of the search | s | time beside the best |",
        "|---|---|---|---|---|---|",
    ]
    for entry in entries:
        found = interval(entry["distance"]) if entry["distance"] else "nothing accurate"
        lines.append(
            f"| {entry['seed']} | {entry['enumeration_runs']} | {entry['enumeration_s']:.0f} | {entry['runs']} | "
            f"{entry['wall_s']:.0f} | {found} |"
        )
    lines += [
        "",
        f"- slower than the best of all by {middle:.1%} in the median, at most {max(distances):.1%} (target ≤ "
        f"{TARGETS['distance']:.0%}: {verdict(middle <= TARGETS['distance'])} in the median, "
        f"{verdict(max(distances) <= TARGETS['distance'])} at most)",
        f"- with at most {max(shares):.1%} of the runs of the application (target ≤ {TARGETS['runs']:.0%}: "
        f"{verdict(max(shares) <= TARGETS['runs'])})",
        "",
    ]
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when it ended well, 2 for wrong input."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        document = run(parser().parse_args(given), given)
    except MptuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(markdown(document))
    return 0


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--applications", default=",".join(CASES), metavar="NAME,...")
    found.add_argument("--parts", default="ways,enumerated", metavar="PART,...", help="ways, enumerated")
    found.add_argument("--seeds", type=int, default=5, help="so many, from 0")
    found.add_argument("--budget", type=int, default=60, help="evaluations of each way")
    found.add_argument("--size", action="append", default=[], metavar="APPLICATION:NAME=VALUE", help="a size")
    found.add_argument("--output", type=Path, default=PAGE, help="write the page to this file, the figures beside it")
    found.add_argument("--resume", action="store_true", help="keep what the figures beside the page have")
    return found


def run(options: argparse.Namespace, given: Sequence[str]) -> dict[str, Any]:
    """Measure what is asked for, write page and figures after each piece, and return the figures.

    Raises:
        MptuneError: something that was given is wrong.
    """
    names, parts = options.applications.split(","), options.parts.split(",")
    for kind, chosen, known in (("application", names, CASES), ("part", parts, ("ways", "enumerated"))):
        for name in chosen:
            if name not in known:
                raise UnknownNameError(kind, name, known)
    if options.seeds < 1 or options.budget < 1:
        raise MptuneError("--seeds and --budget: expected at least 1")
    cases = {name: with_sizes(name, options.size) for name in CASES}
    kept = options.output.with_suffix(".json")
    document: dict[str, Any] = {
        "machine": f"{processor().name}, {usable_cores()} of {os.cpu_count()} cores, {find_compiler().version}",
        "commands": [],
        "budget": options.budget,
        "cases": {name: {"sizes": dict(case.sizes), "max_error": case.max_error} for name, case in cases.items()},
        "ways": {},
        "enumerated": {},
    }
    if options.resume and kept.exists():
        before = json.loads(kept.read_text())
        if any(before[name] != document[name] for name in ("budget", "cases")):
            raise MptuneError(f"{kept} has another budget or other cases: leave out --resume, or give another --output")
        document |= {name: before[name] for name in ("commands", "ways", "enumerated")}
    command = shlex.join(["python", "benchmarks/applications.py", *given])
    document["commands"] = list(dict.fromkeys([*document["commands"], command]))
    jobs: list[tuple[str, str, Callable[[int, int], dict[str, Any]]]] = []
    if "ways" in parts:
        jobs += [("ways", name, functools.partial(ways, name, cases[name])) for name in names]
    if "enumerated" in parts:
        jobs.append(("enumerated", "bbac", functools.partial(enumerated, cases["bbac"])))
    for seed, (part, name, measure) in itertools.product(range(options.seeds), jobs):
        what = f"{name}, {seed}"
        if what in document[part]:
            continue
        start = time.monotonic()
        found = measure(options.budget, seed)
        document[part][what] = json_document(found | {"took_s": time.monotonic() - start})
        print(f"{part} {what}: {document[part][what]['took_s']:.0f} s", file=sys.stderr, flush=True)
        kept.write_text(json.dumps(document, indent=1) + "\n")
        options.output.write_text(markdown(document))
    options.output.write_text(markdown(document))
    return document


def with_sizes(name: str, given: Sequence[str]) -> Case:
    """Return the case of an application with the sizes that were given for it."""
    case, sizes = CASES[name], dict(CASES[name].sizes)
    for text in given:
        application, _, assignment = text.partition(":")
        if application not in CASES:
            raise UnknownNameError("application", application, CASES)
        size, equals, value = assignment.partition("=")
        if not equals or not value.isdigit():
            raise MptuneError(f"--size {text!r}: expected APPLICATION:NAME=VALUE")
        if application == name:
            sizes[size] = int(value)
    return dataclasses.replace(case, sizes=sizes)


if __name__ == "__main__":
    sys.exit(main())
