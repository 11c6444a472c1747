"""Messages to and from peers as bytes: whole, or in pieces where they are long.  [protocols/pieces]"""

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

PIECES_TIMER, _PIECES_S = "pieces/ask", 0.5  # how often missing pieces are asked for again
Traffic = dict[type, list[int]]  # kind of message -> messages and bytes


class Exchange:
    def __init__(self, node: LiveNode) -> None:
        self.node = node
        self.codec = CODECS[node.config.overlay]
        self.pieces = Pieces(self.codec)
        self.traffic_in: Traffic = {}
        self.traffic_out: Traffic = {}

    # Out

    def send(self, to: Contact, message: msgspec.Struct) -> None:
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
        """Hand a message to the node. A WireError cuts the peer off."""
        self._hand_over(sender, self.codec.decode(encoded), len(encoded))

    def on_pieces(self, sender: NodeId, encoded: bytes) -> None:
        node = self.node
        if node.is_stopped:
            return
        node.health.links.hears(sender)
        try:
            effects = self.pieces.on_message(sender, encoded, monotonic_ms())
        except WireError:
            raise  # it cuts the peer off
        except Exception:
            node.broke(f"a message of {sender} about pieces")
            return
        self._do(effects)

    def on_peer_down(self, peer: NodeId) -> None:
        try:
            effects = self.pieces.on_peer_down(peer, monotonic_ms())
        except Exception:
            self.node.broke(f"the loss of pieces of {peer}")
            return
        self._do(effects)

    def tick(self) -> None:
        self._do(self.pieces.tick(monotonic_ms()))

    def _do(self, effects: PiecesEffects) -> None:
        """Hand over messages whose pieces are there; ask for pieces and give them, where a stream is there."""
        node = self.node
        for effect in effects:
            try:
                self._do_one(effect)
            except Exception:  # one that fails does not keep back the others
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
        _count(self.traffic_in, message, size)
        self.node.take_in(sender, message)


def _count(traffic: Traffic, message: msgspec.Struct, size: int) -> None:
    found = traffic.get(type(message))
    if found is None:
        found = traffic[type(message)] = [0, 0]
    found[0] += 1
    found[1] += size
