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
from mptune.measure.rounds import Finished
from mptune.results.description import verified_text
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.results.unseen import Verified
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from mptune.store import RunInfo
from mptune.tuning import tune
from mptune.tuning.session import Warnings
from mptune.tuning.verify import LEAST_INPUTS, SHARE, Verifier, verify


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


# -- verification at the end of a run: what breaks its limit on an unseen input is replaced, ---------

TAU = 1e-3

# -- the rules, without a device ---------------------------------------------------------------


class Watch:
    """A stopwatch that stands still by itself."""

    seconds = 0.0

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


class Runs:
    """Stands in for evaluator and ledger: a trial for each error of a table, and a clock that draws move on.

    ``errors[name]`` gives the error on an unseen draw by its number, or a failure.
    """

    def __init__(self, errors, *, seconds=100.0, draw_s=0.0, objective=None, searched=3, unmade=(), finalists=0):
        self.objective = objective or Objective(threshold=TAU)
        self._errors = errors
        self._others_s, self._draw_s = seconds, draw_s
        self._unmade = set(unmade)
        self._finalists = finalists
        self.verifying = Watch()
        self.asked = []
        self.trials = {}
        for time_ms, name in enumerate(errors, 1):
            metrics = {"time_ms": float(time_ms), "error": 1e-6, "error_draws": float(searched)}
            self.keep(Trial(Configuration({"name": name}), Status.OK, measurement=Measurement(metrics)))

    def run_on_draws(self, configurations, draws):
        self.asked.append(([c["name"] for c in configurations], [(d.stream, d.number) for d in draws]))
        made = [draw for draw in draws if (draw.stream, draw.number) not in self._unmade]
        pairs = [(draw, c, self._outcome(c, draw)) for draw in made for c in configurations]
        # Those of the search have been made before.
        self.verifying.seconds += sum(self._draw_s * (1.0 if d.stream is Stream.UNSEEN else 0.1) for d in draws)
        found = [(draw, one) for draw, _, one in pairs if one is not None]
        unmade = {draw: "no such case" for draw in draws if draw not in made}
        return Finished(tuple(one for _, one in found), draws=tuple(draw for draw, _ in found), unmade=unmade)

    def _outcome(self, configuration, draw):
        found = self._errors[configuration["name"]](draw) if draw.stream is Stream.UNSEEN else 1e-6
        if isinstance(found, float):
            return Trial(configuration, Status.OK, measurement=Measurement({"error": found}))
        return found and Trial(configuration, found, "a failure")

    def left_s(self, share):
        return self._others_s * share / (1 - share) - self.verifying.seconds

    def keep(self, trial):
        judged = self.objective.judge(trial)
        self.trials[trial.configuration] = judged
        return judged

    def result(self):
        return Run(
            RunInfo(kernel="k", objective=self.objective, baseline_values={"name": ("base",)}), [*self.trials.values()]
        )

    def verification(self, wanted=20):
        self.told = []
        self.warned = []
        self.warn, self.evaluator, self.report_verified = Warnings(self.warned.append), self, self.told.append
        self.steps = Verifier(self, wanted, finalists=self.finalists)
        return self.steps

    def finalists(self):
        ranked = sorted(filter(self.objective.is_feasible, self.trials.values()), key=lambda trial: trial.time_ms)
        return ranked[: self._finalists]

    def of(self, name):
        trial = self.trials[Configuration({"name": name})]
        return trial, Verified.of(trial, self.objective)


def good(draw):
    return 1e-5 * (1 + draw.number)


def on(*numbers, otherwise=good, outcome=5 * TAU):
    return lambda draw: outcome if draw.number in numbers else otherwise(draw)


