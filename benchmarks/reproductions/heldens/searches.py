"""How well searches do: Figs. 4, 5 and 9 (Heldens 2026, Sec. V-C, V-D and V-F), replayed on recorded spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench import percent
from benchmarks.kernels import LEVELS
from benchmarks.reproductions.heldens.replays import Searcher
from benchmarks.reproductions.heldens.spaces import KERNELS, cells, sampled
from benchmarks.reproductions.heldens.strategies import DEFAULT, RANDOM, STRATEGIES
from benchmarks.reproductions.item import Cell as Shown
from benchmarks.reproductions.item import Given, Outcome, Skipped, Table
from benchmarks.reproductions.spread import FEWEST, spread
from benchmarks.search.cells import Job, Results
from benchmarks.search.peers import PEERS
from benchmarks.search.precision_cells import BUDGET, Cell
from mptune.errors import MptuneError
from mptune.results.objective import Objective

__all__ = ["ELSEWHERE", "Runs", "h_f4", "h_f5", "h_f9"]

Floats = NDArray[np.float64]

#: Evaluations of a run in quick mode: two generations of the largest population.
_QUICK_BUDGET: Final = 100
#: The share of a recording that a run may try: of the paper's spaces 250 evaluations are 8% at most.
_MOST_TRIED: Final = 0.25
#: With fewer evaluations a search is hardly one: the initial sample of the paper's BO has 20.
_LEAST_BUDGET: Final = 25
#: A share of the optimum that differs by less is on par.
_PAR: Final = 0.005
#: So is one of fewer standard errors.
_DEVIATIONS: Final = 2
_TOO_FEW: Final = "open (too few runs)"
#: Why strategies stand elsewhere than in Figs. 5, 7 and 8.
ELSEWHERE: Final = (
    "BH and GA stand elsewhere than in the paper: basin hopping climbs among neighbours here, where the paper's "
    "descends along gradients that times of configurations do not have, and the genetic algorithm is not Kernel "
    "Tuner's, whose own is replayed in h-f9."
)


# -- runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Runs:
    """Replays of some searchers on recorded kernels under thresholds.

    Attributes:
        cells: those where something recorded is feasible.
        results: what the replays gave.
        runs: of each searcher, by its name.
        budgets: evaluations of a run, by the name of the cell.
    """

    cells: tuple[Cell, ...]
    results: Results
    runs: Mapping[str, int]
    budgets: Mapping[str, int]

    @classmethod
    def of(cls, given: Given, searchers: Sequence[Searcher], kernel: str = "") -> Runs:
        """Replay searchers, those that take minutes for a run fewer times.

        Args:
            given: what the command line says.
            searchers: what searches.
            kernel: the only one to search, where it is recorded; all where empty.

        Raises:
            Skipped: nothing is recorded.
            MptuneError: a replay failed.
        """
        chosen = replayed(given)
        if any(cell.kernel == kernel for cell in chosen):
            chosen = [cell for cell in chosen if cell.kernel == kernel]
        budgets = {cell.name: budget_of(given, cell) for cell in chosen}
        runs = {each.name: given.runs_of(is_slow=_is_slow(each)) for each in searchers}
        jobs = [each.job(cell, runs[each.name], budgets[cell.name]) for each in searchers for cell in chosen]
        return cls(tuple(chosen), finished(given, jobs), runs, budgets)

    @property
    def compared(self) -> tuple[Cell, ...]:
        """The cells of the paper's kernels, over which means are taken."""
        return tuple(cell for cell in self.cells if is_of_paper(cell))

    def shares(self, cell: Cell, name: str) -> Floats:
        """Return each run's best feasible speed as a share of the best recorded, 0 for nothing feasible."""
        return shares_of(self.results, cell, name)

    def speedups(self, cell: Cell, name: str) -> Floats:
        """Return each run's speedup over the best in fp64, 0 for nothing feasible (as in the paper's Fig. 5)."""
        return self.shares(cell, name) * optimal_speedup(cell)

    def beaten(self, cell: Cell, name: str, other: str) -> Floats:
        """Return the share of another searcher's runs that each run of one is faster than, ties half."""
        own, others = self.shares(cell, name)[:, None], self.shares(cell, other)[None, :]
        return np.asarray(((own > others) + 0.5 * (own == others)).mean(axis=1))

    def wins(self, cell: Cell, names: Sequence[str]) -> Floats:
        """Return the probability that one run of the row is faster than one of the column, ties half."""
        return np.array([[self.beaten(cell, one, other).mean() for other in names] for one in names])

    def said(self) -> str:
        """Say how many runs there are of what, and of how many evaluations."""
        counts = sorted(set(self.runs.values()))
        few = ", ".join(f"{name} {count}" for name, count in self.runs.items() if count < counts[-1])
        return (
            f"{counts[-1]} runs, with the seeds from 0 on, of each{f' ({few})' if few else ''}; 100 in the paper. "
            + told_budgets(self.cells, self.budgets)
        )


