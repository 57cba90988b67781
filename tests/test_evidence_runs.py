"""Runs of kernels some configurations of which are wrong: none of these wins, and none condemns the right ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from made_up_devices import MadeUp, replace_devices

from mptune.kernel import In, Kernel, Out, Scalar
from mptune.precision import precision
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.space.parameters import BooleanParameter, OrdinalParameter, PrecisionParameter
from mptune.tuning import TuneSettings, tune

TAU = 1e-5
BUDGET = 24

KERNEL = Kernel(
    name="made_up",
    parameters=[
        OrdinalParameter("block", [32, 64, 128, 256]),
        OrdinalParameter("unroll", [1, 2, 4]),
        BooleanParameter("tile"),
        PrecisionParameter("x_type", ["fp64", "fp32", "fp16"]),
        PrecisionParameter("y_type", ["fp64", "fp32", "fp16"]),
    ],
    arguments=[Out("y", "n", precision="y_type"), In("x", "n", precision="x_type"), Scalar("n", dtype="int32")],
    sizes={"default": {"n": 64}},
    inputs=lambda rng, size: {"x": rng.random(size.n)},
    reference=lambda inputs, size: inputs["x"],
    grid=["1"],
    block=["block"],
    template="""
// {{ block }} {{ unroll }} {{ tile }}
extern "C" __global__ void made_up({{ y_type }}* y, const {{ x_type }}* x, int n) {}
""",
)


def usual(c: Configuration) -> MadeUp:
    """A kernel as they should be: narrow is fast and inexact."""
    sizes = [precision(str(c[name])).size_bytes for name in ("x_type", "y_type")]
    roundoffs = [precision(str(c[name])).unit_roundoff for name in ("x_type", "y_type")]
    block = 1.0 + 0.1 * abs(math.log2(float(str(c["block"])) / 128.0))
    time_ms = sum(sizes) * block * (1.0 + 0.2 / int(str(c["unroll"]))) * (0.9 if c["tile"] else 1.0)
    return MadeUp(time_ms, sum(roundoffs), memory_bytes=1e6 * sum(sizes))


def first_of_each() -> Callable[[Configuration], MadeUp]:
    """The first configuration of every signature that is looked at is wrong."""
    wrong: dict[tuple[Any, ...], Configuration] = {}

    def does(c: Configuration) -> MadeUp:
        return doubled(c) if wrong.setdefault(KERNEL.signature_of(c), c) == c else usual(c)

    return does


def doubled(c: Configuration, faster: float = 1.0) -> MadeUp:
    does = usual(c)
    return MadeUp(does.time_ms / faster, 2.0, memory_bytes=does.memory_bytes)


def where(wrong: Callable[[Configuration], bool], faster: float = 1.0) -> Callable[[Configuration], MadeUp]:
    return lambda c: doubled(c, faster) if wrong(c) else usual(c)


def is_fp64(c: Configuration) -> bool:
    return (c["x_type"], c["y_type"]) == ("fp64", "fp64")


#: What is wrong.
HOSTILE: dict[str, Callable[[], Callable[[Configuration], MadeUp]]] = {
    "nothing": lambda: usual,
    "one block size, and faster there": lambda: where(lambda c: c["block"] == 64, faster=3.0),
    "the first of every signature": first_of_each,
    "fp64 at one block size": lambda: where(lambda c: is_fp64(c) and c["block"] == 128),
    "fp64 everywhere": lambda: where(is_fp64),
    "error grows with unrolling": lambda: (
        lambda c: MadeUp(
            usual(c).time_ms, usual(c).error * 100.0 ** (int(str(c["unroll"])) - 1), memory_bytes=usual(c).memory_bytes
        )
    ),
    "early return, 30 times faster": lambda: where(lambda c: c["block"] == 32, faster=30.0),
}


def settings(**changes: Any) -> TuneSettings:
    return TuneSettings(**({"backend": "host", "budget": BUDGET, "max_error": TAU, "compilers": 0} | changes))


def tuned(monkeypatch: pytest.MonkeyPatch, does: Callable[[Configuration], MadeUp], **changes: Any) -> Run:
    replace_devices(monkeypatch, does)
    return tune(KERNEL, settings(**changes), on_warning=lambda _: None)


def assert_true(run: Run, does: Callable[[Configuration], MadeUp]) -> None:
    """Check that whatever is reported has the error that it has."""
    fronts = [*run.pareto(("time_ms", "error")), *run.pareto(("memory_bytes", "error"))]
    for trial in (run.best, run.baseline, run.closest, *run.front, *fronts):
        if trial is not None:
            assert trial.error == does(trial.configuration).error


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(
    ("penalty", "strategy", "seed"),
    [("hard", "random", 2), pytest.param("decay", "bayesian", 0, marks=pytest.mark.full)],
)
def test_a_right_configuration_wins(
    monkeypatch: pytest.MonkeyPatch, name: str, penalty: str, strategy: str, seed: int
) -> None:
    does = HOSTILE[name]()
    run = tuned(monkeypatch, does, penalty=penalty, strategy=strategy, seed=seed)
    assert run.evaluations == BUDGET
    assert run.best is not None
    assert run.best.error <= TAU
    assert_true(run, does)
