"""What is compiled before its turn is what is evaluated in its turn, and nothing compiles while a timing runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from mptune.backends.base import Binary, CompileOptions
from mptune.backends.host_compiler import HostCompiler
from mptune.errors import CompileError
from mptune.kernel import Kernel
from mptune.measure.device import DeviceEvaluator, Limits
from mptune.measure.devices import CompileAhead
from mptune.measure.policy import MeasurementPolicy
from mptune.measure.timing import TimingPlan
from mptune.results.trial import Status
from mptune.source.loading import load_kernel

PLAN = TimingPlan(warmups=1, min_repeats=3, max_repeats=5, cap_s=0.05)


class Compiling(HostCompiler):
    """Compiles a source as soon as the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []
        self.may_end = threading.Semaphore(0)
        self.given_up = False

    def compile(self, source: str, function: str, options: CompileOptions) -> Binary:
        self.begun.append(source)
        self.may_end.acquire()
        if self.given_up or source == "wrong":
            raise CompileError(f"rejected {function} for {options.architecture}")
        return Binary(function, source.encode(), compile_s=0.25)

    def close(self) -> None:
        self.given_up = True
        self.may_end.release(100)

    def wait_for(self, *begun: str) -> None:
        deadline = time.monotonic() + 120
        # Of those that run at the same time, each may be the first.
        while sorted(self.begun) != sorted(begun):
            assert time.monotonic() < deadline, self.begun
            time.sleep(0.001)


@pytest.fixture
def compiler() -> Compiling:
    return Compiling()


@pytest.fixture
def ahead(compiler: Compiling) -> Iterator[CompileAhead]:
    ahead = CompileAhead(compiler, "f", CompileOptions("best"), 2)
    yield ahead
    ahead.close()


def test_as_many_at_a_time_as_there_are_compilers_in_the_order_given(compiler: Compiling, ahead: CompileAhead) -> None:
    for source in ("a", "b", "c", "d", "a"):
        ahead.submit(source)
    compiler.wait_for("a", "b")
    compiler.may_end.release()
    compiler.wait_for("a", "b", "c")
    compiler.may_end.release()
    compiler.wait_for("a", "b", "c", "d")
    compiler.may_end.release(2)
    assert [ahead.take(source) for source in ("a", "b", "c", "d")] == [0.25] * 4
    assert len(compiler.begun) == 4


def test_refusal_is_told_when_taken(compiler: Compiling, ahead: CompileAhead) -> None:
    ahead.submit("wrong")
    ahead.submit("a")
    compiler.may_end.release(2)
    with pytest.raises(CompileError, match="rejected f for best"):
        ahead.take("wrong")
    assert ahead.take("a") == 0.25


def test_closing_gives_up_what_is_under_way_and_what_waits(compiler: Compiling) -> None:
    ahead = CompileAhead(compiler, "f", CompileOptions("best"), 1)
    ahead.submit("a")
    ahead.submit("b")
    compiler.wait_for("a")
    ahead.close()
    assert compiler.begun == ["a"]


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return load_kernel(Path(__file__).with_name("faulty.py"))


@pytest.mark.full
def test_compilers_are_paused_for_each_timing_and_for_nothing_else(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []

    @contextmanager
    def counted() -> Iterator[None]:
        pauses.append("begin")
        try:
            yield
        finally:
            pauses.append("end")

    def paused(_: HostCompiler) -> AbstractContextManager[None]:
        return counted()

    monkeypatch.setattr(HostCompiler, "paused", paused)
    faults = [kernel.configuration({"fault": fault}) for fault in ("none", "unwritten", "compile", "segfault")]
    with DeviceEvaluator(
        kernel,
        kernel.resolve_sizes(),
        "host",
        plan=PLAN,
        limits=Limits(run_s=10),
        policy=MeasurementPolicy(),
        compilers=2,
    ) as evaluator:
        statuses = [trial.status for trial in evaluator.evaluate([*faults, kernel.configuration({"block": 64})])]
    assert statuses == [Status.OK, Status.UNWRITTEN, Status.COMPILE_ERROR, Status.CRASH, Status.OK]
    # The others do not come to their timing.
    assert pauses == ["begin", "end"] * 2


@pytest.mark.full
def test_worker_finds_what_was_compiled_ahead(kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPTUNE_CACHE_DIR", str(tmp_path))
    compiled = []
    compile_one = HostCompiler.compile

    def counted(self: HostCompiler, source: str, function: str, options: CompileOptions) -> Binary:
        binary = compile_one(self, source, function, options)
        compiled.append(binary.cached)
        return binary

    monkeypatch.setattr(HostCompiler, "compile", counted)
    configurations = [kernel.configuration({"block": block}) for block in (32, 64)]
    with DeviceEvaluator(kernel, kernel.resolve_sizes(), "host", plan=PLAN, compilers=2) as evaluator:
        assert [trial.status for trial in evaluator.evaluate(configurations)] == [Status.OK] * 2
    assert compiled == [False] * 2
    # Precompiled headers lie beside the binaries.
    folders = [path for path in (tmp_path / "binaries").iterdir() if path.name not in ("work", "headers")]
    binaries = [path for folder in folders for path in folder.iterdir()]
    assert len(binaries) == 2
