"""Kernels with barriers, put in phases: which ones are, and that they compute the same as where threads take turns."""

from __future__ import annotations

import random
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.blocks import phases_of_templates, split, split_kernels
from mptune.adopt.reading import read
from mptune.adopt.rewriting import without_definitions
from mptune.adopt.running import build, run
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host import HostBackend
from mptune.cpp.prelude import prelude
from mptune.testing.backends import launch_on_arrays

PROGRAMS = Path(__file__).parent / "programs"
BLOCKS = ((64, 1), (33, 1), (8, 5), (16, 2))
GRID = 5
ELEMENTS = 301


class RandomKernel:
    """A kernel of random pieces, each of which is a way in which programs use barriers."""

    def __init__(self, number: int, block: tuple[int, int]) -> None:
        self.random = random.Random(number)
        self.name = f"random_{number}"
        self.block = block
        self.threads = block[0] * block[1]
        self.names = 0
        self.text = self.written()

    def new(self, what: str) -> str:
        self.names += 1
        return f"{what}{self.names}"

    def written(self) -> str:
        lines = [
            f"__shared__ double part[{self.threads}], other[{self.threads}];",
            "int t = threadIdx.y * blockDim.x + threadIdx.x, count = blockDim.x * blockDim.y;",
            "const int i = blockIdx.x * count + t;",
            "part[t] = other[t] = 0.25 * t;",
            "double mine = i < n ? x[i] : 0.5;",
        ]
        lines += self.random.choice(
            ([], [], ["if (i >= n) return;"], ["if (mine < 0.08) {", "  out[i] = -1;", "  return;", "}"])
        )
        pieces = [
            self.exchange,
            self.reduce,
            self.tiles,
            self.if_same,
            self.window,
            self.twice,
            self.private,
            self.prefix,
        ]
        for piece in self.random.sample(pieces, 5):
            lines += piece()
        lines.append("out[i] = mine;")
        body = textwrap.indent("\n".join(lines), "    ")
        passed = "const double* __restrict__ x, double* out, int n, int steps"
        return f'extern "C" __global__ void {self.name}({passed}) {{\n{body}\n}}\n'

    def exchange(self) -> list[str]:
        left = self.new("left")
        return [
            "part[t] = mine;  // what the neighbour is to read",
            "__syncthreads();",
            f"double {left} = part[(t + {self.random.randrange(1, 9)}) % count];",
            "__syncthreads();",
            f"mine = 0.5 * mine + {left} / 3;",
        ]

    def reduce(self) -> list[str]:
        s = self.new("s")
        step = self.random.choice((f"{s} >>= 1", f"{s} /= 2"))
        loop = self.random.choice(
            (
                [f"for (int {s} = 32; {s} > 0; {step}) {{", "BODY", "}"],
                [f"int {s} = 32;", f"while ({s}) {{", "BODY", f"    {step};", "}"],
                [f"int {s} = 32;", "do {", "BODY", f"    {step};", f"}} while ({s} > 0);"],
            )
        )
        body = f"    if (t < {s} && t + {s} < count) part[t] += part[t + {s}];\n    __syncthreads();"
        return [
            "part[t] = mine * mine;",
            "__syncthreads();",
            *(body if line == "BODY" else line for line in loop),
            "mine += 1e-3 * part[0];",
            "__syncthreads();",
        ]

    def tiles(self) -> list[str]:
        tile, sum_, start = self.new("tile"), self.new("sum"), self.new("start")
        return [
            f"double {sum_} = 0.125;",
            f"for (int {tile} = 0; {tile} < (n + count - 1) / count; {tile}++) {{",
            f"    const int {start} = {tile} * count;",
            f"    part[t] = {start} + t < n ? x[{start} + t] : 0.0;",
            "    __syncthreads();",
            f"    if ({tile} == steps) continue;" if self.random.random() < 0.3 else "    // all of the tile",
            f"    for (int k = 0; k < count; k += 3) {sum_} += part[k] * mine;",
            "    __syncthreads();",
            "}",
            f"mine += {sum_} * 1e-2;",
        ]

    def if_same(self) -> list[str]:
        return [
            f"if (blockIdx.x % 2 == {self.random.randrange(2)}) {{",
            "    other[t] = mine;",
            "    __syncthreads();",
            "    mine -= 0.1 * other[count - 1 - t];",
            "} else if (steps > 2)",
            "    mine *= 1.01;",
            "__syncthreads();",
        ]

    def window(self) -> list[str]:
        near, k = self.new("near"), self.new("k")
        return [
            f"double {near}[3];",
            f"for (int {k} = 0; {k} < 3; {k}++) {near}[{k}] = x[(i + {k}) % n];",
            f"other[t] = {near}[1];",
            "__syncthreads();",
            f"mine += {near}[0] * other[(t * 7) % count] - {near}[2];",
            "__syncthreads();",
        ]

    def twice(self) -> list[str]:
        a, b, scale = self.new("a"), self.new("b"), self.new("scale")
        return [
            f"float {a} = mine, {b};",
            f"int {scale} = steps + 1;",
            f"{b} = {a} * {scale};",
            "part[t] = mine;",
            "__syncthreads();",
            f"mine = part[t ^ 1 < count ? t : 0] + 1e-3 * ({a} - {b}) / {scale};",
            "__syncthreads();",
        ]

    def private(self) -> list[str]:
        row, p = self.new("row"), self.new("p")
        return [
            f"double* {row} = other + t;",
            f"double& {p} = part[t];",
            f"{p} = mine;",
            "__syncthreads();",
            f"*{row} = {p} + part[count - 1];",
            "__syncthreads();",
            f"mine = *{row} * 0.75;",
        ]

    def prefix(self) -> list[str]:
        step, before = self.new("step"), self.new("before")
        return [
            "part[t] = mine;",
            "__syncthreads();",
            f"for (int {step} = 1; {step} < blockDim.x; {step} <<= 1) {{",
            f"    double {before} = threadIdx.x >= {step} ? part[t - {step}] : 0;",
            "    __syncthreads();",
            f"    part[t] += {before};",
            "    __syncthreads();",
            "}",
            "mine = 0.01 * part[t];",
        ]


