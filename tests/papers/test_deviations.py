"""Where the source says `Deviation:` and what docs/papers.md lists are the same."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE, PAGE = ROOT / "src" / "trellis", ROOT / "docs" / "papers.md"
ROW = re.compile(r"^\| `([\w/]+\.py)` \| (.+?) \| .+ \|$", re.MULTILINE)
Marker = tuple[str, str]  # file under src/trellis, and what stands there behind `Deviation:`


def marked(folder: Path) -> list[Marker]:
    """Every `Deviation:` of the source with the text behind it, over the ends of lines."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        for text in path.read_text("utf-8").split("Deviation:")[1:]:
            words = " ".join(text[:400].replace("#", " ").split())
            found.append((path.relative_to(folder).as_posix(), words))
    return found


def listed(page: str) -> list[Marker]:
    return ROW.findall(page.partition("## Deviations")[2])


def differences(markers: list[Marker], rows: list[Marker]) -> list[str]:
    """What stands on one side only; a row belongs to a marker of its file that begins as the row says."""
    said, left = [], list(markers)
    for file, words in rows:
        mine = [one for one in left if one[0] == file and one[1].startswith(words)]
        if mine:
            left.remove(mine[0])
        else:
            said.append(f"docs/papers.md lists `{file}`: {words}; the source has no such `Deviation:`")
    return said + [f"{file} says `Deviation:` {words[:60]}; docs/papers.md has no row for it" for file, words in left]


def test_every_deviation_of_the_source_is_listed_and_every_listed_one_is_in_the_source():
    markers, rows = marked(SOURCE), listed(PAGE.read_text("utf-8"))
    assert len(rows) > 10
    assert not differences(markers, rows)
    assert not [row for row, count in Counter(rows).items() if count > 1]


def test_a_deviation_that_is_missing_on_either_side_is_found(tmp_path):
    (tmp_path / "plan").mkdir()
    source = tmp_path / "plan" / "some.py"
    source.write_text("x = 1  # Deviation: the paper\n       # counts otherwise; we do not\ny = 2\n")
    page = "## Deviations\n\n| `plan/some.py` | the paper counts otherwise | SH 1 |\n"
    markers = marked(tmp_path)
    assert not differences(markers, listed(page))
    assert differences(markers, listed("## Deviations\n")) == [
        "plan/some.py says `Deviation:` the paper counts otherwise; we do not y = 2; docs/papers.md has no row for it"
    ]
    assert len(differences([], listed(page))) == 1
    assert len(differences(markers, listed(page.replace("otherwise", "twice")))) == 2
    source.write_text(source.read_text() + "z = 3  # Deviation: another one\n")
    assert len(differences(marked(tmp_path), listed(page))) == 1
