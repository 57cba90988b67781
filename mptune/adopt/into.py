"""The winner of a run back in the program it was found for: patched, compiled, run and compared with the original.

The program is the user's own, as it is given; it is read again with the settings that the run recorded. A run file may
come from anyone, so that nothing in it is run: of its paths only those in the folder of the program are opened, and of
its macros only those are taken that are numbers and types, for names the program uses and calls nothing by.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from mptune import __version__
from mptune.accuracy.evaluate import evaluate_outputs
from mptune.adopt.adopting import SOURCES
from mptune.adopt.capture import (
    Capture,
    Launch,
    Place,
    Structure,
    capture,
    other_lines,
    other_words,
    told_apart,
    wrong_numbers,
)
from mptune.adopt.classes import TypeClasses, told
from mptune.adopt.classing import type_classes
from mptune.adopt.findings import record_of
from mptune.adopt.geometry import Block
from mptune.adopt.launched import classes_in
from mptune.adopt.live import with_sizes
from mptune.adopt.parsing import ProgramError, SourceFile
from mptune.adopt.patching import SPELLED, Patch, own_types, patch
from mptune.adopt.patching_loops import patch_loops
from mptune.adopt.progress import Turns, came_to_nothing
from mptune.adopt.reading import Memory, Parameter, Program, own_files, paddings, read
from mptune.adopt.rewriting import blanked
from mptune.adopt.running import Built, Ran, build, run
from mptune.adopt.template import class_of, fields_of, layout_of
from mptune.adopt.writing import common_folder
from mptune.adopt.written_files import Compared, compared_files, type_in_files
from mptune.cpp.tokens import KEYWORDS
from mptune.emit.common import MARK, was_emitted, write_files
from mptune.errors import MptuneError, RunFileError
from mptune.precision import PRECISIONS
from mptune.results.objective import Objective
from mptune.results.speedup import TIE, Ratio
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.source.loading import RECORD, adopted_record

#: The parameters that are the threads of a block: of one axis, or along each of several.
_AXES: Final = ("block", "block_x", "block_y", "block_z")
#: How often classes whose types a compiler does not take are given wider ones.
_MOST_ATTEMPTS: Final = 8
#: How often each program is run to time it, unless one run takes long; and till these have taken so long.
_FEWEST_ROUNDS: Final = 3
_MOST_ROUNDS: Final = 15
_TIMING_S: Final = 2.0
_LONG_S: Final = 5.0
#: Processor time is counted in these.
_TICK_S: Final = 0.01
_COMPILE_LIMIT_S: Final = 300.0
#: What is copied back is called so, and its number, where the run has no name for it.
_UNNAMED: Final = "output "
#: By how much printed numbers may differ where there is no threshold.
_PRINTED: Final = 1e-6
#: Macros of a run file that are taken: what no code can be in.
_HARMLESS: Final = re.compile(r"|double|float|half|__half|\(?-?[\d.]+([eE][-+]?\d+)?[fFlLuU]{0,2}\)?")
_MACRO: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ERROR_LINE: Final = re.compile(r"([^\s:()]+?)(?::(\d+)|\((\d+)\))(?::\d+)?: (?:fatal )?error")
#: How the parts of a reduction become one number.
_COMBINED: Final[Mapping[str, Callable[[NDArray[Any]], Any]]] = {
    "+": np.sum, "-": np.sum, "*": np.prod, "max": np.max, "min": np.min,
}  # fmt: skip
#: Files that a compiler makes, and others of a program's folder that are not copied.
_BUILT: Final = (".o", ".obj", ".a", ".so", ".exe", ".dll", ".ptx", ".cubin", ".fatbin", ".gch", ".pyc")
_LARGEST_BYTES: Final = 16 << 20
_FEW: Final = 8
_STORED: Final = {
    "double": "float64", "float": "float32", "long double": "longdouble", "__half": "fp16", "__nv_bfloat16": "bf16",
    "char": "int8", "signed char": "int8", "unsigned char": "uint8", "bool": "uint8", "short": "int16",
    "unsigned short": "uint16", "int": "int32", "unsigned int": "uint32", "long": "int64", "unsigned long": "uint64",
    "long int": "int64", "long unsigned int": "uint64", "long long": "int64", "long long int": "int64",
    "unsigned long long": "uint64", "long long unsigned int": "uint64", "short int": "int16",
    "short unsigned int": "uint16",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class IntoSettings:
    """Which program is changed, and what becomes of it.

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

    Args:
        found: the run.
        trial: whose types.
        objective: says how far the answer may be off.
        settings: which program, and where the new one goes.
        on_progress: told what is being done.

    Returns:
        The document that describes what was done and what was found out. It claims nothing that was not checked.

    Raises:
        ProgramError: the program is not the one of the run, or cannot be written with other types.
        RunFileError: the run does not say what program it is of.
    """
    record = _Record.of(found, settings)
    on_progress("reading the program")
    sources, includes = record.sources_in(settings), record.includes_with(settings)
    program = read(sources, record.defines_with(settings), includes, record.loops, record.tuned)
    places = _places(program, settings)
    record.check(program, settings)
    arguments = record.arguments_of(found) if settings.arguments is None else settings.arguments
    with tempfile.TemporaryDirectory(prefix="mptune-") as scratch:
        on_progress("running the program")
        original = _built(program, own_files(program))
        captured = capture(
            _built_to_record(program, original), arguments, Path(scratch) / "original", paddings=paddings(program)
        )
        classes = classes_in(program, captured)
        wanted = dict(_wanted(record, program, classes, trial))
        on_progress("compiling")
        patched, built, compilers, notes = _compiled(
            program, classes, wanted, {} if found.info.backend == "host" else _blocks(record, program, trial)
        )
        notes += original.notes
        notes += _widest_of_kernels(record, program, classes, trial)
        notes += _not_carried_over(record, program, trial, patched, found.info.backend)
        if found.info.flags:
            notes.append(
                f"the run's kernels were compiled with {' '.join(found.info.flags)}, and here the program was not: "
                "compile it so (macros are given with -D)"
            )
        on_progress("running both")
        reader = _Reader(program, classes)
        theirs, left = reader.answer(captured, own_types(classes)), reader.reduced(captured, own_types(classes))
        again, ours, ours_left = _answer_of(
            program, classes, patched, built, record, arguments, Path(scratch) / "patched"
        )
        judged = _judged(found, objective, record, ours, theirs)
        rounds = _timed((original, built), arguments, Path(scratch))
        originals, new = [old for old, _ in rounds], rounds[0][1]
        runs = (captured, again) if not program.originals else (originals[0], new)
        said = _said(originals, new, max(objective.limits.values(), default=_PRINTED))
        limit = objective.limits.get("error", max(objective.limits.values(), default=math.inf))
        judged = _with_reduced(judged, found, limit, ours_left, left)
        written = compared_files(
            runs[0],
            runs[1],
            type_in_files(program),
            paddings(program),
            lambda new, old: _error_of_other(found, new, old),
        )
        judged = _with_files(judged, written, limit)
        if judged["within"] and (said["wrong"] or said["exit_codes"]):
            judged["within"] = False
    others, left_out = _others(places, settings)
    made = _write(patched, places, others, settings)
    own = own_types(classes)
    types = [
        {
            "name": each.name,
            "members": told(each.members),
            "from": own[each.name],
            "to": patched.types[each.name],
            "wanted": wanted.get(each.name, own[each.name]),
        }
        for each in classes.classes
        if wanted.get(each.name, own[each.name]) != own[each.name]
    ]
    kept = [name for each in types if each["to"] != each["wanted"] for name in each["members"]]
    seconds = [(old.seconds, new.seconds) for old, new in rounds]
    times = [min(each) for each in zip(*seconds, strict=True)]
    return {
        "kernel": found.kernel,
        "program": str(settings.program),
        "output": str(settings.output),
        "files": [str(path) for path in made],
        "configuration": dict(trial.configuration),
        "types": types,
        "blocks": {label: list(block) for label, block in patched.blocks.items()},
        "arguments": list(arguments),
        "compiled": compilers,
        **judged,
        "notes": [*patched.notes, *notes, *judged["notes"], *left_out, *_slower(seconds, kept, found.info.backend)],
        "written": [
            {"name": e.name, "how": e.how, "error": _finite(e.error), "within": _is_within(e, limit)} for e in written
        ],
        **said,
        "check": {"original": runs[0].check, "patched": runs[1].check},
        "time_s": {"original": round(times[0], 4), "patched": round(times[1], 4)},
    }


# -- what the run says of the program --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Record:
    """What ``mptune adopt`` recorded, checked: it may be from anyone.

    Attributes:
        name: of the application.
        hashes: of the program's files.
        sources: those a compiler is given, by their place below the folder that all files share.
        loops: of C++ that became kernels.
        tuned: names of the kernels to tune; empty for all.
        defines: macros.
        includes: folders of headers, by their place below that folder.
        outside: folders of headers that are elsewhere.
        arguments: of the command line.
        positions: which of them are sizes, by name, from 1.
        kernels: their names in the application.
        outputs: names of the buffers that are the answer, in the order of their allocation.
        inner_axes: of each of them all of its axes but the first.
        classes: of each precision parameter the type classes.
    """

    name: str
    hashes: frozenset[str]
    sources: tuple[Path, ...]
    loops: tuple[str, ...]
    tuned: tuple[str, ...]
    defines: Mapping[str, str]
    includes: tuple[Path, ...]
    outside: tuple[Path, ...]
    arguments: tuple[str, ...]
    positions: Mapping[str, int]
    kernels: tuple[str, ...]
    outputs: tuple[str, ...]
    inner_axes: Mapping[str, tuple[int, ...]]
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
            said = adopted_record(folder)
            if not said:
                raise RunFileError(f"{folder} has no {RECORD}: expected a folder that 'mptune adopt' wrote")
        if not said:
            raise RunFileError(
                f"the run of {found.kernel!r} does not say of which program it is: give the folder that "
                "'mptune adopt' wrote with --kernel DIR"
            )
        try:
            program = said["program"]
            files = {_recorded(path): str(text) for path, text in program["files"].items()}
            sources = [_recorded(path) for path in program["sources"]]
            if not sources or not all(path in files and path.suffix in SOURCES for path in sources):
                raise ValueError(f"{', '.join(map(str, sources)) or 'nothing'} is no source of a program")
            root = common_folder(list(files))
            folders = [_recorded(path) for path in program["includes"]]
            outputs = [buffer for buffer in said["buffers"] if buffer["role"] == "output"]
            inside = [path for path in folders if path.is_relative_to(root)]
            return cls(
                name=str(said["name"]),
                hashes=frozenset(files.values()),
                sources=tuple(path.relative_to(root) for path in sources),
                loops=tuple(map(str, program.get("loops", ()))),
                tuned=tuple(map(str, program.get("kernels", ()))),
                defines={str(name): str(value) for name, value in program["defines"].items()},
                includes=tuple(path.relative_to(root) for path in inside),
                outside=tuple(path for path in folders if path not in inside),
                arguments=tuple(map(str, program["arguments"])),
                positions={str(name): int(place) for name, place in said.get("size_arguments", {}).items()},
                kernels=tuple(str(kernel["name"]) for kernel in said["kernels"]),
                outputs=tuple(str(buffer["name"]) for buffer in outputs),
                inner_axes={str(each["name"]): tuple(map(int, each.get("shape", ())[1:])) for each in outputs},
                classes={str(p["name"]): tuple(map(str, p["classes"])) for p in said["parameters"]},
            )
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration) as error:
            raise RunFileError(
                f"what the run of {found.kernel!r} says of its program cannot be read: {error!r}"
            ) from None

    def shaped(self, answer: Mapping[str, Turns]) -> dict[str, Turns]:
        """Return what was copied to the host with the axes it has in the run, of which metrics may take regions."""
        found: dict[str, Turns] = {}
        for name, turns in answer.items():
            inner = self.inner_axes.get(name, ())
            count = math.prod(inner)
            fits = count > 0 and all(each is None or each.size % count == 0 for each in turns)
            found[name] = [None if each is None else each.reshape(-1, *inner) for each in turns] if fits else turns
        return found

    def sources_in(self, settings: IntoSettings) -> list[Path]:
        """Return the sources of the program that is given.

        Raises:
            ProgramError: one is missing, is another one, or is not in the folder that is given.
        """
        given = settings.program.resolve()
        if not given.is_dir() and len(self.sources) > 1:
            names = ", ".join(map(str, self.sources))
            raise ProgramError(f"{self.name} is a program of several files ({names}): give their folder with --into")
        found = [(given / name).resolve() for name in self.sources] if given.is_dir() else [given]
        if given.is_dir() and len(found) == 1 and not found[0].is_file():
            raise ProgramError(f"{settings.program} has no {self.sources[0]}; give the file of the program")
        for path in found:
            if given.is_dir() and not path.is_relative_to(given):
                raise ProgramError(f"{path} is not in {settings.program}, which links to it: give its own folder")
            self._check_hash(SourceFile.read(path))
        return found

    def check(self, program: Program, settings: IntoSettings) -> None:
        """Check that a program is the one that was tuned, and uses the record's macros as no more than such.

        Raises:
            ProgramError: it is another one, or may call something by a macro.
        """
        for file in own_files(program):
            self._check_hash(file)
        code = "\n".join(blanked(file.text) for file in own_files(program))
        for name in self.defines.keys() - settings.defines.keys():
            if not re.search(rf"\b{name}\b", code) or re.search(rf"\b{name}\s*\(", code):
                raise self._may_be_code(name)

    def _check_hash(self, file: SourceFile) -> None:
        if hashlib.sha256(file.text.encode("utf-8", "surrogateescape")).hexdigest() not in self.hashes:
            raise ProgramError(
                f"{file.path.name} is not what was tuned (its hash differs): adopt and tune it as it is now, or give "
                "it as it was: the folder that 'mptune adopt' wrote has it in program/"
            )

    def _may_be_code(self, name: str) -> ProgramError:
        given = f"{name}={self.defines[name]}"
        return ProgramError(
            f"the run was made with -D {given!r}, which may be any code; if it is yours, give it again with -D"
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
        found = dict(settings.defines)
        for name, value in self.defines.items():
            if name in found:
                continue
            if not _HARMLESS.fullmatch(value) or not _MACRO.fullmatch(name) or name in KEYWORDS:
                raise self._may_be_code(name)
            found[name] = value
        return found

    def includes_with(self, settings: IntoSettings) -> list[Path]:
        """Return all folders of headers: of the record's those in the folder of the program.

        Raises:
            ProgramError: one of the record is elsewhere, and none is given.
        """
        given = settings.program.resolve()
        root = given if given.is_dir() else given.parent
        above = Path() if given.is_dir() else self.sources[0].parent
        found = [(root / name.relative_to(above)).resolve() for name in self.includes if name.is_relative_to(above)]
        inside = [path for path in found if path.is_relative_to(root)]
        outside = [*self.outside, *(name for name in self.includes if not name.is_relative_to(above))]
        outside += [path for path in found if path not in inside]
        if outside and not settings.includes:
            folders = ", ".join(map(str, outside))
            raise ProgramError(
                f"the run was made with headers outside the program's folder ({folders}); no path in a run file is "
                "opened: give it again with -I"
            )
        return [*inside, *(path.resolve() for path in settings.includes)]


def _recorded(path: str) -> Path:
    """Return a path of a record.

    Raises:
        ValueError: it is none as ``mptune adopt`` writes them.
    """
    found = Path(path)
    if not found.is_absolute() or ".." in found.parts or "\0" in path:
        raise ValueError(f"{path!r} is no place of a file")
    return found


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
    for place in places.values():
        if any(place.exists() and place.samefile(file.path) for file in program.files):
            raise ProgramError(f"{target} is the program itself, which stays as it is; choose another --output")
        if place.exists() and not (place.is_file() and was_emitted(place)):
            raise ProgramError(f"{place} exists and was not written by mptune emit; choose another --output")
    return places


def _wanted(record: _Record, program: Program, classes: TypeClasses, trial: Trial) -> Iterator[tuple[str, str]]:
    """Yield the precision that a trial has for each type class.

    Raises:
        ProgramError: it has none.
    """
    for name, found in _found(record, program, classes, trial):
        for parameter, value in found.items():
            if value not in SPELLED:
                raise ProgramError(f"{parameter} is {value} in the run, for which programs have no type")
        if found:
            yield name, _widest(found.values())  # Kernels may have found different types for what they share.


def _found(
    record: _Record, program: Program, classes: TypeClasses, trial: Trial
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield what a trial has for each type class, by the name of the parameter: of each kernel that has the class.

    Raises:
        ProgramError: the program has no such class.
    """
    names = {kernel.label: _names_of(kernel.identifier, record) for kernel in program.kernels}
    by_name = {each.name: each for each in classes.classes}
    for parameter, members in record.classes.items():
        for name in members:
            if name not in by_name:
                raise ProgramError(f"the program has no {name} as the run says; adopt and tune it again")
            kernels = [found for label in by_name[name].kernels for found in names[label]]
            keys = [parameter, *(f"{kernel}.{parameter}" for kernel in kernels)]
            yield name, {key: str(trial.configuration[key]) for key in keys if key in trial.configuration}


