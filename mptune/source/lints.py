"""What a kernel's template says that its author hardly meant: found by reading, before anything is compiled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from mptune.cpp.literals import widening_literals
from mptune.cpp.reserved import WORDS_OF_OPENCL, clash, parameter_names
from mptune.errors import EmptySpaceError, KernelError, MptuneError
from mptune.kernel import Kernel, Sizes
from mptune.source.dialect import cite
from mptune.source.render import render_body, template_lines
from mptune.space.configuration import Configuration
from mptune.space.covering import covering
from mptune.space.expressions import Expression
from mptune.space.parameters import Parameter, uniform_types
from mptune.space.search_space import SearchSpace

__all__ = ["examples", "lints", "refuse_clashes"]

#: How many lines of a template, and how many literals, one warning names.
_NAMED: Final = 6


def examples(kernel: Kernel, space: SearchSpace) -> tuple[Configuration, ...]:
    """Return configurations of one precision each that together have every value of every other parameter."""
    found: list[Configuration] = []
    for types in uniform_types(kernel.parameters).values() or ({},):
        try:
            alike = space.restrict({name: (value,) for name, value in types.items()}, explains=False)
        except EmptySpaceError:
            continue
        found += alike.configurations(covering(alike, np.random.default_rng(0)))
    return tuple(found)


def refuse_clashes(kernel: Kernel, sizes: Sizes, chosen: Sequence[Configuration], backend: str) -> None:
    """Check that neither a kernel's function nor a parameter of it has a name that means something else on a backend.

    Args:
        kernel: the kernel.
        sizes: what it is rendered for.
        chosen: its :func:`examples`, of which the first that can be rendered is read.
        backend: the name of the backend.

    Raises:
        KernelError: one has; names it, a parameter with its line.
    """
    if backend == "opencl" and WORDS_OF_OPENCL.fullmatch(kernel.function):
        raise KernelError(
            f"{kernel.called}: on backend opencl its function cannot be called {kernel.function!r}, which is a word of "
            f"OpenCL; call it {kernel.function}_kernel, say"
        )
    for configuration in chosen:
        try:
            body = render_body(kernel, configuration, sizes)
        except MptuneError:
            continue
        found = clash(body, kernel.function)
        if found is not None:
            parameter, why = found
            where = cite(*_place(kernel, configuration, sizes, body, parameter.start))
            raise KernelError(
                f"{where}: a parameter of function {kernel.function}: {why}; call it {parameter.text}_values, say"
            )
        return


def lints(kernel: Kernel, sizes: Sizes, space: SearchSpace, chosen: Sequence[Configuration]) -> tuple[str, ...]:
    """Return what a kernel's author should look at, one line for each thing, in the :func:`examples` of a space.

    What cannot be rendered says so when it is compiled, and says nothing here.
    """
    found = (
        _misordered(kernel, sizes, chosen),
        _widening(kernel, sizes, chosen),
        _unused(kernel, sizes, space, chosen),
    )
    return tuple(itertools.chain.from_iterable(found))


def _place(kernel: Kernel, configuration: Configuration, sizes: Sizes, body: str, start: int) -> tuple[str, int]:
    """Return what messages call the template, and its line, for a place in what was made of it."""
    line = body.count("\n", 0, start) + 1
    lines = template_lines(kernel, configuration, sizes)
    # A template that looks at its own text has no lines.
    if lines is None:
        return "what mptune render prints", line
    return lines.place(line, start - body.rfind("\n", 0, start))


# -- arguments -------------------------------------------------------------------------------------------


def _misordered(kernel: Kernel, sizes: Sizes, chosen: Sequence[Configuration]) -> Iterator[str]:
    """Say that the function's parameters are called like the arguments, in another order: types may not tell."""
    declared = [argument.name for argument in kernel.passed]
    for configuration in chosen:
        try:
            body = render_body(kernel, configuration, sizes)
        except MptuneError:
            continue
        parameters = parameter_names(body, kernel.function)
        names = [parameter.text for parameter in parameters]
        if names != declared and sorted(names) == sorted(declared):
            first = next(p for p, name in zip(parameters, declared, strict=True) if p.text != name)
            where = cite(*_place(kernel, configuration, sizes, body, first.start))
            yield (
                f"{where}: function {kernel.function} takes ({', '.join(names)}), but kernel {kernel.name} declares "
                f"({', '.join(declared)}), and arguments are passed in the order they are declared in, whatever their "
                "names: give both the same order"
            )
        return


# -- literals --------------------------------------------------------------------------------------------


def _widening(kernel: Kernel, sizes: Sizes, chosen: Sequence[Configuration]) -> Iterator[str]:
    places: dict[tuple[str, int], None] = {}
    texts: dict[str, None] = {}
    for configuration in chosen:
        try:
            body = render_body(kernel, configuration, sizes)
            literals = widening_literals(body)
        except MptuneError:
            continue
        for literal in literals:
            places[_place(kernel, configuration, sizes, body, literal.start)] = None
            texts[literal.text] = None
    for name in dict.fromkeys(name for name, _ in places):
        numbers = sorted(number for other, number in places if other == name)
        where = f"{cite(name, *numbers[:_NAMED])}{', …' if len(numbers) > _NAMED else ''}"
        shown = ", ".join(list(texts)[:_NAMED])
        are = "is a double" if len(texts) == 1 else "are doubles"
        yield (
            f"{where}: {shown} {are} in C++, and what is combined with a double is computed in double, however "
            f"narrow its type: write T({next(iter(texts))}), with T the type it should have"
        )


# -- parameters ------------------------------------------------------------------------------------------


def _unused(kernel: Kernel, sizes: Sizes, space: SearchSpace, chosen: Sequence[Configuration]) -> Iterator[str]:
    """Name the parameters that change nothing a configuration consists of."""
    used = {argument.precision for argument in kernel.arguments}
    used.update(*(constraint.names for constraint in space.constraints))
    used.update(*(Expression(str(axis)).names for axis in (*kernel.grid, *kernel.block, kernel.shared_bytes)))
    for parameter in kernel.parameters:
        if parameter.name in used or parameter.kind == "build" or len(parameter.values) == 1:
            continue
        if chosen and not any(_changes(kernel, sizes, parameter, configuration) for configuration in chosen):
            yield (
                f"parameter {parameter.name!r} of kernel {kernel.name} changes nothing: for all its "
                f"{len(parameter.values)} values the template gives the same source, and neither grid nor block nor a "
                "constraint uses it; use it or remove it"
            )


def _changes(kernel: Kernel, sizes: Sizes, parameter: Parameter, configuration: Configuration) -> bool:
    """Whether the source depends on a parameter where the others are as in a configuration; also if it may."""
    try:
        bodies = {
            render_body(kernel, Configuration({**configuration, parameter.name: value}), sizes)
            for value in parameter.values
        }
    except MptuneError:
        return True
    return len(bodies) > 1
