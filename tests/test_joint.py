"""The search of an application by models of its kernels, on made-up times and errors of which everything is known."""

import contextlib
import itertools
import math
from types import SimpleNamespace

import pytest
from test_application import MATVEC, SCALE, application

from mptune import OrdinalParameter, PolicyParameter
from mptune.capturing import CapturedLaunch
from mptune.evaluators.screening import Foretold
from mptune.kernel import Sizes
from mptune.kernel.limits import spread
from mptune.objective import Objective
from mptune.results import TRACED_ERROR, Measurement, Status, Trial
from mptune.stepping import Launched
from mptune.tuner.joint import JointSearch

WIDTH = {"fp64": 8.0, "fp32": 4.0, "fp16": 2.0}
ROUNDOFF = {"fp64": 2.0**-53, "fp32": 2.0**-24, "fp16": 2.0**-11}
BLOCKS = [16, 32, 48, 64, 96, 128, 192, 256]


def trial(configuration, time_ms, error=0.0, status=Status.OK, **metrics):
    times = (time_ms,)
    return Trial(configuration, status, "", Measurement({"time_ms": time_ms, "error": error, **metrics}, times))


def matvec_ms(c):
    block = 1 + 0.15 * abs(math.log2(c["block"] / (64 if c["sum_type"] == "fp64" else 128)))
    return (3 * WIDTH[c["a_type"]] + WIDTH[c["x_type"]] + 0.5 * WIDTH[c["sum_type"]]) / 40 * block


def scale_ms(c):
    return WIDTH[c["type"]] / 80 * (1 + 0.1 * abs(math.log2(c["block"] / 32)))


TIMES = {"matvec": matvec_ms, "scale": scale_ms}


class Made:
    """An application of a hundred steps on made-up kernels."""

    def __init__(self, weights, launches=lambda c: 100):
        self.launches = launches
        blocks = OrdinalParameter("block", BLOCKS)
        matvec = MATVEC.changed(parameters=[*MATVEC.parameters[:3], blocks], constraints=[])
        scale = SCALE.changed(parameters=[SCALE.parameters[0], blocks])
        self.app = application(kernels=[matvec, scale])
        self.space = self.app.search_space(Sizes({"n": 37}))
        self.weights = weights
        #: What instrumented runs say, where there are any.
        self.tells = None
        self.hints = False
        self.ruled_out = []

    def run(self, configuration):
        """Return the trial of a run of the application."""
        c = dict(configuration)
        if c["x_type"] not in ("fp64", "fp32"):
            return trial(configuration, math.nan, status=Status.CONSTRAINT)
        matvec = {
            "a_type": c["a_type"],
            "x_type": c["x_type"],
            "sum_type": c["matvec.sum_type"],
            "block": c["matvec.block"],
        }
        count = self.launches(c)
        each = {"matvec": matvec_ms(matvec), "scale": scale_ms({"type": c["x_type"], "block": c["scale.block"]})}
        time_ms = count * sum(each.values()) + 5
        types = (c["a_type"], c["x_type"], c["matvec.sum_type"])
        error = sum(weight * ROUNDOFF[name] for weight, name in zip(self.weights, types, strict=True))
        metrics = {f"launches.{name}": count for name in each}
        metrics |= {f"time_ms.{name}": count * one_ms for name, one_ms in each.items()}
        return trial(configuration, time_ms, error, **metrics, host_ms=5.0)

    def capture(self, configuration, folder):
        buffers = (("a", "a"), ("x", "x"), ("y", "y"))
        return (
            CapturedLaunch(Launched("matvec", buffers, (("columns", 37), ("rows", 37))), 100, 1.0, "none"),
            CapturedLaunch(Launched("scale", (("v", "y"),), (("m", 37),)), 100, 1.0, "none"),
        )

    def kernel_evaluator(self, kernel):
        return Evaluator(kernel)

    def foretold(self, configuration):
        return self.tells(configuration) if self.tells else None

    def hinted(self, configuration):
        return self.run(configuration) if self.hints else None

    def best(self, threshold):
        """Return the least time there is among accurate runs."""
        found = map(self.run, self.space.configurations(range(self.space.size)))
        return min(each.time_ms for each in found if each.is_valid and each.error <= threshold)


