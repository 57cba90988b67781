"""Every document a command prints is as its schema says, and says nothing its schema does not know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Call

from mptune.results.trial import Status
from mptune.schemas import SCHEMAS, schema

pytestmark = pytest.mark.usefixtures("charts")

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")

OWN = Path(__file__).parent.parent / "own_kernel.py"


@pytest.fixture
def document(mptune: Call) -> Call:
    """Run a command; return what it printed, parsed as JSON without NaN and infinities."""

    def call(*arguments: object, code: int = 0) -> Any:
        outcome = mptune(*arguments)
        assert outcome.code == code, outcome.err
        return json.loads(outcome.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    return call


def tune(document: Call, path: Path, *options: object, code: int = 0) -> Any:
    usual = ("--backend", "host", "--size", "smoke", "--strategy", "random", "--output", path, "--json")
    return document("tune", OWN, *usual, *options, code=code)


def closed(node: Any) -> Any:
    """Return a schema under which an object has no property that is not described."""
    if isinstance(node, list):
        return [closed(entry) for entry in node]
    if not isinstance(node, dict):
        return node
    changed = {name: closed(entry) for name, entry in node.items()}
    if node.get("type") == "object" and "properties" in node:
        changed.setdefault("additionalProperties", False)
    return changed


def check(command: str, found: Any) -> None:
    jsonschema.Draft202012Validator(schema(command)).validate(found)
    jsonschema.Draft202012Validator(closed(schema(command))).validate(found)


@pytest.mark.parametrize("name", [*SCHEMAS, "show"])
def test_schemas_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))


def test_schemas_know_every_status() -> None:
    statuses = [status.value for status in Status]
    assert schema("tune")["properties"]["statuses"]["propertyNames"]["enum"] == statuses
    assert schema("tune")["properties"]["failures"]["items"]["properties"]["status"]["enum"] == statuses
    assert schema("export")["properties"]["trials"]["items"]["properties"]["status"]["enum"] == statuses


@pytest.mark.full
def test_the_document_of_a_report(document: Call, run_file: Path, tmp_path: Path) -> None:
    check("report", document("report", run_file, "-o", tmp_path / "report.html", "--json"))


def test_documents_of_a_run(document: Call, run_file: Path, tmp_path: Path) -> None:
    shown = document("show", run_file, "--json")
    check("show", shown)
    assert shown["best"] is not None
    check("pareto", document("pareto", run_file, "--json"))
    check("pareto", document("pareto", run_file, "--metrics", "speedup,memory_bytes,error", "--json"))
    check("explain", document("explain", run_file, "--json"))
    exported = document("export", run_file, "--format", "json")
    check("export", exported)
    check("tune", exported["summary"])
    emit = ("emit", run_file, "--kernel", OWN, "--json")
    check("emit", document(*emit, "-o", tmp_path / "one"))
    check("emit", document(*emit, "--all-devices", "-o", tmp_path / "all"))


@pytest.mark.full
def test_the_document_of_verifying(document: Call, run_file: Path) -> None:
    found = document("verify", run_file, "--kernel", OWN, "--inputs", 6, "--json")
    check("verify", found)
    assert [case["verified"]["inputs"] >= 6 for case in found["cases"]] == [True]


@pytest.mark.usefixtures("made_up")
def test_documents_of_tuning(document: Call, tmp_path: Path) -> None:
    check("tune", tune(document, tmp_path / "a.db", "--budget", 3))
    nothing = tune(document, tmp_path / "b.db", "--budget", 3, "--max-error", "1e-40", code=1)
    check("tune", nothing)
    assert nothing["best"] is None
    check("tune", tune(document, tmp_path / "c.db", "--budget", 3, "--max-error", "y=1"))
    constrained = ("--constraint", "memory_bytes <= 1", "--objective", "memory")
    check("tune", tune(document, tmp_path / "d.db", "--budget", 2, *constrained, code=1))
    several = ("--budget", 4, "--objectives", "time,error,memory")
    found = tune(document, tmp_path / "e.db", *several)
    check("tune", found)
    assert found["front"]
    check("pareto", document("pareto", tmp_path / "e.db", "--json"))
    check("tune", tune(document, tmp_path / "f.db", *several, "--max-error", "1e-40", code=1))


@pytest.mark.full
def test_documents_of_failures(document: Call, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(OWN.read_text().replace("p = p * t - ", "p = q * t - "))
    arguments = ("tune", broken, "--backend", "host", "--strategy", "random", "--budget", 2, "--json", "--output")
    failed = document(*arguments, tmp_path / "broken.db", code=1)
    check("tune", failed)
    assert failed["failures"]
    checked = document("check", broken, "--backend", "host", "--sample", 1, "--json", code=1)
    check("check", checked)
    assert checked["checks"][0]["failures"]


def test_documents_without_a_run(document: Call) -> None:
    for option in ("--strategies", "--observers"):
        check("list", document("list", option, "--json"))
    check("backends", document("backends", "--json"))
    check("check", document("check", OWN, "--backend", "host", "--size", "smoke", "--sample", 1, "--json"))


def test_documents_of_simulations(document: Call, run_file: Path) -> None:
    replay = ("--budget", 3, "--repeats", 2, "--json")
    check("simulate", document("simulate", run_file, "--strategy", "random", *replay))
    check("simulate", document("simulate", run_file, "--strategy", "random", "--max-error", "1e-40", *replay, code=1))
    several = ("--objectives", "time,error")
    check("simulate", document("simulate", run_file, *several, *replay))
    check("simulate", document("simulate", run_file, *several, "--max-error", "1e-40", *replay, code=1))
    check("simulate", document("simulate", run_file, "--from", run_file, *replay))
    compare = ("compare", run_file, "--strategies", "random,genetic", "--processes", 1)
    check("compare", document(*compare, *replay))
    check("compare", document(*compare, "--max-error", "1e-40", *replay, code=1))
