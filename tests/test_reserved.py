"""Names a kernel cannot have: what is refused does not compile, and what compiles is not refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from vendor_compilers import needs

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.opencl import OpenclBackend
from mptune.cpp.prelude import prelude
from mptune.cpp.reserved import prelude_names, why_reserved
from mptune.cpp.tokens import KEYWORDS
from mptune.errors import CompileError, KernelError
from mptune.kernel import Constant, Kernel
from mptune.source.loading import load_kernel
from mptune.tuning import TuneSettings, tune
from mptune.tuning.checking import check
from tests.tiers import few

OPENCL = OpenclBackend.availability()
needs_opencl = pytest.mark.skipif(not OPENCL.can_run, reason=OPENCL.reason or "can run")
OWN = load_kernel(Path(__file__).with_name("own_kernel.py"))
TEXT = str(OWN.template)
BACKENDS = [
    ("host", ""),
    pytest.param("cuda", "sm_80", marks=needs("cuda")),
    pytest.param("hip", "gfx90a", marks=needs("hip")),
]
#: One of each kind of thing the prelude declares; names of types clash only with what uses them.
RESERVED = ("dot", "min", "load", "fma", "local", "accurate", "mp", "VECTOR_LOOP", "class", "main")
FREE = ("poly", "value", "T", "kernel", "signature", "detail", "address", "result")


@pytest.mark.nightly
@pytest.mark.parametrize(("backend", "architecture"), BACKENDS)
def test_what_is_refused_does_not_compile_and_what_is_not_does(backend: str, architecture: str) -> None:
    compiler = get_backend(backend).compiler

    def compiles(name: str) -> bool:
        entry = f"#if defined(MPTUNE_HOST)\nMPTUNE_HOST_ENTRY({name}, 64, 1, 1)\n#endif\n"
        source = f'extern "C" __global__ void {name}(double* y_) {{ y_[threadIdx.x] = 1; }}\n'
        declared = f"static_assert(mptune_declared::parameter<0, decltype(&{name})>::type(nullptr) == nullptr);\n"
        try:
            compiler.compile(f"{prelude()}\n{source}{declared}{entry}", name, CompileOptions(architecture=architecture))
        except CompileError:
            return False
        return True

    assert [name for name in RESERVED if compiles(name)] == []
    assert [name for name in FREE if not compiles(name)] == []
    assert all(map(why_reserved, RESERVED))
    assert not any(map(why_reserved, FREE))


def test_the_names_are_those_of_the_prelude() -> None:
    found = prelude_names()
    assert set(found) > {
        "vec",
        "half",
        "isnan",
        "atomicAdd",
        "__shfl_sync",
        "threadIdx",
        "joined",
        "rsqrt",
        "SHARED_DYNAMIC",
    }
    # Local to the prelude, or undone at its end.
    assert not set(found) & {"detail", "promote", "address", "value", "T", "kind_of", "MPTUNE_EXTREMUM", "struct"}
    assert {found[name] for name in ("sin", "dim3", "mp", "UNROLL", "blockIdx")} == {
        *("function", "type", "namespace", "macro", "variable")
    }
    assert not KEYWORDS & set(found)


def test_a_kernel_of_such_a_name_is_refused_when_it_is_made() -> None:
    with pytest.raises(
        KernelError, match=r"kernel dot: its function cannot be called 'dot', .*prelude.*call it dot_kernel"
    ):
        dataclasses.replace(OWN, name="dot", function="dot")
    assert dataclasses.replace(OWN, name="dot", function="dot_kernel").function == "dot_kernel"
    weights = Constant("load", "n", precision="fp64")
    with pytest.raises(KernelError, match=r"its constant array cannot be called 'load'.* load_values"):
        dataclasses.replace(OWN, arguments=(*OWN.arguments, weights))


@pytest.mark.full
@pytest.mark.parametrize(("backend", "architecture"), BACKENDS[1:])
def test_what_a_compiler_has_of_its_own_is_said_when_it_compiles(backend: str, architecture: str) -> None:
    """It works on the host, so it is not refused."""
    kernel = dataclasses.replace(OWN, function="norm", template=TEXT.replace("void poly", "void norm"))
    assert not check(kernel, get_backend("host"), sample=1).failures
    (failure,) = check(kernel, get_backend(backend), architecture=architecture, sample=1).failures
    assert "has a function norm() of its own; call the kernel's norm_kernel, say" in failure.message.splitlines()[0]


@pytest.mark.parametrize(
    ("name", "statement", "says"),
    [
        ("sum", "{{ x_type }} z = sum(vec<{{ x_type }}, 2>(t));", r"hides a name of the prelude"),
        ("min", "int z = min(i, n);", r"hides a name of the prelude"),
        ("load", "auto z = load<1>(load);", r"hides a name of the prelude"),
        ("class", "", r"cannot be called 'class', which is a word of C\+\+"),
        ("VECTOR_LOOP", "", r"cannot be called 'VECTOR_LOOP', which is a macro of the prelude"),
    ],
)
def test_a_parameter_that_hides_what_the_template_uses_is_refused(name: str, statement: str, says: str) -> None:
    text = TEXT.replace("* x,", f"* {name},").replace("= x[i];", f"= {name}[i]; {statement}")
    kernel = dataclasses.replace(OWN, template=text)
    with pytest.raises(
        KernelError,
        match=rf"^template of kernel poly, line 2: a parameter of function poly: it .*{says}.* call it {name}_v",
    ):
        check(kernel, get_backend("host"), sample=1)


@pytest.mark.parametrize("name", few(["sum", "max", "half_way", "values"], 1))
def test_a_parameter_that_hides_what_the_template_does_not_use_is_fine(name: str) -> None:
    text = TEXT.replace("* x,", f"* {name},").replace("= x[i];", f"= {name}[i] + mp::abs({name}[i]) * 0;")
    result = check(dataclasses.replace(OWN, template=text), get_backend("host"), sample=1)
    assert not result.failures


def named(name: str) -> Kernel:
    return dataclasses.replace(OWN, name=name, function=name, template=TEXT.replace("void poly", f"void {name}"))


@pytest.mark.nightly
@needs_opencl
@pytest.mark.parametrize("name", ["global", "read_write", "float4", "as_float", "M_PI"])
def test_words_of_opencl_are_no_names_of_kernels_there(name: str) -> None:
    says = rf"kernel {name}: on backend opencl .* '{name}', which is a word of OpenCL; call it {name}_kernel, say"
    with pytest.raises(KernelError, match=says):
        check(named(name), get_backend("opencl"), sample=1)
    with pytest.raises(KernelError, match=says):
        tune(named(name), TuneSettings(backend="opencl", budget=2, size="smoke"))


@pytest.mark.full
@needs_opencl
@pytest.mark.parametrize("name", ["global", "pipe", "read_write"])
def test_words_of_opencl_are_names_of_parameters(name: str) -> None:
    text = TEXT.replace("* x,", f"* {name},").replace("= x[i];", f"= {name}[i];")
    assert not check(dataclasses.replace(OWN, template=text), get_backend("opencl"), sample=1).failures
