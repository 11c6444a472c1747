"""selectNeighbors: choose successor, predecessor, long links, and friends by utility.  [VI Alg. 4, Eq. 1]

Each chosen node is removed from the candidates before the next choice. The candidates that are left after successor,
predecessor and long links are ranked by utility. Among equals, nodes that are in the table already come first.
Otherwise the table would change in every round.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter

from trellis.protocols.descriptors import Descriptor, Entry
from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.ring import RING, identifier
from trellis.protocols.small_world import LongLinks
from trellis.protocols.topics import TopicTable, places

Offset = tuple[int, NodeId]  # distance clockwise from this node, and the node
Interest = tuple[Topic, ...]
_KNOWN_MAX = 512  # A candidate that comes again comes soon, so a small cache is enough.


class Utility:
    """utility(self, other): the rates of the shared topics over the rates of all topics of both.  [VI Eq. 1]

    Without rates all topics have the same weight (A-VIT-5). Two nodes without topics have utility 0 (A-VIT-6).
    """

    def __init__(self, table: TopicTable, topics: Interest, rates: Mapping[Topic, float] | None = None) -> None:
        self.table, self.rates = table, rates
        self._totals: dict[Interest, float] = {}  # the sum of the rates of other interests
        self.set(topics)

    def set(self, topics: Interest) -> None:
        """Set the topics of the node itself."""
        self.bits, self.count = self.table.own_bits(topics), len(topics)
        self._total = self._sum(self.bits)

    def of(self, interest: Interest) -> float:
        """Return the utility of a node with this interest, from 0 to 1."""
        bits = self.table.bits(interest)
        if self.rates is None:
            shared = (self.bits & bits).bit_count()
            return shared / (self.count + len(interest) - shared) if shared else 0.0
        together = self._sum(self.bits & bits)
        if together <= 0:
            return 0.0
        total = self._totals.get(interest)
        if total is None:
            if len(self._totals) >= _KNOWN_MAX:
                self._totals.clear()
            total = self._totals[interest] = self._sum(bits)
        return together / (self._total + total - together)

    def _sum(self, bits: int) -> float:
        """Return the sum of the rates of these topics."""
        if self.rates is None:
            return 0.0
        names, rates = self.table.names, self.rates
        return sum([rates.get(names[index], 0.0) for index in places(bits)])


def around(own: int, entries: Mapping[NodeId, Entry]) -> list[Offset]:
    """Return the candidates in the order of the ring, clockwise: the successor first, the predecessor last."""
    # A comparison is faster than a remainder of numbers this large, and most of the time is spent here.
    apart = [(identifier(node) - own, node) for node in entries]
    return sorted([offset if offset[0] >= 0 else (offset[0] + RING, offset[1]) for offset in apart])


def take_ring(ring: list[Offset]) -> list[NodeId]:
    """Remove successor and predecessor from the candidates, and return them.  [l. 2-7]

    A single candidate is returned once: it is successor and predecessor (A-VIT-7).
    """
    taken = [ring.pop(0)[1]] if ring else []
    if ring:
        taken.append(ring.pop()[1])
    return taken


def take_long_links(ring: list[Offset], distances: list[int]) -> list[NodeId]:
    """Remove the candidate closest to each drawn distance, and return these.  [l. 8-10]"""
    taken = []
    for distance in distances:
        if not ring:
            break
        after = bisect_left(ring, (distance, "")) % len(ring)
        before = after - 1  # Index -1 is the last one: the ring is closed.
        if _apart(ring[before][0], distance) <= _apart(ring[after][0], distance):
            after = before
        taken.append(ring.pop(after)[1])
    return taken


def take_small_world(ring: list[Offset], long_links: LongLinks) -> list[NodeId]:
    """Remove successor, predecessor and long links from the candidates, and return them."""
    taken = take_ring(ring)
    if taken:
        distances = long_links.distances(identifier(taken[0]), identifier(taken[-1]))
        taken += take_long_links(ring, distances)
    return taken


def friends(
    entries: Mapping[NodeId, Entry],
    taken: list[NodeId],
    utility: Callable[[Interest], float],
    count: int,
    strangers: bool,
) -> list[NodeId]:
    """Return the `count` nodes of the greatest utility that are not taken.  [l. 11-16]

    `entries` must have the present table first. Without `strangers`, nodes of utility 0 are left out.
    """
    gone = set(taken)
    ranked = [(-utility(entry[1].interest), node) for node, entry in entries.items() if node not in gone]
    if not strangers:
        ranked = [scored for scored in ranked if scored[0] < 0]
    ranked.sort(key=itemgetter(0))  # The sort is stable.
    return [node for _, node in ranked[:count]]


class Filter:
    """Remembers the last selection, and finds out quickly which candidates could change it.

    Most cannot. They are not nearer on the ring, not nearer to where a long link should lead, and their utility is not
    greater than that of the last friend. Such a candidate is not sorted, and is skipped when it comes again.
    """

    def __init__(self, own: int, utility: Utility, size: int) -> None:
        self.own, self.utility, self.size = own, utility, size
        self._interests: dict[NodeId, Interest] = {}  # interests of the chosen nodes
        self._ring = (0, RING)  # offsets of successor and predecessor
        # The offset that a long link should have, and the distance of the chosen node from it.
        self._long: list[tuple[int, int]] = []
        self._least = 0.0  # the utility of the last friend
        # Candidates that were examined since the last selection and cannot change it.
        self._refused: dict[NodeId, Interest] = {}

    def remember(
        self, chosen: list[NodeId], taken: int, entries: Mapping[NodeId, Entry], long_links: LongLinks
    ) -> None:
        """Remember a selection. The first `taken` of `chosen` are successor, predecessor and long links."""
        self._refused, self._interests = {}, {}
        if len(chosen) < self.size or taken < 2:
            return  # The table is not full, so every candidate can change it.
        self._interests = {node: entries[node][1].interest for node in chosen}
        offsets = [(identifier(node) - self.own) % RING for node in chosen[:taken]]
        self._ring = offsets[0], offsets[1]
        distances = long_links.distances(identifier(chosen[0]), identifier(chosen[1]))
        self._long = [(to, _apart(at, to)) for to, at in zip(distances, offsets[2:], strict=False)]
        friends = chosen[taken:]
        self._least = self.utility.of(self._interests[friends[-1]]) if friends else 1.0

    def fits(self, entries: Mapping[NodeId, Entry]) -> bool:
        """Return whether the table is still what was selected."""
        known = self._interests
        if not known or known.keys() != entries.keys():
            return False
        for node, interest in known.items():
            present = entries[node][1].interest
            if present is not interest and present != interest:
                return False
        return True

    def admitted(self, candidates: Iterable[Descriptor]) -> list[Descriptor]:
        """Return the candidates that could change the selection. May be called only while the table `fits`."""
        refused, own, (near, far), long, least = self._refused, self.own, self._ring, self._long, self._least
        utility = self.utility.of
        admitted = []
        # Few are left of very many.
        for descriptor in [
            descriptor for descriptor in candidates if refused.get(descriptor.node) is not descriptor.interest
        ]:
            node, interest = descriptor.node, descriptor.interest
            offset = identifier(node) - own
            if offset < 0:
                offset += RING
            if near < offset < far and utility(interest) <= least:
                for to, gap in long:
                    apart = abs(offset - to)
                    if apart <= gap or RING - apart <= gap:
                        break
                else:
                    if len(refused) >= _KNOWN_MAX:
                        refused.clear()
                    refused[node] = interest
                    continue
            admitted.append(descriptor)
        return admitted

    def forget(self) -> None:
        """Forget the selection, so that every candidate counts."""
        self._interests = {}


def _apart(first: int, second: int) -> int:
    """Return the distance of two offsets, in the shorter direction."""
    far = (first - second) % RING
    return min(far, RING - far)
