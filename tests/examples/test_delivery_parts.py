"""Delivery parts on links that the test makes and breaks: tree, comparison, copies, order, leaving, bounds."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest

from conversation import Conversation
from trellis.protocols.delivery import Acknowledged, Delivery, DeliveryConfig, Lost, NotAcknowledged, Overflowed
from trellis.protocols.delivery import messages as m
from trellis.protocols.delivery.identities import StreamId
from trellis.protocols.delivery.link import Channel
from trellis.protocols.delivery.streams import Entry, Stream
from trellis.protocols.effects import Send, SetTimer
from trellis.protocols.topics import TopicTable

EVERYBODY = TopicTable()


class Links:
    """An overlay without a protocol: the links are what the test says."""

    has_homes = relays = False
    table = EVERYBODY

    def __init__(self, name, topics, life, known):
        self.id, self.incarnation, self.interest, self.known = name, life, EVERYBODY.bits(tuple(topics)), known
        self.peers = {}

    def neighbors(self):
        return self.peers

    def is_gone(self, node):
        return False

    def subscribers(self, topic):
        return self.known

    def home_range(self):
        return ""


class Part:
    """A delivery part as a node, with its outcomes kept."""

    def __init__(self, name, topics=("t",), life=1, known=9, wanted=True, **config):
        self.id, self.overlay = name, Links(name, topics, life, known)
        self.delivery = Delivery(self.overlay, DeliveryConfig(**config))
        self.topics, self.wanted = topics, wanted
        self.outcomes, self.news = [], []

    def start(self):
        wanted = [effect for topic in self.topics if self.wanted for effect in self.delivery.want(topic)]
        return self.keep([*wanted, *self.delivery.start()])

    def on_message(self, sender, message):
        return self.keep(self.delivery.on_message(sender, m_codec(message)))

    def on_timer(self, tag):
        return self.keep(self.delivery.on_timer(tag))

    def check(self):
        self.delivery.check()

    def keep(self, effects):
        self.outcomes += [one for one in effects if isinstance(one, Acknowledged | NotAcknowledged)]
        self.news += [one for one in effects if isinstance(one, Lost | Overflowed)]
        return effects

    def told(self, kind):
        return [one for one in self.news if isinstance(one, kind)]

    @property
    def counters(self):
        return self.delivery.state.counters


CODEC = m.msgspec.msgpack.Decoder(m.DeliveryMessage)


def m_codec(message):
    """Through its wire form: what is tested is what is sent."""
    return CODEC.decode(m.msgspec.msgpack.encode(message))


class Mesh(Conversation):
    def link(self, a, b):
        for one, other in ((a, b), (b, a)):
            part = self.nodes[one]
            part.overlay.peers = {**part.overlay.peers, other: self.nodes[other].overlay.interest}
            self.carry_out(one, part.keep(part.delivery.overlay_changed()))

    def cut(self, a, b):
        for one, other in ((a, b), (b, a)):
            part = self.nodes.get(one)
            if part is not None:
                part.overlay.peers = {peer: bits for peer, bits in part.overlay.peers.items() if peer != other}
                self.carry_out(one, part.keep(part.delivery.overlay_changed()))

    def kill(self, name):
        peers = list(self.nodes[name].overlay.peers)
        self.crash(name)
        for peer in peers:
            self.cut(peer, name)

    def publish(self, name, payload, topic="t", client=None):
        part = self.nodes[name]
        self.carry_out(name, part.keep(part.delivery.publish(topic, payload, client)))

    def got(self, name):
        return [delivery.payload for node, delivery in self.delivered if node == name]

    def pushes(self):
        frames = [message for _, _, _, message in self.said if isinstance(message, m.Frame)]
        return sum(isinstance(item, m.Push) for frame in frames for item in frame.items)


def mesh(links, *, settle=True, more=(), **config):
    links = list(links)
    names = sorted({name for link in links for name in link})
    made = Mesh([*(Part(name, **config) for name in names), *more])
    made.start()
    for a, b in links:
        made.link(a, b)
    if settle:
        made.run(4_000)
    return made


def messages(count, prefix="m"):
    return [f"{prefix}{number}".encode() for number in range(count)]


def test_a_message_reaches_everybody_once_and_in_order():
    net = mesh(combinations("abcde", 2))
    for payload in messages(20):
        net.publish("a", payload)
        net.run(7)
    net.run(2_000)
    assert {name: net.got(name) for name in "abcde"} == dict.fromkeys("abcde", messages(20))


def test_the_eager_links_of_a_topic_become_a_tree():
    net = mesh(combinations("abcdef", 2))
    for payload in messages(5, "first"):
        net.publish("a", payload)
        net.run(1_000)
    before = net.pushes()
    for payload in messages(20):
        net.publish("a", payload)
        net.run(1_000)
    assert net.pushes() - before == 20 * 5


def test_a_broken_tree_heals_by_a_pull():
    net = mesh(combinations("abcdef", 2))
    for payload in messages(5, "first"):
        net.publish("a", payload)
        net.run(500)
    net.publish("b", b"of b")
    net.run(500)
    net.kill("a")
    for payload in messages(5, "later"):
        net.publish("b", payload)
        net.run(500)
    net.run(2_000)
    assert all(net.got(name)[-6:] == [b"of b", *messages(5, "later")] for name in "bcdef")


def test_a_link_that_comes_up_gives_each_end_what_it_lacks():
    net = mesh([("a", "b"), ("c", "d")])
    net.publish("a", b"left")
    net.publish("c", b"right")
    net.run(1_000)
    assert net.got("d") == [b"right"]
    net.link("b", "c")
    net.run(1_000)
    assert all(sorted(net.got(name)) == [b"left", b"right"] for name in "abcd")


def test_an_announcement_of_more_than_a_node_can_note_is_not_forgotten():
    net = mesh([("a", "b"), ("c", "d")], queue_max=4, missing_max=8)
    for payload in messages(60):
        net.publish("a", payload)
        net.run(20)
    net.link("b", "c")
    net.run(10_000)
    assert net.got("d") == messages(60)


def test_a_joiner_between_two_old_nodes_is_no_hole():
    """u - c - x; c dies; N joins and is the only way between u and x."""
    net = mesh([("u", "c"), ("c", "x")])
    net.publish("u", b"before")
    net.run(1_000)
    net.kill("c")
    net.publish("u", b"meanwhile")
    net.run(500)
    net.add(Part("N"))
    net.link("N", "u")
    net.run(5)  # the comparison of u is under way, nothing of its window has come
    net.link("N", "x")
    net.run(3_000)
    net.publish("u", b"after")
    net.run(1_000)
    assert net.got("x") == [b"before", b"meanwhile", b"after"]
    assert net.got("N") == [b"after"]  # what was published before it subscribed it keeps for others only


def test_a_frame_that_is_lost_is_sent_again():
    lost = []

    def lose(sender, to, message):
        if isinstance(message, m.Frame) and message.items and len(lost) < 5 and (sender, to) == ("a", "b"):
            lost.append(message)
            return True
        return False

    net = mesh([("a", "b")], settle=False)
    net.lose = lose
    net.run(6_000)
    net.publish("a", b"x")
    net.run(6_000)
    assert len(lost) == 5
    assert net.got("b") == [b"x"]


def test_copies_are_counted_beyond_the_only_neighbour():
    net = mesh(pairwise("abcde"), copies=4)
    net.publish("a", b"x")
    net.run(15)
    assert not net.nodes["a"].outcomes
    net.run(1_000)
    (outcome,) = net.nodes["a"].outcomes
    assert outcome == Acknowledged("t", 1, 1, 4, ("a", "b", "c", "d"), None)


def test_no_link_is_no_proof_and_the_publication_fails_in_time():
    net = mesh([], more=[Part("a", publish_timeout_ms=5_000)])
    net.run(3_000)
    net.publish("a", b"x")
    net.run(4_000)
    assert not net.nodes["a"].outcomes
    net.run(4_000)
    assert [type(one) for one in net.nodes["a"].outcomes] == [NotAcknowledged]


def test_who_is_known_to_be_alone_is_acknowledged_with_one_copy():
    net = mesh([], more=[Part("a", known=0)])
    net.run(3_000)
    net.publish("a", b"x")
    net.run(3_000)
    assert [(type(one), one.copies) for one in net.nodes["a"].outcomes] == [(Acknowledged, 1)]


def test_a_publisher_whose_only_neighbour_died_is_acknowledged_over_its_new_link():
    net = mesh(pairwise("abc"))
    net.kill("b")
    net.publish("a", b"x")
    net.run(3_000)
    assert not net.nodes["a"].outcomes
    net.link("a", "c")
    net.run(2_000)
    assert [one.holders for one in net.nodes["a"].outcomes] == [("a", "c")]
    assert net.got("c") == [b"x"]


def test_holders_behind_a_dead_node_are_found_by_asking():
    """b dies after c and d got the message through it and before its answer came: a asks over its other link."""
    net = mesh([*pairwise("abcd"), ("d", "a")], copies=3)
    net.lose = lambda sender, to, message: (
        (sender == "b" and to == "a") or any(isinstance(item, m.Held) for item in getattr(message, "items", ()))
    )
    net.publish("a", b"x")
    net.run(500)
    net.lose = lambda *_: False
    net.kill("b")
    net.run(3_000)
    (outcome,) = net.nodes["a"].outcomes
    assert sorted(outcome.holders) == ["a", "c", "d"]


def test_a_publication_that_is_a_moment_old_at_a_tick_asks_nobody():
    """Time stands still between ticks: at 2,000 a second, three in a hundred asked all their neighbours for nothing."""
    net = mesh([("a", "b"), ("a", "c")])
    net.run(995 - net.now_ms % 1_000)
    net.publish("a", b"x")  # its copies answer 20 ms later; the tick comes after 5
    net.run(3_000)
    assert net.nodes["a"].outcomes
    asked = [one for _, _, _, one in net.said if isinstance(one, m.Frame) and any(type(i) is m.Ask for i in one.items)]
    assert not asked


def test_what_comes_in_one_turn_of_a_gathering_driver_goes_in_one_frame_of_each_link():
    """b takes ten frames of a at the same instant: ten holders' answers to a, ten messages for c, one frame each."""
    net = mesh(pairwise("abc"), copies=3)
    for part in net.nodes.values():
        part.delivery.gathers = True
    net.said.clear()
    part = net.nodes["a"]
    for payload in messages(10):  # ten frames: a's driver does not gather
        part.delivery.gathers = False
        net.publish("a", payload)
        part.delivery.gathers = True
    net.run(2_000)
    assert net.got("c") == messages(10)
    assert len(part.outcomes) == 10
    carried = {("b", "c"): m.Push, ("b", "a"): m.Held, ("c", "b"): m.Held}
    for (sender, to), kind in carried.items():
        frames = [one for _, who, whom, one in net.said if (who, whom) == (sender, to) and isinstance(one, m.Frame)]
        counts = [sum(type(item) is kind for item in frame.items) for frame in frames]
        assert next(count for count in counts if count) == 10, (sender, to, counts)


