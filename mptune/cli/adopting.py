"""``mptune adopt``: from a program to a tunable application."""

from __future__ import annotations

import contextlib
import shlex
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mptune.cli import options
from mptune.cli.display import counter, echo, print_described, print_error, print_json, print_note, stages
from mptune.cli.options import option
from mptune.errors import MptuneError
from mptune.markup import Description, Table, few_names, number

if TYPE_CHECKING:
    from mptune.results.objective import Objective
    from mptune.results.trial import Trial
    from mptune.run import Run


@click.command(cls=options.WithArguments)
@options.file_argument("files", "FILE|DIR...")
@option("--metric", "NAME", "Error metric of the outputs.", show_default="NRMSE, or NMAE for values of both signs")
@options.adoption
@option("--time-limit time_limit_s", "SECONDS", "Timeout of a run of the program.", default=60.0)
@option("--backend", "NAME", "host, cuda, or auto: an NVIDIA GPU if available, else the host.", default="auto")
@option("--output -o", "DIR", "Folder to write.", show_default="adopted/PROGRAM")
@options.as_json
def adopt(output: Path | None, json: bool, **given: Any) -> None:
    """Make a program in CUDA, HIP, or C++ with OpenMP loops a tunable application.

    The program is given by all of its files, or by its folder, whose Makefile then says files, macros and arguments. It
    runs with the ARGUMENTS after -- on an NVIDIA GPU if a GPU and nvcc are available, else on the processor. Kernels
    are tuned; without kernels, parallel loops of OpenMP.
    """
    of_program = options.pop_adoption(given)
    document = _adopted({**given, **of_program}, output)
    print_json(document) if json else print_adopted(document)


def _adopted(given: Mapping[str, Any], output: Path | None) -> dict[str, Any]:
    from mptune.adopt.adopting import AdoptSettings
    from mptune.adopt.adopting import adopt as adopt_program

    with _cleaned_up(), stages() as begin:
        _, document = adopt_program(AdoptSettings(**given), output, on_progress=begin)
    return document


