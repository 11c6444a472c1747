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
from typing import Any

import msgspec

from live.hostile_pieces import STORE_BYTES_MAX, HostilePieces
from live.lives import CLUSTER, DELIVERY, OMEN, peer_address
from trellis.live.admin import exposition, snapshot
from trellis.live.config import LimitsConfig, NodeConfig
from trellis.live.frames import (
    BODY_BYTES_MAX,
    CONTROL,
    CONTROLS,
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
from trellis.protocols.pieces import PIECES_MESSAGES, Packed, Pieces, PiecesMessage
from trellis.protocols.wire import FRAME_BYTES_MAX, WireError
from trellis.simulate.mesh.values import STRANGE_NODES, STRANGE_TOPICS, Values, kinds_of

HONEST = ("a", "b", "c")
PEERS = STRANGE_NODES
CLIENTS = ("one", "two", "three")
TOPICS = (*(f"t{number}" for number in range(6)), *STRANGE_TOPICS)
HOSTS = ("127.0.0.1", "localhost", "127.0.0.2", "::1")  # nothing is sent beyond this machine
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
        stream = node.client_port._accept() if self.is_client else node.transport._accept()
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
        self.values, self.codec = Values(self.random, (*HONEST, *PEERS), TOPICS, HOSTS), CODECS[overlay]
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
            enough = any if self.overlay == "magnet" else all  # Magnet's trees take their time
            while not enough(node.links for node in self.nodes):
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
        channel = node.mesh.delivery.state.channels.get(neighbor)
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
