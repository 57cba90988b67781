"""Tuning under limits on what is measured, with an observer of somebody else's that tells what is known beforehand."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Outcome, caller

from mptune.errors import ObserverUnavailableError, UnknownNameError
from mptune.kernel import Kernel
from mptune.observers import ALWAYS_ON, OBSERVERS
from mptune.results.trial import Status
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.tuning import TuneSettings, tune

#: An observer as a third party would ship it: 4 units for two fp64, 3 for one, ... 0 for two fp16; and one for nobody.
PLUGIN = """
from mptune.errors import ObserverUnavailableError
from mptune.observers.base import Observer

COST = {"fp64": 2.0, "fp32": 1.0, "fp16": 0.0}

class Effort(Observer):
    name = "effort"
    metrics = ("effort_j", "block_w")

    def stop(self, context):
        values = context.configuration
        return {"effort_j": COST[values["x_type"]] + COST[values["y_type"]], "block_w": values["block"]}

class Absent(Observer):
    name = "absent"
    metrics = ("absence_j",)

    @classmethod
    def open(cls, target):
        raise ObserverUnavailableError(f"there is no meter for {target.backend}: buy one")

    def stop(self, context):
        return {}

class Forgetful(Effort):
    name = "forgetful"
    metrics = ("forgotten_j",)

    def stop(self, context):
        return {}
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests' own kernel with nine sources instead of 27: compiling takes most of the time here."""
    text = Path(__file__).with_name("own_kernel.py").read_text()
    assert "[1, 2, 4]" in text
    path = tmp_path_factory.mktemp("kernel") / "poly.py"
    path.write_text(text.replace("[1, 2, 4]", "[1]"))
    return path


@pytest.fixture(scope="module")
def kernel(own: Path) -> Kernel:
    return load_kernel(own)


@pytest.fixture(autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path_factory, monkeypatch)


def install(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.mktemp("site")
    (folder / "third_party_observers.py").write_text(PLUGIN)
    about = folder / "third_party_observers-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party-observers\nVersion: 1.0\n")
    points = "\n".join(f"{n.lower()} = third_party_observers:{n}" for n in ("Effort", "Absent", "Forgetful"))
    (about / "entry_points.txt").write_text(f"[mptune.observers]\n{points}\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "third_party_observers", raising=False)


def settings(**changes: Any) -> TuneSettings:
    return TuneSettings(**({"backend": "host", "budget": 8, "strategy": "random", "seed": 1, "verify": 0} | changes))


def effort(run: Run) -> list[float]:
    return [trial.metric("effort_j") for trial in run.trials]


@pytest.fixture(scope="module")
def measured(kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path, list[str]]:
    """A run within a budget of effort, its file, and what was told in which order."""
    path, events = tmp_path_factory.mktemp("run") / "poly.db", list[str]()
    with pytest.MonkeyPatch.context() as patch:
        install(tmp_path_factory, patch)
        run = tune(
            kernel,
            settings(
                objective="error", constraints=("effort_j <= 1.0",), observers=("throughput", "absent"), budget=18
            ),
            output=path,
            on_progress=lambda _: events.append("trial"),
            on_warning=events.append,
        )
    return run, path, events


@pytest.mark.full
def test_the_most_accurate_configuration_within_a_budget(measured: tuple[Run, Path, list[str]]) -> None:
    run, _, events = measured
    within = [trial for trial in run.trials if trial.metric("effort_j") <= 1]
    beyond = [trial for trial in run.trials if trial.metric("effort_j") > 1]
    assert within
    assert beyond
    assert run.best is not None
    assert run.best.error == min(trial.error for trial in within) > min(trial.error for trial in beyond)
    assert {trial.status for trial in within} == {Status.OK}
    assert {trial.status for trial in beyond} == {Status.VIOLATION}
    assert all(t.message == f"effort_j <= 1.0 does not hold: effort_j is {t.metric('effort_j'):g}" for t in beyond)
    assert run.feasible == len(within)
    assert run.info.observers == ("throughput", "effort")
    # What cannot be measured is told once, before the first trial.
    assert sorted(events[:2]) == [
        "flop_rate_gflop_s is not available here: kernel poly does not declare its operations (flops=...)",
        "observer absent is not available here: there is no meter for host: buy one",
    ]
    assert events[2:] == ["trial"] * 18


# -- what cannot be had ------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "absence_j"}, "objective 'absence_j' needs absence_j: there is no meter for host: buy one"),
        ({"constraints": ("occupancy >= 0.5",)}, "measured constraint needs occupancy: backend 'host' does not report"),
    ],
)
def test_what_is_needed_and_cannot_be_measured_is_an_error(
    kernel: Kernel, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ObserverUnavailableError, match=message):
        tune(kernel, settings(**changes), output=tmp_path / "run.db")
    assert not (tmp_path / "run.db").exists()


