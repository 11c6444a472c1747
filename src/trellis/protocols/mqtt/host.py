"""All clients of one door: connections, sessions, subscriptions, publications.  [docs/mqtt.md]

Inputs are packets, what the mesh says, and time; everything is answered with effects (`take`). The driver says `at`
what time it is before each input: milliseconds that only grow, and the wall clock for what crosses nodes.

| file                | what                                                                              |
| ------------------- | --------------------------------------------------------------------------------- |
| `house.py`          | what all parts share                                                              |
| `entrance.py`       | CONNECT, sessions that come, go and are taken over, wills, keep-alive             |
| `session.py`        | one client                                                                        |
| `subscriptions.py`  | SUBSCRIBE, and SUBACK when the mesh has confirmed                                 |
| `publications.py`   | PUBLISH, and PUBACK when the mesh has acknowledged                                |
| `deliveries.py`     | from the mesh to clients, retained messages as well                               |
| `interests.py`, `directory.py` | filters as interests; wildcards                                        |
| `retained.py`, `recall.py` | retained messages, here and at other nodes                                 |
| `recollections.py`  | retained messages for new subscriptions                                           |
| `shares.py`, `groups.py` | shared subscriptions                                                         |
| `sys_topics.py`     | what the node tells its clients about itself                                      |
| `host.py`           | takes each input to its part, and carries on what follows                         |
"""

from __future__ import annotations

from functools import partial

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.deliveries import Deliveries
from trellis.protocols.mqtt.effects import Close, Connection, DoorEffect, Emit, ToClient, Unwant
from trellis.protocols.mqtt.entrance import Entrance
from trellis.protocols.mqtt.house import House
from trellis.protocols.mqtt.primitives import PacketError
from trellis.protocols.mqtt.publications import Publications
from trellis.protocols.mqtt.session import Link, Session
from trellis.protocols.mqtt.subscriptions import Subscriptions
from trellis.protocols.mqtt.sys_topics import SysTopics
from trellis.protocols.mqtt.topics import SHARED, is_carried, overlay_topic


