"""Settings of every test: hypothesis draws the same examples each time; caches lie in a folder of their own."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from hypothesis import settings

settings.register_profile("mptune", deadline=None, derandomize=True)
settings.load_profile("mptune")

# A test must neither leave files in the user's cache nor pass because of what it finds there.
if "MPTUNE_CACHE_DIR" not in os.environ:
    os.environ["MPTUNE_CACHE_DIR"] = tempfile.mkdtemp(prefix="mptune-tests-")
    atexit.register(shutil.rmtree, os.environ["MPTUNE_CACHE_DIR"], ignore_errors=True)
