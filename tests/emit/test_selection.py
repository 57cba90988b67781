"""Which trial is taken home, of which kernel; and what the README says of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import own_kernel
import pytest
from awkward_kernel import AWKWARD, NASTY, run_of

from mptune.emit import emit, emit_all_devices, winner_of
from mptune.errors import KernelError, MptuneError
from mptune.kernel import Kernel
from mptune.paths import bundled_folder
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.source.loading import definition_hash, load_kernel, remarks, tunable_of_run
from mptune.source.render import template_hash
from mptune.space.parameters import OrdinalParameter

POLY = own_kernel.kernel


def trial(kernel: Kernel, status: Status = Status.OK, **values: object) -> Trial:
    metrics = {name: float(values.pop(name)) for name in ("time_ms", "error") if name in values}  # type: ignore[arg-type]
    configuration = kernel.configuration(values)
    message = "" if status is Status.OK else f"it was {status}"
    return Trial(configuration, status, message, Measurement(metrics), key=f"{abs(hash(configuration)):016x}")


@pytest.fixture
def run() -> Run:
    trials = [
        trial(POLY, time_ms=8, error=1e-16),
        trial(POLY, block=64, time_ms=4, error=1e-15),
        trial(POLY, x_type="fp32", y_type="fp32", time_ms=2, error=1e-7),
        trial(POLY, Status.INACCURATE, x_type="fp16", y_type="fp16", time_ms=1, error=1e-3),
        trial(POLY, Status.CRASH, x_type="fp16"),
    ]
    return run_of(POLY, trials, threshold=1e-6)


def chosen(run: Run, **options: object) -> Trial | None:
    winner = winner_of(run, kernel=POLY, **options)  # type: ignore[arg-type]
    return None if winner is None else winner.trial


def test_best_under_the_runs_threshold_or_another(run: Run) -> None:
    assert chosen(run) is run.trials[2]
    assert chosen(run, max_error=1e-10) is run.trials[1]
    assert chosen(run, max_error=1e-2) is run.trials[3]
    assert chosen(run, max_error=1e-30) is None


def test_configuration_by_number_key_or_values(run: Run) -> None:
    assert chosen(run, configuration="1") is run.trials[0]
    assert chosen(run, configuration=run.trials[3].key[:12].upper()) is run.trials[3]
    assert chosen(run, configuration="x_type=half, y_type = fp16") is run.trials[3]
    assert chosen(run, configuration=str(run.trials[1].configuration)) is run.trials[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "the run has the trials 1 to 5"),
        ("6", "the run has the trials 1 to 5"),
        ("5", "did not run: crash, it was crash"),
        ("zzzzzzzzzz", "0 keys begin so"),
        ("x_type=fp64", r"2 trials have these values: trial 1 \(block=.*; trial 2 \(.*\); give .* as in \"trial 1\""),
        ("block=256", "0 trials have these values"),
        ("block=32,block=32", "each name once"),
        ("blok=32", "unknown parameter of kernel poly: 'blok'; did you mean 'block'"),
        ("block=33", "unknown value of parameter block"),
    ],
)
def test_a_configuration_that_is_not_one_is_told(run: Run, text: str, message: str) -> None:
    with pytest.raises(MptuneError, match=message):
        chosen(run, configuration=text)


def test_permutations_have_commas_of_their_own() -> None:
    both = [trial(AWKWARD, order=order, time_ms=1, error=0) for order in ((0, 1, 2), (2, 1, 0))]
    winner = winner_of(run_of(AWKWARD, both), configuration="order=(2, 1, 0), block=32", kernel=AWKWARD)
    assert winner is not None
    assert winner.trial is both[1]


# -- the definition ------------------------------------------------------------------------------


def ignored(_: str) -> None:
    pass


def test_a_bundled_kernel_is_found_wherever_the_run_was_made() -> None:
    axpy = load_kernel("axpy")
    here = bundled_folder("kernels") / "axpy.py"
    for path in (str(here), "/elsewhere/site-packages/mptune/kernels/axpy.py", None):
        assert tunable_of_run(run_of(axpy, [], kernel_path=path).info, on_warning=ignored).path == here


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A definition file that leaves a trace where it is run, in a folder of its own."""
    path = tmp_path / "there" / "poly.py"
    path.parent.mkdir()
    path.write_text(Path(own_kernel.__file__).read_text() + f"\nopen({str(tmp_path / 'ran')!r}, 'w').close()\n")
    return path


@pytest.mark.parametrize("name", ["poly", "axpy"])
def test_what_a_run_file_names_is_never_run(own: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own.parent)
    info = dataclasses.replace(run_of(POLY, [], kernel_path=str(own)).info, kernel=name)
    with pytest.raises(KernelError, match=f"not (a|the) bundled one: give its definition with --kernel.*names {own}"):
        tunable_of_run(info)
    assert not own.parent.with_name("ran").exists()


def test_a_definition_is_given_as_a_file_or_a_folder(own: Path) -> None:
    info = run_of(POLY, []).info
    for given in (own, str(own), own.parent):
        assert tunable_of_run(info, given, on_warning=ignored).path == own
    (own.parent / "another.py").write_text("")
    assert tunable_of_run(info, own.parent, on_warning=ignored).path == own
    own.rename(own.with_name("renamed.py"))
    with pytest.raises(KernelError, match=r"holds another.py, renamed.py: expected poly.py, or one definition file"):
        tunable_of_run(info, own.parent)


