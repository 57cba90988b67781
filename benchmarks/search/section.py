"""What a section of the benchmark is, which there are, and what the user asked for."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

from benchmarks.search.cells import Job, Results
from benchmarks.search.report import Report

__all__ = ["SECTIONS", "Section", "Settings", "load"]

#: ``module:class`` of each section.
SECTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "timing": "benchmarks.search.timing:Timing",
        "score": "benchmarks.search.score:Score",
        "mixed": "benchmarks.search.mixed:Mixed",
    }
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for.

    Attributes:
        spaces: folder of timing-only recorded spaces.
        data: folder of the project's own recorded mixed-precision spaces.
        seeds: runs of every tool on every space.
        slow_seeds: runs of tools that take more than a minute for one.
        budget: evaluations of a run, where a section has no budget of its own.
        limit_s: time one run may take.
        strategies: strategies of mptune that are compared; the default one comes first.
        peers: names of the peers.
        only: parts of the names of the spaces to run on; all when empty.
    """

    spaces: Path
    data: Path
    seeds: int = 20
    slow_seeds: int = 5
    budget: int = 220
    limit_s: float = 600.0
    strategies: tuple[str, ...] = ("bayesian",)
    peers: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    def recordings(self, folder: Path) -> list[Path]:
        """Return the recorded spaces in a folder, without those that are there in a second format."""
        files = sorted(f for pattern in ("*.json", "*.json.gz") for f in folder.glob(pattern))
        return [
            file
            for file in files
            if ".t4." not in file.name and (not self.only or any(part in file.name for part in self.only))
        ]


class Section(ABC):
    """One question a benchmark answers.

    Attributes:
        name: what the command line and the files call it.
        title: its heading.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    @abstractmethod
    def jobs(self, settings: Settings) -> list[Job]:
        """Return what is to run."""

    @abstractmethod
    def report(self, settings: Settings, results: Results) -> Report:
        """Return what came out."""


def load(name: str) -> Section:
    """Return a section."""
    module, _, cls = SECTIONS[name].partition(":")
    section: Section = getattr(importlib.import_module(module), cls)()
    return section
