"""Bayesian optimisation of an application: a model of time for each kernel, and one model of the error.

The time of a run is a sum: the launches of each kernel, and the steps' own time. A kernel's time depends on its own
parameters and on the types of the buffers it is launched on, so one run is an observation for the model of every
kernel. For given types, the best values of a kernel's own parameters follow from its model alone. The error depends on
all types together.

A proposal has the types whose best tuning promises most: the expected improvement of the total time, times the
probability that the types are accurate enough.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from mptune.results.kernel_times import host_ms, kernel_times
from mptune.results.trial import Status, Trial
from mptune.space.parameters import PolicyParameter, PrecisionParameter, baseline_values, uniform_types
from mptune.space.search_space import SearchSpace
from mptune.strategies.base import Array, Codes
from mptune.strategies.model_based.acquisition import log_expected_improvement
from mptune.strategies.model_based.coordinates import features
from mptune.strategies.model_based.error_model import Signatures
from mptune.strategies.model_based.gaussian_process import LogNormalPrior, Posterior, fit, single_threaded
from mptune.strategies.model_based.strategy import ModelBasedStrategy

__all__ = ["ApplicationStrategy"]

#: Configurations drawn to learn which values of a kernel's own parameters go together.
_DRAWN: Final = 4_000
#: Tunings of a kernel that its model looks at.
_TUNINGS: Final = 300
#: Best tunings of a kernel whose neighbours the model looks at, too.
_ELITE: Final = 3
#: Runs with random tunings before the models take over: of the widest types and of the narrowest accurate uniform ones.
_DESIGN: Final = 4
#: Signatures drawn for each proposal, and rounds of search from the best one.
_SIGNATURES: Final = 200
_CLIMBS: Final = 4
#: Uniform types less likely than this to be accurate enough are not run before others.
_UNIFORM_PROBABILITY: Final = 0.2
#: Alternatives for a tuning that was run before.
_ALTERNATIVES: Final = 3


class _KernelModel:
    """A Gaussian process of the logarithm of a number: the time of one launch of a kernel, or its launches in one run.

    Args:
        space: the application's configurations.
        own: columns of the kernel's own parameters that change no numbers.
        seen: columns of the signature that its time depends on.
        drawn: value codes of valid configurations.
    """

    def __init__(self, space: SearchSpace, own: Sequence[int], seen: Sequence[int], drawn: Codes) -> None:
        self.own, self.seen = list(own), list(seen)
        self._columns = [*self.own, *self.seen]
        self._features = features(SearchSpace([space.parameters[column] for column in self._columns]))
        tunings = np.unique(drawn[:, self.own], axis=0)
        keep = np.random.default_rng(0).permutation(len(tunings))[:_TUNINGS]
        self._tunings = tunings[np.sort(keep)]
        self._codes: list[Codes] = []
        self._logs: list[float] = []
        self._prior = LogNormalPrior(self._features.count)
        self._hyperparameters, self._fitted_to = self._prior.centre, 0

    def observe(self, codes: Codes, number: float) -> None:
        """Learn the number in a configuration with these value codes, shape ``(d,)``; 0 says nothing."""
        if number > 0:
            self._codes.append(codes[self._columns])
            self._logs.append(math.log(number))

    def expected(self, codes: Codes) -> Array:
        """Return the number expected in configurations with these value codes ``(n, d)``, 0 before any was observed."""
        if not self._logs:
            return np.zeros(len(codes))
        return np.exp(self._predict(codes[:, self._columns], codes[:0, self._columns])[0])

    def best(self, signatures: Codes, valid: Codes, imagined: Codes) -> tuple[Codes, Array, Array]:
        """Return the most promising tunings for each signature, the best first.

        Args:
            signatures: value codes of configurations, shape ``(n, d)``; their own parameters do not matter.
            valid: further tunings to look at, shape ``(k, n_own)``.
            imagined: value codes of configurations under way, ``(m, d)``.

        Returns:
            Tunings ``(n, a, n_own)``, mean and deviation of the logarithm of the time of a launch ``(n, a)``.
        """
        tunings = np.unique(np.concatenate([self._tunings, valid]), axis=0)
        rows, inverse = np.unique(signatures[:, self.seen], axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        grid = np.concatenate([np.tile(tunings, (len(rows), 1)), np.repeat(rows, len(tunings), axis=0)], axis=1)
        mean, deviation = (each.reshape(len(rows), -1) for each in self._predict(grid, imagined[:, self._columns]))
        order = np.argsort(mean - deviation, axis=1, kind="stable")[:, :_ALTERNATIVES]
        chosen = np.take_along_axis(mean, order, axis=1), np.take_along_axis(deviation, order, axis=1)
        return tunings[order][inverse], chosen[0][inverse], chosen[1][inverse]

    def elite(self) -> Codes:
        """Return the tunings of the fastest launches observed, ``(k, n_own)``."""
        order = np.argsort(self._logs, kind="stable")
        rows = [tuple(self._codes[i][: len(self.own)].tolist()) for i in order]
        return np.array(list(dict.fromkeys(rows))[:_ELITE], dtype=np.int32).reshape(-1, len(self.own))

    def _predict(self, codes: Codes, imagined: Codes) -> tuple[Array, Array]:
        if not self._logs:
            return np.zeros(len(codes)), np.ones(len(codes))
        y = np.array(self._logs)
        middle, spread = float(y.mean()), max(float(y.std()), 1e-3) if len(y) > 1 else 0.5
        x, told = self._features.at(np.array(self._codes)), (y - middle) / spread
        if len(y) >= max(2, 1.25 * self._fitted_to):
            self._hyperparameters = fit(x, told, self._prior, [self._hyperparameters], 30)
            self._fitted_to = len(y)
        posterior = Posterior(self._hyperparameters, self._features.at(codes), x, told)
        for row in self._features.at(imagined):
            posterior.imagine(row)
        return posterior.mean * spread + middle, np.maximum(posterior.deviation * spread, 1e-9)


class ApplicationStrategy(ModelBasedStrategy):
    """Searches types and every kernel's own parameters together, by the time of each kernel in each run.

    Args:
        kernels: names of the kernels, whose own parameters are called ``KERNEL.PARAMETER``.
        is_relative: whether errors are differences from the application itself in its widest types.
    """

    name: ClassVar[str] = "bayesian"

    def __init__(self, *args: Any, kernels: Sequence[str], is_relative: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        space = self.space
        self._kernels = tuple(kernels)
        self._columns = [space.names.index(name) for name in self.signature]
        self._choices = [
            c
            for c in self._columns
            if "." not in space.names[c] and not isinstance(space.parameters[c], PrecisionParameter | PolicyParameter)
        ]
        if self.objective.threshold is not None and self.signature:
            self._signatures = Signatures(space, self.signature, self.objective, is_relative=is_relative)
        self._drawn = space.codes(space.sample(min(space.size, _DRAWN), self.rng))
        #: By kernel, names of the signature's parameters that it sees; unknown before a run has told.
        self._seen_by: dict[str, set[str]] = {}
        self._told: dict[int, Trial] = {}
        self._models: dict[str, _KernelModel] = {}
        self._counts: dict[str, _KernelModel] = {}
        self._designed = 0

    def relate(self, seen: Mapping[str, Collection[str]]) -> None:
        """Learn which parameters of the signature the time of each kernel depends on.

        Args:
            seen: names of the types of the buffers it is launched on, by kernel.
        """
        for kernel, names in seen.items():
            self._seen_by.setdefault(kernel, set()).update(names)
        self._models.clear()

    # -- tell ----------------------------------------------------------------------------------

    @single_threaded()
    def _learn(self, indices: list[int], trials: Sequence[Trial]) -> None:
        for index, trial in zip(indices, trials, strict=True):
            self._pending.pop(index, None)
            is_new = index not in self._told
            self._told[index] = trial
            if is_new and self._models:
                self._observe(index, trial)
        if self._signatures is not None:
            self._signatures.observe(self.space.codes(indices), trials)

    def _observe(self, index: int, trial: Trial) -> None:
        codes = self.space.codes([index])[0]
        for kernel, found in kernel_times(trial).items():
            if kernel in self._models:
                self._counts[kernel].observe(codes, found.launches)
                self._models[kernel].observe(codes, found.time_ms / max(found.launches, 1))

    # -- ask -----------------------------------------------------------------------------------

    def _next(self) -> int | None:
        for step in (self._next_widest, self._next_uniform, self._next_of_design, self._next_by_model):
            if (index := step()) is not None:
                return index
        return self._tuned_at_random(self._focus) if self._focus else self._random()

    def _next_widest(self) -> int | None:
        """Return a configuration in the widest types for each combination of the steps' choices, in the beginning."""
        fixed = {c: codes[:1] for c, codes in self._baseline().items()}
        tried = [row for row in self._codes([*self._told, *self._pending]) if all(row[c] in fixed[c] for c in fixed)]
        known = {tuple(row[self._choices]) for row in tried}
        combinations = np.unique(self._drawn[:, self._choices], axis=0) if self._choices else np.zeros((1, 0), np.int32)
        for chosen in combinations[:_DESIGN]:
            if tuple(chosen) not in known:
                return self._tuned_at_random({**fixed, **{c: [v] for c, v in zip(self._choices, chosen, strict=True)}})
        return None

    def _next_uniform(self) -> int | None:
        """Return a configuration with one type throughout that nobody has run, if it may be accurate enough."""
        if self._focus:
            return None
        start = self._best_codes()
        known = {tuple(row[self._columns]) for row in self._codes([*self._told, *self._pending])}
        for types in uniform_types(self.space.parameters).values():
            row = start.copy()
            for name, value in types.items():
                column = self.space.names.index(name)
                row[column] = self.space.parameters[column].values.index(value)
            if tuple(row[self._columns]) in known or self._probability(row[None, :])[0] < _UNIFORM_PROBABILITY:
                continue
            index = self._tuned_at_random({c: [int(row[c])] for c in self._columns})
            if index is not None:
                return index
        return None

    def _next_of_design(self) -> int | None:
        """Return random tunings of the best signature and of the widest types, which tell every model something."""
        if self._designed >= _DESIGN or len(self._told) > 3 * _DESIGN:
            return None
        self._designed += 1
        best = self._best_codes()
        fixed = {c: [int(best[c])] for c in self._columns}
        return self._tuned_at_random(fixed | self._baseline() if self._focus or self._designed % 2 else fixed)

    def _next_by_model(self) -> int | None:
        self._update()
        start = self._best_codes()
        rows = [start, *self._codes(self._feasible()[1 : 1 + _ELITE])]
        drawn = self._drawn[self.rng.permutation(len(self._drawn))[:_SIGNATURES]].copy()
        values: dict[int, float] = {}
        candidates = np.concatenate([np.array(rows), drawn, self._neighbours(start)])
        for _ in range(_CLIMBS):
            before = max(values.values(), default=-math.inf)
            values |= self._valued(candidates)
            if not values or max(values.values()) <= before:
                break
            best = max(values, key=values.__getitem__)
            candidates = self._neighbours(self.space.codes([best])[0])
        return max(values, key=values.__getitem__) if values else None

    def _valued(self, rows: Codes) -> dict[int, float]:
        """Return the log value of the best new tuning of each signature, by the index of the configuration."""
        rows = rows[self._in_focus(rows)]
        rows = rows[np.unique(rows[:, self._columns], axis=0, return_index=True)[1]]
        probabilities = self._probability(rows)
        rows, probabilities = rows[probabilities > 0], probabilities[probabilities > 0]
        if not len(rows):
            return {}
        totals = np.full(len(rows), self._host_ms())
        variances = np.zeros(len(rows))
        alternatives: list[tuple[Array, str, int]] = []
        tunings: dict[str, Codes] = {}
        for kernel, model in self._models.items():
            around = self._tunings_around(model)
            tunings[kernel], mean, deviation = model.best(rows, around, self._codes(list(self._pending)))
            times = np.exp(mean) * self._counts[kernel].expected(rows)[:, None]
            totals += times[:, 0]
            variances += (times[:, 0] * deviation[:, 0]) ** 2
            lower = times * np.exp(-deviation)
            alternatives += [(lower[:, a] - lower[:, 0], kernel, a) for a in range(1, times.shape[1])]
            rows[:, model.own] = tunings[kernel][:, 0]
        values = np.log(probabilities) + self._log_runs(rows)
        if feasible := self._feasible():
            deviations = np.sqrt(variances + (1e-3 * totals) ** 2)
            values += log_expected_improvement(totals, deviations, self._told[feasible[0]].time_ms)
        else:
            values -= 0.1 * np.log(totals)
        found: dict[int, float] = {}
        for at, row in enumerate(rows):
            changes = sorted((float(more[at]), kernel, a) for more, kernel, a in alternatives)
            for _, kernel, a in [(0.0, "", 0), *changes]:
                changed = row.copy()
                if kernel:
                    changed[self._models[kernel].own] = tunings[kernel][at, a]
                index = int(self.space.indices_of(changed[None, :])[0])
                if index >= 0 and index not in self._seen:
                    found[index] = float(values[at])
                    break
        return found

    # -- what is known -------------------------------------------------------------------------

    def _update(self) -> None:
        """Make the models of the kernels, of all that was told."""
        if self._models:
            return
        names = self.space.names
        types = {n for n in self.signature if "." not in n}
        chosen = {names[column] for column in self._choices}
        for kernel in self._kernels:
            prefix = f"{kernel}."
            seen = (self._seen_by.get(kernel, types) | chosen) & set(names)
            columns = [c for c, n in enumerate(names) if n in self.signature and (n in seen or n.startswith(prefix))]
            own = [c for c, n in enumerate(names) if n.startswith(prefix) and n not in self.signature]
            self._models[kernel] = _KernelModel(self.space, own, columns, self._drawn)
            self._counts[kernel] = _KernelModel(self.space, [], self._columns, self._drawn)
        for index, trial in self._told.items():
            self._observe(index, trial)

    def _host_ms(self) -> float:
        times = [host_ms(trial) for trial in self._told.values() if trial.is_valid]
        return float(np.median(times)) if times else 0.0

    def _probability(self, rows: Codes) -> Array:
        """Return how probable it is that configurations are accurate enough, ``(n,)``."""
        return np.ones(len(rows)) if self._signatures is None else np.exp(self._signatures.log_probability(rows))

    def _log_runs(self, rows: Codes) -> Array:
        """Return the log of the probability that configurations run, ``(n,)``: what failed may fail again.

        A failure is blamed on each kernel's parameters alike, except values with which another configuration has run.
        """
        total = np.zeros(len(rows))
        ran = self._codes([index for index, trial in self._told.items() if trial.is_valid])
        parts = [[*model.own, *model.seen] for model in self._models.values()]
        for failed in self._codes(
            [i for i, t in self._told.items() if not (t.is_valid or t.status is Status.NON_FINITE)]
        ):
            suspects = [p for p in parts if not len(ran) or not (ran[:, p] == failed[p]).all(axis=1).any()]
            if suspects:
                hits = sum((rows[:, p] == failed[p]).all(axis=1).astype(float) for p in suspects)
                total += np.log1p(-np.minimum(0.99, hits / len(suspects)))
        return total

    def _feasible(self) -> list[int]:
        """Return the feasible configurations in focus, the fastest first."""
        found = [index for index, trial in self._told.items() if trial.is_valid and self.objective.is_feasible(trial)]
        inside = self._in_focus(self._codes(found))
        return sorted(itertools.compress(found, inside), key=lambda index: self._told[index].time_ms)

    def _best_codes(self) -> Codes:
        """Return the value codes of the fastest feasible trial, or of some configuration in the widest types."""
        if feasible := self._feasible():
            return np.asarray(self._codes(feasible[:1])[0])
        row: Codes = self._drawn[0].copy()
        for column, codes in self._baseline().items():
            row[column] = codes[0]
        return row

    def _baseline(self) -> dict[int, list[int]]:
        """Return the codes of the widest types, by column."""
        if self._focus:
            return self._focus
        widest = baseline_values(self.space.parameters).items()
        names, parameters = self.space.names, self.space.parameters
        columns = {names.index(name): values[0] for name, values in widest}
        return {column: [parameters[column].values.index(value)] for column, value in columns.items()}

    def _codes(self, indices: Sequence[int]) -> Codes:
        return self.space.codes(np.array(indices, dtype=np.int64))

    # -- candidates ----------------------------------------------------------------------------

    def _neighbours(self, codes: Codes) -> Codes:
        """Return what differs from a configuration in one or two values of the signature, ``(n, d)``."""
        free = [c for c in self._columns if c not in self._focus]
        changes = [(c, v) for c in free for v in range(len(self.space.parameters[c].values)) if v != codes[c]]
        pairs = [(a, b) for a, b in itertools.combinations(changes, 2) if a[0] != b[0]]
        some = [pairs[i] for i in self.rng.permutation(len(pairs))[:_SIGNATURES]]
        rows = np.repeat(codes[None, :], 1 + len(changes) + len(some), axis=0)
        for row, change in zip(rows[1:], [*((c,) for c in changes), *some], strict=True):
            for column, value in change:
                row[column] = value
        return rows

    def _tunings_around(self, model: _KernelModel) -> Codes:
        """Return the fastest tunings of a kernel and their valid neighbours, shape ``(k, n)``."""
        elite = model.elite()
        if not len(elite) or not model.own:
            return elite
        rows = [elite]
        for place, column in enumerate(model.own):
            values = np.arange(len(self.space.parameters[column].values))
            changed = np.repeat(elite, len(values), axis=0)
            changed[:, place] = np.tile(values, len(elite))
            rows.append(changed)
        found = np.unique(np.concatenate(rows), axis=0)
        whole = np.repeat(self._best_codes()[None, :], len(found), axis=0)
        whole[:, model.own] = found
        return found[self.space.indices_of(whole) >= 0]

    def _tuned_at_random(self, codes: Mapping[int, Sequence[int]]) -> int | None:
        """Return a random configuration not taken with some value codes, by column; None if there seems to be none."""
        rows = self._drawn[self.rng.permutation(len(self._drawn))].copy()
        for column, allowed in codes.items():
            if not len(allowed):
                return None
            rows[:, column] = self.rng.choice(np.asarray(allowed), len(rows))
        found = self.space.indices_of(rows)
        return next((i for i in found.tolist() if i >= 0 and i not in self._seen), None)
