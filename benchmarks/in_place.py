"""Programs tuned in place: a configuration is a run of the program itself, its kernels and memory in other types.

    python benchmarks/in_place.py [PROGRAM.cu ...]

The host part of a program is compiled once. For each configuration only its kernels are compiled; the layer that stands
for CUDA's runtime keeps the device's memory in the configuration's types, and converts what the program copies. So what
the host computes between launches is part of the error, and a loop until convergence takes as many turns as it takes.
Today's way, a copy of what the program launched, stands beside it: the same configurations, their errors by both.

Not taken yet: structs by value, constant and managed memory, vectors, numbers of 16 bits in the program's own text.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mptune.adopt.adopting import AdoptSettings, adopt  # noqa: E402
from mptune.adopt.capture import Launch, Place, capture  # noqa: E402
from mptune.adopt.parsing import ProgramError  # noqa: E402
from mptune.adopt.reading import read  # noqa: E402
from mptune.adopt.running import build  # noqa: E402
from mptune.backends import get_backend  # noqa: E402
from mptune.backends.base import CompileOptions  # noqa: E402
from mptune.errors import MptuneError  # noqa: E402
from mptune.kernel import Application, Role  # noqa: E402
from mptune.measure.device import DeviceEvaluator  # noqa: E402
from mptune.source.loading import load_tunable  # noqa: E402
from mptune.source.render import render  # noqa: E402
from mptune.space.configuration import Configuration  # noqa: E402

PROGRAMS: Final = tuple(
    ROOT / "tests" / "adopt" / "programs" / f"{name}.cu"
    for name in ("conjugate_gradients", "power_iteration", "shared_reduction")
)
#: How the layer's table writes types.
CODES: Final = {"fp64": "d", "fp32": "f", "fp16": "h", "bf16": "b"}
NARROW: Final = ("fp32", "bf16", "fp16")
LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Ran:
    """A run of a program: what the host took back last from each place, its kernels' time, its seconds and its end."""

    answers: Mapping[tuple[int, int], bytes]
    kernels_ms: float
    launches: int
    seconds: float
    exit_code: int
    printed: str


