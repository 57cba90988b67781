"""Charts of a run in Vega-Altair, and a report in one HTML file; modules are loaded at first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mptune.show.charts import APPLICATION_KINDS, KINDS, WIDTHS, map_of, plot
    from mptune.show.report import SOURCES, report_document, write_report
    from mptune.show.saving import SUFFIXES, check_path, save

__all__ = [
    "APPLICATION_KINDS", "KINDS", "SOURCES", "SUFFIXES", "WIDTHS", "check_path", "map_of", "plot", "report_document",
    "save", "write_report",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    for module in ("charts", "report", "saving") if name in __all__ else ():
        found = importlib.import_module(f"mptune.show.{module}")
        if hasattr(found, name):
            return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
