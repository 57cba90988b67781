from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from made_up_devices import MadeUp, replace_devices

from mptune.errors import MptuneError
from mptune.kernel import Kernel
from mptune.measure.rounds import VISIT
from mptune.results.trial import Status, Trial
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.tuning import Progress, TuneSettings, device_constraints, tune

OWN = Path(__file__).with_name("own_kernel.py")


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return load_kernel(OWN)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    """The same kernel with nine sources instead of 27: compiling takes most of the time."""
    path = tmp_path_factory.mktemp("kernel") / "poly.py"
    path.write_text(OWN.read_text().replace("[1, 2, 4]", "[1]"))
    return load_kernel(path)


def settings(**changes: Any) -> TuneSettings:
    # Other tests are about unseen inputs.
    usual = {"backend": "host", "budget": 10, "max_error": 1e-5, "strategy": "random", "verify": 0}
    return TuneSettings(**usual | changes)


@pytest.fixture(scope="module")
def finished(kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path, list[Progress]]:
    path = tmp_path_factory.mktemp("run") / "poly.db"
    told: list[Progress] = []
    run = tune(kernel, settings(budget=14, strategy="bayesian", verify=5), output=path, on_progress=told.append)
    return run, path, told


def test_baseline_has_the_widest_types_and_best_is_feasible(finished: tuple[Run, Path, list[Progress]]) -> None:
    run, _, _ = finished
    assert run.baseline is not None
    assert dict(run.baseline.configuration) | {"x_type": "fp64", "y_type": "fp64"} == dict(run.baseline.configuration)
    assert run.best is not None
    assert run.best.error <= 1e-5


