"""``python -m tests.support.simulator``: what it says where there is nothing to run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def test_commands_of_its_own_environment_need_no_activation() -> None:
    command = [sys.executable, "-m", "tests.support.simulator", "mptune", "--version"]
    variables = {**os.environ, "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--help"], 0, "usage: python -m tests.support.simulator COMMAND..."),
        ([], 1, "usage: python -m tests.support.simulator COMMAND..."),
        (["--verbose", "true"], 1, "error: unknown option --verbose"),
        (["no-such-command"], 1, "error: there is no command 'no-such-command'"),
        (["true"], 1, "error: MPTUNE_SIMULATED_DEVICES=abc: expected a number of devices"),
    ],
)
def test_it_says_what_it_takes(arguments: list[str], status: int, said: str) -> None:
    command = [sys.executable, "-m", "tests.support.simulator", *arguments]
    variables = {**os.environ, "MPTUNE_SIMULATED_DEVICES": "abc"}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    text = ended.stderr if status else ended.stdout
    assert ended.returncode == status
    assert text.startswith(said)
    assert "Traceback" not in ended.stderr
