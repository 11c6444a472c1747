"""The door with TLS: with certificates of clients, and without."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from live.lives import run, until
from live.test_transport import make_tls  # noqa: F401  a fixture
from mqtt.talk import Raw, doors
from trellis.errors import InputError
from trellis.live.mqtt.certificate import make_tls as make_door_tls
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.config import MqttConfig


def client_context(tls, *, with_certificate: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca)
    context.check_hostname = False
    if with_certificate:
        context.load_cert_chain(tls.cert, tls.key)
    return context


@pytest.mark.parametrize("asks_for_certificates", [False, True])
def test_a_door_with_tls_lets_in_who_it_should(make_tls, asks_for_certificates):  # noqa: F811
    tls = make_tls("ours")
    given = {"cert": tls.cert, "key": tls.key, "ca": tls.ca if asks_for_certificates else ""}

    async def greet(port: int, context: ssl.SSLContext | None) -> p.Packet | None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        except (OSError, ssl.SSLError):
            return None
        raw = Raw(reader, writer, p.V5)
        raw.send(p.Connect(version=p.V5, client="", clean_start=True))
        return await raw.read()

    async def work() -> None:
        async with doors("a", mqtt=given) as (node,):
            assert isinstance(await greet(node.mqtt.port, client_context(tls, with_certificate=True)), p.ConnAck)
            answer = await greet(node.mqtt.port, client_context(tls, with_certificate=False))
            assert isinstance(answer, p.ConnAck) != asks_for_certificates
            assert await greet(node.mqtt.port, None) is None
            await until(lambda: node.mqtt.counters["cut tls"] == 1 + asks_for_certificates)

    run(work())


def test_files_that_are_not_there_are_named():
    with pytest.raises(InputError, match=r"mqtt\.cert: /no/cert: no such file or directory; name a PEM file"):
        make_door_tls(MqttConfig(cert="/no/cert", key="/no/key"))
