"""The least time of a launch: the device is measured once, and never too slow twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from mptune.backends import get_backend
from mptune.evaluators import ceilings
from mptune.evaluators.ceilings import Ceilings
from mptune.kernel import Work

MEGABYTE = 1 << 20


class Known:
    """A device that moves 1 GB and computes 10^9 operations a second, or so many times as many."""

    measured: ClassVar[list[object]] = []
    speed = 1.0

    def __init__(self, _: object) -> None:
        pass

    def bytes_per_s(self, footprint_bytes: int) -> float:
        self.measured.append(footprint_bytes)
        return 1e9 * self.speed

    @property
    def flops_per_s(self) -> Mapping[str, float]:
        self.measured.append("flops")
        return {"fp64": 0.5e9 * self.speed, "fp32": 1e9 * self.speed}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> type[Known]:
    monkeypatch.setattr(ceilings, "Roofline", Known)
    monkeypatch.setattr(Known, "measured", [])
    monkeypatch.setattr(Known, "speed", 1.0)
    return Known


def made(folder: Path, identity: str = "a device") -> Ceilings:
    return Ceilings(get_backend("host"), identity, folder)


def test_the_longer_one_of_moving_and_computing(known: type[Known], tmp_path: Path) -> None:
    assert made(tmp_path).least_ms(Work(10**6), 10**6) == pytest.approx(1.0)
    assert "flops" not in known.measured
    assert made(tmp_path).least_ms(Work(10**6, 3e6), 10**6) == pytest.approx(3.0)
    assert made(tmp_path).least_ms(Work(10**6, 3e5), 10**6) == pytest.approx(1.0)


def test_a_device_is_measured_once_for_every_power_of_two(known: type[Known], tmp_path: Path) -> None:
    for size in (MEGABYTE, MEGABYTE + 1, 2 * MEGABYTE - 1):
        made(tmp_path).least_ms(Work(1), size)
    assert known.measured == [MEGABYTE]
    made(tmp_path, "another device").least_ms(Work(1), MEGABYTE)
    made(tmp_path).least_ms(Work(1), 1 << 40)
    assert known.measured == [MEGABYTE, MEGABYTE, 64 * MEGABYTE]


@pytest.mark.parametrize(("speed", "least_ms"), [(2.0, 0.5), (0.5, 1.0)])
def test_measured_afresh_the_faster_counts(
    known: type[Known], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speed: float, least_ms: float
) -> None:
    made(tmp_path).least_ms(Work(10**6), MEGABYTE)
    monkeypatch.setattr(known, "speed", speed)
    assert made(tmp_path).least_ms(Work(10**6), MEGABYTE) == pytest.approx(1.0)
    assert made(tmp_path).least_ms(Work(10**6), MEGABYTE, afresh=True) == pytest.approx(least_ms)
    assert made(tmp_path).least_ms(Work(10**6), MEGABYTE) == pytest.approx(least_ms)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"bytes in 1048576": -1.0}', '{"bytes in 1048576": "9"}', '{"bytes in 1048576": 1e999}']
)
def test_a_damaged_file_is_measured_again(known: type[Known], tmp_path: Path, text: str) -> None:
    made(tmp_path).least_ms(Work(1), MEGABYTE)
    (file,) = tmp_path.iterdir()
    file.write_text(text)
    assert made(tmp_path).least_ms(Work(10**6), MEGABYTE) == pytest.approx(1.0)
    assert json.loads(file.read_text()) == {"bytes in 1048576": 1e9}


def test_speeds_that_cannot_be_kept_are_measured_all_the_same(known: type[Known], tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert made(blocked).least_ms(Work(10**6), MEGABYTE) == pytest.approx(1.0)
