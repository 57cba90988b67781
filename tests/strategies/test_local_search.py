from __future__ import annotations

import numpy as np
import pytest
from landscape import EVERY, SPACE, evaluate, is_local_optimum, neighbours, run, score

from mptune.results.objective import Objective
from mptune.results.trial import Status, Trial
from mptune.space.configuration import Configuration
from mptune.strategies import make
from mptune.strategies.local_search import LocalSearchOptions, LocalSearchStrategy

KINDS = ("hamming", "adjacent")
#: Far from everything good, but it runs.
CORNER = Configuration({"a": 1, "b": 1, "c": 0, "d": 0, "layout": "row"})


def _search(seed: int = 0, **options: object) -> LocalSearchStrategy:
    strategy = make("local-search", SPACE, Objective(), seed=seed, options=options)
    assert isinstance(strategy, LocalSearchStrategy)
    return strategy


class Recording(LocalSearchStrategy):
    """Notes where its climbs end."""

    def __init__(self, seed: int, options: LocalSearchOptions) -> None:
        super().__init__(SPACE, Objective(), seed=seed, options=options)
        self.optima: list[Configuration] = []

    def _reached(self, optimum: int) -> None:
        self.optima.append(SPACE.configuration(optimum))


@pytest.mark.parametrize(("kind", "improvement", "batch"), [("hamming", "first", 7), ("adjacent", "best", 1)])
def test_every_climb_ends_at_a_local_optimum(kind: str, improvement: str, batch: int) -> None:
    strategy = Recording(3, LocalSearchOptions(kind, improvement))  # type: ignore[arg-type]
    run(strategy, 250, batch)
    assert len(set(strategy.optima)) >= 2
    assert all(is_local_optimum(c, kind) for c in strategy.optima)


@pytest.mark.parametrize("kind", KINDS)
def test_first_improvement_moves_at_once(kind: str) -> None:
    strategy = _search(neighbourhood=kind)
    here = CORNER
    strategy.tell([evaluate(here)])
    steps = 0
    while not (is_local_optimum(here, kind) and all(SPACE.index(c) in strategy.seen for c in neighbours(here, kind))):
        (c,) = run(strategy, 1)
        assert c in neighbours(here, kind)
        here = max(here, c, key=score)
        steps += 1
    assert steps > 10


@pytest.mark.parametrize("kind", KINDS)
def test_best_improvement_looks_at_all_neighbours_first(kind: str) -> None:
    strategy = _search(neighbourhood=kind, improvement="best")
    here = CORNER
    strategy.tell([evaluate(here)])
    seen, moves = {here}, 0
    while True:
        around = neighbours(here, kind)
        seen.update(run(strategy, len(set(around) - seen), batch=4))
        assert seen >= set(around)
        if is_local_optimum(here, kind):
            break
        here, moves = max(around, key=score), moves + 1
    assert moves >= 2
    assert strategy.ask(1)[0] not in seen


def test_neighbours_evaluated_before_cost_nothing() -> None:
    strategy = _search(neighbourhood="hamming")
    here = next(c for c in EVERY if not is_local_optimum(c, "hamming") and score(c) > 0)
    around = neighbours(here, "hamming")
    better = max(around, key=score)
    strategy.tell([evaluate(c) for c in (here, *around)])
    assert strategy.ask(1)[0] in neighbours(better, "hamming")


@pytest.mark.parametrize("kind", KINDS)
def test_it_starts_at_the_best_trial_it_was_told(kind: str) -> None:
    told = [EVERY[i] for i in np.random.default_rng(5).choice(len(EVERY), 30, replace=False)]
    strategy = _search(neighbourhood=kind)
    strategy.tell([evaluate(c) for c in told])
    assert strategy.ask(1)[0] in neighbours(max(told, key=score), kind)


def test_it_does_not_climb_from_a_failure() -> None:
    strategy = _search()
    (first,) = strategy.ask(1)
    strategy.tell([Trial(first, Status.CRASH)])
    (second,) = strategy.ask(1)
    strategy.tell([evaluate(second)])
    assert score(second) > 0
    assert strategy.ask(1)[0] in neighbours(second, "hamming")


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_climb_starts_at_random_where_the_kernel_runs(kind: str) -> None:
    strategy = _search(neighbourhood=kind)
    optimum = next(c for c in EVERY if is_local_optimum(c, kind) and score(c) > 0)
    strategy.tell([evaluate(c) for c in (optimum, *neighbours(optimum, kind))])
    (failing,) = strategy.ask(1)
    strategy.tell([Trial(failing, Status.CRASH)])
    (start,) = strategy.ask(1)
    assert start not in neighbours(failing, kind)
    strategy.tell([evaluate(start)])
    assert 0 < score(start) < score(optimum)
    assert strategy.ask(1)[0] in neighbours(start, kind)


def test_trials_that_come_late_and_in_another_order_are_climbed_from() -> None:
    strategy = _search()
    asked = [c for _ in range(10) for c in strategy.ask(4)]
    strategy.tell([evaluate(c) for c in asked[::-1]])
    assert strategy.ask(1)[0] in neighbours(max(asked, key=score), "hamming")


def test_a_late_neighbour_that_is_better_is_moved_to() -> None:
    strategy = _search()
    here = CORNER
    strategy.tell([evaluate(here)])
    around = strategy.ask(12)
    worst_first = sorted((c for c in around if score(c) > score(here)), key=score)
    assert len(worst_first) >= 3
    strategy.tell([evaluate(worst_first[0])])
    assert strategy.ask(1)[0] in neighbours(worst_first[0], "hamming")
    strategy.tell([evaluate(worst_first[-1])])
    assert strategy.ask(1)[0] in neighbours(worst_first[-1], "hamming")
