"""Commands that need no run: ``list``, ``backends``, ``render`` and ``check``."""

from __future__ import annotations

import inspect
import json as json_format
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import mptune
from mptune.cli import options
from mptune.cli.display import counter, echo, number, print_error, print_json, print_note, table
from mptune.errors import BackendUnavailableError, EmptySpaceError, MptuneError
from mptune.folders import bundled_folder, cache_folder

if TYPE_CHECKING:
    from mptune.checking import CheckResult, Selection
    from mptune.kernel import Kernel

__all__ = ["backends", "check", "list_kernels", "render"]


@click.command("list")
@click.option("--strategies", is_flag=True, help="List the search strategies and their options instead.")
@click.option("--observers", is_flag=True, help="List what can be measured, and the metrics' names, instead.")
@options.as_json
def list_kernels(strategies: bool, observers: bool, json: bool) -> None:
    """List kernels, search strategies, or what can be measured."""
    if strategies and observers:
        raise MptuneError("--strategies and --observers exclude each other")
    if strategies:
        _list_strategies(json)
        return
    if observers:
        _list_observers(json)
        return
    rows = _kernel_rows()
    if json:
        print_json({"kernels": rows})
        return
    columns = ("kernel", "parameters", "configurations", "metric", "description")
    cells = [
        (
            row["kernel"],
            f"{len(row['parameters']) - len(row['signature'])} + {len(row['signature'])}",
            f"{row['configurations']:,}",
            row["metric"],
            row["description"],
        )
        for row in rows
    ]
    echo(table(columns, cells, right=("configurations",)))
    presets = dict.fromkeys(preset for row in rows for preset in row["sizes"])
    echo(
        "\nparameters: those that change only speed + those that can change the numbers; configurations: valid ones "
        f"at the default size; sizes: {', '.join(presets)}"
    )


def _kernel_rows() -> list[dict[str, Any]]:
    """Describe every kernel.

    Loading the kernels and counting their configurations takes several times as long as the rest of the command. What
    was found for the bundled ones is kept in mptune's cache, and holds until one of mptune's files changes.
    """
    from mptune.registry import bundled_kernels, load_kernel

    folder, stamp = cache_folder("list"), _stamp()
    file = folder / f"{stamp}.json" if folder is not None else None
    kept: dict[str, dict[str, Any]] = {}
    if file is not None:
        with suppress(OSError, ValueError):
            kept = json_format.loads(file.read_bytes())
    rows = {name: kept.get(name) or _describe(load_kernel(name)) for name in bundled_kernels()}
    if file is not None and not kept:
        own = {name: row for name, row in rows.items() if (bundled_folder("kernels") / f"{name}.py").is_file()}
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            for old in file.parent.glob("*.json"):
                old.unlink()
            new = file.with_suffix(f".{os.getpid()}")
            new.write_text(json_format.dumps(own))
            new.replace(file)
    return list(rows.values())


def _stamp() -> str:
    """Return a text that changes whenever a Python file of mptune does."""
    import hashlib

    digest = hashlib.sha256()
    for root in (Path(mptune.__file__).parent, bundled_folder("kernels")):
        for folder, _, names in os.walk(root):
            for name in sorted(names):
                if name.endswith(".py"):
                    path = f"{folder}/{name}"
                    status = os.stat(path)  # noqa: PTH116 - a few hundred Path objects take longer
                    digest.update(f"{path}:{status.st_mtime_ns}:{status.st_size};".encode())
    return digest.hexdigest()


def _describe(kernel: Kernel) -> dict[str, Any]:
    from mptune.accuracy.evaluate import metric_text

    return {
        "kernel": kernel.name,
        "description": kernel.description,
        "parameters": {p.name: list(p.values) for p in kernel.parameters},
        "signature": list(kernel.signature_names),
        "configurations": kernel.search_space(kernel.resolve_sizes()).size,
        "metric": metric_text(kernel.metric),
        "sizes": {preset: dict(sizes) for preset, sizes in kernel.sizes.items()},
    }


