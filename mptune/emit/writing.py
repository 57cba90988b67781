"""Writing a tuned kernel as files that need no mptune."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mptune import __version__
from mptune.backends.opencl import OpenclBackend
from mptune.backends.opencl_dialect import as_opencl
from mptune.cpp.prelude import prelude
from mptune.emit.application import emit_application
from mptune.emit.common import (
    MARK,
    Emission,
    as_a_file,
    compile_commands,
    given_flags,
    measured,
    write_files,
)
from mptune.emit.sizes import free_sizes
from mptune.emit.text import fill, identifier
from mptune.emit.variants import Launch, variant_of
from mptune.emit.winner import Winner, select
from mptune.errors import MptuneError
from mptune.kernel import Application, Kernel, Tunable
from mptune.run import Run
from mptune.source.flags import build_of
from mptune.source.loading import sizes_of, tunable_of_run
from mptune.source.render import render


def describe(winner: Winner[Kernel], name: str) -> dict[str, Any]:
    """Return the values of the files of a winner; file names and C++ names begin with ``name``."""
    kernel, configuration, sizes = winner.kernel, winner.configuration, winner.sizes
    free = free_sizes(kernel, configuration, sizes)
    return {
        **variant_of(Launch(kernel, configuration, sizes, free), name, lambda size: f"sizes.{identifier(size)}"),
        "mark": f"{MARK} {__version__}",
        "application": "",
        "name": name,
        "description": kernel.description,
        "parameters": [{"name": n, "value": value} for n, value in configuration.items()],
        "sizes": [{"name": n, "value": value, "is_fixed": n not in free} for n, value in sizes.items()],
        "given": given_flags(winner.run.info),
        **measured(winner),
    }


def winner_of(
    run: Run,
    *,
    max_error: float | Mapping[str, float] | None = None,
    configuration: str = "",
    kernel: Tunable | str | Path | None = None,
) -> Winner[Any] | None:
    """Return the trial of a run to emit (:func:`~mptune.emit.winner.select`); None if no trial is feasible.

    Args:
        run: the run.
        max_error: a threshold instead of the run's own.
        configuration: a trial instead of the best.
        kernel: the definition, unless it is a bundled kernel or application.
    """
    # The emitted README has the remarks.
    definition = tunable_of_run(run.info, kernel, on_warning=lambda _: None)
    sizes = sizes_of(run.info, definition)
    trial = select(run, max_error=max_error, configuration=configuration, kernel=definition)
    if trial is None:
        return None
    objective = run.objective if max_error is None else run.objective_within(max_error)
    return Winner(run, definition, sizes, trial, objective.threshold)


def emit(winner: Winner[Any], folder: str | Path, *, name: str = "") -> Emission:
    """Write source, header, examples and README of a winner; files emitted before are replaced.

    Of an application, which is run for that (:func:`~mptune.emit.application.emit_application`), it is all kernels, a
    library of them, and a program in Python.

    Args:
        winner: what to write.
        folder: where; made if need be.
        name: what the files and the C++ names begin with; ``tuned_`` and the kernel's name where empty.
    """
    name = name or f"tuned_{winner.kernel.name}"
    if isinstance(winner.kernel, Application):
        return emit_application(winner, Path(folder), name)
    values = describe(winner, name)
    source = render(winner.kernel, winner.configuration, winner.sizes)
    values["source"] = as_a_file(source)
    values["conversions"] = tuple(dict.fromkeys((a["cpp"], a["file_cpp"]) for a in values["arguments"]))
    commands = compile_commands(winner, build_of(winner.kernel, winner.configuration))
    files = {"host": f"{name}_host.cpp", "cuda": f"{name}_cuda.cu", "hip": f"{name}_hip.hip"}
    texts = {f"{name}.cu": fill("source.cu", values), f"{name}.hpp": fill("header.hpp", values)}
    for api, file in files.items():
        texts[file] = fill("program.cpp", {**values, "api": api, "file": file, "command": commands[api]})
    texts |= {f"{name}_cupy.py": fill("cupy.py", values), "README.md": fill("README.md", values)}
    if winner.run.info.backend == OpenclBackend.name:
        texts |= _opencl_files(winner, name, source, values)
    write_files(Path(folder), texts)
    return Emission(winner, Path(folder), tuple(texts))


def emit_all_devices(winners: Sequence[Winner[Any]], folder: str | Path) -> tuple[Emission, ...]:
    """Write the winners of one kernel on several devices, and a header that selects by device.

    Each winner has a folder of its own in ``folder``, which holds the header.
    """
    first = winners[0]
    by_slug: dict[str, Winner[Any]] = {}
    for winner in winners:
        if isinstance(winner.kernel, Application):
            raise MptuneError(f"{winner.kernel.called}: a header that selects by device is for single kernels")
        if winner.kernel.name != first.kernel.name:
            raise MptuneError(f"runs of kernels {first.kernel.name} and {winner.kernel.name} cannot share a header")
        if dict(winner.sizes) != dict(first.sizes):
            raise MptuneError(
                f"runs at sizes {first.sizes} and {winner.sizes} cannot share a header: tune both at the same sizes"
            )
        slug = re.sub(r"[^a-z0-9]+", "_", winner.run.info.device.lower()).strip("_")[:60] or "device"
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


def _opencl_files(winner: Winner[Kernel], name: str, source: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the OpenCL source and a program that runs it; ``values`` are those of the other files."""
    passed = [argument["name"] for argument in values["arguments"] if not argument["is_constant"]]
    more = {
        "source": as_a_file(as_opencl(f"{source}\n{fill('conversions.cu', values)}")),
        "places": {argument: place for place, argument in enumerate(passed)},
        "has_dynamic": "SHARED_DYNAMIC" in source.removeprefix(prelude()),
        "flags": " ".join(part for part in winner.run.info.compiler.split("|") if part.startswith("-")),
    }
    return {
        f"{name}.cl": fill("source.cl", {**values, **more}),
        f"{name}_opencl.cpp": fill("opencl.cpp", {**values, **more, "api": "opencl"}),
    }
