"""Tuning for a range of sizes: which are asked for, how much each is searched, and what an interruption leaves."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from command_line import Call, caller
from made_up_devices import MadeUp, replace_devices
from test_application import application, inputs

from mptune import TunedApplication, TunedKernel, tune_sizes
from mptune.cli.options import parse_several_sizes
from mptune.emit import emit_dispatch
from mptune.errors import KernelError, MptuneError
from mptune.run import Run
from mptune.schemas import schema
from mptune.space.configuration import Configuration
from mptune.tuning import Progress, TuneSettings
from mptune.wisdom import gather, read_sources

OWN = Path(__file__).parent / "own_kernel.py"
TUNE = ("tune", OWN, "--backend", "host", "--max-error", "1e-5", "--verify", 5)


@pytest.fixture
def mptune(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    monkeypatch.chdir(tmp_path)
    return caller(monkeypatch, capfd)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("n=1e5,1e6,10000000", (100_000, 1_000_000, 10_000_000)),
        ("n=1e5:1e7:5", (100_000, 316_228, 1_000_000, 3_162_278, 10_000_000)),
        ("n=1:5:5", (1, 2, 3, 4, 5)),
        ("n=10:13:3", (10, 11, 13)),
    ],
)
def test_sizes_are_listed_or_at_equal_ratios(text: str, values: tuple[int, ...]) -> None:
    assert parse_several_sizes([text]) == {"n": values}


# -- runs ----------------------------------------------------------------------------------------


def made_up(configuration: Configuration) -> MadeUp:
    return MadeUp(1.0, 1e-16) if configuration["x_type"] == "fp64" else MadeUp(0.5, 1e-7)


@pytest.mark.full
def test_a_run_for_each_size_under_one_budget(mptune: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_devices(monkeypatch, made_up)
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    done = mptune(*TUNE, "--sizes", "n=500:8000:2", "--budget", 10, "--output", "my.db", "--json")
    document = json.loads(done.out)
    jsonschema.Draft202012Validator(schema("sizes")).validate(document)
    assert document["kernel"] == "poly"
    assert document["sizes"] == {"n": [500, 8000]}
    files = ["my-n500.db", "my-n8000.db"]
    assert [each["run_file"] for each in document["runs"]] == files
    assert f"run files: {', '.join(files)}" in done.err
    assert document["evaluations"] == 10 == sum(each["result"]["evaluations"] for each in document["runs"])
    assert [each["result"]["sizes"] for each in document["runs"]] == [{"n": n} for n in (500, 8000)]
    runs = [Run.load(file) for file in files]
    assert [Path(source).name for source in runs[0].info.started_from] == ["my-n8000.db"]
    assert runs[0].best.configuration in {t.configuration for t in runs[1].trials}
    assert runs[1].best.configuration in {t.configuration for t in runs[0].trials}
    assert done.code == 0

    shown = mptune(*TUNE, "--sizes", "n=500:8000:2", "--budget", 11, "--output", "my.db", "--resume")
    assert re.search(r"run +evaluations +feasible +baseline time \(ms\) +best time \(ms\) +speedup +error", shown.out)
    assert re.search(r"\nn 500 .*\nn 8000 ", shown.out)
    assert sum(Run.load(file).evaluations for file in files) == 11
    found = " ".join(file for file in files if Run.load(file).best is not None)
    assert f"for any size: mptune wisdom {found} -o poly.wisdom.json" in shown.err
    again = mptune(*TUNE, "--sizes", "n=500:8000:2", "--budget", 10, "--output", "my.db")
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "my-n500.db" in again.err


def test_what_was_broken_off_goes_on_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_devices(monkeypatch, made_up)
    settings = TuneSettings(backend="host", max_error=1e-5, budget=10, verify=0, strategy="random")
    told: list[tuple[Mapping[str, int], int]] = []
    trials = 0

    def interrupt(progress: Progress) -> None:
        nonlocal trials
        trials += 1
        if trials == 7:
            raise KeyboardInterrupt

    sizes = {"n": (40, 400)}
    with pytest.raises(KeyboardInterrupt):
        tune_sizes(OWN, sizes, settings, output=tmp_path / "r.db", on_progress=interrupt)
    before = {path.name: Run.load(path) for path in tmp_path.glob("*.db")}
    assert sum(run.evaluations for run in before.values()) == 7

    runs = tune_sizes(
        OWN, sizes, settings, output=tmp_path / "r.db", resume=True, on_size=lambda at, n: told.append((at, n))
    )
    assert [at for at, _ in told[:2]] == [{"n": 400}, {"n": 40}]
    assert [run.info.sizes["n"] for run in runs] == [40, 400]
    assert sum(run.evaluations for run in runs) == 10
    for run in runs:
        known = before.get(f"r-n{run.info.sizes['n']}.db")
        assert known is None or {t.configuration for t in known.trials} <= {t.configuration for t in run.trials}


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sizes", "m=1,2"), "unknown size of kernel poly: 'm'"),
        (("--sizes", "n=0,5"), "--sizes n=0,5: expected sizes from 1 to 2.62, not 0"),
        (("--sizes", "n=1:9"), r"expected n=A,B,\.\.\. or n=FROM:TO:COUNT with a count of 2 or more"),
        (("--sizes", "n=9:1:3"), "expected an ascending range of at least 3 whole numbers"),
        (("--sizes", "n=5,5"), "sizes n5 are given twice"),
        (("--sizes", "n=5,50", "--budget", "7"), "budget 7: 2 sizes need at least 8 evaluations together"),
        (("--sizes", "n=5,1e13"), "needs .* of host memory .*; choose smaller sizes"),
    ],
)
def test_bad_sizes_are_refused_in_a_line(mptune: Call, arguments: tuple[str, ...], message: str) -> None:
    done = mptune(*TUNE, *arguments)
    assert (done.code, done.out) == (2, "")
    assert re.search(message, done.err), done.err
    assert done.err.count("\n") == 1
    assert not list(Path().glob("**/*.db"))


@pytest.mark.full
def test_applications_have_a_range_of_sizes_and_wisdom_of_it(mptune: Call, tmp_path: Path) -> None:
    power = application()
    settings = {"backend": "host", "max_error": 1e-3, "budget": 8, "verify": 1, "seed": 1}
    runs = tune_sizes(power, {"n": [20, 40]}, on_warning=lambda _: None, **settings)
    assert [run.info.sizes["n"] for run in runs] == [20, 40]
    assert runs[0].best is not None
    assert {trial.configuration for trial in runs[0].trials} & {trial.configuration for trial in runs[1].trials}
    path = tmp_path / "power.wisdom.json"
    gather(read_sources(runs)).save(path)
    with TunedApplication(path, power) as tuned:
        for n, run in ((20, runs[0]), (40, runs[1])):
            sizes = power.resolve_sizes("default", {"n": n})
            found = tuned(**sizes, **inputs(np.random.default_rng(3), sizes))
            assert found["x"].shape == (n,)
            assert tuned.configuration == power.own(run.best.configuration)
            assert tuned.choose(sizes).configuration == tuned.configuration
        # Between them it is what keeps the limit there.
        sizes = power.resolve_sizes("default", {"n": 30})
        assert np.isfinite(tuned(**sizes, **inputs(np.random.default_rng(3), sizes))["x"]).all()
    with pytest.raises(KernelError, match=r"the wisdom is of the application power: mptune\.TunedApplication runs it"):
        TunedKernel(path, kernel=power)
    with pytest.raises(KernelError, match="application power cannot be emitted of wisdom, which only a single kernel"):
        emit_dispatch(gather(read_sources(runs)), tmp_path / "out", kernel=power)
    refused = mptune("emit", path, "-o", tmp_path / "out")
    assert refused.code == 2
    assert "application power cannot be emitted of wisdom, which only a single kernel can" in refused.err
    with pytest.raises(MptuneError, match="configuration '1': wisdom has no trials to name"):
        TunedApplication(path, power, configuration=1)
