"""Programs with other types in their own text: what is changed, that it compiles, runs and gives the answer."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import caller
from described import described_run

from mptune.adopt import into as module
from mptune.adopt import patching
from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.answers import Answers
from mptune.adopt.capture import Capture, capture
from mptune.adopt.classes import Member, TypeClass, TypeClasses, TypeSlot, told
from mptune.adopt.classing import type_classes
from mptune.adopt.findings import AdoptedParameter
from mptune.adopt.into import IntoSettings, into
from mptune.adopt.left_over import wide_operations
from mptune.adopt.parsing import ProgramError, SourceFile
from mptune.adopt.patching import Patch, own_types
from mptune.adopt.patching_loops import patch
from mptune.adopt.reading import Program, read
from mptune.adopt.running import Built, build
from mptune.errors import MptuneError, RunFileError
from mptune.kernel import Application
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.schemas import schema
from mptune.source.loading import load_tunable
from mptune.space.configuration import Configuration
from mptune.store import RunFile
from tests.application_runs import tuned_answer
from tests.tiers import few

PROGRAMS = Path(__file__).parent / "programs"
FOR_GPUS = ("constant_tables.cu", "shared_reduction.cu", "several_files", "owned_arrays.cu")
OFFERED = {"double": ("fp64", "fp32", "fp16", "bf16"), "float": ("fp32", "fp16", "bf16")}


@cache
def understood(name: str) -> tuple[Program, TypeClasses]:
    path = PROGRAMS / name
    program = read(sorted(path.glob("*.cu")) if path.is_dir() else [path])
    return program, type_classes(program)


def patched(name: str, wanted: Mapping[str, str]) -> Patch:
    return patch(*understood(name), wanted)


def changes(name: str, made: Patch) -> list[str]:
    """The new lines, but for those of helpers and headers."""
    old = {line for file in understood(name)[0].files for line in file.text.splitlines()}
    new = [line for file in made.changed for line in file.text.splitlines() if line not in old]
    helpers = {line for text in patching._HELPERS.values() for line in text.splitlines()}
    new = [line for line in new if line not in helpers]
    return [line.strip() for line in new if not line.startswith(("#include", "template <class"))]


# -- the text --------------------------------------------------------------------------------------


@pytest.mark.full
def test_nothing_wanted_is_nothing_changed() -> None:
    for name in ("rod.cu", "template_kernel.cu", "several_files"):
        assert patched(name, {}).changed == ()
        assert patched(name, own_types(understood(name)[1])).changed == ()


def test_16_bits_are_for_arrays_in_memory() -> None:
    made = patched("rod.cu", {"rod": "fp16", "rate": "bf16"})
    assert (made.types["rod"], made.types["rate"]) == ("fp16", "fp32")
    assert made.notes == ("rate: float instead, since a single number has no type of 16 bits",)


def test_constants_with_values_have_32_bits() -> None:
    made = patched("constant_tables.cu", {"legendre": "fp16"})
    assert made.types["legendre"] == "fp32"


@pytest.mark.full
def test_files_without_a_type_that_changes_stay() -> None:
    made = patched("several_files", {"temperature": "fp32", "EMISSIVITY": "fp32"})
    assert [file.path.name for file in made.changed] == ["physics.cu"]


def test_vectors_have_one_type_of_32_bits() -> None:
    made = patched("typedefs.cu", {"force": "fp16", "position": "fp32", "sum": "fp32", "p": "fp32"})
    assert {made.types[name] for name in ("force", "position", "sum", "p")} == {"fp32"}
    assert any("no type of 16 bits" in note for note in made.notes)


@pytest.mark.full
def test_the_host_fills_structs_of_other_types_without_narrowing_in_braces() -> None:
    made = patched("owned_arrays.cu", {"at": "fp32", "stiffness": "fp32"})
    assert made.notes == ()
    path = PROGRAMS / "owned_arrays.cu"
    again = read([path], texts={path.resolve(): made.changed[0].text})
    assert not [problem for unit in again.units for problem in unit.diagnostics() if "narrow" in problem.message]


def test_a_vector_that_keeps_its_type_keeps_that_of_others(tmp_path: Path) -> None:
    path = tmp_path / "turn.cu"
    path.write_text(
        "__global__ void turn(const double2* by, double2* x) {\n    double2 a = by[0];\n    x[0] = a;\n}\n"
        "int main(int, char** bytes) {\n    double2 *by, *x;\n    cudaMalloc(&by, 16);\n    cudaMalloc(&x, 16);\n"
        "    cudaMemcpy(by, (void*)bytes[0], 16, cudaMemcpyHostToDevice);\n    turn<<<1, 1>>>(by, x);\n}\n"
    )
    program = read([path])
    classes = type_classes(program)
    made = patch(program, classes, {each.name: "fp32" for each in classes.classes})
    assert made.changed == ()
    assert made.notes == (
        "by: double instead, since what the copy at turn.cu:9 takes does not say its type",
        "x, a: double instead, since vectors of different types do not convert to each other",
    )


def test_a_template_launched_by_a_template_keeps_its_types() -> None:
    names = [each.name for each in understood("template_kernel.cu")[1].classes if each.scalar == "double"]
    made = patched("template_kernel.cu", dict.fromkeys(names, "fp32"))
    assert made.changed == ()
    assert any("launched by a template" in note for note in made.notes)


@pytest.mark.parametrize(
    ("name", "lines"),
    few(
        [
            (
                "conjugate_gradients.cu",
                ["cudaMalloc(&d_p, n * sizeof(float));", "cudaMemset(d_x, 0, n * sizeof(float));"],
            ),
            ("shared_reduction.cu", ["total<<<1, 16, 16 * sizeof(float)>>>(d_sums, d_norm, blocks);"]),
            (
                "boundaries.cu",
                [
                    "cudaMemcpy(d_copy, d_sums, (bytes + 16) / 2, cudaMemcpyDeviceToDevice);",
                    "copy_converted(d_at, at.data(), n * sizeof(double3), cudaMemcpyHostToDevice);",
                    "copy_to_symbol<float, double>(table, pairs, sizeof(pairs));",
                ],
            ),
            ("typed_templates.cu", ["return rate * (around - 2.0f * now[i]);"]),
        ],
        2,
    ),
)
def test_lines_are_as_a_person_would_change_them(name: str, lines: list[str]) -> None:
    doubles = [each.name for each in understood(name)[1].classes if not each.kept and each.scalar == "double"]
    new = changes(name, patched(name, dict.fromkeys(doubles, "fp32")))
    assert set(lines) <= set(new)
    assert max(map(len, new)) <= 120


def test_a_variable_that_only_counts_bytes_of_the_new_type_is_computed_with_it(tmp_path: Path) -> None:
    path = tmp_path / "count.cu"
    text = (
        "__global__ void twice(double* x) { x[0] = 2 * x[0]; }\n"
        "int main(int n, char**) {\n    size_t bytes = n * sizeof(double);\n    double* x;\n"
        "    cudaMalloc(&x, bytes);\n    cudaMemset(x, 0, bytes);\n    twice<<<1, 1>>>(x);\n}\n"
    )
    path.write_text(text)
    program = read([path])
    classes = type_classes(program)
    (file,) = patch(program, classes, dict.fromkeys(own_types(classes), "fp32")).changed
    assert file.text == text.replace("double", "float")


def test_helpers_are_after_the_headers_however_many_comments_a_file_begins_with() -> None:
    begin = "/* one */\n/* two */ // three\n" * 200
    guarded = begin + "#ifndef A_H\n#define A_H\n#include <cmath>\n#ifdef B\n#include <b.h>\n#endif\nint a;\n#endif\n"
    rest = patching._after_includes(guarded, "#include <vector>\n", "HELPERS\n").removeprefix(begin).splitlines()
    assert rest[5:9] == ["#endif", "#include <vector>", "HELPERS", "int a;"]
    plain = patching._after_includes(f"{begin}#pragma once\nint a;\n", "#include <vector>\n", "")
    assert plain.removeprefix(begin) == "#pragma once\n#include <vector>\nint a;\n"


# -- any types ---------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _without_nvcc(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out nvcc, which takes seconds for each program, where a test does not ask for it."""
    if request.node.get_closest_marker("nightly") is None:
        which = shutil.which
        monkeypatch.setattr("shutil.which", lambda name, *given: None if name == "nvcc" else which(name, *given))


