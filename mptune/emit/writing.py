"""Writing what a user needs to use a tuned kernel without mptune."""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from mptune import __version__
from mptune.backends import BACKENDS
from mptune.backends.host_compiler import X86_FLAGS
from mptune.build import Build, build_of, compilers_of
from mptune.emit.sizes import NotTranslatableError, conditions, fixed_sizes, formula
from mptune.emit.text import fill, identifier
from mptune.emit.winner import Winner, select, sizes_of
from mptune.errors import KernelError, MptuneError
from mptune.expressions import Expression
from mptune.folders import write_whole
from mptune.kernel import Argument, Kernel, Role
from mptune.objective import Objective
from mptune.registry import edited, kernel_of_run, remarks
from mptune.results import Trial
from mptune.run import Run, json_document
from mptune.unseen import in_words

__all__ = ["MARK", "Emission", "describe", "emit", "emit_all_devices", "winner_of"]

#: What every emitted file says of itself.
MARK: Final = "Emitted by mptune"
#: What the host backend compiles with and the numbers depend on, but for the architecture.
_HOST_FLAGS: Final = " ".join((*X86_FLAGS, "-ffp-contract=fast -fno-math-errno -fno-trapping-math"))
#: What g++ understands besides, for the speed.
_GCC_FLAGS: Final = (
    "-fno-tree-loop-distribute-patterns --param=max-unswitch-insns=16000 --param=logical-op-non-short-circuit=0"
)

_SIGNED: Final = {"int8": "signed char", "int16": "short", "int32": "int", "int64": "long long"}
_INTEGERS: Final = _SIGNED | {f"u{n}": f"unsigned {cpp.removeprefix('signed ')}" for n, cpp in _SIGNED.items()}


def describe(winner: Winner, name: str) -> dict[str, Any]:
    """Return what the files of a winner are filled with; files and C++ names begin with the name given.

    Raises:
        MptuneError: the configuration cannot be rendered at the run's sizes.
    """
    kernel, sizes = winner.kernel, winner.sizes
    free = _free_sizes(winner)
    values = {**winner.configuration, **sizes}
    shape = winner.shape
    grid = [formula(str(axis), values, free) for axis in kernel.grid]
    return {
        "mark": f"{MARK} {__version__}",
        "name": name,
        "kernel": kernel.name,
        "function": kernel.function,
        "description": kernel.description,
        "configuration": str(winner.configuration),
        "parameters": [{"name": n, "value": value} for n, value in winner.configuration.items()],
        "sizes": [{"name": n, "value": value, "is_fixed": n not in free} for n, value in sizes.items()],
        "conditions": conditions(kernel, winner.configuration, sizes, free)[0],
        # Of several launches that are a run: how many, and pairs of buffers that change places from one to the next.
        "launches": "" if str(kernel.launches) == "1" else formula(str(kernel.launches), values, free),
        "launches_now": kernel.launch_count(winner.configuration, sizes),
        "swap": kernel.swap,
        "grid": [*grid, "1", "1"][:3],
        "grid_now": shape.grid,
        "block": shape.block,
        "shared_bytes": shape.shared_bytes,
        "arguments": [_argument(winner, argument, values, free) for argument in kernel.arguments],
        "host_command": _host_command(build_of(kernel, winner.configuration), winner.run.info.compiler),
        **_measured(winner),
    }


def _host_command(build: Build, identity: str) -> str:
    """Return the command that compiles for the host as it was measured, up to the files.

    Args:
        build: compiler and flags of the configuration.
        identity: the run's compiler as text, which has the architecture it compiled for.
    """
    compiler = build.compiler or "g++"
    target = re.search(r"(?:^|\|)-march=([\w.+-]+)", identity)
    flags = f"-std=c++17 -O3 -march={target[1] if target else 'native'} {_HOST_FLAGS}"
    command = "python3 -m ziglang c++" if compiler == "zig" else compiler
    parts = (command, flags, _GCC_FLAGS if compiler.startswith("g++") else "", *build.flags)
    # On one line: a backslash at the end of a comment would draw the next line in.
    return " ".join(part for part in parts if part)


