"""Types in functions of the host that are called for several buffers, in pointers to void, and in copies."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from mptune.adopt.classing import type_classes
from mptune.adopt.patching_loops import patch, tied_in_text, with_types_in_text
from mptune.adopt.reading import read

UPLOAD = """\
#include <vector>
static double* upload(const std::vector<double>& host) {
    double* device = nullptr;
    cudaMalloc(&device, host.size() * sizeof(double));
    cudaMemcpy(device, host.data(), host.size() * sizeof(double), cudaMemcpyHostToDevice);
    return device;
}
__global__ void step(const double* u, const double* kappa, double* next) { next[0] = u[0] * kappa[0]; }
int main() {
    std::vector<double> host(1);
    double* u = upload(host);
    double* kappa = upload(host);
    double* next = upload(host);
    step<<<1, 1>>>(u, kappa, next);
    cudaMemcpy(host.data(), next, sizeof(double), cudaMemcpyDeviceToHost);
}
"""
NESTED = """\
double* allocate(size_t bytes) {
    double* p;
    cudaMalloc((void**)&p, bytes);
    return p;
}
double* upload(const double* h, int n) {
    double* p = allocate(n * sizeof(double));
    cudaMemcpy(p, h, n * sizeof(double), cudaMemcpyHostToDevice);
    return p;
}
void fetch(double* h, const double* d, int n) { cudaMemcpy(h, d, n * sizeof(double), cudaMemcpyDeviceToHost); }
__global__ void add(const double* a, const double* b, double* c) { c[0] = a[0] + b[0]; }
int main() {
    double h[2];
    double* a = upload(h, 2);
    double* b = upload(h, 2);
    double* c = allocate(2 * sizeof(double));
    add<<<1, 1>>>(a, b, c);
    fetch(h, c, 2);
    fetch(h, a, 2);
}
"""
BESIDE_INT = """\
#include <vector>
template <typename T>
T* to_device(const std::vector<T>& host) {
    T* p;
    cudaMalloc(&p, host.size() * sizeof(T));
    cudaMemcpy(p, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice);
    return p;
}
__global__ void gather(const double* x, const int* at, double* y) { y[0] = x[at[0]]; }
int main() {
    std::vector<double> x(1);
    std::vector<int> at(1);
    double* from = to_device(x);
    int* places = to_device(at);
    double* to = to_device<double>(x);
    gather<<<1, 1>>>(from, places, to);
}
"""
DECLARED = UPLOAD.replace("static double", "double").replace(
    "#include <vector>\n", "#include <vector>\ndouble* upload(const std::vector<double>& host);\n"
)
POINTERS = """\
#include <cstdio>
#include <vector>
__global__ void k(double* a, double* b, double* c, double* d, double* e, double* f) {
    f[0] = a[0] + b[0] + c[0] + d[0] + e[0];
}
struct Pool {
    std::vector<void*> all;
    ~Pool() { for (void* each : all) cudaFree(each); }
};
int main() {
    double *a, *b, *c, *d, *e, *f;
    Pool pool;
    cudaMalloc(&a, 8);
    cudaMalloc(&b, 8);
    cudaMalloc(&c, 8);
    cudaMallocManaged(&d, 8);
    cudaMallocManaged(&e, 8);
    cudaMalloc(&f, 8);
    pool.all.push_back(a);
    void* list[2] = {b, c};
    void* later[2];
    later[0] = d;
    k<<<1, 1>>>(a, b, c, d, e, f);
    void* raw = e;
    fwrite(raw, 8, 1, stdout);
    for (int i = 0; i < 2; ++i) cudaFree(list[i]);
    fwrite(later[0], 8, 1, stdout);
    cudaFree(f);
}
"""
COPIES = """\
#include <cstdlib>
struct Matrix { int n; double* values; };
__device__ double bias;
__global__ void scale(Matrix m, double* x) { x[0] = m.values[0] * bias; }
int main() {
    Matrix host, device;
    double *x, seen, all[4];
    host.values = (double*)malloc(4 * sizeof(double));
    for (int i = 0; i < 4; ++i) host.values[i] = i / 3.0;
    cudaMalloc(&device.values, 4 * sizeof(double));
    cudaMemcpy(device.values, host.values, 4 * sizeof(double), cudaMemcpyHostToDevice);
    cudaMallocManaged(&x, 4 * sizeof(double));
    scale<<<1, 1>>>(device, x);
    cudaMemcpy(all, x, 4 * sizeof(double), cudaMemcpyDefault);
    cudaMemcpyFromSymbol(&seen, bias, sizeof(double));
}
"""


#: Uses of the memory of ``x`` by pointers to void, and whether it may have another type.
UNTYPED = {
    "void* p = x; cudaMemcpy(p, h, 8, cudaMemcpyHostToDevice);": False,
    "void* p = x; cudaMemset(p, 0, 8);": False,
    "void* p[1] = {x}; cudaFree(p[0]);": True,
    "release(x);": True,
    "release_all((void**)&x);": True,
    "copy_in(x, h, 8);": False,
    "void* p; cudaMalloc(&p, 8); x = (double*)p;": True,
    "void* p = x; double* y = (double*)p; y[0] = 1.0;": False,
    "void* p = x; if (p == nullptr) return 1;": True,
}
FUNCTIONS = """\
void release(void* p) { cudaFree(p); }
void release_all(void** p) { release(*p); }
void copy_in(void* to, const void* from, size_t n) { cudaMemcpy(to, from, n, cudaMemcpyHostToDevice); }
__global__ void k(double* x) { x[0] = 1.0; }
"""


@pytest.mark.parametrize("use", UNTYPED)
def test_memory_that_is_copied_by_a_pointer_to_void_keeps_its_type(use: str, tmp_path: Path) -> None:
    text = (
        f"{FUNCTIONS}int main() {{\n    double *x, h[1];\n    cudaMalloc(&x, 8);\n    k<<<1, 1>>>(x);\n    {use}\n}}\n"
    )
    new, notes = patched(tmp_path, text, ["x"])
    assert (notes == ()) == ("float* x" in new) == UNTYPED[use]


def patched(folder: Path, text: str, narrow: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """The new text, which clang takes, and the notes."""
    path = (folder / "program.cu").resolve()
    path.write_text(text)
    program = read([path])
    made = patch(program, type_classes(program), dict.fromkeys(narrow, "fp32"))
    new = made.files[0].text
    found = [each for unit in read([path], texts={path: new}).units for each in unit.diagnostics()]
    assert not [str(each) for each in found if each.extent is not None]
    return new, made.notes


@pytest.mark.full
def test_a_function_called_for_buffers_of_several_types_becomes_a_template(tmp_path: Path) -> None:
    new, notes = patched(tmp_path, UPLOAD, ["kappa"])
    assert notes == ()
    for line in (
        "template <typename Real = double>\nstatic Real* upload(const std::vector<double>& host) {\n",
        "    Real* device = nullptr;\n    cudaMalloc(&device, host.size() * sizeof(Real));\n",
        "    copy_converted(device, host.data(), host.size() * sizeof(double), cudaMemcpyHostToDevice);\n",
        "    double* u = upload(host);\n    float* kappa = upload<float>(host);\n    double* next = upload(host);\n",
    ):
        assert line in new
    new, _ = patched(tmp_path, UPLOAD, ["u", "kappa", "next"])
    assert "\nstatic float* upload(const std::vector<double>& host) {\n    float* device = nullptr;\n" in new
    assert "template <typename Real" not in new


def test_functions_that_call_each_other_hand_their_types_on(tmp_path: Path) -> None:
    new, notes = patched(tmp_path, NESTED, ["b", "c"])
    assert notes == ()
    for line in (
        "cudaMalloc((void**)&p, bytes / sizeof(double) * sizeof(Real));",
        "    Real* p = allocate<Real>(n * sizeof(double));\n",
        "    double* a = upload(h, 2);\n    float* b = upload<float>(h, 2);\n",
        "    float* c = allocate<float>(2 * sizeof(double));\n",
        "template <typename Real = double>\nvoid fetch(double* h, const Real* d, int n) {",
        "    fetch(h, c, 2);\n    fetch(h, a, 2);\n",
    ):
        assert line in new


@pytest.mark.full
def test_a_template_that_the_host_calls_with_integers_too_gets_a_second_type(tmp_path: Path) -> None:
    new, notes = patched(tmp_path, BESIDE_INT, ["x"])
    assert notes == ()
    for line in (
        "template <typename T, typename Real = T>\nReal* to_device(const std::vector<T>& host) {\n    Real* p;\n",
        "    copy_converted(p, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice);\n",
        "    float* from = to_device<double, float>(x);\n    int* places = to_device(at);\n",
        "    double* to = to_device<double>(x);\n",
    ):
        assert line in new


def test_a_template_that_the_host_calls_with_floats_too_is_called_for_each(tmp_path: Path) -> None:
    floats = BESIDE_INT.replace("std::vector<int> at(1);", "std::vector<int> at(1);\n    std::vector<float> few(1);")
    floats = floats.replace("    gather<<<", "    float* other = to_device(few);\n    other = nullptr;\n    gather<<<")
    new, notes = patched(tmp_path, floats, ["x"])
    assert notes == ()
    assert "    float* from = to_device<double, float>(x);\n" in new
    assert "    float* other = to_device(few);\n" in new


def test_a_call_in_a_macro_is_not_written(tmp_path: Path) -> None:
    macro = UPLOAD.replace("__global__", "#define UP(x) upload(x)\n__global__").replace("= upload(", "= UP(")
    new, (note,) = patched(tmp_path, macro, ["kappa"])
    assert new == macro
    assert note.startswith("kappa: double instead, since the call at program.cu:")


@pytest.mark.full
def test_a_function_that_cannot_become_a_template_has_one_type_for_all_calls(tmp_path: Path) -> None:
    new, (note,) = patched(tmp_path, DECLARED, ["kappa"])
    assert new == DECLARED
    assert note.startswith("kappa: double instead, since one double at program.cu:2 is the type of all")
    program = read([tmp_path / "program.cu"])
    classes = type_classes(program, tied=lambda found: tied_in_text(program, found))
    assert [each.name for each in classes.classes] == ["u"]


def test_pointers_to_void_keep_only_the_types_of_memory_that_is_used_as_bytes(tmp_path: Path) -> None:
    new, notes = patched(tmp_path, POINTERS, list("abcdef"))
    assert "k(float* a, float* b, float* c, double* d, double* e, float* f)" in new
    assert notes == (
        "e: double instead, since more than its numbers are used at program.cu:25",
        "d: double instead, since more than its numbers are used at program.cu:27",
    )


def test_copies_of_any_kind_are_written_for_another_type(tmp_path: Path) -> None:
    new, notes = patched(tmp_path, COPIES, ["values", "x", "bias"])
    assert notes == ()
    for line in (
        "    host.values = (float*)malloc(4 * sizeof(float));\n",
        "    cudaMemcpy(device.values, host.values, 4 * sizeof(float), cudaMemcpyHostToDevice);\n",
        "    copy_converted(all, x, 4 * sizeof(double), cudaMemcpyDeviceToHost);\n",
        "    copy_from_symbol<float, double>(&seen, bias, sizeof(double));\n",
    ):
        assert line in new


@pytest.mark.parametrize("text", [UPLOAD, NESTED, BESIDE_INT, COPIES])
def test_what_is_offered_can_be_written(text: str, tmp_path: Path) -> None:
    path = tmp_path / "program.cu"
    path.write_text(text)
    program = read([path])
    classes = type_classes(program, tied=lambda found: tied_in_text(program, found))
    offered = {each.name: each.types for each in with_types_in_text(program, classes).classes if not each.kept}
    assert offered
    for wanted in [{name: types[-1]} for name, types in offered.items()] + [{n: t[-1] for n, t in offered.items()}]:
        made = patch(program, classes, wanted)
        assert made.notes == ()
        assert wanted.items() <= made.types.items()