def _widest(values: Iterable[str]) -> str:
    return max(values, key=lambda value: PRECISIONS[value].size_bytes)


def _widest_of_kernels(record: _Record, program: Program, classes: TypeClasses, trial: Trial) -> list[str]:
    """Say of what kernels share, and a trial has in different types, which of them it gets."""
    notes: dict[tuple[str, str], list[str]] = {}
    for name, found in _found(record, program, classes, trial):
        if len(set(found.values())) > 1:
            widest, named = _widest(found.values()), ", ".join(f"{key}={value}" for key, value in found.items())
            notes.setdefault((SPELLED[widest], named), []).append(name)
    return [
        f"{', '.join(names)}: {spelled}, the widest of what kernels that share it have ({named})"
        for (spelled, named), names in notes.items()
    ]


def _names_of(identifier: str, record: _Record) -> list[str]:
    """Return the names that a kernel may have in the application."""
    return [name for name in record.kernels if name == identifier or re.fullmatch(rf"{identifier}_\d+", name)]


def _blocks(record: _Record, program: Program, trial: Trial) -> dict[str, Block]:
    """Return the block that a trial has for each kernel, by its label; 0 for an axis that is not tuned."""
    found: dict[str, Block] = {}
    for kernel in program.kernels:
        for name in _names_of(kernel.identifier, record):
            sizes = [trial.configuration.get(f"{name}.{axis}", 0) for axis in _AXES]
            block = tuple(size if isinstance(size, int) and 1 <= size <= 1024 else 0 for size in sizes)
            if kernel.is_flat and any(block):
                found[kernel.label] = block[:1] if block[0] else block[1:]
    return found


