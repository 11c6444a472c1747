"""A client that floods its node takes its share, and no more: others connect and publish meanwhile."""

from __future__ import annotations

import asyncio

from live.lives import run, until
from mqtt.desk import Desk
from mqtt.talk import connect, dial, doors
from trellis.live.config import LimitsConfig
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.encode import encode

TAKEN = (reasons.SUCCESS, reasons.NO_MATCHING)  # the second one if nobody subscribes
COUNT = 40_000
FLOOD = encode(p.V5, p.Publish(topic="flood/x", payload=b"12345678")) * COUNT


def test_others_are_served_while_one_client_floods():
    """Not a time but a share: few of the flood's packets are taken in before another client has its PUBACK."""

    async def work() -> None:
        async with doors("a") as (node,):
            assert node.mqtt is not None
            state = node.mqtt.host.state
            quiet = await connect(node, "quiet")
            assert await quiet.publish("other/x", b"first") in TAKEN  # the mesh is sure of itself
            flooder = await connect(node, "flooder")
            flooder.writer.write(FLOOD)
            await until(lambda: state.last_number > 500)
            before = state.last_number
            other = await connect(node, "other")
            assert await other.publish("other/x", b"1") in TAKEN
            assert await quiet.publish("other/x", b"2") in TAKEN
            assert before < COUNT - 5_000, "the flood was over before anybody else came"
            assert state.last_number - before < 5_000

    run(work())


def test_publications_of_qos_0_that_wait_for_the_mesh_are_bounded_and_none_is_dropped():
    desk = Desk(inflight_max=16)
    for version in (p.V5, p.V311):
        desk.acknowledges = False
        talker = desk.welcome(f"c{version}", version)
        for _ in range(15):
            talker.publish("a/b")
        assert talker.is_read
        talker.publish("a/b")
        assert not talker.is_read
        desk.pass_time(600_000)
        assert talker.closed is None, "a client that is not read cannot be heard"
        desk.acknowledges = True
        desk.acknowledge()
        assert talker.is_read
        talker.drop()
    assert not desk.host.publications.unanswered


def test_a_client_that_goes_while_its_publications_wait_leaves_nothing_behind():
    desk = Desk(inflight_max=16)
    desk.acknowledges = False
    talker = desk.welcome()
    for _ in range(16):
        talker.publish("a/b")
    talker.drop()
    assert not desk.host.publications.unanswered
    desk.acknowledge()


def test_many_clients_that_come_at_once_are_all_answered():
    async def work() -> None:
        limits = LimitsConfig(handshake_s=30)
        async with doors("a", mqtt={"clients_max": 100}, limits=limits) as (node,):
            raws = await asyncio.gather(*(dial(node) for _ in range(400)))
            for number, raw in enumerate(raws):
                raw.send(p.Connect(version=p.V5, client=f"c{number}", clean_start=True))
            answers = [await raw.read() for raw in raws]
            assert all(isinstance(one, p.ConnAck) for one in answers)
            codes = [one.reason for one in answers if isinstance(one, p.ConnAck)]
            assert codes.count(reasons.SUCCESS) == 100
            assert codes.count(reasons.BUSY) == 300

    run(work())
