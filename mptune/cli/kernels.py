"""Commands that need no run: ``list``, ``backends``, ``init``, ``render`` and ``check``."""

from __future__ import annotations

import inspect
import math
import shlex
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mptune.cli import options
from mptune.cli.display import (
    counter,
    print_described,
    print_error,
    print_json,
    print_note,
    print_table,
    reserved_stdout,
)
from mptune.cli.options import option
from mptune.errors import BackendUnavailableError, EmptySpaceError, MptuneError
from mptune.markup import Description, Table, number

if TYPE_CHECKING:
    from mptune.kernel import Kernel, Sizes
    from mptune.space.configuration import Configuration
    from mptune.tuning.check import CheckResult


@click.command("list")
@option("--strategies", "", "List the search strategies and their options instead.")
@option("--observers", "", "List the observers and their metrics instead.")
@options.as_json
def list_kernels(strategies: bool, observers: bool, json: bool) -> None:
    """List kernels and applications, search strategies, or observers."""
    if strategies and observers:
        raise MptuneError("--strategies and --observers exclude each other")
    document, found = _strategies() if strategies else _observers() if observers else _kernels()
    print_json(document) if json else print_described(found)


def _kernels() -> tuple[dict[str, Any], Description]:
    from mptune.source.loading import bundled_applications, bundled_kernels

    tables, document, asked, presets = [], dict[str, Any](), dict[str, list[str]](), dict[str, None]()
    for what, names in (("kernel", bundled_kernels()), ("application", bundled_applications())):
        cells = []
        document[f"{what}s"] = rows = list(map(_describe, names))
        for row in rows:
            types, count = len(row["signature"]), row["configurations"]
            cell = {what: row[what], "parameters": f"{len(row['parameters']) - types} + {types}"}
            cell |= {"configurations": f"{count:,}" if count < 1e9 else f"{count:.1e}"}
            cells.append({**cell, "metric": row["metric"], "description": row["description"]})
            presets |= dict.fromkeys(row["sizes"])
            for name, values in row["on_request"].items():
                asked.setdefault(", ".join(values), []).append(f"{row[what]} {name}")
        tables.append(Table.of(cells))
    remarks = (
        "parameters: number of parameters that change speed only + number that can change the results",
        f"configurations: number of valid configurations at the default size; sizes: {', '.join(presets)}",
        *(f"on request (tune -p NAME=VALUE,...): {values} for {', '.join(where)}" for values, where in asked.items()),
    )
    return document, Description(tables=tuple(tables), remarks=remarks)


def _describe(name: str) -> dict[str, Any]:
    from mptune.accuracy.evaluate import metric_text
    from mptune.kernel import Application
    from mptune.source.loading import load_tunable

    found = load_tunable(name)
    kernels = {"kernels": list(found.kernels)} if isinstance(found, Application) else {}
    on_request = {p.name: [v for v in p.every_value if v not in p.values] for p in found.parameters}
    return {
        found.what: found.name,
        "description": found.description,
        **kernels,
        "parameters": {p.name: list(p.values) for p in found.parameters},
        "on_request": {name: values for name, values in on_request.items() if values},
        "signature": list(found.signature_names),
        "configurations": found.search_space(found.resolve_sizes()).size,
        "metric": metric_text([output.name for output in found.outputs], found.metric),
        "sizes": {preset: dict(sizes) for preset, sizes in found.sizes.items()},
    }


def _strategies() -> tuple[dict[str, Any], Description]:
    from mptune.strategies import STRATEGIES

    rows, cells = [], list[tuple[str, str, str]]()
    for name, strategy in STRATEGIES.items():
        text, several = _first_line(strategy), strategy.optimises_several
        known = {o: {"default": d, "help": h} for o, (d, h) in strategy.options_class.documented().items()}
        rows.append({"strategy": name, "description": text, "several_objectives": several, "options": known})
        cells.append((name, "", text + " [several objectives]" * several))
        cells += [(f"  {option}", str(given["default"]), given["help"]) for option, given in known.items()]
    table = Table(("strategy", "default", "what it does"), tuple(cells))
    remark = "choose one with --strategy NAME, and its options with --strategy-option OPTION=VALUE"
    return {"strategies": rows}, Description(tables=(table,), remarks=(remark,))


