"""The host backend around a launch: compilers, kept binaries, arguments, buffers."""

from __future__ import annotations

import gc
import mmap
import resource
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from host_kernels import CACHE, build, run, source

from mptune.backends import host_compiler, processor
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host import HostBackend
from mptune.backends.host_compiler import HostCompiler, find_compiler, installed_compilers
from mptune.backends.processor import cache_limits, usable_cores
from mptune.errors import BackendUnavailableError, CompileError, LaunchError
from mptune.kernel import LaunchShape
from mptune.testing.backends import launch_on_arrays

AXPY = """
extern "C" __global__ void axpy(const {type}* __restrict__ x, {type}* __restrict__ y, {type} a, int n) {{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = a * x[i] + y[i];
}}
"""
ONE_THREAD = LaunchShape((1, 1, 1), (1, 1, 1), 0)


def axpy(type_name: str = "float") -> str:
    return source("axpy", AXPY.format(type=type_name))


def program(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport sys, os, time, signal, subprocess\n{text}")
    path.chmod(0o755)
    return str(path)


VERSION = "if '--version' in sys.argv:\n    print('fake 1.0')\n    sys.exit()\n"


@pytest.fixture
def cache(tmp_path):
    return BinaryCache(tmp_path / "cache")


class TestFindingACompiler:
    def test_none_says_what_to_install(self, monkeypatch, tmp_path):
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(host_compiler.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(BackendUnavailableError, match=r'apt install g\+\+.*pip install "mptune\[zig\]"'):
            find_compiler()
        availability = HostBackend.availability()
        assert not availability.can_compile
        assert not availability.can_run
        assert "no C++ compiler" in availability.reason

    @pytest.mark.parametrize(
        ("cxx", "names", "command", "family"),
        [
            ("{folder}/mine --strange", (), ("{folder}/mine", "--strange"), "gcc"),
            ("", ("g++", "clang++"), ("{folder}/g++",), "gcc"),
            ("", ("clang++",), ("{folder}/clang++",), "clang"),
            ("", (), (sys.executable, "-m", "ziglang", "c++"), "zig"),
        ],
    )
    def test_order(self, monkeypatch, tmp_path, cxx, names, command, family):
        monkeypatch.setenv("CXX", cxx.format(folder=tmp_path))
        for name in ("mine", *names):
            program(tmp_path, name, f"print('{name} version 99')\n")
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(host_compiler.importlib.util, "find_spec", lambda name: name == "ziglang")
        monkeypatch.setattr(host_compiler.importlib.metadata, "version", lambda name: "99")
        found = find_compiler()
        assert found.command == tuple(word.format(folder=tmp_path) for word in command)
        assert found.family == family
        assert found.version.endswith("99")

    @pytest.mark.parametrize(
        ("cxx", "message"),
        [("no-such-compiler -O1", "no program 'no-such-compiler'"), ("{folder}/broken", "--version failed")],
    )
    def test_a_cxx_that_is_none_is_an_error(self, monkeypatch, tmp_path, cxx, message):
        broken = tmp_path / "broken"
        broken.write_bytes(b"\x7fELF nonsense")
        broken.chmod(0o755)
        monkeypatch.setenv("CXX", cxx.format(folder=tmp_path))
        with pytest.raises(BackendUnavailableError, match=message):
            find_compiler()


class TestCompiling:
    def test_an_error_names_kernel_line_and_cause(self, cache):
        body = 'extern "C" __global__ void f(float* x) {\n    x[0] = undefined_name;\n    x[1] = other;\n}'
        with pytest.raises(CompileError, match=r"f\.cu:2:12: error: .*undefined_name") as caught:
            HostBackend(cache=cache).compiler.compile(source("f", body), "f", CompileOptions())
        text = str(caught.value)
        assert "rejected f" in text
        assert "f.cu:3:12" in text
        assert "<stdin>" not in text
        assert "/tmp" not in text
        assert len(text.splitlines()) <= 23

    @pytest.mark.full
    def test_a_compiler_that_hangs_is_killed_with_its_children(self, monkeypatch, tmp_path, cache):
        pid_file = tmp_path / "pid"
        waits = f"child = subprocess.Popen(['sleep', '600'])\nopen({str(pid_file)!r}, 'w').write(str(child.pid))\n"
        monkeypatch.setenv("CXX", program(tmp_path, "hanging", f"{VERSION}{waits}child.wait()\n"))
        with pytest.raises(CompileError, match="hanging did not finish axpy within 10 s"):
            HostBackend(cache=cache).compiler.compile(axpy(), "axpy", CompileOptions(timeout_s=10.0))
        child = int(pid_file.read_text())
        for _ in range(12_000):
            if not _is_running(child):
                break
            time.sleep(0.01)
        assert not _is_running(child)
        assert _leftovers(cache) == []

    @pytest.mark.parametrize(
        ("ending", "message"),
        [
            ("os.kill(os.getpid(), signal.SIGSEGV)", r"crashed on axpy \(SIGSEGV\)"),
            ("sys.exit('<stdin>:1:1: internal compiler error: in f')", r"crashed on axpy \(internal compiler error\)"),
            ("sys.exit(3)", r"rejected axpy \(exit status 3\)"),
        ],
    )
    def test_how_a_compiler_ends(self, monkeypatch, tmp_path, cache, ending, message):
        monkeypatch.setenv("CXX", program(tmp_path, "ending", f"{VERSION}sys.stdin.read()\n{ending}\n"))
        with pytest.raises(CompileError, match=message):
            HostBackend(cache=cache).compiler.compile(axpy(), "axpy", CompileOptions())
        assert _leftovers(cache) == []

    def test_nothing_appears_in_the_working_directory_or_the_temporary_one(self, monkeypatch, tmp_path, cache):
        temporary, working = tmp_path / "tmp", tmp_path / "cwd"
        temporary.mkdir()
        working.mkdir()
        monkeypatch.setenv("TMPDIR", str(temporary))
        monkeypatch.chdir(working)
        backend = HostBackend(cache=cache)
        function = backend.device.load(backend.compiler.compile(axpy(), "axpy", CompileOptions()))
        run(function, (1,), (4,), np.ones(4, np.float32), np.ones(4, np.float32), np.float32(1), np.int32(4))
        function.unload()
        assert list(temporary.iterdir()) == []
        assert list(working.iterdir()) == []
        assert _leftovers(cache) == []


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _leftovers(cache: BinaryCache) -> list[Path]:
    return [*(cache.directory / "work").glob("*"), *cache.directory.glob("*/.*")]


class TestCachedBinaries:
    def test_the_second_time_comes_from_disk(self, cache, monkeypatch):
        first = HostBackend(cache=cache).compiler.compile(axpy(), "axpy", CompileOptions())
        assert not first.cached
        assert first.compile_s > 0
        monkeypatch.setattr(host_compiler.Compiler, "compile", lambda *_: pytest.fail("compiled again"))
        second = HostBackend(cache=BinaryCache(cache.directory)).compiler.compile(axpy(), "axpy", CompileOptions())
        assert second.cached
        assert second.compile_s == 0
        assert second.image == first.image

    def test_source_flags_compiler_and_processor_each_make_another_entry(self, cache, monkeypatch, tmp_path):
        backend = HostBackend(cache=cache)
        options = CompileOptions()
        assert not backend.compiler.compile(axpy(), "axpy", options).cached
        assert not backend.compiler.compile(axpy("double"), "axpy", options).cached
        assert not backend.compiler.compile(axpy(), "axpy", CompileOptions(flags=("-O1",))).cached
        with pytest.raises(CompileError):
            backend.compiler.compile(axpy(), "axpy", CompileOptions("no-such-architecture"))
        other = processor.Processor("other", "x86-64", "other fingerprint")
        with monkeypatch.context() as patch:
            patch.setattr("mptune.backends.host_compiler.processor", lambda: other)
            assert not backend.compiler.compile(axpy(), "axpy", options).cached
        with monkeypatch.context() as patch:
            real = find_compiler()
            runs = f"real = {real.command!r}\nos.execv(real[0], [*real, *sys.argv[1:]])\n"
            newer = VERSION.replace("fake", f"newer {real.family}")
            patch.setenv("CXX", program(tmp_path, "newer", f"{newer}{runs}"))
            assert not backend.compiler.compile(axpy(), "axpy", options).cached
        assert backend.compiler.compile(axpy(), "axpy", options).cached


class TestLaunching:
    @pytest.fixture
    def function(self):
        return build("axpy", AXPY.format(type="float"))

    @pytest.fixture
    def backend(self):
        return HostBackend(cache=CACHE)

    def test_arguments_are_checked_against_the_signature(self, function, backend):
        x, y = backend.device.allocate(16), backend.device.allocate(16)
        good = [x, y, np.float32(1), np.int32(0)]
        function.launch(ONE_THREAD, good)
        for i, wrong, message in [
            (0, np.float32(1), r"parameter 0 of axpy is a host buffer, given a float32 scalar of 4 bytes"),
            (2, np.float64(1), r"parameter 2 of axpy is a scalar of 4 bytes, given a float64 scalar of 8 bytes"),
            (3, x, r"parameter 3 of axpy is a scalar of 4 bytes, given a HostBuffer of 16 bytes"),
            (3, 7, "parameter 3 of axpy needs a HostBuffer or a NumPy scalar, given int 7"),
        ]:
            with pytest.raises(LaunchError, match=message):
                function.launch(ONE_THREAD, [*good[:i], wrong, *good[i + 1 :]])
        with pytest.raises(LaunchError, match="axpy has 4 parameters and was given 3"):
            function.launch(ONE_THREAD, good[:3])

    def test_many_libraries_load_and_leave_no_descriptors_or_threads(self, backend):
        # The threads that all libraries share stay.
        first = build("axpy", AXPY.format(type="double"), workers=4)
        run(first, (16,), (4,), np.ones(64), np.zeros(64), np.float64(1), np.int32(64))
        gc.collect()  # what earlier tests left open is closed now, and not between the two counts
        open_before = len(list(Path("/proc/self/fd").iterdir()))
        threads_before = len(list(Path("/proc/self/task").iterdir()))
        for a in range(20):
            function = build("axpy", AXPY.format(type="double"), workers=4)
            y = np.zeros(64)
            run(function, (16,), (4,), np.ones(64), y, np.float64(a), np.int32(64))
            assert (y == a).all()
            function.unload()
        assert len(list(Path("/proc/self/fd").iterdir())) == open_before
        for _ in range(12_000):  # a joined thread may stay listed for a moment
            if len(list(Path("/proc/self/task").iterdir())) <= threads_before:
                break
            time.sleep(0.01)
        assert len(list(Path("/proc/self/task").iterdir())) <= threads_before

    @pytest.mark.parametrize("program", installed_compilers(), ids=lambda program: program.label)
    def test_fast_math_leaves_denormals_alone(self, program, backend, cache):
        body = 'extern "C" __global__ void f(double* y) { y[blockIdx.x] *= 0.5; }'
        text = source("f", body)
        binary = HostCompiler(program, ("-ffast-math",), cache).compile(text, "f", CompileOptions())
        assert b"set_fast_math" not in binary.image
        tiny, y = np.full(64, 1e-310), np.full(64, 1e-310)
        launch_on_arrays(backend, backend.device.load(binary), (64,), (1,), y)
        assert ((y > 0) & (y == tiny * 0.5)).all()


def _access(address):
    """Return the bytes of the mapping an address lies in, and who may do what there; nothing where there is none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, *_ = line.split()
        start, end = (int(number, 16) for number in span.split("-"))
        if start <= address < end:
            return end - start, access
    return 0, ""


class TestBuffers:
    @pytest.fixture
    def backend(self, cache):
        return HostBackend(cache=cache)

    @pytest.mark.parametrize("nbytes", [1, 4096, 100_000])
    def test_nobody_may_use_what_lies_around_it(self, backend, nbytes):
        buffer = backend.device.allocate(nbytes)
        pages = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        around = _access(buffer.address - 1), _access(buffer.address), _access(buffer.address + pages)
        assert [access for _, access in around] == ["---p", "rw-p", "---p"]
        least = 1 << 20
        assert around[0][0] >= least
        assert around[2][0] >= least
        address = buffer.address
        buffer.free()
        assert _access(address)[1] in ("", "---p")


def test_a_process_that_may_have_few_addresses_takes_few(cache, monkeypatch):
    def addresses():
        (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmSize"))
        return int(line.split()[1]) << 10

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 33, 1 << 33))
    before = addresses()
    buffer = HostBackend(cache=cache).device.allocate(1000)
    assert (1 << 21) < addresses() - before < 1 << 24
    assert buffer.seen().tolist() == [0] * 1000


def test_the_last_level_cache_is_the_largest_there_is(tmp_path):
    for index, size in enumerate(("48K", "32K", "1024K", "384M", "nonsense")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(f"{size}\n")
    assert cache_limits(tmp_path) == {"cache_bytes": 384 << 20, "own_cache_bytes": 0}
    assert set(cache_limits(tmp_path / "nowhere").values()) == {0}
    for index, level in enumerate((1, 1, 2, 3)):
        (tmp_path / f"index{index}" / "level").write_text(f"{level}\n")
    assert cache_limits(tmp_path) == {"cache_bytes": 384 << 20, "own_cache_bytes": usable_cores() << 20}
    assert HostBackend().describe().limits.items() >= cache_limits().items()
