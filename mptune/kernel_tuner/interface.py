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
from pathlib import Path
from typing import Any, Final, cast

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.metrics import tolerance_metric
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.processes import ChildEnded, PythonChild
from mptune.errors import EmptySpaceError, KernelError, LaunchError, MptuneError, UnknownNameError
from mptune.interop import read_run
from mptune.kernel import Kernel
from mptune.kernel_tuner.accuracy import AccuracyObserver, Tunable
from mptune.kernel_tuner.cache import Cache, key_of
from mptune.kernel_tuner.observers import Observed, Outputs, made
from mptune.kernel_tuner.problem import (
    Allowed,
    Problem,
    as_restriction,
    evaluated,
    listed_restrictions,
    values_of_argument,
)
from mptune.kernel_tuner.results import (
    CompilationFailedConfig,
    ErrorConfig,
    InvalidConfig,
    Result,
    RuntimeFailedConfig,
    get_best_config,
    get_config_string,
    get_pareto_results,
    objective_defaults,
)
from mptune.kernel_tuner.source import Source
from mptune.measure.base import Replay
from mptune.measure.buffers import run_once
from mptune.measure.program import Program
from mptune.progress import tune
from mptune.results.objective import Objective
from mptune.results.trial import Status, Trial
from mptune.run import Run
from mptune.source.render import render
from mptune.space.configuration import Configuration
from mptune.space.constraints import compile_constraint
from mptune.strategies import make
from mptune.tuning.session import Session

Divisor = Sequence[Any] | Callable[..., Any] | None

#: Kernel Tuner's strategies, by the nearest of ours; a search without a strategy evaluates everything.
STRATEGIES: Final = {
    "brute_force": "random",
    "random_sample": "random",
    "bayes_opt": "bayesian",
    "bayes_opt_alt_ns": "bayesian",
    "skopt": "bayesian",
    "genetic_algorithm": "genetic",
    "simulated_annealing": "simulated-annealing",
    "dual_annealing": "simulated-annealing",
    "pso": "particle-swarm",
    "firefly_algorithm": "firefly",
    "diff_evo": "differential-evolution",
    "basinhopping": "basin-hopping",
    **dict.fromkeys(("minimize", "mls", "ordered_greedy_mls", "greedy_mls", "greedy_ils"), "local-search"),
    **dict.fromkeys(("hybrid_vndx", "HybridVNDX"), "local-search"),
    **dict.fromkeys(("adaptive_tabu_greywolf", "AdaptiveTabuGreyWolf"), "particle-swarm"),
    **dict.fromkeys(("nsga2", "nsga3"), "nsga2"),
}
#: Relative tolerance beside ``atol`` of outputs.
_RTOL: Final = 1e-5
_FAILED: Final[Mapping[Status, type[ErrorConfig]]] = {
    Status.COMPILE_ERROR: CompilationFailedConfig,
    Status.CONSTRAINT: InvalidConfig,
}
_PHASES: Final = {"compile_time": "compile", "verification_time": "accuracy", "benchmark_time": "timing"}
#: Arguments of Kernel Tuner that choose what mptune chooses by itself, and those that it has no counterpart of.
_WITHOUT_EFFECT: Final = ("device", "platform", "compiler", "log", "parallel", "parallel_runner", "quiet", "iterations")
_REFUSED: Final = ("texmem_args",)


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


def _backend(given: str | None, language: str) -> str:
    """Return the backend of a language: C is the processor's, and OpenCL C the OpenCL driver's."""
    only = {"C": "host", "OpenCL": "opencl"}.get(language)
    return only or str(given or _defaults.get("backend", "auto"))


