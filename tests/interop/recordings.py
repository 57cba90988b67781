"""Small recordings in other tools' formats, written here by hand and not by the code under test."""

from __future__ import annotations

import gzip
import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

#: The folder of the big recordings; the tests that need it skip where it is absent.
SPACES = Path(os.environ.get("MPTUNE_SPACES", Path(__file__).parents[3] / "shared" / "spaces"))
needs_spaces = pytest.mark.skipif(not SPACES.is_dir(), reason="the recorded spaces are not here")

HEADER = {
    "device_name": "A GPU",
    "kernel_name": "axpy",
    "problem_size": [1024, 2],
    "tune_params_keys": ["block", "tile", "type"],
    "tune_params": {"block": [32, 64, 128], "tile": [1, 2.5], "type": ["double", "half"]},
    "objective": "time",
}


def entries(seed: int = 0) -> dict[str, dict[str, Any]]:
    """Return 12 entries of which two failed, with times and errors drawn afresh."""
    rng = np.random.default_rng(seed)
    made: dict[str, dict[str, Any]] = {}
    for number, values in enumerate(itertools.product(*HEADER["tune_params"].values())):  # type: ignore[attr-defined]
        entry: dict[str, Any] = dict(zip(HEADER["tune_params_keys"], values, strict=True))
        times = rng.uniform(1.0, 2.0, 3).tolist()
        entry |= {"time": float(np.mean(times)), "times": times, "GFLOP/s": float(rng.uniform(10, 20))}
        entry["error"] = 1e-3 if values[2] == "half" else 1e-12
        if number == 3:
            entry = {k: entry[k] for k in HEADER["tune_params_keys"]} | {"time": "RuntimeFailedConfig"}
        if number == 7:
            entry["time"] = 1e20
        entry |= {"compile_time": 250.0, "verification_time": 0, "benchmark_time": 12.5, "timestamp": "2023-06-29"}
        made[",".join(map(str, values))] = entry
    return made


def cache_lines(made: dict[str, dict[str, Any]]) -> tuple[str, list[str]]:
    """Return the header and one line per entry as Kernel Tuner lays them out, without commas between."""
    opened = json.dumps({**HEADER, "cache": {}}, indent="")[:-3]
    return opened, ["\n" + json.dumps({key: entry})[1:-1] for key, entry in made.items()]


def write(path: Path, text: str) -> Path:
    """Write text, gzipped when the name ends in ``.gz``."""
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def cache_document(**changes: Any) -> dict[str, Any]:
    """Return a complete cache document with some top-level members replaced (None: left out)."""
    document = {**HEADER, "cache": entries(), **changes}
    return {name: value for name, value in document.items() if value is not None}


def t4_document(timeunit: str | None = "miliseconds", unit: str | None = "", factor: float = 1.0) -> dict[str, Any]:
    """Return the same recording in T4, with times divided by ``factor``."""
    results = []
    for entry in entries().values():
        failed = not isinstance(entry["time"], float) or entry["time"] >= 1e20
        measurement: dict[str, Any] = {"name": "time", "value": None if failed else entry["time"] / factor}
        if unit is not None:
            measurement["unit"] = unit
        results.append(
            {
                "configuration": {name: entry[name] for name in HEADER["tune_params_keys"]},
                "times": {
                    "compilation": 250.0 / factor,
                    "validation": 0,
                    "runtimes": [] if failed else [t / factor for t in entry["times"]],
                },
                "invalidity": "runtime" if failed else "correct",
                "correctness": 1,
                "measurements": [] if failed else [measurement, {"name": "error", "value": entry["error"], "unit": ""}],
                "objectives": ["time"],
            }
        )
    metadata = {} if timeunit is None else {"timeunit": timeunit}
    return {"metadata": metadata, "results": results, "schema_version": "1.0.0"}