def test_a_driver_that_gathers_is_told_to_go_once_in_a_turn():
    net = mesh([("a", "b")])
    part = net.nodes["a"]
    part.delivery.gathers = True
    effects = [one for payload in messages(3) for one in part.delivery.publish("t", payload)]
    assert [one for one in effects if isinstance(one, SetTimer)] == [SetTimer("delivery/go", 0)]
    assert not [one for one in effects if isinstance(one, Send)]
    (frame,) = [one.message for one in part.delivery.on_timer("delivery/go") if isinstance(one, Send)]
    assert [item.payload for item in frame.items] == messages(3)


def test_numbers_of_clients_are_forgotten_a_window_after_their_publications():
    net = mesh([("a", "b")], window_ms=5_000, tombstone_ms=20_000)
    for number in range(8):
        net.publish("a", b"x%d" % number, client=("client", 1, number))
        net.run(1_000)
    known = [number for _, _, number in net.nodes["a"].delivery.copies.clients]
    assert known == list(range(known[0], 8))
    assert 2 <= known[0] <= 4
    net.run(8_000)
    assert not net.nodes["a"].delivery.copies.clients


def test_a_client_that_repeats_its_number_publishes_once():
    net = mesh([("a", "b")])
    for _ in range(3):
        net.publish("a", b"x", client=("client", 1, 7))
        net.run(1_000)
    assert net.got("b") == [b"x"]
    assert [(one.sequence, one.client_id) for one in net.nodes["a"].outcomes] == [(1, ("client", 1, 7))] * 3


