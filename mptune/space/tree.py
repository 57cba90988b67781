"""The valid configurations as a product of independent factors, each indexed without listing what is in it.

Constraints split the parameters into groups that no constraint ties together. A parameter alone is a :class:`Choice`; a
group is a :class:`Tree`, in which each level belongs to one parameter, each edge to one of its values, and each path
from the root to a leaf to one valid combination (Rasch 2021; Hellsten 2023, Sec. 4.2). Equal subtrees are stored once,
and every edge knows how many leaves lie before it.

A tree is grown one parameter at a time. A constraint filters as soon as its last parameter has a value. Of the
parameters before, only what the constraints still pending depend on matters: parameters themselves, or parts of
expressions that can be evaluated already (of ``a * b * c <= n`` the product ``a * b``). Two partial configurations that
agree on all of it have the same completions and share one node of the tree.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ConstraintError, EmptySpaceError
from mptune.space.configuration import Value
from mptune.space.constraints import Constraint
from mptune.space.expressions import (
    Expression,
    Known,
    column_of,
    early_parts,
    free_names,
    known,
    known_of,
    regroup,
    replace_parts,
)
from mptune.space.parameters import Parameter

Integers = NDArray[np.int64]
#: The most partial configurations held at once.
MAX_EDGES: Final = 20_000_000
_MAX_CANDIDATES: Final = 100 * MAX_EDGES
_BLOCK: Final = 2**16  # rows evaluated together
_SMALL: Final = 4_096  # a table this small is worth it for any number of rows


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One parameter that depends on no other: the methods are those of a :class:`Tree` of one level."""

    positions: tuple[int]
    codes: NDArray[np.int32]  #: the codes it may have, ascending, (size,)
    ordered: bool

    @property
    def size(self) -> int:
        """The number of values it may have."""
        return len(self.codes)

    def decode(self, leaves: Integers) -> NDArray[np.int32]:
        """Return the codes of leaves, (n, 1) from (n,), or those of a single one, (1,)."""
        return self.codes[leaves, None]

    def encode(self, codes: NDArray[Any]) -> Integers:
        """Return the leaves with these codes, -1 if there is none, (n,) from (n, 1)."""
        wanted = codes[:, 0]
        found = np.minimum(self.codes.searchsorted(wanted), self.size - 1)
        return np.where(self.codes[found] == wanted, found, -1)

    def encode_one(self, codes: Sequence[int]) -> int:
        """Return :meth:`encode` of one row, faster."""
        found = int(self.codes.searchsorted(codes[0]))
        return found if found < self.size and int(self.codes[found]) == codes[0] else -1

    def descend(self, quantiles: NDArray[np.float64]) -> Integers:
        """Return the leaves at quantiles in [0, 1), (n,) from (n, 1)."""
        return np.minimum((quantiles[:, 0] * self.size).astype(np.int64), self.size - 1)

    walk = descend

    def nearest(self, codes: NDArray[Any], rng: np.random.Generator) -> Integers:
        """Return the leaves nearest to codes, (n,) from (n, 1); any for an invalid code without an order."""
        if not self.ordered:
            exact = self.encode(codes)
            return np.where(exact >= 0, exact, rng.integers(0, self.size, len(codes)))
        above = np.clip(np.searchsorted(self.codes, codes[:, 0]), 0, self.size - 1)
        below = np.maximum(above - 1, 0)
        up, down = np.abs(self.codes[above] - codes[:, 0]), np.abs(self.codes[below] - codes[:, 0])
        return np.where((down < up) | ((down == up) & (rng.random(len(codes)) < 0.5)), below, above).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """The edges of one level, sorted by node and within a node by code."""

    radix: int  #: the number of values of the level's parameter
    first: NDArray[Any]  #: the first edge of each node, and the number of edges, (n_nodes + 1,)
    keys: NDArray[Any]  #: ``node * radix + code`` of each edge, ascending, (n_edges,)
    children: NDArray[Any]  #: the node of the next level each edge leads to, (n_edges,)
    before: Integers  #: the leaves below all earlier edges of the level, and below all edges, (n_edges + 1,)

    def key(self, nodes: Integers, codes: NDArray[Any]) -> NDArray[Any]:
        """Return the keys of nodes and codes in the type the keys are stored in, (n,)."""
        return (nodes * self.radix + codes).astype(self.keys.dtype)  # type: ignore[no-any-return]


