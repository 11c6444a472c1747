"""Encode messages to peers and decode messages from them. Long ones are sent as references to pieces.

`protocols/pieces` cuts long lists of topics into pieces and puts them together again. A message whose pieces are
missing waits there until they have come. This module connects it with the transport and the node: it is the
only place where messages become bytes. It also counts traffic by kind of message.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from trellis.live.clock import monotonic_ms
from trellis.live.frames import MESSAGE, PIECES
from trellis.protocols.delivery.messages import Frame
from trellis.protocols.effects import Contact, NodeId, Send
from trellis.protocols.mesh import CODECS
from trellis.protocols.pieces import PIECES_MESSAGES, Came, Packed, Pieces, PiecesEffects
from trellis.protocols.wire import WireError
from trellis.reached import reached

if TYPE_CHECKING:
    from trellis.live.shell import LiveNode

log = logging.getLogger("trellis.live")

PIECES_TIMER, _PIECES_S = "pieces/ask", 0.5  # seconds between two requests for missing pieces
Traffic = dict[type, list[int]]  # by kind of message: number of messages and of bytes


class Exchange:
    """Send and receive the messages of one node."""

    def __init__(self, node: LiveNode) -> None:
        self.node = node
        self.codec = CODECS[node.config.overlay]
        self.pieces = Pieces(self.codec)
        self.traffic_in: Traffic = {}
        self.traffic_out: Traffic = {}

    # Out

    def send(self, to: Contact, message: msgspec.Struct) -> None:
        """Encode a message and pass it to the transport. A message that is too large is logged, counted and dropped.

        Frames of delivery must not be dropped from a full queue. Other messages may: their protocols repeat them.
        """
        node = self.node
        try:
            encoded, kind = self._encode(to, message)
        except WireError as error:
            log.error("%s: cannot send to %s: %s", node.name, to, error)
            node.counters["too_large"] += 1
            return
        _count(self.traffic_out, message, len(encoded))
        node.transport.send(to, encoded, type(message) is not Frame, kind)

    def _encode(self, to: Contact, message: msgspec.Struct) -> tuple[bytes, bytes]:
        """Return a message as bytes and the kind of its frame: with pieces, or in full for peers of an old version."""
        if self.node.transport.takes_pieces(to):
            packed = self.pieces.pack(message)
            if isinstance(packed, Packed):
                reached("a message travels in pieces")
            return (PIECES_MESSAGES.encode(packed), PIECES) if isinstance(packed, Packed) else (packed, MESSAGE)
        try:
            return self.pieces.write_out(message), MESSAGE
        except WireError as error:
            raise WireError(f"{error}, and {to} speaks an old version of the protocol; upgrade it") from None

    # In

    def on_message(self, sender: NodeId, encoded: bytes) -> None:
        """Decode a message and hand it to the node. Raise WireError if it is malformed: the peer is then cut off."""
        self._hand_over(sender, self.codec.decode(encoded), len(encoded))

    def on_pieces(self, sender: NodeId, encoded: bytes) -> None:
        """Take in a message that refers to pieces, a request for pieces, or pieces. Raise WireError as `on_message`."""
        node = self.node
        if node.is_stopped:
            return
        node.health.links.hears(sender)
        try:
            effects = self.pieces.on_message(sender, encoded, monotonic_ms())
        except WireError:
            raise  # the peer is cut off
        except Exception:
            node.broke(f"a message of {sender} about pieces")
            return
        self._do(effects)

    def on_peer_down(self, peer: NodeId) -> None:
        """Note that a peer has no stream any more."""
        try:
            effects = self.pieces.on_peer_down(peer, monotonic_ms())
        except Exception:
            self.node.broke(f"the loss of pieces of {peer}")
            return
        self._do(effects)

    def tick(self) -> None:
        """Ask again for missing pieces. Called when `PIECES_TIMER` fires."""
        self._do(self.pieces.tick(monotonic_ms()))

    def _do(self, effects: PiecesEffects) -> None:
        """Carry out effects: hand over complete messages, and send requests and pieces to peers with a stream."""
        node = self.node
        for effect in effects:
            try:
                self._do_one(effect)
            except Exception:  # carry out the others nevertheless
                node.broke("carrying out an effect of pieces")
        if self.pieces.waiting.messages and PIECES_TIMER not in node.timers.pending and not node.is_stopped:
            node.timers.set(PIECES_TIMER, _PIECES_S)

    def _do_one(self, effect: Send | Came) -> None:
        transport = self.node.transport
        if isinstance(effect, Came):
            self._hand_over(effect.sender, effect.message, effect.size)
        elif effect.to in transport.peers and transport.takes_pieces(effect.to):
            encoded = PIECES_MESSAGES.encode(effect.message)  # type: ignore[arg-type]
            _count(self.traffic_out, effect.message, len(encoded))
            transport.send(effect.to, encoded, may_drop=False, kind=PIECES)

    def _hand_over(self, sender: NodeId, message: msgspec.Struct, size: int) -> None:
        """Count a complete message and give it to the node."""
        _count(self.traffic_in, message, size)
        self.node.take_in(sender, message)


def _count(traffic: Traffic, message: msgspec.Struct, size: int) -> None:
    counts = traffic.get(type(message))
    if counts is None:
        counts = traffic[type(message)] = [0, 0]
    counts[0] += 1
    counts[1] += size
