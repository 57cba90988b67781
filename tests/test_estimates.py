"""Estimated times on GPUs: operations are counted as they are executed, and rated by published figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mptune import Application, In, InOut, Kernel, Scalar, cli, tune
from mptune.errors import UnknownNameError
from mptune.kernel import Sizes
from mptune.measure.instrument import Instrument
from mptune.results.estimates import GPUS, Count, Counts, estimates, gpu_of_program, metric_of
from mptune.space.parameters import PolicyParameter, PrecisionParameter

N = 1000
SIZES = Sizes({"n": N})


def kernel(body: str, *, policy: bool = False) -> Kernel:
    """Return a kernel of one line, over arrays of two types."""
    return Kernel(
        name="one_line",
        parameters=[
            PrecisionParameter("x_type", ["fp64", "fp32", "fp16"]),
            PrecisionParameter("y_type", ["fp64", "fp32", "fp16"]),
            *([PolicyParameter("policy")] if policy else []),
        ],
        arguments=[In("x", "n", precision="x_type"), InOut("y", "n", precision="y_type"), Scalar("n", dtype="int32")],
        sizes={"default": {"n": N}},
        grid=["(n + 63) // 64"],
        block=[64],
        inputs=lambda rng, size: {"x": rng.uniform(1, 2, size.n), "y": rng.uniform(1, 2, size.n)},
        reference=lambda inputs, size: {"y": inputs["y"]},
        template=f"""
