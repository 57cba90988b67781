"""Lints: what a template says that its author hardly meant, and no alarm on what is right."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from mptune.kernel import Kernel
from mptune.source.lints import examples, lints
from mptune.source.loading import bundled_kernels, load_kernel
from mptune.space.parameters import BooleanParameter, OrdinalParameter
from tests.tiers import few

OWN = load_kernel(Path(__file__).with_name("own_kernel.py"))
BUNDLED = few(["axpy", *(name for name in bundled_kernels() if not name.startswith("_") and name != "axpy")], 1)


def found(kernel: Kernel, **changes: Any) -> tuple[str, ...]:
    changed = dataclasses.replace(kernel, **changes)
    sizes = changed.resolve_sizes("smoke" if "smoke" in changed.sizes else "default")
    space = changed.search_space(sizes)
    return lints(changed, sizes, space, examples(changed, space))


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_kernel_raises_no_alarm(name: str) -> None:
    assert found(load_kernel(name)) == ()


@pytest.mark.parametrize(
    ("name", "right", "wrong", "literal"),
    [
        ("bessel", "x * series(0.125)", "x * 0.125", "0.125"),
        ("newton_raphson", "slope = fma(c4, x[v], value)", "slope = fma(c4, x[v], value * 1.0)", "1.0"),
    ],
)
def test_a_literal_put_into_a_bundled_kernel_is_found(name: str, right: str, wrong: str, literal: str) -> None:
    kernel = load_kernel(name)
    assert kernel.path is not None
    template = (kernel.path.parent.parent / "templates" / f"{name}.cu.j2").read_text()
    assert template.count(right) == 1
    line = template[: template.index(right)].count("\n") + 1
    (warning,) = found(kernel, template=template.replace(right, wrong))
    assert warning.startswith(f"template of kernel {name}, line {line}: {literal}")
    assert "computed in double" in warning
    assert "\n" not in warning


def test_arguments_in_another_order_than_the_function_s_parameters_are_found() -> None:
    order = tuple(OWN.arguments[i] for i in (1, 0, *range(2, len(OWN.arguments))))
    (warning,) = found(OWN, arguments=order)
    names = [argument.name for argument in OWN.arguments]
    swapped = [argument.name for argument in order]
    assert warning.endswith("give both the same order")
    assert f"takes ({', '.join(names)}), but kernel poly declares ({', '.join(swapped)})" in warning
    # Names of one's own, for the same arguments, are nobody's business.
    renamed = re.sub(rf"\b{names[0]}\b", f"{names[0]}_values", str(OWN.template))
    assert found(OWN, arguments=order, template=renamed) == ()


def test_a_parameter_that_changes_nothing_is_named() -> None:
    extra = (*OWN.parameters, OrdinalParameter("depth", [1, 2, 3]))
    (warning,) = found(OWN, parameters=extra)
    assert warning.startswith("parameter 'depth' of kernel poly changes nothing: all 3 values")
    # It is named, but nothing depends on it.
    (warning,) = found(
        OWN, parameters=extra, template=f"{OWN.template}{{% if depth > 7 %}} // {{{{ depth }}}}{{% endif %}}\n"
    )
    assert warning.startswith("parameter 'depth'")


def test_a_parameter_that_something_uses_is_not_named() -> None:
    depth = OrdinalParameter("depth", [1, 2, 3])
    extra = (*OWN.parameters, depth)
    assert not found(OWN, parameters=extra, grid=(*OWN.grid, "depth"))
    assert not found(OWN, parameters=extra, shared_bytes="depth * 64")
    assert not found(OWN, parameters=extra, constraints=("depth * block <= 256",))
    assert not found(OWN, parameters=extra, template=f"{OWN.template}// {{{{ depth }}}}\n")
    # Where another parameter has one of its values only.
    switched = (*extra, BooleanParameter("deep"))
    assert not found(
        OWN, parameters=switched, template=f"{OWN.template}{{% if deep %}}// {{{{ depth }}}}{{% endif %}}\n"
    )
    assert not found(OWN, parameters=(*OWN.parameters, OrdinalParameter("depth", [1])))
