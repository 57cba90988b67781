"""A Bayesian strategy that looks for the best configuration of some types, and learns from those of all types."""

from __future__ import annotations

import numpy as np
import pytest

from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.strategies.bayesian import BayesianOptions, BayesianStrategy
from tests.tiers import few

KERNEL = load_kernel("convolution2d")
SPACE = KERNEL.search_space(KERNEL.resolve_sizes("default"))
BASELINE = KERNEL.baseline_values()
BYTES = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2}


def time_ms(c: Configuration) -> float:
    """The best tuning is that of every type."""
    width, tile, block = (abs(np.log2(float(c[n])) - at) for n, at in TUNING.items())  # type: ignore[arg-type]
    types = BYTES[str(c["accumulator_type"])] + 0.1 * BYTES[str(c["input_type"])]
    return float((1 + 0.1 * width + 0.2 * tile + 0.1 * block + 0.3 * bool(c["use_shared"])) * types)


TUNING = {"vector_width": 3, "tile_size_y": 2, "block_size_y": 1}


def trial(c: Configuration) -> Trial:
    return Trial(c, Status.OK, measurement=Measurement({"time_ms": time_ms(c), "error": 1e-9}))


def focused(seed: int, told: list[Trial]) -> BayesianStrategy:
    strategy = BayesianStrategy(SPACE, Objective(threshold=1e-4), signature=KERNEL.signature_names, seed=seed)
    strategy.focus(BASELINE)
    strategy.tell(told)
    return strategy


@pytest.mark.parametrize("seed", few(range(3)))
def test_trials_of_other_types_teach_which_tuning_is_fast(seed: int) -> None:
    rng = np.random.default_rng(seed)
    only = SPACE.restrict(BASELINE)
    optimum = min(time_ms(only.configuration(i)) for i in range(only.size))
    own = [trial(only.configuration(int(i))) for i in only.sample(4, rng)]
    told = [trial(SPACE.configuration(int(i))) for i in SPACE.sample(40, rng)]
    found = {}
    for name, known in (("alone", own), ("shared", own + told)):
        strategy, best = focused(seed, known), min(t.time_ms for t in own)
        for _ in range(5):
            (proposed,) = strategy.ask(1)
            assert all(proposed[n] in values for n, values in BASELINE.items())
            best = min(best, time_ms(proposed))
            strategy.tell([trial(proposed)])
        found[name] = best
    assert found["shared"] <= 1.1 * optimum
    assert found["shared"] <= found["alone"]


def test_nothing_but_the_focus_is_ever_proposed() -> None:
    strategy = focused(0, [trial(SPACE.configuration(0))])
    proposed = strategy.ask(20)
    assert len(proposed) == 20
    assert all(c[n] in values for c in proposed for n, values in BASELINE.items())


def test_a_space_without_the_values_of_the_focus_gives_none() -> None:
    """Of a large space candidates are drawn, and moved to values that may be proposed."""
    narrow = SPACE.restrict({"accumulator_type": ("fp32", "fp16")})
    options = BayesianOptions(max_candidates=10, sample=50)
    strategy = BayesianStrategy(
        narrow, Objective(threshold=1e-4), signature=KERNEL.signature_names, seed=0, options=options
    )
    strategy.focus({"accumulator_type": ("fp64",)})
    strategy.tell([trial(narrow.configuration(i)) for i in range(25)])
    strategy.ask(1)
