"""Which of the finalists is fastest: a few rounds for everyone, more only where a rank that matters is open.

Racing (Maron and Moore, "Hoeffding races", NIPS 1993; Birattari et al., "A racing algorithm for configuring
metaheuristics", GECCO 2002): whoever is surely slower than the fastest leaves, and the launches go to those that are
not told apart yet.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mptune.results.speedup import LEAST_ROUNDS, Finals
from mptune.space.configuration import Configuration

__all__ = ["Measure", "race", "rounds_for_interval"]

#: Measures configurations in so many rounds, and returns the shortest launch of each in each round. Who fails is
#: missing from then on; nobody is left where nothing can be measured any more.
Measure = Callable[[Sequence[Configuration], int], Sequence[Mapping[Configuration, float]]]

#: Rounds between two looks at the order.
_STEP: Final = 3
#: The interval of a speedup should reach no further than this to either side. The interval of a median of n ratios does
#: so by about 2.5 standard deviations over the square root of n; it needs as many rounds as allow for being off.
_HALF_WIDTH: Final = 0.015
_DEVIATIONS: Final = 2.5
_USUAL_ROUNDS: Final = 10
_MOST_ROUNDS: Final = 200


def race(
    measure: Measure, groups: Sequence[Sequence[Configuration]], is_up: Callable[[], bool]
) -> list[Mapping[Configuration, float]]:
    """Measure finalists in rounds until the order at the head of each group is settled; return the rounds.

    Everyone takes part in the first rounds. Who is surely slower than the fastest of its group leaves; a group rests as
    soon as all that are left are surely as good as each other.

    Args:
        measure: measures in turn.
        groups: finalists among which the fastest is looked for.
        is_up: whether the time is up; not asked before there are enough rounds for an interval.
    """
    rounds: list[Mapping[Configuration, float]] = []
    open_groups = [list(dict.fromkeys(group)) for group in groups]
    while racing := list(dict.fromkeys(c for group in open_groups for c in group)):
        # Rounds go back and forth, and so does the order in which they begin: as many go one way as the other.
        more = measure(racing if len(rounds) % 2 == 0 else racing[::-1], _STEP)
        rounds += more
        finals = Finals.of(rounds, len(rounds))
        if not more or (len(rounds) >= LEAST_ROUNDS and is_up()):
            break
        open_groups = [left for group in open_groups if (left := _open(finals, [c for c in group if c in more[-1]]))]
    return rounds


def _open(finals: Finals, group: Sequence[Configuration]) -> list[Configuration]:
    """Return who of a group goes on; nobody if nobody has to."""
    if len(group) < 2:
        return []
    time_ms = finals.typical_ms(group[0])
    fastest = min(group, key=time_ms.__getitem__)
    ratios = finals.tied_with(fastest)
    return (
        [c for c in group if c == fastest or c in ratios]
        if any(ratios[c].is_open for c in group if c in ratios)
        else []
    )


def rounds_for_interval(rounds: Sequence[Mapping[Configuration, float]], reported: Sequence[Configuration]) -> int:
    """Return in how many further rounds to measure what is reported, so that the intervals of ratios are narrow.

    It is settled beforehand, from the spread of rounds that do not count for the interval: an interval that decides
    itself when to stop holds less often than it says.
    """
    spreads = []
    for configuration in reported[1:]:
        met = [math.log(r[configuration] / r[reported[0]]) for r in rounds if configuration in r and reported[0] in r]
        spreads += [statistics.stdev(met)] if len(met) > 1 else []
    wanted = math.ceil((_DEVIATIONS * max(spreads, default=0.0) / _HALF_WIDTH) ** 2)
    enough = min(max(wanted, _USUAL_ROUNDS), _MOST_ROUNDS)
    return enough + enough % 2
