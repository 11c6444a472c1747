"""The work for messages in pieces is linear in the bytes that came, whatever they refer to: counted, not timed."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from trellis.protocols.effects import Send
from trellis.protocols.mesh import CODECS
from trellis.protocols.omen import messages as omen
from trellis.protocols.pieces import PIECES_MESSAGES, Came, Packed, Pieces
from trellis.protocols.pieces.messages import PIECES, WANTS_MAX, Give, Index, Names, Ref
from trellis.protocols.pieces.store import digest_of


class Lookups(OrderedDict[bytes, Any]):
    """The pieces of a store, and how often one was looked for."""

    count = 0

    def get(self, *key: Any) -> Any:
        self.count += 1
        return super().get(*key)


class Counted:
    """One end, the bytes that it was sent, and how often it looked for a piece."""

    def __init__(self) -> None:
        self.end, self.bytes, self.asked = Pieces(CODECS["omen"]), 0, 0
        self.end.store._pieces = self.lookups = Lookups()

    def send(self, message: Packed | Give) -> list[Came]:
        data = PIECES_MESSAGES.encode(message)
        self.bytes += len(data)
        effects = self.end.on_message("a", data, 0)
        self.asked += sum(len(one.message.digests) for one in effects if isinstance(one, Send))
        return [one for one in effects if isinstance(one, Came)]

    def keep(self, *content: Names | Index) -> list[Ref]:
        """Have pieces in the store that came with earlier messages."""
        self.bytes += sum(len(PIECES.encode(one)) for one in content)
        return [self.end.store.put(one) for one in content]

    def assert_linear(self) -> None:
        assert self.lookups.count <= self.bytes
        self.end.check()


def false(number: int) -> Ref:
    """A reference that says one byte, to a piece that nobody has."""
    return Ref(digest_of(b"%d" % number), 1)


@pytest.mark.parametrize("where", ["first", "last", "both", "all"])
@pytest.mark.parametrize("repeats", [1, 4_096])
def test_an_index_with_false_sizes_costs_no_more_than_its_bytes_however_often_it_is_referred_to(where, repeats):
    """A message may refer to thousands of indexes, again and again, and each index to thousands of pieces."""
    counted = Counted()
    (leaf,) = counted.keep(Names(("t",)))
    indexes = []
    for number in range(4_096 // repeats // 20 + 1):
        refs = [leaf] * 3_000
        if where in ("first", "both", "all"):
            refs[0] = false(2 * number)
        if where in ("last", "both"):
            refs[-1] = false(2 * number + 1)
        if where == "all":
            refs = [false(3_000 * number + place) for place in range(3_000)]
        indexes += counted.keep(Index(tuple(refs)))
    body = CODECS["omen"].encode(omen.Connect(1, ("\x000",), 0))
    for _ in range(40):
        assert counted.send(Packed(body, None, tuple(indexes * repeats))) == []
        counted.assert_linear()


def test_lists_that_a_message_does_not_use_are_not_put_together():
    """Lists that are complete, and more than are kept, would be put together for each message anew."""
    counted = Counted()
    (leaf,) = counted.keep(Names(tuple(f"{number:02}" for number in range(16))))
    indexes = counted.keep(*(Index((leaf,) * (3_000 - number)) for number in range(50)))
    body = CODECS["omen"].encode(omen.JoinDone(7))
    assert len(counted.send(Packed(body, None, tuple(indexes)))) == 1
    counted.lookups.count = counted.bytes = 0
    for _ in range(5):
        assert len(counted.send(Packed(body, None, tuple(indexes)))) == 1
        assert counted.send(Packed(body, None, (*indexes, false(1)))) == []
    counted.assert_linear()


def test_pieces_that_come_one_by_one_cost_no_more_than_their_bytes():
    counted = Counted()
    topics = [Names((f"{number}",)) for number in range(3_000)]
    content = {digest_of(PIECES.encode(one)): one for one in topics}
    (index,) = counted.keep(Index(tuple(Ref(digest, len(PIECES.encode(one))) for digest, one in content.items())))
    complete = counted.keep(*(Names((f"list {number}",)) for number in range(2_000)))
    body = CODECS["omen"].encode(omen.Connect(1, ("\x000",), 0))
    came = counted.send(Packed(body, None, (index, *complete)))
    while not came:
        (digest,) = list(counted.end.waiting._asked)[:1]
        came = counted.send(Give(PIECES.encode(content[digest])))
    assert [one.message.topics for one in came] == [tuple(str(number) for number in range(3_000))]
    assert counted.asked == 3_000
    counted.assert_linear()


def test_a_peer_is_not_noted_twice_for_the_same_missing_pieces():
    """It says again and again that it has them, and never gives them."""
    counted = Counted()
    body = CODECS["omen"].encode(omen.Connect(1, ("\x000",), 0))
    packed = Packed(body, None, tuple(false(number) for number in range(2 * WANTS_MAX)))
    for _ in range(3_000):
        counted.send(packed)
    assert sum(map(len, counted.end.waiting._todo.values())) <= 2 * WANTS_MAX


def test_the_messages_of_all_peers_that_wait_are_bounded_by_number():
    end = Pieces(CODECS["omen"])
    body = CODECS["omen"].encode(omen.Connect(1, ("\x000",), 0))
    for number in range(10_000):
        end.on_message(f"n{number % 20}", PIECES_MESSAGES.encode(Packed(body, None, (false(number),))), 0)
    assert len(end.waiting.messages) == 8_192
    end.check()
