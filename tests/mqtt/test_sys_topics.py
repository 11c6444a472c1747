"""`$SYS`: what a node tells its own clients about itself, as monitoring tools read it from Mosquitto."""

from __future__ import annotations

import asyncio
import math

import pytest

from live.lives import until
from mqtt.desk import Desk, Talker
from mqtt.talk import connect, doors
from trellis.errors import InputError
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.config import MqttConfig

# What exporters for Mosquitto read: `mosquitto-exporter`, Telegraf's and Zabbix' templates.
TOPICS = """
version uptime clients/total clients/connected clients/disconnected clients/maximum clients/expired
messages/received messages/sent messages/stored store/messages/count store/messages/bytes bytes/received bytes/sent
publish/messages/received publish/messages/sent publish/messages/dropped publish/bytes/received publish/bytes/sent
subscriptions/count shared_subscriptions/count
"""
READ_BY_TOOLS = {"retained messages/count", *TOPICS.split()}
LOADS = """
connections sockets messages/received messages/sent bytes/received bytes/sent publish/received publish/sent
publish/dropped
"""


def told(talker: Talker) -> dict[str, str]:
    """Return what came on `$SYS/broker/`, the last value of each topic."""
    found = {one.topic: one.payload.decode() for one in talker.got if isinstance(one, p.Publish)}
    assert all(topic.startswith("$SYS/broker/") for topic in found)
    talker.got.clear()
    return {topic.removeprefix("$SYS/broker/"): value for topic, value in found.items()}


def test_a_new_subscriber_gets_everything_that_monitoring_tools_read_as_retained_messages():
    desk = Desk()
    desk.pass_time(400)
    client = desk.welcome()
    assert client.subscribe("$SYS/#") == (1,)
    desk.pass_time(400)  # retained messages may take several turns
    publishes = [one for one in client.got if isinstance(one, p.Publish)]
    assert all(one.retain and one.qos == 0 for one in publishes)
    found = told(client)
    loads = {f"load/{name}/{minutes}min" for name in LOADS.split() for minutes in (1, 5, 15)}
    assert {*READ_BY_TOOLS, *loads} <= found.keys()
    assert found["uptime"].endswith(" seconds")
    assert all(float(value) >= 0 for topic, value in found.items() if topic not in ("version", "uptime"))


def test_values_follow_what_clients_do():
    desk = Desk()
    client, keeper = desk.welcome(), desk.welcome("keeper", expiry_s=30, clean_start=False)
    client.subscribe("$SYS/broker/clients/#", "$SYS/broker/+/count", "$SYS/broker/publish/#")
    keeper.subscribe("a/b")
    client.publish("a/b", b"kept", retain=True)
    keeper.drop()
    desk.pass_time(10_200)
    found = told(client)
    clients = {key: int(value) for key, value in found.items() if key.startswith("clients/")}
    assert clients["clients/total"] == 2
    assert clients["clients/connected"] == clients["clients/disconnected"] == 1
    assert found["subscriptions/count"] == "4"
    assert found["retained messages/count"] == "1"
    desk.pass_time(30_000)
    found = told(client)
    assert (found["clients/total"], found["clients/disconnected"], found["clients/expired"]) == ("1", "0", "1")


def test_only_what_has_changed_is_told_and_without_the_retain_flag():
    desk = Desk()
    client = desk.welcome()
    client.subscribe("$SYS/#")
    desk.pass_time(20_000)
    client.got.clear()
    desk.pass_time(10_000)
    assert [(one.topic, one.retain) for one in client.got] == [("$SYS/broker/uptime", False)]


def test_a_subscriber_that_wants_the_flag_as_published_gets_it():
    desk = Desk()
    client = desk.welcome()
    client.subscribe(p.Asked("$SYS/broker/uptime", 0, retain_as_published=True))
    desk.pass_time(20_400)
    assert len(client.got) >= 3
    assert all(one.retain for one in client.got if isinstance(one, p.Publish))


