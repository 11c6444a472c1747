"""SpiderCast by example: each handler of [SC Fig. 4], each routine of [SC Fig. 2-3], effect lists compared whole."""

from __future__ import annotations

from random import Random

import pytest

from spiders import connect, connect_ok, spider
from trellis.errors import InputError
from trellis.protocols.effects import CancelTimer, LinkDown, LinkUp, Send, SetTimer
from trellis.protocols.spidercast import SimilarityConfig, SpiderCastConfig
from trellis.protocols.spidercast.messages import (
    Disconnect,
    DisconnectOk,
    Heartbeat,
    Inquire,
    Leave,
    Redirect,
    Stamp,
    State,
)

TURN = SetTimer("greedy/iterate", 200)
WAKE = SetTimer("greedy/iterate", 0)
FIRST = Stamp(1, 0)


def linked(node, **neighbours):
    """`linked(node, b=(degree, target, "xy"))`: as if b had asked for a link and had got it."""
    for name, (degree, target, topics) in neighbours.items():
        node.on_message(name, connect(degree, target, topics))
        node.on_message(name, Heartbeat(FIRST, State(degree, target)))
    return node


# CONNECT and its answers


def test_an_iteration_asks_the_node_that_covers_most_and_quarantines_it():
    node = spider("a", {"a": "xyz", "b": "x", "c": "xy", "d": "w"}, coverage_greedy=1)
    assert node.on_timer("greedy/iterate") == [
        Send("c", connect(0, 3, "xyz")),
        SetTimer("greedy/quarantine/c", 2_000),
        TURN,
    ]
    assert node.on_timer("greedy/iterate")[0] == Send("b", connect(0, 3, "xyz"))
    assert node.on_timer("greedy/iterate") == [TURN]  # d covers nothing, b and c are in quarantine
    node.on_timer("greedy/quarantine/c")
    assert node.on_timer("greedy/iterate")[0] == Send("c", connect(0, 3, "xyz"))


def test_connect_is_accepted_and_answered_with_the_degree_after_and_the_target_before():
    """l. 3 before l. 4-5: CONNECT-OK leaves before L is raised."""
    node = spider("a", {"a": "xy"}, coverage_greedy=1)
    node.on_timer("greedy/iterate")
    assert node.greedy.target == 0  # nobody is known, so nothing is demanded, so L = |neighbors|
    assert node.on_message("b", connect(0, 2, "x")) == [LinkUp("b"), Send("b", connect_ok(1, 0, "xy"))]
    assert node.greedy.target == 1


def test_connect_is_accepted_up_to_the_limit_and_the_margin_and_then_redirected():
    node = spider("a", {"a": "x"}, coverage_greedy=1, margin=2)
    for peer in ("b", "c", "d"):
        assert node.on_message(peer, connect(0, 9, "x"))[0] == LinkUp(peer)
    assert len(node.greedy.neighbors) == 3  # L^max + Margin, the bound itself (A-SPC-22)
    assert isinstance(node.on_message("e", connect(0, 9, "x"))[0].message, Redirect)
    node.check()


def test_a_redirect_names_the_neighbour_with_room_that_shares_most_with_the_sender():
    node = spider("a", {"a": "xyz"}, coverage_greedy=1, margin=0)
    linked(node, b=(1, 3, "xy"), c=(3, 3, "xyz"), d=(0, 3, "x"))
    assert node.on_message("e", connect(0, 3, "xyz")) == [Send("e", Redirect("greedy", "b", ("x", "y")))]
    # c shares more, but has reached its target (and Margin is 0)


def test_the_figures_redirect_rule_allows_the_margin_and_the_proses_does_not():
    for rule, expected in (("margin", "b"), ("target", None)):
        node = spider("a", {"a": "x"}, coverage_greedy=1, margin=1, redirect_to=rule)
        linked(node, b=(3, 3, "x"), c=(4, 3, "x"))
        (answer,) = node.on_message("e", connect(0, 3, "x"))
        assert answer.message.to == expected


