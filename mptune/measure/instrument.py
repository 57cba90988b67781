"""The error of every choice of types from one compilation: types are chosen at run time.

An instrumented build is the ordinary template, rendered for the host with one type for all precision parameters: it
holds a double and rounds to a type set at run time (``templates/prelude/traced.hpp``). Policies are chosen likewise.
Its results equal those of the real types, except for fused operations and the order of sums.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.evaluate import Metrics, evaluate_outputs
from mptune.backends import get_backend
from mptune.backends.base import Binary, Buffer, CompileOptions, Function
from mptune.backends.host import HostFunction
from mptune.data import DataManager
from mptune.errors import CompileError, ConstraintError, EmptySpaceError, KernelError
from mptune.kernel import Application, Argument, Kernel, Role, Sizes, Tunable
from mptune.kernel.application import free
from mptune.kernel.limits import space_on
from mptune.measure.answers import with_reference
from mptune.measure.bench import INSTRUMENTED
from mptune.measure.buffers import run_once
from mptune.measure.program import Program, first_that_runs
from mptune.precision import COMPOUND, PRECISIONS, TRACED, Precision, precision
from mptune.results.estimates import DEFINED, ROOM, Count, Counts, decoded, table
from mptune.source.render import cited, names_types, render
from mptune.space.configuration import Configuration, Value
from mptune.space.parameters import PolicyParameter, PrecisionParameter

#: Numbers of types and policies in ``traced.hpp``.
_TYPES: Final = {name: 1 << k for k, name in enumerate(PRECISIONS)}
_POLICIES: Final = {"accurate": 0, "fast": 1, "approx": 2}
#: Environment variable with the types of a library's precision parameters, read when it is loaded.
_ON_LOADING: Final = "MPTUNE_TRACED_TYPES"
#: Maximum precision parameters of a traced kernel.
_MOST_TYPES: Final = 120
#: A build runs once for each choice of types, mostly in branches on these: -O3 is hardly faster and slow to compile.
_OPTIMISATION: Final = "-O1"
#: No optimisation may undo the roundings; and a copy of each loop for every type would take half a minute to compile.
_FLAGS: Final = ("-fno-unsafe-math-optimizations", "-fno-finite-math-only", "-fno-unswitch-loops")
#: Maximum configurations to try until one can be launched.
_TRIED: Final = 20


class _TracedProgram(Program):
    """One configuration on instrumented kernels: values are held in fp64, rounded to their types."""

    def __init__(self, instrument: Instrument, configuration: Configuration) -> None:
        self._instrument = instrument
        super().__init__(instrument.tunable, configuration, instrument.sizes, get_backend("host"))

    def held(self, argument: Argument, chosen: Precision | None) -> Precision | None:
        return chosen if chosen is None or argument.precision in PRECISIONS else TRACED[chosen.name]

    def convert(self, source: str, target: str, memory: Mapping[str, Buffer]) -> None:
        self.write(target, self.read(source, memory[source]).reshape(self.shapes[target]), memory[target])

    def extents_of(self, kernel: Kernel, configuration: Configuration) -> Configuration:
        return in_widest(kernel, configuration)

    def counts(self) -> dict[str, Counts]:
        """Return what each kernel has done since it was loaded, by the parameters and policies of the tunable."""
        arrays: dict[str, list[tuple[Argument, Argument, int]]] = {}
        names: dict[str, dict[str, str]] = {}
        if isinstance(self.tunable, Kernel):
            names[self.tunable.name] = {}
            arrays[self.tunable.name] = [(self.arguments[name], self.arguments[name], 1) for name in self.shapes]
        for launched, (count, _) in self.launched.items():
            application = cast(Application, self.tunable)
            kernel = application.kernels[launched.kernel]
            own = free(kernel, application.shared)
            arguments = {argument.name: argument for argument in kernel.arguments}
            own_names = names.setdefault(kernel.name, {p.name: f"{kernel.name}.{p.name}" for p in own})
            for name, buffer in launched.buffers:
                argument, passed = arguments[name], self.arguments[buffer]
                if argument.precision and passed.precision:
                    own_names.setdefault(argument.precision, passed.precision)
                arrays.setdefault(kernel.name, []).append((argument, passed, count))
        operations: dict[str, list[Count]] = {name: [] for name in names}
        for (kernel, _, _), function in self._functions.items():
            found = table()
            function.read_constant("mptune_counts", found)
            if found["number"][-1]:
                raise KernelError(f"{kernel.called} has more different operations than can be counted ({ROOM})")
            types = [names[kernel.name].get(p.name, p.name) for p in _of_kind(kernel, PrecisionParameter)]
            policies = [names[kernel.name].get(p.name, p.name) for p in _of_kind(kernel, PolicyParameter)]
            operations[kernel.name] += decoded(found, types.__getitem__, policies.__getitem__)
        return {
            name: Counts(tuple(found), *self._moved(arrays.get(name, ())), name in self._instrument.left_out)
            for name, found in operations.items()
        }

    def _moved(self, arrays: Iterable[tuple[Argument, Argument, int]]) -> tuple[dict[str, int], int]:
        """Return elements by precision, and bytes of integers, of arguments with their buffers and launches."""
        elements, integer_bytes = Counter[str](), 0
        for argument, buffer, count in arrays:
            number = math.prod(self.shapes[buffer.name]) * count * (2 if argument.role is Role.INOUT else 1)
            if buffer.precision is not None:
                elements[buffer.precision] += number
            else:
                integer_bytes += number * np.dtype(buffer.dtype).itemsize
        return dict(elements), integer_bytes

    def load(self, kernel: Kernel, configuration: Configuration, sizes: Sizes) -> Function:
        types = [_TYPES[precision(str(configuration[p.name])).name] for p in _of_kind(kernel, PrecisionParameter)]
        policies = [_POLICIES[str(configuration[p.name])] for p in _of_kind(kernel, PolicyParameter)]
        binary = self._instrument.compile(kernel, in_widest(kernel, configuration), sizes)
        # Numbers outside functions are rounded when it is loaded.
        os.environ[_ON_LOADING] = ",".join(map(str, types))
        try:
            function = self.backend.device.load(binary)
        finally:
            del os.environ[_ON_LOADING]
        if self._instrument.is_counting:
            cast(HostFunction, function).workers = 1
        for name, values in (("mptune_types", types), ("mptune_policies", policies)):
            function.set_constant(name, np.array([*values, 0], np.int32))  # an array must not be empty
        return function

    def _handle(self, what: str, argument: Argument, value: Any) -> str:
        buffer = super()._handle(what, argument, value)
        own, passed = argument.precision, self.arguments[buffer].precision
        if own is not None and passed is not None and (own in PRECISIONS) != (passed in PRECISIONS):
            raise KernelError(
                f"{what}: the type of {argument.name!r} or of buffer {buffer!r} is fixed and that of the other one a "
                "parameter's, so that an instrumented run cannot hold it as both: give both a parameter, of one value "
                "if need be"
            )
        return buffer


class Instrument:
    """Measures the errors of a kernel or an application in any types: compiled once, run for each choice.

    Inputs, references and metrics equal the search's; ``data`` holds inputs and references if already made. One
    configuration is compiled for each combination of signature values other than precisions and policies.
    """

    def __init__(
        self,
        tunable: Tunable,
        sizes: Sizes,
        *,
        metric: Metrics | None = None,
        seed: int = 0,
        flags: Sequence[str] = (),
        data: DataManager | None = None,
        is_counting: bool = False,
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.is_counting = is_counting  #: whether operations are counted, on one thread
        self._announce = announce  #: called with the phase, "compile" or "instrumented run"
        self._backend = get_backend("host")
        self._options = CompileOptions(flags=(_OPTIMISATION, *flags, *_FLAGS))
        self._metrics = metric if metric is not None else tunable.metric
        self.tunable = with_reference(tunable, self._backend, CompileOptions(flags=tuple(flags)))
        self.sizes = sizes
        self._data = data or DataManager(self.tunable, sizes, seed=seed)
        self.binaries: dict[Any, Binary] = {}
        self.left_out = set[str]()  #: kernels without the operations of types that their templates name themselves
        #: Configurations to try, by the signature values that are compiled.
        self._bases: dict[tuple[Value, ...], list[Configuration]] = {}
        chosen = (PrecisionParameter, PolicyParameter)
        types = {p.name for p in tunable.parameters if isinstance(p, chosen)}
        self._compiled = [name for name in tunable.signature_names if name not in types]

    def errors(self, signature: Mapping[str, Value]) -> dict[str, float]:
        """Return the error metrics of a signature; infinite where a result is not finite.

        Missing parameters have the values of a baseline (or their first). Raises ConstraintError if the kernels do not
        allow these types together, or if one is compound, which cannot be chosen at run time.
        """
        data = self._data
        found = evaluate_outputs(self.outputs(signature), data.references, self._metrics, data.inputs).metrics
        return {name: math.inf if math.isnan(error) else error for name, error in found.items()}

    def outputs(self, signature: Mapping[str, Value]) -> dict[str, NDArray[Any]]:
        """Return the outputs of a signature by name, in fp64; raises like :meth:`errors`."""
        for parameter in _of_kind(self.tunable, PrecisionParameter):
            asked = precision(str(signature.get(parameter.name, "fp64"))).name
            if asked in COMPOUND:
                raise ConstraintError(
                    f"{parameter.name} is {asked}, which is compound: an instrumented run, where types are chosen "
                    f"as it runs, has one of {', '.join(PRECISIONS)}"
                )

        return self._run(signature)[0]

    def counts(self, signature: Mapping[str, Value]) -> dict[str, Counts]:
        """Return what each kernel does in one run, for all types; raises like :meth:`errors`."""
        return self._run(signature)[1]

    def _run(self, signature: Mapping[str, Value]) -> tuple[dict[str, NDArray[Any]], dict[str, Counts]]:
        def run(base: Configuration) -> tuple[dict[str, NDArray[Any]], dict[str, Counts]]:
            with _TracedProgram(self, Configuration({**base, **signature})) as program:
                outputs = run_once(program, self._data)
                return outputs, program.counts() if self.is_counting else {}

        candidates = self._candidates(signature)
        base, found = first_that_runs(candidates, run)
        candidates[:] = [base]  # it runs in all types
        return found

    def compile(self, kernel: Kernel, base: Configuration, sizes: Sizes) -> Binary:
        """Return an instrumented kernel, compiled once for all types it may have."""
        types = [parameter.name for parameter in _of_kind(kernel, PrecisionParameter)]
        if len(types) > _MOST_TYPES:
            raise KernelError(f"{kernel.called}: at most {_MOST_TYPES} precision parameters can be chosen at run time")
        key = (kernel.name, base, tuple(sizes.items()))
        has_own = self.is_counting and kernel.name not in self.left_out and names_types(kernel)
        if key not in self.binaries:
            source = DEFINED * self.is_counting + render(
                kernel, base, sizes, is_traced=True, is_every_type_traced=has_own
            )
            self._announce("compile")
            try:
                self.binaries[key] = self._backend.compiler.compile(source, kernel.function, self._options)
            except CompileError as error:
                if has_own:
                    self.left_out.add(kernel.name)
                    return self.compile(kernel, base, sizes)
                raise CompileError(
                    f"{kernel.called} does not compile with types that are chosen when it runs: "
                    f"{_by_name(cited(str(error), kernel, base, sizes), types)}"
                ) from error
            self._announce(INSTRUMENTED)
        return self.binaries[key]

    def _candidates(self, signature: Mapping[str, Value]) -> list[Configuration]:
        """Return configurations in the widest types with the signature's values that are compiled."""
        wanted = {name: (signature[name],) for name in self._compiled if name in signature}
        key = tuple(value for (value,) in wanted.values())
        if key not in self._bases:
            valid = space_on(self.tunable, self.sizes, self._backend.device.facts())
            widest = self.tunable.baseline_values()
            try:
                space = valid.restrict({**widest, **wanted})
            except EmptySpaceError:
                space = valid.restrict(widest)  # these values need narrower types, which are not compiled
            evenly = np.unique(np.linspace(0, space.size - 1, min(_TRIED, space.size)).astype(np.int64))
            self._bases[key] = space.configurations(evenly)
        return self._bases[key]


def in_widest(kernel: Kernel, configuration: Configuration) -> Configuration:
    """Return a configuration in its kernel's widest types and most accurate policies."""
    return Configuration({**configuration, **{name: values[0] for name, values in kernel.baseline_values().items()}})


def _by_name(message: str, types: Sequence[str]) -> str:
    message = re.sub(r" \{aka '[^']*'\}", "", message)
    message = re.sub(r"mp::type_of_parameter<(\d+)>", lambda found: types[int(found[1])], message)
    return re.sub(r"mp::traced<\d+>", "(a chosen type)", message)


def _of_kind(kernel: Tunable, kind: type[PrecisionParameter | PolicyParameter]) -> list[Any]:
    return [parameter for parameter in kernel.parameters if isinstance(parameter, kind)]
