"""Tuning a kernel: plan, schedule, session, finals and verification."""

from mptune.kernel.limits import device_constraints
from mptune.tuning.session import Progress
from mptune.tuning.settings import TuneSettings
from mptune.tuning.sizes import tune_sizes
from mptune.tuning.tuning import tune

__all__ = ["Progress", "TuneSettings", "device_constraints", "tune", "tune_sizes"]
