"""The steps of an application as they were when it was loaded, whatever earlier runs have left in Python."""

from __future__ import annotations

import functools
import io
import marshal
import pickle
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Final

import cloudpickle

from mptune.kernel import Application
from mptune.registry import loaded_modules

__all__ = ["StepsAnew", "pickled"]

#: What steps refer to is copied for each run, unless it is more than this many bytes.
_MOST_BYTES: Final = 1 << 26


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        # From 3.1.3 on cloudpickle leaves out in which file code is, which messages name and steps are told by.
        if isinstance(obj, CodeType):
            return marshal.loads, (marshal.dumps(obj),)
        return super().reducer_override(obj)


def pickled(value: object, pickler: type[_Pickler] = _Pickler) -> bytes:
    """Return what another interpreter can load, functions of a script or a notebook included."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        # To find where a function comes from, every imported module is looked into, deprecated ones too.
        warnings.simplefilter("ignore")
        pickler(file).dump(value)
    return file.getvalue()


@dataclass(frozen=True, slots=True)
class StepsAnew:
    """Makes an application's steps once more, with the globals, caches and defaults they had at first.

    Steps that keep results would be timed by copying them: of the same inputs from one launch to the next, and of the
    same inputs in other types. What they keep in modules that are installed, or outside of Python, stays.

    Attributes:
        steps: the steps themselves.
        packed: as which they are copied; empty where they cannot be.
        why_not: why they cannot be copied, in words; empty if they can.
    """

    steps: Callable[..., None]
    packed: bytes = b""
    why_not: str = ""

    @classmethod
    def of(cls, application: Application) -> StepsAnew:
        """Keep the steps of an application that has not run."""
        steps = application.steps
        try:
            packed = _packed(steps, application.path)
            pickle.loads(packed)
        # Whatever classes of the definition raise where they are copied.
        except Exception as error:
            return cls(steps, why_not=f"{type(error).__name__}: {error}".removesuffix(": "))
        if len(packed) > _MOST_BYTES:
            return cls(steps, why_not=f"they refer to {len(packed) / 1e6:.0f} MB")
        return cls(steps, packed)

    def __call__(self) -> Callable[..., None]:
        """Return the steps as they were."""
        if not self.packed:
            return self.steps
        made: Callable[..., None] = pickle.loads(self.packed)  # what this process has packed itself
        return made


def _packed(steps: Callable[..., None], path: Path | None) -> bytes:
    # By their names, functions would be those that are there already.
    modules = {module.__name__: module for module in (*loaded_modules(), *_beside(path))}
    new = [modules[name] for name in modules.keys() - cloudpickle.list_registry_pickle_by_value()]
    for module in new:
        cloudpickle.register_pickle_by_value(module)
    try:
        return pickled(steps, _StepsPickler)
    finally:
        for module in new:
            cloudpickle.unregister_pickle_by_value(module)


def _beside(path: Path | None) -> list[Any]:
    """Return the modules that lie beside a definition file."""
    if path is None:
        return []
    folder = path.resolve().parent
    files = ((module, getattr(module, "__file__", None)) for module in list(sys.modules.values()))
    return [module for module, file in files if file and Path(file).parent == folder and module.__name__ != "__main__"]


class _StepsPickler(_Pickler):
    def reducer_override(self, obj: Any) -> Any:
        # A function with a cache is known by its name alone to others, which leads to the one that has been called.
        if isinstance(obj, functools._lru_cache_wrapper):
            return _with_cache, (obj.__wrapped__, obj.cache_parameters())
        return super().reducer_override(obj)


def _with_cache(function: Callable[..., Any], parameters: dict[str, Any]) -> Callable[..., Any]:
    made: Callable[..., Any] = functools.lru_cache(**parameters)(function)
    return made
