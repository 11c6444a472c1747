"""Certificates that change while a node runs, and certificates that end."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import ssl
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import trellis
from live.lives import client_address, config, mesh, run, until
from live.signing import CLIENT, copied, end, node_of, replace, shown_at
from trellis.errors import InputError
from trellis.live import tls as live_tls
from trellis.live.admin import exposition
from trellis.live.client import ClientError
from trellis.live.config import TlsConfig
from trellis.live.http_client import HttpClient
from trellis.live.listen import Listener
from trellis.live.mqtt.certificate import make_tls
from trellis.live.shell import LiveNode
from trellis.live.tls import Credentials, make_context, node_credentials
from trellis.protocols.mqtt.config import MqttConfig


def test_changed_certificates_serve_new_handshakes_and_streams_stay(sign, tmp_path, caplog):
    caplog.set_level(logging.INFO, "trellis.live")
    old = copied(sign("a", *node_of("a")), tmp_path / "a")
    ann = sign("ann", *CLIENT)

    async def work() -> None:
        async with mesh("a", tls=old, admin_listen="127.0.0.1:0") as (node,):
            context = make_context(ann, server=False)
            async with trellis.connect(client_address(node), tls=context) as client:
                await client.subscribe("t")
                ports = (node.transport.port, node.client_port.port, node.admin.port)
                before = [await shown_at(port, ann)() for port in ports]
                replace(old, sign("a", *node_of("a")))
                await until(lambda: node.tls.reloads == 1)
                after = [await shown_at(port, ann)() for port in ports]
                assert len({*before, *after}) == 2
                assert before[0] != after[0]
                await client.publish("t", b"on the stream of before")
                assert (await anext(client)).payload == b"on the stream of before"
                assert client.reconnects == 0
        assert any("loaded new certificates of tls" in one for one in caplog.messages)

    run(work())


def test_a_changed_authority_decides_about_new_handshakes(sign, tmp_path):
    old = copied(sign("a", *node_of("a")), tmp_path / "a")
    ann, ben = sign("ann", *CLIENT), sign("ben", *CLIENT, authority="next")

    async def work() -> None:
        async with mesh("a", tls=old) as (node,):
            async with trellis.connect(client_address(node), tls=make_context(ann, server=False)):
                pass
            replace(old, sign("a", *node_of("a"), authority="next"))
            await until(lambda: node.tls.reloads == 1)
            async with trellis.connect(client_address(node), tls=make_context(ben, server=False)):
                pass
            mixed = TlsConfig(cert=ann.cert, key=ann.key, ca=ben.ca)  # it believes the node, and the node not it
            with pytest.raises(ClientError):
                async with trellis.connect(client_address(node), tls=make_context(mixed, server=False), timeout_s=0.5):
                    pass

    run(work())


@pytest.mark.parametrize("broken", ["no PEM", "not there", "the key of another", "of another node"])
def test_broken_new_files_leave_the_old_ones_in_use_and_health_tells(sign, tmp_path, caplog, broken):
    old = copied(sign("a", *node_of("a")), tmp_path / "a")
    ann, other = sign("ann", *CLIENT), sign("b", *node_of("b"))

    async def work() -> None:
        async with mesh("a", tls=old, admin_listen="127.0.0.1:0") as (node,):
            if broken == "no PEM":
                Path(old.cert).write_text("nothing")
            elif broken == "not there":
                Path(old.key).unlink()
            elif broken == "the key of another":
                shutil.copyfile(other.key, old.key)
            else:
                replace(old, other)
            await until(lambda: bool(node.tls.trouble))
            asking = HttpClient(f"127.0.0.1:{node.admin.port}", make_context(ann, server=False))
            status, body = await asking.get("/healthz", 30)
            asking.close()
            assert status == 200
            assert body.startswith(b"ok\n")
            assert b"new files of tls are not in use: " in body
            assert "\ntrellis_certificate_reload_failed 1\n" in exposition(node)
            replace(old, sign("a", *node_of("a")))
            await until(lambda: not node.tls.trouble)
            assert node.tls.reloads == 1
        warned = [one for one in caplog.messages if "new certificates cannot be used, the old ones stay" in one]
        assert len(warned) >= 1
        assert len(set(warned)) == len(warned), "the same reason is said once"

    run(work())


def test_sighup_loads_certificates_at_once(sign, tmp_path):
    """`trellis node` as a process: only the signal can make it look, for it looks by itself once a day."""
    import json
    import signal
    import sys

    old = copied(sign("a", *node_of("a")), tmp_path / "a")
    settings = {"tls.cert": old.cert, "tls.key": old.key, "tls.ca": old.ca, "tls.reload_s": 86_400}
    words = [f"--set={key}={value}" for key, value in settings.items()]
    ports = ["--listen", "127.0.0.1:0", "--client-listen", "127.0.0.1:0", "--json"]
    program = "import sys; from trellis.cli.main import main; sys.argv[0] = 'trellis'; main()"
    node = subprocess.Popen(
        [sys.executable, "-c", program, "node", "--name", "a", *ports, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        port = int(json.loads(node.stdout.readline())["client_listen"].rpartition(":")[2])
        ann = sign("ann", *CLIENT)
        before = asyncio.run(shown_at(port, ann)())
        replace(old, sign("a", *node_of("a")))
        assert asyncio.run(shown_at(port, ann)()) == before
        node.send_signal(signal.SIGHUP)
        while "loaded new certificates of tls" not in (line := node.stderr.readline()):
            assert line, "the process has ended"
        assert asyncio.run(shown_at(port, ann)()) != before
    finally:
        node.kill()
        node.communicate(timeout=60)


def test_files_are_loaded_when_they_have_stayed_the_same_for_one_look(sign, tmp_path):
    old = copied(sign("a", *node_of("a")), tmp_path / "a")
    found = node_credentials(old, "a")
    assert found is not None
    shutil.copyfile(sign("a", *node_of("a")).key, old.key)  # a copy is under way: the certificate follows
    found.look()
    assert (found.trouble, found.reloads) == ("", 0)
    found.look()
    assert "tls" in found.trouble
    replace(old, sign("a", *node_of("a")))
    found.look()
    found.look()
    assert (found.trouble, found.reloads) == ("", 1)


# When they end


@pytest.mark.parametrize("days", [1, 13, 15, 400, 20_000])
def test_the_end_of_a_certificate_and_of_its_authority_is_a_metric_and_a_warning(sign, days):
    given = sign("a", *node_of("a"), days=days)
    found = node_credentials(given, "a")
    assert found is not None
    text = subprocess.run(
        ["openssl", "x509", "-noout", "-enddate", "-in", given.cert], capture_output=True, text=True, check=True
    ).stdout
    assert found.now.expires_s["cert"] == ssl.cert_time_to_seconds(text.strip().removeprefix("notAfter="))
    assert found.now.expires_s["ca"] < found.now.expires_s["cert"] or days < 9
    assert any(one.startswith("tls.cert ends on") for one in found.warnings()) == (days <= 13)

    async def work() -> None:
        node = LiveNode(config("a", tls=given, admin_listen="127.0.0.1:0"))
        await node.start()
        shown = exposition(node)
        await node.stop(in_order=False)
        end = found.now.expires_s["cert"]
        assert f'trellis_certificate_expires_seconds{{section="tls",file="cert"}} {end!r}' in shown
        assert "\ntrellis_certificate_reload_failed 0\n" in shown

    run(work())


def test_a_certificate_that_has_ended_makes_a_node_unready(sign, monkeypatch, caplog):
    given = sign("a", *node_of("a"), days=2)

    async def work() -> None:
        async with mesh("a", tls=given, admin_listen="127.0.0.1:0") as (node,):
            asking = HttpClient(f"127.0.0.1:{node.admin.port}", make_context(sign("ann", *CLIENT), server=False))
            assert (await asking.get("/healthz", 30))[0] == 200
            end_s = node.tls.now.expires_s["cert"]
            monkeypatch.setattr(live_tls.time, "time", lambda: end_s + 1)
            status, body = await asking.get("/healthz", 30)
            asking.close()
            assert status == 503
            node.reload()
            assert any("a certificate needs to be renewed: tls.cert has ended" in one for one in caplog.messages)
            assert re.match(rb"tls.cert has ended on \d{4}-\d\d-\d\d: renew it\n", body)

    run(work())


def test_the_certificate_of_an_mqtt_listener_is_replaced_and_measured_as_well(sign, tmp_path):
    old = copied(sign("mqtt.example", "subjectAltName = DNS:mqtt.example"), tmp_path / "m")
    given = {"listen": "127.0.0.1:0", "cert": old.cert, "key": old.key}

    async def serial(port: int) -> object:
        context = ssl.create_default_context(cafile=old.ca)
        context.check_hostname = False
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        found = writer.get_extra_info("peercert")["serialNumber"]
        await end(writer)
        return found

    async def work() -> None:
        from trellis.protocols.mqtt.config import MqttConfig

        quick = TlsConfig(reload_s=0.05)
        async with mesh("a", mqtt=MqttConfig(**given), tls=quick, admin_listen="127.0.0.1:0") as (node,):
            before = await serial(node.mqtt.port)
            assert 'trellis_certificate_expires_seconds{section="mqtt",file="cert"}' in exposition(node)
            replace(old, sign("mqtt.example", "subjectAltName = DNS:mqtt.example"))
            await until(lambda: node.mqtt.tls.reloads == 1)
            assert await serial(node.mqtt.port) != before

    run(work())


def test_a_link_that_is_pointed_elsewhere_counts_as_a_change(tmp_path):
    """As Kubernetes replaces the files of a Secret."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("same")
        os.utime(tmp_path / name / "file", ns=(1, 1))
    (tmp_path / "data").symlink_to("one")
    loads: list[int] = []

    def load():
        loads.append(1)
        return live_tls.Loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), None, {"cert": 0.0})

    found = Credentials("a", "tls", [str(tmp_path / "data" / "file")], load)
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").replace(tmp_path / "data")
    found.look()
    found.look()
    assert len(loads) == 2


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_streams_that_have_said_nothing_are_closed_with_a_tls_listener(sign, loop):
    """They wait for their first bytes, which tell whether they speak TLS."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if loop == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop
    made: list[asyncio.Protocol] = []

    def make() -> asyncio.Protocol:
        made.append(asyncio.Protocol())
        return made[-1]

    async def work() -> None:
        counters: Counter[str] = Counter()
        found = node_credentials(sign("a", *node_of("a")), "a")
        listener = Listener("127.0.0.1:0", make, found, counters, 0.2, 10, b"no TLS")
        listener.serve()
        silent, gone = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(2)]
        await end(gone[1])
        assert await silent[0].read() == b""  # cut off after 0.2 s
        plain = await asyncio.open_connection("127.0.0.1", listener.port)
        plain[1].write(b"GET / HTTP/1.1\r\n\r\n")
        assert await plain[0].read() == b"no TLS"
        waiting = await asyncio.open_connection("127.0.0.1", listener.port)
        await until(lambda: len(made) == 4)
        await listener.close()
        assert await waiting[0].read() == b""
        for _, writer in (silent, plain, waiting):
            await end(writer)
        assert counters["cut tls"] == 3

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(asyncio.wait_for(work(), 60))


@pytest.mark.parametrize(
    ("key", "text", "told"),
    [
        ("cert", b"", "tls.cert: {path} holds no certificate in PEM; name a certificate's PEM file"),
        ("key", b"", "tls.key: {path} holds no private key in PEM; name the key of the certificate"),
        ("ca", b"", "tls.ca: {path} holds no certificate in PEM; name the file ca.pem of the authority"),
        ("ca", b"-----BEGIN CERTIFICATE-----\nx\n", "tls.ca: {path} holds no certificate in PEM; name the file "),
        ("key", None, "tls.key: {path} is not the key of {cert}; give a certificate and its own key"),
        ("key", "encrypted", "tls.key: {path} is encrypted with a password; write it without one: openssl pkey -in"),
    ],
)
def test_an_error_about_certificates_names_the_bad_file_and_a_remedy(sign, tmp_path, key, text, told):
    files = copied(sign("a", *node_of("a")), tmp_path / "a")
    path = Path(getattr(files, key))
    if text is None:
        shutil.copy(sign("b", *node_of("b")).key, path)
    elif text == "encrypted":
        words = ["openssl", "pkey", "-in", files.key, "-aes256", "-passout", "pass:secret", "-out", f"{tmp_path}/new"]
        subprocess.run(words, check=True, capture_output=True)
        (tmp_path / "new").replace(path)
    else:
        path.write_bytes(text)
    of_mqtt = MqttConfig(listen="127.0.0.1:0", cert=files.cert, key=files.key, ca=files.ca)
    for load in (lambda: make_context(files, server=True), lambda: make_tls(of_mqtt)):
        with pytest.raises(InputError) as error:
            load()
        assert str(error.value).replace("mqtt.", "tls.").startswith(told.format(path=path, cert=files.cert))
