"""What mptune does on a GPU: gemm and axpy against the vendor's, a peer, the papers' figures, energy.

    python benchmarks/gpu.py [--sections axpy,gemm,...] [--backend auto] [--time-limit 450] [--output FILE.md]

Sections, each in the time of --time-limit, in the order of this list unless told otherwise:

    axpy    share of the device's copy bandwidth by precision
    gemm    against cuBLAS, with and without double buffering and prefetch
    peer    evaluations per second beside Kernel Tuner (needs ``mptune[benchmarks]``)
    spaces  whole search spaces, their fronts and speedups over fp64 (Heldens 2026, Figs. 2 and 3)
    energy  time and energy by accuracy (Heldens 2026, Fig. 12)

What was measured is kept beside the page as JSON, and each run replaces its own sections only: the page is filled
section by section, where need be on several days. Recorded spaces go to --data; a run of ``spaces`` goes on from what
--work holds. A section that was never measured says so, and which command measures it: with ``--placeholder`` the page
is written without measuring anything.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu_sections import axpy, energy, gemm, peer, spaces  # noqa: E402
from benchmarks.gpu_sections.section import Options, Section  # noqa: E402
from benchmarks.kernels import THRESHOLDS  # noqa: E402
from mptune import __version__  # noqa: E402
from mptune.backends import BACKENDS, get_backend  # noqa: E402
from mptune.errors import BackendUnavailableError, MptuneError, UnknownNameError  # noqa: E402
from mptune.evaluators.devices import runnable_backend  # noqa: E402
from mptune.run import json_safe  # noqa: E402

SECTIONS: Final[Mapping[str, Section]] = {
    section.name: section for section in (axpy.SECTION, gemm.SECTION, peer.SECTION, spaces.SECTION, energy.SECTION)
}
FOLDER: Final = Path(__file__).parent
OUTPUT: Final = FOLDER / "results" / "gpu.md"
GPUS: Final = ("cuda", "hip")


def found_backend(name: str) -> str:
    """Return the name of a backend that can run here; "auto" is the first GPU, never the processor.

    Raises:
        UnknownNameError: no backend has that name.
        BackendUnavailableError: it cannot run here, or there is no GPU; says why.
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