def _not_carried_over(record: _Record, program: Program, trial: Trial, patched: Patch, backend: str) -> list[str]:
    """Say which values of a trial the program's text does not have."""
    told = {
        name
        for kernel in program.kernels
        for name in _names_of(kernel.identifier, record)
        if kernel.label in patched.blocks
    }
    where = "which stays as it is there"
    if program.originals:
        where = "where loops have nothing like it"
    elif backend == "host":
        where += " since this was found for a processor, not for a GPU (types and errors are the same there)"
    plain = {"policy": "accurate", "per_thread": 1, "per_thread_y": 1, "unroll": 1}
    notes = []
    for name, value in trial.configuration.items():
        kernel, _, own = name.rpartition(".")
        if (own in plain and value != plain[own]) or (own in _AXES and kernel not in told):
            notes.append(f"{name}={value}")
    return [f"not in the text, {where}: {', '.join(notes)}"] if notes else []


# -- compiling ---------------------------------------------------------------------------------------


def _built(program: Program, files: Sequence[SourceFile]) -> Built:
    """Compile a program as its user does, with these texts of its files."""
    return build(program.sources, files, program.defines, program.includes, has_openmp=bool(program.originals))


def _built_to_record(program: Program, built: Built) -> Built:
    """Return the program as it is recorded: parallel loops are kernels then."""
    if not program.originals:
        return built
    return build(program.sources, program.files, program.defines, program.includes, gives_host_memory=True)