def _observers() -> tuple[dict[str, Any], Description]:
    from mptune.observers import ALWAYS_ON, OBSERVERS

    known = {name: (metrics, True, description) for name, (metrics, description) in ALWAYS_ON.items()}
    known |= {n: (kind.metrics, False, _first_line(kind)) for n, kind in OBSERVERS.items()}
    rows, cells = [], []
    for name, (metrics, is_always_on, text) in sorted(known.items()):
        rows.append({"observer": name, "metrics": list(metrics), "always_on": is_always_on, "description": text})
        cells.append((name, "always" * is_always_on, ", ".join(metrics), text))
    table = Table(("observer", "on", "metrics", "what it does"), tuple(cells))
    remark = "--observe NAME activates an observer; --objective and --constraint activate the observers they need"
    return {"observers": rows}, Description(tables=(table,), remarks=(remark,))


def _first_line(described: object) -> str:
    return (inspect.getdoc(described) or "").partition("\n")[0]


# -- backends ------------------------------------------------------------------------------------

#: The limits shown in the table; --json has all limits.
_LIMITS = {
    "max_threads_per_block": "{:,} threads per block",
    "warp_size": "{} threads per warp",
    "max_shared_bytes": "{:,} bytes shared",
    "registers_per_block": "{:,} registers",
    "multiprocessors": "{} multiprocessors",
    "workers": "{} cores",
    "cache_bytes": "{:,} bytes cache",
}


@click.command()
@option("--check", "", "Compile one line with each compiler.")
@options.as_json
def backends(check: bool, json: bool) -> int:
    """Show the backends that can compile and run here, and what is missing."""
    from mptune.backends import BACKENDS

    rows, cells = [_availability(name, check) for name in BACKENDS], []
    for row in rows:
        memory = "" if row["memory_bytes"] is None else f"{number(row['memory_bytes'] / 1e9)} GB memory"
        limits = (text.format(row["limits"][key]) for key, text in _LIMITS.items() if row["limits"].get(key))
        versions = (f"{name} {version}" for name, version in row["versions"].items())
        device = ((row["device"], row["architecture"], memory), limits, versions, (row["reason"],))
        described = "; ".join(text for part in device if (text := ", ".join(filter(None, part))))
        compiles = ("yes, checked" if check else "yes") if row["can_compile"] else "no"
        cells.append((row["backend"], compiles, "yes" if row["can_run"] else "no", described))
    table = Table(("backend", "compiles", "runs", "device, or what is missing"), tuple(cells))
    print_json({"backends": rows}) if json else print_table(table)
    return 1 if any(row["compiled"] is False for row in rows) else 0


def _availability(name: str, check: bool) -> dict[str, Any]:
    from mptune.backends import get_backend

    backend = get_backend(name)
    found = backend.availability()
    row = {"backend": name, "can_compile": found.can_compile, "can_run": found.can_run, "reason": found.reason}
    row |= {"device": None, "architecture": None, "memory_bytes": None, "limits": {}, "versions": {}, "compiled": None}
    if check and found.can_compile:
        from mptune.backends.base import CompileOptions

        try:
            # A unique kernel is in no cache.
            architecture = "" if found.can_run else backend.common_architecture
            backend.compile_line(CompileOptions(architecture), mark=uuid.uuid4().hex)
        except MptuneError as error:
            reason = "; ".join(filter(None, (" ".join(str(error).split()), found.reason)))
            return row | {"can_compile": False, "can_run": False, "compiled": False, "reason": reason}
        row["compiled"] = True
    if found.can_run:
        try:
            device = backend.describe()
        except BackendUnavailableError as error:
            return row | {"can_run": False, "reason": str(error)}
        row |= {"device": device.name, "architecture": device.architecture, "memory_bytes": device.memory_bytes}
        row |= {"limits": dict(device.limits), "versions": dict(device.versions)}
    return row


