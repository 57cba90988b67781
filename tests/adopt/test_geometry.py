"""Launches with other blocks: what is changed in the text, and what is left since it is not certain."""

from __future__ import annotations

from pathlib import Path

import pytest

from mptune.adopt.geometry import geometry
from mptune.adopt.parsing import Edits
from mptune.adopt.reading import read
from tests.tiers import few

PROGRAM = """\
#include <cmath>
#include <cstdio>
#include <{header}>
#define BLOCK 256
#define COUNT 500
#define MANY 1024
#define WIDTH (BLOCK)
#define ROUNDED n + 255
#define DIVUP(a, b) (((a) + (b) - 1) / (b))
const int THREADS = 256;
static int divup(int a, int b) {{ return (a + b - 1) / b; }}
static int blocks_of(int a) {{ return (a + 255) / 256; }}
template <class T> T rounded_up(T a, T b) {{ return a / b + (a % b != 0 ? 1 : 0); }}
__global__ void one(double* x, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}}
__global__ void other(double* x, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 2;
}}
__global__ void plane(double* x, int n, int m) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < n && j < m) x[j * n + i] += 1;
}}
int main() {{
    int n = 1000, m = 30;
    double* x;
    cudaMalloc(&x, n * m * sizeof(double));
    {launch}
}}
"""

CHANGED = {
    "one<<<(n + 255) / 256, 256>>>(x, n);": "one<<<(n + 63) / 64, 64>>>(x, n);",
    "one<<<(n * 3 + 256 - 1) / 256, 256>>>(x, n);": "one<<<(n * 3 + 64 - 1) / 64, 64>>>(x, n);",
    "one<<<(n - 1) / 256u + 1, 256u>>>(x, n);": "one<<<(n - 1) / 64u + 1, 64u>>>(x, n);",
    "one<<<(n + BLOCK - 1) / BLOCK, BLOCK>>>(x, n);": "one<<<(n + 64 - 1) / 64, 64>>>(x, n);",
    "one<<<DIVUP(n, WIDTH), WIDTH>>>(x, n);": "one<<<DIVUP(n, 64), 64>>>(x, n);",
    "one<<<divup(n, THREADS), THREADS>>>(x, n);": "one<<<divup(n, 64), 64>>>(x, n);",
    "one<<<rounded_up<int>(n, BLOCK), BLOCK>>>(x, n);": "one<<<rounded_up<int>(n, 64), 64>>>(x, n);",
    "one<<<ceil(n / (double)256), 256>>>(x, n);": "one<<<ceil(n / (double)64), 64>>>(x, n);",
    "one<<<(int)std::ceil(n / 256.0), 256>>>(x, n);": "one<<<(int)std::ceil(n / 64.0), 64>>>(x, n);",
    "one<<<n / 256 + (n % 256 > 0), 256>>>(x, n);": "one<<<n / 64 + (n % 64 > 0), 64>>>(x, n);",
    "one<<<n / 256 + 1, 256>>>(x, n);": "one<<<n / 64 + 1, 64>>>(x, n);",
    "int t = 256, b = (n + t - 1) / t; one<<<b, t>>>(x, n);": "int t = 64, b = (n + t - 1) / t; one<<<b, t>>>(x, n);",
    "dim3 b(256), g((n + b.x - 1) / b.x); one<<<g, b>>>(x, n);": (
        "dim3 b(64), g((n + b.x - 1) / b.x); one<<<g, b>>>(x, n);"
    ),
    "one<<<dim3(divup(n, 256)), dim3(256, 1)>>>(x, n);": "one<<<dim3(divup(n, 64)), dim3(64, 1)>>>(x, n);",
    "const int k = 500; one<<<(k + 255) / 256, 256>>>(x, k);": "const int k = 500; one<<<(k + 63) / 64, 64>>>(x, k);",
    "one<<<(COUNT + 255) / 256, 256>>>(x, COUNT);": "one<<<(COUNT + 63) / 64, 64>>>(x, COUNT);",
    "one<<<DIVUP(COUNT, BLOCK), BLOCK>>>(x, COUNT);": "one<<<DIVUP(COUNT, 64), 64>>>(x, COUNT);",
    "dim3 b{256}; b = b; one<<<divup(n, 64), b>>>(x, n);": "",
    # A constant that both divide.
    "one<<<MANY / BLOCK, BLOCK>>>(x, n);": "one<<<MANY / 64, 64>>>(x, n);",
    "dim3 b(BLOCK, 1), g(MANY / (2 * BLOCK), 9); one<<<g, b>>>(x, n);": (
        "dim3 b(64, 1), g(MANY / (2 * 64), 9); one<<<g, b>>>(x, n);"
    ),
    # What has the block already needs no certainty of anything else.
    "one<<<n, 64>>>(x, n);": "one<<<n, 64>>>(x, n);",
    # The same variable for two kernels: only if both change.
    "dim3 b(256); one<<<divup(n, 256), b>>>(x, n); other<<<divup(n, 256), b>>>(x, n);": "",
    "const int t = 256; one<<<divup(n, t), t>>>(x, n); other<<<divup(n, t), t>>>(x, n);": (
        "const int t = 256; one<<<divup(n, 64), 64>>>(x, n); other<<<divup(n, t), t>>>(x, n);"
    ),
    # Not a quotient that is rounded up, or not of the block.
    "one<<<n / 256, 256>>>(x, n);": "",
    "one<<<COUNT / 256, 256>>>(x, n);": "",
    "one<<<n / 256 + 2, 256>>>(x, n);": "",
    "one<<<(n - 1) / 256, 256>>>(x, n);": "",
    "one<<<(n + 128 - 1) / 128, 256>>>(x, n);": "",
    "one<<<4, 256>>>(x, n);": "",
    "one<<<(n + m + 255 - n) / 256, 256>>>(x, n);": "",
    # Written where others use it, or elsewhere.
    "one<<<blocks_of(n), 256>>>(x, n);": "",
    "one<<<(ROUNDED) / 256, 256>>>(x, n);": "",
    "int t = 256; printf(\"%d\", t); one<<<divup(n, t), t>>>(x, n);": "",
    "int t = 256; t /= 2; one<<<divup(n, t), t>>>(x, n);": "",
    "int t = 256, b = divup(n, t); one<<<b, t>>>(x, b);": "",
    "int t = m > 9 ? 256 : 128; one<<<divup(n, t), t>>>(x, n);": "",
    "one<<<divup(n, 256), 256>>>(x, n); one<<<4, 256>>>(x, n);": "",
}  # fmt: skip


