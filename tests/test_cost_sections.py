"""The benchmark's sections on failures, overhead, batches and ablation: figures from runs made by hand or tiny ones."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mptune.errors import MptuneError
from mptune.evaluators.simulated import SimulatedEvaluator
from mptune.interop.cache import write_cache
from mptune.interop.recorded import Record, RecordedSpace, assemble
from mptune.interop.recording import write_recording
from mptune.objective import Objective
from mptune.results import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.strategies import make

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import search_quality  # noqa: E402
from benchmarks.search.ablated import VARIANTS, make_variant, replay_variant  # noqa: E402
from benchmarks.search.ablation import Ablation  # noqa: E402
from benchmarks.search.batches import Batches, replay_in_batches  # noqa: E402
from benchmarks.search.cells import Job, Results  # noqa: E402
from benchmarks.search.driving import drive  # noqa: E402
from benchmarks.search.failing import PATTERNS, fail_share, failing_space  # noqa: E402
from benchmarks.search.failures import Failures  # noqa: E402
from benchmarks.search.overhead import Overhead  # noqa: E402
from benchmarks.search.overhead_runs import on_synthetic, synthetic_space, synthetic_trial  # noqa: E402
from benchmarks.search.section import Section, Settings  # noqa: E402
from benchmarks.search.significance import paired_chance, verdict, welch_chance  # noqa: E402
from benchmarks.search.tools import DEFAULT, replay  # noqa: E402

NAMES = ("x", "y", "z", "unroll")
RANDOM = "mptune random"
BUDGET = 60


def recording(name: str = "toy") -> RecordedSpace:
    """Return 360 configurations with one optimum; the twelve with the largest ``x`` and ``y`` failed."""
    records = []
    for row in itertools.product((1, 2, 3, 4, 5, 6), (8, 16, 24, 32, 40), (1, 2, 3, 4), (1, 2, 4)):
        x, y, z, unroll = row
        if x == 6 and y == 40:
            records.append(Record(row, Status.LAUNCH_ERROR, "failed"))
            continue
        time = 2 + (x - 3.2) ** 2 + abs(y - 23) / 9 + (z - 2.1) ** 2 + 0.01 * unroll
        records.append(Record(row, Status.OK, measurement=Measurement({"time_ms": time})))
    return assemble(name, NAMES, {}, records)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    spaces = tmp_path / "spaces"
    spaces.mkdir()
    write_cache(recording(), spaces / "toy.json")
    return Settings(spaces, tmp_path / "data", seeds=4, slow_seeds=2, budget=BUDGET, strategies=("bayesian", "random"))


def by_hand(section: Section, settings: Settings, values: dict[str, float]) -> Results:
    """Return results where a tool's runs are all near a value times the optimum, a little worse with each seed."""
    optimum = min(t.time_ms for t in recording().trials.values() if t.is_valid)
    jobs = section.jobs(settings)
    found: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for job in jobs:
        result = found.setdefault((job.space, job.tool), {})
        for seed in job.seeds:
            best = optimum * (values.get(job.tool, 1.5) + 0.001 * seed)
            result[seed] = {"best": [best] * settings.budget, "strategy_s": 0.22, "ms": [1.0] * settings.budget}
    return Results(tuple(jobs), found)


def run_here(jobs: Sequence[Job]) -> Results:
    """Run jobs in this process."""
    found: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for job in jobs:
        module, _, name = job.target.partition(":")
        run = getattr(importlib.import_module(module), name)(job.settings)
        found.setdefault((job.space, job.tool), {}).update({seed: run(seed) for seed in job.seeds})
    return Results(tuple(jobs), found)