# -- sources -------------------------------------------------------------------------------------


@click.command()
@click.argument("kernel", metavar="KERNEL|FILE.py")
@option("--parameter -p", "NAME=VALUE...", "The value of a parameter.")
@option("--backend", "NAME", "Print the source for the compiler of this backend.", default="auto")
@options.size
@option("--body", "", "Print the source without the prelude.")
def render(kernel: str, parameter: Mapping[str, str], backend: str, size: Sequence[str], body: bool) -> None:
    """Print the source of one configuration.

    The kernel is the name of a bundled kernel or a definition file. Other parameters have their first valid values. An
    application is run once, and the sources of all launched kernels are printed.
    """
    from mptune.source.loading import load_tunable

    output = click.get_current_context().with_resource(reserved_stdout())
    definition = load_tunable(kernel)
    from mptune.backends import get_backend

    read_by = get_backend(backend) if backend != "auto" else None
    sizes = definition.resolve_sizes(*options.parse_sizes(definition, size))
    given = definition.full_names(parameter)
    configuration = definition.configuration(given)
    try:
        space = definition.search_space(sizes).restrict({name: [value] for name, value in given.items()})
        configuration = space.configuration(0)
    except EmptySpaceError as error:
        print_note(f"this configuration is invalid: {configuration} ({error})")

    from mptune.cpp.prelude import prelude
    from mptune.kernel import Application, Kernel
    from mptune.source import render as rendering

    def text(kernel: Kernel, configuration: Configuration, sizes: Sizes) -> str:
        source = (rendering.render_body if body else rendering.render)(kernel, configuration, sizes)
        return source if read_by is None or body else read_by.compiler.translated(source)

    if not isinstance(definition, Application):
        assert isinstance(definition, Kernel)
        click.echo(text(definition, configuration, sizes), file=output)
        return
    from mptune.data.data import make_inputs
    from mptune.measure.buffers import run_once
    from mptune.measure.program import Program

    if read_by is None and not body:
        click.echo(prelude(), file=output)
    with Program(definition, configuration, sizes, get_backend("auto")) as program:
        run_once(program, make_inputs(definition, sizes, 0))
        launched = program.compiled
    for each, values, at in launched:
        click.echo(rendering.heading(each, values, at), file=output)
        click.echo(text(each, values, at).removeprefix(prelude()).lstrip("\n"), file=output)


