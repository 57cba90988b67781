"""Rendered sources in a run file: text for whoever looks at the run, so that nothing has to be rendered to show it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Final

__all__ = ["pack", "unpack"]

_LARGEST_BYTES: Final = 64 << 20


def pack(sources: Mapping[str, str]) -> bytes:
    """Return sources by the JSON of their configuration, compressed; the last ones are left out if they are too large.

    Most lines of two sources are the same, so a thousand of them take about a hundred kilobytes.
    """
    kept: dict[str, str] = {}
    room = _LARGEST_BYTES // 2  # JSON escapes some characters
    for configuration, text in sources.items():
        room -= len(configuration) + len(text.encode("utf-8", "backslashreplace"))
        if room < 0:
            break
        kept[configuration] = text
    return zlib.compress(json.dumps(kept).encode(), 9)


def unpack(packed: bytes) -> dict[str, str]:
    """Read what :func:`pack` returned.

    Raises:
        ValueError: it is damaged, or larger than any that was packed.
    """
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(packed, _LARGEST_BYTES)
        if not decompressor.eof:
            raise ValueError("its sources are not whole, or too large")
        found = json.loads(text)
    except (zlib.error, RecursionError, TypeError) as error:
        raise ValueError(f"its sources cannot be read ({error})") from error
    if not isinstance(found, dict) or not all(isinstance(source, str) for source in found.values()):
        raise ValueError("its sources should be texts by configuration")
    return found
