"""A kernel with everything that is awkward to emit, and runs of kernels made without tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from described import described_run

from mptune.backends.base import Backend, CompileOptions
from mptune.backends.host import HostBackend
from mptune.data import DataManager
from mptune.kernel import Constant, In, InOut, Kernel, Out, Scalar, Sizes
from mptune.measure.bench import Bench, Request
from mptune.results.trial import Status, Trial
from mptune.run import Run
from mptune.source.render import render
from mptune.space.configuration import Configuration
from mptune.space.parameters import CategoricalParameter, OrdinalParameter, PermutationParameter, PrecisionParameter

__all__ = ["AWKWARD", "NASTY", "data_folder", "file_name", "measured", "run_of"]

#: Ends comments and strings of every language there is, if it is let.
NASTY = 'a "b" \\ */ \'\'\' """ ??/ </script> `|` #{é}'


def reference(inputs: Mapping[str, Any], size: Sizes) -> dict[str, Any]:
    padded = np.zeros(-(-size.n // 32) * 32)
    padded[: size.n] = inputs["x"][inputs["index"]]
    blocks = padded.reshape(-1, 32)
    sums = sum(w * np.roll(blocks, -t, axis=1) for t, w in enumerate(inputs["weights"]))
    return {"y": inputs["y"] + inputs["a"] * sums.reshape(-1)[: size.n], "count": inputs["index"].astype(np.int64) + 1}


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    return {
        "y": rng.uniform(1, 2, size.n),
        "x": rng.uniform(1, 2, size.n),
        "weights": rng.uniform(0.5, 1, size.taps),
        "a": 0.3,
        "index": rng.permutation(size.n).astype(np.int32),
    }


AWKWARD = Kernel(
    name="awkward",
    description=NASTY,
    parameters=[
        OrdinalParameter("block", [32]),
        CategoricalParameter("register", ["plain", NASTY]),
        PermutationParameter("order", 3),
        PrecisionParameter("x_type", ["fp64", "bf16"]),
        PrecisionParameter("a_type", ["fp64", "fp16"]),
        PrecisionParameter("w_type", ["fp64", "fp8_e4m3"]),
    ],
    arguments=[
        InOut("y", "n", precision="x_type"),
        In("x", "n", precision="x_type"),
        Constant("weights", "taps", precision="w_type"),
        Scalar("a", precision="a_type"),
        In("index", "n", dtype="int32"),
        Out("count", "n", dtype="int64"),
        Scalar("n", dtype="int32"),
    ],
    sizes={"default": {"n": 1003, "taps": 3}},
    inputs=inputs,
    reference=reference,
    grid=["ceildiv(n, block) if n > block else 1"],
    block=["block"],
    shared_bytes="block * 8",
    metric="NRMSE",
    template="""
__constant__ {{ w_type }} weights[{{ taps }}];

extern "C" __global__ void awkward({{ x_type }}* y, const {{ x_type }}* x, {{ a_type }} a, const int* index,
                                   long long* count, int n) {
    SHARED_DYNAMIC(double, part);
    const int i = blockIdx.x * {{ block }} + threadIdx.x;
    part[threadIdx.x] = i < n ? static_cast<double>(x[index[i]]) : 0.0;
    __syncthreads();
    if (i >= n) return;
    double sum = 0;
{% for t in range(taps) %}
    sum += static_cast<double>(weights[{{ t }}]) * part[(threadIdx.x + {{ t }}) % {{ block }}];
{% endfor %}
    y[i] = static_cast<{{ x_type }}>(static_cast<double>(y[i]) + static_cast<double>(a) * sum);
    count[i] = index[i] + 1;
}
""",
)


def run_of(
    kernel: Kernel,
    trials: Sequence[Trial],
    sizes: Sizes | None = None,
    backend: Backend | str | None = None,
    **settings: Any,
) -> Run:
    """Return a run that says it was made on this machine's processor unless told, or of a backend of another name."""
    called = backend if isinstance(backend, str) else ""
    backend = backend if isinstance(backend, Backend) else HostBackend()
    device = backend.describe()
    sizes = sizes or kernel.resolve_sizes()
    described = {
        "kernel": kernel.name,
        "backend": called or device.backend,
        "device": device.name,
        "architecture": device.architecture,
        "versions": dict(device.versions),
        "compiler": backend.identity(CompileOptions()),
        "sizes": dict(sizes),
        "forms": list(kernel.forms),
        "seed": 0,
        "threshold": None,
        "metric": "NRMSE",
        "objective": "time_ms",
        "minimise": True,
        "baseline_values": {name: list(values) for name, values in kernel.baseline_values().items()},
        "signature": list(kernel.signature_names),
        "parameters": [{"name": p.name, "kind": p.kind, "values": list(p.values)} for p in kernel.parameters],
        "command": "mptune tune",
    }
    return described_run({**described, **settings}, trials)


def measured(
    kernel: Kernel, *configurations: Mapping[str, Any], sizes: Sizes | None = None, backend: Backend | None = None
) -> list[Trial]:
    """Return trials of configurations, measured on the processor unless told; values not given are the first."""
    sizes = sizes or kernel.resolve_sizes()
    bench = Bench(kernel, sizes, backend or HostBackend())
    trials = []
    for values in configurations:
        configuration: Configuration = kernel.configuration(values)
        trial = bench.evaluate(Request(configuration, render(kernel, configuration, sizes)))
        assert trial.status is Status.OK, trial.message
        trials.append(trial)
    bench.close()
    return trials


def file_name(argument: Any) -> str:
    """Return the name the examples keep an argument under."""
    if argument.dtype is None:
        return f"{argument.name}.f64"
    dtype = np.dtype(argument.dtype)
    return f"{argument.name}.{dtype.kind}{8 * dtype.itemsize}"


def data_folder(data: DataManager, folder: Path) -> Path:
    """Write the inputs as the examples read them."""
    folder.mkdir()
    for argument in data.kernel.arguments:
        if argument.is_input:
            dtype = argument.dtype or np.float64
            np.asarray(data.inputs[argument.name], dtype=dtype).tofile(folder / file_name(argument))
    return folder
