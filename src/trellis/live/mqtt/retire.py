"""Ends a site's membership: its node leaves, its session at the broker ends, its file is removed.  [docs/operating.md]

The node must have left first. As long as it runs it comes back to its session, or begins a new one.
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
_QUIET_S = 1.0  # a broker that sends nothing for so long has sent all that it sends without acknowledgements
_LOOK_S = 10.0
_PACKET_BYTES_MAX = 64 << 20
_RECEIVE_MAX = 65_535
# Mosquitto sends so many without acknowledgements, or max_inflight_messages, which it tells as its receive maximum.
_UNDER_WAY_MIN = 20
_TOPICS_MAX = 1_000  # that are counted one by one


@dataclass
class Waiting:
    """What a session holds for a node that is away."""

    is_there: bool = False  # the session
    messages: int = 0  # of clients: neither lines of the broker's log, nor its counts, nor probes of sidecars
    is_more: bool = False  # There may be others: the broker waits for acknowledgements, or sends all the time.
    lines: int = 0  # Lines of the broker's log that were acknowledged. The broker does not tell them again.
    topics: Counter[str] = field(default_factory=Counter)

    @property
    def is_empty(self) -> bool:
        """Return whether it is certain that no message of a client waits."""
        return not self.messages and not self.is_more


class BrokerSession:
    """The session of a sidecar, by the name of its client."""

    def __init__(self, client: str, config: MqttConfig) -> None:
        self.client, self.version = client, p.V5 if config.broker_version == "5" else p.V311
        self.host, self.port, self.user, self.password, self.tls = parse_broker(config.broker, config)
        self.session_s = config.broker_session_s

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port}"

    async def look(self, *, drops: bool = False) -> Waiting:
        """Return what waits there.

        Messages of clients are not acknowledged, so they stay in the session. `drops`: they are acknowledged, and
        lost, so that the broker sends all of them and they can be counted.
        """
        async with _Talk(self, clean_start=False, expiry_s=self.session_s) as talk:
            found = Waiting(talk.answer.session_present)
            if found.is_there:
                await talk.count(found, drops)
        return found

    async def end(self) -> None:
        """End the session, and all that waits in it. Raises if somebody begins another one at once."""
        async with _Talk(self, clean_start=True, expiry_s=0):
            pass
        await asyncio.sleep(_QUIET_S)  # a node that still runs dials again within that time
        async with _Talk(self, clean_start=False, expiry_s=0) as talk:
            is_there = talk.answer.session_present
        if self.version == p.V311:
            async with _Talk(self, clean_start=True, expiry_s=0):
                pass  # the look has made one
        if is_there:
            raise self.still_used()

    def still_used(self) -> TrellisError:
        return TrellisError(
            f"{self.client} is connected to {self.place} again, after it was cut off for a moment: "
            "its node still runs; stop the node first"
        )


class _Talk:
    """One connection to the broker, in the name of the sidecar."""

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
                f"the broker at {session.place} cannot be asked: {why}; start it, or see its log"
            ) from None
        if not isinstance(answer, p.ConnAck) or answer.reason:
            why = refusal(answer.reason) if isinstance(answer, p.ConnAck) else "its first packet is no CONNACK"
            raise TrellisError(f"the broker at {session.place} cannot be asked: {why}")
        self.answer = answer
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_new = not self.answer.session_present  # what we have begun ends with us
        self._send(p.Disconnect(expiry_s=0 if is_new and self.session.version == p.V5 else None))
        self._writer.close()
        with suppress(OSError):
            async with asyncio.timeout(_TIMEOUT_S):
                await self._writer.wait_closed()

    async def count(self, found: Waiting, drops: bool) -> None:
        """Count what waits, until the broker sends nothing more.

        A broker sends only so many messages without acknowledgements, and lines of its log fill these places too.
        So if the broker has become quiet and no message of a client was among what it sent, the rest is acknowledged
        and the broker sends on. Only when nothing is left to acknowledge is it certain that the session is empty.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + _LOOK_S
        under_way = 0  # messages of clients that we have not acknowledged
        others: list[p.Publish] = []  # of these none is of a client; not acknowledged either
        try:
            while under_way < _RECEIVE_MAX:
                left_s = until - loop.time()
                try:
                    async with asyncio.timeout(min(_QUIET_S, max(0.0, left_s))):
                        packet = await self._read()
                except TimeoutError:
                    if left_s < _QUIET_S:  # it was not waited for long enough; the loop's clock may be a moment behind
                        found.is_more = True
                        break
                    if not others or (found.messages and not drops):
                        break
                    found.lines += sum(one.topic.startswith(LOG) for one in others)
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
                found.messages += 1
                if packet.topic in found.topics or len(found.topics) < _TOPICS_MAX:
                    found.topics[packet.topic] += 1
                if drops:
                    self._acknowledge([packet])
                else:
                    under_way += packet.id is not None
        except (OSError, EOFError, PacketError):
            raise self.session.still_used() from None  # a broker lets a session go to who came last
        window = min(_UNDER_WAY_MIN, self.answer.receive_max or _UNDER_WAY_MIN)
        found.is_more = found.is_more or (bool(under_way) and under_way + len(others) >= window)

    def _acknowledge(self, messages: list[p.Publish]) -> None:
        for one in messages:
            if one.id is not None:
                self._send(p.Ack(p.PUBACK, one.id))

    def _send(self, packet: p.Packet) -> None:
        self._writer.write(encode(self.session.version, packet))

    async def _read(self) -> p.Packet:
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
