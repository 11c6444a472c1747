"""A node's MQTT broker: connections, sessions, subscriptions and publications of its clients.  [docs/mqtt.md]

Inputs are packets, what the mesh says, and time. Every input adds effects, which the driver takes with `take` and
carries out. Before each input, the driver says what time it is (`at`): milliseconds that only grow, and the wall clock
for what crosses nodes.

| file                           | what                                                                   |
| ------------------------------ | ---------------------------------------------------------------------- |
| `state.py`                     | what all parts share                                                   |
| `connections.py`               | CONNECT, sessions and their take-over, wills, keep-alive               |
| `session.py`                   | one client                                                             |
| `subscriptions.py`             | SUBSCRIBE, and SUBACK when the mesh has confirmed                      |
| `publications.py`              | PUBLISH, and PUBACK when the mesh has acknowledged                     |
| `deliveries.py`                | from the mesh to clients, retained messages as well                    |
| `interests.py`, `directory.py` | filters as interests of the node; wildcards                            |
| `retained.py`, `recall.py`     | retained messages, here and at other nodes                             |
| `keepers.py`                   | retained messages that survive their node                              |
| `recollections.py`             | retained messages for new subscriptions                                |
| `shares.py`, `groups.py`       | shared subscriptions                                                   |
| `testaments.py`                | wills that survive their node                                          |
| `sys_topics.py`                | what the node tells its clients about itself                           |
| `host.py`                      | passes each input to its part, and carries on what follows             |
"""

from __future__ import annotations

from functools import partial

from trellis.protocols.effects import Incarnation, NodeId, Topic
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.connections import Connections
from trellis.protocols.mqtt.deliveries import Deliveries
from trellis.protocols.mqtt.effects import Close, Connection, Emit, MqttEffect, Unwant, Want
from trellis.protocols.mqtt.keepers import Keepers
from trellis.protocols.mqtt.primitives import PacketError
from trellis.protocols.mqtt.publications import Publications
from trellis.protocols.mqtt.session import Link, Session
from trellis.protocols.mqtt.state import BrokerState
from trellis.protocols.mqtt.subscriptions import Subscriptions
from trellis.protocols.mqtt.sys_topics import SysTopics
from trellis.protocols.mqtt.testaments import Testaments
from trellis.protocols.mqtt.topics import SHARED, is_carried, overlay_topic


