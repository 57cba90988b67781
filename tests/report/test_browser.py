"""The page in a real browser: it loads alone, shows what the run holds, and nothing in a run becomes code."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from application_trials import application_run
from described import described_run
from reported_runs import HOSTILE, hostile_run, large_run, run_of, small_run, timing_run, valid

from mptune.report import write_report
from mptune.run import Run

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

    def call(*runs: Run, size: tuple[int, int] = LAPTOP, scheme: str = "light") -> Any:
        path = tmp_path / "report.html"
        write_report(list(runs), path)
        tab.file = path.as_uri()
        tab.page.set_viewport_size({"width": size[0], "height": size[1]})
        tab.page.emulate_media(color_scheme=scheme)
        tab.page.goto(tab.file)
        assert tab.page.evaluate("document.documentElement.dataset.ready") == "true", tab.complaints
        return tab.page

    yield call
    complaints, tab.complaints = tab.complaints, []
    assert complaints == []


def rows(page: Any) -> list[int]:
    """Return the numbers of the trials in the table's document, in their order."""
    return page.eval_on_selector_all("#trials tr[data-trial]", "rows => rows.map(row => Number(row.dataset.trial))")  # type: ignore[no-any-return]


def choose(page: Any, number: int) -> None:
    page.locator(f"#trials tr[data-trial='{number}']").click()


def mark(page: Any, plot: str) -> tuple[float, float]:
    """Return where the chosen trial is in a plot."""
    circle = page.locator(f"#{plot} circle.chosen")
    return float(circle.get_attribute("cx")), float(circle.get_attribute("cy"))


def pixels(page: Any, plot: str) -> list[tuple[float, float]]:
    """Return the points a staircase in a plot leads to."""
    path = page.locator(f"#{plot} path.line.front:not(.sample)").get_attribute("d")
    return [(float(x), float(y)) for x, y in re.findall(r"[MH]([-\d.]+)[ V]([-\d.]+)", path)]


# -- loading -----------------------------------------------------------------------------------

RUNS: dict[str, Callable[[], list[Run]]] = {
    "no trial": lambda: [run_of()],
    "one": lambda: [run_of(valid("fp64", 32, 1.0, 0.0))],
    "none feasible": lambda: [run_of(*small_run().trials[1:], threshold=1e-30)],
    "all failed": lambda: [run_of(*small_run().failures)],
    "no threshold": lambda: [small_run(threshold=None)],
    "times alone": lambda: [timing_run()],
    "application": lambda: [application_run()],
    "empty file": lambda: [described_run({}, ())],
    "several": lambda: [small_run(), timing_run(), run_of(), hostile_run(), small_run(device="another")],
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", RUNS)
def test_every_run_is_shown_at_every_width(show: Open, name: str) -> None:
    for size, scheme in ((LAPTOP, "light"), (PHONE, "dark")):
        page = show(*RUNS[name](), size=size, scheme=scheme)
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        assert page.evaluate("document.documentElement.scrollWidth") == size[0]
        assert "null" not in page.inner_text("body")
        assert "undefined" not in page.inner_text("body")
        assert (
            page.evaluate("""
            [...document.querySelectorAll("body *")].flatMap(element => [...element.attributes])
                .filter(({ value }) => /NaN|Infinity|undefined/.test(value)).length""")
            == 0
        )


def test_nothing_in_a_run_runs(show: Open) -> None:
    page = show(hostile_run())
    choose(page, 2)
    page.fill("#filter", HOSTILE.split()[0])
    assert page.evaluate("window.pwned") is None
    assert page.locator("script").count() == 2
    assert page.locator("img").count() == 0
    assert page.text_content("h1") == HOSTILE
    assert page.text_content("#detail .message") == HOSTILE
    assert HOSTILE in page.text_content("#failures")


def test_the_policy_lets_nothing_in_or_out(show: Open, tab: Tab) -> None:
    page = show(small_run())
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'pwned = 2'}))")
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("fetch('https://example.org/').then(() => 'let out', () => 'refused')") == "refused"
    assert len(tab.complaints) >= 2
    assert all("Content Security Policy" in complaint for complaint in tab.complaints)
    tab.complaints.clear()


# -- choosing ----------------------------------------------------------------------------------


def test_the_front_is_the_runs(show: Open) -> None:
    run = small_run()
    page = show(run)
    front = run.pareto(("time_ms", "error"))
    places = []
    for trial in front:
        choose(page, run.trials.index(trial) + 1)
        places.append(mark(page, "pareto"))
    assert len(front) > 3
    assert pixels(page, "pareto") == [pytest.approx(place, abs=0.1) for place in places]
    page.select_option("#pareto select >> nth=1", "memory_bytes")
    assert len(pixels(page, "pareto")) == len(run.pareto(("time_ms", "memory_bytes")))


