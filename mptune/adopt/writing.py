"""Writing what a program became: the definition, a template for each kernel, and the program, which its steps run."""

from __future__ import annotations

import dataclasses
import itertools
import json
import keyword
import math
import os
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from mptune.accuracy.metrics import resolve
from mptune.adopt.capture import Capture, Copy, Launch
from mptune.adopt.classes import TypeClasses
from mptune.adopt.finding import find
from mptune.adopt.findings import (
    UNSIGNED,
    AdoptedBuffer,
    AdoptedKernel,
    Draws,
    Findings,
    listed,
    over_each,
    record_of,
)
from mptune.adopt.launched import INTEGERS, NUMPY, bytes_of
from mptune.adopt.live import LIVE
from mptune.adopt.parsing import ProgramError
from mptune.adopt.reading import Program
from mptune.adopt.sizes import FoundSizes
from mptune.adopt.template import layout_of

_WIDTH: Final = 110


@dataclass(frozen=True, slots=True)
class Adopted:
    """What a program became.

    Attributes:
        name: of the application.
        folder: where it is.
        found: what it is made of.
        caveats: what the errors of its runs leave out.
    """

    name: str
    folder: Path
    found: Findings
    caveats: tuple[str, ...]


def write(
    program: Program,
    classes: TypeClasses,
    parameter_of: Mapping[str, str],
    capture: Capture,
    folder: Path,
    given: Mapping[str, Any],
    sizes: FoundSizes,
    *,
    metric: str | None = None,
) -> Adopted:
    """Write what a program became to a folder, which ``mptune tune`` then takes.

    Args:
        program: the program.
        classes: its type classes.
        parameter_of: the precision parameter of each class that has one, by the class's name.
        capture: what it did in a run.
        folder: is made, or what an earlier call wrote there is replaced.
        given: how the program is read, compiled and run.
        sizes: the sizes that are its arguments.
        metric: how the outputs are compared.

    Raises:
        ProgramError: what it did cannot be adopted, or there is nothing to tune.
    """
    found = find(program, classes, parameter_of, capture, sizes)
    name = name_of(folder.name)
    texts = {f"{kernel}.cu.j2": each.template.text for kernel, each in found.kernels.items()}
    texts[f"{name}.py"] = _definition(name, found, program, capture.arguments, metric)
    texts[LIVE] = json.dumps({"program": given, **_table(found, capture)}, indent=2) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    for name_of_file, text in texts.items():
        (folder / name_of_file).write_text(text, encoding="utf-8")
    root = common_folder([file.path for file in program.files])
    for file in program.files:
        target = folder / "program" / file.path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.path, target)
    return Adopted(name, folder, found, tuple(_caveats(capture, found)))


def set_draws(made: Adopted, draws: Draws) -> Adopted:
    """Return what was written with what a draw changes."""
    table = json.loads((made.folder / LIVE).read_text(encoding="utf-8"))
    text = json.dumps({**table, "draws": dataclasses.astuple(draws)}, indent=2) + "\n"
    (made.folder / LIVE).write_text(text, encoding="utf-8")
    return dataclasses.replace(made, found=dataclasses.replace(made.found, draws=draws))


