"""Verdicts are given by the lab, and by nothing else: other pages and benchmarks give numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = re.compile(r"\breproduced\b|\bshape only\b|\brule holds\b|\bholds where run\b|\bR holds\b", re.I)
LAB = {"lab.md", "lab-results.md"}
PLACES = sorted(
    [path for path in (ROOT / "docs").glob("*.md") if path.name not in LAB] + list((ROOT / "benchmarks").rglob("*.py"))
)


@pytest.mark.parametrize("path", PLACES, ids=lambda path: path.name)
def test_no_other_page_and_no_benchmark_gives_a_verdict(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [f"{number}: {line}" for number, line in enumerate(lines, start=1) if WORDS.search(line)] == []
