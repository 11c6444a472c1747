"""A bounded table of registrations, in which no node's registrations displace those of a node with few.

Registrations are forwarded from node to node, so a node may register others. Each registration is charged to an
account: the subscriber itself if it sent the registration, or else the node that forwarded it. When the table is full,
the account with the most registrations loses its oldest one. So a node with few topics always finds space.

R1  `count` is the number of registrations in `topics`, and each is charged to one account.
R2  A registration that was turned away or dropped makes its topic doubtful for at least `doubt_ms`.
"""

from __future__ import annotations

from collections import OrderedDict
from zlib import crc32

from trellis.protocols.effects import NodeId, Topic

Account = tuple[NodeId, bool]  # the node that sent registrations, and whether they were its own
Key = tuple[Topic, NodeId]


class Registry:
    """Registrations by topic and subscriber."""

    def __init__(self, topics_max: int, subscribers_max: int, count_max: int, doubt_ms: int) -> None:
        # Topic -> subscriber -> when it was last heard of. Only this class changes it.
        self.topics: dict[Topic, dict[NodeId, int]] = {}
        self.count = 0
        self.turned_away = 0  # registrations turned away or dropped for lack of space, since the start
        self.doubts = Doubts(doubt_ms)
        self._topics_max, self._subscribers_max, self._count_max = topics_max, subscribers_max, count_max
        self._account_of: dict[Key, Account] = {}
        # An OrderedDict finds its first key in constant time. A plain dict skips every deleted key before it.
        self._accounts: dict[Account, OrderedDict[Key, None]] = {}  # oldest registration first
        self._by_size: dict[int, OrderedDict[Account, None]] = {}  # accounts by their number of registrations
        self._largest = 0  # the largest number in `_by_size`

    def add(self, topic: Topic, node: NodeId, sender: NodeId, heard_ms: int, now_ms: int) -> bool | None:
        """Add a registration. Return whether it is new, or None if it was turned away."""
        nodes, key, account = self.topics.get(topic, {}), (topic, node), (sender, sender == node)
        if node in nodes:
            nodes[node] = max(heard_ms, nodes[node])
            if account[1] and account != self._account_of[key]:
                self._charge(key, account)
            return False
        if len(nodes) >= self._subscribers_max:
            self._doubt(topic, now_ms)
            return None
        while self.count >= self._count_max or (not nodes and len(self.topics) >= self._topics_max):
            self._drop_one(now_ms)
            nodes = self.topics.get(topic, {})
        self.topics[topic] = nodes
        nodes[node] = heard_ms
        self.count += 1
        self._charge(key, account)
        return True

    def remove(self, topic: Topic, node: NodeId) -> None:
        """Remove a registration, if it is there."""
        nodes = self.topics.get(topic, {})
        if nodes.pop(node, None) is not None:
            self.count -= 1
            self._charge((topic, node), None)
            if not nodes:
                del self.topics[topic]

    def remove_topic(self, topic: Topic) -> list[NodeId]:
        """Remove a topic. Return its subscribers."""
        nodes = list(self.topics.get(topic, ()))
        for node in nodes:
            self.remove(topic, node)
        return nodes

    def remove_node(self, node: NodeId) -> None:
        """Remove all registrations of a subscriber."""
        for topic in [topic for topic, nodes in self.topics.items() if node in nodes]:
            self.remove(topic, node)

    def forget_old(self, oldest_ms: int) -> None:
        """Remove registrations that were last heard of before `oldest_ms`."""
        old = [(topic, node) for topic, nodes in self.topics.items() for node, ms in nodes.items() if ms < oldest_ms]
        for topic, node in old:
            self.remove(topic, node)

    def _drop_one(self, now_ms: int) -> None:
        """Drop the oldest registration of the largest account."""
        account = next(iter(self._by_size[self._largest]))
        topic, node = next(iter(self._accounts[account]))
        self.remove(topic, node)
        self._doubt(topic, now_ms)

    def _doubt(self, topic: Topic, now_ms: int) -> None:
        self.turned_away += 1
        self.doubts.note(topic, now_ms)

    def _charge(self, key: Key, account: Account | None) -> None:
        """Charge a registration to `account`; None: to no account any more."""
        before = self._account_of.pop(key, None)
        if before is not None:
            keys = self._accounts[before]
            del keys[key]
            self._resize(before, len(keys) + 1, len(keys))
            if not keys:
                del self._accounts[before]
        if account is not None:
            self._account_of[key] = account
            keys = self._accounts.setdefault(account, OrderedDict())
            keys[key] = None
            self._resize(account, len(keys) - 1, len(keys))

    def _resize(self, account: Account, before: int, now: int) -> None:
        if before:
            del self._by_size[before][account]
            if not self._by_size[before]:
                del self._by_size[before]
        if now:
            self._by_size.setdefault(now, OrderedDict())[account] = None
        # An account grows or shrinks by one, so the largest size does as well.
        self._largest = now if now > self._largest or self._largest not in self._by_size else self._largest


class Doubts:
    """Topics of which a registration was turned away within the last one to two times `duration_ms`.

    Topics are kept as bits of a hash, since there may be any number of them. A topic with the same hash is doubtful
    too.
    """

    BITS = 1 << 20

    def __init__(self, duration_ms: int) -> None:
        self._duration_ms = duration_ms
        self._new: bytearray | None = None
        self._old: bytearray | None = None
        self._since_ms = 0  # of `_new`

    def note(self, topic: Topic, now_ms: int) -> None:
        """Make a topic doubtful."""
        self._turn(now_ms)
        if self._new is None:
            self._new, self._since_ms = bytearray(self.BITS // 8), now_ms
        bit = self._bit(topic)
        self._new[bit >> 3] |= 1 << (bit & 7)

    def has(self, topic: Topic, now_ms: int) -> bool:
        """Return whether a topic is doubtful."""
        self._turn(now_ms)
        bit = self._bit(topic)
        return any(bits is not None and bits[bit >> 3] >> (bit & 7) & 1 for bits in (self._new, self._old))

    def is_any(self, now_ms: int) -> bool:
        """Return whether any topic is doubtful."""
        self._turn(now_ms)
        return self._new is not None or self._old is not None

    def _turn(self, now_ms: int) -> None:
        """Let doubts expire, in two generations."""
        passed_ms = now_ms - self._since_ms
        if (self._new is not None or self._old is not None) and passed_ms > self._duration_ms:
            self._old = self._new if passed_ms <= 2 * self._duration_ms else None
            self._new, self._since_ms = None, self._since_ms + self._duration_ms

    def _bit(self, topic: Topic) -> int:
        return crc32(topic.encode("utf-8", "surrogatepass")) % self.BITS
