"""Why a winner has its types, on runs made by hand: what each answer has to be is known."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
from application_trials import application_run, run_trial
from described import described_run

from mptune.finals import Finals
from mptune.results import Measurement, Status, Trial
from mptune.run import Run
from mptune.sensitivity import WINNER, Change, Explanation, digits_text, explanation_of, percent, probe_key
from mptune.space.configuration import Configuration

TYPES = ("fp64", "fp32", "fp16")
SETTINGS: dict[str, Any] = {
    "kernel": "dot",
    "threshold": 1e-4,
    "metric": "MRE",
    "objective": "time_ms",
    "baseline_values": {"x_type": ["fp64"], "sum_type": ["fp64"]},
    "signature": ["x_type", "sum_type"],
    "parameters": [
        {"name": "block", "kind": "ordinal", "values": [32, 64]},
        {"name": "x_type", "kind": "precision", "values": list(TYPES)},
        {"name": "sum_type", "kind": "precision", "values": list(TYPES)},
    ],
}
#: The sum's rounding counts a thousand times what that of the factors does.
ROUNDOFF = {"fp64": 1e-16, "fp32": 1e-8, "fp16": 1e-4}
BYTES = {"fp64": 8, "fp32": 4, "fp16": 2}


#: What is counted in the machine code of a configuration.
CODE = {"conversions": 2, "vector_operations": 90, "scalar_operations": 10}


def trial(x: str, total: str, block: int = 32, *, reused: bool = False, **numbers: float) -> Trial:
    error = ROUNDOFF[x] + 1e3 * ROUNDOFF[total]
    time_ms = (BYTES[x] + 0.25 * BYTES[total]) * (1.0 if block == 32 else 1.5)
    metrics = {"time_ms": time_ms, "error": error, "memory_bytes": 1e6 * BYTES[x], **numbers}
    known = {name: value for name, value in metrics.items() if not math.isnan(value)}
    status = Status.OK if known.get("error", 0) <= 1e-4 else Status.INACCURATE
    configuration = Configuration({"block": block, "x_type": x, "sum_type": total})
    return Trial(configuration, status, "", Measurement(known, reused_error=reused), key=f"{x} {total} {block}")


def everything() -> list[Trial]:
    return [trial(x, total, block) for x, total, block in itertools.product(TYPES, TYPES, (32, 64))]


def run_of(trials: Sequence[Trial], probes: Sequence[Trial] = (), **settings: Any) -> Run:
    found = described_run({**SETTINGS, **settings}, trials)
    return Run(found.info, found.trials, found.state, probes)


def probed(run: Run, changed: Trial, **numbers: float) -> Trial:
    """Return a probe of a trial beside the run's winner."""
    winner = run.best or run.closest
    assert winner is not None
    theirs = {f"{WINNER}{name}": value for name, value in winner.measurement.metrics.items()}
    return Trial(
        changed.configuration,
        changed.status,
        changed.message,
        Measurement({**changed.measurement.metrics, **theirs, **numbers}),
        key=probe_key(winner, run.info.template_hash, run.info.definition_hash),
    )


def change(explanation: Explanation, parameter: str, after: str) -> Change:
    return next(c for c in explanation.changes if (c.parameter, c.after) == (parameter, after))


def test_what_limits_the_accuracy() -> None:
    """The winner is fp16 factors with an fp32 sum: 1e-4 + 1e-5 breaks the limit, so x is fp32 there."""
    found = explanation_of(run_of(everything()))
    assert found.trial is not None
    assert (found.trial.configuration["x_type"], found.trial.configuration["sum_type"]) == ("fp32", "fp32")
    assert found.limiting is not None
    assert (found.limiting.parameter, found.limiting.after) == ("sum_type", "fp64")
    restored = change(found, "sum_type", "fp64")
    assert restored.digits == pytest.approx(math.log10((1e-8 + 1e-5) / (1e-8 + 1e-13)))
    assert restored.speed == pytest.approx(5 / 6)
    assert restored.outcome is not None
    assert restored.outcome.source == "measured"
    assert change(found, "x_type", "fp64").digits == pytest.approx(0, abs=1e-3)
    narrowed = change(found, "sum_type", "fp16")
    assert not narrowed.is_restored
    assert narrowed.is_feasible is False
    assert narrowed.digits == pytest.approx(-4, abs=0.01)
    assert [reason.kind for reason in narrowed.reasons] == ["accuracy"]
    assert found.sentences[0] == (
        "sum_type limits the accuracy: restoring it from fp32 to fp64 gains 3.0 digits and costs 17% of the speed."
    )


