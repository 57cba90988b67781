"""The benchmark of the OpenCL backend: that it runs, and what its page says of two tools."""

from __future__ import annotations

import json

import pytest
from vendor_compilers import needs

from benchmarks import opencl


@pytest.mark.parametrize("elements", [pytest.param("1031", marks=needs("opencl"))])
def test_a_size_is_measured_and_its_fastest_kernel_timed_again(
    elements: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert opencl.main(["--alone", "--budget", "3", "--rounds", "1", "--elements", elements, "--json"]) == 0
    ours = json.loads(capsys.readouterr().out)["sizes"][elements][opencl.OURS]
    assert ours["per_second"] > 0
    assert ours["again_ms"] > 0


def test_kernels_are_compared_by_times_that_were_taken_alike() -> None:
    def tool(rate: float, told_ms: float, again_ms: float) -> dict[str, object]:
        times = {"best_ms": told_ms, "again_ms": again_ms, "best": "block_size=64"}
        return {"per_second": rate, "wall_s": 10.0, "phases_s": {"compile": 1.0}, **times}

    page = opencl.markdown(
        {
            "device": "a device",
            "versions": {},
            "command": "python benchmarks/opencl.py",
            "load": 0.5,
            "kernel": "axpy",
            "budget": 96,
            "rounds": 3,
            "sizes": {"1048576": {opencl.OURS: tool(20.0, 0.1, 0.3), opencl.PEER: tool(8.0, 0.7, 0.2)}},
            "compilations_ms": {},
        }
    )
    assert "2.50x the evaluations per second (target 2x: met)" in page
    assert "1.50x the time of the best kernel (target 1.05x: missed)" in page
