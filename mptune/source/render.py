"""Rendering a kernel's template: prelude, instantiated template and host entry as one source.

All backends share the source; the prelude detects the compiler. A ``#line`` directive starts the instantiated template,
so a compiler's errors carry its lines; :func:`cited` translates these to lines of the template.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
from jinja2.lexer import Token, TokenStream

from mptune.cpp.prelude import include_lines, libraries_of, prelude
from mptune.errors import KernelError, MptuneError, TemplateError, UnknownNameError, did_you_mean
from mptune.kernel import Application, Kernel, Sizes, Tunable
from mptune.precision import Precision, precision
from mptune.source.dialect import cite, comments_blanked, declared_types, kernel_parameters, portable
from mptune.source.flags import OPENCL_C, OPENCL_C_LINE, build_lines
from mptune.space.configuration import Configuration
from mptune.space.parameters import PolicyParameter, PrecisionParameter

#: Text that occurs in every template and in no path of a file.
_INLINE: Final = re.compile(r"[\n{;]|__global__")


class TypeName:
    """A precision parameter inside a template: prints as its C++ type, compares as its name.

    ``{{ x_type }}`` gives ``half``; ``x_type == "fp16"`` (or any alias), ``x_type.bytes``, ``x_type.name`` and
    ``x_type.storage_only`` serve template logic.
    """

    def __init__(self, value: Precision, *, cpp: str = "") -> None:
        self._precision = value
        self._cpp = cpp or value.cpp
        self.name = value.name  #: canonical name of the precision ("fp16")
        self.bytes = value.size_bytes  #: bytes of one element
        self.storage_only = value.storage_only  #: whether arithmetic in this type is excluded

    def __str__(self) -> str:
        return self._cpp

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypeName):
            return self._precision is other._precision
        if isinstance(other, str):
            try:
                return self._precision is precision(other)
            except UnknownNameError as error:
                raise TemplateError(str(error)) from error
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)


class _PolicyName(str):
    """A policy that prints as C++ code for a choice at run time."""

    cpp: str

    def __str__(self) -> str:
        return self.cpp


def render(
    kernel: Kernel,
    configuration: Configuration,
    sizes: Mapping[str, int],
    *,
    is_traced: bool = False,
    is_every_type_traced: bool = False,
) -> str:
    """Return the source of a configuration, for every backend; a traced source is for the host only.

    In a traced source, precisions and policies are chosen at run time (``traced.hpp``), in the order of the parameters;
    the template's own logic sees the configuration's. With ``is_every_type_traced``, operations of the types that the
    template names itself are counted as well, which not every text allows.
    """
    name = _locate(kernel).name
    configuration = kernel.own(configuration)
    body = render_body(kernel, configuration, sizes, is_traced=is_traced)
    if kernel.language == OPENCL_C:
        return f"{OPENCL_C_LINE}{body}"
    if is_every_type_traced:
        body = _OWN_LITERAL.sub(_traced_literal, _OWN_TYPE.sub(r"\1own_\2", comments_blanked(body)))
        body = _OF_FLOAT.sub(lambda found: f"mp::{found[2]}{'<mp::fast>' if found[1] else ''}", body)
    # A block known to the compiler gives the loops over its threads constant bounds.
    block = ", ".join(map(str, kernel.launch_shape(configuration, Sizes(sizes)).block))
    entry = f"\n#if defined(MPTUNE_HOST)\nMPTUNE_HOST_ENTRY({kernel.function}, {block})\n#endif\n"
    declared = declared_types(kernel, configuration, Sizes(sizes))
    ending = f"{declared}{entry}{build_lines(kernel, configuration)}"
    traced = ""
    if is_traced:
        types = [p for p in kernel.parameters if isinstance(p, PrecisionParameter)]
        policies = sum(isinstance(p, PolicyParameter) for p in kernel.parameters)
        fp8 = sum(1 << k for k, p in enumerate(types) if any(precision(str(v)).storage_only for v in p.values))
        both = f"static_cast<unsigned __int128>({fp8 >> 64}ull) << 64 | {fp8 & (2**64 - 1)}ull"
        counts = {"": len(types), "_POLICIES": policies, "_FP8": f"({both})"}
        traced = "".join(f"#define MPTUNE_TRACED{what} {count}\n" for what, count in counts.items())
    return f'{traced}{prelude()}\n{libraries_of(body)}#line 1 "{name.removesuffix(".j2")}"\n{body}\n{ending}'


def render_body(
    kernel: Kernel, configuration: Configuration, sizes: Mapping[str, int], *, is_traced: bool = False
) -> str:
    """Return the instantiated template alone, without the prelude; raises TemplateError, KernelError."""
    source = _locate(kernel)
    context = _context(kernel, kernel.own(configuration), sizes, is_traced=is_traced)
    if callable(kernel.template):
        body = _generated(kernel, context)
        if kernel.language == OPENCL_C:
            return body
        _check_function(kernel, body, source.label)
        return portable(body, source.label)
    template = _compile(source)
    template.check_names(context)
    body = portable(
        template.render(context), source.name.removesuffix(".j2") if source.path else f"{source.label} as rendered"
    )
    _check_function(kernel, body, source.label)
    return body


def _generated(kernel: Kernel, context: Mapping[str, Any]) -> str:
    """Return the source that a template function makes of a configuration."""
    function: Any = kernel.template
    try:
        return str(function(context))
    except MptuneError:
        raise
    except Exception as error:
        raise TemplateError(f"the source of kernel {kernel.name}: {type(error).__name__}: {error}") from error


def with_parameters(kernel: Kernel, body: str, parameters: Sequence[str]) -> str:
    """Append parameters to the kernel function of an instantiated template."""
    end = kernel_parameters(comments_blanked(body))[kernel.function][-1][1]
    return body[:end] + ", " * bool(kernel.passed) + ", ".join(parameters) + body[end:]


def names_types(kernel: Kernel) -> bool:
    """Whether a kernel's template names types of numbers itself, which no parameter decides."""
    return _OWN_TYPE.search(comments_blanked(_locate(kernel).text)) is not None


