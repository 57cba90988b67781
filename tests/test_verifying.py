"""Verification on unseen inputs: at the end of a run, and by ``mptune verify``."""

from __future__ import annotations

import dataclasses
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from made_up_devices import MadeUp, replace_devices

from mptune.data import Stream
from mptune.errors import MptuneError, UnknownNameError
from mptune.kernel import In, Kernel, Out
from mptune.results.description import verified_text
from mptune.results.trial import Status
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from mptune.tuning import tune
from mptune.tuning.verify import LEAST_INPUTS, verify


def shift_of(rng):
    """Return what a draw adds and takes away again: the larger beside x, the fewer digits of x are left."""
    return 1e3 ** rng.random() * rng.random()


def inputs(rng, size):
    shift = shift_of(rng)
    return {"x": rng.uniform(1.0, 1.1, size.n), "shift": np.full(size.n, shift)}


kernel = Kernel(
    name="there_and_back",
    parameters=[OrdinalParameter("block", [32, 64]), PrecisionParameter("type", ["fp64", "fp32"])],
    arguments=[Out("y", "n", precision="type"), In("x", "n", precision="type"), In("shift", "n", precision="type")],
    sizes={"default": {"n": 509}, "large": {"n": 2003}},
    inputs=inputs,
    reference=lambda inputs, size: inputs["x"].copy(),
    grid=["ceildiv(n, block)"],
    block=["block"],
    metric="MaxRE",
    template="""
extern "C" __global__ void there_and_back({{ type }}* y, const {{ type }}* x, const {{ type }}* shift) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < {{ n }}) { volatile {{ type }} moved = x[i] + shift[i]; y[i] = moved - shift[i]; }
}
""",
)
OPTIONS = {"backend": "host", "budget": 4, "strategy": "random", "on_warning": lambda _: None, "verify": 7}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("verified") / "run.db"
    tune(kernel, output=path, max_error=1e-3, **OPTIONS)
    return path


@pytest.fixture
def real(made, tmp_path):
    return Path(shutil.copy(made, tmp_path / "run.db"))


def rounded(configuration, draw):
    """Half a unit in the last place of what is added and taken away again, and what is left of x."""
    error = 2.0**-24 * shift_of(draw.generator(0)) * (1 + 0.001 * (draw.number % 7))
    return {"error": error, "error.y": error, "log10_error": math.log10(error)}


@pytest.fixture
def devices(monkeypatch):
    found = replace_devices(monkeypatch, lambda c: MadeUp(1.0, 1e-5 if c["type"] == "fp32" else 1e-14))
    found.on_draw = rounded
    return found


@pytest.fixture
def path(devices, tmp_path):
    tune(kernel, output=tmp_path / "run.db", max_error=1e-3, **OPTIONS)
    return tmp_path / "run.db"


def chosen(path):
    """Return the configuration of a feasible fp32 trial: which one is the best, a busy machine may not tell."""
    trials = Run.load(path).trials
    return next(t.configuration for t in trials if t.configuration["type"] == "fp32" and t.status is Status.OK)


def trial_of(path, configuration):
    return next(trial for trial in Run.load(path).trials if trial.configuration == configuration)


@pytest.mark.full
def test_more_inputs_go_on_where_the_last_call_ended_and_are_kept(real):
    name = chosen(real)
    before = trial_of(real, name).measurement.metrics.get("unseen_inputs", 0)
    first = verify(real, kernel, configuration=name, inputs=11)
    assert first.holds
    assert first.is_kept
    assert first.cases[0].closest == ""
    assert first.cases[0].verified.inputs == before + 11
    second = verify(real, kernel, configuration=name, inputs=5)
    run = Run.load(real)
    trial = trial_of(real, name)
    assert run.verified(trial) == second.cases[0].verified
    assert run.verified(trial).inputs == before + 16
    assert trial.status is Status.OK
    assert trial.error >= second.cases[0].verified.worst_error


def holey(rng, size):
    """Inputs of which every third unseen one cannot be made."""
    key = rng.bit_generator.seed_seq.spawn_key
    if len(key) == 2 and key[0] == Stream.UNSEEN and key[1] % 3 == 1:
        raise ValueError("no such case")
    return inputs(rng, size)


@pytest.mark.full
def test_ctrl_c_keeps_the_inputs_that_have_ended(path, devices):
    name = chosen(path)
    before = trial_of(path, name).measurement.metrics.get("unseen_inputs", 0)
    done, said = [], []

    def interrupt():
        done.append(None)
        if len(done) == 15:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(path, kernel, configuration=name, inputs=40, on_input=interrupt, on_warning=said.append)
    assert trial_of(path, name).metric("unseen_inputs") == before + 20
    assert any("20 inputs are kept" in message for message in said)