def _free_sizes(winner: Winner) -> dict[str, str]:
    """Return the sizes that may differ at a launch, with their names in C++."""
    kernel = winner.kernel
    fixed = fixed_sizes(kernel, winner.configuration, winner.sizes)
    free = {size: f"sizes.{identifier(size)}" for size in winner.sizes if size not in fixed}
    for text in (kernel.launches, *kernel.grid, *(axis for argument in kernel.arguments for axis in argument.shape)):
        try:
            formula(str(text), {**winner.configuration, **winner.sizes}, free)
        except NotTranslatableError:
            free = {size: cpp for size, cpp in free.items() if size not in Expression(str(text)).names}
    _, uncovered = conditions(kernel, winner.configuration, winner.sizes, free)
    return {size: cpp for size, cpp in free.items() if size not in uncovered}


def _baseline_types(run: Run) -> str:
    """Return in words which types a baseline has: not every parameter need have fp64."""
    fixed = run.info.baseline_values or {}
    names = [parameter.name for parameter in run.info.parameters if parameter.kind == "precision"]
    types = {name: str(fixed[name][0]) for name in names if name in fixed}
    if set(types.values()) <= {"fp64"}:
        return "fp64 everywhere"
    return f"the widest types there are: {', '.join(f'{name} {kind}' for name, kind in types.items())}"


def _measured(winner: Winner) -> dict[str, Any]:
    run, trial, info = winner.run, winner.trial, winner.run.info
    return {
        "backend": info.backend,
        "on_processor": info.backend in BACKENDS and BACKENDS[info.backend].shares_memory,
        "device": info.device,
        "architecture": info.architecture,
        "metric": info.metric,
        "command": _without_files(info.command),
        "created_at": info.created_at,
        "seed": info.seed,
        "versions": _versions(winner),
        "threshold": "none" if winner.threshold is None else info.limits_text(_objective(winner)),
        "is_feasible": winner.threshold is not None or run.objective.is_feasible(trial),
        "time_ms": _number(trial.time_ms),
        "error": _number(trial.error),
        "errors": _errors(winner),
        "is_error_reused": trial.measurement.reused_error,
        "verified": _verified(winner),
        "unverified": run.state.unverified,
        "doubts": run.doubts_about(trial),
        "speedup": run.speedup_text(trial),
        "baseline": None if run.baseline is None else str(run.baseline.configuration),
        "baseline_types": _baseline_types(run),
        "baseline_ms": None if run.baseline is None else _number(run.baseline.time_ms),
        "baseline_error": "unknown" if run.baseline is None else _number(run.baseline.error),
        "warnings": [warning for warning in run.warnings_about(trial) if warning not in run.doubts_about(trial)],
        "remarks": remarks(run.info, winner.kernel),
        "changed": " and the ".join(edited(run.info, winner.kernel)),
    }


def _verified(winner: Winner) -> str:
    """Say what unseen inputs said of the configuration; empty if it has seen none."""
    run, trial = winner.run, winner.trial
    text = in_words(trial, _objective(winner), run.fallen_beside(trial))
    return text + run.why_fewer(trial) if text else ""


def _errors(winner: Winner) -> dict[str, tuple[str, str]]:
    """Return the errors beside that of the worst output, by what they are measured by, each with the baseline's."""
    info, baseline = winner.run.info, winner.run.baseline
    outputs = [f"error.{output.name}" for output in winner.kernel.outputs]
    names = [n for n in winner.trial.measurement.metrics if n.startswith("error.") and [n] != outputs]
    errors = {
        info.measured_by(name): (
            _number(winner.trial.metric(name)),
            "unknown" if baseline is None else _number(baseline.metric(name)),
        )
        for name in names
    }
    return {measure: error for measure, error in errors.items() if measure != info.metric}


def _versions(winner: Winner) -> dict[str, str]:
    """Return the versions the run recorded; of compilers only the one that compiled this configuration."""
    recorded = winner.run.info.versions
    chosen = build_of(winner.kernel, winner.configuration).compiler
    if not chosen:
        return dict(recorded)
    others = {n: v for n, v in recorded.items() if n not in ("compiler", *compilers_of(winner.kernel))}
    return {"compiler": recorded.get(chosen, chosen), **others}


def _without_files(command: str) -> str:
    """Return a command line without what says where results go and how they are shown."""
    try:
        words = iter(shlex.split(command))
    except ValueError:  # a run file may come from anyone
        return command
    kept = []
    for word in words:
        if word in ("-o", "--output"):
            next(words, None)
        elif word not in ("--resume", "--log", "--json") and not word.startswith(("--output=", "-o")):
            kept.append(word)
    return shlex.join(kept)


