"""Pictures of a run for a paper: PNG, PDF or SVG, legible in greyscale, the same bytes for the same run."""

from mptune.plots.drawing import KINDS, plot
from mptune.plots.files import SUFFIXES, check_path, save
from mptune.plots.style import WIDTHS_IN

__all__ = ["KINDS", "SUFFIXES", "WIDTHS_IN", "check_path", "plot", "save"]
