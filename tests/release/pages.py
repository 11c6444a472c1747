"""What the pages show: their blocks, and the commands in them."""

from __future__ import annotations

import argparse
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import typer

from trellis.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += [
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "results").glob("*.md")),
    *sorted(ROOT.glob("examples/*/README.md")),
]
SHELL = ("console", "sh", "text")
# What is written for somebody to fill in, inside a sentence.
BLANKS = {"...": [], "ID...": ["ID"], "PROTOCOL": ["omen"]}
OPERATOR = re.compile(r"[;&|()<>]+")
PROGRAM = typer.main.get_command(app)
KEYWORDS = {"for", "do", "done", "if", "then", "fi", "while"}


class Block(NamedTuple):
    page: str
    line: int
    kind: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def lines(self) -> list[str]:
        """What is typed: every line in `sh`, else those with a prompt; a line may end in a backslash."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line.removeprefix("$ ") for line in lines if self.kind == "sh" or line.startswith("$ ")]


def blocks(page: Path, *kinds: str) -> list[Block]:
    """The blocks of a page of these kinds, all without any; from fence to fence, with the line of the first."""
    text, found = page.read_text("utf-8"), []
    for match in re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        one = Block(page.relative_to(ROOT).as_posix(), text.count("\n", 0, match.start()) + 1, match[1], match[2])
        if not kinds or one.kind in kinds:
            found.append(one)
    return found


def commands(line: str) -> Iterator[list[str]]:
    """The simple commands of a line of shell, as words; what is sent where is left out, and a variable is 1."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    command: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if skip:
            skip = False
        elif not OPERATOR.fullmatch(word):
            command.append(re.sub(r"\$\w+", "1", word))
        elif word[0] in "<>":
            skip = True  # the file after it
        else:
            while command and command[0] in KEYWORDS - {"for"}:
                del command[0]
            if command and command[0] != "for":
                yield command
            command = []


class Parsed(Exception):
    """A program has understood its words; that is all we wanted."""


def parse_trellis(words: list[str]) -> None:
    """Raises what the real parser does with the words behind `trellis`: options, values, how many of each."""
    command, context, name = PROGRAM, None, "trellis"
    while True:
        context = command.make_context(name, list(words), parent=context)
        if not hasattr(command, "commands"):
            return
        if not (rest := [*context._protected_args, *context.args]):
            return
        name, command, words = command.resolve_command(context, rest)


def parse_script(words: list[str]) -> None:
    """The same for one of our programs with argparse: `benchmarks/bench_plan.py --nodes 100`."""
    parse = argparse.ArgumentParser.parse_args

    def parsed(parser: argparse.ArgumentParser, *given: object) -> None:
        parse(parser, *given)
        raise Parsed

    with (
        mock.patch.object(argparse.ArgumentParser, "parse_args", parsed),
        mock.patch.object(sys, "argv", words),
        mock.patch.object(sys, "path", [str((ROOT / words[0]).parent), *sys.path]),
    ):
        try:
            runpy.run_path(str(ROOT / words[0]), run_name="__main__")
        except Parsed:
            return
    raise AssertionError(f"{words[0]} read no words")
