"""What ``mptune adopt`` makes of CUDA programs as they stand: which it takes, how fast they become, and at which error.

    python benchmarks/adopt.py FOLDER [--parts programs,traced] [--programs heat,...] [--resume]
    python benchmarks/adopt.py --parts handwritten,promise [--promise ENVIRONMENT] --resume

``programs``: every program of a folder is adopted and tuned at three thresholds of its answer, with no edit by hand.
The folder is ``benchmarks/programs``, or a checkout of the HeCBench collection, whose programs are the folders
``src/NAME-cuda``. ``traced``: errors from the instrumented build beside measured ones. ``handwritten``: plain CUDA
versions of bundled kernels, adopted and tuned, beside their hand-written templates, tuned at the same threshold and
size; both winners take turns in one process. ``promise``: the same programs for PROMISE (``benchmarks/promise.py``),
at as many correct digits.

What is found is kept beside the page as JSON after each piece, of ``programs`` after each adoption and each search;
``--resume`` goes on from there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import resource
import shlex
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import promise  # noqa: E402
from benchmarks.in_turn import measure_in_turn  # noqa: E402
from benchmarks.instrument import compare  # noqa: E402
from mptune.backends import get_backend  # noqa: E402
from mptune.backends.host_compiler import find_compiler  # noqa: E402
from mptune.backends.processor import processor, usable_cores  # noqa: E402
from mptune.errors import MptuneError, UnknownNameError  # noqa: E402
from mptune.measure.bench import Bench  # noqa: E402
from mptune.results.kernel_times import kernel_times  # noqa: E402
from mptune.results.trial import Trial  # noqa: E402
from mptune.run import Run, json_document  # noqa: E402
from mptune.source.loading import load_tunable  # noqa: E402
from mptune.space.configuration import Configuration  # noqa: E402

PAGE: Final = ROOT / "benchmarks" / "results" / "adopt.md"
PROGRAMS: Final = ROOT / "benchmarks" / "programs"
PARTS: Final = ("programs", "traced", "handwritten", "promise")
#: Programs of the collection that the issue names: their arguments, and the one that is to be refused.
NAMED: Final[Mapping[str, str]] = {
    "heat": "256 50",
    "gabor": "270 480 3",
    "hellinger": "2",
    "cooling": "10000 3",
    "rainflow": "1000 3",
    "lci": "",
    "lid-driven-cavity": "",
    "d3q19-bgk": "16",
    "damage": "10000 1",
}
#: Words of ``mptune adopt`` for those whose size is a macro of theirs.
OPTIONS: Final[Mapping[str, str]] = {"lid-driven-cavity": "-D NUM=64 -D BLOCK_SIZE=32"}
REFUSED: Final = "damage"
#: Plain CUDA versions of bundled kernels, by name.
HANDWRITTEN: Final = ("black_scholes", "convolution2d", "coulombic", "gemm", "mriq", "newton_raphson")
#: Programs whose numbers all have digits of their own (none is near 0), and sizes at which CADNA, which is slow, takes
#: seconds; and the digits asked for: of the later ones, so many that only a mixture of types is right and fast.
DIGITS: Final[Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]]] = {
    "black_scholes": (("100000",), (3, 6)),
    "convolution2d": (("320", "240"), (3, 6)),
    "coulombic": (("128", "80", "400"), (3, 6)),
    "gemm": (("256", "256", "256"), (3, 6)),
    "kmeans": (("30000",), (3, 6)),
    "newton_raphson": (("100000",), (3, 6)),
    "friction": (("50000",), (9,)),
    "fringes": (("5000", "64"), (6,)),
    "kepler": (("20000",), (6,)),
    "star_cluster": (("1000",), (5,)),
}
TARGETS: Final = {
    "adopted": 7,
    "seconds": 60.0,
    "handwritten": 0.95,
    "least": 0.8,
    "agree": 0.95,
    "faster": 1.3,
    "compilations": 10.0,
}
#: Rounds in which two winners take turns.
_ROUNDS: Final = 15
#: Words of ``mptune tune`` to judge by one draw of the inputs, that of the program.
_OWN_DATA: Final = ("--inputs", "1", "--verify", "0")
#: Files a program may consist of; the others are headers.
_SOURCES: Final = (".cu", ".cpp", ".cc", ".cxx", ".hip")
#: Seconds of each search of a program, a single run of which may take seconds.
_TIME_LIMIT_S: Final = 40.0
#: No command takes longer.
_TIMEOUT_S: Final = 1800
#: How often it is seen what a command has done.
_LOOKING_S: Final = 0.1
#: In a file of the cache the type of an ELF file lies here, and is this of one that is yet to be linked.
_TYPE_AT: Final = 32 + 16
_RELOCATABLE: Final = b"\x01\x00"
#: What an entry has that was measured to its end, by part; and what there is for each threshold, and of both peers.
_WANTED: Final = {
    "programs": ("arguments", "adopted", "why", "adopt_s", "adopt_cpu_s", "document", "thresholds"),
    "traced": ("signatures", "agree", "failed", "compilations", "run_ms"),
    "handwritten": ("metric", "times_ms", "speed", "speedup", "error"),
    "promise": ("promise", "mptune", "double_ms", "faster"),
}
_OF_THRESHOLD: Final = ("code", "why", "speedup", "interval", "verified")
_OF_PEERS: Final = {
    "promise": ("time_ms", "compilations", "variables", "types", "cpu_s"),
    "mptune": ("time_ms", "compilations", "until_decided", "until_as_fast", "classes", "cpu_s"),
}


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the folder.

    Attributes:
        name: of the program.
        source: its only file, or its folder.
        arguments: those of its ``main``.
    """

    name: str
    source: Path
    arguments: tuple[str, ...]


