"""The answer of an application in its widest types, or in a wider one: the reference of one that has no other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.evaluate import Metrics, evaluate_outputs
from mptune.backends import get_backend
from mptune.backends.base import Backend, Buffer, CompileOptions
from mptune.buffers.conversion import poisoned, still_poisoned
from mptune.build import on_host
from mptune.errors import CompileError, ConstraintError, KernelError, MptuneError
from mptune.kernel import Application, Role, Sizes
from mptune.kernel.limits import widest
from mptune.precision import PRECISIONS, WIDE
from mptune.space.configuration import Configuration
from mptune.stepping import Stepper
from mptune.widening import widened

__all__ = ["OwnAnswer", "WideAnswer", "with_reference"]

#: So many values hardly are all rounded right by chance.
_MANY: Final = 20
#: An error that is the method's own, not of fp64: the wide answer is given more than this share of it.
_OF_THE_METHOD: Final = 0.1


class OwnAnswer:
    """Runs an application in its widest types, twice, to make references of inputs.

    Args:
        application: the application.
        backend: compiles and launches.
        options: how to compile.
        metrics: by which two runs are compared.
        announce: told "reference", or "wide reference", when a run begins, and "inputs" when it has ended.
    """

    #: What messages say it is computed in, and whether that is wider than what any configuration has.
    types: str = "its widest types"
    is_wide: bool = False
    #: Two runs in the widest types, which may be fp32, may differ by the order of additions, not by more.
    largest_difference: float = 1e-6

    def __init__(
        self,
        application: Application,
        backend: Backend,
        options: CompileOptions,
        metrics: Metrics,
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._made_from = (application, backend, options, metrics, announce)
        self._announce = announce
        self._application = application
        self._backend, self._options = self._runs_with(backend, options)
        self._metrics = metrics
        self._known: Configuration | None = None

    def _runs_with(self, backend: Backend, options: CompileOptions) -> tuple[Backend, CompileOptions]:
        """Return what compiles and launches, and how, where trials have these."""
        return backend, options

    def __call__(self, inputs: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
        """Return the outputs in fp64.

        Raises:
            KernelError: two runs differ, no configuration in the widest types can be launched, or an output has
                elements that nobody wrote, or that are not finite.
        """
        first, second = (self._run(inputs, sizes) for _ in range(2))
        if all(np.array_equal(first[name], second[name]) for name in first):
            return first
        error = evaluate_outputs(second, first, self._metrics, inputs).metrics["error"]
        if not error <= self.largest_difference:
            raise KernelError(
                f"{self._application.called} gives another answer from run to run, on the same inputs in its widest "
                f"types: the error of one against the other is {error:.3g}; give a reference, or find out what changes"
            )
        return first

    def _run(self, inputs: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
        try:
            outputs = self._run_first(inputs, sizes)
        finally:
            self._announce("inputs")
        for name, values in outputs.items():
            self._require_values(name, values.reshape(-1))
        return outputs

    def _require_values(self, output: str, values: NDArray[Any]) -> None:
        called, size = self._application.called, values.size
        unwritten, is_finite = still_poisoned(values).size, np.isfinite(values)
        # An integer that is the pattern may be a result.
        if unwritten and (values.dtype.kind == "f" or unwritten == size):
            raise KernelError(f"{called} never writes {unwritten} of {size} elements of its output {output!r}")
        if not is_finite.all():
            raise KernelError(
                f"{called} gives NaN or infinity for {size - np.count_nonzero(is_finite)} of {size} elements of its "
                f"output {output!r} in {self.types}, the first is element {is_finite.argmin()}: narrower types have "
                "nothing to be compared with"
            )

    def _run_first(self, inputs: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
        """Return the outputs of the configuration that ran before, or else of the first one that can."""
        if self._known is not None:
            return self._outputs(self._known, inputs, sizes)
        refused: ConstraintError | None = None
        candidates = widest(self._application, sizes, self._backend.device.constraints())
        for configuration in candidates:
            try:
                outputs = self._outputs(configuration, inputs, sizes)
            except ConstraintError as error:
                refused = refused or error
                continue
            self._known = configuration
            return outputs
        raise KernelError(
            f"{self._application.called}: none of {len(candidates)} configurations in {self.types} runs: {refused}"
        )

    def _outputs(
        self, configuration: Configuration, inputs: Mapping[str, Any], sizes: Sizes
    ) -> dict[str, NDArray[Any]]:
        application = self._application
        memory: dict[str, Buffer] = {}
        scalars: dict[str, float | int] = {}
        stepper = Stepper(
            application,
            configuration,
            sizes,
            self._backend,
            self._options,
            is_wide=self.is_wide,
        )
        try:
            for argument in application.arguments:
                if argument.role is Role.SCALAR:
                    scalars[argument.name] = inputs[argument.name]
                    continue
                dtype = stepper.dtype_of(argument.name)
                shape = application.shape_of(argument, sizes)
                memory[argument.name] = self._backend.device.allocate(math.prod(shape) * dtype.itemsize)
                if argument.is_input:
                    stepper.write(argument.name, inputs[argument.name], memory[argument.name])
                else:
                    memory[argument.name].write(poisoned(shape, dtype))
            self._announce("wide reference" if self.is_wide else "reference")
            _, left = stepper.run(memory, scalars)
            outputs = {output.name: stepper.read(output.name, left[output.name]) for output in application.outputs}
            with np.errstate(all="ignore"):
                return {name: _rounded(values) for name, values in outputs.items()}
        finally:
            stepper.unload()
            for buffer in memory.values():
                buffer.free()


class WideAnswer(OwnAnswer):
    """Runs an application on the host with every floating-point type :data:`~mptune.precision.WIDE`.

    Outputs are rounded to fp64 in the end. It is compiled without what a compiler may do to speed up arithmetic at the
    price of its accuracy, whatever trials are compiled with.

    Raises:
        KernelError: there is no such type here.
        BackendUnavailableError: nor a compiler.
    """

    types = WIDE.name
    is_wide = True

    def _runs_with(self, backend: Backend, options: CompileOptions) -> tuple[Backend, CompileOptions]:
        if WIDE.significand_bits <= PRECISIONS["fp64"].significand_bits:
            raise KernelError(
                f'{self._application.called}: reference="wide" needs a long double with more digits than fp64, and '
                f"here it has {WIDE.significand_bits}; give reference=None, which is the application in fp64"
            )
        flags = options.flags
        if backend.name != "host":
            backend = get_backend("host")
            flags = on_host(flags)
        defined = (widened(flag) if flag.startswith("-D") else flag for flag in flags)
        wide = (*defined, "-fno-fast-math", f"-DMPTUNE_WIDE={WIDE.significand_bits}")
        return backend, CompileOptions(flags=wide, timeout_s=options.timeout_s)

    def __call__(self, inputs: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
        """Return the outputs, rounded to fp64, of one run: whether runs differ shows in fp64 (:meth:`fp64_errors`).

        Raises:
            KernelError: the application cannot be run so.
            CompileError: a kernel cannot be compiled so.
        """
        return self._run(inputs, sizes)

    def fp64_errors(
        self, references: Mapping[str, NDArray[Any]], inputs: Mapping[str, Any], sizes: Sizes
    ) -> tuple[dict[str, float], tuple[str, ...]]:
        """Return the errors of the application in fp64 on the trials' device, and what there is to say of them.

        Left out is what the wide answer is given, too: a residual or a drift is the method's own, not that of fp64.

        Args:
            references: what this answers to these inputs.
            inputs: what both are computed from.
            sizes: the problem sizes.

        Raises:
            KernelError: two runs in fp64 differ.
        """
        outputs = OwnAnswer(*self._made_from)(inputs, sizes)
        errors = evaluate_outputs(outputs, references, self._metrics, inputs).metrics
        is_real = [name for name, values in references.items() if values.dtype.kind == "f"]
        remarks = []
        equal = all(np.array_equal(outputs[name], references[name]) for name in is_real)
        if equal and sum(references[name].size for name in is_real) >= _MANY:
            remarks.append(
                f"{self._application.called} in {WIDE.name} gives what it gives in fp64, to the last bit: it rounds "
                'nothing, or something in its steps rounds all of it to fp64, and reference="wide" is of no use'
            )
        own = evaluate_outputs(references, references, self._metrics, inputs).metrics
        del errors["log10_error"]
        of_fp64 = {name: e for name, e in errors.items() if math.isfinite(e) and not own[name] > _OF_THE_METHOD * e}
        return of_fp64, tuple(remarks)

    def _outputs(
        self, configuration: Configuration, inputs: Mapping[str, Any], sizes: Sizes
    ) -> dict[str, NDArray[Any]]:
        try:
            return super()._outputs(configuration, inputs, sizes)
        except (ConstraintError, MemoryError):
            raise
        except MptuneError as error:
            hint = ""
            if "unsupported in linalg" in str(error):
                hint = ": NumPy's linear algebra is in fp64 alone, np.asarray(..., np.float64) makes that of an array"
            kind = CompileError if isinstance(error, CompileError) else KernelError
            raise kind(f'reference="wide" runs {self._application.called} in {WIDE.name}: {error}{hint}') from error


def with_reference(
    application: Application,
    backend: Backend,
    options: CompileOptions,
    metrics: Metrics,
    announce: Callable[[str], None] = lambda _: None,
) -> Application:
    """Return an application that has its own answer for a reference, if it has no other.

    The arguments are those of :class:`OwnAnswer`.

    Raises:
        KernelError: that is to be a wide one, and there is no such type.
        BackendUnavailableError: nor a compiler of the host.
    """
    if application.reference is not None:
        return application
    kind = WideAnswer if application.is_wide else OwnAnswer
    return application.changed(reference=kind(application, backend, options, metrics, announce))


def _rounded(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.float64, copy=False) if values.dtype.kind == "f" else values
