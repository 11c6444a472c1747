"""The sidecar: attaches a node to a running broker as an MQTT client, and reconnects.  [docs/mqtt.md]

`protocols/mqtt/bridge.py` decides which packets go where. This module has the connection, its retries, and the reports
about a broker that does not answer.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from trellis.errors import InputError
from trellis.live.clock import monotonic_s
from trellis.live.machine import machine
from trellis.live.mqtt.aside import Aside
from trellis.live.mqtt.memory import Memory
from trellis.live.mqtt.probing import other_sidecars, publish_elsewhere, second_client, unheard
from trellis.live.stream import Stream, StreamLimits, StreamOwner
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.bridge import PACKET_BYTES_MAX, Bridge
from trellis.protocols.mqtt.config import MqttConfig, hide_password
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing
from trellis.protocols.mqtt.primitives import PacketError

log = logging.getLogger("trellis.live")

_BACKOFF_S, _BACKOFF_S_MAX = 0.2, 5.0
_HANDSHAKE_S = 10.0
_PING_S = 3.0
_QUIET_S = 6.0  # a broker that has not answered pings for this long is reported
_SILENCE_S = 25.0  # and is disconnected after this long: it may only be busy
_PASSWORD_BYTES_MAX = 65_535  # longest password of MQTT
_TURN_PACKETS = 64  # most packets of the broker in one turn of the loop
_SHOWN_LETTERS = 256  # most letters of a topic in the log


class BrokerStream(Stream):
    """The connection to the broker: packets instead of frames."""

    def __init__(self, owner: Sidecar, limits: StreamLimits) -> None:
        super().__init__(owner, limits, 0)
        self.framing = Framing(PACKET_BYTES_MAX, reads_past=True)
        self.heard_s = monotonic_s()
        self.fed = owner.fed
        self.is_held = False  # The node accepts no more messages for now.
        self.is_queued = False  # complete packets wait for the next turn of the loop

    def read_or_not(self) -> None:
        """Pause or resume reading."""
        if self.is_held or self.is_queued:
            self.pause_reading()
        else:
            self.resume_reading()

    def data_received(self, data: bytes) -> None:
        self.heard_s = monotonic_s()
        self.framing.feed(data)
        self.fed(self)


class Sidecar(StreamOwner):
    """Keeps one node attached to one broker."""

    def __init__(
        self,
        node: str,
        config: MqttConfig,
        limits: StreamLimits,
        to_host: Callable[[p.Packet], None],
        begun: Callable[[], None],
    ) -> None:
        """`to_host` takes packets for the node's MQTT host. `begun` is called when the broker has lost our session."""
        self.node, self.config, self.limits = node, config, limits
        self.bridge = Bridge(f"trellis-{node}", config, f"{machine().secret_below(1 << 64):016x}")
        self.host_name, self.port, self.user, self.password, self.tls = parse_broker(config.broker, config)
        self._to_host, self._begun = to_host, begun
        self._aside = Aside(node)
        self._loop = asyncio.get_running_loop()
        self._stream: BrokerStream | None = None
        self._ended = asyncio.Event()
        self._welcomed: asyncio.Future[p.ConnAck] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._second: asyncio.Task[None] | None = None  # publishes probes over a second connection
        self._is_moving = self._is_attached = False
        self._why_away = "it has not answered yet"  # reported while we are not attached
        self._has_failed = False  # The broker was unreachable at least once.
        self.memory = Memory(node, self.bridge, config, self.host_name, self.port) if config.learn else None

    def complaints(self) -> list[str]:
        """Return what keeps messages from flowing between the broker and the mesh, one sentence each."""
        address = f"{self.host_name}:{self.port}"
        if not self._is_attached:
            return [f"The broker at {address} is away: {self._why_away}.", *self._aside.complaints()]
        others = list(other_sidecars(self.bridge, address))
        stream = self._stream
        quiet_s = monotonic_s() - stream.heard_s if stream is not None and not stream.is_held else 0.0
        quiet = [f"The broker at {address} has said nothing for {int(quiet_s)} s."] if quiet_s > _QUIET_S else []
        refused = [
            f"The broker at {address} refuses our subscription to {filter_}." for filter_ in self.bridge.refused[:4]
        ]
        told = [*others, *quiet, *refused, *self._aside.complaints()]
        if not quiet:
            told += unheard(self.bridge, address)
        if self.memory is not None and not others:  # else subscriptions of the other sidecar may be among the unknown
            told += self.memory.complaints()
        return told

    @property
    def is_subscribing(self) -> bool:
        """Whether the broker will confirm or refuse our subscriptions soon. A broker that is away does not."""
        return not self.bridge.is_taking and (self._is_attached or not self._has_failed)

    def serve(self) -> None:
        """Connect to the broker, and stay connected."""
        self._keeper = self._loop.create_task(self._keep())

    def close(self, *, in_order: bool = True) -> None:
        """Disconnect. `in_order`: send DISCONNECT first."""
        for task in (self._keeper, self._second):
            if task is not None:
                task.cancel()
        if self._stream is not None:
            if in_order:
                self._stream.send(encode(self.bridge.version, p.Disconnect()))
                self._stream.close()
            else:
                self._stream.cut("closed")

    async def closed(self) -> None:
        """Wait until everything has ended, and save what was learned."""
        tasks = [task for task in (self._keeper, self._second) if task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.memory is not None:
            await self.memory.close()

    # Inputs from the host

    def received_from_host(self, packet: p.Packet) -> None:
        """Take in a packet of the node's MQTT host."""
        self.bridge.from_host(packet, _now_ms())
        self._move()

    def tick(self) -> None:
        """Do the periodic work."""
        self.bridge.tick(_now_ms())
        if self.memory is not None:
            self.memory.tick(self._is_attached)
        self._move()
        if self.bridge.leaves and self._is_attached and self._stream is not None:
            self._leave(self._stream, self._why_left())

    def _move(self) -> None:
        """Carry packets both ways until there are none."""
        if self._is_moving:
            return
        self._is_moving = True
        bridge = self.bridge
        try:
            if bridge.to_second:
                probes, bridge.to_second = bridge.to_second, []
                self._second = self._loop.create_task(self._publish_elsewhere(probes))
            while bridge.to_broker or bridge.to_host:
                out, bridge.to_broker = bridge.to_broker, []
                for packet in out:
                    self._send(packet)
                inward, bridge.to_host = bridge.to_host, []
                for packet in inward:
                    self._hand_in(packet)
            if self._stream is not None and bridge.is_full != self._stream.is_held:
                self._stream.is_held = bridge.is_full
                self._stream.read_or_not()
        finally:
            self._is_moving = False

    async def _publish_elsewhere(self, probes: list[p.Publish]) -> None:
        """Publish probes over a second connection."""
        hello = second_client(self.bridge, self.user, self.password)
        if not await publish_elsewhere(self.host_name, self.port, self.tls, hello, probes):
            self.bridge.probes.is_forbidden = True  # probes that are not published prove nothing

    def _hand_in(self, packet: p.Packet) -> None:
        """Give a packet to the host. A defect of ours costs this message, and none of those behind it."""
        try:
            self._to_host(packet)
        except Exception:
            log.exception("%s: %s broke a handler", self.node, f"{type(packet).__name__} of the broker")
            self.bridge.counters["bugs"] += 1
            if isinstance(packet, p.Publish) and packet.id is not None:
                self.bridge.from_host(p.Ack(p.PUBACK, packet.id, reasons.MALFORMED), _now_ms())

    def _send(self, packet: p.Packet) -> None:
        """Send a packet to the broker, unless it is too large."""
        if self._stream is None:
            return
        limit = self.bridge.packet_bytes_max
        try:
            data = encode(self.bridge.version, packet)
        except PacketError:  # MQTT cannot express this packet
            data, limit = b"", -1
        if limit is not None and len(data) > limit:
            self.bridge.counters["too large for the broker"] += 1
            if isinstance(packet, p.Publish) and packet.id is not None:
                self.bridge.from_broker(p.Ack(p.PUBACK, packet.id))
        else:
            self._stream.send(data)

    # The broker

    async def _keep(self) -> None:
        """Connect, and reconnect whenever the connection has ended."""
        pause_s = _BACKOFF_S
        while True:
            try:
                answer = await self._dial()
                log.info("%s: attached to %s:%d", self.node, self.host_name, self.port)
                pause_s = _BACKOFF_S
                if not answer.session_present:
                    self._begun()  # the broker's packet identifiers start again
                self._is_attached = True
                if self.memory is not None:
                    self.memory.attached(answer.session_present)
                self.bridge.up(answer, _now_ms())
                self._move()
                await self._watch()
            except (OSError, TimeoutError, PacketError, InputError) as error:
                why = str(error) or (_SILENT if self._stream is not None else "no answer")
                self._why_away, self._has_failed = why, True
                log.warning("%s: broker %s:%d: %s", self.node, self.host_name, self.port, why)
            else:
                self._why_away = self._why_left() if self.bridge.leaves else "the connection to it ended"
            finally:
                if self.memory is not None and self._is_attached and self._stream is not None:
                    self.memory.detached(monotonic_s() - self._stream.heard_s)
                self._is_attached = False
                stream = self._stream
                self.bridge.down(is_closed=stream is not None and stream.is_ended and not stream.why)
                for message in self.bridge.aside:
                    self._aside.put(f"the broker at {self.host_name}:{self.port}", message.topic, len(message.payload))
                self.bridge.aside.clear()
                if self._stream is not None:
                    self._stream.cut("closed")
                    self._stream = None
            self.bridge.counters["connections ended"] += 1
            if self.bridge.leaves:
                pause_s = _BACKOFF_S_MAX
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _BACKOFF_S_MAX)

    async def _dial(self) -> p.ConnAck:
        """Open a connection, and return the broker's CONNACK."""
        stream = BrokerStream(self, self.limits)
        self._welcomed = self._loop.create_future()
        self._ended.clear()
        # These files may have changed: the password's, and the certificate authority's.
        *_, self.user, self.password, self.tls = parse_broker(self.config.broker, self.config)
        async with asyncio.timeout(_HANDSHAKE_S):
            await self._loop.create_connection(lambda: stream, self.host_name, self.port, ssl=self.tls)
            self._stream = stream
            stream.send(encode(self.bridge.version, self.bridge.connect(self.user, self.password)))
            answer = await self._welcomed
        if answer.reason:
            raise PacketError(refusal(answer.reason), answer.reason)
        return answer

    async def _watch(self) -> None:
        """Wait until the stream ends. Disconnect from a broker that does not answer pings."""
        while True:
            try:
                async with asyncio.timeout(_PING_S):
                    await self._ended.wait()
                return
            except TimeoutError:
                stream = self._stream
                if stream is None or monotonic_s() - stream.heard_s > _SILENCE_S:
                    return
                stream.send(encode(self.bridge.version, p.PingReq()))

    def fed(self, stream: BrokerStream) -> None:
        """Process complete packets, and no more than one turn's share, so that the node's clients get their turns."""
        if stream.is_queued:
            return
        left = _TURN_PACKETS
        try:
            for first, body in stream.framing.packets():
                self._take_in(self._decode(first, body, stream.framing.left_out))
                left -= 1
                if left <= 0 and self._is_attached and stream.framing:
                    stream.is_queued = True
                    stream.read_or_not()
                    self._loop.call_soon(self._next_turn, stream)
                    break
        except PacketError as error:
            self._move()
            self._leave(stream, str(error))
        self._move()

    def _take_in(self, packet: p.Packet | None) -> None:
        """Process one packet, unless it could not be decoded. Raises PacketError if we must disconnect."""
        if packet is None:
            return
        welcomed = self._welcomed
        if welcomed is not None and not welcomed.done():
            if not isinstance(packet, p.ConnAck):
                raise PacketError("the broker's first packet is no CONNACK")
            welcomed.set_result(packet)
        elif not self._is_attached:
            self._loop.call_soon(self._late, packet)
        elif not self.bridge.from_broker(packet):
            raise PacketError(self._why_left())

    def _next_turn(self, stream: BrokerStream) -> None:
        """Continue with packets that were too many for the last turn."""
        stream.is_queued = False
        if not stream.is_ended and not stream.is_closing:
            self.fed(stream)
            stream.read_or_not()

    def _leave(self, stream: BrokerStream, why: str) -> None:
        """Log why, and disconnect."""
        if stream.is_ended or stream.is_closing:
            return
        log.warning("%s: broker %s:%d: %s", self.node, self.host_name, self.port, why)
        if self.bridge.leaves:
            stream.close()  # sends our acknowledgement of another sidecar's probe, which would come again otherwise
        else:
            stream.cut("garbage")

    def _why_left(self) -> str:
        return _LEFT.get(self.bridge.leaves, "the broker ends the connection").format(probe=self.bridge.probe)

    def _late(self, packet: p.Packet) -> None:
        """Process a packet that came with the CONNACK, before the task that waits for the CONNACK has run."""
        if self._is_attached:
            is_left = not self.bridge.from_broker(packet)
            self._move()
            if is_left and self._stream is not None:
                self._leave(self._stream, self._why_left())
        elif self._stream is not None and not self._stream.is_ended:
            self._loop.call_soon(self._late, packet)

    def _decode(self, first: int, body: bytes, left_out: int = 0) -> p.Packet | None:
        """Return a packet of the broker, or None for a message that cannot be decoded, which is skipped.

        `left_out`: the length of a packet that was too large, or 0. If it is set, `body` is the head of that packet.
        """
        # a CONNACK of 3.1.1: the broker does not speak MQTT 5
        if self.bridge.version == p.V5 and first == 0x20 and len(body) == 2:
            return p.ConnAck(reason=reasons.VERSION if body[1] == 1 else body[1] or reasons.VERSION)
        try:
            if left_out:
                raise PacketError(f"its {left_out} bytes are over {PACKET_BYTES_MAX}", reasons.TOO_LARGE)
            return decode(self.bridge.version, first, body, is_strict=False)
        except PacketError as error:
            size = int.from_bytes(body[:2], "big")
            number = int.from_bytes(body[2 + size : 4 + size], "big")
            is_with_id = first >> 1 & 0x03 == 1
            if first >> 4 != p.PUBLISH or first >> 1 & 0x03 > 1 or (is_with_id and not number):
                raise
            topic = body[2 : 2 + size].decode("utf-8", "replace")[:_SHOWN_LETTERS]
            log.warning("%s: a publication on %s was refused: %s", self.node, topic, error)
            if left_out:
                self._aside.too_large(f"the broker at {self.host_name}:{self.port}", topic, left_out)
            self.bridge.pass_over(number if is_with_id else None)
            return None

    def opened(self, stream: Stream) -> None:
        pass

    def received(self, stream: Stream, body: bytes) -> None:
        raise AssertionError("MQTT streams have no frames")

    def ended(self, stream: Stream) -> None:
        if self._welcomed is not None and not self._welcomed.done():
            self._welcomed.set_exception(PacketError(_CLOSED))
        if stream is self._stream or self._stream is None:
            self._ended.set()


