"""What of a prelude stays for a source."""

from __future__ import annotations

from mptune.backends.opencl_dialect import as_opencl, without_unused
from mptune.prelude import prelude


def test_the_prelude_gets_short_and_a_header_keeps_it_whole() -> None:
    body = '\n#line 1 "f.cu"\nextern "C" __global__ void f(float* y) { y[0] = mp::exp(y[0]); }\n'
    whole = as_opencl(prelude() + body)
    short = without_unused(whole)
    assert len(short) < 0.3 * len(whole)
    assert short.endswith(whole[whole.index('#line 1 "f.cu"') :])
    assert "exp_function" in short
    assert "log_function" not in short
    assert "log_function" in without_unused(whole, ["-DF=mp::log"])
    assert "two_floats operator" not in short
    included = as_opencl(prelude() + '\n#include "some.hpp"' + body)
    assert without_unused(included) == included
    assert without_unused("of somebody else") == "of somebody else"
