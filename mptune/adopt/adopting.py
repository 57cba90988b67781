"""From a program as it stands to a folder that can be tuned: read, run, understood, written and checked."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune import __version__
from mptune.accuracy.metrics import resolve
from mptune.adopt.apart import Apart, Outputs
from mptune.adopt.blocks import split_kernels
from mptune.adopt.capture import (
    FOR_KERNEL,
    FOR_LIBRARY,
    Capture,
    CheckFailedError,
    Copy,
    capture,
    plain_name,
    told_apart,
)
from mptune.adopt.classes import TypeClass, TypeClasses
from mptune.adopt.findings import SIGNED, UNSIGNED, Draws, Findings, listed, over_each
from mptune.adopt.grouping import parameters_of
from mptune.adopt.launched import classes_in
from mptune.adopt.makefiles import SOURCES, Project, project_in, project_of_database
from mptune.adopt.on_gpu import built_for_gpu
from mptune.adopt.origins import origin
from mptune.adopt.parsing import KernelRefusedError, ProgramError, Refusal, SourceFile
from mptune.adopt.reading import GRID, IN_STEP, NESTED, Program, own_files, paddings, read
from mptune.adopt.running import Built, TooLargeError, build, is_of_hip, run, stopwatch
from mptune.adopt.shortening import COUNT, macros_of, recorded
from mptune.adopt.sizes import FoundSizes, find_sizes, launches_of, not_given, option_of, read_into
from mptune.adopt.writing import Adopted, common_folder, name_of, set_draws, write
from mptune.errors import BackendUnavailableError, MptuneError, UnknownNameError
from mptune.source.loading import RECORD

_INCLUDED: Final = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_MOST_MACROS: Final = 6
_MACRO: Final = re.compile(r"^[ \t]*#[ \t]*(?:define|ifn?def)[ \t]+(\w+)", re.MULTILINE)
#: Where programs can run to be recorded.
_BACKENDS: Final = ("auto", "host", "cuda")
#: Seconds to find out which buffers fresh inputs can change.
_PROBED_S: Final = 10.0
#: Of numbers that a program prints, when its sums have another order.
_LARGEST_DIFFERENCE: Final = 1e-6
#: By how much numbers are changed for fresh inputs, the first that does not break the answer.
_CHANGES: Final = (0.1, 0.01, 0.001, 0.0001)
_BREAKS: Final = "the answer is then not finite, of another size, or the program does not end"
#: Largest error (NRMSE) of the answer in the program's own types, by contraction and the order of operations.
_LARGEST_ERROR: Final = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-1}
#: Of whole numbers, those that may be the next one.
_LARGEST_SHARE: Final = 1e-3


@dataclass(frozen=True, slots=True)
class AdoptSettings:
    """What is adopted, and how.

    Attributes:
        files: the files of the program that a compiler is given, or folders of them. Of one folder, its Makefile says
            which files, macros, folders of headers and arguments it has, and the program runs in the folder.
        arguments: of its command line; None for those of the Makefile.
        defines: macros (``-D``), by name; "" for one without a value.
        macros: macros whose values are tuned, with these; the program's own value, or else the first, is the default.
        includes: folders of headers (``-I``).
        compile_commands: a compilation database, whose files, macros and folders are taken.
        types: at most so many precision parameters.
        metric: how the outputs are compared; None for the default.
        kernels: those that are tuned; of all others, the types and blocks stay the program's. Empty for all.
        vary: by what part of itself a number changes at most for fresh inputs, 0 for none; None to find out.
        varied: names of the buffers and variables that change for fresh inputs; empty to find out.
        time_limit_s: how long a run of the program may take.
        backend: where it runs to be recorded: "host", "cuda", or "auto", which is a GPU if one is here and takes it.
    """

    files: tuple[Path, ...]
    arguments: tuple[str, ...] | None = None
    defines: Mapping[str, str] = field(default_factory=dict)
    macros: Mapping[str, Sequence[int]] = field(default_factory=dict)
    includes: tuple[Path, ...] = ()
    compile_commands: Path | None = None
    types: int = 8
    metric: str | None = None
    kernels: tuple[str, ...] = ()
    vary: float | None = None
    varied: tuple[str, ...] = ()
    time_limit_s: float = 60.0
    backend: str = "auto"


def adopt(
    settings: AdoptSettings, folder: Path | None = None, *, on_progress: Callable[[str], None] = lambda _: None
) -> tuple[Adopted, dict[str, Any]]:
    """Make a program one that can be tuned.

    Args:
        settings: which program, and how.
        folder: where it is written; by default ``adopted/`` and the name of the program.
        on_progress: told what is being done.

    Returns:
        What was made, and the document that describes it, which is also written beside it.

    Raises:
        ProgramError: it cannot be adopted; names file, line and a remedy.
        BackendUnavailableError: it is to run on a GPU, and none is here.
    """
    began = time.monotonic()
    settings, project = _completed(settings)
    folder = folder or Path("adopted") / _name(settings)
    if folder.is_symlink():
        folder = folder.resolve()
    _check_output(folder)
    try:
        compiled = _read_and_built(settings, project, on_progress)
        if settings.backend != "host":
            try:
                on_gpu = dataclasses.replace(compiled, built=built_for_gpu(compiled.program), backend="cuda")
                return _adopted(on_gpu, settings, folder, began, on_progress)
            except (ProgramError, BackendUnavailableError) as error:
                if settings.backend == "cuda":
                    raise
                if isinstance(error, ProgramError):
                    why = " ".join(line.strip() for line in str(error).splitlines()[:2])
                    compiled = dataclasses.replace(compiled, note=f"recorded on the processor, not on the GPU: {why}")
        return _adopted(compiled, settings, folder, began, on_progress)
    except ProgramError as error:
        raise ProgramError("\n".join([str(error), *project.notes])) from error.__cause__


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A program that was read and compiled.

    Attributes:
        program: as it was read.
        project: how it is run.
        built: the executable.
        backend: where it runs, "host" or "cuda".
        refused: the kernels that cannot be adopted, by name, each with why.
        note: why it does not run on the GPU that is here; "" if it does, or there is none.
    """

    program: Program
    project: Project
    built: Built
    backend: str
    refused: Mapping[str, Refusal]
    note: str = ""