def _list_strategies(json: bool) -> None:
    from mptune.strategies import STRATEGIES

    documented = {name: (STRATEGIES[name], STRATEGIES[name].options_class.documented()) for name in STRATEGIES}
    if json:
        rows = [
            {
                "strategy": name,
                "description": _first_line(strategy),
                "several_objectives": strategy.optimises_several,
                "options": {option: {"default": default, "help": text} for option, (default, text) in settings.items()},
            }
            for name, (strategy, settings) in documented.items()
        ]
        print_json({"strategies": rows})
        return
    cells = []
    for name, (strategy, settings) in documented.items():
        several = " [several objectives]" if strategy.optimises_several else ""
        cells.append((name, "", _first_line(strategy) + several))
        cells += [(f"  {option}", str(default), text) for option, (default, text) in settings.items()]
    echo(table(("strategy", "default", "what it does"), cells))
    echo("\nchoose one with --strategy NAME, and its options with --strategy-option OPTION=VALUE")


def _list_observers(json: bool) -> None:
    from mptune.observers import OBSERVERS

    rows: list[dict[str, Any]] = [
        {
            "observer": name,
            "metrics": list(kind.metrics),
            "always_on": not kind.is_optional,
            "description": _first_line(sys.modules[kind.__module__]),
        }
        for name, kind in OBSERVERS.items()
    ]
    if json:
        print_json({"observers": rows})
        return
    cells = [
        (row["observer"], "always" if row["always_on"] else "", ", ".join(row["metrics"]), row["description"])
        for row in rows
    ]
    echo(table(("observer", "on", "metrics", "what it does"), cells))
    echo("\nswitch one on with --observe NAME; --objective and --constraint switch on those they need")


def _first_line(described: object) -> str:
    return (inspect.getdoc(described) or "").partition("\n")[0]


@click.command()
@options.as_json
def backends(json: bool) -> None:
    """Show what can compile and run here, and what is missing."""
    from mptune.backends import BACKENDS

    rows = [_availability(name) for name in BACKENDS]
    if json:
        print_json({"backends": rows})
        return
    columns = (
        "backend",
        "compiles",
        "runs",
        "device",
        "architecture",
        "memory",
        "limits",
        "versions / what is missing",
    )
    cells = [
        (
            row["backend"],
            "yes" if row["can_compile"] else "no",
            "yes" if row["can_run"] else "no",
            row["device"] or "-",
            row["architecture"] or "-",
            "-" if row["memory_bytes"] is None else f"{number(row['memory_bytes'] / 1e9)} GB",
            _limits(row["limits"]) or "-",
            row["reason"] or ", ".join(f"{k} {v}" for k, v in row["versions"].items()),
        )
        for row in rows
    ]
    echo(table(columns, cells))


def _limits(limits: Mapping[str, int]) -> str:
    """Return the limits that matter to a kernel's author; --json has all of them."""
    texts = {
        "max_threads_per_block": "{:,} threads per block",
        "warp_size": "{} threads per warp",
        "max_shared_bytes": "{:,} bytes shared",
        "registers_per_block": "{:,} registers",
        "multiprocessors": "{} multiprocessors",
        "workers": "{} cores",
        "cache_bytes": "{:,} bytes cache",
    }
    return ", ".join(text.format(limits[name]) for name, text in texts.items() if limits.get(name))


def _availability(name: str) -> dict[str, Any]:
    from mptune.backends import get_backend

    backend = get_backend(name)
    found = backend.availability()
    row: dict[str, Any] = {
        "backend": name,
        "can_compile": found.can_compile,
        "can_run": found.can_run,
        "reason": found.reason,
        "device": None,
        "architecture": None,
        "memory_bytes": None,
        "limits": {},
        "versions": {},
    }
    if found.can_run:
        try:
            device = backend.describe()
        except BackendUnavailableError as error:
            return row | {"can_run": False, "reason": str(error)}
        row |= {
            "device": device.name,
            "architecture": device.architecture,
            "memory_bytes": device.memory_bytes,
            "limits": dict(device.limits),
            "versions": dict(device.versions),
        }
    return row


