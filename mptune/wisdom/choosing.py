"""Which configuration to use at some sizes under a budget, of what wisdom knows: a pure function of these.

Configurations are ranked by what they lose: their types beside the fastest that is known, and they beside the fastest
of their types. At a tuned size that was measured; between two it is interpolated in the logarithms of the sizes, and
outside it is that of the nearest. What was not measured at the nearest tuned size loses more the farther away it was.
Types that are not surely slower than the fastest lose nothing, and of types that lose the same the most accurate are
taken.
The first is taken that is valid at the sizes and whose error keeps the budget there with the confidence that is wanted
(:mod:`mptune.wisdom.error_growth`). Narrower types than the baseline's are no choice unless they are surely faster at a
tuned
size; more accurate ones are where the baseline breaks the budget. What was verified as the winner of a run under no
larger limit needs no model at its own sizes, as long as no run saw its types break the budget there, and the baseline's
types none anywhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import numbers
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mptune.errors import ConstraintError, EmptySpaceError, KernelError, MptuneError, UnknownNameError, WisdomError
from mptune.kernel import Application, Kernel, Sizes, Tunable
from mptune.kernel.limits import device_constraints, whole_space, widest
from mptune.results.unseen import CONFIDENCE
from mptune.space.configuration import Configuration, Value, is_number
from mptune.space.constraints import Constraint, compile_constraint, with_canonical_precisions
from mptune.space.parameters import PrecisionParameter, beyond_baseline
from mptune.space.search_space import SearchSpace
from mptune.wisdom.error_growth import LOG_REACH, REACH, ErrorGrowth, SizedError, as_zero_in, fitted, may_overflow_in
from mptune.wisdom.records import KernelWisdom

__all__ = ["LOSS_BY_DISTANCE", "Candidate", "Choice", "Chooser", "budget_of"]

Place = tuple[float, ...]

#: What a configuration is taken to lose, as a logarithm, for each factor of e that its nearest measurement is farther
#: away than the nearest tuned size.
LOSS_BY_DISTANCE: Final = 0.1
#: What took longer than the fastest by more than this factor is slower, however little is known of their times.
_MOST_TIED: Final = 1.1


def budget_of(known: Sequence[KernelWisdom], max_error: float | Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the error limits by the names of metrics: those that are given, or the smallest the runs were made with.

    Raises:
        MptuneError: a limit is no number above 0.
        UnknownNameError: no error of a name given is known.
    """
    records = [record for each in known for record in each.tuned]
    if max_error is None:
        found: dict[str, float] = {}
        for record in records:
            for name, limit in record.threshold.items():
                found[name] = min(limit, found.get(name, math.inf))
        return found
    given: Sequence[Any] = [*max_error.values()] if isinstance(max_error, Mapping) else [max_error]
    for limit in given:
        if not (isinstance(limit, numbers.Real) and float(limit) > 0):
            raise MptuneError(f"an error limit is a number above 0, not {limit!r}")
    if not isinstance(max_error, Mapping):
        return {"error": float(max_error)}
    names = {name for record in records for timed in record.configurations for name in timed.errors.worst}
    budget = {f"error.{name}" if name else "error": float(limit) for name, limit in max_error.items()}
    for name in budget:
        if name not in names:
            short = sorted(each.removeprefix("error.") for each in names if each != "error")
            raise UnknownNameError("output or error metric in the wisdom:", name.removeprefix("error."), short)
    return budget


