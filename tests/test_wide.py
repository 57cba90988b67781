"""Applications whose reference is themselves in long double: reference="wide"."""

import json

import mpmath
import numpy as np
import pytest
from command_line import caller

from mptune import Application, Buffer, In, InOut, Kernel, Out, PrecisionParameter, Scalar
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.host import HostBackend
from mptune.errors import CompileError, KernelError, MptuneError, UnknownNameError
from mptune.evaluators import answers
from mptune.evaluators.answers import OwnAnswer, WideAnswer
from mptune.evaluators.bench import Bench
from mptune.kernel import Sizes
from mptune.precision import PRECISIONS, WIDE
from mptune.store import RunInfo
from mptune.tuner import tune
from mptune.verifying import verify
from mptune.widening import growth, widened

pytestmark = pytest.mark.skipif(WIDE.significand_bits <= 53, reason="no type wider than fp64 here")

N = 50
STEPS = 20
#: Every step makes errors larger, up to four times.
RECURRENCE = """
extern "C" __global__ void advance({{ x_type }} * x, int step, int n) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) x[i] = 3.9 * x[i] * ({{ x_type }}(1) - x[i]) + {{ x_type }}(1) / (1000 + step);
}
"""


def advance(run, size):
    for step in range(STEPS):
        run.advance(x=run.x, step=step)


def recurrence(template=RECURRENCE, **changes):
    kernel = Kernel(
        name="advance",
        parameters=[PrecisionParameter("x_type", ["fp64", "fp32"])],
        arguments=[InOut("x", "n", precision="x_type"), Scalar("step", dtype="int32"), Scalar("n", dtype="int32")],
        grid=["(n + 31) // 32"],
        block=[32],
        template=template,
    )
    values = {
        "name": "recurrence",
        "kernels": [kernel],
        "buffers": [InOut("x", "n", precision="x_type")],
        "sizes": {"default": {"n": N}},
        "inputs": lambda rng, size: {"x": rng.uniform(size=size.n)},
        "steps": advance,
        "outputs": ["x"],
        "reference": "wide",
    }
    return Application(**{**values, **changes})


def both(application, inputs, flags=()):
    """Return what an application gives in fp64 and in long double."""
    given = (application, get_backend("host"), CompileOptions(flags=flags), application.metric)
    sizes = application.resolve_sizes()
    return OwnAnswer(*given)(inputs, sizes), WideAnswer(*given)(inputs, sizes)


