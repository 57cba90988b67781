"""The run file: what was recorded is there, exactly, whatever happens to the process or the file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from described import create
from hypothesis import given, settings
from hypothesis import strategies as st

from mptune.errors import RunFileError
from mptune.results.objective import PENALTIES, Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.store import ParameterInfo, RunFile, RunInfo, RunState


def trial(number=0, **fields):
    fields = {
        "status": Status.OK,
        "key": f"key {number}",
        "measurement": Measurement({"time_ms": (number + 1) / 7}),
    } | fields
    return Trial(Configuration({"number": number, "type": "fp32"}), **fields)


def exact(value):
    """Everything a trial holds as text: NaN equals NaN, True differs from 1, 0.0 from -0.0."""
    measurement = value.measurement
    return repr(
        (
            list(value.configuration.items()),
            value.status,
            value.message,
            sorted(measurement.metrics.items()),
            measurement.times_ms,
            sorted(measurement.durations_s.items()),
            value.warnings,
            value.key,
        )
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.db"


# -- what goes in comes out --------------------------------------------------------------------

numbers = st.floats(allow_nan=True, allow_infinity=True)
seconds = st.floats(0, 1e100)
#: A value is finite; metrics and times need not be.
finite = st.floats(allow_nan=False, allow_infinity=False)
values = st.one_of(st.integers(), st.booleans(), finite, st.text(), st.permutations([0, 1, 2, 3]).map(tuple))
trials = st.builds(
    Trial,
    configuration=st.dictionaries(st.text(), values, max_size=6).map(Configuration),
    status=st.sampled_from(Status),
    message=st.text(),
    measurement=st.builds(
        Measurement,
        metrics=st.dictionaries(st.text(), numbers, max_size=4),
        times_ms=st.lists(numbers, max_size=4).map(tuple),
        durations_s=st.dictionaries(st.text(), seconds, max_size=2),
    ),
    warnings=st.lists(st.text(), max_size=2).map(tuple),
    key=st.text(),
)
texts = st.text(max_size=5)
positive = st.floats(1e-30, 1e30)
described_values = st.one_of(st.integers(), st.booleans(), finite, texts, st.just((1, 0)))
value_tuples = st.lists(described_values, min_size=1, max_size=3).map(tuple)
objectives = st.builds(
    Objective,
    metric=st.sampled_from(["time_ms", "energy_j", "time_ms * energy_j"]),
    minimise=st.booleans(),
    threshold=st.none() | positive | st.dictionaries(texts, positive, min_size=1, max_size=2),
    penalty=st.sampled_from(PENALTIES),
    alpha=positive,
    beta=positive,
    constraints=st.just(()) | st.just(("energy_j <= 1.5",)),
    also=st.just(()) | st.just(("error", "memory_bytes")),
)
infos = st.builds(
    RunInfo,
    **dict.fromkeys(["kernel", "size", "device", "compiler", "command", "template_hash", "data_key"], texts),
    **dict.fromkeys(["kernel_path", "scheduler"], st.none() | texts),
    **dict.fromkeys(["budget", "seed", "configurations"], st.none() | st.integers(0)),
    **dict.fromkeys(["observers", "constraints", "signature"], st.lists(texts, max_size=2).map(tuple)),
    **dict.fromkeys(["versions", "strategy_options", "units"], st.dictionaries(texts, texts, max_size=2)),
    sizes=st.dictionaries(texts, st.integers(0), max_size=2),
    objective=objectives,
    baseline_values=st.none() | st.dictionaries(texts, value_tuples, max_size=2),
    parameters=st.lists(st.builds(ParameterInfo, texts, texts, value_tuples), max_size=2).map(tuple),
    constants=st.dictionaries(texts, described_values, max_size=2),
)
states = st.builds(
    RunState, seconds, seconds, seconds, seconds, st.integers(0), st.integers(0), st.lists(texts).map(tuple)
)


@settings(max_examples=8, deadline=None)
@given(st.lists(trials, max_size=4, unique_by=lambda t: (t.key, t.configuration.to_json())), infos, states)
def test_round_trip(recorded, info, state):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a run?#%.db"
        with RunFile.create(path, info) as file:
            for entry in recorded:
                file.add(entry)
            file.update(state)
            assert (file.info, file.state) == (info, state)
        with RunFile.open(path) as file:
            assert [exact(entry) for entry in file.trials()] == [exact(entry) for entry in recorded]
            assert (file.info, file.state) == (info, state)


def test_adding_again_replaces_and_keeps_the_place(path):
    with create(path, {}) as file:
        for number in (3, 1, 2):
            file.add(trial(number))
        file.add(trial(3))
        assert [t.configuration["number"] for t in file.trials()] == [3, 1, 2]
        file.add(trial(1, status=Status.TIMEOUT, measurement=Measurement()))
        assert [t.status for t in file.trials()] == [Status.OK, Status.TIMEOUT, Status.OK]
        file.add(trial(1, key="after an edit"))
        assert len(file.trials()) == 4


def test_a_trial_set_aside_keeps_its_place_and_is_none_of_the_run(path):
    with create(path, {}) as file:
        file.add(*[trial(number) for number in range(4)])
        file.retire([trial(1), trial(9)])
        assert [t.configuration["number"] for t in file.trials()] == [0, 2, 3]
        assert [t.configuration["number"] for t in file.trials(stale=True)] == [1]
        file.add(trial(1))
        assert [t.configuration["number"] for t in file.trials()] == [0, 1, 2, 3]


def test_trials_added_together_are_added_all_or_none(path):
    with create(path, {"seed": 0}) as file:
        file.add(trial(1), trial(2), state=RunState(wall_s=2.5))
        with pytest.raises(AttributeError):
            file.add(trial(4), trial(5, message=3.0), state=RunState(wall_s=9.0))
        assert file.state == RunState(wall_s=2.5)
    with RunFile.open(path) as file:
        assert [t.configuration["number"] for t in file.trials()] == [1, 2]
        assert len(file.trials()) == 2
        assert (file.info.seed, file.state) == (0, RunState(wall_s=2.5))


# -- one writer, any number of readers, and death at any moment -----------------------------------


def test_a_second_writer_is_told_who_the_first_is(path):
    with create(path, {}):
        for attempt in (lambda: RunFile.open(path), lambda: create(path.with_name("run.db"), {})):
            with pytest.raises(RunFileError, match=f"being written by process {os.getpid()} |exists already"):
                attempt()
        code = f"from mptune.store import RunFile; RunFile.open({str(path)!r})"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert f"is being written by process {os.getpid()} on" in other.stderr
    RunFile.open(path).close()


def test_a_reader_coming_and_going_does_not_unlock_the_file(path):
    with create(path, {}) as file:
        file.add(trial(1))
        RunFile.open(path, read_only=True).close()
        code = f"from mptune.store import RunFile; RunFile.open({str(path)!r})"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "is being written by process" in other.stderr


def test_a_copy_made_between_two_trials_is_complete(path):
    with create(path, {"seed": 0}) as file:
        file.add(trial(1))
        shutil.copy(path, path.with_name("copy.db"))
        file.add(trial(2))
        with RunFile.open(path.with_name("copy.db")) as copy:
            assert [exact(t) for t in copy.trials()] == [exact(trial(1))]
        assert sorted(entry.name for entry in path.parent.iterdir()) == ["copy.db", "run.db"]
