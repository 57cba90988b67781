"""The independent parts of a search space: a single parameter, or a tree for a group of co-dependent ones.

Each level of a tree belongs to one parameter, each edge to one of its values, each path from the root to a leaf to one
valid combination (the trees of Rasch 2021 and Hellsten 2023, Sec. 4.2). Subtrees that are equal are stored once, and
every edge knows how many leaves lie before it, so that the n-th leaf is found without listing any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ConstraintError, EmptySpaceError

Integers = NDArray[np.int64]
_MOST_LEAVES: Final = 4.0e18  # well below 2**63, so that it also shows in sums rounded to doubles


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One parameter that depends on no other, and the codes it may have, ascending, (size,)."""

    position: int
    codes: NDArray[np.int32]
    ordered: bool

    @property
    def positions(self) -> tuple[int, ...]:
        """The position of the one parameter."""
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

    def walk(self, quantiles: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the choices at quantiles, as :meth:`descend`: a parameter alone has a leaf on every branch."""
        return self.descend(quantiles)

    def nearest(self, codes: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the choices nearest to codes; any if the values have no order and the code is not allowed."""
        exact = self.encode(codes)
        if not self.ordered:
            return np.where(exact >= 0, exact, rng.integers(0, self.size, len(codes)))
        above = np.clip(np.searchsorted(self.codes, codes[:, 0]), 0, self.size - 1)
        below = np.maximum(above - 1, 0)
        up, down = np.abs(self.codes[above] - codes[:, 0]), np.abs(self.codes[below] - codes[:, 0])
        tie = rng.random(len(codes)) < 0.5
        return np.where((down < up) | ((down == up) & tie), below, above).astype(np.int64)


def compact(values: NDArray[Any], largest: int) -> NDArray[Any]:
    """Return non-negative integers in the smallest unsigned type that holds ``largest``."""
    return values.astype(np.min_scalar_type(max(largest, 0)), copy=False)


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """The edges of one level, sorted by node and within a node by code."""

    radix: int  #: the number of values of the level's parameter
    first: NDArray[Any]  #: the first edge of each node, and the number of edges, (n_nodes + 1,)
    keys: NDArray[Any]  #: ``node * radix + code`` of each edge, ascending, (n_edges,)
    children: NDArray[Any]  #: the node of the next level each edge leads to, (n_edges,)
    before: Integers  #: the leaves below all earlier edges of the level, and below all edges, (n_edges + 1,)

    def key(self, nodes: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
        """Return the keys of nodes and codes in the type the keys are stored in, (n,)."""
        return (nodes.astype(np.int64) * self.radix + codes).astype(self.keys.dtype)  # type: ignore[no-any-return]

    @classmethod
    def of(
        cls, radix: int, parents: NDArray[Any], codes: NDArray[Any], children: NDArray[Any], n: int, leaves: Integers
    ) -> Level:
        """Return a level of ``n`` nodes from its edges, sorted by parent and code; arrays are (n_edges,)."""
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
    """The valid combinations of some parameters, counted and indexed in the order of the levels."""

    positions: tuple[int, ...]  #: the parameter each level belongs to
    ordered: tuple[bool, ...]  #: whether the values of each level's parameter have an order
    levels: tuple[Level, ...]  #: the levels, root first; the root is node 0 of the first

    @property
    def size(self) -> int:
        """The number of leaves."""
        return int(self.levels[0].before[-1])

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
        """Return the numbers of the leaves with these codes (n, n_levels), -1 if there is none, (n,)."""
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

    def walk(self, quantiles: NDArray[np.float64]) -> Integers:
        """Return the leaves that quantiles in [0, 1) lead to, one for each level, (n,) from (n, n_levels).

        On each level the quantile picks among the branches of the node, however many leaves they have: independent
        uniform quantiles prefer leaves in the sparse parts of the tree (Hellsten 2023, Sec. 4.2, calls it biased).
        """
        leaf = np.zeros(len(quantiles), dtype=np.int64)
        node: NDArray[Any] = np.zeros(len(quantiles), dtype=np.intp)
        for level, quantile in zip(self.levels, quantiles.T, strict=True):
            node = node.astype(np.int64)
            first, last = level.first[node].astype(np.int64), level.first[node + 1].astype(np.int64) - 1
            edge = np.minimum(first + (quantile * (last + 1 - first)).astype(np.int64), last)
            leaf += level.before[edge] - level.before[first]
            node = level.children[edge]
        return leaf

    def nearest(self, codes: NDArray[Any], rng: np.random.Generator) -> Integers:
        """Return leaves near codes that need not be valid, (n,) from (n, n_levels).

        Level by level the code is kept if it is valid, else the nearest in the parameter's order is taken (any
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


#: Independent parameters, or a group of co-dependent ones; ``size`` valid combinations numbered from 0.
Factor = Choice | Tree


# -- building a tree ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """The edges of one level, sorted by parent and code, equal subtrees not yet merged."""

    radix: int  #: the number of values of the level's parameter
    parents: NDArray[np.int32]  #: the node each edge starts at, (n_edges,)
    codes: NDArray[np.int32]  #: the value of each edge, (n_edges,)
    children: NDArray[np.int32]  #: the node of the next level each edge leads to, (n_edges,)
    n_nodes: int  #: the number of nodes of this level


def reduce(grown: Sequence[Edges], positions: tuple[int, ...], ordered: tuple[bool, ...]) -> Tree:
    """Count leaves, drop what leads nowhere and store equal subtrees once.

    Raises:
        EmptySpaceError: nothing leads to a leaf.
        ConstraintError: there are more leaves than can be counted.
    """
    levels: list[Level] = []
    leaves, renumbered = np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    for edges in reversed(grown):
        children = renumbered[edges.children]
        alive = children >= 0
        parents, codes, children = edges.parents[alive], edges.codes[alive], children[alive]
        if not len(parents):
            raise EmptySpaceError(f"no combination of {len(grown)} parameters is valid")
        representative = _equal_nodes(parents, codes, children, edges)
        is_kept = representative == np.arange(edges.n_nodes)
        new_number = np.cumsum(is_kept) - 1
        renumbered = np.where(representative >= 0, new_number[representative], -1)
        keep = is_kept[parents]
        parents, codes, children = new_number[parents[keep]], codes[keep], children[keep]
        n_nodes = int(is_kept.sum())
        below = leaves[children]
        if below.sum(dtype=np.float64) > _MOST_LEAVES:
            raise ConstraintError(f"more than {_MOST_LEAVES:.0g} configurations are valid; shorten the lists of values")
        levels.append(Level.of(edges.radix, parents, codes, children, n_nodes, below))
        leaves = np.diff(levels[-1].before[levels[-1].first])
    return Tree(positions, ordered, tuple(reversed(levels)))


def _equal_nodes(
    parents: NDArray[np.int32], codes: NDArray[np.int32], children: NDArray[np.int64], edges: Edges
) -> NDArray[np.int64]:
    """Return for each node the first node with the same edges, -1 for a node without any, (n_nodes,)."""
    n = edges.n_nodes
    degree = np.bincount(parents, minlength=n)
    first = np.concatenate(([0], np.cumsum(degree)))[:-1]
    filled = np.flatnonzero(degree)
    digest = np.zeros(n, dtype=np.uint64)
    digest[filled] = np.add.reduceat(
        _scramble(children.astype(np.uint64) * edges.radix + codes.astype(np.uint64)), first[filled]
    )
    _, position, inverse = np.unique(digest[filled], return_index=True, return_inverse=True)
    representative = np.full(n, -1, dtype=np.int64)
    representative[filled] = filled[position[inverse]]
    # Equal digests are all but certain to mean equal edges; the comparison makes it certain.
    mine = np.arange(len(parents))
    theirs = np.minimum(first[representative[parents]] + mine - first[parents], len(parents) - 1)
    differs = (codes != codes[theirs]) | (children != children[theirs])
    distinct = (np.bincount(parents, weights=differs, minlength=n) > 0) | (degree != degree[representative])
    return np.where(distinct & (degree > 0), np.arange(n), representative)


def _scramble(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return well mixed 64-bit digests (the finaliser of SplitMix64)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def tree_of_rows(rows: NDArray[Any], radices: Sequence[int], ordered: tuple[bool, ...]) -> Tree:
    """Return the tree of listed combinations: distinct rows of codes in ascending order, (n, n_levels)."""
    grown: list[Edges] = []
    differs = np.ones((len(rows), rows.shape[1]), dtype=np.bool_)
    differs[1:] = np.logical_or.accumulate(rows[1:] != rows[:-1], axis=1)
    node = np.zeros(len(rows), dtype=np.int32)
    for k, radix in enumerate(radices):
        child = (np.cumsum(differs[:, k]) - 1).astype(np.int32)
        edge = np.flatnonzero(differs[:, k])
        children = child[edge] if k + 1 < len(radices) else np.zeros(len(edge), dtype=np.int32)
        grown.append(Edges(radix, node[edge], rows[edge, k].astype(np.int32), children, int(node[-1]) + 1))
        node = child
    return reduce(grown, tuple(range(len(radices))), ordered)
