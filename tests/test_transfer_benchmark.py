"""The benchmark of searches that start from earlier runs: what every way finds is what is written."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from mptune.interop.recorded import Record, assemble
from mptune.interop.recording import write_recording
from mptune.results import Measurement, Status

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import transfer  # noqa: E402
from benchmarks.coregional import Coregional  # noqa: E402


def write(folder: Path, name: str, device: str, scale: float) -> None:
    """Write a recording of 200 configurations; devices differ in scale and a little in shape."""
    rng = np.random.default_rng(len(name))
    records = []
    for block in range(1, 21):
        for tile in range(1, 11):
            time_ms = scale * (1.0 + (block - 13) ** 2 / 40 + (tile - 4) ** 2 / 9) * float(rng.uniform(1.0, 1.02))
            failed = block * tile > 180
            status = Status.LAUNCH_ERROR if failed else Status.OK
            records.append(
                Record((block, tile), status, measurement=Measurement({} if failed else {"time_ms": time_ms}))
            )
    path = folder / f"{name}.json"
    write_recording(assemble(name, ("block", "tile"), {}, records, kernel="k", device=device), path)
    with gzip.open(f"{path}.gz", "wb") as packed:
        packed.write(path.read_bytes())
    path.unlink()


@pytest.mark.full
def test_every_way_searches_and_the_report_says_how_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_SOURCE", 40)
    monkeypatch.setattr(transfer, "_BUDGET", 12)
    write(tmp_path, "toy-one", "ACME 1", 1.0)
    write(tmp_path, "toy-second", "Other 2", 5.0)
    assert transfer.main(["--spaces", str(tmp_path), "--seeds", "1", "--output", str(tmp_path / "out")]) == 0
    report = (tmp_path / "out" / "transfer.md").read_text()
    assert report in capsys.readouterr().out
    lines = [line for line in report.splitlines() if line.startswith("| toy-")]
    assert [line.split(" | ")[0] for line in lines] == ["| toy-one", "| toy-second"] * 2
    assert all(f"| {way} |" in report for way in transfer.WAYS)
    assert "100.0% of cold |" in lines[-1]  # shuffled sources change nothing
    for title in ("## Adverse sources", "## Overhead", "share of the cold start's distance"):
        assert title in report


@pytest.mark.full
def test_it_goes_on_where_it_stopped_and_says_what_other_constants_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_SOURCE", 12)
    monkeypatch.setattr(transfer, "_BUDGET", 6)
    monkeypatch.setattr(transfer, "_CHOSEN_WITH", 1)
    monkeypatch.setattr(transfer, "OTHER_CONSTANTS", {"bend 0.4": {"_BEND": 0.4}})
    for kernel, device in (("toy", "one"), ("toy", "two"), ("game", "one"), ("game", "two")):
        write(tmp_path, f"{kernel}-{device}", f"ACME {device}", 1.0)
    given = ["--spaces", str(tmp_path), "--seeds", "2", "--output", str(tmp_path)]
    page, kept = tmp_path / "transfer.md", tmp_path / "transfer.json"
    assert transfer.main([*given, "--limit", "0"]) == 0
    assert "go on with --resume" in capsys.readouterr().err
    assert transfer.main([*given, "--resume", "--parts", "searches"]) == 0
    begun = page.read_text()
    assert "## Seeds apart" in begun
    assert "multi-task GP |" not in begun
    assert transfer.main([*given, "--resume", "--parts", "searches,multitask,constants"]) == 0
    ended = page.read_text()
    assert "multi-task GP |" in ended
    assert "## Constants chosen without the kernel" in ended
    found = json.loads(kept.read_text())["found"]
    assert {len(found[f"toy-one: {way}"]) for way in (*transfer.WAYS, "shuffled")} == {2}
    assert transfer.main([*given, "--resume", "--parts", "searches,multitask,constants"]) == 0
    assert json.loads(kept.read_text())["found"] == found
    monkeypatch.setattr(transfer, "_BUDGET", 7)
    assert transfer.main([*given, "--resume"]) == 2
    assert "transfer.json has other settings" in capsys.readouterr().err


def test_a_model_of_all_tasks_finds_the_gradient_it_climbs(tmp_path: Path) -> None:
    write(tmp_path, "toy-one", "ACME 1", 1.0)
    write(tmp_path, "toy-second", "ACME 2", 5.0)
    one, second = transfer._devices(tmp_path)
    model = Coregional(one.recorded.space, [transfer.source(second, 0)], 0)
    for _ in range(3):
        index = model.ask()
        model.tell(index, one.recorded.trials[index])
    x, tasks, values = model._observations()
    vector = model._centre + 0.1 * np.random.default_rng(1).normal(size=len(model._centre))
    _, gradient = model._log_posterior(vector, x, tasks, values)
    for position, slope in enumerate(gradient):
        step = np.zeros(len(vector))
        step[position] = 1e-5
        up, _ = model._log_posterior(vector + step, x, tasks, values)
        down, _ = model._log_posterior(vector - step, x, tasks, values)
        assert slope == pytest.approx((up - down) / 2e-5, rel=1e-3, abs=1e-3)


def test_a_folder_without_such_kernels_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert transfer.main(["--spaces", str(tmp_path)]) == 2
    assert "no kernel recorded on several devices" in capsys.readouterr().err
