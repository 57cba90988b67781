"""Kernels that are wrong by mistake, in some of their configurations: what ``trust.py`` tunes.

All compute the same: 64 damped steps of each element of a vector. Besides the right way each has a shorter one that is
wrong in some configurations, by construction: :attr:`Mistake.is_wrong` says in which. In every one of them right
configurations remain, so a run that finds nothing feasible is wrong too. Those named "honest" are right in all
configurations though they look odd, so that an alarm is a false one.

    python benchmarks/mistakes.py NAME [--seed 0] [--budget 24]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from mptune import tune
from mptune.kernel import Constant, In, InOut, Kernel, Out, Scalar, Sizes
from mptune.measure.worker import Limits
from mptune.space.parameters import CategoricalParameter, OrdinalParameter, PrecisionParameter
from mptune.tuning import TuneSettings

__all__ = ["MISTAKES", "THRESHOLD", "Mistake"]

#: Of the error: what fp32 meets, and what the shorter ways miss.
THRESHOLD: Final = 1e-5

_Configuration = Mapping[str, Any]
_STEPS: Final = 64
_LAUNCH: Final = "const int launch = launch_number();\n"

_TEMPLATE: Final = """
__device__ int tickets;
// The number of the launch, from 0 on; every thread asks once.
static __device__ int launch_number() { return atomicAdd(&tickets, 1) / int(gridDim.x * blockDim.x); }

