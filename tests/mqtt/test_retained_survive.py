"""Retained messages survive the loss of nodes: keepers hold them, and are replaced when they are lost."""

from __future__ import annotations

from random import Random

import pytest

from mqtt.delayed import Mesh
from trellis.protocols.mqtt import keepers

SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))]


def mesh_of(names: str, seed: int) -> Mesh:
    mesh = Mesh(names, Random(seed), 300, 500)
    mesh.pass_time(20_000)
    return mesh


def holders(mesh: Mesh, topic: str = "r/t/x") -> set[str]:
    return {name for name, host in mesh.hosts.items() if topic in host.retained}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("filter_", ["r/t/x", "r/#"])
def test_a_retained_message_survives_the_node_of_its_publisher_though_nobody_subscribed(seed: int, filter_: str):
    mesh = mesh_of("abcd", seed)
    mesh.send("d", "r/t/x", b"kept", retain=True)
    mesh.pass_time(5_000)
    assert len(holders(mesh)) >= 2
    mesh.stop("d")
    mesh.pass_time(5_000)
    mesh.subscribe("a", filter_)
    mesh.pass_time(20_000)
    assert mesh.got["a"] == [("r/t/x", b"kept")]


@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_are_lost_one_after_the_other_and_the_last_one_still_has_it(seed: int):
    mesh = mesh_of("abcde", seed)
    mesh.send("e", "r/t/x", b"kept", retain=True)
    mesh.pass_time(10_000)
    random = Random(seed)
    while len(mesh.hosts) > 2:
        mesh.stop(random.choice(sorted(mesh.hosts)))
        mesh.pass_time(40_000)
    (first, _) = mesh.hosts
    mesh.subscribe(first, "r/t/x")
    mesh.pass_time(20_000)
    assert mesh.got[first] == [("r/t/x", b"kept")]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_reader_sees_an_older_one_after_a_newer_one(seed: int):
    mesh, random = mesh_of("abcd", seed), Random(seed)
    for number in range(30):
        name = random.choice(sorted(mesh.hosts))
        mesh.send(name, "r/t/x", b"%03d" % number, retain=True)
        mesh.pass_time(random.randint(500, 3_000))
        if number == 15:
            mesh.stop(random.choice("bcd"))
        if number == 20:
            mesh.subscribe("a", "r/t/x")
    mesh.pass_time(20_000)
    got = [payload for _, payload in mesh.got["a"]]
    assert got == sorted(got)
    assert got[-1] == b"029"


def test_a_removed_message_does_not_come_back_when_its_node_is_lost():
    mesh = mesh_of("abcd", 3)
    mesh.send("d", "r/t/x", b"kept", retain=True)
    mesh.pass_time(10_000)
    mesh.send("d", "r/t/x", b"", retain=True)
    mesh.pass_time(5_000)
    mesh.stop("d")
    mesh.pass_time(20_000)
    mesh.subscribe("a", "r/t/x")
    mesh.pass_time(20_000)
    assert mesh.got["a"] == []


def test_keepers_leave_an_overlay_topic_where_nothing_is_retained():
    mesh = mesh_of("abcd", 4)
    mesh.send("d", "r/t/x", b"kept", retain=True)
    mesh.pass_time(10_000)
    adopted = [name for name, host in mesh.hosts.items() if "r/t" in host.recaller.adopted]
    assert adopted
    mesh.send("d", "r/t/x", b"", retain=True)
    mesh.pass_time(keepers.EMPTY_MS + 10_000)
    assert all(not host.recaller.adopted for host in mesh.hosts.values())
    assert all(not host.keepers.is_busy for host in mesh.hosts.values())
    assert all(not host.interests.wanted["r/t"] for host in mesh.hosts.values())


def test_a_keeper_that_restarts_is_asked_again():
    mesh = mesh_of("abc", 5)
    mesh.send("c", "r/t/x", b"kept", retain=True)
    mesh.pass_time(10_000)
    for name in "ab":
        mesh.stop(name)
        mesh.start(name)
        mesh.pass_time(20_000)
    assert len(holders(mesh)) >= 2
