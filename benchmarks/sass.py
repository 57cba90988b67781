"""The machine code that NVRTC makes of the bundled kernels for sm_90, counted by kinds of instruction; needs no GPU.

Configurations are picked by hand, as a GPU likes them, and stand for every type. Each is compiled to a cubin, and
``nvdisasm`` (the wheel nvidia-cuda-nvdisasm, or a CUDA toolkit) lists its instructions. What counts is mostly the
hottest loop: of the loops that have no other one with floating-point arithmetic inside, that with the most of it.
Figures of the first run stay in the JSON file and in the report beside those of the latest, until ``--anew``.

    python benchmarks/sass.py [--kernels mriq,gemm] [--arch sm_90] [--anew] [--output benchmarks/results/sass.md]
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu_sections import gemm, vendor  # noqa: E402
from mptune.backends import BACKENDS, get_backend  # noqa: E402
from mptune.backends.base import CompileOptions  # noqa: E402
from mptune.errors import MptuneError  # noqa: E402
from mptune.kernel import Kernel  # noqa: E402
from mptune.kernel.limits import device_constraints  # noqa: E402
from mptune.source.loading import bundled_kernels, load_kernel  # noqa: E402
from mptune.source.render import render  # noqa: E402
from mptune.space.configuration import Value  # noqa: E402
from mptune.space.parameters import PolicyParameter, PrecisionParameter  # noqa: E402
from mptune.space.search_space import SearchSpace  # noqa: E402

OUTPUT: Final = Path(__file__).parent / "results" / "sass.md"
#: What is written by hand below the tables stays when they are written again.
NOTES: Final = "<!-- Below this line sass.py changes nothing. -->"
TYPES: Final = ("fp64", "fp32", "fp16", "bf16")
TIMEOUT_S: Final = 600.0

_TILES: Final = {"MWG": 128, "NWG": 128, "KWG": 16, "MDIMC": 16, "NDIMC": 16, "MDIMA": 16, "NDIMB": 16}
_GEMM: Final = {**_TILES, "STRM": True, "STRN": True, "VWM": 4, "VWN": 4}
#: Four elements of A at once, and the loop over a tile unrolled.
_ROWS_OF_A: Final = {"KWG": 8, "MDIMA": 128, "NDIMB": 32, "VWK": 4, "unroll": 4}
#: Tiles of A for prefetching in thirds: 12 x 8 sums for each thread.
_THIRDS: Final = {"MWG": 192, "MDIMA": 64, "VWK": 4, "unroll": 4, "large": True, "fine_prefetch": True, "parts_of_a": 3}
_IMAGE: Final = {"block_size_x": 32, "block_size_y": 4, "tile_size_x": 1, "tile_size_y": 4, "vector_width": 4}
#: Per kernel the configurations to look at, without their types and policies.
CHOSEN: Final[Mapping[str, Mapping[str, Mapping[str, Value]]]] = {
    "axpy": {"vectors of 8": {"vector_width": 8}},
    "bessel": {"vectors of 4": {"vector_width": 4}},
    "black_scholes": {"vectors of 4": {"vector_width": 4}},
    "convolution2d": {
        "shared": {**_IMAGE, "use_shared": True, "padding": 0},
        "from memory": {**_IMAGE, "use_shared": False},
    },
    "coulombic": {"tile 4 x 2": {"block_size_x": 32, "block_size_y": 4, "tile_size_x": 4, "tile_size_y": 2}},
    "gemm": {
        "plain": {**_GEMM, "double_buffer": False, "fine_prefetch": False},
        "double buffer": {**_GEMM, "double_buffer": True, "fine_prefetch": False},
        "rows of A": {**_GEMM, **_ROWS_OF_A, "double_buffer": False, "fine_prefetch": False},
        "double buffer, rows of A": {**_GEMM, **_ROWS_OF_A, "double_buffer": True, "fine_prefetch": False},
        "prefetch in thirds": {**_GEMM, **_THIRDS, "double_buffer": False},
        "double buffer, prefetch in thirds": {**_GEMM, **_THIRDS, "double_buffer": True},
        "split 4": {**_GEMM, "double_buffer": True, "fine_prefetch": False, "split_k": 4},
    },
    "inverse_kinematics": {"tile 1": {"block_size": 256, "tile_size": 1}},
    "kmeans": {
        "shared": {"block_size": 256, "points_per_thread": 4, "use_shared": True, "math": "simt"},
        "from memory": {"block_size": 256, "points_per_thread": 4, "use_shared": False, "math": "simt"},
    },
    "lavamd": {"tile 2": {"block_size": 128, "tile_size": 2, "use_shared": True}},
    "mode_product": {
        "bands innermost": {"block_size": 64, "tile_columns": 2, "tile_filters": 4, "loop_order": (0, 1, 2)},
        "bands outermost": {"block_size": 64, "tile_columns": 2, "tile_filters": 4, "loop_order": (2, 0, 1)},
    },
    "mriq": {"tile 4": {"block_size": 256, "tile_size": 4, "unroll": 4}},
    "newton_raphson": {"tile 4": {"block_size": 256, "tile_size": 4}},
}


# -- listings ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its address in bytes, its name with modifiers, the rest of its text, and where it jumps to."""

    address: int
    name: str
    operands: str
    target: int | None = None

    @property
    def kind(self) -> str:
        """What it does, as one of the names in :data:`KINDS`; other than these "other"."""
        text = f"{self.name} {self.operands}"
        return next((kind for kind, pattern in KINDS if pattern.match(text)), "other")

    @property
    def operations(self) -> int:
        """On how many numbers it computes; of what a warp, or four of them, do by matrix units, a thread's share."""
        if (shape := _SHAPE.search(self.name)) is None:
            return ARITHMETIC.get(self.kind, 0)
        return math.prod(int(extent) for extent in shape.groups() if extent) // (128 if "GMMA" in self.name else 32)


