"""Where a kernel reached when the system ends this process for it, told while there is still time."""

from __future__ import annotations

import contextlib
import ctypes
import signal
from collections.abc import Callable
from typing import Any, ClassVar, Final

__all__ = ["tell_of_faults"]

_SA_SIGINFO: Final = 4
#: Of the address in a siginfo_t of Linux, on every 64-bit processor.
_ADDRESS_OFFSET: Final = 16
_HANDLER: Final = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """The C library's struct sigaction, with 1024 signals in a set."""

    _fields_: ClassVar[list[Any]] = [
        ("handler", _HANDLER),
        ("mask", ctypes.c_ulong * (1024 // (8 * ctypes.sizeof(ctypes.c_ulong)))),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


def tell_of_faults(tell: Callable[[int], None]) -> None:
    """Call a function with the address when this process touches memory that it may not; then the signal ends it.

    The function runs in the thread that did it, a kernel's, while all others wait for the kernel. Where that thread
    has no stack left to run it, it is not called.
    """
    library = ctypes.CDLL(None)

    def handle(number: int, information: int, _: int) -> None:
        # What was not allowed is tried again after this, and not handled any more.
        library.signal(number, signal.SIG_DFL)
        with contextlib.suppress(Exception):
            tell(ctypes.c_size_t.from_address(information + _ADDRESS_OFFSET).value)

    for number in (signal.SIGSEGV, signal.SIGBUS):
        action = _Action(handler=_HANDLER(handle), flags=_SA_SIGINFO)
        library.sigaction(number, ctypes.byref(action), None)
        _kept.append(action)


#: The C library has only addresses of them.
_kept: Final[list[_Action]] = []
