"""Whatever one configuration's kernel does, it is one trial with its status, and the others are measured."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from injecting import Definition, fake_compiler, is_running, tuned, wait_until

from mptune.backends.host_compiler import find_compiler
from mptune.measure.worker import Limits
from mptune.results.trial import Status
from tests.tiers import few


@dataclass(frozen=True)
class Fault:
    """A fault, the kernel that has it, and what is expected of its trial."""

    definition: Definition
    status: Status
    message: str
    run_s: float = 20.0


#: The first thread of all.
FIRST = "if (i == 0)"
ENDLESS = "for (volatile int k = 0; k >= 0; k = k % 7) { }"

FAULTS = {
    "compile error": Fault(
        Definition("this is no C++;"),
        Status.COMPILE_ERROR,
        r"rejected twice \(exit status 1\)\ntemplate of kernel twice, line \d+ \(line \d+ rendered\): error: ",
    ),
    "load error": Fault(
        Definition("nowhere();", 'extern "C" __attribute__((visibility("default"))) void nowhere();'),
        Status.LAUNCH_ERROR,
        "the library of twice cannot be opened: .*undefined symbol: nowhere",
    ),
    "launch error": Fault(
        Definition(grid="ceildiv(n, block) + 2**31 * (block == 64)"),
        Status.LAUNCH_ERROR,
        r"has more than 2147483647 threads on an axis",
    ),
    "segfault": Fault(
        Definition("*(volatile int*)16 = i;"),
        Status.CRASH,
        r"SIGSEGV \(segmentation fault\) in the launch phase",
    ),
    "endless loop": Fault(
        Definition(ENDLESS),
        Status.TIMEOUT,
        "the launch phase did not end within 8 s",
        run_s=8.0,
    ),
    "exit": Fault(
        Definition("_exit(3);", 'extern "C" void _exit(int);'),
        Status.CRASH,
        "exited with code 3 in the launch phase: a kernel that calls exit",
    ),
    "sleep": Fault(
        Definition(f"{FIRST} sleep(3600);", 'extern "C" unsigned sleep(unsigned);'),
        Status.TIMEOUT,
        "the launch phase did not end within 8 s; --trial-limit gives it longer",
        run_s=8.0,
    ),
    "memory without end": Fault(
        Definition(
            f"{FIRST} {{ while (char* more = (char*)malloc(1ul << 30)) *(char* volatile*)more = more; abort(); }}",
            'extern "C" void* malloc(unsigned long);\nextern "C" void abort();',
        ),
        Status.CRASH,
        r"SIGABRT \(aborted\) in the launch phase",
    ),
    "write out of bounds": Fault(
        Definition("if (i == 0) { y[-1] = 1.0; y[n] = 1.0; }"),
        Status.CORRUPT,
        "the kernel wrote out of bounds of 'y'",
    ),
    "wrong output": Fault(
        Definition("if (i < n && i % 2) { y[i] = 4.0 * x[i]; return; }"),
        Status.INACCURATE,
        "error 0.5 is above the threshold",
    ),
}


#: What ends like another fault.
AT_NIGHT = ("endless loop",)


@pytest.mark.parametrize("name", few(sorted(FAULTS, key=lambda name: name in AT_NIGHT), 0, len(FAULTS) - len(AT_NIGHT)))
def test_a_fault_is_one_trial_with_its_status(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    kernel = replace(fault.definition, blocks=(64, 128)).write(tmp_path)
    done = tuned(kernel, tmp_path / "run.db", limits=Limits(60.0, fault.run_s))
    bad, good = done.trial(block=64), done.trial(block=128)
    assert bad.status is fault.status, bad.message
    assert re.search(fault.message, bad.message), bad.message
    assert len(done.told) == 2
    assert (good.status, good.error) == (Status.OK, 0.0)
    assert done.run.best is not None
    assert done.run.best is not bad


@pytest.mark.full
def test_compiler_that_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, find_compiler().command, "kill -SEGV $$"))
    done = tuned(Definition("// FAULT").write(tmp_path), tmp_path / "run.db")
    bad = done.trial(block=64)
    assert bad.status is Status.COMPILE_ERROR
    assert f"{find_compiler().label} crashed on twice (SIGSEGV)" in bad.message
    assert done.run.statuses == {"ok": 2, "compile_error": 1}


@pytest.mark.nightly
def test_compiler_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = f"trap '' TERM INT HUP; echo $$ > {tmp_path}/pid; while :; do sleep 1; done"
    body = f"test -e {tmp_path}/hang || exit 1; {hangs}"
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, find_compiler().command, body))
    kernel = Definition("// FAULT").write(tmp_path)
    # What compiles is compiled by then, so that the time is up for the one that does not end alone.
    assert tuned(kernel, tmp_path / "before.db").run.statuses == {"ok": 2, "compile_error": 1}
    (tmp_path / "hang").touch()
    done = tuned(kernel, tmp_path / "run.db", limits=Limits(compile_s=10.0, run_s=20.0))
    bad = done.trial(block=64)
    assert bad.status is Status.COMPILE_ERROR
    assert f"{find_compiler().label} did not finish twice within 10 s" in bad.message
    assert done.run.statuses == {"ok": 2, "compile_error": 1}
    compiler = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_running(compiler))
