"""The process a job runs in: is sent the job, and sends the result of each seed as JSON."""

from __future__ import annotations

import importlib
import json
import os
import warnings
from multiprocessing.connection import Connection


def main(channel: Connection) -> None:
    """Run the seeds of the job, one after the other, in a folder of their own."""
    warnings.simplefilter("ignore")
    request = channel.recv()
    os.chdir(request["folder"])
    module, _, name = request["target"].partition(":")
    run = getattr(importlib.import_module(module), name)(request["settings"])
    channel.send("ready")
    for seed in request["seeds"]:
        channel.send(json.dumps(run(seed), allow_nan=False))
