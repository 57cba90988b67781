"""Tuning from Python: what is searched, compared, kept and resumed, mostly on devices that are made up."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from made_up_devices import MadeUp, replace_devices

from mptune.errors import MptuneError
from mptune.measure.device import DeviceEvaluator
from mptune.measure.rounds import VISIT
from mptune.precision import precision
from mptune.results.trial import Status
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.tuning import Progress, TuneSettings, device_constraints, tune
from tests.faults.injecting import Definition
from tests.tiers import few

OWN = Path(__file__).with_name("own_kernel.py")
KERNEL = load_kernel(OWN)
WIDEST = {"x_type": "fp64", "y_type": "fp64"}
THRESHOLD = 1e-5


def settings(**changes: Any) -> TuneSettings:
    # Other tests are about unseen inputs.
    usual = {"backend": "host", "budget": 10, "max_error": THRESHOLD, "strategy": "random", "verify": 0}
    return TuneSettings(**usual | changes)


def tuned(output: Path | None = None, *, resume: bool = False, **changes: Any) -> Run:
    return tune(KERNEL, settings(**changes), output=output, resume=resume, on_warning=lambda _: None)


def types_of(configuration: Configuration) -> list[Any]:
    return [configuration["x_type"], configuration["y_type"]]


def made_up(narrow: float):
    """Return devices whose times are steady, so many times longer for each type that is not fp64."""
    errors = {"fp64": 1e-16, "fp32": 1e-7, "fp16": 1e-3}

    def does(configuration: Configuration) -> MadeUp:
        types = types_of(configuration)
        time_ms = 1.0 + 1.0 / configuration["block"] + 0.1 * configuration["unroll"]
        return MadeUp(time_ms * narrow ** (2 - types.count("fp64")), max(errors[name] for name in types))

    return does


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each configuration takes its time, without being compiled."""
    replace_devices(monkeypatch, made_up(0.5))


