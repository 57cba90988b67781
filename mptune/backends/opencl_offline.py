"""Compiling C++ for OpenCL for drivers that take SPIR-V alone: clang makes LLVM's code, llvm-spirv SPIR-V of it."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mptune.backends.base import excerpt
from mptune.errors import CompileError

#: The releases that know C++ for OpenCL 2021, newest first; before them what has no number.
_RELEASES: Final = ("", *(f"-{number}" for number in range(30, 13, -1)))
TOOLS: Final = "clang 14 or newer and llvm-spirv of the same release (apt install clang-14 llvm-spirv-14)"
#: What devices need not have and the prelude asks for, by what a device calls it, with what else goes with it.
OPTIONAL_FEATURES: Final = {
    "cl_khr_fp16": (),
    "cl_khr_fp64": ("__opencl_c_fp64",),
    "cl_khr_int64_base_atomics": (),
    "cl_khr_int64_extended_atomics": (),
}
#: The newest version of SPIR-V that the oldest llvm-spirv writes.
_NEWEST_SPIRV: Final = (1, 4)
_VERSION_LIMIT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Offline:
    """clang and llvm-spirv.

    Attributes:
        clang: the path of clang.
        translator: that of llvm-spirv.
        version: what clang says of itself, one line.
    """

    clang: str
    translator: str
    version: str

    def compile(
        self, source: str, function: str, flags: Sequence[str], missing: Sequence[str], spirv_versions: str
    ) -> tuple[bytes, str]:
        """Return a source as SPIR-V, and what clang printed.

        Args:
            source: in C++ for OpenCL.
            function: its kernel, for messages.
            flags: of the compilation.
            missing: those of :data:`OPTIONAL_FEATURES` that the device lacks.
            spirv_versions: what the device takes ("SPIR-V_1.0 SPIR-V_1.1").

        Raises:
            CompileError: clang or llvm-spirv rejected it.
        """
        lacking = [name for feature in missing for name in (feature, *OPTIONAL_FEATURES[feature])]
        without = [word for name in lacking for word in ("-Xclang", f"-cl-ext=-{name}")]
        with tempfile.TemporaryDirectory(prefix="mptune-") as folder:
            code, spirv = Path(folder, "kernel.bc"), Path(folder, "kernel.spv")
            command = [self.clang, *flags, "--target=spir64-unknown-unknown", "-Xclang", "-finclude-default-header"]
            # The driver optimises; this much takes the prelude's small functions apart.
            command += [*without, "-O1", "-emit-llvm", "-c", "-x", "cl", "-", "-o", str(code)]
            log = _run(command, source, function)
            _run([self.translator, str(code), "-o", str(spirv), *_version_flag(spirv_versions)], "", function)
            return spirv.read_bytes(), log


@functools.cache
def find_offline() -> Offline | None:
    """Return clang and llvm-spirv of one release, the newest that is installed; None without them."""
    for release in _RELEASES:
        clang, translator = shutil.which(f"clang{release}"), shutil.which(f"llvm-spirv{release}")
        if clang and translator:
            version = _first_line([clang, "--version"])
            if version and _release_of(version) >= 14 and _release_of(version) == _release_of(_printed(translator)):
                return Offline(clang, translator, version)
    return None


def _printed(translator: str) -> str:
    return next((line for line in _lines([translator, "--version"]) if "LLVM version" in line), "")


def _release_of(line: str) -> int:
    """Return the number of a release in what a program says of itself ("Debian clang version 14.0.6"); 0 without."""
    _, _, rest = line.partition("version ")
    number = rest.partition(".")[0]
    return int(number) if number.isdigit() else 0


def _first_line(command: Sequence[str]) -> str:
    return next(iter(_lines(command)), "")


def _lines(command: Sequence[str]) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_VERSION_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def _version_flag(versions: str) -> list[str]:
    """Return how llvm-spirv is told the newest version of SPIR-V that it writes and a device takes."""
    pairs = [tuple(map(int, word.removeprefix("SPIR-V_").split("."))) for word in versions.split()]
    newest = max((pair for pair in pairs if pair <= _NEWEST_SPIRV), default=(1, 0))
    return [f"--spirv-max-version={newest[0]}.{newest[1]}"]


def _run(command: Sequence[str], text: str, function: str) -> str:
    """Run a program on a text; return what it printed.

    Raises:
        CompileError: it could not be run, or failed.
    """
    name = Path(command[0]).name
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CompileError(f"{name} cannot be run: {error}") from None
    if done.returncode != 0:
        raise CompileError(f"{name} rejected {function}\n{excerpt(done.stderr)}".rstrip())
    return done.stderr
