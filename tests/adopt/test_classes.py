"""Which types of a program must change together."""

from pathlib import Path

import pytest

from mptune.adopt.classes import TypeClasses
from mptune.adopt.classing import type_classes
from mptune.adopt.parsing import Edits
from mptune.adopt.reading import Program, read
from tests.tiers import few

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def rod() -> Program:
    return read([PROGRAMS / "rod.cu"])


@pytest.fixture(scope="module")
def classes(rod: Program) -> TypeClasses:
    return type_classes(rod)


def test_swapped_buffers_share_a_class_and_numbers_are_free(classes: TypeClasses) -> None:
    assert {(found.name, found.role) for found in classes.classes} == {
        ("rod", "buffer"),
        ("width", "argument"),
        ("rate", "argument"),
        ("left", "local"),
    }
    names = {(member.function, member.name) for member in classes["rod"].members}
    assert {("warm", "rod"), ("diffuse", "now"), ("diffuse", "next"), ("main", "now"), ("main", "last")} <= names
    assert ("main", "rod") not in names  # copied from the device only
    assert classes["rod"].kernels == ("warm", "diffuse")


def test_literals_know_the_classes_they_meet(classes: TypeClasses) -> None:
    met = {literal.text: set(literal.meets) for literal in classes.literals}
    assert met["2.0"] == {"rod"}


def test_every_slot_replaced_by_its_own_spelling_gives_the_text(rod: Program, classes: TypeClasses) -> None:
    edits = Edits(rod.files)
    for slot in (slot for found in classes.classes for slot in found.slots):
        edits.replace(slot.extent, slot.spelled)
    for literal in classes.literals:
        edits.replace(literal.extent, literal.text)
    for call in classes.calls:
        edits.replace(call.extent, call.text)
    for source in rod.files:
        assert edits.file(source.path) == source.text


def test_declarators_of_one_declaration_share_the_type_written_once_in_a_kernel_only(tmp_path: Path) -> None:
    (tmp_path / "two.cu").write_text(
        """
__global__ void add(double* x, const double* y, int n) {
    int i = threadIdx.x;
    double a = x[i], b = 2.0 * y[i];
    if (i < n) x[i] = a + b;
}
int main() {
    double *p,
        *q;
    cudaMalloc(&p, 64 * sizeof(double));
    cudaMalloc(&q, 64 * sizeof(double));
    add<<<1, 8>>>(p, q, 8);
}
"""
    )
    found = type_classes(read([tmp_path / "two.cu"]))
    members = {one.name: {(member.function, member.name) for member in one.members} for one in found.classes}
    assert members == {
        "x": {("add", "x"), ("main", "p"), ("main", "double")},  # the last is sizeof(double)
        "y": {("add", "y"), ("main", "q"), ("main", "double")},
        "a": {("add", "a"), ("add", "b")},
    }
    assert not any(one.kept for one in found.classes)


def classes_of(folder: Path, text: str) -> TypeClasses:
    (folder / "program.cu").write_text(text)
    return type_classes(read([folder / "program.cu"]))


@pytest.mark.parametrize(
    "name",
    few(
        [
            "array_of_structs.cu",
            "colliding_names.cu",
            "constant_tables.cu",
            "hip_spelling.hip",
            "macro_types.cu",
            "managed_memory.cu",
            "shared_reduction.cu",
            "struct_by_value.cu",
            "swapped_buffers.cu",
            "template_kernel.cu",
            "typedefs.cu",
            "until_converged.cu",
        ],
        5,
    ),
)
def test_slots_literals_and_calls_are_where_they_are_written(name: str) -> None:
    program = read([PROGRAMS / name])
    found = type_classes(program)
    edits = Edits(program.files)
    assert found.classes
    for slot in (slot for one in found.classes for slot in one.slots):
        assert program.text(slot.extent) == slot.spelled
        edits.replace(slot.extent, slot.spelled)
    for place in (*found.literals, *found.calls):
        assert program.text(place.extent) == place.text
        edits.replace(place.extent, place.text)
    for source in program.files:
        assert edits.file(source.path) == source.text
    assert len({one.name for one in found.classes}) == len(found.classes)
    assert all(one.name.isidentifier() for one in found.classes)


def test_instantiations_with_different_types_have_classes_of_their_own() -> None:
    found = type_classes(read([PROGRAMS / "template_kernel.cu"]))
    by_kernel = {(one.kernels, one.scalar) for one in found.classes}
    assert by_kernel == {(("exponential<double, 20>",), "double"), (("exponential<float, 8>",), "float")}


