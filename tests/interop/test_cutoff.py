"""Reading JSON objects whose end is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mptune.errors import SpaceFileError
from mptune.interop.cache import read_cut_off

PATH = Path("space.json")

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
objects = st.dictionaries(st.text(max_size=4), values, max_size=3)
documents = st.fixed_dictionaries(
    {"before": values, "cache": st.dictionaries(st.text(max_size=5), objects, max_size=5)}
)


@pytest.mark.full
@given(documents, st.sampled_from([None, 0, 2]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_whole_document_is_what_json_says(document: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    assert read_cut_off(PATH, text, "cache") == json.loads(text)


@given(documents, st.data())
@settings(max_examples=20, deadline=None)
def test_a_part_of_a_document_gives_its_first_entries(document: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(document)
    found = read_cut_off(PATH, text[: data.draw(st.integers(1, len(text)))], "cache")
    kept = list(found.get("cache", {}).items())
    assert kept == list(document["cache"].items())[: len(kept)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "line 1, column 1: expected '{'"),
        ('{"a" 1}', "expected ':'"),
        ('{"a": 1 "b": 2}', "expected ','"),
        ('{"a": 1}\n x', "line 2, column 2: text after the end"),
        ("{1: 2}", "expected a name in double quotes"),
        ('{"a": ?}', "Expecting value"),
        ('{"a": "line\nbreak"}', "Invalid control character"),
        ('{"cache": {"e": ' + "[" * 100_000, "recursion|nested"),
        ('{"cache": {"e": ' + "9" * 5000, "integer of thousands of digits"),
    ],
)
def test_damage_elsewhere_says_where(text: str, message: str) -> None:
    with pytest.raises(SpaceFileError, match=message) as caught:
        read_cut_off(PATH, text, "cache")
    assert str(caught.value).startswith("space.json: ")


@pytest.mark.parametrize(
    "tail", ["t", "tru", "-", "1.", "1e", "1e+", '"\\', '"\\u12', '"abc', "Na", "-Infin", "[1, ", '{"x"']
)
def test_a_token_cut_in_two_is_an_end(tail: str) -> None:
    found = read_cut_off(PATH, '{"cache": {"a": {"x": 1}, "b": {"x": ' + tail, "cache")
    assert found == {"cache": {"a": {"x": 1}}}
