"""The winner of a run back in the program it was found for: patched, compiled, run and compared with the original.

The program is the user's own, as it is given. A run file may come from anyone: nothing in it is run, and of its paths
only those in the folder of the program are opened.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune import __version__
from mptune.accuracy.evaluate import evaluate_outputs
from mptune.adopt.answers import UNNAMED, Answers
from mptune.adopt.capture import (
    Capture,
    capture,
    other_lines,
    other_words,
    told_apart,
    wrong_numbers,
)
from mptune.adopt.classes import TypeClasses, told
from mptune.adopt.classing import type_classes
from mptune.adopt.findings import SIGNED, UNSIGNED
from mptune.adopt.launched import classes_in
from mptune.adopt.left_over import wide_operations
from mptune.adopt.live import with_sizes
from mptune.adopt.makefiles import COMPILED, project_in
from mptune.adopt.parsing import ProgramError, SourceFile
from mptune.adopt.patching import SPELLED, Patch, own_types
from mptune.adopt.patching_loops import patch
from mptune.adopt.progress import Turns, came_to_nothing
from mptune.adopt.reading import Program, own_files, paddings, read
from mptune.adopt.rewriting import values_in, with_values
from mptune.adopt.running import Built, Ran, build, run
from mptune.adopt.writing import common_folder
from mptune.adopt.written_files import Compared, compared_files, type_in_files
from mptune.emit.common import MARK, was_emitted, write_files
from mptune.errors import MptuneError, RunFileError
from mptune.precision import PRECISIONS
from mptune.results.estimates import METRICS
from mptune.results.objective import Objective
from mptune.results.speedup import TIE, Ratio
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.source.loading import RECORD, adopted_record

#: Values of a kernel's other parameters that are the program's own, unless its record says more.
_PLAIN: Final = {"policy": "accurate", "per_thread": 1, "per_thread_y": 1, "unroll": 1}
_BLOCKS: Final = ("block", "block_x", "block_y", "block_z")
#: How often only the classes whose types a compiler rejects get their own again, before all do.
_MOST_ATTEMPTS: Final = 6
#: How often each program is run to time it, unless one run takes long; and until these have taken so long.
_FEWEST_ROUNDS: Final = 3
_MOST_ROUNDS: Final = 15
_TIMING_S: Final = 2.0
_LONG_S: Final = 5.0
#: Resolution of processor time.
_TICK_S: Final = 0.01
_COMPILE_LIMIT_S: Final = 300.0
#: By how much printed numbers may differ where there is no threshold.
_PRINTED: Final = 1e-6
#: Values of macros that a run file may give: no code can be in them.
_HARMLESS: Final = re.compile(r"|double|float|half|__half|\(?-?[\d.]+([eE][-+]?\d+)?[fFlLuU]{0,2}\)?")
_ERROR_LINE: Final = re.compile(r"([^\s:()]+?)(?::(\d+)|\((\d+)\))(?::\d+)?: (?:fatal )?error")
#: Files that a compiler makes, and the size of the largest others that are copied.
_BUILT: Final = (".o", ".obj", ".a", ".so", ".exe", ".dll", ".ptx", ".cubin", ".fatbin", ".gch", ".pyc")
_LARGEST_BYTES: Final = 16 << 20
_FEW: Final = 8


@dataclass(frozen=True, slots=True)
class IntoSettings:
    """Which program is changed, and where the new one goes.

    Attributes:
        program: its file, or the folder of its files.
        output: the file to write, of a folder the folder.
        record: the folder that ``mptune adopt`` wrote, for runs that do not say what they were made of.
        arguments: of its command line; None for those of the record.
        defines: macros beside those of the record.
        includes: folders of headers outside the program's own.
    """

    program: Path
    output: Path
    record: Path | None = None
    arguments: tuple[str, ...] | None = None
    defines: Mapping[str, str] = field(default_factory=dict)
    includes: tuple[Path, ...] = ()


def into(
    found: Run,
    trial: Trial,
    objective: Objective,
    settings: IntoSettings,
    *,
    on_progress: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Write a program with the types of a trial, compile it, run it, and compare it with the program as it is.

    A trial with the program's own types writes and runs nothing.

    Args:
        found: the run.
        trial: whose types.
        objective: says how far the answer may be off.
        settings: which program, and where the new one goes.
        on_progress: told what is being done.

    Returns:
        The document that describes the new program and the comparison. It claims nothing that was not checked.

    Raises:
        ProgramError: the program is not the one of the run, or cannot be written with other types.
        RunFileError: the run does not say what program it is of.
    """
    record = _Record.of(found, settings)
    settings, run_in = _as_made(settings, record)
    arguments = record.arguments_of(found) if settings.arguments is None else settings.arguments
    document: dict[str, Any] = {
        "kernel": found.kernel,
        "program": str(settings.program),
        "output": str(settings.output),
        "files": [],
        "configuration": dict(trial.configuration),
        "types": [],
        "arguments": list(arguments),
        "compiled": {},
        "metric": found.info.metric,
        "threshold": {found.info.measured_by(name): limit for name, limit in objective.limits.items()},
        **dict.fromkeys(("error", "printed", "wrong", "complaints", "exit_codes", "check", "kernels_s", "program_s")),
        "errors": {},
        "not_judged": "",
        "within": True,
        "slower": False,
        "written": [],
        "notes": [*_not_in_text(trial, record, found.info.backend)],
    }
    nothing = {**document, "notes": ["nothing to write: the winner has the program's own types", *document["notes"]]}
    if not record.has_other_types(trial) and not record.macros:
        return nothing
    on_progress("reading the program")
    program = _read(record, settings)
    macros = _Macros.of(program, record, settings, trial)
    if not record.has_other_types(trial) and not macros.written and not macros.given:
        return nothing
    document["notes"] += macros.notes()
    places = _places(program, settings)
    for file in own_files(program):
        record.check(file)
    with tempfile.TemporaryDirectory(prefix="mptune-") as name:
        scratch = Path(name)
        on_progress("running the program")
        original = _built(program, own_files(program))
        captured = capture(
            _built_to_record(program, original),
            arguments,
            scratch / "original",
            run_in=run_in,
            paddings=paddings(program),
        )
        classes = classes_in(program, captured)
        own = own_types(classes)
        wanted = _wanted(record, program, classes, trial)
        on_progress("compiling")
        patched, built, compilers, rejected = _compiled(program, classes, wanted, macros)
        notes = [*patched.notes, *rejected, *original.notes]
        if found.info.flags:
            notes.append(f"compile it with {' '.join(found.info.flags)} as the run's kernels were: here it was not")
        on_progress("running both")
        theirs = Answers(program, classes, own)
        again, ours = _run_patched(
            macros.program(program), classes, patched, built, record, arguments, scratch / "patched", run_in
        )
        judged = _judged(found, objective, record, ours.of(again), theirs.of(captured))
        rounds = _timed((original, built), arguments, scratch, run_in)
        originals, new = [old for old, _ in rounds], rounds[0][1]
        writes = scratch / "other_clock"
        writes.mkdir()
        originals.append(run(original, arguments, writes=writes, folder=run_in, may_fail=True, is_clock_fast=True))
        runs = (captured, again) if not program.originals else (originals[0], new)
        limit = objective.limits.get("error", max(objective.limits.values(), default=math.inf))
        said = _said(originals, new, max(objective.limits.values(), default=_PRINTED))

        def error_of(new: NDArray[Any], old: NDArray[Any]) -> float:
            return _error_of_other(found, new, old)

        others = [
            *compared_files((runs[0], *originals), runs[1], type_in_files(program), paddings(program), error_of),
            *_reductions(ours.reduced(again), theirs.reduced(captured), error_of),
        ]
        left = [] if program.originals else wide_operations(program, patched, new.record.get("kernels", ()), places)
    judged = _with_others(judged, others, limit)
    if judged["within"] and (said["wrong"] or said["exit_codes"]):
        judged["within"] = False
    types = [
        {
            "name": each.name,
            "members": told(each.members),
            "from": own[each.name],
            "to": patched.types[each.name],
            "wanted": wanted[each.name],
        }
        for each in classes.classes
        if wanted.get(each.name, own[each.name]) != own[each.name]
    ]
    kept = [name for each in types if each["to"] != each["wanted"] for name in each["members"]]
    times = [_times_of(side) for side in zip(*rounds, strict=True)]
    gpu = METRICS.get(objective.metric)
    ratios = [max(new.seconds, _TICK_S) / max(old.seconds, _TICK_S) for old, new in rounds]
    slower, is_slower = _slower(ratios, times, kept, gpu.name if gpu is not None else found.info.backend)
    beside, left_out = _beside(places, settings)

    def both(what: str) -> dict[str, float]:
        return {who: round(getattr(each, what), 6) for who, each in zip(("original", "patched"), times, strict=True)}

    return {
        **document,
        **judged,
        **said,
        "files": [str(path) for path in _write(patched, places, beside, settings)],
        "types": types,
        "compiled": compilers,
        "notes": [*notes, *document["notes"], *judged["notes"], *left_out, *left, *slower],
        "slower": is_slower,
        "written": [
            {"name": e.name, "how": e.how, "error": _finite(e.error), "within": _is_within(e, limit)} for e in others
        ],
        "check": {"original": runs[0].check, "patched": runs[1].check},
        "kernels_s": both("kernels_s") if any(each.kernels_s for each in times) else None,
        "program_s": both("program_s"),
    }


