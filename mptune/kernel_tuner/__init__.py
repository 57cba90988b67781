"""Kernel Tuner's interface: its scripts run on mptune, and get an error limit and types to tune on top.

``python -m mptune.kernel_tuner SCRIPT.py`` runs a script that imports ``kernel_tuner``.
"""

from mptune.kernel_tuner.accuracy import AccuracyObserver, Tunable, TunablePrecision
from mptune.kernel_tuner.interface import run_kernel, tune_kernel

__all__ = ["AccuracyObserver", "Tunable", "TunablePrecision", "run_kernel", "tune_kernel"]
