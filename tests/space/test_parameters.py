"""Parameters: their values, what is refused, and how text becomes a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

import mptune
from mptune.errors import MptuneError, UnknownNameError
from mptune.space.arguments import COUNT, POSITIVE, Between, checked
from mptune.space.configuration import Value
from mptune.space.parameters import (
    BooleanParameter,
    CategoricalParameter,
    IntegerParameter,
    OrdinalParameter,
    Parameter,
    PermutationParameter,
    PolicyParameter,
    PrecisionParameter,
    RealParameter,
    baseline_values,
    full_name,
)
from mptune.space.search_space import SearchSpace
from mptune.strategies.bayesian import BayesianStrategy
from mptune.tuning import TuneSettings

ALL: list[Parameter] = [
    OrdinalParameter("o", [1, 2, 4, 8]),
    IntegerParameter("i", -2, 7, 3),
    RealParameter("r", 0.1, 1.0, 4),
    CategoricalParameter("c", ["row", "column"]),
    BooleanParameter("b"),
    PermutationParameter("p", 3),
    PrecisionParameter("t", ["double", "half"]),
    PolicyParameter("m"),
]


@pytest.mark.parametrize("parameter", ALL, ids=lambda p: p.kind)
def test_every_value_reads_back_from_itself_and_from_its_text(parameter: Parameter) -> None:
    for value in parameter.values:
        assert parameter.parse(value) == value
        assert parameter.parse(str(value)) == value
        assert type(parameter.parse(str(value))) is type(value)


@pytest.mark.parametrize("parameter", ALL, ids=lambda p: p.kind)
def test_restriction_keeps_kind_order_and_scale(parameter: Parameter) -> None:
    last_and_first = [parameter.values[-1], str(parameter.values[0])]
    restricted = parameter.restricted(last_and_first)
    assert restricted.values == (parameter.values[0], parameter.values[-1])
    assert (restricted.kind, restricted.log_scale) == (parameter.kind, parameter.log_scale)
    with pytest.raises(UnknownNameError, match=f"value of parameter {parameter.name}: 'nothing'"):
        parameter.restricted(["nothing"])
    with pytest.raises(MptuneError, match=f"parameter {parameter.name} is restricted to no values"):
        parameter.restricted([])


def test_values_of_each_kind() -> None:
    assert IntegerParameter("i", -2, 7, 3).values == (-2, 1, 4, 7)
    assert IntegerParameter("i", 3, 3).values == (3,)
    assert RealParameter("r", 0.0, 1.0, 5).values == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert RealParameter("r", 1.0, 100.0, 3, log=True).values == pytest.approx((1.0, 10.0, 100.0))
    assert RealParameter("r", 0.1, 0.7, 3).values[-1] == 0.7
    assert BooleanParameter("b").values == (False, True)
    assert PermutationParameter("p", 3).values[:3] == ((0, 1, 2), (0, 2, 1), (1, 0, 2))
    assert PrecisionParameter("t", ["double", "__half", "bfloat16"]).values == ("fp64", "fp16", "bf16")
    assert PrecisionParameter("t", "double", on_request="fp32x2").every_value == ("fp64", "fp32x2")
    assert PolicyParameter("m").values == ("accurate", "fast", "approx")
    numpy_values = OrdinalParameter("o", np.array([1, 2])).values  # type: ignore[arg-type]
    assert [type(value) for value in numpy_values] == [int, int]


@pytest.mark.parametrize(
    ("values", "log"),
    [
        ([1, 2, 4, 8], True),
        ([256, 32, 64, 128], True),
        ([1, 2, 3, 4, 6, 8, 12, 16], True),
        ([1, 2, 3, 4], False),
        ([1, 2, 4, 8, 16, *range(32, 1025, 32)], False),
        ([0, 1, 2, 4, 8], False),
        (["a", "b", "c"], False),
    ],
)
def test_an_exponential_list_gets_a_log_scale(values: list[Any], log: bool) -> None:
    assert OrdinalParameter("o", values).log_scale is log


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OrdinalParameter("block size", [1]), "parameter name 'block size' is not an identifier"),
        (lambda: OrdinalParameter("o", []), "parameter o has no values"),
        (lambda: OrdinalParameter("o", [1, 2, 1]), "parameter o has the value 1 twice"),
        (lambda: OrdinalParameter("o", [1, float("nan")]), "parameter o: nan is not a finite number"),
        (lambda: OrdinalParameter("o", [0, 1], log=True), "parameter o: a log scale needs positive numbers"),
        (lambda: IntegerParameter("i", 1.5, 3), "parameter i: low needs an integer, not 1.5"),  # type: ignore[arg-type]
        (lambda: IntegerParameter("i", 4, 3), "parameter i: 4, 3, 1 is no range"),
        (lambda: IntegerParameter("i", 0, 10**9), "is no range of 1 to 1000000 integers"),
        (lambda: RealParameter("r", 0.0, 1.0, 1), "parameter r: steps needs an integer from 2 to 1000000, not 1"),
        (lambda: PermutationParameter("p", 9), "parameter p: n needs an integer from 1 to 8, not 9"),
        (lambda: PrecisionParameter("t", ["fp64", "fp31"]), "unknown precision 'fp31'; did you mean 'fp32'?"),
        (lambda: PolicyParameter("m", ["quick"]), "unknown policy 'quick'"),
    ],
)
def test_refusals_name_the_parameter_and_what_was_expected(make: Any, message: str) -> None:
    with pytest.raises(MptuneError) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("parameter", "raw", "value"),
    [
        (OrdinalParameter("o", [16, 32]), "0x20", 32),
        (OrdinalParameter("o", [16, 32]), np.int32(16), 16),
        (OrdinalParameter("o", [0.5, 1.5]), "5e-1", 0.5),
        (CategoricalParameter("c", [1, "1a"]), "1", 1),
        (RealParameter("r", 0.0, 1.0, 11), "0.3", 0.1 * 3),
        (BooleanParameter("b"), "Yes", True),
        (PermutationParameter("p", 3), "2,0,1", (2, 0, 1)),
        (PrecisionParameter("t", ["fp16"]), "HALF", "fp16"),
    ],
)
def test_other_spellings_are_read(parameter: Parameter, raw: Any, value: Any) -> None:
    assert parameter.parse(raw) == pytest.approx(value) if isinstance(value, float) else parameter.parse(raw) == value


@pytest.mark.parametrize(
    ("parameter", "raw"),
    [
        (OrdinalParameter("o", [16, 32]), "48"),
        (OrdinalParameter("o", [16, 32]), None),
        (RealParameter("r", 0.0, 1.0, 3), "nan"),
        (BooleanParameter("b"), "maybe"),
        (PermutationParameter("p", 3), "0,0,1"),
        (PrecisionParameter("t", ["fp16"]), "fp64"),
    ],
)
def test_an_unknown_value_is_refused_with_the_valid_ones(parameter: Parameter, raw: Any) -> None:
    with pytest.raises(UnknownNameError) as caught:
        parameter.parse(raw)
    assert f"unknown value of parameter {parameter.name}: {str(raw)!r}" in str(caught.value)
    assert all(str(value) in str(caught.value) for value in parameter.values)


# -- one type for everything -------------------------------------------------------------------------

BLOCK = OrdinalParameter("block", [32, 64])
X = PrecisionParameter("x_type", ["fp16", "fp32"])
Y = PrecisionParameter("y_type", ["fp64", "bf16"])


def test_a_baseline_has_the_widest_types_and_accurate_functions() -> None:
    assert baseline_values([BLOCK]) == {}
    policies = [PolicyParameter("policy", ["fast", "accurate"]), PolicyParameter("other", ["approx", "fast"])]
    assert baseline_values([BLOCK, X, Y, *policies]) == {
        "x_type": ("fp32",),
        "y_type": ("fp64",),
        "policy": ("accurate",),
        "other": (policies[1].values[0],),
    }


NAMES = ["u_type", "step.h_type", "step.block", "sum.block", "u.block", "sum.u_type"]


@pytest.mark.parametrize(
    ("given", "full"), [("u_type", "u_type"), ("h_type", "step.h_type"), ("sum.block", "sum.block")]
)
def test_a_name_that_one_kernel_alone_has_needs_no_kernel(given: str, full: str) -> None:
    assert full_name(given, NAMES, "application waves") == full


# -- configurations as numbers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameter", "columns"),
    [
        (OrdinalParameter("o", [1, 2, 4, 16]), [[0, 0.25, 0.5, 1]]),
        (OrdinalParameter("o", [1, 2, 4, 16], log=False), [[0, 1 / 15, 0.2, 1]]),
        (OrdinalParameter("o", [64, 16, 32]), [[1, 0, 0.5]]),
        (OrdinalParameter("o", ["small", "medium", "large"]), [[0, 0.5, 1]]),
        (IntegerParameter("i", -1, 3, 2), [[0, 0.5, 1]]),
        (RealParameter("r", 0.01, 1.0, 3, log=True), [[0, 0.5, 1]]),
        (BooleanParameter("b"), [[0, 1]]),
        (CategoricalParameter("c", ["x", "y", 3]), [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
        (PolicyParameter("m"), [[0, 0.5, 1]]),
        (
            PermutationParameter("p", 3),
            [[0, 0, 0.5, 1, 0.5, 1], [0.5, 1, 0, 0, 1, 0.5], [1, 0.5, 1, 0.5, 0, 0]],
        ),
        (
            # Unit roundoffs 2**-53, 2**-24, 2**-11, 2**-8 and 8, 4, 2, 2 bytes.
            PrecisionParameter("t", ["fp64", "fp32", "fp16", "bf16"]),
            [[0, 29 / 45, 42 / 45, 1], [1, 0.5, 0, 0]],
        ),
        (PrecisionParameter("t", ["fp16", "bf16"]), [[0, 1]]),
        (IntegerParameter("i", 3, 3), []),
    ],
)
def test_each_kind_has_its_encoding(parameter: Parameter, columns: list[list[float]]) -> None:
    space = SearchSpace([parameter])
    features = space.features([space.index({parameter.name: value}) or 0 for value in parameter.values])
    assert pytest.approx(np.array(columns).reshape(len(columns), len(parameter.values))) == features.T


# -- arguments of public functions fit their annotations, or a line says which does not and ----------


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
