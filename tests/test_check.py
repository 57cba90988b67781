from __future__ import annotations

import dataclasses
from pathlib import Path

from mptune.backends import get_backend
from mptune.kernel import InOut, Kernel, Sizes
from mptune.source.loading import load_kernel
from mptune.space.parameters import PrecisionParameter
from mptune.tuning.check import check, select

KERNEL = load_kernel(Path(__file__).with_name("own_kernel.py"))
SIZES = KERNEL.resolve_sizes()


def test_by_default_every_value_of_every_parameter_comes() -> None:
    chosen = select(KERNEL.search_space(SIZES), KERNEL.signature_names)
    for parameter in KERNEL.parameters:
        assert {c[parameter.name] for c in chosen} == set(parameter.values)
    assert len(chosen) < sum(len(p.values) for p in KERNEL.parameters) / 2
    assert select(KERNEL.search_space(SIZES), KERNEL.signature_names) == chosen


def test_every_accuracy_signature_comes_once() -> None:
    chosen = select(KERNEL.search_space(SIZES), KERNEL.signature_names, "signatures")
    space = KERNEL.search_space(SIZES)
    everything = {KERNEL.signature_of(c) for c in select(KERNEL.search_space(SIZES), KERNEL.signature_names, "all")}
    assert {KERNEL.signature_of(c) for c in chosen} == everything
    assert len(chosen) == len(everything)
    assert all(c in space for c in chosen)


def test_failures_that_say_the_same_are_told_once() -> None:
    template = (
        str(KERNEL.template) + "\n{% if unroll == 4 %}\n#error no four of {{ block }}\n{% endif %}\n{{ nothing }}\n"
    )
    result = check(dataclasses.replace(KERNEL, template=template), get_backend("host"))
    (group,) = result.failure_groups
    assert len(group) == len(result.compilations) > 1
    lines = template.count("\n")
    assert group[0].message.startswith(f"template of kernel poly, line {lines}: 'nothing' is not defined")
    result = check(dataclasses.replace(KERNEL, template=template.replace("{{ nothing }}", "")), get_backend("host"))
    assert [len(group) for group in result.failure_groups] == [len(result.failures)]
    assert {c.configuration["unroll"] for c in result.failures} == {4}
    assert all("no four" in c.message for c in result.failures)
    assert len(result.failures) < len(result.compilations)
    assert f"template of kernel poly, line {lines - 2} (line" in result.failures[0].message


def test_values_held_in_a_wider_type_have_their_bits() -> None:
    """On a processor without arithmetic in fp16, local values of it are held in float."""
    kernel = Kernel(
        name="bits",
        parameters=[PrecisionParameter("x_type", ["fp16", "bf16"])],
        arguments=[InOut("x", 1, precision="x_type")],
        grid=["1"],
        block=["1"],
        template='extern "C" __global__ void bits({{ x_type }}* x) {\n'
        "    const local<{{ x_type }}> held = x[0];\n"
        "    if (held.to_bits() == 0) x[0] = {{ x_type }}(2.0f);\n}\n",
    )
    found = check(kernel, get_backend("host"), sizes=Sizes({}), sample="all")
    assert [compilation.message for compilation in found.compilations] == ["", ""]
