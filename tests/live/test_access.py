"""An access list at a running node: who clients are, what they may do, and rules that change under them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import trellis
from live.lives import client_address, mesh, run, until
from live.signing import CLIENT, node_of, signer
from mqtt.talk import Raw, connect, doors
from trellis.errors import InputError
from trellis.live.access import Gate, Proven, read_key
from trellis.live.client import ClientError, NotAcknowledged
from trellis.live.config import AccessConfig, TlsConfig
from trellis.live.mqtt.passwords import hash_password
from trellis.live.tls import make_context, user_of
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons

RULES = """
[everyone]
allow read public/news

[user ann]
allow readwrite home/#
deny read home/hall/secret
"""
KEY = b"0123456789abcdef0123456789abcdef"
HASH = hash_password(b"secret")
TAKEN = (reasons.SUCCESS, reasons.NO_MATCHING)  # the second one if nobody subscribes
ANN = {"subject": ((("commonName", "ann"),),)}


def files(folder: Path, rules: str = RULES) -> AccessConfig:
    (folder / "rules.acl").write_text(rules)
    (folder / "users").write_text(f"ann:{HASH}\n")
    (folder / "jwt.key").write_bytes(KEY + b"\n")
    return AccessConfig(
        **{"acl": str(folder / "rules.acl"), "users": str(folder / "users"), "jwt_key": str(folder / "jwt.key")}
    )


def token(key: bytes = KEY, alg: str = "HS256", **claims: Any) -> bytes:
    parts = [{"alg": alg, "typ": "JWT"}, {"sub": "ann", "exp": time.time() + 60, **claims}]
    signed = b".".join(base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in parts)
    return signed + b"." + base64.urlsafe_b64encode(hmac.digest(key, signed, hashlib.sha256)).rstrip(b"=")


# Native clients


def test_a_native_client_does_what_its_user_may_and_nothing_else(tmp_path):
    async def work() -> None:
        async with mesh("a", access=files(tmp_path)) as (node,):
            at = client_address(node)
            async with trellis.connect(at, user="ann", password="secret") as ann:
                await ann.subscribe("home/hall")
                await ann.publish("home/hall", b"21")
                assert (await anext(ann)).payload == b"21"
                with pytest.raises(NotAcknowledged, match="user ann may not publish there"):
                    await ann.publish("public/news", b"x")
            async with trellis.connect(at) as nobody:
                await nobody.subscribe("public/news")
                with pytest.raises(ClientError, match="a client that has proven no user may not read this topic: home"):
                    await nobody.subscribe("home/hall")
            with pytest.raises(ClientError, match="the user, the password or the token is wrong"):
                async with trellis.connect(at, user="ann", password="guess"):
                    pass
            assert node.client_port.counters["cut user"] == 1
            assert node.client_port.counters["writes denied"] == 1

    run(work())


def test_a_native_client_gives_a_token_and_is_cut_off_when_it_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("trellis.live.access.LEEWAY_S", 0)

    async def work() -> None:
        async with mesh("a", access=files(tmp_path)) as (node,):
            soon = token(exp=time.time() + 1)
            async with trellis.connect(client_address(node), password=soon) as ann:
                with pytest.raises(ClientError, match="the token has expired"):
                    await anext(ann)

    run(work())


def test_a_native_reader_gets_only_those_mqtt_topics_that_it_may_read(tmp_path):
    """The client subscribes to the overlay topic; what comes on it are several MQTT topics."""

    async def work() -> None:
        async with doors("a", access=files(tmp_path)) as (node,):
            at = client_address(node)
            async with trellis.connect(at, user="ann", password="secret") as reader:
                await reader.subscribe("home/hall")
                writer = await connect(node, "w", user="ann", password=b"secret")
                for topic in ("home/hall/secret", "home/hall/temp"):
                    assert await writer.publish(topic, topic.encode(), retain=True) in TAKEN
                assert (await anext(reader)).payload == b"home/hall/temp"
                assert node.client_port.counters["reads denied"] == 1

    run(work())


def test_a_native_client_has_quotas_too(tmp_path):
    limits = "limit user connections 1\nlimit client subscriptions 1\nlimit client messages 5\n"

    async def work() -> None:
        async with mesh("a", access=files(tmp_path, RULES + limits)) as (node,):
            at, proof = client_address(node), {"user": "ann", "password": "secret"}
            async with trellis.connect(at, **proof) as ann:
                await ann.publish("home/hall", b"the first one waits until the node is sure")
                began = time.monotonic()
                await asyncio.gather(*(ann.publish("home/hall", b"x") for _ in range(10)))
                with pytest.raises(ClientError, match="this user has too many connections"):
                    async with trellis.connect(at, **proof):
                        pass
                await ann.publish("home/hall", b"after the others")
                assert time.monotonic() - began > 1, "it was not read meanwhile"
                await ann.subscribe("home/hall")
                with pytest.raises(ClientError, match="has too many topics"):
                    await ann.subscribe("home/kitchen")
            assert node.client_port.counters["cut quota"] == 2

    run(work())


# MQTT


def test_mqtt_clients_are_known_by_password_or_token_and_anonymous_without(tmp_path):
    async def work() -> None:
        async with doors("a", access=files(tmp_path)) as (node,):
            for proof in ({"user": "ann", "password": b"secret"}, {"user": "", "password": token()}):
                ann = await connect(node, "c", **proof)
                assert await ann.publish("home/x", b"1") in TAKEN
                assert await ann.subscribe("home/hall/secret", "home/x") == (reasons.NOT_AUTHORIZED, 1)
            nobody = await connect(node, "n")
            assert await nobody.publish("home/x", b"1") == reasons.NOT_AUTHORIZED
            assert await nobody.subscribe("public/news", "home/x") == (1, reasons.NOT_AUTHORIZED)

    run(work())


def test_mqtt_users_still_demands_a_password_and_a_token_is_one(tmp_path):
    given = files(tmp_path)
    mqtt, access = {"users": given.users}, AccessConfig(acl=given.acl, jwt_key=given.jwt_key)

    async def work() -> None:
        async with doors("a", mqtt=mqtt, access=access) as (node,):
            wrong = ({"user": "ann", "password": word} for word in (b"guess", token(b"x" * 32)))
            for proof in ({}, *wrong):
                with pytest.raises(AssertionError, match="reason=135"):
                    await connect(node, "c", **proof)
            ann = await connect(node, "c", user="ann", password=token())
            assert await ann.publish("home/x", b"1") in TAKEN

    run(work())


# Certificates


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which makes certificates, is not installed")
def test_a_client_certificate_names_the_user(tmp_path):
    sign = signer(tmp_path)
    node_tls, ann_tls, other_tls = sign("a", *node_of("a")), sign("x", *CLIENT), sign("ann", *node_of("ann"))
    access = AccessConfig(acl=files(tmp_path).acl)
    mqtt = {"cert": node_tls.cert, "key": node_tls.key, "ca": node_tls.ca}

    async def work() -> None:
        async with doors("a", mqtt=mqtt, access=access, tls=node_tls) as (node,):
            at = client_address(node)
            async with trellis.connect(at, tls=make_context(ann_tls, server=False)) as ann:
                await ann.publish("home/hall", b"21")
            async with trellis.connect(at, tls=make_context(other_tls, server=False)) as other:
                with pytest.raises(NotAcknowledged, match="has proven no user"):
                    await other.publish("home/hall", b"21")
            context = make_context(ann_tls, server=False)
            raw = Raw(*await asyncio.open_connection("127.0.0.1", node.mqtt.port, ssl=context), p.V5)
            raw.send(p.Connect(version=p.V5, client="c", clean_start=True))
            assert (await raw.until(p.ConnAck)).reason == 0
            assert await raw.publish("home/x", b"1") in TAKEN

    run(work())


@pytest.mark.parametrize(
    ("certificate", "user"),
    [
        ({}, None),
        (ANN, "ann"),
        ({**ANN, "subjectAltName": (("URI", "trellis:client:bob%20b"),)}, "bob b"),
        ({**ANN, "subjectAltName": (("URI", "trellis:node:ann"),)}, None),
        ({**ANN, "subjectAltName": (("URI", "trellis:client:b"), ("URI", "trellis:client:c"))}, None),
        ({**ANN, "subjectAltName": (("DNS", "ann.example.org"),)}, "ann"),
        ({"subject": ((("commonName", ""),),)}, None),
    ],
)
def test_which_user_a_certificate_names(certificate, user):
    assert user_of(certificate) == user


# Who a client is


@pytest.mark.parametrize(
    ("user", "password", "expected"),
    [
        (None, None, Proven("ann")),
        ("", None, Proven("ann")),
        ("ann", None, Proven("ann")),  # as the certificate says
        ("bob", None, None),
        (None, b"secret", None),
        ("ann", b"secret", Proven("ann")),
        ("ann", b"guess", None),
        ("bob", token(), None),
        ("ann", token(b"y" * 32), None),
    ],
)
def test_what_is_said_must_be_proven_and_silence_leaves_the_certificate(tmp_path, user, password, expected):
    gate = Gate("a", files(tmp_path))
    assert gate.prove(user, password, ANN, is_mqtt=True) == expected
    assert gate.prove(user, password, ANN, is_mqtt=False) == expected


def test_a_name_that_nobody_can_check_is_no_user(tmp_path):
    gate = Gate("a", AccessConfig(acl=files(tmp_path).acl))
    assert gate.prove("ann", b"anything", {}, is_mqtt=True) == Proven(None)
    only_tokens = Gate("a", AccessConfig(acl=files(tmp_path).acl, jwt_key=files(tmp_path).jwt_key))
    assert only_tokens.prove("ann", b"anything", {}, is_mqtt=True) is None


# Files that change


def test_new_rules_are_loaded_without_dropping_a_client_and_bad_ones_are_left_out(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    given = files(tmp_path)

    async def work() -> None:
        async with doors("a", access=given, tls=TlsConfig(reload_s=0.05)) as (node,):
            ann = await connect(node, "c", user="ann", password=b"secret")
            assert await ann.subscribe("home/#") == (1,)
            assert await ann.publish("home/x", b"1") in TAKEN
            assert (await ann.message()).payload == b"1"
            Path(given.acl).write_text("[user ann]\nallow write #\nallow read home/y")
            await until(lambda: "access files: 2 rules" in caplog.text)
            assert [await ann.publish(topic, b"2") for topic in ("home/x", "home/y")] == [0, 0]
            assert (await ann.message()).topic == "home/y"
            Path(given.acl).write_text("[user ann]\nallow everything\n")
            node.reload()  # as SIGHUP does
            assert "rules.acl:2: the rule is not complete" in caplog.text
            assert node.gate.warnings()
            assert await ann.publish("home/x", b"3") in TAKEN, "the old rules stay"

    run(work())


def test_new_passwords_and_a_new_key_count_from_the_next_connection_on(tmp_path):
    given = files(tmp_path)
    gate, old = Gate("a", given), token()
    Path(given.users).write_text(f"bob:{HASH}\n")
    Path(given.jwt_key).write_bytes(b"another key, of at least 32 bytes")
    assert gate.prove("ann", b"secret", {}, is_mqtt=True) == Proven("ann")
    assert gate.look(at_once=True)
    assert gate.prove("ann", b"secret", {}, is_mqtt=True) is None
    assert gate.prove("bob", b"secret", {}, is_mqtt=True) == Proven("bob")
    assert gate.prove("ann", old, {}, is_mqtt=True) is None


def test_files_are_loaded_when_they_have_settled_and_all_of_them_or_none(tmp_path):
    given = files(tmp_path)
    gate = Gate("a", given)
    Path(given.acl).write_text("[everyone]\nallow read #\n")
    assert (gate.look(), gate.look(), gate.look()) == (False, True, False)
    Path(given.acl).write_text("")
    Path(given.users).write_text("no hash\n")
    assert (gate.look(), gate.look()) == (False, False)
    assert len(gate.access.rules.rules) == 1, "the list is good, and the users are not: nothing is loaded"
    assert "access.users" in gate.trouble


def test_a_bad_access_list_keeps_a_node_from_starting_and_names_the_line(tmp_path):
    given = files(tmp_path, "[everyone]\nallow read a/#/b\n")
    with pytest.raises(InputError, match=r'access\.acl: .*rules\.acl:2: "a/#/b" is no topic filter; \+ and # stand'):
        Gate("a", given)


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"short\n", "has 5 bytes"), (b"-----BEGIN PUBLIC KEY-----\n", "PEM"), (b"x" * 5_000, "more than 4096 bytes")],
)
def test_a_key_that_is_none_is_refused(tmp_path, content, told):
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(InputError, match=told):
        read_key(str(path))
