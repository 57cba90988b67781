"""Applications whose reference is themselves in long double: reference="wide"."""

import json

import mpmath
import numpy as np
import pytest
from command_line import caller

from mptune import Application, InOut, Kernel, PrecisionParameter, Scalar
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.errors import CompileError, UnknownNameError
from mptune.evaluators.answers import OwnAnswer, WideAnswer
from mptune.precision import WIDE
from mptune.tuner import tune
from mptune.verifying import verify
from mptune.widening import widened

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
    @pytest.mark.full
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


@pytest.mark.full
class TestRuns:
    def test_the_error_of_fp64_is_known(self, run, path, monkeypatch, capfd):
        assert 1e-14 < run.info.fp64_errors["error"] < 1e-9
        assert run.baseline is not None
        assert run.baseline.error == pytest.approx(run.info.fp64_errors["error"], rel=0.5)
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

    def test_what_counts_on_the_bits_of_a_double(self):
        app = recurrence(RECURRENCE.replace("if (i", 'static_assert(sizeof(double) == 8, ""); if (i'))
        with pytest.raises(CompileError, match=r"(?s)in long double: .*kernel advance, line 4: error: static"):
            both(app, {"x": np.zeros(N)})
