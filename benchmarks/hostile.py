"""Kernels that try to win with a wrong answer, or to have right ones thrown out: what ``trust.py`` tunes.

All compute the same: 64 damped steps of each element of a vector. Besides the honest way each has a shorter one that is
wrong in some configurations, by construction: :attr:`Hostile.is_wrong` says in which. In every one of them right
configurations remain, so a run that finds nothing feasible is wrong too. The honest ones at the end are right in all
configurations though they look odd, so that an alarm is a false one.

    python benchmarks/hostile.py NAME [--seed 0] [--budget 24]
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
from mptune.evaluators.device import Limits
from mptune.kernel import Constant, In, InOut, Kernel, Out, Scalar, Sizes
from mptune.space.parameters import CategoricalParameter, OrdinalParameter, PrecisionParameter
from mptune.tuner import TuneSettings

__all__ = ["HOSTILE", "THRESHOLD", "Hostile"]

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
extern "C" __global__ void hostile({{ t }}* y, @ARGUMENTS@int n) {
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
class Hostile:
    """A kernel that is wrong in some configurations.

    Attributes:
        name: what to call it.
        what: what it does, in one line.
        short: body of the function where ``way`` is "short".
        honest: body of the function elsewhere.
        is_wrong: whether a configuration is wrong: its answer, or the launch its time is taken of; or what else it
            does to the process.
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
            function="hostile",
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


