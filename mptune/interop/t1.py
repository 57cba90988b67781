"""T1 input files: a search space with its constraints, in the format shared by several auto-tuners."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from mptune.errors import EmptySpaceError, MptuneError, SpaceFileError, did_you_mean
from mptune.interop.files import Format, load_json, read_text
from mptune.run import Run
from mptune.space.configuration import Value
from mptune.space.inferred import parameter_of
from mptune.space.parameters import MAX_PARAMETERS, Parameter, parse_values
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
    if len(parameters) > MAX_PARAMETERS:
        raise SpaceFileError(f"{path}: {len(parameters)} parameters; at most {MAX_PARAMETERS} are supported")
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


def _integer(value: Value) -> Value:
    number = int(value)  # type: ignore[arg-type]
    if number != value:
        raise ValueError(f"{value!r} is not an integer")
    return number


def _unsigned(value: Value) -> Value:
    number = _integer(value)
    if number < 0:  # type: ignore[operator]
        raise ValueError(f"{value!r} is negative")
    return number


def _truth(value: Value) -> Value:
    if value not in (0, 1):
        raise ValueError(f"{value!r} is not a truth value")
    return bool(value)


_CONVERT: Final[Mapping[str, Callable[[Any], Value]]] = MappingProxyType(
    {"int": _integer, "uint": _unsigned, "float": float, "bool": _truth, "string": str}
)


def _parameter(path: Path, number: int, entry: Any) -> Parameter:
    name = entry.get("Name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or "Values" not in entry:
        raise SpaceFileError(f"{path}: tuning parameter {number} needs a 'Name' and 'Values'")
    kind = entry.get("Type", "int")
    convert = _CONVERT.get(kind) if isinstance(kind, str) else None
    if convert is None:
        raise SpaceFileError(
            f"{path}: parameter {name!r} has the unknown type {kind!r}{did_you_mean(str(kind), _CONVERT)} "
            f"(known: {', '.join(_CONVERT)})"
        )
    raw = entry["Values"]
    try:
        values = parse_values(raw) if isinstance(raw, str) else list(raw)
        if not values:
            raise ValueError("no values")
        return parameter_of(name, [convert(value) for value in values])
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