def _is_slow(searcher: Searcher) -> bool:
    return bool(searcher.peer) and PEERS[searcher.peer].is_slow


def is_of_paper(cell: Cell) -> bool:
    """Whether a cell's kernel is one of the paper's."""
    return cell.kernel in KERNELS


def budget_of(given: Given, cell: Cell) -> int:
    """Return the evaluations of a run: the paper's, or of a small recording the share of it that may be tried."""
    return min(_QUICK_BUDGET if given.quick else BUDGET, int(_MOST_TRIED * cell.recorded.space.size))


def told_budgets(cells: Sequence[Cell], budgets: Mapping[str, int]) -> str:
    """Say how many evaluations of how many configurations there are of each kernel, and which is not the paper's."""
    parts = {
        title_of(cell): f"{budgets[cell.name]} of {cell.recorded.space.size:,} of {title_of(cell)}" for cell in cells
    }
    extra = dict.fromkeys(cell.kernel for cell in cells if not is_of_paper(cell))
    is_quick = any(budgets[c.name] < min(BUDGET, int(_MOST_TRIED * c.recorded.space.size)) for c in cells)
    most = f"At most {_QUICK_BUDGET}, where the paper has {BUDGET}" if is_quick else f"The paper's {BUDGET}"
    return (
        f"Evaluations of unique configurations: {', '.join(parts.values())}. {most}, where that is at "
        f"most {_MOST_TRIED:.0%} of what is recorded, else that share of it: of a recording that is tried as a whole "
        "every search finds the best."
        + (f" Not one of the paper's kernels, and in no mean: {', '.join(extra)}." if extra else "")
    )


def replayed(given: Given) -> list[Cell]:
    """Return the cells searches are replayed on: those where something is feasible; one of them in quick mode."""
    feasible = [cell for cell in cells(given) if cell.optimum is not None and budget_of(given, cell) >= _LEAST_BUDGET]
    if not any(map(is_of_paper, feasible)):
        raise Skipped(
            f"no recording of the paper's kernels has {_LEAST_BUDGET / _MOST_TRIED:,.0f} configurations of which some "
            "meet its threshold"
        )
    return [next((cell for cell in feasible if cell.level == "medium"), feasible[0])] if given.quick else feasible


def finished(given: Given, jobs: Sequence[Job]) -> Results:
    """Run jobs; all must end well.

    Raises:
        MptuneError: one did not.
    """
    results = given.run(jobs)
    for (space, tool), reason in results.failures.items():
        raise MptuneError(f"{tool} on {space}: {reason}")
    return results


def shares_of(results: Results, cell: Cell, name: str) -> Floats:
    """Return the best feasible speed of each run at its end as a share of the best recorded, 0 for nothing feasible."""
    assert cell.optimum is not None
    ends = (result["best"][-1] if result["best"] else None for result in results.of(cell.name, name).values())
    return np.array([0.0 if end is None else cell.optimum / end for end in ends])


def optimal_speedup(cell: Cell) -> float:
    """Return the speedup of the best feasible configuration over the best in fp64."""
    assert cell.optimum is not None
    return (cell.objective.baseline or np.nan) / cell.optimum


def title_of(cell: Cell) -> str:
    """Return the paper's name of a cell's kernel, or the own one of a kernel it does not have."""
    return KERNELS.get(cell.kernel, f"{cell.kernel} (not the paper's)")


