"""The papers' experiments: which items there are, what is kept of them, and what each computes."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import papers  # noqa: E402
from benchmarks.reproductions.heldens import coclustering  # noqa: E402
from benchmarks.reproductions.item import Given, Item, Outcome, Skipped, Table, require  # noqa: E402
from benchmarks.reproductions.page import ABSENT  # noqa: E402
from benchmarks.search.cells import Cache  # noqa: E402
from mptune.backends.processor import processor  # noqa: E402
from mptune.errors import MptuneError  # noqa: E402


def given(tmp_path: Path) -> Given:
    return Given(tmp_path / "data", tmp_path / "spaces", tmp_path / "published", tmp_path / "work", size=("smoke",))


def outcome(value: float) -> Outcome:
    table = Table("Speed", ("kernel", "paper", "here"), (("axpy", 2, value), ("gemm", None, float("nan"))))
    return Outcome(f"It is {value}.", (table,), ("Another machine.",), {"dot": lambda path: path.write_bytes(b"png")})


def missing(given: Given) -> Outcome:
    require(given.published / "runs.json", "file of raw runs", "--published")
    raise AssertionError


def broken(given: Given) -> Outcome:
    raise MptuneError("nothing runs")


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> dict[str, Item]:
    known = {
        "h-f1": Item("Somebody 2026, Fig. 1", "speed of two kernels", lambda given: outcome(1.25)),
        "h-t1": Item("Somebody 2026, Table I", "what is not there", missing),
        "h-t2": Item("Somebody 2026, Table II", "what does not work", broken),
        "h-f2": Item("Somebody 2026, Fig. 2", "more of them", lambda given: outcome(7.5)),
    }
    monkeypatch.setattr(papers, "items", lambda: known)
    return known


def test_items_are_listed_and_a_wrong_name_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert papers.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*papers.items(), *("-" for _ in ABSENT)]
    needs = {line.split()[0]: line.partition("(needs ")[2] for line in lines}
    assert (needs["w-mdf"], needs["b-f9"], needs["h-f4"]) == ("--published)", "--spaces)", "")
    assert papers.main(["h-f113"]) == 2
    assert "did you mean 'h-f13'" in capsys.readouterr().err
    assert papers.main(["h-f13", "--runs", "0"]) == 2
    assert "--runs must be at least 1, not 0" in capsys.readouterr().err
    assert papers.main(["h-f13", "--seed", "-1"]) == 2
    assert "--seed must be at least 0, not -1" in capsys.readouterr().err


@pytest.mark.usefixtures("made_up")
def test_an_item_done_again_replaces_its_own_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert papers.main(["h-f2", "h-f1", "--output", str(tmp_path)]) == 0
    (tmp_path / "papers" / "h-f1-old.png").touch()
    known = dict(papers.items())
    known["h-f1"] = Item("Somebody 2026, Fig. 1", "speed of two kernels", lambda given: outcome(3.5))
    monkeypatch.setattr(papers, "items", lambda: known)
    assert papers.main(["h-f1", "--runs", "7", "--output", str(tmp_path)]) == 0
    page = (tmp_path / "papers.md").read_text()
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert [heading.partition(":")[0] for heading in headings] == ["## h-f1", "## h-f2", "## Without an item"]
    first = "[h-f1](#h-f1-speed-of-two-kernels-somebody-2026-fig-1)"
    assert f"| {first} | Somebody 2026, Fig. 1 | It is 3.5. | {processor().name} |" in page
    assert "| axpy | 2 | 3.5 |\n| gemm | - | - |" in page
    assert "| axpy | 2 | 7.5 |" in page
    assert "1.25" not in page
    assert "`python benchmarks/papers.py h-f1 --runs 7 --output" in page
    assert "- Another machine." in page
    assert "![h-f1-dot](papers/h-f1-dot.png)" in page
    assert sorted(path.name for path in (tmp_path / "papers").glob("*.png")) == ["h-f1-dot.png", "h-f2-dot.png"]
    kept = json.loads((tmp_path / "papers" / "h-f1.json").read_text())
    assert kept["tables"][0]["rows"] == [["axpy", 2, 3.5], ["gemm", None, None]]
    assert kept["about"]["cpu"]


@pytest.mark.usefixtures("made_up")
def test_an_item_without_data_is_skipped_and_one_that_fails_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = ["--published", str(tmp_path / "none"), "--output", str(tmp_path)]
    assert papers.main(["h-t1", "h-f1", *absent]) == 0
    said = capsys.readouterr()
    file = tmp_path / "none" / "runs.json"
    assert f"h-t1 is skipped: there is no file of raw runs: {file} (--published names another folder)" in said.err
    assert "## h-f1:" in said.out
    page = (tmp_path / "papers.md").read_text()
    assert "Without results so far: h-t1, h-t2, h-f2." in page
    assert "--quick" not in page
    # Where nothing is found there is a page, too.
    assert papers.main(["h-t1", *absent[:2], "--output", str(tmp_path / "new")]) == 1
    assert "Without results so far: h-f1, h-t1, h-t2, h-f2." in (tmp_path / "new" / "papers.md").read_text()
    assert papers.main(["all", *absent]) == 1
    said = capsys.readouterr()
    assert "h-t2 failed: nothing runs" in said.err
    assert "## h-f2:" in said.out


@pytest.mark.usefixtures("made_up")
def test_quick_results_do_not_replace_the_kept_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(papers, "ROOT", tmp_path)
    assert papers.main(["h-f1", "--quick"]) == 0
    page = (tmp_path / "build" / "papers-quick" / "papers.md").read_text()
    assert "## h-f1: speed of two kernels (Somebody 2026, Fig. 1)\n\n**Of `--quick`:" in page
    assert not (tmp_path / "benchmarks").exists()


def test_the_page_is_put_together_from_what_is_kept(
    tmp_path: Path, made_up: dict[str, Item], capsys: pytest.CaptureFixture[str]
) -> None:
    assert papers.main(["h-f1", "h-f2", "--output", str(tmp_path)]) == 0
    before = (tmp_path / "papers.md").read_text()
    (tmp_path / "papers.md").write_text("lost")
    capsys.readouterr()
    assert papers.main(["page", "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "papers.md").read_text() == before
    assert set(made_up) == set(papers.items())


def test_replays_need_a_folder_to_be_kept_in(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder, why in (("file", "expected a folder"), ("file/below", "Not a directory")):
        with pytest.raises(MptuneError, match=f"--work .*{folder}: {why}"):
            Cache(tmp_path / folder)


def test_a_row_has_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError, match="a row of 1 cells for 2 columns"):
        Table("Speed", ("kernel", "ms"), (("axpy",),))
    with pytest.raises(Skipped, match="there is no folder"):
        require(Path("nowhere"), "folder of recordings", "--data")


# -- Heldens 2026, Figs. 13 and 14 -----------------------------------------------------------------


def test_versions_are_those_of_the_paper() -> None:
    assert list(coclustering.VERSIONS) == ["FP64", "FP32", "High", "Med.", "Low"]
    high, low = coclustering.VERSIONS["High"], coclustering.VERSIONS["Low"]
    assert (high.data_type, high.max_error, high.speedup, high.nmi) == ("fp32", 1e-8, 1.65, 0.99)
    assert (low.data_type, low.max_error, low.speedup, low.nmi) == ("fp16", 1e-2, 2.51, 0.78)


def test_the_table_of_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = coclustering.bbac().configuration({"data_type": "fp32"})
    times = dict(zip(coclustering.VERSIONS, (10.0, 6.0, 7.0, 5.0, 4.0), strict=True))
    found = {
        name: {"configuration": configuration, "time_ms": ms, "kernels_ms": ms / 2, "nmi": [1.0, 0.9]}
        for name, ms in times.items()
    }
    monkeypatch.setattr(coclustering, "measured", lambda given: found)
    monkeypatch.setattr(
        coclustering,
        "versions",
        lambda given: dict.fromkeys(found, (configuration, ())) | {"Med.": (configuration, ("update",))},
    )
    made = coclustering.h_f13(given(tmp_path))
    (table,) = made.tables
    rows = {row[0]: row for row in table.rows}
    assert rows["Low"][1:7] == (2.51, 2.5, 2.5, 0.78, pytest.approx(0.95), 0.9)
    assert str(rows["Low"][7]).startswith("data_type fp32,")
    assert rows["Med."][1:5] == (None, 2.0, 2.0, None)
    assert "the closest are taken: Med.: update." in made.differs[-1]
    assert "40 x 2,003 made-up entries" in made.differs[0]
    made.plots["speedup-and-nmi"](tmp_path / "versions.png")
    assert (tmp_path / "versions.png").stat().st_size > 1000
    assert made.data["Low"] == {"nmi": [1.0, 0.9], "time_ms": 4.0, "kernels_ms": 2.0}


@pytest.mark.full
def test_a_map_of_clusters_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = coclustering.bbac().configuration({})
    narrow = coclustering.bbac().configuration({"data_type": "fp16"})
    monkeypatch.setattr(coclustering, "versions", lambda given: {"FP64": (wide, ()), "Low": (narrow, ())})
    made = coclustering.h_f14(given(tmp_path))
    ((_, paper, here),) = made.tables[0].rows
    assert paper == 0.78
    assert 0.0 <= float(str(here)) <= 1.0
    made.plots["clusters"](tmp_path / "map.png")
    from matplotlib.image import imread

    height, width, _ = imread(tmp_path / "map.png").shape
    assert width > 2.5 * height


def test_a_size_is_for_items_that_are_run_at_any(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert papers.main(["l-f8", "--size", "M=0", "--output", str(tmp_path)]) == 2
    assert "--size: l-f8 has sizes of its own; it is for h-f6, h-f12, h-f13, h-f14" in capsys.readouterr().err
    assert papers.main(["h-f6", "--backend", "opencl", "--output", str(tmp_path)]) == 2
    assert "--backend: h-f6 is of the host backend; it is for l-f8, l-f12, l-f15" in capsys.readouterr().err
    assert papers.main(["h-f6", "--size", "nowhere", "--output", str(tmp_path)]) == 1
    assert "kernel bessel" in capsys.readouterr().err
    assert not (tmp_path / "papers").exists()


@pytest.mark.usefixtures("made_up")
def test_a_file_where_results_should_go_is_refused_before_anything_is_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    assert papers.main(["h-f1", "--output", str(tmp_path / "file")]) == 2
    said = capsys.readouterr()
    assert f"--output {tmp_path / 'file'}: expected a folder" in said.err
    assert papers.main(["h-f1", "--output", str(tmp_path / "file" / "below")]) == 2
    assert f"error: --output {tmp_path / 'file' / 'below'}: Not a directory" in capsys.readouterr().err
    assert papers.main(["page", "--output", str(tmp_path / "mistyped")]) == 2
    assert "no results are kept there that a page could be written of" in capsys.readouterr().err
    assert not (tmp_path / "mistyped").exists()
    assert not said.out
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.usefixtures("made_up")
def test_who_stops_it_is_told_that_it_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(given: Given) -> Outcome:
        raise KeyboardInterrupt

    known = {**papers.items(), "h-f1": Item("Somebody 2026, Fig. 1", "speed", stop)}
    monkeypatch.setattr(papers, "items", lambda: known)
    assert papers.main(["h-f1", "--output", str(tmp_path)]) == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_options_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        papers.main(["h-t3", "--qui"])
    assert "unrecognized arguments: --qui" in capsys.readouterr().err


@pytest.mark.usefixtures("made_up")
def test_what_is_damaged_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert papers.main(["h-f1", "--output", str(tmp_path)]) == 0
    kept = tmp_path / "papers" / "h-f1.json"
    whole = json.loads(kept.read_text())
    damaged = (
        "{",
        "[]",
        "null",
        "{}",
        "[" * 100_000,
        *(
            json.dumps({**whole, **part})
            for part in (
                {"summary": None},
                {"item": "h-f2"},
                {"differs": "abc"},
                {"differs": [1]},
                {"where": None},
                {"plots": ["h-f1-none.png"]},
                *(
                    {"tables": [{"title": "t", "columns": ["c"], "rows": [[cell]]}]}
                    for cell in (True, math.nan, "a\n## b")
                ),
            )
        ),
    )
    for text in damaged:
        kept.write_text(text)
        assert papers.main(["page", "--output", str(tmp_path)]) == 2
        assert "h-f1.json is damaged" in capsys.readouterr().err
    # Done again it is whole.
    assert papers.main(["h-f1", "--output", str(tmp_path)]) == 0


def test_slow_tools_are_run_a_tenth_as_often_and_five_times_at_least(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = {
        runs: (of.runs_of(is_slow=False), of.runs_of(is_slow=True))
        for runs in (1, 4, 10, 49, 100)
        for of in [replace(given(tmp_path), runs=runs)]
    }
    assert counts == {1: (1, 1), 4: (4, 4), 10: (10, 5), 49: (49, 5), 100: (100, 10)}
    with pytest.raises(SystemExit):
        papers.main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "of slow ones one for every 10 of the others, 5 at least where so many are asked for" in said
    assert "those a tenth as often, five times at least" in said
