"""What came out of the items: a JSON document of each, and one page of all of them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from benchmarks.bench import stamp, stamp_line
from benchmarks.reproductions.item import Cell, Item, Outcome, Table
from benchmarks.reproductions.spread import MEANING
from mptune.paths import write_whole

__all__ = ["ABSENT", "keep", "markdown_of", "write_page"]

_FOLDER: Final = "papers"
_INTRODUCTION: Final = f"""\
# The papers' experiments, done again

An item is a table or figure of a paper: h of Heldens & van Werkhoven 2026, w of Willemsen et al. 2021, l of Lin et al.
2025, b of Hellsten et al. 2023 (BaCO). Columns called "paper" are figures of its text, or computed from them or from
its raw runs where an item says so; all others were measured here by the item's command, on the date below it. Some
words of an item are younger, its figures are not.

{MEANING}
"""
#: What of the papers' experiments has no item, and why not.
ABSENT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Heldens 2026, Table III": "settings of the strategies: docs/strategies.md says which differ",
        "Heldens 2026, Fig. 12": "energy: mptune tune --objective energy, where a sensor tells it",
        "Heldens 2026, Fig. 14": "maps of the clusters of two versions: h-f13 has how far they agree",
        "Willemsen 2021, Fig. 5": "other Bayesian frameworks: benchmarks/search_quality.py has more of them, on more "
        "recordings",
        "Willemsen 2021, Figs. 6 and 7": "two kernels on an A100: no recording of them is published beside the others",
        "Lin 2025, Fig. 1 and Tables III and IV": "a sketch of gemm, and parameters and devices: kernels/gemm.py has "
        "the former's",
        "Lin 2025, Figs. 9 to 11": "gemm on a Jingjia Micro 9230, an RX550 and an A100: they need these devices; "
        "benchmarks/gpu.py --sections gemm measures it beside the vendor's on the one that is there, and no GPU has "
        "been there so far",
        "Lin 2025, Fig. 13": "four single searches of each tuner: l-f14 has what many of each reach",
        "Hellsten 2023, Table 5": "how many runs reach an expert's configuration: recorded spaces have none",
        "Hellsten 2023, Figs. 6, 7 and 11": "curves of the best so far: b-t6 has three points of each",
    }
)
_QUICK: Final = (
    "**Of `--quick`: so few runs, evaluations and launches, at such small sizes, that figures here show that the item "
    "works, and nothing else.**"
)


def keep(name: str, item: Item, outcome: Outcome, folder: Path, command: str, wall_s: float) -> dict[str, Any]:
    """Write an item's document into ``papers`` of a folder and return it."""
    parts = folder / _FOLDER
    parts.mkdir(parents=True, exist_ok=True)
    document = {
        "item": name,
        "where": item.where,
        "what": item.what,
        "about": {**stamp(command), "wall_s": round(wall_s, 1)},
        "summary": outcome.summary,
        "tables": [_finite(asdict(table)) for table in outcome.tables],
        "differs": list(outcome.differs),
        "data": _finite(dict(outcome.data)),
    }
    write_whole(parts / f"{name}.json", f"{json.dumps(document, indent=1, allow_nan=False)}\n".encode())
    return document


def write_page(names: Iterable[str], folder: Path) -> Path:
    """Put ``papers.md`` together from the items that are kept, in this order."""
    files = {name: folder / _FOLDER / f"{name}.json" for name in names}
    kept = [json.loads(file.read_text()) for file in files.values() if file.exists()]
    parts = [*([_contents(kept)] if kept else []), *map(markdown_of, kept), _absent()]
    if absent := [name for name, file in files.items() if not file.exists()]:
        parts.insert(0, f"Without results so far: {', '.join(absent)}.\n")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "papers.md"
    write_whole(path, "\n".join([_INTRODUCTION, *parts]).encode())
    return path


def _contents(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of the items, each with what came out and on what."""
    lines = ["| item | of | what came out | on |", "| --- | --- | --- | --- |"]
    for document in documents:
        anchor = re.sub(r"[^\w -]", "", _heading(document).lower()).replace(" ", "-")
        said, cpu = (
            document["summary"].replace("|", "\\|"),
            document["about"].get("processor", document["about"].get("cpu")),
        )
        if "--quick" in document["about"]["command"].split():
            said = f"(of `--quick`) {said}"
        lines.append(f"| [{document['item']}](#{anchor}) | {document['where']} | {said} | {cpu} |")
    return "\n".join(lines) + "\n"


def _absent() -> str:
    lines = "\n".join(f"- {where}: {why}." for where, why in ABSENT.items())
    return f"## Without an item\n\n{lines}\n"


def _heading(document: Mapping[str, Any]) -> str:
    return f"{document['item']}: {document['what']} ({document['where']})"


def markdown_of(document: Mapping[str, Any]) -> str:
    """Return an item's part of the page."""
    about = document["about"]
    parts = [
        f"## {_heading(document)}",
        *([_QUICK] if "--quick" in about["command"].split() else []),
        document["summary"],
        *(_table(Table(**table)) for table in document["tables"]),
    ]
    if document["differs"]:
        parts.append("What differs, and why:\n\n" + "\n".join(f"- {reason}" for reason in document["differs"]))
    parts.append(stamp_line(about))
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    rows = [list(map(_shown, row)) for row in table.rows]
    # Numbers are aligned to the right, in a column that has nothing else.
    rule = [
        "---:" if all(not row[i].strip("-+0123456789.,%×e ") for row in rows) else "---"
        for i in range(len(table.columns))
    ]
    lines = ("| " + " | ".join(line) + " |" for line in ([*table.columns], rule, *rows))
    return f"{table.title}:\n\n" + "\n".join(lines)


def _shown(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool) or (isinstance(cell, float) and not math.isfinite(cell)) or "\n" in str(cell):
        raise ValueError(f"{cell!r} is no cell of a table")
    return f"{cell:.4g}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else cell


def _finite(value: Any) -> Any:
    """Return what JSON can hold: None for numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, list | tuple) else value
