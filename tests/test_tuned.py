"""A tuned kernel is the best of its run on the device of its run, and anywhere else right."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import own_kernel
import pytest
from awkward_kernel import AWKWARD, measured, run_of
from described import create
from numpy.typing import NDArray
from runs_by_size import trial
from stepper_kernel import STEPPER, stepped

import mptune
from mptune import Application
from mptune.backends.host import HostBackend, HostDevice
from mptune.data import DataManager
from mptune.emit import emit, winner_of
from mptune.errors import KernelError, MptuneError, UnknownNameError, WisdomError
from mptune.kernel import In, Kernel, Out
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.source.flags import recorded_flags, settled_flags
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from mptune.tuning.explain import explain
from mptune.tuning.verify import verify
from mptune.wisdom import Chooser, Wisdom, gather, read_sources
from mptune.wisdom.choosing import by_form

POLY = own_kernel.kernel
NARROW = {"x_type": "bf16", "a_type": "fp16", "w_type": "fp8_e4m3"}


def timed(time_ms: float, error: float, status: Status = Status.OK, kernel: Any = POLY, **values: Any) -> Trial:
    measurement = Measurement({"time_ms": time_ms, "error": error})
    return Trial(kernel.configuration(values), status, "", measurement)


WIDE = timed(4, 1e-16)
BEST = timed(1, 1e-4, x_type="fp16", y_type="fp16", block=128)


def polynomial(x: Any) -> Any:
    return np.polyval([0.5, -1.0, 2.0, 1.0], x)


@pytest.fixture
def x() -> Any:
    return np.random.default_rng(5).uniform(0, 1, 5003)


def test_the_best_configuration_is_used_on_the_runs_own_device(x: Any) -> None:
    with mptune.TunedKernel(run_of(POLY, [WIDE, BEST], threshold=1e-3), kernel=POLY) as tuned:
        assert tuned.configuration == BEST.configuration
        assert tuned.reason == ""
        assert "best: block=128" in repr(tuned)
        y = tuned(x=x)
        assert y.dtype == np.float64
        assert 1e-5 < np.abs(y - polynomial(x)).max() < 1e-2
        stored = tuned(x=x, converted=False)
        assert stored.dtype == np.float16
        assert np.array_equal(stored, y)
        assert np.array_equal(tuned(x=x, n=5003), y)
        tuned.close()
        assert np.array_equal(tuned(x=x), y)


@pytest.mark.parametrize(
    ("run", "sizes", "reason"),
    [
        (run_of(POLY, [WIDE, BEST], device="another device"), None, "the run is of another device, this is"),
        (run_of(POLY, [WIDE, BEST], backend="cuda", device="H100"), None, "the run is of H100"),
        (run_of(POLY, [WIDE, BEST]), {"n": 41}, "the run was made at n=5003, not at n=41"),
        (run_of(POLY, [WIDE, BEST], measured_constraints=["time_ms < 1"]), None, "the run has no feasible trial"),
    ],
)
def test_the_baseline_is_used_elsewhere_with_a_warning(run: Run, sizes: Any, reason: str, x: Any) -> None:
    with pytest.warns(UserWarning, match=f"poly uses the baseline: {reason}"):
        tuned = mptune.TunedKernel(run, kernel=POLY, backend="host", sizes=sizes)
    assert reason in tuned.reason
    assert tuned.configuration["x_type"] == tuned.configuration["y_type"] == "fp64"
    x = x[: tuned.sizes["n"]]
    assert np.abs(tuned(x=x) - polynomial(x)).max() < 1e-14
    tuned.close()


@pytest.mark.parametrize("status", [Status.CRASH, Status.CORRUPT, Status.INACCURATE])
@pytest.mark.parametrize("device", [{}, {"device": "another device"}])
def test_a_run_in_which_nothing_is_feasible_is_refused(status: Status, device: dict[str, str]) -> None:
    run = run_of(POLY, [timed(9, 0.2, status)], threshold=1e-3, **device)
    for runs in (run, [run, run_of(POLY, [], threshold=1e-3, **device)]):
        with pytest.raises(MptuneError, match=r"no feasible trial and no accurate baseline .* tune again with"):
            mptune.TunedKernel(runs, POLY, backend="host")


def test_a_call_whose_data_does_not_fit_the_types_gets_the_baselines_answer(x: Any) -> None:
    tuned = mptune.TunedKernel(run_of(POLY, [WIDE, BEST]), kernel=POLY)
    large = x * 1e6
    with pytest.warns(UserWarning, match="for this call: input 'x' overflows in fp16"):
        y = tuned(x=large)
    assert np.allclose(y, polynomial(large), rtol=1e-14)
    middling = np.full(5003, 6e4)
    with pytest.warns(UserWarning, match="for this call: output 'y' is not finite"):
        y = tuned(x=middling)
    assert np.allclose(y, polynomial(middling), rtol=1e-14)
    # What is infinite or NaN to begin with is the user's own; the answer is the baseline's.
    middling[3] = np.nan
    with pytest.warns(UserWarning, match="not finite"):
        y = tuned(x=middling)
    assert np.isnan(y[3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned(x=x)


def test_inputs_are_checked_and_left_alone(x: Any) -> None:
    tuned = mptune.TunedKernel(run_of(POLY, [WIDE, BEST]), kernel=POLY)
    kept = x.copy()
    tuned(x=x)
    assert np.array_equal(x, kept)
    assert np.array_equal(tuned(x=np.repeat(x, 2)[::2]), tuned(x=x))
    assert np.array_equal(tuned(x=x.astype(np.float32)), tuned(x=x.astype(np.float32).astype(np.float64)))
    with pytest.raises(UnknownNameError, match="'z'"):
        tuned(z=x)
    with pytest.raises(KernelError, match="needs an input 'x'"):
        tuned()
    with pytest.raises(KernelError, match=r"input 'x' of kernel poly has 2 axes; expected"):
        mptune.TunedKernel([run_of(POLY, [WIDE], sizes={"n": n}) for n in (5003, 41)], POLY)(x=np.ones((2, 3)))
    with pytest.raises(KernelError, match="expected real numbers"):
        tuned(x=x + 1j)
    with pytest.raises(KernelError, match=r"has shape \(5003,\); expected \(4,\) at n=4"):
        tuned(x=x, n=4)
    with pytest.raises(MptuneError, match="needs a run"):
        mptune.TunedKernel([])
    with pytest.raises(MptuneError, match=r"the second argument is the kernel: give several runs as a list, not b\.db"):
        mptune.TunedKernel("a.db", "b.db")
    with pytest.raises(KernelError, match="not of 'poly'"):
        mptune.TunedKernel([run_of(POLY, [WIDE]), run_of(AWKWARD, [])], POLY)


def test_every_kind_of_argument_gets_there_and_several_outputs_come_back() -> None:
    trials = measured(AWKWARD, {}, NARROW)
    run = run_of(AWKWARD, [trials[0], timed(1e-9, trials[1].error, kernel=AWKWARD, **NARROW)])
    tuned = mptune.TunedKernel(run, kernel=AWKWARD)
    assert tuned.configuration["w_type"] == "fp8_e4m3"
    data = DataManager(AWKWARD, AWKWARD.resolve_sizes())
    outputs = tuned(**{name: value for name, value in data.inputs.items() if name != "n"})
    reference = data.references
    assert np.array_equal(outputs["count"], reference["count"])
    assert outputs["count"].dtype == np.int64
    error = np.sqrt(np.mean((outputs["y"] - reference["y"]) ** 2)) / np.mean(reference["y"])
    assert error == pytest.approx(trials[1].metric("error.y"), rel=1e-9)
    with pytest.raises(KernelError, match=r"integers from 0 to [0-9]+ do not fit int32"):
        tuned(**{**data.inputs, "index": data.inputs["index"] * np.int64(2**32)})
    with pytest.raises(KernelError, match="expected integers for int32"):
        tuned(**{**data.inputs, "index": data.inputs["y"]})


# -- arrays on a device --------------------------------------------------------------------------


class DeviceArray(np.ndarray):
    """A NumPy array that says it is a device's."""

    __cuda_array_interface__ = property(lambda self: {})

    def get(self) -> Any:
        return self.view(np.ndarray)


