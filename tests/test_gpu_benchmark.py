"""The benchmark for GPUs: what it says without one, how its page is filled, and its sections on the host.

What only a device can do is played: the vendor's library multiplies column by column in NumPy, copies take the time a
clock is told.
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from vendor_compilers import needs

from mptune.backends import get_backend
from mptune.backends.base import Availability, CompileOptions
from mptune.backends.cuda import CudaBackend
from mptune.backends.hip import HipBackend
from mptune.buffers import DataManager
from mptune.errors import BackendUnavailableError
from mptune.interop import read_recording
from mptune.kernel import Kernel
from mptune.kernel.limits import device_constraints
from mptune.objective import Objective
from mptune.registry import load_kernel
from mptune.rendering import render
from mptune.results import Measurement, Status, Trial
from mptune.run import json_document
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from mptune.space.search_space import SearchSpace
from mptune.testing.simulator import environment

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import gpu as benchmark  # noqa: E402
from benchmarks import rates  # noqa: E402
from benchmarks.gpu_sections import axpy, energy, gemm, peer, searching, spaces, vendor  # noqa: E402
from benchmarks.gpu_sections.searching import fastest  # noqa: E402
from benchmarks.gpu_sections.section import Options, Section  # noqa: E402

LATER = 1e9


def kernel_with(name: str, **values: list[Any]) -> Kernel:
    """Return a bundled kernel of which only some values are left."""
    kernel = load_kernel(name)
    parameters = [
        (PrecisionParameter if isinstance(p, PrecisionParameter) else OrdinalParameter)(p.name, values[p.name])
        if p.name in values
        else p
        for p in kernel.parameters
    ]
    return dataclasses.replace(kernel, parameters=tuple(parameters))


def measured(section: ModuleType, options: Options, until: float) -> dict[str, Any]:
    """Return all the figures of a section, which is the last it yields; those before hold a part of them."""
    *before, document = section.measure(options, until)
    assert not any(each["complete"] for each in before)
    return document


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(
        backend="host",
        size="smoke",
        kernels=(),
        matrices=(20,),
        budget=2,
        candidates=1,
        rounds=2,
        seed=0,
        work=tmp_path / "work",
        data=tmp_path / "data",
        command="a command",
    )


# -- without a GPU ---------------------------------------------------------------------------------


def test_without_a_gpu_the_page_names_the_commands_that_fill_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for family, reason in ((CudaBackend, "no driver for it"), (HipBackend, "no library for it")):
        monkeypatch.setattr(family, "availability", classmethod(lambda _, r=reason: Availability(True, False, r)))
    output = tmp_path / "folder" / "gpu.md"
    assert benchmark.main(["--sections", "gemm,energy", "--output", str(output)]) == 2
    assert "cuda: no driver for it; hip: no library for it" in capsys.readouterr().err
    assert not output.exists()
    assert benchmark.main(["--placeholder", "--output", str(output)]) == 0
    page = output.read_text()
    for name in benchmark.SECTIONS:
        assert f"    python benchmarks/gpu.py --sections {name}\n" in page
    assert not output.with_suffix(".json").exists()


def test_the_committed_page_is_what_the_figures_beside_it_give() -> None:
    page = ROOT / "benchmarks" / "results" / "gpu.md"
    assert page.read_text() == benchmark.page(benchmark.stored(page.with_suffix(".json")))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sections", "gem"], "did you mean 'gemm'"),
        (["--kernels", "axpi"], "did you mean 'axpy'"),
        (["--backend", "hots"], "did you mean 'host'"),
        (["--rounds", "0"], "--rounds 0: expected at least 1"),
        (["--seed", "-1"], "--seed -1: expected"),
        (["--plan", "0"], "--plan 0: expected a number of minutes"),
        (["--time-limit", "nan"], "--time-limit nan: expected a number of seconds"),
        (["--matrices", "64,x"], "--matrices 64,x: expected whole numbers"),
        (["--matrices", "0"], "--matrices 0: expected whole numbers"),
        (["--backend", "host", "--sections", "axpy", "--size", "smok"], "did you mean 'smoke'"),
        (["--backend", "host", "--sections", "peer"], "benchmarks/throughput.py"),
    ],
)
def test_wrong_input(arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "gpu.md"
    assert benchmark.main([*arguments, "--output", str(output)]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


# -- the page --------------------------------------------------------------------------------------


def test_a_page_is_filled_section_by_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def played(name: str, complete: bool) -> Section:
        document = {"complete": complete, "value": math.nan, "limit": math.inf}
        return Section(name, f"About {name}", lambda *_: iter([document]), lambda found: [f"{name}: {found['value']}"])

    sections = {name: played(name, complete=name == "one") for name in ("one", "two", "three")}
    monkeypatch.setattr(benchmark, "SECTIONS", sections)
    output = tmp_path / "gpu.md"
    for name in ("two", "one"):
        arguments = ["--backend", "host", "--sections", name, "--output", str(output), "--time-limit", "7"]
        assert benchmark.main(arguments) == 0
    first, second, third = output.read_text().split("## About ")[1:]
    assert "one: None" in first
    assert "time limit" not in first
    assert "Not everything was measured within the time limit of 7 s" in second
    assert get_backend("host").describe().name in second
    assert "Not measured. On a machine with a GPU" in third
    documents = json.loads(output.with_suffix(".json").read_text())["sections"]
    assert sorted(documents) == ["one", "two"]

    def fail(*_: object) -> Iterator[dict[str, Any]]:
        raise RuntimeError("the device is lost")
        yield {}

    sections["two"] = dataclasses.replace(sections["two"], measure=fail)
    text = output.read_text()
    arguments = ["--backend", "host", "--sections", "two,three", "--output", str(output)]
    assert benchmark.main(arguments) == 2
    assert "error: section two: RuntimeError: the device is lost" in capsys.readouterr().err
    assert "three: None" in output.read_text()
    assert output.read_text().startswith(text[: text.index("## About three")])

    def fail_later(*_: object) -> Iterator[dict[str, Any]]:
        yield {"complete": False, "value": 5}
        assert json.loads(output.with_suffix(".json").read_text())["sections"]["two"]["value"] == 5
        raise RuntimeError("the device is lost")

    sections["two"] = dataclasses.replace(sections["two"], measure=fail_later)
    assert benchmark.main(arguments) == 2
    _, _, second, _ = output.read_text().split("## About ")
    assert "It failed before everything was measured: RuntimeError: the device is lost" in second
    assert "two: 5" in second

    def lack(*_: object) -> Iterator[dict[str, Any]]:
        raise BackendUnavailableError("there is no library")
        yield {}

    sections["two"] = dataclasses.replace(sections["two"], measure=lack)
    capsys.readouterr()
    assert benchmark.main(arguments) == 0
    assert "section two: skipped: there is no library\n" in capsys.readouterr().err
    assert "two: 5" in output.read_text()
    assert benchmark.main(["--backend", "host", "--sections", "two", "--output", str(output)]) == 2
    output.with_suffix(".json").write_text('{"sections": 3}')
    assert benchmark.main(["--placeholder", "--output", str(output)]) == 2


def test_sections_of_other_runs_are_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def figures(device: str) -> dict[str, Any]:
        head = {"command": "a command", "date": "2026-01-01", "device": device, "architecture": "sm_90", "versions": {}}
        return {**head, "complete": True, "kernels": {}}

    output, other = tmp_path / "gpu.md", tmp_path / "other.json"
    output.with_suffix(".json").write_text(json.dumps({"sections": {n: figures("here") for n in ("spaces", "energy")}}))
    other.write_text(json.dumps({"sections": {"energy": figures("elsewhere")}}))
    assert benchmark.main(["--merge", str(other), "--output", str(output)]) == 0
    kept = json.loads(output.with_suffix(".json").read_text())["sections"]
    assert {name: document["device"] for name, document in kept.items()} == {"spaces": "here", "energy": "elsewhere"}
    assert "elsewhere (sm_90)" in output.read_text()
    assert benchmark.main(["--merge", str(tmp_path / "none.json"), "--output", str(output)]) == 2
    assert "none.json: there is no such file of figures" in capsys.readouterr().err
    before = output.read_bytes()
    for shape in (3, {}, {**figures("there"), "rows": 5}):
        other.write_text(json.dumps({"sections": {"axpy": shape}}))
        assert benchmark.main(["--merge", str(other), "--output", str(output)]) == 2
        assert "other.json: not a file of figures that this benchmark wrote" in capsys.readouterr().err
    assert output.read_bytes() == before


def test_a_plan_shares_its_minutes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spent: dict[str, float] = {}

    def played(name: str) -> Section:
        def measure(options: Options, until: float) -> Iterator[dict[str, Any]]:
            spent[name] = until - time.monotonic()
            assert options.matrices == (4096, 1024)
            yield {"complete": True}

        return Section(name, name, measure, lambda _: [])

    def tests(words: list[str], *, timeout: float, **_: Any) -> Any:
        assert all(Path(word).exists() for word in words if word.endswith(".py"))
        spent["tests"] = timeout
        return SimpleNamespace(returncode=1)

    monkeypatch.setattr(benchmark, "SECTIONS", {name: played(name) for name in benchmark.SECTIONS})
    calls = SimpleNamespace(run=tests, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(benchmark, "subprocess", calls)  # the module's own: compilers are still asked who they are
    arguments = ["--plan", "30", "--backend", "host", "--output", str(tmp_path / "gpu.md")]
    assert benchmark.main(arguments) == 2  # tests that fail end nothing
    assert list(spent) == ["tests", "gemm", "axpy", "peer", "spaces", "energy"]
    assert sum(spent.values()) == pytest.approx(30 * 60, rel=0.01)
    assert set(json.loads((tmp_path / "gpu.json").read_text())["sections"]) == set(benchmark.SECTIONS)


@pytest.fixture
def narrow(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the benchmark with few configurations on a simulated device."""
    (tmp_path / "simulated").mkdir()
    folders = ["--data", str(tmp_path / "data"), "--work", str(tmp_path / "work")]
    sizes = ["--size", "smoke", "--kernels", "axpy", "--matrices", "64", "--candidates", "1", "--rounds", "2"]
    command = [sys.executable, str(ROOT / "tests" / "narrow_gpu_benchmark.py"), *sizes, *folders]
    variables = {**os.environ, **environment(tmp_path / "simulated"), "MPTUNE_CACHE_DIR": str(tmp_path / "cache")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *words], env=variables, capture_output=True, text=True, check=False)

    return run