def test_another_kernel_or_a_changed_one_is_refused(run: Run) -> None:
    with pytest.raises(KernelError, match="the run is of kernel 'poly', not of 'awkward'"):
        tunable_of_run(run.info, AWKWARD)
    changed = dataclasses.replace(POLY, parameters=[OrdinalParameter("block", [32, 64]), *POLY.parameters[1:]])
    with pytest.raises(
        KernelError, match=r"parameter 'block' had the values \[32, 64, 128, 256\] and has .*\[32, 64\]"
    ):
        tunable_of_run(run.info, changed)
    wider = OrdinalParameter("block", [16, 32, 64, 128, 256])  # a run may have left out values
    changed = dataclasses.replace(POLY, parameters=[wider, *POLY.parameters[1:]])
    assert tunable_of_run(run.info, changed, on_warning=ignored) is changed
    fewer = [p for p in POLY.parameters if p.name != "unroll"]
    with pytest.raises(KernelError, match=r"parameter 'unroll' had the values .* and has no values"):
        tunable_of_run(run.info, dataclasses.replace(POLY, parameters=fewer, grid=["ceildiv(n, block)"]))


def test_what_differs_from_the_run_is_told(own: Path) -> None:
    kernel = load_kernel(own)
    info = run_of(kernel, [], template_hash=template_hash(kernel), definition_hash=definition_hash(kernel)).info
    told: list[str] = []
    assert tunable_of_run(info, own, on_warning=told.append).path == own
    assert not told
    own.write_text(own.read_text() + "# edited\n")
    with pytest.warns(UserWarning, match="the definition of kernel poly changed since the run"):
        tunable_of_run(info, own)
    (both,) = remarks(dataclasses.replace(info, template_hash="0"), load_kernel(own))
    assert both.startswith("the definition and the template of kernel poly changed")
    assert "made with mptune 0.0.1" in remarks(dataclasses.replace(info, mptune_version="0.0.1"), kernel)[0]


# -- the files -----------------------------------------------------------------------------------


def test_readme_has_the_numbers_and_says_what_they_are_of(run: Run, tmp_path: Path) -> None:
    winner = winner_of(run, kernel=POLY)
    assert winner is not None
    emission = emit(winner, tmp_path)
    assert set(emission.files) == {path.name for path in tmp_path.iterdir()}
    assert dict(winner.sizes) == {"n": 5003}
    text = (tmp_path / "README.md").read_text()
    assert "| time (ms) | 2 | 4 |" in text
    assert "| speedup | 2x (unsettled) | 1 |" in text
    assert "| error | 1e-07 | 1e-15 |" in text
    assert "```\nmptune tune\n```" in text
    assert "threshold: `NRMSE <= 1e-06`" in text
    assert "`n`: may differ from 5003" in text
    named = winner_of(run, configuration="4", kernel=POLY)
    assert named is not None
    emit(named, tmp_path / "named")
    assert "exceeds the limits of the run" in (tmp_path / "named" / "README.md").read_text()


def test_readme_shows_every_text_as_text(tmp_path: Path) -> None:
    nasty = f"{NASTY} <img src=x onerror=alert(1)> ![x](y) | ```"
    run = run_of(
        AWKWARD,
        [trial(AWKWARD, register=NASTY, time_ms=1, error=0.0)],
        device=nasty,
        command=f"mptune {nasty}\n```\n# heading",
        versions={nasty: nasty},
        created_at=f"{nasty}\n# made",
    )
    winner = winner_of(run, kernel=AWKWARD)
    assert winner is not None
    emit(winner, tmp_path)
    outside, fenced, fence = [], [], ""
    for line in (tmp_path / "README.md").read_text().splitlines():
        if not fence and line.startswith("```"):
            fence = line
        elif line == fence:
            fence = ""
        else:
            (fenced if fence else outside).append(line)
    assert not [line for line in (*outside, *fenced) if line.startswith(("# heading", "# made"))]
    assert len(fenced) == 1
    for line in outside:
        rest = line
        while (start := rest.find("`")) >= 0:
            ticks = len(rest[start:]) - len(rest[start:].lstrip("`"))
            end = rest.index("`" * ticks, start + ticks)
            rest = rest[:start] + rest[end + ticks :]
        assert "<" not in rest
        assert "![" not in rest


def test_files_that_were_not_emitted_stay(run: Run, tmp_path: Path) -> None:
    winner = winner_of(run, kernel=POLY)
    assert winner is not None
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(MptuneError, match=r"README\.md exists and was not written by mptune emit"):
        emit(winner, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    (tmp_path / "README.md").unlink()
    emit(winner, tmp_path)
    emit(winner, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(MptuneError, match="cannot write to"):
        emit(winner, tmp_path / "file")


def test_a_header_of_all_devices_needs_one_kernel_one_size_and_different_devices(run: Run, tmp_path: Path) -> None:
    winner = winner_of(run, kernel=POLY)
    other = winner_of(run_of(POLY, run.trials, sizes={"n": 7}), kernel=POLY)
    third = winner_of(run_of(AWKWARD, [trial(AWKWARD, time_ms=1, error=0)]), kernel=AWKWARD)
    assert winner is not None
    assert other is not None
    assert third is not None
    with pytest.raises(MptuneError, match="two runs are of device"):
        emit_all_devices([winner, winner], tmp_path)
    with pytest.raises(MptuneError, match="runs at sizes n=5003 and n=7"):
        emit_all_devices([winner, other], tmp_path)
    with pytest.raises(MptuneError, match="runs of kernels poly and awkward"):
        emit_all_devices([winner, third], tmp_path)
    assert not list(tmp_path.iterdir())