@pytest.fixture(scope="module")
def nine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The kernel with nine sources instead of 27: compiling takes most of the time."""
    path = tmp_path_factory.mktemp("kernel") / "poly.py"
    path.write_text(OWN.read_text().replace("[1, 2, 4]", "[1]"))
    return load_kernel(path)


# -- what a run finds --------------------------------------------------------------------------------


@pytest.mark.full
def test_a_run_on_the_host_is_complete_and_in_its_file(tmp_path: Path) -> None:
    told: list[Progress] = []
    path = tmp_path / "poly.db"
    run = tune(KERNEL, settings(budget=14, strategy="bayesian", verify=5), output=path, on_progress=told.append)
    assert run.baseline is not None
    assert types_of(run.baseline.configuration) == ["fp64", "fp64"]
    assert run.best is not None
    assert run.best.error <= THRESHOLD
    assert run.evaluations == len({t.configuration for t in run.trials}) == sum(run.statuses.values()) == 14
    phases = [p.phase for p in told]
    assert phases[:2] == ["baseline"] * 2
    assert 3 <= phases.count("baseline") <= 6
    for trial in run.trials:
        assert trial.is_valid
        assert (trial.status is Status.OK) == (trial.error <= THRESHOLD)
    loaded = Run.load(path)
    assert [t.configuration for t in loaded.trials] == [t.configuration for t in run.trials]
    assert loaded.summary() == run.summary()


def usual(c: Configuration, factor: float = 1.0) -> MadeUp:
    """What a right configuration does: the narrower, the faster and the less exact."""
    sizes, roundoffs = zip(*((precision(t).size_bytes, precision(t).unit_roundoff) for t in types_of(c)), strict=True)
    block = 1.0 + 0.1 * abs(math.log2(c["block"] / 128.0))
    return MadeUp(sum(sizes) * block * (1.0 + 0.2 / c["unroll"]), factor * sum(roundoffs), memory_bytes=sum(sizes))


def where(wrong, faster: float = 1.0):
    """Return devices on which some configurations have wrong results, maybe sooner."""

    def does(c: Configuration) -> MadeUp:
        found = usual(c)
        return dataclasses.replace(found, time_ms=found.time_ms / faster, error=2.0) if wrong(c) else found

    return does


def first_of_each():
    seen: dict[Any, Configuration] = {}
    return where(lambda c: seen.setdefault(KERNEL.signature_of(c), c) == c)


def is_fp64(c: Configuration) -> bool:
    return types_of(c) == ["fp64", "fp64"]


HOSTILE = {
    "nothing": lambda: usual,
    "one block size, and faster there": lambda: where(lambda c: c["block"] == 64, faster=3.0),
    "the first of every signature": first_of_each,
    "fp64 at one block size": lambda: where(lambda c: is_fp64(c) and c["block"] == 128),
    "fp64 everywhere": lambda: where(is_fp64),
    "error grows with unrolling": lambda: lambda c: usual(c, 100.0 ** (c["unroll"] - 1)),
    "early return, 30 times faster": lambda: where(lambda c: c["block"] == 32, faster=30.0),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(("penalty", "strategy", "seed"), few([("hard", "random", 2), ("decay", "bayesian", 0)]))
def test_a_wrong_configuration_never_wins(
    monkeypatch: pytest.MonkeyPatch, name: str, penalty: str, strategy: str, seed: int
) -> None:
    does = HOSTILE[name]()
    replace_devices(monkeypatch, does)
    run = tuned(budget=24, penalty=penalty, strategy=strategy, seed=seed, compilers=0)
    assert run.evaluations == 24
    assert run.best is not None
    assert run.best.error <= THRESHOLD
    fronts = [*run.pareto(("time_ms", "error")), *run.pareto(("memory_bytes", "error"))]
    for trial in (run.best, run.baseline, run.closest, *run.front, *fronts):
        assert trial is None or trial.error == does(trial.configuration).error


def test_only_some_values_of_a_parameter_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_devices(monkeypatch, lambda c: MadeUp(1.0 + c["block"] * c["unroll"], 1e-7))
    run = tuned(budget=20, strategy="bayesian", restrict={"x_type": ("float",), "unroll": ("2", "4")})
    assert {t.configuration["x_type"] for t in run.trials} == {"fp32"}
    assert {t.configuration["unroll"] for t in run.trials} == {2, 4}
    assert run.best is not None
    # There is nothing in fp64 to compare with.
    assert run.baseline is None


@pytest.mark.full
def test_the_front_is_measured_itself_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    submit = DeviceEvaluator.submit

    def watched(self: DeviceEvaluator, configuration: Any, best_ms: float = math.inf, *more: Any) -> None:
        limits.append(best_ms)
        submit(self, configuration, best_ms, *more)

    monkeypatch.setattr(DeviceEvaluator, "submit", watched)
    given: dict[str, Any] = {"backend": "host", "objectives": ("time", "error"), "seed": 2, "output": tmp_path / "x.db"}
    run = tune(KERNEL, budget=14, **given)
    assert (run.info.strategy, run.info.objective.metrics) == ("bayesian-pareto", ("time_ms", "error"))
    assert run.best is not None
    # Among configurations that the finals cannot tell apart, the simplest wins.
    fastest = run.front[0].configuration
    assert run.best.configuration in {fastest, *run.state.finals.tied_with(fastest)}
    # What is slow may be on the front by its error: none is cut short.
    assert limits == [math.inf] * 14
    assert [t.configuration for t in Run.load(tmp_path / "x.db").front] == [t.configuration for t in run.front]
    resumed = tune(KERNEL, budget=18, resume=True, **given)
    assert resumed.evaluations == 18
    assert {t.configuration for t in run.trials} < {t.configuration for t in resumed.trials}


# -- the baseline ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("steady")
def test_baseline_is_measured_in_every_narrower_type() -> None:
    told: list[Progress] = []
    tune(KERNEL, settings(), on_progress=told.append)
    assert [p.phase for p in told[:3]] == ["baseline", "search", "search"]
    for progress, name in zip(told[1:3], ("fp32", "fp16"), strict=True):
        assert dict(progress.trial.configuration) == {**told[0].trial.configuration, "x_type": name, "y_type": name}


class Reordered:
    """Times in which the finals find another winner than the search: what was found last.

    In the search all narrower configurations take about as long; launched again, the later one was found the less it
    takes. In the baseline's types the winner's tuning makes it a little slower than the winner, all other tunings much.
    """

    def __init__(self) -> None:
        self._launches = Counter[Configuration]()
        self.narrow: list[Configuration] = []

    def __call__(self, configuration: Configuration) -> MadeUp:
        self._launches[configuration] += 1
        if "fp16" in types_of(configuration):
            return MadeUp(1.0, 1e-3)
        if is_fp64(configuration):
            tuned_alike = [c for c in self.narrow if {**c, **WIDEST} == dict(configuration)]
            return MadeUp(1.1 * min(map(self.again_ms, tuned_alike), default=20.0), 1e-16)
        if configuration not in self.narrow:
            self.narrow.append(configuration)
        first_ms = 10.0 - 0.001 * len(self.narrow)
        return MadeUp(self.again_ms(configuration) if self._launches[configuration] > 1 else first_ms, 1e-7)

    def again_ms(self, configuration: Configuration) -> float:
        return 10.0 * 0.9 ** self.narrow.index(configuration)


@pytest.mark.parametrize(("budget", "seed"), few([(10, 0), (8, 1), (14, 2), (24, 3)], 2))
def test_the_winner_s_own_baseline_is_tried_after_the_finals(
    monkeypatch: pytest.MonkeyPatch, budget: int, seed: int
) -> None:
    replace_devices(monkeypatch, Reordered())
    run = tuned(budget=budget, seed=seed)
    assert run.evaluations == budget
    assert run.best is not None
    assert {**run.best.configuration, **WIDEST} in [dict(trial.configuration) for trial in run.trials]
    assert run.speedup(run.best) < 1.25


def test_a_baseline_that_beats_the_winner_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    reordered = Reordered()

    def faster_in_fp64(configuration: Configuration) -> MadeUp:
        does = reordered(configuration)
        is_own = does.error < 1e-10 and does.time_ms < 20.0
        return MadeUp(0.5 * does.time_ms, does.error) if is_own else does

    replace_devices(monkeypatch, faster_in_fp64)
    run = tuned(budget=10)
    assert run.best is not None
    assert run.best is run.baseline
    assert run.state.finals.is_chosen(run.best.configuration)


def test_where_most_of_the_widest_are_wrong_one_that_is_right_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def mostly_wrong(configuration: Configuration) -> MadeUp:
        if is_fp64(configuration):
            return MadeUp(20.0, 1e-16 if configuration["unroll"] == 4 else 0.5)
        return MadeUp(10.0, 1e-3 if "fp16" in types_of(configuration) else 1e-7)

    replace_devices(monkeypatch, mostly_wrong)
    were_wrong = 0
    for seed in range(4):
        run = tuned(budget=24, seed=seed)
        assert run.best is not None
        assert run.baseline is not None
        assert run.baseline.error < THRESHOLD
        assert run.speedup(run.best) == pytest.approx(2.0)
        were_wrong += next(t for t in run.trials if is_fp64(t.configuration)).error > THRESHOLD
    assert were_wrong


# -- resuming ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("steady")
def test_resume_replays_what_is_there_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "poly.db"
    first = tuned(path, budget=5)
    told: list[Progress] = []
    more = tune(KERNEL, settings(budget=8, strategy="genetic"), output=path, resume=True, on_progress=told.append)
    assert more.evaluations == len(Run.load(path).trials) == 8
    assert sum(p.replayed for p in told) >= 1
    after = {t.configuration: t for t in more.trials}
    for trial in first.trials:
        # Finalists alone are measured again.
        again = after[trial.configuration]
        is_same = again.measurement.times_ms == trial.measurement.times_ms
        assert is_same or len(again.measurement.times_ms) % VISIT.max_repeats == 0
        assert again.error == trial.error


@pytest.mark.usefixtures("steady")
def test_resume_under_another_threshold_judges_anew(tmp_path: Path) -> None:
    strict = tuned(tmp_path / "poly.db", budget=4, max_error=1e-30)
    assert strict.best is None
    assert tuned(tmp_path / "poly.db", budget=4, max_error=1.0, resume=True).statuses == {"ok": 4}
    assert Run.load(tmp_path / "poly.db").statuses == {"ok": 4}


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("p = p * t + {{ x_type }}(1.0)", "p = {{ x_type }}(1.0) + p * t", "the template was edited; the definition"),
        ('"ceildiv(n, block * unroll)"', '"ceildiv(n, block * unroll) + 1"', "the definition file was edited"),
    ],
    ids=["source", "grid"],
)
def test_stale_trials_are_set_aside_not_shown_and_come_back(tmp_path: Path, old: str, new: str, what: str) -> None:
    own, path = tmp_path / "mine.py", tmp_path / "run.db"
    original = OWN.read_text()
    assert old in original
    own.write_text(original)
    first = tune(own, settings(budget=3), output=path)
    own.write_text(original.replace(old, new))
    told: list[Progress] = []
    with pytest.warns(UserWarning, match=f"^{what}.*: the run file's 3 earlier trials are not used"):
        edited = tune(own, settings(budget=2), output=path, resume=True, on_progress=told.append)
    assert not any(p.replayed for p in told)
    assert edited.state.stale == 3
    assert len(Run.load(path).trials) == 2
    own.write_text(original)
    told.clear()
    with pytest.warns(UserWarning, match="2 earlier trials"):
        again = tune(own, settings(budget=3), output=path, resume=True, on_progress=told.append)
    assert all(p.replayed for p in told)
    assert {t.configuration: t.time_ms for t in again.trials} == {t.configuration: t.time_ms for t in first.trials}


@pytest.mark.usefixtures("steady")
def test_trials_of_a_metric_are_used_again_only_if_it_has_a_version(tmp_path: Path) -> None:
    def worst(output: Any, reference: Any) -> float:
        return float(abs(output - reference).max())

    path = tmp_path / "run.db"

    def resumed() -> tuple[list[bool], list[str]]:
        told: list[Progress] = []
        warned: list[str] = []
        given = settings(budget=2, metric=worst, max_error=None)
        tune(KERNEL, given, output=path, resume=True, on_progress=told.append, on_warning=warned.append)
        return [p.replayed for p in told], warned

    assert resumed() == ([False] * 2, [])
    replayed, (warning,) = resumed()
    assert not any(replayed)
    assert f"error metric worst has no version, so the trials in {path} are evaluated again" in warning
    for before, version in (("none", "1"), ("1", "2")):
        worst.version = version  # type: ignore[attr-defined]
        replayed, (warning,) = resumed()
        assert not any(replayed)
        assert warning.startswith(f"version of metric worst was {before}, is {version}: the run file's 2 earlier")
        assert resumed() == ([True] * 2, [])


@pytest.mark.usefixtures("steady")
def test_untimed_trials_survive_a_resume_and_are_timed_when_wanted(tmp_path: Path) -> None:
    path = tmp_path / "poly.db"
    untimed = {t.configuration for t in tuned(path, budget=9, penalty="hard").trials if math.isnan(t.time_ms)}
    assert untimed
    again = tuned(path, budget=9, penalty="hard", resume=True)
    assert again.evaluations == 9
    assert untimed <= {t.configuration for t in again.trials if math.isnan(t.time_ms)}
    timed = tuned(path, budget=9, penalty="decay", resume=True)
    assert not any(math.isnan(t.time_ms) for t in timed.trials)


# -- launches that take too long ---------------------------------------------------------------------


def timeouts(run: Run) -> set[Configuration]:
    return {trial.configuration for trial in run.trials if trial.status is Status.TIMEOUT}


LIMITED = {"strategy": "exhaustive", "budget": 12, "max_error": 1e-3}
RESTRICTED = {"block": (32, 64), "unroll": (1,), "x_type": ("fp64", "fp16")}


def test_a_resumed_run_keeps_timeouts_unless_its_limit_is_larger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def does(configuration: Configuration) -> MadeUp:
        slow = 50.0 if configuration["x_type"] == "fp16" else 20.0
        return MadeUp(2.0 * (slow if configuration["block"] == 32 else 1.0), 1e-9)

    devices = replace_devices(monkeypatch, does)

    def launched(limit: float | str, *, resume: bool = True) -> tuple[Run, int]:
        """Return the run, and how many configurations were launched for it."""
        devices.checks.clear()
        more: dict[str, Any] = {"limits": limit, "first": [{**WIDEST, "block": 64}], "restrict": RESTRICTED}
        run = tuned(tmp_path / "run.db", resume=resume, **LIMITED, **more)
        return run, len(devices.checks)

    first, _ = launched("10x", resume=False)
    assert {c["block"] for c in timeouts(first)} == {32}
    assert (first.info.limit_s, first.info.limit_factor) == (30.0, 10.0)
    for as_large in ("10x", "5x"):
        again, checks = launched(as_large)
        assert (timeouts(again), checks) == (timeouts(first), 0)
    larger, checks = launched("30x")
    assert {c["x_type"] for c in timeouts(larger)} == {"fp16"}
    assert checks == len(timeouts(first))
    in_seconds, checks = launched(30)
    assert (timeouts(in_seconds), checks) == (set(), len(timeouts(larger)))
    assert (in_seconds.info.limit_s, in_seconds.info.limit_factor) == (30.0, None)


def test_until_there_is_a_baseline_every_launch_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_devices(monkeypatch, lambda c: MadeUp(2.0 if c["y_type"] == "fp64" else 200.0, 1e-9))
    given: dict[str, Any] = {**LIMITED, "restrict": RESTRICTED, "limits": "10x", "baseline_share": 0.0}
    slow = {"x_type": "fp16", "y_type": "fp16"}
    assert not timeouts(tuned(**given | {"first": [slow], "budget": 1}))
    run = tuned(**given | {"first": [WIDEST, slow], "budget": 2})
    assert {c["x_type"] for c in timeouts(run)} == {"fp16"}


def test_a_kernel_that_takes_much_longer_is_a_timeout(tmp_path: Path) -> None:
    """Its first thread works about a thousand times as long as all threads of the other configurations."""
    slow = Definition("if (i == 0) for (volatile int k = 0; k < 20000000; k = k + 1) { }", blocks=(32, 64, 128))
    given = {"first": [{"block": 32}, {"block": 64}], "objective": "memory", "baseline_share": 0.0, "limits": "10x"}
    trials = tune(slow.write(tmp_path), settings(budget=3, **given), on_warning=lambda _: None).trials
    assert [trial.status for trial in trials] == [Status.OK, Status.TIMEOUT, Status.OK]
    assert "10 times the baseline's" in trials[1].message
    assert not trials[1].measurement.times_ms


# -- limits of the device, and settings --------------------------------------------------------------


def test_device_limits_become_constraints_over_the_kernel_s_parameters() -> None:
    assert len(device_constraints(KERNEL, {"max_threads_per_block": 128, "max_shared_bytes": 4})) == 2
    space = KERNEL.search_space(KERNEL.resolve_sizes(), device_constraints(KERNEL, {"max_threads_per_block": 64}))
    assert space.size == 2 * 3 * 9
    limits = {"max_block_x": 64, "max_block_y": 8, "max_block_z": 8, "max_grid_x": 99, "max_grid_y": 7, "max_grid_z": 7}
    assert device_constraints(KERNEL, limits) == ("(block) <= 64", f"({KERNEL.grid[0]}) <= 99")
    flat = dataclasses.replace(KERNEL, block=["block", "2"], grid=["1", "unroll"])
    assert device_constraints(flat, limits) == ("(block) <= 64", "(2) <= 8", "(1) <= 99", "(unroll) <= 7")


def test_constraints_name_facts_of_the_device() -> None:
    own = dataclasses.replace(KERNEL, constraints=["device.is_gpu or unroll == 1", "block <= device.max_block_x"])
    assert device_constraints(own, {"is_gpu": True}) == device_constraints(own, {}) == ()
    assert device_constraints(own, {"is_gpu": False, "max_block_x": 64})[1:] == ("unroll == 1", "block <= 64")
    assert own.search_space(own.resolve_sizes()).size == KERNEL.search_space(KERNEL.resolve_sizes()).size


@pytest.mark.usefixtures("steady")
def test_space_smaller_than_the_budget_ends_the_run() -> None:
    small = dataclasses.replace(KERNEL, constraints=["block == 32", "unroll == 1"], path=None)
    assert tune(small, settings(budget=100)).evaluations == 9


@pytest.mark.full
def test_progress_tells_what_is_compiled_ahead(nine: Any) -> None:
    told: list[Progress] = []
    tune(nine, settings(budget=16, compilers=2), on_progress=told.append)
    ahead = [p.ahead for p in told]
    assert all(p.trial.configuration not in p.ahead for p in told)
    assert max(map(len, ahead)) == 2
    following = [p.trial.configuration for p in told]
    assert all(set(a) <= set(following[i:]) for i, a in enumerate(ahead, 1) if told[i - 1].phase == "search")


def test_a_grid_that_fails_for_every_baseline_ends_the_run_at_once(nine: Any) -> None:
    told: list[Progress] = []
    broken = dataclasses.replace(nine, grid=lambda c: 1 // 0)
    with pytest.raises(MptuneError, match=r"its function grid= failed: .*division"):
        tune(broken, backend="host", budget=50, on_progress=told.append)
    assert not told
