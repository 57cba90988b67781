"""What compound precisions add to the front of speed against error on this processor, and what they cost elsewhere.

    python benchmarks/compound.py [--only gemm,kmeans] [--tunings 4] [--quick]

Every kernel that offers them is measured in the same tunings with plain sums and with compound ones, conjugate
gradients as a whole with those of its scalar product. The hypervolume of the front of plain types is a share of that of
all, and a plot has both fronts. What was measured before is kept in the results, so that kernels can be measured one
after the other: the page names the command and the machine of each. The operations that each type declares tell what to
expect of a device whose fp64 is slow.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.search.plots import pyplot_module, save  # noqa: E402
from mptune.backends.host_compiler import find_compiler  # noqa: E402
from mptune.backends.processor import processor, usable_cores  # noqa: E402
from mptune.errors import EmptySpaceError, MptuneError, UnknownNameError  # noqa: E402
from mptune.kernel import Tunable  # noqa: E402
from mptune.kernel.limits import space_on  # noqa: E402
from mptune.measure.device import DeviceEvaluator  # noqa: E402
from mptune.precision import COMPOUND, EVERY_PRECISION, Precision, precision  # noqa: E402
from mptune.results.pareto import front, hypervolume  # noqa: E402
from mptune.source.loading import load_kernel, load_tunable  # noqa: E402
from mptune.space.configuration import Configuration, Value  # noqa: E402
from mptune.space.parameters import PolicyParameter, PrecisionParameter  # noqa: E402

#: By name, the type of its sums.
SUMS: Final = {
    "gemm": "accumulator_type",
    "kmeans": "distance_type",
    "convolution2d": "accumulator_type",
    "coulombic": "potential_type",
    "conjugate_gradient": "dot.sum_type",
}
SIZES: Final[Mapping[str, Mapping[str, int]]] = {
    "gemm": {"M": 128, "N": 128, "K": 512},
    "kmeans": {"n": 100_000},
    "convolution2d": {"width": 256, "height": 96},
    "coulombic": {"width": 128, "height": 80, "charges": 800},
    # More digits than it asks for by default, so that sums count.
    "conjugate_gradient": {"nx": 24, "ny": 24, "nz": 24, "digits": 14, "iterations": 400},
}
STORED: Final = ("fp64", "fp32")
PLAIN: Final = ("fp64", "fp32")
#: How much slower than its fp32 a device is in fp64.
SLOWER: Final = (2, 32, 64)
#: An error of 0 is shown, and counts, as this.
LEAST: Final = 1e-18
#: Beyond the worst point in both, so that the ends of a front count.
_REFERENCE: Final = (1.1, 1.1)


# -- measuring -------------------------------------------------------------------------------------


def signatures(tunable: Tunable, name: str) -> Iterator[dict[str, Value]]:
    """Yield what its types may be: sums in each type, all else in fp64 or fp32."""
    typed = [p.name for p in tunable.parameters if isinstance(p, PrecisionParameter)]
    policies: dict[str, Value] = {p.name: "accurate" for p in tunable.parameters if isinstance(p, PolicyParameter)}
    for stored in STORED:
        for sums in (*PLAIN, *COMPOUND):
            yield {**dict.fromkeys(typed, stored), **policies, SUMS[name]: sums}


def drawn(tunable: Tunable, name: str, limits: Mapping[str, Any], tunings: int) -> list[Configuration]:
    """Return configurations in all types, each in the same tunings, which are drawn at random."""
    sizes = tunable.resolve_sizes("default", SIZES[name])
    every = next(p.every_value for p in tunable.parameters if p.name == SUMS[name])
    space = space_on(tunable, sizes, limits)
    types = list(signatures(tunable, name))
    wide = space.restrict({key: (value,) for key, value in types[0].items()})
    chosen = np.random.default_rng(0).choice(wide.size, size=min(tunings, wide.size), replace=False)
    open_space = space.restrict({SUMS[name]: every})
    found = [Configuration({**wide.configuration(int(index)), **each}) for index in chosen for each in types]
    return [configuration for configuration in dict.fromkeys(found) if configuration in open_space]


def measured(name: str, tunings: int) -> dict[str, Any]:
    """Return the shortest time and the error of every type of one kernel, the fastest of the tunings."""
    tunable = load_tunable(name)
    sizes = tunable.resolve_sizes("default", SIZES[name])
    best: dict[tuple[str, str], tuple[float, float]] = {}
    with DeviceEvaluator(tunable, sizes, "host") as evaluator:
        configurations = drawn(tunable, name, evaluator.start().facts, tunings)
        for trial in evaluator.evaluate(configurations):
            if trial.is_valid and math.isfinite(trial.error):
                stored = next(str(v) for k, v in trial.configuration.items() if k in _stored(tunable, name))
                key = stored, str(trial.configuration[SUMS[name]])
                best[key] = min(best.get(key, (math.inf, math.inf)), (trial.time_ms, trial.error))
    points = [
        {"stored": stored, "sums": sums, "time_ms": time_ms, "error": error}
        for (stored, sums), (time_ms, error) in best.items()
    ]
    return {"sizes": dict(SIZES[name]), "tunings": tunings, "configurations": len(configurations), "points": points}


def _stored(tunable: Tunable, name: str) -> list[str]:
    return [p.name for p in tunable.parameters if isinstance(p, PrecisionParameter) and p.name != SUMS[name]]


def fronts(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the front of all types, and the hypervolume of that of the plain ones as a share of its own."""
    levels = np.array([[math.log10(p["time_ms"]), math.log10(max(p["error"], LEAST))] for p in points])
    # From the best to the worst of all that was measured: ends of a front that lie close together are no gain.
    span = np.ptp(levels, axis=0)
    scaled = (levels - levels.min(axis=0)) / np.where(span > 0, span, 1.0)
    is_plain = np.array([p["sums"] not in COMPOUND for p in points])
    return {
        "share": hypervolume(scaled[is_plain], _REFERENCE) / hypervolume(scaled, _REFERENCE),
        "front": [points[index] for index in sorted(front(levels, (True, True)), key=lambda index: levels[index, 0])],
    }


