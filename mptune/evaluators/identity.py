"""The identity of everything a trial's numbers depend on."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable

__all__ = ["metric_identity", "trial_key"]


def trial_key(source: str, identity: str, data_key: str, metric: str) -> str:
    """Return the key of a trial, as a hexadecimal digest.

    Args:
        source: the rendered source.
        identity: device, compiler, versions and flags.
        data_key: identity of inputs and references.
        metric: identity of the error metric.
    """
    digest = hashlib.sha256()
    for part in (source, identity, data_key, metric):
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()


def metric_identity(metric: str | Callable[..., float]) -> str:
    """Return a metric's name, or the source text of a callable (its byte code where there is no text)."""
    if isinstance(metric, str):
        return metric
    try:
        return inspect.getsource(metric)
    except (OSError, TypeError):
        code = getattr(metric, "__code__", None)
        return code.co_code.hex() if code is not None else type(metric).__qualname__