def test_what_memory_is_shared_through_is_one_class(tmp_path: Path) -> None:
    found = classes_of(
        tmp_path,
        """
#include <utility>
struct Pair { double* one; double* other; };
__device__ void add(double& to, double value) { to += value; }
__device__ const double* further(const double* p, int n) { return n > 0 ? p + n : p; }
__global__ void k(double* a, double* b, double c, Pair pair) {
  double sum = 0, *row = &b[threadIdx.x];
  add(sum, c * further(a, 2)[0]);
  *row = sum * pair.one[0] + pair.other[0];
}
int main() {
  double *x, *y, *z, host[8];
  cudaMalloc(&x, 8); cudaMalloc(&y, 8); cudaMalloc(&z, 8);
  Pair pair{x, y};
  pair.one = z;
  std::swap(pair.one, pair.other);
  cudaMemcpy(x, host, 8, cudaMemcpyHostToDevice);
  cudaMemcpy(y, x, 8, cudaMemcpyDeviceToDevice);
  k<<<1, 1>>>(x, z, 1.0, pair);
}
""",
    )
    together = {frozenset((m.function, m.name) for m in one.members if m.kind != "result") for one in found.classes}
    names = {name for one in together for name in one}
    assert ("main", "host") not in names
    assert ("k", "a") in next(one for one in together if ("main", "y") in one)  # copied on the device
    assert ("further", "p") in next(one for one in together if ("k", "a") in one)
    assert ("add", "to") in next(one for one in together if ("k", "sum") in one)
    assert ("Pair", "one") in next(one for one in together if ("k", "b") in one)  # launched with z
    assert next(one for one in together if ("k", "c") in one) == {("k", "c")}


def test_both_ends_of_a_choice_without_a_middle_are_one_class(tmp_path: Path) -> None:
    (tmp_path / "or.cu").write_text(
        """
__global__ void add(double* x, const double* y, const double* z, double w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    const double* from = y ?: z;
    if (i < n) x[i] = (w ?: 1.0) * from[i];
}
int main() {
    double *x, *y, *z;
    cudaMalloc(&x, 64 * sizeof(double));
    cudaMalloc(&y, 64 * sizeof(double));
    cudaMalloc(&z, 64 * sizeof(double));
    add<<<8, 8>>>(x, y, z, 2.0, 64);
}
"""
    )
    found = type_classes(read([tmp_path / "or.cu"]))
    members = {one.name: {member.name for member in one.members} for one in found.classes}
    assert members == {"x": {"x", "double"}, "y": {"y", "z", "from", "double"}, "w": {"w"}}
    assert {literal.text: set(literal.meets) for literal in found.literals} == {"1.0": {"w"}}


def test_what_must_keep_its_type_says_why(tmp_path: Path) -> None:
    found = classes_of(
        tmp_path,
        """
#include <cstdio>
union Bits { double value; long long bits; };
__global__ void k(double* sum, double* seen, double* plain, double* printed) {
  unsigned long long* raw = (unsigned long long*)sum;
  atomicCAS(raw, 0ull, 1ull);
  long long bits = __double_as_longlong(seen[0]);
  Bits both; both.bits = bits;
  plain[0] = both.value;
  double shown = printed[0];
  printf("%f", shown);
}
int main() { k<<<1, 1>>>(nullptr, nullptr, nullptr, nullptr); }
""",
    )
    assert {one.name: one.kept for one in found.classes} == {
        "value": "it is in a union",
        "sum": "its bits are read as unsigned long long *",
        "seen": "its bits are read by __double_as_longlong",
        "plain": "",
        "printed": "",
        "shown": "it is printed",
    }


def test_parameters_that_choose_between_functions_of_one_name_keep_their_type(tmp_path: Path) -> None:
    found = classes_of(
        tmp_path,
        """
__device__ double kern(double in) { return exp(-in); }
__device__ float kern(float in) { return 1.0f - in; }
__device__ double2 kern(double2 pair) { return pair; }
__device__ double wide(double alone) { return alone; }
__device__ double wide(double alone, float other) { return alone + other; }
template <class T> __device__ T twice(T once) { return once + once; }
template <class T> __device__ T of(T general) { return general; }
template <> __device__ float of<float>(float special) { return 2.0f * special; }
struct Power {
  __device__ double operator()(double base) const { return base * base; }
  __device__ float operator()(float base) const { return base; }
};
__global__ void k(double* y, const double* x) {
  double v = x[0];
  double a = x[1];
  double b = x[2];
  double c = x[3];
  double d = x[4];
  float e = 1.0f;
  Power power;
  y[0] = kern(2.0 * v) + wide(a) + twice(b) + twice(e);
  y[1] = of(c) + power(d) + kern(make_double2(y[1], y[2])).x;
}
void tell(double) {}
void tell(float) {}
int main() {
  double* host = nullptr;
  cudaMalloc(&host, 8);
  k<<<1, 1>>>(nullptr, host);
  tell(host[0]);
}
""",
    )
    kept = {one.members[0].name: one.kept for one in found.classes if one.kept}
    assert kept == {
        "in": "chooses between functions named kern",
        "general": "chooses between functions named of",
        "base": "chooses between functions named operator()",
    }