@pytest.fixture(scope="module")
def known(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Capture]:
    """The name of a program, and what it does as it is."""
    name, *arguments = request.param
    program, _ = understood(name)
    built = build(program.sources, program.files, optimisation="-O0")
    return name, capture(built, arguments, tmp_path_factory.mktemp("original"))


def compared(known: tuple[str, Capture], made: Patch, built: Built, folder: Path) -> Iterator[tuple[Any, Any]]:
    """Yield what a patched program copies to the host first, and what the program itself copies."""
    name, original = known
    program, classes = understood(name)
    ours = Answers(program, classes, made.types).of(capture(built, original.arguments, folder, may_fail=True))
    theirs = Answers(program, classes, own_types(classes)).of(original)
    assert ours.keys() == theirs.keys()
    for each in (each for each in theirs if each != "misses"):
        one, other = ours[each][0], theirs[each][0]
        assert one is not None
        assert other is not None
        assert one.shape == other.shape
        yield one, other


ANY = [
    *(("macro_types.cu",), ("typed_templates.cu",), ("constant_tables.cu",), ("rod.cu", "200", "20")),
    *(("typedefs.cu",), ("struct_by_value.cu",), ("struct_of_fields.cu", "64", "6"), ("shared_reduction.cu",)),
    *(("several_files",), ("array_of_structs.cu",), ("managed_memory.cu",), ("owned_arrays.cu",)),
    *(("written_arguments.cu",), ("mixed_template.cu",), ("boundaries.cu",)),
]


@pytest.mark.full
@pytest.mark.parametrize("known", few(map(pytest.param, ANY), 3, 3), indirect=True, ids=lambda given: given[0])
def test_any_types_compile_and_give_about_the_answer(known: tuple[str, Capture], tmp_path: Path) -> None:
    _any_types(known, tmp_path)


@pytest.mark.nightly
@pytest.mark.nvcc
@pytest.mark.parametrize(
    "known", [each for each in ANY if each[0] in FOR_GPUS], indirect=True, ids=lambda given: given[0]
)
def test_nvcc_takes_any_types(known: tuple[str, Capture], tmp_path: Path) -> None:
    assert _any_types(known, tmp_path)["nvcc"] == "compiles"


def _any_types(known: tuple[str, Capture], folder: Path) -> dict[str, str]:
    name, _ = known
    program, classes = understood(name)
    random_ = random.Random(name)
    free = [each for each in classes.classes if not each.kept and each.scalar in OFFERED]
    wanted = {each.name: random_.choice(OFFERED[each.scalar]) for each in free}
    made, built, compilers, _ = module._compiled(program, classes, wanted, module._Macros(program.defines, {}, {}))
    own = own_types(classes)
    assert all(made.types[each] == own[each] for each in own if each not in wanted)
    answers = list(compared(known, made, built, folder))
    assert answers or name == "managed_memory.cu"  # whose host reads the memory itself
    for one, other in answers:
        # (An element at the end of a range may be on its other side.)
        assert np.mean(abs(one - other) > 0.03 * abs(other).max()) < 0.01
    return compilers


