"""Applications: several kernels run by ordinary Python, tuned as one and judged by their own answer."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from application_runs import run_once
from awkward_kernel import run_of
from command_line import caller
from described import create

from mptune import (
    Application,
    Buffer,
    In,
    InOut,
    Kernel,
    OrdinalParameter,
    Out,
    PrecisionParameter,
    Scalar,
    Scratch,
    TunedApplication,
    TunedKernel,
)
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.data import DataManager
from mptune.errors import ConstraintError, KernelError, LaunchError, ReferenceDataError, UnknownNameError
from mptune.measure.answers import OwnAnswer, with_reference
from mptune.measure.bench import Bench, Request
from mptune.measure.worker import Limits
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.show import plot
from mptune.tuning import TuneSettings, tune
from mptune.tuning.verify import verify
from mptune.wisdom import gather, read_sources
from tests.tiers import few

MATVEC = Kernel(
    name="matvec",
    parameters=[
        PrecisionParameter("a_type", ["fp64", "fp32"]),
        PrecisionParameter("x_type", ["fp64", "fp32", "fp16"]),
        PrecisionParameter("sum_type", ["fp64", "fp32"]),
        OrdinalParameter("block", [32, 64]),
    ],
    arguments=[
        In("a", ("rows", "columns"), precision="a_type"),
        In("x", "columns", precision="x_type"),
        Out("y", "rows", precision="x_type"),
        Scalar("rows", dtype="int32"),
        Scalar("columns", dtype="int32"),
    ],
    grid=["(rows + block - 1) // block"],
    block=["block"],
    constraints=["block <= 64"],
    template="""
extern "C" __global__ void matvec(const {{ a_type }} * a, const {{ x_type }} * x, {{ x_type }} * y,
                                  int rows, int columns) {
    const int i = blockIdx.x * {{ block }} + threadIdx.x;
    if (i < rows) {
        {{ sum_type }} total = 0;
        for (int j = 0; j < columns; ++j) total += ({{ sum_type }})a[i * columns + j] * ({{ sum_type }})x[j];
        y[i] = total;
    }
}
""",
)
SCALE = Kernel(
    name="scale",
    parameters=[PrecisionParameter("type", ["fp64", "fp32"]), OrdinalParameter("block", [32, 64])],
    arguments=[InOut("v", "m", precision="type"), Scalar("factor", precision="fp64"), Scalar("m", dtype="int32")],
    grid=["(m + block - 1) // block"],
    block=["block"],
    template="""
