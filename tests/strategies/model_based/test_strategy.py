from __future__ import annotations

import numpy as np
import pytest

from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies.model_based.strategy import ascend, best_and_others

SPACE = SearchSpace([OrdinalParameter(name, range(6)) for name in "abcd"], ["a + b <= 7", "c != d"])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["hamming", "adjacent"])
def test_ends_at_the_best_of_the_local_maxima(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=SPACE.size)
    starts = SPACE.sample(4, rng).tolist()
    asked: list[int] = []

    def value(indices: np.ndarray) -> np.ndarray:
        asked.extend(indices.tolist())
        return values[indices]

    best = ascend({i: values[i] for i in starts}, lambda i: SPACE.neighbours(i, kind), value)  # type: ignore[arg-type]
    assert len(asked) == len(set(asked))
    found = values[best]
    assert found > values[SPACE.neighbours(best, kind)].max()  # type: ignore[arg-type]
    reached = []
    for here in starts:
        while True:
            around = SPACE.neighbours(here, kind)  # type: ignore[arg-type]
            there = int(around[values[around].argmax()])
            if values[there] <= values[here]:
                break
            here = there
        reached.append(values[here])
    assert found == max(reached)


def test_of_too_many_observations_the_best_half_and_some_others_are_held() -> None:
    ranked = list(range(60, 0, -1))
    held = best_and_others(ranked, 20, np.random.default_rng(0))
    assert len(held) == len(set(held)) == 20
    assert set(ranked[:10]) <= set(held) <= set(ranked)