def speeds(values: Floats) -> str:
    """Say the median and the quartiles of speedups."""
    return spread(values, lambda value: f"{value:.2f}")


def means(runs: Runs, name: str, level: str | None = None) -> float:
    """Return the mean over runs, then over the cells of the paper's kernels, of the share of the optimum."""
    return float(np.mean([runs.shares(cell, name).mean() for cell in runs.compared if level in (None, cell.level)]))


def levels_of(runs: Runs) -> list[str]:
    """Return the levels of accuracy that the paper's kernels have cells of."""
    return [level for level in LEVELS if any(cell.level == level for cell in runs.compared)]


# -- Fig. 4: penalties -----------------------------------------------------------------------------

#: Beta of 2.3 is what the paper proposes where decay is not strict enough (Sec. V-E).
_PENALTIES: Final = (
    Searcher("GA, hard", "genetic", penalty="hard"),
    Searcher("GA, linear", "genetic", penalty="linear"),
    STRATEGIES["GA"],
    Searcher("GA, decay, beta 2.3", "genetic", beta=2.3),
)
_PENALTY_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {"GA, hard": "hard", "GA, linear": "linear", "GA": "decay", "GA, decay, beta 2.3": "decay, beta 2.3"}
)


def h_f4(given: Given) -> Outcome:
    """Return what the genetic algorithm finds under each penalty."""
    runs = Runs.of(given, _PENALTIES)
    verdict = {title: _against(runs, title, "GA", "GA, linear") for title in dict.fromkeys(map(title_of, runs.cells))}
    compared = dict.fromkeys(map(title_of, runs.compared))
    words = ("better", "on par", "worse", _TOO_FEW)
    counts = {word: count for word in words if (count := sum(verdict[title] == word for title in compared))}
    hard = {
        penalty: [title for title in compared if _against(runs, title, "GA, hard", name) == "better"]
        for name, penalty in (("GA, linear", "linear"), ("GA", "decay"))
    }
    hard_said = " and ".join(
        f"than {penalty} on {len(titles)}" + (f" ({', '.join(titles)})" if titles else "")
        for penalty, titles in hard.items()
    )
    solved = sum(
        all(np.median(runs.shares(cell, name)) >= 1 - 1e-9 for name in _PENALTY_NAMES) for cell in runs.compared
    )
    said = ", ".join(f"{word} on {count}" for word, count in counts.items())
    penalties = [each for each in _PENALTIES if each.penalty != "hard"]
    rivals = {(cell.name, each.name): _rivals(cell, each) for cell in runs.compared for each in penalties}
    led_away: tuple[tuple[Shown, ...], ...] = tuple(
        (title_of(cell), cell.level, *(rivals[cell.name, each.name] for each in penalties))
        for cell in runs.compared
        if any(rivals[cell.name, each.name] for each in penalties)
    )
    rivals_table = Table(
        "Inaccurate configurations that score more than the best accurate one, where there are any",
        ("kernel", "accuracy", *(_PENALTY_NAMES[each.name] for each in penalties)),
        led_away,
    )
    misled = ", ".join(
        f"{_PENALTY_NAMES[each.name]} for {sum(rivals[cell.name, each.name] > 0 for cell in runs.compared)}"
        for each in penalties
    )
    one_does = (
        f"One does under {misled} of {len(runs.compared)} thresholds: there the search is led away, and most where "
        "little accuracy is lost for much speed."
    )
    return Outcome(
        "The paper: hard is never better than the others, decay is better than linear on 6 of 9 kernels and on par on "
        f"3. Here, of {len(compared)} kernels, hard is better {hard_said}; compared with linear, decay is {said}.",
        (
            Table(
                "Mean share of the optimum over the levels, by kernel",
                ("kernel", *_PENALTY_NAMES.values(), "decay against linear"),
                tuple(
                    (title, *(percent(means_of(runs, title, name), 1) for name in _PENALTY_NAMES), verdict[title])
                    for title in verdict
                ),
            ),
            _speedups(runs, _PENALTY_NAMES),
            *((rivals_table,) if led_away else ()),
        ),
        (
            runs.said(),
            "A penalty leads a search to the best accurate configuration only if no inaccurate one scores more. "
            + (one_does if led_away else "None does here."),
            "The genetic algorithm with its defaults, alpha and beta 1 but where 2.3 is said, which the paper proposes "
            "for LavaMD at high accuracy. The paper shows one threshold for each kernel and does not say which; "
            f"here: {', '.join(levels_of(runs))}.",
            f"Better and worse: by more than {_PAR:.1%} of the optimum and than {_DEVIATIONS} standard errors of the "
            f"difference over these runs; on par: these runs do not tell them apart. Under {solved} of "
            f"{len(runs.compared)} thresholds the median run finds the optimum whatever the penalty.",
            sampled(runs.cells),
        ),
    )


