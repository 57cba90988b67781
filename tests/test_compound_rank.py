"""Wherever types are ranked by their accuracy, compound ones stand where their errors put them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import own_kernel
import pytest
from awkward_kernel import run_of
from described import described_run

from mptune.precision import COMPOUND, EVERY_PRECISION, PRECISIONS, precision, promoted
from mptune.results.objective import Objective
from mptune.results.speedup import Finals
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.parameters import PrecisionParameter, baseline_values
from mptune.space.search_space import SearchSpace
from mptune.store import RunState
from mptune.strategies.model_based.coordinates import distances
from mptune.strategies.model_based.error_model import Signatures
from mptune.wisdom import Chooser, gather, read_sources

BEST_FIRST = (
    "fp64_neumaier", "fp64", "fp32x2", "fp32_neumaier", "fp32", "bf16x3", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2",
)  # fmt: skip
OFFERED = PrecisionParameter("sum", ["fp64", "fp32", "fp16", "bf16"], on_request=COMPOUND)
EVERY = OFFERED.restricted(OFFERED.every_value)
STORED = PrecisionParameter("stored", ["fp64", "fp32", "fp16"])
#: The own kernel of the tests, of which y may be compound.
OWN = own_kernel.kernel.changed(
    parameters=[
        PrecisionParameter("y_type", p.values, on_request=COMPOUND) if p.name == "y_type" else p
        for p in own_kernel.kernel.parameters
    ]
)


def trial(time_ms: float, error: float, status: Status = Status.OK, **values: Any) -> Trial:
    metrics = {"time_ms": time_ms, "error": error, "error.y": error, "error_draws": 3.0, "error_mean": 0.9 * error}
    return Trial(OWN.configuration(values), status, "", Measurement(metrics))


# -- the table -------------------------------------------------------------------------------------------


def test_the_table_is_in_the_order_of_accuracy() -> None:
    assert tuple(EVERY_PRECISION) == BEST_FIRST
    ranks = [entry.rank for entry in EVERY_PRECISION.values()]
    assert all(better > worse for better, worse in itertools.pairwise(ranks))
    roundoffs = [entry.unit_roundoff for entry in EVERY_PRECISION.values()]
    assert roundoffs == sorted(roundoffs)
    assert tuple(PRECISIONS) == tuple(name for name in BEST_FIRST if name not in COMPOUND)


def test_an_operation_has_the_more_accurate_of_two_compound_types_and_any_before_a_plain_one() -> None:
    types = [entry for entry in EVERY_PRECISION.values() if not entry.storage_only]
    for one, other in itertools.product(types, repeat=2):
        assert promoted(one, other) is promoted(other, one)
        if one.name in COMPOUND and other.name in COMPOUND:
            assert promoted(one, other) is max(one, other, key=lambda entry: entry.rank)
    assert promoted(precision("fp32"), precision("bf16x3")).name == "bf16x3"
    assert promoted(precision("bf16x3"), precision("fp32_neumaier")).name == "fp32_neumaier"
    assert promoted(precision("fp64"), precision("fp32x2")).name == "fp64"


# -- the search ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "baseline"),
    [
        (BEST_FIRST[:8], "fp64"),
        (("fp64_neumaier", "fp32"), "fp64_neumaier"),
        (("fp32x2", "fp32"), "fp32x2"),
        (("fp32_neumaier", "fp32", "bf16x3"), "fp32"),
    ],
)
def test_the_baseline_is_plain_where_a_plain_type_has_as_many_digits(asked: Any, baseline: str) -> None:
    space = SearchSpace([OFFERED.restricted(asked), STORED])
    assert baseline_values(space.parameters) == {"sum": (baseline,), "stored": ("fp64",)}
    signatures = Signatures(space, ["sum", "stored"], Objective(threshold=1e-5))
    found = [p.values[code] for p, code in zip(space.parameters, signatures.widest, strict=True)]
    assert found == [baseline, "fp64"]


def test_no_two_types_are_the_same_to_a_model() -> None:
    for table in (EVERY.encoded(), distances([EVERY]).at(np.arange(len(EVERY.values))[:, None])):
        apart = np.abs(table[:, None, :] - table[None, :, :]).max(axis=2)
        assert (apart[~np.eye(len(apart), dtype=bool)] > 1e-3).all()


# -- what is said of a run -------------------------------------------------------------------------------


def test_of_types_that_are_as_fast_the_most_accurate_wins() -> None:
    trials = [trial(1.0, 1e-7, x_type="fp32", y_type=name) for name in ("bf16x3", "fp32_neumaier")]
    rounds = [{each.configuration: 1.0 for each in trials}] * 9
    parameters = [{"name": p.name, "kind": p.kind, "values": list(p.values)} for p in OWN.parameters]
    info = described_run({"objective": "time_ms", "parameters": parameters, "baseline_values": {}}, trials).info
    for given in (trials, trials[::-1]):
        run = Run(info, given, RunState(finals=Finals.of(rounds, 0, 0.0)))
        assert run.best is not None
        assert run.best.configuration["y_type"] == "fp32_neumaier"


# -- wisdom ----------------------------------------------------------------------------------------------


def chosen(budget: float) -> str:
    run = run_of(
        OWN,
        [
            trial(4.0, 2e-15),
            trial(5.0, 1e-16, y_type="fp64_neumaier"),
            trial(6.0, 1e-13, y_type="fp32x2"),
            trial(2.0, 1e-7, x_type="fp32", y_type="fp32"),
        ],
        sizes=OWN.resolve_sizes("default", {"n": 1000}),
        threshold=1e-5,
    )
    known = gather(read_sources([run])).kernels[0]
    return str(Chooser(known, OWN, budget={"error": budget}).choose({"n": 1000}).configuration["y_type"])


def test_wisdom_takes_what_is_more_accurate_only_where_the_baseline_breaks_the_budget() -> None:
    # The run had another limit, so that it names no winner for the others.
    assert chosen(1e-5) == "fp32"
    # Slower than the baseline, and less accurate: nothing that anybody wants.
    assert chosen(1e-12) == "fp64"
    assert chosen(1e-15) == "fp64_neumaier"
