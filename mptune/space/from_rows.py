"""A search space of given configurations: what is valid is a list and not a rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.space.parameters import Parameter
from mptune.space.search_space import SearchSpace

__all__ = ["from_rows"]


def from_rows(parameters: Sequence[Parameter], codes: NDArray[Any]) -> SearchSpace:
    """Return the search space of the configurations with these value codes, (n, d)."""
    return SearchSpace.from_codes(parameters, np.asarray(codes, dtype=np.int32))
