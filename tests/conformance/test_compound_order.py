"""No flags have a compiler of another device reorder or contract what compound types need as it is written.

Their code is read. What the host's compilers do is in test_prelude_compound.py.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from vendor_compilers import needs, nvrtc

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.cpp.prelude import prelude

OBJDUMP = shutil.which("llvm-objdump") or next(map(str, sorted(Path("/usr/lib").glob("llvm-*/bin/llvm-objdump"))), "")
#: What rounding loses of a sum, of one whose first part is larger, and of a product; a term of sums in each type.
SOURCE = """
template <class T, class F>
__device__ void both(F f, const T* x, T* out) {
    const mp::detail::exactly<T> found = f(x[0], x[1]);
    out[0] = found.rounded;
    out[1] = found.lost;
}
#define OF(T, name) \\
    extern "C" __global__ void name##_##T(const T* x, T* out) { both<T>(mp::detail::name<T>, x, out); }
OF(float, two_sum)
OF(float, quick_two_sum)
OF(float, two_product)
OF(double, two_sum)
OF(double, quick_two_sum)
OF(double, two_product)
extern "C" __global__ void term_fp32_neumaier(float* sum, const float* x) {
    local<mp::fp32_neumaier> s = sum[0];
    s += mp::sqrt<POLICY>(x[0]);
    s = fma(x[1], x[2], s);
    sum[0] = s.rounded;
    sum[1] = s.lost;
}
extern "C" __global__ void contracted(const float* x, float* out) {
    out[0] = x[0] * x[1] + x[2];
}
extern "C" __global__ void simplified(const float* x, float* out) {
    out[0] = (x[0] + x[1]) - x[0];
}
"""
TWO_SUM, TWO_PRODUCT = {"sum": 6}, {"fma": 1, "product": 1}
EXPECTED = {"two_sum": TWO_SUM, "quick_two_sum": {"sum": 3}, "two_product": TWO_PRODUCT}
#: Besides the square root.
TERM = {"sum": 14, "product": 1}


def found_in(operations: list[str]) -> dict[str, int]:
    """Return how many sums, products and fused operations there are among instructions of GPUs."""
    kinds = {"add": "sum", "sub": "sum", "subrev": "sum", "mul": "product", "fma": "fma", "fmac": "fma"}
    return dict(Counter(kinds[each] for each in operations if each in kinds))


@pytest.mark.parametrize(
    ("flags", "policy"),
    [
        ((), "accurate"),
        (("--use_fast_math",), "approx"),
        (("--use_fast_math",), "accurate"),
        (("--fmad=true", "--extra-device-vectorization"), "fast"),
    ],
)
@pytest.mark.parametrize("architecture", [pytest.param("sm_80", marks=[*needs("cuda"), pytest.mark.full])])
def test_nvrtc_keeps_every_operation(architecture: str, flags: tuple[str, ...], policy: str) -> None:
    source = f"{prelude()}{SOURCE}".replace("POLICY", policy)
    ptx, _ = nvrtc(source, "two_sum_float", architecture, *flags)
    bodies = dict(re.findall(r"\.entry (\w+)\((.*?)\n\}", ptx, re.DOTALL))
    # One that is not said to round is free to be contracted.
    operations = {
        name: re.findall(r"\b(add|sub|mul|fma)\.rn(?:\.ftz)?\.f(?:32|64)", body) for name, body in bodies.items()
    }
    free = {name: re.findall(r"\b(?:add|sub|mul)(?:\.ftz)?\.f(?:32|64)", body) for name, body in bodies.items()}
    for kind in ("float", "double"):
        for name, expected in EXPECTED.items():
            assert found_in(operations[f"{name}_{kind}"]) in (expected, {"product": 1, "fma": 1})
            assert not free[f"{name}_{kind}"]
    assert found_in(operations["term_fp32_neumaier"]) == TERM
    assert not free["term_fp32_neumaier"]
    assert operations["contracted"] == ["fma"]


@pytest.mark.skipif(not OBJDUMP, reason="llvm-objdump is not installed")
@pytest.mark.parametrize("flags", [(), ("-ffast-math",), ("-ffp-contract=fast", "-funsafe-math-optimizations")])
@pytest.mark.parametrize("architecture", [pytest.param("gfx90a", marks=[*needs("hip"), pytest.mark.full])])
def test_hiprtc_keeps_every_operation(architecture: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    source = f"{prelude()}{SOURCE}".replace("POLICY", "accurate")
    options = CompileOptions(architecture, flags)
    (tmp_path / "code").write_bytes(get_backend("hip").compiler.compile(source, "two_sum_float", options).image)
    command = [OBJDUMP, "-d", tmp_path / "code"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    bodies = dict(re.findall(r"<(\w+)>:\n(.*?)(?=\n\n|\Z)", listing, re.DOTALL))
    operations = {name: re.findall(r"\bv_([a-z]+)_f(?:32|64)", body) for name, body in bodies.items()}
    for name, expected in EXPECTED.items():
        # A product with zero added.
        wanted = {"fma": 2} if expected is TWO_PRODUCT else expected
        assert found_in(operations[f"{name}_float"]) == wanted
        assert found_in(operations[f"{name}_double"]) == wanted
    assert bool(found_in(operations["simplified"])) == (not flags), "these flags would have it all gone"