def test_a_metric_that_was_promised_and_did_not_come_is_an_error_of_the_trial(kernel: Kernel) -> None:
    (trial,) = tune(kernel, settings(objective="forgotten_j", budget=1)).trials
    assert (trial.status, trial.message) == (Status.ERROR, "observer 'forgetful' could not measure forgotten_j here")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observers": ("enrgy",)}, "unknown observer 'enrgy'; did you mean 'energy'"),
        ({"constraints": ("efort_j < 1",)}, "metric in a measured constraint: 'efort_j'; did you mean 'effort_j'"),
    ],
)
def test_misspelt_names(kernel: Kernel, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        tune(kernel, settings(**changes))


# -- the command line --------------------------------------------------------------------------


@pytest.fixture
def mptune(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    monkeypatch.chdir(tmp_path)

    call = caller(monkeypatch, capfd)
    return lambda *arguments: call(*(own if a is OWN else a for a in arguments))


OWN = object()
TUNE = ("tune", OWN, "--backend", "host", "--strategy", "random")


@pytest.mark.full
def test_from_the_command_line(mptune: Callable[..., Outcome]) -> None:
    limit = ("--objective", "error", "--constraint", "effort_j <= 1", "--constraint", "block_w <= 128")
    done = mptune(
        *TUNE, *limit, "--budget", 10, "--observe", "throughput", "--observe", "absent", "-o", "run.db", "--json"
    )
    assert done.code == 0, done.err
    assert done.err.count("observer absent is not available here: there is no meter") == 1
    document = json.loads(done.out)
    assert document["measured_constraints"] == ["effort_j <= 1", "block_w <= 128"]
    assert document["best"]["metrics"]["effort_j"] <= 1
    assert document["best"]["metrics"]["bandwidth_gb_s"] > 0
    assert document["statuses"]["violation"] > 0
    assert "constraints: effort_j <= 1 and block_w <= 128" in mptune("show", "run.db").out
    simulated = mptune("simulate", "run.db", "--objective", "error", "--constraint", "effort_j <= 1", "--json")
    assert json.loads(simulated.out)["optimum"] >= document["best"]["error"]
    options = ("--strategies", "random", "--repeats", 2, "--budget", 9, "--processes", 1, "--json")
    compared = mptune("compare", "run.db", *options, "--objective", "error", "--constraint", "effort_j <= 1")
    assert json.loads(compared.out)["spaces"], compared.err
    assert mptune("compare", "run.db", *options, "--constraint", "effort_j < 0").code == 1


def test_list_names_observers_and_their_metrics(mptune: Callable[..., Outcome]) -> None:
    listed = json.loads(mptune("list", "--observers", "--json").out)["observers"]
    by_name = {row["observer"]: row for row in listed}
    assert set(by_name) == {*OBSERVERS, *ALWAYS_ON} >= {"energy", "clocks", "resources", "throughput", "effort"}
    assert by_name["energy"]["metrics"] == ["energy_j", "power_w"]
    assert by_name["time"]["always_on"] is True
    assert by_name["effort"]["always_on"] is False
    plain = mptune("list", "--observers")
    assert "energy_j, power_w" in plain.out
    assert mptune("list", "--observers", "--strategies").code == 2
