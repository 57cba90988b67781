"""The Metropolis criterion on scores, whatever their scale."""

from __future__ import annotations

import math

__all__ = ["acceptance_probability", "relative_loss"]


def relative_loss(current: float, score: float) -> float:
    """Return how much worse a score is than the current one, as a part of 1; 0 where it is not worse.

    Between two performances it is one less their ratio, so a temperature means the same for a kernel of
    microseconds as for one of seconds: 0.1 is a tenth of the speed. Everything is lost between a score above zero and
    one that is not, which the hard and linear penalties give; between two scores below zero it is one less the
    ratio of their magnitudes. Nothing is lost from ``-inf``, and infinitely much from anything better to it.
    """
    if score >= current:
        return 0.0
    if score == -math.inf:
        return math.inf
    return 1.0 - max(score, 0.0) / current if current > 0 else 1.0 - current / score


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
