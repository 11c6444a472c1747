"""The sidecar's relay between a broker and the mesh, without IO.  [docs/mqtt.md, Sidecar]

The bridge is an MQTT client of the broker, and at the same time a client of the node's own MQTT host (`host.py`). It
passes packets between the two and keeps their packet identifiers. So a publication is acknowledged to the broker when
the mesh has acknowledged it, and a delivery is complete when the broker has acknowledged it.

State: messages from the broker that the mesh has not acknowledged (`_taken`), messages for the broker that wait
(`_waiting`) or are unacknowledged (`_flying`), and what was learned of the broker's clients (`log`, `counts`).

B1  A message with an identity came out of a mesh, and never enters one again. So there are no loops, however brokers
    are linked.
B2  A publication that the broker sends again, because an acknowledgement was lost, is published once.
B3  No more messages are unacknowledged at the broker than it accepts.
B4  At most `inflight_max` messages of the broker are in the mesh and not acknowledged to it. If this process crashes
    now, no more than these are delivered twice, even if the broker ignores our receive maximum (Mosquitto 2.0.11 does).
B5  A probe of another sidecar means that its messages arrive here past the mesh, and ours would go to it. With 3.1.1,
    which has no identities, that is a loop, so the bridge disconnects. With MQTT 5, messages only arrive twice, and the
    operator is told.
B6  A line of the broker's log that changes what its clients subscribe to is acknowledged when that is saved (`saved`).
    If this process crashes before, the broker sends the line again.
B7  A message for which the broker ends the connection each time is set aside, and the next one is sent.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable

from msgspec.structs import replace

from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.counts import TOLD, BrokerCounts
from trellis.protocols.mqtt.echoes import PROBE_ID, PROBES, SUBSCRIBE_ID, Echoes, digest
from trellis.protocols.mqtt.learn import LOG, PROBE_CLIENTS, TOPICS, SubscriptionLog
from trellis.protocols.mqtt.probes import PROBE_FILTER, Probes, probe_topic
from trellis.protocols.mqtt.suspicion import Suspicion
from trellis.reached import reached

IDENTITY = "trellis-id"  # the user property that every message from the mesh carries
PACKET_BYTES_MAX = 64 << 20  # Largest packet accepted from a broker. The host refuses what the mesh does not carry.
WAITING_MAX = 10_000  # Most waiting messages with QoS 0. The host limits the others.
DONE_MAX = 10_000  # A broker that crashed may send again what was unacknowledged at its last save, some seconds ago.
_BRIDGE = 0x80  # bit in the version of CONNECT that asks the broker not to send back our own messages
_PROBATION_MS = 2_000  # 3.1.1: how long we wait whether the broker sends our own probe back
_MAY_NOT_RETURN = b"?"  # payload of the probe that shows whether a broker sends a bridge its own messages
_AGAIN_MS = 1_000  # pause before a message that the mesh refused is offered again
# Reasons for DISCONNECT that say nothing about a message: normal end, administrative action, use another server, server
# moved, and those with a name.
_NOT_FOR_A_MESSAGE = (0, 0x98, 0x9C, 0x9D, reasons.BUSY, reasons.SHUTTING_DOWN, reasons.KEEP_ALIVE, reasons.TAKEN_OVER)
# reasons for which the mesh would refuse the message again
_FOR_GOOD = (reasons.TOPIC_INVALID, reasons.NOT_AUTHORIZED, reasons.TOO_LARGE, reasons.MALFORMED)


class Bridge:
    """The relay. The driver moves packets from `to_broker`, `to_host` and `to_second`."""

    def __init__(self, client: str, config: MqttConfig, mark: str = "") -> None:
        """`mark` is unique to this run of the process."""
        self.client, self.take, self.want, self.inflight_max = client, config.take, config.want, config.inflight_max
        self.version = p.V5 if config.broker_version == "5" else p.V311
        self.probe = probe_topic(client)
        self.log = SubscriptionLog(client) if config.learn else None
        self.counts = BrokerCounts(self.log) if self.log is not None else None
        self.away_ms = config.learn_away_s * 1_000
        self.session_s = config.broker_session_s
        self.is_saved = False  # The driver saves what is learned, and calls `saved`.
        self.refused: tuple[str, ...] = ()  # our filters that the broker does not grant
        self.to_broker: list[p.Packet] = []
        self.to_host: list[p.Packet] = []
        self.is_up = False
        self.is_taking = False  # The broker has our subscriptions: everything published there from now on reaches us.
        self.packet_bytes_max: int | None = None
        self.counters: Counter[str] = Counter()
        self.leaves = ""  # why we must disconnect: "echo", "other", "unheard"; empty: we need not
        logs = (*TOPICS, *TOLD) if config.learn else ()
        self.echoes = (
            Echoes(self.probe, self.take, logs, self.inflight_max, mark, self.counters)
            if config.broker_echo == "match"
            else None
        )
        self.probes = Probes(self.probe, mark, is_judged=bool(self.take))
        # Probes for a second connection: with 3.1.1, a broker does not send a bridge its own messages.
        self.to_second: list[p.Publish] = []
        self._probation_ms: int | None = None  # 3.1.1: until this time, our probe may come back
        self._early: list[p.Publish] = []  # messages that arrived during this time
        self.aside: list[p.Publish] = []  # messages set aside (B7); the driver logs them and clears the list
        self._suspicion = Suspicion()
        self._is_answering = False  # The broker has answered something on this connection.
        self._dismissal: int | None = None  # reason of the DISCONNECT with which the broker ended this connection
        self._window = 0
        self._waiting: deque[p.Publish] = deque()  # messages that wait to be sent to the broker
        # messages sent to the broker and not acknowledged by it
        self._flying: OrderedDict[int, p.Publish] = OrderedDict()
        self._taken: dict[int, p.Publish] = {}  # messages of the broker that we have not acknowledged to it
        self._backlog: deque[int] = deque()  # those of `_taken` that are not offered to the mesh yet
        # messages acknowledged to the broker lately, by packet identifier: their digests
        self._done: OrderedDict[int, bytes] = OrderedDict()
        self._again: dict[int, int] = {}  # those of `_taken` that the mesh refused for now: when to offer them again
        # lines of the log that are not acknowledged yet, each with the number of changes after it (B6)
        self._unsaved: deque[tuple[int, p.Publish]] = deque()
        self._saved_changes = 0
        # filters of our SUBSCRIBE packets on this connection, by packet identifier
        self._asked: dict[int, tuple[str, ...]] = {}

    # The broker

    def connect(self, user: str | None, password: bytes | None) -> p.Connect:
        """Return the CONNECT packet for the broker."""
        return p.Connect(
            version=p.V311 | _BRIDGE if self.version == p.V311 and self.echoes is None else self.version,
            client=self.client,
            clean_start=False,
            keep_alive_s=30,
            user=user,
            password=password,
            expiry_s=self.session_s,
            receive_max=self.inflight_max,
            packet_bytes_max=PACKET_BYTES_MAX,
        )

    def up(self, answer: p.ConnAck, now_ms: int = 0) -> None:
        """Begin a connection: the broker has accepted our CONNECT."""
        self.leaves, self._is_answering, self._dismissal = "", False, None
        self.is_up = self.version == p.V5 or self.echoes is not None
        self._probation_ms = None if self.is_up else now_ms + _PROBATION_MS
        self.is_taking = answer.session_present
        self._early = []
        self._asked, self.refused = {}, ()
        self.probes.up(now_ms)
        if self.counts is not None:
            self.counts.begin()
        self.packet_bytes_max = answer.packet_bytes_max
        self._window = min(answer.receive_max or 65_535, self.inflight_max)
        if not answer.session_present:  # identifiers of the old session mean nothing any more
            self.counters["sessions begun"] += 1
            self._taken.clear()
            self._backlog.clear()
            self._done.clear()
            self._again.clear()
        if self.echoes is not None:
            self.to_broker += self.echoes.up(answer.session_present, now_ms)
            self._asked[SUBSCRIBE_ID] = (*self.echoes.filters, *self.echoes.qos_0)
        else:
            self._subscribe(answer.session_present)
        again = list(self._flying.values())
        self._flying.clear()
        self._waiting.extendleft(replace(message, dup=True) for message in reversed(again))  # [MQTT-4.4.0-1]
        if again:
            reached("a sidecar sends again what its broker may have")
        self._pump()

    def _subscribe(self, session_present: bool) -> None:
        """Subscribe at the broker, and send the first probe."""
        # Subscribing again replaces a filter by itself. Retained messages are not ours to publish again.
        asked = tuple(
            p.Asked(filter_, 1, no_local=True, retain_as_published=True, retain_handling=2) for filter_ in self.take
        )
        if self.log is not None:
            # QoS 1: the broker keeps the log while we are disconnected, and sends counts in their order.
            asked += tuple(p.Asked(filter_, 1) for filter_ in (*TOPICS, *TOLD))
        if self.version == p.V5:
            asked += (p.Asked(PROBE_FILTER, 0, retain_handling=2),)
        self._asked[SUBSCRIBE_ID] = tuple(entry.filter for entry in asked)
        if self.version == p.V5 or not session_present:  # 3.1.1 sends what is retained at each SUBSCRIBE
            self.to_broker.append(p.Subscribe(SUBSCRIBE_ID, asked))
        if not self.is_up:
            self._asked[2] = (self.probe, PROBE_FILTER)  # sessions of earlier releases have the first one
            self.to_broker.append(p.Subscribe(2, tuple(p.Asked(filter_, 0) for filter_ in self._asked[2])))
            self.to_broker.append(p.Publish(topic=self.probe, payload=_MAY_NOT_RETURN))

    def down(self, *, is_closed: bool = False) -> None:
        """End a connection. `is_closed`: the broker closed it without DISCONNECT."""
        is_refusal = is_closed if self._dismissal is None else self._dismissal not in _NOT_FOR_A_MESSAGE
        self._judge(is_refusal)
        self.probes.down(is_refusal=is_refusal)
        self.is_up, self.is_taking, self._probation_ms = False, False, None
        self._unsaved.clear()  # the broker sends them again
        self.to_broker.clear()
        self.to_second.clear()
        if self.echoes is not None:
            self.echoes.down()

    def _judge(self, is_refusal: bool) -> None:
        """Set the oldest unacknowledged message aside if the broker ends each connection because of it (B7)."""
        if not is_refusal or not self._is_answering or self.leaves or not self._flying:
            return
        number = next(iter(self._flying))
        if self._suspicion.ended(number):
            self.counters["set aside"] += 1
            self.aside.append(self._flying.pop(number))
            self.to_host.append(p.Ack(p.PUBACK, number))

    def from_broker(self, packet: p.Packet) -> bool:
        """Take in a packet of the broker. Return False if the connection must be ended."""
        match packet:
            case p.Publish() if packet.topic.startswith(PROBES):
                self._probed(packet)
            case p.Publish() if self._probation_ms is not None:
                self._early.append(packet)
            case p.Publish():
                self._take_in(packet)
            case p.Ack(kind, number, reason) if kind == p.PUBACK:
                if number == PROBE_ID and self.echoes is not None:
                    self.echoes.is_probe_unacknowledged = False
                elif number == PROBE_ID and self.probes.is_probe_unacknowledged:
                    self.probes.acknowledged(reason)
                if self._flying.pop(number, None) is not None:
                    self._suspicion.acknowledged()
                    self.counters["refused by the broker"] += reason >= reasons.UNSPECIFIED
                    self.to_host.append(p.Ack(p.PUBACK, number))
                self._pump()
            case p.Disconnect(reason):
                self._dismissal = reason
                return False
            case p.SubAck():
                self.is_taking = self._is_answering = True
                self._granted(packet)
                if self.echoes is not None:
                    self.to_broker += self.echoes.subscribed()
            case p.PingResp():
                pass
            case _:
                return False
        return not self.leaves

    def _granted(self, packet: p.SubAck) -> None:
        """Take in which subscriptions the broker grants."""
        asked = self._asked.get(packet.id, ())
        codes = zip(asked or packet.reasons, packet.reasons, strict=False)
        self.counters["filters refused"] += sum(
            code >= reasons.UNSPECIFIED and filter_ != PROBE_FILTER for filter_, code in codes
        )
        if packet.id != SUBSCRIBE_ID or len(asked) != len(packet.reasons):
            return
        refused = [filter_ for filter_, code in zip(asked, packet.reasons, strict=True) if code >= reasons.UNSPECIFIED]
        if self.version == p.V5:
            self._asked[packet.id] = asked = tuple(
                filter_ for filter_ in asked if filter_ != PROBE_FILTER or filter_ not in refused
            )
            qos = int(PROBE_ID not in self._flying)
            self.to_broker += self.probes.subscribed(PROBE_FILTER in asked, qos)
        self.refused = tuple(filter_ for filter_ in refused if filter_ in asked)

    def _probed(self, packet: p.Publish) -> None:
        """Take in a probe: our own that came back, or one of another sidecar."""
        self._acknowledge(packet)
        is_doctor = packet.topic.startswith(PROBES + PROBE_CLIENTS)
        if packet.topic != self.probe and (self.version == p.V5 or is_doctor):
            self.counters["probes of others"] += not is_doctor
            self.to_broker += self.probes.heard(packet)
        elif packet.topic != self.probe:  # B5
            if self.echoes is None or self.echoes.is_settled:  # else it may be an old one that waited in our session
                self.counters["probes of others"] += 1
                self.leaves = "other"
        elif self.echoes is not None:
            if self.echoes.returned(packet.payload):
                self._pump()
        elif not self.probes.returned(packet) and self.version == p.V311 and packet.payload == _MAY_NOT_RETURN:
            self.leaves = "echo"  # the broker sends our own messages back, so there would be loops

    @property
    def is_unheard(self) -> bool:
        """Whether the broker has granted our subscriptions and still does not send us what is published there."""
        return self.echoes.is_late if self.echoes is not None else self.probes.is_unheard

    def _take_in(self, packet: p.Publish) -> None:
        """Take in a message of the broker: a line of its log, a count, or a publication for the mesh."""
        if packet.topic.startswith(LOG):
            self._learn(packet)
            return
        if packet.topic in TOLD:
            if self.counts is not None:
                self._give_up(self.counts.heard(packet.topic, packet.payload, packet.retain, self._ours))
            self._acknowledge(packet)
            return
        self.probes.read()
        if any(name == IDENTITY for name, _ in packet.content.user):  # B1
            self.counters["kept out"] += 1
            self._acknowledge(packet)
            return
        number = packet.id
        if number is not None and packet.dup:
            if number in self._taken:
                return  # it waits for the mesh already
            if self._done.get(number) == digest(packet.topic, packet.payload):  # B2
                reached("a broker sends again what the mesh has")
                self._acknowledge(packet)
                return
        if self.echoes is not None:
            if self.echoes.keeps_out(packet):
                self._acknowledge(packet)
                self._pump()  # one fewer echo is outstanding, so another message may be sent
                return
            if packet.retain:
                packet = replace(packet, retain=False)  # 3.1.1 does not say whether it was published so
        self.counters["sent again"] += packet.dup
        self.counters["taken"] += 1
        if number is None:
            self._offer(packet)
        else:
            self._taken[number] = packet
            self._backlog.append(number)
            self._offer_more()

    def pass_over(self, number: int | None) -> None:
        """Acknowledge a message of the broker that cannot be decoded. Otherwise the broker would send it for ever."""
        self.counters["not carried"] += 1
        if number is not None:
            self.to_broker.append(p.Ack(p.PUBACK, number))

    def _offer(self, packet: p.Publish) -> None:
        """Publish a message of the broker in the mesh."""
        if packet.dup or packet.subscriptions:
            packet = replace(packet, dup=False, subscriptions=())
        self.to_host.append(packet)

    def _offer_more(self) -> None:
        """Offer waiting messages of the broker to the mesh, as far as B4 allows."""
        while self._backlog and len(self._taken) - len(self._backlog) < self.inflight_max:  # B4
            self._offer(self._taken[self._backlog.popleft()])

    def _learn(self, packet: p.Publish) -> None:
        """Take in a line of the broker's log: its clients have changed their subscriptions."""
        if self.log is None:
            self._acknowledge(packet)
            return
        wanted, gone = self.log.heard(packet.topic, packet.payload.decode("utf-8", "replace"))
        if self.is_saved and self.log.changes > self._saved_changes:
            self._unsaved.append((self.log.changes, packet))  # B6
        else:
            self._acknowledge(packet)
        if wanted:
            self.to_host.append(self.wish(wanted))
        self._give_up(gone)

    def _give_up(self, filters: list[str]) -> None:
        """Unsubscribe in the mesh from filters that no client of the broker holds any more."""
        gone = tuple(filter_ for filter_ in filters if filter_ not in self.want)
        if gone:
            self.to_host.append(p.Unsubscribe(1, gone))

    def saved(self, changes: int) -> None:
        """Acknowledge the lines of the log whose changes, up to this number, are saved."""
        self._saved_changes = max(self._saved_changes, changes)
        while self._unsaved and self._unsaved[0][0] <= changes:
            self._acknowledge(self._unsaved.popleft()[1])

    @property
    def wanted(self) -> tuple[str, ...]:
        """All filters of interest: those of the configuration, and those of the broker's clients as far as known."""
        learned = self.log.filters if self.log is not None else ()
        return tuple(dict.fromkeys((*self.want, *learned)))

    @property
    def unknown(self) -> int:
        """Number of subscriptions at the broker that its log did not tell us."""
        return self.counts.unknown if self.counts is not None else 0

    @property
    def _ours(self) -> int:
        """Number of subscriptions that we hold at the broker."""
        return sum(len(set(filters)) for filters in self._asked.values()) - len(set(self.refused))

    def wish(self, filters: Iterable[str]) -> p.Subscribe:
        """Return the SUBSCRIBE for the host: filters of the broker's clients, without messages that came from them."""
        each = (p.Asked(filter_, 1, no_local=True, retain_as_published=True, retain_handling=2) for filter_ in filters)
        return p.Subscribe(1, tuple(each))

    def _acknowledge(self, packet: p.Publish) -> None:
        """Acknowledge a message to the broker, and remember it (B2)."""
        if packet.id is not None:
            self._done[packet.id] = digest(packet.topic, packet.payload)
            self._done.move_to_end(packet.id)
            while len(self._done) > DONE_MAX:
                self._done.popitem(last=False)
            if self.is_up:
                self.to_broker.append(p.Ack(p.PUBACK, packet.id))

    @property
    def is_full(self) -> bool:
        """Whether the driver should stop reading from the broker for now."""
        return len(self._taken) >= 2 * self.inflight_max

    # The mesh

    def from_host(self, packet: p.Packet, now_ms: int) -> None:
        """Take in a packet of the host: a message for the broker, or an acknowledgement of the mesh."""
        match packet:
            case p.Publish() if packet.topic.startswith(PROBES):
                if packet.id is not None:
                    self.to_host.append(p.Ack(p.PUBACK, packet.id))
            case p.Publish():
                if packet.qos or (self.is_up and len(self._waiting) < WAITING_MAX):
                    self._waiting.append(packet)
                    self._pump()
                else:
                    self.counters["dropped"] += 1
            case p.Ack(kind, number, reason) if kind == p.PUBACK:
                self._answered(number, reason, now_ms)

    def _answered(self, number: int, reason: int, now_ms: int) -> None:
        """Take in the mesh's answer to a publication of the broker."""
        packet = self._taken.get(number)
        if packet is None:
            return
        if reason >= reasons.UNSPECIFIED and reason not in _FOR_GOOD:
            self._again[number] = now_ms + _AGAIN_MS
            return
        self.counters["not carried"] += reason >= reasons.UNSPECIFIED
        del self._taken[number]
        self._acknowledge(packet)
        self._offer_more()

    def tick(self, now_ms: int) -> None:
        """Do the periodic work."""
        if self.log is not None and self.counts is not None:
            self.log.now_ms = now_ms
            self.counts.tick(now_ms, self._ours)
            self._give_up(self.log.lapse(self.away_ms))
        if self._probation_ms is not None and now_ms >= self._probation_ms:
            self._probation_ms, self.is_up = None, True
            early, self._early = self._early, []
            for packet in early:
                self._take_in(packet)
            self.to_second += self.probes.subscribed(is_granted=True, qos=0)
            self._pump()
        if self.echoes is not None and PROBE_ID not in self._flying:
            self.to_broker += self.echoes.tick(now_ms, bool(self._taken))
            self.leaves = "unheard" if self.echoes.is_unheard else self.leaves
        probes = self.probes.tick(now_ms, bool(self._taken))
        (self.to_broker if self.version == p.V5 else self.to_second).extend(probes)
        for number in [number for number, due_ms in self._again.items() if due_ms <= now_ms]:
            del self._again[number]
            self._offer(self._taken[number])

    def _pump(self) -> None:
        """Send waiting messages to the broker, as far as it accepts them (B3)."""
        while self._waiting and self.is_up:
            packet = self._waiting[0]
            if packet.id == PROBE_ID and self.probes.is_probe_unacknowledged:
                return
            if self.echoes is not None and not self._may_give(packet, self.echoes):
                return
            if packet.id is not None:
                if len(self._flying) >= (1 if self._suspicion.times else self._window):
                    return
                self._flying[packet.id] = packet
            self._waiting.popleft()
            self.counters["given"] += 1
            self.to_broker.append(packet)
            if self.echoes is not None:
                self.echoes.published(packet.topic, packet.payload)

    def _may_give(self, packet: p.Publish, echoes: Echoes) -> bool:
        return echoes.has_room(packet.topic) and not (packet.id == PROBE_ID and echoes.is_probe_unacknowledged)

    def check(self) -> None:
        assert len(self._flying) <= self.inflight_max, "B3"
        assert self._again.keys() <= self._taken.keys()
        assert set(self._backlog) <= self._taken.keys()
        assert len(self._taken) - len(self._backlog) <= self.inflight_max, "B4"
        assert not self._unsaved or self.is_saved, "B6"
        if self.log is not None:
            self.log.check()
        if self.echoes is not None:
            self.echoes.check()