def test_what_limits_the_accuracy_may_be_no_type() -> None:
    """Of a series, more terms have less error and take longer; which direction that is nobody declares."""
    parameters = [
        {"name": "terms", "kind": "ordinal", "values": [2, 4, 8, 16, 32]},
        {"name": "is_exact", "kind": "boolean", "values": [False, True]},
        {"name": "block", "kind": "ordinal", "values": [32, 64]},
        {"name": "x_type", "kind": "precision", "values": list(TYPES)},
    ]

    def series(terms: int, is_exact: bool = False, x: str = "fp64") -> Trial:
        error = 1e-2 / terms**3 * (0.9 if is_exact else 1.0) + ROUNDOFF[x]
        metrics = {"time_ms": terms * BYTES[x] / 8 * (2.0 if is_exact else 1.0), "error": error}
        values = {"terms": terms, "is_exact": is_exact, "block": 32, "x_type": x}
        status = Status.OK if error <= 1e-4 else Status.INACCURATE
        return Trial(Configuration(values), status, "", Measurement(metrics))

    trials = [series(n, exact, x) for n in (2, 4, 8, 16, 32) for exact in (False, True) for x in ("fp64", "fp32")]
    run = run_of(trials, parameters=parameters, signature=["terms", "is_exact", "x_type"])
    found = explanation_of(run)
    assert found.trial is not None
    assert (found.trial.configuration["terms"], found.trial.configuration["x_type"]) == (8, "fp32")
    changed = [(c.parameter, c.after, c.is_restored) for c in found.changes if c.parameter != "x_type"]
    assert changed == [
        ("terms", 2, False), ("terms", 4, False), ("terms", 16, True), ("terms", 32, True), ("is_exact", True, True),
    ]  # fmt: skip
    assert found.sentences[0] == (
        "terms limits the accuracy: changing it from 8 to 32 gains 1.8 digits and costs 75% of the speed."
    )


def test_of_several_limits_the_one_that_is_broken_is_named() -> None:
    """The error by the run's own metric is far below its limit where the largest error is far above."""

    def with_both(known: Trial) -> Trial:
        errors = {"error.MRE": known.error, "error.MaxAE": 50 * known.error}
        return dataclasses.replace(known, measurement=Measurement({**known.measurement.metrics, **errors}))

    both = {"MRE": "MRE", "MaxAE": "MaxAE"}
    limits = {"MRE": 1.0, "MaxAE": 1e-3}
    found = explanation_of(run_of([*map(with_both, everything())], threshold=limits, metrics=both))
    narrowed = change(found, "sum_type", "fp16")
    assert [reason.text for reason in narrowed.reasons] == ["MaxAE 5, 5e+03 times the limit"]


def test_a_probe_that_beats_the_winner_is_told() -> None:
    run = run_of([trial("fp32", "fp64")])
    better = explanation_of(run_of(run.trials, [probed(run, trial("fp32", "fp32"))]))
    assert better.sentences[1].startswith(
        "The search has not found the best there is: sum_type in fp32 is within the limits and gains 20% speed."
    )
    assert not any("has not found" in sentence for sentence in explanation_of(run_of(everything())).sentences)


