"""Finding and loading kernels: the bundled ones by name, a user's own by its file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mptune.errors import KernelError, MptuneError, RunFileError, UnknownNameError, did_you_mean
from mptune.paths import bundled_folder
from mptune.plugins import load_point

if TYPE_CHECKING:  # slow to import; an unknown name needs none of it
    from mptune.kernel import Application, Kernel, Sizes, Tunable
    from mptune.store import RunInfo

#: The file that ``mptune adopt`` writes beside a definition.
RECORD = "adopted.json"
_ENTRY_POINTS = "mptune.kernels"
_MODULE_PREFIX = "_mptune_"

_versions: WeakKeyDictionary[Tunable, tuple[int, ...]] = WeakKeyDictionary()


def bundled_kernels() -> tuple[str, ...]:
    """Return the names ``load_kernel`` accepts in addition to files, in alphabetical order."""
    installed = {point.name for point in importlib.metadata.entry_points(group=_ENTRY_POINTS)}
    return tuple(sorted(installed | {path.stem for path in bundled_folder("kernels").glob("[!_]*.py")}))


def bundled_applications() -> tuple[str, ...]:
    """Return the names of the bundled applications, in alphabetical order."""
    return tuple(sorted(path.stem for path in bundled_folder("applications").glob("[!_]*.py")))


def load_kernel(name: str | Path) -> Kernel:
    """Load a kernel by a bundled kernel's name, or by the path of a definition file or its folder.

    The file is run as Python code: it is the user's own.

    Raises:
        UnknownNameError: no bundled kernel has that name.
        KernelError: the file does not exist or fails to run, or it does not define exactly one kernel.
    """
    return _of_kind("kernel", name)  # type: ignore[no-any-return]


def load_application(name: str | Path) -> Application:
    """Load an application, as :func:`load_kernel` loads a kernel."""
    return _of_kind("application", name)  # type: ignore[no-any-return]


def _of_kind(what: str, name: str | Path) -> Any:
    found = load_tunable(name)
    if found.what != what:
        is_a = {"kernel": "a single kernel", "application": "an application"}[found.what]
        raise KernelError(f"{found.name} is {is_a}: load_{found.what} loads it")
    return found


def load_tunable(name: str | Path) -> Tunable:
    """Load a kernel or an application, as :func:`load_kernel` loads a kernel."""
    text = str(name)
    if "/" in text and Path(text).is_dir():
        return _load_file(_definition_in(Path(text), Path(text).resolve().name))
    if text.endswith(".py") or "/" in text:
        return _load_file(Path(text))
    for folder in ("kernels", "applications"):
        path = bundled_folder(folder) / f"{text}.py"
        if not text.startswith("_") and path.is_file():
            return _load_file(path)
    if adopted_record(Path(text)):
        return _load_file(_definition_in(Path(text), Path(text).resolve().name))
    for point in importlib.metadata.entry_points(group=_ENTRY_POINTS, name=text):
        from mptune.kernel import Kernel

        found = load_point(point, "kernel")
        if not isinstance(found, Kernel):
            raise KernelError(f"entry point {point.value!r} of kernel {text!r} is not a mptune.Kernel")
        return found
    own = next((own for own in (f"./{text}.py", f"./{text}/{text}.py") if Path(own).is_file()), "the path of its file")
    hint = f"A kernel of your own is given as {own}."
    raise UnknownNameError("kernel", text, (*bundled_kernels(), *bundled_applications()), hint=hint)


def definition_hash(kernel: Tunable) -> str:
    """Return the hexadecimal SHA-256 of a kernel's definition file; empty without a file."""
    return hashlib.sha256(kernel.path.read_bytes()).hexdigest() if kernel.path else ""


def adopted_record(folder: Path) -> dict[str, Any]:
    """Return the record that ``mptune adopt`` wrote to a folder; empty without one."""
    try:
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


# -- the kernel of a run -------------------------------------------------------------------------


