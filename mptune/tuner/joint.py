"""The search of an application: models of time for each kernel, one model of the error, and the best of both together.

The time of a run is the sum over its launches, and that of a launch depends on its kernel's own parameters and the
types it sees. So times are learned from launches alone, with the data they have within the application. The error
depends on all types together and takes a run of the application, which serves every setting of the other parameters.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from mptune.capturing import CapturedLaunch, in_context
from mptune.errors import EmptySpaceError
from mptune.evaluators.device import DeviceEvaluator
from mptune.kernel import Application, Kernel
from mptune.kernel.application import free
from mptune.kernel.limits import device_constraints
from mptune.objective import Objective
from mptune.policy import errors_of
from mptune.precision import PRECISIONS
from mptune.results import Trial
from mptune.space.configuration import Configuration, Value
from mptune.space.parameters import PrecisionParameter, baseline_values
from mptune.space.search_space import SearchSpace
from mptune.stepping import Launched
from mptune.store import LaunchInfo
from mptune.strategies.model_based.branching import Term, ascending
from mptune.strategies.model_based.error_model import Signatures
from mptune.strategies.model_based.kernel_times import KernelTimes

__all__ = ["JointSearch"]

#: Of the evaluations, at most so many are runs of the application while kernels still promise something.
_RUNS_SHARE: Final = 0.3
#: Configurations of a kernel that are evaluated before its model says which.
_DESIGN: Final = 8
#: Kernel configurations that are evaluated at a time, so that compilers run ahead.
_BATCH: Final = 4
#: Combinations of types that are looked at, the fastest first.
_LOOKED_AT: Final = 2000
#: A combination less likely than this to be accurate enough is not run.
_LEAST_PROBABILITY: Final = 0.05
#: Every so many batches go to the types of the baseline.
_FOR_BASELINE: Final = 3
#: What promises less than this share of the time is not worth an evaluation.
_WORTHWHILE: Final = 0.002


@dataclass(frozen=True, slots=True)
class _Measured:
    """A kernel at some sizes, with data it has within the application: what evaluates it, and what its times are."""

    label: str
    kernel: Kernel
    evaluator: DeviceEvaluator
    times: KernelTimes


@dataclass(frozen=True, slots=True)
class _Launches:
    """Launches that differ at most in their types: one kernel, its buffers and sizes.

    Attributes:
        measured: the kernel.
        sources: by each parameter in the kernel's signature, where its value comes from: parameters of the application,
            or fixed precisions; several where it is the type of several arguments.
        counts: how often it is launched in a run, by the choices of the steps.
    """

    measured: _Measured
    sources: Mapping[str, tuple[str, ...]]
    counts: dict[tuple[Value, ...], int] = field(default_factory=dict)


class JointSearch:
    """Searches an application's types and its kernels' parameters together.

    Args:
        application: the application.
        space: its configurations.
        objective: says what is accurate enough.
        evaluator: evaluates the application.
        kernel_evaluator: makes what evaluates a kernel alone.
        stored: returns the trials of a kernel alone that there are from before, by the label of the launch
            (:attr:`~mptune.store.LaunchInfo.label`) and what tells the key of a configuration.
        keep: told each trial of a kernel alone, with the label, as it arrives.
        folder: for the data of launches.
        seed: of whatever is random.
        warn: told what a user should know.
    """

    def __init__(
        self,
        application: Application,
        space: SearchSpace,
        objective: Objective,
        evaluator: DeviceEvaluator,
        kernel_evaluator: Callable[[Kernel], DeviceEvaluator],
        stored: Callable[[str, Callable[[Configuration], str]], Sequence[Trial]],
        keep: Callable[[str, Trial], None],
        folder: Path,
        seed: int,
        warn: Callable[[str], None],
    ) -> None:
        self._application = application
        self._space = space
        self._objective = objective
        self._evaluator = evaluator
        self._kernel_evaluator = kernel_evaluator
        self._stored = stored
        self._keep = keep
        self._folder = folder
        self._seed = seed
        self._warn = warn
        self._stack = contextlib.ExitStack()
        self._measured: dict[tuple[str, object], _Measured] = {}
        self._launches: dict[Launched, _Launches] = {}
        self._choices = [p for p in application.shared if not isinstance(p, PrecisionParameter)]
        self._names = application.signature_names
        self._values = [space.parameter(name).values for name in self._names]
        has_limits = objective.threshold is not None
        self._signatures = Signatures(space, self._names, objective) if has_limits and self._names else None
        #: Runs of the application, by signature.
        self._runs: dict[tuple[Value, ...], Trial] = {}
        self._asked: set[Configuration] = set()
        self._batches = 0

    def close(self) -> None:
        """End the workers that evaluate kernels."""
        self._stack.close()

    # -- learning --------------------------------------------------------------------------------

    def first(self) -> list[Configuration]:
        """Return configurations in the widest types, one for each combination of the steps' choices."""
        baseline = self._space.restrict(baseline_values(self._space.parameters))
        found = []
        for values in itertools.product(*(p.values for p in self._choices)):
            with contextlib.suppress(EmptySpaceError):
                space = baseline.restrict({p.name: (value,) for p, value in zip(self._choices, values, strict=True)})
                found.append(space.configuration(space.size // 2))
        return found

    def tell(self, trials: Iterable[Trial]) -> None:
        """Learn from runs of the application."""
        for trial in trials:
            index = self._space.index(trial.configuration)
            assert index is not None
            if self._signatures is not None:
                self._signatures.observe(self._space.codes([index]), [trial])
            if trial.is_valid:
                self._runs[self._application.signature_of(trial.configuration)] = trial
            self._asked.add(trial.configuration)

    def look(self, configuration: Configuration) -> None:
        """Learn what the application launches in a configuration that runs, in its widest types."""
        for launch in self._evaluator.capture(configuration, self._folder):
            if launch.launched not in self._launches:
                self._launches[launch.launched] = self._made(launch)
            self._launches[launch.launched].counts[self._chosen(configuration)] = launch.count

    def _chosen(self, configuration: Mapping[str, Value]) -> tuple[Value, ...]:
        return tuple(configuration[p.name] for p in self._choices)

    @property
    def launches(self) -> tuple[LaunchInfo, ...]:
        """What is known of the application's launches."""
        return tuple(_described(launched, launches.sources) for launched, launches in self._launches.items())

    @property
    def _kernel_evaluations(self) -> int:
        return sum(measured.times.count for measured in self._measured.values())

    def _made(self, launch: CapturedLaunch) -> _Launches:
        launched = launch.launched
        key = (launched.kernel, launched.sizes)
        if key not in self._measured:
            kernel = in_context(self._application, launch)
            if launch.not_finite:
                self._warn(
                    f"in a launch of {launched.kernel}, {', '.join(launch.not_finite)} had elements that are NaN, "
                    "infinite or never written: other values stand for them where the kernel is timed alone"
                )
            evaluator = self._stack.enter_context(self._kernel_evaluator(kernel))
            limits = device_constraints(kernel, evaluator.start().constraints)
            own = {p.name: self._space.parameter(f"{kernel.name}.{p.name}").values for p in free(kernel)}
            space = kernel.search_space(kernel.resolve_sizes(), limits).restrict(own)
            times = KernelTimes(space, self._seed)
            label = _described(launched, {}).label
            times.tell(self._stored(label, evaluator.key_of))
            self._measured[key] = _Measured(label, kernel, evaluator, times)
        kernel = self._measured[key].kernel
        buffers = {argument.name: argument for argument in self._application.arguments}
        passed = dict(launched.buffers)
        sources: dict[str, tuple[str, ...]] = {}
        for name in kernel.signature_names:
            typed_by_it = [a.name for a in kernel.arguments if a.precision == name and a.name in passed]
            of_buffers = [str(buffers[passed[argument]].precision) for argument in typed_by_it]
            sources[name] = tuple(dict.fromkeys(of_buffers)) or (f"{kernel.name}.{name}",)
        return _Launches(self._measured[key], sources)

    def _types_in(self, measured: _Measured) -> dict[str, set[Value]]:
        """Return the types that a kernel can be launched with, by parameter."""
        found: dict[str, set[Value]] = {}
        for launches in self._launches.values():
            if launches.measured is measured:
                for name, sources in launches.sources.items():
                    values = [
                        self._space.parameter(source).values if source in self._space.names else (source,)
                        for source in sources
                    ]
                    found.setdefault(name, set()).update(set(values[0]).intersection(*values[1:]))
        return found

    def begin(self, left: Callable[[], int]) -> None:
        """Evaluate configurations spread over the space of each kernel.

        Args:
            left: how many more evaluations there may be; half of these are made at most, but two for each kernel.
        """
        each = max(2, min(_DESIGN, left() // 2 // max(1, len(self._measured))))
        for measured in self._measured.values():
            # What an earlier session measured was spread, too.
            missing = min(each - measured.times.count, left())
            if missing > 0:
                self._evaluate(measured, measured.times.design(missing, self._types_in(measured)))

    def _evaluate(self, measured: _Measured, configurations: Sequence[Configuration]) -> None:
        for trial in measured.evaluator.evaluate(configurations):
            found = _timed(trial)
            measured.times.tell([found])
            self._keep(measured.label, found)

    # -- times ----------------------------------------------------------------------------------

    def _terms(self) -> list[Term]:
        """Return the time of all launches of each kind in a run, by the signature's codes."""
        terms = []
        for launches in self._launches.values():
            times = launches.measured.times
            table, offered = times.least(list(launches.sources)), _offered(launches)
            used = {p.name for p in self._choices}.union(*launches.sources.values())
            columns = tuple(column for column, name in enumerate(self._names) if name in used)
            totals = np.full([len(self._values[column]) for column in columns], math.inf)
            for codes in np.ndindex(totals.shape):
                values = {self._names[c]: self._values[c][code] for c, code in zip(columns, codes, strict=True)}
                count = launches.counts.get(self._chosen(values), 0)
                place = _place(launches.sources.values(), offered, values)
                totals[codes] = 0.0 if not count else math.inf if place is None else count * table[place]
            terms.append(Term(columns, totals))
        return terms

    def _probabilities(self, combinations: Sequence[tuple[int, ...]]) -> list[float]:
        """Return how probable it is that each signature, given by its codes, is accurate enough."""
        if self._signatures is None or not combinations:
            return [1.0] * len(combinations)
        codes = np.zeros((len(combinations), len(self._space.names)), dtype=np.int32)
        codes[:, [self._space.names.index(name) for name in self._names]] = combinations
        return [math.exp(log) for log in self._signatures.log_probability(codes)]

    def _codes(self, values: Iterable[Value]) -> tuple[int, ...]:
        return tuple(known.index(value) for known, value in zip(self._values, values, strict=True))

    def _signature(self, codes: Iterable[int]) -> dict[str, Value]:
        return {name: values[code] for name, values, code in zip(self._names, self._values, codes, strict=True)}

    def _accurate(self, terms: Sequence[Term]) -> list[tuple[float, tuple[int, ...]]]:
        """Return the signatures that are known to be accurate, by codes, with predicted times; the fastest first."""
        feasible = [self._codes(known) for known, trial in self._runs.items() if self._objective.is_feasible(trial)]
        return sorted((_total(terms, codes), codes) for codes in feasible)

    def _near(self, codes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yield what differs from a signature in one or two values, and what has one type throughout."""
        changes = [(at, code) for at, values in enumerate(self._values) for code in range(len(values))]
        changes = [change for change in changes if codes[change[0]] != change[1]]
        for chosen in itertools.chain(((change,) for change in changes), itertools.combinations(changes, 2)):
            by_place = dict(chosen)
            yield tuple(by_place.get(at, code) for at, code in enumerate(codes))
        for name in PRECISIONS:
            pairs = zip(self._values, codes, strict=True)
            yield tuple(values.index(name) if name in values else code for values, code in pairs)

    # -- what to do next -------------------------------------------------------------------------

    def next(self, left: Callable[[], int]) -> Configuration | None:
        """Evaluate kernels until a run of the application promises more, and return its configuration.

        Args:
            left: how many more evaluations there may be.

        Returns:
            None when no evaluation is left, or none is worthwhile.
        """
        while left() > 0:
            leader, total_ms, candidate = self._leader()
            runs = len(self._asked)
            if candidate is not None and (leader is None or runs <= _RUNS_SHARE * (runs + self._kernel_evaluations)):
                found = self._assembled(candidate)
                if found is not None:
                    return found
            of_winner = leader or candidate or self._first_choices()
            turns = [of_winner, {**of_winner, **self._widest}]
            self._batches += 1
            if self._batches % _FOR_BASELINE == 0:
                turns.reverse()
            if not any(self._measure(types, total_ms, left()) for types in turns):
                return self._assembled(candidate) if candidate is not None else None
        return None

    @property
    def _widest(self) -> dict[str, Value]:
        return {name: values[0] for name, values in baseline_values(self._space.parameters).items()}

    def _first_choices(self) -> dict[str, Value]:
        return {name: values[0] for name, values in zip(self._names, self._values, strict=True)}

    def _leader(self) -> tuple[dict[str, Value] | None, float, dict[str, Value] | None]:
        """Return the fastest signature known to be accurate, its time, and of the others the one most worth a run.

        The fastest of all are looked at, and those near the leader: of very many, the fastest are all too narrow.
        """
        terms = self._terms()
        accurate = self._accurate(terms)
        best, leader = accurate[0] if accurate else (math.inf, None)
        fastest = itertools.islice(ascending([len(values) for values in self._values], terms), _LOOKED_AT)
        totals = {codes: total for total, codes in itertools.takewhile(lambda entry: entry[0] < best, fastest)}
        widest = self._codes((self._first_choices() | self._widest)[name] for name in self._names)
        for codes in self._near(leader or widest):
            totals.setdefault(codes, _total(terms, codes))
        run = {self._codes(known) for known in self._runs}
        looked_at = [codes for codes, total in totals.items() if total < best and codes not in run]
        likely = [
            (totals[codes], probability, codes)
            for codes, probability in zip(looked_at, self._probabilities(looked_at), strict=True)
            if probability >= _LEAST_PROBABILITY
        ]
        if leader is None:
            likely.sort(key=lambda entry: -entry[1])
            best = min((total for total, _, _ in likely), default=math.inf)
        else:
            likely = [entry for entry in likely if entry[1] * (best - entry[0]) > _WORTHWHILE * best]
            likely.sort(key=lambda entry: -entry[1] * (best - entry[0]))
        signatures = (self._signature(codes) for _, _, codes in likely)
        candidate = next((each for each in signatures if self._assembled(each) is not None), None)
        return None if leader is None else self._signature(leader), best, candidate

    def _measure(self, signature: Mapping[str, Value], total_ms: float, left: int) -> bool:
        """Evaluate the kernel that promises most in these types; say whether any was worth it."""
        promises: list[tuple[float, _Launches, list[Configuration]]] = []
        for launches in self._launches.values():
            count = launches.counts.get(self._chosen(signature), 0)
            values = _values_of(launches, signature)
            if count and values is not None:
                chosen, gain_ms = launches.measured.times.promising(values, min(_BATCH, left))
                promises.append((gain_ms * count, launches, chosen))
        if not promises:
            return False
        gain, launches, chosen = max(promises, key=lambda entry: entry[0])
        if not chosen or gain <= (_WORTHWHILE * total_ms if math.isfinite(total_ms) else 0.0):
            return False
        self._evaluate(launches.measured, chosen)
        return True

    def _assembled(self, signature: Mapping[str, Value]) -> Configuration | None:
        """Return the configuration of a signature whose kernels are the fastest known; None if it was asked for."""
        values = {p.name: p.values[0] for p in self._space.parameters} | dict(signature)
        heaviest: dict[str, float] = {}
        for launches in self._launches.values():
            kernel, count = launches.measured.kernel, launches.counts.get(self._chosen(signature), 0)
            own = _values_of(launches, signature)
            if not count or own is None:
                continue
            times = launches.measured.times
            fastest = times.fastest(own, measured=True) or times.fastest(own)
            if fastest is not None and count * fastest[1] > heaviest.get(kernel.name, 0.0):
                heaviest[kernel.name] = count * fastest[1]
                values |= {
                    f"{kernel.name}.{p.name}": fastest[0][p.name] for p in free(self._application.kernels[kernel.name])
                }
        found = Configuration({name: values[name] for name in self._space.names})
        return None if found in self._asked or found not in self._space else found

    def finalists(self, count: int) -> list[Configuration]:
        """Return what has not been run of the fastest accurate signatures and of the widest types, each tuned best."""
        signatures = [self._signature(codes) for _, codes in self._accurate(self._terms())[:count]]
        if signatures:
            signatures.append({**signatures[0], **self._widest})
        found = [self._assembled(signature) for signature in signatures]
        return list(dict.fromkeys(configuration for configuration in found if configuration is not None))


def _described(launched: Launched, sources: Mapping[str, tuple[str, ...]]) -> LaunchInfo:
    return LaunchInfo(launched.kernel, dict(launched.sizes), dict(launched.buffers), dict(sources))


def _timed(trial: Trial) -> Trial:
    """Return a trial of a kernel alone without what it says of errors: only the application's answer has a meaning."""
    metrics = {name: value for name, value in trial.measurement.metrics.items() if name not in errors_of(trial)}
    return dataclasses.replace(trial.with_measurement(metrics=metrics), warnings=())


def _total(terms: Sequence[Term], codes: tuple[int, ...]) -> float:
    """Return the predicted time in milliseconds of a signature."""
    return float(sum(term.table[tuple(codes[column] for column in term.columns)] for term in terms))


def _place(
    sources: Iterable[tuple[str, ...]], offered: Sequence[Sequence[Value]], values: Mapping[str, Value]
) -> tuple[int, ...] | None:
    """Return the codes of a kernel's signature in types of the application; None where it has no such types."""
    codes = []
    for each, known in zip(sources, offered, strict=True):
        found = {values.get(source, source) for source in each}
        value = found.pop()
        if found or value not in known:
            return None
        codes.append(known.index(value))
    return tuple(codes)


def _values_of(launches: _Launches, signature: Mapping[str, Value]) -> dict[str, Value] | None:
    """Return the values of a kernel's signature in types of the application; None where it has no such types."""
    offered = _offered(launches)
    place = _place(launches.sources.values(), offered, signature)
    if place is None:
        return None
    return {name: known[code] for name, known, code in zip(launches.sources, offered, place, strict=True)}


def _offered(launches: _Launches) -> list[tuple[Value, ...]]:
    """Return the values of each parameter in a kernel's signature."""
    space = launches.measured.times.space
    return [space.parameter(name).values for name in launches.sources]