def test_a_probe_in_the_baselines_types_that_beats_the_baseline_is_told() -> None:
    run = run_of([trial("fp64", "fp64"), trial("fp32", "fp32")])
    assert run.best is not None
    assert run.speedup(run.best) == pytest.approx(2)

    def found(time_ms: float, low: float, high: float) -> Explanation:
        probe = probed(run, trial("fp64", "fp64", 64), time_ms=time_ms, speed_low=low, speed_high=high)
        return explanation_of(run_of(run.trials, [probe]))

    faster = found(4.0, 1.2, 1.3)
    assert [sentence.split(":")[0] for sentence in faster.doubts] == [
        "The search has not found the best there is",
        "In the baseline's types (block 64, x_type fp64, sum_type fp64) it takes 0.8 times as long as the winner",
    ]
    assert set(faster.doubts) <= set(faster.sentences)
    assert "the speedup of the run, 2, is against a baseline that is slower than this" in faster.doubts[1]
    # Slower than the winner, but not by as much as the run said.
    (doubt,) = found(6.25, 0.78, 0.82).doubts
    assert "it takes 1.25 times as long as the winner" in doubt
    # As slow as the baseline was, as far as can be told.
    assert found(8.0, 0.45, 0.7).doubts == ()


def test_one_digit_more_and_less() -> None:
    more, less = explanation_of(run_of(everything())).tradeoffs
    assert more.best is not None
    assert less.best is not None
    assert (more.digits, more.limit, dict(more.changed)) == (1, "error <= 1e-05", {"sum_type": "fp64"})
    assert more.best.gain == pytest.approx(5 / 6)
    assert (less.digits, less.limit, dict(less.changed)) == (-1, "error <= 0.001", {"x_type": "fp16"})
    assert less.best.gain == pytest.approx(5 / 3)
    assert [each["inputs"] for each in explanation_of(run_of(everything())).to_json()["tradeoffs"]] == [1, 1]
    on_three = [each.with_measurement(metrics={**each.measurement.metrics, "error_draws": 3}) for each in everything()]
    assert "measured on 3 inputs;" in explanation_of(run_of(on_three)).sentences[2]
    sentences = explanation_of(run_of(everything())).sentences
    on_one = "(measured on 1 input; tune with that limit to be sure)"
    assert sentences[1] == f"One more digit (error <= 1e-05) costs 17% of the speed, with sum_type fp64 {on_one}."
    assert sentences[2] == f"One digit less (error <= 0.001) gains 67% speed, with x_type fp16 {on_one}."


def test_what_keeps_a_looser_limit_by_its_own_error_is_told_as_that() -> None:
    """Another block size of the same types breaks it on the same input: their order of operations matters."""
    others = [each for each in everything() if each.configuration != trial("fp16", "fp32", 64).configuration]
    breaking = trial("fp16", "fp32", 64, error=2e-3)
    found = explanation_of(run_of([*others, breaking]))
    less = found.tradeoffs[1]
    assert less.alone is not None
    assert less.alone.trial.configuration == trial("fp16", "fp32", 32).configuration
    assert (
        "gains 67% speed by block=32, x_type=fp16, sum_type=fp32, as far as its own error tells" in found.sentences[2]
    )
    assert found.to_json()["tradeoffs"][1]["alone"]["configuration"] == dict(less.alone.trial.configuration)
    # On more inputs than it ran on itself, that tells nothing of it.
    breaking = breaking.with_measurement(metrics={**breaking.measurement.metrics, "error_draws": 3})
    assert explanation_of(run_of([*others, breaking])).tradeoffs[1].alone is None


def test_one_digit_more_is_not_offered_on_the_luck_of_few_draws() -> None:
    """The same types with another block size broke that limit on another draw of the inputs."""
    run = run_of([trial("fp32", "fp32")])
    tight = probed(run, trial("fp32", "fp64"))
    more, _ = explanation_of(run_of(run.trials, [tight])).tradeoffs
    assert more.best is not None
    on_many = trial("fp32", "fp64", 64, error=5e-5, error_draws=15)
    more, less = explanation_of(run_of([*run.trials, on_many], [tight])).tradeoffs
    assert more.best is None
    assert less.best is not None
    within = trial("fp32", "fp64", 64, error=5e-6, error_draws=15)
    more, _ = explanation_of(run_of([*run.trials, within], [tight])).tradeoffs
    assert more.best is not None
    assert more.inputs == 15


def test_a_price_has_its_interval() -> None:
    run = run_of([trial("fp32", "fp64")])

    def found(low: float, high: float) -> Explanation:
        probe = probed(run, trial("fp32", "fp32"), time_ms=6 / 1.05, speed_low=low, speed_high=high)
        return explanation_of(run_of(run.trials, [probe]))

    assert "gains 5% speed (+2% to +11%)" in found(1.02, 1.11).doubts[0]
    # What rounds to no percent cannot be told from it.
    assert found(1.002, 1.11).doubts == ()


