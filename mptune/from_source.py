"""A kernel as text and its arrays, tuned in one call.

A small CUDA program that reads the arrays, launches the kernel once and copies the results back is adopted as any other
program is (:mod:`mptune.adopt`): so types are found in the text. What is tuned is the kernel alone, by a definition
whose inputs are the arrays.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.findings import Findings
from mptune.adopt.into import with_types
from mptune.adopt.number_types import NUMBERS, PRECISIONS
from mptune.adopt.parsing import ProgramError
from mptune.adopt.reading import Kernel, Parameter, read
from mptune.adopt.rewriting import values_in, with_values
from mptune.adopt.template import fields_of
from mptune.adopt.writing import imports_text, kernel_text, metric_text, name_of, parameters_text
from mptune.emit import emit, winner_of
from mptune.errors import KernelError, MptuneError, UnknownNameError
from mptune.kernel import Kernel as Definition
from mptune.kernel import Varied, is_first_draw
from mptune.kernel.tunable import Constraint
from mptune.precision import precision
from mptune.progress import tune as tune_kernel
from mptune.run import Run
from mptune.source.dialect import KERNEL_FLOAT, comments_blanked, kernel_parameters
from mptune.source.loading import load_kernel
from mptune.tuned import TunedKernel
from mptune.tuning import TuneSettings

_AXES: Final = "xyz"
_BLOCK_SIZES: Final = tuple(f"block_size_{axis}" for axis in _AXES)
#: Threads of a block at most.
_LARGEST_BLOCK: Final = 1024
#: Threads of a block where neither ``block`` nor ``tune`` says how many.
_THREADS: Final = 256
#: Values of each block size, and elements of an array, of a kernel with made-up inputs.
_BLOCKS: Final = ([32, 64, 128], [1, 2, 4], [1, 2])
_ELEMENTS: Final = 65_536
#: In the folder of a definition: the arrays by name.
ARRAYS: Final = "arrays.npz"

#: Configurations of ``tune=`` for which functions of a launch are called, at most.
_MOST_CONFIGURATIONS: Final = 10_000

#: A number or an expression for each axis, or a function of a dict with the values of all macros.
Extent = int | str | Sequence[int | str] | Callable[[Mapping[str, Any]], Any]


def tune_source(
    source: Any,
    kernel: str | None,
    problem_size: Extent,
    arguments: Sequence[Any],
    *,
    tune: Mapping[str, Sequence[int]] | None = None,
    grid: Extent | None = None,
    block: Extent | None = None,
    shared: Extent = 0,
    grid_div_x: Extent | None = None,
    grid_div_y: Extent | None = None,
    grid_div_z: Extent | None = None,
    types: str | Mapping[str, Any] | None = "auto",
    defines: Mapping[str, Any] | None = None,
    includes: Iterable[str | Path] = (),
    answer: Sequence[Any] | None = None,
    reference: Callable[..., Any] | None = None,
    inputs: Callable[..., Any] | None = None,
    vary: float | None = None,
    metric: Any = None,
    restrictions: Sequence[Constraint] = (),
    folder: str | Path | None = None,
    output: str | Path | None = None,
    **settings: Any,
) -> SourceRun:
    """Tune a CUDA or HIP kernel, given as it stands with its arguments, and return the run.

    The types of buffers and variables are found in the text and tuned. The outputs are the arrays that the kernel
    changes; the reference is the kernel in the types as written.

    Args:
        source: the text of the kernel, its file, or a ``cupy.RawKernel`` or ``cupy.RawModule``.
        kernel: the name of the kernel, with template arguments if it has some (``"advect<double>"``); None for that of
            a ``RawKernel``.
        problem_size: threads along each axis: a number, several, expressions of macros, or a function that is given the
            values of all macros as a dict and returns numbers.
        arguments: of the kernel in their order: arrays for pointers, numbers for numbers, structured scalars of NumPy
            for structs. Arrays are not changed.
        tune: values of macros in the text, by name. ``block_size_x``, ``_y`` and ``_z`` are also the block's extents.
        grid: blocks along each axis; by default the problem size over ``grid_div_x`` and so on, rounded up.
        block: threads of a block along each axis, by default ``block_size_x`` and so on, or 256.
        shared: bytes of dynamic shared memory.
        grid_div_x: factors that divide the problem size along x; by default the extent of a block.
        grid_div_y: the same along y.
        grid_div_z: the same along z.
        types: "auto"; None: the types stay as written; or names of parameters and variables, each with a type or
            several (``{"u": ["double", "float"]}``), where all others stay as written.
        defines: further macros.
        includes: folders of headers.
        answer: the right values of the arguments, None for arguments that are not compared. Errors are then those of
            the arrays as given, and no fresh inputs are tried.
        reference: a function of the arguments that returns the right outputs: the array, or several in order or by
            name.
        inputs: a function of a random generator that returns fresh arguments: all in order, or some by name.
        vary: largest relative change of the arrays' numbers for fresh inputs; by default up to 0.1.
        metric: the error metric of the outputs: a name, or a function of an output and its reference.
        restrictions: constraints over macros that configurations meet: expressions, or functions of macros by name.
        folder: where the program and its definition are written, by default ``adopted/KERNEL``.
        output: the run file; with None no file is written.
        settings: further fields of :class:`~mptune.TuneSettings`, such as ``max_error`` and ``budget``.

    Raises:
        MptuneError: an argument is wrong; the message names it by its parameter in the signature.
    """
    if isinstance(types, str) and types != "auto":
        raise UnknownNameError("types=", types, ["auto", "None", "a dict of names with types"])
    if answer is not None and (reference is not None or inputs is not None):
        raise KernelError("answer= is of the arguments as given: leave out reference= and inputs=")
    if answer is not None and len(answer) != len(arguments):
        raise KernelError(f"answer: expected {len(arguments)} values, one for each argument, not {len(answer)}")
    TuneSettings().changed(settings)  # wrong settings are said before minutes are spent
    launched = _Launched(problem_size, grid, block, shared, (grid_div_x, grid_div_y, grid_div_z))
    written = metric if isinstance(metric, str) else None
    program, adopted, file = _write(
        source, kernel, launched, arguments, tune or {}, defines or {}, includes, vary, written, folder
    )
    definition = _changed(
        load_kernel(file), program.passed, answer, reference, inputs, metric if callable(metric) else None
    )
    definition = definition.changed(constraints=[*definition.constraints, *restrictions])
    if answer is not None:
        settings = {"inputs": 1, "verify": 0, **settings}
    if types != "auto":
        settings["restrict"] = {**_restricted(adopted, types), **settings.get("restrict", {})}
    return SourceRun(tune_kernel(definition, output=output, **settings), definition, program, adopted)


@dataclass(frozen=True, slots=True)
class _Launched:
    """What the caller says of a launch; see :func:`tune_source`."""

    problem_size: Extent
    grid: Extent | None = None
    block: Extent | None = None
    shared: Extent = 0
    divisors: Sequence[Extent | None] = (None, None, None)


def _write(
    source: Any,
    kernel: str | None,
    launched: _Launched,
    arguments: Sequence[Any] | Callable[[Kernel], Sequence[Any]],
    tune: Mapping[str, Sequence[int]],
    defines: Mapping[str, Any],
    includes: Iterable[str | Path],
    vary: float | None,
    metric: str | None,
    folder: str | Path | None,
    *,
    has_own_inputs: bool = False,
) -> tuple[_Program, Findings, Path]:
    """Adopt a kernel and write its definition to a folder.

    Args:
        source: as in :func:`tune_source`, like all others.
        kernel: the same.
        launched: how it is launched.
        arguments: the same, or a function of the kernel's declaration that returns them.
        tune: the same.
        defines: the same.
        includes: the same.
        vary: the same.
        metric: the same.
        folder: the same.
        has_own_inputs: whether the definition has a function of inputs to edit in place of the arrays.

    Returns:
        The program that launches the kernel, what was found in it, and the definition's file.
    """
    given = {name: str(value) for name, value in defines.items()}
    text, file_name, kernel, given, folders = _text_of(source, kernel, given, includes)
    if KERNEL_FLOAT.search(text):
        raise KernelError(
            f"{kernel} has the types of Kernel Float, which macros name: give these as TunablePrecision to "
            "mptune.kernel_tuner.tune_kernel"
        )
    # A macro that is a type is found, and changed, in the text alone.
    named = [name for name, value in given.items() if value in NUMBERS and NUMBERS[value].numpy.startswith("float")]
    text = "".join(f"#define {name} {given.pop(name)}\n" for name in named) + text
    values = {name: _values(name, each) for name, each in tune.items()}
    given |= {name: str(each[0]) for name, each in values.items() if len(each) == 1}
    macros = {name: each for name, each in values.items() if len(each) > 1}
    label = name_of(kernel)
    folder = Path(folder) if folder is not None else Path("adopted") / label
    _check_folder(folder)
    for name in macros:
        if not re.search(rf"\b{name}\b", text) and name not in _BLOCK_SIZES:
            words = dict.fromkeys(re.findall(r"\b[A-Za-z_]\w*\b", text))
            raise UnknownNameError("macro of tune= in the source:", name, words)
    launch = _launch(launched, given, macros)
    with tempfile.TemporaryDirectory(prefix="mptune-") as scratch:
        own = Path(scratch) / file_name
        own.write_text(text, encoding="utf-8")
        first = {name: str(each[0]) for name, each in macros.items()}
        found = _kernel(own, kernel, {**given, **first}, folders)
        passed = _passed(kernel, found, arguments(found) if callable(arguments) else arguments)
        if changed := [each.name for each in passed if each.is_written and each.values.dtype.names]:
            raise KernelError(
                f"{changed[0]} is an array of structs that the kernel changes: give it an array for each field, or the "
                "whole program to mptune adopt"
            )
        program = _Program(text, file_name, kernel, passed, launch, given, folders, values)
        settings_of_program = AdoptSettings(
            files=(program.write(Path(scratch)),),
            arguments=(),  # for None, numbers in the text may be made smaller
            defines=given,
            macros=macros,
            includes=folders,
            metric=metric,
            vary=vary,
            backend="host",
        )
        try:
            made, document = adopt(settings_of_program, own.parent / label)
        except ProgramError as error:
            raise KernelError(_told(kernel, str(error), launch, passed)) from error
        adopted = made.found
        macros |= {name: tuple(each) for name, each in document["macros"].items()}
        folder.mkdir(parents=True, exist_ok=True)
        flat = {name: value for each in passed for name, value in each.inputs(each.values).items()}
        if not has_own_inputs:
            np.savez(folder / ARRAYS, allow_pickle=False, **flat)
        shutil.copyfile(own, folder / file_name)
        (only,) = adopted.kernels.values()
        (folder / f"{label}.cu.j2").write_text(only.template.text, encoding="utf-8")
        file = folder / f"{label}.py"
        inputs = _inputs_text(flat) if has_own_inputs else ""
        share = adopted.draws.by if vary is None else vary
        file.write_text(_definition(label, adopted, passed, launch, macros, metric, share, inputs), encoding="utf-8")
    return program, adopted, file


def write_definition(
    source: Path,
    kernel: str | None,
    *,
    defines: Mapping[str, str] | None = None,
    includes: Iterable[Path] = (),
    output: Path | None = None,
) -> tuple[Path, Path]:
    """Write the definition of a plain kernel with made-up inputs, to be edited; return its file and its template's.

    Arrays have 65,536 elements: the product of the kernel's first whole numbers, up to three.

    Args:
        source: the file of the kernel.
        kernel: its name; None for the only one in the file.
        defines: macros.
        includes: folders of headers.
        output: the definition's file, by default that of the kernel with the suffix ``.py``; the template is beside it.

    Raises:
        MptuneError: a file is there already, the source has no such kernel or several, or the kernel cannot be run with
            made-up inputs.
    """
    text, *_ = _text_of(source, kernel or "kernel", {}, ())
    names = list(kernel_parameters(comments_blanked(text)))
    if kernel is None and len(names) != 1:
        raise KernelError(f"{source} has {len(names)} kernels ({', '.join(names)}): name one with --kernel")
    kernel = kernel or names[0]
    axes = max((i + 1 for i, axis in enumerate(_AXES) if re.search(rf"\bblockIdx\s*\.\s*{axis}\b", text)), default=1)

    def arguments(found: Kernel) -> list[Any]:
        if structs := [each.name for each in found.parameters if each.role == "struct"]:
            raise KernelError(f"{structs[0]} of {kernel} is a struct without a made-up value: use mptune.tune_source")
        numbers = [_numpy_type(each) for each in found.parameters]
        pairs = list(zip(found.parameters, numbers, strict=True))
        count = sum(not each.is_pointer and kind.kind in "iu" for each, kind in pairs)
        extent = round(_ELEMENTS ** (1 / min(max(count, 1), len(_AXES))))
        rng = np.random.default_rng(0)
        made: list[Any] = []
        for each, kind in pairs:
            components = each.memory.numbers[1] if each.memory is not None else 1
            if not each.is_pointer:
                made.append(extent if kind.kind in "iu" else 0.5)
            elif kind.kind == "f":
                made.append(rng.random(_ELEMENTS * components).astype(kind))
            else:
                made.append(np.zeros(_ELEMENTS * components, kind))
        return made

    threads = [round(_ELEMENTS ** (1 / axes))] * axes
    tune = {name: value for name, value in zip(_BLOCK_SIZES, _BLOCKS, strict=True) if re.search(rf"\b{name}\b", text)}
    launched = _Launched(threads, block=None if tune else [_THREADS, 1, 1][:axes])
    output = output or source.with_suffix(".py")
    template = output.with_name(f"{name_of(kernel)}.cu.j2")
    for path in (output, template):
        if path.exists():
            raise KernelError(f"{path} is there already; choose another --output")
    with tempfile.TemporaryDirectory(prefix="mptune-") as scratch:
        _, _, file = _write(
            *(source, kernel, launched, arguments, tune, defines or {}, includes, None, None, scratch),
            has_own_inputs=True,
        )
        try:
            shutil.copyfile(file.with_name(template.name), template)
            shutil.copyfile(file, output)
        except OSError as error:
            raise KernelError(f"cannot write {error.filename}: {error.strerror}") from None
    return output, template


class SourceRun(Run):
    """A run whose kernel was given as text.

    Attributes:
        definition: the definition file that was written of it.
    """

    def __init__(self, run: Run, definition: Definition, program: _Program, found: Findings) -> None:
        super().__init__(run.info, run.trials, run.state, run.sources, run.name)
        assert definition.path is not None
        self.definition: Path = definition.path
        self._definition, self._program = definition, program
        self._classes = {each.name: [one.name for one in each.classes] for each in found.parameters}

    @functools.cached_property
    def _tuned(self) -> TunedKernel:
        return TunedKernel(self, self._definition)

    @functools.cached_property
    def source(self) -> str:
        """The text that was given, with the types and the values of macros that were found.

        What the text has no way to say stays as it was. Macros that the text does not define stand at its beginning.

        Raises:
            MptuneError: no trial is feasible, or a header would have to change.
        """
        if self.best is None:
            raise MptuneError(f"the run of {self.kernel} has no feasible trial")
        program, best = self._program, self.best.configuration
        wanted = {name: str(best[key]) for key, names in self._classes.items() if key in best for name in names}
        values = {name: str(best.get(name, each[0])) for name, each in program.macros.items()}
        with tempfile.TemporaryDirectory(prefix="mptune-") as scratch:
            main = program.write(Path(scratch))
            defines = {**program.defines, **values}
            texts = with_types([main], defines, program.includes, wanted, Path(scratch) / "run")
        changed = {path.name: text for path, text in texts.items() if path.name != main.name}
        text = changed.pop(program.file_name, program.text)
        if changed:
            raise MptuneError(f"types in {', '.join(changed)} change, too: give its text together with the kernel's")
        in_text = values_in(text, values)
        text = with_values(text, {name: values[name] for name in in_text})
        lines = (f"#define {name} {value}\n" for name, value in values.items() if name not in in_text)
        return "".join([*lines, text])

    def table(self) -> Any:
        """Return the trials as a table of pandas, the fastest accurate ones first."""
        found = self.to_dataframe()
        return found.sort_values(["feasible", "time_ms"], ascending=[False, True], na_position="last")

    def plot(self, kind: str = "pareto", **options: Any) -> Any:
        """Return a chart, as :func:`mptune.plot`."""
        from mptune.show import plot  # slow to import

        return plot(self, kind, **options)

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
        passed = {each.name: each for each in self._program.passed}
        known = [*passed]
        if len(arguments) > len(known):
            raise KernelError(f"{self.kernel} takes {len(known)} arguments ({', '.join(known)}), not {len(arguments)}")
        given = dict(zip(known, map(_as_numpy, arguments), strict=False))
        given |= {name: _as_numpy(value) for name, value in named.items()}
        for name in given:
            if name not in passed:
                raise UnknownNameError(f"argument of {self.kernel}:", name, known)
        for name, each in passed.items():
            if name not in given:
                raise KernelError(f"{self.kernel}: argument {name} is missing")
            if each.is_array and each.numbers(given[name]).size != each.size:
                raise KernelError(
                    f"argument {name} of {self.kernel} has {each.numbers(given[name]).size} numbers, and was tuned "
                    f"with {each.size}: call tune_source with arrays of that size"
                )
        used = {argument.name for argument in self._definition.arguments}
        flat = {name: value for each in passed.values() for name, value in each.inputs(given[each.name]).items()}
        named = {name: value for name, value in flat.items() if name in used}
        found = self._tuned(**named)
        if isinstance(found, dict):
            return {name: passed[name].shaped(array, given[name]) for name, array in found.items()}
        (output,) = self._definition.outputs
        return passed[output.name].shaped(found, given[output.name])

    def emit(self, folder: str | Path) -> tuple[str, ...]:
        """Write the winner as source, header, programs and README that need no mptune, and return the files' names.

        Raises:
            MptuneError: no trial is feasible.
        """
        winner = winner_of(self, kernel=self._definition)
        if winner is None:
            raise MptuneError(f"the run of {self.kernel} has no feasible trial to emit")
        return emit(winner, folder).files


def ArrayInputs(file: Path, share: float, names: Sequence[str] = ()) -> Varied:  # noqa: N802 - as a class of inputs
    """Return the arrays of a file (``.npz``) as inputs by the names of arguments, as :class:`~mptune.kernel.Varied`."""
    with np.load(file, allow_pickle=False) as found:
        return Varied({name: found[name] for name in found.files}, share, names)


@dataclass(frozen=True, slots=True)
class _Launch:
    """Blocks, threads of a block and bytes of shared memory, as expressions."""

    grid: tuple[str, ...]
    block: tuple[str, ...]
    shared: str


def _launch(said: _Launched, given: Mapping[str, str], macros: Mapping[str, Sequence[int]]) -> _Launch:
    """Return how the kernel is launched; macros of one value are written as that."""

    def shown(what: str, extents: Extent) -> list[str]:
        if callable(extents):
            return _tabulated(what, extents, given, macros)
        return [re.sub(r"\b[A-Za-z_]\w*\b", lambda m: given.get(m[0], m[0]), each) for each in _extents(what, extents)]

    own = [name for name in _BLOCK_SIZES if name in (*given, *macros)]
    threads = shown("block", said.block if said.block is not None else own or [_THREADS])
    if said.grid is not None:
        blocks = shown("grid", said.grid)
    else:
        blocks = []
        for axis, size in enumerate(shown("problem_size", said.problem_size)):
            factors = threads[axis : axis + 1]
            if (divisor := said.divisors[axis]) is not None:
                factors = shown(f"grid_div_{_AXES[axis]}", divisor) if callable(divisor) or divisor else []
            product = " * ".join(each if re.fullmatch(r"\w+", each) else f"({each})" for each in factors)
            blocks.append(f"ceildiv({size}, {product})" if product else size)
    (dynamic,) = shown("shared", said.shared)
    return _Launch(tuple(blocks), tuple(threads), dynamic)


def _tabulated(
    what: str,
    function: Callable[[Mapping[str, Any]], Any],
    given: Mapping[str, str],
    macros: Mapping[str, Sequence[int]],
) -> list[str]:
    """Return what a function of the macros' values returns, for each axis as an expression of C++ and of Python.

    Raises:
        KernelError: there are too many configurations, or the function fails or returns no whole numbers.
    """
    if (count := math.prod(map(len, macros.values()))) > _MOST_CONFIGURATIONS:
        raise KernelError(f"{what}: a function of {count:,} configurations; give an expression of macros")
    fixed = {name: int(value) if re.fullmatch(r"-?\d+", value) else value for name, value in given.items()}
    configurations = [dict(zip(macros, values, strict=True)) for values in itertools.product(*macros.values())]
    rows: list[list[int]] = []
    for each in configurations:
        try:
            found = function({**fixed, **each})
        except Exception as error:
            raise KernelError(f"{what}: the function failed at {each}: {type(error).__name__}: {error}") from error
        rows.append([int(one) for one in _extents(what, found)])
    if len(set(map(len, rows))) > 1:
        raise KernelError(f"{what}: the function returns now {len(rows[0])}, now another number of extents")
    return [_of_macros(configurations, column) for column in zip(*rows, strict=True)]


def _of_macros(configurations: Sequence[Mapping[str, int]], values: Sequence[int]) -> str:
    """Return an expression that has these values, of no more macros than they depend on."""
    names = list(configurations[0])
    for name in list(names):
        others = [each for each in names if each != name]
        by_others = {(*(each[o] for o in others), value) for each, value in zip(configurations, values, strict=True)}
        if len(by_others) == len({key[:-1] for key in by_others}):
            names = others
    table = {tuple(each[n] for n in names): value for each, value in zip(configurations, values, strict=True)}
    cases = (
        " * ".join([*(f"({name} == {one})" for name, one in zip(names, key, strict=True)), str(value)])
        for key, value in table.items()
    )
    return " + ".join(cases) if names else str(values[0])


def _definition(
    name: str,
    found: Findings,
    passed: Sequence[_Passed],
    launch: _Launch,
    macros: Mapping[str, Sequence[int]],
    metric: str | None,
    share: float,
    inputs: str,
) -> str:
    """Return the text of the definition of a kernel whose inputs are arrays, or are made by a text's function."""
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
    shapes = {name: (str(one.size),) for name, one in arrays.items()}
    declared = tuple(
        dataclasses.replace(one, role=roles.get(one.name, one.role), shape=shapes.get(one.name, one.shape))
        for one in each.arguments
    )
    shown = metric_text(found, metric)
    names = f", {json.dumps(found.draws.names)}" if found.draws.names else ""
    more = [
        f'sizes={{"default": {json.dumps(sizes)}}},',
        "inputs=inputs," if inputs else f'inputs=ArrayInputs(HERE / "{ARRAYS}", {share:g}{names}),',
        *([f"metric={shown},"] if shown else []),
        *(["instrumented=True,"] if found.parameters else []),
        f'description="{name}, from its text and arrays",',
    ]
    each = dataclasses.replace(each, arguments=declared)
    found = dataclasses.replace(found, kernels={name: each})
    parts = [
        f'"""{name}, from its text and arrays."""',
        imports_text(found, macros).partition("\n\n")[2]
        if inputs
        else f"{imports_text(found, macros)}\nfrom mptune.from_source import ArrayInputs",
        inputs or "HERE = Path(__file__).parent",
        *parameters_text(found, macros),
        kernel_text(name, each, more),
    ]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def _inputs_text(values: Mapping[str, NDArray[Any]]) -> str:
    """Return the text of a function that makes such inputs up."""

    def made(value: NDArray[Any]) -> str:
        if value.ndim == 0:
            return str(value.item())
        if value.dtype.kind == "f":
            return f"rng.random({value.size})"
        return f'np.zeros({value.size}, "{value.dtype}")'

    lines = [f'        "{name}": {made(value)},' for name, value in values.items()]
    numpy = "import numpy as np\n\n\n" if any("np." in line for line in lines) else "\n"
    return "\n".join(
        [
            f"{numpy}def inputs(rng, size):",
            '    """Return the inputs of a draw: put in numbers like those of your program, which errors depend on."""',
            "    return {",
            *lines,
            "    }",
        ]
    )


