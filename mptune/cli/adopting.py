"""``mptune adopt``: from a program as it stands to something that can be tuned."""

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
from mptune.cli.display import counter, echo, number, print_json, print_note, table, wrapped
from mptune.cli.options import option
from mptune.errors import MptuneError

if TYPE_CHECKING:
    from mptune.results.objective import Objective
    from mptune.results.trial import Trial
    from mptune.run import Run

__all__ = ["adopt", "adopted", "patched", "print_adopted", "print_patched", "why_not_within"]


@click.command(cls=options.WithArguments)
@options.file_argument("files", "FILE|DIR...")
@option(
    "--metric",
    "NAME",
    "Error metric of the outputs, as 'mptune tune' takes it.",
    show_default="NRMSE, or NMAE of values of either sign",
)
@options.of_programs
@option("--time-limit time_limit_s", "SECONDS", "How long a run of the program may take.", default=60.0)
@option(
    "--backend",
    "NAME",
    "Where the program runs: host (this machine's processor), cuda (an NVIDIA GPU), or auto, the GPU if one is here.",
    default="auto",
)
@option("--output -o", "DIR", "Folder to write.", show_default="adopted/PROGRAM")
@options.as_json
def adopt(output: Path | None, json: bool, **given: Any) -> None:
    """Make a program an application that can be tuned: of CUDA or HIP, or of C++ with loops of OpenMP.

    The program runs with the ARGUMENTS behind --, on an NVIDIA GPU if one is here with nvcc, or else on this machine's
    processor; all of its files are given, or their folder. Its kernels are tuned, or else the loops that OpenMP has in
    parallel (see also --loop).
    """
    of_program = options.taken_of_programs(given)
    document = adopted({**given, **of_program}, output)
    if json:
        print_json(document)
    else:
        print_adopted(document)


def adopted(given: Mapping[str, Any], output: Path | None) -> dict[str, Any]:
    """Adopt a program, and return the document that says what became of it.

    Args:
        given: what :class:`~mptune.adopt.adopting.AdoptSettings` takes.
        output: the folder to write; None for the default one.
    """
    from mptune.adopt.adopting import AdoptSettings
    from mptune.adopt.adopting import adopt as adopt_program

    with _removing_what_is_temporary(), counter("adopting the program") as count:
        _, document = adopt_program(AdoptSettings(**given), output, on_progress=lambda _: count())
    return document