@pytest.mark.parametrize(
    ("known", "left"),
    few(
        [
            (("boundaries.cu",), ""),
            (("boundaries.cu",), "sums|weights"),
            (("boundaries.cu",), "at|moved|table|position|pair"),
            (("written_arguments.cu",), "damped.*"),
            (("typed_templates.cu",), "damp_double_by|lifted"),
            (("macro_types.cu",), "in"),
            *((each, "") for each in ANY[:-1]),
            (("mixed_template.cu",), "others|at"),
        ],
        6,
    ),
    indirect=["known"],
    ids=lambda given: given if isinstance(given, str) else given[0],
)
def test_numbers_of_32_bits_give_the_answer_to_as_many(known: tuple[str, Capture], left: str, tmp_path: Path) -> None:
    program, classes = understood(known[0])
    free = [each.name for each in classes.classes if not each.kept and each.scalar == "double"]
    made = patched(known[0], {each: "fp32" for each in free if not re.fullmatch(left, each)})
    built = build(program.sources, made.files, optimisation="-O0")
    answers = list(compared(known, made, built, tmp_path))
    errors = [np.linalg.norm(one - other) / np.linalg.norm(other) for one, other in answers]
    assert 1e-10 < max(errors, default=1e-9) < 2e-6


# -- the command -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program, what it was adopted into, and a run of that."""
    found = tmp_path_factory.mktemp("into")
    shutil.copy(PROGRAMS / "rod.cu", found / "rod.cu")
    adopt(AdoptSettings((found / "rod.cu",), ("300", "40")), found / "adopted" / "rod")
    return found


def run_of(folder: Path, record: Mapping[str, Any] | None = None, threshold: float = 1e-3) -> Run:
    said = json.loads((folder / "adopted" / "rod" / "adopted.json").read_text()) if record is None else record
    names = [parameter["name"] for parameter in said["parameters"]] if said else []
    fields = {
        "kernel": "rod",
        "metric": "NRMSE",
        "threshold": threshold,
        "adopted": said,
        "parameters": [{"name": name, "kind": "precision", "values": OFFERED["double"]} for name in names],
    }
    measured = Measurement({"time_ms": 1.0, "error": 1e-6})
    trials = [
        Trial(Configuration(dict.fromkeys(names, precision)), Status.OK, "", measured, key=precision * 8)
        for precision in ("fp32", "fp16", "fp64")
    ]
    return described_run(fields, trials)


def document_of(folder: Path, run: Run, number: int, **settings: Any) -> dict[str, Any]:
    given = {"program": folder / "rod.cu", "output": folder / "new.cu", **settings}
    return into(run, run.trials[number], run.objective, IntoSettings(**given), on_progress=lambda _: None)


@pytest.mark.full
def test_a_program_is_patched_run_and_compared(folder: Path) -> None:
    document = document_of(folder, run_of(folder), 0)
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    jsonschema.Draft202012Validator(schema("into")).validate(document)
    assert document["within"] is True
    assert 0 < document["error"] < 1e-5
    assert document["check"] == {"original": "passed", "patched": "passed"}
    assert document["arguments"] == ["300", "40"]
    assert {entry["to"] for entry in document["types"]} == {"fp32"}
    assert "float* __restrict__ next" in (folder / "new.cu").read_text()
    assert (folder / "rod.cu").read_text() == (PROGRAMS / "rod.cu").read_text()


@pytest.mark.full
def test_an_answer_over_the_threshold_is_not_claimed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = run_of(folder, threshold=1e-9)
    path = folder / "tight.db"
    with RunFile.create(path, run.info, run.state) as file:
        for trial in run.trials:
            file.add(trial)
    command = caller(monkeypatch, capfd)
    done = command("emit", path, "--into", folder / "rod.cu", "-o", folder / "t.cu", "--configuration", "1")
    assert done.code == 1, done.err
    assert "NOT within the threshold: the error of its answer is" in done.err
    assert "float" in done.out or "fp32" in done.out
    done = command("emit", path, "--into", folder / "rod.cu", "--configuration", "1")
    assert (done.code, "--into needs --output" in done.err) == (2, True)
    done = command("emit", path, "-D", "X=1", "-o", folder / "t")
    assert (done.code, "give it with --into" in done.err) == (2, True)


@pytest.mark.full
def test_printed_numbers_that_are_no_answer_are_exit_code_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(PROGRAMS / "cancelled.cu", tmp_path / "rod.cu")
    adopt(AdoptSettings((tmp_path / "rod.cu",)), tmp_path / "adopted" / "rod")
    run = run_of(tmp_path)
    with RunFile.create(tmp_path / "run.db", run.info, run.state) as file:
        for trial in run.trials:
            file.add(trial)
    command = caller(monkeypatch, capfd)
    new = tmp_path / "new.cu"
    words = ("emit", tmp_path / "run.db", "--into", tmp_path / "rod.cu", "-o", new, "--configuration", "1")
    done = command(*words)
    assert (done.code, new.is_file()) == (1, True), done.err
    assert f"{new} is written, but NOT right: it prints something else" in done.err
    assert re.search(r"prints +step 1e\+10 +step inf", done.out)
    document = json.loads(command(*words, "--json").out)
    assert document["error"] < 1e-6
    assert (document["within"], document["wrong"]["patched"]) == (False, "step inf")


