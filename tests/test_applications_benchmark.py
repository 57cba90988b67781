"""The benchmarks of applications: shares, combinations, going back to fp64, and what the pages say of them."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import applications  # noqa: E402
from mptune.errors import MptuneError  # noqa: E402
from mptune.objective import Objective  # noqa: E402
from mptune.results import Measurement, Status, Trial  # noqa: E402
from mptune.space.configuration import Configuration  # noqa: E402

BASELINE = Configuration(
    {"data_type": "fp64", "sum_type": "fp64", "method": "plain", "add.block": 64, "find.block": 32, "find.t": "fp64"}
)
TOUCHES = {"add": {"data_type", "sum_type"}, "find": {"data_type"}}
TYPES = {"data_type", "sum_type"}
TAU = Objective(threshold=1e-2)


def trial(time_ms: float, error: float, status: Status = Status.OK, **values: Any) -> Trial:
    named = {name.replace("__", "."): value for name, value in values.items()}
    metrics = {"time_ms": time_ms, "error": error}
    return Trial(Configuration({**BASELINE, **named}), status, "", Measurement(metrics, (time_ms,)))


ADD = trial(5.0, 4e-3, data_type="fp16", sum_type="fp32", method="refined", add__block=128)
#: What the searches of both found fastest in fp64.
WIDE = {"add": trial(8.0, 0.0, add__block=64), "find": trial(9.0, 0.0, find__block=128)}
FIND = trial(6.0, 1e-3, data_type="fp32", find__t="fp16", find__block=256)


def test_shares_are_equal() -> None:
    assert applications.share_of(1e-2, 4) == 2.5e-3
    assert applications.share_of({"NRMSE": 3e-4, "mass_drift": 1e-6}, 2) == {"NRMSE": 1.5e-4, "mass_drift": 5e-7}
    # With the run in fp64 and what combining takes, no more than the others have.
    for budget, count in ((60, 3), (60, 5), (61, 4)):
        each = applications.evaluations_of(budget, count)
        assert budget - count < 1 + count * each + count <= budget


def test_what_an_error_takes_of_its_limit() -> None:
    assert applications.used(ADD, TAU) == pytest.approx(0.4)
    assert applications.used(trial(1.0, math.nan), TAU) == math.inf
    assert applications.used(trial(1.0, 1e-9, Status.CRASH), TAU) == math.inf
    several = Objective(threshold={"y": 1.0, "z": 1e-3})
    errors = Measurement({"time_ms": 1.0, "error.y": 0.1, "error.z": 5e-4}, (1.0,))
    assert applications.used(Trial(BASELINE, Status.OK, "", errors), several) == pytest.approx(0.5)


def test_a_buffer_has_the_widest_type_that_kernels_which_touch_it_chose() -> None:
    both = applications.combined(BASELINE, {"add": ADD, "find": FIND}, WIDE, TOUCHES, TYPES)
    # Choices of the steps are those of the faster application.
    assert dict(both) == {
        "data_type": "fp32",
        "sum_type": "fp32",
        "method": "refined",
        "add.block": 128,
        "find.block": 256,
        "find.t": "fp16",
    }
    one = applications.combined(BASELINE, {"find": FIND}, WIDE, TOUCHES, TYPES)
    # What has no winner is as its search found it fastest in fp64.
    assert dict(one) == {**BASELINE, "data_type": "fp32", "add.block": 64, "find.block": 256, "find.t": "fp16"}
    none = applications.combined(BASELINE, {}, WIDE, TOUCHES, TYPES)
    assert dict(none) == {**BASELINE, "add.block": 64, "find.block": 128}


@pytest.mark.parametrize(("most", "left"), [(2, ["add", "find"]), (1, ["find"]), (0, [])])
def test_the_kernel_that_costs_most_error_goes_back_first(most: int, left: list[str]) -> None:
    winners = {"add": ADD, "find": FIND}
    asked: list[Configuration] = []

    def is_accurate(configuration: Configuration) -> bool:
        asked.append(configuration)
        return len(asked) > len(winners) - most

    found, back = applications.fall_back(
        winners, TAU, lambda inside: applications.combined(BASELINE, inside, WIDE, TOUCHES, TYPES), is_accurate
    )
    inside = {kernel: winners[kernel] for kernel in left}
    assert found == applications.combined(BASELINE, inside, WIDE, TOUCHES, TYPES)
    assert back == tuple(kernel for kernel in ("add", "find") if kernel not in left)
    # Of nothing but fp64 nobody asks.
    assert applications.combined(BASELINE, {}, WIDE, TOUCHES, TYPES) not in asked
    assert len(asked) <= len(winners)


def way(speedup: float, *, fresh: float | None = 0.5, **more: Any) -> dict[str, Any]:
    return {
        "speedup": [speedup, 0.9 * speedup, 1.1 * speedup],
        "time_ms": 10.0 / speedup,
        "types": "1 fp64, 2 fp32",
        "used": 0.25,
        "fresh_used": fresh,
        "evaluations": 60,
        "runs": 20,
        "wall_s": 10.0,
        "thought_s": 0.5,
        "is_baseline": False,
        **more,
    }


def entry(seed: int, alone: float, joint: float, **more: Any) -> dict[str, Any]:
    ways = {
        "fp64": way(1.0),
        # As fast as measured, which is not what counts.
        "fp32": way(1.02, is_baseline=True),
        "alone": way(alone, back=["add"]),
        "joint": way(joint, **more),
    }
    gain = joint / alone
    return {
        "application": "bbac",
        "seed": seed,
        "ways": ways,
        "fp32_used": None,
        "joint_to_alone": [gain, gain, gain],
        "tasks_per_core": 0.04 if seed else 0.0,
        "took_s": 60.0,
    }


def test_the_page_has_means_the_least_and_what_breaks_its_limit() -> None:
    entries = [entry(0, 1.0, 2.0), entry(1, 2.0, 1.0, fresh=None)]
    found = applications.summary(entries)
    assert (found["fp32"], found["least"], found["broken"]) == (1.0, 0.5, 1)
    assert found["alone"] == found["joint"] == pytest.approx(math.sqrt(2))
    assert found["gain"] == pytest.approx(1.0)
    # What is slower than fp64 nobody would take.
    assert applications.gain_over_fp64(entry(0, 0.5, 2.0)) == pytest.approx(2.0)
    assert applications.gain_over_fp64(entry(0, 1.6, 2.0)) == pytest.approx(1.25)
    assert found["overhead"] == pytest.approx(0.05)
    case = applications.CASES["bbac"]
    known = {"seed": 0, "configurations": 576, "enumeration_runs": 500, "enumeration_s": 50.0, "accurate": 90}
    known |= {"distance": [1.004, 1.0, 1.01], "runs": 25, "evaluations": 60, "wall_s": 12.0}
    document = {
        "machine": "M",
        "commands": ["C"],
        "budget": 60,
        "cases": {"bbac": {"sizes": dict(case.sizes), "max_error": case.max_error}},
        "ways": {f"bbac, {each['seed']}": each for each in entries},
        "enumerated": {"bbac, 0": known, "bbac, 1": known | {"seed": 1, "distance": None}},
    }
    page = applications.markdown(document)
    assert "| bbac | 1.00 | 1.41 | 1.41 | 1.00 | 0.50 |" in page
    assert "It took 2 minutes. While they took turns 0.0 other tasks wanted each core" in page
    assert "geometric mean: 1.000 (target ≥ 1.2: missed)" in page
    assert "| bbac, 0 | fp32 | 1 (stays in fp64) | 1 fp64, 2 fp32 | none (breaks it) | 0.5 | 60, 20 | - | 10 |" in page
    assert "| bbac, 1 | joint | 1.00 (0.90 to 1.10) | 1 fp64, 2 fp32 | 0.25 | none | 60, 20 | - | 10 |" in page
    assert "| 0 | 500 | 50 | 25 | 35 | 12 | 1.00 (1.00 to 1.01) |" in page
    assert "| 1 | 500 | 50 | 25 | 35 | 12 | nothing accurate |" in page
    assert "with at most 5.0% of the runs of the application (target ≤ 10%: met)" in page


def test_the_cut_down_space_is_one_of_hundreds() -> None:
    bbac = applications.application_of("bbac")
    space = bbac.search_space(bbac.resolve_sizes("smoke")).restrict(applications.CUT)
    assert 200 <= space.size <= 1000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--applications", "bback"], "did you mean 'bbac'"),
        (["--parts", "way"], "did you mean 'ways'"),
        (["--size", "bbac:cells"], "expected APPLICATION:NAME=VALUE"),
        (["--seeds", "0"], "expected at least 1"),
    ],
)
def test_wrong_input_is_one_line(given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert applications.main(given) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_figures_of_other_settings_are_not_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "page.json").write_text('{"budget": 7, "cases": {}, "commands": [], "ways": {}, "enumerated": {}}')
    given = ["--resume", "--output", str(tmp_path / "page.md")]
    with pytest.raises(MptuneError, match="has another budget or other cases"):
        applications.run(applications.parser().parse_args(given), given)
