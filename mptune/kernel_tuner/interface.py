"""``tune_kernel`` and ``run_kernel`` with Kernel Tuner's arguments and results."""

from __future__ import annotations

import contextlib
import inspect
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.metrics import tolerance_metric
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.errors import KernelError, UnknownNameError
from mptune.interop import write_run
from mptune.kernel import Constant, In, InOut, Kernel, Scalar
from mptune.kernel.declarations import Argument
from mptune.kernel_tuner.accuracy import AccuracyObserver, Tunable, TunablePrecision
from mptune.measure.buffers import run_once
from mptune.measure.program import Program
from mptune.precision import precision
from mptune.progress import tune
from mptune.results.trial import Status, Trial
from mptune.run import Run
from mptune.space.expressions import Expression
from mptune.space.parameters import CategoricalParameter, OrdinalParameter, Parameter, PrecisionParameter

Divisor = Sequence[Any] | Callable[..., Any] | None

BLOCK_SIZES: Final = ("block_size_x", "block_size_y", "block_size_z")
#: Kernel Tuner's strategies, by the nearest of ours; a search without a strategy evaluates everything.
STRATEGIES: Final = {
    "brute_force": "random",
    "random_sample": "random",
    "bayes_opt": "bayesian",
    "bayes_opt_alt_ns": "bayesian",
    "genetic_algorithm": "genetic",
    "simulated_annealing": "simulated-annealing",
    "dual_annealing": "simulated-annealing",
    "pso": "particle-swarm",
    "firefly_algorithm": "firefly",
    "diff_evo": "differential-evolution",
    "basinhopping": "basin-hopping",
    **dict.fromkeys(("minimize", "mls", "ordered_greedy_mls", "greedy_mls", "greedy_ils"), "local-search"),
}
#: Relative tolerance beside ``atol`` of outputs.
_RTOL: Final = 1e-5
_FAILED: Final = {
    Status.COMPILE_ERROR: "CompilationFailedConfig",
    Status.CONSTRAINT: "InvalidConfig",
}
#: Arguments of Kernel Tuner that choose what mptune chooses by itself, and those that it has no counterpart of.
_WITHOUT_EFFECT: Final = ("device", "platform", "compiler", "log", "iterations", "parallel", "quiet")
_REFUSED: Final = ("texmem_args", "simulation_mode", "objectives")
_LANGUAGES: Final = ("CUDA", "CUPY", "NVCUDA", "HIP")


#: Of scripts that are run from outside: settings that they do not have.
_defaults: dict[str, Any] = {}


@contextlib.contextmanager
def defaults(**settings: Any) -> Iterator[None]:
    """Set ``max_error``, ``budget`` and ``backend`` of searches that are not given them, within a block."""
    _defaults.update(settings)
    try:
        yield
    finally:
        _defaults.clear()


def _backend() -> str:
    return str(_defaults.get("backend", "auto"))


class Results(list[dict[str, Any]]):
    """The results of a search.

    Attributes:
        run: mptune's run.
    """

    def __init__(self, run: Run, results: Iterable[dict[str, Any]]) -> None:
        super().__init__(results)
        self.run = run


@dataclass(frozen=True, slots=True)
class _Given:
    """An argument of the kernel.

    Attributes:
        name: of the parameter.
        values: an array, or a number as an array without axes.
        is_written: whether the kernel may write it.
        parameter: the parameter that sets its type; "" where its type is that of the array.
    """

    name: str
    values: NDArray[Any]
    is_written: bool
    parameter: str = ""

    def declared(self, is_compared: bool) -> Argument:
        is_float = self.values.dtype.kind == "f"
        types = {"precision": self.parameter or precision(str(self.values.dtype)).name} if is_float else {}
        types |= {} if is_float else {"dtype": str(self.values.dtype)}
        if self.values.ndim == 0:
            return Scalar(self.name, **types)
        if self.is_written:
            return InOut(self.name, self.values.size, compared=is_compared, **types)
        return In(self.name, self.values.size, **types)


