"""The source of a kernel as Kernel Tuner is given it, in CUDA, HIP, C or OpenCL C, as a template of mptune's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mptune.errors import KernelError, UnknownNameError
from mptune.source.dialect import KERNEL_FLOAT, comments_blanked, parameters_at

if TYPE_CHECKING:
    from mptune.kernel_tuner.problem import ArgumentGiven

#: Kernel Tuner's names of languages.
LANGUAGES: Final = {**dict.fromkeys(("CUDA", "CUPY", "NVCUDA", "HIP"), "CUDA"), "C": "C", "OPENCL": "OpenCL"}
#: The text before the name of a kernel, by language.
_HEADS: Final = {
    "CUDA": r"\b__global__\b[^;{}()]*\b",
    "OpenCL": r"\b(?:__)?kernel\b[^;{}]*?\b",
    "C": r"\b",
}
_BOUNDS: Final = re.compile(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)")
_CALL_OF_CUDA: Final = re.compile(r"<<<|\bcuda[A-Z]\w+\s*\(")

#: Headers whose types and functions the prelude has.
_HEADERS: Final = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"](?:cuda\w*|hip/\w+|c?math|c?stdio|c?stdlib|c?stdint|inttypes"
    r"|device_launch_parameters)(?:\.h|\.hpp)?[>\"].*$",
    re.MULTILINE,
)
_EXTERN_C: Final = re.compile(r"\bextern\s+\"C\"(?=\s+__global__)")
#: Names of the types of 16 bits, which the prelude calls half and bfloat16.
_SHORT: Final = {"__half": "half", "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16"}
_HALF: Final = re.compile(r"\busing\s+half\s*=\s*__half\s*;|\btypedef\s+__half\s+half\s*;")
_CPP: Final = {
    "float64": "double", "float32": "float", "float16": "half", "int8": "signed char", "int16": "short",
    "int32": "int", "int64": "long long", "uint8": "unsigned char", "uint16": "unsigned short",
    "uint32": "unsigned int", "uint64": "unsigned long long", "bool": "bool",
}  # fmt: skip
#: A pointer that is passed as one to vectors, or to any other type of as many bytes.
_ANY: Final = """template <class E> struct mptune_pointer {
    const E *at;
    template <class T> __device__ operator T *() const {
        static_assert(sizeof(T) % sizeof(E) == 0, "an array is passed as a pointer to a smaller type");
        return (T *)at;
    }
};
template <class E> __device__ mptune_pointer<E> mptune_any(const E *at) { return {at}; }
"""
_NUMBER: Final = re.compile(
    r"(?:const|volatile|unsigned|signed|short|long|int|char|float|double|half|bfloat16|bool|u?int(?:8|16|32|64)_t|\s)+"
)
#: An assignment to what stands before, or another use of it than reading.
_CHANGED: Final = re.compile(r"\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--|\[|\.)")

Values = Mapping[str, Any]


class Source:
    """The source of one kernel.

    Args:
        name: of the kernel, maybe with template arguments.
        given: a text, a file, a function of the configuration, or a list of files.
        lang: Kernel Tuner's name of the language; None if the text tells it.
        defines: macros; None for those of all parameters.
        first: values of a configuration, by which the parameters of the kernel are found.
        arguments: number of arguments.

    Attributes:
        language: "CUDA" (also HIP), "C" or "OpenCL".
        declared: the kernel's parameters in order.

    Raises:
        KernelError: the language or the source has no counterpart here.
    """

    def __init__(
        self,
        name: str,
        given: Any,
        lang: str | None,
        defines: Mapping[str, Any] | None,
        first: Values,
        arguments: int,
    ) -> None:
        if lang is not None and lang.upper() not in LANGUAGES:
            raise KernelError(f"lang={lang!r} is not supported by mptune; expected one of {', '.join(LANGUAGES)}")
        self.name, self.defines = name, defines
        self.bare = name.partition("<")[0].strip().rpartition("::")[2]
        self._given = given if callable(given) else _text_of(given)
        text = self.text(first)
        self.language = LANGUAGES[lang.upper()] if lang is not None else _language_of(text)
        if self.language == "C" and _CALL_OF_CUDA.search(comments_blanked(text)):
            raise KernelError(f"{name} calls the CUDA runtime, which lang='C' of mptune has no compiler for (nvcc)")
        self.declared = _declared(text, self.bare, self.language, arguments)
        #: Set once the arguments are known.
        self.arguments: Sequence[ArgumentGiven] = ()
        self.blocks: Sequence[str] = ()
        self.grid: Callable[[Values], Sequence[int]] = lambda _: ()
        self.parameters: Mapping[str, Mapping[str, Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Only this process makes sources, and a function of the user's may not pickle.
        return {**self.__dict__, "_given": "", "defines": {}, "grid": None}

    @property
    def function(self) -> str:
        """The name of the function that is launched: the kernel, or one around it."""
        return self.bare if self.language == "OpenCL" else f"{self.bare}_tuned"

    def text(self, values: Values) -> str:
        """Return the text of a configuration as the user gives it."""
        return str(self._given(dict(values))) if callable(self._given) else self._given

    def __call__(self, context: Values) -> str:
        """Return the source of a configuration: macros, the user's text, and a kernel that calls the user's."""
        # The user's own values are those of the parameters' names.
        own = {name: known.get(str(context[name]), context[name]) for name, known in self.parameters.items()}
        cpp = {name: str(context[name]) for name in self.parameters}
        text, lines = self.text(own), list[str]()
        for name, value in self._macros(own, cpp).items():
            if "loop_unroll_factor" in name and self.language == "CUDA":
                if value == "0":
                    text = re.sub(rf"\n[ \t]*#[ \t]*pragma[ \t]+unroll[ \t]+{name}\b[^\n]*", "\n", text)
                else:
                    lines.append(f"constexpr int {name} = {value};")
            else:
                escaped = value.replace("\n", "\\\n")
                lines.append(f"#define {name} {escaped}")
        if self.language == "OpenCL":
            return "\n".join([*lines, "#line 1", text, ""])
        call = f"{_replaced(self.name, cpp)}({', '.join(self._passed(text, own))})"
        if self.language == "CUDA":
            text = _HALF.sub("", _BOUNDS.sub("", _EXTERN_C.sub("", _HEADERS.sub("", text))))
            text = re.sub(r"\b(?:__half|__nv_bfloat16|nv_bfloat16)\b", lambda found: _SHORT[found[0]], text)
            text = re.sub(rf"\b__global__\b(?=[^;{{}}()]*\b{self.bare}\s*\()", "__device__", text)
        passed = ", ".join(parameter for each in self.arguments for parameter in _parameters(each, cpp))
        wrapper = f'extern "C" __global__ void {self.function}({passed}) {{\n    {call};\n}}\n'
        pointers = _ANY if "mptune_any" in call else ""
        return "\n".join([*lines, '#line 1 "kernel_source"', text, pointers, wrapper])

    def _macros(self, own: Values, cpp: Mapping[str, str]) -> dict[str, str]:
        if self.defines is None:
            extents = zip(("grid_size_x", "grid_size_y", "grid_size_z"), (*self.grid(own), 1, 1), strict=False)
            blocks = zip(self.blocks, (256, 1, 1), strict=False)
            given: dict[str, Any] = {**dict(extents), **dict(blocks), **cpp, "kernel_tuner": 1}
            return {name: str(value) for name, value in given.items()}
        found = {}
        for name, value in self.defines.items():
            if not name.isidentifier():
                raise KernelError(f"defines: {name!r} is no name of a macro")
            found[name] = str(value(dict(own))) if callable(value) else _replaced(str(value), cpp)
        return found

    def _passed(self, text: str, own: Values) -> Iterator[str]:
        """Yield the arguments of the call of the user's kernel."""
        # A vector of Kernel Float lies in memory as its elements do.
        cast = "kernel_float::pass" if KERNEL_FLOAT.search(text) else "mptune_any"
        of_template = set(re.findall(r"\b(?:typename|class)\s+(\w+)", text))
        declared = self.declared
        if callable(self._given):
            declared = _declared(text, self.bare, self.language, len(self.declared))
        for each, (_, kind, _) in zip(self.arguments, declared, strict=False):  # the last may be mptune's own
            name = each.passed_as(own)
            is_plain = each.values.ndim == 0 or _NUMBER.fullmatch(kind) or not of_template.isdisjoint(kind.split())
            yield name if is_plain else f"{cast}({name})"


