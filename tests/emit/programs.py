"""Builds and runs what is emitted, and has vendors' compilers check it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from awkward_kernel import data_folder, file_name, measured, run_of
from vendor_compilers import needs

from mptune.accuracy.evaluate import evaluate_outputs
from mptune.backends import get_backend
from mptune.backends.base import Backend, CompileOptions
from mptune.backends.host_compiler import find_compiler
from mptune.data import DataManager
from mptune.emit import emit, winner_of
from mptune.kernel import Kernel, Sizes

CLANG = shutil.which("clang++") or next(map(str, sorted(Path("/usr/lib").glob("llvm-*/bin/clang++"))), None)
HIP_HEADERS = next((p for p in (Path("/usr/include"), Path("/opt/rocm/include")) if (p / "hip").is_dir()), None)
needs_clang = pytest.mark.skipif(CLANG is None, reason="clang++ is not installed")
needs_hip_headers = pytest.mark.skipif(
    CLANG is None or HIP_HEADERS is None, reason="clang++ or the HIP headers are not installed"
)
#: The runtime compilers of both vendors, each for an architecture.
RUNTIME_COMPILERS = [
    pytest.param("cuda", "sm_80", marks=needs("cuda"), id="cuda"),
    pytest.param("hip", "gfx90a", marks=needs("hip"), id="hip"),
]


def emitted(
    kernel: Kernel,
    values: Mapping[str, Any],
    folder: Path,
    sizes: Sizes | None = None,
    backend: Backend | None = None,
    **settings: Any,
) -> float:
    """Emit a configuration of a kernel into a folder; return the error that was measured."""
    (trial,) = measured(kernel, values, sizes=sizes, backend=backend)
    winner = winner_of(run_of(kernel, [trial], sizes, backend, **settings), configuration="1", kernel=kernel)
    assert winner is not None
    emit(winner, folder)
    return trial.error


def emitted_command(source: Path) -> list[str]:
    """Return the command, up to the files, that the comment of an emitted program says to compile it with."""
    command = re.search(rf"^//     ((?:g\+\+|python3 -m ziglang c\+\+) .*?){source.name}", source.read_text(), re.M)
    assert command is not None
    assert "-march=" in command[1]
    return [sys.executable if word == "python3" else word for word in command[1].split()]


def compiled(*command: object, folder: Path) -> None:
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def build(folder: Path, *sources: str, flags: str | None = None, compiler: str = "") -> Path:
    """Compile emitted files as they say, or with flags and a compiler, by default that of this machine."""
    program = folder / "program"
    compilers = [compiler] if compiler else find_compiler().command
    command = emitted_command(folder / sources[-1]) if flags is None else [*compilers, *flags.split()]
    compiled(*command, "-Wall", "-Wextra", "-Werror", *sources, "-o", program, "-pthread", folder=folder)
    return program


def run_program(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, timeout=600)


def outputs_of(program: Path, kernel: Kernel, sizes: Sizes | None, folder: Path) -> float:
    """Run a program on a kernel's data; return the error of its outputs."""
    data = DataManager(kernel, sizes or kernel.resolve_sizes())
    (folder / "out").mkdir()
    done = run_program(program, data_folder(data, folder / "in"), folder / "out", 3)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.removesuffix(" ms\n")) > 0
    outputs = {}
    for argument in kernel.outputs:
        values = np.fromfile(folder / "out" / file_name(argument), dtype=argument.dtype or np.float64)
        outputs[argument.name] = values.reshape(data.shape_of(argument))
    return evaluate_outputs(outputs, data.references, kernel.metric).error


# -- compilers of GPUs -----------------------------------------------------------------------------


def compile_for(backend: str, architecture: str, source: Path, *functions: str, also: str = "") -> None:
    """Have a runtime compiler take a source with the prelude that it includes."""
    text = source.read_text() + also
    for prelude in source.parent.glob("*_prelude.hpp"):
        text = text.replace(f'#include "{prelude.name}"', prelude.read_text().replace("#pragma once", ""))
    text = text.replace("#include <cstdint>", "")
    for function in functions:
        assert get_backend(backend).compiler.compile(text, function, CompileOptions(architecture)).image


def conversions_of(script: Path) -> str:
    """Return what a CuPy example compiles beside the kernel."""
    assigned = {
        ast.unparse(node.targets[0]): node.value
        for node in ast.parse(script.read_text()).body
        if isinstance(node, ast.Assign)
    }
    return str(ast.literal_eval(assigned["CONVERSIONS"]))


def nvcc(source: Path, target: Path, *flags: str) -> None:
    command = ["nvcc", "-std=c++17", "-O0", "-arch=sm_80", *flags, "-c", source.name, "-o", target / "one.o"]
    compiled(*command, folder=source.parent)


def check_hip(source: Path, side: str, target: Path) -> None:
    """Check every name and type for the host or a device, by a ROCm of headers alone."""
    (target / "bin").mkdir(parents=True, exist_ok=True)
    (target / "bin" / ".hipVersion").write_text("HIP_VERSION_MAJOR=5\nHIP_VERSION_MINOR=2\nHIP_VERSION_PATCH=0\n")
    (target / "include").mkdir(exist_ok=True)
    if not (target / "include" / "hip").exists():
        assert HIP_HEADERS is not None
        (target / "include" / "hip").symlink_to(HIP_HEADERS / "hip")
    command = [CLANG, "-x", "hip", f"--cuda-{side}-only", "--offload-arch=gfx90a", f"--rocm-path={target}"]
    compiled(*command, "-nogpulib", "-std=c++17", "-fsyntax-only", "-w", source.name, folder=source.parent)
