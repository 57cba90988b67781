"""Commands that need no run: ``list``, ``backends``, ``render`` and ``check``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from mptune.accuracy.evaluate import metric_text
from mptune.backends import BACKENDS, get_backend
from mptune.buffers.memory import in_words
from mptune.checking import CheckResult, Compilation, Selection
from mptune.checking import check as check_kernel
from mptune.cli.arguments import parse_assignments, parse_sizes
from mptune.cli.display import complain, messages, output, print_json, remark, table
from mptune.errors import BackendUnavailableError, EmptySpaceError, MptuneError
from mptune.kernel import Kernel
from mptune.observers import OBSERVERS
from mptune.registry import bundled_kernels, load_kernel
from mptune.rendering import render as render_source
from mptune.rendering import render_body
from mptune.strategies import STRATEGIES

__all__ = ["backends", "check", "list_kernels", "render"]

KernelName = Annotated[str, typer.Argument(metavar="KERNEL|FILE.py", help="A bundled kernel or a definition file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def list_kernels(
    json: AsJson = False,
    strategies: Annotated[
        bool, typer.Option("--strategies", help="List the search strategies and their options instead.")
    ] = False,
    observers: Annotated[
        bool, typer.Option("--observers", help="List what can be measured besides, and its metrics, instead.")
    ] = False,
) -> None:
    """List the bundled kernels, the strategies, or the observers."""
    if strategies and observers:
        raise MptuneError("--strategies and --observers exclude each other")
    if strategies:
        _list_strategies(json)
        return
    if observers:
        _list_observers(json)
        return
    rows = [_describe(load_kernel(name)) for name in bundled_kernels()]
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
    output.print(table(columns, cells, right=("configurations",)))
    presets = dict.fromkeys(preset for row in rows for preset in row["sizes"])
    output.print(
        "\nparameters: optimisation + accuracy signature; configurations: valid ones at the default size; "
        f"sizes: {', '.join(presets)}"
    )


def _describe(kernel: Kernel) -> dict[str, Any]:
    space = kernel.search_space(kernel.resolve_sizes())
    return {
        "kernel": kernel.name,
        "description": kernel.description,
        "parameters": {p.name: list(p.values) for p in kernel.parameters},
        "signature": list(kernel.signature_names),
        "configurations": space.size,
        "metric": metric_text(kernel.metric),
        "sizes": {preset: dict(sizes) for preset, sizes in kernel.sizes.items()},
    }


def _list_strategies(json: bool) -> None:
    documented = {name: (STRATEGIES[name], STRATEGIES[name].options_class.documented()) for name in STRATEGIES}
    if json:
        rows = [
            {
                "strategy": name,
                "description": _first_line(strategy),
                "several_objectives": strategy.optimises_several,
                "options": {option: {"default": default, "help": text} for option, (default, text) in options.items()},
            }
            for name, (strategy, options) in documented.items()
        ]
        print_json({"strategies": rows})
        return
    cells = []
    for name, (strategy, options) in documented.items():
        several = " [several objectives]" if strategy.optimises_several else ""
        cells.append((name, "", _first_line(strategy) + several))
        cells += [(f"  {option}", str(default), text) for option, (default, text) in options.items()]
    output.print(table(("strategy", "default", "what it does"), cells))
    output.print("\nchoose with --strategy NAME and --strategy-option OPTION=VALUE")


def _list_observers(json: bool) -> None:
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
    output.print(table(("observer", "on", "metrics", "what it does"), cells))
    output.print("\nswitch on with --observe NAME; what --objective and --constraint need is switched on by itself")


def _first_line(described: object) -> str:
    return (inspect.getdoc(described) or "").partition("\n")[0]


def backends(json: AsJson = False) -> None:
    """Say what can compile and run here, and what the rest needs."""
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
            "-" if row["memory_bytes"] is None else in_words(row["memory_bytes"]),
            _limits(row["limits"]) or "-",
            row["reason"] or ", ".join(f"{k} {v}" for k, v in row["versions"].items()),
        )
        for row in rows
    ]
    output.print(table(columns, cells))


def _limits(limits: Mapping[str, int]) -> str:
    """Return the limits a kernel's author has in mind, in words; --json has all of them."""
    said = {
        "max_threads_per_block": "{:,} threads a block",
        "warp_size": "{} a warp",
        "max_shared_bytes": "{:,} bytes shared",
        "registers_per_block": "{:,} registers",
        "multiprocessors": "{} multiprocessors",
        "workers": "{} cores",
        "cache_bytes": "{:,} bytes cache",
    }
    return ", ".join(text.format(limits[name]) for name, text in said.items() if limits.get(name))


