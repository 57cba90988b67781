"""Programs compiled, and run within limits: on this machine's processor, with headers of ours for CUDA's, or on a GPU.

The headers and what stands behind them are in ``files/layer``: ``runtime.cpp`` is CUDA's runtime on the processor, and
``recorder.cpp`` stands before that one or CUDA's own. :mod:`mptune.adopt.rewriting` puts launches into C++.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mptune.adopt.parsing import ProgramError, SourceFile
from mptune.adopt.rewriting import (
    facts_of,
    has_device_code,
    rewritten,
    with_recorded_launches,
    without_definitions,
)
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host_compiler import ROUNDS, ZIG_FLAGS, find_compiler, host_architecture
from mptune.backends.processes import Child
from mptune.backends.processes import in_words as how_it_ended
from mptune.cpp.prelude import LIBRARIES, prelude_folder, shared_intrinsics
from mptune.memory import available_memory_bytes, in_words

#: No contraction: what a program computes on the host to check its kernels is then computed alike. Programs read
#: numbers as others (aliasing) and count over the end of an int. The heap of a position-independent program is above
#: 4 GiB: the recorder tells pointers from other fields by that.
_FLAGS: Final = (
    *("-w", "-pipe", "-Wno-narrowing", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
    *("-fno-strict-aliasing", "-fwrapv", "-fpermissive", "-fPIE", ROUNDS),
)
#: A program that has the headers of both is one of CUDA.
_CUDA: Final = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]cuda(?:_runtime(?:_api)?)?\.h', re.MULTILINE)
_LANGUAGES: Final = {".c": ("c", "gnu17")}
#: The same for nvcc, with what programs ask of it most.
_NVCC_FLAGS: Final = (
    *("-O3", "-w", "-std=c++17", "-fmad=false", "--expt-relaxed-constexpr", "--extended-lambda"),
    *("-Xcompiler", "-w,-ffp-contract=off,-fno-strict-aliasing,-fwrapv,-fpermissive"),
)
#: A function of CUDA's runtime that the recorder stands before.
_RECORDED: Final = re.compile(r"\bMPTUNE_RECORDED\((\w+)\)\(")
#: What the layer shares with templates.
_OF_PRELUDE: Final = (
    *("host_fiber.hpp", "host_pool.hpp", "intrinsics.hpp", "short_intrinsics.hpp", "warps.hpp"),
    *LIBRARIES,
)
_FOR_PROCESSOR: Final = "this machine's processor"
_FOR_GPU: Final = "this machine's GPU"
_NO_OPENMP: Final = "zig has no OpenMP: parallel regions ran on one thread (g++ or clang++ with libomp has it)"
_COMPILE_LIMIT_S: Final = 300.0
_WATCHING_S: Final = 0.02
#: How many times its limit a program may take on the clock as long as the processors, busy with others, worked less.
_MOST_WAITING: Final = 4
#: Linux's clock of the processor time of all threads of a process, in a clock's number.
_PROCESS_CLOCK: Final = 2
#: How long it may take to say where its time went.
_LEAVING_S: Final = 2.0
_MOST_KERNELS: Final = 5
_CLOCK_SPEED: Final = 16
#: What has run for less, as one of many short launches, would be said to have run for 0.0 s.
_SHORTEST_SAID_S: Final = 0.05
#: Of what a program prints.
_OUTPUT_LIMIT_BYTES: Final = 1 << 26
#: What programs say of their results, after a word that denies it; none of it in another sense, such as the second pass
#: or the time to failure.
_DENIED: Final = (
    r"(?:(?P<none>(?<![\w.,])(?:0|no|zero|none|without)\s+)|(?P<denied>(?:\b(?:not|never)|n't)\s+))?"
    r"(?:(?:of|an?|any|all|have|has|been|be|yet|\d+|tests?|checks?|values?|points?|elements?|cases?)\s+){0,3}"
)
_PASSED: Final = re.compile(
    rf"(?i){_DENIED}(?<![-/])"
    r"(?<!\bfirst )(?<!\bsecond )(?<!\blast )(?<!\bnext )(?<!\beach )(?<!\bper )(?<!\bforward )(?<!\bbackward )"
    r"\b(?:PASS(?:ED)?(?!\s+(?:#?\d|number|through|to|by|over|the|an?|NULL)\b|-|/)"
    r"|verification (?:is |was )?success\w*|results? (?:is |are )?correct)\b"
)
_FAILED: Final = re.compile(
    rf"(?i){_DENIED}(?<!\bto )(?<!\bof )(?<!\bbefore )(?<!\buntil )"
    r"\b(?:FAIL(?:ED|URES?)?(?!\s+(?:rates?|probabilit|loads?|stress|strength|criteri|modes?|times?))"
    r"|verification (?:is |was )?(?:unsuccess|not success)\w*|results? (?:is |are )?(?:wrong|incorrect|not correct))\b"
    r"(?!(?:\s+\w+)?\s*[:=]\s*0\b)"
)


class TooLargeError(ProgramError):
    """A program did not end in its time, or used more memory than there is."""


@dataclass(frozen=True, slots=True)
class Built:
    """A program that runs on this machine.

    Attributes:
        image: the executable.
        name: what to call it in messages.
        seconds: what compiling it took; 0 if it was at hand.
        notes: what the compiler left out.
    """

    image: bytes = field(repr=False)
    name: str
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ran:
    """A run of a program that ended as it should.

    Attributes:
        output: what it printed on standard output.
        errors: what it printed on standard error.
        seconds: how long it ran, as :func:`stopwatch` has it.
        clock_s: the same on the clock alone, as the times of its kernels are.
        files: those it wrote, by the names it gave them, and where they lie.
        record: what the layer says of the record at its end, empty without one.
        code: with which it exited.
    """

    output: str
    errors: str
    seconds: float
    files: Mapping[str, Path]
    record: Mapping[str, Any]
    code: int = 0
    clock_s: float = 0.0

    @property
    def check(self) -> str:
        """What the program says of its own results: "passed", "failed", or "" if nothing."""
        said = {_said_in(line) for line in f"{self.output}\n{self.errors}".splitlines()}
        return next((check for check in ("failed", "passed") if check in said), "")

    @property
    def failure(self) -> str:
        """The first line that says that results are wrong; "" if none does."""
        lines = f"{self.output}\n{self.errors}".splitlines()
        return next((line.strip() for line in lines if _said_in(line) == "failed"), "")


def _said_in(line: str) -> str:
    """Return what a line says of a program's results: "passed", "failed", or "" if nothing."""
    passes = list(_PASSED.finditer(line))
    if any(found["denied"] for found in passes):
        return "failed"
    if any(not (found["none"] or found["denied"]) for found in _FAILED.finditer(line)):
        return "failed"
    return "passed" if any(not found["none"] for found in passes) else ""