@contextlib.contextmanager
def _cleaned_up() -> Iterator[None]:
    """Convert SIGTERM and SIGHUP to SystemExit within a block, so temporary files are removed."""

    def leave(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def definition_of(given: Sequence[str], settings: Mapping[str, Any], backend: str = "auto") -> str:
    """Return the given kernel; a program is adopted, recorded on the host for that backend, and its folder returned."""
    from mptune.adopt.makefiles import SOURCES, builds_by_itself

    files = [Path(text) for text in given]

    def is_program(path: Path) -> bool:
        return path.suffix in SOURCES or (
            path.is_dir()
            and not any(path.glob("*.py"))
            and (builds_by_itself(path) or any(file.suffix in SOURCES for file in path.iterdir()))
        )

    for path in files:
        if path.suffix == ".c":
            raise MptuneError(f"{path} is C, and programs are taken as C++: copy it to {path.with_suffix('.cpp').name}")
    if all(map(is_program, files)):
        recorded_on = "host" if backend == "host" else "auto"
        document = _adopted({"files": tuple(files), **settings, "backend": recorded_on}, None)
        kernels = len(document["kernels"])
        print_note(f"adopted {', '.join(given)} into {document['folder']}: {kernels} kernel{'s' * (kernels != 1)}")
        _print_notes({**document, "caveats": ()})  # the run prints the caveats as warnings
        return _path(document["folder"])
    if len(given) > 1:
        raise MptuneError(f"expected one kernel, not {', '.join(given)}")
    named = {"arguments": "arguments after --", "defines": "-D", "includes": "-I"}
    named |= {"kernels": "--kernel"}
    if settings:
        name = next(iter(settings))
        raise MptuneError(f"{given[0]} takes no {named.get(name, f'--{name}'.replace('_', '-'))}: it is no program")
    return given[0]


def _path(folder: str) -> str:
    """Return a folder as an argument of commands: a bare name would be a bundled kernel."""
    return folder if "/" in folder else f"./{folder}"


# -- adopted programs ----------------------------------------------------------------------------


def print_adopted(document: Mapping[str, Any]) -> None:
    """Print the kernels, buffers and parameters of an adopted program."""
    program, folder = document["program"], document["folder"]
    sources = ", ".join(Path(path).name for path in program["sources"])
    check = {"passed": "; its own check passed", "failed": "; its own check FAILED"}.get(program["check"], "")
    echo(f"{document['name']}, adopted from {sources}, run{_arguments_text(program)} on {program['device']}{check}\n")
    tables = (
        _table(document["kernels"], {"kernel": "name", "launches": "launches", "place": "place"}),
        _table(document["buffers"], {"buffer": "name", "elements": "elements", "type": "type", "role": "role"}),
        _table(
            document["parameters"],
            {"parameter": "name", "role": "roles", "types": "types", "names in the program": "members"},
        ),
    )
    _print_notes(document)
    print_described(Description(tables=tables, remarks=tuple(_remarks(document))))
    echo(f"to tune it: mptune tune {shlex.quote(_path(folder))} --max-error 1e-6")


_CHANGED = {
    "data": "each floating-point number that the program copies to the device before it sees a result",
    "numbers": "each floating-point argument of kernels: it copies no variable floating-point numbers to the device",
    "nothing": "nothing: no winner is verified on unseen inputs",
}


def _remarks(document: Mapping[str, Any]) -> Iterator[str]:
    draws, zeros = document["draws"], document["zeros"]
    if document["sizes"]:
        of = document["size_arguments"]
        sizes = ", ".join(f"{name} {value} (argument {of[name]})" for name, value in document["sizes"].items())
        yield f"sizes: {sizes}; for other sizes (--size NAME=VALUE) the program runs with another argument"
    changed = f"by up to {100 * draws['by']:g}% " * bool(draws["by"]) + _CHANGED[draws["of"]]
    changed += f", in {few_names(draws['names'], 8)}" * bool(draws["names"])
    if draws["of"] == "nothing" and zeros:
        changed += f"; {', '.join(zeros)} {'is' if len(zeros) == 1 else 'are'} all zero"
    yield f"fresh inputs change {changed}"
    yield from document["no_sizes"]
    yield from (f"unchanged: {name}, {why}" for name, why in document["kept"].items())
    worst = max(document["errors"].values(), default=0)
    shown = f"within {number(worst, 2)} of the program's" if worst else "the program's, bit for bit"
    yield f"answer in the program's own types: {shown}"
    yield f"written to {document['folder']} in {document['seconds']:.1f} s"


def _arguments_text(document: Mapping[str, Any]) -> str:
    return f" with {shlex.join(document['arguments'])}" if document["arguments"] else ""


def _table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> Table:
    def text(cell: Any) -> str:
        if isinstance(cell, list | tuple):
            return few_names(cell, 8)
        return f"{cell:,}" if isinstance(cell, int) else number(cell, 3) if isinstance(cell, float) else cell or "-"

    return Table.of([{name: text(row[key]) for name, key in columns.items()} for row in rows])


def _print_notes(document: Mapping[str, Any]) -> None:
    for refusal in document["refused"]:
        print_note(f"not adopted: {refusal}")
    for note in (*document["notes"], *document["caveats"]):
        print_note(f"note: {note}")


# -- patched programs ----------------------------------------------------------------------------


def write_into(run: Run, trial: Trial, objective: Objective, given: Mapping[str, Any], json: bool) -> int:
    """Write a program with the types of a trial, print the result and return the exit code; ``given``: IntoSettings."""
    from mptune.adopt.into import IntoSettings, into

    settings = IntoSettings(**{**given, "record": given["record"] and Path(given["record"])})
    with _cleaned_up(), counter("patching the program") as count:
        document = into(run, trial, objective, settings, on_progress=lambda _: count())
    print_json(document) if json else print_patched(document)
    is_right = document["within"] is True and not document["slower"]
    if not is_right:
        print_error(excess_text(document))
    return 0 if is_right else 1


def print_patched(document: Mapping[str, Any]) -> None:
    """Print the changes to a patched program and the comparison with the original."""
    changed = [types for types in document["types"] if types["to"] != types["from"]]
    sides = {
        "time of its kernels (s)": document["kernels_s"],
        "time of the whole program (s)": document["program_s"],
        "its own check": document["check"],
        "exit code": document["exit_codes"],
        "prints": document["wrong"] or document["printed"],
        "on standard error": document["complaints"],
    }
    tables = (
        _table(changed, {"was": "from", "is": "to", "names in the program": "members"}),
        Table.of([{"compiled with": name, "result": state} for name, state in document["compiled"].items()]),
        _table(
            [{"": what, **both} for what, both in sides.items() if both],
            {f"run{_arguments_text(document)}": "", "as it was": "original", "now": "patched"},
        ),
        _table(document["written"], {"file or result of a loop": "name", "compared": "how", "error": "error"}),
    )
    limits = "".join(f"; {name} <= {limit:g}" for name, limit in document["threshold"].items())
    remarks = [] if changed or not document["files"] else ["no type has changed"]
    if document["error"] is not None:
        remarks.append(f"error of its answer ({document['metric']}): {number(document['error'], 3)}{limits}")
    print_described(Description(tables=tables, remarks=tuple(remarks)))
    unknown = [file for file in document["written"] if file["within"] is None]
    named = ", ".join(f"{file['name']} ({file['how'].removeprefix('not compared: ')})" for file in unknown)
    warnings = {
        "the program's own check no longer passes: it may require more digits than the threshold": (
            document["check"] == {"original": "passed", "patched": "failed"}
        ),
        "its printed numbers differ by more than the threshold": document["printed"] and not document["wrong"],
        "its output on standard error differs": document["complaints"],
        f"NOT compared with the original's: {named}": unknown,
    }
    for note in document["notes"]:
        print_note(f"note: {note}")
    for warning in (text for text, is_so in warnings.items() if is_so):
        print_note(f"warning: {warning}")
    if document["files"]:
        echo("\n".join(document["files"]))


def excess_text(document: Mapping[str, Any]) -> str:
    """Return the reason why a patched program is not within the threshold."""
    name = document["output"]
    different = {"wrong": "prints something else", "exit_codes": "ends with another exit code"}
    if ways := [text for key, text in different.items() if document[key]]:
        return f"{name} is written, but NOT right: it {' and '.join(ways)}"
    if document["within"] and document["slower"]:
        return f"{name} is written, but SLOWER: neither its kernels nor the whole program got faster"
    if document["not_judged"]:
        return f"{name}: its answer could not be compared with the original's: {document['not_judged']}"
    limits = ", ".join(f"{name} <= {limit:g}" for name, limit in document["threshold"].items()) or "a finite error"
    error = "not finite" if document["error"] is None else number(document["error"], 3)
    files = ", ".join(f"{file['name']} ({file['how']})" for file in document["written"] if file["within"] is False)
    where = f"files it writes: {files}" if files else f"the error of its answer is {error}"
    return f"{name} is NOT within the threshold: {where}, expected {limits}"
