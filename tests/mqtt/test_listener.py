"""The embedded door across three nodes, with raw packets: wildcards, QoS 1, sizes, names, clients that vanish."""

from __future__ import annotations

import asyncio

import pytest

import trellis
from live.lives import client_address, run, until
from mqtt.talk import connect, dial, doors
from trellis.live.config import LimitsConfig
from trellis.live.mqtt.passwords import Passwords, hash_password, read_passwords
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons


@pytest.mark.parametrize("version", [p.V311, p.V5])
def test_every_subscriber_gets_every_message_once_and_in_order(version):
    async def work() -> None:
        async with doors("a", "b", "c") as nodes:
            readers = [await connect(node, f"r{index}", version) for index, node in enumerate(nodes)]
            await asyncio.gather(*(reader.subscribe("s/t/#") for reader in readers))
            publisher = await connect(nodes[1], "publisher", version)
            sent = [b"%d" % number for number in range(100)]
            for one in sent:
                assert await publisher.publish(f"s/t/{one.decode()}", one) == 0
            for reader in readers:
                assert await reader.messages(100) == sent
            await publisher.publish("s/t/0", b"the end")  # and nothing was left before it
            for reader in readers:
                assert (await reader.message()).payload == b"the end"

    run(work())


def test_a_wildcard_gets_the_first_message_of_every_new_topic_once_and_in_order():
    """From its SUBACK on, whichever way the messages come: see docs/mqtt.md, Wildcards."""

    async def work() -> None:
        async with doors("a", "b", "c") as nodes:
            all_, some, one, none = [await connect(node, f"r{i}") for i, node in enumerate([*nodes, nodes[0]])]
            await asyncio.gather(
                all_.subscribe("#"), some.subscribe("x/+/t"), one.subscribe("x/3/t"), none.subscribe("y/#")
            )
            publishers = [await connect(node, f"p{index}") for index, node in enumerate(nodes)]

            async def publish(index: int) -> None:
                for turn in range(4):  # the first message of a topic, and what follows while readers join
                    for topic in range(8):
                        assert await publishers[index].publish(f"x/{topic}/t", b"%d %d %d" % (index, topic, turn)) == 0
                    await asyncio.sleep(0.3)

            await asyncio.gather(*(publish(index) for index in range(3)))
            for reader, topics in ((all_, range(8)), (some, range(8)), (one, [3])):
                found = await reader.messages(4 * 3 * len(topics))
                for index in range(3):
                    for topic in topics:
                        of_this = [one for one in found if one.startswith(b"%d %d " % (index, topic))]
                        assert of_this == [b"%d %d %d" % (index, topic, turn) for turn in range(4)]
            await publishers[0].publish("y", b"mine")
            assert (await none.message()).payload == b"mine"

    run(work())


def test_a_new_wildcard_gets_what_is_published_on_old_topics_after_its_suback():
    async def work() -> None:
        async with doors("a", "b", "c", mqtt={"introduce_s": 2.0}) as nodes:
            publisher, reader = await connect(nodes[0], "p"), await connect(nodes[2], "r")
            old = await connect(nodes[1], "old")
            await old.subscribe("x/1")
            await publisher.publish("x/1", b"before")
            host = nodes[0].mqtt.host
            await until(lambda: not host.directory.introductions.active["x/1"].pending)  # no longer new
            await reader.subscribe("x/#")
            sent = [b"%d" % number for number in range(30)]
            for one in sent:
                await publisher.publish("x/1", one)
                await asyncio.sleep(0.1)  # over the end of the introduction
            assert await reader.messages(30) == sent
            assert await old.messages(31) == [b"before", *sent]
            assert "x/1" in nodes[2].mqtt.host.interests.known

    run(work())


def test_nothing_reaches_a_node_that_wants_nothing_of_it():
    async def work() -> None:
        async with doors("a", "b", "c", mqtt={"ask_s": 0.5}) as nodes:
            reader, publisher = await connect(nodes[0], "r"), await connect(nodes[1], "p")
            await reader.subscribe("x/+/t")
            directory = nodes[1].mqtt.host.directory
            await until(lambda: directory.is_informed)
            for number in range(20):
                await publisher.publish(f"x/{number}/t", b"")
                await publisher.publish(f"y/{number}/t", b"")
            await reader.messages(20)
            topics = {topic for topic in nodes[2].mesh.delivery.state.topics if not topic.startswith("$")}
            assert not topics
            assert not {one for one in nodes[0].mesh.delivery.state.topics if one.startswith("y")}

    run(work())