@pytest.mark.full
def test_where_some_inputs_cannot_be_made_none_is_counted_twice(tmp_path):
    path, other = tmp_path / "run.db", tmp_path / "other.db"
    torn = dataclasses.replace(kernel, inputs=holey)
    tune(torn, output=path, max_error=1e-3, **OPTIONS | {"verify": 0})
    shutil.copy(path, other)
    name = chosen(path)
    before = trial_of(path, name).measurement.metrics
    # A call that ends with inputs that cannot be made has them again at the beginning of the next.
    for count in (6, 12):
        verify(path, torn, configuration=name, inputs=count)
    verify(other, torn, configuration=name, inputs=18)
    one, both = (trial_of(file, name).measurement.metrics for file in (other, path))
    assert one == pytest.approx(dict(both), nan_ok=True)
    assert one["unseen_inputs"] == before.get("unseen_inputs", 0) + 12


def test_other_sizes_are_not_kept(path):
    name, before = chosen(path), Run.load(path).trials
    found = verify(path, kernel, configuration=name, inputs=6, sizes=["large", {"n": 77}])
    assert [case.sizes["n"] for case in found.cases] == [2003, 77]
    assert all(case.verified.inputs == 6 for case in found.cases)
    assert not found.is_kept
    assert Run.load(path).trials == before


def test_a_violation_makes_the_trial_fragile_in_the_file(path, devices):
    number = chosen(path)
    devices.on_draw = lambda c, draw: {"error": 2e-3, "error.y": 2e-3} if draw.number == 9 else rounded(c, draw)
    found = verify(path, kernel, configuration=number, inputs=40)
    assert not found.holds
    assert found.is_kept
    assert (found.cases[0].verified.violations, found.cases[0].worst.number) == (1, 9)
    after = trial_of(path, number)
    assert after.status is Status.FRAGILE
    assert Run.load(path).verified(after) == found.cases[0].verified


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"inputs": 0}, MptuneError, "inputs 0: expected at least 1"),
        ({"sizes": ["larg"]}, UnknownNameError, "did you mean 'large'"),
        ({"configuration": {"block": 33}}, MptuneError, "no trial has the configuration"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(path, options, error, message):
    with pytest.raises(error, match=message):
        verify(path, kernel, **({"configuration": chosen(path)} | options))


def test_under_other_conditions_nothing_is_kept_and_it_is_said(path):
    warned = []
    other = dataclasses.replace(kernel, template=kernel.template + "// edited\n")
    before = Run.load(path).trials
    found = verify(path, other, configuration=chosen(path), inputs=5, on_warning=warned.append)
    assert not found.is_kept
    assert found.is_of_another
    assert found.words(found.cases[0]).startswith(
        "another definition than the run's: within 1e-3 on 5 of 5 unseen inputs"
    )
    assert found.to_json()["another_definition"] is True
    assert any("is not kept" in message and "template" in message for message in warned)
    assert Run.load(path).trials == before


def test_values_of_a_file_are_rendered_only_if_the_kernel_declares_them(path, monkeypatch):
    run = Run.load(path)
    forged = dataclasses.replace(run.trials[0], configuration=Configuration({"block": 32, "type": "fp32; system(1)"}))
    monkeypatch.setattr(Run, "best", forged)
    with pytest.raises(MptuneError, match="is no valid configuration of kernel there_and_back"):
        verify(path, kernel)


# -- at the end of a run: what breaks its limit on an unseen input is replaced -------------------------


def verification_inputs(rng, size):
    """Numbers near 1; every eighth unseen input has some that fp16 holds less well."""
    key = rng.bit_generator.seed_seq.spawn_key
    is_hard = len(key) == 2 and key[0] == Stream.UNSEEN and key[1] % 8 == 6
    x = rng.uniform(1.0, 1.5, size.n)
    return {"x": np.where(is_hard, 0.01 * x, x)}


verification_kernel = Kernel(
    name="shift",
    parameters=[OrdinalParameter("block", [32, 64]), PrecisionParameter("type", ["fp64", "fp32", "fp16"])],
    arguments=[Out("y", "n", precision="type"), In("x", "n", precision="type")],
    sizes={"default": {"n": 20_011}},
    inputs=verification_inputs,
    reference=lambda verification_inputs, size: verification_inputs["x"] + 1.0 - 1.0,
    grid=["ceildiv(n, block)"],
    block=["block"],
    metric="NRMSE",
    template="""
extern "C" __global__ void shift({{ type }}* y, const {{ type }}* x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < {{ n }}) { {{ type }} moved = x[i] + {{ type }}(1.0); y[i] = moved - {{ type }}(1.0); }
}
""",
)


#: Beside other load there is something to warn of.
VERIFICATION_OPTIONS = {
    "backend": "host",
    "max_error": 1e-3,
    "budget": 6,
    "strategy": "random",
    "on_warning": lambda _: None,
}


@pytest.fixture
def time_enough(monkeypatch):
    """However slow the machine is, there is time for every input that is asked for."""
    monkeypatch.setattr("mptune.tuning.verify.SHARE", 0.9999)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    path = tmp_path_factory.mktemp("verified") / "run.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mptune.tuning.verify.SHARE", 0.9999)
        return path, tune(verification_kernel, output=path, verify=20, **VERIFICATION_OPTIONS)


