"""The data manager: a kernel's inputs and references, and typed copies of them made when first needed."""

from mptune.buffers.data import rounded_inputs
from mptune.buffers.draws import FIRST, Draw, Stream
from mptune.buffers.manager import DataManager

__all__ = ["FIRST", "DataManager", "Draw", "Stream", "rounded_inputs"]
