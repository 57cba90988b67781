"""What of a prelude stays for a source."""

from __future__ import annotations

import re

import pytest

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


def test_overloads_specialisations_and_operators_stay_for_types_that_are_named() -> None:
    text = """
    struct a;
    struct a { int x; };
    struct b { int x; };
    template <class T> struct size { static constexpr int value = 1; };
    template <> struct size<a> { static constexpr int value = 2; };
    template <> struct size<b> { static constexpr int value = 3; };
    inline int of(a x) { return x.x; }
    inline int of(const b& x) { return x.x; }
    inline b b_of(a x) { return {x.x}; }
    inline a operator+(a x, a y) { return {x.x + y.x}; }
    inline b operator+(b x, b y) { return {x.x + y.x}; }
    template <class T> T operator-(T x) { return x; }
    """
    kept = "\n".join(left(text, "a x; of(x); size<int>::value"))
    assert re.findall(r"struct .*?[;{]", kept) == ["struct a;", "struct a {", "struct size {", "struct size<a> {"]
    assert re.findall(r"inline .*?\(.*?\)", kept) == ["inline int of(a x)", "inline a operator+(a x, a y)"]
    assert "operator-" in kept
    # What a function returns is there once it is called.
    assert "inline b operator+(b x, b y)" in "\n".join(left(text, "b_of(a{}) + b_of(a{})"))


def test_a_class_that_types_are_only_compared_with_is_but_known() -> None:
    text = """
    namespace n {
    struct a;
    struct a { int x; };
    inline bool is_zero(a x) { return x.x == 0; }
    template <class T> bool is_zero(T x) {
        if constexpr (same<T, a>) return is_zero(x);
        return x == 0;
    }
    }
    using n::a;
    using n::is_zero;
    """
    kept = left(text, "is_zero(1)")
    assert kept[:2] == ["namespace n {", "struct a;"]
    assert "struct a { int x; };" not in kept
    assert kept[-2:] == ["using n::a;", "using n::is_zero;"]
    assert left(text, "nothing") == ["namespace n {", "struct a;", "}", "using n::a;"]


def test_macros_that_declare_are_written_out() -> None:
    text = """
    #define FUNCTION(name, op)                \\
        inline int name##_of(int x) { return op x; } \\
        inline int name(int x) { return name##_of(x); }
    #define EACH(one) one(plus, +) one(minus, -)
    EACH(FUNCTION)
    #undef EACH
    """
    kept = left(text, "minus(3)")
    assert [line for line in kept if "plus" in line] == []
    assert [line for line in kept if line.startswith("inline")] == [
        "inline int minus_of(int x) { return - x; }",
        "inline int minus(int x) { return minus_of(x); }",
    ]


def test_what_a_macro_names_is_named_where_the_macro_is() -> None:
    text = """
    #define CALL(x) called(x)
    inline int called(int x) { return x; }
    inline int other(int x) { return x; }
    """
    assert left(text, "CALL(1)") == ["#define CALL(x) called(x)", "inline int called(int x) { return x; }"]
    assert left(text, "nothing") == []


def test_of_a_macro_that_is_defined_in_two_ways_both_count() -> None:
    text = """
    #if defined(SOME)
    #define MAKE(name) inline int name() { return one; }
    #else
    #define MAKE(name) inline int name() { return two; }
    #endif
    constexpr int one = 1;
    constexpr int two = 2;
    MAKE(f)
    #undef MAKE
    #define MAKE(name) inline int name() { return 3; }
    MAKE(g)
    """
    kept = left(text, "g()")
    assert {"MAKE(f)", "constexpr int one = 1;", "constexpr int two = 2;"} < set(kept)
    assert "inline int g() { return 3; }" in kept
    assert left(text, "g()", SOME=True)[-1] == "inline int g() { return 3; }"
    assert "inline int f() { return one; }" in left(text, "f()", SOME=True)


def test_conditions_that_are_known_are_settled() -> None:
    text = """
    #if defined(A) && (defined(B) || !defined(C))
    inline int f() { return 1; }
    #elif defined(D) || defined(E)
    inline int f() { return 2; }
    #elif defined(F)
    inline int f() { return 3; }
    #else
    inline int f() { return 4; }
    #endif
    """

    def returned(**known: bool) -> tuple[list[str], list[str]]:
        kept = "\n".join(left(text, "f()", **known))
        return re.findall(r"return (\d)", kept), re.findall(r"#(\w+)", kept)

    assert returned() == (["1", "2", "3", "4"], ["if", "elif", "elif", "else", "endif"])
    assert returned(A=True, C=False) == (["1"], [])
    assert returned(A=False) == (["2", "3", "4"], ["if", "elif", "else", "endif"])
    assert returned(A=False, D=False) == (["2", "3", "4"], ["if", "elif", "else", "endif"])
    assert returned(A=False, D=False, E=False, F=False) == (["4"], [])
    assert returned(E=True) == (["1", "2"], ["if", "else", "endif"])
    assert returned(A=False, F=True) == (["2", "3"], ["if", "else", "endif"])


def test_a_declaration_with_conditions_inside_is_one() -> None:
    text = """
    template <class T>
    #if defined(SOME)
    constexpr int lanes = 32;
    #else
    constexpr int lanes = 1;
    #endif
    constexpr int other = 1;
    """
    assert left(text, "other") == ["constexpr int other = 1;"]
    assert len(left(text, "lanes<int>")) == 6


@pytest.mark.parametrize("literal", ["0.5_num", "1e-3_num", "0x1p3_num", "2_num"])
def test_a_literal_names_its_operator(literal: str) -> None:
    text = 'constexpr int operator""_num(long double x) { return 1; }\nconstexpr int operator""_other(long double x);'
    assert left(text, f"f({literal})") == ['constexpr int operator""_num(long double x) { return 1; }']


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
