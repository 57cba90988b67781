"""What is written in another tool's format reads back, whatever was recorded."""

from __future__ import annotations

import json

import pytest
from drawn import PARAMETERS, recorded, records
from hypothesis import given, settings
from hypothesis import strategies as st

from mptune.errors import SpaceFileError
from mptune.interop import EXPORTERS, read_run, write_run
from mptune.interop.recorded import Record, assemble
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.parameters import CategoricalParameter, OrdinalParameter

#: What T4 can say of a status, beside the exact ones.
T4_STATUS = {
    **{status: Status.LAUNCH_ERROR for status in Status if not status.is_valid},
    **{status: status for status in (Status.COMPILE_ERROR, Status.TIMEOUT, Status.CONSTRAINT)},
    **dict.fromkeys((Status.NON_FINITE, Status.UNWRITTEN, Status.UNSTABLE), Status.ERROR),
}


def assert_same_numbers(after: Trial, before: Trial) -> None:
    added = set(after.measurement.metrics) - set(before.measurement.metrics)
    assert added <= {"log10_error"}
    for name, number in before.measurement.metrics.items():
        assert after.metric(name) == number
    assert after.measurement.times_ms == before.measurement.times_ms
    for phase, seconds in before.measurement.durations_s.items():
        assert after.measurement.durations_s[phase] == pytest.approx(seconds, rel=1e-14, abs=1e-320)


@settings(max_examples=15, deadline=None)
@given(made=records, zipped=st.booleans())
def test_a_cache_file_says_all_of_it(
    tmp_path_factory: pytest.TempPathFactory, made: list[Record], zipped: bool
) -> None:
    path = tmp_path_factory.mktemp("cache") / f"space.json{'.gz' * zipped}"
    before = recorded(made)
    write_run(before, path, "cache")
    for after in (read_run(path), read_run(path)):
        for name in ("kernel", "device", "objective", "signature"):
            assert getattr(after.info, name) == getattr(before.info, name)
        assert list(after.info.sizes.values()) == list(before.info.sizes.values())
        declared = {p.name: set(p.values) for p in after.space.parameters}
        assert declared == {p.name: set(p.values) for p in PARAMETERS}
        assert after.space.size == before.space.size == len(made)
        found = {t.configuration: t for t in after.trials}
        for configuration, trial in {t.configuration: t for t in before.trials}.items():
            assert found[configuration].status is trial.status
            if trial.message:
                assert found[configuration].message == trial.message
            assert_same_numbers(found[configuration], trial)


@settings(max_examples=20, deadline=None)
@given(made=records, zipped=st.booleans())
def test_t4_says_what_it_can(tmp_path_factory: pytest.TempPathFactory, made: list[Record], zipped: bool) -> None:
    path = tmp_path_factory.mktemp("t4") / f"space.json{'.gz' * zipped}"
    before = recorded(made)
    write_run(before, path, "t4")
    for after in (read_run(path), read_run(path)):
        assert after.info.objective == before.info.objective
        assert after.space.size == before.space.size == len(made)
        found = {t.configuration: t for t in after.trials}
        for configuration, trial in {t.configuration: t for t in before.trials}.items():
            assert found[configuration].status is T4_STATUS.get(trial.status, trial.status)
            assert_same_numbers(found[configuration], trial)


@settings(max_examples=15, deadline=None)
@given(made=records)
def test_no_format_lets_an_invalid_trial_win(made: list[Record]) -> None:
    """Another tool's best is the fastest entry that it takes for correct."""
    before = recorded(made)
    correct = sorted(t.time_ms for t in before.trials if t.status is Status.OK)
    entries = json.loads(EXPORTERS["cache"](before))["cache"].values()
    assert (
        sorted(e["time"] for e in entries if not any(isinstance(v, str) and v in WORDS for v in e.values())) == correct
    )
    results = [r for r in json.loads(EXPORTERS["t4"](before))["results"] if r["invalidity"] == "correct"]
    times = [m["value"] for r in results for m in r["measurements"] if m["name"] == "time"]
    assert sorted(times) == correct
    assert all(r["correctness"] == 1 for r in results)


WORDS = {"ErrorConfig", "InvalidConfig", "CompilationFailedConfig", "RuntimeFailedConfig"}


def test_two_configurations_with_one_key_are_refused() -> None:
    made = [Record(values, Status.OK, "", Measurement({"time_ms": 1.0})) for values in (("a,b", "c"), ("a", "b,c"))]
    parameters = [CategoricalParameter("x", ["a", "a,b"]), CategoricalParameter("y", ["c", "b,c"])]
    with pytest.raises(SpaceFileError, match="two configurations have the key 'a,b,c'"):
        EXPORTERS["cache"](assemble("space", ["x", "y"], {}, made, parameters=parameters))


@pytest.mark.parametrize("name", ["time", "compile_time", "mptune_status"])
def test_a_parameter_named_like_a_measurement_is_refused(name: str) -> None:
    made = [Record((1,), Status.OK, "", Measurement({"time_ms": 1.0, "error": 0.0}))]
    with pytest.raises(SpaceFileError, match=f"parameter '{name}' has the name of a measurement"):
        EXPORTERS["cache"](assemble("space", [name], {}, made, parameters=[OrdinalParameter(name, [1])]))
