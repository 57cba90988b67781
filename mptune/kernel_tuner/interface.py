"""``tune_kernel`` and ``run_kernel`` with Kernel Tuner's arguments and results."""

from __future__ import annotations

import contextlib
import inspect
import pickle
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Any, Final, cast

import cloudpickle
from numpy.typing import NDArray

from mptune.accuracy.metrics import tolerance_metric
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.processes import ChildEnded, PythonChild
from mptune.errors import KernelError, LaunchError, MptuneError, UnknownNameError
from mptune.interop import write_run
from mptune.kernel import Kernel
from mptune.kernel_tuner.accuracy import AccuracyObserver
from mptune.kernel_tuner.problem import ArgumentGiven, Problem, evaluated, values_of_argument
from mptune.measure.buffers import run_once
from mptune.measure.program import Program
from mptune.precision import precision
from mptune.progress import tune
from mptune.results.trial import Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration

Divisor = Sequence[Any] | Callable[..., Any] | None

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
    objective_higher_is_better: bool | None = None,
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
        strategy: the search strategy: mptune's nearest one is used. None evaluates everything.
        strategy_options: ``max_fevals`` and ``time_limit`` count.
        cache: a cache file that is written at the end.
        metrics: further numbers of each result: functions of it, or expressions.
        observers: :class:`AccuracyObserver` measures errors; other observers are ignored.
        objective: the number in a result by which the best one is chosen.
        objective_higher_is_better: whether the largest is best; by default for ``fitness`` and for rates as GFLOP/s.
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
    problem = Problem(
        *(kernel_name, kernel_source, arguments, tune_params, lang, cmem_args, smem_args, defines, block_size_names)
    )
    divisors = (grid_div_x, grid_div_y, grid_div_z)
    if answer is not None and len(answer) != len(arguments):
        raise KernelError(f"answer has {len(answer)} elements, expected {len(arguments)}, one for each argument")
    accuracy = [each for each in observers or () if isinstance(each, AccuracyObserver)]
    kernel = problem.kernel(problem_size, divisors, restrictions, answer, is_verified=verify is not None)
    max_error = max_error if max_error is not None else _defaults.get("max_error")
    backend = backend or _backend()
    limit: Any = max_error
    metric: Any = None
    if answer is not None and verify is not None:
        metric, limit = _verified_by(verify, answer, problem.given, atol), 0.5
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
        # Scripts written for GPUs have large arrays, which a busy processor converts and compares for minutes.
        limits=30.0 + sum(each.values.nbytes for each in problem.given) / 8e6,
        flags=_flags(compiler_options, backend),
        on_progress=lambda progress: None if quiet else _print_line(problem, progress.trial, metrics),
    )
    results = Results(run, (_result(problem, trial, metrics) for trial in run.trials))
    if objective_higher_is_better is None:
        objective_higher_is_better = objective == "fitness" or re.search(r"/[sWJ]$", objective) is not None
    best = best_config(results, objective, objective_higher_is_better)
    environment = {
        "device_name": run.info.device,
        "best_config": best,
        "total_time_ms": 1000 * (time.perf_counter() - began),
    }
    if cache:
        write_run(run, f"{cache}".removesuffix(".json") + ".json", "cache")
    if best and not quiet:
        names = dict.fromkeys([*tune_params, objective, *(metrics or {})])
        print(f"\nBEST PERFORMING CONFIGURATION FOR OBJECTIVE {objective}:")
        print(", ".join(f"{name}={best[name]}" for name in names if name in best))
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
    problem = Problem(
        kernel_name, kernel_source, arguments, values, lang, cmem_args, smem_args, defines, block_size_names
    )
    kernel = problem.kernel(problem_size, (grid_div_x, grid_div_y, grid_div_z), None, None)
    sizes = kernel.resolve_sizes("default", {})
    configuration = kernel.search_space(sizes).configuration(0)
    backend = backend or _backend()
    outputs = _run_apart(kernel, configuration, problem.inputs, backend, _flags(compiler_options, backend))
    results: list[Any] = []
    for each, argument in zip(problem.given, arguments, strict=True):
        own = values_of_argument(argument)
        results.append(outputs[each.name].astype(own.dtype).reshape(own.shape) if each.name in outputs else argument)
    return results


