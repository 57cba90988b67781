from __future__ import annotations

from pathlib import Path

from mptune.errors import UnknownNameError, did_you_mean


def test_message_names_the_thing_the_nearest_and_the_valid_ones() -> None:
    error = UnknownNameError("strategy", "bayesain", ["random", "bayesian"], hint="See the README.")
    assert (
        str(error) == "unknown strategy 'bayesain'; did you mean 'bayesian'? (valid: random, bayesian). See the README."
    )


def test_suggestion_ignores_case_and_keeps_the_spelling() -> None:
    assert did_you_mean("nrmse_", ["MAE", "NRMSE"]) == "; did you mean 'NRMSE'?"


def test_a_file_is_suggested_only_if_its_name_is_near() -> None:
    folder = Path("runs")
    assert did_you_mean("nosuch.db", ["f5_nopolicy.db"], folder) == ""
    assert did_you_mean("gem.db", ["gemm.db", "axpy.db"], folder) == f"; did you mean {str(folder / 'gemm.db')!r}?"


def test_the_beginning_of_a_name_suggests_it() -> None:
    assert did_you_mean("Conv", ["axpy", "convolution2d"]) == "; did you mean 'convolution2d'?"
    assert did_you_mean("co", ["axpy", "convolution2d"]) == ""