def test_the_same_number_of_another_session_is_another_publication():
    net = mesh([("a", "b")])
    for session in (1, 2, 3):
        net.publish("a", b"x", client=("client", session, 7))
        net.run(1_000)
    assert net.got("b") == [b"x"] * 3


@pytest.mark.parametrize(("topic", "payload"), [("t", b"y"), ("u", b"x")])
def test_a_number_that_was_used_for_another_publication_is_refused_with_a_reason(topic, payload):
    net = mesh([("a", "b")])
    net.publish("a", b"x", client=("client", 1, 7))
    net.run(1_000)
    net.publish("a", payload, topic, client=("client", 1, 7))
    net.run(1_000)
    assert net.got("b") == [b"x"]
    taken, refused = net.nodes["a"].outcomes
    assert taken.sequence == 1
    assert (refused.sequence, refused.topic) == (0, topic)
    assert refused.reason == "number 7 of this client's session was used for another publication; number it anew"


def test_a_cycle_of_full_queues_does_not_block():
    """Every link of the ring may hold two messages; everybody publishes fifty at once."""
    tight = {"queue_max": 2, "flight_frames": 1, "flight_bytes": 600, "pull_max": 4}
    ring = [*pairwise("abcd"), ("d", "a")]
    net = mesh(ring, **tight)
    sent = {name: messages(50, name) for name in "abcd"}
    for name, payloads in sent.items():
        for payload in payloads:
            net.publish(name, payload)
    net.run(60_000)
    for name in "abcd":
        got = net.got(name)
        assert len(got) == 200
        for payloads in sent.values():
            assert [one for one in got if one in payloads] == payloads
    assert sum(part.counters.turned_lazy for part in net.nodes.values()) > 0


