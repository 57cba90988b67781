"""What a program consists of, as it is read from its source."""

import os
import re
from pathlib import Path

import pytest

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.parsing import Edits, ProgramError
from mptune.adopt.reading import Program, read
from mptune.adopt.template import fields_of
from tests.tiers import few

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def rod() -> Program:
    return read([PROGRAMS / "rod.cu"])


def test_kernels_have_their_parameters_and_roles(rod: Program) -> None:
    assert [kernel.label for kernel in rod.kernels] == ["warm", "diffuse"]
    diffuse = rod.kernel("diffuse")
    assert [(p.name, p.element, p.role) for p in diffuse.parameters] == [
        ("n", "int", "scalar"),
        ("rate", "double", "scalar"),
        ("now", "double", "in"),
        ("next", "double", "out"),
    ]
    assert diffuse.is_flat
    assert not diffuse.has_barrier
    assert rod.text(diffuse.extent).startswith("__global__ void diffuse(")
    assert rod.text(diffuse.body).startswith("{\n  int i")
    assert rod.text(diffuse.body).endswith("}\n}")


def test_a_pipe_is_no_program(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.cu")
    with pytest.raises(ProgramError, match=r"cannot read .*pipe\.cu: it is not a regular file"):
        read([tmp_path / "pipe.cu"])


def test_launches_say_where_each_part_is_written(rod: Program) -> None:
    warm, diffuse = rod.launches
    assert rod.text(diffuse.extent) == "diffuse<<<grid, block>>>(n, rate, now, next)"
    assert rod.text(warm.callee) == "warm"
    assert [rod.text(argument) for argument in warm.arguments] == ["n", "width", "now"]
    assert warm.shared is None
    assert not rod.errors
    assert rod.entry is not None


def test_no_edits_leave_the_text(rod: Program) -> None:
    (source,) = rod.files
    assert Edits(rod.files).file(source.path) == source.text


def test_edits_apply_within_a_piece_and_may_not_overlap(rod: Program) -> None:
    edits = Edits(rod.files)
    launch = rod.launches[1]
    edits.replace(launch.callee, "other")
    edits.insert(launch.extent.file, launch.extent.start, "/**/")
    assert edits.text(launch.extent) == "/**/other<<<grid, block>>>(n, rate, now, next)"
    with pytest.raises(ValueError, match=r"two changes of the same text at rod\.cu:\d+"):
        edits.replace(launch.extent, "")


def test_a_missing_file_is_named_with_the_nearest() -> None:
    with pytest.raises(ProgramError, match=r"cannot read .*rood\.cu: No such file.*did you mean '.*rod\.cu'"):
        read([PROGRAMS / "rood.cu"])


def read_program(*names: str, defines: dict[str, str] | None = None) -> Program:
    return read([PROGRAMS / name for name in names], defines)


def refusals_of(name: str) -> str:
    return "\n".join(map(str, read_program(f"refused/{name}.cu").refusals))


@pytest.mark.parametrize(
    ("name", "expected"),
    few(
        [
            (
                "inline_assembly",
                r"inline_assembly.cu:\d+: kernel multiply cannot be adopted: it uses inline assembly; write",
            ),
            (
                "recursion",
                r"recursion.cu:\d+: kernel evaluate cannot be adopted: it calls chebyshev recursively; write it as",
            ),
            (
                "texture",
                r"texture.cu:\d+: kernel sample cannot be adopted: it uses textures or surfaces; read from a buffer",
            ),
            (
                "grid_sync",
                r"kernel twice cannot be adopted: it waits for all blocks of its grid; launch a kernel for each",
            ),
            (
                "dynamic_parallelism",
                r"kernel outer cannot be adopted: it launches a kernel itself; launch from the host",
            ),
            (
                "namespaces",
                r"namespaces.cu:9: kernel both cannot be adopted: it uses a struct Law beside another one of that name "
                r"at namespaces.cu:6; give one of the two another name",
            ),
        ],
        4,
    ),
)
def test_what_cannot_be_adopted_is_refused_with_its_place_and_a_remedy(name: str, expected: str) -> None:
    assert re.search(expected, refusals_of(name))


def test_other_kernels_of_a_file_go_on() -> None:
    program = read_program("refused/dynamic_parallelism.cu")
    assert [kernel.label for kernel in program.kernels] == ["inner"]
    assert {refusal.kernel for refusal in program.refusals} == {"outer"}


def test_a_template_is_a_kernel_for_each_instantiation_that_is_launched() -> None:
    program = read_program("template_kernel.cu")
    assert [kernel.label for kernel in program.kernels] == ["exponential<double, 20>", "exponential<float, 8>"]
    kernel = program.kernels[1]
    assert [(a.name, a.kind, a.value) for a in kernel.arguments] == [("T", "typename", "float"), ("TERMS", "int", "8")]
    assert [parameter.element for parameter in kernel.parameters] == ["float", "float", "int"]
    assert program.text(kernel.extent).startswith("template <typename T, int TERMS>")
    assert {launch.kernel for launch in program.launches} == {kernel.label for kernel in program.kernels}


def test_instantiated_device_functions_are_needed_once_each(tmp_path: Path) -> None:
    (tmp_path / "powers.cu").write_text(
        """
template <int N, typename T> __device__ T power(T x) { T p = x; for (int i = 1; i < N; ++i) p *= x; return p; }
__global__ void powers(double* x, float* y) { x[0] = power<2>(x[0]) + power<3>(x[1]); y[0] = power<2>(y[0]); }
int main() { powers<<<1, 1>>>((double*)0, (float*)0); }
"""
    )
    program = read([tmp_path / "powers.cu"])
    (kernel,) = program.kernels
    assert [need.label for need in kernel.needs] == ["power<2, double>", "power<2, float>", "power<3, double>"]
    assert [(program.text(call.extent), call.label) for call in kernel.calls] == [
        ("power<2>", "power<2, double>"),
        ("power<3>", "power<3, double>"),
        ("power<2>", "power<2, float>"),
    ]


def test_a_kernel_needs_what_it_names_in_the_order_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "sizes.h").write_text(
        "#define HALF (0.5 * ONE)\n#define ONE 1.0\nstruct Box { int n; double width; };\n"
    )
    (tmp_path / "boxes.cu").write_text(
        """#include "sizes.h"
typedef double Real;
__constant__ Real table[4];
const int unused = 3;
__device__ Real later(Real x);
__device__ Real middle(Box box) { return later(HALF * box.width); }
__device__ Real later(Real x) { return x * table[1]; }
__global__ void fill(Real* out, Box box) { if (threadIdx.x < box.n) out[threadIdx.x] = middle(box); }
int main() { Box box; fill<<<1, 4>>>(nullptr, box); }
"""
    )
    program = read([tmp_path / "boxes.cu"])
    (kernel,) = program.kernels
    assert [(need.kind, need.name) for need in kernel.needs] == [
        ("macro", "HALF"),
        ("macro", "ONE"),
        ("struct", "Box"),
        ("typedef", "Real"),
        ("constant", "table"),
        ("prototype", "later"),
        ("function", "middle"),
        ("function", "later"),
    ]
    assert program.text(kernel.needs[2].extent) == "struct Box { int n; double width; };"
    assert program.text(kernel.needs[0].extent) == "#define HALF (0.5 * ONE)"
    assert [(field.name, field.role) for field in kernel.parameters[1].fields] == [
        ("box.n", "scalar"),
        ("box.width", "scalar"),
    ]
    assert not kernel.is_flat


