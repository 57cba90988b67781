"""Steps begin each run with the Python they were loaded with."""

from __future__ import annotations

import textwrap
from pathlib import Path

from mptune.evaluators.steps_anew import StepsAnew
from mptune.kernel import Application
from mptune.registry import load_tunable

DEFINITION = """
import functools
import threading

import kept_apart_by_steps
from mptune import Application, InOut, Kernel, Scalar

LEFT = threading.Lock()
KNOWN, THERE = {}, [1, 2]


@functools.lru_cache(maxsize=7)
def cached(key):
    kept_apart_by_steps.CALLS.append(key)
    return key


class Memory:
    runs = 0


def with_default(kept=[]):
    kept.append(0)
    return len(kept)


def steps(run, size):
    KNOWN[len(KNOWN)] = 1
    THERE.append(3)
    Memory.runs += 1
    steps.calls = getattr(steps, "calls", 0) + 1
    cached(0)
    run.append((len(KNOWN), len(THERE), Memory.runs, with_default(), steps.calls, len(kept_apart_by_steps.CALLS)))
    $LAST


touch = Kernel(
    name="touch",
    arguments=[InOut("x", "n", precision="fp64"), Scalar("n", dtype="int32")],
    parameters=[],
    grid=[1],
    block=[1],
    template='extern "C" __global__ void touch(double* x, int n) { if (n > 0) x[0] += 1; }',
)
application = Application(
    name="remembers",
    kernels=[touch],
    buffers=[InOut("x", "n", precision="fp64")],
    sizes={"default": {"n": 3}},
    inputs=lambda rng, size: {"x": rng.uniform(size=size.n)},
    steps=steps,
    outputs=["x"],
)
"""


def loaded(folder: Path, last: str = "") -> Application:
    (folder / "kept_apart_by_steps.py").write_text("CALLS = []\n")
    path = folder / "remembers.py"
    path.write_text(textwrap.dedent(DEFINITION).replace("$LAST", last or "pass"))
    found = load_tunable(path)
    assert isinstance(found, Application)
    return found


def test_nothing_is_left_of_earlier_runs(tmp_path: Path) -> None:
    application = loaded(tmp_path)
    anew, seen = StepsAnew.of(application), list[tuple[int, ...]]()
    assert anew.why_not == ""
    for _ in range(3):
        anew()(seen, application.resolve_sizes())
    assert seen == [(1, 3, 1, 1, 1, 1)] * 3
    # The steps themselves remember all of it.
    for _ in range(2):
        application.steps(seen, application.resolve_sizes())
    dictionary, items, _, default, calls, _ = seen[-1]
    assert (dictionary, items, default, calls) == (2, 4, 2, 2)


def test_what_cannot_be_copied_is_said(tmp_path: Path) -> None:
    application = loaded(tmp_path, "LEFT.acquire(blocking=False)")
    anew = StepsAnew.of(application)
    assert "lock" in anew.why_not
    assert anew() is application.steps
