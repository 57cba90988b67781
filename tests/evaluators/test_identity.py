"""A key covers what the numbers depend on: each of these once gave the key of something else."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mptune.accuracy.metrics import METRICS
from mptune.errors import UnknownNameError
from mptune.evaluators.identity import launch_identity, metric_identity, trial_key
from mptune.kernel import In, InOut, Kernel
from mptune.registry import load_kernel

OWN = Path(__file__).parent.parent / "own_kernel.py"


def weighted(weight: float) -> Callable[..., float]:
    return lambda output, reference: weight * float(np.max(np.abs(output - reference)))


def power(output: Any, reference: Any, exponent: float) -> float:
    return float(np.mean(np.abs(output - reference) ** exponent))


class Quantile:
    def __init__(self, share: float) -> None:
        self.share = share

    def __call__(self, output: Any, reference: Any) -> float:
        return float(np.quantile(np.abs(output - reference), self.share))

    def of_squares(self, output: Any, reference: Any) -> float:
        return float(np.quantile((output - reference) ** 2, self.share))


def defined(text: str) -> Any:
    """Define ``metric`` as a module of its own would."""
    namespace: dict[str, Any] = {"__name__": "user"}
    exec(text, namespace)
    return namespace["metric"]


HELPER = "def scale(x):\n    return {factor} * x\ndef metric(o, r):\n    return (lambda: scale(abs(o - r).max()))()\n"
PAIRS: dict[str, tuple[Any, Any]] = {
    "closure": (weighted(2.0), weighted(3.0)),
    "partial": (functools.partial(power, exponent=1.0), functools.partial(power, exponent=2.0)),
    "instance": (Quantile(0.5), Quantile(0.9)),
    "method": (Quantile(0.5).of_squares, Quantile(0.9).of_squares),
    "constant": (
        defined("metric = lambda o, r: 2 * (o - r).max()"),
        defined("metric = lambda o, r: 3 * (o - r).max()"),
    ),
    "default": (defined("def metric(o, r, w=1): return w"), defined("def metric(o, r, w=2): return w")),
    "global": (defined("W = 1\ndef metric(o, r): return W"), defined("W = 2\ndef metric(o, r): return W")),
    "array": (
        defined("import numpy\nW = numpy.arange(2000)\ndef metric(o, r): return W"),
        defined("import numpy\nW = numpy.arange(2000)\nW[1000] = 0\ndef metric(o, r): return W"),
    ),
    "helper": (defined(HELPER.format(factor=2)), defined(HELPER.format(factor=3))),
    "bundled": (METRICS["MAE"], METRICS["MRE"]),
}


@pytest.mark.parametrize("case", PAIRS)
def test_different_metrics_are_told_apart(case: str) -> None:
    one, other = PAIRS[case]
    assert metric_identity(one) != metric_identity(other)
    assert metric_identity(one) == metric_identity(one)


def test_spellings_of_a_metric_are_the_same() -> None:
    assert metric_identity("nrmse") == metric_identity("NRMSE") == metric_identity(METRICS["NRMSE"]) == "NRMSE"
    with pytest.raises(UnknownNameError):
        metric_identity("NRMES")


def test_identity_is_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nNAMES = {'b', 'a', 'c'}\ndef helper(x):\n    return metric if x else 0\n"
        "def metric(o, r, *, names=frozenset(NAMES)):\n"
        "    return float(np.max(np.abs(o - r))) if 'a' in {'a', 'b', 'c', 'd'} and NAMES else helper(0)\n"
    )
    script = "import mine; from mptune.evaluators.identity import metric_identity; print(metric_identity(mine.metric))"
    texts = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(texts) == 1
    assert "metric" in texts.pop()


CHANGES: dict[str, dict[str, Any]] = {
    "grid": {"grid": ["ceildiv(n, block)"]},
    "shared memory": {"shared_bytes": "8 * block"},
    "precision of an argument": {"arguments": 1},
    "role of an argument": {"arguments": 0},
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_the_source_does_not_show_is_in_the_key(case: str) -> None:
    kernel = load_kernel(OWN)
    changes = dict(CHANGES[case])
    if "arguments" in changes:
        y, x, n = kernel.arguments
        changes["arguments"] = (
            [InOut("y", "n", precision="y_type"), x, n]
            if changes["arguments"] == 0
            else [
                y,
                In("x", "n", precision="fp64"),
                n,
            ]
        )
    other: Kernel = dataclasses.replace(kernel, **changes)
    configuration = kernel.configuration({"x_type": "fp32", "unroll": 2})
    sizes = kernel.resolve_sizes()
    assert launch_identity(kernel, configuration, sizes) != launch_identity(other, configuration, sizes)


def test_parts_of_a_key_do_not_run_into_each_other() -> None:
    assert trial_key(["ab", "c"]) != trial_key(["a", "bc"])
    assert trial_key(["a", ""]) != trial_key(["a"])
