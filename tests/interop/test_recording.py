"""mptune's own recorded format: what is written is read, and a damaged file is refused in words."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from described import create, described_run
from drawn import NAMES, PARAMETERS, recorded, records
from hypothesis import given, settings
from hypothesis import strategies as st
from recordings import cache_document, t4_document, write

from mptune.errors import SpaceFileError
from mptune.interop import EXPORTERS, read_run, to_csv, to_json, to_parquet, write_run
from mptune.interop.recorded import Record, assemble
from mptune.interop.recording import recording_text
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.space.parameters import CategoricalParameter, OrdinalParameter, PrecisionParameter
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


# -- what is written in another tool's format reads back, whatever was recorded ----------------------

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


# -- telling formats apart by content ----------------------------------------------------------------

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


# -- a run as CSV, Parquet, JSON, a cache file and T4 ------------------------------------------------

TABLES_SETTINGS = {
    "kernel": "axpy",
    "device": "this one",
    "threshold": 1e-4,
    "parameters": [
        {"name": "block", "kind": "ordinal", "values": [32, 64]},
        {"name": "type", "kind": "precision", "values": ["fp64", "fp32"]},
    ],
    "signature": ["type"],
}


def run() -> Run:
    def configuration(block: int, kind: str) -> Configuration:
        return Configuration({"block": block, "type": kind})

    return described_run(
        TABLES_SETTINGS,
        [
            Trial(
                configuration(32, "fp64"),
                Status.OK,
                measurement=Measurement({"time_ms": 2.0, "error": 0.0, "odd": math.nan}, (2.0, 2.5), {"compile": 0.5}),
            ),
            Trial(
                configuration(64, "fp32"),
                Status.INACCURATE,
                'error 0.1 is above the threshold, "really"',
                Measurement({"time_ms": 1.0, "error": 0.1, "log10_error": -1.0}, (1.0,)),
                warnings=("x overflows",),
                key="k1",
            ),
            Trial(configuration(64, "fp64"), Status.COMPILE_ERROR, "line 1: error\nline 2"),
        ],
    )


def test_csv_has_a_line_per_trial_and_empty_fields_for_the_unknown() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(run()))))
    assert [(r["block"], r["type"], r["status"]) for r in rows] == [
        ("32", "fp64", "ok"),
        ("64", "fp32", "inaccurate"),
        ("64", "fp64", "compile_error"),
    ]
    assert [r["time_ms"] for r in rows] == ["2.0", "1.0", ""]
    assert rows[0]["odd"] == ""
    assert rows[1]["message"] == 'error 0.1 is above the threshold, "really"'
    assert rows[2]["message"] == "line 1: error\nline 2"


def test_csv_steers_no_terminal() -> None:
    fields = {"parameters": [{"name": "\x1b[1mway", "kind": "categorical", "values": ["a\x1b[31m", "b\u202e"]}]}
    trials = [
        Trial(Configuration({"\x1b[1mway": value}), Status.CRASH, "\x1b]0;owned\x07lost\tat\n\x9bline 2\r3")
        for value in ("a\x1b[31m", "b\u202e")
    ]
    text = to_csv(described_run({**TABLES_SETTINGS, **fields}, trials))
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0][0] == "<U+001B>[1mway"
    assert [row[0] for row in rows[1:]] == ["a<U+001B>[31m", "b<U+202E>"]
    assert "<U+001B>]0;owned<U+0007>lost\tat\n<U+009B>line 2\n3" in rows[1]
    assert not any(ord(char) < 32 and char not in "\n\t" for char in text)


def test_json_is_strict_and_holds_everything() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    document = json.loads(to_json(run()), parse_constant=refuse)
    assert document["summary"]["kernel"] == "axpy"
    assert document["settings"]["signature"] == ["type"]
    first, second, third = document["trials"]
    assert first["configuration"] == {"block": 32, "type": "fp64"}
    assert first["metrics"] == {"time_ms": 2.0, "error": 0.0, "odd": None}
    assert (first["times_ms"], first["durations_s"]) == ([2.0, 2.5], {"compile": 0.5})
    assert (second["status"], second["warnings"], second["key"]) == ("inaccurate", ["x overflows"], "k1")
    assert (third["status"], third["metrics"]) == ("compile_error", {})


def test_exported_t4_follows_the_published_schema() -> None:
    files = pytest.importorskip("kernel_tuner.file_utils", reason="Kernel Tuner is not installed")
    jsonschema = pytest.importorskip("jsonschema")
    _, schema = files.output_file_schema("results")
    jsonschema.validate(json.loads(EXPORTERS["t4"](run())), schema)


def test_parquet_is_the_table_with_its_types() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    frame = pd.read_parquet(io.BytesIO(to_parquet(run())))
    pd.testing.assert_frame_equal(frame, run().to_dataframe().reset_index(drop=True), check_dtype=False)
    assert frame["block"].dtype == "int64"
    assert frame["time_ms"].dtype == "float64"
    assert frame["feasible"].dtype == "bool"
    assert math.isnan(frame["time_ms"][2])


def test_no_cell_of_a_csv_is_a_formula() -> None:
    texts = ("=1+1", "+1", "-x", "@SUM(1)", "\t=1", "\r=1", " =1", "plain", "-")
    trials = [
        Trial(
            Configuration({"flags": text, "shift": -i}), Status.OK, text, Measurement({"time_ms": -1.5, "=metric": 1.0})
        )
        for i, text in enumerate(texts)
    ]
    header, *rows = csv.reader(io.StringIO(to_csv(described_run({"kernel": "k"}, trials))))
    assert "'=metric" in header
    for text, row in zip(texts, rows, strict=True):
        cells = dict(zip(header, row, strict=True))
        assert cells["flags"] == cells["message"] == (text if text == "plain" else f"'{text}".replace("\r", "\n"))
        assert float(cells["time_ms"]) == -1.5
    assert [int(dict(zip(header, row, strict=True))["shift"]) for row in rows] == [-i for i in range(len(texts))]
