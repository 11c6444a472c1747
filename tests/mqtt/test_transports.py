"""Stock clients, unchanged, over TCP, TLS, WebSocket, and WebSocket with TLS. Those that are not installed are skipped.

Each subscribes, publishes, and gets its own message back together with one that came through another node.
"""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from live.lives import config, peer_address, run
from live.test_transport import make_tls  # noqa: F401  a fixture
from mqtt.talk import QUICK, connect, vanish_all
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.topics import pattern_of

TRANSPORTS = ["tcp", "tls", "websocket", "websocket with tls"]
LIMIT_S = 60.0

# Each program gets port, transport and the authority's file. It subscribes to t/#, prints "ready", publishes "mine" on
# t/mine, prints the payloads that come, and ends when it has two of them.
PAHO = """
import ssl, sys
import paho.mqtt.client as paho
port, transport, ca = int(sys.argv[1]), sys.argv[2], sys.argv[3]
got = []
def on_message(client, data, message):
    print(message.payload.decode(), flush=True)
    got.append(message)
    if len(got) == 2:
        client.disconnect()
def on_subscribe(client, *rest):
    print("ready", flush=True)
    client.publish("t/mine", "mine", qos=1)
client = paho.Client(paho.CallbackAPIVersion.VERSION2, "paho", protocol=paho.MQTTv5,
                     transport="websockets" if transport.startswith("web") else "tcp")
if transport.endswith("tls"):
    client.tls_set(ca_certs=ca)
    client.tls_insecure_set(True)
client.on_message, client.on_subscribe = on_message, on_subscribe
client.on_connect = lambda client, *rest: client.subscribe("t/#", qos=1)
client.connect("127.0.0.1", port)
client.loop_forever()
"""

AIOMQTT = """
import asyncio, sys
import aiomqtt
port, transport, ca = int(sys.argv[1]), sys.argv[2], sys.argv[3]
async def main():
    tls = {"tls_params": aiomqtt.TLSParameters(ca_certs=ca), "tls_insecure": True} if transport.endswith("tls") else {}
    kind = "websockets" if transport.startswith("web") else "tcp"
    async with aiomqtt.Client("127.0.0.1", port, transport=kind, **tls) as client:
        await client.subscribe("t/#", qos=1)
        print("ready", flush=True)
        await client.publish("t/mine", "mine", qos=1)
        count = 0
        async for message in client.messages:
            print(message.payload.decode(), flush=True)
            count += 1
            if count == 2:
                return
asyncio.run(main())
"""

GMQTT = """
import asyncio, ssl, sys
import gmqtt
port, transport, ca = int(sys.argv[1]), sys.argv[2], sys.argv[3]
async def main():
    done, got = asyncio.Event(), []
    client = gmqtt.Client("gmqtt")
    def on_message(client, topic, payload, qos, properties):
        print(payload.decode(), flush=True)
        got.append(payload)
        if len(got) == 2:
            done.set()
        return 0
    def on_subscribe(client, mid, qos, properties):
        print("ready", flush=True)
        client.publish("t/mine", "mine", qos=1)
    client.on_message, client.on_subscribe = on_message, on_subscribe
    tls = False
    if transport.endswith("tls"):
        tls = ssl.create_default_context(cafile=ca)
        tls.check_hostname = False
    await client.connect("127.0.0.1", port, ssl=tls)
    client.subscribe("t/#", qos=1)
    await done.wait()
    await client.disconnect()
asyncio.run(main())
"""

MQTT_JS = """
const mqtt = require("mqtt"), fs = require("fs");
const [port, transport, ca] = process.argv.slice(2);
const scheme = {"tcp": "mqtt", "tls": "mqtts", "websocket": "ws", "websocket with tls": "wss"}[transport];
const tls = transport.endsWith("tls") ? {ca: fs.readFileSync(ca), checkServerIdentity: () => undefined} : {};
const client = mqtt.connect(`${scheme}://127.0.0.1:${port}/mqtt`, {protocolVersion: 5, ...tls, wsOptions: tls});
let count = 0;
client.on("error", error => { console.error(error); process.exit(1); });
client.on("connect", () => client.subscribe("t/#", {qos: 1}, () => {
  console.log("ready");
  client.publish("t/mine", "mine", {qos: 1});
}));
client.on("message", (topic, payload) => { console.log(payload.toString()); if (++count == 2) client.end(); });
"""