def programs_in(folder: Path) -> dict[str, Program]:
    """Return the programs of a folder by name.

    Raises:
        MptuneError: there are none.
    """
    if (folder / "src").is_dir():
        folder = folder / "src"
    found = {path.stem: Program(path.stem, path, ()) for path in sorted(folder.glob("*.cu"))}
    for path in sorted(folder.glob("*-cuda")):
        name = path.name.removesuffix("-cuda")
        given = NAMED.get(name, None)
        sources = [file for file in path.iterdir() if file.suffix in _SOURCES]
        source = sources[0] if len(sources) == 1 else path
        found[name] = Program(name, source, tuple(shlex.split(of_makefile(path) if given is None else given)))
    if not found:
        raise MptuneError(f"{folder} has no programs: expected NAME.cu files, or folders NAME-cuda")
    return found


def of_makefile(folder: Path) -> str:
    """Return the arguments that a program's makefile runs it with; "" if it says nothing."""
    makefile = folder / "Makefile"
    text = makefile.read_text(errors="replace") if makefile.exists() else ""
    match = re.search(r"^run:.*\n\t.*\./\S+[ \t]*(.*)$", text, re.MULTILINE)
    return match[1].strip() if match and "$" not in match[1] else ""


# -- commands --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command of mptune said.

    Attributes:
        code: its exit code.
        document: the JSON document it printed; empty if none.
        message: the last lines of what else it said.
        wall_s: how long it took.
        cpu_s: for how long it kept cores busy.
    """

    code: int
    document: dict[str, Any]
    message: str
    wall_s: float
    cpu_s: float


def mptune(words: Sequence[str | Path], cache: Path, look: Callable[[], None] = lambda: None) -> Answer:
    """Run a command of mptune with compiled kernels in a folder of its own; look at what it has done ever so often."""
    start, busy_s = time.monotonic(), children_s()
    command = [sys.executable, "-m", "mptune", *map(str, words)]
    environment = {**os.environ, "MPTUNE_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=cache.parent
    ) as child:
        while True:
            try:
                told, complaints = child.communicate(timeout=_LOOKING_S)
                break
            except subprocess.TimeoutExpired:
                look()
            if time.monotonic() - start > _TIMEOUT_S:
                child.kill()
                return Answer(-1, {}, f"took more than {_TIMEOUT_S} s", time.monotonic() - start, math.nan)
    look()
    wall_s, cpu_s = time.monotonic() - start, children_s() - busy_s
    try:
        document = json.loads(told)
    except ValueError:
        document = {}
    return Answer(child.returncode, document, in_short(complaints), wall_s, cpu_s)


def children_s() -> float:
    """Return for how long commands that have ended kept cores busy."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def in_short(text: str) -> str:
    """Return an error message as one line without folders."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [n for n, line in enumerate(lines) if line.lower().startswith("error")]
    chosen = " ".join(lines[errors[0] :] if errors else lines[-1:])
    return re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", "", chosen)[:400]


def compiled(cache: Path) -> int:
    """Return how many programs and kernels were compiled into a cache, without what is the same for all of them.

    That are the prelude, which is compiled ahead (``headers``), and the object of CUDA's runtime for the processor.
    """
    count = 0
    for path in (cache / "binaries").glob("[0-9a-f][0-9a-f]/[0-9a-f]*"):
        with path.open("rb") as file:
            count += file.read(_TYPE_AT + 2)[_TYPE_AT:] != _RELOCATABLE
    return count


def evaluated(run: Path) -> int:
    """Return how many rows the file of a run has that goes on."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{run}?mode=ro", uri=True)) as file:
            return int(file.execute("SELECT count(*) FROM trials").fetchone()[0])
    except sqlite3.Error:  # (it is being made)
        return 0


# -- programs --------------------------------------------------------------------------------------


def adopted(program: Program, work: Path) -> tuple[Answer, Path]:
    """Adopt a program; return what the command said, and the folder it wrote."""
    folder = work / re.sub(r"\W", "_", program.name)
    options = shlex.split(OPTIONS.get(program.name, ""))
    words: list[str | Path] = ["adopt", program.source.resolve(), *options, "--output", folder, "--json"]
    return mptune([*words, "--", *program.arguments], work / "cache"), folder


