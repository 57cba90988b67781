"""One self-contained HTML file about one or several runs, which opens offline and is explored in a browser."""

from mptune.report.document import SOURCES, Report, RunDocument, Sources
from mptune.report.writing import page, report_of, write_report

__all__ = ["SOURCES", "Report", "RunDocument", "Sources", "page", "report_of", "write_report"]
