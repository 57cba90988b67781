"""``python -m mptune.testing.simulator``: what it says where there is nothing to run."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--help"], 0, "usage: python -m mptune.testing.simulator COMMAND..."),
        ([], 1, "usage: python -m mptune.testing.simulator COMMAND..."),
        (["--verbose", "true"], 1, "error: unknown option --verbose"),
        (["no-such-command"], 1, "error: there is no command 'no-such-command'"),
    ],
)
def test_it_says_what_it_takes(arguments: list[str], status: int, said: str) -> None:
    command = [sys.executable, "-m", "mptune.testing.simulator", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    text = ended.stderr if status else ended.stdout
    assert ended.returncode == status
    assert text.startswith(said)
    assert "Traceback" not in ended.stderr
