"""Packages whose text was rewritten in plain English keep to the vocabulary of the glossary in docs/architecture.md."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src/trellis"
PACKAGES = (
    "cli",
    "fleet",
    "judge",
    "pipeline",
    "live/mqtt",
    "measure",
    "protocols/delivery",
    "protocols/mqtt",
    "protocols/omen",
    "protocols/opt",
    "protocols/rvr",
    "protocols/vitis",
    "store",
)
# Names that travel in messages or are keys of a configuration, and fields that repeat them: another name would be
# another version of the wire, or break configurations.
KEPT = {"protocols/omen": {"FoundRecord", "life", "mend", "neighbours", "way", "way_max"}}
NOT_YET = ("cli/lab.py",)  # modules of these packages that were not rewritten

# Retired word -> the word to use. A word of a name is a part between underscores or capitals: `is_own` has two.
IN_NAMES = {
    "neighbour": "neighbor",
    "neighbours": "neighbor",
    "mend": "repair",
    "life": "incarnation",
    "lives": "incarnation",
    "way": "link",
    "ways": "links",
    "door": "listener, or client port",
    "guest": "client",
    "house": "state, package or node",
    "found": "the word of the domain",
    "place": "index, address or bit",
}
IN_PROSE = {
    "neighbour": "neighbor",
    "neighbours": "neighbors",
    "neighbouring": "next",
    "mend": "repair",
    "mends": "repairs",
    "mended": "repaired",
    "mending": "repair",
    "life": "incarnation",
    "lives": "incarnations",
    "door": "listener, or client port",
    "doors": "listeners, or client ports",
    "guest": "client",
    "guests": "clients",
    "house": "package or node",
    "whoever": "the node or client that ...",
    "anew": "again, or: start a new ...",
}
# A sentence begins with its subject or its verb. The first ones ask, and the last one leaves the subject out.
BEGINNINGS = ("Who ", "Whom ", "Whoever ", "Whatever ", "Of a ", "Of the ", "Never silent")


def names(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of everything that a module gives a name to: classes, functions, arguments, variables."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each comment and docstring, without words in backticks, quotes or brackets."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], _quoted(token.string.lstrip("# "))
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, _quoted(text)


def _quoted(text: str) -> str:
    return re.sub(r"`[^`]*`|\[[^\]]*\]|\"\w+\"", "-", text)


def faults(source: str, kept: Collection[str] = ()) -> list[str]:
    """Return each retired word of a module with its line, and what to say instead."""
    told = []
    for line, name in names(source):
        if name in kept:
            continue
        parts = re.findall(r"[A-Z]?[a-z]+", name)
        told += [f"{line}: the name {name}: say {IN_NAMES[part.lower()]}" for part in parts if part.lower() in IN_NAMES]
    for line, text in prose(source):
        words = re.findall(r"[A-Za-z]+", text)
        told += [f'{line}: "{word}": say {IN_PROSE[word.lower()]}' for word in words if word.lower() in IN_PROSE]
        told += [f'{line}: a sentence begins with "{one.strip()}"' for one in BEGINNINGS if text.startswith(one)]
    return told


@pytest.mark.parametrize("package", PACKAGES)
def test_a_rewritten_package_has_no_retired_word(package: str) -> None:
    told = [
        f"{path.relative_to(SOURCE)}:{fault}"
        for path in sorted((SOURCE / package).rglob("*.py"))
        if str(path.relative_to(SOURCE)) not in NOT_YET
        for fault in faults(path.read_text(), KEPT.get(package, ()))
    ]
    assert not told, "\n".join(told)


def test_the_modules_beside_the_packages_have_no_retired_word() -> None:
    told = [f"{path.name}:{fault}" for path in sorted(SOURCE.glob("*.py")) for fault in faults(path.read_text())]
    assert not told, "\n".join(told)


@pytest.mark.parametrize(
    "source",
    [
        "class Way:\n    pass",
        "def open_door():\n    pass",
        "self.life = 1",
        "for place in range(3):\n    pass",
        '"""Mends the overlay."""',
        '"""Who asks is answered."""',
        "# Whoever asks is answered.",
    ],
)
def test_a_retired_word_is_found(source: str) -> None:
    assert faults(source)


def test_a_name_in_backticks_and_a_word_in_a_text_are_no_prose() -> None:
    assert not faults('"""`Who` asks `life`."""\nprint("a door")  # [docs/doors.md]')
    assert not faults("""# who = "neighbours" in a file""")


def test_a_name_that_is_kept_is_allowed_as_it_is_and_not_as_a_part_of_another() -> None:
    assert not faults("way = 1", {"way"})
    assert faults("ways = 1", {"way"})
    assert faults("my_way = 1", {"way"})