#: Returns the edges that rows take on a level: for their column, their nodes, and the first and last edge of each.
_Pick = Callable[[Level, NDArray[Any], Integers, Integers, Integers], NDArray[Any]]


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
        """Return the codes of leaves, (n, n_levels) from (n,), or those of a single one, (n_levels,)."""
        codes = np.empty((len(self.levels), *np.shape(leaves)), dtype=np.int32)
        node, target = leaves * 0, leaves
        for k, level in enumerate(self.levels):
            target = target + level.before[level.first[node]]
            edge = level.before.searchsorted(target, side="right") - 1
            codes[k] = level.keys[edge] % level.radix
            target = target - level.before[edge]
            node = level.children[edge]
        return codes.T

    def encode(self, codes: NDArray[Any]) -> Integers:
        """Return the numbers of the leaves with these codes (n, n_levels), -1 if there is none, (n,)."""
        possible = np.clip(codes, 0, [level.radix - 1 for level in self.levels])
        valid = (possible == codes).all(axis=1)

        def pick(level: Level, code: NDArray[Any], node: Integers, *_: Integers) -> NDArray[Any]:
            key = level.key(node, code)
            edge = np.minimum(level.keys.searchsorted(key), len(level.keys) - 1)
            np.logical_and(valid, level.keys[edge] == key, out=valid)
            return np.asarray(edge)

        return np.where(valid, self._follow(possible, pick), -1)

    def encode_one(self, codes: Sequence[int]) -> int:
        """Return :meth:`encode` of one row of codes that are within their parameters' values, faster."""
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

        def pick(level: Level, at: NDArray[Any], _: Integers, first: Integers, last: Integers) -> NDArray[Any]:
            low, high = level.before[first], level.before[last + 1]
            target = np.minimum(low + (at * (high - low)).astype(np.int64), high - 1)
            return np.asarray(np.searchsorted(level.before, target, side="right") - 1)

        return self._follow(quantiles, pick)

    def walk(self, quantiles: NDArray[np.float64]) -> Integers:
        """Return the leaves that quantiles in [0, 1) lead to, one for each level, (n,) from (n, n_levels).

        On each level the quantile picks among the branches of the node, however many leaves they have: independent
        uniform quantiles prefer leaves in the sparse parts of the tree (Hellsten 2023, Sec. 4.2, calls it biased).
        """
        return self._follow(
            quantiles,
            lambda _level, at, _node, first, last: np.minimum(first + (at * (last + 1 - first)).astype(np.int64), last),
        )

    def nearest(self, codes: NDArray[Any], rng: np.random.Generator) -> Integers:
        """Return leaves near codes that need not be valid, (n,) from (n, n_levels).

        Level by level the code is kept if it is valid, else the nearest in the parameter's order is taken (any
        for a parameter without one). Every node has leaves, so there is always a next value.
        """
        ordered = iter(self.ordered)

        def pick(level: Level, wanted: NDArray[Any], node: Integers, first: Integers, last: Integers) -> NDArray[Any]:
            key = level.key(node, wanted)
            above = np.clip(np.searchsorted(level.keys, key), first, last)
            below = np.clip(above - 1, first, last)
            up = np.abs(level.keys[above].astype(np.int64) - key.astype(np.int64))
            down = np.abs(level.keys[below].astype(np.int64) - key.astype(np.int64))
            edge = np.where((down < up) | ((down == up) & (rng.random(len(codes)) < 0.5)), below, above)
            if next(ordered):
                return edge
            return np.where(up == 0, above, first + rng.integers(0, last + 1 - first))

        return self._follow(np.clip(codes, 0, [level.radix - 1 for level in self.levels]), pick)

    def _follow(self, columns: NDArray[Any], pick: _Pick) -> Integers:
        """Return the numbers of the leaves that rows lead to, with a column for each level."""
        leaf, node = np.zeros(len(columns), dtype=np.int64), np.zeros(len(columns), dtype=np.int64)
        for level, column in zip(self.levels, columns.T, strict=True):
            first, last = level.first[node].astype(np.int64), level.first[node + 1].astype(np.int64) - 1
            edge = pick(level, column, node, first, last)
            leaf += level.before[edge] - level.before[first]
            node = level.children[edge].astype(np.int64)
        return leaf


#: Independent parameters, or a group of co-dependent ones; ``size`` valid combinations numbered from 0.
Factor = Choice | Tree