def test_a_redirect_of_nobody_only_says_no():
    node = spider("a", {"a": "x"}, coverage_greedy=1, margin=0)
    linked(node, b=(5, 5, "x"))
    assert node.on_message("e", connect(0, 1, "x")) == [Send("e", Redirect("greedy"))]


def test_redirect_candidates_come_first():
    node = spider("a", {"a": "xy", "b": "xy", "c": "xy"}, "bc", coverage_greedy=1)
    asked = node.on_timer("greedy/iterate")[0].to
    assert node.on_message(asked, Redirect("greedy", "stranger", ("w",))) == []
    assert node.on_timer("greedy/iterate")[0].to == "stranger"  # although it is of no use (A-SPC-17)


def test_candidates_of_no_use_are_skipped_on_request():
    node = spider("a", {"a": "xy", "b": "xy"}, "b", coverage_greedy=1, useful_redirects_only=True)
    node.on_timer("greedy/iterate")
    node.on_message("b", Redirect("greedy", "stranger", ("w",)))
    assert node.on_timer("greedy/iterate") == [TURN]


def test_any_candidate_is_of_use_where_links_are_counted():
    """The baselines cover no topics: whatever a candidate wants, it is one link more."""
    config = SimilarityConfig(links_similar=2, useful_redirects_only=True)
    node = spider("a", {"a": "xy", "b": "xy"}, "b", config=config)
    node.on_timer("greedy/iterate")
    node.on_message("b", Redirect("greedy", "stranger", ("w",)))
    assert node.on_timer("greedy/iterate")[0].to == "stranger"


def test_a_redirect_that_nobody_waits_for_is_ignored():
    node = spider("a", {"a": "xy", "b": "xy"}, coverage_greedy=1)
    node.on_message("b", Redirect("greedy", "stranger", ("x",)))
    assert not node.greedy.redirects
    assert node.greedy.stale == 1


def test_redirect_candidates_are_limited():
    node = spider("a", {"a": "x", **{f"n{number}": "x" for number in range(9)}}, coverage_greedy=1, redirects_max=3)
    for number in range(9):
        asked = f"n{number}"
        node.greedy.quarantine[asked] = True
        node.on_message(asked, Redirect("greedy", f"m{number}"))
    assert list(node.greedy.redirects) == ["m0", "m1", "m2"]


def test_connect_ok_makes_the_link():
    node = spider("a", {"a": "x", "b": "x"}, coverage_greedy=1)
    node.on_timer("greedy/iterate")
    assert node.on_message("b", connect_ok(1, 1, "x")) == [LinkUp("b")]
    assert node.greedy.under_covered() == 0
    assert node.on_timer("greedy/quarantine/b") == []


def test_connect_ok_over_the_limit_is_given_up_by_leave():
    node = spider("a", {"a": "x", "b": "x"}, coverage_greedy=1, margin=0)
    node.on_timer("greedy/iterate")
    linked(node, c=(0, 1, "w"))
    assert node.on_message("b", connect_ok(1, 1, "x")) == [Send("b", Leave("greedy"))]
    node.check()


def test_a_connect_ok_that_nobody_waits_for_is_answered_with_leave():
    node = spider("a", {"a": "x", "b": "x"}, coverage_greedy=1)
    assert node.on_message("b", connect_ok(1, 1, "x")) == [Send("b", Leave("greedy"))]


def test_a_connect_ok_after_its_quarantine_is_too_late():
    node = spider("a", {"a": "x", "b": "x"}, coverage_greedy=1)
    node.on_timer("greedy/iterate")
    node.on_timer("greedy/quarantine/b")
    assert node.on_message("b", connect_ok(1, 1, "x")) == [Send("b", Leave("greedy"))]


def test_a_connect_ok_that_its_leave_has_overtaken_is_void():
    node = spider("a", {"a": "x", "b": "x"}, coverage_greedy=1)
    node.on_timer("greedy/iterate")
    assert node.on_message("b", Leave("greedy")) == []
    assert node.on_message("b", connect_ok(1, 1, "x")) == [Send("b", Leave("greedy"))]


