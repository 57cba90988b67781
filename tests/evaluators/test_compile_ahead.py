"""What is compiled before its turn is what is evaluated in its turn, and nothing compiles while a timing runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from mptune.backends.host_compiler import HostCompiler
from mptune.kernel import Kernel
from mptune.measure.device import DeviceEvaluator
from mptune.measure.timing import TimingPlan
from mptune.measure.worker import Limits
from mptune.results.trial import Status
from mptune.source.loading import load_kernel

PLAN = TimingPlan(warmups=1, min_repeats=3, max_repeats=5, cap_s=0.05)


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return load_kernel(Path(__file__).with_name("faulty.py"))


@pytest.mark.full
def test_compilers_are_paused_for_each_timing_and_for_nothing_else(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []

    @contextmanager
    def counted() -> Iterator[None]:
        pauses.append("begin")
        try:
            yield
        finally:
            pauses.append("end")

    def paused(_: HostCompiler) -> AbstractContextManager[None]:
        return counted()

    monkeypatch.setattr(HostCompiler, "paused", paused)
    faults = [kernel.configuration({"fault": fault}) for fault in ("none", "unwritten", "compile", "segfault")]
    with DeviceEvaluator(
        kernel,
        kernel.resolve_sizes(),
        "host",
        plan=PLAN,
        limits=Limits(run_s=10),
        compilers=2,
    ) as evaluator:
        statuses = [trial.status for trial in evaluator.evaluate([*faults, kernel.configuration({"block": 64})])]
    assert statuses == [Status.OK, Status.UNWRITTEN, Status.COMPILE_ERROR, Status.CRASH, Status.OK]
    # The others do not come to their timing.
    assert pauses == ["begin", "end"] * 2
