"""The data manager: a kernel's inputs, references and typed copies, each made when first needed."""

from mptune.data.data import FIRST, Draw, Stream, least_sizes, rounded_inputs
from mptune.data.manager import DataManager

__all__ = ["FIRST", "DataManager", "Draw", "Stream", "least_sizes", "rounded_inputs"]
