"""Tuning for a front: what is known beforehand, what is measured itself, and what is measured again at the end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from described import described_run

import mptune
from mptune.measure.device import DeviceEvaluator
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.tuning.finals import finalists

OWN = Path(__file__).with_name("own_kernel.py")


def tuned(path: Path | None = None, **changes: Any) -> Run:
    given = {"backend": "host", "budget": 14, "objectives": ("time", "error"), "seed": 2} | changes
    return mptune.tune(OWN, output=path, **given)


@pytest.mark.full
def test_the_front_is_measured_itself_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    submit = DeviceEvaluator.submit

    def watched(self: DeviceEvaluator, configuration: Any, best_ms: float = math.inf, *more: Any) -> None:
        limits.append(best_ms)
        submit(self, configuration, best_ms, *more)

    monkeypatch.setattr(DeviceEvaluator, "submit", watched)
    run = tuned(tmp_path / "x.db")
    assert run.info.strategy == "bayesian-pareto"
    assert run.info.objective.metrics == ("time_ms", "error")
    assert run.best is not None
    # Of what is as fast as far as the finals can tell, the best is the simplest.
    fastest = run.front[0].configuration
    assert run.best.configuration in {fastest, *run.state.finals.tied_with(fastest)}
    # What is slow may be on the front by its error: none is cut short.
    assert limits == [math.inf] * 14
    loaded = Run.load(tmp_path / "x.db")
    assert [t.configuration for t in loaded.front] == [t.configuration for t in run.front]
    resumed = tuned(tmp_path / "x.db", budget=18, resume=True)
    assert resumed.evaluations == 18
    assert {t.configuration for t in run.trials} < {t.configuration for t in resumed.trials}


def test_finalists_are_the_front_and_the_baseline() -> None:
    def trial(block: int, kind: str, **metrics: float) -> Trial:
        configuration = Configuration({"block": block, "type": kind})
        return Trial(configuration, Status.OK, measurement=Measurement(metrics))

    trials = [
        trial(1, "fp64", time_ms=9.0, error=1e-16),
        trial(2, "fp64", time_ms=8.0, error=1e-15),
        *(trial(k, "fp32", time_ms=float(k), error=10.0**-k) for k in range(1, 7)),
    ]
    objective = Objective(also=("error",))
    run = described_run({"also": ["error"]}, trials)
    chosen = finalists(run, objective, {"type": ["fp64"]})
    assert {id(t) for t in chosen} == {id(t) for t in trials}
    assert len(finalists(described_run({}, trials), Objective(), {"type": ["fp64"]})) == 5
