# ruff: noqa: E501 - crafted texts are as long as they are
"""What files from somebody else can do: crafted ones are opened by every command that reads files.

A file is data. Each crafted one tries to be more: code in a configuration's values, paths that lead to code, formulas,
markup, terminal sequences, views and triggers, pickles, more than memory holds. Every one is opened in a process of its
own, and counted are: how many had code run (a "canary" file appears), how many ended in a traceback, in more than one line,
took more than 5 s of processor time or 500 MB, or put into an output what the output takes for more than text. Then a
new run file is mutated 600 times: each must be refused or read the same.

    python benchmarks/trust_files.py [--before PYTHON] [--mutations 600] [--only NAME ...] [--output FILE.md]

It takes about four minutes on two cores. :func:`crafted_files` makes the files, :func:`count` opens them.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import csv
import dataclasses
import gzip
import io
import json
import os
import pickle
import random
import re
import resource
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mptune
from mptune.backends import get_backend
from mptune.errors import MptuneError
from mptune.kernel import Kernel
from mptune.objective import Objective
from mptune.registry import load_kernel
from mptune.results import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.store import ParameterInfo, RunFile, RunInfo, RunState

__all__ = ["Counts", "Crafted", "count", "crafted_files", "mutations"]

OUTPUT: Final = Path(__file__).parent / "results" / "trust_files.md"
#: What opening a file may take.
LONGEST_S: Final = 5.0
LARGEST_MB: Final = 500.0
#: A child that asks for more address space than this is stopped; libraries reserve far more than they use.
_ADDRESS_SPACE: Final = 6 << 30
_KILLED_AFTER_S: Final = 60.0
_BASE: Final = "bessel"
#: Where files are written fastest.
_MEMORY: Final = "/dev/shm"


@dataclass(frozen=True, slots=True)
class Crafted:
    """One crafted file.

    Attributes:
        name: what it tries, in short.
        path: the file.
        commands: what opens it, without ``mptune``; ``{}`` stands for the file. Those that begin with ":" are calls of
            Python (see :func:`_call`).
        canary: the file that appears if code is run.
    """

    name: str
    path: Path
    commands: tuple[str, ...]
    canary: Path


_READING: Final = (
    "show {}",
    "show {} --json",
    "pareto {}",
    "report {} -o {}.html",
    "export {} --format csv -o {}.csv",
    "export {} --format json -o {}.json",
    "export {} --format t4 -o {}.t4.json",
)
_RUNNING: Final = ("emit {} -o {}.emitted", f"emit {{}} --kernel {_BASE} -o {{}}.given", ":tuned {}")
_ALL: Final = (*_READING, *_RUNNING)
#: It measures for as long as it finds a kernel to run, so that only files that name none, or another, are explained.
_EXPLAINED: Final = (*_ALL, "explain {}")
_SPACE: Final = ("plot {} --kind all -o {}.png", "simulate {} --strategy random --budget 3 --repeats 1")


# -- run files -----------------------------------------------------------------------------------


class _Maker:
    """Makes run files of a bundled kernel and changes them."""

    def __init__(self, folder: Path, only: Sequence[str] = ()) -> None:
        self.folder = folder
        self._only = tuple(only)
        self.kernel: Kernel = load_kernel(_BASE)
        # A run of this very device, so that its best is what TunedKernel uses.
        self.device = get_backend("host").describe()

    def wants(self, name: str) -> bool:
        """Whether a file was asked for; the others may be made small."""
        return not self._only or name.startswith(self._only)

    def canary(self, name: str) -> Path:
        return self.folder / "canaries" / name

    def info(self, **changes: Any) -> RunInfo:
        kernel = self.kernel
        described = RunInfo(
            kernel=kernel.name, kernel_path="/somewhere/mptune/kernels/bessel.py", size="smoke", sizes={"n": 10007},
            backend="host", device=self.device.name, architecture=self.device.architecture, versions={"compiler": "g++ 12.2.0"},
            compiler="host|g++|-march=native", objective=Objective(threshold=1e-3), metric="MRE",
            baseline_values=kernel.baseline_values(), strategy="random", budget=10, seed=0, scheduler=None,
            parameters=tuple(ParameterInfo(p.name, p.kind, p.values) for p in kernel.parameters),
            configurations=1000, signature=kernel.signature_names, mptune_version=mptune.__version__,
            command="mptune tune bessel", created_at="2026-01-02T03:04:05+00:00",
        )  # fmt: skip
        return dataclasses.replace(described, **changes)

    def trials(self, **best: Any) -> list[Trial]:
        """Return a baseline, one that fails, and a best one with some values replaced."""
        wide = self.kernel.configuration({})
        narrow = {**wide, "input_type": "fp32", "series_type": "fp32", "asymptotic_type": "fp32", "output_type": "fp32"}
        message = best.pop("message", "")
        failed = Trial(Configuration({**wide, "block_size": 128}), Status.CRASH, message or "signal 11", key="c" * 64)
        return [
            Trial(wide, Status.OK, "", Measurement({"time_ms": 2.0, "error": 1e-16}, (2.0, 2.1)), key="a" * 64),
            failed,
            Trial(
                Configuration({**narrow, **best}), Status.OK, "", Measurement({"time_ms": 1.0, "error": 1e-6}, (1.0,)),
                warnings=(message,) if message else (), key="b" * 64,
            ),
        ]  # fmt: skip

    def write(self, name: str, info: RunInfo, trials: Sequence[Trial]) -> Path:
        path = self.folder / f"{name}.db"
        with RunFile.create(path, info, RunState(wall_s=1.0)) as file:
            file.add_all(list(trials))
        return path


@contextlib.contextmanager
def _opened(path: Path, *, sealed: bool = False) -> Iterator[sqlite3.Connection]:
    """Give the database of a run file to change it; ``sealed``: its checksums are made to fit afterwards."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection
    if sealed:
        _seal(path)


