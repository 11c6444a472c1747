"""The ring: each node knows the next nodes clockwise and the one before, and repairs this knowledge.

Once per period a node asks its first successor for its neighbors, and takes a closer one as its successor if there is
one. This is Chord's stabilisation, with lists of successors. A node that is silent for too long is given up and buried
for a while, so that messages of others do not bring it back. Every few periods a node looks up its own position from a
random peer. By this, a ring that fell into parts, or that winds around more than once, becomes one ring again.

A single node is a ring of one, so joining a ring and merging two rings are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from trellis.protocols.effects import Contact, Effects, NodeId, Send, SetTimer
from trellis.protocols.oscar.config import OscarConfig
from trellis.protocols.oscar.labels import inside, midpoint
from trellis.protocols.oscar.messages import Gone, Locate, Located, Neighbors, Peer, Stabilise
from trellis.protocols.oscar.table import Table

RandomPeer = Callable[[], Contact | None]
_HOPS_MAX = 512
_BURIED_MAX = 1_024  # Nodes that are buried at once. The one that was buried first is forgotten for a further one.
_STRAY_HOPS_MAX = 16  # Hops that a lookup may make among nodes that know no ring.


class Ring:
    """The successors and the predecessor of one node, in `table`."""

    def __init__(self, layer: str, table: Table, random_peer: RandomPeer, random: Random, config: OscarConfig) -> None:
        self.layer, self.table, self.config, self.random = layer, table, config, random
        self.random_peer = random_peer
        self.silence = 0  # periods since the first successor was heard
        self.predecessor_silence = 0
        self.rounds = 0
        # How often we had the same label as another node. A partition can hide that a label is in use.
        self.collisions = 0
        self._watched: NodeId | None = None  # the successor to which `silence` belongs
        self._buried: dict[NodeId, int] = {}  # node -> the round from which on others may name it again
        self._tick = SetTimer(f"{layer}/ring", config.ring_ms)

    def start(self) -> Effects:
        """Start the periodic work, after the node has got a position."""
        return [SetTimer(self._tick.tag, 1 + self.random.randrange(self.config.ring_ms)), *self._ask_successor()]

    def on_timer(self) -> Effects:
        """Run a round: give up silent nodes, ask the successor, and look up our own position now and then."""
        table = self.table
        if table.me is None:
            return []
        self.rounds += 1
        effects: Effects = [self._tick]
        self._count_silence()
        if self.table.predecessor is None and not table.successors and self.rounds > 1:
            effects += self.locate()  # We know nobody, so we look for the ring.
        elif self.rounds % self.config.locate_rounds == 0:
            effects += self.locate()
        return [*self._ask_successor(), *effects]

    def locate(self, through: Contact | None = None) -> Effects:
        """Look up our own position, from a given peer or a random one."""
        peer = through or self.random_peer()
        if peer is None or self.table.me is None or peer == self.table.node:
            return []
        return [Send(peer, Locate(self.layer, self.table.me))]

    def on_locate(self, message: Locate) -> Effects:
        """Forward a lookup, or answer it if we are the last node before the position."""
        table, origin = self.table, message.origin
        if origin.node == table.node or message.hops > _HOPS_MAX:
            return []
        if table.me is None or (not table.successors and message.hops < _STRAY_HOPS_MAX):
            # We are not on the ring, or alone, so another node may know more. Two single nodes would form a second
            # ring.
            peer = self.random_peer()
            if peer is not None and peer != origin.node and message.hops < _STRAY_HOPS_MAX:
                return [Send(peer, Locate(self.layer, origin, message.hops + 1))]
            if table.me is None:
                return []
        hop = table.next_hop(origin.label, without=origin.node)
        if hop is not None:
            return [Send(hop.node, Locate(self.layer, origin, message.hops + 1))]
        known = [table.me, *table.successors, *([table.predecessor] if table.predecessor else [])]
        effects: Effects = [Send(origin.node, Located(self.layer, tuple(known)))]
        return [*effects, *self.learn([origin], direct=True)]

    def on_stabilise(self, sender: NodeId, message: Stabilise) -> Effects:
        """Answer a node that takes us for its successor, and take it as our predecessor if it is closer."""
        table, before = self.table, message.me
        self.heard(before)
        if table.me is None:
            return []
        old = table.predecessor
        known = (*table.successors, *([table.me] if not table.successors else []))[: self.config.successors]
        answer = Send(sender, Neighbors(self.layer, table.me, old, known))
        if before.label == table.me.label:
            return [answer]
        if old is None or old.node == before.node or inside(before.label, old.label, table.me.label):
            if old is None or old != before:
                table.predecessor = before
                table.touch()
            self.predecessor_silence = 0
        effects: Effects = [answer]
        if not table.successors:
            effects += self.learn([before], direct=True)
        return effects

    def on_neighbors(self, sender: NodeId, message: Neighbors) -> Effects:
        """Take in the answer of our successor."""
        table = self.table
        self.heard(message.me)
        if table.me is None or table.successor is None or sender != table.successor.node:
            return []
        self.silence = 0
        peers = [message.me, *message.successors]
        before = message.predecessor
        if before is not None and inside(before.label, table.me.label, message.me.label):
            peers.append(before)
        # Nodes that the successor does not know any more are forgotten. So crashed nodes disappear from the lists.
        return self._take(self._believable(peers))

    def on_gone(self, sender: NodeId) -> Effects:
        """Give up a node that leaves its position."""
        self.give_up(sender)
        return self._ask_successor() if self._watched == sender else []

    def learn(self, peers: Iterable[Peer], direct: bool = False) -> Effects:
        """Take in nodes that were named. `direct`: each was named by itself."""
        if direct:
            for peer in peers:
                self.heard(peer)
        if self.table.me is None:
            return []
        return self._take([*self.table.successors, *self._believable(peers)])

    def heard(self, peer: Peer) -> None:
        """Take in a node's own message: it is running, and this is its position."""
        self._buried.pop(peer.node, None)
        self.table.learn_place(peer)

    def give_up(self, node: NodeId) -> None:
        """Give up a node that is gone, or was silent for too long, and bury it for a while."""
        self.table.drop(node)
        self._buried.pop(node, None)
        if len(self._buried) >= _BURIED_MAX:
            del self._buried[next(iter(self._buried))]
        self._buried[node] = self.rounds + max(1, self.config.bury_ms // self.config.ring_ms)

    def is_buried(self, node: NodeId) -> bool:
        """Return whether a node was given up not long ago."""
        return node in self._buried

    def leave(self) -> Effects:
        """Tell all linked nodes that we leave our position."""
        return [Send(peer.node, Gone(self.layer)) for peer in self.table.around]

    def _believable(self, peers: Iterable[Peer]) -> list[Peer]:
        """Return the peers that are not buried. If one has our label, the node with the larger name moves."""
        table, believed = self.table, []
        for peer in peers:
            assert table.me is not None
            if peer.node == table.node or peer.node in self._buried:
                continue
            if peer.label == table.me.label:
                if table.node < peer.node:
                    continue
                first = table.successor
                label = midpoint(table.me.label, first.label if first is not None else table.me.label)
                if len(label) > self.config.label_bytes_max:
                    continue  # There is no label left to move to.
                table.move(label)
                self.collisions += 1
            believed.append(peer)
        return believed

    def _take(self, peers: list[Peer]) -> Effects:
        """Set the successors, and ask the first one if it is new."""
        self.table.set_successors(peers, self.config.successors)
        return self._ask_successor() if self._is_new_successor() else []

    def _is_new_successor(self) -> bool:
        first = self.table.successor
        return first is not None and first.node != self._watched

    def _ask_successor(self) -> Effects:
        """Send `Stabilise` to the first successor."""
        first, me = self.table.successor, self.table.me
        if first is None or me is None:
            self._watched = None
            return []
        if first.node != self._watched:
            self._watched, self.silence = first.node, 0
        return [Send(first.node, Stabilise(self.layer, me))]

    def _count_silence(self) -> None:
        """Count the periods of silence, and give up successor and predecessor if there are too many."""
        table = self.table
        self._buried = {node: until for node, until in self._buried.items() if until > self.rounds}
        if table.successor is not None:
            self.silence += 1
            if self.silence > self.config.silence_max:
                self.give_up(table.successor.node)
        if table.predecessor is not None:
            self.predecessor_silence += 1
            if self.predecessor_silence > self.config.silence_max:
                self.give_up(table.predecessor.node)
        if table.successor is None and table.predecessor is not None:
            table.set_successors([table.predecessor], self.config.successors)