def _answer_of(
    program: Program,
    classes: TypeClasses,
    patched: Patch,
    built: Built,
    record: _Record,
    arguments: Sequence[str],
    folder: Path,
) -> tuple[Capture, dict[str, Turns], dict[str, _Reduced]]:
    """Run a patched program; return what it did, its answer, and what its loops reduce."""
    types: Mapping[str, str] = patched.types
    if program.originals:  # its loops have to be cut out again
        texts = {file.path: file.text for file in patched.changed}
        program = read(program.sources, program.defines, program.includes, record.loops, record.tuned, texts)
        classes = type_classes(program)
        types = own_types(classes)
    captured = capture(_built_to_record(program, built), arguments, folder, may_fail=True)
    reader = _Reader(program, classes)
    return captured, reader.answer(captured, types), reader.reduced(captured, types)


def _compiled(
    program: Program, classes: TypeClasses, wanted: Mapping[str, str], blocks: Mapping[str, Block]
) -> tuple[Patch, Built, dict[str, str], list[str]]:
    """Patch a program and compile it; what a compiler does not take keeps a wider type.

    Returns:
        The patch, the program it makes, what came of each compiler, and what was given up.

    Raises:
        ProgramError: it takes nothing, not even the program's own types.
    """
    types, notes = dict(wanted), []
    own = own_types(classes)
    for attempt in range(_MOST_ATTEMPTS):
        of_loops = bool(program.originals)
        made = patch_loops(program, classes, types) if of_loops else patch(program, classes, types, blocks)
        try:
            built = _built(program, made.files)
            compilers = {"host": "compiles", **({} if of_loops else _compiled_for_gpus(program, made))}
        except ProgramError as error:
            narrow = [name for name, precision in made.types.items() if precision != own[name]]
            blamed = _blamed(str(error), made, classes, narrow) if attempt < _MOST_ATTEMPTS - 2 else []
            blamed = blamed or narrow
            if not blamed:
                raise
            for name in blamed:
                is_short = made.types[name] in ("fp16", "bf16") and own[name] == "fp64"
                types[name] = "fp32" if is_short and attempt < _MOST_ATTEMPTS // 2 else own[name]
            first = next((line.strip() for line in str(error).splitlines()[1:]), str(error))
            notes.append(
                ", ".join(f"{name}: {SPELLED.get(types[name], own[name])} instead" for name in blamed)
                + f", since a compiler does not take it ({first[:160]})"
            )
        else:
            return made, built, compilers, notes
    raise ProgramError(f"{program.sources[0].name}: no compiler takes it with other types; please report this")


