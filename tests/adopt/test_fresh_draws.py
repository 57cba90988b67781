"""Fresh inputs of programs that copy no floating-point numbers to the device."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.live import _changed
from mptune.adopt.parsing import ProgramError
from mptune.backends import get_backend
from mptune.cli.adopting import print_adopted
from mptune.data.data import FIRST, Draw, Stream
from mptune.errors import UnknownNameError
from mptune.kernel import Application
from mptune.source.loading import load_tunable
from mptune.tuning.check import check_application
from tests.application_runs import first_answer

PROGRAM = Path(__file__).parent / "programs" / "computed_start.cu"
CELLS = 1000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the program becomes, with twelve turns of its loop and without any."""
    found = tmp_path_factory.mktemp("draws")
    adopt(AdoptSettings((PROGRAM,), (str(CELLS), "12")), found / "spread")
    adopt(AdoptSettings((PROGRAM,), (str(CELLS), "0")), found / "bump")
    return found


def answer(definition: Path, draw: Draw, **sizes: int) -> np.ndarray:
    application = load_tunable(definition)
    assert isinstance(application, Application)
    resolved = application.resolve_sizes("default", sizes)
    (found,) = first_answer(application, resolved, draw=draw).values()
    return np.asarray(found)


def bump(width: float = 0.1 * CELLS) -> np.ndarray:
    at = np.arange(CELLS) - 0.5 * CELLS
    return np.exp(-((at / width) ** 2))


def spread(height: np.ndarray, turns: int) -> np.ndarray:
    for _ in range(turns):
        height = (np.roll(height, 1) + 2 * height + np.roll(height, -1)) / 4
    return height


@pytest.mark.full
def test_numbers_of_kernels_that_read_nothing_are_changed(folder: Path) -> None:
    assert json.loads((folder / "bump" / "adopted.json").read_text())["draws"] == {
        "of": "numbers",
        "by": 0.1,
        "names": [],
    }
    assert answer(folder / "bump", FIRST) == pytest.approx(bump(), rel=1e-12)
    fresh = answer(folder / "bump", Draw(Stream.UNSEEN))
    width = 0.5 * CELLS / np.sqrt(-np.log(fresh[0]))
    assert width != pytest.approx(0.1 * CELLS, rel=1e-6)
    assert width == pytest.approx(0.1 * CELLS, rel=0.1)
    assert fresh == pytest.approx(bump(width), rel=1e-9)


@pytest.mark.full
def test_other_sizes_have_fresh_inputs_too(folder: Path) -> None:
    assert json.loads((folder / "spread" / "adopted.json").read_text())["draws"] == {
        "of": "numbers",
        "by": 0.1,
        "names": [],
    }
    assert answer(folder / "spread", FIRST) == pytest.approx(spread(bump(), 12), rel=1e-12)
    first, fresh = (answer(folder / "spread", draw, cells=777, turns=9) for draw in (FIRST, Draw(Stream.UNSEEN)))
    assert first.shape == (777,)
    assert np.abs(fresh / first - 1).max() > 0.01


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_numbers_that_would_be_too_large_for_their_type_stay(dtype: type) -> None:
    largest = np.finfo(dtype).max
    values = np.array([largest, 1.0, np.nan, -np.inf], dtype=dtype)
    draws = np.stack([_changed(np.random.default_rng(seed), values, 0.1) for seed in range(20)])
    assert draws.dtype == dtype
    assert np.isfinite(draws[:, 0]).all()
    assert (draws[:, 0] == largest).any()
    assert (draws[:, 1] != 1.0).all()
    assert np.isnan(draws[:, 2]).all()
    assert (draws[:, 3] == -np.inf).all()