def drawing_kernels(tunable: Tunable) -> list[str]:
    """Return the names of the kernels that draw random numbers of cuRAND, whose operations are not counted."""
    kernels = tunable.kernels.values() if isinstance(tunable, Application) else [tunable]
    return [each.name for each in kernels if "USES_LIBRARY(curand)" in _locate(cast(Kernel, each)).text]


def _traced_literal(match: re.Match[str]) -> str:
    return f"mp::own_{'float' if match[0][-1] in 'fF' else 'double'}({match[0]})"


def heading(kernel: Kernel, configuration: Configuration, sizes: Mapping[str, int]) -> str:
    """Return the heading of a kernel's source in a list of several."""
    at = ", ".join(f"{name}={value}" for name, value in sizes.items())
    return f"// ---- {kernel.name}: {configuration}{at and f' at {at}'} ----"


# -- the context of a template -------------------------------------------------------------------


def _context(
    kernel: Kernel, configuration: Configuration, sizes: Mapping[str, int], *, is_traced: bool = False
) -> dict[str, Any]:
    """Return a template's names and values: a boolean as 0 or 1, a precision as its type in C++.

    In a traced source, types and policies are numbered and chosen at run time.
    """
    context: dict[str, Any] = {
        **sizes,
        **{name: int(value) if isinstance(value, bool) else value for name, value in configuration.items()},
    }
    for k, name in enumerate(p.name for p in kernel.parameters if isinstance(p, PrecisionParameter)):
        context[name] = TypeName(precision(str(context[name])), cpp=f"mp::type_of_parameter<{k}>" if is_traced else "")
    policies = [p.name for p in kernel.parameters if isinstance(p, PolicyParameter)]
    for k, name in enumerate(policies if is_traced else ()):
        context[name] = _PolicyName(context[name])
        context[name].cpp = f"mp::policy_of_parameter<{k}>"
    return context