def test_a_repeated_connect_ok_of_a_dropped_link_does_not_bring_it_back():
    node = spider("a", {"a": "x", "b": "x"}, coverage_greedy=1)
    node.on_timer("greedy/iterate")
    node.on_message("b", connect_ok(1, 1, "x"))
    node.on_message("b", Leave("greedy"))
    assert node.on_message("b", connect_ok(1, 1, "x")) == [Send("b", Leave("greedy"))]


def test_connects_that_cross_make_one_link():
    node = spider("a", {"a": "x", "b": "x"}, coverage_greedy=1)
    node.on_timer("greedy/iterate")
    assert node.on_message("b", connect(0, 1, "x")) == [LinkUp("b"), Send("b", connect_ok(1, 1, "x"))]
    assert node.on_message("b", connect_ok(1, 1, "x")) == []
    node.check()


def test_a_connect_of_a_neighbour_is_answered_again():
    node = linked(spider("a", {"a": "x"}, coverage_greedy=1), b=(1, 1, "x"))
    assert node.on_message("b", connect(0, 1, "xy", version=1)) == [Send("b", connect_ok(1, 1, "x"))]
    assert node.greedy.neighbors["b"].interest == node.me.table.bits(("x", "y"))


# DISCONNECT and its answers


def covered_three_times(**fields):
    """a wants x and has three neighbours for it; K is 1."""
    node = spider("a", {"a": "x"}, coverage_greedy=1, **fields)
    return linked(node, b=(2, 2, "x"), c=(1, 2, "x"), d=(2, 2, "x"))


def test_an_over_covered_node_asks_a_neighbour_that_has_reached_its_target_to_part():
    node = covered_three_times()
    effects = node.on_timer("greedy/iterate")
    assert effects[0].to in {"b", "d"}  # c is below its target: it needs us
    assert effects[1:] == [SetTimer("greedy/part", 400), TURN]
    assert effects[0].message == Disconnect("greedy")
    assert node.greedy.target == 1  # min(L^max, |neighbors|)


def test_only_one_disconnect_is_outstanding():
    node = covered_three_times()
    node.on_timer("greedy/iterate")
    assert node.on_timer("greedy/iterate") == [TURN]


def test_nobody_is_asked_to_part_who_is_needed():
    node = linked(spider("a", {"a": "xy"}, coverage_greedy=1), b=(2, 2, "x"), c=(2, 2, "y"))
    assert node.on_timer("greedy/iterate") == [TURN]


def test_among_those_who_can_go_the_least_missed_goes():
    """Above L^max somebody must go even if a topic is lost; the fewer the better."""
    node = spider("a", {"a": "xy"}, coverage_greedy=1, margin=1)
    linked(node, b=(2, 2, "x"), c=(2, 2, "x"), d=(2, 2, "y"))
    assert node.on_timer("greedy/iterate")[0].to in {"b", "c"}


def test_as_printed_nobody_below_the_limit_is_ever_asked():
    """A-SPC-6: degree > target."""
    node = covered_three_times(drop_from="above-target")
    assert node.on_timer("greedy/iterate") == [TURN]
    node.on_message("b", Heartbeat(FIRST, State(3, 2)))
    assert node.on_timer("greedy/iterate")[0] == Send("b", Disconnect("greedy"))


def test_a_refusal_is_remembered_until_something_changes():
    node = covered_three_times()
    refused = node.on_timer("greedy/iterate")[0].to
    assert node.on_timer("greedy/part") == []
    other = node.on_timer("greedy/iterate")[0].to
    assert {refused, other} == {"b", "d"}
    node.on_timer("greedy/part")
    assert node.on_timer("greedy/iterate") == [TURN]
    node.on_message(other, Heartbeat(FIRST, State(5, 5)))
    assert node.on_timer("greedy/iterate")[0] == Send(other, Disconnect("greedy"))


def test_our_own_neighbours_changing_is_a_reason_to_ask_again():
    node = covered_three_times()
    for _ in range(2):
        node.on_timer("greedy/iterate")
        node.on_timer("greedy/part")
    assert node.on_timer("greedy/iterate") == [TURN]
    linked(node, e=(1, 5, "x"))
    assert node.on_timer("greedy/iterate")[0].message == Disconnect("greedy")