# -- compiling -----------------------------------------------------------------------------------


def build(
    sources: Sequence[Path],
    files: Sequence[SourceFile],
    defines: Mapping[str, str] | None = None,
    includes: Sequence[Path] = (),
    *,
    gives_host_memory: bool = False,
    has_openmp: bool = False,
    optimisation: str = "-O3",
    cache: BinaryCache | None = None,
) -> Built:
    """Compile a program for this machine's processor.

    Args:
        sources: the files a compiler is given.
        files: all files of the program with their texts, which need not be those on disk.
        defines: macros of the command line (``-D``), by name; "" for one without a value. They replace the program's.
        includes: folders of headers (``-I``).
        gives_host_memory: whether kernels are given memory of the host, as those that were loops are: all of OpenMP
            besides them is left to one thread then.
        has_openmp: whether OpenMP's directives count, also where its header is not included; not with zig.
        optimisation: the compiler's level.
        cache: where executables are kept; by default the user's cache folder.

    Raises:
        ProgramError: it does not compile; names file and line.
        BackendUnavailableError: there is no C++ compiler.
    """
    cache = cache or BinaryCache()
    compiler = find_compiler()
    texts = {file.path: without_definitions(file.text, defines or ()) for file in files}
    kernels = facts_of(texts.values())
    portable = {path: rewritten(text, kernels) for path, text in texts.items()}
    device = [path for path in sources if path.suffix in (".cu", ".hip") or has_device_code(texts[path])]
    if gives_host_memory and any(map(has_device_code, texts.values())):  # functions in headers are of the device, too
        device = list(sources)
    is_hip = is_of_hip(texts.values())
    target = f"-march={host_architecture() or 'native'}"
    # A program that asks whether there is OpenMP runs without it, as it does where its Makefile does not ask for it.
    asks = any("_OPENMP" in text for text in texts.values())
    has_openmp |= any("omp.h" in text for text in texts.values()) and not (gives_host_memory or asks)
    notes = (_NO_OPENMP,) if has_openmp and compiler.family == "zig" else ()
    has_openmp &= not notes
    common = (
        *(optimisation, target, *_FLAGS),
        *(f"-D{name}={value}" if value else f"-D{name}" for name, value in (defines or {}).items()),
        *(("-DMPTUNE_SEVERAL_FILES",) if len(device) > 1 else ()),
        *(("-fopenmp",) if has_openmp else ()),
        *(ZIG_FLAGS if compiler.family == "zig" else ()),
    )
    layer = _layer()
    own = [path.read_text(encoding="utf-8") for path in sorted(layer.rglob("*")) if path.is_file()]
    own += [(prelude_folder() / name).read_text(encoding="utf-8") for name in _OF_PRELUDE]
    told = [*map(str, sources), *map(str, includes), *common, str(gives_host_memory)]
    key = cache.key(["program", compiler.version, *told, *(f"{p}\n{t}" for p, t in sorted(portable.items())), *own])
    name = sources[0].name
    image = cache.get(key)
    if image is not None:
        return Built(image, name, 0.0, notes)
    began = time.monotonic()
    with cache.workspace() as work:
        root, places = _mirrored(portable, work)
        folders = [*(f"-I{_moved(folder, root, work)}" for folder in includes), *(f"-I{folder}" for folder in includes)]
        # What is not among the program's files is still found beside those it is included from.
        beside = [f"-iquote{folder}" for folder in dict.fromkeys(path.parent for path in texts)]
        parts = ("recorder", "runtime", *(("host_memory",) if gives_host_memory else ()))
        objects = [_layer_object(part, cache, compiler.command, compiler.version, target, own, work) for part in parts]
        children = []
        for number, path in enumerate(sources):
            language, standard = _LANGUAGES.get(path.suffix, ("c++", "gnu++17"))
            made = work / f"{number}.o"
            flags = ["-x", language, f"-std={standard}", *common, *folders, *beside, f"-I{layer}"]
            flags += shared_intrinsics()
            if path in device:
                macro = (
                    ("-D__HIPCC__", "-D__HIP_PLATFORM_AMD__", "-DMPTUNE_WARP_SIZE=64")
                    if is_hip
                    else ("-D__CUDACC__", "-D__NVCC__")
                )
                # A program whose loops are kernels is no CUDA: it may have functions with the names of CUDA's.
                header = "mptune_layer/launch.hpp" if gives_host_memory else "cuda_runtime.h"
                flags += [*macro, "-include", str(layer / header)]
            children.append((path, made, [*compiler.command, *flags, "-c", str(places[path]), "-o", str(made)]))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            compilations = [pool.submit(_compiled, command, path.name, work) for path, _, command in children]
        for compilation in compilations:
            compilation.result()
        objects += [made for _, made, _ in children]
        program = work / "program"
        link = [*compiler.command, "-pie", *map(str, objects), "-o", str(program), "-lpthread", "-ldl", "-lm"]
        _compiled([*link, *(("-fopenmp",) if has_openmp else ())], name, work)
        image = program.read_bytes()
    cache.put(key, image)
    return Built(image, name, time.monotonic() - began, notes)


