"""Finding and loading kernels: the bundled ones by name, a user's own by its file."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mptune.errors import KernelError, MptuneError, UnknownNameError, did_you_mean
from mptune.folders import bundled_folder
from mptune.plugins import load_point

if TYPE_CHECKING:  # importing it takes longer than finding out that there is no kernel of a name
    from mptune.kernel import Kernel

__all__ = ["bundled_kernels", "load_kernel", "loaded_modules", "loaded_version"]

_ENTRY_POINTS = "mptune.kernels"
_MODULE_PREFIX = "_mptune_"

_Version = tuple[int, ...]
_versions: WeakKeyDictionary[Kernel, _Version] = WeakKeyDictionary()


def bundled_kernels() -> tuple[str, ...]:
    """Return the names ``load_kernel`` accepts in addition to files, in alphabetical order."""
    names = {path.stem for path in bundled_folder("kernels").glob("*.py") if not path.stem.startswith("_")}
    names.update(point.name for point in importlib.metadata.entry_points(group=_ENTRY_POINTS))
    return tuple(sorted(names))


def load_kernel(name: str | Path) -> Kernel:
    """Load a kernel definition: a bundled kernel's name, or the path of a Python file that defines one.

    The file is run as Python code: it is the user's own.

    Raises:
        UnknownNameError: no bundled kernel has that name.
        KernelError: the file does not exist, fails to run, or defines no kernel or more than one.
    """
    text = str(name)
    if text.endswith(".py") or "/" in text:
        return _load_file(Path(text))
    path = bundled_folder("kernels") / f"{text}.py"
    if not text.startswith("_") and path.is_file():
        return _load_file(path)
    for point in importlib.metadata.entry_points(group=_ENTRY_POINTS, name=text):
        from mptune.kernel import Kernel

        found = load_point(point, "kernel")
        if not isinstance(found, Kernel):
            raise KernelError(f"entry point {point.value!r} of kernel {text!r} is not a mptune.Kernel")
        return found
    raise UnknownNameError(
        "kernel", text, bundled_kernels(), hint="A kernel of your own is given by the path of its file."
    )


def _load_file(path: Path) -> Kernel:
    if not path.is_file():
        siblings = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise KernelError(f"no kernel definition file {str(path)!r}{did_you_mean(path.name, siblings, path.parent)}")
    path = path.resolve()
    version = _version(path)
    module = _run_file(path)
    kernel = _only_kernel(module, path)
    reference = kernel.reference or _sibling_reference(path)
    kernel = dataclasses.replace(kernel, path=path, reference=reference)
    _versions[kernel] = version
    return kernel


def loaded_version(kernel: Kernel) -> tuple[int, ...] | None:
    """Return when the files a kernel was loaded from were last changed; None for one that no file holds as it is."""
    return _versions.get(kernel)


def loaded_modules() -> tuple[ModuleType, ...]:
    """Return the modules made of definition files, which no other process can import by their names."""
    return tuple(module for name, module in sys.modules.items() if name.startswith(_MODULE_PREFIX))


def _version(path: Path) -> _Version:
    files = (path, _reference_file(path))
    return tuple(file.stat().st_mtime_ns for file in files if file.is_file())


def _reference_file(path: Path) -> Path:
    return path.parent.parent / "references" / path.name


def _only_kernel(module: ModuleType, path: Path) -> Kernel:
    from mptune.kernel import Kernel

    named = getattr(module, "kernel", None)
    if isinstance(named, Kernel):
        return named
    found = {name: value for name, value in vars(module).items() if isinstance(value, Kernel)}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise KernelError(f"{path.name} defines several kernels ({', '.join(found)}); name the one to tune 'kernel'")
    raise KernelError(f"{path.name} defines no kernel: expected a variable 'kernel' holding a mptune.Kernel")


def _sibling_reference(path: Path) -> Callable[..., Any] | None:
    """Return ``reference`` of the file of the same stem in the sibling folder ``references``."""
    file = _reference_file(path)
    if not file.is_file():
        return None
    found = getattr(_run_file(file), "reference", None)
    if not callable(found):
        raise KernelError(f"{file.name} in the folder 'references' defines no function 'reference(inputs, size)'")
    return found  # type: ignore[no-any-return]


def _run_file(path: Path) -> ModuleType:
    """Run a Python file as a module, its own folder importable while it runs."""
    spec = importlib.util.spec_from_file_location(f"{_MODULE_PREFIX}{path.parent.name}_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise KernelError(f"{str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except MptuneError:
        raise
    except Exception as error:
        line = next(
            (f.lineno for f in reversed(traceback.extract_tb(error.__traceback__)) if f.filename == str(path)), None
        )
        if isinstance(error, SyntaxError):
            line = error.lineno
        where = f"{path.name}:{line}" if line else path.name
        raise KernelError(f"{where}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.parent))
    return module
