"""``mptune report`` as a user meets it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import own_kernel
import pytest
from awkward_kernel import run_of
from command_line import Call
from described import create

from mptune.kernel import Sizes
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.tuning.tuning import rendered_sources

pytestmark = pytest.mark.usefixtures("charts")

OWN = Path(own_kernel.__file__)
POLY = own_kernel.kernel


@pytest.fixture
def report(mptune: Call) -> Call:
    return partial(mptune, "report")


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    trials = [
        Trial(POLY.configuration({}), Status.OK, "", Measurement({"time_ms": 2.0, "error": 1e-16}), key="a"),
        Trial(POLY.configuration({"x_type": "fp16"}), Status.CRASH, "signal 11", key="b"),
    ]
    with create(tmp_path / "run.db", run_of(POLY, trials, kernel_path=str(OWN))) as file:
        file.add(*trials)
        file.keep_sources(rendered_sources(Run(file.info, trials), POLY, Sizes({"n": 37})))
    return tmp_path / "run.db"


@pytest.mark.full
def test_a_report_has_a_name_unless_it_is_given_one(report: Call, run_file: Path, tmp_path: Path) -> None:
    code, out, err = report("run.db")
    assert code == 0
    assert out.startswith("report.html (")
    assert err == ""
    code, out, err = report(run_file, run_file, "-o", "both/two.html")
    assert (code, err) == (0, "")
    text = (tmp_path / "both" / "two.html").read_text()
    assert "(run (2))" in text
    assert "poly(double* y, const double* x, int n)" in text


def test_what_a_user_gets_wrong_is_told(report: Call, run_file: Path) -> None:
    before = run_file.read_bytes()
    for arguments, message in (
        (("rum.db",), "did you mean 'run.db'"),
        ((run_file, "-o", run_file), "is a run file: give the report another name"),
        ((run_file, "-o", "/proc/report.html"), "cannot write the report /proc/report.html"),
        ((run_file, "--sources", "-3"), "sources -3: expected at least 0"),
        ((), "Missing argument"),
    ):
        code, out, err = report(*arguments)
        assert (code, out) == (2, "")
        assert message in err
    assert run_file.read_bytes() == before