def with_types(
    sources: Sequence[Path],
    defines: Mapping[str, str],
    includes: Sequence[Path],
    wanted: Mapping[str, str],
    folder: Path,
) -> dict[Path, str]:
    """Return the texts of the files that change in a program with other types, which a compiler accepts.

    Args:
        sources: the files that a compiler is given.
        defines: macros.
        includes: folders of headers.
        wanted: the precision of each type class, by name.
        folder: for a record of a run, which says what shares memory.

    Raises:
        ProgramError: the program does not compile or run.
    """
    program = read(sources, defines, includes)
    captured = capture(_built(program, own_files(program)), (), folder, paddings=paddings(program))
    made, *_ = _compiled(program, classes_in(program, captured), wanted, _Macros({}, {}, {}))
    return {file.path: file.text for file in made.changed}


# -- what the run says of the program --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Record:
    """The program as ``mptune adopt`` recorded it.

    Attributes:
        name: of the application.
        hashes: of the program's files.
        sources: those a compiler is given, by their place below the folder that all files share.
        tuned: names of the kernels to tune; empty for all.
        defines: macros.
        macros: names of those whose values were tuned.
        choices: the program's own threads of a block and elements of a thread, by "kernel.parameter".
        has_loops: whether the kernels are loops of C++.
        includes: folders of headers, below that folder or absolute.
        arguments: of the command line.
        positions: which of them are sizes, by name, from 1.
        kernels: their names in the application.
        outputs: names of the buffers that are the answer, in the order of their allocation, with their inner axes.
        own: the program's type for each precision parameter.
        classes: the type classes of each.
    """

    name: str
    hashes: frozenset[str]
    sources: tuple[Path, ...]
    tuned: tuple[str, ...]
    defines: Mapping[str, str]
    macros: tuple[str, ...]
    choices: Mapping[str, int]
    has_loops: bool
    includes: tuple[Path, ...]
    arguments: tuple[str, ...]
    positions: Mapping[str, int]
    kernels: tuple[str, ...]
    outputs: Mapping[str, tuple[int, ...]]
    own: Mapping[str, str]
    classes: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, found: Run, settings: IntoSettings) -> _Record:
        """Read the record of a run, or of the folder that is given.

        Raises:
            RunFileError: there is none, or none that can be read.
        """
        said: Mapping[str, Any] = found.info.adopted
        if settings.record is not None:
            folder = settings.record if settings.record.is_dir() else settings.record.parent
            if not (said := adopted_record(folder)):
                raise RunFileError(f"{folder} has no {RECORD}: expected a folder that 'mptune adopt' wrote")
        if not said:
            raise RunFileError(
                f"the run of {found.kernel!r} does not say of which program it is: give the folder that "
                "'mptune adopt' wrote with --kernel DIR"
            )
        try:
            program = said["program"]
            files = {Path(path): str(digest) for path, digest in program["files"].items()}
            sources = [Path(path) for path in program["sources"]]
            if not sources or not all(path in files and path.suffix in COMPILED for path in sources):
                raise ValueError(f"{', '.join(map(str, sources)) or 'nothing'} is no source of a program")
            if "\0" in "".join((*program["files"], *program["includes"])):
                raise ValueError("a path has a null character")
            root = Path(program.get("root", "/"))
            if not all(path.is_relative_to(root) for path in sources):
                root = common_folder(list(files))
            folders = map(Path, program["includes"])
            return cls(
                name=str(said["name"]),
                hashes=frozenset(files.values()),
                sources=tuple(path.relative_to(root) for path in sources),
                tuned=tuple(map(str, program.get("kernels", ()))),
                defines={str(name): str(value) for name, value in program["defines"].items()},
                macros=tuple(str(name) for name in program.get("macros", ()) if str(name).isidentifier()),
                choices={str(name): int(value) for name, value in said.get("own", {}).items()},
                has_loops=program.get("language") == "openmp",
                includes=tuple(path.relative_to(root) if path.is_relative_to(root) else path for path in folders),
                arguments=tuple(map(str, program["arguments"])),
                positions={str(name): int(place) for name, place in said.get("size_arguments", {}).items()},
                kernels=tuple(str(kernel["name"]) for kernel in said["kernels"]),
                outputs={
                    str(each["name"]): tuple(map(int, each.get("shape", ())[1:]))
                    for each in said["buffers"]
                    if each["role"] == "output"
                },
                own={str(each["name"]): str(each["types"][0]) for each in said["parameters"]},
                classes={str(each["name"]): tuple(map(str, each["classes"])) for each in said["parameters"]},
            )
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise RunFileError(
                f"the run of {found.kernel!r} has no readable record of its program: {error!r}"
            ) from None

    def has_other_types(self, trial: Trial) -> bool:
        """Whether a trial has other types than the program."""
        given = ((self.own.get(name.rpartition(".")[2]), value) for name, value in trial.configuration.items())
        return any(own is not None and value != own for own, value in given)

    def shaped(self, answer: Mapping[str, Turns]) -> dict[str, Turns]:
        """Return an answer by the names that the run has for it, with the axes that metrics may take regions of."""
        unnamed = [name for name in answer if name.startswith(UNNAMED)]
        known = dict(zip(unnamed, self.outputs, strict=False)) if len(unnamed) == len(self.outputs) else {}
        found: dict[str, Turns] = {}
        for name, turns in ((known.get(name, name), turns) for name, turns in answer.items()):
            inner = self.outputs.get(name, ())
            count = math.prod(inner)
            fits = count > 0 and all(each is None or each.size % count == 0 for each in turns)
            found[name] = [None if each is None else each.reshape(-1, *inner) for each in turns] if fits else turns
        return found

    def paths(self, settings: IntoSettings) -> tuple[list[Path], list[Path]]:
        """Return the sources of the program that is given, and folders of headers.

        Raises:
            ProgramError: a source is missing or another one, or a folder of headers has to be given.
        """
        given = settings.program.resolve()
        root, above = (given, Path()) if given.is_dir() else (given.parent, self.sources[0].parent)
        if not given.is_dir() and len(self.sources) > 1:
            names = ", ".join(map(str, self.sources))
            raise ProgramError(f"{self.name} is a program of several files ({names}): give their folder with --into")

        def inside(path: Path) -> Path | None:
            place = (root / path.relative_to(above)).resolve() if path.is_relative_to(above) else path
            return place if place.is_relative_to(root) else None

        sources = [inside(name) for name in self.sources] if given.is_dir() else [given]
        folders = [inside(name) for name in self.includes]
        for name, path in zip(self.sources, sources, strict=False):
            if path is None or not (path.is_file() or path == given):
                raise ProgramError(f"{settings.program} has no {name}: give the folder or file of the program itself")
            self.check(SourceFile.read(path))
        if None in folders and not settings.includes:
            missing = ", ".join(str(name) for name, path in zip(self.includes, folders, strict=True) if path is None)
            raise ProgramError(f"headers were outside the program's folder ({missing}): give this folder again with -I")
        return [*filter(None, sources)], [*filter(None, folders), *(path.resolve() for path in settings.includes)]

    def check(self, file: SourceFile) -> None:
        """Check that a file is as it was tuned.

        Raises:
            ProgramError: it is not.
        """
        if hashlib.sha256(file.text.encode("utf-8", "surrogateescape")).hexdigest() not in self.hashes:
            raise ProgramError(
                f"{file.path.name} is not what was tuned (its hash differs): adopt and tune it as it is now, or give "
                "it as it was: the folder that 'mptune adopt' wrote has it in program/"
            )

    def arguments_of(self, found: Run) -> tuple[str, ...]:
        """Return the arguments of the program at the sizes that were tuned."""
        sizes = found.info.sizes
        others = {place: sizes[name] for name, place in self.positions.items() if name in sizes}
        return tuple(with_sizes(self.arguments, others))

    def defines_with(self, settings: IntoSettings) -> dict[str, str]:
        """Return all macros.

        Raises:
            ProgramError: one of the record may have code in it and was not given again.
        """
        found = {**self.defines, **settings.defines}
        for name, value in self.defines.items():
            if name not in settings.defines and not (name.isidentifier() and _HARMLESS.fullmatch(value)):
                raise ProgramError(
                    f"the run was made with -D {f'{name}={value}'!r}, which may be any code; if it is yours, give it "
                    "again with -D"
                )
        return found