_REGISTER: Final = re.compile(r"\bR(\d+)\b")
_HALVES: Final = r"H(?:FMA|ADD|MUL)2\S* "
#: Whose operands each are one half of a register, or a constant: one number of 16 bits is computed.
_SINGLE: Final = rf"{_HALVES}\w+(?:, (?:[-|~]*U?R\d+[^ ,]*\.H[01]_H[01]\|?|[-|]*U?RZ\S*|[-+]?[\d.][^,]*|c\[\S+))+$"
KINDS: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("matrix", r"(?:[HDIQ]MMA|[HQI]GMMA)\b"),
        ("fp64 fma", r"DFMA\b"),
        ("fp64", r"D(?:ADD|MUL)\b"),
        ("fp32 fma", r"FFMA\b"),
        ("fp32", r"F(?:ADD|MUL)\b"),
        ("constant", rf"{_HALVES}\w+, -RZ, RZ, "),
        ("conversion", r"HADD2\.F32\b|F2F\b|F2FP\b|F2I|I2F|FRND"),
        ("single fma", r"HFMA2" + _SINGLE.removeprefix(r"H(?:FMA|ADD|MUL)2")),
        ("single", _SINGLE),
        ("pair fma", r"HFMA2"),
        ("pair", _HALVES),
        ("function", r"MUFU"),
        ("permutation", r"PRMT"),
        ("global load", r"LDG\b"),
        ("global store", r"STG\b"),
        ("shared copy", r"LDGSTS"),
        ("shared load", r"LDS\b|LDSM"),
        ("shared store", r"STS\b"),
        ("local memory", r"(?:LDL|STL)\b"),
        ("barrier", r"BAR"),
    )
)
#: The matrices of an instruction, as HMMA.16816 and DMMA.8x8x4 tell them.
_SHAPE: Final = re.compile(r"MMA\.(?:(\d+)x(\d+)x(\d+)|(16|8)(8)(\d+))\b")
#: Operations that an instruction counts for: numbers it computes a result of, for a pair two.
ARITHMETIC: Final = {
    **dict.fromkeys(("fp64 fma", "fp64", "fp32 fma", "fp32", "single fma", "single"), 1),
    **dict.fromkeys(("pair fma", "pair"), 2),
}
FUSED: Final = ("matrix", "fp64 fma", "fp32 fma", "single fma", "pair fma")

_LINE: Final = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;")
_LABEL: Final = re.compile(r"^\s*(\.\w+):", re.MULTILINE)
_JUMP: Final = re.compile(r"`\((\.\w+)\)|\b0x([0-9a-f]+)$")


def instructions(listing: str, function: str) -> tuple[Instruction, ...]:
    """Return the instructions of a function in a listing of ``nvdisasm``, without what follows its last one.

    Raises:
        MptuneError: the listing does not have the function.
    """
    start = listing.find(f".text.{function}:")
    if start < 0:
        raise MptuneError(f"nvdisasm lists no function {function!r}")
    end = listing.find("\n.section", start)
    text = listing[start : end if end >= 0 else len(listing)]
    lines = list(_LINE.finditer(text))
    labels = {label[1]: _address_after(label.end(), lines) for label in _LABEL.finditer(text)}
    found = [Instruction(int(m[1], 16), m[2], m[3], _target(m[2], m[3], labels)) for m in lines]
    # The function ends in a jump to itself, behind which only padding follows.
    ends = [i for i, one in enumerate(found) if one.target == one.address]
    return tuple(found[: ends[-1]] if ends else found)


