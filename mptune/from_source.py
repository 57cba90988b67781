"""A kernel as text and its arrays, tuned in one call.

A small CUDA program that reads the arrays, launches the kernel once and copies the results back is adopted as any other
program is (:mod:`mptune.adopt`): so types are found in the text. What is tuned is the kernel alone, by a definition
whose inputs are the arrays.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.findings import Findings
from mptune.adopt.number_types import NUMBERS, PRECISIONS
from mptune.adopt.parsing import ProgramError
from mptune.adopt.reading import Kernel, Parameter, read
from mptune.adopt.writing import imports_text, kernel_text, metric_text, name_of, parameters_text
from mptune.emit import emit, winner_of
from mptune.errors import KernelError, MptuneError, UnknownNameError
from mptune.kernel.tunable import Constraint
from mptune.progress import tune as tune_kernel
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.tuned import TunedKernel
from mptune.tuning import TuneSettings

_AXES: Final = "xyz"
_BLOCK_SIZES: Final = tuple(f"block_size_{axis}" for axis in _AXES)
#: Threads of a block at most.
_LARGEST_BLOCK: Final = 1024
#: Threads of a block where neither ``block`` nor ``tune`` says how many.
_THREADS: Final = 256
#: In the folder of a definition: the arrays by name.
ARRAYS: Final = "arrays.npz"

Extent = int | str | Sequence[int | str]


def tune_source(
    source: str | Path,
    kernel: str,
    problem_size: Extent,
    arguments: Sequence[Any],
    *,
    tune: Mapping[str, Sequence[int]] | None = None,
    grid: Extent | None = None,
    block: Extent | None = None,
    shared: int | str = 0,
    grid_div_x: Sequence[str | int] | None = None,
    grid_div_y: Sequence[str | int] | None = None,
    grid_div_z: Sequence[str | int] | None = None,
    types: str | None = "auto",
    defines: Mapping[str, Any] | None = None,
    includes: Iterable[str | Path] = (),
    vary: float | None = None,
    metric: str | None = None,
    restrictions: Sequence[Constraint] = (),
    folder: str | Path | None = None,
    output: str | Path | None = None,
    **settings: Any,
) -> SourceRun:
    """Tune a CUDA kernel, given as it stands with its arguments, and return the run.

    The types of buffers and variables are found in the text and tuned. The outputs are the arrays that the kernel
    changes; the reference is the kernel in the types as written.

    Args:
        source: the text of the kernel, or its file.
        kernel: the name of the kernel, with template arguments if it has some (``"advect<double>"``).
        problem_size: threads along each axis: a number, several, or expressions of macros.
        arguments: of the kernel in their order: arrays for pointers, numbers for numbers. Arrays are not changed.
        tune: values of macros in the text, by name. ``block_size_x``, ``_y`` and ``_z`` are also the block's extents.
        grid: blocks along each axis; by default the problem size over ``grid_div_x`` and so on, rounded up.
        block: threads of a block along each axis, by default ``block_size_x`` and so on, or 256.
        shared: bytes of dynamic shared memory.
        grid_div_x: factors that divide the problem size along x; by default the extent of a block.
        grid_div_y: the same along y.
        grid_div_z: the same along z.
        types: "auto", or None: the types stay as written.
        defines: further macros.
        includes: folders of headers.
        vary: largest relative change of the arrays' numbers for fresh inputs; by default up to 0.1.
        metric: the error metric of the outputs.
        restrictions: constraints over macros that configurations meet: expressions, or functions of macros by name.
        folder: where the program and its definition are written, by default ``adopted/KERNEL``.
        output: the run file; with None no file is written.
        settings: further fields of :class:`~mptune.TuneSettings`, such as ``max_error`` and ``budget``.

    Raises:
        MptuneError: an argument is wrong; the message names it by its parameter in the signature.
    """
    if types not in ("auto", None):
        raise UnknownNameError("types=", str(types), ["auto", "None"])
    TuneSettings().changed(settings)  # wrong settings are said before minutes are spent
    macros = {name: _values(name, values) for name, values in (tune or {}).items()}
    given = {name: str(value) for name, value in (defines or {}).items()}
    given |= {name: str(values[0]) for name, values in macros.items() if len(values) == 1}
    macros = {name: values for name, values in macros.items() if len(values) > 1}
    label = name_of(kernel)
    folder = Path(folder) if folder is not None else Path("adopted") / label
    _check_folder(folder)
    text, file_name = _text_of(source, label)
    for name in macros:
        if not re.search(rf"\b{name}\b", text) and name not in _BLOCK_SIZES:
            words = dict.fromkeys(re.findall(r"\b[A-Za-z_]\w*\b", text))
            raise UnknownNameError("macro of tune= in the source:", name, words)
    launch = _launch(problem_size, grid, block, shared, (grid_div_x, grid_div_y, grid_div_z), given, macros)
    with tempfile.TemporaryDirectory(prefix="mptune-") as scratch:
        own = Path(scratch) / file_name
        own.write_text(text, encoding="utf-8")
        first = {name: str(values[0]) for name, values in macros.items()}
        found = _kernel(own, kernel, {**given, **first}, includes, len(arguments))
        passed = _passed(kernel, found, arguments)
        for each in passed:
            each.write(own.parent)
        main = own.with_name("mptune_main.cu")
        main.write_text(_program(own, kernel, passed, launch), encoding="utf-8")
        settings_of_program = AdoptSettings(
            files=(main,),
            arguments=(),  # for None, numbers in the text may be made smaller
            defines=given,
            macros=macros,
            includes=tuple(map(Path, includes)),
            metric=metric,
            vary=vary,
            backend="host",
        )
        try:
            adopted = adopt(settings_of_program, own.parent / label)[0].found
        except ProgramError as error:
            raise KernelError(_told(kernel, str(error), launch, passed)) from error
        folder.mkdir(parents=True, exist_ok=True)
        flat: dict[str, Any] = {each.name: each.values.reshape(-1) if each.is_array else each.values for each in passed}
        np.savez(folder / ARRAYS, allow_pickle=False, **flat)
        shutil.copyfile(own, folder / file_name)
        (only,) = adopted.kernels.values()
        (folder / f"{label}.cu.j2").write_text(only.template.text, encoding="utf-8")
        definition = folder / f"{label}.py"
        share = adopted.draws.by if vary is None else vary
        definition.write_text(_definition(label, adopted, passed, launch, macros, metric, share), encoding="utf-8")
    if types is None:
        settings["restrict"] = {**_as_written(adopted), **settings.get("restrict", {})}
    tuned: Any = definition
    if restrictions:
        tuned = load_kernel(definition)
        tuned = tuned.changed(constraints=[*tuned.constraints, *restrictions])
    return SourceRun(tune_kernel(tuned, output=output, **settings), definition, passed)


class SourceRun(Run):
    """A run whose kernel was given as text.

    Attributes:
        definition: the definition file that was written of it.
    """

    def __init__(self, run: Run, definition: Path, passed: Sequence[_Passed]) -> None:
        super().__init__(run.info, run.trials, run.state, run.sources, run.name)
        self.definition = definition
        self._passed = {each.name: each for each in passed}

    @functools.cached_property
    def _kernel(self) -> TunedKernel:
        return TunedKernel(self, self.definition)

    def tuned(self, *arguments: Any, **named: Any) -> Any:
        """Run the kernel in its best configuration, and return the arrays that it changes.

        Args:
            arguments: of the kernel in their order: arrays of any floating-point type, of the sizes that were tuned.
            named: the others, by the names of its parameters.

        Returns:
            The array; of several a dict by name.

        Raises:
            KernelError: an argument is missing, or has another size than the one that was tuned.
        """
        known = [*self._passed]
        if len(arguments) > len(known):
            raise KernelError(f"{self.kernel} takes {len(known)} arguments ({', '.join(known)}), not {len(arguments)}")
        given = dict(zip(known, arguments, strict=False)) | named
        for name in given:
            if name not in self._passed:
                raise UnknownNameError(f"argument of {self.kernel}:", name, known)
        for name, each in self._passed.items():
            if name not in given:
                raise KernelError(f"{self.kernel}: argument {name} is missing")
            if each.is_array and np.size(given[name]) != each.values.size:
                raise KernelError(
                    f"argument {name} of {self.kernel} has {np.size(given[name])} numbers, and was tuned with "
                    f"{each.values.size}: call tune_source with arrays of that size"
                )
        used = [argument.name for argument in self._kernel.kernel.arguments]
        flat: dict[str, Any] = {name: given[name] for name in used}
        flat = {name: np.ravel(value) if self._passed[name].is_array else value for name, value in flat.items()}
        found = self._kernel(**flat)
        shapes = {name: np.shape(given[name]) for name in given}
        if isinstance(found, dict):
            return {name: array.reshape(shapes[name]) for name, array in found.items()}
        (output,) = self._kernel.kernel.outputs
        return found.reshape(shapes[output.name])

    def emit(self, folder: str | Path) -> tuple[str, ...]:
        """Write the winner as source, header, programs and README that need no mptune, and return the files' names.

        Raises:
            MptuneError: no trial is feasible.
        """
        winner = winner_of(self, kernel=self.definition)
        if winner is None:
            raise MptuneError(f"the run of {self.kernel} has no feasible trial to emit")
        return emit(winner, folder).files


class ArrayInputs:
    """The inputs of a kernel: arrays of a file, changed by up to a share for further draws.

    Args:
        file: with the arrays, by the names of arguments (``.npz``).
        share: largest relative change of a floating-point number.
        names: the arrays that are changed; empty for all.
    """

    def __init__(self, file: Path, share: float, names: Sequence[str] = ()) -> None:
        with np.load(file, allow_pickle=False) as found:
            self._arrays = {name: found[name] for name in found.files}
        self._share, self._names = share, names or found.files

    def __call__(self, rng: np.random.Generator, _: Mapping[str, int]) -> dict[str, NDArray[Any]]:
        """Return the arrays; the first draw has them unchanged."""
        is_first = not cast(Any, rng.bit_generator.seed_seq).spawn_key
        changed = () if is_first else self._names
        return {name: self._changed(rng, each) if name in changed else each for name, each in self._arrays.items()}

    def _changed(self, rng: np.random.Generator, array: NDArray[Any]) -> NDArray[Any]:
        if array.ndim == 0 or array.dtype.kind != "f":
            return array
        return array * (1 + self._share * (2 * rng.random(array.shape) - 1))


@dataclass(frozen=True, slots=True)
class _Launch:
    """Blocks, threads of a block and bytes of shared memory, as expressions."""

    grid: tuple[str, ...]
    block: tuple[str, ...]
    shared: str


def _launch(
    problem_size: Extent,
    grid: Extent | None,
    block: Extent | None,
    shared: int | str,
    divisors: Sequence[Sequence[str | int] | None],
    given: Mapping[str, str],
    macros: Iterable[str],
) -> _Launch:
    """Return how the kernel is launched; macros of one value are written as that."""

    def shown(what: str, extents: Extent) -> list[str]:
        return [re.sub(r"\b[A-Za-z_]\w*\b", lambda m: given.get(m[0], m[0]), each) for each in _extents(what, extents)]

    own = [name for name in _BLOCK_SIZES if name in (*given, *macros)]
    threads = shown("block", block if block is not None else own or [_THREADS])
    if grid is not None:
        blocks = shown("grid", grid)
    else:
        blocks = []
        for axis, size in enumerate(shown("problem_size", problem_size)):
            factors = threads[axis : axis + 1]
            if (divisor := divisors[axis]) is not None:
                factors = shown(f"grid_div_{_AXES[axis]}", divisor) if divisor else []
            product = " * ".join(each if re.fullmatch(r"\w+", each) else f"({each})" for each in factors)
            blocks.append(f"ceildiv({size}, {product})" if product else size)
    return _Launch(tuple(blocks), tuple(threads), *shown("shared", shared))


def _definition(
    name: str,
    found: Findings,
    passed: Sequence[_Passed],
    launch: _Launch,
    macros: Mapping[str, Sequence[int]],
    metric: str | None,
    share: float,
) -> str:
    """Return the text of the definition of a kernel whose inputs are arrays."""
    (each,) = found.kernels.values()
    arrays = {one.name: one for one in passed if one.is_array}
    written = {name for name, one in arrays.items() if one.is_written}
    sizes: dict[str, int] = {}
    if each.launched.is_free:
        numbers = each.launched.geometry(each.launched.launches[0])
        sizes = {known: numbers[key] for known, key in each.geometry.extents.items()}
    else:
        geometry = dataclasses.replace(
            each.geometry,
            grid=launch.grid,
            block=launch.block,
            shared_bytes=launch.shared if launch.shared != "0" else "",
        )
        each = dataclasses.replace(each, geometry=geometry)
    roles = {one.name: "InOut" for one in each.arguments if one.name in written}
    shapes = {name: (str(one.values.size),) for name, one in arrays.items()}
    declared = tuple(
        dataclasses.replace(one, role=roles.get(one.name, one.role), shape=shapes.get(one.name, one.shape))
        for one in each.arguments
    )
    shown = metric_text(found, metric)
    names = f", {json.dumps(found.draws.names)}" if found.draws.names else ""
    more = [
        f'sizes={{"default": {json.dumps(sizes)}}},',
        f'inputs=ArrayInputs(HERE / "{ARRAYS}", {share:g}{names}),',
        *([f"metric={shown},"] if shown else []),
        *(["instrumented=True,"] if found.parameters else []),
        f'description="{name}, from its text and arrays",',
    ]
    each = dataclasses.replace(each, arguments=declared)
    found = dataclasses.replace(found, kernels={name: each})
    parts = [
        f'"""{name}, from its text and arrays."""',
        f"{imports_text(found, macros)}\nfrom mptune.from_source import ArrayInputs",
        "HERE = Path(__file__).parent",
        *parameters_text(found, macros),
        kernel_text(name, each, more),
    ]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def _check_folder(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()) and not (folder / ARRAYS).is_file():
        raise KernelError(f"{folder} is there already, and not written by tune_source; choose another folder=")


@dataclass(frozen=True, slots=True)
class _Passed:
    """An argument of the kernel.

    Attributes:
        name: of the parameter.
        type: of an element in C++.
        values: the array, or the number as an array without axes.
        is_written: whether the kernel may change it.
    """

    name: str
    type: str
    values: NDArray[Any]
    is_written: bool

    @property
    def is_array(self) -> bool:
        return self.values.ndim > 0

    def write(self, folder: Path) -> None:
        if self.is_array:
            (folder / f"{self.name}.bin").write_bytes(self.values.tobytes())


def _text_of(source: str | Path, label: str) -> tuple[str, str]:
    """Return the text of a kernel and a name for its file.

    Raises:
        KernelError: the file cannot be read.
    """
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return source, f"{label}.cu"
    try:
        return Path(source).read_text(encoding="utf-8"), Path(source).name
    except (OSError, UnicodeDecodeError) as error:
        raise KernelError(f"source {source}: {error}; expected CUDA C++ or the path of a file") from None


def _kernel(
    file: Path, name: str, defines: Mapping[str, str], includes: Iterable[str | Path], arguments: int
) -> Kernel:
    """Return the kernel of a name as it is declared.

    Raises:
        UnknownNameError: the source has no such kernel.
    """
    text = file.read_text(encoding="utf-8")
    probe = file.with_name(f"probe_{file.name}")
    bare = name.partition("<")[0].strip()
    if "<" in name:  # an instantiation of a template is read where it is launched
        values = ", ".join(["mptune_any{}"] * arguments)
        text = (
            f'#include "{file.name}"\nstruct mptune_any {{ template <class T> operator T() const; }};\n'
            f"void mptune_probe() {{ {name}<<<1, 1>>>({values}); }}\n"
        )
    probe.write_text(text, encoding="utf-8")
    try:
        program = read([probe], defines, tuple(map(Path, includes)))
    finally:
        probe.unlink()
    for kernel in program.kernels:
        if kernel.name.rpartition("::")[2] == bare:
            return kernel
    if program.refusals:
        raise ProgramError("\n".join(dict.fromkeys(map(str, program.refusals))))
    raise UnknownNameError("kernel", name, [kernel.name for kernel in program.kernels])


def _passed(kernel: str, found: Kernel, arguments: Sequence[Any]) -> list[_Passed]:
    """Return the arguments with the kernel's parameters.

    Raises:
        KernelError: there are too few or too many, or one does not fit its parameter.
    """
    if len(arguments) != len(found.parameters):
        names = ", ".join(each.name for each in found.parameters)
        raise KernelError(f"{kernel} takes {len(found.parameters)} arguments ({names}), not {len(arguments)}")
    return [_fitted(kernel, each, value) for each, value in zip(found.parameters, arguments, strict=True)]


def _fitted(kernel: str, parameter: Parameter, value: Any) -> _Passed:
    what = f"argument {parameter.name} of {kernel} ({parameter.type})"
    values = np.asarray(value)
    if parameter.is_pointer:
        if values.ndim == 0:
            raise KernelError(f"{what}: expected an array, not {value!r}")
        memory = parameter.memory
        scalar = memory.numbers[0] if memory is not None else parameter.element
        expected = NUMBERS[scalar].numpy if scalar in NUMBERS else ""
        if expected and values.dtype != expected:
            raise KernelError(f"{what}: expected an array of {expected}, not of {values.dtype}")
        if not values.flags.c_contiguous:
            raise KernelError(f"{what}: the array is not contiguous; pass numpy.ascontiguousarray(...)")
        if memory is not None and values.nbytes % memory.bytes:
            raise KernelError(f"{what}: expected a multiple of {memory.bytes} bytes, not {values.nbytes}")
        return _Passed(parameter.name, parameter.element, values, parameter.role in ("out", "inout"))
    if values.ndim > 0:
        raise KernelError(f"{what}: expected a number, not an array of {values.dtype}")
    if values.dtype.kind not in "fiub":
        raise KernelError(f"{what}: expected a number, not {value!r}")
    expected = NUMBERS[parameter.element].numpy if parameter.element in NUMBERS else ""
    if expected and np.dtype(expected).kind in "iu" and values.dtype.kind == "f":
        raise KernelError(f"{what}: expected a whole number, not {value!r}")
    return _Passed(parameter.name, parameter.element, values, is_written=False)


def _extents(what: str, given: Extent) -> list[str]:
    """Return one to three extents as expressions.

    Raises:
        KernelError: there are others.
    """
    found: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    if not 1 <= len(found) <= 3:
        raise KernelError(f"{what}: expected one to three extents, not {found!r}")
    for each in found:
        is_whole = isinstance(each, int | np.integer) and not isinstance(each, bool)
        if not isinstance(each, str) and (not is_whole or each < (0 if what == "shared" else 1)):
            raise KernelError(f"{what}: expected whole numbers of 1 or more, or expressions, not {each!r}")
    return list(map(str, found))


def _values(name: str, values: Any) -> tuple[int, ...]:
    """Return the values of a macro, in ascending order."""
    if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str) or len(values) == 0:
        raise KernelError(f"tune[{name!r}]: expected a list of values, not {values!r}")
    for value in values:
        is_whole = isinstance(value, int | np.integer)
        if not is_whole or (name in _BLOCK_SIZES and not 1 <= value <= _LARGEST_BLOCK):
            what = f"1 to {_LARGEST_BLOCK} threads" if name in _BLOCK_SIZES else "whole numbers"
            raise KernelError(f"tune[{name!r}]: expected {what}, not {value!r}")
    return tuple(sorted({int(value) for value in values}))


def _told(kernel: str, message: str, launch: _Launch, passed: Sequence[_Passed]) -> str:
    """Return why a kernel cannot be tuned, in words of the call."""
    shape = f"grid ({', '.join(launch.grid)}), block ({', '.join(launch.block)})"
    message = message.replace("mptune_main.cu", "the call").replace("mptune_main", kernel) or "it was not launched"
    hint = ""
    if "SIGSEGV" in message or "off by" in message:
        counts = ", ".join(f"{each.name} {each.values.size}" for each in passed if each.is_array)
        hint = f"\ndoes it read or write beyond its arrays ({counts}), or depend on the order of threads?"
    return f"{kernel} cannot be tuned with {shape}: {message}{hint}"


def _number(each: _Passed) -> str:
    value = each.values.item()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) or np.isfinite(value):
        return repr(value)
    return "NAN" if np.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"


def _program(file: Path, kernel: str, passed: Sequence[_Passed], launch: _Launch) -> str:
    """Return the text of a program that launches the kernel once."""
    arrays = [each for each in passed if each.is_array]
    lines = [
        "// Written by mptune.tune_source: reads the arrays, launches the kernel once, and copies the results back.",
        "#include <cmath>",
        "#include <cstdio>",
        "#include <cstdlib>",
        "#include <string>",
        "#include <vector>",
        "",
        "#include <cuda_runtime.h>",
        "",
        f'#include "{file.name}"',
        "",
        f"static const std::string folder = {json.dumps(str(file.parent.resolve()))};",
        "",
        "static int ceildiv(long long size, long long by) { return (size + by - 1) / by; }",
        "",
        "static void read_array(const char *name, void *to, size_t bytes) {",
        '    FILE *file = fopen((folder + "/" + name).c_str(), "rb");',
        "    if (!file || fread(to, 1, bytes, file) != bytes) {",
        '        fprintf(stderr, "cannot read %s/%s\\n", folder.c_str(), name);',
        "        exit(2);",
        "    }",
        "    fclose(file);",
        "}",
        "",
        "int main(int argc, char **argv) {",
    ]
    for each in arrays:
        count = f"{each.values.nbytes} / sizeof({each.type})"
        lines += [
            f"    std::vector<{each.type}> host_{each.name}({count});",
            f'    read_array("{each.name}.bin", host_{each.name}.data(), {each.values.nbytes});',
            f"    {each.type} *{each.name};",
            f"    cudaMalloc(&{each.name}, {each.values.nbytes});",
            f"    cudaMemcpy({each.name}, host_{each.name}.data(), {each.values.nbytes}, cudaMemcpyHostToDevice);",
        ]
    values = [each.name if each.is_array else f"({each.type}){_number(each)}" for each in passed]
    extents = [f"dim3({', '.join(each)})".replace("//", "/") for each in (launch.grid, launch.block)]
    lines.append(f"    {kernel}<<<{', '.join([*extents, launch.shared])}>>>({', '.join(values)});")
    for each in arrays:
        if each.is_written:
            lines.append(
                f"    cudaMemcpy(host_{each.name}.data(), {each.name}, {each.values.nbytes}, cudaMemcpyDeviceToHost);"
            )
    lines += [f"    cudaFree({each.name});" for each in arrays]
    return "\n".join([*lines, "}", ""])


def _as_written(found: Findings) -> dict[str, list[str]]:
    """Return the type of each parameter in the text."""
    return {each.name: [PRECISIONS[each.classes[0].scalar]] for each in found.parameters}
