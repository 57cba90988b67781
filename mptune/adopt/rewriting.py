"""What CUDA adds to the syntax of C++, put into the words of the layer (``files/layer``).

This goes by the text, not by what clang makes of it: launches in macros and templates are rewritten where they stand,
and a program that clang cannot read may still run. No line moves, so that a compiler's messages fit the original.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_BLANKED: Final = re.compile(
    r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])*\'', re.DOTALL
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_CALL: Final = re.compile(r"([A-Za-z_]\w*)\s*\(")
_NO_FUNCTIONS: Final = frozenset(
    ("if", "for", "while", "switch", "catch", "return", "sizeof", "alignof", "decltype", "defined", "noexcept")
)
#: What may stand between the parameters of a function and its body.
_BEFORE_BODY: Final = re.compile(r"\s*(?:const|noexcept|override|final|volatile|__restrict__|\s)*(?::(?!:)[^;{}]*)?\{")
_MACRO: Final = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n\\]|\\.|\\\n)*)", re.MULTILINE)
#: Functions in which threads wait for each other.
WAITS: Final = re.compile(
    r"__sync(?:threads|warp)\w*|__shfl\w*|__ballot\w*|__any(?:_sync)?|__all(?:_sync)?|__activemask|__match_\w+"
    r"|__reduce_\w+|__barrier_sync\w*|TempStorage|this_thread_block|tiled_partition"
)
_COUNTS: Final = re.compile(r"atomic[A-Z]\w*|__atomic_\w+")
_DYNAMIC_SHARED: Final = re.compile(
    r"\b(?:extern\b[^;{}()=]*?\b__shared__|__shared__\b[^;{}()=]*?\bextern)\b"
    r"(?:[^;{}()=]|__align__\s*\([^()]*\)|alignas\s*\([^()]*\)|__attribute__\s*\(\([^;]*?\)\))*?;"
)
_DECORATION: Final = re.compile(
    r"\b(?:extern|__shared__|__align__\s*\([^()]*\)|alignas\s*\([^()]*\)|__attribute__\s*\(\(.*?\)\)(?!\)))", re.DOTALL
)
#: How HIP declares shared memory whose size a launch gives.
HIP_SHARED: Final = re.compile(r"\bHIP_DYNAMIC_SHARED\s*\(([^;]*),\s*(\w+)\s*\)")
_NAMESPACES: Final = re.compile(r"^\s*(?:::\s*)?(?:\w+\s*::\s*)+|^\s*::\s*")
_HIP_LAUNCH: Final = re.compile(r"\bhipLaunchKernelGGL\s*\(")
_BY_ADDRESS: Final = re.compile(r"\b(?:cuda|hip)LaunchKernel\s*\(")
#: Casts and parentheses around a kernel's name whose address is passed.
_ADDRESS: Final = re.compile(r"^\(\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*\)|^&|^reinterpret_cast\s*<[^<>]*>(?=\()")
_DEVICE_CODE: Final = re.compile(r"__global__|__device__|<<<|hipLaunchKernelGGL")


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What a launch has to know of a kernel.

    Attributes:
        has_address: whether its name alone says which function it is; not if it is a template or overloaded.
        waits: whether its threads wait for each other.
        counts: whether there are atomic functions in it.
        is_in_phases: whether one thread does the work of a block (:mod:`mptune.adopt.blocks`).
        is_global: whether it is in no namespace: ``::norm`` is not ``std::norm``.
    """

    has_address: bool
    waits: bool
    counts: bool
    is_in_phases: bool = False
    is_global: bool = False


#: Of what is launched through a pointer.
_UNKNOWN: Final = KernelFacts(has_address=False, waits=True, counts=True)


@functools.lru_cache(maxsize=256)
def blanked(text: str) -> str:
    """Return a text with comments, strings and characters blanked, every other character at its place."""
    return _BLANKED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def without_definitions(text: str, names: Iterable[str]) -> str:
    """Return a text without its definitions of macros that the command line gives, every other byte at its place.

    A compiler would take the program's value and warn of it. What has parameters, or is undefined again, stays.
    """
    for found in _definitions(text, names):
        line = text[found.start() : found.end()]
        blank = re.sub(r"[^\n]", lambda each: " " * len(each[0].encode("utf-8", "surrogateescape")), line)
        text = text[: found.start()] + blank + text[found.end() :]
    return text


def values_in(text: str, names: Iterable[str]) -> dict[str, str]:
    """Return the values that a text's definitions give macros; parameters, or an #undef, rule a macro out."""
    found = {each[1]: each[2].strip() for each in _definitions(text, names)}
    return {name: value for name, value in found.items() if value}


