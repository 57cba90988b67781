"""Plain C++ whose parallel loops were tuned, with other types in its own text: what is changed, and that it runs."""

from __future__ import annotations

import difflib
import shutil
from pathlib import Path

import pytest
from described import described_run

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.classing import type_classes
from mptune.adopt.into import IntoSettings, into
from mptune.adopt.parsing import ProgramError
from mptune.adopt.patching import Patch, own_types
from mptune.adopt.patching_loops import patch
from mptune.adopt.reading import read
from mptune.adopt.running import build, run
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from tests.tiers import few

PROGRAMS = Path(__file__).parent / "programs"


def narrowed(path: Path) -> Patch:
    """A program all of whose types are fp32, as far as that goes."""
    program = read([path])
    classes = type_classes(program)
    return patch(program, classes, dict.fromkeys(own_types(classes), "fp32"))


def changes(made: Patch) -> list[str]:
    (new,) = made.changed
    lines = difflib.unified_diff(new.path.read_text().splitlines(), new.text.splitlines(), lineterm="", n=0)
    return [line[1:].strip() for line in lines if line.startswith("+") and not line.startswith("+++")]


@pytest.fixture(scope="module")
def plucked() -> Patch:
    return narrowed(PROGRAMS / "loops_in_place.cpp")


def test_declarations_of_what_loops_use_follow_their_types(plucked: Patch) -> None:
    (new,) = plucked.changed
    assert plucked.notes == (
        "total_parts, total_shared, total: double instead, since a loop reduces all of its numbers to one, a kernel "
        "those of a block",
    )
    lines = [line.strip() for line in new.text.splitlines()]
    for line in (
        "static float tension(float left, float middle, float right) "
        "{ return STIFFNESS * (left - 2.0f * middle + right); }",
        "speed[i] = float(damping) * (speed[i] + float(change));",
        "float *speed = (float*)std::malloc(n * sizeof(float));",
        "double before = 0.0;",
        "std::memcpy(copy.data(), square.data(), n * sizeof(float));",
        "double energy(const float* height, const float* speed, int n) {",
    ):
        assert line in lines


def test_a_program_of_loops_prints_what_it_did(plucked: Patch, tmp_path: Path) -> None:
    built = build([PROGRAMS / "loops_in_place.cpp"], plucked.files, optimisation="-O0")
    largest, energy, check = run(built, writes=tmp_path).output.split()
    assert (float(largest), float(energy), check) == (pytest.approx(1.39758, abs=2e-5), 0.001, "PASSED")
    named = {name for name, precision in plucked.types.items() if precision == "fp32"}
    assert {"height", "speed", "change", "slope"} <= named


USES = {
    "std::fwrite(a, sizeof(double), n, stdout);": False,
    "double* one = &a[1]; *one = 2.0;": True,
    "double& one = a[1]; one = 2.0;": True,
    "auto& one = a[1]; one = 2.0;": True,
    'const double* one = a; if (one != nullptr) std::printf("%g", one[2] + *(a + 1));': True,
    "void* one = a; (void)one;": True,
    "void* one = a; std::fwrite(one, sizeof(double), n, stdout);": False,
    'std::scanf("%lf", &a[0]);': False,
    'std::vector<double> one(a, a + n); std::printf("%g", one[0]);': True,
    "std::fill(a, a + n, 1.0); std::sort(a, a + n);": True,
    'element(a, 1) = 2.0; std::printf("%g", element(a, 2));': True,
    "double* rest = second(a); rest[0] = 1.0;": True,
    "third(a)[0] = 1.0;": False,
    "double one = kind(a[0]) + a[1] * a[2]; a[1] += one; a[2]++; a[3] = a[4];": True,
    "auto one = TWICE(a[1]); auto other = [&](int i) { return a[i]; }; (void)one; (void)other;": True,
    "if (*std::max_element(a, a + n) * a[int(a[0])] > 1e60) a[0] = 0.0;": True,
    "std::vector<double> one(a, a + n); std::sort(one.begin(), one.end()); one.assign(1, one[0]);": True,
    "double one = std::accumulate(a, a + n, 0.0); (void)one;": True,
    "const double& one = std::max(a[0], a[1]); (void)one;": True,
    "double one = size_of(a); (void)one;": False,
    "auto one = AT(1); (void)one;": True,
    "double one = 0.5 * a[1]; one += a[2];": True,
}


