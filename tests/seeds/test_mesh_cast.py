"""Sidecars with their brokers, hostile peers and hostile clients take part in a drawn mesh."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from trellis.judge import History, Promise, judge
from trellis.judge.history import (
    Acknowledged,
    Confirmed,
    Connected,
    Disturbed,
    Down,
    Publishing,
    Received,
    Refused,
    Settled,
    Subscribing,
    Unreachable,
    Up,
)
from trellis.live.mqtt.memory import Memory
from trellis.protocols.mqtt import packets as p
from trellis.simulate.mesh.broker import Broker, Store
from trellis.simulate.mesh.draw import KINDS, MeshPlan, draw_faults, draw_sites, has_lies
from trellis.simulate.mesh.hostile import HOSTILE, PROGRAMS
from trellis.simulate.mesh.mqtt import Connection
from trellis.simulate.mesh.trial import Trial, run_trial
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.whole.faults import Faults
from trellis.simulate.whole.world import World

FULL = MeshPlan(nodes_max=3, clients=6, span_s=12.0, quiet_s=30.0, sites=1.0, hostile=1.0, lies=1.0)
LOG = "$SYS/broker/log/#"


class Site:
    """A broker in a simulated world, and clients that connect to it."""

    def __init__(self, world: World) -> None:
        self.world, self.store, self.names = world, Store(), 0
        self.start()

    def start(self) -> None:
        async def serve() -> None:
            await Broker(self.store).serve(self.world.host("broker").address, 1883)

        self.world.host("broker").start(serve())
        self.world.run_for(0.1)

    def run(self, work: Callable[[Site], Coroutine[Any, Any, Any]]) -> Any:
        self.names += 1
        return self.world.run(self.world.host(f"client{self.names}").start(work(self)), 60)

    async def connect(self, name: str, *, clean: bool = True, expiry_s: int = 0, version: int = p.V5) -> Client:
        client = Client(version)
        hello = p.Connect(version=version, client=name, clean_start=clean, expiry_s=expiry_s, keep_alive_s=4)
        client.welcome = await client.open(f"{self.world.host('broker').address}:1883", hello)
        return client


class Client(Connection):
    welcome: p.ConnAck

    def __init__(self, version: int) -> None:
        import asyncio

        self.found: list[p.Publish] = []
        self.acknowledges = True
        super().__init__(version, asyncio.get_running_loop().time, self.take)

    def take(self, packet: p.Publish) -> None:
        self.found.append(packet)
        if packet.id is not None and self.acknowledges:
            self.send(p.Ack(p.PUBACK, packet.id))

    async def want(self, wanted: str, qos: int = 1, *, no_local: bool = False) -> None:
        await self.ask(p.Subscribe(1, (p.Asked(wanted, qos, no_local=no_local),)), "SubAck", 1)

    async def say(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        packet = p.Publish(topic=topic, payload=payload, qos=1, id=7, retain=retain)
        await self.ask(packet, f"Ack{p.PUBACK}", 7)

    async def texts(self, count: int) -> list[bytes]:
        import asyncio

        while len(self.found) < count:
            await asyncio.sleep(0.01)
        return [one.payload for one in self.found]


def test_a_broker_keeps_sessions_and_retained_messages_when_its_process_ends() -> None:
    async def first(site: Site) -> None:
        reader = await site.connect("reader", clean=False, expiry_s=600)
        await reader.want("a/#")
        reader.cut()
        writer = await site.connect("writer")
        await writer.say("a/b", b"while you were away", retain=True)

    async def second(site: Site) -> list[bytes]:
        reader = await site.connect("reader", clean=False, expiry_s=600)
        assert reader.welcome.session_present
        newcomer = await site.connect("newcomer")
        await newcomer.want("a/+")
        assert [(one.payload, one.retain) for one in newcomer.found or [await _one(newcomer)]] == [
            (b"while you were away", True)
        ]
        return await reader.texts(1)

    with World(1) as world:
        site = Site(world)
        site.run(first)
        Faults(world).crash("broker")
        site.start()
        assert site.run(second) == [b"while you were away"]
        assert not world.failures


async def _one(client: Client) -> p.Publish:
    await client.texts(1)
    return client.found[0]


def test_a_broker_sends_nothing_back_to_a_client_that_wants_no_local_messages() -> None:
    async def work(site: Site) -> list[bytes]:
        sidecar, other = await site.connect("sidecar"), await site.connect("other")
        await sidecar.want("#", no_local=True)
        await sidecar.say("a", b"mine")
        await other.say("a", b"theirs")
        return await sidecar.texts(1)

    with World(1) as world:
        assert Site(world).run(work) == [b"theirs"]


def test_a_broker_tells_subscriptions_on_its_log_until_they_are_read() -> None:
    async def work(site: Site) -> None:
        sidecar = await site.connect("sidecar", clean=False, expiry_s=600)
        await sidecar.want(LOG)
        sidecar.acknowledges = False
        client = await site.connect("pump", version=p.V311)
        await client.want("plant/oven")
        await sidecar.texts(2)
        assert sidecar.found[-1].payload.endswith(b": pump 1 plant/oven")
        assert not site.store.is_read("pump", "plant/oven")
        sidecar.cut()
        sidecar = await site.connect("sidecar", clean=False, expiry_s=600)
        await sidecar.texts(2)
        assert sidecar.found[1].dup
        await client.want("plant/press")  # comes after what was sent again
        await sidecar.texts(3)
        assert site.store.is_read("pump", "plant/oven")

    with World(1) as world:
        Site(world).run(work)


def test_a_sidecar_that_forgets_what_it_learned_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that stay connected to their broker hear nothing any more after a restart of the sidecar."""
    plan = MeshPlan(nodes_min=2, nodes_max=2, clients=6, span_s=15.0, quiet_s=30.0, sites=1.0)
    (sidecar,) = draw_sites(plan, ["n0", "n1"], 8).values()
    restart = Schedule((Fault(28_000, "crash", (sidecar,), duration_ms=1_000),))
    assert run_trial(8, plan, restart, {}).failures == []
    monkeypatch.setattr(Memory, "_restore", lambda self: None)
    assert "did not get" in str(run_trial(8, plan, restart, {}).failures)


