"""[mqtt] of node.toml."""

from __future__ import annotations

import json

import pytest

from trellis.errors import InputError
from trellis.live.config import NodeConfig, read_config
from trellis.live.mqtt.sidecar import parse_broker
from trellis.protocols.mqtt.config import MqttConfig


def test_every_key_comes_from_the_file_the_environment_and_flags(tmp_path):
    path = tmp_path / "node.toml"
    path.write_text('name = "a"\n[mqtt]\nlisten = "127.0.0.1:1883"\ntake = ["a/#"]\n')
    environment = {"TRELLIS_MQTT_WANT": "b/#, c/+/d", "TRELLIS_MQTT_DEPTH": "3"}
    found = read_config(path, environment, {"mqtt.suback_s": "2"}).mqtt
    assert (found.take, found.want, found.depth, found.suback_s) == (("a/#",), ("b/#", "c/+/d"), 3, 2.0)


def test_a_message_holds_the_largest_packet():
    assert NodeConfig(name="a").delivery.payload_bytes_max == 256 << 10
    found = NodeConfig(name="a", mqtt=MqttConfig(listen="127.0.0.1:0"))
    assert found.delivery.payload_bytes_max > found.mqtt.packet_bytes_max


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"depth": 0}, "mqtt.depth: it is 0; give more than 0"),
        ({"clients_max": -1}, "mqtt.clients_max: it is -1"),
        ({"cert": "a.pem"}, "mqtt.cert: cert and key belong together"),
        ({"want": ["a#"]}, 'mqtt.want: "a#" is no topic filter'),
        ({"take": ["$SYS/#"]}, "mqtt.take: .* is no topic filter that is carried"),
        ({"broker": "mqtt://b", "take": []}, "mqtt.broker: it would neither take nor give"),
        ({"listen": "0.0.0.0:1883"}, "mqtt.listen: 0.0.0.0 is beyond loopback and there is no TLS"),
        ({"listen": "1883"}, 'mqtt.listen: "1883" is no address'),
        ({"lisen": "x"}, 'there is no key "mqtt.lisen"; perhaps mqtt.listen'),
    ],
)
def test_nonsense_is_refused_in_one_line(tmp_path, given, message):
    path = tmp_path / "node.toml"
    lines = [f"{key} = {json.dumps(value)}" for key, value in given.items()]  # these are TOML as well
    path.write_text("\n".join(['name = "a"', "[mqtt]", *lines]))
    with pytest.raises(InputError, match=message) as error:
        read_config(path, {}, {})
    assert "\n" not in str(error.value)


def test_where_a_broker_is():
    assert parse_broker("mqtt://b", MqttConfig()) == ("b", 1883, None, None, None)
    assert parse_broker("mqtt://ann:s%40fe@b:9", MqttConfig()) == ("b", 9, "ann", b"s@fe", None)
    host, port, _, _, tls = parse_broker("mqtts://b", MqttConfig())
    assert (host, port) == ("b", 8883)
    assert tls is not None
    for wrong in ("b:1883", "http://b", "mqtt://", "mqtt://b:x", "mqtt://b/path"):
        with pytest.raises(InputError, match="give mqtt://host:1883"):
            parse_broker(wrong, MqttConfig())
