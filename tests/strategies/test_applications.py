"""The search of an application by models of its kernels, on made-up times and errors."""

import math

import pytest

from mptune import OrdinalParameter
from mptune.kernel import Sizes
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.strategies.model_based.application import ApplicationStrategy
from tests.test_application import MATVEC, SCALE, application
from tests.tiers import few

WIDTH = {"fp64": 8.0, "fp32": 4.0, "fp16": 2.0}
ROUNDOFF = {"fp64": 2.0**-53, "fp32": 2.0**-24, "fp16": 2.0**-11}
BLOCKS = [16, 32, 48, 64, 96, 128, 192, 256]


def trial(configuration, time_ms, error=0.0, status=Status.OK, **metrics):
    times = (time_ms,)
    return Trial(configuration, status, "", Measurement({"time_ms": time_ms, "error": error, **metrics}, times))


def matvec_ms(c):
    block = 1 + 0.15 * abs(math.log2(c["block"] / (64 if c["sum_type"] == "fp64" else 128)))
    return (3 * WIDTH[c["a_type"]] + WIDTH[c["x_type"]] + 0.5 * WIDTH[c["sum_type"]]) / 40 * block


def scale_ms(c):
    return WIDTH[c["type"]] / 80 * (1 + 0.1 * abs(math.log2(c["block"] / 32)))


class Made:
    """An application of a hundred steps on made-up kernels."""

    def __init__(self, weights, launches=lambda c: 100):
        self.launches = launches
        blocks = OrdinalParameter("block", BLOCKS)
        matvec = MATVEC.changed(parameters=[*MATVEC.parameters[:3], blocks], constraints=[])
        scale = SCALE.changed(parameters=[SCALE.parameters[0], blocks])
        self.app = application(kernels=[matvec, scale])
        self.space = self.app.search_space(Sizes({"n": 37}))
        self.weights = weights

    def run(self, configuration):
        """Return the trial of a run of the application."""
        c = dict(configuration)
        if c["x_type"] not in ("fp64", "fp32"):
            return trial(configuration, math.nan, status=Status.CONSTRAINT)
        matvec = {
            "a_type": c["a_type"],
            "x_type": c["x_type"],
            "sum_type": c["matvec.sum_type"],
            "block": c["matvec.block"],
        }
        count = self.launches(c)
        each = {"matvec": matvec_ms(matvec), "scale": scale_ms({"type": c["x_type"], "block": c["scale.block"]})}
        time_ms = count * sum(each.values()) + 5
        types = (c["a_type"], c["x_type"], c["matvec.sum_type"])
        error = sum(weight * ROUNDOFF[name] for weight, name in zip(self.weights, types, strict=True))
        metrics = {f"launches.{name}": count for name in each}
        metrics |= {f"time_ms.{name}": count * one_ms for name, one_ms in each.items()}
        return trial(configuration, time_ms, error, **metrics, host_ms=5.0)

    def best(self, threshold):
        """Return the least time there is among accurate runs."""
        found = map(self.run, self.space.configurations(range(self.space.size)))
        return min(each.time_ms for each in found if each.is_valid and each.error <= threshold)


def strategy_for(made, threshold, seed=0):
    found = ApplicationStrategy(
        made.space,
        Objective(threshold=threshold),
        signature=made.app.signature_names,
        seed=seed,
        kernels=tuple(made.app.kernels),
    )
    found.relate({"matvec": {"a_type", "x_type", "matvec.sum_type"}, "scale": {"x_type"}})
    return found


def search(made, threshold, budget, seed=0, focus=None):
    """Return the trials of a search of so many evaluations."""
    strategy = strategy_for(made, threshold, seed)
    if focus:
        strategy.focus(focus)
    trials = []
    while len(trials) < budget and (asked := strategy.ask(1)):
        trials += map(made.run, asked)
        strategy.tell(trials[-1:])
    assert len({each.configuration for each in trials}) == len(trials)
    return trials


@pytest.mark.parametrize(
    ("weights", "threshold"),
    few([((1.0, 1.0, 1.0), 1e-3), ((0.1, 30.0, 1.0), 3e-7), ((300.0, 1.0, 0.1), 1e-9), ((1.0, 1.0, 1.0), 3e-7)], 2),
)
def test_it_finds_the_best_of_all_with_a_few_runs(weights, threshold):
    made = Made(weights)
    trials = search(made, threshold, budget=40)
    # Of 768 configurations, 8 signatures that run.
    assert min(t.time_ms for t in trials if t.is_valid and t.error <= threshold) <= 1.01 * made.best(threshold)


def types_of(trial):
    return tuple(trial.configuration[name] for name in ("a_type", "x_type", "matvec.sum_type"))


def test_the_widest_types_come_first_and_then_one_type_throughout():
    trials = search(Made((1.0, 1.0, 1.0)), 1e-3, budget=2)
    assert [types_of(each) for each in trials] == [("fp64",) * 3, ("fp32",) * 3]


def test_a_type_that_converges_slower_loses():
    made = Made((1.0, 1.0, 1.0), launches=lambda c: 160 if c["x_type"] == "fp32" else 100)
    trials = search(made, 1e-3, budget=40)
    best = min((t for t in trials if t.is_valid and t.error <= 1e-3), key=lambda t: t.time_ms)
    assert types_of(best) == ("fp32", "fp64", "fp32")
    assert best.time_ms <= 1.02 * made.best(1e-3)


def test_with_a_focus_on_the_baseline_only_its_tuning_changes():
    made = Made((1.0, 1.0, 1.0))
    wide = made.app.baseline_values()
    trials = search(made, 1e-3, budget=20, focus=wide)
    configurations = made.space.configurations(range(made.space.size))
    assert all(each.configuration.is_among(wide) for each in trials)
    best = min(made.run(c).time_ms for c in configurations if c.is_among(wide))
    assert min(each.time_ms for each in trials) <= 1.02 * best
