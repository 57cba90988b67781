"""Runs a command on the simulated devices: ``python -m mptune.testing.simulator COMMAND...``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from mptune.testing.simulator import environment

if len(sys.argv) < 2:
    sys.exit("usage: python -m mptune.testing.simulator COMMAND...")
with tempfile.TemporaryDirectory(prefix="mptune-simulator-") as folder:
    sys.exit(subprocess.run(sys.argv[1:], env={**os.environ, **environment(Path(folder))}, check=False).returncode)
