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

Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """One table of numbers in [0, 1] for each parameter.

    Numbers are encoded by value (by log2 if the scale is logarithmic), truth values as 0 and 1, categories one-hot,
    a precision by log2 of its unit roundoff, of its bytes and of its operations, other ordered values by rank, a
    permutation by the position of each of its elements. Each column is scaled to [0, 1] over the parameter's values; a
    column that is the same for all of them says nothing and is left out.
    """

    tables: tuple[Table, ...]  #: for each parameter the columns of each of its values, (n_values, n_columns)

    @classmethod
    def of(cls, parameters: Sequence[Parameter]) -> Encoding:
        """Return the encoding of parameters."""
        tables = []
        for parameter in parameters:
            columns = [_scaled(column) for column in _columns(parameter) if np.ptp(column) > 0]
            tables.append(np.stack(columns, axis=1) if columns else np.empty((len(parameter.values), 0)))
        return cls(tuple(tables))

    def encode(self, codes: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the features of value codes, (n, n_features) from (n, n_parameters)."""
        features = np.empty((len(codes), sum(table.shape[1] for table in self.tables)))
        at = 0
        for table, column in zip(self.tables, codes.T, strict=True):
            width = table.shape[1]
            features[:, at : at + width] = table[column]
            at += width
        return features


def _scaled(column: Table) -> Table:
    low, high = float(column.min()), float(column.max())
    return (column - low) / (high - low)


def _columns(parameter: Parameter) -> list[Table]:
    """Return the unscaled columns of one parameter, each (n_values,)."""
    values = parameter.values
    if isinstance(parameter, PrecisionParameter):
        entries = [precision(str(value)) for value in values]
        figures = [(p.unit_roundoff, p.size_bytes, p.flops_of_fma) for p in entries]
        return list(np.log2(np.array(figures, dtype=np.float64)).T)
    if isinstance(parameter, PermutationParameter):
        return list(np.argsort(np.array(values, dtype=np.float64), axis=1).astype(np.float64).T)
    if isinstance(parameter, CategoricalParameter):
        return list(np.eye(len(values)))
    if parameter.is_numeric or isinstance(parameter, BooleanParameter):
        numbers = np.array(values, dtype=np.float64)
        return [np.log2(numbers) if parameter.log_scale else numbers]
    return [np.arange(len(values), dtype=np.float64)]