# -- factors of a space ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Domain:
    """One parameter while the tree is built: its values (radix,), and the codes of those allowed, ascending, (m,)."""

    position: int
    values: NDArray[Any]
    codes: NDArray[np.int32]
    ordered: bool

    @property
    def allowed(self) -> NDArray[Any]:
        return self.values[self.codes]


def build_factors(parameters: Sequence[Parameter], constraints: Sequence[Constraint]) -> list[Factor]:
    """Return the factors whose product are the valid configurations, in the order of their first parameters."""
    domains = {
        p.name: _Domain(i, column_of(list(p.values)), np.arange(len(p.values), dtype=np.int32), p.is_ordered)
        for i, p in enumerate(parameters)
    }
    allowed, pending = _settle(domains, constraints)
    factors: list[Factor] = []
    for group in _connected(list(allowed), pending):
        if len(group) == 1:
            domain = allowed[group[0]]
            factors.append(Choice((domain.position,), domain.codes, domain.ordered))
            continue
        own = [constraint for constraint in pending if constraint.names <= set(group)]
        values = {name: allowed[name].allowed for name in group}
        facts = {name: known_of(column.tolist()) for name, column in values.items()}
        try:
            factors.append(_grow(_make_plan(_order_parameters(values, own), own, facts), allowed))
        except MemoryError as error:
            raise ConstraintError(f"not enough memory for the combinations of {', '.join(group)}") from error
    return sorted(factors, key=lambda factor: min(factor.positions))


def _settle(
    domains: Mapping[str, _Domain], constraints: Sequence[Constraint]
) -> tuple[dict[str, _Domain], list[Constraint]]:
    """Apply the constraints on a single parameter, and replace parameters of one value by that value.

    Returns what each parameter may still be, and the constraints that tie several parameters together.
    """
    allowed = dict(domains)
    while True:
        values: dict[str, list[Value]] = {name: domain.allowed.tolist() for name, domain in allowed.items()}
        fixed = {name: found[0] for name, found in values.items() if len(found) == 1}
        facts = {name: known_of(found) for name, found in values.items()}
        pieces = [piece for constraint in constraints for piece in constraint.bind(fixed).split(facts)]
        for piece in pieces:
            if not piece.names and not piece.holds({}):
                raise EmptySpaceError(f"constraint {piece.text!r} never holds")
        alone = [piece for piece in pieces if len(piece.names) == 1]
        before = dict(allowed)
        for piece in sorted(alone, key=lambda piece: not piece.is_total(facts)):
            (name,) = piece.names
            domain = allowed[name]
            mask = piece.mask({name: domain.allowed}, len(domain.codes))
            if not mask.any():
                raise EmptySpaceError(f"constraint {piece.text!r} leaves no value of {name}")
            if not mask.all():
                allowed[name] = replace(domain, codes=domain.codes[mask])
        # A part that can fail repeats the parts before it, so there may be parts on a single parameter in every round.
        if allowed == before:
            return allowed, [piece for piece in pieces if len(piece.names) > 1]


def _connected(names: Sequence[str], constraints: Sequence[Constraint]) -> list[list[str]]:
    """Return the groups of names that constraints tie together, each in the order of ``names``."""
    group_of = {name: {name} for name in names}
    for constraint in constraints:
        merged: set[str] = set().union(*(group_of[name] for name in constraint.names))
        for name in merged:
            group_of[name] = merged
    groups = {id(group): group for group in group_of.values()}
    return [[name for name in names if name in group] for group in groups.values()]


# -- the order of a group's parameters, and what is remembered ------------------------------------------


@dataclass(frozen=True, slots=True)
class _Step:
    """What happens when one parameter gets its values."""

    parameter: str  #: the parameter's name
    filters: tuple[Constraint, ...]  #: the constraints that can be decided now; those that can fail come last
    derived: Mapping[str, Expression]  #: parts of expressions evaluated now, by the name they are remembered under
    live: tuple[str, ...]  #: names to remember after the step: earlier parameters, this one, derived parts
    coupling: str  #: the texts of the constraints this parameter appears in


