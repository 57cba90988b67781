"""Synthetic launch times of machines that do something else too, on which ways of comparing times are tried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["NOISES", "turns"]

Array = NDArray[np.float64]


def _quiet(n: int, rng: np.random.Generator) -> Array:
    return np.exp(0.01 * rng.standard_normal(n))


def _tails(n: int, rng: np.random.Generator) -> Array:
    return _quiet(n, rng) + (rng.random(n) < 0.2) * 0.1 * rng.pareto(1.3, n)


def _drift(n: int, rng: np.random.Generator) -> Array:
    return _quiet(n, rng) * np.exp(np.linspace(0, 0.5, n) + 0.2 * np.sin(np.arange(n) / 97))


def _walk(n: int, rng: np.random.Generator) -> Array:
    return _quiet(n, rng) * np.exp(np.cumsum(0.01 * rng.standard_normal(n)))


def _correlated(n: int, rng: np.random.Generator) -> Array:
    steps, state = rng.standard_normal(n), np.zeros(n)
    for i in range(1, n):
        state[i] = 0.95 * state[i - 1] + np.sqrt(1 - 0.95**2) * steps[i]
    return _quiet(n, rng) * np.exp(0.3 * np.maximum(state, 0.0))


def _bursts(n: int, rng: np.random.Generator) -> Array:
    is_on = np.cumsum(rng.random(n) < 1 / 25) % 2 == 1
    return _quiet(n, rng) * np.where(is_on, 2 + 0.5 * rng.random(n), 1.0)


def _busy(n: int, rng: np.random.Generator) -> Array:
    return 1 + (rng.random(n) < 0.85) * rng.exponential(1.0, n) + 0.01 * np.abs(rng.standard_normal(n))


#: By name, what gives the factors by which successive launches take longer, ``(n,)``: rounding of a quiet clock; now
#: and then much longer, with heavy tails; a clock that drifts; that wanders; that is disturbed for a while; by another
#: task that comes and goes; by tasks that are always there.
NOISES: Final[Mapping[str, Callable[[int, np.random.Generator], Array]]] = {
    "quiet": _quiet,
    "heavy tails": _tails,
    "drift": _drift,
    "random walk": _walk,
    "correlated": _correlated,
    "bursts": _bursts,
    "always busy": _busy,
}


def turns(noise: str, times: Sequence[float], rounds: int, launches: int, rng: np.random.Generator) -> Array:
    """Return the launches of configurations measured back and forth, ``(n_configurations, rounds, launches)``.

    Args:
        noise: one of :data:`NOISES`.
        times: how long each configuration takes undisturbed.
        rounds: how many.
        launches: timed ones in a turn; another one warms up.
        rng: source of the noise.
    """
    factors = NOISES[noise](rounds * len(times) * (launches + 1), rng).reshape(rounds, len(times), launches + 1)
    factors[1::2] = factors[1::2, ::-1]
    return np.asarray(factors[:, :, 1:].transpose(1, 0, 2) * np.asarray(times)[:, None, None])
