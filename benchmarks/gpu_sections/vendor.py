"""The vendor's matrix product: cuBLAS through CuPy, on the same matrices as the gemm kernel."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.metrics import resolve
from mptune.data import DataManager
from mptune.errors import BackendUnavailableError
from mptune.precision import precision

__all__ = ["Cublas"]

#: The types of A and B, of C, and of the sums, by what the section calls the product.
#: First what has a target: time may run out.
TYPES: Final[Mapping[str, tuple[str, str]]] = {
    "fp32": ("fp32", "fp32"),
    "TF32": ("fp32", "fp32"),
    "fp16": ("fp16", "fp32"),
    "fp64": ("fp64", "fp64"),
    "bf16": ("bf16", "fp32"),
}
_INSTALL: Final = "pip install nvidia-cublas"


class Cublas:
    """Computes C = alpha A B + beta C; the matrices stay on the device.

    fp32 is true fp32 unless the environment asks cuBLAS for TF32, as "TF32" does. Products of fp16 and bf16 are summed
    in fp32, as tensor cores do.

    Args:
        data: inputs and reference of gemm.
        name: key of :data:`TYPES`.

    Raises:
        BackendUnavailableError: CuPy or cuBLAS is missing, or does not multiply here.
    """

    def __init__(self, data: DataManager, name: str) -> None:
        if importlib.util.find_spec("cupy") is None:
            raise BackendUnavailableError('CuPy is not installed: pip install "mptune[cuda]"')
        import cupy

        try:
            from cupy_backends.cuda.libs import cublas
        except ImportError as error:
            raise BackendUnavailableError(
                f"cuBLAS cannot be loaded: {_INSTALL} ({str(error).splitlines()[0]})"
            ) from error
        self._cupy = cupy
        self._cublas = cublas
        self._metric = resolve(str(data.kernel.metric))
        self._reference = data.references["C"]
        inputs, result = TYPES[name]
        runtime = cupy.cuda.runtime
        kinds = {"fp64": "64F", "fp32": "32F", "fp16": "16F", "bf16": "16BF"}
        self._kinds = tuple(getattr(runtime, f"CUDA_R_{kinds[kind]}") for kind in (inputs, result))
        computed = {"fp64": "64F", "TF32": "32F_FAST_TF32"}.get(name, "32F")
        self._compute = getattr(cublas, f"CUBLAS_COMPUTE_{computed}")
        self._a, self._b = (cupy.asarray(_typed(data, matrix, inputs)) for matrix in ("A", "B"))
        self._original = cupy.asarray(_typed(data, "C", result))
        self._c = self._original.copy()
        # Read by the host, so they are kept there.
        self._alpha, self._beta = (np.array(data.inputs[s], precision(result).dtype) for s in ("alpha", "beta"))
        self._events = cupy.cuda.Event(), cupy.cuda.Event()
        try:
            self.multiply()
        except (cublas.CUBLASError, runtime.CUDARuntimeError) as error:
            raise BackendUnavailableError(f"cuBLAS does not multiply in {name} here: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._a, self._b, self._c, self._original
        self._cupy.get_default_memory_pool().free_all_blocks()

    @property
    def version(self) -> str:
        """The library's version."""
        number = int(self._cublas.getVersion(self._cupy.cuda.device.get_cublas_handle()))
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def multiply(self) -> float:
        """Multiply once, starting from the original C, and return the device time in milliseconds."""
        (m, k), (_, n) = self._a.shape, self._b.shape
        (start, end), (inputs, result) = self._events, self._kinds
        none, handle = self._cublas.CUBLAS_OP_N, self._cupy.cuda.device.get_cublas_handle()
        self._c[...] = self._original
        start.record()
        # By columns, as the library takes them, these rows are the transposed matrices, and so is the product.
        self._cublas.gemmEx(
            *(handle, none, none, n, m, k, self._alpha.ctypes.data),
            *(self._b.data.ptr, inputs, n, self._a.data.ptr, inputs, k),
            *(self._beta.ctypes.data, self._c.data.ptr, result, n, self._compute, self._cublas.CUBLAS_GEMM_DEFAULT),
        )
        end.record()
        end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(start, end))

    def error(self) -> float:
        """Return the error of the last product in the kernel's metric."""
        return float(self._metric(self._cupy.asnumpy(self._c), self._reference))


def _typed(data: DataManager, matrix: str, name: str) -> NDArray[Any]:
    """Return a matrix as the device has it; in bf16 as its bits, of which CuPy need not know more."""
    argument = next(a for a in data.kernel.arguments if a.name == matrix)
    typed = data.typed(argument, precision(name))
    return typed.view(np.uint16) if name == "bf16" else typed