_HELPERS: Final[dict[str, Callable[..., Any]]] = {
    "ceildiv": lambda a, b: -(-a // b),
    **{each.__name__: each for each in (min, max, abs, len, range, enumerate, zip)},
}


# -- finding the template ------------------------------------------------------------------------


#: Types of numbers that no parameter decides, and their vectors; not in the name of a header.
_OWN_TYPE: Final = re.compile(r"\b(make_)?((?:double|float)[1-4]?)\b(?!\.h)")
_OWN_LITERAL: Final = re.compile(r"(?<![\w.])(?:(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)[fF]?(?![\w.])")
#: Functions of fp32: of C, and CUDA's fast ones.
_OF_FLOAT: Final = re.compile(
    r"(?<![\w:])(?:mptune_c::)?(__)?(r?sqrt|exp2|exp10|exp|expm1|log2|log10|log1p|log|pow|sin|cos|tan|asin|acos|atan2?|"
    r"sinh|cosh|tanh|r?cbrt|r?hypot|erfc?|fabs|floor|ceil|trunc|round|rint|fmin|fmax|fma|fmod)f(?=\s*\()"
)


@dataclass(frozen=True, slots=True)
class _Source:
    name: str  #: the name of its file; of an inline template, the default name
    label: str  #: its name in messages
    path: Path | None  #: its file, None for an inline template
    folder: Path  #: the folder of included templates
    version: int | str  #: modification time of the file; the text of an inline template

    @property
    def text(self) -> str:
        return str(self.version) if self.path is None else _read(self.path)


def _locate(kernel: Kernel) -> _Source:
    folder = kernel.path.parent if kernel.path else Path.cwd()
    given = kernel.template
    if callable(given):
        return _Source(f"{kernel.name}.cu", f"source of kernel {kernel.name}", None, folder, repr(given))
    if isinstance(given, str) and _INLINE.search(given):
        return _Source(f"{kernel.name}.cu.j2", f"template of kernel {kernel.name}", None, folder, given)
    if given is not None:
        candidates = [folder / given]
        if Path(given).name == str(given):  # a plain name may also be in the default folder
            candidates.append(folder.parent / "templates" / given)
    elif kernel.path is not None:
        candidates = [each / f"{kernel.path.stem}.cu.j2" for each in (folder.parent / "templates", folder)]
    else:
        raise KernelError(f"kernel {kernel.name}: give template= (the kernel was not loaded from a file)")
    for path in candidates:
        if os.path.isfile(path):  # noqa: PTH113 (no error for a name no file can have)
            return _Source(path.name, path.name, path, path.parent, path.stat().st_mtime_ns)
    name, definition = candidates[-1].name, kernel.path.name if kernel.path else "the program"
    # Compare stems: the suffix .cu.j2 would make all names similar.
    stems = [path.name.partition(".")[0] for one in candidates for path in one.parent.glob("*.j2")]
    advice = f"(put {name} beside {definition}, or give template=){did_you_mean(name.partition('.')[0], stems)}"
    raise TemplateError(f"kernel {kernel.name}: no template {' or '.join(map(str, candidates))} {advice}")


def template_hash(kernel: Tunable) -> str:
    """Return the hexadecimal SHA-256 of the templates of a kernel, or of an application's kernels."""
    return hashlib.sha256(repr([sorted(texts.items()) for texts in _all_texts(kernel)]).encode()).hexdigest()


def included_headers(kernel: Tunable) -> str:
    """Return the ``#include`` lines in the templates of a kernel, or of an application's kernels."""
    lines = [include_lines(text) for texts in _all_texts(kernel) for text in texts.values()]
    return "".join(f"\n{line}" for line in lines if line)


def _all_texts(tunable: Tunable) -> list[dict[str, str]]:
    kernels = tunable.kernels.values() if isinstance(tunable, Application) else [tunable]
    return [_texts(kernel) for kernel in kernels if isinstance(kernel, Kernel)]


def _texts(kernel: Kernel) -> dict[str, str]:
    source = _locate(kernel)
    texts = {"": source.text}
    if callable(kernel.template):
        return texts
    pending = [source.text]
    while pending:
        try:
            found = _included(pending.pop())
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"{cite(source.label, error.lineno)}: {error.message}") from error
        for name in found:
            # Rendering reports a computed name or a missing file.
            if name is not None and name not in texts and (source.folder / name).is_file():
                texts[name] = _read(source.folder / name)
                pending.append(texts[name])
    return texts


