"""Growing the tree of a group of co-dependent parameters, one parameter at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ConstraintError, EmptySpaceError
from mptune.space.constraints import Constraint
from mptune.space.plan import Step
from mptune.space.tree import Level, Tree

__all__ = ["MAX_EDGES", "Domain", "grow", "tree_of_rows"]

#: The most partial configurations held at once, and the most looked at together.
MAX_EDGES: Final = 20_000_000
_BLOCK: Final = 4_000_000
_TABLE: Final = 4_096
_MOST_LEAVES: Final = 4.0e18  # well below 2**63, so that sums rounded to doubles still tell


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """One parameter while the tree is built.

    Attributes:
        position: its place among the parameters of the search space.
        values: all of its values, (radix,).
        codes: the codes of the values that are allowed, ascending, (m,).
        ordered: whether its values have an order.
    """

    position: int
    values: NDArray[Any]
    codes: NDArray[np.int32]
    ordered: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """One remembered quantity: its distinct values and, for each row, which one it has."""

    codes: NDArray[np.int32]
    values: NDArray[Any]

    def take(self, rows: NDArray[Any]) -> _Known:
        return _Known(self.codes[rows], self.values)


@dataclass(frozen=True, slots=True, eq=False)
class _Edges:
    """The edges of a level before equal subtrees are merged."""

    radix: int
    parents: NDArray[np.int32]
    codes: NDArray[np.int32]
    children: NDArray[np.int32]
    n_nodes: int


def grow(steps: Sequence[Step], domains: Mapping[str, Domain]) -> Tree:
    """Return the tree of a group.

    Raises:
        EmptySpaceError: no combination is valid.
        ConstraintError: a constraint cannot be evaluated, or more than ``MAX_EDGES`` partial configurations are needed.
    """
    n, known = 1, dict[str, _Known]()
    grown: list[_Edges] = []
    for step in steps:
        domain = domains[step.parameter]
        parents, chosen = _expand(step, domain, known, n)
        if not len(parents):
            raise EmptySpaceError(f"no combination of {', '.join(s.parameter for s in steps)} is valid")
        row = {name: quantity.take(parents) for name, quantity in known.items()}
        row[step.parameter] = _Known(chosen, domain.values[domain.codes])
        for name, expression in step.derived.items():
            row[name] = _evaluate(expression.evaluate_columns, expression.names, row, len(parents))
        children, n_next, known = _merge_states({name: row[name] for name in step.live}, len(parents))
        grown.append(_Edges(len(domain.values), parents, domain.codes[chosen], children, n))
        n = n_next
    used = [domains[step.parameter] for step in steps]
    return _reduce(grown, tuple(domain.position for domain in used), tuple(domain.ordered for domain in used))


# -- one parameter more ----------------------------------------------------------------------------


def _expand(
    step: Step, domain: Domain, known: Mapping[str, _Known], n: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the valid pairs of a node and an allowed value, sorted by node and value: two arrays, (n_edges,)."""
    m = len(domain.codes)
    block = max(_BLOCK // m, 1)
    found: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []
    total = 0
    for start in range(0, n, block):
        stop = min(start + block, n)
        part = {name: _Known(q.codes[start:stop], q.values) for name, q in known.items()}
        mask = np.ones((stop - start, m), dtype=np.bool_)
        for constraint in step.filters:
            _filter(mask, constraint, step.parameter, domain.values[domain.codes], part)
        parents, chosen = np.nonzero(mask)
        found.append(((parents + start).astype(np.int32), chosen.astype(np.int32)))
        total += len(parents)
        if total > MAX_EDGES:
            raise _too_large(step, known)
    return np.concatenate([parents for parents, _ in found]), np.concatenate([chosen for _, chosen in found])


def _too_large(step: Step, known: Mapping[str, _Known]) -> ConstraintError:
    coupling = ", ".join(sorted({repr(c.text) for c in step.filters})) or "the constraints"
    return ConstraintError(
        f"more than {MAX_EDGES:,} partial configurations are needed at parameter {step.parameter} "
        f"({len(known)} quantities are coupled by {coupling}); split the constraint or shorten the lists of values"
    )


def _filter(
    mask: NDArray[np.bool_], constraint: Constraint, parameter: str, values: NDArray[Any], known: Mapping[str, _Known]
) -> None:
    """Clear the pairs (node, value) a constraint forbids, in place.

    Where the combinations of what it depends on are fewer than the nodes, it is evaluated once for each combination.
    """
    n, m = mask.shape
    names = sorted(constraint.names - {parameter})
    shape = [len(known[name].values) for name in names]
    combinations = math.prod(shape)
    if combinations <= max(n, _TABLE // m):
        try:
            columns = dict(_grid([*names, parameter], [*(known[k].values for k in names), values]))
            table = constraint.mask(columns, combinations * m).reshape(combinations, m)
        except ConstraintError:
            # Some combination does not occur or is excluded already; ask only about those left.
            pass
        else:
            mask &= table[_keys([known[name] for name in names], n)]
            return
    rows, chosen = np.nonzero(mask)
    columns = {name: known[name].values[known[name].codes[rows]] for name in names}
    columns[parameter] = values[chosen]
    mask[rows, chosen] = constraint.mask(columns, len(rows))


def _grid(names: Sequence[str], values: Sequence[NDArray[Any]]) -> Iterator[tuple[str, NDArray[Any]]]:
    shape = [len(column) for column in values]
    codes = np.unravel_index(np.arange(math.prod(shape)), shape)
    for name, column, code in zip(names, values, codes, strict=True):
        yield name, column[code]


def _keys(quantities: Sequence[_Known], n: int) -> NDArray[np.int64]:
    """Return one number for each row's combination of quantities, row-major, (n,)."""
    key = np.zeros(n, dtype=np.int64)
    for quantity in quantities:
        key = key * len(quantity.values) + quantity.codes
    return key


def _evaluate(
    function: Callable[[Mapping[str, NDArray[Any]], int], NDArray[Any]],
    names: frozenset[str],
    row: Mapping[str, _Known],
    n: int,
) -> _Known:
    """Return a quantity derived from others, for each row."""
    used = sorted(names)
    shape = [len(row[name].values) for name in used]
    combinations = math.prod(shape)
    if combinations <= max(n, _TABLE):
        table = function(dict(_grid(used, [row[name].values for name in used])), combinations)
        distinct, inverse = np.unique(table, return_inverse=True)
        return _Known(inverse.astype(np.int32)[_keys([row[name] for name in used], n)], distinct)
    results = function({name: row[name].values[row[name].codes] for name in used}, n)
    distinct, inverse = np.unique(results, return_inverse=True)
    return _Known(inverse.astype(np.int32), distinct)


def _merge_states(state: Mapping[str, _Known], n: int) -> tuple[NDArray[np.int32], int, dict[str, _Known]]:
    """Give rows that agree on everything remembered one node: nodes of rows (n,), their number, their quantities."""
    keys, radix = np.zeros(n, dtype=np.int64), 1
    for quantity in state.values():
        if radix * len(quantity.values) >= 2**62:
            keys, radix = _dense(keys, radix)
        keys = keys * len(quantity.values) + quantity.codes
        radix *= len(quantity.values)
    nodes, n_nodes = _dense(keys, radix)
    representative = np.empty(n_nodes, dtype=np.intp)
    representative[nodes] = np.arange(n)
    return nodes.astype(np.int32), n_nodes, {name: quantity.take(representative) for name, quantity in state.items()}


def _dense(keys: NDArray[np.int64], radix: int) -> tuple[NDArray[np.int64], int]:
    """Renumber keys below ``radix`` as 0, 1, ... in their order; return them and their number."""
    if radix <= 4 * len(keys) + 1_000_000:
        occurs = np.zeros(radix, dtype=np.bool_)
        occurs[keys] = True
        numbers = np.cumsum(occurs) - 1
        return numbers[keys], int(numbers[-1]) + 1
    distinct, inverse = np.unique(keys, return_inverse=True)
    return inverse.astype(np.int64), len(distinct)


# -- from the leaves back ---------------------------------------------------------------------------


def _reduce(grown: Sequence[_Edges], positions: tuple[int, ...], ordered: tuple[bool, ...]) -> Tree:
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
    parents: NDArray[np.int32], codes: NDArray[np.int32], children: NDArray[np.int64], edges: _Edges
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
    grown: list[_Edges] = []
    differs = np.ones((len(rows), rows.shape[1]), dtype=np.bool_)
    differs[1:] = np.logical_or.accumulate(rows[1:] != rows[:-1], axis=1)
    node = np.zeros(len(rows), dtype=np.int32)
    for k, radix in enumerate(radices):
        child = (np.cumsum(differs[:, k]) - 1).astype(np.int32)
        edge = np.flatnonzero(differs[:, k])
        children = child[edge] if k + 1 < len(radices) else np.zeros(len(edge), dtype=np.int32)
        grown.append(_Edges(radix, node[edge], rows[edge, k].astype(np.int32), children, int(node[-1]) + 1))
        node = child
    return _reduce(grown, tuple(range(len(radices))), ordered)