@pytest.mark.full
def test_a_program_that_gives_up_where_the_original_does_not_is_exit_code_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(PROGRAMS / "gives_up.cu", tmp_path / "rod.cu")
    adopt(AdoptSettings((tmp_path / "rod.cu",)), tmp_path / "adopted" / "rod")
    run = run_of(tmp_path)
    with RunFile.create(tmp_path / "run.db", run.info, run.state) as file:
        for trial in run.trials:
            file.add(trial)
    command = caller(monkeypatch, capfd)
    new = tmp_path / "new.cu"
    words = ("emit", tmp_path / "run.db", "--into", tmp_path / "rod.cu", "-o", new, "--configuration", "1")
    done = command(*words)
    assert (done.code, new.is_file()) == (1, True), done.err
    why = "it prints something else and ends with another exit code"
    assert done.err.splitlines()[-1].endswith(f"{new} is written, but NOT right: {why}")
    document = json.loads(command(*words, "--json").out)
    assert document["error"] < 1e-6
    assert document["within"] is False
    assert document["wrong"] == {"original": "", "patched": "row 1 is wrong"}
    assert document["complaints"] == {"original": "", "patched": "giving up"}
    assert document["exit_codes"] == {"original": 0, "patched": 3}


def test_a_winner_with_the_program_s_own_types_writes_and_runs_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "build", lambda *_, **__: pytest.fail("compiled"))
    document = document_of(folder, run_of(folder), 2, output=folder / "same.cu")
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    jsonschema.Draft202012Validator(schema("into")).validate(document)
    assert (document["files"], document["types"], document["within"]) == ([], [], True)
    assert document["notes"] == ["nothing to write: the winner has the program's own types"]
    assert not (folder / "same.cu").exists()


def test_a_note_names_the_blocks_and_functions_that_are_not_written(folder: Path) -> None:
    run = run_of(folder)
    chosen = {**run.trials[2].configuration, "warm.block": 64, "warm.policy": "approx", "diffuse.block": 128}
    trial = dataclasses.replace(run.trials[2], configuration=Configuration(chosen))
    settings = IntoSettings(folder / "rod.cu", folder / "same.cu")
    notes = into(run, trial, run.objective, settings, on_progress=lambda _: None)["notes"]
    assert [note.partition("): ")[2] for note in notes] == ["", "warm.block=64, warm.policy=approx"]  # 128 is its own


@pytest.mark.parametrize(
    ("ours", "is_alike"),
    [([np.inf, np.nan, 1], True), ([np.nan, np.nan, 1], False), ([-np.inf, np.nan, 1], False), ([9, 9, 1], False)],
)
def test_what_is_not_finite_has_to_be_so_in_the_same_way(folder: Path, ours: list[float], is_alike: bool) -> None:
    theirs = np.array([np.inf, np.nan, 1])
    errors = module._errors_of(run_of(folder), {"now": np.array(ours)}, {"now": theirs})
    assert set(errors.values()) == {0.0 if is_alike else np.inf}


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("batches")
    shutil.copy(PROGRAMS / "batches.cu", found / "batches.cu")
    adopt(AdoptSettings((found / "batches.cu",)), found / "adopted" / "batches")
    return found


def judged_batches(
    folder: Path, configuration: Mapping[str, str | int], threshold: float, **given: str
) -> dict[str, Any]:
    return judged(folder, "batches", configuration, threshold, **given)


def judged(
    folder: Path, name: str, configuration: Mapping[str, str | int], threshold: float, **given: str
) -> dict[str, Any]:
    said = json.loads((folder / "adopted" / name / "adopted.json").read_text())
    own = {parameter["name"]: parameter["types"][0] for parameter in said["parameters"]}
    fields = {"kernel": name, "metric": "NRMSE", "threshold": threshold, "adopted": said, **given}
    fields["parameters"] = [{"name": name, "kind": "precision", "values": OFFERED["double"]} for name in own]
    measured = Measurement({"time_ms": 1.0, "error": 1e-6})
    trial = Trial(Configuration({**own, **configuration}), Status.OK, "", measured, key="1" * 32)
    settings = IntoSettings(folder / f"{name}.cu", folder / "new.cu")
    run = described_run(fields, [trial])
    return into(run, trial, run.objective, settings, on_progress=lambda _: None)


@pytest.mark.full
def test_every_copy_to_the_host_is_compared(batches: Path) -> None:
    document = judged_batches(batches, {"sum_type": "fp16", "smooth.block": 64}, 1e-2, backend="cuda")
    assert (document["within"], document["printed"]) == (True, None)
    assert any("sum: float instead, since a single number has no" in note for note in document["notes"])
    assert any("where kernels are launched): smooth.block=64" in note for note in document["notes"])
    document = judged_batches(batches, {"out_type": "fp16"}, 1e-2)  # which has no room for the second of four
    assert (document["within"], document["error"]) == (False, None)
    assert document["printed"]["patched"] == "sum of all inf"


@pytest.mark.nightly
def test_variables_that_are_copied_to_the_host_are_compared(batches: Path) -> None:
    document = judged_batches(batches, {"found_type": "fp32", "smooth.block": 64}, 1e-12, backend="host")
    # (One array of four numbers, in which the largest has no digits that fp32 has no room for.)
    assert document["errors"]["error.largest"] > 1e-12 > document["errors"]["error.out"]
    assert document["within"] is False
    # What was tuned on a processor has the program's own blocks.
    assert any("says nothing of a GPU): smooth.block=64" in note for note in document["notes"])


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "changed", "wide"),
    few(
        [
            ("structs_in_memory", ("Force.x", "d_forces"), {"d_beads_place", "d_beads_charge", "sums", "sums_2"}),
            ("structs_in_structs", ("Pair.x", "crowd_bodies"), {"crowd_tags_weight", "crowd_tags_kind"}),
        ],
        1,
        1,
    ),
)
def test_structs_that_are_copied_to_the_host_are_compared(
    name: str, changed: tuple[str, str], wide: set[str], tmp_path: Path
) -> None:
    shutil.copy(PROGRAMS / f"{name}.cu", tmp_path / f"{name}.cu")
    _, said = adopt(AdoptSettings((tmp_path / f"{name}.cu",)), tmp_path / "adopted" / name)
    member, output = changed
    parameter = next(each["name"] for each in said["parameters"] if member in each["members"])
    document = judged(tmp_path, name, {parameter: "fp32"}, 1e-5)
    assert (document["within"], document["not_judged"]) == (True, "")
    assert document["errors"][f"error.{output}"] > 1e-9
    assert {f"error.{each}" for each in wide} <= document["errors"].keys()