def test_without_memory_the_same_neighbour_is_asked_for_ever():
    node = linked(spider("a", {"a": "x"}, coverage_greedy=1, remember_refusals=False), b=(2, 2, "x"), c=(0, 2, "x"))
    for _ in range(3):
        assert node.on_timer("greedy/iterate")[0] == Send("b", Disconnect("greedy"))
        node.on_timer("greedy/part")


def test_disconnect_is_agreed_to_by_a_node_that_stays_covered():
    node = linked(spider("a", {"a": "x"}, coverage_greedy=1), b=(2, 2, "x"), c=(2, 2, "x"))
    assert node.on_message("b", Disconnect("greedy")) == [LinkDown("b"), Send("b", DisconnectOk("greedy"))]
    assert node.greedy.target == 1


def test_disconnect_is_met_with_silence_by_a_node_that_needs_the_link():
    node = linked(spider("a", {"a": "xy"}, coverage_greedy=1), b=(2, 2, "x"))
    assert node.on_message("b", Disconnect("greedy")) == []
    assert "b" in node.greedy.neighbors


def test_disconnect_is_agreed_to_above_the_target_even_if_a_topic_is_lost():
    node = linked(spider("a", {"a": "x", "b": "x"}, coverage_greedy=1), b=(2, 2, "x"), c=(2, 2, "w"))
    assert node.greedy.target == 1
    effects = node.on_message("b", Disconnect("greedy"))
    assert effects == [LinkDown("b"), WAKE, Send("b", DisconnectOk("greedy"))]


def test_whoever_was_asked_to_part_counts_as_lost_already():
    """A-SPC-13: b may agree at any moment; c must not go as well."""
    node = linked(spider("a", {"a": "xy"}, coverage_greedy=1), b=(2, 2, "x"), c=(1, 2, "x"))
    assert node.on_timer("greedy/iterate")[0] == Send("b", Disconnect("greedy"))
    assert node.on_message("c", Disconnect("greedy")) == []
    effects = node.on_message("b", DisconnectOk("greedy"))
    assert effects == [LinkDown("b"), CancelTimer("greedy/part"), WAKE]
    assert node.on_message("c", Disconnect("greedy")) == []


def test_whoever_was_refused_for_that_reason_alone_is_asked_in_its_turn():
    node = linked(spider("a", {"a": "xy"}, coverage_greedy=1), b=(2, 2, "x"), c=(1, 2, "x"))
    node.on_timer("greedy/iterate")
    node.on_message("c", Disconnect("greedy"))
    node.on_timer("greedy/part")  # b has refused
    asked = [effect for _ in range(20) for effect in node.on_timer("greedy/iterate") if isinstance(effect, Send)]
    assert asked == [Send("c", Disconnect("greedy"))]  # although c is below its target: it has asked for it


def test_a_disconnect_from_nobody_we_know_is_agreed_to():
    node = spider("a", {"a": "x"}, coverage_greedy=1)
    assert node.on_message("b", Disconnect("greedy")) == [Send("b", DisconnectOk("greedy"))]


def test_a_disconnect_ok_from_nobody_we_know_is_ignored():
    node = spider("a", {"a": "x"}, coverage_greedy=1)
    assert node.on_message("b", DisconnectOk("greedy")) == []


# LEAVE, suspicion, heartbeats


def test_leave_removes_the_link_and_wakes_the_task():
    node = linked(spider("a", {"a": "x", "c": "x"}, coverage_greedy=1), b=(1, 1, "x"))
    assert node.on_message("b", Leave("greedy")) == [LinkDown("b"), WAKE]
    assert node.on_message("b", Leave("greedy")) == []


def test_an_orderly_leave_tells_all_neighbours_of_both_tasks():
    node = linked(spider("a", {"a": "x"}, coverage_greedy=1), b=(1, 1, "x"), c=(1, 1, "x"))
    node.on_message("b", connect(0, 0, "x", task="random"))
    assert node.leave() == [
        Send("b", Leave("greedy")),
        Send("c", Leave("greedy")),
        LinkDown("c"),
        Send("b", Leave("random")),
        LinkDown("b"),
    ]


