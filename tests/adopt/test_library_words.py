"""What programs take from the C++ library, whose headers no template includes: they mean the same on every device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from vendor_compilers import needs

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.backends import get_backend
from mptune.source.loading import load_tunable
from mptune.tuning.check import check_application

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def adopted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("words") / "words"
    _, document = adopt(AdoptSettings((PROGRAMS / "library_words.cu",), types=20), folder)
    return folder, document


@pytest.mark.full
def test_namespaces_limits_and_copies_of_bytes_are_understood(adopted: tuple[Path, dict[str, Any]]) -> None:
    folder, document = adopted
    assert [kernel["name"] for kernel in document["kernels"]] == ["span_double", "weigh"]
    assert max(document["errors"].values()) < 1e-15
    weigh = (folder / "weigh.cu.j2").read_text()
    assert "#define WEIGHTS {0.25_num, 0.5_num, 0.125_num}" in weigh
    assert "memcpy(kept, parts, 3 * sizeof({{ parts_type }}));" in weigh
    assert "mp::fmin(mp::fmax(lost, 0.0_num), 0.5_num) + 2 * mp::fmin(0.5_num, mp::fmax(lost, 0.25_num))" in weigh
    assert "mp::max(lost, 0.25_num) == 0.25_num" in weigh
    members = {member: parameter["name"] for parameter in document["parameters"] for member in parameter["members"]}
    assert members["weigh.sum"] == "sum_type"
    assert "its bytes are counted for memcpy" in document["kept"]["counted"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("backend", "architecture"),
    [
        ("host", ""),
        pytest.param("cuda", "sm_80", marks=[*needs("cuda"), pytest.mark.nightly]),
        pytest.param("cuda", "sm_90", marks=[*needs("cuda"), pytest.mark.nightly]),
        pytest.param("hip", "gfx90a", marks=[*needs("hip"), pytest.mark.nightly]),
    ],
)
def test_they_compile_in_every_type(adopted: tuple[Path, dict[str, Any]], backend: str, architecture: str) -> None:
    checked = check_application(load_tunable(adopted[0]), get_backend(backend), architecture=architecture, sample=2)
    assert [compilation.message for kernel in checked for compilation in kernel.compilations] == [""] * 4


@pytest.mark.nightly
@pytest.mark.parametrize(
    "backend", [pytest.param("cuda", marks=needs("cuda")), pytest.param("hip", marks=needs("hip"))]
)
def test_rows_in_memory_of_bytes_keep_their_type(tmp_path: Path, backend: str) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "rows_in_bytes.cu",)), tmp_path / "rows")
    assert document["kept"] == {"row": "its memory is char elsewhere"}
    assert {member for each in document["parameters"] for member in each["members"]} >= {"add_rows.part"}
    architecture = {"cuda": "sm_90", "hip": "gfx90a"}[backend]
    checked = check_application(load_tunable(tmp_path / "rows"), get_backend(backend), architecture=architecture)
    assert not any(compilation.message for kernel in checked for compilation in kernel.compilations)


@pytest.mark.nightly
def test_unsigned_indices_are_computed_where_they_do_not_wrap(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "unsigned_indices.cu",)), tmp_path / "spread")
    assert max(document["errors"].values()) < 1e-15
    template = (tmp_path / "spread" / "spread.cu.j2").read_text()
    assert "out[mp::as_index(y) * mp::as_index(width) + mp::as_index(x)] = field[place]" in template
    assert "field[mp::as_index(y) * mp::as_index(width) + mp::as_index(x) + mp::as_index(1u)]" in template
    # What is drawn has to wrap, so the place that it is made of stays as it is.
    assert "const unsigned place = y * width + x;" in template
    assert "unsigned drawn = place * 747796405u + 2891336453u;" in template
    assert "const mp::unsigned_index below = " in template
    for name, architecture in (("host", ""), ("cuda", "sm_90"), ("hip", "gfx90a")):
        backend = get_backend(name)
        if backend.availability().can_compile:
            spread = load_tunable(tmp_path / "spread")
            checked = check_application(spread, backend, architecture=architecture, sample=2)
            assert {compilation.message for kernel in checked for compilation in kernel.compilations} == {""}


@pytest.mark.nightly
def test_kernels_may_have_the_names_of_the_library_s_functions(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "kernels_of_the_library.cu",)), tmp_path / "named")
    assert [kernel["name"] for kernel in document["kernels"]] == ["norm", "distance"]
    assert max(document["errors"].values()) < 1e-15
    assert "norm_kernel(" in (tmp_path / "named" / "norm.cu.j2").read_text()