@pytest.mark.nightly
def test_how_far_a_loop_has_come_is_no_answer(tmp_path: Path) -> None:
    name = "conjugate_gradients"
    shutil.copy(PROGRAMS / f"{name}.cu", tmp_path / f"{name}.cu")
    made, document = adopt(AdoptSettings((tmp_path / f"{name}.cu",)), tmp_path / "adopted" / name)
    assert [buffer.name for buffer in made.found.buffers if buffer.is_output] == ["d_x"]
    assert made.caveats[0].startswith("errors leave out d_sum, which the program copies to the host again and again")
    assert list(document["errors"]) == ["d_x"]
    # What is left of the residual is another number then, and the host may turn once more or less.
    document = judged(tmp_path, name, {"part_type": "fp32"}, 1e-6)
    assert (document["within"], document["not_judged"]) == (True, "")
    assert document["check"]["patched"] == "passed"
    assert document["error"] > 0


def test_copies_of_another_number_are_compared_as_far_as_they_can_be(folder: Path) -> None:
    run, one, two = run_of(folder), np.ones(2), np.full(2, 2.0)
    errors, notes = module._errors_of_all(run, {"now": [one, two]}, {"now": [one]})
    assert (errors["error"], "only the last copies are compared" in notes[0]) == (0.0, True)
    errors, notes = module._errors_of_all(run, {"now": [one, one, two]}, {"now": [one, two, None]})
    assert (errors["error"], notes) == (0.5, ["1 of 3 copies of now are not compared: there is no room for them"])
    with pytest.raises(MptuneError, match="too large to be recorded"):
        module._errors_of_all(run, {"now": [one], "next": [None]}, {"now": [one], "next": [one]})
    with pytest.raises(MptuneError, match="different amounts"):
        module._errors_of_all(run, {"now": [one, one[:1]]}, {"now": [one, one]})


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises((ProgramError, RunFileError, MptuneError)) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_another_program_is_refused(folder: Path, tmp_path: Path) -> None:
    changed = tmp_path / "rod.cu"
    changed.write_text((PROGRAMS / "rod.cu").read_text().replace("0.25", "0.26"))
    run = run_of(folder)
    assert "rod.cu is not what was tuned (its hash differs)" in refusal(
        lambda: document_of(folder, run, 0, program=changed)
    )
    assert "no such file" in refusal(lambda: document_of(folder, run, 0, program=tmp_path / "rot.cu")).lower()
    assert "is the program itself" in refusal(lambda: document_of(folder, run, 0, output=folder / "rod.cu"))
    assert not (tmp_path / "new.cu").exists()


def test_a_run_of_something_else_is_refused(folder: Path) -> None:
    assert "does not say of which program it is" in refusal(lambda: document_of(folder, run_of(folder, {}), 0))
    assert "expected a folder that 'mptune adopt' wrote" in refusal(
        lambda: document_of(folder, run_of(folder), 0, record=folder)
    )
    broken = run_of(folder, {"parameters": [], "name": 1})
    assert "no readable record" in refusal(lambda: document_of(folder, broken, 0))


def test_nothing_of_a_run_file_is_run(folder: Path) -> None:
    said = json.loads((folder / "adopted" / "rod" / "adopted.json").read_text())
    code = {**said, "program": {**said["program"], "defines": {"M_PI": '(system("true"), 3.14)'}}}
    assert "may be any code; if it is yours, give it again" in refusal(
        lambda: document_of(folder, run_of(folder, code), 0)
    )
    elsewhere = {**said, "program": {**said["program"], "includes": ["/somewhere/else"]}}
    assert "give this folder again with -I" in refusal(lambda: document_of(folder, run_of(folder, elsewhere), 0))


def with_program(folder: Path, **fields: Any) -> Run:
    """A run whose record says something else of the program."""
    said = json.loads((folder / "adopted" / "rod" / "adopted.json").read_text())
    return run_of(folder, {**said, "program": {**said["program"], **fields}})


def test_sources_in_a_record_are_in_the_folder_that_is_given(folder: Path, tmp_path: Path) -> None:
    said = json.loads((folder / "adopted" / "rod" / "adopted.json").read_text())["program"]["files"]
    (digest,) = said.values()
    for name in ("/a/b/../../evil.cu", "/a/b/../rod.cu"):
        run = with_program(folder, files={"/a/b/x.h": digest, name: digest}, sources=[name])
        refused = refusal(lambda run=run: document_of(folder, run, 0, program=folder, output=tmp_path / "new"))
        assert "give the folder or file of the program itself" in refused
    for sources in ([], ["/a/other.cu"]):
        run = with_program(folder, sources=sources)
        assert "is no source of a program" in refusal(lambda run=run: document_of(folder, run, 0))
    run = with_program(folder, files={"/a/rod.cu\0.cu": digest}, sources=["/a/rod.cu\0.cu"])
    assert "no readable record" in refusal(lambda: document_of(folder, run, 0))


