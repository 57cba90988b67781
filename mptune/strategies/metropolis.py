"""The Metropolis criterion on scores, whatever their scale."""

from __future__ import annotations

import math

__all__ = ["acceptance_probability", "relative_loss"]


def relative_loss(current: float, score: float) -> float:
    """Return by which part of the larger magnitude a score is below the current one; 0 where it is not below.

    Between two performances it is one less their ratio, so a temperature means the same for a kernel of
    microseconds as for one of seconds: 0.1 is a slowdown of a tenth. Scores at or below zero, which the hard and
    linear penalties give, lose more than any performance does, at most 2. Below a finite score, ``-inf`` loses
    infinitely; nothing is lost from ``-inf``.
    """
    if score >= current:
        return 0.0
    if score == -math.inf:
        return math.inf
    larger = max(abs(current), abs(score))
    return current / larger - score / larger


def acceptance_probability(current: float, score: float, temperature: float) -> float:
    """Return the probability to move from one score to another: exp(-loss / temperature), 1 where nothing is lost.

    Metropolis et al., "Equation of state calculations by fast computing machines" (1953), with the relative loss
    in place of the difference of energies.

    Args:
        current: score at present, higher is better; ``-inf`` for a failed trial.
        score: score of the proposal.
        temperature: the relative loss accepted with probability 1/e, positive.
    """
    return math.exp(-relative_loss(current, score) / temperature)
