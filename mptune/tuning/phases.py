"""The phases of a run: baseline, search, the winners' own baselines, and the finals."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.errors import EmptySpaceError, KernelError, MptuneError, UnknownNameError
from mptune.kernel import Application, Kernel
from mptune.measure.device import DeviceEvaluator
from mptune.measure.policy import MeasurementPolicy
from mptune.measure.pool import compilers_ahead
from mptune.results.kernel_times import kernel_times
from mptune.results.objective import Objective
from mptune.results.trial import Status, Trial
from mptune.run import Run
from mptune.source.render import render
from mptune.space.configuration import Configuration, Value
from mptune.space.parameters import beyond_baseline, uniform_types
from mptune.space.search_space import SearchSpace
from mptune.store import RunStore
from mptune.tuning.cold import compare_cold
from mptune.tuning.findings import fall_short, findings
from mptune.tuning.joint import NOTHING_LEFT, JointSearch
from mptune.tuning.ledger import Ledger
from mptune.tuning.loop import ask_and_tell
from mptune.tuning.plan import TuningPlan
from mptune.tuning.prior import PRIOR_DOUBT, instrumented_prior
from mptune.tuning.settings import Progress
from mptune.tuning.settling import Settling
from mptune.tuning.verification import Verification
from mptune.tuning.warnings import Warnings

__all__ = ["Phases"]

#: A share of the budget that hardly suffices to find a baseline at all.
_SMALL_SHARE: Final = 3
#: Runs of an application that are kept for what turns out fastest, and for its baseline: a share of the evaluations, at
#: least one for each, and at most so many.
_FINALISTS_SHARE: Final = 1 / 8
_FEWEST_FINALISTS: Final = 2
_MOST_FINALISTS: Final = 4
#: So many of the fastest configurations are given the baseline's types.
_CROSSED: Final = 2
#: Of a budget from this on, at least one evaluation is kept for the winner's tuning in the baseline's types.
_ENOUGH: Final = 8


class Phases:
    """One run, phase after phase; it began at ``start`` by ``time.monotonic``."""

    def __init__(
        self,
        plan: TuningPlan,
        space: SearchSpace,
        evaluator: DeviceEvaluator,
        file: RunStore,
        listeners: tuple[Callable[[Progress], None], Callable[[Progress], None]],
        start: float,
        warn: Warnings,
    ) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._kernel = plan.kernel
        self._space = space
        self._evaluator = evaluator
        self._file = file
        #: Told about every trial, and about every trial that is verified.
        self._on_progress, self._on_verification = listeners
        self._warn = warn
        self._ledger = Ledger(plan.objective, space, evaluator, file, plan.settings.time_limit_s, start, warn)
        self._settling = Settling(evaluator, self._ledger, file, plan.kernel.baseline_values(), warn)
        settings = plan.settings
        self._verification = Verification(
            evaluator,
            self._ledger,
            self._settling.finalists,
            settings.inputs,
            settings.verify,
            self._tell_verified,
            warn,
        )
        #: How many of the run file's trials were measured under other conditions.
        self.outdated = self._ledger.outdated

    def run(self) -> Run:
        """Search, settle and verify what is going to be reported; return everything."""
        ledger = self._ledger
        self._file.update(dataclasses.replace(self._file.state, ended=""))
        if isinstance(self._kernel, Application):
            self._search_jointly(self._kernel)
        else:
            self._search()
        # A smaller budget or a time limit may have ended the run before it came to them.
        ledger.take_leftovers()
        if why := self._out_of_time():
            self._file.update(dataclasses.replace(self._file.state, ended=why))
        self._settle_and_verify()
        self._spend_the_rest()
        if self._is_unsettled:
            self._settle_and_verify()
        self._say_what_is_untried()
        ledger.end_verification(self._verification.why_not, self._verification.cut_short)
        compare_cold(self._plan, self._evaluator, ledger, self._warn)
        for found in findings(ledger.result(), self._kernel, self._listing, self._plan.metric):
            self._warn(found)
        return ledger.finish()

    def _search(self) -> None:
        """Search the baseline, then the space, then the winners' own baselines."""
        ledger = self._ledger
        budget = self._settings.budget
        share = max(1, round(budget * self._settings.baseline_share)) if self._settings.baseline_share else 0
        # Half of the share is kept for the end, when it is known which configurations are fast; of a small one less.
        kept = share // 2 if share > _SMALL_SHARE else share // 3
        # Which is the winner is known when the finals have settled: only then it can be given the baseline's types.
        most = budget - (max(1, kept // _SMALL_SHARE) if share and budget >= _ENOUGH else 0)
        searched = min(most, budget - kept)
        self._evaluate_first()
        self._search_baseline(share - kept)
        if share:
            self._narrow(ledger.result().baseline, searched)
        strategy = self._plan.strategy(self._space, ledger.objective)
        strategy.expect(self._prior(), PRIOR_DOUBT)
        strategy.tell(list(ledger.trials.values()))
        if share:
            # What is tuned well by then may have the widest types only because these were met first.
            self._evaluate("search", (ledger.evaluations + searched) // 2, strategy.ask, strategy.tell)
            self._narrow(ledger.result().best, searched)
            self._find_baseline((ledger.evaluations + searched) // 2)
            strategy.tell(list(ledger.trials.values()))
        self._evaluate("search", searched, strategy.ask, strategy.tell)
        self._confirm_baseline(most)
        strategy.tell(list(ledger.trials.values()))
        self._evaluate("search", most, strategy.ask, strategy.tell)
        self._file.update(dataclasses.replace(self._file.state, sources=strategy.sources))

    def _evaluate_first(self) -> None:
        """Evaluate what the user wants to be evaluated before anything else."""
        named = (dict(each) for each in self._settings.first)
        names = self._space.names
        whole = (Configuration({n: each[n] for n in names}) for each in named if set(each) == set(names))
        waiting = iter([configuration for configuration in whole if configuration in self._space])
        self._evaluate("search", self._settings.budget, lambda n: list(islice(waiting, n)))

    def _prior(self) -> list[Trial]:
        return instrumented_prior(self._kernel, self._space, self._evaluator, self._warn)

    def _search_jointly(self, application: Application) -> None:
        """Search an application by models of its kernels' times and of its error; see :mod:`mptune.tuning.joint`."""
        ledger, budget = self._ledger, self._settings.budget
        finalists = min(_MOST_FINALISTS, max(_FEWEST_FINALISTS, round(_FINALISTS_SHARE * budget)))
        with (
            tempfile.TemporaryDirectory(prefix="mptune-") as folder,
            contextlib.closing(
                JointSearch(
                    application,
                    self._space,
                    ledger.objective,
                    self._evaluator,
                    self._kernel_evaluator,
                    ledger.stored_of_kernel,
                    self._keep_of_kernel,
                    ledger.searching,
                    Path(folder),
                    self._settings.seed,
                    self._warn,
                )
            ) as joint,
        ):

            def left() -> int:
                return ledger.remaining() - finalists

            def evaluate(phase: str, configurations: Sequence[Configuration]) -> None:
                waiting = iter(configurations)
                self._evaluate(phase, budget, lambda n: list(islice(waiting, n)), joint.tell)

            looks = True

            def look(trial: Trial) -> None:
                nonlocal looks
                if not looks or not joint.is_new(trial.configuration):
                    return
                try:
                    joint.look(trial.configuration)
                except MptuneError as error:
                    if not any(times.launches for times in kernel_times(trial).values()):
                        raise  # there is nothing to tune
                    looks = False
                    self._warn(f"{error}; the search goes on without models of its kernels' times")
                else:
                    self._file.update(dataclasses.replace(self._file.state, launches=joint.launches))

            joint.expect(self._prior())
            first = joint.first()[: max(1, budget // 4)]
            evaluate("baseline", first)
            begun = [ledger.trials[c] for c in first if c in ledger.trials]
            self._warn_of_the_widest(begun)
            if begun and all(trial.status is Status.ERROR for trial in begun):
                # What the steps do wrong, they do in every configuration.
                raise KernelError(begun[0].message)
            # What an earlier session measured is known before anything else is chosen.
            evaluate("search", ledger.waiting)
            for trial in list(ledger.trials.values()):
                if trial.is_valid and ledger.is_in_time:
                    look(trial)
            if not ledger.is_in_time:
                return
            if not joint.launches:
                self._search()
                return
            ledger.begin_phase("search", budget, adopts=False)
            while (configuration := joint.next(left)) is not None:
                evaluate("search", [configuration])
                is_valid = configuration in ledger.trials and ledger.trials[configuration].is_valid
                if is_valid and ledger.is_in_time:
                    look(ledger.trials[configuration])
                ledger.begin_phase("search", budget, adopts=False)
            ended = NOTHING_LEFT if left() > 0 else ""
            evaluate("search", joint.finalists(finalists - 1))
            ended = ended if ledger.evaluations + ledger.kernel_evaluations < budget else ""
            self._file.update(dataclasses.replace(self._file.state, ended=ended))

    def _out_of_time(self) -> str:
        """Say that the time limit ended the search with evaluations left, and before what; empty if it did not."""
        ledger, state = self._ledger, self._file.state
        spent = ledger.evaluations + ledger.kernel_evaluations
        if ledger.is_in_time or state.ended or spent >= self._settings.budget:
            return ""
        more = "give more --time-limit, or smaller sizes (--size)"
        if not ledger.trials:
            return f"the time limit was spent on preparation; {more}"
        fixed = self._kernel.baseline_values()
        is_tried = any(not configuration.is_among(fixed) for configuration in ledger.trials)
        if not is_tried and any(set(self._space.parameter(name).values) - {*fixed[name]} for name in fixed):
            return f"the time limit was reached before any narrower type was tried; {more}"
        return "the time limit was reached"

    def _kernel_evaluator(self, kernel: Kernel) -> DeviceEvaluator:
        """Return what evaluates a kernel of an application alone, on data it has within it."""
        settings = self._settings
        return DeviceEvaluator(
            kernel,
            kernel.resolve_sizes(),
            self._file.info.backend,
            flags=settings.flags,
            limits=settings.limits,
            compilers=compilers_ahead(self._file.info.backend) if settings.compilers is None else settings.compilers,
            policy=MeasurementPolicy(Objective(), settings.limits.run_s),
        )

    def _keep_of_kernel(self, label: str, trial: Trial) -> None:
        ledger, settings = self._ledger, self._settings
        ledger.keep_of_kernel(label, trial)
        self._on_progress(Progress(f"kernel {label}", trial, ledger.result, settings.budget, ledger.elapsed_s, False))

    def _listing(self, trial: Trial) -> str | None:
        """Return the assembly of a configuration where it runs on this machine's processor."""
        settings = self._settings
        backend = get_backend(self._file.info.backend)
        kernel = self._kernel
        if settings.scheduler is not None or not backend.shares_memory or not isinstance(kernel, Kernel):
            return None
        try:
            source = render(kernel, trial.configuration, self._plan.sizes)
            return backend.compiler.listing(source, kernel.function, CompileOptions(flags=settings.flags))
        except MptuneError:
            return None

    def found(self) -> Run:
        """Return everything so far."""
        return self._ledger.result()

    def _find_baseline(self, budget: int) -> None:
        """Search baselines until one is right, where none of those tried is though others are."""

        def is_missing() -> bool:
            run = self._ledger.result()
            is_sought = run.baseline is None and any(map(run.info.objective.is_feasible, run.trials))
            return is_sought and not fall_short(run)

        if is_missing():
            self._search_baseline(budget, is_missing)

    def _search_baseline(self, budget: int, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Search among the all-fp64, accurate configurations, and measure speedup against the fastest."""
        try:
            space = self._space.restrict(self._kernel.baseline_values())
        except (EmptySpaceError, UnknownNameError):
            return
        strategy = self._plan.strategy(space, self._ledger.objective)
        if known := [trial for trial in self._ledger.trials.values() if trial.configuration in space]:
            strategy.tell(known)
        self._evaluate("baseline", budget, lambda n: strategy.ask(n) if goes_on() else [], strategy.tell)
        self._warn_of_the_widest(list(self._ledger.trials.values()))
        baseline = self._ledger.result().baseline
        if baseline is not None:
            objective = self._ledger.objective
            self._ledger.objective = objective.with_baseline(objective.value(baseline))

    def _warn_of_the_widest(self, trials: Sequence[Trial]) -> None:
        """Say before the search that no types can meet the threshold, where the widest do not."""
        objective, fixed = self._ledger.objective, self._kernel.baseline_values()
        widest = [trial for trial in trials if trial.is_valid and trial.configuration.is_among(fixed)]
        if not widest or any(objective.error_excess(trial) <= 0 for trial in widest):
            return
        if any(beyond_baseline({p.name: value}, fixed) for p in self._space.parameters for value in p.values):
            return
        best = min(widest, key=objective.error_excess)
        broken = objective.binding(best)
        on_request = {
            p.name: [v for v in p.every_value if beyond_baseline({p.name: v}, fixed)] for p in self._kernel.parameters
        }
        asking = [f"-p {name}={','.join(map(str, (*fixed[name], *more)))}" for name, more in on_request.items() if more]
        what_helps = (
            f"sums that keep what rounding loses may, which are searched on request alone: {' '.join(asking)}"
            if asking
            else "no types are more exact than the method is, unless template and reference disagree, so end this and "
            "give a larger threshold"
        )
        self._warn(
            f"the widest types themselves do not meet the threshold: their {self._file.info.measured_by(broken)} is "
            f"{best.metric(broken):.3g}, above {objective.limits[broken]:g}; {what_helps}"
        )

    def _narrow(self, trial: Trial | None, budget: int) -> None:
        """Evaluate a trial with every narrower type used throughout: what any mixture of types has to beat.

        Types that are known to be inaccurate are left out.
        """
        if trial is None:
            return
        uniform = uniform_types(self._space.parameters).values()
        siblings = [Configuration({**trial.configuration, **types}) for types in uniform]
        trials, signature_of = self._ledger.trials, self._kernel.signature_of
        wrong = {signature_of(t.configuration) for t in trials.values() if t.status is Status.INACCURATE}
        untried = iter([c for c in siblings if c not in trials and c in self._space and signature_of(c) not in wrong])
        self._evaluate("search", budget, lambda n: list(islice(untried, n)))

    def _confirm_baseline(self, budget: int) -> None:
        """Search the baseline once more, now that it is known which configurations are fast.

        The fastest are given the baseline's types, and the baseline the types of the best; between these, a model of
        time to which types are one more feature proposes baselines. So neither is better tuned than the other.
        """
        if fall_short(self._ledger.result()):
            return
        third = -(-(budget - self._ledger.evaluations) // 3)
        self._cross(budget - third)
        strategy = self._plan.baseline_strategy(self._space, self._ledger.objective)
        strategy.tell(list(self._ledger.trials.values()))
        self._evaluate("baseline", budget - 1, strategy.ask, strategy.tell, lead=self._evaluator.capacity)
        self._cross(budget)

    def _cross(self, budget: int) -> None:
        """Give the best the types of the baseline and the baseline those of the best, as long as that is new."""
        fixed = self._widest
        asked: set[Configuration] = set()

        def crossings() -> Iterator[Configuration]:
            run, objective = self._ledger.result(), self._ledger.objective
            ranked = sorted(
                (t for t in run.trials if not math.isnan(objective.performance(t))),
                key=lambda t: (objective.is_feasible(t), objective.performance(t)),
                reverse=True,
            )
            pairs = [(trial.configuration, fixed) for trial in ranked[:_CROSSED]]
            if run.baseline is not None:
                pairs += [(run.baseline.configuration, {n: t.configuration[n] for n in fixed}) for t in ranked[:1]]
            for configuration, types in pairs:
                crossed = Configuration({**configuration, **types})
                if crossed not in self._ledger.trials and crossed not in asked and crossed in self._space:
                    asked.add(crossed)
                    yield crossed

        # No further ahead than devices are free: which are the fastest changes with every trial.
        self._evaluate("baseline", budget, lambda n: list(islice(crossings(), n)), lead=self._evaluator.capacity)

    @property
    def _widest(self) -> dict[str, Value]:
        """The values that make any configuration one of the baseline's."""
        return {name: values[0] for name, values in self._kernel.baseline_values().items()}

    def _own_baselines(self) -> list[Configuration]:
        """Return the winner's tuning in the baseline's types if it has not been tried."""
        run, fixed = self._ledger.result(), self._kernel.baseline_values()
        if fall_short(run):
            return []
        if run.best is None or run.best.configuration.is_among(fixed):
            return []
        own = Configuration({**run.best.configuration, **self._widest})
        return [own] if own not in self._ledger.trials and own in self._space else []

    def _try_own_baselines(self) -> bool:
        """Give the winner the baseline's types, if that is new and the budget has room; whether it was and had.

        The finals order anew what the search has found, so that it may not be the winner that was given them before.
        """
        own = self._own_baselines()
        waiting = iter(own)
        self._evaluate("baseline", self._settings.budget, lambda n: list(islice(waiting, n)))
        tried = [configuration for configuration in own if configuration in self._ledger.trials]
        self._settling.consider(tried)
        return bool(tried)

    def _spend_the_rest(self) -> None:
        """Search baselines with what was kept for the winner's and is left."""
        is_spent = self._ledger.evaluations >= self._settings.budget or not self._ledger.is_in_time
        if isinstance(self._kernel, Application) or is_spent:
            return
        baseline, search = ("baseline", self._plan.baseline_strategy), ("search", self._plan.strategy)
        for phase, make in (search,) if fall_short(self._ledger.result()) else (baseline, search):
            strategy = make(self._space, self._ledger.objective)
            strategy.tell(list(self._ledger.trials.values()))
            self._evaluate(phase, self._settings.budget, strategy.ask, strategy.tell)

    def _say_what_is_untried(self) -> None:
        settings = self._settings
        if settings.baseline_share and self._own_baselines():
            self._warn(
                "the winner's own tuning was not tried in the baseline's types, as budget or time was spent before: "
                "the baseline may be tuned less well, and the true speedup be less; go on with --resume and a larger "
                "--budget"
            )

    def _evaluate(
        self,
        phase: str,
        budget: int,
        ask: Callable[[int], Sequence[Configuration]],
        tell: Callable[[Sequence[Trial]], None] | None = None,
        lead: int | None = None,
    ) -> None:
        """Evaluate what ``ask`` gives until the run has so many trials, and report each.

        Stored trials nobody asked for are taken over as soon as something new is asked for, if anybody is told.
        """
        ledger, settings = self._ledger, self._settings
        ledger.begin_phase(phase, budget, adopts=tell is not None)
        for trials in ask_and_tell(
            ledger, ask, tell or (lambda _: None), ledger.remaining, thinking=ledger.searching, lead=lead
        ):
            for trial in trials:
                is_replay, ahead = trial.configuration in ledger.replayed, self._evaluator.ahead
                self._on_progress(
                    Progress(phase, trial, ledger.result, settings.budget, ledger.elapsed_s, is_replay, ahead)
                )

    def _tell_verified(self, trial: Trial) -> None:
        ledger, budget = self._ledger, self._settings.budget
        self._on_verification(Progress("verification", trial, ledger.result, budget, ledger.elapsed_s, False))

    def _settle_reported(self) -> None:
        """Settle what is going to be reported, unless an earlier session of the run has, undisturbed.

        The verification may take away one of them; then those that take their place are settled, nothing twice.
        """
        ledger = self._ledger
        is_new = bool(ledger.measured_here or self._settling.were_disturbed)
        if not is_new:
            self._settling.take_over()
        ledger.measured_here = is_new
        if is_new or self._is_unsettled:
            self._settling.settle()
        while self._settings.baseline_share and self._try_own_baselines():
            if self._is_unsettled:
                self._settling.settle()

    @property
    def _is_unsettled(self) -> bool:
        return not self._settling.are_settled

    def _settle_and_verify(self) -> None:
        self._settle_reported()
        # On further inputs errors grow, so that others may come to be reported.
        while self._verification():
            self._settle_reported()