def build_for_gpu(
    nvcc: str,
    sources: Sequence[Path],
    files: Sequence[SourceFile],
    defines: Mapping[str, str] | None = None,
    includes: Sequence[Path] = (),
    *,
    flags: Sequence[str] = ("-arch=native",),
) -> Built:
    """Compile a program with CUDA's own headers and runtime, before which stands the recorder.

    Args:
        nvcc: the compiler.
        sources: the files it is given.
        files: all files of the program with their texts.
        defines: macros of the command line (``-D``), by name; "" for one without a value. They replace the program's.
        includes: folders of headers (``-I``).
        flags: for which GPUs, and what else nvcc is told.

    Raises:
        ProgramError: it does not compile; names file and line.
    """
    began = time.monotonic()
    texts = {file.path: without_definitions(file.text, defines or ()) for file in files}
    kernels = facts_of(texts.values())
    recorded = {path: with_recorded_launches(text, kernels) for path, text in texts.items()}
    layer = _layer() / "mptune_layer"
    recorder = layer / "recorder.cpp"
    common = [nvcc, *_NVCC_FLAGS, *flags, "-DMPTUNE_ON_GPU"]
    # Variables and functions of the device that another file has are found when the files are linked.
    device = [path for path in sources if path.suffix == ".cu" or has_device_code(texts[path])]
    common += ["-rdc=true"] if len(device) > 1 else []
    given = [f"-D{name}={value}" if value else f"-D{name}" for name, value in (defines or {}).items()]
    name = sources[0].name
    with tempfile.TemporaryDirectory(prefix="mptune-") as folder:
        work = Path(folder)
        root, places = _mirrored(recorded, work)
        folders = [*(f"-I{_moved(each, root, work)}" for each in includes), *(f"-I{each}" for each in includes)]
        folders += [f"-I{each}" for each in dict.fromkeys(path.parent for path in texts)]
        # The toolkit has no such header; alone in a folder, it takes in CUDA's own.
        samples = work / "samples"
        samples.mkdir()
        shutil.copy(_layer() / "helper_cuda.h", samples)
        folders.append(f"-I{samples}")
        openmp = ["-Xcompiler", "-fopenmp"] if any("omp.h" in text for text in texts.values()) else []
        parts = [(recorder, [*common, "-x", "c++", str(recorder)])]
        for path in sources:
            language = ["-x", "cu", "-include", str(layer / "gpu.hpp")] if path in device else []
            parts.append((path, [*common, *given, *folders, *openmp, *language, str(places[path])]))
        objects = [str(work / f"{number}.o") for number in range(len(parts))]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            compilations = [
                pool.submit(_compiled, [*command, "-c", "-o", made], path.name, work, _FOR_GPU)
                for (path, command), made in zip(parts, objects, strict=True)
            ]
        for compilation in compilations:
            compilation.result()
        names = dict.fromkeys(_RECORDED.findall(recorder.read_text(encoding="utf-8")))
        wrapped = [word for each in names for word in ("-Xlinker", f"--wrap={each}")]
        program = work / "program"
        _compiled([*common, *openmp, *objects, *wrapped, "-o", str(program), "-ldl"], name, work, _FOR_GPU)
        return Built(program.read_bytes(), name, time.monotonic() - began)


