"""The description of a search that a worker process receives first, in a form that pickles."""

from __future__ import annotations

import io
import marshal
import pickle
import warnings
from dataclasses import dataclass
from types import CodeType
from typing import Any

import cloudpickle

from mptune.accuracy.evaluate import Metrics
from mptune.backends.base import CompileOptions
from mptune.errors import KernelError
from mptune.kernel import Kernel, Sizes, Tunable
from mptune.measure.timing import TimingPlan
from mptune.source.loading import load_tunable, loaded_modules, loaded_version

__all__ = ["Job"]


@dataclass(frozen=True, slots=True)
class Job:
    """The kernel, data and options that a worker starts with."""

    kernel: str | bytes  #: path of the definition file; or the kernel, pickled, where no file holds it as it is
    version: tuple[int, ...] | None  #: of the file at that path
    sizes: dict[str, int]
    backend: str
    metric: bytes  #: error metric instead of the kernel's own, pickled
    seed: int
    options: CompileOptions
    plan: TimingPlan
    function: str | None  #: name of the kernel's function; None for an application, whose kernels the worker compiles
    observers: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        kernel: Tunable,
        sizes: Sizes,
        backend: str,
        metric: Metrics | None,
        seed: int,
        options: CompileOptions,
        plan: TimingPlan,
        observers: tuple[str, ...] = (),
    ) -> Job:
        """Describe a job.

        Raises:
            KernelError: the kernel is not as a file defines it and cannot be pickled.
        """
        version = loaded_version(kernel)
        function = kernel.function if isinstance(kernel, Kernel) else None
        for module in loaded_modules():
            cloudpickle.register_pickle_by_value(module)
        try:
            packed = _pickled(kernel) if version is None else str(kernel.path)
            named = _pickled(metric)
            return cls(packed, version, dict(sizes), backend, named, seed, options, plan, function, observers)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise KernelError(
                f"{kernel.called} cannot be sent to a worker process ({error}); put its definition in a file"
            ) from error

    def load(self) -> tuple[Tunable, Sizes, Metrics | None]:
        """Return kernel, sizes and metric; the bytes come from the parent process alone.

        Raises:
            KernelError: the definition file has changed or cannot be loaded any more, or something pickled is not
                importable here.
        """
        try:
            kernel = load_tunable(self.kernel) if isinstance(self.kernel, str) else pickle.loads(self.kernel)
            if loaded_version(kernel) != self.version:
                raise KernelError(
                    f"{self.kernel!r} has changed since the run began; --resume goes on with it as it is now"
                )
            return kernel, Sizes(self.sizes), pickle.loads(self.metric)
        except (ImportError, AttributeError, pickle.UnpicklingError) as error:
            raise KernelError(f"the kernel or its error metric cannot be used in a worker process: {error}") from error


def _pickled(value: object) -> bytes:
    """Return what another interpreter can load, functions of a script or a notebook included."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        # To find where a function comes from, every imported module is looked into, deprecated ones too.
        warnings.simplefilter("ignore")
        _Pickler(file).dump(value)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        # Since 3.1.3 cloudpickle drops the file name of code objects. Error messages and steps need that name.
        if isinstance(obj, CodeType):
            return marshal.loads, (marshal.dumps(obj),)
        return super().reducer_override(obj)