def tuned(
    definition: Path, max_error: float, budget: int, seed: int, *words: str, seen: list[tuple[int, int]] | None = None
) -> tuple[Answer, Path]:
    """Tune what was adopted; return what the command said, and its run file.

    What is seen meanwhile is added to a list: how many rows the file had, and how many binaries there were then.
    """
    run, cache = definition.parent / f"{definition.stem}-{max_error:g}.db", definition.parent / "cache"

    def look() -> None:
        if seen is not None and (rows := evaluated(run)) > (seen[-1][0] if seen else 0):
            seen.append((rows, compiled(cache)))

    options = ["--backend", "host", "--max-error", f"{max_error:g}", "--budget", str(budget), "--seed", str(seed)]
    words = ("tune", str(definition), *options, "--output", str(run), "--json", *words)
    return mptune(words, cache, look), run


def measured(
    program: Program,
    thresholds: Sequence[float],
    time_limit_s: float,
    budget: int,
    seed: int,
    known: Mapping[str, Any] | None,
) -> Iterator[dict[str, Any]]:
    """Yield what becomes of a program: adopted or refused and why, then with what each threshold allows.

    What is known from an earlier run of the benchmark is not measured again.
    """
    with tempfile.TemporaryDirectory() as temporary:
        answer, definition = adopted(program, Path(temporary))
        found = dict(known or {}) or {
            "arguments": " ".join([OPTIONS.get(program.name, ""), shlex.join(program.arguments)]).strip(),
            "adopted": answer.code == 0,
            "why": "" if answer.code == 0 else answer.message,
            "adopt_s": answer.wall_s,
            "adopt_cpu_s": answer.cpu_s,
            "document": facts(answer.document),
            "thresholds": {},
        }
        yield found
        for tau in thresholds if answer.code == 0 else ():
            if f"{tau:g}" not in found["thresholds"]:
                said, _ = tuned(definition, tau, budget, seed, "--time-limit", f"{time_limit_s:g}")
                found["thresholds"][f"{tau:g}"] = result_of(said)
                yield found


def facts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page says of an adopted program."""
    parameters = document.get("parameters", ())
    return {
        "kernels": len(document.get("kernels", ())),
        "classes": sum(len(parameter["classes"]) for parameter in parameters) + len(document.get("kept", ())),
        "parameters": len(parameters),
        "check": document.get("program", {}).get("check", ""),
        "refused": [in_short(each) for each in document.get("refused", ())],
    }


def winner_in(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the winner that a search reports."""
    best: dict[str, Any] | None = document.get("best")
    return best


def result_of(answer: Answer) -> dict[str, Any]:
    """Return what the page says of a threshold."""
    document = answer.document
    best = winner_in(document)
    return {
        "code": answer.code,
        "why": "" if best is not None else answer.message,
        "wall_s": answer.wall_s,
        "evaluations": document.get("evaluations", 0),
        "metric": document.get("metric", ""),
        "statuses": document.get("statuses", {}),
        "speedup": None if best is None else best.get("speedup"),
        "interval": None if best is None else best.get("speedup_interval"),
        "error": None if best is None else best.get("error"),
        "verified": None if best is None else best.get("verified"),
    }


# -- instrumented errors ---------------------------------------------------------------------------


def traced(program: Program, signatures: int, seed: int) -> dict[str, Any]:
    """Return how many of some signatures have an instrumented error within a factor of two of the measured one."""
    with tempfile.TemporaryDirectory() as temporary:
        answer, definition = adopted(program, Path(temporary))
        if answer.code != 0:
            return {"signatures": 0, "agree": 0, "failed": 0, "why": answer.message}
        pairs, failed, compilations = compare(load_tunable(str(definition)), "default", signatures, seed)
    return {
        "signatures": len(pairs),
        "agree": sum(pair.agrees for pair in pairs),
        "failed": failed,
        "compilations": compilations,
        "run_ms": 1e3 * statistics.median([pair.traced_s for pair in pairs]) if pairs else math.nan,
    }


# -- beside hand-written templates -----------------------------------------------------------------


def handwritten(name: str, max_error: float, budget: int, seed: int) -> dict[str, Any]:
    """Return how long the winner of an adopted program takes beside that of the bundled kernel."""
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        bundled = load_tunable(name)
        answer, definition = adopted(Program(name, PROGRAMS / f"{name}.cu", ()), work)
        if answer.code != 0:
            return {"why": answer.message}
        metric = str(bundled.metric)
        # Both are judged by the program's own data: further draws differ, those of a definition from the other's.
        ours, ours_db = tuned(definition, max_error, budget, seed, "--metric", metric, *_OWN_DATA)
        run = work / "bundled.db"
        options = ["--backend", "host", "--max-error", f"{max_error:g}", "--budget", str(budget), "--seed", str(seed)]
        options += _OWN_DATA
        theirs = mptune(["tune", name, *options, "--output", run, "--json"], work / "cache")
        best = {"adopted": winner_in(ours.document), "handwritten": winner_in(theirs.document)}
        if best["adopted"] is None or best["handwritten"] is None:
            return {"why": ours.message if best["adopted"] is None else theirs.message}
        winners = {"adopted": (str(definition), ours_db), "handwritten": (name, run)}
        times = in_turn({way: (of, best_of(path)) for way, (of, path) in winners.items()})
        return {
            "metric": metric,
            "times_ms": times,
            "speed": statistics.median(
                there / here for there, here in zip(times["handwritten"], times["adopted"], strict=True)
            ),
            "speedup": {way: one["speedup"] for way, one in best.items() if one is not None},
            "error": {way: one["error"] for way, one in best.items() if one is not None},
            "configuration": {way: dict(best_of(path)) for way, (_, path) in winners.items()},
        }


