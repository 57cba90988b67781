"""Accuracy-aware mixed-precision tuning of CUDA, HIP and C++ kernels."""

__version__ = "0.1.0"
