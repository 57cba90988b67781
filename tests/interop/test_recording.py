"""mptune's own recorded format: what is written is read, and a damaged file is refused in words."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from drawn import NAMES, recorded, records
from hypothesis import given, settings
from hypothesis import strategies as st
from recordings import write

from mptune.errors import SpaceFileError
from mptune.interop import read_run, write_run
from mptune.interop.recorded import Record
from mptune.interop.recording import recording_text
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status
from mptune.source.loading import load_kernel
from tests.tiers import few


@settings(max_examples=15, deadline=None)
@given(made=records, zipped=st.booleans())
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, made: list[Record], zipped: bool) -> None:
    path = tmp_path_factory.mktemp("recording") / f"space.json{'.gz' * zipped}"
    before = recorded(made)
    write_run(before, path, "space")
    for after in (read_run(path), read_run(path)):
        assert after.name == before.name
        for name in ("kernel", "device", "objective", "signature", "units"):
            assert getattr(after.info, name) == getattr(before.info, name)
        assert list(after.info.sizes.values()) == list(before.info.sizes.values())
        assert after.space.names == before.space.names
        assert after.space.size == before.space.size == len(made)
        assert [p.kind for p in after.space.parameters] == [p.kind for p in before.space.parameters]
        by_configuration = {t.configuration: t for t in after.trials}
        for configuration, trial in {t.configuration: t for t in before.trials}.items():
            read = by_configuration[configuration]
            assert (read.status, read.message) == (trial.status, trial.message)
            assert (
                set(trial.measurement.metrics)
                <= set(read.measurement.metrics)
                <= {*trial.measurement.metrics, "log10_error"}
            )
            for name, number in trial.measurement.metrics.items():
                assert read.metric(name) == pytest.approx(number, rel=1e-5)
            if trial.error > 0:
                assert read.metric("log10_error") == math.log10(read.error)


@pytest.mark.parametrize("name", ["space", "cache", "t4"])
def test_more_of_the_objective_may_be_better(tmp_path: Path, name: str) -> None:
    made = recorded([Record((32, False, 7, (1, 0), "fast", "fp16"), Status.OK, "", Measurement({"time_ms": 1 / 3}))])
    most = made.derive(objective=Objective("gflops", minimise=False), trials=made.trials)
    write_run(most, tmp_path / "a.json", name)
    assert read_run(tmp_path / "a.json").info.objective == most.info.objective


def column(codes: list[Any]) -> dict[str, list[Any]]:
    return dict.fromkeys(NAMES, codes)


def document(**changes: Any) -> str:
    made = recorded([Record((32, False, 7, (1, 0), "fast", "fp16"), Status.OK, "", Measurement({"time_ms": 1.5}))])
    return json.dumps({**json.loads(recording_text(made)), **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "none of these: a Kernel Tuner cache file, a recorded space"),
        ({"version": 2}, "version 2 of the format; expected 1"),
        ({"parameters": None}, "'parameters' should be a list of objects with name, kind, values"),
        (
            {"parameters": [{"name": "block", "kind": "precision", "values": ["fp65"]}]},
            "unknown precision 'fp65'; did you mean 'fp64'",
        ),
        ({"codes": {}}, "column 'statuses' has 1 entries; expected 0"),
        ({"codes": column([9])}, r"column 'block' has the entry 9; expected 0 to 2"),
        ({"codes": column([True])}, "'codes' should be lists of whole numbers"),
        ({"metrics": {"time_ms": [1.0, 2.0]}}, r"column 'time_ms' has 2 entries; expected 1"),
        ({"metrics": {"time_ms": [True]}}, "'metrics' should be lists of numbers"),
        ({"metrics": {"time_ms": [10**400]}}, "'metrics' should be lists of numbers"),
        ({"statuses": {"values": ["fine"], "codes": [0]}}, "fine"),
    ],
)
def test_a_damaged_recording_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "space.json", document(**changes))
    with pytest.raises(SpaceFileError, match=message) as caught:
        read_run(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("metric", "number", "expected"),
    [("time_ms", 0.0, "more than 0"), ("error", -1e-9, "0 or more")],
)
def test_numbers_that_nothing_can_have_are_refused(tmp_path: Path, metric: str, number: float, expected: str) -> None:
    path = write(tmp_path / "space.json", document(metrics={"time_ms": [1.0], metric: [number]}))
    with pytest.raises(SpaceFileError, match=f"space: {metric} of block=.* is {number:g}; expected {expected}"):
        read_run(path)


RECORDINGS = sorted(
    (Path(__file__).parents[2] / "benchmarks" / "data").glob("*.json.gz"), key=lambda path: path.stat().st_size
)


@pytest.mark.parametrize("path", few(RECORDINGS), ids=lambda path: path.name)
def test_the_projects_own_recordings_are_complete(path: Path) -> None:
    rows = re.findall(r"^\| ([\w-]+) \| ([\d,]+) \|", (path.parent / "README.md").read_text(), re.MULTILINE)
    told = {name: int(count.replace(",", "")) for name, count in rows}
    read = read_run(path)
    kernel = load_kernel(read.kernel)
    assert read.info.signature == kernel.signature_names
    assert read.space.names == tuple(parameter.name for parameter in kernel.parameters)
    assert len(read.trials) == read.space.size == told[path.name.removesuffix(".json.gz")]
    whole = kernel.search_space(read.info.sizes)
    for trial in read.trials:
        assert trial.configuration in whole
        assert trial.time_ms > 0
        assert trial.error >= 0
        assert trial.metric("memory_bytes") > 0
