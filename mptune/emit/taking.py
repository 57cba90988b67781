"""Extracting Python functions of a definition, with all that they use from their file, as a file without mptune.

The file is parsed, not run: a function uses the names that its file defines or imports, and all that these use.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import symtable
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import mptune.errors
from mptune.errors import KernelError

_EVERY_MODULE_HAS: Final = frozenset({"__name__", "__file__", "__doc__"})


def take_along(called: str, functions: Sequence[Callable[..., Any]]) -> tuple[str, tuple[str, ...]]:
    """Return the code of some functions of one file with all that they use from it, and their names.

    Args:
        called: name of the application in messages.
        functions: functions at the top level of one file. Imports for type checkers are left out, and exceptions of
            mptune become subclasses of ValueError.

    Raises:
        KernelError: a function is not at the top level of a file, or uses mptune or another file.
    """
    path = _file_of(called, functions[0])
    for function in functions[1:]:
        if (other := _file_of(called, function)) != path:
            raise KernelError(f"{called}: its functions are in {path.name} and {other.name}; emit takes one file along")
    try:
        text = path.read_text(encoding="utf-8")
        source = _File(called, path, text.splitlines(), ast.parse(text).body)
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        raise KernelError(f"{called}: {path} cannot be read: {error}") from error
    names = tuple(source.name_of(function) for function in functions)
    for name in names:
        source.take(name, "emit")
    return source.text(), names


def _file_of(called: str, function: Callable[..., Any]) -> Path:
    try:
        found = inspect.getsourcefile(function)
    except TypeError:
        found = None
    if found is None or not Path(found).is_file():
        if type(function).__module__.startswith("mptune.adopt"):
            raise KernelError(
                f"{called}: its steps run the program itself, so nothing is emitted beside it; emit --into FILE "
                "--output FILE writes the types into the program"
            )
        raise KernelError(f"{called}: emit takes functions of a file along, and {function!r} is in none")
    return Path(found).resolve()


@dataclass(slots=True)
class _File:
    """A Python file and the statements to extract."""

    called: str
    path: Path
    lines: Sequence[str]
    body: Sequence[ast.stmt]
    #: Texts by the number of the statement.
    taken: dict[int, dict[str, None]] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)

    def name_of(self, function: Callable[..., Any]) -> str:
        """Return the name of a function at the top level."""
        name = getattr(function, "__qualname__", repr(function))
        if not any(isinstance(statement, ast.FunctionDef) and statement.name == name for statement in self.body):
            raise KernelError(
                f"{self.called}: emit takes functions at the top level of a file along, and {name} of {self.path.name} "
                "is none (def NAME(...): does)"
            )
        return str(name)

    def take(self, name: str, user: str) -> None:
        """Extract the definition of a name, and all that it uses."""
        if name in self.known:
            return
        self.known.add(name)
        defining = [place for place, statement in enumerate(self.body) if name in _bound(statement)]
        if not defining and not hasattr(builtins, name) and name not in _EVERY_MODULE_HAS:
            raise KernelError(f"{self.called}: {user} uses {name!r}, which {self.path.name} does not define")
        for place in defining:
            statement = self.body[place]
            if isinstance(statement, ast.Import | ast.ImportFrom):
                self.taken.setdefault(place, {})[self._import_of(statement, name, user)] = None
            elif place not in self.taken:
                self.taken[place] = {self._text_of(statement): None}
                for node in ast.walk(statement):
                    if isinstance(node, ast.Import | ast.ImportFrom):
                        for alias in node.names:
                            self._import_of(node, _bound_by(alias), name)
                for used in _used(statement):
                    self.take(used, name)

    def text(self) -> str:
        """Return the extracted code in the order of the file."""
        text, was_block = "", False
        for place in sorted(self.taken):
            for part in self.taken[place]:
                is_block = part.endswith("\n") or isinstance(self.body[place], ast.FunctionDef | ast.ClassDef)
                text += ("\n\n" if text and (is_block or was_block) else "") + part.rstrip("\n") + "\n"
                was_block = is_block
        return text

    def _import_of(self, statement: ast.Import | ast.ImportFrom, name: str, user: str) -> str:
        """Return the import of one name, or a class in place of an exception of mptune."""
        alias = next(each for each in statement.names if _bound_by(each) == name)
        only: ast.stmt = ast.Import([alias])
        root = alias.name.split(".")[0]
        if isinstance(statement, ast.ImportFrom):
            only = ast.ImportFrom(statement.module, [alias], statement.level)
            root = "" if statement.level else (statement.module or "").split(".")[0]
            if root == "mptune" and isinstance(getattr(mptune.errors, alias.name, None), type):
                return f'class {name}(ValueError):\n    """What is given does not fit."""\n'
        beside = self.path.parent / root
        if root == "mptune" or not root or beside.with_name(f"{root}.py").is_file() or beside.is_dir():
            whose = "of mptune" if root == "mptune" else "of another file"
            raise KernelError(
                f"{self.called}: {user} uses {name!r} ({ast.unparse(only)}, line {statement.lineno} of "
                f"{self.path.name}), which is {whose}: emit takes along what {self.path.name} itself defines, and "
                "imports of installed packages"
            )
        return ast.unparse(only)

    def _text_of(self, statement: ast.stmt) -> str:
        """Return the text of a statement with the comment above it."""
        decorators = statement.decorator_list if isinstance(statement, ast.FunctionDef | ast.ClassDef) else []
        first, last = min([statement.lineno, *(d.lineno for d in decorators)]), statement.end_lineno or statement.lineno
        others = [other for other in self.body if other is not statement]
        if any(other.lineno <= last and (other.end_lineno or other.lineno) >= first for other in others):
            return ast.unparse(statement)  # several in a line
        while first > 1 and self.lines[first - 2].startswith("#") and not self.lines[first - 2].startswith("#!"):
            first -= 1
        return "\n".join(self.lines[first - 1 : last])


def _bound_by(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _table(statement: ast.stmt) -> symtable.SymbolTable:
    # Annotations are not evaluated, so they are in no table.
    text = f"from __future__ import annotations\n{ast.unparse(statement)}"
    return symtable.symtable(text, "<taken>", "exec")


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds, except for type checkers."""
    if isinstance(statement, ast.If) and ast.unparse(statement.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        return set()
    symbols = _table(statement).get_symbols()
    return {each.get_name() for each in symbols if each.is_assigned() or each.is_imported()} - {"annotations"}


def _used(statement: ast.stmt) -> Iterable[str]:
    """Return the names of its module that a statement uses, also in nested functions, in alphabetical order."""
    found: set[str] = set()
    pending = [_table(statement)]
    while pending:
        table = pending.pop()
        is_module = table.get_type() == "module"
        found.update(s.get_name() for s in table.get_symbols() if s.is_referenced() and (is_module or s.is_global()))
        pending += [child for child in table.get_children() if "annotation" not in str(child.get_type())]
    return sorted(found)
