"""Sizes that say which form of a problem it is: their values, and what is known of one form says nothing of another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from awkward_kernel import run_of
from runs_by_size import trial

import mptune
from mptune.errors import KernelError, WisdomError
from mptune.kernel import In, Kernel, Out
from mptune.run import Run
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from mptune.wisdom import Chooser, Wisdom, gather, read_sources


def inputs(rng: np.random.Generator, size: Any) -> dict[str, Any]:
    x = rng.random((size.rows, size.columns))
    return {"x": np.ascontiguousarray(x.T) if size.turned else x}


#: Doubles a matrix that may be stored transposed.
KERNEL = Kernel(
    name="turn",
    parameters=[OrdinalParameter("block", [32, 64]), PrecisionParameter("t", ["fp64", "fp32"])],
    constraints=["not turned or block == 32"],
    arguments=[
        Out("y", ("rows", "columns"), precision="t"),
        In("x", ("columns if turned else rows", "rows if turned else columns"), precision="t"),
    ],
    sizes={"default": {"rows": 20, "columns": 30, "turned": 0}},
    inputs=inputs,
    reference=lambda given, size: {"y": 2 * (given["x"].T if size.turned else given["x"])},
    grid=["ceildiv(columns, block)", "rows"],
    block=["block"],
    runtime_sizes=["rows", "columns"],
    template="""
extern "C" __global__ void turn({{ t }}* y, const {{ t }}* x) {
    const int i = blockIdx.x * {{ block }} + threadIdx.x, row = blockIdx.y;
{% if turned %}
    if (i < {{ columns }}) y[row * {{ columns }} + i] = 2 * x[i * {{ rows }} + row];
{% else %}
    if (i < {{ columns }}) y[row * {{ columns }} + i] = 2 * x[row * {{ columns }} + i];
{% endif %}
}
""",
)


def made(turned: int, rows: int = 20, fast: str = "fp32", blocks: tuple[int, ...] = (32,)) -> Run:
    """Return a run of one form, in which one type is the faster."""
    slow = {"fp32": "fp64", "fp64": "fp32"}[fast]
    trials = [
        trial(time_ms * (1 + block / 1000), error, kernel=KERNEL, block=block, t=kind)
        for block in blocks
        for kind, time_ms in ((fast, 1.0), (slow, 3.0))
        for error in ((1e-7 if kind == "fp32" else 1e-16),)
    ]
    sizes = KERNEL.resolve_sizes("default", {"rows": rows, "turned": turned})
    return run_of(KERNEL, trials, sizes=sizes, threshold=1e-3)


def wisdom_of(*runs: Run) -> Wisdom:
    return gather(read_sources(runs))


# -- definitions ---------------------------------------------------------------------------------------


def test_a_form_has_its_values_alone() -> None:
    assert dict(KERNEL.resolve_sizes("default", {"turned": 1})) == {"rows": 20, "columns": 30, "turned": 1}
    assert KERNEL.extents == ("rows", "columns")
    assert KERNEL.form_of({}) == {"turned": 0}
    with pytest.raises(KernelError, match=r"^size turned=2 of kernel turn.*expected 0 or 1$"):
        KERNEL.resolve_sizes("default", {"turned": 2})
    with pytest.raises(KernelError, match="size rows=0 of kernel turn is below 1"):
        KERNEL.resolve_sizes("default", {"rows": 0})


# -- runs ----------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:the compiler made no vectors", "ignore:turn uses the baseline")
@pytest.mark.parametrize("turned", [1])
def test_tuning_one_form(turned: int, tmp_path: Path) -> None:
    """A run says which it is of, and is used at that."""
    found = mptune.tune(KERNEL, sizes={"turned": turned}, budget=4, output=tmp_path / "run.db", seed=1)
    assert found.info.sizes == {"rows": 20, "columns": 30, "turned": turned}
    assert found.info.forms == ("turned",)
    x = np.random.default_rng(5).random((20, 30))
    with mptune.TunedKernel(tmp_path / "run.db", kernel=KERNEL) as turn:
        np.testing.assert_allclose(turn(x=x.T.copy() if turned else x), 2 * x, rtol=1e-6)


# -- wisdom --------------------------------------------------------------------------------------------


def test_what_is_known_of_one_form_says_nothing_of_another() -> None:
    both = wisdom_of(made(0, fast="fp32"), made(1, fast="fp64"))
    (known,) = both.kernels
    assert [dict(record.form) for record in known.tuned] == [{"turned": 0}, {"turned": 1}]
    assert all(set(record.sizes) == {"rows", "columns"} for record in known.tuned)
    with pytest.raises(WisdomError, match="is of turned=0 and of turned=1, which say nothing of each other"):
        Chooser(known, KERNEL)
    for turned, kind in ((0, "fp32"), (1, "fp64")):
        chooser = Chooser(known, KERNEL, form={"turned": turned})
        for rows in (20, 25):
            size = KERNEL.resolve_sizes("default", {"rows": rows, "turned": turned})
            assert chooser.choose(size).configuration["t"] == kind
    with pytest.raises(WisdomError, match="is of turned=0, not of turned=1"):
        Chooser(wisdom_of(made(0)).kernels[0], KERNEL, form={"turned": 1})


def test_calls_have_the_configuration_for_their_form() -> None:
    x = np.random.default_rng(6).random((20, 30))
    with mptune.TunedKernel(wisdom_of(made(0), made(1, fast="fp64")), kernel=KERNEL) as turn:
        np.testing.assert_allclose(turn(x=x), 2 * x, rtol=1e-6)
        assert (turn.configuration["t"], turn.reason) == ("fp32", "")
        np.testing.assert_array_equal(turn(x=x.T.copy(), turned=1), 2 * x)
        assert (turn.configuration["t"], turn.sizes) == ("fp64", {"rows": 20, "columns": 30, "turned": 1})
    with mptune.TunedKernel(wisdom_of(made(1)), kernel=KERNEL) as turn:
        # All that is known is of that form, so it is what is meant.
        np.testing.assert_allclose(turn(x=x.T.copy()), 2 * x, rtol=1e-6)
        with pytest.warns(UserWarning, match="the baseline: nothing was tuned for turned=0"):
            np.testing.assert_array_equal(turn(x=x, turned=0), 2 * x)
