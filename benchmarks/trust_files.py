"""What files from somebody else can do: crafted ones are opened by every command that reads files.

A file is data. Each crafted one (``crafted.py``) tries to be more. Every one is opened in a process of its own, and
counted are: how many had code run (a "canary" file appears), how many ended in a traceback, in more than one line, took
more than 5 s of processor time or 500 MB, or put into an output what the output takes for more than text. Then a new
run file is mutated 600 times: each must be refused or read the same.

    python benchmarks/trust_files.py [--before PYTHON] [--mutations 600] [--only NAME ...] [--output FILE.md]

It takes about four minutes on two cores.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import csv
import dataclasses
import io
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mptune
from mptune.errors import MptuneError
from mptune.results import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration

# Last, so that ``--before`` measures its own mptune.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks.crafted import READING, RUNNING, SPACE, Crafted, Maker, crafted_files

__all__ = ["Counts", "count", "mutations"]

OUTPUT: Final = Path(__file__).parent / "results" / "trust_files.md"
#: What opening a file may take.
LONGEST_S: Final = 5.0
LARGEST_MB: Final = 500.0
#: A child that asks for more address space than this is stopped; libraries reserve far more than they use.
_ADDRESS_SPACE: Final = 6 << 30
_KILLED_AFTER_S: Final = 60.0
#: Where files are written fastest.
_MEMORY: Final = "/dev/shm"


# -- opening them --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counts:
    """What came of crafted files: how many there were, and the names of those that did what no file should."""

    files: int
    executed: tuple[str, ...]
    tracebacks: tuple[str, ...]
    many_lines: tuple[str, ...]
    slow: tuple[str, ...]
    large: tuple[str, ...]
    unescaped: tuple[str, ...]

    def rows(self) -> list[tuple[str, int]]:
        """Return how many of each kind, in words."""
        return [
            ("crafted files", self.files),
            ("code run", len(self.executed)),
            ("tracebacks", len(self.tracebacks)),
            ("an error of more than one line", len(self.many_lines)),
            (f"more than {LONGEST_S:g} s of processor time for a command", len(self.slow)),
            (f"more than {LARGEST_MB:g} MB", len(self.large)),
            ("text that became markup, a formula, code or a terminal sequence", len(self.unescaped)),
        ]


def count(folder: Path, only: Sequence[str] = (), on_file: Callable[[str], None] = lambda _: None) -> Counts:
    """Open every crafted file with every command that reads its kind, each file in a process of its own.

    Args:
        folder: an empty folder to make the files in.
        only: beginnings of names; by default all of them.
        on_file: is told the name of each file and what was wrong with it.
    """
    kinds = ("executed", "tracebacks", "many_lines", "slow", "large", "unescaped")
    found: dict[str, list[str]] = {kind: [] for kind in kinds}
    files = 0
    work = folder / "work"
    work.mkdir()
    canaries = folder / "canaries"
    _warm_up(folder / "warm")
    for crafted in crafted_files(folder, only):
        files += 1
        wrong = _open_apart(crafted, work)
        made = {path for path in canaries.iterdir() if not path.name.endswith(".hpp")}
        if made:
            wrong.add("executed")
        for path in made:
            path.unlink()
        for kind in wrong:
            found[kind].append(crafted.name)
        on_file(f"{crafted.name}: {', '.join(sorted(wrong)) or 'nothing'}")
    return Counts(files, *(tuple(found[kind]) for kind in kinds))


def _warm_up(folder: Path) -> None:
    """Have everything imported that commands import, which the children then have."""
    folder.mkdir()
    maker = Maker(folder)
    path = maker.write("warm", maker.info(), maker.trials())
    for command in (*READING, RUNNING[0], SPACE[0]):
        _run([word.replace("{}", str(path)) for word in command.split()])


def _open_apart(crafted: Crafted, work: Path) -> set[str]:
    """Open a file in a child of this process; return what was wrong."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        wrong = {"tracebacks"}
        try:
            os.chdir(work)
            resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
            resource.setrlimit(resource.RLIMIT_CPU, (int(_KILLED_AFTER_S), int(_KILLED_AFTER_S)))
            wrong = _open_all(crafted, work)
        except BaseException:
            traceback.print_exc()
        finally:
            os.write(writing, json.dumps(sorted(wrong)).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, _, usage = os.wait4(child, 0)
    # A child that was killed, for the time or the memory it took, says nothing.
    wrong = set(json.loads(said)) if said else {"slow"}
    if usage.ru_maxrss / 1e3 > LARGEST_MB:
        wrong.add("large")
    return wrong


def _open_all(crafted: Crafted, work: Path) -> set[str]:
    wrong: set[str] = set()
    for number, command in enumerate(crafted.commands):
        prefix = work / f"{crafted.path.name}-{number}"
        words = [word.replace("{}", str(prefix if word != "{}" else crafted.path)) for word in command.split()]
        start_s = time.process_time()
        out, err, has_failed = _run(words)
        if time.process_time() - start_s > LONGEST_S:
            wrong.add("slow")
        if has_failed:
            wrong.add("tracebacks")
            sys.stderr.write(f"{crafted.name}: {command}\n{err[-1500:]}\n")
        lines = [line for line in err.splitlines() if line.startswith("error: ")]
        after = err.split("error: ", 1)[1].splitlines() if lines else []
        if len(after) > 1 and not any(word in command for word in ("emit", "tuned")):
            wrong.add("many_lines")
        if _STEERS.search(out + err):
            wrong.add("unescaped")
    if not all(map(_is_text, work.rglob(f"{crafted.path.name}-*"))):
        wrong.add("unescaped")
    return wrong


#: Sequences that steer a terminal, but for the colours that mptune uses.
_STEERS: Final = re.compile("\x1b(?!\\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _run(words: Sequence[str]) -> tuple[str, str, bool]:
    """Run a command in this process; return both outputs, and whether it failed otherwise than with a message."""
    from mptune.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            if words[0].startswith(":"):
                _call(words[0][1:], words[1])
            else:
                sys.argv = ["mptune", *words]
                main()
        except SystemExit:
            pass
        except MptuneError as error:
            err.write(f"error: {error}\n")
        except BaseException:
            err.write(traceback.format_exc())
            return out.getvalue(), err.getvalue(), True
    return out.getvalue(), err.getvalue(), "Traceback (most recent call last)" in err.getvalue()


def _call(what: str, path: str) -> None:
    import warnings

    warnings.simplefilter("ignore")
    if what == "t1":
        from mptune.interop import read_t1

        read_t1(path)
    elif what == "tuned":
        import numpy as np

        with mptune.TunedKernel(path) as tuned:
            tuned(x=np.linspace(0.0, 12.0, 10007))


def _is_text(path: Path) -> bool:
    """Whether what a command wrote is what its format takes for text where text is meant."""
    if not path.is_file():
        return True
    content = path.read_bytes()
    name = path.name
    if name.endswith(".html"):
        text = content.decode()
        return text.count("<script") == 2 and text.count("</script>") == 2 and "<img" not in text
    if name.endswith(".csv"):
        cells = (cell for row in csv.reader(io.StringIO(content.decode())) for cell in row)
        return not any(
            (cell.lstrip(" ").startswith(("=", "+", "@", "\t", "\r", "-")) and not _is_number(cell))
            or _STEERS.search(cell)
            for cell in cells
        )
    if name.endswith(".py"):
        ast.parse(content)
        return "system" not in {n.id for n in ast.walk(ast.parse(content)) if isinstance(n, ast.Name)}
    if name.endswith((".cu", ".hpp", ".cpp", ".hip")):
        return b"system(" not in re.sub(rb'//[^\n]*|/\*.*?\*/|"(\\.|[^"\\\n])*"', b"", content, flags=re.DOTALL)
    if name.endswith(".md"):
        plain = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", content.decode(), flags=re.DOTALL)
        return not any(mark in plain for mark in ("<script", "<img", "](javascript", "\\input"))
    return True


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# -- mutations -----------------------------------------------------------------------------------


def mutations(count: int = 600, seed: int = 0) -> dict[str, int]:
    """Mutate a run file; return how many files were refused, read the same, read otherwise, or gave a traceback."""
    chance = random.Random(seed)
    found = dict.fromkeys(("refused", "the same", "different", "traceback"), 0)
    with tempfile.TemporaryDirectory() as name:
        maker = Maker(Path(name))
        blocks = [Configuration({**maker.kernel.configuration({}), "block_size": b, "vector_width": v})
                  for b in (64, 128, 256, 512) for v in (1, 2, 4, 8)]  # fmt: skip
        trials = [
            Trial(c, Status.OK, "", Measurement({"time_ms": 1 + i / 7, "error": 1e-9}, (1.5, i / 3)), key=f"{i:064x}")
            for i, c in enumerate(blocks)
        ]
        path = maker.write("mutated", maker.info(), [*maker.trials(message="signal 11 at 0x7f"), *trials])
        content, as_written = path.read_bytes(), _shown(Run.load(path))
        for _ in range(count):
            path.write_bytes(_mutated(content, chance))
            try:
                outcome = "the same" if _shown(Run.load(path)) == as_written else "different"
            except MptuneError:
                outcome = "refused"
            except Exception:
                outcome = "traceback"
            found[outcome] += 1
    return found


def _shown(run: Run) -> str:
    """Return everything that is read of a run."""
    trials = [
        (t.configuration.to_json(), str(t.status), t.message, dict(t.measurement.metrics), t.measurement.times_ms,
         dict(t.measurement.durations_s), t.measurement.reused_error, t.warnings, t.key)
        for t in run.trials
    ]  # fmt: skip
    return repr((run.info, run.state, trials))


def _mutated(content: bytes, chance: random.Random) -> bytes:
    """Return a run file with one thing changed: bits, bytes, digits, blocks that change places, or its end missing."""
    data = bytearray(content)
    at, size = chance.randrange(len(data)), chance.randrange(1, 64)
    match chance.randrange(7):
        case 0:
            data[at] ^= 1 << chance.randrange(8)
        case 1:
            data[at] = chance.randrange(256)
        case 2:
            data[at : at + size] = chance.randbytes(len(data[at : at + size]))
        case 3:
            data[at : at + size] = bytes(len(data[at : at + size]))
        case 4:
            digits = [i for i, byte in enumerate(data) if 0x30 <= byte <= 0x39]
            data[chance.choice(digits)] = 0x30 + chance.randrange(10)
        case 5:
            other = chance.randrange(len(data) - size)
            at = min(at, len(data) - size)
            data[at : at + size], data[other : other + size] = data[other : other + size], data[at : at + size]
        case 6:
            del data[at:]
    return bytes(data)


# -- the page ------------------------------------------------------------------------------------


def measure(mutation_count: int, only: Sequence[str]) -> dict[str, Any]:
    """Count everything with the mptune of this interpreter."""
    os.environ.setdefault("MPLBACKEND", "agg")
    with tempfile.TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None) as folder:
        counts = count(Path(folder), only, lambda line: print(line, file=sys.stderr, flush=True))
    return {
        "version": mptune.__version__,
        "rows": counts.rows(),
        "names": {f.name: getattr(counts, f.name) for f in dataclasses.fields(counts) if f.name != "files"},
        "mutations": mutations(mutation_count) if not only else {},
    }


def page(now: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    """Return the counts as Markdown."""
    columns = [entry for entry in (before, now) if entry is not None]
    titles = (["before"] if before else []) + ["now"]
    lines = ["# Files from somebody else", "", f"| | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
    for i, (what, _) in enumerate(now["rows"]):
        lines.append(f"| {what} | {' | '.join(str(entry['rows'][i][1]) for entry in columns)} |")
    for what in now["mutations"]:
        cells = " | ".join(str(entry["mutations"][what]) for entry in columns)
        lines.append(f"| mutated run files: {what} | {cells} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Count, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="PYTHON", help="an interpreter with the mptune to compare with")
    parser.add_argument("--mutations", type=int, default=600)
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="beginnings of names")
    parser.add_argument("--json", action="store_true", help="print the counts, and write no page")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    now = measure(given.mutations, given.only)
    if given.json:
        print(json.dumps(now))
        return
    before = None
    if given.before:
        command = [given.before, __file__, "--json", "--mutations", str(given.mutations)]
        more = ["--only", *given.only] if given.only else []
        before = json.loads(subprocess.run([*command, *more], stdout=subprocess.PIPE, check=True).stdout)
    text = page(now, before)
    print(text)
    for entry in (now, before):
        print({kind: names for kind, names in entry["names"].items() if names} if entry else "", file=sys.stderr)
    if not given.only:
        given.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
