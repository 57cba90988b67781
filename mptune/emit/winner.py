"""Which trial of a run is emitted, and the kernel it is of, loaded only from where its user put it."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mptune import __version__
from mptune.build import COMPILER, FLAGS, with_build
from mptune.errors import KernelError, MptuneError, RunFileError, UnknownNameError
from mptune.folders import bundled_folder
from mptune.kernel import Kernel, LaunchShape, Sizes
from mptune.registry import bundled_kernels, load_kernel
from mptune.rendering import render
from mptune.results import Trial
from mptune.run import Run
from mptune.space.configuration import Configuration, Value

__all__ = ["Winner", "kernel_of", "remarks", "select", "sizes_of"]


def kernel_of(run: Run, kernel: Kernel | str | Path | None = None) -> Kernel:
    """Return the kernel of a run.

    A definition file is code. A run file may come from anyone, so what it names is loaded only where it is a bundled
    kernel or lies in the current folder; any other definition has to be given as ``kernel``.

    Raises:
        KernelError: the definition is not found, or is not the one the run was made with.
        UnknownNameError: no bundled kernel has the name given.
    """
    found = kernel if isinstance(kernel, Kernel) else load_kernel(_recorded(run) if kernel is None else kernel)
    build = {p.name: [str(value) for value in p.values] for p in run.info.parameters if p.kind == "build"}
    if build:
        found = with_build(found, build.get(COMPILER, ()), build.get(FLAGS, ()))
    _check(run, found)
    return found


def sizes_of(run: Run, kernel: Kernel) -> Sizes:
    """Return the sizes a run was made at.

    Raises:
        RunFileError: the run does not say.
        KernelError: they are not the kernel's.
    """
    recorded, expected = run.info.sizes, kernel.sizes["default"]
    if expected and not recorded:
        raise RunFileError(f"the run of {run.kernel} does not say its sizes: it was not written to its end")
    missing = [name for name in expected if name not in recorded]
    if missing:
        raise KernelError(
            f"kernel {kernel.name} has the size {missing[0]}, which the run does not: it has changed since"
        )
    return kernel.resolve_sizes("default", recorded)


def remarks(run: Run, kernel: Kernel) -> tuple[str, ...]:
    """Say why the source of a configuration may not be what the run measured: something is newer than the run."""
    found = []
    version = run.info.mptune_version or __version__
    if version != __version__:
        found.append(f"the run was made with mptune {version}, this is {__version__}: the source may differ")
    try:
        begun_s = datetime.datetime.fromisoformat(run.info.created_at).timestamp()
    except ValueError:
        return tuple(found)
    newer = [path.name for path in _files(kernel) if path.is_file() and path.stat().st_mtime > begun_s]
    if newer:
        found.append(
            f"{' and '.join(newer)} {'was' if len(newer) == 1 else 'were'} edited after this run. If that changed the "
            "kernel, the times and errors shown belong to the old one."
        )
    return tuple(found)


def _files(kernel: Kernel) -> tuple[Path, ...]:
    if kernel.path is None:
        return ()
    folder, template = kernel.path.parent, kernel.template
    if template is not None:
        return (kernel.path,) if "\n" in str(template) else (kernel.path, folder / template)
    name = f"{kernel.path.stem}.cu.j2"
    return kernel.path, folder.parent / "templates" / name, folder / name


def _recorded(run: Run) -> str | Path:
    name, recorded = run.kernel, run.info.kernel_path
    bundled = bundled_folder("kernels") / f"{name}.py"
    if recorded is None:
        if name in bundled_kernels():
            return name
        raise KernelError(f"the run of {name} does not say where the kernel is defined: give its definition")
    path = Path(recorded)
    elsewhere = not path.exists() and path.name == bundled.name and path.parent.name == "kernels"
    if path == bundled or (elsewhere and bundled.is_file()):
        return name
    if path.is_file() and path.resolve().is_relative_to(Path.cwd().resolve()):
        return path
    where = "which lies outside the current folder" if path.is_file() else "which is not here"
    raise KernelError(
        f"the run of {name} names {recorded} as its definition, {where}; if it is to be run as code, give it: "
        f"--kernel {recorded}"
    )


def _check(run: Run, kernel: Kernel) -> None:
    """Raise KernelError unless name and parameters are those of the run."""
    if run.kernel != kernel.name:
        raise KernelError(f"the run is of kernel {run.kernel!r}, not of {kernel.name!r}")
    if not run.info.parameters:
        return
    ours = {parameter.name: parameter.values for parameter in kernel.parameters}
    theirs = {parameter.name: parameter.values for parameter in run.info.parameters}
    for name in dict.fromkeys((*theirs, *ours)):
        if ours.get(name) != theirs.get(name):
            raise KernelError(
                f"kernel {kernel.name} has changed since the run: parameter {name!r} had {_said(theirs.get(name))} "
                f"and has {_said(ours.get(name))}"
            )


def _said(values: tuple[Value, ...] | None) -> str:
    return "no values" if values is None else f"the values {json.dumps(values)[:200]}"


#: A comma that separates assignments is inside no brackets.
_COMMA = re.compile(r",(?![^(\[]*[)\]])")
_SHORTEST_KEY = 8


@dataclass(frozen=True, slots=True)
class Winner:
    """A trial of a run with what it takes to launch it: the kernel's definition, and the sizes the run was made at.

    The threshold is the one the trial satisfies, None for a configuration that was asked for by name.
    """

    run: Run
    kernel: Kernel
    sizes: Sizes
    trial: Trial
    threshold: float | Mapping[str, float] | None

    @property
    def configuration(self) -> Configuration:
        """What was measured."""
        return self.trial.configuration

    @property
    def shape(self) -> LaunchShape:
        """Grid, block and dynamic shared memory at the run's sizes."""
        return self.kernel.launch_shape(self.configuration, self.sizes)

    @property
    def source(self) -> str:
        """What was compiled, prelude and all."""
        return render(self.kernel, self.configuration, self.sizes)


