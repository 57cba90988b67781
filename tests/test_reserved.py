"""Names a kernel cannot have: what is refused does not compile, and what compiles is not refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from vendor_compilers import needs

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.cpp.prelude import prelude, prelude_names, why_reserved
from mptune.cpp.tokens import KEYWORDS
from mptune.errors import CompileError, KernelError
from mptune.kernel import Constant
from mptune.source.loading import load_kernel

OWN = load_kernel(Path(__file__).with_name("own_kernel.py"))
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
        "threadIdx",
        "joined",
        "rsqrt",
        "SHARED_DYNAMIC",
    }
    # Local to the prelude, or undone at its end.
    assert not set(found) & {"detail", "promote", "address", "value", "T", "kind_of", "MPTUNE_EXTREMUM", "struct"}
    assert not KEYWORDS & set(found)


def test_a_kernel_of_such_a_name_is_refused_when_it_is_made() -> None:
    with pytest.raises(KernelError, match=r"kernel dot: 'dot' is .*prelude.*dot_"):
        dataclasses.replace(OWN, name="dot", function="dot")
    assert dataclasses.replace(OWN, name="dot", function="dot_kernel").function == "dot_kernel"
    weights = Constant("load", "n", precision="fp64")
    with pytest.raises(KernelError, match=r"'load' is .* load_"):
        dataclasses.replace(OWN, arguments=(*OWN.arguments, weights))