def tunable_of_run(
    info: RunInfo,
    given: Tunable | str | Path | None = None,
    *,
    kind: type[Tunable] | None = None,
    on_warning: Callable[[str], None] = lambda text: warnings.warn(text, stacklevel=3),
    said: str = "",
) -> Any:
    """Return the kernel or application of a run: the bundled one of its name, or the given one.

    A definition file is code, and a run file may come from anyone. So the path in a run file is never opened; messages
    only show it.

    Args:
        info: the run's description.
        given: a kernel, the name of a bundled one, a definition file, or a folder that holds the definition.
        kind: the required class, Kernel or Application; None for either.
        on_warning: called with each of the :func:`remarks`.
        said: the beginning of messages about other files than runs ("the wisdom is of application").
    """
    from mptune.kernel import Application, Kernel, Tunable
    from mptune.source.flags import COMPILER, FLAGS, with_build

    what = "application" if info.is_of_application else "kernel"
    if kind is not None and issubclass(kind, Application) != info.is_of_application:
        use = "TunedApplication runs" if info.is_of_application else "TunedKernel calls"
        raise KernelError(f"the run is of the {what} {info.kernel!r}: mptune.{use} it")
    kernel: Tunable
    if given is None:
        said = said or f"the run is of {what}"
        recorded = Path(info.kernel_path) if info.kernel_path else None
        file = f" ({said.partition(' is of ')[0]} names {recorded})" if recorded else ""
        give = f"give its definition with --kernel FILE.py, in Python as kernel={file}"
        if info.kernel not in (*bundled_kernels(), *bundled_applications()):
            raise KernelError(f"{said} {info.kernel!r}, which is not a bundled one: {give}")
        kernel = load_tunable(info.kernel)
        is_bundled = recorded is None or (recorded.parent.name, recorded.stem) == (f"{kernel.what}s", info.kernel)
        if not is_bundled and info.definition_hash != definition_hash(kernel):
            raise KernelError(f"{said} {info.kernel!r}, which is not the bundled one: {give}")
    elif isinstance(given, Tunable):
        kernel = given
    else:
        kernel = load_tunable(_definition_in(Path(given), info.kernel) if Path(given).is_dir() else given)
    build = {p.name: [str(value) for value in p.values] for p in info.parameters if p.kind == "build"}
    if build and isinstance(kernel, Kernel) and not any(p.kind == "build" for p in kernel.parameters):
        kernel = with_build(kernel, build.get(COMPILER, ()), build.get(FLAGS, ()))
    _check_same(info, kernel)
    for remark in remarks(info, kernel):
        on_warning(remark)
    return kernel


def sizes_of(info: RunInfo, kernel: Tunable) -> Sizes:
    """Return the sizes a run was made at; raises RunFileError, KernelError."""
    recorded, expected = info.sizes, kernel.sizes["default"]
    if expected and not recorded:
        raise RunFileError(f"the run of {info.kernel} has no sizes: the file is incomplete")
    missing = [name for name in expected if name not in recorded]
    if missing:
        raise KernelError(f"{kernel.called} has changed since the run, which has no size {missing[0]}")
    return kernel.resolve_sizes("default", recorded)


def remarks(info: RunInfo, kernel: Tunable) -> tuple[str, ...]:
    """Return warnings that a kernel may differ from the measured one: another mptune, or edited files."""
    from mptune import __version__

    found = []
    if info.mptune_version and info.mptune_version != __version__:
        made = f"the run was made with mptune {info.mptune_version}, this is {__version__}"
        found.append(f"{made}: the source may differ")
    if changed := edited(info, kernel):
        files = f"the {' and the '.join(changed)} of {kernel.called}"
        found.append(f"{files} changed since the run: its times and errors may belong to another kernel")
    return tuple(found)


def edited(info: RunInfo, kernel: Tunable) -> list[str]:
    """Return the names of the files, definition or template, that changed since a run."""
    from mptune.source.render import template_hash

    pairs = {
        "definition": (info.definition_hash, definition_hash(kernel)),
        "template": (info.template_hash, template_hash(kernel)),
    }
    return [name for name, (recorded, ours) in pairs.items() if recorded and recorded != ours]


def _definition_in(folder: Path, name: str) -> Path:
    files = sorted(folder.glob("[!_]*.py"))
    named = [path for path in files if path.stem == name]
    if not named and (folder / "kernels").is_dir():
        return _definition_in(folder / "kernels", name)
    if len(named or files) == 1:
        return (named or files)[0]
    what = ", ".join(path.name for path in files) or "no Python file"
    raise KernelError(f"folder {str(folder)!r} holds {what}: expected {name}.py, or one definition file")


