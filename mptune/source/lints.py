"""Static checks of a kernel's template."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from mptune.cpp.literals import widening_literals
from mptune.errors import EmptySpaceError, MptuneError
from mptune.kernel import Kernel, Sizes
from mptune.source.dialect import cite, comments_blanked, kernel_parameters
from mptune.source.render import render_body, template_lines
from mptune.space.configuration import Configuration
from mptune.space.expressions import Expression
from mptune.space.parameters import Parameter, uniform_types
from mptune.space.search_space import SearchSpace

#: Most lines of a template, and most literals, in one warning.
_NAMED: Final = 6


def examples(kernel: Kernel, space: SearchSpace) -> tuple[Configuration, ...]:
    """Return uniform-type configurations that together cover every value of every other parameter."""
    found: list[Configuration] = []
    for types in uniform_types(kernel.parameters).values() or ({},):
        try:
            alike = space.restrict({name: (value,) for name, value in types.items()}, explains=False)
        except EmptySpaceError:
            continue
        found += alike.configurations(alike.covering(np.random.default_rng(0)))
    return tuple(found)


def lints(kernel: Kernel, sizes: Sizes, space: SearchSpace, chosen: Sequence[Configuration]) -> tuple[str, ...]:
    """Return one warning a line about a kernel's template, from the :func:`examples` of a space.

    A configuration that does not render is skipped: its compilation reports the error.
    """
    bodies: list[_Body] = []
    for configuration in chosen:
        with contextlib.suppress(MptuneError):
            lines = template_lines(kernel, configuration, sizes)
            bodies.append((render_body(kernel, configuration, sizes), lines))
    return (*_misordered(kernel, bodies[:1]), *_widening(bodies), *_unused(kernel, sizes, space, chosen))


#: A rendered template, and the origin (template, line) of each of its lines.
_Body = tuple[str, list[tuple[str, int]]]


def _misordered(kernel: Kernel, bodies: Sequence[_Body]) -> Iterator[str]:
    """Compare the order of the function's parameters with the declared one; the types do not show a swap."""
    declared = [argument.name for argument in kernel.passed]
    for body, lines in bodies:
        code = comments_blanked(body)
        places = kernel_parameters(code).get(kernel.function, [])
        found = [re.search(r"(\w+)\s*(?:\[[^\]]*\])?\s*\Z", code[:end]) for _, end in places]
        parameters = [match for match in found if match]
        names = [match[1] for match in parameters]
        if names != declared and sorted(names) == sorted(declared):
            first = next(m.start(1) for m, other in zip(parameters, declared, strict=True) if m[1] != other)
            where = cite(*lines[body.count("\n", 0, first)])
            yield (
                f"{where}: function {kernel.function} takes ({', '.join(names)}), "
                f"but kernel {kernel.name} declares ({', '.join(declared)}): give both the same order"
            )


def _widening(bodies: Sequence[_Body]) -> Iterator[str]:
    places: dict[str, set[int]] = {}
    texts: dict[str, None] = {}
    for body, lines in bodies:
        for literal in widening_literals(body):
            name, line = lines[body.count("\n", 0, literal.start)]
            places.setdefault(name, set()).add(line)
            texts[literal.text] = None
    for name, numbers in places.items():
        where = f"{cite(name, *sorted(numbers)[:_NAMED])}{', …' if len(numbers) > _NAMED else ''}"
        are = "is a double" if len(texts) == 1 else "are doubles"
        yield (
            f"{where}: {', '.join(list(texts)[:_NAMED])} {are} in C++, so operations with narrower types are computed "
            f"in double: write T({next(iter(texts))}), with T the intended type"
        )


def _unused(kernel: Kernel, sizes: Sizes, space: SearchSpace, chosen: Sequence[Configuration]) -> Iterator[str]:
    used = {argument.precision for argument in kernel.arguments}
    used.update(*(constraint.names for constraint in space.constraints))
    used.update(*(Expression(text).names for text in kernel.expressions()))
    for parameter in kernel.parameters:
        if parameter.name in used or parameter.kind == "build" or len(parameter.values) == 1:
            continue
        if chosen and not any(_changes(kernel, sizes, parameter, configuration) for configuration in chosen):
            yield (
                f"parameter {parameter.name!r} of kernel {kernel.name} changes nothing: all {len(parameter.values)} "
                "values give the same source, and neither grid nor block nor a constraint uses it; use it or remove it"
            )


def _changes(kernel: Kernel, sizes: Sizes, parameter: Parameter, configuration: Configuration) -> bool:
    """Whether the source or the launch depends on a parameter, the others fixed; True if a value does not render."""
    try:
        others = [Configuration({**configuration, parameter.name: value}) for value in parameter.values]
        made = {(render_body(kernel, each, sizes), kernel.launch_shape(each, sizes)) for each in others}
    except MptuneError:
        return True
    return len(made) > 1