@pytest.mark.nightly
def test_what_is_not_finite_stays_where_it_is(tmp_path: Path) -> None:
    """Also: kernels without parameters."""
    folder = tmp_path / "holes"
    _, document = adopt(AdoptSettings((PROGRAM.with_name("not_finite.cu"),)), folder)
    assert document["errors"] == {"d_out": 0}
    first, second = answer(folder, FIRST), answer(folder, Draw(Stream.UNSEEN))
    holes = first == 2.0
    assert np.count_nonzero(holes) == 70
    assert np.array_equal(second == 2.0, holes)
    assert np.all(np.abs(second - first)[~holes] > 0)
    checked = check_application(load_tunable(folder), get_backend("host"), sample=1)
    assert [compilation.message for kernel in checked for compilation in kernel.compilations] == [""] * 3


@pytest.mark.full
def test_nan_in_the_answer_of_the_program_is_a_mask(tmp_path: Path) -> None:
    folder = tmp_path / "ocean"
    _, document = adopt(AdoptSettings((PROGRAM.with_name("masked.cu"),)), folder)
    assert document["draws"]["of"] == "data"
    first, second = answer(folder, FIRST), answer(folder, Draw(Stream.UNSEEN))
    land = np.arange(1000) % 20 == 3
    for found in (first, second):
        assert np.array_equal(np.isnan(found), land)
    assert (first != second)[~land].all()


@pytest.mark.nightly
def test_what_is_copied_to_variables_of_the_device_counts_and_is_changed(tmp_path: Path) -> None:
    program = PROGRAM.with_name("constants_alone.cu")
    _, document = adopt(AdoptSettings((program,)), tmp_path / "rays")
    assert document["draws"] == {"of": "data", "by": 0.1, "names": ()}
    assert not document["caveats"]
    own, fresh, other = (answer(tmp_path / "rays", draw) for draw in (FIRST, *(Draw(Stream.UNSEEN, n) for n in (0, 1))))
    np.testing.assert_allclose(own, np.exp(-2.2 * (1 + 0.001 * np.arange(own.size))), rtol=1e-12)
    for changed in (fresh, other):
        assert 0 < np.abs(np.log(changed / own)).max() < 2.2 * 1.2 * 0.21
    assert not np.array_equal(fresh, other)


@pytest.mark.nightly
def test_what_stays_where_data_change_and_answers_of_zeros_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, document = adopt(AdoptSettings((PROGRAM.with_name("constant_tables.cu"),)), tmp_path / "tables")
    assert document["draws"]["of"] == "data"
    print_adopted(document)
    assert "that the program copies to the device before it sees a result" in " ".join(capsys.readouterr().out.split())
    text = PROGRAM.read_text().replace("height[i] = exp(", "height[i] = 0 * exp(")
    (tmp_path / "nothing.cu").write_text(text.replace('"PASS" : "FAIL"', '"a" : "b"'))
    _, document = adopt(AdoptSettings((tmp_path / "nothing.cu",), ("100", "2")), tmp_path / "nothing")
    (zero,) = document["zeros"]
    assert any(f"errors are 0 in all types of {zero}, which the program leaves" in each for each in document["caveats"])
    print_adopted(document)
    assert f"verified on unseen inputs; {zero} is all zero" in " ".join(capsys.readouterr().out.split())


