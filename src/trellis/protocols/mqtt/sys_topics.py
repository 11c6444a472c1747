"""What a node tells its own clients about itself on `$SYS/broker/...`, under Mosquitto's names.  [docs/mqtt.md]

V1  Nothing of it enters the mesh: each node has its own values.
V2  A value is published when it has changed, with QoS 0. A new subscription gets all known values, as retained
    messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from trellis.protocols.mqtt.envelope import Envelope
from trellis.protocols.mqtt.state import BrokerState
from trellis.protocols.mqtt.topics import SYS

ROOT = f"{SYS}/broker/"
MINUTES = (1, 5, 15)  # periods over which loads are averaged


class SysTopics:
    """Publishes these values in rounds."""

    def __init__(self, state: BrokerState, tell: Callable[[Envelope], None]) -> None:
        """`tell` gives a message to the clients of this node that subscribe to its topic."""
        self.state, self._tell = state, tell
        self.version = "trellis"
        self._told: dict[str, str] = {}  # topic below `ROOT` -> its last value
        self._begun_ms: int | None = None  # when the first round was
        self._last_ms = 0  # when the last round was
        self._clients_max = 0  # most clients that were connected at once, as the rounds have seen
        self._counted: dict[str, int] = {}  # load -> its count at the last round
        self._loads: dict[tuple[str, int], float] = {}  # load, minutes -> average per minute

    def tick(self) -> None:
        """Publish what has changed, if a round is due. Averages need rounds, so they continue without subscribers."""
        interval_s, now_ms = self.state.config.sys_interval_s, self.state.now_ms
        if not interval_s or not self.state.config.has_clients:
            return
        if self._begun_ms is None:
            self._begun_ms = now_ms
        elif now_ms - self._last_ms < interval_s * 1_000:
            return
        elapsed_ms, self._last_ms = now_ms - self._last_ms, now_ms
        for topic, value in (*self._values(now_ms - self._begun_ms), *self._averages(elapsed_ms)):
            if self._told.get(topic) != value:
                self._told[topic] = value
                message = Envelope(ROOT + topic, value.encode(), 0, True, "", self.state.incarnation, 0, now_ms)
                self.state.sys_retained.put(self.state.node, message)
                self._tell(message)

    def _values(self, age_ms: int) -> Iterator[tuple[str, str]]:
        """Yield topics and present values."""
        state, traffic = self.state, self.state.traffic
        there = sum(not session.is_bridge for session in state.by_connection.values())
        known = sum(not session.is_bridge for session in state.sessions.values())
        self._clients_max = max(self._clients_max, there)
        waiting = sum(len(session.queue) + len(session.flying) for session in state.sessions.values())
        waiting_bytes = sum(session.queue_bytes for session in state.sessions.values())
        yield "version", self.version
        yield "uptime", f"{age_ms // 1_000} seconds"  # it begins a round, and readers rely on that
        numbers = {
            "clients/total": known,
            "clients/connected": there,
            "clients/active": there,
            "clients/disconnected": known - there,
            "clients/inactive": known - there,
            "clients/maximum": self._clients_max,
            "clients/expired": traffic.expired,
            "messages/received": traffic.packets_in,
            "messages/sent": traffic.packets_out,
            "messages/stored": len(state.retained) + waiting,
            "store/messages/count": len(state.retained) + waiting,
            "store/messages/bytes": state.retained.bytes + waiting_bytes,
            "bytes/received": traffic.bytes_in,
            "bytes/sent": traffic.bytes_out,
            "publish/messages/received": traffic.publishes_in,
            "publish/messages/sent": traffic.publishes_out,
            "publish/messages/dropped": state.counters["dropped"],
            "publish/bytes/received": traffic.payload_bytes_in,
            "publish/bytes/sent": traffic.payload_bytes_out,
            "subscriptions/count": state.tree.count,
            "shared_subscriptions/count": sum(state.shared.values()),
            "retained messages/count": len(state.retained),
        }
        for topic, number in numbers.items():
            yield topic, str(number)

    def _averages(self, elapsed_ms: int) -> Iterator[tuple[str, str]]:
        """Yield topics and averages per minute. Older events count less and less, as in the load of a machine."""
        traffic = self.state.traffic
        counts = {
            "connections": traffic.connects,
            "sockets": traffic.sockets,
            "messages/received": traffic.packets_in,
            "messages/sent": traffic.packets_out,
            "bytes/received": traffic.bytes_in,
            "bytes/sent": traffic.bytes_out,
            "publish/received": traffic.publishes_in,
            "publish/sent": traffic.publishes_out,
            "publish/dropped": self.state.counters["dropped"],
        }
        for name, count in counts.items():
            per_minute = (count - self._counted.get(name, 0)) * 60_000 / max(elapsed_ms, 1) if self._counted else 0.0
            for minutes in MINUTES:
                share = math.exp(-elapsed_ms / (60_000 * minutes))
                load = per_minute + share * (self._loads.get((name, minutes), 0.0) - per_minute)
                self._loads[name, minutes] = load
                yield f"load/{name}/{minutes}min", f"{load:.2f}"
        self._counted = counts
