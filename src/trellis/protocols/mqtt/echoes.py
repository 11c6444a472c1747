"""Recognizes echoes: messages that a broker of 3.1.1 sends back to the sidecar that published them.

MQTT 3.1.1 has no no-local option. A sidecar that publishes and subscribes in one session receives each of its own
messages again, and would take it for one of a client. Echoes are recognized by topic and payload: a bounded multiset
holds what was published and has not come back.  [docs/mqtt.md, A broker without no-local]

E1  As many messages of a topic and payload are kept out of the mesh as we published, and no more. Which of several
    equal messages is the echo cannot be told, and makes no difference.
E2  At most `window` echoes are outstanding. If this process crashes now, no more than these enter the mesh as new
    messages.
E3  A missing echo is waited for until a probe that was sent LATE_MS later has come back: a broker sends in order, or
    nearly so.
E4  After a connection has ended, nothing is published while echoes are outstanding. What is still missing then never
    reached the broker.
"""

from __future__ import annotations

from collections import Counter, deque
from hashlib import blake2b

from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.disjoint import disjoint
from trellis.protocols.mqtt.topics import matches

# Each sidecar publishes probes on a topic below this one. Its own must come back, and another's must not arrive at all.
PROBES = "trellis/probe/"
PROBE_ID = 65_535  # packet identifier of a probe
SUBSCRIBE_ID = 1
LATE_MS = 1_000  # an echo that is missing for this long is asked for with a probe
PROBE_MS = 10_000  # a probe that does not come back within this time may be lost
UNHEARD_MS = 5_500  # A broker that sends neither a probe nor a message for this long is reported to the operator.


