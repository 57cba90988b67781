"""The definition of a kernel: a template, its parameters, its arguments, a reference and an error metric."""

from mptune.kernel.application import Application
from mptune.kernel.declarations import Argument, Buffer, Constant, In, InOut, Out, Role, Scalar, Scratch, Sizes
from mptune.kernel.definition import Kernel, LaunchShape, Varied, is_first_draw
from mptune.kernel.tunable import Tunable
from mptune.kernel.work import Work

__all__ = [
    "Application",
    "Argument",
    "Buffer",
    "Constant",
    "In",
    "InOut",
    "Kernel",
    "LaunchShape",
    "Out",
    "Role",
    "Scalar",
    "Scratch",
    "Sizes",
    "Tunable",
    "Varied",
    "Work",
    "is_first_draw",
]