def means_of(runs: Runs, title: str, name: str) -> float:
    """Return the mean over runs, then over levels, of the share of the optimum on a kernel."""
    return float(np.mean([runs.shares(cell, name).mean() for cell in runs.cells if title_of(cell) == title]))


def _rivals(cell: Cell, searcher: Searcher) -> int:
    """Return how many inaccurate configurations score more under a searcher's penalty than every accurate one."""
    goal = Objective(threshold=cell.threshold, penalty=searcher.penalty, beta=searcher.beta)
    goal = cell.recorded.derive(objective=goal).objective
    trials = cell.recorded.trials
    scores, is_accurate = goal.scores(trials), np.array(list(map(goal.is_feasible, trials)))
    return int(np.sum(scores[~is_accurate] > np.max(scores[is_accurate])))


def _against(runs: Runs, title: str, name: str, other: str) -> str:
    """Say whether a searcher is better than another on a kernel, by more than chance and more than matters."""
    cells = [cell for cell in runs.cells if title_of(cell) == title]
    shares = [[runs.shares(cell, each) for each in (name, other)] for cell in cells]
    gain = float(np.mean([ours.mean() - theirs.mean() for ours, theirs in shares]))
    if any(len(values) < FEWEST for pair in shares for values in pair):
        return _TOO_FEW
    variance = sum(values.var(ddof=1) / len(values) for pair in shares for values in pair)
    least = max(_PAR, _DEVIATIONS * float(np.sqrt(variance)) / len(cells))
    return "better" if gain > least else "worse" if gain < -least else "on par"


def _speedups(runs: Runs, names: Mapping[str, str]) -> Table:
    """Return the median speedup and its quartiles of each searcher on each cell."""
    rows: tuple[tuple[Shown, ...], ...] = tuple(
        (
            title_of(cell),
            cell.level,
            f"{optimal_speedup(cell):.2f}",
            runs.budgets[cell.name],
            *(speeds(runs.speedups(cell, name)) for name in names),
        )
        for cell in runs.cells
    )
    columns = ("kernel", "accuracy", "optimum", "evaluations", *names.values())
    return Table("Speedup over the best in fp64, median and quartiles over runs; 0: nothing feasible", columns, rows)


# -- Fig. 5: strategies ----------------------------------------------------------------------------

#: Mean share of the optimum (Sec. V-G).
_UNIFIED: Final[Mapping[str, float]] = MappingProxyType({"BO": 0.96, "GA": 0.94})


