"""Arrays of structs, a struct in constant memory, and instantiations that a template of the host launches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.data.data import FIRST, Draw, Stream
from mptune.kernel import Application
from mptune.source.loading import load_tunable
from mptune.source.render import render
from tests.application_runs import adopted_answer, first_answer, sizes_of_launch
from tests.vendor_compilers import needs

PROGRAM = Path(__file__).parent / "programs" / "structs_in_memory.cu"
ARCHITECTURES = {"cuda": "sm_80", "hip": "gfx90a"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("adopted") / "beads"
    adopt(AdoptSettings((PROGRAM,)), found)
    return found


@pytest.fixture(scope="module")
def application(folder: Path) -> Application:
    found = load_tunable(folder)
    assert isinstance(found, Application)
    return found


@pytest.mark.full
def test_the_answer_is_the_programs_in_every_field(folder: Path, application: Application) -> None:
    record = json.loads((folder / "adopted.json").read_text())
    fields = {f"d_beads_{field}" for field in ("place", "charge", "neighbour", "is_fixed")}
    assert set(record["errors"]) == {*fields, "d_forces", "d_sums", "sums", "sums_2"}
    assert max(record["errors"].values()) < 1e-14
    assert {o.name for o in application.outputs if o.name.startswith("d_beads")} == fields


@pytest.mark.full
def test_structs_of_one_type_may_change_and_others_say_why_not(folder: Path) -> None:
    record = json.loads((folder / "adopted.json").read_text())
    members = {member: p for p in record["parameters"] for member in p["members"]}
    assert members["Force.x"] is members["Force.z"]
    assert "buffer" in members["Force.x"]["roles"]
    assert record["kept"]["place"] == "an array of Bead has other things in it, too"
    assert record["kept"]["stiffness"] == "an array of Law has other things in it, too"


@pytest.mark.full
def test_each_instantiation_is_a_kernel(folder: Path) -> None:
    record = json.loads((folder / "adopted.json").read_text())
    assert {k["name"]: k["launches"] for k in record["kernels"]} == {
        "pull": 6, "move": 6,  # the definition has a function of that name
         "total_double_0": 1, "total_float_0": 1, "total_double_1": 1,
    }  # fmt: skip


@pytest.mark.full
def test_narrower_types_are_further_off(application: Application) -> None:
    exact = adopted_answer(application, "fp64")
    errors = []
    for precision in ("fp32", "fp16"):
        found = adopted_answer(application, precision)
        errors.append(float(np.linalg.norm(found["d_forces"] - exact["d_forces"]) / np.linalg.norm(exact["d_forces"])))
        assert np.array_equal(found["d_beads_neighbour"], exact["d_beads_neighbour"])
    assert 1e-9 < errors[0] < 1e-6 < errors[1] < 1e-2


@pytest.mark.full
def test_draws_change_the_numbers_in_structs_and_nothing_else(application: Application) -> None:
    own, other = (first_answer(application, draw=draw) for draw in (FIRST, Draw(Stream.UNSEEN)))
    assert np.array_equal(own["d_beads_neighbour"], other["d_beads_neighbour"])
    assert np.abs(other["d_beads_place"] - own["d_beads_place"]).max() > 0


@pytest.mark.nightly
@pytest.mark.parametrize("vendor", [pytest.param(name, marks=needs(name)) for name in ARCHITECTURES])
@pytest.mark.parametrize("narrow", ["fp64", "fp16"])
def test_templates_compile_for_both_vendors(application: Application, vendor: str, narrow: str) -> None:
    backend = get_backend(vendor)
    options = CompileOptions(architecture=ARCHITECTURES[vendor])
    for kernel in application.kernels.values():
        chosen = {p.name: narrow for p in kernel.parameters if narrow in p.values}
        source = render(kernel, kernel.configuration(chosen), sizes_of_launch(kernel))
        assert backend.compiler.compile(source, kernel.function, options).image


@pytest.mark.nightly
def test_what_shares_memory_with_bits_keeps_its_type_and_a_table_of_one_type_does_not(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAM.with_name("tagged_structs.cu"),)), tmp_path / "tagged")
    assert set(document["kept"]) == {"number", "weight"}
    assert "Direction.y" in {member for parameter in document["parameters"] for member in parameter["members"]}
    assert max(document["errors"].values()) < 1e-14
    found = load_tunable(tmp_path / "tagged")
    assert isinstance(found, Application)
    exact, narrow = (adopted_answer(found, precision)["d_out"] for precision in ("fp64", "fp16"))
    assert 1e-6 < float(np.linalg.norm(narrow - exact) / np.linalg.norm(exact)) < 1e-2


@pytest.mark.nightly
def test_all_instantiations_of_a_device_function_change_their_types(tmp_path: Path) -> None:
    adopt(AdoptSettings((PROGRAM.with_name("several_lengths.cu"),)), tmp_path / "lengths")
    found = load_tunable(tmp_path / "lengths")
    assert isinstance(found, Application)
    exact, narrow = (adopted_answer(found, precision)["d_out"] for precision in ("fp64", "fp16"))
    assert 1e-6 < float(np.linalg.norm(narrow - exact) / np.linalg.norm(exact)) < 1e-2
