"""Run clients of `trellis.connect` that connect, disconnect and return.

`Observed` is the client library with a record. It records when it last heard from its node, and when its subscriptions
are confirmed again after a lost connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TypeVar, cast

from trellis.judge.history import (
    Acknowledged,
    Away,
    Back,
    Confirmed,
    Connected,
    Ended,
    Missed,
    Publishing,
    Received,
    Refused,
    Subscribing,
    Unreachable,
    Unsubscribing,
)
from trellis.live.client import Client, ClientError
from trellis.live.stream import Stream
from trellis.live.talk import TO_CLIENT, Subscribed
from trellis.protocols.mqtt.config import MqttConfig
from trellis.simulate.mesh.properties import name_in
from trellis.simulate.mesh.witness import Witness, payload

T = TypeVar("T")


class Observed(Client):
    """One session of a native client, which is recorded in the history."""

    def __init__(self, address: str, name: str, witness: Witness, *, timeout_s: float = 30.0) -> None:
        super().__init__(address, name, None, timeout_s)
        self.witness, self._address = witness, address
        self.id = witness.session(name)  # name of the session in the history
        self.heard = witness.now()  # when the node last sent anything
        self.at = ""  # node to which it is connected; empty while it has no connection
        self.backs = 0  # how often it reconnected after a lost connection
        self._is_known = False  # True: the history has the session.
        self._is_over = False

    async def __aenter__(self) -> Observed:
        since = self.witness.now()
        try:
            await super().__aenter__()
        except ClientError as error:
            node = self.witness.nodes.get(self._address)
            if node is not None:
                self.witness.add(Unreachable(self.witness.now(), self.name, node, since, str(error)[:120]))
            raise
        return self

    def received(self, stream: Stream, body: bytes) -> None:
        """Handle data from the node, and record connections and confirmations that show in it."""
        self.heard = self.witness.now()
        super().received(stream, body)
        if self._is_over:
            return
        if not self.at and self.node is not None:
            self._is_connected(self.node.node)
        elif self.backs:  # The library subscribes again by itself, and does not report the confirmation.
            message = TO_CLIENT.decode(body)
            if isinstance(message, Subscribed):
                wanted = self._topics.get(message.topic)
                if wanted is not None and wanted.confirmed.done():  # a late answer confirms nothing
                    self.witness.add(Confirmed(self.heard, self.id, message.topic))

    def ended(self, stream: Stream) -> None:
        """Record that the connection was lost."""
        if stream is self._stream and self.at and not self._is_over:
            # The time at which the connection broke is unknown. Nothing is certain after the node's last message.
            self.witness.add(Away(self.heard, self.id))
            self.at = ""
        super().ended(stream)

    def _is_connected(self, node: str) -> None:
        self.at = node
        if not self._is_known:
            self._is_known = True
            host = self.witness.host_of(self.name)
            self.witness.add(Connected(self.heard, self.id, self.name, node, speaks="native", host=host))
            return
        self.backs += 1
        self.witness.add(Back(self.heard, self.id, node))
        for topic in self._topics:
            self.witness.add(Subscribing(self.heard, self.id, topic))

    # Called by client programs

    async def want(self, topic: str) -> None:
        """Subscribe, and record the request and the confirmation."""
        self.witness.add(Subscribing(self.witness.now(), self.id, topic))
        await self.subscribe(topic)
        if not self._is_over and topic in self._topics:
            self.witness.add(Confirmed(self.witness.now(), self.id, topic))

    async def want_no_more(self, topic: str) -> None:
        self.witness.add(Unsubscribing(self.witness.now(), self.id, topic))
        await self.unsubscribe(topic)

    async def say(self, topic: str, size: int) -> None:
        """Publish one message, and record its outcome."""
        name = self.witness.message(self.name)
        self.witness.add(Publishing(self.witness.now(), self.id, name, topic))
        try:
            receipt = await self.publish(topic, payload(name, size))
        except ClientError as error:
            if not self._is_over:
                self.witness.add(Refused(self.witness.now(), self.id, name, _reason(error)))
        else:
            if not self._is_over:
                self.witness.add(Acknowledged(self.witness.now(), self.id, name, receipt.holders))

    async def read(self, pause: Callable[[], float] = lambda: 0.0) -> None:
        """Record every message. `pause` returns how many seconds the application takes for each."""
        with suppress(ClientError):
            async for message in self:
                if self._is_over:
                    return
                if message.mqtt is None or not self.witness.is_removal(message.mqtt.topic, message.payload):
                    name = name_in(message.payload, message.mqtt.properties if message.mqtt is not None else None)
                    self.witness.add(Received(self.witness.now(), self.id, name, message.topic))
                for one in self.missed:
                    self.witness.add(Missed(self.witness.now(), self.id, one.topic))
                self.missed.clear()
                if (seconds := pause()) > 0:
                    await asyncio.sleep(seconds)

    def finish(self) -> None:
        """Record that the session ends. Call this before it is closed."""
        if not self._is_over:
            self._is_over = True
            if self._is_known:
                self.witness.add(Ended(self.witness.now() if self.at else self.heard, self.id))


def _reason(error: ClientError) -> str:
    return str(error).rpartition('": ')[2][:120]


class Habits:
    """How a client behaves: where it connects, for how long, how fast. Drawn once per client."""

    def __init__(
        self,
        random: Random,
        nodes: list[str],
        has_time: Callable[[], bool],
        is_last: Callable[[], bool] = lambda: False,
    ) -> None:
        """`has_time` returns whether something new may begin.

        `is_last` returns whether subscribers stay from now on.
        """
        self.random, self.nodes, self.has_time, self.is_last = random, nodes, has_time, is_last
        self.used: list[str] = []  # names that this client has used
        # share of its sessions that connect to the same node as the previous one
        self.faithful = random.choice((0.0, 0.3, 0.8))
        self._sessions = 0
        self._last: tuple[str, object] | None = None  # address and topics of the last session
        self.suback_s = MqttConfig().suback_s  # setting of the nodes; a later SUBACK may be one that is not sure
        self.changes = random.random() < 0.5  # True: a subscriber sometimes unsubscribes and subscribes again.
        self.away_s: tuple[float, ...] = (0.0, 0.05, 0.5, 2.0, 6.0)  # pauses between two sessions
        self.stay = random.choice((0.1, 0.5, 0.9))  # share of its subscriptions that last until the run ends

    def name(self, slot: str) -> str:
        """Return a name that was used before, or a new one. The second session has the name of the first."""
        self._sessions += 1
        if self.used and (self._sessions == 2 or self.random.random() < 0.6):
            return self.random.choice(self.used)
        self.used.append(f"{slot}-{len(self.used)}")
        return self.used[-1]

    def address(self) -> str:
        return self.random.choice(self.nodes)

    def goal(self, choose: Callable[[], T]) -> tuple[str, T]:
        """Return where a client connects and what it subscribes to: the same as before, or something new."""
        if self._last is None or self.random.random() >= self.faithful:
            self._last = self.address(), choose()
        return cast("tuple[str, T]", self._last)

    @property
    def may_change(self) -> bool:
        """Return whether a subscriber may unsubscribe.

        After the last fault none does, because many deliveries are owed then.
        """
        return self.changes and not self.is_last()

    def stays_s(self, *, may_stay: bool = False) -> float | None:
        """Return how many seconds a session lasts. None, which needs `may_stay`, means until the run ends."""
        if may_stay and (self.random.random() < self.stay or self.is_last()):
            return None
        if self._sessions == 1:  # Every client that does not stay restarts soon.
            return self.random.choice((1.0, 6.0, 8.0))
        return self.random.choice((1.0, 6.0, 8.0, 12.0, 20.0, 40.0))

    async def is_away(self) -> None:
        await asyncio.sleep(self.random.choice(self.away_s))


class Visits(Habits):
    """Habits with short sessions at given times. A subscriber that begins after the last fault stays."""

    def set_out(self, visits: list[tuple[float, float]], now: Callable[[], float]) -> None:
        """Set the visits: when each begins, and how long it lasts, in seconds."""
        self._visits, self._now = visits, now
        self.changes = False

    def stays_s(self, *, may_stay: bool = False) -> float | None:
        return None if may_stay and self.is_last() else self._lasts_s

    async def is_away(self) -> None:
        now_s = self._now()
        begins_s, self._lasts_s = next((one for one in self._visits if one[0] >= now_s), self._visits[-1])
        await asyncio.sleep(max(0.0, begins_s - now_s))


def draw_visits(
    random: Random, interest_s: float, begin_s: float, end_s: float
) -> dict[str, list[tuple[float, float]]]:
    """Draw visits of a publisher and a subscriber, so that all nodes leave their topic and join it again.

    Both meet. Then both are away until their nodes have lost interest in the topic. The publisher comes alone, and
    leaves. When its node has lost interest again, both meet again. The subscriber has missed what was published in
    between, and must not wait for it.
    """
    visits: dict[str, list[tuple[float, float]]] = {"source": [], "visitor": []}
    while begin_s < end_s:
        lost_s = interest_s + random.choice((1.5, 2.5))  # Leaving a topic in order takes a moment.
        visits["visitor"].append((begin_s, 3.5))
        visits["source"].append((begin_s + 2.0, 0.5))
        alone_s = begin_s + 3.5 + lost_s
        visits["source"].append((alone_s, 0.5))
        begin_s = alone_s + 0.5 + lost_s
    return visits


async def native_subscriber(slot: str, witness: Witness, habits: Habits, choose: Callable[[], list[str]]) -> None:
    """Subscribe, read for a while, perhaps change the topics, and end. Repeat this with new sessions."""
    random = habits.random
    while habits.has_time():
        await habits.is_away()
        address, topics = habits.goal(choose)
        client = Observed(address, habits.name(slot), witness, timeout_s=random.choice((2.0, 15.0)))
        pause_s = random.choice((0.0, 0.0, 0.0, 0.01, 0.2))
        try:
            async with client, asyncio.timeout(habits.stays_s(may_stay=True)):
                # At the end every client reads fast, because a message that is read too late counts as lost.
                reading = asyncio.ensure_future(client.read(lambda: 0.0 if habits.is_last() else pause_s))  # noqa: B023
                try:
                    await asyncio.gather(*(client.want(topic) for topic in topics))
                    await _change_topics(client, habits)
                finally:
                    client.finish()
                    reading.cancel()
        except (ClientError, TimeoutError, OSError) as error:
            client.finish()
            if not isinstance(error, TimeoutError):
                witness.troubles[f"native subscriber: {type(error).__name__}"] += 1


async def native_reader(slot: str, witness: Witness, habits: Habits, topic: str) -> None:
    """Subscribe to one topic and read until the run ends."""
    while True:
        with suppress(ClientError, OSError):
            async with Observed(habits.address(), slot, witness, timeout_s=15.0) as client:
                try:
                    await client.want(topic)
                    await client.read()
                finally:
                    client.finish()
        await habits.is_away()


async def _change_topics(client: Observed, habits: Habits) -> None:
    """Stay until cancelled. Some clients sometimes unsubscribe from a topic and subscribe again."""
    random = habits.random
    while True:
        await asyncio.sleep(random.choice((1.0, 3.0, 9.0)))
        if habits.may_change and random.random() < 0.4:
            topic = random.choice(list(client._topics))
            await client.want_no_more(topic)
            await asyncio.sleep(random.choice((0.0, 0.01, 0.3, 2.0)))
            await client.want(topic)


async def native_publisher(
    slot: str, witness: Witness, habits: Habits, choose: Callable[[], str], rate: float, size: int
) -> None:
    """Publish for a while, sometimes several messages at a time, and end. Repeat this with new sessions."""
    random = habits.random
    while habits.has_time():
        await habits.is_away()
        address, _ = habits.goal(lambda: None)
        client = Observed(address, habits.name(slot), witness, timeout_s=random.choice((2.0, 15.0)))
        window = random.choice((1, 1, 4, 20))
        try:
            async with client, asyncio.timeout(habits.stays_s()):
                try:
                    async with asyncio.TaskGroup() as group:
                        free = asyncio.Semaphore(window)
                        while habits.has_time():
                            await free.acquire()
                            task = group.create_task(client.say(choose(), size))
                            task.add_done_callback(lambda _: free.release())  # noqa: B023
                            await asyncio.sleep(random.expovariate(rate))
                finally:
                    client.finish()
        except (ClientError, TimeoutError, OSError) as error:
            client.finish()
            if not isinstance(error, TimeoutError):
                witness.troubles[f"native publisher: {type(error).__name__}"] += 1