def test_the_details_of_a_trial(show: Open) -> None:
    page = show(small_run())
    choose(page, 8)
    assert "k.cu:7:3: error: no such thing 7" in page.inner_text("#detail .message")
    assert "compile_error" in page.inner_text("#detail")
    assert "It has no numbers" in page.inner_text("#detail")
    assert "-p x_type=fp16 -p block=64 -p unroll=False" in page.inner_text("#source .command")
    choose(page, 7)
    assert "error 0.004 is above the threshold" in page.inner_text("#detail .message")
    cells = page.locator("#detail tr", has_text=re.compile("^y")).locator("td").all_inner_texts()
    assert cells == ["0.004", "1e-4", "above"]
    assert page.locator("#detail tr.changed th").all_inner_texts() == ["x_type", "block"]
    page.locator("#failures button").first.click()
    assert page.inner_text("#detail-title") == "Trial 8"
    assert page.inner_text(".tile.good strong") == "2×"


# -- the table ---------------------------------------------------------------------------------


def test_sorting(show: Open) -> None:
    page = show(small_run())
    assert rows(page) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    page.click("[data-column=time_ms]")
    assert rows(page) == [7, 5, 4, 2, 1, 3, 6, 8, 9]
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("time_ms")
    page.click("[data-column=time_ms]")
    assert rows(page) == [1, 2, 4, 5, 7, 3, 6, 8, 9]
    page.click("[data-column=time_ms]")
    assert rows(page) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    # The order of a parameter's values is that of the search space, not of the alphabet.
    page.click("[data-column=x_type]")
    assert rows(page) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_filtering(show: Open) -> None:
    page = show(small_run())
    for text, expected in (
        ("fp16", [7, 8, 9]),
        ("FP16 compile", [8, 9]),
        ("time_ms<4", [5, 7]),
        ("time_ms <= 4 and error<1e-4", [4, 5]),
        ("status=ok", [1, 2, 4, 5]),
        ("status!=ok x_type=fp32", [6]),
        ("block>=128", [3, 6, 9]),
        ('message~"no such"', []),
        ('"no such thing 9"', [9]),
        ("trial=3", [3]),
        ("speedup>1 unroll=false", [4, 5, 7]),
        ("nothing like it", []),
    ):
        page.fill("#filter", text)
        assert rows(page) == expected, text
        assert page.inner_text("#filter-said") == f"{len(expected)} of 9 trials"


def test_a_filter_that_cannot_be_read_says_why(show: Open) -> None:
    page = show(small_run())
    page.fill("#filter", "tim_ms<4")
    assert page.inner_text("#filter-said") == "there is no column “tim_ms”; did you mean time_ms?"
    assert rows(page) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    page.fill("#filter", "")
    page.click("#trials .chip[data-status=compile_error]")
    assert page.input_value("#filter") == "status=compile_error"
    assert rows(page) == [8, 9]
    page.click("#trials .chip[data-status=compile_error]")
    assert len(rows(page)) == 9


# -- many --------------------------------------------------------------------------------------


def test_ten_thousand_trials_stay_light(show: Open) -> None:
    page = show(large_run())
    # Work, not time: what is laid out does not go with the number of trials.
    assert page.evaluate("document.querySelectorAll('*').length") < 1500
    assert len(rows(page)) < 60
    page.evaluate("document.querySelector('.scroller').scrollTop = 30 * 5000")
    page.wait_for_selector("#trials tr[data-trial='5005']")
    assert len(rows(page)) < 60
    page.fill("#filter", "trial>9990")
    assert rows(page) == list(range(9991, 10_001))
    page.fill("#filter", "")
    page.click("[data-column=time_ms]")
    fastest = sorted((t for t in large_run().trials if t.is_valid), key=lambda t: t.time_ms)
    positions = {t.configuration: i + 1 for i, t in enumerate(large_run().trials)}
    assert rows(page)[:20] == [positions[t.configuration] for t in fastest[:20]]
    assert page.evaluate("document.querySelectorAll('*').length") < 1500


# -- several runs ------------------------------------------------------------------------------


def test_runs_beside_one_another(show: Open) -> None:
    page = show(small_run(), run_of(valid("fp64", 32, 9.0, 1e-16), valid("fp32", 32, 3.0, 1e-7), device="a GPU"))
    assert page.locator("#runs tbody tr").count() == 2
    assert page.locator("#pareto path.line.front:not(.sample)").count() == 2
    page.click("#runs tr[data-run='saxpby (2)'] button")
    assert "a GPU" in page.inner_text("#head")
    assert page.inner_text(".tile.good strong") == "3×"
    assert rows(page) == [1, 2]
    page.uncheck("#runs tr[data-run='saxpby'] input")
    assert page.locator("#pareto path.line.front:not(.sample)").count() == 1
