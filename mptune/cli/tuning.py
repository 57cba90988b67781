"""``mptune tune``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from mptune.accuracy.metrics import METRICS
from mptune.cli.arguments import (
    CONSTRAINT_HELP,
    OBJECTIVES_HELP,
    default_output,
    parse_assignments,
    parse_objectives,
    parse_sizes,
    parse_threshold,
)
from mptune.cli.display import LiveView, complain, print_json, print_run, remark
from mptune.cli.interruption import Interruption
from mptune.evaluators.device import Limits
from mptune.metric_expressions import OBJECTIVES
from mptune.registry import load_kernel
from mptune.results import Status
from mptune.run import Run
from mptune.strategies import STRATEGIES
from mptune.tuner import Progress, TuneSettings
from mptune.tuner import tune as tune_kernel

__all__ = ["tune"]


def tune(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL|FILE.py", help="A bundled kernel or a definition file.")],
    backend: Annotated[str, typer.Option(help="auto, host, cuda or hip.")] = "auto",
    size: Annotated[list[str], typer.Option(metavar="PRESET|NAME=V", help="A size preset, or single sizes.")] = [],  # noqa: B006
    max_error: Annotated[list[str], typer.Option(metavar="X", help="Threshold, for all outputs or NAME=X.")] = [],  # noqa: B006
    metric: Annotated[str | None, typer.Option(help=f"Instead of the kernel's own: {', '.join(METRICS)}.")] = None,
    objective: Annotated[
        str, typer.Option(help=f"{', '.join(OBJECTIVES)}, a metric or an expression over metrics.")
    ] = "time",
    objectives: Annotated[str, typer.Option(metavar="A,B", help=OBJECTIVES_HELP)] = "",
    maximise: Annotated[bool, typer.Option("--maximise", help="More of the objective is better.")] = False,
    constraint: Annotated[list[str], typer.Option(metavar="C", help=CONSTRAINT_HELP)] = [],  # noqa: B006
    observe: Annotated[
        list[str], typer.Option(metavar="NAME", help="Measure besides; mptune list --observers names them.")
    ] = [],  # noqa: B006
    penalty: Annotated[str, typer.Option(help="Score of an inaccurate trial: hard, linear or decay.")] = "decay",
    alpha: Annotated[float, typer.Option(help="Slope of the linear penalty.")] = 1.0,
    beta: Annotated[float, typer.Option(help="Rate of the decay penalty.")] = 1.0,
    strategy: Annotated[
        str, typer.Option(help=f"{', '.join(STRATEGIES)} [bayesian; for several objectives bayesian-pareto].")
    ] = "bayesian",
    strategy_option: Annotated[list[str], typer.Option(metavar="K=V", help="A hyperparameter of it.")] = [],  # noqa: B006
    budget: Annotated[int, typer.Option(help="Unique configurations to evaluate.")] = 100,
    time_limit: Annotated[float | None, typer.Option(metavar="S", help="Seconds after which none is begun.")] = None,
    baseline_share: Annotated[float, typer.Option(help="Share of the budget for the fp64 baseline.")] = 0.2,
    trial_limit: Annotated[float, typer.Option(metavar="S", help="Seconds one launch or timing may take.")] = 30.0,
    compiler_flag: Annotated[list[str], typer.Option(metavar="FLAG", help="A further compiler flag.")] = [],  # noqa: B006
    flush_cache: Annotated[
        str, typer.Option(metavar="auto|on|off", help="Empty caches between timed launches [on GPUs, where it shows].")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Seeds inputs and strategy.")] = 0,
    workers: Annotated[int, typer.Option(help="Devices of this machine to evaluate on, a process for each.")] = 1,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler: evaluate on its workers' devices.")
    ] = None,
    compilers: Annotated[
        int | None, typer.Option(metavar="N", help="Compilations at a time, ahead of the evaluations [one per core].")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="RUN.db", help="Run file [runs/KERNEL.db].")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run file.")] = False,
    log: Annotated[bool, typer.Option("--log", help="A line for each trial, on standard error.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Find the fastest configuration that is accurate enough, or the front of several objectives."""
    definition = load_kernel(kernel)
    preset, sizes = parse_sizes(definition, size)
    settings = TuneSettings(
        backend=backend,
        size=preset,
        sizes=sizes,
        max_error=parse_threshold(max_error),
        metric=metric,
        objective=objective,
        objectives=parse_objectives(objectives),
        maximise=maximise,
        constraints=tuple(constraint),
        observers=tuple(observe),
        penalty=penalty,
        alpha=alpha,
        beta=beta,
        strategy=strategy,
        strategy_options=parse_assignments(strategy_option, "--strategy-option"),
        budget=budget,
        time_limit_s=time_limit,
        baseline_share=baseline_share,
        seed=seed,
        workers=workers,
        scheduler=scheduler,
        compilers=compilers,
        flags=tuple(compiler_flag),
        flush_cache=flush_cache,
        limits=Limits(run_s=trial_limit),
    )
    path = output or default_output(definition, resume)
    command = shlex.join(["mptune", *sys.argv[1:]])
    was_there = path.exists()
    told: list[Progress] = []

    def listen(progress: Progress) -> None:
        told[:] = [progress]
        view.update(progress)
        interruption.check()

    def warn(message: str) -> None:
        remark(f"warning: {message}")

    try:
        with (
            LiveView(time_limit, log=log) as view,
            # The run file is made when everything is ready for the first trial.
            Interruption(lambda: bool(told) or (path.exists() and not was_there)) as interruption,
        ):
            run = tune_kernel(
                definition, settings, output=path, resume=resume, on_progress=listen, on_warning=warn, command=command
            )
    except KeyboardInterrupt:
        if path.exists():
            _report(Run.load(path), path, json)
        raise
    raise typer.Exit(_report(run, path, json))


def _report(run: Run, path: Path, json: bool) -> int:
    """Print the outcome; return the exit code."""
    if json:
        print_json(run.summary())
    else:
        print_run(run, warnings=False)  # the live view has shown them
    if run.settings.get("stale"):
        remark(f"{run.settings['stale']} stored trials are set aside: source, compiler, device or data have changed")
    if run.best is None:
        complain(_nothing_found(run))
    remark(f"run file: {path}")
    return 0 if run.best is not None else 1


def _nothing_found(run: Run) -> str:
    closest, baseline = run.closest, run.baseline
    if closest is not None and closest.status is Status.VIOLATION:
        return f"no configuration satisfies every constraint; the closest: {closest.message} ({closest.configuration})"
    if closest is not None:
        nearest = f"the closest has error {closest.error:.3g}: {closest.configuration}"
        if baseline is not None:
            nearest += (
                f" (the baseline itself has {baseline.error:.3g}: where that is no rounding in fp64, "
                "template and reference disagree)"
            )
        return f"no configuration meets the threshold; {nearest}"
    return f"none of {run.evaluations} configurations ran to its end with finite outputs"