def test_large_and_empty_payloads_and_topics_in_any_script():
    async def work() -> None:
        async with doors("a", "b", "c") as nodes:
            reader, publisher = await connect(nodes[0], "r"), await connect(nodes[2], "p", p.V311)
            await reader.subscribe("größe/北京/#", "//")
            large = bytes(range(256)) * 1_024
            for topic, payload in (("größe/北京/🌉", large), ("größe/北京", b""), ("//", b"\0")):
                assert await publisher.publish(topic, payload) == 0
                found = await reader.message()
                assert (found.topic, found.payload) == (topic, payload)

    run(work())


def test_clients_that_vanish_leave_a_will_and_no_interests():
    async def work() -> None:
        async with doors("a", "b") as nodes:
            watcher = await connect(nodes[1], "watcher")
            await watcher.subscribe("wills/#")
            will = p.Will(topic="wills/x", payload=b"gone", qos=1, retain=False)
            gone = await connect(nodes[0], "gone", will=will)
            await gone.subscribe("a/b", "c/#")
            gone.vanish()
            assert (await watcher.message()).payload == b"gone"
            await until(lambda: not nodes[0].mqtt.host.sessions)
            assert list(nodes[0].mqtt.host.interests.wanted) == ["$mqtt/ask"]

    run(work())


def test_a_session_keeps_what_comes_while_its_client_is_away():
    async def work() -> None:
        async with doors("a", "b") as nodes:
            first = await connect(nodes[0], "r", clean_start=False, expiry_s=60)
            await first.subscribe("t")
            first.vanish()
            publisher = await connect(nodes[1], "p")
            for number in range(20):
                await publisher.publish("t", b"%d" % number)
            again = await connect(nodes[0], "r", clean_start=False, expiry_s=60)
            assert again.answer.session_present
            assert await again.messages(20) == [b"%d" % number for number in range(20)]

    run(work())


def test_trellis_clients_and_mqtt_clients_hear_each_other():
    async def work() -> None:
        async with doors("a", "b") as nodes:
            reader = await connect(nodes[0], "r")
            await reader.subscribe("a/b", "new/#")
            async with trellis.connect(client_address(nodes[1])) as client:
                await client.publish("a/b", b"plain")
                found = await reader.message()
                assert (found.topic, found.payload, found.qos) == ("a/b", b"plain", 1)
                await client.subscribe("a/b")  # both doors of a node want it, and one leaves it
                second = await connect(nodes[1], "s")
                await second.subscribe("a/b")
                await second.close()
                await until(lambda: not nodes[1].mqtt.host.sessions)
                await reader.publish("a/b", b"from MQTT")
                assert (await anext(client)).payload == b"from MQTT"
                assert nodes[1].subscriptions._wants["a/b"] == 1

    run(work())


def test_a_client_that_does_not_read_is_cut_off_and_the_others_go_on():
    async def work() -> None:
        limits = LimitsConfig(buffer_bytes=4_096, stall_s=30)
        async with doors("a", mqtt={"queue_bytes": 200_000}, limits=limits) as nodes:
            lazy, other = await connect(nodes[0], "lazy"), await connect(nodes[0], "other")
            await lazy.subscribe(p.Asked("t", 0))
            await other.subscribe(p.Asked("t", 0))
            lazy.writer.transport.pause_reading()
            sent = 0
            while not nodes[0].mqtt.counters["cut slow"]:
                await other.publish("t", b"%d" % sent + bytes(50_000), 0)
                assert (await other.message()).payload.startswith(b"%d\0" % sent)
                sent += 1

    run(work())


def test_a_client_gets_nothing_larger_than_it_takes():
    async def work() -> None:
        async with doors("a") as nodes:
            small, publisher = await connect(nodes[0], "small", packet_bytes_max=500), await connect(nodes[0], "p")
            await small.subscribe("t")
            await publisher.publish("t", bytes(1_000))
            await publisher.publish("t", b"fits")
            assert (await small.message()).payload == b"fits"
            assert nodes[0].metrics()["mqtt too large for a client"] == 1

    run(work())