class Echoes:
    """The outstanding echoes of one sidecar at its broker."""

    def __init__(
        self, probe: str, take: tuple[str, ...], qos_0: tuple[str, ...], window: int, mark: str, counters: Counter[str]
    ) -> None:
        """`qos_0`: further filters, for messages that are never our own. `mark`: unique to this run of the process."""
        self.probe, self.take, self.window, self.mark, self.counters = probe, take, window, mark, counters
        self.filters = disjoint((*take, f"{PROBES}+"))
        self.qos_0 = qos_0
        # On this connection a probe has come back, and all echoes of the last connection are accounted for.
        self.is_settled = False
        self.is_unheard = False  # No probe comes back.
        self.is_probe_unacknowledged = False
        self.now_ms = 0
        self._is_wider = any(
            filter_ not in take for filter_ in self.filters
        )  # whether `filters` match more than `take`
        self._sent: dict[bytes, deque[int]] = {}  # outstanding echoes by digest: when each message was sent
        self._count = 0
        self._is_attached = False
        self._is_first = True  # this is the first connection of the process
        self._is_begun = self._is_probed = False  # On this connection: we have subscribed; a probe has come back.
        self._number = 0
        self._probes: dict[bytes, int] = {}  # outstanding probes of this connection: when they were sent
        self._since_ms: int | None = None  # since when SUBACK or a probe is awaited
        self._silent_ms: int | None = None  # since when a probe is awaited and nothing has arrived
        self._tries = 0

    def __len__(self) -> int:
        """Return the number of outstanding echoes."""
        return self._count

    @property
    def is_late(self) -> bool:
        """Whether a probe is awaited and the broker has sent nothing for long."""
        return self._silent_ms is not None and self.now_ms - self._silent_ms >= UNHEARD_MS

    # The connection

    def up(self, session_present: bool, now_ms: int) -> list[p.Packet]:
        """Begin a connection. Return the packets to send."""
        self.now_ms, self._is_attached, self._tries = now_ms, True, 0
        self.is_settled = self.is_unheard = self.is_probe_unacknowledged = self._is_begun = self._is_probed = False
        self._probes.clear()
        if session_present:
            return [self._new_probe()]
        self._sent.clear()  # they were lost with the session
        self._count, self._is_first = 0, False
        return [self._subscribe()]

    def down(self) -> None:
        self._is_attached, self._since_ms, self._silent_ms = False, None, None

    def subscribed(self) -> list[p.Packet]:
        """SUBACK has come. Return the probe to send."""
        return [self._new_probe()] if self._is_attached and not self.is_probe_unacknowledged else []

    def _subscribe(self) -> p.Subscribe:
        self._is_begun, self._since_ms = True, self.now_ms
        asked = [p.Asked(filter_, 1) for filter_ in self.filters] + [p.Asked(filter_, 0) for filter_ in self.qos_0]
        return p.Subscribe(SUBSCRIBE_ID, tuple(asked))

    def _new_probe(self) -> p.Publish:
        """Return a new probe. It has QoS 1, so that the broker queues it behind the echoes."""
        self._number += 1
        payload = f"{self.mark}/{self._number}".encode()
        self._since_ms = self._probes[payload] = self.now_ms
        self._silent_ms = self.now_ms if self._silent_ms is None else self._silent_ms
        self.is_probe_unacknowledged = True
        return p.Publish(topic=self.probe, payload=payload, qos=1, id=PROBE_ID)

    def returned(self, payload: bytes) -> bool:
        """A probe of ours has come back. Return whether messages may be published now."""
        if payload not in self._probes:
            return False  # of an earlier connection or process
        for probe in list(self._probes):  # those before it are lost
            sent_ms = self._probes.pop(probe)
            if probe == payload:
                break
        self._since_ms, self._silent_ms, self._tries = None, None, 0
        self._forget(sent_ms - LATE_MS)
        self._is_first, self._is_probed = False, True
        self.is_settled = self.is_settled or not self._count
        return self.is_settled

    def _forget(self, sent_ms: int) -> None:
        """Stop waiting for echoes of messages that were sent by then: they will not come any more."""
        for key, times in list(self._sent.items()):
            while times and times[0] <= sent_ms:
                times.popleft()
                self._count -= 1
                self.counters["echoes missing"] += 1
            if not times:
                del self._sent[key]

    def tick(self, now_ms: int, is_held: bool) -> list[p.Packet]:
        """Return the packets to send now. `is_held`: we have not acknowledged what the broker sent before."""
        self.now_ms = now_ms
        if is_held and self._silent_ms is not None:
            self._silent_ms = now_ms
        if not self._is_attached:
            return []
        if self._since_ms is None:
            is_late = any(times[0] <= now_ms - LATE_MS for times in self._sent.values())
            return [self._new_probe()] if is_late and not self.is_probe_unacknowledged else []
        if now_ms - self._since_ms < PROBE_MS << len(self._probes) // 2:
            return []
        if is_held:  # it may be on its way behind them, or the broker had no space for it
            self._since_ms = now_ms
            return [self._new_probe()] if not self.is_probe_unacknowledged else []
        self._tries += 1
        self.is_unheard = self._tries > 1
        return [self._subscribe()]  # the session may have no subscription, if the last connection ended too early

    # Messages

    def has_room(self, topic: str) -> bool:
        """Return whether a message on this topic may be published now."""
        return self.is_settled and (self._count < self.window or not self._comes_back(topic))

    def published(self, topic: str, payload: bytes) -> None:
        """Note a message that was published, if it will come back."""
        if self._comes_back(topic):
            self._sent.setdefault(digest(topic, payload), deque()).append(self.now_ms)
            self._count += 1

    def keeps_out(self, packet: p.Publish) -> bool:
        """Return whether a message does not belong into the mesh: it is an echo, was retained, or is beyond `take`."""
        self._silent_ms = None if self._silent_ms is None else self.now_ms
        # RETAIN is 1 only in answer to a SUBSCRIBE [MQTT 3.1.1, 3.3.1-8, -9]. But amqtt sets it on all messages that
        # waited for us, with QoS 1, and sends retained messages at each connection, with QoS 0.
        if packet.retain and (self._is_begun or not packet.qos):
            self.counters["retained before"] += 1
            return True
        key = digest(packet.topic, packet.payload)
        times = self._sent.get(key)
        if times is not None:
            times.popleft()
            self._count -= 1
            if not times:
                del self._sent[key]
            self.is_settled = self.is_settled or (self._is_probed and not self._count)
            self.counters["echoes"] += 1
            return True
        if self._is_wider and not any(matches(filter_, packet.topic) for filter_ in self.take):
            self.counters["beyond take"] += 1
            return True
        # It waited at the broker, and this process does not know what an earlier one published.
        self.counters["perhaps echoes"] += self._is_first
        return False

    def _comes_back(self, topic: str) -> bool:
        return any(matches(filter_, topic) for filter_ in self.filters)

    def check(self) -> None:
        assert self._count == sum(map(len, self._sent.values()))
        assert all(self._sent.values())
        assert self._count <= self.window, "E2"


def digest(topic: str, payload: bytes) -> bytes:
    """Return a short hash of a topic and payload."""
    name = topic.encode()
    return blake2b(len(name).to_bytes(4, "big") + name + payload, digest_size=16).digest()
