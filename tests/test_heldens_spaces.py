"""Tables II to IV and Figs. 2 and 11 of Heldens 2026: counts against lists, figures against recordings made by hand."""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from mptune.errors import MptuneError
from mptune.interop.recorded import Record, RecordedSpace, assemble
from mptune.interop.recording import write_recording
from mptune.registry import load_kernel
from mptune.results import Measurement, Status

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.reproductions.heldens import ITEMS, spaces, strategies  # noqa: E402
from benchmarks.reproductions.item import Given, Skipped  # noqa: E402

NAMES = ("x_type", "sum_type", "block")
#: Time, error and footprint by the types of x and of the sum.
MEASURED = {
    ("fp64", "fp64"): (8.0, 1e-16, 80.0),
    ("fp64", "fp32"): (6.0, 2e-8, 80.0),
    ("fp32", "fp64"): (5.0, 1e-8, 40.0),
    ("fp32", "fp32"): (4.0, 3e-8, 40.0),
    ("fp16", "fp32"): (2.0, 1e-4, 20.0),
    ("fp16", "fp16"): (2.5, 1e-3, 20.0),
}


def recording() -> RecordedSpace:
    """Blocks of 64 take twice as long, those of 128 crash."""
    records = []
    for (types, (time_ms, error, memory)), block in itertools.product(MEASURED.items(), (32, 64, 128)):
        if block == 128:
            records.append(Record((*types, block), Status.CRASH))
            continue
        numbers = {"time_ms": time_ms * block / 32, "error": error, "memory_bytes": memory * 1e6}
        records.append(Record((*types, block), Status.OK, measurement=Measurement(numbers)))
    return assemble("axpy", NAMES, {}, records, kernel="axpy", device="a processor", signature=NAMES[:2])


@pytest.fixture
def given(tmp_path: Path) -> Given:
    (tmp_path / "data").mkdir()
    write_recording(recording(), tmp_path / "data" / "axpy-host.json.gz")
    return Given(tmp_path / "data", tmp_path, tmp_path, tmp_path / "work", quick=True, runs=2)


def test_configurations_are_counted_by_kind() -> None:
    own = spaces.counts_of(load_kernel("kmeans"))
    types = list(itertools.product(("fp64", "fp32", "fp16", "bf16"), repeat=3))
    sizes = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2}
    launches = list(itertools.product((64, 128, 256, 512, 1024), (1, 2, 4, 8, 16), (False, True)))
    valid = [
        (t, launch)
        for t, launch in itertools.product(types, launches)
        if not launch[2] or 40 * -(-15 * sizes[t[2]] // 16) * 16 <= 48 * 1024
    ]
    assert (own.metric, own.parameters) == ("MRE", (3, 3))
    assert own.total == len(valid)
    assert own.optimisation == len({launch for _, launch in valid})
    assert own.precision == len({t for t, _ in valid})


def test_the_table_of_kernels_has_the_papers_counts(given: Given) -> None:
    made = spaces.h_t2(given)
    rows = {row[0]: row for row in made.tables[0].rows}
    assert len(rows) == 9
    assert rows["K-Means"] == ("K-Means", "MRE", "MRE", "3 + 3", "3 + 3", 52, 50, 64, 64, 3328, 3200, "-3.8%")
    assert [row[-3] for row in rows.values()] == [3024, 72112, 3328, 14896, 4641, 5572, 20736, 29916, 6383]
    assert "9 of 9 kernels have as many parameters" in made.summary


def test_settings_that_differ_are_flagged(given: Given) -> None:
    rows = {(row[0], row[1]): row for row in strategies.h_t3(given).tables[0].rows}
    assert len(rows) == 27
    assert rows["GA", "population size"][2:] == ("26", "genetic", "population = 26", None, "yes", "")
    assert rows["BO", "covariance scale"][4:7] == ("length_scale = 1.5", None, "yes")
    assert rows["BO", "method"][4:7] == ("method = multi-ultrafast", "advanced-multi", "yes")
    for name in (("GA", "max. iterations"), ("SA", "alpha"), ("BH", "method")):
        assert rows[name][6] == "**no**"
        assert rows[name][7]


def test_shares_are_those_of_the_recording(given: Given) -> None:
    made = spaces.h_t4(given)
    rows = [row[1:] for row in made.tables[0].rows]
    assert rows[0] == ("high", "-8", None, f"{100 * 4 / 18:.1f}%", 4, 18)
    assert rows[1] == ("medium", "-4", None, f"{100 * 10 / 18:.1f}%", 10, 18)
    assert rows[2] == ("low", "-2", None, f"{100 * 12 / 18:.1f}%", 12, 18)
    assert "axpy 18 of 1,536" in made.differs[0]
    assert "Bessel" in made.differs[0]


def test_speed_against_error(given: Given, tmp_path: Path) -> None:
    made = spaces.h_f2(given)
    ((name, ran, largest, at, high, medium, low, on_front, mixed),) = made.tables[0].rows
    assert (name, ran, largest, at) == ("axpy", 12, 4.0, pytest.approx(-4.0))
    assert (high, medium, low) == (8 / 5, 4.0, 4.0)
    # fp64; fp32 with sums in fp64; fp32; fp16 with sums in fp32.
    assert (on_front, mixed) == (4, 2)
    assert {row[-1] for row in made.tables[1].rows} == {None}
    (draw,) = made.plots.values()
    draw(tmp_path / "points.png")
    assert (tmp_path / "points.png").stat().st_size > 1000


def test_errors_of_a_type_alone_and_speed_within_an_error() -> None:
    assert spaces.uniform_errors(recording()) == pytest.approx({"fp64": -16, "fp32": math.log10(3e-8), "fp16": -3})
    points = spaces.Points.of(recording())
    assert len(points.trials) == 12
    assert points.fastest_within(-8.0) == 8 / 5
    assert points.fastest_within(-3.99) == 4.0
    assert math.isnan(points.fastest_within(-17.0))


def test_an_error_of_zero_is_drawn_at_the_least_there_is() -> None:
    records = [
        Record((kind, "fp64", 32), Status.OK, measurement=Measurement({"time_ms": 1.0, "error": error}))
        for kind, error in (("fp64", 0.0), ("fp32", 1e-9))
    ]
    points = spaces.Points.of(assemble("axpy", NAMES, {}, records, kernel="axpy"))
    assert np.allclose(points.errors, -9.0)


def test_memory_against_error(given: Given) -> None:
    made = spaces.h_f11(given)
    rows = [row[2:] for row in made.tables[0].rows]
    assert rows[0] == (None, "2.00×", None, "1.60×", "40,000 kB")
    assert rows[1] == rows[2] == (None, "4.00×", None, "4.00×", "20,000 kB")
    assert "0.64 GB in fp64" in made.differs[0]
    assert spaces.smallest_within(recording(), 1e-17) is None


def test_without_recordings_items_that_need_them_are_skipped(tmp_path: Path) -> None:
    empty = Given(tmp_path, tmp_path, tmp_path, tmp_path)
    nowhere = Given(tmp_path / "none", tmp_path, tmp_path, tmp_path)
    for name in ("h-t4", "h-f2", "h-f11"):
        with pytest.raises(Skipped, match="no recorded space in"):
            ITEMS[name].run(empty)
        with pytest.raises(MptuneError, match="there is no folder of recorded spaces"):
            ITEMS[name].run(nowhere)
