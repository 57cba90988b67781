"""A tree of partial configurations: the valid value codes of a group of co-dependent parameters.

Each level belongs to one parameter, each edge to one of its values, each path from the root to a leaf to one valid
combination (the trees of Rasch 2021 and Hellsten 2023, Sec. 4.2). Subtrees that are equal are stored once, and every
edge knows how many leaves lie before it, so that the n-th leaf is found without listing any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Level", "Tree", "compact"]

Integers = NDArray[np.int64]


def compact(values: NDArray[Any], largest: int) -> NDArray[Any]:
    """Return non-negative integers in the smallest unsigned type that holds ``largest``."""
    smallest: NDArray[Any] = values.astype(np.min_scalar_type(max(largest, 0)), copy=False)
    return smallest


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """The edges of one level, sorted by node and within a node by code.

    Attributes:
        radix: the number of values of the level's parameter.
        first: the first edge of each node, and the number of edges, (n_nodes + 1,).
        keys: ``node * radix + code`` of each edge, ascending, (n_edges,).
        children: the node of the next level each edge leads to, (n_edges,).
        before: the leaves below all earlier edges of the level, and below all edges, (n_edges + 1,).
    """

    radix: int
    first: NDArray[Any]
    keys: NDArray[Any]
    children: NDArray[Any]
    before: Integers

    def key(self, nodes: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
        """Return the keys of nodes and codes in the type the keys are stored in, (n,)."""
        keys: NDArray[Any] = (nodes.astype(np.int64) * self.radix + codes).astype(self.keys.dtype)
        return keys

    @classmethod
    def of(
        cls, radix: int, parents: NDArray[Any], codes: NDArray[Any], children: NDArray[Any], n: int, leaves: Integers
    ) -> Level:
        """Return a level from its edges, sorted by parent and code.

        Args:
            radix: the number of values.
            parents: the node each edge starts at, (n_edges,).
            codes: the value of each edge, (n_edges,).
            children: the node each edge leads to, (n_edges,).
            n: the number of nodes.
            leaves: the leaves below each edge, (n_edges,).
        """
        first = np.concatenate(([0], np.cumsum(np.bincount(parents, minlength=n))))
        keys = parents.astype(np.int64) * radix + codes
        before = np.concatenate(([0], np.cumsum(leaves))).astype(np.int64)
        return cls(
            radix,
            compact(first, len(keys)),
            compact(keys, n * radix),
            compact(children, int(children.max(initial=0))),
            before,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """The valid combinations of some parameters, counted and indexed in the order of the levels.

    Attributes:
        positions: the parameter each level belongs to.
        ordered: whether the values of each level's parameter have an order.
        levels: the levels, root first; the root is node 0 of the first.
    """

    positions: tuple[int, ...]
    ordered: tuple[bool, ...]
    levels: tuple[Level, ...]

    @property
    def size(self) -> int:
        """The number of leaves."""
        return int(self.levels[0].before[-1])

    @property
    def n_edges(self) -> int:
        """The number of stored edges."""
        return sum(len(level.keys) for level in self.levels)

    def decode(self, leaves: Integers) -> NDArray[np.int32]:
        """Return the codes of leaves, (n, n_levels), for their numbers (n,)."""
        codes = np.empty((len(self.levels), len(leaves)), dtype=np.int32)
        node: NDArray[Any] = np.zeros(len(leaves), dtype=np.intp)
        target = leaves.astype(np.int64)
        for row, level in zip(codes, self.levels, strict=True):
            target += level.before[level.first[node]]
            edge = np.searchsorted(level.before, target, side="right") - 1
            row[:] = level.keys[edge] % level.radix
            target -= level.before[edge]
            node = level.children[edge]
        return codes.T

    def encode(self, codes: NDArray[Any]) -> Integers:
        """Return the numbers of the leaves with these codes (n, n_levels), -1 where there is none, (n,)."""
        leaf = np.zeros(len(codes), dtype=np.int64)
        valid = np.ones(len(codes), dtype=np.bool_)
        node: NDArray[Any] = np.zeros(len(codes), dtype=np.int64)
        for level, code in zip(self.levels, codes.T, strict=True):
            valid &= (code >= 0) & (code < level.radix)
            key = level.key(node, np.clip(code, 0, level.radix - 1))
            edge = np.minimum(np.searchsorted(level.keys, key), len(level.keys) - 1)
            valid &= level.keys[edge] == key
            leaf += level.before[edge] - level.before[level.first[node]]
            node = level.children[edge]
        return np.where(valid, leaf, -1)

    def decode_one(self, leaf: int) -> list[int]:
        """Return the codes of one leaf."""
        codes, node = [], 0
        for level in self.levels:
            leaf += int(level.before[level.first[node]])
            edge = int(level.before.searchsorted(leaf, side="right")) - 1
            codes.append(int(level.keys[edge]) % level.radix)
            leaf -= int(level.before[edge])
            node = int(level.children[edge])
        return codes

    def encode_one(self, codes: list[int]) -> int:
        """Return the number of the leaf with these codes, -1 if there is none."""
        leaf, node = 0, 0
        for level, code in zip(self.levels, codes, strict=True):
            key = node * level.radix + code
            edge = int(level.keys.searchsorted(level.keys.dtype.type(key)))
            if edge == len(level.keys) or int(level.keys[edge]) != key:
                return -1
            leaf += int(level.before[edge]) - int(level.before[level.first[node]])
            node = int(level.children[edge])
        return leaf

    def descend(self, quantiles: NDArray[np.float64]) -> Integers:
        """Return the leaves at quantiles in [0, 1), one for each level, (n,) from (n, n_levels).

        On each level the quantile picks among the leaves below the node, so that independent uniform quantiles give
        independent uniform leaves, and stratified quantiles give stratified values (the Rosenblatt transform).
        """
        leaf = np.zeros(len(quantiles), dtype=np.int64)
        node: NDArray[Any] = np.zeros(len(quantiles), dtype=np.intp)
        for level, quantile in zip(self.levels, quantiles.T, strict=True):
            low, high = level.before[level.first[node]], level.before[level.first[node.astype(np.int64) + 1]]
            target = np.minimum(low + (quantile * (high - low)).astype(np.int64), high - 1)
            edge = np.searchsorted(level.before, target, side="right") - 1
            leaf += level.before[edge] - low
            node = level.children[edge]
        return leaf

    def nearest(self, codes: NDArray[Any], rng: np.random.Generator) -> Integers:
        """Return leaves near codes that need not be valid, (n,) from (n, n_levels).

        Level by level the code is kept where it can be, else the nearest in the parameter's order is taken (any
        for a parameter without one). Every node has leaves, so there is always a next value.
        """
        leaf = np.zeros(len(codes), dtype=np.int64)
        node: NDArray[Any] = np.zeros(len(codes), dtype=np.int64)
        for level, wanted, ordered in zip(self.levels, codes.T, self.ordered, strict=True):
            node = node.astype(np.int64)
            low, high = level.first[node].astype(np.int64), level.first[node + 1].astype(np.int64)
            key = level.key(node, np.clip(wanted, 0, level.radix - 1))
            above = np.clip(np.searchsorted(level.keys, key), low, high - 1)
            below = np.clip(above - 1, low, high - 1)
            up = np.abs(level.keys[above].astype(np.int64) - key.astype(np.int64))
            down = np.abs(level.keys[below].astype(np.int64) - key.astype(np.int64))
            edge = np.where((down < up) | ((down == up) & (rng.random(len(codes)) < 0.5)), below, above)
            if not ordered:
                anywhere = low + rng.integers(0, high - low)
                edge = np.where(up == 0, above, anywhere)
            leaf += level.before[edge] - level.before[low]
            node = level.children[edge]
        return leaf
