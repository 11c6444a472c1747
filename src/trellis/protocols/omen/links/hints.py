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
    """Our hints. Topics are keyed by their bit index in the topic table."""

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
            index = self.me.table.known(hint.topic).bit_length() - 1
            if index < 0:
                continue
            self._heard.setdefault(index, {})[peer] = (peer, *hint.path)
            touched.append(index)
        self._choose(touched)

    def forget(self, peer: NodeId, but: int = 0) -> None:
        """Drop all paths through a peer that is no longer our neighbor. `but`: it still is, on these topics."""
        touched = []
        for index, heard in self._heard.items():
            if peer in heard and not but >> index & 1:
                del heard[peer]
                touched.append(index)
        self._choose(touched)
        for index in touched:
            if not self._heard[index]:
                del self._heard[index]

    def refresh(self) -> None:
        """Drop hints on topics that we no longer have, and choose paths for new topics."""
        interest = self.me.interest
        for index in [index for index in self.paths if not interest >> index & 1]:
            self.paths.pop(index)
            self._changed.pop(index, None)
            self.root_since.pop(index, None)
        self._choose([index for index in places(interest) if index not in self.paths])

    def tell_again(self, topics: int) -> None:
        """Count these topics as changed, because a neighbor has taken them up and was not told their hints before."""
        self._note([index for index in places(topics) if index in self.paths])

    def news(self, shared: int, known: int) -> tuple[tuple[Hint, ...], int]:
        """Return the hints on these topics that changed after version `known`, and the version that they lead to.

        That is our present version, unless more hints have changed than one message holds. Then the oldest changes are
        returned first.
        """
        names, paths = self.me.table.names, self.paths
        changes: list[tuple[int, int]] = []  # version, topic; latest first
        for index, version in reversed(self._changed.items()):
            if version <= known:
                break
            if shared >> index & 1:
                changes.append((version, index))
        told = self.me.version
        if len(changes) > HINTS_MAX:
            told = changes[-HINTS_MAX - 1][0] - 1  # The last version that fits whole. Each single version does fit.
            changes = [one for one in changes[-HINTS_MAX:] if one[0] <= told]
        return tuple([Hint(names[index], paths[index]) for _, index in changes]), told

    def check(self) -> None:
        for index, path in self.paths.items():
            assert self.me.id not in path, f"a hint of {self.me.id} on {self.me.table.names[index]} leads back to it"

    def _choose(self, touched: Iterable[int]) -> None:
        """Choose the paths of these topics again, out of all that neighbors have told."""
        me, names, changed = self.me, self.me.table.names, []
        for index in touched:
            if not me.interest >> index & 1:
                continue
            topic = names[index]
            best: Path = ()
            rank = (root_key(topic, me.id), 0, "")
            for peer, path in self._heard.get(index, {}).items():
                if me.id in path or len(path) > PATH_MAX:
                    continue
                this = (root_key(topic, path[-1]), len(path), peer)
                if this < rank:
                    best, rank = path, this
            if self.paths.get(index) != best:
                self.paths[index] = best
                changed.append(index)
                if best:
                    self.root_since.pop(index, None)
                else:
                    self.root_since.setdefault(index, self.tick)
        self._note(changed)

    def _note(self, changed: Iterable[int]) -> None:
        """Give changed topics a new version."""
        me = self.me
        for number, index in enumerate(changed):
            if number % HINTS_MAX == 0:  # No version has more changes than one message holds.
                me.version += 1
            self._changed.pop(index, None)
            self._changed[index] = me.version
