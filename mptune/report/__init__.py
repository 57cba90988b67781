"""One self-contained HTML file about one or several runs, which opens offline and is explored in a browser."""

from mptune.report.document import SOURCES, Report
from mptune.report.writing import report_of, write_report

__all__ = ["SOURCES", "Report", "report_of", "write_report"]