def best_of(path: Path) -> Configuration:
    """Return the winner of a run."""
    best = Run.load(path).best
    if best is None:
        raise MptuneError(f"{path}: the run has no winner")
    return best.configuration


def in_turn(ways: Mapping[str, tuple[str, Configuration]]) -> dict[str, list[float]]:
    """Return the times of configurations of several definitions, which take turns in this process."""
    backend = get_backend("host")
    benches = {}
    for way, (name, _) in ways.items():
        tunable = load_tunable(name)
        benches[way] = Bench(tunable, tunable.resolve_sizes("default"), backend)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(_ROUNDS):
        for way in list(ways) if turn % 2 == 0 else reversed(list(ways)):
            (one,) = measure_in_turn(benches[way], [ways[way][1]], 1).values()
            times[way].append(launches_ms(one.trial))
    for bench in benches.values():
        bench.close()
    return times


def launches_ms(trial: Trial) -> float:
    """Return how long the launches of a trial took: of an application without what lies between them."""
    return math.fsum(each.time_ms for each in kernel_times(trial).values()) or trial.time_ms


# -- beside PROMISE --------------------------------------------------------------------------------


def beside_promise(
    name: str, digits: int, budget: int, seed: int, environment: Path, precisions: str, known: Mapping[str, Any] | None
) -> Iterator[dict[str, Any]]:
    """Yield what PROMISE finds for a program at so many digits, and what it took; then with what ``mptune`` finds.

    What is known from an earlier run of the benchmark is not searched again.
    """
    source, arguments = PROGRAMS / f"{name}.cu", DIGITS[name][0]
    entry = {"promise": known["promise"]} if known and "promise" in known else {}
    if not entry:
        busy_s = children_s()
        try:
            found = promise.search(environment, source, arguments, digits, precisions)
        except MptuneError as error:
            yield {"why": str(error)}
            return
        counts = {"compilations": found.compilations, "variables": len(found.types)}
        entry["promise"] = {**counts, "types": found.types, "cpu_s": children_s() - busy_s}
    yield {**entry, "why": "not measured to its end"}
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        answer, definition = adopted(Program(name, source, arguments), work)
        if answer.code != 0:
            yield {**entry, "why": answer.message}
            return
        # The digits of every number, as PROMISE counts them.
        seen: list[tuple[int, int]] = []
        said, run = tuned(definition, 10.0**-digits, budget, seed, "--metric", "MaxRE", *_OWN_DATA, seen=seen)
        best = winner_in(said.document)
        if best is None:
            yield {**entry, "why": said.message}
            return
        winner = best_of(run)
        times = in_rounds(source, arguments, entry["promise"]["types"], str(definition), winner)
        entry["promise"] = {**entry["promise"], "time_ms": statistics.median(times["promise"])}
        entry["double_ms"] = statistics.median(times["double"])
        entry["mptune"] = {
            "time_ms": statistics.median(times["mptune"]),
            "compilations": compiled(work / "cache"),
            "until_decided": until_decided(run, seen, winner),
            "until_as_fast": until_as_fast(run, seen, entry["promise"]["time_ms"]),
            "classes": facts(answer.document)["classes"],
            "types": dict(winner),
            "error": best["error"],
            "cpu_s": answer.cpu_s + said.cpu_s,
        }
        entry["faster"] = statistics.median(t / o for t, o in zip(times["promise"], times["mptune"], strict=True))
        yield entry


def in_rounds(
    source: Path, arguments: tuple[str, ...], types: Mapping[str, str], definition: str, winner: Configuration
) -> dict[str, list[float]]:
    """Return the times of a program in double, in PROMISE's types and as tuned, which take turns."""
    tunable = load_tunable(definition)
    bench = Bench(tunable, tunable.resolve_sizes("default"), get_backend("host"))
    times: dict[str, list[float]] = {"double": [], "promise": [], "mptune": []}
    with (
        contextlib.closing(bench),
        promise.built(promise.in_types(source), arguments) as in_double,
        promise.built(promise.in_types(source, types), arguments) as found,
    ):
        for _ in range(_ROUNDS):
            times["double"].append(in_double())
            times["promise"].append(found())
            (one,) = measure_in_turn(bench, [winner], 1).values()
            times["mptune"].append(launches_ms(one.trial))
    return times


def until_decided(path: Path, seen: Sequence[tuple[int, int]], winner: Configuration) -> int | None:
    """Return how many compilations it took until the winner's types were compiled and found accurate."""
    types = {name: value for name, value in winner.items() if name.endswith("_type")}
    return until(path, seen, lambda configuration, _: types.items() <= configuration.items())