extern "C" __global__ void scale({{ type }} * v, double factor, int m) {
    const int i = blockIdx.x * {{ block }} + threadIdx.x;
    if (i < m) v[i] = ({{ type }})((double)v[i] * factor);
}
""",
)
N = 37


def inputs(rng, size):
    half = rng.uniform(0.1, 1.0, (size.n, size.n))
    return {"a": half + half.T, "x": rng.uniform(0.5, 1.0, size.n)}


def power(run, size):
    """Iterate to the eigenvector of the largest eigenvalue."""
    before = 0.0
    for _ in range(100):
        run.matvec(a=run.a, x=run.x, y=run.y)
        value = float(np.linalg.norm(run.read(run.y)))
        run.scale(v=run.y, factor=1 / value)
        run.swap(run.x, run.y)
        if abs(value - before) < 1e-7 * value:
            break
        before = value
    run.write(run.value, value)


def application(**changes):
    values = {
        "name": "power",
        "kernels": [MATVEC, SCALE],
        "buffers": [
            Buffer("a", ("n", "n"), precision="a_type"),
            InOut("x", "n", precision="x_type"),
            Scratch("y", "n", precision="x_type"),
            Buffer("value", 1, precision="fp64"),
        ],
        "sizes": {"default": {"n": N}},
        "inputs": inputs,
        "steps": power,
        "outputs": ["value", "x"],
    }
    return Application(**{**values, **changes})


class TestDefinition:
    def test_types_of_buffers_are_shared_and_the_rest_is_each_kernels(self):
        app = application()
        assert app.parameter_names == ("a_type", "x_type", "matvec.sum_type", "matvec.block", "scale.block")
        assert app.signature_names == ("a_type", "x_type", "matvec.sum_type")
        assert app.baseline_values() == {"a_type": ("fp64",), "x_type": ("fp64",), "matvec.sum_type": ("fp64",)}

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"outputs": ["valeu"]}, "did you mean 'value'"),
            ({"outputs": []}, "no buffer is an output"),
            ({"kernels": [MATVEC, MATVEC]}, "two kernels are called 'matvec'"),
            ({"shared": [OrdinalParameter("swap", [1, 2])]}, "the name 'swap' is a method of run in the steps"),
            (
                {"buffers": [Buffer("a", ("n", "n"), precision="a_typ"), Buffer("value", 1, precision="fp64")]},
                "did you mean 'a_type'",
            ),
            ({"buffers": [Buffer("value", "m", precision="fp64"), Scratch("x", "n", precision="fp64")]}, "'m'"),
        ],
    )
    def test_what_is_refused(self, changes, message):
        with pytest.raises((KernelError, UnknownNameError, ConstraintError), match=message):
            application(**changes)


class TestSteps:
    def test_the_answer_is_that_of_numpy(self):
        app = application()
        given = app.inputs(np.random.default_rng(5), app.resolve_sizes())
        found, launched, elapsed_ms = run_once(app, {}, given)
        values, vectors = np.linalg.eigh(given["a"])
        assert found["value"] == pytest.approx(values[-1], rel=1e-6)
        assert np.abs(found["x"]) == pytest.approx(np.abs(vectors[:, -1]), rel=1e-3)
        counts = {one.kernel: count for one, (count, _) in launched.items()}
        assert counts["matvec"] == counts["scale"] > 2
        assert 0 < sum(time_ms for _, time_ms in launched.values()) <= elapsed_ms

    def test_conversions_are_explicit(self):
        app = application(
            buffers=[
                Buffer("a", ("n", "n"), precision="a_type"),
                Buffer("x", "n", precision="x_type"),
                Scratch("y", "n", precision="x_type"),
                Buffer("wide", "n", precision="fp64"),
            ],
            outputs=["wide"],
            steps=lambda run, size: (run.matvec(a=run.a, x=run.x, y=run.y), run.copy(run.y, run.wide)),
        )
        given = app.inputs(np.random.default_rng(5), app.resolve_sizes())
        found, _, _ = run_once(app, {"x_type": "fp16"}, given)
        assert found["wide"] == pytest.approx(given["a"] @ given["x"], rel=5e-3)
        assert np.array_equal(found["wide"], found["wide"].astype(np.float16))

    @pytest.mark.parametrize(
        ("steps", "message"),
        [
            (lambda run, size: run.matvc(a=run.a, x=run.x, y=run.y), "did you mean 'matvec'"),
            (lambda run, size: run.matvec(a=run.valu, x=run.x, y=run.y), "did you mean 'value'"),
            (lambda run, size: run.matvec(a=run.a, x=run.x), "it needs 'y'"),
            (lambda run, size: run.matvec(a=run.a, x=run.x, y=run.y, z=3), "'z'"),
            (lambda run, size: run.matvec(a=run.x, x=run.x, y=run.y), "'columns'|rows|shape"),
            (lambda run, size: run.swap("a", "y"), "one shape and type"),
            (lambda run, size: [][1], "IndexError"),
            (lambda run, size: run.matvec(run.a, run.x), r"by name: run.matvec\(a=..., x=..., y=..., rows=..., colu"),
            (lambda run, size: setattr(run, "value", 1.0), r"write to the buffer: run.write\(run.value, ...\)"),
            (lambda run, size: run.write(run.a, 1.0), "run.write writes to 'a', which is an input: declare that InOut"),
            (lambda run, size: run.write(run.x, 1j), "buffer 'x' takes real numbers, not values of type complex128"),
            (
                lambda run, size: [run.scale(v=run.x, factor=f) for f in (1.0, None)],
                "'factor' is to be a real number, not None",
            ),
            (lambda run, size: run.scale(v=run.x, factor=2, m=size.n / 2), "size 'm' is to be an integer, not 18.5 "),
        ],
    )
    def test_mistakes_of_the_steps(self, steps, message):
        with pytest.raises((KernelError, UnknownNameError), match=message):
            run_once(application(steps=steps), {})

    def test_sizes_may_change_from_launch_to_launch(self):
        """A launch is prepared once for each size, whatever integer that is given as."""
        first = SCALE.changed(arguments=[InOut("v", "n", precision="type"), *SCALE.arguments[1:]])
        app = application(
            kernels=[MATVEC, first],
            steps=lambda run, size: [run.scale(v=run.x, factor=2.0, m=m) for m in (3, np.int64(35), np.int32(3))],
            outputs=["x"],
            buffers=[InOut("x", "n", precision="x_type"), Buffer("a", ("n", "n"), precision="a_type")],
        )
        given = app.inputs(np.random.default_rng(5), app.resolve_sizes())
        found, launched, _ = run_once(app, {}, given)
        assert np.array_equal(found["x"], given["x"] * np.repeat([8, 2, 1], [3, 32, N - 35]))
        assert sorted(count for count, _ in launched.values()) == [1, 2]

    @pytest.mark.parametrize(("name", "dtype"), few([("bf16", None), ("fp64", "f8"), ("fp32", "f4"), ("fp16", "f2")]))
    def test_scalars_are_rounded_to_their_type(self, name, dtype):
        scale = SCALE.changed(
            parameters=[*SCALE.parameters, PrecisionParameter("factor_type", [name])],
            arguments=[SCALE.arguments[0], Scalar("factor", precision="factor_type"), SCALE.arguments[2]],
            template=SCALE.template.replace("double factor", "{{ factor_type }} factor"),
        )
        app = application(
            kernels=[MATVEC, scale],
            steps=lambda run, size: (run.fill(run.x, 1.0), run.scale(v=run.x, factor=1 / 3)),
            outputs=["x"],
            buffers=[InOut("x", "n", precision="x_type"), Buffer("a", ("n", "n"), precision="a_type")],
        )
        rounded = float(np.float64(1 / 3).astype(dtype)) if dtype else 171 / 512
        assert np.unique(run_once(app, {})[0]["x"]) == [rounded]


class TestOwnAnswer:
    def test_one_that_changes_from_run_to_run_is_refused(self):
        numbers = iter(range(10))
        app = application(steps=lambda run, size: (power(run, size), run.write("value", next(numbers))))
        sizes = app.resolve_sizes()
        data = DataManager(with_reference(app, get_backend("host"), CompileOptions()), sizes)
        with pytest.raises(ReferenceDataError, match="differs when it is computed again"):
            data.require_repeatable()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("runs") / "power.db"


@pytest.fixture(scope="module")
def run(path):
    settings = {"backend": "host", "max_error": 1e-3, "budget": 12, "inputs": 2, "verify": 5}
    return tune(application(), output=path, on_warning=lambda _: None, **settings)


class TestWhatARunIsUsedFor:
    @pytest.mark.full
    def test_the_winner_is_verified_on_further_inputs(self, run, path, tmp_path):
        path = shutil.copy(path, tmp_path)
        found = verify(path, application(), inputs=3, on_warning=lambda _: None)
        assert found.holds
        assert found.is_kept
        assert found.cases[0].verified.inputs == 8
        elsewhere = verify(path, application(), inputs=2, sizes=[{"n": 20}], on_warning=lambda _: None)
        assert elsewhere.cases[0].verified.inputs == 2
        assert elsewhere.holds
        assert not elsewhere.is_kept

    def test_it_is_no_function_of_arrays(self, run):
        for given in (None, application()):
            with pytest.raises(KernelError, match="the run is of the application 'power'"):
                TunedKernel(run, kernel=given)


class TestTuning:
    def test_it_ends_with_a_checked_winner(self, run):
        assert run.baseline.error <= 1e-12
        assert run.best.error <= 1e-3
        assert run.best.metric("unseen_inputs") == 5

    def test_launches_and_times_of_each_kernel_are_kept(self, run):
        assert run.baseline.metric("launches.matvec") == run.baseline.metric("launches.scale") > 2
        assert (
            0 < run.baseline.metric("time_ms.matvec") + run.baseline.metric("time_ms.scale") <= run.baseline.time_ms * 3
        )


def forgetful(run, size):
    """It finds the vector, and leaves it where nobody looks."""
    run.matvec(a=run.a, x=run.x, y=run.y)
    run.write(run.value, 1.0)


class TestOutputsThatStayAsGiven:
    LINE = (
        "no launch and no write in the steps of application power changes 'x': a run returns the values that it was "
        "given"
    )

    @pytest.mark.parametrize(
        ("steps", "warnings"),
        [
            (forgetful, (LINE,)),
            (lambda run, size: (forgetful(run, size), run.swap(run.x, run.y)), ()),
        ],
    )
    def test_they_are_named(self, steps, warnings):
        app = application(steps=steps, reference=lambda given, size: {"value": np.ones(1), "x": np.ones(size.n)})
        bench = Bench(app, app.resolve_sizes(), get_backend("host"))
        try:
            assert bench.evaluate(Request(app.configuration({"x_type": "fp32"}), "")).warnings == warnings
        finally:
            bench.close()


@pytest.mark.full
def test_steps_that_end_the_worker_while_it_starts_are_named():
    def steps(run, size):
        os._exit(3)

    message = "could not start: the worker exited with code 3 in the reference phase: .* the steps of an application"
    with pytest.raises(LaunchError, match=message):
        tune(application(steps=steps), backend="host", budget=2, on_warning=lambda _: None)


# -- what is wrong with an application is said in one line that names it, on the command line --------

PAGE = Path(__file__).parents[1] / "docs" / "applications.md"
FILE = re.findall(r"```python\n(import.*?)```", PAGE.read_text(), re.DOTALL)[0]


def answer(**changes: Any) -> Any:
    app = application(**changes)
    sizes = app.resolve_sizes()
    given = app.inputs(np.random.default_rng(5), sizes)
    return OwnAnswer(app, get_backend("host"), CompileOptions())(given, sizes)


def nothing(run: Any, size: Any) -> None:
    run.matvec(a=run.a, x=run.x, y=run.y)


def not_finite(run: Any, size: Any) -> None:
    power(run, size)
    run.write(run.value, np.inf)


def two_shapes(run: Any, size: Any) -> None:
    run.matvec(a=run.a, x=run.x, y=run.y)
    run.scale(v=run.y, factor=1.0, m=2 * size.n)


def of_its_own(run: Any, size: Any) -> None:
    raise ZeroDivisionError("no norm")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (nothing, "application power never writes 1 of 1 elements of its output 'value'"),
        (not_finite, "application power gives infinity for 1 of 1 elements of its output 'value' in its widest"),
        (two_shapes, "launch of scale: 'v' is to have shape (74,) at m=74, and buffer 'y' has shape (37,)"),
        (of_its_own, "steps of application power failed: ZeroDivisionError: no norm (test_application.py:"),
    ],
)
def test_an_answer_that_is_none(steps: Callable[..., None], message: str) -> None:
    with pytest.raises(KernelError, match=re.escape(message)) as caught:
        answer(steps=steps)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    few(
        [
            (
                ("run.matvec(", "run.matvex("),
                "name after run. in the steps of application power: 'matvex'; did you mean",
            ),
            (("x=run.x, y=run.y", "x=run.x, z=run.y"), "argument of application power: launch of matvec: 'z'"),
            (
                ("    for _ in range(100):", "    1 / 0\n    for _ in range(100):"),
                "ZeroDivisionError: division by zero (p.py:",
            ),
        ]
    ),
)
def test_the_command_line(
    change: tuple[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    assert change[0] in FILE
    file = tmp_path / "p.py"
    file.write_text(FILE.replace(*change))
    options = ("--backend", "host", "--size", "smoke", "--budget", 2, "--output", tmp_path / "p.db")
    done = caller(monkeypatch, capfd)("tune", file, *options)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert message in done.err
    assert not (tmp_path / "p.db").exists()


def forever(run: Any, size: Any) -> None:
    while True:
        pass


@pytest.mark.full
def test_a_loop_that_never_ends_ends_the_command() -> None:
    settings = TuneSettings(backend="host", budget=2, limits=Limits(compile_s=1.0, run_s=0.25))
    with pytest.raises(
        LaunchError, match=r"^a run of the application's steps did not end within 2 s, in its widest types"
    ):
        tune(application(steps=forever), settings)


# -- the picture of an application's answer: its own function, called with what the winner and -------

altair = pytest.importorskip("altair", reason="altair is not installed")

APPLICATION = application()
STEPS = sys.modules[APPLICATION.steps.__module__]


@pytest.fixture(scope="module")
def application_picture_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    application_picture_path = tmp_path_factory.mktemp("runs") / "power.db"
    narrow = {"a_type": "fp32", "x_type": "fp32", "matvec.sum_type": "fp32"}
    trials = [
        Trial(APPLICATION.configuration(values), Status.OK, "", Measurement({"time_ms": time_ms, "error": error}))
        for values, time_ms, error in (({}, 2.0, 0.0), (narrow, 1.0, 1e-7))
    ]
    run = run_of(APPLICATION, [], threshold=1e-3, kernels=list(APPLICATION.kernels))
    with create(application_picture_path, run) as file:
        file.add(*trials)
    return application_picture_path


def drawn(outputs: Any, inputs: Any, size: Any) -> Any:
    assert outputs["value"].dtype == outputs["x"].dtype == np.float64
    assert (inputs["a"].shape, outputs["x"].shape) == ((size.n, size.n), (size.n,))
    assert abs(outputs["x"]) == pytest.approx(abs(np.linalg.eigh(inputs["a"])[1][:, -1]), rel=1e-2)
    rows = [{"i": i, "x": float(x)} for i, x in enumerate(outputs["x"])]
    return altair.Chart(altair.InlineData(values=rows)).mark_line().encode(x="i:Q", y="x:Q")


@pytest.mark.usefixtures("charts")
@pytest.mark.full
def test_the_winner_is_drawn_beside_the_widest_types(
    application_picture_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(STEPS, "picture", drawn, raising=False)
    parts = plot(application_picture_path, "answer", kernel=APPLICATION).to_dict()["vconcat"]
    titles = [" ".join(part["title"]["text"]) for part in parts]
    assert titles[0] == "in the widest types"
    assert titles[1].startswith("the winner: ")
    assert "speedup 2" in titles[1]


# -- a tuned application from Python, and its sources: what a user has of an application -------------

POWER = application()
WIDE: dict[str, Any] = {"scale.block": 64}
NARROW: dict[str, Any] = {"a_type": "fp32", "x_type": "fp32", "matvec.sum_type": "fp32"}


def trial(time_ms: float, error: float, values: dict[str, Any], app: Any = POWER) -> Trial:
    return Trial(app.configuration(values), Status.OK, "", Measurement({"time_ms": time_ms, "error": error}))


def a_run(app: Any = POWER, **settings: Any) -> Run:
    trials = [trial(4, 1e-16, WIDE, app), trial(1, 1e-7, NARROW, app)]
    return run_of(app, trials, **{"threshold": 1e-3, "kernels": list(app.kernels), **settings})


@pytest.fixture(scope="module")
def given() -> dict[str, Any]:
    return inputs(np.random.default_rng(5), POWER.resolve_sizes())


@pytest.fixture(scope="module")
def tuned() -> Iterator[TunedApplication]:
    with TunedApplication(a_run(), POWER) as found:
        yield found


def test_the_best_configuration_gives_what_was_evaluated(tuned: TunedApplication, given: dict[str, Any]) -> None:
    found = tuned(**given)
    assert tuned.configuration == POWER.configuration(NARROW)
    assert tuned.reason == ""
    assert "best: a_type=fp32" in repr(tuned)
    expected, _, _ = run_once(POWER, NARROW, given)
    assert list(found) == ["x", "value"]
    for name, values in expected.items():
        assert found[name].dtype == np.float64
        assert np.array_equal(found[name], values)
    again = tuned(**given, converted=False)
    assert again["x"].dtype == np.float32
    assert np.array_equal(again["x"], found["x"])


def test_other_sizes_get_the_baseline_unless_a_configuration_was_asked_for(tuned: TunedApplication) -> None:
    sizes = POWER.resolve_sizes("default", {"n": 20})
    smaller = inputs(np.random.default_rng(6), sizes)
    with pytest.warns(UserWarning, match="power uses the baseline: the run was made at n=37, not at n=20"):
        found = tuned(**smaller)
    expected, _, _ = run_once(POWER, WIDE, smaller, sizes)
    assert np.array_equal(found["x"], expected["x"])
    assert tuned.configuration == POWER.configuration(WIDE)
    assert tuned.reason.startswith("the run was made at n=37, not at n=20")
    assert dict(tuned.sizes) == {"n": 20}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        assert np.array_equal(tuned(**smaller, n=20)["x"], expected["x"])
    with TunedApplication(a_run(), POWER, configuration=NARROW) as chosen:
        expected, _, _ = run_once(POWER, NARROW, smaller, sizes)
        assert np.array_equal(chosen(**smaller)["x"], expected["x"])


def test_of_wisdom_it_says_what_it_takes_at_which_sizes() -> None:
    wisdom = gather(read_sources([a_run(sizes=POWER.resolve_sizes("default", {"n": n})) for n in (20, 40)]))
    with TunedApplication(wisdom, POWER) as tuned:
        for n, values, reason in (
            (20, NARROW, ""),
            (400, WIDE, "errors are unknown: no tuned size is within 4 times of n=400"),
        ):
            sizes = POWER.resolve_sizes("default", {"n": n})
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                tuned(**inputs(np.random.default_rng(3), sizes))
            assert [Path(each.filename).name for each in told] == ([Path(__file__).name] if reason else [])
            assert tuned.sizes == sizes
            assert tuned.configuration == POWER.configuration(values)
            assert tuned.reason.startswith(reason)
            choice = tuned.choose({"n": n})
            assert (choice.configuration, choice.reason) == (tuned.configuration, tuned.reason)
        assert "the winner of a run there" in tuned.choose({"n": 40}).why
        assert tuned.sizes["n"] == 400
        with pytest.raises(
            KernelError, match=r"application power: choose\(sizes\) takes sizes by name, such as {'n': 4"
        ):
            tuned.choose({})
        with pytest.raises(UnknownNameError, match="'m'"):
            tuned.choose({"m": 3})
    with TunedApplication(wisdom, POWER, configuration=NARROW) as fixed:
        assert fixed.choose({"n": 30}).configuration == POWER.configuration(NARROW)
    with TunedApplication(a_run(), POWER) as of_one_size:
        assert "the run was made at" in of_one_size.choose({"n": 30}).reason


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "application power needs an input 'x'"),
        ({"x": np.ones(N + 1)}, "input 'x' of application power has shape .38,.; expected .37,. at n=37"),
        ({"n": "many"}, "application power: size n must be a whole number, not 'many'"),
        ({"X": np.ones(N)}, "did you mean 'x'"),
        ({"x": np.ones(N, complex)}, "expected real numbers"),
    ],
)
def test_bad_input_is_named(
    tuned: TunedApplication, given: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    changed = {name: value for name, value in {**given, **changes}.items() if value is not None}
    with pytest.raises((KernelError, UnknownNameError), match=message):
        tuned(**changed)


def test_data_that_does_not_fit_the_types_gets_the_baselines_answer(
    tuned: TunedApplication, given: dict[str, Any]
) -> None:
    large = {**given, "a": given["a"] * 1e60}
    with pytest.warns(UserWarning, match="uses the baseline for this call: input 'a' overflows in fp32"):
        found = tuned(**large)
    expected, _, _ = run_once(POWER, WIDE, large)
    assert np.array_equal(found["value"], expected["value"])


def test_a_run_of_another_device_or_definition_is_told(given: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="power uses the baseline: the run is of another device"):
        tuned = TunedApplication(a_run(device="another device"), POWER)
    assert tuned.configuration == POWER.configuration(WIDE)
    changed = [
        {"name": "a_type", "kind": "precision", "values": ["bf16"]},
        {"name": "matvec.block", "kind": "ordinal", "values": [32]},
    ]
    with pytest.raises(KernelError, match="application power has changed since the run: parameter 'a_type' had"):
        TunedApplication(a_run(parameters=changed), POWER)
    with pytest.raises(KernelError, match=r"give its definition with --kernel FILE.py, in Python as kernel="):
        TunedApplication(a_run())
    wisdom = gather(read_sources([a_run()]))
    with pytest.raises(
        KernelError,
        match="the wisdom is of application 'power', which is not a bundled one: give its definition with --kernel "
        r"FILE\.py, in Python as kernel=",
    ):
        TunedApplication(wisdom)
    with pytest.raises(KernelError, match=r"mptune.TunedApplication runs it"):
        TunedKernel(a_run(), kernel=None)


class TestSources:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        page = (Path(__file__).parents[1] / "docs" / "applications.md").read_text()
        file = tmp_path / "power.py"
        file.write_text("import numpy" + page.partition("```python\nimport numpy")[2].partition("```")[0])
        return file

    def test_render_prints_what_is_launched(self, file: Path, monkeypatch: Any, capfd: Any) -> None:
        done = caller(monkeypatch, capfd)("render", file, "--size", "smoke", "-p", "x_type=fp32", "--body")
        assert done.code == 0, done.err
        heads = [line for line in done.out.splitlines() if line.startswith("// ---- ")]
        assert [head.split()[2] for head in heads] == ["matvec:", "scale:"]
        assert "a_type=fp64, x_type=fp32" in heads[0]
        assert heads[0].endswith("at rows=100, columns=100 ----")
        assert "void scale(float* v" in done.out
        done = caller(monkeypatch, capfd)("render", file, "-p", "matvec.sum_typ=fp32")
        assert done.code == 2
        assert "did you mean 'matvec.sum_type'" in done.err

    @pytest.mark.full
    def test_check_compiles_each_kernel_and_runs_the_steps(self, file: Path, monkeypatch: Any, capfd: Any) -> None:
        call = caller(monkeypatch, capfd)
        done = call("check", file, "--sample", "2", "--json")
        assert done.code == 0, done.err
        checks = json.loads(done.out)["checks"]
        assert [check["kernel"] for check in checks] == ["power.matvec", "power.scale"]
        assert all(check["compiled"] == 2 and not check["failures"] for check in checks)
        text = file.read_text()
        file.write_text(text.replace("run.scale(v=run.y", "run.scale(w=run.y"))
        done = call("check", file)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "argument of application power: launch of scale: 'w'" in done.err
        file.write_text(text.replace("v[i] = ({{ type }})((double)v[i] * factor);", "v[i] = {{ type }}(v[i]) * facto;"))
        done = call("check", file, "--sample", "1")
        assert done.code == 1
        assert "power at a_type=fp64" in done.err
        assert "facto" in done.err


def test_a_constraint_at_a_launch_takes_any_name_of_a_precision() -> None:
    types = PrecisionParameter("v_type", ["fp64", "fp32"])
    application = Application(
        name="scaling",
        kernels=[SCALE.changed(constraints=["type != 'float' or block == 32"])],
        buffers=[InOut("v", "m", precision="v_type")],
        shared=[types],
        outputs=["v"],
        sizes={"default": {"m": 100}},
        inputs=lambda rng, size: {"v": rng.uniform(1, 2, size.m)},
        steps=lambda run, size: run.scale(v=run.v, factor=2.0),
        reference=lambda inputs, size: {"v": 2 * inputs["v"]},
    )
    run = tune(application, max_error=1e-3, budget=4, verify=0)
    broken = [dict(trial.configuration) for trial in run.trials if trial.status is Status.CONSTRAINT]
    assert broken == [{"v_type": "fp32", "scale.block": 64}]
    assert len(run.trials) == 4
