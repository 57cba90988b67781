"""A tuned application from Python, and its sources: what a user has of an application beside its runs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from application_runs import run_once
from awkward_kernel import run_of
from command_line import caller
from test_application import N, application, inputs

from mptune import TunedApplication, TunedKernel
from mptune.errors import KernelError, UnknownNameError
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.wisdom import gather, read_sources

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

    @pytest.mark.full
    def test_check_survives_what_ends_its_process(self, file: Path, monkeypatch: Any, capfd: Any) -> None:
        call, text = caller(monkeypatch, capfd), file.read_text()
        first = "def steps(run, size):\n"
        assert first in text
        for what, message in {
            "import os; os._exit(0)": "exited with code 0 in the reference phase",
            "import os; os.abort()": "was ended by SIGABRT",
            "raise GeneratorExit": "steps of application power failed: GeneratorExit (power.py:",
        }.items():
            file.write_text(text.replace(first, f"{first}    {what}\n"))
            done = call("check", file, "--sample", "1")
            assert (done.code, done.err.count("\n")) == (2, 1), done.err
            assert message in done.err
