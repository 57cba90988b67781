"""Runs a command on the simulated devices: ``python -m mptune.testing.simulator COMMAND...``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from mptune.testing.simulator import environment

_USAGE: Final = """usage: python -m mptune.testing.simulator COMMAND...

Runs a command whose processes find a simulated CUDA and a simulated HIP device, such as

    python -m mptune.testing.simulator mptune tune axpy --backend cuda --max-error 1e-4"""

command = sys.argv[1:]
if not command:
    sys.exit(_USAGE)
if command[0] in ("-h", "--help"):
    print(_USAGE)
    sys.exit()
if command[0].startswith("-"):
    sys.exit(f"error: unknown option {command[0]}: options follow the command they are for\n{_USAGE}")
if shutil.which(command[0]) is None:
    sys.exit(f"error: there is no command {command[0]!r}")
with tempfile.TemporaryDirectory(prefix="mptune-simulator-") as folder:
    sys.exit(subprocess.run(command, env={**os.environ, **environment(Path(folder))}, check=False).returncode)
