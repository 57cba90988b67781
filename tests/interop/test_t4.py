"""T4 results files: units, validity, and the same recording in two formats."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from recordings import SPACES, entries, needs_spaces, t4_document, write

from mptune.errors import SpaceFileError
from mptune.interop import read_run
from mptune.results.trial import Status
from mptune.run import Run

ONE = {
    "configuration": {"a": 1},
    "times": {"runtimes": [2.0], "compilation": 5.0},
    "invalidity": "correct",
    "correctness": 1,
    "measurements": [{"name": "time", "value": 2.0, "unit": "ms"}],
    "objectives": ["time"],
}


def read(tmp_path: Path, document: Any) -> Run:
    return read_run(write(tmp_path / "axpy.t4.json.gz", json.dumps(document)))


def one(**changes: Any) -> dict[str, Any]:
    return {"results": [{**copy.deepcopy(ONE), **changes}], "schema_version": "1.0.0"}


@pytest.mark.parametrize(
    ("timeunit", "unit", "factor"),
    [
        ("miliseconds", "", 1.0),
        ("Seconds", "", 1e3),
        ("ns", "ns", 1e-6),
        (None, "s", 1e3),
    ],
)
def test_times_are_taken_with_their_unit(tmp_path: Path, timeunit: str | None, unit: str | None, factor: float) -> None:
    recorded = read(tmp_path, t4_document(timeunit, unit, factor))
    assert recorded.name == "axpy.t4"
    assert (recorded.info.objective.metric, recorded.space.size) == ("time_ms", 12)
    expected = [e for e in entries().values() if isinstance(e["time"], float) and e["time"] < 1e20]
    ran = [t for t in recorded.trials if t.status is Status.OK]
    assert len(ran) == len(expected) == 10
    for entry in expected:
        (trial,) = [
            t
            for t in ran
            if (t.configuration["block"], t.configuration["tile"]) == (entry["block"], entry["tile"])
            and t.configuration["type"] == {"double": "fp64", "half": "fp16"}[entry["type"]]
        ]
        assert trial.time_ms == pytest.approx(entry["time"], rel=1e-14)
        assert trial.measurement.times_ms == pytest.approx(entry["times"], rel=1e-14)
        assert trial.measurement.durations_s["compile"] == pytest.approx(0.25, rel=1e-14)
        assert trial.error == entry["error"]
    failed = [t for t in recorded.trials if not t.is_valid]
    assert [t.status for t in failed] == [Status.LAUNCH_ERROR] * 2
    assert recorded.info.signature == ("type",)


def test_a_measurements_own_unit_goes_before_the_files(tmp_path: Path) -> None:
    document = one(measurements=[{"name": "time", "value": 2.0, "unit": "s"}])
    document["metadata"] = {"timeunit": "microseconds"}
    (trial,) = read(tmp_path, document).trials
    assert trial.time_ms == 2000.0
    assert trial.measurement.times_ms == (0.002,)
    assert trial.measurement.durations_s["compile"] == pytest.approx(5e-6, rel=1e-14)


def test_an_unknown_unit_is_refused_and_the_nearest_named(tmp_path: Path) -> None:
    with pytest.raises(SpaceFileError, match="unknown unit of time 'secnds'; did you mean 'seconds'"):
        read(tmp_path, one(measurements=[{"name": "time", "value": 2.0, "unit": "secnds"}]))
    with pytest.raises(SpaceFileError, match="unknown unit of time 'fortnights'"):
        read(tmp_path, {**t4_document(), "metadata": {"timeunit": "fortnights"}})


@pytest.mark.parametrize(
    ("invalidity", "status"),
    [
        ("correct", Status.OK),
        ("compile", Status.COMPILE_ERROR),
        ("runtime", Status.LAUNCH_ERROR),
        ("timeout", Status.TIMEOUT),
        ("constraints", Status.CONSTRAINT),
        ("correctness", Status.ERROR),
    ],
)
def test_invalidity_gives_the_status(tmp_path: Path, invalidity: str, status: Status) -> None:
    (trial,) = read(tmp_path, one(invalidity=invalidity)).trials
    assert trial.status is status
    assert bool(trial.measurement.metrics) == (status is Status.OK)


def test_an_incorrect_result_is_never_valid(tmp_path: Path) -> None:
    (trial,) = read(tmp_path, one(correctness=0)).trials
    assert trial.status is Status.ERROR
    assert "incorrect" in trial.message


def test_another_objective_brings_its_unit(tmp_path: Path) -> None:
    document = one(measurements=[{"name": "energy", "value": 3.5, "unit": "J"}], objectives=["energy"])
    recorded = read(tmp_path, document)
    assert (recorded.info.objective.metric, recorded.info.unit_of("energy")) == ("energy", "J")
    assert recorded.trials[0].metric("energy") == 3.5


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"results": {}}, "'results' should be a list of objects"),
        ({"results": []}, "the file records no configuration"),
        ({"results": [ONE, {**ONE, "configuration": {"b": 1}}]}, "result 0 has no value for parameter 'b'"),
        (one(invalidity="sunny"), "result 0: unknown invalidity 'sunny'"),
        (one(configuration={"a": None}), "parameter 'a' has the value None"),
    ],
)
def test_documents_that_are_not_t4_say_why(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises(SpaceFileError, match=message):
        read(tmp_path, document)


@needs_spaces
@pytest.mark.full
def test_one_recording_in_two_formats_is_the_same() -> None:
    one_way = read_run(SPACES / "dedispersion-w6600.t4.json.gz")
    other_way = read_run(SPACES / "dedispersion-w6600.json.gz")
    assert one_way.space.size == other_way.space.size == 11_130
    other = {t.configuration: t for t in other_way.trials}
    for trial in one_way.trials:
        assert trial.time_ms == other[trial.configuration].time_ms
        assert trial.measurement.times_ms == other[trial.configuration].measurement.times_ms
