"""The winner's own tuning is tried in the baseline's types, whichever configuration turns out to be the winner."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from made_up_devices import MadeUp, replace_devices

from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.tuning import TuneSettings, tune
from tests.tiers import few

KERNEL = load_kernel(Path(__file__).with_name("own_kernel.py"))
WIDEST = {"x_type": "fp64", "y_type": "fp64"}


class Reordered:
    """Times in which the finals find another winner than the search: what was found last.

    In the search all narrower configurations take about as long; launched again, the later one was found the less it
    takes. In the baseline's types the winner's tuning makes it a little slower than the winner, all other tunings much.
    """

    def __init__(self) -> None:
        self._launches = Counter[Configuration]()
        self.narrow: list[Configuration] = []

    def __call__(self, configuration: Configuration) -> MadeUp:
        self._launches[configuration] += 1
        types = {configuration["x_type"], configuration["y_type"]}
        if "fp16" in types:
            return MadeUp(1.0, 1e-3)
        if types == {"fp64"}:
            tuned_alike = [c for c in self.narrow if {**c, **WIDEST} == dict(configuration)]
            return MadeUp(1.1 * min(map(self.again_ms, tuned_alike), default=20.0), 1e-16)
        if configuration not in self.narrow:
            self.narrow.append(configuration)
        first_ms = 10.0 - 0.001 * len(self.narrow)
        return MadeUp(self.again_ms(configuration) if self._launches[configuration] > 1 else first_ms, 1e-7)

    def again_ms(self, configuration: Configuration) -> float:
        return 10.0 * 0.9 ** self.narrow.index(configuration)


def own(run: Run) -> Configuration:
    assert run.best is not None
    return Configuration({**run.best.configuration, **WIDEST})


def tuned(output: Path | None = None, **changes: Any) -> Run:
    usual = {"backend": "host", "max_error": 1e-5, "strategy": "random", "verify": 0}
    resume = changes.pop("resume", False)
    return tune(KERNEL, TuneSettings(**usual | changes), output=output, resume=resume)


@pytest.mark.parametrize(("budget", "seed"), few([(10, 0), (8, 1), (14, 2), (24, 3)], 2))
def test_the_winner_s_own_baseline_is_tried_after_the_finals(
    monkeypatch: pytest.MonkeyPatch, budget: int, seed: int
) -> None:
    made_up = Reordered()
    replace_devices(monkeypatch, made_up)
    run = tuned(budget=budget, seed=seed)
    assert run.evaluations == budget
    assert run.best is not None
    assert own(run) in [trial.configuration for trial in run.trials]
    assert run.speedup(run.best) < 1.25


def test_a_baseline_that_beats_the_winner_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = Reordered()

    def faster_in_fp64(configuration: Configuration) -> MadeUp:
        does = made_up(configuration)
        is_own = does.error < 1e-10 and does.time_ms < 20.0
        return MadeUp(0.5 * does.time_ms, does.error) if is_own else does

    replace_devices(monkeypatch, faster_in_fp64)
    run = tuned(budget=10)
    assert run.best is not None
    assert run.best is run.baseline
    assert run.state.finals.is_chosen(run.best.configuration)


def test_where_most_of_the_widest_are_wrong_one_that_is_right_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def mostly_wrong(configuration: Configuration) -> MadeUp:
        is_wide = configuration.is_among({name: (kind,) for name, kind in WIDEST.items()})
        if is_wide:
            return MadeUp(20.0, 1e-16 if configuration["unroll"] == 4 else 0.5)
        return MadeUp(10.0, 1e-3 if "fp16" in configuration.values() else 1e-7)

    replace_devices(monkeypatch, mostly_wrong)
    were_wrong = 0
    for seed in range(4):
        settings = TuneSettings(backend="host", max_error=1e-5, strategy="random", verify=0, budget=24, seed=seed)
        run = tune(KERNEL, settings, on_warning=lambda _: None)
        assert run.best is not None
        assert run.baseline is not None
        assert run.baseline.error < 1e-5
        assert run.speedup(run.best) == pytest.approx(2.0)
        wide = [t for t in run.trials if t.configuration.is_among({n: (kind,) for n, kind in WIDEST.items()})]
        were_wrong += wide[0].error > 1e-5
    assert were_wrong
