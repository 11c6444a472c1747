"""Keys and streams: the same on every machine, and apart for every purpose."""

from trellis import ids


def test_a_key_depends_on_seed_and_name_only():
    # Frozen: a mesh whose nodes disagree on keys breaks ties differently on each node.
    assert ids.key("cluster", "n1") == 0xC1A672F64E22C1F
    assert ids.key("cluster", "n1") != ids.key("cluster", "n2")
    assert ids.key("cluster", "n1") != ids.key("other", "n1")


def test_streams_of_different_labels_do_not_meet():
    assert ids.stream(1, "ab", "c") != ids.stream(1, "a", "bc")
    assert ids.stream(1, "a") != ids.stream(1, "a", "")
    assert ids.stream(11, "a") != ids.stream(1, "1a")
    assert ids.stream(7, "gossip", 3) == ids.stream(7, "gossip", 3)