def with_values(text: str, values: Mapping[str, str]) -> str:
    """Return a text whose definitions of macros have these values; comments behind them stay."""
    for found in reversed(_definitions(text, values)):
        if old := found[2].strip():
            start = found.start(2) + found[2].index(old)
            text = text[:start] + values[found[1]] + text[start + len(old) :]
    return text


def _definitions(text: str, names: Iterable[str]) -> list[re.Match[str]]:
    """Return the definitions of macros without parameters that are not undefined again, as matches without comments."""
    known = set(names)
    if not known:
        return []
    code = blanked(text)
    known -= set(re.findall(r"^[ \t]*#[ \t]*undef[ \t]+(\w+)", code, re.MULTILINE))
    return [each for each in _MACRO.finditer(code) if each[1] in known and not each[2].startswith("(")]


def has_device_code(text: str) -> bool:
    """Whether a source needs the language extensions of CUDA."""
    return _DEVICE_CODE.search(blanked(text)) is not None


def facts_of(texts: Iterable[str]) -> dict[str, KernelFacts]:
    """Find the kernels in the files of a program, by name.

    What a kernel uses is found by names, so that of two functions of one name it is assumed to use both.
    """
    uses: dict[str, set[str]] = {}
    templates: set[str] = set()
    definitions: dict[str, int] = {}
    in_namespaces: set[str] = set()
    parameters: dict[str, set[int]] = {}

    def note(name: str, body: str) -> None:
        uses.setdefault(name, set()).update(_NAME.findall(body))

    for text in map(blanked, texts):
        for macro in _MACRO.finditer(text):
            note(macro[1], macro[2])
        for call in _CALL.finditer(text):
            if call[1] in _NO_FUNCTIONS:
                continue
            end = closed(text, call.end() - 1)
            body = _BEFORE_BODY.match(text, end) if end else None
            if body:
                note(call[1], text[body.end() - 1 : closed(text, body.end() - 1) or len(text)])
        for start in re.finditer(r"\b__global__\b", text):
            name, end = _declared(text, start.end())
            if name:
                definitions.setdefault(name, 0)
                definitions[name] += text[end:].lstrip()[:1] == "{"
                opening = text.index("(", text.index(name, start.end()))
                parameters.setdefault(name, set()).add(len(commas(text, opening + 1)))
                if _is_in_braces(text, start.start(), r"\bextern\s*$"):
                    in_namespaces.add(name)
                if re.search(
                    r"\btemplate\b", re.split(r"[;{}]", text[max(0, start.start() - 2000) : start.start()])[-1]
                ):
                    templates.add(name)
    facts = {}
    for name, count in definitions.items():
        reached, waiting = {name}, [name]
        while waiting:
            found = uses.get(waiting.pop(), set()) & uses.keys() - reached
            reached |= found
            waiting += found
        names = set().union(*(uses.get(used, set()) for used in reached))
        # (phases name the shuffles that they stand for)
        is_in_phases = not uses.get(name, set()).isdisjoint(("MPTUNE_PHASE", "MPTUNE_TILES"))
        facts[name] = KernelFacts(
            has_address=name not in templates and count <= 1 and len(parameters[name]) == 1,
            waits=not is_in_phases and any(map(WAITS.search, names)),
            counts=any(map(_COUNTS.search, names)),
            is_in_phases=is_in_phases,
            is_global=name not in in_namespaces,
        )
    return facts


def rewritten(text: str, kernels: Mapping[str, KernelFacts]) -> str:
    """Return a file of a program as C++ that includes the layer's headers.

    Args:
        text: the file.
        kernels: of the whole program, by name.
    """
    code = blanked(text)
    changes = _launches(text, code, kernels, _CALLED)
    for found in _DYNAMIC_SHARED.finditer(code):
        declared = re.fullmatch(
            r"(.*?)(\w+)\s*\[\s*\]\s*;", _DECORATION.sub("", text[found.start() : found.end()]), re.DOTALL
        )
        if declared:
            changes.append((found.start(), found.end(), _dynamic(declared[1], declared[2], code, found.start())))
            # The address of an array outside of functions, which is an object of the layer: (double*)+shared.
            cast = rf"(?:\breinterpret_cast\s*<[^;{{}}()]*>\s*\(|\*\s*\))\s*(?={declared[2]}\b)"
            changes += [(at.end(), at.end(), "+") for at in re.finditer(cast, code)]
    changes += [
        (found.start(), found.end(), _dynamic(found[1], found[2], code, found.start()))
        for found in HIP_SHARED.finditer(code)
    ]
    for pattern, new in (
        (r"\bstatic\s+(?=__shared__\b)", ""),
        (r"(?<=\b__shared__)\s+static\b", ""),
        # The C++ library has attributes of this name.
        (r"\b__noinline__\b", "__attribute__((noinline))"),
    ):
        changes += [(found.start(), found.end(), new) for found in re.finditer(pattern, code)]
    return _changed(text, changes)