def test_a_silent_neighbour_is_suspected_after_silence_max_periods_and_left_alone_for_a_while():
    node = linked(spider("a", {"a": "x", "b": "x"}, coverage_greedy=1, silence_max=2), b=(1, 1, "x"))
    beat = Send("b", Heartbeat(FIRST, State(1, 1)))
    again = SetTimer("heartbeat/tick", 1_000)
    assert [node.on_timer("heartbeat/tick") for _ in range(2)] == [[beat, again]] * 2
    assert node.on_timer("heartbeat/tick") == [
        beat,
        SetTimer("greedy/quarantine/b", 10_000),
        LinkDown("b"),
        WAKE,
        again,
    ]
    assert node.on_timer("greedy/iterate") == [TURN]
    node.check()


def test_a_broken_stream_is_a_suspicion():
    node = linked(spider("a", {"a": "x"}, coverage_greedy=1), b=(1, 1, "x"))
    assert node.on_peer_down("b") == [SetTimer("greedy/quarantine/b", 10_000), LinkDown("b"), WAKE]
    assert node.on_peer_down("b") == []


def test_one_heartbeat_serves_both_tasks():
    node = linked(spider("a", {"a": "x"}, coverage_greedy=1), b=(1, 1, "x"))
    node.on_message("b", connect(0, 0, "x", task="random"))
    node.on_message("c", connect(0, 0, "x", task="random"))
    assert node.on_timer("heartbeat/tick")[:2] == [
        Send("b", Heartbeat(FIRST, State(1, 1), State(2, 0))),
        Send("c", Heartbeat(FIRST, None, State(2, 0))),
    ]


def test_half_a_link_is_answered_with_leave():
    node = spider("a", {"a": "x"}, coverage_greedy=1)
    assert node.on_message("b", Heartbeat(FIRST, State(1, 1))) == [Send("b", Leave("greedy"))]
    linked(node, c=(1, 1, "x"))
    both = Heartbeat(FIRST, State(1, 1), State(1, 1))
    assert node.on_message("c", both) == [Send("c", Leave("random"))]


def test_a_heartbeat_that_overtakes_the_connect_ok_is_no_half_link():
    node = spider("a", {"a": "x", "b": "x"}, coverage_greedy=1)
    node.on_timer("greedy/iterate")
    assert node.on_message("b", Heartbeat(FIRST, State(1, 1))) == []
    assert node.on_message("b", connect_ok(1, 1, "x")) == [LinkUp("b")]


# Interest changes


def test_a_new_topic_is_announced_by_the_next_heartbeat_and_covered_at_once():
    node = linked(spider("a", {"a": "x"}, coverage_greedy=1), b=(1, 1, "x"))
    assert node.subscribe("y") == [WAKE]
    assert node.subscribe("y") == []
    assert node.on_timer("heartbeat/tick")[0] == Send("b", Heartbeat(Stamp(1, 1), State(1, 1), None, ("x", "y")))
    assert node.on_timer("heartbeat/tick")[0] == Send("b", Heartbeat(Stamp(1, 1), State(1, 1)))


def test_whoever_missed_a_change_of_interest_asks():
    node = linked(spider("a", {"a": "x", "c": "x"}, coverage_greedy=1), b=(1, 1, "x"))
    assert node.on_message("b", Heartbeat(Stamp(1, 1), State(1, 1))) == [Send("b", Inquire())]
    assert node.on_message("b", Heartbeat(Stamp(1, 1), State(1, 1), None, ("w",))) == []
    assert node.greedy.under_covered() != 0  # b has left the topic that it covered
    assert node.on_message("b", Heartbeat(Stamp(1, 0), State(1, 1), None, ("x",))) == []  # late
    assert node.greedy.under_covered() != 0


def test_an_inquiry_is_answered_with_the_interest():
    node = linked(spider("a", {"a": "xy"}, coverage_greedy=1), b=(1, 1, "x"))
    assert node.on_message("b", Inquire()) == [Send("b", Heartbeat(FIRST, State(1, 2), None, ("x", "y")))]


