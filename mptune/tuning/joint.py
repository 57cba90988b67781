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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import EmptySpaceError
from mptune.kernel import Application, Kernel
from mptune.kernel.application import free
from mptune.kernel.limits import device_constraints, spread
from mptune.measure.capturing import CapturedLaunch, in_context
from mptune.measure.device import DeviceEvaluator
from mptune.measure.policy import errors_of
from mptune.measure.stepping import Launched
from mptune.results.kernel_times import LAUNCHES, kernel_times
from mptune.results.objective import Objective
from mptune.results.trial import Trial
from mptune.space.configuration import Configuration, Value
from mptune.space.parameters import PolicyParameter, PrecisionParameter, baseline_values, uniform_types
from mptune.space.search_space import SearchSpace
from mptune.store import LaunchInfo
from mptune.strategies.model_based.branching import Term, ascending
from mptune.strategies.model_based.error_model import Signatures
from mptune.strategies.model_based.kernel_times import KernelTimes
from mptune.strategies.model_based.launch_counts import LaunchCounts

__all__ = ["NOTHING_LEFT", "JointSearch"]

Codes = NDArray[np.int32]

#: Of the evaluations, at most so many are runs of the application while kernels still promise something.
_RUNS_SHARE: Final = 0.3
#: Of what is left of the evaluations, so many are configurations spread over the spaces of the kernels, before models
#: say which; and at most so many for each.
_DESIGN_SHARE: Final = 1 / 3
_DESIGN: Final = 8
#: Kernel configurations that are evaluated at a time, so that compilers run ahead, as long as many are left.
_BATCH: Final = 4
_FEW: Final = 8
#: Combinations of types that are looked at, the fastest first, and how often what is near the best of them is.
_LOOKED_AT: Final = 300
_CLIMBS: Final = 6
#: A combination less likely than this to be accurate enough is not run; where there is nothing else to do, than that.
_LEAST_PROBABILITY: Final = 0.05
_IMPROBABLE: Final = 0.005
#: Nor is one in one type throughout that is less likely than this to be, before others are looked at.
_UNIFORM_PROBABILITY: Final = 0.2
#: A combination is not run again that failed so often.
_FAILURES: Final = 2
#: So many that promise most are known from instrumented runs before one is run.
_AHEAD: Final = 8
#: What promises less than this share of the time is not worth an evaluation.
_WORTHWHILE: Final = 0.002
#: Why a search ends with evaluations left.
NOTHING_LEFT: Final = f"no other types and no other parameters of a kernel promised to save {_WORTHWHILE:.1%} of time"


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

    The first with beta = 0, say, is one of them: what its scalars are is seen to decide little of a kernel's time.

    Attributes:
        measured: the kernel.
        sources: by each parameter in the kernel's signature, where its value comes from: parameters of the application,
            or fixed precisions; several where it is the type of several arguments.
        columns: the columns of the application's signature among these.
        places: by their codes, where the kernel's signature is in a table of all; -1 where it has no such types.
        counts: how often it is launched in a run, by the choices of the steps.
        time_ms: how long all of them took in the run they were captured in.
    """

    measured: _Measured
    sources: Mapping[str, tuple[str, ...]]
    columns: tuple[int, ...]
    places: NDArray[np.intp]
    time_ms: float
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
        rule_out: told the trial of each signature that an instrumented run rules out.
        thinking: entered while it thinks.
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
        rule_out: Callable[[Trial], None],
        thinking: AbstractContextManager[None],
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
        self._rule_out = rule_out
        self._folder = folder
        self._seed = seed
        self._warn = warn
        self._thinking = thinking
        self._stack = contextlib.ExitStack()
        self._measured: dict[tuple[str, object], _Measured] = {}
        self._launches: dict[Launched, _Launches] = {}
        self._choices = [p for p in application.shared if not isinstance(p, PrecisionParameter)]
        self._names = application.signature_names
        parameters = [space.parameter(name) for name in self._names]
        self._values = [p.values for p in parameters]
        has_limits, is_relative = objective.threshold is not None, application.reference is None
        self._signatures = (
            Signatures(space, self._names, objective, is_relative=is_relative) if has_limits and self._names else None
        )
        self._counts = {name: LaunchCounts(parameters) for name in application.kernels}
        #: Runs of the application: all, those that have times by signature, and how often others failed.
        self._told: list[Trial] = []
        self._runs: dict[tuple[int, ...], Trial] = {}
        self._failures = Counter[tuple[int, ...]]()
        self._asked: set[Configuration] = set()
        #: The signatures that an instrumented run has told of, those that it rules out, and what is to be run to see
        #: whether such runs hold.
        self._foretold: set[tuple[int, ...]] = set()
        self._ruled_out: set[tuple[int, ...]] = set()
        self._samples: list[Configuration] = []
        self._has_sounded = False
        self._has_mixed = False
        #: Columns and tables of the terms of the time of a run, each with what it was made from.
        self._terms_of: dict[Launched, tuple[object, tuple[int, ...], NDArray[np.float64]]] = {}
        #: Configurations of kernels to begin with; None before it is known which.
        self._design: list[tuple[_Measured, list[Configuration]]] | None = None
        #: The other policies that kernels were tried with in types that are accurate, each by kernel and parameter.
        self._tried_policies: set[tuple[str, str, Value]] = set()
        self._batches = 0

    def close(self) -> None:
        """End the workers that evaluate kernels."""
        self._stack.close()

    # -- learning --------------------------------------------------------------------------------

    def first(self) -> list[Configuration]:
        """Return configurations in the widest types, one for each combination of the steps' choices.

        They are those of :func:`~mptune.kernel.limits.widest`: what computes the reference is compiled for both.
        """
        baseline = self._space.restrict(baseline_values(self._space.parameters))
        found = []
        for values in itertools.product(*(p.values for p in self._choices)):
            with contextlib.suppress(EmptySpaceError):
                space = baseline.restrict({p.name: (value,) for p, value in zip(self._choices, values, strict=True)})
                found.append(spread(space)[0])
        return found

    def tell(self, trials: Iterable[Trial]) -> None:
        """Learn from runs of the application."""
        for trial in trials:
            index = self._space.index(trial.configuration)
            assert index is not None
            if self._signatures is not None:
                self._signatures.observe(self._space.codes([index]), [trial])
            codes = self._codes(self._application.signature_of(trial.configuration))
            self._asked.add(trial.configuration)
            if trial.is_screened:
                self._ruled_out.add(codes)
                continue
            if trial.is_valid:
                self._runs[codes] = trial
            else:
                self._failures[codes] += 1
            for name, counts in self._counts.items():
                launches = trial.metric(LAUNCHES + name)
                if math.isfinite(launches):
                    counts.tell(codes, launches)
            self._told.append(trial)
            self._tell_times(trial)

    def forget(self, ruled_out: Sequence[Configuration]) -> None:
        """Take back what was told of configurations that were ruled out, as instrumented errors were off."""
        if not ruled_out or self._signatures is None:
            return
        self._signatures.forget_foretold()
        self._foretold.clear()
        self._ruled_out -= {self._codes(self._application.signature_of(each)) for each in ruled_out}
        self._asked -= set(ruled_out)

    def _tell_times(self, trial: Trial) -> None:
        """Learn the times that launches took within a run, of kernels all of whose launches are in the same types."""
        for name, found in kernel_times(trial).items():
            of_kernel: dict[tuple[int, Configuration], _Measured] = {}
            for launches in self._launches.values():
                kernel = launches.measured.kernel
                types = _values_of(launches, trial.configuration)
                if kernel.name == name and types is not None and self._share(launches, trial.configuration):
                    own = {
                        p.name: trial.configuration[f"{name}.{p.name}"] for p in free(self._application.kernels[name])
                    }
                    configuration = Configuration({p.name: {**own, **types}[p.name] for p in kernel.parameters})
                    of_kernel[id(launches.measured), configuration] = launches.measured
            if len(of_kernel) == 1 and found.launches:
                ((_, configuration), measured), *_ = of_kernel.items()
                measured.times.tell_within(configuration, found.time_ms / found.launches)

    def _chosen(self, configuration: Mapping[str, Value]) -> tuple[Value, ...]:
        return tuple(configuration[p.name] for p in self._choices)

    def is_new(self, configuration: Configuration) -> bool:
        """Whether what the application launches with these choices of its steps has not been looked at."""
        looked_at = {chosen for launches in self._launches.values() for chosen in launches.counts}
        return self._chosen(configuration) not in looked_at

    def look(self, configuration: Configuration) -> None:
        """Learn what the application launches in a configuration that runs."""
        total: dict[str, int] = {}
        known = len(self._launches)
        for launch in self._evaluator.capture(configuration, self._folder):
            launched = launch.launched
            if launched not in self._launches:
                self._launches[launched] = self._made(launch)
            self._launches[launched].counts[self._chosen(configuration)] = launch.count
            total[launched.kernel] = total.get(launched.kernel, 0) + launch.count
        codes = self._codes(self._application.signature_of(configuration))
        for name, count in total.items():
            self._counts[name].tell(codes, count)
        if len(self._launches) > known:
            for trial in self._told:
                self._tell_times(trial)

    @property
    def foretold(self) -> int:
        """How many signatures instrumented runs told of that were neither ruled out nor run."""
        return len(self._foretold - self._ruled_out - self._runs.keys() - self._failures.keys())

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
            limits = device_constraints(kernel, evaluator.start().facts)
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
        return self._placed(self._measured[key], sources, launch.time_ms)

    def _placed(self, measured: _Measured, sources: Mapping[str, tuple[str, ...]], time_ms: float) -> _Launches:
        used = set[str]().union(*sources.values())
        columns = tuple(column for column, name in enumerate(self._names) if name in used)
        offered = [measured.times.space.parameter(name).values for name in sources]
        shape = tuple(map(len, offered))
        places = np.full([len(self._values[column]) for column in columns], -1, dtype=np.intp)
        for codes in np.ndindex(places.shape):
            values = {self._names[c]: self._values[c][code] for c, code in zip(columns, codes, strict=True)}
            place = _place(sources.values(), offered, values)
            if place is not None:
                places[codes] = np.ravel_multi_index(place, shape) if shape else 0
        return _Launches(measured, sources, columns, places, time_ms)

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

    def _evaluate(self, measured: _Measured, configurations: Sequence[Configuration], left: Callable[[], int]) -> None:
        for trial in measured.evaluator.evaluate(configurations):
            found = _timed(trial)
            measured.times.tell([found])
            self._keep(measured.label, found)
            if left() <= 0:  # the time is up
                break

    # -- times ----------------------------------------------------------------------------------

    def _terms(self, *, at_best: bool = False) -> list[Term]:
        """Return the time of all launches of each kind in a run, by the signature's codes.

        Args:
            at_best: with as many launches as there are at least (:meth:`LaunchCounts.factors`).
        """
        terms = []
        for launched, launches in self._launches.items():
            times, counts = launches.measured.times, self._counts[launched.kernel]
            made_from = (times.version, counts.level(), len(launches.counts))
            if launched not in self._terms_of or self._terms_of[launched][0] != made_from:
                self._terms_of[launched] = (made_from, *self._term(launches, counts))
            _, columns, table = self._terms_of[launched]
            terms.append(Term(columns, table, counts.factors(at_best=at_best)))
        return terms

    def _term(self, launches: _Launches, counts: LaunchCounts) -> tuple[tuple[int, ...], NDArray[np.float64]]:
        """Return columns of the signature, and the time of all launches of a kind by their codes, but for factors."""
        table = np.append(launches.measured.times.least(list(launches.sources)), math.inf)[launches.places]
        if not self._choices:
            return launches.columns, table * counts.level() * self._share(launches, {})
        # The choices of the steps decide which launches there are.
        chosen = {self._names.index(p.name) for p in self._choices}
        columns = tuple(sorted({*launches.columns, *chosen}))
        shares = np.empty([len(self._values[column]) for column in columns])
        spread = table.reshape([len(self._values[c]) if c in launches.columns else 1 for c in columns])
        for codes in np.ndindex(*(len(self._values[column]) for column in sorted(chosen))):
            by_column = dict(zip(sorted(chosen), codes, strict=True))
            values = {self._names[column]: self._values[column][code] for column, code in by_column.items()}
            at = tuple(by_column.get(column, slice(None)) for column in columns)
            shares[at] = self._share(launches, values)
        # What is not launched takes no time, also in types it does not have.
        totals = np.where(shares > 0, spread * counts.level() * np.where(shares > 0, shares, 1.0), 0.0)
        return columns, totals

    def _share(self, launches: _Launches, values: Mapping[str, Value]) -> float:
        """Return their share of their kernel's launches, by the choices of the steps that are most like these."""
        of_kernel = [
            each for each in self._launches.values() if each.measured.kernel.name == launches.measured.kernel.name
        ]
        looked_at = dict.fromkeys(chosen for each in self._launches.values() for chosen in each.counts)
        wanted = self._chosen(values) if self._choices else ()

        def alike(chosen: tuple[Value, ...]) -> int:
            return sum(one == other for one, other in zip(chosen, wanted, strict=True))

        nearest = max(looked_at, key=alike)
        total = sum(each.counts.get(nearest, 0) for each in of_kernel)
        return launches.counts.get(nearest, 0) / total if total else 0.0

    def _expected(self, launches: _Launches, signature: Mapping[str, Value]) -> float:
        """Return how often they are expected in a run of a signature."""
        counts = self._counts[launches.measured.kernel.name]
        codes = self._codes(signature[name] for name in self._names)
        factor = math.prod(float(f[code]) for f, code in zip(counts.factors(), codes, strict=True))
        return counts.level() * factor * self._share(launches, signature)

    def _totals(self, terms: Sequence[Term], rows: Codes) -> NDArray[np.float64]:
        """Return the predicted times in milliseconds of signatures, by their codes ``(n, n_names)``."""
        found = np.zeros(len(rows))
        for term in terms:
            part = term.table[tuple(rows[:, column] for column in term.columns)]
            for column, factors in enumerate(term.factors):
                part = part * factors[rows[:, column]]
            found += part
        return found

    def _probabilities(self, rows: Codes) -> NDArray[np.float64]:
        """Return how probable it is that each signature, by its codes ``(n, n_names)``, is accurate enough."""
        if self._signatures is None or not len(rows):
            return np.ones(len(rows))
        codes = np.zeros((len(rows), len(self._space.names)), dtype=np.int32)
        codes[:, [self._space.names.index(name) for name in self._names]] = rows
        probabilities = np.exp(self._signatures.log_probability(codes))
        return np.where(self._signatures.too_narrow(rows), 0.0, probabilities)

    def _codes(self, values: Iterable[Value]) -> tuple[int, ...]:
        return tuple(known.index(value) for known, value in zip(self._values, values, strict=True))

    def _signature(self, codes: Iterable[int]) -> dict[str, Value]:
        return {name: values[code] for name, values, code in zip(self._names, self._values, codes, strict=True)}

    def _accurate(self) -> list[tuple[float, tuple[int, ...]]]:
        """Return the signatures that are known to be accurate, by codes, with predicted times; the fastest first."""
        terms = self._terms()
        feasible = [codes for codes, trial in self._runs.items() if self._objective.is_feasible(trial)]
        return sorted((sum(term.at(codes) for term in terms), codes) for codes in feasible)

    def _near(self, codes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yield what differs from a signature in one or two values."""
        changes = [(at, code) for at, values in enumerate(self._values) for code in range(len(values))]
        changes = [change for change in changes if codes[change[0]] != change[1]]
        for chosen in itertools.chain(((change,) for change in changes), itertools.combinations(changes, 2)):
            by_place = dict(chosen)
            yield tuple(by_place.get(at, code) for at, code in enumerate(codes))

    def _alone(self, codes: tuple[int, ...]) -> Iterator[Configuration]:
        """Yield configurations of one type throughout, and of the widest types but one in each narrower type."""
        widest = self._codes((self._signature(codes) | self._widest)[name] for name in self._names)
        changes = (
            tuple(code if column == at else known for at, known in enumerate(widest))
            for column, values in enumerate(self._values)
            for code in range(len(values))
        )
        for each in (*self._uniform(codes), *changes):
            if (configuration := self._tuned(self._signature(each))) is not None:
                yield configuration

    def _uniform(self, codes: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return a signature in one type throughout, in each, the widest first."""
        types = uniform_types(self._space.parameters).values()
        return [self._codes((self._signature(codes) | uniform)[name] for name in self._names) for uniform in types]

    # -- what to do next -------------------------------------------------------------------------

    def next(self, left: Callable[[], int]) -> Configuration | None:
        """Evaluate kernels until a run of the application promises more, and return its configuration.

        Args:
            left: how many more evaluations there may be.

        Returns:
            None when no evaluation is left, or none is worthwhile.
        """
        while left() > 0:
            with self._thinking:
                step = self._step(left())
            if step is None or isinstance(step, Configuration):
                return step
            self._evaluate(*step, left)
        return None

    def _step(self, left: int) -> Configuration | tuple[_Measured, list[Configuration]] | None:
        """Return the run of the application or the configurations of a kernel that promise most, if anything does."""
        accurate = self._accurate()
        # Of what nobody has run, types may converge as fast as the widest as long as it is not known which do not.
        terms = self._terms(at_best=True)
        best_ms, leader = accurate[0] if accurate else (math.inf, None)
        start = leader or self._codes((self._first_choices() | self._widest)[name] for name in self._names)
        # What has one type throughout tells most of what narrow types do, and any mixture of types has to beat it.
        if (uniform := self._next_uniform(terms, start, best_ms)) is not None:
            return uniform
        if not self._has_mixed:
            self._has_mixed = True
            if (mixture := self._mixture(start)) is not None:
                return mixture
        if self._design is None:
            self._design = self._spread(left)
        if self._design:
            measured, configurations = self._design.pop(0)
            return measured, configurations[:left]
        of_winner = self._signature(start)
        if leader is not None and (step := self._with_another_policy(*self._narrowest_uniform(start), of_winner)):
            return step
        runs = len(self._told)
        candidate = self._candidate(terms, start, best_ms, _LEAST_PROBABILITY, is_known=leader is not None)
        if candidate is not None and (leader is None or runs <= _RUNS_SHARE * (runs + self._kernel_evaluations)):
            return candidate
        # Half of the turns are the winner's, the others of the widest types and of the rival in one type; where one
        # promises nothing, the next.
        others = [self._in_widest(of_winner), *self._narrowest_uniform(start)]
        turn, is_other = divmod(self._batches, 2)
        turns = [*others[turn % len(others) :], *others[: turn % len(others)]]
        turns.insert(1 if is_other else 0, of_winner)
        self._batches += 1
        promising = next(filter(None, (self._promising(types, best_ms, left) for types in turns)), candidate)
        # Evaluations are left: what is improbable is worth one, too.
        return promising or self._candidate(terms, start, best_ms, _IMPROBABLE, is_known=leader is not None)

    def _with_another_policy(self, *signatures: Mapping[str, Value]) -> tuple[_Measured, list[Configuration]] | None:
        """Return a kernel in the types of a signature, with a policy that it was not tried with; None if there is none.

        Faster functions may pay in few types alone, so that the model, which knows mostly mixtures, expects nothing of
        them. None is tried again when other types lead.
        """
        for signature, launches in itertools.product(signatures, self._launches.values()):
            measured = launches.measured
            for name in itertools.chain.from_iterable(launches.sources.values()):
                if name not in self._names or not isinstance(self._space.parameter(name), PolicyParameter):
                    continue
                for value in self._space.parameter(name).values:
                    tried = (measured.label, name, value)
                    types = _values_of(launches, {**signature, name: value})
                    if value == signature[name] or types is None or tried in self._tried_policies:
                        continue
                    self._tried_policies.add(tried)
                    chosen, gain_ms = measured.times.promising(types, 1)
                    if chosen and math.isinf(gain_ms):
                        return measured, chosen
        return None

    def _spread(self, left: int) -> list[tuple[_Measured, list[Configuration]]]:
        """Return configurations spread over the space of each kernel, the more of one the longer its launches take."""
        spent_ms = [
            sum(launches.time_ms for launches in self._launches.values() if launches.measured is measured)
            for measured in self._measured.values()
        ]
        found = []
        for measured, time_ms in zip(self._measured.values(), spent_ms, strict=True):
            each = min(_DESIGN, round(_DESIGN_SHARE * left * time_ms / (sum(spent_ms) or 1.0)))
            # What an earlier session measured was spread, too.
            if each - measured.times.count >= 2:
                found.append((measured, measured.times.design(each - measured.times.count, self._types_in(measured))))
        return found

    @property
    def _widest(self) -> dict[str, Value]:
        return {name: values[0] for name, values in baseline_values(self._space.parameters).items()}

    def _first_choices(self) -> dict[str, Value]:
        return {name: values[0] for name, values in zip(self._names, self._values, strict=True)}

    def _in_widest(self, signature: Mapping[str, Value]) -> dict[str, Value]:
        """Return a signature in the widest types; with other choices of the steps where those need narrow ones."""
        wide = {**signature, **self._widest}
        if self._tuned(wide) is not None:
            return wide
        return next((self._signature(codes) for codes in self._runs if self._is_widest(codes)), wide)

    def _is_widest(self, codes: tuple[int, ...]) -> bool:
        signature = self._signature(codes)
        return all(signature[name] == value for name, value in self._widest.items())

    def _next_uniform(self, terms: Sequence[Term], start: tuple[int, ...], best_ms: float) -> Configuration | None:
        """Return the widest configuration in one type throughout that nobody has run, if it may be accurate and fast.

        The first one that is narrower than the widest tells what narrow types do to times, so it may be slow.
        """
        uniform = self._uniform(start)
        rows = np.array(uniform, dtype=np.int32).reshape(len(uniform), len(self._names))
        known = [self._is_tried(codes) for codes in uniform]
        found = zip(uniform, known, self._totals(terms, rows).tolist(), self._probabilities(rows).tolist(), strict=True)
        for codes, is_known, total_ms, probability in found:
            is_fast = total_ms < best_ms or sum(known) < 2
            if not is_known and is_fast and probability >= _UNIFORM_PROBABILITY:
                configuration = self._assembled(self._signature(codes))
                if configuration is not None:
                    return configuration
        return None

    def _mixture(self, start: tuple[int, ...]) -> Configuration | None:
        """Return the widest types with as many as possible in the next narrower one, as instrumented runs tell.

        Where that one throughout is not accurate enough, this is the mixture that promises most, before anything is
        known of times, and it is the second signature whose error shows whether such runs hold.
        """
        widest, *narrower = self._uniform(start)
        if not narrower or self._is_accurate(narrower[0]):
            return None
        mixed: Configuration | None = None
        for column, code in enumerate(narrower[0]):
            codes = (*widest[:column], code, *widest[column + 1 :])
            configuration = None if codes == widest else self._assembled(self._signature(codes))
            trial = None if configuration is None else self._evaluator.hinted(configuration)
            if trial is not None and self._objective.is_feasible(trial):
                widest, mixed = codes, configuration
        return mixed

    def _is_accurate(self, codes: tuple[int, ...]) -> bool:
        return codes in self._runs and self._objective.is_feasible(self._runs[codes])

    def _narrowest_uniform(self, start: tuple[int, ...]) -> list[dict[str, Value]]:
        """Return the narrowest signature in one type throughout that is known to be accurate, if it is not the widest.

        It ran before its kernels were tuned, so its time says little; a mixture that wins has to beat it tuned, too.
        """
        accurate = {codes for codes, trial in self._runs.items() if self._objective.is_feasible(trial)}
        found = [codes for codes in self._uniform(start) if codes in accurate and not self._is_widest(codes)]
        return [self._signature(codes) for codes in found[-1:] if codes != start]

    def _is_tried(self, codes: tuple[int, ...]) -> bool:
        return codes in self._runs or codes in self._ruled_out or self._failures[codes] >= _FAILURES

    def _values_of_runs(
        self,
        terms: Sequence[Term],
        signatures: Sequence[tuple[int, ...]],
        best_ms: float,
        least: float,
        *,
        is_known: bool,
    ) -> list[tuple[float, tuple[int, ...]]]:
        """Return what a run of each signature promises, those that promise nothing left out.

        That is by how many milliseconds it is expected to be faster than the fastest that is known; as long as none is,
        how probable it is that it is accurate.
        """
        new = [codes for codes in signatures if not self._is_tried(codes)]
        rows = np.array(new, dtype=np.int32).reshape(len(new), len(self._names))
        totals, probabilities = self._totals(terms, rows), self._probabilities(rows)
        found = []
        for codes, total_ms, probability in zip(new, totals.tolist(), probabilities.tolist(), strict=True):
            gain_ms = probability * (best_ms - total_ms)
            if probability < least or not math.isfinite(total_ms):
                continue
            if not is_known or gain_ms > _WORTHWHILE * best_ms:
                found.append((gain_ms if is_known else probability, codes))
        return found

    def _candidate(
        self, terms: Sequence[Term], start: tuple[int, ...], best_ms: float, least: float, *, is_known: bool
    ) -> Configuration | None:
        """Return the configuration that is most worth a run, with this probability at least; None if none is.

        Where instrumented runs tell of errors, they have told of it and of those that come next.
        """
        while True:
            ranked = self._ranked(terms, start, best_ms, least, is_known=is_known)
            ahead = list(itertools.islice(ranked, _AHEAD))
            if not self._has_sounded:
                self._has_sounded = self._foretell(self._alone(start))
            if not self._has_sounded or not self._foretell(ahead):
                samples = [sample for sample in self._samples if sample not in self._asked]
                return next(iter([*samples, *ahead]), None)

    def _foretell(self, configurations: Iterable[Configuration]) -> bool:
        """Have instrumented runs tell of the errors of configurations; return whether something was learned."""
        news = False
        for configuration in configurations:
            codes = self._codes(self._application.signature_of(configuration))
            if self._signatures is None or codes in self._foretold or self._is_tried(codes):
                continue
            found = self._evaluator.foretold(configuration)
            if found is None:
                continue
            news = True
            self._foretold.add(codes)
            index = self._space.index(configuration)
            assert index is not None
            self._signatures.foretell(self._space.codes([index]), [found.trial], found.agreement)
            if found.trial.is_screened:
                self._ruled_out.add(codes)
                self._asked.add(configuration)
                self._rule_out(found.trial)
            elif found.is_sample:
                self._samples.append(configuration)
        return news

    def _ranked(
        self, terms: Sequence[Term], start: tuple[int, ...], best_ms: float, least: float, *, is_known: bool
    ) -> Iterator[Configuration]:
        """Yield the configurations that are worth a run, with this probability at least, what is most worth it first.

        The fastest of all are looked at, and those near the leader: of very many, the fastest are all too narrow. From
        what promises most of these it goes on uphill.
        """
        fastest = itertools.islice(ascending([len(values) for values in self._values], terms), _LOOKED_AT)
        new = [codes for _, codes in itertools.takewhile(lambda entry: entry[0] < best_ms, fastest)]
        new += self._near(start)
        for values in itertools.product(*(p.values for p in self._choices)):
            chosen = dict(zip((p.name for p in self._choices), values, strict=True))
            new += self._uniform(self._codes(chosen.get(n, v) for n, v in self._signature(start).items()))
        ranked: dict[tuple[int, ...], float] = {}
        for _ in range(_CLIMBS):
            before = max(ranked.values(), default=0.0)
            fresh = [codes for codes in dict.fromkeys(new) if codes not in ranked]
            found = self._values_of_runs(terms, fresh, best_ms, least, is_known=is_known)
            ranked |= {codes: value for value, codes in found}
            if max(ranked.values(), default=0.0) <= before:
                break
            new = list(self._near(max(ranked, key=ranked.__getitem__)))
        ordered = sorted(ranked, key=lambda codes: (-ranked[codes], codes))
        return filter(None, (self._assembled(self._signature(codes)) for codes in ordered))

    def _promising(
        self, signature: Mapping[str, Value], total_ms: float, left: int
    ) -> tuple[_Measured, list[Configuration]] | None:
        """Return the configurations of a kernel that promise most in these types; None if none is worth it."""
        promises: list[tuple[float, _Measured, list[Configuration]]] = []
        for launches in self._launches.values():
            count = self._expected(launches, signature)
            values = _values_of(launches, signature)
            if count and values is not None:
                batch = min(_BATCH, max(1, left // _FEW))
                chosen, gain_ms = launches.measured.times.promising(values, batch)
                promises.append((gain_ms * count, launches.measured, chosen))
        if not promises:
            return None
        gain, measured, chosen = max(promises, key=lambda entry: entry[0])
        if not chosen or gain <= (_WORTHWHILE * total_ms if math.isfinite(total_ms) else 0.0):
            return None
        return measured, chosen

    def _tuned(self, signature: Mapping[str, Value]) -> Configuration | None:
        """Return the configuration of a signature whose kernels are the fastest known; None if there is none.

        All launches of a kernel have the same values of its own parameters, so what is least is the sum of their times.
        """
        values = {p.name: p.values[0] for p in self._space.parameters} | dict(signature)
        times: dict[str, dict[tuple[Value, ...], float]] = {}
        for launches in self._launches.values():
            name, count = launches.measured.kernel.name, self._expected(launches, signature)
            types = _values_of(launches, signature)
            if not count:
                continue
            if types is None:
                return None
            names = [p.name for p in free(self._application.kernels[name]) if p.name not in types]
            found = launches.measured.times.at_most(types, names)
            both = {own: count * found[own] + times.get(name, {}).get(own, 0.0) for own in found}
            times[name] = {own: both[own] for own in both if name not in times or own in times[name]}
            if times[name]:
                fastest = min(times[name], key=times[name].__getitem__)
                values |= {f"{name}.{own}": value for own, value in zip(names, fastest, strict=True)}
            elif launches.measured.times.is_complete:
                return None  # a constraint of the kernel, or of the device, rules it out
        configuration = Configuration({name: values[name] for name in self._space.names})
        return configuration if configuration in self._space else None

    def _assembled(self, signature: Mapping[str, Value]) -> Configuration | None:
        """Return the configuration of a signature whose kernels are the fastest known; None if it was asked for."""
        found = self._tuned(signature)
        return None if found in self._asked else found

    def finalists(self, count: int) -> list[Configuration]:
        """Return what has not been run of the fastest accurate signatures and of the widest types, each tuned best."""
        signatures = [self._signature(codes) for _, codes in self._accurate()[:count]]
        if signatures:
            signatures.append(self._in_widest(signatures[0]))
        found = [self._assembled(signature) for signature in signatures]
        return list(dict.fromkeys(configuration for configuration in found if configuration is not None))


def _described(launched: Launched, sources: Mapping[str, tuple[str, ...]]) -> LaunchInfo:
    return LaunchInfo(launched.kernel, dict(launched.sizes), dict(launched.buffers), dict(sources))


def _timed(trial: Trial) -> Trial:
    """Return a trial of a kernel alone without what it says of errors: only the application's answer has a meaning."""
    metrics = {name: value for name, value in trial.measurement.metrics.items() if name not in errors_of(trial)}
    return dataclasses.replace(trial.with_measurement(metrics=metrics), warnings=())


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
