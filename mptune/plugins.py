"""What third parties add by entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint

from mptune.errors import MptuneError

__all__ = ["load_point"]


def load_point(point: EntryPoint, kind: str) -> object:
    """Return what an entry point gives.

    Args:
        point: the entry point.
        kind: what it adds ("kernel", "backend", ...), for the message.

    Raises:
        MptuneError: it cannot be imported, for whatever reason; names it, so that a user knows what to uninstall.
    """
    try:
        return point.load()
    except MptuneError:
        raise
    except Exception as error:
        raise MptuneError(
            f"entry point {point.value!r} of {kind} {point.name!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
