"""The MQTT listener: sockets and the clock around `protocols/mqtt/host.py`.  [docs/mqtt.md]

Every input (a packet, a message of the mesh, a timer) goes to the host, and the host's effects are then carried out.
Inputs that come from the node while it carries out its own effects are taken in at once, but their effects wait until
the node is done (`_soon`). Otherwise they would overtake the node's effects.

It also owns the sidecar, which is a client of the host with connection number 0.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial

from trellis import __version__
from trellis.live.access import Gate, Proven
from trellis.live.client_port import Broker
from trellis.live.clock import monotonic_s, wall_ms
from trellis.live.config import LimitsConfig
from trellis.live.listen import Listener
from trellis.live.mqtt.aside import Aside
from trellis.live.mqtt.certificate import load_certificate
from trellis.live.mqtt.ready import Readiness
from trellis.live.mqtt.sidecar import Sidecar
from trellis.live.mqtt.streams import MqttStream, WebSocketStream
from trellis.live.stream import Stream, StreamLimits, StreamOwner
from trellis.live.tls import Credentials
from trellis.protocols.delivery.outcome import Acknowledged, Confirmed, NotAcknowledged, Outcome, Published
from trellis.protocols.effects import Deliver, Incarnation, NodeId
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.decode import decode_from_client
from trellis.protocols.mqtt.effects import Check, Close, Emit, MqttEffect, Pause, ToClient, Unwant, Want
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import answered_in, version_of
from trellis.protocols.mqtt.host import Host
from trellis.protocols.mqtt.primitives import PacketError

log = logging.getLogger("trellis.live")

CLIENT = "$mqtt"  # The publisher of all our publications. The client port refuses names that begin with "$".
_TICK_S = 0.2
_SIDECAR = 0  # the sidecar's connection number; streams count from 1
# Connections allowed beyond `clients_max`: they are refused with a CONNACK, or take a session over.
ARRIVING_MAX = 1_024
_PAUSE_S = 0.005  # pause between two parts of work that is too much for one turn of the loop
_TURN_PACKETS = 64  # most packets of one client in one turn of the loop, so that other clients get their turn


class MqttListener(StreamOwner):
    """The node's MQTT broker on sockets."""

    def __init__(
        self,
        broker: Broker,
        node: NodeId,
        incarnation: int,
        config: MqttConfig,
        limits: LimitsConfig,
        gate: Gate,
        proves_copies: bool = False,
    ) -> None:
        """`proves_copies`: an acknowledgement with one copy proves that no other node subscribes."""
        self.gate = gate
        self.broker, self.node, self.config, self.limits = broker, node, config, limits
        self.host = Host(node, Incarnation(incarnation), config)
        self.host.state.refusal, self.host.state.access = broker.refusal, gate.access
        self.host.sys_topics.version = f"trellis version {__version__}"
        self.traffic = self.host.state.traffic
        self.streams: dict[int, MqttStream] = {}
        self.counters: Counter[str] = Counter()
        self.aside = Aside(node)
        self._loop = asyncio.get_running_loop()
        self._stream_limits = StreamLimits(
            buffer_bytes=limits.buffer_bytes, queue_bytes=config.queue_bytes, stall_s=limits.stall_s
        )
        self._proves_copies = proves_copies
        self._listeners: list[Listener] = []  # of TCP, and of WebSocket
        self.sidecar: Sidecar | None = None
        self.readiness: Readiness | None = None  # set when the sidecar has started
        self.tls: Credentials | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._checks: set[asyncio.Task[None]] = set()
        self.port = self.websocket_port = self._number = 0
        self._is_running = self._is_due = self._is_closed = self._is_going_on = False

    def bind(self) -> None:
        """Bind the port. Nothing is accepted before `serve`."""
        if self.config.broker:
            begun = partial(self.host.begin_anew, _SIDECAR)
            self.sidecar = Sidecar(self.node, self.config, self._stream_limits, self._from_sidecar, begun)
        if self.config.cert:
            files = (self.config.cert, self.config.key, self.config.ca)
            self.tls = Credentials(self.node, "mqtt", files, partial(load_certificate, self.config))
        if self.config.listen:
            self.port = self._bind(self.config.listen, MqttStream)
        if self.config.websocket:
            self.websocket_port = self._bind(self.config.websocket, WebSocketStream)

    def _bind(self, address: str, kind: type[MqttStream]) -> int:
        """Bind one port, and return its number."""
        handshakes = (self.limits.handshake_s, self.limits.handshakes_max)
        listener = Listener(
            *(address, partial(self._accept, kind), self.tls, self.counters, *handshakes),
            is_known=lambda stream: stream.number not in self.host.arriving,
            burst_max=self.config.clients_max + ARRIVING_MAX,  # all clients may reconnect at the same moment
            has_proxy=self.config.proxy_protocol,
        )
        self._listeners.append(listener)
        return listener.port

    def serve(self) -> None:
        """Accept clients, and start the sidecar."""
        self._do(self.host.start)
        for listener in self._listeners:
            listener.serve()
        if self.sidecar is not None:
            self._do(self._attach)
            self.sidecar.serve()
        self._tick = self._loop.call_later(_TICK_S, self._on_tick)

    def close(self, *, in_order: bool = True) -> None:
        """Stop. `in_order`: tell clients and other nodes first."""
        if self._tick is not None:
            self._tick.cancel()
        if self.sidecar is not None:
            self.sidecar.close(in_order=in_order)
        if in_order:
            self._do(self.host.shut_down)
        self._is_closed = True
        for stream in list(self.streams.values()):
            if not in_order:
                stream.cut("closed")
            else:
                stream.close()

    async def closed(self) -> None:
        """Wait until everything has ended."""
        for listener in self._listeners:
            await listener.close()
        if self.sidecar is not None:
            await self.sidecar.closed()
        for task in self._checks:
            task.cancel()
        await asyncio.gather(*self._checks, return_exceptions=True)
        while self.streams:
            await asyncio.sleep(0.01)

    def metrics(self) -> dict[str, int]:
        """Return all counters as numbers by name."""
        host, sidecar = self.host, self.sidecar.bridge.counters if self.sidecar is not None else {}
        memory = self.sidecar.memory if self.sidecar is not None else None
        return {
            **self.counters,
            **host.counters,
            **(memory.metrics() if memory is not None else {}),
            **{f"sidecar {key}": value for key, value in sidecar.items()},
            **{f"directory {key}": value for key, value in host.directory.counters.items()},
            "clients": len(host.by_connection),
            "sessions": len(host.sessions),
            "filters": host.tree.count,
            "filter bytes": host.state.filter_bytes,
            "retained": len(host.retained),
        }

    def complaints(self) -> list[str]:
        """Return what keeps messages from flowing here, one sentence each."""
        if self.sidecar is None:
            return self.aside.complaints()
        return [
            *self.aside.complaints(),
            *self.sidecar.complaints(),
            *(self.readiness.refused() if self.readiness is not None else ()),
        ]

    def unready(self) -> list[str]:
        """Return what a sidecar that has just started waits for, one sentence each."""
        return self.readiness.pending() if self.readiness is not None else []

    # Inputs from the node

    def deliver(self, delivery: Deliver) -> None:
        """Take in a publication that the mesh has delivered."""
        if delivery.topic in self.host.interests.wanted:
            self._soon(partial(self.host.delivered, delivery.topic, delivery.origin, delivery.payload))

    def tell(self, outcome: Outcome) -> None:
        """Take in an outcome of delivery."""
        match outcome:
            case Acknowledged(client_id=(client, _, number)) if client == CLIENT:
                others = outcome.copies - 1 if self._proves_copies else None
                self._soon(partial(self.host.acknowledged, number, others))
            case NotAcknowledged(client_id=(client, _, number)) if client == CLIENT:
                if self.host.publications.is_awaited(number):
                    log.warning("%s: a publication on %s was refused: %s", self.node, outcome.topic, outcome.reason)
                is_taken = outcome.sequence > 0
                self._soon(partial(self.host.not_acknowledged, number, outcome.reason, is_taken=is_taken))
            case Confirmed(topic) if topic in self.host.interests.wanted:
                self._soon(partial(self.host.confirmed, topic))
            case Published(topic=topic, client_id=(client, _, _)) if client != CLIENT:
                self._soon(partial(self.host.noticed, topic))

    # Streams

    def _accept(self, kind: type[MqttStream]) -> Stream | None:
        if self._is_closed or len(self.streams) >= self.config.clients_max + ARRIVING_MAX:
            return None
        self._number += 1
        return kind(self, self._stream_limits, self._number, self.config.packet_bytes_max)

    def opened(self, stream: Stream) -> None:
        assert isinstance(stream, MqttStream)
        self.streams[stream.number] = stream
        self.traffic.sockets += 1
        stream.timer = self._loop.call_later(self.limits.handshake_s, self._is_late, stream)
        self._do(partial(self.host.opened, stream.number))

    def received(self, stream: Stream, body: bytes) -> None:
        raise AssertionError("MQTT streams have no frames")

    def ended(self, stream: Stream) -> None:
        assert isinstance(stream, MqttStream)
        self.streams.pop(stream.number, None)
        if stream.timer is not None:
            stream.timer.cancel()
        if stream.why not in ("", "closed"):
            self.counters[f"cut {stream.why}"] += 1
            log.info("%s: cut off an MQTT client: %s", self.node, stream.why)
        is_by_client = not stream.why and not stream.is_closing and stream.error is None
        self._soon(partial(self.host.closed, stream.number, is_by_client))

    def fed(self, stream: MqttStream) -> None:
        """Process complete packets while the client is read, and no more than its share of this turn."""
        if stream.is_queued:
            return
        left = _TURN_PACKETS
        try:
            if not stream.version and stream.framing.kind not in (None, p.CONNECT):
                raise PacketError("the first packet is no CONNECT", reasons.PROTOCOL_ERROR)
            for first, body in stream.framing.packets():
                if not stream.version:
                    version = version_of(first, body)
                    stream.version = answered_in(version)
                    if version not in p.VERSIONS:
                        raise PacketError(f"MQTT version {version}", reasons.VERSION)
                packet = decode_from_client(stream.version, first, body)
                self.traffic.received(packet)
                self._do(partial(self.host.received, stream.number, packet))
                if stream.is_waiting or stream.is_closing or stream.is_ended or not stream.is_reading:
                    return
                left -= 1
                if not left and stream.framing:
                    stream.is_queued = True
                    self._read_or_not(stream)
                    self._loop.call_soon(self._next_turn, stream)
                    return
        except PacketError as error:
            stream.is_closing = True
            self.counters[f"cut {reasons.name(error.reason)}"] += 1
            self._do(partial(self.host.failed, stream.number, error, stream.version))

    def _next_turn(self, stream: MqttStream) -> None:
        """Continue with a client whose packets were too many for the last turn."""
        stream.is_queued = False
        if not stream.is_ended and not stream.is_closing:
            self.fed(stream)
            self._read_or_not(stream)

    def _read_or_not(self, stream: MqttStream) -> None:
        """Pause or resume reading from a client."""
        if stream.is_reading and not stream.is_queued:
            stream.resume_reading()
        else:
            stream.pause_reading()

    def _is_late(self, stream: MqttStream) -> None:
        """Disconnect a client that has not sent CONNECT in time."""
        if stream.number in self.host.arriving:
            stream.cut("handshake")

    def _go_on(self) -> None:
        self._is_going_on = False
        self._do(self.host.go_on)

    def _on_tick(self) -> None:
        self._do(self.host.tick)
        if self.sidecar is not None:
            self.sidecar.tick()
        self._tick = self._loop.call_later(_TICK_S, self._on_tick)

    # Effects

    def _do(self, what: Callable[[], None]) -> None:
        """Give the host an input, and carry out its effects.

        Never called while the node carries out its own effects: the host's would overtake them.
        """
        if not self._is_closed:
            self._take_in(what)
            self._carry_out_all()

    def _soon(self, what: Callable[[], None]) -> None:
        """Give the host an input while the node carries out its own effects. The host's effects follow after those."""
        if not self._is_closed:
            self._take_in(what)
            if not self._is_running and not self._is_due:
                self._is_due = True
                self._loop.call_soon(self._carry_out_all)

    def _take_in(self, what: Callable[[], None]) -> None:
        """Tell the host the time, and give it an input."""
        self.host.at(int(monotonic_s() * 1_000), wall_ms())
        what()

    def _carry_out_all(self) -> None:
        """Carry out the host's effects, until there are no more."""
        self._is_due = False
        if self._is_running:
            return
        self._is_running = True
        try:
            while effects := self.host.take():
                for effect in effects:
                    self._carry_out(effect)
        finally:
            self._is_running = False
        if self.host.has_more and not self._is_going_on:
            self._is_going_on = True
            self._loop.call_later(_PAUSE_S, self._go_on)

    def _carry_out(self, effect: MqttEffect) -> None:
        match effect:
            case ToClient(number, packet):
                self._send(number, packet)
            case Emit(topic, payload, number):
                if not self.host.holds_back(effect):
                    self.broker.publish(topic, payload, (CLIENT, 0, number))
            case Want(topic):
                self.broker.subscribe(topic)
                if self.broker.is_confirmed(topic):
                    self.host.confirmed(topic)
            case Unwant(topic):
                self.broker.unsubscribe(topic)
            case Close(number, why, text):
                stream = self.streams.get(number)
                if why:
                    self.counters[f"closed {why}"] += 1
                    log.info("%s: closed an MQTT client's connection: %s: %s", self.node, why, text)
                if stream is not None:
                    stream.is_closing = True
                    stream.close()
            case Check(number, user, password):
                self._check(number, user, password)
            case Pause(number, is_reading):
                self._pause(number, is_reading)
            case _:
                self.aside.tell(effect)

    def _attach(self) -> None:
        """Attach the sidecar's broker as a client: it gets what its clients subscribe to, never its own messages."""
        assert self.sidecar is not None
        client, bridge = f"$sidecar/{self.node}", self.sidecar.bridge
        self.host.attach(_SIDECAR, client, self.config.inflight_max)
        self.readiness = Readiness(self.host, client, self.sidecar)
        if bridge.wanted:
            self.host.received(_SIDECAR, bridge.wish(bridge.wanted))

    def _from_sidecar(self, packet: p.Packet) -> None:
        """Take in a packet of the sidecar."""
        self._do(partial(self.host.received, _SIDECAR, packet))

    def _send(self, number: int, packet: p.Packet) -> None:
        """Send a packet to a client or to the sidecar."""
        if number == _SIDECAR and self.sidecar is not None:
            self.sidecar.received_from_host(packet)
            return
        stream = self.streams.get(number)
        if stream is None:
            return
        try:
            data = encode(stream.version or p.V311, packet)
        except PacketError:  # MQTT cannot express this packet
            self.host.too_large(number, packet)
            return
        session = self.host.by_connection.get(number)
        link = session.link if session is not None else None
        if link is not None and link.packet_bytes_max is not None and len(data) > link.packet_bytes_max:
            self.host.too_large(number, packet)
        else:
            stream.send(data)
            self.traffic.sent(packet, len(data))

    def _check(self, number: int, user: str | None, password: bytes | None) -> None:
        """Check a password, in a thread if that takes long."""
        stream = self.streams.get(number)
        if stream is None:
            return
        prove = partial(self.gate.prove, user, password, stream.certificate(), is_mqtt=True)
        if not self.gate.is_slow:
            self._checked(stream, prove())
        else:
            stream.is_waiting = True
            task = self._loop.create_task(self._check_later(stream, prove))
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def _check_later(self, stream: MqttStream, prove: Callable[[], Proven | None]) -> None:
        """Check a password in a thread, because a hash takes tens of milliseconds."""
        proven = await self._loop.run_in_executor(None, prove)
        stream.is_waiting = False
        if not stream.is_ended:
            self._do(partial(self._checked, stream, proven))
            self.fed(stream)

    def _checked(self, stream: MqttStream, proven: Proven | None) -> None:
        """Tell the host whether the password was right."""
        if proven is None:
            self.host.checked(stream.number, False)
        else:
            left_ms = None if proven.left_s is None else int(proven.left_s * 1_000)
            self.host.checked(stream.number, True, proven.user, left_ms)

    def rules_changed(self) -> None:
        """The access rules have changed."""
        self._do(self.host.rules_changed)

    def _pause(self, number: int, is_reading: bool) -> None:
        """Pause or resume reading from a client, as the host asks."""
        stream = self.streams.get(number)
        if stream is None:
            return
        stream.is_reading = is_reading
        self._read_or_not(stream)
        if is_reading:
            self._loop.call_soon(self.fed, stream)