def with_recorded_launches(text: str, kernels: Mapping[str, KernelFacts]) -> str:
    """Return a file of a program as it is for nvcc, but for its launches, which go through the layer.

    Args:
        text: the file.
        kernels: of the whole program, by name.
    """
    return _changed(text, _launches(text, blanked(text), kernels, _LAUNCHED))


def _changed(text: str, changes: Iterable[tuple[int, int, str]]) -> str:
    """Return a text with parts of it replaced, from a place to another; no line moves."""
    parts, done = [], 0
    for start, end, new in sorted(changes):
        if start >= done:
            lines = text.count("\n", start, end) - new.count("\n")
            parts += [text[done:start], new, "\n" * lines]
            done = end
    return "".join(parts) + text[done:]


def _launches(text: str, code: str, kernels: Mapping[str, KernelFacts], run: str) -> list[tuple[int, int, str]]:
    """Return what stands for the launches in a file, and from where to where.

    Args:
        text: the file.
        code: the same, blanked.
        kernels: of the whole program, by name.
        run: what runs a kernel that has no address.
    """
    changes: list[tuple[int, int, str]] = []
    for found in re.finditer("<<<", code):
        start = _callee(code, found.start())
        end = _configuration(code, found.end())
        if start is None or end is None:
            continue
        head, tail = _launch(text[start : found.start()].strip(), kernels, run)
        changes += [(start, found.end(), head), (end, end + 3, tail)]
    for found in _HIP_LAUNCH.finditer(code):
        cuts = commas(code, found.end())
        if len(cuts) < 5:
            continue
        name = re.sub(r"^HIP_KERNEL_NAME\s*\((.*)\)$", r"\1", text[found.end() : cuts[0]].strip(), flags=re.DOTALL)
        plain = name.removeprefix("(").removesuffix(")") if name.startswith("(") else name
        head, tail = _launch(plain, kernels, run)
        # hipLaunchKernelGGL(k, grid, block, shared, stream, arguments...): its last parenthesis closes the call.
        has_arguments = text[cuts[4]] == ","
        changes += [(found.start(), cuts[0] + 1, head), (cuts[4], cuts[4] + has_arguments, tail + "(")]
    for found in _BY_ADDRESS.finditer(code):
        cuts = commas(code, found.end())
        given = [text[start + 1 : end].strip() for start, end in itertools.pairwise((found.end() - 1, *cuts))]
        if len(given) >= 4:  # cudaLaunchKernel(k, grid, block, arguments, shared, stream)
            head, tail = _launch(kernel_at(given[0]), kernels, run, is_address=True)
            launch = f"({head}{', '.join((*given[1:3], *given[4:]))}{tail}.packed({given[3]}), cudaPeekAtLastError())"
            changes.append((found.start(), cuts[-1] + 1, launch))
    return changes


def kernel_at(address: str) -> str:
    """Return the name of a kernel, with template arguments, from the text of its address: ``(void*)k<double>``."""
    before = ""
    while address != before:
        before, address = address, _ADDRESS.sub("", address.strip())
        if address.startswith("(") and closed(address, 0) == len(address):
            address = address[1:-1]
    return address


#: How a kernel without an address is run: on this machine's processor, and on a GPU.
_CALLED: Final = "[=](auto&... mptune_arguments) {{ {}(mptune_arguments...); }}"
_LAUNCHED: Final = (
    "[=](const ::mptune_layer::extents& mptune_to, auto&... mptune_arguments) {{ "
    "{}<<<mptune_to.grid, mptune_to.block, mptune_to.shared, mptune_to.stream>>>(mptune_arguments...); }}"
)


def _launch(name: str, kernels: Mapping[str, KernelFacts], run: str, *, is_address: bool = False) -> tuple[str, str]:
    """Return what stands for ``name<<<`` and for ``>>>``; the name is an address where the program uses it as one."""
    plain = re.split(r"<", name)[0].split("::")[-1].strip()
    facts = kernels.get(plain, _UNKNOWN)
    bits = facts.waits | facts.counts << 1 | facts.is_in_phases << 2
    site = f"{{{_label(name)}, __FILE__, __LINE__}}"
    if facts.has_address or is_address:
        address = f"::mptune_layer::kernel({'&::' if facts.is_global and name == plain else '&'}{name})"
        return f"::mptune_layer::launcher<{address}, {bits}>{{{site}, ::mptune_layer::extents(", ")}"
    return f"::mptune_layer::calling<{bits}>({run.format(name)}, {site}, ::mptune_layer::extents(", "))"


