"""The pages are true: every snippet is run, or at the least understood by the program that it calls.

The kind of a block says what becomes of it. `console`: each line behind a prompt is run, one after the other, all of a
page in one folder. `sh`: what takes long, serves until it is stopped, or needs more than Python: its commands are
parsed, and test_by_hand.py runs the meshes among them. `text`: what a command has printed; lines behind a prompt are
parsed. `python` is run (on Spark: slow), but in style.md. `toml` is a configuration that a node takes. Others show
no command.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trellis
from release.pages import BLANKS, PAGES, PROGRAM, ROOT, SHELL, Block, blocks, commands, parse_script, parse_trellis
from trellis.cli.main import run
from trellis.live.config import read_config

# They show what commands look like in general; no line of theirs is meant to be typed.
FORMS = {"docs/architecture.md", "docs/style.md"}
RUN = [page for page in PAGES if blocks(page, "console")]
LETTERS_MAX = 120
LONG = {"docs/lab.md"}  # not wrapped yet


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def shown(*kinds: str) -> Iterator[tuple[str, list[str]]]:
    """Every command in a block of shell, and where it stands."""
    for page in PAGES:
        for block in blocks(page, *kinds):
            for line in block.lines():
                for words in commands(line):
                    yield f"{block.place}: {line}", words


# Run


@pytest.mark.parametrize("page", RUN, ids=name)
def test_the_commands_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch, capfd):
    lines = [line for block in blocks(page, "console") for line in block.lines()]
    if any(line.startswith("trellis certs") for line in lines) and shutil.which("openssl") is None:
        pytest.skip("openssl, which makes certificates, is not installed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")  # all that a page may take for granted
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    for line in lines:
        told = [*commands(line)]
        if len(told) == 1 and told[0][0] == "trellis" and not re.search(r"[<>$*]", line):
            code = run(told[0][1:])
        else:
            code = subprocess.run(["sh", "-ec", line], env={**os.environ, "PATH": path}, timeout=300).returncode
        assert code == 0, (line, capfd.readouterr().err)


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wanted = {f"n{number}": ["all", f"t{number % 3}"] for number in range(9)}
    trellis.write_table(trellis.Interests.from_pairs(wanted).to_table(), "interests.parquet")
    (block,) = blocks(ROOT / "README.md", "python")
    space: dict[str, Any] = {}
    exec(compile(block.text, block.place, "exec"), space)
    assert space["run"].summary()["tco"]


# Parsed


def test_every_trellis_command_of_the_pages_is_one_that_the_parser_takes():
    found = [(place, words) for place, words in shown(*SHELL) if words[0] == "trellis"]
    assert len(found) > 60
    for place, words in found:
        try:
            parse_trellis(words[1:])
        except Exception as error:
            raise AssertionError(f"{place}: {getattr(error, 'message', error)}") from error


def test_every_program_of_ours_that_the_pages_call_takes_its_words():
    found = {(place, *words[1:]) for place, words in shown("sh") if re.fullmatch(r"(\S*/)?python3?", words[0])}
    scripts = sorted(one for one in found if one[1].endswith(".py"))
    assert len(scripts) >= 5
    for place, *words in scripts:
        try:
            parse_script(words)
        except SystemExit as error:
            raise AssertionError(place) from error


def test_every_command_inside_a_sentence_has_options_that_exist(capsys):
    """With --help behind it: much is left out inside sentences."""
    found = {one for page in PAGES for one in re.findall(r"`(trellis [a-z-][^`]*)`", page.read_text("utf-8"))}
    assert len(found) > 40
    for line in sorted(found):
        ((_, *words), *_) = commands(line)
        words = [word for each in words for word in BLANKS.get(each, [each])]
        assert run([*words, "--help"]) == 0, (line, capsys.readouterr().err)


def test_every_example_in_the_help_of_a_command_is_one_that_the_parser_takes():
    told = [each.epilog or "" for each in every_command(PROGRAM)]
    lines = [line.removeprefix("$ ").strip() for one in told for line in one.splitlines() if "trellis " in line]
    assert len(lines) > 30
    for line in lines:
        for words in commands(line):
            if words[0] == "trellis":
                parse_trellis(words[1:])


def every_command(command: Any) -> Iterator[Any]:
    yield command
    if hasattr(command, "list_commands"):
        for one in command.list_commands(None):
            yield from every_command(command.get_command(None, one))


# Neither


def test_the_wheel_that_the_pages_name_is_that_of_this_version():
    named = {one for page in PAGES for one in re.findall(r"trellis_overlay-([\d.]+)-py3", page.read_text("utf-8"))}
    assert named == {trellis.__version__}


@pytest.mark.parametrize("page", [page for page in PAGES if name(page) not in FORMS], ids=name)
def test_a_block_that_shows_commands_says_so_by_its_kind(page):
    for block in blocks(page):
        if block.kind not in SHELL:
            for line in block.text.splitlines():
                typed = re.match(r"(\$ )?(trellis|python3?|pip|make|mosquitto\w*|for) ", line)
                assert not typed or line.startswith("$ make run"), f"{block.place}: {line}"
        if block.kind == "console":
            assert block.lines(), f"{block.place}: no line begins with a prompt"


def test_the_python_of_the_pages_parses():
    """That of README, live.md, pipeline.md and api.md is run as well; style.md shows forms."""
    for page in PAGES:
        for block in blocks(page, "python"):
            compile(block.text, block.place, "exec", flags=0x2000)  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def test_the_configurations_of_the_pages_are_taken(tmp_path):
    found: list[Block] = [block for page in PAGES for block in blocks(page, "toml")]
    assert found
    for block in found:
        (tmp_path / "node.toml").write_text(block.text, "utf-8")
        assert read_config(tmp_path / "node.toml", {}, {"name": "a"})


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target, heading in re.findall(r"\]\(([^)#:]+)(?:#([^)]*))?\)", page.read_text("utf-8")):
            there = page.parent / target
            assert there.exists(), f"{name(page)} links to {target}"
            if heading:
                headings = re.findall(r"^#+ (.+)$", there.read_text("utf-8"), re.MULTILINE)
                assert heading in [re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings]


@pytest.mark.parametrize("page", [page for page in PAGES if name(page) not in LONG], ids=name)
def test_no_line_of_prose_is_longer_than_120_letters(page):
    """Tables and blocks are as long as they must be."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    long = [line for line in text.splitlines() if len(line) > LETTERS_MAX and not line.startswith("|")]
    assert not long, f"{name(page)}: wrap {long[0][:60]!r} ..."


def test_every_file_that_a_page_names_for_contributors_is_there():
    """NAME and PAPER stand for what a contributor adds."""
    named = re.findall(r"`((?:src|tests|docs|examples)/[\w./-]+)`", (ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    assert len(named) > 50
    glossary = (ROOT / "docs" / "architecture.md").read_text("utf-8").split("## Glossary")[1]
    terms = [f"src/trellis/{file}" for file in re.findall(r"`([a-z_]+/[\w/]+\.py)`", glossary)]
    assert len(terms) > 40
    wanted = [file for file in (*named, *terms) if "NAME" not in file and "PAPER" not in file]
    missing = sorted({file for file in wanted if not (ROOT / file).exists()})
    assert not missing, f"CONTRIBUTING.md or the glossary of architecture.md names {missing}"


def test_the_citation_has_the_version_of_the_package():
    assert f"\nversion: {trellis.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