LISTS = {
    "std::vector<double> a(n, 1.0), b(n), c(n);": "std::vector<double> a(n, 1.0); std::vector<float> b(n), c(n);",
    "std::vector<double> b(n), a(n, 1.0), c{1.0, 2.0};": (
        "std::vector<float> b(n); std::vector<double> a(n, 1.0); std::vector<float> c{1.0, 2.0};"
    ),
    "std::unique_ptr<double[]> b(new double[n]), a(new double[n]);": (
        "std::unique_ptr<float[]> b(new float[n]); std::unique_ptr<double[]> a(new double[n]);"
    ),
    # A label is no part of a declaration.
    "goto here; here: std::vector<double> b(n), a(n);": "",
}


@pytest.mark.full
@pytest.mark.parametrize("declared", few(LISTS, 2, 2))
def test_lists_of_arrays_are_split_where_some_keep_their_type(tmp_path: Path, declared: str) -> None:
    path = tmp_path / "lists.cpp"
    pointer = "&a[0]" if "unique" in declared else "a.data()"
    path.write_text(
        "#include <cstdio>\n#include <memory>\n#include <vector>\nint main() {\n    const int n = 9;\n"
        f"    {declared}\n#pragma omp parallel for\n    for (int i = 0; i < n; ++i) b[i] = 0.5 * i + a[i];\n"
        + ("#pragma omp parallel for\n    for (int i = 0; i < n; ++i) c[i] = b[i];\n" if " c" in declared else "")
        + f"    std::fwrite({pointer}, sizeof(double), n, stdout);\n}}\n"
    )
    made = narrowed(path)
    (file,) = made.files
    text = " ".join(file.text.split())
    assert (LISTS[declared] or declared) in text, made.notes
    assert any("is the type of all" in note for note in made.notes) == (not LISTS[declared])


@pytest.mark.full
def test_arrays_keep_their_type_where_more_is_done_with_them(tmp_path: Path) -> None:
    path = tmp_path / "uses.cpp"
    functions = [
        f"void use_{number}(int n) {{\n    double* a = new double[n + {number}];\n#pragma omp parallel for\n"
        f"    for (int i = 0; i < n; ++i) a[i] = 0.5 * i;\n    {use}\n    delete[] a;\n}}\n"
        for number, use in enumerate(USES)
    ]
    head = (
        "#include <algorithm>\n#include <cstdio>\n#include <numeric>\n#include <vector>\n"
        "#define TWICE(x) ((x) + (x))\n#define AT(i) a[i]\n"
        "int kind(double) { return 8; }\nint kind(float) { return 4; }\n"
        "template <typename T> int size_of(const T*) { return sizeof(T); }\n"
        "double& element(double* of, int i) { return of[i]; }\n"
        "double* second(double* of) { return of + 1; }\n"
        "double* third(void* of) { return (double*)of + 2; }\n"
    )
    path.write_text(f"{head}{''.join(functions)}int main() {{\n}}\n")
    lines = changes(narrowed(path))
    found = {use: f"float* a = new float[n + {number}];" in lines for number, use in enumerate(USES)}
    assert found == USES
    # An expression of the host is computed in double, as before.
    one, two = (f"double(a[{number}])" for number in range(2))
    assert f"double one = kind({one}) + {two} * a[2]; a[1] += one; a[2]++; a[3] = a[4];" in lines
    assert (
        f"auto one = TWICE({two}); auto other = [&](int i) {{ return double(a[i]); }}; (void)one; (void)other;"
    ) in lines
    assert f"const double& one = std::max({one}, {two}); (void)one;" in lines
    assert "auto one = double(AT(1)); (void)one;" in lines
    assert "float& element(float* of, int i) { return of[i]; }" in lines
    assert "float* second(float* of) { return of + 1; }" in lines


@pytest.mark.full
def test_short_types_and_vectors_of_its_own() -> None:
    program = read([PROGRAMS / "stencil.cpp"])
    classes = type_classes(program)
    made = patch(program, classes, dict.fromkeys(own_types(classes), "bf16"))
    assert any("plain C++ has no type of 16 bits" in note for note in made.notes)
    with pytest.raises(ProgramError, match="give them other names yourself"):
        narrowed(PROGRAMS / "own_vectors.cpp")


@pytest.mark.full
def test_sums_of_loops_keep_their_type() -> None:
    made = narrowed(PROGRAMS / "long_sums.cpp")
    assert [made.types[name] for name in ("power", "balance", "largest")] == ["fp64", "fp64", "fp64"]


