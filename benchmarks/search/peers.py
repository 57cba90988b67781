"""The tools mptune is measured against, each set up the way its own documentation recommends."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from benchmarks.search.problem import Problem, Recorder

__all__ = ["PEERS", "Peer", "PeerRun"]

#: Runs the peer with a seed until the recorder's budget is spent; returns the seconds it says it spent searching,
#: None where it does not say.
PeerRun = Callable[[Recorder, int], float | None]


@dataclass(frozen=True, slots=True)
class Peer:
    """Another tool, or one of its strategies.

    Attributes:
        name: what a table calls it.
        module: what it is imported as.
        distribution: what pip installs.
        adapter: module of this package whose ``prepare(problem, **options)`` returns a :data:`PeerRun`.
        setup: how it is set up and what its recommended handling of constraints and failures is.
        options: what the adapter is given.
        is_slow: one run of it takes minutes, so that fewer are made.
    """

    name: str
    module: str
    distribution: str
    adapter: str
    setup: str
    options: Mapping[str, Any] = field(default_factory=dict)
    is_slow: bool = False

    @property
    def is_installed(self) -> bool:
        """Whether it can be imported."""
        return importlib.util.find_spec(self.module) is not None

    @property
    def version(self) -> str:
        """Its version and that of its adapter, empty when it is not installed."""
        if not self.is_installed:
            return ""
        source = (Path(__file__).parent / f"{self.adapter}.py").read_bytes()
        return f"{importlib.metadata.version(self.distribution)}+{hashlib.sha256(source).hexdigest()[:8]}"

    @property
    def install(self) -> str:
        """What to say when it is missing."""
        return f"not installed (pip install {self.distribution})"

    def prepare(self, problem: Problem) -> PeerRun:
        """Return a function that runs it on a problem."""
        adapter = importlib.import_module(f"benchmarks.search.{self.adapter}")
        run: PeerRun = adapter.prepare(problem, **self.options)
        return run


_KERNEL_TUNER: Final = (
    "simulation mode on a cache file of the recording, max_fevals unique evaluations, default hyperparameters; the "
    "search space is restricted to the recorded configurations, failures are its own error values; seeded through "
    "random and numpy.random, its seed option does not reach its strategies"
)
_ALL: Final = (
    *(
        Peer(
            f"Kernel Tuner {strategy}",
            "kernel_tuner",
            "kernel-tuner",
            "peer_kernel_tuner",
            _KERNEL_TUNER,
            {"strategy": strategy},
        )
        for strategy in ("adaptive_tabu_greywolf", "hybrid_vndx", "genetic_algorithm", "bayes_opt", "random_sample")
    ),
    Peer(
        "pyATF",
        "pyatf",
        "pyatf",
        "peer_pyatf",
        "its default technique AUCBandit; constraints are functions of a parameter and those before it, so that its "
        "space is exactly the recorded configurations; failures raise CostFunctionError; unique evaluations count",
    ),
    Peer(
        "Optuna TPE",
        "optuna",
        "optuna",
        "peer_optuna",
        "TPESampler with its defaults (multivariate); numbers are an index into their ascending values, other "
        "parameters categorical; configurations that are not recorded are infeasible by Trial.set_constraint and cost "
        "no evaluation, repeated ones are told their value again and cost none, failures end as TrialState.FAIL",
        is_slow=True,
    ),
    Peer(
        "scikit-optimize",
        "skopt",
        "scikit-optimize",
        "peer_skopt",
        "Optimizer with a random forest and LCB, as ytopt sets it up for tuning kernels, other settings by default; "
        "space_constraint admits recorded configurations only; numbers are an index into their ascending values, other "
        "parameters categorical; a failure is told the worst value seen so far",
        is_slow=True,
    ),
)
#: Every peer by name.
PEERS: Final[Mapping[str, Peer]] = MappingProxyType({peer.name: peer for peer in _ALL})
