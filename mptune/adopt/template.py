"""The template of a kernel: the program's own text, with a parameter wherever it writes a floating-point type."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mptune.adopt.classes import Literal, TypeClasses, TypeSlot
from mptune.adopt.parsing import Edits, Extent
from mptune.adopt.reading import Kernel, Program
from mptune.reserved import why_reserved

__all__ = ["POLICY", "Template", "template"]

#: The parameter that says how mathematical functions are computed.
POLICY: Final = "policy"
#: Around what is an expression of the template, until the program's own braces are escaped.
_OPEN, _CLOSE = "\x01", "\x02"
#: What the program's text has that would mean something in a template.
_BRACES: Final = re.compile(r"\{(?=[{%#])|\}(?=\})|%(?=\})|#(?=\})")
_WORD: Final = re.compile(r"(?<![\w.])(?<!->)([A-Za-z_]\w*)")
#: Functions that have policies; of the others there is one, in ``mp`` too.
_WITH_POLICY: Final = frozenset(
    "exp exp2 log log2 log10 sin cos tan asin acos atan sinh cosh tanh sqrt rsqrt cbrt erf erfc pow atan2 hypot".split()
)
#: What the prelude calls otherwise.
_CALLED: Final = {"abs": "fabs", "fmin": "min", "fmax": "max"}
_WIDTH: Final = 110


@dataclass(frozen=True, slots=True)
class Template:
    """A kernel's template.

    Attributes:
        function: the name of its function, which is another one where the prelude has the kernel's.
        text: all of it.
        parameters: the precision parameters in it.
        has_policy: whether it calls mathematical functions by policy.
    """

    function: str
    text: str
    parameters: frozenset[str]
    has_policy: bool


def template(
    program: Program,
    kernel: Kernel,
    classes: TypeClasses,
    parameter_of: Mapping[str, str],
    offsets: Iterable[str] = (),
) -> Template:
    """Return the template of a kernel.

    Args:
        program: that it is of.
        kernel: which one.
        classes: the program's.
        parameter_of: the precision parameter of each class that has one, by the class's name.
        offsets: its pointers that are not always at the start of a buffer: ``NAME_offset`` says where.
    """
    pieces = [*(need.extent for need in kernel.needs), kernel.extent]
    edits = Edits(program.files)
    parameters = _with_types(edits, pieces, classes, parameter_of)
    has_policy = _with_functions(edits, pieces, classes)
    for literal in classes.literals:
        if _is_in(literal.extent, pieces):
            edits.replace(literal.extent, _number(literal))
    function = f"{kernel.identifier}_kernel" if why_reserved(kernel.identifier) else kernel.identifier
    passed = [edits.text(parameter.extent) for parameter in kernel.parameters]
    passed += [f"long long {name}_offset" for name in offsets]
    shown = ", ".join(passed)
    if len(shown) > _WIDTH - 40:
        shown = "\n    " + ",\n    ".join(passed)
    body = edits.text(kernel.body).removeprefix("{")
    for name in offsets:
        body = f"\n    {name} += {name}_offset;{body}"
    parts = [
        *(edits.text(need.extent).rstrip() for need in kernel.needs),
        *(_argument(name, value) for name, value in kernel.arguments.items()),
        f'extern "C" __global__ void {function}({shown}) {{{body}',
    ]
    text = _without_clashes("\n\n".join(parts), [need.name for need in kernel.needs])
    text = f"// {kernel.label}, adopted from {kernel.extent}\n\n{_escaped(text)}\n"
    return Template(function, text, frozenset(parameters), has_policy)


def _is_in(extent: Extent, pieces: Iterable[Extent]) -> bool:
    return any(extent in piece for piece in pieces)


def _with_types(
    edits: Edits, pieces: Iterable[Extent], classes: TypeClasses, parameter_of: Mapping[str, str]
) -> set[str]:
    """Replace the types in some pieces of the text, and return the parameters that stand for them."""
    used = set()
    for each in classes.classes:
        if each.name not in parameter_of:
            continue
        is_shared = any(member.is_pointer for member in each.members)
        for slot in each.slots:
            if _is_in(slot.extent, pieces):
                members = [member for member in each.members if member.slot == slot]
                is_local = not is_shared and bool(members) and all(member.kind == "local" for member in members)
                edits.replace(slot.extent, _type(slot, f"{_OPEN}{parameter_of[each.name]}{_CLOSE}", is_local))
                used.add(parameter_of[each.name])
    return used


def _type(slot: TypeSlot, parameter: str, is_local: bool) -> str:
    if slot.components > 1:
        return f"mp::vec{slot.components}<{parameter}>"
    return f"local<{parameter}>" if is_local else parameter


def _with_functions(edits: Edits, pieces: Iterable[Extent], classes: TypeClasses) -> bool:
    """Replace the calls of mathematical functions in some pieces of the text, and return whether one has a policy."""
    has_policy = False
    for call in classes.calls:
        if _is_in(call.extent, pieces):
            policy = f"<{_OPEN}{POLICY}{_CLOSE}>" if call.name in _WITH_POLICY else ""
            edits.replace(call.extent, f"mp::{_CALLED.get(call.name, call.name)}{policy}")
            has_policy = has_policy or bool(policy)
    return has_policy


def _number(literal: Literal) -> str:
    """Return a literal that takes the type of what it meets."""
    if literal.text.isidentifier():
        return f"mp::number({literal.text})"
    suffixes = "lL" if literal.text[:2] in ("0x", "0X") else "fFlL"
    return f"{literal.text.rstrip(suffixes)}_num"


def _argument(name: str, value: str) -> str:
    """Return the text that makes a template's argument known."""
    is_number = re.fullmatch(r"[-+]?\d\w*|true|false|'.*'", value) is not None
    return f"constexpr auto {name} = {value};" if is_number else f"using {name} = {value};"


def _without_clashes(text: str, names: Iterable[str]) -> str:
    """Return the text with those of its own names changed that the prelude has, too."""
    clashing = {name: f"{name}_" for name in names if name.isidentifier() and why_reserved(name)}
    return _WORD.sub(lambda found: clashing.get(found[1], found[1]), text) if clashing else text


def _escaped(text: str) -> str:
    """Return the text as a template that renders to it."""
    return _BRACES.sub(lambda found: f"{found[0]} ", text).replace(_OPEN, "{{ ").replace(_CLOSE, " }}")