def pushed(entry, is_eager):
    return m.Push(*entry.stream.id, entry.sequence, 0, 0, 0, is_eager, entry.payload)


def test_what_is_pulled_again_while_it_waits_for_its_turn_is_sent_once():
    """A link that is slower than the patience of those who pull is not filled with repetitions."""
    channel = Channel(DeliveryConfig(flight_frames=1, flight_bytes=1), 1, pushed)
    stream = Stream(StreamId("t", "a", 1), 0)
    entries = [Entry(stream, number, b"x", 0) for number in (1, 2, 3)]
    for entry in (*entries, *entries[1:], *entries[1:]):
        channel.put_message(entry, is_eager=False)
    sent = []
    while frames := channel.flush():
        sent += [item.sequence for frame in frames for item in frame.items]
        channel.receive(m.Frame(1, channel.upto + 1, 1, channel.sent), lambda: 2)  # the peer has it
    assert sent == [1, 2, 3]
    channel.put_message(entries[0], is_eager=False)  # it has gone, and may be lost with its session
    assert channel.pushes == 1


def test_a_neighbour_that_stops_reading_holds_nobody_up():
    net = mesh([("a", "b"), ("a", "c")], queue_max=10, flight_frames=2)
    net.lose = lambda sender, to, message: sender == "c"  # it says nothing any more, not even acknowledgements
    for payload in messages(200):
        net.publish("a", payload)
        net.run(20)
    net.run(1_000)
    assert net.got("b") == messages(200)
    channel = net.nodes["a"].delivery.state.channels["c"]
    assert channel.pushes + channel.controls <= 20
    net.lose = lambda *_: False
    net.run(20_000)
    assert net.got("c") == messages(200)


def test_what_does_not_fit_the_window_is_counted():
    net = mesh([("a", "b")], window_bytes=10 * (256 + 100))
    net.cut("a", "b")
    for number in range(10):
        net.publish("a", bytes([number]) * 100)
    net.run(31_000)  # nobody took them in time, and they stay in the window
    for number in range(10, 20):
        net.publish("a", bytes([number]) * 100)
    assert net.nodes["a"].delivery.state.store.count == 10
    assert net.nodes["a"].delivery.state.store.overflows == 10
    net.link("a", "b")
    net.run(5_000)
    assert [payload[0] for payload in net.got("b")] == list(range(10, 20))
    assert net.nodes["b"].counters.lost == 10
    assert net.nodes["a"].told(Overflowed) == [Overflowed(10)]
    assert net.nodes["b"].told(Lost) == [Lost("t", "a", 1, 1, 10, "before the first that came")]


