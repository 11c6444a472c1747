"""`trellis doctor` names files that the node could not read or write, and changes none of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from live.lives import config
from trellis.cli.main import run as trellis_run
from trellis.live.config import NodeConfig
from trellis.live.doctor_files import check_named_files
from trellis.live.mqtt.passwords import hash_password
from trellis.live.telemetry import TelemetryConfig
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.learn import Learned

LEARNED = msgspec.json.encode(Learned(1, {}, [], []))
DAMAGED = b'{"version": 1, "clients": 7'


def named(key: str, path: Path) -> NodeConfig:
    """A configuration that names one file by a key."""
    if key == "telemetry.file":
        return config("a", telemetry=TelemetryConfig(file=str(path)))
    if key == "mqtt.users":
        return config("a", mqtt=MqttConfig(listen="127.0.0.1:0", users=str(path)))
    return config("a", mqtt=MqttConfig(broker="mqtt://127.0.0.1:9", learn=True, learn_file=str(path)))


def wrong_files(given: NodeConfig) -> list[str]:
    return [f"{one.where}: {one.what}" for one in check_named_files(given) if one.level == "wrong"]


@pytest.mark.parametrize(
    ("key", "good", "bad", "told"),
    [
        ("mqtt.learn_file", LEARNED, DAMAGED, "is damaged: "),
        ("mqtt.users", f"ann:{hash_password(b'secret')}\n".encode(), b"ann:secret\n", ":1: not user:n$r$p$salt$hash"),
        ("mqtt.users", f"ann:{hash_password(b'secret')}\n".encode(), b"\n", " names no user, so no MQTT client can"),
        ("telemetry.file", b'{"time": 1.0, "node": "a", "event": "join"}\n', b"[tls]\n", " holds something else than"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, key, good, bad, told):
    path = tmp_path / "file"
    path.write_bytes(good)
    assert not wrong_files(named(key, path))
    path.write_bytes(bad)
    (found,) = wrong_files(named(key, path))
    assert found.startswith(f"{key}: {path}")
    assert told in found
    (found,) = wrong_files(named(key, tmp_path))
    assert found.startswith(f"{key}: {tmp_path}")
    assert "is a directory" in found
    (found,) = wrong_files(named(key, path / "in-a-file"))
    assert key in found
    assert "not a directory" in found or "is not there" in found
    with as_somebody_else(tmp_path):
        (found,) = wrong_files(named(key, path))
    assert found.startswith(f"{key}: {path}")
    assert "permission denied" in found


def test_files_that_a_node_will_make_are_good_and_the_doctor_makes_none(tmp_path):
    assert not wrong_files(named("mqtt.learn_file", tmp_path / "new" / "learned.json"))
    assert not wrong_files(named("telemetry.file", tmp_path / "a.jsonl"))
    (found,) = wrong_files(named("telemetry.file", tmp_path / "new" / "a.jsonl"))
    assert found == f"telemetry.file: The folder {tmp_path}/new is not there."
    (found,) = wrong_files(named("mqtt.users", tmp_path / "users"))
    assert "no such file" in found
    assert not list(tmp_path.iterdir())


def test_the_command_names_files_that_cannot_be_used(tmp_path, capsys):
    path = tmp_path / "node.toml"
    path.write_text(
        'name = "a"\nlisten = "127.0.0.1:0"\nclient_listen = "127.0.0.1:0"\n'
        f'[mqtt]\nlisten = "127.0.0.1:0"\nusers = "{tmp_path}"\n'
        f'broker = "mqtt://127.0.0.1:9"\nlearn = true\nlearn_file = "{tmp_path}"\n'
        f'[telemetry]\nfile = "{tmp_path}"\n'
    )
    assert trellis_run(["doctor", "--config", str(path)]) == 1
    told = capsys.readouterr().out
    for key in ("mqtt.users", "mqtt.learn_file", "telemetry.file"):
        assert f"wrong  {key}: " in told


@contextmanager
def as_somebody_else(folder: Path) -> Iterator[None]:
    """Without the right to read or write what is in a folder."""
    mode = folder.stat().st_mode
    is_root = os.geteuid() == 0
    folder.chmod(0)
    if is_root:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(mode)
