from __future__ import annotations

import math

import numpy as np
import pytest

from mptune.precision import precision
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.parameters import OrdinalParameter, PolicyParameter, PrecisionParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies.model_based.error_model import ErrorModel, Signatures

TYPES = ["fp64", "fp32", "fp16"]


def _all_signatures(n: int) -> np.ndarray:
    return np.stack(np.meshgrid(*[np.arange(3)] * n, indexing="ij"), axis=-1).reshape(-1, n).astype(np.int32)


def _log10_errors(codes: np.ndarray, conditions: list[float]) -> np.ndarray:
    roundoffs = np.array([precision(name).unit_roundoff for name in TYPES])
    return np.log10((roundoffs[codes] * conditions).sum(axis=1))


# -- the error model -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_learns_a_sum_of_roundoffs_from_few_signatures(seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = _all_signatures(4)
    errors = _log10_errors(codes, (10.0 ** rng.uniform(-1.5, 1.5, 4)).tolist())
    shown = rng.permutation(len(codes))[:14]
    model = ErrorModel([PrecisionParameter(f"p{i}", TYPES) for i in range(4)])
    model.fit(codes[shown], errors[shown], np.zeros(14))
    mean, deviation = model.predict(codes)
    hidden = np.setdiff1d(np.arange(len(codes)), shown)
    assert np.abs(mean - errors)[hidden].mean() < 0.35
    assert (np.abs(mean - errors)[hidden] < 3.0 * deviation[hidden]).mean() > 0.95
    assert np.corrcoef(mean[hidden], errors[hidden])[0, 1] > 0.98


def test_the_coarsest_type_dominates_and_widening_never_hurts() -> None:
    codes = _all_signatures(3)
    model = ErrorModel([PrecisionParameter(f"p{i}", TYPES) for i in range(3)])
    model.fit(codes[::5], _log10_errors(codes, [1.0, 1.0, 1.0])[::5], np.zeros(len(codes[::5])))
    mean, _ = model.predict(codes)
    by_code = {tuple(row): value for row, value in zip(codes.tolist(), mean.tolist(), strict=True)}
    assert abs(by_code[2, 2, 2] - by_code[2, 0, 0]) < 1.0 < by_code[1, 1, 1] - by_code[0, 0, 0]
    for (a, b, c), value in by_code.items():
        if a:
            assert by_code[a - 1, b, c] <= value + 1e-9


# -- what is known of signatures -------------------------------------------------------------------

SPACE = SearchSpace(
    [OrdinalParameter("block", [32, 64]), PrecisionParameter("x", TYPES), PrecisionParameter("y", TYPES)]
)


def _trial(block: int, x: str, y: str, status: Status = Status.OK, **metrics: float) -> Trial:
    configuration = SPACE.configuration(0)
    values = {**configuration, "block": block, "x": x, "y": y}
    return Trial(type(configuration)(values), status, measurement=Measurement(metrics))


def _observed(objective: Objective, *trials: Trial) -> Signatures:
    signatures = Signatures(SPACE, ["x", "y"], objective)
    indices = [SPACE.index(t.configuration) for t in trials]
    assert None not in indices
    signatures.observe(SPACE.codes(indices), trials)
    return signatures


def _codes(block: int, x: str, y: str) -> np.ndarray:
    return SPACE.codes([SPACE.index(_trial(block, x, y).configuration)])


def _ruled_out(signatures: Signatures, codes: np.ndarray) -> np.ndarray:
    return np.isneginf(signatures.log_probability(codes))


GOOD = _trial(32, "fp64", "fp64", error=1e-15)


def test_a_measured_signature_decides_for_its_siblings() -> None:
    signatures = _observed(
        Objective(threshold=1e-5),
        _trial(32, "fp16", "fp64", Status.INACCURATE, error=1e-3),
        _trial(64, "fp16", "fp64", Status.INACCURATE, error=1e-3),
        GOOD,
    )
    assert _ruled_out(signatures, _codes(64, "fp16", "fp64")).tolist() == [True]
    assert signatures.log_probability(_codes(64, "fp16", "fp64"))[0] == -math.inf
    assert signatures.log_probability(_codes(64, "fp64", "fp64"))[0] == 0.0
    assert -math.inf < signatures.log_probability(_codes(64, "fp32", "fp64"))[0] < 0.0
    assert signatures.log_probability(_codes(32, "fp64", "fp16"))[0] < signatures.log_probability(
        _codes(32, "fp64", "fp32")
    )


