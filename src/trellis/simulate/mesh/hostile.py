"""Attack nodes: peers and clients that connect with the real greeting and then misbehave.

| kind         | what it does                                                                             | lies |
| ------------ | ---------------------------------------------------------------------------------------- | ---- |
| stranger     | a peer that sends any well-formed message at any time, with any names and numbers        | yes  |
| replay       | a peer of two nodes that repeats what it has received from either                        | yes  |
| deaf-peer    | a peer, a native client and an MQTT client that stop reading                             | no   |
| half-open    | opens connections to every port again and again, and sends nothing (`crowds.py`)         | no   |
| crowd        | hundreds of MQTT clients that connect at the same moment (`crowds.py`)                   | no   |
| flood        | floods of pings, of subscriptions, and of publications with QoS 0                        | no   |
| burst        | clients that restart under one name, and subscribe in bursts (`bursts.py`)               | no   |
| many-topics  | clients that publish on hundreds of new long topics within seconds                       | no   |
| malformed    | a peer that sends names of nodes and hosts that are not allowed (`malformed.py`)         | no   |

A peer that *lies* may disturb the mesh as docs/tls.md says. The other attacks must break no promise to anybody.
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
# Type of a node's message -> type of a peer's answer. Fields of the same name get the same values, so links come up.
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
_RATE = 40.0  # messages per second of a stranger
_AGAIN_S = 0.3  # pause before a connection that was cut is opened again
_DEAF_BYTES = 60_000  # size of a message that a client publishes to itself and does not read
_PINGS = 300  # pings at once; some floods stay below the limit that ends a stream, some do not
_TOPICS = (150, 800, 800)  # number of new topics in one burst, drawn from these
# Publications at once, repeated every half second. A server computes for 3 s on all of them.
_QOS_0, _QOS_0_TIMES = 3_000, 4
_LONG_TOPICS, _LONG_LETTERS = 2_300, 480  # their lists exceed a frame, but not the limit of a node


class Written(Protocol):
    """A session that the history records."""

    def finish(self) -> None: ...


@dataclass
class Target:
    """The attacked node, and facts about its mesh."""

    node: str
    peers: dict[str, str]  # node -> address of its mesh port
    clients: str  # address of its client port
    mqtt: str  # address of its MQTT listener, or of the broker beside it
    cluster: str
    topics: tuple[str, ...]
    witness: Witness  # Promises hold for hostile clients as well, so they record what they see.
    nowhere: str  # address of a host on which nothing listens
    handshakes_max: int  # limit of the node
    is_site: bool  # True: `mqtt` is the address of a broker.
    # sessions that the attacker has begun and the history records
    sessions: list[Written] = field(default_factory=list)


class Wire(asyncio.Protocol):
    """One connection, without any protocol."""

    def __init__(self, on_data: Callable[[bytes], None] = lambda _: None) -> None:
        self._on_data = on_data
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._may_write = asyncio.Event()
        self._may_write.set()

    async def connect(self, address: str) -> None:
        """Connect to an address. Raise OSError if that fails."""
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
    """A hostile peer of one node. It may use several streams one after the other."""

    def __init__(self, name: str, target: Target, to: str, random: Random) -> None:
        self.name, self.target, self.to, self.random = name, target, to, random
        self.heard: deque[bytes] = deque(maxlen=100)  # the last frames received, without control frames
        self.on_message: Callable[[Any], None] = lambda _: None
        self.wire: Wire | None = None
        self.life = 0  # incarnation that it claims, drawn at every connection

    async def connect(self) -> Wire:
        """Connect and say hello as a node does. Raise OSError if that fails."""
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
        if body[:1] != CONTROL:  # Control frames are not kept: repeating a hello would end the stream.
            self.heard.append(pack(body))
        with suppress(WireError):
            if body[:1] == CONTROL:
                if isinstance(CONTROLS.decode(body[1:]), Ping):
                    wire.say(pack_control(Pong()))
            elif body[:1] == MESSAGE:
                self.on_message(CODECS[OVERLAY].decode(body[1:]))


async def again(work: Callable[[], Awaitable[None]]) -> None:
    """Repeat something for ever, also after its connection was cut."""
    while True:
        with suppress(OSError, MqttFailed, ClientError, TimeoutError):
            await work()
        await asyncio.sleep(_AGAIN_S)


# Peers that lie


async def stranger(target: Target, random: Random) -> None:
    """Send random messages of every type, and answer the node often enough that links come up."""
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
        """Answer as an honest peer would, most of the time. Much of the code runs only with peers that answer."""
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
            # Number it as the next frame of a link, so that the node accepts it.
            if isinstance(message, Frame) and random.random() < 0.8:
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
    """Repeat to two nodes what either of them has sent."""
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
    """Connect as a peer, a native client and an MQTT client, and stop reading."""

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
    """Send floods of publications with QoS 0, and in half of the cases of pings and subscriptions as well."""

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
    """Publish on new topics, or subscribe to so many long ones that a list of them exceeds a frame."""

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