def test_brokers_and_hostile_programs_are_drawn_in_turn() -> None:
    assert set(PROGRAMS) <= set(HOSTILE) <= set(KINDS)
    plan, names = MeshPlan(sites=0.0, hostile=0.0, lies=0.0), ["n0", "n1"]
    for seed, kind in enumerate(KINDS):
        sites = draw_sites(plan, names, seed)
        assert bool(sites) == kind.startswith(("broker-", "sidecar-"))
        faults = draw_faults(plan, names, ["c0"], seed, sites)
        assert kind in {one.kind for one in faults.faults}
        assert has_lies(faults) == (kind in ("stranger", "replay"))


def test_a_seed_with_brokers_and_hostile_peers_is_the_same_run_under_another_hash_seed() -> None:
    program = (
        "import hashlib, logging\n"
        "from seeds.test_mesh_cast import FULL\n"
        "from trellis.simulate.mesh.trial import Trial, run_trial\n"
        "logging.disable(logging.CRITICAL)\n"
        "for seed in (17, 18):\n"
        "    result = run_trial(seed, FULL)\n"
        "    kinds = sorted(result.injected)\n"
        "    print(result.digest, hashlib.blake2b(result.history.to_bytes()).hexdigest(), kinds)\n"
    )
    running = []
    for hash_seed in ("1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        running.append(
            subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
        )
    first, second = (one.communicate(timeout=300)[0] for one in running)
    assert first == second
    assert "stranger" in first or "replay" in first


# What the judge makes of it


