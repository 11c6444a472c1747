"""Run MQTT clients that connect, disconnect and return: clean and kept sessions, and subscribers.

`mqttwriters.py` has the publishers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from zlib import crc32

from msgspec.structs import replace

from trellis.judge.history import (
    Acknowledged,
    Away,
    Back,
    Confirmed,
    Connected,
    Ended,
    Publishing,
    Received,
    Refused,
    Subscribing,
    Unreachable,
    Unsubscribed,
    Unsubscribing,
)
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.simulate.mesh.mqtt import KEEP_ALIVE_S, Connection, MqttFailed, greeting
from trellis.simulate.mesh.natives import Habits
from trellis.simulate.mesh.properties import MARK, content_of, name_in
from trellis.simulate.mesh.sites import Place, Site
from trellis.simulate.mesh.witness import Witness, payload

_KEPT_S = 600  # expiry of a kept session without a connection, in seconds
_REMOVALS = 20  # One of so many retained publications removes the retained message of its topic.


class Session:
    """One MQTT session, over one or several connections, which is recorded in the history."""

    def __init__(self, name: str, version: int, witness: Witness, *, is_kept: bool, suback_s: float = 5.0) -> None:
        self.name, self.version, self.witness, self.is_kept = name, version, witness, is_kept
        self.id = ""  # name of the session in the history; empty if there is none
        self._sure_s = 0.9 * suback_s  # A SUBACK that comes sooner means that the subscription is sure.
        self.connection: Connection | None = None
        self.site: Site | None = None  # the broker's site; None for a session at a node's listener
        self.wanted: dict[str, None] = {}  # confirmed filters
        self.flying: dict[int, p.Publish] = {}  # packet identifier -> publication without an outcome
        self.messages: dict[int, str] = {}  # packet identifier -> name of the message
        self.has_wills = False  # True: each of its connections leaves a will with the node.
        # QoS 2: publications that the node has acknowledged, and whose release it has not confirmed
        self._released: dict[int, None] = {}
        self._repeated: set[int] = set()  # publications that were sent again
        self.reads = True  # True: incoming messages are acknowledged at once.
        self._later: list[p.Publish] = []  # messages that came while `reads` was False
        self._number = 0
        self._half: set[int] = set()  # QoS 2: identifiers that were received and are not released yet
        self._qos = 2 if crc32(name.encode()) % 3 == 0 else 1  # QoS with which it subscribes at nodes

    async def connect(self, address: str, place: Place) -> bool:
        """Connect. Return whether the node knows the session; otherwise a new session begins."""
        if self.is_kept and not self.id and self.version == p.V311:
            await self._wipe(address)
        connection = Connection(self.version, self.witness.now, self._publish, self._half.discard)
        is_clean = not (self.is_kept and (self.id or self.version == p.V311))
        will = self.witness.message(self.name) if self.has_wills and place.site is None else ""
        hello = p.Connect(
            version=self.version,
            client=self.name,
            clean_start=is_clean,
            expiry_s=_KEPT_S if self.is_kept else 0,
            keep_alive_s=KEEP_ALIVE_S,
            will=p.Will(topic=_will_topic(will), payload=payload(will, 50), qos=1, retain=False) if will else None,
        )
        self.connection = connection  # set before CONNACK, because the first messages may come together with it
        self._early = []
        since = self.witness.now()
        try:
            answer = await connection.open(address, hello)
        except MqttFailed as error:
            self.connection = None
            self._leave_will(will, since, place)
            if place.site is None:
                self.witness.add(Unreachable(self.witness.now(), self.name, place.node, since, str(error)[:120]))
            raise
        except BaseException:
            self.connection = None
            self._leave_will(will, since, place)
            raise
        is_known = bool(self.id) and answer.session_present
        if not is_known:
            self._forget()
            self.site, broker = place.site, place.site.name if place.site is not None else ""
            self.id = self.witness.session(self.name)
            self._is_connected(self.id, self.witness.now(), place, broker)
        else:
            self.witness.add(Back(self.witness.now(), self.id, place.node))
            for wanted in self.wanted:
                if self.site is not None:
                    self.site.subscribed(self.id, self.name, wanted)
        self._leave_will(will, self.witness.now(), place)
        early, self._early = self._early, None
        for packet in early:
            self._publish(packet)
        return is_known

    def _is_connected(self, session: str, t: float, place: Place, broker: str = "") -> None:
        host = self.witness.host_of(self.name)
        self.witness.add(Connected(t, session, self.name, place.node, broker, "mqtt", host))

    def _leave_will(self, will: str, t: float, place: Place) -> None:
        """Record a will, which the node may publish from now on, even if it is unknown whether the node has got it."""
        if not will:
            return
        session = self.id or self.witness.session(self.name)
        if not self.id:
            self._is_connected(session, t, place)
        self.witness.add(Publishing(t, session, will, _will_topic(will), 0))
        if not self.id:
            self.witness.add(Ended(t, session))

    async def _wipe(self, address: str) -> None:
        """End an earlier session of this name at the node. In 3.1.1 a session that starts clean cannot be kept."""
        connection = Connection(self.version, self.witness.now, lambda _: None)
        await connection.open(address, greeting(self.version, self.name))
        connection.close()
        await connection.lost()

    def lose(self) -> None:
        """Record that the connection is lost. A session that is not kept ends with it."""
        if self.connection is None:
            return
        heard = self.connection.heard
        self.connection.cut()
        self.connection = None
        if self.is_kept:
            self._away = heard
            for wanted in self.site.away(self.id) if self.site is not None else ():
                # The counts of a broker do not always tell the sidecar whether a session outlives its connection.
                self.witness.add(Unsubscribing(heard, self.id, wanted))
                self.witness.add(Subscribing(heard, self.id, wanted))
            self.witness.add(Away(heard, self.id, True))
        else:
            self._over(heard)

    def finish(self) -> None:
        """End the session. Its last connection is closed in order if it still stands."""
        if self.connection is not None:
            self._over(self.witness.now())
            self.connection.close()
            self.connection = None
        elif self.id:
            self._over(self._away)

    def _over(self, t: float) -> None:
        self.wanted.clear()
        if self.site is not None:
            self.site.away(self.id)
        if self.id:
            self.witness.add(Ended(t, self.id, self.is_kept))
            self.id = ""
        self._drop_publications()

    def _forget(self) -> None:
        """End the session in the history, because the node no longer knows it. It ended with its last connection."""
        if self.id:
            self._over(self._away)
        self._half.clear()

    _early: list[p.Publish] | None = None  # messages that came before CONNACK was handled
    _away = 0.0  # when the connection of a kept session was last known to work

    # Subscribing

    async def want(self, wanted: str) -> None:
        """Subscribe, and record the request and the confirmation."""
        connection, session = self._connected(), self.id
        asked = self.witness.now()
        self.witness.add(Subscribing(asked, session, wanted))
        number, qos = self._next(), self._qos if self.site is None else 1
        answer = await connection.ask(p.Subscribe(number, (p.Asked(wanted, qos),)), "SubAck", number)
        assert isinstance(answer, p.SubAck)
        now = self.witness.now()
        if answer.reasons[0] >= 0x80:
            self.witness.add(Unsubscribing(asked, session, wanted))
            raise MqttFailed(f"SUBACK {reasons.NAMES.get(answer.reasons[0], hex(answer.reasons[0]))}")
        if session != self.id:
            return
        self.wanted[wanted] = None
        if self.site is not None:
            self.site.subscribed(session, self.name, wanted)
            return
        is_sure = answer.text is None and now - asked < self._sure_s
        self.witness.add(Confirmed(now, session, wanted, is_sure))

    async def want_no_more(self, wanted: str) -> None:
        """Unsubscribe, and record the request and its confirmation."""
        connection = self._connected()
        self.witness.add(Unsubscribing(self.witness.now(), self.id, wanted))
        self.wanted.pop(wanted, None)
        if self.site is not None:
            self.site.gone(self.id, wanted)
        number = self._next()
        session = self.id
        await connection.ask(p.Unsubscribe(number, (wanted,)), "UnsubAck", number)
        self.witness.add(Unsubscribed(self.witness.now(), session, wanted))

    def _publish(self, packet: p.Publish) -> None:
        """Handle a message from the node."""
        if self._early is not None:
            self._early.append(packet)
            return
        if not self.reads:
            self._later.append(packet)
            return
        connection = self.connection
        if packet.qos == 2 and packet.id in self._half:
            pass  # the same message again
        elif not packet.retain and self.witness.is_removal(packet.topic, packet.payload):
            pass  # A removal carries no name. A node never sends one as a retained message.
        elif self.id:
            name = name_in(packet.payload, packet.content if self.version == p.V5 else None)
            self.witness.add(Received(self.witness.now(), self.id, name, packet.topic, packet.retain))
        if connection is None or connection.is_ended or packet.id is None:
            return
        if packet.qos == 1:
            connection.send(p.Ack(p.PUBACK, packet.id))
        elif packet.qos == 2:
            self._half.add(packet.id)
            connection.send(p.Ack(p.PUBREC, packet.id))

    def read_again(self) -> None:
        """Handle the messages that came while the application did not read."""
        self.reads = True
        waiting, self._later = self._later, []
        for packet in waiting:
            self._publish(packet)

    def drop_unread(self) -> None:
        """Forget messages that were not acknowledged: the connection is lost, and the node sends them again."""
        self._later.clear()
        self.reads = True

    # Publishing

    def forget_numbers(self) -> None:
        """Forget publications under way. Identifiers start at 1 again, and the node may still use them."""
        self._drop_publications()
        self._number = 0

    def _drop_publications(self) -> None:
        for one in (self.flying, self.messages, self._released, self._repeated):
            one.clear()

    async def say(self, topic: str, size: int, *, qos: int = 1, retain: bool = False) -> None:
        """Publish one message, and record its outcome.

        One of `_REMOVALS` retained messages is empty and removes the retained message. The message's name decides that.
        """
        connection, session = self._connected(), self.id
        name = self.witness.message(self.name)
        number = self._next() if qos else None
        has_content = self.version == p.V5 and crc32(name.encode()) % 2 == 0
        removes = retain and crc32(name.encode()) // 2 % _REMOVALS == 0
        packet = p.Publish(
            topic=topic,
            payload=b"" if removes else payload(name, size, mark=MARK if has_content else ""),
            qos=qos,
            retain=retain,
            id=number,
            content=content_of(name) if has_content else p.PLAIN,
        )
        self.witness.add(Publishing(self.witness.now(), session, name, topic, qos, retain, removes))
        if number is None:
            connection.send(connection.aliased(packet))
            return
        self.flying[number], self.messages[number] = packet, name
        await self._deliver(connection, session, packet, number)

    async def repeat(self) -> None:
        """Send again, after a reconnection, each publication without an outcome.

        Keep their order, and repeat each only once.
        """
        connection, session = self._connected(), self.id
        for number in list(self._released):
            await self._release(connection, number)
        for number, packet in list(self.flying.items()):
            if number in self._repeated:  # It was repeated before: give up.
                del self.flying[number], self.messages[number]
                continue
            self._repeated.add(number)
            await self._deliver(connection, session, replace(packet, dup=True), number)

    async def _deliver(self, connection: Connection, session: str, packet: p.Publish, number: int) -> None:
        answer = await connection.ask(
            connection.aliased(packet), f"Ack{p.PUBACK if packet.qos == 1 else p.PUBREC}", number
        )
        assert isinstance(answer, p.Ack)
        name = self.messages.pop(number, "")
        self.flying.pop(number, None)
        self._repeated.discard(number)
        if session != self.id or not name:
            return
        if answer.reason >= 0x80:
            text = answer.text or reasons.NAMES.get(answer.reason, hex(answer.reason))
            self.witness.add(Refused(self.witness.now(), session, name, text[:120]))
            return
        self.witness.add(Acknowledged(self.witness.now(), session, name))
        if packet.qos == 2:
            self._released[number] = None
            await self._release(connection, number)

    async def _release(self, connection: Connection, number: int) -> None:
        await connection.ask(p.Ack(p.PUBREL, number), f"Ack{p.PUBCOMP}", number)
        self._released.pop(number, None)

    def _connected(self) -> Connection:
        if self.connection is None or self.connection.is_ended:
            raise MqttFailed("the connection is lost")
        return self.connection

    def _next(self) -> int:
        while True:
            self._number = self._number % 60_000 + 1
            if self._number not in self.flying and self._number not in self._released:
                return self._number


def _will_topic(will: str) -> str:
    return f"m/will/{will}"


async def mqtt_subscriber(
    slot: str, witness: Witness, habits: Habits, choose: Callable[[], str], place_at: Callable[[str], Place]
) -> None:
    """Subscribe, read for a while, perhaps lose the connection and return, and end. Repeat this with new sessions."""
    while habits.has_time():
        await habits.is_away()
        session = drawn_session(slot, witness, habits)
        address, wanted = habits.goal(choose)
        try:
            async with asyncio.timeout(habits.stays_s(may_stay=True)):
                await session.connect(address, place_at(address))
                await session.want(wanted)
                await _stay(session, address, wanted, habits, place_at)
        except MqttFailed as error:
            witness.troubles[f"mqtt subscriber: {error}"] += 1
        except TimeoutError:
            pass
        finally:
            if session.connection is not None and session.connection.is_ended:
                session.lose()
            session.finish()


async def _stay(session: Session, address: str, wanted: str, habits: Habits, place_at: Callable[[str], Place]) -> None:
    random = habits.random
    while True:
        connection = session.connection
        assert connection is not None
        try:
            async with asyncio.timeout(random.choice((1.0, 4.0, 9.0))):
                await connection.lost()
        except TimeoutError:
            moods: tuple[str, ...] = ("stay", "stay", "change", "drop", "doze")
            if not habits.may_change:  # It repeats its subscription only if the sidecar has not read it.
                was_heard = session.site is None or session.site.has_read(session.id, wanted)
                moods = ("stay", "drop", "doze") if was_heard else ("change",)
            match random.choice(moods):
                case "change":
                    await session.want_no_more(wanted)
                    await asyncio.sleep(random.choice((0.0, 0.01, 0.3, 2.0)))
                    await session.want(wanted)
                    continue
                case "doze":
                    session.reads = False
                    await asyncio.sleep(random.choice((0.1, 1.0)))
                    session.read_again()
                    continue
                case "drop" if session.is_kept:
                    session.reads = random.random() < 0.5
                case _:
                    continue
        session.lose()
        session.drop_unread()
        if not session.is_kept:
            raise MqttFailed("the connection is lost")
        await asyncio.sleep(random.choice((0.0, 0.2, 3.0)))
        if not await session.connect(address, place_at(address)):
            await session.want(wanted)


async def mqtt_latecomer(
    slot: str, witness: Witness, habits: Habits, wanted: list[str], place_at: Callable[[str], Place]
) -> None:
    """Subscribe after a long calm time, and stay. Retained messages are owed to such a subscriber."""
    session = drawn_session(slot, witness, habits)
    address = habits.address()
    try:
        await session.connect(address, place_at(address))
        for one in wanted:
            await session.want(one)
        assert session.connection is not None
        await session.connection.lost()
    except MqttFailed as error:
        witness.troubles[f"mqtt latecomer: {error}"] += 1
    finally:
        if session.connection is not None and session.connection.is_ended:
            session.lose()
        session.finish()


def drawn_session(slot: str, witness: Witness, habits: Habits) -> Session:
    """Return a session of a drawn version, clean or kept, under a new name or one used before."""
    version = habits.random.choice((p.V311, p.V5))
    is_kept = habits.random.random() < 0.4
    return Session(habits.name(slot), version, witness, is_kept=is_kept, suback_s=habits.suback_s)
