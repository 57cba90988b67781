"""Instrumented builds: types that are chosen when the kernel runs compute what the types themselves do."""

import numpy as np
import pytest
from launching import Launcher

from mptune import Application, Buffer, Constant, In, InOut, Kernel, Out, PrecisionParameter, Scalar, load_kernel
from mptune.accuracy.evaluate import evaluate_outputs
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.data import DataManager
from mptune.errors import CompileError
from mptune.kernel import Sizes
from mptune.measure.buffers import run_once
from mptune.measure.instrument import Instrument
from mptune.measure.program import Program
from mptune.precision import PRECISIONS
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter, PolicyParameter
from tests.tiers import few

TYPES = ("fp64", "fp32", "fp16", "bf16")
#: A compiler may fuse a product and a sum, in the types themselves as in an instrumented build.
FLAGS = ("-ffp-contract=off",)
#: Columns of functions.
FUNCTIONS = (9, 10, 15)
#: Sums, differences, products, quotients and roots, of one type and of mixed ones, fused and not, with literals and
#: integers, under a policy, by vectors, and stored in a third type.
OPERATIONS = """
extern "C" __global__ void operations(
    {{ z_type }}* z, double* exact, const {{ x_type }}* x, const {{ y_type }}* y, {{ x_type }} s, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const local<{{ x_type }}> a = x[i];
    const local<{{ y_type }}> b = y[i];
    local<{{ z_type }}> c = a;
    c += b;
    double* e = exact + 16 * i;
    e[0] = a + b;
    e[1] = a - b;
    e[2] = a * b;
    e[3] = a / b;
    e[4] = mp::sqrt(a);
    e[5] = fma(a, b, a);
    e[6] = c;
    e[7] = (3 * a - b) * 0.5f;
    e[8] = max(a, b) > abs(b) ? -a : local<{{ x_type }}>(mp::fmin(mp::sqrt(a), min(a, 2)));
    e[9] = mp::exp<{{ policy }}>(a * s);
    e[10] = mp::pow<{{ policy }}>(abs(a), b);
    vec<{{ x_type }}, 2> v = a;
    v = v * vec<{{ y_type }}, 2>(b) + s;
    e[11] = v[1];
    e[12] = static_cast<local<{{ x_type }}>>(b) + 77777;
    e[13] = static_cast<float>(a) * static_cast<half>(b);
    e[14] = isfinite(a * a) + 2 * isnan(a * b);
    if (a < 0.1_num) c *= 0.1_num;
    e[14] += c - 0.3_num * max(a, 2.7_num) / b;
    e[15] = mp::sin<{{ policy }}>(b);
    z[i] = a * b + s;
}
"""


def numbers(rng, size):
    """Numbers of all magnitudes that fp32, fp16 and bf16 have, subnormal ones too, and such that overflow there."""
    exponents = np.stack(
        [rng.uniform(-150, 128, (2, size.n)), rng.uniform(-26, 17, (2, size.n)), rng.normal(0, 2, (2, size.n))]
    )
    which = rng.integers(3, size=(2, size.n))
    x, y = np.take_along_axis(exponents, which[None], 0)[0]
    signs = rng.choice([-1.0, 1.0], (2, size.n))
    y = np.where(rng.random(size.n) < 0.5, y, x + rng.normal(0, 1, size.n))  # sums of like magnitudes
    return {"x": np.ldexp(signs[0], 0) * 2.0**x, "y": signs[1] * 2.0**y, "s": 0.37}


def operations(types=TYPES, inputs=numbers):
    return Kernel(
        name="operations",
        parameters=[
            *(PrecisionParameter(name, types) for name in ("x_type", "y_type", "z_type")),
            PolicyParameter("policy"),
            OrdinalParameter("block", [32, 64]),
        ],
        arguments=[
            Out("z", "n", precision="z_type"),
            Out("exact", ("n", 16), precision="fp64"),
            In("x", "n", precision="x_type"),
            In("y", "n", precision="y_type"),
            Scalar("s", precision="x_type"),
            Scalar("n", dtype="int32"),
        ],
        sizes={"default": {"n": 4000}},
        inputs=inputs,
        reference=lambda given, size: {"z": np.zeros(size.n), "exact": np.zeros((size.n, 16))},
        grid=["ceildiv(n, block)"],
        block=["block"],
        template=OPERATIONS,
    )


@pytest.fixture(scope="module")
def traced():
    instrument = Instrument(operations(), Sizes({"n": 4000}), seed=3, flags=FLAGS)
    instrument.outputs({})
    return instrument