@functools.lru_cache(maxsize=256)
def _included(text: str) -> tuple[str | None, ...]:
    """Return the names of the templates that a text includes; None for a computed name."""
    return tuple(jinja2.meta.find_referenced_templates(_environment(Path()).parse(text)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(f"template {path} cannot be read: {error}") from error


# -- compiling and running it --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Template:
    """A parsed template, with its undeclared names and their lines in order."""

    source: _Source
    template: jinja2.Template
    names: Sequence[tuple[int, str]]

    def check_names(self, context: Mapping[str, Any]) -> None:
        """Raise TemplateError for an undefined name, also in a branch that is not taken."""
        for line, name in self.names:
            if name not in context and name not in _HELPERS:
                what = f"{name!r} is not defined{did_you_mean(name, [*context, *_HELPERS])}"
                known = f"{_known(context)}; helpers: {', '.join(_HELPERS)}"
                raise TemplateError(f"{cite(self.source.label, line)}: {what} ({known})")

    def render(self, context: Mapping[str, Any]) -> str:
        try:
            return self.template.render(context)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"{cite(error.name or self.source.label, error.lineno)}: {error.message}") from error
        except jinja2.TemplateNotFound as error:
            raise TemplateError(f"{self._where(error)}: no template {error.name!r} in {self.source.folder}") from error
        except jinja2.UndefinedError as error:
            message = str(error.message).replace(f"'{TypeName.__module__}.TypeName object'", "a precision parameter")
            raise TemplateError(f"{self._where(error)}: {message} ({_known(context)})") from error
        except Exception as error:
            kind = "" if isinstance(error, TemplateError) else f"{type(error).__name__}: "
            raise TemplateError(f"{self._where(error)}: {kind}{error}") from error

    def _where(self, error: BaseException) -> str:
        own = str(self.source.path) if self.source.path else "<template>"
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if frame.filename == own:
                return cite(self.source.label, frame.lineno or 1)
            if frame.filename.endswith(".j2") and Path(frame.filename).is_relative_to(self.source.folder):
                return f"{Path(frame.filename).name}:{frame.lineno}"
        return self.source.label


_BRACES: Final = "put a space between two braces of C++, as in { {1, 2} }, or use {% raw %}"


@functools.lru_cache(maxsize=64)
def _compile(source: _Source, *, is_marked: bool = False) -> _Template:
    environment = _environment(source.folder, is_marked=is_marked)
    try:
        tree = environment.parse(source.text, source.name)
        template = (
            environment.from_string(source.text) if source.path is None else environment.get_template(source.name)
        )
    except jinja2.TemplateSyntaxError as error:
        line = source.text.splitlines()[error.lineno - 1] if source.text else ""
        hint = f"; {_BRACES}" if "{{" in line else ""
        raise TemplateError(f"{cite(source.label, error.lineno)}: {error.message}{hint}") from error
    for output in tree.find_all(jinja2.nodes.Output):
        for each in output.nodes:
            is_number = isinstance(each, jinja2.nodes.Const) and not isinstance(each.value, str)
            if is_number or isinstance(each, jinja2.nodes.Tuple):
                raise TemplateError(f"{cite(source.label, each.lineno)}: {{{{...}}}} holds no parameter; {_BRACES}")
    undeclared = jinja2.meta.find_undeclared_variables(tree)
    names = [(node.lineno, node.name) for node in tree.find_all(jinja2.nodes.Name) if node.ctx == "load"]
    return _Template(source, template, sorted((line, name) for line, name in names if name in undeclared))


@functools.lru_cache(maxsize=16)
def _environment(folder: Path, *, is_marked: bool = False) -> jinja2.Environment:
    environment = jinja2.Environment(
        extensions=[_Marking] if is_marked else [],
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.globals.clear()
    environment.globals.update(_HELPERS)
    environment.globals["namespace"] = jinja2.utils.Namespace
    return environment


# -- which line of the template ------------------------------------------------------------------

#: The mark of a line's origin (template, line) in a marked rendering.
_MARK: Final = re.compile("\ue000([^\ue000\ue001]*):(\\d+)\ue001")
_LEADING: Final = re.compile(rf"(?:\s*{_MARK.pattern})+")


class _Marking(jinja2.ext.Extension):
    """Puts a mark before every line of a template's text and before every expression."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        for token in stream:
            if token.type in ("data", "variable_begin"):
                pieces = token.value.splitlines(keepends=True) if token.type == "data" else [""]
                marks = (f"\ue000{stream.name or ''}:{line}\ue001" for line in itertools.count(token.lineno))
                yield Token(token.lineno, "data", "".join(map("".join, zip(marks, pieces, strict=False))))
            if token.type != "data":
                yield token


def template_lines(kernel: Kernel, configuration: Configuration, sizes: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the origin of each line of :func:`render_body`: the template's label and the line.

    A template that inspects its own text renders differently with marks; its lines are cited as rendered.
    """
    source = _locate(kernel)
    context = _context(kernel, kernel.own(configuration), sizes)
    if callable(kernel.template):
        lines = _generated(kernel, context).count("\n") + 1
        return [(f"{source.label} as rendered", line) for line in range(1, lines + 1)]
    marked, text = _compile(source, is_marked=True).render(context), _compile(source).render(context)
    if _MARK.sub("", marked) != text:
        return [(f"{source.label} as rendered", line) for line in range(1, text.count("\n") + 2)]
    places, last = [], ("", "1")
    for line in marked.split("\n"):
        leading = _LEADING.match(line)
        name, number = leading.groups() if leading else last  # a repeated group holds its last match
        places.append((name or source.label, int(number)))
        last = [last, *_MARK.findall(line)][-1]
    return places


def cited(message: str, kernel: Kernel, configuration: Configuration, sizes: Mapping[str, int]) -> str:
    """Replace lines of the rendered source in a compiler's message by lines of the template."""
    try:
        source = _locate(kernel)
        name = re.escape(source.name.removesuffix(".j2"))
        place = re.compile(rf"(?<![\w./-]){name}(?::(\d+)(?::\d+)?(?=:|,|$)|\((\d+)\))", re.MULTILINE)
        lines = template_lines(kernel, configuration, sizes) if place.search(message) else []
    except MptuneError:
        return message

    def located(match: re.Match[str]) -> str:
        line = int(match[1] or match[2])
        where = cite(*lines[min(line, len(lines)) - 1])
        return where if where == cite(source.label, line) else f"{where} (line {line} rendered)"

    return place.sub(located, message)


# -- messages ------------------------------------------------------------------------------------


def _known(context: Iterable[str]) -> str:
    return f"parameters and sizes: {', '.join(context) or 'none'}"


def _check_function(kernel: Kernel, body: str, where: str) -> None:
    """Raise TemplateError unless the body defines the function, with C linkage and a parameter for each argument."""
    code = comments_blanked(body)
    found, function = kernel_parameters(code), kernel.function
    if function not in found:
        others = f"it defines {', '.join(found)}" if found else "it defines no __global__ function"
        near = did_you_mean(function, found)
        raise TemplateError(f'{where}: no function extern "C" __global__ void {function}(...){near} ({others})')
    if 'extern "C"' not in code:
        raise TemplateError(f'{where}: write extern "C" before __global__ void {function}; its name is mangled')
    places = found[function]
    parameters = len(places) if code[places[0][0] : places[-1][1]].strip() else 0
    if parameters != len(kernel.passed):
        names = ", ".join(argument.name for argument in kernel.passed)
        has = f"{parameters} parameter{'' if parameters == 1 else 's'}"
        wanted = f"the kernel declares {len(kernel.passed)} arguments ({names})"
        raise TemplateError(f"{where}: function {function} has {has}, {wanted}")
    for constant in (argument.name for argument in kernel.arguments if argument.is_constant):
        if not re.search(rf"\b(?:__constant__|MPTUNE_VARIABLE)\b[^;{{}}]*\b{constant}\s*\[", code):
            raise TemplateError(f"{where}: no __constant__ TYPE {constant}[...], which the kernel declares")