def tune_kernel(
    kernel_name: str,
    kernel_source: Any,
    problem_size: Any,
    arguments: Sequence[Any],
    tune_params: Mapping[str, Sequence[Any]],
    grid_div_x: Divisor = None,
    grid_div_y: Divisor = None,
    grid_div_z: Divisor = None,
    restrictions: Any = None,
    answer: Sequence[Any] | None = None,
    atol: float = 1e-6,
    verify: Callable[..., Any] | None = None,
    *,
    verbose: bool = False,
    lang: str | None = None,
    smem_args: Mapping[str, Any] | None = None,
    cmem_args: Mapping[str, Any] | None = None,
    compiler_options: Sequence[str] | None = None,
    defines: Mapping[str, Any] | None = None,
    block_size_names: Sequence[str] | None = None,
    quiet: bool = False,
    strategy: str | None = None,
    strategy_options: Mapping[str, Any] | None = None,
    cache: str | None = None,
    metrics: Mapping[str, Any] | None = None,
    observers: Sequence[Any] | None = None,
    objective: str = "time",
    objective_higher_is_better: bool = False,
    seed: int | None = None,
    max_error: float | Mapping[str, float] | None = None,
    budget: int | None = None,
    backend: str | None = None,
    **others: Any,
) -> tuple[Results, dict[str, Any]]:
    """Tune a kernel as Kernel Tuner does, and return its results and environment.

    Args:
        kernel_name: the name of the kernel, maybe with template arguments.
        kernel_source: its text or file; of several files the first.
        problem_size: threads along each axis: numbers, expressions, or a function of the configuration.
        arguments: of the kernel in their order; a :class:`TunablePrecision` has the type of a parameter.
        tune_params: the values of each parameter, by name.
        grid_div_x: what the problem size is divided by along x; by default the block's extent.
        grid_div_y: the same along y.
        grid_div_z: the same along z.
        restrictions: expressions, or functions of a configuration, that hold.
        answer: the expected values of arguments; None for an argument that is not compared.
        atol: absolute tolerance of answers, beside a relative one of 1e-5.
        verify: says of answers and outputs whether they agree, instead of tolerances.
        verbose: whether the size of the search space is printed.
        lang: "CUDA", "CUPY", "NVCUDA" or "HIP".
        smem_args: dynamic shared memory: ``{"size": bytes}``.
        cmem_args: arrays in constant memory, by name.
        compiler_options: further flags.
        defines: macros instead of those of all parameters.
        block_size_names: the parameters that are the block's extents.
        quiet: whether nothing is printed.
        strategy: the search strategy, of which mptune's nearest is used; None evaluates everything.
        strategy_options: ``max_fevals`` and ``time_limit`` count.
        cache: a cache file that is written at the end.
        metrics: further numbers of each result: functions of it, or expressions.
        observers: of which :class:`AccuracyObserver` counts.
        objective: the number in a result by which the best one is chosen.
        objective_higher_is_better: whether the largest is best.
        seed: of the strategy.
        max_error: limit of the error of outputs, instead of ``atol``; not one of Kernel Tuner's arguments.
        budget: largest number of configurations, as ``max_fevals``; not one of Kernel Tuner's arguments.
        backend: one of mptune's backends; by default the GPU or the processor that is here.
        others: arguments of Kernel Tuner that change nothing here.

    Raises:
        KernelError: an argument has no counterpart; the message names it.
    """
    _check(others)
    began = time.perf_counter()
    problem = _Problem(
        *(kernel_name, kernel_source, arguments, tune_params, lang, cmem_args, smem_args, defines, block_size_names)
    )
    divisors = (grid_div_x, grid_div_y, grid_div_z)
    is_compared = [False] * len(arguments) if answer is None else [each is not None for each in answer]
    if len(is_compared) != len(arguments):
        raise KernelError(f"answer has {len(is_compared)} elements, expected {len(arguments)}, one for each argument")
    accuracy = [each for each in observers or () if isinstance(each, AccuracyObserver)]
    kernel = problem.kernel(problem_size, divisors, restrictions, is_compared, answer)
    max_error = max_error if max_error is not None else _defaults.get("max_error")
    backend = backend or _backend()
    limit: Any = max_error
    metric: Any = None
    if answer is not None and verify is not None:
        metric, limit = _verified_by(verify, is_compared, atol), 0.5
    elif accuracy:
        metric = [_observed(each) for each in accuracy]
        problem.errors = {each.key: f"error.{each.key}" for each in accuracy} | {accuracy[0].key: "error"}
    elif answer is not None and max_error is None:
        tolerance = tolerance_metric(f"{atol:g}+{_RTOL:g}*abs")
        assert tolerance is not None
        limit = {tolerance.name: 1.0}
    options = dict(strategy_options or {})
    most = budget or _defaults.get("budget") or options.pop("max_fevals", None)
    name = "brute_force" if strategy is None else str(strategy)
    if name not in STRATEGIES:
        raise UnknownNameError("strategy", name, STRATEGIES)
    space = kernel.search_space(kernel.resolve_sizes("default", {}))
    if verbose:
        print(f"Searchspace has {len(space)} configurations after restrictions.")
    run = tune(
        kernel,
        backend=backend,
        max_error=limit,
        metric=metric,
        budget=min(len(space), int(most or len(space))),
        strategy=STRATEGIES[name],
        baseline_share=0.0 if not problem.precisions else 0.2,
        time_limit_s=options.get("time_limit"),
        inputs=1,
        verify=0,
        seed=seed or 0,
        flags=tuple(compiler_options or ()),
        on_progress=lambda progress: None if quiet else _print_line(problem, progress.trial, metrics),
    )
    results = Results(run, (_result(problem, trial, metrics) for trial in run.trials))
    best = best_config(results, objective, objective_higher_is_better)
    environment = {
        "device_name": run.info.device,
        "best_config": best,
        "total_time_ms": 1000 * (time.perf_counter() - began),
    }
    if cache:
        write_run(run, f"{cache}".removesuffix(".json") + ".json", "cache")
    if best and not quiet:
        shown = ", ".join(
            f"{name}={best[name]}" for name in (*tune_params, objective, *(metrics or {})) if name in best
        )
        print(f"\nBEST PERFORMING CONFIGURATION FOR OBJECTIVE {objective}:\n{shown}")
    return results, environment