def _has_mqtt_js() -> bool:
    node = shutil.which("node")
    if node is None:
        return False
    return subprocess.run([node, "-e", 'require("mqtt")'], capture_output=True, check=False).returncode == 0


def command(client: str, transport: str, port: int, ca: str, folder: Path) -> list[str]:
    """Return the command that runs a client. Skip the test if the client is not there, or lacks the transport."""
    rest = [str(port), transport, ca]
    if client == "mosquitto_sub":
        if shutil.which(client) is None:
            pytest.skip("mosquitto_sub is not installed (Debian: apt install mosquitto-clients)")
        if transport.startswith("web"):
            pytest.skip("mosquitto_sub 2.0 does not speak WebSocket")
        tls = ["--cafile", ca, "--insecure"] if transport == "tls" else []
        return [client, "-h", "127.0.0.1", "-p", str(port), "-t", "t/#", "-q", "1", "-C", "2", *tls]
    if client == "mqtt.js":
        if not _has_mqtt_js():
            pytest.skip("Node or its package mqtt is absent (npm install mqtt, and name its folder in NODE_PATH)")
        script = folder / "client.js"
        script.write_text(MQTT_JS)
        return ["node", str(script), *rest]
    module = {"paho": "paho", "aiomqtt": "aiomqtt", "gmqtt": "gmqtt"}[client]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{client} is not installed (pip install {client})")
    if client == "gmqtt" and transport.startswith("web"):
        pytest.skip("gmqtt does not speak WebSocket")
    return [sys.executable, "-c", {"paho": PAHO, "aiomqtt": AIOMQTT, "gmqtt": GMQTT}[client], *rest]


@asynccontextmanager
async def two_nodes(cert: str, key: str) -> AsyncIterator[list[LiveNode]]:
    """Two nodes of one mesh. Clients of the first need TLS if there is a certificate."""
    nodes: list[LiveNode] = []
    try:
        for name, files in (("a", {"cert": cert, "key": key} if cert else {}), ("b", {})):
            given = MqttConfig(listen="127.0.0.1:0", websocket="127.0.0.1:0", **QUICK, **files)
            node = LiveNode(config(name, tuple(peer_address(one) for one in nodes[:1]), mqtt=given))
            await node.start()
            nodes.append(node)
        yield nodes
        assert not any(node.counters["bugs"] for node in nodes)
    finally:
        await vanish_all()
        for node in nodes:
            await node.stop(in_order=False)


@pytest.mark.parametrize(
    ("client", "transport"),
    [
        pytest.param(client, transport, marks=[] if client == "paho" and transport[0] == "w" else [pytest.mark.slow])
        for client in ("paho", "aiomqtt", "gmqtt", "mosquitto_sub", "mqtt.js")
        for transport in TRANSPORTS
    ],
)
def test_a_stock_client_talks_to_a_node_over_every_transport(client, transport, make_tls, tmp_path):  # noqa: F811
    tls = make_tls("ours")
    command(client, transport, 0, tls.ca, tmp_path)  # skips before a mesh is built

    async def work() -> None:
        files = (str(tls.cert), str(tls.key)) if transport.endswith("tls") else ("", "")
        async with two_nodes(*files) as (first, second):
            assert first.mqtt is not None
            port = first.mqtt.websocket_port if transport.startswith("web") else first.mqtt.port
            process = await asyncio.create_subprocess_exec(
                *command(client, transport, port, tls.ca, tmp_path), stdout=-1, stderr=-1
            )
            try:
                assert process.stdout is not None
                assert process.stderr is not None
                other = await connect(second, "other")
                if client == "mosquitto_sub":  # it publishes nothing by itself, and does not say when it is ready
                    pattern = pattern_of("t/#", first.mqtt.config.depth)
                    while not (first.mqtt.host.tree.count and first.mqtt.host.subscriptions.is_ready(pattern)):
                        await asyncio.sleep(0.05)
                    await other.publish("t/mine", b"mine")
                elif await process.stdout.readline() != b"ready\n":
                    raise AssertionError((await process.stderr.read()).decode())
                await other.publish("t/other", b"other")
                assert sorted((await process.stdout.read()).split()) == [b"mine", b"other"]
                assert await process.wait() == 0, (await process.stderr.read()).decode()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    run(work(), LIMIT_S)
