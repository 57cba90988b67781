"""Links between files lead somewhere, and figures are those of the reports they link to."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from pages import DOCS, PAGES, ROOT

import mptune

RESULTS = ROOT / "benchmarks" / "results"
FILES = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "templates" / "prelude" / "README.md"]


def anchors(path: Path) -> set[str]:
    """Return the anchors GitHub and the built pages give to headings."""
    text = path.read_text(encoding="utf-8")
    included = re.search(r"^```{include} (\S+)$", text, re.MULTILINE)
    if included:
        text = (path.parent / included[1]).read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    wrong = []
    for path in FILES:
        # What stands in code is no link: a lambda, say.
        text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target, anchor in re.findall(r"(?<!!)\[[^\]]*\]\(([^)#:]*)(?:#([^)]*))?\)", text):
            linked = path.parent / target if target else path
            if not linked.exists() or (anchor and anchor not in anchors(linked)):
                wrong.append(f"{path.name}: {target}#{anchor}")
    assert wrong == []


@pytest.mark.parametrize("name", ["bilateral.cu", "bilateral_fp64.py", "bilateral.cu.j2", "bilateral.py"])
def test_the_tutorial_shows_its_files_as_they_are(name: str) -> None:
    """All but the comment or docstring at the top, which the text around says."""
    text = (DOCS / "tutorial" / name).read_text(encoding="utf-8")
    shown = re.sub(r'\A(""".*?"""\n+|(//.*\n)+)', "", text, flags=re.DOTALL if name.endswith(".py") else 0)
    assert shown != text
    assert shown.strip() in (DOCS / "tutorial.md").read_text(encoding="utf-8")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("report", "pattern", "sources"),
    [
        ("search.md", r"\| ([\d.]+%) from the optimum .*\| ([\d.]+%), the best of five", None),
        ("throughput.md", r"\| ([\d.]+) times as many", r"{}x the evaluations per second of Kernel Tuner"),
        ("faults.md", r"\[(\d+) faults\]", r"**{} faults;"),
    ],
)
def test_figures_of_the_readme_are_those_of_the_reports(report: str, pattern: str, sources: str | None) -> None:
    match = re.search(pattern, (ROOT / "README.md").read_text(encoding="utf-8"))
    assert match
    text = (RESULTS / report).read_text(encoding="utf-8")
    for figure in match.groups():
        assert (sources or "| {} |").format(figure) in text


# -- every name the API pages list is there, and every public name is listed -------------------------

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
