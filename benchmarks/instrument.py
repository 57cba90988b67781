"""How well instrumented errors agree with measured ones, what an instrumented run takes, and how often it is compiled.

    python benchmarks/instrument.py axpy gemm mriq --signatures 64 --seed 1

Of each kernel or application so many accuracy signatures are drawn at random. Each is compiled and run in its types, in
a configuration drawn at random; and in the instrumented build, which is compiled once. Prints a line for each,
and with --worst those that differ most. Errors agree if they are within a factor of 2; those below 16 roundings of fp64
are equal, too. An infinite error is that of a result that is not finite.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass

import numpy as np

from mptune.backends import get_backend
from mptune.data import Draw
from mptune.errors import MptuneError
from mptune.kernel import Tunable
from mptune.kernel.limits import space_on
from mptune.measure.bench import Bench, Request
from mptune.measure.device import source_of
from mptune.measure.instrument import Instrument
from mptune.source.loading import load_tunable
from mptune.space.configuration import Configuration
from mptune.space.search_space import SearchSpace

#: Errors that are nothing but those of fp64.
FLOOR = 16 * 2.0**-53
AGREE = 2.0


@dataclass(frozen=True)
class Pair:
    """A configuration with its measured and its instrumented error, and the seconds a launch took in each."""

    configuration: Configuration
    measured: float
    traced: float
    traced_s: float

    @property
    def ratio(self) -> float:
        """How many times as large the instrumented error is."""
        if self.measured == self.traced or max(self.measured, self.traced) <= FLOOR:
            return 1.0
        return max(self.traced, FLOOR) / max(self.measured, FLOOR) if math.isfinite(self.measured) else 0.0

    @property
    def agrees(self) -> bool:
        """Whether they are within a factor of two."""
        return 1 / AGREE <= self.ratio <= AGREE


def signatures(kernel: Tunable, space: SearchSpace, count: int, seed: int) -> list[Configuration]:
    """Return configurations of so many signatures, drawn at random; fewer if there are no more of them."""
    drawn = np.random.default_rng(seed).integers(space.size, size=50 * count)
    found = {kernel.signature_of(c): c for c in space.configurations(np.unique(drawn))}
    order = np.random.default_rng(seed).permutation(len(found))
    return [list(found.values())[i] for i in order[:count]]


def compare(kernel: Tunable, preset: str, count: int, seed: int) -> tuple[list[Pair], int, int]:
    """Return what was found, how many signatures failed in their types, and the instrumented compilations."""
    sizes = kernel.resolve_sizes(preset)
    backend = get_backend("host")
    bench = Bench(kernel, sizes, backend, seed=seed)
    space = space_on(kernel, bench.sizes, backend.device.facts())
    draw, pairs, failed = Draw(), [], 0
    bench.make(draw)
    instrument = Instrument(kernel, sizes, seed=seed)
    instrument.errors({})
    for configuration in signatures(kernel, space, count, seed):
        trial = bench.check_on(Request(configuration, source_of(kernel, configuration, bench.sizes)), draw)
        if not trial.is_valid and trial.status != "non_finite":
            failed += 1
            continue
        signature = {name: configuration[name] for name in kernel.signature_names}
        start = time.perf_counter()
        try:
            traced = instrument.errors(signature)["error"]
        except MptuneError as error:
            print(f"  {configuration}: {error}")
            failed += 1
            continue
        passed_s = time.perf_counter() - start
        measured = trial.error if trial.is_valid and not math.isnan(trial.error) else math.inf
        pairs.append(Pair(configuration, measured, traced, passed_s))
    compilations = len(instrument.binaries)
    bench.close()
    return pairs, failed, compilations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="+", help="names or definition files")
    parser.add_argument("--signatures", type=int, default=64, help="of each (default: %(default)s)")
    parser.add_argument("--size", default="smoke", help="preset (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worst", type=int, default=0, help="how many of those that differ most to print")
    arguments = parser.parse_args()
    print(f"{'kernel':20} {'signatures':>10} {'agree':>7} {'ratio':>17} {'compiled':>8} {'run (ms)':>8} {'failed':>6}")
    agreeing = total = 0
    for name in arguments.kernels:
        kernel = load_tunable(name)
        pairs, failed, compilations = compare(kernel, arguments.size, arguments.signatures, arguments.seed)
        agree = sum(pair.agrees for pair in pairs)
        ratios = sorted(pair.ratio for pair in pairs)
        span = f"{ratios[0]:.3g} to {ratios[-1]:.3g}" if ratios else "-"
        run_ms = 1e3 * float(np.median([pair.traced_s for pair in pairs])) if pairs else math.nan
        share = f"{agree / len(pairs):.1%}" if pairs else "-"
        print(f"{kernel.name:20} {len(pairs):>10} {share:>7} {span:>17} {compilations:>8} {run_ms:>8.1f} {failed:>6}")
        for pair in sorted(pairs, key=lambda p: -abs(math.log(max(p.ratio, 1e-300))))[: arguments.worst]:
            values = {name: pair.configuration[name] for name in kernel.signature_names}
            print(f"  {pair.measured:.3g} measured, {pair.traced:.3g} instrumented: {values}")
        agreeing, total = agreeing + agree, total + len(pairs)
    print(f"{'all':20} {total:>10} {agreeing / total if total else math.nan:>7.1%}")


if __name__ == "__main__":
    main()
