# ruff: noqa: E501 - crafted texts are as long as they are
"""Files that try to be more than data: what ``trust_files.py`` opens.

Run files and recordings of other tools with code in a configuration's values, paths that lead to code, formulas,
markup, terminal sequences, views and triggers, pickles, or more than memory holds. :func:`crafted_files` makes them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import json
import pickle
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mptune
from mptune.backends import get_backend
from mptune.kernel import Kernel
from mptune.objective import Objective
from mptune.registry import load_kernel
from mptune.results import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.store import ParameterInfo, RunFile, RunInfo, RunState

__all__ = ["READING", "RUNNING", "SPACE", "Crafted", "Maker", "crafted_files"]

#: The bundled kernel that run files are of.
_BASE: Final = "bessel"


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


READING: Final = (
    "show {}",
    "show {} --json",
    "pareto {}",
    "report {} -o {}.html",
    "export {} --format csv -o {}.csv",
    "export {} --format json -o {}.json",
    "export {} --format t4 -o {}.t4.json",
)
RUNNING: Final = ("emit {} -o {}.emitted", f"emit {{}} --kernel {_BASE} -o {{}}.given", ":tuned {}")
_ALL: Final = (*READING, *RUNNING)
#: It measures for as long as it finds a kernel to run, so that only files that name none, or another, are explained.
_EXPLAINED: Final = (*_ALL, "explain {}")
SPACE: Final = ("plot {} --kind all -o {}.png", "simulate {} --strategy random --budget 3 --repeats 1")


# -- run files -----------------------------------------------------------------------------------


class Maker:
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
        from mptune.store.seal import Seal, checksum

        from mptune.store.database import COLUMNS

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


def _values(maker: Maker) -> Iterator[tuple[str, Path]]:
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


def _paths(maker: Maker) -> Iterator[tuple[str, Path]]:
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


def _texts(maker: Maker) -> Iterator[tuple[str, Path]]:
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


def _databases(maker: Maker) -> Iterator[tuple[str, Path]]:
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


def _recordings(maker: Maker) -> Iterator[tuple[str, Path, tuple[str, ...]]]:
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
        yield name, path, SPACE


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
    maker = Maker(folder, only)
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
