"""What a program may call when it is read is there when it runs, and in templates, or is refused by its name."""

from __future__ import annotations

import functools
import math
import random
import re
import subprocess
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vendor_compilers import needs

from mptune.adopt import parsing, reading, running
from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.number_types import math_function
from mptune.adopt.template import SCOPED
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.host_compiler import find_compiler
from mptune.cpp.prelude import prelude, shared_intrinsics, short_intrinsics
from mptune.source.loading import load_tunable
from mptune.tuning.check import check_application
from tests.tiers import few

PROGRAMS = Path(__file__).parent / "programs"
#: Of the layer's and the prelude's own.
OURS = ("bits_as", "directed", "mptune_rectified", "mptune_saturated", "to_integer", "whole")
#: Calls of the runtime, which are no functions of kernels.
RUNTIME = re.compile(r"(?:cuda|hip|make_cuda|__cuda)[A-Z]\w*")
#: How a file is compiled that the layer runs.
LAYER = (*find_compiler().command, "-std=gnu++17", "-w", f"-I{running._layer()}", *shared_intrinsics())


@functools.cache
def declared() -> tuple[str, ...]:
    """The functions that kernels may call where a program is read."""
    (unit,) = parsing.parse([PROGRAMS / "short_pairs.cu"])
    return tuple(dict.fromkeys(name for name in functions(unit.unit.cursor) if not RUNTIME.fullmatch(name)))


def functions(cursor: Any) -> Iterator[str]:
    for node in cursor.get_children():
        if re.search(r"device\.hpp|mathematics\.hpp|cuda_fp16\.h|intrinsics\.hpp", str(node.location.file)):
            if node.kind.name in ("FUNCTION_DECL", "FUNCTION_TEMPLATE") and node.spelling not in OURS:
                yield node.spelling
            elif node.kind.name == "NAMESPACE" and node.spelling not in ("mptune_layer", "mptune_host"):
                yield from functions(node)


def is_refused(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern, _, _ in reading._FORBIDDEN)


def test_they_are_many() -> None:
    assert {"__hmax", "__hfma2", "__float2bfloat16", "__int2float_rz", "__popc", "__ldg", "rsqrtf"} <= set(declared())
    assert short_intrinsics() <= set(declared())


def test_programs_that_run_as_they_are_have_them(tmp_path: Path) -> None:
    names = [name for name in declared() if not is_refused(name)]
    text = "".join(f"#ifndef {name}\nusing ::{name};\n#endif\n" for name in names)
    source = tmp_path / "all.cpp"
    source.write_text(f"#include <cuda_fp16.h>\n#include <cuda_runtime.h>\nnamespace all {{\n{text}}}\n")
    done = subprocess.run(
        [*LAYER, "-D__CUDACC__", "-c", str(source), "-o", str(tmp_path / "all.o")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.findall(r"error: (.*)", done.stderr) == []


@pytest.mark.parametrize(
    ("backend", "architecture"),
    [
        ("host", ""),
        pytest.param("cuda", "sm_90", marks=needs("cuda")),
        pytest.param("hip", "gfx90a", marks=needs("hip")),
    ],
)
def test_templates_have_them(backend: str, architecture: str) -> None:
    of_templates = dict.fromkeys(SCOPED.sub(r"a\1", name) for name in declared() if not is_refused(name))
    lines = []
    for name in of_templates:
        named = math_function(name)
        found = f"using {'mp' if named or name in short_intrinsics() else ''}::{named or name};"
        lines.append(f"#ifndef {name}\n{{ {found} }}\n#endif")
    source = f"{prelude()}\n" + 'extern "C" __global__ void all(int* x) {\n' + "\n".join(lines) + "\n}\n"
    get_backend(backend).compiler.compile(source, "all", CompileOptions(architecture=architecture))


@pytest.mark.parametrize("name", few(["__fadd_rz", "__dmul_ru", "__fmaf_rd", "normcdfinvf", "clock64"], 2))
def test_others_are_refused_by_name(name: str, tmp_path: Path) -> None:
    arguments = {"__fmaf_rd": "x[0], x[1], x[2]", "normcdfinvf": "x[0]", "clock64": ""}.get(name, "x[0], x[1]")
    program = tmp_path / "refused.cu"
    program.write_text(f"__global__ void odd(float* x) {{\n  x[0] = {name}({arguments});\n}}\nint main() {{}}\n")
    (refusal,) = reading.read([program]).refusals
    assert (refusal.kernel, refusal.extent.line) == ("odd", 2)
    assert "does not compile" not in str(refusal)


@pytest.mark.nightly
def test_pairs_of_16_bits_are_adopted(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "short_pairs.cu",)), tmp_path / "pairs")
    assert max(document["errors"].values()) < 1e-6
    for backend, architecture in (("host", ""), ("cuda", "sm_80"), ("hip", "gfx90a")):
        if get_backend(backend).availability().can_compile:
            checked = check_application(
                load_tunable(tmp_path / "pairs"), get_backend(backend), architecture=architecture, sample=1
            )
            assert {compilation.message for kernel in checked for compilation in kernel.compilations} == {""}