@click.command()
@click.argument("kernel", metavar="KERNEL|FILE.py|all")
@options.backend
@option("--arch", "NAME", "Compile for this architecture, such as sm_90 or gfx90a.", show_default="the device's own")
@option("--sample", "N|all", "Compile N random configurations, or all.", show_default="a few that cover every value")
@option("--all-signatures", "", "Compile one configuration of each accuracy signature instead.")
@options.restricted("Compile")
@option("--list lists", "", "Also print each configuration and its compile time.")
@options.size
@options.as_json
def check(
    kernel: str,
    backend: str,
    arch: str | None,
    sample: str | None,
    all_signatures: bool,
    restrict: Mapping[str, tuple[str, ...]],
    lists: bool,
    size: Sequence[str],
    json: bool,
) -> int:
    """Compile configurations without running them; needs no device.

    The kernel is the name of a bundled kernel, a definition file, or all for every bundled kernel. Types on request are
    compiled, too. An application is also run once in its widest types, if a device is available, to check its inputs,
    steps, reference and metric.
    """
    from mptune.kernel import Application, Kernel
    from mptune.source.loading import bundled_kernels, load_tunable

    if all_signatures and sample:
        raise MptuneError(f"--all-signatures and --sample {sample} exclude each other")
    if sample and sample != "all" and not sample.isdecimal():
        raise MptuneError(f"--sample {sample!r}: expected a whole number or 'all'")
    if kernel == "all" and restrict:
        raise MptuneError(f"-p {next(iter(restrict))}: kernels have parameters of their own; name one instead of 'all'")
    selection: Any = int(sample) if sample and sample.isdecimal() else "signatures" if all_signatures else sample
    definitions = [load_tunable(name) for name in (bundled_kernels() if kernel == "all" else (kernel,))]

    from mptune.backends import get_backend
    from mptune.tuning.check import check as check_kernel
    from mptune.tuning.check import check_application

    target = get_backend(backend)
    results: list[CheckResult] = []
    for definition in definitions:
        sizes = definition.resolve_sizes(*options.parse_sizes(definition, size))
        with counter(f"compiling {definition.name}") as count:
            how: Any = {"architecture": arch or "", "sample": selection or "values"}
            how |= {"restrict": definition.full_names(restrict), "on_compiled": lambda _, count=count: count()}
            if isinstance(definition, Application):
                results += check_application(definition, target, sizes=sizes if size else None, **how)
            else:
                assert isinstance(definition, Kernel)
                results.append(check_kernel(definition, target, sizes=sizes, **how))
    if json:
        print_json({"checks": [result.to_json() for result in results]})
    else:
        _print_checks(results, lists)
    return 1 if any(result.failures for result in results) else 0


def _print_checks(results: Sequence[CheckResult], lists: bool) -> None:
    rows = list[dict[str, object]]()
    for each in results:
        row = {"kernel": each.kernel, "backend": each.backend, "architecture": each.architecture or "own"}
        row |= {"configurations": f"{each.configurations:,}", "compiled": str(len(each.compilations))}
        median = "cached" if math.isnan(each.median_s) else f"{each.median_s:.3f}"
        rows.append({**row, "failed": len(each.failures), "median (s)": median})
    listed = (_compilations(each) for each in results if lists and each.compilations)
    print_described(Description(tables=(Table.of(rows), *listed)))
    for each in results:
        for warning in each.warnings:
            print_note(f"{each.kernel}: warning: {warning}")
        for first, *others in each.failure_groups[:3]:
            where = f"{len(others) + 1} of {len(each.compilations)} configurations, such as " if others else ""
            print_error(f"{each.kernel} at {where}{first.configuration}: {first.message}")


def _compilations(result: CheckResult) -> Table:
    """Return the compiled configurations with shared values in the title and other values in columns."""
    compiled = result.compilations
    values = {name: {c.configuration[name] for c in compiled} for name in compiled[0].configuration}
    shared = ", ".join(f"{name}={value}" for name, (value, *others) in values.items() if not others)
    rows = []
    for c in compiled:
        took = "failed" if c.message else f"{c.compile_s:.3f}" if c.compile_s else "cached"
        rows.append({**{n: c.configuration[n] for n in values if len(values[n]) > 1}, "compile (s)": took})
    return Table.of(rows, f"{result.kernel}, compiled" + (f" with {shared}" if shared else ""))


@click.command()
@options.file_argument("source", "KERNEL.cu")
@option("--kernel", "NAME", "The kernel, with its template arguments; needed if the file has several.")
@options.defines
@options.includes
@option("--output -o", "FILE", "Definition to write; its template is put beside it.", show_default="KERNEL.py")
def init(source: Path, kernel: str | None, output: Path | None, defines: Any, includes: Any) -> None:
    """Write a definition of a plain CUDA or HIP kernel to start from.

    Types are found in the text. Inputs are made up: edit the function that makes them.
    """
    from mptune.from_source import write_definition

    definition, template = write_definition(source, kernel, defines=defines, includes=includes, output=output)
    click.echo(f"written: {definition} and {template}; edit its inputs, then: mptune tune {_as_argument(definition)}")


def _as_argument(definition: Path) -> str:
    return shlex.quote(str(definition) if "/" in str(definition) else f"./{definition}")
