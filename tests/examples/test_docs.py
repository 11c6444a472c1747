"""The documentation is true: every command that the README shows parses and runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from trellis.cli.main import run

ROOT = Path(__file__).parents[2]


def commands_in(page: str) -> list[list[str]]:
    """The `trellis` lines of the console blocks of a page, in order."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.startswith("$ ")]
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("page", ["README.md"])
def test_the_commands_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shown = [command for command in commands_in(page) if command[0] == "trellis"]
    assert len(shown) >= 5
    for command in shown:
        assert run(command[1:]) == 0, (command, capsys.readouterr().err)


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