def judged(*events: Any) -> list[str]:
    return [one.kind for one in judge(History(sorted(events, key=lambda one: one.t)), Promise()).violations]


def story(broker: str, *more: Any) -> list[str]:
    """A message of a broker's client that a subscriber gets twice."""
    return judged(
        Connected(0.0, "w", "w", "n0", broker),
        Connected(0.0, "r", "r", "n1"),
        Subscribing(1.0, "r", "t"),
        Confirmed(2.0, "r", "t"),
        Publishing(100.0, "w", "m", "t", 0),
        Received(101.0, "r", "m", "t"),
        Received(102.0, "r", "m", "t"),
        *more,
        Settled(200.0),
    )


def test_what_is_between_a_broker_and_its_sidecar_may_come_twice_when_they_are_disturbed() -> None:
    cut = Disturbed(99.0, 101.0, "reset", ("b0", "n0"))
    assert story("b0", cut) == []
    assert story("b0") == ["twice"]
    assert story("", cut) == ["twice"]


def test_a_node_keeps_copies_where_a_retained_message_was_published_through_it() -> None:
    def events(*, retain: bool) -> list[Any]:
        return [
            Connected(100.0, "w", "w", "n0"),
            Connected(100.0, "k", "k", "n1"),
            Publishing(101.0, "k", "kept", "t/deep", 0, retain),
            Publishing(102.0, "w", "m", "t"),
            Acknowledged(102.1, "w", "m", ("n0", "n1")),
        ]

    assert judged(*events(retain=True)) == []
    assert judged(*events(retain=False)) == ["copies"]


def waits(*more: Any) -> list[str]:
    return judged(
        Connected(0.0, "w", "w", "n0"), Publishing(100.0, "w", "m", "t"), Acknowledged(116.0, "w", "m"), *more
    )


def test_a_crash_alone_holds_up_no_acknowledgement_for_long() -> None:
    assert set(waits(Down(90.0, "n1"))) == {"late"}
    assert waits(Down(90.0, "n1"), Up(95.0, "n1")) == [], "a node that has just started is not sure of itself"
    assert waits(Down(90.0, "n1"), Disturbed(98.0, 99.0, "partition")) == []


def test_a_calm_mesh_takes_clients_and_refuses_only_for_its_limits() -> None:
    events = [
        Connected(100.0, "w", "w", "n0"),
        Publishing(101.0, "w", "m", "t"),
        Refused(102.0, "w", "m", "no room for more"),
        Unreachable(103.0, "c", "n0", 102.0),
    ]

    def told(*may_refuse: str, cut: bool = False) -> str:
        faults = [Disturbed(99.0, 104.0, "partition")] if cut else []
        return "\n".join(
            one.text for one in judge(History([*faults, *events]), Promise(may_refuse=may_refuse)).violations
        )

    assert "could not connect" in told("room")
    assert "refused in calm" not in told("room")
    assert "refused in calm" in told("another reason")
    assert told(cut=True) == ""
    events.insert(0, Down(40.0, "n0", True))
    assert told() == "", "a mesh may be calm without a node"


def test_lies_of_a_peer_count_for_one_window_and_no_longer() -> None:
    assert story("", Disturbed(90.0, 95.0, "stranger", ("n0",))) == []
    assert story("", Disturbed(20.0, 25.0, "stranger", ("n0",))) == ["twice"]


def test_a_flood_at_a_broker_keeps_no_client_from_its_sidecar() -> None:
    """On a slow machine the node would compute for seconds if it took in all at once what the broker has for it."""
    plan = MeshPlan(nodes_min=1, nodes_max=1, clients=4, sites=1.0, span_s=8.0, quiet_s=20.0)
    trial = Trial(2, plan, Schedule((Fault(20_000, "flood", ("n0",), duration_ms=6_000),)), {})
    trial.slowness = 10
    assert trial.world.network.config.receive_buffer > 100_000, "choose another seed: the kernel holds the flood back"
    assert trial.run().failures == []