def h_f5(given: Given) -> Outcome:
    """Return what each strategy finds under each threshold."""
    runs = Runs.of(given, list(STRATEGIES.values()))
    levels = levels_of(runs)
    by_mean = sorted(STRATEGIES.values(), key=lambda each: -means(runs, each.name))
    rows = tuple(
        (
            each.name,
            each.strategy,
            percent(_UNIFIED[each.name], 0) if each.name in _UNIFIED else None,
            percent(means(runs, each.name), 1),
            *(percent(means(runs, each.name, level), 1) for level in levels),
            sum(float(np.median(runs.shares(cell, each.name))) >= 1 - 1e-9 for cell in runs.compared),
        )
        for each in by_mean
    )
    columns = ("strategy", "here called", "share of the optimum: paper", "here", *levels, "cells solved")
    names = {name: name for name in STRATEGIES}
    first = ", ".join(f"{each.name} {percent(means(runs, each.name), 1)}" for each in by_mean if each is not DEFAULT)
    titles = list(dict.fromkeys(map(title_of, runs.compared)))
    by_kernel = tuple(
        (each.name, *(percent(means_of(runs, title, each.name), 1) for title in titles)) for each in by_mean
    )
    return Outcome(
        "The paper: BO is best on most kernels, GA on K-Means and Newton-Raphson, MLS on InvK and Coulombic (Sec. "
        "V-E); on average BO has 96% of the optimum and GA 94% (Sec. V-G). Here, in the order of "
        f"their mean: {first}; the default bayesian reaches {percent(means(runs, DEFAULT.name), 1)}.",
        (
            Table(
                "Mean share of the optimum over the paper's kernels; cells solved: those where the median run finds "
                f"the optimum, of {len(runs.compared)}",
                columns,
                rows,
            ),
            Table("Mean share of the optimum over the levels, by kernel", ("strategy", *titles), by_kernel),
            _speedups(runs, names),
        ),
        (
            runs.said(),
            ELSEWHERE,
            "Under the decay penalty, alpha and beta 1, as in the paper; settings are the paper's where they are known "
            "here. The paper also limits a run to 15 minutes.",
            "The paper's shares are of its A100, over nine kernels; Fig. 5 has numbers in its graph alone.",
            sampled(runs.cells),
        ),
    )


# -- Fig. 9: other frameworks ----------------------------------------------------------------------

_FRAMEWORKS: Final = (
    DEFAULT,
    STRATEGIES["BO"],
    STRATEGIES["GA"],
    Searcher("Kernel Tuner GA", peer="Kernel Tuner genetic_algorithm"),
    Searcher("Kernel Tuner BO", peer="Kernel Tuner bayes_opt"),
    Searcher("pyATF", peer="pyATF"),
    Searcher("ytopt's surrogate", peer="scikit-optimize"),
    RANDOM,
)


def h_f9(given: Given) -> Outcome:
    """Return what the searches of other frameworks find under thresholds."""
    absent = {each.name: PEERS[each.peer].install for each in _FRAMEWORKS if not _is_installed(each)}
    installed = [each for each in _FRAMEWORKS if each.name not in absent]
    runs = Runs.of(given, installed)
    names = [each.name for each in installed]
    levels = levels_of(runs)
    order = sorted(names, key=lambda name: -means(runs, name))
    rows: tuple[tuple[Shown, ...], ...] = tuple(
        (
            name,
            percent(means(runs, name), 1),
            *(percent(means(runs, name, level), 1) for level in levels),
            percent(float(np.mean([runs.beaten(cell, name, RANDOM.name).mean() for cell in runs.compared])), 1),
            runs.runs[name],
        )
        for name in order
    )
    ranking = ", ".join(f"{name} {percent(means(runs, name), 1)}" for name in order)
    return Outcome(
        "The paper: its strategies outperform those of pyATF and ytopt. Mean share of the optimum here: "
        + ranking
        + ".",
        (
            Table(
                "Mean share of the optimum over the paper's kernels, all and by level, and how often a run beats one "
                "of random sampling",
                ("search", "all", *levels, "beats random", "runs"),
                rows,
            ),
            _speedups(runs, {name: name for name in names}),
        ),
        (
            runs.said(),
            "All are given the same objective: speedup, under the decay penalty where the error is too large. Those "
            "that minimise a time are told the time in fp64 over the score.",
            "Set up as by `python benchmarks/search_quality.py`: pyATF with its default technique; ytopt by "
            "scikit-optimize's random forest and lower confidence bound, which is what it wraps (the paper takes its "
            "fork of it); Kernel Tuner's own GA and BO with its defaults, beside ours of the same names.",
            "The figure's numbers are in its graph alone, of which the text states the conclusion.",
            *(f"{name} is missing: {why}." for name, why in absent.items()),
            sampled(runs.cells),
        ),
    )


def _is_installed(searcher: Searcher) -> bool:
    return not searcher.peer or PEERS[searcher.peer].is_installed
