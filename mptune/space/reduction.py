"""From grown edges to a tree: leaves counted, dead ends dropped, equal subtrees stored once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ConstraintError, EmptySpaceError
from mptune.space.tree import Level, Tree

__all__ = ["Edges", "reduce", "tree_of_rows"]

_MOST_LEAVES: Final = 4.0e18  # well below 2**63, so that sums rounded to doubles still tell


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """The edges of one level, sorted by parent and code, equal subtrees not yet merged.

    Attributes:
        radix: the number of values of the level's parameter.
        parents: the node each edge starts at, (n_edges,).
        codes: the value of each edge, (n_edges,).
        children: the node of the next level each edge leads to, (n_edges,).
        n_nodes: the number of nodes of this level.
    """

    radix: int
    parents: NDArray[np.int32]
    codes: NDArray[np.int32]
    children: NDArray[np.int32]
    n_nodes: int


def reduce(grown: Sequence[Edges], positions: tuple[int, ...], ordered: tuple[bool, ...]) -> Tree:
    """Count leaves, drop what leads nowhere and store equal subtrees once."""
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
    """Return the tree of listed combinations.

    Args:
        rows: distinct rows of codes in ascending order, (n, n_levels).
        radices: the number of values of each level.
        ordered: whether each level's values have an order.
    """
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