def _seal(path: Path) -> None:
    """Make the checksums of a run file fit what it holds, as anybody can; nothing if it has none."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if not _has_checksums(connection):
            return
        from mptune.store.database import COLUMNS
        from mptune.store.seal import Seal, checksum

        rows = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM trials").fetchall()
        connection.executemany("UPDATE trials SET checksum = ? WHERE id = ?", [(checksum(r), r[0]) for r in rows])
        sources = connection.execute("SELECT value FROM meta WHERE name = 'sources'").fetchone()
        seal = Seal(
            trials=len(rows),
            trials_sum=Seal.total([checksum(row) for row in rows]),
            settings_sum=Seal.total([checksum(r) for r in connection.execute("SELECT name, value FROM settings")]),
            sources=checksum(sources).hex() if sources else "",
        )
        connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('seal', ?)", (seal.to_text(),))


def _has_checksums(connection: sqlite3.Connection) -> bool:
    return any(row[1] == "checksum" for row in connection.execute("PRAGMA table_info(trials)"))


def _unsealed(path: Path) -> Path:
    """Return a copy in the format of before there were checksums."""
    copy = path.with_name(f"{path.stem}-old.db")
    copy.write_bytes(path.read_bytes())
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        if _has_checksums(connection):
            connection.execute("ALTER TABLE trials DROP COLUMN checksum")
            connection.execute("PRAGMA user_version = 1")
    return copy


def _code(canary: Path) -> str:
    """Return C++ for ``mp::exp<{{ policy }}>(x)`` that makes the canary when the kernel is run (on an x86-64)."""
    make = 'asm volatile("syscall" : "=a"(made) : "a"(2), "D"("%s"), "S"(65), "d"(384) : "rcx", "r11", "memory");'
    run = f"const bool ran = [] {{ long made; {make % canary} return made > 0; }}(); (void)ran;"
    return f"accurate>(x); {{ {run} }} mp::rsqrt<accurate"


def _values(maker: _Maker) -> Iterator[tuple[str, Path]]:
    """Give run files whose configurations hold code."""
    texts: dict[str, Callable[[Path], Any]] = {
        "statement": _code,
        "call": lambda c: f'(__extension__({{ ::system("touch {c}"); 0; }}))',
        "function": lambda c: f'x() {{}} static int run = ::system("touch {c}"); void y',
        "include": lambda c: f'accurate\n#include "{c}.hpp"\n',
        "assembly": lambda c: f'accurate; __asm__(".incbin \\"{c}.hpp\\""); //',
        "template": lambda c: f"{{{{ self.__init__.__globals__.__builtins__.open('{c}', 'w') }}}}",
        "pragma": lambda c: f"accurate\n#pragma GCC plugin {c}\n",
    }
    for parameter in ("policy", "series_type", "block_size", "vector_width"):
        for what, text in texts.items():
            name = f"value-{parameter}-{what}"
            path = maker.canary(name)
            path.with_name(f"{path.name}.hpp").parent.mkdir(exist_ok=True)
            changed = maker.trials(**{parameter: text(path)})
            yield name, maker.write(name, maker.info(), changed)
            if what in ("statement", "function"):
                value = text(path)
                listed = tuple(
                    dataclasses.replace(p, values=(*p.values, value)) if p.name == parameter else p
                    for p in maker.info().parameters
                )
                yield f"{name}-listed", maker.write(f"{name}-listed", maker.info(parameters=listed), changed)
                yield f"{name}-alone", maker.write(f"{name}-alone", maker.info(parameters=()), changed)
    flags = {
        "plugin": "-fplugin={}.so", "wrapper": "-wrapper {},x", "include": "-include {}.hpp", "prefix": "-B{}/",
        "file": "@{}", "linker": "-Wl,-rpath,{}", "output": "-o {}", "dump": "-fdump-tree-all={}",
    }  # fmt: skip
    for what, flag in flags.items():
        name = f"flags-{what}"
        value = flag.format(maker.canary(name))
        described = (*maker.info().parameters, ParameterInfo("compiler_flags", "build", (value,)))
        trials = [
            dataclasses.replace(t, configuration=Configuration({**t.configuration, "compiler_flags": value}))
            for t in maker.trials()
        ]
        yield name, maker.write(name, maker.info(parameters=described), trials)
    for what in ("compiler-path", "compiler-name"):
        value = str(maker.canary(what)) if what == "compiler-path" else "g++;touch x"
        described = (*maker.info().parameters, ParameterInfo("compiler", "build", (value,)))
        trials = [
            dataclasses.replace(t, configuration=Configuration({**t.configuration, "compiler": value}))
            for t in maker.trials()
        ]
        yield what, maker.write(what, maker.info(parameters=described), trials)


def _paths(maker: _Maker) -> Iterator[tuple[str, Path]]:
    """Give run files that name definitions and templates elsewhere."""
    for what in ("elsewhere", "here", "named-as-path", "dots", "link", "template", "folder", "pickle"):
        name = f"path-{what}"
        canary = maker.canary(name)
        folder = maker.folder / ("work" if what in ("here", "template") else "elsewhere") / name
        folder.mkdir(parents=True)
        file = folder / "e.py"
        file.write_text(f"open({str(canary)!r}, 'w').close()\n")
        (folder / "e.cu.j2").write_text(f"{{{{ cycler.__init__.__globals__.os.system('touch {canary}') }}}}\n")
        kernel, path = "e", str(file)
        if what == "named-as-path":
            kernel, path = str(file), f"{file}.py"
        elif what == "dots":
            kernel, path = f"../../elsewhere/{name}/e", f"kernels/../../../elsewhere/{name}/e.py"
        elif what == "link":
            (folder / "link.py").symlink_to(file)
            path = str(folder / "link.py")
        elif what == "template":
            kernel, path = _BASE, str(folder / "bessel.py")
            (folder / "bessel.py").write_text(file.read_text())
        elif what == "folder":
            path = str(folder)
        elif what == "pickle":
            path = str(folder / "e.pkl")
            (folder / "e.pkl").write_bytes(_pickled(canary))
        yield name, maker.write(name, maker.info(kernel=kernel, kernel_path=path), maker.trials())


def _texts(maker: _Maker) -> Iterator[tuple[str, Path]]:
    """Give run files whose texts are code, formulas, markup or terminal sequences."""
    python = "__import__('os').system('touch {}')"
    fields: dict[str, Callable[[str], dict[str, Any]]] = {
        "kernel": lambda t: {"kernel": t},
        "metric": lambda t: {"metric": t},
        "device": lambda t: {"device": t, "architecture": t, "backend": t},
        "command": lambda t: {"command": t, "created_at": t},
        "versions": lambda t: {"versions": {t: t}, "compiler": t},
        "strategy": lambda t: {"strategy": t, "strategy_options": {t: t}, "observers": (t,)},
        "constraint": lambda t: {"constraints": (t,), "constants": {"x": t}},
        "size": lambda t: {"size": t, "sizes": {t: 1}},
        "units": lambda t: {"units": {"time_ms": t}, "recorded": t, "mptune_version": t},
    }
    payloads = {
        "python": python,
        "shell": "mptune tune x; touch {0} && $(touch {0}) `touch {0}`",
        "script": "</script><script>open('{}')</script><img src=x onerror=alert(1)>",
        "comment": '*/ static int run = system("touch {}"); /* \\\n#include "/etc/passwd"\n//??/\n',
    }
    for field, make in fields.items():
        for what, payload in payloads.items():
            name = f"text-{field}-{what}"
            yield name, maker.write(name, maker.info(**make(payload.format(maker.canary(name)))), maker.trials())
    messages = {
        "title": "\x1b]0;owned\x07\x1b[2J\x1b[1;1H", "eight-bit": "\x9b31m\x9d0;owned\x9c", "direction": "\u202eevil\u2066",
        "return": "failed\rall is well", "colours": "\x1b[31mred", "markdown": "](javascript:alert(1)) ![x](http://x/y)",
        "latex": "\\input{/etc/passwd}$\\write18{touch x}$", "formula": "=cmd|'/C calc'!A0", "at": "@SUM(1)", "plus": "+1+1",
        "minus": "-2+3", "tab": "\t=1+1", "mathtext": "$\\frac{", "surrogate": "\\udcff\\x00", "script": payloads["script"],
        "comment": payloads["comment"],
    }  # fmt: skip
    for what, text in messages.items():
        name = f"message-{what}"
        yield name, maker.write(name, maker.info(device=text), maker.trials(message=text.replace("{}", "x")))
    for what in ("objective", "constraint"):
        name = f"expression-{what}"
        path = maker.write(name, maker.info(), maker.trials())
        text = python.format(maker.canary(name))
        field, value = ("objective", text) if what == "objective" else ("measured_constraints", [f"{text} < 1"])
        with _opened(path, sealed=True) as connection:
            connection.execute("UPDATE settings SET value = ? WHERE name = ?", (json.dumps(value), field))
        yield name, path
    name = "metric-names"
    odd = {"time_ms": 1.0, "error": 1e-6, "=1+1": 1.0, "</script><b>": 2.0, "\x1b]0;x\x07": 3.0, "a\nb": 4.0}
    trials = [dataclasses.replace(t, measurement=Measurement(odd)) if t.is_valid else t for t in maker.trials()]
    yield name, maker.write(name, maker.info(), trials)


def _pickled(canary: Path) -> bytes:
    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (canary,)

    return pickle.dumps(Payload())


# -- databases -----------------------------------------------------------------------------------

_ENDLESS: Final = "WITH RECURSIVE c(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM c) SELECT {} FROM c"


def _databases(maker: _Maker) -> Iterator[tuple[str, Path]]:
    """Give run files that use what SQLite can do."""

    def written(name: str) -> Path:
        return maker.write(name, maker.info(), maker.trials())

    statements: dict[str, Sequence[str]] = {
        "view-endless": ["ALTER TABLE settings RENAME TO s",
                         f"CREATE VIEW settings AS {_ENDLESS.format('x AS name, x AS value')}"],
        "view-trials": ["ALTER TABLE trials RENAME TO t", "CREATE VIEW trials AS SELECT * FROM t, t AS u, t AS v, t AS w"],
        "view-beside": [f"CREATE VIEW more AS {_ENDLESS.format('x')}"],
        "trigger": ["CREATE TABLE more (x)",
                    f"CREATE TRIGGER run AFTER INSERT ON meta BEGIN INSERT INTO more {_ENDLESS.format('x')}; END"],
        "trigger-update": ["CREATE TRIGGER run AFTER UPDATE ON settings BEGIN SELECT load_extension('/tmp/x.so'); END"],
        "virtual": ["CREATE VIRTUAL TABLE more USING fts5(x)"],
        "index": ["CREATE INDEX more ON trials (length(message))"],
        "generated": ["ALTER TABLE trials ADD COLUMN more TEXT GENERATED ALWAYS AS (printf('%999999999d', 1)) VIRTUAL"],
        "tables": [f"CREATE TABLE t{i} (x)" for i in range(300)],
        "check": ["CREATE TABLE more (x CHECK (length(randomblob(1000000000)) > 0))"],
    }  # fmt: skip
    for what, changes in statements.items():
        path = written(f"sqlite-{what}")
        with contextlib.suppress(sqlite3.Error), _opened(path) as connection:
            for statement in changes:
                connection.execute(statement)
        yield f"sqlite-{what}", path
    schema = {
        "syntax": "CREATE TABLE trials (", "virtual-module": "CREATE VIRTUAL TABLE trials USING csv(filename='/etc/passwd')",
        "default": "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL DEFAULT (load_extension('x')))",
    }  # fmt: skip
    for what, text in schema.items():
        path = written(f"schema-{what}")
        with _opened(path) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            table = "settings" if what == "default" else "trials"
            connection.execute("UPDATE sqlite_master SET sql = ? WHERE type = 'table' AND name = ?", (text, table))
        yield f"schema-{what}", path
    cells: dict[str, tuple[str, Any]] = {
        "pickle-times": ("times_ms", _pickled(maker.canary("cell-pickle-times"))),
        "pickle-message": ("message", _pickled(maker.canary("cell-pickle-message"))),
        "deep": ("metrics", "[" * 200_000), "deep-object": ("configuration", '{"a":' * 100_000),
        "digits": ("metrics", '{"time_ms": ' + "9" * 2_000_000 + "}"), "exponent": ("metrics", '{"time_ms": 1e999999999}'),
        "nan": ("metrics", '{"time_ms": NaN, "error": -Infinity}'), "status": ("status", "__class__"),
        "many-metrics": ("metrics", json.dumps({f"m{i}": 1.0 for i in range(200_000)})),
        "arrays": ("warnings", "[" + "[]," * 1_000_000 + "[]]"), "times": ("times_ms", struct.pack("<d", 1.0) * 1_000_000),
        "phase": ("phase", "'); DROP TABLE trials; --"), "key": ("key", "../../../../etc/passwd"),
        "not-text": ("message", b"\xff\xfe\x00"),
    }  # fmt: skip
    for what, (column, value) in cells.items():
        path = written(f"cell-{what}")
        with contextlib.suppress(Exception), _opened(path, sealed=True) as connection:
            connection.execute(f"UPDATE trials SET {column} = ? WHERE id = 3", (value,))
        yield f"cell-{what}", path
    settings: dict[str, tuple[str, str]] = {
        "deep": ("constraints", "[" * 200_000 + "]" * 200_000), "digits": ("seed", "9" * 1_000_000),
        "parameters": ("parameters", json.dumps([{"name": f"p{i}", "kind": "ordinal", "values": [1]} for i in range(10_000)])),
        "values": ("parameters", json.dumps([{"name": "p", "kind": "ordinal", "values": list(range(1_000_000))}])),
        "version": ("version", "true"), "objective": ("objectives", json.dumps([f"m{i}" for i in range(10_000)])),
        "parentheses": ("measured_constraints", json.dumps(["(" * 5000 + "time_ms" + ")" * 5000 + " < 1"])),
        "power": ("objective", json.dumps("9 ** 9 ** 9 ** 9 + time_ms")),
        "sizes": ("sizes", json.dumps({"n": 10**18})),
    }  # fmt: skip
    for what, (field, text) in settings.items():
        path = written(f"setting-{what}")
        with _opened(path, sealed=True) as connection:
            connection.execute("UPDATE settings SET value = ? WHERE name = ?", (text, field))
        yield f"setting-{what}", path
    for what, data in (
        ("bomb", zlib.compress(b"[" * 100) + b""), ("large", zlib.compress(bytes(1 << 30 if maker.wants("sources-large") else 1), 1)),
        ("pickle", _pickled(maker.canary("sources-pickle"))), ("number", b"7"),
    ):  # fmt: skip
        path = written(f"sources-{what}")
        with _opened(path, sealed=True) as connection:
            connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('sources', ?)", (data,))
        yield f"sources-{what}", path
    path, size = written("message-800MB"), 800_000_000 if maker.wants("message-800MB") else 1
    with _opened(path) as connection:
        connection.execute("UPDATE trials SET message = CAST(zeroblob(?) AS TEXT) WHERE id = 2", (size,))
    yield "message-800MB", path
    path = written("journal")
    canary = maker.canary("journal-target")
    canary.parent.mkdir(exist_ok=True)
    named = str(canary).encode()
    checksum = sum(named) & 0xFFFFFFFF
    magic = bytes.fromhex("d9d505f920a163d7")
    head = magic + struct.pack(">5I", 0, 1, 3, 512, 4096)
    tail = struct.pack(">I", 0) + named + struct.pack(">2I", len(named), checksum) + magic
    path.with_name(f"{path.name}-journal").write_bytes(head.ljust(512, b"\0") + tail)
    yield "journal", path
    for what, data in {
        "pickle": _pickled(maker.canary("raw-pickle")), "empty": b"", "magic": b"SQLite format 3\0", "zeros": bytes(4096),
    }.items():  # fmt: skip
        path = maker.folder / f"raw-{what}.db"
        path.write_bytes(data)
        yield f"raw-{what}", path


# -- formats of other tools ----------------------------------------------------------------------


def _recordings(maker: _Maker) -> Iterator[tuple[str, Path, tuple[str, ...]]]:
    """Give recordings and inputs of other tools."""
    folder = maker.folder

    def placed(name: str, data: bytes) -> Path:
        path = folder / name
        path.write_bytes(data)
        return path

    def t1(name: str, values: Any, condition: str = "x > 0", kind: str = "int", count: int = 1) -> Path:
        parameters = [{"Name": f"x{i}" if i else "x", "Type": kind, "Values": values} for i in range(count)]
        conditions = [{"Expression": condition, "Parameters": ["x"]}]
        document = {"ConfigurationSpace": {"TuningParameters": parameters, "Conditions": conditions}}
        return placed(f"{name}.json", json.dumps(document).encode())

    touch = str(maker.canary("t1"))
    for name, path in {
        "t1-range": t1("t1-range", "range(10**18)"),
        "t1-list": t1("t1-list", "list(range(10**12))"),
        "t1-huge-range": t1("t1-huge-range", "range(10**30)"),
        "t1-repeat": t1("t1-repeat", "[1] * 10**12"),
        "t1-power": t1("t1-power", "[9 ** 9 ** 9 ** 9]"),
        "t1-shift": t1("t1-shift", "[1 << 10**12]"),
        "t1-comprehension": t1("t1-comprehension", "[a for a in range(10**6) for b in range(10**6)]"),
        "t1-nested": t1("t1-nested", "(" * 5000 + "1" + ")" * 5000),
        "t1-minus": t1("t1-minus", "[" + "-" * 90_000 + "1]"),
        "t1-not": t1("t1-not", "[1, 2]", "not " * 20_000 + "x"),
        "t1-parentheses": t1("t1-parentheses", "[1, 2]", "(" * 5000 + "x" + ")" * 5000 + " > 0"),
        "t1-and": t1("t1-and", "[1, 2]", " and ".join(["x > 0"] * 14_000)),
        "t1-import": t1("t1-import", f"[__import__('os').system('touch {touch}')]"),
        "t1-class": t1("t1-class", "[1, 2]", "().__class__.__bases__[0].__subclasses__()"),
        "t1-format": t1("t1-format", "[1, 2]", "'{0.__class__}'.format(x)"),
        "t1-lambda": t1("t1-lambda", f"[(lambda: open('{touch}', 'w'))()]"),
        "t1-walrus": t1("t1-walrus", "[1, 2]", f"(y := exec(\"open('{touch}', 'w')\")) or x > 0"),
        "t1-text": t1("t1-text", "['a' * 10**12]", kind="string"),
        "t1-parameters": t1("t1-parameters", "[1, 2]", count=10_000),
        "t1-product": t1("t1-product", "range(1000)", "x > 0", count=40),
    }.items():
        yield name, path, (":t1 {}", "simulate {} --strategy random --budget 3 --repeats 1")

    def cache(name: str, keys: Sequence[str], entries: Mapping[str, Any], **more: Any) -> Path:
        header = {"device_name": "d", "kernel_name": "k", "problem_size": 1, "tune_params_keys": list(keys)}
        return placed(f"{name}.json", json.dumps({**header, "tune_params": {}, "cache": entries, **more}).encode())

    code = f"__import__('os').system('touch {maker.canary('cache')}')"
    many = {f"p{i}": 1 for i in range(10_000)}
    for name, path in {
        "cache-names": cache("cache-names", [code], {"1": {code: 1, "time": 1.0}, "2": {code: 2, "time": 2.0}}),
        "cache-values": cache("cache-values", ["a"], {"1": {"a": code, "time": 1.0}, "2": {"a": "x", "time": 2.0}}),
        "cache-kernel": cache("cache-kernel", ["a"], {"1": {"a": 1, "time": 1.0}}, kernel_name=code, device_name="\x1b]0;x\x07"),
        "cache-objective": cache("cache-objective", ["a"], {"1": {"a": 1, "time": 1.0}}, objective=code),
        "cache-parameters": cache("cache-parameters", list(many), {"1": {**many, "time": 1.0}}),
        "cache-deep": placed("cache-deep.json", b'{"cache": ' + b"[" * 1_000_000),
        "cache-deep-value": placed("cache-deep-value.json", b'{"tune_params_keys": ["a"], "cache": {"1": {"a": ' + b"[" * 500_000 + b"]" * 500_000 + b', "time": 1}}}'),
        "cache-digits": placed("cache-digits.json", b'{"tune_params_keys": ["a"], "cache": {"1": {"a": 1, "time": ' + b"9" * 5_000_000 + b"}}}"),
        "cache-exponent": placed("cache-exponent.json", b'{"tune_params_keys": ["a"], "cache": {"1": {"a": 1, "time": 1e999999999}}}'),
        "cache-nan": placed("cache-nan.json", b'{"tune_params_keys": ["a"], "cache": {"1": {"a": NaN, "time": NaN}}}'),
        "cache-bomb": placed("cache-bomb.json.gz", _gzip_bomb() if maker.wants("cache-bomb") else b""),
        "cache-members": placed("cache-members.json.gz", gzip.compress(bytes(1 << 20)) * 2000 if maker.wants("cache-members") else b""),
        "cache-message": _message_800mb(folder / "cache-message.json", 800 if maker.wants("cache-message") else 1),
        "t4-code": placed("t4-code.json", json.dumps({"results": [{"configuration": {code: code}, "measurements": [
            {"name": code, "value": 1.0, "unit": code}], "objectives": [code], "invalidity": "correct"}],
            "metadata": {"timeunit": code}}).encode()),
        "t4-parameters": placed("t4-parameters.json", json.dumps({"results": [{"configuration": many, "measurements": [
            {"name": "time", "value": 1.0, "unit": "ms"}], "objectives": ["time"], "invalidity": "correct"}]}).encode()),
        "recording-codes": placed("recording-codes.json", json.dumps({"format": "mptune-space", "version": 1,
            "parameters": [{"name": "a", "kind": "ordinal", "values": [1, 2]}], "codes": {"a": [0, 10**18]},
            "statuses": {"values": ["ok"], "codes": [0, 0]}, "messages": {"values": [""], "codes": [0, 0]},
            "metrics": {"time_ms": [1, 2]}}).encode()),
        "recording-kind": placed("recording-kind.json", json.dumps({"format": "mptune-space", "version": 1, "kernel": code,
            "parameters": [{"name": "a", "kind": code, "values": [1, 2]}], "codes": {"a": [0, 1]}, "notes": {"metric": code},
            "statuses": {"values": ["ok"], "codes": [0, 0]}, "messages": {"values": [code], "codes": [0, 0]},
            "metrics": {"time_ms": [1, 2], code: [1, 2]}, "units": {"time_ms": code}, "signature": [code]}).encode()),
        "pickle-json": placed("pickle.json", _pickled(maker.canary("pickle-json"))),
        "pickle-gz": placed("pickle.json.gz", gzip.compress(_pickled(maker.canary("pickle-gz")))),
        "python-json": placed("python.json", f"open({str(maker.canary('python-json'))!r}, 'w')".encode()),
        "utf16": placed("utf16.json", '{"cache": {}}'.encode("utf-16")),
    }.items():  # fmt: skip
        yield name, path, _SPACE


def _gzip_bomb() -> bytes:
    """Return 2 MB of gzip that are 2 GB."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    chunk = b" " * (1 << 20)
    return b"".join([compressor.compress(chunk) for _ in range(2000)] + [compressor.flush()])


