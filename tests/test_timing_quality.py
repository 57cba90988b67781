"""The benchmark of timing quality: its parts, its page, and that it keeps what other parts have found."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import timing_quality


def test_statistics_of_synthetic_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_quality, "REPETITIONS", 40)
    page = tmp_path / "page.md"
    page.with_suffix(".json").write_text(json.dumps({"parts": {"demo-quiet": demo(demo_run(0, 1.9))}}))
    assert timing_quality.main(["statistics", "--output", str(page)]) == 0
    found = json.loads(page.with_suffix(".json").read_text())["parts"]
    assert set(found) == {"statistics", "demo-quiet"}
    busy = found["statistics"]["found"]["always busy"]
    assert busy["shortest"]["half_width"] < 0.6 * busy["median"]["half_width"]
    assert "always busy" in page.read_text()
    assert "1.9" in page.read_text()


@pytest.mark.full
def test_identical_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_quality, "KERNELS", (("axpy", "smoke"),))
    monkeypatch.setattr(timing_quality, "DRAWN", 2)
    page = tmp_path / "page.md"
    assert timing_quality.main(["aa-quiet", "--pairs", "2", "--output", str(page)]) == 0
    (part,) = json.loads(page.with_suffix(".json").read_text())["parts"].values()
    assert part["found"]["axpy, smoke"]["pairs"] == 2
    assert "of 2 pairs (target 93%" in page.read_text()


def test_an_unknown_part_is_wrong_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert timing_quality.main(["aa-quite", "--output", str(tmp_path / "page.md")]) == 2
    assert "did you mean 'aa-quiet'" in capsys.readouterr().err


def demo_run(seed: int, speedup: float | None, types: str | None = "fp32 fp32") -> dict[str, object]:
    known = speedup is not None
    return {
        "seed": seed,
        "wall_s": 10.0,
        "baseline_ms": 2.0,
        "best_ms": 1.0 if known else None,
        "speedup": speedup,
        "speedup_interval": [1.8, 2.0] if known else None,
        "types": types if known else None,
        "candidates": 0 if known else 3,
    }


def demo(*runs: dict[str, object]) -> dict[str, object]:
    return {"found": list(runs), "machine": "a machine", "command": "python", "wall_s": 60.0}


@pytest.mark.parametrize(
    ("busy", "verdict"),
    [
        ([demo_run(0, 1.7), demo_run(1, None)], "2 seeds 1 have a winner of the same types as without load, 1 refuse"),
        ([demo_run(0, 1.7), demo_run(1, 1.9, "fp16 fp32")], "all do either: missed"),
    ],
)
def test_verdicts_of_the_demo(busy: list[dict[str, object]], verdict: str) -> None:
    quiet = [demo_run(0, 1.8), demo_run(1, 2.0)]
    page = timing_quality.markdown({"parts": {"demo-quiet": demo(*quiet), "demo-busy": demo(*busy)}})
    assert "speedups are within 5.3% of their median, 1.9 (target 7%: met)" in page
    assert verdict in page
    far = timing_quality.markdown({"parts": {"demo-quiet": demo(*quiet, demo_run(2, 3.0))}})
    assert "(target 7%: missed)" in far