class Evaluator:
    def __init__(self, kernel):
        self.kernel = kernel

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def start(self):
        return SimpleNamespace(constraints=())

    def key_of(self, configuration):
        return configuration.to_json()

    def evaluate(self, configurations):
        for configuration in configurations:
            yield trial(configuration, TIMES[self.kernel.name](configuration))


def joint_search(made, threshold, seed=0, kept=None):
    """Return a search, which appends the labels and trials of kernels alone to ``kept``."""
    kept = [] if kept is None else kept
    return JointSearch(
        made.app,
        made.space,
        Objective(threshold=threshold),
        made,
        made.kernel_evaluator,
        lambda label, key_of: [trial for other, trial in kept if other == label],
        lambda label, trial: kept.append((label, trial)),
        made.ruled_out.append,
        contextlib.nullcontext(),
        None,
        seed,
        pytest.fail,
    )


def search(made, threshold, budget, seed=0):
    """Return the trials of a search of so many evaluations, and how many of them were of kernels."""
    kept = []
    joint = joint_search(made, threshold, seed, kept)
    trials = [made.run(configuration) for configuration in joint.first()]
    joint.tell(trials)
    joint.look(trials[0].configuration)

    def left():
        return budget - len(trials) - len(kept) - 3

    while (configuration := joint.next(left)) is not None:
        trials.append(made.run(configuration))
        joint.tell(trials[-1:])
    trials += [made.run(configuration) for configuration in joint.finalists(2)]
    return trials, len(kept)


def test_it_begins_with_what_computes_the_reference():
    made = Made((1.0, 1.0, 1.0))
    assert joint_search(made, 1e-3).first() == spread(made.space.restrict(made.app.baseline_values()))[:1]


@pytest.mark.parametrize("threshold", [1e-3, 3e-7, 1e-9])
@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (0.1, 30.0, 1.0), (300.0, 1.0, 0.1)])
def test_it_finds_the_best_of_all_with_a_few_runs(weights, threshold):
    made = Made(weights)
    trials, kernels = search(made, threshold, budget=60)
    accurate = [each for each in trials if each.is_valid and each.error <= threshold]
    assert len(trials) + kernels <= 60
    # Of 768 configurations, 8 signatures that run.
    assert len(trials) <= 12
    assert min(each.time_ms for each in accurate) <= 1.01 * made.best(threshold)


@pytest.mark.parametrize("threshold", [3e-7, 1e-9])
def test_it_gets_beyond_the_fastest_of_all_where_these_are_all_too_narrow(threshold, monkeypatch):
    monkeypatch.setattr("mptune.tuner.joint._LOOKED_AT", 1)
    made = Made((0.1, 30.0, 1.0))
    trials, _ = search(made, threshold, budget=60)
    assert min(t.time_ms for t in trials if t.is_valid and t.error <= threshold) <= 1.01 * made.best(threshold)


def types_of(trial):
    return tuple(trial.configuration[name] for name in ("a_type", "x_type", "matvec.sum_type"))


def test_one_type_throughout_is_run_before_any_mixture_and_any_kernel():
    trials, _ = search(Made((1.0, 1.0, 1.0)), 1e-3, budget=12)
    assert [types_of(each) for each in trials[:2]] == [("fp64",) * 3, ("fp32",) * 3]


@pytest.mark.parametrize(("threshold", "within"), [(1e-3, 1.15), (3e-7, 1.15), (1e-9, 1.15)])
def test_a_dozen_evaluations_do_for_types_and_some_tuning(threshold, within):
    made = Made((1.0, 1.0, 1.0))
    trials, kernels = search(made, threshold, budget=12)
    assert len(trials) + kernels <= 12
    assert kernels >= 3
    assert min(t.time_ms for t in trials if t.is_valid and t.error <= threshold) <= within * made.best(threshold)


def test_nothing_is_run_that_is_nowhere_wider_than_what_was_far_too_inaccurate():
    trials, _ = search(Made((1.0, 30.0, 1.0)), 3e-9, budget=60)
    order = {"fp64": 2, "fp32": 1, "fp16": 0}
    for earlier, later in itertools.combinations([types_of(each) for each in trials], 2):
        bad = next(t for t in trials if types_of(t) == earlier).error > 3e-8
        is_narrower = all(order[b] <= order[a] for a, b in zip(earlier, later, strict=True))
        assert not (bad and is_narrower and earlier != later)


