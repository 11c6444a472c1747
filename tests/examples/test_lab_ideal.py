"""Lookups over perfect tables."""

from __future__ import annotations

import pytest

from trellis.lab.measures.ideal import lookups


def found(system: str, nodes: int, long_links: int, friends: int = 0) -> dict:
    return dict(lookups(system, {"nodes": nodes, "long_links": long_links, "friends": friends}, 1, None))


def test_drawn_tables_take_as_many_hops_as_expected_and_lose_no_lookup():
    for long_links in (1, 2):
        expected, drawn = (found(system, 400, long_links) for system in ("expected", "perfect tables"))
        assert drawn["hops"] == pytest.approx(expected["hops"], rel=0.06)
        assert drawn["astray"] == 0


def test_hops_stay_below_the_limit_and_more_links_shorten_them():
    assert found("expected", 1000, 1)["hops k / log^2 N"] == pytest.approx(0.296, abs=0.001)
    hops = [found("expected", 1000, long_links, friends)["hops"] for long_links, friends in ((1, 0), (2, 0), (1, 12))]
    assert hops[0] > hops[1] > hops[2]
