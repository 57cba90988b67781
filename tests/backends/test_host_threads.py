"""The threads that the kernels of a process share."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from host_kernels import CACHE, build, run, source

from mptune.backends.base import CompileOptions, Function
from mptune.backends.host import HostBackend
from mptune.backends.host_compiler import HostCompiler, installed_compilers

WORKERS = 3
#: Every block waits for all others, so that each is a worker's, and says which thread that is.
MEET = """
extern "C" int who_am_i() __asm__("gettid");
extern "C" void give_way() __asm__("sched_yield");
extern "C" __global__ void meet(int* arrived, int* threads) {
    threads[blockIdx.x] = who_am_i();
    atomicAdd(arrived, 1);
    while (__atomic_load_n(arrived, __ATOMIC_RELAXED) < gridDim.x) give_way();
}
"""
#: As MEET, and divides.
DIVIDE = """
extern "C" void give_way() __asm__("sched_yield");
extern "C" __global__ void divide(int* arrived, double* y, double by) {
    atomicAdd(arrived, 1);
    while (__atomic_load_n(arrived, __ATOMIC_RELAXED) < gridDim.x) give_way();
    y[blockIdx.x] /= by;
}
"""
ADD = 'extern "C" __global__ void add(double* y, double a) { y[blockIdx.x] += a; }'


def threads_of(function: Function, workers: int = WORKERS) -> set[int]:
    """Return which threads do a launch; the first worker is the one that launches."""
    threads = np.zeros(workers, np.int32)
    run(function, (workers,), (1,), np.zeros(1, np.int32), threads)
    return set(threads.tolist())


def divided(function: Function, y: float, by: float) -> list[float]:
    """Return what each worker gets for a quotient."""
    quotients = np.full(WORKERS, y)
    run(function, (WORKERS,), (1,), np.zeros(1, np.int32), quotients, np.float64(by))
    return quotients.tolist()


def test_libraries_of_all_compilers_have_the_same_threads() -> None:
    backend, found = HostBackend(workers=WORKERS, cache=CACHE), []
    programs = installed_compilers()
    for program in (*programs, programs[0]):
        binary = HostCompiler(program, cache=CACHE).compile(source("meet", MEET), "meet", CompileOptions())
        found.append(threads_of(backend.device.load(binary)))
    assert len(found[0]) == WORKERS
    assert threading.get_native_id() in found[0]
    assert all(threads == found[0] for threads in found)


def test_more_workers_are_more_threads_and_fewer_do_not_end_any() -> None:
    few, many = build("meet", MEET, workers=2), build("meet", MEET, workers=5)
    first = threads_of(few, 2)
    assert first < threads_of(many, 5)
    assert threads_of(few, 2) == first


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


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    meet, add = build("meet", MEET, workers=WORKERS), build("add", ADD, workers=WORKERS)
    mine = threads_of(meet)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            y = np.ones(64)
            run(add, (64,), (1,), y, np.float64(1))
            others = threads_of(meet)
            status = int(bool(others & mine) or len(others) != WORKERS or (y != 2).any())
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert threads_of(meet) == mine


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


ROUNDING = {"x86_64": (0x000, 0x800), "aarch64": (0x000000, 0x400000)}


@pytest.mark.skipif(platform.machine() not in ROUNDING, reason="how to round upwards is not known here")
def test_workers_round_as_the_thread_that_launches() -> None:
    library = ctypes.CDLL("libm.so.6")
    nearest, upwards = ROUNDING[platform.machine()]
    functions = [build("divide", DIVIDE + f"// {i}", workers=WORKERS) for i in range(2)]
    below = divided(functions[0], 1.0, 3.0)[0]
    assert library.fesetround(upwards) == 0
    try:
        up = [divided(function, 1.0, 3.0) for function in functions]
    finally:
        library.fesetround(nearest)
    above = float(np.nextafter(below, 1))
    assert up == [[above] * WORKERS] * 2
    assert [divided(function, 1.0, 3.0) for function in functions] == [[below] * WORKERS] * 2


def test_threads_sleep_when_nothing_is_launched() -> None:
    function = build("add", ADD, workers=WORKERS)
    y = np.zeros(64)
    for _ in range(50):
        run(function, (64,), (1,), y, np.float64(1))
    worked_s = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - worked_s < 0.1
