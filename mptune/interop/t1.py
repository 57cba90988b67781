"""T1 input files: a search space with its constraints, in the format shared by several auto-tuners."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from mptune.errors import EmptySpaceError, MptuneError, SpaceFileError, did_you_mean
from mptune.interop.files import Format, load_json, read_text
from mptune.run import Run
from mptune.space.configuration import Value
from mptune.space.parameters import Parameter, parameter_of, parse_values
from mptune.space.search_space import SearchSpace

__all__ = ["T1", "read_t1"]


def read_t1(path: str | Path) -> SearchSpace:
    """Read the search space of a T1 file, gzipped or not. Its expressions are parsed, never evaluated as code.

    Raises:
        SpaceFileError: the file is missing, damaged or not T1, or a value or condition in it cannot be read.
        EmptySpaceError: no configuration satisfies the conditions; says which one removed everything.
    """
    path = Path(path)
    document = load_json(path, read_text(path))
    if not _is_t1(document):
        raise SpaceFileError(f"{path}: not a T1 file (no object 'ConfigurationSpace' with 'TuningParameters' in it)")
    space = document["ConfigurationSpace"]
    parameters = [_parameter(path, number, entry) for number, entry in enumerate(space["TuningParameters"])]
    conditions = space.get("Conditions") or []
    if not isinstance(conditions, list):
        raise SpaceFileError(f"{path}: 'Conditions' is not a list")
    constraints = [_condition(path, number, entry) for number, entry in enumerate(conditions)]
    try:
        return SearchSpace(parameters, constraints)
    except EmptySpaceError:
        raise
    except MptuneError as error:
        raise SpaceFileError(f"{path}: {error}") from error


def _is_t1(document: Any) -> bool:
    space = document.get("ConfigurationSpace") if isinstance(document, dict) else None
    return isinstance(space, dict) and isinstance(space.get("TuningParameters"), list)


#: What converts a value of each type, what the result has to satisfy beside being equal, and what a message calls it.
_TYPES: Final[Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], bool], str]]] = {
    "int": (int, lambda _: True, "an integer"),
    "uint": (int, lambda number: number >= 0, "an integer from 0 on"),
    "float": (float, lambda _: True, "a number"),
    "bool": (bool, lambda _: True, "a truth value"),
    "string": (str, lambda _: True, "text"),
}


def _converted(value: Any, kind: str) -> Value:
    convert, is_right, called = _TYPES[kind]
    found: Value = convert(value)
    if not is_right(found) or (kind != "string" and found != value):
        raise ValueError(f"{value!r} is not {called}")
    return found


def _parameter(path: Path, number: int, entry: Any) -> Parameter:
    name = entry.get("Name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or "Values" not in entry:
        raise SpaceFileError(f"{path}: tuning parameter {number} needs a 'Name' and 'Values'")
    kind = entry.get("Type", "int")
    if kind not in list(_TYPES):
        raise SpaceFileError(
            f"{path}: parameter {name!r} has the unknown type {kind!r}{did_you_mean(str(kind), _TYPES)} "
            f"(known: {', '.join(_TYPES)})"
        )
    raw = entry["Values"]
    try:
        values = parse_values(raw) if isinstance(raw, str) else list(raw)
        if not values:
            raise ValueError("no values")
        return parameter_of(name, [_converted(value, kind) for value in values])
    except (MptuneError, ValueError, TypeError, OverflowError) as error:
        raise SpaceFileError(f"{path}: values of parameter {name!r}, {reprlib.repr(raw)}: {error}") from error


def _condition(path: Path, number: int, entry: Any) -> str:
    text = entry.get("Expression") if isinstance(entry, dict) else None
    if not isinstance(text, str):
        raise SpaceFileError(f"{path}: condition {number} has no text 'Expression'")
    return text


def _refuse(path: Path, document: Any) -> Run | None:
    if not _is_t1(document):
        return None
    raise SpaceFileError(f"{path}: a T1 file describes a search space without measurements; nothing can be replayed")


T1: Final = Format("t1", "a T1 input", read=_refuse)
