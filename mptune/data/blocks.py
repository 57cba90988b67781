"""Long arrays in blocks, by all cores: NumPy computes in several threads at a time, and no full temporary is needed.

A good part of the time goes to memory that is used for the first time, which several threads do faster, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

#: Elements of a block. In smaller ones, threads that only add or convert wait for each other between operations; where
#: an operation takes longer, a block that fits a core's cache is better.
BLOCK: Final = 1 << 19

_Result = TypeVar("_Result")


def in_blocks(function: Callable[[slice], _Result], count: int, block: int = BLOCK) -> list[_Result]:
    """Call a function with the parts of ``range(count)``, in as many threads as this process may use cores.

    Settings of a thread, as those of :func:`numpy.errstate` are, have to be made in the function.

    Args:
        function: works on the elements of a slice, and touches no others.
        count: how many elements there are.
        block: how many the function gets at a time.

    Returns:
        What the function returned, in the order of the parts.
    """
    parts = [slice(start, min(start + block, count)) for start in range(0, count, block)]
    threads = min(len(parts), len(os.sched_getaffinity(0)))
    if threads < 2:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(threads, thread_name_prefix="blocks") as pool:
        return list(pool.map(function, parts))


def uniform(rng: np.random.Generator, low: float, high: float, count: int) -> NDArray[np.float64]:
    """Return the ``(count,)`` numbers that ``rng.uniform(low, high, count)`` does; ``rng`` goes on as after that.

    Each takes one number of the bit generator, so that a thread can begin where another one's block ends.
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
    # Half a number that is left from before is what the next small integer takes.
    bits.state = {**bits.state, "has_uint32": state["has_uint32"], "uinteger": state["uinteger"]}
    return numbers
