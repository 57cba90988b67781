"""Recorded spaces drawn at random: every kind of parameter, every status, numbers of any size."""

from __future__ import annotations

from hypothesis import strategies as st

from mptune.interop.recorded import Record, assemble
from mptune.results.trial import Measurement, Status
from mptune.run import Run
from mptune.space.parameters import (
    BooleanParameter,
    CategoricalParameter,
    OrdinalParameter,
    PermutationParameter,
    PolicyParameter,
    PrecisionParameter,
)

PARAMETERS = [
    OrdinalParameter("block", [32, 64, 128]),
    BooleanParameter("padded"),
    CategoricalParameter("layout", [1, 0, 7]),
    PermutationParameter("loops", 2),
    PolicyParameter("policy", ["accurate", "fast"]),
    PrecisionParameter("x_type", ["fp64", "fp16"]),
]
NAMES = [parameter.name for parameter in PARAMETERS]

#: Below 1e20, which is a failure in other tools' files.
numbers = st.floats(1e-300, 1e19)
values = st.tuples(*(st.sampled_from(p.values) for p in PARAMETERS))
durations = st.dictionaries(st.sampled_from(["compile", "accuracy", "timing"]), st.floats(0.0, 1e4))
#: A trial that is too inaccurate is not always timed.
measurements = st.builds(
    lambda timed, time_ms, error, bytes_, times_ms, durations_s: Measurement(
        {**({"time_ms": time_ms} if timed else {}), "error": error, "memory_bytes": bytes_},
        tuple(times_ms) if timed else (),
        durations_s,
    ),
    st.booleans(),
    numbers,
    st.one_of(st.just(0.0), numbers),
    numbers,
    st.lists(numbers, max_size=4),
    durations,
)
ran = st.builds(
    lambda row, status, message, measurement: (
        Record(row, Status.OK, "", measurement)
        if "time_ms" in measurement.metrics and status is None
        else Record(row, status or Status.INACCURATE, message, measurement)
    ),
    values,
    st.sampled_from([None, Status.INACCURATE, Status.VIOLATION]),
    st.text(max_size=20),
    measurements,
)
failed = st.builds(
    lambda row, status, message, durations_s: Record(row, status, message, Measurement(durations_s=durations_s)),
    values,
    st.sampled_from([status for status in Status if not status.is_valid]),
    st.text(max_size=20),
    durations,
)
records = st.lists(st.one_of(ran, failed), min_size=1, max_size=30, unique_by=lambda record: record.values)


def recorded(made: list[Record]) -> Run:
    """Return the entries as a space of :data:`PARAMETERS`."""
    return assemble(
        "space",
        NAMES,
        {},
        made,
        parameters=PARAMETERS,
        kernel="axpy",
        device="A device",
        problem_size=[1000, 3],
        units={"memory_bytes": "bytes"},
        signature=["policy", "x_type"],
    )
