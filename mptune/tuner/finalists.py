"""Who is measured again at the end of a run.

A winner picked from many noisy times is the luckiest of the fastest, and the baseline was measured in other minutes
than the winner was. So the few that can win are measured again in turn, which makes their ratio one of times taken
side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from mptune.objective import Objective
from mptune.results import Trial
from mptune.run import Run
from mptune.space.configuration import Value

__all__ = ["ROUNDS", "finalists", "rounds_within"]

#: How often the turn of each comes.
ROUNDS: Final = 5
#: The fastest feasible trials, and the fastest of the baseline's types, among them; several objectives add the front.
_WINNERS: Final = 3
_BASELINES: Final = 2
#: Launches of a visit, the one that warms up included.
_LAUNCHES: Final = 6
_LEAST_ROUNDS: Final = 2


def finalists(run: Run, objective: Objective, baseline: Mapping[str, Sequence[Value]]) -> list[Trial]:
    """Return the trials that can be the best or the baseline, fastest first, none twice.

    None where time is not what is optimised, or nothing is feasible.

    Args:
        run: every trial so far.
        objective: ranks them.
        baseline: values by parameter that make a configuration one of the baseline's.
    """
    if "time_ms" not in objective.names:
        return []
    ranked = sorted(
        (trial for trial in run.trials if not math.isnan(objective.performance(trial))),
        key=objective.performance,
        reverse=True,
    )
    winners = [trial for trial in ranked if objective.is_feasible(trial)][:_WINNERS]
    baselines = [
        trial for trial in ranked if all(trial.configuration[name] in values for name, values in baseline.items())
    ][:_BASELINES]
    return (
        list({trial.configuration: trial for trial in (*winners, *run.front, *baselines)}.values()) if winners else []
    )


def rounds_within(trials: Sequence[Trial], allowed_s: float) -> int:
    """Return how many rounds of these trials fit into a time, at most :data:`ROUNDS`; 0 where they are too few."""
    round_s = math.fsum(_LAUNCHES * trial.time_ms / 1e3 for trial in trials)
    rounds = min(ROUNDS, int(allowed_s / round_s)) if round_s > 0 else ROUNDS
    return rounds if rounds >= _LEAST_ROUNDS else 0
