"""Rendering: what templates see, how their mistakes are reported, what surrounds the instantiated text."""

from __future__ import annotations

import dataclasses
import re

import pytest
from vendor_compilers import needs

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.errors import CompileError, TemplateError
from mptune.kernel import In, InOut, Kernel, Scalar
from mptune.source.render import render, render_body, template_lines
from mptune.space.parameters import (
    BooleanParameter,
    CategoricalParameter,
    OrdinalParameter,
    PermutationParameter,
    PolicyParameter,
    PrecisionParameter,
)
from mptune.tuning.check import check

FUNCTION = 'extern "C" __global__ void scale(const int n, const {{ x_type }}* x, float* y)'


def kernel(template, **changes):
    """A kernel with one parameter of each kind a template may want to print."""
    return Kernel(
        **{
            "name": "scale",
            "parameters": [
                PrecisionParameter("x_type", ["fp64", "fp16", "bf16", "fp8_e4m3"]),
                PolicyParameter("exp_policy"),
                OrdinalParameter("block_size", [64, 128]),
                BooleanParameter("unroll"),
                CategoricalParameter("layout", ["rows", "columns"]),
                PermutationParameter("order", 3),
            ],
            "arguments": [
                Scalar("n", dtype="int32"),
                In("x", "n", precision="x_type"),
                InOut("y", "n", precision="fp32"),
            ],
            "sizes": {"default": {"n": 1000}},
            "inputs": lambda rng, size: {},
            "grid": ["ceildiv(n, block_size)"],
            "block": ["block_size"],
            "template": template,
            **changes,
        }
    )


def body(text, values=None, **changes):
    instance = kernel(f"{FUNCTION} {{\n{text}\n}}\n", **changes)
    lines = render_body(instance, instance.configuration(values or {}), instance.resolve_sizes()).splitlines()
    return "\n".join(lines[1:-1])


def failure(text, values=None, **changes):
    with pytest.raises(TemplateError) as caught:
        body(text, values, **changes)
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "printed"), [("fp64", "double"), ("fp16", "half"), ("bf16", "bfloat16"), ("fp8_e4m3", "fp8_e4m3")]
)
def test_precisions_print_as_their_cpp_type(value, printed):
    assert body("{{ x_type }} a;", {"x_type": value}) == f"{printed} a;"


def test_precisions_compare_by_name_and_alias():
    text = "{{ x_type == 'fp16' }} {{ x_type == 'half' }} {{ x_type != 'fp16' }} {{ x_type in ['fp32', 'fp64'] }}"
    assert body(text, {"x_type": "fp16"}) == "True True False False"
    assert body(text, {"x_type": "fp64"}) == "False False True True"


def test_other_values_print_as_cpp():
    text = "exp<{{ exp_policy }}>; {{ block_size + 1 }} {{ unroll }} {{ layout }} {{ order[2] }} {{ n }}"
    values = {"exp_policy": "fast", "unroll": True, "layout": "columns", "order": (2, 0, 1), "block_size": 128}
    assert body(text, values) == "exp<fast>; 129 1 columns 1 1000"
    assert "exp<accurate>; 65 0" in body(text, {**values, "exp_policy": "accurate", "unroll": False, "block_size": 64})


NUMBERS = ["0.1", "5.", ".5", "1e-3", "1'000.5", "0x1.8p-3", "9007199254740993.00000000001", "3"]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_literal_without_a_type_is_the_double_its_compiler_reads(number):
    assert body(f"#define W {number}_num\nx *= -{number}_num;") == (
        f"#define W mp::literal({number})\nx *= -mp::literal({number});"
    )
    assert body(f"a1_num = {number}; // x_num") == f"a1_num = {number}; // x_num"
    assert body("x = 20000000000000000000_num;") == "x = mp::literal(20000000000000000000.0);"


def test_undefined_name_is_reported_with_line_and_nearest_name():
    message = failure("int a;\nint b = {{ block_sise }};")
    assert message.startswith(
        "template of kernel scale, line 3: 'block_sise' is not defined; did you mean 'block_size'?"
    )
    for name in ("x_type", "exp_policy", "block_size", "unroll", "layout", "order", "n", "ceildiv"):
        assert name in message


