"""The commands and MQTT: `trellis node` says where its door is, `trellis sub` shows what clients of MQTT have sent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from live.lives import run
from mqtt.sites import QUICK
from trellis.live.mqtt.client import MqttClient

PROGRAM = str(Path(sys.executable).parent / "trellis")


@pytest.fixture
def node() -> Iterator[str]:
    """What it says when it is up."""
    settings = {**QUICK, "mqtt.listen": "127.0.0.1:0", "mqtt.broker": "mqtt://me:secret@127.0.0.1:1", "mqtt.want": "x"}
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = [PROGRAM, "node", "--name", "a", "--listen", "127.0.0.1:0", "--client-listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline()
        finally:
            process.kill()


def test_a_node_says_where_clients_of_mqtt_connect_and_sub_shows_what_they_send(node):
    assert "beside the broker at 127.0.0.1:1" in node
    assert "secret" not in node
    told = dict(part.strip().rsplit(" ", 1) for part in node.partition(": ")[2].split(","))
    command = [PROGRAM, "sub", "home/hall", "--at", told["clients"], "--count", "3"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as plain,
        subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as as_json,
    ):
        try:
            for reader in (plain, as_json):
                assert reader.stderr is not None
                assert "subscribed to home/hall" in reader.stderr.readline()

            async def work() -> None:
                async with MqttClient(told["MQTT"], "c") as client:
                    await client.subscribe("home/hall/+")  # its door asks there what is retained: not for people
                    await client.publish("home/hall/temp", "21 °C".encode())
                    await client.publish("home/hall/temp", b"")
                    await client.publish("home/hall", b"bare")

            run(work())
            out, _ = plain.communicate(timeout=60)
            lines, _ = as_json.communicate(timeout=60)
        finally:
            plain.kill()
            as_json.kill()
    assert out.splitlines() == ["home/hall/temp\t21 °C", "home/hall/temp\t", "home/hall\tbare"]
    found = [json.loads(line) for line in lines.splitlines()]
    assert [(one["topic"], one["mqtt_topic"], one["payload"]) for one in found] == [
        ("home/hall", "home/hall/temp", "21 °C"),
        ("home/hall", "home/hall/temp", ""),
        ("home/hall", "home/hall", "bare"),
    ]
