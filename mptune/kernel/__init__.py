"""What a kernel is: a template, its parameters, its arguments, a reference and an error metric."""

from mptune.kernel.declarations import Argument, Constant, In, InOut, Out, Range, Role, Scalar, Sizes
from mptune.kernel.definition import Kernel, LaunchShape
from mptune.kernel.work import Work

__all__ = [
    "Argument",
    "Constant",
    "In",
    "InOut",
    "Kernel",
    "LaunchShape",
    "Out",
    "Range",
    "Role",
    "Scalar",
    "Sizes",
    "Work",
]
