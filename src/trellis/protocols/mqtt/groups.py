"""Groups of shared subscriptions as every node knows them: which nodes have members, and which gets the next message.

A group is named `GROUP/FILTER`, the part of a filter after `$share/`. The node through which a message is published
chooses the node that gives it to a member, and writes that into the envelope. So there is one decision about it,
however late others learn of members that come and go.  [docs/mqtt.md, Shared subscriptions]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from trellis.protocols.effects import Incarnation, NodeId
from trellis.protocols.mqtt.envelope import CHOSEN_MAX, Chosen
from trellis.protocols.mqtt.matcher import FilterTree
from trellis.protocols.mqtt.topics import is_group, shared_filter

LETTERS_MAX = 16 << 20  # most letters in the names of all groups of all nodes


@dataclass
class Told:
    """The groups that a node has announced."""

    incarnation: Incarnation
    number: int  # number of the announcement: an older one changes nothing
    at_ms: int
    members: dict[str, int]  # group -> its members that are connected to this node


class Groups:
    """The groups of all nodes, this one included."""

    def __init__(self) -> None:
        self.told: dict[NodeId, Told] = {}
        self.nodes: dict[str, dict[NodeId, int]] = {}  # group -> node with sessions in it -> connected members there
        self.tree: FilterTree[str, None] = FilterTree()  # filter -> groups
        self._turns: Counter[str] = Counter()  # group -> messages for which we have chosen a node
        self._letters = 0

    def hear(
        self,
        node: NodeId,
        incarnation: Incarnation,
        number: int,
        members: dict[str, int],
        now_ms: int,
        letters_max: int = LETTERS_MAX,
    ) -> bool:
        """Take in all groups of a node. Return False if the announcement is old, or there is no space for it."""
        known = self.told.get(node)
        if known is not None and (known.incarnation, known.number) > (incarnation, number):
            return False
        valid = {key: count for key, count in members.items() if is_group(key)}
        if self._letters + sum(map(len, valid)) > letters_max:
            return False
        self.forget(node)
        self.told[node] = Told(incarnation, number, now_ms, valid)
        for key, count in valid.items():
            self._letters += len(key)
            if key not in self.nodes:
                self.nodes[key] = {}
                self.tree.put(shared_filter(key), key, None)
            self.nodes[key][node] = count
        return True

    def forget(self, node: NodeId, incarnation_max: Incarnation | None = None) -> None:
        """Forget a node, unless its incarnation is later than `incarnation_max`."""
        known = self.told.get(node)
        if known is None or (incarnation_max is not None and known.incarnation > incarnation_max):
            return
        del self.told[node]
        for key in known.members:
            self._letters -= len(key)
            del self.nodes[key][node]
            if not self.nodes[key]:
                del self.nodes[key]
                self._turns.pop(key, None)
                self.tree.remove(shared_filter(key), key)

    def expire(self, oldest_ms: int, me: NodeId) -> None:
        """Forget nodes that have not announced their groups since `oldest_ms`."""
        for node in [node for node, told in self.told.items() if told.at_ms < oldest_ms and node != me]:
            self.forget(node)

    def others(self, key: str, me: NodeId) -> dict[NodeId, int]:
        """Return the other nodes with sessions in a group, and how many of these are connected."""
        return {node: count for node, count in self.nodes.get(key, {}).items() if node != me}

    def choose(self, topic: str) -> tuple[Chosen, ...]:
        """Return for each group that matches the topic the node that must give the next message to a member.

        Nodes take turns, each as often as it has connected members. A group without any is left out.
        """
        if not self.tree.count:
            return ()
        out: list[Chosen] = []
        for key, _ in self.tree.matching(topic):
            nodes = self.nodes[key]
            total = sum(nodes.values())
            if not total or len(out) >= CHOSEN_MAX:
                continue
            turn = self._turns[key] % total
            self._turns[key] += 1
            for node, count in nodes.items():
                turn -= count
                if turn < 0:
                    out.append((key, node, self.told[node].incarnation))
                    break
        return tuple(out)

    def ranked(self, key: str, identity: tuple[object, ...], without: Iterable[NodeId]) -> list[NodeId]:
        """Return the nodes of a group in the order in which they take a message over; it is the same at every node.

        Nodes with connected members come first.
        """
        nodes = self.nodes.get(key, {})
        left = [node for node in nodes if node not in without]
        return sorted(left, key=lambda node: (not nodes[node], _weight(node, identity), node))

    def check(self) -> None:
        assert self._letters == sum(len(key) for told in self.told.values() for key in told.members)
        assert self.tree.count == len(self.nodes)
        assert all(self.told[node].members[key] == n for key, nodes in self.nodes.items() for node, n in nodes.items())


def _weight(node: NodeId, identity: tuple[object, ...]) -> bytes:
    return blake2b(repr((node, *identity)).encode(), digest_size=8).digest()
