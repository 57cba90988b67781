"""Declarations and literals in the form that every compiler accepts, and assertions of the arguments' types."""

from __future__ import annotations

import math
import re
from typing import Final

from mptune.errors import TemplateError
from mptune.kernel import Argument, Kernel, Role, Sizes
from mptune.space.configuration import Configuration

#: The head of a kernel up to the parenthesis before its parameters; group 1 is its name.
KERNEL_FUNCTION: Final = re.compile(r"__global__\b[^;{}]*?\b(?!__launch_bounds__)(\w+)\s*\(")

_ATTRIBUTES: Final = r"(?:(?:__align__|alignas|__attribute__)\s*\([^;]*?\)\s*)*"
_DYNAMIC_SHARED: Final = re.compile(
    rf"\bextern\s+{_ATTRIBUTES}__shared__\s+{_ATTRIBUTES}([A-Za-z_:][^;=\[\]{{}}]*?)\s*\b(\w+)\s*\[\s*\]\s*;"
)


#: The include of Kernel Float.
KERNEL_FLOAT: Final = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"](?:\w+/)*kernel_float\.h(?:pp)?[>\"]", re.MULTILINE)
_VECTOR_POINTER: Final = re.compile(r"\s*(?:const\s+)?((?:\w+::)?vec_ptr\s*<(.*)>)\s*(?:const\s+)?(\w+)\s*", re.DOTALL)

#: A literal of the prelude, ``0.5_num``; group 1 is its number.
_LITERAL: Final = re.compile(r"(?<![\w.])(\.?\d(?:[eEpP][+-]|'\w|[\w.])*?)_num\b")
_DIGITS_OF_INTEGERS: Final = 18  #: decimal digits that every 64-bit integer type holds


def portable(body: str, where: str) -> str:
    """Replace what only some compilers read as it is meant; every line keeps its number.

    ``extern __shared__ T name[];`` becomes the prelude's ``SHARED_DYNAMIC(T, name);``. ``0.1_num`` becomes
    ``mp::literal(0.1)``: an operator of literals would get a long double, whose double may be rounded twice. An include
    of ``kernel_float.h`` becomes a use of the prelude's library of that name; a kernel's parameter ``vec_ptr<T, N> x``
    becomes a pointer, of which the kernel makes it. Messages call the source ``where``.
    """
    if KERNEL_FLOAT.search(body):
        body = _with_pointers(KERNEL_FLOAT.sub("USES_LIBRARY(kernel_float);", body))

    def replace(match: re.Match[str]) -> str:
        before = re.sub(r'extern\s+"C"\s*\{', "", comments_blanked(body[: match.start()]))
        if before.count("{") <= before.count("}"):
            line = body.count("\n", 0, match.start()) + 1
            raise TemplateError(f"{cite(where, line)}: declare extern __shared__ {match[2]}[] inside its function")
        # The macro takes a type without a comma.
        name = f"mptune_type_of_{match[2]}"
        return f"using {name} = {match[1]}; SHARED_DYNAMIC({name}, {match[2]});" + "\n" * match[0].count("\n")

    return _LITERAL.sub(_as_double, _DYNAMIC_SHARED.sub(replace, body))


def _as_double(literal: re.Match[str]) -> str:
    number = literal[1]
    digits = number.replace("'", "")
    is_too_long = digits.isdigit() and len(digits) > _DIGITS_OF_INTEGERS
    return f"mp::literal({number}.0)" if is_too_long else f"mp::literal({number})"


def _with_pointers(body: str) -> str:
    """Make the parameters of kernels that are ``vec_ptr`` plain pointers: other parameters no backend can pass."""
    code = comments_blanked(body)
    for places in reversed(kernel_parameters(code).values()):
        found = [(each, match) for each in places if (match := _VECTOR_POINTER.fullmatch(code, *each))]
        start = code.find("{", places[-1][1])
        if not found or ";" in code[places[-1][1] : start]:
            continue
        made = "".join(f" {match[1]} {match[3]}(mptune_{match[3]});" for _, match in found)
        body = f"{body[: start + 1]}{' '.join(made.split())}{body[start + 1 :]}"
        for (first, last), match in reversed(found):
            element = match[2].split(",")[0 if match[2].count(",") < 2 else -1].strip()
            lines = "\n" * body.count("\n", first, last)
            body = f"{body[:first]}{lines}{element} *mptune_{match[3]}{body[last:]}"
    return body


