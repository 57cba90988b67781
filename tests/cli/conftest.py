"""What the tests of commands share: the command line, a finished run, a made-up device and recorded spaces."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Call, caller
from made_up_devices import MadeUp, MadeUpDevices, replace_devices

from mptune import cli
from mptune.backends import get_backend
from mptune.precision import precision
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.tuning.check import check

OWN = Path(__file__).parents[1] / "own_kernel.py"


def does(configuration: Configuration) -> MadeUp:
    """The fewer the bytes, the faster; blocks of 64 are the fastest; the narrowest type decides the error."""
    types = [precision(configuration[name]) for name in ("x_type", "y_type")]
    slow = {32: 4, 64: 1, 128: 2, 256: 3}[configuration["block"]] + configuration["unroll"] / 100
    error = max(each.unit_roundoff for each in types)
    return MadeUp(slow * sum(each.size_bytes for each in types) / 16, error)


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run file with a winner and a front of several: that of the tests' own kernel, tuned by the command."""
    path = tmp_path_factory.mktemp("tuned") / "run.db"
    options = ("--backend", "host", "--max-error", "1e-5", "--budget", "8", "--strategy", "random")
    command = ["tune", str(OWN), *options, "--output", str(path)]
    with pytest.MonkeyPatch.context() as patch, cli.app.make_context("mptune", command) as context:
        replace_devices(patch, does)
        assert cli.app.invoke(context) == 0
    run = Run.load(path)
    assert run.best is not run.baseline
    assert len(run.pareto()) > 1
    return path


@pytest.fixture(scope="session")
def compiler() -> None:
    """Have what every kernel includes compiled before a test's own kernels are."""
    check(load_kernel(OWN), get_backend("host"), sample=1)


@pytest.fixture
def run_file(tuned: Path, tmp_path: Path) -> Path:
    """Return a copy of that run file, in the test's own folder."""
    return Path(shutil.copy(tuned, tmp_path / "run.db"))


@pytest.fixture
def mptune(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Run a command of ``mptune`` in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    return caller(monkeypatch, capfd)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> MadeUpDevices:
    """Tune the tests' own kernel on a made-up device: no worker, no compiler, the same times everywhere."""
    return replace_devices(monkeypatch, does)


@pytest.fixture
def recording(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a recorded space of 60 configurations whose optimum is 1 ms at a=8, b=6."""

    def write(name: str = "space", *, errors: bool = False) -> Path:
        cache = {}
        for a in range(1, 11):
            for b in range(1, 7):
                entry = {"a": a, "b": b, "time": 1.0 + abs(a - 8) + (6 - b)}
                cache[f"{a},{b}"] = entry | ({"error": 10.0**-a} if errors else {})
        head = {
            "device_name": "d",
            "kernel_name": "k",
            "problem_size": 1,
            "tune_params_keys": ["a", "b"],
            "tune_params": {"a": list(range(1, 11)), "b": list(range(1, 7))},
        }
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({**head, "objective": "time", "cache": cache}))
        return path

    return write