class InPlace:
    """A program that runs with its kernels and the device's memory in a configuration's types.

    Raises:
        ProgramError: the program is not taken.
    """

    def __init__(self, path: Path, work: Path) -> None:
        start = time.monotonic()
        adopt(AdoptSettings((path,)), work / "adopted")
        self.adopt_s = time.monotonic() - start
        found = load_tunable(str(work / "adopted"))
        assert isinstance(found, Application)
        self.application = found
        self._work = work
        program = read([path])
        built = build(program.sources, program.files)
        self._program = work / "program"
        self._program.write_bytes(built.image)
        self._program.chmod(0o700)
        self._libraries: dict[tuple[str, Configuration], Path] = {}
        self._labels: dict[str, str] = {}
        self._blocks: dict[str, tuple[int, int, int]] = {}
        #: Of each allocation the program's own type and the parameter that sets it.
        self._allocations: dict[int, tuple[str, str]] = {}
        self.compile_s = 0.0
        for operation in capture(built, (), work / "capture").operations():
            if isinstance(operation, Launch):
                self._see(operation)

    def _see(self, launch: Launch) -> None:
        """Join what a launch is given to the parameters of its kernel."""
        kernel = self.application.kernels.get(launch.kernel)
        if kernel is None or len(kernel.arguments) != len(launch.arguments):
            raise ProgramError(f"{launch.kernel} is no kernel of plain pointers and numbers")
        if self._blocks.setdefault(kernel.name, launch.block) != launch.block:
            raise ProgramError(f"{launch.kernel} is launched with blocks of several shapes")
        self._labels[launch.kernel] = kernel.name
        for argument, given, spelled in zip(kernel.arguments, launch.arguments, launch.types, strict=True):
            if isinstance(given, Place) and argument.precision is not None:
                own = "d" if "double" in spelled else "f"
                if self._allocations.setdefault(given.allocation, (own, argument.precision))[1] != argument.precision:
                    raise ProgramError(f"one allocation has several types in {launch.kernel}")

    def configuration(self, narrow: Mapping[str, str]) -> Configuration:
        """Return the joint configuration with these types, and else the widest, and the program's own blocks."""
        values: dict[str, object] = {}
        for parameter in self.application.parameters:
            kernel, _, name = parameter.name.rpartition(".")
            own = dict(zip(("block", "block_y", "block_z"), self._blocks.get(kernel, ()), strict=False))
            values[parameter.name] = narrow.get(parameter.name, own.get(name, parameter.values[0]))
        return Configuration(values)  # type: ignore[arg-type]

    def _of_kernel(self, name: str, configuration: Configuration) -> Configuration:
        types = {
            p.name: configuration[p.name] for p in self.application.kernels[name].parameters if p.name in configuration
        }
        return self.application.of_kernel(name, types, configuration)

    def _library(self, name: str, configuration: Configuration) -> Path:
        kernel, own = self.application.kernels[name], self._of_kernel(name, configuration)
        if (name, own) not in self._libraries:
            start = time.monotonic()
            source = render(kernel, own, self.application.resolve_sizes())
            image = get_backend("host").compiler.compile(source, kernel.function, CompileOptions()).image
            path = self._work / f"{name}{len(self._libraries)}.so"
            path.write_bytes(image)
            self._libraries[name, own] = path
            self.compile_s += time.monotonic() - start
        return self._libraries[name, own]

    def run(self, configuration: Configuration | None = None) -> Ran:
        """Run the program; in its own types if no configuration is given."""
        with tempfile.TemporaryDirectory(dir=self._work) as name:
            folder, lines = Path(name), [f"results {name}"]
            if configuration is not None:
                for number, (own, parameter) in self._allocations.items():
                    lines.append(f"allocation {number} {own} {CODES[str(configuration[parameter])]}")
                for label, kernel in self._labels.items():
                    own_types = self._of_kernel(kernel, configuration)
                    types = "".join(
                        CODES[str(own_types[argument.precision])]
                        if argument.role is Role.SCALAR and argument.precision is not None
                        else "="
                        for argument in self.application.kernels[kernel].arguments
                    )
                    lines.append(f"kernel {label}\t{self._library(kernel, configuration)}\t{types}")
            (folder / "table").write_text("\n".join(lines) + "\n", encoding="utf-8")
            environment = {**os.environ, "MPTUNE_IN_PLACE": str(folder / "table")}
            start = time.monotonic()
            ended = subprocess.run(
                [self._program], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
            seconds = time.monotonic() - start
            if not (folder / "answers.txt").is_file():
                raise ProgramError(f"it ended with {ended.returncode}: {ended.stderr[-200:]}")
            data, answers = (folder / "answers.bin").read_bytes(), {}
            for line in (folder / "answers.txt").read_text(encoding="utf-8").splitlines():
                number, offset, size = map(int, line.split())
                answers[number, offset], data = data[:size], data[size:]
            times = [line.split("\t")[1:] for line in (folder / "times.txt").read_text(encoding="utf-8").splitlines()]
        launches, kernels_ms = (sum(int(each[i]) for each in times) for i in (0, 1))
        return Ran(answers, kernels_ms * 1e-6, launches, seconds, ended.returncode, ended.stdout.strip()[-60:])

    def error(self, reference: Ran, ran: Ran) -> float:
        """Return the largest root-mean-square error of what the host took back, relative to that of the reference."""
        worst = 0.0
        for place, expected in reference.answers.items():
            own = self._allocations.get(place[0], ("", ""))[0]
            found = ran.answers.get(place, b"")
            if not own or len(found) != len(expected):
                worst = max(worst, 0.0 if found == expected else math.inf)
                continue
            r, y = (np.frombuffer(each, "f8" if own == "d" else "f4").astype(np.float64) for each in (expected, found))
            size = math.sqrt(np.mean(r * r)) or 1.0
            worst = max(worst, math.sqrt(np.mean((y - r) ** 2)) / size if np.isfinite(y).all() else math.inf)
        return worst


def rows(path: Path) -> list[str]:
    """Return the table's rows of a program."""
    with tempfile.TemporaryDirectory(prefix="mptune-") as name:
        program = InPlace(path, Path(name))
        application, sizes = program.application, program.application.resolve_sizes()
        types = {parameter.name for parameter in application.parameters if parameter.name.endswith("_type")}
        choices: dict[str, dict[str, str]] = {"own types": {}, "all fp64": {}}
        choices |= {f"all {narrow}": dict.fromkeys(types, narrow) for narrow in NARROW}
        choices |= {f"{name} fp32": {name: "fp32"} for name in sorted(types)}
        reference = program.run()
        found = []
        with DeviceEvaluator(application, sizes, "host") as copy:
            for label, narrow in choices.items():
                configuration = None if label == "own types" else program.configuration(narrow)
                before = program.compile_s
                ran = program.run(configuration)
                beside = "" if configuration is None else f"{next(copy.evaluate([configuration])).error:.2g}"
                cells = (
                    f"{path.name} | {label} | {program.error(reference, ran):.2g} | {beside} | {ran.exit_code}",
                    f"{ran.launches} | {ran.kernels_ms:.3g} | {ran.seconds:.2f} | {program.compile_s - before:.2f}",
                )
                found.append(f"| {' | '.join(cells)} | {ran.printed.splitlines()[-1] if ran.printed else ''} |")
        return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when it ended well, 2 for a program that is not taken."""
    parser = argparse.ArgumentParser(description="Programs tuned in place.")
    parser.add_argument("programs", nargs="*", type=Path, default=PROGRAMS, help="CUDA programs without arguments")
    given = parser.parse_args(arguments)
    columns = (
        "program",
        "types",
        "error in place",
        "error of the copy",
        "exit code",
        "launches",
        "kernels ms",
        "run s",
    )
    print(f"| {' | '.join(columns)} | compile s | printed |\n|{'---|' * (len(columns) + 2)}")
    status = 0
    for path in given.programs:
        try:
            print("\n".join(rows(path)), flush=True)
        except (MptuneError, subprocess.TimeoutExpired) as error:
            print(f"{path}: {error}", file=sys.stderr)
            status = 2
    return status


if __name__ == "__main__":
    sys.exit(main())
