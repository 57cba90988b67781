"""Comparing strategies on recorded search spaces: who comes nearer to the optimum, and after how many evaluations."""

from mptune.tuning.comparison.figures import SMALLEST_DISTANCE, WITHIN, Comparison
from mptune.tuning.comparison.running import compare

__all__ = ["SMALLEST_DISTANCE", "WITHIN", "Comparison", "compare"]