def test_a_digit_the_winner_has_already_costs_nothing() -> None:
    found = explanation_of(run_of(everything(), threshold=1e-2))
    assert found.trial is not None
    assert found.trial.configuration["x_type"] == "fp16"
    assert found.tradeoffs[0].best is not None
    assert found.tradeoffs[0].best.trial is found.trial
    assert found.sentences[1] == "One more digit (error <= 0.001) costs nothing: the winner has it already."


def test_without_a_threshold_the_winners_error_is_the_limit() -> None:
    found = explanation_of(run_of(everything(), threshold=None))
    assert found.trial is not None
    assert found.trial.configuration["sum_type"] == "fp16"
    assert [tradeoff.digits for tradeoff in found.tradeoffs] == [1]
    assert math.isnan(found.digits_spare)
    assert found.tradeoffs[0].limit == "error <= 0.01"


def test_reused_errors_are_nobodys_own() -> None:
    """A trade-off rests on checked trials alone; a change known by its signature says so and counts as missing."""
    run = run_of([trial("fp32", "fp32"), trial("fp32", "fp64", 64), trial("fp32", "fp64", reused=True, time_ms=6.0)])
    found = change(explanation_of(run), "sum_type", "fp64")
    assert found.outcome is not None
    assert found.outcome.source == "signature"
    assert found.digits == pytest.approx(3, abs=0.01)
    more = explanation_of(run).tradeoffs[0]
    assert more.best is not None
    assert more.best.trial.configuration["block"] == 64
    assert explanation_of(run).missing == 4


def test_an_untimed_trial_gives_its_digits() -> None:
    run = run_of([trial("fp32", "fp32"), trial("fp32", "fp16", time_ms=math.nan)])
    found = change(explanation_of(run), "sum_type", "fp16")
    assert found.digits == pytest.approx(-4, abs=0.01)
    assert math.isnan(found.speed)
    assert found.is_feasible is False
    assert found.outcome is not None
    assert found.outcome.source == "untimed"


def test_probes_are_compared_with_the_winner_of_the_same_rounds() -> None:
    run = run_of([trial("fp32", "fp32")])
    # The machine was half as fast while probing.
    slow = {f"{WINNER}time_ms": 10.0, "time_ms": 12.0, "speed_low": 0.8, "speed_high": 0.9}
    probe = probed(run, trial("fp32", "fp64"), **slow)
    found = change(explanation_of(run_of(run.trials, [probe])), "sum_type", "fp64")
    assert found.outcome is not None
    assert found.outcome.source == "probed"
    assert found.speed == pytest.approx(10 / 12)
    assert found.outcome.interval == (0.8, 0.9)


def test_finalists_are_compared_by_the_rounds_of_the_finals() -> None:
    slower, winner = trial("fp32", "fp64"), trial("fp32", "fp32")
    rounds = [{winner.configuration: 1.0 * noise, slower.configuration: 1.5 * noise} for noise in (1, 2, 1, 3, 1, 2, 1)]
    run = run_of([winner, slower])
    with_finals = Run(run.info, run.trials, dataclasses.replace(run.state, finals=Finals.of(rounds, 0)))
    found = change(explanation_of(with_finals), "sum_type", "fp64")
    assert found.speed == pytest.approx(1 / 1.5)
    assert found.outcome is not None
    assert found.outcome.interval == pytest.approx((1 / 1.5, 1 / 1.5))


def test_errors_of_the_same_draws_are_compared() -> None:
    """The winner was verified on more inputs than its neighbour ran on: its worst is worse than its first."""
    verified = trial("fp32", "fp32", error=9e-5, error_draws=23, error_first_draw=1e-5)
    run = run_of([verified, trial("fp32", "fp64", error=1e-8)])
    assert change(explanation_of(run), "sum_type", "fp64").digits == pytest.approx(3)