def _adopted(
    compiled: _Compiled, settings: AdoptSettings, folder: Path, began: float, on_progress: Callable[[str], None]
) -> tuple[Adopted, dict[str, Any]]:
    """Run a program, write what it does to a folder, and check that; as :func:`adopt`.

    A kernel that a run or a compiler refuses stays as it is, and the rest is adopted without it.
    """
    try:
        return _adopted_as_it_is(compiled, settings, folder, began, on_progress)
    except KernelRefusedError as error:
        name = plain_name(error.refusal.kernel)
        refused = {**compiled.refused, name: error.refusal}
        rest = tuple(kernel for kernel in compiled.program.kernels if kernel.name != name)
        program = dataclasses.replace(
            compiled.program, kernels=rest, refusals=(*compiled.program.refusals, error.refusal)
        )
        if name in compiled.refused or not rest:
            raise ProgramError("\n".join(map(str, refused.values()))) from None
        return _adopted(
            dataclasses.replace(compiled, program=program, refused=refused), settings, folder, began, on_progress
        )


def _adopted_as_it_is(
    compiled: _Compiled, settings: AdoptSettings, folder: Path, began: float, on_progress: Callable[[str], None]
) -> tuple[Adopted, dict[str, Any]]:
    """The same; raise KernelRefusedError if a kernel cannot be adopted."""
    project = compiled.project
    with tempfile.TemporaryDirectory(prefix=".adopted-", dir=folder.parent) as made_in:
        scratch = Path(made_in)
        on_progress("running the program")
        as_read = compiled.program
        compiled, captured = _captured(compiled, project.arguments, settings, scratch / "capture")
        program, built = compiled.program, compiled.built
        refused = {name: compiled.refused[name] for name in captured.own}
        if not any(captured.launches()):
            raise ProgramError("\n".join(map(str, refused.values())) or _no_launch(built, captured))
        if program.originals:
            on_progress("running it with its loops")
            _check_loops(program, captured, compiled, settings, scratch / "loops")
        macro_notes: list[str] = []
        if program.macros:
            on_progress("running it with other values of its macros")
            macros, macro_notes = _macros_that_run(program, captured, project.run_in, settings, scratch / "macros")
            program = dataclasses.replace(program, macros=macros)
        on_progress("finding out which sizes it has")
        sizes = find_sizes(program, built, captured, scratch / "sizes", project.run_in)
        classes = classes_in(program, captured)
        given = _given(program, settings, captured, project)

        def written(folder: Path, parameter_of: Mapping[str, str], classes: TypeClasses = classes) -> Adopted:
            metric = settings.metric
            return write(program, classes, parameter_of, captured, folder, given, sizes, metric=metric)

        def compared(made: Adopted, apart: Apart) -> tuple[dict[str, float], str]:
            try:
                return _compared(made, apart.outputs())
            except ProgramError:
                raise
            except MptuneError as error:
                refusal = _cited(program, made, error)
                if refusal is None:
                    raise ProgramError(f"{made.name} cannot be adopted: {error}") from None
                raise KernelRefusedError(refusal) from None

        parameter_of = parameters_of(_free(program, classes), settings.types)
        on_progress("writing templates and definition")
        made = written(scratch / folder.name, parameter_of)
        on_progress("comparing it with the program")
        with Apart(made.folder / f"{made.name}.py", captured.seconds) as apart:
            errors, too_far = compared(made, apart)
            if too_far:  # a search contracts, and literals take the type of what they meet; a few programs amplify that
                literal = dataclasses.replace(classes, literals=())
                exact = written(scratch / "exact" / folder.name, parameter_of, literal)
                with Apart(exact.folder / f"{exact.name}.py", captured.seconds, contracts=False) as other:
                    if compared(exact, other)[1]:
                        unlike = dataclasses.replace(settings, arguments=captured.arguments)
                        _, again = _captured(compiled, captured.arguments, unlike, scratch / "again")
                        raise ProgramError(f"{too_far}; {_likely_cause(captured, again)}")
            narrower = apart.why_not_narrower()
            on_progress("finding out what fresh inputs can be")
            draws, notes_of_draws = _draws(made.found, captured, apart, settings)
            made = set_draws(made, draws)
        document = _document(made, folder, program, settings, captured, sizes, errors, time.monotonic() - began)
        language = "hip" if is_of_hip(file.text for file in program.files) else "cuda"
        document["program"] = {**given, "device": captured.device, "backend": compiled.backend}
        document["program"]["language"] = "openmp" if program.originals else language
        document["notes"] += [
            *project.notes,
            *_notes_of_arguments(project, captured),
            *_notes_of_macros(as_read, program),
            *macro_notes,
            *_notes_of_parts(refused),
            *notes_of_draws,
        ]
        if narrower is not None:
            cited = _cited(program, made, narrower)
            why = f"{made.name} cannot have narrower types: {narrower}"
            if cited is not None:
                why = (
                    f"{cited.extent}: kernel {cited.kernel} cannot have narrower types: it {cited.what}; {cited.remedy}"
                )
            document["notes"].append(f"trials fail: {why}")
        document["notes"] += [*built.notes, *([compiled.note] if compiled.note else [])]
        (made.folder / RECORD).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        if folder.exists():
            folder.rename(scratch / "before")
        made.folder.rename(folder)
    return made, document