def test_retain_handling_2_brings_no_retained_values():
    desk = Desk()
    desk.pass_time(400)
    client = desk.welcome()
    client.subscribe(p.Asked("$SYS/#", 0, retain_handling=2))
    desk.pass_time(1_000)
    assert not told(client)


def test_nothing_of_it_enters_the_mesh_and_no_wildcard_brings_it():
    desk = Desk()
    reader, client = desk.welcome("reader"), desk.welcome()
    reader.subscribe("#", "+/broker/#")
    client.subscribe("$SYS/#")
    reader.got.clear()
    emitted, wanted = len(desk.emitted), set(desk.wanted)
    desk.pass_time(20_000)
    assert told(client)
    assert not reader.got
    assert all(one.topic == "$mqtt/ask" for one in desk.emitted[emitted:])
    assert desk.wanted == wanted
    assert not len(desk.host.retained)


def test_a_session_that_is_away_keeps_none_of_it():
    desk = Desk()
    client = desk.welcome(expiry_s=600, clean_start=False)
    client.subscribe(p.Asked("$SYS/#", 2))
    client.drop()
    desk.pass_time(60_000)
    session = desk.host.sessions["c"]
    assert not session.queue
    assert not session.flying


def test_loads_are_averages_per_minute_that_fade():
    desk = Desk(sys_interval_s=1)
    client = desk.welcome()
    desk.pass_time(1_200)
    client.subscribe("$SYS/broker/load/messages/received/+")
    desk.host.state.traffic.packets_in += 100
    desk.pass_time(1_000)
    found = told(client)
    for minutes in (1, 5, 15):
        expected = 6_000 * (1 - math.exp(-1 / (60 * minutes)))
        assert float(found[f"load/messages/received/{minutes}min"]) == pytest.approx(expected, abs=0.02)
    desk.pass_time(60_000)
    faded = float(told(client)["load/messages/received/1min"])
    assert faded == pytest.approx(6_000 * (1 - math.exp(-1 / 60)) / math.e, rel=0.02)


@pytest.mark.parametrize("fields", [{"sys_interval_s": 0}, {"listen": "", "broker": "mqtt://127.0.0.1:1"}])
def test_it_can_be_switched_off_and_a_sidecar_alone_has_none(fields):
    desk = Desk(**fields)
    client = desk.welcome()
    assert client.subscribe("$SYS/#") == (1,)
    desk.pass_time(60_000)
    assert not told(client)


def test_an_interval_below_0_is_refused():
    with pytest.raises(InputError, match="sys_interval_s"):
        MqttConfig(sys_interval_s=-1)


def test_a_node_counts_what_really_passes_its_sockets():
    """Two nodes: each tells of its own clients only."""

    async def work() -> None:
        async with doors("a", "b", mqtt={"sys_interval_s": 1}) as (a, b):
            mine, other = await connect(a, "monitor"), await connect(b, "other")
            other.send(p.Publish(topic="x/y", payload=b"123456"))
            await until(lambda: b.mqtt.traffic.publishes_in)
            await mine.subscribe(p.Asked("$SYS/#", 0))
            found: dict[str, str] = {}
            while int(found.get("$SYS/broker/publish/messages/sent", 0)) < 10:
                one = await mine.message()
                found[one.topic] = one.payload.decode()
            assert found["$SYS/broker/version"].startswith("trellis version ")
            assert found["$SYS/broker/clients/connected"] == "1"
            assert found["$SYS/broker/publish/messages/received"] == "0"
            assert int(found["$SYS/broker/bytes/sent"]) > int(found["$SYS/broker/bytes/received"]) > 0
            traffic = b.mqtt.traffic
            assert (traffic.publishes_in, traffic.payload_bytes_in, traffic.packets_in) == (1, 6, 2)
            assert (traffic.sockets, traffic.connects, traffic.packets_out) == (1, 1, 1)

    asyncio.run(work())