KERNELS = [RandomKernel(number, BLOCKS[number % len(BLOCKS)]) for number in range(8)]
MAIN = """
int main() {
    const int n = %d;
    double *x, *out;
    cudaMallocManaged(&x, n * sizeof(double));
    cudaMallocManaged(&out, 4096 * sizeof(double));
    for (int i = 0; i < n; i++) x[i] = (i * 37 %% 101) / 101.0;
%s
}
"""
LAUNCH = """    for (int i = 0; i < 4096; i++) out[i] = 0;
    %s<<<%d, dim3(%d, %d)>>>(x, out, n, 2);
    cudaDeviceSynchronize();
    printf("%s");
    for (int i = 0; i < 4096; i++) printf(" %%a", out[i]);
    puts("");
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    launches = "".join(LAUNCH % (k.name, GRID, *k.block, k.name) for k in KERNELS)
    path = tmp_path_factory.mktemp("phases") / "random.cu"
    path.write_text("#include <cstdio>\n" + "\n".join(k.text for k in KERNELS) + MAIN % (ELEMENTS, launches))
    return read([path])


def functions(program):
    (unit,) = program.units
    return unit, {function.name: function for function in unit.functions if function.is_kernel}


@pytest.mark.full
def test_programs_compute_the_same_in_phases_to_the_last_bit(program, tmp_path):
    files = split_kernels(program)
    assert "__syncthreads" not in files[0].text
    printed = []
    for number, given in enumerate((program.files, files)):
        (tmp_path / str(number)).mkdir()
        built = build(program.sources, given, optimisation="-O1")
        printed.append(run(built, writes=tmp_path / str(number)).output.splitlines())
    assert len(printed[0]) == len(KERNELS)
    for turns, phases in zip(*printed, strict=True):
        assert phases == turns
        assert len(set(turns.split())) > 100
        assert "nan" not in turns


@pytest.mark.full
def test_templates_compute_the_same_in_phases_to_the_last_bit(program, tmp_path):
    unit, known = functions(program)
    backend = HostBackend(workers=2, cache=BinaryCache(tmp_path))
    x = (np.arange(ELEMENTS) * 37 % 101) / 101.0
    for kernel in KERNELS[:4]:
        found = split(unit, known[kernel.name], program.files[0].of, phases_of_templates(kernel.threads))
        assert found is not None
        head = kernel.text[: kernel.text.index("{")]
        outputs = []
        for text in (kernel.text, f"IN_PHASES();\n{head}{{\n{found.body}\n}}\n"):
            entry = f"MPTUNE_HOST_ENTRY({kernel.name}, {kernel.block[0]}, {kernel.block[1]}, 1)"
            options = CompileOptions(flags=("-ffp-contract=off",))  # of what is contracted, the compiler decides
            function = backend.device.load(
                backend.compiler.compile(f"{prelude()}\n{text}\n{entry}\n", kernel.name, options)
            )
            out = np.zeros(4096)
            launch_on_arrays(backend, function, (GRID,), kernel.block, x, out, np.int32(ELEMENTS), np.int32(2))
            outputs.append(out)
        assert np.count_nonzero(outputs[0]) > 100
        assert np.array_equal(*outputs)


# What is certain, and what is not: the kernel's body, and whether it becomes phases.
CERTAIN = {
    "a barrier at the end": ("part[threadIdx.x] = x[threadIdx.x]; __syncthreads();", True),
    "a loop over the grid's blocks": (
        "for (int b = blockIdx.x; b < n; b += gridDim.x) { part[threadIdx.x] = b; __syncthreads(); x[b] = part[0]; }",
        True,
    ),
    "a table decides": ("if (TABLE[blockIdx.x] > 0) { part[threadIdx.x] = 1; __syncthreads(); }", True),
    "memory decides": ("if (x[0] > 0) { part[threadIdx.x] = 1; __syncthreads(); x[1] = part[0]; }", False),
    "memory that no thread writes decides": ("if (x[0] > 0) { part[threadIdx.x] = 1; __syncthreads(); }", True),
    "a thread's number decides": ("if (threadIdx.x < n) { part[threadIdx.x] = 1; __syncthreads(); }", False),
    "a loop of each thread's own": (
        "for (int i = threadIdx.x; i < n; i += blockDim.x) { part[threadIdx.x] = i; __syncthreads(); }",
        False,
    ),
    "a loop that a thread may leave": (
        "for (int i = 0; i < n; i++) { if (threadIdx.x == i) break; part[threadIdx.x] = i; __syncthreads(); }",
        False,
    ),
    "a loop that all threads leave": (
        "for (int i = 0; i < n; i++) { if (i == 3) break; part[threadIdx.x] = i; __syncthreads(); }",
        True,
    ),
    "a bound that a thread changes": (
        "int m = n; if (threadIdx.x == 0) m = 3; for (int i = 0; i < m; i++) { part[0] = i; __syncthreads(); }",
        False,
    ),
    "a bound that all threads change": (
        "int m = n; if (n > 4) m = 3; for (int i = 0; i < m; i++) { part[0] = i; __syncthreads(); }",
        True,
    ),
    "a return in a loop": (
        "for (int i = 0; i < n; i++) if (x[i + threadIdx.x] > 0) return; part[0] = 1; __syncthreads();",
        False,
    ),
    "a function that asks where it is": ("part[0] = own(n); __syncthreads();", False),
    "a function that waits": ("part[0] = 1; wait(); x[0] = part[0];", False),
    "a vote": ("part[0] = __syncthreads_or(n); __syncthreads();", False),
    "a pointer that moves with the thread": ("x += threadIdx.x; part[0] = *x; __syncthreads(); *x = part[0];", False),
    "a pointer that moves with the block": ("x += blockIdx.x; part[0] = *x; __syncthreads(); *x = part[0];", True),
    "a jump": ("part[0] = 1; if (n) goto end; part[0] = 2; end: __syncthreads();", False),
    "a switch around a barrier": ("switch (n) { case 1: part[0] = 1; __syncthreads(); }", False),
    "a variable whose address is taken": (
        "int m = n; change(&m); for (int i = 0; i < m; i++) { part[0] = i; __syncthreads(); }",
        False,
    ),
    "a macro that waits": ("part[threadIdx.x] = 1; WAIT; x[threadIdx.x] = part[0];", True),
}


def test_what_is_not_certain_to_be_the_same_for_all_threads_stays_as_it_is(tmp_path):
    names = [re.sub(r"\W+", "_", name) for name in CERTAIN]
    kernels = "\n".join(
        f"__global__ void {name}(double* x, int n) {{ __shared__ double part[64]; {body} }}"
        for name, (body, _) in zip(names, CERTAIN.values(), strict=True)
    )
    path = tmp_path / "certain.cu"
    path.write_text(
        "#define WAIT __syncthreads()\n__constant__ int TABLE[8];\n"
        "__device__ double own(int n) { return threadIdx.x + n; }\n__device__ void wait() { __syncthreads(); }\n"
        f"__device__ void change(int* n) {{ *n = threadIdx.x; }}\n{kernels}\nint main() {{}}\n"
    )
    program = read([path])
    unit, known = functions(program)
    found = {
        name: split(unit, known[function], program.files[0].of, phases_of_templates(64)) is not None
        for name, function in zip(CERTAIN, names, strict=True)
    }
    assert found == {name: certain for name, (_, certain) in CERTAIN.items()}


def test_a_reduction_reads_as_one_writes_it():
    program = read([PROGRAMS / "shared_reduction.cu"])
    unit, known = functions(program)
    found = split(unit, known["squares"], program.files[0].of, phases_of_templates(128))
    assert found is not None
    assert found.body[found.body.index("for (int half") :] == textwrap.dedent("""\
        for (int half = blockDim.x / 2; half > 0; half >>= 1) {
            PHASE {
                if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
            }
        }
        PIECE {
            if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
        }""")


@pytest.mark.full
def test_a_program_becomes_phases_with_the_macros_of_the_command_line_in_place_of_its_own(tmp_path):
    settings = AdoptSettings((PROGRAMS / "union_in_struct.cu",), defines={"CELLS": "64", "DAMPING": "0.5"})
    made, document = adopt(settings, tmp_path / "relaxed")
    assert {buffer.elements for buffer in made.found.buffers} == {64}
    assert document["program"]["check"] == "passed"
    text = (tmp_path / "relaxed" / "relax.cu.j2").read_text()
    assert "PHASE {" in text
    assert "#define DAMPING 0.5_num" in text
    assert "96" not in text
    # The fields of its struct, those in a union once.
    assert "int edges_low, int edges_high" in " ".join(text.split())
    assert "both_" not in text


def test_what_a_program_defines_stays_where_it_has_parameters_or_is_undefined_again():
    text = "#define N 4\n#define M(x) x\n#define K 5 /* é */ \\\n  + 1\n#undef L\n#define L 1\n"
    changed = without_definitions(text, ("N", "M", "K", "L"))
    assert changed.split() == ["#define", "M(x)", "x", "#undef", "L", "#define", "L", "1"]
    assert len(changed.encode()) == len(text.encode())
    assert changed.count("\n") == text.count("\n")
