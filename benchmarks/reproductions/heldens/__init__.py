"""Heldens & van Werkhoven 2026, Accuracy-Aware Mixed-Precision GPU Auto-Tuning."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from benchmarks.reproductions.heldens import coclustering, dominance, runs, searches, spaces, unified
from benchmarks.reproductions.item import Item

__all__ = ["ITEMS"]

ITEMS: Final[Mapping[str, Item]] = MappingProxyType(
    {
        "h-t2": Item("Heldens 2026, Table II", "kernels: parameters, precisions, configurations", spaces.h_t2),
        "h-t4": Item("Heldens 2026, Table IV", "thresholds, and the share of each space that meets them", spaces.h_t4),
        "h-f2": Item("Heldens 2026, Figs. 2 and 3", "speed against error", spaces.h_f2),
        "h-f4": Item("Heldens 2026, Fig. 4", "penalties of inaccurate configurations", searches.h_f4),
        "h-f5": Item("Heldens 2026, Fig. 5", "strategies under each threshold", searches.h_f5),
        "h-f6": Item("Heldens 2026, Fig. 6", "where the time of a run goes, by strategy", runs.h_f6, has_sizes=True),
        "h-f7": Item("Heldens 2026, Fig. 7", "strategies against random sampling", dominance.h_f7),
        "h-f8": Item("Heldens 2026, Fig. 8", "which strategy beats which on Bessel", dominance.h_f8),
        "h-f9": Item("Heldens 2026, Fig. 9", "searches of other frameworks under thresholds", searches.h_f9),
        "h-f10": Item("Heldens 2026, Fig. 10", "unified against sequential tuning", unified.h_f10),
        "h-f11": Item("Heldens 2026, Fig. 11", "memory against error", spaces.h_f11),
        "h-f13": Item(
            "Heldens 2026, Fig. 13", "speedup and NMI of five versions of BBAC-I", coclustering.h_f13, has_sizes=True
        ),
    }
)
