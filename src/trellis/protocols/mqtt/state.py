"""State that all parts of a node's MQTT broker share: time, sessions, filters, the directory, and effects to return."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trellis.protocols.access.decide import Access
from trellis.protocols.effects import Incarnation, NodeId, Topic
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.directory import Directory
from trellis.protocols.mqtt.effects import Connection, MqttEffect, ToClient
from trellis.protocols.mqtt.envelope import Envelope
from trellis.protocols.mqtt.interests import SHARES, Interests
from trellis.protocols.mqtt.matcher import FilterTree
from trellis.protocols.mqtt.recall import Recaller
from trellis.protocols.mqtt.retained import RetainedMessages
from trellis.protocols.mqtt.session import Link, Session, Subscription, filter_size
from trellis.protocols.mqtt.topics import SHARED, is_sys, unshared
from trellis.protocols.wire import FRAME_BYTES_MAX

SYS_MAX, SYS_BYTES = 256, 64 << 10  # more than the topics and bytes of `sys_topics.py`
STEP_MS = 1_000  # The driver tells the time more often than this. A longer step means that the process stood still.


@dataclass
class Traffic:
    """What has passed between this node and its MQTT clients since it started. A sidecar's broker is not a client."""

    sockets: int = 0  # connections that were opened
    connects: int = 0  # clients whose CONNECT was accepted
    expired: int = 0  # sessions that ended because their client stayed away
    packets_in: int = 0
    packets_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    publishes_in: int = 0
    publishes_out: int = 0
    payload_bytes_in: int = 0
    payload_bytes_out: int = 0

    def received(self, packet: p.Packet) -> None:
        """Count a packet from a client."""
        self.packets_in += 1
        if isinstance(packet, p.Publish):
            self.publishes_in += 1
            self.payload_bytes_in += len(packet.payload)

    def sent(self, packet: p.Packet, size: int) -> None:
        """Count a packet to a client."""
        self.packets_out += 1
        self.bytes_out += size
        if isinstance(packet, p.Publish):
            self.publishes_out += 1
            self.payload_bytes_out += len(packet.payload)


class BrokerState:
    """The shared state. Parts append effects to `out`; the driver takes them with `take`."""

    def __init__(self, node: NodeId, incarnation: Incarnation, config: MqttConfig) -> None:
        self.node, self.incarnation, self.config = node, incarnation, config
        self.now_ms = self.wall_ms = 0
        self.awake_ms = 0  # a clock that leaves out the time for which the process stood still
        self.out: list[MqttEffect] = []
        self.interests = Interests(config.depth)
        self.directory = Directory(node, incarnation, config, self.interests)
        self.recaller = Recaller(node, config, self.interests)
        self.directory.introductions.kept = self.recaller.prefixes.walk
        self.retained = self.recaller.retained
        # values of `$SYS/...`, which this node tells about itself
        self.sys_retained = RetainedMessages(SYS_MAX, SYS_BYTES)
        self.traffic = Traffic()
        self.tree: FilterTree[Session, Subscription] = FilterTree()
        self.sessions: dict[str, Session] = {}
        self.shared: Counter[str] = Counter()  # shared filter -> number of sessions here that hold it
        self.on_unshared: Callable[[Session, str], None] = lambda session, filter_: None
        self.filter_bytes = 0  # memory that the filters of all sessions take, roughly
        self.by_connection: dict[Connection, Session] = {}
        self.counters: Counter[str] = Counter()
        # Returns why the node cannot take part in an overlay topic. None: it can.
        self.refusal: Callable[[Topic], str | None] = lambda topic: None
        # most bytes of a publication as the mesh carries it, envelope included
        self.payload_bytes_max = FRAME_BYTES_MAX
        self.copies = 2  # nodes that keep each retained message, as `delivery.copies`
        self.access: Access | None = None  # The access rules. None: every client may do everything.
        self.last_number = 0  # number of this node's last publication

    def may_read(self, session: Session, topic: str) -> bool:
        """Return whether a client may get messages on a topic. A sidecar's broker applies its own access rules."""
        return self.access is None or session.is_bridge or self.access.may_read(session.who, topic)

    def may_write(self, session: Session, topic: str) -> bool:
        """Return whether a client may publish on a topic."""
        return self.access is None or session.is_bridge or self.access.may_write(session.who, topic)

    def may_subscribe(self, session: Session, filter_: str) -> bool:
        """Return whether a subscription is granted: the client may read at least one topic that it matches."""
        return self.access is None or session.is_bridge or self.access.may_subscribe(session.who, filter_)

    def at(self, now_ms: int, wall_ms: int) -> None:
        """Set the time: `now_ms` only grows, and `wall_ms` is the wall clock, used for what crosses nodes."""
        self.awake_ms += min(now_ms - self.now_ms, STEP_MS)
        self.now_ms = self.recaller.now_ms = now_ms
        self.directory.at(now_ms)
        self.wall_ms = wall_ms

    def take(self) -> list[MqttEffect]:
        """Return the effects collected since the last call."""
        out, self.out = self.out, []
        return out

    def next_number(self) -> int:
        """Return a new number for a publication of this node. Numbers grow over all topics."""
        self.last_number += 1
        return self.last_number

    def send(self, link: Link, packet: p.Packet) -> None:
        """Send a packet to a client."""
        if link.alias_max and isinstance(packet, p.Publish):
            packet = link.aliased(packet)
        self.out.append(ToClient(link.id, packet))

    def enter_filter(self, session: Session, filter_: str, subscription: Subscription) -> bool:
        """Add a subscription to a session, or replace it. Return whether the filter is new to the session."""
        is_new = filter_ not in session.subscriptions
        session.subscriptions[filter_] = subscription
        is_shared = filter_.startswith(SHARED)
        if not is_shared:
            self.tree.put(filter_, session, subscription)
        if is_new:
            size = filter_size(filter_)
            session.filter_bytes += size
            self.filter_bytes += size
            if is_shared:
                if not self.shared:
                    self.interests.want(SHARES)
                self.shared[filter_] += 1
            if not is_sys(filter_):  # `$SYS` never leaves the node
                self.interests.add(unshared(filter_))
        return is_new

    def leave_filters(self, session: Session, filters: Iterable[str]) -> list[bool]:
        """Remove filters from a session. Return for each one whether the session had it."""
        had = [(filter_, session.subscriptions.pop(filter_, None) is not None) for filter_ in filters]
        left = [filter_ for filter_, is_left in had if is_left]
        for filter_ in left:
            size = filter_size(filter_)
            session.filter_bytes -= size
            self.filter_bytes -= size
            if filter_.startswith(SHARED):
                self._unshare(session, filter_)
            else:
                self.tree.remove(filter_, session)
        # Together, so that each overlay topic that they cover is looked at once.
        self.interests.remove(*[unshared(filter_) for filter_ in left if not is_sys(filter_)])
        return [is_left for _, is_left in had]

    def _unshare(self, session: Session, filter_: str) -> None:
        self.on_unshared(session, filter_)
        self.shared[filter_] -= 1
        if not self.shared[filter_]:
            del self.shared[filter_]
            if not self.shared:
                self.interests.unwant(SHARES)

    def until_ms(self, message: Envelope) -> int | None:
        """Return when a message expires, by our clock. None: never."""
        expiry_s = message.content.expiry_s
        if expiry_s is None:
            return None
        return self.now_ms + expiry_s * 1_000 - max(0, self.wall_ms - message.stamp_ms)
