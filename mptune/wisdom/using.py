"""Wisdom where it is used: of which kernel, on which device, at which sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from mptune.backends import BACKENDS, get_backend
from mptune.backends.base import Backend, options_of
from mptune.errors import BackendUnavailableError, KernelError, UnknownNameError, WisdomError
from mptune.kernel import Argument, Kernel, Role, Tunable
from mptune.results.unseen import CONFIDENCE
from mptune.source.flags import COMPILER, FLAGS, with_build
from mptune.source.loading import load_tunable, remarks, tunable_of_run
from mptune.space.expressions import Expression, fold
from mptune.store import RunInfo
from mptune.wisdom.choosing import Choice, Chooser, budget_of, forms_in
from mptune.wisdom.records import KernelWisdom, Wisdom

_Known = TypeVar("_Known", KernelWisdom, RunInfo)

_LARGEST_SIZE: Final = 2**40


def kernel_of(
    wisdom: Wisdom, given: Tunable | str | Path | None = None, metric: str | None = None
) -> tuple[Tunable, list[KernelWisdom]]:
    """Return the kernel or application that is meant, and what is known of it on each device.

    Args:
        wisdom: what is known.
        given: the definition as of :func:`~mptune.source.loading.tunable_of_run`, or which kernel of several.
        metric: what errors are measured by, if that is not the same everywhere.
    """
    names = sorted({each.kernel for each in wisdom.kernels})
    if not names:
        raise WisdomError("the wisdom is of no kernel")
    name = names[0]
    if isinstance(given, Tunable):
        name = given.name
    elif str(given) in names:
        name, given = str(given), None
    elif len(names) > 1:
        if given is None:
            raise WisdomError(f"the wisdom is of kernels {', '.join(names)}: say which (kernel=, --kernel)")
        given = load_tunable(given)
        name = given.name
    known = [each for each in wisdom.kernels if each.kernel == name]
    if not known:
        raise WisdomError(f"the wisdom is of kernel {', '.join(names)}, not of {name}")
    if metric is not None:
        known = [each for each in known if each.metric == metric]
    metrics = sorted({each.metric for each in wisdom.kernels if each.kernel == name})
    if not known or len({each.metric for each in known}) > 1:
        raise WisdomError(
            f"the wisdom of kernel {name} has errors by {' and by '.join(metrics)}: say which (metric=)"
            + (f", not {metric!r}" if metric is not None else "")
        )
    for each in known:
        same = (each.backend, each.device, each.architecture)
        flags = {other.flags for other in known if (other.backend, other.device, other.architecture) == same}
        if len(flags) > 1:
            both = " and with ".join(sorted(" ".join(some) or "none" for some in flags))
            raise WisdomError(f"the wisdom of kernel {name} is of runs with compiler flags {both}: make it of one kind")
    said = f"the wisdom is of {'application' if known[0].is_of_application else 'kernel'}"
    found = tunable_of_run(_info(known[0]), given, on_warning=lambda _: None, said=said)
    if isinstance(found, Kernel) and not {COMPILER, FLAGS} & set(found.parameter_names):
        # Compilers and flags are parameters where the runs chose among some.
        configurations = [t.configuration for each in known for record in each.tuned for t in record.configurations]
        compilers, options = (
            sorted({str(configuration[build]) for configuration in configurations if build in configuration})
            for build in (COMPILER, FLAGS)
        )
        found = with_build(found, compilers, options)
    return found, known


def remarks_on(known: KernelWisdom, kernel: Tunable) -> tuple[str, ...]:
    """Say why a kernel may not be what wisdom is of, as :func:`~mptune.source.loading.remarks` does of a run."""
    return remarks(_info(known), kernel)


def _info(known: KernelWisdom) -> RunInfo:
    return RunInfo(
        kernel=known.kernel,
        kernel_path=known.file or None,
        definition_hash=known.definition_hash,
        template_hash=known.template_hash,
    )


class BySize:
    """A kernel or an application whose configuration is chosen by the device and the sizes.

    Args:
        wisdom: what is known.
        kernel: the definition, unless it is a bundled kernel's; or which of several.
        backend: a backend's name, or "auto": the first that can run here and of which something is known.
        max_error: the error limit; by default the smallest that the runs were made with.
        confidence: with which errors keep it.
        metric: what errors are measured by, if there are several.

    Attributes:
        kernel: the definition.
        backend: the backend.
        options: how it is compiled.
        remarks: what the user should know, such as that the definition has changed since.
    """

    def __init__(
        self,
        wisdom: Wisdom,
        kernel: Tunable | str | Path | None = None,
        backend: str | Backend = "auto",
        max_error: float | Mapping[str, float] | None = None,
        confidence: float = CONFIDENCE,
        metric: str | None = None,
    ) -> None:
        self.kernel, known = kernel_of(wisdom, kernel, metric)
        self.backend, own = on_device(known, backend)
        device = self.backend.describe()
        kin = next((e for e in known if (e.backend, e.architecture) == (device.backend, device.architecture)), None)
        chosen = own or kin or known[0]
        self.options = options_of(chosen, self.backend.name)
        budget = budget_of(known, max_error)
        limits = self.backend.device.facts()
        forms: list[dict[str, int] | None] = [*forms_in(chosen, self.kernel)]
        # One for each form of the problem that was tuned: what is known of one says nothing of another.
        self._choosers = [
            Chooser(chosen, self.kernel, limits, budget, confidence, is_own=own is not None, form=form)
            for form in forms or [None]
        ]
        self._known = chosen
        self._elsewhere = ""
        self.remarks = remarks_on(chosen, self.kernel)
        if own is None and kin is not None:
            of_kin = f"measured on {kin.device}, and this is {device.name} of the same architecture"
            self.remarks = (*self.remarks, of_kin)
        elif own is None:
            devices = ", ".join(each.where for each in known)
            self._elsewhere = f"the wisdom is of {devices}, and this is {device.name} ({device.architecture})"

    @property
    def sizes(self) -> dict[str, int]:
        """The largest sizes that were tuned."""
        tuned: list[dict[str, int]] = [record.place for record in self._known.tuned]
        return max(tuned, key=lambda sizes: [sizes[name] for name in sorted(sizes)])

    @property
    def masked(self) -> frozenset[str]:
        """The outputs whose reference had NaN somewhere, which may have it as well."""
        return frozenset().union(*(record.masked for record in self._known.tuned))

    @property
    def common_sizes(self) -> dict[str, int]:
        """The sizes that were the same wherever it was tuned."""
        tuned = [record.place for record in self._known.tuned]
        return {name: value for name, value in tuned[0].items() if all(each[name] == value for each in tuned)}

    def choose(self, sizes: Mapping[str, int]) -> Choice:
        """Return what to use at some sizes."""
        chooser = self._chooser_at(sizes)
        form = self.kernel.form_of(sizes)
        is_known = chooser.form == form
        if not self._elsewhere and is_known:
            return chooser.choose(sizes)
        said = ", ".join(f"{name}={value}" for name, value in form.items())
        reason = self._elsewhere or f"nothing was tuned for {said}"
        return dataclasses.replace(chooser.widest(sizes), reason=reason, why=f"the baseline, since {reason}")

    def baseline(self, sizes: Mapping[str, int]) -> Choice:
        """Return the baseline to use at some sizes."""
        return self._chooser_at(sizes).widest(sizes)

    def _chooser_at(self, sizes: Mapping[str, int]) -> Chooser:
        """Return what knows the form that sizes are of; any, if none does."""
        form = self.kernel.form_of(sizes)
        return next((each for each in self._choosers if each.form == form), self._choosers[0])


def on_device(known: Sequence[_Known], backend: str | Backend) -> tuple[Backend, _Known | None]:
    """Return the backend to use, and what is known of its device."""
    if isinstance(backend, Backend) or backend != "auto":
        chosen = backend if isinstance(backend, Backend) else get_backend(backend)
        return chosen, next((each for each in known if _is_of(each, chosen)), None)
    for each in known:
        if each.backend in BACKENDS and BACKENDS[each.backend].availability().can_run:
            chosen = BACKENDS[each.backend]()
            if _is_of(each, chosen):
                return chosen, each
    return get_backend("auto"), None


def _is_of(known: KernelWisdom | RunInfo, backend: Backend) -> bool:
    try:
        device = backend.describe()
    except BackendUnavailableError:
        return False
    return (known.backend, known.device, known.architecture) == (device.backend, device.name, device.architecture)


def sizes_of_arrays(
    kernel: Tunable, inputs: Mapping[str, Any], given: Mapping[str, Any], otherwise: Mapping[str, int]
) -> dict[str, int]:
    """Return the sizes of a call: those that are given, and those that the arrays have.

    Args:
        kernel: declares of what shape arguments are.
        inputs: arrays and scalars by name; a scalar named like a size is that.
        given: sizes that are known before.
        otherwise: those of which arrays say nothing.
    """
    names = [argument.name for argument in kernel.arguments]
    for name in inputs:
        if name not in names:
            raise UnknownNameError(f"argument of {kernel.called}:", name, names)
    wanted = tuple(kernel.sizes["default"])
    found = {name: kernel.whole_size(name, value) for name, value in given.items()}
    shapes: dict[Argument, tuple[int, ...]] = {}
    for argument in kernel.arguments:
        if argument.name in inputs:
            value = inputs[argument.name]
            shapes[argument] = tuple(value.shape if hasattr(value, "shape") else np.shape(value))
            if argument.role is Role.SCALAR and argument.name in wanted and not shapes[argument]:
                found.setdefault(argument.name, kernel.whole_size(argument.name, value))
    form = kernel.form_of({**otherwise, **found})
    axes = [
        # Which axis has which size depends on the form.
        (Expression(str(text), fold(Expression(str(text)).tree, form)), extent, argument.name)
        for argument, shape in shapes.items()
        if len(shape) == len(argument.shape)
        for text, extent in zip(argument.shape, shape, strict=True)
    ]
    # Axes of one size first; with that others have one that is still open.
    for _ in range(len(wanted)):
        for expression, extent, name in axes:
            unknown = expression.names - found.keys()
            if len(unknown) == 1 and (size := next(iter(unknown))) in wanted:
                found[size] = _solved(kernel, expression, size, found, extent, name)
    found = {**form, **found}
    for size in wanted:
        if size not in found and size not in otherwise:
            for argument, shape in shapes.items():
                if len(shape) != len(argument.shape):
                    said = f"has {len(shape)} axes; expected ({', '.join(map(str, argument.shape))})"
                    raise KernelError(f"input {argument.name!r} of {kernel.called} {said}")
            raise KernelError(f"{kernel.called}: no array says what size {size} is: give it ({size}=...)")
    return {size: found.get(size, otherwise.get(size, 0)) for size in wanted}


def _solved(
    kernel: Tunable, expression: Expression, size: str, known: Mapping[str, int], extent: int, name: str
) -> int:
    """Return the size at which an axis, which grows with it, has some extent."""

    def axis(value: int) -> int:
        return int(expression.evaluate({**known, size: value}))

    low, high = 1, 1
    while axis(high) < extent and high < _LARGEST_SIZE:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if axis(middle) >= extent else (middle + 1, high)
    if axis(low) != extent:
        raise KernelError(
            f"input {name!r} of {kernel.called} has an axis of {extent}, which no {size} makes of {expression.text}"
        )
    return low
