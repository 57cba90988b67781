"""Members of an extension point by name: the bundled members, one module each, and entry points of third parties."""

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
#: The declaration of a member's name, equal to the name of its file; an abstract base only annotates the name.
_DECLARATION: Final = re.compile(r"""^[ \t]+name\b[^=\n]*=\s*["']([\w-]+)["']""", re.MULTILINE)


class Registry(Mapping[str, type[Member]]):
    """Concrete subclasses of one base class by name, each imported at first use.

    A bundled member has the name of its module, with hyphens for underscores. A member of a third party has the name
    of its entry point, in the group named after the package. Bundled members take precedence. Names are found in the
    text of the modules (``name = "..."`` in a class), so listing them imports no module.

    Args:
        kind: the noun for a member in messages ("strategy").
        package: the package whose modules and sub-packages hold the bundled members.
        base: the base class of members; each has its name in the class attribute ``name``.
        hint: returns a sentence on an unknown name that is similar to no member, or "".
        modules: module of each bundled member by name, if modules are not named after their members.
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
        """Raise UnknownNameError if no member has the name; loads no member."""
        if name not in self:
            # A hint may load members, which takes long. A typo needs none.
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
        """Return the entry points; slow, since a file of every installed package is read."""
        return importlib.metadata.entry_points(group=self._package)

    @cached_property
    def _own(self) -> Mapping[str, str]:
        """Modules of the bundled members by name."""
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
    """Return the object of an entry point; ``kind`` ("kernel", "backend") is the noun in the message.

    Raises:
        MptuneError: the import fails; the message names the entry point to uninstall.
    """
    try:
        return point.load()
    except MptuneError:
        raise
    except Exception as error:
        raise MptuneError(
            f"entry point {point.value!r} of {kind} {point.name!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