@dataclass(frozen=True, slots=True)
class Choice:
    """A configuration and why it is the one.

    Attributes:
        configuration: what to use.
        why: what it is and why, in one sentence.
        reason: why it is the baseline where something faster is known; else empty.
        speedup: how many times as fast as the baseline it is expected to be; None if that is not known.
        limits: what its errors are at most, by the names of metrics, where the model was asked.
    """

    configuration: Configuration
    why: str
    reason: str = ""
    speedup: float | None = None
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration that was measured at some of the tuned sizes.

    Attributes:
        configuration: in the kernel's own values.
        signature: its accuracy signature.
        losses: how much longer it took than the best of its types, as a logarithm, by the number of the tuned sizes.
        of_types: how much longer those took than the best of all.
        sure_at: at which sizes it is the verified winner of a run whose limits are within the budget, and which no run
            saw its signature break.
        is_wide: whether it has the baseline's types.
        constraints: what has to hold at the sizes.
        errors: the largest that were measured, by the names of metrics.
    """

    configuration: Configuration
    signature: tuple[Value, ...]
    losses: Mapping[int, float]
    of_types: Mapping[int, float]
    sure_at: frozenset[int]
    is_wide: bool
    constraints: tuple[Constraint, ...]
    errors: Mapping[str, float]


class Chooser:
    """What is known of a kernel on a device, made ready for choosing.

    Args:
        known: what is known.
        kernel: the definition, also that of an application.
        limits: what the device allows.
        budget: error limits by the names of metrics, as of :func:`budget_of`.
        confidence: with which errors keep them.
        is_own: whether it was measured on this device; otherwise no size is one that was measured.
        form: which form of the problem is meant, as of :meth:`Tunable.form_of`; by default the only one that is known.

    Attributes:
        form: that.
        names: of the sizes.
        tuned: the tuned sizes, in that order.
        places: their logarithms.
        candidates: what there is to choose from.
        growth: by accuracy signature and the name of an error, its limits by size.

    Raises:
        WisdomError: the wisdom has other sizes than the kernel, values that the kernel has not, or several forms, none
            of which is said, or not the one that is.
        MptuneError: the confidence is not between 0 and 1.
    """

    def __init__(
        self,
        known: KernelWisdom,
        kernel: Tunable,
        limits: Mapping[str, Any] | None = None,
        budget: Mapping[str, float] | None = None,
        confidence: float = CONFIDENCE,
        *,
        is_own: bool = True,
        form: Mapping[str, int] | None = None,
    ) -> None:
        if not (is_number(confidence) and 0 < confidence < 1):
            raise MptuneError(f"confidence is a number between 0 and 1, such as {CONFIDENCE:g}, not {confidence!r}")
        self.form = _form_of(known, kernel, form)
        self.known = known = dataclasses.replace(
            known, tuned=tuple(record for record in known.tuned if kernel.form_of(record.form) == self.form)
        )
        self.kernel = kernel
        self.budget = dict(budget_of([known]) if budget is None else budget)
        self.confidence = confidence
        self._limits = limits or {}
        self._is_own = is_own
        self._space_at: tuple[Sizes, SearchSpace] | None = None
        self.names = _names_of(known, kernel)
        self.tuned = tuple(sorted({self._exactly(record.sizes) for record in known.tuned}))
        self.places: tuple[Place, ...] = tuple(tuple(map(math.log, sizes)) for sizes in self.tuned)
        self.candidates = self._candidates()
        self.growth = self._growth()

    def choose(self, sizes: Mapping[str, int], is_there: Callable[[Candidate], bool] | None = None) -> Choice:
        """Return what to use at some sizes.

        Args:
            sizes: those.
            is_there: says of a candidate whether it may be chosen; without it all may, and what was never measured.

        Raises:
            KernelError: not even a configuration in the baseline's types is valid there, or no argument holds a size.
        """
        self._require_held(sizes)
        here = self._place(sizes)
        distances = [math.dist(place, here) for place in self.places]
        at = self._number_of(sizes)
        losses = self._losses(here, distances)
        wide_loss = min(
            (loss for loss, candidate in zip(losses, self.candidates, strict=True) if candidate.is_wide), default=None
        )
        refused: dict[tuple[Value, ...], Mapping[str, float]] = {}
        spare: int | None = None
        for number in self._ranked(losses, at):
            candidate = self.candidates[number]
            if candidate.signature in refused or not self._may_be(candidate, sizes, is_there):
                continue
            limits: Mapping[str, float] = {}
            if candidate.is_wide:
                if not self._keeps(candidate.errors):
                    spare = number if spare is None else spare
                    continue
            elif at not in candidate.sure_at:
                limits = self.limits_of(candidate, sizes)
                if not self._keeps(limits):
                    refused[candidate.signature] = limits
                    continue
            return self._chosen(number, sizes, at, losses, wide_loss, limits, refused)
        if spare is not None:
            return self._chosen(spare, sizes, at, losses, wide_loss, {}, refused)
        reason = self._why_wide(sizes, refused) or f"nothing that is known is valid at {_words(sizes)}"
        return self._untuned(sizes, reason, is_there is None)

    def widest(self, sizes: Mapping[str, int], is_there: Callable[[Candidate], bool] | None = None) -> Choice:
        """Return the baseline to use at some sizes: the one that is the best for the nearest tuned ones.

        Args:
            sizes: those.
            is_there: says of a candidate whether it may be chosen; without it all may, and what was never measured.

        Raises:
            KernelError: no configuration in the baseline's types is valid there, or no argument holds a size.
        """
        self._require_held(sizes)
        here = self._place(sizes)
        distances = [math.dist(place, here) for place in self.places]
        losses = self._losses(here, distances)
        for number in self._ranked(losses, None):
            candidate = self.candidates[number]
            if candidate.is_wide and self._may_be(candidate, sizes, is_there):
                return Choice(candidate.configuration, "the baseline", "", 1.0)
        return self._untuned(sizes, f"nothing that is known is valid at {_words(sizes)}", is_there is None)

    def _untuned(self, sizes: Mapping[str, int], reason: str, may_be: bool) -> Choice:
        if not may_be:
            raise KernelError(f"{self.kernel.called}: {reason}")
        try:
            configuration = widest(self.kernel, _sizes(sizes), self._limits)[0]
        except EmptySpaceError as error:
            text = _words(sizes)
            raise KernelError(f"{self.kernel.called} has no baseline to fall back on at {text}: {error}") from error
        return Choice(configuration, f"the widest types, not tuned: {reason}", reason)

    def limits_of(self, candidate: Candidate, sizes: Mapping[str, int]) -> dict[str, float]:
        """Return what each error with a limit is at most at some sizes; infinite where nothing can be said."""
        found = {}
        for name in self.budget:
            growth = self.growth.get((candidate.signature, name))
            found[name] = math.inf if growth is None else growth.limit(sizes)
        return found

    # -- parts -------------------------------------------------------------------------------

    def _keeps(self, limits: Mapping[str, float]) -> bool:
        return all(limits.get(name, math.inf) <= budget for name, budget in self.budget.items())

    def _require_held(self, sizes: Mapping[str, int]) -> None:
        for name in self.names:
            if sizes[name] > (most := self.kernel.largest_size(name)):
                shown = reprlib.repr(sizes[name])
                raise KernelError(f"size {name} of {self.kernel.called} is at most {most}, not {shown}")

    def _exactly(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(sizes[name] for name in self.names)

    def _number_of(self, sizes: Mapping[str, int]) -> int | None:
        """Return which of the tuned sizes these are; None for none of them."""
        given = self._exactly(sizes)
        return self.tuned.index(given) if given in self.tuned else None

    def _place(self, sizes: Mapping[str, int]) -> Place:
        return tuple(map(math.log, self._exactly(sizes)))

    def _ranked(self, losses: Sequence[float], at: int | None) -> list[int]:
        """Return the numbers of the candidates in order: of equals a winner here, a baseline, the least error."""

        def rank(number: int) -> tuple[float, bool, bool, float, int]:
            candidate = self.candidates[number]
            error = candidate.errors.get("error", math.inf)
            return losses[number], at not in candidate.sure_at, not candidate.is_wide, error, number

        return sorted(range(len(self.candidates)), key=rank)

    def _losses(self, here: Place, distances: Sequence[float]) -> list[float]:
        """Return how much longer each candidate is expected to take than the best, as a logarithm."""
        of_types: dict[tuple[Value, ...], float] = {}
        found = []
        for candidate in self.candidates:
            if candidate.signature not in of_types:
                of_types[candidate.signature] = self._told(candidate.of_types, here, distances)[0]
            found.append(of_types[candidate.signature] + self._told(candidate.losses, here, distances)[0])
        return found

    def _told(
        self, losses: Mapping[int, float], here: Place, distances: Sequence[float]
    ) -> tuple[float, tuple[int, ...]]:
        """Return a loss at some sizes, and the numbers of the tuned ones it is told from: one, or two around it."""
        nearest = min(losses, key=lambda number: (distances[number], number))
        loss, away = losses[nearest], distances[nearest]
        used: tuple[int, ...] = (nearest,)
        there = self.places[nearest]
        beyond = [
            number
            for number in losses
            if sum((p - h) * (t - h) for p, h, t in zip(self.places[number], here, there, strict=True)) < 0
        ]
        if beyond:
            other = min(beyond, key=lambda number: (distances[number], number))
            loss += away / (away + distances[other]) * (losses[other] - loss)
            used = (nearest, other)
        return loss + LOSS_BY_DISTANCE * (away - min(distances)), used

    def _may_be(
        self, candidate: Candidate, sizes: Mapping[str, int], is_there: Callable[[Candidate], bool] | None
    ) -> bool:
        return self._is_valid(candidate, sizes) and (is_there is None or is_there(candidate))

    def _is_valid(self, candidate: Candidate, sizes: Mapping[str, int]) -> bool:
        if isinstance(self.kernel, Application):
            return candidate.configuration in self._space(_sizes(sizes))
        values = {**candidate.configuration, **sizes}
        assert isinstance(self.kernel, Kernel)
        try:
            if not all(constraint.holds(values) for constraint in candidate.constraints):
                return False
            self.kernel.launch_shape(candidate.configuration, _sizes(sizes))
        except (ConstraintError, KernelError):
            return False
        return True

    def _space(self, sizes: Sizes) -> SearchSpace | tuple[()]:
        """Return what is valid of an application at some sizes, where its kernels' constraints are what they are."""
        if self._space_at is None or self._space_at[0] != sizes:
            with contextlib.suppress(EmptySpaceError):
                self._space_at = sizes, whole_space(self.kernel, sizes, self._limits)
        return self._space_at[1] if self._space_at is not None and self._space_at[0] == sizes else ()

    def _chosen(
        self,
        number: int,
        sizes: Mapping[str, int],
        at: int | None,
        losses: Sequence[float],
        wide_loss: float | None,
        limits: Mapping[str, float],
        refused: Mapping[tuple[Value, ...], Mapping[str, float]],
    ) -> Choice:
        candidate, text = self.candidates[number], _words(sizes)
        speedup = None if wide_loss is None else math.exp(wide_loss - losses[number])
        if candidate.is_wide:
            reason = self._why_wide(sizes, refused) if refused else ""
            why = f"the baseline, {reason or f'than which nothing known is surely faster at {text}'}"
            return Choice(candidate.configuration, why, reason, 1.0 if speedup is None else speedup, limits)
        fast = "" if speedup is None else f", about {speedup:.2g} times as fast as the baseline"
        is_measured = at in candidate.losses and self._is_own
        where = f"measured at {text}" if is_measured else self._told_from(candidate, sizes)
        if at in candidate.sure_at:
            sure = f"the winner of a run there, within {self._budget_text()}" if self.budget else "no error limit"
        elif not self.budget:
            sure = "no error limit"
        else:
            most = ", ".join(f"{_short(name)} at most {limit:.2g}" for name, limit in limits.items())
            sure = f"{most} with {100 * self.confidence:g}% confidence"
        but = f"; {len(refused)} faster choices of types may exceed {self._budget_text()}" if refused else ""
        return Choice(candidate.configuration, f"{where}{fast}; {sure}{but}", "", speedup, limits)

    def _told_from(self, candidate: Candidate, sizes: Mapping[str, int]) -> str:
        here = self._place(sizes)
        _, used = self._told(candidate.losses, here, [math.dist(place, here) for place in self.places])
        tuned = [next(r.place for r in self.known.tuned if self._number_of(r.sizes) == n) for n in sorted(used)]
        device = "" if self._is_own else f" on {self.known.device}"
        return f"at {_words(sizes)}, told from {' and '.join(map(_words, tuned))}{device}"

    def _why_wide(self, sizes: Mapping[str, int], refused: Mapping[tuple[Value, ...], Mapping[str, float]]) -> str:
        """Say why nothing narrower is used; empty where nothing narrower was refused."""
        far = []
        for index, name in enumerate(self.names):
            tuned = sorted({record.sizes[name] for record in self.known.tuned})
            if not self._in_reach(index, sizes[name]):
                span = f"{tuned[0]}" if len(tuned) == 1 else f"{tuned[0]} to {tuned[-1]}"
                far.append(f"{name}={sizes[name]} is more than {REACH:g} times off what was tuned, {name}={span}")
        if far:
            return f"errors cannot be told: {', '.join(far)}"
        if not refused:
            return ""
        if not self._is_near(sizes):
            return f"errors cannot be told: nothing within {REACH:g} times of {_words(sizes)} was tuned"
        signature, limits = next(iter(refused.items()))
        types = ", ".join(f"{name}={value}" for name, value in zip(self.known.signature, signature, strict=True))
        most = ", ".join(
            f"{_short(name)} up to {limit:.2g}"
            if math.isfinite(limit)
            else f"an unknown {_short(name)}{self._why_unknown(signature, name)}"
            for name, limit in limits.items()
            if limit > self.budget[name]
        )
        return (
            f"nothing faster is sure to keep {self._budget_text()} at {_words(sizes)} with "
            f"{100 * self.confidence:g}% confidence ({types}: {most})"
        )

    def _why_unknown(self, signature: tuple[Value, ...], name: str) -> str:
        growth = self.growth.get((signature, name))
        if growth is not None and growth.is_exact:
            return ", as what is exact at the tuned sizes need not be so here"
        return ", as it may overflow outside of the tuned sizes" if may_overflow_in(signature) else ""

    def _in_reach(self, index: int, size: int) -> bool:
        here = math.log(size)
        tuned = [place[index] for place in self.places]
        return min(tuned) - LOG_REACH <= here <= max(tuned) + LOG_REACH

    def _is_near(self, sizes: Mapping[str, int]) -> bool:
        here = self._place(sizes)
        return any(max(abs(h - p) for h, p in zip(here, place, strict=True)) <= LOG_REACH for place in self.places)

    def _budget_text(self) -> str:
        return " and ".join(f"{_short(name)} {limit:g}" for name, limit in self.budget.items()) or "no limit"

    # -- made once -----------------------------------------------------------------------------

    def _candidates(self) -> tuple[Candidate, ...]:
        wide = self.kernel.baseline_values()
        times: dict[Configuration, dict[int, float]] = {}
        errors: dict[Configuration, dict[str, float]] = {}
        sure: dict[Configuration, set[int]] = {}
        broken: set[tuple[tuple[Value, ...], int]] = set()
        winners: dict[int, tuple[float, Configuration]] = {}
        worthwhile: set[Configuration] = set()
        spans: dict[tuple[Configuration, int], tuple[float, float]] = {}
        for record in self.known.tuned:
            number = self.tuned.index(self._exactly(record.sizes))
            within = self._is_own and all(
                record.threshold.get(name, math.inf) <= limit for name, limit in self.budget.items()
            )
            seen = [(self.known.signature_of(timed.configuration), timed.errors) for timed in record.configurations]
            broken.update(
                (signature, number)
                for signature, errors in [*record.signatures.items(), *seen]
                if any(errors.worst.get(name, 0.0) > limit for name, limit in self.budget.items())
            )
            for timed in record.configurations:
                own = self._own(timed.configuration)
                time, span = record.relative_time(timed), record.time_span(timed)
                if timed.is_faster or own.is_among(wide):
                    worthwhile.add(own)
                elif record.baseline is not None:
                    time = max(time, record.baseline.time_ms)
                known = times.setdefault(own, {})
                if time < known.get(number, math.inf):
                    known[number], spans[own, number] = time, span
                worst = errors.setdefault(own, {})
                worst.update({name: max(error, worst.get(name, 0.0)) for name, error in timed.errors.worst.items()})
                sure.setdefault(own, set()).update({number} if timed.is_best and within else ())
                if timed.is_best and time < winners.get(number, (math.inf,))[0]:
                    winners[number] = time, own
        # What is nowhere surely faster than the baseline gives up accuracy for nothing, unless it is more accurate.
        times = {
            configuration: measured
            for configuration, measured in times.items()
            if configuration in worthwhile or beyond_baseline(configuration, wide)
        }
        least = _least(times, lambda _: None, winners).get(None, {})
        of_types = _least(times, self.known.signature_of, winners)
        tied = self._tied(times, spans, winners)
        found = []
        for configuration, measured in times.items():
            constraints = self._constraints_on(configuration)
            if constraints is None:
                continue
            signature = self.known.signature_of(configuration)
            fastest = of_types[signature]
            candidate = Candidate(
                configuration,
                signature,
                {number: max(0.0, math.log(time / fastest[number])) for number, time in measured.items()},
                {
                    number: 0.0 if (signature, number) in tied else max(0.0, math.log(time / least[number]))
                    for number, time in fastest.items()
                },
                frozenset(number for number in sure[configuration] if (signature, number) not in broken),
                configuration.is_among(wide),
                constraints,
                errors[configuration],
            )
            found.append(candidate)
        return tuple(sorted(found, key=lambda candidate: candidate.configuration.to_json()))

    def _tied(
        self,
        times: Mapping[Configuration, Mapping[int, float]],
        spans: Mapping[tuple[Configuration, int], tuple[float, float]],
        winners: Mapping[int, tuple[float, Configuration]],
    ) -> set[tuple[tuple[Value, ...], int]]:
        """Return the signatures that are not surely slower than the fastest, or the winner, each with where that is."""
        found = set()
        for number in range(len(self.tuned)):
            at = {each: measured[number] for each, measured in times.items() if number in measured}
            first = winners[number][1] if number in winners else min(at, key=lambda each: at[each], default=None)
            if first is None:
                continue
            _, latest = spans[first, number]
            found |= {
                (self.known.signature_of(each), number)
                for each, time in at.items()
                if time <= _MOST_TIED * at[first] and spans[each, number][0] <= latest
            }
        return found

    def _own(self, configuration: Configuration) -> Configuration:
        """Return a configuration in the kernel's own values; one of other parameters is refused."""
        for name in configuration:
            if name not in self.kernel.parameter_names:
                raise UnknownNameError(
                    f"parameter in the wisdom of kernel {self.known.kernel}:", name, self.kernel.parameter_names
                )
        for name in self.kernel.parameter_names:
            if name not in configuration:
                raise WisdomError(
                    f"the wisdom of kernel {self.known.kernel} has a configuration without a value of {name}: "
                    f"{configuration}"
                )
        return self.kernel.own(configuration)

    def _constraints_on(self, configuration: Configuration) -> tuple[Constraint, ...] | None:
        """Return what has to hold at the sizes, None if a configuration is valid nowhere here."""
        if not isinstance(self.kernel, Kernel):
            return ()
        types = frozenset(p.name for p in self.kernel.parameters if isinstance(p, PrecisionParameter))
        sizes = {*self.kernel.sizes["default"]}
        names = (*self.kernel.parameter_names, *sizes)
        given = (*self.kernel.constraints, *device_constraints(self.kernel, self._limits))
        found = []
        for constraint in given:
            bound = with_canonical_precisions(compile_constraint(constraint, names), types)
            if bound.names & sizes:
                found.append(bound)
            elif not bound.holds(configuration):
                return None
        return tuple(found)

    def _growth(self) -> dict[tuple[tuple[Value, ...], str], ErrorGrowth]:
        points: dict[tuple[tuple[Value, ...], str], list[SizedError]] = {}
        for record in self.known.tuned:
            for signature, errors in record.signatures.items():
                for name, worst in errors.worst.items():
                    mean = errors.mean if name == "error" else None
                    points.setdefault((signature, name), []).append(
                        SizedError(record.sizes, worst, errors.draws, mean, errors.rounded, as_zero_in(signature))
                    )
        return {
            (signature, name): fitted(some, self.confidence, may_overflow=may_overflow_in(signature))
            for (signature, name), some in points.items()
            if name in self.budget
        }


