"""Exceptions for mistakes of users, and suggestions of the nearest name.

Every error a user can cause derives from :class:`MptuneError`; the command line prints its message and exits with 2.
Any other exception is a defect of mptune.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import Path


class MptuneError(Exception):
    """Base of every error that a user's input can cause."""


class UnknownNameError(MptuneError):
    """An unknown name; the message lists the valid names and suggests the nearest.

    Args:
        kind: the noun for the name ("precision", "strategy", ...).
        name: the unknown name.
        known: the valid names.
        hint: a sentence appended to the message.
        aliases: further valid spellings, suggested but not listed.
    """

    def __init__(
        self, kind: str, name: object, known: Iterable[str], hint: str = "", aliases: Iterable[str] = ()
    ) -> None:
        self.kind = kind
        self.name = str(name)
        self.known = tuple(known)
        self.hint = hint
        self.aliases = tuple(aliases)
        valid = ", ".join(self.known) or "none is defined"
        suggestion = did_you_mean(self.name, (*self.known, *self.aliases))
        super().__init__(f"unknown {kind} {self.name!r}{suggestion} (valid: {valid}){f'. {hint}' if hint else ''}")

    def __reduce__(self) -> tuple[type[UnknownNameError], tuple[object, ...]]:
        return type(self), (self.kind, self.name, self.known, self.hint, self.aliases)


class NotAccurateError(MptuneError):
    """No trial satisfies the threshold: the command line exits with 1 instead of 2."""


class ExpressionError(MptuneError):
    """An expression that does not parse, uses a forbidden construct or an unknown name."""


class ConstraintError(ExpressionError):
    """A constraint that cannot be compiled or evaluated."""


class EmptySpaceError(MptuneError):
    """A search space without a valid configuration."""


class KernelError(MptuneError):
    """A kernel definition that is incomplete or contradicts itself."""


class ReferenceDataError(KernelError):
    """A reference that is missing an output or has the wrong shape or type."""


class TemplateError(MptuneError):
    """A template that does not parse or uses an undefined name."""


class MetricError(MptuneError):
    """Data an error metric is not defined for (shape mismatch, negative data in a log metric, ...)."""


class BackendUnavailableError(MptuneError):
    """A backend that cannot run here; the message says why and what to install."""


class ObserverUnavailableError(MptuneError):
    """An observer that cannot measure here; the message says why and what to install or to permit."""


class CompileError(MptuneError):
    """A compiler rejected a source, crashed or did not end in time; holds the compiler's output."""


class LaunchError(MptuneError):
    """A kernel could not be loaded or launched."""


class OutOfMemoryError(MptuneError):
    """A size whose buffers do not fit into the available memory."""


class RunFileError(MptuneError):
    """A run file that is missing, foreign, corrupt, locked or of another version."""


class RunFileTakenError(RunFileError):
    """A run file to create that exists already, or that another process writes."""


class PlotError(MptuneError):
    """A plot that cannot be drawn or written."""


class SpaceFileError(MptuneError):
    """A recorded search space (cache file, T1, T4) that cannot be read."""


class WisdomError(MptuneError):
    """Wisdom that cannot be read, gathered from these runs, or used for this kernel."""


def did_you_mean(name: str, known: Iterable[str], folder: Path | None = None) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known name, or ``""`` if none is similar.

    Case is ignored, so ``FP32`` finds ``fp32``. A prefix of a known name is similar to it. Names of files, given with
    their ``folder``, need a higher similarity, because suffixes are alike.
    """
    import difflib

    by_lower = {entry.lower(): entry for entry in known}
    near = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.5 if folder is None else 0.7)
    near = near or [entry for entry in by_lower if len(name) > 2 and entry.startswith(name.lower())]
    if not near:
        return ""
    found = by_lower[near[0]]
    return f"; did you mean {found if folder is None else str(folder / found)!r}?"


def raised_at(error: BaseException, file: str | Path) -> str:
    """Return the innermost line of a user's file in a traceback, `` (steps.py:12)``; empty if no line is known.

    Without a frame in that file, the innermost frame of all counts.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == str(file)] or frames
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own and own[-1].lineno else ""