def test_a_publication_that_finds_the_window_full_of_waiting_ones_is_refused_at_once_with_the_reason():
    net = mesh([("a", "b")], window_bytes=10 * (256 + 100))
    net.lose = lambda *_: True
    for number in range(12):
        net.publish("a", bytes([number]) * 100)
    refused = [one for one in net.nodes["a"].outcomes if isinstance(one, NotAcknowledged)]
    assert [one.sequence for one in refused] == [0, 0]
    assert "fill this node's window: window_bytes is 3560" in refused[0].reason
    assert net.nodes["a"].counters.window_full == 2
    assert net.nodes["a"].delivery.state.store.overflows == 0, "what waits for its copies was dropped"
    net.lose = lambda *_: False
    net.run(5_000)
    assert [payload[0] for payload in net.got("b")] == list(range(10))
    net.publish("a", b"again")
    net.run(1_000)
    assert net.got("b")[-1] == b"again"
    assert sum(isinstance(one, Acknowledged) for one in net.nodes["a"].outcomes) == 11
    assert net.nodes["a"].delivery.copies.bytes == 0


def test_a_publication_that_others_push_out_of_the_window_is_refused_at_the_next_tick_and_not_acknowledged():
    net = mesh([("a", "b"), ("b", "c")], copies=3, window_bytes=10 * (256 + 100))
    net.lose = lambda sender, to, message: sender == "a"
    net.publish("a", b"x" * 100)
    for number in range(10):
        net.publish("b", bytes([number]) * 100)
    net.run(2_500)
    refused = [one for one in net.nodes["a"].outcomes if isinstance(one, NotAcknowledged)]
    assert [one.sequence for one in refused] == [1]
    assert refused[0].reason == "this node's window did not keep it until it had its copies: window_bytes is 3560"
    assert net.nodes["a"].counters.window_full == 1
    assert not net.nodes["a"].delivery.copies.pending


def test_a_gap_below_the_floor_is_skipped_when_every_neighbour_has_said_no():
    net = mesh([("a", "b"), ("b", "c")], window_ms=5_000)
    net.publish("a", b"1")
    net.run(1_000)
    net.cut("b", "c")
    net.publish("a", b"2")
    net.run(9_000)  # older than the window: nobody keeps it
    net.link("b", "c")
    net.run(1_000)
    net.publish("a", b"3")
    net.run(4_000)
    assert net.got("c") == [b"1", b"3"]
    assert net.nodes["c"].told(Lost) == [Lost("t", "a", 1, 2, 2, "nobody keeps it")]


def test_a_gap_above_the_floor_is_waited_for():
    """Neighbours that do not have the missing message yet prove nothing."""
    net = mesh([("a", "b"), ("b", "c")])
    dropped = []

    def lose(sender, to, message):
        pushed = [item for item in getattr(message, "items", ()) if isinstance(item, m.Push) and item.payload == b"1"]
        if pushed and sender == "a":
            dropped.append(1)
        return bool(pushed) and sender == "a"

    net.lose = lose
    net.publish("a", b"1")
    net.run(10)
    net.add(Part("d"))
    net.run(100)
    net.publish("a", b"2")
    net.run(5_000)
    assert net.got("c") == []
    net.lose = lambda *_: False
    net.run(5_000)
    assert net.got("c") == [b"1", b"2"]
    assert dropped


def gap_at_b(**config):
    """b has the second message of z, not the first, and z keeps both as far as anybody knows."""
    net = mesh([("a", "b")], window_ms=5_000, **config)
    net.run(4_000)  # the message before this one was surely published after b was confirmed
    session = net.nodes["a"].delivery.state.channels["b"].session
    number = net.nodes["b"].delivery.state.channels["a"].upto + 1
    push = m.Push("t", "z", 1, 2, 1, 0, 0, False, b"2")
    net.carry_out("b", net.nodes["b"].on_message("a", m.Frame(session, number, 0, 0, (push,))))
    return net


