"""Experiments of the papers, done again on this machine and printed beside the papers' figures.

    python benchmarks/papers.py ITEM… | list | all | page [--quick] [--runs 100] [--only rtx2080ti]
                                [--output benchmarks/results]

An item is called after its paper (h: Heldens & van Werkhoven 2026, w: Willemsen et al. 2021, l: Lin et al. 2025, b:
Hellsten et al. 2023) and its table, figure or section. What each item finds goes into ``papers/ITEM.json`` of the
output folder; ``papers.md`` is put together from all that are there (``page`` does only that), so
that an item done again replaces its own part. With ``--quick`` every item does as little as shows that it works, and
the results go into ``build/papers-quick``. Replays that have been run are kept in ``--work``. An item whose data are
not there is skipped and says so.

Every tool is replayed --runs times on every space, but for slow ones (scikit-optimize, which stands for ytopt's
surrogate in h-f9, b-t6, b-t9 and b-t10): those a tenth as often, five times at least where so many are asked for. A
search that is run, not replayed (h-f6), is run five times at most. Pages say how often each was run. Of fewer than five
runs there are no quartiles: the least and the most are shown.

To add an item, enter an :class:`~benchmarks.reproductions.item.Item` in ``ITEMS`` of its paper's module in
``benchmarks/reproductions``, and the module in :data:`PAPERS`. It has a function ``run(given: Given) -> Outcome``:
``given`` is what the command line says and runs replays (``given.run(jobs)``); the outcome holds tables (``Table(title,
columns, rows)``) and sentences on what differs and why.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.reproductions.item import SLOW, Given, Item, Skipped  # noqa: E402
from benchmarks.reproductions.page import ABSENT, keep, markdown_of, write_page  # noqa: E402
from benchmarks.reproductions.spread import FEWEST  # noqa: E402
from mptune.errors import MptuneError, UnknownNameError  # noqa: E402

#: The modules of :mod:`benchmarks.reproductions` that have items, in the order of the page.
PAPERS: Final = ("heldens", "willemsen", "lin", "hellsten")
_VERBS: Final = ("list", "all", "page")


def items() -> Mapping[str, Item]:
    """Return all items by name."""
    modules = (importlib.import_module(f"benchmarks.reproductions.{name}") for name in PAPERS)
    return {name: item for module in modules for name, item in module.ITEMS.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the items asked for; 1 when one failed or all were skipped, 2 for wrong input, else 0."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(words)
    try:
        return _do(options, shlex.join(["python", "benchmarks/papers.py", *words]))
    except MptuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on with the replays that are kept", file=sys.stderr)
        return 130


def _do(options: argparse.Namespace, command: str) -> int:
    known = items()
    for name in options.items:
        if name not in known and name not in _VERBS:
            raise UnknownNameError("item", name, (*known, *_VERBS))
    if "list" in options.items:
        for name, item in known.items():
            print(f"{name:6} {item.where}: {item.what}{f' (needs {item.needs})' if item.needs else ''}")
        for where, why in ABSENT.items():
            print(f"{'-':6} {where}, without an item: {why}")
        print("--spaces and --published name folders of data that are not in this repository", file=sys.stderr)
        return 0
    output = options.output or (ROOT / "build" / "papers-quick" if options.quick else ROOT / "benchmarks" / "results")
    if output.exists() and not output.is_dir():
        raise MptuneError(f"--output {output}: expected a folder")
    given = _given(options)
    chosen = list(known) if "all" in options.items else [name for name in options.items if name in known]
    if not chosen and not any(output.glob("papers/*.json")):
        raise MptuneError(f"{output}: no results are kept there that a page could be written of")
    output.mkdir(parents=True, exist_ok=True)
    if options.size and not any(known[name].has_sizes for name in chosen):
        with_sizes = ", ".join(name for name, item in known.items() if item.has_sizes)
        raise MptuneError(f"--size: {', '.join(chosen) or 'page'} has sizes of its own; it is for {with_sizes}")
    if options.backend != "host" and not any(known[name].has_backends for name in chosen):
        on_devices = ", ".join(name for name, item in known.items() if item.has_backends)
        raise MptuneError(f"--backend: {', '.join(chosen) or 'page'} is of the host backend; it is for {on_devices}")
    failed, done = False, 0
    for name in chosen:
        started = time.perf_counter()
        try:
            outcome = known[name].run(given)
        except Skipped as reason:
            print(f"{name} is skipped: {reason}", file=sys.stderr)
            continue
        except MptuneError as error:
            print(f"{name} failed: {error}", file=sys.stderr)
            failed = True
            continue
        document = keep(name, known[name], outcome, output, command, time.perf_counter() - started)
        print(markdown_of(document), flush=True)
        done += 1
    print(f"written: {write_page(known, output)}", file=sys.stderr)
    return int(failed or (done == 0 and bool(chosen)))


def _given(options: argparse.Namespace) -> Given:
    for name, least in (("runs", 1), ("processes", 1), ("budget", 1), ("seed", 0)):
        if getattr(options, name) is not None and getattr(options, name) < least:
            raise MptuneError(f"--{name} must be at least {least}, not {getattr(options, name)}")
    return Given(
        data=options.data,
        spaces=options.spaces,
        published=options.published,
        work=options.work,
        quick=options.quick,
        runs=options.runs or (2 if options.quick else 100),
        processes=options.processes,
        size=tuple(options.size or (["smoke"] if options.quick else [])),
        budget=options.budget or (4 if options.quick else 60),
        seed=options.seed,
        only=tuple(options.only),
        backend=options.backend,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("items", nargs="+", metavar="ITEM", help="items, or list, all or page")
    parser.add_argument("--quick", action="store_true", help="as little as shows that everything works")
    parser.add_argument(
        "--runs",
        type=int,
        help=f"replays of every tool on every space (100; quick: 2); of slow ones one for every {SLOW} of the others, "
        f"{FEWEST} at least where so many are asked for; of searches that are run (h-f6) {FEWEST} at most",
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="replays at a time")
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="PRESET|NAME=VALUE",
        help="of the kernels of h-f6, and of h-f13",
    )
    parser.add_argument("--budget", type=int, help="evaluations of a search that is run (60; quick: 4)")
    parser.add_argument("--seed", type=int, default=0, help="of inputs and searches that are run")
    shared = ROOT.parent / "shared"
    parser.add_argument("--data", type=Path, default=ROOT / "benchmarks" / "data", help="the project's recorded spaces")
    parser.add_argument("--spaces", type=Path, default=shared / "spaces", help="other people's recorded spaces")
    parser.add_argument("--published", type=Path, default=shared / "published", help="raw results of papers")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PART", help="of other people's, those with this in their names"
    )
    parser.add_argument("--backend", default="host", choices=("host", "opencl"), help="of l-f8, l-f12 and l-f15 (host)")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "papers", help="where finished replays are kept")
    parser.add_argument("--output", type=Path, help="where results go (benchmarks/results; quick: build/papers-quick)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
