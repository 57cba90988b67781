"""Results as Markdown and JSON."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

__all__ = ["Report", "finite_or_none", "machine", "markdown_table", "percent", "write"]

_DISTRIBUTIONS: Final = (
    "mptune",
    "numpy",
    "scipy",
    "scikit-learn",
    "kernel-tuner",
    "pyatf",
    "optuna",
    "scikit-optimize",
    "pymoo",
    "autotuning-methodology",
)


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


def write(report: Report, section: str, folder: Path, command: str, wall_s: float) -> list[Path]:
    """Write a section's files into a folder and put ``search.md`` together from all sections that are there.

    Args:
        report: what was found.
        section: name of the section.
        folder: gets ``search.md`` and a folder ``search`` with the rest.
        command: what was typed.
        wall_s: time the section took, without what an earlier run had done.

    Returns:
        The files written.
    """
    parts = folder / "search"
    parts.mkdir(parents=True, exist_ok=True)
    about = {"command": command, "date": f"{datetime.now(UTC):%Y-%m-%d}", "wall_s": round(wall_s, 1)} | machine()
    text = f"## {report.title}\n\n{report.markdown.strip()}\n"
    document = {"section": section, "about": about, "markdown": text, "results": dict(report.data)}
    path = parts / f"{section}.json"
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
    return [_write_all(folder), path]


def _write_all(folder: Path) -> Path:
    from benchmarks.search.section import SECTIONS

    documents = [
        json.loads(path.read_text()) for name in SECTIONS if (path := folder / "search" / f"{name}.json").exists()
    ]
    lines = ["# How well mptune searches", ""]
    for document in documents:
        about = document["about"]
        lines += [
            f"{document['section']}: `{about['command']}`, {about['date']}, {about['cpu']} ({about['cores']} cores), "
            f"Python {about['python']}, " + ", ".join(f"{k} {v}" for k, v in about["versions"].items()) + ".",
            "",
        ]
    path = folder / "search.md"
    path.write_text("\n".join(lines) + "\n" + "\n".join(document["markdown"] for document in documents))
    return path


def machine() -> dict[str, Any]:
    """Return what the numbers were taken on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        cpu = names[0] if names else cpu
    versions = {}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {"cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version(), "versions": versions}


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table, every column but the first aligned to the right."""
    rule = ["---", *("---:" for _ in columns[1:])]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (columns, rule, *rows))


def finite_or_none(value: float) -> float | None:
    """Return a number as JSON can hold it: None where it is not finite."""
    return float(value) if math.isfinite(value) else None


def percent(share: float | None, digits: int = 2) -> str:
    """Return a share as a percentage, a dash where there is none."""
    return "-" if share is None or not math.isfinite(share) else f"{100 * share:.{digits}f}%"