def run_kernel(
    kernel_name: str,
    kernel_source: Any,
    problem_size: Any,
    arguments: Sequence[Any],
    params: Mapping[str, Any],
    grid_div_x: Divisor = None,
    grid_div_y: Divisor = None,
    grid_div_z: Divisor = None,
    lang: str | None = None,
    *,
    smem_args: Mapping[str, Any] | None = None,
    cmem_args: Mapping[str, Any] | None = None,
    compiler_options: Sequence[str] | None = None,
    defines: Mapping[str, Any] | None = None,
    block_size_names: Sequence[str] | None = None,
    backend: str | None = None,
    **others: Any,
) -> list[Any]:
    """Run a kernel once and return all of its arguments as they are afterwards.

    Args:
        kernel_name: as in :func:`tune_kernel`, like all others.
        kernel_source: the same.
        problem_size: the same.
        arguments: the same.
        params: the value of each parameter, by name.
        grid_div_x: as in :func:`tune_kernel`.
        grid_div_y: the same.
        grid_div_z: the same.
        lang: the same.
        smem_args: the same.
        cmem_args: the same.
        compiler_options: the same.
        defines: the same.
        block_size_names: the same.
        backend: the same.
        others: arguments of Kernel Tuner that change nothing here.

    Raises:
        KernelError: an argument has no counterpart; the message names it.
        CompileError, LaunchError: the kernel does not compile or run.
    """
    _check(others)
    values = {name: [value] for name, value in params.items()}
    problem = _Problem(
        kernel_name, kernel_source, arguments, values, lang, cmem_args, smem_args, defines, block_size_names
    )
    kernel = problem.kernel(problem_size, (grid_div_x, grid_div_y, grid_div_z), None, [True] * len(arguments), None)
    sizes = kernel.resolve_sizes("default", {})
    configuration = kernel.search_space(sizes).configuration(0)
    found = get_backend(backend or _backend())
    with Program(kernel, configuration, sizes, found, CompileOptions(flags=tuple(compiler_options or ()))) as program:
        outputs = run_once(program, problem.inputs)
    results: list[Any] = []
    for each, argument in zip(problem.given, arguments, strict=True):
        own = _array(argument)
        results.append(outputs[each.name].astype(own.dtype).reshape(own.shape) if each.name in outputs else argument)
    return results


