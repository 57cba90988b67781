"""Runs a command on the simulated devices: ``python -m tests.support.simulator COMMAND...``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.support.simulator import environment

_USAGE: Final = """usage: python -m tests.support.simulator COMMAND...

Runs a command whose processes find a simulated CUDA and a simulated HIP device, such as

    python -m tests.support.simulator mptune tune axpy --backend cuda --max-error 1e-4"""

command = sys.argv[1:]
if not command:
    sys.exit(_USAGE)
if command[0] in ("-h", "--help"):
    print(_USAGE)
    sys.exit()
if command[0].startswith("-"):
    sys.exit(f"error: unknown option {command[0]}: options follow the command they are for\n{_USAGE}")
# That of this very interpreter's environment first, which need not be activated.
beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
if (program := shutil.which(command[0], path=beside)) is None:
    sys.exit(f"error: there is no command {command[0]!r}")
if not (devices := os.environ.get("MPTUNE_SIMULATED_DEVICES", "1")).isdecimal():
    sys.exit(f"error: MPTUNE_SIMULATED_DEVICES={devices}: expected a number of devices")
with tempfile.TemporaryDirectory(prefix="mptune-simulator-") as folder:
    variables = {**os.environ, **environment(Path(folder))}
    sys.exit(subprocess.run([program, *command[1:]], env=variables, check=False).returncode)
