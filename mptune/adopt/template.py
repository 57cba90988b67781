"""The template of a kernel: the program's own text, with a parameter wherever it writes a floating-point type."""

from __future__ import annotations

import dataclasses
import re
import string
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mptune.adopt.blocks import UNROLL, Split, phases_of_templates, split, tiles_of_templates
from mptune.adopt.classes import Choice, Literal, TypeClass, TypeClasses, TypeSlot
from mptune.adopt.parsing import FUNCTIONS, Edits, Extent, TemplateArgument
from mptune.adopt.reading import Declaration, Kernel, Parameter, Program, TemplateCall
from mptune.adopt.rewriting import HIP_SHARED, blanked, commas
from mptune.adopt.running import is_of_hip
from mptune.cpp.prelude import FUNCTIONS_OF_CUDA, prelude_names, short_intrinsics, why_reserved
from mptune.cpp.tokens import KEYWORDS
from mptune.precision import ARITHMETIC

#: The parameter that says how mathematical functions are computed.
POLICY: Final = "policy"
#: Around what is an expression of the template, until the program's own braces are escaped.
_OPEN, _CLOSE = "\x01", "\x02"
#: What the program's text has that would mean something in a template.
_BRACES: Final = re.compile(r"\{(?=[{%#])|\}(?=\})|%(?=\})|#(?=\})")
#: Texts and characters, comments, and what is between them.
_PIECES: Final = re.compile(
    r"""R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'|(?:(?!//|/\*|R")[^"'])+|.""",
    re.DOTALL,
)
_WORD: Final = re.compile(r"(?<![\w.])(?<!->)([A-Za-z_]\w*)")
#: Functions that have policies; of the others there is one, in ``mp`` too.
_WITH_POLICY: Final = frozenset(
    (
        *("exp", "exp2", "log", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"),
        *("tanh", "sqrt", "rsqrt", "cbrt", "erf", "erfc", "pow", "atan2", "hypot", "sincos", "sincospi", "norm3d"),
    )
)
#: Functions that are in ``mp`` alone, where plain names are those of C.
_IN_MP: Final = frozenset(["fdivide", "ldexp", "llrint", "llround", "lrint", "lround", "modf", "saturate", "scalbn"])
_INDICES: Final = ("ThreadIdx", "BlockIdx", "BlockDim", "GridDim")
#: Atomic functions whose scope is said, which are those of a device here, and those that HIP calls unsafe.
SCOPED: Final = re.compile(r"\b(?:a|unsafeA)(tomic[A-Z][A-Za-z]*)(?:_(?:block|system))?\b")
#: What templates call otherwise than CUDA, HIP and the C++ library, and the numbers of lines of loops that are cut out.
_OTHER_WORDS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (
        re.compile(
            r"(?:::\s*)?\bstd\s*::\s*(?=(?:min|max|abs|clamp|swap|isnan|isinf|isfinite|numeric_limits|is_same(?:_v)?"
            r"|conditional(?:_t)?|enable_if(?:_t)?|common_type(?:_t)?|remove_reference(?:_t)?"
            r"|decay_t|declval|forward|is_floating_point(?:_v)?|is_integral(?:_v)?|is_arithmetic(?:_v)?)\b)"
        ),
        "mp::",
    ),
    (re.compile(r"\bstd\s*::\s*(?=(?:u?int(?:8|16|32|64|ptr)_t|size_t|ptrdiff_t)\b)"), ""),
    *((re.compile(rf"\bhip{at}_([xyz])\b"), rf"{at[0].lower()}{at[1:]}.\1") for at in _INDICES),
    (SCOPED, r"a\1"),
    (re.compile(r"\bstatic\s+(?=__shared__\b)|(?<=\b__shared__)\s+static\b"), ""),
    (HIP_SHARED, r"extern __shared__ \1 \2[];"),
    (re.compile(r"^[ \t]*#line .*\n", re.MULTILINE), ""),
)
_MADE: Final = re.compile(r"\bmake_(double|float)([234])\b(\s*\(|)")
#: A vector of nothing but literals.
_CONSTANT_VECTOR: Final = re.compile(r"make_(?:double|float)([234])(?=\s*\([\d.,\seEfF+-]*\)$)")
#: What a type class has that a kernel is given.
_DECLARED: Final = ("parameter", "field")
_TEMPLATE: Final = re.compile(r"\btemplate\s*<[^{;()]*?>\s*(?=[\w#])")
_OPENED: Final = re.compile(r"\((?![)*&])")
_CONSTANT: Final = re.compile(r"\bconstexpr\b(?!\s+\w+\s*=)(?=[^(){};=]*\()")
_STRUCTS: Final = ("STRUCT_DECL", "CLASS_DECL", "CLASS_TEMPLATE")
#: The word before a class's name, in what comes before its body.
_CLASS_OF_STRUCT: Final = re.compile(r"\bclass\b(?=[^,<>:]*(?::[^:].*)?$)", re.DOTALL)
#: What headers of C define that no device compiler has.
_CONSTANTS: Final = {
    "M_E": "2.7182818284590452354", "M_LOG2E": "1.4426950408889634074", "M_LOG10E": "0.43429448190325182765",
    "M_LN2": "0.69314718055994530942", "M_LN10": "2.30258509299404568402", "M_PI": "3.14159265358979323846",
    "M_PI_2": "1.57079632679489661923", "M_PI_4": "0.78539816339744830962", "M_1_PI": "0.31830988618379067154",
    "M_2_PI": "0.63661977236758134308", "M_2_SQRTPI": "1.12837916709551257390", "M_SQRT2": "1.41421356237309504880",
    "M_SQRT1_2": "0.70710678118654752440", "DBL_MAX": "1.7976931348623157e308", "DBL_MIN": "2.2250738585072014e-308",
    "DBL_EPSILON": "2.2204460492503131e-16", "FLT_MAX": "3.402823466e38f", "FLT_MIN": "1.175494351e-38f",
    "FLT_EPSILON": "1.192092896e-7f", "INFINITY": "mp::numeric_limits<float>::infinity()", "INT_MAX": "2147483647",
    "INT_MIN": "(-2147483647 - 1)", "UINT_MAX": "4294967295u", "LONG_MAX": "9223372036854775807l",
    "LONG_MIN": "(-9223372036854775807l - 1)",
    "ULONG_MAX": "18446744073709551615ul", "LLONG_MAX": "9223372036854775807ll",
    "LLONG_MIN": "(-9223372036854775807ll - 1)", "ULLONG_MAX": "18446744073709551615ull", "CHAR_BIT": "8",
    "CHAR_MAX": "127", "UCHAR_MAX": "255", "SHRT_MAX": "32767", "USHRT_MAX": "65535", "INT8_MAX": "127",
    "UINT8_MAX": "255", "INT16_MAX": "32767", "UINT16_MAX": "65535", "INT32_MAX": "2147483647",
    "INT32_MIN": "(-2147483647 - 1)", "UINT32_MAX": "4294967295u", "INT64_MAX": "9223372036854775807l",
    "INT64_MIN": "(-9223372036854775807l - 1)", "UINT64_MAX": "18446744073709551615ul",
    "SIZE_MAX": "18446744073709551615ul", "RAND_MAX": "2147483647", "NAN": "mp::numeric_limits<float>::quiet_NaN()",
    **dict.fromkeys(("HUGE_VAL", "CUDART_INF"), "mp::numeric_limits<double>::infinity()"),
    **dict.fromkeys(("HUGE_VALF", "CUDART_INF_F"), "mp::numeric_limits<float>::infinity()"),
    "CUDART_NAN": "mp::numeric_limits<double>::quiet_NaN()",
    "CUDART_NAN_F": "mp::numeric_limits<float>::quiet_NaN()",
    "NULL": "nullptr", "CUDART_PI": "3.1415926535897931", "CUDART_PI_F": "3.141592654f",
}  # fmt: skip
#: CUDA's and HIP's names for types of 16 bits and pairs of them.
_SHORT_TYPES: Final = {
    "__half": "half",
    **dict.fromkeys(("__nv_bfloat16", "nv_bfloat16", "__hip_bfloat16"), "bfloat16"),
    "__half2": "half2",
    **dict.fromkeys(("__nv_bfloat162", "nv_bfloat162", "__hip_bfloat162"), "mp::vec2<bfloat16>"),
}
#: Other names of the namespaces of libraries for kernels, outside functions.
_OF_LIBRARIES: Final = re.compile(
    r"^(?:namespace\s+\w+\s*=|using(?:\s+namespace)?)\s+(?:::\s*)?(cub|cooperative_groups)\b[\w\s:]*;", re.MULTILINE
)
_ALIAS_OF_LIBRARY: Final = re.compile(r"\bnamespace\s+(\w+)\s*=\s*(?:::\s*)?(?:cub|cooperative_groups)\b")
#: Names of types in C++ that a template has wherever a precision is chosen.
_CHOSEN: Final = frozenset(each.cpp for each in ARITHMETIC) - KEYWORDS
#: An expression of the template, or such a name.
_EXPRESSION_OR_CHOSEN: Final = re.compile(rf"{_OPEN}[^{_CLOSE}]*{_CLOSE}|\b(?:{'|'.join(sorted(_CHOSEN))})\b")
#: What gives them to a program; one without it may have other things of their names.
_SHORT_HEADER: Final = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"](?:\w+/)*\w+_(?:fp|bf)16\.h", re.MULTILINE)
#: Types of whole numbers; a parameter of a template of another type is of an enumeration.
_WHOLE: Final = re.compile(r"(?:const )?(?:(?:long|short|unsigned|signed|int|char|bool) ?)+|u?int\d+_t|size_t|\.\.\.")
#: What the prelude calls otherwise.
_CALLED: Final = {"abs": "fabs"}
#: Words of kernels whose result depends on the number of threads of a warp.
_WARPS: Final = re.compile(r"\b(?:__(?:shfl|ballot|any|all|activemask|match|reduce|syncwarp)(?:_\w+)?|warpSize)\b")
_PARAMETERS: Final = re.compile(r"\s*#\s*define\s+\w+\(([^)]*)\)")
#: What a parameter is by default.
_DEFAULT: Final = re.compile(r"\s*=(?!=).*", re.DOTALL)
_WIDTH: Final = 110
_PARENTHESES: Final = re.compile(r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_DECIMAL: Final = re.compile(r"(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class Template:
    """A kernel's template.

    Attributes:
        function: the name of its function, which is another one where the prelude has the kernel's.
        text: all of it.
        parameters: the precision parameters in it.
        has_policy: whether it calls mathematical functions by policy.
        is_tiled: whether it does the work of a tile of threads at once: ``per_thread`` columns, ``per_thread_y`` rows.
        unrolls: whether it has loops around the tile that are unrolled ``unroll`` times.
        macros: the macros in it whose values are tuned.
    """

    function: str
    text: str
    parameters: frozenset[str]
    has_policy: bool
    is_tiled: bool = False
    unrolls: bool = False
    macros: tuple[str, ...] = ()


def template(
    program: Program,
    kernel: Kernel,
    classes: TypeClasses,
    parameter_of: Mapping[str, str],
    offsets: Mapping[str, str],
    threads: Sequence[str] = (),
    in_block: int = 0,
    nulls: Iterable[str] = (),
    apart: Collection[str] = (),
    symbols: Collection[str] = (),
) -> Template:
    """Return the template of a kernel.

    Args:
        program: that it is of.
        kernel: which one.
        classes: the program's.
        parameter_of: the precision parameter of each class that has one, by the class's name.
        offsets: its pointers that are not always at the start of a buffer, each with the parameter that says where.
        threads: the names of how many threads there are along each axis, where a thread may do the work of several
            (``per_thread``); empty where it may not.
        in_block: how many threads a block has at most; 0 if that is not known.
        nulls: its pointers that are always null, or that it does not use, which it is not passed.
        apart: its pointers to memory that it does not write to by another name, by the names under which a template is
            given them.
        symbols: the variables in the device's memory that are set before its launches, and read after them.
    """
    edited = _Edited(program, classes, parameter_of, frozenset(_structs_in(kernel.parameters)), symbols)
    is_taken = kernel.identifier in FUNCTIONS_OF_CUDA or why_reserved(kernel.identifier)
    function = f"{kernel.identifier}_kernel" if is_taken else kernel.identifier
    # A template declares shared memory whose size a launch gives in its kernel.
    sized = [
        need for need in kernel.needs if need.kind == "shared" and re.search(r"\bextern\b", program.text(need.extent))
    ]
    outside = [need for need in kernel.needs if need not in sized]
    texts = [
        _in_kernel(edited.need(need), kernel.arguments) if need.kind == "macro" else edited.need(need)
        for need in outside
    ]
    functions = [number for number, need in enumerate(outside) if need.kind in ("function", "prototype")]
    if any(_CONSTANT.search(texts[number]) and "mp::" in texts[number] for number in functions):
        for number in functions:  # what calls functions of the prelude is not constant
            texts[number] = _CONSTANT.sub("__device__", texts[number])
    needs = list(dict.fromkeys(texts))  # (one text may declare several)
    own = edited.of(kernel.extent, kernel.label, kernel.calls)
    passed, first = _passed(kernel, edited, own, offsets, frozenset(nulls), apart)
    first += map(edited.need, sized)
    regions = _in_regions(program, kernel, own, threads, in_block)
    rest = _without_parameters(own.text(kernel.body), kernel.arguments).removeprefix("{")
    # What is local in the kernel may be called as a field of a struct is here that it is passed.
    flat = {
        leaf.flat for parameter in kernel.parameters if parameter.role == "struct" for leaf, _ in fields_of(parameter)
    }
    added = flat | set(offsets.values())
    opening, closing = ("\n    {", "\n}") if added & set(_WORD.findall(own.text(kernel.body))) else ("", "")
    start = "".join(f"\n    {line}" for line in first) + opening
    body = start + rest + closing

    def inside(lines: str) -> str:
        return start + textwrap.indent("\n" + _without_parameters(lines, kernel.arguments), "    ") + f"\n{closing}"

    if regions is not None:
        body = f"{inside(regions.body)}}}"
    if regions is not None and threads:
        condition = inside(regions.condition) if regions.condition else ""
        kernels = _of_tiles(function, passed, threads, body, condition)
    elif threads:
        kernels = _of_threads(function, passed, threads, body)
    else:
        kernels = [f'extern "C" __global__ void {function}({_shown(passed)}) {{{body}']
    used = "\n".join((*needs, *passed.values(), body))
    constants = [
        f"#define {name} {_CONSTANTS[name]}"
        for name in dict.fromkeys(re.findall(r"\b[A-Z][A-Z0-9_]+\b", used))
        if name in _CONSTANTS and all(need.name != name for need in kernel.needs)
    ]
    if _WARPS.search(used) and is_of_hip(file.text for file in program.files):
        constants.append("#undef MPTUNE_WARP_SIZE\n#define MPTUNE_WARP_SIZE 64")
    macros = {name: f"{_OPEN}{name}{_CLOSE}" for name in program.macros}
    given = dict(_given({**program.defines, **macros}, used))
    constants += given.values()
    has_phases = regions is not None and not threads
    libraries = [f"USES_LIBRARY({name});" for name in kernel.libraries]
    named = (found for file in program.files for found in _OF_LIBRARIES.finditer(file.text))
    libraries += dict.fromkeys(found[0] for found in named if found[1] in kernel.libraries)
    parts = [
        "\n".join(libraries),
        "\n".join(constants),
        *needs,
        *(["IN_PHASES();"] if has_phases else []),
        *kernels,
    ]
    text = _in_words_of_templates("\n\n".join(part for part in parts if part), program, kernel, symbols)
    text = f"// {kernel.label}, adopted from {kernel.extent}\n\n{_escaped(text)}\n"
    is_tiled, unrolls = (
        regions is not None and not has_phases,
        regions is not None and f"{UNROLL}{_CLOSE}" in regions.body,
    )
    of_macros = tuple(name for name in program.macros if name in given)
    return Template(function, text, frozenset(edited.used), edited.has_policy, is_tiled, unrolls, of_macros)


def _passed(
    kernel: Kernel,
    edited: _Edited,
    own: Edits,
    offsets: Mapping[str, str],
    nulls: Collection[str],
    apart: Collection[str],
) -> tuple[dict[str, str], list[str]]:
    """Return the parameters of a kernel's template by name, as they are declared, and what comes first in its body."""
    passed: dict[str, str] = {}
    first = [f"{name} += {offset};" for name, offset in offsets.items()]
    for parameter in kernel.parameters:
        if parameter.role == "struct":
            first.append(f"{parameter.element} {parameter.name} = {{}};")
            for each, struct in fields_of(parameter):
                if each.flat not in nulls:
                    passed[each.flat] = f"{edited.type_of(each, struct, kernel)}{each.flat}"
                    is_named = each.type != each.canonical and each.role == "scalar" and _WHOLE.fullmatch(each.element)
                    value = f"static_cast<decltype({each.name})>({each.flat})" if is_named else each.flat
                    first.append(f"{each.name} = {value};")
        elif parameter.name in nulls:
            first.append(f"{own.text(parameter.extent)} = nullptr;")
        else:
            text = _DEFAULT.sub("", own.text(parameter.extent))
            passed[parameter.name] = _without_parameters(text, kernel.arguments)
    for name in apart:
        if "restrict" not in passed.get(name, "restrict"):
            passed[name] = re.sub(rf"\*\s*((?:const\s+)?{name})\s*$", r"* __restrict__ \1", passed[name])
    return {**passed, **{name: f"long long {name}" for name in offsets.values()}}, first


def _shown(passed: Mapping[str, str], *others: str) -> str:
    """Return the text of parameters, on lines of their own where they are many; others come last."""
    is_long = len(", ".join(passed.values())) > _WIDTH - 40
    return ("\n    " if is_long else "") + (",\n    " if is_long else ", ").join((*passed.values(), *others))


def _of_threads(function: str, passed: Mapping[str, str], threads: Sequence[str], body: str) -> list[str]:
    """Return the texts of a kernel whose threads do the work of several, one after the other."""
    call = f"{function}_thread({', '.join([*passed, 'VIRTUAL_THREAD'])})"
    return [
        f"__device__ void {function}_thread({_shown(passed, 'VIRTUAL_INDICES')}) {{{body}",
        f'extern "C" __global__ void {function}({_shown(passed)}) {{\n'
        f"    GRID_THREADS({_OPEN}per_thread{_CLOSE}, {_extents(threads)}, {call});\n}}",
    ]


def _of_tiles(function: str, passed: Mapping[str, str], threads: Sequence[str], body: str, condition: str) -> list[str]:
    """Return the texts of a kernel whose threads do the work of a tile at once, of the threads that have work."""
    rows = f"{_OPEN}per_thread_y{_CLOSE}" if len(threads) > 1 else "1"
    call = f"{function}_tile({', '.join([*passed, 'THIS_TILE'])})"
    has_work = f"{function}_has_work({', '.join([*passed, 'TILE_THREAD'])})" if condition else "true"
    parameters = _shown(passed, "VIRTUAL_INDICES")
    asks = f"__device__ __forceinline__ bool {function}_has_work({parameters}) {{{condition}}}"
    return [
        *([asks] if condition else []),
        f"template <class Tile>\n__device__ __forceinline__ void {function}_tile({_shown(passed, 'TILE_INDICES')}) "
        f"{{{body}",
        f'extern "C" __global__ void {function}({_shown(passed)}) {{\n'
        f"    GRID_TILES({_OPEN}per_thread{_CLOSE}, {rows}, {_extents(threads)},\n        {has_work},\n"
        f"        {call});\n}}",
    ]


def _extents(threads: Sequence[str]) -> str:
    """Return how many threads there are along each of three axes."""
    return ", ".join([*(f"{_OPEN}{name}{_CLOSE}" for name in threads), "1", "1"][:3])


def _in_words_of_templates(text: str, program: Program, kernel: Kernel, symbols: Collection[str]) -> str:
    """Return a text with what templates call otherwise than CUDA, HIP and the C++ library."""
    text = _without_clashes(text, [need.name for need in kernel.needs])
    if re.search(rf"\blocal\b(?!<{_OPEN})", text):  # a variable of that name hides the type
        text = re.sub(rf"\blocal(?=<{_OPEN})", "mp::local", text)
    if not any(_SHORT_HEADER.search(file.text) for file in program.files):
        text = _EXPRESSION_OR_CHOSEN.sub(lambda found: f"{found[0]}_" if found[0] in _CHOSEN else found[0], text)
    for need in kernel.needs:
        is_set = need.kind == "constant" or need.name in symbols
        if is_set and not re.search(rf"\b{need.name}\s*\[", program.text(need.extent)):
            # What is set from outside is an array, here of one.
            text = re.sub(rf"(?<![\w.])(?<!->){need.name}\b", f"{need.name}[0]", text)
            declared = rf"((?:__constant__|MPTUNE_VARIABLE)[^;{{}}]*?\b{need.name})\[0\](?:\s*=\s*([^;{{]+?)\s*(?=;))?"
            text = re.sub(
                declared, lambda found: f"{found[1]}[1]" + (f" = {{{found[2]}}}" if found[2] else ""), text, count=1
            )
    aliases = set(_ALIAS_OF_LIBRARY.findall(text))
    text = _unqualified(text, {name for unit in program.units for name in unit.namespaces} - aliases)
    text = _MADE.sub(lambda found: _maker(found, text), text)
    for pattern, words in _OTHER_WORDS:
        text = pattern.sub(words, text)
    short = short_intrinsics() - {need.name for need in kernel.needs}
    return _WORD.sub(
        lambda found: _SHORT_TYPES.get(found[0], f"mp::{found[0]}" if found[0] in short else found[0]), text
    )


def _maker(found: re.Match[str], text: str) -> str:
    """Return what makes a vector in a template; a function of the program's own takes another number of arguments."""
    is_own = found[3] and len(commas(blanked(text), found.end())) != int(found[2])
    return found[0] if is_own else f"mp::make_vec{found[2]}<{found[1]}>{found[3]}"


def _unqualified(text: str, namespaces: Collection[str]) -> str:
    """Return the text of declarations that were in namespaces, which they no longer are."""
    names = "|".join(sorted(namespaces))
    text = re.sub(rf"\busing\s+(?:namespace\s+)?(?:::\s*)?(?:{names}{'|' * bool(names)}std)\b[\w\s:]*;", "", text)
    return re.sub(rf"(?<![\w:>])(?:::\s*)?(?:\b(?:{names})\s*::\s*)+(?=\w)", "", text) if names else text


def _given(defines: Mapping[str, str], text: str) -> Iterator[tuple[str, str]]:
    """Yield the definitions of the command line's macros that a text uses, and of those that these use, by name."""
    waiting = {name for name in defines if re.search(rf"\b{name}\b", text)}
    used: set[str] = set()
    while waiting:
        used |= waiting
        values = " ".join(defines[name] for name in waiting)
        waiting = {name for name in defines if re.search(rf"\b{name}\b", values)} - used
    for name in defines:
        if name in used:
            value = defines[name] or "1"
            yield name, f"#define {name} {value}_num" if _DECIMAL.fullmatch(value) else f"#define {name} {value}"


def _in_regions(program: Program, kernel: Kernel, own: Edits, threads: Sequence[str], in_block: int) -> Split | None:
    """Return the body of a kernel in regions, where it has barriers or its threads may do the work of several."""
    found = ((u, f) for u in program.units for f in u.functions if f.body == kernel.body and f.label == kernel.label)
    unit, function = next(found)
    if kernel.has_barrier and in_block:
        return split(unit, function, own.text, phases_of_templates(in_block))
    if not threads:
        return None
    return split(unit, function, own.text, tiles_of_templates(f"UNROLL({_OPEN}{UNROLL}{_CLOSE})"))


def fields_of(parameter: Parameter, struct: str = "") -> Iterator[tuple[Parameter, str]]:
    """Yield the numbers and pointers that a parameter is made of, each with the struct that it is a field of."""
    if parameter.role != "struct":
        yield parameter, struct
    for each in parameter.fields:
        yield from fields_of(each, parameter.struct)


def layout_of(
    parameter: Parameter, bytes_of: Callable[[Parameter, str], int], struct: str = "", start: int = 0
) -> tuple[list[tuple[Parameter, int]], int, int]:
    """Return where the fields of a struct lie, in bytes, where it ends, and to what it is aligned.

    Args:
        parameter: the struct, or a number or pointer.
        bytes_of: how long a number is, by it and the struct that it is a field of.
        struct: that it is in.
        start: where it may begin.
    """
    if parameter.role != "struct":
        size = 8 if parameter.is_pointer else bytes_of(parameter, struct)
        place = -(-start // size) * size
        return [(parameter, place)], place + size, size
    if not parameter.fields:
        return [], start + 1, 1  # of functions alone
    alignment = max(layout_of(each, bytes_of, parameter.struct)[2] for each in parameter.fields)
    found: list[tuple[Parameter, int]] = []
    end = -(-start // alignment) * alignment
    for each in parameter.fields:
        inner, end, _ = layout_of(each, bytes_of, parameter.struct, end)
        found += inner
    return found, -(-end // alignment) * alignment, alignment


def class_of(classes: TypeClasses, name: str, owner: str, kernel: str = "") -> TypeClass | None:
    """Return the class of a parameter of a function, or of a field of a struct (``field.grid.spacing``).

    Of several structs of one name it is that of one that a kernel uses, if its label is given.
    """
    last = re.sub(r"\[.*", "", name.rpartition(".")[2])
    members = ((each, member) for each in classes.classes for member in each.members)
    found = [each for each, m in members if m.name == last and m.function == owner and m.kind in _DECLARED]
    return next((each for each in found if kernel in each.kernels), next(iter(found), None))


class _Edited:
    """Pieces of a program's text with types, literals and mathematical functions replaced.

    Attributes:
        used: the precision parameters in the pieces.
        has_policy: whether mathematical functions are called by policy in them.
    """

    def __init__(
        self,
        program: Program,
        classes: TypeClasses,
        parameter_of: Mapping[str, str],
        filled: Collection[str],
        symbols: Collection[str],
    ) -> None:
        self._program, self._classes, self._parameter_of = program, classes, parameter_of
        #: Names of structs that are made empty, and then filled from parameters.
        self._filled = filled
        self._symbols = symbols
        self.used: set[str] = set()
        self.has_policy = False
        variables = [need.extent for kernel in program.kernels for need in kernel.needs if need.kind == "variable"]
        #: Classes of constants outside functions, which stay what they are: where they are used they get another type,
        #: since device compilers take no constant of a type of 16 bits.
        self._constants = {
            each.name
            for each in classes.classes
            if all(any(member.extent in place for place in variables) for member in each.members)
            and all(not member.is_pointer and member.slot.components == 1 for member in each.members)
        }

    def need(self, need: Declaration) -> str:
        """Return the text of something that a kernel needs."""
        label = need.label if need.kind in ("function", "prototype") else None
        hidden = list(self._of_host(need)) if need.kind == "struct" and not self._program.originals else []
        edits = self.of(need.extent, label, need.calls, hidden)
        for each in hidden:
            edits.replace(each, "")
        if need.kind == "struct" and need.name in self._filled:
            self._let_be_filled(edits, need)
        text = edits.text(need.extent).rstrip()
        if need.kind == "constant" or need.name in self._symbols:  # what is static cannot be set from outside
            text = re.sub(r"\bstatic\s+", "", text)
            text = re.sub(r"\b__device__\b", "MPTUNE_VARIABLE", text) if need.kind == "device" else text
        if not need.arguments:
            return text
        text = _TEMPLATE.sub("", text, count=1)
        return _without_parameters(
            re.sub(rf"\b{need.name}\s*(?:<[^;{{}}()]*>)?(?=\s*\()", _identifier(need.label), text, count=1),
            need.arguments,
        )

    def _of_host(self, struct: Declaration) -> Iterator[Extent]:
        """Yield the member functions and friends that only the host can call: they may use anything."""
        nodes = (node for unit in self._program.units for node in unit.top if node.kind in _STRUCTS)
        node = next((each for each in nodes if each.extent is not None and each.extent in struct.extent), None)
        for each in node.children if node is not None else ():
            is_function = each.kind in FUNCTIONS or each.kind == "FRIEND_DECL"
            if not is_function or each.extent is None or each.extent == struct.extent:
                continue
            function = next((one for one in each.children if one.kind in FUNCTIONS), each)
            kinds = {child.kind for child in function.children}
            is_of_host = "COMPOUND_STMT" in kinds and "CUDADEVICE_ATTR" not in kinds
            if is_of_host and not re.search(r"\bconstexpr\b", self._program.text(each.extent)):
                yield each.extent

    def _let_be_filled(self, edits: Edits, struct: Declaration) -> None:
        """Let a struct be made without arguments, and all of its fields be set: nothing in it is private."""
        place = struct.extent
        nodes = (node for unit in self._program.units for node in unit.top if node.kind in _STRUCTS)
        node = next(each for each in nodes if each.extent is not None and each.extent in place)

        def replace(start: int, old: str, new: str) -> None:
            edits.replace(dataclasses.replace(place, start=start, end=start + len(old)), new)

        for inner in node.walk():
            hidden = (
                re.match("private|protected", self._program.text(inner.extent)) if inner.extent is not None else None
            )
            if inner.kind == "CXX_ACCESS_SPEC_DECL" and inner.extent is not None and hidden is not None:
                replace(inner.extent.start, hidden[0], "public")
        head = blanked(self._program.text(place)).partition("{")[0]
        if word := _CLASS_OF_STRUCT.search(head):
            replace(place.start + word.start(), "class", "struct")
        made_of = [each for each in node.children if each.kind == "CONSTRUCTOR" and each.extent != node.extent]
        if made_of and not any(each.cursor.is_default_constructor() for each in made_of):
            edits.insert(place.file, place.start + len(head) + 1, f" {struct.name}() = default;")

    def of(
        self, piece: Extent, label: str | None, calls: Iterable[TemplateCall], hidden: Collection[Extent] = ()
    ) -> Edits:
        """Return the changes in a piece but for some parts: of one function, or, with no label, whatever uses it."""
        edits = Edits(self._program.files)

        def is_in(extent: Extent, function: str) -> bool:
            is_of_it = extent in piece and (label is None or function in ("", label))
            return is_of_it and not any(extent in part for part in hidden)

        for each in self._classes.classes:
            if each.name not in self._parameter_of:
                continue
            parameter = self._parameter_of[each.name]
            is_shared = any(member.is_pointer for member in each.members)
            for slot in each.slots:
                if is_in(slot.extent, slot.function) and each.name not in self._constants:
                    members = [member for member in each.members if member.slot == slot]
                    is_local = not is_shared and bool(members) and all(member.kind == "local" for member in members)
                    edits.replace(slot.extent, _type(slot, f"{_OPEN}{parameter}{_CLOSE}", is_local))
                    self.used.add(parameter)
        for read in self._classes.reads:
            if read.type_class in self._constants & self._parameter_of.keys() and is_in(read.extent, read.function):
                parameter = self._parameter_of[read.type_class]
                if self._program.text(read.extent).isidentifier():
                    edits.surround(read.extent, f"static_cast<{_OPEN}{parameter}{_CLOSE}>(", ")")
                    self.used.add(parameter)
        for literal in self._classes.literals:
            if is_in(literal.extent, literal.function):
                edits.replace(literal.extent, _number(literal))
        for call in self._classes.calls:
            if is_in(call.extent, call.function):
                name = _CALLED.get(call.name, call.name)
                policy = f"<{_OPEN}{POLICY}{_CLOSE}>" if name in _WITH_POLICY else ""
                if policy or name in _IN_MP or name in prelude_names():
                    edits.replace(call.extent, f"mp::{name}{policy}")
                self.has_policy = self.has_policy or bool(policy)
        for choice in self._classes.choices:
            is_free = not choice.meets or not self._parameter_of.keys().isdisjoint(choice.meets)
            if is_free and is_in(choice.extent, choice.function):
                self._choose(edits, choice)
        for instantiated in (each for each in calls if not any(each.extent in part for part in hidden)):
            edits.replace(instantiated.extent, _identifier(instantiated.label))
        return edits

    def _choose(self, edits: Edits, choice: Choice) -> None:
        """Let the sides of a ``?:`` have different types."""
        edits.surround(choice.extent, "CHOICE(", ")")
        start = choice.extent.start
        for sign in (choice.question, choice.colon, None):
            part = dataclasses.replace(choice.extent, start=start, end=sign.start if sign else choice.extent.end)
            written = self._program.text(part)
            first = start + len(written) - len(written.lstrip())
            last = part.end if re.search(r"\n\s*$", written) else start + len(written.rstrip())
            vector = _CONSTANT_VECTOR.match(written.strip())
            if vector is not None and len(choice.meets) == 1:  # of the type of the other side
                (parameter,) = (self._parameter_of[name] for name in choice.meets)
                made = dataclasses.replace(part, start=first, end=first + vector.end())
                edits.replace(made, f"mp::make_vec{vector[1]}<{_OPEN}{parameter}{_CLOSE}>")
                self.used.add(parameter)
            if "," in _PARENTHESES.sub("", written):
                edits.surround(dataclasses.replace(part, start=first, end=last), "(", ")")
            if sign is not None:
                edits.replace(dataclasses.replace(sign, start=last), ",")
                start = sign.end

    def type_of(self, field: Parameter, struct: str, kernel: Kernel) -> str:
        """Return the type of a field of a struct as that of a parameter of a kernel."""
        found = class_of(self._classes, field.name, struct, kernel.label)
        type_of_it = field.element
        if found is not None and found.name in self._parameter_of:
            parameter = self._parameter_of[found.name]
            self.used.add(parameter)
            type_of_it = f"{_OPEN}{parameter}{_CLOSE}"
        qualifier = "const " if field.canonical.startswith("const ") and field.is_pointer else ""
        return f"{qualifier}{type_of_it} *" if field.is_pointer else f"{type_of_it} "


def _structs_in(parameters: Iterable[Parameter]) -> Iterator[str]:
    """Yield the names of structs by value, and of those that are fields of them."""
    for each in parameters:
        if each.role == "struct":
            yield each.struct.partition("<")[0]
        yield from _structs_in(each.fields)


def _identifier(label: str) -> str:
    return re.sub(r"\W+", "_", label).strip("_")


def _without_parameters(text: str, arguments: Iterable[TemplateArgument]) -> str:
    """Return the text of a template's body for its arguments."""
    arguments = tuple(arguments)
    types = {argument.name: argument.value for argument in arguments if argument.kind == "typename"}
    values = {
        argument.name: argument.value
        if argument.kind in ("typename", *types) or _WHOLE.fullmatch(argument.kind)
        else f"static_cast<{argument.kind}>({argument.value})"
        for argument in arguments
    }

    def shown(found: re.Match[str]) -> str:
        value = values.get(found[1], found[1])
        is_cast = " " in value and _OPENED.match(text, found.end())  # T(x), of a type of several words
        return f"static_cast<{value}>" if is_cast else value

    return _WORD.sub(shown, text) if values else text


def _in_kernel(macro: str, arguments: Iterable[TemplateArgument]) -> str:
    """Return a macro for the arguments of the template that uses it: it may name the parameters, or have own ones."""
    own = _WORD.findall(found[1]) if (found := _PARAMETERS.match(macro)) else []
    return _without_parameters(macro, [argument for argument in arguments if argument.name not in own])


def _type(slot: TypeSlot, parameter: str, is_local: bool) -> str:
    if slot.components > 1:
        return f"mp::vec{slot.components}<{parameter}>"
    return f"local<{parameter}>" if is_local else parameter


def _number(literal: Literal) -> str:
    """Return a literal that takes the type of what it meets."""
    if not literal.text.startswith((".", *string.digits)):  # a macro, or a limit of a type
        return f"mp::number({literal.text})"
    suffixes = "lL" if literal.text[:2] in ("0x", "0X") else "fFlL"
    return f"{literal.text.rstrip(suffixes)}_num"


def _without_clashes(text: str, names: Iterable[str]) -> str:
    """Return the text with those of its own names changed that the prelude has, too."""
    clashing = {name: f"{name}_" for name in names if name.isidentifier() and why_reserved(name)}
    return _WORD.sub(lambda found: clashing.get(found[1], found[1]), text) if clashing else text


def _escaped(text: str) -> str:
    """Return the text as a template that renders to it, in code with some more spaces."""

    def escaped(found: re.Match[str]) -> str:
        if found[0][0] in "\"'R":
            return _BRACES.sub(lambda brace: f'{_OPEN}"{brace[0]}"{_CLOSE}', found[0])
        return _BRACES.sub(lambda brace: f"{brace[0]} ", found[0])

    return _PIECES.sub(escaped, text).replace(_OPEN, "{{ ").replace(_CLOSE, " }}")
