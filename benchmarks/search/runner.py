"""Running jobs in worker processes, each with a time limit, remembering every result as it comes."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from benchmarks.search.cells import Cache, Job, Results
from mptune.backends.processes import ChildEnded, PythonChild

__all__ = ["ROOT", "run_jobs"]

ROOT: Final = Path(__file__).resolve().parents[2]
_SETUP_LIMIT_S: Final = 180.0
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def run_jobs(jobs: Sequence[Job], cache: Cache, processes: int, say: Callable[[str], None]) -> Results:
    """Run what the cache does not hold yet.

    Args:
        jobs: what to run.
        cache: results so far; every new one is added at once.
        processes: worker processes at a time.
        say: told about every job that is done.
    """
    failures: dict[tuple[str, str], str] = {}
    started, done = time.perf_counter(), 0
    lock, stopped = threading.Lock(), threading.Event()

    def work(job: Job) -> None:
        nonlocal done
        missing = [seed for seed in job.seeds if cache.get(job, seed) is None]
        begun = time.perf_counter()
        failure = _run(job, missing, cache, stopped) if missing else None
        with lock:
            done += 1
            if failure:
                failures[job.space, job.tool] = failure
            spent = time.perf_counter() - begun
            note = f"FAILED: {failure}" if failure else f"{spent / max(len(missing), 1):.2f} s each"
            say(
                f"[{time.perf_counter() - started:6.0f} s] {job.section} {done}/{len(jobs)}: {job.tool} on "
                f"{job.space}, {len(missing)} of {len(job.seeds)} seeds to run, {note}"
            )

    with ThreadPoolExecutor(processes) as pool:
        try:
            for future in [pool.submit(work, job) for job in jobs]:
                future.result()
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    found: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for job in jobs:
        results = {seed: result for seed in job.seeds if (result := cache.get(job, seed)) is not None}
        found.setdefault((job.space, job.tool), {}).update(results)
    return Results(tuple(jobs), found, failures)


def _run(job: Job, seeds: Sequence[int], cache: Cache, stopped: threading.Event) -> str | None:
    """Run seeds, starting a fresh process after one that failed; return why the last failure failed."""
    failure = None
    left = list(seeds)
    while left:
        finished, reason = _run_process(job, left, cache, stopped)
        if reason is None:
            break
        failure = reason
        if not finished or stopped.is_set():
            # A process that fails on its first seed will do so on all of them.
            break
        left = left[finished + 1 :]
    return failure


def _run_process(job: Job, seeds: Sequence[int], cache: Cache, stopped: threading.Event) -> tuple[int, str | None]:
    """Run seeds in one process; return how many finished, and why it stopped before the last.

    A result counts only while the files are what they were when the process began to read them.
    """
    key = job.key
    environment = dict.fromkeys(_THREADS, "1") | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
    target, finished, doing = "benchmarks.search.worker:main", 0, f"starting took more than {_SETUP_LIMIT_S:g} s"
    with (
        tempfile.TemporaryDirectory() as folder,
        PythonChild(target, environment=environment, keeps_output=True) as child,
    ):
        try:
            child.send({"folder": folder, "target": job.target, "settings": dict(job.settings), "seeds": list(seeds)})
            child.receive(_SETUP_LIMIT_S)
            for seed in seeds:
                if stopped.is_set():
                    return finished, "stopped"
                doing = f"seed {seed} took more than {job.limit_s:g} s"
                result = json.loads(child.receive(job.limit_s))
                if job.key != key:
                    return finished, "what it reads was changed meanwhile"
                cache.add(job, seed, result)
                finished += 1
        except TimeoutError:
            return finished, doing
        except ChildEnded as ended:
            lines = ended.printed.splitlines()
            return finished, f"seed {seeds[finished]}: {lines[-1].strip() if lines else 'the process died'}"
    return finished, None
