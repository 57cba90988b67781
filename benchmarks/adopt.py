"""What ``mptune adopt`` makes of CUDA programs as they stand: which it takes, how fast they become, and at which error.

    python benchmarks/adopt.py FOLDER [--sample 60 --seed 16] [--programs heat-cuda,...] [--processes 2] [--resume]
    python benchmarks/adopt.py --parts handwritten,promise [--promise ENVIRONMENT] --resume

``programs``: programs of a folder, all or a sample, are adopted with nothing but their folder, tuned at two thresholds
of their answer, and written with the types found. The folder is ``benchmarks/programs``, or a checkout of a collection
such as HeCBench, whose programs are the folders ``NAME-cuda``; elsewhere every folder with a kernel is one.
``handwritten``: plain CUDA versions of bundled kernels, adopted and tuned, beside their hand-written templates, tuned
at the same threshold and size; both winners take turns in one process. ``promise``: the same programs for PROMISE
(``benchmarks/promise.py``), at as many correct digits.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import json
import math
import os
import random
import re
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
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
#: Share of programs taken; what follows are speeds and numbers of compilations.
TARGETS: Final = {"taken": 0.5, "handwritten": 0.95, "least": 0.8, "faster": 1.3, "compilations": 10.0}
#: Rounds in which two winners take turns.
_ROUNDS: Final = 15
#: Words of ``mptune tune`` to judge by one draw of the inputs, that of the program.
_OWN_DATA: Final = ("--inputs", "1", "--verify", "0")
#: Files in which a kernel is looked for.
_SUFFIXES: Final = (".cu", ".cuh", ".h", ".hpp", ".cpp")
#: Seconds that a command may take, and those it has to clean up.
_TIMEOUT_S: Final = 1800.0
_LEAVING_S: Final = 20.0
#: Why programs are not taken, by what the message says; the first that fits.
_CAUSES: Final[Mapping[str, str]] = {
    "it takes too long": r"took more than|did not end|time limit",
    "it needs too much memory": r"of memory|bad_alloc|out of memory",
    "a library": r"\bcub\b|thrust|cublas|cusparse|cufft|cusolver|curand|cudnn|nccl|nvshmem|mpi\.h|a library",
    "a file is not there": r"which is not there|no such file|cannot open|file not found|No rule to make",
    "a texture or surface": r"texture|surface",
    "warp intrinsics": r"warp|__shfl|ballot|lane",
    "cooperative groups": r"cooperative",
    "inline assembly": r"assembly|\basm\b",
    "a kernel launches kernels": r"launches a kernel",
    "its own check fails": r"own check fails",
    "kernels compute nothing that it copies back": r"copies back is computed",
    "its kernels as templates give another answer": r"as templates|is not the program's",
    "nothing to tune": r"nothing to tune|no kernel|launches no kernel",
    "it does not compile": r"does not compile",
    "it crashes": r"was ended by SIG|exited with code",
}
#: In a file of the cache the type of an ELF file lies here, and is this of one that is yet to be linked.
_TYPE_AT: Final = 32 + 16
_RELOCATABLE: Final = b"\x01\x00"


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the folder.

    Attributes:
        name: of the program.
        source: its only file, or its folder.
        arguments: those of its ``main``; None for those of its Makefile.
    """

    name: str
    source: Path
    arguments: tuple[str, ...] | None


def programs_in(folder: Path) -> dict[str, Program]:
    """Return the programs of a folder by name.

    Raises:
        MptuneError: there are none.
    """
    if (folder / "src").is_dir():
        folder = folder / "src"
    places = sorted(folder.glob("*-cuda")) or sorted(path for path in folder.iterdir() if path.is_dir())
    found = {path.name: Program(path.name, path, None) for path in places if has_kernel(path)}
    found |= {path.stem: Program(path.stem, path, ()) for path in sorted(folder.glob("*.cu"))}
    if not found:
        raise MptuneError(f"{folder} has no programs: expected NAME.cu files, or folders with kernels")
    return found