@pytest.fixture(scope="module")
def real():
    kernel = operations()
    return Launcher(kernel, DataManager(kernel, Sizes({"n": 4000}), seed=3), CompileOptions(flags=FLAGS))


PAIRS = [(one, one, one) for one in TYPES] + [("fp16", "bf16", "fp32"), ("bf16", "fp32", "fp16")]


@pytest.mark.parametrize(
    ("types", "policy"), few(list(zip(PAIRS, ("accurate", "fast", "approx") * 3, strict=False))[::-1], 3)
)
def test_every_operation_gives_what_it_gives_in_the_types_themselves(traced, real, types, policy):
    values = {**dict(zip(("x_type", "y_type", "z_type"), types, strict=True)), "policy": policy}
    expected = real.run(Configuration({**values, "block": 64}))
    found = traced.outputs(values)
    for column in range(16):
        one, other = found["exact"][:, column], expected["exact"][:, column]
        is_equal = (one.view(np.int64) == other.view(np.int64)) | (np.isnan(one) & np.isnan(other))
        if column in FUNCTIONS and "fp64" in types:
            # Of fp64 the C library has a second version, for vectors.
            with np.errstate(all="ignore"):
                is_equal |= np.abs(one - other) <= 8 * np.spacing(np.abs(other))
        wrong = np.flatnonzero(~is_equal)
        assert not wrong.size, f"e[{column}]: {[(one[i], other[i]) for i in wrong[:3]]} of {wrong.size}"
    assert np.array_equal(found["z"], expected["z"], equal_nan=True)


# -- bundled kernels -----------------------------------------------------------------------------


@pytest.mark.nightly
def test_fp8_is_stored_and_computed_in_fp32(traced):
    del traced
    kernel = operations(
        ("fp64", "fp32", "fp8_e4m3", "fp8_e5m2"),
        # What overflows in E4M3 is NaN as an output that nobody wrote is.
        lambda rng, size: {"x": rng.normal(size=size.n), "y": rng.normal(size=size.n), "s": 0.37},
    )
    data = DataManager(kernel, Sizes({"n": 500}), seed=4)
    instrument = Instrument(kernel, Sizes({"n": 500}), seed=4, flags=FLAGS)
    for types in (("fp8_e4m3", "fp8_e4m3", "fp8_e5m2"), ("fp8_e5m2", "fp32", "fp8_e4m3")):
        values = {**dict(zip(("x_type", "y_type", "z_type"), types, strict=True)), "policy": "accurate"}
        expected = Launcher(kernel, data, CompileOptions(flags=FLAGS)).run(Configuration({**values, "block": 32}))
        found = instrument.outputs(values)
        for name in expected:
            assert np.array_equal(found[name], expected[name], equal_nan=True), (types, name)


# -- bundled kernels -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "signature"),
    few(
        [
            ("gemm", {"a_type": "fp16", "b_type": "bf16", "accumulator_type": "fp32", "c_type": "fp16"}),
            (
                "convolution2d",
                {"input_type": "bf16", "filter_type": "fp16", "accumulator_type": "fp32", "output_type": "fp16"},
            ),
        ][::-1]
    ),
)
def test_errors_are_those_that_are_measured(name, signature):
    kernel = load_kernel(name)
    sizes = kernel.resolve_sizes("smoke")
    data = DataManager(kernel, sizes)
    full = {**{n: v[0] for n, v in kernel.baseline_values().items()}, **signature}
    configuration = kernel.search_space(sizes).restrict({n: (v,) for n, v in full.items()}).configuration(0)
    outputs = Launcher(kernel, data).run(configuration)
    measured = evaluate_outputs(outputs, data.references, kernel.metric, data.inputs).metrics["error"]
    instrument = Instrument(kernel, sizes)
    assert instrument.errors(full)["error"] == pytest.approx(measured, rel=0.1)


# -- draws, constants ----------------------------------------------------------------------

SMOOTH = """
const {{ w_type }} middle = 0.4_num;
__constant__ {{ w_type }} weights[3];
extern "C" __global__ void smooth(const {{ u_type }}* u, {{ u_type }}* v, int n) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) v[i] = weights[0] * u[max(i - 1, 0)] + middle * u[i] + weights[2] * u[min(i + 1, n - 1)];
}
"""


def smooth_reference(given, size):
    padded, w = np.pad(given["u"], 1, mode="edge"), given["weights"]
    return {"v": w[0] * padded[:-2] + w[1] * padded[1:-1] + w[2] * padded[2:]}


