"""What a sidecar reports about other sidecars at its broker, and about a broker that lets it read nothing.

A broker does not send a bridge of 3.1.1 its own messages. So such a sidecar publishes its probes over a second, short
connection.  [docs/mqtt.md, Probes]
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator

from trellis.live.log import one_line
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.bridge import Bridge
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.echoes import PROBES
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing
from trellis.protocols.mqtt.learn import PROBE_CLIENTS
from trellis.protocols.mqtt.primitives import PacketError

RIGHTS = f"Let this client read what mqtt.take names, and read and write {PROBES}#."
_TIMEOUT_S = 5.0
_PACKET_BYTES_MAX = 1 << 16


def other_sidecars(bridge: Bridge, address: str) -> Iterator[str]:
    """Yield a sentence for each other sidecar at this broker."""
    for name in sorted(bridge.probes.others):
        yield (
            f"Another sidecar, {one_line(name)}, is heard at the broker at {address}, so messages come more than once: "
            "keep one sidecar beside a broker, and no bridge between two brokers of the mesh."
        )


def unheard(bridge: Bridge, address: str) -> Iterator[str]:
    """Yield a sentence if the broker does not send us what is published there."""
    if bridge.is_unheard:
        yield (
            f"The broker at {address} has accepted our subscriptions, and does not send us what is published: our own "
            f"message on {bridge.probe} did not come back. {RIGHTS}"
        )


async def publish_elsewhere(
    host: str, port: int, tls: ssl.SSLContext | None, hello: p.Connect, packets: list[p.Publish]
) -> bool:
    """Publish with QoS 0 over a new connection. Return whether the broker has accepted the connection."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls)
            writer.write(encode(hello.version, hello))
            framing, answers = Framing(_PACKET_BYTES_MAX), list[p.Packet]()
            while not answers:
                data = await reader.read(_PACKET_BYTES_MAX)
                if not data:
                    return False
                framing.feed(data)
                answers += [decode(hello.version, first, body) for first, body in framing.packets()]
            answer = answers[0]
            if not isinstance(answer, p.ConnAck) or answer.reason:
                return False
            goodbye: list[p.Packet] = [*packets, p.Disconnect()]
            for packet in goodbye:
                writer.write(encode(hello.version, packet))
            await writer.drain()
            return True
    except (OSError, PacketError):
        return False
    finally:
        if writer is not None:
            writer.close()


def second_client(bridge: Bridge, user: str | None, password: bytes | None) -> p.Connect:
    """Return the CONNECT of the second connection."""
    client = PROBE_CLIENTS + bridge.client
    return p.Connect(version=bridge.version, client=client, clean_start=True, user=user, password=password)
