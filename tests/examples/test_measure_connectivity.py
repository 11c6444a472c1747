"""Split topics are found and named; the union-find and the merge of topic lists on examples by hand."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.errors import InputError
from trellis.measure.connectivity import _gather, _unite, connectivity, split_topics
from trellis.measure.induced import induced_links, topic_graphs
from trellis.model.interests import Interests
from trellis.model.names import Names
from trellis.model.overlay import Overlay

NEWS = Interests.from_pairs(
    {"a": ["news", "sport"], "b": ["news"], "c": ["news", "sport"], "d": ["news", "art"], "e": ["news"]}
)


def test_a_path_through_uninterested_nodes_does_not_connect_a_topic():
    overlay = Overlay.from_pairs(NEWS.nodes, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")])
    found = connectivity(NEWS, overlay)
    assert [NEWS.topics[topic] for topic in found.split] == ["sport"]
    assert (found.is_tco, found.missing) == (False, 1)
    assert dict(zip(NEWS.topics, found.components.tolist(), strict=True)) == {"art": 1, "news": 1, "sport": 2}


def test_topics_with_no_or_one_subscriber_are_connected_without_any_link():
    nodes, topics = Names(["a", "b"]), Names(["idle", "lonely"])
    over = Interests.from_ids(nodes, topics, [0], [1])
    found = connectivity(over, Overlay.from_ids(nodes, [], []))
    assert found.components.tolist() == [0, 1]
    assert found.is_tco
    assert found.missing == 0


def test_split_topics_are_named_with_the_sizes_and_members_of_their_components():
    found = connectivity(NEWS, Overlay.from_pairs(NEWS.nodes, [("a", "b"), ("b", "e"), ("c", "d")]))
    news, sport = split_topics(NEWS, found, members_max=2)
    assert (news.topic, news.subscribers, news.components, news.sizes) == ("news", 5, 2, (3, 2))
    assert news.members == (("a", "b"), ("c", "d"))
    assert str(news) == "news: 2 components of 3 (a, b, ...), 2 (c, d)"
    assert (sport.topic, sport.sizes, sport.members) == ("sport", (1, 1), (("a",), ("c",)))


def test_of_many_split_topics_and_components_the_worst_are_shown():
    found = connectivity(NEWS, Overlay.from_ids(NEWS.nodes, [], []))
    (worst,) = split_topics(NEWS, found, topics_max=1, components_max=2)
    assert (worst.topic, worst.components, worst.sizes) == ("news", 5, (1, 1))
    assert str(worst) == "news: 5 components of 1 (a), 1 (b), ..."


def test_a_link_between_nodes_that_share_no_topic_is_idle():
    over = Interests.from_pairs({"a": ["x"], "b": ["y"], "c": ["x", "y"]})
    found = connectivity(over, Overlay.from_pairs(over.nodes, [("a", "b"), ("a", "c")]))
    assert found.idle_links == 1
    assert found.links.tolist() == [1, 0]


def test_an_overlay_over_other_nodes_is_refused():
    with pytest.raises(InputError, match="other nodes"):
        connectivity(NEWS, Overlay.from_ids(Names(["a", "b"]), [0], [1]))


def test_equal_names_are_enough_for_an_overlay_to_fit():
    overlay = Overlay.from_ids(Names(list(NEWS.nodes)), [0], [1])
    assert connectivity(NEWS, overlay).links.sum() == 1


def test_union_find_points_every_member_at_the_first_of_its_set():
    parent, links_at = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    _unite(parent, links_at, np.array([6, 5, 2, 1], np.int32), np.array([5, 2, 6, 3], np.int32))
    components, links = np.zeros((2, 2), np.int64)
    _gather(np.array([0, 4, 8]), parent, links_at, components, links)
    assert parent.tolist() == [0, 1, 2, 1, 4, 2, 2, 7]
    assert components.tolist() == [3, 2]
    assert links.tolist() == [2, 2]


def test_a_short_topic_list_finds_all_it_shares_with_a_very_long_one():
    rng = np.random.default_rng(5)
    wanted = {"hub": set(range(0, 900, 2))}
    wanted |= {f"leaf{i}": set(rng.integers(0, 900, rng.integers(1, 6)).tolist()) for i in range(60)}
    wanted |= {"first": {0}, "last": {898}, "none": {899, 1}, "ends": {0, 898, 899}}
    over = Interests.from_pairs(wanted)
    overlay = Overlay.from_pairs(over.nodes, [("hub", name) for name in wanted if name != "hub"])
    (block,) = induced_links(over, overlay)
    expected = []
    for u, v in zip(overlay.u, overlay.v, strict=True):
        expected.append(len(wanted[over.nodes[u]] & wanted[over.nodes[v]]))
    assert block.shared.tolist() == expected
    position_topic = np.repeat(np.arange(len(over.topics)), over.popularity)
    assert position_topic[block.u].tolist() == position_topic[block.v].tolist()
    ends = over.topic_nodes[np.stack([block.u, block.v])]
    assert ends.tolist() == np.repeat(np.stack([overlay.u, overlay.v]), expected, axis=1).tolist()


def test_topic_graphs_hold_each_induced_link_from_both_ends():
    overlay = Overlay.from_pairs(NEWS.nodes, [("a", "c"), ("c", "d")])
    graphs = topic_graphs(NEWS, overlay)
    found = set()
    for position in range(NEWS.subscriptions):
        topic = NEWS.topics[int(np.searchsorted(graphs.offsets, position, side="right")) - 1]
        for neighbor in graphs.neighbors[graphs.first[position] : graphs.first[position + 1]]:
            ends = NEWS.topic_nodes[[position, neighbor]]
            found.add((topic, *NEWS.nodes.take(ends).to_pylist()))
    assert found == {
        *[("news", "a", "c"), ("news", "c", "a"), ("sport", "a", "c"), ("sport", "c", "a")],
        *[("news", "c", "d"), ("news", "d", "c")],
    }
