"""Which configuration to use at some sizes under an error budget, of what wisdom knows.

Configurations are ranked by their loss: how much longer their types take than the fastest known ones, and how much
longer they take than the fastest of their types. A loss is measured at a tuned size, interpolated between two in the
logarithms of the sizes, and that of the nearest outside. Types that are not surely slower than the fastest lose
nothing, and of equal losses the most accurate configuration is taken.

The first configuration is chosen that is valid at the sizes and whose error keeps the budget there
(:mod:`mptune.wisdom.error_growth`). Types narrower than the baseline's have to be surely faster at a tuned size; more
accurate ones are chosen where the baseline breaks the budget. The verified winner of a run under no larger limit needs
no model at its own sizes, unless a run saw its types break the budget there. The baseline's types need none anywhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import numbers
import reprlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mptune.errors import ConstraintError, EmptySpaceError, KernelError, MptuneError, UnknownNameError, WisdomError
from mptune.kernel import Application, Kernel, Sizes, Tunable
from mptune.kernel.limits import device_constraints, whole_space, widest
from mptune.results.unseen import CONFIDENCE
from mptune.space.configuration import Configuration, Value, is_number
from mptune.space.constraints import Constraint, compile_constraint, with_canonical_precisions
from mptune.space.parameters import PrecisionParameter, beyond_baseline
from mptune.wisdom.error_growth import LOG_REACH, REACH, ErrorGrowth, SizedError, fitted
from mptune.wisdom.records import KernelWisdom

Signature = tuple[Value, ...]

#: What a configuration is taken to lose, as a logarithm, for each factor of e that its nearest measurement is farther
#: away than the nearest tuned size.
_LOSS_BY_DISTANCE: Final = 0.1
#: What took longer than the fastest by more than this factor is slower, however little is known of their times.
_MOST_TIED: Final = 1.1


def budget_of(known: Sequence[KernelWisdom], max_error: float | Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the error limits by the names of metrics: those given, or the smallest the runs were made with."""
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
        errors: the largest that were measured, by the names of metrics.
    """

    configuration: Configuration
    signature: Signature
    losses: Mapping[int, float]
    of_types: Mapping[int, float]
    sure_at: frozenset[int]
    is_wide: bool
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
        candidates: what there is to choose from.
        growth: by accuracy signature and the name of an error, its limits by size.
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
        _check_same(known, kernel)
        self.kernel = kernel
        self.budget = dict(budget_of([known]) if budget is None else budget)
        self.confidence = confidence
        self._limits = limits or {}
        self._is_own = is_own
        self._space = functools.lru_cache(1)(lambda *sizes: whole_space(kernel, Sizes(dict(sizes)), self._limits))
        self._constraints = [*_constraints_of(kernel, self._limits)] if isinstance(kernel, Kernel) else []
        self.names = tuple(sorted(kernel.extents))
        self.tuned = tuple(sorted({self._exactly(record.sizes) for record in known.tuned}))
        self._places = [*map(_place, self.tuned)]
        self.candidates = self._candidates()
        self.growth = self._growth()

    def choose(self, sizes: Mapping[str, int]) -> Choice:
        """Return what to use at some sizes."""
        self._require_held(sizes)
        limits = {each.signature: self.limits_of(each.signature, sizes) for each in self.candidates}
        kept = {signature for signature, most in limits.items() if self.keeps(most)}
        found = next((each for each in self.order(sizes, kept) if self.is_valid(each, sizes)), None)
        losses, at = self._losses(sizes), self._number_of(sizes)
        wide_loss = min((loss for each, loss in losses.items() if self.candidates[each].is_wide), default=None)
        refused = {}
        for number in self._ranked(sizes):
            candidate = self.candidates[number]
            if candidate is found and (not found.is_wide or self.keeps(found.errors)):
                break
            is_sure = at in candidate.sure_at or candidate.signature in kept
            if not candidate.is_wide and not is_sure and self.is_valid(candidate, sizes):
                refused[candidate.signature] = limits[candidate.signature]
        reason = self._why_wide(sizes, refused)
        text = _words(sizes)
        if found is None:
            return self._untuned(sizes, reason or f"nothing that is known is valid at {text}")
        loss = losses[self.candidates.index(found)]
        speedup = None if wide_loss is None else math.exp(wide_loss - loss)
        if found.is_wide:
            why = f"the baseline, {reason or f'than which nothing known is surely faster at {text}'}"
            return Choice(found.configuration, why, reason, 1.0 if speedup is None else speedup)
        fast = "" if speedup is None else f", about {speedup:.2g} times as fast as the baseline"
        is_measured = at in found.losses and self._is_own
        where = f"measured at {text}" if is_measured else self._told_from(found, sizes)
        most = {} if at in found.sure_at else limits[found.signature]
        sure = f"the winner of a run there, within {self._budget_text()}"
        if not self.budget:
            sure = "no error limit"
        elif most:
            errors = ", ".join(f"{_short(name)} at most {limit:.2g}" for name, limit in most.items())
            sure = f"{errors} with {100 * self.confidence:g}% confidence"
        but = f"; {len(refused)} faster choices of types may exceed {self._budget_text()}" if refused else ""
        return Choice(found.configuration, f"{where}{fast}; {sure}{but}", "", speedup, most)

    def widest(self, sizes: Mapping[str, int]) -> Choice:
        """Return the baseline to use at some sizes: the one that is the best for the nearest tuned ones."""
        self._require_held(sizes)
        for candidate in self.order(sizes, ()):
            if candidate.is_wide and self.is_valid(candidate, sizes):
                return Choice(candidate.configuration, "the baseline", "", 1.0)
        return self._untuned(sizes, f"nothing that is known is valid at {_words(sizes)}")

    def order(self, sizes: Mapping[str, int], kept: Collection[Signature]) -> list[Candidate]:
        """Return the candidates that may be used at some sizes, the one to be preferred first.

        Baselines that break the budget are the last.

        Args:
            sizes: those.
            kept: the accuracy signatures whose errors keep the budget there.
        """
        ranked, at = [self.candidates[number] for number in self._ranked(sizes)], self._number_of(sizes)
        first = [c for c in ranked if (self.keeps(c.errors) if c.is_wide else at in c.sure_at or c.signature in kept)]
        return first + [c for c in ranked if c.is_wide and c not in first]

    def keeps(self, errors: Mapping[str, float]) -> bool:
        """Whether errors by the names of metrics keep the budget."""
        return all(errors.get(name, math.inf) <= budget for name, budget in self.budget.items())

    def limits_of(self, signature: Signature, sizes: Mapping[str, int]) -> dict[str, float]:
        """Return what each error with a limit is at most at some sizes; infinite where nothing can be said."""
        growths = {name: self.growth.get((signature, name)) for name in self.budget}
        return {name: math.inf if growth is None else growth.limit(sizes) for name, growth in growths.items()}

    def is_valid(self, candidate: Candidate, sizes: Mapping[str, int]) -> bool:
        """Whether a candidate can be launched at some sizes."""
        at = sizes if isinstance(sizes, Sizes) else Sizes(sizes)
        if isinstance(self.kernel, Application):
            with contextlib.suppress(EmptySpaceError):
                return candidate.configuration in self._space(*sizes.items())
            return False
        assert isinstance(self.kernel, Kernel)
        values = {**candidate.configuration, **sizes}
        try:
            if not all(constraint.holds(values) for constraint in self._constraints):
                return False
            self.kernel.launch_shape(candidate.configuration, at)
        except (ConstraintError, KernelError):
            return False
        return True

    # -- parts -------------------------------------------------------------------------------

    def _untuned(self, sizes: Mapping[str, int], reason: str) -> Choice:
        try:
            configuration = widest(self.kernel, Sizes(sizes), self._limits)[0]
        except EmptySpaceError as error:
            text = _words(sizes)
            raise KernelError(f"{self.kernel.called} has no baseline to fall back on at {text}: {error}") from error
        return Choice(configuration, f"the widest types, not tuned: {reason}", reason)

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

    def _ranked(self, sizes: Mapping[str, int]) -> list[int]:
        """Return the numbers of the candidates in order: of equals a winner here, a baseline, the least error."""
        losses, at = self._losses(sizes), self._number_of(sizes)

        def rank(number: int) -> tuple[float, bool, bool, float, int]:
            candidate = self.candidates[number]
            error = candidate.errors.get("error", math.inf)
            return losses[number], at not in candidate.sure_at, not candidate.is_wide, error, number

        return sorted(losses, key=rank)

    def _losses(self, sizes: Mapping[str, int]) -> dict[int, float]:
        """Return how much longer each candidate is expected to take than the best, as a logarithm, by its number."""
        return {
            number: self._told(each.of_types, sizes)[0] + self._told(each.losses, sizes)[0]
            for number, each in enumerate(self.candidates)
        }

    def _told(self, losses: Mapping[int, float], sizes: Mapping[str, int]) -> tuple[float, tuple[int, ...]]:
        """Return a loss at some sizes, and the numbers of the tuned ones it is told from: one, or two around it."""
        here, places = _place(self._exactly(sizes)), self._places
        distances = [math.dist(place, here) for place in places]
        nearest = min(losses, key=lambda number: (distances[number], number))
        loss, away = losses[nearest], distances[nearest]
        used: tuple[int, ...] = (nearest,)
        beyond = [
            number
            for number in losses
            if sum((p - h) * (t - h) for p, h, t in zip(places[number], here, places[nearest], strict=True)) < 0
        ]
        if beyond:
            other = min(beyond, key=lambda number: (distances[number], number))
            loss += away / (away + distances[other]) * (losses[other] - loss)
            used = (nearest, other)
        return loss + _LOSS_BY_DISTANCE * (away - min(distances)), used

    def _told_from(self, candidate: Candidate, sizes: Mapping[str, int]) -> str:
        _, used = self._told(candidate.losses, sizes)
        tuned = [next(r.place for r in self.known.tuned if self._number_of(r.sizes) == n) for n in sorted(used)]
        device = "" if self._is_own else f" on {self.known.device}"
        return f"at {_words(sizes)}, told from {' and '.join(map(_words, tuned))}{device}"

    def _why_wide(self, sizes: Mapping[str, int], refused: Mapping[Signature, Mapping[str, float]]) -> str:
        """Say why nothing narrower is used; empty where nothing narrower was refused."""
        if not refused:
            return ""
        here = _place(self._exactly(sizes))
        away = [max(abs(h - p) for h, p in zip(here, place, strict=True)) for place in self._places]
        if min(away) > LOG_REACH:
            return f"errors cannot be told: nothing within {REACH:g} times of {_words(sizes)} was tuned"
        signature, limits = next(iter(refused.items()))
        types = ", ".join(f"{name}={value}" for name, value in zip(self.known.signature, signature, strict=True))
        most = []
        for name, limit in limits.items():
            growth = self.growth.get((signature, name))
            if math.isfinite(limit) and limit > self.budget[name]:
                most.append(f"{_short(name)} up to {limit:.2g}")
            elif limit > self.budget[name]:
                why = (
                    ", as it may overflow outside of the tuned sizes"
                    if growth is not None and growth.is_confined
                    else ""
                )
                if growth is not None and growth.is_exact:
                    why = ", as what is exact at the tuned sizes need not be so here"
                most.append(f"an unknown {_short(name)}{why}")
        return (
            f"nothing faster is sure to keep {self._budget_text()} at {_words(sizes)} with "
            f"{100 * self.confidence:g}% confidence ({types}: {', '.join(most)})"
        )

    def _budget_text(self) -> str:
        return " and ".join(f"{_short(name)} {limit:g}" for name, limit in self.budget.items()) or "no limit"

    # -- made once -----------------------------------------------------------------------------

    def _candidates(self) -> tuple[Candidate, ...]:
        wide = self.kernel.baseline_values()
        signature_of = self.known.signature_of
        #: By configuration and number of the sizes: the time, and between which times it is.
        times: dict[Configuration, dict[int, tuple[float, float, float]]] = {}
        errors: dict[Configuration, dict[str, float]] = {}
        sure: set[tuple[Configuration, int]] = set()
        broken: set[tuple[Signature, int]] = set()
        winners: dict[int, tuple[float, Configuration]] = {}
        worthwhile: set[Configuration] = set()
        for record in self.known.tuned:
            number = self.tuned.index(self._exactly(record.sizes))
            is_within = self._is_own and all(
                record.threshold.get(name, math.inf) <= limit for name, limit in self.budget.items()
            )
            seen = [(signature_of(timed.configuration), timed.errors) for timed in record.configurations]
            broken.update(
                (signature, number)
                for signature, found in [*record.signatures.items(), *seen]
                if any(found.worst.get(name, 0.0) > limit for name, limit in self.budget.items())
            )
            for timed in record.configurations:
                own = self.kernel.own(timed.configuration)
                time, span = record.relative_time(timed), record.time_span(timed)
                if timed.is_faster or own.is_among(wide):
                    worthwhile.add(own)
                elif record.baseline is not None:
                    time = max(time, record.baseline.time_ms)
                known = times.setdefault(own, {})
                known[number] = min(known.get(number, (math.inf, *span)), (time, *span), key=lambda each: each[0])
                worst = errors.setdefault(own, {})
                worst.update({name: max(error, worst.get(name, 0.0)) for name, error in timed.errors.worst.items()})
                if timed.is_best:
                    sure |= {(own, number)} if is_within else set()
                    winners[number] = min(winners.get(number, (math.inf, own)), (time, own), key=lambda each: each[0])
        # What is nowhere surely faster than the baseline gives up accuracy for nothing, unless it is more accurate.
        kept = {own: at for own, at in times.items() if own in worthwhile or beyond_baseline(own, wide)}
        least = _least(kept, lambda _: None, winners).get(None, {})
        of_types = _least(kept, signature_of, winners)
        # Types lose nothing where one of them is not surely slower than the fastest, or the winner.
        tied = {
            (signature_of(own), number)
            for own, measured in kept.items()
            for number, (time, earliest, _) in measured.items()
            if time <= _MOST_TIED * least[number][0] and earliest <= least[number][2]
        }
        found = []
        for own, measured in kept.items():
            signature = signature_of(own)
            fastest = of_types[signature]
            slower = {
                number: 0.0 if (signature, number) in tied else max(0.0, math.log(time / least[number][0]))
                for number, (time, *_) in fastest.items()
            }
            losses = {n: max(0.0, math.log(time / fastest[n][0])) for n, (time, *_) in measured.items()}
            sure_at = frozenset(n for n in measured if (own, n) in sure and (signature, n) not in broken)
            found.append(Candidate(own, signature, losses, slower, sure_at, own.is_among(wide), errors[own]))
        return tuple(sorted(found, key=lambda candidate: candidate.configuration.to_json()))

    def _growth(self) -> dict[tuple[Signature, str], ErrorGrowth]:
        points: dict[tuple[Signature, str], list[SizedError]] = {}
        for record in self.known.tuned:
            for signature, errors in record.signatures.items():
                for name in errors.worst.keys() & self.budget.keys():
                    mean = errors.mean if name == "error" else None
                    points.setdefault((signature, name), []).append(
                        SizedError(record.sizes, errors.worst[name], errors.draws, mean, errors.rounded)
                    )
        return {
            (signature, name): fitted(some, self.confidence, signature) for (signature, name), some in points.items()
        }


def _least(
    times: Mapping[Configuration, Mapping[int, tuple[float, float, float]]],
    group: Callable[[Configuration], Any],
    winners: Mapping[int, tuple[float, Configuration]],
) -> dict[Any, dict[int, tuple[float, float, float]]]:
    """Return the times to compare with by group and number of the sizes: that of the winner where it is of the group.

    What is faster than the winner cannot be told from it, and the winner is the simplest of these.
    """
    found: dict[Any, dict[int, tuple[float, float, float]]] = {}
    for configuration, measured in times.items():
        least = found.setdefault(group(configuration), {})
        for number, time in measured.items():
            least[number] = min(time, least.get(number, time), key=lambda each: each[0])
    for number, (_, configuration) in winners.items():
        found[group(configuration)][number] = times[configuration][number]
    return found


def _constraints_of(kernel: Kernel, limits: Mapping[str, Any]) -> Iterator[Constraint]:
    types = frozenset(p.name for p in kernel.parameters if isinstance(p, PrecisionParameter))
    names = (*kernel.parameter_names, *kernel.sizes["default"])
    for constraint in (*kernel.constraints, *device_constraints(kernel, limits)):
        yield with_canonical_precisions(compile_constraint(constraint, names), types)


def forms_in(known: KernelWisdom, kernel: Tunable) -> list[dict[str, int]]:
    """Return the forms of the problem that wisdom is of, each once."""
    forms = [kernel.form_of(record.form) for record in known.tuned]
    return [form for number, form in enumerate(forms) if form not in forms[:number]]


def _form_of(known: KernelWisdom, kernel: Tunable, given: Mapping[str, int] | None) -> dict[str, int]:
    """Return the form that is meant; other wisdom than of that is refused."""
    found = forms_in(known, kernel)
    if not found:
        raise WisdomError(f"the wisdom of kernel {known.kernel} on {known.device} has no sizes")
    if given is None and len(found) == 1:
        return found[0]
    if given is None or given not in found:
        but = f"not of {_words(given)}" if given else "which say nothing of each other: make it of runs of one of them"
        raise WisdomError(f"the wisdom of kernel {known.kernel} is of {' and of '.join(map(_words, found))}, {but}")
    return dict(given)


def _check_same(known: KernelWisdom, kernel: Tunable) -> None:
    """Refuse wisdom of a kernel that has changed."""
    pairs = [
        ("sizes", sorted(known.tuned[0].sizes), sorted(kernel.extents)),
        ("accuracy signature", [*known.signature], [*kernel.signature_names]),
    ]
    every = (timed.configuration for record in known.tuned for timed in record.configurations)
    pairs += [("parameters", sorted(each), sorted(kernel.parameter_names)) for each in every]
    for what, theirs, ours in pairs:
        if theirs != ours:
            raise WisdomError(
                f"the wisdom of kernel {known.kernel} has the {what} {', '.join(theirs)}, and the kernel has "
                f"{', '.join(ours)}"
            )


def _place(sizes: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(map(math.log, sizes))


def _words(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sizes.items())


def _short(name: str) -> str:
    return "error" if name == "error" else f"error of {name.removeprefix('error.')}"
