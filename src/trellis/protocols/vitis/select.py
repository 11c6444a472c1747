"""selectNeighbors: successor, predecessor, long links, and friends by utility.  [VI Alg. 4, Eq. 1]

Each pick is taken out of the candidates before the next. What is left after successor, predecessor and the long links
is ranked by utility; of equals those come first that are in the table already, or it would change in every round.
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

Offset = tuple[int, NodeId]  # how far clockwise from oneself
Interest = tuple[Topic, ...]
_KNOWN_MAX = 512  # a candidate that comes again comes soon


class Utility:
    """utility(self, other): rates of the shared topics over rates of all topics of the two.  [VI Eq. 1]

    Without rates all topics count alike (A-VIT-5). Two nodes without topics have utility 0 (A-VIT-6).
    """

    def __init__(self, table: TopicTable, topics: Interest, rates: Mapping[Topic, float] | None = None) -> None:
        self.table, self.rates = table, rates
        self._totals: dict[Interest, float] = {}  # rates of all topics of others
        self.set(topics)

    def set(self, topics: Interest) -> None:
        """The topics of the node itself."""
        self.bits, self.count = self.table.own_bits(topics), len(topics)
        self._total = self._sum(self.bits)

    def of(self, interest: Interest) -> float:
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
        if self.rates is None:
            return 0.0
        names, rates = self.table.names, self.rates
        return sum([rates.get(names[place], 0.0) for place in places(bits)])


def around(own: int, entries: Mapping[NodeId, Entry]) -> list[Offset]:
    """The candidates in the order of the ring, clockwise from oneself: the successor first, the predecessor last."""
    # A comparison is cheaper than a remainder of numbers this large, and this is where most of the time goes.
    apart = [(identifier(node) - own, node) for node in entries]
    return sorted([one if one[0] >= 0 else (one[0] + RING, one[1]) for one in apart])


def take_ring(ring: list[Offset]) -> list[NodeId]:
    """Takes successor and predecessor out of the candidates; they may be one and the same (A-VIT-7).  [l. 2-7]"""
    taken = [ring.pop(0)[1]] if ring else []
    if ring:
        taken.append(ring.pop()[1])
    return taken


def take_long_links(ring: list[Offset], distances: list[int]) -> list[NodeId]:
    """Takes the candidate closest to each of the drawn distances.  [l. 8-10]"""
    taken = []
    for distance in distances:
        if not ring:
            break
        after = bisect_left(ring, (distance, "")) % len(ring)
        before = after - 1  # -1 is the last one: the ring is closed
        if _apart(ring[before][0], distance) <= _apart(ring[after][0], distance):
            after = before
        taken.append(ring.pop(after)[1])
    return taken


def take_small_world(ring: list[Offset], long_links: LongLinks) -> list[NodeId]:
    """Successor, predecessor and long links."""
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
    """The top `count` of those not taken, by utility; entries stand with the present table first.  [l. 11-16]"""
    gone = set(taken)
    ranked = [(-utility(entry[1].interest), node) for node, entry in entries.items() if node not in gone]
    if not strangers:
        ranked = [one for one in ranked if one[0] < 0]
    ranked.sort(key=itemgetter(0))  # stable
    return [node for _, node in ranked[:count]]


class Filter:
    """Remembers the last selection, and sees at a glance which candidates could change it.

    Most cannot: they are neither nearer on the ring, nor nearer to where a long link should lead, nor of more utility
    than the last friend. Nothing is sorted for them, and nothing is done at all when they come again.
    """

    def __init__(self, own: int, utility: Utility, size: int) -> None:
        self.own, self.utility, self.size = own, utility, size
        self._interests: dict[NodeId, Interest] = {}  # of the chosen
        self._ring = (0, RING)  # offsets of successor and predecessor
        self._long: list[tuple[int, int]] = []  # where a long link should lead, and how far off it is
        self._least = 0.0  # utility of the last friend
        self._refused: dict[NodeId, Interest] = {}  # candidates that were looked at since the last selection

    def remember(
        self, chosen: list[NodeId], taken: int, entries: Mapping[NodeId, Entry], long_links: LongLinks
    ) -> None:
        self._refused, self._interests = {}, {}
        if len(chosen) < self.size or taken < 2:
            return  # there is room: everybody may come in
        self._interests = {node: entries[node][1].interest for node in chosen}
        offsets = [(identifier(node) - self.own) % RING for node in chosen[:taken]]
        self._ring = offsets[0], offsets[1]
        distances = long_links.distances(identifier(chosen[0]), identifier(chosen[1]))
        self._long = [(to, _apart(at, to)) for to, at in zip(distances, offsets[2:], strict=False)]
        friends = chosen[taken:]
        self._least = self.utility.of(self._interests[friends[-1]]) if friends else 1.0

    def fits(self, entries: Mapping[NodeId, Entry]) -> bool:
        """Is the table still what was selected?"""
        known = self._interests
        if not known or known.keys() != entries.keys():
            return False
        for node, interest in known.items():
            told = entries[node][1].interest
            if told is not interest and told != interest:
                return False
        return True

    def admitted(self, candidates: Iterable[Descriptor]) -> list[Descriptor]:
        """Those of them that could change the selection. Asked while the table fits."""
        refused, own, (near, far), long, least = self._refused, self.own, self._ring, self._long, self._least
        utility = self.utility.of
        found = []
        for one in [one for one in candidates if refused.get(one.node) is not one.interest]:  # few of very many
            node, interest = one.node, one.interest
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
            found.append(one)
        return found

    def forget(self) -> None:
        self._interests = {}


def _apart(one: int, other: int) -> int:
    far = (one - other) % RING
    return min(far, RING - far)
