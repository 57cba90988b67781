"""The picture of an application's answer: that of the winner beside that of the widest types, as its file draws them.

Unlike other charts this one runs the application, in the definition the user gives or the bundled one of that name.
"""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mptune.accuracy.evaluate import evaluate_outputs
from mptune.accuracy.thresholds import recorded_metrics
from mptune.backends import get_backend
from mptune.backends.base import options_of
from mptune.data import DataManager
from mptune.errors import MptuneError, PlotError, raised_at
from mptune.kernel import Application, Tunable
from mptune.kernel.limits import whole_space
from mptune.measure.answers import with_reference
from mptune.measure.buffers import run_once
from mptune.measure.pool import runnable_backend
from mptune.measure.program import Program
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.show.charts import Look, altair
from mptune.source.loading import picture_of, sizes_of, tunable_of_run

if TYPE_CHECKING:
    import altair as alt

__all__ = ["beside", "draw"]

_TITLE_LETTERS: Final = 48


def draw(run: Run, given: Tunable | str | Path | None, look: Look) -> alt.VConcatChart:
    """Run the winner and the widest types on the run's first input, and draw what the application makes of either.

    Each picture has the size that the application gives it.

    Args:
        run: of an application.
        given: the application, unless it is a bundled one: that itself, a definition file or the folder that holds it.
        look: whether there is a title.

    Raises:
        PlotError: the run is of a single kernel or has no winner, or the application has no picture, or that fails.
        KernelError: the definition is not found, or is not the run's.
        MptuneError: it cannot run here.
    """
    if not run.info.is_of_application:
        raise PlotError(
            f"{run.kernel or 'the run'} is a single kernel: only applications have a picture of their answer"
        )
    top_level = altair().TopLevelMixin
    application = tunable_of_run(run.info, given, kind=Application, on_warning=lambda _: None)
    picture = picture_of(application)
    trial = run.best
    if trial is None:
        raise PlotError("there is no answer to draw: no trial satisfies the threshold")
    answers, inputs, sizes, errors = _answers(run, application, trial)
    pictures = []
    try:
        for outputs in answers:
            pictures.append(picture(dict(outputs), dict(inputs), sizes))
            if not isinstance(pictures[-1], top_level):
                raise TypeError(f"it returned {type(pictures[-1]).__name__}; expected a chart of Vega-Altair")
    except Exception as failure:
        what = f"{type(failure).__name__}: {failure}".removesuffix(": ")
        where = raised_at(failure, inspect.getfile(picture))
        raise PlotError(f"the picture of {application.called} failed: {what}{where}") from failure
    speedup = run.speedup(trial)
    faster = f", {speedup:.3g} times as fast" if math.isfinite(speedup) and trial is not run.baseline else ""
    widest = "in the widest types" if application.reference is None else "the reference"
    return beside(pictures, (widest, f"the winner: {errors}{faster}") if look.title else ("", ""))


def _answers(
    run: Run, application: Application, trial: Trial
) -> tuple[tuple[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any], Any, str]:
    """Return the outputs in the widest types (or the reference) and in the winner, inputs, sizes, and the errors."""
    info = run.info
    sizes = sizes_of(info, application)
    backend = get_backend(runnable_backend(info.backend))
    if trial.configuration not in whole_space(application, sizes, backend.device.facts()):
        raise MptuneError(f"{trial.configuration} is no valid configuration of {application.called} at {sizes}")
    outputs = [output.name for output in application.outputs]
    metrics = recorded_metrics(info.metric, info.metrics, outputs, application.metric)
    options = options_of(info, backend.name)
    application = with_reference(application, backend, options, metrics)
    data = DataManager(application, sizes, seed=info.seed or 0)
    with Program(application, trial.configuration, data.sizes, backend, options) as program:
        found = run_once(program, data)
    with np.errstate(all="ignore"):
        result = evaluate_outputs(found, data.references, metrics, data.inputs)
    named = {"error": result.error}
    if len({*info.metrics.values()}) > 1 or ": " in info.metric:  # several metrics give no single number
        named = {name: error for name, error in result.metrics.items() if name.startswith("error.")}
    errors = ", ".join(f"{info.measured_by(name)} {error:.3g}" for name, error in named.items())
    return (data.references, found), data.inputs, data.sizes, errors


def beside(pictures: Sequence[Any], titles: Sequence[str]) -> Any:
    """Return charts one below the other, each with a title above it."""
    alt = altair()
    parts = [
        alt.vconcat(picture, title=alt.TitleParams(textwrap.wrap(title, _TITLE_LETTERS), anchor="start"))
        for picture, title in zip(pictures, titles, strict=True)
    ]
    config = {"background": "white", "view": {"stroke": None}, "legend": {"titleLimit": 0}}
    return alt.vconcat(*parts, spacing=30).configure(**config)
