"""Ends a site's membership: looks into its session at the broker, and ends the session.  [docs/operating.md]

The node must have left first. As long as it runs, it returns to its session, or begins a new one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType

from trellis.errors import TrellisError
from trellis.live.mqtt.sidecar import parse_broker, refusal
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.counts import TOLD
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.echoes import PROBES
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing
from trellis.protocols.mqtt.learn import LOG
from trellis.protocols.mqtt.primitives import PacketError

_TIMEOUT_S = 10.0
_QUIET_S = 1.0  # a broker that sends nothing for this long has sent all that it sends without acknowledgements
_LOOK_S = 10.0  # longest time for counting messages
_PACKET_BYTES_MAX = 64 << 20
_RECEIVE_MAX = 65_535
# Mosquitto sends this many messages without acknowledgements, or max_inflight_messages, which is its receive maximum.
_UNDER_WAY_MIN = 20
_TOPICS_MAX = 1_000  # most topics that are counted separately


@dataclass
class Waiting:
    """What a session contains for a node that is disconnected."""

    is_there: bool = False  # The session exists.
    messages: int = 0  # messages of clients, without lines of the broker's log, its counts, and probes of sidecars
    is_more: bool = False  # There may be more: the broker waits for acknowledgements, or sends all the time.
    lines: int = 0  # Lines of the broker's log that were acknowledged. The broker does not send them again.
    topics: Counter[str] = field(default_factory=Counter)

    @property
    def is_empty(self) -> bool:
        """Whether it is certain that no message of a client waits."""
        return not self.messages and not self.is_more


class BrokerSession:
    """The session of a sidecar at its broker, identified by the sidecar's client name."""

    def __init__(self, client: str, config: MqttConfig) -> None:
        self.client, self.version = client, p.V5 if config.broker_version == "5" else p.V311
        self.host, self.port, self.user, self.password, self.tls = parse_broker(config.broker, config)
        self.session_s = config.broker_session_s

    @property
    def address(self) -> str:
        """The broker's host and port."""
        return f"{self.host}:{self.port}"

    async def look(self, *, drops: bool = False) -> Waiting:
        """Return what waits in the session.

        Messages of clients are not acknowledged, so they stay in the session. `drops`: they are acknowledged, and lost,
        so that the broker sends all of them and they can be counted.
        """
        async with _Talk(self, clean_start=False, expiry_s=self.session_s) as talk:
            waiting = Waiting(talk.answer.session_present)
            if waiting.is_there:
                await talk.count(waiting, drops)
        return waiting

    async def end(self) -> None:
        """End the session, and lose all that waits in it. Raises if another process begins a new one at once."""
        async with _Talk(self, clean_start=True, expiry_s=0):
            pass
        await asyncio.sleep(_QUIET_S)  # a node that still runs reconnects within that time
        async with _Talk(self, clean_start=False, expiry_s=0) as talk:
            is_there = talk.answer.session_present
        if self.version == p.V311:
            async with _Talk(self, clean_start=True, expiry_s=0):
                pass  # with 3.1.1, the connection before this one has begun a session
        if is_there:
            raise self.still_used()

    def still_used(self) -> TrellisError:
        """Return the error for a session that a running node uses."""
        return TrellisError(
            f"{self.client} is connected to {self.address} again, after it was cut off for a moment: "
            "its node still runs; stop the node first"
        )