def _availability(name: str) -> dict[str, Any]:
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
            device = backend.device()
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


def render(
    kernel: KernelName,
    parameter: Annotated[list[str], typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="A value.")] = [],  # noqa: B006
    backend: Annotated[str, typer.Option(help="Any backend: one source serves all.")] = "auto",
    size: Annotated[list[str], typer.Option(metavar="PRESET|NAME=V", help="A size preset, or single sizes.")] = [],  # noqa: B006
    body: Annotated[bool, typer.Option("--body", help="Leave out the prelude.")] = False,
) -> None:
    """Print the instantiated source.

    Parameters not given have the first of their values that is valid with the others.
    """
    definition = load_kernel(kernel)
    if backend != "auto":
        get_backend(backend)
    preset, overrides = parse_sizes(definition, size)
    sizes = definition.resolve_sizes(preset, overrides)
    given = parse_assignments(parameter, "-p")
    configuration = definition.configuration(given)
    try:
        space = definition.search_space(sizes).restrict({name: [value] for name, value in given.items()})
        configuration = space.configuration(0)
    except EmptySpaceError as error:
        remark(f"not a valid configuration, rendered all the same: {configuration} ({error})")
    source = render_body if body else render_source
    typer.echo(source(definition, configuration, sizes))


def check(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL|FILE.py|all", help="A kernel, or all bundled ones.")],
    backend: Annotated[str, typer.Option(help="auto, host, cuda or hip.")] = "auto",
    arch: Annotated[str, typer.Option(metavar="A", help="Target such as sm_90 or gfx90a.")] = "",
    sample: Annotated[str, typer.Option(metavar="N|all", help="How many configurations [every value once].")] = "",
    all_signatures: Annotated[bool, typer.Option("--all-signatures", help="One per accuracy signature.")] = False,
    size: Annotated[list[str], typer.Option(metavar="PRESET|NAME=V", help="A size preset, or single sizes.")] = [],  # noqa: B006
    json: AsJson = False,
) -> None:
    """Compile configurations without running them; needs no device."""
    selection = _selection(sample, all_signatures)
    target = get_backend(backend)
    names = bundled_kernels() if kernel == "all" else (kernel,)
    results = []
    for name in names:
        definition = load_kernel(name)
        preset, overrides = parse_sizes(definition, size)
        with messages.status(f"compiling {definition.name}") as status:
            done = 0

            def count(_: Compilation, shown: str = definition.name) -> None:
                nonlocal done
                done += 1
                status.update(f"compiling {shown}: {done}")

            results.append(
                check_kernel(
                    definition,
                    target,
                    architecture=arch,
                    sample=selection,
                    sizes=definition.resolve_sizes(preset, overrides),
                    on_compiled=count,
                )
            )
    _report(results, json)
    raise typer.Exit(1 if any(result.failures for result in results) else 0)


def _selection(text: str, all_signatures: bool) -> Selection:
    if all_signatures:
        if text:
            raise MptuneError(f"--all-signatures and --sample {text} exclude each other")
        return "signatures"
    if not text:
        return "values"
    if text == "all":
        return "all"
    if not text.isdecimal():
        raise MptuneError(f"--sample {text!r}: expected a whole number or 'all'")
    return int(text)


def _report(results: list[CheckResult], json: bool) -> None:
    if json:
        print_json(
            {
                "checks": [
                    {
                        "kernel": r.kernel,
                        "backend": r.backend,
                        "architecture": r.architecture,
                        "configurations": r.configurations,
                        "compiled": len(r.compilations),
                        "median_compile_s": r.median_s if r.median_s == r.median_s else None,
                        "failures": [
                            {"configuration": dict(f.configuration), "message": f.message} for f in r.failures
                        ],
                    }
                    for r in results
                ]
            }
        )
        return
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
    output.print(table(columns, rows, right=columns[3:]))
    for result in results:
        for failure in result.failures[:3]:
            complain(f"{result.kernel} at {failure.configuration}: {failure.message}")
