"""Writing what a program became: the definition, a template for each kernel, and the data it worked on.

The steps replay what the program launched. Where it launches the same again and again they have loops, and where it
swaps its pointers they swap buffers.
"""

from __future__ import annotations

import json
import keyword
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
from mptune.adopt.caveats import caveats, listed
from mptune.adopt.classes import TypeClasses
from mptune.adopt.finding import find
from mptune.adopt.findings import UNSIGNED, AdoptedBuffer, AdoptedKernel, Draws, Findings, over_each, record_of
from mptune.adopt.launched import INTEGERS, NUMPY, bytes_of
from mptune.adopt.live import geometry_of
from mptune.adopt.numbers import Numbers
from mptune.adopt.parsing import ProgramError
from mptune.adopt.reading import Program
from mptune.adopt.sizes import LIVE
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
    *,
    metric: str | None = None,
    zeroed: bool = False,
    numbers: Numbers | None = None,
    draws: Draws | None = None,
    is_live: bool = False,
) -> Adopted:
    """Write what a program became to a folder, which ``mptune tune`` then takes.

    Args:
        program: the program.
        classes: its type classes.
        parameter_of: the precision parameter of each class that has one, by the class's name.
        capture: what it did in a run.
        folder: is made, or what an earlier call wrote there is replaced.
        metric: how the outputs are compared.
        zeroed: whether memory that nothing is copied to is zero at first, as for programs that leave some of it out.
        numbers: how its numbers are written, if that was found out.
        draws: what is changed for fresh inputs if it can be; by default what the program copies to the device, or else
            what it computes.
        is_live: whether its steps run the program itself, instead of what that launched.

    Raises:
        ProgramError: what it did cannot be replayed, or there is nothing to tune.
    """
    found = find(program, classes, parameter_of, capture, numbers, draws, zeroed=zeroed, is_live=is_live)
    name = name_of(folder.name)
    texts = {f"{kernel}.cu.j2": each.template.text for kernel, each in found.kernels.items()}
    texts[f"{name}.py"] = _definition(name, found, program, capture.arguments, metric)
    if is_live:
        texts[LIVE] = json.dumps(_live(found, capture), indent=2) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    for name_of_file, text in texts.items():
        (folder / name_of_file).write_text(text, encoding="utf-8")
    for data in ("inputs.npz", "steps.npz", *(() if is_live else (LIVE,))):
        (folder / data).unlink(missing_ok=True)
    if not is_live:
        save_data(found, folder)
    sources = folder / "program"
    shutil.rmtree(sources, ignore_errors=True)
    root = common_folder([file.path for file in program.files])
    for file in program.files:
        target = sources / file.path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.path, target)
    return Adopted(name, folder, found, tuple(caveats(capture, found)))


