"""The pictures of an application's answer, drawn by its definition: in the widest types, and of the winner.

Unlike other charts, this chart runs the application, in the given definition or the bundled one of that name.
"""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import altair as alt

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
from mptune.results.description import result_text
from mptune.run import Run
from mptune.source.loading import picture_of, sizes_of, tunable_of_run


def draw(run: Run, given: Tunable | str | Path | None, *, has_titles: bool) -> alt.VConcatChart:
    """Run the winner and the widest types on the first draw of the inputs, and return the pictures of both answers."""
    if not run.info.is_of_application:
        raise PlotError(f"{run.kernel or 'the run'} is a single kernel: only applications have a picture of the answer")
    application = tunable_of_run(run.info, given, kind=Application, on_warning=lambda _: None)
    picture, has_reference = picture_of(application), application.reference is not None
    trial = run.best
    if trial is None:
        raise PlotError("there is no answer to draw: no trial satisfies the threshold")
    info, sizes = run.info, sizes_of(run.info, application)
    backend = get_backend(runnable_backend(info.backend))
    if trial.configuration not in whole_space(application, sizes, backend.device.facts()):
        raise MptuneError(f"{trial.configuration} is no valid configuration of {application.called} at {sizes}")
    options = options_of(info, backend.name)
    application = with_reference(application, backend, options)
    data = DataManager(application, sizes, seed=info.seed or 0)
    with Program(application, trial.configuration, data.sizes, backend, options) as program:
        answers = (data.references, run_once(program, data))
    pictures = []
    try:
        for answer in answers:
            pictures.append(picture(dict(answer), dict(data.inputs), data.sizes))
            if not isinstance(pictures[-1], alt.TopLevelMixin):
                raise TypeError(f"it returned {type(pictures[-1]).__name__}; expected a chart of Vega-Altair")
    except Exception as failure:
        what = f"{type(failure).__name__}: {failure}".removesuffix(": ")
        where = raised_at(failure, inspect.getfile(picture))
        raise PlotError(f"the picture of {application.called} failed: {what}{where}") from failure
    widest = "the reference" if has_reference else "in the widest types"
    titles = (widest, f"the winner: {result_text(run, trial)}") if has_titles else ("", "")
    parts = [
        alt.vconcat(picture, title=alt.TitleParams(textwrap.wrap(title, 48), anchor="start"))
        for picture, title in zip(pictures, titles, strict=True)
    ]
    config = {"background": "white", "view": {"stroke": None}, "legend": {"titleLimit": 0}}
    return alt.vconcat(*parts, spacing=30).configure(**config)
