"""Messages in pieces: whatever their size and whatever the network does, what comes out is what was sent."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.protocols import newscast
from trellis.protocols.delivery.messages import Frame, Push, Register
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import Send
from trellis.protocols.mesh import CODECS
from trellis.protocols.omen import messages as omen
from trellis.protocols.pieces import PIECES_MESSAGES, Came, Packed, Pieces
from trellis.protocols.pieces.messages import PIECE_BYTES_MAX, PIECES, WANTS_MAX, Bytes, Give, Index, Names, Ref, Want
from trellis.protocols.pieces.store import cut, digest_of
from trellis.protocols.pieces.waiting import WAITING_MAX
from trellis.protocols.vitis.messages import Profile, Proposal
from trellis.protocols.wire import FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, TOPICS_BYTES_MAX, TOPICS_MAX, WireError

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
nodes = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters=":"), min_size=1, max_size=8
)


@st.composite
def lists(draw):
    """Short lists as they are, and long ones, of names that may look like placeholders."""
    stem, count = draw(names), draw(st.sampled_from([0, 1, 3, 40, 300, 900]))
    drawn = draw(st.lists(names | st.sampled_from(["\x000", "\x001", "\x00", "\x009999"]), max_size=3))
    return (*drawn, *(f"{stem}{place}" for place in range(count)))


descriptors = st.lists(st.builds(Descriptor, nodes, st.just(0), st.just(1), lists()), max_size=4).map(tuple)
records = st.builds(omen.Record, st.just(1), st.just(2), lists(), st.just(()))
OMEN = st.one_of(
    st.builds(newscast.NewscastRequest, descriptors),
    st.builds(omen.Connect, st.just(1), lists(), st.just(3)),
    st.builds(omen.Heartbeat, *map(st.just, (1, True, 2, 3, 4, ("n",))), st.none() | lists()),
    st.builds(omen.Ask, st.just(1), st.just(2), lists()),
    st.builds(omen.FoundRecord, st.just("n"), st.just(1), st.just(2), st.just(True), st.none() | records),
    st.builds(Register, st.just("n"), lists()),
    st.builds(omen.ProbeOk, st.builds(Descriptor, nodes, st.just(0), st.just(1), lists())),
    st.just(omen.JoinDone(7)),
)


class Network:
    """Two ends and what is under way between them; both count the same time."""

    def __init__(self, overlay: str = "omen", **settings: int) -> None:
        self.ends = {name: Pieces(CODECS[overlay], **settings) for name in "ab"}
        self.under_way: list[tuple[str, str, bytes]] = []  # from, to, bytes
        self.came: list[tuple[str, msgspec.Struct]] = []
        self.now_ms = 0

    def send(self, sender: str, to: str, message: msgspec.Struct) -> None:
        packed = self.ends[sender].pack(message)
        if isinstance(packed, Packed):
            self.under_way.append((sender, to, PIECES_MESSAGES.encode(packed)))
        else:
            assert len(packed) <= FRAME_BYTES_MAX
            self.came.append((to, CODECS["omen"].decode(packed)))

    def arrive(self, place: int = 0) -> None:
        sender, to, data = self.under_way.pop(place)
        assert len(data) <= FRAME_BYTES_MAX
        self.do(to, self.ends[to].on_message(sender, data, self.now_ms))

    def tick(self, ms: int) -> None:
        self.now_ms += ms
        for name, end in self.ends.items():
            self.do(name, end.tick(self.now_ms))

    def do(self, name: str, effects: list[Send | Came]) -> None:
        self.ends[name].check()
        for effect in effects:
            if isinstance(effect, Came):
                self.came.append((name, effect.message))
            else:
                self.under_way.append((name, effect.to, PIECES_MESSAGES.encode(effect.message)))

    def settle(self) -> None:
        while self.under_way:
            self.arrive()


@settings(max_examples=40)
@given(st.lists(OMEN, min_size=1, max_size=4))
def test_messages_come_out_as_they_went_in(messages):
    network = Network()
    for message in messages:
        network.came.clear()
        network.send("a", "b", message)
        network.settle()
        assert network.came == [("b", message)]
    assert not network.ends["b"].waiting.messages


@settings(max_examples=60)
@given(st.lists(OMEN, min_size=1, max_size=5), st.randoms(use_true_random=False), st.data())
def test_a_message_comes_out_whole_or_not_at_all_whatever_is_lost_repeated_or_reordered(messages, random, data):
    network = Network()
    for message in messages:
        network.send("a", "b", message)
    for _ in range(data.draw(st.integers(0, 40))):
        if network.under_way:
            place = random.randrange(len(network.under_way))
            match random.randrange(4):
                case 0:
                    network.under_way.pop(place)
                case 1:
                    network.under_way.append(network.under_way[place])
                case _:
                    network.arrive(place)
        if random.random() < 0.2:
            network.tick(600)
    assert all(to == "b" and message in messages for to, message in network.came)
    network.came.clear()
    network.under_way.clear()
    for message in messages:  # protocols say again what they rely on; nothing is lost now
        network.send("a", "b", message)
    for _ in range(40):
        network.settle()
        network.tick(600)
    assert [one for one in messages if ("b", one) not in network.came] == []
    assert not network.ends["b"].waiting.messages


def test_a_list_that_was_told_once_travels_as_a_reference_from_then_on():
    topics = tuple(f"plant/{place:06}/".ljust(120, "x") for place in range(9_000))
    network = Network()
    network.send("a", "b", omen.Connect(1, topics, 0))
    network.settle()
    gossip = newscast.NewscastReply(tuple(Descriptor(f"n{place}", interest=topics) for place in range(20)))
    network.send("b", "a", gossip)
    assert sum(len(data) for *_, data in network.under_way) < 1_000
    network.settle()
    assert network.came == [("b", omen.Connect(1, topics, 0)), ("a", gossip)]
    changed = (*topics[:4_000], "a new one", *topics[4_000:])
    network.send("a", "b", omen.Connect(1, changed, 0))
    before = network.ends["b"].counters["got bytes"]
    network.settle()
    assert network.came[-1] == ("b", omen.Connect(1, changed, 0))
    assert network.ends["b"].counters["got bytes"] - before < 64 << 10


def test_lists_of_one_message_may_share_pieces_that_are_missing():
    one = tuple(f"topic {place}" for place in range(2_000))
    other = tuple(name for part in list(cut(one))[:5] for name in part)  # nothing but pieces of the first one
    gossip = newscast.NewscastReply((Descriptor("p", interest=one), Descriptor("q", interest=other)))
    network = Network()
    network.send("a", "b", gossip)
    network.settle()
    assert network.came == [("b", gossip)]


def test_a_message_that_is_larger_than_a_frame_without_its_lists_comes_out_as_well():
    topics = tuple(f"{place:05}".ljust(100, "t") for place in range(9_000))
    profile = Profile(1, True, topics, tuple(Proposal("g" * 100, "p" * 100, 3) for _ in topics), topics[:50], ("n",))
    network = Network("vitis")
    network.send("a", "b", profile)
    network.settle()
    assert network.came == [("b", profile)]


def test_a_publication_of_the_largest_size_is_sent_at_once():
    frame = Frame(1, 1, 1, 1, (Push("t" * 512, "o", 1, 1, 1, 1, 2, True, bytes(512 << 10)),))
    assert isinstance(Network().ends["a"].pack(frame), bytes)


def test_what_no_message_may_hold_is_not_sent():
    end = Network().ends["a"]
    with pytest.raises(WireError, match="topics"):
        end.pack(omen.Connect(1, tuple(f"t{place}" for place in range(TOPICS_MAX + 1)), 0))
    with pytest.raises(WireError, match="bytes"):
        end.pack(omen.Connect(1, tuple(f"{place:0512}" for place in range(TOPICS_BYTES_MAX // 512)), 0))
    end.check()


def test_descriptors_that_are_too_large_together_are_told_in_turn():
    lists = [tuple(f"{node}/{place:0500}" for place in range(8_000)) for node in "pqrstuvw"]  # 4 MB each
    gossip = newscast.NewscastReply(tuple(Descriptor(topics[0][0], interest=topics) for topics in lists))
    end, told = Network().ends["a"], set()
    for _ in range(8):
        packed = end.pack(gossip)
        assert isinstance(packed, Packed)
        said = CODECS["omen"].decode(packed.body)
        assert said.descriptors[0].node == "p"
        assert len(said.descriptors) * 4_000_000 < MESSAGE_BYTES_MAX
        told |= {one.node for one in said.descriptors}
    assert told == set("pqrstuvw")


@given(st.lists(st.text(min_size=1, max_size=512), max_size=400).map(tuple) | lists())
def test_pieces_of_a_list_are_in_order_and_within_bounds(topics):
    parts = list(cut(topics))
    assert tuple(name for part in parts for name in part) == topics
    assert all(len(PIECES.encode(Names(part))) <= PIECE_BYTES_MAX for part in parts)


# Peers that break the rules

small = st.binary(max_size=40)
digests = st.binary(min_size=16, max_size=16) | small.map(digest_of)
refs = st.builds(Ref, digests, st.integers(1, PIECE_BYTES_MAX))
pieces = st.one_of(
    st.builds(Names, st.lists(names, min_size=1, max_size=3).map(tuple)),
    st.builds(Bytes, st.binary(min_size=1, max_size=30)),
    st.builds(Index, st.lists(refs, min_size=1, max_size=5).map(tuple)),
)


@st.composite
def hostile(draw):
    """A packed message of real pieces in wrong places, what refers to them, and nonsense."""
    known = draw(st.lists(pieces, min_size=1, max_size=4))
    data = [PIECES.encode(one) for one in known]
    chosen = st.sampled_from([Ref(digest_of(one), len(one)) for one in data]) | refs
    data.append(PIECES.encode(Index((draw(chosen), draw(chosen)))))
    topics = draw(st.sampled_from([("\x000",), ("\x001",), ("\x00x",), ("t",)]))
    said = CODECS["omen"].encode(omen.Connect(1, topics, 0))
    body = draw(st.sampled_from([said, said, b"", b"\xc1"]))
    packed = Packed(body, draw(st.none() | chosen), tuple(draw(st.lists(chosen, max_size=3))))
    sent = [PIECES_MESSAGES.encode(packed), *(PIECES_MESSAGES.encode(Give(one)) for one in data)]
    sent.append(PIECES_MESSAGES.encode(Want(tuple(draw(st.lists(digests, max_size=3))))))
    return [*sent, *data, draw(small)]


@settings(max_examples=60)
@given(st.lists(hostile(), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_whatever_a_peer_sends_it_is_refused_or_kept_within_bounds(drawn, random):
    network = Network()
    end = network.ends["b"]
    for frame in random.sample([frame for frames in drawn for frame in frames], sum(map(len, drawn))):
        try:
            effects = end.on_message("a", frame, network.now_ms)
        except WireError:
            effects = []
        network.do("b", effects)
        network.now_ms += random.choice([0, 700])
    network.tick(20_000)
    network.tick(20_000)
    assert not end.waiting.messages


def test_messages_that_wait_for_ever_are_bounded_and_given_up():
    end = Network().ends["b"]
    body = CODECS["omen"].encode(omen.Connect(1, ("\x000",), 0))
    asked = set()
    for number in range(2 * WAITING_MAX):
        packed = Packed(body, None, (Ref(digest_of(b"%d" % number), 100),))
        for effect in end.on_message("a", PIECES_MESSAGES.encode(packed), 0):
            asked.update(effect.message.digests)
        if number % 100 == 0:
            end.check()
    assert WAITING_MAX // 2 < len(end.waiting.messages) <= WAITING_MAX
    assert len(asked) <= WANTS_MAX
    waited = len(end.waiting.messages)
    end.tick(20_000)
    assert not end.waiting.messages
    assert end.counters["given up"] == waited


def given(end: Pieces, packed: Packed, content: list[bytes]) -> list[Came]:
    """Send a message, and give all pieces that are asked for. Return what comes out."""
    by_digest = {digest_of(one): one for one in content}
    came, todo = [], end.on_message("a", PIECES_MESSAGES.encode(packed), 0)
    while todo:
        effect = todo.pop()
        if isinstance(effect, Came):
            came.append(effect)
            continue
        for digest in effect.message.digests:
            todo += end.on_message("a", PIECES_MESSAGES.encode(Give(by_digest[digest])), 0)
        end.check()
    return came


def test_a_small_message_cannot_make_a_large_one_by_naming_a_piece_again_and_again():
    end = Network().ends["b"]
    data = PIECES.encode(Bytes(bytes(60_000)))
    for size in (1, len(data)):  # a size that is wrong, and one that is right
        index = PIECES.encode(Index((Ref(digest_of(data), size),) * 2_000))
        assert given(end, Packed(b"", Ref(digest_of(index), len(index)), ()), [index, data]) == []
    body = CODECS["omen"].encode(omen.Connect(1, ("\x000",), 0))
    names = PIECES.encode(Names(tuple(f"{place:0100}" for place in range(250))))
    lists, content = [], [names]
    for number in range(200):  # each list is allowed; all of them together are not
        own = PIECES.encode(Names((f"{number}",)))
        refs = (Ref(digest_of(own), len(own)), *[Ref(digest_of(names), len(names))] * 200)
        index = PIECES.encode(Index(refs))
        content += [own, index]
        lists.append(Ref(digest_of(index), len(index)))
    assert given(end, Packed(body, None, tuple(lists)), content) == []
    assert end.counters["refused"] == 3
    (came,) = given(end, Packed(body, None, tuple(lists[:2])), content)
    assert len(came.message.topics) == 50_001


def test_a_piece_that_nobody_asked_for_is_not_kept():
    end = Network().ends["b"]
    end.on_message("a", PIECES_MESSAGES.encode(Give(PIECES.encode(Names(("t",))))), 0)
    assert len(end.store) == 0


def test_pieces_that_were_used_long_ago_give_way_and_are_made_again():
    network = Network(store_bytes_max=100_000)
    random = Random(1)
    lists = [tuple(f"{random.random()}" for _ in range(2_000)) for _ in range(4)]
    for _ in range(2):
        for topics in lists:
            network.send("a", "b", omen.Connect(1, topics, 0))
            network.settle()
            assert network.came.pop() == ("b", omen.Connect(1, topics, 0))
    assert network.ends["a"].store.forgotten


def test_what_one_peer_does_not_give_another_one_is_asked_for():
    topics = tuple(f"topic {place}" for place in range(1_000))
    giver, end = Network().ends["a"], Network().ends["b"]
    packed = giver.pack(omen.Connect(1, topics, 0))
    assert isinstance(packed, Packed)
    data = PIECES_MESSAGES.encode(packed)
    (want,) = end.on_message("silent", data, 0)
    assert want.to == "silent"
    assert end.on_message("a", data, 100) == []  # somebody is asked already
    came, todo = [], end.tick(1_200)
    while todo:
        effect = todo.pop()
        if isinstance(effect, Came):
            came.append((effect.sender, effect.message.topics))
            continue
        assert effect.to == "a"
        for give in giver.on_message("b", PIECES_MESSAGES.encode(effect.message), 0):
            todo += end.on_message("a", PIECES_MESSAGES.encode(give.message), 1_300)
    assert sorted(came) == [("a", topics), ("silent", topics)]


def test_who_has_died_is_waited_for_no_longer_and_others_are_asked_at_once():
    topics = tuple(f"topic {place}" for place in range(1_000))
    packed = Network().ends["a"].pack(omen.Connect(1, topics, 0))
    assert isinstance(packed, Packed)
    end = Network().ends["b"]
    for sender in ("dead", "a"):
        end.on_message(sender, PIECES_MESSAGES.encode(packed), 0)
    assert [effect.to for effect in end.on_peer_down("dead", 10)] == ["a"]
    assert [one.sender for one in end.waiting.messages.values()] == ["a"]