_VERSION = (
    'it does not speak our version of MQTT: use one with MQTT 5, or try broker_version = "3.1.1", and where that is '
    'refused as well, broker_echo = "match" with it'
)
_CLOSED = f"it closed the connection before CONNACK; perhaps {_VERSION}"
_SILENT = f"it took the connection and did not answer; perhaps {_VERSION}"
_LEFT = {
    "echo": "it sends us what we publish, so there would be loops: it does not honour the bridge bit of 3.1.1; "
    'broker_echo = "match" tells echoes apart',
    "other": "another sidecar's messages come here past the mesh, so there would be loops: keep one sidecar beside a "
    "broker, and no bridge between two brokers of the mesh",
    "unheard": "it does not send {probe} back to us: let us subscribe and publish there",
}


def refusal(reason: int) -> str:
    """Return why a broker refuses us, by the reason code of its CONNACK."""
    if reason in (reasons.VERSION, 1):
        return _VERSION
    return f"it refuses us: {reasons.NAMES.get(reason, hex(reason))}"


def _now_ms() -> int:
    return int(monotonic_s() * 1_000)


def read_password(config: MqttConfig) -> bytes | None:
    """Return the broker's password from its own key or from its file; None if there is none. Raises `InputError`."""
    path = config.broker_password_file
    if not path:
        return config.broker_password.encode() or None
    try:
        with open(path, "rb") as file:  # noqa: PTH123  the first line only, whatever the file is
            line = file.readline(_PASSWORD_BYTES_MAX)
    except OSError as error:
        remedy = "name a file that this node may read"
        raise InputError("mqtt.broker_password_file", f"{path}: {error.strerror}", remedy) from None
    if not line.rstrip(b"\r\n"):
        raise InputError("mqtt.broker_password_file", f"{path}: it is empty", "write the password into its first line")
    return line.rstrip(b"\r\n")


def parse_broker(url: str, config: MqttConfig) -> tuple[str, int, str | None, bytes | None, ssl.SSLContext | None]:
    """Parse `mqtt://[user[:password]@]host[:port]`, or `mqtts://`. Return host, port, user, password, TLS context."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or parts.path not in ("", "/"):
        told = f'"{hide_password(url)}" is no broker'
        raise InputError("mqtt.broker", told, "give mqtt://host:1883 or mqtts://host:8883")
    context = None
    if parts.scheme == "mqtts":
        try:
            context = ssl.create_default_context(cafile=config.broker_ca or None)
        except OSError as error:
            where = "mqtt.broker_ca"
            raise InputError(where, f"{config.broker_ca}: {error.strerror or error}", "name a PEM file") from None
    user = unquote(parts.username) if parts.username is not None else None
    password = unquote(parts.password).encode() if parts.password is not None else read_password(config)
    return parts.hostname, port or (8883 if context is not None else 1883), user, password, context
