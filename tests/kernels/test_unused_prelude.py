"""OpenCL's driver makes the same of every kernel without what of the prelude it does not use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from launching import Launcher
from numpy.typing import NDArray

from mptune.backends import opencl
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.opencl import OpenclBackend
from mptune.backends.opencl_dialect import as_opencl, without_unused
from mptune.buffers import DataManager
from mptune.errors import CompileError
from mptune.kernel import Kernel
from mptune.prelude import prelude
from mptune.registry import bundled_kernels, load_kernel
from mptune.rendering import render
from mptune.space.configuration import Configuration
from mptune.space.parameters import PrecisionParameter

FOUND = OpenclBackend.availability()


def driver(monkeypatch: pytest.MonkeyPatch) -> opencl._DriverCompiler:
    """Return the driver's compiler in this process, where PyOpenCL may have been imported to keep binaries itself."""
    monkeypatch.setenv("PYOPENCL_NO_CACHE", "1")
    monkeypatch.setattr("pyopencl.characterize.has_src_build_cache", lambda device: True)
    return opencl._DriverCompiler()


def uniform(kernel: Kernel) -> list[Configuration]:
    """Return the first configuration with each of its types in all places that have it."""
    kinds = [p for p in kernel.parameters if isinstance(p, PrecisionParameter)]
    names = dict.fromkeys(str(value) for p in kinds for value in p.values)
    return [kernel.configuration({p.name: name for p in kinds if name in p.values}) for name in names]


@pytest.mark.filterwarnings("ignore:Non-empty compiler output")
@pytest.mark.skipif(not FOUND.can_run, reason=FOUND.reason or "can run")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("axpy", marks=pytest.mark.full),
        *(pytest.param(name, marks=pytest.mark.nightly) for name in bundled_kernels() if name != "axpy"),
    ],
)
def test_what_is_left_out_changes_no_bit(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = load_kernel(name)
    data = DataManager(kernel, kernel.resolve_sizes("smoke"))
    compiler = driver(monkeypatch)

    def outputs(configuration: Configuration, *, is_whole: bool) -> dict[str, NDArray[Any]]:
        def compiled(text: str, function: str, flags: Sequence[str], _: float) -> tuple[bytes, str]:
            return compiler._compile(text if is_whole else without_unused(text, flags), function, flags)

        monkeypatch.setattr(opencl, "_driver_compiler", lambda: SimpleNamespace(compile=compiled))
        backend = OpenclBackend(BinaryCache(tmp_path / str(is_whole)))
        return Launcher(kernel, data, CompileOptions(), backend).run(configuration)

    configurations = uniform(kernel)
    assert len(configurations) >= 3
    for configuration in configurations:
        source = as_opencl(render(kernel, configuration, data.sizes))
        assert len(without_unused(source)) < 0.4 * len(source)
        whole, short = (outputs(configuration, is_whole=is_whole) for is_whole in (True, False))
        assert whole.keys() == short.keys()
        for output, values in whole.items():
            assert values.tobytes() == short[output].tobytes(), (configuration, output)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:Non-empty compiler output")
@pytest.mark.skipif(not FOUND.can_run, reason=FOUND.reason or "can run")
def test_where_something_is_missing_the_whole_prelude_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = driver(monkeypatch)
    compiler._without_unused = lambda source, flags: source.replace("exp", "absent")
    body = '\n#line 1 "f.cu"\nextern "C" __global__ void f(float* y) { y[0] = mp::exp(y[0]); }\n'
    flags = OpenclBackend().compiler.identity(CompileOptions())
    assert compiler.compile(as_opencl(prelude() + body), "f", flags)[0]
    with pytest.raises(CompileError, match=r"rejected f[\s\S]*f\.cu:1:\d+: error: [^\n]*nothing"):
        compiler.compile(as_opencl(prelude() + body.replace("exp(", "nothing(")), "f", flags)
