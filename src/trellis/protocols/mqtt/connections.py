"""Connections of clients: CONNECT, sessions and their take-over, wills, keep-alive.  [MQTT 5, 3.1, 3.14, 4.1]

A connection is *arriving* until its CONNECT is accepted: first the packet is checked, then the password (`Check`).
After that it belongs to a session. A session without a connection is kept for its expiry interval, and its will is
published after the will's delay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from trellis.protocols.access.decide import Who
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.config import KEEP_ALIVE_S_MAX
from trellis.protocols.mqtt.effects import Check, Close, Connection, SetAside, ToClient
from trellis.protocols.mqtt.envelope import WillTold
from trellis.protocols.mqtt.primitives import PacketError
from trellis.protocols.mqtt.session import Link, Session
from trellis.protocols.mqtt.state import BrokerState
from trellis.protocols.mqtt.topics import is_carried
from trellis.reached import reached

CLIENT_LETTERS_MAX = 512
WILLS_BYTES_MAX = 64 << 20  # most memory of the wills of all clients, connected or not
_DISCONNECT_BYTES = 3  # bytes of a DISCONNECT with a reason code and without a text
_VERSIONS = {p.V31: "3.1", p.V311: "3.1.1", p.V5: "5"}


class PublishWill(Protocol):
    """Publishes a will. Returns None, or a refusal."""

    def __call__(
        self, client: str, topic: str, payload: bytes, qos: int, retain: bool, content: p.Content = p.PLAIN
    ) -> object: ...


class Connections:
    """Accepts, watches and ends the connections of clients."""

    def __init__(
        self,
        state: BrokerState,
        publish: PublishWill,
        came_back: Callable[[Session], None],
        forget: Callable[[Session], None],
        parted: Callable[[Session], None],
    ) -> None:
        """`came_back`: called when a client has connected; `parted`: disconnected; `forget`: a session has ended."""
        self.state, self.publish, self.came_back, self.forget = state, publish, came_back, forget
        self.parted = parted
        # connections without a session, with their CONNECT; None: it has not come yet
        self.arriving: dict[Connection, p.Connect | None] = {}
        self.wills: dict[str, tuple[int, p.Will]] = {}  # wills of disconnected clients, with the time when they are due
        self._assigned = 0
        self.wills_changed: Callable[[], None] = lambda: None  # called when a will comes or goes

    # Connecting

    def opened(self, connection: Connection) -> None:
        """A client has opened a connection."""
        self.arriving[connection] = None

    def arrived(self, connection: Connection, packet: p.Packet) -> None:
        """Take in the first packet, which must be a CONNECT.  [MQTT-3.1.0-1]"""
        if connection not in self.arriving or self.arriving[connection] is not None:
            return  # it is being closed, or checked
        if not isinstance(packet, p.Connect):
            self._turn_away(connection, 0, reasons.PROTOCOL_ERROR, "no CONNECT")
            return
        refusal = self._refused_connect(packet)
        if refusal is not None:
            self._turn_away(connection, packet.version, *refusal)
        else:
            self.arriving[connection] = packet
            self.state.out.append(Check(connection, packet.user, packet.password))

    def _refused_connect(self, packet: p.Connect) -> tuple[int, str] | None:
        """Return reason and text if a CONNECT is refused, or None."""
        if _VERSIONS[packet.version] not in self.state.config.versions:
            return reasons.VERSION, f"this listener does not speak MQTT {_VERSIONS[packet.version]}"
        if packet.method is not None:
            return reasons.METHOD, "authentication methods are not supported"
        if len(packet.client) > CLIENT_LETTERS_MAX or packet.client.startswith("$"):
            return reasons.CLIENT_ID, "a name of a client that is too long, or begins with $"
        if not packet.client and packet.version == p.V31:
            return reasons.CLIENT_ID, "a client of MQTT 3.1 needs a name"
        if not packet.client and packet.version != p.V5 and not packet.clean_start:
            return reasons.CLIENT_ID, "a session needs a client's name"  # [3.1.1: MQTT-3.1.3-8]
        # 3.1.1 cannot tell the client another one
        if packet.version != p.V5 and self._keep_alive_s(packet) != packet.keep_alive_s:
            return reasons.CLIENT_ID, f"a keep alive above {self.state.config.keep_alive_s_max} s, or none"
        if packet.will is not None and (refusal := self._refused_will(packet.will, packet.version)) is not None:
            return refusal
        return self._lacks_room(packet.client)

    def _refused_will(self, will: p.Will, version: int) -> tuple[int, str] | None:
        """Return reason and text if a CONNECT is refused because of its will, or None.  [MQTT-3.2.2-12, -13]"""
        config = self.state.config
        if not is_carried(will.topic, config.depth):
            return reasons.TOPIC_INVALID, "the will's topic is not carried"
        if will.qos > config.qos_max:
            return reasons.QOS_UNSUPPORTED, f"the will's QoS is above {config.qos_max}"
        if will.retain and not config.retain_available:
            return reasons.RETAIN_UNSUPPORTED, "the will asks to be retained"
        if config.payload_bytes_max and len(will.payload) > config.payload_bytes_max:
            # 3.1.1 has no word for it. Mosquitto says that the client is not authorized.
            reason = reasons.TOO_LARGE if version == p.V5 else reasons.NOT_AUTHORIZED
            return reason, f"the will's payload is over {config.payload_bytes_max} bytes"
        if self._will_bytes() + will.size > WILLS_BYTES_MAX:
            return reasons.QUOTA, "the wills of all clients take too much memory"
        return None

    def _lacks_room(self, client: str) -> tuple[int, str] | None:
        """Return reason and text if there is no space for a client, or None.

        A client that takes over its own connection always has space.
        """
        state, old = self.state, self.state.sessions.get(client)
        if len(state.by_connection) >= state.config.clients_max and (old is None or old.link is None):
            reached("there is no room for an MQTT client")
            return reasons.BUSY, "too many clients"
        if old is None and len(state.sessions) >= state.config.sessions_max:
            reached("there is no room for an MQTT session")
            return reasons.BUSY, "too many sessions"
        return None

    def _will_bytes(self) -> int:
        """Return roughly how much memory the wills of all clients take."""
        links = [session.link for session in self.state.by_connection.values()]
        connected = sum(link.will.size for link in links if link is not None and link.will is not None)
        return connected + sum(will.size for _, will in self.wills.values())

    def checked(self, connection: Connection, is_right: bool, user: str | None, left_ms: int | None) -> None:
        """Take in the answer to `Check`: whether the password is right, whose it is, and how long that is valid."""
        packet = self.arriving.get(connection)
        if packet is None:
            return
        if not is_right:
            self.state.counters["passwords refused"] += 1
            is_anonymous = packet.user is None and packet.password is None
            why = "this listener wants a user and a password" if is_anonymous else "user or password"
            # The same code for all: 3.1.1 has "bad user name or password" for data that is malformed (3.2.2.3). So
            # clients need not tell two codes apart, and see what they see at Mosquitto.
            self._turn_away(connection, packet.version, reasons.NOT_AUTHORIZED, why)
            return
        if not self._has_room(packet.client, user):
            self.state.counters["connections beyond quotas"] += 1
            reason = reasons.QUOTA if packet.version == p.V5 else reasons.BUSY
            self._turn_away(connection, packet.version, reason, "this user has too many connections")
            return
        if (lack := self._lacks_room(packet.client)) is not None:  # others connected while its password was checked
            self._turn_away(connection, packet.version, *lack)
            return
        access, will = self.state.access, packet.will
        if access is not None and will is not None and not access.may_write(Who(user, packet.client), will.topic):
            self.state.counters["wills denied"] += 1
            why = "the client may not publish on the topic of its will"
            self._turn_away(connection, packet.version, reasons.NOT_AUTHORIZED, why)
            return
        del self.arriving[connection]
        self.state.traffic.connects += 1
        self._welcome(connection, packet, user, left_ms)

    def _has_room(self, client: str, user: str | None) -> bool:
        """Return whether a user's quota allows another connection. Taking over one's own session is always allowed."""
        limit = self.state.access.quotas.limits(user).get("user connections") if self.state.access is not None else None
        if limit is None:
            return True
        sessions = self.state.by_connection.values()
        mine = [session for session in sessions if session.who.user == user and not session.is_bridge]
        return len(mine) < limit or any(session.client == client for session in mine)

    def attach(self, connection: Connection, client: str, receive_max: int) -> None:
        """Attach the sidecar as a client that nobody can take over."""
        packet = p.Connect(version=p.V5, client=client, clean_start=True, receive_max=receive_max, expiry_s=0)
        self._welcome(connection, packet)
        session = self.state.sessions[client]
        session.is_bridge = True
        if session.link is not None:
            session.link.keep_alive_ms = 0  # it is a part of this process

    def _turn_away(self, connection: Connection, version: int, reason: int, why: str) -> None:
        """Refuse a connection. `version` is 0 if the client has not said which MQTT it speaks."""
        self.arriving.pop(connection, None)
        self.state.counters["refused"] += 1
        if version == p.V5 or reasons.connack_311(reason) is not None:
            # [MQTT-3.2.2-6: no session]
            text = why if self.state.config.reason_texts else None
            self.state.out.append(ToClient(connection, p.ConnAck(reason=reason, text=text)))
        self.state.out.append(Close(connection, reasons.name(reason), why))

    def _welcome(
        self, connection: Connection, packet: p.Connect, user: str | None = None, left_ms: int | None = None
    ) -> None:
        """Accept a CONNECT: give the connection its session, and send CONNACK."""
        client, is_5 = packet.client, packet.version == p.V5
        keep_alive_s = self._keep_alive_s(packet)
        if not client:  # [MQTT-3.1.3-6, -7]
            self._assigned += 1
            client = f"{self.state.node}-{self.state.incarnation}-{self._assigned}"
        session, is_present = self._session(client, packet, user)
        expiry_s = min(packet.expiry_s, self.state.config.session_expiry_s_max)
        session.expiry_s = expiry_s
        link = Link(
            connection,
            packet.version,
            self.state.now_ms,
            keep_alive_s * 1_000,
            packet.receive_max,
            packet.packet_bytes_max,
            is_5 and packet.wants_reasons and self.state.config.reason_texts,
            packet.will,
            {},
            min(packet.alias_max, self.state.config.alias_max) if is_5 else 0,
            until_ms=None if left_ms is None else self.state.now_ms + left_ms,
        )
        session.link = link
        if packet.will is not None:
            self.wills_changed()
        self.state.by_connection[connection] = session
        self.state.counters["connected"] += 1
        answer = p.ConnAck(reason=reasons.SUCCESS, session_present=is_present)
        if is_5:
            answer = p.ConnAck(
                reason=reasons.SUCCESS,
                session_present=is_present,
                assigned_client=None if packet.client else client,
                expiry_s=expiry_s if expiry_s != packet.expiry_s else None,
                keep_alive_s=keep_alive_s if keep_alive_s != packet.keep_alive_s else None,  # [MQTT-3.1.2-21]
                receive_max=self.state.config.inflight_max,
                packet_bytes_max=self.state.config.packet_bytes_max,
                alias_max=self.state.config.alias_max,
                qos_max=self.state.config.qos_max if self.state.config.qos_max < 2 else None,
                retain_available=self.state.config.retain_available,
            )
        self.state.send(link, answer)
        self.came_back(session)

    def _keep_alive_s(self, packet: p.Connect) -> int:
        """Return the keep-alive of a client in seconds; 0 is none."""
        most = self.state.config.keep_alive_s_max
        return packet.keep_alive_s if most == KEEP_ALIVE_S_MAX or 0 < packet.keep_alive_s <= most else most

    def _session(self, client: str, packet: p.Connect, user: str | None) -> tuple[Session, bool]:
        """Return the client's session, and whether it existed before.  [MQTT-3.1.2-4, -5, -6; 3.1.4-3]

        A session belongs to its user. If another user connects under the same client name, it ends and a new one
        begins.
        """
        old = self.state.sessions.get(client)
        if old is not None:
            if old.link is not None:
                self.state.counters["taken over"] += 1
                reached("an MQTT session is taken over")
                self.drop(old, reasons.TAKEN_OVER, "taken over")
            if packet.clean_start or client not in self.state.sessions or old.who.user != user:
                self._end(client)
            else:
                self.wills.pop(client, None)  # back before it was due  [MQTT-3.1.3-9]
                self.wills_changed()
                return old, True
        session = self.state.sessions[client] = Session(client, self.state.config)
        session.who = Who(user, client)
        return session, False

    # Disconnecting

    def failed(self, connection: Connection, error: PacketError, version: int) -> None:
        """End a connection that sent bytes that are no packet.  [MQTT-4.13.1-1, 4.8.0-2]"""
        self.state.counters["malformed"] += 1
        session = self.state.by_connection.get(connection)
        if session is not None:
            self.drop(session, error.reason, str(error))
        elif connection in self.arriving:
            self._turn_away(connection, version, error.reason, str(error))

    def disconnected(self, session: Session, link: Link, packet: p.Disconnect) -> None:
        """Take in a DISCONNECT of the client.  [MQTT-3.14.4-3: its will is dropped]"""
        if packet.expiry_s is not None:
            if not session.expiry_s and packet.expiry_s:
                self.drop(session, reasons.PROTOCOL_ERROR, "a session cannot be prolonged at its end")
                return
            session.expiry_s = min(packet.expiry_s, self.state.config.session_expiry_s_max)
        if packet.reason != reasons.WITH_WILL and link.will is not None:
            link.will = None
            self.wills_changed()
        self.state.out.append(Close(link.id))
        if packet.reason >= reasons.UNSPECIFIED:
            self._judge(session)
        self._part(session)

    def drop(self, session: Session, reason: int, why: str) -> None:
        """End a client's connection. A client of version 5 is told why.  [MQTT-3.14.0-1]"""
        link = session.link
        assert link is not None
        most = link.packet_bytes_max
        if link.version == p.V5 and (most is None or most >= _DISCONNECT_BYTES):  # [MQTT-3.1.2-24, 3.14.2-3]
            has_text = (
                link.wants_reasons and bool(why) and (most is None or most >= _DISCONNECT_BYTES + 8 + 4 * len(why))
            )
            self.state.send(link, p.Disconnect(reason, None, why if has_text else None))
        self.state.out.append(Close(link.id, reasons.name(reason), why))
        self._part(session)

    def _judge(self, session: Session) -> None:
        """A client has ended its connection as if it did not accept a message: perhaps set one aside."""
        suspect = session.ended(self.state.now_ms)
        if suspect is not None:
            self.state.counters["set aside"] += 1
            self.state.out.append(SetAside(session.client, suspect.topic, len(suspect.payload)))

    def closed(self, connection: Connection, is_by_client: bool = False) -> None:
        """A connection has ended. `is_by_client`: the client closed it without DISCONNECT."""
        self.arriving.pop(connection, None)
        session = self.state.by_connection.get(connection)
        if session is not None:
            if is_by_client:
                self._judge(session)
            self._part(session)

    def _part(self, session: Session) -> None:
        """Take the connection from a session, and schedule its will."""
        link = session.link
        assert link is not None
        del self.state.by_connection[link.id]
        session.link, session.gone_ms = None, self.state.now_ms
        self.parted(session)
        if link.will is not None:
            delay_s = min(link.will.delay_s, session.expiry_s)
            self.wills[session.client] = (self.state.now_ms + delay_s * 1_000, link.will)
            if not delay_s:
                self._publish_will(session.client)
        if not session.expiry_s:
            self._end(session.client)

    def _end(self, client: str) -> None:
        """End a session: publish its will and drop its subscriptions.  [MQTT-3.1.2-23]"""
        self._publish_will(client)
        session = self.state.sessions.pop(client, None)
        if session is not None:
            self.state.leave_filters(session, list(session.subscriptions))
            self.state.directory.changed()
            self.forget(session)

    def all_wills(self) -> Iterator[WillTold]:
        """Yield the wills of all clients, connected or not, as they are told to other nodes."""
        pending = {client: will for client, (_, will) in self.wills.items()}
        links = {session.client: session.link for session in self.state.by_connection.values()}
        pending |= {client: link.will for client, link in links.items() if link is not None and link.will is not None}
        for client, will in pending.items():
            session = self.state.sessions.get(client)
            delay_s = min(will.delay_s, session.expiry_s) if session is not None else 0
            user = session.who.user if session is not None else None
            content = will.content
            yield WillTold(client, user, will.topic, will.payload, will.qos, will.retain, delay_s, content)

    def _publish_will(self, client: str) -> None:
        """Publish the will of a client, if it has one and may publish there."""
        _, will = self.wills.pop(client, (0, None))
        session = self.state.sessions.get(client)
        if will is not None:
            self.wills_changed()
        if will is not None and session is not None and not self.state.may_write(session, will.topic):
            self.state.counters["wills denied"] += 1  # the rules have changed since its CONNECT
        elif will is not None:
            self.state.counters["wills"] += 1
            refusal = self.publish(client, will.topic, will.payload, will.qos, will.retain, will.content)
            self.state.counters["wills refused"] += refusal is not None

    def watch(self) -> None:
        """Check keep-alives and tokens, publish wills that are due, and end sessions that have expired."""
        now_ms = self.state.now_ms
        for session in list(self.state.by_connection.values()):
            link = session.link
            if link is not None and link.until_ms is not None and now_ms >= link.until_ms:
                self.drop(session, reasons.NOT_AUTHORIZED, "its token has expired")
                continue
            if link is None or not link.keep_alive_ms or link.is_paused:  # a client that is not read cannot be heard
                continue
            if now_ms - link.heard_ms > link.keep_alive_ms * 3 // 2:
                self.drop(session, reasons.KEEP_ALIVE, "keep alive")  # [MQTT-3.1.2-22]
        for client in [client for client, (due_ms, _) in self.wills.items() if due_ms <= now_ms]:
            self._publish_will(client)
        sessions = self.state.sessions.values()
        for session in [session for session in sessions if session.link is None and self._has_expired(session)]:
            self.state.traffic.expired += 1
            self._end(session.client)

    def _has_expired(self, session: Session) -> bool:
        return self.state.now_ms - session.gone_ms >= session.expiry_s * 1_000