class _Talk:
    """One connection to the broker, under the sidecar's client name."""

    def __init__(self, session: BrokerSession, *, clean_start: bool, expiry_s: int) -> None:
        self.session, self.framing = session, Framing(_PACKET_BYTES_MAX)
        self.hello = p.Connect(
            version=session.version,
            client=session.client,
            clean_start=clean_start,
            keep_alive_s=30,
            user=session.user,
            password=session.password,
            expiry_s=expiry_s,
            receive_max=_RECEIVE_MAX,
        )
        self.answer = p.ConnAck(reason=0)
        self._packets: list[p.Packet] = []

    async def __aenter__(self) -> _Talk:
        session = self.session
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                self._reader, self._writer = await asyncio.open_connection(session.host, session.port, ssl=session.tls)
                self._send(self.hello)
                answer = await self._read()
        except (OSError, ssl.SSLError, EOFError, PacketError) as error:
            why = str(error) or "no answer in time"
            raise TrellisError(
                f"the broker at {session.address} cannot be asked: {why}; start it, or see its log"
            ) from None
        if not isinstance(answer, p.ConnAck) or answer.reason:
            why = refusal(answer.reason) if isinstance(answer, p.ConnAck) else "its first packet is no CONNACK"
            raise TrellisError(f"the broker at {session.address} cannot be asked: {why}")
        self.answer = answer
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_new = not self.answer.session_present  # a session that we have begun ends with us
        self._send(p.Disconnect(expiry_s=0 if is_new and self.session.version == p.V5 else None))
        self._writer.close()
        with suppress(OSError):
            async with asyncio.timeout(_TIMEOUT_S):
                await self._writer.wait_closed()

    async def count(self, waiting: Waiting, drops: bool) -> None:
        """Count what waits, until the broker sends nothing more.

        A broker sends only a limited number of messages without acknowledgements, and lines of its log count as well.
        So if the broker has become quiet and none of its messages was of a client, the rest is acknowledged and the
        broker continues. It is certain that the session is empty only when nothing is left to acknowledge.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + _LOOK_S
        unacknowledged = 0  # messages of clients that we have not acknowledged
        is_repeated = False  # The last one was sent before. A broker may send such a message alone (`suspicion.py`).
        others: list[p.Publish] = []  # messages that are not of clients, and not acknowledged either
        try:
            while unacknowledged < _RECEIVE_MAX:
                left_s = until - loop.time()
                try:
                    async with asyncio.timeout(min(_QUIET_S, max(0.0, left_s))):
                        packet = await self._read()
                except TimeoutError:
                    if left_s < _QUIET_S:  # it was not waited for long enough; the loop's clock may be a moment behind
                        waiting.is_more = True
                        break
                    if not others or (waiting.messages and not drops):
                        break
                    waiting.lines += sum(message.topic.startswith(LOG) for message in others)
                    self._acknowledge(others)
                    others.clear()
                    continue
                if isinstance(packet, p.Disconnect):
                    raise EOFError
                if not isinstance(packet, p.Publish):
                    continue
                if packet.topic.startswith((LOG, PROBES)) or packet.topic in TOLD:
                    others.append(packet)
                    continue
                waiting.messages += 1
                if packet.topic in waiting.topics or len(waiting.topics) < _TOPICS_MAX:
                    waiting.topics[packet.topic] += 1
                if drops:
                    self._acknowledge([packet])
                else:
                    unacknowledged += packet.id is not None
                    is_repeated = packet.dup
        except (OSError, EOFError, PacketError):
            raise self.session.still_used() from None  # a broker gives a session to the connection that came last
        window = min(_UNDER_WAY_MIN, self.answer.receive_max or _UNDER_WAY_MIN)
        is_stuck = unacknowledged + len(others) >= window or (is_repeated and unacknowledged == 1)
        waiting.is_more = waiting.is_more or (bool(unacknowledged) and is_stuck)

    def _acknowledge(self, messages: list[p.Publish]) -> None:
        for message in messages:
            if message.id is not None:
                self._send(p.Ack(p.PUBACK, message.id))

    def _send(self, packet: p.Packet) -> None:
        self._writer.write(encode(self.session.version, packet))

    async def _read(self) -> p.Packet:
        """Return the next packet. Raises `EOFError` if the broker closed the connection."""
        while not self._packets:
            data = await self._reader.read(65_536)
            if not data:
                raise EOFError("it closed the connection")
            self.framing.feed(data)
            for first, body in self.framing.packets():
                if self.session.version == p.V5 and first == 0x20 and len(body) == 2:  # a CONNACK of 3.1.1
                    self._packets.append(p.ConnAck(reason=reasons.VERSION if body[1] in (0, 1) else body[1]))
                else:
                    self._packets.append(decode(self.session.version, first, body))
        return self._packets.pop(0)