def _argument(winner: Winner, argument: Argument, values: Mapping[str, Any], free: Mapping[str, str]) -> dict[str, Any]:
    """Return an argument as the examples handle it; types in C++ are those of the source once it is included."""
    precision = winner.kernel.precision_of(argument, winner.configuration)
    dtype = np.dtype(argument.dtype) if precision is None else precision.dtype
    shape = winner.kernel.shape_of(argument, winner.sizes)
    elements = [f"({formula(axis, values, free)})" for axis in argument.shape]
    integer, role = str(argument.dtype), argument.role
    is_scratch = role is Role.OUT and not argument.is_output
    return {
        "name": argument.name,
        "role": "scratch" if is_scratch else role.value,
        "partner": winner.kernel.partners.get(argument.name, argument.name),
        # As it is stored: the type, in C++, and a NumPy type of as many bytes.
        "type": integer if precision is None else precision.name,
        "cpp": _INTEGERS[integer] if precision is None else precision.cpp,
        "numpy": dtype.name if dtype.kind in "iu" or dtype.name in _NUMPY else f"uint{8 * dtype.itemsize}",
        "itemsize": dtype.itemsize,
        # How many there are, as C++ over sizes, and at the run's sizes.
        "elements": " * ".join(elements) or "1",
        "count": math.prod(shape),
        "shape": shape,
        # The file examples keep it in, and the types there.
        "file": f"{argument.name}.{'f64' if precision is not None else f'{dtype.kind}{8 * dtype.itemsize}'}",
        "file_cpp": _INTEGERS[integer] if precision is None else "double",
        "file_numpy": integer if precision is None else "float64",
        "size": argument.name if (is_size := role is Role.SCALAR and argument.name in winner.sizes) else "",
        "is_constant": argument.is_constant,
        "is_scalar": role is Role.SCALAR,
        "is_input": role is not Role.OUT and not is_size,
        "is_output": argument.is_output,
    }


#: The floating-point types NumPy and CuPy themselves have.
_NUMPY: Final = ("float64", "float32", "float16")


def _objective(winner: Winner) -> Objective:
    """Return the objective of the run, with the threshold the winner was chosen by."""
    objective = winner.run.info.objective
    return objective if winner.threshold is None else dataclasses.replace(objective, threshold=winner.threshold)


def _number(value: float, digits: int = 6) -> str:
    return f"{value:.{digits}g}" if math.isfinite(value) else "unknown"


