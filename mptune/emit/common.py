"""The parts that all emitted files share: measurements, compile commands and writing."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mptune.backends import BACKENDS, get_backend
from mptune.backends.base import Recorded, options_of
from mptune.backends.host_compiler import LLVM_FLAGS, ROUNDS, X86_FLAGS
from mptune.emit.winner import Winner
from mptune.errors import MptuneError
from mptune.paths import write_whole
from mptune.results.description import comparison, result_text, why_fewer
from mptune.results.objective import Objective
from mptune.results.unseen import in_words
from mptune.run import Run, json_document
from mptune.source.flags import Build, build_of, compilers_of
from mptune.source.loading import edited, remarks

#: Mark of every emitted file.
MARK: Final = "Emitted by mptune"
#: Flags of the host backend that can change the numbers, without the architecture.
_HOST_FLAGS: Final = " ".join((*X86_FLAGS, "-ffp-contract=fast -fno-math-errno -fno-trapping-math", ROUNDS))
#: Further flags of g++, for speed.
_GCC_FLAGS: Final = (
    "-fno-tree-loop-distribute-patterns --param=max-unswitch-insns=16000 --param=logical-op-non-short-circuit=0"
)

#: References of a rendered source to lines of the template, which are dropped in an emitted file.
_LINE: Final = re.compile(r'^#line 1 "([^"\n]*)"$', re.MULTILINE)
#: A pragma that g++ ignores with a warning that no file can turn off.
_UNROLL: Final = re.compile(r"^[ \t]*#[ \t]*pragma unroll\b.*$", re.MULTILINE)
_BUT_FOR_GXX: Final = r"#if !defined(TUNED_GXX)\n\g<0>\n#endif"


@dataclass(frozen=True, slots=True)
class Emission:
    """The files written for a winner: their names in a folder."""

    winner: Winner[Any]
    folder: Path
    files: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document that ``mptune emit --json`` prints; unknown numbers are None."""
        run, trial = self.winner.run, self.winner.trial
        return json_document(
            {
                "kernel": self.winner.kernel.name,
                "configuration": trial.configuration,
                "threshold": self.winner.threshold,
                "time_ms": trial.time_ms,
                "speedup": run.speedup(trial),
                "speedup_interval": run.speedup_interval(trial),
                "error": trial.error,
                "output": str(self.folder),
                "files": self.files,
            }
        )


def _baseline_types(run: Run) -> str:
    fixed = run.info.baseline_values or {}
    types = {p.name: str(fixed[p.name][0]) for p in run.info.parameters if p.kind == "precision" and p.name in fixed}
    if set(types.values()) <= {"fp64"}:
        return "fp64 everywhere"
    return f"the widest types there are: {', '.join(f'{name} {kind}' for name, kind in types.items())}"


def measured(winner: Winner[Any]) -> dict[str, Any]:
    """Return the facts of the run and the trial for the README."""
    run, trial, info = winner.run, winner.trial, winner.run.info
    objective, doubts = objective_of(winner), run.doubts_about(trial)
    baseline = {} if run.baseline is None else {"baseline": run.baseline}
    versions = dict(info.versions)
    if chosen := build_of(winner.kernel, winner.configuration).compiler:
        # Without the compilers that did not compile this configuration.
        others = {n: v for n, v in versions.items() if n not in ("compiler", *compilers_of(winner.kernel))}
        versions = {"compiler": versions.get(chosen, chosen), **others}
    return {
        "backend": info.backend,
        "on_processor": info.backend in BACKENDS and get_backend(info.backend).shares_memory,
        "is_own_time": not info.is_of_application and info.backend in BACKENDS and BACKENDS[info.backend].has_own_time,
        "device": info.device,
        "architecture": info.architecture,
        "metric": info.metric,
        "command": info.command,
        "compiled_with": " ".join(info.flags),
        "created_at": info.created_at,
        "seed": info.seed,
        "versions": versions,
        "threshold": info.limits_text(objective) or "none",
        "is_feasible": objective.is_feasible(trial),
        "verified": in_words(trial, objective) and in_words(trial, objective) + why_fewer(run, trial),
        "unverified": run.state.unverified,
        "doubts": doubts,
        "result": result_text(run, trial),
        "comparison": comparison(run, {"this configuration": trial} | baseline),
        "baseline": None if run.baseline is None else str(run.baseline.configuration),
        "baseline_types": _baseline_types(run),
        "warnings": [each for each in dict.fromkeys((*run.state.warnings, *trial.warnings)) if each not in doubts],
        "remarks": [*remarks(run.info, winner.kernel), *filter(None, [run.ending])],
        "changed": " and the ".join(edited(run.info, winner.kernel)),
    }


def objective_of(winner: Winner[Any]) -> Objective:
    """Return the objective of the run with the threshold of the winner."""
    return dataclasses.replace(winner.run.info.objective, threshold=winner.threshold)


def host_command(build: Build, identity: str, given: Sequence[str]) -> str:
    """Return the command that compiles for the host as in the measurements, without the files.

    Args:
        build: compiler and flags of the configuration.
        identity: the run's compiler as text, with its target architecture.
        given: the user's flags.
    """
    compiler = build.compiler or ("zig" if "|ziglang|" in identity else "g++")
    target = re.search(r"(?:^|\|)-march=([\w.+-]+)", identity)
    flags = f"-std=c++17 -O3 -march={target[1] if target else 'native'} {_HOST_FLAGS}"
    command = "python3 -m ziglang c++" if compiler == "zig" else compiler
    own = _GCC_FLAGS if compiler.startswith("g++") else " ".join(LLVM_FLAGS)
    parts = (command, flags, own, *given, *build.flags)
    # One line: a backslash at the end of a comment would continue it.
    return " ".join(part for part in parts if part)


def given_flags(known: Recorded) -> dict[str, tuple[str, ...]]:
    """Return the user's compiler flags for each backend."""
    return {backend: options_of(known, backend).flags for backend in ("host", "cuda", "hip")}


def as_a_file(source: str) -> str:
    """Return a rendered source that compiles without warnings; ``TUNED_GXX`` must be defined for g++."""
    return _UNROLL.sub(_BUT_FOR_GXX, _LINE.sub(r"// ---- \1 ----", source))


def compile_commands(winner: Winner[Any], build: Build) -> dict[str, str]:
    """Return the compile command of each backend, without the files."""
    info, given = winner.run.info, given_flags(winner.run.info)

    def target(backend: str) -> str:
        return info.architecture if info.backend == backend and re.fullmatch(r"\w+", info.architecture) else "native"

    return {
        "host": host_command(build, info.compiler, given["host"]),
        "cuda": " ".join(("nvcc -std=c++17 -O3", f"-arch={target('cuda')}", *given["cuda"])),
        "hip": " ".join(("hipcc -std=c++17 -O3", f"--offload-arch={target('hip')}", *given["hip"])),
    }


def was_emitted(path: Path) -> bool:
    """Whether a file was emitted, and may be replaced."""
    return MARK.encode() in path.read_bytes()


def write_files(folder: Path, texts: Mapping[str, str | bytes]) -> None:
    """Write files; a file that was not emitted is not replaced."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path = folder / name
            if path.exists() and not was_emitted(path) and path.read_bytes() != text:
                raise MptuneError(
                    f"{path} exists and was not written by mptune emit: give another folder, or move it away"
                )
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_whole(folder / name, text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise MptuneError(f"cannot write to {folder}: {error.strerror or error}") from error