def best_config(results: Iterable[Mapping[str, Any]], objective: str, is_higher: bool = False) -> Any:
    """Return the best of the configurations that ran; None if none did."""
    ran = [each for each in results if "__error__" not in each and isinstance(each.get(objective), float)]
    return (max if is_higher else min)(ran, key=lambda each: each[objective], default=None)


def _check(others: Mapping[str, Any]) -> None:
    """Raise an error for an argument that Kernel Tuner does not have, or that has no counterpart here."""
    for name, value in others.items():
        if name not in (*_WITHOUT_EFFECT, *_REFUSED):
            raise UnknownNameError("argument", name, [*inspect.signature(tune_kernel).parameters, *_WITHOUT_EFFECT])
        if name in _REFUSED and value:
            raise KernelError(f"{name}= of Kernel Tuner is not supported by mptune; leave it out")


def _array(argument: Any) -> NDArray[Any]:
    if isinstance(argument, TunablePrecision):
        return argument.array
    if isinstance(argument, Tunable):
        raise KernelError("an argument is a Tunable, which mptune does not support; TunablePrecision is")
    found = np.asarray(argument)
    if found.dtype.kind not in "fiub":
        raise KernelError(f"an argument is of type {found.dtype}; expected floating-point or whole numbers")
    return found


class _Problem:
    """A kernel, its arguments and its parameters."""

    def __init__(
        self,
        name: str,
        source: Any,
        arguments: Sequence[Any],
        parameters: Mapping[str, Sequence[Any]],
        lang: str | None,
        constants: Mapping[str, Any] | None,
        shared: Mapping[str, Any] | None,
        defines: Mapping[str, Any] | None,
        block_size_names: Sequence[str] | None,
    ) -> None:
        if lang is not None and lang.upper() not in _LANGUAGES:
            raise KernelError(f"lang={lang!r} is not supported by mptune; expected one of {', '.join(_LANGUAGES)}")
        self.name, self.text = name, _text_of(source)
        self.bare = name.partition("<")[0].strip()
        self.values = {key: list(values) for key, values in parameters.items()}
        declared = _declared_parameters(self.text, self.bare)
        if len(declared) != len(arguments):
            raise KernelError(f"{self.bare} takes {len(declared)} arguments, not {len(arguments)}")
        self.given = [
            _Given(
                known,
                _array(argument),
                is_written and not isinstance(argument, np.generic | int | float),
                argument.param_key if isinstance(argument, TunablePrecision) else "",
            )
            for (known, is_written), argument in zip(declared, arguments, strict=True)
        ]
        self.precisions = {each.parameter for each in self.given if each.parameter}
        for key in self.precisions - self.values.keys():
            raise UnknownNameError("parameter of TunablePrecision", key, self.values)
        self.constants = {key: np.asarray(value) for key, value in (constants or {}).items()}
        self.shared = (shared or {}).get("size", 0)
        self.defines = defines
        #: The metrics that are errors of observers, by their key.
        self.errors: Mapping[str, str] = {}
        self.blocks = [*(block_size_names or ()), *BLOCK_SIZES[len(block_size_names or ()) :]]

    @property
    def inputs(self) -> dict[str, Any]:
        arrays = {each.name: each.values.reshape(-1) if each.values.ndim else each.values for each in self.given}
        return arrays | {name: array.reshape(-1) for name, array in self.constants.items()}

    def kernel(
        self,
        problem_size: Any,
        divisors: Sequence[Any],
        restrictions: Any,
        is_compared: Sequence[bool],
        answer: Sequence[Any] | None,
    ) -> Kernel:
        """Return the definition."""
        arguments = [
            *(each.declared(flag or answer is None) for each, flag in zip(self.given, is_compared, strict=True)),
            *(Constant(name, array.size, **_type_of(array)) for name, array in self.constants.items()),
        ]
        inputs = self.inputs
        expected = {
            each.name: _widest(np.asarray(value)).reshape(-1)
            for each, value in zip(self.given, answer or (), strict=False)
            if value is not None
        }
        return Kernel(
            name=re.sub(r"\W+", "_", self.bare),
            parameters=[self._parameter(name, values) for name, values in self.values.items()],
            arguments=arguments,
            sizes={"default": {}},
            inputs=_Inputs(inputs),
            reference=_Reference(expected) if answer is not None else None,
            grid=_Grid(problem_size, tuple(divisors), tuple(self.blocks), tuple(self.values)),
            block=_Block(tuple(self.blocks), tuple(self.values)),
            shared_bytes=_Shared(self.shared, tuple(self.values)) if self.shared else 0,
            constraints=[_restriction(each, tuple(self.values)) for each in _listed(restrictions)],
            template=self._template(),
            function=f"{self.bare.rpartition('::')[2]}_tuned",
        )

    def _parameter(self, name: str, values: Sequence[Any]) -> Parameter:
        if name in self.precisions:
            return PrecisionParameter(name, [precision(str(value)).name for value in values])
        if all(isinstance(value, int | float | np.integer | np.floating) for value in values):
            return OrdinalParameter(
                name, sorted({value.item() if isinstance(value, np.generic) else value for value in values})
            )
        return CategoricalParameter(name, list(dict.fromkeys(map(str, values))))

    def _template(self) -> str:
        """Return the template: macros, the user's text, and a kernel that calls the user's."""
        names = self.values if self.defines is None else self.precisions
        lines = [f"#define {name} {{{{ {name} }}}}" for name in names]
        lines += ["#define kernel_tuner 1"] if self.defines is None else []
        for key, value in (self.defines or {}).items():
            if callable(value):
                raise KernelError(
                    f"defines[{key!r}] is a function, which mptune does not support; give a text or a number"
                )
            lines.append(f"#define {key} {_with_braces(str(value), self.values)}")
        if "endraw" in self.text:
            raise KernelError("the source has the word endraw, which ends a raw block of Jinja")
        text = _HALF.sub("", _BOUNDS.sub("", _EXTERN_C.sub("", _HEADERS.sub("", self.text))))
        text = re.sub(r"\b(?:__half|__nv_bfloat16|nv_bfloat16)\b", lambda found: _SHORT[found[0]], text)
        text = re.sub(rf"\b__global__\b(?=[^;{{}}()]*\b{self.bare}\s*\()", "__device__", text)
        passed = ", ".join(_parameter_text(each) for each in self.given)
        called = _with_braces(self.name, self.values) if self.defines is not None else self.name
        call = f"{called}({', '.join(each.name for each in self.given)})"
        function = f"{self.bare.rpartition('::')[2]}_tuned"
        wrapper = f'extern "C" __global__ void {function}({passed}) {{\n    {call};\n}}\n'
        return "\n".join([*lines, "{% raw %}", text, "{% endraw %}", wrapper])


