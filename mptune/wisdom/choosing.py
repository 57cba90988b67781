"""Which configuration to use at some sizes under an error limit.

Candidates are ranked by their loss: how much longer their types take than the fastest known types, and how much longer
they take than the fastest candidate of the same types. A loss is measured at the tuned sizes, interpolated in the
logarithms of the sizes between two of them, and constant outside. Types that are not surely slower than the fastest
lose nothing. Of equal losses the most accurate candidate comes first.

The first valid candidate is used whose error keeps the limit (:mod:`mptune.wisdom.error_growth`). Types narrower than
the baseline's must be surely faster at a tuned size. Types more accurate than the baseline's are used where the
baseline breaks the limit. The verified winner of a run needs no error model at its own sizes, unless another run saw
its types break the limit there. The baseline needs none anywhere.

A tuned size has a decision of its own. Other sizes share the decision of their cell (:mod:`mptune.wisdom.cells`), whose
errors keep the limit at all corners of the cell.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import numbers
import operator
import reprlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from mptune.errors import ConstraintError, EmptySpaceError, KernelError, MptuneError, UnknownNameError, WisdomError
from mptune.kernel import Kernel, Sizes, Tunable
from mptune.kernel.limits import device_constraints, whole_space, widest
from mptune.results.unseen import CONFIDENCE
from mptune.space.configuration import Configuration, Value, is_number
from mptune.space.constraints import compile_constraint
from mptune.space.parameters import beyond_baseline, names_of_precisions
from mptune.wisdom.cells import CELLS, CELLS_OF_APPLICATION, Cells
from mptune.wisdom.error_growth import LOG_REACH, REACH, SizedError, fitted
from mptune.wisdom.records import AtSize, KernelWisdom

Signature = tuple[Value, ...]

#: Loss, as a logarithm, for each factor of e by which a candidate's nearest measurement is farther than a tuned size.
_LOSS_BY_DISTANCE: Final = 0.1
#: Most corners of a cell at which errors are predicted.
_MOST_CORNERS: Final = 4096
#: Largest ratio of two times that can be a tie, however wide their intervals are.
_MOST_TIED: Final = 1.1


def budget_of(known: Sequence[KernelWisdom], max_error: float | Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the error limits by the names of metrics.

    Args:
        known: wisdom of a kernel.
        max_error: a limit, or limits by output or metric. By default the smallest of the runs.

    Raises:
        MptuneError: a limit is no positive number.
        UnknownNameError: the wisdom has no errors of that name.
    """
    records = [record for each in known for record in each.tuned]
    if max_error is None:
        limits = [entry for record in records for entry in record.threshold.items()]
        return dict(sorted(limits, key=lambda entry: -entry[1]))
    given: Mapping[str, Any] = max_error if isinstance(max_error, Mapping) else {"": max_error}
    for limit in given.values():
        if not (isinstance(limit, numbers.Real) and float(limit) > 0):
            raise MptuneError(f"an error limit is a number above 0, not {limit!r}")
    names = {name for record in records for timed in record.configurations for name in timed.errors.worst}
    short = {"" if name == "error" else name.removeprefix("error.") for name in names}
    for name in given.keys() - short - {""}:
        raise UnknownNameError("output or error metric in the wisdom:", name, sorted(short - {""}))
    return {f"error.{name}" if name else "error": float(limit) for name, limit in given.items()}


