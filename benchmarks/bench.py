"""The harness of all benchmarks: rows that know the code they were measured with, a stamp, tables, the command line.

A benchmark is a script with three parts::

    def measure(options, sheet):          # fills rows; each is kept as soon as it is measured
        for name in options.kernels:
            sheet.add(name, lambda: {...})

    def page(options, results):           # Markdown of the rows
        return bench.table(("kernel", "ms"), ...)

    if __name__ == "__main__":
        sys.exit(bench.main(parser(), "Title", measure, page))

The figures are stored beside the page as JSON. Each row has the digest of the code it depends on, the processor, the
commit and the command. ``--resume`` keeps rows whose digest, settings and processor are still the same. The page names
rows of other code as stale, so that nobody quotes them by mistake.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import math
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from mptune.backends.processor import processor, usable_cores
from mptune.errors import MptuneError, UnknownNameError
from mptune.paths import write_whole
from mptune.run import json_document

__all__ = [
    *("BUILD", "RESULTS", "ROOT", "Sheet", "at_least", "code_digest", "digest_of", "main", "names_in", "parser"),
    *("percent", "stamp", "stamp_line", "table", "verdict"),
]

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results"
#: Where benchmarks write that are often run in part.
BUILD: Final = ROOT / "build" / "benchmarks"
#: Folders whose code decides results.
_CODE: Final = ("mptune", "templates", "kernels", "references", "applications")
#: Parts of the package on which no result depends.
_UNRELATED: Final = frozenset(("cli", "show", "testing"))
_DISTRIBUTIONS: Final = (
    *("numpy", "scipy", "scikit-learn", "kernel-tuner", "pyatf", "optuna", "scikit-optimize", "pymoo"),
    "autotuning-methodology",
)


# -- the code and the machine ----------------------------------------------------------------------


def digest_of(files: Iterable[Path]) -> str:
    """Return a digest of the contents of files."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def code_digest(*scripts: Path, without: frozenset[str] = frozenset()) -> str:
    """Return a digest of the code of the package and its kernels, and of the scripts given.

    Args:
        scripts: files of a benchmark.
        without: further folders of the package that do not matter to it.
    """
    unrelated = _UNRELATED | without
    files = [
        file
        for folder in _CODE
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
        if folder != "mptune" or (file.suffix == ".py" and file.relative_to(ROOT / folder).parts[0] not in unrelated)
    ]
    return digest_of([*files, *scripts])


@functools.cache
def commit() -> str:
    """Return the commit of the checkout, with "+" if files were changed since; "" outside of one."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    found = git("rev-parse", "--short=10", "HEAD")
    return found + "+" if found and git("status", "--porcelain", "--untracked-files=no", "--", *_CODE) else found


def stamp(command: str) -> dict[str, Any]:
    """Return what a result was measured with: command, date, processor, cores, commit and versions."""
    versions = {"Python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "command": command,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "processor": processor().name,
        "cores": usable_cores(),
        "commit": commit(),
        "versions": versions,
    }


def stamp_line(about: Mapping[str, Any]) -> str:
    """Return a stamp as one line of Markdown."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    at = f"commit {about['commit']}, " if about["commit"] else ""
    return f"`{about['command']}`, {about['date']}, {about['processor']} ({about['cores']} cores), {at}{versions}."


