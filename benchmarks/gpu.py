"""mptune on a GPU: axpy and gemm beside the vendor's libraries, Kernel Tuner, whole search spaces, energy.

    python benchmarks/gpu.py [--sections axpy,gemm,...] [--backend auto] [--time-limit 450] [--output FILE.md]
    python benchmarks/gpu.py --plan 30
    python benchmarks/gpu.py --merge ELSEWHERE.json
    python benchmarks/gpu.py --compile sm_90 [--plan 30]

Each section takes at most --time-limit seconds. They run in this order:

    axpy    share of the device's copy bandwidth by precision
    gemm    against cuBLAS, with double buffering and prefetch, without, and by matrix units
    peer    evaluations per second beside Kernel Tuner (needs ``mptune[benchmarks]``)
    spaces  whole search spaces, their fronts and speedups relative to fp64 (Heldens 2026, Figs. 2 and 3)
    energy  time and energy by accuracy (Heldens 2026, Fig. 12)

``--plan MINUTES`` shares out that much time: first the tests that need a device, then the sections, what matters most
first. The figures are stored beside the page as JSON, after each part of a section, so that what ends the benchmark
early takes little with it. A run replaces only the sections it measured, so they can be measured one by one;
``--merge`` adds those of another run's file, such as one of another machine. A section that lacks a library says so and
is skipped. Recorded spaces are written to --data; ``spaces`` keeps its progress in --work and continues from there. A
section without figures shows the command that measures it. ``--placeholder`` only writes the page.

``--compile`` needs no device: what the sections begin with is compiled into the cache of binaries, the folder
``$MPTUNE_CACHE_DIR``, to be taken to a device whose compiler is of the same version. The same command goes on after
``--time-limit``.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu_sections import axpy, energy, gemm, peer, spaces  # noqa: E402
from benchmarks.gpu_sections.section import Options, Section, Source  # noqa: E402
from benchmarks.kernels import THRESHOLDS  # noqa: E402
from mptune import __version__  # noqa: E402
from mptune.backends import BACKENDS, get_backend  # noqa: E402
from mptune.backends.base import CompileOptions  # noqa: E402
from mptune.backends.processor import usable_cores  # noqa: E402
from mptune.errors import BackendUnavailableError, CompileError, MptuneError, UnknownNameError  # noqa: E402
from mptune.measure.pool import runnable_backend  # noqa: E402
from mptune.paths import write_whole  # noqa: E402
from mptune.run import json_document  # noqa: E402
from mptune.source.render import render  # noqa: E402
from tests.support.simulator import MADE_UP  # noqa: E402

SECTIONS: Final[Mapping[str, Section]] = {
    section.name: section for section in (axpy.SECTION, gemm.SECTION, peer.SECTION, spaces.SECTION, energy.SECTION)
}
FOLDER: Final = Path(__file__).parent
OUTPUT: Final = FOLDER / "results" / "gpu.md"
GPUS: Final = ("cuda", "hip")
#: What of the time of --plan each part gets, in the order in which they run.
DEVICE_TESTS: Final = 0.2
PLAN: Final = {"gemm": 0.28, "axpy": 0.1, "peer": 0.1, "spaces": 0.18, "energy": 0.14}
#: The sizes of gemm, where there is time for all, and in a plan: that of the target first.
MATRICES: Final = "1024,2048,4096"
PLAN_MATRICES: Final = "4096,1024"
#: Named one by one: collecting all tests would take a good part of it.
TESTS: Final = (
    *("backends/test_vendors.py", "conformance/test_backend.py", "kernels/test_devices.py"),
    *("conformance/test_prelude_pairs.py", "evaluators/test_outputs_on_device.py", "observers/test_on_device.py"),
)


def found_backend(name: str) -> str:
    """Return the name of a backend that can run here; "auto" selects the first GPU backend, never the host.

    Raises:
        UnknownNameError: no backend has that name.
        BackendUnavailableError: the backend cannot run here, or there is no GPU.
    """
    if name != "auto":
        return runnable_backend(name)
    reasons = []
    for candidate in GPUS:
        availability = BACKENDS[candidate].availability()
        if availability.can_run:
            return candidate
        reasons.append(f"{candidate}: {availability.reason}")
    raise BackendUnavailableError(f"no GPU is available; {'; '.join(reasons)}")


def measured(section: Section, options: Options, time_limit_s: float) -> Iterator[dict[str, Any]]:
    """Measure a section; yield its figures so far with the device, date and command, the last time all of them."""
    device = get_backend(options.backend).describe()
    start = time.monotonic()
    for document in section.measure(options, start + time_limit_s):
        yield {
            "command": options.command,
            "date": datetime.now(UTC).date().isoformat(),
            "device": device.name,
            "architecture": device.architecture,
            "versions": {"mptune": __version__, **device.versions},
            "time_limit_s": time_limit_s,
            "wall_s": round(time.monotonic() - start, 1),
            **document,
        }


# -- the page --------------------------------------------------------------------------------------


def page(documents: Mapping[str, Any]) -> str:
    """Return the page: the figures of each section, or the command that measures it."""
    lines = ["# On a GPU", ""]
    for name, section in SECTIONS.items():
        document = documents.get(name)
        lines += [f"## {section.title}", "", *(missing(name) if document is None else head(document))]
        if document is not None:
            lines += section.lines(document)
        lines.append("")
    return "\n".join(lines).rstrip().replace("\n\n\n", "\n\n") + "\n"


def missing(name: str) -> list[str]:
    """Return the lines of a section that has not been measured."""
    text = "Not measured. On a machine with a GPU, this fills the section:"
    return [text, "", f"    {command(name)}"]


def command(name: str) -> str:
    """Return the command that measures a section."""
    return f"python benchmarks/gpu.py --sections {name}"


def head(document: Mapping[str, Any]) -> list[str]:
    """Return the lines that say on which device, when and how a section was measured."""
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    lines = [
        f"    {document['command']}",
        "",
        f"{document['device']} ({document['architecture']}); {versions}; {document['date']}.",
        "",
    ]
    if "failure" in document:
        lines += [f"It failed before everything was measured: {document['failure']}", ""]
    elif not document["complete"]:
        lines += [f"Not everything was measured within the time limit of {document['time_limit_s']:g} s.", ""]
    return lines


def stored(path: Path, *, must_exist: bool = False) -> dict[str, Any]:
    """Return the figures of earlier runs, by section.

    Raises:
        MptuneError: the file was not written by this benchmark, or it must be there and is not.
    """
    if not path.exists():
        if must_exist:
            raise MptuneError(f"{path}: there is no such file of figures")
        return {}
    try:
        documents = json.loads(path.read_text(encoding="utf-8"))["sections"]
        found = {name: documents[name] for name in SECTIONS if name in documents}
        page(found)  # what cannot be shown is none of ours
        return found
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise MptuneError(f"{path}: not a file of figures that this benchmark wrote: {error!r}") from None


def write(path: Path, documents: Mapping[str, Any]) -> None:
    """Write the page, and the figures beside it if there are any."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page(documents).encode())
    if documents:
        text = json.dumps({"sections": documents}, separators=(",", ":"), allow_nan=False)
        write_whole(path.with_suffix(".json"), f"{text}\n".encode())


