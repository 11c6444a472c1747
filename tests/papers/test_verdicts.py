"""Verdicts are given by the lab, and by nothing else: other pages and benchmarks give numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = re.compile(r"\breproduced\b|\bshape only\b|\brule holds\b|\bholds where run\b|\bR holds\b", re.I)
LAB = ROOT / "docs" / "lab.md"  # explains the words
RESULTS = ROOT / "docs" / "results"  # made from results/ by the lab: tests/examples/test_lab_kept.py
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
PLACES = sorted(
    [path for path in PAGES if path != LAB and RESULTS not in path.parents]
    + [path for folder in ("benchmarks", "examples", "tests/papers") for path in (ROOT / folder).rglob("*.py")]
)
PLACES.remove(Path(__file__))


@pytest.mark.parametrize("path", PLACES, ids=lambda path: path.name)
def test_no_other_page_benchmark_or_example_gives_a_verdict(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [f"{number}: {line}" for number, line in enumerate(lines, start=1) if WORDS.search(line)] == []


def test_every_page_of_results_is_made_by_the_lab_and_lists_every_entry():
    from trellis.lab.catalogue import catalogue
    from trellis.lab.experiment import PAPERS

    assert {path.name for path in RESULTS.glob("*.md")} == {"README.md", *(f"{paper}.md" for paper in PAPERS)}
    index = (RESULTS / "README.md").read_text("utf-8")
    assert [name for name in catalogue() if f"| [{name}](" not in index] == []
    for one in catalogue().values():
        page = (RESULTS / f"{one.paper}.md").read_text("utf-8")
        assert f"## {one.id}\n" in page or f'<a id="{one.id.lower()}"></a>' in page
