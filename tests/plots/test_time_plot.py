"""The time: phases add up to the wall time, along the run to the same totals."""

from __future__ import annotations

import pytest
from synthetic import run_of, trial, whole_space

from mptune.errors import PlotError
from mptune.plots import plot
from mptune.plots.time import along, totals

pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def test_totals_add_up_to_the_wall_time() -> None:
    total = totals(whole_space())
    assert list(total) == ["compile", "search", "timing", "prepare", "other"]
    assert sum(total.values()) == pytest.approx(100.0)
    assert total["compile"] == pytest.approx(27.0)
    bars = plot(whole_space(), "time").axes[0]
    assert [label.get_text() for label in bars.get_yticklabels()] == list(total)
    assert [patch.get_width() for patch in bars.patches] == pytest.approx(list(total.values()))
    assert [text.get_text().strip() for text in bars.texts][:2] == ["27 s (27%)", "20 s (20%)"]
    assert bars.get_xlabel() == "wall time (s)"


def test_what_took_less_than_a_hundredth_is_among_the_others() -> None:
    run = run_of([trial(time_ms=1.0, durations_s={"compile": 50.0, "transfer": 0.5})], search_s=0.0)
    assert totals(run) == {"compile": 50.0, "prepare": 10.0, "other": pytest.approx(40.0)}


def test_along_the_run_it_adds_up_to_the_totals() -> None:
    figure = plot(whole_space(), "time")
    areas = {c.get_gid(): c.get_paths()[0].vertices for c in figure.axes[1].collections}
    assert set(areas) == {"along compile", "along timing"}
    assert areas["along compile"][:, 1].max() == pytest.approx(27.0)
    assert areas["along timing"][:, 1].max() == pytest.approx(27.0 + 13.5)
    assert areas["along compile"][:, 0].max() == 54


def test_devices_work_at_the_same_time() -> None:
    run = whole_space(workers=2)
    assert along(run, ["compile"])["compile"][-1] == pytest.approx(13.5) == totals(run)["compile"]
    assert "2 devices at a time" in plot(run, "time").get_suptitle()


def test_hours_and_milliseconds_have_their_units() -> None:
    def axis(seconds: float) -> str:
        run = run_of([trial(time_ms=1.0, durations_s={"compile": seconds})], wall_s=seconds, prepare_s=0, search_s=0)
        return str(plot(run, "time").axes[0].get_xlabel())

    assert [axis(s) for s in (0.5, 30.0, 600.0, 9000.0)] == [f"wall time ({u})" for u in ("ms", "s", "min", "h")]


def test_a_recording_without_durations_is_told() -> None:
    with pytest.raises(PlotError, match="recorded without durations"):
        plot(run_of([trial(time_ms=1.0)], wall_s=0.0, prepare_s=0.0, search_s=0.0), "time")
