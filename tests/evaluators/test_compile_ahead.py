"""What is compiled before its turn is what is evaluated in its turn, and nothing compiles while a timing runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from mptune.backends.base import Binary, CompileOptions
from mptune.backends.host_compiler import HostCompiler
from mptune.kernel import Kernel
from mptune.measure.device import DeviceEvaluator
from mptune.measure.timing import TimingPlan
from mptune.measure.worker import Limits
from mptune.results.trial import Status
from mptune.source.loading import load_kernel

PLAN = TimingPlan(warmups=1, min_repeats=3, max_repeats=5, cap_s=0.05)


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