def until_as_fast(path: Path, seen: Sequence[tuple[int, int]], time_ms: float) -> int | None:
    """Return how many compilations it took until something accurate was as fast; None if nothing was."""
    return until(path, seen, lambda _, launches_ms: launches_ms <= time_ms)


def until(path: Path, seen: Sequence[tuple[int, int]], is_it: Callable[[Mapping[str, Any], float], bool]) -> int | None:
    """Return how many compilations it took, from the program on, until an accurate run was such a one, if one was.

    Args:
        path: the run file, whose rows are runs of the program in the order in which they ended.
        seen: how many rows it had, and how many binaries there were then, those compiled ahead among them.
        is_it: told the configuration, and how long its launches took in milliseconds.
    """
    with contextlib.closing(sqlite3.connect(path)) as file:
        rows = file.execute("SELECT status, configuration, metrics FROM trials ORDER BY id").fetchall()
    for number, (status, configuration, metrics) in enumerate(rows, 1):
        times = [value for name, value in json.loads(metrics).items() if name.startswith("time_ms.")]
        if status == "ok" and times and is_it(json.loads(configuration), math.fsum(times)):
            return next((binaries for known, binaries in seen if known >= number), None)
    return None


# -- the page --------------------------------------------------------------------------------------


def mean(values: Sequence[float]) -> float:
    """Return the geometric mean, NaN of nothing."""
    return statistics.geometric_mean(values) if values else math.nan


def target(what: str, value: str, wanted: str, is_met: bool) -> str:
    """Return a line about a target."""
    return f"- {what}: {value} (target {wanted}: {'met' if is_met else 'missed'})"