def smooth(**changes):
    values = {
        "name": "smooth",
        "parameters": [PrecisionParameter("u_type", TYPES), PrecisionParameter("w_type", TYPES)],
        "arguments": [
            In("u", "n", precision="u_type"),
            Out("v", "n", precision="u_type"),
            Constant("weights", 3, precision="w_type"),
            Scalar("n", dtype="int32"),
        ],
        "sizes": {"default": {"n": 100}},
        "inputs": lambda rng, size: {"u": rng.uniform(size=size.n), "weights": np.array([0.3, 0.4, 0.3])},
        "reference": smooth_reference,
        "grid": ["(n + 31) // 32"],
        "block": [32],
        "template": SMOOTH,
    }
    return Kernel(**(values | changes))


def test_constants_and_numbers_outside_functions_are_rounded_to_the_types_of_each_run():
    kernel, sizes = smooth(), Sizes({"n": 100})
    data, instrument = DataManager(kernel, sizes, seed=5), Instrument(kernel, sizes, seed=5, flags=FLAGS)
    for u_type, w_type in (("fp64", "bf16"), ("fp64", "fp16"), ("fp32", "fp64"), ("fp64", "fp64")):
        u, w = (
            values.astype(PRECISIONS[name].dtype).astype(np.float64)
            for values, name in ((data.inputs["u"], u_type), (np.array([0.3, 0.4, 0.3]), w_type))
        )
        padded = np.pad(u, 1, mode="edge")
        expected = ((w[0] * padded[:-2] + w[1] * u) + w[2] * padded[2:]).astype(PRECISIONS[u_type].dtype)
        assert np.array_equal(instrument.outputs({"u_type": u_type, "w_type": w_type})["v"], expected)
    exact, rough = (instrument.errors({"w_type": name})["error"] for name in ("fp64", "bf16"))
    assert exact < 1e-15
    assert 1e-4 < rough < 3e-2
    assert len(instrument.binaries) == 1


def test_what_does_not_compile_so_is_said_with_its_line():
    template = SMOOTH.replace("if (i < n)", "const int bits = half(u[0]).to_bits() + u[0].to_bits();\n if (i < n)")
    instrument = Instrument(smooth(template=template), Sizes({"n": 100}))
    with pytest.raises(CompileError) as raised:
        instrument.errors({})
    assert "kernel smooth does not compile with types that are chosen when it runs" in str(raised.value)
    assert "line 6" in str(raised.value)


# -- applications ----------------------------------------------------------------------------------


STEP = """
extern "C" __global__ void smooth(const {{ u_type }}* u, {{ v_type }}* v, int n) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    const {{ w_type }} side = 0.3, middle = 0.4;
    if (i < n) v[i] = side * u[max(i - 1, 0)] + middle * u[i] + side * u[min(i + 1, n - 1)];
}
"""


def application(**changes):
    step = smooth(
        arguments=[In("u", "n", precision="u_type"), Out("v", "n", precision="v_type"), Scalar("n", dtype="int32")],
        parameters=[PrecisionParameter(name, TYPES) for name in ("u_type", "v_type", "w_type")],
        sizes={},
        template=STEP,
    )

    def steps(run, size):
        for _ in range(4):
            run.smooth(u=run.a, v=run.b)
            run.copy(run.b, run.a)
        run.write(run.a, run.read(run.b) * 3.0)
        run.smooth(u=run.a, v=run.b)

    values = {
        "name": "smoothing",
        "kernels": [step],
        "buffers": [InOut("a", "n", precision="a_type"), Buffer("b", "n", precision="b_type")],
        "shared": [PrecisionParameter("a_type", TYPES), PrecisionParameter("b_type", TYPES)],
        "sizes": {"default": {"n": 100}},
        "inputs": lambda rng, size: {"a": rng.uniform(size=size.n)},
        "steps": steps,
        "outputs": ["b"],
    }
    return Application(**(values | changes))


def test_applications_run_their_steps_in_the_types_of_a_signature():
    tunable, sizes = application(), Sizes({"n": 100})
    data = DataManager(tunable, sizes, seed=6)
    signature = {"a_type": "fp16", "b_type": "bf16", "smooth.w_type": "fp32"}
    configuration, options = tunable.configuration(signature), CompileOptions(flags=FLAGS)
    with Program(tunable, configuration, sizes, get_backend("host"), options) as program:
        expected = run_once(program, data)
    instrument = Instrument(tunable, sizes, seed=6, flags=FLAGS)
    assert np.array_equal(instrument.outputs(signature)["b"], expected["b"])
    assert instrument.errors({})["error"] < 1e-15
    assert instrument.errors(signature)["error"] > 1e-4
    assert len(instrument.binaries) == 1
