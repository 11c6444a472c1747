"""Root-path hints: for each topic a path of nodes to the topic's root, learned from a neighbour.  [docs/omen.md]

The root of a connected part of a topic is its node of smallest key. Hints spread like routes in a path-vector protocol:
a node takes the smallest root that a neighbour names, over the shortest path, never over one that it is on itself;
what it takes it tells its neighbours when it changes. A dead neighbour takes its paths along, so no clock is needed.

A coordinator uses hints only to know whom to ask: a proof is made of answers, so an old hint costs a question at most.
Besides they are a check that never stops: two roots that last are two parts (`net.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from trellis import ids
from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.omen.me import Me
from trellis.protocols.omen.messages import HINTS_MAX, PATH_MAX, Hint
from trellis.protocols.topics import places

Path = tuple[NodeId, ...]


@lru_cache(maxsize=65_536)
def root_key(topic: Topic, node: NodeId) -> int:
    return ids.key(topic, node)


class Hints:
    def __init__(self, me: Me) -> None:
        self.me = me
        self.paths: dict[int, Path] = {}  # place of a topic -> from the next hop to the root; (): this is the root
        self.root_since: dict[int, int] = {}  # place of a topic -> the tick since which this node is its root
        self._heard: dict[int, dict[NodeId, Path]] = {}
        self._changed: dict[int, int] = {}  # place -> version, in the order of the versions
        self.tick = 0

    def told(self, peer: NodeId, hints: Iterable[Hint]) -> None:
        """Kept also on topics that are none of ours just now: a peer that did not see us go and come back tells once.

        Not on topics that nobody has named to us: they never were ours, so no peer has reason to tell of them.
        """
        touched = []
        for hint in hints:
            place = self.me.table.known(hint.topic).bit_length() - 1
            if place < 0:
                continue
            self._heard.setdefault(place, {})[peer] = (peer, *hint.path)
            touched.append(place)
        self._choose(touched)

    def forget(self, peer: NodeId, but: int = 0) -> None:
        """The peer is no neighbour any more, or none on topics beside `but`."""
        touched = []
        for place, heard in self._heard.items():
            if peer in heard and not but >> place & 1:
                del heard[peer]
                touched.append(place)
        self._choose(touched)
        for place in touched:
            if not self._heard[place]:
                del self._heard[place]

    def refresh(self) -> None:
        """Our own topics have changed."""
        interest = self.me.interest
        for place in [place for place in self.paths if not interest >> place & 1]:
            self.paths.pop(place)
            self._changed.pop(place, None)
            self.root_since.pop(place, None)
        self._choose([place for place in places(interest) if place not in self.paths])

    def tell_again(self, topics: int) -> None:
        """A neighbour has taken these up: what it acknowledged before did not speak of them."""
        self._note([place for place in places(topics) if place in self.paths])

    def news(self, shared: int, known: int) -> tuple[tuple[Hint, ...], int]:
        """What has changed on these topics since the version that is known; and the version that is known with it.

        That is ours, unless more has changed than one message holds: then the oldest changes are told first.
        """
        names, paths = self.me.table.names, self.paths
        found: list[tuple[int, int]] = []  # version, place
        for place, version in reversed(self._changed.items()):
            if version <= known:
                break
            if shared >> place & 1:
                found.append((version, place))
        told = self.me.version
        if len(found) > HINTS_MAX:
            told = found[-HINTS_MAX - 1][0] - 1  # the first version that does not fit; each alone does
            found = [one for one in found[-HINTS_MAX:] if one[0] <= told]
        return tuple([Hint(names[place], paths[place]) for _, place in found]), told

    def check(self) -> None:
        for place, path in self.paths.items():
            assert self.me.id not in path, f"a hint of {self.me.id} on {self.me.table.names[place]} leads back to it"

    def _choose(self, touched: Iterable[int]) -> None:
        me, names, changed = self.me, self.me.table.names, []
        for place in touched:
            if not me.interest >> place & 1:
                continue
            topic = names[place]
            best: Path = ()
            rank = (root_key(topic, me.id), 0, "")
            for peer, path in self._heard.get(place, {}).items():
                if me.id in path or len(path) > PATH_MAX:
                    continue
                this = (root_key(topic, path[-1]), len(path), peer)
                if this < rank:
                    best, rank = path, this
            if self.paths.get(place) != best:
                self.paths[place] = best
                changed.append(place)
                if best:
                    self.root_since.pop(place, None)
                else:
                    self.root_since.setdefault(place, self.tick)
        self._note(changed)

    def _note(self, changed: Iterable[int]) -> None:
        me = self.me
        for number, place in enumerate(changed):
            if number % HINTS_MAX == 0:  # no version has more changes than one message can tell
                me.version += 1
            self._changed.pop(place, None)
            self._changed[place] = me.version
