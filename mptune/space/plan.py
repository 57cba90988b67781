"""In which order the parameters of a group get their values, and what has to be remembered on the way.

Values are given one parameter at a time. A constraint filters as soon as its last parameter has a value. Of the
parameters before, only what the constraints still pending depend on matters: parameters themselves, or parts of
expressions that can be evaluated already (of ``a * b * c <= n`` the product ``a * b``). Two partial configurations
that agree on all of it have the same completions and share one node of the tree.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ConstraintError
from mptune.expressions import Expression
from mptune.expressions.analysis import Facts, early_parts, regroup, replace_parts
from mptune.expressions.syntax import free_names
from mptune.space.constraints import Constraint

__all__ = ["Step", "make_plan", "order_parameters"]

_SAMPLED: Final = 20_000
_STARTS: Final = 12


@dataclass(frozen=True, slots=True)
class Step:
    """What happens when one parameter gets its values.

    Attributes:
        parameter: the parameter's name.
        filters: the constraints that can be decided now; those that can fail come last.
        derived: parts of expressions evaluated now, by the name they are remembered under.
        live: names to remember after the step: earlier parameters, this one, derived parts.
        coupling: the constraints this parameter appears in.
    """

    parameter: str
    filters: tuple[Constraint, ...]
    derived: Mapping[str, Expression]
    live: tuple[str, ...]
    coupling: tuple[Constraint, ...]


def make_plan(order: Sequence[str], constraints: Sequence[Constraint], facts: Facts, derive: bool = True) -> list[Step]:
    """Return the steps that give the parameters of ``order`` their values.

    Args:
        order: the parameters of a group.
        constraints: the constraints of the group.
        facts: what holds for the parameters' values.
        derive: whether to remember parts of expressions in place of the parameters in them; it keeps large groups
            small, and for a small group takes longer than it saves.
    """
    pending = list(constraints)
    available: frozenset[str] = frozenset()
    steps: list[Step] = []
    for parameter in order:
        available = available | {parameter}
        decided = [constraint for constraint in pending if constraint.names <= available]
        pending = [constraint for constraint in pending if not constraint.names <= available]
        filters = sorted(decided, key=lambda constraint: not constraint.is_total(facts))
        derived: dict[str, Expression] = {}
        if derive:
            derived, pending, facts = _derive(pending, available, facts, prefix=f"{len(steps)}.")
        needed = frozenset(name for constraint in pending for name in constraint.names)
        live = sorted((available | frozenset(derived)) & needed)
        coupling = tuple(constraint for constraint in constraints if parameter in constraint.names)
        steps.append(Step(parameter, tuple(filters), derived, tuple(live), coupling))
        available = frozenset(live)
    return steps


def _derive(
    pending: list[Constraint], available: frozenset[str], facts: Facts, prefix: str
) -> tuple[dict[str, Expression], list[Constraint], Facts]:
    """Replace the parts of pending constraints that can be evaluated now by names of their own."""
    trees = {c: regroup(tree, available, facts) for c, tree in _expressions(pending)}
    parts = {c: early_parts(tree, available, facts) for c, tree in trees.items()}
    kept = _kept_names(pending, trees, parts, available)
    named: dict[str, tuple[str, ast.expr]] = {}
    rewritten: list[Constraint] = []
    for constraint in pending:
        worth = [part for part in parts.get(constraint, ()) if not free_names(part) <= kept]
        for part in worth:
            named.setdefault(ast.dump(part), (f"{prefix}{len(named)}", part))
        names = {id(part): named[ast.dump(part)][0] for part in worth}
        rewritten.append(constraint.with_tree(replace_parts(trees[constraint], names)) if names else constraint)
    for name, part in named.values():
        facts = facts.with_derived(name, part)
    return {name: Expression.from_tree(ast.unparse(part), part) for name, part in named.values()}, rewritten, facts


def _expressions(constraints: Sequence[Constraint]) -> list[tuple[Constraint, ast.expr]]:
    return [(c, c.predicate.tree) for c in constraints if isinstance(c.predicate, Expression)]


def _kept_names(
    pending: Sequence[Constraint],
    trees: Mapping[Constraint, ast.expr],
    parts: Mapping[Constraint, Sequence[ast.expr]],
    available: frozenset[str],
) -> frozenset[str]:
    """Return the names that have to be remembered as they are."""
    kept: set[str] = set()
    for constraint in pending:
        if constraint in trees:
            hidden = {id(part): "" for part in parts[constraint]}
            kept.update(free_names(replace_parts(trees[constraint], hidden)))
        else:
            kept.update(constraint.names)
    return frozenset(kept) & available


def order_parameters(values: Mapping[str, NDArray[Any]], constraints: Sequence[Constraint]) -> list[str]:
    """Return an order that keeps the number of partial configurations low.

    Greedy from several starting parameters: next comes the parameter that leaves the fewest different states to
    remember, as estimated from the number of values and the share of combinations each constraint lets through.

    Args:
        values: the values of each parameter of the group, in the order of the search space.
        constraints: the constraints of the group.
    """
    shares = [(constraint.names, _share(constraint, values)) for constraint in constraints]
    logs = {name: math.log(len(column)) for name, column in values.items()}
    starts = sorted(values, key=lambda name: logs[name])[:_STARTS]
    candidates = [_greedy(start, logs, shares) for start in starts]
    return min(candidates, key=lambda candidate: candidate[0])[1]


def _share(constraint: Constraint, values: Mapping[str, NDArray[Any]]) -> float:
    """Return the logarithm of the share of combinations a constraint lets through, a guess when they are many."""
    names = sorted(constraint.names)
    shape = [len(values[name]) for name in names]
    total = math.prod(shape)
    if total > _SAMPLED or not isinstance(constraint.predicate, Expression):
        return math.log(0.5)
    grids = np.unravel_index(np.arange(total), shape)
    try:
        mask = constraint.mask({name: values[name][grid] for name, grid in zip(names, grids, strict=True)}, total)
    except ConstraintError:
        return math.log(0.5)
    return math.log(max(float(mask.mean()), 1e-9))


def _greedy(
    start: str, logs: Mapping[str, float], shares: Sequence[tuple[frozenset[str], float]]
) -> tuple[float, list[str]]:
    order, left = [start], [name for name in logs if name != start]
    live, work = logs[start], math.exp(logs[start])
    while left:
        scored = [(_after(live, order, name, logs, shares), logs[name], name) for name in left]
        estimate, _, name = min(scored)
        work += math.exp(min(live + logs[name], 700.0))
        live = estimate
        order.append(name)
        left.remove(name)
    return work, order


def _after(
    live: float,
    order: Sequence[str],
    name: str,
    logs: Mapping[str, float],
    shares: Sequence[tuple[frozenset[str], float]],
) -> float:
    """Return the logarithm of the estimated number of states once ``name`` has its values."""
    known = {*order, name}
    passed = sum(share for names, share in shares if name in names and names <= known)
    needed = {other for names, _ in shares if not names <= known for other in names & known}
    return min(live + logs[name] + passed, sum(logs[other] for other in needed))