def test_roles_follow_pointers_through_functions_and_structs(tmp_path: Path) -> None:
    (tmp_path / "roles.cu").write_text(
        """
struct Fields { double* now; double* next; int n; };
__device__ void store(double* to, double value) { *to = value; }
__global__ void step(Fields f, double* total, const double* rate, double* aside) {
  double* row = f.now + 4;
  store(f.next + threadIdx.x, row[0] * rate[0]);
  atomicAdd(total, row[1]);
}
int main() { Fields f; step<<<1, 1>>>(f, nullptr, nullptr, nullptr); }
"""
    )
    (kernel,) = read([tmp_path / "roles.cu"]).kernels
    fields, *others = kernel.parameters
    assert [(field.name, field.role) for field in fields.fields] == [
        ("f.now", "in"),
        ("f.next", "out"),
        ("f.n", "scalar"),
    ]
    assert [(parameter.name, parameter.role) for parameter in others] == [
        ("total", "inout"),
        ("rate", "in"),
        ("aside", "in"),
    ]


def roles_in(folder: Path, text: str) -> dict[str, str]:
    """Return the roles of the pointers of a program's kernel, "" for those that it leaves alone."""
    (folder / "roles.cu").write_text(text)
    (kernel,) = read([folder / "roles.cu"]).kernels
    leaves = (leaf for parameter in kernel.parameters for leaf, _ in fields_of(parameter))
    return {leaf.name: leaf.role if leaf.is_used else "" for leaf in leaves if leaf.is_pointer}