def _blamed(message: str, made: Patch, classes: TypeClasses, narrow: Sequence[str]) -> list[str]:
    """Return the classes that the lines have to do with of which a compiler complains."""
    found: dict[str, None] = {}
    for error in _ERROR_LINE.finditer(message):
        file = next((file for file in made.files if file.path.name == Path(error[1]).name), None)
        number = int(error[2] or error[3])
        lines = file.text.splitlines() if file is not None else []
        words = set(re.findall(r"[A-Za-z_]\w*", lines[number - 1])) if 0 < number <= len(lines) else set()
        for name in narrow:
            if words & {member.name for member in classes[name].members if member.kind not in ("cast", "size")}:
                found[name] = None
    return list(found)


def _compiled_for_gpus(program: Program, made: Patch) -> dict[str, str]:
    """Compile a patched program with nvcc or hipcc, where it is installed; return what came of it.

    Raises:
        ProgramError: it does not compile, but the program as it is does.
    """
    name = "hipcc" if any("hip/hip_runtime" in file.text for file in program.files) else "nvcc"
    compiler = shutil.which(name)
    if compiler is None:
        return {name: "not installed here"}
    errors = _errors(compiler, program, made.files)
    if not errors:
        return {name: "compiles"}
    if _errors(compiler, program, program.files):
        return {name: "takes neither the new program nor the original"}
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


# -- running -----------------------------------------------------------------------------------------


def _judged(
    found: Run, objective: Objective, record: _Record, ours: Mapping[str, Turns], theirs: Mapping[str, Turns]
) -> dict[str, Any]:
    """Return how far what the patched program copied back is from what the original did, each copy for itself."""
    errors: dict[str, float] = {}
    why, notes = "", list[str]()
    left_out = came_to_nothing(theirs)
    ours, theirs = ({n: turns for n, turns in each.items() if n not in left_out} for each in (ours, theirs))
    if not theirs:
        why = "the program copies nothing to the host that a kernel has written"
    elif ours.keys() != theirs.keys():
        why = "the two copy different memory to the host"
    else:
        known = dict(zip([name for name in theirs if name.startswith(_UNNAMED)], record.outputs, strict=False))
        named = known if len(known) == len(record.outputs) else {}
        try:
            errors, notes = _errors_of_all(
                found, *(record.shaped({named.get(n, n): t for n, t in each.items()}) for each in (ours, theirs))
            )
        except MptuneError as error:
            why = str(error)
    limits = objective.limits
    broken = [name for name, limit in limits.items() if not errors.get(name, math.nan) <= limit]
    return {
        "metric": found.info.metric,
        "threshold": {found.info.measured_by(name): limit for name, limit in limits.items()},
        "error": _finite(errors.get("error")),
        "errors": {name: _finite(error) for name, error in errors.items()},
        "not_judged": why,
        "within": None if why else not broken and all(map(math.isfinite, errors.values())),
        "notes": notes,
    }


def _error_of_other(found: Run, ours: NDArray[Any], theirs: NDArray[Any]) -> float:
    """Return the error of numbers that the run has no error of, by its metric where that can be taken of them."""
    if np.array_equal(ours, theirs, equal_nan=True):
        return 0.0
    try:
        error = _errors_of(found, {"file": ours}, {"file": theirs})["error"]
    except MptuneError:  # one of rows of a matrix, say
        error = evaluate_outputs({"file": ours}, {"file": theirs}, "NRMSE").error
    return math.inf if math.isnan(error) else error


@dataclass(frozen=True, slots=True)
class _Reduced:
    """What a loop leaves in a variable, but for what was in it before.

    Attributes:
        value: the number.
        is_nothing: whether it is within the rounding errors of the program as it is, so that no digit of it is right.
    """

    value: float
    is_nothing: bool


def _with_reduced(
    judged: Mapping[str, Any],
    found: Run,
    limit: float,
    ours: Mapping[str, _Reduced],
    theirs: Mapping[str, _Reduced],
) -> dict[str, Any]:
    """Return what is said of an answer with that of what loops reduce: larger than of the parts where these cancel."""
    if judged["not_judged"] or judged["error"] is None:
        return dict(judged)
    errors = {
        name: _error_of_other(found, np.array([ours[name].value]), np.array([each.value]))
        for name, each in theirs.items()
        if name in ours and not each.is_nothing
    }
    broken = [f"the error of {name}, as the loop leaves it, is {e:.3g}" for name, e in errors.items() if not e <= limit]
    return {
        **judged,
        "error": _finite(max([judged["error"], *errors.values()])),
        "within": judged["within"] and not broken,
        "notes": [*judged["notes"], *broken],
    }


def _is_within(file: Compared, limit: float) -> bool | None:
    """Whether what was compared of a file is the original's, or its numbers nearly so; None if nothing was."""
    return file.is_right and (file.error is None or (math.isfinite(file.error) and file.error <= limit))


