"""Where mptune keeps its caches."""

from __future__ import annotations

from pathlib import Path

import pytest

from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host import HostBackend
from mptune.folders import cache_folder


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


def test_without_a_home_directory_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("MPTUNE_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert cache_folder("references") is None
    cache = BinaryCache()
    cache.put("0" * 64, b"code")
    assert cache.get("0" * 64) is None
    HostBackend()
