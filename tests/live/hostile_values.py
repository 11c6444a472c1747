"""Whole live nodes among peers and clients who say whatever the wire types allow.

Messages of every wire type are drawn with values that nobody should send: huge numbers, the node's own name, names and
topics that nobody knows, empty and very long lists, what a node itself has just said with one field changed. They go
into the `LiveNode`s of a small mesh through their own streams (`Stream.data_received`), so handshakes, decoding,
handlers, effects and timers are those of a process. Some are said in the name of an honest neighbor, with whom links
stand. Timers are fired by chance, about as often as messages come.

    PYTHONPATH=src:tests python -m live.hostile_values --overlay omen --inputs 250000 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import sys
import time
from collections import Counter, deque
from random import Random
from typing import Any, get_args

import msgspec
from msgspec import inspect

from live.hostile_pieces import STORE_BYTES_MAX, HostilePieces
from live.lives import CLUSTER, DELIVERY, OMEN, peer_address
from trellis.live.admin import exposition, snapshot
from trellis.live.config import LimitsConfig, NodeConfig
from trellis.live.frames import (
    BODY_BYTES_MAX,
    CONTROL,
    CONTROLS,
    HOST_PATTERN,
    MESSAGE,
    PIECES,
    PROTOCOL,
    VERSION,
    VERSION_OLDEST,
    Address,
    Control,
    Hello,
    Splitter,
    pack,
    pack_control,
    pack_message,
)
from trellis.live.metrics import resident_bytes
from trellis.live.run import run_loop
from trellis.live.shell import LiveNode
from trellis.live.stream import Stream
from trellis.live.talk import CLIENT_PROTOCOL, CLIENT_VERSION, TO_CLIENT, TO_NODE, Greet, ToNode, pack_to_node
from trellis.protocols.delivery.messages import Frame
from trellis.protocols.mesh import CODECS
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.envelope import Said, wrap
from trellis.protocols.pieces import PIECES_MESSAGES, Packed, Pieces, PiecesMessage
from trellis.protocols.pieces.messages import DIGEST_BYTES
from trellis.protocols.wire import FRAME_BYTES_MAX, NAME_LETTERS_MAX, NODE_LETTERS_MAX, NodeName, WireError

HONEST = ("a", "b", "c")
PEERS = ("x", "y", "~", "node of blanks", "\U0001f331", "z" * NODE_LETTERS_MAX)
CLIENTS = ("one", "two", "three")
TOPICS = (*(f"t{number}" for number in range(6)), "$mqtt/ask", "$mqtt/all", "$mqtt/in/t0", "t0/x", "#", "/", "\n", "\0")
NUMBERS = (0, 0, 1, 1, 2, 3, 7, 64, 255, 4_096, 2**31, 2**32, 2**53 - 1, 2**53, 2**62, 2**63 - 1)
HOSTS = ("127.0.0.1", "localhost", "127.0.0.2", "::1")  # nothing is sent beyond this machine
NODE_PATTERN = NodeName.__metadata__[0].pattern
QUICK = {"listen": "127.0.0.1:0", "client_listen": "127.0.0.1:0", "delivery": DELIVERY, "omen": OMEN}
# What a peer answers to what the node says: fields of the same name are those of the question, as a rule.
ANSWERS = {
    "Ask": ("Answer",),
    "AskHome": ("HomeTells",),
    "Beat": ("Beat",),
    "Climb": ("Descend",),
    "Connect": ("ConnectOk", "Redirect"),
    "ConnectOk": ("LinkReady", "Heartbeat"),
    "Descend": ("Ping",),
    "Disconnect": ("DisconnectOk",),
    "FindRecord": ("FoundRecord",),
    "Heartbeat": ("Heartbeat", "LinkReady"),
    "Inquire": ("Heartbeat",),
    "Join": ("JoinDone", "Churn"),
    "Locate": ("Located",),
    "NewscastRequest": ("NewscastReply",),
    "OpenLink": ("LinkOpened",),
    "Ping": ("Pong",),
    "Place": ("Placed",),
    "Probe": ("ProbeOk",),
    "Profile": ("Profile",),
    "Record": ("RecordOk",),
    "Register": ("Registered",),
    "Report": ("ReportOk",),
    "RootReport": ("RootHeard", "RootMeet"),
    "Spread": ("SpreadBack",),
    "Stabilise": ("Neighbors",),
    "TManRequest": ("TManReply",),
    "ToHome": ("View", "Descend"),
    "Walk": ("Walked",),
}
OWN_LIFE = {"Answer", "Connect", "ConnectOk", "Heartbeat", "Join", "LinkReady", "Pong", "Profile", "Record"}


def kinds_of(union: Any) -> list[Any]:
    """The types of a union of unions."""
    parts = get_args(union)
    return [kind for part in parts for kind in kinds_of(part)] if parts else [union]


class Values:
    """Draws values of any type that crosses the wire."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.numbers: deque[int] = deque(maxlen=64)  # that the node has said lately: most numbers refer to them
        self.names: deque[str] = deque(maxlen=32)
        self.topics: deque[str] = deque(maxlen=32)
        self.digests: deque[bytes] = deque(maxlen=64)  # of pieces that the node has asked for, or referred to
        self.said: dict[type, deque[Any]] = {}
        self.wildness = 0.2  # the share of names and topics that nobody knows
        self._types: dict[Any, inspect.Type] = {}

    def message(self, kind: Any) -> Any:
        """A new one, or one that the node has said with some of it changed."""
        said = self.said.get(kind)
        if said and self.random.random() < 0.4:
            return self.changed(self.random.choice(said))
        return self._draw(self._type(kind))

    def learn(self, message: Any) -> None:
        self.said.setdefault(type(message), deque(maxlen=8)).append(message)
        for field in message.__struct_fields__:
            value = getattr(message, field)
            if type(value) is int:
                self.numbers.append(value)
            elif type(value) is str and field in ("node", "origin", "peer", "root"):
                self.names.append(value)
            elif type(value) is bytes and len(value) == DIGEST_BYTES:
                self.digests.append(value)
            elif type(value) is tuple and value and type(value[0]) is bytes:
                self.digests += value
            elif type(value) is tuple and value and isinstance(value[0], msgspec.Struct):
                self.learn(value[0])

    def _type(self, kind: Any) -> inspect.Type:
        found = self._types.get(kind)
        if found is None:
            found = self._types[kind] = inspect.type_info(kind)
        return found

    def changed(self, message: Any) -> Any:
        """The message with a field or two drawn anew."""
        info = self._type(type(message))
        fields = {one.name: one.type for one in info.fields}  # type: ignore[attr-defined]
        if not fields:
            return message
        changed = self.random.sample(list(fields), min(len(fields), self.random.choice((0, 1, 1, 2))))
        return msgspec.structs.replace(message, **{name: self._draw(fields[name]) for name in changed})

    def _draw(self, kind: inspect.Type) -> Any:
        random = self.random
        match kind:
            case inspect.StructType(cls=cls, fields=fields):
                return cls(**{field.name: self._draw(field.type) for field in fields})
            case inspect.UnionType(types=types):
                return self._draw(random.choice(types))
            case inspect.IntType(ge=low, le=high):
                return self._number(-(2**63) if low is None else low, 2**63 - 1 if high is None else high)
            case inspect.StrType(pattern=pattern):
                return self._text(kind, pattern)
            case inspect.BytesType(min_length=least, max_length=most) if least is not None and least == most:
                is_known = self.digests and random.random() < 0.7
                return random.choice(self.digests) if is_known else random.randbytes(least)
            case inspect.BytesType(min_length=least, max_length=most):
                return self._bytes(most) or bytes(least or 0)
            case inspect.VarTupleType(item_type=item, min_length=least, max_length=most):
                return self._list(item, most) or tuple(self._draw(item) for _ in range(least or 0))
            case inspect.TupleType(item_types=items):
                return tuple(map(self._draw, items))
            case inspect.BoolType():
                return random.random() < 0.5
            case inspect.NoneType():
                return None
            case inspect.LiteralType(values=values):
                return random.choice(values)
        raise TypeError(f"no values for {kind}")

    def _number(self, low: int, high: int) -> int:
        random = self.random
        if self.numbers and random.random() < 0.5:
            found = random.choice(self.numbers) + random.choice((-1, 0, 0, 0, 0, 1))
        else:
            found = random.choice(NUMBERS) if random.random() < 0.8 else random.choice((low, high))
        return min(max(found, low), high)

    def _text(self, kind: inspect.StrType, pattern: str | None) -> str:
        random = self.random
        if pattern == NODE_PATTERN:
            if self.names and random.random() < 0.3:
                return random.choice(self.names)
            is_known = random.random() > self.wildness
            return random.choice((*HONEST, *PEERS)) if is_known else f"u{random.randrange(10**9)}"
        if pattern == HOST_PATTERN:
            return random.choice(HOSTS)
        if kind.max_length == NAME_LETTERS_MAX:
            if random.random() > self.wildness:
                found = random.choice(TOPICS)
            else:
                found = f"q{random.randrange(10**12)}" + ("/" * random.choice((0, 0, 0, 400)))
        else:
            found = random.choice(("omen", "x", PROTOCOL, CLIENT_PROTOCOL, "self", "t0", "long " * 100, "q/w"))
        if pattern is not None:
            found = found.replace("\n", "n").replace("\0", "0")
        found = found[: kind.max_length or 512]
        return found if len(found) >= (kind.min_length or 0) else "s"

    def _bytes(self, most: int | None) -> bytes:
        match self.random.randrange(20):
            case 0:
                return b"\xff" * min(most or 64, 70_000)
            case number if number < 8:
                return self.random.randbytes(self.random.randrange(min(20, (most or 20) + 1)))
            case number if number < 12 and (most is None or most > 4_096):
                try:
                    return wrap(self._draw(self._type(self.random.choice(kinds_of(Said)))))
                except WireError:
                    return b""
        return b""

    def _list(self, item: inspect.Type, most: int | None) -> tuple[Any, ...]:
        most, chance = 16 if most is None else most, self.random.random()
        if chance < 0.95:
            return tuple(self._draw(item) for _ in range(min(most, self.random.choice((0, 1, 1, 2, 3, 5)))))
        if chance < 0.998:
            return tuple(self._draw(item) for _ in range(min(most, self.random.randrange(80))))
        return (self._draw(item),) * min(most, 600)