def has_kernel(folder: Path) -> bool:
    """Whether a folder has a kernel, and floating-point numbers."""
    files = (path for path in folder.rglob("*") if path.suffix in _SUFFIXES and path.is_file())
    text = "".join(path.read_text(errors="ignore") for path in files)
    return "__global__" in text and re.search(r"\b(float|double)\b", text) is not None


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


def mptune(words: Sequence[str | Path], cache: Path, timeout_s: float = _TIMEOUT_S) -> Answer:
    """Run a command of mptune with compiled kernels in a folder of its own."""
    start, busy_s = time.monotonic(), children_s()
    command = [sys.executable, "-m", "mptune", *map(str, words)]
    environment = {**os.environ, "MPTUNE_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT), "TMPDIR": str(cache.parent)}
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, cwd=cache.parent, **how) as child:
        try:
            printed, errors = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.communicate(timeout=_LEAVING_S)
            child.kill()
            return Answer(-1, {}, f"took more than {timeout_s:g} s", time.monotonic() - start, children_s() - busy_s)
    try:
        document = json.loads(printed)
    except ValueError:
        document = {}
    return Answer(child.returncode, document, in_short(errors), time.monotonic() - start, children_s() - busy_s)


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


def adopted(
    program: Program, work: Path, cache: Path | None = None, limit_s: float = _TIMEOUT_S
) -> tuple[Answer, Path]:
    """Adopt a program; return what the command said, and the folder it wrote."""
    folder = work / re.sub(r"\W", "_", program.name)
    words: list[str | Path] = ["adopt", program.source.resolve(), "--output", folder, "--json"]
    given = [] if program.arguments is None else ["--", *program.arguments]
    return mptune([*words, *given], cache or work / "cache", limit_s), folder


def tuned(definition: Path | str, run: Path, max_error: float, options: argparse.Namespace, *words: str) -> Answer:
    """Tune a definition or a bundled kernel by the processor's times; return what the command said."""
    settings = (
        f"--backend host --for host --max-error {max_error:g} --budget {options.budget} --seed {options.seed} --json"
    )
    return mptune(["tune", definition, *settings.split(), "--output", run, *words], run.parent / "cache")


def measure_program(program: Program, options: argparse.Namespace, cache: Path) -> dict[str, Any]:
    """Return what becomes of a program: adopted or refused and why, and the result at each threshold."""
    with tempfile.TemporaryDirectory(dir=cache.parent) as temporary:
        work = Path(temporary)
        answer, folder = adopted(program, work, cache, options.adopt_limit)
        row = {
            "name": program.name,
            "taken": answer.code == 0,
            "why": "" if answer.code == 0 else answer.message,
            "seconds": answer.wall_s,
            **facts(answer.document),
            "thresholds": [],
        }
        for tau in map(float, options.thresholds.split(",")) if row["taken"] else ():
            run = work / f"{tau:g}.db"
            words = f"--max-error {tau:g} --budget {options.budget} --time-limit {options.time_limit:g} --json"
            said = mptune(["tune", folder, *words.split(), "--output", run], cache)
            best = said.document.get("best") or {}
            searched = {
                "threshold": tau,
                "why": "" if best else said.message,
                "wall_s": said.wall_s,
                "evaluations": said.document.get("evaluations", 0),
                **{key: best.get(key) for key in ("speedup", "speedup_interval", "error", "verified", "settled")},
            }
            row["thresholds"].append(searched | (written(program, run, tau, cache) if best else {}))
        return row


def written(program: Program, run: Path, tau: float, cache: Path) -> dict[str, Any]:
    """Return what ``emit --into`` made of a program with the winner of a run."""
    output = run.parent / f"{tau:g}" / program.source.name
    output.parent.mkdir(exist_ok=True)
    said = mptune(["emit", run, "--into", program.source.resolve(), "--output", output, "--json"], cache)
    root = output if program.source.is_dir() else output.parent
    own = program.source if program.source.is_dir() else program.source.parent
    lines = 0
    for file in map(Path, said.document.get("files", ())):
        old, new = (path.read_text(errors="replace") for path in (own / file.relative_to(root), file))
        changes = difflib.unified_diff(old.splitlines(), new.splitlines()[:-1], n=0, lineterm="")
        lines += sum(line.startswith("+") and not line.startswith("+++ ") for line in changes)
    return {
        "emit_code": said.code,
        "emit_why": "" if said.code == 0 else said.message,
        "lines": lines,
        "check": (said.document.get("check") or {}).get("patched", ""),
        "patched_error": said.document.get("error"),
        "patched": said.document.get("within"),
    }


