"""Conformance tests of strategies, also for strategies of third parties.

    from mptune.testing.strategies import StrategyConformance

    class TestMine(StrategyConformance):
        strategy = MyStrategy

pytest collects the class; this module does not import pytest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import (
    BooleanParameter,
    CategoricalParameter,
    OrdinalParameter,
    PermutationParameter,
    PolicyParameter,
    PrecisionParameter,
)
from mptune.space.search_space import SearchSpace
from mptune.strategies.base import Strategy

Evaluate = Callable[[Configuration], Trial]


def _small_space() -> SearchSpace:
    """Return a space of 42 configurations with a parameter of most kinds."""
    return SearchSpace(
        [
            OrdinalParameter("block", [64, 128]),
            OrdinalParameter("only", [7]),
            BooleanParameter("padded"),
            CategoricalParameter("layout", ["row", "column"]),
            PermutationParameter("loops", 2),
            PolicyParameter("policy", ["accurate", "fast"]),
            PrecisionParameter("x_type", ["fp64", "fp32", "fp16"]),
        ],
        ["block < 128 or x_type == 'fp16'", "padded or block <= 64", "loops[0] == 0 or layout == 'row'"],
    )


def _mixed_space() -> SearchSpace:
    return SearchSpace(
        [
            OrdinalParameter("block", [16, 32, 64, 128, 256]),
            OrdinalParameter("tile", [1, 2, 4]),
            PrecisionParameter("x_type", ["fp64", "fp32", "fp16"]),
            PrecisionParameter("y_type", ["fp64", "fp32", "fp16"]),
        ]
    )


def _evaluate(configuration: Configuration) -> Trial:
    """Return a deterministic trial: time from all values, error from the types, some launches failing."""
    code = sum(ord(c) * (i + 1) for i, c in enumerate(str(configuration)))
    if code % 7 == 0:
        return Trial(configuration, Status.LAUNCH_ERROR, "too many resources")
    error = max(10.0 ** -{"fp64": 16, "fp32": 7, "fp16": 3}.get(str(v), 20) for v in configuration.values())
    numbers = [float(v) for v in configuration.values() if isinstance(v, int | float)]
    time_ms = 1.0 + sum(abs(math.log2(1.0 + v) - 3.0) for v in numbers) + 0.1 * (code % 5)
    return Trial(configuration, Status.OK, measurement=Measurement({"time_ms": time_ms, "error": error}))


def _all_fail(configuration: Configuration) -> Trial:
    return Trial(configuration, Status.COMPILE_ERROR, "no such instruction")


def _without_numbers(configuration: Configuration) -> Trial:
    """Return trials whose numbers are missing or useless, in turn."""
    statuses = (Status.OK, Status.INACCURATE, Status.NON_FINITE, Status.TIMEOUT)
    code = sum(map(ord, str(configuration))) % 5
    status = statuses[min(code, 3)]
    metrics = {"time_ms": math.nan, "error": math.nan} if status is Status.OK else {}
    if code == 4:
        return Trial(configuration, Status.OK, measurement=Measurement({"time_ms": 0.0, "error": math.inf}))
    return Trial(configuration, status, measurement=Measurement(metrics))


class StrategyConformance:
    """Subclass it, name it ``Test...`` and set :attr:`strategy`."""

    #: The class under test.
    strategy: ClassVar[type[Strategy]]
    #: Its hyperparameters that differ from the defaults.
    options: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def make(
        self, space: SearchSpace, objective: Objective | None = None, *, signature: Sequence[str] = (), seed: int = 0
    ) -> Strategy:
        """Return a new strategy; override it for another objective."""
        options = self.strategy.options_class.from_mapping(self.strategy.name, self.options)
        return self.strategy(space, objective or Objective(), signature=signature, seed=seed, options=options)

    def run(
        self, strategy: Strategy, evaluate: Evaluate = _evaluate, batch: int = 1, limit: int = 10**9
    ) -> list[Configuration]:
        """Ask and tell until the strategy ends or the limit is reached; return its proposals in order."""
        asked: list[Configuration] = []
        while len(asked) < limit:
            configurations = strategy.ask(min(batch, limit - len(asked)))
            if not configurations:
                break
            assert len(configurations) <= batch
            asked.extend(configurations)
            strategy.tell([evaluate(c) for c in configurations])
        return asked

    def test_visits_a_small_space_once_and_ends(self) -> None:
        for batch in (1, 7):
            space = _small_space()
            strategy = self.make(space)
            asked = self.run(strategy, batch=batch)
            assert len(asked) == len(set(asked)) == space.size
            assert all(c in space for c in asked)
            assert strategy.ask(3) == []

    def test_fills_a_batch_while_the_space_lasts(self) -> None:
        space = _small_space()
        assert len(self.make(space).ask(space.size - 1)) == space.size - 1
        assert len(self.make(space).ask(space.size + 1)) == space.size

    def test_works_on_a_single_configuration(self) -> None:
        space = SearchSpace([OrdinalParameter("block", [32]), PrecisionParameter("x_type", ["fp32"])])
        strategy = self.make(space, Objective(threshold=1e-3), signature=["x_type"])
        assert self.run(strategy) == [space.configuration(0)]

    def test_refuses_an_ask_for_nothing(self) -> None:
        for n in (0, -1):
            refused = False
            try:
                self.make(_small_space()).ask(n)
            except ValueError:
                refused = True
            assert refused, f"ask({n}) must raise ValueError"

    def test_same_seed_same_sequence(self) -> None:
        objective = Objective(threshold=1e-5)
        for batch in (1, 4):
            strategies = [
                self.make(_mixed_space(), objective, signature=["x_type", "y_type"], seed=3) for _ in range(2)
            ]
            first, second = (self.run(strategy, batch=batch, limit=20) for strategy in strategies)
            assert first == second

    def test_may_be_asked_before_it_is_told(self) -> None:
        space = _small_space()
        strategy = self.make(space)
        under_way: list[Configuration] = []
        asked: list[Configuration] = []
        while True:
            while len(under_way) < 3 and (proposed := strategy.ask(1)):
                under_way += proposed
                asked += proposed
            if not under_way:
                break
            strategy.tell([_evaluate(under_way.pop(0))])
        assert len(asked) == len(set(asked)) == space.size

    def test_goes_on_when_everything_fails(self) -> None:
        space = _small_space()
        asked = self.run(self.make(space), _all_fail, batch=2)
        assert len(set(asked)) == space.size

    def test_goes_on_without_numbers(self) -> None:
        space = _small_space()
        asked = self.run(self.make(space), _without_numbers)
        assert len(set(asked)) == space.size
        limited = self.make(space, Objective(threshold=1e-5), signature=["policy", "x_type"])
        asked = self.run(limited, _without_numbers)
        assert len(set(asked)) == len(asked) > 0

    def test_never_proposes_what_it_was_told(self) -> None:
        space = _small_space()
        told = space.configurations(range(0, space.size, 3))
        strategy = self.make(space)
        strategy.tell([_evaluate(c) for c in told])
        asked = self.run(strategy)
        assert not set(asked) & set(told)
        assert len(asked) == space.size - len(told)

    def test_takes_duplicates_and_foreign_trials(self) -> None:
        space = _small_space()
        strategy = self.make(space)
        first = strategy.ask(4)
        strategy.tell([])
        strategy.tell([_evaluate(c) for c in (*first, *first)])
        strategy.tell([_evaluate(first[0]), _all_fail(first[0])])
        strategy.tell([_evaluate(Configuration({"unknown": 1})), _evaluate(Configuration({**first[0], "block": 33}))])
        asked = self.run(strategy)
        assert len(set(asked) | set(first)) == len(asked) + 4 == space.size

    def test_may_be_asked_again_before_it_is_told(self) -> None:
        space = _small_space()
        strategy = self.make(space)
        waiting = [c for _ in range(9) for c in strategy.ask(3)]
        assert len(set(waiting)) == 27
        strategy.tell([_evaluate(c) for c in reversed(waiting)])
        asked = self.run(strategy, batch=4)
        assert len(set(asked) | set(waiting)) == len(asked) + 27 == space.size

    def test_searches_under_a_threshold(self) -> None:
        space = _mixed_space()
        objective = Objective(threshold=1e-5)
        strategy = self.make(space, objective, signature=["x_type", "y_type"], seed=1)
        asked = self.run(strategy, limit=40)
        assert len(set(asked)) == len(asked)
        assert objective.best([_evaluate(c) for c in asked]) is not None

    def test_works_on_a_large_space(self) -> None:
        space = SearchSpace([OrdinalParameter(f"p{i}", range(1, 11)) for i in range(8)])
        assert space.size == 10**8
        asked = self.run(self.make(space), batch=3, limit=24)
        assert len(set(asked)) == 24
        assert all(c in space for c in asked)
