"""All nodes of a mesh lose their power at once, under traffic: nothing acknowledged is lost.  [docs/durable.md]"""

from __future__ import annotations

from pathlib import Path

import pytest

from live.lives import run
from live.power import Power


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "rounds"), [(1, 5), (2, 20), (3, 75)])
def test_five_nodes_are_killed_at_once_and_lose_nothing_that_was_acknowledged(
    tmp_path: Path, seed: int, rounds: int
) -> None:
    power = Power(tmp_path, seed)
    run(power.run(rounds), limit_s=300 + 60 * rounds)
    verdict = power.verdict(tmp_path / "history.jsonl")
    counts = verdict.counts
    assert verdict.acknowledged > 20 * rounds
    assert counts.owed > 3 * verdict.acknowledged // 2, "too little was judged"
    bad = [one for one in verdict.violations if one.kind in ("lost", "twice", "order", "unknown", "history", "copies")]
    assert not bad, "\n".join(one.text for one in bad[:10])
    assert not counts.excused, counts.excused
