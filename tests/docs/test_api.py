"""Every name the API pages list is there, and every public name is listed."""

from __future__ import annotations

import importlib
import re

from pages import DOCS

import mptune

LISTED = re.findall(r"^\| \[`(mptune[\w.]*)[^`]*`\]\(\.\./(\S+?)\)", (DOCS / "api.md").read_text(), re.MULTILINE)
DOCUMENTED = re.findall(r"auto(?:class|function):: (\S+)", (DOCS / "api-signatures.md").read_text())


def test_every_name_exists() -> None:
    for name in {*(name for name, _ in LISTED), *DOCUMENTED}:
        found: object = mptune
        path = "mptune"
        for part in name.split(".")[1:]:
            path = f"{path}.{part}"
            try:
                found = getattr(found, part)
            except AttributeError:
                found = importlib.import_module(path)


def test_sources_are_where_the_links_point() -> None:
    assert len(LISTED) > 50
    assert [file for _, file in LISTED if not (DOCS.parent / file).is_file()] == []


def test_every_public_name_is_listed() -> None:
    listed = {name.removeprefix("mptune.").partition(".")[0] for name, _ in LISTED}
    assert set(mptune.__all__) - {"__version__"} <= listed
