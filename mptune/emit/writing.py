"""Writing what a user needs to use a tuned kernel without mptune."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mptune.emit.definition import kernel_of, sizes_of
from mptune.emit.description import MARK, describe
from mptune.emit.selection import Winner, select
from mptune.emit.text import fill
from mptune.errors import MptuneError
from mptune.kernel import Kernel
from mptune.results import Trial
from mptune.run import Run, json_safe

__all__ = ["Emission", "emit", "emit_all_devices", "winner_of"]

#: Where a rendered source says which line of the template follows; in a file of its own, lines have its numbers.
_LINE: Final = re.compile(r'^#line 1 "([^"\n]*)"$', re.MULTILINE)
_SLUG: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Emission:
    """What was written.

    Attributes:
        kernel: name of the kernel.
        trial: the trial the files are of.
        threshold: the threshold it satisfies, None where it was asked for by name or the run has none.
        speedup: over the run's baseline, NaN where that is not known.
        folder: where the files are.
        files: their names.
    """

    kernel: str
    trial: Trial
    threshold: float | Mapping[str, float] | None
    speedup: float
    folder: Path
    files: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document ``mptune emit --json`` prints; a number that is not known is None."""
        document = {
            "kernel": self.kernel,
            "configuration": self.trial.configuration,
            "threshold": self.threshold,
            "time_ms": self.trial.time_ms,
            "speedup": self.speedup,
            "error": self.trial.error,
            "output": str(self.folder),
            "files": self.files,
        }
        safe: dict[str, Any] = json_safe(document)
        return safe


def winner_of(
    run: Run,
    *,
    max_error: float | Mapping[str, float] | None = None,
    configuration: str = "",
    kernel: Kernel | str | Path | None = None,
) -> Winner | None:
    """Return the trial of a run that is taken home, None where none is feasible.

    Args:
        run: the run.
        max_error: a threshold instead of the run's own.
        configuration: which trial instead of the best; see :func:`~mptune.emit.selection.select`.
        kernel: the definition, where it is not a bundled kernel or a file in the current folder.

    Raises:
        MptuneError: the kernel is not to be found or has changed, or no trial, or several, are meant.
    """
    definition = kernel_of(run, kernel)
    sizes = sizes_of(run, definition)
    trial = select(run, max_error=max_error, configuration=configuration, kernel=definition)
    if trial is None:
        return None
    threshold = None if configuration else run.objective.threshold if max_error is None else max_error
    return Winner(run, definition, sizes, trial, threshold)


def emit(winner: Winner, folder: str | Path, *, name: str = "") -> Emission:
    """Write source, header, examples and README of a winner; files emitted before are replaced.

    Args:
        winner: what to write.
        folder: where; made if need be.
        name: what the files and the C++ names begin with; ``tuned_`` and the kernel's name where empty.

    Raises:
        MptuneError: a file of that name is there and was not emitted, or cannot be written, or the configuration
            cannot be rendered.
    """
    name = name or f"tuned_{winner.kernel.name}"
    values = describe(winner, name)
    values["source"] = _LINE.sub(r"// ---- \1 ----", winner.source)
    values["conversions"] = tuple(dict.fromkeys((a.cpp, a.file_cpp) for a in values["arguments"]))
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
    speedup = winner.run.speedup(winner.trial)
    return Emission(winner.kernel.name, winner.trial, winner.threshold, speedup, Path(folder), tuple(texts))


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
            raise MptuneError(f"runs of kernels {first.kernel.name} and {winner.kernel.name} have no header in common")
        if dict(winner.sizes) != dict(first.sizes):
            raise MptuneError(
                f"runs at sizes {first.sizes} and {winner.sizes} have no header in common: tune both at the same"
            )
        slug = _SLUG.sub("_", winner.run.info.device.lower()).strip("_")[:60] or "device"
        if slug in by_slug:
            raise MptuneError(f"two runs are of device {winner.run.info.device!r}: give one for each device")
        by_slug[slug] = winner
    name = f"tuned_{first.kernel.name}"
    names = {slug: f"{name}_{slug}" for slug in by_slug}
    variants = [
        {
            "slug": slug,
            "name": names[slug],
            "backend": winner.run.info.backend,
            "device": winner.run.info.device,
            "architecture": winner.run.info.architecture,
            "configuration": str(winner.configuration),
            "arguments": describe(winner, names[slug])["arguments"],
        }
        for slug, winner in by_slug.items()
    ]
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
                raise MptuneError(f"{path} is there and was not emitted: give another folder, or move it away")
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise MptuneError(f"cannot write to {folder}: {error.strerror or error}") from error
