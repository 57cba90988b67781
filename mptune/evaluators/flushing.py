"""Emptying a device's last-level cache between launches."""

from __future__ import annotations

from typing import Final

from mptune.backends.base import Backend, Buffer
from mptune.buffers import DataManager
from mptune.errors import MptuneError, OutOfMemoryError
from mptune.evaluators.timing import TimingPlan, is_worth_flushing
from mptune.kernel import Kernel, Sizes
from mptune.space.configuration import Configuration

__all__ = ["CacheFlush", "wants_flush"]

#: Caches that do not replace strictly the oldest line need more than their own size to forget everything.
_SIZES: Final = 2


class CacheFlush:
    """Scratch memory larger than the cache; writing all of it leaves nothing else there.

    On the host this empties the cache the cores share; what lies in the other cores' own caches stays.

    Args:
        backend: allocates it.
        cache_bytes: of the last-level cache.

    Raises:
        OutOfMemoryError: there is no room.
    """

    def __init__(self, backend: Backend, cache_bytes: int) -> None:
        try:
            self._scratch: Buffer = backend.device.allocate(_SIZES * cache_bytes)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"no room to flush the cache of {cache_bytes} bytes with ({error}); it can be left as it is "
                "(flush_cache='off')"
            ) from error
        self._byte = 0

    def __call__(self) -> None:
        """Empty the cache; takes time, so not while something is timed."""
        # Another value each time: a cache may recognise what it has already.
        self._byte ^= 1
        self._scratch.fill(self._byte)

    def free(self) -> None:
        """Give the memory back."""
        self._scratch.free()


def wants_flush(plan: TimingPlan, backend: Backend, kernel: Kernel, sizes: Sizes, data: DataManager) -> bool:
    """Whether the caches are emptied before timed launches: one answer for all configurations, or they do not compare.

    It is that of the widest types, in which the data are largest.

    Raises:
        MptuneError: they are to be, but nothing is known of them.
    """
    cache_bytes = backend.describe().limits.get("cache_bytes", 0)
    if plan.flush_cache == "on" and not cache_bytes:
        raise MptuneError(
            f"flush_cache='on': how large the last-level cache of {backend.describe().name} is, is not known; "
            "leave it at 'auto' or 'off'"
        )
    if plan.flush_cache != "auto" or backend.shares_memory:
        return plan.flush_cache == "on"
    widest = Configuration(
        {**kernel.configuration({}), **{name: values[0] for name, values in kernel.baseline_values().items()}}
    )
    intensity = kernel.work(widest, sizes).intensity
    return is_worth_flushing(data.footprint_bytes(widest), cache_bytes, intensity)