def is_of_hip(texts: Iterable[str]) -> bool:
    """Whether a program of these files is one of HIP."""
    texts = tuple(texts)
    return any("hip/hip_runtime" in text for text in texts) and not any(map(_CUDA.search, texts))


def _mirrored(texts: Mapping[Path, str], work: Path) -> tuple[Path, dict[Path, Path]]:
    """Write the files of a program to a folder, as they lie to each other; return the folder they share, and where."""
    root = Path(os.path.commonpath([path.parent for path in texts]))
    places = {}
    for path, text in texts.items():
        place = _moved(path, root, work)
        place.parent.mkdir(parents=True, exist_ok=True)
        line = f'#line 1 "{path}"\n'
        place.write_bytes((line + text).encode("utf-8", "surrogateescape"))
        places[path] = place
    return root, places


def _moved(path: Path, root: Path, work: Path) -> Path:
    absolute = path.resolve()
    return work / "program.d" / absolute.relative_to(root) if absolute.is_relative_to(root) else absolute


def _layer_object(
    part: str, cache: BinaryCache, command: Sequence[str], version: str, target: str, own: Sequence[str], work: Path
) -> Path:
    """Return the object of a part of what stands behind the headers, compiled once and for all."""
    key = cache.key(["layer", part, *command, version, target, *own])
    path = work / f"{part}.o"
    image = cache.get(key)
    if image is None:
        source = _layer() / "mptune_layer" / f"{part}.cpp"
        flags = ["-std=gnu++17", "-O2", target, "-fPIE", "-w", "-Wno-narrowing"]
        folders = [f"-I{_layer()}", f"-I{prelude_folder()}"]
        _compiled([*command, *flags, *folders, "-c", str(source), "-o", str(path)], source.name, work)
        cache.put(key, path.read_bytes())
    else:
        path.write_bytes(image)
    return path