#: Where a rendered source says which line of the template follows; in a file of its own, lines have its numbers.
_LINE: Final = re.compile(r'^#line 1 "([^"\n]*)"$', re.MULTILINE)
#: g++ ignores this pragma, and warns of it in a way that nothing in a file can turn off.
_UNROLL: Final = re.compile(r"^[ \t]*#[ \t]*pragma unroll\b.*$", re.MULTILINE)
_BUT_FOR_GXX: Final = r"#if !defined(TUNED_GXX)\n\g<0>\n#endif"
_SLUG: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Emission:
    """What was written: the names of the files in a folder, and the trial they are of.

    The threshold is the one the trial satisfies, None where it was asked for by name or the run has none; the speedup
    is over the run's baseline, NaN if that is not known, its interval None.
    """

    kernel: str
    trial: Trial
    threshold: float | Mapping[str, float] | None
    speedup: float
    speedup_interval: tuple[float, float] | None
    speedup_text: str
    folder: Path
    files: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document ``mptune emit --json`` prints; a number that is not known is None."""
        return json_document(
            {
                "kernel": self.kernel,
                "configuration": self.trial.configuration,
                "threshold": self.threshold,
                "time_ms": self.trial.time_ms,
                "speedup": self.speedup,
                "speedup_interval": self.speedup_interval,
                "error": self.trial.error,
                "output": str(self.folder),
                "files": self.files,
            }
        )


def winner_of(
    run: Run,
    *,
    max_error: float | Mapping[str, float] | None = None,
    configuration: str = "",
    kernel: Kernel | str | Path | None = None,
) -> Winner | None:
    """Return the trial of a run to emit as :func:`~mptune.emit.winner.select` does, None if none is feasible.

    Args:
        run: the run.
        max_error: a threshold instead of the run's own.
        configuration: which trial instead of the best.
        kernel: the definition, unless it is a bundled kernel.

    Raises:
        MptuneError: the kernel is not found or has changed, it has sizes that come from the data, or no trial or
            several match.
    """
    # What may differ from the run stands in what is emitted.
    definition = kernel_of_run(run.info, kernel, on_warning=lambda _: None)
    if definition.data_sizes:
        raise KernelError(
            f"{definition.called}: {', '.join(definition.data_sizes)} comes from the data (data_sizes=), and what is "
            "emitted has fixed sizes: mptune.TunedKernel calls such a kernel, mptune render prints its source"
        )
    sizes = sizes_of(run, definition)
    trial = select(run, max_error=max_error, configuration=configuration, kernel=definition)
    if trial is None:
        return None
    own = run.objective if max_error is None else run.objective_within(max_error)
    threshold = None if configuration else own.threshold
    return Winner(run, definition, sizes, trial, threshold)


def emit(winner: Winner, folder: str | Path, *, name: str = "") -> Emission:
    """Write source, header, examples and README of a winner; files emitted before are replaced.

    Args:
        winner: what to write.
        folder: where; made if need be.
        name: what the files and the C++ names begin with; ``tuned_`` and the kernel's name where empty.

    Raises:
        MptuneError: a file of that name exists and was not emitted, or cannot be written, or the configuration
            cannot be rendered.
    """
    name = name or f"tuned_{winner.kernel.name}"
    values = describe(winner, name)
    values["source"] = _UNROLL.sub(_BUT_FOR_GXX, _LINE.sub(r"// ---- \1 ----", winner.source))
    values["conversions"] = tuple(dict.fromkeys((a["cpp"], a["file_cpp"]) for a in values["arguments"]))
    texts = {
        f"{name}.cu": fill("source.cu", values),
        f"{name}.hpp": fill("header.hpp", values),
        f"{name}_host.cpp": fill("host.cpp", values),
        f"{name}_cuda.cu": fill("gpu.cu", {**values, "api": "cuda", "target": _target(winner, "cuda")}),
        f"{name}_hip.hip": fill("gpu.cu", {**values, "api": "hip", "target": _target(winner, "hip")}),
        f"{name}_cupy.py": fill("cupy.py", values),
        "README.md": fill("README.md", values),
    }
    write_files(Path(folder), texts)
    run, trial = winner.run, winner.trial
    return Emission(
        winner.kernel.name,
        trial,
        winner.threshold,
        run.speedup(trial),
        run.speedup_interval(trial),
        run.speedup_text(trial),
        Path(folder),
        tuple(texts),
    )


def emit_all_devices(winners: Sequence[Winner], folder: str | Path) -> tuple[Emission, ...]:
    """Write the winners of one kernel on several devices, and a header that selects by device.

    Each winner has a folder of its own in ``folder``, which holds the header.

    Raises:
        MptuneError: they are of different kernels or sizes, or two are of one device.
    """
    first = winners[0]
    by_slug: dict[str, Winner] = {}
    for winner in winners:
        if winner.kernel.name != first.kernel.name:
            raise MptuneError(f"runs of kernels {first.kernel.name} and {winner.kernel.name} cannot share a header")
        if dict(winner.sizes) != dict(first.sizes):
            raise MptuneError(
                f"runs at sizes {first.sizes} and {winner.sizes} cannot share a header: tune both at the same sizes"
            )
        slug = _SLUG.sub("_", winner.run.info.device.lower()).strip("_")[:60] or "device"
        if slug in by_slug:
            raise MptuneError(f"two runs are of device {winner.run.info.device!r}: give one for each device")
        by_slug[slug] = winner
    name = f"tuned_{first.kernel.name}"
    names = {slug: f"{name}_{slug}" for slug in by_slug}
    variants = [{**describe(winner, names[slug]), "slug": slug} for slug, winner in by_slug.items()]
    values = {**describe(first, name), "variants": variants}
    target = Path(folder)
    write_files(target, {f"{name}.hpp": fill("devices.hpp", values)})
    return tuple(emit(winner, target / slug, name=names[slug]) for slug, winner in by_slug.items())


def _target(winner: Winner, backend: str) -> str:
    """Return the architecture to compile for; the comment it goes into is a command that will be pasted."""
    info = winner.run.info
    return info.architecture if info.backend == backend and re.fullmatch(r"\w+", info.architecture) else "native"


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files, unless one would replace a file that was not emitted.

    Raises:
        MptuneError: one would, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in texts:
            path = folder / name
            if path.exists() and MARK.encode() not in path.read_bytes():
                raise MptuneError(
                    f"{path} exists and was not written by mptune emit: give another folder, or move it away"
                )
        for name, text in texts.items():
            write_whole(folder / name, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise MptuneError(f"cannot write to {folder}: {error.strerror or error}") from error