def test_a_type_that_converges_slower_loses():
    made = Made((1.0, 1.0, 1.0), launches=lambda c: 160 if c["x_type"] == "fp32" else 100)
    trials, _ = search(made, 1e-3, budget=40)
    best = min((t for t in trials if t.is_valid and t.error <= 1e-3), key=lambda t: t.time_ms)
    assert types_of(best) == ("fp32", "fp64", "fp32")
    assert best.time_ms <= 1.02 * made.best(1e-3)
    # One run tells, and others like it are not tried.
    assert sum(each.configuration["x_type"] == "fp32" for each in trials) <= 3


def test_what_a_kernel_cannot_do_is_never_run():
    trials, _ = search(Made((1.0, 1.0, 1.0)), 1.0, budget=50)
    assert all(each.status is not Status.CONSTRAINT for each in trials)


def test_a_smaller_space_is_all_that_kernels_are_evaluated_in():
    made, asked = Made((1.0, 1.0, 1.0)), []
    made.space = made.space.restrict({"a_type": ["fp32"], "x_type": ["fp32"], "matvec.block": [64]})

    class Watched(Evaluator):
        def evaluate(self, configurations):
            asked.extend((self.kernel.name, c) for c in configurations)
            return super().evaluate(configurations)

    made.kernel_evaluator = Watched
    trials, kernels = search(made, 1e-3, budget=30)
    assert all(each.is_valid and each.configuration in made.space for each in trials)
    assert len(asked) == kernels > 0
    assert {c["a_type"] for name, c in asked if name == "matvec"} == {"fp32"}
    assert {c["block"] for name, c in asked if name == "matvec"} == {64}
    assert {c["type"] for name, c in asked if name == "scale"} == {"fp32"}
    assert len({c["block"] for name, c in asked if name == "scale"}) > 2


def test_the_baseline_is_tuned_as_well_as_the_winner():
    made = Made((1.0, 1.0, 1.0))
    trials, _ = search(made, 1e-3, budget=60)
    wide = {name: values[0] for name, values in made.app.baseline_values().items()}

    def is_wide(configuration):
        return all(configuration[name] == value for name, value in wide.items())

    best = min(made.run(c).time_ms for c in made.space.configurations(range(made.space.size)) if is_wide(c))
    assert min(each.time_ms for each in trials if is_wide(each.configuration)) <= 1.02 * best


@pytest.mark.parametrize("seed", range(4))
def test_a_policy_that_pays_in_one_type_alone_is_found(seed, monkeypatch):
    made = Made((1.0, 1.0, 1.0))
    kernels = [k.changed(parameters=[*k.parameters, PolicyParameter("policy")]) for k in made.app.kernels.values()]
    made.app = application(kernels=kernels)
    made.space = made.app.search_space(Sizes({"n": 37}))

    def with_policy(c):
        narrow = c["a_type"] == c["x_type"] == c["sum_type"] == "fp32"
        return matvec_ms(c) * {"accurate": 2.5 if narrow else 1.0, "fast": 2.5}.get(c["policy"], 0.5 if narrow else 2.5)

    def run(configuration):
        c = dict(configuration)
        names = ("sum_type", "block", "policy")
        launch = {"a_type": c["a_type"], "x_type": c["x_type"], **{name: c[f"matvec.{name}"] for name in names}}
        each = {"matvec": with_policy(launch), "scale": scale_ms({"type": c["x_type"], "block": c["scale.block"]})}
        error = sum(ROUNDOFF[launch[name]] for name in ("a_type", "x_type", "sum_type"))
        metrics = {f"launches.{name}": 100 for name in each} | {f"time_ms.{n}": 100 * ms for n, ms in each.items()}
        return trial(configuration, 100 * sum(each.values()) + 5, error, **metrics, host_ms=5.0)

    monkeypatch.setattr(made, "run", run)
    monkeypatch.setitem(TIMES, "matvec", with_policy)
    trials, _ = search(made, 1e-6, 24, seed)
    accurate = [each for each in trials if each.is_valid and each.error <= 1e-6]
    fastest = min(accurate, key=lambda each: each.time_ms)
    assert fastest.configuration["matvec.policy"] == "approx"
    assert types_of(fastest) == ("fp32",) * 3


