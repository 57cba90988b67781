"""From parameters and constraints to the independent factors of a search space."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ConstraintError, EmptySpaceError
from mptune.expressions.analysis import Facts
from mptune.expressions.functions import column_of
from mptune.space.configuration import Value
from mptune.space.constraints import Constraint
from mptune.space.factors import Choice, Factor
from mptune.space.growth import Domain, grow
from mptune.space.parameters import Parameter
from mptune.space.plan import make_plan, order_parameters

__all__ = ["build_factors", "count"]

_LARGE: Final = 50_000  # combinations of a group from which on remembering parts of expressions pays


def build_factors(parameters: Sequence[Parameter], constraints: Sequence[Constraint]) -> list[Factor]:
    """Return the factors whose product are the valid configurations, in the order of their first parameters.

    Parameters that no constraint ties together are factors of their own; the others form groups, one tree each.

    Raises:
        EmptySpaceError: no configuration is valid.
        ConstraintError: a constraint cannot be evaluated or couples too many parameters.
    """
    domains = {
        p.name: Domain(i, column_of(list(p.values)), np.arange(len(p.values), dtype=np.int32), p.is_ordered)
        for i, p in enumerate(parameters)
    }
    allowed, pending = _settle(domains, list(constraints))
    groups = _connected(list(allowed), pending)
    factors: list[Factor] = []
    for group in groups:
        if len(group) == 1:
            domain = allowed[group[0]]
            factors.append(Choice(domain.position, domain.codes, domain.ordered))
        else:
            factors.append(_tree(group, allowed, [c for c in pending if c.names <= set(group)]))
    return sorted(factors, key=lambda factor: min(factor.positions))


def count(parameters: Sequence[Parameter], constraints: Sequence[Constraint]) -> int:
    """Return the number of valid configurations, 0 where there is none.

    Raises:
        ConstraintError: a constraint cannot be evaluated or couples too many parameters.
    """
    try:
        factors = build_factors(parameters, constraints)
    except EmptySpaceError:
        return 0
    size = 1
    for factor in factors:
        size *= factor.size
    return size


def _settle(domains: Mapping[str, Domain], constraints: list[Constraint]) -> tuple[dict[str, Domain], list[Constraint]]:
    """Apply the constraints on one parameter alone, and put single values in for their parameters.

    Returns what each parameter may still be, and the constraints that tie several parameters together.
    """
    allowed = dict(domains)
    fixed: dict[str, Value] = {}
    pending = constraints
    while True:
        fresh = {
            name: domain.values[domain.codes].tolist()[0]
            for name, domain in allowed.items()
            if len(domain.codes) == 1 and name not in fixed
        }
        fixed.update(fresh)
        facts = Facts.of({name: domain.values[domain.codes].tolist() for name, domain in allowed.items()})
        pending = [piece for constraint in pending for piece in constraint.bind(fresh).split(facts)]
        for constraint in pending:
            if not constraint.names and not constraint.holds({}):
                raise EmptySpaceError(f"constraint {constraint.text!r} never holds")
        alone = [constraint for constraint in pending if len(constraint.names) == 1]
        pending = [constraint for constraint in pending if len(constraint.names) > 1]
        if not alone:
            return allowed, pending
        for constraint in sorted(alone, key=lambda constraint: not constraint.is_total(facts)):
            (name,) = constraint.names
            allowed[name] = _restricted(allowed[name], name, constraint)


def _restricted(domain: Domain, name: str, constraint: Constraint) -> Domain:
    mask = constraint.mask({name: domain.values[domain.codes]}, len(domain.codes))
    if not mask.any():
        raise EmptySpaceError(f"constraint {constraint.text!r} leaves no value of {name}")
    return Domain(domain.position, domain.values, domain.codes[mask], domain.ordered)


def _connected(names: Sequence[str], constraints: Sequence[Constraint]) -> list[list[str]]:
    """Return the groups of names that constraints tie together, each in the order of ``names``."""
    group_of = {name: {name} for name in names}
    for constraint in constraints:
        merged: set[str] = set().union(*(group_of[name] for name in constraint.names))
        for name in merged:
            group_of[name] = merged
    groups: list[list[str]] = []
    placed: set[str] = set()
    for name in names:
        if name not in placed:
            groups.append([other for other in names if other in group_of[name]])
            placed |= group_of[name]
    return groups


def _tree(group: Sequence[str], allowed: Mapping[str, Domain], constraints: Sequence[Constraint]) -> Factor:
    values: dict[str, NDArray[Any]] = {name: allowed[name].values[allowed[name].codes] for name in group}
    facts = Facts.of({name: column.tolist() for name, column in values.items()})
    is_large = math.prod(len(column) for column in values.values()) >= _LARGE
    plan = make_plan(order_parameters(values, constraints), constraints, facts, derive=is_large)
    try:
        return grow(plan, allowed)
    except MemoryError as error:
        raise ConstraintError(f"not enough memory for the combinations of {', '.join(group)}") from error
