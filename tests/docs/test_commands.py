"""Every command and every piece of Python the documentation shows runs, and prints what is shown.

Searches are made smaller than shown: it is the commands that are tested here, not what they find. Of an output the
first words of each line have to come, in that order; the numbers are those of another machine.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import click
import pytest
from pages import DOCS, PAGES, Block, Command, blocks

from mptune import cli
from mptune.backends.host_compiler import find_compiler
from mptune.backends.processor import processor

CONTRIBUTING = DOCS.parent / "CONTRIBUTING.md"
#: The budget of a search in a test.
BUDGET = 2
#: The processor whose output the pages show.
RECORDED_ON = "AMD EPYC"
#: Commands that are not mptune's.
SHELL = {"g++", "python", "./denoise"}
#: The search most pages start with, as it is run here.
SHARED = f"mptune tune axpy --backend host --size smoke --max-error 1e-4 --budget {BUDGET} --output axpy.db".split()
SHARED_FILE: list[bytes] = []


#: Pages with something to run.
SHOWN = [page for page in (*PAGES, CONTRIBUTING) if blocks(page)]


def test_every_command_has_options_that_exist() -> None:
    commands = [command for page in SHOWN for block in blocks(page) for command in block.commands()]
    lines = re.findall(r"^    (mptune .*)$", (DOCS.parent / "README.md").read_text(), re.MULTILINE)
    assert len(commands) > 40
    assert len(lines) >= 10
    for command in (*commands, *(Command(line, ()) for line in lines)):
        check_options(command)


#: Short pages: every other one takes much longer.
SHORT = ("index", "templates")


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.full if page.stem in SHORT else pytest.mark.nightly) for page in SHOWN],
    ids=lambda page: page.stem,
)
def test_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if page.stem in ("tutorial", "program"):
        shutil.copytree(DOCS / "tutorial", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(page):
        if block.marker == "extra" and importlib.util.find_spec(block.detail) is None:
            continue
        if block.marker not in ("not run", "not yet"):
            run_block(block, names, monkeypatch, capfd)


def run_block(
    block: Block, names: dict[str, object], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert block.language != "sh", "a script belongs behind a 'not run' marker"
    if block.language == "python":
        if "..." not in block.text:  # a fragment of a definition is shown, not a program
            with warnings.catch_warnings(action="ignore"):
                exec(block.text, names)
        return
    for command in block.commands():
        capfd.readouterr()
        code = run(smaller(command.words), monkeypatch)
        captured = capfd.readouterr()
        assert code == 0, f"{command.line}\n{captured.err}"
        assert_shown(command, captured.out + captured.err)


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    if words == SHARED:
        return run_shared(monkeypatch)
    if words[0] == "mptune":
        return call(words, monkeypatch)
    assert words[0] in SHELL, words
    if words[0] == "python":
        words = [sys.executable, *words[1:]]
    elif words[0] == "g++":
        # Unoptimised code is compiled in a fraction of the time, and computes the same.
        words = [*find_compiler().command, *(word for word in words[1:] if word != "-O3")]
    return subprocess.run(words, check=False, timeout=280).returncode


def call(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    return int(leaving.value.code or 0)


def run_shared(monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the search that several pages start with once, and leave its file wherever it is asked for."""
    if not SHARED_FILE:
        code = call(SHARED, monkeypatch)
        SHARED_FILE.append(Path("axpy.db").read_bytes())
        return code
    Path("axpy.db").write_bytes(SHARED_FILE[0])
    return 0


def smaller(words: list[str]) -> list[str]:
    """Return a command with what it searches made small, and run on the processor."""
    if words[:2] == ["mptune", "tune"]:
        words = replaced(words, "--budget", str(BUDGET + ("--resume" in words)))
        if words[2].startswith("./adopted/"):  # adopted with few arguments
            return [*words, "--verify", "1", "--backend", "host"]
        words = words if "--size" in words else [*words, "--size", "smoke"]
        return words if "--backend" in words else [*words, "--backend", "host"]
    if words[:2] == ["mptune", "adopt"]:
        return [*words[: words.index("--")], "--", "32", "3"]
    if words[:2] == ["mptune", "compare"]:
        return [*words, "--processes", "1"]
    if words[:2] == ["mptune", "check"]:
        words = replaced(words, "--sample", "2")
        return words if "--size" in words else [*words, "--size", "smoke"]
    return words


def replaced(words: list[str], option: str, value: str) -> list[str]:
    if option not in words:
        return [*words, option, value]
    place = words.index(option) + 1
    return [*words[:place], value, *words[place + 1 :]]


def assert_shown(command: Command, printed: str) -> None:
    """Check that each line shown begins like a later line of what was printed."""
    lines = iter(printed.splitlines())
    for shown in command.output:
        beginning = stable(shown.replace(RECORDED_ON, processor().name))
        if not beginning:
            continue
        assert any(stable(line).startswith(beginning) for line in lines), (
            f"{command.line}\nshows {shown!r}, which is not in (or not in this order):\n{printed}"
        )


def stable(line: str) -> str:
    """Return the words of a line up to a colon, a digit or the end of a table's first column."""
    words = re.split(r"\s{2,}", line.strip())[0].split()
    kept = []
    for word in words:
        if any(character.isdigit() for character in word):
            break
        kept.append(word)
        if word.endswith(":"):
            break
    return " ".join(kept)


def check_options(command: Command) -> None:
    """Check that mptune knows a command's options, without running it."""
    words = command.words
    if words[0] != "mptune":
        return
    known = options_of(words[1])
    for word in words[2 : words.index("--") if "--" in words else None]:  # behind it are a program's own
        if word.startswith("-") and not re.fullmatch(r"-[\d.]+", word):
            assert word in known, f"{command.line}: mptune {words[1]} has no {word}"


def options_of(name: str) -> set[str]:
    """Return the options of a command."""
    declared = (param for param in cli.app.commands[name].params if isinstance(param, click.Option))
    return {spelling for param in declared for spelling in (*param.opts, *param.secondary_opts)}


COMMANDS = sorted(set(re.findall(r"^## (\w+)$", (DOCS / "commands.md").read_text(), re.MULTILINE)))


def test_the_reference_has_every_command() -> None:
    assert sorted(cli.app.commands) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_the_reference_has_every_option_and_no_other(name: str) -> None:
    section = re.split(r"^## ", (DOCS / "commands.md").read_text(), flags=re.MULTILINE)
    (text,) = [part for part in section if part.startswith(f"{name}\n")]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    documented = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", " ".join(re.findall(r"`([^`]*)`", prose))))
    assert documented == options_of(name)