class Pipe(asyncio.Transport):
    """The socket of a stream: what the node says is read by the other end at once."""

    def __init__(self, stream: Stream, read: Any) -> None:
        super().__init__()
        self.stream, self.read, self.is_over = stream, read, False
        self.splitter = Splitter(BODY_BYTES_MAX)

    def write(self, data: Any) -> None:
        if not self.is_over:
            for body in self.splitter.feed(bytes(data)):
                self.read(body)

    def close(self) -> None:
        if not self.is_over:
            self.is_over = True
            asyncio.get_running_loop().call_soon(self.stream.connection_lost, None)

    abort = close

    def lose(self) -> None:
        if not self.is_over:
            self.is_over = True
            self.stream.connection_lost(ConnectionResetError())

    def is_closing(self) -> bool:
        return self.is_over

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Speaker:
    """A peer or a client of the node: says hello, and then anything."""

    def __init__(self, trial: Trial, node: LiveNode, name: str, is_client: bool) -> None:
        self.trial, self.node, self.name, self.is_client = trial, node, name, is_client
        self.session, self.number, self.heard, self.upto = trial.random.randrange(1, 2**40), 0, 0, 0
        self.incarnation = trial.random.choice((1, 7, 2**40))
        self.pipe: Pipe | None = None

    def say(self, frame: bytes) -> None:
        if self.pipe is None or self.pipe.is_over or self.pipe.stream.is_ended:
            self.connect()
        if self.pipe is not None:
            self.pipe.stream.data_received(frame)

    def connect(self) -> None:
        node, random = self.node, self.trial.random
        stream = node.door._accept() if self.is_client else node.transport._accept()
        if stream is None:
            self.pipe = None
            return
        self.pipe = Pipe(stream, self.read)
        stream.connection_made(self.pipe)
        if self.is_client:
            stream.data_received(pack_to_node(Greet(CLIENT_PROTOCOL, CLIENT_VERSION, self.name)))
        else:
            place = Address(self.name, random.choice((*[self.incarnation] * 9, 1, 2**53)), "127.0.0.1", 9)
            version = random.choice((*[VERSION] * 9, VERSION_OLDEST))
            hello = Hello(PROTOCOL, version, CLUSTER, self.trial.overlay, place)
            stream.data_received(pack_control(hello))

    def read(self, body: bytes) -> None:
        if self.is_client:
            TO_CLIENT.decode(body)
            return
        if body[:1] == PIECES:
            self.trial.answers += [(self, frame) for frame in self.trial.pieces.answers(body[1:])]
            return
        try:
            message = self.trial.codec.decode(body[1:]) if body[:1] == MESSAGE else CONTROLS.decode(body[1:])
        except WireError:  # `Checked` has seen it
            return
        if type(message) is Frame:
            self.heard, self.upto = message.session, max(message.number, self.upto * (message.session == self.heard))
        self.answer(message)
        self.trial.values.learn(message)

    def answer(self, question: Any) -> None:
        """Most things a node does only with a peer that plays along for a while."""
        random, kinds = self.trial.random, self.trial.by_name
        names = [name for name in ANSWERS.get(type(question).__name__, ()) if name in kinds]
        if not names or random.random() < 0.3:
            return
        kind = kinds[random.choice(names)]
        fields = kind.__struct_fields__
        same = {name: getattr(question, name) for name in question.__struct_fields__ if name in fields}
        if kind.__name__ in OWN_LIFE and "incarnation" in fields:
            same["incarnation"] = self.incarnation
        if "life" in fields:
            same["life"] = self.incarnation
        same = {name: value for name, value in same.items() if random.random() < 0.9}
        try:
            answer = msgspec.structs.replace(self.trial.values.message(kind), **same)
            encoded = self.trial.codec.encode(answer)
        except WireError:  # longer than any message
            return
        if len(encoded) <= FRAME_BYTES_MAX:
            self.trial.answers.append((self, pack_message(encoded)))

    def framed(self, frame: Frame) -> Frame:
        """As a peer that keeps its session would send it: so its items are taken in."""
        self.number += 1
        return msgspec.structs.replace(
            frame, session=self.session, number=self.number, heard=self.heard, upto=self.upto
        )


