"""Configurations as numbers: the columns a model sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mptune.precision import precision
from mptune.space.parameters import (
    BooleanParameter,
    CategoricalParameter,
    Parameter,
    PermutationParameter,
    PrecisionParameter,
)

__all__ = ["Encoding", "embed"]

Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """One table of numbers in [0, 1] for each parameter.

    Numbers are encoded by value (by log2 where the scale is logarithmic), truth values as 0 and 1, categories one-hot,
    a precision by log2 of its unit roundoff and log2 of its bytes, other ordered values by rank, a permutation by the
    position of each of its elements. Each column is scaled to [0, 1] over the parameter's values; a column that is
    the same for all of them says nothing and is left out.

    Attributes:
        names: the column names, (n_features,).
        parameters: the parameter each column belongs to, (n_features,).
        tables: for each parameter the columns of each of its values, (n_values, n_columns).
    """

    names: tuple[str, ...]
    parameters: tuple[str, ...]
    tables: tuple[Table, ...]

    @classmethod
    def of(cls, parameters: Sequence[Parameter]) -> Encoding:
        """Return the encoding of parameters."""
        names: list[str] = []
        owners: list[str] = []
        tables: list[Table] = []
        for parameter in parameters:
            columns = [(name, _scaled(column)) for name, column in _columns(parameter) if np.ptp(column) > 0]
            names.extend(name for name, _ in columns)
            owners.extend(parameter.name for _ in columns)
            empty = np.empty((len(parameter.values), 0))
            tables.append(np.stack([column for _, column in columns], axis=1) if columns else empty)
        return cls(tuple(names), tuple(owners), tuple(tables))

    def encode(self, codes: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the features of value codes, (n, n_features) from (n, n_parameters)."""
        features = np.empty((len(codes), len(self.names)))
        at = 0
        for table, column in zip(self.tables, codes.T, strict=True):
            width = table.shape[1]
            if width:
                features[:, at : at + width] = table[column]
            at += width
        return features


def _scaled(column: Table) -> Table:
    low, high = float(column.min()), float(column.max())
    return (column - low) / (high - low)


def _columns(parameter: Parameter) -> list[tuple[str, Table]]:
    """Return the names and unscaled columns of one parameter, each (n_values,)."""
    name, values = parameter.name, parameter.values
    if isinstance(parameter, PrecisionParameter):
        entries = [precision(str(value)) for value in values]
        roundoffs = np.log2([entry.unit_roundoff for entry in entries])
        return [(f"{name}.roundoff", roundoffs), (f"{name}.bytes", np.log2([entry.size_bytes for entry in entries]))]
    if isinstance(parameter, PermutationParameter):
        orders = np.array(values, dtype=np.float64)
        return [(f"{name}[{k}]", np.argsort(orders, axis=1)[:, k].astype(np.float64)) for k in range(orders.shape[1])]
    if isinstance(parameter, CategoricalParameter):
        return [(f"{name}={value}", (np.arange(len(values)) == k).astype(np.float64)) for k, value in enumerate(values)]
    if parameter.is_numeric or isinstance(parameter, BooleanParameter):
        numbers = np.array(values, dtype=np.float64)
        return [(name, np.log2(numbers) if parameter.log_scale else numbers)]
    return [(name, np.arange(len(values), dtype=np.float64))]


def embed(codes: NDArray[np.int32], parameters: Sequence[Parameter]) -> NDArray[np.float64]:
    """Return codes embedded in the unit cube, (n, d): Heldens 2026, Sec. III-E.

    Value ``j`` of a parameter becomes ``(j + 0.5) / m`` with ``m`` the largest number of values of any parameter, so
    that a step of ``1 / m`` is another value in every dimension.
    """
    largest = max(len(parameter.values) for parameter in parameters)
    return (codes.astype(np.float64) + 0.5) / largest
