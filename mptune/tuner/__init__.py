"""Tuning a kernel: ask, evaluate, tell, under a budget."""

from mptune.tuner.settings import OBJECTIVES, Progress, TuneSettings
from mptune.tuner.tuning import device_constraints, tune

__all__ = ["OBJECTIVES", "Progress", "TuneSettings", "device_constraints", "tune"]
