"""The command line called as a user does, in this process."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import NamedTuple

import pytest

from mptune import cli

Call = Callable[..., "Outcome"]


class Outcome(NamedTuple):
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str


def caller(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Return a function that runs ``mptune`` with the arguments it is given."""

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr("sys.argv", ["mptune", *map(str, arguments)])
        capfd.readouterr()
        # As at a terminal: where the tests run in the background, Ctrl-C is ignored.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(SystemExit) as leaving:
                cli.main()
        finally:
            signal.signal(signal.SIGINT, before)  # which a command that was interrupted ignores from then on
        captured = capfd.readouterr()
        assert isinstance(leaving.value.code, int)
        assert "Traceback" not in captured.err, captured.err
        return Outcome(leaving.value.code, captured.out, captured.err)

    return call