def draw_fronts(path: Path, kernels: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw error over time, a panel per kernel: all points, the front of plain types, and that of all."""
    pyplot = pyplot_module()
    wide = min(3, len(kernels))
    high = -(-len(kernels) // wide)
    figure, panels = pyplot.subplots(high, wide, figsize=(4.2 * wide, 3.4 * high + 0.5), squeeze=False)
    for axes, (name, of_kernel) in zip(panels.flat, kernels.items(), strict=False):
        plain = [p for p in of_kernel["points"] if p["sums"] not in COMPOUND]
        compound = [p for p in of_kernel["points"] if p["sums"] in COMPOUND]
        for points, label, marker in ((plain, "plain", "o"), (compound, "compound", "^")):
            axes.plot(*_places(points), marker, color="0.6", markersize=4, label=f"sums in {label} types")
        # The dashed one on top, so that both are seen where they are the same.
        for points, label, style in ((of_kernel["points"], "all types", "C3o-"), (plain, "plain types", "ks--")):
            on_front = fronts(points)["front"] if points else []
            steps = {"drawstyle": "steps-post", "linewidth": 1.3, "markersize": 4, "markerfacecolor": "none"}
            axes.plot(*_places(on_front), style, label=f"front of {label}", **steps)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.tick_params(axis="x", which="minor", labelsize=7, rotation=45)
        axes.set_xlabel("time in ms")
        axes.set_title(name, fontsize=10)
        axes.grid(alpha=0.3)
    for axes in panels.flat[len(kernels) :]:
        axes.set_visible(False)
    figure.supylabel("error", fontsize=10)
    save(figure, path, panels.flat[0], columns=4)


def _places(points: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    return [p["time_ms"] for p in points], [max(p["error"], LEAST) for p in points]


# -- counting --------------------------------------------------------------------------------------


def operations(name: str, sums: str) -> dict[str, float]:
    """Return the operations an element of the output takes, by the type they are done in, all else in that type."""
    entry = precision(sums)
    own = (entry.computed_in or entry).name
    if name == "conjugate_gradient":
        return {own: float(entry.flops_of_fma)}
    kernel = load_kernel(name)
    sizes = kernel.resolve_sizes("default", SIZES[name])
    types: dict[str, Value] = dict.fromkeys(_stored(kernel, name), own)
    work = kernel.work(kernel.configuration({**types, SUMS[name]: sums}), sizes)
    (output,) = kernel.outputs
    return {kind: flops / math.prod(kernel.shape_of(output, sizes)) for kind, flops in work.flops_by_precision.items()}


def gain(name: str, sums: str, slower: int) -> float:
    """Return how many times as fast as in fp64 operations are, where fp64 is that much slower than fp32."""

    def cost(counted: Mapping[str, float]) -> float:
        return sum(number * (slower if kind == "fp64" else 1) for kind, number in counted.items())

    return cost(operations(name, "fp64")) / cost(operations(name, sums))


# -- telling ---------------------------------------------------------------------------------------


def markdown(document: Mapping[str, Any]) -> str:
    """Return the page; it shows the plot where that was drawn."""
    kernels = document["kernels"]
    made: dict[tuple[str, str], list[str]] = {}
    for name, of_kernel in kernels.items():
        made.setdefault((of_kernel["command"], of_kernel["machine"]), []).append(name)
    lines = [
        "# Compound precisions",
        "",
        *(f"- {', '.join(names)}: `{command}`, on {machine}." for (command, machine), names in made.items()),
        "",
        "Every kernel runs in the same tunings with sums in fp64 and fp32 and in each compound precision, all else in "
        "fp64 or fp32; a point is the fastest of these. The hypervolume is that of the front of log time against log "
        "error, both scaled from the best to the worst of what was measured; errors are against references that are "
        "rounded once, and of conjugate_gradient the residual. Of points that differ by some percent either may be on "
        "the front by chance.",
        "",
        "## On this processor",
        "",
        "| kernel | sizes | plain types' share of the hypervolume | gain | front, fastest first (all else / sums) |",
        "|---|---|--:|--:|---|",
    ]
    for name, of_kernel in kernels.items():
        found = fronts(of_kernel["points"])
        sizes = ", ".join(f"{key}={value}" for key, value in of_kernel["sizes"].items())
        shown = ", ".join(f"{p['stored']} / {p['sums']}" for p in found["front"])
        lines.append(f"| {name} | {sizes} | {found['share']:.3f} | {100 / found['share'] - 100:.1f}% | {shown} |")
    if document.get("plot"):
        lines += ["", f"![Fronts with and without compound precisions]({document['plot']})"]
    if missing := [name for name in SUMS if name not in kernels]:
        lines += ["", f"Not measured: {', '.join(missing)}."]
    lines += ["", "| kernel | all else | sums | time, ms | error |", "|---|---|---|--:|--:|"]
    for name, of_kernel in kernels.items():
        ordered = sorted(of_kernel["points"], key=lambda p: (STORED.index(p["stored"]), -precision(p["sums"]).rank))
        lines += [f"| {name} | {p['stored']} | {p['sums']} | {p['time_ms']:.3f} | {p['error']:.2g} |" for p in ordered]
    return "\n".join([*lines, "", *_elsewhere()]) + "\n"


def _elsewhere() -> Iterator[str]:
    yield "## Elsewhere, by the operations that are declared"
    yield ""
    yield "No device was measured for these: they are counts, for kernels that arithmetic bounds, with all numbers in"
    yield "the type that sums are computed in. Of the scalar product they are those of a multiplication and addition."
    yield ""
    ratios = " | ".join(f"fp64 at 1/{slower}" for slower in SLOWER)
    yield f"| kernel | sums | operations per element of the output | {ratios} |"
    yield "|---|---|---|" + "--:|" * len(SLOWER)
    for name in SUMS:
        for sums in _compared():
            counted = ", ".join(f"{number:g} of {kind}" for kind, number in operations(name, sums.name).items())
            gains = " | ".join(f"{gain(name, sums.name, slower):.2g}" for slower in SLOWER)
            yield f"| {name} | {sums.name} | {counted} | {gains} |"
    yield ""
    yield "The last columns are times as fast as sums in fp64. fp32 itself loses the digits that the others keep."


def _compared() -> list[Precision]:
    return [each for name, each in EVERY_PRECISION.items() if name in COMPOUND or name in PLAIN]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the page; 2 for wrong input."""
    given = _parser().parse_args(arguments)
    try:
        return _run(given, ["benchmarks/compound.py", *(sys.argv[1:] if arguments is None else arguments)])
    except (MptuneError, EmptySpaceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(given: argparse.Namespace, command: Sequence[str]) -> int:
    names = [name.strip() for name in given.only.split(",") if name.strip()] or list(SUMS)
    for name in names:
        if name not in SUMS:
            raise UnknownNameError("kernel", name, SUMS)
    if given.tunings < 1:
        raise MptuneError("--tunings must be at least 1")
    path: Path = given.output / "compound.json"
    known = _kept(path)
    machine = processor()
    of_run = {
        "command": f"python {shlex.join(command)}",
        "machine": f"{machine.name} ({machine.architecture}), {usable_cores()} cores, {find_compiler().version}",
    }
    for name in names:
        known[name] = {**of_run, **measured(name, 1 if given.quick else given.tunings)}
        print(f"{name}: {len(known[name]['points'])} types", file=sys.stderr, flush=True)
    kernels = {name: known[name] for name in SUMS if name in known}
    plot = path.with_name("compound-fronts.png") if importlib.util.find_spec("matplotlib") is not None else None
    document = {"kernels": kernels, "plot": plot and plot.name}
    given.output.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    page = path.with_suffix(".md")
    page.write_text(markdown(document))
    if plot is not None:
        draw_fronts(plot, kernels)
    print(f"written: {path}\nwritten: {page}")
    return 0


def _kept(path: Path) -> dict[str, dict[str, Any]]:
    """Return what was measured before, by kernel.

    Earlier documents have the last command alone, which need not be that of every kernel.
    """
    if not path.exists():
        return {}
    document = json.loads(path.read_text())
    of_all = {key: document[key] for key in ("command", "machine") if key in document}
    return {name: {**of_all, **of_kernel} for name, of_kernel in document["kernels"].items()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"by commas, of {', '.join(SUMS)}")
    parser.add_argument("--tunings", type=int, default=4, help="tunings in which every type is measured")
    parser.add_argument("--quick", action="store_true", help="one tuning each")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results", help="where the results go")
    return parser


if __name__ == "__main__":
    sys.exit(main())
