"""A session whose client may have ended its connection because of a message: the broker sends that message alone."""

from __future__ import annotations

from live.lives import run, until
from mqtt.talk import connect, doors
from trellis.live.mqtt.retire import BrokerSession
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.config import MqttConfig


def test_a_message_that_is_sent_alone_is_told_as_at_least_one():
    async def work() -> None:
        async with doors("x") as (node,):
            assert node.mqtt is not None
            site = await connect(node, "site", clean_start=False, expiry_s=600)
            await site.subscribe("t/a")
            publisher = await connect(node, "publisher")
            await publisher.publish("t/a", b"0")
            await site.until(p.Publish)
            site.writer.close()  # It ends the connection, without DISCONNECT, instead of an acknowledgement.
            await until(lambda: len(node.mqtt.host.by_connection) == 1)
            for number in range(3):
                await publisher.publish("t/a", b"%d" % number)
            session = BrokerSession("site", MqttConfig(broker=f"mqtt://127.0.0.1:{node.mqtt.port}"))
            waiting = await session.look()
            assert (waiting.is_there, waiting.messages, waiting.is_more) == (True, 1, True), "four messages wait"
            dropped = await session.look(drops=True)
            assert (dropped.messages, dropped.is_more) == (4, False)

    run(work())
