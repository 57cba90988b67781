"""Wisdom: the configurations for each device, size and error limit, gathered from runs with their evidence."""

from mptune.wisdom.choosing import Candidate, Choice, Chooser, Decision, budget_of
from mptune.wisdom.gathering import gather, read_sources
from mptune.wisdom.records import AtSize, Errors, KernelWisdom, Timed, Wisdom, is_wisdom
from mptune.wisdom.using import BySize, kernel_of, on_device, remarks_on, sizes_of_arrays

__all__ = [
    "AtSize", "BySize", "Candidate", "Choice", "Chooser", "Decision", "Errors", "KernelWisdom", "Timed", "Wisdom",
    "budget_of", "gather", "is_wisdom", "kernel_of", "on_device", "read_sources", "remarks_on", "sizes_of_arrays",
]  # fmt: skip
