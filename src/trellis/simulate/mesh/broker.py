"""Implement a plain MQTT broker to which sidecars attach. It speaks 3.1.1 and 5, and logs to `$SYS` as Mosquitto does.

It is an asyncio program like the clients, and runs on real sockets as well. It supports clean and kept sessions,
retained messages, no-local, QoS 0 to 2 from clients and QoS 0 to 1 to them. It has no wills, no shared subscriptions
and no topic aliases, and its queues have no limit. It uses the codec of the node, which tests compare with others.

`Store` is its disk. Every change is stored before any client is told. So a broker that restarts loses nothing but clean
sessions, and a message that it has acknowledged is never lost between the broker and its sidecar.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from math import inf

from msgspec.structs import replace

from trellis.judge.filters import matches
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.counts import AWAY, COUNTS, SWEEP
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing, version_of
from trellis.protocols.mqtt.learn import LOG, LOG_KEPT_S
from trellis.protocols.mqtt.primitives import PacketError

_PACKET_BYTES_MAX = 64 << 20
_LOOK_S = 1.0  # how often it looks for silent clients
_SYS_S = 10  # every how many of these looks it publishes its counts; `sys_interval` of Mosquitto

Line = tuple[str, str, int]  # a subscription in the log: client, filter, and the number of the log line


@dataclass
class Waiting:
    """A message that waits for one session."""

    packet: p.Publish
    until_s: float = inf  # Unix time after which it is dropped; log lines are kept for a short time only
    line: Line | None = None


@dataclass
class Kept:
    """One session."""

    client: str
    expiry_s: int = 0
    receive_max: int = 65_535
    filters: dict[str, p.Asked] = field(default_factory=dict)
    queue: deque[Waiting] = field(default_factory=deque)
    # packet identifier -> message that was sent and is not acknowledged
    flying: dict[int, Waiting] = field(default_factory=dict)
    half: dict[int, None] = field(default_factory=dict)  # QoS 2: identifiers that were received and not released
    number: int = 0


@dataclass
class Store:
    """The state that survives the process."""

    sessions: dict[str, Kept] = field(default_factory=dict)
    retained: dict[str, p.Publish] = field(default_factory=dict)
    lines: dict[tuple[str, str], int] = field(default_factory=dict)  # client, filter -> the last log line about it
    # client, filter -> the last log line about it that the reader has acknowledged
    read: dict[tuple[str, str], int] = field(default_factory=dict)
    line: int = 0

    def is_read(self, client: str, wanted: str) -> bool:
        """Return whether the reader of the log has acknowledged that this client subscribes."""
        told = self.lines.get((client, wanted))
        return told is not None and self.read.get((client, wanted)) == told


class Connection(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.version = 0  # MQTT version; 0 until CONNECT
        self.session: Kept | None = None
        self.heard_s, self.keep_alive_s = broker.loop.time(), 10
        self.said_bye = False
        self._framing = Framing(_PACKET_BYTES_MAX)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.broker.connections[self] = None

    def connection_lost(self, error: Exception | None) -> None:
        self.broker.ended(self)

    def data_received(self, data: bytes) -> None:
        self.heard_s = self.broker.loop.time()
        self._framing.feed(data)
        try:
            for first, body in self._framing.packets():
                if not self.version:
                    self.version = version_of(first, body)
                    if self.version not in (p.V311, p.V5):
                        raise PacketError("another version", reasons.VERSION)
                self.broker.received(self, decode(self.version, first, body))
        except PacketError:
            self.close()

    def send(self, packet: p.Packet) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(self.version, packet))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def peer(self) -> str:
        host, port = self._transport.get_extra_info("peername")[:2] if self._transport is not None else ("?", 0)
        return f"{host}:{port}"


class Broker:
    """One process of a broker."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.loop = asyncio.get_running_loop()
        self.connections: dict[Connection, None] = {}
        self.by_client: dict[str, Connection] = {}
        self._told: dict[str, str] = {}  # `$SYS` topic -> its last value
        for client in [one.client for one in store.sessions.values() if not one.expiry_s]:
            self._end(client)

    async def serve(self, host: str, port: int) -> None:
        """Accept clients until the process ends."""
        server = await self.loop.create_server(lambda: Connection(self), host, port)
        async with server:
            rounds = 0
            while True:
                await asyncio.sleep(_LOOK_S)
                self._look()
                rounds += 1
                if rounds % _SYS_S == 0:
                    self._tell_counts(rounds)

    def _look(self) -> None:
        now_s = self.loop.time()
        for one in list(self.connections):
            if one.keep_alive_s and now_s - one.heard_s > 1.5 * one.keep_alive_s:
                one.close()
                self.ended(one)

    # Packets

    def received(self, connection: Connection, packet: p.Packet) -> None:
        if isinstance(packet, p.Connect):
            self._connect(connection, packet)
            return
        session = connection.session
        if session is None or self.by_client.get(session.client) is not connection:
            raise PacketError("it is not connected", reasons.PROTOCOL_ERROR)
        match packet:
            case p.Publish():
                self._publish(connection, session, packet)
            case p.Ack(kind, number) if kind == p.PUBACK:
                self._acknowledged(session, number)
            case p.Ack(kind, number) if kind == p.PUBREL:
                session.half.pop(number, None)
                connection.send(p.Ack(p.PUBCOMP, number))
            case p.Subscribe():
                self._subscribe(connection, session, packet)
            case p.Unsubscribe(number, filters):
                gone = [session.filters.pop(one, None) is not None for one in filters]
                for one in filters:
                    self._log("M/unsubscribe", f"{session.client} {one}")
                    self.store.lines.pop((session.client, one), None)
                connection.send(p.UnsubAck(number, tuple(0 if one else 0x11 for one in gone)))
            case p.PingReq():
                connection.send(p.PingResp())
            case p.Disconnect(_, expiry_s):
                if expiry_s is not None and session.expiry_s:
                    session.expiry_s = expiry_s
                connection.said_bye = True
                connection.close()
                self.ended(connection)

    def _connect(self, connection: Connection, packet: p.Connect) -> None:
        """Begin or continue a session. A connection of the same client is taken over."""
        client = packet.client or f"auto-{len(self.store.sessions)}"
        old = self.by_client.get(client)
        if old is not None:
            if old.version == p.V5:
                old.send(p.Disconnect(reasons.TAKEN_OVER))
            old.close()
            self.ended(old)
        if packet.clean_start:
            self._end(client)
        session = self.store.sessions.get(client)
        is_present = session is not None
        if session is None:
            session = self.store.sessions[client] = Kept(client)
        session.expiry_s, session.receive_max = packet.expiry_s, packet.receive_max
        connection.session, connection.keep_alive_s = session, packet.keep_alive_s
        self.by_client[client] = connection
        connection.send(p.ConnAck(reason=0, session_present=is_present))
        for number, one in session.flying.items():
            connection.send(replace(one.packet, id=number, dup=True))
        self._pump(session)
        kind, is_clean = (5 if packet.version == p.V5 else 2), int(packet.clean_start)
        how = f"(p{kind}, c{is_clean}, k{packet.keep_alive_s})."
        self._log("N", f"New client connected from {connection.peer()} as {client} {how}")

    def ended(self, connection: Connection) -> None:
        """Handle the end of a connection. A session that does not outlive its connection ends with it."""
        self.connections.pop(connection, None)
        session, connection.session = connection.session, None
        if session is None or self.by_client.get(session.client) is not connection:
            return
        del self.by_client[session.client]
        how = "disconnected." if connection.said_bye else "closed its connection."
        self._log("N", f"Client {session.client} {how}")
        if not session.expiry_s:
            self._end(session.client)

    def _end(self, client: str) -> None:
        self.store.sessions.pop(client, None)
        for key in [one for one in self.store.lines if one[0] == client]:
            del self.store.lines[key]

    # Subscriptions

    def _subscribe(self, connection: Connection, session: Kept, packet: p.Subscribe) -> None:
        """Store the subscriptions, log them, and send retained messages as their retain handling says."""
        new = [one.filter not in session.filters for one in packet.asked]
        for one in packet.asked:
            session.filters[one.filter] = one
            self.store.line += 1
            line = (session.client, one.filter, self.store.line)
            self.store.lines[line[:2]] = line[2]
            self._log("M/subscribe", f"{session.client} {one.qos} {one.filter}", line)
        connection.send(p.SubAck(packet.id, tuple(min(one.qos, 1) for one in packet.asked)))
        for one, is_new in zip(packet.asked, new, strict=True):
            if one.retain_handling == 0 or (one.retain_handling == 1 and is_new):
                for kept in self.store.retained.values():
                    if matches(one.filter, kept.topic):
                        self._deliver(session, replace(kept, qos=min(kept.qos, one.qos, 1), retain=True))

    # Messages

    def _publish(self, connection: Connection, session: Kept, packet: p.Publish) -> None:
        number = packet.id
        if number is None or number not in session.half:
            self._spread(replace(packet, id=None, dup=False, subscriptions=()), session.client)
        if number is None:
            return
        if packet.qos == 2:
            session.half[number] = None
        connection.send(p.Ack(p.PUBACK if packet.qos == 1 else p.PUBREC, number))

    def _spread(self, packet: p.Publish, publisher: str, until_s: float = inf, line: Line | None = None) -> None:
        """Store a retained message, and pass a message to all sessions with a matching filter."""
        if packet.retain:
            self.store.retained.pop(packet.topic, None)
            if packet.payload:
                self.store.retained[packet.topic] = packet
        for session in list(self.store.sessions.values()):
            granted = [
                one
                for one in session.filters.values()
                if matches(one.filter, packet.topic) and not (one.no_local and session.client == publisher)
            ]
            if not granted:
                continue
            qos = min(packet.qos, max(one.qos for one in granted), 1)
            keeps_flag = any(one.retain_as_published for one in granted)
            self._deliver(session, replace(packet, qos=qos, retain=packet.retain and keeps_flag), until_s, line)

    def _deliver(self, session: Kept, packet: p.Publish, until_s: float = inf, line: Line | None = None) -> None:
        if packet.qos:
            session.queue.append(Waiting(packet, until_s, line))
            self._pump(session)
        elif (connection := self.by_client.get(session.client)) is not None:
            connection.send(packet)

    def _pump(self, session: Kept) -> None:
        """Send queued messages as long as the client's receive maximum allows."""
        connection = self.by_client.get(session.client)
        while connection is not None and session.queue and len(session.flying) < session.receive_max:
            one = session.queue.popleft()
            if one.until_s < time.time():
                continue
            session.number = session.number % 65_535 + 1
            while session.number in session.flying:
                session.number = session.number % 65_535 + 1
            session.flying[session.number] = one
            connection.send(replace(one.packet, id=session.number))

    def _acknowledged(self, session: Kept, number: int) -> None:
        one = session.flying.pop(number, None)
        if one is not None and one.line is not None:
            self.store.read[one.line[:2]] = one.line[2]
        self._pump(session)

    # `$SYS`

    def _log(self, kind: str, text: str, line: Line | None = None) -> None:
        now_s = time.time()
        packet = p.Publish(topic=LOG + kind, payload=f"{int(now_s)}: {text}".encode(), qos=1)
        self._spread(packet, "", now_s + LOG_KEPT_S, line)

    def _tell_counts(self, seconds: int) -> None:
        """Publish on `$SYS` the counts that have changed."""
        sessions = self.store.sessions.values()
        away = sum(one.client not in self.by_client for one in sessions)
        told = {
            SWEEP: f"{seconds} seconds",
            COUNTS[0]: str(sum(len(one.filters) for one in sessions)),
            COUNTS[1]: "0",
            AWAY: str(away),
        }
        for topic, text in told.items():
            if self._told.get(topic) != text:
                self._told[topic] = text
                self._spread(p.Publish(topic=topic, payload=text.encode(), qos=1, retain=True), "")