def _check_same(info: RunInfo, kernel: Tunable) -> None:
    """Raise KernelError unless the names of kernel and parameters match the run and its values are declared."""
    if info.kernel != kernel.name:
        what = "application" if info.is_of_application else "kernel"
        raise KernelError(f"the run is of {what} {info.kernel!r}, not of {kernel.name!r}")
    if not info.parameters:
        return
    ours = {parameter.name: parameter.every_value for parameter in kernel.parameters}
    theirs = {parameter.name: parameter.values for parameter in info.parameters}
    for name in dict.fromkeys((*theirs, *ours)):
        if name not in ours or name not in theirs or not set(theirs[name]) <= set(ours[name]):
            had, has = (
                f"the values {json.dumps(of[name])[:200]}" if name in of else "no values" for of in (theirs, ours)
            )
            raise KernelError(f"{kernel.called} has changed since the run: parameter {name!r} had {had} and has {has}")


def picture_of(application: Application) -> Callable[..., Any]:
    """Return the function ``picture(outputs, inputs, size)`` beside an application's steps, which draws its outputs."""
    found = getattr(sys.modules.get(application.steps.__module__), "picture", None)
    if not callable(found):
        where = f"in {application.path.name}" if application.path else "beside its steps"
        raise KernelError(f"{application.called} has no picture: define picture(outputs, inputs, size) {where}")
    return found  # type: ignore[no-any-return]


# -- definition files ----------------------------------------------------------------------------


def _load_file(path: Path) -> Tunable:
    if not path.is_file():
        siblings = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise KernelError(f"no kernel definition file {str(path)!r}{did_you_mean(path.name, siblings, path.parent)}")
    path = path.resolve()
    reference = path.parent.parent / "references" / path.name
    version = tuple(file.stat().st_mtime_ns for file in (path, reference) if file.is_file())
    found = _only_one(_run_file(path), path)
    beside: dict[str, Any] = {"path": path}
    if found.reference is None and reference.is_file():
        beside["reference"] = getattr(_run_file(reference), "reference", None)
        if not callable(beside["reference"]):
            where = f"{reference.name} in the folder 'references'"
            raise KernelError(f"{where} defines no function 'reference(inputs, size)'")
    found = found.changed(**beside)
    _versions[found] = version
    return found


def loaded_version(kernel: Tunable) -> tuple[int, ...] | None:
    """Return the modification times of the files a kernel was loaded from; None for a kernel made in Python."""
    return _versions.get(kernel)


def loaded_modules() -> tuple[ModuleType, ...]:
    """Return the modules of definition files, which other processes cannot import by name."""
    return tuple(module for name, module in sys.modules.items() if name.startswith(_MODULE_PREFIX))


def _only_one(module: ModuleType, path: Path) -> Tunable:
    from mptune.kernel import Application, Kernel

    kind: type[Tunable]
    for kind in (Application, Kernel):
        named = getattr(module, kind.what, None)
        if isinstance(named, kind):
            return named
        found = {name: value for name, value in vars(module).items() if isinstance(value, kind)}
        if len(found) == 1:
            return next(iter(found.values()))
        if found:
            several = f"several {kind.what}s ({', '.join(found)})"
            raise KernelError(f"{path.name} defines {several}; name the one to tune {kind.what!r}")
    raise KernelError(f"{path.name} defines no kernel: expected a variable 'kernel' holding a mptune.Kernel")


def _run_file(path: Path) -> ModuleType:
    """Run a Python file as a module, with its own folder importable meanwhile.

    Cached byte code is not used: it would hide an edit within the same second that keeps the file's length.
    """
    if path.suffix != ".py":
        raise KernelError(f"{str(path)!r} is not a Python file")
    module = ModuleType(f"{_MODULE_PREFIX}{path.parent.name}_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(path.parent))
    try:
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), vars(module))
    except MptuneError:
        raise
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [None])[-1]
        where = f"{path.name}:{line}" if line else path.name
        raise KernelError(f"{where}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.parent))
    return module