def _compiled(command: Sequence[str], name: str, work: Path, target: str = _FOR_PROCESSOR) -> None:
    """Run a compiler.

    Args:
        command: its command line.
        name: of what it is given.
        work: a folder for what is temporary.
        target: what it compiles for, in words.

    Raises:
        ProgramError: it rejects what it is given, or does not end.
    """
    environment = {**os.environ, "TMPDIR": str(work), "LC_ALL": "C"}
    with Child(command, env=environment, cwd=str(work), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        try:
            output = child.communicate(timeout=_COMPILE_LIMIT_S)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            raise ProgramError(f"{name} was not compiled within {_COMPILE_LIMIT_S:g} s") from None
        if child.wait() == 0:
            return
    errors = [
        line.strip()
        for line in output.splitlines()
        if re.search(r"\berror:(?! ld returned)|undefined reference|multiple definition", line)
    ]
    shown = "\n  ".join(list(dict.fromkeys(errors or output.strip().splitlines()[-3:]))[:5])
    raise ProgramError(f"{name} does not compile for {target}:\n  {shown}")


def _layer() -> Path:
    return Path(__file__).resolve().parent / "files" / "layer"


# -- running -------------------------------------------------------------------------------------


def run(
    built: Built,
    arguments: Sequence[str] = (),
    *,
    writes: Path,
    record: Path | None = None,
    plan: Sequence[int] | None = None,
    own: Iterable[str] = (),
    keeps_left: bool = False,
    folder: Path | None = None,
    time_limit_s: float = 300.0,
    memory_limit_bytes: int | None = None,
    may_fail: bool = False,
    backwards: bool = False,
    is_clock_fast: bool = False,
) -> Ran:
    """Run a program to its end.

    Args:
        built: the program.
        arguments: of its command line.
        writes: an empty folder for the files it writes; what it opens there by its own names is found again.
        record: an empty folder for the record of what it does on the device (see :mod:`mptune.adopt.capture`).
        plan: the copies to the host whose data are recorded, too, by number; None for no data at all.
        own: the kernels that count as part of the host in the record, by name.
        keeps_left: whether what is left in memory of the device is recorded as copies to the host.
        folder: where it runs; by default where this process does.
        time_limit_s: how long it may run: on the clock, or on processors where these are busy with something else.
        memory_limit_bytes: how much memory it may use; by default what is left here, less a tenth.
        may_fail: whether it may exit with another code than 0, as a program does that finds its results wrong.
        backwards: whether the threads of its kernels run from the last to the first, where they wait for no other.
        is_clock_fast: whether its clocks run :data:`_CLOCK_SPEED` times as fast: a printed number that is the same in
            such a run and in another one is no time.

    Raises:
        TooLargeError: it ran out of time or memory.
        ProgramError: it crashed, or exited with another code than 0.
    """
    limit = memory_limit_bytes or available_memory_bytes() * 9 // 10
    with tempfile.TemporaryDirectory(prefix="mptune-") as name:
        work = Path(name)
        program = work / re.sub(r"\W+", "_", built.name)
        program.write_bytes(built.image)
        program.chmod(0o700)
        environment = {**os.environ, "MPTUNE_WRITES": str(writes.resolve()), "MPTUNE_MEMORY_BYTES": str(limit)}
        # What a driver keeps on disk would be taken for a file of the program.
        environment["CUDA_CACHE_DISABLE"] = "1"
        environment.pop("MPTUNE_CAPTURE_PLAN", None)
        environment["MPTUNE_BACKWARDS"] = str(int(backwards))
        environment["MPTUNE_CLOCK"] = str(_CLOCK_SPEED if is_clock_fast else 1)
        ended = work if record is None else record.resolve()
        environment |= {"MPTUNE_CAPTURE": str(ended), "MPTUNE_LEFT": str(int(keeps_left)), "MPTUNE_OWN": named(own)}
        if plan is not None:
            (work / "plan").write_text("\n".join(map(str, plan)))
            environment["MPTUNE_CAPTURE_PLAN"] = str(work / "plan")
        command = [str(program), *arguments]
        output, errors = work / "output", work / "errors"
        began, running = time.monotonic(), stopwatch()
        with output.open("wb") as out, errors.open("wb") as err:
            place = str(folder) if folder else None
            try:
                with Child(command, env=environment, cwd=place, stdout=out, stderr=err) as child:
                    code = _watched(child, output, built.name, time_limit_s, limit)
                clock_s = time.monotonic() - began
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                raise ProgramError(f"{built.name} cannot be run with its arguments: {why}") from None
        seconds = min(running(), clock_s)
        said = _said(ended / "ended.json")
        if code is None:
            raise TooLargeError(_where_time_went(built.name, arguments, time_limit_s, clock_s, seconds, said))
        # What it is called differs from run to run.
        printed, complaints = (
            path.read_text(encoding="utf-8", errors="replace").replace(str(program), f"./{program.name}")
            for path in (output, errors)
        )
    if code != 0 and not (may_fail and code > 0):
        where = (
            f" in {said['kernel']}, launched at {Path(said['file']).name}:{said['line']}" if "kernel" in said else ""
        )
        last = next((line.strip() for line in reversed((printed + "\n" + complaints).splitlines()) if line.strip()), "")
        told = f"; the last it printed: {textwrap.shorten(last, 200, placeholder=' ...')}" if last else ""
        with_arguments = f" with arguments {' '.join(arguments)}" if arguments else " without arguments"
        raise ProgramError(f"{built.name}, run{with_arguments}, {how_it_ended(code)}{where}{told}")
    files = {asked: Path(real) for asked, real in said.get("files", {}).items() if Path(real).is_file()}
    return Ran(printed, complaints, seconds, files, said, code, clock_s)


def named(kernels: Iterable[str]) -> str:
    """Return names of kernels as the recorder takes them."""
    return f",{','.join(kernels)},"


def stopwatch() -> Callable[[], float]:
    """Return what tells how many seconds this process, and its children that have ended, have worked since now.

    These are seconds on the clock, or on the processors where they are fewer: so a machine that is busy with something
    else, which makes all take longer, decides nothing.
    """
    clock, processors = time.monotonic(), sum(os.times()[:4])
    return lambda: min(time.monotonic() - clock, sum(os.times()[:4]) - processors)


def _where_time_went(
    name: str, arguments: Sequence[str], limit_s: float, seconds: float, worked_s: float, said: Mapping[str, Any]
) -> str:
    """Say of a program that was ended which of its kernels took how long."""
    given = f" with arguments {' '.join(arguments)}" if arguments else ""
    text = f"{name}, run{given}, did not end within {limit_s:g} s and was ended"
    kernels = sorted(said.get("kernels", ()), key=lambda kernel: -kernel["seconds"])
    spent = [f"{k['launches']:,} launches of {k['kernel']} took {k['seconds']:.1f} s" for k in kernels]
    if said.get("running_s", 0.0) >= _SHORTEST_SAID_S:
        place = f"{Path(said['file']).name}:{said['line']}"
        spent.insert(0, f"{said['kernel']}, launched at {place}, had been running for {said['running_s']:.1f} s")
    on_host = seconds - said.get("running_s", 0.0) - sum(kernel["seconds"] for kernel in kernels)
    if on_host > seconds / 10:
        spent.append(f"what it does on the host took {on_host:.1f} s")
    spent = spent[:_MOST_KERNELS]
    if worked_s < seconds / 2:
        spent.append(f"of all this it was on a processor for {worked_s:.1f} s: the machine is busy, or it waits")
    return f"{text}: {'; '.join(spent)}"


def _watched(child: Child, output: Path, name: str, time_limit_s: float, memory_limit_bytes: int) -> int | None:
    """Wait for the end of a program, and return how it ended; None if it was told to after its time.

    Raises:
        TooLargeError: it uses more memory.
        ProgramError: it prints too much.
    """
    began = time.monotonic()
    page = os.sysconf("SC_PAGE_SIZE")
    pause = 0.001
    while (code := child.poll()) is None:
        try:
            used = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1]) * page
        except (OSError, IndexError, ValueError):
            used = 0
        if used > memory_limit_bytes:
            raise TooLargeError(
                f"{name} used more than {in_words(memory_limit_bytes)} of memory and was ended; "
                "give it a smaller problem"
            )
        clock_s = time.monotonic() - began
        if clock_s > time_limit_s and (clock_s > _MOST_WAITING * time_limit_s or not worked_s(child) < time_limit_s):
            child.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_LEAVING_S)
            return None
        if output.stat().st_size > _OUTPUT_LIMIT_BYTES:
            raise ProgramError(f"{name} printed more than {in_words(_OUTPUT_LIMIT_BYTES)} and was ended")
        time.sleep(pause)
        pause = min(2 * pause, _WATCHING_S)
    return code


def worked_s(child: Child) -> float:
    """Return how long a process has kept processors busy; NaN where that is not known."""
    try:
        return time.clock_gettime(~child.pid << 3 | _PROCESS_CLOCK)
    except OSError:
        return math.nan


def _said(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
