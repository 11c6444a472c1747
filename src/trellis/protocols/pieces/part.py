"""Pack messages for the wire, and put received ones together.  [The package's docstring tells how pieces work.]"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from trellis.protocols.effects import NodeId, Send
from trellis.protocols.pieces.assembly import Assembly, Forgotten
from trellis.protocols.pieces.messages import (
    BYTES_MAX,
    LISTS_MAX,
    PIECES,
    PIECES_MESSAGES,
    Bytes,
    Give,
    Index,
    Names,
    Packed,
    Ref,
    Want,
)
from trellis.protocols.pieces.store import Store, cut, digest_of
from trellis.protocols.pieces.topic_lists import TopicLists, Topics
from trellis.protocols.pieces.waiting import Waiting, WaitingMessages
from trellis.protocols.wire import FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, TOPICS_BYTES_MAX, TOPICS_MAX, Codec, WireError

STORE_BYTES_MAX = 2 * MESSAGE_BYTES_MAX  # so that the pieces of any one message fit

_SHORT_LETTERS = 1_024  # Lists with fewer letters stay in their message.
_BODY_BYTES_MAX = FRAME_BYTES_MAX - (128 << 10)  # leaves room for the references
_CACHED_TOPICS_MAX = 1_000_000
_PLACEHOLDER = "\x00"  # Replaces a list in a message, together with the number of its reference.


class Came(msgspec.Struct, frozen=True, gc=False):
    """Deliver this message of `sender` to the node."""

    sender: NodeId
    message: msgspec.Struct
    size: int  # bytes of the frame in which it came


PiecesEffects = list[Send | Came]


class Pieces:
    """Packs and unpacks the messages of one node. The driver calls `tick` while messages wait."""

    def __init__(self, codec: Codec[Any], store_bytes_max: int = STORE_BYTES_MAX) -> None:
        self.codec = codec
        self.lists = TopicLists.of(codec.union)
        self.store = Store(store_bytes_max)
        self.counters: Counter[str] = Counter()
        self.waiting = WaitingMessages(self.counters)
        self._turn = 0
        self.assembly = Assembly(self.store)
        # lists that were cut -> reference, all references, bytes
        self._refs: dict[Topics, tuple[Ref, tuple[Ref, ...], int]] = {}
        self._cached = 0  # number of topics in these lists

    # Sending

    def pack(self, message: msgspec.Struct) -> bytes | Packed:
        """Return the encoded message, or a `Packed` if it is too large or has long lists of topics.

        Raise WireError if it is larger than any message may be.
        """
        if not self.lists.are_in(type(message)):  # This is so for most messages, for example those of clients.
            body = self.codec.encode(message)
            if len(body) <= FRAME_BYTES_MAX:
                return body
        found: dict[Topics, tuple[Ref, int]] = {}

        def look(topics: Topics) -> Topics:
            if _is_long(topics) and topics not in found:
                found[topics] = self._cut(topics)
            return topics

        self.lists.replace(message, look)
        chosen = self._chosen(found)
        numbers = {topics: number for number, topics in enumerate(chosen)}

        def take_out(topics: Topics) -> Topics | None:
            if topics not in found:
                return topics
            return (f"{_PLACEHOLDER}{numbers[topics]}",) if topics in numbers else None

        body = self.codec.encode(self.lists.replace(message, take_out) if found else message)
        total = len(body) + sum(found[topics][1] for topics in chosen)
        if total > MESSAGE_BYTES_MAX:
            raise WireError(f"a {type(message).__name__} of {total} bytes is over {MESSAGE_BYTES_MAX}")
        refs = tuple(found[topics][0] for topics in chosen)
        if len(body) <= (_BODY_BYTES_MAX if refs else FRAME_BYTES_MAX):
            return Packed(body, None, refs) if refs else body
        parts = [self.store.put(Bytes(body[at : at + BYTES_MAX])) for at in range(0, len(body), BYTES_MAX)]
        return Packed(b"", self.store.put(Index(tuple(parts))), refs)

    def _chosen(self, found: dict[Topics, tuple[Ref, int]]) -> list[Topics]:
        """Return the lists that one message may have: the first, and others in turn if all together are too large.

        A descriptor whose list is not chosen is left out. Descriptors are gossip, and the next round sends others.
        """
        chosen, room = list(found), MESSAGE_BYTES_MAX - TOPICS_BYTES_MAX
        if sum(size for _, size in found.values()) <= room and len(chosen) <= LISTS_MAX:
            return chosen
        self._turn += 1
        turn = 1 + self._turn % max(1, len(chosen) - 1)
        order, chosen = [chosen[0], *chosen[turn:], *chosen[1:turn]], []
        for topics in order[:LISTS_MAX]:
            room -= found[topics][1]
            if room < 0:
                break
            chosen.append(topics)
        return chosen

    def _cut(self, topics: Topics) -> tuple[Ref, int]:
        """Return the reference to a list and the bytes of its pieces, after putting these into the store."""
        known = self._refs.get(topics)
        if known is not None and all(self.store.get(one.digest) is not None for one in known[1]):
            return known[0], known[2]
        if len(topics) > TOPICS_MAX:
            raise WireError(f"a list of {len(topics)} topics is over {TOPICS_MAX}")
        leaves = [self.store.put(Names(part)) for part in cut(topics)]
        size = sum(one.size for one in leaves)
        if size > TOPICS_BYTES_MAX:
            raise WireError(f"a list of topics of {size} bytes is over {TOPICS_BYTES_MAX}")
        ref = leaves[0] if len(leaves) == 1 else self.store.put(Index(tuple(leaves)))
        self._cached += len(topics)
        if self._cached > _CACHED_TOPICS_MAX:
            self._refs.clear()
            self._cached = len(topics)
        self._refs[topics] = (ref, (*leaves, ref), size)
        return ref, size

    def write_out(self, message: msgspec.Struct) -> bytes:
        """Return the message as a frame without references. Raise WireError if it does not fit."""
        letters = 0

        def count(topics: Topics) -> Topics:
            nonlocal letters
            letters += sum(map(len, topics))
            return topics

        self.lists.replace(message, count)
        encoded = self.codec.encode(message) if letters <= FRAME_BYTES_MAX else b""
        if not 0 < len(encoded) <= FRAME_BYTES_MAX:
            raise WireError(f"a {type(message).__name__} of {len(encoded) or letters} bytes is over {FRAME_BYTES_MAX}")
        return encoded

    # Receiving

    def on_message(self, sender: NodeId, data: bytes, now_ms: int) -> PiecesEffects:
        """Handle a `Packed`, `Want` or `Give`. Raise WireError if the sender breaks the rules."""
        message = PIECES_MESSAGES.decode(data)
        match message:
            case Want():
                return self._on_want(sender, message)
            case Give():
                return self._on_give(sender, message, now_ms)
        one = Waiting(sender, message, len(data), now_ms)
        found = self._put_together(one)
        if found is not None:
            return [found]
        if message.whole is None:
            self.codec.decode(message.body)  # Raises for a body that is no message, so that it does not wait.
        self.waiting.add(one)
        return [*self.waiting.ask(now_ms)]

    def on_peer_down(self, peer: NodeId, now_ms: int) -> PiecesEffects:
        """Drop the waiting messages of `peer`, and ask others for the pieces that it was asked for."""
        self.waiting.peer_down(peer)
        return [*self.waiting.ask(now_ms)]

    def tick(self, now_ms: int) -> PiecesEffects:
        """Ask again for pieces that did not come, and drop messages that have waited for too long."""
        self.waiting.tick(now_ms)
        return [*self.waiting.ask(now_ms)]

    def check(self) -> None:
        """Assert the invariant P1."""
        assert self.store.bytes <= self.store.bytes_max, f"P1: {self.store.bytes} bytes are kept"
        self.waiting.check()

    def _on_want(self, sender: NodeId, want: Want) -> PiecesEffects:
        """Send the pieces that the sender asks for, as far as we have them."""
        found = [self.store.get(digest) for digest in want.digests]
        self.counters["not there"] += found.count(None)
        given = [PIECES.encode(piece) for piece in found if piece is not None]
        self.counters["given"] += len(given)
        self.counters["given bytes"] += sum(map(len, given))
        return [Send(sender, Give(one)) for one in given]

    def _on_give(self, sender: NodeId, give: Give, now_ms: int) -> PiecesEffects:
        """Take in a piece, and deliver the messages that are complete now."""
        digest = digest_of(give.piece)
        if not self.waiting.is_asked_for(digest):  # It comes late: another peer was faster.
            self.counters["unasked"] += 1
            return []
        piece = PIECES.decode(give.piece)
        if PIECES.encode(piece) != give.piece:  # We could not give it to others under its digest.
            raise WireError("a piece in another form than ours")
        self.store.put(piece)
        self.counters["got bytes"] += len(give.piece)
        came = [self._try_again(number) for number in self.waiting.came(sender, digest)]
        return [*(one for one in came if one is not None), *self.waiting.ask(now_ms)]

    def _try_again(self, number: int) -> Came | None:
        """Try to put a waiting message together after a piece has come."""
        one = self.waiting.messages[number]
        try:
            found = self._put_together(one)
        except WireError:  # Its sender has broken the rules, and not the peer that gave us the last piece.
            one.missing.clear()
            self.waiting.drop(number, "refused")
            return None
        if found is None:
            self.waiting.need(number)
        else:
            self.waiting.end(number)
        return found

    def _put_together(self, one: Waiting) -> Came | None:
        """Return the message if all pieces are there. Otherwise `one.missing` has some that are not."""
        while self.assembly.look(one):
            try:
                message = self.codec.decode(self.assembly.body(one))
                return Came(one.sender, self._with_lists(message, one.packed.lists), one.size)
            except Forgotten:
                one.found = one.total = 0  # Look again from the beginning.
        return None

    def _with_lists(self, message: msgspec.Struct, refs: tuple[Ref, ...]) -> msgspec.Struct:
        """Return the message with its lists in place of the placeholders."""
        lists: dict[int, Topics] = {}

        def put_back(topics: Topics) -> Topics:
            if len(topics) != 1 or topics[0][0] != _PLACEHOLDER:
                return topics
            digits = topics[0][1:]
            if not (digits.isascii() and digits.isdigit() and len(digits) < 5 and int(digits) < len(refs)):
                raise WireError("a placeholder without its list")
            number = int(digits)
            if number not in lists:
                lists[number] = self.assembly.list(refs[number])
            return lists[number]

        return self.lists.replace(message, put_back)


def _is_long(topics: Topics) -> bool:
    """Return whether a list is replaced by a reference.

    A list that begins like a placeholder always is, so that it cannot be taken for one.
    """
    return bool(topics) and (topics[0][0] == _PLACEHOLDER or sum(map(len, topics)) > _SHORT_LETTERS)
