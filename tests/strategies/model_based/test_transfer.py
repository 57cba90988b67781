"""Searches that start from earlier runs: which sources are believed, and what they say of times, failures, errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import smooth
from searches import drive

from mptune.errors import MptuneError
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.base import Source, Strategy
from mptune.strategies.model_based.error_model import Signatures
from mptune.strategies.model_based.transfer import judged, shared

SPACE = smooth.SPACE


def started(*sources: Source, seed: int = 0) -> Strategy:
    return make("bayesian", SPACE, Objective(), seed=seed, sources=sources)


def elsewhere(change: Callable[[Configuration, float], float] = lambda _, t: 3.0 * t, name: str = "other") -> Source:
    """Return a run of 120 trials on a device whose times are those of this one, changed."""

    def evaluate(c: Configuration) -> Trial:
        trial = smooth.evaluate(c)
        return trial.with_measurement(metrics={"time_ms": change(c, trial.time_ms)}) if trial.is_valid else trial

    return Source(name, tuple(drive(make("bayesian", SPACE, Objective(), seed=9), evaluate, 120)))


def shuffled(source: Source) -> Source:
    """Return a source whose trials have each other's configurations."""
    order = np.random.default_rng(1).permutation(len(source.trials)).tolist()
    trials = source.trials
    mixed = (
        dataclasses.replace(t, configuration=trials[other].configuration)
        for t, other in zip(trials, order, strict=True)
    )
    return dataclasses.replace(source, trials=tuple(mixed))


@pytest.fixture(scope="module")
def other() -> Source:
    return elsewhere()


# -- searches --------------------------------------------------------------------------------------


def best_after(strategy: Strategy, budget: int) -> float:
    return min(t.time_ms for t in drive(strategy, smooth.evaluate, budget) if t.is_valid)


@pytest.mark.full
def test_a_source_is_worth_many_evaluations_and_the_seed_repeats_it(other: Source) -> None:
    warm, again = (drive(started(other, seed=4), smooth.evaluate, 12) for _ in range(2))
    assert warm == again
    assert min(t.time_ms for t in warm if t.is_valid) <= 1.01 * best_after(started(seed=4), 60)
    strategy = started(shuffled(other), other, seed=4)
    drive(strategy, smooth.evaluate, 12)
    dropped, used = strategy.sources
    assert (dropped.source, dropped.trials, dropped.weight) == ("other", 120, 0.0)
    assert used.weight > 0.5
    assert used.parameters == SPACE.names


def test_with_shuffled_sources_the_search_is_the_one_without(other: Source) -> None:
    strategy = started(shuffled(other), seed=3)
    assert drive(strategy, smooth.evaluate, 25) == drive(started(seed=3), smooth.evaluate, 25)
    (use,) = strategy.sources
    assert (use.weight, use.remark) == (0.0, "its trials are not used: they do not follow from its parameters")


def test_common_parameters_are_used_and_unknown_values_are_left_out(other: Source) -> None:
    def changed(trial: Trial) -> Trial:
        values = {name: value for name, value in trial.configuration.items() if name != "padded"}
        return dataclasses.replace(trial, configuration=Configuration({**values, "vector": 4}))

    partial = Source("partial", tuple(map(changed, other.trials)))
    names, trials = shared(partial, SPACE)
    assert names == tuple(name for name in SPACE.names if name != "padded")
    assert len(trials) == len(other.trials)
    narrow = SPACE.restrict({"tile_x": [4, 5, 6]})
    assert {t.configuration["tile_x"] for t in shared(partial, narrow)[1]} <= {4, 5, 6}
    assert "tile_x" not in shared(partial, SPACE.restrict({"tile_x": [5]}))[0]
    strategy = started(partial, seed=4)
    assert best_after(strategy, 15) <= 1.05 * best_after(started(seed=4), 60)
    assert 0 < strategy.sources[0].trials <= len(other.trials)


