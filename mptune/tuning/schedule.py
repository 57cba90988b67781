"""The order of a run: baselines, the search with a baseline every few trials, finals, verification."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from mptune.backends import get_backend
from mptune.errors import EmptySpaceError, KernelError, MptuneError, UnknownNameError
from mptune.kernel import Application
from mptune.kernel.limits import spread
from mptune.measure.program import Launched
from mptune.measure.timing import is_bound_by_arithmetic
from mptune.results.trial import Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration, NamedValues, Value
from mptune.space.parameters import PrecisionParameter, baseline_values, beyond_baseline, uniform_types
from mptune.space.search_space import SearchSpace
from mptune.store import LaunchInfo
from mptune.strategies.base import Strategy
from mptune.strategies.model_based.application import ApplicationStrategy
from mptune.tuning.finals import FinalRounds, ranked
from mptune.tuning.findings import fall_short, findings
from mptune.tuning.plan import TuningPlan
from mptune.tuning.session import RunSession
from mptune.tuning.verify import Verifier

#: Minimum budget that reserves an evaluation for the winner's own tuning in the baseline's types.
_ENOUGH: Final = 8
#: Share of baselines among the trials while other trials meet the threshold and no baseline does.
_MISSING_SHARE: Final = 0.5
#: Fastest configurations that are tried in the baseline's types at the end of the search.
_CROSSED: Final = 2
#: Difference of instrumented from measured errors in decades: a factor of two (``benchmarks/instrument.py``).
_PRIOR_DOUBT: Final = 0.3


class Schedule:
    """One run from its first trial to its verified winner."""

    def __init__(self, plan: TuningPlan, space: SearchSpace, session: RunSession) -> None:
        self._plan = plan
        self._space = space
        self._session = session
        settings = plan.settings
        self._finals = FinalRounds(session)
        self._verification = Verifier(session, settings.verify, finalists=self._finals.finalists)
        self._budget, self._share = settings.budget, settings.baseline_share
        self._middle: list[Configuration] = []
        try:
            # The first baseline has a medium amount of work for a thread, as either extreme is often slow.
            self._middle = spread(space.restrict(plan.kernel.baseline_values()))[:1]
        except (EmptySpaceError, UnknownNameError):
            self._share = 0.0
        self._strategies: tuple[Strategy, ...] = ()
        self._baselines: Strategy | None = None
        self._prior: Sequence[Trial] = ()
        #: Configurations to evaluate before a strategy is asked.
        self._waiting = deque[Configuration]()
        self._proposed: set[Configuration] = set(session.trials)
        #: Launches of an application by the choices of its steps.
        self._launches: dict[tuple[Value, ...], tuple[Launched, ...]] = {}

    def run(self) -> Run:
        """Search, time the finalists, verify the reported trials; return the run."""
        session = self._session
        session.report(list(session.trials.values()), replayed=True)
        self._search()
        self._finals.begin()
        self._settle_and_verify()
        self._spend_reserve()
        ended = self._why_ended()
        self._settle_and_verify()
        if self._own_baselines():
            session.warn(
                "the winner's own tuning was not tried in the baseline's types, as budget or time was spent before: "
                "a better baseline may exist, and the true speedup be smaller; --resume with a larger --budget tries it"
            )
        self._verification.finish()
        self._warn_of_caches()
        for found in findings(session.result(), self._plan.kernel, self._plan.metric):
            session.warn(found)
        return session.finish(ended)

    # -- search --------------------------------------------------------------------------------

    def _search(self) -> None:
        session, budget = self._session, self._budget
        reserve = 1 if self._share and budget >= _ENOUGH else 0
        wanted_first = self._first()
        self._waiting += wanted_first
        session.evaluate(budget, self._ask_waiting, self._tell)
        if session.left(budget):
            self._prior = self._instrumented_prior()
        if self._share:
            self._baselines = self._plan.baseline_strategy(self._space, session.objective)
            self._add(self._baselines)
            if not any(configuration.is_among(session.fixed) for configuration in session.trials):
                self._waiting += self._middle
            # Configurations of --first do not count as trials of the baseline.
            others = sum(c in session.trials and not c.is_among(session.fixed) for c in {*wanted_first})
            first = max(1, math.ceil(self._share * budget / 2))
            session.evaluate(
                min(others + first, budget),
                lambda n: self._ask_waiting(n) or self._ask_all(n, [self._baselines]),
                self._tell,
            )
            trials = list(session.trials.values())
            if isinstance(self._plan.kernel, Application) and trials and all(t.status is Status.ERROR for t in trials):
                raise KernelError(trials[0].message)
            self._warn_of_the_widest()
            if (baseline := session.result().baseline) is not None:
                session.objective = session.objective.with_baseline(session.objective.value(baseline))
                self._waiting += self._uniform(baseline)
        search = self._plan.strategy(self._space, session.objective)
        self._add(search)
        closing = min(_CROSSED + 1, int(self._share * budget / 4)) if reserve else 0
        session.evaluate((budget - reserve - closing) // 2, self._ask, self._tell)
        if self._share and (best := session.result().best) is not None:
            self._waiting += self._uniform(best)
        session.evaluate(budget - reserve - closing, self._ask, self._tell)
        self._waiting += self._crossings()
        session.evaluate(budget - reserve, self._ask, self._tell)
        session.update(sources=search.sources)

    def _add(self, strategy: Strategy) -> None:
        """Tell a new strategy all trials so far, and every trial from now on."""
        self._strategies = (*self._strategies, strategy)
        if isinstance(strategy, ApplicationStrategy):
            strategy.relate(_seen(self._session.state.launches))
        strategy.expect(self._prior, _PRIOR_DOUBT)
        if self._session.trials:
            strategy.tell(list(self._session.trials.values()))

    def _tell(self, trials: Sequence[Trial]) -> None:
        self._look_at_launches(trials)
        for strategy in self._strategies:
            strategy.tell(trials)

    def _ask(self, n: int) -> list[Configuration]:
        """Return waiting configurations, else a baseline if these lag behind their share, else proposals."""
        waiting = self._ask_waiting(n)
        if waiting:
            return waiting
        *_, search = self._strategies
        if self._wants_baseline:
            return self._ask_all(1, [self._baselines, search])
        return self._ask_all(n, [search, self._baselines])

    @property
    def _wants_baseline(self) -> bool:
        """Whether baselines had less than their share of the trials."""
        if self._baselines is None:
            return False
        tried = sum(configuration.is_among(self._session.fixed) for configuration in self._proposed)
        run = self._session.result()
        is_missing = run.baseline is None and any(map(run.info.objective.is_feasible, run.trials))
        share = max(self._share, _MISSING_SHARE) if is_missing else self._share
        return tried < share * len(self._proposed) and not fall_short(run)

    def _ask_waiting(self, n: int) -> list[Configuration]:
        found: list[Configuration] = []
        while self._waiting and len(found) < n:
            configuration = self._waiting.popleft()
            if configuration not in self._proposed:
                self._proposed.add(configuration)
                found.append(configuration)
        return found

    def _ask_all(self, n: int, strategies: Sequence[Strategy | None]) -> list[Configuration]:
        """Return new proposals of the first strategy that has any."""
        for strategy in strategies:
            while strategy is not None and (proposed := strategy.ask(n)):
                if new := [configuration for configuration in proposed if configuration not in self._proposed]:
                    self._proposed.update(new)
                    return new
        return []

    def _crossings(self) -> Iterator[Configuration]:
        """Yield the fastest configurations in the baseline's types, and the baseline in the types of the fastest."""
        run, objective, widest = self._session.result(), self._session.objective, self._widest
        if not self._share or fall_short(run):
            return
        fastest = ranked(run, objective)[:_CROSSED]
        pairs = [(trial.configuration, widest) for trial in fastest]
        if run.baseline is not None:
            pairs += [(run.baseline.configuration, {n: t.configuration[n] for n in widest}) for t in fastest[:1]]
        for configuration, types in pairs:
            crossed = Configuration({**configuration, **types})
            if crossed in self._space:
                yield crossed

    def _first(self) -> list[Configuration]:
        found: list[Configuration] = []
        for values in self._plan.first:
            try:
                found += spread(self._space.restrict({name: (value,) for name, value in values.items()}))[:1]
            except (EmptySpaceError, UnknownNameError) as error:
                self._session.warn(f"first configuration {NamedValues(values)} is left out: {error}")
        return found

    def _uniform(self, trial: Trial) -> list[Configuration]:
        """Return a trial's configuration in each uniform narrower type that is not known to be inaccurate.

        A mixture of types is only of use if it beats these.
        """
        signature_of = self._plan.kernel.signature_of
        siblings = [
            Configuration({**trial.configuration, **types}) for types in uniform_types(self._space.parameters).values()
        ]
        wrong = {signature_of(t.configuration) for t in self._session.trials.values() if t.status is Status.INACCURATE}
        return [c for c in siblings if c in self._space and signature_of(c) not in wrong]

    @property
    def _widest(self) -> dict[str, Value]:
        return {name: values[0] for name, values in self._session.fixed.items()}

    def _instrumented_prior(self) -> list[Trial]:
        """Return trials with the errors of an instrumented build, if the kernel asks for one.

        They are all uniform types, and each parameter in each narrower type with all others in the widest.
        """
        kernel, space = self._plan.kernel, self._space
        if not kernel.instrumented or not self._session.objective.limits:
            return []
        try:
            widest = spread(space.restrict(baseline_values(space.parameters)))[0]
        except EmptySpaceError:
            return []
        types = [p for p in map(space.parameter, kernel.signature_names) if isinstance(p, PrecisionParameter)]
        changes = [*uniform_types(space.parameters).values(), *({p.name: value} for p in types for value in p.values)]
        asked = dict.fromkeys(Configuration({**widest, **change}) for change in changes)
        try:
            return self._session.evaluator.instrumented([c for c in asked if c in space])
        except MptuneError as error:
            self._session.warn(f"the instrumented run failed, so the search has no prior of errors: {error}")
            return []

    # -- applications --------------------------------------------------------------------------

    def _look_at_launches(self, trials: Sequence[Trial]) -> None:
        """Record the launches of an application, once for each combination of its steps' choices."""
        application = self._plan.kernel
        if not isinstance(application, Application):
            return
        choices = [p.name for p in application.shared if not isinstance(p, PrecisionParameter)]
        for trial in trials:
            chosen = tuple(trial.configuration[name] for name in choices)
            if not trial.is_valid or chosen in self._launches:
                continue
            self._launches[chosen] = ()
            try:
                self._launches[chosen] = self._session.evaluator.launches(trial.configuration)
            except MptuneError as error:
                self._session.warn(str(error))
            known = dict.fromkeys(itertools.chain.from_iterable(self._launches.values()))
            self._session.update(launches=tuple(_launch_info(application, launched) for launched in known))
            for strategy in self._strategies:
                if isinstance(strategy, ApplicationStrategy):
                    strategy.relate(_seen(self._session.state.launches))

    # -- finals and verification ---------------------------------------------------------------

    def _settle_and_verify(self) -> None:
        if not self._plan.settings.finals:
            return
        self._finals.settle()
        while self._verification():
            self._finals.settle()

    def _spend_reserve(self) -> None:
        """Evaluate the winner's tuning in the baseline's types, then continue the search with the remaining budget."""
        own = self._own_baselines()
        self._waiting = deque(own)
        self._session.evaluate(self._budget, self._ask, self._tell)
        self._finals.consider([configuration for configuration in own if configuration in self._session.trials])

    def _own_baselines(self) -> list[Configuration]:
        """Return the winner's tuning in the baseline's types if it has not been tried."""
        run = self._session.result()
        if not self._share or run.best is None or run.best.configuration.is_among(self._session.fixed):
            return []
        own = Configuration({**run.best.configuration, **self._widest})
        is_new = own not in self._session.trials and own in self._space
        return [own] if is_new and not fall_short(run) else []

    # -- warnings ------------------------------------------------------------------------------

    def _warn_of_the_widest(self) -> None:
        objective, fixed = self._session.objective, self._session.fixed
        widest = [t for t in self._session.trials.values() if t.is_valid and t.configuration.is_among(fixed)]
        if not widest or any(objective.error_excess(trial) <= 0 for trial in widest):
            return
        if any(beyond_baseline({p.name: value}, fixed) for p in self._space.parameters for value in p.values):
            return
        best = min(widest, key=objective.error_excess)
        broken = objective.binding(best)
        asking = [
            f"-p {p.name}={','.join(map(str, (*fixed[p.name], *more)))}"
            for p in self._plan.kernel.parameters
            if (more := [value for value in p.every_value if beyond_baseline({p.name: value}, fixed)])
        ]
        what_helps = (
            f"a compound type may meet it, which is searched on request alone: {' '.join(asking)}"
            if asking
            else "more exact types do not help, unless template and reference disagree: end this run and give a larger "
            "threshold"
        )
        self._session.warn(
            f"the widest types themselves do not meet the threshold: their "
            f"{self._session.result().info.measured_by(broken)} is {best.metric(broken):.3g}, above "
            f"{objective.limits[broken]:g}; {what_helps}"
        )

    def _why_ended(self) -> str:
        """Return why the search ended with evaluations and configurations left; else empty."""
        session = self._session
        if len(session.trials) >= min(self._budget, self._space.size):
            return ""
        if session.is_in_time:
            return f"strategy {self._plan.settings.strategy} expects no other configuration to be better"
        more = "give more --time-limit, or smaller sizes (--size)"
        if not session.trials:
            return f"the time limit was spent on preparation; {more}"
        fixed = session.fixed
        is_tried = any(not configuration.is_among(fixed) for configuration in session.trials)
        if not is_tried and any(set(self._space.parameter(name).values) - {*fixed[name]} for name in fixed):
            return f"the time limit was reached before any narrower type was tried; {more}"
        return "the time limit was reached"

    def _warn_of_caches(self) -> None:
        """Warn if only the winner's data fit a cache that stays warm between launches."""
        run, kernel = self._session.result(), self._plan.kernel
        flush, best, baseline = run.info.flush_cache, run.best, run.baseline
        is_warm = flush == "off" or (flush == "auto" and get_backend(run.info.backend).shares_memory)
        if best is None or baseline is None or not is_warm:
            return
        if is_bound_by_arithmetic(kernel.work(best.configuration, self._plan.sizes).intensity):
            return
        limits = self._session.evaluator.start().device.limits
        small, large = best.metric("memory_bytes"), baseline.metric("memory_bytes")
        for key, cache in (("own_cache_bytes", "the cores' own caches"), ("cache_bytes", "the last-level cache")):
            if small <= limits.get(key, 0) < large:
                self._session.warn(
                    f"the data of the best ({small / 1e6:.3g} MB) fit {cache} ({limits[key] / 1e6:.3g} MB), the "
                    f"baseline's ({large / 1e6:.3g} MB) do not: at other sizes the speedup differs; tune at the size "
                    "you will run (--size), or with --flush-cache on"
                )
                return


def _launch_info(application: Application, launched: Launched) -> LaunchInfo:
    kernel, passed = application.kernels[launched.kernel], dict(launched.buffers)
    buffers = {argument.name: argument for argument in application.arguments}
    types: dict[str, tuple[str, ...]] = {}
    for name in kernel.signature_names:
        held = [passed[a.name] for a in kernel.arguments if a.precision == name and a.name in passed]
        found = dict.fromkeys(str(buffers[buffer].precision) for buffer in held)
        types[name] = tuple(found) or (f"{kernel.name}.{name}",)
    return LaunchInfo(launched.kernel, dict(launched.sizes), passed, types)


def _seen(launches: Sequence[LaunchInfo]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for launch in launches:
        found.setdefault(launch.kernel, set()).update(name for names in launch.types.values() for name in names)
    return found
