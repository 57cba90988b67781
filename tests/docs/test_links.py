"""Links between files lead somewhere, and figures are those of the reports they link to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import DOCS, PAGES, ROOT

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
