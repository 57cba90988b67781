"""The disk cache of references. Its keys cover inputs, sizes and source; a damaged entry is computed again."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import inspect
import os
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.data.blocks import in_blocks
from mptune.kernel import Sizes, Tunable
from mptune.paths import open_own, own_folder

_IMPORTED_AT: Final = time.time()
_INSTALLED: Final = (Path(sysconfig.get_path("stdlib")).resolve(), Path(__file__).resolve().parent.parent)
#: Bytes of a block in a digest; shorter arrays (in elements) are digested whole.
_DIGESTED: Final = 1 << 20
# Distinguishes outputs from arguments of np.savez.
_PREFIX: Final = "output."


def load_references(folder: Path, key: str) -> dict[str, NDArray[Any]] | None:
    """Return the references of a key; None if there are none or the file is damaged."""
    try:
        path = own_folder(folder) / f"{key}.npz"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with open_own(path) as file, np.load(file, allow_pickle=False) as archive:
                arrays = {name.removeprefix(_PREFIX): archive[name] for name in archive.files}
    except Exception:  # a damaged zip or header raises many types
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return arrays


def keep_references(
    folder: Path,
    key: str,
    references: Mapping[str, NDArray[Any]],
    *,
    largest_entry_bytes: int = 1 << 30,
    folder_bytes: int = 4 << 30,
) -> None:
    """Write references to a folder of ``.npz`` files, and delete the least recently used above ``folder_bytes``.

    Nothing is written to a folder that others can change.
    """
    if sum(array.nbytes for array in references.values()) > largest_entry_bytes:
        return
    with contextlib.suppress(OSError, ValueError):
        folder = own_folder(folder)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            file = Path(scratch) / "references.npz"
            named: dict[str, Any] = {f"{_PREFIX}{name}": array for name, array in references.items()}
            np.savez(file, allow_pickle=False, **named)
            file.chmod(0o600)
            file.replace(folder / f"{key}.npz")
        entries = [(path.stat(), path) for path in folder.glob("*.npz")]
        held = sum(status.st_size for status, _ in entries)
        for status, path in sorted(entries, key=lambda entry: entry[0].st_mtime)[:-1]:
            if held > folder_bytes:
                path.unlink(missing_ok=True)
                held -= status.st_size


def update_digest(digest: hashlib._Hash, name: str, array: NDArray[Any]) -> None:
    """Add a named C-contiguous array with its type and shape to a digest; a long array by its blocks' digests."""
    digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
    flat = array.reshape(-1)
    if flat.size <= _DIGESTED:
        digest.update(flat.tobytes())
        return
    # Viewed as bytes, as bf16 supports no memoryview.
    octets = flat.view(np.uint8)
    for part in in_blocks(lambda part: hashlib.sha256(octets[part].data).digest(), octets.size, _DIGESTED):
        digest.update(part)


def reference_key(kernel: Tunable, inputs_key: str, sizes: Sizes) -> str | None:
    """Return the key of a kernel's references; None if their source is not certain.

    Files that the reference reads are not covered: their content belongs in the inputs.
    """
    if kernel.reference is None or (files := _source_files(kernel.reference)) is None:
        return None
    digest = hashlib.sha256()
    outputs = [(a.name, kernel.shape_of(a, sizes), a.dtype) for a in kernel.outputs]
    versions = (np.__version__, importlib.metadata.version("scipy"))
    qualified = getattr(kernel.reference, "__qualname__", "")
    digest.update(repr((kernel.name, qualified, dict(sizes), outputs, versions, inputs_key)).encode())
    for file in files:
        digest.update(hashlib.sha256(file).digest())
    return digest.hexdigest()


def _source_files(function: Callable[..., Any]) -> list[bytes] | None:
    """Return the contents of a function's source files.

    Return None for a function without a file (a notebook, a partial), a closure, a function from another process, and a
    file changed since this process started.
    """
    if not inspect.isfunction(function) or function.__closure__ or "__spec__" not in function.__globals__:
        return None
    own = Path(function.__code__.co_filename)
    try:
        files = sorted({own.resolve(), *_own_modules(function.__globals__)})
        if any(file.stat().st_mtime >= _IMPORTED_AT for file in files):
            return None
        return [file.read_bytes() for file in files]
    except OSError:
        return None


def _own_modules(namespace: Mapping[str, Any]) -> Iterable[Path]:
    """Return the files of the user's modules that a namespace uses, directly or indirectly.

    Python, installed packages and mptune are left out: their versions are part of the key.
    """
    found: set[Path] = set()
    pending = [namespace]
    while pending:
        for value in list(pending.pop().values()):
            module = value if isinstance(value, ModuleType) else sys.modules.get(str(getattr(value, "__module__", "")))
            if (file := getattr(module, "__file__", None)) is None:
                continue
            path = Path(file).resolve()
            is_packaged = not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
            if not (is_packaged or path in found or any(path.is_relative_to(folder) for folder in _INSTALLED)):
                found.add(path)
                pending.append(vars(module))
    return found