def _run_apart(
    kernel: Kernel, configuration: Configuration, inputs: Mapping[str, Any], backend: str, flags: Sequence[str]
) -> dict[str, NDArray[Any]]:
    """Run a kernel in a process of its own, which a wrong kernel may end.

    Raises:
        LaunchError: the process ended.
    """
    with PythonChild("mptune.kernel_tuner.interface:serve", keeps_output=True) as child:
        try:
            child.send(cloudpickle.dumps((kernel, configuration, dict(inputs), backend, tuple(flags))))
            found = child.receive()
        except ChildEnded as error:
            raise LaunchError(
                f"{kernel.name} {error.how}: does it read or write beyond its arrays, or beyond its shared memory?"
            ) from None
    if isinstance(found, MptuneError):
        raise found
    return cast(dict[str, NDArray[Any]], found)


def serve(channel: Connection) -> None:
    """Run the kernel of the first message, and send its outputs."""
    try:
        kernel, configuration, inputs, backend, flags = pickle.loads(channel.recv())
        sizes = kernel.resolve_sizes("default", {})
        with Program(kernel, configuration, sizes, get_backend(backend), CompileOptions(flags=flags)) as program:
            channel.send(run_once(program, inputs))
    except MptuneError as error:
        channel.send(error)


def _flags(given: Sequence[str] | None, backend: str) -> tuple[str, ...]:
    """Return the options that the backend's compiler takes: the host's knows none of nvcc's own."""
    is_host = get_backend(backend).shares_memory
    return tuple(each for each in given or () if not is_host or re.match(r"-(?:D|U|I|O|f|m|W|std=)", each))


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


def _observed(observer: AccuracyObserver) -> Callable[..., float]:
    def metric(output: NDArray[Any], reference: NDArray[Any]) -> float:
        return float(observer.metric(reference, output))

    metric.__name__ = metric.__qualname__ = observer.key
    return metric


def _verified_by(
    verify: Callable[..., Any], answer: Sequence[Any], given: Sequence[ArgumentGiven], atol: float
) -> Callable[..., float]:
    """Return a metric that is 0 for an output that the user's function accepts, else 1."""
    compared = [place for place, each in enumerate(answer) if each is not None]
    if len(compared) != 1:
        raise KernelError("verify= is supported for one output: set the other elements of answer to None")
    (place,) = compared
    own = given[place].values

    def verified(output: NDArray[Any], _reference: NDArray[Any]) -> float:
        result: list[Any] = [None] * len(answer)
        result[place] = output.astype(own.dtype).reshape(own.shape)
        takes_atol = "atol" in inspect.signature(verify).parameters
        return float(not (verify(answer, result, atol=atol) if takes_atol else verify(answer, result)))

    return verified


# -- results -------------------------------------------------------------------------------------


def _result(problem: Problem, trial: Trial, metrics: Mapping[str, Any] | None) -> dict[str, Any]:
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
        numbers = {n: v for n, v in measured.metrics.items() if n not in ("time_ms", "time_min_ms")}
        if not problem.is_compared:
            numbers = {name: value for name, value in numbers.items() if "error" not in name}
        result |= numbers
        result |= {key: measured.metrics[name] for key, name in problem.errors.items()}
    phases = {"compile_time": "compile", "verification_time": "accuracy", "benchmark_time": "timing"}
    result |= {name: 1000 * measured.durations_s.get(phase, 0.0) for name, phase in phases.items()}
    for name, given in (metrics or {}).items() if "__error__" not in result else ():
        result[name] = evaluated(given, result)
    result["timestamp"] = str(datetime.now(UTC))
    return result


def _print_line(problem: Problem, trial: Trial, metrics: Mapping[str, Any] | None) -> None:
    result = _result(problem, trial, metrics)
    shown = [f"{name}={result[name]}" for name in problem.values]
    shown += [f"{name}={result[name]:.3f}" for name in ("time", *(metrics or {})) if name in result]
    print(", ".join([*shown, *([str(result["__error__"])] if "__error__" in result else [])]))