def measured(section: Section, options: Options, time_limit_s: float) -> dict[str, Any]:
    """Measure a section, and say on what, when and how."""
    device = get_backend(options.backend).device()
    start = time.monotonic()
    document = section.measure(options, start + time_limit_s)
    return {
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
    """Return the page: what was measured of each section, or the command that measures it."""
    lines = ["# On a GPU", ""]
    for name, section in SECTIONS.items():
        document = documents.get(name)
        lines += [f"## {section.title}", "", *(missing(name) if document is None else head(document))]
        if document is not None:
            lines += section.lines(document)
        lines.append("")
    return "\n".join(lines).rstrip().replace("\n\n\n", "\n\n") + "\n"


def missing(name: str) -> list[str]:
    """Return what a section says that was never measured."""
    said = "Not measured: no GPU was available. On a machine with one, this fills the section:"
    return [said, "", f"    {command(name)}"]


def command(name: str) -> str:
    """Return the command that measures a section."""
    return f"python benchmarks/gpu.py --sections {name}"


def head(document: Mapping[str, Any]) -> list[str]:
    """Return on what, when and how a section was measured."""
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    lines = [
        f"    {document['command']}",
        "",
        f"{document['device']} ({document['architecture']}); {versions}; {document['date']}.",
        "",
    ]
    if not document["complete"]:
        lines += [f"The time limit of {document['time_limit_s']:g} s ended it before everything was measured.", ""]
    return lines


def stored(path: Path) -> dict[str, Any]:
    """Return what earlier runs measured, by section.

    Raises:
        MptuneError: the file is not one of ours.
    """
    if not path.exists():
        return {}
    try:
        documents = json.loads(path.read_text(encoding="utf-8"))["sections"]
        return {name: documents[name] for name in SECTIONS if name in documents}
    except (ValueError, KeyError, TypeError) as error:
        raise MptuneError(f"{path}: not the figures of an earlier run of this benchmark: {error!r}") from None


def write(path: Path, documents: Mapping[str, Any]) -> None:
    """Write the page, and the figures beside it where there are any."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(documents), encoding="utf-8")
    if documents:
        text = json.dumps({"sections": documents}, separators=(",", ":"), allow_nan=False)
        path.with_suffix(".json").write_text(f"{text}\n", encoding="utf-8")


# -- the command -----------------------------------------------------------------------------------


def run(given: argparse.Namespace, options: Options, names: Sequence[str]) -> int:
    """Measure sections, writing the page after each; a section that fails keeps none of the others from its turn."""
    documents = stored(given.output.with_suffix(".json"))
    code = 0
    for name in names:
        print(f"{name}: for at most {given.time_limit:g} s", file=sys.stderr, flush=True)
        try:
            documents[name] = json_safe(measured(SECTIONS[name], options, given.time_limit))
        except MptuneError as error:
            print(f"error: section {name}: {error}", file=sys.stderr, flush=True)
            code = 2
            continue
        write(given.output, documents)
        print("\n".join([*head(documents[name]), *SECTIONS[name].lines(documents[name])]), flush=True)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when it ended well, 2 for wrong input or without a GPU."""
    given = _parser().parse_args(arguments)
    text = shlex.join(["python", "benchmarks/gpu.py", *(sys.argv[1:] if arguments is None else arguments)])
    try:
        names = _names(given.sections, SECTIONS, "section") or tuple(SECTIONS)
        if given.placeholder:
            documents = stored(given.output.with_suffix(".json"))
            write(given.output, documents)
            print(page(documents), end="")
            return 0
        return run(given, _options(given, text), names)
    except BackendUnavailableError as error:
        print(f"error: {error}", file=sys.stderr)
        print("With a GPU, these measure the sections (--placeholder writes the page without them):", file=sys.stderr)
        print("\n".join(f"    {command(name)}" for name in names), file=sys.stderr)
        return 2
    except MptuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _options(given: argparse.Namespace, text: str) -> Options:
    """Return the options, checked.

    Raises:
        MptuneError: a number is out of range, a name unknown, or the backend not available.
    """
    if not (given.time_limit > 0 and math.isfinite(given.time_limit)):
        raise MptuneError(f"--time-limit {given.time_limit:g}: expected seconds, more than 0")
    for name in ("budget", "candidates", "rounds"):
        if getattr(given, name) < 1:
            raise MptuneError(f"--{name} {getattr(given, name)}: expected at least 1")
    if given.seed < 0:
        raise MptuneError(f"--seed {given.seed}: expected a whole number from 0 on")
    matrices = [part.strip() for part in given.matrices.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in matrices):
        raise MptuneError(f"--matrices {given.matrices}: expected whole numbers above 0, separated by commas")
    kernels = _names(given.kernels, THRESHOLDS, "kernel")
    backend = found_backend(given.backend)
    if backend == "host" and given.output == OUTPUT:
        raise MptuneError(f"--backend host only tries the sections out: give another --output than {OUTPUT.name}")
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
    """Return the names in a list separated by commas.

    Raises:
        UnknownNameError: one of them is not known.
    """
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in known:
            raise UnknownNameError(what, name, known)
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", default="", help="names, by commas [all]")
    parser.add_argument("--backend", default="auto", help="auto (the first GPU), cuda, hip, or host to try it out")
    parser.add_argument("--time-limit", type=float, default=450.0, help="seconds of a section, about [450]")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the page; figures go beside it")
    parser.add_argument("--data", type=Path, default=FOLDER / "data", help="folder of recorded spaces")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "gpu", help="folder of what is done so far")
    parser.add_argument("--size", help="size preset instead of paper, or of default in peer")
    parser.add_argument("--kernels", default="", help="kernels of spaces and energy, by commas [a choice for each]")
    parser.add_argument("--matrices", default="1024,2048,4096", help="M = N = K of gemm [1024,2048,4096]")
    parser.add_argument("--budget", type=int, default=100, help="evaluations of a tool in a round of peer [100]")
    parser.add_argument("--candidates", type=int, default=3, help="of each kind, measured again in turn [3]")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in which what is compared takes turns [5]")
    parser.add_argument("--seed", type=int, default=0, help="of inputs and searches [0]")
    parser.add_argument("--placeholder", action="store_true", help="write the page from what there is, measure nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