#: Keeps the results of elements whose input it has seen before, in so many places for each.
_MEMORY: Final = """
__device__ {{ t }} seen[@SLOTS@][20011], results[@SLOTS@][20011];
static __device__ {{ t }} remembered({{ t }} v, int i) {
    const int slot = int(v * 1e6) % @SLOTS@;
    if (seen[slot][i] != v) { results[slot][i] = steps(v); seen[slot][i] = v; }
    return results[slot][i];
}
"""
_REMEMBERS: Final = "{% call each() %}y[i] = remembered(x[i], i);{% endcall %}"
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
    Hostile(
        "work_queue",
        "a queue of work that is never reset: later launches find it empty",
        """for (;;) {
    int first = atomicAdd(&next_element, 1) * 16;
    if (first >= n) return;
    for (int i = first; i < min(first + 16, n); ++i) y[i] = steps(x[i]);
}""",
        declared="__device__ int next_element;",
    ),
    Hostile("right_once", "does nothing from the second launch on", _later(1)),
    Hostile("right_twice", "does nothing from the third launch on", _later(2)),
    Hostile("right_for_five", "does nothing from the sixth launch on", _later(5)),
    Hostile("right_for_twenty", "does nothing from the twenty-first launch on", _later(20)),
    Hostile("every_other", "does nothing in every other launch", "if (launch_number() % 2) return;\n{{ honest() }}"),
    Hostile(
        "one_in_eight",
        "computes in every eighth launch only",
        "if (launch_number() % 8) return;\n{{ honest() }}",
    ),
    Hostile(
        "cheap_later",
        "writes something cheap from the second launch on",
        _LAUNCH + "{% call each() %}y[i] = launch ? guess(x[i]) : steps(x[i]);{% endcall %}",
    ),
    Hostile(
        "half_later",
        "leaves out the second half from the second launch on",
        _LAUNCH + "{% call each() %}if (!launch || i < n / 2) y[i] = steps(x[i]);{% endcall %}",
    ),
    Hostile(
        "last_element_later",
        "the last element is wrong from the second launch on, and nearly all work is left out",
        _LAUNCH
        + "{% call each() %}if (!launch) y[i] = steps(x[i]); else if (i == n - 1) y[i] = guess(x[i]);{% endcall %}",
    ),
    Hostile(
        "drifting",
        "an error that grows with every launch",
        _LAUNCH + "{% call each() %}y[i] = steps(x[i], launch ? 48 : 64) * (1 + {{ t }}(1e-3) * launch);{% endcall %}",
    ),
    Hostile(
        "same_pointer",
        "returns at once where it is given the same input as before",
        "const bool known = last == x && launch_number() > 0;\nif (known) return;\n"
        "{{ honest() }}\nif (threadIdx.x == 0 && blockIdx.x == gridDim.x - 1) last = x;",
        declared="__device__ const {{ t }}* last;",
    ),
    Hostile(
        "skips_what_is_there",
        "computes only elements that are not a number yet",
        "{% call each() %}if (!(y[i] == y[i])) y[i] = steps(x[i]);{% endcall %}",
    ),
    Hostile(
        "skips_what_is_plausible",
        "computes only elements that are not between 0 and 2 yet",
        "{% call each() %}if (!(y[i] > 0 && y[i] < 2)) y[i] = steps(x[i]);{% endcall %}",
    ),
    Hostile(
        "by_chance",
        "leaves out its work in two of three launches, which ones changes",
        "const unsigned launch = launch_number();\n"
        "if (launch && (launch * 2654435761u >> 16) % 3 != 0) return;\n{{ honest() }}",
    ),
    Hostile(
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
    # -- launches that do not do their work -------------------------------------------------------
    Hostile(
        "table_once",
        "keeps the results of its first launch in a table, and copies them from the second one on",
        _LAUNCH + "{% call each() %}if (!launch) table[i] = steps(x[i]); y[i] = table[i];{% endcall %}",
        declared="__device__ {{ t }} table[20011];",
    ),
    Hostile(
        "remembers_the_last",
        "keeps its inputs and results, and copies those of inputs that are the same as in the launch before",
        _REMEMBERS,
        declared=_MEMORY.replace("@SLOTS@", "1"),
    ),
    Hostile(
        "remembers_eight",
        "keeps the results of several inputs, and copies them whenever these come again",
        _REMEMBERS,
        declared=_MEMORY.replace("@SLOTS@", "8"),
    ),
    Hostile(
        "remembers_by_a_key",
        "knows its inputs again by a few of their elements, block by block, and copies the results",
        "const {{ t }} key = x[0] + 3 * x[n / 2] + 7 * x[n - 1];\nconst bool is_known = keys[blockIdx.x] == key;\n"
        "{% call each() %}if (!is_known) results[i] = steps(x[i]); y[i] = results[i];{% endcall %}\n"
        "if (threadIdx.x == blockDim.x - 1) keys[blockIdx.x] = key;",
        declared="__device__ {{ t }} results[20011], keys[1024];",
    ),
    Hostile(
        "goes_on_afterwards",
        "a thread of its own computes most of the answer while the launch has returned",
        "if (blockIdx.x == 0 && threadIdx.x == 0) {\n"
        "    mine.y = y; mine.x = x; mine.n = n;\n    unsigned long thread;\n"
        "    pthread_create(&thread, nullptr, &go_on, nullptr);\n    pthread_detach(thread);\n}",
        declared='extern "C" int pthread_create(unsigned long*, const void*, void* (*)(void*), void*);\n'
        'extern "C" int pthread_detach(unsigned long);\nextern "C" int usleep(unsigned);\n'
        "static struct { {{ t }}* y; const {{ t }}* x; int n; } mine;\n"
        "static void* go_on(void*) {\n"
        "    for (int i = 0; i < mine.n; ++i) mine.y[i] = steps(mine.x[i]);\n"
        "    usleep(100000);\n    return nullptr;\n}",
    ),
    # -- what is not theirs -----------------------------------------------------------------------
    Hostile(
        "writes_to_descriptors",
        "right, but writes to every file descriptor of the process",
        _once('for (int file = 3; file < 256; ++file) write(file, "\\x10garbage of sorts, and more of it", 32);'),
        declared='extern "C" long write(int, const void*, unsigned long);',
    ),
    Hostile(
        "closes_descriptors",
        "right, but closes every file descriptor of the process",
        _once("for (int file = 3; file < 256; ++file) close(file);"),
        declared='extern "C" int close(int);',
    ),
    Hostile("exits", "ends the process", _once("_exit(0);"), declared='extern "C" void _exit(int);'),
    Hostile("forks", "copies the process", _once("fork();"), declared='extern "C" int fork();'),
    Hostile(
        "takes_all_memory",
        "allocates until there is none left",
        _once("while (char* more = (char*)malloc(1ul << 28)) *(char* volatile*)more = more;\n    abort();"),
        declared='extern "C" void* malloc(unsigned long);\nextern "C" void abort();',
    ),
    # -- inputs that do not stay ----------------------------------------------------------------
    Hostile(
        "overwrites_input",
        "keeps the answer in its input, and copies it from the second launch on",
        _LAUNCH + "{% call each() %}if (!launch) x[i] = steps(x[i]); y[i] = x[i];{% endcall %}",
        x=_X_TO_WRITE,
    ),
    Hostile(
        "spoils_input",
        "right itself, but leaves its input damaged for the others",
        "{% call each() %}y[i] = steps(x[i], launch_number() ? 1 : 64); x[i] = {{ t }}(3);{% endcall %}",
        x=_X_TO_WRITE,
    ),
    Hostile(
        "spoils_one_input",
        "right, but changes one element of its input",
        "{{ honest() }}\nif (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) x[n / 2] = {{ t }}(1e18);",
        x=_X_TO_WRITE,
    ),
    Hostile(
        "spoils_first_sibling",
        "the first configurations of each type damage the input; all others are right",
        _SPOILS_AT_32,
        x=_X_TO_WRITE,
        honest=_SPOILS_AT_32,
        is_wrong=lambda c: bool(c["block_size"] == 32),
    ),
    Hostile(
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
    Hostile("writes_20k_past", "writes 20,000 bytes past its output", _writes_at("n + 20000 / int(sizeof(*y))")),
    Hostile("writes_20k_before", "writes 20,000 bytes before its output", _writes_at("-20000 / int(sizeof(*y))")),
    Hostile("writes_300k_past", "writes 300,000 bytes past its output", _writes_at("n + 300000 / int(sizeof(*y))")),
    Hostile("writes_1m_past", "writes a million bytes past its output", _writes_at("n + 1000000 / int(sizeof(*y))")),
    Hostile("writes_64m_past", "writes 64 MB past its output", _writes_at("n + 64000000 / int(sizeof(*y))")),
    Hostile(
        "writes_around",
        "writes at every 8,192 bytes around its output, and answers too quickly from the second launch on",
        _LAUNCH + "if (launch) { if (blockIdx.x == 0 && threadIdx.x == 0)\n"
        "    for (int far = 4; far < 64; ++far) y[n + far * 8192 / int(sizeof(*y))] = {{ t }}(1);\n    return; }\n"
        "{{ honest() }}",
    ),
    # -- one bad configuration ------------------------------------------------------------------
    Hostile(
        "wrong_at_32",
        "wrong in all configurations of one block size",
        _only_in("block_size == 32"),
        honest=_only_in("block_size == 32"),
        is_wrong=lambda c: bool(c["block_size"] == 32),
    ),
    Hostile(
        "wrong_in_one",
        "wrong in one configuration of each type, the fastest one",
        _only_in("block_size == 128 and items == 2"),
        is_wrong=lambda c: _is_short(c) and (c["block_size"], c["items"]) == (128, 2),
    ),
    Hostile(
        "wrong_fp64",
        "most all-fp64 configurations are wrong",
        _only_in("t == 'fp64' or t == 'double'"),
        honest=_only_in("(t == 'fp64' or t == 'double') and (block_size != 256 or items == 1)"),
        is_wrong=lambda c: bool(c["t"] == "fp64" and (_is_short(c) or c["block_size"] != 256 or c["items"] == 1)),
    ),
    Hostile(
        "wrong_by_items",
        "fewer steps the more elements a thread has",
        "{% call each() %}y[i] = steps(x[i], 64 / {{ items }});{% endcall %}",
        is_wrong=lambda c: _is_short(c) and c["items"] > 1,
    ),
    Hostile(
        "wrong_but_for_one",
        "the short way is right in one configuration only",
        _only_in("not (block_size == 64 and items == 1)"),
        is_wrong=lambda c: _is_short(c) and (c["block_size"], c["items"]) != (64, 1),
    ),
    Hostile(
        "nan_at_first",
        "not a number in all configurations with one element a thread",
        _only_in("items == 1", wrong="0 * (x[i] / 0)"),
        honest=_only_in("items == 1", wrong="0 * (x[i] / 0)"),
        is_wrong=lambda c: bool(c["items"] == 1),
    ),
    Hostile(
        "crashes",
        "ends the process in half of its configurations",
        "{% if block_size < 128 %}*(volatile int*) nullptr = 1;{% endif %}\n{{ honest() }}",
        honest="{% if block_size < 128 %}*(volatile int*) nullptr = 1;{% endif %}\n{{ honest() }}",
        is_wrong=lambda c: bool(c["block_size"] < 128),
    ),
    Hostile(
        "hangs",
        "does not end in some configurations",
        "{% if block_size == 32 %}while (*(volatile const {{ t }}*) x == *(volatile const {{ t }}*) x) {}{% endif %}\n"
        "{{ honest() }}",
        is_wrong=lambda c: _is_short(c) and c["block_size"] == 32,
        trial_limit_s=1.0,
    ),
    # -- answers that are incomplete --------------------------------------------------------------
    Hostile("writes_half", "writes half of its output", "{% call each() %}if (i % 2) y[i] = steps(x[i]);{% endcall %}"),
    Hostile(
        "leaves_out_the_last",
        "never writes the last element",
        "{% call each() %}if (i < n - 1) y[i] = steps(x[i]);{% endcall %}",
    ),
    Hostile("writes_nothing", "returns at once", "return;"),
    # -- inputs nobody tried ----------------------------------------------------------------------
    Hostile(
        "right_for_some_inputs",
        "wrong for about half of all inputs",
        "const bool is_lucky = x[0] < {{ t }}(1);\n"
        "{% call each() %}y[i] = is_lucky ? steps(x[i]) : guess(x[i]);{% endcall %}",
    ),
    Hostile(
        "right_for_most_inputs",
        "wrong for about a third of all inputs, and leaves out work on the others, too",
        "const bool is_lucky = x[1] < {{ t }}(1.17);\n"
        "{% call each() %}y[i] = is_lucky ? steps(x[i]) : guess(x[i]);{% endcall %}",
    ),
    # -- honest ones ------------------------------------------------------------------------------
    Hostile(
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
    Hostile(
        "honest_sum",
        "honest: a sum in whatever order the threads come, which rounds differently every time",
        "{% call each() %}atomicAdd(y, x[i]);{% endcall %}",
        honest="{% call each() %}atomicAdd(y, x[i]);{% endcall %}",
        arguments=(InOut("y", 1, precision="t"), In("x", "n", precision="t")),
        inputs=lambda rng, size: {**_inputs(rng, size), "y": np.zeros(1)},
        reference=_sum,
        is_wrong=lambda _: False,
    ),
    Hostile(
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

HOSTILE: Final[Mapping[str, Hostile]] = {case.name: case for case in _CASES}


def _tune(case: Hostile, seed: int, budget: int) -> dict[str, Any]:
    settings = TuneSettings(
        backend="host", max_error=THRESHOLD, budget=budget, seed=seed, limits=Limits(run_s=case.trial_limit_s)
    )
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        run = tune(case.kernel(), settings, output=Path(folder) / "run.db", on_warning=said.append)
    return {**run.summary(), "said": said}


def main() -> None:
    """Tune one hostile kernel and print the document ``mptune tune --json`` prints."""
    parser = argparse.ArgumentParser(description="Tune one hostile kernel.")
    parser.add_argument("name", choices=HOSTILE, metavar="NAME")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=24)
    given = parser.parse_args()
    json.dump(_tune(HOSTILE[given.name], given.seed, given.budget), sys.stdout)


if __name__ == "__main__":
    main()
