"""Files: the format by the suffix, the same bytes each time, text as text, legible without colours."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import many_trials, run_of, trial, whole_space

from mptune.errors import PlotError
from mptune.plots import KINDS, save
from mptune.plots import plot as plot_run
from mptune.plots.style import BAR_STYLES
from mptune.results import Status

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
pytestmark = pytest.mark.usefixtures("quick_forest")


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_the_same_run_gives_the_same_bytes_whatever_matplotlib_was_told(tmp_path: Path, suffix: str) -> None:
    first = save(plot_run(whole_space()), tmp_path / f"a{suffix}")
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 5, "svg.hashsalt": "x", "axes.grid": True}):
        second = save(plot_run(whole_space()), tmp_path / f"b{suffix}")
        assert matplotlib.rcParams["font.size"] == 20
    assert first.read_bytes() == second.read_bytes()
    beginning = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}[suffix]
    assert first.read_bytes().startswith(beginning)


@pytest.mark.parametrize("kind", KINDS)
def test_text_stays_text(tmp_path: Path, kind: str) -> None:
    figure = plot_run(whole_space(), kind)
    svg = save(figure, tmp_path / "a.svg").read_text()
    assert "axpy on a processor: 54\u00a0configurations" in svg
    assert "<dc:date>" not in svg
    pdf = save(figure, tmp_path / "a.pdf").read_bytes()
    assert b"/CIDFontType2" in pdf
    assert b"/Type3" not in pdf
    assert b"CreationDate" not in pdf


@pytest.mark.parametrize(("width", "inches"), [("column", 3.5), ("page", 7.16)])
@pytest.mark.parametrize("kind", KINDS)
def test_widths_are_those_of_a_journal_and_text_can_be_read(kind: str, width: str, inches: float) -> None:
    figure = plot_run(whole_space(), kind, width=width)
    figure.draw_without_rendering()
    assert figure.get_size_inches()[0] == inches
    sizes = {text.get_fontsize() for text in figure.findobj(matplotlib.text.Text) if text.get_text().strip()}
    assert min(sizes) >= 5.5
    assert max(sizes) <= 8


@pytest.mark.parametrize("kind", ["pareto", "progress"])
def test_many_points_are_pixels_in_a_vector_file(tmp_path: Path, kind: str) -> None:
    run = many_trials(2500, 8)
    path = save(plot_run(run, kind), tmp_path / "a.svg")
    assert path.read_text().count("<image") == 1
    assert path.stat().st_size < 400_000
    few = save(plot_run(whole_space(), kind), tmp_path / "b.svg")
    assert "<image" not in few.read_text()


def test_suffixes_are_told(tmp_path: Path) -> None:
    figure = plot_run(whole_space())
    for name in ("a.jpg", "a", "a.svgz"):
        with pytest.raises(PlotError, match=r"\.png, \.pdf, \.svg by its suffix"):
            save(figure, tmp_path / name)
    assert not list(tmp_path.iterdir())
    assert save(figure, tmp_path / "a.PNG").exists()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = plot_run(whole_space())
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


def _luminance(colour: Any) -> float:
    red, green, blue, _ = matplotlib.colors.to_rgba(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue


@pytest.mark.parametrize("kind", ["pareto", "progress"])
def test_without_colours_markers_tell_groups_apart(kind: str) -> None:
    trials = [*whole_space().trials, trial(256, status=Status.CRASH)]
    axes = plot_run(run_of(trials), kind).axes[0]
    shapes = {}
    for group in axes.collections:
        filled = _luminance(group.get_facecolor()[0]) > 0.95 if len(group.get_facecolor()) else None
        outline = np.round(group.get_paths()[0].vertices, 3).tobytes()
        shapes[group.get_label()] = (outline, filled)
    assert len(shapes) >= (6 if kind == "pareto" else 3)
    assert len(set(shapes.values())) == len(shapes)
    named = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    assert len({str(line._unscaled_dash_pattern) for line in named}) == len(named) >= 1


def test_without_colours_hatches_or_brightness_tell_phases_apart() -> None:
    looks = [(hatch, round(_luminance(face) * 4)) for face, hatch in BAR_STYLES]
    assert len(set(looks)) == len(looks)


def test_the_map_grows_darker_or_brighter_all_the_way() -> None:
    from mptune.plots.style import MAP

    colours = matplotlib.colormaps[MAP](np.linspace(0, 1, 64))
    brightness = np.array([_luminance(colour) for colour in colours])
    assert (np.diff(brightness) > 0).all()


def test_names_in_a_svg_do_not_depend_on_chance(tmp_path: Path) -> None:
    svg = save(plot_run(whole_space()), tmp_path / "a.svg").read_text()
    assert re.findall(r'id="m[0-9a-f]{10}"', svg)