def test_what_a_function_returns_a_place_in_is_written_by_what_is_done_with_that(tmp_path: Path) -> None:
    text = """struct Matrix {
        double* cells;
        int width;
        __device__ double& at(int i, int j) { return i < 0 ? cells[j] : cells[i * width + j]; }
        __device__ double& operator()(int i, int j) { return at(i, j); }
    };
    __device__ double& first(double* numbers) { return *numbers; }
    __global__ void k(Matrix one, Matrix other, double* sum, double* by, double* or_this, int n) {
        one(threadIdx.x, 0) = other(0, threadIdx.x) * first(by);
        first(sum) += 1.0;
        (n > 0 ? or_this[0] : or_this[1]) = 2.0;
    }
    int main() { k<<<1, 1>>>(Matrix{}, Matrix{}, nullptr, nullptr, nullptr, 1); }"""
    outs = {"one.cells": "out", "sum": "inout", "or_this": "out"}
    assert roles_in(tmp_path, text) == {**outs, "other.cells": "in", "by": "in"}


def test_roles_follow_structs_that_device_functions_take_by_value(tmp_path: Path) -> None:
    found = roles_in(
        tmp_path,
        """
struct Pair { double* a; double* b; };
struct Fields { Pair now; double* next; double* idle; double* asked; double* copied; int n; };
__device__ void assign(Pair pair, int i) { pair.a[i] = pair.b[i]; }
__device__ void work(Fields f, int i) { assign(f.now, i); f.next[i] += 1; }
__global__ void step(Fields f) {
  work(f, threadIdx.x);
  Fields other = f, another;
  another = other;
  if (f.asked) another.copied[0] = f.n;
}
int main() { Fields f; step<<<1, 1>>>(f); }
""",
    )
    assert found == {
        "f.now.a": "out", "f.now.b": "in", "f.next": "inout", "f.idle": "", "f.asked": "in", "f.copied": "out",
    }  # fmt: skip


def test_roles_follow_pointers_into_structs_that_kernels_make(tmp_path: Path) -> None:
    found = roles_in(
        tmp_path,
        """
struct View {
  const double* from; double* to;
  __device__ double get(int i) const { return from[i]; }
  __device__ void set(int i, double value) { to[i] = value; }
  __device__ void copy(int i) { set(i, get(i)); }
  __device__ double operator()(int i) const { return from[i]; }
};
struct Made {
  double* p;
  __device__ Made(double* q) : p(q) {}
  __device__ void set(int i, double v) { p[i] = v; }
};
__global__ void step(const double* x, double* y, double* z, double* w, View v) {
  View view{x, y};
  view.copy(1);
  View assigned;
  assigned.to = z;
  assigned.set(0, v(2));
  Made(w).set(0, 1.0);
}
int main() { View v; step<<<1, 1>>>(nullptr, nullptr, nullptr, nullptr, v); }
""",
    )
    # A struct that is made of several pointers may have any of them in each field, but none to constants is written to.
    assert found == {"x": "in", "y": "inout", "z": "out", "w": "out", "v.from": "in", "v.to": ""}


