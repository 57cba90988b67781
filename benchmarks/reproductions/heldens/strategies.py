"""The strategies of the paper as they are called and set here: Table III (Heldens 2026, Sec. V-D)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from benchmarks.reproductions.heldens.replays import Searcher
from benchmarks.reproductions.item import Cell as Shown
from benchmarks.reproductions.item import Given, Outcome, Table
from mptune.strategies import STRATEGIES as KNOWN

__all__ = ["DEFAULT", "RANDOM", "STRATEGIES", "h_t3", "settings_of"]

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


@dataclass(frozen=True, slots=True)
class Setting:
    """A hyperparameter of Table III.

    Attributes:
        name: as the paper calls it.
        value: in the paper.
        option: of the strategy here, empty where it has none.
        shown: turns the option's value into what the paper gives.
        why: what differs, where it does.
    """

    name: str
    value: str
    option: str = ""
    shown: Callable[[Any], str] = str
    why: str = ""


_UNTIL_SPENT: Final = "goes on until the budget is spent"
#: The settings of each strategy, by the paper's names.
_TABLE_III: Final[Mapping[str, tuple[Setting, ...]]] = MappingProxyType(
    {
        "Rand": (Setting("fraction", "1.0", why="draws one after the other from the whole space"),),
        "GA": (
            Setting("method", "single-point", "crossover", lambda value: value.replace("_", "-")),
            Setting("population size", "26", "population"),
            Setting("mutation chance", "55", "mutation", lambda value: f"{value:g}"),
            Setting("max. iterations", "90", why=_UNTIL_SPENT),
        ),
        "PSO": (
            Setting("population size", "50", "population"),
            Setting("max. iterations", "190", why=_UNTIL_SPENT),
            Setting("w", "0.5", "inertia"),
            Setting("c1", "3.5", "cognitive"),
            Setting("c2", "1.0", "social"),
        ),
        "MLS": (
            Setting(
                "neighbor",
                "Hamming-adjacent",
                "neighbourhood",
                why="neighbours differ in one parameter, by any value",
            ),
        ),
        "BO": (
            Setting("covariance kernel", "matern32", "covariance"),
            Setting("covariance scale", "1.5", "length_scale"),
            Setting(
                "sampling method",
                "LHS",
                "sampling",
                why="of several Latin hypercubes the one whose smallest distance is largest (Willemsen 2021)",
            ),
            Setting("population size", "20", "initial"),
            Setting("method", "multi-ultrafast", "method"),
        ),
        "BH": (
            Setting(
                "method", "L-BFGS-B", why="climbs among valid neighbours: times of configurations have no gradient"
            ),
            Setting("temperature", "1.0", "temperature", why="relative to the score that is lost, not absolute"),
        ),
        "FF": (
            Setting("population size", "20", "population"),
            Setting("max. iterations", "100", why=_UNTIL_SPENT),
            Setting("B0", "1.0", "attraction"),
            Setting("gamma", "1.0", "absorption"),
            Setting("alpha", "0.2", "randomness"),
        ),
        "SA": (
            Setting("T", "0.1", "start_temperature"),
            Setting("T min", "0.001", "end_temperature"),
            Setting("alpha", "0.9975", why="as the paper scales it: from both temperatures to the end of the budget"),
            Setting("max. iterations", "1", why=_UNTIL_SPENT),
        ),
    }
)


def settings_of(name: str) -> list[tuple[Setting, str | None, str | None]]:
    """Return the settings of a strategy of the paper, each with its value here in replays and by default; None where
    there is no such option.
    """
    searcher = STRATEGIES[name]
    by_default = KNOWN[searcher.strategy].options_class()
    found: list[tuple[Setting, str | None, str | None]] = []
    for each in _TABLE_III[name]:
        if each.option:
            default = getattr(by_default, each.option)
            replayed = searcher.options.get(each.option, default)
            found.append((each, each.shown(replayed), each.shown(default)))
        else:
            found.append((each, None, None))
    return found


def h_t3(given: Given) -> Outcome:
    """Return the hyperparameters of the eight strategies."""
    del given
    rows: list[tuple[Shown, ...]] = []
    for name in _TABLE_III:
        for setting, replayed, default in settings_of(name):
            is_same = replayed == setting.value and not setting.why
            option = f"{setting.option} = {replayed}" if setting.option else None
            other = default if default != replayed else None
            shown = ("yes" if is_same else "**no**", setting.why)
            rows.append((name, setting.name, setting.value, STRATEGIES[name].strategy, option, other, *shown))
    same = sum(row[-2] == "yes" for row in rows)
    return Outcome(
        f"{same} of {len(rows)} settings are the paper's in the replays of Figs. 4 to 10.",
        (
            Table(
                "Hyperparameters of the strategies, here in replays, and by default where that differs",
                ("paper", "hyperparameter", "value", "strategy here", "option here", "default", "the same", "remarks"),
                tuple(rows),
            ),
        ),
        (
            "A budget of unique evaluations ends a search here, so no strategy has a number of iterations.",
            "Not in the paper's table: nsga2, differential-evolution, bayesian-baco and bayesian, the default.",
        ),
    )
