"""``mptune tune PROGRAM`` adopts it as ``mptune adopt`` does; a whole way from a program to one with other types."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command_line import caller

from mptune import cli, tune
from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.errors import MptuneError
from mptune.interop import read_run
from mptune.measure.device import DeviceEvaluator
from mptune.results.trial import Status
from mptune.run import Run
from mptune.tuning.plan import TuningPlan
from mptune.tuning.settings import TuneSettings

PROGRAMS = Path(__file__).parent / "programs"
#: Bisection until the interval is narrower than fp32 can be.
NEVER_ENDING = """
#include <cstdio>
__global__ void root(const double* c, double* w) {
    double low = 0.0, high = 4.0;
    while (high - low > 1e-12) {
        double middle = 0.5 * (low + high);
        if (middle * middle < c[threadIdx.x]) low = middle;
        else high = middle;
    }
    w[threadIdx.x] = low;
}
int main() {
    double c[32], *d_c, *d_w;
    for (int i = 0; i < 32; ++i) c[i] = 1 + 0.25 * i;
    cudaMalloc(&d_c, sizeof c);
    cudaMalloc(&d_w, sizeof c);
    cudaMemcpy(d_c, c, sizeof c, cudaMemcpyHostToDevice);
    root<<<1, 32>>>(d_c, d_w);
    cudaMemcpy(c, d_w, sizeof c, cudaMemcpyDeviceToHost);
    printf("%.9f\\n", c[7]);
}
"""


class Flow(NamedTuple):
    """A program that was adopted, tuned and written with other types by the commands: what each of them said."""

    folder: Path
    adopted: Any
    tuned: Any
    emitted: Any


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flow]:
    folder, which = tmp_path_factory.mktemp("flow"), shutil.which
    shutil.copy(PROGRAMS / "rod.cu", folder)

    def called(*words: str) -> Any:
        monkeypatch.setattr("sys.argv", ["mptune", words[0], "--json", *words[1:]])
        with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as leaving:
            cli.main()
        assert leaving.value.code == 0
        return json.loads(out.getvalue())

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        monkeypatch.setattr("shutil.which", lambda name, *given: None if name == "nvcc" else which(name, *given))
        adopted = called("adopt", "rod.cu", "--types", "1", "-o", "adopted/rod", "--", "60", "4")
        how = ("--max-error", "1e-4", "--budget", "4", "--inputs", "1", "--verify", "0", "--backend", "host")
        tuned = called("tune", "./adopted/rod", *how, "--output", "rod.db")
        (parameter,) = adopted["parameters"]
        trials = read_run(folder / "rod.db").trials
        number = next(n for n, each in enumerate(trials, 1) if each.configuration.get(parameter["name"]) == "fp32")
        emitted = called("emit", "rod.db", "--into", "rod.cu", "-o", "new.cu", "--configuration", str(number))
        yield Flow(folder, adopted, tuned, emitted)


def test_a_program_is_adopted_and_its_answer_is_that_of_the_program(flow: Flow) -> None:
    assert [kernel["name"] for kernel in flow.adopted["kernels"]] == ["warm", "diffuse"]
    assert max(flow.adopted["errors"].values()) < 1e-14


def test_what_was_adopted_is_tuned_within_the_threshold(flow: Flow) -> None:
    assert flow.tuned["best"]["error"] <= 1e-4


def test_a_cuda_program_is_judged_by_an_estimate_for_a_gpu(flow: Flow) -> None:
    best, baseline = flow.tuned["best"], flow.tuned["baseline"]
    assert flow.tuned["objective"] == "estimated_a100_ms"
    estimates = [each["metrics"]["estimated_a100_ms"] for each in (baseline, best)]
    assert best["speedup"] == pytest.approx(estimates[0] / estimates[1])
    assert best["speedup"] > 1
    assert best["speedup_interval"] is None
    own = {**flow.adopted["own"], "warm.policy": "accurate"}  # functions of other policies cannot be written
    assert own["diffuse.block"] == 128
    assert {name: best["configuration"][name] for name in own} == own
    # Both times of the processor are there, each by its name.
    assert best["program_ms"] == pytest.approx(best["time_ms"] + best["metrics"]["program_host_ms"])
    assert best["metrics"]["program_host_ms"] > 0
    run = Run.load(flow.folder / "rod.db")
    assert "estimated for A100" in run.describe().verdict
    assert sum("the estimate leaves out launches and copies" in each for each in run.describe().remarks) == 1
    rows = {row[0]: row[1:] for row in run.describe().tables[0].rows}
    assert rows["speedup"] == ("1", f"{best['speedup']:.3g}x estimated for A100 SXM")
    assert {"estimated for A100 SXM (ms)", "time of the kernels on this processor (ms)"} <= rows.keys()
    assert "time of the whole program on this processor (ms)" in rows
    assert not any(name.startswith("time (ms)") for name in rows)


@pytest.mark.parametrize(
    ("given", "fixed"),
    [
        ({}, {"block", "policy"}),
        ({"objective": "estimated_h100_ms"}, {"block", "policy"}),
        ({"objectives": ("estimated_a100_ms", "memory")}, {"block", "policy"}),
        ({"objective": "memory", "constraints": ("estimated_a100_ms <= 1",)}, {"block", "policy"}),
        ({"objectives": ("estimated_a100_ms", "time")}, {"policy"}),
        ({"gpu": "host", "constraints": ("estimated_a100_ms <= 1",)}, {"policy"}),
        ({"gpu": "host"}, set()),
    ],
)
def test_blocks_and_policies_that_an_estimate_cannot_judge_are_the_programs_own(
    flow: Flow, given: dict[str, Any], fixed: set[str]
) -> None:
    settings = TuneSettings(backend="host", max_error=1e-4, restrict={"warm.block": [64]}, **given)
    restrict = TuningPlan.of(flow.folder / "adopted" / "rod", settings).settings.restrict
    assert list(restrict["warm.block"]) == [64]  # as asked for
    own = {"diffuse.block": [128], "warm.policy": ["accurate"]}
    found = {name: list(restrict[name]) for name in own if name in restrict}
    assert found == {name: value for name, value in own.items() if name.rpartition(".")[2] in fixed}


@pytest.mark.full
def test_for_host_a_program_is_judged_by_the_processors_times_and_blocks(flow: Flow) -> None:
    settings: dict[str, Any] = {"max_error": 1e-4, "budget": 4, "inputs": 1, "verify": 0, "backend": "host"}
    run = tune(flow.folder / "adopted" / "rod", gpu="host", **settings)
    assert run.objective.is_time
    assert "diffuse.block" in {p.name for p in run.parameters if len(p.values) > 1}
    rows = {row[0] for row in run.describe().tables[0].rows}
    assert {"time of the kernels (ms)", "time of the whole program (ms)"} <= rows


@pytest.mark.full
def test_a_program_that_cannot_be_counted_is_judged_by_the_processors_times(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counts_of(*_: object) -> None:
        raise MptuneError("its operations could not be counted")

    monkeypatch.setattr(DeviceEvaluator, "counts_of", counts_of)
    settings: dict[str, Any] = {"max_error": 1e-4, "budget": 2, "inputs": 1, "verify": 0, "backend": "host"}
    said: list[str] = []
    run = tune(flow.folder / "adopted" / "rod", on_warning=said.append, **settings)
    assert run.objective.is_time
    assert run.best is not None
    (why,) = (each for each in run.warnings if "estimate" in each)
    assert why in said
    assert "ranked by this processor's times: its operations could not be counted" in why
    with pytest.raises(MptuneError, match="could not be counted"):
        tune(flow.folder / "adopted" / "rod", gpu="h100", **settings)


@pytest.mark.full
def test_a_run_that_never_ends_in_narrow_types_costs_seconds(tmp_path: Path) -> None:
    """The limit of a trial follows from the program's own run."""
    source = tmp_path / "narrow.cu"
    source.write_text(NEVER_ENDING)
    adopt(AdoptSettings((source,)), tmp_path / "made")
    run = tune(tmp_path / "made", max_error=1e-6, budget=3, inputs=1, verify=0, restrict={"low_type": ["fp64", "fp32"]})
    late = [trial for trial in run.trials if trial.status is Status.TIMEOUT]
    assert late
    assert all(trial.measurement.durations_s["lost"] < 20 for trial in late)
    assert run.best is not None


