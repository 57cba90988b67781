"""What a kernel on the processor can change of its process, and the next one must not meet: kept as it was.

A kernel runs in the process that launches it. Where it stays alive, the signals it handles, its timers, its folder and
its processors are those of the kernel from then on; so they are put back. How memory is limited is settled beforehand.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mptune.memory import total_memory_bytes

__all__ = ["kept", "limit_memory"]

#: Room for the C library's struct sigaction; glibc's takes 152 bytes.
_ACTION_BYTES: Final = 256
_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
#: Ended by the system before any other process that needs memory.
_FIRST_TO_GO: Final = "1000"


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Put back, after a block, what a kernel may have changed in it."""
    library = ctypes.CDLL(None)
    actions = {number: ctypes.create_string_buffer(_ACTION_BYTES) for number in signal.valid_signals()}
    handled = [number for number, action in actions.items() if not library.sigaction(number, None, action)]
    mask, processors = signal.pthread_sigmask(signal.SIG_BLOCK, ()), os.sched_getaffinity(0)
    folder = _folder()
    try:
        yield
    finally:
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        for number in handled:
            library.sigaction(number, actions[number], None)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, processors)
        with contextlib.suppress(OSError):
            os.chdir(folder)


def _folder() -> str:
    """Return the current folder; where there is none any more, what leads to no other."""
    try:
        return str(Path.cwd())
    except OSError:
        return "."


def limit_memory() -> None:
    """Have an allocation fail beyond what the machine has, and the system end this process first when memory is short.

    A kernel that allocates without end then takes neither the tuner nor anybody else with it.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)
    with contextlib.suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = total_memory_bytes()
        resource.setrlimit(resource.RLIMIT_DATA, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))