class Results(list[Result]):
    """The results of a search.

    Attributes:
        run: mptune's run; of a simulation, and of a search that found everything in its cache, the recorded one.
    """

    def __init__(self, run: Run, results: Iterable[Result]) -> None:
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
    iterations: int = 7,
    block_size_names: Sequence[str] | None = None,
    quiet: bool = False,
    strategy: Any = None,
    strategy_options: Mapping[str, Any] | None = None,
    cache: str | Path | None = None,
    metrics: Mapping[str, Any] | None = None,
    simulation_mode: bool | None = None,
    observers: Sequence[Any] | None = None,
    objective: Any = None,
    objective_higher_is_better: Any = None,
    objectives: Mapping[str, bool] | None = None,
    seed: int | None = None,
    max_error: float | Mapping[str, float] | None = None,
    budget: int | None = None,
    backend: str | None = None,
    types: str | None = None,
    **others: Any,
) -> tuple[Results, dict[str, Any]]:
    """Tune a kernel as Kernel Tuner does, and return its results and environment.

    Args:
        kernel_name: the name of the kernel, maybe with template arguments.
        kernel_source: its text or file, a function of the configuration that returns the text, or several files.
        problem_size: threads along each axis: numbers, expressions, or a function of the configuration.
        arguments: of the kernel in their order; a :class:`TunablePrecision` has the type of a parameter.
        tune_params: the values of each parameter, by name.
        grid_div_x: what the problem size is divided by along x; by default the block's extent.
        grid_div_y: the same along y.
        grid_div_z: the same along z.
        restrictions: expressions, functions of a configuration, or constraints of python-constraint, that hold.
        answer: the expected values of arguments; None for an argument that is not compared.
        atol: absolute tolerance of answers, beside a relative one of 1e-5.
        verify: says of answers and outputs whether they agree, instead of tolerances.
        verbose: whether the size of the search space is printed.
        lang: "CUDA", "CUPY", "NVCUDA", "HIP", "C" or "OpenCL"; by default the text tells.
        smem_args: dynamic shared memory: ``{"size": bytes}``.
        cmem_args: arrays in constant memory, by name.
        compiler_options: further flags.
        defines: macros instead of those of all parameters: texts, or functions of the configuration.
        iterations: launches that observers see.
        block_size_names: the parameters that are the block's extents.
        quiet: whether nothing is printed.
        strategy: the search strategy: mptune's nearest one is used. None evaluates everything.
        strategy_options: ``max_fevals`` and ``time_limit`` count.
        cache: a cache file: its configurations are not evaluated again, and new ones are added.
        metrics: further numbers of each result: functions of it, or expressions.
        simulation_mode: whether all results are those of the cache.
        observers: objects of classes that extend ``BenchmarkObserver``; :class:`AccuracyObserver` measures errors.
        objective: the number in a result by which the best one is chosen; several are those of a front.
        objective_higher_is_better: whether the largest is best.
        objectives: the numbers of a front, and whether the largest are best.
        seed: of the strategy.
        max_error: limit of the error of outputs, instead of ``atol``; not one of Kernel Tuner's arguments.
        budget: largest number of configurations, as ``max_fevals``; not one of Kernel Tuner's arguments.
        backend: one of mptune's backends; by default the GPU or the processor that is here.
        types: "auto" tunes the types of a CUDA kernel's buffers and variables as well, as ``mptune.tune_source`` does;
            errors are those against the kernel as it is written, and ``answer`` and ``verify`` are not used. Not one of
            Kernel Tuner's arguments.
        others: arguments of Kernel Tuner that change nothing here.

    Raises:
        KernelError: an argument has no counterpart; the message names it.
    """
    _check(others)
    types = types or _defaults.get("types")
    began = time.perf_counter()
    if answer is not None and len(answer) != len(arguments):
        raise KernelError(f"answer has {len(answer)} elements, expected {len(arguments)}, one for each argument")
    goals = _goals(objective, objective_higher_is_better, objectives)
    options = dict(strategy_options or {})
    most = budget or _defaults.get("budget") or options.pop("max_fevals", None)
    chosen = _strategy(strategy, is_quiet=quiet)
    kept = None
    if cache is not None:
        size = "callable" if callable(problem_size) else problem_size
        header = {"kernel_name": kernel_name, "problem_size": size, "tune_params_keys": list(tune_params)}
        kept = Cache(cache, {"device_name": "", **header, "tune_params": dict(tune_params), "objective": [*goals]})

    tuned = list(tune_params)

    def shown(result: Result) -> Result:
        if not quiet:
            names = [*tuned, *(() if "__error__" in result else ("time", *(metrics or {})))]
            why = f"{result.get('__error__', '')}: {str(result.get('message', '')).partition(chr(10))[0]}".strip(": ")
            print(", ".join(filter(None, (get_config_string(result, names), why))))
        return result

    if simulation_mode:
        if kept is None or not kept.entries:
            raise KernelError(f"simulation_mode: cache {cache} does not exist or is empty")
        run = _recorded(kept, tune_params, restrictions)
        found = _simulated(run, chosen, int(most or run.space.size), goals, seed or 0)
        results = Results(run, (shown(_with_metrics(kept.entries[key_of(c, [*tune_params])], metrics)) for c in found))
        environment = {"device_name": run.info.device, "simulation": True}
        environment["simulated_time"] = sum(each.get(name, 0.0) for each in results for name in _PHASES)
    elif types is not None:
        from mptune.from_source import tune_source  # reads programs, which takes long to import

        divisors: list[Any] = [grid_div_x, grid_div_y, grid_div_z]
        if cmem_args or callable(problem_size) or any(map(callable, divisors)):
            raise KernelError("types='auto' takes no cmem_args, and no functions for problem_size and grid_div_*")
        watching = made(observers)
        text = Source(kernel_name, kernel_source, lang, defines, {}, len(arguments))
        if text.language != "CUDA" or callable(kernel_source) or watching:
            raise KernelError("types='auto' takes CUDA or HIP as text or files, and no observers")
        one = {name: values[0] for name, values in tune_params.items() if len(values) == 1}
        run = tune_source(
            text.text({}),
            kernel_name,
            problem_size,
            [values_of_argument(each) for each in arguments],
            tune={name: list(values) for name, values in tune_params.items()},
            shared=(smem_args or {}).get("size", 0),
            grid_div_x=divisors[0],
            grid_div_y=divisors[1],
            grid_div_z=divisors[2],
            types=types,
            defines=defines,
            answer=None if answer is None or verify is not None else [*answer],
            restrictions=[Allowed(each, tune_params, one) for each in listed_restrictions(restrictions)],
            budget=int(most or 100),
            backend=_backend(backend, "CUDA"),
            max_error=max_error if max_error is not None else _defaults.get("max_error"),
            time_limit_s=options.get("time_limit"),
            seed=seed or 0,
            flags=_flags(compiler_options, _backend(backend, "CUDA"), "CUDA"),
        )
        tuned = list(dict.fromkeys([*tune_params, *run.parameter_names]))
        results = Results(run, (shown(_result_of(trial, one, metrics)) for trial in run.trials))
        environment = {"device_name": run.info.device}
    else:
        watching = made(observers)
        problem = Problem(
            *(kernel_name, kernel_source, arguments, tune_params, lang, cmem_args, smem_args, defines, block_size_names)
        )
        backend = _backend(backend, problem.source.language)
        accuracy = [each for each in watching if isinstance(each, AccuracyObserver)]
        of_outputs = [each for each in watching if hasattr(each, "process_output")]
        excluded = list(kept.entries) if kept is not None else []
        kernel = problem.kernel(
            problem_size,
            (grid_div_x, grid_div_y, grid_div_z),
            restrictions,
            answer,
            is_verified=verify is not None or bool(of_outputs),
            excluded=excluded,
        )
        limit: Any = max_error if max_error is not None else _defaults.get("max_error")
        metric: Any = None
        if verify is not None or of_outputs:
            names = [output.name for output in kernel.outputs]
            metric = Outputs(answer, problem.given, names, verify, of_outputs, atol).metrics(names)
            limit = 0.5 if verify is not None else None
        elif accuracy and answer is not None:
            metric = [_observed(each) for each in accuracy]
            problem.errors = {each.key: f"error.{each.key}" for each in accuracy} | {accuracy[0].key: "error"}
        elif answer is not None and limit is None:
            tolerance = tolerance_metric(f"{atol:g}+{_RTOL:g}*abs")
            assert tolerance is not None
            limit = {tolerance.name: 1.0}
        others_watching = [each for each in watching if each not in accuracy]
        settings: dict[str, Any] = {}
        searched = dict.fromkeys(problem.errors.get(name, "time") for name in goals)
        if len(searched) > 1:
            settings["objectives"] = tuple(searched)
        elif "time" not in searched:
            settings["objective"] = next(iter(searched))
        results = Results(cast(Run, None), ())
        try:
            space = kernel.search_space(kernel.resolve_sizes("default", {}))
        except EmptySpaceError:
            if not excluded:
                raise
            results.run = read_run(cast(Cache, kept).path)
        else:
            if verbose:
                print(f"Searchspace has {len(space) + len(excluded)} configurations after restrictions.")
            left = min(len(space), int(most or len(space) + len(excluded)) - len(excluded))

            def progressed(trial: Trial) -> None:
                result = shown(_result(problem, trial, metrics))
                if kept is not None:
                    kept.add([result])

            if left > 0:
                results.run = tune(
                    kernel,
                    backend=backend,
                    max_error=limit,
                    metric=metric,
                    budget=left,
                    strategy=chosen,
                    baseline_share=0.0 if not problem.precisions else 0.2,
                    time_limit_s=options.get("time_limit"),
                    observers=(Observed(others_watching, iterations, problem.own),) if others_watching else (),
                    sources=(read_run(cast(Cache, kept).path),) if excluded and chosen == "bayesian" else (),
                    inputs=1,
                    verify=0,
                    finals=bool(problem.precisions),
                    seed=seed or 0,
                    # Scripts for GPUs have large arrays, which a busy processor compares for minutes.
                    limits=30.0 + sum(each.values.nbytes for each in problem.given) / 8e6,
                    flags=_flags(compiler_options, backend, problem.source.language),
                    on_progress=lambda progress: progressed(progress.trial),
                    **settings,
                )
                results += [_result(problem, trial, metrics) for trial in results.run.trials]
            else:
                results.run = read_run(cast(Cache, kept).path)
        environment = {"device_name": results.run.info.device}
        if kept is not None:
            kept.header["device_name"] = kept.header["device_name"] or results.run.info.device
            results[:0] = [
                _with_metrics(entry, metrics)
                for entry in kept.entries.values()
                if _is_kept(entry, results, tune_params)
            ]
            kept.add(results)
    _report(results, environment, goals, tuned, [*(metrics or {})], is_quiet=quiet)
    for name in (*_PHASES, "strategy_time", "framework_time"):
        environment[f"total_{name}"] = sum(each.get(name, 0.0) for each in results)
    environment["total_time_ms"] = environment["overhead_time"] = 1000 * (time.perf_counter() - began)
    return results, environment


