"""The least time a launch can take on a device, to tell speeds that cannot be; measured speeds are kept between runs.

A ceiling errs on the safe side. A working set counts as the next smaller power of two, which stays in a cache at least
as well; and of all speeds that were ever measured for it the largest counts, since a busy machine measures too little.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mptune.backends.base import Backend
from mptune.evaluators.roofline import Roofline
from mptune.folders import cache_folder, write_whole
from mptune.kernel import Work

__all__ = ["Ceilings"]

#: Working sets are measured up to this size: a larger one is not faster.
_MOST_BYTES: Final = 1 << 26


class Ceilings:
    """The most that was ever measured of one device.

    Args:
        backend: compiles and runs the measurements.
        identity: what the speeds depend on: device, compiler, versions and flags, as text.
        folder: where speeds are kept; by default mptune's cache.
    """

    def __init__(self, backend: Backend, identity: str, folder: Path | None = None) -> None:
        self._backend = backend
        folder = folder or cache_folder("speeds")
        name = f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
        self._file = folder / name if folder is not None else None
        self._known = self._read()

    def least_ms(self, work: Work, footprint_bytes: int, *, afresh: bool = False) -> float:
        """Return the least time that a launch can take, in milliseconds.

        Args:
            work: the bytes it has to move, and its operations as far as they are known.
            footprint_bytes: of all its buffers.
            afresh: measure the device again, in case it was busy when it was measured before.
        """
        size = min(1 << max(0, footprint_bytes.bit_length() - 1), _MOST_BYTES)
        roofline = Roofline(self._backend)
        measures: dict[str, Callable[[], float]] = {f"bytes in {size}": lambda: roofline.bytes_per_s(size)}
        if work.flops:
            # Whatever type operations are in, they count as those of the fastest.
            measures["flops"] = lambda: max(roofline.flops_per_s.values())
        found = {name: measure() for name, measure in measures.items() if afresh or name not in self._known}
        if found:
            self._known = {**self._known, **{n: max(v, self._known.get(n, 0.0)) for n, v in found.items()}}
            self._write()
        moving_s = work.traffic_bytes / self._known[f"bytes in {size}"]
        computing_s = work.flops / self._known["flops"] if work.flops else 0.0
        return max(moving_s, computing_s) * 1e3

    def _read(self) -> dict[str, float]:
        try:
            document: Any = json.loads(self._file.read_text()) if self._file is not None else {}
        except (OSError, ValueError):
            return {}
        found = document.items() if isinstance(document, dict) else ()
        return {str(n): v for n, v in found if isinstance(v, float) and math.isfinite(v) and v > 0}

    def _write(self) -> None:
        # Where it cannot be kept it is measured again.
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                write_whole(self._file, json.dumps(self._known).encode())
