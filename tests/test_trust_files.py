"""Crafted files, a few of each kind: no code runs, no traceback, one line, little time and memory; and mutations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "trust_files.py"
FEW = (
    "value-policy-statement", "path-here", "path-named", "message-title", "sqlite-view-endless", "sqlite-trigger",
    "cell-pickle-times", "setting-parameters", "journal", "t1-range", "t1-parentheses", "t1-import", "cache-members",
    "pickle-gz",
)  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    command = [sys.executable, str(BENCHMARK), "--json", "--only", *FEW]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path_factory.mktemp("w"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_files_are_data(found: Any) -> None:
    assert dict(found["rows"])["crafted files"] > len(FEW)
    # How long they take on a busy machine is the benchmark's to say.
    assert {kind: names for kind, names in found["names"].items() if names and kind != "slow"} == {}


def test_a_mutated_run_file_is_refused_or_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARK.parent)
    import trust_files

    counts = trust_files.mutations(200, seed=1)
    assert counts["refused"] > 50
    assert counts["the same"] > 20
    assert counts["different"] == counts["traceback"] == 0
