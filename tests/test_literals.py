"""Literals that make a narrow computation double are found, and nothing else is."""

from __future__ import annotations

import pytest

from mptune.cpp.literals import widening_literals
from mptune.cpp.tokens import tokens

FUNCTION = (
    'extern "C" __global__ void __launch_bounds__(64) f(half* __restrict__ y, const half* __restrict__ x, int n) {\n'
    "const int i = blockIdx.x * 64 + threadIdx.x;\n"
)


def found(text: str, before: str = "") -> list[str]:
    return [token.text for token in widening_literals(f"{before}\n{FUNCTION}{text}\n}}\n")]


def test_tokens_are_a_compiler_s() -> None:
    source = """a=0.5*x; // 0.5 "x \\
    0.25
    /* 1.0 */ "0.5 // no" '\\'' R"(a"b)" 1e-3f 0x1p-3 1'000.5 .5 a.b->c>>=d
    #define X 0.5 \\
        + 3 // c
    # 1 /* "
    */ y
    z /* not closed"""
    assert [token.text for token in tokens(source)] == [
        *("a", "=", "0.5", "*", "x", ";", '"0.5 // no"', "'\\''", 'R"(a"b)"', "1e-3f", "0x1p-3", "1'000.5", ".5"),
        *("a", ".", "b", "->", "c", ">>=", "d", "#define X 0.5 \\\n        + 3 ", '# 1 /* "\n    */ y', "z"),
    ]
    assert all(source.startswith(token.text, token.start) for token in tokens(source))


@pytest.mark.parametrize(
    "text",
    [
        "y[i] = 0.5 * x[i];",
        "y[i] = (0.5 * i + 1) * x[i];",
        "y[i] = -0.5 * (x[i - 1] + x[i + 1]);",
        "y[i] = fma(0.5, x[i], y[i]);",
        "y[i] = mp::exp<accurate>(-0.5 * mp::sqrt(x[i]));",
        "y[i] = x[i] > half(0) ? x[i] : 0.5;",
        "auto h = 0.5; y[i] = h * x[i];",
        "local<half> z[2][3] = {}; z[0][1] = z[1][0] - 0.5;",
        "auto g = [&](half q) { return q * 0.5; }; y[i] = g(x[i]);",
        "typedef float real; real q = x[i]; y[i] = q * 0.5;",
        "float a = 1, b = a * 0.5, c = 1.0; y[i] = a + b + c;",
        "y[i] = sqrtf(x[i]) * 0.5;",
        "if (x[i] < 0.5) return;",
        "const decltype(x[i] + x[i]) s = x[i]; y[i] = s * 0.5;",
    ],
)
def test_a_literal_that_widens_is_found(text: str) -> None:
    assert found(text) == ["0.5"]


@pytest.mark.parametrize(
    "text",
    [
        "// y[i] = 0.5 * x[i];",
        'const char* s = "0.5 * x"; /* 0.5 * x[i] */',
        "y[i] = 0.5f * x[i];",
        "y[i] = (half)0.5 * x[i];",
        "y[i] = static_cast<decltype(x[i] - x[i])>(6.283185307179586) * x[i];",
        "half a = 0.5, b = 2.0; y[i] = a * b;",
        "double s = 0; s += 0.5 * s * x[i]; y[i] = s;",
        "y[i] = 0.5 * double(x[i]);",
        "Something u = anything(x); y[i] = u * 0.5;",
        "y[i] = scaled(0.5, x[i]);",
    ],
)
def test_what_does_not_widen_is_left_alone(text: str) -> None:
    assert found(text) == []


def test_macros_and_templates_of_the_source() -> None:
    assert found("y[i] = W * x[i];", "#define W 0.5") == ["0.5"]
    assert found("y[i] = W * x[i];", "#define W half(0.5)") == []
    assert found("REAL q = x[i]; y[i] = q * 0.5;", "#define REAL half") == ["0.5"]
    function = "template <class T, int N> __device__ T g(T a) { return a * 0.5; }"
    assert found("y[i] = g<half, 2>(x[i]);", function) == ["0.5"]
    # It may be meant for double here.
    assert found("double z = x[i]; y[i] = g<double, 2>(z);", function) == []
    assert found("y[i] = twice(x[i]) * 0.5;", "__device__ double twice(half a) { return 2 * double(a); }") == []
    assert found("y[i] = twice(x[i]) * 0.5;", "__device__ float twice(half a) { return 2 * a; }") == ["0.5"]


@pytest.mark.parametrize("text", ["y[i] = (0.5 *", "a < b > (", "template <", "#define"])
def test_what_is_no_cplusplus_ends(text: str) -> None:
    found(text)
