"""A kernel that leaves its buffers is found out, and the next one has whole data."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mptune import In, Out, PrecisionParameter
from mptune.backends.host import HostBackend
from mptune.kernel import Kernel
from mptune.measure import buffers
from mptune.measure.bench import Bench, Request
from mptune.measure.buffers import GUARD_BYTES, GuardedBuffer
from mptune.measure.device import DeviceEvaluator
from mptune.measure.policy import Plan
from mptune.measure.timing import TimingPlan
from mptune.precision import PRECISIONS
from mptune.results.trial import Status, Trial
from mptune.source.loading import load_kernel
from mptune.source.render import render

PLAN = TimingPlan(warmups=0, min_repeats=2, max_repeats=2)


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return load_kernel(Path(__file__).with_name("overrunning.py"))


@pytest.fixture
def bench(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    # Zones differ from one to the next, and a byte that is written as it was there counts as whole: always the same.
    monkeypatch.setattr(buffers, "_guards", itertools.cycle([1]))
    made = Bench(kernel, kernel.resolve_sizes(), HostBackend(workers=1), plan=PLAN)
    yield made
    made.close()


def evaluate(bench: Bench, plan: Plan | None = None, **values: object) -> Trial:
    configuration = bench.kernel.configuration(values)
    return bench.evaluate(Request(configuration, render(bench.kernel, configuration, bench.sizes), plan or Plan()))


class TestZones:
    @pytest.mark.parametrize("nbytes", [1, 7, 8008, 1 << 16])
    def test_data_keep_their_alignment_and_lie_between_the_zones(self, nbytes: int) -> None:
        guarded = GuardedBuffer(HostBackend(), nbytes, np.dtype(np.uint8))
        assert guarded.data.nbytes == nbytes
        assert 0 <= guarded.nbytes - nbytes - 2 * GUARD_BYTES < GUARD_BYTES
        assert guarded.nbytes % GUARD_BYTES == 0
        assert guarded.data.address % 64 == 0
        assert GUARD_BYTES % 256 == 0
        guarded.data.write(np.arange(nbytes).astype(np.uint8))
        assert not guarded.overrun()
        guarded.free()

    @pytest.mark.parametrize(("offset", "element"), [(0, 100), (5, 100), (GUARD_BYTES - 3, 2147)])
    def test_what_is_written_after_the_data_is_found(self, offset: int, element: int) -> None:
        guarded = GuardedBuffer(HostBackend(), 800, np.dtype(np.float64))
        guarded._whole.part(GUARD_BYTES + 800 + offset, 3).fill(1)
        assert guarded.overrun() == f"3 bytes past its last element (element {element} and after)"

    def test_what_is_written_before_the_data_is_found_by_its_last_byte(self) -> None:
        guarded = GuardedBuffer(HostBackend(), 800, np.dtype(np.float32))
        guarded._whole.part(GUARD_BYTES - 8, 4).fill(1)
        assert guarded.overrun() == "4 bytes before its first element (element -2 and before)"

    @pytest.mark.parametrize("precision", PRECISIONS.values(), ids=str)
    def test_what_is_read_from_a_zone_is_no_number(self, precision: object) -> None:
        dtype = precision.dtype  # type: ignore[attr-defined]
        guarded = GuardedBuffer(HostBackend(), 80, dtype)
        found = np.empty(guarded._after.nbytes // dtype.itemsize, dtype)
        guarded._after.read(found)
        with np.errstate(invalid="ignore"):
            assert np.isnan(found).all()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"fault": "past"}, r"out of bounds of 'y': 8 bytes past its last element \(element 1001 and after\)"),
        ({"fault": "before", "by": 24, "t": "fp32"}, r"'y': 4 bytes before .* \(element -24 and before\)"),
        ({"fault": "input", "by": 1500}, r"'x': 8 bytes past .* \(element 2500 and after\)"),
        ({"fault": "integer"}, r"'labels': 4 bytes past .* \(element 1001 and after\)"),
    ],
)
def test_a_write_out_of_bounds_is_a_corrupt_trial_that_says_where(
    bench: Bench, values: dict[str, object], message: str
) -> None:
    trial = evaluate(bench, **values)
    assert trial.status is Status.CORRUPT
    assert not trial.is_valid
    assert not trial.measurement.times_ms
    assert re.search(message, trial.message), trial.message


def test_a_read_out_of_bounds_that_reaches_the_result_is_no_number(bench: Bench) -> None:
    trial = evaluate(bench, fault="read")
    assert trial.status is Status.NON_FINITE
    assert "1 element" in trial.message


@pytest.mark.full
def test_the_worker_is_replaced_and_the_search_goes_on(kernel: Kernel) -> None:
    with DeviceEvaluator(kernel, kernel.resolve_sizes(), "host", plan=PLAN) as evaluator:
        trials = list(evaluator.evaluate([kernel.configuration({"fault": f}) for f in ("none", "past", "none")]))
    assert [trial.status for trial in trials] == [Status.OK, Status.CORRUPT, Status.OK]
    assert trials[2].error == 0.0


@pytest.mark.parametrize("name", ["fp64", "bf16"])
def test_what_comes_of_a_zone_differs_from_what_is_in_it(name):
    """Without a look at the edge a kernel reads beyond its input, and writes what comes of that beyond its output."""
    kernel = Kernel(
        name="relax",
        parameters=[PrecisionParameter("type", [name])],
        arguments=[Out("y", "n", precision="type"), In("x", "n", precision="type")],
        sizes={"default": {"n": 1003}},
        inputs=lambda rng, size: {"x": rng.uniform(size=size.n)},
        reference=lambda inputs, size: 0.9 * inputs["x"] + 0.1,
        grid=["ceildiv(n, 64)"],
        block=[64],
        template="""
extern "C" __global__ void relax({{ type }}* y, const {{ type }}* x) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    y[i] = x[i] + {{ type }}(0.1) * ({{ type }}(1) - x[i]);
}
""",
    )
    with DeviceEvaluator(kernel, kernel.resolve_sizes(), "host") as evaluator:
        (trial,) = evaluator.evaluate([kernel.configuration({})])
    assert trial.status is Status.CORRUPT
    assert "out of bounds of 'y'" in trial.message
