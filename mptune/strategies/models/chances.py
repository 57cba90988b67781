"""What may come of a configuration at all: the probability that it runs and is accurate enough."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.models.candidates import Candidates
from mptune.strategies.models.signatures import Signatures
from mptune.strategies.models.validity import ValidityModel

__all__ = ["Chances", "Outcome", "chosen"]

Array = NDArray[np.float64]
Learnt = TypeVar("Learnt", bound="Outcome")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a told trial means to the models.

    Attributes:
        features: of its configuration, shape ``(k,)``.
        value: log of the objective, lower is better; NaN where it is not known.
        failed: whether it did not run to its end with finite numbers, or broke a measured constraint.
        feasible: whether it ran and meets the threshold.
    """

    features: Array
    value: float
    failed: bool
    feasible: bool

    @property
    def is_known(self) -> bool:
        """Whether there is a value to learn from."""
        return not math.isnan(self.value)


def chosen(outcomes: Sequence[Learnt], most: int, rng: np.random.Generator) -> Sequence[Learnt]:
    """Return the outcomes a model holds: all, or of too many the best half and a random part of the rest."""
    if len(outcomes) <= most:
        return outcomes
    order = sorted(range(len(outcomes)), key=lambda i: (not outcomes[i].is_known, outcomes[i].value, i))
    half = most // 2
    rest = rng.permutation(order[half:])[: most - half]
    return [outcomes[i] for i in sorted([*order[:half], *rest.tolist()])]


class Chances:
    """Probability to be feasible, over a set of candidates and anywhere else.

    Args:
        n_features: features of a configuration.
        signatures: what is known of errors; None where they do not matter.
        iterations: of each fit of hyperparameters.
        max_observations: most the model of validity holds.
        rng: chooses which observations a full model leaves out.
    """

    def __init__(
        self,
        n_features: int,
        signatures: Signatures | None,
        *,
        iterations: int,
        max_observations: int,
        rng: np.random.Generator,
    ) -> None:
        self._signatures = signatures
        self._max_observations = max_observations
        self._rng = rng
        self._validity = ValidityModel(n_features, iterations)
        self._candidates: Candidates | None = None
        self._log_feasible: Array | float = 0.0
        self._version = -1

    def rebuild(self, candidates: Candidates, outcomes: Mapping[int, Outcome]) -> None:
        """Learn everything anew, over these candidates."""
        self._candidates = candidates
        self._version = -1
        self._fit(outcomes)

    def extend(self, new: Sequence[Outcome], outcomes: Mapping[int, Outcome]) -> None:
        """Learn some new outcomes of all there are, hyperparameters as they are."""
        if self._validity.is_fitted:
            for outcome in new:
                self._validity.append(outcome.features, outcome.failed)
        elif any(outcome.failed for outcome in new):
            self._fit(outcomes)

    def log_probability(self, allowed: NDArray[np.bool_]) -> Array:
        """Return the log of the probability of each candidate, ``-inf`` for those not allowed; ``(n_candidates,)``."""
        assert self._candidates is not None
        limit = np.where(allowed, self._validity.log_probability(), -math.inf)
        if self._signatures is not None:
            if self._version != self._signatures.version:
                self._log_feasible = self._signatures.log_probability(self._candidates.codes)
                self._version = self._signatures.version
            limit += self._log_feasible
        return limit

    def weigh(self, promise: Array, features: Array, codes: NDArray[np.int32]) -> Array:
        """Add to what other configurations promise the log of their probability.

        Args:
            promise: shape ``(n,)``.
            features: shape ``(n, k)``.
            codes: value codes, shape ``(n, d)``.
        """
        value = promise + self._validity.log_probability_at(features)
        if self._signatures is not None:
            value = value + self._signatures.log_probability(codes)
        return np.asarray(value)

    def _fit(self, outcomes: Mapping[int, Outcome]) -> None:
        failures = [o for o in outcomes.values() if o.failed]
        half = self._max_observations // 2
        if len(failures) > half:
            failures = [failures[i] for i in np.sort(self._rng.permutation(len(failures))[:half])]
        ran = [o for o in outcomes.values() if not o.failed]
        kept = [*failures, *chosen(ran, self._max_observations - len(failures), self._rng)]
        failed = np.array([o.failed for o in kept], dtype=np.bool_)
        assert self._candidates is not None
        self._validity.fit(np.array([o.features for o in kept]), failed, self._candidates.features)
