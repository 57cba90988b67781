"""The tools of a benchmark, strategies of mptune and peers alike, and the target that runs them."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from benchmarks.bench import ROOT, digest_of
from benchmarks.search.cells import Results
from benchmarks.search.peers import PEERS
from benchmarks.search.problem import Problem, Recorder
from mptune.errors import MptuneError
from mptune.interop import read_run
from mptune.results.objective import Objective
from mptune.run import Run
from mptune.strategies import STRATEGIES
from mptune.tuning.simulation import Simulation, SimulationRun, simulate

__all__ = ["DEFAULT", "REPLAY", "Tool", "peer_tools", "replay", "simulations", "strategy_tools"]

#: The target of :func:`replay`.
REPLAY: Final = "benchmarks.search.tools:replay"


@dataclass(frozen=True, slots=True)
class Tool:
    """A strategy of mptune with its options, or a peer.

    Attributes:
        name: what a table calls it.
        strategy: name of the strategy, empty for a peer.
        options: hyperparameters of the strategy.
        penalty: what an inaccurate trial scores, for strategies.
    """

    name: str
    strategy: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    penalty: str = "decay"

    @property
    def is_peer(self) -> bool:
        """Whether it is somebody else's."""
        return not self.strategy

    @property
    def is_slow(self) -> bool:
        """Whether one run takes minutes."""
        return self.is_peer and PEERS[self.name].is_slow

    @property
    def missing(self) -> str:
        """Why it cannot be run here, empty when it can."""
        if self.is_peer:
            return "" if PEERS[self.name].is_installed else PEERS[self.name].install
        return "" if self.strategy in STRATEGIES else f"mptune has no strategy {self.strategy!r}"

    @property
    def version(self) -> str:
        """Version of what a replay runs."""
        return PEERS[self.name].version if self.is_peer else _fingerprint()

    @property
    def settings(self) -> dict[str, Any]:
        """What :func:`replay` needs to know of it."""
        if self.is_peer:
            return {"peer": self.name}
        return {"strategy": self.strategy, "options": dict(self.options), "penalty": self.penalty}


#: The strategy everything is compared with.
DEFAULT: Final = Tool("mptune bayesian", "bayesian")


def strategy_tools(names: Sequence[str]) -> list[Tool]:
    """Return a tool with default options for each strategy."""
    return [Tool(f"mptune {name}", name) for name in names]


def peer_tools(names: Sequence[str] | None = None) -> list[Tool]:
    """Return a tool for each peer, all of them by default."""
    return [Tool(name) for name in (PEERS if names is None else names)]


@lru_cache(maxsize=1)
def _fingerprint() -> str:
    return digest_of((ROOT / "mptune" / "strategies").rglob("*.py"))


def replay(settings: Mapping[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Return a function of the seed that runs a tool on a recorded space; the target of most jobs.

    Args:
        settings: ``space``: a file, or a pair of ``module:function`` and keyword arguments whose result is the
            recorded space; ``budget``; ``tool``: :attr:`Tool.settings`; ``objective`` ("time_ms") and ``max_error``
            (None).

    Returns:
        A function whose result holds ``best`` (best value after each evaluation, None while there is none),
        ``strategy_s`` (seconds spent searching), ``wall_s`` and, for a peer, ``proposals``.
    """
    recorded = _recorded(settings["space"])
    budget, tool = settings["budget"], settings["tool"]
    metric, max_error = settings.get("objective", "time_ms"), settings.get("max_error")
    if "peer" in tool:
        return _peer_replay(recorded, Objective(metric, threshold=max_error), budget, tool["peer"])

    def run(seed: int) -> dict[str, Any]:
        started = time.perf_counter()
        simulation = simulate(
            recorded,
            tool["strategy"],
            budget=budget,
            repeats=1,
            seed=seed,
            objective=metric,
            max_error=max_error,
            penalty=tool["penalty"],
            options=tool["options"],
        )
        (one,) = simulation.runs
        wall_s = time.perf_counter() - started
        return {"best": list(one.best), "strategy_s": one.strategy_s, "wall_s": wall_s}

    return run


def _peer_replay(recorded: Run, objective: Objective, budget: int, name: str) -> Callable[[int], dict[str, Any]]:
    problem = Problem.from_recorded(recorded, objective)
    peer = PEERS[name].prepare(problem)

    def run(seed: int) -> dict[str, Any]:
        recorder = Recorder(problem, budget)
        started = time.perf_counter()
        strategy_s = peer(recorder, seed)
        wall_s = time.perf_counter() - started
        return {
            "best": recorder.best,
            "strategy_s": wall_s if strategy_s is None else strategy_s,
            "wall_s": wall_s,
            "proposals": recorder.proposals,
        }

    return run


def _recorded(space: str | tuple[str, Mapping[str, Any]]) -> Run:
    if isinstance(space, str):
        return read_run(space)
    target, arguments = space
    module, _, name = target.partition(":")
    made = getattr(importlib.import_module(module), name)(**arguments)
    if not isinstance(made, Run):
        raise MptuneError(f"{target} made a {type(made).__name__}, not a recorded space")
    return made


def simulations(
    results: Results, spaces: Mapping[str, Run], tools: Sequence[str], budget: int, objective: Objective
) -> list[Simulation]:
    """Return the replays of the tools that have results on every space.

    Args:
        results: what :func:`replay` gave.
        spaces: recorded spaces by the name their jobs have.
        tools: names of the tools.
        budget: evaluations of each run.
        objective: what was optimised.
    """
    complete = [tool for tool in tools if all(results.of(space, tool) for space in spaces)]
    made = []
    for name, recorded in spaces.items():
        trials = recorded.trials
        best, worst = objective.best(trials), objective.worst(trials)
        for tool in complete:
            runs = tuple(
                SimulationRun(seed, tuple(result["best"]), None, result["strategy_s"])
                for seed, result in results.of(name, tool).items()
            )
            made.append(
                Simulation(
                    space=name,
                    strategy=tool,
                    budget=budget,
                    objective=objective,
                    optimum=None if best is None else objective.value(best),
                    optimum_configuration=None if best is None else best.configuration,
                    unit=recorded.info.unit_of(objective.metric),
                    configurations=recorded.space.size,
                    runs=runs,
                    worst=None if worst is None else objective.value(worst),
                )
            )
    return made
