"""Why a winner has its types, on runs made by hand: what each answer has to be is known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
from application_trials import application_run
from described import described_run

from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.tuning.sensitivity import WINNER, Change, Explanation, explanation_of, probe_key

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


def trial(x: str, total: str, block: int = 32, **numbers: float) -> Trial:
    error = ROUNDOFF[x] + 1e3 * ROUNDOFF[total]
    time_ms = (BYTES[x] + 0.25 * BYTES[total]) * (1.0 if block == 32 else 1.5)
    metrics = {"time_ms": time_ms, "error": error, "memory_bytes": 1e6 * BYTES[x], **numbers}
    known = {name: value for name, value in metrics.items() if not math.isnan(value)}
    status = Status.OK if known.get("error", 0) <= 1e-4 else Status.INACCURATE
    configuration = Configuration({"block": block, "x_type": x, "sum_type": total})
    return Trial(configuration, status, "", Measurement(known), key=f"{x} {total} {block}")


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


def test_a_probe_that_beats_the_winner_is_told() -> None:
    run = run_of([trial("fp32", "fp64")])
    better = explanation_of(run_of(run.trials, [probed(run, trial("fp32", "fp32"))]))
    assert better.sentences[1].startswith(
        "The search has not found the best there is: sum_type in fp32 is within the limits and gains 20% speed."
    )
    assert not any("has not found" in sentence for sentence in explanation_of(run_of(everything())).sentences)


def test_without_a_threshold_the_winners_error_is_the_limit() -> None:
    found = explanation_of(run_of(everything(), threshold=None))
    assert found.trial is not None
    assert found.trial.configuration["sum_type"] == "fp16"
    assert [tradeoff.digits for tradeoff in found.tradeoffs] == [1]
    assert math.isnan(found.digits_spare)
    assert found.tradeoffs[0].limit == "error <= 0.01"


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


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        ({**CODE, "conversions": 0}, {**CODE, "conversions": 24}, ["conversions"]),
        (
            CODE,
            {"vector_operations": 10, "scalar_operations": 90, "conversions": 2},
            ["vectorisation"],
        ),
        ({"stack_stores": 0}, {"stack_stores": 8}, ["spills"]),
        ({"fp64_calls": 0}, {"fp64_calls": 1, "single_calls": 1}, ["calls"]),
        ({"registers": 40}, {"registers": 80}, ["registers"]),
        ({"traffic_bytes": 4e6, "memory_bound_ms": 4.5}, {"traffic_bytes": 4e6, "memory_bound_ms": 4.5}, ["memory"]),
        ({"traffic_bytes": 4e6}, {"traffic_bytes": 8e6, "memory_bound_ms": 2.8}, ["memory"]),
        # What fits in a cache, or is hidden behind arithmetic, is not what takes longer.
        ({"traffic_bytes": 4e6}, {"traffic_bytes": 8e6, "memory_bound_ms": 0.1}, []),
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


def test_a_run_without_a_winner_is_explained_from_the_closest() -> None:
    found = explanation_of(run_of([trial("fp32", "fp32"), trial("fp32", "fp64")], threshold=1e-9))
    assert found.subject == "closest"
    assert found.digits_spare < 0
    assert found.sentences[0].startswith("Nothing is feasible")


def test_exact_results_and_no_difference() -> None:
    trials = [trial("fp32", "fp32", error=1e-6), trial("fp32", "fp64", error=0.0), trial("fp64", "fp32", error=1e-6)]
    found = explanation_of(run_of(trials))
    assert change(found, "sum_type", "fp64").digits == math.inf
    assert change(found, "x_type", "fp64").digits == 0.0
    assert "leaves no error beside the reference" in found.sentences[0]
    assert found.to_json()["changes"][0]["outcome"]["digits"] is not None
    exact = next(c for c in found.to_json()["changes"] if c["parameter"] == "sum_type" and c["after"] == "fp64")
    assert exact["outcome"]["digits"] is None


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
