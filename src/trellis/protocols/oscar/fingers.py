"""Long-range links (fingers) from medians that random walks estimate.  [MG §2.2, Fig. 1; A-MAG-2, -3, -4]

A node P samples all nodes by a few random walks. The median of the nodes where they end halves the ring as seen from P.
P then samples the arc from itself to that median for the next median, and so on, until the median is P's successor. The
result is k = O(log n) partitions, each about half as large as the one before. For each finger a partition is drawn, and
a peer in it, both uniformly. If similarity is known, two peers are drawn and the more similar one is taken.

Deviation: when medians are estimated again a finger keeps its draw of the partition, and a peer that is still in it or
next to it is kept. The paper draws all fingers again. That breaks trees without need, because medians of few walks are
only accurate to a factor of two.

A walk stays on its arc: it uses only links that end inside. The nodes where walks end are uniform in their arc. So
those in a partition are the peers to draw from, and no further message is needed.

F1  There are at most `wanted` fingers. Both ends of a finger know it and send heartbeats.
F2  A node is the finger of at most `guests_max` others.
F3  Each median is nearer than the one before, and there are at most `MEDIANS_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from trellis.protocols.effects import Effects, NodeId, Send, SetTimer, Topic
from trellis.protocols.oscar.config import OscarConfig
from trellis.protocols.oscar.labels import Label, after, between, inside
from trellis.protocols.oscar.messages import Beat, Connect, ConnectOk, Peer, Unlink, Walk, Walked
from trellis.protocols.oscar.ring import Ring
from trellis.protocols.oscar.table import Table

Interest = Callable[[], tuple[Topic, ...]]
Similarity = Callable[[tuple[Topic, ...]], float]
InUse = Callable[[NodeId], bool]  # Returns whether a finger carries trees.
Sample = tuple[Peer, float]  # A node where a walk ended, and how similar it is.

MEDIANS_MAX = 64  # Medians of one estimate. Each halves the nodes that are left, so no network has more.
_OFF_IN_USE = 4  # A finger that carries trees may be this many partitions off.
_PARTING_BEATS = 10  # Heartbeats that the trees of a finger have to find another link.


class Fingers:
    """The fingers of one node, and the estimate of the medians.

    `table.guests` has the other ends: the nodes whose finger this node is.
    """

    def __init__(
        self,
        layer: str,
        table: Table,
        ring: Ring,
        random: Random,
        config: OscarConfig,
        interest: Interest | None = None,
        similarity: Similarity | None = None,
        in_use: InUse | None = None,
    ) -> None:
        self.layer, self.table, self.ring, self.random, self.config = layer, table, ring, random, config
        self.interest, self.similarity, self.in_use = interest, similarity, in_use
        # A node has 2 (m + 1) links on average. If the number is odd, chance gives half of the nodes one finger more.
        self.wanted = (config.links - 2) // 2 + (random.randrange(2) if config.links % 2 else 0)
        # The draw of each finger's partition, as a fraction of k. It stays the same when k is estimated again.
        self._shares = [random.random() for _ in range(self.wanted)]
        self._holder: dict[int, NodeId] = {}  # index of a draw -> the finger that uses it
        self.medians: list[Peer] = []  # p1, p2, ...: from far to near
        self.partitions: list[list[Sample]] = []  # X1, X2, ...: the samples in each partition
        self._pool: list[Sample] = []  # all samples of the present estimate
        self._walked: list[Sample] = []  # samples of the arc that is being sampled
        self._query, self._end = 0, b""  # number of the present question, and the end of its arc
        self._estimating = False
        self._interval_ms = config.estimate_ms
        self._silence: dict[NodeId, int] = {}  # Heartbeats since a finger, or a node whose finger we are, was heard.
        self._asked: dict[NodeId, Peer] = {}  # Nodes that were sent a `Connect` and have not answered.
        self._late: set[NodeId] = set()  # Those of them that were asked before the last heartbeat.
        self._parting: dict[NodeId, int] = {}  # fingers that will be given up -> heartbeats since then

    # Medians

    def start(self) -> Effects:
        """Begin at a new position. Earlier estimates do not hold any more."""
        self.medians, self.partitions = [], []
        self._silence.clear()
        self._asked.clear()
        self._late.clear()
        self._parting.clear()
        self._interval_ms = self.config.estimate_ms
        beat = SetTimer(f"{self.layer}/beat", 1 + self.random.randrange(self.config.beat_ms))
        return [beat, *self._timer(self._interval_ms)]

    @property
    def is_due(self) -> bool:
        """Return whether the first estimate is due: there are a position and a successor, and no medians yet."""
        return not self.medians and not self._estimating and self.table.successor is not None

    def stop(self) -> None:
        """Stop an estimate, because the node leaves its position."""
        self._estimating = False

    def on_estimate_timer(self) -> Effects:
        """Estimate the medians again, and set the timer of the next estimate."""
        if self.table.me is None:
            return []
        # A node without fingers has not found the others yet. It tries again after the same time.
        if self.table.fingers:
            self._interval_ms = min(3 * self._interval_ms, self.config.estimate_ms_max)
        return [*self._timer(self._interval_ms), *self.estimate()]

    def estimate(self) -> Effects:
        """Begin to estimate the medians."""
        if self.table.me is None or self._estimating:
            return []
        self._estimating = True
        self.medians, self._pool = [], []
        return self._sample(self.table.me.label)

    def on_walk(self, walk: Walk) -> Effects:
        """Forward a walk by one step, or end it here and tell its origin."""
        me, start, end = self.table.me, walk.origin.label, walk.end
        if me is None:
            return []
        if walk.steps > 0:
            hop = self._step(start, end)
            if hop is not None and hop.node != walk.origin.node:
                # No other node can make us send a walk farther than our own setting.
                steps = min(walk.steps, self.config.walk_steps) - 1
                return [Send(hop.node, Walk(walk.layer, walk.origin, walk.query, end, steps))]
        if not inside(me.label, start, end) or walk.origin.node == self.table.node:
            return []
        interest = self.interest() if self.interest is not None else ()
        return [Send(walk.origin.node, Walked(self.layer, walk.query, me, interest))]

    def _step(self, start: Label, end: Label) -> Peer | None:
        """Return a random link inside the arc, or None.

        A third of all messages are walks, so a few random tries are made before all links are listed.
        """
        around, random = self.table.around, self.random.random
        for _ in range(3 if around else 0):
            peer = around[int(random() * len(around))]
            label = peer.label
            if start < label < end if start < end else (label > start or label < end) and label != start:
                return peer
        inner = [peer for peer in around if inside(peer.label, start, end)]
        return inner[int(random() * len(inner))] if inner else None

    def on_walked(self, message: Walked) -> Effects:
        """Take in the end of a walk. The last one gives the median of its arc."""
        me = self.table.me
        if me is None or not self._estimating or message.query != self._query or message.peer.node == self.table.node:
            return []
        # Walks stay on their arc. An end outside would keep medians from coming nearer.
        if not inside(message.peer.label, me.label, self._end):
            return []
        self._walked.append((message.peer, self.similarity(message.interest) if self.similarity is not None else 0.0))
        return self._halve() if len(self._walked) >= self.config.walks else []

    def on_walk_timer(self) -> Effects:
        """Go on with the walks that have ended, because some were lost."""
        if not self._estimating:
            return []
        return self._halve() if self._walked else self._finish()

    def _sample(self, end: Label) -> Effects:
        """Send the walks of the arc from this node to `end`."""
        me = self.table.me
        assert me is not None
        self._query += 1
        self._end, self._walked = end, []
        inner = [peer for peer in self.table.around if inside(peer.label, me.label, end)]
        if not inner:
            return self._finish()
        effects: Effects = [SetTimer(f"{self.layer}/walk", self.config.walk_ms)]
        for _ in range(self.config.walks):
            hop = inner[int(self.random.random() * len(inner))]
            effects.append(Send(hop.node, Walk(self.layer, me, self._query, end, self.config.walk_steps - 1)))
        return effects

    def _halve(self) -> Effects:
        """Compute the median of the arc, and sample the arc up to it."""
        me = self.table.me
        if me is None:
            return []
        key = after(me.label)
        self._walked.sort(key=lambda sample: key(sample[0].label))
        self._pool += self._walked
        median = self._walked[(len(self._walked) - 1) // 2][0]
        if self.medians and (median.node == self.medians[-1].node or len(self.medians) >= MEDIANS_MAX):
            return self._finish()
        self.medians.append(median)
        # The median is one of the successors that we know, so the remaining medians need no walks.
        index = next((at for at, peer in enumerate(self.table.successors) if peer.node == median.node), None)
        if index is not None:
            self._pool += [(peer, 0.0) for peer in self.table.successors[1:index]]
            while index > 1 and len(self.medians) < MEDIANS_MAX:
                index //= 2
                self.medians.append(self.table.successors[index])
            return self._finish()
        return self._sample(median.label)

    def _finish(self) -> Effects:
        """End the estimate: give up fingers that are in other partitions now, and ask for those that are missing."""
        me = self.table.me
        self._estimating, self._query = False, self._query + 1
        if me is None:
            return []
        self.partitions = [[] for _ in range(len(self.medians) + 1)]
        for sample in self._pool:
            self.partitions[self.partition_of(sample[0].label)].append(sample)
        effects: Effects = []
        first = self.table.successor
        taken = {self.table.node, *self.table.parting, *([first.node] if first is not None else [])}
        kept: dict[int, NodeId] = {}
        for slot in range(self.wanted):
            node = self._holder.get(slot)
            peer = self.table.fingers.get(node) or self._asked.get(node) if node is not None else None
            if node is not None and peer is not None and self._fits(slot, peer):
                kept[slot] = node
                taken.add(node)
        for node in [node for node in self.table.fingers if node not in taken]:
            effects += self._part(node)
        self._asked = {node: peer for node, peer in self._asked.items() if node in taken}
        for slot in range(self.wanted):
            drawn = self._draw(slot, taken) if slot not in kept else None
            if drawn is not None:
                kept[slot] = drawn.node
                taken.add(drawn.node)
                self._asked[drawn.node] = drawn
                effects.append(Send(drawn.node, Connect(self.layer, me)))
        self._holder = kept
        return effects

    def partition_of(self, label: Label) -> int:
        """Return the partition of a label: 0 for X1, the far half.

        The last one is between us and the nearest median.
        """
        me = self.table.me
        assert me is not None
        far = me.label
        for partition, median in enumerate(self.medians):
            if between(label, median.label, far):
                return partition
            far = median.label
        return len(self.medians)

    def _fits(self, slot: int, peer: Peer) -> bool:
        """Return whether a finger may stay where it is.

        Medians are only accurate to a factor of about two, so a finger next to its own partition is kept. A finger that
        carries trees is kept unless it is far off. New fingers do not move trees (A-MAG-15), so otherwise each estimate
        would break some trees without need.
        """
        off = abs(self.partition_of(peer.label) - self._partition(slot))
        return off <= 1 or (off <= _OFF_IN_USE and self.in_use is not None and self.in_use(peer.node))

    def _partition(self, slot: int) -> int:
        """Return the partition of a finger's draw."""
        return int(self._shares[slot] * len(self.partitions))

    def _draw(self, slot: int, taken: set[NodeId]) -> Peer | None:
        """Return a random peer of the draw's partition, or of the nearest partition that has any, or None."""
        wanted = self._partition(slot)
        for part in sorted(range(len(self.partitions)), key=lambda partition: abs(partition - wanted)):
            free = [
                sample
                for sample in self.partitions[part]
                if sample[0].node not in taken and not self.ring.is_buried(sample[0].node)
            ]
            if not free:
                continue
            peer, liking = free[self.random.randrange(len(free))]
            if self.similarity is not None and self.config.two_choices:
                second, second_liking = free[self.random.randrange(len(free))]
                if second_liking > liking:
                    peer = second
            return peer
        return None

    # Links

    def on_connect(self, sender: NodeId, peer: Peer) -> Effects:
        """Accept to be a finger of the sender, if we are on the ring and not too many have us already."""
        me = self.table.me
        self.ring.heard(peer)
        if me is None or not self._has_room(sender):
            return [Send(sender, Unlink(self.layer, finger=False))]
        self.table.guests[sender] = peer
        self._silence[sender] = 0
        self.table.touch()
        return [Send(sender, ConnectOk(self.layer, me))]

    def _has_room(self, node: NodeId) -> bool:
        """Return whether we may be a finger of `node`."""
        return node in self.table.guests or len(self.table.guests) < self.config.guests_max

    def on_connect_ok(self, sender: NodeId, peer: Peer) -> Effects:
        """Take the sender as a finger, if we still want it."""
        self.ring.heard(peer)
        if self._asked.pop(sender, None) is None or self.table.me is None or len(self.table.fingers) >= self.wanted:
            is_linked = sender in self.table.fingers or sender in self.table.parting
            return [] if is_linked else [Send(sender, Unlink(self.layer, finger=True))]
        self.table.fingers[sender] = peer
        self._silence[sender] = 0
        self.table.touch()
        return []

    def on_beat(self, sender: NodeId, beat: Beat) -> Effects:
        """Note a heartbeat. If we do not know the link, tell the sender that it does not exist."""
        known = self.table.known_above(sender) if beat.finger else self.table.known_below(sender)
        if known is not None:
            self._silence[sender] = 0
            if known is not beat.me:
                self.ring.heard(beat.me)
            return []
        self.ring.heard(beat.me)
        if not beat.finger and sender in self._asked:
            return []
        return [Send(sender, Unlink(self.layer, finger=not beat.finger))]

    def on_unlink(self, sender: NodeId, message: Unlink) -> Effects:
        """End a link that the sender has ended. A lost finger causes an estimate."""
        self._asked.pop(sender, None)
        if message.finger and sender in self.table.guests:
            del self.table.guests[sender]
            self.table.touch()
        elif not message.finger and sender in self.table.parting:
            self._drop_finger(sender, tell=False)
        elif not message.finger and sender in self.table.fingers:
            return [*self._drop_finger(sender, tell=False), *self.estimate()]
        return []

    def on_beat_timer(self) -> Effects:
        """Run a heartbeat: give up silent nodes, and send heartbeats to all others."""
        table, me = self.table, self.table.me
        if me is None:
            return []
        effects: Effects = [SetTimer(f"{self.layer}/beat", self.config.beat_ms), *self._part_for_good()]
        lost = False
        silence: dict[NodeId, int] = {}  # only for nodes that are linked now
        for node in {**table.fingers, **table.parting, **table.guests}:
            silent = self._silence.get(node, 0) + 1
            if silent > self.config.silence_max:
                lost = lost or node in table.fingers
                self.ring.give_up(node)
            else:
                silence[node] = silent
        self._silence = silence
        to_finger, to_guest = Beat(self.layer, me, True), Beat(self.layer, me, False)
        effects += [Send(node, to_finger) for node in (*table.fingers, *table.parting)]
        effects += [Send(node, to_guest) for node in table.guests]
        # An answer that has not come by the second heartbeat is answered with `Unlink`.
        self._asked = {node: peer for node, peer in self._asked.items() if node not in self._late}
        self._late = set(self._asked)
        return [*effects, *(self.estimate() if lost else [])]

    def on_down(self, node: NodeId) -> Effects:
        """Forget a node that another part has given up."""
        self._asked.pop(node, None)
        self._silence.pop(node, None)
        return []

    def check(self) -> None:
        """Assert the invariants F1 to F3."""
        assert len(self.table.fingers) <= self.wanted, f"F1: {len(self.table.fingers)} fingers of {self.wanted}"
        assert len(self.table.guests) <= self.config.guests_max, f"F2: a finger of {len(self.table.guests)} nodes"
        assert len(self.medians) <= MEDIANS_MAX, f"F3: {len(self.medians)} medians"

    def keep_below(self, peer: Peer) -> None:
        """Keep the link to our former successor while trees use it, because a node came between us."""
        self.table.parting[peer.node] = peer
        self._parting[peer.node] = 0

    def keep_above(self, peer: Peer) -> None:
        """Keep the link to our former predecessor in the same case."""
        if not self._has_room(peer.node):
            return
        self.table.guests[peer.node] = peer
        self._silence[peer.node] = 0

    def _part(self, node: NodeId) -> Effects:
        """Give up a finger: at once, or after its trees have found other links.

        If a finger with trees ended at once, publications would not reach the nodes below until they have joined again.
        """
        if self.in_use is None or not self.in_use(node):
            return self._drop_finger(node, tell=True)
        self.table.parting[node] = self.table.fingers.pop(node)
        self._parting[node] = 0
        self.table.touch()
        return []

    def _part_for_good(self) -> Effects:
        """End the links that no tree uses any more, or whose time has passed."""
        effects: Effects = []
        for node in list(self.table.parting):
            beats = self._parting[node] = self._parting.get(node, 0) + 1
            if beats > _PARTING_BEATS or self.in_use is None or not self.in_use(node):
                effects += self._drop_finger(node, tell=True)
        return effects

    def _drop_finger(self, node: NodeId, tell: bool) -> Effects:
        """Remove a finger, and tell it if `tell` is set."""
        self.table.fingers.pop(node, None)
        self.table.parting.pop(node, None)
        self._parting.pop(node, None)
        if node not in self.table.guests:
            self._silence.pop(node, None)
        self.table.touch()
        return [Send(node, Unlink(self.layer, finger=True))] if tell else []

    def _timer(self, delay_ms: int) -> Effects:
        """Return the timer of the next estimate, with some randomness."""
        jitter = self.random.randrange(max(1, delay_ms // 10))
        return [SetTimer(f"{self.layer}/estimate", delay_ms + jitter)]
