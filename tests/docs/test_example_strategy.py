"""The strategy that CONTRIBUTING.md shows does what every strategy must do."""

from __future__ import annotations

from typing import Any

from pages import DOCS, blocks

from mptune.testing.strategies import StrategyConformance


def example() -> Any:
    (block,) = blocks(DOCS.parent / "CONTRIBUTING.md")
    names: dict[str, Any] = {"__name__": __name__}
    exec(block.text, names)
    return names["Climb"]


class TestExample(StrategyConformance):
    strategy = example()
