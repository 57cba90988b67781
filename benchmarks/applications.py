"""What tuning an application is worth, at the same error of its answer.

    python benchmarks/applications.py [--applications bbac,...] [--parts ways,enumerated] [--seeds 5] [--resume]

``ways``: each application is tuned in three ways with as many evaluations each, at the same size:

- fp64: in the widest types; its winner is what speedups are against.
- fp32: everything in fp32. Where that breaks the threshold the application stays as it is, which counts as 1.
- joint: what ``mptune tune`` does.

The winners are then run in turn in one process, and their errors are measured on inputs that no search has drawn.
``enumerated``: a cut-down ``bbac`` is evaluated in all its configurations. How far from the fastest accurate one is
what a search finds with a tenth of the application runs?
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import math
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import bench  # noqa: E402
from mptune.backends.processor import usable_cores  # noqa: E402
from mptune.data import Draw, Stream  # noqa: E402
from mptune.errors import MptuneError, UnknownNameError  # noqa: E402
from mptune.kernel import Application  # noqa: E402
from mptune.kernel.limits import space_on  # noqa: E402
from mptune.measure.device import DeviceEvaluator  # noqa: E402
from mptune.measure.rounds import Turns  # noqa: E402
from mptune.measure.timing import TimingPlan  # noqa: E402
from mptune.precision import precision  # noqa: E402
from mptune.results.objective import Objective  # noqa: E402
from mptune.results.speedup import Ratio  # noqa: E402
from mptune.results.trial import Status, Trial  # noqa: E402
from mptune.source.loading import load_tunable  # noqa: E402
from mptune.space.configuration import Configuration, Value  # noqa: E402
from mptune.space.parameters import PrecisionParameter  # noqa: E402
from mptune.tuning import TuneSettings, tune  # noqa: E402
from mptune.tuning.plan import TuningPlan  # noqa: E402

WAYS: Final = ("fp32", "joint")
TARGETS: Final = {"least": 0.98, "distance": 0.01, "runs": 0.1, "overhead": 0.1}
#: How often configurations are launched while they are searched, as tune launches them.
_TIMING: Final = TimingPlan(min_repeats=3, max_repeats=7, confidence=0.75)
#: Rounds in which the configurations of all ways take turns.
_ROUNDS: Final = 15
#: Inputs on which ways are judged: those of the search and those that tune verifies on; and inputs nobody has drawn.
_JUDGED: Final = (*(Draw(number=number) for number in range(3)), *(Draw(Stream.UNSEEN, n) for n in range(10)))
_FRESH: Final = tuple(Draw(Stream.UNSEEN, 1000 + number) for number in range(20))
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


def used(trial: Trial, objective: Objective) -> float:
    """Return which share of its limit an error takes: of several the largest; infinite for a failure."""
    if trial.status not in (Status.OK, Status.INACCURATE):
        return math.inf
    shares = [trial.metric(name) / limit for name, limit in objective.limits.items()]
    return max((math.inf if math.isnan(share) else share for share in shares), default=0.0)


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
    return run.best, {"evaluations": run.evaluations, "wall_s": run.state.wall_s, "thought_s": thought_s}


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
    found["joint_to_fp32"] = ratio(turns, chosen["fp32"], chosen["joint"])
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
def evaluator_of(application: Application, case: Case, seed: int) -> Iterator[tuple[DeviceEvaluator, Objective]]:
    """Give what evaluates an application, and the objective with its threshold."""
    settings = TuneSettings(sizes=case.sizes, max_error=case.max_error, seed=seed)
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


# -- a space that is known altogether --------------------------------------------------------------


def enumerated(case: Case, budget: int, seed: int) -> dict[str, Any]:
    """Return how far from the best of a cut-down bbac a joint search ends, and how many runs each of both took."""
    application = application_of("bbac")
    start = time.monotonic()
    with evaluator_of(application, case, seed) as (evaluator, objective):
        sizes = application.resolve_sizes("default", case.sizes)
        space = space_on(application, sizes, evaluator.start().facts).restrict(CUT)
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


def or_inf(number: float | None) -> float:
    """Return a number as it was before it was stored as JSON, which has no infinite ones."""
    return math.inf if number is None else number


def summary(entries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return speedups over fp64, joint beside fp32, and the search's share of the wall time."""
    joint = [entry["ways"]["joint"] for entry in entries]

    def speedup(of: Mapping[str, Any]) -> float:
        return 1.0 if of["is_baseline"] else float(of["speedup"][0])

    gains = [speedup(entry["ways"]["joint"]) / speedup(entry["ways"]["fp32"]) for entry in entries]
    return {
        **{way: mean([speedup(entry["ways"][way]) for entry in entries]) for way in WAYS},
        "gain": mean(gains),
        "least": min(gains, default=math.nan),
        "overhead": sum(of["thought_s"] for of in joint) / max(1e-9, sum(of["wall_s"] for of in joint)),
        "broken": sum(or_inf(entry["ways"][way]["fresh_used"]) > 1 for entry in entries for way in WAYS),
    }