@dataclass(frozen=True, slots=True)
class Choice:
    """A configuration and the reason to use it."""

    configuration: Configuration
    why: str  #: the reason, in one sentence
    reason: str = ""  #: why the baseline is used although something faster is known; else empty
    speedup: float | None = None  #: expected speedup over the baseline; None if not known
    #: limits on its errors by the names of metrics, where the error model was needed
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration that was measured at some of the tuned sizes."""

    configuration: Configuration  #: in the kernel's own values
    signature: Signature  #: its accuracy signature
    #: log ratio of its time to the fastest of the same types, by the number of the tuned sizes
    losses: Mapping[int, float]
    of_types: Mapping[int, float]  #: log ratio of that time to the fastest of all, by the number of the tuned sizes
    #: numbers of the tuned sizes at which it won a run within the limits and no run saw its types break them
    sure_at: frozenset[int]
    is_wide: bool  #: whether it has the baseline's types
    errors: Mapping[str, float]  #: largest measured errors by the names of metrics


@dataclass(frozen=True, slots=True)
class Decision:
    """The candidates at a tuned size, or at all sizes of a cell."""

    ranked: tuple[Candidate, ...]  #: all candidates, the fastest first
    usable: tuple[Candidate, ...]  #: the candidates that keep the limits, the fastest first, then baselines that do not
    #: limits on the errors of each accuracy signature, by the names of metrics
    limits: Mapping[Signature, Mapping[str, float]]


class Chooser:
    """Wisdom of a kernel on a device, ready for choosing.

    Args:
        known: the wisdom, of one form of the problem (:func:`by_form`).
        kernel: the definition of the kernel or application.
        limits: limits of the device.
        budget: error limits by the names of metrics, as of :func:`budget_of`.
        confidence: probability that errors keep them.
        is_own: whether it was measured on this device; otherwise no size counts as tuned.

    Attributes:
        form: the form of the problem.
        names: names of the sizes.
        tuned: the tuned sizes, in the order of the names.
        cells: the cells of all other sizes.
        candidates: the configurations to choose from.
        growth: the limits on errors by size, by accuracy signature and name of the error.

    Raises:
        WisdomError: the wisdom is of another version of the kernel, or of several forms.
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
    ) -> None:
        if not (is_number(confidence) and 0 < confidence < 1):
            raise MptuneError(f"confidence is a number between 0 and 1, such as {CONFIDENCE:g}, not {confidence!r}")
        forms = [kernel.form_of(each.tuned[0].form) for each in by_form(known, kernel)]
        if len(forms) > 1:
            raise WisdomError(
                f"the wisdom of kernel {known.kernel} is of {' and of '.join(map(_words, forms))}, which say nothing "
                "of each other: make it of runs of one of them"
            )
        (self.form,) = forms
        self.known = known
        _check_same(known, kernel)
        self.kernel = kernel
        self.budget = dict(budget_of([self.known]) if budget is None else budget)
        self.confidence = confidence
        self._limits = limits or {}
        self._is_own = is_own
        self._space = functools.lru_cache(1)(lambda *sizes: whole_space(kernel, Sizes(dict(sizes)), self._limits))
        types = names_of_precisions(kernel.parameters)
        names = (*kernel.parameter_names, *kernel.sizes["default"])
        self._constraints = [
            compile_constraint(constraint, names, precisions=types)
            for each in ([kernel] if isinstance(kernel, Kernel) else [])
            for constraint in (*each.constraints, *device_constraints(each, self._limits))
        ]
        self.names = tuple(sorted(kernel.extents))
        self.tuned = tuple(sorted({self._values(record.sizes) for record in self.known.tuned}))
        cells = CELLS if isinstance(kernel, Kernel) else CELLS_OF_APPLICATION
        self.cells = Cells(self.tuned, [kernel.largest_size(name) for name in self.names], cells)
        self.candidates = self._candidates()
        points: dict[tuple[Signature, str], list[SizedError]] = defaultdict(list)
        for record in self.known.tuned:
            for signature, errors in record.by_signature.items():
                worst = errors.worst
                for name in worst.keys() & self.budget.keys():
                    mean = errors.mean if name == "error" else None
                    point = SizedError(record.sizes, worst[name], errors.draws, mean, errors.rounded)
                    points[signature, name].append(point)
        self.growth = {key: fitted(some, confidence, key[0]) for key, some in points.items()}
        self._decisions: dict[tuple[int, ...], Decision] = {}

    def choose(self, sizes: Mapping[str, int]) -> Choice:
        """Return the configuration to use at some sizes.

        Raises:
            KernelError: a size is too large, or no baseline is valid there.
        """
        decision, at, text = self.decide(sizes), self._number_of(sizes), _words(sizes)
        valid = [candidate for candidate in decision.ranked if self.is_valid(candidate, sizes)]
        found = next((candidate for candidate in decision.usable if candidate in valid), None)
        is_kept = found is not None and (not found.is_wide or self.keeps(found.errors))
        refused = [
            candidate.signature
            for candidate in itertools.takewhile(lambda each: not (is_kept and each is found), valid)
            if candidate not in decision.usable
        ]
        reason = self._why_baseline(sizes, refused, decision) if refused else ""
        if found is None:
            return self._untuned(sizes, reason or f"no known configuration is valid at {text}")
        offsets = self._offsets(sizes)
        wide = min((_loss(each, offsets) for each in self.candidates if each.is_wide), default=None)
        speedup = None if wide is None else math.exp(wide - _loss(found, offsets))
        if found.is_wide:
            why = f"the baseline: {reason or f'nothing known is surely faster at {text}'}"
            return Choice(found.configuration, why, reason, 1.0 if speedup is None else speedup)
        why = f"measured at {text}"
        if at is None or at not in found.losses:
            _, used = _interpolated(found.losses, offsets)
            tuned = [next(r.place for r in self.known.tuned if self._values(r.sizes) == self.tuned[n]) for n in used]
            device = "" if self._is_own else f" on {self.known.device}"
            why = f"at {text}, predicted from {' and '.join(map(_words, tuned))}{device}"
        if speedup is not None:
            why += f", about {speedup:.2g} times as fast as the baseline"
        most = {} if at in found.sure_at else decision.limits[found.signature]
        if not self.budget:
            why += "; no error limit"
        elif most:
            errors = ", ".join(f"{_short(name)} at most {limit:.2g}" for name, limit in most.items())
            why += f"; {errors} with {100 * self.confidence:g}% confidence"
        else:
            why += f"; the winner of a run there, within {self._budget_text()}"
        if refused:
            why += f"; faster types that may exceed {self._budget_text()}: {len(set(refused))}"
        return Choice(found.configuration, why, "", speedup, most)

    def widest(self, sizes: Mapping[str, int]) -> Choice:
        """Return the baseline to use at some sizes: the best one of the nearest tuned sizes."""
        for candidate in self.decide(sizes).usable:
            if candidate.is_wide and self.is_valid(candidate, sizes):
                return Choice(candidate.configuration, "the baseline", "", 1.0)
        return self._untuned(sizes, f"no known configuration is valid at {_words(sizes)}")

    def decide(self, sizes: Mapping[str, int]) -> Decision:
        """Return the decision of a tuned size, or of the cell that holds the sizes."""
        for name in self.names:
            if sizes[name] > (most := self.kernel.largest_size(name)):
                shown = reprlib.repr(sizes[name])
                raise KernelError(f"size {name} of {self.kernel.called} is at most {most}, not {shown}")
        values, at = self._values(sizes), self._number_of(sizes)
        return self.decide_cell(self.cells.at(values)) if at is None else self._decided([values], values, at)

    def decide_cell(self, cell: tuple[int, ...]) -> Decision:
        """Return the decision of a cell."""
        if cell not in self._decisions:
            axes = [sorted(set(ends)) for ends in zip(*self.cells.ends(cell), strict=True)]
            # Errors in a cell of too many corners are unknown.
            corners = [*itertools.product(*axes)] if math.prod(map(len, axes)) <= _MOST_CORNERS else []
            self._decisions[cell] = self._decided(corners, self.cells.middle(cell), None)
        return self._decisions[cell]

    def keeps(self, errors: Mapping[str, float]) -> bool:
        """Whether errors by the names of metrics keep the limits."""
        return all(errors.get(name, math.inf) <= limit for name, limit in self.budget.items())

    def is_valid(self, candidate: Candidate, sizes: Mapping[str, int]) -> bool:
        """Whether a candidate can be launched at some sizes."""
        configuration = candidate.configuration
        if not isinstance(self.kernel, Kernel):
            with contextlib.suppress(EmptySpaceError):
                return configuration in self._space(*sizes.items())
            return False
        try:
            self.kernel.launch_shape(configuration, Sizes(dict(sizes)))
            return all(constraint.holds({**configuration, **sizes}) for constraint in self._constraints)
        except (ConstraintError, KernelError):
            return False

    # -- parts -------------------------------------------------------------------------------

    def _decided(self, corners: Sequence[tuple[int, ...]], middle: tuple[int, ...], at: int | None) -> Decision:
        """Return the candidates by their losses in the middle and the limits on their errors at all corners.

        ``at`` is the number of the tuned size, None for a cell.
        """
        offsets = self._offsets(dict(zip(self.names, middle, strict=True)))

        def rank(candidate: Candidate) -> tuple[float, bool, bool, float]:
            error = candidate.errors.get("error", math.inf)
            return _loss(candidate, offsets), at not in candidate.sure_at, not candidate.is_wide, error

        ranked = tuple(sorted(self.candidates, key=rank))
        limits = {candidate.signature: dict.fromkeys(self.budget, math.inf) for candidate in ranked}
        for (signature, name), growth in self.growth.items():
            if signature in limits and corners:
                limit = growth.limits(np.array(corners, np.int64), is_measured=at is not None).max()
                limits[signature][name] = float(limit)
        kept = [
            each
            for each in ranked
            if (self.keeps(each.errors) if each.is_wide else at in each.sure_at or self.keeps(limits[each.signature]))
        ]
        return Decision(ranked, (*kept, *(each for each in ranked if each.is_wide and each not in kept)), limits)

    def _untuned(self, sizes: Mapping[str, int], reason: str) -> Choice:
        try:
            configuration = widest(self.kernel, Sizes(dict(sizes)), self._limits)[0]
        except EmptySpaceError as error:
            text = _words(sizes)
            raise KernelError(f"{self.kernel.called} has no baseline to fall back on at {text}: {error}") from error
        return Choice(configuration, f"the widest types, not tuned: {reason}", reason)

    def _values(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(sizes[name] for name in self.names)

    def _number_of(self, sizes: Mapping[str, int]) -> int | None:
        """Return the number of the tuned sizes; None for other sizes, and on another device."""
        values = self._values(sizes)
        return self.tuned.index(values) if self._is_own and values in self.tuned else None

    def _offsets(self, sizes: Mapping[str, int]) -> list[tuple[float, ...]]:
        """Return the logarithms of the tuned sizes relative to some sizes."""
        values = self._values(sizes)
        return [tuple(math.log(t / v) for t, v in zip(tuned, values, strict=True)) for tuned in self.tuned]

    def _why_baseline(self, sizes: Mapping[str, int], refused: Sequence[Signature], decision: Decision) -> str:
        """Return why nothing faster is used, by the limits of the fastest types that were refused."""
        text = _words(sizes)
        if min(max(map(abs, offset)) for offset in self._offsets(sizes)) > LOG_REACH:
            return f"errors are unknown: no tuned size is within {REACH:g} times of {text}"
        signature, most = refused[0], []
        for name, limit in decision.limits[signature].items():
            growth = self.growth.get((signature, name))
            if self.budget[name] < limit < math.inf:
                most.append(f"{_short(name)} up to {limit:.2g}")
            elif limit > self.budget[name]:
                why = ""
                if growth is not None and growth.is_exact:
                    why = ", as results that are exact at the tuned sizes need not be so here"
                elif growth is not None and growth.is_confined:
                    why = ", as types of small range may overflow outside of the tuned sizes"
                most.append(f"an unknown {_short(name)}{why}")
        types = ", ".join(f"{name}={value}" for name, value in zip(self.known.signature, signature, strict=True))
        return (
            f"nothing faster is sure to keep {self._budget_text()} at {text} with "
            f"{100 * self.confidence:g}% confidence ({types}: {', '.join(most)})"
        )

    def _budget_text(self) -> str:
        return " and ".join(f"{_short(name)} {limit:g}" for name, limit in self.budget.items()) or "no limit"

    # -- made once -----------------------------------------------------------------------------

    def _candidates(self) -> tuple[Candidate, ...]:
        wide, signature_of = self.kernel.baseline_values(), self.known.signature_of
        #: By configuration and number of the sizes: its time, and the least and the largest that the time may be.
        times: dict[Configuration, dict[int, tuple[float, float, float]]] = defaultdict(dict)
        errors: dict[Configuration, dict[str, float]] = defaultdict(dict)
        winners: dict[int, tuple[float, Configuration]] = {}
        worthwhile, sure, broken = set[Configuration](), set[tuple[Configuration, int]](), set[tuple[Signature, int]]()
        for record in self.known.tuned:
            number = self.tuned.index(self._values(record.sizes))
            is_within = self._is_own and self.keeps(record.threshold)
            for signature, found in (
                *record.by_signature.items(),
                *((signature_of(timed.configuration), timed.errors) for timed in record.configurations),
            ):
                if any(found.worst.get(name, 0.0) > limit for name, limit in self.budget.items()):
                    broken.add((signature, number))
            for timed in record.configurations:
                own, span = self.kernel.own(timed.configuration), record.time_span(timed)
                if timed.is_faster or own.is_among(wide):
                    worthwhile.add(own)
                elif record.baseline is not None:
                    span = (max(span[0], record.baseline.time_ms), *span[1:])
                times[own][number] = min(span, times[own].get(number, span))
                for name, error in timed.errors.worst.items():
                    errors[own][name] = max(error, errors[own].get(name, 0.0))
                if timed.is_best:
                    winners[number] = min(
                        winners.get(number, (math.inf, own)), (span[0], own), key=lambda each: each[0]
                    )
                    sure |= {(own, number)} if is_within else set()
        # Types that are nowhere surely faster than the baseline are not worth their loss of accuracy.
        kept = {own: at for own, at in times.items() if own in worthwhile or beyond_baseline(own, wide)}
        fastest: dict[tuple[Signature | None, int], tuple[float, float, float]] = {}
        for own, measured in kept.items():
            for number, span in measured.items():
                for group in (None, signature_of(own)):
                    fastest[group, number] = min(span, fastest.get((group, number), span))
        # The winner is the simplest of the configurations that are as fast.
        for number, (_, own) in winners.items():
            fastest[None, number] = fastest[signature_of(own), number] = kept[own][number]
        tied = {
            (signature_of(own), number)
            for own, measured in kept.items()
            for number, (time, earliest, _) in measured.items()
            if time <= _MOST_TIED * fastest[None, number][0] and earliest <= fastest[None, number][2]
        }
        return tuple(
            Candidate(
                own,
                signature := signature_of(own),
                {at: max(0.0, math.log(time / fastest[signature, at][0])) for at, (time, *_) in kept[own].items()},
                {
                    at: 0.0 if (group, at) in tied else max(0.0, math.log(time / fastest[None, at][0]))
                    for (group, at), (time, *_) in fastest.items()
                    if group == signature
                },
                frozenset(at for at in kept[own] if (own, at) in sure and (signature, at) not in broken),
                own.is_among(wide),
                errors[own],
            )
            for own in sorted(kept, key=Configuration.to_json)
        )


def _loss(candidate: Candidate, offsets: Sequence[tuple[float, ...]]) -> float:
    return _interpolated(candidate.of_types, offsets)[0] + _interpolated(candidate.losses, offsets)[0]


def _interpolated(losses: Mapping[int, float], offsets: Sequence[tuple[float, ...]]) -> tuple[float, tuple[int, ...]]:
    """Return a loss, and the numbers of the one or two tuned sizes that it is predicted from."""
    distances = [math.hypot(*offset) for offset in offsets]
    nearest = min(losses, key=lambda number: (distances[number], number))
    loss, away = losses[nearest], distances[nearest]
    used: tuple[int, ...] = (nearest,)
    opposite = [number for number in losses if sum(map(operator.mul, offsets[number], offsets[nearest])) < 0]
    if opposite:
        other = min(opposite, key=lambda number: (distances[number], number))
        loss += away / (away + distances[other]) * (losses[other] - loss)
        used = (*sorted((nearest, other)),)
    return loss + _LOSS_BY_DISTANCE * (away - min(distances)), used


def by_form(known: KernelWisdom, kernel: Tunable) -> list[KernelWisdom]:
    """Return the wisdom of each form of the problem."""
    forms: dict[tuple[tuple[str, int], ...], list[AtSize]] = {}
    for record in known.tuned:
        forms.setdefault((*kernel.form_of(record.form).items(),), []).append(record)
    if not forms:
        raise WisdomError(f"the wisdom of kernel {known.kernel} on {known.device} has no sizes")
    return [dataclasses.replace(known, tuned=tuple(records)) for records in forms.values()]


def _check_same(known: KernelWisdom, kernel: Tunable) -> None:
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


def _words(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sizes.items())


def _short(name: str) -> str:
    return "error" if name == "error" else f"error of {name.removeprefix('error.')}"