@pytest.mark.full
def test_what_is_compiled_beforehand_is_found_on_the_device(
    tmp_path: Path, narrow: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = narrow("--compile", "sm_90", "--sections", "axpy,peer")
    assert (done.returncode, done.stdout) == (0, "axpy: 4 of 4 compiled for sm_90\n"), done.stderr
    compiled = {path for path in (tmp_path / "cache" / "binaries").rglob("*") if path.is_file()}
    assert len(compiled) >= 4
    done = narrow("--sections", "axpy", "--output", str(tmp_path / "gpu.md"))
    assert done.returncode == 0, done.stderr
    assert {path for path in (tmp_path / "cache" / "binaries").rglob("*") if path.is_file()} == compiled
    done = narrow("--compile", "sm_90", "--sections", "axpy", "--time-limit", "1e-9")
    assert done.returncode == 2
    assert "error: section axpy: not compiled: the time is over" in done.stderr


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_plan_is_measured_on_a_simulated_device(
    tmp_path: Path, narrow: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """All that the first GPU is asked for, but for the libraries that only a real one has."""
    refused = narrow("--plan", "300")
    assert refused.returncode == 2
    assert "a simulated device is for trying out the sections: give another --output" in refused.stderr
    output = tmp_path / "gpu.md"
    done = narrow("--plan", "300", "--output", str(output))
    assert done.returncode == 0, done.stderr
    assert "2 passed" in done.stderr
    assert re.search(
        r"section peer: skipped: Kernel Tuner (is not installed|does not run here through CuPy)", done.stderr
    )
    sections = json.loads(output.with_suffix(".json").read_text())["sections"]
    assert sorted(sections) == ["axpy", "energy", "gemm", "spaces"]
    for document in sections.values():
        assert document["complete"]
        assert document["device"] == "CUDA device (simulated: times are made up)"
    products = {product["type"]: product["kernels"] for product in sections["gemm"]["products"]}
    assert set(products) == {"fp32", "TF32", "fp16"}
    assert set(products["fp16"]) == set(gemm.VARIANTS)
    assert "cuBLAS cannot be loaded" in sections["gemm"]["vendor_missing"]
    for row in sections["axpy"]["rows"]:
        assert row["tried"] == row["configurations"] == 2
        assert len(set(row["times_ms"])) == 1  # by the device's clock, not this machine's
    entry = sections["spaces"]["kernels"]["axpy"]
    assert entry["statuses"] == {"ok": 16}
    assert read_recording(tmp_path / "data" / entry["recorded"]).device.endswith("(simulated: times are made up)")
    entry = sections["energy"]["kernels"]["axpy"]
    assert entry["levels"]["low"]["fastest"]["time_ms"] < entry["levels"]["fp64"]["fastest"]["time_ms"]
    assert entry["missing"]
    page = output.read_text()
    assert page.count("simulated: times are made up") == len(sections)
    assert "| none: made-up times |" in page
    assert not re.search(r"\b(met|missed)\b", page)


# -- axpy ------------------------------------------------------------------------------------------


@pytest.mark.full
def test_axpy_is_measured_beside_the_reference_in_every_round(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = kernel_with("axpy", block_size=[256, 512], vector_width=[1])
    monkeypatch.setattr(axpy, "load_kernel", lambda _: narrow)
    monkeypatch.setattr(axpy, "TYPES", ("fp64", "fp32"))
    document = measured(axpy, options, time.monotonic() + LATER)
    assert document["complete"]
    for row, size_bytes in zip(document["rows"], (8, 4), strict=True):
        assert row["traffic_bytes"] == 3 * 10_007 * size_bytes
        assert len(row["times_ms"]) == len(row["copies_bytes_per_s"]) == options.rounds
        rates = row["traffic_bytes"] / np.array(row["times_ms"]) * 1e3
        assert row["share"] == pytest.approx(np.median(rates) / np.median(row["copies_bytes_per_s"]))
    assert "fp32" in "\n".join(axpy.lines(document))
    assert measured(axpy, options, time.monotonic())["rows"] == []
    # A clock that goes on by a second whenever it is looked at: each type has half of what is left.
    clock = itertools.count()
    monkeypatch.setattr(axpy.time, "monotonic", lambda: next(clock))
    document = measured(axpy, options, 3.0)
    assert [row["tried"] for row in document["rows"]] == [1]
    assert not document["complete"]


def test_copies_are_timed_without_what_it_takes_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, held = [0.0], [0]

    class Memory:
        def __init__(self, nbytes: int) -> None:
            self.nbytes = nbytes
            held[0] += 1

        def fill(self, byte: int) -> None:
            now_s[0] += 3.0

        def copy_from(self, other: Memory) -> None:
            now_s[0] += 2 * other.nbytes / 2e12

        def part(self, offset: int, nbytes: int) -> Memory:
            assert offset + nbytes == self.nbytes
            return self

        def read(self, data: Any) -> None:
            now_s[0] += 5e-3

        def free(self) -> None:
            held[0] -= 1

    monkeypatch.setattr(axpy.time, "perf_counter", lambda: now_s[0])
    backend: Any = SimpleNamespace(name="cuda", device=SimpleNamespace(allocate=Memory))
    assert axpy.copy_bytes_per_s(backend, 10**9) == pytest.approx(2e12)
    assert held == [0]


# -- gemm ------------------------------------------------------------------------------------------


class Vendor:
    """Plays cuBLAS: four times as fast as can be told."""

    version = "1.2.3"

    def __enter__(self) -> Vendor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def multiply(self) -> float:
        return 0.25

    def error(self) -> float:
        return 1e-7


@pytest.mark.full
def test_gemm_takes_turns_with_the_vendor_in_every_variant(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: [16] for name in ("MWG", "NWG")} | {name: [4] for name in ("MDIMC", "NDIMC", "MDIMA", "NDIMB")}
    narrow = kernel_with("gemm", KWG=[8], VWM=[1], VWN=[1], **few)
    narrow = dataclasses.replace(narrow, constraints=[*narrow.constraints, "not STRM and not STRN"])
    monkeypatch.setattr(gemm, "load_kernel", lambda _: narrow)
    monkeypatch.setattr(gemm, "TYPES", {"fp32": ("fp32", "fp32")})
    monkeypatch.setattr(gemm, "_vendor", lambda *_: Vendor())
    document = measured(gemm, options, time.monotonic() + LATER)
    (product,) = document["products"]
    assert document["complete"]
    # A processor has no matrix units.
    assert list(product["kernels"]) == ["neither", "double buffering", "prefetch", "both"]
    assert product["vendor_ms"] == [0.25] * options.rounds
    for variant, entry in product["kernels"].items():
        assert gemm.VARIANTS[variant].items() <= entry["configuration"].items()
        assert len(entry["times_ms"]) == options.rounds
        assert 0 < entry["error"] < 1e-5
        entry["times_ms"] = [0.2, 0.2]
    text = "\n".join(gemm.lines(document))
    assert "cuBLAS 1.2.3" in text
    assert "125.0%" in text
    assert "- Target in fp32: 90% of cuBLAS: met at 20 (125.0%).\n- Target in TF32: 70% of cuBLAS.\n" in text


@pytest.fixture(scope="module")
def parts() -> Mapping[tuple[str, str], SearchSpace]:
    """The parts of gemm's space on an NVIDIA GPU."""
    kernel = load_kernel("gemm")
    sizes = kernel.resolve_sizes("default", dict.fromkeys("MNK", 4096))
    limits = device_constraints(kernel, get_backend("cuda").matrix_limits("sm_90"))
    return gemm._parts(kernel.search_space(sizes, limits))


def test_what_matrix_units_multiply_has_searches_where_a_device_has_them(parts: Mapping[Any, Any]) -> None:
    by_units = [name for name, variant in parts if variant == gemm.UNITS]
    assert by_units == ["TF32", "fp16", "fp64", "bf16"]  # fp32 is not rounded unasked
    assert [name for name, variant in parts if variant == "both"] == ["fp32", "fp16", "fp64"]


def test_searches_of_gemm_begin_with_picked_tiles(
    parts: Mapping[tuple[str, str], SearchSpace], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(gemm, "search", lambda *given: begun.append(given[7]))
    evaluator: Any = None
    gemm._search(evaluator, load_kernel("gemm"), parts, LATER, 0, ())
    for ((name, variant), space), first in zip(parts.items(), begun, strict=True):
        valid = [configuration for configuration in first if configuration in space]
        assert len(valid) >= 3
        widest = max(configuration["MWG"] * configuration["NWG"] for configuration in valid)
        if variant == gemm.UNITS:
            assert len(valid) >= len(gemm.UNITS_TILES) - 3 * (name == "fp64")
            assert widest == (128 * 128 if name == "fp64" else 256 * 128)
        else:
            # The best by their counts are among them, except where a variant leaves them no shared memory.
            assert any(c["VWK"] == 4 and c["unroll"] == 4 for c in valid)
            assert widest >= (256 * 128 if (name, variant) == ("fp32", "neither") else 128 * 128)


class OnDevice(np.ndarray[Any, Any]):
    """An array that tells its address as CuPy's do."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


@pytest.fixture
def cublas(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """CuPy and cuBLAS, played: matrices lie column by column, as the library has them."""
    types = {1: np.float64, 0: np.float32, 2: np.float16, 14: ml_dtypes.bfloat16}

    def matrix(address: int, kind: int, rows: int, columns: int, lead: int) -> Any:
        element = np.dtype(types[kind])
        memory = (ctypes.c_char * (lead * columns * element.itemsize)).from_address(address)
        return np.frombuffer(memory, element).reshape(columns, lead).T[:rows]

    def gemm_ex(*given: int) -> None:
        handle, transa, transb, m, n, k, alpha, a, a_kind, lda, b, b_kind, ldb, beta, c, c_kind, ldc, compute, _ = given
        assert (handle, transa, transb) == (7, 0, 0)
        scale = {70: ctypes.c_double, 68: ctypes.c_float, 77: ctypes.c_float}[compute]
        left, right = matrix(a, a_kind, m, k, lda), matrix(b, b_kind, k, n, ldb)
        if compute == 77:  # TF32 has eleven digits
            left, right = (
                ((part.view(np.uint32) + 0x1000) & ~np.uint32(0x1FFF)).view(np.float32) for part in (left, right)
            )
        result = matrix(c, c_kind, m, n, ldc)
        product = left.astype(np.float64) @ right.astype(np.float64)
        result[...] = scale.from_address(alpha).value * product + scale.from_address(beta).value * result

    library = SimpleNamespace(
        gemmEx=gemm_ex,
        getVersion=lambda _: 130102,
        CUBLASError=LookupError,
        CUBLAS_OP_N=0,
        CUBLAS_GEMM_DEFAULT=-1,
        CUBLAS_COMPUTE_64F=70,
        CUBLAS_COMPUTE_32F=68,
        CUBLAS_COMPUTE_32F_FAST_TF32=77,
    )
    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    played: Any = ModuleType("cupy")
    played.asarray = lambda array: np.array(array).view(OnDevice)
    played.asnumpy = np.asarray
    played.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=lambda: None)
    played.cuda = SimpleNamespace(
        Event=lambda: event,
        get_elapsed_time=lambda *_: 1.5,
        runtime=SimpleNamespace(CUDA_R_64F=1, CUDA_R_32F=0, CUDA_R_16F=2, CUDA_R_16BF=14, CUDARuntimeError=OSError),
        device=SimpleNamespace(get_cublas_handle=lambda: 7),
    )
    libraries: Any = ModuleType("cupy_backends.cuda.libs")
    libraries.cublas = library
    monkeypatch.setattr(vendor.importlib.util, "find_spec", lambda _: played)
    monkeypatch.setitem(sys.modules, "cupy", played)
    monkeypatch.setitem(sys.modules, "cupy_backends", ModuleType("cupy_backends"))
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda", ModuleType("cupy_backends.cuda"))
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", libraries)
    return SimpleNamespace(libraries=libraries)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("fp64", 0, 1e-15), ("fp32", 1e-8, 1e-6), ("TF32", 1e-5, 1e-3), ("fp16", 1e-5, 1e-3), ("bf16", 1e-4, 1e-2)],
)
def test_the_vendor_multiplies_the_kernels_own_matrices(
    name: str, least: float, most: float, cublas: SimpleNamespace
) -> None:
    kernel = load_kernel("gemm")
    data = DataManager(kernel, kernel.resolve_sizes("smoke"))  # no two of its sizes are equal
    with vendor.Cublas(data, name) as library:
        assert library.version == "13.1.2"
        # C is as it was at first each time.
        assert [library.multiply(), library.multiply()] == [1.5, 1.5]
        assert least <= library.error() < most


def test_a_vendor_library_that_refuses_or_is_missing_is_named(cublas: SimpleNamespace) -> None:
    kernel = load_kernel("gemm")
    data = DataManager(kernel, kernel.resolve_sizes("smoke"))

    def refuse(*_: object) -> None:
        raise LookupError("CUBLAS_STATUS_NOT_SUPPORTED")

    cublas.libraries.cublas.gemmEx = refuse
    with pytest.raises(BackendUnavailableError, match="does not multiply in fp16 here: CUBLAS_STATUS_NOT_SUPPORTED"):
        vendor.Cublas(data, "fp16")
    del cublas.libraries.cublas
    with pytest.raises(BackendUnavailableError, match="pip install nvidia-cublas"):
        vendor.Cublas(data, "fp32")


# -- peer ------------------------------------------------------------------------------------------


def test_the_peer_launches_the_same_sources_in_the_same_way() -> None:
    kernel_tuner = pytest.importorskip("kernel_tuner", reason='Kernel Tuner is in the extra "benchmarks"')
    kernel = rates.load_narrowed(peer.KERNEL, tuple(peer.TYPES))
    sizes = kernel.resolve_sizes("default")
    given = peer.peer_options(kernel, sizes)
    space = kernel.search_space(sizes)
    assert space.size == 24 * 3**3
    names = [*given["block_size_names"], "block_size_y", "block_size_z"]
    dividers = tuple(given[f"grid_div_{axis}"] for axis in "xyz")
    for configuration in space.configurations(space.sample(5, np.random.default_rng(1))):
        values, shape = dict(configuration), kernel.launch_shape(configuration, sizes)
        threads, grid = kernel_tuner.util.setup_block_and_grid(given["problem_size"], dividers, values, names)
        assert (threads, grid) == (shape.block, shape.grid)
        source = given["source"](values)
        assert source == render(kernel, configuration, sizes)
        _, prepared = kernel_tuner.util.prepare_kernel_string(
            kernel.function, source, values, grid, threads, names, given["lang"], given["defines"]
        )
        assert prepared.endswith(source)
        assert "#define" not in prepared.removesuffix(source)


def test_the_tools_take_turns_for_as_many_rounds_as_there_is_time_for(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = load_kernel("axpy")
    types = dict.fromkeys(("a_type", "x_type", "y_type"), "fp64")
    best = kernel.configuration({"block_size": 256, "vector_width": 1, **types})
    now_s, turns = [0.0], []

    def outcome(tool: str, took_s: float, found: Any) -> Any:
        def run(*given: Any) -> rates.Outcome:
            now_s[0] += took_s
            turns.append((tool, given[-1] if tool == peer.PEER else given[3]))
            return rates.Outcome(options.budget, took_s, {"compile": took_s / 4}, found)

        return run

    class Pool:
        """Runs what is submitted at once, in this process."""

        def __init__(self, *_: object) -> None:
            pass

        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def submit(self, function: Any, *given: Any) -> Any:
            return SimpleNamespace(result=lambda: function(*given))

    monkeypatch.setattr(peer, "require_kernel_tuner", lambda: None)
    monkeypatch.setattr(peer, "_require_device", lambda: None)
    monkeypatch.setattr(peer, "run_random", outcome(peer.OWN, 10.0, best))
    monkeypatch.setattr(peer, "run_peer", outcome(peer.PEER, 40.0, None))
    monkeypatch.setattr(peer, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(peer, "get_backend", lambda _: get_backend("host"))
    monkeypatch.setattr(peer.time, "monotonic", lambda: now_s[0])
    document = measured(peer, dataclasses.replace(options, backend="cuda", rounds=5, seed=3), 149.0)
    # A third round would end at 150 s.
    assert turns == [(peer.OWN, 3), (peer.PEER, 3), (peer.OWN, 4), (peer.PEER, 4)]
    assert not document["complete"]
    for turn in document["rounds"]:
        assert turn[peer.OWN]["found_ms"] > 0
        assert math.isnan(turn[peer.PEER]["found_ms"])
    assert "4.00x the evaluations" in "\n".join(peer.lines(json_document(document)))


# -- spaces ----------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_space_goes_on_from_what_is_done(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    types = ["fp64", "fp32"]
    narrow = kernel_with("axpy", block_size=[256], vector_width=[1], a_type=["fp64"], x_type=types, y_type=types)
    monkeypatch.setattr("benchmarks.record.load_kernel", lambda _: narrow)
    options = dataclasses.replace(options, kernels=("axpy",))
    assert measured(spaces, options, time.monotonic())["kernels"] == {}
    first = spaces._record("axpy", options, time.monotonic())
    assert (first["measured"], first["configurations"], first["front"], first["fp64"]) == (0, 4, [], None)
    assert not options.data.exists()
    document = measured(spaces, options, time.monotonic() + LATER)
    entry = document["kernels"]["axpy"]
    assert document["complete"]
    assert entry["measured"] == 4
    recorded = read_recording(options.data / entry["recorded"])
    assert len(recorded.trials) == 4
    times_ms = [trial.time_ms for trial in recorded.trials.values()]
    assert min(times_ms) == pytest.approx(entry["front"][0]["time_ms"], rel=1e-4)
    assert entry["fp64"]["configuration"]["y_type"] == "fp64"
    again = measured(spaces, options, time.monotonic() + LATER)
    assert again["kernels"]["axpy"] == entry  # a second measurement would not agree to every digit
    assert f"4 of 4 | 4 | {entry['fp64']['time_ms']:.4g} |" in "\n".join(spaces.lines(document))


def test_the_summary_of_a_space() -> None:
    kernel = load_kernel("axpy")

    def trial(type_name: str, time_ms: float, error: float, status: Status = Status.OK) -> Trial:
        types = dict.fromkeys(("a_type", "x_type", "y_type"), type_name)
        configuration = kernel.configuration({"block_size": 32 if time_ms < 9 else 64, "vector_width": 1, **types})
        return Trial(configuration, status, measurement=Measurement({"time_ms": time_ms, "error": error}))

    trials = [
        trial("fp64", 8.0, 1e-17),
        trial("fp64", 10.0, 1e-17),
        trial("fp32", 4.0, 1e-8),
        trial("fp16", 2.0, 1e-3),
        trial("bf16", 2.5, 1e-2),
        Trial(trial("bf16", 9.0, 1.0).configuration, Status.LAUNCH_ERROR, "too slow"),
    ]
    found = spaces.summary(kernel, trials, (1e-8, 1e-4, 1e-2))
    assert found["fp64"]["time_ms"] == 8.0
    assert {level: point["time_ms"] for level, point in found["best"].items()} == {"high": 4, "medium": 4, "low": 2}
    assert [point["time_ms"] for point in found["front"]] == [2.0, 4.0, 8.0]
    assert (found["measured"], found["statuses"]) == (6, {"ok": 5, "launch_error": 1})
    entry = {**found, "sizes": {"n": 5}, "configurations": 1536, "recorded": "axpy-here.json.gz"}
    text = "\n".join(spaces.lines({"kernels": {"axpy": entry}}))
    assert "| axpy | 6 of 1,536 | 5 | 8 | 2.00x (<= 1e-08) | 2.00x (<= 1e-04) | 4.00x (<= 1e-02) |" in text
    assert spaces.summary(kernel, [], (1e-8,))["best"] == {"high": None}


def test_nan_is_never_among_the_fastest() -> None:
    configuration = load_kernel("axpy").search_space(load_kernel("axpy").resolve_sizes()).configuration(0)
    broken = Trial(configuration, Status.OK, measurement=Measurement({"time_ms": 1.0, "error": math.nan}))
    assert fastest([broken], {}, math.inf, 3) == []


def test_a_search_begins_with_what_was_best_elsewhere_and_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = load_kernel("axpy")
    space = kernel.search_space(kernel.resolve_sizes("smoke")).restrict({"block_size": [32, 64], "a_type": ["fp64"]})
    now_s, evaluated = [0.0], []

    def evaluate(configurations: list[Any]) -> Any:
        for configuration in configurations:
            now_s[0] += 1.0
            evaluated.append(configuration)
            numbers = {"time_ms": 1.0 + configuration["vector_width"], "error": 0.5}
            yield Trial(configuration, Status.OK, measurement=Measurement(numbers))

    monkeypatch.setattr(searching.time, "monotonic", lambda: now_s[0])
    evaluator: Any = SimpleNamespace(lead=3, evaluate=evaluate)
    inside = space.configurations([3, 7, 9])
    outside = kernel.configuration({**inside[0], "block_size": 1024})
    known = {inside[0]: Trial(inside[0], Status.OK, measurement=Measurement({"time_ms": 1.0, "error": 0.5}))}
    first = [inside[2], outside, inside[0], inside[1], inside[2]]
    searching.search(evaluator, kernel, space, Objective(), known, 7.0, 0, first)
    assert evaluated[:2] == [inside[2], inside[1]]
    assert len(evaluated) == len(set(evaluated)) == 7
    assert set(known) == {inside[0], *evaluated}
    assert all(configuration in space for configuration in evaluated)
    searching.search(evaluator, kernel, space, Objective(), known, 7.0, 0, [outside])
    assert len(evaluated) == 7
    searching.search(evaluator, kernel, space, Objective(), known, 1e9, 0)
    assert len(known) == space.size


# -- energy ----------------------------------------------------------------------------------------


@pytest.mark.full
def test_energy_by_level(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    types = ["fp64", "fp32"]
    narrow = kernel_with("axpy", block_size=[256], vector_width=[1], a_type=["fp64"], x_type=types, y_type=types)
    monkeypatch.setattr(energy, "load_kernel", lambda _: narrow)
    document = measured(energy, dataclasses.replace(options, kernels=("axpy",)), time.monotonic() + LATER)
    entry = document["kernels"]["axpy"]
    assert document["complete"]
    assert list(entry["levels"]) == ["fp64", "high", "medium", "low"]
    assert entry["evaluated"] == 4
    for level in entry["levels"].values():
        assert level["fastest"]["error"] <= level["threshold"]
        # The one or the other: a number, or why there is none.
        assert math.isnan(level["fastest"]["energy_j"]) == bool(entry["missing"])


# -- up to the compiler ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs("cuda")) for name in vendor.TYPES])
def test_what_gemm_searches_compiles_for_a_gpu(name: str, parts: Mapping[tuple[str, str], SearchSpace]) -> None:
    kernel = load_kernel("gemm")
    sizes = kernel.resolve_sizes("default", dict.fromkeys("MNK", 4096))
    for (of, variant), space in parts.items():
        if of == name:
            smallest = [tile for tile in gemm.tiles(kernel, name, variant) if tile in space][-1]
            source = render(kernel, smallest, sizes)
            assert get_backend("cuda").compiler.compile(source, kernel.function, CompileOptions("sm_90")).image
