"""The default strategy with one ingredient taken out.

Where no option does it, a stand-in takes the ingredient's place where the strategy looks it up, for as long as the
strategy is made; nobody who uses mptune has a reason to switch these off.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.driving import drive
from mptune.interop import read_run
from mptune.measure.base import Replay
from mptune.results.objective import Objective
from mptune.run import Run
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.base import Strategy
from mptune.strategies.model_based.coordinates import Coordinates, features
from mptune.strategies.model_based.error_model import Signatures
from mptune.strategies.model_based.models import Outcome, Validity
from mptune.strategies.model_based.strategy import Candidates

__all__ = ["TARGET", "VARIANTS", "Variant", "make_variant", "replay_variant"]

TARGET: Final = "benchmarks.search.ablated:replay_variant"

Floats = NDArray[np.float64]
Codes = NDArray[np.int32]


def _unaligned(space: SearchSpace) -> Coordinates:
    """Return the search space's own features alone."""
    with patch("mptune.strategies.model_based.coordinates.alignment", lambda _: None):
        return features(space)


class _EverythingRuns(Validity):
    """Learns of no failure."""

    def fit(self, candidates: Candidates, outcomes: Collection[Outcome]) -> None:
        """Learn nothing."""


class _ModelledOnly(Signatures):
    """Signatures of which nothing is known exactly: what was measured only teaches the model of errors."""

    def log_probability(self, codes: Codes) -> Floats:
        """Return what the model says, of measured signatures too."""
        _, first, inverse = np.unique(self.keys(codes), return_index=True, return_inverse=True)
        rows = codes[first][:, self.columns]
        return np.asarray(self._model.log_probability_below(rows, self._target)[inverse])


class _ReusedOnly(Signatures):
    """Signatures without a model: those measured are known exactly, all others may meet the threshold."""

    def log_probability(self, codes: Codes) -> Floats:
        """Return 0 for signatures that are not known to exceed the threshold."""
        return np.where(np.isneginf(super().log_probability(codes)), -np.inf, 0.0)


@dataclass(frozen=True, slots=True)
class Variant:
    """The default without something.

    Attributes:
        meaning: what is different.
        options: hyperparameters that take it out.
        stand_ins: what takes a class's place, by where the strategy looks it up.
        unsigned: whether the strategy is not told the accuracy signature.
        errors_only: whether it makes a difference only where there is a threshold.
    """

    meaning: str
    options: Mapping[str, Any] = field(default_factory=dict)
    stand_ins: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    unsigned: bool = False
    errors_only: bool = False


_VALIDITY: Final = "mptune.strategies.bayesian.Validity"
_SIGNATURES: Final = "mptune.strategies.bayesian.Signatures"
VARIANTS: Final[Mapping[str, Variant]] = MappingProxyType(
    {
        "warp": Variant("the log of the time as it is, bad values not compressed", {"warp": 0.0}),
        "fitted lengths": Variant("every length scale where its prior has it", {"length_spread": 1e-6}),
        "alignment": Variant(
            "the space's own features alone", stand_ins={"mptune.strategies.bayesian.features": _unaligned}
        ),
        "validity": Variant("nothing learnt of failures", stand_ins={_VALIDITY: _EverythingRuns}),
        "exact reuse": Variant(
            "measured signatures only teach the model of errors",
            stand_ins={_SIGNATURES: _ModelledOnly},
            errors_only=True,
        ),
        "error model": Variant(
            "measured signatures are known, all others may meet the threshold",
            stand_ins={_SIGNATURES: _ReusedOnly},
            errors_only=True,
        ),
        "signature": Variant(
            "not told the signature, so that errors are neither modelled nor reused", unsigned=True, errors_only=True
        ),
    }
)


def make_variant(
    name: str, space: SearchSpace, objective: Objective, signature: Sequence[str] = (), seed: int = 0
) -> Strategy:
    """Return the default strategy without one of :data:`VARIANTS`."""
    variant = VARIANTS[name]
    with ExitStack() as stack:
        for place, stand_in in variant.stand_ins.items():
            stack.enter_context(patch(place, stand_in))
        told = () if variant.unsigned else signature
        return make("bayesian", space, objective, signature=told, seed=seed, options=variant.options)


def replay_variant(settings: Mapping[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Return a function of the seed that replays a recording with a variant.

    Args:
        settings: ``space``: a file; ``budget``; ``variant``: a name of :data:`VARIANTS`; ``max_error``: the threshold,
            None for none.
    """
    recorded: Run = read_run(settings["space"])
    objective = recorded.derive(objective=Objective(threshold=settings["max_error"])).objective
    evaluator = Replay(recorded)

    def run(seed: int) -> dict[str, Any]:
        strategy = make_variant(settings["variant"], recorded.space, objective, recorded.info.signature, seed)
        driven = drive(strategy, lambda asked: list(evaluator.evaluate(asked)), settings["budget"])
        return {"best": list(driven.best), "strategy_s": sum(driven.seconds)}

    return run