@contextlib.contextmanager
def _removing_what_is_temporary() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this process as Ctrl-C does for the length of a block, with its cleaning up."""

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
    """Return the kernel that a command was given; of a program, the folder into which it is adopted.

    Args:
        given: a kernel, or the files of a program.
        settings: how it is adopted, by the fields of :class:`~mptune.adopt.adopting.AdoptSettings`.
        backend: what it is tuned for. A program that is tuned for the processor runs there to be recorded.

    Raises:
        MptuneError: several kernels, or settings of what is no program.
    """
    files = [Path(text) for text in given]
    sources = (".cu", ".hip", ".cpp", ".cc", ".cxx")
    if all(f.suffix in sources or (f.is_dir() and _is_program(f, sources)) for f in files):
        recorded_on = "host" if backend == "host" else "auto"
        document = adopted({"files": tuple(files), **settings, "backend": recorded_on}, None)
        kernels = len(document["kernels"])
        print_note(f"adopted {', '.join(given)} into {document['folder']}: {kernels} kernel{'s' * (kernels != 1)}")
        _print_notes({**document, "caveats": ()})  # of which the run itself warns
        return _path(document["folder"])
    if len(given) > 1:
        raise MptuneError(f"expected one kernel, not {', '.join(given)}")
    if settings:
        raise MptuneError(f"{given[0]} takes no {_GIVEN[next(iter(settings))]}: it is no program")
    return given[0]


#: How the settings of what is adopted are given.
_GIVEN = {
    "arguments": "arguments behind --",
    "defines": "-D",
    "includes": "-I",
    "compile_commands": "--compile-commands",
    "types": "--types",
    "kernels": "--kernel",
    "loops": "--loop",
    "vary": "--vary",
}


def _is_program(folder: Path, sources: Sequence[str]) -> bool:
    """Whether a folder holds a program, and no definition."""
    return not any(folder.glob("*.py")) and any(file.suffix in sources for file in folder.iterdir())


def print_adopted(document: Mapping[str, Any]) -> None:
    """Print what became of a program."""
    program, folder = document["program"], document["folder"]
    sources = ", ".join(Path(path).name for path in program["sources"])
    arguments = f" with {shlex.join(program['arguments'])}" if program["arguments"] else ""
    check = {"passed": "; its own check passed", "failed": "; its own check FAILED"}.get(program["check"], "")
    echo(f"{document['name']}, adopted from {sources}, run{arguments} on {program['device']}{check}\n")
    echo(_listed("kernel", ("launches", "place"), document["kernels"]))
    echo(_listed("buffer", ("elements", "type", "role"), document["buffers"]))
    rows = [
        (p["name"], ", ".join(p["roles"]), ", ".join(p["types"]), _few(p["members"])) for p in document["parameters"]
    ]
    if rows:
        echo(table(("parameter", "role", "types", "what has it in the program"), rows) + "\n")
    if document["sizes"]:
        of = {name: f" (argument {place})" for name, place in document["size_arguments"].items()}
        of |= dict.fromkeys(document["computed_sizes"], " (computed from arguments)")
        sizes = ", ".join(
            f"{name} {value}{of.get(name, ' (no argument of the program)')}"
            for name, value in document["sizes"].items()
        )
        echo(
            wrapped(
                f"sizes: {sizes}"
                + ("; the program is run again for others (--size NAME=VALUE)" if document["size_arguments"] else ""),
                "  ",
            )
        )
    draws = document["draws"]
    share = f"by up to {100 * draws['by']:g}% " if draws["by"] else ""
    echo(wrapped(f"fresh inputs change {share}{_CHANGED[draws['of']]}{_unchanged(document)}", "  "))
    for why in document["no_sizes"]:
        echo(wrapped(why, "  "))
    for name, why in document["kept"].items():
        echo(wrapped(f"kept as it is: {name}, {why}", "  "))
    _print_notes(document)
    exact = "the program's, to the last bit" if not any(document["errors"].values()) else ""
    shown = exact or "within " + number(max(document["errors"].values()), 2) + " of the program's"
    echo(wrapped(f"answer in the program's own types: {shown}"))
    echo(wrapped(f"written to {folder} in {document['seconds']:.1f} s"))
    echo(f"to tune it: mptune tune {shlex.quote(_path(folder))} --max-error 1e-6")


def _print_notes(document: Mapping[str, Any]) -> None:
    for refusal in document["refused"]:
        print_note(f"not adopted: {refusal}")
    for note in (*document["notes"], *document["caveats"]):
        print_note(f"note: {note}")


_CHANGED = {
    "data": "each floating-point number that the program copies to the device",
    "constants": "each floating-point number that the program copies to variables of the device, and to no buffer",
    "computed": "what its first launches compute: it copies no floating-point numbers to the device that may change",
    "numbers": "each floating-point number that kernels are passed: it copies none to the device that may change",
    "nothing": "nothing, so that no winner is verified on inputs that the search has not seen",
}


def _unchanged(document: Mapping[str, Any]) -> str:
    """Return what fresh inputs leave as it is, or why they change nothing."""
    if document["unvaried"]:
        return f", but not what it copies to variables of the device ({', '.join(document['unvaried'])})"
    if document["draws"]["of"] == "nothing" and document["zeros"]:
        return f"; {', '.join(document['zeros'])} {'is' if len(document['zeros']) == 1 else 'are'} all zero"
    return ""


def patched(run: Run, trial: Trial, objective: Objective, given: Mapping[str, Any]) -> dict[str, Any]:
    """Write a program with the types of a trial, and return the document that says what came of it.

    Args:
        run: the run.
        trial: of it.
        objective: with the threshold that counts.
        given: what :class:`~mptune.adopt.into.IntoSettings` takes.
    """
    from mptune.adopt.into import IntoSettings, into

    settings = dict(given)
    settings["record"] = Path(given["record"]) if given["record"] else None
    settings["arguments"] = given["arguments"] or None
    with _removing_what_is_temporary(), counter("patching the program") as count:
        return into(run, trial, objective, IntoSettings(**settings), on_progress=lambda _: count())


def print_patched(document: Mapping[str, Any]) -> None:
    """Print what came of a program that was given other types."""
    rows = [(t["from"], t["to"], _few(t["members"])) for t in document["types"] if t["to"] != t["from"]]
    echo(table(("was", "is", "what has the type"), rows) + "\n" if rows else "no type is another\n")
    for label, block in document["blocks"].items():
        tuned = [str(threads) if threads else "(as it was)" for threads in block]
        while tuned[-1] == "(as it was)":
            tuned.pop()
        echo(f"blocks of {label}: {' x '.join(tuned)} threads")
    for note in document["notes"]:
        print_note(f"note: {note}")
    for compiler, state in document["compiled"].items():
        echo(f"{'g++ or clang++, for this machine' if compiler == 'host' else compiler}: {state}")
    arguments = f" with {shlex.join(document['arguments'])}" if document["arguments"] else ""
    original, new = document["time_s"]["original"], document["time_s"]["patched"]
    echo(f"run{arguments} on this machine's processor: {number(original)} s as it was, {number(new)} s now")
    check = {"passed": "passed", "failed": "FAILED", "": "none"}
    echo(f"its own check: {check[document['check']['original']]} as it was, {check[document['check']['patched']]} now")
    if document["error"] is not None:
        limits = "".join(f"; {name} <= {limit:g}" for name, limit in document["threshold"].items())
        echo(f"error of its answer ({document['metric']}): {number(document['error'], 3)}{limits}")
    if document["written"]:
        rows = [
            (f["name"], f["how"], "-" if f["error"] is None else number(f["error"], 3)) for f in document["written"]
        ]
        echo("\n" + table(("file it writes", "compared", "error"), rows) + "\n")
    if document["check"] == {"original": "passed", "patched": "failed"}:
        print_note("warning: the program's own check no longer passes: it may ask for more digits than the threshold")
    if (printed := document["printed"]) and not document["wrong"]:
        print_note(
            f"warning: it prints {printed['patched']!r} where the original prints {printed['original']!r}, which is "
            "further apart than the threshold"
        )
    if complaints := document["complaints"]:
        print_note(
            f"warning: on standard error it writes {_quoted(complaints['patched'])}, the original "
            f"{_quoted(complaints['original'])}"
        )
    echo("\n".join(document["files"]))
    unknown = [f"{f['name']} ({f['how'].removeprefix(_UNKNOWN)})" for f in document["written"] if f["within"] is None]
    if unknown:
        print_note(f"warning: NOT compared with the original's: {', '.join(unknown)}")


#: What the words begin with on a file that is not compared.
_UNKNOWN = "not compared: "


def why_not_within(document: Mapping[str, Any]) -> str:
    """Say why a patched program cannot be claimed to be right."""
    wrong, codes = document["wrong"], document["exit_codes"]
    if wrong or codes:
        prints = wrong and f"prints {_quoted(wrong['patched'])} where the original prints {_quoted(wrong['original'])}"
        ends = codes and f"ends with exit code {codes['patched']}, the original with {codes['original']}"
        return f"{document['output']} is written, but NOT right: it {', and '.join(filter(None, (prints, ends)))}"
    if document["not_judged"]:
        return f"{document['output']}: its answer could not be compared with the original's: {document['not_judged']}"
    limits = ", ".join(f"{name} <= {limit:g}" for name, limit in document["threshold"].items()) or "a finite error"
    files = [f"{f['name']} ({f['how']})" for f in document["written"] if f["within"] is False]
    if files:
        return (
            f"{document['output']} is NOT within the threshold in what it writes: {', '.join(files)}, expected {limits}"
        )
    error = "not finite" if document["error"] is None else number(document["error"], 3)
    return f"{document['output']} is NOT within the threshold: the error of its answer is {error}, expected {limits}"


def _listed(what: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    cells = [(row["name"], *(f"{row[c]:,}" if isinstance(row[c], int) else row[c] for c in columns)) for row in rows]
    return table((what, *columns), cells, right=[c for c in columns if c in ("launches", "elements")]) + "\n"


def _quoted(line: str) -> str:
    return repr(line) if line else "nothing"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _path(folder: str) -> str:
    """Return a folder as commands take it: a bare name is that of a bundled kernel."""
    return folder if "/" in folder else f"./{folder}"