#: What is converted, by its type in C++.
GIVEN: dict[str, list[float | int]] = {
    "int": [0, 1, -1, 2049, -2051, 4097, 65519, 65520, -65521, 16777217, -16777219, 2147483647, -2147483648],
    "unsigned": [0, 3, 2049, 65535, 16777217, 4294967295, 4294967040, 4286578688],
    "long long": [0, -1, 2**53 + 1, -(2**53) - 3, 2**62 + 2**38, 2**63 - 1, -(2**63), 16777217],
    "unsigned long long": [0, 2**53 + 1, 2**64 - 1, 2**63 + 2**39, 2**63 + 2**10 + 1],
    "float": [
        0.0,
        0.1,
        -0.1,
        1 + 2**-11,
        1 + 3 * 2**-9,
        65519.0,
        65520.0,
        -1e6,
        1e-8,
        -1e-8,
        6e-8,
        1e-40,
        -1e-40,
        3.3e38,
        1e5,
    ],
    "double": [0.1, -0.1, 1e-60, -1e-60, 1e300, -1e300, 3.4028235677973366e38, 16777217.0, 1e-45, -0.75],
}
#: The types that they become: digits, the smallest exponent, the largest, and how bits are numbers.
FORMATS = {
    "float": (24, -149, 128, np.dtype("float32")),
    "double": (53, -1074, 1024, np.dtype("float64")),
    "half": (11, -24, 16, np.dtype("float16")),
    "bfloat16": (8, -133, 128, None),
}
CONVERSIONS = [
    *((f"__{short}2float", of, "float") for short, of in zip(("int", "uint", "ll", "ull"), GIVEN, strict=False)),
    ("__ll2double", "long long", "double"),
    ("__ull2double", "unsigned long long", "double"),
    ("__double2float", "double", "float"),
    *((f"__{of}2{to}", of, to) for of in ("float", "int") for to in ("half", "bfloat16")),
    *((f"__uint2{to}", "unsigned", to) for to in ("half", "bfloat16")),
]


def rounded(x: Fraction, digits: int, smallest: int, largest: int, mode: str) -> float:
    """The number of a type that IEEE 754 says, computed with whole numbers."""
    if x == 0:
        return 0.0
    exponent = math.floor(math.log2(abs(x))) if abs(x) > Fraction(1, 10**300) else -2000
    exponent += (abs(x) >= Fraction(2) ** (exponent + 1)) - (abs(x) < Fraction(2) ** exponent)
    unit = Fraction(2) ** max(exponent - digits + 1, smallest)
    whole = {"rn": round, "rd": math.floor, "ru": math.ceil, "rz": math.trunc}[mode](x / unit) * unit
    if abs(whole) < Fraction(2) ** largest:
        return float(whole)
    beyond = mode == "rn" or (mode == "ru" and x > 0) or (mode == "rd" and x < 0)
    most = Fraction(2) ** largest - Fraction(2) ** (largest - digits)
    return math.copysign(math.inf if beyond else float(most), x)


def number(bits: str, to: str) -> float:
    kind = FORMATS[to][3]
    if kind is None:
        return float(np.array([int(bits, 16) << 16], np.uint32).view(np.float32)[0])
    return float(np.array([int(bits, 16)], f"uint{8 * kind.itemsize}").view(kind)[0])