def _with_files(judged: Mapping[str, Any], files: Sequence[Compared], limit: float) -> dict[str, Any]:
    """Return what is said of an answer with what files say: if nothing was copied to the host, they are the answer."""
    is_broken = any(_is_within(file, limit) is False for file in files)
    errors = [file.error for file in files if file.error is not None]
    if judged["not_judged"] and errors:
        return {**judged, "error": _finite(max(errors)), "not_judged": "", "within": not is_broken}
    return {**judged, "within": judged["within"] and not is_broken}


def _errors_of_all(
    found: Run, ours: Mapping[str, Turns], theirs: Mapping[str, Turns]
) -> tuple[dict[str, float], list[str]]:
    """Return the largest errors of all copies to the host, and what is to be said of them.

    Raises:
        MptuneError: they cannot be compared.
    """
    errors, notes = dict[str, float](), list[str]()
    pairs: dict[str, list[tuple[NDArray[Any] | None, NDArray[Any] | None]]] = {}
    for name, turns in theirs.items():
        pairs[name] = list(zip(ours[name], turns, strict=False))
        if len(ours[name]) != len(turns):
            pairs[name] = pairs[name][:1]
            times = f"{len(ours[name])} times, and {len(turns)} times by the original"
            notes.append(f"{name} is copied to the host {times}: only the last copies are compared")
        missing = sum(new is None or old is None for new, old in pairs[name])
        if missing:
            notes.append(
                f"{missing} of {len(pairs[name])} copies of {name} are not compared: there is no room for them"
            )
    for turn in range(max(map(len, pairs.values()))):
        now = {name: each[turn] for name, each in pairs.items() if turn < len(each)}
        new = {name: values for name, (values, other) in now.items() if values is not None and other is not None}
        old = {name: values for name, (_, values) in now.items() if name in new and values is not None}
        if any(new[name].shape != values.shape for name, values in old.items()):
            raise MptuneError("the two copy different amounts of data to the host")
        if not turn and len(new) < len(theirs):
            raise MptuneError("what the program copies to the host is too large to be recorded")
        for key, error in _errors_of(found, new, old).items() if new else ():
            errors[key] = max(errors.get(key, 0.0), math.inf if math.isnan(error) else error)
    return errors, notes


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _timed(programs: tuple[Built, Built], arguments: Sequence[str], scratch: Path) -> list[tuple[Ran, Ran]]:
    """Run two programs on this machine's processor, in turns; return a pair of runs for each of some rounds.

    What runs for a moment runs more often, as the machine has more to do with what it takes.
    """
    rounds: list[tuple[Ran, Ran]] = []
    spent_s = 0.0
    while len(rounds) < _MOST_ROUNDS:
        writes = [_made(scratch / f"files{len(rounds)}_{index}") for index in range(2)]
        first, second = (
            run(each, arguments, writes=folder, may_fail=True) for each, folder in zip(programs, writes, strict=True)
        )
        rounds.append((first, second))
        spent_s += first.seconds + second.seconds
        longest_s = max(first.seconds, second.seconds)
        if longest_s > _LONG_S or (len(rounds) >= _FEWEST_ROUNDS and spent_s > _TIMING_S):
            break
    return rounds


def _said(originals: Sequence[Ran], new: Ran, tolerance: float) -> dict[str, dict[str, Any] | None]:
    """Return where what a patched program says is not what the original says, each as the two have it; None if nowhere.

    What the original itself says in another way each time does not count.
    """
    old = originals[0]

    def of_text(compare: Callable[[str, str], tuple[str, str] | None], stream: str) -> tuple[str, str] | None:
        one, *others = (str(getattr(each, stream)) for each in originals)
        return None if any(compare(one, other) for other in others) else compare(one, str(getattr(new, stream)))

    found = {
        "printed": told_apart(old.output, new.output, tolerance),
        "wrong": wrong_numbers(old.output, new.output, tolerance) or of_text(other_lines, "output"),
        "complaints": of_text(other_words, "errors"),
        "exit_codes": (old.code, new.code) if new.code not in {each.code for each in originals} else None,
    }
    return {
        what: None if both is None else dict(zip(("original", "patched"), both, strict=True))
        for what, both in found.items()
    }


def _slower(rounds: Sequence[tuple[float, float]], kept: Sequence[str], backend: str) -> list[str]:
    """Say that a patched program takes longer than the original, and what may be done; nothing if it does not surely.

    Args:
        rounds: how long the original and the new one ran, in turns.
        kept: what has not the type that the winner has for it.
        backend: what the types were tuned for.
    """
    old, new = (min(times) for times in zip(*rounds, strict=True))
    ratio = Ratio.of([max(second, _TICK_S) / max(first, _TICK_S) for first, second in rounds])
    if not (ratio.is_slower and new > old * (1 + TIE) and new - old > 2 * _TICK_S):
        return []
    said = f"SLOWER than it was on this machine's processor: {new:.3g} s, and {old:.3g} s before"
    if len(rounds) > 1:
        said += f" (the shortest of {len(rounds)} runs each, in turns)"
    if backend != "host":
        return [f"{said}; the types were tuned for {backend}, of which that says little"]
    if kept:
        few = ", ".join(kept[:_FEW]) + (f" and {len(kept) - _FEW} more" if len(kept) > _FEW else "")
        return [
            f"{said}; {few} kept another type than the winner's, for which the other notes have the reason, and "
            "numbers are converted wherever they meet narrower ones: change what keeps it, or let the others keep "
            "theirs, too (tune with -p NAME=fp64)"
        ]
    return [f"{said}; keep the original, or tune at the sizes that the program is used with"]