def _is_kept(entry: Result, results: Iterable[Result], names: Iterable[str]) -> bool:
    names = list(names)
    return key_of(entry, names) not in {key_of(each, names) for each in results}


def _goals(objective: Any, is_higher: Any, objectives: Mapping[str, bool] | None) -> dict[str, bool]:
    """Return the objectives, and whether more of each is better."""
    if objectives is not None:
        if not isinstance(objectives, Mapping):
            raise KernelError("objectives: expected a dict of names, and whether more is better")
        return {str(name): bool(higher) for name, higher in objectives.items()}
    names = list(objective) if isinstance(objective, list | tuple) else [objective]
    higher = list(is_higher) if isinstance(is_higher, list | tuple) else [is_higher] * len(names)
    if len(names) != len(higher):
        raise KernelError(f"objective has {len(names)} names, and objective_higher_is_better {len(higher)} values")
    return dict(objective_defaults(*each) for each in zip(names, higher, strict=True))


def _strategy(given: Any, *, is_quiet: bool) -> str:
    """Return our nearest strategy to Kernel Tuner's, given by its name or its module."""
    name = "brute_force" if given is None else str(getattr(given, "__name__", given)).rpartition(".")[2]
    if name not in STRATEGIES:
        if hasattr(given, "tune"):
            raise KernelError(f"strategy {given!r} is code for Kernel Tuner; give the name of one of its strategies")
        raise UnknownNameError("strategy", name, STRATEGIES)
    if given is not None and not is_quiet and name.replace("_", "-") != STRATEGIES[name]:
        print(f"strategy {name}: mptune's {STRATEGIES[name]} is used")
    return STRATEGIES[name]


