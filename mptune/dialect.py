"""CUDA a host compiler does not know, in the form every compiler accepts."""

from __future__ import annotations

import re
from typing import Final

from mptune.errors import TemplateError

__all__ = ["portable", "without_comments"]

_ATTRIBUTES: Final = r"(?:(?:__align__|alignas|__attribute__)\s*\([^;]*?\)\s*)*"
_DYNAMIC_SHARED: Final = re.compile(
    rf"\bextern\s+{_ATTRIBUTES}__shared__\s+{_ATTRIBUTES}([A-Za-z_:][^;=\[\]{{}}]*?)\s*\b(\w+)\s*\[\s*\]\s*;"
)


def portable(body: str, where: str) -> str:
    """Return a source with CUDA's declaration of dynamic shared memory as the prelude has it.

    ``extern __shared__ T name[];`` becomes ``SHARED_DYNAMIC(T, name);``. Every line keeps its number.

    Args:
        body: the source.
        where: what messages call it.

    Raises:
        TemplateError: it is declared outside a function, where the host has no block whose memory it could be.
    """

    def replace(match: re.Match[str]) -> str:
        before = re.sub(r'extern\s+"C"\s*\{', "", without_comments(body[: match.start()]))
        if before.count("{") <= before.count("}"):
            line = body.count("\n", 0, match.start()) + 1
            raise TemplateError(
                f"{where}:{line}: declare extern __shared__ {match[2]}[] inside the function that uses it"
            )
        # The macro takes a type without a comma.
        name = f"mptune_type_of_{match[2]}"
        return f"using {name} = {match[1]}; SHARED_DYNAMIC({name}, {match[2]});" + "\n" * match[0].count("\n")

    return _DYNAMIC_SHARED.sub(replace, body)


def without_comments(text: str) -> str:
    """Return C++ source with a space for each comment."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
