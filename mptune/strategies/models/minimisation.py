"""A small quasi-Newton minimiser for a handful of standardised variables."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["minimise"]

Array = NDArray[np.float64]
Loss = Callable[[Array], tuple[float, Array]]

_SUFFICIENT: Final = 1e-4
_HALVINGS: Final = 12
_LONGEST_STEP: Final = 1.5
_GRADIENT_TOLERANCE: Final = 1e-3
_LOSS_TOLERANCE: Final = 1e-7


def minimise(loss: Loss, start: Array, *, bound: float, max_iterations: int) -> tuple[Array, float]:
    """Return a local minimum within ``[-bound, bound]`` per variable, and its loss.

    BFGS with backtracking (Nocedal and Wright, Numerical Optimization, algorithms 6.1 and 3.1). No
    coordinate moves by more than 1.5 at once, so a poor curvature estimate cannot throw it far. scipy's
    L-BFGS-B is no alternative here: its tiny triangular solves are spread over threads and wait for them.

    Args:
        loss: value and gradient; the value may be infinite.
        start: shape ``(n,)``.
        bound: largest absolute value of a variable.
        max_iterations: gradient steps at most.
    """
    x = np.clip(start, -bound, bound)
    value, gradient = loss(x)
    inverse = np.eye(len(x))
    fresh = True
    for _ in range(max_iterations):
        inside = ((x < bound) | (gradient > 0)) & ((x > -bound) | (gradient < 0))
        if not np.any(inside) or np.abs(gradient[inside]).max() < _GRADIENT_TOLERANCE:
            break
        direction = -(inverse * gradient).sum(axis=1)
        slope = float((direction * gradient).sum())
        if slope >= 0:
            inverse, fresh = np.eye(len(x)), True
            direction, slope = -gradient, -float((gradient * gradient).sum())
        step = min(1.0, _LONGEST_STEP / float(np.abs(direction).max()))
        if fresh:
            step = min(step, 1.0 / math.sqrt(-slope))
        for _ in range(_HALVINGS):
            moved = np.clip(x + step * direction, -bound, bound)
            new_value, new_gradient = loss(moved)
            if new_value <= value + _SUFFICIENT * step * slope:
                break
            step *= 0.5
        else:
            break
        taken, change = moved - x, new_gradient - gradient
        converged = value - new_value < _LOSS_TOLERANCE * (1.0 + abs(new_value))
        x, value, gradient = moved, new_value, new_gradient
        if converged:
            break
        inverse = _updated(inverse, taken, change, fresh)
        fresh = False
    return x, value


def _updated(inverse: Array, taken: Array, change: Array, fresh: bool) -> Array:
    """Return the inverse curvature that also explains the last step; as it was where that step does not bend up."""
    bend = float((taken * change).sum())
    if bend <= 1e-10 * float((change * change).sum()):
        return inverse
    if fresh:
        inverse = inverse * (bend / float((change * change).sum()))
    image = (inverse * change).sum(axis=1)
    weight = (bend + float((change * image).sum())) / bend**2
    mixed = np.outer(image, taken) / bend
    return np.asarray(inverse + weight * np.outer(taken, taken) - mixed - mixed.T)