def _report(
    results: Sequence[Result],
    environment: dict[str, Any],
    goals: Mapping[str, bool],
    names: Sequence[str],
    metrics: Sequence[str],
    *,
    is_quiet: bool,
) -> None:
    """Add the best configuration, or the front of several objectives, to the environment, and print it."""
    if len(goals) > 1:
        best = environment["best_config"] = get_pareto_results(results, list(goals), list(goals.values()))
    else:
        ((goal, is_higher),) = goals.items()
        environment["best_config"] = get_best_config(results, goal, is_higher)
        best = [environment["best_config"]] if environment["best_config"] else []
    if best and not is_quiet:
        print(f"\nBEST PERFORMING CONFIGURATION{'S' * (len(goals) > 1)} FOR OBJECTIVE {', '.join(goals)}:")
        for each in best:
            print(get_config_string(each, dict.fromkeys([*names, *goals, *metrics])))


def _recorded(kept: Cache, parameters: Mapping[str, Sequence[Any]], restrictions: Any) -> Run:
    """Return the run of a cache, with the configurations that parameters and restrictions allow."""
    run = read_run(kept.path)
    constraints = [
        compile_constraint(as_restriction(each, parameters), [*parameters])
        for each in listed_restrictions(restrictions)
    ]
    allowed = {name: {*map(str, values)} for name, values in parameters.items()}
    trials = [
        trial
        for trial in run.trials
        if all(str(trial.configuration[name]) in values for name, values in allowed.items())
        and all(constraint.holds(trial.configuration) for constraint in constraints)
    ]
    if not trials:
        raise KernelError(f"cache {kept.path} has no configuration of these parameters and restrictions")
    return run.derive(trials=trials)


