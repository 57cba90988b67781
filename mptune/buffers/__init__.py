"""The data manager: a kernel's inputs and references, and typed copies of them made when first needed."""

from mptune.buffers.manager import DataManager
from mptune.memory import available_memory_bytes

__all__ = ["DataManager", "available_memory_bytes"]
