"""The configurations a model-based strategy chooses among: all of them, or a sample where they are too many."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.space.search_space import SearchSpace
from mptune.strategies.models.features import Features
from mptune.strategies.models.signatures import Signatures

__all__ = ["Candidates", "everything", "sampled", "towards_feasible"]

_PROBES: Final = 512


@dataclass(frozen=True, slots=True)
class Candidates:
    """Configurations, ascending by index.

    Attributes:
        indices: shape ``(n,)``.
        codes: their value codes, shape ``(n, d)``.
        features: their features, shape ``(n, k)``.
        complete: whether these are all configurations that may still be proposed.
    """

    indices: NDArray[np.int64]
    codes: NDArray[np.int32]
    features: NDArray[np.float64]
    complete: bool

    def position(self, index: int) -> int | None:
        """Return where an index is, None if it is no candidate."""
        at = int(np.searchsorted(self.indices, index))
        return at if at < len(self.indices) and self.indices[at] == index else None

    def subset(self, mask: NDArray[np.bool_]) -> Candidates:
        """Return the candidates under the mask."""
        return Candidates(self.indices[mask], self.codes[mask], self.features[mask], self.complete)


def everything(space: SearchSpace, features: Features) -> Candidates:
    """Return all configurations."""
    indices = np.arange(space.size, dtype=np.int64)
    return Candidates(indices, space.codes(indices), features.of(indices), True)


def sampled(
    space: SearchSpace,
    features: Features,
    n: int,
    rng: np.random.Generator,
    taken: Set[int],
    around: Iterable[int],
    signatures: Signatures | None,
) -> Candidates:
    """Return a uniform sample, the neighbours of some configurations, and the sample moved towards feasible signatures.

    Args:
        space: the search space.
        features: of its configurations.
        n: size of the uniform sample.
        rng: source of randomness.
        taken: indices left out.
        around: indices whose Hamming neighbours join.
        signatures: what is known of signatures; None where the error does not matter.
    """
    uniform = space.sample(min(n, space.size), rng)
    parts = [uniform, *(space.neighbours(index, "hamming") for index in around)]
    if signatures is not None:
        parts.append(towards_feasible(space, uniform, signatures, rng))
    indices = np.unique(np.concatenate(parts))
    indices = indices[~np.isin(indices, np.fromiter(taken, np.int64, len(taken)))]
    return Candidates(indices, space.codes(indices), features.of(indices), False)


def towards_feasible(
    space: SearchSpace, indices: NDArray[np.int64], signatures: Signatures, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return configurations like the given ones but with signatures drawn by their probability to be feasible.

    Those that are not valid are left out, so the answer may be shorter, or empty.
    """
    codes = space.codes(indices).copy()
    probes = space.codes(space.sample(min(_PROBES, space.size), rng))
    rows = np.concatenate([probes[:, signatures.columns], signatures.widest[None, :]])
    trial = np.concatenate([probes, probes[:1]])
    trial[:, signatures.columns] = rows
    weights = np.exp(signatures.log_probability(trial))
    if weights.sum() <= 0:
        return np.empty(0, dtype=np.int64)
    chosen = rng.choice(len(rows), size=len(codes), p=weights / weights.sum())
    codes[:, signatures.columns] = rows[chosen]
    found = space.indices_of(codes)
    return found[found >= 0]
