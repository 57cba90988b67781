"""Looking trials up in a recording."""

from __future__ import annotations

import pytest

from mptune.errors import SpaceFileError
from mptune.measure.base import Replay
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.store import RunInfo

TRIALS = [
    Trial(Configuration({"a": 1, "b": "x"}), Status.OK, measurement=Measurement({"time_ms": 2.0})),
    Trial(Configuration({"a": 2, "b": "x"}), Status.CRASH, "segfault"),
    Trial(Configuration({"a": 3, "b": "y"}), Status.OK, measurement=Measurement({"time_ms": 1.0})),
]


def test_trials_come_in_the_order_asked_for_and_as_often() -> None:
    wanted = [TRIALS[2], TRIALS[0], TRIALS[1], TRIALS[0]]
    with Replay(Run(RunInfo(), TRIALS)) as evaluator:
        assert list(evaluator.evaluate([t.configuration for t in wanted])) == wanted
        assert list(evaluator.evaluate([])) == []


def test_what_was_not_recorded_is_an_error_that_names_it() -> None:
    evaluator = Replay(Run(RunInfo(), TRIALS, name="gemm-a100"))
    found = evaluator.evaluate([TRIALS[0].configuration, Configuration({"a": 4, "b": "x"})])
    assert next(found) == TRIALS[0]
    with pytest.raises(SpaceFileError, match="gemm-a100 does not hold the configuration a=4, b=x"):
        next(found)