def test_a_gap_of_a_publisher_that_is_gone_is_skipped_a_window_after_the_links_changed_last():
    net = gap_at_b()
    net.nodes["b"].overlay.is_gone = lambda node: node == "z"
    net.cut("a", "b")  # it might still come over a new link
    net.run(4_900)
    assert net.got("b") == []
    net.run(3_000)
    assert net.got("b") == [b"2"]
    assert net.nodes["b"].told(Lost) == [Lost("t", "z", 1, 1, 1, "its publisher is gone")]


def test_a_gap_that_nobody_can_fill_any_more_is_skipped_after_two_windows():
    net = gap_at_b()
    net.run(9_000)
    assert net.got("b") == []
    net.run(3_000)
    assert net.got("b") == [b"2"]
    assert net.nodes["b"].told(Lost) == [Lost("t", "z", 1, 1, 1, "older than two windows")]


def test_without_order_a_gap_holds_nothing_back():
    net = mesh([("a", "b")], order="none")
    session = net.nodes["a"].delivery.state.channels["b"].session
    number = net.nodes["b"].delivery.state.channels["a"].upto
    for place, sequence in enumerate((1, 3, 3, 2), start=1):
        push = m.Push("t", "z", 1, sequence, 1, 0, 0, False, str(sequence).encode())
        net.carry_out("b", net.nodes["b"].on_message("a", m.Frame(session, number + place, 0, 0, (push,))))
    assert net.got("b") == [b"1", b"3", b"2"]


def test_two_neighbours_that_leave_at_once_do_not_count_on_each_other():
    """a - L - M - b: each of L and M drains to the neighbour that stays."""
    net = mesh([("a", "L"), ("L", "M"), ("M", "b")], copies=1)
    net.lose = lambda sender, to, message: {sender, to} in ({"a", "L"}, {"M", "b"})
    net.publish("L", b"x")
    net.run(100)
    for name in "LM":
        net.carry_out(name, net.nodes[name].delivery.leave_topic("t"))
    net.run(3_000)
    # M has it, and M leaves as well: that is not enough.
    assert not net.nodes["L"].delivery.is_drained("t")
    net.lose = lambda *_: False
    net.run(5_000)
    assert net.nodes["L"].delivery.is_drained("t")
    assert net.got("a") == [b"x"]


def test_who_leaves_vouches_for_nothing():
    net = mesh([("a", "b"), ("b", "c")])
    net.carry_out("b", net.nodes["b"].delivery.leave_topic("t"))
    net.run(1_000)
    net.publish("a", b"x")
    net.run(1_000)
    (outcome,) = net.nodes["a"].outcomes
    assert outcome.holders == ("a", "c")


def with_publishers(links, *names, more=(), **config):
    """These take part because they publish; the overlay can tell who subscribes."""
    net = mesh(links, settle=False, more=more, **config)
    for part in net.nodes.values():
        part.delivery.state.only_subscribers_count = True
    for name in names:
        net.nodes[name].delivery.unwant("t")
    net.run(4_000)
    return net


def test_who_only_publishes_is_a_copy_of_its_own_messages_alone():
    net = with_publishers([("p", "q"), ("q", "s")], "p", "q")
    net.publish("p", b"x")
    net.run(1_000)
    (outcome,) = net.nodes["p"].outcomes
    assert outcome.holders == ("p", "s")


def test_who_only_publishes_takes_nothing_over_from_who_leaves():
    net = with_publishers([("p", "q")], "p", "q", more=[Part("s")], copies=1)
    net.publish("p", b"x")
    net.run(1_000)
    net.carry_out("p", net.nodes["p"].delivery.leave_topic("t"))
    net.run(3_000)
    assert not net.nodes["p"].delivery.is_drained("t")  # q has it, and may go as well
    net.link("p", "s")
    net.run(3_000)
    assert net.nodes["p"].delivery.is_drained("t")


