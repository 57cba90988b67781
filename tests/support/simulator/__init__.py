"""A CUDA and a HIP device for tests, on a machine that has none: strict, and it runs kernels.

    python -m tests.support.simulator mptune tune axpy --backend cuda --max-error 1e-4

runs a command whose processes find both devices, by nothing but their environment (:func:`environment`): libraries with
the few functions of the driver and of NVRTC and hiprtc that mptune calls, and modules in place of CuPy and HIP Python.
What mptune does is what it does on a device: its compiler processes, its workers, its calls.

- Sources are compiled for the processor (:mod:`tests.support.simulator.compiler`). So what the host backend cannot
  run, as functions of warps, is a compile error here.
- The device is a process of its own (:mod:`tests.support.simulator.process`), with memory that no other address leads
  to, and addresses without memory around each allocation. A fault there is sticky, as on a GPU.
- Calls take what those of the real packages take, and nothing happens before something waits for it.
- What a real device would not notice, or not at once, is a :class:`Misuse`: memory, modules and handles that were given
  back or are something else, copies beyond an allocation, arguments that are none of the kernel's.

Times are made up: the same for the same launch, longer with more memory and more threads. The names of the devices say
so (:data:`MADE_UP`).
"""

from __future__ import annotations

import importlib
import os
import shlex
import shutil
import subprocess
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.support.simulator.device import MADE_UP, Failure, Misuse, SimulatedDevice

__all__ = ["MADE_UP", "Failure", "Misuse", "SimulatedDevice", "compiler_version", "environment"]

#: Where the libraries are looked for.
_LIBRARIES: Final = (
    "lib/libcuda.so.1",
    "lib/libamdhip64.so",
    "lib/libhiprtc.so",
    "nvidia/cu13/lib/libnvrtc.so.13",
    "nvidia/cu13/lib/libnvrtc-builtins.so.0.{version}",
)
#: What importing CuPy and HIP Python does.
_MODULES: Final = {
    "cupy": "from tests.support.simulator.cupy import SimulatedCupy as simulated",
    "hip": "from tests.support.simulator.hip import SimulatedHip as simulated",
}


def __getattr__(name: str) -> Any:
    # The process of a device imports this package too, and needs none of these names.
    if name in __all__:
        return getattr(importlib.import_module("tests.support.simulator.device"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def compiler_version() -> str:
    """Return the version of the runtime compilers: of no real one, of their source, and for this processor."""
    from mptune.backends.processor import processor

    ours = Path(__file__).with_name("compiler.py").read_bytes()
    return f"0.{zlib.crc32(ours + processor().fingerprint.encode()) >> 16}"


def environment(folder: Path) -> Mapping[str, str]:
    """Return the variables with which processes find the simulated devices, of which there is one of each kind.

    ``MPTUNE_SIMULATED_DEVICES`` makes them more.

    Args:
        folder: an empty one, for what they find.
    """
    from mptune.backends.host_compiler import find_compiler

    command = f"{shlex.quote(sys.executable)} -m tests.support.simulator.compiler"
    # Binaries are kept by the compiler's version.
    version = compiler_version().removeprefix("0.")
    defines = (f'-DCOMPILE="{command}"', f"-DVERSION={version}")
    built = folder / "libsimulated.so"
    source = Path(__file__).with_name("libraries.cpp")
    build = [*find_compiler().command, "-std=c++17", "-shared", "-fPIC"]
    subprocess.run([*build, *defines, str(source), "-o", str(built)], check=True)
    for name in (library.format(version=version) for library in _LIBRARIES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(built, folder / name)
    for name, text in _MODULES.items():
        (folder / f"{name}.py").write_text(f"import sys\n{text}\nsys.modules.update(simulated().modules)\n")
    return {
        "PYTHONPATH": ":".join([str(folder), str(Path(__file__).parents[3]), *filter(None, sys.path)]),
        "LD_LIBRARY_PATH": ":".join(filter(None, [str(folder / "lib"), os.environ.get("LD_LIBRARY_PATH")])),
        "ROCM_PATH": str(folder),
    }