def _label(name: str) -> str:
    """Return the expression for what a record calls a kernel: its template arguments are known to the compiler.

    It is called without the namespace it is in.
    """
    name = _NAMESPACES.sub("", name)
    start = name.find("<")
    if start < 0 or not name.endswith(">"):
        called = " ".join(name.split()).replace("\\", "\\\\").replace('"', '\\"')
        return f'"{called}"'
    inside = name[start + 1 : -1]
    cuts = [-1, *commas(f"{blanked(inside)})", 0)]
    arguments = [inside[a + 1 : b].strip() for a, b in itertools.pairwise(cuts)]
    spelled = ", ".join(f"::mptune_layer::spelled<{argument}>()" for argument in arguments if argument)
    return f'::mptune_layer::label("{name[:start].strip()}", {{{spelled}}})' if spelled else f'"{name[:start].strip()}"'


def _dynamic(type_text: str, name: str, code: str, at: int) -> str:
    """Return the declaration of shared memory whose size a launch gives."""
    element = " ".join(type_text.split())
    if _is_in_braces(code, at, r"\bnamespace\b[\s\w:]*$|\bextern\s*$"):
        return f"{element}* const {name} = static_cast<{element}*>(::mptune_host::dynamic_shared);"
    return f"static const ::mptune_layer::dynamic_array<{element}> {name}{{}};"


def _is_in_braces(code: str, at: int, but: str) -> bool:
    """Whether a place is within braces other than those that follow a pattern."""
    opened: list[bool] = []
    for brace in re.finditer(r"[{}]", code[:at]):
        if brace[0] == "{":
            before = code[max(0, brace.start() - 200) : brace.start()]
            opened.append(re.search(but, before) is None)
        elif opened:
            opened.pop()
    return any(opened)


def closed(code: str, opening: int) -> int | None:
    """Return the place after the bracket that closes the one at a place."""
    depth = 0
    pattern = re.compile(r"[{}]" if code[opening] == "{" else r"[()]")
    for bracket in pattern.finditer(code, opening):
        depth += 1 if bracket[0] in "({" else -1
        if depth == 0:
            return bracket.end()
    return None


def _declared(code: str, at: int) -> tuple[str, int]:
    """Return the name of the function whose declaration goes on at a place, and where its parameters end."""
    while (call := _CALL.search(code, at)) is not None:
        end = closed(code, call.end() - 1)
        if end is None or ";" in code[at : call.start()]:
            return "", at
        if not call[1].startswith("__"):
            return call[1], end
        at = end
    return "", at


def _callee(code: str, end: int) -> int | None:
    """Return where the name begins, with its template arguments, that ends before a place."""
    end = len(code[:end].rstrip())
    opening = end
    if code[:end].endswith(")"):  # (*kernel)<<<...>>>
        return next((at for at in range(end - 1, -1, -1) if code[at] == "(" and closed(code, at) == end), None)
    if code[:end].endswith(">"):
        inside = range(end - 2, max(end - 2000, 0), -1)
        opening = next((at for at in inside if code[at] == "<" and _closing_angle(code, at) == end - 1), end)
    name = re.search(r"[\w:]+\s*$", code[:opening])
    return name.start() if name else None


def _outside(code: str, at: int, pattern: str) -> Iterator[re.Match[str]]:
    """Give the matches from a place on that are in no brackets there, and last the bracket that closes those around."""
    depth = 0
    for found in re.compile(rf"[()\[\]{{}}]|{pattern}").finditer(code, at):
        if depth == 0 and found[0] not in ("(", "[", "{"):
            yield found
        depth += (found[0] in ("(", "[", "{")) - (found[0] in (")", "]", "}"))
        if depth < 0:
            return


def _configuration(code: str, at: int) -> int | None:
    """Return where the ``>>>`` begins that ends a launch's configuration."""
    return next((found.start() for found in _outside(code, at, ">>>") if found[0] == ">>>"), None)


def commas(code: str, at: int) -> list[int]:
    """Return the commas between the arguments of a call or a template, and its end."""
    found: list[int] = []
    for each in _outside(code, at, "[,<]"):
        if each.start() >= at:
            at = each.start()
            if each[0] == "<":
                at = _closing_angle(code, at) or at
            else:
                found.append(at)
    return found if found and code[found[-1]] in ")]}" else []


def _closing_angle(code: str, at: int) -> int | None:
    """Return where the template arguments end that may begin at a ``<``; None if it is a comparison."""
    if re.search(r"\w\s*$", code[:at][-80:]) is None:
        return None
    depth = inside = 0
    for found in re.compile(r"[<>();{}]|&&|\|\|").finditer(code, at):
        if found[0] in "()":
            inside += 1 if found[0] == "(" else -1
        elif inside == 0 and found[0] in "<>":
            depth += 1 if found[0] == "<" else -1
            if depth == 0:
                return found.start()
        if inside < 0 or found[0] in (";", "{", "}", "&&", "||"):
            return None
    return None
