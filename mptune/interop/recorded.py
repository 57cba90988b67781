"""File formats, reading and writing their text, and runs made from the entries of a recording.

The trials *are* the search space of a recording, so a partial recording replays only its own configurations.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from mptune.errors import MptuneError, SpaceFileError, did_you_mean
from mptune.paths import open_regular, write_whole
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration, Value, is_number, is_value, is_whole
from mptune.space.parameters import (
    MAX_PARAMETERS,
    Parameter,
    PolicyParameter,
    PrecisionParameter,
    baseline_values,
    parameter_of,
)
from mptune.store import ParameterInfo, RunInfo, RunState
from mptune.store.info import parse_json

#: The first bytes of every run file, which is an SQLite file.
_SQLITE_MAGIC: Final = b"SQLite format 3\0"
#: Bytes of the largest text that is read.
_LARGEST_BYTES: Final = 512 << 20
#: The least time, in ms, that Kernel Tuner writes for a failed configuration.
_FAILED: Final = 1e20


@dataclass(frozen=True, slots=True)
class Format:
    """A file format. A file is data: reading executes nothing.

    Attributes:
        name: its name in ``export --format``, and the suffix of file names that chooses it.
        title: its name in messages.
        read: ``read(path, document)`` returns the document as a run, None if it has another format. The document is
            the JSON object, or the text itself if that is no valid JSON. Raises SpaceFileError if the document is
            damaged or records nothing.
        write: returns a run in this format. Raises SpaceFileError if it has no trial.
    """

    name: str
    title: str
    read: Callable[[Path, Any], Run | None] | None = None
    write: Callable[[Run], str | bytes] | None = None


def space_name(path: Path) -> str:
    """Return the name of a space in reports: the file's name without ``.gz``, ``.json`` and ``.db``."""
    return path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".db") or path.name


def is_run_file(path: str | Path) -> bool:
    """Return whether a file is a run file, possibly a damaged one."""
    return _bytes_of(Path(path), len(_SQLITE_MAGIC)) == _SQLITE_MAGIC