# -- the command -----------------------------------------------------------------------------------


def run(given: argparse.Namespace, options: Options, limits_s: Mapping[str, float]) -> int:
    """Measure sections, writing the page after each part; if one fails, with whatever error, the others still run.

    Returns 0 if none failed and something was measured, else 2.
    """
    documents = stored(given.output.with_suffix(".json"))
    failed, measures = False, False
    for name, limit_s in limits_s.items():
        print(f"{name}: for at most {limit_s:g} s", file=sys.stderr, flush=True)
        document: dict[str, Any] = {}
        try:
            for document in measured(SECTIONS[name], options, limit_s):
                documents[name] = json_document(document)
                write(given.output, documents)
        except Exception as error:
            what = str(error) if isinstance(error, MptuneError) else f"{type(error).__name__}: {error}"
            is_skipped = isinstance(error, BackendUnavailableError) and not document
            print(
                f"section {name}: skipped: {what}" if is_skipped else f"error: section {name}: {what}", file=sys.stderr
            )
            failed = failed or not is_skipped
            if document:
                documents[name] = json_document({**document, "failure": what})
                write(given.output, documents)
        if document:
            measures = True
            print("\n".join([*head(documents[name]), *SECTIONS[name].lines(documents[name])]), flush=True)
    return 0 if measures and not failed else 2


