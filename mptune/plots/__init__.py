"""Pictures of a run for a paper: PNG, PDF or SVG, legible in greyscale, the same bytes for the same run."""

from mptune.plots.drawing import APPLICATION_KINDS, KINDS, SUFFIXES, check_path, plot, save
from mptune.plots.style import WIDTHS_IN

__all__ = ["APPLICATION_KINDS", "KINDS", "SUFFIXES", "WIDTHS_IN", "check_path", "plot", "save"]