def _parameters(each: ArgumentGiven, cpp: Mapping[str, str]) -> Iterator[str]:
    """Yield the declarations of an argument's parameters; an argument that is one of several arrays has several."""
    for option in each.all:
        kind = cpp[option.parameter] if option.parameter else _CPP[str(option.values.dtype)]
        yield f"{kind} {'' if option.values.ndim == 0 else '*'}{option.name}"


def _replaced(text: str, values: Mapping[str, Any]) -> str:
    """Return a text with the names of parameters replaced by their values."""
    names = "|".join(map(re.escape, values))
    return re.sub(rf"\b(?:{names})\b", lambda match: str(values[match[0]]), text) if names else text


def _text_of(source: Any) -> str:
    """Return the text of a source: a text, a file, or a list of files, of which the first may include the others."""
    if isinstance(source, list | tuple):
        first, *others = source
        text, apart = _text_of(first), []
        for each in others:
            line = re.compile(rf'^[ \t]*#[ \t]*include[ \t]*"[^"\n]*\b{re.escape(Path(str(each)).name)}"', re.MULTILINE)
            own = _text_of(each)
            if line.search(text):
                text = line.sub(lambda _, own=own: own, text)  # type: ignore[misc]
            else:
                apart.append(own)
        return "\n".join([*apart, text])
    if isinstance(source, Path) or not re.search(r"[\n{]", str(source)):
        try:
            return Path(source).read_text(encoding="utf-8")
        except OSError as error:
            raise KernelError(f"kernel_source {source}: {error.strerror}") from None
    return str(source)