@pytest.mark.nightly
def test_data_change_by_less_where_the_answer_would_be_of_another_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The forces between particles that are moved into each other are larger by many powers of ten."""
    _, document = adopt(AdoptSettings((PROGRAM.with_name("repelling.cu"),)), tmp_path / "chain")
    assert document["draws"] == {"of": "data", "by": 0.001, "names": ()}
    print_adopted(document)
    assert "fresh inputs change by up to 0.1% each floating-point number" in capsys.readouterr().out
    own, fresh, other = (
        answer(tmp_path / "chain", draw) for draw in (FIRST, *(Draw(Stream.UNSEEN, n) for n in (0, 1)))
    )
    for changed in (fresh, other):
        assert 0.25 < np.linalg.norm(changed) / np.linalg.norm(own) < 4
        assert not np.array_equal(own, changed)


@pytest.mark.nightly
@pytest.mark.parametrize("share", [0.05, 0.0])
def test_how_much_data_change_may_be_given(share: float, tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAM.with_name("repelling.cu"),), vary=share), tmp_path / "chain")
    assert document["draws"] == {"of": "data" if share else "nothing", "by": share, "names": ()}
    own, fresh = (answer(tmp_path / "chain", draw) for draw in (FIRST, Draw(Stream.UNSEEN)))
    assert np.array_equal(own, fresh) == (not share)


#: The answer is of another size by any change of the weights that is tried.
SENSITIVE = """
#include <cstdio>
__constant__ double table[2];
__global__ void weigh(const double* field, const double* weights, double* result) {
    int i = threadIdx.x;
    result[i] = table[i % 2] * field[i] / (weights[i] - 1.0);
}
int main() {
    double field[64], weights[64], t[2] = {0.5, 2.0}, *d_field, *d_weights, *d_result;
    for (int i = 0; i < 64; ++i) field[i] = 1 + 0.25 * i, weights[i] = 1.0000001;
    cudaMalloc(&d_field, sizeof field);
    cudaMalloc(&d_weights, sizeof field);
    cudaMalloc(&d_result, sizeof field);
    cudaMemcpy(d_field, field, sizeof field, cudaMemcpyHostToDevice);
    cudaMemcpy(d_weights, weights, sizeof field, cudaMemcpyHostToDevice);
    cudaMemcpyToSymbol(table, t, sizeof t);
    weigh<<<1, 64>>>(d_field, d_weights, d_result);
    cudaMemcpy(field, d_result, sizeof field, cudaMemcpyDeviceToHost);
    printf("%g\\n", field[63]);
}
"""


@pytest.mark.full
def test_data_that_break_the_program_stay_and_are_named(tmp_path: Path) -> None:
    source = tmp_path / "weigh.cu"
    source.write_text(SENSITIVE)
    _, document = adopt(AdoptSettings((source,)), tmp_path / "made")
    assert document["draws"] == {"of": "data", "by": 0.1, "names": ("d_field", "table")}
    (note,) = (each for each in document["notes"] if "--vary" in each)
    assert "do not change d_weights, since changes of 10% break the program" in note
    own, fresh = (answer(tmp_path / "made", draw) for draw in (FIRST, Draw(Stream.UNSEEN)))
    assert 0.001 < np.abs(fresh / own - 1).max() < 0.25
    _, document = adopt(AdoptSettings((source,), varied=("table",)), tmp_path / "made")
    assert document["draws"]["names"] == ("table",)
    ratios = answer(tmp_path / "made", Draw(Stream.UNSEEN)) / own
    assert np.unique(ratios.round(9)).size == 2
    with pytest.raises(UnknownNameError, match=r"--vary: 'fields'.*d_field"):
        adopt(AdoptSettings((source,), varied=("fields",)), tmp_path / "made")


@pytest.mark.full
def test_memory_that_the_program_overwrites_is_no_fresh_input(tmp_path: Path) -> None:
    """All shares of the weights break the program, and changes of the result's zeros change nothing."""
    source = tmp_path / "weigh.cu"
    clear = "for (double& each : field) each = 0; cudaMemcpy(d_result, field, sizeof field, cudaMemcpyHostToDevice);"
    text = SENSITIVE.replace("table[i % 2] * field[i]", "2.0")
    text = text.replace("cudaMemcpyToSymbol(table, t, sizeof t);", clear)
    source.write_text(text)
    _, document = adopt(AdoptSettings((source,)), tmp_path / "made")
    assert document["draws"]["of"] == "nothing"
    assert any("break the program" in note and "so fresh inputs change nothing" in note for note in document["notes"])
    _, document = adopt(AdoptSettings((source,), vary=0.1, varied=("d_result",)), tmp_path / "made")
    assert document["draws"]["of"] == "nothing"
    assert "changes of d_result do not change the answer: no winner is verified on unseen inputs" in document["notes"]


@pytest.mark.parametrize("share", [1.0, -0.1, float("nan")])
def test_a_share_that_may_turn_signs_is_refused(share: float, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=rf"^--vary {share:g}: expected .* from 0 to below 1, such as 0.01$"):
        adopt(AdoptSettings((PROGRAM,), vary=share), tmp_path / "spread")