def test_macros_that_stand_for_a_type_may_be_defined_before_it(tmp_path: Path) -> None:
    found = classes_of(
        tmp_path,
        """
#define REAL SCALAR
#define SCALAR NUMBER
#define NUMBER double
#define NAMED named
typedef double named;
__global__ void k(REAL* x, NAMED* y) { x[0] = 2.0 * y[0]; }
int main() { k<<<1, 1>>>(nullptr, nullptr); }
""",
    )
    assert {slot.spelled for one in found.classes for slot in one.slots} == {"REAL", "NAMED"}


def test_the_host_calls_what_it_has_no_name_for(tmp_path: Path) -> None:
    found = classes_of(
        tmp_path,
        """
#include <cstdio>
__global__ void k(double* x, double by) { x[threadIdx.x] *= by; }
void show(double v) { printf("%g", v); }
int main() {
  auto launch = [&](auto body) { body(2.0); };
  launch([](double by) { k<<<1, 1>>>(nullptr, by); });
  void (*say)(double) = show;
  auto tell = [&](auto v) { say(v); };
  tell(1.0);
}
""",
    )
    assert {one.name: one.kept for one in found.classes} == {"x": "", "by": ""}


def test_roles_of_classes(tmp_path: Path) -> None:
    found = classes_of(
        tmp_path,
        """
__constant__ double weight[4];
__device__ double scaled(double x) { return 2.0 * x; }
__global__ void k(double* out, double factor) {
  __shared__ double tile[32];
  double sum = 0, most = 0;
  double last = 0;
  for (int i = 0; i < 4; i++) { sum += weight[i]; last = scaled(sum); most = fmax(most, last); }
  tile[threadIdx.x] = sum;
  out[0] = tile[0] * factor + most;
}
int main() { double* p; cudaMalloc(&p, 8); k<<<1, 1>>>(p, 1.0); }
""",
    )
    assert {one.name: one.role for one in found.classes} == {
        "weight": "constant",
        "scaled": "result",
        "x": "argument",
        "out": "buffer",
        "factor": "argument",
        "tile": "shared",
        "sum": "accumulator",
        "last": "local",
    }


def test_literals_in_macros_are_in_the_macro_unless_it_is_a_number(tmp_path: Path) -> None:
    found = classes_of(
        tmp_path,
        """
#include <cmath>
#define HALF (1.0 / 2)
#define BLEND(a, b) ((a) * 0.25 + (double)(b) * HALF + exp(a))
__global__ void k(float* x, double* y) { y[0] = BLEND(x[0], y[1]) * M_PI; x[0] = -1e-3f; }
int main() { k<<<1, 1>>>(nullptr, nullptr); }
""",
    )
    assert [(literal.text, literal.extent.line, literal.scalar) for literal in found.literals] == [
        ("0.25", 4, "double"),
        ("HALF", 4, "double"),
        ("M_PI", 5, "double"),
        ("1e-3f", 5, "float"),
    ]
    assert [(call.text, call.name, call.extent.line) for call in found.calls] == [("exp", "exp", 4)]
    assert [(slot.spelled, slot.extent.line) for slot in found["k_cast"].slots] == [("double", 4)]


def test_copies_name_the_class_of_the_device_side(rod: Program, classes: TypeClasses) -> None:
    assert [(copy.name, copy.classes) for copy in classes.copies] == [
        ("cudaMalloc", ("rod", "")),
        ("cudaMalloc", ("rod", "")),
        ("cudaMemcpy", ("", "rod", "", "")),
        ("cudaFree", ("rod",)),
        ("cudaFree", ("rod",)),
    ]


@pytest.mark.parametrize("parity", few([0, 1]))
@pytest.mark.parametrize(
    "names",
    few(
        [
            ["constant_tables.cu"],
            ["shared_reduction.cu"],
            ["struct_by_value.cu"],
            ["swapped_buffers.cu"],
            ["several_files/main.cu", "several_files/physics.cu"],
        ],
        2,
    ),
)
def test_every_second_class_may_change_and_the_program_is_still_right(
    tmp_path: Path, names: list[str], parity: int
) -> None:
    program = read([PROGRAMS / name for name in names])
    edits = Edits(program.files)
    # Declarations with several declarators would have to be split.
    alone = [one for one in type_classes(program).classes if not any(slot.declarator for slot in one.slots)]
    changed = [one for one in alone[parity::2] if not one.kept]
    assert changed
    for slot in (slot for one in changed for slot in one.slots):
        edits.replace(slot.extent, {"double": "float", "float": "double"}[slot.spelled.replace("real", "double")])
    for source in program.files:
        (tmp_path / source.path.name).write_text(edits.file(source.path))
    again = read([tmp_path / source.name for source in program.sources])
    assert not again.errors
    assert not again.refusals
    assert [kernel.label for kernel in again.kernels] == [kernel.label for kernel in program.kernels]