@pytest.mark.parametrize(
    ("index", "is_flat"),
    few(
        [
            ("blockIdx.x * blockDim.x + threadIdx.x", True),
            ("threadIdx.x + (blockDim.x * blockIdx.x)", True),
            ("(blockIdx.y * blockDim.y) + threadIdx.y", True),
            ("blockDim.x * (size_t)blockIdx.x + threadIdx.x", True),
            ("(unsigned)threadIdx.x + static_cast<unsigned>(blockIdx.x) * blockDim.x", True),
            ("blockDim.x * (unsigned char)blockIdx.x + threadIdx.x", False),
            ("blockIdx.x * blockDim.y + threadIdx.x", False),
            ("threadIdx.x", False),
            ("blockIdx.x * 64 + threadIdx.x", False),
            ("blockIdx.x * blockDim.x + threadIdx.x /* of all */; i < 9; i += gridDim.x * blockDim.x", True),
        ],
        5,
    ),
)
def test_a_kernel_is_flat_if_only_the_index_among_all_threads_enters(tmp_path: Path, index: str, is_flat: bool) -> None:
    loop = index if ";" in index else f"{index}; i < 9; i += 9"
    (tmp_path / "flat.cu").write_text(
        f"__global__ void k(double* x) {{ for (int i = {loop}) x[i] = 0; }}\nint main() {{ k<<<1, 1>>>(nullptr); }}\n"
    )
    (kernel,) = read([tmp_path / "flat.cu"]).kernels
    assert kernel.is_flat is is_flat


def test_a_program_may_have_several_files() -> None:
    program = read_program("several_files/main.cu", "several_files/physics.cu")
    assert [kernel.label for kernel in program.kernels] == ["radiation_of"]
    assert {file.path.name for file in program.files} == {"main.cu", "physics.cu", "physics.h"}
    assert program.entry is not None
    assert program.entry.file.name == "main.cu"


def test_hip_is_read_as_cuda() -> None:
    program = read_program("hip_spelling.hip")
    assert {launch.kernel for launch in program.launches} == {kernel.label for kernel in program.kernels}
    assert not program.errors
    launch = program.launches[0]
    assert program.text(launch.extent).startswith("hipLaunchKernelGGL(scale, ")
    assert program.text(launch.callee) == "scale"


@pytest.mark.full
def test_defines_choose_the_types() -> None:
    double, single = (read_program("macro_types.cu", defines=given) for given in ({}, {"SINGLE": ""}))
    assert double.kernels[0].parameters[0].element == "double"
    assert single.kernels[0].parameters[0].element == "float"


def test_text_before_a_kernel_may_be_of_any_script(tmp_path: Path) -> None:
    kernel = "__global__ void k(double* u) { u[0] = 1.5; }"
    text = f"// größer – ∇²u\r\n{kernel} // ü\r\nint main() {{ k<<<1, 1>>>(nullptr); }}\r\n"
    (tmp_path / "wide.cu").write_bytes(text.encode())
    program = read([tmp_path / "wide.cu"])
    assert program.text(program.kernels[0].extent) == kernel
    assert program.text(program.launches[0].extent) == "k<<<1, 1>>>(nullptr)"
    assert program.files[0].text == text


def test_a_program_without_a_kernel_says_so(tmp_path: Path) -> None:
    (tmp_path / "none.cu").write_text("int main() { return 0; }\n")
    with pytest.raises(ProgramError, match=r"no kernel in .*none\.cu$"):
        read([tmp_path / "none.cu"])


def test_a_program_that_does_not_parse_is_told_what_clang_says(tmp_path: Path) -> None:
    (tmp_path / "broken.cu").write_text("int main( {\n")
    with pytest.raises(
        ProgramError, match=r"no kernel in .*; clang could not read all of it:\n  broken\.cu:1: main cannot be"
    ):
        read([tmp_path / "broken.cu"])


def test_a_template_that_nothing_instantiates_is_named(tmp_path: Path) -> None:
    (tmp_path / "unused.cu").write_text("template <class T> __global__ void k(T* x) { *x = 1; }\nint main() {}\n")
    with pytest.raises(ProgramError, match="no launch in the same file says which types the template k has"):
        read([tmp_path / "unused.cu"])


