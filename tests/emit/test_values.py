"""What reaches a file stays what it is: text, numbers, formulas; and which sizes a source depends on."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from awkward_kernel import AWKWARD, NASTY

from mptune.backends.host_compiler import find_compiler
from mptune.emit.sizes import NotTranslatableError, conditions, fixed_sizes, formula
from mptune.emit.text import comment, identifier, literal, quoted
from mptune.kernel import In, Kernel, Out, Scalar
from mptune.source.loading import load_kernel
from mptune.space.expressions import Expression
from mptune.space.parameters import OrdinalParameter, PrecisionParameter


def _printed(folder: Path, body: str) -> bytes:
    (folder / "main.cpp").write_text(f"#include <cstdio>\n{body}")
    command = [*find_compiler().command, "-std=c++17", "-Wall", "-Werror", "-trigraphs", "main.cpp", "-o", "main"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return subprocess.run([folder / "main"], capture_output=True, check=True).stdout


def test_string_literals_of_cpp_are_the_text(tmp_path: Path) -> None:
    texts = [NASTY, "??/", "a\nb\tc\0d", "\u202eabc\u2028", "\x1b[31m", "\\", "9\x019", "%s", "😀"]
    calls = "".join(f"std::fwrite({quoted(t)}, 1, sizeof({quoted(t)}), stdout);" for t in texts)
    assert _printed(tmp_path, f"int main() {{ {calls} }}") == b"".join(t.encode() + b"\0" for t in texts)


def test_comments_end_where_they_should(tmp_path: Path) -> None:
    texts = [
        NASTY,
        "ends in \\",
        "a\nint x = ;",
        "*/ int x = ;",
        "trigraph ??/",
        "\r\n#error",
        "\u2028#error",
        "\\ \\ ",
    ]
    lines = "\n".join(f"// {comment(text)}\n/* {comment(text)} */" for text in texts)
    assert _printed(tmp_path, f'{lines}\nint main() {{ std::fputs("end", stdout); }}') == b"end"


def test_identifiers_and_literals() -> None:
    assert identifier("n") == "n"
    assert identifier("register") == "register_"
    assert [literal(v) for v in (True, 3, 2**40, -(2**40), 0.1, "x")] == [
        "true",
        "3",
        "1099511627776LL",
        "-1099511627776LL",
        "0.1",
        '"x"',
    ]
    assert literal(2**70) == f'"{2**70}"'
    assert literal(float("nan")) == '"nan"'


FORMULAS = [
    "ceildiv(n, block * 4)",
    "n // m - -n % 7",
    "(n - 5 * m) // 3 + (n - 5 * m) % 4",
    "max(n, m, block) + min(n, 9)",
    "n if n > m else m ** 3",
    "(n <= m) + abs(m - n)",
    "sizeof(t) * n",
]


def test_formulas_of_cpp_give_what_the_expressions_do(tmp_path: Path) -> None:
    functions = (Path(__file__).parents[2] / "mptune" / "emit" / "files" / "integers.hpp.j2").read_text()
    values = {"block": 64, "t": "fp16"}
    points = [(n, m) for n in (1, 2, 7, 63, 64, 65, 1000) for m in (1, 3, 8)]
    sums = "".join(
        f'std::printf("%lld ", static_cast<long long>({formula(text, values, {"n": "n", "m": "m"})}));'
        for text in FORMULAS
    )
    calls = "".join(f"all({n}, {m});" for n, m in points)
    body = f"void all(long long n, long long m) {{ {sums} }}"
    program = f"namespace detail {{\n{functions}}}\n{body}\nint main() {{ {calls} }}"
    expected = [int(Expression(text).evaluate({**values, "n": n, "m": m})) for n, m in points for text in FORMULAS]
    assert list(map(int, _printed(tmp_path, program).split())) == expected


@pytest.mark.parametrize("text", ["n / 2", "sqrt(n)", "n << 2", "n in block", "len([n])", "0.5", "n and 2", "n ** n"])
def test_what_integers_of_cpp_do_not_have_is_refused(text: str) -> None:
    with pytest.raises(NotTranslatableError):
        formula(text, {"block": 32}, {"n": "n"})


# -- which sizes are fixed -----------------------------------------------------------------------


def _kernel(template: str, **changes: object) -> Kernel:
    given: dict[str, object] = {
        "name": "k",
        "parameters": [OrdinalParameter("block", [32])],
        "arguments": [Out("y", "n * m", precision="fp64"), In("x", "n", precision="fp64"), Scalar("n", dtype="int32")],
        "sizes": {"default": {"n": 8, "m": 4}},
        "inputs": lambda rng, size: {},
        "grid": ["n"],
        "block": ["block"],
        "template": f'{template}\nextern "C" __global__ void k(double* y, const double* x, int n) {{}}\n',
    }
    return Kernel(**{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("template", "fixed"),
    [
        ("", set()),
        ("int a = {{ m }};", {"m"}),
        ("{% if n > 3 %}int a;{% endif %}", {"n"}),
        ("{% if block > 64 and n > 3 %}int a;{% endif %}", set()),
        ("{% for i in range(m) %}{% endfor %}", {"m"}),
        ("{% set rows = min(m, n) %}", {"m", "n"}),
        ("{{ '%d' % n }}", {"n"}),
        ("{{ [1, 2, 3, 4, 5][m] }}", {"m"}),
        # What is asked of the type and not of the value is answered wrongly; then nothing is known to be free.
        ("{{ 1 if m is number }}", {"m", "n"}),
    ],
)
def test_sizes_the_template_looks_at_are_fixed(template: str, fixed: set[str]) -> None:
    kernel = _kernel(template)
    assert fixed_sizes(kernel, kernel.configuration({}), kernel.resolve_sizes()) == fixed


@pytest.mark.parametrize(
    ("kernel", "fixed"),
    [
        (_kernel("", block=["min(block, m)"]), {"m"}),
        (_kernel("", shared_bytes="m * 8"), {"m"}),
        (AWKWARD, {"taps"}),  # of constant memory
        (load_kernel("axpy"), set()),
    ],
    ids=["block", "shared memory", "constant memory", "axpy"],
)
def test_sizes_of_blocks_and_of_memory_are_fixed(kernel: Kernel, fixed: set[str]) -> None:
    assert fixed_sizes(kernel, kernel.configuration({}), kernel.resolve_sizes()) == fixed


FREE = {"m": "sizes.m", "n": "sizes.n"}


@pytest.mark.parametrize(
    ("constraint", "cpp"),
    [
        ("n % block == 0", "(detail::floor_mod(sizes.n, 32LL) == 0LL)"),
        ("not n % 4 or m in (1, 2)", "((!detail::floor_mod(sizes.n, 4LL)) || (sizes.m == 1LL || sizes.m == 2LL))"),
        ("kind != 'double' and n > m", "0LL"),
        ("block == 16 or n > m or m == 3", "((sizes.n > sizes.m) || (sizes.m == 3LL))"),
        ("block == 32 and n > m", "(sizes.n > sizes.m)"),
        ("(2 if n > 3 or m else 1) < block", "((((sizes.n > 3LL) || sizes.m) ? 2LL : 1LL) < 32LL)"),
    ],
)
def test_constraints_as_a_launch_has_to_satisfy_them(constraint: str, cpp: str) -> None:
    kinds = [OrdinalParameter("block", [32]), PrecisionParameter("kind", ["fp64"])]
    kernel = _kernel("", parameters=kinds, constraints=[constraint, "block == 32"])
    found, uncovered = conditions(kernel, kernel.configuration({}), kernel.resolve_sizes(), FREE)
    assert [(c.text, c.cpp) for c in found] == [(constraint, cpp)]
    assert not uncovered


@pytest.mark.parametrize(
    ("constraint", "names"),
    [(lambda block, m: block > m, {"m"}), ("0.5 * n < 9", {"n"}), ("n / m > 1", {"m", "n"}), ("(n and 3) > 2", {"n"})],
)
def test_sizes_of_constraints_that_are_no_formula_are_not_covered(constraint: Any, names: set[str]) -> None:
    kernel = _kernel("", constraints=[constraint])
    found, uncovered = conditions(kernel, kernel.configuration({}), kernel.resolve_sizes(), FREE)
    assert (found, uncovered) == ([], names)