class Host:
    def __init__(self, node: NodeId, life: int, config: MqttConfig) -> None:
        self.house = house = House(node, life, config)
        self.publications = Publications(house, self._drop)
        self.deliveries = Deliveries(house)
        self.shares = self.deliveries.shares
        self.publications.choose = self.shares.groups.choose
        self.entrance = Entrance(house, self.publications.publish, self._come_back, self._forget, self.shares.parted)
        house.on_unshared = self.shares.leave
        self.subscriptions = Subscriptions(house, self.deliveries)
        self.sys_topics = SysTopics(house, self.deliveries.tell_sys)
        self._questions: dict[int, None] = {}  # of the directory, not answered
        # For whoever looks in.
        self.config, self.counters = config, house.counters
        self.interests, self.directory = house.interests, house.directory
        self.recaller, self.retained, self.tree = house.recaller, house.retained, house.tree
        self.sessions, self.by_connection, self.arriving = house.sessions, house.by_connection, self.entrance.arriving

    def at(self, now_ms: int, wall_ms: int) -> None:
        self.house.at(now_ms, wall_ms)

    def take(self) -> list[DoorEffect]:
        return self.house.take()

    def start(self) -> None:
        self.house.directory.start()
        self._settle()

    # Connections

    def opened(self, connection: Connection) -> None:
        self.entrance.opened(connection)

    def checked(
        self, connection: Connection, is_right: bool, user: str | None = None, left_ms: int | None = None
    ) -> None:
        """The answer to `Check`. `user` is the proven one, and `left_ms` is how long its proof is good."""
        self.entrance.checked(connection, is_right, user, left_ms)
        self._settle()

    def rules_changed(self) -> None:
        """The access rules are others now. Drop what waits for clients that may not read it any more."""
        house = self.house
        for session in house.sessions.values():
            house.counters["reads denied"] += session.drop_denied(partial(house.may_read, session))

    def attach(self, connection: Connection, client: str, receive_max: int) -> None:
        """The sidecar, as a client of ours that nobody can take over."""
        self.entrance.attach(connection, client, receive_max)

    def failed(self, connection: Connection, error: PacketError, version: int = 0) -> None:
        """Bytes that are no packet. `version` is 0 where the client has not said which MQTT it speaks."""
        self.entrance.failed(connection, error, version)
        self._settle()

    def closed(self, connection: Connection, is_by_client: bool = False) -> None:
        """The connection is gone. `is_by_client`: the client has closed it, without DISCONNECT."""
        self.entrance.closed(connection, is_by_client)
        self._settle()

    def begin_anew(self, connection: Connection) -> None:
        """The sidecar's broker has lost our session: its identifiers begin anew."""
        self.publications.begin_anew(connection)

    def shut_down(self) -> None:
        """The node goes: clients are told, and come back elsewhere."""
        self.shares.shut_down()
        self.house.directory.leave()
        self._settle()
        for session in list(self.house.by_connection.values()):
            self._drop(session, reasons.SHUTTING_DOWN, "")
        for connection in list(self.entrance.arriving):
            self.house.out.append(Close(connection))

    def _drop(self, session: Session, reason: int, why: str) -> None:
        self.entrance.drop(session, reason, why)

    def _forget(self, session: Session) -> None:
        """A session is over."""
        self.publications.forget(session)
        self.shares.ended(session)

    def _come_back(self, session: Session) -> None:
        """The client of a session is here: it gets what waits for it."""
        assert session.link is not None
        self.shares.came(session)
        for one in session.resume(self.house.now_ms):
            self.house.send(session.link, one)
        self.publications.came_back(session)

    # Packets

    def received(self, connection: Connection, packet: p.Packet) -> None:
        session = self.house.by_connection.get(connection)
        if session is None:
            self.entrance.arrived(connection, packet)
            self._settle()
            return
        link = session.link
        assert link is not None
        link.heard_ms = self.house.now_ms
        match packet:
            case p.Publish():
                self.publications.received(session, link, packet)
            case p.Ack():
                self._on_ack(session, link, packet)
            case p.Subscribe() if any(one.no_local and one.filter.startswith(SHARED) for one in packet.asked):
                self._drop(session, reasons.PROTOCOL_ERROR, "no local on a shared subscription")  # [MQTT-3.8.3-4]
            case p.Subscribe():
                self.subscriptions.subscribe(session, link, packet)
            case p.Unsubscribe():
                self.subscriptions.unsubscribe(session, link, packet)
            case p.PingReq():
                self.house.send(link, p.PingResp())
            case p.Disconnect():
                self.entrance.disconnected(session, link, packet)
            case _:  # a second CONNECT, AUTH without a method, or a packet for clients  [MQTT-3.1.0-2, 4.13.1-1]
                self._drop(session, reasons.PROTOCOL_ERROR, "out of place")
        self._settle()

    def _on_ack(self, session: Session, link: Link, packet: p.Ack) -> None:
        sent = session.flying.get(packet.id)
        if sent is not None and packet.kind in (p.PUBACK, p.PUBREC) and (packet.kind == p.PUBACK) != (sent.qos == 1):
            self._drop(session, reasons.PROTOCOL_ERROR, "an acknowledgement for another QoS")  # [MQTT-4.3.2-3, 4.3.3-6]
            return
        match packet.kind:
            case p.PUBACK:
                for one in session.acknowledged(packet.id, self.house.now_ms, self.house.awake_ms):
                    self.house.send(link, one)
            case p.PUBREC:
                for answer in session.received(packet.id, packet.reason, self.house.now_ms, self.house.awake_ms):
                    self.house.send(link, answer)
            case p.PUBCOMP:
                for one in session.completed(packet.id, self.house.now_ms):
                    self.house.send(link, one)
            case p.PUBREL:
                self.publications.released(session, link, packet.id)

    def too_large(self, connection: Connection, packet: p.Packet) -> None:
        """The client takes no packet of this size: as if it had had it.  [MQTT-3.1.2-24, -25]"""
        self.house.counters["too large for a client"] += 1
        session = self.house.by_connection.get(connection)
        if session is not None and isinstance(packet, p.Publish) and packet.id is not None:
            for one in session.acknowledged(packet.id, self.house.now_ms, self.house.awake_ms):
                self.house.out.append(ToClient(connection, one))

    # The mesh

    def confirmed(self, topic: Topic) -> None:
        self.deliveries.early.pop(topic, None)
        self.house.directory.confirmed(topic)
        if not topic.startswith("$") and self.config.listen:
            self.house.recaller.joined(topic)
        self._settle()

    def acknowledged(self, number: int, others: int | None = 0) -> None:
        """`others` nodes beside this one hold the publication. None: the mesh cannot tell how many subscribe."""
        if number in self._questions:
            del self._questions[number]
            self.house.directory.acknowledged(number, others)
        self.publications.acknowledged(number)
        self._settle()

    def not_acknowledged(self, number: int, reason: str, *, is_taken: bool = True) -> None:
        """The mesh does not acknowledge a publication. `is_taken`: it did not refuse it at once, and may deliver it."""
        self.house.counters["not acknowledged"] += self.publications.is_awaited(number)
        if number in self._questions:
            del self._questions[number]
            self.house.directory.not_acknowledged(number)
        self.publications.not_acknowledged(number, reason, is_taken=is_taken)
        self._settle()

    def delivered(self, topic: Topic, origin: NodeId, payload: bytes) -> None:
        self.deliveries.delivered(topic, origin, payload)
        self._settle()

    def noticed(self, topic: Topic) -> None:
        """Somebody else published through this node: holders of wildcards are to know of the topic."""
        depth = self.house.config.depth
        if is_carried(topic, depth) and overlay_topic(topic, depth) == topic:
            self.house.directory.publishes(topic, 0, is_plain=True)
            self._settle()

    # What follows an input

    def tick(self) -> None:
        """A few times a second."""
        self.deliveries.tick()
        self.publications.tick()
        self.house.recaller.tick()
        self.entrance.watch()
        self.sys_topics.tick()
        self.shares.tick()
        self._settle()

    @property
    def has_more(self) -> bool:
        """Return whether work is left that was too much for one turn. `go_on` does the next part of it, or `tick`."""
        return self.deliveries.recollections.has_more

    def go_on(self) -> None:
        """Do the next part of the work that was too much for one turn."""
        self.deliveries.recollections.turn()
        self._settle()

    def _settle(self) -> None:
        """Interests and what the directory says go out; SUBACKs whose time has come as well."""
        self.shares.settle()
        while self.house.interests.out or self.house.directory.emits or self.house.recaller.emits or self.shares.emits:
            changes, self.house.interests.out = self.house.interests.out, []
            for change in changes:
                if isinstance(change, Unwant):
                    self.house.directory.unwanted(change.topic)
                    self.house.recaller.left(change.topic)
                    self.deliveries.early.pop(change.topic, None)
                self.house.out.append(change)
            emits = [*self.shares.emits, *self.house.directory.emits, *self.house.recaller.emits]
            self.shares.emits.clear()
            self.house.directory.emits.clear()
            self.house.recaller.emits.clear()
            for topic, payload, which in emits:
                number = self.house.next_number()
                if which == "who":
                    self.house.directory.asked(number)
                    self._questions[number] = None
                self.house.out.append(Emit(topic, payload, number))
        self.subscriptions.tell()
        self.shares.settle()

    def check(self) -> None:
        self.house.interests.check()
        self.house.directory.check()
        self.house.recaller.check()
        self.deliveries.recollections.check()
        for session in self.house.sessions.values():
            session.check()
        assert self.house.filter_bytes == sum(one.filter_bytes for one in self.house.sessions.values())
        self.shares.check()
        held = self.house.tree.count + sum(self.house.shared.values())
        assert held == sum(len(one.subscriptions) for one in self.house.sessions.values())
