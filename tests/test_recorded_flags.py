"""The flags a run was compiled with are used wherever one of its configurations is compiled again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from awkward_kernel import run_of
from described import create
from numpy.typing import NDArray

import mptune
from mptune import Application, Buffer, In, Kernel, OrdinalParameter, Out, PrecisionParameter, Run
from mptune.emit import emit, winner_of
from mptune.errors import MptuneError
from mptune.results.trial import Measurement, Status, Trial
from mptune.source.flags import recorded_flags, settled_flags
from mptune.tuning.explain import explain
from mptune.tuning.verify import verify
from mptune.wisdom import gather, read_sources

pytestmark = pytest.mark.usefixtures("charts")

#: Without its flag the kernel does not compile, and with another value its numbers are others.
FLAG = "-DFACTOR=3"
TEMPLATE = """
extern "C" __global__ void scaled({{ t }}* y, const {{ t }}* x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < {{ n }}) y[i] = x[i] * {{ t }}(FACTOR);
}
""".replace("#include FROM\n", "")


def tripled(inputs: Any, _: Any) -> NDArray[np.float64]:
    return 3 * inputs["x"]


def drawn(rng: Any, size: Any) -> dict[str, NDArray[np.float64]]:
    return {"x": rng.random(size.n)}


PARTS: dict[str, Any] = {
    "name": "scaled",
    "parameters": [OrdinalParameter("block", [64]), PrecisionParameter("t", ["fp64", "fp32"])],
    "arguments": [Out("y", "n", precision="t"), In("x", "n", precision="t")],
    "grid": ["ceildiv(n, block)"],
    "block": ["block"],
    "template": TEMPLATE,
}
WHOLE: dict[str, Any] = {
    "sizes": {"default": {"n": 256}},
    "inputs": drawn,
    "reference": tripled,
    "metric": "MaxRE",
}
SCALED = Kernel(**PARTS, **WHOLE)


def tuned(kernel: Kernel, path: Path, n: int = 256, flag: str = FLAG) -> Path:
    """Write the file of a run with a flag, of which no kernel was compiled."""
    metrics = ({"time_ms": 2.0, "error": 0.0, "error.y": 0.0}, {"time_ms": 1.0, "error": 1e-8, "error.y": 1e-8})
    trials = [
        Trial(kernel.configuration({"t": t}), Status.OK, "", Measurement(each))
        for t, each in zip(("fp64", "fp32"), metrics, strict=True)
    ]
    sizes = kernel.resolve_sizes("default", {"n": n})
    run = run_of(kernel, [], sizes, threshold=1e-4, metric="MaxRE", flags=[flag])
    with create(path, run) as file:
        file.add(*trials)
    return path


def really_tuned(kernel: Kernel | Application, path: Path) -> Path:
    run = mptune.tune(kernel, output=path, backend="host", budget=3, max_error=1e-4, flags=(FLAG,), verify=0)
    assert run.best is not None
    assert run.info.flags == (FLAG,)
    return path


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    return tuned(SCALED, tmp_path / "run.db")


def test_a_tuned_kernel_is_compiled_as_it_was_measured(run_file: Path) -> None:
    x = np.linspace(0, 1, 256)
    with mptune.TunedKernel(run_file, kernel=SCALED) as scaled:
        np.testing.assert_allclose(scaled(x=x), 3 * x, rtol=1e-6)


def test_so_it_is_of_wisdom_and_at_several_sizes(run_file: Path, tmp_path: Path) -> None:
    other = tuned(SCALED, tmp_path / "other.db", n=512)
    gather(read_sources([run_file, other])).save(tmp_path / "scaled.wisdom.json")
    for sources in ([tmp_path / "scaled.wisdom.json"], [run_file, other]):
        with mptune.TunedKernel(sources, SCALED) as scaled:
            for n in (256, 512):
                x = np.linspace(0, 1, n)
                np.testing.assert_allclose(scaled(x=x), 3 * x, rtol=1e-6)


@pytest.mark.full
def test_what_is_verified_and_explained_is_what_was_measured(tmp_path: Path) -> None:
    path = really_tuned(SCALED, tmp_path / "run.db")
    found = verify(path, SCALED, inputs=5)
    assert found.holds
    assert found.is_kept
    explanation = explain(path, SCALED)
    assert not explanation.unmeasured
    assert all(change.is_known for change in explanation.changes)


@pytest.mark.full
def test_what_is_emitted_is_compiled_as_its_lines_say(run_file: Path, tmp_path: Path) -> None:
    winner = winner_of(Run.load(run_file), kernel=SCALED)
    assert winner is not None
    emit(winner, tmp_path / "out")
    texts = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    lines = {
        "tuned_scaled_host.cpp": "-std=c++17",
        "tuned_scaled_cuda.cu": "nvcc",
        "tuned_scaled_hip.hip": "hipcc",
        "tuned_scaled_cupy.py": "options=('--std=c++17', ",
        "README.md": "compiled with: `",
        "tuned_scaled.cu": "compiled with ",
    }
    for name, start in lines.items():
        assert any(start in line and FLAG in line for line in texts[name].splitlines()), name
    command = next(line for line in texts["tuned_scaled_host.cpp"].splitlines() if FLAG in line).removeprefix("//")
    words = [sys.executable if word == "python3" else word for word in command.split()]
    subprocess.run(words, cwd=tmp_path / "out", check=True)
    x = np.linspace(0, 1, 256)
    (tmp_path / "in").mkdir()
    x.tofile(tmp_path / "in/x.f64")
    subprocess.run(
        ["./tuned_scaled_host", tmp_path / "in", tmp_path], cwd=tmp_path / "out", check=True, capture_output=True
    )
    np.testing.assert_allclose(np.fromfile(tmp_path / "y.f64"), 3 * x, rtol=1e-6)


# -- applications ---------------------------------------------------------------------------------


def steps(run: Any, _: Any) -> None:
    run.scaled(y=run.y, x=run.x)


TRIPLING = Application(
    name="tripling",
    kernels=[Kernel(**PARTS)],
    buffers=[Buffer("x", "n", precision="t"), Buffer("y", "n", precision="t")],
    sizes={"default": {"n": 256}},
    inputs=drawn,
    steps=steps,
    outputs=["y"],
    metric="MaxRE",
    path=Path(__file__),
)


@pytest.mark.full
def test_an_application_is_compiled_as_it_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = really_tuned(TRIPLING, tmp_path / "run.db")
    x = np.linspace(0, 1, 256)
    with mptune.TunedApplication(path, TRIPLING) as tripling:
        np.testing.assert_allclose(tripling(x=x)["y"], 3 * x, rtol=1e-6)
    gather(read_sources([path])).save(tmp_path / "w.wisdom.json")
    with mptune.TunedApplication(tmp_path / "w.wisdom.json", TRIPLING) as tripling:
        np.testing.assert_allclose(tripling(x=x)["y"], 3 * x, rtol=1e-6)
    assert verify(path, TRIPLING, inputs=3).holds
    altair = pytest.importorskip("altair", reason="altair is not installed")
    from mptune.show import plot

    seen: list[bool] = []

    def picture(outputs: Any, inputs: Any, _: Any) -> Any:
        seen.append(np.array_equal(outputs["y"].astype("f4"), 3 * inputs["x"].astype("f4")))
        return altair.Chart(altair.InlineData(values=[])).mark_point()

    monkeypatch.setattr(sys.modules[__name__], "picture", picture, raising=False)
    plot(path, "answer", kernel=TRIPLING)
    assert len(seen) == 2
    winner = winner_of(Run.load(path), kernel=TRIPLING)
    assert winner is not None
    emit(winner, tmp_path / "out")
    lines = (tmp_path / "out/Makefile").read_text().splitlines()
    for name in ("HOST_CXX", "NVCC", "HIPCC"):
        assert any(line.startswith(f"{name} ?=") and FLAG in line.split() for line in lines), name


# -- what flags of a file may be --------------------------------------------------------------------


@pytest.mark.full
def test_folders_of_headers_mean_the_same_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = f"-I{tmp_path.resolve()}"
    assert settled_flags(["-Iinclude", "-I", "../b", "-D", "A=1", "-O2"]) == (
        f"{own}/include",
        f"-I{tmp_path.resolve().parent}/b",
        "-DA=1",
        "-O2",
    )
    (tmp_path / "include").mkdir()
    (tmp_path / "include/factor.h").write_text("#define FACTOR 3\n")
    (tmp_path / "other").mkdir()
    kernel = Kernel(**{**PARTS, "template": '#include "factor.h"\n' + TEMPLATE}, **WHOLE)
    run = mptune.tune(kernel, output="run.db", backend="host", budget=2, verify=0, flags=("-I./include",))
    assert run.info.flags == (f"{own}/include",)
    x = np.linspace(0, 1, 256)
    with mptune.TunedKernel("run.db", kernel=kernel) as scaled:
        np.testing.assert_allclose(scaled(x=x), 3 * x, rtol=1e-6)
    monkeypatch.chdir(tmp_path / "other")
    with mptune.TunedKernel("../run.db", kernel=kernel) as scaled:
        np.testing.assert_allclose(scaled(x=x), 3 * x, rtol=1e-6)


@pytest.mark.parametrize(
    "flag",
    [
        *("-fplugin=./x.so", "-include", "/etc/passwd", "-Irelative", "-I/a;b", "-Wl,-rpath,/tmp", "-o"),
        *("-B/tmp", "-DX=system(1)", "-O2\n", "-lanything", "@file"),
    ],
)
def test_a_flag_that_may_run_something_is_not_taken_from_a_file(flag: str) -> None:
    with pytest.raises(MptuneError, match="of a run file: expected an optimisation"):
        recorded_flags(["-O2", flag])


@pytest.mark.full
def test_a_run_that_will_be_refused_says_so(tmp_path: Path) -> None:
    header = tmp_path / "factor.h"
    header.write_text("#define FACTOR 3\n")
    said: list[str] = []
    flags = (f"-include{header}",)
    mptune.tune(SCALED, backend="host", budget=2, verify=0, flags=flags, on_warning=said.append)
    assert any("verify, explain and emit will refuse this run: compiler flag '-include" in each for each in said)