extern "C" __global__ void one_line(const {{{{ x_type }}}}* x, {{{{ y_type }}}}* y, int n) {{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {{ {body} }}
}}
""",
    )


def counted(body: str, *, policy: bool = False) -> dict[tuple[str, tuple[str, ...], str], int]:
    found = Instrument(kernel(body, policy=policy), SIZES, is_counting=True).counts({})["one_line"]
    return {
        (e.kind, e.types, " ".join(e.of) if e.kind == "conversion" else e.policy): e.number for e in found.operations
    }


def test_operations_are_counted_by_what_their_type_depends_on() -> None:
    found = counted("y[i] = x[i] * x[i] + y[i] / 3; if (i % 2 == 0) y[i] = mp::fma(x[i], x[i], x[i]);")
    assert found["product", ("x_type",), "accurate"] == N
    assert found["quotient", ("y_type",), "accurate"] == N
    assert found["sum", ("x_type", "y_type"), "accurate"] == N
    assert found["fused", ("x_type",), "accurate"] == N // 2
    conversions = {each: number for each, number in found.items() if each[0] == "conversion"}
    assert conversions == {
        ("conversion", ("x_type", "y_type"), "x_type"): N,
        ("conversion", ("x_type", "y_type"), "y_type"): N,
        ("conversion", ("y_type",), "x_type y_type"): N,
        ("conversion", ("y_type",), "x_type"): N // 2,
    }


def test_functions_are_counted_under_their_policy() -> None:
    found = counted("y[i] = exp<{{ policy }}>(x[i]) + sqrt(x[i]);", policy=True)
    assert found["function", ("x_type",), "policy"] == N
    assert found["root", ("x_type",), "accurate"] == N


def test_operations_of_types_that_the_text_names_itself_are_counted() -> None:
    found = counted(
        "float s = 0.5f; double d = x[i]; float2 v = make_float2(s, 2.0f);"
        "s = v.x * v.y + sqrtf(s); d = d / 3.0 + d; y[i] = i % 2 ? s : 0.0f; y[i] += d;"
    )
    operations = {(kind, types): number for (kind, types, _), number in found.items() if kind != "conversion"}
    assert operations == {
        ("product", ("fp32",)): N,
        ("root", ("fp32",)): N,
        ("sum", ("fp32",)): N,
        ("quotient", ("fp64",)): N,
        ("sum", ("fp64",)): N,
        ("sum", ("y_type", "fp64")): N,
    }
    assert found["conversion", ("fp64",), "x_type"] == N
    assert found["conversion", ("y_type",), "fp32"] == N


def test_a_text_whose_own_types_cannot_be_counted_says_so() -> None:
    body = "constexpr float one = 1.0f; y[i] = x[i] * x[i] + one;"
    (found,) = Instrument(kernel(body), SIZES, is_counting=True).counts({}).values()
    assert found.is_partial
    assert ("product", N) in [(each.kind, each.number) for each in found.operations]


def test_a_loop_of_many_turns_is_counted_turn_by_turn() -> None:
    found = counted("{{ y_type }} sum = 0; for (int k = 0; k < i; ++k) sum += x[k]; y[i] = sum;")
    assert found["sum", ("x_type", "y_type"), "accurate"] == N * (N - 1) // 2


def test_a_kernel_of_an_application_has_the_types_of_its_buffers() -> None:
    types = ["fp64", "fp32"]

    def steps(run: Any, size: Sizes) -> None:
        for _ in range(2):
            run.one_line(x=run.a, y=run.b, n=size.n)

    application = Application(
        name="twice",
        kernels=[kernel("y[i] = x[i] * x[i];")],
        buffers=[In("a", "n", precision="a_type"), InOut("b", "n", precision="b_type")],
        shared=[PrecisionParameter("a_type", types), PrecisionParameter("b_type", types)],
        outputs=["b"],
        sizes={"default": {"n": N}},
        inputs=lambda rng, size: {name: rng.uniform(1, 2, size.n) for name in ("a", "b")},
        steps=steps,
        reference=lambda inputs, size: {"b": inputs["a"] ** 2},
    )
    (found,) = Instrument(application, SIZES, is_counting=True).counts({}).values()
    assert [(each.kind, each.types, each.number) for each in found.operations if each.kind == "product"] == [
        ("product", ("a_type",), 2 * N)
    ]
    assert found.elements == {"a_type": 2 * N, "b_type": 4 * N}


@pytest.mark.parametrize("gpu", GPUS)
def test_memory_counts_where_little_is_computed(gpu: str) -> None:
    counts = {"k": Counts((Count("sum", ("t",), (), "accurate", 10),), {"t": 10**9}, 0)}
    wide, narrow = (estimates(counts, {"t": each})[metric_of(gpu)] for each in ("fp64", "fp32"))
    assert wide == pytest.approx(8 / GPUS[gpu].memory, rel=0.01)
    assert wide / narrow == pytest.approx(2, rel=0.01)


def test_the_unit_of_each_type_counts_where_much_is_computed() -> None:
    operations = (Count("sum", ("t",), (), "accurate", 10**12), Count("product", ("t",), (), "accurate", 10**12))
    found = {t: estimates({"k": Counts(operations, {}, 0)}, {"t": t})["estimated_a100_ms"] for t in ("fp64", "fp32")}
    # As many sums as products are multiply-adds.
    assert found["fp64"] == pytest.approx(1e3 / GPUS["a100"].fp64, rel=0.01)
    assert found["fp32"] == pytest.approx(1e3 / GPUS["a100"].fp32, rel=0.01)


def test_a_shuffle_of_fp64_is_two_of_words() -> None:
    counts = {"k": Counts((Count("shuffle", ("t",), (), "accurate", 10**12),), {}, 0)}
    found = {t: estimates(counts, {"t": t})["estimated_h100_ms"] for t in ("fp64", "fp32", "fp16")}
    assert found["fp32"] == found["fp16"] == pytest.approx(1e3 / GPUS["h100"].shuffles, rel=0.01)
    assert found["fp64"] == pytest.approx(2 * found["fp32"], rel=0.01)


def test_conversions_of_one_type_to_itself_cost_nothing() -> None:
    counts = {"k": Counts((Count("conversion", ("a",), ("b",), "accurate", 10**12),), {}, 0)}
    assert estimates(counts, {"a": "fp32", "b": "fp32"})["estimated_a100_ms"] == 0
    to_fp64 = estimates(counts, {"a": "fp64", "b": "fp32"})
    assert to_fp64["estimated_rtx4090_ms"] > to_fp64["estimated_a100_ms"] > 0


@pytest.mark.full
def test_a_run_for_a_gpu_is_judged_by_its_estimate() -> None:
    found = kernel("y[i] = x[i] * y[i];").changed(reference=lambda inputs, size: {"y": inputs["x"] * inputs["y"]})
    run = tune(found, objective="estimated_a100_ms", max_error=1e-3, budget=5, verify=0)
    assert run.best is not None
    assert run.baseline is not None
    assert run.best.metric("estimated_a100_ms") < run.baseline.metric("estimated_a100_ms")
    assert all(metric_of(gpu) in run.best.measurement.metrics for gpu in GPUS)


@pytest.mark.full
def test_the_command_takes_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--size", "smoke", "--max-error", "1e-3", "--budget", "3", "--verify", "0", "--json"]

    def tuned_for(gpu: str) -> int:
        command = ["tune", "axpy", *options, "--for", gpu, "--output", str(tmp_path / f"{gpu}.db")]
        with cli.app.make_context("mptune", command) as context:
            return int(cli.app.invoke(context))

    assert tuned_for("a100") == 0
    assert json.loads(capsys.readouterr().out)["best"]["metrics"]["estimated_a100_ms"] > 0
    with pytest.raises(UnknownNameError, match="a100"):
        tuned_for("a1000")


def test_the_gpu_of_a_program_is_the_most_common_of_its_vendor() -> None:
    records: list[Any] = [{"program": {"language": name}} for name in ("cuda", "hip", "openmp")]
    assert [gpu_of_program(each) for each in (*records, {}, {"program": "damaged"})] == ["a100", "mi250x", *[None] * 3]


def test_an_unknown_gpu_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="h100"):
        metric_of("h10")
