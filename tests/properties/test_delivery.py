"""Sets of sequences, frames over a bad network, the window: against plain Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.errors import InputError
from trellis.protocols.delivery import Delivery, DeliveryConfig
from trellis.protocols.delivery import messages as m
from trellis.protocols.delivery.identities import Ranges, StreamId, pairs_of
from trellis.protocols.delivery.link import Channel
from trellis.protocols.delivery.messages import DeliveryMessage, Frame, Prune
from trellis.protocols.delivery.store import Store
from trellis.protocols.delivery.streams import Entry, Stream
from trellis.protocols.effects import Deliver, Send
from trellis.protocols.topics import TopicTable
from trellis.protocols.wire import Codec, WireError

NUMBERS = st.integers(1, 40)


@given(st.lists(st.tuples(st.booleans(), NUMBERS, st.integers(0, 6))))
def test_ranges_are_a_set_of_numbers(steps):
    ranges, plain = Ranges(), set()
    for adds, first, more in steps:
        if adds:
            ranges.add(first, first + more)
            plain.update(range(first, first + more + 1))
        else:
            ranges.remove(first)
            plain.discard(first)
    assert list(ranges) == sorted(plain)
    assert ranges == Ranges.of(plain) == Ranges(pairs_of(ranges.flat()))
    assert all((number in ranges) == (number in plain) for number in range(50))
    assert ranges.last == max(plain, default=0)
    for number in range(1, 50):
        end = number - 1
        while end + 1 in plain:
            end += 1
        assert ranges.end_from(number) == end


class End:
    """One end of a link: puts numbers in, notes what comes out."""

    def __init__(self, number):
        self.sessions, self.number = 0, number
        self.open()

    def open(self):
        self.channel = Channel(DeliveryConfig(flight_frames=3, resend_rounds=2), self.session(), None)
        self.put, self.got = [], []

    def session(self):
        self.sessions += 1
        return self.number * 1000 + self.sessions

    def say(self, word):
        self.put.append(word)
        self.channel.put(Prune(word))

    def hear(self, frame):
        before = self.channel.peer_session
        items, has_begun = self.channel.receive(frame, self.session)
        if has_begun:
            self.put = []
        if self.channel.peer_session != before:
            self.got = []
        self.got += [item.topic for item in items]


@given(st.data())
def test_what_is_put_into_a_link_comes_out_once_and_in_order_whatever_the_network_does(data):
    ends = [End(1), End(2)]
    flying: list[tuple[int, Frame]] = []
    for step in range(data.draw(st.integers(1, 60))):
        end = ends[who := data.draw(st.integers(0, 1))]
        match data.draw(st.sampled_from(["say", "round", "arrive", "arrive", "arrive", "lose", "twice", "reopen"])):
            case "say":
                end.say(f"{who}/{step}")
                flying += [(1 - who, frame) for frame in end.channel.flush()]
            case "round":
                flying += [(1 - who, frame) for frame in end.channel.round()]
            case "reopen" if data.draw(st.booleans()):
                end.open()
                end.say(f"{who}/{step}")
            case _ if not flying:
                pass
            case "lose":
                flying.pop(data.draw(st.integers(0, len(flying) - 1)))
            case kind:
                place = data.draw(st.integers(0, len(flying) - 1))
                to, frame = flying[place] if kind == "twice" else flying.pop(place)
                ends[to].hear(frame)
    for who, end in enumerate(ends):
        end.say(f"{who}/last")
    for _ in range(200):  # calm weather
        for who, end in enumerate(ends):
            acknowledgement = end.channel.acknowledgement()
            frames = [*end.channel.flush(), *end.channel.round(), *([acknowledgement] if acknowledgement else [])]
            flying += [(1 - who, frame) for frame in frames]
        due, flying = flying, []
        for to, frame in due:
            ends[to].hear(frame)
    for one, other in (ends, ends[::-1]):
        assert not one.channel.flight
        assert not one.channel.waiting
        # Whatever was said in the present session, and nothing else.
        assert other.got == one.put
        one.channel.check()


@given(st.integers(4, 64), st.integers(2_000, 100_000), st.lists(st.integers(0, 400), min_size=100, max_size=200))
def test_a_link_with_traffic_one_way_never_waits_for_a_round_to_be_acknowledged(frames, flight_bytes, sizes):
    """Frames and acknowledgements arrive at once here, and no round comes: only what is urgent is acknowledged."""
    config = DeliveryConfig(flight_frames=frames, flight_bytes=flight_bytes)
    stream = Stream(StreamId("t", "a", 1), 0)
    sender = Channel(config, 1, lambda entry, is_eager: m.Push("t", "a", 1, 1, 1, 0, 0, is_eager, entry.payload))
    receiver = Channel(config, 2, sender._push)
    for one, other in ((sender, receiver), (receiver, sender)):
        for frame in one.flush():
            other.receive(frame, lambda: 3)
    for number, size in enumerate(sizes, start=1):
        sender.put_message(Entry(stream, number, b"x" * size, 0), is_eager=True)
        for frame in sender.flush():
            receiver.receive(frame, lambda: 3)
        assert not sender.waiting
        if receiver.is_ack_urgent:
            sender.receive(receiver.acknowledgement(), lambda: 3)
            assert not receiver.is_ack_urgent


@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 5)), max_size=40), st.integers(256, 8_000))
def test_the_store_is_within_its_bounds_and_drops_the_oldest_first(steps, window_bytes):
    store, stream, now, sizes = Store(10_000, window_bytes, 1_000), Stream(StreamId("t", "a", 1), 0), 0, 0
    for number, (size, seconds) in enumerate(steps, start=1):
        now += 1_000 * seconds
        store.expire(now)
        store.put(Entry(stream, number, b"x" * size, now))
        store.check(now)
        kept = list(stream.entries)
        assert kept == list(range(kept[0], number + 1)) if kept else size + 256 > window_bytes
        sizes = sum(entry.size for entry in stream.entries.values())
        assert (store.bytes, store.count) == (sizes, len(kept))


NAMES = st.sampled_from(["me", "a", "b", "z"])
SMALL = st.integers(0, 6)
FLAT = st.lists(st.integers(0, 9), max_size=5).map(tuple)
STREAM = (st.sampled_from(["t", "u", "x"]), NAMES, SMALL)
ITEMS = st.one_of(
    st.builds(m.Push, *STREAM, SMALL, SMALL, st.integers(0, 300_000), SMALL, st.booleans(), st.binary(max_size=3)),
    *(st.builds(kind, *STREAM, FLAT) for kind in (m.Announce, m.Pull, m.Gone)),
    *(st.builds(kind, STREAM[0]) for kind in (m.Prune, m.Part, m.Leaving)),
    st.builds(m.Stay, STREAM[0], st.booleans()),
    st.builds(m.Held, *STREAM, SMALL, st.lists(NAMES, max_size=3).map(tuple)),
    st.builds(m.Ask, *STREAM, SMALL, SMALL, SMALL),
    st.builds(
        m.Compare,
        STREAM[0],
        st.lists(st.builds(m.Seen, NAMES, SMALL, SMALL, SMALL, FLAT), max_size=3).map(tuple),
        *[st.booleans()] * 4,
    ),
)


class Links:
    """An overlay without a protocol."""

    id, incarnation, has_homes, relays = "me", 1, True, False

    def __init__(self):
        self.table = TopicTable()
        self.interest = self.table.bits(("t", "u"))

    def neighbors(self):
        return {"a": self.interest, "b": self.table.bit("t")}

    def is_gone(self, node):
        return node == "z"

    def is_home(self, topic):
        return topic == "t"

    def home_range(self):
        return "z"

    def heir(self):
        return "a"

    def toward_home(self, topic, message, without=()):
        return [Send("me" if topic == "t" else "a", message)]

    def meet(self, names):
        return []


@given(st.lists(st.tuples(st.sampled_from("ab"), st.one_of(ITEMS, st.sampled_from(["tick", "publish", "leave"])))))
def test_no_valid_frame_of_a_neighbour_breaks_a_part(steps):
    part = Delivery(Links(), DeliveryConfig(window_ms=3_000, missing_max=5, queue_max=2, control_max=8))
    part.want("t")
    part.start()
    numbers = {"a": 0, "b": 0}
    for peer, what in steps:
        if what == "tick":
            effects = [*part.on_timer("delivery/tick"), *part.on_timer("delivery/soon")]
        elif what == "publish":
            effects = part.publish("t", b"mine")
        elif what == "leave":
            effects = part.leave_topic("u")
        else:
            numbers[peer] += 1
            channel = part.state.channels[peer]
            effects = part.on_message(peer, m.Frame(5, numbers[peer], channel.session, channel.sent, (what,)))
        part.check()
        for one in effects:
            assert not isinstance(one, Deliver) or one.topic == "t"
    assert part.metrics()["held"] == part.state.store.count


@given(st.binary(max_size=200))
def test_bytes_are_a_message_or_an_error(data):
    codec = Codec(DeliveryMessage)
    try:
        message = codec.decode(data)
    except WireError:
        return
    assert codec.decode(codec.encode(message)) == message


@pytest.mark.parametrize(
    "fields",
    [{"copies": 0}, {"copies": 40}, {"window_ms": 60_000, "tombstone_ms": 60_000}, {"payload_bytes_max": 1 << 20}],
)
def test_nonsense_is_refused(fields):
    with pytest.raises(InputError):
        DeliveryConfig(**fields)
