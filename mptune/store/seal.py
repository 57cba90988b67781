"""Checksums of a run file, so that one that is damaged or edited is refused rather than believed.

Every trial has one, and the seal has their sum, which also shows a trial that is missing, twice or in another place.
They are no signature: who makes a file can make its checksums, so what a file says is a claim all the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

__all__ = ["Seal", "checksum"]

_BYTES: Final = 8
_MODULUS: Final = 1 << (8 * _BYTES)


def checksum(cells: Sequence[Any]) -> bytes:
    """Return a checksum of texts, numbers and bytes."""
    return hashlib.blake2b(ascii(tuple(cells)).encode(), digest_size=_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Seal:
    """What a run file holds, by checksums.

    Attributes:
        trials: how many trials.
        trials_sum: the sum of their checksums.
        settings_sum: the sum of those of the fields of the run's records.
        sources: the checksum of the rendered sources as hexadecimal digits, empty if there are none.
        adopted: whether some of the trials were recorded before there were checksums.
    """

    trials: int = 0
    trials_sum: int = 0
    settings_sum: int = 0
    sources: str = ""
    adopted: bool = False

    def to_text(self) -> str:
        """Return it as text with a checksum of its own."""
        text = json.dumps(asdict(self))
        return f"{checksum((text,)).hex()} {text}"

    @classmethod
    def from_text(cls, text: object) -> Self:
        """Read it.

        Raises:
            ValueError: it is damaged.
        """
        own, _, document = str(text).partition(" ")
        if own != checksum((document,)).hex():
            raise ValueError("its seal is damaged")
        return cls(**json.loads(document))

    @staticmethod
    def total(checksums: Sequence[bytes], start: int = 0) -> int:
        """Return the sum of checksums, added to another."""
        return (start + sum(int.from_bytes(one, "big") for one in checksums)) % _MODULUS

    @staticmethod
    def difference(before: bytes, start: int) -> int:
        """Return a sum without one of its checksums."""
        return (start - int.from_bytes(before, "big")) % _MODULUS
