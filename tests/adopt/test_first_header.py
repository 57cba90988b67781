"""The header that is read before every program is parsed once, and again when one of its files changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mptune.adopt.first_header import first_header

cindex = pytest.importorskip("clang.cindex", reason="libclang is not installed")


def functions(header: Path, program: Path) -> tuple[str, list[str]]:
    """Return how the header is read by a process that begins now, and the functions it declares."""
    first_header.cache_clear()
    how = first_header(cindex, header, ("-x", "c++"), 0)
    unit = cindex.Index.create().parse(str(program), ["-x", "c++", *how])
    assert not list(unit.diagnostics)
    return how[0], [cursor.spelling for cursor in unit.cursor.get_children()]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MPTUNE_CACHE_DIR", str(tmp_path / "cache"))
    header, inner, program = (tmp_path / name for name in ("first.hpp", "inner.hpp", "program.cpp"))
    header.write_text('#include "inner.hpp"\nint one(int);\n')
    inner.write_text("int two(int);\n")
    program.write_text("int main() { return one(1) + two(2); }\n")
    yield header, inner, program
    first_header.cache_clear()


def test_it_is_kept_until_one_of_its_files_changes(files: tuple[Path, Path, Path]) -> None:
    header, inner, program = files
    assert functions(header, program) == ("-include-pch", ["two", "one", "main"])
    (kept,) = (path for path in (header.parent / "cache").rglob("*") if path.is_file())
    written = kept.read_bytes()
    assert functions(header, program) == ("-include-pch", ["two", "one", "main"])
    assert kept.read_bytes() == written
    inner.write_text("int two(int);\nint three(int);\n")
    assert functions(header, program) == ("-include-pch", ["two", "three", "one", "main"])
    kept.write_bytes(written[:-1000])  # cut short
    assert functions(header, program) == ("-include-pch", ["two", "three", "one", "main"])


def test_without_a_folder_for_it_the_header_itself_is_read(
    files: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    header, _, program = files
    monkeypatch.setenv("MPTUNE_CACHE_DIR", "/dev/null/nowhere")
    assert functions(header, program) == ("-include", ["two", "one", "main"])
    header.unlink()
    monkeypatch.setenv("MPTUNE_CACHE_DIR", str(header.parent / "cache"))
    first_header.cache_clear()
    assert first_header(cindex, header, ("-x", "c++"), 0) == ("-include", str(header))
