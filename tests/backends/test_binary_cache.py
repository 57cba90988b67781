"""The cache of compiled binaries by itself: concurrent writers, damage, pruning, where it lies."""

from __future__ import annotations

import os
import threading
import time

import pytest

from mptune.backends.binary_cache import BinaryCache

KEY = BinaryCache.key(["source", "flags"])


@pytest.fixture
def cache(tmp_path):
    return BinaryCache(tmp_path)


@pytest.mark.parametrize("damage", [lambda c: b"", lambda c: c[:20], lambda c: c[:-1], lambda c: c[:-1] + b"?"])
def test_a_damaged_entry_counts_as_missing_and_goes(cache, damage):
    cache.put(KEY, b"code" * 100)
    (entry,) = (path for path in cache.directory.rglob("*") if path.is_file())
    entry.write_bytes(damage(entry.read_bytes()))
    assert cache.get(KEY) is None
    assert not entry.exists()
    cache.put(KEY, b"whole")
    assert cache.get(KEY) == b"whole"


def test_writers_and_readers_at_once_never_see_half_an_entry(cache):
    contents = [bytes([i]) * 300_000 for i in range(6)]
    seen: list[bytes | None] = []
    start = threading.Barrier(len(contents) + 2)

    def write(content: bytes) -> None:
        start.wait()
        for _ in range(10):
            BinaryCache(cache.directory).put(KEY, content)

    def read() -> None:
        start.wait()
        seen.extend(cache.get(KEY) for _ in range(60))

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    threads += [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {content for content in seen if content is not None} <= set(contents)
    assert cache.get(KEY) in contents
    assert list(cache.directory.glob("*/.*")) == []


def test_least_recently_used_entries_go_first(tmp_path):
    cache = BinaryCache(tmp_path, limit_bytes=10_000)
    keys = [BinaryCache.key([str(i)]) for i in range(12)]
    now = time.time()
    for age, key in enumerate(reversed(keys)):
        cache.put(key, b"x" * 1000)
        path = tmp_path / key[:2] / key[2:]
        os.utime(path, (now - 100 * (age + 1),) * 2)
    assert cache.get(keys[0]) is not None  # the oldest, but used just now
    cache.prune()
    kept = [i for i, key in enumerate(keys) if cache.get(key) is not None]
    assert kept == [0, *range(5, 12)]
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 9000


def test_leftovers_of_killed_processes_go_after_a_day(cache):
    cache.put(KEY, b"code")
    folder = cache.directory / KEY[:2]
    work = cache.directory / "work"
    for name, age in (("old", 90_000), ("young", 100)):
        (folder / f".new-{name}").write_bytes(b"half")
        (work / name).mkdir(parents=True)
        (work / name / "kernel.so").write_bytes(b"half")
        for path in (folder / f".new-{name}", work / name):
            os.utime(path, (time.time() - age,) * 2)
    cache.prune()
    assert sorted(path.name for path in folder.glob(".*")) == [".new-young"]
    assert sorted(path.name for path in work.iterdir()) == ["young"]
    assert cache.get(KEY) == b"code"
