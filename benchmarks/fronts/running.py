"""What is run on each recorded space: a strategy of mptune or a peer, for one set of objectives."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from benchmarks.fronts.problem import FrontProblem, FrontRecorder
from benchmarks.search.tools import DEFAULT
from mptune.interop import read_run
from mptune.tuning.simulation import simulate

__all__ = ["OURS", "TOOLS", "Tool", "replay"]

#: The tool everything is compared with.
OURS: Final = "mptune bayesian-pareto"


@dataclass(frozen=True, slots=True)
class Tool:
    """A strategy of mptune, or a peer.

    Attributes:
        name: what a table calls it.
        strategy: name of the strategy, empty for a peer.
        adapter: of a peer, the module whose ``prepare(problem)`` returns a function of a recorder and a seed.
        distribution: what pip installs.
        module: what it is imported as.
        setup: how a peer is set up.
    """

    name: str
    strategy: str = ""
    adapter: str = ""
    distribution: str = ""
    module: str = ""
    setup: str = ""

    @property
    def is_installed(self) -> bool:
        """Whether it can be run here."""
        return bool(self.strategy) or importlib.util.find_spec(self.module) is not None

    @property
    def version(self) -> str:
        """Version of everything a result depends on beside the space."""
        if self.strategy:
            return DEFAULT.version
        folder = Path(__file__).parent
        sources = b"".join((folder / f"{name}.py").read_bytes() for name in (self.adapter, "problem"))
        return f"{importlib.metadata.version(self.distribution)}+{hashlib.sha256(sources).hexdigest()[:8]}"


TOOLS: Final[Mapping[str, Tool]] = MappingProxyType(
    {
        tool.name: tool
        for tool in (
            Tool(OURS, "bayesian-pareto"),
            Tool("mptune nsga2", "nsga2"),
            Tool("mptune random", "random"),
            Tool(
                "pymoo NSGA-II",
                adapter="peer_pymoo",
                distribution="pymoo",
                module="pymoo",
                setup="integer genes, SBX, polynomial mutation and rounding repair as in its documentation of discrete "
                "variables, population 20; first population drawn from the recorded configurations, others violate a "
                "constraint and cost no evaluation, nor does a repeated one",
            ),
            Tool(
                "Kernel Tuner nsga2",
                adapter="peer_kernel_tuner",
                distribution="kernel-tuner",
                module="kernel_tuner",
                setup="its only released multi-objective strategies are nsga2 and nsga3, which are pymoo's with "
                "operators and a repair of its own; default hyperparameters (population 20), simulation mode, "
                "restricted to the recorded configurations",
            ),
        )
    }
)


def replay(settings: Mapping[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Return a function of the seed that runs a tool on a recorded space; the target of the jobs.

    Args:
        settings: ``space``: a file; ``objectives``; ``budget``; ``tool``: a key of :data:`TOOLS`.

    Returns:
        A function whose result holds ``shares`` (hypervolume after each evaluation as a share of the recorded front's)
        and ``wall_s``.
    """
    recorded, budget = read_run(settings["space"]), settings["budget"]
    objectives, tool = tuple(settings["objectives"]), TOOLS[settings["tool"]]
    problem = FrontProblem.of(recorded, objectives)
    peer = None if tool.strategy else importlib.import_module(f"benchmarks.fronts.{tool.adapter}").prepare(problem)

    def run(seed: int) -> dict[str, Any]:
        started = time.perf_counter()
        if peer is None:
            simulation = simulate(recorded, tool.strategy, budget=budget, repeats=1, seed=seed, objectives=objectives)
            shares = list(simulation.runs[0].hypervolume)
        else:
            recorder = FrontRecorder(problem, budget)
            peer(recorder, seed)
            shares = recorder.shares
        return {"shares": [round(share, 6) for share in shares], "wall_s": time.perf_counter() - started}

    return run
