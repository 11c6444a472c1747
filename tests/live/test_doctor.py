"""`trellis doctor` says what is wrong with a configuration or a running node, and what to do."""

from __future__ import annotations

import json
import re
import resource
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import trellis.live.doctor as doctor
from live.lives import config, mesh, peer_address, run, until
from live.test_admin import ADMIN, admin_address
from trellis.cli.main import run as trellis_run
from trellis.live.config import LimitsConfig, NodeConfig, TlsConfig
from trellis.live.doctor import check_clock, check_files, examine
from trellis.live.doctor_files import check_tls
from trellis.live.files import SPARE_FILES, allow_files, files_needed
from trellis.live.findings import Finding
from trellis.live.http import Limits
from trellis.live.listen import BURST
from trellis.live.mqtt.listener import ARRIVING_MAX
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt.config import MqttConfig

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def said(findings: list[Finding], level: str = "wrong") -> str:
    return "\n".join(f"{one.where}: {one.what} {one.remedy}" for one in findings if one.level == level)


def found_by(given: NodeConfig, timeout_s: float = 5.0) -> list[Finding]:
    found: list[Finding] = []

    async def work() -> None:
        found.extend(await examine(given, timeout_s))

    run(work())
    return found


@pytest.fixture
def taken() -> Iterator[str]:
    """An address where somebody else listens, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


# The command


def test_a_good_configuration_is_called_good(tmp_path, capsys):
    path = tmp_path / "node.toml"
    path.write_text('name = "a"\nlisten = "127.0.0.1:0"\nclient_listen = "127.0.0.1:0"\n')
    assert trellis_run(["doctor", "--config", str(path)]) == 0
    assert capsys.readouterr().out.endswith("All is well.\n")


def test_a_configuration_that_cannot_be_read_is_wrong_and_the_exit_says_so(tmp_path, capsys):
    path = tmp_path / "node.toml"
    path.write_text('name = "a"\nlissten = "127.0.0.1:0"\n')
    assert trellis_run(["doctor", "--config", str(path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["wrong"] == 1
    assert told["findings"][0]["what"] == 'there is no key "lissten".'
    assert told["findings"][0]["remedy"].startswith("Perhaps listen is meant")
    assert trellis_run(["doctor", "--config", str(tmp_path / "none.toml")]) == 1
    assert "No such file" in capsys.readouterr().out


def test_a_doctor_without_a_patient_is_refused(capsys):
    assert trellis_run(["doctor"]) == 2
    assert "nothing to check; give --config FILE" in capsys.readouterr().err


# Ports


def test_ports_that_are_taken_or_elsewhere_or_given_twice_are_told(taken):
    given = config("a", client_listen=taken, admin_listen="192.0.2.1:1", insecure=True)
    told = said(found_by(given))
    assert f"client_listen: {taken} is taken by another program. Find it (ss -ltnp" in told
    assert "admin_listen: 192.0.2.1:1 is no address of this machine." in told
    twice = config("a", listen="127.0.0.1:7999", client_listen="127.0.0.1:7999")
    assert "client_listen: 127.0.0.1:7999 is the address of listen, too." in said(found_by(twice))


def test_a_privileged_port_is_told_to_who_is_not_root(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.socket, "create_server", refuse)
    told = said(found_by(config("a", listen="127.0.0.1:443")))
    assert "listen: Port 443 is privileged: only root may listen there. Choose a port from 1024 up." in told


def test_the_ports_of_the_node_itself_are_not_called_taken():
    async def work() -> None:
        async with mesh("a", "b", **ADMIN) as (a, b):
            assert a.admin is not None
            mine = config("a", listen=peer_address(a), client_listen=f"127.0.0.1:{a.client_port.port}")
            found = await examine(mine)
            assert not said(found)
            assert "is taken by this node, which runs" in said(found, "note")
            again = config("b", (peer_address(a),), listen=peer_address(b), admin_listen=admin_address(b))
            await until(lambda: "b" in a.transport.peers and not b.health.complaints())
            stream = a.transport.peers["b"]
            assert "It is connected with this node, which runs." in said(await examine(again), "good")
            assert a.transport.peers["b"] is stream, "the question has not taken the node's place"

    run(work())


# Files and clocks


def test_a_limit_on_open_files_below_clients_max_is_told(monkeypatch):
    given = config("a")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1_024))
    told = said(check_files(given))
    assert told.startswith(f"limits.clients_max: {files_needed(given)} open files are needed")
    assert "and 1024 are allowed. Raise the limit (ulimit -Hn, LimitNOFILE)" in told
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 65_536))
    assert not said(check_files(given)), "a node raises its own limit as far as that"


def test_the_files_of_all_ports_and_of_half_open_connections_are_counted():
    limits, mqtt = LimitsConfig(), MqttConfig(listen="127.0.0.1:0")
    plain = files_needed(config("a"))
    assert plain >= limits.connections_max + limits.clients_max + (BURST + 1) * limits.handshakes_max + SPARE_FILES
    assert files_needed(config("a", **ADMIN)) - plain >= Limits().connections_max
    assert files_needed(config("a", mqtt=mqtt)) - plain >= mqtt.clients_max + ARRIVING_MAX
    tls = TlsConfig(cert="a", key="b", ca="c")
    assert files_needed(config("a", tls=tls)) > plain, "the owner of a port does not know of TLS handshakes"


def test_the_unit_of_systemd_allows_all_files_of_the_defaults():
    unit = (Path(__file__).parents[2] / "deploy" / "trellis.service").read_text("utf-8")
    tls, mqtt = TlsConfig(cert="a", key="b", ca="c"), MqttConfig(listen="127.0.0.1:0", cert="a", key="b")
    allowed = re.search(r"^LimitNOFILE=(\d+)$", unit, re.MULTILINE)
    assert allowed is not None
    assert files_needed(config("a", tls=tls, mqtt=mqtt, **ADMIN)) <= int(allowed[1])


def test_a_node_raises_its_limit_on_open_files_as_far_as_it_may(monkeypatch):
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1_024))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    allow_files(config("a"))
    assert asked == [(1_024, 1_024)]


def test_a_clock_before_the_program_was_installed_is_told():
    assert not check_clock()
    assert "clock: It says 1970-01-01, which is before this program was installed." in said(check_clock(0.0))


def test_a_seed_that_started_in_the_future_is_told():
    async def work() -> None:
        async with AsyncExitStack() as stack:
            seed = LiveNode(config("s"))
            seed.life += 36_000
            await seed.start()
            stack.push_async_callback(seed.stop, in_order=False)
            found = await examine(config("a", (peer_address(seed),)))
            assert re.search(r"s started 3[56]\d\d s in the future by this machine's clock. Synchronize", said(found))

    run(work())


# Seeds


def test_every_seed_is_dialed_and_told_about(taken):
    async def work() -> None:
        async with mesh("s", "t") as (s, _), AsyncExitStack() as stack:
            other, twin = LiveNode(config("o", cluster="other")), LiveNode(config("a"))
            for one in (other, twin):
                await one.start()
                stack.push_async_callback(one.stop, in_order=False)
            seeds = (peer_address(s), peer_address(other), peer_address(twin), taken, "127.0.0.1:9", "no.invalid:1")
            found = await examine(config("a", seeds), timeout_s=1.0)
            told = {one.where: one for one in found if one.where.startswith("seed ")}
            assert said(list(told.values()), "good") == f"seed {seeds[0]}: s accepts this node. "
            assert 'It refuses this node (cluster): this node is of cluster "other".' in told[f"seed {seeds[1]}"].what
            assert "The name a is taken: another node is named a" in told[f"seed {seeds[2]}"].what
            assert told[f"seed {taken}"].what == "It is not reached: no answer in time."
            assert told[f"seed {seeds[4]}"].what == "It is not reached: connection refused: nothing listens there."
            assert "its host name cannot be resolved" in told[f"seed {seeds[5]}"].what
            await until(lambda: "a" not in s.transport.peers)
            assert "a" not in s.links

    run(work())


def test_a_name_that_another_living_node_has_is_told_by_the_seed():
    async def work() -> None:
        async with mesh("s", "a") as (s, _):
            await until(lambda: "a" in s.transport.peers)
            found = await examine(config("a", (peer_address(s),)))
            assert "The name a is taken: a later life of a is connected." in said(found)

    run(work())


# Certificates


@pytest.fixture(scope="module")
def certs(tmp_path_factory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("certs")
    for one in (folder, folder / "other"):
        assert trellis_run(["certs", "ca", "--folder", str(one)]) == 0
        for name in ("a", "b"):
            assert trellis_run(["certs", "node", name, "--folder", str(one)]) == 0
    assert trellis_run(["certs", "node", "soon", "--days", "7", "--folder", str(folder)]) == 0
    return folder


def with_tls(certs: Path, cert: str = "a.pem", key: str = "a.key", ca: str = "ca.pem", **more: Any) -> NodeConfig:
    tls = TlsConfig(cert=str(certs / cert), key=str(certs / key), ca=str(certs / ca))
    return config(more.pop("name", "a"), tls=tls, **more)


def test_good_certificates_are_called_good(certs):
    found = check_tls(with_tls(certs))
    assert not said(found)
    assert said(found, "good") == "tls: The certificates are good. "


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"cert": "none.pem"}, "tls.cert: {folder}/none.pem: no such file or directory."),
        ({"key": "b.key"}, "tls.key: {folder}/b.key is not the key of {folder}/a.pem."),
        ({"ca": "other/ca.pem"}, "tls.cert: {folder}/a.pem is not accepted with {folder}/other/ca.pem: "),
        ({"name": "b"}, "tls.cert: {folder}/a.pem: b shows a certificate for node a, and may not join as b."),
        ({"name": "soon", "cert": "soon.pem", "key": "soon.key"}, "tls.cert: It ends in 6 days, on "),
    ],
)
def test_bad_certificates_are_told_by_file_and_reason(certs, given, told):
    assert told.format(folder=certs) in said(check_tls(with_tls(certs, **given)))


def test_an_expired_certificate_is_told(certs, tmp_path):
    """Made with dates of its own, by the program that also makes the others."""
    _openssl(certs, "req", "-new", "-key", "a.key", "-subj", "/CN=a", "-out", str(tmp_path / "csr"))
    (tmp_path / "ext").write_text("subjectAltName=DNS:a,URI:trellis:node:a\nextendedKeyUsage=serverAuth,clientAuth\n")
    dates = ["-not_before", "20200101000000Z", "-not_after", "20200201000000Z"]
    signed = ["x509", "-req", "-in", str(tmp_path / "csr"), "-CA", "ca.pem", "-CAkey", "ca.key", "-set_serial", "7"]
    try:
        _openssl(certs, *signed, *dates, "-extfile", str(tmp_path / "ext"), "-out", str(tmp_path / "old.pem"))
    except subprocess.CalledProcessError:
        # Before version 3.4 only a negative number of days makes a certificate that is over.
        _openssl(certs, *signed, "-days", "-1", "-extfile", str(tmp_path / "ext"), "-out", str(tmp_path / "old.pem"))
    shutil.copy(certs / "a.key", tmp_path / "a.key")
    shutil.copy(certs / "ca.pem", tmp_path / "ca.pem")
    assert "has expired" in said(check_tls(with_tls(tmp_path, cert="old.pem")))


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


def test_a_key_that_everybody_may_read_is_noted(certs, tmp_path):
    for name in ("a.pem", "a.key", "ca.pem"):
        shutil.copy(certs / name, tmp_path / name)
    (tmp_path / "a.key").chmod(0o644)
    found = check_tls(with_tls(tmp_path))
    assert not said(found)
    assert "tls.key: Everybody on this machine may read " in said(found, "note")


def test_the_certificate_of_the_mqtt_listener_is_looked_at(certs):
    mqtt = MqttConfig(listen="127.0.0.1:0", cert=str(certs / "soon.pem"), key=str(certs / "soon.key"))
    assert "mqtt.cert: It ends in 6 days, on " in said(found_by(config("a", mqtt=mqtt)))
    wrong = MqttConfig(listen="127.0.0.1:0", cert=str(certs / "a.pem"), key=str(certs / "b.key"))
    assert f"mqtt.key: {certs}/b.key is not the key of {certs}/a.pem." in said(found_by(config("a", mqtt=wrong)))


def test_a_seed_with_tls_is_told_to_who_has_none_and_the_other_way_round(certs):
    async def work() -> None:
        async with AsyncExitStack() as stack:
            plain, safe = LiveNode(config("p")), LiveNode(with_tls(certs, name="b", cert="b.pem", key="b.key"))
            for one in (plain, safe):
                await one.start()
                stack.push_async_callback(one.stop, in_order=False)
            told = said(await examine(config("a", (peer_address(safe),))))
            assert "this port speaks TLS: give [tls] cert, key and ca" in told
            told = said(await examine(with_tls(certs, seeds=(peer_address(plain),))))
            assert "does not speak TLS" in told
            assert "b accepts this node." in said(await examine(with_tls(certs, seeds=(peer_address(safe),))), "good")
            stranger = with_tls(certs / "other", seeds=(peer_address(safe),))
            assert "its certificate is not accepted" in said(await examine(stranger))

    run(work())


def test_a_seed_that_is_another_port_of_a_node_is_told_by_the_kind_of_port(certs):
    async def work() -> None:
        mqtt = MqttConfig(listen="127.0.0.1:0")
        safe = {"name": "b", "cert": "b.pem", "key": "b.key"}
        async with AsyncExitStack() as stack:
            nodes = [LiveNode(config("b", mqtt=mqtt, **ADMIN)), LiveNode(with_tls(certs, **safe, mqtt=mqtt, **ADMIN))]
            for node, mine in zip(nodes, (config, lambda name, seeds: with_tls(certs, seeds=seeds)), strict=True):
                await node.start()
                stack.push_async_callback(node.stop, in_order=False)
                assert node.mqtt is not None
                kinds = {
                    f"127.0.0.1:{node.client_port.port}": "the client port of node b",
                    admin_address(node): "the admin port of node b",
                    f"127.0.0.1:{node.mqtt.port}": "an MQTT listener",
                }
                told = said(await examine(mine("a", tuple(kinds)), timeout_s=2.0))
                for address, kind in kinds.items():
                    assert f"seed {address}: It is {kind}, not a mesh port. Name the listen address" in told

    run(work())


# The broker


def test_a_broker_that_is_away_or_refuses_filters_is_told():
    async def work() -> None:
        async with mesh("broker", mqtt=MqttConfig(listen="127.0.0.1:0", depth=2)) as (node,):
            assert node.mqtt is not None
            url = f"mqtt://127.0.0.1:{node.mqtt.port}"
            good = MqttConfig(broker=url, take=("plant/#",), want=("office/+",))
            assert "It accepts this node and its filters." in said(await examine(config("a", mqtt=good)), "good")
            long = "x" * 500 + "/#"  # more than a node of Trellis takes as a broker
            told = said(await examine(config("a", mqtt=MqttConfig(broker=url, take=("plant/#",), want=(long,)))))
            assert f'It refuses the filter "{long}": filter invalid. Allow it in the broker' in told
            assert '"plant/#"' not in told
            old = MqttConfig(broker=url, broker_version="3.1.1", take=("plant/#", long))
            assert f'It refuses the filter "{long}"' in said(await examine(config("a", mqtt=old)))
        away = MqttConfig(broker=url)
        told = said(await examine(config("a", mqtt=away)))
        assert "It is not used: connection refused: nothing listens there. Start it" in told

    run(work())