def test_a_publisher_that_comes_back_still_has_what_it_has_left_to_others():
    """p has given x to s and gone; u hears of p for the first time when it is back, and of x from p itself."""
    net = with_publishers([("p", "s"), ("u", "v")], "p", copies=1)
    net.run(4_000)  # x is surely published after u was confirmed
    net.publish("p", b"x")
    part = net.nodes["p"]
    net.carry_out("p", part.delivery.leave_topic("t"))
    net.run(1_000)
    assert part.delivery.is_drained("t")
    net.cut("p", "s")
    for interest in (0, part.overlay.interest):
        part.overlay.interest = interest
        net.carry_out("p", part.keep(part.delivery.overlay_changed()))
    net.link("p", "u")
    net.publish("p", b"y")
    net.run(3_000)
    assert (net.got("s"), net.got("u")) == ([b"x"], [b"x", b"y"])
    net.link("s", "v")
    net.run(3_000)
    assert net.got("s") == net.got("u") == net.got("v") == [b"x", b"y"]


def test_publications_of_clients_leave_room_for_what_nodes_say_to_each_other():
    """Else a client that publishes much would hold up the confirmations of other clients' subscriptions."""
    part = Part("a", topics=("t", "$mqtt/ask"), pending_max=2)
    net = Mesh([part])
    net.start()
    for number in range(4):
        net.publish("a", b"%d" % number)
    net.publish("a", b"who", topic="$mqtt/ask")
    refused = [one.topic for one in part.outcomes if isinstance(one, NotAcknowledged)]
    assert refused == ["t", "t"]


def test_what_cannot_be_sent_is_refused_at_once():
    net = mesh([("a", "b")], payload_bytes_max=100)
    net.publish("a", b"x" * 101)
    net.publish("a", b"x", topic="")
    net.publish("a", b"x", topic="t" * 513)
    net.publish("a", b"x", topic="elsewhere")
    assert [(type(one), one.sequence) for one in net.nodes["a"].outcomes] == [(NotAcknowledged, 0)] * 4


def test_a_message_older_than_two_windows_is_dropped_and_counted():
    net = mesh([("a", "b")], window_ms=5_000)
    push = m.Push("t", "z", 1, 1, 1, 10_001, 0, True, b"old")
    frame = m.Frame(net.nodes["a"].delivery.state.channels["b"].session, 2, 0, 0, (push,))
    net.nodes["b"].on_message("a", frame)
    assert net.nodes["b"].counters.too_old == 1
    assert net.got("b") == []


def test_a_process_that_stood_still_is_told_how_old_everything_is():
    net = mesh([("a", "b")], window_ms=5_000)
    net.publish("a", b"x")
    net.run(100)
    net.nodes["b"].delivery.stood_still(7_000)
    assert net.nodes["b"].delivery.state.store.count == 0


def test_a_life_that_is_over_is_remembered_by_one_number():
    net = mesh([("a", "b")], window_ms=2_000, tombstone_ms=60_000)
    net.publish("a", b"first life")
    net.run(1_000)
    net.kill("a")
    net.add(Part("a", life=2, window_ms=2_000, tombstone_ms=60_000))
    net.link("a", "b")
    net.run(3_000)
    net.publish("a", b"second life")
    net.run(30_000)
    part = net.nodes["b"].delivery
    assert list(part.state.topics["t"].streams) == [("a", 2)]
    assert part.state.ended["a"][0] == 1
    assert net.got("b") == [b"first life", b"second life"]


def test_a_relay_keeps_and_forwards_and_hands_over_nothing():
    net = mesh([("a", "r"), ("r", "b")], settle=False)
    net.nodes["r"].delivery.unwant("t")
    net.run(4_000)
    net.publish("a", b"x")
    net.run(1_000)
    assert (net.got("r"), net.got("b")) == ([], [b"x"])


def test_a_newcomer_behind_a_relay_begins_where_the_relay_is():
    """The relay has a baseline from who wants the topic, though it hands nothing over itself."""
    net = mesh([("a", "r")], settle=False, more=[Part("n")])
    net.nodes["r"].delivery.unwant("t")
    net.run(4_000)
    for payload in messages(3):
        net.publish("a", payload)
    net.run(1_000)
    net.link("r", "n")
    net.run(4_000)
    assert net.got("n") == []
    assert net.nodes["n"].delivery.state.store.count == 3  # held for others all the same
    net.publish("a", b"new")
    net.run(1_000)
    assert net.got("n") == [b"new"]