def made_up(narrow: float) -> Callable[[Configuration], MadeUp]:
    """Return devices whose times are steady, so many times longer for each type that is not fp64."""
    errors = {"fp64": 1e-16, "fp32": 1e-7, "fp16": 1e-3}

    def does(configuration: Configuration) -> MadeUp:
        types = [configuration["x_type"], configuration["y_type"]]
        time_ms = (1.0 + 1.0 / configuration["block"] + 0.1 * configuration["unroll"]) * narrow ** (
            2 - types.count("fp64")
        )
        return MadeUp(time_ms, max(errors[name] for name in types))

    return does


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only what is asked for matters, nothing is compiled, and each configuration takes its time."""
    replace_devices(monkeypatch, made_up(0.5))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("narrow", [0.5, 1.0, 2.0], ids=["faster", "as fast", "slower"])
def test_best_is_feasible_and_beats_or_equals_the_baseline(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, narrow: float, seed: int
) -> None:
    replace_devices(monkeypatch, made_up(narrow))
    run = tune(kernel, settings(budget=14, strategy="bayesian", seed=seed))
    assert run.baseline is not None
    assert run.best is not None
    assert run.best.error <= 1e-5
    assert run.best.time_ms <= run.baseline.time_ms
    assert run.speedup(run.best) == pytest.approx(run.baseline.time_ms / run.best.time_ms)
    if narrow < 1:
        assert run.best.time_ms < run.baseline.time_ms


def test_budget_counts_unique_configurations_and_every_status(finished: tuple[Run, Path, list[Progress]]) -> None:
    run, _, told = finished
    assert run.evaluations == 14
    assert len({t.configuration for t in run.trials}) == 14
    assert sum(run.statuses.values()) == 14
    phases = [p.phase for p in told]
    assert phases[:2] == ["baseline"] * 2
    assert 3 <= phases.count("baseline") <= 6
    for trial in run.trials:
        assert trial.is_valid
        assert (trial.status is Status.OK) == (trial.error <= 1e-5)
        assert trial.status is not Status.INACCURATE or "above" in trial.message


def test_run_file_holds_what_tune_returned(finished: tuple[Run, Path, list[Progress]]) -> None:
    run, path, _ = finished
    loaded = Run.load(path)
    assert [t.configuration for t in loaded.trials] == [t.configuration for t in run.trials]
    assert loaded.summary() == run.summary()


def assert_kept(before: Sequence[Trial], run: Run) -> None:
    """Check that a resumed run has the trials there were, finalists alone measured again in turn."""
    after = {t.configuration: t.measurement for t in run.trials}
    changed = [t for t in before if after[t.configuration].times_ms != t.measurement.times_ms]
    assert all(len(after[t.configuration].times_ms) % VISIT.max_repeats == 0 for t in changed)
    assert all(after[t.configuration].metrics["error"] == t.error for t in before)


@pytest.mark.usefixtures("steady")
def test_resume_replays_what_is_there_and_goes_on(kernel: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "poly.db"
    first = tune(kernel, settings(budget=5), output=path)
    told: list[Progress] = []
    more = tune(kernel, settings(budget=8), output=path, resume=True, on_progress=told.append)
    assert more.evaluations == 8
    assert_kept(first.trials, more)
    assert sum(p.replayed for p in told) >= 1
    assert len(Run.load(path).trials) == 8


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
def test_trials_of_a_metric_are_used_again_only_if_it_has_a_version(kernel: Kernel, tmp_path: Path) -> None:
    def worst(output: Any, reference: Any) -> float:
        return float(abs(output - reference).max())

    path = tmp_path / "run.db"

    def resumed() -> tuple[list[bool], list[str]]:
        told: list[Progress] = []
        warned: list[str] = []
        given = settings(budget=2, metric=worst, max_error=None)
        tune(kernel, given, output=path, resume=True, on_progress=told.append, on_warning=warned.append)
        return [p.replayed for p in told], warned

    assert resumed() == ([False] * 2, [])
    replayed, (warning,) = resumed()
    assert not any(replayed)
    assert f"error metric worst has no version, so the trials in {path} are evaluated again" in warning
    for before, version in (("none", "1"), ("1", "2")):
        worst.version = version  # type: ignore[attr-defined]
        replayed, (warning,) = resumed()
        assert not any(replayed)
        changed = f"version of metric worst was {before}, is {version}"
        assert warning.startswith(f"{changed}: the run file's 2 earlier trials")
        assert resumed() == ([True] * 2, [])


@pytest.mark.usefixtures("steady")
def test_without_threshold_the_fastest_wins(kernel: Kernel) -> None:
    run = tune(kernel, settings(max_error=None, budget=6))
    assert run.best is not None
    assert run.best.time_ms == min(trial.time_ms for trial in run.trials)


@pytest.mark.usefixtures("steady")
def test_space_smaller_than_the_budget_ends_the_run(kernel: Kernel) -> None:
    small = dataclasses.replace(kernel, constraints=["block == 32", "unroll == 1"], path=None)
    run = tune(small, settings(budget=100))
    assert run.evaluations == 9


def test_device_limits_become_constraints_over_the_kernel_s_parameters(kernel: Kernel) -> None:
    assert len(device_constraints(kernel, {"max_threads_per_block": 128, "max_shared_bytes": 4})) == 2
    sizes = kernel.resolve_sizes()
    space = kernel.search_space(sizes, device_constraints(kernel, {"max_threads_per_block": 64}))
    assert space.size == 2 * 3 * 9


def test_device_limits_by_axis_leave_out_axes_the_kernel_does_not_have(kernel: Kernel) -> None:
    limits = {"max_block_x": 64, "max_block_y": 8, "max_block_z": 8, "max_grid_x": 99, "max_grid_y": 7, "max_grid_z": 7}
    assert device_constraints(kernel, limits) == ("(block) <= 64", f"({kernel.grid[0]}) <= 99")
    flat = dataclasses.replace(kernel, block=["block", "2"], grid=["1", "unroll"])
    assert device_constraints(flat, limits) == ("(block) <= 64", "(2) <= 8", "(1) <= 99", "(unroll) <= 7")
    together = {f"max_threads_{axis}": 2**32 - 1 for axis in "xyz"}
    assert device_constraints(kernel, together) == (f"(({kernel.grid[0]}) * (block)) <= 4294967295",)


def test_constraints_name_facts_of_the_device(kernel: Kernel) -> None:
    own = dataclasses.replace(kernel, constraints=["device.is_gpu or unroll == 1", "block <= device.max_block_x"])
    assert device_constraints(own, {"is_gpu": True}) == device_constraints(own, {}) == ()
    assert device_constraints(own, {"is_gpu": False, "max_block_x": 64})[1:] == ("unroll == 1", "block <= 64")
    assert own.search_space(own.resolve_sizes()).size == kernel.search_space(kernel.resolve_sizes()).size
    flat = dataclasses.replace(kernel, block=["block", "2"], grid=["1", "unroll"])
    # One that holds for every configuration, or for none, needs no parameter.
    assert flat.search_space(flat.resolve_sizes(), ["(2) <= 8", "(n) <= 2147483647"]).size > 0


BAD = {
    "budget": ({"budget": 0}, "budget 0"),
    "flush": ({"flush_cache": "of"}, "way to flush the cache: 'of'; did you mean 'off'"),
    "limit": ({"time_limit_s": -1.0}, "time_limit_s -1.0: expected more than 0"),
    "option": ({"strategy": "genetic", "strategy_options": {"popsize": 3}}, "option of strategy genetic"),
    "backend": ({"backend": "hots"}, "did you mean 'host'"),
    "threshold": ({"max_error": math.nan}, "threshold"),
    "restricted value": ({"restrict": {"x_type": ("fp23",)}}, "did you mean 'fp32'"),
}


def test_a_misspelt_setting_gets_the_nearest_one(kernel: Kernel) -> None:
    with pytest.raises(MptuneError, match="unknown setting 'max_errr'; did you mean 'max_error'"):
        tune(kernel, backend="host", max_errr=1e-3)


@pytest.mark.parametrize("case", BAD)
def test_wrong_settings_say_what_is_wrong(kernel: Kernel, case: str) -> None:
    changes, message = BAD[case]
    with pytest.raises(MptuneError, match=message):
        tune(kernel, settings(**changes))


@pytest.mark.parametrize("strategy", ["bayesian"])
def test_only_some_values_of_a_parameter_are_searched(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    replace_devices(monkeypatch, lambda c: MadeUp(1.0 + c["block"] * c["unroll"], 1e-7))
    restrict = {"x_type": ("float",), "unroll": ("2", "4")}
    run = tune(kernel, settings(budget=20, strategy=strategy, restrict=restrict))
    assert {t.configuration["x_type"] for t in run.trials} == {"fp32"}
    assert {t.configuration["unroll"] for t in run.trials} == {2, 4}
    assert run.best is not None
    # There is nothing in fp64 to compare with.
    assert run.baseline is None


@pytest.mark.usefixtures("steady")
def test_resume_under_another_threshold_judges_anew(kernel: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "poly.db"
    with pytest.warns(UserWarning, match="the widest types themselves do not meet the threshold"):
        strict = tune(kernel, settings(budget=4, max_error=1e-30), output=path)
    assert strict.best is None
    loose = tune(kernel, settings(budget=4, max_error=1.0), output=path, resume=True)
    assert loose.statuses == {"ok": 4}
    assert Run.load(path).statuses == {"ok": 4}


@pytest.mark.usefixtures("steady")
def test_fast_configurations_get_the_baseline_s_types(kernel: Kernel) -> None:
    told: list[Progress] = []
    tune(kernel, settings(budget=20, baseline_share=0.3, seed=2), on_progress=told.append)
    phases = [p.phase for p in told]
    assert phases[:3] == ["baseline"] * 3
    assert phases.count("baseline") >= 6
    fastest = min((p.trial for p in told[:17] if p.trial.status is Status.OK), key=lambda t: t.time_ms)
    own = {**fastest.configuration, "x_type": "fp64", "y_type": "fp64"}
    assert own in [dict(p.trial.configuration) for p in told]


@pytest.mark.usefixtures("steady")
def test_baseline_is_measured_in_every_narrower_type(kernel: Kernel) -> None:
    told: list[Progress] = []
    tune(kernel, settings(budget=10), on_progress=told.append)
    assert [p.phase for p in told[:3]] == ["baseline", "search", "search"]
    for progress, name in zip(told[1:3], ("fp32", "fp16"), strict=True):
        assert dict(progress.trial.configuration) == {**told[0].trial.configuration, "x_type": name, "y_type": name}


@pytest.mark.usefixtures("steady")
def test_untimed_trials_survive_a_resume_and_are_timed_when_wanted(kernel: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "poly.db"
    first = tune(kernel, settings(budget=9, penalty="hard"), output=path)
    untimed = {t.configuration for t in first.trials if math.isnan(t.time_ms)}
    assert untimed
    again = tune(kernel, settings(budget=9, penalty="hard"), output=path, resume=True)
    assert again.evaluations == 9
    assert untimed <= {t.configuration for t in again.trials if math.isnan(t.time_ms)}
    timed = tune(kernel, settings(budget=9, penalty="decay"), output=path, resume=True)
    assert not any(math.isnan(t.time_ms) for t in timed.trials)


@pytest.mark.full
def test_progress_tells_what_is_compiled_ahead(few: Kernel) -> None:
    told: list[Progress] = []
    tune(few, settings(budget=16, compilers=2), on_progress=told.append)
    ahead = [p.ahead for p in told]
    assert all(p.trial.configuration not in p.ahead for p in told)
    assert max(map(len, ahead)) == 2
    following = [p.trial.configuration for p in told]
    assert all(set(a) <= set(following[i:]) for i, a in enumerate(ahead, 1) if told[i - 1].phase == "search")
    told.clear()
    tune(few, settings(budget=4, compilers=0), on_progress=told.append)
    assert all(p.ahead == () for p in told)


def test_a_grid_that_fails_for_every_baseline_ends_the_run_at_once(few: Kernel) -> None:
    told: list[Progress] = []
    broken = dataclasses.replace(few, grid=lambda c: 1 // 0)
    with pytest.raises(MptuneError, match=r"its function grid= failed: .*division"):
        tune(broken, backend="host", budget=50, on_progress=told.append)
    assert not told