#: Headers whose types and functions the prelude has.
_HEADERS: Final = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"](?:cuda\w*|hip/\w+|c?math|c?stdio|c?stdlib|c?stdint|inttypes"
    r"|device_launch_parameters)(?:\.h|\.hpp)?[>\"].*$",
    re.MULTILINE,
)
_EXTERN_C: Final = re.compile(r"\bextern\s+\"C\"(?=\s+__global__)")
_BOUNDS: Final = re.compile(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)")
#: Names of the types of 16 bits, which the prelude calls half and bfloat16.
_SHORT: Final = {"__half": "half", "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16"}
_HALF: Final = re.compile(r"\busing\s+half\s*=\s*__half\s*;|\btypedef\s+__half\s+half\s*;")
_CPP: Final = {
    "float64": "double", "float32": "float", "float16": "half", "int8": "signed char", "int16": "short",
    "int32": "int", "int64": "long long", "uint8": "unsigned char", "uint16": "unsigned short",
    "uint32": "unsigned int", "uint64": "unsigned long long", "bool": "bool",
}  # fmt: skip


def _widest(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _type_of(array: NDArray[Any]) -> dict[str, str]:
    return {"precision": precision(str(array.dtype)).name} if array.dtype.kind == "f" else {"dtype": str(array.dtype)}


def _parameter_text(each: _Given) -> str:
    kind = f"{{{{ {each.parameter} }}}}" if each.parameter else _CPP[str(each.values.dtype)]
    if each.values.ndim == 0:
        return f"{kind} {each.name}"
    return f"{'' if each.is_written else 'const '}{kind} *{each.name}"


def _with_braces(text: str, names: Iterable[str]) -> str:
    """Return a text with the names of parameters as expressions of a template."""
    found = "|".join(map(re.escape, names))
    return re.sub(rf"\b(?:{found})\b", lambda match: f"{{{{ {match[0]} }}}}", text) if found else text


def _text_of(source: Any) -> str:
    """Return the text of a source: a text, a file, or the first of a list of files, with the others in front."""
    if isinstance(source, list | tuple):
        texts = [_text_of(each) for each in source]
        return "\n".join([*texts[1:], texts[0]])
    if callable(source):
        raise KernelError("kernel_source is a function, which mptune does not support; give its text, with macros")
    if isinstance(source, Path) or not re.search(r"[\n{]", str(source)):
        try:
            return Path(source).read_text(encoding="utf-8")
        except OSError as error:
            raise KernelError(f"kernel_source {source}: {error.strerror}") from None
    return str(source)


_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def _declared_parameters(text: str, name: str) -> list[tuple[str, bool]]:
    """Return the parameters of a kernel in order: their names, and whether a pointer's memory may be written.

    Raises:
        KernelError: the text has no such kernel.
    """
    text = _BOUNDS.sub("", _COMMENT.sub(" ", text))
    found = re.search(rf"\b__global__\b[^;{{}}()]*\b{re.escape(name.rpartition('::')[2])}\s*\(", text)
    if found is None:
        raise UnknownNameError("kernel", name, re.findall(r"\b__global__\b[^;{}()]*\b(\w+)\s*\(", text))
    depth, start, parts = 1, found.end(), list[str]()
    for place in range(found.end(), len(text)):
        depth += (text[place] in "([<{") - (text[place] in ")]>}")
        if depth == 0 or (depth == 1 and text[place] == ","):
            parts.append(text[start:place])
            start = place + 1
        if depth == 0:
            break
    declared = [re.sub(r"\[\w*\]", "", part.partition("=")[0]) for part in parts if part.strip()]
    return [(re.findall(r"\w+", each)[-1], not re.search(r"\bconst\b[^*]*\*", each)) for each in declared]


def _listed(restrictions: Any) -> list[Any]:
    if restrictions is None:
        return []
    return list(restrictions) if isinstance(restrictions, list | tuple) else [restrictions]


def _restriction(given: Any, names: Sequence[str]) -> Any:
    if isinstance(given, str):
        return given
    if not callable(given):
        raise KernelError(f"restriction {given!r} is not supported by mptune; expected a text or a function")
    return _Restriction(given, names)


class _Restriction:
    """A restriction that takes a dict of all values, or some by name."""

    def __init__(self, function: Callable[..., Any], names: Sequence[str]) -> None:
        self.function, self.names = function, names
        parameters = inspect.signature(function).parameters
        self.is_by_name = bool(parameters) and set(parameters) <= set(names)
        self.__qualname__ = getattr(function, "__qualname__", "restriction")

    def __call__(self, **values: Any) -> bool:
        if self.is_by_name:
            values = {name: values[name] for name in inspect.signature(self.function).parameters}
            return bool(self.function(**values))
        return bool(self.function({name: values[name] for name in self.names}))


class _Inputs:
    """The arguments, the same in every draw."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.arrays = dict(arrays)

    def __call__(self, _rng: Any, _size: Any) -> dict[str, Any]:
        return dict(self.arrays)


class _Reference:
    """The answer, which was given."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.arrays = dict(arrays)

    def __call__(self, _inputs: Any, _size: Any) -> dict[str, Any]:
        return dict(self.arrays)


def _values(c: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: c[name] for name in names}


def _evaluated(given: Any, values: Mapping[str, Any]) -> Any:
    """Return a number: as it is, of a function of the values, or of an expression."""
    if callable(given):
        return given(values)
    if isinstance(given, str):
        return Expression(given).evaluate(values)
    return given


class _Grid:
    """The blocks of a configuration: the problem size over the divisors, rounded up."""

    def __init__(self, problem_size: Any, divisors: Sequence[Any], blocks: Sequence[str], names: Sequence[str]) -> None:
        self.problem_size, self.divisors, self.blocks, self.names = problem_size, divisors, blocks, names

    def __call__(self, c: Any) -> list[int]:
        values = _values(c, self.names)
        given = _evaluated(self.problem_size, values)
        sizes = list(given) if np.iterable(given) and not isinstance(given, str) else [given]
        found = []
        for axis, size in enumerate(sizes):
            divisor = self.divisors[axis]
            if divisor is None:
                number = values.get(self.blocks[axis], 1)
            elif isinstance(divisor, list | tuple):
                number = math.prod(_evaluated(each, values) for each in divisor)
            else:
                number = _evaluated(divisor, values)
            found.append(math.ceil(float(_evaluated(size, values)) / float(number)))
        return found


class _Block:
    """The threads of a configuration's blocks."""

    def __init__(self, blocks: Sequence[str], names: Sequence[str]) -> None:
        self.blocks, self.names = blocks, names

    def __call__(self, c: Any) -> list[int]:
        values = _values(c, self.names)
        return [int(values.get(name, default)) for name, default in zip(self.blocks, (256, 1, 1), strict=False)]


class _Shared:
    """The bytes of dynamic shared memory of a configuration."""

    def __init__(self, given: Any, names: Sequence[str]) -> None:
        self.given, self.names = given, names

    def __call__(self, c: Any) -> int:
        return int(_evaluated(self.given, _values(c, self.names)))


def _observed(observer: AccuracyObserver) -> Callable[..., float]:
    def metric(output: NDArray[Any], reference: NDArray[Any]) -> float:
        return float(observer.metric(reference, output))

    metric.__name__ = metric.__qualname__ = observer.key
    return metric


def _verified_by(verify: Callable[..., Any], is_compared: Sequence[bool], atol: float) -> Callable[..., float]:
    """Return a metric that is 0 for an output that the user's function accepts, else 1."""
    if sum(is_compared) != 1:
        raise KernelError(
            "verify= of Kernel Tuner is supported for one output: set the other elements of answer to None"
        )
    place = is_compared.index(True)

    def verified(output: NDArray[Any], reference: NDArray[Any]) -> float:
        answer: list[Any] = [None] * len(is_compared)
        result = list(answer)
        answer[place], result[place] = reference, output
        takes_atol = "atol" in inspect.signature(verify).parameters
        return float(not (verify(answer, result, atol=atol) if takes_atol else verify(answer, result)))

    return verified


# -- results -------------------------------------------------------------------------------------


def _result(problem: _Problem, trial: Trial, metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a trial as Kernel Tuner has it."""
    own = {name: {precision(str(value)).name: value for value in problem.values[name]} for name in problem.precisions}
    result: dict[str, Any] = {
        name: own[name][str(value)] if name in own else value for name, value in trial.configuration.items()
    }
    measured = trial.measurement
    if trial.status is not Status.OK:
        result["__error__"] = _FAILED.get(trial.status, "RuntimeFailedConfig")
        result["message"] = trial.message
    else:
        result["time"], result["times"] = trial.time_ms, list(measured.times_ms)
        result |= {name: value for name, value in measured.metrics.items() if name not in ("time_ms", "time_min_ms")}
        result |= {key: measured.metrics[name] for key, name in problem.errors.items()}
    phases = {"compile_time": "compile", "verification_time": "accuracy", "benchmark_time": "timing"}
    result |= {name: 1000 * measured.durations_s.get(phase, 0.0) for name, phase in phases.items()}
    for name, given in (metrics or {}).items() if "__error__" not in result else ():
        result[name] = given(result) if callable(given) else eval(given, {"__builtins__": {}}, dict(result))
    result["timestamp"] = str(datetime.now(UTC))
    return result


def _print_line(problem: _Problem, trial: Trial, metrics: Mapping[str, Any] | None) -> None:
    result = _result(problem, trial, metrics)
    shown = [f"{name}={result[name]}" for name in problem.values]
    shown += [f"{name}={result[name]:.3f}" for name in ("time", *(metrics or {})) if name in result]
    print(", ".join([*shown, *([str(result["__error__"])] if "__error__" in result else [])]))
