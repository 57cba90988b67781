"""The benchmark of kernels with a mistake: what it tunes is as it says, and how a run ended is judged right."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.mistakes import MISTAKES  # noqa: E402
from mptune.source.render import render  # noqa: E402


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
