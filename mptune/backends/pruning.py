"""Leaving out of the prelude what a source does not use, which takes drivers longer to read than all the rest.

A declaration stays where something that stays, or the template, names what it declares; of overloads, specialisations
and operators those stay whose types are named, too. What cannot be told stays. Names are compared without their
namespaces. Macros that declare something are written out, so that each of the declarations can be left out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, TypeAlias

__all__ = ["pruned"]

_STRING: Final = r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'"
_NUMBER: Final = r"\.?\d(?:[eEpP][+-]|[\w.'])*"
_COMMENT: Final = re.compile(rf"({_NUMBER}|{_STRING})|//[^\n]*|/\*(?s:.*?)\*/")
_LINE: Final = re.compile(r"(?:[^\n\\]|\\.|\\\n)*\n?")
_TOKEN: Final = re.compile(
    rf"(?P<directive>^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*)|\n|[^\S\n]+|(?P<string>{_STRING})|(?P<number>{_NUMBER})"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<sign>::|->|<<|<=|>=|==|.)",
    re.MULTILINE,
)
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_SUFFIX: Final = re.compile(r"(?<=\w)_[A-Za-z]\w*")  # of a literal
_CONDITION: Final = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)", re.DOTALL)
_DEFINITION: Final = re.compile(r"\s*#\s*define\s+(\w+)(?:\(([^)]*)\))?(.*)", re.DOTALL)
_UNDEFINED: Final = re.compile(r"\s*#\s*undef\s+(\w+)")
_DEFINED: Final = re.compile(r"(!?)\s*defined\s*\(\s*(\w+)\s*\)")
_PASTED: Final = re.compile(r"\s*##\s*")
_CLOSING: Final = {"(": ")", "[": "]", "{": "}", "<": ">"}
#: A class that a type is compared with, which makes none of it.
_COMPARED: Final = re.compile(r"\bsame<[\w:]+(?:<[\w:]+>)?,\s*(?:\w+::)*\w+>")
#: What an operator asks of its operands, by the class that has to be named for it.
_ASKED: Final = {"has_literal": "literal", "if_compound": "stored", "is_compound": "stored"}
#: What may stand in parentheses before the name that is declared.
_QUALIFIERS: Final = {"__attribute__", "alignas", "decltype"}
_KEYWORDS: Final = {"enum", "class", "int", "static_assert", "sizeof", "float", "double"}
_CLASSES: Final = {"struct", "class", "union"}

#: The kind of a token, its text, and where it ends.
_Token: TypeAlias = tuple[str, str, int]


class _Kind(Enum):
    CLASS = auto()
    FIXED = auto()
    USING = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class _Piece:
    """A declaration or a directive.

    Attributes:
        text: as it is written.
        names: what it declares: it stays where one of them is named, or if there are none.
        types: of these all must be named, too.
        words: what it names itself.
        kind: a class, something that stays in any case, a name made known elsewhere, or anything else.
    """

    text: str
    names: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    kind: _Kind = _Kind.OTHER


@dataclass(frozen=True, slots=True)
class _Macro:
    """A macro.

    Attributes:
        parameters: None where it has none, or is not to be written out.
        body: what it stands for.
        words: what all of its definitions name.
        is_defined: whether it is, after the directives so far.
    """

    parameters: tuple[str, ...] | None
    body: str
    words: frozenset[str]
    is_defined: bool = True


def pruned(text: str, user: str, known: Mapping[str, bool]) -> str:
    """Return a prelude without what a source does not use.

    Args:
        text: the prelude.
        user: what follows it, and whatever else may name what it declares.
        known: whether macros are defined, as far as its conditions are to be settled.
    """
    pieces, macros = _read(text, tuple(sorted(known.items())))
    user = _COMMENT.sub(lambda match: match[1] or " ", user)
    return _kept(pieces, macros, {*_WORD.findall(user), *_SUFFIX.findall(user)})


def _kept(pieces: Sequence[_Piece], macros: Mapping[str, _Macro], named: set[str]) -> str:
    reached, new = set[str](), named
    keeps = [False] * len(pieces)
    while new:
        while new:
            word = new.pop()
            reached.add(word)
            new |= macros[word].words - reached if word in macros else set()
        for i, piece in enumerate(pieces):
            if not keeps[i] and _stays(piece, reached):
                keeps[i] = True
                new |= piece.words - reached
    there = frozenset(name for piece, is_kept in zip(pieces, keeps, strict=True) if is_kept for name in piece.names)
    return "".join(
        f"{piece.text}\n"
        for piece, is_kept in zip(pieces, keeps, strict=True)
        if is_kept or (piece.kind is _Kind.USING and piece.names <= there)
    )


def _stays(piece: _Piece, reached: set[str]) -> bool:
    if piece.kind in (_Kind.FIXED, _Kind.USING):
        return piece.kind is _Kind.FIXED
    return piece.types <= reached and not (piece.names and piece.names.isdisjoint(reached))


@functools.lru_cache(maxsize=8)
def _read(text: str, known: tuple[tuple[str, bool], ...]) -> tuple[Sequence[_Piece], Mapping[str, _Macro]]:
    """Return the pieces of a prelude, and its macros."""
    macros: dict[str, _Macro] = {}
    live = _live(_COMMENT.sub(lambda match: match[1] or " ", text), dict(known))
    pieces = list(_pieces(live, macros))
    classes = frozenset(name for piece in pieces if piece.kind is _Kind.CLASS for name in piece.names)
    declared = frozenset(name for piece in pieces for name in piece.names) | macros.keys()
    own = [
        replace(piece, types=piece.types & classes - piece.names, words=piece.words & declared - piece.names)
        for piece in pieces
    ]
    return own, {name: replace(macro, words=macro.words & declared) for name, macro in macros.items()}


# -- conditions ----------------------------------------------------------------------------------


def _live(text: str, known: Mapping[str, bool]) -> str:
    """Return a text without the branches of conditions that are known not to be taken."""
    lines: list[str] = []
    # Of each condition around a line: whether it is written, whether a branch before is taken for certain, and whether
    # this one may be.
    around: list[tuple[bool, bool, bool]] = []
    for line in _LINE.findall(text):
        found = _CONDITION.match(line)
        what = found[1] if found else ""
        within = around[:-1] if what in ("elif", "else", "endif") else around
        may_be = all(is_taken for _, _, is_taken in within)
        value = _truth(found[2], known) if found and what in ("if", "elif") else True if what == "else" else None
        if what in ("if", "ifdef", "ifndef"):
            around.append((value is None, value is True, value is not False))
            is_written = value is None
        elif what == "endif":
            is_written, _, _ = around.pop()
        elif what:
            was_written, is_settled, _ = around.pop()
            is_taken = not is_settled and value is not False
            is_written = is_taken and (was_written or value is None)
            line = "#else\n" if value else line if was_written else line.replace("elif", "if", 1)
            around.append((was_written or is_written, is_settled or value is True, is_taken))
        else:
            is_written = True
        lines += [line] * (may_be and is_written)
    return "".join(lines)


def _truth(condition: str, known: Mapping[str, bool]) -> bool | None:
    """Return whether a condition holds; None if that is not known."""
    for sign, deciding in (("||", True), ("&&", False)):
        parts = _split(condition, sign)
        if len(parts) > 1:
            values = [_truth(part, known) for part in parts]
            return deciding if deciding in values else None if None in values else not deciding
    inner = condition.strip()
    if inner.startswith("(") and inner.endswith(")"):
        return _truth(inner[1:-1], known)
    found = _DEFINED.fullmatch(inner)
    return None if found is None or found[2] not in known else known[found[2]] != bool(found[1])


def _split(text: str, separator: str) -> list[str]:
    """Return what stands between separators that are in no parentheses."""
    parts, depth, start = [], 0, 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and text.startswith(separator, i):
            parts.append(text[start:i])
            start = i + len(separator)
    return [*parts, text[start:]]


# -- declarations --------------------------------------------------------------------------------


def _pieces(text: str, macros: dict[str, _Macro]) -> Iterator[_Piece]:
    """Yield what a text consists of, in its order, and add its macros."""
    tokens = [(m.lastgroup, m[0], m.end()) for m in _TOKEN.finditer(text) if m.lastgroup is not None]
    begin = first = depth = conditions = 0  # begin: the token the current declaration begins with
    is_ended = True
    for i, (kind, token, end) in enumerate(tokens):
        if is_ended and not conditions:
            begin, is_ended = i, False
            first = end - len(token)
        if kind == "directive":
            if begin == i:
                yield _directive(token.strip(), macros)
                is_ended = True
                continue
            conditions += _nesting(token)
        elif begin == i and token == "}":  # of a namespace
            yield _Piece(token)
            is_ended = True
            continue
        elif token in "([{":
            depth += 1
            if token == "{" and tokens[begin][1] == "namespace":
                yield _Piece(text[first:end])
                depth, is_ended = 0, True
                continue
        elif token in ")]}":
            depth -= 1
        if depth == 0:
            following = tokens[i + 1][1] if i + 1 < len(tokens) else ""
            is_call = token == ")" and tokens[begin][1] in macros and tokens[begin + 1][1] == "(" and following != ";"
            is_ended = is_ended or token == ";" or is_call or (token == "}" and following != ";")
        if is_ended and not conditions:
            yield from _declared(text[first:end], tokens[begin : i + 1], macros)


def _nesting(directive: str) -> int:
    what = _CONDITION.match(directive)
    return 0 if what is None else {"elif": 0, "else": 0, "endif": -1}.get(what[1], 1)


def _directive(text: str, macros: dict[str, _Macro]) -> _Piece:
    """Return a directive, and add the macro that it defines."""
    words = frozenset(_WORD.findall(text))
    if found := _UNDEFINED.match(text):
        if found[1] in macros:
            macros[found[1]] = replace(macros[found[1]], is_defined=False)
        return _Piece(text)
    found = _DEFINITION.match(text)
    if found is None:
        return _Piece(text, words=words if _CONDITION.match(text) else frozenset())
    name, parameters, body = found.groups()
    before = macros.get(name, _Macro(None, "", frozenset(), is_defined=False))
    # Which of two definitions holds, conditions say.
    is_plain = parameters is not None and not before.is_defined and "..." not in parameters and '"' not in body
    names = tuple(part.strip() for part in parameters.split(",")) if is_plain else None
    macros[name] = _Macro(names, body.replace("\\\n", "\n"), words | before.words)
    return _Piece(text, frozenset({name}))


def _declared(text: str, tokens: Sequence[_Token], macros: dict[str, _Macro]) -> Iterator[_Piece]:
    """Yield a declaration, or those that the call of a macro stands for."""
    words = frozenset(_WORD.findall(_COMPARED.sub("same", text)))
    macro = macros.get(tokens[0][1])
    if macro is None or tokens[1][1] != "(":
        plain = [token for token in tokens if token[0] != "directive"]
        names, types = _names(plain)
        first = plain[_after_template(plain)][1]
        if first in _CLASSES and "{" not in text:
            yield _Piece(text, names, kind=_Kind.FIXED)  # something may be compared with it
        elif first == "using" and "=" not in text:
            yield _Piece(text, names, kind=_Kind.USING)
        else:
            yield _Piece(text, names, types, words, _Kind.CLASS if first in _CLASSES else _Kind.OTHER)
    elif macro.parameters is None:
        yield _Piece(text, words=words)
    else:
        arguments = _split(text[text.index("(") + 1 : text.rindex(")")], ",")
        given = dict(zip(macro.parameters, map(str.strip, arguments), strict=False))
        written = _PASTED.sub("", _WORD.sub(lambda match: given.get(match[0], match[0]), macro.body))
        yield from _pieces(written, macros)


def _names(tokens: Sequence[_Token]) -> tuple[frozenset[str], frozenset[str]]:
    """Return what a declaration declares, and the words of its parameters and of what it specialises."""
    i = _after_template(tokens)
    first = tokens[i][1]
    words = frozenset(token for kind, token, _ in tokens[i:] if kind == "word")
    if first in ("enum", "static_assert"):  # its values count; and it asserts something of what it names
        return words - _KEYWORDS, frozenset()
    if first == "typedef":
        return frozenset(), frozenset()
    chain: list[str] = []
    specialised = frozenset[str]()
    while i < len(tokens):
        kind, token, _ = tokens[i]
        following = tokens[i + 1][1] if i + 1 < len(tokens) else ""
        if token == "operator":
            if chain and tokens[i - 1][1] == "::":
                return frozenset(chain[:1]), frozenset()
            at = next(k for k in range(i + 1, len(tokens)) if tokens[k][1] == "(")
            at = at + 2 if tokens[at + 1][1] == ")" and tokens[at + 2][1] == "(" else at
            literal = frozenset(t for k, t, _ in tokens[i + 1 : at] if k == "word" and tokens[i + 1][0] == "string")
            asked = frozenset(_ASKED[token] for _, token, _ in tokens[:i] if token in _ASKED)
            return literal, asked | _words(tokens, at)
        if token in _QUALIFIERS and following == "(":
            i = _matching(tokens, i + 1)
        elif kind == "word":
            chain = [*chain, token] if tokens[i - 1][1] == "::" and chain else [token]
            specialised = frozenset()
        elif token == "<" and chain:
            specialised = _words(tokens, i)
            i = _matching(tokens, i)
        elif token == "(":
            return frozenset(chain[:1]), specialised | _words(tokens, i)
        elif token in "={;:[":
            break
        i += 1
    return frozenset(chain[-1:] if first == "using" else chain[:1]), specialised


def _after_template(tokens: Sequence[_Token]) -> int:
    """Return where a declaration goes on after ``template <...>``."""
    i = 0
    while tokens[i][1] == "template":
        i = _matching(tokens, i + 1) + 1
    return i


def _matching(tokens: Sequence[_Token], start: int) -> int:
    """Return where a bracket is closed."""
    wanted: list[str] = []
    for i in range(start, len(tokens)):
        token = tokens[i][1]
        if token in "([{" or (token == "<" and (not wanted or wanted[-1] == ">")):
            wanted.append(_CLOSING[token])
        elif wanted and token == wanted[-1]:
            wanted.pop()
            if not wanted:
                return i
    return len(tokens) - 1


def _words(tokens: Sequence[_Token], start: int) -> frozenset[str]:
    """Return the words in brackets."""
    return frozenset(token for kind, token, _ in tokens[start : _matching(tokens, start)] if kind == "word")