def cite(label: str, *lines: int) -> str:
    """Cite lines in a message: ``own.cu.j2:3``, or ``template of kernel own, line 3`` for an inline template."""
    numbers = ", ".join(map(str, lines))
    return f"{label}, line{'s' if len(lines) > 1 else ''} {numbers}" if " " in label else f"{label}:{numbers}"


def comments_blanked(text: str) -> str:
    """Return C++ source with each comment replaced by as many blanks, so that offsets and lines stay the same."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=re.DOTALL)


def parameters_at(code: str, start: int) -> list[tuple[int, int]]:
    """Return the spans of a function's parameters, from ``start`` on, in code without comments.

    A function without parameters has one blank span.
    """
    found, depth, first = [], 1, start
    for end in range(start, len(code)):
        depth += (code[end] in "(<[{") - (code[end] in ")>]}")
        if depth == 0 or (depth == 1 and code[end] == ","):
            found.append((first, end))
            first = end + 1
        if depth == 0:
            return found
    return [*found, (first, len(code))]


def kernel_parameters(code: str) -> dict[str, list[tuple[int, int]]]:
    """Return the spans of each kernel's parameters by its name, in code without comments."""
    return {head[1]: parameters_at(code, head.end()) for head in KERNEL_FUNCTION.finditer(code)}


# -- the types of the arguments ------------------------------------------------------------------

_SIGNED: Final = {"int8": "signed char", "int16": "short", "int32": "int", "int64": "long long"}
#: The types of integers in C++, by NumPy's names.
INTEGERS: Final = _SIGNED | {f"u{n}": f"unsigned {cpp.removeprefix('signed ')}" for n, cpp in _SIGNED.items()}


def declared_types(kernel: Kernel, configuration: Configuration, sizes: Sizes) -> str:
    """Return assertions that the function's parameters have the types of the passed arguments (``declared.hpp``).

    Otherwise a kernel with a ``float*`` parameter and an fp64 buffer would run and read or write the wrong elements.
    """
    lines = [f'#line 1 "arguments of {kernel.name}"', ""]
    holds = "begins" if callable(kernel.template) else "holds"  # a user's own array may be larger than what it gets
    for constant in (argument for argument in kernel.arguments if argument.is_constant):
        declared, said = _type_of(kernel, constant, configuration)
        elements = math.prod(kernel.shape_of(constant, sizes))
        lines.append(
            f"static_assert(mptune_declared::{holds}<{declared}, {elements}, decltype({constant.name})>, "
            f'"argument {constant.name} of kernel {kernel.name} is {elements} elements passed as {said}; '
            'the __constant__ array of that name is of another size or type");'
        )
    for i, argument in enumerate(kernel.passed):
        declared, said = _type_of(kernel, argument, configuration)
        buffer = "false" if argument.role is Role.SCALAR else "true"
        lines.append(
            f"static_assert(mptune_declared::fits<{buffer}, {declared}, "
            f"typename mptune_declared::parameter<{i}, decltype(&{kernel.function})>::type>, "
            f'"argument {argument.name} of kernel {kernel.name} is passed as {said}; '
            f'parameter {i + 1} of the function has another type");'
        )
    return "\n".join(lines)


def _type_of(kernel: Kernel, argument: Argument, configuration: Configuration) -> tuple[str, str]:
    chosen = kernel.precision_of(argument, configuration)
    if chosen is not None:
        return chosen.cpp, chosen.name
    return INTEGERS[str(argument.dtype)], str(argument.dtype)