def _completed(settings: AdoptSettings) -> tuple[AdoptSettings, Project]:
    """Return the settings with all files, macros and folders, and how the program runs.

    Folders are replaced by the sources in them, or by those that their Makefile or compilation database has.

    Raises:
        ProgramError: there is nothing to adopt, or a setting is wrong.
        UnknownNameError: there is no such metric or backend.
    """
    if settings.backend not in _BACKENDS:
        hint = "; programs of HIP are recorded on the processor" if settings.backend == "hip" else ""
        raise UnknownNameError("backend", settings.backend, _BACKENDS, hint)
    files = [file for path in settings.files for file in (_sources_in(path) if path.is_dir() else [path])]
    project = None
    if settings.compile_commands is not None:
        project = project_of_database(settings.compile_commands)
        known = [file.resolve() for file in files]
        files += [file for file in project.sources if not files or file.resolve() in known]
        project = dataclasses.replace(project, run_in=Path.cwd())
    elif len(settings.files) == 1 and settings.files[0].is_dir() and (project := project_in(settings.files[0])):
        files = list(project.sources) or files
    if project is None:
        root = settings.files[0].resolve() if len(settings.files) == 1 and settings.files[0].is_dir() else None
        project = Project((), {}, (), (), Path.cwd(), root)
    if settings.arguments is not None:
        project = dataclasses.replace(project, arguments=settings.arguments)
    defines, includes = {**project.defines, **settings.defines}, [*settings.includes, *project.includes]
    if settings.types < 1:
        raise ProgramError(f"--types {settings.types}: expected at least one precision parameter")
    if settings.vary is not None and not 0 <= settings.vary < 1:
        raise ProgramError(f"--vary {settings.vary:g}: expected a part of each number from 0 to below 1, such as 0.01")
    if settings.metric is not None:
        resolve(settings.metric)
    for include in settings.includes:
        if not include.is_dir():
            raise ProgramError(f"-I {include} is no folder")
    files = list(dict.fromkeys(file.resolve() for file in files))
    if not files:
        where = ", ".join(map(str, settings.files)) or "the compilation database"
        raise ProgramError(f"{where} has no source file; expected {', '.join(SOURCES)}")
    for file in files:
        if not file.name.isprintable():
            raise ProgramError(f"{file.name!r}: give the file a name without control characters")
    own = {name: int(value) for file in files for name, value in COUNT.findall(file.read_text("utf-8", "replace"))}
    defines |= {
        name: str(own[name] if own.get(name) in values else values[0]) for name, values in settings.macros.items()
    }
    folders = tuple(dict.fromkeys(map(Path.resolve, includes)))
    return dataclasses.replace(settings, files=tuple(files), defines=defines, includes=folders), project


def _sources_in(folder: Path) -> list[Path]:
    """Return the sources in a folder that a compiler is given: those that another one includes are compiled with it."""
    found = sorted(file for file in folder.iterdir() if file.suffix in SOURCES)
    included = {
        (file.parent / name).resolve()
        for file in found
        for name in _INCLUDED.findall(file.read_text(encoding="utf-8", errors="replace"))
    }
    return [file for file in found if file.resolve() not in included]


def _name(settings: AdoptSettings) -> str:
    """Return what a program is called: its only file, or else the folder it is in."""
    first = settings.files[0]
    name = first.stem if len(settings.files) == 1 and first.stem != "main" else first.parent.name
    return name_of(re.sub(r"[-_](cuda|hip|omp)$", "", name))


