"""What is emitted of a run on OpenCL besides: the source as the driver reads it, and a program that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mptune.backends.opencl_dialect import as_opencl
from mptune.cpp.prelude import prelude
from mptune.emit.common import as_a_file
from mptune.emit.text import fill
from mptune.emit.winner import Winner
from mptune.kernel import Kernel

__all__ = ["opencl_files"]


def opencl_files(winner: Winner[Kernel], name: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the files by name; ``values`` are those that other files are filled with."""
    source = winner.source
    conversions = "".join(_conversions(argument) for argument in values["arguments"])
    passed = [argument["name"] for argument in values["arguments"] if not argument["is_constant"]]
    more = {
        "source": as_a_file(as_opencl(f"{source}\n{conversions}")),
        "places": {argument: place for place, argument in enumerate(passed)},
        "has_dynamic": "SHARED_DYNAMIC" in source.removeprefix(prelude()),
        # As it was measured; other parts of that text are no flags.
        "flags": " ".join(part for part in winner.run.info.compiler.split("|") if part.startswith("-")),
    }
    return {
        f"{name}.cl": fill("source.cl", {**values, **more}),
        f"{name}_opencl.cpp": fill("opencl.cpp", {**values, **more}),
    }


def _conversions(argument: Mapping[str, Any]) -> str:
    """Return kernels that convert an argument from the type of its file, and back, where it needs them."""
    kept, filed = argument["cpp"], argument["file_cpp"]
    ways = []
    if argument["role"] in ("in", "inout", "scalar") or argument["is_constant"]:
        ways.append(("load", kept, filed))
    if argument["is_output"]:
        ways.append(("unload", filed, kept))
    return "".join(
        f'extern "C" __global__ void mptune_{way}_{argument["name"]}({to}* to, const {of}* from) {{\n'
        "    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        f"    to[i] = static_cast<{to}>(from[i]);\n"
        "}\n"
        for way, to, of in ways
    )
