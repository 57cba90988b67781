"""The process a job runs in: reads the job from standard input, writes one JSON line per seed to standard output."""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from typing import Any


def main() -> None:
    """Run the seeds of the job, one after the other."""
    # What a tool prints must not end up between the results.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    request: dict[str, Any] = json.load(sys.stdin)
    module, _, name = request["target"].partition(":")
    run = getattr(importlib.import_module(module), name)(request["settings"])
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for seed in request["seeds"]:
        print(json.dumps({"seed": seed, "result": run(seed)}, allow_nan=False), file=answers, flush=True)


if __name__ == "__main__":
    main()