def test_complex_numbers_are_vectors_of_two(tmp_path: Path) -> None:
    found = classes_of(
        tmp_path,
        """
#include <cuComplex.h>
__global__ void k(cuDoubleComplex* z, const cuDoubleComplex* w) {
  cuDoubleComplex sum = cuCmul(z[0], w[0]);
  z[0] = cuCadd(sum, make_cuDoubleComplex(0.5, 0.0));
}
int main() { k<<<1, 1>>>(nullptr, nullptr); }
""",
    )
    slots = {one.name: {(slot.spelled, slot.components) for slot in one.slots} for one in found.classes}
    assert slots == {key: {("cuDoubleComplex", 2)} for key in ("z", "w", "sum")}
    assert not any(one.kept for one in found.classes)


def test_a_function_of_floats_rounds_the_double_that_it_is_given(tmp_path: Path) -> None:
    found = classes_of(
        tmp_path,
        """
__global__ void k(double* y, float* x) { y[0] = sqrtf(y[1]) + sqrt(y[2]); x[0] = powf(x[1], 2.0); }
int main() { k<<<1, 1>>>(nullptr, nullptr); }
""",
    )
    assert [call.text for call in found.calls] == ["sqrt", "powf"]


def test_a_host_function_that_is_called_for_several_buffers_does_not_join_them(tmp_path: Path) -> None:
    found = classes_of(
        tmp_path,
        """
#include <vector>
double* upload(const std::vector<double>& v);
template <class T> T* blank(int n) { T* p; cudaMalloc(&p, n * sizeof(T)); return p; }
void renew(double*& p, int n) { cudaFree(p); p = blank<double>(n); }
__global__ void k(const double* a, const double* b, double* c, double* d) { c[0] = a[0] * b[0] + d[0]; }
int main() {
  std::vector<double> one(8), other(8);
  double* a = upload(one);
  double* b = upload(other);
  double *c = blank<double>(8), *d;
  renew(d, 8);
  k<<<1, 1>>>(a, b, c, d);
}
double* upload(const std::vector<double>& v) {
  double* d;
  cudaMalloc(&d, 8 * v.size());
  cudaMemcpy(d, v.data(), 8 * v.size(), cudaMemcpyHostToDevice);
  return d;
}
""",
    )
    together = {one.name: {(m.function, m.name) for m in one.members if m.kind != "size"} for one in found.classes}
    both = {("upload", "upload"), ("upload", "d")}
    assert together == {
        "a": {("k", "a"), ("main", "a"), *both},
        "b": {("k", "b"), ("main", "b"), *both},
        "c": {("k", "c"), ("main", "c"), ("blank<double>", "blank"), ("blank<double>", "p")},
        "d": {("k", "d"), ("main", "d"), ("renew", "p"), ("blank<double>", "blank"), ("blank<double>", "p")},
    }
    uploads = [copy.classes[0] for copy in found.copies if copy.name == "cudaMemcpy"]
    assert sorted(uploads) == ["a", "b"]


def test_a_lambda_that_returns_memory_has_the_type_of_what_it_returns(tmp_path: Path) -> None:
    found = classes_of(
        tmp_path,
        """
__global__ void k(double* a, double* b) { a[0] = b[0]; }
int main() {
  auto blank = [](int n) { double* p; cudaMalloc(&p, n * sizeof(double)); return p; };
  double *a = blank(8), *b = blank(8);
  k<<<1, 1>>>(a, b);
}
""",
    )
    assert {one.name: one.kept for one in found.classes} == {"a": "", "b": ""}


def test_addresses_in_a_list_have_nothing_in_common(tmp_path: Path) -> None:
    found = classes_of(
        tmp_path,
        """
__global__ void k(double* a, double* b, double by) { a[0] = by * b[0]; }
int main() {
  double *x, *y, by = 2;
  void* all[] = {&x, &y, &by};
  cudaLaunchKernel((const void*)k, dim3(1), dim3(1), all, 0, 0);
  void* freed[] = {x, y};
  for (void* each : freed) cudaFree(each);
}
""",
    )
    names = {one.name: {(member.function, member.name) for member in one.members} for one in found.classes}
    assert names == {
        "a": {("k", "a"), ("main", "x")},
        "b": {("k", "b"), ("main", "y")},
        "by": {("k", "by"), ("main", "by")},
    }