def _least(
    times: Mapping[Configuration, Mapping[int, float]],
    group: Callable[[Configuration], Any],
    winners: Mapping[int, tuple[float, Configuration]],
) -> dict[Any, dict[int, float]]:
    """Return the time to compare with by group and number of the sizes: that of the winner where it is of the group.

    What is faster than the winner cannot be told from it, and the winner is the simplest of these.
    """
    found: dict[Any, dict[int, float]] = {}
    for configuration, measured in times.items():
        least = found.setdefault(group(configuration), {})
        for number, time in measured.items():
            least[number] = min(time, least.get(number, math.inf))
    for number, (time, configuration) in winners.items():
        found[group(configuration)][number] = time
    return found


def forms_in(known: KernelWisdom, kernel: Tunable) -> list[dict[str, int]]:
    """Return the forms of the problem that wisdom is of, each once."""
    forms = [kernel.form_of(record.form) for record in known.tuned]
    return [form for number, form in enumerate(forms) if form not in forms[:number]]


def _form_of(known: KernelWisdom, kernel: Tunable, given: Mapping[str, int] | None) -> dict[str, int]:
    """Return the form that is meant; other wisdom than of that is refused.

    Raises:
        WisdomError: nothing is known of it, or none is given and several are known.
    """
    found = forms_in(known, kernel)
    if not found:
        raise WisdomError(f"the wisdom of kernel {known.kernel} on {known.device} has no sizes")
    if given is None and len(found) == 1:
        return found[0]
    if given is None or given not in found:
        of = " and of ".join(map(_words, found))
        raise WisdomError(
            f"the wisdom of kernel {known.kernel} is of {of}, "
            + (
                f"not of {_words(given)}"
                if given
                else "which say nothing of each other: make it of runs of one of them"
            )
        )
    return dict(given)


def _names_of(known: KernelWisdom, kernel: Tunable) -> tuple[str, ...]:
    ours = sorted(kernel.extents)
    theirs = sorted(known.tuned[0].sizes)
    if ours != theirs:
        raise WisdomError(
            f"the wisdom of kernel {known.kernel} has the sizes {', '.join(theirs)}, and the kernel {', '.join(ours)}"
        )
    if known.signature != kernel.signature_names:
        raise WisdomError(
            f"the wisdom of kernel {known.kernel} has the accuracy signature {', '.join(known.signature)}, and the "
            f"kernel {', '.join(kernel.signature_names)}: it has changed since"
        )
    return tuple(ours)


def _sizes(sizes: Mapping[str, int]) -> Sizes:
    return sizes if isinstance(sizes, Sizes) else Sizes(sizes)


def _words(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sizes.items())


def _short(name: str) -> str:
    return "error" if name == "error" else f"error of {name.removeprefix('error.')}"
