"""Files: the format by the suffix, each opens, the same bytes each time, text as text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from synthetic import many_trials, run_of, trial, whole_space

from mptune.errors import PlotError
from mptune.plots import KINDS, save
from mptune.plots import plot as plot_run
from mptune.results import Status
from tests.tiers import few

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
pytest.importorskip("matplotlib.image")
pytestmark = pytest.mark.usefixtures("quick_forest")


@pytest.mark.full
def test_each_format_opens(tmp_path: Path) -> None:
    figure = plot_run(whole_space(), "progress")
    pixels = matplotlib.image.imread(save(figure, tmp_path / "a.png"))
    assert pixels.min() < pixels[0, 0].min() == 1.0  # dark things on white
    svg = ElementTree.parse(save(figure, tmp_path / "a.svg"))
    assert svg.getroot().tag == "{http://www.w3.org/2000/svg}svg"
    pdf = save(figure, tmp_path / "a.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    assert pdf.rstrip().endswith(b"%%EOF")


@pytest.mark.nightly
@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_the_same_run_gives_the_same_bytes_whatever_matplotlib_was_told(tmp_path: Path, suffix: str) -> None:
    first = save(plot_run(whole_space()), tmp_path / f"a{suffix}")
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 5, "svg.hashsalt": "x", "axes.grid": True}):
        second = save(plot_run(whole_space()), tmp_path / f"b{suffix}")
        assert matplotlib.rcParams["font.size"] == 20
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.nightly
@pytest.mark.parametrize("kind", few(sorted(KINDS, key="progress".__ne__)))
def test_text_stays_text(tmp_path: Path, kind: str) -> None:
    figure = plot_run(whole_space(), kind)
    svg = save(figure, tmp_path / "a.svg").read_text()
    assert "axpy on a processor: 54\u00a0configurations" in svg
    pdf = save(figure, tmp_path / "a.pdf").read_bytes()
    assert b"/CIDFontType2" in pdf
    assert b"/Type3" not in pdf


@pytest.mark.parametrize(("width", "inches"), [("column", 3.5), ("page", 7.16)])
def test_widths_are_those_of_a_journal(width: str, inches: float) -> None:
    assert plot_run(whole_space(), "progress", width=width).get_size_inches()[0] == inches


@pytest.mark.full
def test_many_points_are_one_picture_in_a_vector_file(tmp_path: Path) -> None:
    many, few = (save(plot_run(run), tmp_path / "a.svg").read_text() for run in (many_trials(2500, 8), whole_space()))
    assert (many.count("<image"), few.count("<image")) == (1, 0)


def test_suffixes_are_told(tmp_path: Path) -> None:
    figure = plot_run(whole_space(), "progress")
    for name in ("a.jpg", "a", "a.svgz"):
        with pytest.raises(PlotError, match=r"\.png, \.pdf, \.svg by its suffix"):
            save(figure, tmp_path / name)
    assert not list(tmp_path.iterdir())
    assert save(figure, tmp_path / "a.PNG").exists()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = plot_run(whole_space(), "progress")
    with pytest.raises(PlotError, match="there is no folder"):
        save(figure, tmp_path / "nowhere" / "a.png")
    (tmp_path / "b.png").mkdir()
    with pytest.raises(PlotError, match="it is a folder"):
        save(figure, tmp_path / "b.png")

    def refuse(*_: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("mptune.plots.drawing.write_whole", refuse)
    with pytest.raises(PlotError, match=r"cannot write .*a\.png: Permission denied"):
        save(figure, tmp_path / "a.png")


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlotError, match=r'pip install "mptune\[plots\]"'):
        plot_run(whole_space())


@pytest.mark.full
def test_pyplot_is_left_alone_and_matplotlib_is_loaded_when_it_is_needed() -> None:
    code = (
        "import sys, mptune.cli, mptune.plots; sys.path.append('..'); assert 'matplotlib' not in sys.modules; "
        "from synthetic import whole_space; mptune.plots.plot(whole_space()); "
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["pareto", "progress"])
def test_without_colours_markers_tell_groups_apart(kind: str) -> None:
    axes = plot_run(run_of([*whole_space().trials, trial(256, status=Status.CRASH)]), kind).axes[0]
    shapes = {}
    for group in axes.collections:
        white = (group.get_facecolor()[:1, :3] > 0.95).all() if len(group.get_facecolor()) else None
        shapes[group.get_label()] = (np.round(group.get_paths()[0].vertices, 3).tobytes(), white)
    assert len(shapes) >= (6 if kind == "pareto" else 3)
    assert len(set(shapes.values())) == len(shapes)