def test_probes_change_neither_trials_nor_the_best() -> None:
    run = run_of([trial("fp32", "fp32")])
    fast = probed(run, trial("fp16", "fp32", error=1e-9), time_ms=0.001)
    with_it = run_of(run.trials, [fast])
    assert with_it.evaluations == 1
    assert with_it.best == run.best
    assert with_it.front == run.front
    assert with_it.baseline == run.baseline
    # The trade-off knows it.
    less = explanation_of(with_it).tradeoffs[1]
    assert less.best is not None
    assert less.best.source == "probed"


def test_probes_beside_another_winner_are_not_used() -> None:
    run = run_of([trial("fp32", "fp32")])
    probe = probed(run, trial("fp32", "fp64"))
    later = run_of([trial("fp32", "fp32"), trial("fp32", "fp32", 64, time_ms=1.0)], [probe])
    assert all(c.outcome is None or c.outcome.source != "probed" for c in explanation_of(later).changes)
    edited = run_of(run.trials, [probe], template_hash="another")
    assert explanation_of(edited).missing == 4


def test_failures_are_told() -> None:
    failed = Trial(trial("fp32", "fp64").configuration, Status.LAUNCH_ERROR, "too many registers\nmore")
    found = change(explanation_of(run_of([trial("fp32", "fp32"), failed])), "sum_type", "fp64")
    assert [reason.text for reason in found.reasons] == ["launch_error: too many registers"]
    assert math.isnan(found.digits)
    assert explanation_of(run_of([trial("fp32", "fp32"), failed])).missing == 3


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        ({**CODE, "conversions": 0}, {**CODE, "conversions": 24}, ["conversions"]),
        # Unrolled twice as far: as many for each operation.
        ({**CODE, "conversions": 12}, {**CODE, "vector_operations": 180, "conversions": 22}, ["unexplained"]),
        (
            CODE,
            {"vector_operations": 10, "scalar_operations": 90, "conversions": 2},
            ["vectorisation"],
        ),
        ({"stack_stores": 0}, {"stack_stores": 8}, ["spills"]),
        ({"fp64_calls": 0}, {"fp64_calls": 1, "single_calls": 1}, ["calls"]),
        ({"single_calls": 0}, {"fp64_calls": 2, "single_calls": 2}, ["calls"]),
        ({"registers": 40}, {"registers": 80}, ["registers"]),
        ({"traffic_bytes": 4e6, "memory_bound_ms": 4.5}, {"traffic_bytes": 4e6, "memory_bound_ms": 4.5}, ["memory"]),
        ({"traffic_bytes": 4e6, "memory_bound_ms": 1.0}, {"traffic_bytes": 4e6, "memory_bound_ms": 1.0}, []),
        ({"traffic_bytes": 4e6}, {"traffic_bytes": 8e6, "memory_bound_ms": 2.8}, ["memory"]),
        # What fits in a cache, or is hidden behind arithmetic, is not what takes longer.
        ({"traffic_bytes": 4e6}, {"traffic_bytes": 8e6, "memory_bound_ms": 0.1}, []),
        ({"traffic_bytes": 4e6}, {"traffic_bytes": 8e6}, []),
        (CODE, {**CODE, "same_code": 1}, ["same code"]),
        (CODE, CODE, ["unexplained"]),
        ({"compute_bound_ms": 2.5}, {"compute_bound_ms": 5.0}, ["arithmetic"]),
    ],
)  # fmt: skip
def test_why_a_type_lost(before: dict[str, float], after: dict[str, float], kinds: list[str]) -> None:
    run = run_of([trial("fp32", "fp32")])
    numbers = {f"{WINNER}{name}": value for name, value in before.items()}
    probe = probed(run, trial("fp32", "fp64", time_ms=5.5), **numbers, **after)
    found = change(explanation_of(run_of(run.trials, [probe])), "sum_type", "fp64")
    assert [reason.kind for reason in found.reasons] == kinds


def test_what_pays_needs_no_reason() -> None:
    run = run_of([trial("fp32", "fp32")], threshold=1e-2)
    probe = probed(run, trial("fp16", "fp32"), conversions=100, **{f"{WINNER}conversions": 0})
    assert change(explanation_of(run_of(run.trials, [probe], threshold=1e-2)), "x_type", "fp16").reasons == ()