def literal(value: float | int, of: str) -> str:
    suffix = {"float": "f", "unsigned": "u", "long long": "ll", "unsigned long long": "ull"}.get(of, "")
    if of == "float":
        return f"{float(np.float32(value)).hex()}f"
    return (
        value.hex() if isinstance(value, float) else f"static_cast<{of}>({value % 2**64}ull)" if suffix != "f" else ""
    )


def printed_by(calls: list[str], where: str, tmp_path: Path) -> list[str]:
    """The bits that expressions have in a program of the layer, or in templates."""
    print_bits = "template <class T> void bits(T x) { unsigned long long b = 0; __builtin_memcpy(&b, &x, sizeof x); "
    print_bits += 'printf("%llx\\n", b); }\n'
    main = "int main() {\n" + "\n".join(f"bits({call});" for call in calls) + "\n}\n"
    if where == "layer":
        text = f"#define __CUDACC__\n#include <cuda_runtime.h>\n#include <cuda_bf16.h>\n{print_bits}{main}"
    else:
        text = f"{prelude()}\nusing namespace mptune_short;\n{print_bits}{main}"
    (tmp_path / "bits.cpp").write_text(text)
    command = [*LAYER, "-O1", str(tmp_path / "bits.cpp"), "-o", str(tmp_path / "bits"), "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    return subprocess.run([tmp_path / "bits"], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.full
@pytest.mark.parametrize("where", few(["layer", "templates"], 1))
def test_conversions_round_as_ieee_754_says(where: str, tmp_path: Path) -> None:
    wanted, calls = [], []
    for name, of, to in CONVERSIONS:
        for value in GIVEN[of]:
            exact = Fraction(float(np.float32(value)) if of == "float" else value)
            for mode in ("rn", "rd", "ru", "rz"):
                wanted.append((rounded(exact, *FORMATS[to][:3], mode), to))
                calls.append(f"{name}_{mode}({literal(value, of)})")
    found = printed_by(calls, where, tmp_path)
    wrong = [
        (call, number(bits, to), right)
        for call, bits, (right, to) in zip(calls, found, wanted, strict=True)
        if number(bits, to) != right
    ]
    assert wrong == []


@pytest.mark.parametrize("where", few(["layer", "templates"], 1))
@pytest.mark.parametrize("to", ["half", "bfloat16"])
def test_a_product_and_a_sum_of_16_bits_round_once(where: str, to: str, tmp_path: Path) -> None:
    rng = random.Random(3)
    # The last is next to the middle between two numbers, which a double does not tell.
    given = [tuple(rng.randrange(0x2000, 0x5000) | rng.choice((0, 0x8000)) for _ in range(3)) for _ in range(200)]
    given += [(0x3C01, 0x3C00 | 0x200, 0x0001), (0x3F81, 0x3FC0, 0x0001), (0x3F81, 0x3FC0, 0x8001)]
    a_call = f"__hfma(__ushort_as_{to}({{}}), __ushort_as_{to}({{}}), __ushort_as_{to}({{}}))"
    found = printed_by([a_call.format(*bits) for bits in given], where, tmp_path)
    for bits, ours in zip(given, found, strict=True):
        a, b, c = (Fraction(number(f"{each:x}", to)) for each in bits)
        assert number(ours, to) == rounded(a * b + c, *FORMATS[to][:3], "rn"), [hex(each) for each in bits]


@pytest.mark.parametrize(
    "statement", few(["p[1] = p[0] * p[1]", "p[1] += p[0]", "p[1] = -p[0]", "if (p[0] == p[1]) p[1] = p[2]"], 1)
)
def test_operators_of_pairs_are_refused_with_what_to_write(statement: str, tmp_path: Path) -> None:
    program = tmp_path / "pairs.cu"
    text = f"#include <cuda_fp16.h>\n__global__ void odd(half2* p) {{\n  {statement};\n}}\nint main() {{}}\n"
    program.write_text(text)
    (refusal,) = reading.read([program]).refusals
    assert (refusal.kernel, refusal.extent.line) == ("odd", 3)
    assert refusal.remedy.endswith("write __hadd2, __hmul2, __hfma2 or their like")