def compile_first(options: Options, names: Sequence[str], architecture: str, limit_s: float) -> int:
    """Compile what sections begin with; return 0, or 2 if something fails to compile or there is not enough time."""
    backend = get_backend(options.backend)
    until = time.monotonic() + limit_s
    flags = CompileOptions(architecture=architecture)

    def message(source: Source) -> str:
        kernel, sizes, configuration = source
        if time.monotonic() >= until:
            return "not compiled: the time is over"
        try:
            backend.compiler.compile(render(kernel, configuration, sizes), kernel.function, flags)
        except CompileError as error:
            return f"{kernel.name} at {configuration}: {str(error).splitlines()[0]}"
        return ""

    code = 0
    for name in names:
        begins = SECTIONS[name].begins
        if begins is None:
            continue
        with ThreadPoolExecutor(usable_cores()) as pool:
            messages = list(pool.map(message, begins(options, backend.facts(architecture))))
        failed = [text for text in messages if text]
        print(f"{name}: {len(messages) - len(failed)} of {len(messages)} compiled for {architecture}", flush=True)
        if failed:
            print(f"error: section {name}: {failed[0]}", file=sys.stderr, flush=True)
            code = 2
    return code


def run_device_tests(limit_s: float) -> int:
    """Run the tests that need a device; return 0 if they pass, 2 if they fail or there is not enough time."""
    print(f"device tests: for at most {limit_s:g} s", file=sys.stderr, flush=True)
    files = [str(ROOT / "tests" / name) for name in TESTS]
    words = [sys.executable, "-m", "pytest", "-q", "-m", "gpu and not nightly", "-W", "default", *files]
    try:
        failed = subprocess.run(words, cwd=ROOT, stdout=sys.stderr, timeout=limit_s, check=False).returncode != 0
    except subprocess.TimeoutExpired:
        failed = True
    if failed:
        print("error: the tests that need a device fail, or took too long", file=sys.stderr, flush=True)
    return 2 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 0 if it ended well, 2 for wrong input or if there is no GPU."""
    given = _parser().parse_args(arguments)
    text = shlex.join(["python", "benchmarks/gpu.py", *(sys.argv[1:] if arguments is None else arguments)])
    try:
        names = _names(given.sections, SECTIONS, "section") or tuple(SECTIONS)
        if given.placeholder or given.merge:
            documents = stored(given.output.with_suffix(".json"))
            for path in given.merge:
                documents |= stored(path, must_exist=True)
            write(given.output, documents)
            print(page(documents), end="")
            return 0
        options = _options(given, text)
        if given.compile:
            return compile_first(options, [n for n in PLAN if n in names], given.compile, given.time_limit)
        if given.plan is None:
            return run(given, options, dict.fromkeys(names, given.time_limit))
        plan_s = {name: share * given.plan * 60 for name, share in PLAN.items() if name in names}
        return max(run_device_tests(DEVICE_TESTS * given.plan * 60), run(given, options, plan_s))
    except BackendUnavailableError as error:
        print(f"error: {error}", file=sys.stderr)
        print("On a machine with a GPU, run (--placeholder writes the page without measuring):", file=sys.stderr)
        print("\n".join(f"    {command(name)}" for name in names), file=sys.stderr)
        return 2
    except MptuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _options(given: argparse.Namespace, text: str) -> Options:
    """Return the checked options.

    Raises:
        MptuneError: a number is out of range, a name unknown, or the backend not available.
    """
    if not (given.time_limit > 0 and math.isfinite(given.time_limit)):
        raise MptuneError(f"--time-limit {given.time_limit:g}: expected a number of seconds above 0")
    if given.plan is not None and not (given.plan > 0 and math.isfinite(given.plan)):
        raise MptuneError(f"--plan {given.plan:g}: expected a number of minutes above 0")
    for name in ("budget", "candidates", "rounds"):
        if getattr(given, name) < 1:
            raise MptuneError(f"--{name} {getattr(given, name)}: expected at least 1")
    if given.seed < 0:
        raise MptuneError(f"--seed {given.seed}: expected a whole number from 0 on")
    shapes = given.matrices or (MATRICES if given.plan is None else PLAN_MATRICES)
    matrices = [part.strip() for part in shapes.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in matrices):
        raise MptuneError(f"--matrices {shapes}: expected whole numbers above 0, separated by commas")
    kernels = _names(given.kernels, THRESHOLDS, "kernel")
    if given.compile:  # what is compiled for need not be here
        backend = "cuda" if given.backend == "auto" else given.backend
    else:
        backend = found_backend(given.backend)
        if given.output == OUTPUT and (backend == "host" or MADE_UP in get_backend(backend).describe().name):
            what = "--backend host" if backend == "host" else "a simulated device"
            raise MptuneError(f"{what} is for trying out the sections: give another --output than {OUTPUT.name}")
    return Options(
        backend=backend,
        size=given.size,
        kernels=kernels,
        matrices=tuple(int(part) for part in matrices),
        budget=given.budget,
        candidates=given.candidates,
        rounds=given.rounds,
        seed=given.seed,
        work=given.work,
        data=given.data,
        command=text,
    )


def _names(text: str, known: Mapping[str, Any], what: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list.

    Raises:
        UnknownNameError: a name is not known.
    """
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in known:
            raise UnknownNameError(what, name, known)
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", default="", help="names, separated by commas [all]")
    parser.add_argument("--backend", default="auto", help="auto (the first GPU), cuda, hip, or host to try it out")
    parser.add_argument("--time-limit", type=float, default=450.0, help="seconds for each section, approximately [450]")
    parser.add_argument("--plan", type=float, metavar="MINUTES", help="share out this time: tests, then sections")
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE.json",
        help="add other runs' sections, measure nothing",
    )
    parser.add_argument("--compile", metavar="ARCH", help="compile what sections begin with, measure nothing")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the page; the figures are stored beside it")
    parser.add_argument("--data", type=Path, default=FOLDER / "data", help="folder for recorded spaces")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "gpu", help="folder for the progress of spaces")
    parser.add_argument("--size", help="size preset [paper; in peer: default]")
    parser.add_argument(
        "--kernels", default="", help="kernels of spaces and energy, separated by commas [own for each]"
    )
    parser.add_argument("--matrices", help=f"M = N = K of gemm [{MATRICES}; in a plan {PLAN_MATRICES}]")
    parser.add_argument("--budget", type=int, default=100, help="evaluations of each tool in a round of peer [100]")
    parser.add_argument("--candidates", type=int, default=3, help="fastest of each kind, measured again [3]")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in which the things compared take turns [5]")
    parser.add_argument("--seed", type=int, default=0, help="seed of inputs and searches [0]")
    parser.add_argument("--placeholder", action="store_true", help="write the page without measuring")
    return parser


if __name__ == "__main__":
    sys.exit(main())