# -- spaces that fail ------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_the_share_fails_and_the_optimum_does_not(pattern: str, share: float) -> None:
    plain = recording()
    made = fail_share(plain, pattern, share, seed=5)
    ran = {i for i, trial in plain.trials.items() if trial.is_valid}
    still = {i for i, trial in made.trials.items() if trial.is_valid}
    assert still < ran
    assert len(ran) - len(still) == round(share * len(ran))
    objective = Objective()
    assert objective.best(list(made.trials.values())) == objective.best(list(plain.trials.values()))
    assert all(made.trials[i] == plain.trials[i] for i in still)
    assert all(made.trials[i].configuration == trial.configuration for i, trial in plain.trials.items())
    again = fail_share(plain, pattern, share, seed=5)
    assert {i for i, trial in again.trials.items() if trial.is_valid} == still
    other = fail_share(plain, pattern, share, seed=6)
    assert {i for i, trial in other.trials.items() if trial.is_valid} != still


def test_clustered_failures_have_failing_neighbours_and_scattered_ones_do_not_more_than_others() -> None:
    def alike(pattern: str, seed: int) -> float:
        made = fail_share(recording(), pattern, 0.3, seed)
        failed = np.array([not made.trials[i].is_valid for i in range(made.space.size)])
        around = [failed[made.space.neighbours(int(i), "adjacent")].mean() for i in np.flatnonzero(failed)]
        return float(np.mean(around))

    assert min(alike("clustered", seed) for seed in range(8)) > 0.55
    assert max(alike("scattered", seed) for seed in range(8)) < 0.45


def test_impossible_failures_are_refused() -> None:
    with pytest.raises(MptuneError, match="clustered or scattered"):
        fail_share(recording(), "regular", 0.3)
    with pytest.raises(MptuneError, match="share below 1"):
        fail_share(recording(), "scattered", 1.0)
    with pytest.raises(MptuneError, match="toy"):
        fail_share(recording(), "clustered", 0.9999)


def test_a_failing_space_is_replayed_by_its_function(settings: Settings) -> None:
    jobs = [job for job in Failures().jobs(settings) if job.tool == RANDOM]
    assert [job.space for job in jobs] == [
        "toy 0%",
        *(f"toy {pattern} {share}%" for pattern in PATTERNS for share in (10, 30, 60)),
    ]
    last = json.loads(json.dumps(jobs[-1].settings))
    made = failing_space(str(settings.spaces / "toy.json"), "scattered", 0.6)
    best = [value for value in replay(last)(0)["best"] if value is not None]
    assert set(best) <= {trial.time_ms for trial in made.trials.values() if trial.is_valid}


def test_the_verdict_on_failures_compares_with_random(settings: Settings) -> None:
    results = by_hand(Failures(), settings, {DEFAULT.name: 1.1, RANDOM: 1.4})
    report = Failures().report(settings, results)
    assert {row["verdict"] for row in report.data["against_random"]} == {"better"}
    assert "- met: never worse than random" in report.markdown
    assert [round(row["failing"], 3) for row in report.data["against_random"][:2]] == [0.033, 0.131]
    swapped = dict(results.found)
    swapped["toy scattered 60%", DEFAULT.name] = results.found["toy 0%", RANDOM]
    swapped["toy scattered 60%", RANDOM] = results.found["toy 0%", DEFAULT.name]
    report = Failures().report(settings, Results(results.jobs, swapped))
    assert report.data["against_random"][-1]["verdict"] == "worse"
    assert "- MISSED: never worse than random beyond noise: toy scattered 60%" in report.markdown


# -- significance ----------------------------------------------------------------------------------


def test_chances_are_those_of_the_tests() -> None:
    a, b = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 3.0, 4.0, 6.0])
    # Welch's statistic by hand; its probability by the distribution of Student.
    from scipy.stats import t

    va, vb = a.var(ddof=1) / 4, b.var(ddof=1) / 4
    freedom = (va + vb) ** 2 / (va**2 / 3 + vb**2 / 3)
    assert welch_chance(a, b) == pytest.approx(2 * t.sf(abs(a.mean() - b.mean()) / math.sqrt(va + vb), freedom))
    d = a - b
    assert paired_chance(a, b) == pytest.approx(2 * t.sf(abs(d.mean()) / (d.std(ddof=1) / 2), 3))
    assert math.isnan(welch_chance(a, np.array([1.0])))
    assert math.isnan(welch_chance(a, np.array([1.0, math.inf])))
    assert math.isnan(paired_chance(a, a))


