"""Structs in memory with fields that are CUDA's vectors: their numbers change their type as plain fields' do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.kernel import Application
from mptune.source.loading import load_tunable
from tests.application_runs import adopted_answer

PROGRAM = Path(__file__).parent / "programs" / "vectors_in_structs.cu"
N = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("adopted") / "bodies"
    adopt(AdoptSettings((PROGRAM,)), found)
    return found


@pytest.fixture(scope="module")
def application(folder: Path) -> Application:
    found = load_tunable(folder)
    assert isinstance(found, Application)
    return found


def exact_bodies() -> tuple[NDArray[np.longdouble], NDArray[np.longdouble]]:
    """Return the program's bodies (300, 4) and speeds (300, 3), computed with more digits than it has."""
    i = np.arange(N, dtype=np.longdouble)
    place, mass = np.stack([1 + i * 0.003, 1.7 - i * 0.001, 2.2 + 0 * i]), 0.9 + i * 0.0007
    speeds = np.stack([1 + 0 * i, i * 0.002, 0.6 + 0 * i])
    shift = np.stack([0.7 + 0 * i, 1 / (1 + i), 0.003 * i])
    for _ in range(4):
        speeds = speeds + 0.01 * mass * (np.cross(place, speeds, axis=0) + shift)
        place, mass = place + 0.1 * speeds, mass * 1.01
    return np.stack([*place, mass], 1), speeds.T


@pytest.mark.nightly
def test_all_numbers_of_structs_of_vectors_have_one_type(folder: Path, application: Application) -> None:
    record = json.loads((folder / "adopted.json").read_text())
    members = {member: each["name"] for each in record["parameters"] for member in each["members"]}
    assert members["Body.place"] == members["Body.mass"]
    assert members["Panel.corners"] == members["Panel.normal"] != members["Body.place"]
    precisions = {argument.name: argument.precision for argument in application.arguments}
    assert precisions["d_bodies"] == members["Body.place"]
    assert precisions["d_panels"] == members["Panel.corners"]
    # In an application a type that several kernels share in memory is one parameter.
    assert members["Body.place"] in {each.name for each in application.parameters}


@pytest.mark.nightly
def test_structs_that_would_be_laid_out_otherwise_keep_their_types(folder: Path, application: Application) -> None:
    kept = json.loads((folder / "adopted.json").read_text())["kept"]
    gaps = "an array of {}, aligned to 16 bytes, would have gaps between shorter numbers"
    assert kept == {
        "at": gaps.format("Cell"),
        "state": gaps.format("Cell"),
        "up": gaps.format("Spin"),
        "seen": "an array of Mark has other things in it, too",
    }
    precisions = {argument.name: argument.precision for argument in application.arguments}
    assert precisions["d_cells"] == precisions["d_spins"] == "fp64"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("precision", "least", "most"), [("fp64", 0, 1e-14), ("fp32", 1e-9, 1e-6), ("fp16", 1e-6, 1e-2)]
)
def test_the_answer_is_that_of_the_arithmetic_in_every_type(
    application: Application, precision: str, least: float, most: float
) -> None:
    found = adopted_answer(application, precision)
    for name, exact in zip(("d_bodies", "d_speeds"), exact_bodies(), strict=True):
        error = float(np.linalg.norm(found[name].reshape(N, -1) - exact) / np.linalg.norm(exact))
        assert least <= error <= most, name