def test_undefined_name_is_found_in_a_branch_that_is_not_taken():
    message = failure("{% if unroll %}\n{{ nothing }}\n{% endif %}", {"unroll": False})
    assert message.startswith("template of kernel scale, line 3: 'nothing'")


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("{% if unroll %}", 3, "endif"),
        ("a\n{{ n // 0 }}", 3, "ZeroDivisionError"),
        ("{{ x_type == 'fp99' }}", 2, "unknown precision 'fp99'"),
        ("a\nb\n{% include 'other.j2' %}", 4, "no template 'other.j2'"),
        ("int q[2][2] = {{1, 2}, {3, 4}};", 2, "put a space between two braces of C++, as in { {1, 2} }"),
    ],
)
def test_mistakes_name_the_template_and_the_line(text, line, says):
    message = failure(text)
    assert re.match(rf"template of kernel scale, line {line}: ", message), message
    assert says in message


@pytest.mark.parametrize("parameters", ["int n, float* x", "int n, float* x, float* y, vec<float, 2> z"])
def test_signature_with_another_number_of_parameters(parameters):
    instance = kernel(f'extern "C" __global__ void scale({parameters}) {{\n}}\n')
    with pytest.raises(TemplateError, match=r"scale has \d parameters?, the kernel declares 3 arguments \(n, x, y\)"):
        render_body(instance, instance.configuration({}), instance.resolve_sizes())


class TestFiles:
    """Where a template is looked for, and that a changed file is read again."""

    def test_named_by_the_kernel_and_including_another(self, tmp_path):
        (tmp_path / "parts").mkdir()
        (tmp_path / "main.j2").write_text("{% include 'parts/tail.j2' %}\n" + FUNCTION + " {\n}\n")
        (tmp_path / "parts" / "tail.j2").write_text("// {{ n }}\n\n// {{ oops }}\n")
        instance = dataclasses.replace(kernel("main.j2"), path=tmp_path / "own.py")
        with pytest.raises(TemplateError, match=r"tail\.j2:3: 'oops' is undefined"):
            render_body(instance, instance.configuration({}), instance.resolve_sizes())

    def test_missing_file_names_where_it_was_looked_for(self, tmp_path):
        (tmp_path / "scal.cu.j2").write_text("\n")
        instance = dataclasses.replace(kernel(None), path=tmp_path / "scale.py")
        with pytest.raises(TemplateError, match=r"no template .*scale\.cu\.j2 \(put .*; did you mean 'scal'"):
            render_body(instance, instance.configuration({}), instance.resolve_sizes())
        (tmp_path / "scal.cu.j2").rename(tmp_path / "lavamd.cu.j2")
        with pytest.raises(TemplateError, match=r"put scale\.cu\.j2 beside scale\.py, or give template=\)$"):
            render_body(instance, instance.configuration({}), instance.resolve_sizes())


TYPES = 'extern "C" __global__ void take({}* y, const {}* x, {} a, {} n) {{ y[0] = y[0]; }}\n'

FITTING = [
    ("half", "double", "bfloat16", "int"),
    ("vec<half, 4>", "vec<double, 2>", "bfloat16", "unsigned"),
    ("unsigned short", "long long", "bfloat16", "int"),
]
# The parameter that is wrong, and how it is passed.
MISTAKEN = [
    (("float", "double", "bfloat16", "int"), "y", "fp16"),
    (("half", "float", "bfloat16", "int"), "x", "fp64"),
    (("half", "double", "bfloat16*", "int"), "a", "bf16"),
    (("half", "double", "bfloat16", "long long"), "n", "int32"),
]


