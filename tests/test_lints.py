"""Lints: what a template says that its author hardly meant, and no alarm on what is right."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from mptune.cpp.literals import widening_literals
from mptune.cpp.tokens import tokens
from mptune.kernel import Kernel
from mptune.source.lints import examples, lints
from mptune.source.loading import bundled_kernels, load_kernel
from mptune.space.parameters import BooleanParameter, OrdinalParameter
from tests.tiers import few

OWN = load_kernel(Path(__file__).with_name("own_kernel.py"))
BUNDLED = few(["axpy", *(name for name in bundled_kernels() if not name.startswith("_") and name != "axpy")], 1)


def found(kernel: Kernel, **changes: Any) -> tuple[str, ...]:
    changed = dataclasses.replace(kernel, **changes)
    sizes = changed.resolve_sizes("smoke" if "smoke" in changed.sizes else "default")
    space = changed.search_space(sizes)
    return lints(changed, sizes, space, examples(changed, space))


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_kernel_raises_no_alarm(name: str) -> None:
    assert found(load_kernel(name)) == ()


@pytest.mark.parametrize(
    ("name", "right", "wrong", "literal"),
    [
        ("bessel", "x * series(0.125)", "x * 0.125", "0.125"),
        ("newton_raphson", "slope = fma(c4, x[v], value)", "slope = fma(c4, x[v], value * 1.0)", "1.0"),
    ],
)
def test_a_literal_put_into_a_bundled_kernel_is_found(name: str, right: str, wrong: str, literal: str) -> None:
    kernel = load_kernel(name)
    assert kernel.path is not None
    template = (kernel.path.parent.parent / "templates" / f"{name}.cu.j2").read_text()
    assert template.count(right) == 1
    line = template[: template.index(right)].count("\n") + 1
    (warning,) = found(kernel, template=template.replace(right, wrong))
    assert warning.startswith(f"template of kernel {name}, line {line}: {literal}")
    assert "computed in double" in warning
    assert "\n" not in warning


def test_arguments_in_another_order_than_the_function_s_parameters_are_found() -> None:
    order = tuple(OWN.arguments[i] for i in (1, 0, *range(2, len(OWN.arguments))))
    (warning,) = found(OWN, arguments=order)
    names = [argument.name for argument in OWN.arguments]
    swapped = [argument.name for argument in order]
    assert warning.endswith("give both the same order")
    assert f"takes ({', '.join(names)}), but kernel poly declares ({', '.join(swapped)})" in warning
    # Names of one's own, for the same arguments, are nobody's business.
    renamed = re.sub(rf"\b{names[0]}\b", f"{names[0]}_values", str(OWN.template))
    assert found(OWN, arguments=order, template=renamed) == ()


def test_a_parameter_that_changes_nothing_is_named() -> None:
    extra = (*OWN.parameters, OrdinalParameter("depth", [1, 2, 3]))
    (warning,) = found(OWN, parameters=extra)
    assert warning.startswith("parameter 'depth' of kernel poly changes nothing: all 3 values")
    # It is named, but nothing depends on it.
    (warning,) = found(
        OWN, parameters=extra, template=f"{OWN.template}{{% if depth > 7 %}} // {{{{ depth }}}}{{% endif %}}\n"
    )
    assert warning.startswith("parameter 'depth'")


def test_a_parameter_that_something_uses_is_not_named() -> None:
    depth = OrdinalParameter("depth", [1, 2, 3])
    extra = (*OWN.parameters, depth)
    assert not found(OWN, parameters=extra, grid=(*OWN.grid, "depth"))
    assert not found(OWN, parameters=extra, shared_bytes="depth * 64")
    assert not found(OWN, parameters=extra, constraints=("depth * block <= 256",))
    assert not found(OWN, parameters=extra, template=f"{OWN.template}// {{{{ depth }}}}\n")
    # Where another parameter has one of its values only.
    switched = (*extra, BooleanParameter("deep"))
    assert not found(
        OWN, parameters=switched, template=f"{OWN.template}{{% if deep %}}// {{{{ depth }}}}{{% endif %}}\n"
    )
    assert not found(OWN, parameters=(*OWN.parameters, OrdinalParameter("depth", [1])))


# -- literals that make a narrow computation double are found, and nothing else is -------------------

FUNCTION = (
    'extern "C" __global__ void __launch_bounds__(64) f(half* __restrict__ y, const half* __restrict__ x, int n) {\n'
    "const int i = blockIdx.x * 64 + threadIdx.x;\n"
)


def literals_found(text: str, before: str = "") -> list[str]:
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
        "y[i] = mp::literal(0.25) * x[i] * 0.5;",
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
    assert literals_found(text) == ["0.5"]


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
    assert literals_found(text) == []


def test_macros_and_templates_of_the_source() -> None:
    assert literals_found("y[i] = W * x[i];", "#define W 0.5") == ["0.5"]
    assert literals_found("y[i] = W * x[i];", "#define W half(0.5)") == []
    assert literals_found("REAL q = x[i]; y[i] = q * 0.5;", "#define REAL half") == ["0.5"]
    function = "template <class T, int N> __device__ T g(T a) { return a * 0.5; }"
    assert literals_found("y[i] = g<half, 2>(x[i]);", function) == ["0.5"]
    # It may be meant for double here.
    assert literals_found("double z = x[i]; y[i] = g<double, 2>(z);", function) == []
    assert (
        literals_found("y[i] = twice(x[i]) * 0.5;", "__device__ double twice(half a) { return 2 * double(a); }") == []
    )
    assert literals_found("y[i] = twice(x[i]) * 0.5;", "__device__ float twice(half a) { return 2 * a; }") == ["0.5"]


@pytest.mark.parametrize("text", ["y[i] = (0.5 *", "a < b > (", "template <", "#define"])
def test_what_is_no_cplusplus_ends(text: str) -> None:
    literals_found(text)