def _language_of(text: str) -> str:
    return "CUDA" if "__global__" in text else "OpenCL" if "__kernel" in text else "C"


def _declared(text: str, name: str, language: str, count: int) -> list[tuple[str, str, bool]]:
    """Return the parameters of a kernel: name, type without pointer, and whether a pointer's memory may be written.

    Where several kernels have the name, as in branches of the preprocessor, the one with ``count`` parameters is read.

    Raises:
        KernelError: the text has no such kernel.
    """
    text = _BOUNDS.sub("", comments_blanked(text))
    found: list[list[tuple[str, str, bool]]] = []
    for head in re.finditer(rf"{_HEADS[language]}{re.escape(name)}\s*\(", text):
        places = parameters_at(text, head.end())
        start = text.find("{", places[-1][1])
        rest = text[places[-1][1] + 1 : start] if start >= 0 else ";"
        if language == "C" and rest.strip():  # a call, or a declaration
            continue
        parts = [text[first:last] for first, last in places if text[first:last].strip()]
        body = text[start : _end(text, start)] if not re.search(r"[;{}]", rest) else ""
        found.append([_parameter(part, body, text) for part in parts])
    if not found:
        raise UnknownNameError("kernel", name, re.findall(rf"{_HEADS[language]}(\w+)\s*\([^;]*?\)\s*{{", text))
    fitting = [each for each in found if len(each) == count]
    if not fitting:
        raise KernelError(f"{name} takes {len(found[0])} arguments, not {count}")
    # A declaration without a body says less.
    return max(fitting, key=lambda each: sum(not is_written for *_, is_written in each))


def _parameter(part: str, body: str, text: str) -> tuple[str, str, bool]:
    part = re.sub(r"\[\w*\]", "*", part.partition("=")[0])
    name = re.findall(r"\w+", part)[-1]
    words = re.sub(r"\b(?:const|volatile|restrict|__restrict(?:__)?|__global|__constant|__local)\b", " ", part)
    kind = " ".join(re.sub(rf"\b{name}\b", " ", words).replace("*", " ").replace("&", " ").split())
    is_const = re.search(r"\bconst\b[^*]*\*|\b__constant\b|\bvec_ptr\s*<\s*const\b", part) is not None
    return name, kind, not is_const and not _is_only_read(name, body, text)


def _is_only_read(name: str, body: str, text: str) -> bool:
    """Whether every use of a pointer in a function's body reads an element."""
    uses = list(re.finditer(rf"\b{name}\b", body))
    if not uses or re.search(rf"#[ \t]*define\b.*\b{name}\b", text):
        return False
    for use in uses:
        opened = re.match(r"\s*\[", body[use.end() :])
        if opened is None or re.search(r"(?:&|\+\+|--|\bstruct\s|[.>])[\s(]*\Z", body[: use.start()]):
            return False
        end = parameters_at(body, use.end() + opened.end())[-1][1] + 1
        if _CHANGED.match(body, end):
            return False
    return True


def _end(text: str, start: int) -> int:
    """Return where the block ends that opens at ``start``."""
    depth = 0
    for match in re.finditer(r"[{}]", text[start:]):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return start + match.end()
    return len(text)
