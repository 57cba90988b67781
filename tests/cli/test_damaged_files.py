"""Run files with damaged values: each command that reads one says in one line which value is wrong."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from command_line import caller
from described import create

from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration

pytestmark = pytest.mark.usefixtures("charts")

HUGE = "1" + 400 * "0"
DEEP = 100_000 * "[" + 100_000 * "]"

READING = (
    "show",
    "pareto",
    "plot",
    "export --format json --output out",
    "export --format space --output out",
    "export --format cache --output out",
    "export --format t4 --output out",
    "report --output out.html",
    "emit --output out",
    "simulate",
    "compare",
)
SETTINGS = [
    *((name, HUGE) for name in ("threshold", "alpha", "beta", "wall_s", "workers", "budget", "seed")),
    ("sizes", f'{{"n": {HUGE}}}'),
    ("threshold", f'{{"y": {HUGE}}}'),
    ("parameters", '[{"name": "a", "kind": "ordinal", "values": []}]'),
    ("parameters", DEEP),
]
CELLS = [
    ("key", b"\xff"),
    ("configuration", "{}"),
    ("configuration", '{"a": null}'),
    ("status", b"ok"),
    ("message", b"\xff"),
    ("metrics", f'{{"time_ms": {HUGE}}}'),
    ("times_ms", "text"),
    ("durations_s", '{"timing": 1e400}'),
    ("warnings", '["a", ["b"]]'),
]


def shortened(case: object) -> str:
    return repr(case)[:40]


@pytest.mark.parametrize(
    ("table", "name", "value"),
    [*(("settings", *case) for case in SETTINGS), *(("trials", *case) for case in CELLS)],
    ids=shortened,
)
def test_a_damaged_value_is_named_by_every_command(
    table: str,
    name: str,
    value: str | bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    call = caller(monkeypatch, capfd)
    monkeypatch.chdir(tmp_path)
    fields = {"kernel": "axpy", "parameters": [{"name": "block", "kind": "ordinal", "values": [1, 2, 3]}]}
    with create("run.db", fields) as file:
        file.add(
            *[
                Trial(
                    Configuration({"block": n}), Status.OK, "", Measurement({"time_ms": 1.0, "error": 0.0}), key=str(n)
                )
                for n in (1, 2, 3)
            ]
        )
    with closing(sqlite3.connect("run.db")) as connection:
        if table == "settings":
            connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))
        else:
            connection.execute(f"UPDATE trials SET {name} = ? WHERE id = 3", (value,))
        connection.commit()
    # What is wrong with a setting is found before a tuning run begins.
    resuming = ["tune axpy --size smoke --backend host --resume --output"] if table == "settings" else []
    for command in (*READING, *resuming):
        outcome = call(*command.split(), "run.db")
        assert (outcome.code, outcome.out) == (2, ""), command
        (line,) = outcome.err.splitlines()
        assert "run file run.db" in line
        assert len(line) < 400
        if value is DEEP and table == "settings":
            assert "its settings cannot be read" in line
        elif table == "settings":
            assert f"its field '{name}' should be " in line
        else:
            assert "trial 3 cannot be read: " in line
            of_no_field = (
                "the run lists no value None",
                "the run has no parameter 'a'",
                "a cell of it is not valid JSON",
            )
            assert f"its field '{name}' should be " in line or any(words in line for words in of_no_field)
        assert [path.name for path in tmp_path.iterdir()] == ["run.db"]


def test_nothing_that_a_file_names_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    call = caller(monkeypatch, capfd)
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("open('ran', 'w').close()\n")
    Path("evil.cu.j2").write_text("{{ cycler.__init__.__globals__.os.system('touch ran') }}\n")
    code = 'x() {} static int run = ::system("touch ran"); void y'
    parameters = [{"name": "block_size", "kind": "ordinal", "values": [64, code]}]
    for number, kernel in enumerate(("axpy", "evil", "./evil.py")):
        with create(
            f"{number}.db", {"kernel": kernel, "kernel_path": str(tmp_path / "evil.py"), "parameters": parameters}
        ) as file:
            measurement = Measurement({"time_ms": 1.0, "error": 0.0})
            file.add(Trial(Configuration({"block_size": code}), Status.OK, "", measurement, key="a"))
        for command in ("show", "emit --output out", "explain"):
            call(*command.split(), f"{number}.db")
        assert call("emit", "--output", "out", f"{number}.db").code == 2
    call("report", "--output", "out.html", "2.db")
    assert not Path("ran").exists()
