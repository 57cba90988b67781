"""Compiles small kernels for the host tests: a source on the host half of the prelude alone, which compiles fast."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host import HostBackend, HostFunction
from mptune.paths import bundled_folder
from mptune.testing.backends import launch_on_arrays

#: The parts every compiler needs for a kernel without reduced precision.
PARTS = ("platform.hpp", "host.hpp", "warps.hpp", "host_fiber.hpp", "host_pool.hpp", "host_grid.hpp")

_FOLDER = tempfile.TemporaryDirectory(prefix="mptune-tests-")
CACHE = BinaryCache(Path(_FOLDER.name))


def source(name: str, body: str, block: tuple[int, ...] = ()) -> str:
    parts = "\n".join((bundled_folder("templates") / "prelude" / part).read_text() for part in PARTS)
    entry = ", ".join([name, *map(str, block)])
    return f'{parts}\n#line 1 "{name}.cu"\n{body}\nMPTUNE_HOST_ENTRY({entry})\n'


def build(
    name: str, body: str, *, flags: tuple[str, ...] = (), workers: int = 3, block: tuple[int, ...] = ()
) -> HostFunction:
    """Compile and load; more workers than the machine may have cores, so that blocks really spread."""
    backend = HostBackend(workers=workers, cache=CACHE)
    return backend.device.load(backend.compiler.compile(source(name, body, block), name, CompileOptions(flags=flags)))


def run(function, grid, block, *arguments, shared_bytes: int = 0) -> float:
    """Launch on arrays, which come back changed in place, and NumPy scalars."""
    return launch_on_arrays(HostBackend(cache=CACHE), function, grid, block, *arguments, shared_bytes=shared_bytes)
