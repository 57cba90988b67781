from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import mptune
from mptune.errors import KernelError, UnknownNameError
from mptune.paths import bundled_folder
from mptune.source.loading import bundled_kernels, load_kernel

OWN = Path(__file__).with_name("own_kernel.py")


def test_every_bundled_kernel_loads_with_reference_and_presets() -> None:
    assert {"axpy", "convolution2d"} <= set(bundled_kernels())
    for name in bundled_kernels():
        kernel = load_kernel(name)
        assert kernel.name == name
        assert kernel.reference is not None
        assert {"smoke", "default", "paper"} <= set(kernel.sizes)
        assert kernel.description
        assert (bundled_folder("templates") / f"{name}.cu.j2").is_file()


def test_layout_of_siblings_works_outside_the_project(tmp_path: Path) -> None:
    for folder, suffix in (("kernels", ".py"), ("templates", ".cu.j2"), ("references", ".py")):
        (tmp_path / folder).mkdir()
        shutil.copy(bundled_folder(folder) / f"axpy{suffix}", tmp_path / folder / f"mine{suffix}")
    kernel = load_kernel(tmp_path / "kernels" / "mine.py")
    assert kernel.reference is not None
    assert kernel.reference.__code__.co_filename == str(tmp_path / "references" / "mine.py")


def test_definition_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_mine.py").write_text("N = 17\n")
    text = OWN.read_text().replace("import numpy as np", "import numpy as np\nfrom neighbour_of_mine import N")
    (tmp_path / "mine.py").write_text(text.replace('"n": 5003', '"n": N'))
    assert load_kernel(tmp_path / "mine.py").resolve_sizes().n == 17


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "defines no kernel"),
        ("import nonexistent_module_xyz", "broken.py:1: ModuleNotFoundError"),
        ("\ndef f(:", "broken.py:2: SyntaxError"),
        ("x = 1\ny = 1 / 0", "broken.py:2: ZeroDivisionError"),
    ],
)
def test_broken_definition_is_explained(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(KernelError, match=message):
        load_kernel(path)


def test_unknown_names_and_files_get_suggestions(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'convolution2d'.*given as the path of its file"):
        load_kernel("convolutoin2d")
    shutil.copy(OWN, tmp_path / "mine.py")
    with pytest.raises(KernelError, match=r"did you mean '.*mine.py'"):
        load_kernel(tmp_path / "mien.py")
    with pytest.raises(UnknownNameError):
        load_kernel("_init__")


def test_kernels_and_applications_are_loaded_each_by_its_own_name() -> None:
    assert mptune.load_application("conjugate_gradient").what == "application"
    with pytest.raises(KernelError, match="is an application: load_application loads it"):
        mptune.load_kernel("conjugate_gradient")
    with pytest.raises(KernelError, match="is a single kernel: load_kernel loads it"):
        mptune.load_application("axpy")
