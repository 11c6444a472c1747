"""The routing table of a node on one ring, and greedy routing "from below" over it.  [MG §2.1; A-MAG-11]

    down  the first successor and the fingers: RT(p). Routes and trees continue there, clockwise.
    up    the predecessor and `guests`, the nodes whose finger we are: routes and trees come from there.

A finger that is given up while trees use it is *parting*. So is a former successor when a node came in between. A
parting link still carries its trees, but no new route.

Both ends know a link, so both lists together are the node's links. The other successors that are known serve to repair
the ring, and carry no route.

T1  Successors are in clockwise order, without repetition. The node itself is not among successors, predecessor,
    fingers, `guests` and parting nodes.
"""

from __future__ import annotations

from bisect import bisect_right

from trellis.protocols.effects import NodeId
from trellis.protocols.oscar.labels import Label, after, between
from trellis.protocols.oscar.messages import Peer


class Table:
    """The links of one node on one ring."""

    def __init__(self, node: NodeId, incarnation: int) -> None:
        self.node, self.incarnation = node, incarnation
        self.me: Peer | None = None  # our position; None: we are not on the ring
        self.version = 0  # the version of our present or last position
        self.successors: list[Peer] = []  # nearest first
        self.predecessor: Peer | None = None
        self.fingers: dict[NodeId, Peer] = {}
        self.guests: dict[NodeId, Peer] = {}  # the nodes whose finger we are
        self.parting: dict[NodeId, Peer] = {}  # former fingers and successors that still carry trees
        self.changed = False  # Set by every change. `Oscar` resets it.
        self._stale = True  # The lists below must be computed again.
        self._labels: list[Label] = []
        self._down: list[Peer] = []
        self._around: list[Peer] = []

    def move(self, label: Label | None) -> None:
        """Take another position, or none."""
        if label is not None:
            self.version += 1
        self.me = None if label is None else Peer(self.node, label, self.incarnation, self.version)
        self.touch()

    def touch(self) -> None:
        """Note a change of the table."""
        self._stale = self.changed = True

    @property
    def successor(self) -> Peer | None:
        """Return the first successor, if there is one."""
        return self.successors[0] if self.successors else None

    @property
    def down(self) -> list[Peer]:
        """Return RT, the first successor and the fingers, sorted by label."""
        if self._stale:
            self._refresh()
        return self._down

    @property
    def around(self) -> list[Peer]:
        """Return all nodes with which we have a link."""
        if self._stale:
            self._refresh()
        return self._around

    def is_down(self, node: NodeId) -> bool:
        """Return whether a node is our first successor or a finger."""
        return node in self.fingers or bool(self.successors and self.successors[0].node == node)

    def carries(self, node: NodeId) -> bool:
        """Return whether the link to this node may carry a tree from us."""
        return node in self.parting or self.is_down(node)

    def is_up(self, node: NodeId) -> bool:
        """Return whether a node is our predecessor, or has us as a finger."""
        return node in self.guests or (self.predecessor is not None and self.predecessor.node == node)

    def known_below(self, node: NodeId) -> Peer | None:
        """Return a node that we know in clockwise direction, or None."""
        first = self.successor
        return self.fingers.get(node) or self.parting.get(node) or (first if first and first.node == node else None)

    def known_above(self, node: NodeId) -> Peer | None:
        """Return a node that knows us in clockwise direction, or None."""
        last = self.predecessor
        return self.guests.get(node) or (last if last and last.node == node else None)

    def is_linked(self, node: NodeId) -> bool:
        """Return whether there is a link with a node."""
        return self.carries(node) or self.is_up(node)

    def next_hop(self, target: Label, without: NodeId | None = None) -> Peer | None:
        """Return the neighbor closest to `target` from below, or None if no neighbor is closer than we are."""
        if self._stale:
            self._refresh()
        if not self._down or self.me is None or self.me.label == target:
            return None
        index = bisect_right(self._labels, target) - 1
        for step in range(min(2, len(self._down))):
            hop = self._down[index - step]
            if hop.node != without:
                return hop if between(hop.label, self.me.label, target) else None
        return None

    def owns(self, target: Label) -> bool:
        """Return whether we are the first node at or after a position, as far as we know (A-MAG-5)."""
        if self.me is None:
            return False
        if self.predecessor is None:
            return not self.successors
        return between(target, self.predecessor.label, self.me.label)

    def learn_place(self, peer: Peer) -> None:
        """Update the position of a peer wherever it is in the table, if this one is newer."""
        for known in (self.fingers, self.guests, self.parting):
            old = known.get(peer.node)
            if old is not None and is_newer(peer, old):
                known[peer.node] = peer
                self.touch()
        if self.predecessor is not None and self.predecessor.node == peer.node and is_newer(peer, self.predecessor):
            self.predecessor = peer
            self.touch()
        for index, old in enumerate(self.successors):
            if old.node == peer.node and is_newer(peer, old):
                self.successors[index] = peer
                self._sort_successors()
                break

    def set_successors(self, peers: list[Peer], most: int) -> None:
        """Set the successors to the newest entries of `peers`, at most `most` of them."""
        newest: dict[NodeId, Peer] = {}
        for peer in peers:
            known = newest.get(peer.node)
            if peer.node != self.node and (known is None or is_newer(peer, known)):
                newest[peer.node] = peer
        before = self.successors
        self.successors = list(newest.values())
        self._sort_successors()
        del self.successors[most:]
        if self.successors != before:
            self.touch()

    def drop(self, node: NodeId) -> None:
        """Remove a node from all parts of the table."""
        for held in (self.fingers, self.guests, self.parting):
            held.pop(node, None)
        self.successors = [peer for peer in self.successors if peer.node != node]
        if self.predecessor is not None and self.predecessor.node == node:
            self.predecessor = None
        self.touch()

    def clear(self) -> None:
        """Remove all nodes."""
        for held in (self.fingers, self.guests, self.parting):
            held.clear()
        self.successors.clear()
        self.predecessor = None
        self.touch()

    def check(self) -> None:
        """Assert the invariant T1."""
        names = [peer.node for peer in self.successors]
        assert len(set(names)) == len(names), f"T1: {self.node} repeats a successor: {names}"
        held = [
            *names,
            *self.fingers,
            *self.guests,
            *self.parting,
            *([self.predecessor.node] if self.predecessor else []),
        ]
        assert self.node not in held, f"T1: {self.node} is its own neighbor"
        if self.me is not None:
            key = after(self.me.label)
            assert names == [peer.node for peer in sorted(self.successors, key=lambda peer: key(peer.label))], (
                f"T1: the successors of {self.node} are out of order"
            )

    def _sort_successors(self) -> None:
        if self.me is not None:
            key = after(self.me.label)
            self.successors.sort(key=lambda peer: key(peer.label))
        self.touch()

    def _refresh(self) -> None:
        down = {peer.node: peer for peer in [*self.successors[:1], *self.fingers.values()]}
        self._down = sorted(down.values(), key=lambda peer: (peer.label, peer.node))
        self._labels = [peer.label for peer in self._down]
        up = {peer.node: peer for peer in self.guests.values()}
        if self.predecessor is not None:
            up[self.predecessor.node] = self.predecessor
        self._around = list({**down, **self.parting, **up}.values())
        self._stale = False


def is_newer(peer: Peer, known: Peer) -> bool:
    """Return whether `peer` is a newer position of the same node than `known`."""
    return (peer.incarnation, peer.version) > (known.incarnation, known.version)
