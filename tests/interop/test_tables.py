"""A run as CSV, Parquet, JSON, a cache file and T4."""

from __future__ import annotations

import csv
import io
import json
import math

import pandas as pd
import pytest
from described import described_run

from mptune.interop import EXPORTERS, to_csv, to_json, to_parquet
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration

SETTINGS = {
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
        SETTINGS,
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
    text = to_csv(described_run({**SETTINGS, **fields}, trials))
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