def test_a_result_that_is_not_finite_is_the_narrow_signatures_fault() -> None:
    failed = [_trial(block, "fp16", "fp32", Status.NON_FINITE) for block in (32, 64)]
    assert not _ruled_out(_observed(Objective(threshold=1e-5), GOOD, failed[0]), _codes(64, "fp16", "fp32"))[0]
    signatures = _observed(Objective(threshold=1e-5), GOOD, *failed)
    assert _ruled_out(signatures, _codes(64, "fp16", "fp32"))[0]
    assert not _ruled_out(signatures, _codes(64, "fp32", "fp32"))[0]


def test_one_inaccurate_configuration_makes_its_signature_improbable_until_another_shares_no_value_with_it() -> None:
    bad = [_trial(block, "fp32", "fp64", Status.INACCURATE, error=1.0) for block in (32, 64)]
    once = _observed(Objective(threshold=1e-5), GOOD, bad[0])
    assert not _ruled_out(once, _codes(32, "fp32", "fp64"))[0]
    same, other = (once.log_probability(_codes(block, "fp32", "fp64"))[0] for block in (32, 64))
    assert -math.inf < same < other < math.log(0.01)
    assert _ruled_out(_observed(Objective(threshold=1e-5), GOOD, *bad), _codes(32, "fp32", "fp64"))[0]


def test_a_threshold_that_nothing_comes_near_changes_no_prediction() -> None:
    """A mean of thresholds of different metrics would be off by decades: the one that binds is modelled."""
    errors = {"fp64": 1e-16, "fp32": 1e-7, "fp16": 1e-3}
    trials = [
        _trial(32, x, "fp32", **{"error.NRMSE": error, "error.ULP": 3.0, "error": error}) for x, error in errors.items()
    ]
    alone = _observed(Objective(threshold={"NRMSE": 1e-5}), *trials)
    codes = np.vstack([_codes(64, x, y) for x in errors for y in errors])
    for other in ({"ULP": 1e12}, {"ULP": 1e-3}):
        both = _observed(Objective(threshold={"NRMSE": 1e-5, **other}), *trials)
        binds = other["ULP"] > 3
        assert np.array_equal(both.log_probability(codes), alone.log_probability(codes)) is binds
        assert np.array_equal(both.levels(codes)[0], alone.levels(codes)[0]) is binds


def test_exact_results_and_infinite_errors_are_taken() -> None:
    signatures = _observed(
        Objective(threshold=1e-3),
        _trial(32, "fp64", "fp64", error=0.0),
        *(_trial(block, "fp16", "fp16", Status.INACCURATE, error=math.inf) for block in (32, 64)),
        *(_trial(block, "fp32", "fp16", Status.INACCURATE, error=math.nan) for block in (32, 64)),
    )
    assert signatures.log_probability(_codes(32, "fp64", "fp64"))[0] == 0.0
    assert _ruled_out(signatures, np.concatenate([_codes(64, "fp16", "fp16"), _codes(64, "fp32", "fp16")])).all()
    assert not np.isnan(signatures.log_probability(SPACE.codes(range(SPACE.size)))).any()


def test_a_broken_constraint_says_nothing_about_the_signature() -> None:
    space = SearchSpace([PrecisionParameter("x", TYPES), OrdinalParameter("block", [32, 64])])
    objective = Objective(threshold=1e-3, constraints=("energy_j <= 1",))
    signatures = Signatures(space, ["x"], objective)
    costly = {"time_ms": 1.0, "error": 1e-6, "energy_j": 5.0}
    inaccurate = {"time_ms": 1.0, "error": 1e-1, "energy_j": 5.0}
    indices = np.arange(space.size)
    codes = space.codes(indices)
    fp32, fp16 = (int(np.flatnonzero(codes[:, 0] == code)[0]) for code in (1, 2))
    trials = [
        Trial(space.configuration(index), status, measurement=Measurement(metrics))
        for index, status, metrics in ((fp32, Status.VIOLATION, costly), (fp16, Status.INACCURATE, inaccurate))
    ]
    signatures.observe(codes[[fp32, fp16]], trials)
    inaccurate_one = np.flatnonzero(codes[:, 0] == 2)
    assert (signatures.log_probability(codes[inaccurate_one]) < math.log(0.1)).all()
    assert (signatures.log_probability(codes[codes[:, 0] == 1]) == 0).all()


def test_a_policy_adds_a_floor_of_its_own() -> None:
    parameters = [PrecisionParameter("x", TYPES), PolicyParameter("policy")]
    codes = _all_signatures(2)
    roundoff = np.array([precision(name).unit_roundoff for name in TYPES])[codes[:, 0]]
    errors = np.log10(roundoff + np.array([0.0, 1e-6, 1e-3])[codes[:, 1]])
    model = ErrorModel(parameters)
    shown = [0, 1, 2, 3, 6]
    model.fit(codes[shown], errors[shown], np.zeros(len(shown)))
    np.testing.assert_allclose(model.predict(codes)[0], errors, atol=0.7)
