"""What of a prelude stays for a source."""

from __future__ import annotations

from mptune.backends.opencl_dialect import as_opencl, without_unused
from mptune.backends.pruning import pruned
from mptune.prelude import prelude


def left(text: str, user: str, **known: bool) -> list[str]:
    """Return the lines that stay, without what lies between them."""
    return [" ".join(line.split()) for line in pruned(text, user, known).splitlines() if line.strip()]


def test_what_is_named_stays_with_all_it_names() -> None:
    text = """
    // twice: not in a comment
    template <class T> constexpr bool is_any = true;
    inline int once(int x) { return x; }
    inline int twice(int x) { return once(x) + once(x); }
    inline int other(int x) { return x; }
    """
    assert left(text, "twice(3); // other") == [
        "inline int once(int x) { return x; }",
        "inline int twice(int x) { return once(x) + once(x); }",
    ]


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
