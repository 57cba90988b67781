"""The definition of an application: several kernels, the Python that launches them, and its compared outputs."""

from __future__ import annotations

import dataclasses
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from mptune.errors import ConstraintError, KernelError, UnknownNameError
from mptune.kernel.declarations import Argument, Role, Sizes, check_expression, check_precision
from mptune.kernel.definition import Kernel
from mptune.kernel.regions import Over, Reduce
from mptune.kernel.tunable import Constraint, Inputs, Metric, Tunable
from mptune.space.configuration import Configuration, NamedValues, Value
from mptune.space.constraints import Constraint as Compiled
from mptune.space.constraints import compile_constraint
from mptune.space.parameters import Parameter, PrecisionParameter, listed
from mptune.space.search_space import SearchSpace

#: Methods of ``run``, which no kernel, buffer or shared parameter may be named like.
TAKEN: Final = ("read", "record", "write", "copy", "swap", "fill")
TIMED: Final = ("steps", "launches")


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True, init=False)
class Application(Tunable):
    """Several kernels that run together, tuned together and judged by the application's own outputs.

    Its parameters are the types of its buffers, the shared parameters, and each kernel's own parameters as
    ``KERNEL.PARAMETER``. A kernel's array arguments have the types of the buffers that a launch passes.

    Args:
        name: the application's name.
        kernels: the kernels; they need no sizes, inputs or references of their own.
        buffers: buffers (:func:`Buffer`, :func:`~mptune.InOut`, :func:`~mptune.Scratch`), and scalars for the steps
            (:func:`~mptune.Scalar`). Their precisions name parameters of ``shared`` or of kernels.
        sizes: problem sizes by preset name; ``default`` must be among them.
        inputs: ``inputs(rng, size)`` returns the fp64 (or integer) arrays by buffer.
        steps: ``steps(run, size)`` launches the kernels: ``run.KERNEL(argument=run.BUFFER, ...)``. It is ordinary
            Python and may read the contents of buffers (``run.read``).
        outputs: names of the compared buffers.
        shared: types of buffers, and choices that the steps read as ``run.NAME``. A kernel's parameter of that name has
            the same value.
        reference: ``reference(inputs, size)`` returns the outputs. None: the application itself, run in fp64.
        metric, instrumented, over, reduce: as in :class:`~mptune.Kernel`.
        constraints: predicates over parameters and sizes.
        signature: kernels' own parameters that can change results, besides precisions, policies and shared ones.
        description: one line for ``mptune list``.
        timed: "steps": a run takes what the clock says of all of them; "launches": the sum of its launches' times.
        path: the definition file; set by the loader.

    Raises:
        KernelError: the definition is incomplete or contradicts itself.
        UnknownNameError: an output is no buffer, or a buffer's precision is no parameter.
        ExpressionError: a shape or constraint does not parse or uses an unknown name.
    """

    what: ClassVar[str] = "application"

    kernels: Mapping[str, Kernel]
    steps: Callable[..., None]
    timed: str
    shared: Sequence[Parameter]
    constraints: Sequence[Constraint]
    _made_from: Mapping[str, Any]

    def __init__(
        self,
        *,
        name: str,
        kernels: Sequence[Kernel],
        buffers: Sequence[Argument],
        sizes: Mapping[str, Mapping[str, int]],
        inputs: Callable[..., Inputs],
        steps: Callable[..., None],
        outputs: Sequence[str],
        shared: Sequence[Parameter] = (),
        reference: Callable[[Inputs, Sizes], Any] | None = None,
        metric: Metric | Sequence[Metric] | Mapping[str, Metric | Sequence[Metric]] = "NRMSE",
        constraints: Sequence[Constraint] = (),
        signature: Sequence[str] = (),
        instrumented: bool = False,
        description: str = "",
        timed: str = "steps",
        path: Path | None = None,
        over: Over | None = None,
        reduce: Reduce = "max",
    ) -> None:
        given = {key: value for key, value in locals().items() if key != "self"}
        kernels, buffers, shared, outputs = (listed(each) for each in (kernels, buffers, shared, outputs))
        if timed not in TIMED:
            raise UnknownNameError(f"timed= of application {name}:", timed, TIMED)
        if not all(isinstance(kernel, Kernel) for kernel in kernels):
            shown = reprlib.repr(list(kernels))
            raise KernelError(f"application {name}: kernels= is a list of Kernel(...), not {shown}")
        if path is not None:  # the kernels that its file defines have templates called <stem>_<kernel>.cu.j2
            located = {k.name: k.template or f"{path.stem}_{k.name}.cu.j2" for k in kernels if not k.path}
            kernels = [k if k.path else k.changed(path=path, template=located[k.name]) for k in kernels]
        by_name = {kernel.name: kernel for kernel in kernels}
        if not kernels:
            raise KernelError(f"application {name} has no kernels")
        if len(by_name) < len(kernels):
            (twice, _), *_ = Counter(kernel.name for kernel in kernels).most_common(1)
            raise KernelError(f"application {name}: two kernels are called {twice!r}")
        types = _types_of(name, buffers, shared, kernels)
        own = [p.renamed(f"{kernel.name}.{p.name}") for kernel in kernels for p in free(kernel, shared)]
        always = [p.name for p in (*shared, *own) if p.name in {s.name for s in shared}]
        by_buffer = {buffer.name: buffer for buffer in buffers}
        for output in outputs:
            if output not in by_buffer:
                raise UnknownNameError(f"output of application {name}:", output, by_buffer)
            if by_buffer[output].role is Role.SCALAR:
                raise KernelError(f"application {name}: output {output!r} is a scalar")
        arguments = []
        for buffer in buffers:  # outputs are written and compared, no other buffer is compared
            is_output = buffer.name in outputs
            role = Role.OUT if is_output and buffer.role is Role.IN else buffer.role
            is_compared = is_output or role in (Role.IN, Role.SCALAR)
            arguments.append(dataclasses.replace(buffer, role=role, is_compared=is_compared))
        inherited = [f"{kernel.name}.{n}" for kernel in kernels for n in kernel.signature if n not in typed(kernel)]
        self._freeze(
            name=name,
            parameters=(*types, *(p for p in shared if p.name not in {t.name for t in types}), *own),
            arguments=arguments,
            sizes=sizes,
            inputs=inputs,
            reference=reference,
            metric=metric,
            signature=(*always, *inherited, *listed(signature)),
            instrumented=instrumented,
            description=description,
            path=path,
            kernels=NamedValues(by_name),
            steps=steps,
            timed=timed,
            shared=shared,
            constraints=listed(constraints),
            _made_from=NamedValues(given),
        )
        self.__post_init__(over, reduce)

    def changed(self, **changes: Any) -> Self:
        """Return a copy with some arguments of the constructor replaced."""
        return type(self)(**{**self._made_from, **changes})

    def search_space(self, sizes: Sizes, constraints: Sequence[Constraint] = ()) -> SearchSpace:
        """Return the joint configurations that are valid by all constraints known before a launch."""
        own = (lifted for kernel in self.kernels.values() for lifted in self.lifted(kernel, kernel.constraints, sizes))
        return SearchSpace(self.parameters, (*self.constraints, *own, *constraints), constants=dict(sizes))

    def lifted(self, kernel: Kernel, constraints: Iterable[Constraint], sizes: Sizes) -> list[Compiled]:
        """Return a kernel's constraints over the application's parameters.

        Constraints over types of arguments, or over sizes that only a launch has, are checked at the launch.
        """
        names = {p.name: f"{kernel.name}.{p.name}" for p in free(kernel, self.shared)}
        names |= {p.name: p.name for p in self.shared}
        found = []
        for constraint in constraints:
            try:
                compiled = compile_constraint(constraint, kernel.parameter_names, dict(sizes))
            except ConstraintError:
                continue
            if compiled.names <= names.keys():
                found.append(compiled.renamed(names))
        return found

    def of_kernel(self, name: str, types: Mapping[str, Value], configuration: Configuration) -> Configuration:
        """Return a kernel's part of an application's configuration, with the types of its array arguments."""
        kernel = self.kernels[name]
        own = {p.name: f"{name}.{p.name}" for p in free(kernel, self.shared)}
        names = {p.name: own.get(p.name, p.name) for p in kernel.parameters}
        return kernel.own({known: types.get(known, configuration.get(given)) for known, given in names.items()})

    def _check(self) -> None:
        Tunable._check(self)

        self._check_call(self.steps, "steps(run, size)")
        named = [*self.kernels, *(a.name for a in self.arguments), *(p.name for p in self.shared)]
        for name in named:
            if named.count(name) > 1 or name in TAKEN:
                problem = "a method of run in the steps" if name in TAKEN else "used twice in the steps"
                raise KernelError(f"{self.called}: the name {name!r} is {problem}; choose another one")
        if not self.outputs:
            raise KernelError(f"{self.called}: no buffer is an output")
        names = tuple(self.sizes["default"])
        for argument in self.arguments:
            if argument.is_constant:
                raise KernelError(f"{self.called}: {argument.name!r} cannot be in constant memory")
            for axis in argument.shape:
                check_expression(axis, names, f"shape of buffer {argument.name!r}", self.name)