def _as_made(settings: IntoSettings, record: _Record) -> tuple[IntoSettings, Path]:
    """Return the settings with the folders and macros that a folder's own Makefile gives, and where the program runs.

    A macro of the record counts as given if the Makefile has it with the same value.
    """
    project = project_in(settings.program) if settings.program.is_dir() else None
    if project is None:
        return settings, Path.cwd()
    same = {name: value for name, value in project.defines.items() if record.defines.get(name) == value}
    folders = (*settings.includes, *project.includes)
    return dataclasses.replace(settings, defines={**same, **settings.defines}, includes=folders), project.run_in


def _places(program: Program, settings: IntoSettings) -> dict[Path, Path]:
    """Return where the files of the new program go, by those of the program: never over what is somebody's.

    Raises:
        ProgramError: one would.
    """
    target, given = settings.output, settings.program.resolve()
    if target.exists() and given.is_dir() != target.is_dir():
        raise ProgramError(f"{target} is {'a folder' if target.is_dir() else 'a file'}; choose another --output")
    own = [file.path for file in program.files if file.path.is_relative_to(given)]
    places = {path: target / path.relative_to(given) for path in own} if given.is_dir() else {given: target}
    for path, place in places.items():
        if place.exists() and place.samefile(path):
            raise ProgramError(f"{target} is the program itself, which stays as it is; choose another --output")
        if place.exists() and not (place.is_file() and was_emitted(place)):
            raise ProgramError(f"{place} exists and was not written by mptune emit; choose another --output")
    return places


