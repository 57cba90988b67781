"""The fixtures of the fault tests, and the table of what became of each fault.

    pytest tests/faults --faults-table benchmarks/results/faults.md

writes the table, where every test passed.
"""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from injecting import Injected, Record

from mptune.backends.host_compiler import find_compiler
from mptune.backends.processor import processor, usable_cores

_OPTION = "--faults-table"
_INJECTED = pytest.StashKey[list[Injected]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, metavar="FILE", help="write what became of each fault, as a table")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_INJECTED] = []


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    path = session.config.getoption(_OPTION, None)
    if path and exitstatus == 0:
        Path(path).write_text(_table(session.config.stash[_INJECTED]), encoding="utf-8")


def _table(injected: list[Injected]) -> str:
    kept, finished = sum(i.kept for i in injected), sum(i.finished for i in injected)
    lines = [
        "# Faults, injected one by one",
        "",
        "    pytest tests/faults --faults-table benchmarks/results/faults.md",
        "",
        f"{processor().name}, {usable_cores()} cores; {find_compiler().version}; Python {platform.python_version()}.",
        "Every fault is a real kernel, a real signal or a real file, on the host backend.",
        "Only the device of 3 MB is made up.",
        "The test run writes this table.",
        "",
        f"**{len(injected)} faults; {kept} of {finished} finished trials kept.**",
        "",
        "| fault | how it is injected | status or end | message | finished trials kept |",
        "|---|---|---|---|--:|",
        *(i.row() for i in injected),
    ]
    return "\n".join(lines) + "\n"


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """Puts a fault into the table."""
    stash = request.config.stash
    if _INJECTED not in stash:
        stash[_INJECTED] = []
    return stash[_INJECTED].append