@pytest.mark.full
def test_parallel_loops_of_plain_cplusplus_are_kernels() -> None:
    (kernel,) = read_program("openmp.cpp").kernels
    assert [(each.name, each.role) for each in kernel.parameters] == [
        *(("x", "in"), ("y", "in"), ("mass", "in"), ("potential", "out"), ("n", "scalar")),
    ]


def read_texts(folder: Path, texts: dict[str, str]) -> Program:
    for name, text in texts.items():
        (folder / name).write_text(text)
    return read([folder / name for name in texts if not name.endswith(".h")])


@pytest.mark.full
def test_a_device_function_may_be_defined_in_another_file(tmp_path: Path) -> None:
    texts = {
        "shared.h": "#pragma once\n__device__ double blend(double a, double b);\n",
        "kernel.cu": """#include "shared.h"
__global__ void step(double* u) { u[threadIdx.x] = blend(u[0], 0.5); }
int main() { step<<<1, 8>>>(nullptr); }
""",
    }
    (refusal,) = read_texts(tmp_path, texts).refusals
    assert "calls blend, which is defined in none of the files" in str(refusal)
    definition = """#include "shared.h"
#define WEIGHT 0.25
static __device__ double weighed(double a) { return WEIGHT * a; }
__device__ double blend(double a, double b) { return weighed(a) + b; }
"""
    (kernel,) = read_texts(tmp_path, {**texts, "functions.cu": definition}).kernels
    assert [(need.kind, need.name) for need in kernel.needs] == [
        ("prototype", "blend"),
        ("macro", "WEIGHT"),
        ("function", "weighed"),
        ("function", "blend"),
    ]


def test_plain_cplusplus_may_have_functions_with_the_names_of_cuda(tmp_path: Path) -> None:
    program = read_texts(
        tmp_path,
        {
            "own.cpp": """#include <cmath>
double norm(int n, const double* x) { return n > 0 ? std::sqrt(x[0]) : 0.0; }
double max(double a, double b) { return a > b ? a : b; }
void fill(double* x, int n) {
#pragma omp parallel for
  for (int i = 0; i < n; ++i) x[i] = max(x[i], norm(1, x + i));
}
int main() {}
"""
        },
    )
    assert (len(program.kernels), program.errors, program.refusals) == (1, (), ())


def test_headers_of_libraries_that_are_not_used_are_no_reason_to_refuse(tmp_path: Path) -> None:
    program = read_texts(
        tmp_path,
        {
            "unused.cu": """#include <cooperative_groups.h>
#include <curand_kernel.h>
#include <cuda_fp8.h>
namespace cg = cooperative_groups;
__global__ void k(double* x) { x[0] = 1.0; }
int main() { k<<<1, 1>>>(nullptr); }
"""
        },
    )
    assert (len(program.kernels), program.errors, program.refusals) == (1, (), ())


def test_calls_of_the_runtime_that_are_not_there_are_refused_with_what_to_write(tmp_path: Path) -> None:
    text = """__global__ void k(double* x) { x[0] = 1.0; }
int main() { cudaLaunchConfig_t c; }
void other() { void* given[1]; cudaLaunchCooperativeKernel((void*)k, 1, 1, given, 0, 0); }
"""
    refusals = read_texts(tmp_path, {"address.cu": text}).refusals
    for refusal, name in zip(refusals, ("cudaLaunchConfig_t", "cudaLaunchCooperativeKernel"), strict=True):
        expected = f"uses {name}, which is not there; launch kernels as k<<<blocks, threads>>>(arguments)"
        assert str(refusal).endswith(expected)


def test_names_that_the_program_declares_are_no_constructs_of_cuda(tmp_path: Path) -> None:
    text = """struct Body { double surface; };
__device__ double erfcx(double x) { return exp(x * x) * erfc(x); }
__global__ void k(double* cg, Body body) { double cub = cg[0]; cg[0] = erfcx(cub) * body.surface; }
__global__ void w(double* x) { double cg = x[0]; x[0] = __dadd_rz(cg, 1.0); }
int main() { k<<<1, 1>>>(nullptr, Body{}); w<<<1, 1>>>(nullptr); }
"""
    program = read_texts(tmp_path, {"names.cu": text})
    assert [kernel.label for kernel in program.kernels] == ["k"]
    (refusal,) = program.refusals
    assert "it uses arithmetic that rounds to a side" in str(refusal)