def _make_plan(order: Sequence[str], constraints: Sequence[Constraint], facts: Mapping[str, Known]) -> list[_Step]:
    """Return the steps that give the parameters of a group their values, in this order."""
    pending = list(constraints)
    available: frozenset[str] = frozenset()
    steps: list[_Step] = []
    facts = dict(facts)

    @functools.cache  # most steps give a value to none of a constraint's names
    def early(tree: ast.expr, known_names: frozenset[str]) -> _Early:
        regrouped = regroup(tree, known_names, facts)
        parts = early_parts(regrouped, known_names, facts)
        return regrouped, parts, free_names(replace_parts(regrouped, dict.fromkeys(map(id, parts), "")))

    for parameter in order:
        available = available | {parameter}
        decided = [constraint for constraint in pending if constraint.names <= available]
        pending = [constraint for constraint in pending if not constraint.names <= available]
        filters = sorted(decided, key=lambda constraint: not constraint.is_total(facts))
        derived, pending = _derive(pending, available, f"{len(steps)}.", early)
        facts |= {name: known(part, facts) for name, part in derived.items()}
        needed = frozenset(name for constraint in pending for name in constraint.names)
        live = sorted((available | frozenset(derived)) & needed)
        coupling = ", ".join(sorted({repr(each.text) for each in constraints if parameter in each.names}))
        expressions = {name: Expression(ast.unparse(part), part) for name, part in derived.items()}
        steps.append(_Step(parameter, tuple(filters), expressions, tuple(live), coupling))
        available = frozenset(live)
    return steps


#: A tree regrouped to have large parts that can be evaluated early, these parts, and the names outside of them.
_Early = tuple[ast.expr, list[ast.expr], frozenset[str]]


def _derive(
    pending: Sequence[Constraint],
    available: frozenset[str],
    prefix: str,
    early: Callable[[ast.expr, frozenset[str]], _Early],
) -> tuple[dict[str, ast.expr], list[Constraint]]:
    """Return the parts of pending constraints that can be evaluated now, by new names, and the constraints over these.

    A part is not worth it if all its names have to be remembered anyway.
    """
    found: dict[Constraint, _Early] = {
        constraint: early(constraint.tree, available & constraint.names) for constraint in pending
    }
    kept = frozenset().union(*(outside for _, _, outside in found.values())) & available
    named: dict[str, tuple[str, ast.expr]] = {}
    rewritten: list[Constraint] = []
    for constraint in pending:
        tree, parts, _ = found[constraint]
        names: dict[int, str] = {}
        for part in parts:
            if not free_names(part) <= kept:
                names[id(part)], _ = named.setdefault(ast.dump(part), (f"{prefix}{len(named)}", part))
        rewritten.append(constraint.with_tree(replace_parts(tree, names)) if names else constraint)
    return dict(named.values()), rewritten


def _order_parameters(values: Mapping[str, NDArray[Any]], constraints: Sequence[Constraint]) -> list[str]:
    """Return an order that keeps the number of partial configurations low.

    Greedy from several starting parameters: next comes the parameter that leaves the fewest different states to
    remember, as estimated from the number of values and the share of combinations each constraint lets through.
    """
    shares = [(constraint.names, _share(constraint, values)) for constraint in constraints]
    logs = {name: math.log(len(column)) for name, column in values.items()}
    starts = sorted(values, key=lambda name: logs[name])[:12]
    return min((_greedy(start, logs, shares) for start in starts), key=lambda found: found[0])[1]


def _share(constraint: Constraint, values: Mapping[str, NDArray[Any]]) -> float:
    """Return the logarithm of the share of combinations a constraint lets through, a guess when they are many."""
    used = {name: values[name] for name in sorted(constraint.names)}
    if math.prod(map(len, used.values())) > 20_000 or constraint.functions:
        return math.log(0.5)
    try:
        mask = _tabulate(constraint.mask, used)
    except ConstraintError:
        return math.log(0.5)
    return math.log(max(float(mask.mean()), 1e-9))


def _greedy(
    start: str, logs: Mapping[str, float], shares: Sequence[tuple[frozenset[str], float]]
) -> tuple[float, list[str]]:
    order, left = [start], [name for name in logs if name != start]
    live, work = logs[start], math.exp(logs[start])

    def after(name: str) -> float:
        """Return the logarithm of the estimated number of states once ``name`` has its values."""
        known = {*order, name}
        passed = sum(share for names, share in pending if name in names and names <= known)
        needed = {other for names, _ in pending if not names <= known for other in names & known}
        # Its rounding does not depend on the order of a set, which differs between processes.
        return min(live + logs[name] + passed, math.fsum(logs[other] for other in needed))

    while left:
        pending = [(names, share) for names, share in shares if not names.issubset(order)]
        estimate, _, name = min((after(name), logs[name], name) for name in left)
        work += math.exp(min(live + logs[name], 700.0))
        live = estimate
        order.append(name)
        left.remove(name)
    return work, order


