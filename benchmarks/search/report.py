"""Results of sections as Markdown and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import bench

__all__ = ["Report", "finite_or_none", "write"]


@dataclass(frozen=True, slots=True)
class Report:
    """What a section found.

    Attributes:
        title: heading.
        markdown: text and tables below the heading.
        data: the same as a JSON document, complete.
    """

    title: str
    markdown: str
    data: Mapping[str, Any]


def write(report: Report, section: str, folder: Path, command: str) -> list[Path]:
    """Write a section's document, and put ``search.md`` together from all sections that are there.

    Args:
        report: what was found.
        section: name of the section.
        folder: gets ``search.md`` and a folder ``search`` with the documents.
        command: what was typed.
    """
    from benchmarks.search.section import SECTIONS

    parts = folder / "search"
    parts.mkdir(parents=True, exist_ok=True)
    text = f"## {report.title}\n\n{report.markdown.strip()}\n"
    document = {"section": section, "about": bench.stamp(command), "markdown": text, "results": dict(report.data)}
    path = parts / f"{section}.json"
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
    stored = [json.loads(each.read_text()) for name in SECTIONS if (each := parts / f"{name}.json").exists()]
    lines = [f"{each['section']}: {bench.stamp_line(each['about'])}" for each in stored if "commit" in each["about"]]
    page = folder / "search.md"
    page.write_text(
        "\n\n".join(["# How well mptune searches", *lines, *(each["markdown"].strip() for each in stored)]) + "\n"
    )
    return [page, path]


def finite_or_none(value: float) -> float | None:
    """Return a number as JSON can hold it: None where it is not finite."""
    return float(value) if math.isfinite(value) else None