@pytest.mark.full
def test_what_failed_elsewhere_is_improbable_but_not_ruled_out(other: Source) -> None:
    """The fastest of the source fail here or there: what is expected to run comes first, what is not comes too."""

    def fails(c: Configuration) -> bool:
        return c["layout"] == "blocked"

    failing = Source(
        "failing",
        tuple(
            Trial(t.configuration, Status.LAUNCH_ERROR, "refused") if fails(t.configuration) else t
            for t in other.trials
        ),
    )
    first = drive(started(failing), smooth.evaluate, 5)
    assert not any(fails(t.configuration) for t in first)
    found = drive(started(failing), smooth.evaluate, 60)
    assert any(fails(t.configuration) for t in found)


# -- errors ----------------------------------------------------------------------------------------


def test_errors_of_a_source_teach_the_model_and_are_never_taken_as_measured() -> None:
    types = ("fp64", "fp32", "fp16")
    space = SearchSpace([PrecisionParameter("x", types), OrdinalParameter("block", (32, 64))], [])

    def trial(kind: str, error: float, **changes: bool) -> Trial:
        numbers = Measurement({"time_ms": 1.0, "error": error}, **changes)
        return Trial(Configuration({"x": kind, "block": 32}), Status.OK, measurement=numbers)

    found = (trial("fp64", 1e-14), trial("fp32", 1e-6), trial("fp16", 1e-2))
    objective = Objective(threshold=1e-4)
    signatures = Signatures(space, ["x"], objective)
    everything = space.codes(np.arange(space.size))
    every = space.configurations(range(space.size))
    before = {c["x"]: level for c, level in zip(every, signatures.levels(everything)[0], strict=True)}
    signatures.suppose(*judged(Source("s", found, 0.3), space, ["x"]), 0.3)
    means, deviations = signatures.levels(everything)
    after = {c["x"]: (m, d) for c, m, d in zip(every, means, deviations, strict=True)}
    assert abs(after["fp16"][0] + 2) < 0.5 < abs(before["fp16"] + 2)
    assert abs(after["fp32"][0] + 6) < 0.5
    assert all(deviation > 0.1 for _, deviation in after.values())
    assert np.isfinite(signatures.log_probability(everything)).all()
    assert judged(Source("s", found), space, ["x"])[1] == ()
    # What is less doubtful counts, in whatever order it comes.
    near, far = Source("near", (trial("fp16", 1e-2),), 0.4), Source("far", (trial("fp16", 1e-5),), 1.0)
    levels = []
    for order in ((near, far), (far, near)):
        another = Signatures(space, ["x"], objective)
        for source in order:
            another.suppose(*judged(source, space, ["x"]), source.error_doubt)
        levels.append(another.levels(everything)[0].tolist())
    assert levels[0] == pytest.approx(levels[1], rel=1e-6)  # (the points come in another order)
    assert dict(zip((c["x"] for c in every), levels[0], strict=True))["fp16"] > -3


def test_only_a_strategy_that_can_takes_sources(other: Source) -> None:
    with pytest.raises(MptuneError, match="strategy random cannot start from earlier runs"):
        make("random", SPACE, Objective(), sources=[other])
    with pytest.raises(MptuneError, match="several objectives"):
        make("bayesian", SPACE, Objective(also=("energy_j",)), sources=[other])


def test_it_is_said_why_a_source_is_of_no_use(other: Source) -> None:
    few = dataclasses.replace(other, trials=tuple(t for t in other.trials if t.is_valid)[:7], remark="not its errors")
    same = dataclasses.replace(
        other, trials=tuple(t.with_measurement(metrics={"time_ms": 1.0}) for t in other.trials if t.is_valid)
    )
    strategy = started(few, same, other)
    strategy.ask(1)
    assert [use.remark for use in strategy.sources] == [
        "not its errors; its trials are not used: 7 different configurations ran, and 8 are needed",
        "its trials are not used: all are equally good",
        "",
    ]
