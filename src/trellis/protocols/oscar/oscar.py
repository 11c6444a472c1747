"""A node's place on one OSCAR ring: the ring, the fingers, the routing table and the links that come of them.

    oscar.enter(label)          take a place and find one's neighbours by looking oneself up
    oscar.give_place(...)       a place right after one's own, for somebody who asks   [MG Alg. 1, l. 3]
    oscar.next_hop(target)      greedy routing from below
    oscar.owns(target)          is a place of the ring ours?

Where `claims` is set the links are the overlay that the driver sees.

O1  the links that were claimed are those of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from trellis.protocols.effects import Contact, Effects, LinkDown, LinkUp, NodeId
from trellis.protocols.oscar.config import OscarConfig
from trellis.protocols.oscar.fingers import Fingers, Interest, InUse, Similarity
from trellis.protocols.oscar.labels import Label, between, midpoint
from trellis.protocols.oscar.messages import (
    Beat,
    Connect,
    ConnectOk,
    Gone,
    Locate,
    Located,
    Neighbors,
    Peer,
    Spread,
    SpreadBack,
    Stabilise,
    Unlink,
    Walk,
    Walked,
)
from trellis.protocols.oscar.respace import Respacing
from trellis.protocols.oscar.ring import RandomPeer, Ring
from trellis.protocols.oscar.table import Table

Handler = Callable[[NodeId, Any], Effects]


class Oscar:
    def __init__(
        self,
        layer: str,
        node: NodeId,
        random_peer: RandomPeer,
        random: Random,
        config: OscarConfig | None = None,
        *,
        incarnation: int = 1,
        claims: bool = False,
        interest: Interest | None = None,
        similarity: Similarity | None = None,
        in_use: InUse | None = None,
    ) -> None:
        self.id, self.layer, self.claims = node, layer, claims
        self.config = config or OscarConfig()
        self.table = Table(node, incarnation)
        self.ring = Ring(layer, self.table, random_peer, random, self.config)
        self.fingers = Fingers(layer, self.table, self.ring, random, self.config, interest, similarity, in_use)
        self.respacing = Respacing(layer, self.table, self.config)
        self.linked: set[NodeId] = set()
        self._handlers = self._dispatch()
        self.relinked = False  # the links have changed since this was last reset
        self._beside: tuple[Peer | None, Peer | None] = (None, None)  # predecessor and successor as of then

    @property
    def me(self) -> Peer | None:
        return self.table.me

    def next_hop(self, target: Label) -> Peer | None:
        return self.table.next_hop(target)

    def owns(self, target: Label) -> bool:
        return self.table.owns(target)

    def enter(self, label: Label, peers: tuple[Peer, ...] = (), through: Contact | None = None) -> Effects:
        """Take a place. `peers` are known to be around it; without them it is looked up, `through` a contact."""
        self.table.move(label)
        effects = self.ring.learn(peers)
        effects += self.ring.start()
        if not peers:
            effects += self.ring.locate(through)
        return self._linked([*effects, *self.fingers.start()])

    def exit(self) -> Effects:
        """Give the place up, in order."""
        effects = self.ring.leave()
        self.fingers.stop()
        self.table.clear()
        self.table.move(None)
        return self._linked(effects)

    def give_place(
        self, node: NodeId, incarnation: int, version: int
    ) -> tuple[Label | None, tuple[Peer, ...], Effects]:
        """A label between us and our successor, and who is there. We know of the newcomer at once, so that the next
        one who asks gets another label (A-MAG-8)."""
        me, first = self.table.me, self.table.successor
        if me is None:
            return None, (), []
        label = midpoint(me.label, first.label if first is not None else me.label)
        if len(label) > self.config.label_bytes_max:
            return None, (), self.respacing.begin()
        known = (me, *self.table.successors)
        effects = self.ring.learn([Peer(node, label, incarnation, version)], direct=True)
        if self.respacing.is_due(label):
            effects += self.respacing.begin()  # the newcomer has its label before the wave reaches it
        return label, known, self._linked(effects)

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        handler = self._handlers.get(type(message))
        if handler is None:
            return []
        effects = handler(sender, message)
        return self._linked(effects) if self.table.changed else effects

    def _dispatch(self) -> dict[type, Handler]:
        """A table of types: half of all messages of a run come through here."""
        ring, fingers, respacing = self.ring, self.fingers, self.respacing
        return {
            Walk: lambda _, walk: fingers.on_walk(walk),
            Walked: lambda _, walked: fingers.on_walked(walked),
            Beat: fingers.on_beat,
            Stabilise: ring.on_stabilise,
            Neighbors: ring.on_neighbors,
            Locate: lambda _, locate: ring.on_locate(locate),
            Located: lambda _, located: ring.learn(located.peers),
            Connect: lambda sender, connect: fingers.on_connect(sender, connect.me),
            ConnectOk: lambda sender, ok: fingers.on_connect_ok(sender, ok.me),
            Unlink: fingers.on_unlink,
            Gone: lambda sender, _: [*ring.on_gone(sender), *fingers.on_down(sender)],
            Spread: respacing.on_spread,
            SpreadBack: respacing.on_spread_back,
        }

    def on_timer(self, tag: str) -> Effects:
        match tag.partition("/")[2]:
            case "ring":
                effects = self.ring.on_timer()
            case "beat":
                effects = self.fingers.on_beat_timer()
            case "walk":
                effects = self.fingers.on_walk_timer()
            case "estimate":
                effects = self.fingers.on_estimate_timer()
            case _:
                return []
        return self._linked(effects) if self.table.changed else effects

    def on_peer_down(self, peer: NodeId) -> Effects:
        if not self.table.is_linked(peer):
            return []
        self.ring.give_up(peer)
        return self._linked(self.fingers.on_down(peer))

    def check(self) -> None:
        self.table.check()
        self.fingers.check()
        if not self.table.changed:
            assert self.linked == {peer.node for peer in self.table.around}, f"O1: {self.id} is linked to others"

    def _keep_used(self, in_use: InUse) -> None:
        """Who was beside us, and is not any more since somebody came in between: the link stays for its trees."""
        table, (before, after) = self.table, self._beside
        last, first = self._beside = table.predecessor, table.successor
        if table.me is None:
            return
        if after is not None and first is not None and after.node != first.node and in_use(after.node):
            further = next((peer for peer in table.successors if peer.node == after.node), None)
            if further is not None and not table.carries(after.node):
                self.fingers.keep_below(further)
                table.touch()
        if before is not None and last is not None and before.node != last.node and in_use(before.node):
            came_between = between(last.label, before.label, table.me.label)
            if came_between and not table.is_up(before.node) and not self.ring.is_buried(before.node):
                self.fingers.keep_above(before)
                table.touch()

    def _linked(self, effects: Effects) -> Effects:
        """The links as they are now, and what has changed of them."""
        if self.table.me is not None and self.fingers.is_due:
            effects = [*effects, *self.fingers.estimate()]
        if self.fingers.in_use is not None:
            self._keep_used(self.fingers.in_use)
        self.table.changed = False
        now = {peer.node for peer in self.table.around}
        self.relinked = True
        if now == self.linked:
            return effects
        if self.claims:
            effects = [
                *effects,
                *(LinkDown(peer) for peer in sorted(self.linked - now)),
                *(LinkUp(peer) for peer in sorted(now - self.linked)),
            ]
        self.linked = now
        return effects
