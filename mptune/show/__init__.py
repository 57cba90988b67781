"""Charts of a run in Vega-Altair, for papers and notebooks, and a report in one HTML file."""

from mptune.show.charts import APPLICATION_KINDS, KINDS, WIDTHS, map_of, plot
from mptune.show.report import SOURCES, report_document, write_report
from mptune.show.saving import SUFFIXES, check_path, save

__all__ = [
    "APPLICATION_KINDS", "KINDS", "SOURCES", "SUFFIXES", "WIDTHS", "check_path", "map_of", "plot", "report_document",
    "save", "write_report",
]  # fmt: skip