def _numpy_type(parameter: Parameter) -> np.dtype[Any]:
    memory = parameter.memory
    scalar = memory.numbers[0] if memory is not None else parameter.element
    return np.dtype(NUMBERS[scalar].numpy if scalar in NUMBERS else "uint8")


def _check_folder(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()) and not (folder / ARRAYS).is_file():
        raise KernelError(f"{folder} is there already, and not written by tune_source; choose another folder=")


@dataclass(frozen=True, slots=True)
class _Passed:
    """An argument of the kernel.

    Attributes:
        name: of the parameter.
        type: of an element in C++.
        values: the array, or the number or struct as an array without axes.
        is_written: whether the kernel may change it.
        scalar: NumPy's name of the type of an array's numbers, "" for that of the array.
        fields: of a struct: the names of its numbers in the definition, with the way to each (``p.weights[2]``).
    """

    name: str
    type: str
    values: NDArray[Any]
    is_written: bool
    scalar: str = ""
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def is_array(self) -> bool:
        return self.values.ndim > 0

    def numbers(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers of an array: of an array of structs or complex numbers their parts."""
        flat = np.ravel(values)
        if flat.dtype.kind == "c":
            return flat.view(flat.real.dtype)
        return flat.view(self.scalar) if flat.dtype.kind == "V" else flat

    @property
    def size(self) -> int:
        return self.numbers(self.values).size

    def shaped(self, numbers: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
        """Return numbers as an array of the shape of another, and of its structs or of complex numbers."""
        if like.dtype.kind == "c":
            numbers = np.ascontiguousarray(numbers, np.float64).view(np.complex128)
        elif like.dtype.kind == "V":
            numbers = np.ascontiguousarray(numbers, self.scalar).view(like.dtype)
        return numbers.reshape(like.shape)

    def inputs(self, value: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the inputs of the definition for an argument, by their names."""
        if self.is_array:
            return {self.name: self.numbers(value)}
        return {name: _field(value, way) for name, way in self.fields} or {self.name: value}

    def write(self, folder: Path) -> None:
        if self.is_array or self.fields:
            (folder / f"{self.name}.bin").write_bytes(self.values.tobytes())


def _aligned(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of a struct with its fields where a compiler has them."""
    if dtype.names is None:
        return dtype
    parts = [(name, dtype[name].base, dtype[name].shape) for name in dtype.names]
    return np.dtype([(name, _aligned(base), shape) for name, base, shape in parts], align=True)


def _field(value: NDArray[Any], way: str) -> NDArray[Any]:
    for part in re.findall(r"\w+", way)[1:]:
        value = value[int(part)] if part.isdigit() else value[part]
    return np.asarray(value)


def _text_of(
    source: Any, kernel: str | None, defines: Mapping[str, str], includes: Iterable[str | Path]
) -> tuple[str, str, str, dict[str, str], tuple[Path, ...]]:
    """Return the text of a kernel, a name for its file, the kernel's name, all macros, and folders of headers.

    Raises:
        KernelError: the file cannot be read, or the kernel has no name.
    """
    found, folders = dict(defines), [Path(folder).resolve() for folder in includes]
    if isinstance(code := getattr(source, "code", None), str):  # of CuPy
        kernel = kernel or getattr(source, "name", None)
        options = re.findall(r"-([DI])\s*(\S+)", " ".join(getattr(source, "options", ())))
        own = dict(value.partition("=")[::2] for what, value in options if what == "D")
        found = {name: value or "1" for name, value in own.items()} | found
        folders += [Path(value).resolve() for what, value in options if what == "I"]
        source = code
    elif not isinstance(source, str | Path):
        raise KernelError(f"source: expected CUDA C++, a file, a RawKernel or a RawModule with code, not {source!r}")
    if not kernel:
        raise KernelError("kernel=None is for a RawKernel alone: give the kernel's name")
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return source, f"{name_of(kernel)}.cu", kernel, found, tuple(folders)
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KernelError(f"source {source}: {error}; expected CUDA C++ or the path of a file") from None
    return text, path.name, kernel, found, (*folders, path.resolve().parent)


def _as_numpy(value: Any) -> NDArray[Any]:
    """Return an argument as NumPy's; CuPy's arrays are copied from the GPU."""
    return np.asarray(value.get() if hasattr(value, "__cuda_array_interface__") else value)


@dataclass(frozen=True, slots=True)
class _Program:
    """A program that launches the kernel once, and what it is made of.

    Attributes:
        text: that was given.
        file_name: of the text.
        kernel: as a launch names it.
        passed: the arguments.
        launch: how it is launched.
        defines: macros, without those that are tuned.
        includes: folders of headers.
        macros: the values of those of ``tune=``.
    """

    text: str
    file_name: str
    kernel: str
    passed: Sequence[_Passed]
    launch: _Launch
    defines: Mapping[str, str]
    includes: tuple[Path, ...]
    macros: Mapping[str, Sequence[int]]

    def write(self, folder: Path) -> Path:
        """Write its files and return that of the host."""
        own, main = folder / self.file_name, folder / "mptune_main.cu"
        own.write_text(self.text, encoding="utf-8")
        for each in self.passed:
            each.write(folder)
        main.write_text(_program(own, self.kernel, self.passed, self.launch), encoding="utf-8")
        return main


def _kernel(file: Path, name: str, defines: Mapping[str, str], includes: tuple[Path, ...]) -> Kernel:
    """Return the kernel of a name as it is declared.

    Raises:
        UnknownNameError: the source has no such kernel.
    """
    text = file.read_text(encoding="utf-8")
    probe = file.with_name(f"probe_{file.name}")
    bare = name.partition("<")[0].strip().rpartition("::")[2]
    if "<" in name:  # an instantiation of a template is read where it is launched
        declared = kernel_parameters(comments_blanked(text)).get(bare, ())
        values = ", ".join(["mptune_any{}"] * len(declared))
        text = (
            f'#include "{file.name}"\nstruct mptune_any {{ template <class T> operator T() const; }};\n'
            f"void mptune_probe() {{ {name}<<<1, 1>>>({values}); }}\n"
        )
    probe.write_text(text, encoding="utf-8")
    try:
        program = read([probe], defines, includes)
    finally:
        probe.unlink()
    for kernel in program.kernels:
        if kernel.name.rpartition("::")[2] == bare:
            return kernel
    if program.refusals:
        raise ProgramError("\n".join(dict.fromkeys(map(str, program.refusals))).replace(probe.name, file.name))
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
    values = _as_numpy(value)
    memory = parameter.memory
    if parameter.is_pointer:
        if values.ndim == 0:
            raise KernelError(f"{what}: expected an array, not {value!r}")
        scalar = memory.numbers[0] if memory is not None else parameter.element
        expected = NUMBERS[scalar].numpy if scalar in NUMBERS else ""
        is_whole = values.dtype.kind in "cV" and memory is not None and values.itemsize == memory.bytes
        if expected and values.dtype != expected and not is_whole:
            raise KernelError(f"{what}: expected an array of {expected}, not of {values.dtype}")
        if not values.flags.c_contiguous:
            raise KernelError(f"{what}: the array is not contiguous; pass numpy.ascontiguousarray(...)")
        if memory is not None and values.nbytes % memory.bytes:
            raise KernelError(f"{what}: expected a multiple of {memory.bytes} bytes, not {values.nbytes}")
        is_written = parameter.role in ("out", "inout")
        return _Passed(parameter.name, parameter.element, values, is_written, expected)
    if values.ndim > 0:
        kind = "struct" if parameter.role == "struct" else "number"
        raise KernelError(f"{what}: expected a {kind}, not an array of {values.dtype}")
    if parameter.role == "struct":
        ways = tuple((leaf.flat, leaf.name) for leaf, _ in fields_of(parameter))
        try:
            is_numbers = values.dtype.kind == "V" and all(_field(values, way).dtype.kind in "fiub" for _, way in ways)
        except (ValueError, IndexError, KeyError) as error:
            raise KernelError(f"{what}: {error}") from None
        if not is_numbers:
            raise KernelError(f"{what}: expected a structured scalar of NumPy with its numbers, not {value!r}")
        values = values.astype(_aligned(values.dtype))
        return _Passed(parameter.name, parameter.element, values, is_written=False, fields=ways)
    if values.dtype.kind not in "fiub":
        raise KernelError(f"{what}: expected a number, not {value!r}")
    expected = NUMBERS[parameter.element].numpy if parameter.element in NUMBERS else ""
    if expected and np.dtype(expected).kind in "iu" and values.dtype.kind == "f":
        raise KernelError(f"{what}: expected a whole number, not {value!r}")
    if expected and np.dtype(expected).kind in "iu" and not np.iinfo(expected).min <= values <= np.iinfo(expected).max:
        raise KernelError(f"{what}: {value!r} does not fit into {expected}")
    return _Passed(parameter.name, parameter.element, values, is_written=False)


# -- what the caller says of right answers, fresh inputs and types -------------------------------------------------


def _changed(
    definition: Definition,
    passed: Sequence[_Passed],
    answer: Sequence[Any] | None,
    reference: Callable[..., Any] | None,
    inputs: Callable[..., Any] | None,
    metric: Callable[..., Any] | None,
) -> Definition:
    """Return a definition with the caller's answers, functions and metric, which its file cannot have.

    Raises:
        KernelError: they do not fit the arguments.
    """
    changes: dict[str, Any] = {} if metric is None else {"metric": metric}
    written = {argument.name for argument in definition.arguments if argument.is_output}
    if answer is not None:
        known: dict[str, NDArray[Any]] = {}
        for each, value in zip(passed, answer, strict=True):
            if value is not None:
                known[each.name] = _right(each, value, written)
        if not known:
            raise KernelError("answer: one value at least is expected, for an array that the kernel changes")
        changes["reference"] = lambda _inputs, _sizes: dict(known)
        changes["arguments"] = [
            dataclasses.replace(each, is_compared=each.name in known) if each.name in written else each
            for each in definition.arguments
        ]
    if reference is not None:
        changes["reference"] = _Reference(reference, passed, written)
    if inputs is not None:
        own = _Inputs(inputs, cast(Callable[..., Any], definition.inputs), passed)
        own.drawn(np.random.default_rng(0))  # what is wrong is said before minutes are spent
        changes["inputs"] = own
    return definition.changed(**changes) if changes else definition


def _right(each: _Passed, value: Any, written: Iterable[str]) -> NDArray[Any]:
    """Return the right numbers of an output.

    Raises:
        KernelError: it is no output, or has another size.
    """
    if each.name not in written:
        raise KernelError(f"the kernel does not change {each.name}, for which there is an answer")
    found = each.numbers(_as_numpy(value))
    if found.size != each.size:
        raise KernelError(f"the answer of {each.name} has {found.size} numbers, not {each.size}")
    return found.astype(np.float64) if found.dtype.kind == "f" else found


class _Reference:
    """The caller's function of arguments, as a definition's function of inputs."""

    def __init__(self, function: Callable[..., Any], passed: Sequence[_Passed], written: Iterable[str]) -> None:
        self._function, self._passed = function, passed
        self._written = [each for each in passed if each.name in set(written)]

    def __call__(self, inputs: Mapping[str, Any], _: Any) -> dict[str, NDArray[Any]]:
        given = (
            each.shaped(np.array(inputs[each.name]), each.values)
            if each.is_array
            else each.values[()]
            if each.fields
            else np.asarray(inputs.get(each.name, each.values))[()]
            for each in self._passed
        )
        found = self._function(*given)
        if not isinstance(found, Mapping):
            several = found if isinstance(found, list | tuple) else [found]
            if len(several) != len(self._written):
                names = ", ".join(each.name for each in self._written)
                raise KernelError(f"reference: expected {len(self._written)} outputs ({names}), not {len(several)}")
            found = dict(zip((each.name for each in self._written), several, strict=True))
        by_name = {each.name: each for each in self._passed}
        for name in found:
            if name not in by_name:
                raise UnknownNameError("output of reference=:", str(name), by_name)
        return {name: _right(by_name[name], value, [w.name for w in self._written]) for name, value in found.items()}


class _Inputs:
    """The caller's function of a generator, as that of a definition; the first draw is the arguments as given."""

    def __init__(self, function: Callable[..., Any], first: Callable[..., Any], passed: Sequence[_Passed]) -> None:
        self._function, self._first, self._passed = function, first, passed

    def __call__(self, rng: np.random.Generator, sizes: Mapping[str, int]) -> dict[str, NDArray[Any]]:
        own = dict(self._first(rng, sizes))
        return own if is_first_draw(rng) else own | self.drawn(rng)

    def drawn(self, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Return the inputs that the caller's function gives.

        Raises:
            KernelError: they are not those of the arguments.
        """
        found = self._function(rng)
        if not isinstance(found, Mapping):
            if len(found) != len(self._passed):
                raise KernelError(f"inputs: expected {len(self._passed)} arguments, not {len(found)}")
            found = dict(zip((each.name for each in self._passed), found, strict=True))
        by_name, own = {each.name: each for each in self._passed}, dict[str, NDArray[Any]]()
        for name, value in found.items():
            if name not in by_name:
                raise UnknownNameError("argument of inputs=:", str(name), by_name)
            each, values = by_name[name], _as_numpy(value)
            if values.size != each.values.size:
                raise KernelError(f"inputs: {name} has {values.size} elements, not {each.values.size}")
            own |= each.inputs(values)
        return own


def _restricted(found: Findings, types: Mapping[str, Any] | str | None) -> dict[str, list[str]]:
    """Return the values of each type parameter: those that are given, else the type in the text.

    Raises:
        UnknownNameError: there is no parameter or variable of a name, or no such type.
    """
    result = {each.name: [PRECISIONS[each.classes[0].scalar]] for each in found.parameters}
    names = {each.name: each.name for each in found.parameters}
    for each in found.parameters:
        for member in each.members:
            names.setdefault(member.rpartition(".")[2], each.name)
    for name, values in types.items() if isinstance(types, Mapping) else ():
        if name not in names:
            raise UnknownNameError("type or variable of types=:", str(name), names)
        listed = [values] if isinstance(values, str) else list(values)
        result[names[name]] = [precision(str(value)).name for value in listed]
    return result


def _extents(what: str, given: Any) -> list[str]:
    """Return one to three extents as expressions.

    Raises:
        KernelError: there are others.
    """
    found: list[Any] = list(given) if isinstance(given, list | tuple | np.ndarray) else [given]
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
    for each in passed:
        if each.fields:
            lines += [
                f"    {each.type} {each.name};",
                f'    static_assert(sizeof({each.name}) == {each.values.nbytes}, "another struct than {each.name}");',
                f'    read_array("{each.name}.bin", &{each.name}, sizeof({each.name}));',
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
    values = [each.name if each.is_array or each.fields else f"({each.type}){_number(each)}" for each in passed]
    extents = [f"dim3({', '.join(each)})".replace("//", "/") for each in (launch.grid, launch.block)]
    lines.append(f"    {kernel}<<<{', '.join([*extents, launch.shared])}>>>({', '.join(values)});")
    for each in arrays:
        if each.is_written:
            lines.append(
                f"    cudaMemcpy(host_{each.name}.data(), {each.name}, {each.values.nbytes}, cudaMemcpyDeviceToHost);"
            )
    lines += [f"    cudaFree({each.name});" for each in arrays]
    return "\n".join([*lines, "}", ""])