def test_an_interest_that_shrinks_lowers_the_limit_and_the_node_parts_from_the_excess():
    node = spider("a", {"a": "xyz"}, coverage_greedy=1, margin=0)
    linked(node, b=(2, 2, "x"), c=(2, 2, "x"), d=(2, 2, "x"))
    node.unsubscribe("y")
    node.unsubscribe("z")
    node.check()  # above the new bound, but no further than before
    assert node.on_timer("greedy/iterate")[0].message == Disconnect("greedy")
    node.on_message(node.greedy.asked_to_part, DisconnectOk("greedy"))
    assert len(node.greedy.neighbors) == 2
    node.check()


def test_a_restarted_neighbour_is_known_by_its_incarnation():
    node = linked(spider("a", {"a": "x"}, coverage_greedy=1), b=(1, 1, "x"))
    node.on_message("b", connect(0, 1, "w", life=2))
    assert node.greedy.neighbors["b"].interest == node.me.table.bits(("w",))
    assert node.on_message("b", Heartbeat(Stamp(1, 5), State(9, 9), None, ("x",))) == []  # of its former life
    assert node.greedy.neighbors["b"].interest == node.me.table.bits(("w",))


# What cannot be covered, the adaptive scheme, the baselines


def test_no_more_is_demanded_than_is_known():
    """A-SPC-10: K = 3, but one other subscriber of x."""
    node = spider("a", {"a": "x", "b": "x", "c": "w", "d": "w"}, coverage_greedy=3)
    node.on_timer("greedy/iterate")
    node.on_message("b", connect_ok(1, 3, "x"))
    assert node.on_timer("greedy/iterate") == [TURN]
    assert node.greedy.target == 1  # it shows itself covered


def test_literally_a_node_goes_on_to_its_limit_with_nodes_of_no_use():
    node = spider("a", {"a": "x", "b": "x", "c": "w", "d": "w"}, coverage_greedy=3, demand="literal")
    node.on_timer("greedy/iterate")
    node.on_message("b", connect_ok(1, 3, "x"))
    assert node.on_timer("greedy/iterate")[0].to in {"c", "d"}


def test_a_neighbour_that_the_view_does_not_know_counts():
    """The view knows b and c; d, a stranger, has linked up: b and c are still asked, up to K = 3."""
    node = linked(spider("a", {"a": "x", "b": "x", "c": "x"}, "bc", coverage_greedy=3), d=(1, 3, "x"))
    asked = [node.on_timer("greedy/iterate")[0].to for _ in range(2)]
    assert sorted(asked) == ["b", "c"]
    for peer in asked:
        node.on_message(peer, connect_ok(1, 3, "x"))
    assert node.greedy.under_covered() == 0


def test_a_node_of_many_like_minded_raises_its_random_coverage():
    everybody = dict.fromkeys("abcdefgh", "vwxyz")
    node = spider("a", everybody, coverage_greedy=3, adaptive=True)
    linked(node, b=(9, 15, "vwxyz"), c=(9, 15, "vwxyz"), d=(9, 15, "vwxyz"))
    goal = node.random_task.goal
    assert node.on_timer("greedy/iterate") == [TURN, SetTimer("random/iterate", 0)]
    assert goal.k == 1  # degree 3 = K_g
    node.on_timer("random/iterate")
    (asked,) = node.random_task.quarantine
    node.on_message(asked, connect_ok(1, 5, "vwxyz", task="random"))
    node.on_timer("random/iterate")
    node.on_timer("greedy/iterate")
    assert goal.k == 2  # randomly covered once, and the degree is below the 5 subscriptions


def test_a_node_with_a_higher_degree_keeps_to_greedy_coverage():
    node = spider("a", dict.fromkeys("abcde", "x"), coverage_greedy=3, adaptive=True)
    linked(node, **dict.fromkeys("bcde", (9, 15, "x")))
    for _ in range(5):
        node.on_timer("greedy/iterate")
    assert node.random_task.goal.k == 0


