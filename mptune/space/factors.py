"""The factors of a search space: what can be chosen independently, each counted and indexed on its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Choice", "Factor"]


class Factor(Protocol):
    """Independent parameters, or a group of co-dependent ones; ``size`` valid combinations numbered from 0."""

    @property
    def positions(self) -> tuple[int, ...]:
        """The parameters of the factor, by position in the search space."""

    @property
    def size(self) -> int:
        """The number of valid combinations."""

    def decode(self, leaves: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the codes of combinations, (n, n_positions)."""

    def encode(self, codes: NDArray[Any]) -> NDArray[np.int64]:
        """Return the numbers of combinations, -1 for one that is not valid, (n,)."""

    def decode_one(self, leaf: int) -> list[int]:
        """Return the codes of one combination."""

    def encode_one(self, codes: list[int]) -> int:
        """Return the number of one combination, -1 if it is not valid."""

    def descend(self, quantiles: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the combinations at quantiles in [0, 1), (n,) from (n, n_positions)."""

    def nearest(self, codes: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int64]:
        """Return valid combinations near codes, (n,)."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One parameter that depends on no other.

    Attributes:
        position: its position in the search space.
        codes: the codes it may have, ascending, (size,).
        ordered: whether its values have an order.
    """

    position: int
    codes: NDArray[np.int32]
    ordered: bool

    @property
    def positions(self) -> tuple[int, ...]:
        """The parameter's position alone."""
        return (self.position,)

    @property
    def size(self) -> int:
        """The number of values it may have."""
        return len(self.codes)

    def decode(self, leaves: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the codes of choices, (n, 1)."""
        return self.codes[leaves][:, None]

    def encode(self, codes: NDArray[Any]) -> NDArray[np.int64]:
        """Return the numbers of choices, -1 for a code that is not allowed, (n,) from (n, 1)."""
        wanted = codes[:, 0]
        found = np.minimum(np.searchsorted(self.codes, wanted), self.size - 1)
        return np.where(self.codes[found] == wanted, found, -1).astype(np.int64)

    def decode_one(self, leaf: int) -> list[int]:
        """Return the code of one choice."""
        return [int(self.codes[leaf])]

    def encode_one(self, codes: list[int]) -> int:
        """Return the number of a choice, -1 if its code is not allowed."""
        found = int(self.codes.searchsorted(codes[0]))
        return found if found < self.size and int(self.codes[found]) == codes[0] else -1

    def descend(self, quantiles: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the choices at quantiles in [0, 1), (n,) from (n, 1)."""
        return np.minimum((quantiles[:, 0] * self.size).astype(np.int64), self.size - 1)

    def nearest(self, codes: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the choices nearest to codes; any where the values have no order and the code is not allowed."""
        exact = self.encode(codes)
        if not self.ordered:
            return np.where(exact >= 0, exact, rng.integers(0, self.size, len(codes)))
        above = np.clip(np.searchsorted(self.codes, codes[:, 0]), 0, self.size - 1)
        below = np.maximum(above - 1, 0)
        up, down = np.abs(self.codes[above] - codes[:, 0]), np.abs(self.codes[below] - codes[:, 0])
        tie = rng.random(len(codes)) < 0.5
        return np.where((down < up) | ((down == up) & tie), below, above).astype(np.int64)
