"""The strategies of the paper as they are called and set here: Table III (Heldens 2026, Sec. V-D)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from benchmarks.reproductions.heldens.replays import Searcher

__all__ = ["DEFAULT", "RANDOM", "STRATEGIES"]

#: The paper's strategies by its names, with its settings where they are known, and mptune's default.
STRATEGIES: Final[Mapping[str, Searcher]] = MappingProxyType(
    {
        searcher.name: searcher
        for searcher in (
            Searcher("Rand", "random"),
            Searcher("GA", "genetic"),
            Searcher("PSO", "particle-swarm"),
            Searcher("MLS", "local-search"),
            Searcher("BO", "bayesian-multi", options={"method": "multi-ultrafast"}),
            Searcher("BH", "basin-hopping", options={"temperature": 1.0}),
            Searcher("FF", "firefly"),
            Searcher("SA", "simulated-annealing", options={"evaluations": 0}),
            Searcher("mptune bayesian", "bayesian"),
        )
    }
)
RANDOM: Final = STRATEGIES["Rand"]
DEFAULT: Final = STRATEGIES["mptune bayesian"]
