"""A node's position on one OSCAR ring: the ring, the fingers, the routing table and the links.

    oscar.enter(label)          take a position, and find the nodes around it by looking it up
    oscar.give_place(...)       give a position right after our own to a node that asks   [MG Alg. 1, l. 3]
    oscar.next_hop(target)      greedy routing from below
    oscar.owns(target)          return whether we are responsible for a position

If `claims` is set, the links are reported to the driver as the overlay.

O1  The reported links are those of the table.
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
    """One ring as a part of a node. Its owner passes on messages and timers of the `layer`.

    `random_peer` returns any peer. `interest`, `similarity` and `in_use` are those of `Fingers`.
    """

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
        self.linked: set[NodeId] = set()  # nodes with which a link was last reported
        self._handlers = self._dispatch()
        self.relinked = False  # Set when links may have changed. The owner resets it.
        # Predecessor and successor when the links were last examined.
        self._beside: tuple[Peer | None, Peer | None] = (None, None)

    @property
    def me(self) -> Peer | None:
        """Return our position, or None if we have none."""
        return self.table.me

    def next_hop(self, target: Label) -> Peer | None:
        """Return the neighbor closest to `target` from below, or None if we are closer."""
        return self.table.next_hop(target)

    def owns(self, target: Label) -> bool:
        """Return whether we are responsible for a position."""
        return self.table.owns(target)

    def enter(self, label: Label, peers: tuple[Peer, ...] = (), through: Contact | None = None) -> Effects:
        """Take a position. `peers` are nodes around it. Without them it is looked up, `through` a contact."""
        self.table.move(label)
        effects = self.ring.learn(peers)
        effects += self.ring.start()
        if not peers:
            effects += self.ring.locate(through)
        return self._linked([*effects, *self.fingers.start()])

    def exit(self) -> Effects:
        """Give up the position in order."""
        effects = self.ring.leave()
        self.fingers.stop()
        self.table.clear()
        self.table.move(None)
        return self._linked(effects)

    def give_place(
        self, node: NodeId, incarnation: int, version: int
    ) -> tuple[Label | None, tuple[Peer, ...], Effects]:
        """Return a label between us and our successor, and the nodes around it. None: there is no such label now.

        We count the newcomer as our successor at once, so the next node that asks gets another label (A-MAG-8).
        """
        me, first = self.table.me, self.table.successor
        if me is None:
            return None, (), []
        label = midpoint(me.label, first.label if first is not None else me.label)
        if len(label) > self.config.label_bytes_max:
            return None, (), self.respacing.begin()
        known = (me, *self.table.successors)
        effects = self.ring.learn([Peer(node, label, incarnation, version)], direct=True)
        if self.respacing.is_due(label):
            effects += self.respacing.begin()  # The newcomer gets its label before the wave reaches it.
        return label, known, self._linked(effects)

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        """Pass a message to the part that handles it."""
        handler = self._handlers.get(type(message))
        if handler is None:
            return []
        effects = handler(sender, message)
        return self._linked(effects) if self.table.changed else effects

    def _dispatch(self) -> dict[type, Handler]:
        """Return the handler of each type of message. Half of all messages of a run come here."""
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
        """Pass a timer of this layer to the part that handles it."""
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
        """Give up a peer that has crashed or left, if there is a link with it."""
        if not self.table.is_linked(peer):
            return []
        self.ring.give_up(peer)
        return self._linked(self.fingers.on_down(peer))

    def check(self) -> None:
        """Assert the invariants T1, F1 and O1."""
        self.table.check()
        self.fingers.check()
        if not self.table.changed:
            assert self.linked == {peer.node for peer in self.table.around}, f"O1: {self.id} is linked to others"

    def _keep_used(self, in_use: InUse) -> None:
        """Keep links that trees use to a former successor or predecessor, if a node came in between."""
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
        """Examine the links after a change, and add to the effects what has changed."""
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