@contextlib.contextmanager
def _told_what_is_missing(files: Sequence[Path]) -> Iterator[None]:
    """Say of a program that does not compile which macros its Makefile gives, and which files were not given."""
    try:
        yield
    except ProgramError as error:
        folders = {file.parent for file in files}
        missing = (*_macros_in_makefiles(folders, str(error)), *_files_not_given(folders, files, str(error)))
        raise ProgramError("\n".join([str(error), *missing])) from error.__cause__


def _macros_in_makefiles(folders: Iterable[Path], message: str) -> Iterator[str]:
    unknown = set(re.findall(r"'(\w+)'", message))
    for project in filter(None, map(project_in, folders)):
        given = [f"-D {name}={value}".removesuffix("=") for name, value in project.defines.items() if name in unknown]
        if given and project.origin is not None:
            yield f"{project.origin.name} gives the compiler macros; add {' '.join(given)}"


def _files_not_given(folders: Iterable[Path], files: Sequence[Path], message: str) -> Iterator[str]:
    names = re.findall(r"undefined (?:reference to [`']|symbol: )(\w+)", message)
    others = (path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in (*SOURCES, ".c"))
    for path in others if names else ():
        text = path.read_text(encoding="utf-8", errors="replace") if path.resolve() not in files else ""
        if any(re.search(rf"\b{name}\s*\(", text) for name in names):
            yield f"{path} may have it: give all files of the program"


def _read_and_built(settings: AdoptSettings, project: Project, on_progress: Callable[[str], None]) -> _Compiled:
    """Read a program and compile it for the processor.

    Raises:
        ProgramError: it cannot be adopted as far as its text says that, or does not compile.
    """
    with _told_what_is_missing(settings.files):
        on_progress("reading the program")
        program = read(settings.files, settings.defines, settings.includes, settings.kernels)
        for name in settings.macros:
            if not any(re.search(rf"\b{name}\b", file.text) for file in program.files):
                words = dict.fromkeys(_MACRO.findall("\n".join(file.text for file in program.files)))
                raise UnknownNameError("macro of the program", name, words)
        program = dataclasses.replace(program, macros=settings.macros)
        _check(program)
        on_progress("compiling the program")
        refused = _refused(program)
        rest = tuple(kernel for kernel in program.kernels if kernel.name not in refused)
        program = dataclasses.replace(program, kernels=rest)
        if not rest:
            raise ProgramError("\n".join(map(str, refused.values())))
        try:
            return _Compiled(program, project, _built(program, split_kernels(program)), "host", refused)
        except ProgramError as error:
            if not refused:
                raise
            raise ProgramError("\n".join(map(str, refused.values()))) from error


def _check(program: Program) -> None:
    """Check that a program can be adopted as far as its text says that.

    Raises:
        ProgramError: it cannot.
    """
    name = program.sources[0].name
    serious = [refusal for refusal in program.refusals if not refusal.kernel or refusal.what in (NESTED, GRID, IN_STEP)]
    if serious or (program.refusals and not program.kernels):
        others = ", ".join(dict.fromkeys(kernel.name for kernel in program.kernels))
        hint = f"\nkernels that can be adopted once the program runs on the CPU: {others}" if others else ""
        launched = {site.kernel for site in program.launches}
        serious += [refusal for refusal in program.refusals if refusal.kernel in launched]
        raise ProgramError("\n".join(dict.fromkeys(map(str, serious or program.refusals))) + hint)
    if not program.kernels:
        raise ProgramError(f"{name} has no kernel; expected a __global__ function")
    if program.entry is None:
        raise ProgramError(f"{name} has no main, so that it cannot run; give all files of the program")
    mains = {f.extent: None for u in program.units for f in u.functions if f.name == "main" and not f.is_device}
    if len(mains) > 1:
        raise ProgramError(f"main is in {' and in '.join(map(str, mains))}: give the files of one program")


def _refused(program: Program) -> dict[str, Refusal]:
    """Return the kernels that cannot be adopted, by name, each with the first reason.

    All instantiations of a template are refused together, since a run does not tell them apart.
    """
    found: dict[str, Refusal] = {}
    for refusal in program.refusals:
        if not refusal.is_loop:
            found.setdefault(plain_name(refusal.kernel), refusal)
    launched = {site.kernel for site in program.launches}
    adopted = {kernel.name for kernel in program.kernels}
    return {name: each for name, each in found.items() if name not in adopted or each.kernel in launched}


def _built(program: Program, files: Sequence[SourceFile]) -> Built:
    """Compile a program, with these texts of its files."""
    return build(program.sources, files, program.defines, program.includes, gives_host_memory=bool(program.originals))