def changed(folder: Path, text: str, wanted: dict[str, tuple[int, ...]]) -> tuple[str, set[str]]:
    (folder / "program.cu").write_text(text)
    program = read([folder / "program.cu"])
    edits = Edits(program.files)
    places, found = geometry(program, wanted)
    for place, new in places.items():
        edits.replace(place, new)
    assert all(found[label] == wanted[label] for label in found)
    return edits.file(program.files[0].path), set(found)


@pytest.mark.parametrize("launch", few(CHANGED, 14))
def test_another_block_is_written_only_where_as_many_threads_are_launched(launch: str, tmp_path: Path) -> None:
    text = PROGRAM.format(header="cuda_runtime.h", launch=launch)
    new, found = changed(tmp_path, text, {"one": (64,)})
    assert new == (text.replace(launch, CHANGED[launch]) if CHANGED[launch] else text)
    assert found == ({"one"} if CHANGED[launch] else set())


@pytest.mark.parametrize(
    ("launch", "wanted", "expected"),
    few(
        [
            (
                "dim3 b(BLOCK / 16, 16); plane<<<dim3(DIVUP(n, 16), DIVUP(m, 16)), b>>>(x, n, m);",
                {"plane": (64, 4)},
                "",
            ),
            (
                "dim3 b(16, 16), g((n + b.x - 1) / b.x, (m + b.y - 1) / b.y); plane<<<g, b>>>(x, n, m);",
                {"plane": (64, 4)},
                "dim3 b(64, 4), g((n + b.x - 1) / b.x, (m + b.y - 1) / b.y); plane<<<g, b>>>(x, n, m);",
            ),
            (
                "dim3 b(16, 16); plane<<<dim3(divup(n, b.x), DIVUP(m, 16)), b>>>(x, n, m);",
                {"plane": (0, 4)},
                "dim3 b(16, 4); plane<<<dim3(divup(n, b.x), DIVUP(m, 4)), b>>>(x, n, m);",
            ),
            ("dim3 b(16, 16); plane<<<dim3(divup(n, b.y), DIVUP(m, b.y)), b>>>(x, n, m);", {"plane": (64, 4)}, ""),
            (
                "dim3 b(256); one<<<divup(n, b.x), b>>>(x, n); other<<<divup(n, b.x), b>>>(x, n);",
                {"one": (64,), "other": (64,)},
                "dim3 b(64); one<<<divup(n, b.x), b>>>(x, n); other<<<divup(n, b.x), b>>>(x, n);",
            ),
            (
                "dim3 b(256); one<<<divup(n, b.x), b>>>(x, n); other<<<divup(n, b.x), b>>>(x, n);",
                {"one": (64,), "other": (32,)},
                "",
            ),
        ],
        3,
    ),
)
def test_planes_and_variables_that_kernels_share(
    launch: str, wanted: dict[str, tuple[int, ...]], expected: str, tmp_path: Path
) -> None:
    text = PROGRAM.format(header="cuda_runtime.h", launch=launch)
    new, found = changed(tmp_path, text, wanted)
    assert new == (text.replace(launch, expected) if expected else text)
    assert found == (set(wanted) if expected else set())


def test_launches_in_the_words_of_hip(tmp_path: Path) -> None:
    text = PROGRAM.replace("cuda", "hip").format(
        header="hip/hip_runtime.h",
        launch="hipLaunchKernelGGL(one, dim3((n + BLOCK - 1) / BLOCK), dim3(BLOCK), 0, 0, x, n);",
    )
    new, found = changed(tmp_path, text, {"one": (64,)})
    assert "hipLaunchKernelGGL(one, dim3((n + 64 - 1) / 64), dim3(64), 0, 0, x, n);" in new
    assert found == {"one"}