@click.command()
@options.kernel_name
@click.option(
    "--parameter", "-p", metavar="NAME=VALUE", multiple=True, help="The value of a parameter. May be repeated."
)
@click.option("--backend", metavar="NAME", default="auto", help="Accepted, but all backends compile the same source.")
@options.size
@click.option("--body", is_flag=True, help="Leave out the prelude that every source starts with.")
def render(kernel: str, parameter: Sequence[str], backend: str, size: Sequence[str], body: bool) -> None:
    """Print the source of one configuration.

    The kernel is a bundled kernel's name or the file that defines one. A parameter that is not given gets its first
    value that is valid with the others.
    """
    from mptune.registry import load_kernel

    definition = load_kernel(kernel)
    read_by = None
    if backend != "auto":
        from mptune.backends import get_backend

        read_by = get_backend(backend)
    sizes = definition.resolve_sizes(*options.parse_sizes(definition, size))
    given = options.parse_assignments(parameter, "-p")
    configuration = definition.configuration(given)
    try:
        space = definition.search_space(sizes).restrict({name: [value] for name, value in given.items()})
        configuration = space.configuration(0)
    except EmptySpaceError as error:
        print_note(f"this is not a valid configuration, but its source can be printed: {configuration} ({error})")

    from mptune import rendering

    source = (rendering.render_body if body else rendering.render)(definition, configuration, sizes)
    click.echo(source if read_by is None or body else read_by.compiler.translated(source))


@click.command()
@click.argument("kernel", metavar="KERNEL|FILE.py|all")
@options.backend
@click.option(
    "--arch",
    metavar="NAME",
    default="",
    show_default="the device's own",
    help="Compile for this architecture, such as sm_90 or gfx90a.",
)
@click.option(
    "--sample",
    metavar="N|all",
    default="",
    show_default="a few that cover every value",
    help="Compile N configurations drawn at random, or all.",
)
@click.option("--all-signatures", is_flag=True, help="Compile one configuration of each accuracy signature instead.")
@options.size
@options.as_json
def check(
    kernel: str, backend: str, arch: str, sample: str, all_signatures: bool, size: Sequence[str], json: bool
) -> int:
    """Compile configurations without running them; needs no device.

    The kernel is a bundled kernel's name, the file that defines one, or all for every bundled kernel.
    """
    from mptune.registry import bundled_kernels, load_kernel

    selection = _selection(sample, all_signatures)
    definitions = [load_kernel(name) for name in (bundled_kernels() if kernel == "all" else (kernel,))]

    from mptune.backends import get_backend
    from mptune.checking import check as check_kernel

    target = get_backend(backend)
    results = []
    for definition in definitions:
        with counter(f"compiling {definition.name}") as count:
            results.append(
                check_kernel(
                    definition,
                    target,
                    architecture=arch,
                    sample=selection,
                    sizes=definition.resolve_sizes(*options.parse_sizes(definition, size)),
                    on_compiled=lambda _: count(),
                )
            )
    if json:
        print_json({"checks": [result.to_json() for result in results]})
    else:
        _print_checks(results)
    return 1 if any(result.failures for result in results) else 0


def _selection(sample: str, all_signatures: bool) -> Selection:
    if all_signatures:
        if sample:
            raise MptuneError(f"--all-signatures and --sample {sample} exclude each other")
        return "signatures"
    if not sample:
        return "values"
    if sample == "all":
        return "all"
    if not sample.isdecimal():
        raise MptuneError(f"--sample {sample!r}: expected a whole number or 'all'")
    return int(sample)


def _print_checks(results: list[CheckResult]) -> None:
    rows = [
        (
            r.kernel,
            r.backend,
            r.architecture or "own",
            f"{r.configurations:,}",
            len(r.compilations),
            len(r.failures),
            f"{r.median_s:.3f}" if r.median_s == r.median_s else "cached",
        )
        for r in results
    ]
    columns = ("kernel", "backend", "architecture", "configurations", "compiled", "failed", "median (s)")
    echo(table(columns, rows, right=columns[3:]))
    for result in results:
        for failure in result.failures[:3]:
            print_error(f"{result.kernel} at {failure.configuration}: {failure.message}")
