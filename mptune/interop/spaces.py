"""Reading a recorded space of any format, told apart by content and not by name; runs as spaces, spaces as runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mptune.errors import SpaceFileError
from mptune.interop.cache import cache_from_document, is_cache
from mptune.interop.cutoff import read_cut_off
from mptune.interop.files import SQLITE_MAGIC, DamagedJsonError, load_json, read_head, read_text, space_name
from mptune.interop.recorded import Record, RecordedSpace, assemble, parameter_from, parameter_of
from mptune.interop.recording import is_recording, recording_from_document
from mptune.interop.t1 import is_t1
from mptune.interop.t4 import is_t4, t4_from_document
from mptune.objective import Objective
from mptune.run import Run
from mptune.space.parameters import Parameter, baseline_values
from mptune.store import ParameterInfo, RunInfo

__all__ = ["from_run", "parameters_of", "read_run", "read_space", "to_run"]

_READABLE = "a recorded space or a run file of mptune, a Kernel Tuner cache file, or T4 results"


def read_space(path: str | Path) -> RecordedSpace:
    """Read a recorded space: mptune's own, a Kernel Tuner cache file or T4 results, gzipped or not, or a run file.

    Raises:
        SpaceFileError: the file is missing, empty, damaged, of another format, or records nothing.
        RunFileError: it is a run file that cannot be read.
    """
    path = Path(path)
    if read_head(path).startswith(SQLITE_MAGIC):
        return from_run(Run.load(path), space_name(path))
    text = read_text(path)
    if not text.lstrip().startswith("{"):
        raise SpaceFileError(f"{path}: not {_READABLE}")
    document, cut_off = _document(path, text)
    if is_recording(document):
        return recording_from_document(path, document)
    if is_t4(document):
        return t4_from_document(path, document)
    if is_cache(document):
        return cache_from_document(path, document, cut_off=cut_off)
    if is_t1(document):
        raise SpaceFileError(
            f"{path}: a T1 file describes a search space without measurements; nothing can be replayed"
        )
    raise SpaceFileError(f"{path}: not {_READABLE}")


def read_run(path: str | Path) -> Run:
    """Read a run file, or a recorded space of any format as the run that :func:`to_run` makes of it.

    Raises:
        SpaceFileError: as :func:`read_space`.
        RunFileError: it is a run file that cannot be read.
    """
    path = Path(path)
    return Run.load(path) if read_head(path).startswith(SQLITE_MAGIC) else to_run(read_space(path))


def _document(path: Path, text: str) -> tuple[Any, bool]:
    """Return the JSON document, and whether its end was missing, which only a cache file may do."""
    try:
        return load_json(path, text), False
    except DamagedJsonError:
        document = read_cut_off(path, text, "cache")
        if not is_cache(document):
            raise
        return document, True


def from_run(run: Run, name: str) -> RecordedSpace:
    """Return the trials of a run as a recorded space, under the names and values of its parameters.

    Raises:
        SpaceFileError: the run has no trial, or its trials are not of one search space.
    """
    info = run.info
    parameters = [_parameter(described) for described in info.parameters]
    names = run.parameter_names
    records = []
    for trial in run.trials:
        if set(trial.configuration) != set(names):
            raise SpaceFileError(f"{name}: the trial of {trial.configuration} is not of the run's search space")
        values = trial.configuration.subset(names)
        records.append(Record(values, trial.status, trial.message, trial.measurement))
    return assemble(
        name,
        names,
        {},
        records,
        parameters=parameters or None,
        objective=info.objective.metric,
        kernel=info.kernel,
        device=info.device,
        metric=info.metric,
        problem_size=list(info.sizes.values()),
        signature=info.signature or None,
    )


def to_run(recorded: RecordedSpace) -> Run:
    """Return a recorded space as a run without a threshold, its trials in the order of the file.

    Its baseline is the best of the all-fp64, accurate configurations. Its objective is what the recording was made for,
    less of it being better, or the time where that has no name an expression can hold.
    """
    space = recorded.space
    info = RunInfo(
        kernel=recorded.kernel or recorded.name,
        device=recorded.device,
        objective=Objective(recorded.objective if recorded.objective.isidentifier() else "time_ms"),
        metric=recorded.metric,
        baseline_values=baseline_values(space.parameters),
        parameters=tuple(ParameterInfo(p.name, p.kind, p.values) for p in space.parameters),
        constraints=tuple(constraint.text for constraint in space.constraints),
        constants=space.constants,
        configurations=space.size,
        signature=recorded.signature,
        units=recorded.units,
        recorded=recorded.name,
    )
    return Run(info, list(recorded.trials.values()))


def parameters_of(run: Run) -> tuple[Parameter, ...]:
    """Return the parameters of a run as it describes them, else as the values in its trials say."""
    if run.info.parameters:
        return tuple(map(_parameter, run.info.parameters))
    values = {
        name: [t.configuration[name] for t in run.trials if name in t.configuration] for name in run.parameter_names
    }
    return tuple(parameter_of(name, entries) for name, entries in values.items())


def _parameter(described: ParameterInfo) -> Parameter:
    return parameter_from({"name": described.name, "kind": described.kind, "values": described.values})