def test_verdicts() -> None:
    near, far = np.array([0.1, 0.11, 0.12]), np.array([0.5, 0.52, 0.51])
    assert (verdict(near, far), verdict(far, near), verdict(near, near)) == ("better", "worse", "within noise")
    nothing = np.array([0.5, math.inf])
    assert (verdict(near, nothing), verdict(nothing, near)) == ("better", "worse")
    assert verdict(nothing, nothing) == "within noise"


# -- batches and overhead --------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 4, 7])
def test_driving_in_batches_spends_the_budget_and_tells_whole_batches(batch: int) -> None:
    recorded = recording()
    evaluator = SimulatedEvaluator(recorded.by_configuration())
    sizes: list[int] = []
    values: list[float] = []

    def evaluate(asked: Sequence[Configuration]) -> list[Trial]:
        sizes.append(len(asked))
        trials = list(evaluator.evaluate(asked))
        values.extend(t.time_ms if t.is_valid else math.inf for t in trials)
        return trials

    strategy = make("random", recorded.space, Objective(), seed=1)
    driven = drive(strategy, evaluate, 20, batch)
    assert sizes == [batch] * (20 // batch) + [20 % batch] * bool(20 % batch)
    assert len(driven.best) == len(driven.seconds) == 20
    lowest = np.minimum.accumulate(values)
    assert [math.inf if b is None else b for b in driven.best] == lowest.tolist()


def test_driving_ahead_is_told_in_order_and_late() -> None:
    recorded = recording()
    evaluator = SimulatedEvaluator(recorded.by_configuration())
    strategy = make("random", recorded.space, Objective(), seed=1)
    calls: list[str] = []

    class Watched:
        objective = strategy.objective

        def ask(self, n: int) -> list[Configuration]:
            calls.append(f"ask {n}")
            return strategy.ask(n)

        def tell(self, trials: Sequence[Trial]) -> None:
            calls.append("tell")
            strategy.tell(trials)

    driven = drive(Watched(), lambda asked: list(evaluator.evaluate(asked)), 5, under_way=3)  # type: ignore[arg-type]
    assert calls == ["ask 3"] + ["tell", "ask 1"] * 2 + ["tell"] * 3
    assert (
        driven.best
        == drive(
            make("random", recorded.space, Objective(), seed=1), lambda asked: list(evaluator.evaluate(asked)), 5
        ).best
    )


def test_driving_ends_with_the_space() -> None:
    recorded = recording()
    evaluator = SimulatedEvaluator(recorded.by_configuration())
    strategy = make("random", recorded.space, Objective(), seed=1)
    driven = drive(strategy, lambda asked: list(evaluator.evaluate(asked)), 1000, 16)
    assert len(driven.best) == recorded.space.size


def test_one_at_a_time_is_the_timing_section_s_replay(settings: Settings) -> None:
    jobs = {job.tool: job for job in Batches().jobs(settings)}
    assert set(jobs) == {DEFAULT.name, RANDOM, "3 under way", "batches of 4", "batches of 16"}
    assert jobs[DEFAULT.name].section == "timing"
    single = dict(jobs["batches of 4"].settings) | {"batch": 1}
    assert replay_in_batches(single)(2)["best"] == replay(jobs[DEFAULT.name].settings)(2)["best"]
    four, again = (replay_in_batches(jobs["batches of 4"].settings)(2)["best"] for _ in range(2))
    assert four == again
    assert len(four) == BUDGET


def test_batches_are_set_beside_one_at_a_time(settings: Settings) -> None:
    values = {DEFAULT.name: 1.1, "3 under way": 1.2, "batches of 4": 1.1, "batches of 16": 1.3, RANDOM: 1.4}
    rows = {row["tool"]: row for row in Batches().report(settings, by_hand(Batches(), settings, values)).data["ways"]}
    assert rows["batches of 4"]["ratio"] == pytest.approx(1.0)
    assert rows["batches of 4"]["p_value"] is None
    assert rows["batches of 16"]["ratio"] == pytest.approx(0.3015 / 0.1015)
    assert rows["batches of 16"]["p_value"] < 1e-6


@pytest.mark.parametrize("parameters", [2, 3])
def test_the_synthetic_space_has_a_power_of_ten_and_one_best(parameters: int) -> None:
    space = synthetic_space(parameters)
    assert space.size == 10**parameters
    trials = [synthetic_trial(c) for c in space.configurations(range(space.size))]
    failed = sum(not trial.is_valid for trial in trials)
    assert failed == 3 * 10 ** (parameters - 2)
    best = Objective().best(trials)
    assert best is not None
    assert best.configuration.subset(tuple(f"p{i}" for i in range(parameters))) == (4,) * parameters


def test_overhead_is_timed_evaluation_by_evaluation_one_process_at_a_time(settings: Settings) -> None:
    assert Overhead().one_at_a_time
    result = on_synthetic({"parameters": 6, "budget": 12, "strategy": "bayesian"})(0)
    assert result["candidates"] == 10**6
    assert len(result["ms"]) == len(result["best"]) == 12
    assert result["strategy_s"] == pytest.approx(sum(result["ms"]) / 1e3)
    assert result["cpu_s"] > 0
    assert result["peak_mib"] >= result["before_mib"] > 1


def test_overhead_is_judged_by_its_targets(settings: Settings) -> None:
    results = by_hand(Overhead(), settings, {})
    assert {job.space for job in results.jobs} == {"toy", "10^6 candidates", "10^8 candidates"}
    for space, peak in (("10^6 candidates", 100.0), ("10^8 candidates", 300.0)):
        for result in results.of(space, DEFAULT.name).values():
            result |= {"peak_mib": peak, "before_mib": 50.0, "candidates": 1}
    report = Overhead().report(settings, results)
    assert "- met: at most 50 ms per evaluation on 10^6 candidates: 3.67 ms" in report.markdown
    assert "- MISSED: at most 3 ms per evaluation on toy: 3.67 ms" in report.markdown
    assert "- MISSED: memory at 10^8 candidates at most 1.5 times that at 10^6: 3.00" in report.markdown


# -- ablation --------------------------------------------------------------------------------------


def mixed_recording() -> RecordedSpace:
    """Return 135 configurations; the error is that of the coarsest type, and the largest block fails."""
    records = []
    names = ("x_type", "sum_type", "policy", "block")
    errors = {"fp64": 1e-16, "fp32": 1e-7, "fp16": 1e-3}
    for row in itertools.product(errors, errors, ("accurate", "fast", "approx"), (32, 96, 64, 160, 256)):
        x, total, policy, block = row
        if block == 256 and x == "fp64":
            records.append(Record(row, Status.LAUNCH_ERROR))
            continue
        error = errors[x] + 5 * errors[total] + {"accurate": 0.0, "fast": 1e-6, "approx": 1e-4}[policy]
        time = {"fp64": 8, "fp32": 4, "fp16": 2}[x] * (1 + abs(block - 100) / 100) + {"fp64": 2}.get(total, 1)
        records.append(Record(row, Status.OK, measurement=Measurement({"time_ms": time, "error": error})))
    return assemble("axpy", names, {}, records, kernel="axpy", signature=names[:3])


def proposals(name: str | None, recorded: RecordedSpace, threshold: float | None, seed: int = 0) -> list[Configuration]:
    objective = Objective(threshold=threshold)
    if name is None:
        strategy = make("bayesian", recorded.space, objective, signature=recorded.signature, seed=seed)
    else:
        strategy = make_variant(name, recorded.space, objective, recorded.signature, seed)
    asked: list[Configuration] = []
    evaluator = SimulatedEvaluator(recorded.by_configuration())

    def evaluate(configurations: Sequence[Configuration]) -> list[Trial]:
        asked.extend(configurations)
        return list(evaluator.evaluate(configurations))

    drive(strategy, evaluate, 40)
    return asked


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_searches_otherwise_than_the_default_and_leaves_it_as_it_was(name: str) -> None:
    recorded = mixed_recording()
    before = proposals(None, recorded, 1e-5)
    other = proposals(name, recorded, 1e-5)
    assert len(set(other)) == 40
    assert other != before
    assert proposals(None, recorded, 1e-5) == before


def test_what_is_about_errors_changes_nothing_without_a_threshold() -> None:
    recorded = mixed_recording()
    before = proposals(None, recorded, None)
    assert all(proposals(n, recorded, None) == before for n, variant in VARIANTS.items() if variant.errors_only)


def test_without_exact_reuse_measured_signatures_are_proposed_again() -> None:
    recorded = mixed_recording()
    trials = recorded.by_configuration()

    def repeated(name: str | None) -> int:
        bad: set[tuple[Any, ...]] = set()
        count = 0
        for configuration in proposals(name, recorded, 1e-8):
            signature = configuration.subset(recorded.signature)
            count += signature in bad
            if trials[configuration].is_valid and trials[configuration].error > 1e-8:
                bad.add(signature)
        return count

    assert repeated(None) == repeated("error model") == 0
    assert repeated("signature") > 0


def test_the_figures_of_an_ablation(settings: Settings) -> None:
    settings.data.mkdir()
    write_recording(mixed_recording(), settings.data / "axpy-host.json.gz")
    jobs = [job for job in Ablation().jobs(settings) if job.tool in (DEFAULT.name, "without warp", "without signature")]
    assert {(job.space, job.tool) for job in jobs} == {
        ("toy", DEFAULT.name),
        ("toy", "without warp"),
        *((f"axpy-host {level}", tool) for level in ("high", "medium", "low") for tool in {j.tool for j in jobs}),
    }
    short = [job for job in jobs if "axpy" in job.space]
    results = run_here([job for job in jobs if job not in short])
    found = dict(results.found)
    best = {DEFAULT.name: 1.0, "without warp": 2.0, "without signature": 4.0}
    for job in short:
        optimum = best_of(mixed_recording(), job.settings["max_error"])
        found[job.space, job.tool] = {
            seed: {"best": [None] * 10 + [optimum * 2 * best[job.tool]] * 240, "strategy_s": 1.0} for seed in job.seeds
        }
    report = Ablation().report(settings, Results(tuple(jobs), found))
    rows = {row["variant"]: row for row in report.data["groups"]["mixed-precision"]}
    assert rows[DEFAULT.name]["distance"] == pytest.approx(0.5)
    assert rows["without warp"]["distance"] == pytest.approx(0.75)
    assert rows["without signature"]["ratio"] == pytest.approx(0.875 / 0.5)
    assert {row["variant"] for row in report.data["groups"]["timing-only"]} == {DEFAULT.name, "without warp"}
    assert "3 mixed-precision spaces" in report.markdown


def best_of(recorded: RecordedSpace, threshold: float) -> float:
    return min(t.time_ms for t in recorded.trials.values() if t.is_valid and t.error <= threshold)


def test_a_variant_s_replay_is_the_default_s_where_it_makes_no_difference(settings: Settings) -> None:
    space = {"space": str(settings.spaces / "toy.json"), "budget": 30}
    tool = DEFAULT.settings
    same = replay_variant(space | {"variant": "exact reuse", "max_error": None})(1)["best"]
    assert same == replay(space | {"tool": tool})(1)["best"]


@pytest.mark.parametrize("section", ["failures", "batches", "ablation"])
def test_a_section_runs_from_the_command_line(
    section: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_quality, "run_jobs", lambda jobs, *_: run_here(jobs))
    arguments = ["--sections", section, "--spaces", settings.spaces, "--data", settings.data, "--seeds", 2]
    arguments += [
        "--budget",
        42,
        "--strategies",
        "bayesian,random",
        "--peers",
        "none",
        "--output",
        tmp_path / "results",
    ]
    arguments += ["--work", tmp_path / "work"]
    assert search_quality.main([str(argument) for argument in arguments]) == 0
    document = json.loads((tmp_path / "results" / "search" / f"{section}.json").read_text())
    assert "toy" in json.dumps(document["results"]) or document["results"]["groups"]["timing-only"]
    plots = list((tmp_path / "results" / "search").glob(f"{section}-*.png"))
    assert bool(plots) == (importlib.util.find_spec("matplotlib") is not None)