@pytest.mark.full
def test_integers_made_of_narrower_numbers_are_told() -> None:
    notes = [note for note in narrowed(PROGRAMS / "drawn_cells.cpp").notes if "integer" in note]
    assert notes == [
        f"{text} at drawn_cells.cpp:{line}: an integer is made of it, and in fewer digits it may be the next one "
        "(what is just below 1 becomes 1): see that no index or bound gets too large"
        for text, line in (("share(i, n) * cells", 16), ("place", 17))
    ]


@pytest.mark.nightly
def test_sums_are_compared_as_loops_leave_them(tmp_path: Path) -> None:
    source = PROGRAMS / "long_sums.cpp"
    _, said = adopt(AdoptSettings((source,)), tmp_path / "adopted")
    names = [parameter["name"] for parameter in said["parameters"]]
    metric = ", ".join(f"{name}_parts: NMAE" for name in ("power", "drift", "balance", "largest"))
    fields = {"kernel": said["name"], "metric": metric, "threshold": 1e-6, "adopted": said}
    fields["parameters"] = [{"name": name, "kind": "precision", "values": ("fp64", "fp32")} for name in names]
    trial = Trial(
        Configuration(dict.fromkeys(names, "fp32")),
        Status.OK,
        "",
        Measurement({"time_ms": 1.0, "error": 1e-7}),
        key="1" * 32,
    )
    run = described_run(fields, [trial])
    document = into(run, trial, run.objective, IntoSettings(source, tmp_path / "new.cpp"), on_progress=lambda _: None)
    assert document["within"] is False
    assert max(document["errors"].values()) < 1e-6  # of the parts
    broken = {each["name"]: each["error"] for each in document["written"] if each["within"] is False}
    assert list(broken) == ["main_loop.drift"]  # and not of the balance, which is but rounding errors
    assert 1e-6 < broken["main_loop.drift"] < 1e-3


@pytest.mark.full
def test_a_program_of_loops_is_patched_run_and_compared(tmp_path: Path) -> None:
    source, new = tmp_path / "gravity.cpp", tmp_path / "new.cpp"
    shutil.copy(PROGRAMS / "openmp.cpp", source)
    _, said = adopt(AdoptSettings((source,)), tmp_path / "adopted" / "gravity")
    names = [parameter["name"] for parameter in said["parameters"]]
    fields = {"kernel": "gravity", "metric": "NRMSE", "threshold": 1e-3, "adopted": said}
    fields["parameters"] = [{"name": name, "kind": "precision", "values": ("fp64", "fp32")} for name in names]
    values = {**dict.fromkeys(names, "fp32"), "gravity_loop.block": 64}
    trial = Trial(Configuration(values), Status.OK, "", Measurement({"time_ms": 1.0, "error": 1e-6}), key="1" * 32)
    run = described_run(fields, [trial])
    document = into(run, trial, run.objective, IntoSettings(source, new), on_progress=lambda _: None)
    assert (document["within"], document["printed"], document["compiled"]) == (True, None, {"host": "compiles"})
    assert 0 < document["error"] < 1e-4
    assert "not in the text (loops are written with their types alone): gravity_loop.block=64" in document["notes"]
    assert source.read_text() == (PROGRAMS / "openmp.cpp").read_text()


CHANGED = {
    "springs.cpp": {
        "static double dot(const std::vector<float>& a, const std::vector<float>& b) {",
        "static void axpy(double factor, const std::vector<float>& x, std::vector<float>& y) {",
        "for (int i = 0; i < n; i++) y[i] += float(factor) * x[i];",
        "static void multiply(const std::vector<float>& x, std::vector<float>& y) {",
        "float value = 2.5f * x[i];",
        "std::vector<float> x(n, 0.0), r(n), p(n), q(n);",
        "for (int i = 0; i < n; i++) p[i] = r[i] + float(beta) * p[i];",
    },
    "wave.cpp": {
        "static inline float curvature(const float* u, int i) { return u[i - 1] - 2.0f * u[i] + u[i + 1]; }",
        "void advance(const float* before, const float* now, float* after, int n, double c) {",
        "for (int i = 1; i < n - 1; ++i) "
        "after[i] = 2.0f * now[i] - before[i] + float(c) * float(c) * curvature(now, i);",
        *(f"float* {name} = new float[n];" for name in ("before", "now", "after")),
        "std::memset(after, 0, n * sizeof(float));",
        "std::memcpy(before, now, n * sizeof(float));",
        "float* const t = before;",
        "for (int i = 0; i < n; ++i) energy += double(now[i]) * now[i];",
    },
}


@pytest.mark.parametrize("name", CHANGED)
def test_each_changed_line_is_one_that_a_person_would_write(name: str) -> None:
    assert set(changes(narrowed(PROGRAMS / name))) == CHANGED[name]
