"""Clients come, go and come back, without any fault: nothing acknowledged is missing, nothing comes twice."""

from __future__ import annotations

import pytest

pytest.importorskip("aiomqtt", reason="aiomqtt is not installed")

from live.come_and_go import fits, try_coming_and_going


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_nothing_is_missing_and_nothing_twice_while_clients_come_and_go(nodes):
    """Five minutes in all, and the time that each mesh needs to begin."""
    found = try_coming_and_going(nodes, seconds=75, seed=nodes)
    assert found["missing"] == []
    assert found["twice"] == []
    assert found["owed"] > 500
    assert found["troubles"] == {}
    assert sum(found["refused"].values()) <= 0.02 * found["publications"]


def test_the_judge_knows_filters():
    assert fits("plant/#")("plant/oven/heat")
    assert fits("plant/#")("plant")
    assert fits("+/oven/#")("plant/oven")
    assert not fits("plant/+")("plant/oven/heat")
    assert not fits("plant/+/heat")("plant/oven/state")