def test_a_link_that_ceases_to_carry_a_topic_carries_it_no_more_and_again_when_it_is_told():
    net = mesh([("a", "b")], topics=("t", "u"))

    def carries(*topics):
        for one, other in (("a", "b"), ("b", "a")):
            part = net.nodes[one]
            part.overlay.peers = {other: EVERYBODY.bits(topics)}
            net.carry_out(one, part.keep(part.delivery.overlay_changed()))

    carries("u")
    net.publish("a", b"on t")
    net.publish("a", b"on u", topic="u")
    net.run(1_000)
    assert net.got("b") == [b"on u"]
    assert not net.nodes["a"].delivery.state.topics["t"].links
    carries("t", "u")
    net.run(1_000)
    assert net.got("b") == [b"on u", b"on t"]


def take_part(net, name, does):
    part = net.nodes[name]
    part.overlay.interest = part.overlay.table.bits(("t",)) if does else 0
    net.carry_out(name, part.keep(part.delivery.overlay_changed()))


def test_a_topic_that_was_published_on_is_forgotten_when_everybody_else_has_forgotten_it():
    """Clients may publish on new topics for ever: nothing may be kept of each for as long as the process lives."""
    net = mesh([("a", "b")], window_ms=2_000, tombstone_ms=20_000)
    a, b = (net.nodes[name].delivery for name in "ab")
    net.carry_out("a", net.nodes["a"].keep(a.unwant("t")))
    for number in range(3):
        net.publish("a", b"early %d" % number)
    net.run(1_000)
    take_part(net, "a", False)
    net.cut("a", "b")
    while a.state.topics:
        assert b.state.topics["t"].streams or a.state.topics["t"].streams, "the publisher is the last to forget"
        net.run(1_000)
        assert net.now_ms < 1_000_000
    assert not b.state.topics["t"].streams
    take_part(net, "a", True)
    net.link("a", "b")
    net.run(1_000)
    for number in range(3):
        net.publish("a", b"late %d" % number)
    net.run(5_000)
    assert net.got("b") == [b"early 0", b"early 1", b"early 2", b"late 0", b"late 1", b"late 2"]
    assert not net.nodes["b"].told(Lost)


def test_a_link_that_shares_more_topics_than_may_wait_on_it_opens_all_of_them():
    topics = [f"t{number}" for number in range(300)]
    config = {"topics": topics, "control_max": 50, "flight_bytes": 2_000}
    net = mesh([], more=[Part("a", **config), Part("b", **config)], settle=False)
    net.link("a", "b")
    net.run(5_000)
    for topic in topics:
        net.publish("a", topic.encode(), topic)
    net.run(3_000)
    assert sorted(net.got("b")) == sorted(topic.encode() for topic in topics)
    assert net.nodes["a"].counters.restarts == net.nodes["b"].counters.restarts == 0


def test_a_publication_waits_for_longer_where_its_node_stood_still():
    net = mesh([("a", "b")], copies=3, publish_timeout_ms=5_000)
    net.publish("a", b"x")
    net.run(1_000)
    net.carry_out("a", net.nodes["a"].delivery.stood_still(20_000))
    net.run(2_000)
    assert not net.nodes["a"].outcomes
    net.run(5_000)
    assert [type(one) for one in net.nodes["a"].outcomes] == [NotAcknowledged]


@pytest.mark.parametrize("order", ["publisher", "none"])
def test_messages_from_before_a_subscription_are_not_handed_over_although_they_come_after_it(order):
    """They were kept at a node that was cut off. A client that restarts would get again what it had before."""
    net = mesh([("x", "w"), ("w", "z")], order=order)
    net.cut("x", "w")
    for number in range(5):
        net.publish("x", b"early %d" % number)
    net.run(2_000)
    z = net.nodes["z"]
    net.carry_out("z", z.keep(z.delivery.unwant("t")))
    net.run(1_000)
    net.carry_out("z", z.keep(z.delivery.want("t")))
    net.run(4_000)
    net.link("x", "w")
    net.run(3_000)
    assert net.got("w") == [b"early %d" % number for number in range(5)]
    net.publish("x", b"late")
    net.run(2_000)
    assert net.got("w")[-1] == b"late"
    assert net.got("z") == [b"late"]
