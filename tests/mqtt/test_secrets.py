"""The broker's password: where it may come from, and that nothing prints it."""

from __future__ import annotations

import os
import tomllib

import pytest

from live.lives import run, until
from mqtt.talk import doors
from trellis.cli.main import run as trellis_run
from trellis.errors import InputError
from trellis.live.config import NodeConfig, read_config
from trellis.live.mqtt.passwords import hash_password
from trellis.live.mqtt.sidecar import parse_broker
from trellis.protocols.mqtt.config import MqttConfig, hide_password

SECRET = "s3cr3t-of-the-broker"


@pytest.mark.parametrize("where", ["the URL in a file", "the environment", "--set of the URL", "--set of the password"])
def test_a_printed_configuration_has_no_password_and_can_be_read_again(where, tmp_path, monkeypatch, capsys):
    file, words = tmp_path / "node.toml", []
    file.write_text('name = "a"\n[mqtt]\nbroker = "mqtt://ann@b:1883"\n')
    if where == "the URL in a file":
        file.write_text(f'name = "a"\n[mqtt]\nbroker = "mqtt://ann:{SECRET}@b:1883"\n')
    elif where == "the environment":
        monkeypatch.setenv("TRELLIS_MQTT_BROKER_PASSWORD", SECRET)
    elif where == "--set of the URL":
        words = ["--set", f"mqtt.broker=mqtt://ann:{SECRET}@b:1883"]
    else:
        words = ["--set", f"mqtt.broker_password={SECRET}"]
    assert trellis_run(["node", "--config", str(file), "--print-config", *words]) == 0
    printed = capsys.readouterr()
    assert SECRET not in printed.out + printed.err
    assert "***" not in printed.out
    assert tomllib.loads(printed.out)["mqtt"]["broker"] == "mqtt://ann@b:1883"
    assert "# The password is not printed." in printed.out
    assert ("carries a password, and every user of this machine can read it" in printed.err) == bool(words)
    again = tmp_path / "again.toml"
    again.write_text(printed.out)
    assert read_config(again, {}, {}).mqtt.broker == "mqtt://ann@b:1883"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mqtt://b", "mqtt://b"),
        ("mqtt://ann@b", "mqtt://ann@b"),
        (f"mqtt://ann:{SECRET}@b:1883", "mqtt://ann:***@b:1883"),
        (f"mqtts://ann:x@{SECRET}/@b", "mqtts://ann:***@b"),
        (f"mqtt://:{SECRET}@b", "mqtt://:***@b"),
        (f"ann:{SECRET}@b", "ann:***@b"),
        (f"mqtt:/ann:{SECRET}@b", "mqtt:***@b"),
        (f"http://ann:{SECRET}@b:port/path", "http://ann:***@b:port/path"),
    ],
)
def test_no_error_and_no_printed_value_has_the_password_of_a_url(url, shown):
    assert hide_password(url) == shown
    config = MqttConfig(broker=url)
    assert SECRET not in repr(config)
    assert SECRET not in repr(NodeConfig(name="a", mqtt=config))
    assert SECRET not in str(list(config.__rich_repr__()))


@pytest.mark.parametrize("url", [f"ann:{SECRET}@b", f"mqtt:/ann:{SECRET}@b", f"mqtt://ann:{SECRET}@b:port"])
def test_a_url_that_is_no_broker_is_told_without_its_password(url):
    with pytest.raises(InputError, match=r"mqtt\.broker: .* is no broker") as error:
        parse_broker(url, MqttConfig(broker=url))
    assert SECRET not in str(error.value)
    assert hide_password(url) in str(error.value)


def test_a_password_of_its_own_is_not_in_what_tools_print():
    assert SECRET not in repr(MqttConfig(broker="mqtt://ann@b", broker_password=SECRET))


def test_a_password_comes_from_the_environment_or_from_a_file(tmp_path):
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\nnot this line\n")
    for environment in (
        {"TRELLIS_MQTT_BROKER": "mqtt://ann@b", "TRELLIS_MQTT_BROKER_PASSWORD": SECRET},
        {"TRELLIS_MQTT_BROKER": "mqtt://ann@b", "TRELLIS_MQTT_BROKER_PASSWORD_FILE": str(file)},
        {"TRELLIS_MQTT_BROKER": f"mqtt://ann:{SECRET}@b"},
    ):
        found = read_config(None, environment, {"name": "a"}).mqtt
        assert parse_broker(found.broker, found)[2:4] == ("ann", SECRET.encode())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"broker_password": SECRET, "broker_password_file": "x"}, "the password is given twice"),
        ({"broker": f"mqtt://ann:{SECRET}@b", "broker_password": SECRET}, "the password is given twice"),
    ],
)
def test_two_passwords_are_refused_and_not_told(given, told):
    with pytest.raises(InputError, match=told) as error:
        MqttConfig(**{"broker": "mqtt://ann@b", **given})
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("text", [None, "", "\n"])
def test_a_file_without_a_password_is_named(text, tmp_path):
    file = tmp_path / "password"
    if text is not None:
        file.write_text(text)
    config = MqttConfig(broker="mqtt://ann@b", broker_password_file=str(file))
    with pytest.raises(InputError, match=r"mqtt\.broker_password_file: .*password: "):
        parse_broker(config.broker, config)


def test_a_sidecar_reads_the_file_at_every_connection(tmp_path, caplog):
    """The broker has a new password: the sidecar gets in as soon as its file has it, too."""
    users, file = tmp_path / "users", tmp_path / "password"
    users.write_text(f"ann:{hash_password(SECRET.encode())}\n")
    file.write_text("the old one\n")

    async def work() -> None:
        async with doors("broker", mqtt={"users": str(users)}) as (broker,):
            given = {"broker": f"mqtt://ann@127.0.0.1:{broker.mqtt.port}", "broker_password_file": str(file)}
            async with doors("site", mqtt=given) as (site,):
                await until(lambda: any("it refuses us" in one for one in caplog.messages))
                (tmp_path / "next").write_text(SECRET)
                os.replace(tmp_path / "next", file)  # noqa: PTH105
                await until(lambda: site.mqtt.sidecar._is_attached)
        assert SECRET not in caplog.text

    run(work())