def _message_800mb(path: Path, megabytes: int) -> Path:
    with path.open("wb") as file:
        file.write(b'{"tune_params_keys": ["a"], "cache": {"1": {"a": 1, "time": 1.0, "mptune_message": "')
        for _ in range(megabytes):
            file.write(b"x" * 1_000_000)
        file.write(b'"}}}')
    return path


def crafted_files(folder: Path, only: Sequence[str] = ()) -> Iterator[Crafted]:
    """Make crafted files in a folder, each when it is asked for.

    Args:
        folder: an empty folder.
        only: beginnings of names; by default all of them.
    """
    maker = _Maker(folder, only)
    (folder / "canaries").mkdir()
    for made in (_values, _paths, _texts, _databases):
        for name, path in made(maker):
            canary = maker.canary(name)
            if maker.wants(name):
                yield Crafted(name, path, _EXPLAINED if made is _paths else _ALL, canary)
                # A file of before there were checksums is read without them.
                if made in (_values, _paths) and not name.startswith("sqlite"):
                    yield Crafted(f"{name}-old", _unsealed(path), _ALL, canary)
            path.unlink(missing_ok=True)
    for name, path, commands in _recordings(maker):
        if maker.wants(name):
            yield Crafted(name, path, commands, maker.canary(name))
        path.unlink(missing_ok=True)


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
    maker = _Maker(folder)
    path = maker.write("warm", maker.info(), maker.trials())
    for command in (*_READING, _RUNNING[0], _SPACE[0]):
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
            cell.lstrip(" ").startswith(("=", "+", "@", "\t", "\r", "-")) and not _is_number(cell) for cell in cells
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
        maker = _Maker(Path(name))
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