def test_random_coverage_is_capped_and_starts_over_when_the_interest_changes():
    everybody = dict.fromkeys("abcdefgh", "vwxyz")
    node = spider("a", everybody, coverage_greedy=3, adaptive=True)
    linked(node, b=(9, 15, "vwxyz"), c=(9, 15, "vwxyz"), d=(9, 15, "vwxyz"))
    for peer in "bcd":  # the same three once more: the degree stays 3, below the number of topics
        node.on_message(peer, connect(9, 15, "vwxyz", task="random"))
    for _ in range(12):
        node.on_timer("random/iterate")
        node.on_timer("greedy/iterate")
    assert node.random_task.goal.k == 3
    node.subscribe("u")
    assert node.random_task.goal.k == 0


def test_a_baseline_connects_up_to_its_fixed_target():
    config = SimilarityConfig(links_similar=2, links_random=1, margin=1)
    node = spider("a", {"a": "xyz", "b": "xy", "c": "x", "d": "w"}, config=config)
    assert node.on_timer("greedy/iterate")[0] == Send("b", connect(0, 2, "xyz"))
    node.on_message("b", connect_ok(1, 2, "xy"))
    assert node.on_timer("greedy/iterate")[0] == Send("c", connect(1, 2, "xyz"))
    node.on_message("c", connect_ok(1, 2, "x"))
    assert node.on_timer("greedy/iterate") == [TURN]
    assert node.on_message("d", connect(0, 2, "w"))[0] == LinkUp("d")  # Margin
    assert isinstance(node.on_message("e", connect(0, 2, "w"))[0].message, Redirect)
    assert node.greedy.target == 2


def test_a_baseline_drops_a_link_where_both_ends_are_above_target():
    config = SimilarityConfig(links_similar=1)
    node = linked(spider("a", {"a": "x"}, config=config), b=(1, 1, "x"), c=(2, 1, "x"))
    assert node.on_timer("greedy/iterate")[0] == Send("c", Disconnect("greedy"))
    assert node.on_message("b", Disconnect("greedy")) == []  # c may be gone any moment
    node.on_message("c", DisconnectOk("greedy"))
    assert node.on_timer("greedy/iterate") == [TURN]


# Odds and ends


def test_messages_of_other_systems_and_of_oneself_are_counted_and_ignored():
    node = spider("a", {"a": "x"})
    assert node.on_message("b", SetTimer("not a message", 1)) == []
    assert node.on_message("a", connect(0, 1, "x")) == []
    assert node.unknown == 2


def test_a_task_that_is_off_accepts_links_within_the_margin_but_asks_nobody():
    node = spider("a", {"a": "x", "b": "x"}, coverage_greedy=3, margin=1)
    assert node.random_task.start() == []
    assert node.on_message("b", connect(0, 1, "x", task="random"))[0] == LinkUp("b")
    assert isinstance(node.on_message("c", connect(0, 1, "x", task="random"))[0].message, Redirect)
    assert node.on_timer("random/iterate") == []


def test_without_a_view_a_node_builds_one_by_gossip():
    from conversation import Conversation
    from trellis.protocols.spidercast import SpiderCastNode

    names = [f"n{number}" for number in range(12)]
    nodes = [
        SpiderCastNode(name, (f"t{place % 3}", "all"), Random(name), SpiderCastConfig(), contacts=names[:1])
        for place, name in enumerate(names)
    ]
    talk = Conversation(nodes)
    talk.start()
    talk.run(30_000)
    assert not talk.half_links()
    assert all(node.greedy.under_covered() == 0 for node in nodes)
    assert all(len(node.view) == 11 for node in nodes)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (SpiderCastConfig, {"coverage_greedy": -1}),
        (SpiderCastConfig, {"connect_timeout_ms": 0}),
        (SpiderCastConfig, {"adaptive": True, "coverage_random": 1}),
        (SpiderCastConfig, {"adaptive": True, "coverage_greedy": 0}),
        (SimilarityConfig, {"links_random": -1}),
        (SimilarityConfig, {"margin": -1}),
    ],
)
def test_nonsense_is_refused(kind, fields):
    with pytest.raises(InputError):
        kind(**fields)