def _address_after(position: int, lines: Sequence[re.Match[str]]) -> int:
    return next((int(line[1], 16) for line in lines if line.start() >= position), -1)


def _target(name: str, operands: str, labels: Mapping[str, int]) -> int | None:
    jump = _JUMP.search(operands) if name.startswith("BRA") else None
    if jump is None:
        return None
    return labels.get(jump[1], -1) if jump[1] else int(jump[2], 16)


def hottest_loop(code: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """Return the loop with most floating-point arithmetic among those without an inner one that has any.

    A loop lasts from the target of a jump backwards to that jump. Empty where no loop has any arithmetic.
    """
    spans = {(one.target, one.address) for one in code if one.target is not None and one.target < one.address}
    loops = {span: [one for one in code if span[0] <= one.address <= span[1]] for span in spans}
    busy = {span: sum(one.operations for one in loop) for span, loop in loops.items()}
    inner = [
        span
        for span in spans
        if busy[span] and not any(busy[s] and s != span and span[0] <= s[0] and s[1] <= span[1] for s in spans)
    ]
    return tuple(loops[max(inner, key=lambda span: (busy[span], span))]) if inner else ()


def widths(code: Sequence[Instruction], name: str) -> str:
    """Return how many accesses of which width in bits there are, as "2 x 128, 1 x 16"; of ``name`` ("LDG")."""
    found = Counter(_width(one.name) for one in code if one.name.split(".")[0] == name)
    return ", ".join(f"{n} x {width}" for width, n in sorted(found.items(), reverse=True))


def _width(name: str) -> int:
    given = re.search(r"\.[US]?(8|16|64|128)\b", name)
    return int(given[1]) if given else 32


# -- what is counted -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counts:
    """What a kernel is made of: instructions of all kinds, of the hottest loop alone, and resources of a thread."""

    instructions: int
    loop: int
    loop_operations: int
    loop_fused: int
    conversions: int
    permutations: int
    functions: int
    local_accesses: int
    loads: str
    shared_loads: str
    registers: int
    loop_matrix: int | None = None  #: of the hottest loop those of matrix units; None in figures from before

    @property
    def operations_per_instruction(self) -> float | None:
        """Arithmetic in the hottest loop, over its instructions; None without a loop."""
        return self.loop_operations / self.loop if self.loop else None

    @property
    def fused_share(self) -> float | None:
        """The share of fused operations in the instructions of the hottest loop; None without a loop."""
        return self.loop_fused / self.loop if self.loop else None


def count(code: Sequence[Instruction]) -> Counts:
    """Count instructions."""
    loop = hottest_loop(code)
    all_kinds, loop_kinds = (Counter(one.kind for one in part) for part in (code, loop))
    return Counts(
        instructions=len(code),
        loop=len(loop),
        loop_operations=sum(one.operations for one in loop),
        loop_fused=sum(loop_kinds[kind] for kind in FUSED),
        conversions=all_kinds["conversion"],
        permutations=all_kinds["permutation"],
        functions=all_kinds["function"],
        local_accesses=all_kinds["local memory"],
        loads=", ".join(filter(None, (widths(code, "LDG"), *_later(code)))),
        shared_loads=", ".join(filter(None, (widths(code, "LDS"), *_for_units(code)))),
        registers=1 + max((int(number) for one in code for number in _REGISTER.findall(one.operands)), default=-1),
        loop_matrix=loop_kinds["matrix"],
    )


def _later(code: Sequence[Instruction]) -> list[str]:
    """Say how many copies into shared memory there are that nobody waits for."""
    return [f"{copies} later"] if (copies := widths(code, "LDGSTS")) else []


def _for_units(code: Sequence[Instruction]) -> list[str]:
    """Say how many instructions fetch matrices of 8 x 16 bytes, and how many of these each does."""
    found = Counter(one.name.rpartition(".")[2] for one in code if one.name.startswith("LDSM"))
    return [f"{n} x {matrices} matrices" for matrices, n in sorted(found.items(), reverse=True)]


@functools.cache
def disassembler() -> str:
    """Return the path of nvdisasm.

    Raises:
        MptuneError: it is not installed.
    """
    wheels = importlib.util.find_spec("nvidia")
    folders = [Path(place) for place in (wheels.submodule_search_locations or [])] if wheels else []
    found = [str(path) for folder in folders for path in sorted(folder.glob("*/bin/nvdisasm"))]
    path = shutil.which("nvdisasm") or next(iter(found), None)
    if path is None:
        raise MptuneError("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm, or a CUDA toolkit")
    return path


def disassembled(image: bytes) -> str:
    """Return the listing of a cubin.

    Raises:
        MptuneError: nvdisasm is not installed, or rejects the cubin.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(image)
        file.flush()
        done = subprocess.run([disassembler(), "-c", file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MptuneError(f"nvdisasm: {done.stderr.strip()}")
    return done.stdout


def cases(names: Sequence[str]) -> Iterator[tuple[str, str, dict[str, Value]]]:
    """Yield kernel, name and values of each configuration: those chosen in every type under every policy it has."""
    for kernel in map(load_kernel, names):
        precisions = [p.name for p in kernel.parameters if isinstance(p, PrecisionParameter)]
        policies = [p.name for p in kernel.parameters if isinstance(p, PolicyParameter)]
        for label, values in CHOSEN.get(kernel.name, {}).items():
            for one in TYPES:
                rough = {"fp32": ["fast"], "fp16": ["approx"], "bf16": ["approx"]}.get(one, [])
                for policy in ["accurate", *rough] if policies else [""]:
                    given = {**values, **dict.fromkeys(precisions, one), **dict.fromkeys(policies, policy)}
                    yield kernel.name, " ".join(filter(None, (label, one, policy))), given
        if kernel.name == "gemm":
            yield from _seeds(kernel)
        if kernel.name == "kmeans":
            yield from _by_units(kernel)


def _seeds(kernel: Kernel) -> Iterator[tuple[str, str, dict[str, Value]]]:
    """Yield the tiles with which the GPU benchmark begins its searches, in the types of these."""
    for product in vendor.TYPES:
        for variant in ("neither", gemm.UNITS):
            if variant != gemm.UNITS and product in gemm.BY_UNITS_ALONE:
                continue
            for number, seed in enumerate(gemm.tiles(kernel, product, variant), 1):
                shape = " x ".join(str(seed[name]) for name in ("MWG", "NWG", "KWG"))
                by = ", matrix units" if variant == gemm.UNITS else ""
                yield kernel.name, f"seed {number} ({shape}{by}) {product}", dict(seed)


def _by_units(kernel: Kernel) -> Iterator[tuple[str, str, dict[str, Value]]]:
    """Yield kmeans by matrix units in each type, and by threads with sums as long."""
    shape = {"block_size": 256, "points_per_thread": 4}
    for product, (factor, total) in vendor.TYPES.items():
        types = {"point_type": factor, "centre_type": factor, "distance_type": total}
        if product != "fp32":
            how = "tf32" if product == "TF32" else "mma"
            yield kernel.name, f"matrix units {product}", {**shape, **types, "use_shared": False, "math": how}
        if factor != total:
            label = f"shared {factor}, sums in {total}"
            yield kernel.name, label, {**shape, **types, "use_shared": True, "math": "simt"}


@functools.cache
def _space(name: str, architecture: str) -> SearchSpace:
    kernel = load_kernel(name)
    limits = get_backend("cuda").facts(architecture)
    return kernel.search_space(kernel.resolve_sizes("paper"), device_constraints(kernel, limits))


def measure(name: str, values: Mapping[str, Value], architecture: str) -> Counts | None:
    """Compile one configuration and count; None where the kernel's constraints forbid it."""
    kernel = load_kernel(name)
    sizes = kernel.resolve_sizes("paper")
    configuration = kernel.configuration(values)
    if configuration not in _space(name, architecture):
        return None
    source = render(kernel, configuration, sizes)
    binary = get_backend("cuda").compiler.compile(
        source, kernel.function, CompileOptions(architecture, timeout_s=TIMEOUT_S)
    )
    return count(instructions(disassembled(binary.image), kernel.function))


# -- the report ----------------------------------------------------------------------------------

EXPLAINED: Final = (
    "Where two figures stand in a cell, the first is of the first run. The loop is the hottest one. Its operations are "
    "those on single numbers: an instruction on a pair of 16-bit numbers does two, and a fused one counts once; one of "
    "matrix units does a thread's share of its products. The share of fused instructions is beside them, then how many "
    "of the loop are of matrix units. Loads are those of a thread, by their bits; what is copied to shared memory "
    "later is a load, too. Local memory holds what does not fit in registers, or what a function needs for huge angles."
)

Table = dict[str, dict[str, Counts]]


def report(first: Table, latest: Table, compiler: str, architecture: str, notes: str) -> str:
    """Return the report as Markdown; first figures stand before an arrow where they differ."""
    lines = [
        "# Machine code of the bundled kernels",
        "",
        f"    python benchmarks/sass.py --arch {architecture}",
        "",
        f"{compiler}, {architecture}; {datetime.now(UTC):%Y-%m-%d}. Nothing ran: these are counts of instructions. "
        + EXPLAINED,
    ]
    for name, rows in latest.items():
        lines += [
            "",
            f"## {name}",
            "",
            "| configuration | instructions | loop | operations per instruction | fused | matrix units | conversions "
            "| permutations | MUFU | local | loads | shared loads | registers |",
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|---|--:|",
            *(_row(label, first.get(name, {}).get(label, counts), counts) for label, counts in rows.items()),
        ]
    return "\n".join([*lines, "", NOTES, "", notes.strip()]).rstrip() + "\n"


def _row(label: str, before: Counts, now: Counts) -> str:
    pairs = zip(_cells(before), _cells(now), strict=True)
    return f"| {label} | {' | '.join(new if old in (new, '') else f'{old} → {new}' for old, new in pairs)} |"


def _cells(c: Counts) -> list[str]:
    rate, share = c.operations_per_instruction, c.fused_share
    of_loop = ["", "", ""] if rate is None or share is None else [str(c.loop), f"{rate:.2f}", f"{share:.1%}"]
    of_loop.append("" if c.loop_matrix is None else str(c.loop_matrix))
    numbers = [c.conversions, c.permutations, c.functions, c.local_accesses]
    return [
        str(c.instructions),
        *of_loop,
        *map(str, numbers),
        c.loads,
        c.shared_loads,
        str(c.registers),
    ]


def read(path: Path) -> tuple[Table, Table]:
    """Return the first and the latest figures of a JSON file; nothing where there is no file."""
    if not path.is_file():
        return {}, {}
    document = json.loads(path.read_text(encoding="utf-8"))
    first, latest = (
        {name: {label: Counts(**c) for label, c in rows.items()} for name, rows in document[part].items()}
        for part in ("first", "latest")
    )
    return first, latest


def merged(first: Table, latest: Table, found: Table, anew: bool) -> tuple[Table, Table]:
    """Return both tables after a run: what it found replaces the latest figures, and the first ones where asked."""
    latest = {**latest, **found}
    if anew:
        return {**first, **found}, latest
    return {name: {**rows, **first.get(name, {})} for name, rows in latest.items()}, latest


def written(table: Table) -> dict[str, Any]:
    """Return a table as JSON has it."""
    return {name: {label: asdict(c) for label, c in rows.items()} for name, rows in table.items()}


# -- the command ---------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when it did, 2 for wrong input or where a compiler is missing."""
    parser = argparse.ArgumentParser(description="Count the machine instructions of the bundled kernels.")
    parser.add_argument(
        "--kernels", default="", help="comma-separated names; all that have chosen configurations by default"
    )
    parser.add_argument("--arch", default="sm_90", help="architecture to compile for")
    parser.add_argument("--anew", action="store_true", help="replace the first figures, too")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the report; the figures go beside it, as JSON")
    given = parser.parse_args(arguments)
    figures = given.output.with_suffix(".json")
    try:
        availability = BACKENDS["cuda"].availability()
        if not availability.can_compile:
            raise MptuneError(f"cuda: {availability.reason}")
        names = [name.strip() for name in given.kernels.split(",") if name.strip()] or bundled_kernels()
        found: Table = {}
        for name, label, values in cases(names):
            counts = measure(name, values, given.arch)
            if counts is not None:
                found.setdefault(name, {})[label] = counts
                print(f"{name}, {label}: {counts}", flush=True)
        first, latest = merged(*read(figures), found, given.anew)
    except (MptuneError, json.JSONDecodeError) as error:
        print(error, file=sys.stderr)
        return 2
    notes = given.output.read_text(encoding="utf-8").partition(NOTES)[2] if given.output.is_file() else ""
    compiler = BACKENDS["cuda"].runtime_compiler()  # type: ignore[attr-defined]
    given.output.parent.mkdir(parents=True, exist_ok=True)
    figures.write_text(
        json.dumps({"first": written(first), "latest": written(latest)}, indent=1) + "\n", encoding="utf-8"
    )
    text = report(first, latest, f"{compiler.name} {compiler.version}", given.arch, notes)
    given.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
