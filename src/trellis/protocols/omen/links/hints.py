"""Hints: for each topic of ours a path of nodes to the topic's root, learned from neighbors.  [docs/omen.md]

The root of a connected part of a topic is its node of smallest key (`root_key`). Hints spread like routes in a
path-vector protocol. A node chooses the root of smallest key that a neighbor names, by the shortest path, and never a
path that it is on itself. It tells its neighbors when its choice changes. When a neighbor is lost, all paths through it
are dropped, so no path needs an expiry time.

Hints have two uses. A coordinator uses them to decide which nodes to ask. They prove nothing, so an outdated hint costs
one question at most. And they show splits: a topic with two roots that last is in two parts (`homes.py`).

Heartbeats carry hints (`links.py`), and only those that have changed since the version that the neighbor has
acknowledged.
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
    """Return the key of a node on a topic. The node of smallest key is the root."""
    return ids.key(topic, node)


class Hints:
    """Our hints. Topics are keyed by their bit index in the topic table ("place")."""

    def __init__(self, me: Me) -> None:
        self.me = me
        self.paths: dict[int, Path] = {}  # topic -> our path from the next hop to the root; (): we are the root
        self.root_since: dict[int, int] = {}  # topic -> the tick since which we are its root
        self._heard: dict[int, dict[NodeId, Path]] = {}  # topic -> neighbor -> path through it, itself included
        self._changed: dict[int, int] = {}  # topic -> version of its last change, in the order of versions
        self.tick = 0  # The present period; the node sets it.

    def told(self, peer: NodeId, hints: Iterable[Hint]) -> None:
        """Take in the hints of a neighbor.

        They are also kept on topics that we do not have now. We may leave a topic and take it up again before the
        neighbor notices, and then it does not repeat the hint. Hints on names that our table does not know are ignored:
        we never had such a topic, so no honest neighbor tells them.
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
        """Drop all paths through a peer that is no longer our neighbor. `but`: it still is, on these topics."""
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
        """Drop hints on topics that we no longer have, and choose paths for new topics."""
        interest = self.me.interest
        for place in [place for place in self.paths if not interest >> place & 1]:
            self.paths.pop(place)
            self._changed.pop(place, None)
            self.root_since.pop(place, None)
        self._choose([place for place in places(interest) if place not in self.paths])

    def tell_again(self, topics: int) -> None:
        """Count these topics as changed, because a neighbor has taken them up and was not told their hints before."""
        self._note([place for place in places(topics) if place in self.paths])

    def news(self, shared: int, known: int) -> tuple[tuple[Hint, ...], int]:
        """Return the hints on these topics that changed after version `known`, and the version that they lead to.

        That is our present version, unless more hints have changed than one message holds. Then the oldest changes are
        returned first.
        """
        names, paths = self.me.table.names, self.paths
        found: list[tuple[int, int]] = []  # version, topic; latest first
        for place, version in reversed(self._changed.items()):
            if version <= known:
                break
            if shared >> place & 1:
                found.append((version, place))
        told = self.me.version
        if len(found) > HINTS_MAX:
            told = found[-HINTS_MAX - 1][0] - 1  # The last version that fits whole. Each single version does fit.
            found = [one for one in found[-HINTS_MAX:] if one[0] <= told]
        return tuple([Hint(names[place], paths[place]) for _, place in found]), told

    def check(self) -> None:
        for place, path in self.paths.items():
            assert self.me.id not in path, f"a hint of {self.me.id} on {self.me.table.names[place]} leads back to it"

    def _choose(self, touched: Iterable[int]) -> None:
        """Choose the paths of these topics again, out of all that neighbors have told."""
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
        """Give changed topics a new version."""
        me = self.me
        for number, place in enumerate(changed):
            if number % HINTS_MAX == 0:  # No version has more changes than one message holds.
                me.version += 1
            self._changed.pop(place, None)
            self._changed[place] = me.version
