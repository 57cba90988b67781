"""Using wisdom: finding the kernel, the device and the sizes of a call."""

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
from mptune.wisdom.choosing import Choice, Chooser, budget_of, by_form
from mptune.wisdom.records import KernelWisdom, Wisdom

_Known = TypeVar("_Known", KernelWisdom, RunInfo)

_LARGEST_SIZE: Final = 2**40


def kernel_of(
    wisdom: Wisdom, given: Tunable | str | Path | None = None, metric: str | None = None
) -> tuple[Tunable, list[KernelWisdom]]:
    """Return the definition of a kernel or an application, and its wisdom for each device.

    Args:
        wisdom: the wisdom.
        given: the definition as of :func:`~mptune.source.loading.tunable_of_run`, or the name of one of the kernels.
        metric: the error metric; needed if the wisdom has several.

    Raises:
        WisdomError: the wisdom is of another kernel, or does not say which kernel, metric or flags are meant.
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
    metrics = sorted({each.metric for each in known})
    known = [each for each in known if metric in (None, each.metric)]
    if len({each.metric for each in known}) != 1:
        wrong = "" if metric is None else f", not {metric!r}"
        raise WisdomError(
            f"the wisdom of kernel {name} has errors by {' and by '.join(metrics)}: say which (metric=){wrong}"
        )
    for each in known:
        same = [other for other in known if other.where == each.where]
        if len({other.flags for other in same}) > 1:
            both = " and with ".join(sorted(" ".join(other.flags) or "none" for other in same))
            raise WisdomError(f"the wisdom of kernel {name} is of runs with compiler flags {both}: make it of one kind")
    said = f"the wisdom is of {'application' if known[0].is_of_application else 'kernel'}"
    found = tunable_of_run(_info(known[0]), given, on_warning=lambda _: None, said=said)
    if isinstance(found, Kernel) and not {COMPILER, FLAGS} & set(found.parameter_names):
        configurations = [t.configuration for each in known for record in each.tuned for t in record.configurations]
        found = with_build(
            found, *(sorted({str(c[name]) for c in configurations if name in c}) for name in (COMPILER, FLAGS))
        )
    return found, known


def remarks_on(known: KernelWisdom, kernel: Tunable) -> tuple[str, ...]:
    """Return the reasons why a kernel may differ from that of the wisdom (:func:`~mptune.source.loading.remarks`)."""
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
        wisdom: the wisdom.
        kernel: the definition, unless it is a bundled kernel's; or the name of one of several.
        backend: name of the backend, or "auto" for the first that can run here and has wisdom.
        max_error: the error limit; by default the smallest of the runs.
        confidence: probability that errors keep it.
        metric: the error metric; needed if the wisdom has several.

    Attributes:
        kernel: the definition.
        backend: the backend.
        options: options of the compiler.
        remarks: remarks for the user, such as that the definition has changed since.
        sizes: the largest tuned sizes.
        common_sizes: the sizes that were the same in all runs.
        masked: outputs whose reference has NaN, which may have NaN as well.
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
        budget, facts = budget_of(known, max_error), self.backend.device.facts()
        self._choosers = [
            Chooser(each, self.kernel, facts, budget, confidence, is_own=own is not None)
            for each in by_form(chosen, self.kernel)
        ]
        places = [record.place for record in chosen.tuned]
        self.sizes = max(places, key=lambda sizes: [sizes[name] for name in sorted(sizes)])
        self.common_sizes = dict(set.intersection(*(set(place.items()) for place in places)))
        self.masked = frozenset[str]().union(*(record.masked for record in chosen.tuned))
        self.remarks = remarks_on(chosen, self.kernel)
        self._elsewhere = ""
        if own is None and kin is not None:
            of_kin = f"measured on {kin.device}, and this is {device.name} of the same architecture"
            self.remarks = (*self.remarks, of_kin)
        elif own is None:
            devices = ", ".join(each.where for each in known)
            self._elsewhere = f"the wisdom is of {devices}, and this is {device.name} ({device.architecture})"

    def choose(self, sizes: Mapping[str, int]) -> Choice:
        """Return the configuration to use at some sizes."""
        chooser, form = self._chooser_at(sizes), self.kernel.form_of(sizes)
        reason = self._elsewhere
        if not reason and chooser.form != form:
            reason = f"nothing was tuned for {', '.join(f'{name}={value}' for name, value in form.items())}"
        if not reason:
            return chooser.choose(sizes)
        return dataclasses.replace(chooser.widest(sizes), reason=reason, why=f"the baseline, since {reason}")

    def baseline(self, sizes: Mapping[str, int]) -> Choice:
        """Return the baseline to use at some sizes."""
        return self._chooser_at(sizes).widest(sizes)

    def _chooser_at(self, sizes: Mapping[str, int]) -> Chooser:
        form = self.kernel.form_of(sizes)
        return next((each for each in self._choosers if each.form == form), self._choosers[0])


def on_device(known: Sequence[_Known], backend: str | Backend) -> tuple[Backend, _Known | None]:
    """Return the backend to use, and the entry of its device; None if there is no such entry."""
    if backend != "auto":
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
    """Return the sizes of a call, as given and by the shapes of the arrays.

    Args:
        kernel: declares the shapes of arguments.
        inputs: arrays and scalars by name; a scalar named like a size is that size.
        given: sizes given in the call.
        otherwise: values of the sizes that no array has.

    Raises:
        KernelError: a size is missing, or no size gives an array its shape.
        UnknownNameError: there is no argument of that name.
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
        (Expression(str(text), fold(Expression(str(text)).tree, form)), extent, argument.name)
        for argument, shape in shapes.items()
        if len(shape) == len(argument.shape)
        for text, extent in zip(argument.shape, shape, strict=True)
    ]
    # An axis of several sizes is solved once the others of them are known.
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
    """Return the size at which an axis has some extent; the axis grows with the size."""

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
