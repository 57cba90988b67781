"""How much each parameter matters: what a model of the time loses when it does not know the parameter's value.

Permutation importance (Breiman 2001) of a random forest on the logarithm of the time, always on trials the forest has
not seen: each fold of a cross-validation in turn. The forest's determination of those trials (R²) says whether the
importances mean anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mptune.plots.metric_axis import Floats
from mptune.results import Trial
from mptune.space.parameters import Parameter

__all__ = ["LEAST_TRIALS", "Importance", "importance_of"]

#: Fewer trials do not determine a forest and a test of it.
LEAST_TRIALS: Final = 30
#: An R² below this means that the forest hardly knows more than the mean.
TRUSTED: Final = 0.3
_MOST_TRIALS: Final = 2000
_FOLDS: Final = 5
_TREES: Final = 40
_SHUFFLES: Final = 3
_SEED: Final = 0


@dataclass(frozen=True, slots=True)
class Importance:
    """Which parameters matter, the most important one first.

    Attributes:
        names: the parameters.
        means: how much R² is lost without the parameter's values, mean over folds, shape ``(n_parameters,)``.
        deviations: standard deviation over folds, same shape.
        r2: share of the variance of log time the forest explains in trials it has not seen, mean over folds.
        trials: how many trials that is of.
    """

    names: tuple[str, ...]
    means: Floats
    deviations: Floats
    r2: float
    trials: int

    @property
    def is_trusted(self) -> bool:
        """Whether the forest explains enough for the ranking to mean anything."""
        return self.r2 >= TRUSTED


def importance_of(parameters: Sequence[Parameter], trials: Sequence[Trial], values: Floats) -> Importance | None:
    """Return how much each parameter matters, None where there are fewer than :data:`LEAST_TRIALS` trials.

    Of more than 2,000 trials it looks at 2,000 drawn at random.

    Args:
        parameters: those with more than one value.
        trials: the trials.
        values: a positive number for each, such as its time; shape ``(n_trials,)``.
    """
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance
    from sklearn.model_selection import KFold

    if len(trials) < LEAST_TRIALS or not parameters:
        return None
    rng = np.random.default_rng(_SEED)
    chosen = np.sort(rng.permutation(len(trials))[:_MOST_TRIALS])
    features = np.array([_codes(parameters, trials[i]) for i in chosen], dtype=np.float64)
    target = np.log(values[chosen])
    losses, scores = [], []
    for known, unseen in KFold(_FOLDS, shuffle=True, random_state=_SEED).split(features):
        forest = RandomForestRegressor(_TREES, random_state=_SEED).fit(features[known], target[known])
        found = permutation_importance(
            forest, features[unseen], target[unseen], n_repeats=_SHUFFLES, random_state=_SEED, scoring="r2"
        )
        losses.append(found.importances_mean)
        scores.append(forest.score(features[unseen], target[unseen]))
    means, deviations = np.mean(losses, axis=0), np.std(losses, axis=0)
    order = np.argsort(-means, kind="stable")
    names = tuple(parameters[i].name for i in order)
    return Importance(names, means[order], deviations[order], float(np.mean(scores)), len(chosen))


def _codes(parameters: Sequence[Parameter], trial: Trial) -> list[int]:
    return [parameter.values.index(trial.configuration[parameter.name]) for parameter in parameters]