def test_a_program_with_the_types_found_is_compiled_run_and_compared(flow: Flow) -> None:
    said = flow.emitted
    assert {each["to"] for each in said["types"]} == {"fp32"}
    assert (said["within"], said["not_judged"]) == (True, "")
    assert 1e-10 < said["error"] < 1e-5
    assert said["check"] == {"original": "passed", "patched": "passed"}
    assert said["arguments"] == ["60", "4"]
    assert (flow.folder / "rod.cu").read_text() == (PROGRAMS / "rod.cu").read_text()
    assert "double" not in (flow.folder / "new.cu").read_text().split("diffuse(int n", 1)[1].split("{")[0]


@pytest.mark.full
def test_a_program_is_adopted_with_the_options_of_adopt_and_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(PROGRAMS / "running_mean.cpp", tmp_path / "mean.cpp")
    how = ("-D", "WIDTH=9", "--types", "2", "--kernel", "blur_loop")
    limits = ("--max-error", "1e-3", "--budget", "3", "--inputs", "1", "--verify", "0", "--output", "mean.db", "--json")
    done = caller(monkeypatch, capfd)("tune", "mean.cpp", *how, *limits)
    assert done.code == 0, done.err
    assert "adopted mean.cpp into" in done.err
    assert json.loads(done.out)["best"]["error"] <= 1e-3
    assert json.loads(done.out)["objective"] == "time_ms"  # loops of OpenMP are for the processor
    record = json.loads((tmp_path / "adopted" / "mean" / "adopted.json").read_text())
    assert [kernel["name"] for kernel in record["kernels"]] == ["blur_loop"]
    assert len(record["parameters"]) == 2
    assert record["program"]["defines"] == {"WIDTH": "9"}


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("--kernel", ("--kernel", "blur")),
        ("--types", ("--types", "4")),
        ("-D", ("-D", "N=4")),
        ("-I", ("-I", ".")),
        ("--compile-commands", ("--compile-commands", "x.json")),
        ("arguments after --", ("--", "3")),
    ],
)
def test_what_is_no_program_takes_none_of_them(
    option: str, given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    done = caller(monkeypatch, capfd)("tune", "axpy", *given)
    assert (done.code, done.err) == (2, f"error: axpy takes no {option}: it is no program\n")
