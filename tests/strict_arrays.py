"""A namespace as unforgiving as a GPU's: its arrays never turn into NumPy's by themselves, nor NumPy's into its.

It allows what CuPy does, in the way CuPy does it: reductions give arrays without axes, only such convert to numbers,
and a mask only takes a single value.
"""

from __future__ import annotations

import numpy as np


class Strict:
    """An array of the namespace."""

    __array_ufunc__ = None

    def __init__(self, array):
        self.of = array

    def __array__(self, *_, **__):
        raise TypeError("implicit conversion to a NumPy array is not allowed")

    dtype = property(lambda self: self.of.dtype)
    shape = property(lambda self: self.of.shape)
    size = property(lambda self: self.of.size)
    real = property(lambda self: Strict(self.of.real))

    def sum(self, axis=None):
        return Strict(np.asarray(self.of.sum(axis=axis)))

    def max(self, axis=None):
        return Strict(np.asarray(self.of.max(axis=axis)))

    def min(self):
        return Strict(np.asarray(self.of.min()))

    def astype(self, dtype, copy=True):
        assert np.dtype(dtype).kind in "biuf", f"{dtype} is no type of a device's arrays"
        return Strict(self.of.astype(dtype, copy=copy))

    def view(self, dtype):
        assert np.dtype(dtype).kind in "biuf", f"{dtype} is no type of a device's arrays"
        return Strict(self.of.view(dtype))

    def reshape(self, shape):
        return Strict(self.of.reshape(shape))

    def transpose(self, axes):
        return Strict(self.of.transpose(axes))

    def tolist(self):
        return self.of.tolist()

    def __float__(self):
        assert self.of.shape == ()
        return float(self.of)

    def __int__(self):
        assert self.of.shape == ()
        return int(self.of)

    def __bool__(self):
        assert self.of.shape == ()
        return bool(self.of)

    def __getitem__(self, index):
        return Strict(np.asarray(self.of[own(index)]))

    def __setitem__(self, index, value):
        if isinstance(index, Strict) and index.dtype == bool:
            assert not isinstance(value, Strict), "a mask takes a single value"
        self.of[own(index)] = own(value)


def own(value):
    """What an operation sees of an operand; NumPy's arrays are strangers."""
    assert not isinstance(value, np.ndarray), "an array of the host among those of the device"
    return value.of if isinstance(value, Strict) else value


def _operator(name):
    def operate(self, *others):
        result = getattr(self.of, name)(*map(own, others))
        if result is NotImplemented:
            return NotImplemented
        return self if name.startswith("__i") and name != "__invert__" else Strict(np.asarray(result))

    return operate


for _name in (
    *("add", "sub", "mul", "truediv", "radd", "rsub", "rmul", "itruediv", "imul", "neg", "invert"),
    *("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "lshift", "rshift"),
):
    setattr(Strict, f"__{_name}__", _operator(f"__{_name}__"))


class Namespace:
    """NumPy's functions on its own arrays; remembers their names."""

    def __init__(self):
        self.used = set()

    def __getattr__(self, name):
        function = getattr(np, name)
        self.used.add(name)

        def call(*arguments, **named):
            given = [[own(a) for a in one] if isinstance(one, list) else own(one) for one in arguments]
            result = function(*given, **{key: own(value) for key, value in named.items()})
            if "out" in named and named["out"] is not None:
                return named["out"]
            if isinstance(result, tuple):
                return tuple(Strict(np.asarray(one)) for one in result)
            return Strict(np.asarray(result))

        return call

    def asarray(self, array):
        """The one way in."""
        return Strict(np.array(array))
