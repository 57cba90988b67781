"""The benchmark of search-space construction: what it says when something it needs is missing."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "space_construction.py"
    spec = importlib.util.spec_from_file_location("space_construction", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["space_construction"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    document = {
        "ConfigurationSpace": {
            "TuningParameters": [
                {"Name": "a", "Type": "int", "Values": "[1, 2, 4]"},
                {"Name": "b", "Type": "int", "Values": "list(range(1, 5))"},
            ],
            "Conditions": [{"Expression": "a * b <= 8", "Parameters": ["a", "b"]}],
        }
    }
    (tmp_path / "t1").mkdir()
    (tmp_path / "t1" / "small.json").write_text(json.dumps(document))
    return tmp_path


@pytest.mark.full
def test_it_runs_alone(benchmark: ModuleType, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["--spaces", str(folder), "--repeats", "1", "--alone"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[2].split()[:3] == ["small", "12", "10"]
    assert rows[3].split()[:5] == ["three", "tile", "groups", "1.19e+11", "447,697,125"]


def test_it_says_what_to_install(
    benchmark: ModuleType, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kernel_tuner", None)
    monkeypatch.setitem(sys.modules, "kernel_tuner.searchspace", None)
    assert benchmark.main(["--spaces", str(folder)]) == 2
    assert "pip install kernel-tuner" in capsys.readouterr().err


def test_it_says_what_is_wrong_with_its_options(
    benchmark: ModuleType, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert benchmark.main(["--spaces", str(tmp_path / "nowhere")]) == 2
    assert f"no T1 files in {tmp_path / 'nowhere' / 't1'}" in capsys.readouterr().err
    assert benchmark.main(["--spaces", str(folder), "--repeats", "0"]) == 2
    assert "--repeats needs at least 1, not 0" in capsys.readouterr().err
    (folder / "t1" / "small.json").write_text("{")
    assert benchmark.main(["--spaces", str(folder), "--alone"]) == 2
    assert "small.json" in capsys.readouterr().err