# -- tables ----------------------------------------------------------------------------------------


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; columns of numbers are aligned to the right."""
    lines = [list(map(str, row)) for row in rows]
    rule = [
        "---:" if all(not r[i].strip("-+<>0123456789.,%×x()[] e") for r in lines) else "---"
        for i in range(len(columns))
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in ([*columns], rule, *lines))


def percent(share: float | None, digits: int = 2) -> str:
    """Return a share as a percentage, a dash for none."""
    return "-" if share is None or not math.isfinite(share) else f"{100 * share:.{digits}f}%"


def verdict(is_met: bool) -> str:
    """Return the word for a target."""
    return "met" if is_met else "MISSED"


# -- rows ------------------------------------------------------------------------------------------


class Sheet:
    """The rows of a benchmark and the page made of them.

    Args:
        path: the page; the rows are stored beside it as JSON.
        title: heading of the page.
        command: the command line.
        page: Markdown of the results by key.
        digest: of the code that results depend on.
        resume: keep what is stored, and do not measure fresh rows again.
        keeps: keep what is stored even so.
    """

    def __init__(
        self,
        path: Path,
        title: str,
        command: str,
        page: Callable[[Mapping[str, Any]], str],
        digest: str,
        *,
        resume: bool = False,
        keeps: bool = False,
    ) -> None:
        self.path = path
        self.resume = resume
        self._title, self._page, self._digest = title, page, digest
        self._about = stamp(command)
        self._rows: dict[str, dict[str, Any]] = self._stored() if resume or keeps else {}
        self._measured: set[str] = set()

    def _stored(self) -> dict[str, dict[str, Any]]:
        try:
            document = json.loads(self.path.with_suffix(".json").read_text(encoding="utf-8"))
            return dict(document["rows"])
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    @property
    def results(self) -> dict[str, Any]:
        """All results by key: those of this run, and those of earlier runs that were not measured again."""
        return {key: row["result"] for key, row in self._rows.items()}

    def is_fresh(self, key: str, settings: Mapping[str, Any]) -> bool:
        """Whether a stored row was measured with this code, these settings and this processor."""
        row = self._rows.get(key)
        return (
            row is not None
            and (row["digest"], row["settings"]) == (self._digest, json_document(dict(settings)))
            and row["about"]["processor"] == self._about["processor"]
        )

    def add(self, key: str, measure: Callable[[], Any], **settings: Any) -> Any:
        """Measure a row and store it; with ``--resume``, return a fresh one. A row is measured once a run.

        Args:
            key: name of the row.
            measure: returns its result, JSON.
            settings: what else it depends on.
        """
        if key in self._measured or (self.resume and self.is_fresh(key, settings)):
            return self._rows[key]["result"]
        started = time.monotonic()
        result = measure()
        took_s = time.monotonic() - started
        self.put(key, result, **settings)
        print(f"{key}: {took_s:.1f} s", file=sys.stderr, flush=True)
        return self._rows[key]["result"]

    def put(self, key: str, result: Any, **settings: Any) -> None:
        """Store a result that was measured in this run."""
        row = {"digest": self._digest, "settings": settings, "about": self._about, "result": result}
        self._rows[key] = json_document(row)
        self._measured.add(key)
        self.write()

    def text(self) -> str:
        """Return the page."""
        stale = [key for key, row in self._rows.items() if row["digest"] != self._digest]
        stamps = dict.fromkeys(stamp_line(row["about"]) for row in self._rows.values())
        parts = [f"# {self._title}", *stamps, self._page(self.results)]
        if stale:
            parts.append(f"Stale, measured with other code than this: {', '.join(stale)}.")
        return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"

    def document(self) -> dict[str, Any]:
        """Return the stored document."""
        return {"title": self._title, "rows": self._rows}

    def write(self) -> None:
        """Write the page and the rows."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.document(), indent=1, allow_nan=False)
        write_whole(self.path.with_suffix(".json"), f"{text}\n".encode())
        write_whole(self.path, self.text().encode())


# -- the command line ------------------------------------------------------------------------------


def parser(description: str | None, output: Path) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--output", type=Path, default=output, help="the page; the figures are stored beside it as JSON")
    made.add_argument("--resume", action="store_true", help="go on: measure only what is not there yet, or stale")
    made.add_argument("--json", action="store_true", help="print the figures as JSON")
    return made


def names_in(text: str, known: Collection[str], kind: str) -> tuple[str, ...]:
    """Return the names in a list separated by commas, each once.

    Raises:
        UnknownNameError: a name is not known.
    """
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in known:
            raise UnknownNameError(kind, name, known)
    return names


def at_least(options: argparse.Namespace, least: float, *names: str) -> None:
    """Check that numbers of the command line are not too small.

    Raises:
        MptuneError: one is.
    """
    for name in names:
        value = getattr(options, name)
        if value is not None and not value >= least:
            raise MptuneError(f"--{name.replace('_', '-')} {value}: expected at least {least:g}")


def main(
    options_of: argparse.ArgumentParser,
    title: str,
    measure: Callable[[argparse.Namespace, Sheet], int | None],
    page: Callable[[argparse.Namespace, Mapping[str, Any]], str],
    arguments: Sequence[str] | None = None,
    *,
    scripts: Sequence[Path] = (),
    keeps: bool = False,
) -> int:
    """Run a benchmark; return 0 if it ended well, what ``measure`` returned, or 2 for wrong input.

    Args:
        options_of: the parser.
        title: heading of the page.
        measure: fills rows.
        page: Markdown of the results by key.
        arguments: the command line.
        scripts: files of the benchmark besides the one that is run.
        keeps: keep stored rows that are not measured again, also without ``--resume``.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = options_of.parse_args(words)
    script = Path(measure.__code__.co_filename).resolve()
    command = shlex.join(["python", os.path.relpath(script, ROOT), *words])
    digest = code_digest(script, *scripts)
    try:
        made = functools.partial(page, options)
        sheet = Sheet(options.output, title, command, made, digest, resume=options.resume, keeps=keeps)
        code = measure(options, sheet)
    except MptuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    sheet.write()
    print(json.dumps(sheet.document(), indent=1) if options.json else sheet.text())
    return code or 0