def _live(found: Findings, capture: Capture) -> dict[str, Any]:
    """Return how operations of the program become calls (:mod:`mptune.adopt.live`)."""
    varying: dict[str, set[str]] = {name: set() for name in found.kernels}
    for call in found.calls:
        if call.function in varying:
            varying[call.function] |= {name for name, _ in call.values}
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
        geometry = geometry_of(launch)
        launches[f"{launch.kernel} {launch.file.name}:{launch.line}"] = {
            "kernel": name,
            "passed": [each for each in _passed(kernel) if each[0] in own],
            "offsets": {
                parameter.name: parameter.memory.bytes
                for _, parameter in kernel.launched.pointers
                if parameter.name in kernel.launched.offsets and parameter.memory is not None
            },
            "constants": {id: name for id, (name, _, _) in constants.items() if name in own},
            "varying": sorted(varying[name] & geometry.keys()),
            "geometry": {
                name: value
                for name, value in kernel.launched.geometry(found.launch_at[index][1]).items()
                if name not in varying[kernel.launched.name]
            },
        }
    return {
        "by": found.draws.by if found.draws.of in ("data", "constants") else 0.0,
        "buffers": {each.allocation: [each.name, each.stored.str] for each in found.buffers if each.field_of is None},
        "records": {
            each.allocation: record_of(each.structs)
            for each in found.buffers
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


def name_of(text: str) -> str:
    """Return what an application can be called, made of another name."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"program_{name}".rstrip("_")


def common_folder(files: Sequence[Path]) -> Path:
    """Return the folder that files share."""
    return Path(os.path.commonpath([file.parent for file in files]))


def save_data(found: Findings, folder: Path) -> None:
    """Write the data that the definition reads."""
    given: dict[str, Any] = {
        b.name: b.initial.reshape(-1, *b.inner_axes) for b in found.buffers if b.initial is not None
    }
    np.savez_compressed(folder / "inputs.npz", **given)
    if found.tables:
        tables: dict[str, Any] = dict(found.tables)
        np.savez_compressed(folder / "steps.npz", **tables)


# -- the definition ------------------------------------------------------------------------------


def _definition(name: str, found: Findings, program: Program, arguments: Sequence[str], metric: str | None) -> str:
    """Return the text of the definition file.

    Raises:
        ProgramError: there is nothing to tune.
    """
    if not any(k.precisions or k.geometry.choices or k.template.has_policy for k in found.kernels.values()):
        raise ProgramError(
            f"{name} has nothing to tune: no floating-point type that may change, and no kernel whose blocks may have "
            "another size"
        )
    source = _in_text(program.sources[0].name)
    as_run = f", as it ran with the arguments {_in_text(' '.join(arguments))}" if arguments else ""
    data = "" if found.is_live else f"{_data(found)}{_records(found)}"
    parts = [
        f'"""{name}, adopted from {source}{as_run}."""',
        _imports(found),
        f"HERE = Path(__file__).parent\n{data}",
        "# The types, each below what has it in the program.\n" + "\n".join(_parameters(found)),
        *(_kernel(kernel, each) for kernel, each in found.kernels.items()),
        *(_steps_of_program(found) if found.is_live else _steps_of_copy(found)),
        _application(name, found, source, metric),
    ]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def _steps_of_program(found: Findings) -> tuple[str, ...]:
    inputs, steps = _LIVE
    if found.draws.of == "nothing":
        inputs = inputs.replace(_WHICH_DRAW, _ONE_DRAW)
    return inputs, steps


def _steps_of_copy(found: Findings) -> tuple[str, ...]:
    lines = "\n".join(found.replay.lines)
    functions = "\n\n\n".join(text for used, text in _FUNCTIONS.items() if f"{used}(run," in lines)
    return functions, _inputs(found), f"def steps(run, size):\n{_steps(found)}"


def _imports(found: Findings) -> str:
    kernels = found.kernels.values()
    names = {"Application", "Kernel", *(buffer.role for buffer in found.buffers)}
    names |= {argument.role for each in kernels for argument in each.arguments}
    names |= {"PrecisionParameter"} if found.parameters else set()
    names |= {"PolicyParameter"} if any(each.template.has_policy for each in kernels) else set()
    names |= {"OrdinalParameter"} if any(each.geometry.choices for each in kernels) else set()
    names |= {"Scalar"} if _has_draw(found) else set()
    imports = _wrapped("from mptune import ", sorted(names), "", "")
    if found.is_live:
        return f"from pathlib import Path\n\n{imports}\nfrom mptune.adopt.live import Live"
    first = "import functools\nimport importlib\n" if found.sizes else ""
    return f"{first}from pathlib import Path\n\nimport numpy as np\n\n{imports}"


def _data(found: Findings) -> str:
    if found.sizes:
        return _DATA.replace("SIZES", _sizes(found))
    tables = '#: Numbers that differ from launch to launch.\nTABLES = dict(np.load(HERE / "steps.npz"))'
    return tables if found.tables else ""


def _sizes(found: Findings) -> str:
    return "{" + ", ".join(f'"{name}": {value}' for name, value in found.sizes.items()) + "}"


def _records(found: Findings) -> str:
    """Return the text of what is known of buffers of structs."""
    structs = {each.name: each.structs for each in found.buffers if each.structs is not None and each.structs.fields}
    if not structs:
        return ""
    lines = ["", "#: How the program lays out the structs that are in buffers.", "RECORDS = {"]
    for name, memory in structs.items():
        lines.append(f'    "{name}": np.dtype({{')
        for key, values in record_of(memory).items():
            lines.append(_broken(f'        "{key}": {values},'.replace("'", '"')))
        lines.append("    }),")
    return "\n".join([*lines, "}"])


def _parameters(found: Findings) -> Iterator[str]:
    for parameter in found.parameters:
        yield f"# {listed(parameter.members)}"
        yield f'{parameter.name} = PrecisionParameter("{parameter.name}", {_strings(parameter.types)})'


def _kernel(name: str, each: AdoptedKernel) -> str:
    choices = (f'OrdinalParameter("{choice}", {list(values)})' for choice, values in each.geometry.choices.items())
    policy = 'PolicyParameter("policy", ["accurate"])' if each.launched.is_fixed else 'PolicyParameter("policy")'
    parameters = [*each.precisions, *choices, *([policy] if each.template.has_policy else [])]
    constraints, shared = each.geometry.constraints, each.shared_bytes
    lines = [
        f'name="{name}",',
        *([f'function="{each.template.function}",'] if each.template.function != name else []),
        _wrapped("parameters=", parameters, "[", "],"),
        "arguments=[",
        *(f"    {argument.declared}," for argument in each.arguments),
        "],",
        f"grid={_strings(each.geometry.grid)},",
        f"block={_strings(each.geometry.block)},",
        *([f"shared_bytes={shared if shared.isdigit() else _quoted(shared)},"] if shared != "0" else []),
        *([f"constraints={_strings(constraints)},"] if constraints else []),
        f'template="{name}.cu.j2",',
    ]
    body = textwrap.indent("\n".join(lines), "    ")
    return f"{name} = Kernel(\n{body}\n)"


def _has_draw(found: Findings) -> bool:
    """Whether the steps are told which draw it is."""
    return found.is_live or found.draws.of in ("constants", "computed", "numbers")


def _inputs(found: Findings) -> str:
    """Return the text of what makes the inputs."""
    given = [buffer for buffer in found.buffers if buffer.initial is not None]
    text = _INPUTS[found.draws.of if given or _has_draw(found) else "nothing"]
    if found.draws.of == "data" and any(buffer.structs is not None for buffer in given):
        text = text.replace("    return given", f"{_STRUCTS}    return given")
    loaded = 'dict(data("inputs.npz", **size))' if found.sizes else 'dict(np.load(HERE / "inputs.npz"))'
    share = f"{100 * found.draws.by:g}%"
    by = repr(found.draws.by)
    return text.replace("GIVEN", loaded if given else "{}").replace("BY", by).replace("SHARE", share)


def _steps(found: Findings) -> str:
    counts = {name: len(each.launched.launches) for name, each in found.kernels.items()}
    launched = "; ".join(f"{name} {count} times" if count > 1 else name for name, count in counts.items())
    lines = [f'"""What the program launched: {launched}."""']
    if found.sizes and found.tables:
        lines += [
            "# Numbers that differ from launch to launch, and from size to size.",
            'given = data("steps.npz", **size)',
        ]
    if found.not_finite:
        lines.append("# What the program has that is NaN or infinite.")
    for name in found.not_finite:
        table = f'TABLES["{name}_not_finite"]'
        lines.append(f"run.write(run.{name}, np.where(np.isfinite({table}), run.read(run.{name}), {table}))")
    lines += found.replay.lines
    fields = [(*buffer.field_of, buffer) for buffer in found.buffers if buffer.field_of is not None]
    for name in dict.fromkeys(name for name, _, _ in fields):
        lines.append(f'{name}_structs = run.read(run.{name}).view(RECORDS["{name}"])')
    for name, field, buffer in fields:
        axes = ", ".join(["-1", *buffer.shape[1:]])
        lines.append(f'run.write(run.{buffer.name}, {name}_structs["{field}"].reshape({axes}))')
    if found.finite:
        lines.append("# What is not finite in the program's own answer is not compared.")
    for name in found.finite:
        mask = "np.nan" if found.tables[f"{name}_is_finite"].any() else "0"
        lines.append(f'run.write(run.{name}, np.where(TABLES["{name}_is_finite"], run.read(run.{name}), {mask}))')
    if found.sizes:
        lines = [line.replace('TABLES["', 'given["') for line in lines]
    return "\n".join(_broken(f"    {line}") for line in lines)


def _metric(found: Findings, given: str | None) -> str:
    """Return how the outputs are compared, as text; "" if by the default.

    Where numbers of an element are judged each for itself, that is also by a metric the user gives for all.
    """
    outputs = [buffer for buffer in found.buffers if buffer.is_output]
    metrics = {buffer.name: buffer.metric for buffer in outputs}
    if given is not None:
        is_whole = resolve(given).regions is None and not resolve(given).sees_inputs
        metrics = {buffer.name: over_each(given) if is_whole and buffer.is_apart else given for buffer in outputs}
    if len(set(metrics.values())) > 1:
        return f"{{{', '.join(f'{_quoted(name)}: {json.dumps(metric)}' for name, metric in metrics.items())}}}"
    one = next(iter(metrics.values()), UNSIGNED)
    return "" if given is None and one == UNSIGNED else json.dumps(one)


def _application(name: str, found: Findings, source: str, metric: str | None) -> str:
    buffers = [buffer.declared for buffer in found.buffers]
    outputs = [buffer.name for buffer in found.buffers if buffer.is_output]
    shown = _metric(found, metric)
    return "\n".join(
        (
            "application = Application(",
            f'    name="{name}",',
            f"    {_wrapped('kernels=', list(found.kernels), '[', '],')}",
            "    buffers=[",
            *(f"        {declared}," for declared in buffers),
            *(['        Scalar("draw", dtype="int64"),'] if _has_draw(found) else []),
            "    ],",
            f'    sizes={{"default": {_sizes(found)}}},',
            "    inputs=inputs,",
            "    steps=steps,",
            *(['    timed="launches",'] if found.is_live else []),
            f"    outputs={_strings(outputs)},",
            *([f"    metric={shown},"] if shown else []),
            *(["    instrumented=True,"] if found.parameters else []),
            f'    description="adopted from {source}",',
            ")",
        )
    )


_WHICH_DRAW: Final = '''
    """Which draw it is: in every one but the first, the numbers are changed that the program copies to the device."""
    is_first = not rng.bit_generator.seed_seq.spawn_key
    return {"draw": 0 if is_first else int(rng.integers(1, 1 << 31))}
'''.rstrip()
_ONE_DRAW: Final = '''
    """The program has its own data in every draw: there is nothing to change for fresh inputs."""
    return {"draw": 0}
'''.rstrip()
#: Inputs and steps that are the program itself.
_LIVE: Final = (
    f"def inputs(rng, size):{_WHICH_DRAW}",
    "# A run is one of the program itself, its kernels in the types of the configuration.\nsteps = Live(HERE)",
)
_DATA: Final = '''
#: The sizes of the run that was adopted.
OWN = SIZES


@functools.cache
def data(file, **size):
    """Return the arrays of a file that a run of the program at a size has left; it is run if it was not yet."""
    folder = HERE if size == OWN else HERE / "_".join(f"{name}{value}" for name, value in size.items())
    if not (folder / file).is_file():
        importlib.import_module("mptune.adopt.sizes").run_at(HERE, size)
    with np.load(folder / file) as found:
        return {name: values if values.ndim else values[()] for name, values in found.items()}
'''.strip()
#: What the steps use besides what every run of steps offers.
_FUNCTIONS: Final = {
    "put": '''
def put(run, buffer, start, count, values):
    """Write to a part of a buffer, from an element on."""
    whole = np.array(run.read(buffer))
    whole.reshape(-1)[start : start + count] = values
    run.write(buffer, whole)
'''.strip(),
    "move": '''
def move(run, source, target, start, to, count):
    """Copy a part of a buffer, from an element on, to a part of another one, or of the same."""
    whole = np.array(run.read(target))
    whole.reshape(-1)[to : to + count] = np.array(run.read(source)).reshape(-1)[start : start + count]
    run.write(target, whole)
'''.strip(),
}
_DRAW: Final = '''

def inputs(rng, size):
    """What the program copied to the device, and which draw it is."""
    given = GIVEN
    is_first = not rng.bit_generator.seed_seq.spawn_key
    return {**given, "draw": 0 if is_first else int(rng.integers(1, 1 << 31))}
'''
#: What makes inputs of others.
CHANGED: Final = '''
def changed(rng, values):
    """Return numbers that are up to SHARE off; one that is then too large for its type stays what it is."""
    with np.errstate(over="ignore"):
        others = (values * (1 + BY * rng.uniform(-1, 1, values.shape))).astype(values.dtype)
    return np.where(np.isfinite(others), others, values)[()]
'''
#: The text of what makes the inputs, by what is changed in every draw but the first.
_INPUTS: Final = {
    "data": CHANGED.lstrip()
    + '''

def inputs(rng, size):
    """What the program copied to the device; in every draw but the first, each number is up to SHARE off."""
    given = GIVEN
    if rng.bit_generator.seed_seq.spawn_key:
        for name, values in given.items():
            if values.dtype.kind == "f":
                given[name] = changed(rng, values)
    return given
'''.rstrip(),
    "constants": CHANGED.lstrip()
    + '''

def near(run, values):
    """Return what the program copied to a variable; in every draw but the first each number is up to SHARE off."""
    return changed(np.random.default_rng([run.draw, values.size]), values) if run.draw else values
'''.rstrip()
    + "\n"
    + _DRAW.rstrip(),
    "computed": CHANGED.lstrip()
    + '''

def vary(run, *buffers):
    """Change what was computed, in every draw but the first: each number by up to SHARE."""
    if run.draw:
        rng = np.random.default_rng(run.draw)
        for buffer in buffers:
            run.write(buffer, changed(rng, np.asarray(run.read(buffer))))
'''.rstrip()
    + "\n"
    + _DRAW.rstrip(),
    "numbers": '''
def near(run, number):
    """Return a number; in every draw but the first one that is up to SHARE off, always the same for the same."""
    if not run.draw:
        return number
    rng = np.random.default_rng([run.draw, *np.float64(number).tobytes()])
    return number * (1 + BY * rng.uniform(-1, 1))
'''.strip()
    + "\n"
    + _DRAW.rstrip(),
    "nothing": '''
def inputs(rng, size):
    """What the program copied to the device; there is nothing to change for fresh inputs."""
    return GIVEN
'''.strip(),
}


_STRUCTS: Final = """
        for name in [name for name in RECORDS if name in given]:
            given[name] = given[name].copy()
            structs = given[name].view(RECORDS[name])
            for field in structs.dtype.names:
                if structs[field].dtype.kind == "f":
                    structs[field] = changed(rng, structs[field])
""".lstrip("\n")


def _in_text(text: str) -> str:
    """Return a text as it stands between quotation marks in Python."""
    return "".join(
        f"\\{each}" if each in '"\\' else each if each.isprintable() else f"\\U{ord(each):08x}" for each in text
    )


def _quoted(text: str) -> str:
    return f'"{text}"'


def _strings(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_quoted, texts))}]"


def _wrapped(before: str, items: Sequence[str], opening: str, closing: str) -> str:
    """Return a list on one line, or on as many as it has items."""
    line = f"{before}{opening}{', '.join(items)}{closing}"
    if len(line) <= _WIDTH - 8:
        return line
    opening, closing = opening or "(", closing or ")"
    return "\n".join((f"{before}{opening}", *(f"    {item}," for item in items), closing))


def _broken(line: str) -> str:
    """Return a line of a function's body, a call that is too long for it broken after commas."""
    if len(line) <= _WIDTH:
        return line
    indent = line[: len(line) - len(line.lstrip())] + "    "
    return "\n".join(
        textwrap.wrap(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    )