class ArraysDevice(HostDevice):
    """The processor as a device whose arrays are not NumPy's."""

    waits = 0

    def array_namespace(self) -> Any:
        def wait() -> None:
            ArraysDevice.waits += 1

        return types.SimpleNamespace(
            asnumpy=lambda array: array.view(np.ndarray),
            asarray=lambda array: np.asarray(array).view(DeviceArray),
            isfinite=np.isfinite,
            cuda=types.SimpleNamespace(runtime=types.SimpleNamespace(deviceSynchronize=wait)),
        )

    def array(self, buffer: Any, dtype: Any) -> Any:
        return np.frombuffer((ctypes.c_char * buffer.nbytes).from_address(buffer.address), dtype).view(DeviceArray)


def with_arrays() -> HostBackend:
    backend = HostBackend()
    backend.device = ArraysDevice(2)
    return backend


@pytest.mark.parametrize("values", [{}, {"x_type": "fp16", "y_type": "fp32"}])
def test_device_arrays_come_back_as_device_arrays(values: dict[str, Any], x: Any) -> None:
    best = timed(1, 1e-5, **values)
    run = run_of(POLY, [best])
    on_host = mptune.TunedKernel(run, kernel=POLY)(x=x)
    tuned = mptune.TunedKernel(run, kernel=POLY, backend=with_arrays())
    before = ArraysDevice.waits
    y = tuned(x=x.view(DeviceArray))
    assert isinstance(y, DeviceArray)
    assert y.dtype == np.float64
    assert np.array_equal(y, on_host)
    assert ArraysDevice.waits >= before + 3
    if values:
        assert isinstance(tuned(x=x.view(DeviceArray), converted=False), DeviceArray)
        with pytest.warns(UserWarning, match="input 'x' overflows in fp16"):
            large = tuned(x=(x * 1e6).view(DeviceArray))
        assert np.allclose(large, polynomial(x * 1e6), rtol=1e-14)
    assert not isinstance(tuned(x=x), DeviceArray)


