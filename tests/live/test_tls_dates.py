"""Certificates whose time is over or has not begun: no node starts with them, and no node takes them for good ones."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import trellis
from live.lives import client_address, mesh, run, until
from live.signing import CLIENT, copied, node_of, openssl, replace, shown_at
from trellis.errors import InputError
from trellis.live import tls as live_tls
from trellis.live.admin import exposition
from trellis.live.config import TlsConfig
from trellis.live.health import Complaint
from trellis.live.tls import make_context, node_credentials
from trellis.protocols.mqtt.config import MqttConfig

DATES = {
    "expired": (("20200101000000Z", "20210101000000Z"), "has expired on 2021-01-01 00:00 UTC"),
    "not yet valid": (("20480101000000Z", "20490101000000Z"), "is not valid before 2048-01-01 00:00 UTC"),
}
both = pytest.mark.parametrize("when", DATES)
SERVER = "subjectAltName = DNS:mqtt.example"


@both
def test_a_node_keeps_its_certificate_when_a_file_comes_whose_time_is_not_now(
    sign, tmp_path, caplog, monkeypatch, when
):
    dates, why = DATES[when]
    files = copied(sign("a", *node_of("a")), tmp_path / "a")
    ann = sign("ann", *CLIENT)

    async def work() -> None:
        async with mesh("a", tls=files, admin_listen="127.0.0.1:0") as (node,):
            before = await shown_at(node.transport.port, ann)()
            replace(files, sign("a", *node_of("a"), dates=dates))
            await until(lambda: bool(node.tls.trouble) or node.tls.reloads > 0)
            assert why in node.tls.trouble
            assert node.tls.reloads == 0
            assert any(why in one for one in node.tls.warnings()), "/healthz says it below ok"
            assert "\ntrellis_certificate_reload_failed 1\n" in exposition(node)
            node.reload()  # as SIGHUP does
            monkeypatch.setattr(live_tls, "wall_s", lambda: time.time() + 3_600)
            node.reload()
            monkeypatch.undo()
            assert await shown_at(node.transport.port, ann)() == before
            async with trellis.connect(client_address(node), tls=make_context(ann, server=False), timeout_s=5):
                pass
        (told,) = [one for one in caplog.messages if "new certificates cannot be used, the old ones stay" in one]
        assert why in told, "the same reason is said once"

    run(work())


@both
def test_a_node_does_not_start_with_a_certificate_whose_time_is_not_now(sign, when):
    dates, why = DATES[when]
    files = sign("a", *node_of("a"), dates=dates)

    async def work() -> None:
        with pytest.raises(InputError) as error:
            async with mesh("a", tls=files):
                pass
        assert str(error.value).startswith(f"tls.cert: {files.cert} {why}")
        assert str(error.value).endswith("make one with that authority: trellis certs node a")

    run(work())


@both
def test_an_mqtt_listener_keeps_its_certificate_and_does_not_start_with_one_whose_time_is_not_now(sign, tmp_path, when):
    dates, why = DATES[when]
    files, bad = copied(sign("m", SERVER), tmp_path / "m"), sign("m", SERVER, dates=dates)

    def given(one: TlsConfig) -> MqttConfig:
        return MqttConfig(listen="127.0.0.1:0", cert=one.cert, key=one.key)

    async def work() -> None:
        async with mesh("a", mqtt=given(files), tls=TlsConfig(reload_s=0.05)) as (node,):
            replace(files, bad)
            await until(lambda: bool(node.mqtt.tls.trouble) or node.mqtt.tls.reloads > 0)
            assert why in node.mqtt.tls.trouble
            assert any(why in one for one in node.mqtt.tls.warnings())
        with pytest.raises(InputError, match=rf"mqtt\.cert: .* {why}"):
            async with mesh("b", mqtt=given(bad)):
                pass

    run(work())


def test_a_certificate_that_is_put_in_place_early_is_taken_when_its_time_begins(sign, tmp_path):
    files = copied(sign("a", *node_of("a")), tmp_path / "a")
    found = node_credentials(files, "a")
    assert found is not None
    soon = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + 2))
    replace(files, sign("a", *node_of("a"), dates=(soon, "20490101000000Z")))
    found.look()
    found.look()
    assert "is not valid before" in found.trouble
    while not found.reloads:  # OpenSSL has a clock of its own, which a test cannot set
        time.sleep(0.05)
        found.look()
    assert found.trouble == ""


def test_a_clock_that_went_back_before_the_certificate_makes_health_red(sign, monkeypatch):
    async def work() -> None:
        async with mesh("a", tls=sign("a", *node_of("a")), admin_listen="127.0.0.1:0") as (node,):
            assert not node.health.complaints()
            monkeypatch.setattr(live_tls, "wall_s", lambda: node.tls.now.begins_s - 1)
            (found,) = node.health.complaints()
            begins = live_tls.show_date(node.tls.now.begins_s)
            told = f"tls.cert is not valid before {begins}: set this machine's clock, or renew it"
            assert found == Complaint("certificate", told)

    run(work())


def test_an_authority_that_has_ended_counts_where_it_is_behind_the_certificate(sign, tmp_path):
    """Beside another one in tls.ca it does no harm: peers accept the certificate."""
    old = sign("old", "basicConstraints = critical, CA:TRUE", dates=DATES["expired"][0])
    good = copied(sign("a", *node_of("a")), tmp_path / "a")
    with Path(good.ca).open("a") as file:
        file.write(Path(old.cert).read_text())
    assert node_credentials(good, "a") is not None
    openssl(tmp_path, "req", "-new", "-key", good.key, "-subj", "/CN=a", "-out", "a.csr")
    (tmp_path / "a.cnf").write_text("\n".join(node_of("a")))
    by_old = ["-CA", old.cert, "-CAkey", old.key, "-set_serial", "7", "-extfile", "a.cnf", "-out", good.cert]
    openssl(tmp_path, "x509", "-req", "-in", "a.csr", *by_old)
    with pytest.raises(InputError, match=r"tls\.ca: an authority behind .* is not accepted: certificate has expired"):
        node_credentials(good, "a")
