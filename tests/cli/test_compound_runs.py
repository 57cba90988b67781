"""What reads a run takes its compound precisions as it takes others, though no search has them unless it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Call
from made_up_devices import MadeUp, replace_devices

from mptune.run import Run

pytestmark = pytest.mark.usefixtures("charts")

KERNEL = '''
from mptune import COMPOUND, In, Kernel, OrdinalParameter, Out, PrecisionParameter

kernel = Kernel(
    name="sums_of_rows",
    parameters=[
        OrdinalParameter("block", [32, 64]),
        PrecisionParameter("sum_type", ["fp64", "fp32"], on_request=COMPOUND),
    ],
    constraints=["block == 64 or sum_type != 'fp64_neumaier'"],
    arguments=[In("x", ("n", 33), precision="fp32"), Out("y", "n", precision="fp64")],
    sizes={"default": {"n": 1003}},
    inputs=lambda rng, size: {"x": rng.normal(size=(size.n, 33)).astype("float32")},
    reference=lambda inputs, size: {"y": inputs["x"].sum(axis=1)},
    metric="NMAE",
    grid=["ceildiv(n, block)"],
    block=["block"],
    template="""
extern "C" __global__ void sums_of_rows(const float* x, double* y) {
    const int i = blockIdx.x * {{ block }} + threadIdx.x;
    if (i >= {{ n }}) return;
    local<{{ sum_type }}> sum = 0;
    for (int k = 0; k < 33; ++k) sum = sum + x[i * 33 + k];
    y[i] = static_cast<double>(sum);
}
""",
)
'''


@pytest.fixture
def run_file(mptune: Call, tmp_path: Path) -> Path:
    file, made = tmp_path / "sums_of_rows.py", tmp_path / "run.db"
    file.write_text(KERNEL)
    chosen = ("-p", "sum_type=fp64,fp32x2,fp32_neumaier")
    options = ("--backend", "host", *chosen, "--max-error", 1e-6, "--budget", 5, "--seed", 3)
    assert mptune("tune", file, *options, "--output", made).code == 0
    sums = {trial.configuration["sum_type"] for trial in Run.load(made).trials}
    assert {"fp64", "fp32x2", "fp32_neumaier"} <= sums
    return made


@pytest.mark.full
def test_every_command_reads_it(mptune: Call, run_file: Path, tmp_path: Path) -> None:
    kernel = ("--kernel", tmp_path / "sums_of_rows.py")
    trials = Run.load(run_file).trials
    (number,) = [i + 1 for i, t in enumerate(trials) if dict(t.configuration) == {"block": 32, "sum_type": "fp32x2"}]
    verified = mptune("verify", run_file, *kernel, "--configuration", number, "--inputs", 2, "--json")
    assert verified.code == 0, verified.err
    assert mptune("simulate", run_file, "--strategy", "random", "--budget", 3).code == 0
    assert mptune("plot", run_file, "-o", tmp_path / "x.png").code == 0
    for form in ("t4", "cache", "space"):
        written = tmp_path / f"x.{form}.json"
        assert mptune("export", run_file, "--format", form, "-o", written).code == 0
        if form != "t4":
            assert mptune("simulate", written, "--strategy", "random", "--budget", 3).code == 0
    options = ("--backend", "host", "-p", "sum_type=fp32x2,fp32", "--max-error", 1e-6, "--budget", 2)
    assert mptune("tune", tmp_path / "sums_of_rows.py", *options, "--from", run_file).code == 0


def test_where_fp64_is_not_accurate_enough_what_is_on_request_is_offered(
    mptune: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_devices(monkeypatch, lambda _: MadeUp(1.0, 1e-16))
    tune = ("tune", "coulombic", "--backend", "host", "--size", "smoke", "--max-error", 1e-30, "--budget", 4)
    done = mptune(*tune)
    assert done.code == 1
    assert "searched on request alone: -p potential_type=fp64,fp64_neumaier" in " ".join(done.err.split())
    assert "the widest types themselves do not meet it, at best with error 1e-16: no types are more exact" in done.err
    done = mptune(*tune, "-p", "potential_type=fp64,fp64_neumaier")
    assert done.code == 1
    assert "; plain types do not meet it, at best with error 1e-16\n" in done.err