def test_the_same_seed_gives_the_same_search():
    first, second = (search(Made((1.0, 1.0, 1.0)), 1e-3, budget=40, seed=3)[0] for _ in range(2))
    assert [t.configuration for t in first] == [t.configuration for t in second]


def test_choices_of_the_steps_have_launches_of_their_own():
    made = Made((1.0, 1.0, 1.0))
    made.app = made.app.changed(shared=[OrdinalParameter("tries", [1, 2])])
    made.space = made.app.search_space(Sizes({"n": 37}))
    joint = joint_search(made, 1.0)
    assert [c["tries"] for c in joint.first()] == [1, 2]


# -- instrumented runs -----------------------------------------------------------------------------


def telling(made, threshold, factor=1.0):
    """Have instrumented runs tell the errors of an application, that much too large."""

    def tells(configuration):
        found = made.run(configuration)
        if not found.is_valid:
            return None
        error = factor * found.error
        if error > 2 * threshold:
            measurement = Measurement({"error": error, TRACED_ERROR: error}, reused_error=True)
            return Foretold(Trial(configuration, Status.INACCURATE, "", measurement), 2.0)
        return Foretold(Trial(configuration, Status.OK, "", Measurement({"error": error}, reused_error=True)), 2.0)

    made.tells = tells


@pytest.mark.parametrize("seed", range(3))
def test_runs_are_not_spent_on_what_instrumented_runs_show_to_be_hopeless(seed):
    threshold = 2e-8
    told, untold = (Made(weights=(3.0, 0.02, 1.0)) for _ in range(2))
    telling(told, threshold)
    runs, _ = search(told, threshold, 40, seed)
    before, _ = search(untold, threshold, 40, seed)

    def wasted(trials):
        return sum(trial.is_valid and trial.error > 2 * threshold for trial in trials)

    # One type throughout is looked at first, whatever its error.
    assert wasted(runs) <= min(1, wasted(before))
    assert told.ruled_out
    names = told.app.signature_names
    signatures = {tuple(trial.configuration[name] for name in names) for trial in told.ruled_out}
    assert len(signatures) == len(told.ruled_out)
    feasible = [trial.time_ms for trial in runs if trial.is_valid and trial.error <= threshold]
    assert min(feasible) <= 1.1 * told.best(threshold)


def test_what_instrumented_runs_promise_is_run_right_after_one_type_throughout():
    made = Made(weights=(300.0, 1.0, 0.1))
    made.hints = True
    trials, _ = search(made, 1.2e-7, budget=12)
    assert [types_of(each) for each in trials[:3]] == [("fp64",) * 3, ("fp32",) * 3, ("fp64", "fp32", "fp32")]


def test_what_is_to_show_whether_they_hold_is_run():
    made = Made(weights=(3.0, 0.02, 1.0))
    telling(made, 2e-8)
    inner, samples = made.tells, []

    def tells(configuration):
        found = inner(configuration)
        if found is None or not found.trial.is_screened or samples:
            return found
        samples.append(configuration)
        errors = Measurement({"error": found.trial.error}, reused_error=True)
        return Foretold(Trial(configuration, Status.OK, "", errors), 2.0, is_sample=True)

    made.tells = tells
    runs, _ = search(made, 2e-8, 40)
    assert samples
    assert samples[0] in [trial.configuration for trial in runs]


def test_what_was_ruled_out_wrongly_may_be_run_after_all():
    made = Made(weights=(3.0, 0.02, 1.0))
    telling(made, 2e-8, factor=1000.0)
    joint = joint_search(made, 2e-8)
    trials = [made.run(configuration) for configuration in joint.first()]
    joint.tell(trials)
    joint.look(trials[0].configuration)
    left = [12]

    def run_all():
        found = []
        while left[0] > 0 and (configuration := joint.next(lambda: left[0])) is not None:
            found.append(made.run(configuration))
            joint.tell(found[-1:])
            left[0] -= 1
        return found

    run_all()
    wrong = [trial.configuration for trial in made.ruled_out if made.run(trial.configuration).error <= 2e-8]
    assert wrong
    made.tells = None
    joint.forget([trial.configuration for trial in made.ruled_out])
    left[0] = 30
    again = {tuple(trial.configuration[n] for n in made.app.signature_names) for trial in run_all()}
    assert again & {tuple(configuration[n] for n in made.app.signature_names) for configuration in wrong}
