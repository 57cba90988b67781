"""Telling formats apart by content."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from described import create
from recordings import cache_document, t4_document, write

from mptune.errors import SpaceFileError
from mptune.interop import read_run
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import CategoricalParameter, OrdinalParameter, PrecisionParameter

SETTINGS = {
    "kernel": "axpy",
    "device": "this one",
    "objective": "time_ms",
    "sizes": {"n": 1024},
    "parameters": [
        {"name": "block", "kind": "ordinal", "values": [32, 64, 128]},
        {"name": "layout", "kind": "categorical", "values": [0, 1]},
        {"name": "order", "kind": "permutation", "values": [[0, 1], [1, 0]]},
        {"name": "type", "kind": "precision", "values": ["fp64", "fp32"]},
    ],
    "signature": ["type", "layout"],
}


def trials() -> list[Trial]:
    made = []
    for number, (block, layout, order, kind) in enumerate(
        [(32, 0, (0, 1), "fp64"), (64, 1, (1, 0), "fp32"), (128, 0, (0, 1), "fp32")]
    ):
        configuration = Configuration({"block": block, "layout": layout, "order": order, "type": kind})
        if number == 2:
            made.append(Trial(configuration, Status.TIMEOUT, "took too long"))
        else:
            metrics = {"time_ms": 1.5 + number, "error": 10.0**-number}
            made.append(Trial(configuration, Status.OK, measurement=Measurement(metrics, (1.5, 2.5))))
    return made


@pytest.mark.parametrize("suffix", ["", ".json", ".json.gz", ".db"])
def test_the_content_decides_and_not_the_name(tmp_path: Path, suffix: str) -> None:
    cache = read_run(write(tmp_path / f"a{suffix}", json.dumps(cache_document())))
    t4 = read_run(write(tmp_path / f"b{suffix}", json.dumps(t4_document())))
    assert (cache.name, t4.name) == ("a", "b")
    assert cache.space.size == t4.space.size == 12
    assert cache.kernel == "axpy"
    assert (t4.kernel, t4.info.kernel) == ("b", "")


def test_a_run_file_is_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with create(path, SETTINGS) as file:
        for trial in trials():
            file.add(trial)
    recorded = read_run(path)
    assert (recorded.name, recorded.kernel, recorded.info.device) == ("run", "axpy", "this one")
    assert recorded.info.signature == ("type", "layout")
    kinds = {p.name: type(p) for p in recorded.space.parameters}
    assert kinds["layout"] is CategoricalParameter
    assert kinds["block"] is OrdinalParameter
    assert kinds["type"] is PrecisionParameter
    assert recorded.space.size == 3
    for trial in trials():
        other = {t.configuration: t for t in recorded.trials}[trial.configuration]
        assert (other.status, other.message, other.measurement) == (trial.status, trial.message, trial.measurement)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"block,time\n32,1\n",
            "none of these: a Kernel Tuner cache file, a recorded space, T4 results",
        ),
        (b"{}", "none of these: a Kernel Tuner cache file, a recorded space, T4 results"),
        (b'{"ConfigurationSpace": {"TuningParameters": []}}', "a T1 file describes a search space without"),
    ],
)
def test_foreign_and_damaged_files_say_what_is_wrong(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "space.json"
    path.write_bytes(content)
    with pytest.raises(SpaceFileError, match=message):
        read_run(path)


def test_a_recorded_space_is_a_run_with_a_baseline(tmp_path: Path) -> None:
    recorded = read_run(write(tmp_path / "space.json", json.dumps(cache_document())))
    run = recorded
    assert run.trials == tuple(recorded.trials)
    assert run.kernel == "axpy"
    assert run.info.device == "A GPU"
    assert run.objective.threshold is None
    assert run.baseline is not None
    assert run.baseline.configuration["type"] == "fp64"
    doubles = [t.time_ms for t in run.trials if t.is_valid and t.configuration["type"] == "fp64"]
    assert run.baseline.time_ms == min(doubles)
    assert [p.values for p in run.parameters] == [p.values for p in recorded.space.parameters]