# -- scratch buffers -----------------------------------------------------------


def test_scratch_buffers_are_made_and_inputs_stored_for_each_call() -> None:
    run = run_of(STEPPER, [timed(1, 1e-8, kernel=STEPPER, t="fp32")])
    u = np.random.default_rng(1).uniform(0.5, 1, 103)
    with mptune.TunedKernel(run, kernel=STEPPER) as tuned:
        assert tuned.configuration["t"] == "fp32"
        for given in (u, u + 1, u):
            np.testing.assert_allclose(tuned(u=given), stepped(given, 4), rtol=1e-6)
        with pytest.raises(UnknownNameError, match="'kept'"):
            tuned(u=u, kept=u)
        with pytest.warns(UserWarning, match="input 'u' overflows in fp32"):
            np.testing.assert_allclose(tuned(u=u * 1e100), stepped(u * 1e100, 4), rtol=1e-14)


# -- sizes that say which form of a problem it is: their values, and what is known of one form -------


def inputs(rng: np.random.Generator, size: Any) -> dict[str, Any]:
    x = rng.random((size.rows, size.columns))
    return {"x": np.ascontiguousarray(x.T) if size.turned else x}


#: Doubles a matrix that may be stored transposed.
KERNEL = Kernel(
    name="turn",
    parameters=[OrdinalParameter("block", [32, 64]), PrecisionParameter("t", ["fp64", "fp32"])],
    constraints=["not turned or block == 32"],
    arguments=[
        Out("y", ("rows", "columns"), precision="t"),
        In("x", ("columns if turned else rows", "rows if turned else columns"), precision="t"),
    ],
    sizes={"default": {"rows": 20, "columns": 30, "turned": 0}},
    inputs=inputs,
    reference=lambda given, size: {"y": 2 * (given["x"].T if size.turned else given["x"])},
    grid=["ceildiv(columns, block)", "rows"],
    block=["block"],
    runtime_sizes=["rows", "columns"],
    template="""
extern "C" __global__ void turn({{ t }}* y, const {{ t }}* x) {
    const int i = blockIdx.x * {{ block }} + threadIdx.x, row = blockIdx.y;
{% if turned %}
    if (i < {{ columns }}) y[row * {{ columns }} + i] = 2 * x[i * {{ rows }} + row];
{% else %}
    if (i < {{ columns }}) y[row * {{ columns }} + i] = 2 * x[row * {{ columns }} + i];
{% endif %}
}
""",
)


