"""Files that a program writes, with other types and as it is: what is compared, as what, and what is said of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from described import described_run
from numpy.typing import NDArray

from mptune.adopt import into as module
from mptune.adopt import written_files
from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.capture import capture
from mptune.adopt.into import IntoSettings, into
from mptune.adopt.reading import paddings, read
from mptune.adopt.running import Ran, build
from mptune.adopt.written_files import Compared, compared_files, type_in_files
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration

PROGRAMS = Path(__file__).parent / "programs"


def largest_error(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    return float(np.max(np.abs(ours - theirs)))


def compared(
    folder: Path, old: bytes | None, new: bytes | None, kind: str | None = None, padding: tuple[bool, ...] = ()
) -> Compared:
    ran = []
    for name, content in (("old", old), ("new", new)):
        (folder / name).write_bytes(content or b"")
        ran.append(Ran("", "", 0.0, {} if content is None else {"out": folder / name}, {}))
    (found,) = compared_files(ran[:1], ran[1], kind, (padding,) if padding else (), largest_error)
    return found


@pytest.mark.parametrize(
    ("old", "new", "error", "is_right"),
    [
        ("i u v\n1 0.5 100\n2 0.25 7\n", "i u v\n1 0.5 100\n2 0.75 7\n", 0.5, True),
        ("a 0.125\n", "b 0.125\n", None, False),
        ("1\n2\n", "1\n", None, False),
        # One more in the last digit is how a number was rounded; a count that is another is another.
        ("0.501 3\n", "0.502 3\n", 0.0, True),
        ("0.501 3\n", "0.501 4\n", 1.0, True),
        ("0.501 nan\n", "0.501 0.5\n", None, False),
    ],
)
def test_texts_are_compared_number_by_number(
    tmp_path: Path, old: str, new: str, error: float | None, is_right: bool
) -> None:
    found = compared(tmp_path, old.encode(), new.encode())
    assert (found.error, found.is_right) == (error, is_right), found


def test_a_column_is_judged_by_itself_unless_it_is_nearly_zero() -> None:
    old = "".join(f"{1e2 + i} {1e-3 * i:.9g} \n" for i in range(1, 9))
    new = "".join(f"{1e2 + i + 0.5} {1e-3 * i + 1e-2:.9g} \n" for i in range(1, 9))
    sizes = list[int]()

    def count(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
        sizes.append(ours.size)
        return 0.0

    for text in (old, old.replace(" 0.00", " 0.00000000000")):
        written_files._of_texts("out", [text.encode()], new.encode(), count)
    assert sizes == [8, 8, 8, 16]


def relative(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.sum((ours - theirs) ** 2) / np.sum(theirs**2)))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("columns", [1, 3, 40])
@pytest.mark.parametrize("heading", ["# receivers 48 samples 120000", "48 120000", "trace\n48 120000\nvalues"])
def test_numbers_of_headings_are_not_pooled_with_columns(heading: str, columns: int, seed: int) -> None:
    drawn = np.random.default_rng(seed)
    old = 1e-2 * drawn.standard_normal((13, columns))
    new = old * (1 + 1e-3 * drawn.standard_normal(old.shape))
    texts = ["\n".join([heading, *(" ".join(f"{x:.14e}" for x in row) for row in table)]) for table in (old, new)]
    found = written_files._of_texts("out", [texts[0].encode()], texts[1].encode(), relative)
    each = [relative(a, b) for a, b in zip(new.T, old.T, strict=True)] if columns < 16 else [relative(new, old)]
    assert found.error == pytest.approx(max(each), rel=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        # A heading that is another is judged for itself, however small beside the columns.
        ("# rate 0.5\n10\n20\n", "# rate 0.25\n10\n20\n", 0.5),
        ("energy 1000\nloss 0.5\n", "energy 1000.5\nloss 0.25\n", 0.5),
        # What stands below one heading is something else than what stands below another.
        ("speed\n1000\n2000\nloss\n0.5\n0.5\n", "speed\n1001\n2000\nloss\n0.25\n0.25\n", 0.5),
        # Nearly zero beside the other numbers: it is judged with these.
        ("1.0\n1.0\n# loss 1e-17\n", "1.0\n0.5\n# loss 3e-17\n", np.sqrt(0.125)),
        # Many lines with other words each are a table with names.
        (
            "".join(f"cell {'abcdefghijklmnopqrstuvwxyz'[i]} 0.5\n" for i in range(20)),
            "".join(f"cell {'abcdefghijklmnopqrstuvwxyz'[i]} 0.25\n" for i in range(20)),
            0.5,
        ),
    ],
)
def test_lines_that_are_not_alike_are_judged_by_themselves(old: str, new: str, error: float) -> None:
    assert written_files._of_texts("out", [old.encode()], new.encode(), relative).error == pytest.approx(error)


def test_numbers_that_the_original_writes_in_another_way_each_time_are_not_compared() -> None:
    originals = [b"took 0.5 s\nsum 2.5\n", b"took 0.75 s\nsum 2.5\n"]
    assert written_files._of_texts("out", originals, b"took 9 s\nsum 2.5\n", relative).error == 0.0
    assert written_files._of_texts("out", originals, b"took 9 s\nsum 5\n", relative).error == pytest.approx(1.0)


def test_bytes_are_numbers_where_the_program_says_so(tmp_path: Path) -> None:
    old, new = (np.array(values).tobytes() for values in ([1.0, 2.0], [1.0, 2.5]))
    assert compared(tmp_path, old, new, "double") == Compared("out", "2 numbers of type double", 0.5, True)
    found = compared(tmp_path, old, new)
    assert (found.is_right, "not of one floating-point type" in found.how) == (None, True)
    assert compared(tmp_path, old, old[:8], "double").is_right is False
    assert compared(tmp_path, old, old).how == "the same 16 bytes"
    is_second = (False, True)
    found = compared(tmp_path, b"\1\2\3\4", b"\1\0\3\0", padding=is_second)
    assert found == Compared("out", "the same 4 bytes, but between the fields of structs", None, True)
    assert compared(tmp_path, b"\1\2\3\4", b"\1\0\4\0", padding=is_second).is_right is None
    assert compared(tmp_path, old, None).how.startswith("not compared: only the original writes it")
    assert type_in_files(read([PROGRAMS / "written_files.cu"])) == "double"
    source = tmp_path / "mixed.cu"
    source.write_text(
        "#include <cstdio>\n__global__ void k(float* u) { u[0] = 1; }\n"
        "void put(FILE* to, float* u, const int* n) {\n    k<<<1, 1>>>(u);\n"
        "    fwrite(u, 4, 9, to);\n    fwrite(n, 4, 9, to);\n}\nint main() {}\n"
    )
    assert type_in_files(read([source])) is None


@pytest.mark.full
def test_files_are_compared_where_a_program_is_patched(tmp_path: Path) -> None:
    source = tmp_path / "written_files.cu"
    shutil.copy(PROGRAMS / source.name, source)
    _, said = adopt(AdoptSettings((source,)), tmp_path / "adopted" / "written_files")
    names = [parameter["name"] for parameter in said["parameters"]]
    fields = {"kernel": "written_files", "metric": "NRMSE", "threshold": 1e-3, "adopted": said}
    fields["parameters"] = [{"name": name, "kind": "precision", "values": ("fp64", "fp32")} for name in names]
    values = dict.fromkeys(names, "fp32")
    trial = Trial(Configuration(values), Status.OK, "", Measurement({"time_ms": 1.0, "error": 1e-6}), key="1" * 32)
    run = described_run(fields, [trial])
    settings = IntoSettings(source, tmp_path / "new.cu")
    document = into(run, trial, run.objective, settings, on_progress=lambda _: None)
    written = {each["name"]: each for each in document["written"]}
    assert {name: each["how"] for name, each in written.items()} == {
        "heat.bin": "500 numbers of type double",
        "heat.csv": "1,000 numbers in 501 lines of text",
        "note.txt": "the same 13 bytes",
    }
    assert 0 < written["heat.bin"]["error"] < 1e-6
    assert document["within"] is True
    judged = {"not_judged": "", "within": True, "error": 0.0}
    wrong = (Compared("out", "3 lines instead of 4", None, False),)
    assert module._with_others(judged, wrong, 1e-3)["within"] is False
    assert module._with_others(judged, (Compared("out", "9 numbers", 0.5, True),), 1e-3)["within"] is False
    alone = module._with_others(
        {"not_judged": "it copies nothing", "within": None}, (Compared("out", "9 numbers", 1e-4, True),), 1e-3
    )
    assert alone == {"not_judged": "", "within": True, "error": 1e-4}


@pytest.mark.nightly
def test_what_is_between_the_fields_of_structs_may_differ_from_run_to_run(tmp_path: Path) -> None:
    program = read([PROGRAMS / "padded_structs.cu"])
    assert [len(padding) for padding in paddings(program)] == [16]
    built = build(program.sources, program.files)
    assert capture(built, (), tmp_path / "fields", paddings=paddings(program)).differences == ()
    told = capture(built, (), tmp_path / "bytes").differences
    assert told == ("it writes something else to cells.bin",)  # (what was copied is known by its type)
