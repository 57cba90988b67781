"""What instrumented runs may take, and what their failures mean, on a made-up worker."""

import math
from pathlib import Path

from mptune.measure.protocol import Finished
from mptune.measure.screening import Screening
from mptune.results.trial import Measurement, Status, Trial
from mptune.source.loading import load_kernel

KERNEL = load_kernel(Path(__file__).parents[1] / "own_kernel.py")


class MadeUpWorker:
    """Answers requests for instrumented errors with made-up trials, one after the other."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.closed = False

    def ask(self, asked):
        status, error = self.outcomes.pop(0)
        numbers = Measurement({"error": error} if status is Status.OK else {})
        return Finished((Trial(asked.request.configuration, status, "it ended", numbers),))

    def close(self):
        self.closed = True


def screened_by(monkeypatch, *outcomes):
    worker = MadeUpWorker(*outcomes)
    monkeypatch.setattr("mptune.measure.screening.DeviceWorker", lambda *_: worker)
    return Screening(KERNEL, None, None), worker


def of_type(name):
    return KERNEL.configuration({"x_type": name, "y_type": name})


def test_types_in_which_an_instrumented_run_crashes_are_ruled_out_and_others_go_on(monkeypatch):
    found, worker = screened_by(monkeypatch, (Status.OK, 1e-3), (Status.CRASH, 0.0), (Status.OK, 2e-3))
    errors = [found.errors(of_type(name)) for name in ("fp32", "fp16", "fp64")]
    assert errors == [{"error": 1e-3}, {"error": math.inf}, {"error": 2e-3}]
    assert not found.why_not
    assert not worker.closed


def test_a_first_instrumented_run_that_fails_ends_them_and_says_why(monkeypatch):
    found, worker = screened_by(monkeypatch, (Status.COMPILE_ERROR, 0.0), (Status.OK, 1e-3))
    assert [found.errors(of_type(name)) for name in ("fp32", "fp16")] == [{}, {}]
    assert "it ended" in found.why_not
    assert worker.closed


def test_the_first_instrumented_run_compiles_and_takes_none_of_their_time(monkeypatch):
    clock = iter([0.0, 0.0, 0.0, 1000.0, 1000.0, 1000.0, 1001.0, 1001.0]).__next__
    worker = MadeUpWorker((Status.OK, 1e-3), (Status.OK, 2e-3))
    monkeypatch.setattr("mptune.measure.screening.DeviceWorker", lambda *_: worker)
    found = Screening(KERNEL, None, None, clock)
    assert [found.errors(of_type(name)) for name in ("fp32", "fp16")] == [{"error": 1e-3}, {"error": 2e-3}]
