"""Instructions counted in listings whose content is known, and in those of compilers that are here."""

from __future__ import annotations

import pytest

from mptune.backends import BACKENDS
from mptune.backends.base import CompileOptions
from mptune.backends.host_compiler import HostCompiler, installed_compilers
from mptune.source.loading import load_kernel
from mptune.source.render import render
from tests.support.listing import Instructions, count_instructions

X86 = """
kernel:
\tvmovupd\t(%rdi), %zmm0
\tvcvtps2pd\t(%rsi), %zmm1
\tvcvtpd2ps\t%zmm0, %ymm2
\tvcvtsi2sdq\t%rax, %xmm3, %xmm3
\tvcvtph2psx\t%ymm4, %zmm4
\tvpmovzxwd\t(%rsi), %zmm5
\tcall\t__extendhfsf2
\tvfmadd213pd\t%zmm0, %zmm1, %zmm2
\tvfnmadd132ps\t%zmm0, %zmm1, %zmm2
\taddpd\t%xmm0, %xmm1
\tvmulph\t%zmm1, %zmm2, %zmm3
\tvaddss\t%xmm0, %xmm1, %xmm2
\tsqrtsd\t%xmm0, %xmm0
\taddq\t$8, %rax
\tsubl\t$1, %ecx
\tvmovups\t%zmm6, 64(%rsp)
\tvmovaps\t%xmm7, -16(%rbp)
\tvmovups\t64(%rsp), %zmm6
\tvmovups\t%zmm6, (%rdi)
"""
ARM = """
kernel:
\tfcvtl\tv0.2d, v0.2s
\tfcvt\ts0, h0
\tfcvtzs\tw0, s0
\tfmla\tv1.2d, v0.2d, v2.2d
\tfadd\td0, d1, d2
\tadd\tx0, x0, #8
\tstr\tq8, [sp, 32]
\tstp\td8, d9, [sp, 16]
\tstr\tq8, [x0]
"""
PTX = """
.version 8.8
\tcvta.to.global.u64 \t%rd5, %rd4;
\tcvt.f64.f32 \t%fd5, %f2;
\tcvt.rn.f32.f64 \t%f1, %fd2;
\tcvt.u32.u16 \t%r9, %rs2;
\tcvt.rzi.s32.f32 \t%r9, %f2;
\t{  cvt.f32.f16 %f1, %rs1;}
\tfma.rn.f64 \t%fd7, %fd1, %fd5, %fd6;
\t@%p1 add.f32 \t%f1, %f2, %f3;
\t{fma.rn.f16x2 %r1,%r2,%r3,%r4;
\tadd.s32 \t%r1, %r2, 1;
\tmul.lo.s32 \t%r1, %r2, 2;
"""


CALLS = """
\tcall\t_ZGVeN8v_exp@PLT
\tcall\t_ZGVeN16v_logf@PLT
\tcall\tcosf@PLT
\tcall\t*pow@GOTPCREL(%rip)
\tcallq\tatan2@PLT
\tbl\terff
\tcall\texpand@PLT
\tcall\t__tls_get_addr@PLT
\tjmp\t.L12
"""


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        (X86, Instructions(conversions=5, vector_operations=4, scalar_operations=2, stack_stores=2)),
        (ARM, Instructions(conversions=2, vector_operations=1, scalar_operations=1, stack_stores=2)),
        (PTX, Instructions(conversions=3, vector_operations=1, scalar_operations=2, stack_stores=None)),
        (CALLS, Instructions(0, 0, 0, 0, fp64_calls=3, single_calls=4)),
        ("", Instructions(0, 0, 0, 0)),
    ],
)
def test_known_listings(listing: str, expected: Instructions) -> None:
    assert count_instructions(listing) == expected


def counted(backend: str, architecture: str = "", name: str = "axpy", **types: str) -> Instructions:
    kernel = load_kernel(name)
    sizes = kernel.resolve_sizes("smoke")
    configuration = kernel.configuration(types)
    source = render(kernel, configuration, sizes)
    listing = BACKENDS[backend]().compiler.listing(source, kernel.function, CompileOptions(architecture=architecture))
    assert listing is not None
    return count_instructions(listing)


def check_known(backend: str, architecture: str) -> None:
    """In one type there is nothing to convert; y = a x + y in two converts, each operand once more than before."""
    one = counted(backend, architecture, a_type="fp64", x_type="fp64", y_type="fp64")
    two = counted(backend, architecture, a_type="fp64", x_type="fp32", y_type="fp64")
    assert one.conversions == 0
    assert two.conversions > 0
    for found in (one, two):
        assert found.vector_operations + found.scalar_operations > 0
    if backend == "host":
        # In fp32, accurate functions are computed in fp64, and fast ones are not.
        types = dict.fromkeys(("input_type", "d_type", "price_type", "output_type"), "fp32")
        accurate, fast = (counted("host", "", "black_scholes", **types, policy=each) for each in ("accurate", "fast"))
        assert accurate.fp64_calls > 0
        assert (fast.fp64_calls, fast.single_calls) == (0, 0)


@pytest.mark.full
@pytest.mark.parametrize("program", installed_compilers(), ids=lambda program: program.label)
def test_compilers_of_the_host(program: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostCompiler, "program", program)
    check_known("host", "")


@pytest.mark.nvrtc
def test_nvrtc() -> None:
    check_known("cuda", "sm_90")


def test_a_compiler_without_listings() -> None:
    assert BACKENDS["hip"]().compiler.listing("", "f", CompileOptions(architecture="gfx90a")) is None