static __device__ {{ t }} steps({{ t }} v, int count = @STEPS@) {
    for (int k = 0; k < count; ++k) v = v - {{ t }}(0.125) * v * v * v;
    return v;
}
// Something wrong that is cheap.
static __device__ {{ t }} guess({{ t }} v) { return steps(v, 4); }
@GLOBALS@
{% macro each() %}
for (int k = 0; k < {{ items }}; ++k) {
    const int i = (blockIdx.x * {{ items }} + k) * {{ block_size }} + threadIdx.x;
    if (i < n) { {{ caller() }} }
}
{% endmacro %}
{% macro honest() %}{% call each() %}y[i] = steps(x[i]);{% endcall %}{% endmacro %}
extern "C" __global__ void damped({{ t }}* y, @ARGUMENTS@int n) {
{% if way == "short" %}
@SHORT@
{% else %}
@HONEST@
{% endif %}
}
"""


def _reference(inputs: Mapping[str, Any], size: Sizes) -> dict[str, Any]:  # noqa: ARG001
    v = np.array(inputs["x"])
    for _ in range(_STEPS):
        v = v - 0.125 * v * v * v
    return {"y": v}


def _inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    return {"x": rng.uniform(0.5, 1.5, size.n)}


def _is_short(configuration: _Configuration) -> bool:
    return bool(configuration["way"] == "short")


@dataclass(frozen=True, slots=True)
class Mistake:
    """A kernel that is wrong in some configurations.

    Attributes:
        name: what to call it.
        what: what it does, in one line.
        short: body of the function where ``way`` is "short".
        honest: body of the function elsewhere.
        is_wrong: whether a configuration is wrong: its answer, or the launch its time is taken of.
        declared: what comes before the function.
        x: declaration of the input in the function.
        arguments: the arguments of the kernel before ``n``.
        inputs: makes the inputs.
        reference: computes the outputs.
        sizes: the problem sizes.
        trial_limit_s: how long a trial may take.
    """

    name: str
    what: str
    short: str
    honest: str = "{{ honest() }}"
    is_wrong: Callable[[_Configuration], bool] = _is_short
    declared: str = ""
    x: str = "const {{ t }}* x, "
    arguments: tuple[Any, ...] = (Out("y", "n", precision="t"), In("x", "n", precision="t"))
    inputs: Callable[..., Mapping[str, Any]] = _inputs
    reference: Callable[..., Mapping[str, Any]] = _reference
    sizes: Mapping[str, int] = field(default_factory=lambda: {"n": 20_011})
    trial_limit_s: float = 10.0

    def kernel(self) -> Kernel:
        """Return the kernel."""
        template = _TEMPLATE
        for name, text in (
            ("STEPS", str(_STEPS)),
            ("GLOBALS", self.declared),
            ("ARGUMENTS", self.x),
            ("SHORT", self.short),
            ("HONEST", self.honest),
        ):
            template = template.replace(f"@{name}@", text)
        return Kernel(
            name=self.name,
            function="damped",
            parameters=[
                OrdinalParameter("block_size", [32, 64, 128, 256]),
                OrdinalParameter("items", [1, 2, 4]),
                CategoricalParameter("way", ["long", "short"]),
                PrecisionParameter("t", ["fp64", "fp32"]),
            ],
            arguments=[*self.arguments, Scalar("n", dtype="int32")],
            sizes={"default": self.sizes},
            inputs=self.inputs,
            reference=self.reference,
            grid=["ceildiv(n, block_size * items)"],
            block=["block_size"],
            template=template,
            metric="NRMSE",
        )


def _later(first_wrong: int) -> str:
    """Return a body that does nothing from a launch on."""
    return f"if (launch_number() >= {first_wrong}) return;\n{{{{ honest() }}}}"


def _only_in(condition: str, *, wrong: str = "guess(x[i])") -> str:
    """Return a body that is wrong where a Jinja2 condition holds."""
    body = f"{{% call each() %}}y[i] = {wrong};{{% endcall %}}"
    return f"{{% if {condition} %}}{body}{{% else %}}{{{{ honest() }}}}{{% endif %}}"


def _writes_at(index: str) -> str:
    """Return a body that answers quickly and right, and writes one element elsewhere."""
    return f"if (blockIdx.x == 0 && threadIdx.x == 0) y[{index}] = {{{{ t }}}}(1);\n{{{{ honest() }}}}"


_X_TO_WRITE: Final = "{{ t }}* x, "
_SPOILS_AT_32: Final = (
    "{{ honest() }}\n{% if block_size == 32 %}if (blockIdx.x + threadIdx.x == 0) x[0] = {{ t }}(1e9);{% endif %}"
)


#: What one thread does in the first launch, before the honest answer.
_ONE_THREAD_ONCE: Final = "if (launch_number() == 0 && blockIdx.x == 0 && threadIdx.x == 0) { @WHAT@ }\n{{ honest() }}"


def _once(what: str) -> str:
    """Return a body that does something in its very first thread, and is right otherwise."""
    return _ONE_THREAD_ONCE.replace("@WHAT@", what)


def _two_outputs(inputs: Mapping[str, Any], size: Sizes) -> dict[str, Any]:
    y = _reference(inputs, size)["y"]
    return {"y": y, "z": 2.0 * y}


def _scaled(inputs: Mapping[str, Any], size: Sizes) -> dict[str, Any]:
    return {"y": _reference(inputs, size)["y"] * inputs["factor"][0]}


def _with_factor(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    return {**_inputs(rng, size), "factor": np.array([2.0])}


def _advanced(inputs: Mapping[str, Any], size: Sizes) -> dict[str, Any]:
    return {"y": _reference({"x": inputs["y"]}, size)["y"]}


def _state(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    return {"y": rng.uniform(0.5, 1.5, size.n)}


def _sum(inputs: Mapping[str, Any], size: Sizes) -> dict[str, Any]:  # noqa: ARG001
    return {"y": np.array([np.sum(inputs["x"])])}


_CASES: Final = (
    # -- launches that differ -----------------------------------------------------------------
    Mistake(
        "work_queue",
        "a queue of work that is never reset: later launches find it empty",
        """for (;;) {
    int first = atomicAdd(&next_element, 1) * 16;
    if (first >= n) return;
    for (int i = first; i < min(first + 16, n); ++i) y[i] = steps(x[i]);
}""",
        declared="__device__ int next_element;",
    ),
    Mistake("right_once", "does nothing from the second launch on", _later(1)),
    Mistake("right_for_twenty", "does nothing from the twenty-first launch on", _later(20)),
    Mistake("every_other", "does nothing in every other launch", "if (launch_number() % 2) return;\n{{ honest() }}"),
    Mistake(
        "half_later",
        "leaves out the second half from the second launch on",
        _LAUNCH + "{% call each() %}if (!launch || i < n / 2) y[i] = steps(x[i]);{% endcall %}",
    ),
    Mistake(
        "drifting",
        "an error that grows with every launch",
        _LAUNCH + "{% call each() %}y[i] = steps(x[i], launch ? 48 : 64) * (1 + {{ t }}(1e-3) * launch);{% endcall %}",
    ),
    Mistake(
        "second_output_once",
        "writes its second output in the first launch only",
        _LAUNCH + "{% call each() %}y[i] = steps(x[i]); if (!launch) z[i] = 2 * steps(x[i]);{% endcall %}",
        honest="{% call each() %}y[i] = steps(x[i]); z[i] = 2 * steps(x[i]);{% endcall %}",
        x="{{ t }}* z, const {{ t }}* x, ",
        arguments=(
            Out("y", "n", precision="t"),
            Out("z", "n", precision="t"),
            In("x", "n", precision="t"),
        ),
        reference=_two_outputs,
    ),
    Mistake(
        "table_once",
        "keeps the results of its first launch in a table, and copies them from the second one on",
        _LAUNCH + "{% call each() %}if (!launch) table[i] = steps(x[i]); y[i] = table[i];{% endcall %}",
        declared="__device__ {{ t }} table[20011];",
    ),
    Mistake(
        "takes_all_memory",
        "allocates until there is none left",
        _once("while (char* more = (char*)malloc(1ul << 28)) *(char* volatile*)more = more;\n    abort();"),
        declared='extern "C" void* malloc(unsigned long);\nextern "C" void abort();',
    ),
    # -- inputs that do not stay ----------------------------------------------------------------
    Mistake(
        "overwrites_input",
        "keeps the answer in its input, and copies it from the second launch on",
        _LAUNCH + "{% call each() %}if (!launch) x[i] = steps(x[i]); y[i] = x[i];{% endcall %}",
        x=_X_TO_WRITE,
    ),
    Mistake(
        "spoils_one_input",
        "right, but changes one element of its input",
        "{{ honest() }}\nif (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) x[n / 2] = {{ t }}(1e18);",
        x=_X_TO_WRITE,
    ),
    Mistake(
        "spoils_first_sibling",
        "the first configurations of each type damage the input; all others are right",
        _SPOILS_AT_32,
        x=_X_TO_WRITE,
        honest=_SPOILS_AT_32,
        is_wrong=lambda c: bool(c["block_size"] == 32),
    ),
    Mistake(
        "spoils_constant",
        "changes constant memory",
        "{{ honest_scaled() }}\n*(volatile {{ t }}*) factor = {{ t }}(1);",
        honest="{{ honest_scaled() }}",
        declared="__constant__ {{ t }} factor[1];\n"
        "{% macro honest_scaled() %}{% call each() %}y[i] = factor[0] * steps(x[i]);{% endcall %}{% endmacro %}",
        arguments=(
            Out("y", "n", precision="t"),
            In("x", "n", precision="t"),
            Constant("factor", (1,), precision="t"),
        ),
        inputs=_with_factor,
        reference=_scaled,
    ),
    # -- writes elsewhere -----------------------------------------------------------------------
    Mistake("writes_20k_past", "writes 20,000 bytes past its output", _writes_at("n + 20000 / int(sizeof(*y))")),
    Mistake("writes_20k_before", "writes 20,000 bytes before its output", _writes_at("-20000 / int(sizeof(*y))")),
    Mistake("writes_1m_past", "writes a million bytes past its output", _writes_at("n + 1000000 / int(sizeof(*y))")),
    Mistake("writes_64m_past", "writes 64 MB past its output", _writes_at("n + 64000000 / int(sizeof(*y))")),
    # -- one bad configuration ------------------------------------------------------------------
    Mistake(
        "wrong_at_32",
        "wrong in all configurations of one block size",
        _only_in("block_size == 32"),
        honest=_only_in("block_size == 32"),
        is_wrong=lambda c: bool(c["block_size"] == 32),
    ),
    Mistake(
        "wrong_in_one",
        "wrong in one configuration of each type, the fastest one",
        _only_in("block_size == 128 and items == 2"),
        is_wrong=lambda c: _is_short(c) and (c["block_size"], c["items"]) == (128, 2),
    ),
    Mistake(
        "wrong_fp64",
        "most all-fp64 configurations are wrong",
        _only_in("t == 'fp64' or t == 'double'"),
        honest=_only_in("(t == 'fp64' or t == 'double') and (block_size != 256 or items == 1)"),
        is_wrong=lambda c: bool(c["t"] == "fp64" and (_is_short(c) or c["block_size"] != 256 or c["items"] == 1)),
    ),
    Mistake(
        "wrong_by_items",
        "fewer steps the more elements a thread has",
        "{% call each() %}y[i] = steps(x[i], 64 / {{ items }});{% endcall %}",
        is_wrong=lambda c: _is_short(c) and c["items"] > 1,
    ),
    Mistake(
        "wrong_but_for_one",
        "the short way is right in one configuration only",
        _only_in("not (block_size == 64 and items == 1)"),
        is_wrong=lambda c: _is_short(c) and (c["block_size"], c["items"]) != (64, 1),
    ),
    Mistake(
        "nan_at_first",
        "not a number in all configurations with one element a thread",
        _only_in("items == 1", wrong="0 * (x[i] / 0)"),
        honest=_only_in("items == 1", wrong="0 * (x[i] / 0)"),
        is_wrong=lambda c: bool(c["items"] == 1),
    ),
    Mistake(
        "crashes",
        "ends the process in half of its configurations",
        "{% if block_size < 128 %}*(volatile int*) nullptr = 1;{% endif %}\n{{ honest() }}",
        honest="{% if block_size < 128 %}*(volatile int*) nullptr = 1;{% endif %}\n{{ honest() }}",
        is_wrong=lambda c: bool(c["block_size"] < 128),
    ),
    Mistake(
        "hangs",
        "does not end in some configurations",
        "{% if block_size == 32 %}while (*(volatile const {{ t }}*) x == *(volatile const {{ t }}*) x) {}{% endif %}\n"
        "{{ honest() }}",
        is_wrong=lambda c: _is_short(c) and c["block_size"] == 32,
        trial_limit_s=1.0,
    ),
    # -- answers that are incomplete --------------------------------------------------------------
    Mistake("writes_half", "writes half of its output", "{% call each() %}if (i % 2) y[i] = steps(x[i]);{% endcall %}"),
    Mistake(
        "leaves_out_the_last",
        "never writes the last element",
        "{% call each() %}if (i < n - 1) y[i] = steps(x[i]);{% endcall %}",
    ),
    Mistake("writes_nothing", "returns at once", "return;"),
    # -- inputs nobody tried ----------------------------------------------------------------------
    Mistake(
        "right_for_some_inputs",
        "wrong for about half of all inputs",
        "const bool is_lucky = x[0] < {{ t }}(1);\n"
        "{% call each() %}y[i] = is_lucky ? steps(x[i]) : guess(x[i]);{% endcall %}",
    ),
    Mistake(
        "right_for_most_inputs",
        "wrong for about a third of all inputs, and leaves out work on the others, too",
        "const bool is_lucky = x[1] < {{ t }}(1.17);\n"
        "{% call each() %}y[i] = is_lucky ? steps(x[i]) : guess(x[i]);{% endcall %}",
    ),
    # -- honest ones ------------------------------------------------------------------------------
    Mistake(
        "honest_queue",
        "honest: a queue of work that the last thread resets",
        """for (;;) {
    int first = atomicAdd(&next_element, 1) * 16;
    if (first >= n) break;
    for (int i = first; i < min(first + 16, n); ++i) y[i] = steps(x[i]);
}
if (atomicAdd(&done, 1) == int(gridDim.x * blockDim.x) - 1) { next_element = 0; done = 0; }""",
        declared="__device__ int next_element, done;",
        is_wrong=lambda _: False,
    ),
    Mistake(
        "honest_sum",
        "honest: a sum in whatever order the threads come, which rounds differently every time",
        "{% call each() %}atomicAdd(y, x[i]);{% endcall %}",
        honest="{% call each() %}atomicAdd(y, x[i]);{% endcall %}",
        arguments=(InOut("y", 1, precision="t"), In("x", "n", precision="t")),
        inputs=lambda rng, size: {**_inputs(rng, size), "y": np.zeros(1)},
        reference=_sum,
        is_wrong=lambda _: False,
    ),
    Mistake(
        "honest_in_place",
        "honest: works in place",
        "{% call each() %}y[i] = steps(y[i]);{% endcall %}",
        honest="{% call each() %}y[i] = steps(y[i]);{% endcall %}",
        x="",
        arguments=(InOut("y", "n", precision="t"),),
        inputs=_state,
        reference=_advanced,
        is_wrong=lambda _: False,
    ),
)

MISTAKES: Final[Mapping[str, Mistake]] = {case.name: case for case in _CASES}


def _tune(case: Mistake, seed: int, budget: int) -> dict[str, Any]:
    settings = TuneSettings(
        backend="host", max_error=THRESHOLD, budget=budget, seed=seed, limits=Limits(run_s=case.trial_limit_s)
    )
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        run = tune(case.kernel(), settings, output=Path(folder) / "run.db", on_warning=said.append)
    return {**run.summary(), "said": said}


def main() -> None:
    """Tune one kernel and print the document ``mptune tune --json`` prints."""
    parser = argparse.ArgumentParser(description="Tune one kernel.")
    parser.add_argument("name", choices=MISTAKES, metavar="NAME")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=24)
    given = parser.parse_args()
    json.dump(_tune(MISTAKES[given.name], given.seed, given.budget), sys.stdout)


if __name__ == "__main__":
    main()
