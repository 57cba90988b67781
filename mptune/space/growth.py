"""Growing the tree of a group of co-dependent parameters, one parameter at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ConstraintError, EmptySpaceError
from mptune.expressions import Expression
from mptune.space.constraints import Constraint
from mptune.space.plan import Step
from mptune.space.reduction import Edges, reduce
from mptune.space.tree import Tree

__all__ = ["MAX_EDGES", "Domain", "grow"]

#: The most partial configurations held at once.
MAX_EDGES: Final = 20_000_000
_MAX_CANDIDATES: Final = 100 * MAX_EDGES
_BLOCK: Final = 2**16  # rows evaluated together: small enough to stay in cache, large enough to hide the overhead
_SMALL: Final = 4_096  # a table this small is worth it whatever the number of rows
_LARGEST_TABLE: Final = 2**26

#: Something evaluated for rows: columns by name, each (n,), and n.
Function = Callable[[Mapping[str, NDArray[Any]], int], NDArray[Any]]


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


def grow(steps: Sequence[Step], domains: Mapping[str, Domain]) -> Tree:
    """Return the tree of a group.

    Raises:
        EmptySpaceError: no combination is valid.
        ConstraintError: a constraint cannot be evaluated, or more than ``MAX_EDGES`` partial configurations are needed.
    """
    n, known = 1, dict[str, _Known]()
    grown: list[Edges] = []
    for step in steps:
        domain = domains[step.parameter]
        parents, chosen = _expand(step, domain, known, n)
        if not len(parents):
            raise EmptySpaceError(f"no combination of {', '.join(s.parameter for s in steps)} is valid")
        row = {name: quantity.take(parents) for name, quantity in known.items()}
        row[step.parameter] = _Known(chosen, domain.values[domain.codes])
        for name, expression in step.derived.items():
            row[name] = _evaluate(expression, row, len(parents))
        children, n_next, known = _merge_states({name: row[name] for name in step.live}, len(parents))
        grown.append(Edges(len(domain.values), parents, domain.codes[chosen], children, n))
        n = n_next
    used = [domains[step.parameter] for step in steps]
    return reduce(grown, tuple(domain.position for domain in used), tuple(domain.ordered for domain in used))


# -- one parameter more ----------------------------------------------------------------------------


def _expand(
    step: Step, domain: Domain, known: Mapping[str, _Known], n: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the valid pairs of a node and an allowed value, sorted by node and value: two arrays, (n_edges,)."""
    values = domain.values[domain.codes]
    if n * len(values) > _MAX_CANDIDATES:
        raise _too_large(step)
    filters = [(constraint, _table(constraint, step.parameter, values, known, n)) for constraint in step.filters]
    block = max(_BLOCK // len(values), 1)
    found: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []
    total = 0
    for start in range(0, n, block):
        stop = min(start + block, n)
        part = {name: _Known(q.codes[start:stop], q.values) for name, q in known.items()}
        mask = np.ones((stop - start, len(values)), dtype=np.bool_)
        for constraint, table in filters:
            names = sorted(constraint.names - {step.parameter})
            if table is not None:
                mask &= table[_keys([part[name] for name in names], stop - start)]
                continue
            rows, chosen = np.nonzero(mask)
            columns = {name: part[name].values[part[name].codes[rows]] for name in names}
            columns[step.parameter] = values[chosen]
            mask[rows, chosen] = constraint.mask(columns, len(rows))
        parents, chosen = np.nonzero(mask)
        found.append(((parents + start).astype(np.int32), chosen.astype(np.int32)))
        total += len(parents)
        if total > MAX_EDGES:
            raise _too_large(step)
    return np.concatenate([parents for parents, _ in found]), np.concatenate([chosen for _, chosen in found])


def _too_large(step: Step) -> ConstraintError:
    coupling = ", ".join(sorted({repr(constraint.text) for constraint in step.coupling}))
    return ConstraintError(
        f"more than {MAX_EDGES:,} partial configurations are needed at parameter {step.parameter}, "
        f"which {coupling} couples to others; split the constraint or shorten the lists of values"
    )


def _table(
    constraint: Constraint, parameter: str, values: NDArray[Any], known: Mapping[str, _Known], n: int
) -> NDArray[np.bool_] | None:
    """Return a constraint's truth for each combination of what it depends on, (n_combinations, m).

    None where the combinations are more than the nodes, or where the constraint fails for one of them: that one may
    not occur, so the constraint has to be asked about those that do.
    """
    names = sorted(constraint.names - {parameter})
    combinations = math.prod(len(known[name].values) for name in names)
    if combinations > max(n, _SMALL // len(values)) or combinations * len(values) > _LARGEST_TABLE:
        return None
    try:
        table = _tabulate(constraint.mask, [*names, parameter], [*(known[name].values for name in names), values])
    except ConstraintError:
        return None
    return table.reshape(combinations, len(values))


def _tabulate(function: Function, names: Sequence[str], values: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return a function's result for each combination of values, the last varying fastest."""
    shape = [len(column) for column in values]

    def columns(start: int, stop: int) -> dict[str, NDArray[Any]]:
        codes = np.unravel_index(np.arange(start, stop), shape)
        return {name: column[code] for name, column, code in zip(names, values, codes, strict=True)}

    return _in_blocks(function, columns, math.prod(shape))


def _in_blocks(function: Function, columns: Callable[[int, int], dict[str, NDArray[Any]]], n: int) -> NDArray[Any]:
    """Return a function's result for ``n`` rows, evaluated a block of rows at a time."""
    return np.concatenate(
        [function(columns(start, min(start + _BLOCK, n)), min(_BLOCK, n - start)) for start in range(0, n, _BLOCK)]
    )


def _keys(quantities: Sequence[_Known], n: int) -> NDArray[np.int64]:
    """Return one number for each row's combination of quantities, row-major, (n,)."""
    key = np.zeros(n, dtype=np.int64)
    for quantity in quantities:
        key = key * len(quantity.values) + quantity.codes
    return key


def _evaluate(expression: Expression, row: Mapping[str, _Known], n: int) -> _Known:
    """Return a quantity derived from others, for each of ``n`` rows."""
    used = sorted(expression.names)
    combinations = math.prod(len(row[name].values) for name in used)
    if combinations <= max(n, _SMALL):
        results = _tabulate(expression.evaluate_columns, used, [row[name].values for name in used])
        distinct, inverse = np.unique(results, return_inverse=True)
        return _Known(inverse.astype(np.int32)[_keys([row[name] for name in used], n)], distinct)

    def columns(start: int, stop: int) -> dict[str, NDArray[Any]]:
        return {name: row[name].values[row[name].codes[start:stop]] for name in used}

    distinct, inverse = np.unique(_in_blocks(expression.evaluate_columns, columns, n), return_inverse=True)
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
