"""Echoes: what a broker of 3.1.1 sends back to the sidecar that published it, known again and kept out of the mesh.

3.1.1 has no no-local. A sidecar that publishes and subscribes on one session gets each of its own messages once more,
and would take it for one of the broker's clients. It is known again by topic and payload: a bounded multiset holds what
was published and has not come back.  [docs/mqtt.md, A broker without no-local]

E1  as many messages of a topic and payload are kept out as we published, and no more; which of several that look alike
    is the echo, nobody can tell, and it makes no difference
E2  at most `window` echoes are outstanding: if we die now, no more than these enter the mesh as new messages
E3  an echo that does not come is waited for until a probe that was sent LATE_MS later has come back: a broker sends in
    order, or nearly so
E4  after a connection has ended nothing is published while echoes are outstanding: what is missing then, the broker
    never had
"""

from __future__ import annotations

from collections import Counter, deque
from hashlib import blake2b

from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.disjoint import disjoint
from trellis.protocols.mqtt.topics import matches

PROBES = (
    "trellis/probe/"  # a topic below for each sidecar: its own probe must come back, another's must not come at all
)
PROBE_ID = 65_535  # of its packet
SUBSCRIBE_ID = 1
LATE_MS = 1_000  # an echo that was not seen for so long is asked for
PROBE_MS = 10_000  # a probe that does not come back for so long may be lost
UNHEARD_MS = 5_500  # A broker that sends neither a probe nor a message for so long is complained about.


class Echoes:
    def __init__(
        self, probe: str, take: tuple[str, ...], qos_0: tuple[str, ...], window: int, mark: str, counters: Counter[str]
    ) -> None:
        """`qos_0`: more filters, whose messages are none of ours. `mark`: of this incarnation."""
        self.probe, self.take, self.window, self.mark, self.counters = probe, take, window, mark, counters
        self.filters = disjoint((*take, f"{PROBES}+"))
        self.qos_0 = qos_0
        self.is_settled = False  # since the connection was made a probe has come back, and all echoes of the last one
        self.is_unheard = False  # none does
        self.is_probe_unacknowledged = False
        self.now_ms = 0
        self._is_wider = any(one not in take for one in self.filters)  # than `take`
        self._sent: dict[bytes, deque[int]] = {}  # what has not come back: when each was sent
        self._count = 0
        self._is_attached = False
        self._is_first = True  # connection of this incarnation
        self._is_begun = self._is_probed = False  # on this connection we have subscribed; a probe has come back
        self._number = 0
        self._probes: dict[bytes, int] = {}  # that are out on this connection: when they were sent
        self._since_ms: int | None = None  # SUBACK or a probe is waited for since then
        self._silent_ms: int | None = None  # Since then a probe is waited for and nothing has come.
        self._tries = 0

    def __len__(self) -> int:
        """Echoes that are to come."""
        return self._count

    @property
    def is_late(self) -> bool:
        """Return whether a probe is waited for, and the broker has sent nothing for long."""
        return self._silent_ms is not None and self.now_ms - self._silent_ms >= UNHEARD_MS

    # The connection

    def up(self, session_present: bool, now_ms: int) -> list[p.Packet]:
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
        """SUBACK."""
        return [self._new_probe()] if self._is_attached and not self.is_probe_unacknowledged else []

    def _subscribe(self) -> p.Subscribe:
        self._is_begun, self._since_ms = True, self.now_ms
        asked = [p.Asked(one, 1) for one in self.filters] + [p.Asked(one, 0) for one in self.qos_0]
        return p.Subscribe(SUBSCRIBE_ID, tuple(asked))

    def _new_probe(self) -> p.Publish:
        """QoS 1, so that it queues up behind the echoes."""
        self._number += 1
        payload = f"{self.mark}/{self._number}".encode()
        self._since_ms = self._probes[payload] = self.now_ms
        self._silent_ms = self.now_ms if self._silent_ms is None else self._silent_ms
        self.is_probe_unacknowledged = True
        return p.Publish(topic=self.probe, payload=payload, qos=1, id=PROBE_ID)

    def returned(self, payload: bytes) -> bool:
        """A probe of ours has come back. True: there may be room now."""
        if payload not in self._probes:
            return False  # of an earlier connection, or incarnation
        for one in list(self._probes):  # those before it are lost
            sent_ms = self._probes.pop(one)
            if one == payload:
                break
        self._since_ms, self._silent_ms, self._tries = None, None, 0
        self._forget(sent_ms - LATE_MS)
        self._is_first, self._is_probed = False, True
        self.is_settled = self.is_settled or not self._count
        return self.is_settled

    def _forget(self, sent_ms: int) -> None:
        """They were sent by then, and will not come any more."""
        for key, times in list(self._sent.items()):
            while times and times[0] <= sent_ms:
                times.popleft()
                self._count -= 1
                self.counters["echoes missing"] += 1
            if not times:
                del self._sent[key]

    def tick(self, now_ms: int, is_held: bool) -> list[p.Packet]:
        """`is_held`: by us, who have not acknowledged what the broker sent before."""
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
        if is_held:  # it may be on its way, behind them; or the broker had no room for it
            self._since_ms = now_ms
            return [self._new_probe()] if not self.is_probe_unacknowledged else []
        self._tries += 1
        self.is_unheard = self._tries > 1
        return [self._subscribe()]  # a session may be there without it: the connection ended too early

    # Messages

    def has_room(self, topic: str) -> bool:
        """May it be published now?"""
        return self.is_settled and (self._count < self.window or not self._comes_back(topic))

    def published(self, topic: str, payload: bytes) -> None:
        if self._comes_back(topic):
            self._sent.setdefault(digest(topic, payload), deque()).append(self.now_ms)
            self._count += 1

    def keeps_out(self, packet: p.Publish) -> bool:
        """Is it none of the messages that the broker's clients publish now?"""
        self._silent_ms = None if self._silent_ms is None else self.now_ms
        # 1 only where it answers a SUBSCRIBE [MQTT 3.1.1, 3.3.1-8, -9]; but amqtt sets it on all that waited for us,
        # with QoS 1, and sends what is retained at each connection, with QoS 0.
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
        if self._is_wider and not any(matches(one, packet.topic) for one in self.take):
            self.counters["beyond take"] += 1
            return True
        self.counters["perhaps echoes"] += (
            self._is_first
        )  # it waited there, and we know nothing of a incarnation before
        return False

    def _comes_back(self, topic: str) -> bool:
        return any(matches(one, topic) for one in self.filters)

    def check(self) -> None:
        assert self._count == sum(map(len, self._sent.values()))
        assert all(self._sent.values())
        assert self._count <= self.window, "E2"


def digest(topic: str, payload: bytes) -> bytes:
    name = topic.encode()
    return blake2b(len(name).to_bytes(4, "big") + name + payload, digest_size=16).digest()
