"""A user's own kernel that goes wrong in one configuration of three, and runs of it."""

from __future__ import annotations

import functools
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mptune.measure.worker import Limits
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.store import RunFile
from mptune.tuning import Progress, TuneSettings, tune

DEFINITION = """\
import numpy as np

from mptune.kernel import In, Kernel, Out, Scalar
from mptune.space.parameters import OrdinalParameter, PrecisionParameter

{preamble}
TEMPLATE = r'''
{declarations}
extern "C" __global__ void twice({{{{ y_type }}}}* y, const double* x, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
{{% if block == 64 %}}
    {fault}
{{% endif %}}
    if (i < n) y[i] = ({{{{ y_type }}}})(2.0 * x[i]);
}}
'''

kernel = Kernel(
    name="twice",
    parameters=[OrdinalParameter("block", {blocks}), PrecisionParameter("y_type", {types})],
    arguments=[Out("y", "n", precision="y_type"), In("x", "n", precision="fp64"), Scalar("n", dtype="int32")],
    sizes={{"default": {{"n": {n}}}}},
    inputs={inputs},
    reference=lambda inputs, size: 2.0 * np.asarray(inputs["x"]),
    grid=["{grid}"],
    block=["block"],
    signature=["block"],
    metric="MRE",
    template=TEMPLATE,
)
"""


@dataclass(frozen=True)
class Definition:
    """What goes into a kernel definition file; ``fault`` is run by every thread of the blocks of 64."""

    fault: str = ""
    declarations: str = ""
    preamble: str = ""
    blocks: Sequence[int] = (32, 64, 128)
    types: Sequence[str] = ("fp64",)
    n: int = 1001
    inputs: str = 'lambda rng, size: {"x": rng.uniform(1.0, 2.0, size.n)}'
    grid: str = "ceildiv(n, block)"

    def write(self, folder: Path) -> Path:
        path = folder / "twice.py"
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        path.write_text(DEFINITION.format(**fields | {"blocks": list(self.blocks), "types": list(self.types)}))
        return path


WAITING = 'extern "C" int open(const char*, int, ...), access(const char*, int), usleep(unsigned);'


def waiting(folder: Path, blocks: Sequence[int]) -> Definition:
    """A kernel whose first block of 64 ever makes the file "running" and waits for the file "release"."""
    exclusively = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    is_first = f'i == 0 && open("{folder}/running", {exclusively}, 0600) >= 0'
    return Definition(f'if ({is_first}) while (access("{folder}/release", 0)) usleep(20000);', WAITING, blocks=blocks)


@dataclass
class Tuned:
    """A run that came to its end: what it returned, and the trials told of on the way."""

    run: Run
    told: list[Trial] = field(default_factory=list)

    def trial(self, **values: Any) -> Trial:
        (found,) = (t for t in self.run.trials if values.items() <= dict(t.configuration).items())
        return found


def exact(trial: Trial) -> str:
    """Return all a trial holds as text, in which NaN equals NaN."""
    measurement = trial.measurement
    numbers = (dict(measurement.metrics), measurement.times_ms, dict(measurement.durations_s))
    return repr((trial, numbers, trial.warnings, trial.key))


def settings(**changes: Any) -> TuneSettings:
    # Where time is what is optimised, the fastest are measured again at the end: not every number would stay.
    usual: dict[str, Any] = {
        "backend": "host",
        "budget": 3,
        "max_error": 1e-6,
        "objective": "memory",
        "strategy": "exhaustive",
    }
    # What is reported runs on further inputs at the end, which adds to its numbers.
    usual |= {"baseline_share": 0.0, "verify": 0}
    return TuneSettings(**usual | {"limits": Limits(compile_s=60.0, run_s=20.0)} | changes)


def tuned(kernel: Path, output: Path, *, resume: bool = False, **changes: Any) -> Tuned:
    """Tune to the end; every trial that was told of has to be in the run file, with all its numbers."""
    told: list[Trial] = []

    def listen(progress: Progress) -> None:
        told.append(progress.trial)

    # What it warns of is what was done to it.
    quiet: dict[str, Any] = {"on_warning": lambda _: None}
    run = tune(kernel, settings(**changes), output=output, resume=resume, on_progress=listen, **quiet)
    kept = sorted(exact(trial) for trial in Run.load(output).trials)
    assert kept == sorted(exact(trial) for trial in run.trials)
    assert {exact(trial) for trial in told} <= set(kept)
    return Tuned(run, told)


def command(kernel: Path, output: Path, *options: object) -> list[str]:
    """Return the command line of a run of 40 trials or fewer."""
    usual = ("--backend", "host", "--max-error", "1e-6", "--objective", "memory", "--strategy", "exhaustive")
    rest = ("--baseline-share", "0", "--verify", "0", "--output", output, *options)
    line = (sys.executable, "-m", "mptune", "tune", kernel, *usual, *rest)
    return [str(word) for word in line]


def recorded(path: Path) -> tuple[Trial, ...]:
    """Return the trials of a run file another process may be writing, none while there is no such file yet."""
    try:
        with RunFile.open(path, read_only=True) as file:
            return tuple(file.trials())
    except Exception:
        return ()


def wait_until(true: Any, limit_s: float = 240.0) -> None:
    """Wait until a condition holds; fails where it never does."""
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.02)


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    """Wait until a command says something on standard error."""
    assert process.stderr is not None
    while text not in (line := process.stderr.readline()):
        assert line, "it ended without saying so"


def workers_of(parent: int) -> list[int]:
    """Return the worker processes of a tuner."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent_of = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if parent_of == parent and b"mptune.measure.worker" in line:
                found.append(int(folder.name))
    return found


def is_running(process: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def running(line: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a command and make sure that it ends."""
    process = subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The tests may be a shell's background job, which has it ignored.
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        **options,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()


def fake_compiler(folder: Path, real: Sequence[str], body: str) -> str:
    """Write a compiler that does something else with sources that say FAULT; return what $CXX is to be.

    It does not tell what programs it would call, so that nobody calls those without it.
    """
    script = folder / "g++"
    script.write_text(
        "#!/bin/sh\n"
        f'case " $* " in *" --version "*) exec {shlex.join(real)} --version;; esac\n'
        'case " $* " in *" -### "*) exit 1;; esac\n'
        f"source={shlex.quote(str(folder))}/source.$$\n"
        'cat > "$source"\n'
        f'if grep -q FAULT "$source"; then {body}; fi\n'
        f'exec {shlex.join(real)} "$@" < "$source"\n'
    )
    script.chmod(0o755)
    return str(script)
