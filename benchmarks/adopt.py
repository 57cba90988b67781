"""What ``mptune adopt`` makes of CUDA programs as they stand: which it takes, how fast they become, and at which error.

    python benchmarks/adopt.py FOLDER [--programs heat,...] [--resume]
    python benchmarks/adopt.py --parts handwritten,promise [--promise ENVIRONMENT] --resume

``programs``: every program of a folder is adopted and tuned at three thresholds of its answer, with no edit by hand.
The folder is ``benchmarks/programs``, or a checkout of the HeCBench collection, whose programs are the folders
``src/NAME-cuda``. ``handwritten``: plain CUDA versions of bundled kernels, adopted and tuned, beside their hand-written
templates, tuned at the same threshold and size; both winners take turns in one process. ``promise``: the same programs
for PROMISE (``benchmarks/promise.py``), at as many correct digits.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import os
import re
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import bench, promise  # noqa: E402
from benchmarks.in_turn import measure_in_turn  # noqa: E402
from mptune.backends import get_backend  # noqa: E402
from mptune.errors import MptuneError  # noqa: E402
from mptune.measure.bench import Bench  # noqa: E402
from mptune.results.kernel_times import kernel_times  # noqa: E402
from mptune.results.trial import Trial  # noqa: E402
from mptune.run import Run  # noqa: E402
from mptune.source.loading import load_tunable  # noqa: E402
from mptune.space.configuration import Configuration  # noqa: E402

PROGRAMS: Final = ROOT / "benchmarks" / "programs"
PARTS: Final = ("programs", "handwritten", "promise")
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
    "faster": 1.3,
    "compilations": 10.0,
}
#: Rounds in which two winners take turns.
_ROUNDS: Final = 15
#: Words of ``mptune tune`` to judge by one draw of the inputs, that of the program.
_OWN_DATA: Final = ("--inputs", "1", "--verify", "0")
#: Files a program may consist of; the others are headers.
_SOURCES: Final = (".cu", ".cpp", ".cc", ".cxx", ".hip")
#: Seconds that a command may take.
_TIMEOUT_S: Final = 1800
#: In a file of the cache the type of an ELF file lies here, and is this of one that is yet to be linked.
_TYPE_AT: Final = 32 + 16
_RELOCATABLE: Final = b"\x01\x00"


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


def mptune(words: Sequence[str | Path], cache: Path) -> Answer:
    """Run a command of mptune with compiled kernels in a folder of its own."""
    start, busy_s = time.monotonic(), children_s()
    command = [sys.executable, "-m", "mptune", *map(str, words)]
    environment = {**os.environ, "MPTUNE_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=cache.parent, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Answer(-1, {}, f"took more than {_TIMEOUT_S} s", time.monotonic() - start, children_s() - busy_s)
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = {}
    return Answer(done.returncode, document, in_short(done.stderr), time.monotonic() - start, children_s() - busy_s)


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


# -- programs --------------------------------------------------------------------------------------


def adopted(program: Program, work: Path) -> tuple[Answer, Path]:
    """Adopt a program; return what the command said, and the folder it wrote."""
    folder = work / re.sub(r"\W", "_", program.name)
    options = shlex.split(OPTIONS.get(program.name, ""))
    words: list[str | Path] = ["adopt", program.source.resolve(), *options, "--output", folder, "--json"]
    return mptune([*words, "--", *program.arguments], work / "cache"), folder


def tuned(definition: Path | str, run: Path, max_error: float, options: argparse.Namespace, *words: str) -> Answer:
    """Tune a definition or a bundled kernel; return what the command said."""
    settings = (
        f"--backend host --for host --max-error {max_error:g} --budget {options.budget} --seed {options.seed} --json"
    )
    return mptune(["tune", definition, *settings.split(), "--output", run, *words], run.parent / "cache")


def measure_program(program: Program, options: argparse.Namespace, sheet: bench.Sheet) -> None:
    """Add what becomes of a program: adopted or refused and why, and what each threshold allows."""
    with tempfile.TemporaryDirectory() as temporary:

        @functools.cache
        def answer() -> tuple[Answer, Path]:
            return adopted(program, Path(temporary))

        files = program.source.rglob("*") if program.source.is_dir() else [program.source]
        digest = bench.digest_of(file for file in files if file.is_file())
        settings: dict[str, Any] = {"source": digest, "arguments": list(program.arguments)}
        row = sheet.add(f"program {program.name}", lambda: adoption(program, answer()[0]), **settings)
        settings |= {"budget": options.budget, "time_limit": options.time_limit, "seed": options.seed}
        for tau in map(float, options.thresholds.split(",")) if row["adopted"] else ():

            def searched(tau: float = tau) -> dict[str, Any]:
                definition = answer()[1]
                run = definition.parent / f"{definition.stem}-{tau:g}.db"
                said = tuned(definition, run, tau, options, "--time-limit", f"{options.time_limit:g}")
                best = said.document.get("best") or {}
                return {
                    "program": program.name,
                    "threshold": tau,
                    "code": said.code,
                    "why": "" if best else said.message,
                    "wall_s": said.wall_s,
                    "evaluations": said.document.get("evaluations", 0),
                    "statuses": said.document.get("statuses", {}),
                    **{key: best.get(key) for key in ("speedup", "speedup_interval", "error", "verified")},
                }

            sheet.add(f"program {program.name} at {tau:g}", searched, **settings)


def adoption(program: Program, answer: Answer) -> dict[str, Any]:
    """Return what the page says of an adoption."""
    return {
        "name": program.name,
        "arguments": " ".join([OPTIONS.get(program.name, ""), shlex.join(program.arguments)]).strip(),
        "adopted": answer.code == 0,
        "why": "" if answer.code == 0 else answer.message,
        "adopt_s": answer.wall_s,
        "adopt_cpu_s": answer.cpu_s,
        **facts(answer.document),
    }


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


# -- beside hand-written templates -----------------------------------------------------------------


def handwritten(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return how long the winner of an adopted program takes beside that of the bundled kernel."""
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        metric = str(load_tunable(name).metric)
        answer, definition = adopted(Program(name, PROGRAMS / f"{name}.cu", ()), work)
        if answer.code != 0:
            return {"program": name, "why": answer.message}
        # Both are judged by the program's own data: further draws differ, those of a definition from the other's.
        words: dict[str, tuple[Any, ...]] = {
            "adopted": (definition, "--metric", metric, *_OWN_DATA),
            "handwritten": (name, *_OWN_DATA),
        }
        said, ways, best = {}, {}, {}
        for way, (of, *more) in words.items():
            run = work / f"{way}.db"
            said[way] = tuned(of, run, options.handwritten_error, options, *more)
            if said[way].document.get("best") is None:
                return {"program": name, "why": said[way].message}
            best[way] = said[way].document["best"]
            ways[way] = (str(of), best_of(run))
        times = in_turn(ways)
        return {
            "program": name,
            "metric": metric,
            "times_ms": times,
            "speed": statistics.median(t / o for t, o in zip(times["handwritten"], times["adopted"], strict=True)),
            "speedup": {way: one["speedup"] for way, one in best.items()},
            "error": {way: one["error"] for way, one in best.items()},
            "configuration": {way: dict(configuration) for way, (_, configuration) in ways.items()},
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
    for each in benches.values():
        each.close()
    return times


def launches_ms(trial: Trial) -> float:
    """Return how long the launches of a trial took: of an application without what lies between them."""
    return math.fsum(each.time_ms for each in kernel_times(trial).values()) or trial.time_ms


# -- beside PROMISE --------------------------------------------------------------------------------


def beside_promise(name: str, digits: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return what PROMISE and ``mptune`` find for a program at so many digits, and what it took."""
    source, arguments = PROGRAMS / f"{name}.cu", DIGITS[name][0]
    busy_s = children_s()
    try:
        found = promise.search(options.promise, source, arguments, digits, options.precisions)
    except MptuneError as error:
        return {"program": name, "digits": digits, "why": str(error)}
    theirs = {"compilations": found.compilations, "variables": len(found.types), "types": found.types}
    entry: dict[str, Any] = {
        "program": name,
        "digits": digits,
        "promise": {**theirs, "cpu_s": children_s() - busy_s, "version": promise.installed(options.promise)},
    }
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        answer, definition = adopted(Program(name, source, arguments), work)
        if answer.code != 0:
            return {**entry, "why": answer.message}
        # The digits of every number, as PROMISE counts them.
        run = work / "run.db"
        said = tuned(definition, run, 10.0**-digits, options, "--metric", "MaxRE", *_OWN_DATA)
        if said.document.get("best") is None:
            return {**entry, "why": said.message}
        winner = best_of(run)
        times = in_rounds(source, arguments, found.types, str(definition), winner)
        entry["ms"] = {way: statistics.median(values) for way, values in times.items()}
        entry["mptune"] = {
            "compilations": compiled(work / "cache"),
            "classes": facts(answer.document)["classes"],
            "types": dict(winner),
            "error": said.document["best"]["error"],
            "cpu_s": answer.cpu_s + said.cpu_s,
        }
        entry["faster"] = statistics.median(t / o for t, o in zip(times["promise"], times["mptune"], strict=True))
        return entry


def in_rounds(
    source: Path, arguments: tuple[str, ...], types: Mapping[str, str], definition: str, winner: Configuration
) -> dict[str, list[float]]:
    """Return the times of a program in double, in PROMISE's types and as tuned, which take turns."""
    tunable = load_tunable(definition)
    opened = Bench(tunable, tunable.resolve_sizes("default"), get_backend("host"))
    times: dict[str, list[float]] = {"double": [], "promise": [], "mptune": []}
    with (
        contextlib.closing(opened),
        promise.built(promise.in_types(source), arguments) as in_double,
        promise.built(promise.in_types(source, types), arguments) as found,
    ):
        for _ in range(_ROUNDS):
            times["double"].append(in_double())
            times["promise"].append(found())
            (one,) = measure_in_turn(opened, [winner], 1).values()
            times["mptune"].append(launches_ms(one.trial))
    return times


# -- the page --------------------------------------------------------------------------------------


def mean(values: Sequence[float]) -> float:
    """Return the geometric mean, NaN of nothing."""
    return statistics.geometric_mean(values) if values else math.nan


def target(what: str, value: str, wanted: str, is_met: bool) -> str:
    """Return a line about a target."""
    return f"- {what}: {value} (target {wanted}: {bench.verdict(is_met)})"


def page(options: argparse.Namespace, results: Mapping[str, Any]) -> str:
    """Return the page."""
    adoptions = {row["name"]: row for row in results.values() if "adopt_s" in row}
    searches = [row for row in results.values() if "threshold" in row]
    by_hand = [row for key, row in results.items() if key.startswith("handwritten ")]
    peers = [row for key, row in results.items() if key.startswith("promise ")]
    parts = [_programs_page(adoptions, searches, options)] if adoptions else []
    parts += [_handwritten_page(by_hand, options)] if by_hand else []
    parts += [_promise_page(peers, options)] if peers else []
    return "\n\n".join(parts)


def _programs_page(
    adoptions: Mapping[str, Any], searches: Sequence[Mapping[str, Any]], options: argparse.Namespace
) -> str:
    taus = list(dict.fromkeys(row["threshold"] for row in searches))
    found = {(row["program"], row["threshold"]): row for row in searches}
    named = {name: row for name, row in adoptions.items() if name in NAMED and name != REFUSED}
    lines = []
    if named:
        tuned_names = {row["program"] for row in searches if row["speedup"] is not None}
        good = sum(name in tuned_names for name in named)
        slowest = max(row["adopt_s"] for row in named.values())
        what = f"programs adopted and tuned of the {len(named)} named ones"
        lines.append(target(what, str(good), f"≥ {TARGETS['adopted']}", good >= TARGETS["adopted"]))
        limit = TARGETS["seconds"]
        lines.append(target("longest adoption", f"{slowest:.0f} s", f"≤ {limit:g} s", slowest <= limit))
    if REFUSED in adoptions:
        is_refused = not adoptions[REFUSED]["adopted"] or bool(adoptions[REFUSED]["refused"])
        lines.append(target(f"{REFUSED}, which uses cub", "refused" if is_refused else "taken", "refused", is_refused))
    rows = []
    for name, row in adoptions.items():
        kinds = [row[key] if row["adopted"] else "-" for key in ("kernels", "classes", "parameters", "check")]
        seconds = f"{row['adopt_s']:.0f} ({row['adopt_cpu_s']:.0f})"
        cells = [cell for tau in taus for cell in _result_cells(found.get((name, tau)))]
        rows.append((name, row["arguments"] or "-", "yes" if row["adopted"] else "no", *kinds, seconds, *cells))
    columns: tuple[str, ...] = (
        "program",
        "arguments",
        "adopted",
        "kernels",
        "classes",
        "parameters",
        "own check",
        "s (busy)",
    )
    columns += tuple(what for tau in taus for what in (f"speedup at {tau:g}", "error"))
    reasons = [f"- {name}: {row['why']}" for name, row in adoptions.items() if row["why"]]
    reasons += [f"- {name}: {why}" for name, row in adoptions.items() for why in row["refused"]]
    reasons += [f"- {r['program']} at {r['threshold']:g}: {r['why']}" for r in searches if r["code"] not in (0, 1)]
    return "\n\n".join(
        part
        for part in (
            "`mptune adopt` of programs without an edit, and `mptune tune` of what it wrote, with "
            f"{options.budget} evaluations at each threshold, or as many as begin within {options.time_limit:g} s. "
            "Speedups, with 95% intervals, are against the fastest in the program's own types; errors are "
            "those of the program's answer, the worst of fresh inputs that no search had.",
            "\n".join(lines),
            bench.table(columns, rows),
            "What was refused, or failed:\n\n" + "\n".join(reasons) if reasons else "",
        )
        if part
    )


def _result_cells(row: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return the speedup at a threshold, and the error on fresh inputs with how many of them break the threshold."""
    if row is None or row["speedup"] is None:
        return ("-" if row is None else "none", "-")
    low, high = row["speedup_interval"] or (None, None)
    interval = f" ({low:.2f} to {high:.2f})" if low is not None and low != high else ""
    verified = row["verified"] or {}
    worst = verified.get("worst_error")
    broken = f", {verified['violations']} of {verified['inputs']} break it" if verified.get("violations") else ""
    return f"{row['speedup']:.2f}{interval}", "-" if worst is None else f"{worst:.2g}{broken}"


def _handwritten_page(entries: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    speeds = [entry["speed"] for entry in entries if "speed" in entry]
    middle, least = (mean(speeds), min(speeds, default=math.nan)) if len(speeds) == len(entries) else (math.nan,) * 2
    rows = []
    for entry in entries:
        if "speed" not in entry:
            rows.append((entry["program"], entry["why"], *"-----"))
            continue
        times = {way: statistics.median(values) for way, values in entry["times_ms"].items()}
        pairs = [", ".join(f"{entry[what][way]:.3g}" for way in times) for what in ("speedup", "error")]
        shown = (f"{times['adopted']:.3g}", f"{times['handwritten']:.3g}", f"{entry['speed']:.2f}")
        rows.append((entry["program"], entry["metric"], *shown, *pairs))
    wanted = TARGETS["handwritten"]
    return "\n\n".join(
        (
            "## Beside hand-written templates",
            "Plain CUDA versions of bundled kernels (`benchmarks/programs`), written from what the kernels compute "
            f"without a look at their templates. Both are tuned for an error of {options.handwritten_error:g} at the "
            f"same size, with {options.budget} evaluations; their winners take turns in one process, in {_ROUNDS} "
            "rounds.",
            target("speed of the adopted, geometric mean", f"{middle:.2f}", f"≥ {wanted:g}", middle >= wanted)
            + "\n"
            + target("the least", f"{least:.2f}", f"≥ {TARGETS['least']:g}", least >= TARGETS["least"]),
            bench.table(
                ("program", "metric", "adopted (ms)", "hand-written (ms)", "speed", "speedups over fp64", "errors"),
                rows,
            ),
        )
    )


def _promise_page(entries: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    compared = [entry for entry in entries if "faster" in entry]
    faster = [entry["faster"] for entry in compared]
    fewer = fewer_compilations(compared)
    rows = []
    for entry in entries:
        name = f"{entry['program']}, {entry['digits']}"
        if "faster" not in entry:
            rows.append((name, entry["why"], *"-------"))
            continue
        both = [entry["promise"], entry["mptune"]]
        times = [f"{entry['ms'][way]:.3g}" for way in ("double", "promise", "mptune")]
        counts = [one["compilations"] for one in both]
        kinds = f"{both[0]['variables']}, {both[1]['classes']}"
        rows.append(
            (name, *times, f"{entry['faster']:.2f}", *counts, kinds, ", ".join(f"{b['cpu_s']:.0f}" for b in both))
        )
    columns: tuple[str, ...] = ("program, digits", "double C++ (ms)", "PROMISE (ms)", "mptune (ms)", "faster")
    columns += ("PROMISE's compilations", "mptune's", "variables, classes", "s")
    wanted = TARGETS["faster"]
    return "\n\n".join(
        (
            "## Beside PROMISE",
            f"cadnaPromise with the types {options.precisions}, on C++ versions of the same kernels, which "
            "`benchmarks/promise.py` writes and compiles for timing as the host backend compiles; both run on all "
            "cores, and times are medians of their launches. Both are asked for as many digits of every number of the "
            f"answer. `mptune` searches types, blocks and whatever else adoption found, with {options.budget} "
            "evaluations. A compilation is one of a program or kernel; those of mptune are all binaries from adoption "
            "on. What is compiled once on a machine is left out of both. Seconds are of busy cores.",
            target("programs compared", str(len(compared)), "≥ 6", len(compared) >= 6)
            + "\n"
            + target("speed beside PROMISE's code", f"{mean(faster):.2f}", f"≥ {wanted:g}", mean(faster) >= wanted)
            + f"\n- times as few compilations, geometric mean: {mean(fewer):.2f}",
            bench.table(columns, rows),
        )
    )


def fewer_compilations(entries: Iterable[Mapping[str, Any]]) -> list[float]:
    """Return how many times as few compilations ``mptune`` took than PROMISE."""
    return [entry["promise"]["compilations"] / entry["mptune"]["compilations"] for entry in entries]


# -- the command -----------------------------------------------------------------------------------


def measure(options: argparse.Namespace, sheet: bench.Sheet) -> None:
    """Measure the parts that are asked for."""
    parts = bench.names_in(options.parts, PARTS, "part")
    known = programs_in(options.folder) if "programs" in parts else {}
    chosen = bench.names_in(options.programs, {*known, *HANDWRITTEN, *DIGITS}, "program")
    # Of a whole collection, those that are named here.
    of_folder = chosen or [name for name in known if name in NAMED] or list(known)
    for name in (name for name in of_folder if name in known):
        measure_program(known[name], options, sheet)
    common = {"budget": options.budget, "seed": options.seed}
    for name in HANDWRITTEN if "handwritten" in parts else ():
        if not chosen or name in chosen:
            made = functools.partial(handwritten, name, options)
            sheet.add(f"handwritten {name}", made, max_error=options.handwritten_error, **common)
    if "promise" in parts:
        promise.installed(options.promise)
    for name in DIGITS if "promise" in parts else ():
        for digits in DIGITS[name][1] if not chosen or name in chosen else ():
            made = functools.partial(beside_promise, name, digits, options)
            sheet.add(f"promise {name}, {digits}", made, precisions=options.precisions, **common)


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = bench.parser(__doc__, bench.RESULTS / "adopt.md")
    made.add_argument(
        "folder", type=Path, nargs="?", default=PROGRAMS, help="of programs (default: benchmarks/programs)"
    )
    made.add_argument("--parts", default="programs", metavar="PART,...", help=", ".join(PARTS))
    made.add_argument(
        "--programs", default="", metavar="NAME,...", help="only these (default: those named here, or all)"
    )
    made.add_argument("--thresholds", default="1e-3,1e-6,1e-9", metavar="X,...", help="of the program's answer")
    made.add_argument("--handwritten-error", type=float, default=1e-4, help="threshold beside hand-written templates")
    made.add_argument("--promise", type=Path, default=Path(sys.prefix), metavar="ENVIRONMENT", help="where PROMISE is")
    made.add_argument("--precisions", default="sd", help="types PROMISE may choose from, by its letters")
    made.add_argument("--budget", type=int, default=60, help="evaluations of each search")
    made.add_argument("--time-limit", type=float, default=40.0, help="seconds of each search of a program")
    made.add_argument("--seed", type=int, default=0)
    return made


if __name__ == "__main__":
    scripts = [Path(promise.__file__), promise.HEADER]
    sys.exit(bench.main(parser(), "Programs as they stand", measure, page, scripts=scripts))