def _table(found: Findings, capture: Capture) -> dict[str, Any]:
    """Return how operations of the program become calls (:mod:`mptune.adopt.live`)."""
    constants: dict[int, tuple[str, int, str]] = {}
    for argument in (each for kernel in found.kernels.values() for each in kernel.arguments):
        for symbol in capture.allocations.values():
            if argument.role == "Constant" and (symbol.kind, symbol.name) == ("symbol", argument.name):
                assert isinstance(argument.shape, int)
                kind = argument.dtype or f"f{symbol.bytes // argument.shape}"
                constants[symbol.id] = (symbol.name, argument.shape, kind)
    launches: dict[str, dict[str, Any]] = {}
    for index, (name, _) in found.launch_at.items():
        launch, kernel = capture.different[index], found.kernels[name]
        assert isinstance(launch, Launch)
        own = {argument.name for argument in kernel.arguments}
        launches[f"{launch.kernel} {launch.file.name}:{launch.line}"] = {
            "kernel": name,
            "passed": [each for each in _passed(kernel) if each[0] in own],
            "offsets": {
                parameter.name: [kernel.launched.offsets[parameter.name], parameter.memory.bytes]
                for _, parameter in kernel.launched.pointers
                if parameter.name in kernel.launched.offsets and parameter.memory is not None
            },
            "constants": {id: name for id, (name, _, _) in constants.items() if name in own},
            "read": [need.name for need in kernel.launched.kernel.needs if need.kind == "device" and need.name in own],
            "extents": dict(kernel.geometry.extents),
            "most_in_block": kernel.most_in_block,
        }
    buffers = [each for each in found.buffers if each.field_of is None]
    return {
        "sizes": dict(found.sizes),
        "draws": dataclasses.astuple(found.draws),
        "has_exit_code": found.looks_early,
        "copies_nothing": capture.copies_nothing,
        "buffers": {
            each.allocation: [each.name, each.stored.str, math.prod(each.inner_axes) * each.stored.itemsize]
            for each in buffers
        },
        "records": {
            each.allocation: record_of(each.structs)
            for each in buffers
            if each.structs is not None and each.structs.fields
        },
        "constants": {id: [size, kind] for id, (_, size, kind) in constants.items()},
        "launches": launches,
        "answers": {buffer.name: _answers(buffer, capture) for buffer in found.buffers if buffer.is_output},
    }


def _answers(buffer: AdoptedBuffer, capture: Capture) -> list[tuple[int, int, int, str]]:
    """Return where parts of an output are on the host at the end, or -1, where they were in memory, and which field."""
    last = {each.host: each.source for each in capture.operations() if isinstance(each, Copy)}
    field = buffer.field_of[1] if buffer.field_of is not None else ""
    return [
        (copy.host if last[copy.host] == copy.source else -1, copy.source.allocation, copy.source.offset, field)
        for copy in capture.outputs
        if copy.source is not None and copy.source.allocation == buffer.allocation
    ]


def _passed(kernel: AdoptedKernel) -> Iterator[list[Any]]:
    """Yield the fields of a :class:`mptune.adopt.live.Passed` for each argument, also those that are not used."""
    for position, parameter in enumerate(kernel.launched.kernel.parameters):
        places = layout_of(parameter, lambda leaf, _: bytes_of(leaf.element))[0]
        for leaf, offset in places:
            kind = np.dtype(INTEGERS.get(leaf.element) or NUMPY.get(leaf.element, "u1"))
            type = "" if leaf.is_pointer else f"{kind.kind}{kind.itemsize}"
            yield [leaf.flat, position, offset if parameter.role == "struct" else -1, type]


def _caveats(capture: Capture, found: Findings) -> Iterator[str]:
    """Yield what the errors of runs leave out; each text has the word, by which runs know what it is about."""
    if found.zeros:
        yield (
            f"errors are 0 in all types of {listed(found.zeros)}, which the program leaves all zero: give it arguments "
            "or data with which it computes something else"
        )
    for name in found.progress:
        yield (
            f"errors leave out {name}, which the program copies to the host again and again, at last nearly zero: that "
            "says how far a loop has come, and is no answer"
        )
    names = {b.allocation: b.name for b in found.buffers if b.field_of is None and b.name not in found.progress}
    earlier: dict[str, int] = {}
    for place, copies in capture.taken_back.items():
        others = sum(copy.digest != copies[-1].digest for copy in copies)
        if others and place.allocation in names:
            name = names[place.allocation]
            earlier[name] = earlier.get(name, 0) + others
    if earlier:
        yield (
            "errors are those of what is copied to the host last: what was there in earlier copies "
            f"({listed([f'{name} {count}' for name, count in earlier.items()])}) only emit --into compares"
        )


