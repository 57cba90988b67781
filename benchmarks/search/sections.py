"""The sections by name, in the order they run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from benchmarks.search.section import Section

__all__ = ["SECTIONS", "load"]

#: ``module:class`` of each section.
SECTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "timing": "benchmarks.search.timing:Timing",
        "mixed": "benchmarks.search.mixed:Mixed",
        "ranking": "benchmarks.search.ranking:Ranking",
        "sequential": "benchmarks.search.sequential:Sequential",
        "failures": "benchmarks.search.failures:Failures",
        "overhead": "benchmarks.search.overhead:Overhead",
        "batches": "benchmarks.search.batches:Batches",
        "ablation": "benchmarks.search.ablation:Ablation",
    }
)


def load(name: str) -> Section:
    """Return a section."""
    module, _, cls = SECTIONS[name].partition(":")
    section: Section = getattr(importlib.import_module(module), cls)()
    return section
