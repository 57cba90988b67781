"""Command lines a reader pastes into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mptune.registry import bundled_kernels
from mptune.run import Run

__all__ = ["emit_command", "render_command", "tune_command"]


def tune_command(run: Run) -> tuple[str, bool]:
    """Return the command that makes the run again, and whether it is the one that made it.

    A run made from Python has none; its settings give one that does the same, but for compiler flags and limits of
    time, which a run file does not hold.
    """
    info, objective, kernel = run.info, run.info.objective, _kernel(run)
    if info.command:
        return info.command, True
    if not kernel or not info.strategy:
        return "", False
    words = ["mptune", "tune", kernel, *_sizes(run)]
    options = {"backend": info.backend or None, "strategy": info.strategy, "budget": info.budget, "seed": info.seed}
    for name, value in {**options, "penalty": objective.penalty}.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    words += [word for text in _limits(objective.threshold) for word in ("--max-error", text)]
    if objective.metric != "time_ms":
        words += ["--objective", objective.metric, *(() if objective.minimise else ("--maximise",))]
    words += [word for text in objective.constraints for word in ("--constraint", text)]
    words += [word for text in _pairs(info.strategy_options) for word in ("--strategy-option", text)]
    return shlex.join(words), False


def render_command(run: Run) -> str:
    """Return the command that prints the source of a configuration, but for its values; empty where there is none."""
    kernel = _kernel(run)
    return shlex.join(["mptune", "render", kernel, "--body", *_sizes(run)]) if kernel else ""


def emit_command(run: Run, file: str) -> str:
    """Return the command that takes a trial home, but for its number; empty where the run is from no file."""
    kernel = _kernel(run)
    if not file or not kernel:
        return ""
    given = () if kernel == run.kernel else ("--kernel", kernel)
    return shlex.join(["mptune", "emit", file, *given, "--configuration"])


def _kernel(run: Run) -> str:
    """Return what names the kernel on the command line, nothing where that is not known."""
    path = run.info.kernel_path
    if run.kernel in bundled_kernels() and (path is None or Path(path).parent.name == "kernels"):
        return run.kernel
    return path or ""


def _sizes(run: Run) -> list[str]:
    return [word for text in _pairs(run.info.sizes) for word in ("--size", text)]


def _limits(threshold: float | Mapping[str, float] | None) -> Iterator[str]:
    if isinstance(threshold, Mapping):
        yield from _pairs(threshold)
    elif threshold is not None:
        yield str(threshold)


def _pairs(values: Mapping[str, Any]) -> Iterator[str]:
    return (f"{name}={value}" for name, value in values.items())