def of_limit(number: float | None) -> str:
    """Return which share of its limit an error takes; that of a failure is none."""
    return "none" if number is None or math.isinf(number) else f"{number:.2g}"


def interval(values: Sequence[float]) -> str:
    """Return a ratio with its interval."""
    value, low, high = values
    return f"{value:.2f} ({low:.2f} to {high:.2f})" if low != high else f"{value:.2f}"


def page(options: argparse.Namespace, results: Mapping[str, Any]) -> str:
    """Return the page."""
    entries = [entry for entry in results.values() if "ways" in entry]
    of_all = [entry for entry in results.values() if "distance" in entry]
    parts = [_ways_page(entries, options)] if entries else []
    parts += [_enumerated_page(of_all, options)] if of_all else []
    return "\n\n".join(parts)


def _ways_page(entries: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    names = list(dict.fromkeys(entry["application"] for entry in entries))
    total = summary(entries)
    parts = {name: summary([entry for entry in entries if entry["application"] == name]) for name in names}
    means = [(name, *(f"{part[key]:.2f}" for key in (*WAYS, "gain", "least"))) for name, part in parts.items()]
    means.append(("all", *(f"{total[key]:.2f}" for key in (*WAYS, "gain", "least"))))
    cases = [(name, _sizes(with_sizes(name, options.size)), _limit(CASES[name]), CASES[name].why) for name in names]
    rows = []
    for entry in entries:
        for way in ("fp64", *WAYS):
            of = entry["ways"][way]
            error = or_inf(entry["fp32_used"] if way == "fp32" else of["used"])
            stays = " (breaks it)" if way == "fp32" and error > 1 else ""
            speed = "1" if way == "fp64" else interval(of["speedup"]) if not of["is_baseline"] else "1 (stays in fp64)"
            errors = (of_limit(error) + stays, of_limit(of["fresh_used"]))
            took = (of["evaluations"], f"{of['wall_s']:.0f}")
            rows.append((f"{entry['application']}, {entry['seed']}", way, speed, of["types"], *errors, *took))
    return "\n\n".join(
        (
            f"Each application is tuned in three ways with {options.budget} evaluations each: in the widest types, "
            "everything in fp32 (where that breaks the threshold the application stays in fp64, a speedup of 1), and "
            f"jointly, as `mptune tune` does. The winners take turns in one process, in {_ROUNDS} rounds.",
            bench.table(("geometric means", "fp32", "joint", "joint beside fp32", "the least of that"), means),
            f"- the least of joint beside fp32: {total['least']:.3f} (target ≥ {TARGETS['least']:g}: "
            f"{bench.verdict(total['least'] >= TARGETS['least'])})\n"
            f"- processor time of the search, of the wall time of joint: {total['overhead']:.1%} (target ≤ "
            f"{TARGETS['overhead']:.0%}: {bench.verdict(total['overhead'] <= TARGETS['overhead'])})\n"
            f"- winners that break their threshold on one of {len(_FRESH)} fresh inputs: {total['broken']:.0f} of "
            f"{len(WAYS) * len(entries)}",
            bench.table(("application", "size", "threshold", "why"), cases),
            "Errors as shares of their limits, the worst of the inputs judged on and the worst of fresh ones. Speedups "
            "have 95% intervals.",
            bench.table(
                ("application, seed", "way", "speedup", "types", "error", "fresh", "evaluations", "wall s"), rows
            ),
        )
    )


def _sizes(case: Case) -> str:
    return ", ".join(f"{name}={value}" for name, value in case.sizes.items())


def _limit(case: Case) -> str:
    limit = case.max_error
    return ", ".join(f"{n} {v:g}" for n, v in limit.items()) if isinstance(limit, Mapping) else f"{limit:g}"


def _enumerated_page(entries: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    distances = [entry["distance"][0] - 1 if entry["distance"] else math.inf for entry in entries]
    middle, farthest = statistics.median(distances), max(distances)
    most = max(entry["evaluations"] / entry["enumeration_runs"] for entry in entries)
    rows = [
        (
            *(entry["seed"], entry["enumeration_runs"], f"{entry['enumeration_s']:.0f}", entry["evaluations"]),
            *(f"{entry['wall_s']:.0f}", interval(entry["distance"]) if entry["distance"] else "nothing accurate"),
        )
        for entry in entries
    ]
    return "\n\n".join(
        (
            "## A space that is known altogether",
            f"bbac with {entries[0]['configurations']} configurations, all evaluated, and searched with "
            f"{options.budget} evaluations. The fastest accurate ones and what the search found take turns.",
            bench.table(("seed", "runs of all", "s", "runs of the search", "s", "time beside the best"), rows),
            f"- slower than the best of all by {middle:.1%} in the median, {farthest:.1%} at most (target ≤ "
            f"{TARGETS['distance']:.0%} in the median: {bench.verdict(middle <= TARGETS['distance'])})\n"
            f"- with at most {most:.1%} of the runs (target ≤ {TARGETS['runs']:.0%}: "
            f"{bench.verdict(most <= TARGETS['runs'])})",
        )
    )


# -- the command -----------------------------------------------------------------------------------


def measure(options: argparse.Namespace, sheet: bench.Sheet) -> None:
    """Measure the parts that are asked for, seed by seed."""
    names = bench.names_in(options.applications, CASES, "application")
    parts = bench.names_in(options.parts, ("ways", "enumerated"), "part")
    bench.at_least(options, 1, "seeds", "budget")
    cases = {name: with_sizes(name, options.size) for name in CASES}
    for seed in range(options.seeds):
        for name in names if "ways" in parts else ():
            _add(sheet, f"{name}, {seed}", functools.partial(ways, name), cases[name], options.budget, seed)
        if "enumerated" in parts:
            _add(sheet, f"all of bbac, {seed}", enumerated, cases["bbac"], options.budget, seed)


def _add(sheet: bench.Sheet, key: str, of: Any, case: Case, budget: int, seed: int) -> None:
    settings = {"sizes": dict(case.sizes), "max_error": case.max_error, "budget": budget}
    sheet.add(key, functools.partial(of, case, budget, seed), **settings)


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = bench.parser(__doc__, bench.RESULTS / "applications.md")
    made.add_argument("--applications", default=",".join(CASES), metavar="NAME,...")
    made.add_argument("--parts", default="ways,enumerated", metavar="PART,...", help="ways, enumerated")
    made.add_argument("--seeds", type=int, default=5, help="so many, from 0")
    made.add_argument("--budget", type=int, default=60, help="evaluations of each way")
    made.add_argument("--size", action="append", default=[], metavar="APPLICATION:NAME=VALUE", help="a size")
    return made


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
    sys.exit(bench.main(parser(), "Whole applications", measure, page))