def _captured(
    compiled: _Compiled, arguments: Sequence[str], settings: AdoptSettings, folder: Path
) -> tuple[_Compiled, Capture]:
    """Run a program and record what it does, with smaller numbers if the run is too long.

    Raises:
        ProgramError: it cannot be run, takes too long, or finds its results wrong.
    """
    program, attempts = compiled.program, itertools.count()
    made: dict[tuple[tuple[str, int], ...], _Compiled] = {(): compiled}

    def record(arguments: Sequence[str], macros: Mapping[str, int], time_limit_s: float) -> tuple[_Compiled, Capture]:
        key = tuple(sorted(macros.items()))
        if key not in made:
            made[key] = _with_macros(compiled, macros, settings)
        captured = capture(
            made[key].built,
            arguments,
            folder / str(next(attempts)),
            run_in=compiled.project.run_in,
            own=compiled.refused,
            time_limit_s=time_limit_s,
            paddings=paddings(program),
        )
        return made[key], captured

    given = {*settings.defines, *settings.macros}
    macros = {n: v for n, v in macros_of(program).items() if n not in given} if compiled.backend == "host" else {}
    try:
        if settings.arguments is not None:
            return record(arguments, {}, settings.time_limit_s)
        return recorded(record, program, arguments, macros, settings.time_limit_s)
    except TooLargeError as error:
        raise ProgramError(
            f"{error}\ngive it a smaller problem, for a run of about a second, which tuning repeats: "
            f"{', or '.join(_made_smaller(program, arguments))}; adopt --time-limit SECONDS waits for longer"
        ) from None
    except CheckFailedError as error:
        launched = {site.kernel for site in program.launches}
        sharing = [f"{k.name} ({k.extent})" for k in program.kernels if k.has_shared and k.label in launched]
        if not sharing:
            raise
        raise ProgramError(
            f"{error}\nhere the threads of a warp do not run in step: where one reads from shared memory what another "
            f"one wrote, __syncthreads() has to stand between, in {', '.join(sharing)}"
        ) from None


def _with_macros(compiled: _Compiled, macros: Mapping[str, int], settings: AdoptSettings) -> _Compiled:
    """Return a program with other values of macros, compiled for the processor."""
    of = compiled.program
    defines = {**of.defines, **{name: str(value) for name, value in macros.items()}}
    program = dataclasses.replace(read(of.sources, defines, of.includes, settings.kernels), macros=of.macros)
    return dataclasses.replace(compiled, program=program, built=_built(program, split_kernels(program)))


def _macros_that_run(
    program: Program, captured: Capture, run_in: Path, settings: AdoptSettings, scratch: Path
) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """Return the values of macros with which the program runs on memory of the same sizes, and why others are left out.

    Raises:
        ProgramError: a macro is left with one value.
    """
    notes: list[str] = []
    own = {id: each.bytes for id, each in captured.allocations.items()}
    macros: dict[str, tuple[int, ...]] = {}
    for name, values in program.macros.items():
        good = [int(program.defines[name])]
        for value in (value for value in values if value not in good):
            try:
                other = read(program.sources, {**program.defines, name: str(value)}, program.includes, settings.kernels)
                ran = capture(
                    _built(other, split_kernels(other)),
                    captured.arguments,
                    scratch / f"{name}-{value}",
                    run_in=run_in,
                    time_limit_s=settings.time_limit_s,
                    is_repeated=False,
                    may_fail=True,
                    own=captured.own,
                )
                if launches_of(ran) != launches_of(captured):
                    raise ProgramError("the program does not launch the same kernels")
                found = {id: each.bytes for id, each in ran.allocations.items()}
                if found != own:
                    raise ProgramError("the program allocates memory of other sizes, whose numbers mean something else")
                good.append(value)
            except ProgramError as error:
                notes.append(f"{name}={value} is left out: {str(error).splitlines()[0]}")
        if len(good) < 2:
            raise ProgramError("\n".join([f"--macro {name} has no value to try besides {good[0]}", *notes]))
        macros[name] = tuple(sorted(good))
    return macros, notes


def _made_smaller(program: Program, arguments: Sequence[str] = ()) -> list[str]:
    """Return what there is to make a program do less, in words: its arguments, macros, or else numbers in its text."""
    numbers = [(place, text) for place, text in enumerate(arguments, 1) if re.search(r"\d$", text)]
    named = [(*option_of(arguments, place), *read_into(program, place), f"argument {place}") for place, _ in numbers]
    given = ", ".join(f"{names[0]} {text}" for names, (_, text) in zip(named, numbers, strict=True))
    macros = [f"{name}={value}" for name, value in macros_of(program).items()][:_MOST_MACROS]
    has_arguments = any(re.search(r"\bargv\b", file.text) for file in program.files)
    ways = ["smaller arguments behind --" + f" ({given})" * bool(given)] * has_arguments
    ways += [f"macros ({', '.join(macros)}) with -D NAME=VALUE"] if macros else []
    return ways or ["smaller numbers of elements or steps in its text, which takes no arguments"]


def _no_launch(built: Built, captured: Capture) -> str:
    return (
        f"{built.name}, run with arguments {' '.join(captured.arguments) or '(none)'}, launched no kernel: each launch "
        "failed with an error code, as one without blocks or threads does, or with more than 1,024 threads in a block"
    )