def test_a_record_opens_nothing_outside_the_folder_that_is_given(folder: Path, tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    for each in (home, outside):
        each.mkdir()
    shutil.copy(folder / "rod.cu", home / "rod.cu")
    shutil.copy(folder / "rod.cu", outside / "evil.cu")
    (home / "link").symlink_to(outside)
    said = json.loads((folder / "adopted" / "rod" / "adopted.json").read_text())["program"]["files"]
    (digest,) = said.values()
    files = {f"/p/{name}": digest for name in ("rod.cu", "link/evil.cu")}
    run = with_program(folder, files=files, sources=list(files))
    assert "give the folder or file of the program itself" in refusal(
        lambda: document_of(folder, run, 0, program=home, output=tmp_path / "new")
    )
    # What lies beside a single file is opened only if its own text includes it.
    for files in ({"/p/home/rod.cu": digest, "/p/outside/evil.cu": digest}, {"/p/home/rod.cu": digest}):
        run = with_program(folder, files=files, sources=["/p/home/rod.cu"], includes=["/p/outside", "/p/home/link"])
        assert "give this folder again with -I" in refusal(
            lambda run=run: document_of(folder, run, 0, program=home / "rod.cu")
        )


@pytest.mark.full
def test_nothing_but_what_was_emitted_is_replaced(folder: Path, tmp_path: Path) -> None:
    run, notes = run_of(folder), tmp_path / "notes.txt"
    notes.write_text("mine")
    assert "exists and was not written by mptune emit" in refusal(lambda: document_of(folder, run, 0, output=notes))
    (tmp_path / "hard.cu").hardlink_to(folder / "rod.cu")
    (tmp_path / "soft.cu").symlink_to(folder / "rod.cu")
    for name in ("hard.cu", "soft.cu"):
        refused = refusal(lambda name=name: document_of(folder, run, 0, output=tmp_path / name))
        assert "is the program itself" in refused
    assert notes.read_text() == "mine"
    assert (folder / "rod.cu").read_text() == (PROGRAMS / "rod.cu").read_text()
    document_of(folder, run, 0, output=tmp_path / "new.cu")
    document_of(folder, run, 1, output=tmp_path / "new.cu")
    assert (tmp_path / "new.cu").read_text().count("// Emitted by mptune") == 1


@pytest.mark.parametrize("is_relative", [False, True])
def test_other_files_of_a_folder_go_with_a_program(
    is_relative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given, target = tmp_path / "heat", Path("sub/new") if is_relative else tmp_path / "sub" / "new"
    contents = {
        "Makefile": "all:",
        "run.sh": "#!/bin/sh",
        "data/in.txt": "1 2",
        ".git/config": "",
        "heat.o": "",
        "a": "",
    }
    contents |= {"heat.cu": "", "adopted/heat/adopted.json": "{}", "build/CMakeCache.txt": ""}
    for name, text in contents.items():
        (given / name).parent.mkdir(parents=True, exist_ok=True)
        (given / name).write_text(text)
    (given / "run.sh").chmod(0o755)
    (given / "a").write_bytes(b"\x7fELF...")
    (given / "link").symlink_to(tmp_path)
    (given / "large.bin").touch()
    os.truncate(given / "large.bin", 1 << 30)
    settings = IntoSettings(given, target)
    places = {given / "heat.cu": target / "heat.cu"}
    others, (note,) = module._beside(places, settings)
    assert [str(path.relative_to(target)) for path in others.values()] == ["Makefile", "data/in.txt", "run.sh"]
    assert "not in" in note
    assert all(name in note for name in ("a,", "adopted/", "build/", "heat.o", "large.bin", "link/"))
    made = Patch((SourceFile(given / "heat.cu", "int x;"),), (), {}, ())
    for _ in range(2):
        assert module._write(made, places, others, settings) == [target / "heat.cu"]
    assert (target / "data" / "in.txt").read_text() == "1 2"
    assert (target / "run.sh").stat().st_mode & 0o111
    assert sorted(path.name for path in target.iterdir()) == ["Makefile", "data", "heat.cu", "run.sh"]
    of_file = IntoSettings(given / "heat.cu", target.parent / "one.cu")
    assert module._write(made, {given / "heat.cu": of_file.output}, {}, of_file) == [of_file.output]
    assert sorted(path.name for path in target.parent.iterdir()) == ["new", "one.cu"]
    (target / "Makefile").write_text("mine")
    assert "was not written by mptune emit" in refusal(lambda: module._write(made, places, others, settings))


@pytest.mark.parametrize(
    ("names", "place"),
    [
        (("rate",), "42"),  # a struct by value that is scanned
        (("width", "origin"), "47"),  # written as bytes
        (("low",), "49"),  # looked at by a pointer of another type
        (("left",), "15"),  # in a union
        (("field",), "71"),  # managed memory that is read from a file, and sorted
        (("depths",), "75"),  # by the pointer to void that it was allocated with
    ],
)
def test_what_the_host_uses_as_bytes_keeps_its_type(names: tuple[str, ...], place: str) -> None:
    made = patched("host_bytes.cu", dict.fromkeys(("slope", "shifts", "heights", *names), "fp32"))
    assert {name: made.types[name] for name in names} == dict.fromkeys(names, "fp64")
    assert made.notes == (
        f"{', '.join(names)}: double instead, since more than its numbers are used at host_bytes.cu:{place}",
    )


def test_what_the_host_gets_at_from_one_field_on_keeps_its_type() -> None:
    wanted = ("rate", "left", "slope", "low")
    made = patched("host_pointers.cu", dict.fromkeys(wanted, "fp32"))
    assert [made.types[name] for name in wanted] == ["fp64", "fp64", "fp32", "fp32"]
    assert made.notes == (
        "rate: double instead, since more than its numbers are used at host_pointers.cu:30",
        "left: double instead, since more than its numbers are used at host_pointers.cu:34",
    )


def test_what_the_host_adds_up_in_keeps_its_type() -> None:
    made = patched("host_sums.cu", dict.fromkeys(("total", "time", "parts", "weights"), "fp32"))
    kept = {"total": "fp64", "time": "fp64", "parts": "fp32", "weights": "fp32"}
    assert {name: made.types[name] for name in kept} == kept
    assert sorted(made.notes) == [
        "time: double instead, since the host adds up in it at host_sums.cu:27",
        "total: double instead, since the host adds up in it at host_sums.cu:26",
    ]


@pytest.mark.full
def test_structs_that_the_host_counts_the_numbers_of_or_computes_with_keep_their_types() -> None:
    names = [one.name for one in understood("host_fields.cu")[1].classes]
    made = patched("host_fields.cu", dict.fromkeys(names, "fp32"))
    lines = [line for line in changes("host_fields.cu", made) if line.startswith("struct")]
    assert lines == ["struct Passed { float rate, start; };"]
    assert sorted(made.notes) == [
        "first: double instead, since more than its numbers are used at host_fields.cu:29",
        "share: double instead, since the host computes with it at host_fields.cu:31",
    ]


def test_what_is_only_cleared_copied_and_allocated_as_bytes_changes_its_type() -> None:
    made = patched("host_bytes.cu", dict.fromkeys(("slope", "shifts", "heights"), "fp32"))
    assert {made.types[name] for name in ("slope", "shifts", "heights")} == {"fp32"}
    assert made.notes == ()


def test_classes_without_a_name_are_told_by_their_place() -> None:
    program, classes = understood("struct_of_fields.cu")
    shown = {each.name: told(each.members) for each in classes.classes}
    assert all(members and all(members) for members in shown.values())
    slot = TypeSlot(program.kernels[0].extent, "double", "double", 1, "", "k", True)
    cast = Member("double", "k", "cast", False, slot, slot.extent)
    assert told([cast]) == [f"(double) at {slot.extent}"]
    # The table of adopting says the same.
    alone = TypeClass("k_cast", "double", (slot,), (cast,), "local", ("k",), "")
    assert AdoptedParameter("k_cast_type", ("fp64",), (alone,)).members == (f"(double) at {slot.extent}",)
    unnamed = dataclasses.replace(cast, name="", kind="parameter")
    assert told([unnamed]) == [f"a parameter at {slot.extent}"]


@pytest.mark.nightly
@pytest.mark.parametrize("are_buffers", few([True, False], 1, 1))
def test_a_mixture_of_types_in_templates_has_the_error_that_was_found(
    mixed: tuple[Application, Mapping[str, list[str]]], are_buffers: bool, tmp_path: Path
) -> None:
    application, members = mixed
    buffers = {"u", "cells", "others"}
    narrow = [name for name, classes in members.items() if buffers.isdisjoint(classes) is not are_buffers]
    chosen = {each.name: "fp32" for each in application.parameters if each.name.rpartition(".")[2] in narrow}
    wide, found = tuned_answer(application, {}), tuned_answer(application, chosen)
    program, classes = understood("mixed_template.cu")
    wanted = {each: "fp32" for name in narrow for each in members[name]}
    made, built, _, notes = module._compiled(program, classes, wanted, module._Macros(program.defines, {}, {}))
    assert (notes, made.notes) == ([], ())
    assert ("T(0.2) * sides" in made.changed[0].text) is are_buffers
    original = capture(build(program.sources, program.files), (), tmp_path / "original")
    new = capture(built, (), tmp_path / "new")
    types = own_types(classes), made.types
    both = (Answers(program, classes, each).of(ran) for each, ran in zip(types, (original, new), strict=True))
    answers = zip(*(each.values() for each in both), strict=True)
    errors = [np.linalg.norm(ours[0] - theirs[0]) / np.linalg.norm(theirs[0]) for theirs, ours in answers]
    expected = [np.linalg.norm(found[name] - wide[name]) / np.linalg.norm(wide[name]) for name in wide]
    assert len(errors) == len(expected) == 2
    for error, told_error in zip(errors, expected, strict=True):
        assert 1e-9 < error < 1e-6
        assert 0.5 < error / told_error < 2


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Application, Mapping[str, list[str]]]:
    made = tmp_path_factory.mktemp("mixed") / "mixed"
    _, document = adopt(AdoptSettings((PROGRAMS / "mixed_template.cu",)), made)
    application = load_tunable(made)
    assert isinstance(application, Application)
    return application, {each["name"]: each["classes"] for each in document["parameters"]}


TWICE = """\
template <typename T> struct Pair { T* values; };
template <typename T> __device__ T half_of(T value) { return value * T(0.5); }
template <typename T> __global__ void halve(T* a, T by, int n) { if (n) a[0] = half_of<T>(by); }
template <typename T> __global__ void first(Pair<T> pair, T by) { T* all = pair.values; all[0] = by; }
template <typename T> __global__ void declared(T* b, T by);
template <typename T> __global__ void declared(T* b, T by) { b[0] = by; }
void run(double* a, double* b, double* of_pair, float* c) {
    halve<double><<<1, 1>>>(a, 1, 1);
    halve<float><<<1, 1>>>(c, 1, 1);
    first<double><<<1, 1>>>(Pair<double>{of_pair}, 1);
    first<float><<<1, 1>>>(Pair<float>{c}, 1);
    declared<double><<<1, 1>>>(b, 2);
}
int main() {}
"""


def test_templates_of_several_types_agree_on_one_or_say_what_they_keep(tmp_path: Path) -> None:
    path = tmp_path / "twice.cu"
    path.write_text(TWICE)
    program = read([path])
    classes = type_classes(program)
    values = next(each for each in classes.classes if each.kept and each.scalar == "double")
    assert values.kept == "Pair is a template of several types (Pair<double>, Pair<float>)"
    doubles = [each.name for each in classes.classes if each.scalar == "double" and not each.kept]
    made = patch(program, classes, dict.fromkeys(doubles, "fp32"))
    (text,) = (file.text for file in made.changed)
    assert "halve<float><<<1, 1>>>(a, 1, 1);" in text
    assert "half_of<T>(by)" in text
    assert "declared<float><<<1, 1>>>(b, 2);" in text
    some = patch(program, classes, dict.fromkeys([name for name in doubles if "by" not in name], "fp32"))
    assert some.changed == ()
    reasons = "; ".join(some.notes)
    assert "declared<double> is declared with T at twice.cu:5, too" in reasons
    assert "half_of<double> is launched by a template, or called by one, with other types at twice.cu:3" in reasons


@pytest.mark.full
def test_a_struct_with_an_operator_is_passed_by_value_and_a_lambda_refused(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "functors.cu",)), tmp_path / "functors")
    names = [parameter["name"] for parameter in document["parameters"]]
    assert "operator_result_type" in names
    assert all(name.isidentifier() for name in names)
    program, classes = understood("functors.cu")
    made = patch(program, classes, {each.name: "fp32" for each in classes.classes})
    assert "float operator()(float u) const { return u + rate * u * (1.0f - u / limit); } };" in made.changed[0].text
    source = (PROGRAMS / "functors.cu").read_text()
    path = tmp_path / "lambda.cu"
    path.write_text(source.replace("Growth{0.1, 3.0})", "[=] __device__(double v) { return n * v; })"))
    with pytest.raises(
        ProgramError, match=r"lambda\.cu:\d+: .* takes a lambda by value as f, .*; make it a struct with"
    ):
        adopt(AdoptSettings((path,)), tmp_path / "lambda")