class Host:
    """The MQTT broker of one node."""

    def __init__(self, node: NodeId, incarnation: Incarnation, config: MqttConfig) -> None:
        self.state = state = BrokerState(node, incarnation, config)
        self.publications = Publications(state, self._drop)
        self.deliveries = Deliveries(state)
        self.shares = self.deliveries.shares
        self.publications.choose = self.shares.groups.choose
        self.connections = Connections(
            state, self.publications.publish, self._come_back, self._forget, self.shares.parted
        )
        state.on_unshared = self.shares.leave
        self.testaments = Testaments(state, self.connections.all_wills, self.publications.publish)
        self.keepers = Keepers(state, self.testaments.is_silent)
        self.testaments.is_busy = lambda: self.keepers.is_busy
        self.deliveries.on_keep = self.keepers.on_keep
        self.connections.wills_changed = self._change_wills
        self.deliveries.on_testament, self.deliveries.on_bye = self.testaments.on_said, self.testaments.on_bye
        self.subscriptions = Subscriptions(state, self.deliveries)
        self.sys_topics = SysTopics(state, self.deliveries.tell_sys)
        self._questions: dict[int, None] = {}  # publications with `Who` that the mesh has not answered
        # For the driver, metrics and tests.
        self.config, self.counters = config, state.counters
        self.interests, self.directory = state.interests, state.directory
        self.recaller, self.retained, self.tree = state.recaller, state.retained, state.tree
        self.sessions, self.by_connection, self.arriving = (
            state.sessions,
            state.by_connection,
            self.connections.arriving,
        )

    def at(self, now_ms: int, wall_ms: int) -> None:
        """Set the time, before each input."""
        self.state.at(now_ms, wall_ms)

    def take(self) -> list[MqttEffect]:
        """Return the effects collected since the last call."""
        return self.state.take()

    def start(self) -> None:
        """Begin to take part in the topics on which nodes tell each other of MQTT."""
        self.state.directory.start()
        self._settle()

    # Connections

    def opened(self, connection: Connection) -> None:
        """A client has opened a connection."""
        self.connections.opened(connection)

    def checked(
        self, connection: Connection, is_right: bool, user: str | None = None, left_ms: int | None = None
    ) -> None:
        """Take in the answer to `Check`. `user` is the proven one, and `left_ms` is how long its proof is valid."""
        self.connections.checked(connection, is_right, user, left_ms)
        self._settle()

    def rules_changed(self) -> None:
        """Apply new access rules: drop waiting messages that a client may no longer read."""
        state = self.state
        for session in state.sessions.values():
            state.counters["reads denied"] += session.drop_denied(partial(state.may_read, session))

    def attach(self, connection: Connection, client: str, receive_max: int) -> None:
        """Attach the sidecar as a client that nobody can take over."""
        self.connections.attach(connection, client, receive_max)

    def failed(self, connection: Connection, error: PacketError, version: int = 0) -> None:
        """End a connection that sent bytes that are no packet. `version` is 0 if the client has not named one."""
        self.connections.failed(connection, error, version)
        self._settle()

    def closed(self, connection: Connection, is_by_client: bool = False) -> None:
        """A connection has ended. `is_by_client`: the client closed it without DISCONNECT."""
        self.connections.closed(connection, is_by_client)
        self._settle()

    def begin_anew(self, connection: Connection) -> None:
        """Forget publications of the sidecar's broker: it lost our session, and its packet identifiers start again."""
        self.publications.begin_anew(connection)

    def shut_down(self) -> None:
        """Tell all clients that the node stops, so that they connect elsewhere."""
        self.shares.shut_down()
        self.state.directory.leave()
        self._settle()
        for session in list(self.state.by_connection.values()):
            self._drop(session, reasons.SHUTTING_DOWN, "")
        for connection in list(self.connections.arriving):
            self.state.out.append(Close(connection))

    def _drop(self, session: Session, reason: int, why: str) -> None:
        self.connections.drop(session, reason, why)

    def _forget(self, session: Session) -> None:
        """Forget a session that has ended."""
        self.publications.forget(session)
        self.shares.ended(session)

    def _come_back(self, session: Session) -> None:
        """Send a connected client what waits for it."""
        assert session.link is not None
        self.shares.came(session)
        self.testaments.connected(session.client)
        for resumed in session.resume(self.state.now_ms):
            self.state.send(session.link, resumed)
        self.publications.came_back(session)

    # Packets

    def received(self, connection: Connection, packet: p.Packet) -> None:
        """Take in a packet of a client."""
        session = self.state.by_connection.get(connection)
        if session is None:
            self.connections.arrived(connection, packet)
            self._settle()
            return
        link = session.link
        assert link is not None
        link.heard_ms = self.state.now_ms
        match packet:
            case p.Publish():
                self.publications.received(session, link, packet)
            case p.Ack():
                self._on_ack(session, link, packet)
            case p.Subscribe() if any(asked.no_local and asked.filter.startswith(SHARED) for asked in packet.asked):
                self._drop(session, reasons.PROTOCOL_ERROR, "no local on a shared subscription")  # [MQTT-3.8.3-4]
            case p.Subscribe():
                self.subscriptions.subscribe(session, link, packet)
            case p.Unsubscribe():
                self.subscriptions.unsubscribe(session, link, packet)
            case p.PingReq():
                self.state.send(link, p.PingResp())
            case p.Disconnect():
                self.connections.disconnected(session, link, packet)
            case _:  # a second CONNECT, AUTH without a method, or a packet for clients  [MQTT-3.1.0-2, 4.13.1-1]
                self._drop(session, reasons.PROTOCOL_ERROR, "out of place")
        self._settle()

    def _on_ack(self, session: Session, link: Link, packet: p.Ack) -> None:
        """Take in a PUBACK, PUBREC, PUBREL or PUBCOMP."""
        if packet.kind != p.PUBREL and packet.kind not in session.expected(packet.id):
            self._drop(session, reasons.PROTOCOL_ERROR, "an acknowledgement out of place")  # [MQTT-4.3.2-3, 4.3.3-6]
            return
        match packet.kind:
            case p.PUBACK:
                for message in session.acknowledged(packet.id, self.state.now_ms, self.state.awake_ms):
                    self.state.send(link, message)
            case p.PUBREC:
                for answer in session.received(packet.id, packet.reason, self.state.now_ms, self.state.awake_ms):
                    self.state.send(link, answer)
            case p.PUBCOMP:
                for message in session.completed(packet.id, self.state.now_ms):
                    self.state.send(link, message)
            case p.PUBREL:
                self.publications.released(session, link, packet.id)

    def too_large(self, connection: Connection, packet: p.Packet) -> None:
        """Treat a message larger than the client accepts as if the client had acknowledged it. [MQTT-3.1.2-24, -25]"""
        self.state.counters["too large for a client"] += 1
        session = self.state.by_connection.get(connection)
        if session is not None and isinstance(packet, p.ConnAck):
            self._drop(session, reasons.TOO_LARGE, "the client accepts no packet that is as large as CONNACK")
            self._settle()
        elif session is not None and isinstance(packet, p.Publish) and packet.id is not None:
            for message in session.acknowledged(packet.id, self.state.now_ms, self.state.awake_ms):
                if session.link is not None:
                    self.state.send(session.link, message)

    # The mesh

    def confirmed(self, topic: Topic) -> None:
        """The mesh has confirmed that this node takes part in an overlay topic."""
        self.deliveries.early.pop(topic, None)
        self.state.directory.confirmed(topic)
        if not topic.startswith("$") and self.config.has_clients:
            self.state.recaller.joined(topic)
        self._settle()

    def acknowledged(self, number: int, others: int | None = None) -> None:
        """The mesh has acknowledged a publication: `others` other nodes hold it. None: it cannot tell how many."""
        if number in self._questions:
            del self._questions[number]
            self.state.directory.acknowledged(number, others)
        self.state.recaller.taken(number)
        self.publications.acknowledged(number, is_alone=others == 0)
        self._settle()

    def not_acknowledged(self, number: int, reason: str, *, is_taken: bool = True) -> None:
        """The mesh has not acknowledged a publication. `is_taken`: it was not refused at once, and may be delivered."""
        self.state.counters["not acknowledged"] += self.publications.is_awaited(number)
        if number in self._questions:
            del self._questions[number]
            self.state.directory.not_acknowledged(number)
        if is_taken:
            self.state.recaller.taken(number)
        else:
            self.state.recaller.refused(number)
        self.publications.not_acknowledged(number, reason, is_taken=is_taken)
        self._settle()

    def holds_back(self, emit: Emit) -> bool:
        """Return whether a publication must not be given to the mesh, because the mesh has refused another one since.

        The driver asks before it gives a publication to the mesh. If it must wait, the host emits it again later.
        """
        if not self.publications.holds_back(emit):
            return False
        self._settle()
        return True

    def delivered(self, topic: Topic, origin: NodeId, payload: bytes) -> None:
        """The mesh has delivered a publication of `origin`."""
        self.deliveries.delivered(topic, origin, payload)
        self._settle()

    def noticed(self, topic: Topic) -> None:
        """A native client published through this node: make the topic known to holders of patterns."""
        depth = self.state.config.depth
        if is_carried(topic, depth) and overlay_topic(topic, depth) == topic:
            self.state.directory.publishes(topic, 0, is_plain=True)
            self._settle()

    def _change_wills(self) -> None:
        self.testaments.is_changed = True

    # What follows an input

    def tick(self) -> None:
        """Do the periodic work, a few times a second."""
        self.deliveries.tick()
        self.publications.tick()
        self.state.recaller.tick()
        self.connections.watch()
        self.sys_topics.tick()
        self.shares.tick()
        self.keepers.tick()
        self.testaments.tick()
        self._settle()

    @property
    def has_more(self) -> bool:
        """Whether work is left that was too much for one turn. `go_on` or `tick` does the next part of it."""
        return self.deliveries.recollections.has_more

    def go_on(self) -> None:
        """Do the next part of the work that was too much for one turn."""
        self.deliveries.recollections.turn()
        self._settle()

    def _settle(self) -> None:
        """Pass on changed interests and internal messages, and send the SUBACKs that are due."""
        self.shares.settle()
        parts = (self.shares, self.state.directory, self.state.recaller, self.testaments, self.keepers)
        while self.state.interests.out or any(part.emits for part in parts):
            changes, self.state.interests.out = self.state.interests.out, []
            for change in changes:
                if isinstance(change, Want):
                    self.deliveries.since[change.topic] = self.state.last_number
                elif isinstance(change, Unwant):
                    self.deliveries.since.pop(change.topic, None)
                    self.state.directory.unwanted(change.topic)
                    self.state.recaller.left(change.topic)
                    self.deliveries.early.pop(change.topic, None)
                self.state.out.append(change)
            emits = [emit for part in parts for emit in part.emits]
            for part in parts:
                part.emits.clear()
            for topic, payload, which in emits:
                number = self.state.next_number()
                if which == "who":
                    self.state.directory.asked(number)
                    self._questions[number] = None
                elif which in ("recall", "kept"):
                    self.state.recaller.given(number, topic, which)
                self.state.out.append(Emit(topic, payload, number))
        self.subscriptions.tell()
        self.shares.settle()

    def check(self) -> None:
        self.state.interests.check()
        self.state.directory.check()
        self.state.recaller.check()
        self.deliveries.recollections.check()
        self.deliveries.assembly.check()
        self.publications.repeats.check()
        for session in self.state.sessions.values():
            session.check()
        assert self.state.filter_bytes == sum(session.filter_bytes for session in self.state.sessions.values())
        self.shares.check()
        self.testaments.check()
        held = self.state.tree.count + sum(self.state.shared.values())
        assert held == sum(len(session.subscriptions) for session in self.state.sessions.values())
