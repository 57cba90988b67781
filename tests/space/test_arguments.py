"""Arguments of public functions fit their annotations, or a line says which does not and what was expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

import mptune
from mptune.errors import MptuneError
from mptune.space.arguments import COUNT, POSITIVE, Between, checked
from mptune.space.configuration import Value
from mptune.strategies.bayesian import BayesianStrategy
from mptune.tuning import TuneSettings


@checked
def called(
    count: Annotated[int, COUNT] = 1,
    *,
    share: Annotated[float, Between(0, 1)] = 0.5,
    limit: Annotated[float | None, POSITIVE] = None,
    file: str | Path = "",
    names: Sequence[str] = (),
    name: str = "",
    sizes: Mapping[str, int] | None = None,
    values: Mapping[str, Value] | None = None,
    is_on: bool = False,
    **_further: object,
) -> dict[str, Any]:
    return {key: value for key, value in locals().items() if key != "_further"}


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("count", 2.0, 2),
        ("count", np.int64(3), 3),
        ("share", np.float32(1), 1.0),
        ("limit", None, None),
        ("names", "one", ("one",)),
        ("names", (each for each in ("a", "b")), ("a", "b")),
        ("sizes", {"n": 2000.0}, {"n": 2000}),
        ("is_on", np.True_, True),
    ],
)
def test_what_fits_is_kept_as_a_value_of_python(name: str, given: object, kept: object) -> None:
    found = called(**{name: given})[name]  # type: ignore[arg-type]
    assert (found, type(found)) == (kept, type(kept))


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("count", 0, "count 0: expected at least 1"),
        ("count", 2.5, "count 2.5: expected int"),
        ("count", True, "count True: expected int"),
        ("share", 1.0000001, "share 1.0000001: expected 0 to 1"),
        ("share", 10**400, r"share 1000.*000: expected float"),
        ("file", None, r"file None: expected str \| Path$"),
        ("names", ["a", 3], r"names \['a', 3\]: expected Sequence\[str\]"),
        ("name", ["a"], r"name \['a'\]: expected str; did you mean 'names'"),
        ("sizes", {"n": 2.5}, r"sizes \{'n': 2.5\}: expected Mapping\[str, int\] \| None"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(name: str, given: object, message: str) -> None:
    with pytest.raises(MptuneError, match=message) as refused:
        called(**{name: given})  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


WRONG: Mapping[str, Any] = {
    "budget": 2.5, "verify": True, "max_error": {"y": "x"}, "size": {"n": 5000},
    "strategy": None, "constraints": 3, }  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_settings_are_of_their_types(name: str) -> None:
    with pytest.raises(MptuneError, match=rf"^{name} .*: expected "):
        TuneSettings(**{name: WRONG[name]})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mptune.tune(None), "kernel None: expected Tunable"),  # type: ignore[arg-type]
        (lambda: mptune.tune("axpy", 3), "settings 3: expected TuneSettings"),  # type: ignore[arg-type]
        (lambda: mptune.tune_sizes("axpy", [{"n": 3}]), "sizes .* expected Mapping"),  # type: ignore[arg-type]
        (lambda: mptune.simulate("x.db", repeats=0), "repeats 0: expected at least 1"),
        (lambda: mptune.explain("x.db", time_limit=3), "did you mean 'time_limit_s'"),  # type: ignore[call-arg]
        (lambda: mptune.TunedKernel("x.db", confidence=7), "confidence 7: expected 0 to 1"),
    ],
)
def test_public_functions_check_their_arguments(call: Any, message: str) -> None:
    with pytest.raises(MptuneError, match=message):
        call()


def test_options_of_strategies_are_of_their_types() -> None:
    known = BayesianStrategy.options_class
    assert known.from_mapping("bayesian", {"sample": np.int64(17)}) == known.from_mapping("bayesian", {"sample": "17"})
    for wrong in (7.5, True, None):
        with pytest.raises(MptuneError, match="option sample of strategy bayesian: expected int"):
            known.from_mapping("bayesian", {"sample": wrong})