def _wanted(record: _Record, program: Program, classes: TypeClasses, trial: Trial) -> dict[str, str]:
    """Return the precision that a trial has for each type class: of several in kernels that share it, the widest.

    Raises:
        ProgramError: the program has no such class, or C++ no such type.
    """
    names = {
        kernel.label: [n for n in record.kernels if re.fullmatch(rf"{kernel.identifier}(_\d+)?", n)]
        for kernel in program.kernels
    }
    by_name = {each.name: each for each in classes.classes}
    wanted: dict[str, str] = {}
    for parameter, members in record.classes.items():
        for name in members:
            if name not in by_name:
                raise ProgramError(f"the program has no {name} as the run says; adopt and tune it again")
            keys = [parameter, *(f"{n}.{parameter}" for label in by_name[name].kernels for n in names[label])]
            found = {key: str(trial.configuration[key]) for key in keys if key in trial.configuration}
            for key, value in found.items():
                if value not in SPELLED:
                    raise ProgramError(f"{key} is {value} in the run, for which programs have no type")
            if found:
                wanted[name] = max(found.values(), key=lambda value: PRECISIONS[value].size_bytes)
    return wanted


def _not_in_text(trial: Trial, record: _Record, backend: str) -> Iterator[str]:
    """Say which values of a trial the program's text does not get."""
    others: list[str] = []
    for name, value in trial.configuration.items():
        kind = name.rpartition(".")[2]
        own = record.choices.get(name, _PLAIN.get(kind))
        if name not in record.macros and value != own and (own is not None or kind in _BLOCKS):
            others.append(f"{name}={value}")
    if record.has_loops:
        why = "loops are written with their types alone"
    elif backend == "host":
        why = "found on a processor, which says nothing of a GPU"
    else:
        why = "set the threads of a block where kernels are launched"
    if others:
        yield f"not in the text ({why}): {', '.join(others)}"


def _read(record: _Record, settings: IntoSettings) -> Program:
    """Read the program that is given, with the values that its text gives tuned macros.

    Raises:
        ProgramError: the program is another one, or cannot be read.
    """
    sources, includes = record.paths(settings)
    defines = record.defines_with(settings)
    program = read(sources, defines, includes, record.tuned)
    own = _values_in_files(program, set(record.macros) - settings.defines.keys())
    if not own:
        return program
    return read(sources, {n: value for n, value in defines.items() if n not in own}, includes, record.tuned)