@pytest.mark.parametrize(
    ("rounds", "kernels", "kept", "backend", "said", "is_bad"),
    [
        ([(0.23, 0.52)] * 6, (0, 0), ["x", "b"], "host", "0.52 s, and 0.23 s before; x, b kept", True),
        ([(0.23, 0.52), (0.5, 0.56), (0.3, 0.9)], (0.1, 0.2), [], "host", "before); keep the original, or tune", True),
        (
            [(0.23, 0.52)] * 6,
            (0.2, 0.1),
            ["x"],
            "host",
            "what is not its kernels got slower (its kernels 0.1 s, and 0.2 s before; the rest 0.42 s",
            False,
        ),
        ([(0.23, 0.52)] * 3, (0.1, 0.2), [], "cuda", "tuned for cuda, of which that says little", False),
        ([(6.0, 9.0)], (0, 0), [], "host", "SLOWER as a whole on this machine's processor: 9 s, and 6 s before", True),
        # As long, faster, now longer and now shorter, or by no more than the clock can tell.
        ([(0.5, 0.5)] * 6, (0.1, 0.2), ["x"], "host", "", False),
        ([(0.5, 0.2)] * 6, (0.1, 0.2), ["x"], "host", "", False),
        ([(0.5, 0.9), (0.9, 0.6), (0.5, 0.8), (1.2, 0.7), (0.5, 0.9), (0.8, 0.6)], (0, 0), [], "host", "", False),
        ([(0.0, 0.01)] * 15, (0, 0), ["x"], "host", "", False),
    ],
)
def test_a_program_that_got_slower_says_which_part(
    rounds: list[tuple[float, float]],
    kernels: tuple[float, float],
    kept: list[str],
    backend: str,
    said: str,
    is_bad: bool,
) -> None:
    ratios = [max(new, 0.01) / max(old, 0.01) for old, new in rounds]
    times = [module._Times(min(whole), part) for whole, part in zip(zip(*rounds, strict=True), kernels, strict=True)]
    notes, found = module._slower(ratios, times, kept, backend)
    assert len(notes) == bool(said)
    assert said in "".join(notes)
    assert found is is_bad


