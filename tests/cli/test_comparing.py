"""``mptune compare`` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Call


@pytest.fixture
def compare(mptune: Call) -> Call:
    return lambda *arguments: mptune("compare", *arguments, "--processes", 1)


def test_the_json_document_holds_every_figure(compare: Call, recording: Callable[..., Path]) -> None:
    spaces = [recording(name) for name in ("one", "two")]
    options = ("--strategies", "genetic,random", "--budget", 50, "--repeats", 2, "--seed", 3)
    done = compare(*spaces, *options, "--strategy-option", "genetic.population=6", "--json")
    assert done.code == 0
    document = json.loads(done.out)
    assert (document["budget"], document["seeds"], document["checkpoints"]) == (50, [3, 4], [40])
    assert [row["space"] for row in document["spaces"]] == ["one", "two"]
    assert [row["strategy"] for row in document["strategies"]] == ["genetic", "random"]
    assert [(c["space"], c["strategy"]) for c in document["cells"]] == [
        (space, strategy) for space in ("one", "two") for strategy in ("genetic", "random")
    ]
    for cell in document["cells"]:
        assert cell["mean_distance"] >= 0
        assert 0 < cell["best_at_end"] <= 1
        assert set(cell["evaluations_within"]) == {"1%", "5%"}
        (row,) = cell["quartiles"]
        assert row["evaluations"] == 40
        assert row["lower"] <= row["median"] <= row["upper"]
    wins = document["win_probabilities"]
    assert wins["genetic"]["random"] + wins["random"]["genetic"] == pytest.approx(1)


def test_several_objectives(compare: Call, recording: Callable[..., Path]) -> None:
    space = recording("one", errors=True)
    common = (space, "--objectives", "time,error", "--budget", 60, "--repeats", 2)
    done = compare(*common, "--strategies", "exhaustive,random")
    assert done.code == 0
    assert "share of the front's hypervolume that is missing" in done.out
    assert all(word in done.out for word in ("one", "exhaustive", "random", "within 1%", "best at end", "100 %"))
    refused = compare(*common, "--strategies", "genetic")
    assert refused.code == 2
    assert "supports one objective" in refused.err


def test_a_hyperparameter_reaches_its_strategy(compare: Call, recording: Callable[..., Path]) -> None:
    space = recording("one")
    common = (space, "--strategies", "genetic", "--budget", 15, "--repeats", 5, "--json")
    populations = (3, 3, 12)
    small, again, large = (compare(*common, "--strategy-option", f"genetic.population={n}") for n in populations)
    quartiles = [json.loads(done.out)["cells"][0]["quartiles"] for done in (small, again, large)]
    assert quartiles[0] == quartiles[1] != quartiles[2]


def test_a_threshold_leaves_out_spaces_where_nothing_meets_it(
    compare: Call, recording: Callable[..., Path], tmp_path: Path
) -> None:
    accurate, never = recording("accurate", errors=True), tmp_path / "never.json"
    never.write_text(accurate.read_text().replace("1e-10", "0.1").replace("1e-09", "0.1"))
    common = ("--strategies", "random", "--budget", 40, "--repeats", 1, "--json")
    both = compare(accurate, never, *common, "--max-error", "2e-9")
    assert both.code == 0
    assert [cell["space"] for cell in json.loads(both.out)["cells"]] == ["accurate"]
    assert "left out" in both.err
    assert "never" in both.err
    alone = compare(never, *common, "--max-error", "2e-9")
    assert alone.code == 1
    assert "no recorded configuration is within the limits" in alone.err
    assert json.loads(alone.out)["cells"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--strategies", "random,genetc"), ("'genetc'", "did you mean 'genetic'")),
        (("--strategies", "random,random"), ("given twice",)),
        (("--strategies", "genetic", "--strategy-option", "genetic.populaton=3"), ("did you mean 'population'",)),
        (("--strategies", "genetic", "--strategy-option", "population=3"), ("STRATEGY.NAME=VALUE",)),
        (("--strategies", "random", "--max-error", "1e-3"), ("has no errors",)),
    ],
)
def test_wrong_input_exits_with_two_and_says_what_is_wrong(
    compare: Call, recording: Callable[..., Path], arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    done = compare(recording("one"), *arguments)
    assert done.code == 2
    assert done.out == ""
    for word in words:
        assert word in done.err
