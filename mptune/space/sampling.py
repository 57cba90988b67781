"""Samples of a space: uniform, stratified, and small sets that contain every value or every combination of some."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import ConstraintError, EmptySpaceError, MptuneError
from mptune.space.expressions import column_of

if TYPE_CHECKING:
    from mptune.space.search_space import SearchSpace

Indices = NDArray[np.int64]
#: How many configurations the greedy choice is among.
_POOL: Final = 4096
#: Spaces up to this size are listed, larger ones sampled this often.
_LISTED: Final = 2**18
_MOST_COMBINATIONS: Final = 2**16


def uniform(n: int, size: int, rng: np.random.Generator, exclude: Set[int] | None = None) -> Indices:
    """Return ``n`` distinct indices below ``size``, every subset equally likely, (n,).

    Fewer come back when fewer are left beside those in ``exclude``.
    """
    banned = np.fromiter(exclude, np.int64, len(exclude)) if exclude else np.empty(0, dtype=np.int64)
    banned = np.unique(banned[(banned >= 0) & (banned < size)])
    left = size - len(banned)
    ranks = rng.choice(left, min(n, left), replace=False).astype(np.int64) if left and n else banned[:0]
    # The r-th index that is not banned is r plus the number of banned ones before it.
    shifted = banned - np.arange(len(banned))
    return ranks + np.searchsorted(shifted, ranks, side="right")


def stratified(n: int, dimensions: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a Latin hypercube: one point in each of ``n`` equal slices of every dimension, (n, dimensions)."""
    slices = rng.permuted(np.tile(np.arange(n), (dimensions, 1)), axis=1).T
    return (slices + rng.random((n, dimensions))) / n


def covering(space: SearchSpace, rng: np.random.Generator) -> Indices:
    """Return few configurations that together contain every value of every parameter, (n,).

    The greedy cover (Chvatal 1979) from a uniform sample: always the configuration with the most values that are
    still missing. Values too rare for the sample are drawn from the space restricted to them; values that no valid
    configuration has are skipped. The space may be of any size; equal states of the generator give equal sets.
    """
    pool = space.sample(_POOL, rng)
    lacking = [_with_absent(space, [position], pool, rng) for position in range(len(space.parameters))]
    pool = np.concatenate([pool, *lacking])
    radices = [len(p.values) for p in space.parameters]
    # A slot for every value of every parameter; a row of slots for every configuration.
    slots = space.codes(pool) + np.cumsum([0, *radices[:-1]])
    missing = np.zeros(sum(radices), dtype=np.bool_)
    missing[slots] = True
    chosen = []
    while missing.any():
        best = int(np.argmax(missing[slots].sum(axis=1)))
        missing[slots[best]] = False
        chosen.append(pool[best])
    return np.array(chosen, dtype=np.int64)


def representatives(space: SearchSpace, names: Sequence[str], rng: np.random.Generator) -> Indices:
    """Return one random configuration for each valid combination of the values of some parameters, (n,).

    In ascending order of the combinations' value codes; the values of all other parameters are drawn.
    """
    positions = [space.parameters.index(space.parameter(name)) for name in names]
    if not positions:
        return space.sample(1, rng)
    pool = space.sample(min(space.size, _LISTED), rng)
    pool = np.concatenate([pool, _with_absent(space, positions, pool, rng)])
    _, first = np.unique(space.codes(pool)[:, positions], axis=0, return_index=True)
    return pool[first]


def _with_absent(space: SearchSpace, positions: Sequence[int], pool: Indices, rng: np.random.Generator) -> Indices:
    """Return a random configuration for each valid combination of some parameters' values that no one in a pool has."""
    if len(pool) == space.size:
        return pool[:0]
    parameters = [space.parameters[position] for position in positions]
    radices = [len(p.values) for p in parameters]
    n = math.prod(radices)
    if n > _MOST_COMBINATIONS:
        names = ", ".join(p.name for p in parameters)
        raise MptuneError(f"{n:,} combinations of {names} are more than can be listed ({_MOST_COMBINATIONS:,})")
    possible = np.ones(n, dtype=np.bool_)
    possible[np.ravel_multi_index(tuple(space.codes(pool)[:, positions].T), radices)] = False
    codes = np.unravel_index(np.arange(n), radices)
    columns = {p.name: column_of(list(p.values))[column] for p, column in zip(parameters, codes, strict=True)}
    for constraint in space.constraints:
        if constraint.names <= columns.keys():
            # It may fail for combinations that other constraints forbid; then it decides nothing.
            with contextlib.suppress(ConstraintError):
                possible &= constraint.mask(columns, n)
    found = []
    for row in np.stack(codes, axis=1)[possible].tolist():
        only = {p.name: (p.values[code],) for p, code in zip(parameters, row, strict=True)}
        with contextlib.suppress(EmptySpaceError):
            having = space.restrict(only, explains=False)
            index = space.index(having.configuration(int(having.sample(1, rng)[0])))
            assert index is not None
            found.append(index)
    return np.array(found, dtype=np.int64)
