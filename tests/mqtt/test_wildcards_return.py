"""Wildcard subscribers that go and come back get everything that is acknowledged after their SUBACK."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from live.lives import run, until
from mqtt.desk import Desk
from mqtt.returning import CLIENTS, Nodes
from mqtt.talk import connect, doors
from trellis.protocols.mqtt import packets as p

FILTERS = ["#", "x/#", "x/+/t", "+/1/t", "x/1/t", "x/2/#", "y/+/#"]
TOPICS = [f"{first}/{second}/t" for first in "xy" for second in range(4)]


def do_something(nodes: Nodes, random: Random, may_crash: float) -> None:
    """One client or node of the model does something."""
    name, number = random.choice(nodes.names), random.choice(CLIENTS)
    if name not in nodes.hosts:
        nodes.start(name)
        return
    held = sorted(nodes.clients[name, number].filters)
    match random.randrange(9):
        case 0 if random.random() < may_crash:
            nodes.crash(name)
        case 1:
            nodes.reconnect(name, number)
        case 2 | 3:
            nodes.subscribe(name, number, random.choice(FILTERS))
        case 4 if held:
            nodes.unsubscribe(name, number, random.choice(held))
        case 5 if held:  # it goes and comes back before anybody is told
            filter_ = random.choice(held)
            nodes.unsubscribe(name, number, filter_)
            nodes.subscribe(name, number, filter_)
        case _:
            nodes.publish(name, number, random.choice(TOPICS))


@settings(max_examples=20, deadline=None)
@example(42_113)  # a node that dropped one of its wildcards copied to none of the others any more
@example(3_000_000_247)  # a copy waited for a message from before both subscriptions of its receivers
@example(2_061_993)  # copies went only to the directory that their holder had just left
@given(st.integers(0, 2**32))
def test_whoever_comes_goes_and_comes_back_gets_what_is_acknowledged_after_its_suback(seed):
    """First with losses, disorder and crashes; then, when the mesh is whole again, nothing may be missing."""
    random = Random(seed)
    nodes = Nodes("abc", random)
    nodes.loss = random.choice([0.0, 0.2, 0.5])
    for _ in range(random.choice([0, 40])):
        do_something(nodes, random, 0.5)
        nodes.pass_time(random.choice([20, 200, 1_000]))
    nodes.loss = 0.0
    for name in nodes.names:
        if name not in nodes.hosts:
            nodes.start(name)
    nodes.pass_time(40_000)
    nodes.sent.clear()
    for _ in range(80):
        do_something(nodes, random, 0.1)
        nodes.pass_time(random.choice([20, 100, 400, 3_000]))
    nodes.pass_time(10_000)
    assert not nodes.missed()
    assert not nodes.twice()
    assert not nodes.disordered()
    assert any(one.is_acknowledged and one.due for one in nodes.sent), "nothing was promised: the test shows nothing"


@pytest.mark.parametrize("between_s", [0, 6, 120, 1_300])
def test_on_one_node_a_wildcard_that_comes_back_gets_old_topics_and_new_ones(between_s):
    desk = Desk()
    publisher = desk.welcome("publisher")
    for turn in range(3):
        reader = desk.welcome("reader")
        assert reader.subscribe("plant/#") == (1,)
        reader.got.clear()
        publisher.publish("plant/oven", b"old %d" % turn, qos=1, id=1)
        publisher.publish(f"plant/{turn}", b"new %d" % turn, qos=1, id=2)
        desk.pass_time(1_000)
        assert sorted(reader.payloads()) == [b"new %d" % turn, b"old %d" % turn], f"turn {turn}"
        reader.send(p.Disconnect())
        desk.pass_time(between_s * 1_000)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_wildcard_subscriber_that_comes_back_three_times_gets_every_acknowledged_message(count):
    """Over real sockets, with one publisher at each node."""

    async def main() -> None:
        async with doors(*"abc"[:count], mqtt={"introduce_s": 0.2, "ask_s": 30.0}) as nodes:
            hosts = [one.mqtt.host for one in nodes if one.mqtt is not None]
            await until(lambda: all(one.directory.is_informed for one in hosts))
            publishers = [await connect(one, f"publisher of {one.name}") for one in nodes]
            for turn in range(3):
                reader = await connect(nodes[0], "reader")
                assert await reader.subscribe("plant/#") == (1,)
                topics = ["plant/oven", f"plant/{turn}"]
                sent = [(topic, f"{place} {turn}".encode()) for topic in topics for place in range(count)]
                for topic, payload in sent:
                    assert await publishers[int(payload[:1])].publish(topic, payload) == 0
                async with asyncio.timeout(20):
                    got = [await reader.message() for _ in sent]
                assert sorted((one.topic, one.payload) for one in got) == sorted(sent)
                await reader.close()
                await until(lambda: not hosts[0].interests.patterns)

    run(main())
