"""Where mptune keeps its caches, whom it trusts with them, and files that are written whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mptune.backends.binary_cache import BinaryCache
from mptune.paths import cache_folder, is_own, open_own, own_folder, write_whole


def test_where_caches_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPTUNE_CACHE_DIR", "/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder("references") == Path("/own/references")
    assert BinaryCache().directory == Path("/own/binaries")
    monkeypatch.delenv("MPTUNE_CACHE_DIR")
    assert cache_folder("references") == Path("/xdg/mptune/references")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder("references") == Path("/home/someone/.cache/mptune/references")


# -- folders and files of the user's own ---------------------------------------------------------


def test_a_folder_is_made_for_the_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = own_folder(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert folder == (tmp_path / "a" / "b").resolve()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)] == [0o700, 0o700]
    folder.chmod(0o777)
    own_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_file_others_can_write_is_not_opened(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"own")
    with open_own(file) as opened:
        assert opened.read() == b"own"
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loose").touch()
    (tmp_path / "loose").chmod(0o666)
    for name in ("link", "pipe", "loose", "missing"):
        assert not is_own(tmp_path / name)
        with pytest.raises(OSError, match=r"can be changed by others|symbolic link|No such file"):
            open_own(tmp_path / name)


def test_code_is_loaded_only_from_entries_nobody_else_can_write(tmp_path: Path) -> None:
    keys = [BinaryCache.key([name]) for name in ("one", "two")]
    BinaryCache(tmp_path).put(keys[0], b"code")
    (entry,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert BinaryCache(tmp_path).get(keys[0]) == b"code"
    # A whole entry under another name is none.
    other = tmp_path / keys[1][:2] / keys[1][2:]
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(entry.read_bytes())
    assert BinaryCache(tmp_path).get(keys[1]) is None
    entry.chmod(0o666)
    assert BinaryCache(tmp_path).get(keys[0]) is None
    entry.chmod(0o600)
    tmp_path.chmod(0o777)
    (tmp_path / keys[0][:2]).chmod(0o700)
    assert BinaryCache(tmp_path).get(keys[0]) is None
    with BinaryCache(tmp_path / "below").workspace() as folder:
        assert not folder.is_relative_to(tmp_path)
    tmp_path.chmod(0o700)


# -- files written whole -------------------------------------------------------------------------


def test_a_file_is_there_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    write_whole(file, b"first")
    file.chmod(0o640)
    (tmp_path / "link").symlink_to(file)
    write_whole(tmp_path / "link", b"second")
    assert file.read_bytes() == b"second"
    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, b"third")
    assert file.read_bytes() == b"second"
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link"}