def _simulated(run: Run, strategy: str, budget: int, goals: Mapping[str, bool], seed: int) -> list[Configuration]:
    """Return the configurations that a strategy evaluates in a recorded run, in order."""
    name, is_higher = next(iter(goals.items()))
    metric = name if name in run.metric_names and name.isidentifier() else "time_ms"
    objective = Objective(metric, minimise=not (is_higher and metric == name))
    judged = run.derive(objective=objective)
    made_one = make(strategy, run.space, objective, seed=seed, signature=run.info.signature, budget=budget)
    session = Session(Replay(judged), made_one.objective)
    session.evaluate(budget, made_one.ask, made_one.tell)
    return list(session.trials)


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
    arguments = [each(params) if isinstance(each, Tunable) else each for each in arguments]
    values = {name: [value] for name, value in params.items()}
    problem = Problem(
        kernel_name, kernel_source, arguments, values, lang, cmem_args, smem_args, defines, block_size_names
    )
    kernel = problem.kernel(problem_size, (grid_div_x, grid_div_y, grid_div_z), None, None, is_verified=True)
    sizes = kernel.resolve_sizes("default", {})
    configuration = kernel.search_space(sizes).configuration(0)
    backend = _backend(backend, problem.source.language)
    outputs = _run_apart(
        kernel,
        configuration,
        cast(Callable[..., Any], kernel.inputs),
        backend,
        _flags(compiler_options, backend, problem.source.language),
    )
    results: list[Any] = []
    for each, argument in zip(problem.given, arguments, strict=True):
        own = values_of_argument(argument)
        if each.name in outputs and np.size(argument):
            found = outputs[each.name].astype(own.dtype).reshape(own.shape)
            kind = getattr(argument, "dtype", None)
            results.append(found.view(kind) if getattr(kind, "kind", "") == "c" else found)
        else:
            results.append(argument)
    return results