@dataclass(frozen=True, slots=True)
class _Reader:
    """Makes numbers of what a program copied back."""

    program: Program
    classes: TypeClasses

    def answer(self, captured: Capture, types: Mapping[str, str]) -> dict[str, Turns]:
        """Return what a program copied back of variables and of the memory kernels are given, in order of allocation.

        Structs of numbers of several types come last, each of their fields for itself, as adopting has them.

        Args:
            captured: a run of it.
            types: the precision of each type class, by name.
        """
        names = {each.id: each.name for each in captured.allocations.values() if each.kind == "symbol"}
        stored = {id: self._of_symbol(name, types) for id, name in names.items()}
        for launch in captured.launches():
            stored |= self._of_launch(launch, types)
        whole, fields = list[tuple[str, Turns]](), list[tuple[str, Turns]]()
        for id, turns in captured.turns.items():
            kind, name = stored.get(id), names.get(id, "")
            if kind is None:
                continue
            copies = [None if each is None else _elements(each, kind) for each in map(captured.joined, turns)]
            if kind.names is None:
                whole.append((name, [None if each is None else _widened(each) for each in copies]))
            for part in kind.names or ():
                numbers = [None if each is None else _widened(each[part]) for each in copies]
                fields.append((f"{name}.{part}" if name else "", numbers))
        return {name or f"{_UNNAMED}{i}": turns for i, (name, turns) in enumerate([*whole, *fields])}

    def reduced(self, captured: Capture, types: Mapping[str, str]) -> dict[str, _Reduced]:
        """Return what loops made of the parts that their last launches left, by their kernels and variables."""
        found: dict[str, _Reduced] = {}
        launches = {launch.kernel: launch for launch in captured.launches()}
        kernels = {kernel.name: [each.name for each in kernel.parameters] for kernel in self.program.kernels}
        for loop in (loop for loop in self.program.loops if loop.kernel in launches.keys() & kernels.keys()):
            launch, parameters = launches[loop.kernel], kernels[loop.kernel]
            stored = self._of_launch(launch, types)
            for name, sign in loop.reduced.items():
                place = launch.arguments[parameters.index(f"{name}_parts")]
                kind = stored.get(place.allocation) if isinstance(place, Place) else None
                turns = captured.turns.get(place.allocation, ()) if isinstance(place, Place) else ()
                data = captured.joined(turns[0]) if turns else None
                if data is None or kind is None or sign not in _COMBINED:
                    continue
                parts = _widened(_elements(data, kind))[: launch.grid[0]].astype(np.float64)
                with np.errstate(over="ignore", invalid="ignore"):
                    value = float(_COMBINED[sign](parts))
                    rounding = launch.grid[0] * launch.block[0] * np.finfo(np.float64).eps * np.abs(parts).sum()
                found[f"{loop.kernel}.{name}"] = _Reduced(value, sign != "*" and abs(value) <= rounding)
        return found

    def _of_symbol(self, name: str, types: Mapping[str, str]) -> np.dtype[Any] | None:
        """Return how a variable in the device's memory holds its numbers; None if it is not known."""
        own = next((c for c in self.classes.classes for m in c.members if (m.function, m.name) == ("", name)), None)
        if own is not None:
            return _held(types[own.name], own.scalar)
        needs = (need.memory for kernel in self.program.kernels for need in kernel.needs if need.name == name)
        return self._of_memory(next(needs, None), types)

    def _of_memory(self, memory: Memory | None, types: Mapping[str, str]) -> np.dtype[Any] | None:
        """Return how elements that are structs hold their numbers: a type of NumPy's with fields, if of several types.

        (Those keep their types.)
        """
        if memory is None or not memory.fields or memory.has_pointers:
            return None
        if memory.is_mixed:
            kind: np.dtype[Any] = np.dtype(cast("Any", record_of(memory)))
            return kind
        first, scalar = memory.fields[0], memory.numbers[0]
        own = class_of(self.classes, first.name, first.struct)
        return _held("" if own is None else types[own.name], scalar if own is None else own.scalar)

    def _of_launch(self, launch: Launch, types: Mapping[str, str]) -> dict[int, np.dtype[Any]]:
        """Return how each allocation that a launch is given holds its numbers."""
        found: dict[int, np.dtype[Any] | None] = {}
        name = re.sub(r"<.*", "", launch.kernel).split("::")[-1].strip()
        kernels = [kernel for kernel in self.program.kernels if kernel.name == name]
        for index, (argument, spelled) in enumerate(zip(launch.arguments, launch.types, strict=False)):
            if isinstance(argument, Place):
                element = re.sub(r"\b(const|volatile|struct|__restrict__|__restrict)\b|[*&]", "", spelled)
                element = " ".join(element.split())
                scalar = re.sub(r"^(double|float|int)[1-4]$", r"\1", element)
                structs = [memory for each in kernels if (memory := each.parameters[index].memory) is not None]
                of_name = next((each for each in structs if each.name == element), next(iter(structs), None))
                found[argument.allocation] = _held("", scalar) or self._of_memory(of_name, types)
            elif isinstance(argument, Structure) and kernels:
                found |= self._of_fields(kernels[0].parameters[index], argument, types)
        return {id: kind for id, kind in found.items() if kind is not None}

    def _of_fields(
        self, struct: Parameter, given: Structure, types: Mapping[str, str]
    ) -> dict[int, np.dtype[Any] | None]:
        """Return the same of the allocations that the fields of a struct point at."""

        def held(field: Parameter, owner: str) -> np.dtype[Any] | None:
            own = class_of(self.classes, field.name, owner)
            if own is None:
                return _held("", field.element) or self._of_memory(field.memory, types)
            return _held(types[own.name], own.scalar)

        def bytes_of(field: Parameter, owner: str) -> int:
            kind = held(field, owner)
            return 1 if kind is None else kind.itemsize

        kinds = {leaf.name: held(leaf, owner) for leaf, owner in fields_of(struct) if leaf.is_pointer}
        places, size, _ = layout_of(struct, bytes_of)
        found = {place: kinds[leaf.name] for leaf, place in places if leaf.is_pointer}
        if size != len(given.data):
            # What a number is in the text is not always how it is stored; in which order pointers come is the same.
            found = dict(zip(sorted(given.pointers), kinds.values(), strict=False))
        to_device = ((at, to) for at, to in given.pointers.items() if isinstance(to, Place))
        return {to.allocation: found.get(at) for at, to in to_device}