def made(turned: int, rows: int = 20, fast: str = "fp32", blocks: tuple[int, ...] = (32,)) -> Run:
    """Return a run of one form, in which one type is the faster."""
    slow = {"fp32": "fp64", "fp64": "fp32"}[fast]
    trials = [
        trial(time_ms * (1 + block / 1000), error, kernel=KERNEL, block=block, t=kind)
        for block in blocks
        for kind, time_ms in ((fast, 1.0), (slow, 3.0))
        for error in ((1e-7 if kind == "fp32" else 1e-16),)
    ]
    sizes = KERNEL.resolve_sizes("default", {"rows": rows, "turned": turned})
    return run_of(KERNEL, trials, sizes=sizes, threshold=1e-3)


def wisdom_of(*runs: Run) -> Wisdom:
    return gather(read_sources(runs))


# -- wisdom --------------------------------------------------------------------------------------------


def test_what_is_known_of_one_form_says_nothing_of_another() -> None:
    both = wisdom_of(made(0, fast="fp32"), made(1, fast="fp64"))
    (known,) = both.kernels
    assert [dict(record.form) for record in known.tuned] == [{"turned": 0}, {"turned": 1}]
    assert all(set(record.sizes) == {"rows", "columns"} for record in known.tuned)
    with pytest.raises(WisdomError, match="is of turned=0 and of turned=1, which say nothing of each other"):
        Chooser(known, KERNEL)
    for of_form, turned, kind in zip(by_form(known, KERNEL), (0, 1), ("fp32", "fp64"), strict=True):
        chooser = Chooser(of_form, KERNEL)
        for rows in (20, 25):
            size = KERNEL.resolve_sizes("default", {"rows": rows, "turned": turned})
            assert chooser.choose(size).configuration["t"] == kind


def test_calls_have_the_configuration_for_their_form() -> None:
    x = np.random.default_rng(6).random((20, 30))
    with mptune.TunedKernel(wisdom_of(made(0), made(1, fast="fp64")), kernel=KERNEL) as turn:
        np.testing.assert_allclose(turn(x=x), 2 * x, rtol=1e-6)
        assert (turn.configuration["t"], turn.reason) == ("fp32", "")
        np.testing.assert_array_equal(turn(x=x.T.copy(), turned=1), 2 * x)
        assert (turn.configuration["t"], turn.sizes) == ("fp64", {"rows": 20, "columns": 30, "turned": 1})
    with mptune.TunedKernel(wisdom_of(made(1)), kernel=KERNEL) as turn:
        # All that is known is of that form, so it is what is meant.
        np.testing.assert_allclose(turn(x=x.T.copy()), 2 * x, rtol=1e-6)
        with pytest.warns(UserWarning, match="the baseline: nothing was tuned for turned=0"):
            np.testing.assert_array_equal(turn(x=x, turned=0), 2 * x)


# -- the flags a run was compiled with are used wherever one of its configurations is compiled -------

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


@pytest.mark.usefixtures("charts")
def test_a_tuned_kernel_is_compiled_as_it_was_measured(run_file: Path) -> None:
    x = np.linspace(0, 1, 256)
    with mptune.TunedKernel(run_file, kernel=SCALED) as scaled:
        np.testing.assert_allclose(scaled(x=x), 3 * x, rtol=1e-6)


@pytest.mark.usefixtures("charts")
def test_so_it_is_of_wisdom_and_at_several_sizes(run_file: Path, tmp_path: Path) -> None:
    other = tuned(SCALED, tmp_path / "other.db", n=512)
    gather(read_sources([run_file, other])).save(tmp_path / "scaled.wisdom.json")
    for sources in ([tmp_path / "scaled.wisdom.json"], [run_file, other]):
        with mptune.TunedKernel(sources, SCALED) as scaled:
            for n in (256, 512):
                x = np.linspace(0, 1, n)
                np.testing.assert_allclose(scaled(x=x), 3 * x, rtol=1e-6)


@pytest.mark.usefixtures("charts")
@pytest.mark.full
def test_what_is_verified_and_explained_is_what_was_measured(tmp_path: Path) -> None:
    path = really_tuned(SCALED, tmp_path / "run.db")
    found = verify(path, SCALED, inputs=5)
    assert found.holds
    assert found.is_kept
    explanation = explain(path, SCALED)
    assert not explanation.unmeasured
    assert all(change.is_known for change in explanation.changes)


@pytest.mark.usefixtures("charts")
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


# -- what flags of a file may be --------------------------------------------------------------------


@pytest.mark.usefixtures("charts")
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


@pytest.mark.usefixtures("charts")
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