def test_numbers_copied_again_and_again_are_one_array(folder: Path) -> None:
    run = run_of(folder)
    theirs = [np.array([value]) for value in (1.0, 1e-9, -1.0, 2.0)]
    ours = [value + 1e-7 for value in theirs]
    errors, _ = module._errors_of_all(run, {"sum": ours}, {"sum": theirs})
    assert errors["error"] == pytest.approx(2e-7, rel=1e-3)


def test_files_are_judged_by_the_metric_of_the_outputs(folder: Path) -> None:
    run = described_run({"kernel": "rod", "metric": "u: NMAE, v: NMAE", "threshold": 1e-3}, [])
    theirs = np.array([1.0, -1.0])
    assert module._error_of_other(run, theirs + 1e-4, theirs) == pytest.approx(1e-4)


LEFT = """\
__device__ float damped(float x) { return x * 0.5; }
__global__ void add(const float* x, double* sum, int n) {
    for (int i = 0; i < n; ++i) {
        float root = 1.0f / sqrt(x[i] + 1.0f);
        *sum += root;
        root = damped(root);
    }
}
int main() { add<<<1, 1>>>(nullptr, nullptr, 0); }
"""


def test_what_is_left_in_double_precision_is_told_by_loop_and_line(tmp_path: Path) -> None:
    path = tmp_path / "left.cu"
    path.write_text(LEFT.replace("float", "double"))
    file = SourceFile(path.resolve(), LEFT)
    times = [{"kernel": "add", "seconds": 1.0}, {"kernel": "other", "seconds": 0.01}]
    told = wide_operations(read([path]), Patch((file,), (file,), {}, ()), times, {path.resolve(): Path("new.cu")})
    assert told == [
        "new.cu: the loop at line 3 of add still has operations in double in line 5 and conversions of numbers in "
        "line 5",
        "new.cu: damped still has operations in double in line 1",
    ]
