"""The benchmark's sections on failures, overhead, batches and ablation: figures from runs made by hand or tiny ones."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mptune.errors import MptuneError
from mptune.evaluators.simulated import SimulatedEvaluator
from mptune.interop.cache import write_cache
from mptune.interop.recorded import Record, RecordedSpace, assemble
from mptune.objective import Objective
from mptune.results import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.strategies import make

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import search_quality  # noqa: E402
from benchmarks.search.ablated import VARIANTS, make_variant, replay_variant  # noqa: E402
from benchmarks.search.batches import Batches, replay_in_batches  # noqa: E402
from benchmarks.search.cells import Job, Results  # noqa: E402
from benchmarks.search.driving import drive  # noqa: E402
from benchmarks.search.failing import PATTERNS, fail_share, failing_space  # noqa: E402
from benchmarks.search.failures import Failures  # noqa: E402
from benchmarks.search.overhead import Overhead  # noqa: E402
from benchmarks.search.overhead_runs import on_synthetic, synthetic_space, synthetic_trial  # noqa: E402
from benchmarks.search.section import Settings  # noqa: E402
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
        """Return how often a signature is proposed that two configurations have ruled out."""
        bad: Counter[tuple[Any, ...]] = Counter()
        count = 0
        for configuration in proposals(name, recorded, 1e-8):
            signature = configuration.subset(recorded.signature)
            count += bad[signature] >= 2
            bad[signature] += trials[configuration].is_valid and trials[configuration].error > 1e-8
        return count

    assert repeated(None) == repeated("error model") == 0
    assert repeated("signature") > 0


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