# -- growing the tree -----------------------------------------------------------------------------------

#: Something evaluated for rows: columns by name, each (n,), and n.
Function = Callable[[Mapping[str, NDArray[Any]], int], NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """One remembered quantity: its distinct values and, for each row, which one it has."""

    codes: NDArray[Any]
    values: NDArray[Any]

    def take(self, rows: NDArray[Any] | slice) -> _Known:
        return _Known(self.codes[rows], self.values)

    def column(self, rows: NDArray[Any] | slice) -> NDArray[Any]:
        return np.asarray(self.values[self.codes[rows]])


def _grow(steps: Sequence[_Step], domains: Mapping[str, _Domain]) -> Tree:
    n, known = 1, dict[str, _Known]()
    grown: list[Edges] = []
    for step in steps:
        domain = domains[step.parameter]
        parents, chosen = _expand(step, domain, known, n)
        if not len(parents):
            raise EmptySpaceError(f"no combination of {', '.join(s.parameter for s in steps)} is valid")
        inputs = known.keys() & {name for expression in step.derived.values() for name in expression.names}
        row = {name: known[name].take(parents) for name in inputs}
        row[step.parameter] = _Known(chosen, domain.allowed)
        for name, expression in step.derived.items():
            row[name] = _evaluate(expression, row, len(parents))
        of_nodes = {name: known[name] for name in step.live if name in known}
        of_edges = {name: row[name] for name in step.live if name not in known}
        children, n_next, known = _merge_states(of_nodes, n, parents, of_edges)
        grown.append(Edges(len(domain.values), parents, domain.codes[chosen], children, n))
        n = n_next
    used = [domains[step.parameter] for step in steps]
    return reduce(grown, tuple(domain.position for domain in used), tuple(domain.ordered for domain in used))


# -- one parameter more ----------------------------------------------------------------------------


def _expand(
    step: _Step, domain: _Domain, known: Mapping[str, _Known], n: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the valid pairs of a node and an allowed value, sorted by node and value: two arrays, (n_edges,)."""
    values = domain.allowed
    if n * len(values) > _MAX_CANDIDATES:
        raise _too_large(step)
    filters = [(constraint, _table(constraint, step.parameter, values, known, n)) for constraint in step.filters]
    block = max(_BLOCK // len(values), 1)
    found: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []
    total = 0
    for start in range(0, n, block):
        stop = min(start + block, n)
        part = {name: quantity.take(slice(start, stop)) for name, quantity in known.items()}
        mask = np.ones((stop - start, len(values)), dtype=np.bool_)
        for constraint, table in filters:
            names = sorted(constraint.names - {step.parameter})
            if table is not None:
                mask &= table[_keys([part[name] for name in names], stop - start)]
                continue
            rows, chosen = np.nonzero(mask)
            columns = {name: part[name].column(rows) for name in names}
            columns[step.parameter] = values[chosen]
            mask[rows, chosen] = constraint.mask(columns, len(rows))
        parents, chosen = np.nonzero(mask)
        found.append(((parents + start).astype(np.int32), chosen.astype(np.int32)))
        total += len(parents)
        if total > MAX_EDGES:
            raise _too_large(step)
    return np.concatenate([parents for parents, _ in found]), np.concatenate([chosen for _, chosen in found])


def _too_large(step: _Step) -> ConstraintError:
    return ConstraintError(
        f"more than {MAX_EDGES:,} partial configurations are needed at parameter {step.parameter}, "
        f"which {step.coupling} couples to others; split the constraint or shorten the lists of values"
    )


def _table(
    constraint: Constraint, parameter: str, values: NDArray[Any], known: Mapping[str, _Known], n: int
) -> NDArray[np.bool_] | None:
    """Return a constraint's truth for each combination of what it depends on, (n_combinations, m).

    None if there are more combinations than nodes, or if the constraint fails for one of them: that combination may
    not occur, so the constraint must be evaluated only for those that do.
    """
    names = sorted(constraint.names - {parameter})
    combinations = math.prod(len(known[name].values) for name in names)
    if combinations > max(n, _SMALL // len(values)) or combinations * len(values) > 2**26:
        return None
    try:
        table = _tabulate(constraint.mask, {**{name: known[name].values for name in names}, parameter: values})
    except ConstraintError:
        return None
    return table.reshape(combinations, len(values))


def _tabulate(function: Function, values: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return a function's result for each combination of values, the last varying fastest."""
    shape = [len(column) for column in values.values()]
    codes = np.unravel_index(np.arange(math.prod(shape)), shape)
    row = {name: _Known(code, values[name]) for name, code in zip(values, codes, strict=True)}
    return _in_blocks(function, row, math.prod(shape))


def _in_blocks(function: Function, row: Mapping[str, _Known], n: int) -> NDArray[Any]:
    """Return a function's result for ``n`` rows, evaluated a block of rows at a time."""
    parts = [slice(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)]
    return np.concatenate(
        [function({name: known.column(part) for name, known in row.items()}, part.stop - part.start) for part in parts]
    )


def _keys(quantities: Sequence[_Known], n: int) -> NDArray[np.int64]:
    """Return one number for each row's combination of quantities, row-major, (n,)."""
    key = np.zeros(n, dtype=np.int64)
    for quantity in quantities:
        key = key * len(quantity.values) + quantity.codes
    return key


def _evaluate(expression: Expression, row: Mapping[str, _Known], n: int) -> _Known:
    """Return a quantity derived from others, for each of ``n`` rows."""
    used = {name: row[name] for name in sorted(expression.names)}
    if math.prod(len(known.values) for known in used.values()) <= max(n, _SMALL):
        results = _tabulate(expression.evaluate_columns, {name: known.values for name, known in used.items()})
        distinct, inverse = np.unique(results, return_inverse=True)
        return _Known(inverse.astype(np.int32)[_keys(list(used.values()), n)], distinct)
    distinct, inverse = np.unique(_in_blocks(expression.evaluate_columns, used, n), return_inverse=True)
    return _Known(inverse.astype(np.int32), distinct)


def _merge_states(
    of_nodes: Mapping[str, _Known], n: int, parents: NDArray[np.int32], of_edges: Mapping[str, _Known]
) -> tuple[NDArray[np.int32], int, dict[str, _Known]]:
    """Give edges that agree on everything remembered one node of the next level.

    ``of_nodes`` and ``of_edges`` are the remembered values of the ``n`` parent nodes and of the edges. Returns the
    child node of each edge (n_edges,), the number of child nodes, and their remembered values.
    """
    keys, radix = _joined(np.zeros(n, dtype=np.int64), 1, of_nodes)
    keys, radix = _joined(keys[parents], radix, of_edges)
    nodes, n_nodes = _dense(keys, radix)
    edge = np.empty(n_nodes, dtype=np.intp)
    edge[nodes] = np.arange(len(parents))
    known = {name: quantity.take(parents[edge]) for name, quantity in of_nodes.items()}
    return nodes.astype(np.int32), n_nodes, known | {name: quantity.take(edge) for name, quantity in of_edges.items()}


def _joined(keys: NDArray[np.int64], radix: int, state: Mapping[str, _Known]) -> tuple[NDArray[np.int64], int]:
    """Return keys that differ where quantities do, and the number they are below."""
    for quantity in state.values():
        if radix * len(quantity.values) >= 2**62:
            keys, radix = _dense(keys, radix)
        keys = keys * len(quantity.values) + quantity.codes
        radix *= len(quantity.values)
    return keys, radix


def _dense(keys: NDArray[np.int64], radix: int) -> tuple[NDArray[np.int64], int]:
    """Renumber keys below ``radix`` as 0, 1, ... in their order; return them and their number."""
    if radix <= 8 * len(keys) + 10_000:
        occurs = np.zeros(radix, dtype=np.bool_)
        occurs[keys] = True
        numbers = np.cumsum(occurs) - 1
        return numbers[keys], int(numbers[-1]) + 1
    distinct, inverse = np.unique(keys, return_inverse=True)
    return inverse.astype(np.int64), len(distinct)


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
        if below.sum(dtype=np.float64) > 4e18:  # well below 2**63, so that it also shows in sums rounded to doubles
            raise ConstraintError("more than 4e+18 configurations are valid; shorten the lists of values")
        first = np.concatenate(([0], np.cumsum(np.bincount(parents, minlength=n_nodes))))
        keys = parents.astype(np.int64) * edges.radix + codes
        before = np.concatenate(([0], np.cumsum(below))).astype(np.int64)
        levels.append(Level(edges.radix, _compact(first), _compact(keys), _compact(children), before))
        leaves = np.diff(before[first])
    return Tree(positions, ordered, tuple(reversed(levels)))


def _compact(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers from 0 on in a small type, which holds the number after the largest, too."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0)) + 1), copy=False)


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
