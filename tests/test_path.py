"""The way of a configuration, from ask to the stored trial, in frames of mptune's own."""

from __future__ import annotations

import traceback
from pathlib import Path

import numpy as np
import pytest

import mptune
from mptune import load_kernel
from mptune.measure.pool import Pool
from mptune.measure.worker import Worker
from mptune.store import RunFile
from mptune.strategies.random import RandomStrategy
from mptune.tuning import tune

OWN = Path(__file__).with_name("own_kernel.py")
PACKAGE = str(Path(mptune.__file__).parent)


def frames() -> list[str]:
    """Return the functions of mptune on the stack, the outermost first."""
    stack = [each for each in traceback.extract_stack() if each.filename.startswith(PACKAGE)]
    return [f"{Path(each.filename).stem}.{each.name}" for each in stack]


@pytest.mark.full
def test_a_configuration_passes_fifteen_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for, submitted, sent to the worker, evaluated there, and written to the run file."""
    seen: dict[str, list[str]] = {}
    in_worker = tmp_path / "worker.txt"

    def watch(owner: type, name: str, what: str) -> None:
        original = getattr(owner, name)

        def watched(*given, **named):
            seen.setdefault(what, [*frames(), f"{owner.__name__}.{name}"])
            return original(*given, **named)

        monkeypatch.setattr(owner, name, watched)

    def metric(result: np.ndarray, reference: np.ndarray) -> float:
        import traceback  # a worker has nothing of this module

        stack = [each for each in traceback.extract_stack() if "/mptune/" in each.filename]
        with in_worker.open("a") as file:
            file.write(" ".join(f"{each.filename.rsplit('/', 1)[-1][:-3]}.{each.name}" for each in stack) + "\n")
        return float(np.abs(result - reference).max())

    watch(RandomStrategy, "_propose", "ask")
    watch(Pool, "submit", "submit")
    watch(Worker, "call", "send")
    watch(RunFile, "add", "write")
    kernel = load_kernel(OWN)
    settings = {"backend": "host", "size": "smoke", "strategy": "random", "budget": 2, "inputs": 1, "verify": 0}
    tune(kernel, metric=metric, output=tmp_path / "run.db", on_warning=lambda _: None, baseline_share=0.0, **settings)

    def below(what: str) -> list[str]:
        return seen[what][seen[what].index("session.evaluate") + 1 :]

    lines = (line.split() for line in in_worker.read_text().splitlines())
    evaluated = next(line for line in lines if "bench.evaluate" in line)
    evaluated = evaluated[: evaluated.index("bench.evaluate") + 1]
    path = ["session.evaluate", *below("ask"), *below("submit"), *seen["send"], *evaluated, *below("write")]
    assert len(path) <= 15, path
