"""The error that each threshold limits.

A threshold is a number, or numbers by name:

- ``OUTPUT``: the output's error by its own metric;
- ``METRIC``: the worst output's error by that metric;
- ``OUTPUT.METRIC``: the output's error by that metric;
- empty: the worst output's error by its own metric; beside named outputs, the error of every other output.

Planned and recorded thresholds use the spelling of the trials' metric ``error.NAME``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping

from mptune.accuracy.evaluate import Metrics, all_metrics, judged, metric_names_by_error, metric_text
from mptune.accuracy.metrics import METRICS, ErrorMetric, resolve
from mptune.errors import MptuneError, UnknownNameError
from mptune.kernel.regions import key_of

#: The largest allowed error, of the worst output or by name; None for no limit.
Threshold = float | Mapping[str, float] | None


def planned_threshold(
    threshold: Threshold, outputs: Collection[str], metrics: Metrics, *, is_own: bool
) -> tuple[Metrics, Threshold]:
    """Return the metrics to measure and the thresholds by the names of their errors.

    A trial's ``error`` is by the outputs' metrics. If these are the kernel's own (``is_own``) and have no threshold, it
    is by the first metric that has one for all outputs.
    """
    threshold = _spread(threshold, outputs)
    if not isinstance(threshold, Mapping) or all(name in outputs for name in threshold):
        return metrics, threshold
    further = judged(outputs, metrics)
    known = {metric.key: metric for _, metric in further.values()}
    leading = {output: further.pop(output)[1] for output in outputs}
    limits: dict[str, float] = {}
    given = dict(threshold)
    own_limit = given.pop("", None)
    for name, limit in given.items():
        key = name
        if name not in outputs:
            output, metric = _parse_name(name, outputs, known)
            key = _key(output, metric)
            if key in outputs:
                raise MptuneError(f"threshold {name!r}: {key!r} is also an output; give OUTPUT.METRIC for each output")
            further[key] = output, metric
        _put(limits, key, name, limit)
    of_all = [further[key][1] for key in limits if key in further and not further[key][0]]
    has_limit = own_limit is not None or all(metric in of_all for metric in leading.values())
    if is_own and of_all and not has_limit and not any(name in outputs for name in limits):
        leading = dict.fromkeys(outputs, of_all[0])
    if own_limit is not None:
        first = next(iter(leading.values()))
        if all(metric == first for metric in leading.values()) and first.key not in outputs:
            further[first.key] = "", first
            limits = {first.key: own_limit, **limits}
        else:
            limits = {**dict.fromkeys(outputs, own_limit), **limits}
    return {**leading, **{key: metric for key, (_, metric) in further.items()}}, limits


def _spread(threshold: Threshold, outputs: Collection[str]) -> Threshold:
    """Replace an unnamed threshold beside named outputs by thresholds of the other outputs."""
    if not isinstance(threshold, Mapping) or "" not in threshold or not any(name in outputs for name in threshold):
        return threshold
    others = [output for output in outputs if output not in threshold]
    if not others:
        raise MptuneError(f"threshold {threshold['']:g} applies to no output: each ({', '.join(outputs)}) has its own")
    return {**dict.fromkeys(others, threshold[""]), **{name: limit for name, limit in threshold.items() if name}}


def recorded_threshold(
    threshold: Threshold, names: Collection[str], metric: str, further: Mapping[str, str] | None = None
) -> Threshold:
    """Return a threshold by the names of recorded errors.

    ``names`` are the metrics of recorded trials, ``metric`` is their :func:`~mptune.accuracy.evaluate.metric_text`, and
    ``further`` are their :func:`~mptune.accuracy.evaluate.metric_names_by_error`.
    """
    if not isinstance(threshold, Mapping):
        return threshold
    recorded = [name.removeprefix("error.") for name in names if name.startswith("error.")]
    others = {key_of(text) for text in (further or {}).values()}
    threshold = _spread(threshold, [name for name in recorded if "." not in name and name not in others])
    assert isinstance(threshold, Mapping)
    found: dict[str, float] = {}
    for name, limit in threshold.items():
        _put(found, name if not name or name in recorded else _recorded(name, recorded, metric), name, limit)
    return found[""] if found.keys() == {""} else found


def recorded_metrics(metric: str, further: Mapping[str, str], outputs: Collection[str], own: Metrics) -> Metrics:
    """Return the metrics of a run, given as for :func:`recorded_threshold`."""
    if metric_text(outputs, own) == metric and metric_names_by_error(outputs, own) == further:
        return own
    known = {each.name: each for each in all_metrics(own)}
    named = dict.fromkeys(outputs, metric)
    for part in metric.split(", "):
        output, colon, name = part.partition(": ")
        if colon and output in named:
            named[output] = name
    return {name: known.get(text) or resolve(text) for name, text in {**named, **further}.items()}


def _parse_name(name: str, outputs: Collection[str], known: Mapping[str, ErrorMetric]) -> tuple[str, ErrorMetric]:
    """Parse ``METRIC`` or ``OUTPUT.METRIC``; return the output (empty for all) and the metric."""
    output, dot, rest = name.partition(".")
    if dot and output in outputs:
        return output, known[rest] if rest in known else resolve(rest)
    if name in known:
        return "", known[name]
    try:
        return "", resolve(name)
    except UnknownNameError as error:
        if " " in name:  # the error is about the regions
            raise
        if dot and rest in (*known, *METRICS):
            raise UnknownNameError(f"output in the error threshold {name!r}:", output, outputs) from error
        valid = dict.fromkeys((*outputs, *known, *METRICS))
        raise UnknownNameError("output or error metric in the error threshold:", name, valid) from error


def _key(output: str, metric: ErrorMetric) -> str:
    return f"{output}.{metric.key}" if output else metric.key


def _put(limits: dict[str, float], key: str, name: str, limit: float) -> None:
    if key in limits:
        raise MptuneError(f"threshold {name!r}: the error {key or 'of all outputs'!r} has two thresholds")
    limits[key] = limit


def _recorded(name: str, recorded: Collection[str], metric: str) -> str:
    """Return the recorded error of a threshold's name; empty for the worst output."""
    with contextlib.suppress(MptuneError):  # an unknown metric
        output, meant = _parse_name(name, [each for each in recorded if "." not in each], {})
        if (key := _key(output, meant)) in recorded:
            return key
        if meant.name == metric or (output and f"{output}: {meant.name}" in metric.split(", ")):
            return output
    known = [*recorded, *([metric] if metric else [])]
    raise UnknownNameError("output or error metric in the error threshold:", name, known)