def cell(text: str) -> str:
    """Return text that stays in its cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ") or "-"


def markdown(document: Mapping[str, Any]) -> str:
    """Return the results as a page."""
    lines = ["# Programs as they stand", ""]
    parts = {
        "programs": _programs_lines,
        "traced": _traced_lines,
        "handwritten": _handwritten_lines,
        "promise": _promise_lines,
    }
    if not any(document[part] for part in parts):
        return "\n".join([*lines, "Not measured yet: `python benchmarks/adopt.py` writes this page.", ""])
    for part, lines_of in parts.items():
        if document[part]:
            lines += [*lines_of(document[part], document), ""]
    lines += [f"Machine: {document['machine']}. Commands: {', '.join(f'`{c}`' for c in document['commands'])}."]
    return "\n".join(lines) + "\n"


def _programs_lines(entries: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    taus = document["thresholds"]
    named = {name: entry for name, entry in entries.items() if name in NAMED and name != REFUSED}
    lines = [
        "`mptune adopt` of programs without an edit, and `mptune tune` of what it wrote, with "
        f"{document['budget']} evaluations at each threshold, or as many as begin within {document['time_limit']:g} s. "
        "Speedups, with 95% intervals, are against the fastest configuration in the program's own types; errors are "
        "those of the program's answer, here the worst of fresh "
        "inputs that no search had.",
        "",
    ]
    if named:
        good = sum(entry["adopted"] and any(map(is_tuned, entry["thresholds"].values())) for entry in named.values())
        slowest = max(entry["adopt_s"] for entry in named.values())
        lines += [
            target(
                f"programs adopted of the {len(named)} named ones that are to be",
                str(good),
                f"≥ {TARGETS['adopted']}",
                good >= TARGETS["adopted"],
            ),
            target(
                "longest adoption", f"{slowest:.0f} s", f"≤ {TARGETS['seconds']:g} s", slowest <= TARGETS["seconds"]
            ),
        ]
    if REFUSED in entries:
        is_refused = not entries[REFUSED]["adopted"] or bool(entries[REFUSED]["document"]["refused"])
        lines.append(target(f"{REFUSED}, which uses cub", "refused" if is_refused else "taken", "refused", is_refused))
    lines += [
        "",
        "Seconds are those of the adoption, and in brackets for how long it kept cores busy.",
        "",
        "| program | arguments | adopted | edits | kernels | classes | parameters | own check | s | "
        + " | ".join(f"speedup at {tau:g} | error" for tau in taus)
        + " |",
        "|" + "---|" * (9 + 2 * len(taus)),
    ]
    for name, entry in entries.items():
        of = entry["document"]
        start = f"| {name} | {cell(entry['arguments'])} | {'yes' if entry['adopted'] else 'no'} | 0 | "
        seconds = f"{entry['adopt_s']:.0f} ({entry['adopt_cpu_s']:.0f})"
        if not entry["adopted"]:
            lines.append(f"{start}- | - | - | - | {seconds} |" + " - | - |" * len(taus))
            continue
        cells = [result_cells(entry["thresholds"].get(f"{tau:g}", {})) for tau in taus]
        numbers = f"{of['kernels']} | {of['classes']} | {of['parameters']} | {cell(str(of['check']))}"
        lines.append(f"{start}{numbers} | {seconds} | {' | '.join(cells)} |")
    reasons = [f"- {name}: {entry['why']}" for name, entry in entries.items() if entry["why"]]
    reasons += [f"- {name}: {why}" for name, entry in entries.items() for why in entry["document"]["refused"]]
    reasons += [
        f"- {name} at {tau}: {result['why']}"
        for name, entry in entries.items()
        for tau, result in entry["thresholds"].items()
        if result["code"] not in (0, 1)
    ]
    return [*lines, *(["", "What was refused, or failed:", "", *reasons] if reasons else [])]


def is_tuned(result: Mapping[str, Any]) -> bool:
    """Whether a search found something within its threshold."""
    return result["speedup"] is not None


def result_cells(result: Mapping[str, Any]) -> str:
    """Return the speedup at a threshold, the error on fresh inputs, and how many of the inputs break the threshold."""
    if not result:
        return "- | -"
    if not is_tuned(result):
        return "none | -"
    low, high = result["interval"] or (math.nan, math.nan)
    interval = f" ({low:.2f} to {high:.2f})" if low == low and low != high else ""
    verified = result["verified"] or {}
    worst = verified.get("worst_error")
    broken = f", {verified['violations']} of {verified['inputs']} break it" if verified.get("violations") else ""
    return f"{result['speedup']:.2f}{interval} | {'-' if worst is None else f'{worst:.2g}{broken}'}"


def _traced_lines(entries: Mapping[str, Any], _: Mapping[str, Any]) -> list[str]:
    total = sum(entry["signatures"] for entry in entries.values())
    agree = sum(entry["agree"] for entry in entries.values()) / total if total else math.nan
    lines = [
        "## Errors from the instrumented build",
        "",
        "Signatures drawn at random, compiled in their types and run in the instrumented build, whose types are chosen "
        "when it runs. Errors agree if they are within a factor of 2, or nothing but roundings of fp64.",
        "",
        target("signatures that agree", f"{agree:.1%}", f"≥ {TARGETS['agree']:.0%}", agree >= TARGETS["agree"]),
    ]
    lines += ["", "| program | signatures | agree | failed | compilations | a run (ms) |", "|---|---|---|---|---|---|"]
    for name, entry in entries.items():
        if entry.get("why"):
            lines.append(f"| {name} | {cell(entry['why'])} | - | - | - | - |")
            continue
        share_text = f"{entry['agree'] / entry['signatures']:.0%}" if entry["signatures"] else "-"
        lines.append(
            f"| {name} | {entry['signatures']} | {share_text} | {entry['failed']} | {entry['compilations']} | "
            f"{entry['run_ms'] or math.nan:.1f} |"
        )
    return lines


def _handwritten_lines(entries: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    speeds = [entry["speed"] for entry in entries.values() if "speed" in entry]
    middle = mean(speeds) if len(speeds) == len(entries) else math.nan
    least = min(speeds) if len(speeds) == len(entries) else math.nan
    lines = [
        "## Beside hand-written templates",
        "",
        "Plain CUDA versions of bundled kernels (`benchmarks/programs`), written from what the kernels compute without "
        f"a look at their templates. Both are tuned for an error of {document['handwritten_error']:g} at the same "
        f"size, with {document['budget']} evaluations; their winners take turns in one process, in {_ROUNDS} rounds.",
        "",
        target(
            "speed of the adopted beside the hand-written, geometric mean",
            f"{middle:.2f}",
            f"≥ {TARGETS['handwritten']:g}",
            middle >= TARGETS["handwritten"],
        ),
        target("the least", f"{least:.2f}", f"≥ {TARGETS['least']:g}", least >= TARGETS["least"]),
        "",
        "| program | metric | adopted (ms) | hand-written (ms) | speed | speedups over fp64 | errors |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, entry in entries.items():
        if "speed" not in entry:
            lines.append(f"| {name} | {cell(entry['why'])} | - | - | - | - | - |")
            continue
        times = {way: statistics.median(values) for way, values in entry["times_ms"].items()}
        pairs = [", ".join(f"{entry[what][way]:.3g}" for way in times) for what in ("speedup", "error")]
        lines.append(
            f"| {name} | {entry['metric']} | {times['adopted']:.3g} | {times['handwritten']:.3g} | "
            f"{entry['speed']:.2f} | {pairs[0]} | {pairs[1]} |"
        )
    return lines


def _promise_lines(entries: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    compared = {name: entry for name, entry in entries.items() if "faster" in entry}
    faster = [entry["faster"] for entry in compared.values()]
    fewer = {what: fewer_by(compared.values(), what) for what in ("until_decided", "until_as_fast", "compilations")}
    mixed = [entry for entry in compared.values() if len(set(entry["promise"]["types"].values())) > 1]
    names = {name.partition(",")[0] for name in compared}
    lines = [
        "## Beside PROMISE",
        "",
        f"cadnaPromise {document['promise_version']} with the types {document['precisions']}, on C++ versions of the "
        "same kernels, which `benchmarks/promise.py` writes and compiles for timing as the host backend compiles; both "
        "run on all cores, and times are medians of their launches. Both are asked for as many digits of every number "
        "of the answer, of the program's own data; `mptune` "
        f"searches types, blocks and whatever else adoption found, with {document['budget']} evaluations.",
        "",
        "A compilation is one of a program or kernel, in whatever types: of PROMISE, as it counts them, its "
        "reference with CADNA's types and each try; of `mptune` each binary that there is, from adoption on: the "
        "program as it runs on the processor, the template in the program's types (compared with the program, and "
        "the baseline) and in the next narrower ones, instrumented builds, and whatever else is compiled up to "
        "then, also ahead. What is compiled once on a machine is left out of both: CADNA, and the prelude with the "
        "runtime. PROMISE's decide types and nothing else; `mptune` has decided when a run in the winner's types "
        "was accurate, and what follows is the search for speed. Both decide the same variables, those whose type "
        "is written in device code, so that for each variable the ratio is that of all. Where fp32 is right "
        "throughout, PROMISE needs 3, and nobody a tenth of that. Seconds are for how long each kept cores busy.",
        "",
        target("programs compared", str(len(names)), "≥ 6", len(names) >= 6),
        target(
            "speed beside PROMISE's code, geometric mean",
            f"{mean(faster):.2f}",
            f"≥ {TARGETS['faster']:g}",
            mean(faster) >= TARGETS["faster"],
        ),
        target("the least of that", f"{min(faster, default=math.nan):.2f}", "≥ 1", min(faster, default=0) >= 1),
        target(
            "times as few compilations for each decided variable, geometric mean",
            f"{mean(fewer['until_decided']):.2f}",
            f"≥ {TARGETS['compilations']:g}",
            mean(fewer["until_decided"]) >= TARGETS["compilations"],
        ),
        f"- the same where types are mixed, of {len(mixed)}: {mean(fewer_by(mixed, 'until_decided')):.2f}",
        f"- the same until the code was as fast as PROMISE's, of the {len(fewer['until_as_fast'])} where it was: "
        f"{mean(fewer['until_as_fast']):.2f}",
        f"- the same in all, until the end of the search for speed: {mean(fewer['compilations']):.2f}",
        "",
        "| program, digits | double C++ (ms) | PROMISE (ms) | mptune (ms) | faster | PROMISE's compilations "
        "| mptune's until types were decided | until as fast | in all | variables, classes | s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, entry in entries.items():
        if "faster" not in entry:
            lines.append(f"| {name} | {cell(entry['why'])} | - | - | - | - | - | - | - | - | - |")
            continue
        both = [entry["promise"], entry["mptune"]]
        lines.append(
            f"| {name} | {entry['double_ms']:.3g} | {both[0]['time_ms']:.3g} | {both[1]['time_ms']:.3g} | "
            f"{entry['faster']:.2f} | "
            + f"{both[0]['compilations']} | {both[1]['until_decided'] or '-'} | {both[1]['until_as_fast'] or '-'} | "
            + f"{both[1]['compilations']} | {both[0]['variables']}, {both[1]['classes']} | "
            + ", ".join("-" if one["cpu_s"] is None else f"{one['cpu_s']:.0f}" for one in both)
            + " |"
        )
    return lines


def fewer_by(entries: Iterable[Mapping[str, Any]], what: str) -> list[float]:
    """Return how many times as few compilations ``mptune`` took than PROMISE, where it got there."""
    pairs = [(entry["promise"], entry["mptune"]) for entry in entries]
    return [theirs["compilations"] / ours[what] for theirs, ours in pairs if ours[what] is not None]


def lacking(part: str, entry: Mapping[str, Any]) -> list[str]:
    """Return what the page wants of an entry and it does not have, as those of earlier versions may not."""
    if part != "programs" and entry.get("why"):
        return []
    wanted = [(entry, _WANTED[part])]
    if part == "programs":
        wanted += [(result, _OF_THRESHOLD) for result in entry.get("thresholds", {}).values()]
    if part == "promise":
        wanted += [(entry.get(who, {}), names) for who, names in _OF_PEERS.items()]
    return [name for found, names in wanted for name in names if name not in found]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when it ended well, 2 for wrong input."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        document = run(parser().parse_args(given), given)
    except MptuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(markdown(document))
    return 0


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("folder", type=Path, nargs="?", default=PROGRAMS, help="programs (default: benchmarks/programs)")
    found.add_argument("--parts", default="programs,traced", metavar="PART,...", help=", ".join(PARTS))
    found.add_argument("--programs", metavar="NAME,...", help="only these (default: those named here, or all)")
    found.add_argument("--thresholds", default="1e-3,1e-6,1e-9", metavar="X,...", help="of the program's answer")
    found.add_argument("--handwritten-error", type=float, default=1e-4, help="threshold beside hand-written templates")
    found.add_argument("--promise", type=Path, default=Path(sys.prefix), metavar="ENVIRONMENT", help="where PROMISE is")
    found.add_argument("--precisions", default="sd", help="types PROMISE may choose from, by its letters")
    found.add_argument("--budget", type=int, default=60, help="evaluations of each search")
    found.add_argument("--time-limit", type=float, default=_TIME_LIMIT_S, help="seconds of each search of a program")
    found.add_argument("--signatures", type=int, default=100, help="of each program, for the part traced")
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--output", type=Path, default=PAGE, help="write the page to this file, the figures beside it")
    found.add_argument("--resume", action="store_true", help="keep what the figures beside the page have")
    return found


def run(options: argparse.Namespace, given: Sequence[str]) -> dict[str, Any]:
    """Measure what is asked for, write page and figures after each piece, and return the figures.

    Raises:
        MptuneError: something that was given is wrong.
    """
    parts = options.parts.split(",")
    for part in parts:
        if part not in PARTS:
            raise UnknownNameError("part", part, PARTS)
    thresholds = [float(text) for text in options.thresholds.split(",")]
    kept = options.output.with_suffix(".json")
    document: dict[str, Any] = {
        "machine": f"{processor().name}, {usable_cores()} of {os.cpu_count()} cores, {find_compiler().version}",
        "commands": [],
        "budget": options.budget,
        "thresholds": thresholds,
        "time_limit": options.time_limit,
        "handwritten_error": options.handwritten_error,
        "precisions": options.precisions,
        "promise_version": "",
        **{part: {} for part in PARTS},
    }
    if options.resume and kept.exists():
        before = json.loads(kept.read_text())
        settings = ("budget", "thresholds", "time_limit", "handwritten_error", "precisions")
        # (Those of earlier versions had no time limit to choose, and had this one.)
        if any(({"time_limit": _TIME_LIMIT_S} | before)[name] != document[name] for name in settings):
            raise MptuneError(f"{kept} has other settings: leave out --resume, or give another --output")
        document |= {name: before[name] for name in ("commands", "promise_version", *PARTS)}
        for part in PARTS:
            for name, entry in list(document[part].items()):
                if missing := lacking(part, entry):
                    print(f"{part} {name}: measured anew, as there is no {', '.join(missing)}", file=sys.stderr)
                    del document[part][name]
    command = shlex.join(["python", "benchmarks/adopt.py", *without_folders(given)])
    document["commands"] = list(dict.fromkeys([*document["commands"], command]))
    for part, name, measure in jobs(options, parts, thresholds, document):
        # Only of what was measured to its end.
        if "took_s" in document[part].get(name, {}):
            continue
        start = time.monotonic()
        for found in measure():
            document[part][name] = json_document(found)
            save(document, options.output)
        document[part][name]["took_s"] = time.monotonic() - start
        print(f"{part} {name}: {document[part][name]['took_s']:.0f} s", file=sys.stderr, flush=True)
    save(document, options.output)
    return document


def save(document: Mapping[str, Any], page: Path) -> None:
    """Write the page, and the figures beside it."""
    page.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    page.write_text(markdown(document))


def once(measure: Callable[..., dict[str, Any]], *arguments: Any) -> Iterator[dict[str, Any]]:
    """Yield what is measured in one piece."""
    yield measure(*arguments)


def jobs(
    options: argparse.Namespace, parts: Sequence[str], thresholds: Sequence[float], document: dict[str, Any]
) -> list[tuple[str, str, Callable[[], Iterator[dict[str, Any]]]]]:
    """Return what to measure: the part, the name of the entry, and what yields the entry each time it has grown."""
    known = programs_in(options.folder) if {"programs", "traced"} & set(parts) else {}
    every = [*known, *HANDWRITTEN, *DIGITS]
    chosen = options.programs.split(",") if options.programs else every
    for name in chosen:
        if name not in every:
            raise UnknownNameError("program", name, every)
    search = (options.budget, options.seed)
    found: list[tuple[str, str, Callable[[], Iterator[dict[str, Any]]]]] = []
    # Of a whole collection, those the issue names.
    of_folder = [name for name in known if options.programs or name in NAMED] or list(known)
    for name in [name for name in of_folder if name in chosen]:
        if "programs" in parts:
            before = document["programs"].get(name)
            found.append(
                ("programs", name, partial(measured, known[name], thresholds, options.time_limit, *search, before))
            )
        if "traced" in parts and name != REFUSED:
            found.append(("traced", name, partial(once, traced, known[name], options.signatures, options.seed)))
    if "handwritten" in parts:
        found += [
            ("handwritten", name, partial(once, handwritten, name, options.handwritten_error, *search))
            for name in HANDWRITTEN
            if name in chosen
        ]
    if "promise" in parts:
        document["promise_version"] = promise.installed(options.promise)
        peer = (options.promise, options.precisions)
        found += [
            ("promise", key, partial(beside_promise, name, digits, *search, *peer, document["promise"].get(key)))
            for name in DIGITS
            if name in chosen
            for digits in DIGITS[name][1]
            for key in [f"{name}, {digits}"]
        ]
    return found


def without_folders(given: Sequence[str]) -> list[str]:
    """Return the words of a command line without the folders of a machine."""
    return [Path(word).name if word.startswith("/") else word for word in given]


if __name__ == "__main__":
    sys.exit(main())
