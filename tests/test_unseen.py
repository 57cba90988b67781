"""What verification says: the bound of Clopper and Pearson, the words, and errors over several draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from described import described_run
from scipy.stats import beta

from mptune.cli.display import print_run
from mptune.results.description import verified_text
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.results.unseen import Verified, rate_bound, with_draws
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.store import RunState

FIELDS = {
    "kernel": "force",
    "backend": "host",
    "device": "one",
    "sizes": {"n": 1},
    "metric": "NMAE",
    "configurations": 3,
    "strategy": "random",
    "seed": 0,
    "objective": "time_ms",
}


def trial(**metrics: float) -> Trial:
    given = {"time_ms": 1.0, "error": 1e-5, "log10_error": -5.0, "error.y": 1e-5, **metrics}
    return Trial(Configuration({"x": 1}), Status.OK, measurement=Measurement(given))


def drawn(error: float) -> dict[str, float]:
    return {"error": error, "log10_error": math.log10(error), "error.y": error}


@pytest.mark.parametrize("inputs", [1, 5, 20, 59, 1000, 10_000])
def test_the_bound_is_the_quantile_of_the_beta_distribution(inputs):
    for violations in sorted({0, 1, 2, inputs // 3, inputs - 1}):
        if violations < inputs:
            expected = beta.ppf(0.95, violations + 1, inputs - violations)
            assert rate_bound(violations, inputs) == pytest.approx(expected, rel=1e-9)
    assert rate_bound(inputs, inputs) == 1.0


def test_the_bound_covers_the_true_rate_in_at_least_95_percent_of_all_runs():
    rng = np.random.default_rng(0)
    for rate, inputs in ((0.01, 20), (0.1, 20), (0.3, 59), (0.5, 7)):
        counts = rng.binomial(inputs, rate, 20_000)
        covered = np.array([rate_bound(int(k), inputs) for k in range(inputs + 1)])[counts] >= rate
        assert covered.mean() >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 20_000)


@pytest.mark.parametrize(
    ("verified", "limit", "words"),
    [
        (
            Verified(20, 2, 1.31e-4),
            "1e-4",
            "within 1e-4 on 18 of 20 unseen inputs, up to 0.000131 on others: with 95% confidence at most 29% of "
            "such inputs break it",
        ),
        (
            Verified(20, 0, 3e-5),
            "",
            "error at most 3e-05 on 20 of 20 unseen inputs: with 95% confidence at most 14% of such inputs exceed it",
        ),
    ],
)
def test_words(verified, limit, words):
    assert verified.words(limit) == words


def test_the_error_is_the_worst_over_all_draws_and_the_mean_is_kept():
    objective = Objective(threshold=1e-4)
    searched = with_draws(trial(), [drawn(3e-5), drawn(2e-5)])
    assert searched.error == searched.metric("error.y") == 3e-5
    assert searched.metric("log10_error") == math.log10(3e-5)
    assert searched.metric("error_mean") == pytest.approx(2e-5)
    assert searched.metric("error_draws") == 3
    assert searched.metric("error_first_draw") == 1e-5
    assert Verified.of(searched, objective) is None
    verified = with_draws(searched, [drawn(1e-5), drawn(8e-5)], objective)
    assert verified.error == 8e-5
    assert verified.metric("error_draws") == 5
    assert verified.metric("error_first_draw") == 1e-5
    assert verified.metric("error_mean") == pytest.approx(3e-5)
    assert Verified.of(verified, objective) == Verified(2, 0, 8e-5)
    assert objective.judge(verified).status is Status.OK


def test_one_violation_makes_a_trial_fragile_and_the_message_says_by_how_much():
    objective = Objective(threshold=1e-4)
    found = objective.judge(with_draws(trial(), [drawn(2e-5), drawn(1.5e-4)], objective))
    assert found.status is Status.FRAGILE
    assert found.is_valid
    assert not objective.is_feasible(found)
    assert found.message == "its error is above the threshold on 1 of 2 unseen inputs: up to 0.00015, a factor of 1.5"
    assert Verified.of(found, objective) == Verified(2, 1, 1.5e-4)
    # Under a limit that holds it is as good as any other.
    wider = Objective(threshold=1e-3)
    assert wider.judge(found).status is Status.OK
    assert Verified.of(found, wider) == Verified(2, 0, 1.5e-4)


def test_verification_adds_up_over_sessions():
    objective = Objective(threshold=1e-4)
    first = with_draws(trial(), [drawn(2e-5)] * 5, objective)
    both = with_draws(first, [drawn(4e-4), drawn(3e-5)], objective)
    assert Verified.of(both, objective) == Verified(7, 1, 4e-4)
    assert with_draws(trial(), [drawn(2e-5)] * 5 + [drawn(4e-4), drawn(3e-5)], objective) == both


def test_what_was_run_on_no_unseen_input_is_not_called_verified(capsys):
    fields = {**FIELDS, "threshold": 1e-4, "parameters": [{"name": "x", "kind": "ordinal", "values": [1]}]}
    why = "none could be made: no such file"
    run = described_run(fields, [trial()])
    run = Run(run.info, run.trials, RunState(unverified=why))
    said = f"NOT verified on any unseen input ({why}): nothing is known of its error beyond the one input of the search"
    assert verified_text(run, run.trials[0]) == said
    print_run(run)
    assert f"best: {said}" in capsys.readouterr().out
    entry = run.summary()["best"]
    assert (entry["verified"], entry["not_verified"]) == (None, said)
    # A trial that was verified later, one that is not feasible, a run that has not come to its end.
    objective = Objective(threshold=1e-4)
    assert verified_text(run, with_draws(trial(), [drawn(1e-5)], objective)).startswith("within")
    assert verified_text(run, trial(error=1.0)) == ""
    assert verified_text(Run(run.info, run.trials), run.trials[0]) == ""
    assert RunState.from_json(run.state.to_json()) == run.state


def test_what_was_lost_to_fragility_is_said(capsys):
    fields = {**FIELDS, "threshold": 1e-3, "parameters": [{"name": "block", "kind": "ordinal", "values": [1, 2, 3]}]}

    def trial(block, time_ms, status, error):
        metrics = {"time_ms": time_ms, "error": error, "memory_bytes": 8.0}
        return Trial(Configuration({"block": block}), status, "broken by 1.03", Measurement(metrics))

    slow, best = trial(1, 3.0, Status.FRAGILE, 1.03e-3), trial(2, 2.0, Status.OK, 1e-6)
    print_run(described_run(fields, [slow, best]))
    assert "fragile:" not in capsys.readouterr().out
    print_run(described_run(fields, [slow, best, trial(3, 1.0, Status.FRAGILE, 1.03e-3)]))
    said = "better but fragile: trial 3, 1 ms; broken by 1.03 (mptune verify --configuration 3 says on which)"
    assert said in " ".join(capsys.readouterr().out.split())