def test_what_is_reported_is_verified_on_as_many_inputs_as_are_wanted_and_nothing_else():
    runs = Runs({"fast": good, "slow": good, "base": good})
    assert runs.verification(20)() is False
    assert runs.of("fast")[1] == Verified(20, 0, pytest.approx(20e-5))
    assert runs.of("base")[1] == Verified(20, 0, pytest.approx(20e-5))
    assert runs.of("slow")[1] is None
    assert runs.of("fast")[0].error == pytest.approx(20e-5)
    assert runs.of("fast")[0].metric("error_draws") == 23
    drawn = [number for names, draws in runs.asked for _, number in draws]
    assert drawn == list(range(20))
    assert {stream for _, draws in runs.asked for stream, _ in draws} == {Stream.UNSEEN}
    # Once is enough.
    count = len(runs.asked)
    assert runs.verification(20)() is False
    assert len(runs.asked) == count


def test_one_violation_and_the_next_best_is_verified_first_where_the_other_fell():
    runs = Runs({"fragile": on(7), "also": on(7, 12), "holds": good})
    verify = runs.verification(20)
    assert verify() is True
    trial, verified = runs.of("fragile")
    assert trial.status is Status.FRAGILE
    assert verified.violations == 1
    assert runs.of("also")[0].status is Status.FRAGILE
    assert runs.of("holds")[1] is None
    assert runs.result().best.configuration["name"] == "holds"
    assert verify() is False
    assert runs.of("holds")[1] == Verified(20, 0, pytest.approx(20e-5))
    assert runs.result().best.configuration["name"] == "holds"
    assert [trial.configuration["name"] for trial in runs.told][-1] == "holds"


def test_all_finalists_that_fall_as_well_are_found_at_once():
    runs = Runs({**{f"fragile {i}": on(7) for i in range(20)}, "holds": good}, finalists=8)
    verify = runs.verification(20)
    assert verify() is True
    assert runs.result().best.configuration["name"] == "holds"
    assert sum(trial.status is Status.FRAGILE for trial in runs.trials.values()) == 20
    assert len([names for names, draws in runs.asked if draws == [(Stream.UNSEEN, 7)]]) <= 4
    assert verify() is False


@pytest.mark.parametrize(
    ("draw_s", "verification_inputs"),
    [(0.1, 20), (1.0, 20), (2.0, 16), (4.0, 8), (10.0, LEAST_INPUTS), (1000.0, LEAST_INPUTS)],
)
def test_fewer_inputs_where_they_would_take_more_than_a_quarter_of_the_run(draw_s, verification_inputs):
    runs = Runs({"best": good}, seconds=100.0, draw_s=draw_s)
    assert runs.verification(20)() is False
    assert runs.of("best")[1].inputs == verification_inputs
    took_s = runs.verifying.seconds
    assert took_s <= SHARE * (100.0 + took_s) or verification_inputs == LEAST_INPUTS


@pytest.mark.parametrize("outcome", [Status.NON_FINITE, Status.CRASH])
def test_a_failure_on_an_unseen_input_takes_a_trial_away(outcome):
    runs = Runs({"fails": on(6, outcome=outcome), "holds": good})
    verify = runs.verification(20)
    assert verify() is True
    trial, _ = runs.of("fails")
    assert (trial.status, trial.message) == (outcome, "on unseen input 7: a failure")
    assert verify() is False
    assert runs.result().best.configuration["name"] == "holds"


def test_where_no_input_can_be_made_verification_ends_and_one_reason_is_said_once():
    runs = Runs({"best": good}, unmade=[(Stream.UNSEEN, number) for number in range(1000)])
    assert runs.verification(20)() is False
    assert runs.warned == ["unseen input 1 is left out of the verification, as it cannot be made: no such case"]
    assert runs.of("best")[1] is None
    assert len(runs.asked) == 1


def test_a_lost_worker_leaves_a_trial_unverified_and_it_is_said():
    runs = Runs({"best": on(2, outcome=None, otherwise=lambda _: None)})
    assert runs.verification(20)() is False
    assert runs.of("best")[1] is None
    assert runs.warned == ["1 configurations could not be verified: their worker was lost"]


# -- on a device -------------------------------------------------------------------------------


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