def _check_loops(
    program: Program, captured: Capture, compiled: _Compiled, settings: AdoptSettings, folder: Path
) -> None:
    """Check that a program does with kernels what it does with the loops that these were, in either order.

    Raises:
        ProgramError: it does not.
    """

    def ran(program: Built, name: str, **how: Any) -> str:
        writes, run_in = _made(folder / name), compiled.project.run_in
        return run(program, captured.arguments, writes=writes, folder=run_in, **how).output

    original = _built(program, own_files(program))
    printed, others = [ran(original, "plain")], [captured.output]
    with contextlib.suppress(TooLargeError):  # backwards no loop is vectorised
        others.append(
            ran(compiled.built, "backwards", time_limit_s=settings.time_limit_s, may_fail=True, backwards=True)
        )
    if any(told_apart(printed, other, _LARGEST_DIFFERENCE) for other in others):
        printed.append(ran(original, "other_clock", is_clock_fast=True))
    for other in others:
        if difference := told_apart(printed, other, _LARGEST_DIFFERENCE):
            places = ", ".join(str(kernel.extent) for kernel in program.kernels)
            raise ProgramError(
                f"{program.sources[0].name}: with its loops as kernels ({places}) the program prints {difference[1]!r} "
                f"instead of {difference[0]!r}; is the result of an iteration used by another?"
            )


def _free(program: Program, classes: TypeClasses) -> list[TypeClass]:
    """Return the type classes that may change their type."""
    launched = {site.kernel for site in program.launches}
    return [c for c in classes.classes if not c.kept and len(c.types) > 1 and launched & set(c.kernels)]


def _compared(made: Adopted, outputs: Outputs) -> tuple[dict[str, float], str]:
    """Return the error of each output in the program's own types, and which one is too large; "" if none is."""
    errors: dict[str, float] = {}
    too_far = ""
    for buffer in made.found.buffers:
        for start, theirs in buffer.results.items():
            ours = outputs[buffer.name].reshape(-1)[start : start + theirs.size]
            errors[buffer.name] = max(errors.get(buffer.name, 0.0), _error(ours, theirs))
            limit = _LARGEST_ERROR.get(str(theirs.dtype), 0.0)
            if not errors[buffer.name] <= limit and not _are_cut_alike(ours, theirs):
                too_far = (
                    f"{made.name}: the answer of the kernels as templates is not the program's: {buffer.name} is off "
                    f"by {errors[buffer.name]:.2g} (NRMSE), and rounding explains {limit:g}"
                )
    return errors, too_far


def _likely_cause(captured: Capture, again: Capture) -> str:
    """Return what probably makes the answer of the templates another one, by a later run of the program itself."""
    if any(one.digest != other.digest for one, other in zip(captured.outputs, again.outputs, strict=False)):
        return (
            "the program itself computes something else in each run: if it takes a random seed or the clock, as in "
            "srand(time(NULL)), give it a fixed seed"
        )
    return "does a thread depend on the order of others, or read memory that nobody wrote?"


def _cited(program: Program, made: Adopted, error: MptuneError) -> Refusal | None:
    """Return the kernel whose template does not compile, with the line of the program; None for another error."""
    message = str(error)
    words = re.search(r"\berror: (.*)", message) or re.search(r"(.*)", message)
    cited = re.search(r"(\w+)\.cu\.j2:(\d+): error:", message) or re.search(r"(\w+)\.cu\.j2:(\d+)", message)
    kernel = next((each for each in program.kernels if cited is not None and each.identifier == cited[1]), None)
    if cited is None or kernel is None or words is None:
        return None
    text = (made.folder / f"{cited[1]}.cu.j2").read_text(encoding="utf-8")
    place, line = origin(program, kernel, text, int(cited[2])) or (kernel.extent, "")
    what = f"does not compile as a template ({words[1]}): {line.strip()}"
    return Refusal(place, what, "write it, or what it uses, in plainer C++", kernel.label)


def _are_cut_alike(ours: NDArray[Any], theirs: NDArray[Any]) -> bool:
    """Whether whole numbers are the same but for few that are the next one: cut from others of another last digit."""
    if theirs.dtype.kind not in "iu":
        return False
    apart = np.where(ours > theirs, ours - theirs, theirs - ours)
    return bool((apart <= 1).all()) and np.count_nonzero(apart) <= _LARGEST_SHARE * apart.size