def _held(precision: str, scalar: str) -> np.dtype[Any] | None:
    """Return how numbers of a precision, or else of a type of C++, are held; None if it is not known."""
    kind = _STORED.get(SPELLED.get(precision, scalar), "")
    return PRECISIONS[kind].dtype if kind in PRECISIONS else np.dtype(kind) if kind else None


def _elements(data: NDArray[np.uint8], kind: np.dtype[Any]) -> NDArray[Any]:
    return data[: data.size // kind.itemsize * kind.itemsize].view(kind)


def _widened(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.float64) if values.dtype.kind not in "iu" else values


def _errors_of(found: Run, ours: Mapping[str, NDArray[Any]], theirs: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """Return the errors of the patched program's answer, by the names of the run's metrics."""
    text = found.info.metric
    metrics: Any = dict(part.split(": ", 1) for part in text.split(", ")) if ": " in text else text
    if isinstance(metrics, str):
        metrics = [text, *(name for name in dict.fromkeys(found.info.metrics.values()) if name != text)]
    else:  # (of variables no run measures an error)
        metrics = {name: metrics.get(name, "NRMSE") for name in theirs}
    if " over columns" in text:  # (numbers that are no struct's are one)
        ours, theirs = (
            {name: values[:, np.newaxis] if values.ndim == 1 else values for name, values in answer.items()}
            for answer in (ours, theirs)
        )
    finite = {name: np.isfinite(values) for name, values in theirs.items()}
    measured = evaluate_outputs(
        {name: np.where(finite[name], values, 0) for name, values in ours.items()},
        {name: np.where(finite[name], values, 0) for name, values in theirs.items()},
        metrics,
    ).metrics
    del measured["log10_error"]  # -inf of an answer without an error
    # What is not finite in the program's own answer, which no metric measures, has to be so in the same way.
    rest = ((ours[name][~where], theirs[name][~where]) for name, where in finite.items())
    is_alike = all(np.array_equal(new, old, equal_nan=new.dtype.kind == "f") for new, old in rest)
    return measured if is_alike else dict.fromkeys(measured, math.inf)


# -- writing -----------------------------------------------------------------------------------------


def _others(places: Mapping[Path, Path], settings: IntoSettings) -> tuple[dict[Path, Path], list[str]]:
    """Return the other files of a program's folder that it may need, and where they go; and say what it does without.

    Left out are what is hidden, built, too large, a link, or a folder that mptune wrote.
    """
    given, target = settings.program.resolve(), settings.output.resolve()
    if not given.is_dir():
        return {}, []
    found: dict[Path, Path] = {}
    left_out: list[str] = []
    for folder, folders, names in os.walk(given):
        at = Path(folder)
        of_others = [name for name in folders if (at / name).is_symlink() or not _is_source_folder(at / name, target)]
        folders[:] = sorted(name for name in folders if name not in of_others and not name.startswith("."))
        left_out += (f"{(at / name).relative_to(given)}/" for name in of_others if (at / name).resolve() != target)
        for path in (at / name for name in sorted(names) if not name.startswith(".") and at / name not in places):
            if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST_BYTES or _is_built(path):
                left_out.append(str(path.relative_to(given)))
            else:
                found[path] = settings.output / path.relative_to(given)
    few = [*left_out[:_FEW], *([f"{len(left_out) - _FEW} more"] if len(left_out) > _FEW else [])]
    why = f"built files, links, files over {_LARGEST_BYTES >> 20} MB and what mptune wrote are not copied"
    return found, [f"not in {settings.output}: {', '.join(few)} ({why})"] if left_out else []


def _is_source_folder(folder: Path, target: Path) -> bool:
    is_made = any((folder / name).exists() for name in (RECORD, "CMakeCache.txt")) or any(folder.glob(f"*/{RECORD}"))
    return not is_made and folder.name not in ("CMakeFiles", "__pycache__") and folder.resolve() != target


def _is_built(path: Path) -> bool:
    with path.open("rb") as file:
        return path.suffix in _BUILT or file.read(16).startswith((b"\x7fELF", b"!<arch>", b"SQLite format 3"))


def _write(made: Patch, places: Mapping[Path, Path], beside: Mapping[Path, Path], settings: IntoSettings) -> list[Path]:
    """Write the new program, and the files beside it.

    Raises:
        ProgramError: types change in files that are not part of what was given.
        MptuneError: it cannot be written.
    """
    others = [file.path.name for file in made.changed if file.path not in places]
    if others:
        raise ProgramError(f"types in {', '.join(others)} change, too: give the program's folder with --into")
    contents = {}
    for file in made.files:
        if file.path in places:
            end = "" if file.text.endswith("\n") else "\n"
            text = f"{file.text}{end}// {MARK} {__version__}\n"
            contents[places[file.path]] = text.encode("utf-8", "surrogateescape")
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