@pytest.mark.usefixtures("time_enough")
def test_a_run_replaces_what_breaks_its_limit_on_an_unseen_input(monkeypatch, tmp_path):
    times_ms, errors = {"fp64": 4.0, "fp32": 2.0, "fp16": 1.0}, {"fp64": 1e-16, "fp32": 1e-7, "fp16": 2e-4}
    devices = replace_devices(monkeypatch, lambda c: MadeUp(times_ms[c["type"]] * c["block"], errors[c["type"]]))

    def on_draw(configuration, draw):
        error = errors[configuration["type"]] * (50.0 if draw.stream is Stream.UNSEEN and draw.number % 8 == 6 else 1.0)
        return {"error": error, "error.y": error}

    devices.on_draw = on_draw
    run = tune(verification_kernel, output=tmp_path / "run.db", verify=20, **VERIFICATION_OPTIONS)
    assert {t.configuration["type"] for t in run.trials if t.status is Status.FRAGILE} == {"fp16"}
    assert dict(run.best.configuration) == {"block": 32, "type": "fp32"}
    assert run.best in run.reported
    assert {(v.inputs, v.violations) for v in map(run.verified, run.reported)} == {(20, 0)}
    assert Run.load(tmp_path / "run.db").summary() == run.summary()


@pytest.mark.usefixtures("devices")
def test_inputs_are_fewer_where_they_take_long(monkeypatch):
    monkeypatch.setattr("mptune.tuning.verify.SHARE", 1e-9)
    run = tune(kernel, max_error=1e-3, **OPTIONS | {"verify": 1000})
    assert {run.verified(trial).inputs for trial in run.reported} == {LEAST_INPUTS}


@pytest.mark.usefixtures("time_enough")
def test_what_fails_on_an_unseen_input_is_replaced(monkeypatch):
    devices = replace_devices(monkeypatch, lambda c: MadeUp(1.0 if c["type"] == "fp32" else 2.0, 1e-14))
    evaluated = devices._on

    def on(request, draw):
        trial = evaluated(request, draw)
        fails = request.configuration["type"] == "fp32" and (draw.stream, draw.number) == (Stream.UNSEEN, 3)
        return dataclasses.replace(trial, status=Status.CRASH, message="a failure") if fails else trial

    monkeypatch.setattr(devices, "_on", on)
    run = tune(kernel, max_error=1e-3, **OPTIONS)
    assert run.best.configuration["type"] == "fp64"
    fallen = [trial for trial in run.trials if trial.status is Status.CRASH]
    assert {trial.configuration["type"] for trial in fallen} == {"fp32"}
    assert {trial.message for trial in fallen} == {"on unseen input 4: a failure"}


def test_a_real_run_verifies_what_it_reports(tuned):
    path, run = tuned
    assert run.best.configuration["type"] in ("fp32", "fp64")
    assert all(run.verified(trial).inputs == 20 for trial in run.reported)
    assert all(run.verified(trial).violations == 0 for trial in run.reported)
    assert run.verified(run.baseline) is not None
    assert run.durations_s["verification"] == run.state.verify_s > 0
    assert Run.load(path).summary() == run.summary()


@pytest.mark.full
def test_inputs_that_are_always_the_same_are_not_unseen(tmp_path):
    path, warned = tmp_path / "run.db", []
    fixed = dataclasses.replace(verification_kernel, inputs=lambda rng, size: {"x": np.linspace(1.0, 1.5, size.n)})
    options = {**VERIFICATION_OPTIONS, "budget": 2, "max_error": 0.1, "on_warning": warned.append}
    run = tune(fixed, output=path, verify=20, **options)
    assert run.reported
    assert all(run.verified(trial) is None for trial in run.reported)
    assert sum("do not depend on rng, so no input is unseen" in warning for warning in warned) == 1
    for trial in (run.baseline, run.best):
        assert verified_text(run, trial).startswith("NOT verified on any unseen input (none could be made: inputs")
    assert Run.load(path).state.unverified == run.state.unverified
    with pytest.raises(MptuneError, match="no unseen input could be made: inputs of kernel shift give the same"):
        verify(path, fixed, configuration=run.trials[0].configuration, inputs=3, on_warning=warned.append)