def facts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page says of an adopted program."""
    parameters, program = document.get("parameters", ()), document.get("program", {})
    return {
        "arguments": shlex.join(program.get("arguments", ())),
        "kernels": len(document.get("kernels", ())),
        "classes": sum(len(parameter["classes"]) for parameter in parameters) + len(document.get("kept", ())),
        "parameters": len(parameters),
        "check": program.get("check", ""),
        "run_s": document.get("run_s"),
        "notes": [in_short(each) for each in (*document.get("notes", ()), *document.get("refused", ()))],
    }


def cause_of(why: str) -> str:
    """Return the cause of a refusal by its message."""
    return next((cause for cause, words in _CAUSES.items() if re.search(words, why, re.IGNORECASE)), "something else")


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
    programs = [row for key, row in results.items() if key.startswith("program ")]
    by_hand = [row for key, row in results.items() if key.startswith("handwritten ")]
    peers = [row for key, row in results.items() if key.startswith("promise ")]
    parts = [_programs_page(programs, options)] if programs else []
    parts += [_handwritten_page(by_hand, options)] if by_hand else []
    parts += [_promise_page(peers, options)] if peers else []
    return "\n\n".join(parts)


def _programs_page(rows: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    taken = [row for row in rows if row["taken"]]
    taus = list(dict.fromkeys(each["threshold"] for row in taken for each in row["thresholds"]))
    wanted = TARGETS["taken"]
    is_met = len(taken) >= wanted * len(rows)
    lines = [target(f"programs taken of {len(rows)}", str(len(taken)), f"≥ {wanted:.0%}", is_met)]
    for tau in taus:
        found = [each for row in taken for each in row["thresholds"] if each["threshold"] == tau]
        speeds = [each["speedup"] for each in found if each["speedup"] is not None]
        if not speeds:
            continue
        checks = [each["check"] for each in found if each.get("check")]
        right = sum(bool(each.get("patched")) for each in found)
        lines.append(
            f"- at {tau:g}: {len(speeds)} programs tuned, speedup {mean(speeds):.2f} (geometric mean), "
            f"{sum(speed >= 1.1 for speed in speeds)} of them 1.1 or more; {right} written programs within the "
            f"threshold, {checks.count('passed')} of {len(checks)} with a check of their own pass it"
        )
    why = Counter(cause_of(row["why"]) for row in rows if not row["taken"])
    cells = [
        (
            *(row["name"], row["arguments"] or "-", f"{row['seconds']:.0f}", row["kernels"], row["classes"]),
            *(row["check"] or "-", *(cell for tau in taus for cell in _result_cells(row, tau))),
        )
        for row in taken
    ]
    results = ("speedup at {:g}", "error", "lines written", "written program")
    columns: tuple[str, ...] = ("program", "arguments", "s", "kernels", "classes", "own check")
    columns += tuple(each.format(tau) for tau in taus for each in results)
    parts = (
        "`mptune adopt FOLDER`, with nothing else said, of programs that were drawn at random or are named; then "
        f"`mptune tune` with {options.budget} evaluations at each threshold, or as many as begin within "
        f"{options.time_limit:g} s, and `mptune emit --into`. Adoptions end after {options.adopt_limit:g} s. "
        "Speedups are against the fastest in the program's own types, for an A100 by estimates where no GPU "
        "is there; errors are the worst on fresh inputs.",
        "\n".join(lines),
        bench.table(columns, cells) if cells else "",
        "Why programs were not taken:" if why else "",
        bench.table(("cause", "programs"), why.most_common()) if why else "",
        "\n".join(f"- {row['name']} ({row['seconds']:.0f} s): {row['why']}" for row in rows if not row["taken"]),
        "\n".join(
            f"- {row['name']} at {each['threshold']:g}: {each['why'] or each['emit_why']}"
            for row in taken
            for each in row["thresholds"]
            if each["why"] or each.get("emit_why")
        ),
    )
    return "\n\n".join(part for part in parts if part)


def _result_cells(row: Mapping[str, Any], tau: float) -> tuple[str, str, str, str]:
    """Return speedup, error on fresh inputs, lines that were written, and whether the written program is right."""
    found = next((each for each in row["thresholds"] if each["threshold"] == tau), None)
    if found is None or found["speedup"] is None:
        return ("-" if found is None else "none", "-", "-", "-")
    low, high = found["speedup_interval"] or (None, None)
    interval = f" ({low:.2f} to {high:.2f})" if low is not None and low != high else ""
    verified = found["verified"] or {}
    worst = verified.get("worst_error")
    broken = f", {verified['violations']} of {verified['inputs']} break it" if verified.get("violations") else ""
    within = {True: "within", False: "NOT within", None: "not compared"}[found["patched"]]
    state = f"{within}, {found['check']}" if found["check"] else within
    error = "-" if worst is None else f"{worst:.2g}{broken}"
    return f"{found['speedup']:.2f}{interval}", error, str(found["lines"]), state


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


def measure_programs(programs: Iterable[Program], options: argparse.Namespace, sheet: bench.Sheet) -> None:
    """Measure programs, several at once; each is stored as soon as it is measured."""
    settings = {"thresholds": options.thresholds, "budget": options.budget, "time_limit": options.time_limit}
    waiting: dict[Future[dict[str, Any]], tuple[str, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="mptune-") as name, ThreadPoolExecutor(options.processes) as pool:
        for program in programs:
            files = program.source.rglob("*") if program.source.is_dir() else [program.source]
            given = {**settings, "source": bench.digest_of(file for file in files if file.is_file())}
            if not (sheet.resume and sheet.is_fresh(f"program {program.name}", given)):
                future = pool.submit(measure_program, program, options, Path(name) / "cache")
                waiting[future] = f"program {program.name}", given
        for done in as_completed(waiting):
            key, given = waiting[done]
            sheet.put(key, done.result(), **given)
            print(f"{key}: {done.result()['why'] or 'taken'}", file=sys.stderr, flush=True)


def measure(options: argparse.Namespace, sheet: bench.Sheet) -> None:
    """Measure the parts that are asked for."""
    parts = bench.names_in(options.parts, PARTS, "part")
    known = programs_in(options.folder) if "programs" in parts else {}
    chosen = bench.names_in(options.programs, {*known, *HANDWRITTEN, *DIGITS}, "program")
    names = [name for name in chosen or known if name in known]
    if options.sample and not chosen:
        names = random.Random(options.seed).sample(names, min(options.sample, len(names)))
    measure_programs([known[name] for name in names], options, sheet)
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
    made.add_argument("--programs", default="", metavar="NAME,...", help="only these (default: all)")
    made.add_argument("--sample", type=int, default=0, metavar="N", help="only N programs, drawn at random by --seed")
    made.add_argument("--processes", type=int, default=1, metavar="N", help="programs at the same time")
    made.add_argument("--adopt-limit", type=float, default=150.0, metavar="SECONDS", help="of each adoption")
    made.add_argument("--thresholds", default="1e-3,1e-6", metavar="X,...", help="of the program's answer")
    made.add_argument("--handwritten-error", type=float, default=1e-4, help="threshold beside hand-written templates")
    made.add_argument("--promise", type=Path, default=Path(sys.prefix), metavar="ENVIRONMENT", help="where PROMISE is")
    made.add_argument("--precisions", default="sd", help="types PROMISE may choose from, by its letters")
    made.add_argument("--budget", type=int, default=60, help="evaluations of each search")
    made.add_argument("--time-limit", type=float, default=60.0, help="seconds of each search of a program")
    made.add_argument("--seed", type=int, default=0)
    return made


if __name__ == "__main__":
    scripts = [Path(promise.__file__), promise.HEADER]
    sys.exit(bench.main(parser(), "Programs as they stand", measure, page, scripts=scripts))
