"""The page in a real browser: it loads alone, shows what the run holds, and nothing in a run becomes code."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from application_trials import application_run
from described import described_run
from reported_runs import HOSTILE, hostile_run, large_run, run_of, small_run, timing_run

from mptune.run import Run
from mptune.show import write_report

sync_api = pytest.importorskip("playwright.sync_api", reason='playwright is not installed: pip install ".[test]"')
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH (Debian: apt-get install chromium)"),
]

LAPTOP, PHONE = (1366, 768), (390, 844)
#: A root may not use the sandbox; the pages are the tests' own.
FLAGS = ["--no-sandbox", "--disable-gpu"]

Open = Callable[..., Any]


class Tab:
    """The one page of the tests, which notes what it complains of and asks for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.file = ""
        page.set_default_timeout(120_000)
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))

    def _asked(self, url: str) -> None:
        if url != self.file:
            self.complaints.append(f"asked for {url}")


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield Tab(browser.new_page())
        browser.close()


@pytest.fixture
def show(tab: Tab, tmp_path: Path) -> Iterator[Open]:
    """Open a report on runs; until the end of the test, the page may complain of nothing and ask for nothing."""

    def call(*runs: Run, size: tuple[int, int] = LAPTOP) -> Any:
        path = tmp_path / "report.html"
        write_report(list(runs), path)
        tab.file = path.as_uri()
        tab.page.set_viewport_size({"width": size[0], "height": size[1]})
        tab.page.goto(tab.file)
        tab.page.wait_for_selector("html[data-ready=true]")
        return tab.page

    yield call
    complaints, tab.complaints = tab.complaints, []
    assert complaints == []


def rows(page: Any) -> list[int]:
    """Return the numbers of the trials in the table, in their order."""
    return page.eval_on_selector_all(".trials tr[data-trial]", "rows => rows.map(row => Number(row.dataset.trial))")  # type: ignore[no-any-return]


RUNS: dict[str, Callable[[], list[Run]]] = {
    "no trial": lambda: [run_of()],
    "none feasible": lambda: [run_of(*small_run().trials[1:], threshold=1e-30)],
    "all failed": lambda: [run_of(*small_run().failures)],
    "times alone": lambda: [timing_run()],
    "application": lambda: [application_run()],
    "empty file": lambda: [described_run({}, ())],
    "several": lambda: [small_run(), timing_run(), run_of(), hostile_run(), small_run(device="another")],
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", RUNS)
def test_every_run_is_shown_at_every_width(show: Open, name: str) -> None:
    for size in (LAPTOP, PHONE):
        page = show(*RUNS[name](), size=size)
        assert page.evaluate("document.documentElement.scrollWidth") == size[0]
        assert not {"null", "undefined", "NaN"} & set(page.inner_text("body").split())


def test_nothing_in_a_run_runs(show: Open, tab: Tab) -> None:
    page = show(hostile_run(), small_run(kernel=HOSTILE, device=HOSTILE, metric=HOSTILE))
    page.locator(".trials tr[data-trial='2']").first.click()
    assert page.evaluate("window.pwned") is None
    assert page.locator("script").count() == 3
    assert page.locator("img").count() == 0
    # What has no width, such as a line separator, is shown by its number.
    assert HOSTILE.split("\u2028")[0] in page.text_content("h1 >> nth=1")
    assert HOSTILE.split("\u2028")[0] in page.text_content(".detail >> nth=0")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'pwned = 2'}))")
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("fetch('https://example.org/').then(() => 'let out', () => 'refused')") == "refused"
    assert all("Content Security Policy" in complaint for complaint in tab.complaints)
    tab.complaints.clear()


def test_sorting_and_filtering(show: Open) -> None:
    page = show(small_run())
    assert rows(page) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    page.click("[data-column=time_ms] button")
    assert rows(page) == [7, 5, 4, 2, 1, 3, 6, 8, 9]
    page.click("[data-column=time_ms] button")
    assert rows(page) == [1, 2, 4, 5, 7, 3, 6, 8, 9]
    page.click("[data-column=trial] button")
    for text, expected in (
        ("fp16", [7, 8, 9]),
        ("FP16 compile", [8, 9]),
        ("time_ms <= 4 and error<1e-4", [4, 5]),
        ("status=ok", [1, 2, 4, 5]),
        ("status!=ok x_type=fp32", [6]),
        ("block>=128", [3, 6, 9]),
        ('"no such thing 9"', [9]),
        ("speedup>1 unroll=false", [4, 5, 7]),
        ("nothing like it", []),
    ):
        page.fill("input", text)
        assert rows(page) == expected, text
        assert page.inner_text(".said") == f"{len(expected)} of 9 trials"
    page.fill("input", "tim_ms<4")
    assert page.inner_text(".said").startswith("there is no column “tim_ms”: trial, status, time_ms")


def test_chart_and_table_choose_the_same_trial(show: Open) -> None:
    page = show(small_run())
    page.locator(".trials tr[data-trial='7']").click()
    assert page.inner_text(".detail h2") == "Trial 7"
    assert "error 0.004 is above the threshold" in page.inner_text(".detail")
    ring = page.locator(".chart >> nth=0").locator("path[stroke='#D55E00'][fill='transparent']")
    ring.first.wait_for()
    point = page.locator(".chart >> nth=0").locator("path[aria-roledescription=point]").first
    point.click(force=True)
    page.locator(".detail h2:not(:text-is('Trial 7'))").wait_for()
    page.fill("input", "x_type=fp64")
    faint = page.locator(".chart >> nth=0").locator("path[aria-roledescription=point][opacity='0.12']")
    faint.first.wait_for(state="attached")
    assert faint.count() >= 4


def test_ten_thousand_trials_stay_light(show: Open, tmp_path: Path) -> None:
    page = show(large_run())
    assert (tmp_path / "report.html").stat().st_size < 6_000_000
    assert len(rows(page)) == 200
    page.click(".more")
    assert len(rows(page)) == 400
    page.fill("input", "trial>9990")
    assert rows(page) == list(range(9991, 10_001))