def _values_in_files(program: Program, names: Collection[str]) -> dict[str, str]:
    """Return the values of macros that the files of a program define."""
    return {name: value for file in own_files(program) for name, value in values_in(file.text, names).items()}


@dataclass(frozen=True, slots=True)
class _Macros:
    """The tuned macros whose values differ from the program's.

    Attributes:
        own: the program's values.
        written: the new values of those that the program's text defines.
        given: the new values of those that only a compiler's command line gives.
    """

    own: Mapping[str, str]
    written: Mapping[str, str]
    given: Mapping[str, str]

    @classmethod
    def of(cls, program: Program, record: _Record, settings: IntoSettings, trial: Trial) -> _Macros:
        values = {name: trial.configuration[name] for name in record.macros if name in trial.configuration}
        in_text = _values_in_files(program, values.keys() - settings.defines.keys())
        own = {**program.defines, **in_text}
        new = {n: str(value) for n, value in values.items() if isinstance(value, int) and own.get(n) != str(value)}
        written = {name: value for name, value in new.items() if name in in_text}
        return cls(own, written, {name: value for name, value in new.items() if name not in in_text})

    def notes(self) -> Iterator[str]:
        """Say what became of them."""
        for name, value in self.written.items():
            yield f"in the text: #define {name} {value} instead of {self.own[name]}"
        if self.given:
            yield f"compile it with {' '.join(f'-D {name}={value}' for name, value in self.given.items())}"

    def program(self, program: Program) -> Program:
        """Return a program with the values that a command line gives."""
        return dataclasses.replace(program, defines={**program.defines, **self.given})

    def patch(self, program: Program, made: Patch) -> Patch:
        """Return a patch with the values in the text, too."""
        files = tuple(SourceFile(file.path, with_values(file.text, self.written)) for file in made.files)
        own = {file.path: file.text for file in own_files(program)}
        changed = tuple(file for file in files if file.text != own[file.path])
        return dataclasses.replace(made, files=files, changed=changed)


# -- compiling ---------------------------------------------------------------------------------------


def _built(program: Program, files: Sequence[SourceFile]) -> Built:
    """Compile a program as its user does, with these texts of its files."""
    return build(program.sources, files, program.defines, program.includes, has_openmp=bool(program.originals))


def _built_to_record(program: Program, built: Built) -> Built:
    """Return the program as it is recorded: parallel loops are kernels then."""
    if not program.originals:
        return built
    return build(program.sources, program.files, program.defines, program.includes, gives_host_memory=True)


def _run_patched(
    program: Program,
    classes: TypeClasses,
    patched: Patch,
    built: Built,
    record: _Record,
    arguments: Sequence[str],
    folder: Path,
    run_in: Path,
) -> tuple[Capture, Answers]:
    """Run a patched program and record it; return the record with its reader."""
    types = patched.types
    if program.originals:  # its loops have to be cut out again
        texts = {file.path: file.text for file in patched.changed}
        program = read(program.sources, program.defines, program.includes, record.tuned, texts)
        classes = type_classes(program)
        types = own_types(classes)
    captured = capture(_built_to_record(program, built), arguments, folder, run_in=run_in, may_fail=True)
    return captured, Answers(program, classes, types)


def _compiled(
    program: Program, classes: TypeClasses, wanted: Mapping[str, str], macros: _Macros
) -> tuple[Patch, Built, dict[str, str], list[str]]:
    """Patch a program and compile it; types that a compiler rejects become the program's own again.

    Returns:
        The patch, the program it makes, the result of each compiler, and what was given up.

    Raises:
        ProgramError: no compiler takes it, not even with the program's own types.
    """
    types, notes, own = dict(wanted), list[str](), own_types(classes)
    while True:
        made = macros.patch(program, patch(program, classes, types))
        try:
            new = macros.program(program)
            built = _built(new, made.files)
            return made, built, {"host": "compiles", **_compiled_for_gpus(new, made)}, notes
        except ProgramError as error:
            narrow = [name for name, precision in made.types.items() if precision != own[name]]
            if not narrow:
                raise
            blamed = (_blamed(str(error), made, classes, narrow) if len(notes) < _MOST_ATTEMPTS else []) or narrow
            types |= {name: own[name] for name in blamed}
            first = next((line.strip() for line in str(error).splitlines()[1:]), str(error))
            named = ", ".join(f"{name}: {SPELLED[own[name]]} instead" for name in blamed)
            notes.append(f"{named}, since a compiler rejects it ({first[:160]})")


def _blamed(message: str, made: Patch, classes: TypeClasses, narrow: Sequence[str]) -> list[str]:
    """Return the classes of the variables that are named in the lines of which a compiler complains."""
    words: set[str] = set()
    for error in _ERROR_LINE.finditer(message):
        file = next((file for file in made.files if file.path.name == Path(error[1]).name), None)
        line = file.text.splitlines()[int(error[2] or error[3]) - 1 :][:1] if file is not None else []
        words |= set(re.findall(r"[A-Za-z_]\w*", "".join(line)))
    members = {name: classes[name].members for name in narrow}
    return [n for n, each in members.items() if words & {m.name for m in each if m.kind not in ("cast", "size")}]


