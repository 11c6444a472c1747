"""Hostile peers and clients: programs that join by the real greeting and then do what nobody should.

| kind         | what it does                                                                             | lies |
| ------------ | ---------------------------------------------------------------------------------------- | ---- |
| stranger     | a peer that says any well-formed message at any time, with any names and numbers         | yes  |
| replay       | a peer of two nodes that says again what it has heard from either                        | yes  |
| deaf-peer    | a peer, a native client and an MQTT client that stop reading                             | no   |
| half-open    | opens connections to every port again and again, and says nothing (`crowds.py`)           | no   |
| crowd        | hundreds of MQTT clients that connect in one moment (`crowds.py`)                         | no   |
| flood        | floods of pings, of subscriptions, and of publications with QoS 0                        | no   |
| burst        | clients that restart under one name, and subscribe and unsubscribe in bursts (`bursts.py`)| no   |
| many-topics  | clients that publish on hundreds of new long topics within seconds                       | no   |
| malformed    | a peer that names nodes and hosts as nobody may be named (`malformed.py`)                 | no   |

A peer that *lies* may disturb the mesh as docs/tls.md says. The others break no promise to anybody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Protocol

import msgspec

from trellis.live.addresses import parse_address
from trellis.live.client import ClientError
from trellis.live.frames import (
    BODY_BYTES_MAX,
    CONTROL,
    CONTROLS,
    MESSAGE,
    PIECES,
    PROTOCOL,
    VERSION,
    Address,
    Addresses,
    Hello,
    Ping,
    Pong,
    Splitter,
    pack,
    pack_control,
    pack_message,
)
from trellis.live.talk import CLIENT_PROTOCOL, CLIENT_VERSION, Greet, Publish, Subscribe, Unsubscribe, pack_to_node
from trellis.protocols.delivery.messages import Frame
from trellis.protocols.mesh import CODECS
from trellis.protocols.mqtt import packets as p
from trellis.protocols.pieces import PIECES_MESSAGES, PiecesMessage
from trellis.protocols.wire import FRAME_BYTES_MAX, WireError
from trellis.simulate.mesh.mqtt import Connection, MqttFailed, greeting
from trellis.simulate.mesh.natives import Observed
from trellis.simulate.mesh.values import STRANGE_NODES, STRANGE_TOPICS, Values, kinds_of
from trellis.simulate.mesh.witness import Witness

LIES = ("stranger", "replay")
HONEST = ("deaf-peer", "half-open", "crowd", "flood", "burst", "many-topics", "malformed")
HOSTILE = (*LIES, *HONEST)

OVERLAY = "omen"
# What a peer answers to what a node says, with the same values in fields of the same name. So links come up with it.
_ANSWERS = {
    "AskHome": "HomeTells",
    "Connect": "ConnectOk",
    "ConnectOk": "LinkReady",
    "Disconnect": "DisconnectOk",
    "FindRecord": "FoundRecord",
    "Heartbeat": "Heartbeat",
    "Inquire": "Heartbeat",
    "Join": "JoinDone",
    "NewscastRequest": "NewscastReply",
    "Ping": "Pong",
    "Probe": "ProbeOk",
    "Record": "RecordOk",
    "Register": "Registered",
    "Report": "ReportOk",
    "TManRequest": "TManReply",
}
_RATE = 40.0  # messages of a stranger, a second
_AGAIN_S = 0.3  # before a connection that was cut is made again
_DEAF_BYTES = 60_000  # in a message that a client publishes to itself and does not read
_PINGS = 300  # in one go: some floods stay below what ends a stream, some do not
_TOPICS = (150, 800, 800)  # new ones in one burst
_QOS_0, _QOS_0_TIMES = 3_000, 4  # publications in one go, each half a second: a server computes 3 s for them all
_LONG_TOPICS, _LONG_LETTERS = 2_300, 480  # together more than a frame, and less than a node's limit


class Written(Protocol):
    """A session that the history knows."""

    def finish(self) -> None: ...


@dataclass
class Target:
    """The node that is attacked, and what there is to know about its mesh."""

    node: str
    peers: dict[str, str]  # by node, where it listens for other nodes
    clients: str  # where it listens for native clients
    mqtt: str  # where it, or the broker beside it, listens for MQTT clients
    cluster: str
    topics: tuple[str, ...]
    witness: Witness  # what hostile clients are promised is promised to them, too
    nowhere: str  # an address of a host on which nobody listens
    handshakes_max: int  # of the node
    is_site: bool  # `mqtt` is the broker's
    sessions: list[Written] = field(default_factory=list)  # that the attacker has begun, and the history knows


class Wire(asyncio.Protocol):
    """One connection."""

    def __init__(self, on_data: Callable[[bytes], None] = lambda _: None) -> None:
        self._on_data = on_data
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._may_write = asyncio.Event()
        self._may_write.set()

    async def connect(self, address: str) -> None:
        """Raises OSError."""
        await asyncio.get_running_loop().create_connection(lambda: self, *parse_address(address))

    @property
    def is_over(self) -> bool:
        return self.ended.done()

    def say(self, data: bytes) -> None:
        if self._transport is not None and not self.is_over:
            self._transport.write(data)

    async def drain(self) -> None:
        await self._may_write.wait()

    def stop_reading(self) -> None:
        if self._transport is not None and not self.is_over:
            self._transport.pause_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._on_data(data)

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._may_write.set()
        if not self.ended.done():
            self.ended.set_result(None)


class Peer:
    """A hostile peer of one node, on one stream after the other."""

    def __init__(self, name: str, target: Target, to: str, random: Random) -> None:
        self.name, self.target, self.to, self.random = name, target, to, random
        self.heard: deque[bytes] = deque(maxlen=100)  # frames
        self.on_message: Callable[[Any], None] = lambda _: None
        self.wire: Wire | None = None
        self.life = 0  # its incarnation

    async def connect(self) -> Wire:
        """Say hello as a node does. Raises OSError."""
        splitter = Splitter(BODY_BYTES_MAX)

        def read(data: bytes) -> None:
            for body in splitter.feed(data):
                self._take(wire, body)

        self.wire = wire = Wire(read)
        await wire.connect(self.target.peers[self.to])
        self.life = self.random.choice((1, 10_000_000, 700_000_000))
        place = Address(self.name, self.life, self.target.nowhere, 9)
        wire.say(pack_control(Hello(PROTOCOL, VERSION, self.target.cluster, OVERLAY, place)))
        return wire

    @property
    def is_over(self) -> bool:
        return self.wire is None or self.wire.is_over

    def _take(self, wire: Wire, body: bytes) -> None:
        if body[:1] != CONTROL:  # a second hello would end the stream
            self.heard.append(pack(body))
        with suppress(WireError):
            if body[:1] == CONTROL:
                if isinstance(CONTROLS.decode(body[1:]), Ping):
                    wire.say(pack_control(Pong()))
            elif body[:1] == MESSAGE:
                self.on_message(CODECS[OVERLAY].decode(body[1:]))


async def again(work: Callable[[], Awaitable[None]]) -> None:
    """Do something again and again, also after its connection was cut."""
    while True:
        with suppress(OSError, MqttFailed, ClientError, TimeoutError):
            await work()
        await asyncio.sleep(_AGAIN_S)


# Peers that lie


async def stranger(target: Target, random: Random) -> None:
    codec = CODECS[OVERLAY]
    hosts = (target.nowhere, "nowhere", *(parse_address(one)[0] for one in target.peers.values()))
    values = Values(random, (*target.peers, *STRANGE_NODES), (*target.topics, *STRANGE_TOPICS), hosts)
    values.wildness, values.unfit = random.choice((0.01, 0.05, 0.3)), random.choice((0.0, 0.02))
    kinds, session = kinds_of(codec.union), random.randrange(1, 2**40)
    others = [one for one in target.peers if one != target.node]
    name = random.choice(others) if others and random.random() < 0.2 else random.choice(STRANGE_NODES)
    peer, number = Peer(name, target, target.node, random), 0
    by_name = {kind.__name__: kind for kind in kinds}

    def hears(message: Any) -> None:
        """Answer as an honest peer would, most of the time. Most things are done only with peers that play along."""
        values.learn(message)
        kind = by_name.get(_ANSWERS.get(type(message).__name__, ""))
        if kind is None or peer.wire is None or random.random() < 0.2:
            return
        same = {one: getattr(message, one) for one in message.__struct_fields__ if one in kind.__struct_fields__}
        if "incarnation" in same:
            same["incarnation"] = peer.life
        with suppress(WireError):
            encoded = codec.encode(msgspec.structs.replace(values.message(kind), **same))
            if len(encoded) <= FRAME_BYTES_MAX:
                peer.wire.say(pack_message(encoded))

    peer.on_message = hears

    def frames() -> Iterator[bytes]:
        nonlocal number
        chance = random.random()
        if chance < 0.05:
            known = tuple(values.message(Address) for _ in range(random.choice((1, 3))))
            yield pack_control(Addresses(known))
        elif chance < 0.1:
            yield pack_message(PIECES_MESSAGES.encode(values.message(random.choice(kinds_of(PiecesMessage)))), PIECES)
        else:
            message = values.message(Frame if chance < 0.3 else random.choice(kinds))
            if isinstance(message, Frame) and random.random() < 0.8:  # as a link that goes on, so that it is taken in
                number += 1
                message = msgspec.structs.replace(message, session=session, number=number)
            encoded = codec.encode(message)
            if len(encoded) <= FRAME_BYTES_MAX:
                yield pack_message(encoded)

    async def talk() -> None:
        wire = await peer.connect()
        while not wire.is_over:
            await asyncio.sleep(random.expovariate(_RATE))
            with suppress(WireError):
                for frame in frames():
                    wire.say(frame)
            await wire.drain()

    await again(talk)


async def replay(target: Target, random: Random) -> None:
    to = [
        target.node,
        *random.sample([one for one in target.peers if one != target.node], min(1, len(target.peers) - 1)),
    ]
    peers = [Peer("replayer", target, one, random) for one in to]

    async def talk() -> None:
        for one in peers:
            if one.is_over:
                await one.connect()
        while not any(one.is_over for one in peers):
            await asyncio.sleep(random.expovariate(_RATE))
            heard, wire = random.choice(peers).heard, random.choice(peers).wire
            if heard and wire is not None:
                wire.say(random.choice(heard))

    await again(talk)


# Peers and clients that do not lie


async def deaf_peer(target: Target, random: Random) -> None:
    async def peer() -> None:
        wire = await Peer("deaf", target, target.node, random).connect()
        await asyncio.sleep(random.choice((0.05, 1.0)))
        wire.stop_reading()
        await wire.ended

    async def native() -> None:
        wire = Wire()
        await wire.connect(target.clients)
        wire.say(pack_to_node(Greet(CLIENT_PROTOCOL, CLIENT_VERSION, "deaf", 1)))
        wire.say(b"".join(pack_to_node(Subscribe(topic)) for topic in target.topics))
        wire.say(pack_to_node(Subscribe("deaf/own")))
        await asyncio.sleep(random.choice((0.05, 1.0)))
        wire.stop_reading()
        for number in count(1):
            if wire.is_over:
                break
            wire.say(pack_to_node(Publish(number, "deaf/own", bytes(_DEAF_BYTES))))
            await wire.drain()
            await asyncio.sleep(0.1)

    async def mqtt() -> None:
        one = Connection(p.V5, asyncio.get_running_loop().time, lambda _: None)
        await one.open(target.mqtt, greeting(p.V5, "deaf"))
        await one.ask(p.Subscribe(1, (p.Asked("m/#", 1), p.Asked("b/#", 1))), "SubAck", 1)
        one.pause_reading()
        await one.lost()

    await asyncio.gather(*map(again, (peer, native, mqtt)))


async def flood(target: Target, random: Random) -> None:
    async def pings() -> None:
        peer, ping = Peer("pinger", target, target.node, random), pack_control(Ping())
        wire = await peer.connect()
        while not wire.is_over:
            wire.say(ping * random.choice((_PINGS, 4 * _PINGS)))
            await wire.drain()
            await asyncio.sleep(1.0)

    async def subscriptions() -> None:
        wire = Wire()
        await wire.connect(target.clients)
        wire.say(pack_to_node(Greet(CLIENT_PROTOCOL, CLIENT_VERSION, "flood", 1)))
        while not wire.is_over:
            topics = [f"flood/{random.randrange(200)}" for _ in range(100)]
            wire.say(b"".join(pack_to_node(Subscribe(one)) for one in topics))
            wire.say(b"".join(pack_to_node(Unsubscribe(one)) for one in topics if random.random() < 0.7))
            await wire.drain()
            await asyncio.sleep(1.0)

    async def qos_0() -> None:
        one = Connection(random.choice((p.V311, p.V5)), asyncio.get_running_loop().time, lambda _: None)
        await one.open(target.mqtt, greeting(one.version, "flood"))
        for _ in range(_QOS_0_TIMES):
            for number in range(_QOS_0):
                one.send(p.Publish(topic=f"flood/{number % 3}", payload=b"", qos=0))
            await asyncio.sleep(0.5)
        await one.lost()

    await asyncio.gather(*map(again, random.choice(((qos_0,), (qos_0, pings, subscriptions)))))


async def many_topics(target: Target, random: Random) -> None:
    """Publish on new topics, or subscribe to so many long ones that a list of them outgrows a frame."""

    def new(letters: int = 120) -> str:
        return f"new/{random.getrandbits(64):x}/".ljust(letters, "x")

    topics = random.choice(_TOPICS)

    async def publish() -> None:
        async with Observed(target.clients, "topics", target.witness, timeout_s=40.0) as client:
            target.sessions.append(client)
            try:
                while True:
                    await asyncio.gather(*(client.say(new(), 16) for _ in range(topics)))
                    await asyncio.sleep(random.choice((1.0, 2.0)))
            finally:
                client.finish()

    async def subscribe() -> None:
        wire = Wire()
        await wire.connect(target.clients)
        wire.say(pack_to_node(Greet(CLIENT_PROTOCOL, CLIENT_VERSION, "reader", 1)))
        wire.say(b"".join(pack_to_node(Subscribe(new(_LONG_LETTERS))) for _ in range(_LONG_TOPICS)))
        await wire.ended

    async def mqtt() -> None:
        one = Connection(p.V5, asyncio.get_running_loop().time, lambda _: None)
        await one.open(target.mqtt, greeting(p.V5, "topics"))
        while not one.is_ended:
            for number in range(1, 30):
                one.send(p.Publish(topic=new(), payload=b"", qos=1, id=number))
            await asyncio.sleep(random.choice((1.0, 2.0)))

    await asyncio.gather(again(random.choice((publish, subscribe))), again(mqtt))


PROGRAMS: dict[str, Callable[[Target, Random], Coroutine[Any, Any, None]]] = {
    "stranger": stranger,
    "replay": replay,
    "deaf-peer": deaf_peer,
    "flood": flood,
    "many-topics": many_topics,
}
