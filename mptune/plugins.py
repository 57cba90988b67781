"""Members of an extension point by name: the project's own, one module each, and those of third parties."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any, Final, TypeVar

from mptune.errors import MptuneError, UnknownNameError, did_you_mean

Member = TypeVar("Member")
#: How a member declares its name, which is that of its file; an abstract base only annotates it.
_DECLARATION: Final = re.compile(r"""^[ \t]+name\b[^=\n]*=\s*["']([\w-]+)["']""", re.MULTILINE)


class Registry(Mapping[str, type[Member]]):
    """Concrete subclasses of one base class by name; a third party's is loaded when it is asked for.

    A class of the project's own has the name of its module, underscores as hyphens; one of a third party's the name
    of its entry point, in the group of the same name as the package. The project's own take precedence. Which modules
    hold one is read from their text (``name = "..."`` in a class), so that listing the names imports none of them.

    Args:
        kind: what a member is ("strategy"), for messages.
        package: the package whose modules, also those of its sub-packages, hold the project's own.
        base: the class they derive from; each has its name in the class attribute ``name``.
        hint: returns a sentence on a name that no member has and that is near to none, or "".
        modules: the module of each of the project's own by name, where that is not the name of its file.
    """

    def __init__(
        self,
        kind: str,
        package: str,
        base: Callable[..., Member],
        hint: Callable[[str], str] = lambda _: "",
        modules: Mapping[str, str] | None = None,
    ) -> None:
        self._kind = kind
        self._package = package
        self._base = base
        self._hint = hint
        self._modules = modules

    def check(self, name: str) -> None:
        """Check a name; loads no member.

        Raises:
            UnknownNameError: no member has it.
        """
        if name not in self:
            # A hint may have to load members, which a slip of the pen need not wait for.
            raise UnknownNameError(self._kind, name, self, "" if did_you_mean(name, self) else self._hint(name))

    def __getitem__(self, name: str) -> type[Member]:
        self.check(name)
        if name in self._own:
            module = importlib.import_module(self._own[name])
            own: type[Member] = next(c for c in vars(module).values() if self._is_member(c) and c.name == name)
            return own
        point = next(point for point in self._third_party() if point.name == name)
        loaded: Any = load_point(point, self._kind)
        if not self._is_member(loaded):
            base = getattr(self._base, "__name__", self._kind)
            raise MptuneError(f"entry point {point.value!r} of {self._kind} {name!r} is no subclass of {base}")
        return loaded  # type: ignore[no-any-return]

    def __contains__(self, name: object) -> bool:
        return name in self._own or any(name == point.name for point in self._third_party())

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._own, *(point.name for point in self._third_party())}))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _third_party(self) -> EntryPoints:
        """Find the entry points: slow, since it reads a file of every installed package."""
        return importlib.metadata.entry_points(group=self._package)

    @cached_property
    def _own(self) -> Mapping[str, str]:
        """The modules of the project's own members by name."""
        if self._modules is not None:
            return {name: f"{self._package}.{module}" for name, module in self._modules.items()}
        (folder,) = map(Path, importlib.import_module(self._package).__path__)
        found = {}
        for path in folder.rglob("*.py"):
            name = path.stem.replace("_", "-")
            if name in _DECLARATION.findall(path.read_text(encoding="utf-8")):
                module = ".".join(path.relative_to(folder).with_suffix("").parts)
                found[name] = f"{self._package}.{module}"
        return found

    def _is_member(self, candidate: object) -> bool:
        is_class = inspect.isclass(candidate) and not inspect.isabstract(candidate)
        return is_class and issubclass(candidate, self._base)  # type: ignore[arg-type]


def load_point(point: EntryPoint, kind: str) -> object:
    """Return what an entry point gives: a ``kind`` of thing ("kernel", "backend", ...), in the message.

    Raises:
        MptuneError: it cannot be imported; names it, so that a user knows what to uninstall.
    """
    try:
        return point.load()
    except MptuneError:
        raise
    except Exception as error:
        raise MptuneError(
            f"entry point {point.value!r} of {kind} {point.name!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