def test_what_is_not_possible_alone_is_told_with_the_fewest_other_types() -> None:
    forbidden = Trial(trial("fp32", "fp64").configuration, Status.CONSTRAINT, "breaks a rule")
    run = run_of([trial("fp32", "fp32"), forbidden, trial("fp64", "fp64"), trial("fp64", "fp64", 64)])
    explanation = explanation_of(run)
    found = change(explanation, "sum_type", "fp64")
    assert found.together is not None
    assert dict(found.together.trial.configuration) == {"block": 32, "x_type": "fp64", "sum_type": "fp64"}
    assert explanation.remarks(found)[:2] == (
        "constraint: breaks a rule",
        "with x_type fp64, sum_type fp64: +8.0 digits, speed -50%",
    )
    assert explanation.limiting is None
    assert explanation.sentences[0] == (
        "No single type limits the accuracy: none can be restored alone. x_type fp64, sum_type fp64 together gains 8.0 "
        "digits and costs 50% of the speed."
    )


def test_a_run_without_a_winner_is_explained_from_the_closest() -> None:
    found = explanation_of(run_of([trial("fp32", "fp32"), trial("fp32", "fp64")], threshold=1e-9))
    assert found.subject == "closest"
    assert found.digits_spare < 0
    assert found.sentences[0].startswith("Nothing is feasible")


def test_nothing_to_explain() -> None:
    empty = explanation_of(run_of([]))
    assert (empty.trial, empty.changes, empty.limiting) == (None, (), None)
    assert len(empty.sentences) == 1
    untyped = [{"name": "block", "kind": "ordinal", "values": [32, 64]}]
    alone = Trial(Configuration({"block": 32}), Status.OK, "", Measurement({"time_ms": 1.0, "error": 0.0}))
    found = explanation_of(run_of([alone], parameters=untyped, signature=[], baseline_values={}))
    assert found.changes == ()
    assert "no parameter of several values that can change the numbers" in found.sentences[0]


def test_exact_results_and_no_difference() -> None:
    trials = [trial("fp32", "fp32", error=1e-6), trial("fp32", "fp64", error=0.0), trial("fp64", "fp32", error=1e-6)]
    found = explanation_of(run_of(trials))
    assert change(found, "sum_type", "fp64").digits == math.inf
    assert change(found, "x_type", "fp64").digits == 0.0
    assert "leaves no error beside the reference" in found.sentences[0]
    assert found.to_json()["changes"][0]["outcome"]["digits"] is not None
    exact = next(c for c in found.to_json()["changes"] if c["parameter"] == "sum_type" and c["after"] == "fp64")
    assert exact["outcome"]["digits"] is None


def test_everything_is_widest() -> None:
    found = explanation_of(run_of([trial("fp64", "fp64")]))
    assert found.limiting is None
    assert "widest there is" in found.sentences[0]


def test_no_single_type_limits() -> None:
    """Two sums of the same weight: restoring either alone changes next to nothing."""
    trials = [
        trial("fp32", "fp32", error=2e-6),
        trial("fp64", "fp32", error=1.5e-6),
        trial("fp32", "fp64", error=1.4e-6),
    ]
    found = explanation_of(run_of(trials))
    assert found.limiting is None
    assert "No single type" in found.sentences[0]
    both = explanation_of(run_of([*trials, trial("fp64", "fp64", error=2e-16)]))
    assert both.sentences[0].endswith(
        "The baseline, all in the widest types, gains 10.0 digits and costs 50% of the speed."
    )


def test_other_objectives() -> None:
    found = explanation_of(run_of(everything(), objective="memory_bytes"))
    assert found.measure == "memory_bytes"
    assert change(found, "x_type", "fp64").gain == pytest.approx(0.5)
    assert "gains 5.0 digits and multiplies memory_bytes by 2." in found.sentences[0]
    most = explanation_of(run_of(everything(), objective="memory_bytes", minimise=False))
    assert most.trial is not None
    assert most.trial.configuration["x_type"] == "fp64"
    assert change(most, "x_type", "fp32").gain == pytest.approx(0.5)
    accurate = explanation_of(run_of(everything(), objective="error", threshold=None))
    assert accurate.measure == "speed"
    assert accurate.limiting is None
    assert not any("has not found" in sentence for sentence in accurate.sentences)
    several = explanation_of(run_of(everything(), objectives=["time_ms", "memory_bytes"]))
    assert several.trial == run_of(everything()).best