def _compiled_for_gpus(program: Program, made: Patch) -> dict[str, str]:
    """Compile a patched program with nvcc or hipcc; return the result.

    Raises:
        ProgramError: it does not compile, but the program as it is does.
    """
    if program.originals:
        return {}
    name = "hipcc" if any("hip/hip_runtime" in file.text for file in program.files) else "nvcc"
    compiler = shutil.which(name)
    if compiler is None:
        return {name: "NOT checked: it is not installed here"}
    if not (errors := _errors(compiler, program, made.files)):
        return {name: "compiles"}
    if _errors(compiler, program, program.files):
        return {name: "rejects both the new program and the original"}
    raise ProgramError(f"{program.sources[0].name} does not compile with {name}:\n{errors}")


def _errors(compiler: str, program: Program, files: Sequence[SourceFile]) -> str:
    """Return the errors of a compiler for GPUs in a program; "" if it compiles."""
    with tempfile.TemporaryDirectory(prefix="mptune-") as name:
        work = Path(name)
        root = common_folder([file.path for file in program.files])
        for file in files:
            place = work / file.path.relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.text.encode("utf-8", "surrogateescape"))
        folders = [work / p.relative_to(root) if p.is_relative_to(root) else p for p in program.includes]
        for number, source in enumerate(program.sources):
            command = [
                *(compiler, "-c", "-std=c++17", *(("-arch=sm_90",) if Path(compiler).name == "nvcc" else ())),
                *(f"-D{name}={value}" if value else f"-D{name}" for name, value in program.defines.items()),
                *(f"-I{folder}" for folder in folders),
                *(str(work / source.relative_to(root)), "-o", str(work / f"{number}.o")),
            ]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_LIMIT_S, cwd=work)
            except (OSError, subprocess.TimeoutExpired) as error:
                return str(error)
            if done.returncode != 0:
                lines = (done.stdout + done.stderr).replace(f"{work}/", "").splitlines()
                return "\n".join([line for line in lines if "error" in line][:5] or lines[-3:])
    return ""


# -- comparing ---------------------------------------------------------------------------------------


def _judged(
    found: Run, objective: Objective, record: _Record, ours: Mapping[str, Turns], theirs: Mapping[str, Turns]
) -> dict[str, Any]:
    """Return how far what the patched program copied back is from what the original did."""
    errors, why, notes = dict[str, float](), "", list[str]()
    left_out = came_to_nothing(theirs)
    ours, theirs = ({n: turns for n, turns in each.items() if n not in left_out} for each in (ours, theirs))
    if not theirs:
        why = "the program copies nothing to the host that a kernel has written"
    elif ours.keys() != theirs.keys():
        why = "the two copy different memory to the host"
    else:
        try:
            errors, notes = _errors_of_all(found, record.shaped(ours), record.shaped(theirs))
        except MptuneError as error:
            why = str(error)
    is_broken = any(not errors.get(name, math.nan) <= limit for name, limit in objective.limits.items())
    return {
        "error": _finite(errors.get("error")),
        "errors": {name: _finite(error) for name, error in errors.items()},
        "not_judged": why,
        "within": None if why else not is_broken and all(map(math.isfinite, errors.values())),
        "notes": notes,
    }


def _errors_of_all(
    found: Run, ours: Mapping[str, Turns], theirs: Mapping[str, Turns]
) -> tuple[dict[str, float], list[str]]:
    """Return the largest errors of all copies to the host, and what is to be said of them.

    Single numbers that come from the same place again and again are one array.

    Raises:
        MptuneError: they cannot be compared.
    """
    errors, notes = dict[str, float](), list[str]()
    pairs: dict[str, list[tuple[NDArray[Any], NDArray[Any]]]] = {}
    for name, turns in theirs.items():
        both = list(zip(ours[name], turns, strict=False))
        if len(ours[name]) != len(turns):
            both = both[:1]
            times = f"{len(ours[name])} times, and {len(turns)} times by the original"
            notes.append(f"{name} is copied to the host {times}: only the last copies are compared")
        kept = [(new, old) for new, old in both if new is not None and old is not None]
        if not kept or both[0][0] is not kept[0][0]:
            raise MptuneError("what the program copies to the host is too large to be recorded")
        if len(kept) < len(both):
            missing = f"{len(both) - len(kept)} of {len(both)} copies of {name}"
            notes.append(f"{missing} are not compared: there is no room for them")
        if len(kept) > 1 and all(new.size == old.size == 1 for new, old in kept):
            kept = [(np.concatenate([new for new, _ in kept]), np.concatenate([old for _, old in kept]))]
        if any(new.shape != old.shape for new, old in kept):
            raise MptuneError("the two copy different amounts of data to the host")
        pairs[name] = kept
    for turn in range(max(map(len, pairs.values()))):
        now = {name: each[turn] for name, each in pairs.items() if turn < len(each)}
        new, old = ({name: both[side] for name, both in now.items()} for side in range(2))
        for key, error in _errors_of(found, new, old).items():
            errors[key] = max(errors.get(key, 0.0), math.inf if math.isnan(error) else error)
    return errors, notes


