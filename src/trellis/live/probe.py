"""Ask seeds, listeners and brokers from outside what they are and whether they accept this node, for `trellis doctor`.

Each question uses a connection of its own, which is closed afterwards. Nothing is left behind: a node that takes the
question for a peer is told goodbye, and subscriptions at a broker are removed. No question is repeated.

An `address` is a host and a port. Every `timeout_s` is the limit of one question in seconds.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine
from typing import Literal, TypeVar

import msgspec

from trellis.live.addresses import show_address
from trellis.live.frames import (
    HELLO_BYTES_MAX,
    PROTOCOL,
    VERSION,
    Address,
    Addresses,
    Bye,
    Control,
    Hello,
    Refused,
    Splitter,
    pack_control,
    read_control,
)
from trellis.live.http_client import HttpClient
from trellis.live.reasons import is_refused_by_tls, tls_remedy, why_not
from trellis.live.talk import CLIENT_PROTOCOL, CLIENT_VERSION, TO_CLIENT, Greet, Welcome, pack_to_node
from trellis.live.tls import SPEAKS_TLS, make_looking_context, names_of
from trellis.live.view import SNAPSHOT
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.echoes import PROBE_ID, PROBES
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing
from trellis.protocols.mqtt.primitives import PacketError
from trellis.protocols.mqtt.probes import PROBE_FILTER, probe_topic
from trellis.protocols.wire import WireError

Packet = TypeVar("Packet", p.ConnAck, p.SubAck, p.UnsubAck)
_READ_BYTES = 64 << 10
_REFUSAL_S = 1.0  # A listener that has not ended the connection after this time accepts our certificate.
_PACKET_BYTES_MAX = 1 << 20
_PROBE_S = 3.0  # A message to ourselves that has not come back after this time is lost.
_ANSWER_S = 1.5  # Sidecars at the broker answer a probe within this time.
_SIDECARS_MAX = 8  # most names of sidecars that are kept
_EXPIRY_S = 30  # message expiry of a probe


class Greeting(msgspec.Struct, frozen=True):
    """The answer of a seed. Exactly one of `hello`, `refused` and `failure` is set."""

    hello: Hello | None = None
    refused: Refused | None = None
    failure: str = ""  # why there was neither, in words
    is_connected: bool = False  # After a failure: something has accepted the connection.
    has_tls: bool = False  # After a failure: the other end speaks TLS, as far as we know.
    tls_remedy: str = ""  # what to do if one end does not accept the certificate of the other; else empty


async def greet(
    address: tuple[str, int], me: Address, cluster: str, overlay: str, tls: ssl.SSLContext | None, timeout_s: float
) -> Greeting:
    """Say hello to the node at `address` in the name of `me`, and goodbye at once. Return its answer.

    `me` must have incarnation 0, which is older than that of every running node. So a node to which the real owner of
    the name is connected refuses us, and keeps that stream. Otherwise it takes us for a peer until we say goodbye.
    """
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(*address, ssl=tls)
            writer.write(pack_control(Hello(PROTOCOL, VERSION, cluster, overlay, me)))
            answer = await _first(reader)
            if isinstance(answer, Hello):
                writer.write(pack_control(Bye()))
                await writer.drain()
    except WireError:
        failure = f"what it answers is no hello of Trellis; {_guess(tls)}"
        return Greeting(failure=failure, is_connected=True, has_tls=tls is not None)
    except EOFError:
        failure = f"it closed the connection without a hello; {_guess(tls)}"
        return Greeting(failure=failure, is_connected=True, has_tls=tls is not None)
    except (OSError, UnicodeError) as error:
        is_refused = is_refused_by_tls(error)
        return Greeting(
            failure=why_not(error, has_tls=tls is not None),
            is_connected=writer is not None or isinstance(error, ssl.SSLError | ConnectionResetError),
            has_tls=tls is not None and (writer is not None or is_refused),
            tls_remedy=tls_remedy(error) if is_refused else "",
        )
    finally:
        if writer is not None:
            writer.close()
    return Greeting(hello=answer) if isinstance(answer, Hello) else Greeting(refused=answer)


async def _first(reader: asyncio.StreamReader) -> Hello | Refused:
    """Return the first hello or refusal. Raise EOFError if there is none, or WireError if something else comes."""
    splitter = Splitter(HELLO_BYTES_MAX)
    while data := await reader.read(_READ_BYTES):
        for body in splitter.feed(data):
            answer: Control = read_control(body)
            if isinstance(answer, Hello | Refused):
                return answer
            if not isinstance(answer, Addresses):
                raise WireError("no hello")
    raise EOFError


def _guess(tls: ssl.SSLContext | None) -> str:
    """Return the probable reason why the other end does not answer like a node."""
    return "perhaps it speaks TLS, and [tls] is not configured here" if tls is None else "perhaps it is no Trellis node"


async def names_shown(address: tuple[str, int], ca: str, timeout_s: float) -> list[str]:
    """Return the names of nodes that a listener's certificate is made for.

    Raise OSError if it shows no certificate that `ca` has signed. We show no certificate, so the listener will refuse
    us afterwards, and nothing else can be learned on this connection.
    """
    async with asyncio.timeout(timeout_s):
        _, writer = await asyncio.open_connection(*address, ssl=make_looking_context(ca))
    try:
        return names_of(writer.get_extra_info("peercert") or {})
    finally:
        writer.close()


async def shake_hands(
    address: tuple[str, int], tls: ssl.SSLContext, timeout_s: float
) -> Literal["accepted", "refused", "failed"]:
    """Return whether a listener accepts our certificate. "failed": there was no TLS handshake.

    In TLS 1.3 the handshake is over at our end before the listener has checked our certificate. A listener that refuses
    the certificate then ends the connection. One that accepts it waits for our first bytes.
    """
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(*address, ssl=tls)
    except OSError:
        return "failed"
    try:
        async with asyncio.timeout(_REFUSAL_S):
            return "accepted" if await reader.read(1) else "refused"
    except TimeoutError:
        return "accepted"
    except OSError:
        return "refused"
    finally:
        writer.close()


async def what_listens(
    address: tuple[str, int], tls: ssl.SSLContext | None, timeout_s: float, *, asks_mesh: bool = False
) -> str:
    """Return in words which port of a node listens at `address`, or an empty string if it is none that we know.

    It is asked at the same time as a client port, as an admin port, as an MQTT listener and, with `asks_mesh`, as a
    mesh port. `tls` must be None if the listener does not speak TLS, and set if it does. Otherwise it logs errors.
    """
    asked = (_ask_client_port, _ask_admin_port, _ask_mqtt, *((_ask_mesh_port,) if asks_mesh else ()))
    answers = await asyncio.gather(*(_asked(ask(address, tls), timeout_s) for ask in asked))
    return next((answer for answer in answers if answer), "")


async def _asked(question: Coroutine[None, None, str], timeout_s: float) -> str:
    """Return the answer to a question, or an empty string if there is none, or none that it understands."""
    try:
        async with asyncio.timeout(timeout_s):
            return await question
    except (OSError, ValueError, EOFError, WireError, PacketError, msgspec.MsgspecError):
        return ""  # It is another kind of port.


async def _ask_client_port(address: tuple[str, int], tls: ssl.SSLContext | None) -> str:
    reader, writer = await asyncio.open_connection(*address, ssl=tls)
    try:
        writer.write(pack_to_node(Greet(CLIENT_PROTOCOL, CLIENT_VERSION, "trellis-doctor")))
        splitter = Splitter(HELLO_BYTES_MAX)
        while data := await reader.read(_READ_BYTES):
            for body in splitter.feed(data):
                answer = TO_CLIENT.decode(body)
                return f"the client port of node {answer.node}" if isinstance(answer, Welcome) else "a client port"
        raise EOFError
    finally:
        writer.close()


async def _ask_admin_port(address: tuple[str, int], tls: ssl.SSLContext | None) -> str:
    client = HttpClient(show_address(*address), tls)
    try:
        status, body = await client.get("/overlay.json", timeout_s=60.0)
    finally:
        client.close()
    if status == 200:
        return f"the admin port of node {SNAPSHOT.decode(body).node}"
    return "an admin port" if SPEAKS_TLS.encode() in body else "a web server"


async def _ask_mesh_port(address: tuple[str, int], tls: ssl.SSLContext | None) -> str:
    """Say hello with version 0, which every node refuses, so that no node takes us for a peer."""
    reader, writer = await asyncio.open_connection(*address, ssl=tls)
    try:
        me = Address("trellis-doctor", 0, "127.0.0.1", 1)
        writer.write(pack_control(Hello(PROTOCOL, 0, "trellis-doctor", "", me)))
        await _first(reader)
        return "the mesh port (listen) of a node"
    finally:
        writer.close()


async def _ask_mqtt(address: tuple[str, int], tls: ssl.SSLContext | None) -> str:
    reader, writer = await asyncio.open_connection(*address, ssl=tls)
    try:
        writer.write(encode(p.V5, p.Connect(version=p.V5, client="", clean_start=True)))
        await _Packets(reader, p.V5).of(p.ConnAck)
        writer.write(encode(p.V5, p.Disconnect()))
        return "an MQTT listener"
    finally:
        writer.close()


class BrokerAnswer(msgspec.Struct, frozen=True):
    """The result of asking a broker."""

    failure: str = ""  # why we could not connect, or could not finish. If it is set, the other fields are not.
    refused: tuple[tuple[str, str], ...] = ()  # filters that the broker refused, each with the reason
    no_probe: str = ""  # why there was no probe: the broker does not allow it. Empty: there was one.
    is_unheard: bool = False  # The broker did not send our probe back to us.
    sidecars: tuple[str, ...] = ()  # names of sidecars of this broker that answered the probe


async def ask_broker(
    address: tuple[str, int],
    tls: ssl.SSLContext | None,
    user: str | None,
    password: bytes | None,
    config: MqttConfig,
    client: str,
    timeout_s: float,
) -> BrokerAnswer:
    """Connect to a broker as the MQTT client `client`, and try what a sidecar with this configuration does there.

    Subscribe to every filter of `config.take` and `config.want`, and unsubscribe again. Then publish a probe to
    ourselves, since a broker may grant filters and yet send nothing. Sidecars at the broker answer the probe.
    """
    version = p.V5 if config.broker_version == "5" else p.V311
    filters = list(dict.fromkeys((*config.take, *config.want)))
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(*address, ssl=tls)
            packets = _Packets(reader, version)
            hello = p.Connect(version=version, client=client, clean_start=True, user=user, password=password)
            writer.write(encode(version, hello))
            answer = await packets.of(p.ConnAck)
            if answer.reason:
                name = reasons.NAMES.get(answer.reason, hex(answer.reason))
                return BrokerAnswer(failure=f"it refuses the connection: {name}")
            refused: list[tuple[str, str]] = []
            for number, topic_filter in enumerate(filters, start=1):
                writer.write(encode(version, p.Subscribe(number, (p.Asked(topic_filter, 0, retain_handling=2),))))
                suback = await packets.of(p.SubAck)
                code = max(suback.reasons, default=0)
                if code >= reasons.UNSPECIFIED:
                    refused.append((topic_filter, reasons.NAMES.get(code, hex(code))))
                    continue
                # Sidecars learn subscriptions from the broker's log, so the log must show that ours has ended.
                writer.write(encode(version, p.Unsubscribe(number, (topic_filter,))))
                await packets.of(p.UnsubAck)
            heard = await _probe(packets, writer, version, client, min(_PROBE_S, timeout_s / 2))
            writer.write(encode(version, p.Disconnect()))
            await writer.drain()
    except PacketError as error:
        return BrokerAnswer(failure=f"it does not speak MQTT {config.broker_version}: {error}")
    except EOFError:
        return BrokerAnswer(failure=f"it closed the connection; perhaps it does not speak MQTT {config.broker_version}")
    except (OSError, UnicodeError) as error:
        return BrokerAnswer(failure=why_not(error, has_tls=tls is not None))
    finally:
        if writer is not None:
            writer.close()
    return msgspec.structs.replace(heard, refused=tuple(refused))


async def _probe(
    packets: _Packets, writer: asyncio.StreamWriter, version: int, client: str, wait_s: float
) -> BrokerAnswer:
    """Publish a probe to ourselves. Return whether it came back within `wait_s`, and which sidecars answered it."""
    loop, topic = asyncio.get_running_loop(), probe_topic(client)
    writer.write(encode(version, p.Subscribe(PROBE_ID, (p.Asked(PROBE_FILTER, 0, retain_handling=2),))))
    if max((await packets.of(p.SubAck)).reasons, default=0) >= reasons.UNSPECIFIED:
        return BrokerAnswer(no_probe=f"it refuses the filter {PROBE_FILTER}")
    probe = p.Publish(topic=topic, payload=b"?")
    if version == p.V5:  # With QoS 1 a PUBACK of MQTT 5 says whether we may publish there.
        probe = msgspec.structs.replace(probe, qos=1, id=PROBE_ID, content=p.Content(expiry_s=_EXPIRY_S))
    writer.write(encode(version, probe))
    is_unheard, sidecars, until = True, set[str](), loop.time() + wait_s
    try:
        while (left_s := until - loop.time()) > 0:
            async with asyncio.timeout(left_s):
                packet = await packets.next()
            match packet:
                case p.Ack() if packet.reason >= reasons.UNSPECIFIED:
                    return BrokerAnswer(no_probe=f"it does not let us publish on {topic}")
                case p.Publish() if packet.topic == topic:
                    is_unheard, until = False, loop.time() + min(_ANSWER_S, wait_s / 2)
                case p.Publish() if packet.topic.startswith(PROBES) and len(sidecars) < _SIDECARS_MAX:
                    sidecars.add(packet.topic[len(PROBES) :])
    except TimeoutError:
        pass
    writer.write(encode(version, p.Unsubscribe(PROBE_ID, (PROBE_FILTER,))))
    await packets.of(p.UnsubAck)
    return BrokerAnswer(is_unheard=is_unheard, sidecars=tuple(sorted(sidecars)))


class _Packets:
    """Reads the packets of a broker one by one."""

    def __init__(self, reader: asyncio.StreamReader, version: int) -> None:
        self._reader, self._version = reader, version
        self._framing = Framing(_PACKET_BYTES_MAX)
        self._waiting: list[p.Packet] = []

    async def of(self, kind: type[Packet]) -> Packet:
        """Return the next packet of this kind. Skip packets of other kinds."""
        while True:
            packet = await self.next()
            if isinstance(packet, kind):
                return packet

    async def next(self) -> p.Packet:
        """Return the next packet. Raise EOFError if the broker has closed the connection."""
        while not self._waiting:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise EOFError
            self._framing.feed(data)
            self._waiting += [decode(self._version, first, body) for first, body in self._framing.packets()]
        return self._waiting.pop(0)