def test_limits_by_output() -> None:
    """The output nearest to its own limit counts, not the one of the largest error."""
    outputs = {"error.y": 1e-3, "error.z": 1e-6}
    trials = [
        trial("fp32", "fp32", error=1e-3, **outputs),
        trial("fp32", "fp64", error=1e-3, **{**outputs, "error.z": 1e-9}),
    ]
    found = explanation_of(run_of(trials, threshold={"y": 1.0, "z": 1e-5}))
    restored = change(found, "sum_type", "fp64")
    assert restored.digits == pytest.approx(2)
    assert found.tradeoffs[0].limit == "y <= 0.1, z <= 1e-06"
    # The errors shown are those that the digits are of: from 1 digit below the limit of z to 3 below that of y.
    assert str(found.limited) == "MRE of z 1e-06 (limit 1e-05)"
    assert restored.outcome is not None
    assert restored.outcome.error_text == "MRE of y 0.001 (limit 1)"
    documents = (entry["outcome"] for entry in found.to_json()["changes"] if entry["outcome"])
    assert {"measured_by": "MRE of y", "error": 1e-3, "limit": 1.0} in [document["limited"] for document in documents]


def test_retuned_siblings_are_told() -> None:
    run = run_of(
        [trial("fp32", "fp32"), trial("fp32", "fp64", 32, time_ms=9.0), trial("fp32", "fp64", 64, time_ms=5.2)]
    )
    found = change(explanation_of(run), "sum_type", "fp64")
    assert found.retuned is not None
    assert found.retuned.trial.configuration["block"] == 64
    assert found.speed == pytest.approx(5 / 9)
    worse = run_of([trial("fp32", "fp32"), trial("fp32", "fp64"), trial("fp32", "fp64", 64)])
    assert change(explanation_of(worse), "sum_type", "fp64").retuned is None


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.12, "+12%"), (0.82, "-18%"), (1.0, "+0%"), (3.25, "3.2x"), (math.nan, "-")]
)
def test_ratios_in_words(ratio: float, text: str) -> None:
    assert percent(ratio) == text


def test_of_an_application_the_kernel_and_the_buffers_are_named() -> None:
    found = explanation_of(application_run())
    assert found.limiting is not None
    assert (found.limiting.part, found.limiting.kernels, found.limiting.buffers) == ("kernel step", ("step",), ())
    restored = change(found, "u_type", "fp64")
    assert (restored.part, restored.kernels, restored.buffers) == ("buffers", ("step", "norm"), ("u", "v"))
    assert found.sentences[0].startswith("sum_type of kernel step limits the accuracy: restoring it from fp32 to fp64")
    assert found.sentences[1] == (
        "Digits gained at most by one change alone: kernel step +3.0 (sum_type in fp64), buffers +0.0 (u_type in "
        "fp64); of choices nothing is known."
    )
    documents = found.to_json()["changes"]
    assert {(d["parameter"], d["part"]) for d in documents} == {
        ("u_type", "buffers"),
        ("method", ""),
        ("step.sum_type", "kernel step"),
    }


def test_where_buffers_limit_the_accuracy_what_works_on_them_is_named() -> None:
    trials = [run_trial("fp64", "fp64"), run_trial("fp16", "fp64")]
    found = explanation_of(application_run(trials, threshold=1e-3))
    assert found.sentences[0].startswith(
        "u_type, the type of u and v, on which step and norm work, limits the accuracy"
    )
    alone = explanation_of(application_run(trials, threshold=1e-3, launches=[]))
    assert alone.sentences[0].startswith("u_type, the type of u and v, limits the accuracy")
    # The sum has its widest type, which is known without a run; what the method does is not.
    assert found.sentences[1].endswith("; nothing to gain in kernel step; of choices nothing is known.")


def test_digits_beside_a_winner_without_an_error_say_so() -> None:
    assert [digits_text(digits) for digits in (math.inf, -math.inf, 1.5)] == [
        "exact",
        "not exact (the winner is)",
        "+1.5",
    ]
