"""What is in one element, the fields of structs and unlike parts of vectors, is judged each for itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from described import described_run

from mptune.accuracy.evaluate import evaluate_outputs
from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.findings import AdoptedBuffer
from mptune.adopt.into import IntoSettings, into
from mptune.kernel import Application
from mptune.results.trial import Measurement, Status, Trial
from mptune.source.loading import load_tunable
from mptune.space.configuration import Configuration
from tests.application_runs import adopted_answer

PROGRAM = Path(__file__).parent / "programs" / "unlike_fields.cu"
APART = {"d_points": "NRMSE over columns max", "d_pairs": "NRMSE over columns max", "d_alike": "NRMSE"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("unlike")
    shutil.copy(PROGRAM, found)
    adopt(AdoptSettings((found / PROGRAM.name,)), found / "adopted")
    return found


def application_in(folder: Path) -> Application:
    found = load_tunable(folder)
    assert isinstance(found, Application)
    return found


@pytest.mark.full
def test_a_small_field_is_not_hidden_by_a_large_one(folder: Path) -> None:
    application = application_in(folder / "adopted")
    assert application.metric == APART
    exact, narrow = (adopted_answer(application, precision) for precision in ("fp64", "fp32"))
    errors = evaluate_outputs(narrow, exact, application.metric).errors
    for name in ("d_points", "d_pairs"):
        of_speed = exact[name][:, 1], narrow[name][:, 1]
        apart = np.sqrt(np.mean((of_speed[1] - of_speed[0]) ** 2)) / abs(np.mean(of_speed[0]))
        assert errors[name] == pytest.approx(apart, rel=1e-9)
        assert errors[name] > 1e-2
    assert errors["d_alike"] < 1e-7
    # A field that is 0 everywhere has no error.
    assert not exact["d_points"][:, 2].any()
    assert set(evaluate_outputs(exact, exact, application.metric).errors.values()) == {0.0}


def test_a_line_says_which_are_judged_so(folder: Path) -> None:
    notes = json.loads((folder / "adopted" / "adopted.json").read_text())["notes"]
    assert notes == [
        "d_points, d_pairs have several quantities in each element: the error of each is taken for itself, and the "
        "worst counts"
    ]


@pytest.mark.nightly
def test_by_a_metric_for_all_they_are_apart_too(tmp_path: Path) -> None:
    adopt(AdoptSettings((PROGRAM,), metric="MaxRE"), tmp_path / "one")
    assert application_in(tmp_path / "one").metric == {
        "d_points": "MaxRE over columns max", "d_pairs": "MaxRE over columns max", "d_alike": "MaxRE",
    }  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("metric", [", ".join(f"{name}: {each}" for name, each in APART.items()), APART["d_pairs"]])
def test_the_patched_program_is_judged_so(folder: Path, metric: str) -> None:
    said = json.loads((folder / "adopted" / "adopted.json").read_text())
    types = {each["name"]: "fp32" for each in said["parameters"]}
    parameters = [{"name": n, "kind": "precision", "values": ["fp64", "fp32"]} for n in types]
    trial = Trial(Configuration(types), Status.OK, "", Measurement({"time_ms": 1.0, "error": 1e-8}), key="1" * 32)
    run = described_run(
        {"kernel": "unlike", "metric": metric, "threshold": 1e-4, "adopted": said, "parameters": parameters}, [trial]
    )
    settings = IntoSettings(folder / PROGRAM.name, folder / "new.cu")
    document = into(run, trial, run.objective, settings, on_progress=lambda _: None)
    assert (document["within"], document["not_judged"]) == (False, "")
    assert document["errors"]["error.d_points"] > 1e-2 < document["errors"]["error.d_pairs"]
    assert document["errors"]["error.d_alike"] < 1e-7


def buffer_of(values: Any, **given: Any) -> AdoptedBuffer:
    values = np.asarray(values, np.float64)
    shape = (str(len(values)), *map(str, values.shape[1:]))
    return AdoptedBuffer(0, "b", "double", shape, values.size, "fp64", "", results={0: values.ravel()}, **given)


@pytest.mark.parametrize(
    ("scales", "metric"),
    [
        ((1, 99), "NRMSE"),
        ((1, 101), "NRMSE over columns max"),
        ((1, 0), "NRMSE"),
        ((0, 0), "NRMSE"),
        ((1, -9), "NMAE"),
        ((1, -101), "NRMSE over columns max"),
        ((1, 1e-17, 2), "NRMSE"),  # what rounding leaves of a 0
    ],
)
def test_vectors_are_taken_apart_by_what_is_in_them(scales: tuple[float, ...], metric: str) -> None:
    assert buffer_of(np.outer(np.ones(5), scales)).metric == metric


def test_fields_are_always_apart_and_one_of_either_sign_counts_for_all() -> None:
    assert buffer_of(np.ones((4, 2)), has_fields=True).metric == "NRMSE over columns max"
    values = np.outer([1.0, -1.0, 1.0, -1.0], [1.0, 1.0]) + np.array([10.0, 0.0])
    assert buffer_of(values, has_fields=True).metric == "NMAE over columns max"


def test_results_that_begin_within_an_element_are_of_its_numbers() -> None:
    later = AdoptedBuffer(0, "b", "double", ("3", "2"), 6, "fp64", "", results={3: np.array([500.0, 1.0, 500.0])})
    assert later.metric == "NRMSE over columns max"