def _draws(found: Findings, captured: Capture, apart: Apart, settings: AdoptSettings) -> tuple[Draws, list[str]]:
    """Return the change of numbers for fresh inputs, and notes on what they do not change.

    The largest share of _CHANGES is taken that changes the answer and leaves it about as large. Where all shares of all
    numbers break the program, only the buffers and variables change that do not break it when they change alone.
    """
    of, vary = found.draws.of, settings.vary
    names = _given_to_device(found, captured) if of == "data" else []
    if unknown := [name for name in settings.varied if name not in names]:
        raise UnknownNameError("name of what the program copies to the device for --vary:", unknown[0], names)
    if of == "nothing" or vary == 0:
        return Draws("nothing", 0.0), []
    varied = listed(settings.varied or names)
    shares = (vary,) if vary else _CHANGES
    for by in shares:
        draws = Draws(of, by, settings.varied)
        effect = apart.effect(draws)
        if effect == "changes" or (effect == "breaks" and vary and of == "data"):
            return draws, [_note_of_breaks(varied, f"only {100 * by:g}%")] if by != shares[0] and varied else []
        if effect == "nothing" and by == shares[0]:
            unseen = f"changes of {varied} do not change the answer: no winner is verified on unseen inputs"
            return Draws("nothing", 0.0), [unseen] if varied else []
    spent = stopwatch()
    if len(names) > 1 and not settings.varied and captured.seconds * len(names) < _PROBED_S:
        alone = {
            name: apart.effect(Draws(of, shares[0], (name,))) if spent() < _PROBED_S else "breaks" for name in names
        }
        some = Draws(of, shares[0], tuple(name for name in names if alone[name] == "changes"))
        if some.names and apart.effect(some) == "changes":
            broken = listed([name for name in names if alone[name] == "breaks"])
            note = (
                f"fresh inputs do not change {broken}, since changes of {100 * some.by:g}% break the program "
                f"({_BREAKS}); they change {listed(some.names)}; --vary NAME or --vary SHARE chooses otherwise"
            )
            return some, [note] if broken else []
    return Draws("nothing", 0.0), [_note_of_breaks(varied, "nothing")] if varied else []


def _note_of_breaks(names: str, change: str) -> str:
    return (
        f"changes of {100 * _CHANGES[0]:g}% of {names} break the program ({_BREAKS}), so fresh inputs change {change}; "
        "--vary NAME names what may change"
    )


def _given_to_device(found: Findings, captured: Capture) -> list[str]:
    """Return the buffers and variables that a program copies floating-point numbers to before it sees a result."""
    copied: dict[int, None] = {}
    for each in captured.operations():
        if not isinstance(each, Copy) or each.host in (FOR_KERNEL, FOR_LIBRARY):
            continue
        if each.kind == "to_host":
            break
        if each.kind == "to_device" and each.target is not None:
            copied.setdefault(each.target.allocation)
    names = {each.id: each.name for each in captured.allocations.values() if each.name}
    names |= {each.allocation: each.name for each in found.buffers if each.has_numbers and each.field_of is None}
    return [names[id] for id in copied if id in names]


def _error(ours: NDArray[Any], theirs: NDArray[Any]) -> float:
    """Return the root of the mean square of differences over that of the values; infinity where ours are not finite."""
    finite = np.isfinite(theirs)
    ours, theirs = np.where(finite, ours, 0), np.where(finite, theirs, 0)
    if np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"):
        return 0.0
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    with np.errstate(all="ignore"):  # squares of large numbers are infinite
        error = float(np.linalg.norm(ours - theirs) / max(float(np.linalg.norm(theirs)), np.finfo(np.float64).tiny))
    return error if np.isfinite(error) else math.inf


def _given(program: Program, settings: AdoptSettings, captured: Capture, project: Project) -> dict[str, Any]:
    """Return how a program is read, compiled and run."""
    return {
        "files": {str(file.path): _hash_of(file.path) for file in program.files},
        "sources": [str(path) for path in program.sources],
        "defines": dict(program.defines),
        "macros": list(program.macros),
        "includes": [str(path) for path in program.includes],
        "arguments": list(captured.arguments),
        "kernels": list(settings.kernels),
        "refused": list(captured.own),
        "check": captured.check,
        "root": str(project.root or common_folder([file.path for file in program.files])),
        "run_in": str(project.run_in),
    }


def _document(
    made: Adopted,
    folder: Path,
    program: Program,
    settings: AdoptSettings,
    captured: Capture,
    sizes: FoundSizes,
    errors: Mapping[str, float],
    seconds: float,
) -> dict[str, Any]:
    """Return what describes what was made: for a person, for other programs, and to find the way back."""
    return {
        "name": made.name,
        "folder": str(folder),
        "program": {},
        "kernels": [
            {
                "name": name,
                "launches": len(each.launched.launches),
                "place": str(each.launched.kernel.extent),
            }
            for name, each in made.found.kernels.items()
        ],
        "buffers": [
            {
                "name": buffer.name,
                "shape": list(buffer.shape),
                "elements": buffer.elements,
                "type": buffer.precision or buffer.dtype,
                "role": buffer.role,
            }
            for buffer in made.found.buffers
        ],
        "parameters": [
            {
                "name": parameter.name,
                "types": list(parameter.types),
                "roles": list(parameter.roles),
                "classes": [each.name for each in parameter.classes],
                "members": list(parameter.members),
            }
            for parameter in made.found.parameters
        ],
        "macros": {name: list(values) for name, values in program.macros.items()},
        "own": {
            f"{name}.{choice}": value
            for name, each in made.found.kernels.items()
            for choice, value in each.geometry.own.items()
        },
        "kept": {each.name: each.kept for each in made.found.kept},
        "sizes": {name: value for name, (_, value) in sizes.arguments.items()},
        "size_arguments": {name: place for name, (place, _) in sizes.arguments.items()},
        "no_sizes": [*sizes.refused, *not_given(program, captured.arguments)],
        "draws": dataclasses.asdict(made.found.draws),
        "zeros": list(made.found.zeros),
        "refused": [str(refusal) for refusal in program.refusals],
        "notes": [
            *_notes_of_types(made),
            *made.found.notes,
            *_notes_of(captured),
            *_notes_of_metric(made, settings.metric),
        ],
        "caveats": list(made.caveats),
        "written": {str(file.relative_to(made.folder)): _hash_of(file) for file in _files_in(made.folder)},
        "errors": dict(errors),
        "run_s": round(captured.seconds, 3),
        "seconds": round(seconds, 3),
        "mptune_version": __version__,
    }


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _notes_of(captured: Capture) -> Iterator[str]:
    """Yield what a user should know of the run."""
    for difference in captured.differences:
        yield f"run again, the program did not do the same: {difference}; what is tuned is its second run"
    for left_out in captured.left_out:
        yield f"left out of the record, for its size: {left_out}"