def select(
    run: Run, *, max_error: float | Mapping[str, float] | None = None, configuration: str = "", kernel: Kernel
) -> Trial | None:
    """Return the best feasible trial, or the one that was asked for; None if no trial is feasible.

    Args:
        run: the run.
        max_error: a threshold instead of the run's own.
        configuration: which trial: its number in order of evaluation from 1, the beginning of its key, or enough
            ``NAME=VALUE`` by commas that no other valid trial has them all.
        kernel: the definition, whose parameters the values are of.

    Raises:
        MptuneError: both are given, or no valid trial or several are meant.
        UnknownNameError: no parameter has a name given, or no such value.
    """
    if configuration:
        if max_error is not None:
            raise MptuneError("give a configuration or a maximal error, not both")
        trial = _named(run, configuration.strip(), kernel)
        if not trial.is_valid:
            raise MptuneError(f"configuration {trial.configuration} did not run: {trial.status.value}, {trial.message}")
        return trial
    if max_error is None:
        return run.best
    return dataclasses.replace(run.objective, threshold=max_error).best(run.trials)


def _named(run: Run, text: str, kernel: Kernel) -> Trial:
    if "=" in text:
        return _with_values(run, text, kernel)
    if text.isdecimal() and len(text) < _SHORTEST_KEY:
        if not 1 <= int(text) <= len(run.trials):
            raise MptuneError(f"configuration {text}: the run has the trials 1 to {len(run.trials)}")
        return run.trials[int(text) - 1]
    found = [trial for trial in run.trials if len(text) >= _SHORTEST_KEY and trial.key.startswith(text.lower())]
    if len(found) != 1:
        raise MptuneError(
            f"configuration {text!r}: expected a trial's number from 1 to {len(run.trials)}, {_SHORTEST_KEY} or more "
            f"digits a key begins with, or NAME=VALUE by commas ({len(found)} keys begin so)"
        )
    return found[0]


def _with_values(run: Run, text: str, kernel: Kernel) -> Trial:
    by_name = {parameter.name: parameter for parameter in kernel.parameters}
    wanted = {}
    for part in _COMMA.split(text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name in wanted:
            raise MptuneError(f"configuration {text!r}: expected NAME=VALUE by commas, each name once, not {part!r}")
        if name not in by_name:
            raise UnknownNameError(f"parameter of kernel {kernel.name}:", name, by_name)
        wanted[name] = by_name[name].parse(value)
    agreeing = [t for t in run.trials if all(t.configuration.get(name) == value for name, value in wanted.items())]
    found = [trial for trial in agreeing if trial.is_valid] or agreeing
    if len(found) != 1:
        few = "; ".join(str(trial.configuration) for trial in found[:3])
        raise MptuneError(f"configuration {text!r}: {len(found)} trials have these values{': ' if few else ''}{few}")
    return found[0]
