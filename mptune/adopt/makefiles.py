"""How a folder builds and runs its program: read from its Makefile (``make -n``) or its compilation database."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mptune.adopt.parsing import ProgramError, SourceFile
from mptune.adopt.rewriting import has_device_code
from mptune.backends.processes import Child

#: How files end that a compiler is given.
SOURCES: Final = (".cu", ".hip", ".cpp", ".cc", ".cxx")
#: The same of the files in Makefiles.
COMPILED: Final = (*SOURCES, ".c", ".C")
#: Files that say how a folder is built. The first one that is there is used.
_ORIGINS: Final = ("GNUmakefile", "makefile", "Makefile", "compile_commands.json", "build/compile_commands.json")
#: Targets that run a program, in order of preference.
_TARGETS: Final = ("run", "test", "check")
_MAKE_LIMIT_S: Final = 20.0
_COMPILER: Final = re.compile(
    r"(?:[\w.+]+-)*(?:nvcc|hipcc|nvc\+\+|icpx|gcc|g\+\+|clang|clang\+\+|cc|c\+\+|mpicc|mpicxx|mpic\+\+|mpiCC|CC)(?:-[\d.]+)?"
)
#: Words before a compiler, such as ``ccache`` and ``VARIABLE=value``.
_MOST_BEFORE: Final = 3
_FOLDER: Final = re.compile(r"make(?:\[\d+\])?: (Entering|Leaving) directory '(.*)'")
_NO_TARGET: Final = re.compile(r"No rule to make target '(?:run|test|check)'\.")
_REDIRECTION: Final = re.compile(r"(?<!\S)\d?(?:>>?|<)(?:&\d|\s*[^\s;&|]+)")
_SEPARATORS: Final = frozenset(";&|()")
#: Options of compilers whose value is the rest of the word, or the next word; and is always the next word.
_WITH_VALUE: Final = ("-D", "-U", "-I", "-isystem", "-iquote", "-L", "-l")
_BEFORE_VALUE: Final = ("-o", "-x", "-include", "-MF", "-MT", "-MQ")
_HEADERS: Final = ("-I", "-isystem", "-iquote")
#: Standards after C++17, as which programs are read.
_LATER: Final = re.compile(r"--?std=((?:c|gnu)\+\+2\w)")
#: Headers of a toolkit, in whose place those of the layer stand.
_TOOLKIT: Final = ("cuda_runtime.h", "hip/hip_runtime.h")


@dataclass(frozen=True, slots=True)
class Project:
    """How a program is compiled and run.

    Attributes:
        sources: the files a compiler is given.
        defines: macros of the command line, by name; "" for one without a value.
        includes: folders of headers that exist.
        arguments: of the program's command line.
        run_in: the folder in which the program runs.
        root: the folder with the whole program; None if it is not known.
        origin: the file that says all this; None if none does.
        notes: commands that were not followed, in words.
    """

    sources: tuple[Path, ...]
    defines: Mapping[str, str]
    includes: tuple[Path, ...]
    arguments: tuple[str, ...]
    run_in: Path
    root: Path | None = None
    origin: Path | None = None
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Step:
    """A command that makes files from others.

    Attributes:
        inputs: sources, objects and libraries.
        outputs: files made.
        is_link: whether the output is a program.
        defines: macros.
        includes: folders of headers.
        libraries: names of libraries (``-l``).
        standard: of C++, if it is a later one than programs are read as; "" otherwise.
    """

    inputs: list[Path] = field(default_factory=list)
    outputs: list[Path] = field(default_factory=list)
    is_link: bool = True
    defines: dict[str, str] = field(default_factory=dict)
    includes: list[Path] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)
    standard: str = ""


@dataclass(frozen=True, slots=True)
class _Run:
    """A command that runs a program."""

    program: Path
    arguments: tuple[str, ...]
    folder: Path


def project_in(folder: Path) -> Project | None:
    """Return how the program of a folder is built and run; None if neither a Makefile nor a database says that.

    Raises:
        ProgramError: the Makefile builds several programs, or the database cannot be read.
    """
    for name in _ORIGINS:
        if (path := folder.resolve() / name).is_file():
            found = project_of_database(path) if path.suffix == ".json" else _of_makefile(path)
            return dataclasses.replace(found, root=folder.resolve())
    return None


def builds_by_itself(folder: Path) -> bool:
    """Whether a folder has a Makefile or a compilation database."""
    return any((folder / name).is_file() for name in _ORIGINS)


def project_of_database(path: Path) -> Project:
    """Return how the sources of a compilation database (``compile_commands.json``) are compiled.

    Raises:
        ProgramError: it is none.
    """
    steps = []
    try:
        for entry in json.loads(path.read_text(encoding="utf-8")):
            words = entry.get("arguments") or shlex.split(entry["command"])
            if not all(isinstance(word, str) for word in words):
                raise TypeError("'arguments' of a file are no texts")
            step = _compiled(words[1:], Path(entry["directory"]))
            step.inputs = [Path(entry["directory"]) / entry["file"]]
            steps.append(step)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProgramError(f"{path} is not a compilation database (compile_commands.json): {error}") from None
    return _project(steps, (), path.parent.resolve(), path)


# -- Makefiles -----------------------------------------------------------------------------------


def _of_makefile(makefile: Path) -> Project:
    folder, name = makefile.parent, makefile.name
    printed, complaint = _dry_run(makefile)
    steps, runs = _steps_and_runs(printed, folder)
    used = {path for step in steps.values() for path in step.inputs}
    programs = [each.program for each in runs] or [p for p, step in steps.items() if step.is_link and p not in used]
    chosen = [path for path in dict.fromkeys(programs) if _has_kernels(_needed(path, steps))] or programs[:1]
    if len(chosen) > 1 and not runs:
        names = ", ".join(path.name for path in chosen)
        raise ProgramError(f"{name} builds several programs ({names}): give the files of one")
    if not chosen:
        why = complaint or "none of its commands compiles a program"
        note = f"{name} is not followed ({why}): all sources in its folder are compiled"
        return Project((), {}, (), (), folder, folder, makefile, (note,))
    own = [each for each in runs if each.program == chosen[0]]
    notes = [f"{name} has {len(own)} commands that run {chosen[0].name}: the first is taken"] if len(own) > 1 else []
    if not own:
        notes.append(f"{name} has no command that runs {chosen[0].name}: it runs without arguments")
    run = own[0] if own else _Run(chosen[0], (), folder)
    run_in = run.folder if run.folder.is_dir() else folder
    return _project(_needed(chosen[0], steps), run.arguments, run_in, makefile, notes)


def _project(
    steps: Iterable[_Step], arguments: tuple[str, ...], run_in: Path, origin: Path, notes: Sequence[str] = ()
) -> Project:
    sources: dict[Path, None] = {}
    defines: dict[str, str] = {}
    includes: dict[Path, None] = {}
    later = dict[str, None]()
    for step in steps:
        sources |= dict.fromkeys(path for path in step.inputs if path.suffix in COMPILED)
        defines = {**step.defines, **defines}
        includes |= dict.fromkeys(path.resolve() for path in step.includes if path.is_dir())
        later |= dict.fromkeys([step.standard] if step.standard else [])
    notes = [*notes, *(f"{origin.name} says -std={standard}: the program is read as C++17" for standard in later)]
    own = (path for path in includes if not any((path / name).exists() for name in _TOOLKIT))
    return Project(tuple(sources), defines, tuple(own), arguments, run_in, origin.parent, origin, tuple(notes))


def _dry_run(makefile: Path) -> tuple[str, str]:
    """Return the commands with which make would build and run a program, and its complaint, "" for none."""
    built, complaint = _make(makefile)
    for target in _TARGETS:
        printed, errors = _make(makefile, target)
        if not errors:
            return f"{built}\n{printed}", ""
        if not _NO_TARGET.search(errors):
            complaint = complaint or errors
    return built, complaint


def _make(makefile: Path, *targets: str) -> tuple[str, str]:
    """Return the commands that make would run, and its last complaint; "" for none."""
    # Even of a dry run the Makefile itself would be made, if a rule for it and --always-make say so.
    command = ["make", "--dry-run", "--always-make", "--print-directory", f"--old-file={makefile.name}", *targets]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    how = {"cwd": str(makefile.parent), "env": {**environment, "LC_ALL": "C"}}
    try:
        with Child(command, **how, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            printed, errors = (text.decode(errors="replace") for text in child.communicate(timeout=_MAKE_LIMIT_S))
            code = child.returncode
    except OSError:
        return "", "make is not installed"
    except subprocess.TimeoutExpired:
        return "", f"make did not end within {_MAKE_LIMIT_S:g} s"
    complaints = [line for line in errors.splitlines() if "***" in line] or errors.splitlines()[-1:]
    return printed, "" if code == 0 else complaints[0].strip() if complaints else f"make exited with code {code}"


def _steps_and_runs(printed: str, folder: Path) -> tuple[dict[Path, _Step], list[_Run]]:
    """Return the commands that make files, by file, and those that run one of these."""
    commands = list(_commands(printed, folder))
    steps: dict[Path, _Step] = {}
    for words, place in commands:
        if step := _step(words, place):
            steps |= dict.fromkeys(step.outputs, step)
    runs = []
    for words, place in commands:
        paths = [] if _step(words, place) else [_path(word, place) for word in words]
        at = next((n for n, path in enumerate(paths) if path in steps and steps[path].is_link), None)
        if at is not None:
            runs.append(_Run(paths[at], tuple(_expanded(words[at + 1 :], place)), place))
    return steps, runs


def _commands(printed: str, folder: Path) -> Iterator[tuple[list[str], Path]]:
    """Yield the simple commands that make printed, each with the folder in which it runs."""
    folders = [folder]
    for line in printed.replace("\\\n", " ").splitlines():
        if found := _FOLDER.match(line):
            folders = [*folders, Path(found[2])] if found[1] == "Entering" else folders[: max(len(folders) - 1, 1)]
            continue
        lexer = shlex.shlex(_REDIRECTION.sub(" ", line), posix=True, punctuation_chars="".join(_SEPARATORS))
        lexer.whitespace_split = True
        place, words = folders[-1], list[str]()
        try:
            tokens = [*lexer, ";"]
        except ValueError:  # a quotation that does not end
            continue
        for token in tokens:
            if not _SEPARATORS.issuperset(token):
                words.append(token)
            elif words[:1] == ["cd"] and len(words) == 2:
                place, words = _path(words[1], place), []
            elif words:
                yield words, place
                words = []


def _step(words: Sequence[str], place: Path) -> _Step | None:
    """Return what a command makes; None if it is no command of a compiler or archiver."""
    name = Path(words[0]).name
    if name == "ar" and len(words) > 3:
        archive, *members = (_path(word, place) for word in words[2:])
        return _Step(members, [archive], is_link=False)
    at = next((n for n, word in enumerate(words[:_MOST_BEFORE]) if _COMPILER.fullmatch(Path(word).name)), None)
    return None if at is None else _compiled(words[at + 1 :], place)


def _compiled(words: Sequence[str], place: Path) -> _Step:
    """Return what a compiler makes, by the words behind its name."""
    step, libraries, output = _Step(), list[str](), ""
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word.startswith(("-Xcompiler=", "--compiler-options=")):
            waiting[:0] = word.partition("=")[2].split(",")
            continue
        option = word if word in _BEFORE_VALUE else next(filter(word.startswith, _WITH_VALUE), "")
        value = word[len(option) :] or (waiting.pop(0) if option and waiting else "")
        if option == "-o":
            output = value
        elif option == "-D":
            name, _, text = value.partition("=")
            step.defines[name] = text
        elif option == "-U":
            step.defines.pop(value, None)
        elif option in _HEADERS:
            step.includes.append(_path(value, place))
        elif option == "-l":
            libraries.append(value)
        elif found := _LATER.fullmatch(word):
            step.standard = found[1]
        elif word in ("-c", "-dc", "--compile", "--device-c"):
            step.is_link = False
        elif not option and not word.startswith("-"):
            step.inputs.append(_path(word, place))
    made = [path.stem + ".o" for path in step.inputs if path.suffix in COMPILED and not step.is_link]
    step.outputs = [_path(each, place) for each in ([output] if output else made or ["a.out"])]
    step.libraries = libraries
    return step


def _needed(program: Path, steps: Mapping[Path, _Step]) -> list[_Step]:
    """Return the commands that make a program, and what it is made of."""
    found: list[_Step] = []
    waiting = [program]
    while waiting:
        step = steps.get(waiting.pop(0))
        if step is not None and step not in found:
            found.append(step)
            names = {f"lib{name}{end}" for name in step.libraries for end in (".a", ".so")}
            waiting += [*step.inputs, *(path for path in steps if path.name in names)]
    return found


def _has_kernels(steps: Iterable[_Step]) -> bool:
    files = [path for step in steps for path in step.inputs if path.suffix in COMPILED and path.is_file()]
    return any(path.suffix in (".cu", ".hip") or has_device_code(SourceFile.read(path).text) for path in files)


def _path(word: str, place: Path) -> Path:
    return Path(os.path.normpath(place / word))


def _expanded(words: Iterable[str], place: Path) -> Iterator[str]:
    """Yield words as a shell gives them to a program: names of files for patterns."""
    for word in words:
        word = os.path.expandvars(word)
        is_pattern = re.search(r"[*?\[]", word) and not word.startswith("/")
        yield from sorted(str(path.relative_to(place)) for path in (place.glob(word) if is_pattern else ())) or [word]
