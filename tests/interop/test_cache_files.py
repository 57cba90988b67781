"""Kernel Tuner cache files: every way they are written, cut off and broken."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import cache_document, cache_lines, entries, write

from mptune.errors import SpaceFileError
from mptune.interop import read_run
from mptune.results.trial import Status
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.space.parameters import (
    BooleanParameter,
    CategoricalParameter,
    OrdinalParameter,
    PermutationParameter,
    PolicyParameter,
    PrecisionParameter,
)

CANONICAL = {"double": "fp64", "half": "fp16"}


def read(tmp_path: Path, document: Any, name: str = "axpy.json") -> Run:
    return read_run(write(tmp_path / name, json.dumps(document)))


def keys_of(recorded: Run) -> set[str]:
    spelling = {canonical: text for text, canonical in CANONICAL.items()}
    return {
        ",".join(str(spelling.get(v, v)) for v in t.configuration.values())  # type: ignore[call-overload]
        for t in recorded.trials
    }


@pytest.mark.parametrize("name", ["axpy.json", "axpy.json.gz", "no-suffix"])
def test_every_number_of_every_entry_is_kept(tmp_path: Path, name: str) -> None:
    recorded = read(tmp_path, cache_document(), name)
    assert recorded.name == name.split(".")[0]
    assert (recorded.kernel, recorded.info.device, recorded.info.sizes) == ("axpy", "A GPU", {"x": 1024, "y": 2})
    assert (recorded.info.objective.metric, recorded.warnings) == ("time_ms", ())
    assert recorded.space.size == len(recorded.trials) == 12
    for entry in entries().values():
        configuration = {"block": entry["block"], "tile": entry["tile"], "type": CANONICAL[entry["type"]]}
        index = recorded.space.index(Configuration(configuration))
        assert index is not None
        trial = recorded.indexed[index]
        assert dict(trial.configuration) == configuration
        assert trial.measurement.durations_s == {"compile": 0.25, "accuracy": 0.0, "timing": 0.0125}
        if entry["time"] == "RuntimeFailedConfig":
            assert trial.status is Status.LAUNCH_ERROR
            assert "RuntimeFailedConfig" in trial.message
        elif entry["time"] == 1e20:
            assert trial.status is Status.ERROR
        else:
            assert trial.status is Status.OK
            assert trial.time_ms == entry["time"]
            assert trial.measurement.times_ms == tuple(entry["times"])
            assert trial.error == entry["error"]
            assert trial.metric("log10_error") == pytest.approx(math.log10(entry["error"]), rel=1e-15)
            assert trial.metric("GFLOP/s") == entry["GFLOP/s"]
    assert recorded.metric_names == ("time_ms", "GFLOP/s", "error", "log10_error")


@pytest.mark.parametrize(
    ("entry", "status"),
    [
        *(({"time": "CompilationFailedConfig"}, Status.COMPILE_ERROR), ({"time": "InvalidConfig"}, Status.CONSTRAINT)),
        *(({"time": "RuntimeFailedConfig"}, Status.LAUNCH_ERROR), ({"time": "ErrorConfig"}, Status.ERROR)),
        ({"__error__": "CompilationFailedConfig"}, Status.COMPILE_ERROR),
        *(({"time": text}, Status.ERROR) for text in ("something else", None, True, [1.0])),
        *(({"time": number}, Status.ERROR) for number in (1e20, 10**400, math.inf, math.nan, 0.0, -1.0)),
        ({"error": 0.5}, Status.ERROR),
        *(({"time": 1.0, "error": error}, Status.NON_FINITE) for error in (math.nan, math.inf)),
        *(({"time": number}, Status.OK) for number in (9.9e19, 3)),
    ],
)
def test_what_counts_as_a_failure(tmp_path: Path, entry: dict[str, Any], status: Status) -> None:
    document = cache_document(tune_params=None, tune_params_keys=["a"], cache={"1": {"a": 1, **entry}})
    (trial,) = read(tmp_path, document).trials
    assert trial.status is status
    assert bool(trial.message) == (status is not Status.OK)


# -- parameters --------------------------------------------------------------------------------------


def test_values_keep_their_types_and_choose_the_parameter(tmp_path: Path) -> None:
    rows = [
        {"i": 64, "f": 0.5, "s": "row", "b": True, "p": "float", "m": "accurate", "o": [1, 0], "x": 1, "t": True},
        {"i": 32, "f": 2.0, "s": "col", "b": False, "p": "bf16", "m": "fast", "o": [0, 1], "x": "auto", "t": True},
    ]
    names = list(rows[0])
    document = cache_document(
        tune_params=None,
        tune_params_keys=names,
        cache={str(i): {**row, "time": 1.0 + i} for i, row in enumerate(rows)},
    )
    recorded = read(tmp_path, document)
    kinds = [type(p) for p in recorded.space.parameters]
    assert kinds == [
        OrdinalParameter,
        OrdinalParameter,
        CategoricalParameter,
        BooleanParameter,
        PrecisionParameter,
        PolicyParameter,
        PermutationParameter,
        CategoricalParameter,
        CategoricalParameter,
    ]
    by_time = {t.time_ms: dict(t.configuration) for t in recorded.trials}
    assert by_time[1.0] == {**rows[0], "p": "fp32", "o": (1, 0)}
    assert by_time[2.0] == {**rows[1], "o": (0, 1)}
    for time, row in zip((1.0, 2.0), rows, strict=True):
        for name in ("i", "f", "s", "b", "x", "t"):
            assert type(by_time[time][name]) is type(row[name])
    assert recorded.space.parameters[0].values == (32, 64)


# -- files that were cut off -------------------------------------------------------------------------


def test_a_file_cut_off_anywhere_keeps_every_complete_entry(tmp_path: Path) -> None:
    made = dict(list(entries().items())[2:4])
    opened, lines = cache_lines(made)
    text = opened + ",".join(lines) + "}\n}"
    ends = np.cumsum([len(opened)] + [len(line) + 1 for line in lines])[1:] - 1
    path = tmp_path / "axpy.json"
    for length in range(1, len(text) + 1):
        write(path, text[:length])
        complete = int(np.sum(ends <= length))
        if complete == 0:
            with pytest.raises(SpaceFileError):
                read_run(path)
            continue
        recorded = read_run(path)
        assert keys_of(recorded) == set(list(made)[:complete])
        assert bool(recorded.warnings) == (length < len(text))


def test_damage_elsewhere_than_at_the_end_is_an_error(tmp_path: Path) -> None:
    opened, lines = cache_lines(entries())
    broken = [lines[0], lines[1].replace('"time": ', '"time": oops ', 1), *lines[2:]]
    line = opened.count("\n") + 3
    for ending in ("}\n}", ","):
        with pytest.raises(SpaceFileError, match=rf"not valid JSON at line {line}, column \d+: Expecting value"):
            read_run(write(tmp_path / "axpy.json", opened + ",".join(broken) + ending))


# -- files that are something else -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (b"\x93NUMPY\x01\x00v\x00{'descr'", "not a text file"),
        (gzip.compress(b"{" * 1000, mtime=0)[:-9], "the gzip data ends too early"),
        (b"\x1f\x8b\x08\x00garbage that is no gzip stream", "the gzip data is damaged"),
        (b'{"a": ' * 100_000, "nested too deeply|recursion"),
        (b'{"a": ' + b"9" * 5000 + b"}", "a number of it has thousands of digits"),
    ],
)
def test_foreign_and_damaged_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "axpy.json"
    path.write_bytes(content)
    with pytest.raises(SpaceFileError, match=message) as caught:
        read_run(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cache": {}}, "the file records no configuration"),
        ({"cache": [1]}, "'cache' should be objects by name"),
        ({"cache": {"1": {"block": 1}}}, "entry '1' has no value for parameter 'tile'"),
        ({"tune_params_keys": None, "tune_params": None}, "no names of parameters"),
        ({"tune_params_keys": []}, "no names of parameters"),
        ({"tune_params": {"block": [None]}}, "parameter .block. has the value None"),
        ({"tune_params_keys": ["a b"], "cache": {"1": {"a b": 1, "time": 1.0}}}, "'a b' is not an identifier"),
    ],
)
def test_documents_that_are_not_cache_files_say_why(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpaceFileError, match=message):
        read(tmp_path, cache_document(**changes))


# -- the real thing ----------------------------------------------------------------------------------