def taking(types, backend="host"):
    """The source of a kernel whose function has parameters of these types, compiled for a backend."""
    definition = Kernel(
        name="take",
        parameters=[PrecisionParameter("y_type", ["fp64", "fp16"])],
        arguments=[
            InOut("y", "n", precision="y_type"),
            In("x", "n", precision="fp64"),
            Scalar("a", precision="bf16"),
            Scalar("n", dtype="int32"),
        ],
        sizes={"default": {"n": 8}},
        inputs=lambda rng, size: {},
        grid=["1"],
        block=["32"],
        template=TYPES.format(*types),
    )
    source = render(definition, definition.configuration({"y_type": "fp16"}), definition.resolve_sizes())
    return get_backend(backend).compiler.compile(source, "take", CompileOptions())


READERS = ["host", pytest.param("opencl", marks=[*needs("opencl"), pytest.mark.full])]


@pytest.mark.parametrize("backend", READERS)
@pytest.mark.parametrize("types", FITTING)
def test_parameters_of_the_declared_types_compile(types, backend):
    if backend == "opencl" and "vec<" in types[0]:
        pytest.skip("OpenCL has no parameters that lead to a class with alignment")
    assert taking(types, backend).image


@pytest.mark.parametrize("backend", READERS)
@pytest.mark.parametrize(("types", "argument", "passed"), MISTAKEN)
def test_parameters_of_other_types_than_declared_do_not_compile(types, argument, passed, backend):
    with pytest.raises(CompileError, match=f"argument {argument} of kernel take is passed as {passed}"):
        taking(types, backend)


@pytest.mark.parametrize(
    ("declaration", "type_", "name"),
    [
        ("extern __shared__ float part[];", "float", "part"),
        (
            "extern __attribute__((aligned(16))) __shared__ volatile unsigned char raw[];",
            "volatile unsigned char",
            "raw",
        ),
    ],
)
def test_dynamic_shared_memory_is_declared_as_in_cuda(declaration, type_, name):
    alias = f"mptune_type_of_{name}"
    assert body(declaration) == f"using {alias} = {type_}; SHARED_DYNAMIC({alias}, {name});"


# -- which line of the template -------------------------------------------------------------------

LINES = """// {# a comment
of two lines #}one
{% set twice = 2 %}
{% macro sum(count) %}
{% for k in range(count) %}
    y[0] = {{ k }};
{% endfor %}
{% endmacro %}
{% include 'part.j2' %}
FUNCTION {
{{ sum(twice) }}
    {%- if twice %}

    const int odd = {{ n }};

    {% endif %}
    y[1] =
        {{ oops }};
}
"""


@pytest.fixture
def several(tmp_path):
    """A template whose lines move about, in a folder of its own."""
    (tmp_path / "own.cu.j2").write_text(LINES.replace("FUNCTION", FUNCTION).replace("{{ oops }}", "unknown_name + n"))
    (tmp_path / "part.j2").write_text("\n// of a part\n")
    return dataclasses.replace(kernel(None), path=tmp_path / "own.py")


def test_every_line_knows_where_it_is_from(several):
    configuration, sizes = several.configuration({}), several.resolve_sizes()
    text = render_body(several, configuration, sizes)
    lines = template_lines(several, configuration, sizes)
    found = {line.strip(): f"{lines[number][0]}:{lines[number][1]}" for number, line in enumerate(text.splitlines())}
    assert found["// one"] == "own.cu.j2:1"
    assert found["// of a part"] == "part.j2:2"
    assert found["y[0] = 0;"] == found["y[0] = 1;"] == "own.cu.j2:6"
    assert found["const int odd = 1000;"] == "own.cu.j2:14"
    assert found["y[1] ="] == "own.cu.j2:17"


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("host", ""),
        pytest.param("cuda", "sm_80", marks=needs("cuda")),
        pytest.param("hip", "gfx90a", marks=[*needs("hip"), pytest.mark.full]),
    ],
)
def test_a_compiler_s_message_names_the_line_of_the_template(several, name, architecture):
    (failure,) = check(several, get_backend(name), architecture=architecture, sample=1).failures
    rendered = render_body(several, failure.configuration, several.resolve_sizes()).splitlines()
    line = next(number for number, text in enumerate(rendered, 1) if "unknown_name" in text)
    assert line != 18
    assert f"own.cu.j2:18 (line {line} rendered): error: " in failure.message
