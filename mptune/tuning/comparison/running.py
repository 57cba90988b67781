"""Running a comparison: every strategy replays every space once per seed, in worker processes of one thread."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import cloudpickle

from mptune.backends.processes import ChildEnded, PythonChild
from mptune.errors import MptuneError, did_you_mean
from mptune.interop import read_run
from mptune.run import Run
from mptune.strategies import STRATEGIES
from mptune.tuning.comparison.figures import Comparison
from mptune.tuning.simulation import Simulation, simulate

__all__ = ["compare", "serve"]

#: Numerical libraries read these when they are loaded.
_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def compare(
    spaces: Sequence[str | Path | Run],
    strategies: Sequence[str],
    *,
    budget: int = 220,
    repeats: int = 10,
    seed: int = 0,
    objective: str = "time_ms",
    objectives: Sequence[str] = (),
    maximise: bool = False,
    max_error: float | Mapping[str, float] | None = None,
    penalty: str = "decay",
    alpha: float = 1.0,
    beta: float = 1.0,
    constraints: Sequence[str] = (),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    processes: int | None = None,
    on_done: Callable[[Simulation], None] | None = None,
) -> Comparison:
    """Replay every strategy on every recorded space, in worker processes of one thread each.

    Args:
        spaces: runs or recorded spaces, or files of them.
        strategies: names of strategies.
        budget: unique configurations each run may evaluate.
        repeats: runs of every strategy on every space, with seeds ``seed, seed + 1, ...``.
        seed: seed of the first run.
        objective: a recorded metric or an expression over metrics; "time" is ``time_ms``.
        objectives: two or three of these instead: strategies search for their front, and distances are what is missing
            of its hypervolume.
        maximise: whether more of the objective is better.
        max_error: the largest recorded error allowed: of all outputs, or by name as ``--max-error`` takes it.
        penalty: what an inaccurate trial scores.
        alpha: slope of the linear penalty.
        beta: rate of the decay penalty.
        constraints: what the recorded metrics have to satisfy besides, such as ``energy_j <= 1.5``.
        options: hyperparameters by strategy and name.
        processes: worker processes; by default one per core. With one, all runs in this process.
        on_done: called with each simulation as it is done, in no particular order.

    Raises:
        SpaceFileError: a file cannot be read.
        UnknownNameError: no such strategy, option or metric.
        MptuneError: nothing to compare, a space or strategy twice, or what :func:`~mptune.tuning.simulation.simulate`
        refuses.
    """
    given = dict(options or {})
    _check(spaces, strategies, given, processes)
    recorded = [space if isinstance(space, Run) else read_run(space) for space in spaces]
    names = [space.name for space in recorded]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise MptuneError(f"two of the spaces are called {twice!r}; figures are told apart by the name")
    settings: dict[str, Any] = {
        "budget": budget,
        "repeats": repeats,
        "seed": seed,
        "objective": objective,
        "objectives": tuple(objectives),
        "maximise": maximise,
        "max_error": max_error,
        "penalty": penalty,
        "alpha": alpha,
        "beta": beta,
        "constraints": tuple(constraints),
    }
    jobs = [
        (space, settings | {"strategy": strategy, "options": given.get(strategy)})
        for space in recorded
        for strategy in strategies
    ]
    report = on_done or (lambda _: None)
    workers = min(len(jobs), processes or os.cpu_count() or 1)
    if workers == 1:
        return Comparison(tuple(_reported(simulate(space, **job), report) for space, job in jobs))
    return Comparison(_in_parallel(jobs, workers, report))


def _check(
    spaces: Sequence[object], strategies: Sequence[str], options: Mapping[str, Mapping[str, Any]], processes: int | None
) -> None:
    if not spaces or not strategies:
        raise MptuneError(f"nothing to compare: {len(spaces)} spaces and {len(strategies)} strategies")
    if processes is not None and processes < 1:
        raise MptuneError(f"processes must be at least 1, got {processes}")
    for number, strategy in enumerate(strategies):
        chosen = STRATEGIES[strategy]
        if strategy in strategies[:number]:
            raise MptuneError(f"strategy {strategy!r} is given twice")
        chosen.options_class.from_mapping(strategy, dict(options.get(strategy, {})))
    for strategy in options:
        if strategy not in strategies:
            raise MptuneError(
                f"options for strategy {strategy!r}, which is not compared{did_you_mean(strategy, strategies)} "
                f"(compared: {', '.join(strategies)})"
            )


def _reported(simulation: Simulation, report: Callable[[Simulation], None]) -> Simulation:
    report(simulation)
    return simulation


def _in_parallel(
    jobs: Sequence[tuple[Run, Mapping[str, Any]]], workers: int, report: Callable[[Simulation], None]
) -> tuple[Simulation, ...]:
    # Recordings hold read-only views, which only cloudpickle takes along.
    pickled = {id(space): cloudpickle.dumps(space) for space, _ in jobs}
    idle: SimpleQueue[PythonChild] = SimpleQueue()

    def run(space: Run, job: Mapping[str, Any]) -> Simulation:
        child = idle.get()
        try:
            child.send((pickled[id(space)], job))
            answer = cloudpickle.loads(child.receive())
        except ChildEnded as ended:
            raise MptuneError(f"the process that simulated {job['strategy']} on {space.name} {ended.how}") from None
        finally:
            idle.put(child)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    done: dict[int, Simulation] = {}
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(PythonChild(f"{__name__}:serve", environment=_ONE_THREAD)) for _ in range(workers)
        ]
        for child in children:
            idle.put(child)
        with ThreadPoolExecutor(workers) as pool:
            futures = {pool.submit(run, *job): number for number, job in enumerate(jobs)}
            try:
                for future in as_completed(futures):
                    done[futures[future]] = _reported(future.result(), report)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                for child in children:
                    child.signal(signal.SIGKILL)  # the thread that waits for it is told
    return tuple(done[number] for number in range(len(jobs)))


def serve(channel: Connection) -> None:
    """Run the simulations that come over the connection."""
    while True:
        space, job = channel.recv()
        try:
            answer: Simulation | Exception = simulate(cloudpickle.loads(space), **job)
        except Exception as error:
            answer = error
        channel.send(cloudpickle.dumps(answer))
