"""JSON Schemas (draft 2020-12) of what commands print with ``--json``, one file for each command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from mptune.errors import UnknownNameError

__all__ = ["SCHEMAS", "schema"]

_FOLDER: Final = Path(__file__).parent
#: Names of the commands that have one; ``show`` prints what ``tune`` does.
SCHEMAS: Final[tuple[str, ...]] = tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


def schema(command: str) -> dict[str, Any]:
    """Return the schema of what a command prints with ``--json`` (``export``: with ``--format json``).

    Raises:
        UnknownNameError: there is no such command, or it prints no JSON.
    """
    if command not in (*SCHEMAS, "show"):
        raise UnknownNameError("command with a JSON schema", command, (*SCHEMAS, "show"))
    return _read(f"{'tune' if command == 'show' else command}.json")


def _read(file: str) -> dict[str, Any]:
    """Read a schema; another one that it refers to is put in its place."""

    def whole(node: dict[str, Any]) -> dict[str, Any]:
        other = node.get("$ref", "#")
        # With a name of its own, what it refers to within itself is found there.
        return node if other.startswith("#") else {"$id": other, **_read(other)}

    found: dict[str, Any] = json.loads((_FOLDER / file).read_text(encoding="utf-8"), object_hook=whole)
    return found