BAD = {
    "http": (b"GET / HTTP/1.1\r\n\r\n", "protocol error"),
    "no connect": (b"\xc0\x00", "protocol error"),
    "another protocol": (b"\x10\x0d\x00\x05HELLO\x04\x02\x00\x00\x00\x00", "protocol error"),
    "garbage": (bytes(range(256)), "protocol error"),
    "a packet too large": (b"\x10\xff\xff\xff\x7f", "too large"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_company_is_cut_off_and_counted_while_traffic_goes_on(case):
    async def work() -> None:
        async with doors("a") as nodes:
            reader = await connect(nodes[0], "r")
            await reader.subscribe("t")
            raw = await dial(nodes[0])
            raw.writer.write(BAD[case][0])
            while await raw.reader.read(100):
                pass
            assert nodes[0].mqtt.counters[f"cut {BAD[case][1]}"] == 1, nodes[0].mqtt.counters
            await reader.publish("t", b"on")
            assert (await reader.message()).payload == b"on"

    run(work())


def test_who_says_nothing_is_cut_off():
    async def work() -> None:
        async with doors("a", limits=LimitsConfig(handshake_s=0.3)) as nodes:
            raw = await dial(nodes[0])
            assert await raw.read() is None
            assert nodes[0].mqtt.counters["cut handshake"] == 1

    run(work())


def test_clients_beyond_the_limit_are_refused_with_a_word():
    async def work() -> None:
        async with doors("a", mqtt={"clients_max": 1}) as nodes:
            await connect(nodes[0], "one")
            raw = await dial(nodes[0])
            raw.send(p.Connect(version=p.V5, client="two", clean_start=True))
            answer = await raw.read()
            assert isinstance(answer, p.ConnAck)
            assert answer.reason == reasons.BUSY

    run(work())


def test_only_users_of_the_file_come_in(tmp_path):
    users = tmp_path / "users"
    users.write_text(f"ann:{hash_password(b'secret')}\n\n")

    async def try_as(node: LiveNode, user: str | None, password: bytes | None) -> int:
        raw = await dial(node)
        # What follows CONNECT at once waits for the check.
        raw.send(p.Connect(version=p.V5, client="c", clean_start=True, user=user, password=password), p.PingReq())
        answer = await raw.read()
        assert isinstance(answer, p.ConnAck)
        if not answer.reason:
            assert isinstance(await raw.read(), p.PingResp)
        return answer.reason

    async def work() -> None:
        async with doors("a", mqtt={"users": str(users)}) as nodes:
            assert await try_as(nodes[0], "ann", b"secret") == 0
            for user, password in (("ann", b"wrong"), ("bob", b"secret"), (None, None), ("ann", None)):
                assert await try_as(nodes[0], user, password) == reasons.NOT_AUTHORIZED

    run(work())


def test_a_password_file_says_what_is_wrong_with_it(tmp_path):
    from trellis.errors import InputError

    bad = tmp_path / "users"
    bad.write_text("ann:secret\n")
    with pytest.raises(InputError, match=r"users:1: not user:n\$r\$p\$salt\$hash"):
        read_passwords(str(bad))
    with pytest.raises(InputError, match="no such file"):
        read_passwords(str(tmp_path / "none"))
    assert not Passwords({}).is_right("ann", b"")


def test_a_node_that_leaves_tells_its_clients():
    async def work() -> None:
        async with doors("a", "b") as nodes:
            client = await connect(nodes[1], "c")
            nodes[1].leave()
            answer = await client.read()
            assert isinstance(answer, p.Disconnect)
            assert answer.reason == reasons.SHUTTING_DOWN
            await nodes[1].wait()

    run(work())


def test_the_others_go_on_when_the_node_of_a_publisher_dies():
    async def work() -> None:
        async with doors("a", "b", "c") as nodes:
            reader, publisher, other = [await connect(node, f"c{index}") for index, node in enumerate(nodes)]
            await reader.subscribe("x/#")
            for number in range(10):
                await publisher.publish(f"x/{number}", b"%d" % number)
            await nodes[1].stop(in_order=False)
            for number in range(10, 20):
                await other.publish(f"x/{number - 10}", b"%d" % number)
            assert sorted(await reader.messages(20), key=int) == [b"%d" % number for number in range(20)]

    run(work())
