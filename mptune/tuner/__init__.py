"""Tuning a kernel: ask, evaluate, tell, under a budget."""

from mptune.kernel.limits import device_constraints
from mptune.tuner.settings import Progress, TuneSettings
from mptune.tuner.sizes import tune_sizes
from mptune.tuner.tuning import tune

__all__ = ["Progress", "TuneSettings", "device_constraints", "tune", "tune_sizes"]