def typed(kernel: Kernel) -> frozenset[str]:
    """Return the parameters that are types of a kernel's array arguments, which the passed buffers decide."""
    names = {p.name for p in kernel.parameters}
    return frozenset(a.precision for a in kernel.passed if a.role is not Role.SCALAR and a.precision in names)


def free(kernel: Kernel, shared: Iterable[Parameter]) -> list[Parameter]:
    """Return the parameters of a kernel that are its own: no buffer decides them, and no other kernel shares them."""
    others = typed(kernel) | {parameter.name for parameter in shared}
    return [parameter for parameter in kernel.parameters if parameter.name not in others]


def _types_of(
    name: str, buffers: Iterable[Argument], shared: Iterable[Parameter], kernels: Iterable[Kernel]
) -> list[Parameter]:
    offered = {p.name: p for p in shared if isinstance(p, PrecisionParameter)}
    for kernel in kernels:
        for parameter in kernel.parameters:
            if isinstance(parameter, PrecisionParameter) and parameter.name not in {p.name for p in shared}:
                known = offered.get(parameter.name, parameter)
                common = [value for value in known.values if value in parameter.values]
                if not common:
                    raise KernelError(
                        f"application {name}: kernel {kernel.name} shares no type of {parameter.name!r} with the other "
                        "kernels"
                    )
                offered[parameter.name] = PrecisionParameter(parameter.name, [str(value) for value in common])
    found: dict[str, Parameter] = {}
    for buffer in buffers:
        if buffer.precision in offered:
            found[buffer.precision] = offered[buffer.precision]
        elif buffer.precision is not None:
            check_precision(buffer.precision, offered, f"buffer {buffer.name!r} of application {name}")
    return list(found.values())
