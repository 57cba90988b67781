"""The benchmark of adoption: which programs a folder has, what PROMISE is given, and what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import adopt, promise  # noqa: E402
from mptune.backends.host_compiler import find_compiler  # noqa: E402
from mptune.errors import MptuneError  # noqa: E402


def test_programs_of_a_folder_and_of_a_collection(tmp_path: Path) -> None:
    ours = adopt.programs_in(adopt.PROGRAMS)
    assert set(adopt.HANDWRITTEN) | set(adopt.DIGITS) == set(ours)
    for name, files in {"heat": ["heat.cu"], "lci": ["main.cu", "more.cu"], "other": ["main.cu", "tables.h"]}.items():
        folder = tmp_path / "src" / f"{name}-cuda"
        folder.mkdir(parents=True)
        for file in files:
            (folder / file).touch()
    (tmp_path / "src" / "other-cuda" / "Makefile").write_text("run: $(program)\n\t$(LAUNCHER) ./$(program) 64 3\n")
    found = adopt.programs_in(tmp_path)
    assert found["heat"].arguments == ("256", "50")
    assert found["heat"].source.name == "heat.cu"
    assert found["lci"].source.name == "lci-cuda"
    assert (found["other"].source.name, found["other"].arguments) == ("main.cu", ("64", "3"))
    with pytest.raises(MptuneError, match="no programs"):
        adopt.programs_in(tmp_path / "src" / "lci-cuda" / "none")


@pytest.mark.parametrize("types", ["double", "float"])
def test_a_program_for_promise_computes_what_the_program_does(types: str, tmp_path: Path) -> None:
    tagged = promise.as_cplusplus((adopt.PROGRAMS / "coulombic.cu").read_text())
    found = tagged
    for number in range(9):
        found = found.replace(f"__PR_t{number}__", "double" if number == 2 else types)
    found = found.replace("__PR_vectors__", types)
    assert promise.types_of(tagged, found) == {
        "vectors": types,
        **{f"t{number}": "double" if number == 2 else types for number in range(1, 6)},
    }
    (tmp_path / "program.cc").write_text(found)
    command = [*find_compiler().command, "-std=c++17", "-O1", "-w", f"-I{promise.HEADER.parent}", "-DTIMED"]
    subprocess.run([*command, tmp_path / "program.cc", "-o", tmp_path / "program"], check=True)
    answer = subprocess.run([tmp_path / "program", "64", "40", "100"], capture_output=True, text=True, check=False)
    assert answer.stdout.splitlines()[-1] == "100 charges, 64 x 40 points, PASS"
    assert answer.stdout.startswith("TIME_MS ")


def test_an_error_in_a_line_without_folders() -> None:
    text = "reading\nerror: /home/me/code/main.cu:12: uses cub\n  remedy: write the reduction\n"
    assert adopt.in_short(text) == "error: main.cu:12: uses cub remedy: write the reduction"
    assert adopt.in_short("Traceback\n  x\nKeyError: 3\n") == "KeyError: 3"


def entry(speedup: float | None, *, is_adopted: bool = True, adopt_s: float = 10.0) -> dict[str, Any]:
    verified = {"inputs": 20, "violations": 0, "worst_error": 3e-7}
    result = {"code": 0 if speedup else 1, "why": "", "speedup": speedup, "interval": [1.9, 2.1], "verified": verified}
    result |= {"screened": 6, "foretold": 2, "compiled": 2}
    return {
        "arguments": "256 50",
        "adopted": is_adopted,
        "why": "" if is_adopted else "error: main.cu:3: cub is not read",
        "adopt_s": adopt_s,
        "adopt_cpu_s": 8.0,
        "document": {"kernels": 2, "classes": 9, "parameters": 5, "check": "passed", "refused": []},
        "thresholds": {"1e-06": result} if is_adopted else {},
    }


def test_a_resumed_benchmark_searches_only_at_the_thresholds_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spots.cu").touch()
    asked: list[str] = []

    def mptune(words: list[str | Path], cache: Path, look: object = None) -> adopt.Answer:
        asked.append(" ".join(map(str, words)).partition(" --output")[0])
        if len(asked) == 3:
            raise KeyboardInterrupt
        counts = {"screened": 7, "foretold": 2, "compiled": 1}
        said = {"best": {"speedup": 2.0, "speedup_interval": [1.9, 2.1], "error": 1e-7, "verified": None}, **counts}
        return adopt.Answer(0, {"kernels": ["spread"]} if words[0] == "adopt" else said, "", 3.0, 2.0)

    monkeypatch.setattr(adopt, "mptune", mptune)
    page = tmp_path / "page.md"
    words = [str(tmp_path), "--parts", "programs", "--thresholds", "1e-3,1e-6", "--output", str(page), "--resume"]
    with pytest.raises(KeyboardInterrupt):
        adopt.main(words)
    assert "| 3 (2) | 2.00 (1.90 to 2.10) | - | 9 of 10 | - | - | - |" in page.read_text()
    assert adopt.main(words) == 0
    thresholds = [re.findall(r"--max-error (\S+)", command) for command in asked]
    assert thresholds == [[], ["0.001"], ["1e-06"], [], ["1e-06"]]
    assert capsys.readouterr().out.count("9 of 10") == 2
    assert adopt.main(words) == 0
    assert len(asked) == 5


def document(**parts: Any) -> dict[str, Any]:
    settings = {
        "machine": "a machine",
        "commands": ["a command"],
        "budget": 60,
        "time_limit": 40.0,
        "thresholds": [1e-6],
        "handwritten_error": 1e-4,
        "precisions": "hsd",
        "promise_version": "0.4.1",
    }
    return {**settings, **{part: {} for part in adopt.PARTS}, **parts}


def test_the_page_says_what_became_of_each_program() -> None:
    names = [name for name in adopt.NAMED if name != adopt.REFUSED]
    programs = {name: entry(2.0) for name in names[:-1]}
    programs[names[-1]] = entry(None, adopt_s=70.0)
    programs[adopt.REFUSED] = entry(None, is_adopted=False)
    text = adopt.markdown(document(programs=programs))
    assert "programs adopted of the 8 named ones that are to be: 7 (target ≥ 7: met)" in text
    assert "longest adoption: 70 s (target ≤ 60 s: missed)" in text
    assert "damage, which uses cub: refused (target refused: met)" in text
    assert "| heat | 256 50 | yes | 0 | 2 | 9 | 5 | passed | 10 (8) | 2.00 (1.90 to 2.10) | 3e-07 | 8 of 10 |" in text
    assert f"| {names[-1]} | 256 50 | yes | 0 | 2 | 9 | 5 | passed | 70 (8) | none | - | 8 of 10 |" in text
    assert "of 80 signatures at 1e-06, decided without compiling: 80% (target ≥ 80%: met)" in text
    assert "- damage: error: main.cu:3: cub is not read" in text


def test_the_page_compares_with_its_peers() -> None:
    hand = {"metric": "NRMSE", "speedup": {"adopted": 2.0, "handwritten": 2.1}, "error": {"adopted": 1.0}}
    hand["error"] = {"adopted": 1e-5, "handwritten": 2e-5}
    times = {"adopted": [1.0, 2.0], "handwritten": [0.9, 1.8]}
    peer: dict[str, Any] = {
        "double_ms": 4.0,
        "promise": {
            "types": {"x": "double", "y": "float"},
            "time_ms": 3.0,
            "compilations": 30,
            "variables": 6,
            "cpu_s": 60.0,
        },
        "mptune": {"classes": 6, "time_ms": 1.5, "compilations": 12, "variables": 6, "cpu_s": 30.0, "until_decided": 2},
        "faster": 2.0,
    }
    peer["mptune"]["until_as_fast"] = 3
    agreeing = {"signatures": 50, "agree": 49, "failed": 0, "compilations": 1, "run_ms": 2.0}
    refused = {"signatures": 0, "agree": 0, "failed": 0, "why": "error: no"}
    text = adopt.markdown(
        document(
            programs={"heat": entry(2.0)},
            traced={"heat": agreeing, "lci": refused},
            handwritten={"gemm": {**hand, "times_ms": times, "speed": 0.9}, "mriq": {"why": "error: refused"}},
            promise={"gemm, 3": peer},
        )
    )
    assert "signatures that agree: 98.0% (target ≥ 95%: met)" in text
    # What was not adopted is no success.
    assert "geometric mean: nan (target ≥ 0.95: missed)" in text
    assert "| gemm | NRMSE | 1.5 | 1.35 | 0.90 | 2, 2.1 | 1e-05, 2e-05 |" in text
    assert "speed beside PROMISE's code, geometric mean: 2.00 (target ≥ 1.3: met)" in text
    assert "times as few compilations for each decided variable, geometric mean: 15.00 (target ≥ 10: met)" in text
    assert "as fast as PROMISE's, of the 1 where it was: 10.00" in text
    assert "- the same in all, until the end of the search for speed: 2.50" in text
    assert "| gemm, 3 | 4 | 3 | 1.5 | 2.00 | 30 | 2 | 3 | 12 | 6, 6 | 60, 30 |" in text