def read_text(path: Path) -> str:
    """Return the text of a file, decompressed if its content is gzip.

    A truncated character at the end, left by a killed writer, is dropped.
    """
    data = _bytes_of(path, _LARGEST_BYTES + 1)
    if data.startswith(b"\x1f\x8b"):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                data = file.read(_LARGEST_BYTES + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            what = "ends too early" if isinstance(error, EOFError) else f"is damaged ({error})"
            raise SpaceFileError(f"{path}: the gzip data {what}") from error
    if len(data) > _LARGEST_BYTES:
        raise SpaceFileError(f"{path}: larger than {_LARGEST_BYTES >> 20} MiB, the limit of a recording")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            raise SpaceFileError(f"{path}: not a text file (byte {error.start} is not UTF-8)") from error
        text = data[: error.start].decode("utf-8-sig")
    if not text.strip():
        raise SpaceFileError(f"{path}: the file is empty")
    return text


def _bytes_of(path: Path, size: int) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(size)
    except FileNotFoundError as error:
        siblings = [entry.name for entry in path.parent.glob("*")]
        raise SpaceFileError(f"no file {path}{did_you_mean(path.name, siblings, path.parent)}") from error
    except IsADirectoryError as error:
        names = sorted(entry.name for entry in path.glob("*"))
        listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise SpaceFileError(
            f"{path} is a folder, not a run or a recording; it holds: {listed or 'no file'}"
        ) from error
    except (OSError, ValueError) as error:
        raise SpaceFileError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def load_json(path: Path, text: str) -> Any:
    """Parse JSON text."""
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise SpaceFileError(f"{path}: not valid JSON at {where}: {error.msg}") from error
    except ValueError as error:
        raise SpaceFileError(f"{path}: the JSON cannot be read: {error}") from error


def write(path: Path, content: str | bytes) -> None:
    """Write a whole file or nothing; text is gzipped, reproducibly, if the name ends in ``.gz``."""
    data = content.encode() if isinstance(content, str) else content
    if isinstance(content, str) and path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    try:
        if path.is_file() and is_run_file(path):
            raise SpaceFileError(f"{path} is a run file, which is not overwritten: choose another name")
        write_whole(path, data)
    except OSError as error:
        raise SpaceFileError(f"cannot write {path}: {error.strerror or error}") from error


# -- runs made from entries ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of a recording: the value of each parameter, in order, and the result."""

    values: tuple[Any, ...]
    status: Status
    message: str = ""
    measurement: Measurement = field(default_factory=Measurement)

    @classmethod
    def of(
        cls,
        values: tuple[Any, ...],
        outcome: tuple[Status, str],
        goal: str,
        metrics: Mapping[str, float],
        times_ms: tuple[float, ...],
        durations_s: Mapping[str, float],
    ) -> Self:
        """Return an entry of another tool; it failed without a usable value of its goal, and then has no numbers."""
        status, message = outcome
        value = metrics.get(goal)
        if status is Status.OK and (value is None or abs(value) >= _FAILED or (goal == "time_ms" and value <= 0.0)):
            status, message = Status.ERROR, f"recorded with {goal} = {value!r}"
        if not status.is_valid:
            metrics, times_ms = {}, ()
        return cls(values, status, message, Measurement(metrics, times_ms, durations_s))


def assemble(
    name: str,
    names: Sequence[str],
    declared: Mapping[str, Sequence[Any]],
    records: Iterable[Record],
    *,
    parameters: Sequence[Parameter] | None = None,
    objective: str = "time_ms",
    minimise: bool = True,
    problem_size: Any = None,
    signature: Sequence[str] | None = None,
    warnings: tuple[str, ...] = (),
    **about: Any,
) -> Run:
    """Return the run of a recording's entries; the last entry of a configuration replaces earlier ones.

    Its baseline is the best of the all-fp64, accurate configurations. It has no threshold.

    Args:
        name: name of the recording.
        names: names of the parameters, in the order of ``Record.values``.
        declared: declared values by parameter; other values of entries are added.
        records: the entries.
        parameters: the parameters, if known, instead of ``declared``.
        objective: metric of the recording's objective; the time if its name is no identifier.
        minimise: whether the objective is minimised.
        problem_size: sizes by name, a list of sizes (x, y, z, w), or a size; ignored unless all are whole numbers.
        signature: names of the parameters that can change the numbers; None if unknown.
        warnings: remarks about the recording.
        about: further fields of :class:`~mptune.store.RunInfo`.
    """
    if len(names) > MAX_PARAMETERS:
        raise SpaceFileError(f"{name}: {len(names)} parameters; at most {MAX_PARAMETERS} are supported")
    if not isinstance(problem_size, Mapping):
        extents = problem_size if isinstance(problem_size, list) else [problem_size]
        problem_size = dict(zip("xyzw", extents, strict=False))
    sizes = {str(size): extent for size, extent in problem_size.items()}
    kept = list(records)
    if not kept:
        raise SpaceFileError(f"{name}: the file records no configuration")
    columns = [[_plain(name, n, record.values[i]) for record in kept] for i, n in enumerate(names)]
    try:
        if parameters is None:
            parameters = [
                parameter_of(n, [*(_plain(name, n, v) for v in declared.get(n, ())), *column])
                for n, column in zip(names, columns, strict=True)
            ]
        spelt = [{value: p.parse(value) for value in {*column}} for p, column in zip(parameters, columns, strict=True)]
        trials = [
            _trial(name, Configuration({n: of[value] for n, of, value in zip(names, spelt, row, strict=True)}), record)
            for row, record in zip(zip(*columns, strict=True), kept, strict=True)
        ]
        info = RunInfo(
            objective=Objective(objective, minimise=minimise) if objective.isidentifier() else Objective("time_ms"),
            sizes=sizes if all(map(is_whole, sizes.values())) else {},
            baseline_values=baseline_values(parameters),
            parameters=tuple(ParameterInfo(p.name, p.kind, p.values) for p in parameters),
            configurations=len({trial.configuration for trial in trials}),
            signature=_signature(parameters, signature, trials),
            recorded=name,
            **about,
        )
        run = Run(info, trials, RunState(warnings=warnings))
        assert run.space.size
    except SpaceFileError:
        raise
    except (MptuneError, OverflowError) as error:
        raise SpaceFileError(f"{name}: {error}") from error
    return run


def _trial(name: str, configuration: Configuration, record: Record) -> Trial:
    """Return an entry as a trial, with the logarithm of its error."""
    trial = Trial(configuration, record.status, record.message, record.measurement)
    for metric in ("time_ms", "error", "memory_bytes", "energy_j"):
        number = trial.metric(metric)
        if number < 0 or (number == 0 and metric == "time_ms"):
            least = "more than 0" if metric == "time_ms" else "0 or more"
            raise SpaceFileError(f"{name}: {metric} of {configuration} is {number:g}; expected {least}")
    metrics = trial.measurement.metrics
    if not trial.error > 0.0 or "log10_error" in metrics:
        return trial
    return trial.with_measurement(metrics={**metrics, "log10_error": math.log10(trial.error)})


def _signature(
    parameters: Sequence[Parameter], given: Sequence[str] | None, trials: Iterable[Trial]
) -> tuple[str, ...]:
    """Return the given signature, or the precisions and policies if the recorded errors depend only on them.

    Otherwise the signature is unknown, and a wrong one would make strategies exclude accurate configurations.
    """
    if given is not None:
        return tuple(p.name for p in parameters if p.name in given)
    names = tuple(p.name for p in parameters if isinstance(p, PrecisionParameter | PolicyParameter))
    ranges: dict[tuple[Value, ...], tuple[float, float]] = {}
    for trial in trials:
        if not math.isnan(error := trial.error):
            group = trial.configuration.subset(names)
            low, high = ranges.get(group, (error, error))
            ranges[group] = min(low, error), max(high, error)
    # The order of summation changes errors by less than a factor of two.
    return names if all(high <= 2.0 * low for low, high in ranges.values()) else ()


def _plain(space: str, parameter: str, value: Any) -> Value:
    if not is_value(value):
        raise SpaceFileError(
            f"{space}: parameter {parameter!r} has the value {value!r}; expected a finite number, text, a truth value "
            "or a list of integers"
        )
    plain: Value = tuple(value) if isinstance(value, list) else value
    return plain


def finite(value: Any) -> float | None:
    """Return a number as a float; None for anything else, NaN and infinities included."""
    return float(value) if is_number(value) else None


def finite_numbers(values: Any) -> tuple[float, ...]:
    """Return the finite numbers of a list as floats; empty for anything but a list."""
    return tuple(float(value) for value in values if is_number(value)) if isinstance(values, list) else ()
