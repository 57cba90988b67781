"""The picture of an application's answer: that of the winner beside that of the widest types, as its file draws them.

Unlike other plots this one runs the application, in the definition the user gives or the bundled one of that name.
"""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.evaluate import evaluate_outputs
from mptune.accuracy.thresholds import recorded_metrics
from mptune.backends import get_backend
from mptune.backends.base import options_of
from mptune.buffers import DataManager
from mptune.emit import sizes_of
from mptune.errors import MptuneError, PlotError, raised_at
from mptune.evaluators.answers import with_reference
from mptune.evaluators.devices import runnable_backend
from mptune.kernel import Application, Tunable
from mptune.kernel.limits import whole_space
from mptune.launching import ApplicationLauncher as Launcher
from mptune.launching import Arrays, run_first
from mptune.registry import application_of_run, picture_of
from mptune.results import Trial
from mptune.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["beside", "draw", "image_of"]

#: That of a file (:mod:`mptune.plots.style`), so that nothing is scaled.
_DPI: Final = 300
#: Pictures wider than this, by their height, stand one below the other.
_WIDE: Final = 1.7
_TITLE_IN: Final = 0.35
#: Of a title: what another line takes, and one of its characters at most.
_LINE_IN: Final = 0.2
_CHARACTER_IN: Final = 0.095


def draw(run: Run, given: Tunable | str | Path | None = None) -> Figure:
    """Run the winner and the widest types on the run's first input, and draw what the application makes of either.

    Each picture has the size that the application gives it.

    Args:
        run: of an application.
        given: the application, unless it is a bundled one: that itself, a definition file or the folder that holds it.

    Raises:
        PlotError: the run is of a single kernel or has no winner, or the application has no picture, or that fails.
        KernelError: the definition is not found, or is not the run's.
        MptuneError: it cannot run here.
    """
    if not run.info.is_of_application:
        raise PlotError(
            f"{run.kernel or 'the run'} is a single kernel: only applications have a picture of their answer"
        )
    application = application_of_run(run.info, given)
    picture = picture_of(application)
    trial = run.best
    if trial is None:
        raise PlotError("there is no answer to draw: no trial satisfies the threshold")
    answers, inputs, sizes, errors = _answers(run, application, trial)
    try:
        pictures = [image_of(picture, dict(outputs), dict(inputs), sizes) for outputs in answers]
    except Exception as failure:
        what = f"{type(failure).__name__}: {failure}".removesuffix(": ")
        where = raised_at(failure, inspect.getfile(picture))
        raise PlotError(f"the picture of {application.called} failed: {what}{where}") from failure
    speedup = run.speedup(trial)
    faster = f", {speedup:.3g} times as fast" if math.isfinite(speedup) and trial is not run.baseline else ""
    widest = "in the widest types" if application.reference is None else "the reference"
    name = "the winner" if trial is run.best else "one that may be the winner"
    return beside(pictures, (widest, f"{name}: {errors}{faster}"))


def _answers(
    run: Run, application: Application, trial: Trial
) -> tuple[tuple[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any], Any, str]:
    """Return the outputs in the widest types (or the reference) and in the winner, inputs, sizes, and the errors."""
    info, sizes = run.info, sizes_of(run, application)
    backend = get_backend(runnable_backend(info.backend))
    if trial.configuration not in whole_space(application, sizes, backend.device.constraints()):
        raise MptuneError(f"{trial.configuration} is no valid configuration of {application.called} at {sizes}")
    outputs = [output.name for output in application.outputs]
    metrics = recorded_metrics(info.metric, info.metrics, outputs, application.metric)
    options = options_of(info, backend.name)
    application = with_reference(application, backend, options, metrics)
    data = DataManager(application, sizes, seed=info.seed or 0)
    launcher, arrays = Launcher(application, trial.configuration, backend, options), Arrays()
    try:
        _, stored = run_first([launcher], data.inputs, data.sizes, arrays)
        found = {name: arrays.returned(array, True) for name, array in stored.items()}
    finally:
        launcher.close()
    with np.errstate(all="ignore"):
        result = evaluate_outputs(found, data.references, metrics, data.inputs)
    named = {"error": result.error}
    if len({*info.metrics.values()}) > 1 or ": " in info.metric:  # what several metrics give is no one number
        named = {name: error for name, error in result.metrics.items() if name.startswith("error.")}
    errors = ", ".join(f"{info.measured_by(name)} {error:.3g}" for name, error in named.items())
    return (data.references, found), data.inputs, data.sizes, errors


def image_of(picture: Callable[..., Any], *given: Any) -> NDArray[np.uint8]:
    """Return a picture as an image ``(height, width, 4)``, as matplotlib makes and draws it by itself.

    Raises:
        TypeError: what the picture returns is no figure.
        Exception: whatever the picture raises.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        figure = picture(*given)
        if not isinstance(figure, Figure):
            raise TypeError(f"it returned {type(figure).__name__}; expected a matplotlib Figure")
        figure.set_dpi(_DPI)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        return np.array(canvas.buffer_rgba())


def beside(pictures: Sequence[NDArray[np.uint8]], titles: Sequence[str]) -> Figure:
    """Return a figure of pictures with a title above each: side by side, or wide ones one below the other."""
    from matplotlib.figure import Figure

    height, width, _ = pictures[0].shape
    columns = 1 if width > _WIDE * height else len(pictures)
    rows = len(pictures) // columns
    titles = [textwrap.fill(title, max(20, int(width / _DPI / _CHARACTER_IN))) for title in titles]
    title_in = _TITLE_IN + _LINE_IN * max(title.count("\n") for title in titles)
    figure = Figure((columns * width / _DPI, rows * (height / _DPI + title_in)), layout="constrained")
    for axes, image, title in zip(figure.subplots(rows, columns, squeeze=False).flat, pictures, titles, strict=True):
        axes.imshow(image, interpolation="antialiased")
        axes.set_axis_off()
        axes.set_title(title, fontsize=12)
    return figure