def _errors_of(found: Run, ours: Mapping[str, NDArray[Any]], theirs: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """Return the errors of the patched program's answer, by the names of the run's metrics."""
    text = found.info.metric
    metrics: Any = dict(part.split(": ", 1) for part in text.split(", ")) if ": " in text else text
    if isinstance(metrics, str):
        metrics = [text, *(name for name in dict.fromkeys(found.info.metrics.values()) if name != text)]
    else:  # the run has none for variables and files
        metrics = {name: metrics.get(name) or _metric_of(values, metrics) for name, values in theirs.items()}
    if " over columns" in text:  # numbers that are no struct's are one column
        ours, theirs = (
            {name: values[:, np.newaxis] if values.ndim == 1 else values for name, values in answer.items()}
            for answer in (ours, theirs)
        )
    finite = {name: np.isfinite(values) for name, values in theirs.items()}
    new, old = ({n: np.where(finite[n], values, 0) for n, values in each.items()} for each in (ours, theirs))
    measured = evaluate_outputs(new, old, metrics).metrics
    del measured["log10_error"]  # -inf of an answer without an error
    # What is not finite in the program's own answer, which no metric measures, has to be so in the same way.
    rest = ((ours[name][~where], theirs[name][~where]) for name, where in finite.items())
    is_alike = all(np.array_equal(new, old, equal_nan=new.dtype.kind == "f") for new, old in rest)
    return measured if is_alike else dict.fromkeys(measured, math.inf)


def _metric_of(values: NDArray[Any], metrics: Mapping[str, str]) -> str:
    """Return the metric of all outputs if there is one, else as ``mptune adopt`` chooses it."""
    if len(of_all := set(metrics.values())) == 1:
        return of_all.pop()
    return SIGNED if (values < 0).any() and (values > 0).any() else UNSIGNED


def _error_of_other(found: Run, ours: NDArray[Any], theirs: NDArray[Any]) -> float:
    """Return the error of numbers that are no output of the run, by its metric if that can measure them."""
    if np.array_equal(ours, theirs, equal_nan=True):
        return 0.0
    try:
        error = _errors_of(found, {"file": ours}, {"file": theirs})["error"]
    except MptuneError:  # one of rows of a matrix, say
        error = evaluate_outputs({"file": ours}, {"file": theirs}, _metric_of(theirs, {})).error
    return math.inf if math.isnan(error) else error


def _reductions(
    ours: Mapping[str, tuple[float, bool]],
    theirs: Mapping[str, tuple[float, bool]],
    error_of: Callable[[NDArray[Any], NDArray[Any]], float],
) -> Iterator[Compared]:
    """Yield what loops reduce to, compared: the error is larger than that of the parts where these cancel."""
    for name, (value, is_rounding) in theirs.items():
        if name in ours and not is_rounding:
            error = error_of(np.array([ours[name][0]]), np.array([value]))
            yield Compared(name, "the number that the loop leaves", error, True)


def _is_within(other: Compared, limit: float) -> bool | None:
    """Whether what was compared is the original's, or its numbers nearly so; None if nothing was."""
    return other.is_right and (other.error is None or (math.isfinite(other.error) and other.error <= limit))


def _with_others(judged: Mapping[str, Any], others: Collection[Compared], limit: float) -> dict[str, Any]:
    """Return the judgement of an answer with that of files and reductions; without an answer they are the answer."""
    is_broken = any(_is_within(each, limit) is False for each in others)
    errors = [each.error for each in others if each.error is not None]
    if judged["not_judged"] and errors:
        return {**judged, "error": _finite(max(errors)), "not_judged": "", "within": not is_broken}
    return {**judged, "within": judged["within"] and not is_broken}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _said(originals: Sequence[Ran], new: Ran, tolerance: float) -> dict[str, dict[str, Any] | None]:
    """Return where what a patched program says is not what the original says, each as the two have it; None if nowhere.

    What the original itself says in another way each time does not count.
    """

    def of_text(differ: Callable[[str, str], tuple[str, str] | None], stream: str) -> tuple[str, str] | None:
        old, *others = (getattr(each, stream) for each in originals)
        if any(differ(old, other) for other in others):
            return None
        return differ(old, getattr(new, stream))

    old, printed = originals[0], [each.output for each in originals]
    found = {
        "printed": told_apart(printed, new.output, tolerance),
        "wrong": wrong_numbers(printed, new.output, tolerance) or of_text(other_lines, "output"),
        "complaints": of_text(other_words, "errors"),
        "exit_codes": (old.code, new.code) if new.code not in {each.code for each in originals} else None,
    }
    return {
        what: None if both is None else dict(zip(("original", "patched"), both, strict=True))
        for what, both in found.items()
    }


# -- timing ------------------------------------------------------------------------------------------


def _timed(
    programs: tuple[Built, Built], arguments: Sequence[str], scratch: Path, run_in: Path
) -> list[tuple[Ran, Ran]]:
    """Run two programs on this machine's processor, in turns; return a pair of runs for each round.

    Short programs run more often, since other work on the machine disturbs them more.
    """
    rounds: list[tuple[Ran, Ran]] = []
    spent_s = 0.0
    while len(rounds) < _MOST_ROUNDS:
        writes = [scratch / f"files{len(rounds)}_{index}" for index in range(2)]
        for folder in writes:
            folder.mkdir()
        first, second = (
            run(each, arguments, writes=folder, folder=run_in, may_fail=True)
            for each, folder in zip(programs, writes, strict=True)
        )
        rounds.append((first, second))
        spent_s += first.seconds + second.seconds
        longest_s = max(first.seconds, second.seconds)
        if longest_s > _LONG_S or (len(rounds) >= _FEWEST_ROUNDS and spent_s > _TIMING_S):
            break
    return rounds


@dataclass(frozen=True, slots=True)
class _Times:
    """Seconds that a run of a program took, and its kernels in this run; 0 where those are not known."""

    program_s: float
    kernels_s: float

    @property
    def rest_s(self) -> float:
        """What the program did besides."""
        return self.program_s - self.kernels_s


def _times_of(runs: Sequence[Ran]) -> _Times:
    """Return the times of the shortest run."""
    shortest = min(runs, key=lambda ran: ran.clock_s)
    return _Times(shortest.clock_s, float(sum(each["seconds"] for each in shortest.record.get("kernels", ()))))


def _slower(
    ratios: Sequence[float], times: Sequence[_Times], kept: Sequence[str], device: str
) -> tuple[list[str], bool]:
    """Say which part of a patched program takes longer than before, if it does; and whether nothing is faster.

    Args:
        ratios: the times of the new program to those of the original, in turns.
        times: of the original and the new program.
        kept: variables without the type that the winner has for them.
        device: that the types were tuned for: "host", another backend, or a GPU of which they were estimates.
    """
    old, new = times
    is_longer = new.program_s > old.program_s * (1 + TIE) and new.program_s - old.program_s > 2 * _TICK_S
    if not (Ratio.of(ratios).is_slower and is_longer):
        return [], False
    said = f"SLOWER as a whole on this machine's processor: {new.program_s:.3g} s, and {old.program_s:.3g} s before"
    parts = {"its kernels": (old.kernels_s, new.kernels_s), "the rest": (old.rest_s, new.rest_s)}
    if old.kernels_s:
        part, _ = max(parts.items(), key=lambda each: each[1][1] - each[1][0])
        each_took = "; ".join(f"{name} {late:.3g} s, and {early:.3g} s before" for name, (early, late) in parts.items())
        said += f": {'what is not its kernels' if part == 'the rest' else part} got slower ({each_took})"
    is_faster = new.kernels_s < old.kernels_s
    if device != "host":
        said += f"; the types were tuned for {device}, of which that says little"
    elif is_faster:
        said += "; the kernels are faster, and what converts between host and device is not worth it"
    elif kept:
        few = ", ".join(kept[:_FEW]) + (f" and {len(kept) - _FEW} more" if len(kept) > _FEW else "")
        said += (
            f"; {few} kept another type than the winner's, and numbers are converted wherever they meet narrower ones: "
            "change what keeps it (see the other notes), or let the others keep theirs (tune with -p NAME=fp64)"
        )
    else:
        said += "; keep the original, or tune at the sizes that the program is used with"
    return [said], device == "host" and not is_faster


# -- writing -----------------------------------------------------------------------------------------


def _beside(places: Mapping[Path, Path], settings: IntoSettings) -> tuple[dict[Path, Path], list[str]]:
    """Return the other files of a program's folder that it may need, and where they go; and say which are left out.

    Left out are hidden, built and large files, links, and folders that mptune wrote.
    """
    given, target = settings.program.resolve(), settings.output.resolve()
    found: dict[Path, Path] = {}
    left_out: list[str] = []
    for path in sorted(given.rglob("*")) if given.is_dir() else ():
        name = path.relative_to(given)
        is_hidden = any(part.startswith(".") for part in name.parts)
        is_below = any(f"{folder}/" in left_out for folder in name.parents)
        if is_hidden or is_below or path in places or target in (path, *path.parents):
            continue
        if path.is_dir() and not path.is_symlink():
            left_out += [f"{name}/"] if _is_made(path) else []
        elif path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST_BYTES or _is_built(path):
            left_out.append(f"{name}{'/' * path.is_dir()}")
        else:
            found[path] = settings.output / name
    few = [*left_out[:_FEW], *([f"{len(left_out) - _FEW} more"] if len(left_out) > _FEW else [])]
    why = f"built files, links, files over {_LARGEST_BYTES >> 20} MB and what mptune wrote are not copied"
    return found, [f"not in {settings.output}: {', '.join(few)} ({why})"] if left_out else []


def _is_made(folder: Path) -> bool:
    """Whether a folder was written by mptune or a build system."""
    has_record = any((folder / name).exists() for name in (RECORD, "CMakeCache.txt")) or any(folder.glob(f"*/{RECORD}"))
    return has_record or folder.name in ("CMakeFiles", "__pycache__")


def _is_built(path: Path) -> bool:
    with path.open("rb") as file:
        return path.suffix in _BUILT or file.read(16).startswith((b"\x7fELF", b"!<arch>", b"SQLite format 3"))


def _write(made: Patch, places: Mapping[Path, Path], beside: Mapping[Path, Path], settings: IntoSettings) -> list[Path]:
    """Write the new program, and the files beside it.

    Raises:
        ProgramError: types change in files that are not part of what was given.
        MptuneError: it cannot be written.
    """
    if others := [file.path.name for file in made.changed if file.path not in places]:
        raise ProgramError(f"types in {', '.join(others)} change, too: give the program's folder with --into")
    contents: dict[Path, bytes] = {}
    for file in (file for file in made.files if file.path in places):
        end = "" if file.text.endswith("\n") else "\n"
        contents[places[file.path]] = f"{file.text}{end}// {MARK} {__version__}\n".encode("utf-8", "surrogateescape")
    sources = list(contents)
    try:
        contents |= {place: path.read_bytes() for path, place in beside.items()}
    except OSError as error:
        raise MptuneError(f"cannot read {error.filename}: {error.strerror}") from error
    folder = settings.output if settings.program.is_dir() else settings.output.parent
    write_files(folder, {str(place.relative_to(folder)): content for place, content in contents.items()})
    for path, place in beside.items():
        shutil.copymode(path, place)
    return sources
