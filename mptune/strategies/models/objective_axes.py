"""What is believed of each of several objectives: modelled, reused by accuracy signature, or known beforehand.

Every axis has units of its own in which less is better; fronts are compared in them, one axis beside the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.objective import LEAST_VALUE
from mptune.space.search_space import SearchSpace
from mptune.strategies.base import Known
from mptune.strategies.models.candidates import Candidates
from mptune.strategies.models.chances import Outcome
from mptune.strategies.models.signatures import Signatures
from mptune.strategies.models.value_model import ValueModel

__all__ = ["Axis", "ErrorAxis", "KnownAxis", "ModelledAxis", "SeveralOutcome"]

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

#: Smallest deviations of an error and of what is known, in decades; errors of a signature differ by the order of sums.
_LEAST_ERROR_DEVIATION: Final = 1e-3
_LEAST_DEVIATION: Final = 1e-6
#: Stands for the log10 of an error that is not finite.
_NEVER: Final = 1e3


@dataclass(frozen=True, slots=True)
class SeveralOutcome(Outcome):
    """What a told trial means to the models of several objectives.

    Attributes:
        levels: log10 of each objective, NaN where it is not known, shape ``(n_objectives,)``.
        codes: value codes of its configuration, shape ``(d,)``.
    """

    levels: Array
    codes: Codes


class Axis(ABC):
    """One objective."""

    @abstractmethod
    def fit(self, candidates: Candidates, known: Sequence[SeveralOutcome]) -> None:
        """Learn everything anew."""

    @abstractmethod
    def at_candidates(self) -> tuple[Array, Array]:
        """Return mean and standard deviation at the candidates, each ``(n_candidates,)``."""

    @abstractmethod
    def at(self, features: Array, codes: Codes) -> tuple[Array, Array]:
        """Return mean and standard deviation at other configurations, features ``(n, k)``, value codes ``(n, d)``."""

    @abstractmethod
    def of(self, outcomes: Sequence[SeveralOutcome]) -> Array:
        """Return where outcomes are, NaN where that is not known, shape ``(n,)``."""

    def append(self, outcome: SeveralOutcome) -> None:  # noqa: B027 - optional
        """Learn one more outcome."""

    def imagine(self, features: Array) -> None:  # noqa: B027 - optional
        """Count a configuration as if it had been observed to be what is expected; features ``(k,)``."""

    def forget_imagined(self) -> None:  # noqa: B027 - optional
        """Take back what was imagined."""


class ModelledAxis(Axis):
    """An objective that depends on all parameters, by a Gaussian process.

    Args:
        position: of the objective among all.
        model: of its logarithm.
    """

    def __init__(self, position: int, model: ValueModel) -> None:
        self._position = position
        self._model = model

    def fit(self, candidates: Candidates, known: Sequence[SeveralOutcome]) -> None:
        """Fit the model anew."""
        seen = [o for o in known if not np.isnan(o.levels[self._position])]
        x = np.array([o.features for o in seen])
        self._model.rebuild(candidates.features, x, np.array([o.levels[self._position] for o in seen]))

    def append(self, outcome: SeveralOutcome) -> None:
        """Add an observation."""
        if not np.isnan(outcome.levels[self._position]):
            self._model.append(outcome.features, float(outcome.levels[self._position]))

    def imagine(self, features: Array) -> None:
        """Add the mean as an observation."""
        self._model.imagine(features)

    def forget_imagined(self) -> None:
        """Take back what was imagined."""
        self._model.forget_imagined()

    def at_candidates(self) -> tuple[Array, Array]:
        """Return the posterior at the candidates."""
        return self._model.mean, self._model.deviation

    def at(self, features: Array, codes: Codes) -> tuple[Array, Array]:  # noqa: ARG002 - features say it all
        """Return the posterior elsewhere."""
        return self._model.predict(features)

    def of(self, outcomes: Sequence[SeveralOutcome]) -> Array:
        """Return what was observed, on the scale of the model."""
        return self._model.scale.apply(np.array([o.levels[self._position] for o in outcomes]))


class ErrorAxis(Axis):
    """An error, which depends on the accuracy signature alone; a measured one is known of all its configurations.

    Args:
        signatures: what is known of errors, kept up to date by the strategy.
    """

    def __init__(self, signatures: Signatures) -> None:
        self._signatures = signatures
        self._codes: Codes = np.empty((0, 0), dtype=np.int32)
        self._found: tuple[Array, Array] = (np.empty(0), np.empty(0))
        self._version = -1

    def fit(self, candidates: Candidates, known: Sequence[SeveralOutcome]) -> None:  # noqa: ARG002
        """Take the candidates."""
        self._codes, self._version = candidates.codes, -1

    def at_candidates(self) -> tuple[Array, Array]:
        """Return log10 error, looked up anew when a signature has been measured."""
        if self._version != self._signatures.version:
            self._found, self._version = self._levels(self._codes), self._signatures.version
        return self._found

    def at(self, features: Array, codes: Codes) -> tuple[Array, Array]:  # noqa: ARG002 - the signature says it all
        """Return log10 error elsewhere."""
        return self._levels(codes)

    def of(self, outcomes: Sequence[SeveralOutcome]) -> Array:
        """Return log10 error of the signatures, so that siblings differ in the other objectives alone."""
        return self._levels(np.array([o.codes for o in outcomes]))[0] if outcomes else np.empty(0)

    def _levels(self, codes: Codes) -> tuple[Array, Array]:
        means, deviations = self._signatures.levels(codes)
        return np.minimum(means, _NEVER), np.maximum(deviations, _LEAST_ERROR_DEVIATION)


class KnownAxis(Axis):
    """An objective known without running, such as the memory footprint.

    Args:
        position: of the objective among all.
        known: gives it for indices of the space.
        space: the search space.
    """

    def __init__(self, position: int, known: Known, space: SearchSpace) -> None:
        self._position = position
        self._known = known
        self._space = space
        self._found: tuple[Array, Array] = (np.empty(0), np.empty(0))

    def fit(self, candidates: Candidates, known: Sequence[SeveralOutcome]) -> None:  # noqa: ARG002
        """Look up the candidates."""
        self._found = self._levels(candidates.indices)

    def at_candidates(self) -> tuple[Array, Array]:
        """Return its logarithm."""
        return self._found

    def at(self, features: Array, codes: Codes) -> tuple[Array, Array]:  # noqa: ARG002
        """Return its logarithm elsewhere."""
        return self._levels(self._space.indices_of(codes))

    def of(self, outcomes: Sequence[SeveralOutcome]) -> Array:
        """Return its logarithm at outcomes."""
        return np.array([o.levels[self._position] for o in outcomes])

    def _levels(self, indices: NDArray[np.int64]) -> tuple[Array, Array]:
        level = np.log10(np.maximum(self._known(indices), LEAST_VALUE))
        return level, np.full(len(level), _LEAST_DEVIATION)
