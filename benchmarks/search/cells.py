"""What a benchmark runs, and the file that remembers what has been run."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks.bench import code_digest
from mptune.errors import MptuneError

__all__ = ["Cache", "Job", "Results"]

#: Parts of the package on which no replay depends; strategies, of which each has a version of its own.
_UNRELATED: Final = frozenset(("adopt", "backends", "emit", "observers", "strategies"))


@dataclass(frozen=True, slots=True)
class Job:
    """One tool on one space, for some seeds.

    Attributes:
        section: name of the section.
        space: name of the space, or of whatever the tool runs on.
        tool: name of the tool.
        target: ``module:function``; called with ``settings`` it returns a function of the seed.
        settings: what the target is given; JSON.
        seeds: seeds to run.
        limit_s: time one seed may take.
        files: files the results depend on.
        version: version of what searches; other versions' results do not count.
    """

    section: str
    space: str
    tool: str
    target: str
    settings: Mapping[str, Any]
    seeds: tuple[int, ...]
    limit_s: float = 600.0
    files: tuple[Path, ...] = ()
    version: str = ""

    @property
    def key(self) -> str:
        """Digest of everything a result depends on but the seed."""
        parts = [self.target, json.dumps(self.settings, sort_keys=True), self.version, _code()]
        parts += [_digest(path, path.stat().st_mtime_ns) for path in self.files]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _code() -> str:
    """Digest of the code that reads, scores and replays recordings, whatever searches them."""
    return code_digest(*Path(__file__).parent.glob("*.py"), without=_UNRELATED)


@cache
def _digest(path: Path, _changed_ns: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Cache:
    """The results so far, one JSON line for each finished (section, space, tool, seed).

    Args:
        folder: where ``cells.jsonl`` is or will be.

    Raises:
        MptuneError: there can be no such folder.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise MptuneError(f"--work {folder}: expected a folder") from None
        except OSError as error:
            raise MptuneError(f"--work {folder}: {error.strerror}") from error
        self._path = folder / "cells.jsonl"
        self._lock = threading.Lock()
        self._results: dict[tuple[str, ...], dict[str, Any]] = {}
        lines = self._path.read_text(errors="replace").splitlines() if self._path.exists() else []
        for line in lines:
            try:
                cell = json.loads(line)
                identity = (cell["section"], cell["space"], cell["tool"], str(cell["seed"]), cell["key"])
                self._results[identity] = cell["result"]
            except (ValueError, KeyError, TypeError):
                # The benchmark was stopped while it wrote this line.
                continue

    def get(self, job: Job, seed: int) -> dict[str, Any] | None:
        """Return the result of a seed, None when it has not been run."""
        return self._results.get((job.section, job.space, job.tool, str(seed), job.key))

    def add(self, job: Job, seed: int, result: dict[str, Any]) -> None:
        """Remember the result of a seed."""
        cell = {
            "section": job.section,
            "space": job.space,
            "tool": job.tool,
            "seed": seed,
            "key": job.key,
            "result": result,
        }
        with self._lock:
            self._results[job.section, job.space, job.tool, str(seed), job.key] = result
            with self._path.open("a") as file:
                # A cut-off line of an earlier run must not swallow this one.
                file.write("\n" + json.dumps(cell) + "\n" if self._is_cut_off() else json.dumps(cell) + "\n")

    def _is_cut_off(self) -> bool:
        if not self._path.stat().st_size:
            return False
        with self._path.open("rb") as file:
            file.seek(-1, 2)
            return file.read(1) != b"\n"


@dataclass(frozen=True, slots=True)
class Results:
    """What the jobs of a section gave.

    Attributes:
        jobs: every job, finished or not.
        found: results by (space, tool) and seed.
        failures: why a seed of a (space, tool) has no result.
    """

    jobs: tuple[Job, ...]
    found: Mapping[tuple[str, str], Mapping[int, dict[str, Any]]]
    failures: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def of(self, space: str, tool: str) -> Mapping[int, dict[str, Any]]:
        """Return the results of a tool on a space by seed, in the order of the seeds."""
        found = self.found.get((space, tool), {})
        return {seed: found[seed] for seed in sorted(found)}
