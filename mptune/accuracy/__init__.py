"""Error metrics and the error of a configuration's outputs."""

from mptune.accuracy.evaluate import AccuracyResult, evaluate_outputs
from mptune.accuracy.metrics import METRICS, ErrorMetric, resolve

__all__ = ["METRICS", "AccuracyResult", "ErrorMetric", "evaluate_outputs", "resolve"]
