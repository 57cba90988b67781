"""``python -m mptune.testing.simulator``: what it says where there is nothing to run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def test_commands_of_its_own_environment_need_no_activation() -> None:
    command = [sys.executable, "-m", "mptune.testing.simulator", "mptune", "--version"]
    variables = {**os.environ, "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("devices", ["abc", "-2", ""])
def test_how_many_devices_there_are_is_a_number(devices: str) -> None:
    command = [sys.executable, "-m", "mptune.testing.simulator", "true"]
    variables = {**os.environ, "MPTUNE_SIMULATED_DEVICES": devices}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    assert ended.returncode == 1
    assert ended.stderr == f"error: MPTUNE_SIMULATED_DEVICES={devices}: expected a number of devices\n"


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