def _notes_of_arguments(project: Project, captured: Capture) -> Iterator[str]:
    """Say what a Makefile says of a program, and which of its arguments are smaller in the run."""
    if project.origin is not None:
        macros = [f"-D {name}={value}".removesuffix("=") for name, value in project.defines.items()]
        folders = [f"-I {path}" for path in project.includes]
        words = [*(path.name for path in project.sources), *macros, *folders, "--", *project.arguments]
        yield f"as {project.origin} says: {' '.join(words)}; run in {project.run_in}"
    if captured.arguments != project.arguments:
        given, own = (" ".join(each) for each in (captured.arguments, project.arguments))
        yield f"run with {given} ({project.origin and project.origin.name} says {own}: too long on a processor)"


def _notes_of_macros(program: Program, run: Program) -> Iterator[str]:
    """Say which macros have a smaller value in the run than in the program's text."""
    for name in run.defines.keys() - program.defines.keys() - run.macros.keys():
        own = macros_of(program)[name]
        yield f"run with -D {name}={run.defines[name]} (the text says {own}: too long on a processor)"


def _notes_of_parts(refused: Mapping[str, Refusal]) -> Iterator[str]:
    """Yield what of a run is not tuned: kernels that cannot be adopted."""
    for name, each in refused.items():
        yield (
            f"{name} is not adopted: it runs on the host in the program's own types, which its memory keeps, since it "
            f"{each.what} ({each.extent}); {each.remedy}"
        )


def _notes_of_types(made: Adopted) -> Iterator[str]:
    """Say that no type can be changed, and why."""
    if not made.found.parameters:
        why = (
            f"each of its floating-point types is kept as it is ({listed([each.name for each in made.found.kept])})"
            if made.found.kept
            else "in the kernels that it launches no floating-point type is written that could be changed"
        )
        yield f"there is no precision parameter to tune: {why}"


def _notes_of_metric(made: Adopted, metric: str | None) -> Iterator[str]:
    """Say how outputs are compared otherwise than by default, and why."""
    outputs = [buffer for buffer in made.found.buffers if buffer.is_output]
    signed = [buffer.name for buffer in outputs if buffer.metric in (SIGNED, over_each(SIGNED))]
    if signed and metric is None:
        yield (
            f"{listed(signed)} {'has' if len(signed) == 1 else 'have'} values of either sign, by whose mean {UNSIGNED} "
            f"would divide: errors are compared with the mean magnitude instead ({SIGNED}; --metric chooses another)"
        )
    if apart := [buffer.name for buffer in outputs if buffer.is_apart]:
        yield (
            f"{listed(apart)} {'has' if len(apart) == 1 else 'have'} several quantities in each element: the error of "
            "each is taken for itself, and the worst counts"
        )


def _hash_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _files_in(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and those below, but for what Python keeps there."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts and file.name != RECORD:
            yield file


def _check_output(folder: Path) -> None:
    """Check that a folder can be written, and that nothing is lost by it.

    Raises:
        ProgramError: it cannot, it is another one's, or has changes since it was written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".adopted-", dir=folder.parent):
            pass
        names = {str(file.relative_to(folder)): file for file in _files_in(folder)} if folder.exists() else {}
        if folder.exists() and not folder.is_dir():
            raise ProgramError(f"{folder} is a file; choose another --output")
        if not folder.exists() or not any(folder.iterdir()):
            return
    except OSError as error:
        raise ProgramError(f"cannot write to {folder}: {error.strerror or error}; choose another --output") from None
    try:
        written = dict(json.loads((folder / RECORD).read_text(encoding="utf-8"))["written"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ProgramError(
            f"{folder} is there already, and not written by mptune adopt; choose another --output"
        ) from None
    changed = [name for name, file in names.items() if written.get(name) != _hash_of(file)]
    if changed:
        raise ProgramError(
            f"{folder} has changes that would be lost ({', '.join(changed[:4])}{', ...' if len(changed) > 4 else ''}); "
            "choose another --output, or remove it"
        )
