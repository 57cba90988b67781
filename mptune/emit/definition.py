"""The kernel a run is of, loaded only from where its user put it."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

from mptune import __version__
from mptune.errors import KernelError, RunFileError
from mptune.folders import bundled_folder
from mptune.kernel import Kernel, Sizes
from mptune.registry import bundled_kernels, load_kernel
from mptune.run import Run
from mptune.space.configuration import Value

__all__ = ["kernel_of", "remarks", "sizes_of"]


def kernel_of(run: Run, kernel: Kernel | str | Path | None = None) -> Kernel:
    """Return the kernel of a run.

    A definition file is code. A run file may come from anyone, so what it names is loaded only where it is a bundled
    kernel or lies in the current folder; any other definition has to be given.

    Args:
        run: the run.
        kernel: the definition, where the run's own is not to be looked for.

    Raises:
        KernelError: the definition is not to be found, or not the one the run was made with.
        UnknownNameError: no bundled kernel has the name given.
    """
    found = kernel if isinstance(kernel, Kernel) else load_kernel(_recorded(run) if kernel is None else kernel)
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
        found.append(f"changed after the run began: {', '.join(newer)}; if the source differs, so do the numbers")
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
