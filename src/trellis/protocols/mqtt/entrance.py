"""Who comes in and who goes: CONNECT, sessions, take-over, wills, keep-alive.  [MQTT 5, 3.1, 3.14, 4.1]"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter

from trellis.protocols.effects import NodeId
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.directory import Directory
from trellis.protocols.mqtt.effects import Check, Close, Connection, DoorEffect, ToClient
from trellis.protocols.mqtt.interests import Interests
from trellis.protocols.mqtt.matcher import FilterTree
from trellis.protocols.mqtt.primitives import PacketError
from trellis.protocols.mqtt.recall import Recaller
from trellis.protocols.mqtt.session import Incoming, Link, Session, Subscription
from trellis.protocols.mqtt.topics import is_topic

CLIENT_LETTERS_MAX = 512
_FOREVER_S = 0xFFFF_FFFF


class Entrance(ABC):
    def __init__(self, node: NodeId, life: int, config: MqttConfig) -> None:
        self.node, self.life, self.config = node, life, config
        self.now_ms = self.wall_ms = 0
        self.out: list[DoorEffect] = []
        self.interests = Interests(config.depth)
        self.directory = Directory(node, life, config, self.interests)
        self.recaller = Recaller(node, config, self.interests)
        self.retained = self.recaller.retained
        self.tree: FilterTree[Session, Subscription] = FilterTree()
        self.sessions: dict[str, Session] = {}
        self.by_connection: dict[Connection, Session] = {}
        self.arriving: dict[Connection, p.Connect | None] = {}  # None: nothing was said yet
        self.wills: dict[str, tuple[int, p.Will]] = {}  # of clients that are away: due when
        self.counters: Counter[str] = Counter()
        self._number = self._assigned = 0
        self._last_numbers: list[int] = []

    def at(self, now_ms: int, wall_ms: int) -> None:
        self.now_ms = self.directory.now_ms = self.recaller.now_ms = now_ms
        self.wall_ms = wall_ms

    def take(self) -> list[DoorEffect]:
        out, self.out = self.out, []
        return out

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def send(self, link: Link, packet: p.Packet) -> None:
        self.out.append(ToClient(link.id, packet))

    # Coming

    def opened(self, connection: Connection) -> None:
        self.arriving[connection] = None

    def arrived(self, connection: Connection, packet: p.Packet) -> None:
        """The first packet.  [MQTT-3.1.0-1]"""
        if connection not in self.arriving or self.arriving[connection] is not None:
            return  # it is being closed, or checked
        if not isinstance(packet, p.Connect):
            self._turn_away(connection, p.V5, None, "no CONNECT")
            return
        refusal = self._refused_connect(packet)
        if refusal is not None:
            self._turn_away(connection, packet.version, *refusal)
        else:
            self.arriving[connection] = packet
            self.out.append(Check(connection, packet.user, packet.password))

    def _refused_connect(self, packet: p.Connect) -> tuple[int, str] | None:
        if packet.method is not None:
            return reasons.METHOD, "authentication methods are not supported"
        if len(packet.client) > CLIENT_LETTERS_MAX or packet.client.startswith("$"):
            return reasons.CLIENT_ID, "a name of a client that is too long, or begins with $"
        if not packet.client and packet.version != p.V5 and not packet.clean_start:
            return reasons.CLIENT_ID, "a session needs a client's name"  # [3.1.1: MQTT-3.1.3-8]
        if packet.will is not None and not is_topic(packet.will.topic):
            return reasons.TOPIC_INVALID, "the will's topic is not carried"
        if len(self.by_connection) >= self.config.clients_max:
            return reasons.BUSY, "too many clients"
        if packet.client not in self.sessions and len(self.sessions) >= self.config.sessions_max:
            return reasons.QUOTA, "too many sessions"
        return None

    def checked(self, connection: Connection, is_right: bool) -> None:
        """The answer to `Check`."""
        packet = self.arriving.get(connection)
        if packet is None:
            return
        if not is_right:
            self.counters["passwords refused"] += 1
            self._turn_away(connection, packet.version, reasons.PASSWORD, "user or password")
            return
        del self.arriving[connection]
        self._welcome(connection, packet)
        self._settle()

    def attach(self, connection: Connection, client: str, receive_max: int) -> None:
        """The sidecar, as a client of ours that nobody can take over."""
        packet = p.Connect(version=p.V5, client=client, clean_start=True, receive_max=receive_max, expiry_s=0)
        self._welcome(connection, packet)
        self.sessions[client].is_bridge = True

    def _turn_away(self, connection: Connection, version: int, reason: int | None, why: str) -> None:
        self.arriving.pop(connection, None)
        self.counters["refused"] += 1
        if reason is not None and (version == p.V5 or reasons.connack_311(reason) is not None):
            self.out.append(ToClient(connection, p.ConnAck(reason=reason, text=why)))  # [MQTT-3.2.2-6: no session]
        self.out.append(Close(connection, why))

    def _welcome(self, connection: Connection, packet: p.Connect) -> None:
        client, is_5 = packet.client, packet.version == p.V5
        if not client:  # [MQTT-3.1.3-6, -7]
            self._assigned += 1
            client = f"{self.node}-{self.life}-{self._assigned}"
        session, is_present = self._session(client, packet)
        expiry_s = min(packet.expiry_s, self.config.session_expiry_s_max)
        session.expiry_s = expiry_s
        link = Link(
            connection,
            packet.version,
            self.now_ms,
            packet.keep_alive_s * 1_000,
            packet.receive_max,
            packet.packet_bytes_max,
            is_5 and packet.wants_reasons,
            packet.will,
            {},
        )
        session.link = link
        self.by_connection[connection] = session
        self.counters["connected"] += 1
        answer = p.ConnAck(reason=reasons.SUCCESS, session_present=is_present)
        if is_5:
            answer = p.ConnAck(
                reason=reasons.SUCCESS,
                session_present=is_present,
                assigned_client=None if packet.client else client,
                expiry_s=expiry_s if expiry_s != packet.expiry_s else None,
                receive_max=self.config.inflight_max,
                packet_bytes_max=self.config.packet_bytes_max,
                alias_max=self.config.alias_max,
                shared_available=False,
            )
        self.send(link, answer)
        self._come_back(session)

    def _session(self, client: str, packet: p.Connect) -> tuple[Session, bool]:
        """The client's session, and whether it was there before.  [MQTT-3.1.2-4, -5, -6; 3.1.4-3]"""
        old = self.sessions.get(client)
        if old is not None:
            if old.link is not None:
                self.counters["taken over"] += 1
                self.drop(old, reasons.TAKEN_OVER, "taken over")
            if packet.clean_start or client not in self.sessions:
                self._end(client)
            else:
                self.wills.pop(client, None)  # back before it was due  [MQTT-3.1.3-9]
                return old, True
        session = self.sessions[client] = Session(client, self.config)
        return session, False

    # Going

    def failed(self, connection: Connection, error: PacketError) -> None:
        """Bytes that are no packet.  [MQTT-4.13.1-1, 4.8.0-2]"""
        self.counters["malformed"] += 1
        session = self.by_connection.get(connection)
        if session is not None:
            self.drop(session, error.reason, str(error))
        elif connection in self.arriving:
            self._turn_away(connection, p.V311, error.reason, str(error))
        self._settle()

    def disconnected(self, session: Session, link: Link, packet: p.Disconnect) -> None:
        """The client says so.  [MQTT-3.14.4-3: its will is dropped]"""
        if packet.expiry_s is not None:
            if not session.expiry_s and packet.expiry_s:
                self.drop(session, reasons.PROTOCOL_ERROR, "a session cannot be prolonged at its end")
                return
            session.expiry_s = min(packet.expiry_s, self.config.session_expiry_s_max)
        if packet.reason != reasons.WITH_WILL:
            link.will = None
        self.out.append(Close(link.id))
        self._part(session)

    def drop(self, session: Session, reason: int, why: str) -> None:
        """We end a connection; a client of version 5 hears why.  [MQTT-3.14.0-1]"""
        link = session.link
        assert link is not None
        if link.version == p.V5:
            self.send(link, p.Disconnect(reason, None, why if link.wants_reasons and why else None))
        self.out.append(Close(link.id, why))
        self._part(session)

    def closed(self, connection: Connection) -> None:
        """The connection is gone."""
        self.arriving.pop(connection, None)
        session = self.by_connection.get(connection)
        if session is not None:
            self._part(session)
            self._settle()

    def _part(self, session: Session) -> None:
        link = session.link
        assert link is not None
        del self.by_connection[link.id]
        session.link, session.gone_ms = None, self.now_ms
        if link.will is not None:
            delay_s = min(link.will.delay_s, session.expiry_s)
            self.wills[session.client] = (self.now_ms + delay_s * 1_000, link.will)
            if not delay_s:
                self._publish_will(session.client)
        if not session.expiry_s:
            self._end(session.client)

    def _end(self, client: str) -> None:
        """Of a session.  [MQTT-3.1.2-23]"""
        self._publish_will(client)
        session = self.sessions.pop(client, None)
        if session is not None:
            for filter_ in list(session.subscriptions):
                self.leave_filter(session, filter_)
            self.directory.changed()
            self._forget(session)

    def leave_filter(self, session: Session, filter_: str) -> bool:
        if session.subscriptions.pop(filter_, None) is None:
            return False
        self.tree.remove(filter_, session)
        self.interests.remove(filter_)
        return True

    def _publish_will(self, client: str) -> None:
        _, will = self.wills.pop(client, (0, None))
        if will is not None:
            self.counters["wills"] += 1
            self.publish(client, will.topic, will.payload, will.qos, will.retain, will.content)

    def watch(self) -> None:
        """Keep-alive, wills that are due, sessions that have expired."""
        now_ms = self.now_ms
        for session in list(self.by_connection.values()):
            link = session.link
            if link is None or not link.keep_alive_ms or link.is_paused:  # who is not read cannot be heard
                continue
            if now_ms - link.heard_ms > link.keep_alive_ms * 3 // 2:
                self.drop(session, reasons.KEEP_ALIVE, "keep alive")  # [MQTT-3.1.2-22]
        for client in [one for one, (due_ms, _) in self.wills.items() if due_ms <= now_ms]:
            self._publish_will(client)
        for client in [one.client for one in self.sessions.values() if one.link is None and self._has_expired(one)]:
            self._end(client)

    def _has_expired(self, session: Session) -> bool:
        return self.now_ms - session.gone_ms >= session.expiry_s * 1_000

    # What the host does

    @abstractmethod
    def publish(
        self,
        client: str,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        content: p.Content = p.PLAIN,
        incoming: Incoming | None = None,
    ) -> tuple[int, str] | None:
        """Into the mesh. A refusal and its reason, or None."""

    @abstractmethod
    def _settle(self) -> None:
        """Answer what has become ready."""

    @abstractmethod
    def _come_back(self, session: Session) -> None:
        """The client of a kept session is here again."""

    @abstractmethod
    def _forget(self, session: Session) -> None:
        """The session is over."""
