"""The alerts of deploy/prometheus fire when they should, and not when nothing is wrong; /metrics has what they need."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

import trellis
from live.lives import DELIVERY, client_address, config, mesh, peer_address, run, until
from live.openmetrics import parse_openmetrics
from live.prometheus import Metrics, parse_metrics
from live.promql import History, alerts
from live.test_admin import ADMIN, admin_address
from trellis.live.admin import exposition
from trellis.live.health import unready
from trellis.live.mqtt.client import MqttClient
from trellis.live.series import CUT
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt.config import MqttConfig

RULES = alerts((Path(__file__).parents[2] / "deploy" / "prometheus" / "trellis.rules.yml").read_text("utf-8"))
LIVE = Path(trellis.__file__).parent / "live"
MQTT = MqttConfig(listen="127.0.0.1:0")


def scraped(node: LiveNode) -> Metrics:
    return parse_metrics(exposition(node))


def firing(history: History) -> set[str]:
    return {name for name, expression in RULES.items() if history.value(expression)}


def test_no_alert_fires_at_nodes_that_do_their_work():
    async def work() -> None:
        history = History()
        async with mesh("a", "b", topics=("t",), mqtt=MQTT, **ADMIN) as nodes, AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(trellis.connect(client_address(node))) for node in nodes]
            await asyncio.gather(*(client.subscribe("t") for client in clients))
            while any(node.health.complaints() or node.repairs.open or unready(node) for node in nodes):
                await asyncio.sleep(0.05)
            for turn in range(3):
                await clients[0].publish("t", b"...")
                for node in nodes:
                    history.scrape(60.0 * turn, scraped(node), node.name)
        assert len(RULES) >= 18
        assert firing(history) - {"TrellisTopicAlone"} == set()

    run(work())


def test_the_first_node_of_another_cluster_raises_the_alarm():
    """The counter is there, with 0, before anything has happened."""

    async def work() -> None:
        history = History()
        async with mesh("a", **ADMIN) as (node,):
            history.scrape(0.0, scraped(node))
            assert "TrellisWrongCompany" not in firing(history)
            stranger = LiveNode(config("s", (peer_address(node),), cluster="other"))
            await stranger.start()
            try:
                await until(lambda: node.transport.counters["cut cluster"] > 0)
            finally:
                await stranger.stop(in_order=False)
            history.scrape(60.0, scraped(node))
            assert "TrellisWrongCompany" in firing(history)

    run(work())


@pytest.mark.parametrize("reason", ["certificate", "cluster", "overlay", "tls", "version"])
@pytest.mark.parametrize("who", ["peer", "client"])
def test_wrong_company_of_every_kind_is_noticed_at_the_first_time(reason, who):
    if who == "client" and reason in ("cluster", "overlay"):
        pytest.skip("clients are of no cluster")

    async def work() -> None:
        history = History()
        async with mesh("a", **ADMIN) as (node,):
            history.scrape(0.0, scraped(node))
            (node.transport if who == "peer" else node.client_port).counters[f"cut {reason}"] += 1
            history.scrape(60.0, scraped(node))
            assert "TrellisWrongCompany" in firing(history)

    run(work())


@pytest.mark.parametrize(
    ("what", "alert"),
    [
        ("not acknowledged", "TrellisMqttNotAcknowledged"),
        ("publications refused", "TrellisMqttNotAcknowledged"),
        ("dropped", "TrellisMqttDropped"),
    ],
)
def test_the_first_trouble_of_an_mqtt_client_raises_an_alarm(what, alert):
    async def work() -> None:
        history = History()
        async with mesh("a", mqtt=MQTT, **ADMIN) as (node,):
            history.scrape(0.0, scraped(node))
            assert node.mqtt is not None
            node.mqtt.host.counters[what] += 1
            history.scrape(60.0, scraped(node))
            assert alert in firing(history)

    run(work())


def test_what_mqtt_clients_publish_is_counted_and_what_nodes_tell_each_other_is_counted_apart():
    async def work() -> None:
        async with mesh("a", "b", mqtt=MQTT, **ADMIN) as nodes:
            assert nodes[0].mqtt is not None
            assert nodes[1].mqtt is not None
            reader = MqttClient(f"127.0.0.1:{nodes[1].mqtt.port}", "reader")
            publisher = MqttClient(f"127.0.0.1:{nodes[0].mqtt.port}", "publisher")
            async with reader, publisher:
                await reader.subscribe("plant/#")
                await publisher.publish("plant/oven", b"1")
                await publisher.publish("plant/oven", b"2")
            found = [scraped(node) for node in nodes]
            assert found[0].value("trellis_published_total") == found[0].value("trellis_acknowledged_total") == 2
            assert found[1].value("trellis_published_total") == 0
            assert sum(one.value("trellis_internal_published_total") or 0 for one in found) > 0

    run(work())


def test_a_node_that_comes_back_to_a_topic_has_lost_nothing():
    """Messages that were published while nobody subscribed there are no loss."""

    async def work() -> None:
        history = History()
        quick = replace(DELIVERY, window_ms=400, tombstone_ms=60_000, interest_ms=300)
        async with mesh("a", "b", delivery=quick, **ADMIN) as (a, b), AsyncExitStack() as stack:
            publisher = await stack.enter_async_context(trellis.connect(client_address(a)))
            history.scrape(0.0, scraped(b))
            for turn in range(2):
                async with trellis.connect(client_address(b)) as reader:
                    await reader.subscribe("t")
                    await publisher.publish("t", b"%d" % turn)
                    assert (await anext(reader)).payload == b"%d" % turn
                await until(lambda: "t" not in b.mesh.wanted)
                for _ in range(5):
                    await publisher.publish("t", b"unheard")
                await until(lambda: not b.mesh.overlay.interest and not a.mesh.delivery.state.store.count)
            history.scrape(60.0, scraped(b))
            assert scraped(b).value("trellis_lost_total") == 0
            assert (scraped(b).value("trellis_passed_by_total") or 0) > 0, "it has skipped what it did not want"
            assert "TrellisMessagesLost" not in firing(history)

    run(work())


def test_label_values_are_identifiers_and_peers_cannot_make_series():
    async def work() -> None:
        async with mesh("a", mqtt=MQTT, **ADMIN) as (node,):
            before = scraped(node)
            assert node.mqtt is not None
            for number in range(1_000):
                for counters in (node.transport.counters, node.client_port.counters, node.mqtt.counters):
                    for kind in ("cut", "dropped", "closed", "refused"):
                        counters[f"{kind} because of {number}"] += 1
                node.mqtt.host.counters[f"anything {number}"] += 1
            after = scraped(node)
            assert after.samples.keys() == before.samples.keys()
            assert after.value("trellis_cut_off_total", who="peer", reason="other") == 1_000
            for name, labels in after.samples:
                for label, value in labels:
                    if name != "trellis_node_info":
                        assert re.fullmatch(r"[a-z0-9][a-z0-9_-]*|\+Inf|[0-9.]+", value), f"{name}: {label}={value}"

    run(work())


@pytest.mark.parametrize(
    ("who", "modules"),
    [("peer", ("transport", "handshake", "stream", "listen")), ("client", ("client_port", "stream", "listen"))],
)
def test_every_reason_to_cut_off_a_stream_has_a_series_of_its_own(who, modules):
    source = "".join((LIVE / f"{name}.py").read_text("utf-8") for name in modules)
    given = re.findall(r'\bcut(?:\(|, )"(\w+)"\)|"cut (\w+)"|\bRefused\("(\w+)"|self\.why or "(\w+)"', source)
    reasons = {reason for one in given for reason in one if reason}
    assert {"full", "garbage", "handshake", "oversized", "slow", "tls"} <= reasons, "the expression finds none"
    assert reasons - {"closed", "second", "self"} <= set(CUT[who]), "these are not counted, or count as `other`"


# OpenMetrics


async def read_as(node: LiveNode, accept: str) -> tuple[str, str]:
    """What /metrics answers to an Accept header: its type and its text."""
    reader, writer = await asyncio.open_connection(*admin_address(node).split(":"))
    try:
        wish = f"Accept: {accept}\r\n" if accept else ""
        writer.write(
            f"GET /metrics HTTP/1.1\r\nHost: {admin_address(node)}\r\n{wish}Connection: close\r\n\r\n".encode()
        )
        head, _, body = (await reader.read(-1)).decode().partition("\r\n\r\n")
    finally:
        writer.close()
    kind = re.search(r"^Content-Type: (.+?)\r?$", head, re.MULTILINE)
    assert kind is not None
    return kind[1], body


PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def test_metrics_are_openmetrics_to_who_asks_for_it_and_plain_text_to_others():
    async def work() -> None:
        async with mesh("a", "b", topics=("t",), mqtt=MQTT, **ADMIN) as (node, _):
            await until(lambda: bool(node.links))
            for accept in (PROMETHEUS, "application/openmetrics-text", "application/openmetrics-text; version=1.0.0"):
                kind, text = await read_as(node, accept)
                assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8"
                found = parse_openmetrics(text)
                assert found["trellis_published"].kind == "counter"
                assert found["trellis_node"].kind == "info"
                assert found["trellis_mend_seconds"].unit == found["trellis_stood_still_seconds"].unit == "seconds"
                assert found["trellis_held_bytes"].unit == "bytes"
                assert found["trellis_degree"].samples == {("trellis_degree", ()): 1.0}
            for accept in (
                "",
                "*/*",
                "text/plain",
                "text/plain, application/openmetrics-text;q=0.1",
                "text/html",
                "q=;,;",
            ):
                kind, text = await read_as(node, accept)
                assert kind == "text/plain; version=0.0.4; charset=utf-8"
                plain = parse_metrics(text)
            families = {name.removesuffix("_total").removesuffix("_info") for name in plain.kinds}
            assert families == found.keys(), "both formats tell the same"

    run(work())


@pytest.mark.parametrize(
    "text",
    [
        "# TYPE a counter\na_total 1\n",  # no end
        "# TYPE a counter\na 1\n# EOF\n",  # a counter without _total
        "# TYPE a_total counter\na_total 1\n# EOF\n",  # a family with _total
        "# TYPE a gauge\na 1\n# TYPE a gauge\n# EOF\n",  # metadata after samples
        "# TYPE a gauge\n# UNIT a seconds\na 1\n# EOF\n",  # a unit that is not in the name
        "# TYPE a gauge\n\na 1\n# EOF\n",  # an empty line
        '# TYPE a gauge\na{b="1"} 1\na{b="1"} 2\n# EOF\n',  # told twice
        "# TYPE a gauge\na 1\n# EOF\n# EOF\n",
    ],
)
def test_the_reader_of_openmetrics_refuses_what_is_none(text):
    with pytest.raises(AssertionError):
        parse_openmetrics(text)
