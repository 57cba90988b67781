"""The benchmark of kernels with a mistake: what it tunes is as it says, and how a run ended is judged right."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import trust  # noqa: E402
from benchmarks.mistakes import MISTAKES  # noqa: E402
from mptune.source.render import render  # noqa: E402

RIGHT = {"block_size": 64, "items": 2, "way": "long", "t": "fp64"}
WRONG = RIGHT | {"way": "short"}


def document(best: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    entry = None if best is None else {"configuration": best}
    return {"baseline": {"configuration": RIGHT}, "best": entry, "statuses": {"inaccurate": 4}, **more}


@pytest.mark.parametrize("case", MISTAKES.values(), ids=list(MISTAKES))
def test_every_kernel_renders_both_ways_and_has_right_configurations(case: Any) -> None:
    kernel = case.kernel()
    sizes = kernel.resolve_sizes()
    space = kernel.search_space(sizes)
    configurations = [space.configuration(i) for i in range(space.size)]
    is_wrong = [case.is_wrong(configuration) for configuration in configurations]
    assert not all(is_wrong)
    assert any(is_wrong) != case.what.startswith("honest")
    for configuration in configurations:
        other = kernel.configuration({**configuration, "way": "long"})
        if is_wrong[configurations.index(configuration)] and case.short != case.honest:
            assert render(kernel, configuration, sizes) != render(kernel, other, sizes) or case.is_wrong(other)


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (document(RIGHT), trust.Outcome.RIGHT),
        (document(WRONG), trust.Outcome.WRONG),
        (document(None), trust.Outcome.NOTHING),
    ],
)
def test_how_a_run_ended(found: dict[str, Any], outcome: trust.Outcome) -> None:
    result = trust.judge(MISTAKES["right_once"], found)
    assert result.outcome is outcome
    assert not result.wrong_baseline


def test_a_wrong_baseline_is_counted() -> None:
    baseline = {"configuration": WRONG, "error": 0.5}
    result = trust.judge(MISTAKES["right_once"], document(WRONG) | {"baseline": baseline})
    assert result.wrong_baseline == "block_size=64, items=2, way=short, t=fp64 (error 0.5)"
