"""The threads that the kernels of a process share."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from host_kernels import build, run

from mptune.backends.base import Function

WORKERS = 3
ADD = 'extern "C" __global__ void add(double* y, double a) { y[blockIdx.x] += a; }'


#: In a process of its own, where what is closed is the library whose code the threads run.
CLOSING = """
import os, sys
from pathlib import Path
import numpy as np
from host_kernels import build, run
ADD = 'extern "C" __global__ void {name}(double* y) {{ y[blockIdx.x] += {a}; }}'
def threads(): return len(list(Path("/proc/self/task").iterdir()))
def sums(function):
    y = np.zeros(8)
    run(function, (8,), (1,), y)
    return set(y.tolist())
before = threads()
alone = build("alone", ADD.format(name="alone", a=1), workers=1)
assert sums(alone) == {1} and threads() == before
first, second = (build(name, ADD.format(name=name, a=a)) for name, a in (("first", 2), ("second", 3)))
assert sums(first) == {2} and sums(second) == {3} and threads() == before + 2
alone.unload()
first.unload()
assert sums(second) == {3}
for a in range(4, 16):
    third = build("third", ADD.format(name="third", a=a % 5))
    assert sums(third) == {a % 5} and sums(second) == {3}
    third.unload()
assert threads() == before + 2
print("done")
"""


@pytest.mark.full
def test_a_library_is_closed_while_others_go_on(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "TMPDIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", CLOSING], capture_output=True, text=True, env=environment)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_threads_that_launch_at_once_take_turns_also_across_a_fork() -> None:
    functions = [build("add", ADD + f"// {i}", workers=1 + i) for i in range(3)]
    alone = build("add", ADD, workers=WORKERS)  # a lock of Python that another thread holds stays held in a child
    wrong: list[int] = []

    def launch_often(function: Function, each: float) -> None:
        y = np.zeros(50)
        for _ in range(200):
            run(function, (50,), (1,), y, np.float64(each))
        wrong.append(int((y != 200 * each).sum()))

    launching = [threading.Thread(target=launch_often, args=(f, i + 1.0)) for i, f in enumerate(functions)]
    for thread in launching:
        thread.start()
    children = []
    for _ in range(4):
        child = os.fork()  # while one of them has its turn, as like as not
        if child == 0:
            y = np.zeros(50)
            run(alone, (50,), (1,), y, np.float64(1))
            os._exit(int((y != 1).any()))
        children.append(child)
    for thread in launching:
        thread.join()
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert wrong == [0, 0, 0]


WHERE = """
extern "C" int where_am_i() __asm__("sched_getcpu");
extern "C" int who_am_i() __asm__("gettid");
extern "C" __global__ void where(int* processors, int* threads, int n) {
    const int i = blockIdx.x;
    if (i >= n) return;
    for (int k = 0; k < 20000; ++k) __asm__ volatile("" ::: "memory");
    processors[i] = where_am_i();
    threads[i] = who_am_i();
}
"""


def processors_by_thread(function: Function) -> dict[int, set[int]]:
    """Return the processors each thread was seen on, over some launches."""
    seen: dict[int, set[int]] = {}
    n = 2000
    for _ in range(20):
        processors, threads = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
        run(function, (n,), (1,), processors, threads, np.int32(n))
        for thread, processor in zip(threads.tolist(), processors.tolist(), strict=True):
            seen.setdefault(thread, set()).add(processor)
    return seen


@pytest.mark.full
def test_workers_run_where_the_process_may_each_on_a_processor_of_its_own() -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) > 1:
        seen = processors_by_thread(build("where", WHERE, workers=len(allowed)))
        assert all(len(processors) == 1 for processors in seen.values())
        assert len(set().union(*seen.values())) == len(seen)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        for workers in (1, 3 * len(allowed)):
            seen = processors_by_thread(build("where", WHERE, workers=workers))
            assert set().union(*seen.values()) == {max(allowed)}
        assert os.sched_getaffinity(0) == {max(allowed)}
    finally:
        os.sched_setaffinity(0, allowed)
