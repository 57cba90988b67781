"""Runs and run files made from the fields a run file has, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mptune.results.trial import Trial
from mptune.run import Run
from mptune.store import RunFile, RunInfo, RunState

__all__ = ["create", "described_run"]


def described_run(fields: Mapping[str, Any], trials: Sequence[Trial]) -> Run:
    return Run(RunInfo.from_json(fields), trials, RunState.from_json(fields))


def create(path: str | Path, fields: Mapping[str, Any] | Run) -> RunFile:
    """Make a run file of fields, or with those of a run."""
    run = fields if isinstance(fields, Run) else described_run(fields, ())
    return RunFile.create(path, run.info, run.state)
