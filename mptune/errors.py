"""The exceptions mptune raises for a user's mistake, and the nearest-name suggestion they carry.

Every error a user can cause derives from :class:`MptuneError`; the command line prints its message
and exits with 2. Anything else that escapes is a defect of mptune itself.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import Path


class MptuneError(Exception):
    """Base of every error that a user's input can cause."""


class UnknownNameError(MptuneError):
    """A name that is not in a table; says what the table holds and which entry is nearest.

    Args:
        kind: what the name stands for ("precision", "strategy", ...).
        name: the name that was given.
        known: the valid names.
        hint: an extra sentence, appended as it is.
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
    """A size whose buffers do not fit the memory there is."""


class RunFileError(MptuneError):
    """A run file that is missing, foreign, corrupt, locked or of another version."""


class PlotError(MptuneError):
    """A plot that cannot be drawn of a run, or not written where it was asked for."""


class SpaceFileError(MptuneError):
    """A recorded search space (cache file, T1, T4) that cannot be read."""


class WisdomError(MptuneError):
    """Wisdom that cannot be read, made of these runs, or used for this kernel."""


def did_you_mean(name: str, known: Iterable[str], folder: Path | None = None) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known name, or ``""`` when none is near.

    Case is ignored, so ``FP32`` finds ``fp32``; of names that are not alike, one that begins the other is near.
    Names of files are shown with the folder they are in, and have to be nearer: what they end in is no likeness.
    """
    import difflib  # only a mistake needs it

    by_lower = {entry.lower(): entry for entry in known}
    near = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.5 if folder is None else 0.7)
    near = near or [entry for entry in by_lower if len(name) > 2 and entry.startswith(name.lower())]
    if not near:
        return ""
    found = by_lower[near[0]]
    return f"; did you mean {found if folder is None else str(folder / found)!r}?"


def raised_at(error: BaseException, file: str | Path) -> str:
    """Say at which line of a user's file an exception came up: `` (steps.py:12)``, or of another if none of it is.

    Only the names of files are given; empty where no line is known.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == str(file)] or frames
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own and own[-1].lineno else ""
