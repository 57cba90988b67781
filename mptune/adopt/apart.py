"""Runs of what was written of a program, in processes of their own: a run may crash, or never end.

Numbers that are rounded, or changed, lead some kernels out of their arrays, and others to no convergence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from mptune.adopt.parsing import ProgramError
from mptune.backends.base import CompileOptions
from mptune.backends.host import HostBackend
from mptune.backends.host_compiler import HostCompiler
from mptune.backends.processes import ChildEnded, PythonChild
from mptune.data.data import FIRST, Draw, Stream, make_inputs
from mptune.errors import CompileError, LaunchError, MptuneError
from mptune.kernel import Application
from mptune.kernel.limits import widest
from mptune.measure.buffers import run_once
from mptune.measure.instrument import Instrument
from mptune.measure.program import Program, size_names
from mptune.source.loading import load_tunable
from mptune.source.render import cited, render
from mptune.space.configuration import Configuration, Value
from mptune.space.parameters import PrecisionParameter

#: How long a run may take for a start, with what is compiled for it.
_STARTING_S: Final = 60.0
_ANSWER_S: Final = 300.0
#: Of how long a program takes, how long may what was written of it, with fresh inputs.
_LONGER: Final = 10.0
#: As programs are compiled, whose digits are compared.
_AS_THE_PROGRAM: Final = ("-ffp-contract=off",)
_LARGEST_BLOCK: Final = 1024
#: By how much a fresh input may change the size of an answer.
_LARGEST_CHANGE: Final = 4.0

Outputs = Mapping[str, NDArray[Any]]


def answer(definition: Path, *, contracts: bool) -> tuple[Outputs, CompileError | None]:
    """Return the outputs of what was written, in the program's own types, and why it cannot be compiled in others.

    Args:
        definition: of what is run.
        contracts: whether operations are joined to one that rounds once, as in a search, which then has it compiled.
            Some programs make much of the last digit: without, theirs are the same.

    Raises:
        ProgramError: it crashed, or did not end.
        MptuneError: it cannot be run.
    """
    child = PythonChild("mptune.adopt.apart:tell_answer", keeps_output=True)
    try:
        child.send((str(definition), contracts))
        found: tuple[Outputs, CompileError | None] | MptuneError = child.receive(_ANSWER_S)
    except TimeoutError:
        raise ProgramError(f"{definition.stem}: what was written did not end within {_ANSWER_S:g} s") from None
    except ChildEnded as ended:
        raise ProgramError(
            f"{definition.stem}: what was written of the program {ended.how}; please report this with the program"
        ) from None
    finally:
        child.kill()
    if isinstance(found, MptuneError):
        raise found
    return found


def has_fresh_answer(definition: Path, seconds: float, *, may_stay: bool) -> bool:
    """Whether a fresh input has another answer than the first one, of about the same size.

    Args:
        definition: of what is run.
        seconds: how long a run takes, about.
        may_stay: whether outputs may be the same.
    """
    child = PythonChild("mptune.adopt.apart:tell_change", keeps_output=True)
    try:
        child.send((str(definition), may_stay))
        return child.receive(_STARTING_S + _LONGER * seconds) is True
    except (ChildEnded, TimeoutError):
        return False
    finally:
        child.kill()


class InstrumentApart:
    """An :class:`~mptune.measure.instrument.Instrument` that goes on after runs that crash or do not end.

    Args:
        definition: of what is run.
        limit_s: how long a run may take, once one has been made.

    Attributes:
        tunable: what is run.

    Raises:
        LaunchError: it does not even run in its widest types.
        MptuneError: it cannot be run so.
    """

    def __init__(self, definition: Path, *, limit_s: float) -> None:
        self.tunable = load_tunable(definition)
        self._definition = str(definition)
        self._limit_s = limit_s
        self._start()

    def errors(self, signature: Mapping[str, Value]) -> dict[str, float]:
        """Return the error metrics of a signature; an infinite error where its run crashes or does not end.

        Raises:
            MptuneError: as of :meth:`~mptune.measure.instrument.Instrument.errors`.
        """
        try:
            self._child.send(dict(signature))
            return _raised(self._child.receive(self._limit_s))
        except (ChildEnded, TimeoutError):
            self._child.kill()
            self._start()
            return {"error": math.inf}

    def close(self) -> None:
        """End the process."""
        self._child.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        self._child = PythonChild("mptune.adopt.apart:serve", keeps_output=True)
        try:
            self._child.send(self._definition)
            _raised(self._child.receive(_STARTING_S))
        except (ChildEnded, TimeoutError):
            self._child.kill()
            raise LaunchError(f"{self.tunable.name}: its instrumented build crashes, or does not end") from None
        except MptuneError:
            self._child.kill()
            raise


def _raised(found: dict[str, float] | MptuneError) -> dict[str, float]:
    if isinstance(found, MptuneError):
        raise found
    return found


# -- in the child --------------------------------------------------------------------------------


def serve(channel: Connection) -> None:
    """Answer with the errors of signatures, those in the widest types first."""
    try:
        tunable = load_tunable(Path(channel.recv()))
        instrument = Instrument(tunable, tunable.resolve_sizes())
        channel.send(instrument.errors({}))
        while True:
            channel.send(_errors_or_why_not(instrument, channel.recv()))
    except MptuneError as error:
        channel.send(error)


def _errors_or_why_not(instrument: Instrument, signature: Mapping[str, Value]) -> dict[str, float] | MptuneError:
    try:
        return instrument.errors(signature)
    except MptuneError as error:
        return error


def tell_answer(channel: Connection) -> None:
    """Answer with the outputs of a definition, and why it does not compile in narrower types."""
    try:
        definition, contracts = channel.recv()
        application = _loaded(Path(definition))
        with ThreadPoolExecutor(1) as pool:  # (what compiles is another process)
            narrower = pool.submit(_why_not_narrower, application)
            channel.send((_outputs(application, FIRST, contracts=contracts), narrower.result()))
    except MptuneError as error:
        channel.send(error)


def tell_change(channel: Connection) -> None:
    """Answer whether a fresh input of a definition has another answer than the first one, of about the same size."""
    definition, may_stay = channel.recv()
    application = _loaded(Path(definition))
    first, fresh = (_outputs(application, draw) for draw in (FIRST, Draw(Stream.UNSEEN)))
    changes = []
    for name, values in first.items():
        if values.dtype.kind == "f":
            are, others = np.isfinite(values), np.isfinite(fresh[name])
            one, other = np.linalg.norm(values[are].astype(float)), np.linalg.norm(fresh[name][are].astype(float))
            is_like = np.array_equal(are, others) and one / _LARGEST_CHANGE <= other <= one * _LARGEST_CHANGE
            changes.append(is_like and (may_stay or not np.array_equal(values[are], fresh[name][are])))
    channel.send((may_stay or bool(changes)) and all(changes))


def _loaded(definition: Path) -> Application:
    application = load_tunable(definition)
    assert isinstance(application, Application)
    return application


def _why_not_narrower(application: Application) -> CompileError | None:
    """Return why a kernel does not compile where every type is the next narrower one; None if all do.

    All else is as where a search begins, which then has it compiled.
    """
    sizes, backend = application.resolve_sizes(), HostBackend()
    first = widest(application, sizes, backend.device.facts())[0]
    for kernel in application.kernels.values():
        narrower = {
            p.name: p.values[1] for p in kernel.parameters if isinstance(p, PrecisionParameter) and len(p.values) > 1
        }
        if narrower:
            own = {p.name: first.get(f"{kernel.name}.{p.name}", p.values[0]) for p in kernel.parameters}
            configuration = Configuration(own | narrower)
            # What only a launch has changes nothing of whether it compiles; a grid is no smaller than a block.
            of_launch = {
                name: 1 if name in kernel.expressions("block") else _LARGEST_BLOCK for name in size_names(kernel)
            }
            of_kernel = {**of_launch, **sizes}
            try:
                backend.compiler.compile(render(kernel, configuration, of_kernel), kernel.function, CompileOptions())
            except CompileError as error:
                return CompileError(cited(str(error), kernel, configuration, of_kernel))
    return None


def _outputs(application: Application, draw: Draw, *, contracts: bool = True) -> Outputs:
    """Return the outputs of what was written, in the program's own types."""
    sizes = application.resolve_sizes()
    backend = HostBackend()
    backend.compiler = HostCompiler(flags=() if contracts else _AS_THE_PROGRAM)
    configuration = widest(application, sizes, backend.device.facts())[0]
    with Program(application, configuration, sizes, backend) as program:
        return run_once(program, make_inputs(application, sizes, 0, draw))