class Checked:
    """The codec of a node, which notes what the node says and no other node takes: it would be cut off for that."""

    def __init__(self, codec: Any, faults: Counter[str]) -> None:
        self.codec, self.faults, self.decode, self.union = codec, faults, codec.decode, codec.union

    def encode(self, message: Any) -> bytes:
        data: bytes = self.codec.encode(message)
        try:
            self.codec.decode(data)
        except WireError as error:
            self.faults[f"{type(message).__name__}: {error}"] += 1
        return data


class Trial:
    def __init__(self, overlay: str, seed: int) -> None:
        self.overlay, self.random = overlay, Random(seed)
        self.values, self.codec = Values(self.random), CODECS[overlay]
        self.kinds = kinds_of(self.codec.union)
        self.pieces = HostilePieces(self.codec, self.random, self.values)
        self.by_name = {kind.__name__: kind for kind in self.kinds}
        self.answers: deque[tuple[Speaker, bytes]] = deque(maxlen=200)
        self.speakers: list[Speaker] = []
        self.clients: list[Speaker] = []
        self.tried: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.nodes: list[LiveNode] = []

    async def run(self, inputs: int) -> dict[str, Any]:
        mqtt, limits = MqttConfig(listen="127.0.0.1:0"), LimitsConfig(backoff_s=0.5)
        fields: dict[str, Any] = {**QUICK, "topics": TOPICS[:3], "mqtt": mqtt, "limits": limits}
        sizes: list[tuple[int, int]] = []  # of the process, and of /metrics
        began = time.monotonic()
        try:
            for name in HONEST:
                seeds = tuple(peer_address(node) for node in self.nodes[:1])
                node = LiveNode(NodeConfig(name=name, cluster=CLUSTER, overlay=self.overlay, seeds=seeds, **fields))
                node.codec = Checked(node.codec, self.faults)  # type: ignore[assignment]
                node.pieces = node.exchange.pieces = Pieces(node.codec, STORE_BYTES_MAX)
                await node.start()
                self.nodes.append(node)
                self.speakers += [Speaker(self, node, peer, False) for peer in PEERS]
                self.clients += [Speaker(self, node, client, True) for client in CLIENTS]
            while not all(node.links or self.overlay == "magnet" for node in self.nodes):
                await asyncio.sleep(0.01)
            for number in range(1, inputs + 1):
                self._one(number)
                if number % 32 == 0:
                    await asyncio.sleep(0)
                if number % 1_000 == 0:  # calm times, in which links come up, and wild ones
                    self.values.wildness = self.random.choice((0.01, 0.05, 0.3))
                if number % max(1, inputs // 20) == 0:
                    sizes.append((resident_bytes(), sum(len(exposition(node).splitlines()) for node in self.nodes)))
                    for node in self.nodes:
                        msgspec.json.encode(snapshot(node))
                        node.pieces.check()
                assert not any(node.failure or node._gone.is_set() for node in self.nodes), "a node has ended"
        finally:
            for node in self.nodes:
                await node.stop(in_order=False)
        return {
            "overlay": self.overlay,
            "inputs": inputs,
            "seconds": round(time.monotonic() - began),
            "kinds": len(self.tried),
            "bytes": [size for size, _ in sizes],
            "metrics": [lines for _, lines in sizes],
            "names": [len(node.mesh.overlay.table.names) for node in self.nodes],
            "faults": dict(self.faults),
            "bugs": sum(node.counters["bugs"] for node in self.nodes),
            "pieces": sum((node.pieces.counters for node in self.nodes), Counter()),
            "tried": dict(sorted(self.tried.items())),
            "counted": sum((Counter(node.metrics()) for node in self.nodes), Counter()),
        }

    def _one(self, number: int) -> None:
        random = self.random
        # What is rare comes by the number: by chance alone a short trial might have none of it.
        if number % 500 == 250:
            self.tried["garbage"] += 1
            random.choice((*self.speakers, *self.clients)).say(pack(random.randbytes(random.randrange(1, 40))))
            return
        if number % 500 == 0:
            speaker = random.choice((*self.speakers, *self.clients))
            if speaker.pipe is not None:
                speaker.pipe.lose()
            self.tried["lost stream"] += 1
            return
        match random.random():
            case chance if chance < 0.3 and self.answers:
                speaker, frame = self.answers.popleft()
                self.tried["answer"] += 1
                speaker.say(frame)
            case chance if chance < 0.66:
                self._mesh_message()
            case chance if chance < 0.72:
                self._pieces_message()
            case chance if chance < 0.75:
                kind = min(kinds_of(Control), key=lambda one: self.tried[f"control {one.__name__}"])
                message = self._harmless(self.values.message(kind))
                self.tried[f"control {kind.__name__}"] += 1
                random.choice(self.speakers).say(pack(CONTROL + CONTROLS.encode(message)))
            case chance if chance < 0.84:
                kind = random.choice(kinds_of(ToNode))
                self.tried[f"client {kind.__name__}"] += 1
                random.choice(self.clients).say(pack(TO_NODE.encode(self.values.message(kind))))
            case chance if chance < 0.97:
                node = random.choice(self.nodes)
                tag = random.choice(list(node.timers.pending))
                node.timers.pending[tag].cancel()
                self.tried["timer"] += 1
                node.timers._fire(tag)
            case _:
                self._mesh_message()

    def _mesh_message(self) -> None:
        kind = self.random.choice(self.kinds) if self.random.random() < 0.85 else Frame
        speaker, message = self.random.choice(self.speakers), self.values.message(kind)
        neighbor = self.random.choice(HONEST) if self.random.random() < 0.3 else ""
        if type(message) is Frame:
            if self.random.random() < 0.8:
                message = self._spoofed(speaker.node, neighbor, message) if neighbor else speaker.framed(message)
            for item in message.items:
                self.tried[f"item {type(item).__name__}"] += 1
        try:
            encoded = self.codec.encode(message)
        except WireError:  # longer than any message
            return
        if len(encoded) > FRAME_BYTES_MAX:
            return
        self.tried[kind.__name__] += 1
        if neighbor:
            with contextlib.suppress(WireError):
                speaker.node.exchange.on_message(neighbor, encoded)
        else:
            speaker.say(pack_message(encoded))

    def _pieces_message(self) -> None:
        """In the name of a neighbor, only the neighbor itself is asked for pieces. It has those of honest messages."""
        random, kind = self.random, self.random.choice((*kinds_of(PiecesMessage), Packed))
        try:
            message = self.pieces.message(kind, self.values.message(random.choice(self.kinds)))
            encoded = PIECES_MESSAGES.encode(message)
        except WireError:  # longer than a frame or a piece
            return
        self.tried[f"pieces {kind.__name__}"] += 1
        speaker = random.choice(self.speakers)
        if random.random() < 0.2:
            with contextlib.suppress(WireError):
                speaker.node.exchange.on_pieces(random.choice(HONEST), encoded)
        else:
            speaker.say(pack_message(encoded, PIECES))

    def _spoofed(self, node: LiveNode, neighbor: str, frame: Frame) -> Frame:
        """The next frame of a neighbor, if there is a link to it."""
        channel = node.mesh.delivery.state.links.get(neighbor)
        if channel is None:
            return frame
        session, number = channel.peer_session, channel.upto + 1
        return msgspec.structs.replace(
            frame, session=session, number=number, heard=channel.session, upto=self.random.choice((channel.sent, 0))
        )

    def _harmless(self, message: Any) -> Any:
        """Addresses lead nowhere but to ports of this machine on which nobody listens."""
        match message:
            case Address():
                host, port = self.random.choice(HOSTS), self.random.choice((1, 9))
                return msgspec.structs.replace(message, host=host, port=port)
            case Hello():
                return msgspec.structs.replace(message, address=self._harmless(message.address))
            case _ if hasattr(message, "known"):
                return type(message)(tuple(map(self._harmless, message.known)))
        return message


def try_hostile_values(overlay: str, inputs: int, seed: int) -> dict[str, Any]:
    async def work() -> dict[str, Any]:
        return await Trial(overlay, seed).run(inputs)

    return run_loop(work())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--overlay", choices=sorted(CODECS), default="omen")
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    sys.stdout.write(json.dumps(try_hostile_values(given.overlay, given.inputs, given.seed), indent=1) + "\n")