def _run_apart(
    kernel: Kernel, configuration: Configuration, inputs: Callable[..., Any], backend: str, flags: Sequence[str]
) -> dict[str, NDArray[Any]]:
    """Run a kernel in a process of its own, which a wrong kernel may end.

    Raises:
        LaunchError: the process ended.
    """
    with PythonChild("mptune.kernel_tuner.interface:serve", keeps_output=True) as child:
        try:
            source = render(kernel, configuration, kernel.resolve_sizes("default", {}))
            child.send(cloudpickle.dumps((kernel, configuration, source, inputs, backend, tuple(flags))))
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
        kernel, configuration, source, inputs, backend, flags = pickle.loads(channel.recv())
        sizes, options = kernel.resolve_sizes("default", {}), CompileOptions(flags=flags)
        with Program(kernel, configuration, sizes, get_backend(backend), options, source=source) as program:
            channel.send(run_once(program, inputs(None, sizes)))
    except MptuneError as error:
        channel.send(error)


def _flags(given: Sequence[str] | None, backend: str, language: str) -> tuple[str, ...]:
    """Return the options that the compiler takes: the host's knows none of nvcc's; C may use the library of C++."""
    is_host = get_backend(backend).name == "host"
    known = (each for each in given or () if not is_host or re.match(r"-(?:D|U|I|O|f|m|W|std=)", each))
    return (*known, *(["-lstdc++"] if language == "C" else []))


def _check(others: Mapping[str, Any]) -> None:
    """Raise an error for an argument that Kernel Tuner does not have, or that has no counterpart here."""
    for name, value in others.items():
        if name not in (*_WITHOUT_EFFECT, *_REFUSED):
            raise UnknownNameError("argument", name, [*inspect.signature(tune_kernel).parameters, *_WITHOUT_EFFECT])
        if name == "compiler" and "fort" in str(value):
            raise KernelError(f"compiler={value!r}: Fortran is not supported by mptune")
        if name in _REFUSED and value:
            raise KernelError(f"{name}= of Kernel Tuner is not supported by mptune; leave it out")


def _observed(observer: AccuracyObserver) -> Callable[..., float]:
    def metric(output: NDArray[Any], reference: NDArray[Any]) -> float:
        return float(observer.metric(reference, output))

    metric.__name__ = metric.__qualname__ = observer.key
    return metric


# -- results -------------------------------------------------------------------------------------


def _result(problem: Problem, trial: Trial, metrics: Mapping[str, Any] | None) -> Result:
    """Return a trial as Kernel Tuner has it."""
    result = _result_of(trial, {}, None, problem.own(trial.configuration))
    if "__error__" not in result:
        if not problem.is_compared:
            numbers = trial.measurement.metrics  # of which errors mean nothing
            result = {name: value for name, value in result.items() if name not in numbers or "error" not in name}
        result |= {key: trial.measurement.metrics[name] for key, name in problem.errors.items()}
    return _with_metrics(result, metrics)


def _result_of(
    trial: Trial, fixed: Mapping[str, Any], metrics: Mapping[str, Any] | None, own: Mapping[str, Any] | None = None
) -> Result:
    """Return a trial with the values of parameters as the user gave them."""
    result: Result = {**fixed, **(trial.configuration if own is None else own)}
    measured = trial.measurement
    if trial.status is not Status.OK:
        result["__error__"] = _FAILED.get(trial.status, RuntimeFailedConfig)()
        result["message"] = trial.message
    else:
        result["time"], result["times"] = trial.time_ms, list(measured.times_ms)
        result |= {n: v for n, v in measured.metrics.items() if n not in ("time_ms", "time_min_ms")}
    result |= {name: 1000 * measured.durations_s.get(phase, 0.0) for name, phase in _PHASES.items()}
    result |= {"strategy_time": 0.0, "framework_time": 0.0, "timestamp": str(datetime.now(UTC))}
    return _with_metrics(result, metrics)


def _with_metrics(result: Result, metrics: Mapping[str, Any] | None) -> Result:
    result = dict(result)
    for name, given in (metrics or {}).items() if "__error__" not in result else ():
        result[name] = evaluated(given, result)
    return result