def name_of(text: str) -> str:
    """Return what an application can be called, made of another name."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"program_{name}".rstrip("_")


def common_folder(files: Sequence[Path]) -> Path:
    """Return the folder that files share."""
    return Path(os.path.commonpath([file.parent for file in files]))


# -- the definition ------------------------------------------------------------------------------


def _definition(name: str, found: Findings, program: Program, arguments: Sequence[str], metric: str | None) -> str:
    """Return the text of the definition file.

    Raises:
        ProgramError: there is nothing to tune.
    """
    if not program.macros and not any(
        k.precisions or k.geometry.choices or k.template.has_policy for k in found.kernels.values()
    ):
        raise ProgramError(
            f"{name} has nothing to tune: no floating-point type that may change, and no kernel whose blocks may have "
            "another size"
        )
    source = _in_text(program.sources[0].name)
    as_run = f", as it ran with the arguments {_in_text(' '.join(arguments))}" if arguments else ""
    parts = [
        f'"""{name}, adopted from {source}{as_run}."""',
        imports_text(found, program.macros, ["Scalar", "Scratch"])
        + "\nfrom mptune.adopt.live import AdoptedApplication, Live",
        "HERE = Path(__file__).parent",
        *parameters_text(found, program.macros),
        *(kernel_text(kernel, each) for kernel, each in found.kernels.items()),
        "# A run is one of the program itself, its kernels in the types of the configuration.\nsteps = Live(HERE)",
        _application(name, found, source, metric, program.macros),
    ]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def imports_text(found: Findings, macros: Iterable[str], more: Iterable[str] = ()) -> str:
    """Return the imports of a definition of kernels."""
    kernels = found.kernels.values()
    names = {"Kernel", *more}
    names |= {argument.role for each in kernels for argument in each.arguments}
    names |= {"PrecisionParameter"} if found.parameters else set()
    names |= {"PolicyParameter"} if any(each.template.has_policy for each in kernels) else set()
    names |= {"OrdinalParameter"} if any(each.geometry.choices for each in kernels) else set()
    names |= {"OrdinalParameter"} if macros else set()
    imports = _wrapped("from mptune import ", sorted(names), "", "")
    return f"from pathlib import Path\n\n{imports}"


def parameters_text(found: Findings, macros: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Yield the texts that declare the types, and the macros whose values are tuned."""
    types = "\n".join(_parameters(found))
    yield f"# The types, each below what has it in the program.\n{types}" if types else ""
    declared = "\n".join(f'{name} = OrdinalParameter("{name}", {list(values)})' for name, values in macros.items())
    yield f"# Macros of the program.\n{declared}" if declared else ""


def _parameters(found: Findings) -> Iterator[str]:
    for parameter in found.parameters:
        yield f"# {listed(parameter.members)}"
        yield f'{parameter.name} = PrecisionParameter("{parameter.name}", {json.dumps(parameter.types)})'


def kernel_text(name: str, each: AdoptedKernel, more: Sequence[str] = ()) -> str:
    """Return the text that declares a kernel, with further lines at the end."""
    choices = (f'OrdinalParameter("{choice}", {list(values)})' for choice, values in each.geometry.choices.items())
    policy = 'PolicyParameter("policy", ["accurate"])' if each.launched.is_fixed else 'PolicyParameter("policy")'
    parameters = [*each.precisions, *each.template.macros, *choices, *([policy] if each.template.has_policy else [])]
    constraints, shared = each.geometry.constraints, each.geometry.shared_bytes
    lines = [
        f'name="{name}",',
        *([f'function="{each.template.function}",'] if each.template.function != name else []),
        _wrapped("parameters=", parameters, "[", "],"),
        "arguments=[",
        *(f"    {argument.declared}," for argument in each.arguments),
        "],",
        f"grid={json.dumps(each.geometry.grid)},",
        f"block={json.dumps(each.geometry.block)},",
        *([f"shared_bytes={json.dumps(shared)},"] if shared else []),
        *([f"constraints={json.dumps(constraints)},"] if constraints else []),
        f'template="{name}.cu.j2",',
        *more,
    ]
    body = textwrap.indent("\n".join(lines), "    ")
    return f"{name} = Kernel(\n{body}\n)"


