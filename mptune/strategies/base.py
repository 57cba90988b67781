"""The interface of strategies: ask for configurations, tell their trials."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from mptune.errors import MptuneError, UnknownNameError
from mptune.results.objective import Objective
from mptune.results.trial import SourceUse, Trial
from mptune.space.arguments import Between, fitted_arguments
from mptune.space.configuration import Configuration
from mptune.space.parameters import TRUTHS
from mptune.space.search_space import SearchSpace

Array = NDArray[np.float64]
#: Value codes of configurations, and their indices in the search space.
Codes = NDArray[np.int32]
Indices = NDArray[np.int64]

#: Help of two options that several strategies have.
NEIGHBOURHOODS: Final = "hamming (one parameter takes any other value) or adjacent (one parameter moves one step)."
MAX_OBSERVATIONS: Final = "observations the model holds; of more it holds the best half and a random part."

#: Returns a metric that needs no evaluation, ``(n,)``, for indices, ``(n,)``.
Known = Callable[[Indices], Array]

Value = TypeVar("Value")


def option(
    default: Value,
    help: str,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    choices: Collection[str] = (),
) -> Value:
    """Return the dataclass field of a hyperparameter, of the type of its default.

    A valid number is at least ``least``, larger than ``above`` and at most ``most``; a valid name is among ``choices``.
    ``mptune list --strategies`` shows ``help``.
    """
    bounds = Between(max(least, math.nextafter(above, math.inf)), most)
    return field(default=default, metadata={"help": help, "bounds": bounds, "choices": tuple(choices)})


@dataclass(frozen=True, slots=True)
class Options:
    """Hyperparameters of a strategy: the base of frozen dataclasses with fields made by :func:`option`.

    Raises:
        UnknownNameError: a value is not among the choices.
        MptuneError: a number is out of range or not finite.
    """

    strategy: ClassVar[str] = ""  #: name of the strategy, set by its class, for messages

    def __post_init__(self) -> None:
        for f in fields(self):
            value, bounds, choices = getattr(self, f.name), f.metadata["bounds"], f.metadata["choices"]
            if choices and value not in choices:
                raise UnknownNameError(f"{f.name} of strategy {self.strategy}:", value, choices)
            if isinstance(value, int | float):
                self.require(f.name, bounds.least <= value <= bounds.most and math.isfinite(value), str(bounds))

    def require(self, name: str, valid: bool, expected: str) -> None:
        """Raise MptuneError, with the option and the expected value, unless the value is valid."""
        if not valid:
            raise _refused(self.strategy, name, expected, getattr(self, name))

    @classmethod
    def from_mapping(cls, strategy: str, given: Mapping[str, Any]) -> Options:
        """Return options from names and values; text is converted to the type of the default.

        Raises:
            UnknownNameError: the strategy has no such option.
            MptuneError: a value is of the wrong type or out of range.
        """
        known: dict[str, Any] = {f.name: type(f.default) for f in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                raise UnknownNameError(f"option of strategy {strategy}:", name, known)
            try:
                if not isinstance(value, str):
                    values |= fitted_arguments(cls, {name: value})
                else:
                    values[name] = TRUTHS[value.lower()] if known[name] is bool else known[name](value)
            except (ValueError, KeyError, MptuneError) as error:
                raise _refused(strategy, name, known[name].__name__, value) from error
        return cls(**values)

    @classmethod
    def documented(cls) -> dict[str, tuple[Any, str]]:
        """Return default and description of each option, by name."""
        return {f.name: (f.default, f.metadata["help"]) for f in fields(cls)}


def _refused(strategy: str, name: str, expected: str, given: object) -> MptuneError:
    return MptuneError(f"option {name} of strategy {strategy}: expected {expected}, got {given!r}")


@dataclass(frozen=True, slots=True)
class Source:
    """An earlier run or recording that a search starts from."""

    name: str  #: for messages
    trials: tuple[Trial, ...] = field(repr=False)  #: may have other parameters and values than the search space
    error_doubt: float = math.inf  #: standard deviation of its errors here, in decades; infinite: errors are not used
    remark: str = ""  #: why errors are not used; empty if they are used, or missing


class Strategy(ABC):  # noqa: B024 - subclasses add abstract methods
    """Proposes configurations, each once; equal seeds and trials give equal sequences.

    Subclasses work with indices of the space. They implement :meth:`_propose` or :meth:`_next`, and :meth:`_learn`.

    Args:
        space: the valid configurations.
        objective: scores trials by metrics and threshold.
        signature: names of the parameters that can change the numbers; empty if unknown.
        seed: seeds the random generator.
        options: hyperparameters, an instance of the class's ``options_class``.
        known: metrics that need no evaluation, by name.
    """

    name: ClassVar[str] = ""
    options_class: ClassVar[type[Options]] = Options
    optimises_several: ClassVar[bool] = False  #: whether the strategy searches for the front of several objectives
    budget: int | None = None  #: evaluations of the search, None if unknown

    def __init_subclass__(cls) -> None:
        if "options_class" in vars(cls):
            cls.options_class.strategy = cls.name

    def __init__(
        self,
        space: SearchSpace,
        objective: Objective,
        *,
        signature: Sequence[str] = (),
        seed: int = 0,
        options: Options | None = None,
        known: Mapping[str, Known] = MappingProxyType({}),
    ) -> None:
        self.space = space
        self.objective = objective
        self.signature = tuple(signature)
        self.rng = np.random.default_rng(seed)
        self.known = dict(known)
        self.options = options if options is not None else self.options_class()
        self._seen: set[int] = set()

    def start_from(self, sources: Sequence[Source]) -> None:
        """Learn from earlier runs, before the first trial; raise MptuneError if the strategy cannot."""
        if sources:
            raise MptuneError(f"strategy {self.name} cannot start from earlier runs: use strategy bayesian")

    def expect(self, trials: Sequence[Trial], doubt: float) -> None:  # noqa: B027 - optional
        """Learn a prior of errors from trials, before the first trial; ``doubt`` is their deviation in decades."""

    @property
    def sources(self) -> tuple[SourceUse, ...]:
        """The use of each source, in the given order."""
        return ()

    def ask(self, n: int = 1) -> list[Configuration]:
        """Return up to ``n`` new configurations; fewer only if the space is exhausted."""
        if n < 1:
            raise ValueError(f"ask(n) needs n >= 1, got {n}")
        found: list[int] = []
        while (missing := min(n - len(found), self.space.size - len(self._seen))) > 0:
            fresh = [index for index in dict.fromkeys(self._propose(missing)) if index not in self._seen][:missing]
            if not fresh:
                break
            self._seen.update(fresh)
            found += fresh
        return [self.space.configuration(index) for index in found]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from trials, also of a resumed run or the baseline; configurations outside the space are ignored."""
        known = [(index, trial) for trial in trials if (index := self.space.index(trial.configuration)) is not None]
        self._seen.update(index for index, _ in known)
        if known:
            self._learn([index for index, _ in known], [trial for _, trial in known])

    @property
    def seen(self) -> frozenset[int]:
        """Indices already proposed or told."""
        return frozenset(self._seen)

    def _propose(self, n: int) -> list[int]:  # noqa: ARG002 - one index a call
        """Return unseen indices; :meth:`ask` uses the first ``n`` and calls again for missing ones."""
        index = self._next()
        return [] if index is None else [index]

    def _next(self) -> int | None:
        """Return an unseen index; None ends the search."""
        raise NotImplementedError

    def _random(self) -> int | None:
        """Return a random unseen index, None if the space is exhausted."""
        drawn = self.space.sample(1, self.rng, exclude=self._seen)
        return int(drawn[0]) if len(drawn) else None

    def _learn(self, indices: list[int], trials: Sequence[Trial]) -> None:  # noqa: B027 - optional
        """Learn from trials and their indices."""


class ScoredStrategy(Strategy):
    """Keeps the score of every trial, so revisited configurations need no evaluation."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._scores: dict[int, float] = {}

    def _learn(self, indices: list[int], trials: Sequence[Trial]) -> None:
        for index, trial in zip(indices, trials, strict=True):
            score = self.objective.score(trial)
            self._scores[index] = -math.inf if math.isnan(score) else score

    def _score(self, index: int) -> float:
        """Return the score of a configuration, ``-inf`` if it failed or was not evaluated."""
        return self._scores.get(index, -math.inf)

    def _rank_key(self, index: int) -> tuple[float, int]:
        return -self._score(index), index

    def _best_known(self) -> int | None:
        """Return the index of the best score, the smallest index of ties; None without a finite score."""
        best = min(self._scores, key=self._rank_key, default=None)
        return None if best is None or self._scores[best] == -math.inf else best