def test_a_kernel_may_be_launched_by_its_address(tmp_path: Path) -> None:
    (tmp_path / "address.cu").write_text(
        """
template <class T> __global__ void k(T* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }
int main() {
  double* x;
  int n = 8;
  void* list[] = {&x, (void*)&n};
  cudaLaunchKernel((void*)k<double>, dim3(1), dim3(8), list, 64, 0);
  void* fn = nullptr;
  cudaLaunchKernel(fn, dim3(1), dim3(8), list);
}
"""
    )
    program = read([tmp_path / "address.cu"])
    (site,) = program.launches
    assert site.kernel == "k<double>"
    assert site.shared is not None
    assert [program.text(each) for each in (site.shared, *site.arguments)] == ["64", "x", "n"]
    (refusal,) = program.refusals
    assert str(refusal) == (
        "address.cu:9: the program cannot be adopted: it launches a kernel by an address, or with arguments, that is "
        "not written there; launch it as k<<<blocks, threads>>>(arguments), or with void* list[] = {&x, &y}"
    )


def test_a_kernel_that_takes_what_has_no_fields_of_the_program_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "two.cu").write_text(
        """
__global__ void fill(cudaPitchedPtr out) { ((double*)out.ptr)[0] = 1; }
__managed__ double by = 3;
__global__ void scale(double* u) { u[0] *= by; }
__global__ void twice(double* u) { u[0] *= 2; }
int main() {
  cudaPitchedPtr a;
  scale<<<1, 1>>>((double*)a.ptr);
  fill<<<1, 1>>>(a);
  twice<<<1, 1>>>((double*)a.ptr);
}
"""
    )
    program = read([tmp_path / "two.cu"])
    assert [kernel.name for kernel in program.kernels] == ["twice"]
    assert [(refusal.kernel, refusal.extent.line, refusal.remedy) for refusal in program.refusals] == [
        ("fill", 2, "pass what is in it"),
        ("scale", 3, "pass it as an argument"),
    ]


@pytest.mark.parametrize(
    "second", ["__global__ void run(double* a, int n)", "namespace b { __global__ void run(float* a)"]
)
def test_two_kernels_of_one_name_are_refused_in_one_line(second: str, tmp_path: Path) -> None:
    end = " }" if second.startswith("namespace") else ""
    launch = "b::run<<<1, 8>>>((float*)a);" if end else "run<<<1, 8>>>(a, 8);"
    text = f"__global__ void run(double* a) {{ a[threadIdx.x] += 1; }}\n{second} {{ a[threadIdx.x] *= 2; }}{end}\n"
    path = tmp_path / "two.cu"
    path.write_text(f"{text}int main() {{ double* a; cudaMalloc(&a, 64); run<<<1, 8>>>(a); {launch} }}\n")
    with pytest.raises(ProgramError) as error:
        adopt(AdoptSettings((path,), backend="host"), tmp_path / "made")
    assert str(error.value) == (
        "two.cu:2: kernel run cannot be adopted: it has the name of another kernel (two.cu:1); rename one of them"
    )


def test_a_thread_s_place_in_a_macro_is_seen(tmp_path: Path) -> None:
    source = tmp_path / "places.cu"
    source.write_text(
        "#define ROW ((gridDim.x * blockIdx.y + blockIdx.x) * blockDim.x + threadIdx.x)\n"
        "#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)\n"
        "__global__ void rows(double* x, int n) { if (ROW < n) x[ROW] *= 2.0; }\n"
        "__global__ void flat(double* x, int n) { if (INDEX < n) x[INDEX] *= 2.0; }\n"
        "int main() { double* x; cudaMalloc(&x, 8 * 64); rows<<<dim3(2, 2), 16>>>(x, 64); flat<<<4, 16>>>(x, 64); }\n"
    )
    assert {kernel.name: kernel.is_flat for kernel in read([source]).kernels} == {"rows": False, "flat": True}
