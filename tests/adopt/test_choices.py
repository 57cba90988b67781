"""``condition ? a : b`` between numbers of different type classes, which may get any two types."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest
from vendor_compilers import needs

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.classing import type_classes
from mptune.adopt.patching_loops import patch
from mptune.adopt.reading import read
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.kernel import Application
from mptune.measure.instrument import Instrument
from mptune.source.loading import load_tunable
from mptune.source.render import render
from tests.application_runs import sizes_of_launch
from tests.tiers import few

PROGRAM = Path(__file__).parent / "programs" / "choices.cu"
VECTORS = PROGRAM.with_name("vector_choices.cu")
TYPES = [("fp16", "bf16"), ("bf16", "fp16"), ("fp64", "bf16"), ("fp16", "fp32", "bf16")]


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Application:
    folder = tmp_path_factory.mktemp("adopted") / "slopes"
    adopt(AdoptSettings((PROGRAM,), ("1000",), types=12), folder)
    found = load_tunable(folder)
    assert isinstance(found, Application)
    return found


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Application:
    folder = tmp_path_factory.mktemp("adopted") / "vectors"
    adopt(AdoptSettings((VECTORS,)), folder)
    found = load_tunable(folder)
    assert isinstance(found, Application)
    return found


def mixed(application: Application, types: tuple[str, ...]) -> dict[str, str]:
    (kernel,) = application.kernels.values()
    offered = {p.name: p.values for p in kernel.parameters if p.name.endswith("_type")}
    assert len(offered) >= 3
    # Single numbers have no types of 16 bits.
    return {name: each if each in offered[name] else "fp32" for name, each in zip(offered, cycle(types), strict=False)}


def test_those_whose_sides_may_differ_are_found_also_in_macros() -> None:
    program = read([PROGRAM])
    found = {program.text(choice.extent): set(choice.meets) for choice in type_classes(program).choices}
    chain = "i % 3 == 0 ? weights[i] * values[i] : before * after"
    assert {text: names for text, names in found.items() if "%" not in text or text == chain} == {
        "(a) > (b) ? (a) : (b)": {"before", "after", "weights"},
        "fabs(one) < fabs(other) ? one : other": {"one", "other"},
        "one * other > 0 ? nearer : 0": {"nearer"},
        "i < n - 1 ? values[i + 1] - values[i] : weights[i]": {"values", "weights"},
        "i & 1 ? widest : 1": {"widest"},
        chain: {"weights", "values", "before", "after"},
    }  # (but not one with a literal, which becomes what the other side is)


@pytest.mark.full
@pytest.mark.parametrize("program", ["application", "vectors"])
@pytest.mark.parametrize("types", few(map(pytest.param, TYPES), 1, 2), ids="-".join)
@pytest.mark.parametrize(
    ("backend", "architecture"),
    [
        pytest.param("host", "", marks=needs("host")),
        pytest.param("cuda", "sm_80", marks=[*needs("cuda"), pytest.mark.nightly]),
        pytest.param("cuda", "sm_90", marks=[*needs("cuda"), pytest.mark.nightly]),
        pytest.param("hip", "gfx90a", marks=[*needs("hip"), pytest.mark.nightly]),
    ],
)
def test_any_types_compile(
    request: pytest.FixtureRequest, program: str, backend: str, architecture: str, types: tuple[str, ...]
) -> None:
    application: Application = request.getfixturevalue(program)
    (kernel,) = application.kernels.values()
    source = render(kernel, kernel.configuration(mixed(application, types)), sizes_of_launch(kernel))
    options = CompileOptions(architecture=architecture)
    assert get_backend(backend).compiler.compile(source, kernel.function, options).image


@pytest.mark.full
def test_vectors_of_literals_are_of_the_type_of_the_other_side(vectors: Application) -> None:
    (kernel,) = vectors.kernels.values()
    text = render(kernel, kernel.configuration(mixed(vectors, ("fp32",))), sizes_of_launch(kernel))
    assert "CHOICE(i < n, bodies[i], mp::make_vec4<float>(0, 0, 0, 0))" in text
    assert "CHOICE(j < n, bodies[j], mp::make_vec4<double>(own.x, mp::literal(0.), mp::literal(1e3), 0))" in text
    instrument = Instrument(vectors, vectors.resolve_sizes())
    assert instrument.errors(mixed(vectors, ("fp64",)))["error"] < 1e-14  # (sums of 150 that cancel)
    assert 1e-9 < instrument.errors(mixed(vectors, ("fp32",)))["error"] < 1e-5


@pytest.mark.full
def test_instrumented_builds_round_them_to_the_wider_type(application: Application) -> None:
    instrument = Instrument(application, application.resolve_sizes())
    errors = [instrument.errors(mixed(application, types))["error"] for types in (("fp64",), *TYPES)]
    assert errors[0] < 1e-15
    assert all(1e-4 < error < 0.02 for error in errors[1:])


def test_a_program_with_other_types_in_its_text_has_floats_on_both_sides() -> None:
    program = read([PROGRAM])
    made = patch(program, type_classes(program), {"values": "fp16", "weights": "bf16", "before": "fp32"})
    (file,) = made.changed
    assert "i < n - 1 ? float(values[i + 1]) - float(values[i]) : float(weights[i]);" in file.text
    assert "AT_LEAST(before, after, float(weights[i]));" in file.text
