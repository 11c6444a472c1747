"""Topic diameters where the answer is known: rings, paths, stars; and what is reported on the way."""

from __future__ import annotations

import threading
from itertools import pairwise

import numpy as np
import pytest

from trellis.measure import diameters as diameters_module
from trellis.measure.connectivity import connectivity
from trellis.measure.diameters import search_cost, topic_diameters
from trellis.model.interests import Interests
from trellis.model.names import Names
from trellis.model.overlay import Overlay


def one_topic(nodes: int) -> Interests:
    names = Names(f"n{node:05d}" for node in range(nodes))
    return Interests.from_ids(names, Names(["t"]), np.arange(nodes), np.zeros(nodes, int))


@pytest.mark.parametrize("nodes", [2, 63, 64, 65, 129, 1000])
def test_a_path_is_as_wide_as_it_has_links_whatever_the_order_of_its_nodes(nodes):
    over = one_topic(nodes)
    order = np.random.default_rng(nodes).permutation(nodes)
    found = topic_diameters(over, Overlay.from_ids(over.nodes, order[:-1], order[1:]))
    assert (found.maximum, found.radius_maximum) == (nodes - 1, nodes // 2)


@pytest.mark.parametrize("nodes", [3, 64, 65, 200])
def test_every_node_of_a_ring_is_half_of_it_away_from_another(nodes):
    over = one_topic(nodes)
    order = np.random.default_rng(nodes).permutation(nodes)
    found = topic_diameters(over, Overlay.from_ids(over.nodes, order, np.roll(order, 1)))
    assert (found.maximum, found.radius_maximum) == (nodes // 2, nodes // 2)


def test_a_star_has_diameter_two_and_radius_one():
    over = one_topic(300)
    found = topic_diameters(over, Overlay.from_ids(over.nodes, np.full(299, 150), np.delete(np.arange(300), 150)))
    assert (found.maximum, found.mean, found.radius_maximum, found.radius_mean) == (2, 2.0, 1, 1.0)


def test_split_lonely_and_idle_topics_have_no_diameter():
    nodes, topics = Names(["a", "b", "c"]), Names(["idle", "lonely", "pair", "split"])
    over = Interests.from_ids(nodes, topics, [0, 0, 1, 0, 2], [1, 2, 2, 3, 3])
    found = topic_diameters(over, Overlay.from_pairs(nodes, [("a", "b")]))
    assert found.diameter.tolist() == [-1, -1, 1, -1]
    assert found.radius.tolist() == [-1, -1, 1, -1]
    assert found.measured.tolist() == [2]


def test_without_a_topic_to_measure_there_is_no_maximum_and_no_mean():
    over = one_topic(3)
    found = topic_diameters(over, Overlay.from_ids(over.nodes, [], []))
    assert (found.maximum, found.mean, found.radius_maximum, found.radius_mean) == (None,) * 4


def test_progress_rises_to_its_total_and_is_reported_by_the_calling_thread(monkeypatch):
    monkeypatch.setattr(diameters_module, "PART_COST", 1000)
    over = one_topic(500)
    overlay = Overlay.from_ids(over.nodes, np.arange(499), np.arange(1, 500))
    reports: list[tuple[int, int, bool]] = []

    def report(done: int, total: int) -> None:
        reports.append((done, total, threading.current_thread() is threading.main_thread()))

    topic_diameters(over, overlay, progress=report)
    assert len(reports) > 10
    assert all(here and total == reports[-1][0] for _, total, here in reports)
    assert all(before < after for (before, *_), (after, *_) in pairwise(reports))


def test_an_error_in_a_report_ends_the_search(monkeypatch):
    monkeypatch.setattr(diameters_module, "PART_COST", 1000)
    over = one_topic(500)
    overlay = Overlay.from_ids(over.nodes, np.arange(499), np.arange(1, 500))

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        topic_diameters(over, overlay, progress=interrupt)


def test_the_cost_of_a_search_is_the_sum_of_subscribers_times_induced_links():
    over = Interests.from_pairs({"a": ["x", "y"], "b": ["x", "y"], "c": ["x", "z"], "d": ["z"]})
    overlay = Overlay.from_pairs(over.nodes, [("a", "b"), ("b", "c")])
    assert search_cost(over.popularity, connectivity(over, overlay)) == 3 * 2 + 2 * 1  # z is split