class TestAnswer:
    def test_it_is_nearer_to_the_exact_one_by_more_than_two_digits(self):
        inputs = {"x": np.random.default_rng(0).uniform(size=N)}
        narrow, wide = both(recurrence(), inputs)
        with mpmath.workdps(60):
            exact = [mpmath.mpf(x) for x in inputs["x"]]
            for step in range(STEPS):
                exact = [mpmath.mpf(39) / 10 * x * (1 - x) + mpmath.mpf(1) / (1000 + step) for x in exact]
            errors = [max(abs(x - y) for x, y in zip(found["x"], exact, strict=True)) for found in (narrow, wide)]
        assert errors[0] > 100 * errors[1]
        assert errors[1] < 1e-13

    @pytest.mark.full
    def test_fast_math_makes_no_difference_to_it(self):
        # It leaves 1e9 out, and what is rounded on the way.
        app = recurrence(RECURRENCE.replace("(1000 + step)", "((1e9 + x[i]) - 1e9 + 1000)"))
        inputs = {"x": np.random.default_rng(0).uniform(size=N)}
        careful, fast = both(app, inputs), both(app, inputs, ("-ffast-math",))
        assert np.array_equal(careful[1]["x"], fast[1]["x"])
        assert not np.array_equal(careful[0]["x"], fast[0]["x"])

    def test_it_is_computed_on_the_host_whatever_the_backend_is(self):
        class Elsewhere(HostBackend):
            name = "elsewhere"

        inputs = {"x": np.random.default_rng(0).uniform(size=N)}
        app = recurrence(RECURRENCE.replace("3.9", "RATE"))
        options = CompileOptions("sm_90", ("--use_fast_math", "-DRATE=3.9"))
        found = WideAnswer(app, Elsewhere(), options, app.metric)(inputs, app.resolve_sizes())
        assert np.array_equal(found["x"], both(recurrence(), inputs)[1]["x"])

    def test_functions_vectors_atomics_and_shared_memory_are_wide(self):
        kernel = Kernel(
            name="everything",
            parameters=[PrecisionParameter("type", ["fp64"])],
            arguments=[
                Out("found", 2, precision="type"),
                In("x", "n", precision="fp32"),
                InOut("total", 1, precision="fp64"),
                Scalar("third", precision="type"),
                Scalar("n", dtype="int32"),
            ],
            grid=[2],
            block=[32],
            shared_bytes="32 * sizeof(type)",
            template="""
#define TENTH 0.1f  // a tenth
extern "C" __global__ void everything({{ type }} * found, const float * x, double * total, double third, int n) {
    extern __shared__ {{ type }} shared[];
    const {{ type }} y = x[threadIdx.x];
    const vec<float, 2> two = exp(vec<float, 2>(y, -y));
    const {{ type }} circle = max(sin(y) * sin(y) + cos(y) * cos(y), 0.0) + erf(y) + erfc(y) - 1.0;
    shared[threadIdx.x] = two[0] * two[1] - circle + TENTH + log(3) + fma(y, third, sqrt<fast>(y)) - pow(y, 0.5);
    __syncthreads();
    atomicAdd(total, shared[31 - threadIdx.x] - fabs(y) * third);
    if (threadIdx.x == 0) found[blockIdx.x] = rsqrt(third) + hypot(tanh(third), 1 / third);
}
""",
        )

        def steps(run, size):
            run.fill(run.total, 0)
            run.everything(found=run.found, x=run.x, total=run.total, third=np.longdouble(1) / 3)

        app = Application(
            name="everything",
            kernels=[kernel],
            buffers=[
                Buffer("x", "n", precision="fp32"),
                Buffer("total", 1, precision="fp64"),
                Buffer("found", 2, precision="type"),
            ],
            sizes={"default": {"n": 32}},
            inputs=lambda rng, size: {"x": rng.uniform(size=size.n)},
            steps=lambda run, size: (steps(run, size), run.write(run.total, differ(run.read(run.total)))),
            outputs=["total", "found"],
            metric="MaxAE",
            reference="wide",
        )
        with mpmath.workdps(40):
            total = 64 * (mpmath.mpf(1) / 10 + mpmath.log(3))
            third = mpmath.mpf(1) / 3
            found = 1 / mpmath.sqrt(third) + mpmath.hypot(mpmath.tanh(third), 3)

            def differ(values):
                """Return by how much values miss what they are to be, which fp64 does not hold."""
                high = float(total)
                return (values - high - float(total - high)) * 1e6

            _, wide = both(app, {"x": np.random.default_rng(0).uniform(size=32)})
            # In fp64 the last digit of the sum is 1.4e-14; additions come in any order.
            assert abs(wide["total"][0]) < 1e-16 * 1e6
            assert wide["found"] == pytest.approx(float(found), rel=2e-16)


class TestSources:
    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            ("double x = 0.5f * 1e-3;", "mptune_wide x = 0.5L * 1e-3L;"),
            ("unsigned long long n = 10; long double y = 1.l;", "unsigned long long n = 10;  mptune_wide y = 1.l;"),
            (
                "#define T float // a float, 1.5\nT y = 0x1p-3f;",
                "#define T mptune_wide // a float, 1.5\nT y = 0x1p-3L;",
            ),
            ('f("double 0.5"); /* double */ mp::half(1)', 'f("double 0.5"); /* double */ mp::mptune_wide(1)'),
            ("#include <double.h>\nint doubled = 0x1F;", "#include <double.h>\nint doubled = 0x1F;"),
        ],
    )
    def test_types_and_literals_become_wide(self, source, expected):
        assert widened(source).split() == expected.split()
        assert widened(source).count("\n") == source.count("\n")

    def test_shared_memory_grows_with_the_narrowest_type(self):
        assert growth("int x;") == 1
        assert growth("double x;") * 8 == growth("float x; double y;") * 4 == WIDE.size_bytes


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("runs") / "recurrence.db"


@pytest.fixture(scope="module")
def warnings():
    return []


@pytest.fixture(scope="module")
def run(path, warnings):
    settings = {"backend": "host", "max_error": 1e-15, "budget": 4, "verify": 5}
    return tune(recurrence(), output=path, on_warning=warnings.append, **settings)


