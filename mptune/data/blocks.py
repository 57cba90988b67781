"""Long arrays in blocks, by all cores: temporaries are small, and first use of memory is faster in several threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

#: Elements of a block. Threads with cheap operations (sums, conversions) wait for each other on smaller blocks; slower
#: operations prefer blocks that fit a core's cache.
BLOCK: Final = 1 << 19

_Result = TypeVar("_Result")


def in_blocks(function: Callable[[slice], _Result], count: int, block: int = BLOCK) -> list[_Result]:
    """Call a function with slices of ``range(count)``, a thread for each usable core; return the results in order.

    The function touches only the elements of its slice of ``block`` elements. Settings of a thread, such as
    :func:`numpy.errstate`, belong into the function.
    """
    parts = [slice(start, min(start + block, count)) for start in range(0, count, block)]
    threads = min(len(parts), len(os.sched_getaffinity(0)))
    if threads < 2:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(threads, thread_name_prefix="blocks") as pool:
        return list(pool.map(function, parts))


def uniform(rng: np.random.Generator, low: float, high: float, count: int) -> NDArray[np.float64]:
    """Return ``rng.uniform(low, high, count)``, computed in parallel; ``rng`` ends in the same state.

    Every number takes one step of the bit generator, so each thread advances it to the start of its block.
    """
    bits = rng.bit_generator
    if not isinstance(bits, np.random.PCG64):
        return rng.uniform(low, high, count)
    state = bits.state
    numbers = np.empty(count)

    def fill(part: slice) -> None:
        own = np.random.PCG64(0)
        own.state = state
        own.advance(part.start)
        numbers[part] = np.random.Generator(own).uniform(low, high, part.stop - part.start)

    in_blocks(fill, count)
    bits.advance(count)
    # The cached half of an earlier number, for the next 32-bit integer, stays.
    bits.state = {**bits.state, "has_uint32": state["has_uint32"], "uinteger": state["uinteger"]}
    return numbers