def metric_text(found: Findings, given: str | None) -> str:
    """Return how the outputs are compared, as text; "" if by the default.

    Where numbers of an element are judged each for itself, that is also by a metric the user gives for all.
    """
    outputs = [buffer for buffer in found.buffers if buffer.is_output]
    metrics = {buffer.name: buffer.metric for buffer in outputs}
    if given is not None:
        is_whole = resolve(given).regions is None and not resolve(given).sees_inputs
        metrics = {buffer.name: over_each(given) if is_whole and buffer.is_apart else given for buffer in outputs}
    if len(set(metrics.values())) > 1:
        return json.dumps(metrics)
    one = next(iter(metrics.values()), UNSIGNED)
    return "" if given is None and one == UNSIGNED else json.dumps(one)


def _application(name: str, found: Findings, source: str, metric: str | None, macros: Iterable[str]) -> str:
    buffers = [buffer.declared for buffer in found.buffers]
    outputs = [buffer.name for buffer in found.buffers if buffer.is_output]
    shared = ", ".join(macros)
    shown = metric_text(found, metric)
    same = list(dict.fromkeys(_same_in_kernels(found)))
    return "\n".join(
        (
            "application = AdoptedApplication(",
            f'    name="{name}",',
            f"    {_wrapped('kernels=', list(found.kernels), '[', '],')}",
            "    buffers=[",
            *(f"        {declared}," for declared in buffers),
            '        Scalar("draw", dtype="int64"),',
            "    ],",
            f'    sizes={{"default": {json.dumps({name: value for name, (_, value) in found.sizes.items()})}}},',
            "    inputs=steps.inputs,",
            "    steps=steps,",
            '    timed="launches",',
            f"    outputs={json.dumps(outputs)},",
            *([_wrapped("    constraints=", list(map(json.dumps, same)), "[", "],")] if same else []),
            *([f"    metric={shown},"] if shown else []),
            *([f"    shared=[{shared}],"] if shared else []),
            *(["    instrumented=True,"] if found.parameters else []),
            f'    description="adopted from {source}",',
            ")",
        )
    )


def _same_in_kernels(found: Findings) -> Iterator[str]:
    """Yield the constraints that kernels have the same types where they share the text that these are written in."""
    for parameter in found.parameters:
        for each in parameter.classes:
            names: dict[str, None] = {}
            for name, kernel in found.kernels.items():
                if kernel.launched.kernel.label in each.kernels and parameter.name in kernel.precisions:
                    is_of_buffer = any(a.precision == parameter.name for a in kernel.arguments if a.role != "Scalar")
                    names[parameter.name if is_of_buffer else f"{name}.{parameter.name}"] = None
            yield from (f"{one} == {other}" for one, other in itertools.pairwise(names))


def _in_text(text: str) -> str:
    """Return a text as it stands between quotation marks in Python."""
    return "".join(
        f"\\{each}" if each in '"\\' else each if each.isprintable() else f"\\U{ord(each):08x}" for each in text
    )


def _wrapped(before: str, items: Sequence[str], opening: str, closing: str) -> str:
    """Return a list on one line, or on as many as it has items."""
    line = f"{before}{opening}{', '.join(items)}{closing}"
    if len(line) <= _WIDTH - 8:
        return line
    opening, closing = opening or "(", closing or ")"
    return "\n".join((f"{before}{opening}", *(f"    {item}," for item in items), closing))