class TestRuns:
    def test_the_error_of_fp64_is_known(self, run, path, monkeypatch, capfd):
        assert 1e-14 < run.info.fp64_errors["error"] < 1e-9
        assert run.baseline is None or run.baseline.error == pytest.approx(run.info.fp64_errors["error"], rel=0.5)
        done = caller(monkeypatch, capfd)("show", path)
        assert f"fp64 itself: {run.info.fp64_errors['error']:.2g} against long double\n" in done.out
        document = json.loads(caller(monkeypatch, capfd)("show", path, "--json").out)
        assert document["fp64_errors"] == {name: pytest.approx(value) for name, value in run.info.fp64_errors.items()}

    def test_a_threshold_below_it_is_warned_of(self, run, warnings):
        said = "the threshold of error, 1e-15, is below the error of fp64 itself"
        assert any(message.startswith(said) for message in warnings)

    @pytest.mark.full
    def test_unseen_inputs_are_compared_with_it_too(self, run, path):
        narrow = next(trial for trial in run.trials if trial.configuration["x_type"] == "fp64")
        found = verify(path, recurrence(), configuration=str(narrow.configuration), inputs=2, on_warning=lambda _: None)
        assert found.cases[0].verified.violations == 2


class TestRefusals:
    def test_another_word(self):
        with pytest.raises(UnknownNameError, match=r"reference of application recurrence.*'wdie'.*did you mean 'wide'"):
            recurrence(reference="wdie")

    def test_a_single_kernel_has_no_such_reference(self):
        with pytest.raises(KernelError, match="kernel advance: its reference is a function, not 'wide'"):
            recurrence().kernels["advance"].changed(reference="wide")

    def test_a_type_that_is_no_wider(self, monkeypatch):
        monkeypatch.setattr(answers, "WIDE", PRECISIONS["fp64"])
        with pytest.raises(KernelError, match="needs a long double with more digits than fp64"):
            WideAnswer(recurrence(), get_backend("host"), CompileOptions(), "NRMSE")

    def test_what_counts_on_the_bits_of_a_double(self):
        app = recurrence(RECURRENCE.replace("if (i", 'static_assert(sizeof(double) == 8, ""); if (i'))
        with pytest.raises(CompileError, match=r"(?s)in long double: .*kernel advance, line 4: error: static"):
            both(app, {"x": np.zeros(N)})

    def test_steps_that_differ_from_run_to_run(self):
        numbers = iter(range(100))
        app = recurrence(steps=lambda run, size: run.fill(run.x, next(numbers)))
        with pytest.raises(MptuneError, match=r"another answer from run to run|not the same when it is computed again"):
            Bench(app, Sizes({"n": N}), get_backend("host"))

    def test_what_nobody_writes(self):
        app = recurrence(
            buffers=[InOut("x", "n", precision="x_type"), Buffer("y", "n", precision="fp64")], outputs=["y"]
        )
        with pytest.raises(KernelError, match=f"never writes {N} of {N} elements of its output 'y'"):
            WideAnswer(app, get_backend("host"), CompileOptions(), "NRMSE")({"x": np.zeros(N)}, Sizes({"n": N}))

    def test_linear_algebra_of_numpy(self):
        app = recurrence(steps=lambda run, size: np.linalg.solve(np.diag(run.read(run.x)), run.read(run.x)))
        with pytest.raises(KernelError, match=r"np.asarray\(..., np.float64\) makes that"):
            both(app, {"x": np.ones(N)})

    def test_steps_that_round_everything(self):
        app = recurrence(steps=lambda run, size: run.write(run.x, np.asarray(run.read(run.x), np.float32)))
        sizes = Sizes({"n": N})
        inputs = {"x": np.random.default_rng(0).uniform(size=N)}
        answer = WideAnswer(app, get_backend("host"), CompileOptions(), app.metric)
        errors, remarks = answer.fp64_errors(answer(inputs, sizes), inputs, sizes)
        assert errors["error"] == 0
        assert "to the last bit" in remarks[0]

    def test_what_the_method_itself_is_off_by_is_not_said_of_fp64(self):
        """A residual that the wide answer has, too; beside it a distance, which fp64 alone is off by."""

        def residual(output, reference, inputs):
            return 1e-3 + float(np.abs(output - reference).max())

        app = recurrence(metric=[residual, "NRMSE"])
        sizes = Sizes({"n": N})
        inputs = {"x": np.random.default_rng(0).uniform(size=N)}
        answer = WideAnswer(app, get_backend("host"), CompileOptions(), app.metric)
        errors, _ = answer.fp64_errors(answer(inputs, sizes), inputs, sizes)
        assert list(errors) == ["error.NRMSE"]
        assert (
            RunInfo(fp64_errors=errors).fp64_text
            == f"fp64 itself: NRMSE {errors['error.NRMSE']:.2g} against long double"
        )
