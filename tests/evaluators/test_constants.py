"""Arguments in constant memory: no parameters of the function, but arrays of the template's, set before it runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from limited_backend import LimitedBackend

from mptune.backends.base import Backend, CompileOptions
from mptune.backends.cuda import CudaBackend
from mptune.backends.hip import HipBackend
from mptune.backends.host import HostBackend
from mptune.errors import BackendUnavailableError, TemplateError
from mptune.kernel import Constant, In, Kernel, Out, Scalar
from mptune.measure.bench import Bench, Request
from mptune.measure.timing import TimingPlan
from mptune.results.trial import Status, Trial
from mptune.source.render import render
from mptune.space.parameters import PrecisionParameter
from tests.tiers import few

TEMPLATE = """
__constant__ {{ w_type }} weights[{{ taps }}][2];
__constant__ int offset[1];
extern "C" __global__ void smooth(float* y, const float* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int k = 0; k < {{ taps }}; ++k) {
        sum += static_cast<float>(weights[k][0]) * x[(i + k + offset[0]) % n] + static_cast<float>(weights[k][1]);
    }
    y[i] = sum;
}
"""


def reference(inputs, size):
    total = np.zeros(size.n)
    for k in range(size.taps):
        total += inputs["weights"][k, 0] * np.roll(inputs["x"], -k - int(inputs["offset"][0])) + inputs["weights"][k, 1]
    return total


KERNEL = Kernel(
    name="smooth",
    parameters=[PrecisionParameter("w_type", ["fp64", "fp32", "bf16", "fp8_e4m3"])],
    arguments=[
        Out("y", "n", precision="fp32"),
        Constant("weights", ("taps", 2), precision="w_type"),
        In("x", "n", precision="fp32"),
        Constant("offset", 1, dtype="int32"),
        Scalar("n", dtype="int32"),
    ],
    sizes={"default": {"n": 1000, "taps": 5}},
    inputs=lambda rng, size: {
        "x": rng.uniform(1.0, 2.0, size.n),
        "weights": rng.uniform(0.5, 1.0, (size.taps, 2)),
        "offset": np.array([3], np.int32),
    },
    reference=reference,
    grid=["ceildiv(n, 64)"],
    block=["64"],
    template=TEMPLATE,
    metric="MaxRE",
)


def evaluate(kernel: Kernel, w_type: str, backend: Backend | None = None) -> Trial:
    plan = TimingPlan(warmups=0, min_repeats=1, max_repeats=1)
    bench = Bench(kernel, kernel.resolve_sizes(), backend or HostBackend(workers=1), plan=plan)
    configuration = kernel.configuration({"w_type": w_type})
    trial = bench.evaluate(Request(configuration, render(kernel, configuration, bench.sizes)))
    bench.close()
    return trial


@pytest.mark.full
@pytest.mark.parametrize(
    ("w_type", "low", "high"),
    few([("bf16", 1e-5, 4e-3), ("fp64", 1e-9, 1e-6), ("fp8_e4m3", 1e-3, 6e-2)]),
)
def test_they_hold_the_input_in_its_precision(w_type: str, low: float, high: float) -> None:
    trial = evaluate(KERNEL, w_type)
    assert trial.status is Status.OK, trial.message
    assert low < trial.error < high


def test_without_symbols_and_addresses_they_are_buffers() -> None:
    trial = evaluate(KERNEL, "fp32", LimitedBackend())
    assert trial.status is Status.OK, trial.message
    assert trial.error == evaluate(KERNEL, "fp32").error


@pytest.mark.parametrize(
    ("backend", "architecture"), [(CudaBackend, "sm_90"), (HipBackend, "gfx90a")], ids=["cuda", "hip"]
)
def test_the_same_source_compiles_for_gpus(backend: type[CudaBackend | HipBackend], architecture: str) -> None:
    try:
        backend.runtime_compiler()
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    configuration = KERNEL.configuration({"w_type": "bf16"})
    source = render(KERNEL, configuration, KERNEL.resolve_sizes())
    binary = backend().compiler.compile(source, KERNEL.function, CompileOptions(architecture))
    # Symbols are found by these very names.
    assert b"\0weights\0" in binary.image
    assert b"\0offset\0" in binary.image


@pytest.mark.parametrize(
    ("found", "replacement"),
    [("weights[{{ taps }}][2]", "weights[{{ taps }}][3]")],
)
def test_an_array_of_another_size_or_type_does_not_compile(found: str, replacement: str) -> None:
    trial = evaluate(dataclasses.replace(KERNEL, template=TEMPLATE.replace(found, replacement)), "fp32")
    assert trial.status is Status.COMPILE_ERROR
    assert "argument weights of kernel smooth is 10 elements passed as fp32" in trial.message


def test_an_array_that_is_not_there_is_told_of() -> None:
    kernel = dataclasses.replace(KERNEL, template=TEMPLATE.replace("int offset[1]", "int shift[1]"))
    with pytest.raises(TemplateError, match=r"no __constant__ TYPE offset\[\.\.\.\], which the kernel declares"):
        render(kernel, kernel.configuration({}), kernel.resolve_sizes())
