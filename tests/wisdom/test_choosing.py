"""A configuration is chosen by the sizes: the fastest that keeps the budget there, and it is said why."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from awkward_kernel import AWKWARD, measured, run_of
from runs_by_size import HALF, POLY, SINGLE, at_size, trial, undecided, with_intervals
from stepper_kernel import STEPPER, stepped

import mptune
from mptune.errors import KernelError, UnknownNameError, WisdomError
from mptune.kernel import In, Kernel, Out
from mptune.results.trial import Status
from mptune.run import Run
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from mptune.wisdom import Chooser, Wisdom, gather, read_sources, sizes_of_arrays
from mptune.wisdom.cells import Cells


def wisdom_of(*runs: Run) -> Wisdom:
    return gather(read_sources(runs))


def chooser(*runs: Run, kernel: Kernel = POLY, limits: Any = None, **settings: Any) -> Chooser:
    return Chooser(wisdom_of(*runs).kernels[0], kernel, limits, **settings)


TWO = chooser(at_size(1000), at_size(100_000))


def types(configuration: Any) -> tuple[Any, Any]:
    return configuration["x_type"], configuration["block"]


# -- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "chosen", "why"),
    [
        (1000, ("fp16", 64), "measured at n=1000, about 4 times as fast as the baseline; the winner of a run there"),
        (100_000, ("fp16", 256), "measured at n=100000, about 4 times as fast"),
        (300, ("fp32", 64), "at n=300, predicted from n=1000, about 2 times as fast as the baseline; error at most"),
        (3000, ("fp16", 64), "with 95% confidence"),
        (40_000, ("fp16", 256), "at n=40000, predicted from n=1000 and n=100000"),
    ],
)  # fmt: skip
def test_the_fastest_of_the_nearest_tuned_size_is_taken(n: int, chosen: Any, why: str) -> None:
    choice = TWO.choose({"n": n})
    assert types(choice.configuration) == chosen
    assert why in choice.why
    assert choice.reason == ""
    assert choice.speedup == pytest.approx(4 if chosen[0] == "fp16" else 2, rel=0.05)


@pytest.mark.parametrize(("n", "side"), [(200, "below"), (500_000, "above")])
def test_beyond_reach_it_is_the_baseline_of_the_nearest_size(n: int, side: str) -> None:
    choice = TWO.choose({"n": n})
    assert types(choice.configuration) == ("fp64", 64 if side == "below" else 256)
    assert choice.reason == f"errors are unknown: no tuned size is within 4 times of n={n}"
    assert choice.reason in choice.why
    assert choice.speedup == pytest.approx(1)


@pytest.mark.parametrize(
    ("interval", "speedup", "is_narrow"),
    [((0.94, 1.04), 1.02, False), ((1.005, 1.04), 1.02, True), (None, 1.02, False), (None, 1.04, True)],
)
def test_accuracy_is_given_up_only_for_what_is_surely_faster(interval: Any, speedup: float, is_narrow: bool) -> None:
    open_ = undecided(wisdom_of(at_size(4000)), 4000, interval, speedup)
    found = Chooser(open_.kernels[0], POLY)
    for n in (1500, 4000, 5000):
        choice = found.choose({"n": n})
        assert (choice.configuration["x_type"] != "fp64") is is_narrow
        assert choice.reason == ""
    if not is_narrow:
        assert choice.why == "the baseline: nothing known is surely faster at n=5000"
    # It is a choice where another run was sure of it, but not beside the size at which it is not.
    both = Chooser(undecided(wisdom_of(at_size(1000), at_size(4000)), 4000, interval, speedup).kernels[0], POLY)
    kinds = [both.choose({"n": n}).configuration["x_type"] != "fp64" for n in (1000, 4000)]
    assert kinds == [True, is_narrow]


@pytest.mark.parametrize(
    ("half", "single", "chosen"),
    [
        ((2.0, 2.1, 2.2), (1.9, 2.05, 2.1), "fp32"),  # which of them is faster cannot be told
        ((2.0, 2.1, 2.2), (1.8, 1.9, 1.98), "fp16"),  # it is surely faster
        ((1.5, 2.1, 2.6), (1.4, 1.8, 2.2), "fp16"),  # too much would be lost if it is
        ((1.0, 1.02, 1.04), (1.0, 1.02, 1.04), "fp64"),
    ],
)
def test_of_types_that_cannot_be_told_apart_by_their_times_it_is_the_most_accurate(
    half: Any, single: Any, chosen: str
) -> None:
    open_ = with_intervals(wisdom_of(at_size(1000), at_size(4000)), {"fp16": half, "fp32": single})
    found = Chooser(open_.kernels[0], POLY)
    assert [types(found.choose({"n": n}).configuration)[0] for n in (1000, 2000, 4000)] == [chosen] * 3


# -- errors --------------------------------------------------------------------------------------


def test_safer_types_are_taken_where_the_error_may_exceed_the_budget() -> None:
    # fp16 has 1e-4 * sqrt(n / 1000): 1.5e-4 at n = 2250.
    found = {
        n: chooser(at_size(1000), at_size(4000), budget={"error": 1.5e-4}).choose({"n": n}) for n in (1100, 1500, 3900)
    }
    assert [types(found[n].configuration)[0] for n in (1100, 1500, 3900)] == ["fp16", "fp16", "fp32"]
    assert "faster types that may exceed error 0.00015: 1" in found[3900].why
    assert found[1500].limits["error"] <= 1.5e-4
    assert found[3900].speedup == pytest.approx(2, rel=0.05)


def test_where_nothing_keeps_the_budget_it_is_the_baseline_and_it_says_so() -> None:
    strict = chooser(at_size(1000), at_size(100_000), budget={"error": 1e-12})
    choice = strict.choose({"n": 4000})
    assert types(choice.configuration)[0] == "fp64"
    assert choice.reason.startswith("nothing faster is sure to keep error 1e-12 at n=4000 with 95% confidence")
    assert "x_type=fp16, y_type=fp16: error up to 0.00" in choice.reason
    beyond = strict.choose({"n": 200_000})
    assert "an unknown error, as types of small range may overflow outside of the tuned sizes" in beyond.reason


def test_more_confidence_and_fewer_draws_need_more_room() -> None:
    # fp32 was seen on three draws: 1e-7 leaves no room, 1.5e-7 some.
    def at(limit: float, confidence: float) -> Any:
        return types(
            chooser(at_size(1000), budget={"error": limit}, confidence=confidence).choose({"n": 999}).configuration
        )

    assert at(1.01e-7, 0.95)[0] == "fp64"
    assert at(3e-7, 0.95)[0] == "fp32"
    assert at(1.6e-7, 0.6)[0] == "fp32"
    assert at(1.6e-7, 0.99)[0] == "fp64"


def test_errors_of_zero_at_round_sizes_say_nothing_of_those_beside_them() -> None:
    def chosen(found: Chooser, *at: int) -> list[Any]:
        return [types(found.choose({"n": n}).configuration)[0] for n in at]

    all_exact = chooser(*(at_size(n, exact=("fp16", "fp32")) for n in (16_384, 65_536)))
    assert chosen(all_exact, 16_384, 65_536) == ["fp16", "fp16"]
    for n in (16_383, 16_385, 60_000, 65_535, 65_537):
        choice = all_exact.choose({"n": n})
        assert types(choice.configuration)[0] == "fp64"
        assert "an unknown error, as results that are exact at the tuned sizes need not be so here" in choice.why
    # A size at which they are not exact speaks for others, those that are do not.
    mixed = chooser(at_size(50_000), at_size(65_536, exact=("fp16", "fp32")), budget={"error": 1e-6})
    assert chosen(mixed, 49_999, 60_000, 65_535) == ["fp64", "fp64", "fp64"]
    assert chosen(chooser(at_size(50_000), budget={"error": 2e-6}), 49_999, 60_000) == ["fp32", "fp32"]


def test_the_winner_of_a_run_stands_at_its_own_size_under_no_smaller_limit() -> None:
    few = run_of(POLY, [trial(4, 1e-16), trial(1, 9e-4, 3, **HALF)], threshold=1e-3)
    assert types(chooser(few).choose({"n": 5003}).configuration)[0] == "fp16"
    assert types(chooser(few, budget={"error": 5e-3}).choose({"n": 5003}).configuration)[0] == "fp16"
    assert types(chooser(few).choose({"n": 5002}).configuration)[0] == "fp64"
    assert types(chooser(few, is_own=False).choose({"n": 5003}).configuration)[0] == "fp64"


def test_a_winner_that_another_run_refutes_is_used_no_more() -> None:
    won = run_of(POLY, [trial(4, 1e-16), trial(1, 9e-4, 3, **HALF)], threshold=1e-3)
    # Another run of the same size saw the same types break the limit, be it in a configuration of other blocks.
    for status, error in ((Status.OK, 1.1e-3), (Status.NON_FINITE, 1e-4)):
        lost = [trial(4, 1e-16), trial(1, error, 3, status, block=64, **HALF)]
        found = chooser(won, run_of(POLY, lost, threshold=1e-3))
        choice = found.choose({"n": 5003})
        assert types(choice.configuration)[0] == "fp64"
        assert "x_type=fp16, y_type=fp16" in choice.reason
        assert not any(candidate.sure_at for candidate in found.candidates if not candidate.is_wide)
    kept = run_of(POLY, [trial(4, 1e-16), trial(1, 9.5e-4, 3, **HALF)], threshold=1e-3)
    assert types(chooser(won, kept).choose({"n": 5003}).configuration)[0] == "fp16"


def test_types_whose_results_were_not_finite_at_a_size_are_not_used_from_there_on() -> None:
    lost = run_of(
        POLY,
        [trial(4, 1e-16), trial(1, 1e-4, 3, Status.NON_FINITE, **HALF), trial(2, 1e-7, **SINGLE)],
        sizes=POLY.resolve_sizes("default", {"n": 4000}),
        threshold=1e-3,
    )
    found = chooser(at_size(1000), lost)
    assert types(found.choose({"n": 1000}).configuration)[0] == "fp16"
    assert types(found.choose({"n": 4000}).configuration)[0] == "fp32"
    assert types(found.choose({"n": 8000}).configuration)[0] == "fp32"


# -- what is valid -------------------------------------------------------------------------------


def test_configurations_that_are_not_valid_at_the_sizes_are_passed_over() -> None:
    bound = dataclasses.replace(POLY, constraints=["block <= n // 40", "unroll < 4"])
    found = chooser(at_size(1000), at_size(20_000), kernel=bound)
    assert types(found.choose({"n": 10_500}).configuration)[1] == 256
    assert types(found.choose({"n": 9000}).configuration) == ("fp16", 64)
    with pytest.raises(KernelError, match="has no baseline to fall back on at n=300"):
        found.choose({"n": 300})
    limited = chooser(at_size(1000), at_size(20_000), limits={"max_threads_per_block": 64})
    assert types(limited.choose({"n": 20_000}).configuration) == ("fp16", 64)
    smaller = chooser(at_size(1000), limits={"max_threads_per_block": 32})
    assert types(smaller.choose({"n": 1000}).configuration) == ("fp64", 32)
    assert "the widest types, not tuned" in smaller.choose({"n": 1000}).why


def test_wisdom_that_is_not_of_the_kernel_is_refused_in_one_line(tmp_path: Path) -> None:
    (known,) = wisdom_of(at_size(1000)).kernels
    fewer = dataclasses.replace(POLY, parameters=[OrdinalParameter("block", [32]), *POLY.parameters[1:]])
    with pytest.raises(KernelError, match="kernel poly: 64 is none of the values of parameter 'block'"):
        Chooser(known, fewer)
    document = json.loads(wisdom_of(at_size(1000)).text())
    document["kernels"][0]["tuned"][0]["configurations"][0]["configuration"]["unroll"] = True
    path = tmp_path / "truth.wisdom.json"
    path.write_text(json.dumps(document))
    with pytest.raises(KernelError, match="kernel poly: True is none of the values of parameter 'unroll'"):
        Chooser(Wisdom.load(path).kernels[0], POLY)
    del document["kernels"][0]["tuned"][0]["configurations"][0]["configuration"]["unroll"]
    path.write_text(json.dumps(document))
    with pytest.raises(WisdomError, match="has the parameters block, x_type, y_type, and the kernel has block, unroll"):
        Chooser(Wisdom.load(path).kernels[0], POLY)
    other = dataclasses.replace(POLY, parameters=POLY.parameters[:1] + POLY.parameters[2:], grid=["n"])
    with pytest.raises(WisdomError, match="has the parameters block, unroll, x_type, y_type, and the kernel has block"):
        Chooser(known, other)
    with pytest.raises(WisdomError, match="has the sizes n, and the kernel has n, taps"):
        Chooser(known, AWKWARD)
    signed = dataclasses.replace(POLY, signature=["unroll"])
    with pytest.raises(
        WisdomError, match="has the accuracy signature x_type, y_type, and the kernel has unroll, x_type"
    ):
        Chooser(known, signed)


# -- as a function of arrays ---------------------------------------------------------------------


def polynomial(x: Any) -> Any:
    return np.polyval([0.5, -1.0, 2.0, 1.0], x)


@pytest.fixture
def x() -> Any:
    return np.random.default_rng(5).uniform(0.5, 1, 20_000)


@pytest.mark.full
def test_calls_have_the_configuration_for_their_sizes(x: Any, tmp_path: Path) -> None:
    wisdom_of(at_size(1000), at_size(4000)).save(tmp_path / "poly.wisdom.json")
    with mptune.TunedKernel(tmp_path / "poly.wisdom.json", kernel=POLY, max_error=1.5e-4) as tuned:
        assert tuned.sizes["n"] == 4000
        for n, kind, error in ((1000, "fp16", 1e-2), (1500, "fp16", 1e-2), (3000, "fp32", 1e-5)):
            y = tuned(x=x[:n])
            assert tuned.sizes["n"] == n
            assert tuned.configuration["x_type"] == kind
            assert tuned.reason == ""
            assert np.abs(y - polynomial(x[:n])).max() < error
        assert np.array_equal(tuned(x=x[:1000], n=1000), tuned(x=x[:1000]))
        with pytest.warns(
            UserWarning, match="poly uses the baseline: errors are unknown: no tuned size is within 4 times of n=20000"
        ):
            y = tuned(x=x)
        assert tuned.configuration["x_type"] == "fp64"
        assert np.abs(y - polynomial(x)).max() < 1e-14
        tuned(x=x)  # is said once
        with pytest.raises(KernelError, match=r"n=7 is not the size n=|has shape \(1000,\); expected \(7,\)"):
            tuned(x=x[:1000], n=7)
        with pytest.warns(UserWarning, match="for this call: input 'x' overflows in fp16"):
            assert np.allclose(tuned(x=1e6 * x[:1000]), polynomial(1e6 * x[:1000]), rtol=1e-14)
        assert "error at most" in tuned.choose({"n": 1200}).why


def test_elsewhere_it_is_the_baseline_and_on_like_devices_what_the_model_says(x: Any) -> None:
    there = [at_size(n, backend="cuda", device="H100", architecture="sm_90") for n in (1000, 4000)]
    with pytest.warns(UserWarning, match=r"uses the baseline: the wisdom is of H100 \(cuda, sm_90\), and this is"):
        tuned = mptune.TunedKernel(there, POLY, backend="host")
    assert types(tuned.configuration) == ("fp64", 64)
    like = [at_size(n, device="another processor") for n in (1000, 4000)]
    with pytest.warns(UserWarning, match="measured on another processor, and this is .* of the same architecture"):
        tuned = mptune.TunedKernel(like, POLY)
    tuned(x=x[:1000])
    assert types(tuned.configuration) == ("fp16", 64)
    assert "predicted from n=1000 on another processor" in tuned.choose({"n": 1000}).why
    both = mptune.TunedKernel([*there, *(at_size(n) for n in (1000, 4000))], POLY)
    assert both.reason == ""


def test_wisdom_of_several_kernels_or_metrics_is_asked_which(tmp_path: Path) -> None:
    trials = measured(AWKWARD, {})
    found = wisdom_of(at_size(1000), at_size(4000), run_of(AWKWARD, trials))
    with pytest.raises(WisdomError, match=r"the wisdom is of kernels awkward, poly: say which"):
        mptune.TunedKernel(found)
    assert mptune.TunedKernel(found, kernel=POLY).kernel is POLY
    with pytest.raises(WisdomError, match="the wisdom is of kernel poly, not of awkward"):
        mptune.TunedKernel(wisdom_of(at_size(1000)), kernel=AWKWARD)
    mixed = wisdom_of(at_size(1000), at_size(1000, metric="MaxAE"))
    with pytest.raises(WisdomError, match=r"has errors by MaxAE and by NRMSE: say which \(metric=\)$"):
        mptune.TunedKernel(mixed, kernel=POLY)
    with pytest.raises(WisdomError, match=r"say which .*, not 'RMSE'"):
        mptune.TunedKernel(mixed, kernel=POLY, metric="RMSE")
    assert mptune.TunedKernel(mixed, kernel=POLY, metric="MaxAE").reason == ""
    with pytest.raises(KernelError, match="which is not a bundled one: give its definition"):
        mptune.TunedKernel(wisdom_of(at_size(1000)))
    with pytest.raises(WisdomError, match="the wisdom is of no kernel"):
        mptune.TunedKernel(Wisdom(()))


# -- sizes of arrays -----------------------------------------------------------------------------


def arrays_kernel(*shapes: Any) -> Kernel:
    return Kernel(
        name="shaped",
        parameters=[OrdinalParameter("block", [32]), PrecisionParameter("t", ["fp64"])],
        arguments=[Out("out", "w", precision="t"), *(In(f"in{i}", s, precision="t") for i, s in enumerate(shapes))],
        sizes={"default": {"w": 5, "h": 4, "f": 3}},
        inputs=lambda rng, size: {},
        reference=lambda given, size: {},
        grid=["w"],
        block=["block"],
        template="",
    )


@pytest.mark.parametrize(
    ("shapes", "given", "expected"),
    [
        ([("h + f - 1", "w + f - 1"), ("f",)], [(12, 22), (3,)], {"w": 20, "h": 10, "f": 3}),
        ([("w**3", "h"), (2, "f")], [(27, 9), (2, 8)], {"w": 3, "h": 9, "f": 8}),
        ([("w * f", "h", "f")], [(35, 2, 5)], {"w": 7, "h": 2, "f": 5}),
    ],
)
def test_sizes_are_those_of_the_arrays(shapes: Any, given: Any, expected: dict[str, int]) -> None:
    kernel = arrays_kernel(*shapes)
    inputs = {f"in{i}": np.zeros(shape) for i, shape in enumerate(given)}
    assert sizes_of_arrays(kernel, inputs, {}, {"f": 99}) == expected


def test_sizes_that_no_array_has_are_asked_for() -> None:
    kernel = arrays_kernel(("w", "h"))
    with pytest.raises(KernelError, match=r"kernel shaped: no array says what size f is: give it \(f=...\)"):
        sizes_of_arrays(kernel, {"in0": np.zeros((2, 3))}, {}, {})
    with pytest.raises(KernelError, match=r"input 'in0' of kernel shaped has 1 axes; expected \(w, h\)"):
        sizes_of_arrays(kernel, {"in0": np.zeros(6)}, {}, {})
    with pytest.raises(UnknownNameError, match=r"argument of kernel shaped: .*'in1'"):
        sizes_of_arrays(kernel, {"in1": np.zeros(6)}, {}, {})
    with pytest.raises(KernelError, match=r"size f must be a whole number, not 2\.5"):
        sizes_of_arrays(kernel, {"in0": np.zeros((2, 3))}, {"f": 2.5}, {})
    cubes = arrays_kernel(("w**3",))
    with pytest.raises(
        KernelError, match=r"input 'in0' of kernel shaped has an axis of 10, which no w makes of w\*\*3"
    ):
        sizes_of_arrays(cubes, {"in0": np.zeros(10)}, {"f": 1, "h": 1}, {})


def test_sizes_are_whole_numbers_that_their_argument_holds() -> None:
    tuned = mptune.TunedKernel([at_size(1000), at_size(4000)], POLY)
    for given in (2.5, "7", True, np.True_, None, math.nan, math.inf, np.zeros(2)):
        with pytest.raises(KernelError, match=r"^kernel poly: size n must be a whole number, not "):
            tuned.choose({"n": given})  # type: ignore[dict-item]
    for given in (2000, 2e3, np.int64(2000), np.float64(2000)):
        assert types(tuned.choose({"n": given}).configuration)[0] == "fp16"  # type: ignore[dict-item]
    # The kernel takes an int32, which indices in the last block may exceed.
    assert types(tuned.choose({"n": 2**31 - 1 - 2**16}).configuration)[0] == "fp64"
    for large in (2**31 - 2**16, 2**31, 2**53, 10**400):
        with pytest.raises(KernelError, match=r"^size n of kernel poly is at most 2147418111, not "):
            tuned.choose({"n": large})


def test_a_size_that_is_no_argument_is_given_by_its_name() -> None:
    def run(steps: int) -> Run:
        trials = [trial(4, 1e-16, kernel=STEPPER), trial(1, 1e-7 * steps, kernel=STEPPER, t="fp32")]
        return run_of(STEPPER, trials, sizes=STEPPER.resolve_sizes("default", {"steps": steps}), threshold=1e-5)

    tuned = mptune.TunedKernel([run(4), run(10)], STEPPER)
    u = np.random.default_rng(3).uniform(0.5, 1, 103)
    for steps in (5, 7):
        assert np.abs(tuned(u=u, steps=steps) - stepped(u, steps)).max() < 1e-5
        assert tuned.configuration["t"] == "fp32"
        assert tuned.sizes["steps"] == steps
    with pytest.raises(KernelError, match="no array says what size steps is"):
        tuned(u=u)
    with pytest.raises(KernelError, match="size steps must be a whole number, not 'many'"):
        tuned(u=u, steps="many")


# -- every size lies in one cell of the grid, and the grid is small ----------------------------------

LARGEST = 2**31 - 1


@pytest.mark.parametrize(
    "tuned",
    [
        [(1000,)],
        [(1,), (100_000,)],
        [(LARGEST,)],
        [(40, 100, 17), (2000, 5000, 17)],
        [(16, 16, 16, 16)],
        [(2,) * 8, (9,) * 8],
        [(3,) * 40],
    ],
)
def test_a_size_is_in_the_cell_that_is_found_for_it(tuned: list[tuple[int, ...]]) -> None:
    cells = Cells(tuned, [LARGEST] * len(tuned[0]))
    assert math.prod(map(len, cells.starts)) <= 3000
    rng = np.random.default_rng(3)
    for sizes in (*tuned, *np.exp(rng.uniform(0, math.log(LARGEST), (200, len(tuned[0])))).astype(int).tolist()):
        cell = cells.at(sizes)
        lows, highs = cells.ends(cell)
        assert all(low <= size <= high for low, size, high in zip(lows, sizes, highs, strict=True))
        assert cells.at(cells.middle(cell)) == cells.at(lows) == cells.at(highs) == cell
