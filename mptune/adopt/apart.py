"""Runs of what was written of a program, in a process of their own: a run may crash, or never end."""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from mptune.adopt.findings import Draws
from mptune.adopt.live import AdoptedApplication, Live
from mptune.adopt.parsing import ProgramError
from mptune.backends.base import CompileOptions
from mptune.backends.host import HostBackend
from mptune.backends.host_compiler import HostCompiler
from mptune.backends.processes import ChildEnded, PythonChild
from mptune.data.data import FIRST, Draw, Stream, make_inputs
from mptune.errors import CompileError, MptuneError
from mptune.kernel import Kernel, Sizes
from mptune.kernel.limits import widest
from mptune.measure.buffers import run_once
from mptune.measure.program import Program
from mptune.source.loading import load_tunable
from mptune.source.render import cited, render
from mptune.space.configuration import Configuration
from mptune.space.parameters import PrecisionParameter

#: Seconds for what is compiled before a run.
_COMPILING_S: Final = 120.0
#: Seconds of a run, at least, and as a multiple of the program's own.
_LEAST_RUN_S: Final = 20.0
_LONGER: Final = 10.0
_WITHOUT_CONTRACTION: Final = ("-ffp-contract=off",)
#: By how much a fresh input may change the size of an answer.
_LARGEST_CHANGE: Final = 4.0

Outputs = Mapping[str, NDArray[Any]]
#: Effect of a draw on the answer: a different answer of about the same size, the same bits, or no such answer.
Effect = Literal["changes", "nothing", "breaks"]


class Apart:
    """Runs a definition in a process that is started again after a crash or a timeout.

    Args:
        definition: the definition file.
        program_s: seconds that the program takes.
        contracts: whether operations are joined to one that rounds once, as in a search.
    """

    def __init__(self, definition: Path, program_s: float, *, contracts: bool = True) -> None:
        self._definition, self._contracts = definition, contracts
        self._run_s = max(_LEAST_RUN_S, _LONGER * program_s)
        self._child: PythonChild | None = None

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def outputs(self) -> Outputs:
        """Return the outputs in the program's own types.

        Raises:
            ProgramError: the run crashed, or did not end.
            MptuneError: it cannot be run.
        """
        try:
            return cast(Outputs, self._ask("outputs"))
        except (TimeoutError, ChildEnded) as error:
            how = error.how if isinstance(error, ChildEnded) else "did not end"
            raise ProgramError(f"{self._definition.stem}: with its kernels as templates the program {how}") from None

    def why_not_narrower(self) -> CompileError | None:
        """Return why a kernel does not compile where every type is the next narrower one; None if all do."""
        message = self._ask("why_not_narrower")
        return CompileError(message) if message else None

    def effect(self, draws: Draws) -> Effect:
        """Return what a draw does to the answer."""
        try:
            return cast(Effect, self._ask("effect", draws))
        except (MptuneError, TimeoutError, ChildEnded):
            return "breaks"

    def _ask(self, what: str, *given: object) -> Any:
        limit_s = self._run_s
        if self._child is None:
            limit_s += _COMPILING_S
            self._child = PythonChild("mptune.adopt.apart:serve", keeps_output=True)
            self._child.send((str(self._definition), self._contracts))
        try:
            self._child.send((what, given))
            found = self._child.receive(limit_s)
        except (ChildEnded, TimeoutError):
            self.close()
            raise
        if isinstance(found, MptuneError):
            raise found
        return found


# -- in the child --------------------------------------------------------------------------------


def serve(channel: Connection) -> None:
    """Answer requests for a definition, the first message."""
    try:
        runs = _Runs(*channel.recv())
    except MptuneError as error:
        channel.recv()
        channel.send(error)
        return
    while True:
        what, given = channel.recv()
        try:
            channel.send(getattr(runs, what)(*given))
        except MptuneError as error:
            channel.send(error)


class _Runs:
    def __init__(self, definition: str, contracts: bool) -> None:
        self._application = cast(AdoptedApplication, load_tunable(Path(definition)))
        self._sizes = self._application.resolve_sizes()
        self._backend = HostBackend()
        if not contracts:
            self._backend.compiler = HostCompiler(flags=_WITHOUT_CONTRACTION)
        self._own = widest(self._application, self._sizes, self._backend.device.facts())[0]
        self._answer: Outputs | None = None
        self._compiled: list[tuple[Kernel, Configuration, Sizes]] = []

    def outputs(self) -> Outputs:
        self._answer = self._answer or self._run(FIRST)
        return self._answer

    def _run(self, draw: Draw) -> Outputs:
        with Program(self._application, self._own, self._sizes, self._backend) as program:
            found = run_once(program, make_inputs(self._application, self._sizes, 0, draw))
            self._compiled = program.compiled
        return found

    def effect(self, draws: Draws) -> Effect:
        cast(Live, self._application.steps).draws = draws.of, draws.by, draws.names
        answer, fresh = self.outputs(), self._run(Draw(Stream.UNSEEN))
        is_changed = {
            name: not np.array_equal(values, fresh[name], equal_nan=values.dtype.kind == "f")
            for name, values in answer.items()
        }
        floating = [name for name, values in answer.items() if values.dtype.kind == "f"]
        if not all(_is_like(answer[name], fresh[name]) for name in floating):
            return "breaks"
        if draws.of == "data":  # an output may depend on what the host computes alone
            return "changes" if any(is_changed.values()) else "nothing"
        return "changes" if floating and all(is_changed[name] for name in floating) else "nothing"

    def why_not_narrower(self) -> str:
        """Compile each kernel in its next narrower types; all else is as where a search begins."""
        self.outputs()
        for kernel, own, sizes in self._compiled:
            types = [p for p in kernel.parameters if isinstance(p, PrecisionParameter) and len(p.values) > 1]
            configuration = Configuration({**own, **{p.name: p.values[1] for p in types}})
            try:
                if types:
                    source = render(kernel, configuration, sizes)
                    HostBackend().compiler.compile(source, kernel.function, CompileOptions())
            except CompileError as error:
                return cited(str(error), kernel, configuration, sizes)
        return ""


def _is_like(values: NDArray[Any], fresh: NDArray[Any]) -> bool:
    """Whether values are finite where others are, and about as large."""
    finite = np.isfinite(values)
    one, other = (float(np.linalg.norm(each[finite].astype(float))) for each in (values, fresh))
    return np.array_equal(finite, np.isfinite(fresh)) and one / _LARGEST_CHANGE <= other <= one * _LARGEST_CHANGE
